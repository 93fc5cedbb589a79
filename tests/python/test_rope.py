"""rope turns what models turn, in both layouts and wherever their heads are."""

from __future__ import annotations

import here
import pytest
import torch
from cases import assert_close
from torch import Tensor

import tenon.torch as tn


def angles(positions: int, pairs: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    frequencies = 10000.0 ** (-torch.arange(pairs, device=here.DEVICE, dtype=torch.float64) / pairs)
    turned = torch.arange(positions, device=here.DEVICE)[:, None] * frequencies
    return turned.cos().to(dtype), turned.sin().to(dtype)


def rotate_half(x: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return torch.cat((-b, a), -1)


def by_complex_numbers(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * torch.complex(cos, sin)).flatten(-2).to(x.dtype)


@pytest.mark.parametrize("T", ["f32", "bf16", "f16"])
def test_as_models_write_it(T: str) -> None:
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}[T]
    cos, sin = angles(9, 16)
    q = here.randn(2, 3, 9, 32).to(dtype)  # batch, heads, positions
    wide = q.float()
    whole = [torch.cat((a, a), -1) for a in (cos, sin)]
    assert_close(tn.rope(q, cos, sin), (wide * whole[0] + rotate_half(wide) * whole[1]).to(dtype), T)
    assert_close(tn.rope(q, cos, sin, interleaved=True), by_complex_numbers(q, cos, sin), T)
    assert torch.equal(tn.rope(q, cos[None, None], sin[None, None]), tn.rope(q, cos, sin))


@pytest.mark.parametrize("interleaved", [False, True])
def test_heads_behind_positions(interleaved: bool) -> None:
    """As a view that nobody copies, or with angles that broadcast over the heads; and angles of each sequence."""
    cos, sin = angles(9, 6)
    x = here.randn(2, 9, 3, 12)  # batch, positions, heads
    want = tn.rope(x.transpose(1, 2).contiguous(), cos, sin, interleaved).transpose(1, 2)
    assert torch.equal(tn.rope(x.transpose(1, 2), cos, sin, interleaved).transpose(1, 2), want)
    assert torch.equal(tn.rope(x, cos[:, None], sin[:, None], interleaved), want)
    own = [torch.stack((a, a.flip(0)))[:, :, None] for a in (cos, sin)]
    each = tn.rope(x, *own, interleaved=interleaved)
    assert torch.equal(each[0], want[0])
    assert torch.equal(each[1], tn.rope(x[1], own[0][1], own[1][1], interleaved))


@pytest.mark.parametrize("interleaved", [False, True])
def test_gradients_turn_back(interleaved: bool) -> None:
    cos, sin = angles(5, 3, torch.float64)
    x = here.randn(2, 5, 6, dtype=torch.float64).requires_grad_()

    def call(t: Tensor) -> Tensor:
        return tn.rope(t, cos, sin, interleaved)

    assert torch.autograd.gradcheck(call, (x,))
    assert torch.autograd.gradgradcheck(lambda t: call(t).square(), (x,))
    y = call(x)
    assert_close(torch.autograd.grad(y, x, y)[0], x, "f64")


def test_compiled_and_mapped() -> None:
    cos, sin = angles(5, 4)
    x = here.randn(2, 5, 8).requires_grad_()
    compiled = torch.compile(lambda t: tn.rope(t, cos, sin) * 2, fullgraph=True, backend="aot_eager", dynamic=True)
    assert torch.equal(compiled(x), tn.rope(x, cos, sin) * 2)
    compiled(x).sum().backward()
    batch = here.randn(3, 2, 5, 8)
    assert torch.equal(torch.vmap(lambda t: tn.rope(t, cos, sin))(batch), tn.rope(batch, cos, sin))


def test_in_place() -> None:
    cos, sin = angles(5, 4)
    x = here.randn(2, 5, 8)
    want = tn.rope(x, cos, sin)
    assert torch.equal(tn.rope(x, cos, sin, out=x), want)
    assert torch.equal(x, want)


def test_messages() -> None:
    cos, sin = angles(5, 4)
    with pytest.raises(ValueError, match="cos has shape"):
        tn.rope(here.randn(4, 8), cos, sin)
    with pytest.raises(ValueError, match=r"needs d % 2 == 0, but d is 9"):
        tn.rope(here.randn(5, 9), cos, sin)
    with pytest.raises((NotImplementedError, RuntimeError), match="cos"):
        tn.rope(here.randn(5, 8), cos.clone().requires_grad_(), sin).sum().backward()
