"""Results and gradients equal those of PyTorch's own operators. The one table that names operators beside torch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import here
import pytest
import torch
import torch.nn.functional as F
from cases import Case, assert_close, cases, clone, tensors
from torch import Tensor


def softmax(x: Tensor, mask: Tensor | None, axis: int, scale: float, causal: bool) -> Tensor:
    keep = torch.ones_like(x, dtype=torch.bool) if mask is None else mask.expand(x.shape)
    if causal:  # the last query sees the last key
        rows, cols = x.shape[-2], x.shape[-1]
        keep = keep & here.ones(rows, cols, dtype=torch.bool).tril(cols - rows)
    y = torch.softmax((scale * x).masked_fill(~keep, -torch.inf), axis)
    return torch.where(keep.any(axis, keepdim=True), y, 0.0)


def softmax_grad(y: Tensor, dy: Tensor, axis: int, scale: float) -> Tensor:
    return scale * y * (dy - (y * dy).sum(axis, keepdim=True))


def layer_norm(x: Tensor, gamma: Tensor | None, beta: Tensor | None, eps: float) -> Tensor:
    mean = x.mean(-1, keepdim=True)
    y = (x - mean) * torch.rsqrt((x - mean).square().mean(-1, keepdim=True) + eps)
    return affine(y, gamma, beta)


def affine(y: Tensor, gamma: Tensor | None, beta: Tensor | None) -> Tensor:
    y = y if gamma is None else y * gamma
    return y if beta is None else y + beta


def cross_entropy(
    x: Tensor, target: Tensor, weight: Tensor | None, ignore: int, smoothing: float, z_loss: float, reduction: str
) -> Tensor:
    flat, wanted = x.reshape(-1, x.shape[-1]), target.reshape(-1).long()
    if weight is not None:
        weight = weight.to(x.dtype)
    options: dict[str, Any] = {"weight": weight, "ignore_index": ignore, "label_smoothing": smoothing}
    loss = F.cross_entropy(flat, wanted, reduction=reduction, **options)
    if z_loss:
        penalty = z_loss * torch.logsumexp(flat, -1).square() * (wanted != ignore)
        count = (wanted != ignore).sum()
        loss = loss + {"none": penalty, "sum": penalty.sum(), "mean": penalty.sum() / count}[reduction]
    return loss.reshape(target.shape) if reduction == "none" else loss


def batch_norm(
    x: Tensor,
    gamma: Tensor | None,
    beta: Tensor | None,
    mean: Tensor,
    var: Tensor,
    residual: Tensor | None,
    momentum: float,
    eps: float,
    act: str,
) -> Tensor:
    shape = [1, -1] + [1] * (x.ndim - 2)
    axes = [d for d in range(x.ndim) if d != 1]
    m = x.mean(axes, keepdim=True)
    v = (x - m).square().mean(axes, keepdim=True)
    wide = [None if t is None else t.reshape(shape) for t in (gamma, beta)]
    y = affine((x - m) * torch.rsqrt(v + eps), *wide)
    y = y if residual is None else y + residual
    n = x.numel() // max(x.shape[1], 1)
    with torch.no_grad():
        mean.lerp_(m.reshape(-1).to(mean.dtype), momentum)
        var.lerp_((v.reshape(-1) * n / max(n - 1, 1)).to(var.dtype), momentum)
    return y if act == "none" else getattr(F, act)(y)


def summed(x: Tensor, axes: list[int], keepdim: bool) -> Tensor:
    return x.sum(axes or list(range(x.ndim)), keepdim=keepdim) if x.ndim else x.clone()


def sum_grad(dy: Tensor, shape: list[int], axes: list[int], keepdim: bool) -> Tensor:
    if not keepdim:
        for axis in sorted(a % max(len(shape), 1) for a in axes or range(len(shape))):
            dy = dy.unsqueeze(axis)
    return dy.expand(shape)


PEERS: dict[str, Callable[..., Tensor]] = {
    "softmax": softmax,
    "softmax_grad": softmax_grad,
    "layer_norm": layer_norm,
    "cross_entropy": lambda *args: cross_entropy(*args[:7]),
    "sum": summed,
    "sum_grad": sum_grad,
    "batch_norm": batch_norm,
}


def has_peer(case: Case) -> bool:
    return case.op.name in PEERS and torch.Size(case.sample["inputs"][0]["shape"]).numel() > 0


@pytest.mark.parametrize("T", ["f64", "f32"])
@pytest.mark.parametrize("case", cases(where=has_peer), ids=str)
def test_same_as_torch(case: Case, T: str) -> None:
    args = case.make(T)
    named = {r for s in case.op.rule.statements for r in s.results} if case.op.rule else set()
    for param, value in zip(case.op.params, args, strict=True):
        if param.name in named and isinstance(value, Tensor):
            value.requires_grad_()
    peers = clone(args)
    have = case.call(args)
    want = PEERS[case.op.name](*peers).to(have.dtype)
    assert_close(have, want, T)
    if named:
        gradient = torch.randn_like(have)
        have.backward(gradient)
        want.backward(gradient)
    for a, b in zip(tensors(args), tensors(peers), strict=True):
        bound = "f32" if a.dtype == torch.float32 else T
        assert_close(a.detach(), b.detach(), bound)  # running statistics
        assert (a.grad is None) == (b.grad is None)
        assert_close(a.grad, b.grad, bound)


def test_running_statistics_like_torch() -> None:
    import tenon.torch as tn

    x = here.randn(8, 3, 5, 5)
    mean, var = here.zeros(3), here.ones(3)
    peer_mean, peer_var = mean.clone(), var.clone()
    for layout in (torch.contiguous_format, torch.channels_last):
        have = tn.batch_norm(x.to(memory_format=layout), None, None, mean, var)
        want = F.batch_norm(x, peer_mean, peer_var, training=True)
        assert_close(have, want)
        assert have.is_contiguous(memory_format=layout)
        assert_close(mean, peer_mean)
        assert_close(var, peer_var)
