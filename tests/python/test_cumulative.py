"""cumsum, cumprod, cummax and cummin beside torch's: along every dimension, of what the samples do not have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import here
import pytest
import torch
from torch import Tensor

import tenon.torch as tn

NAMES = ["cumsum", "cumprod", "cummax", "cummin"]
INFINITY, NAN = float("inf"), float("nan")


def pair(name: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    return getattr(tn, name), getattr(torch, name)


def assert_same(name: str, x: Tensor, dim: int) -> None:
    """Of floats, cumsum and cumprod within rounding; everything else is exact."""
    ours, theirs = pair(name)
    have, want = ours(x, dim), theirs(x, dim)
    if name in ("cumsum", "cumprod"):
        torch.testing.assert_close(have, want, equal_nan=True)
    else:
        torch.testing.assert_close(have[0], want[0], rtol=0, atol=0, equal_nan=True)
        assert torch.equal(have[1], want[1])


@pytest.mark.parametrize("name", NAMES)
def test_layouts(name: str) -> None:
    wide = here.randn(6, 70, 9, dtype=torch.float64)
    for x in (wide, wide.transpose(0, 2), wide[:, ::3], wide.flip(1), wide[:0], wide[:, :0], wide[0, 0, :1]):
        for dim in range(-x.ndim, x.ndim):
            assert_same(name, x, dim)
    assert_same(name, here.tensor(2.5), 0)
    assert_same(name, here.tensor(2.5), -1)
    with pytest.raises(ValueError, match=f"{name}: dim is 3, input has rank 3"):
        pair(name)[0](wide, 3)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64], ids=str)
def test_integers(name: str, dtype: torch.dtype) -> None:
    """Sums and products are of int64, extremes of the type itself."""
    x = here.randint(0, 2, (5, 300)).to(dtype) if dtype == torch.bool else here.randint(0, 100, (5, 300)).to(dtype)
    for dim in (0, 1):
        assert_same(name, x, dim)


@pytest.mark.parametrize("name", NAMES)
def test_infinities_and_nan(name: str) -> None:
    rows = [
        [1.0, INFINITY, 2.0, -INFINITY, 3.0],
        [1.0, NAN, 2.0, INFINITY, NAN],
        [-INFINITY, -1.0, -INFINITY, 0.0, -0.0],
        [NAN, 1.0, 2.0, NAN, INFINITY],
    ]
    x = here.tensor(rows)
    for one in (x, x.repeat(1, 40), x.repeat(40, 1)):
        for dim in (0, 1):
            assert_same(name, one, dim)


@pytest.mark.parametrize("smallest", [False, True])
def test_extremes_of_rows_in_order(smallest: bool) -> None:
    """Each element is the next one, or none is; and runs of equal ones, of which the last counts."""
    up = torch.arange(1000.0, device=here.randn(1).device)
    for x in (up, up.flip(0), (up / 7).floor(), torch.zeros_like(up)):
        for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.int64):
            assert_same("cummin" if smallest else "cummax", x.to(dtype), 0)


@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
@pytest.mark.parametrize("n", [1, 5, 33, 1030])
def test_exclusive_and_reverse(name: str, n: int) -> None:
    x = here.randn(3, n, dtype=torch.float64)
    ours, theirs = pair(name)
    none = torch.full_like(x[:, :1], name == "cumprod")
    back = theirs(x.flip(1), 1)
    torch.testing.assert_close(ours(x, 1, exclusive=True), torch.cat([none, theirs(x, 1)[:, :-1]], 1))
    torch.testing.assert_close(ours(x, 1, reverse=True), back.flip(1))
    torch.testing.assert_close(ours(x, 1, reverse=True, exclusive=True), torch.cat([none, back[:, :-1]], 1).flip(1))


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_gradient_of_products_with_zeros(exclusive: bool, reverse: bool) -> None:
    """None, one and several zeros in a row, and first and second order."""
    x = here.randn(5, 6, dtype=torch.float64)
    x[1, 2] = x[2, 1] = x[2, 4] = x[4, 0] = 0
    x[3] = 0
    x.requires_grad_()

    def product(t: Tensor) -> Tensor:
        return tn.cumprod(t, 1, exclusive=exclusive, reverse=reverse)

    assert torch.autograd.gradcheck(product, x)
    assert torch.autograd.gradgradcheck(product, x)


@pytest.mark.parametrize("name", NAMES)
def test_gradients_of_second_order(name: str) -> None:
    x = here.randn(4, 5, dtype=torch.float64, requires_grad=True)

    def first(t: Tensor) -> Tensor:
        made: Any = pair(name)[0](t, 1)
        return made if isinstance(made, Tensor) else made[0]  # type: ignore[no-any-return]

    assert torch.autograd.gradcheck(first, x)
    assert torch.autograd.gradgradcheck(first, x)


def test_types_that_are_asked_for() -> None:
    x = here.randn(3, 4)
    assert tn.cumsum(x, 0, dtype=torch.float64).dtype == torch.float64
    assert tn.cumsum(here.randint(0, 9, (7,)), dtype=torch.float32).dtype == torch.float32
    assert torch.equal(tn.cumsum(here.tensor([100, 100], dtype=torch.int8), dtype=torch.int8), here.tensor([100, -56]))
    out = torch.empty_like(x)
    assert tn.cumsum(x, 1, out=out) is out
    torch.testing.assert_close(out, x.cumsum(1))
    with pytest.raises(TypeError, match="cumsum: dim and axis"):
        tn.cumsum(x, 1, axis=0)


def test_under_compile() -> None:
    x = here.randn(4, 9)
    compiled = torch.compile(lambda t: tn.cumsum(t, 1) + tn.cummax(t, 0)[0], fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), x.cumsum(1) + x.cummax(0)[0])
