"""Formulas with a scan or a reduction of their own: the same as a loop in torch, with gradients of first and second
order."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import here
import pytest
import torch
from torch import Tensor

import tenon.torch as tn

Step = Callable[..., Tensor]
Shape = tuple[int, ...]


def scan(step: Step, values: list[Tensor], dim: int, start: Any, result: str = "y", reverse: bool = False) -> Tensor:
    """s, a tensor without the dimension or a number, becomes step(s, …) element by element."""
    n, like = values[0].shape[dim], torch.zeros_like(values[0].select(dim, 0))
    s, behind, before = like + start, [], []
    for i in range(n - 1, -1, -1) if reverse else range(n):
        before.append(s)
        s = step(s, *(v.select(dim, i) for v in values))
        behind.append(s)
    made = behind if result == "y" else before
    return s if result == "last" else torch.stack(made[::-1] if reverse else made, dim)


CASES: list[tuple[str, Callable[..., Tensor], list[Shape]]] = [
    ('scan("a * s + x")', lambda a, x: scan(lambda s, a, x: a * s + x, [a, x], -1, 0), [(3, 5), (3, 5)]),
    (
        'scan("a * s + x", axis=0, reverse=true)',
        lambda a, x: scan(lambda s, a, x: a * s + x, [a, x], 0, 0, reverse=True),
        [(3, 5), (3, 5)],
    ),
    # without names of dimensions, values broadcast
    (
        "scan('w * s + x', w=sigmoid(w)) - x",
        lambda w, x: scan(lambda s, x, w: w * s + x, [x, w.sigmoid().expand(3, 5)], -1, 0) - x,
        [(5,), (3, 5)],
    ),
    ('reduce("max(s, x)")', lambda x: x.amax(-1), [(3, 5)]),
    ('reduce("min(x, s)", axis=0) * 2', lambda x: x.amin(0) * 2, [(4, 5)]),
    ('reduce("s * x") + reduce("s + x * x")', lambda x: x.prod(-1) + (x * x).sum(-1), [(3, 5)]),
    ('scan("max(s, x)", axis=0) * x', lambda x: x.cummax(0).values * x, [(5, 3)]),
    ('scan("0.9 * s + 0.1 * x")', lambda x: scan(lambda s, x: 0.9 * s + 0.1 * x, [x], -1, 0), [(4, 6)]),
    (
        'reduce("0.9 * s + 0.1 * x", axis=0, reverse=true)',
        lambda x: scan(lambda s, x: 0.9 * s + 0.1 * x, [x], 0, 0, "last", True),
        [(4, 6)],
    ),
    (
        'scan("where(x > s, x, 0.3 * s)", axis=0, start=0.1)',
        lambda x: scan(lambda s, x: torch.where(x > s, x, 0.3 * s), [x], 0, 0.1),
        [(6, 3)],
    ),
    (
        'scan("t = s * x; sin(t) + t", start=0.5)',
        lambda x: scan(lambda s, x: (s * x).sin() + s * x, [x], -1, 0.5),
        [(3, 4)],
    ),
    (
        "f(a: T[b, t, d], x: T[b, t, d], h: T[b, d]) -> y: T[b, t, d] : scan('tanh(a * s + x)', axis=t, start=h)",
        lambda a, x, h: scan(lambda s, a, x: (a * s + x).tanh(), [a, x], 1, h),
        [(2, 4, 3), (2, 4, 3), (2, 3)],
    ),
    (
        "f(a: T[b, t, d], x: T[b, t, d], h: T[b, d]) -> y: T[b, d], z: T[b, t, d] :\n"
        "  y = reduce('tanh(a * s + x)', axis=t, start=sin(h), reverse=true, a=a * x)\n"
        "  z = scan('s / (1 + s * s) + a', axis=t, start=1, result='before') * x",
        lambda a, x, h: torch.cat(
            [
                scan(lambda s, a, x: (a * s + x).tanh(), [a * x, x], 1, h.sin(), "last", True).unsqueeze(1),
                scan(lambda s, a: s / (1 + s * s) + a, [a], 1, 1, "before") * x,
            ],
            1,
        ),
        [(2, 4, 3), (2, 4, 3), (2, 3)],
    ),
    (
        "f(x: T[n, c], w: T[c], k: T[]) -> y: T[n, c] : scan('w * s + k * x', axis=n, w=sigmoid(w)) * x",
        lambda x, w, k: scan(lambda s, x: w.sigmoid() * s + k * x, [x], 0, 0) * x,
        [(5, 4), (4,), ()],
    ),
    (
        "f(x: T[n, c], m: T[c, n], k: float = 0.5) -> y: T[n, c] : scan('m * s + k * x', axis=c)",
        lambda x, m: scan(lambda s, x, m: m * s + 0.5 * x, [x, m.mT], 1, 0),
        [(3, 4), (4, 3)],
    ),
    (
        "f(x: T[n, c], w: T[m]) -> y: T[n, m] : reduce('w * s + x', axis=c)",
        lambda x, w: torch.stack([scan(lambda s, x, v=v: v * s + x, [x], 1, 0, "last") for v in w], 1),
        [(3, 4), (2,)],
    ),
    (
        "f(x: T[n, *s]) -> y: T[n, *s] : scan('s + sin(x)', axis=n, result='before')",
        lambda x: x.sin().cumsum(0) - x.sin(),
        [(3, 2, 2)],
    ),
    (
        "f(x: T[*s]) -> y: T[*s] : scan('0.5 * s + x')",
        lambda x: scan(lambda s, x: 0.5 * s + x, [x], -1, 0),
        [(2, 3, 4)],
    ),
]


def outputs(value: Any) -> Tensor:
    """Several results side by side, as the cases have them."""
    return value if isinstance(value, Tensor) else torch.cat([value[0].unsqueeze(1), value[1]], 1)


@pytest.mark.parametrize(("formula", "same", "shapes"), CASES, ids=[case[0] for case in CASES])
def test_cases(formula: str, same: Callable[..., Tensor], shapes: list[Shape]) -> None:
    function = tn.fuse(formula)
    given = [here.randn(shape, dtype=torch.float64) for shape in shapes]
    weight = here.randn(*same(*given).shape, dtype=torch.float64)
    derived = []
    for call in (function, same):
        inputs = [t.clone().requires_grad_() for t in given]
        y = outputs(call(*inputs))
        first = torch.autograd.grad((y * weight).sum(), inputs, create_graph=True)
        inner = torch.stack([(g * g).sum() for g in first]).sum()
        second = torch.autograd.grad(inner, inputs, allow_unused=True) if inner.requires_grad else [None] * len(inputs)
        zeros = [torch.zeros_like(t) if s is None else s for t, s in zip(inputs, second, strict=True)]
        derived.append([y, *first, *zeros])
    for have, want in zip(*derived, strict=True):
        assert torch.allclose(have, want, rtol=1e-9, atol=1e-9)
    for dtype, tolerance in ((torch.float32, 1e-4), (torch.bfloat16, 0.1)):
        narrow = [t.to(dtype) for t in given]
        want = same(*(t.double() for t in narrow))
        assert torch.allclose(outputs(function(*narrow)).double(), want, rtol=tolerance, atol=tolerance)
    strided = [t.mT.contiguous().mT if t.ndim > 1 else t for t in given]
    assert torch.allclose(outputs(function(*strided)), same(*given), rtol=1e-9, atol=1e-9)


def test_integers_and_empty_tensors() -> None:
    x = here.randint(-9, 9, (4, 7), dtype=torch.int32)
    total = tn.fuse("f(x: i32[n, c]) -> y: i32[n, c], z: i32[n] : y = scan('s + x'); z = reduce('max(s, x)')")
    y, z = total(x)
    assert torch.equal(y, x.cumsum(1).to(torch.int32)) and torch.equal(z, x.amax(1))
    last = tn.fuse("reduce('0.5 * s + x', start=3)")
    assert torch.equal(last(here.randn(2, 0)), torch.full((2,), 3.0, device=here.DEVICE))
    assert last(here.randn(0, 5)).shape == (0,)


def test_large() -> None:
    """Rows enough for several threads, a step that the host's compiler takes over, and the same bits all the time."""
    x, a = here.randn(40, 30000), here.rand(40, 30000)
    function = tn.fuse("scan('a * s + x', axis=0)")
    first = function(a, x)
    for _ in range(4):
        assert torch.equal(function(a, x), first)
    want = scan(lambda s, a, x: a * s + x, [a.double(), x.double()], 0, 0)
    assert float((first.double() - want).abs().max()) < 1e-4 * math.sqrt(40)


