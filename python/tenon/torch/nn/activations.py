"""Activations. A one-input row of the table whose attributes are torch's arguments is one line here."""

from __future__ import annotations

from torch import Tensor, nn
from torch.fx import Proxy

import tenon
import tenon.torch as tn
from tenon._public import compile_source
from tenon.torch._public import functions, in_place
from tenon.torch.nn._rows import leaf


class _Activation:
    """In front of torch's module in the list of bases: its forward becomes the operator `row`.

    Attributes of the operator are fields of the module; `renamed` says what torch calls those that it names otherwise.
    """

    def __init_subclass__(cls, row: str | None = None, **renamed: str) -> None:
        super().__init_subclass__()
        if row is None:  # a user's, which inherits the forward
            return
        op = tenon.ops()[row]
        fields = "".join(f", self.{renamed.get(a.name, a.name)}" for a in op.attrs)
        written = (
            "    if self.inplace:\n"
            "        if isinstance(input, _Proxy):\n"
            "            return _leaf(self, input)\n"
            f"        return _in_place(_row, input{fields})\n"
        )
        has_flag = "inplace" in getattr(cls, "__constants__", ())
        source = f"def forward(self, input):\n{written if has_flag else ''}    return _row(input{fields})\n"
        names = {"_row": functions[row], "_in_place": in_place, "_Proxy": Proxy, "_leaf": leaf}
        # Written out, so that a call costs what a hand-written one would.
        made = compile_source(source, f"{cls.__name__}.forward", names)["forward"]
        made.__qualname__, made.__module__ = f"{cls.__name__}.forward", cls.__module__
        type.__setattr__(cls, "forward", made)
        if cls.__doc__ is None:
            cls.__doc__ = f"{op.doc} tn.{row} as a module; arguments as torch.nn.{cls.__name__}'s."


class ReLU(_Activation, nn.ReLU, row="relu"): ...


class LeakyReLU(_Activation, nn.LeakyReLU, row="leaky_relu", slope="negative_slope"): ...


class ELU(_Activation, nn.ELU, row="elu"): ...


class CELU(_Activation, nn.CELU, row="celu"):
    """tn.celu as a module; arguments as torch.nn.CELU's."""

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        if alpha == 0:
            raise ValueError("tn.nn.CELU: alpha must not be 0")
        super().__init__(alpha, inplace)


class SELU(_Activation, nn.SELU, row="selu"): ...


class Sigmoid(_Activation, nn.Sigmoid, row="sigmoid"): ...


class LogSigmoid(_Activation, nn.LogSigmoid, row="log_sigmoid"): ...


class Hardsigmoid(_Activation, nn.Hardsigmoid, row="hard_sigmoid"): ...


class Tanh(_Activation, nn.Tanh, row="tanh"): ...


class Softsign(_Activation, nn.Softsign, row="softsign"): ...


class SiLU(_Activation, nn.SiLU, row="silu"): ...


class Hardswish(_Activation, nn.Hardswish, row="hard_swish"): ...


class Mish(_Activation, nn.Mish, row="mish"): ...


class QuickGELU(_Activation, nn.Module, row="quick_gelu"):
    """x * sigmoid(1.702 * x), the GELU of CLIP; torch has no module for it."""


class GELU(nn.GELU):
    """tn.gelu as a module, or tn.gelu_tanh with approximate='tanh'; arguments as torch.nn.GELU's."""

    def __init__(self, approximate: str = "none") -> None:
        super().__init__(approximate)
        if approximate not in ("none", "tanh"):
            raise ValueError(f"tn.nn.GELU: approximate is {approximate!r}, must be 'none' or 'tanh'")

    def forward(self, input: Tensor) -> Tensor:
        return tn.gelu_tanh(input) if self.approximate == "tanh" else tn.gelu(input)


class Softplus(nn.Softplus):
    """tn.softplus as a module; arguments as torch.nn.Softplus's."""

    def forward(self, input: Tensor) -> Tensor:
        return tn.softplus(input, self.beta, self.threshold)


class PReLU(nn.PReLU):
    """tn.prelu as a module; arguments as torch.nn.PReLU's."""

    def forward(self, input: Tensor) -> Tensor:
        return tn.prelu(input, self.weight)


class Softmax(nn.Softmax):
    """tn.softmax as a module; arguments as torch.nn.Softmax's, but dim has to be given."""

    def __init__(self, dim: int | None = None) -> None:
        super().__init__(dim)
        if dim is None:
            raise ValueError("tn.nn.Softmax: dim has to be given; -1 is the last dimension")

    def forward(self, input: Tensor) -> Tensor:
        assert self.dim is not None
        return tn.softmax(input.contiguous(), self.dim)  # as LayerNorm


class LogSoftmax(nn.LogSoftmax):
    """tn.log_softmax as a module; arguments as torch.nn.LogSoftmax's, but dim has to be given."""

    def __init__(self, dim: int | None = None) -> None:
        super().__init__(dim)
        if dim is None:
            raise ValueError("tn.nn.LogSoftmax: dim has to be given; -1 is the last dimension")

    def forward(self, input: Tensor) -> Tensor:
        assert self.dim is not None
        return tn.log_softmax(input.contiguous(), self.dim)  # as LayerNorm
