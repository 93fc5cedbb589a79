"""Random formulas of functions, reductions along axes, positions, detach and own functions against torch, in f64:
values, gradients and gradients of gradients. A formula and the same in torch are drawn together."""

from __future__ import annotations

import random
from collections.abc import Callable

import here
import pytest
import torch
from torch import Tensor

import tenon.torch as tn

SHAPE = (3, 2, 4)
Values = dict[str, Tensor]
Expression = tuple[str, Callable[[Values], Tensor]]  # as a formula, and of the inputs by name

UNARY: list[tuple[str, Callable[[Tensor], Tensor]]] = [
    ("sin({})", torch.sin),
    ("tanh({})", torch.tanh),
    ("atan({})", torch.atan),
    ("asinh({})", torch.asinh),
    ("erfc({})", torch.erfc),
    ("exp2(tanh({}))", lambda a: a.tanh().exp2()),
    ("log2(abs({}) + 1.5)", lambda a: (a.abs() + 1.5).log2()),
    ("log10(abs({}) + 1.5)", lambda a: (a.abs() + 1.5).log10()),
    ("asin(0.8 * sin({}))", lambda a: (0.8 * a.sin()).asin()),
    ("acos(0.8 * sin({}))", lambda a: (0.8 * a.sin()).acos()),
    ("sinh(tanh({}))", lambda a: a.tanh().sinh()),
    ("cosh(tanh({}))", lambda a: a.tanh().cosh()),
    ("acosh(abs({}) + 1.5)", lambda a: (a.abs() + 1.5).acosh()),
    ("atanh(0.7 * sin({}))", lambda a: (0.7 * a.sin()).atanh()),
    ("tan(tanh({}))", lambda a: a.tanh().tan()),
    ("erfinv(0.7 * sin({}))", lambda a: (0.7 * a.sin()).erfinv()),
    ("lgamma(abs({}) + 1)", lambda a: (a.abs() + 1).lgamma()),
    ("digamma(abs({}) + 1)", lambda a: (a.abs() + 1).digamma()),
    ("relu6(3 * {})", lambda a: torch.nn.functional.relu6(3 * a)),
    ("hardtanh({})", torch.nn.functional.hardtanh),
    ("detach({})", torch.detach),
    ("own({})", lambda a: a * a.sigmoid() + 1),
]
BINARY: list[tuple[str, Callable[[Tensor, Tensor], Tensor]]] = [
    ("({} + {})", torch.add),
    ("({} - {})", torch.sub),
    ("(tanh({}) * {})", lambda a, b: a.tanh() * b),
    ("logaddexp({}, {})", torch.logaddexp),
    ("atan2({}, abs({}) + 1.5)", lambda a, b: torch.atan2(a, b.abs() + 1.5)),
    ("where({} > {}, 1.5, 0.5)", lambda a, b: torch.where(a > b, 1.5, 0.5).to(a.dtype)),
]


def positions(dim: int) -> Tensor:
    """Those along a dimension, as a tensor that broadcasts."""
    return torch.arange(SHAPE[dim], device=here.DEVICE).reshape([-1 if d == dim else 1 for d in range(len(SHAPE))])


def at_argmax(a: Tensor, dim: int) -> Tensor:
    return positions(dim) == a.argmax(dim, keepdim=True)


# With a dimension: {0} is an expression, {1} the dimension.
PLACED: list[tuple[str, Callable[[Tensor, int], Tensor]]] = [
    ("({0} * (0.3 + index({1})))", lambda a, d: a * (0.3 + positions(d))),
    ("where(index({1}) < 1, {0}, 0.7)", lambda a, d: torch.where(positions(d) < 1, a, 0.7)),
    ("sin({0} + 0.5 * index({1}))", lambda a, d: (a + 0.5 * positions(d)).sin()),
    (
        "where(index({0}, axis={1}) == argmax({0}, axis={1}), {0} * {0}, -0.5)",
        lambda a, d: torch.where(at_argmax(a, d), a * a, -0.5),
    ),
]
Reduction = Callable[[Tensor, list[int]], Tensor]
REDUCTIONS: list[tuple[str, Reduction]] = [
    ("sum", lambda a, d: a.sum(d, keepdim=True)),
    ("mean", lambda a, d: a.mean(d, keepdim=True)),
    ("max", lambda a, d: a.amax(d, keepdim=True)),
    ("min", lambda a, d: a.amin(d, keepdim=True)),
    ("var", lambda a, d: a.var(d, correction=0, keepdim=True)),
    ("logsumexp", lambda a, d: a.logsumexp(d, keepdim=True)),
    ("norm", lambda a, d: torch.linalg.vector_norm(a, 2, d, keepdim=True)),
    ("std", lambda a, d: a.std(d, correction=0, keepdim=True)),
    ("softmax", lambda a, d: (a - a.logsumexp(d, keepdim=True)).exp()),
    ("log_softmax", lambda a, d: a - a.logsumexp(d, keepdim=True)),
]
AXES = [[0], [1], [2], [0, 1], [0, 2], [1, 2], [0, 1, 2]]


