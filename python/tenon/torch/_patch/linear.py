"""Linear layers inside of a module that was patched: torch's products, which keep less for the backward pass.

This is for layers whose forward is that of torch.nn.Linear and that have no hooks. All others, such as those that an
adapter wraps, are called as modules.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn.modules.module import _has_any_global_hook

import tenon.torch as tn
from tenon import _rules
from tenon.contract import fused

_TABLE = {"silu": "swiglu", "gelu": "geglu", "relu": "reglu"}


def has_hooks(module: nn.Module) -> bool:
    return any(value for name, value in module.__dict__.items() if name.endswith("_hooks"))


class Layer(NamedTuple):
    """A linear layer, in the type of its products."""

    weight: Tensor
    bias: Tensor | None


def _product_type(tensor: Tensor) -> torch.dtype:
    """The type that autocast has products of this tensor in."""
    kind = tensor.device.type
    if tensor.dtype == torch.float64 or not tensor.is_floating_point() or not torch.is_autocast_enabled(kind):
        return tensor.dtype
    return torch.get_autocast_dtype(kind)


def is_recorded() -> bool:
    """Whether what is called now is recorded by autograd alone, and by nothing that follows it."""
    return (
        torch.is_grad_enabled()
        and not torch.compiler.is_compiling()
        and torch._C._get_tracing_state() is None
        and not torch._C._are_functorch_transforms_active()
    )


def plain_layer(child: nn.Module, input: Tensor) -> Layer | None:
    """The layer that a child is, for an input that is recorded; None where it has to be called as a module."""
    if not is_recorded() or type(child) is not nn.Linear or "forward" in child.__dict__:
        return None
    if has_hooks(child) or _has_any_global_hook():  # type: ignore[no-untyped-call]
        return None
    weight, bias, dtype = child.weight, child.bias, _product_type(input)
    tensors = [weight] if bias is None else [weight, bias]
    if any(type(t) is not nn.Parameter or t.device != input.device or _product_type(t) != dtype for t in tensors):
        return None
    return Layer(weight.to(dtype), None if bias is None else bias.to(dtype))


def _as_rows(tensor: Tensor) -> Tensor:
    return tensor.reshape(-1, tensor.shape[-1])


# ---- a gate and the layer behind it ----------------------------------------------------------------------------------


def gate_name(activation: str) -> str:
    """The operator, or the formula, of a gate."""
    return _TABLE.get(activation, f"x * {activation}(gate)")


class Gate(NamedTuple):
    """x * act(gate)"""

    result: Callable[..., Tensor]  # of x and gate
    gradients: Callable[..., tuple[Tensor, Tensor, Tensor]]  # of x, gate and dy: theirs, and the result once more


@cache
def gate_of(activation: str) -> Gate:
    name, text = gate_name(activation), f"x * {activation}(gate)"
    (rule,) = _rules.statements_of(fused(f"gate(x: T[*s], gate: T[*s]) -> y: T[*s] : {text}"))
    assert rule.formula is not None
    head, _, body = rule.formula.replace("?", "").partition(" : ")
    gradients = tn.fuse(f"{head}, again: T[*s] : {body}; again = {text}")
    return Gate(getattr(tn, name) if activation in _TABLE else tn.fuse(name), gradients)


class _Gated(Function):
    """linear(x * act(gate), weight, bias). The weight's gradient needs this product again: it is made where the
    gradients of x and gate are, and so it is not kept."""

    @staticmethod
    def forward(ctx: Any, act: Gate, x: Tensor, gate: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, gate, weight)
        ctx.act = act
        return F.linear(act.result(x, gate), weight, bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        x, gate, weight = ctx.saved_tensors
        dy = _as_rows(grads[0])
        dx, dgate, again = ctx.act.gradients(x, gate, (dy @ weight).view(x.shape))
        wants_bias = ctx.needs_input_grad[4]
        return None, dx, dgate, dy.mT @ _as_rows(again), dy.sum(0) if wants_bias else None


def gated(act: Gate, x: Tensor, gate: Tensor, down: nn.Module) -> Tensor:
    """down(x * act(gate))"""
    layer = plain_layer(down, x)
    if layer is None or x.dtype != gate.dtype or not (layer.weight.requires_grad and x.requires_grad):
        y: Tensor = down(act.result(x, gate))
    else:
        dtype = layer.weight.dtype
        y = _Gated.apply(act, x.to(dtype), gate.to(dtype), *layer)  # type: ignore[no-untyped-call]
    return y
