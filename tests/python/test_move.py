"""Operators that move data: every element type, views, lists, and what PyTorch's functions of these names take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import here
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import tenon.torch as tn

TYPES = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16]
TYPES += [torch.float32, torch.float64, torch.complex64, torch.complex128, torch.float8_e4m3fn, torch.float8_e5m2]
WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.complex128}

CALLS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "permute": (lambda x: tn.permute(x, (2, 0, 1)), lambda x: x.permute(2, 0, 1)),
    "concat": (lambda x: tn.concat([x, x[:, :1], x], 1), lambda x: torch.cat([x, x[:, :1], x], 1)),
    "pad": (lambda x: tn.pad(x, (3, 1, 0, 2)), lambda x: F.pad(x, (3, 1, 0, 2))),
    "roll": (lambda x: tn.roll(x, (2, -1), (0, 2)), lambda x: torch.roll(x, (2, -1), (0, 2))),
    "roll all": (lambda x: tn.roll(x, 5), lambda x: torch.roll(x, 5)),
    "repeat": (lambda x: tn.repeat(x, (2, 1, 3, 2)), lambda x: x.repeat(2, 1, 3, 2)),
    "triu": (lambda x: tn.triu(x, 1), lambda x: torch.triu(x, 1)),
    "tril": (lambda x: tn.tril(x, -1), lambda x: torch.tril(x, -1)),
}


def bits(x: Tensor) -> Tensor:
    """The bytes of its elements, as numbers that torch moves in any case."""
    return x.contiguous().view(WORDS[x.element_size()])


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("name", CALLS)
def test_every_type(name: str, dtype: torch.dtype) -> None:
    ours, theirs = CALLS[name]
    x = here.randint(0, 2 if dtype == torch.bool else 120, (4, 5, 17)).to(dtype)
    for view in (x, x.transpose(0, 2), x[:, ::2, 1:], x.flip(1)[1:], x[:0]):
        assert torch.equal(bits(ours(view)), theirs(bits(view)))


@pytest.mark.parametrize("dtype", [torch.int64, torch.float32, torch.complex64], ids=str)
def test_constant_of_padding(dtype: torch.dtype) -> None:
    x = here.ones(3, 4).to(dtype)
    assert torch.equal(tn.pad(x, (1, 2), value=7.0), F.pad(x, (1, 2), value=7))


def test_integers_beyond_doubles() -> None:
    x = torch.tensor([[2**62 + 1, -(2**63)], [2**63 - 1, 3]], device=here.DEVICE)
    assert torch.equal(tn.permute(x, (1, 0)), x.t())
    assert torch.equal(tn.pad(x, (1, 1), "reflect"), x[:, [1, 0, 1, 0]])


@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
def test_padding_differentiates_twice(mode: str) -> None:
    x = here.randn(2, 3, 5).double().requires_grad_()
    assert torch.autograd.gradcheck(lambda t: tn.pad(t, (2, 1), mode), (x,))
    assert torch.autograd.gradgradcheck(lambda t: tn.pad(t, (2, 1), mode).square(), (x,))


@pytest.mark.parametrize("pad", [(-1, 2), (3, -2), (-1, -1), (-4, 0), (1, -1, -2, 1)], ids=str)
def test_a_circle_of_what_is_left(pad: tuple[int, ...]) -> None:
    """Negative numbers cut before the rest goes round, as torch does it: values and gradients."""
    made = []
    for function in (tn.pad, F.pad):
        x = torch.arange(120.0).view(6, 4, 5).to(here.DEVICE).requires_grad_()
        y = function(x, pad, "circular")
        made.append((y, torch.autograd.grad(y.square().sum(), x)[0]))
    assert all(map(torch.equal, *made))
    with pytest.raises(ValueError, match=r"pad: pad\[1\] is -6, but dimension 2 has only 5 elements to cut"):
        tn.pad(x, (9, -6), "circular")


def test_concat_has_gradients_of_each_tensor() -> None:
    xs = [here.randn(2, n, 3).double().requires_grad_() for n in (4, 1, 0, 2)]
    assert torch.autograd.gradcheck(lambda *t: tn.concat(t, 1).square(), xs)
    assert torch.autograd.gradgradcheck(lambda *t: tn.concat(t, -2).square(), xs)


def test_concat_of_many_tensors() -> None:
    xs = [here.randn(3, 1 + n % 7) for n in range(133)]
    assert torch.equal(tn.concat(xs, dim=1), torch.cat(xs, 1))


def test_concat_says_which_tensor_does_not_fit() -> None:
    with pytest.raises(ValueError, match=r"concat: tensors\[1\] has shape \(3, 3\), which differs .* dimension 1"):
        tn.concat([here.randn(2, 3), here.randn(3, 3)], 1)


def test_shapes_that_do_not_fit() -> None:
    x = here.randn(2, 3)
    with pytest.raises(ValueError, match=r"pad: pad is \[1, 1, 1\], which is not a pair"):
        tn.pad(x, (1, 1, 1))
    with pytest.raises(ValueError, match=r"pad: pad is \[-2, -2\], which leaves no size"):
        tn.pad(x, (-2, -2))
    with pytest.raises(ValueError, match=r"repeat: repeats is \[2\], which needs a number for each dimension"):
        tn.repeat(x, (2,))
    with pytest.raises(ValueError, match="permute: dims is"):
        tn.permute(x, (0, 0))
    with pytest.raises(ValueError, match="roll: shifts has 2 numbers, but dims has 1"):
        tn.roll(x, (1, 2), (0,))


@pytest.mark.parametrize("name", [n for n in CALLS if n != "roll all"])
def test_compiled_with_unknown_sizes(name: str) -> None:
    ours, _ = CALLS[name]
    compiled = torch.compile(ours, fullgraph=True, dynamic=True, backend="aot_eager")
    for shape in ((4, 5, 17), (3, 7, 9)):
        x = here.randn(*shape)
        assert torch.equal(compiled(x), ours(x))


@pytest.mark.parametrize("dims", [(1, 0, 2), (2, 1, 0), (0, 2, 1), (2, 0, 1), (1, 2, 0)], ids=str)
@pytest.mark.parametrize("shape", [(70, 65, 3), (3, 300, 71), (64, 48, 129), (2, 5000, 2), (129, 31, 33)], ids=str)
@pytest.mark.parametrize("dtype", WORDS.values(), ids=str)
def test_orders_of_larger_tensors(dtype: torch.dtype, shape: tuple[int, ...], dims: tuple[int, ...]) -> None:
    """Long and short dimensions, odd and even, and rows that are cut."""
    x = here.randint(0, 120, shape).to(dtype)
    assert torch.equal(tn.permute(x, dims), x.permute(dims).contiguous())
    assert torch.equal(tn.permute(x[:, 1:], dims), x[:, 1:].permute(dims).contiguous())


def test_concat_promotes_as_torch_does() -> None:
    x, y, z = here.randn(2, 3).requires_grad_(), here.randn(2, 3).bfloat16().requires_grad_(), here.arange(6).view(2, 3)
    for tensors in ([y, x], [z, y], [z, z.int()], [z > 2, z]):
        have, want = tn.concat(tensors, 1), torch.cat(tensors, 1)
        assert have.dtype == want.dtype and torch.equal(have, want)
    dy = here.randn(2, 6)
    for have, want in zip(
        *(torch.autograd.grad(f([y, x], 1), (y, x), dy) for f in (tn.concat, torch.cat)), strict=True
    ):
        assert have.dtype == want.dtype and torch.equal(have, want)


def test_concat_of_more_tensors_than_one_launch_takes() -> None:
    for shape, dim in (((0, 3), 0), ((5, 0), 1)):
        sizes = [(k * 7) % 23 for k in range(300)]
        tensors = [here.randn(*(n if d == dim else size for d, size in enumerate(shape))) for n in sizes]
        assert torch.equal(tn.concat(tensors, dim), torch.cat(tensors, dim))


@pytest.mark.parametrize("diagonal", [2**63 - 1, 2**63 - 2, 8, 7, 6, -5, -6, -(2**63)])
def test_a_diagonal_beyond_the_matrix(diagonal: int) -> None:
    """As far as integers go; torch itself has wrong results at both ends."""
    x = here.randn(2, 5, 7)
    apart = here.arange(7) - here.arange(5)[:, None]
    for y in (x, x.mT.contiguous().mT):
        assert torch.equal(tn.triu(y, diagonal), torch.where(apart >= diagonal, x, 0))
        assert torch.equal(tn.tril(y, diagonal), torch.where(apart <= diagonal, x, 0))
