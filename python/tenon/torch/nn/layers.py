"""Normalisations, dropout and fused layers."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.fx import Proxy
from torch.nn.utils import fusion

import tenon
import tenon.torch as tn
from tenon.contract import Attr
from tenon.torch.nn._rows import held, leaf


def _choices(op: str, attr: str) -> tuple[str, ...]:
    """The words that an attribute may be."""
    return next(p.choices for p in tenon.ops()[op].params if isinstance(p, Attr) and p.name == attr)


def _check_choice(module: str, name: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise ValueError(f"tn.nn.{module}: {name} is {value!r}, must be one of {', '.join(choices)}")


# What normalises rows, softmax too, gets them contiguous, as torch's modules make them: the operators keep the layout
# of their input, and a model may view the result.


class LayerNorm(nn.LayerNorm):
    """tn.layer_norm as a module; arguments as torch.nn.LayerNorm's."""

    def forward(self, input: Tensor) -> Tensor:
        if isinstance(input, Proxy):
            return leaf(self, input)
        return tn.layer_norm(
            input.contiguous(), self.normalized_shape, held(self, "weight"), held(self, "bias"), self.eps
        )


class RMSNorm(nn.RMSNorm):
    """tn.rms_norm as a module; arguments as torch.nn.RMSNorm's."""

    def forward(self, x: Tensor) -> Tensor:
        if isinstance(x, Proxy):
            return leaf(self, x)
        return tn.rms_norm(x.contiguous(), self.normalized_shape, held(self, "weight"), self.eps)


# What makes another module of a batch norm, from its fields and without its activation.
_LOSES_ACT = {
    function.__code__: name
    for name, function in {
        "SyncBatchNorm.convert_sync_batchnorm": vars(nn.SyncBatchNorm)["convert_sync_batchnorm"].__func__,
        "fuse_conv_bn_eval": fusion.fuse_conv_bn_eval,
        "fuse_linear_bn_eval": fusion.fuse_linear_bn_eval,
    }.items()
}


def normalize_batch(
    module: nn.modules.batchnorm._BatchNorm, input: Tensor, residual: Tensor | None = None, act: str = "none"
) -> Tensor:
    """What a batch norm of torch's computes, then plus residual, then act. In training it moves the statistics."""
    module._check_input_dim(input)  # type: ignore[no-untyped-call]
    mean, var = held(module, "running_mean"), held(module, "running_var")
    weight, bias, eps = held(module, "weight"), held(module, "bias"), module.eps
    if not module.training and mean is not None and var is not None:
        return tn.batch_norm(input, mean, var, weight, bias, eps=eps, residual=residual, act=act)
    kept = module.training and module.track_running_stats and mean is not None and var is not None
    count = held(module, "num_batches_tracked") if kept else None
    if count is not None:
        count.add_(1)
    factor = 1.0 / float(count) if count is not None and module.momentum is None else module.momentum or 0.0
    mean, var = (mean, var) if kept else (None, None)
    return tn.batch_norm(input, mean, var, weight, bias, True, factor, eps, residual=residual, act=act)


class _BatchNorm(nn.modules.batchnorm._BatchNorm):
    """In front of torch's module in the list of bases."""

    act: str = "none"  # a module of torch's whose class is set to one of these has none of its own

    @property
    def running_var(self) -> Tensor | None:  # type: ignore[override]
        """Refused to the functions of torch that would lose the activation, which all ask for it."""
        if self.act != "none" and not torch.compiler.is_compiling():
            name = _LOSES_ACT.get(sys._getframe(1).f_code)
            if name is not None:
                own = f"tn.nn.{type(self).__name__}(act={self.act!r})"
                raise NotImplementedError(f"{name} would lose the activation of {own}: use a module of its own for it")
        buffers = self._buffers
        if "running_var" not in buffers:  # not yet: this tells register_buffer so
            raise AttributeError("running_var")
        return buffers["running_var"]

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
        return normalize_batch(self, input, residual, self.act)


class BatchNorm1d(_BatchNorm, nn.BatchNorm1d):
    """tn.batch_norm as a module; arguments as torch.nn.BatchNorm1d's, and `act` and `residual` as BatchNorm2d's."""


class BatchNorm2d(_BatchNorm, nn.BatchNorm2d):
    """tn.batch_norm as a module; arguments as torch.nn.BatchNorm2d's.

    BatchNorm2d(64, act='relu') ends with the activation, and norm(x, residual) adds a residual in front of it, in the
    same pass over memory. What would lose the activation, SyncBatchNorm.convert_sync_batchnorm and the functions of
    torch.nn.utils.fusion, raises NotImplementedError.
    """


class BatchNorm3d(_BatchNorm, nn.BatchNorm3d):
    """tn.batch_norm as a module; arguments as torch.nn.BatchNorm3d's, and `act` and `residual` as BatchNorm2d's."""


