"""Products: vectors as torch takes them, and results that depend on nothing but their own rows."""

from __future__ import annotations

import here
import pytest
import torch
import torch.nn.functional as F
from cases import assert_close
from torch import Tensor

import tenon.torch as tn

PAIRS = [((4,), (4,)), ((4,), (4, 5)), ((3, 4), (4,)), ((4,), (2, 4, 5)), ((2, 3, 4), (4,)), ((2, 3, 4), (4, 5))]


@pytest.mark.parametrize("first, second", PAIRS, ids=str)
def test_matmul_of_vectors(first: tuple[int, ...], second: tuple[int, ...]) -> None:
    ours = [here.rand(*shape).requires_grad_() for shape in (first, second)]
    theirs = [t.detach().clone().requires_grad_() for t in ours]
    y, expected = tn.matmul(*ours), torch.matmul(*theirs)
    assert_close(y, expected)
    gradient = torch.rand_like(y)
    y.backward(gradient)
    expected.backward(gradient)
    for one, other in zip(ours, theirs, strict=True):
        assert_close(one.grad, other.grad)
    with torch.no_grad():
        out = torch.empty_like(expected)
        assert tn.matmul(*ours, out=out) is out
        assert_close(out, expected)


def test_linear_with_one_output() -> None:
    x, w, b = here.rand(3, 2, 4), here.rand(4), here.rand(())
    assert_close(tn.linear(x, w, b), F.linear(x, w, b))
    assert_close(tn.linear(x, w, b, act="gelu"), F.gelu(F.linear(x, w, b)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_a_row_has_the_same_bits_beside_any_others(dtype: torch.dtype) -> None:
    """Few rows, many rows and batches go different ways through memory, and add up in the same order on the CPU."""
    x, w, b = (torch.randn(*shape).to(dtype) for shape in ((61, 700), (150, 700), (150,)))
    layouts: list[Tensor] = [w, w.t().contiguous().t()]
    for weight in layouts:
        all_rows = tn.linear(x, weight, b)
        for count in (1, 2, 3, 4, 5, 12, 13, 40):
            assert torch.equal(tn.linear(x[7 : 7 + count], weight, b), all_rows[7 : 7 + count]), count
        assert torch.equal(tn.matmul(x[:, None], weight.t())[:, 0], tn.linear(x, weight))


def test_threads_do_not_change_bits() -> None:
    x, w = torch.randn(301, 800), torch.randn(513, 800)
    before = torch.get_num_threads()
    try:
        results = []
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            results.append(tn.linear(x, w))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(results[0], y) for y in results[1:])


def grouped(offsets: list[int], rows: int = 9) -> tuple[Tensor, Tensor, Tensor]:
    """x, w and offsets of three experts."""
    return here.randn(rows, 5), here.randn(3, 4, 5), here.tensor(offsets)


def test_rows_of_no_group() -> None:
    x, w, offsets = grouped([2, 4, 4, 7])
    x.requires_grad_()
    y = tn.grouped_linear(x, w, offsets)
    assert y[:2].eq(0).all() and y[7:].eq(0).all()
    assert_close(y[2:4], x[2:4] @ w[0].t())
    assert_close(y[4:7], x[4:7] @ w[2].t())
    y.sum().backward()
    assert x.grad is not None and x.grad[:2].eq(0).all() and x.grad[7:].eq(0).all()


def test_grouped_linear_can_be_differentiated_twice() -> None:
    x, w, offsets = (t.double() if t.is_floating_point() else t for t in grouped([0, 4, 4, 8]))
    assert torch.autograd.gradgradcheck(tn.grouped_linear, (x.requires_grad_(), w.requires_grad_(), offsets))


def test_grouped_linear_takes_weights_as_they_lie() -> None:
    x, w, offsets = grouped([0, 1, 8, 9])
    turned, every_second = w.mT.contiguous().mT, torch.stack([offsets, offsets * 0], 1)[:, 0]
    assert_close(tn.grouped_linear(x, turned, every_second), tn.grouped_linear(x, w, offsets))


@pytest.mark.parametrize("offsets", [[0, 5, 4, 9], [0, 2, 5, 10], [-1, 2, 5, 9]], ids=str)
def test_wrong_offsets_of_groups(offsets: list[int]) -> None:
    """On a GPU nobody knows them before the call."""
    x, w, wrong = grouped(offsets)
    if here.DEVICE == "cuda":
        assert tn.grouped_linear(x, w, wrong).isnan().all()
        assert torch.ops.tenon.grouped_linear_w_grad(x, wrong, here.ones(9, 4)).isnan().all()
    else:
        with pytest.raises(ValueError, match=r"grouped_linear: offsets\[\d\] is -?\d+, must be from"):
            tn.grouped_linear(x, w, wrong)
