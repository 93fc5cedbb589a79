"""Random formulas with parts of values (subscripts, shift, roll, flip, concat, chunk, rotate_half) and with dimensions
that no argument has all of, against torch in f64: values, gradients and gradients of gradients."""

from __future__ import annotations

import random
from collections.abc import Callable

import here
import pytest
import torch
from torch import Tensor

import tenon.torch as tn

SIZES = {"n": 5, "c": 6, "m": 3}
Values = dict[str, Tensor]
Expression = tuple[str, Callable[[Values], Tensor]]  # all have the shape [n, c]


def _cat(a: Tensor, b: Tensor, dim: int) -> Tensor:
    return torch.cat([a, b], dim)


def _shift(a: Tensor, k: int, dim: int, fill: float) -> Tensor:
    size = a.shape[dim]
    rest = torch.full_like(a.narrow(dim, 0, min(abs(k), size)), fill)
    kept = a.narrow(dim, max(-k, 0), max(size - abs(k), 0))
    return _cat(rest, kept, dim) if k > 0 else _cat(kept, rest, dim)


def _half(a: Tensor) -> Tensor:
    first, second = a.chunk(2, -1)
    return _cat(-second, first, -1)


def _around(draw: random.Random, x: Expression, y: Expression) -> Expression:
    """A part, or parts, put together to the shape of the whole."""
    (a, of), (b, other) = x, y
    dim = draw.randrange(2)
    name, size = "nc"[dim], (5, 6)[dim]
    k = draw.randint(1, size - 1)
    at = draw.choice([k, k - size])  # from the end, a bound is a size with a name in it
    take = (f":{at}", f"{at}:") if dim == 0 else (f"..., :{at}", f":, {at}:")
    kind = draw.randrange(8)
    if kind == 0:
        text = f"concat(({a})[{take[0]}], ({b})[{take[1]}], axis={name})"
        return text, lambda v: _cat(of(v).narrow(dim, 0, k), other(v).narrow(dim, k, size - k), dim)
    if kind == 1:
        by = draw.randint(-size, size)
        return f"roll({a}, {by}, {draw.choice([name, str(dim - 2)])})", lambda v: of(v).roll(by, dim)
    if kind == 2:
        return f"flip({a}, {name}) * cos({b})", lambda v: of(v).flip(dim) * other(v).cos()
    if kind == 3:
        by, fill = draw.choice([-3, -2, -1, 1, 2, 3]), draw.choice([0.0, 1.5])
        behind = f", {fill}" if fill else ""
        return f"shift({a}, {by}, {name}{behind})", lambda v: _shift(of(v), by, dim, fill)
    if kind == 4:
        return f"rotate_half({a}) - {b}", lambda v: _half(of(v)) - other(v)
    if kind == 5:
        text = f"concat(chunk({a}, 3, c)[2], chunk({b}, 3, axis=1)[0], chunk({a}, 3)[1], axis=-1)"
        return text, lambda v: torch.cat([of(v)[:, 4:], other(v)[:, :2], of(v)[:, 2:4]], 1)
    reduce = draw.choice(["sum", "mean", "max", "logsumexp"])
    part = (f"({a})[{take[1]}]", lambda v: of(v).narrow(dim, k, size - k))
    if draw.random() < 0.3:
        reduce = draw.choice(["sum", "mean"])
        return f"{reduce}({part[0]}) * {b}", lambda v: getattr(part[1](v), reduce)() * other(v)
    named = {"max": "amax"}.get(reduce, reduce)
    return (
        f"{reduce}({part[0]}, axis={name}) + {b}",
        lambda v: getattr(part[1](v), named)(dim=dim, keepdim=True) + other(v),
    )


def _pairs(x: Expression, y: Expression) -> Expression:
    """By way of all pairs, along a dimension of its own."""
    (a, of), (b, other) = x, y
    text = f"sum(tanh(({a}) * p), m) + max(p - mean({b}, n), axis=m)"
    return text, lambda v: (of(v)[:, None] * v["p"]).tanh().sum(1) + (v["p"] - other(v).mean(0)).amax(0)


