"""scaled_dot_product_attention takes what torch's takes, and gives its results and gradients."""

from __future__ import annotations

from typing import Any

import here
import pytest
import torch
import torch.nn.functional as F
from cases import assert_close

import tenon.torch as tn

# (query, key, value, mask, options)
CASES: list[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...] | None, dict[str, Any]]] = [
    ((2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 6), None, {}),
    ((2, 3, 5, 8), (2, 3, 5, 8), (2, 3, 5, 8), None, {"is_causal": True}),
    ((2, 3, 5, 8), (2, 3, 9, 8), (2, 3, 9, 8), None, {"is_causal": True, "scale": 0.5}),
    ((2, 3, 9, 8), (2, 3, 5, 8), (2, 3, 5, 8), None, {"is_causal": True}),
    ((2, 4, 5, 8), (2, 2, 7, 8), (2, 2, 7, 8), None, {"enable_gqa": True}),
    ((2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 8), (5, 7), {}),
    ((2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 8), (2, 1, 1, 7), {}),
    ((3, 5, 8), (3, 7, 8), (3, 7, 8), (3, 5, 7), {}),
    ((5, 8), (7, 8), (7, 8), None, {}),
    ((2, 2, 3, 5, 8), (2, 2, 3, 7, 8), (2, 2, 3, 7, 8), (2, 1, 1, 5, 7), {}),
]


KINDS = [(case, kind) for case in CASES for kind in (["none"] if case[3] is None else ["bool", "float"])]


@pytest.mark.parametrize("case, kind", KINDS, ids=str)
def test_as_torch(case: Any, kind: str) -> None:
    *shapes, mask_shape, options = case
    ours = [here.randn(*shape).double().requires_grad_() for shape in shapes]
    theirs = [t.detach().clone().requires_grad_() for t in ours]
    masks: list[Any] = [None, None]
    if kind == "bool":
        masks = [here.rand(*mask_shape) < 0.7] * 2
    elif kind == "float":
        masks = [here.randn(*mask_shape).double().requires_grad_()]
        masks.append(masks[0].detach().clone().requires_grad_())
    y = tn.scaled_dot_product_attention(*ours, masks[0], **options)
    expected = F.scaled_dot_product_attention(*theirs, masks[1], **options)
    assert_close(y, expected, "f64")
    gradient = torch.randn_like(expected)
    y.backward(gradient)
    expected.backward(gradient)
    for one, other in zip(ours, theirs, strict=True):
        assert_close(one.grad, other.grad, "f64")
    if kind == "float":
        assert_close(masks[0].grad, masks[1].grad, "f64")


def test_queries_without_a_key() -> None:
    q, k, v = (here.randn(1, 1, 3, 4) for _ in range(3))
    mask = torch.tensor([[True, False, False], [False, False, False], [True, True, True]], device=q.device)
    y = tn.scaled_dot_product_attention(q, k, v, mask)
    assert (y[0, 0, 1] == 0).all()
    assert_close(y[0, 0, 0], v[0, 0, 0])


@pytest.mark.parametrize(
    "options, message",
    [
        ({"dropout_p": 0.1}, "dropout_p is 0.1"),
        ({"is_causal": True, "attn_mask": torch.ones(3, 3)}, "attn_mask must not"),
    ],
    ids=str,
)
def test_refused(options: dict[str, Any], message: str) -> None:
    x = here.randn(1, 2, 3, 4)
    with pytest.raises(ValueError, match=message):
        tn.scaled_dot_product_attention(x, x, x, **options)


def test_heads_without_gqa() -> None:
    q, k = here.randn(1, 4, 3, 4), here.randn(1, 2, 3, 4)
    with pytest.raises(ValueError, match="enable_gqa=True"):
        tn.scaled_dot_product_attention(q, k, k)
