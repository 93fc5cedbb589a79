"""Random formulas of functions, reductions along axes, positions, detach, own functions, scans, operators of the table
and parts, against torch in f64: values, gradients and gradients of gradients. A formula and the same in torch are drawn
together. `python tests/python/test_fuse_random.py 20000` compares as many."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import NamedTuple

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
    ("({0} * (0.3 + index({1})))", lambda a, d: a * (0.3 + positions(d).double())),
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


def scanned(step: Callable[..., Tensor], values: list[Tensor], dim: int, start: float, how: str = "behind") -> Tensor:
    """What a scan makes: s behind each element, before each, or at the end; that in the shape of a reduction."""
    n, back = values[0].shape[dim], how.startswith("-")
    s, made = torch.full_like(values[0].select(dim, 0), start), []
    for i in range(n - 1, -1, -1) if back else range(n):
        before = s
        s = step(s, *(v.select(dim, i) for v in values))
        made.append(before if how.endswith("before") else s)
    return s.unsqueeze(dim) if how == "last" else torch.stack(made[::-1] if back else made, dim)


def cumulative(f: Callable[[Tensor, int], Tensor]) -> Callable[[Tensor, int, Tensor], Tensor]:
    return lambda a, d, w: f(a, d)


# {0}: an expression that has all dimensions, {1}: a dimension; of both and w.
Along = Callable[[Tensor, int, Tensor], Tensor]
SCANS: list[tuple[str, Along]] = [
    ("scan('0.6 * s + v', v={0}, axis={1})", lambda a, d, w: scanned(lambda s, v: 0.6 * s + v, [a], d, 0)),
    (
        "scan('v * s + w', v=sigmoid({0}), axis={1}, result='before')",
        lambda a, d, w: scanned(lambda s, v, w: v * s + w, [a.sigmoid(), w], d, 0, "before"),
    ),
    (
        "scan('tanh(s) * v - s / 3', v={0}, axis={1}, start=0.3, reverse=true)",
        lambda a, d, w: scanned(lambda s, v: s.tanh() * v - s / 3, [a], d, 0.3, "-"),
    ),
    (
        "scan('where(v > s, v, 0.5 * s)', axis={1}, v={0}, start=0.1)",
        lambda a, d, w: scanned(lambda s, v: torch.where(v > s, v, 0.5 * s), [a], d, 0.1),
    ),
    ("reduce('max(s, v)', v={0}, axis={1})", lambda a, d, w: a.amax(d, keepdim=True)),
    (
        "reduce('t = sin(v); s * t + t', v={0}, axis={1}, start=1)",
        lambda a, d, w: scanned(lambda s, v: s * v.sin() + v.sin(), [a], d, 1, "last"),
    ),
    ("reduce('s + v * w', v={0}, axis={1})", lambda a, d, w: (a * w).sum(d, keepdim=True)),
]
CALLS: list[tuple[str, Along]] = [
    ("cumsum({0}, axis={1})", cumulative(torch.cumsum)),
    ("cumprod(tanh({0}), axis={1})", cumulative(lambda a, d: a.tanh().cumprod(d))),
    ("cummax({0}, axis={1})", cumulative(lambda a, d: a.cummax(d).values)),
    ("sort({0}, axis={1}, descending=true)", cumulative(lambda a, d: a.sort(d, descending=True).values)),
    ("roll({0}, shift=1, axis={1})", cumulative(lambda a, d: a.roll(1, d))),
    ("(tril({0}) + triu(w))", lambda a, d, w: a.tril() + w.triu()),
]
# They go along the last dimension: counted from the end, which is another one than those from the front.
NORMS: list[tuple[str, Along]] = [
    ("layer_norm({0}, eps=0.5)", lambda a, d, w: torch.nn.functional.layer_norm(a, (4,), eps=0.5)),
    ("rms_norm({0}, eps=0.3)", lambda a, d, w: torch.nn.functional.rms_norm(a, (4,), eps=0.3)),
]


def shifted(a: Tensor, d: int) -> Tensor:
    first = a.narrow(d, 0, 1)
    return torch.cat([torch.zeros_like(first), a.narrow(d, 0, a.shape[d] - 1)], d)


PARTS: list[tuple[str, Along]] = [
    ("shift({0}, 1, {1})", cumulative(shifted)),
    ("roll({0}, 1, {1})", cumulative(lambda a, d: a.roll(1, d))),
    ("flip({0}, {1})", cumulative(lambda a, d: a.flip(d))),
    ("rotate_half({0})", cumulative(lambda a, d: torch.cat([-a[..., 2:], a[..., :2]], -1))),
    ("concat({0}[1:], w[0], axis=0)", lambda a, d, w: torch.cat([a[1:], w[:1]])),
    ("concat({0}[..., 3:], w[..., :3], axis=2)", lambda a, d, w: torch.cat([a[..., 3:], w[..., :3]], -1)),
    ("sum({0}[1:] * w[:-1], a)", lambda a, d, w: (a[1:] * w[:-1]).sum(0, keepdim=True)),
    ("mean(sort({0}[:, 1], axis=-1), axis={1})", lambda a, d, w: a[:, 1:].sort(-1).values.mean(d, keepdim=True)),
    (
        "sum({0}[..., 1:] * index({0}[..., 1:], -1), axis={1})",
        lambda a, d, w: (a[..., 1:] * torch.arange(3, device=a.device)).sum(d, keepdim=True),
    ),
]
# Every second element, from the end to the front, parts told by their sizes.
STRIDED: list[tuple[str, Along]] = [
    ("{0}[::-1]", cumulative(lambda a, d: a.flip(0))),
    ("{0}[..., ::-1]", cumulative(lambda a, d: a.flip(-1))),
    ("concat({0}[::2], w[1::2], axis=0)", lambda a, d, w: torch.cat([a[::2], w[1::2]])),
    (
        "concat({0}[..., ::-2], w[..., 1::2], axis=2)",
        lambda a, d, w: torch.cat([a.flip(-1)[..., ::2], w[..., 1::2]], 2),
    ),
    ("sum({0}[::2] * w[::-2], axis=a)", lambda a, d, w: (a[::2] * w.flip(0)[::2]).sum(0, keepdim=True)),
    ("sum({0}[..., 1::2] * w[..., 1::2], axis=c)", lambda a, d, w: (a[..., 1::2] * w[..., 1::2]).sum(2, keepdim=True)),
    ("max({0}[..., ::3], axis=c)", lambda a, d, w: a[..., ::3].amax(2, keepdim=True)),
    (
        "logsumexp({0}[:, ::2] + w[:, ::-2], axis=[b, c])",
        lambda a, d, w: (a[:, ::2] + w.flip(1)[:, ::2]).logsumexp([1, 2], keepdim=True),
    ),
    ("cumsum({0}[::-1], axis={1})", cumulative(lambda a, d: a.flip(0).cumsum(d))),
    (
        "scan('0.6 * s + v', v={0}[..., ::-1], axis={1})",
        lambda a, d, w: scanned(lambda s, v: 0.6 * s + v, [a.flip(-1)], d, 0),
    ),
    ("concat(halves({0})[1], halves(w)[0], axis=2)", lambda a, d, w: torch.cat([a[..., 2:], w[..., :2]], -1)),
    (
        "concat(split({0}, [1, c - 1])[1], split(w, [c - 1, 1])[1], axis=2)",
        lambda a, d, w: torch.cat([a[..., 1:], w[..., 3:]], -1),
    ),
]
# Without a contract an axis has a number alone: whether it counts from the end is the formula's choice.
UNNAMED: list[tuple[str, Along]] = [
    ("shift({0}, 1, {1})", cumulative(shifted)),
    ("roll({0}, 1, {1})", cumulative(lambda a, d: a.roll(1, d))),
    ("flip({0}, axis={1})", cumulative(lambda a, d: a.flip(d))),
]
LAST: list[tuple[str, Along]] = [
    ("{0}[..., ::-1]", cumulative(lambda a, d: a.flip(-1))),
    ("rotate_half({0})", cumulative(lambda a, d: torch.cat([-a[..., 2:], a[..., :2]], -1))),
    ("sum({0}[..., ::3] * w[..., ::3], axis=-1)", lambda a, d, w: (a[..., ::3] * w[..., ::3]).sum(-1, keepdim=True)),
    ("concat(halves({0})[1], chunk(w, 2)[0], axis=-1)", lambda a, d, w: torch.cat([a[..., 2:], w[..., :2]], -1)),
]
AXES = [[0], [1], [2], [0, 1], [0, 2], [1, 2], [0, 1, 2]]


class Drawn(NamedTuple):
    """What a formula may have in it."""

    draw: random.Random
    from_end: bool  # axes are counted so
    named: bool  # dimensions have names
    parts: bool


def placed(drawn: Drawn, depth: int) -> Expression:
    """With a dimension: positions, scans, calls, parts."""
    draw, dim = drawn.draw, drawn.draw.randrange(len(SHAPE))
    inner, of = expression(drawn, depth - 1)
    all_dims = f"({inner} + 0.2 * x)"
    at = dim - len(SHAPE) if drawn.from_end else dim
    kind = draw.random()
    if kind < 0.25:
        text, place = draw.choice(PLACED)
        return text.format(all_dims, at), lambda v: place(of(v) + 0.2 * v["x"], dim)
    calls = [*CALLS, *NORMS] if drawn.named or drawn.from_end else CALLS
    parts = [*PARTS, *STRIDED] if drawn.named else [*UNNAMED, *LAST] if drawn.from_end else UNNAMED
    kinds = SCANS if kind < 0.5 else parts if drawn.parts and kind < 0.85 else calls
    text, along = draw.choice(kinds)
    if "[:, 1]" in text or "index({0}[" in text:
        dim, at = 2, -1  # others have another size there
    return f"({text.format(all_dims, at)})", lambda v: along(of(v) + 0.2 * v["x"], dim, v["w"])


def expression(drawn: Drawn, depth: int) -> Expression:
    draw = drawn.draw
    if depth == 0 or draw.random() < 0.1:
        name = draw.choice("xw")
        return name, lambda v: v[name]
    kind = draw.random()
    if kind < 0.3:
        text, function = draw.choice(UNARY)
        inner, of = expression(drawn, depth - 1)
        return text.format(inner), lambda v: function(of(v))
    if kind < 0.5:
        text, both = draw.choice(BINARY)
        (left, a), (right, b) = expression(drawn, depth - 1), expression(drawn, depth - 1)
        return text.format(left, right), lambda v: both(a(v), b(v))
    if kind < 0.85:
        return placed(drawn, depth)
    name, reduce = draw.choice(REDUCTIONS)
    dims = draw.choice(AXES)
    written = [d - len(SHAPE) if drawn.from_end else d for d in dims]
    inner, of = expression(drawn, depth - 1)
    # With a part of x in it, it has all dimensions and is the same nowhere: where a std is 0, roundings decide.
    return f"{name}({inner} + 0.2 * x, axis={written if len(dims) > 1 else written[0]})", lambda v: reduce(
        of(v) + 0.2 * v["x"], dims
    )


def formula(seed: int) -> Expression:
    draw = random.Random(seed)
    named = draw.random() < 0.6
    drawn = Drawn(draw, draw.random() < 0.4, named, named or draw.random() < 0.6)
    text, of = expression(drawn, 4)
    # Either way with the order of the inputs, whichever is read first.
    name = "f(x: T[a, b, c], w: T[a, b, c]) -> y: T[a, b, c]" if drawn.named else "f(x, w)"
    axes = "[-3, -2]" if drawn.from_end else "[0, 1]"
    statements = f"own(a) = a * sigmoid(a) + 1; y = {text} + 0.1 * x + 0.1 * w + 0 * sum(x, axis={axes})"
    return f"{name} : {statements}", lambda v: of(v) + 0.1 * v["x"] + 0.1 * v["w"]


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


def compare(seed: int) -> bool:
    """Whether the numbers of this one are such that they can be compared; then they are the same."""
    text, same = formula(seed)
    generator = torch.Generator().manual_seed(seed)
    x, w, weights = (torch.randn(SHAPE, dtype=torch.float64, generator=generator).to(here.DEVICE) for _ in range(3))
    x.requires_grad_()
    w.requires_grad_()
    want = derivatives(lambda a, b: same({"x": a, "w": b}), x, w, weights)
    if not steady(want):
        return False
    have = derivatives(tn.fuse(text), x, w, weights)
    for k, (h, t) in enumerate(zip(have, want, strict=True)):
        assert torch.allclose(h, t, rtol=1e-7, atol=1e-7 * (1 + float(t.detach().abs().max()))), (seed, text, k)
    return True


@pytest.mark.parametrize("part", range(4))
def test_random_formulas(part: int) -> None:
    compared = sum(compare(seed) for seed in range(part * 50, part * 50 + 50))
    assert compared > 40


def main(count: int, first: int) -> int:
    compared, wrong, refused = 0, 0, 0
    for seed in range(first, first + count):
        try:
            compared += compare(seed)
        except NotImplementedError as error:
            refused += 1
            print(f"{seed}: {str(error)[:400]}", flush=True)
        except Exception as error:  # whatever it is, it is one wrong formula
            wrong += 1
            print(f"{seed}: {type(error).__name__}: {str(error)[:400]}", flush=True)
    print(f"{count} formulas from seed {first} on: {compared} compared, {refused} refused, {wrong} wrong", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0))
