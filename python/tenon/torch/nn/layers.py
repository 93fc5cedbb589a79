"""Normalisations, dropout and fused layers."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.fx import Proxy

import tenon
import tenon.torch as tn
from tenon.contract import Attr
from tenon.torch._seeds import draw
from tenon.torch.nn._rows import OutOfPlace, held, leaf


def _choices(op: str, attr: str) -> tuple[str, ...]:
    """The words that an attribute may be."""
    return next(p.choices for p in tenon.ops()[op].params if isinstance(p, Attr) and p.name == attr)


def _check_choice(module: str, name: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise ValueError(f"tn.nn.{module}: {name} is {value!r}, must be one of {', '.join(choices)}")


def _check_rows(input: Tensor, shape: tuple[int, ...], module: str) -> None:
    """The last dimensions must be `shape`."""
    if input.shape[-len(shape) :] != shape:
        raise ValueError(f"tn.nn.{module}: input has shape {list(input.shape)}, must end with {list(shape)}")


def _flat(weight: Tensor | None) -> Tensor | None:
    return None if weight is None else weight.flatten()


_EPS_32, _EPS_64 = torch.finfo(torch.float32).eps, torch.finfo(torch.float64).eps


# What normalises rows, softmax too, gets them contiguous, as torch's modules make them: the operators keep the layout
# of their input, and a model may view the result.


class LayerNorm(nn.LayerNorm):
    """tn.layer_norm as a module; arguments as torch.nn.LayerNorm's."""

    def forward(self, input: Tensor) -> Tensor:
        if isinstance(input, Proxy):
            return leaf(self, input)
        shape = self.normalized_shape
        _check_rows(input, shape, "LayerNorm")
        weight, bias = held(self, "weight"), held(self, "bias")
        if len(shape) == 1:
            return tn.layer_norm(input.contiguous(), weight, bias, self.eps)
        return tn.layer_norm(input.flatten(-len(shape)), _flat(weight), _flat(bias), self.eps).view_as(input)


class RMSNorm(nn.RMSNorm):
    """tn.rms_norm as a module; arguments as torch.nn.RMSNorm's."""

    def forward(self, x: Tensor) -> Tensor:
        if isinstance(x, Proxy):
            return leaf(self, x)
        shape, eps, weight = self.normalized_shape, self.eps, held(self, "weight")
        _check_rows(x, shape, "RMSNorm")
        if eps is None:  # that of the type that it is computed in
            eps = _EPS_64 if x.dtype == torch.float64 else _EPS_32
        if len(shape) == 1:
            return tn.rms_norm(x.contiguous(), weight, eps)
        return tn.rms_norm(x.flatten(-len(shape)), _flat(weight), eps).view_as(x)


class _BatchNorm(nn.modules.batchnorm._BatchNorm):
    """In front of torch's module in the list of bases."""

    act: str = "none"  # a module of torch's whose class is set to one of these has none of its own

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        act: str = "none",
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype)
        _check_choice(type(self).__name__, "act", act, _choices("batch_norm", "act"))
        self.act = act

    def extra_repr(self) -> str:
        shown: str = super().extra_repr()  # type: ignore[no-untyped-call]
        return f"{shown}, act={self.act!r}" if self.act != "none" else shown

    def forward(self, input: Tensor, residual: Tensor | None = None) -> Tensor:
        if isinstance(input, Proxy):
            return leaf(self, input, residual)
        self._check_input_dim(input)  # type: ignore[no-untyped-call]
        mean, var = held(self, "running_mean"), held(self, "running_var")
        if self.training or mean is None or var is None:
            return self._train(input, mean, var, residual)
        y: Tensor = tn.batch_norm_infer(
            input, mean, var, held(self, "weight"), held(self, "bias"), residual, eps=self.eps, act=self.act
        )
        return y

    def _train(
        self, input: Tensor, running_mean: Tensor | None, running_var: Tensor | None, residual: Tensor | None
    ) -> Tensor:
        if input.numel() == input.shape[1]:
            raise ValueError(
                f"tn.nn.{type(self).__name__}: one value per channel has no variance; input has shape "
                f"{list(input.shape)}"
            )
        kept = self.training and self.track_running_stats and running_mean is not None and running_var is not None
        factor = self._next_factor(kept)
        wide = kept and running_mean is not None and running_mean.dtype == torch.float64  # the operator's are f32
        mean = self._statistic(running_mean if kept and not wide else None, input)
        var = self._statistic(running_var if kept and not wide else None, input)
        weight, bias = held(self, "weight"), held(self, "bias")
        y: Tensor = tn.batch_norm(input, weight, bias, mean, var, residual, factor, self.eps, self.act)
        if wide:
            with torch.no_grad():
                F.batch_norm(input.double(), running_mean, running_var, training=True, momentum=factor)
        elif kept and running_mean is not mean:
            assert running_mean is not None and running_var is not None
            running_mean.copy_(mean)
            running_var.copy_(var)
        return y

    def _next_factor(self, kept: bool) -> float:
        """How much of the running statistics this batch becomes; it is counted."""
        count = held(self, "num_batches_tracked") if kept else None
        if count is not None:
            count.add_(1)
            if self.momentum is None:
                return 1.0 / float(count)
        return self.momentum or 0.0

    def _statistic(self, running: Tensor | None, input: Tensor) -> Tensor:
        """The statistic in f32, as the operator wants it; one that is not kept is there to be written over."""
        if running is None:
            return torch.zeros(self.num_features, device=input.device, dtype=torch.float32)
        return running if running.dtype == torch.float32 else running.float()


