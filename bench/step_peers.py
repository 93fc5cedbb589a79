"""Steps of optimisers as PyTorch code, in place: for bench/peers.py."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


def sgd(
    p: Tensor,
    g: Tensor,
    m: Tensor | None,
    lr: Tensor,
    momentum: float = 0.9,
    dampening: float = 0.0,
    weight_decay: float = 0.0,
    nesterov: bool = False,
) -> None:
    g = g.to(p.dtype if m is None else m.dtype)
    d = g.add(p, alpha=weight_decay) if weight_decay else g
    if m is None:
        p.sub_(lr * d)
        return
    m.mul_(momentum).add_(d, alpha=1 - dampening)
    p.sub_(lr * (d.add(m, alpha=momentum) if nesterov else m))


def adam(
    p: Tensor,
    g: Tensor,
    m: Tensor,
    v: Tensor,
    master: Tensor | None,
    lr: Tensor,
    step: Tensor,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
) -> None:
    w = p if master is None else master
    g = g.to(m.dtype)
    adamw(p, g.add(w, alpha=weight_decay) if weight_decay else g, m, v, master, lr, step, beta1, beta2, eps, 0.0)


def adamw(
    p: Tensor,
    g: Tensor,
    m: Tensor,
    v: Tensor,
    master: Tensor | None,
    lr: Tensor,
    step: Tensor,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 0.01,
) -> None:
    """As PyTorch's optimiser does it without fusion, its numbers as tensors."""
    g = g.to(m.dtype)
    m.lerp_(g, 1 - beta1)
    v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
    c1, c2 = -torch.expm1(step * math.log(beta1)), (-torch.expm1(step * math.log(beta2))).sqrt()
    w = p if master is None else master
    w.mul_(1 - lr * weight_decay)
    w.sub_(lr / c1 * m / (v.sqrt() / c2 + eps))
    if master is not None:
        p.copy_(master)


def lion(
    p: Tensor,
    g: Tensor,
    m: Tensor,
    master: Tensor | None,
    lr: Tensor,
    beta1: float = 0.9,
    beta2: float = 0.99,
    weight_decay: float = 0.0,
) -> None:
    """As its paper has it."""
    g = g.to(m.dtype)
    update = m.lerp(g, 1 - beta1).sign_()
    m.lerp_(g, 1 - beta2)
    w = p if master is None else master
    w.mul_(1 - lr * weight_decay)
    w.sub_(lr * update)
    if master is not None:
        p.copy_(master)


def adafactor(
    p: Tensor,
    g: Tensor,
    row: Tensor | None,
    column: Tensor | None,
    variance: Tensor | None,
    lr: Tensor,
    step: Tensor,
    beta2_decay: float = -0.8,
    eps1: float = 2.0**-23,
    eps2: float = 1e-3,
    clip: float = 1.0,
    weight_decay: float = 0.0,
) -> None:
    """As PyTorch's optimiser does it without fusion, its numbers as tensors."""
    square, new = g.to(lr.dtype).square(), step**beta2_decay
    rate = torch.clamp(p.to(lr.dtype).square().mean().sqrt(), min=eps2) * torch.minimum(lr, step.rsqrt())
    if row is None or column is None:
        assert variance is not None
        estimate = variance.to(lr.dtype).lerp(square, new)
        variance.copy_(estimate)
    else:
        rows, columns = row.to(lr.dtype).lerp(square.mean(-1), new), column.to(lr.dtype).lerp(square.mean(-2), new)
        row.copy_(rows)
        column.copy_(columns)
        estimate = rows[..., None] * columns[..., None, :] / rows.mean(-1)[..., None, None].clamp(min=eps1)
    update = estimate.clamp(min=eps1 * eps1).rsqrt() * g
    p.mul_(1 - lr * weight_decay)
    p.sub_(rate / torch.clamp(update.square().mean().sqrt() / clip, min=1.0) * update)


def for_each(step: Callable[..., None], lists: int) -> Callable[..., None]:
    """A step for each tensor of lists, the first arguments."""

    def steps(*args: Any) -> None:
        absent = [None] * len(args[0])
        for tensors in zip(*(absent if a is None else a for a in args[:lists]), strict=True):
            step(*tensors, *args[lists:])

    return steps


FUSED_SGD: dict[str, Any] = {"weight_decay": 0.0, "momentum": 0.9, "dampening": 0.0, "nesterov": False}
FUSED_ADAMW: dict[str, Any] = {"beta1": 0.9, "beta2": 0.999, "weight_decay": 0.01, "eps": 1e-8, "amsgrad": False}


def fused_sgd(p: list[Tensor], g: list[Tensor], m: list[Tensor], lr: Tensor) -> None:
    torch._fused_sgd_(p, g, m, lr=lr, maximize=False, is_first_step=False, **FUSED_SGD)


def fused_adamw(p: list[Tensor], g: list[Tensor], m: list[Tensor], v: list[Tensor], lr: Tensor, step: Tensor) -> None:
    torch._fused_adamw_(p, g, m, v, [], [step] * len(p), lr=lr, maximize=False, **FUSED_ADAMW)


def fused_adam(p: list[Tensor], g: list[Tensor], m: list[Tensor], v: list[Tensor], lr: Tensor, step: Tensor) -> None:
    torch._fused_adam_(p, g, m, v, [], [step] * len(p), lr=lr, maximize=False, **{**FUSED_ADAMW, "weight_decay": 0.0})


def clip_grad_norm(g: list[Tensor], max_norm: Tensor) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(g)))
    torch._foreach_mul_(g, torch.clamp(max_norm / (norm + 1e-6), max=1.0))
    return norm


@torch.no_grad()
def lion_each(params: list[nn.Parameter], moments: list[Tensor]) -> None:
    for p, m in zip(params, moments, strict=True):
        assert p.grad is not None
        lion(p, p.grad, m, None, torch.full((), 1e-4, device=p.device))
