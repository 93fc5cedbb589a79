"""Logits of a language model that are made when somebody looks at them.

A head that was patched gives Logits while the model is trained. The loss takes what they would be made of, by
linear_cross_entropy, and they are never in memory; whatever else is done with them makes them first. Their shape, type
and device are known at once.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from tenon.torch._patch.forward import Replacement
from tenon.torch._patch.linear import has_hooks, is_distributed
from tenon.torch._public import functions
from tenon.torch.optim._shared import is_sharded

_ABOUT: tuple[Any, ...] = (
    Tensor.shape.__get__,  # type: ignore[attr-defined]
    Tensor.dtype.__get__,  # type: ignore[attr-defined]
    Tensor.device.__get__,
    Tensor.ndim.__get__,  # type: ignore[attr-defined]
    Tensor.size,
    Tensor.dim,
    Tensor.numel,
    Tensor.is_floating_point,
)
_loss = functions["linear_cross_entropy"]


class Logits(Tensor):
    """hidden weight^T + bias, not made yet."""

    hidden: Tensor
    weight: Tensor
    bias: Tensor | None
    kind: torch.dtype
    mib: int  # of them that may be in memory at a time
    version: int  # of the weight
    whole: Tensor | None

    @staticmethod
    def of(hidden: Tensor, weight: Tensor, bias: Tensor | None, mib: int) -> Logits:
        kind, device = hidden.dtype, hidden.device
        if torch.is_autocast_enabled(device.type):
            kind = torch.get_autocast_dtype(device.type)
        shape = (*hidden.shape[:-1], weight.shape[0])
        logits: Logits = Tensor._make_wrapper_subclass(Logits, shape, dtype=kind, device=device)
        logits.hidden, logits.weight, logits.bias, logits.kind = hidden, weight, bias, kind
        logits.mib, logits.version, logits.whole = mib, weight._version, None
        return logits

    def made(self) -> Tensor:
        if self.whole is not None:
            return self.whole
        if self.weight._version != self.version:
            raise RuntimeError(
                "the logits of this step were not made, since the loss did not need them, and the model's weights "
                "have changed since then: look at them before the optimizer's step, or use model.eval()"
            )
        with torch.autocast(self.hidden.device.type, self.kind, enabled=self.kind != self.hidden.dtype):
            whole = F.linear(self.hidden, self.weight, self.bias)
        if torch.is_grad_enabled():
            self.whole = whole
        return whole

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch._C.DisableTorchFunctionSubclass():  # type: ignore[no-untyped-call]
            if func not in _ABOUT:
                args, kwargs = tree_map_only(Logits, Logits.made, (args, kwargs or {}))
            return func(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        args, kwargs = tree_map_only(Logits, Logits.made, (args, kwargs or {}))
        return func(*args, **kwargs)

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"Logits({list(self.shape)}, dtype={self.dtype}, not made yet)"

    def loss(self, target: Tensor, ignore_index: int, reduction: str) -> Tensor:
        made: Tensor = _loss(
            self.hidden.reshape(-1, self.hidden.shape[-1]),
            self.weight,
            target,
            self.bias,
            ignore_index=ignore_index,
            reduction=reduction,
            logits_mib=self.mib,
        )
        return made


class Head(Replacement):
    """The forward of a head: of a linear layer whose result goes into a loss. Its setting is how many MiB of logits may
    be in memory."""

    def __init__(self, module: nn.Module, recipe: str, settings: tuple[Any, ...], weight: str | None = None) -> None:
        self.module, self.recipe, self.settings, self.weight = module, recipe, settings, weight

    def __call__(self, input: Tensor) -> Tensor:
        module: Any = self.module
        weight, bias = module.weight, module.bias
        whole = (
            not module.training
            or not torch.is_grad_enabled()
            or torch.compiler.is_compiling()
            or not weight.requires_grad
            or is_distributed()
            or any(is_sharded(t) or t.device != input.device for t in (input, weight))
            or (weight.dtype != input.dtype and not torch.is_autocast_enabled(input.device.type))
            or has_hooks(module)
        )
        return F.linear(input, weight, bias) if whole else Logits.of(input, weight, bias, *self.settings)


def install(module: nn.Module, mib: int) -> str | None:
    """Puts a Head into the head of a model whose loss takes Logits; the class of what it was put into."""
    find = getattr(module, "get_output_embeddings", None)
    head = find() if callable(find) else None
    if type(head) is not nn.Linear or "forward" in head.__dict__:
        return None
    head.forward = Head(head, "head", (mib,))  # type: ignore[method-assign]
    return type(head).__name__
