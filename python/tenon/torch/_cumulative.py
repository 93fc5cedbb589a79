"""What goes along a dimension and keeps what it has so far: torch's functions of these names, with their arguments in
their order and their results. axis is NumPy's name of dim, which torch takes too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import has_torch_function_unary

from tenon.torch._functional import check_tensors, finish, one_spelling, overridden
from tenon.torch._public import functions

__all__ = ["cummax", "cummin", "cumprod", "cumsum"]


def _along(
    row: Callable[..., Tensor], input: Tensor, dtype: torch.dtype | None, out: Tensor | None, *how: Any
) -> Tensor:
    """Integers and truth values are added up and multiplied as int64, as in torch."""
    if dtype is None and not (input.is_floating_point() or input.is_complex()):
        dtype = torch.int64 if out is None else out.dtype
    input = input if dtype is None else input.to(dtype)
    if input.ndim == 0:  # as torch: as if there were one dimension
        return row(input[None], *how, out=None if out is None else out[None])[0]
    return row(input, *how, out=out)


_cumsum: Callable[..., Tensor] = functions["cumsum"]


def cumsum(
    input: Tensor,
    dim: int = -1,
    *,
    dtype: torch.dtype | None = None,
    exclusive: bool = False,
    reverse: bool = False,
    axis: int | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Each element added to those before it along a dimension, which is the last where it is not given; to those behind
    it with reverse, and without itself with exclusive. Integers become int64, unless dtype says otherwise. axis is
    NumPy's name of dim."""
    dim = one_spelling("cumsum", "dim", dim, -1, "axis", axis)
    if has_torch_function_unary(input):
        return overridden(cumsum, (input,), input, dim, dtype=dtype, exclusive=exclusive, reverse=reverse, out=out)
    check_tensors("cumsum", input=input)
    return _along(_cumsum, input, dtype, out, dim, exclusive, reverse)


_cumprod: Callable[..., Tensor] = functions["cumprod"]


def cumprod(
    input: Tensor,
    dim: int = -1,
    *,
    dtype: torch.dtype | None = None,
    exclusive: bool = False,
    reverse: bool = False,
    axis: int | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Each element multiplied by those before it along a dimension, which is the last where it is not given; by those
    behind it with reverse, and without itself with exclusive. Integers become int64, unless dtype says otherwise. axis
    is NumPy's name of dim."""
    dim = one_spelling("cumprod", "dim", dim, -1, "axis", axis)
    if has_torch_function_unary(input):
        return overridden(cumprod, (input,), input, dim, dtype=dtype, exclusive=exclusive, reverse=reverse, out=out)
    check_tensors("cumprod", input=input)
    return _along(_cumprod, input, dtype, out, dim, exclusive, reverse)


def _extremes(row: Callable[..., Any], input: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    if input.ndim == 0:  # as torch: as if there were one dimension
        values, index = row(input[None], dim)
        return values[0], index[0]
    values, index = row(input, dim)
    return values, index


_cummax: Callable[..., Any] = functions["cummax"]


def cummax(input: Tensor, dim: int = -1, *, axis: int | None = None) -> Any:
    """The largest element so far along a dimension, which is the last where it is not given, and where it is. Of equal
    ones that is the last; NaN is larger than every number. axis is NumPy's name of dim."""
    dim = one_spelling("cummax", "dim", dim, -1, "axis", axis)
    if has_torch_function_unary(input):
        return overridden(cummax, (input,), input, dim)
    check_tensors("cummax", input=input)
    return torch.return_types.cummax(_extremes(_cummax, input, dim))


_cummin: Callable[..., Any] = functions["cummin"]


def cummin(input: Tensor, dim: int = -1, *, axis: int | None = None) -> Any:
    """The smallest element so far along a dimension, which is the last where it is not given, and where it is. Of equal
    ones that is the last; NaN is smaller than every number. axis is NumPy's name of dim."""
    dim = one_spelling("cummin", "dim", dim, -1, "axis", axis)
    if has_torch_function_unary(input):
        return overridden(cummin, (input,), input, dim)
    check_tensors("cummin", input=input)
    return torch.return_types.cummin(_extremes(_cummin, input, dim))


for _name in __all__:
    finish(globals()[_name])
