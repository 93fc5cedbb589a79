"""sort and top_k give what torch gives: for every type, with NaN, both zeros and equal elements, and for all rows that
one way of sorting after the other takes."""

from __future__ import annotations

import here
import pytest
import torch
from torch import Tensor

import tenon.torch as tn

INTEGERS = [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
LENGTHS = [1, 2, 24, 25, 96, 97, 300, 1000, 4095, 4097, 70000]


def numbers(dtype: torch.dtype, *shape: int) -> Tensor:
    """All of the type's range; of floats, NaN, infinities, zeros of both signs and equal numbers among them."""
    if dtype == torch.bool:
        return here.randint(0, 2, shape).bool()
    if not dtype.is_floating_point:
        limits = torch.iinfo(dtype)
        wide = here.randint(limits.min, limits.max, shape, dtype=dtype)
        few = here.randint(0, 3, shape, dtype=dtype)
        return torch.where(here.rand(*shape) < 0.5, wide, few)
    x = here.randn(*shape).to(dtype)
    special = here.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1.0, -1.0], dtype=dtype)
    return torch.where(here.rand(*shape) < 0.3, special[here.randint(0, 7, shape)], x)


def assert_same(have: tuple[Tensor, Tensor], want: tuple[Tensor, Tensor]) -> None:
    """The same indices, and the same bits but for those of NaN."""
    values, index = want[0], want[1]
    assert torch.equal(have[1], index)
    assert have[0].dtype == values.dtype
    if not values.dtype.is_floating_point:
        assert torch.equal(have[0], values)
        return
    torch.testing.assert_close(have[0], values, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(have[0].signbit() | have[0].isnan(), values.signbit() | values.isnan())


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS, torch.bool], ids=str)
def test_sort_like_torch(dtype: torch.dtype, descending: bool) -> None:
    for n in LENGTHS:
        x = numbers(dtype, 3 if n < 5000 else 1, n)
        assert_same(tn.sort(x, -1, descending), torch.sort(x, dim=-1, descending=descending, stable=True))
    x = numbers(dtype, 5, 60, 4)
    for dim in (0, 1, -2):
        assert_same(tn.sort(x, dim, descending), torch.sort(x, dim=dim, descending=descending, stable=True))
    x = numbers(dtype, 60, 40).T[::2]
    assert_same(tn.sort(x, 1, descending), torch.sort(x, dim=1, descending=descending, stable=True))


@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS, torch.bool], ids=str)
def test_top_k_is_the_first_of_a_stable_sort(dtype: torch.dtype, largest: bool) -> None:
    for n in LENGTHS:
        x = numbers(dtype, 3 if n < 5000 else 1, n)
        values, index = torch.sort(x, dim=-1, descending=largest, stable=True)
        for k in sorted({0, 1, min(n, 5), n // 8, n // 2, n}):
            assert_same(tn.top_k(x, k, largest=largest), (values[..., :k], index[..., :k]))


def test_top_k_of_sorted_rows() -> None:
    """Each element is better than all before it: the room is full again and again."""
    x = here.arange(50000.0)
    for y in (x, x.flip(0), here.zeros(50000)):
        values, index = torch.sort(y, dim=-1, descending=True, stable=True)
        assert_same(tn.top_k(y, 50), (values[:50], index[:50]))


def test_unsigned_integers_of_more_than_8_bits() -> None:
    """torch does not sort these."""
    for dtype, bits in ((torch.uint16, torch.int16), (torch.uint32, torch.int32), (torch.uint64, torch.int64)):
        x = numbers(bits, 2, 500)
        width = torch.iinfo(dtype).bits
        by_hand = [sorted((int(v) % 2**width, i) for i, v in enumerate(row)) for row in x.tolist()]
        values, index = tn.sort(x.view(dtype))
        assert index.tolist() == [[i for _, i in row] for row in by_hand]
        assert values.dtype == dtype
        assert torch.equal(values.view(bits), torch.gather(x, 1, index))


def test_gradients_go_back_to_where_values_came_from() -> None:
    x = here.randn(4, 33, 5, dtype=torch.float64).requires_grad_()
    for dim in (0, 1, 2):
        dy = here.randn(4, 33, 5, dtype=torch.float64)
        have = torch.autograd.grad(tn.sort(x, dim)[0], x, dy)[0]
        want = torch.autograd.grad(torch.sort(x, dim=dim, stable=True)[0], x, dy)[0]
        assert torch.equal(have, want)
    have = torch.autograd.grad(tn.top_k(x, 7, dim=1)[0].square().sum(), x)[0]
    want = torch.autograd.grad(torch.topk(x, 7, dim=1)[0].square().sum(), x)[0]
    assert torch.equal(have, want)


def test_gradient_of_equal_elements_is_stable() -> None:
    x = here.zeros(2, 100).requires_grad_()
    dy = here.randn(2, 100)
    assert torch.equal(torch.autograd.grad(tn.sort(x)[0], x, dy)[0], dy)


def test_an_index_outside_of_the_row_is_left_out() -> None:
    index = here.tensor([[1, -1, 9]])
    assert torch.equal(tn.top_k_grad(here.ones(1, 3), index, 4), here.tensor([[0.0, 1.0, 0.0, 0.0]]))


def test_like_torch_with_other_arguments() -> None:
    x = here.randn(3, 4)
    assert_same(tn.sort(x, axis=0, stable=True), torch.sort(x, dim=0, stable=True))
    assert_same(tn.top_k(x, 2, 0, False, True), torch.topk(x, 2, 0, False, True))
    values, index = tn.sort(here.tensor(2.0))
    assert values.item() == 2 and index.item() == 0
    with pytest.raises(ValueError, match="needs k <= n, but k is 5 and n is 4"):
        tn.top_k(x, 5)
    with pytest.raises(AttributeError, match="top_k"):
        _ = tn.topk  # type: ignore[attr-defined]
    compiled = torch.compile(lambda t: tn.sort(t, 0)[0] * 2, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x), torch.sort(x, 0)[0] * 2)


def test_dim_counts_where_something_else_stands_for_the_tensor() -> None:
    """A mode, as with torch.device sets one, what torch.fx traces with, a class derived from Tensor, a parameter."""

    class Derived(Tensor):
        pass

    x = here.randn(5, 7)
    want = torch.topk(x, 2, 0)[0]
    with torch.device(here.DEVICE):
        assert torch.equal(tn.top_k(x, 2, 0)[0], want)
    assert torch.equal(torch.fx.symbolic_trace(lambda t: tn.top_k(t, 2, dim=0)[0])(x), want)
    assert torch.equal(torch.fx.symbolic_trace(lambda t: tn.sort(t, 0, True)[0][:2])(x), want)
    assert torch.equal(tn.top_k(x.as_subclass(Derived), 2, 0)[0].as_subclass(Tensor), want)
    scalar = torch.nn.Parameter(here.tensor(2.0))
    assert tn.sort(scalar)[0].item() == tn.top_k(scalar, 1)[0].item() == 2
