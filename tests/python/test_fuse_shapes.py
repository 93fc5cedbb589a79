"""Shapes of formulas without a contract: whatever inputs meet, and where."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import here
import pytest
import torch
from cases import assert_close
from torch import Tensor

import tenon.torch as tn


def _rows(function: Callable[..., Tensor]) -> Callable[[Tensor], Tensor]:
    """Along the last dimension, which stays; a number is a row of one."""
    return lambda t: function(t if t.ndim else t[None], dim=-1, keepdim=True).reshape(
        t.shape[:-1] + (1,) * (t.ndim > 0)
    )


ROW_SUM, ROW_MEAN, ROW_MAX, ROW_LSE = map(_rows, (torch.sum, torch.mean, torch.amax, torch.logsumexp))


def _dropped(value: Tensor, *beside: Tensor) -> Tensor:
    """An output without the last dimension, unless something beside the reductions has one."""
    return value if value.ndim == 0 or any(t.ndim for t in beside) else value[..., 0]


def _normed(x: Tensor) -> Tensor:
    centered = x - ROW_MEAN(x)
    return centered * torch.rsqrt(ROW_MEAN(centered * centered) + 0.1)


# Formulas, the same in PyTorch, and which inputs broadcast together; others have shapes of their own.
MEETINGS: list[tuple[str, Callable[..., Any], str]] = [
    ("sum(x * s, -1)", lambda x, s: _dropped(ROW_SUM(x * s)), "xs"),
    ("(x - mean(x, -1)) * rsqrt(var(x, -1) + 0.1) * g + b", lambda x, g, b: _normed(x) * g + b, "xgb"),
    ("-sum(exp(x - logsumexp(x, -1)) * t, -1)", lambda x, t: _dropped(-ROW_SUM(torch.exp(x - ROW_LSE(x)) * t)), "xt"),
    (
        "m = mean(x, -1); y = (x - mean(x, -1)) * g + b",
        lambda x, g, b: (_dropped(ROW_MEAN(x)), (x - ROW_MEAN(x)) * g + b),
        "xgb",
    ),
    (
        "l = logsumexp(x, -1); loss = logsumexp(x, -1) - sum(x * t, -1)",
        lambda x, t: (_dropped(ROW_LSE(x)), _dropped(ROW_LSE(x) - ROW_SUM(x * t))),
        "xt",
    ),
    ("y = x * b; z = x + c; q = b * c * d", lambda x, b, c, d: (x * b, x + c, b * c * d), "xbcd"),
    ("sum(x, -1) * w", lambda x, w: _dropped(ROW_SUM(x) * w, w), "xw"),
    ("x * rsqrt(mean(z * z, -1) + 0.3)", lambda x, z: _dropped(x * torch.rsqrt(ROW_MEAN(z * z) + 0.3), x), "xz"),
    ("w * max(x, axis=-1) - sum(y, -1)", lambda w, x, y: _dropped(w * ROW_MAX(x) - ROW_SUM(y), w), "wxy"),
    ("sum(c) * b", lambda c, b: c.sum() * b, "c b"),
    ("mean(x * y) + w * sum(z * z)", lambda x, y, w, z: (x * y).mean() + w * (z * z).sum(), "xy w z"),
    (
        "y = x / sqrt(sum(g * g) + 1); z = max(g) * b",
        lambda x, g, b: (x / torch.sqrt((g * g).sum() + 1), g.max() * b),
        "x g b",
    ),
    (
        "exp(x - logsumexp(x, -1)) * mean(t * t) + sum(q)",
        lambda x, t, q: torch.exp(x - ROW_LSE(x)) * (t * t).mean() + q.sum(),
        "x t q",
    ),
]
TOGETHER = [(4, 8), (8,), (1, 8), (4, 1), (), (3, 4, 8), (3, 1, 8), (1,), (3, 1, 1)]
APART = [(5, 6), (7,), (2, 3, 2), (), (1, 9)]


def _as_list(made: Any) -> list[Tensor]:
    return list(made) if isinstance(made, tuple | list) else [made]


def _same_grads(have: Sequence[Tensor | None], want: Sequence[Tensor | None], like: Sequence[Tensor]) -> None:
    def filled(grads: Sequence[Tensor | None]) -> list[Tensor]:
        return [torch.zeros_like(t) if g is None else g for g, t in zip(grads, like, strict=True)]

    assert_close(filled(have), filled(want), "f64", scale=100)


@pytest.mark.parametrize(("formula", "same", "together"), MEETINGS, ids=[m[0] for m in MEETINGS])
def test_shapes_without_a_contract(formula: str, same: Callable[..., Any], together: str) -> None:
    """Values, gradients and gradients of these, whatever inputs meet, and where."""
    choose, function = random.Random(1), tn.fuse(formula)
    for _ in range(12):
        shapes = []
        for group in together.split():
            shapes += [choose.choice(TOGETHER if group == together.split()[0] else APART) for _ in group]
        one = [here.randn(shape, dtype=torch.float64) for shape in shapes]
        ours, theirs = [[t.clone().requires_grad_() for t in one] for _ in range(2)]
        have, want = _as_list(function(*ours)), _as_list(same(*theirs))
        assert_close(have, want, "f64")
        weights = [torch.randn_like(w) for w in want]
        first = []
        for outputs, inputs in ((have, ours), (want, theirs)):
            total = torch.stack([(o * w).sum() for o, w in zip(outputs, weights, strict=True)]).sum()
            first.append(torch.autograd.grad(total, inputs, create_graph=True, allow_unused=True))
        _same_grads(*first, one)
        second = []
        for grads, inputs in zip(first, (ours, theirs), strict=True):
            known = [g.square().sum() for g in grads if g is not None and g.requires_grad]
            total = torch.stack(known).sum() if known else inputs[0].sum() * 0
            second.append(torch.autograd.grad(total, inputs, allow_unused=True))
        _same_grads(*second, one)