def expression(draw: random.Random, depth: int, from_end: bool) -> Expression:
    if depth == 0 or draw.random() < 0.1:
        name = draw.choice("xw")
        return name, lambda v: v[name]
    kind = draw.random()
    if kind < 0.4:
        text, function = draw.choice(UNARY)
        inner, of = expression(draw, depth - 1, from_end)
        return text.format(inner), lambda v: function(of(v))
    if kind < 0.7:
        text, both = draw.choice(BINARY)
        (left, a), (right, b) = expression(draw, depth - 1, from_end), expression(draw, depth - 1, from_end)
        return text.format(left, right), lambda v: both(a(v), b(v))
    if kind < 0.8:
        text, placed = draw.choice(PLACED)
        dim = draw.randrange(len(SHAPE))
        inner, of = expression(draw, depth - 1, from_end)
        at = dim - len(SHAPE) if from_end else dim
        return text.format(f"({inner} + 0.2 * x)", at), lambda v: placed(of(v) + 0.2 * v["x"], dim)
    name, reduce = draw.choice(REDUCTIONS)
    dims = draw.choice(AXES)
    written = [d - len(SHAPE) if from_end else d for d in dims]
    inner, of = expression(draw, depth - 1, from_end)
    # With a part of x in it, it has all dimensions and is the same nowhere: where a std is 0, roundings decide.
    return f"{name}({inner} + 0.2 * x, axis={written if len(dims) > 1 else written[0]})", lambda v: reduce(
        of(v) + 0.2 * v["x"], dims
    )


def formula(seed: int) -> Expression:
    draw = random.Random(seed)
    from_end = draw.random() < 0.4
    text, of = expression(draw, 4, from_end)
    name = "f(x, w) : own(a) = a * sigmoid(a) + 1; y = "  # the order of the inputs, whichever is read first
    axes = "[-3, -2]" if from_end else "[0, 1]"
    return f"{name}{text} + 0.1 * x + 0.1 * w + 0 * sum(x, axis={axes})", lambda v: of(v) + 0.1 * v["x"] + 0.1 * v["w"]


def steady(values: list[Tensor]) -> bool:
    return all(bool(v.isfinite().all()) and float(v.detach().abs().max()) < 1e6 for v in values)


def derivatives(made: Callable[[Tensor, Tensor], Tensor], x: Tensor, w: Tensor, weights: Tensor) -> list[Tensor]:
    """The value, its gradients, and theirs."""
    given = (x, w)
    y = made(*given)
    first = torch.autograd.grad((y * weights).sum(), given, create_graph=True)
    inner = torch.stack([(g * weights.cos()).sum() for g in first]).sum()
    second = torch.autograd.grad(inner, given, allow_unused=True) if inner.requires_grad else (None, None)
    return [y, *first, *(torch.zeros_like(x) if s is None else s for s in second)]


@pytest.mark.parametrize("part", range(4))
def test_random_formulas(part: int) -> None:
    compared = 0
    for seed in range(part * 50, part * 50 + 50):
        text, same = formula(seed)
        generator = torch.Generator().manual_seed(seed)
        x, w, weights = (torch.randn(SHAPE, dtype=torch.float64, generator=generator).to(here.DEVICE) for _ in range(3))
        x.requires_grad_()
        w.requires_grad_()
        want = derivatives(lambda a, b, of=same: of({"x": a, "w": b}), x, w, weights)  # type: ignore[misc]
        if not steady(want):
            continue
        have = derivatives(tn.fuse(text), x, w, weights)
        for k, (h, t) in enumerate(zip(have, want, strict=True)):
            assert torch.allclose(h, t, rtol=1e-7, atol=1e-7 * (1 + float(t.detach().abs().max()))), (seed, text, k)
        compared += 1
    assert compared > 40
