"""Positions in formulas, and where extremes are: the same as in torch."""

from __future__ import annotations

from collections.abc import Callable

import here
import pytest
import torch
from torch import Tensor

import tenon.torch as tn

CASES: list[tuple[str, Callable[..., Tensor], list[tuple[int, ...]]]] = [
    (
        "f(s: T[b, n, m]) -> y: T[b, n, m] : softmax(where(index(n) >= index(m), s, -inf))",
        lambda s: s.masked_fill(~torch.ones(s.shape[1:], dtype=torch.bool, device=s.device).tril(), -torch.inf).softmax(
            -1
        ),
        [(2, 5, 5)],
    ),
    (
        "x * (index(-1) < length)",
        lambda x, length: x * (torch.arange(x.shape[-1], device=x.device) < length),
        [(4, 9), (4, 1)],
    ),
    (
        "f(x: T[b, t, d], w: T[d]) -> y: T[b, t, d] : x + sin(index(t) * w) * cos(0.1 * index(d))",
        lambda x, w: (
            x
            + (torch.arange(x.shape[1], device=x.device)[:, None] * w).sin()
            * (0.1 * torch.arange(x.shape[2], device=x.device)).cos()
        ),
        [(2, 6, 4), (4,)],
    ),
    ("sum(x * index(-1), -1)", lambda x: (x * torch.arange(x.shape[-1], device=x.device)).sum(-1), [(3, 7)]),
    ("x * index(0)", lambda x: x * torch.arange(x.shape[0], device=x.device)[:, None, None], [(3, 2, 4)]),
    ("x * index()", lambda x: x * torch.arange(x.numel(), device=x.device).view(x.shape), [(3, 2, 4)]),
    (
        "where(index(x, axis=1) == argmax(x, axis=1), x * x, w)",
        lambda x, w: torch.where(torch.nn.functional.one_hot(x.argmax(1), x.shape[1]).mT == 1, x * x, w),
        [(3, 5, 4), (3, 5, 4)],
    ),
]


@pytest.mark.parametrize(("formula", "same", "shapes"), CASES, ids=[c[0] for c in CASES])
def test_values_and_gradients(formula: str, same: Callable[..., Tensor], shapes: list[tuple[int, ...]]) -> None:
    made = tn.fuse(formula)
    given = [here.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    if "length" in formula:
        given[1] = here.tensor([[3.0], [0], [9], [5]], dtype=torch.float64, requires_grad=True)
    have, want = made(*given), same(*given)
    assert torch.allclose(have, want)
    weight = here.randn(want.shape, dtype=torch.float64)
    for h, w in zip(
        *(torch.autograd.grad((y * weight).sum(), given, allow_unused=True) for y in (have, want)), strict=True
    ):
        assert torch.allclose(h, torch.zeros_like(h) if w is None else w)
    if "length" not in formula and "argmax" not in formula:
        assert torch.autograd.gradgradcheck(made, given)
    strided = [g.detach().mT.contiguous().mT if g.ndim > 1 else g.detach() for g in given]
    assert torch.allclose(made(*strided), want)


def test_a_mask_that_grows_with_the_sizes() -> None:
    """One function for every size: 64 bits count."""
    made = tn.fuse("index(-1) * 100000 + i64(0 * x)")
    assert made(here.zeros(70000)).tolist() == [k * 100000 for k in range(70000)]
    assert made(here.zeros(1)).tolist() == [0]
    assert made(here.zeros(())).tolist() == 0
    assert made(here.zeros(3, 0)).shape == (3, 0)


NAN = float("nan")
ROWS = [[1.0, 3, 3, 2], [NAN, 1, 2, 3], [5, NAN, 9, NAN], [-1, -torch.inf, -torch.inf, 0], [torch.inf, 1, torch.inf, 2]]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_first_of_equals_and_nan(dtype: torch.dtype) -> None:
    x = here.tensor(ROWS, dtype=dtype)
    assert tn.argmax(x, dim=1).tolist() == [1, 0, 1, 3, 0]
    assert tn.argmin(x, dim=1).tolist() == [0, 0, 1, 1, 1]
    assert tn.argmax(x).item() == tn.argmin(x).item() == 4  # the first NaN
    assert tn.fuse("argmin(x, -1)")(x).tolist() == [0, 0, 1, 1, 1]


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64], ids=str)
def test_integers(dtype: torch.dtype) -> None:
    x = here.randint(0, 100, (5, 6, 7), dtype=dtype)
    for name in ("argmax", "argmin"):
        ours, theirs = getattr(tn, name), getattr(x.cpu().numpy(), name)
        for dim in (0, 1, 2, -1, None):
            assert (ours(x, dim).cpu().numpy() == theirs(dim)).all()
            assert (ours(x, dim, keepdim=True).cpu().numpy() == theirs(dim, keepdims=True)).all()
        assert ours(x, axis=1).dtype == torch.int64
    assert tn.argmax(here.tensor([[False, True, True], [False, False, False]]), 1).tolist() == [1, 0]
    assert tn.argmax(here.tensor(3)).item() == 0
    assert tn.argmin(x, dim=2, out=here.zeros(5, 6, dtype=torch.int64)).shape == (5, 6)


def test_large_integers() -> None:
    """Not compared as floats."""
    x = here.tensor([2**53, 2**53 + 1, 2**53 + 1, -(2**62)])
    assert tn.argmax(x).item() == 1
    assert tn.argmin(x).item() == 3


def test_of_no_elements() -> None:
    with pytest.raises(ValueError, match="of no elements"):
        tn.argmax(here.zeros(3, 0), 1)
    assert tn.argmax(here.zeros(0, 3), 1).shape == (0,)


def test_no_gradient() -> None:
    x = here.randn(3, 4, requires_grad=True)
    assert not tn.argmax(x, 1).requires_grad
    y = (x * tn.fuse("x * 0 + argmax(x, -1)")(x)).sum()
    assert torch.allclose(torch.autograd.grad(y, x)[0], x.argmax(-1, keepdim=True).expand(3, 4).float())


@pytest.mark.parametrize("sizes", [(64, 1000), (3, 70001), (2, 33, 257)])
def test_long_rows(sizes: tuple[int, ...]) -> None:
    x = here.randn(sizes)
    for dim in range(-1, len(sizes) - 1):
        assert torch.equal(tn.argmax(x, dim), x.argmax(dim))
        assert torch.equal(tn.argmin(x, dim), x.argmin(dim))
    assert torch.equal(tn.argmax(x), x.argmax())