class BatchNorm1d(_BatchNorm, nn.BatchNorm1d):
    """tn.batch_norm as a module; arguments as torch.nn.BatchNorm1d's, and `act` and `residual` as BatchNorm2d's."""


class BatchNorm2d(_BatchNorm, nn.BatchNorm2d):
    """tn.batch_norm as a module; arguments as torch.nn.BatchNorm2d's.

    BatchNorm2d(64, act='relu') ends with the activation, and norm(x, residual) adds a residual in front of it, in the
    same pass over memory. Tools that put another module in the place of torch's, such as
    SyncBatchNorm.convert_sync_batchnorm, do not know of `act`.
    """


class BatchNorm3d(_BatchNorm, nn.BatchNorm3d):
    """tn.batch_norm as a module; arguments as torch.nn.BatchNorm3d's, and `act` and `residual` as BatchNorm2d's."""


class Dropout(OutOfPlace, nn.Dropout):
    """tn.dropout as a module; arguments as torch.nn.Dropout's.

    The mask comes from a counter and a seed, and is made again in the backward pass instead of being kept. The seed is
    drawn from the generator of the input's device: torch.manual_seed makes it reproducible.
    """

    def forward(self, input: Tensor) -> Tensor:
        if isinstance(input, Proxy):
            return leaf(self, input)
        if not self.training or self.p == 0:
            return input
        if self.p == 1:
            return input * 0.0
        return tn.dropout(input, draw(input.device), self.p)


class ScaleBiasReLU(nn.Module):
    """relu(x * scale + bias) with a learnt scale and bias of the given shape, which broadcasts to x.

    ScaleBiasReLU(64) is for the last dimension, ScaleBiasReLU((16, 1, 1)) for 16 channels of images.
    """

    def __init__(
        self,
        shape: int | Sequence[int],
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.shape = (shape,) if isinstance(shape, int) else tuple(shape)
        self.scale = nn.Parameter(torch.empty(self.shape, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.empty(self.shape, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.ones_(self.scale)
        nn.init.zeros_(self.bias)

    def extra_repr(self) -> str:
        return f"{self.shape}"

    def forward(self, input: Tensor) -> Tensor:
        return tn.scale_bias_relu(input, held(self, "scale"), held(self, "bias"))


class GatedMLP(nn.Module):
    """Two linear layers with a gate between them: down(x * act(gate)), where x and gate are the halves of up(input).

    gate: 'swiglu' (silu), 'geglu' (gelu) or 'reglu' (relu), each an operator of the table.
    """

    GATES = ("swiglu", "geglu", "reglu")

    def __init__(
        self,
        in_features: int,
        hidden_features: int,
        out_features: int | None = None,
        gate: str = "swiglu",
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        _check_choice("GatedMLP", "gate", gate, self.GATES)
        self.gate = gate
        self.up = nn.Linear(in_features, 2 * hidden_features, bias, device, dtype)
        self.down = nn.Linear(hidden_features, out_features or in_features, bias, device, dtype)

    def extra_repr(self) -> str:
        return f"gate={self.gate!r}"

    def forward(self, input: Tensor) -> Tensor:
        x, gate = self.up(input).chunk(2, -1)
        hidden: Tensor = getattr(tn, self.gate)(x, gate)
        y: Tensor = self.down(hidden)
        return y
