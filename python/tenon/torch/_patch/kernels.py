"""Layers for the package `kernels` of Hugging Face, by whose names models of transformers call for faster ones.

`kernels` takes a layer from a repository on its hub, or from any object with a function `load`. Ours come from this
package, so that nothing is loaded from a network.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import tenon.torch as tn


class RMSNorm(nn.Module):
    can_torch_compile = True
    has_backward = True

    def forward(self, hidden_states: Tensor) -> Tensor:
        return _normalized(self, hidden_states, False)


class RMSNormZeroCentered(nn.Module):
    can_torch_compile = True
    has_backward = True

    def forward(self, hidden_states: Tensor) -> Tensor:
        return _normalized(self, hidden_states, True).type_as(hidden_states)


def _normalized(module: nn.Module, x: Tensor, zero_centered: bool) -> Tensor:
    """The weight is the module's; of two types it is the wider that comes out."""
    weight: Any = module.weight
    eps: Any = getattr(module, "variance_epsilon", None) or module.eps
    y = tn.rms_norm(x.contiguous(), weight.shape, weight, eps, zero_centered=zero_centered)
    return y if y.dtype == weight.dtype else y.to(torch.promote_types(y.dtype, weight.dtype))


def _activation(name: str, function: Callable[[Tensor], Tensor]) -> type[nn.Module]:
    def forward(self: nn.Module, input: Tensor) -> Tensor:
        return function(input)

    return type(name, (nn.Module,), {"forward": forward, "can_torch_compile": True, "has_backward": True})


_ACTIVATIONS: dict[str, Any] = {
    "FastGELU": tn.gelu_tanh,
    "GeLU": tn.gelu,
    "GeluTanh": tn.gelu_tanh,
    "NewGELU": tn.gelu_tanh,
    "QuickGELU": tn.quick_gelu,
    "SiLU": tn.silu,
}
LAYERS: dict[str, type[nn.Module]] = {
    "RMSNorm": RMSNorm,
    "RMSNormZeroCentered": RMSNormZeroCentered,
    **{name: _activation(name, function) for name, function in _ACTIVATIONS.items()},
}


class Local:
    """What `kernels` asks for a layer."""

    def __init__(self, name: str) -> None:
        self.name = name

    def load(self) -> type[nn.Module]:
        return LAYERS[self.name]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Local) and other.name == self.name

    def __hash__(self) -> int:
        return hash((Local, self.name))

    def __str__(self) -> str:
        return f"tenon.torch, layer {self.name}"


def kernel_mapping() -> dict[str, dict[str, Local]]:
    """Tenon's layers for `kernels` of Hugging Face, for models that call for them by name:

        from kernels import Mode, kernelize, use_kernel_mapping

        with use_kernel_mapping(tn.kernel_mapping()):
            kernelize(model, mode=Mode.TRAINING | Mode.TORCH_COMPILE, device="cuda")

    tn.patch(model) needs no names, finds more, and compares before it replaces.
    """
    return {name: {device: Local(name) for device in ("cpu", "cuda")} for name in LAYERS}