def test_compiled() -> None:
    """It stays one operator."""
    function = tn.fuse("scan('a * s + x') * x")
    a, x = here.rand(3, 6, requires_grad=True), here.randn(3, 6)
    compiled = torch.compile(lambda a, x: function(a * 2, x).sin(), backend="aot_eager", fullgraph=True)
    made = [torch.autograd.grad(f(a, x).sum(), a)[0] for f in (compiled, lambda a, x: function(a * 2, x).sin())]
    assert torch.allclose(*made)


@pytest.mark.parametrize(
    ("formula", "message"),
    [
        ("scan(x)", "expected the step in quotes"),
        ("scan('tanh(s + x)')", "what does s begin with? start=0 says so"),
        ("scan('a * s + x', 0)", "expected axis=…, start=…, reverse=true or a value of the step"),
        ("scan('a * s + x', b=2)", "the step has no value 'b'"),
        ("scan('a * s + x', result='last')", "'before'"),
        ("scan('s * 2')", "the step takes no value that has dimensions"),
        ("scan('s + mean(x)')", "a step is about one element"),
        ("scan('s + x', axis=[0, 1])", "expected a number for the axis of scan"),
        ("f(x: i64[n]) -> y: i64[n] : scan('s / x', start=1)", "the step makes a float of integers"),
        ("f(x: T[n, *s]) -> y: T[n] : reduce('s + x')", "reduce goes along one dimension, and *s can be several"),
        ("f(x: T[n, c], h: T[c]) -> y: T[n, c] : scan('s + x', start=h)", "has the dimension that scan goes along"),
        (
            "f(x: T[n, c], h: T[m]) -> y: T[n, c] : scan('s + x', axis=c, start=h)",
            "a dimension that no value of the step has",
        ),
        ("f(x: T[n], w: T[m]) -> y: T[n] : scan('s + x', axis=m)", "which this has not"),
        ("scan('s + x", "the string has no closing quote"),
    ],
)
def test_mistakes(formula: str, message: str) -> None:
    with pytest.raises(ValueError) as error:
        tn.fuse(formula)
    assert message in str(error.value)