def expression(draw: random.Random, depth: int) -> Expression:
    if depth == 0:
        name = draw.choice("xw")
        return name, lambda v: v[name]
    x, y = expression(draw, depth - 1), expression(draw, depth - 1)
    (a, of), (b, other) = x, y
    kind = draw.random()
    if kind < 0.7:
        text, made = _around(draw, x, y) if kind < 0.6 else _pairs(x, y)
        return f"({text})", made
    if kind < 0.85:
        return f"(tanh({a}) * {b})", lambda v: of(v).tanh() * other(v)
    return f"(sin({a}) + {b})", lambda v: of(v).sin() + other(v)


def formula(seed: int) -> Expression:
    text, of = expression(random.Random(seed), 1 + seed % 3)
    contract = "f(x: T[n, c], w: T[n, c], p: T[m, c]) -> y: T[n, c]"
    return (
        f"{contract} : {text} + 0.1 * x + 0.1 * w + 0.1 * sum(p, m)",
        lambda v: of(v) + 0.1 * v["x"] + 0.1 * v["w"] + 0.1 * v["p"].sum(0),
    )


def derivatives(made: Callable[..., Tensor], given: list[Tensor], weights: Tensor) -> list[Tensor]:
    """The value, its gradients, and theirs."""
    y = made(*given)
    first = torch.autograd.grad((y * weights).sum(), given, create_graph=True)
    inner = torch.stack([(g * g.detach().cos()).sum() for g in first]).sum()
    second = torch.autograd.grad(inner, given, allow_unused=True) if inner.requires_grad else [None] * len(given)
    return [y, *first, *(torch.zeros_like(x) if s is None else s for s, x in zip(second, given, strict=True))]


def compare(seed: int) -> bool:
    text, same = formula(seed)
    generator = torch.Generator().manual_seed(seed)
    shapes = [(5, 6), (5, 6), (3, 6)]
    given = [torch.randn(s, dtype=torch.float64, generator=generator).to(here.DEVICE).requires_grad_() for s in shapes]
    weights = torch.randn(5, 6, dtype=torch.float64, generator=generator).to(here.DEVICE)
    want = derivatives(lambda x, w, p: same({"x": x, "w": w, "p": p}), given, weights)
    if not all(bool(t.isfinite().all()) and float(t.detach().abs().max()) < 1e6 for t in want):
        return False
    try:
        have = derivatives(tn.fuse(text), given, weights)
    except NotImplementedError as error:  # the second derivative of a long one
        assert "its parts make more than" in str(error), (seed, text)
        return False
    for k, (h, t) in enumerate(zip(have, want, strict=True)):
        assert torch.allclose(h, t, rtol=1e-7, atol=1e-7 * (1 + float(t.detach().abs().max()))), (seed, text, k)
    return True


@pytest.mark.parametrize("part", range(4))
def test_random_parts(part: int) -> None:
    count = 30 if here.DEVICE == "cpu" else 6  # NVRTC takes seconds for each: the GPU sees a sample
    assert sum(compare(seed) for seed in range(part * 30, part * 30 + count)) > 0.8 * count


def test_maximum_of_sums_beside_a_part() -> None:
    """What equals the maximum is made of a sum, which has the same bits wherever it is made."""
    value = "max(sum(softmax(x), axis=0) + 0.2 * x, axis=-1) + x * sum(x[..., 1:], -1)"
    made = tn.fuse(f"f(x: T[n, c]) -> y: T[n, c] : {value}")
    generator = torch.Generator().manual_seed(1)
    for c in range(4, 40):
        x = torch.randn(7, c, dtype=torch.float64, generator=generator).to(here.DEVICE).requires_grad_()
        want = (x.softmax(-1).sum(0) + 0.2 * x).amax(-1, keepdim=True) + x * x[..., 1:].sum(-1, keepdim=True)
        (have,) = torch.autograd.grad((made(x) * x.detach().sin()).sum(), x)
        (wanted,) = torch.autograd.grad((want * x.detach().sin()).sum(), x)
        assert torch.allclose(have, wanted, rtol=1e-9, atol=1e-12)
