"""What looks up: as torch's functions, in a fixed order, and with clear words for an index that is out of range."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import here
import pytest
import torch
import torch.nn.functional as F
from cases import assert_close
from torch import Tensor, nn

import tenon.torch as tn


def on_cpu() -> bool:
    return here.DEVICE == "cpu"


@pytest.mark.parametrize("padding", [None, 2, -1])
def test_embedding_is_torchs(padding: int | None) -> None:
    index = here.tensor([[2, 5, 2], [6, 0, 6]])
    made = []
    for embedding in (tn.embedding, F.embedding):
        weight = torch.arange(28.0).view(7, 4).to(here.DEVICE).requires_grad_()
        y = embedding(index, weight, padding)
        (y * here.arange(24).view(2, 3, 4)).sum().backward()
        made.append((y, weight.grad))
    assert_close(made[0], made[1])


def test_embedding_module_loads_what_torchs_saved() -> None:
    theirs = nn.Embedding(11, 5, padding_idx=3, device=here.DEVICE)
    ours = tn.nn.Embedding(11, 5, padding_idx=3, device=here.DEVICE)
    assert isinstance(ours, nn.Embedding)
    ours.load_state_dict(theirs.state_dict())
    index = here.randint(0, 11, (4, 6))
    assert_close(ours(index), theirs(index))
    for module in (ours, theirs):
        module(index).square().sum().backward()
    assert_close(ours.weight.grad, theirs.weight.grad)
    with pytest.raises(NotImplementedError, match=r"tn\.nn\.Embedding: there is no sparse"):
        tn.nn.Embedding(11, 5, sparse=True)


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_index_may_be_smaller_than_the_input(dim: int) -> None:
    """Beside the dimension that it counts in, as torch allows."""
    index = here.tensor([[1, 0, 1], [0, 2, 0]])
    made = []
    for gather, scatter_add in ((tn.gather, tn.scatter_add), (torch.gather, torch.scatter_add)):
        x = torch.arange(20.0).view(4, 5).to(here.DEVICE).requires_grad_()
        src = torch.arange(6.0).view(2, 3).to(here.DEVICE).requires_grad_()
        y, z = gather(x, dim, index), scatter_add(x, dim, index, src)
        (y.square().sum() + z.square().sum()).backward()
        larger = scatter_add(x.detach(), dim, index, torch.arange(12.0).view(3, 4).to(here.DEVICE))
        made.append((y, z, x.grad, src.grad, larger))
    assert_close(made[0], made[1])


@pytest.mark.parametrize("of", [(), (1,)], ids=str)
@pytest.mark.parametrize("at", [(), (1,)], ids=str)
def test_without_dimensions(of: tuple[int, ...], at: tuple[int, ...]) -> None:
    """A tensor without dimensions is taken as if it had one, beside one that has it."""
    x, src = here.randn(of, requires_grad=True), here.randn(at, requires_grad=True)
    index = here.zeros(at, dtype=torch.int64)
    made = []
    for gather, scatter_add in ((tn.gather, tn.scatter_add), (torch.gather, torch.scatter_add)):
        y, z = gather(x, 0, index), scatter_add(x, 0, index, src)
        made.append((y, z, *torch.autograd.grad((y * 3).sum() + (z * z).sum(), (x, src))))
    assert_close(made[0], made[1])
    assert made[0][0].shape == at and made[0][1].shape == of


@pytest.mark.parametrize("shape", [(0,), (2, 0), (3, 0, 4)], ids=str)
def test_an_index_without_elements(shape: tuple[int, ...]) -> None:
    """Of any rank and any type, as torch allows."""
    x = here.randn(5, requires_grad=True)
    y = tn.gather(x, 0, here.zeros(shape, dtype=torch.uint8))
    assert y.shape == shape and torch.equal(torch.autograd.grad(y.sum(), x)[0], torch.zeros_like(x))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(3, 200), (200, 3), (6, 40, 5)], ids=str)
def test_same_bits_every_time(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """Many are added to few places: another order would give other bits."""
    torch.manual_seed(0)
    x, src = here.zeros(*shape, dtype=dtype), here.randn(*shape[:-1], 5000, dtype=dtype)
    index = here.randint(0, shape[-1], src.shape)
    first = tn.scatter_add(x, -1, index, src)
    assert all(torch.equal(tn.scatter_add(x, -1, index, src), first) for _ in range(10))
    exact = torch.scatter_add(x.double(), -1, index, src.double())
    assert_close(first.double(), exact, "bf16" if dtype == torch.bfloat16 else "f32", scale=8)
    ids = here.randint(0, 4, (5000,))
    rows = here.randn(5000, 24, dtype=dtype)
    sums = tn.segment_sum(rows, ids, 4)
    assert all(torch.equal(tn.segment_sum(rows, ids, 4), sums) for _ in range(10))


def test_expanded_index_is_not_copied_out() -> None:
    """One index for each row, as people write it for scatter_add."""
    torch.manual_seed(0)
    x, src, rows = here.randn(50, 33), here.randn(70, 33), here.randint(0, 50, (70,))
    index = rows[:, None].expand(-1, 33)
    assert_close(tn.scatter_add(x, 0, index, src), torch.scatter_add(x, 0, index, src))
    assert_close(tn.gather(x, 0, index), torch.gather(x, 0, index))


def test_integers_and_bool() -> None:
    for dtype in (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.bool):
        x = here.randint(0, 2, (5, 7)).to(dtype)
        index = here.randint(0, 7, (5, 3))
        assert torch.equal(tn.gather(x, 1, index), torch.gather(x, 1, index))
        assert torch.equal(tn.index_select(x, 1, index[0]), torch.index_select(x, 1, index[0]))
    for dtype in (torch.float32, torch.bool, torch.uint8):
        assert torch.equal(tn.one_hot(index, 7, dtype=dtype), F.one_hot(index, 7).to(dtype))
    assert torch.equal(tn.one_hot(index), F.one_hot(index))


def test_negative_ids_belong_to_no_segment() -> None:
    x = torch.arange(8.0).view(4, 2).to(here.DEVICE).requires_grad_()
    y = tn.segment_sum(x, here.tensor([1, -1, 1, 0]), 3)
    assert_close(y, here.tensor([[6.0, 7.0], [4.0, 6.0], [0.0, 0.0]]))
    y.sum().backward()
    assert_close(x.grad, here.tensor([[1.0, 1.0], [0.0, 0.0], [1.0, 1.0], [1.0, 1.0]]))


X = torch.zeros(3, 4)
BAD: dict[str, tuple[Callable[[], Any], str]] = {
    "embedding": (
        lambda: tn.embedding(torch.tensor([[0, 1], [2, 3]]), X),
        r"embedding: \w+\[1, 1\] is 3, must be below 3",
    ),
    "negative": (lambda: tn.embedding(torch.tensor([0, -1]), X), r"embedding: \w+\[1\] is -1, must be at least 0"),
    "gather": (lambda: tn.gather(X, 1, torch.tensor([[0], [4], [9]])), r"gather: index\[1, 0\] is 4, must be below 4"),
    "index_select": (
        lambda: tn.index_select(X, 0, torch.tensor([3])),
        r"index_select: index\[0\] is 3, must be below 3",
    ),
    "scatter_add": (
        lambda: tn.scatter_add(X, 0, torch.tensor([[0, 5, 0, 0]]), torch.ones(1, 4)),
        r"scatter_add: index\[0, 1\] is 5, must be below 3",
    ),
    "segment_sum": (
        lambda: tn.segment_sum(X, torch.tensor([0, 1, 2]), 2),
        r"segment_sum: ids\[2\] is 2, must be below 2",
    ),
    "offsets": (
        lambda: tn.segment_sum_offsets(X, torch.tensor([0, 2, 1])),
        r"segment_sum_offsets: offsets\[2\] is 1, must be from 2 to 3",
    ),
    "one_hot": (lambda: tn.one_hot(torch.tensor([1, 7]), 5), r"one_hot: \w+\[1\] is 7, must be below 5"),
}


@pytest.mark.parametrize("name", BAD)
def test_out_of_range_is_named(name: str) -> None:
    call, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.skipif(on_cpu(), reason="on the CPU it is refused")
def test_out_of_range_on_a_gpu() -> None:
    x, index = here.ones(3, 4), here.tensor([[0], [4], [-1]])
    assert tn.gather(x, 1, index).isnan().tolist() == [[False], [True], [True]]
    assert tn.gather(x.int(), 1, index).tolist() == [[1], [0], [0]]
    assert_close(tn.scatter_add(x, 1, index, here.ones(3, 1)).sum(), here.tensor(13.0))


@pytest.mark.parametrize("count", [65, 5000])
def test_one_place_gets_them_all(count: int) -> None:
    """Long sums, which several blocks of a GPU share."""
    dy, index = here.randn(count, 40, dtype=torch.float64), here.zeros(count, dtype=torch.int64) + 2
    made: Tensor = torch.ops.tenon.embedding_grad(dy, index, 5, -1)
    assert_close(made[2], dy.sum(0), "f64", scale=64)
    assert made[[0, 1, 3, 4]].eq(0).all()