class GroupNorm(nn.GroupNorm):
    """tn.group_norm as a module; arguments as torch.nn.GroupNorm's. GroupNorm(8, 64, act='silu') ends with the
    activation, in the same pass over memory."""

    act: str = "none"  # a module of torch's whose class is set to this one has none of its own

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        act: str = "none",
    ) -> None:
        super().__init__(num_groups, num_channels, eps, affine, device, dtype)
        _check_choice("GroupNorm", "act", act, _choices("group_norm", "act"))
        self.act = act

    def extra_repr(self) -> str:
        shown: str = super().extra_repr()
        return f"{shown}, act={self.act!r}" if self.act != "none" else shown

    def forward(self, input: Tensor) -> Tensor:
        if isinstance(input, Proxy):
            return leaf(self, input)
        return tn.group_norm(input, self.num_groups, held(self, "weight"), held(self, "bias"), self.eps, act=self.act)


class _InstanceNorm(nn.modules.instancenorm._InstanceNorm):
    """In front of torch's module in the list of bases."""

    act: str = "none"

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        act: str = "none",
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype)
        _check_choice(type(self).__name__, "act", act, _choices("instance_norm", "act"))
        self.act = act

    def extra_repr(self) -> str:
        shown: str = super().extra_repr()  # type: ignore[no-untyped-call]
        return f"{shown}, act={self.act!r}" if self.act != "none" else shown

    def forward(self, input: Tensor) -> Tensor:
        if isinstance(input, Proxy):
            return leaf(self, input)
        self._check_input_dim(input)  # type: ignore[no-untyped-call]
        batch = input.ndim == self._get_no_batch_dim() + 1  # type: ignore[no-untyped-call]
        channels, dim = input.shape[1 if batch else 0], 1 if batch else 0
        if channels != self.num_features and self.affine:
            raise ValueError(
                f"tn.nn.{type(self).__name__}: input has {channels} channels in dimension {dim}, but num_features is "
                f"{self.num_features}"
            )
        y = tn.instance_norm(
            input if batch else input[None],
            held(self, "running_mean"),
            held(self, "running_var"),
            held(self, "weight"),
            held(self, "bias"),
            self.training or not self.track_running_stats,
            self.momentum or 0.0,
            self.eps,
            act=self.act,
        )
        return y if batch else y[0]


class InstanceNorm1d(_InstanceNorm, nn.InstanceNorm1d):
    """tn.instance_norm as a module; arguments as torch.nn.InstanceNorm1d's, and `act`, which ends it."""


class InstanceNorm2d(_InstanceNorm, nn.InstanceNorm2d):
    """tn.instance_norm as a module; arguments as torch.nn.InstanceNorm2d's, and `act`, which ends it."""


class InstanceNorm3d(_InstanceNorm, nn.InstanceNorm3d):
    """tn.instance_norm as a module; arguments as torch.nn.InstanceNorm3d's, and `act`, which ends it."""


class Dropout(nn.Dropout):
    """tn.dropout as a module; arguments as torch.nn.Dropout's.

    The mask comes from a counter and a seed, and is made again in the backward pass instead of being kept. The seed is
    drawn from the generator of the input's device: torch.manual_seed makes it reproducible.
    """

    def forward(self, input: Tensor) -> Tensor:
        if isinstance(input, Proxy):
            return leaf(self, input)
        return tn.dropout(input, self.p, self.training, self.inplace)


class Embedding(nn.Embedding):
    """tn.embedding as a module; arguments as torch.nn.Embedding's, but for max_norm, scale_grad_by_freq and sparse.

    The gradient of the weight has the same bits every time.
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: Tensor | None = None,
        _freeze: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        refused = {"max_norm": max_norm is not None, "scale_grad_by_freq": scale_grad_by_freq, "sparse": sparse}
        for name, wanted in refused.items():
            if wanted:
                raise NotImplementedError(f"tn.nn.Embedding: there is no {name}; torch.nn.Embedding has it")
        super().__init__(
            num_embeddings,
            embedding_dim,
            padding_idx,
            norm_type=norm_type,
            _weight=_weight,
            _freeze=_freeze,
            device=device,
            dtype=dtype,
        )

    def forward(self, input: Tensor) -> Tensor:
        if isinstance(input, Proxy):
            return leaf(self, input)
        weight = held(self, "weight")
        assert weight is not None
        return tn.embedding(input, weight, self.padding_idx)


class Linear(nn.Linear):
    """tn.linear as a module; arguments as torch.nn.Linear's.

    Linear(64, 256, act='gelu') ends with the activation, and layer(x, residual) adds a residual in front of it, both
    where the product is written.
    """

    act: str = "none"  # a module of torch's whose class is set to this one has none of its own

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        act: str = "none",
    ) -> None:
        super().__init__(in_features, out_features, bias, device, dtype)
        _check_choice("Linear", "act", act, _choices("linear", "act"))
        self.act = act

    def extra_repr(self) -> str:
        shown: str = super().extra_repr()
        return f"{shown}, act={self.act!r}" if self.act != "none" else shown

    def forward(self, input: Tensor, residual: Tensor | None = None) -> Tensor:
        if isinstance(input, Proxy):
            return leaf(self, input, residual)
        weight, bias = held(self, "weight"), held(self, "bias")
        y: Tensor = tn.linear(input, weight, bias, residual=residual, act=self.act)
        return y


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
        return tn.scale_bias_relu(input, scale=held(self, "scale"), bias=held(self, "bias"))


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
