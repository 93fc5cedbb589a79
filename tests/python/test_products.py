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
