"""Operators over lists of tensors: many of them, in any layout, and what is refused."""

from __future__ import annotations

import here
import pytest
import torch
from torch import Tensor

import tenon.torch as tn


def make(count: int) -> list[Tensor]:
    """Tensors of many shapes and layouts, some without elements."""
    made = []
    for k in range(count):
        if k % 5 == 0:
            made.append(here.randn(2, 3, 4, 5).to(memory_format=torch.channels_last))
        elif k % 5 == 1:
            made.append(here.randn(6, 7).t()[1:])
        else:
            made.append(here.randn((k * 37) % 1500 if k % 5 < 4 else 0))
    return made


@pytest.mark.parametrize("count", [1, 4, 150])
def test_adamw_step_list_is_adamw_step_of_each(count: int) -> None:
    p, g, m, v = make(count), make(count), make(count), make(count)
    v = [t.square() for t in v]
    want = [[t.clone() for t in ts] for ts in (p, m, v)]
    for one in zip(want[0], g, want[1], want[2], strict=True):
        tn.adamw_step(*one, None, 0.01, 3.0, weight_decay=0.1)
    tn.adamw_step_list(p, g, m, v, None, 0.01, 3.0, weight_decay=0.1)
    for have, other in zip((p, m, v), want, strict=True):
        for a, b in zip(have, other, strict=True):
            torch.testing.assert_close(a, b)


@pytest.mark.parametrize("most", [0.5, 1e6])
def test_clip_grad_norm_is_torchs(most: float) -> None:
    grads = make(150)
    params = [torch.nn.Parameter(torch.zeros_like(g)) for g in grads]
    for p, g in zip(params, grads, strict=True):
        p.grad = g.clone()
    want = torch.nn.utils.clip_grad_norm_(params, most)
    torch.testing.assert_close(tn.clip_grad_norm(grads, most), want)
    for p, g in zip(params, grads, strict=True):
        torch.testing.assert_close(g, p.grad)


def test_versions_count_up() -> None:
    grads = [here.randn(3), here.randn(4)]
    tn.clip_grad_norm(grads, 1.0)
    assert [g._version for g in grads] == [1, 1]


def test_what_is_refused() -> None:
    x = here.randn(50)
    with pytest.raises(ValueError, match=r"g\[0\] and g\[1\] are both written, but share memory"):
        tn.clip_grad_norm([x, x], 1.0)
    with pytest.raises(ValueError, match=r"g\[100\] and g\[101\] are both written, but share memory"):
        tn.clip_grad_norm([*make(100), x[:30], x[20:]], 1.0)
    with pytest.raises(ValueError, match="at least one tensor"):
        tn.clip_grad_norm([], 1.0)
    with pytest.raises(ValueError, match="g"):
        tn.sgd_step_list([here.randn(3)], [here.randn(4)], [here.randn(3)], 0.1)
    with pytest.raises(TypeError, match="has type"):
        tn.clip_grad_norm([here.randn(3), here.randn(3).double()], 1.0)
