"""Attention: torch's function of this name, with its arguments in their order and its result."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.overrides import has_torch_function_variadic

from tenon.torch._functional import check_tensors, overridden
from tenon.torch._public import functions

__all__ = ["scaled_dot_product_attention"]

_attention: Callable[..., tuple[Tensor, Tensor]] = functions["attention"]


def _four(x: Tensor, batch: torch.Size) -> Tensor:
    """(entries, heads, rows, columns): fewer dimensions get some in front, more are made one."""
    x = x.expand(*batch, *x.shape[-3:]) if len(batch) > 1 else x
    return x.reshape(-1, *x.shape[-3:]) if x.ndim > 4 else x[(None,) * (4 - x.ndim)]


def _mask(mask: Tensor, batch: torch.Size) -> Tensor:
    """The same for a mask, any of whose dimensions may be 1 or missing."""
    if len(batch) < 2:
        return mask[(None,) * (4 - mask.ndim)]
    mask = mask[(None,) * (len(batch) + 3 - mask.ndim)]
    return mask.expand(*batch, *mask.shape[-3:]).reshape(-1, *mask.shape[-3:])


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """softmax(scale * query key^T + attn_mask) value. An attn_mask of bools is false where a key takes no part; another
    one is added, and has a gradient. As torch has it, is_causal lets query i see keys 0 to i, also where there are more
    keys than queries; with tn.attention(causal=True) the last query is at the last key. There is no dropout."""
    given = [t for t in (query, key, value, attn_mask) if t is not None]
    name = "scaled_dot_product_attention"
    if has_torch_function_variadic(*given):
        return overridden(
            scaled_dot_product_attention, given, query, key, value, attn_mask, dropout_p, is_causal, scale=scale,
            enable_gqa=enable_gqa,
        )  # fmt: skip
    check_tensors(name, query=query, key=key, value=value)
    if dropout_p:
        raise ValueError(f"{name}: dropout_p is {dropout_p}; attention has no dropout, so it must be 0")
    if is_causal and attn_mask is not None:
        raise ValueError(f"{name}: attn_mask must not be given where is_causal is true")
    if min(query.ndim, key.ndim, value.ndim) < 2:
        raise ValueError(f"{name}: query, key and value need 2 dimensions at least")
    heads = [t.shape[-3] if t.ndim > 2 else 1 for t in (query, key, value)]
    if not enable_gqa and len(set(heads)) > 1:
        raise ValueError(f"{name}: query, key and value have {heads} heads; enable_gqa=True lets some share a key")
    batch = torch.broadcast_shapes(*(t.shape[:-3] for t in (query, key, value)))  # type: ignore[no-untyped-call]
    q, k, v = (_four(t, batch) if t.ndim > 4 else t[(None,) * (4 - t.ndim)] for t in (query, key, value))
    if len(batch) == 1:
        q, k, v = (t.expand(batch[0], -1, -1, -1) for t in (q, k, v))
    rows, keys = q.shape[2], k.shape[2]
    window = [-1, -1]
    if is_causal and rows < keys:  # nobody sees the others
        k, v = k[:, :, :rows], v[:, :, :rows]
    elif is_causal:
        window = [-1, rows - keys]
    bias, mask = None, None
    if attn_mask is not None:
        four = _mask(attn_mask, batch)
        bias, mask = (None, four) if attn_mask.dtype == torch.bool else (four, None)
    y = _attention(q, k, v, bias, mask, causal=is_causal and rows < keys, window=window, scale=scale)[0]
    dims = max(query.ndim, key.ndim, value.ndim)
    return y.reshape(*batch, *y.shape[1:]) if dims > 3 else y[(0,) * (4 - dims)]


scaled_dot_product_attention.__module__ = "tenon.torch"
