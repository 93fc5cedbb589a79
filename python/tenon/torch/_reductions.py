"""What reduces along dimensions, and softmax: they take the arguments of torch's functions of the same name, in their
order, and give their results. axis and keepdims are NumPy's names of dim and keepdim, which torch takes too."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import has_torch_function_unary

from tenon.torch._functional import check_tensors, finish, fused, one_spelling, overridden
from tenon.torch._public import functions

__all__ = [
    "all",
    "any",
    "argmax",
    "argmin",
    "log_softmax",
    "logsumexp",
    "max",
    "mean",
    "min",
    "norm",
    "prod",
    "softmax",
    "std",
    "sum",
    "var",
]

Dims = int | Sequence[int] | None

_rows: dict[str, Callable[..., Tensor]] = functions


def _given(name: str, dim: Dims, keepdim: bool, axis: Dims, keepdims: bool | None) -> tuple[Dims, bool]:
    """dim and keepdim, by either name."""
    dim = one_spelling(name, "dim", dim, None, "axis", axis)
    return dim, one_spelling(name, "keepdim", keepdim, False, "keepdims", keepdims)


def _axes(name: str, input: Tensor, dim: Dims) -> Dims:
    """The axes of the operator: none are all of them."""
    check_tensors(name, input=input)
    if input.ndim == 0 and dim in (0, -1, (0,), (-1,), [0], [-1]):  # as torch: as if there were one
        return ()
    return () if dim is None else dim


# ---- softmax ---------------------------------------------------------------------------------------------------------

_softmax = _rows["softmax"]


def softmax(
    input: Tensor,
    dim: int = -1,
    *,
    dtype: torch.dtype | None = None,
    mask: Tensor | None = None,
    scale: float = 1.0,
    causal: bool = False,
    axis: int | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """exp(scale * input), normalised along a dimension, which is the last where it is not given.

    Where mask is False, an element is taken out; a row without any is 0. causal takes out what lies after the
    diagonal: query i of q sees the keys up to i + (k - q) of k, so that the last query sees all keys, and with more
    queries than keys the first q - k rows are 0. axis is NumPy's name of dim.
    """
    if axis is not None:
        dim = one_spelling("softmax", "dim", dim, -1, "axis", axis)
    if dtype is not None:
        input = input.to(dtype)
    if input.__class__ is Tensor and input.ndim == 0:  # as torch: as if there were one dimension
        return _softmax(input[None], mask, dim, scale, causal, out=None if out is None else out[None])[0]
    return _softmax(input, mask, dim, scale, causal, out=out)


_log_softmax = _rows["log_softmax"]


def log_softmax(
    input: Tensor,
    dim: int = -1,
    *,
    dtype: torch.dtype | None = None,
    axis: int | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """The logarithm of softmax along a dimension, which is the last where it is not given. axis is NumPy's name of
    dim."""
    dim = one_spelling("log_softmax", "dim", dim, -1, "axis", axis)
    if dtype is not None:
        input = input.to(dtype)
    if input.__class__ is Tensor and input.ndim == 0:  # as torch: as if there were one dimension
        return _log_softmax(input[None], dim, out=None if out is None else out[None])[0]
    return _log_softmax(input, dim, out=out)


_logsumexp = _rows["logsumexp"]


def logsumexp(
    input: Tensor,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    axis: Dims = None,
    keepdims: bool | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """log(sum(exp(input))) over some dimensions; without dim, over all."""
    dim, keepdim = _given("logsumexp", dim, keepdim, axis, keepdims)
    if has_torch_function_unary(input):
        return overridden(logsumexp, (input,), input, dim, keepdim, out=out)
    return _logsumexp(input, _axes("logsumexp", input, dim), keepdim, out=out)


# ---- sums ------------------------------------------------------------------------------------------------------------

_sum = _rows["sum"]


def sum(
    input: Tensor,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
    axis: Dims = None,
    keepdims: bool | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """The sum over some dimensions; without dim, over all."""
    dim, keepdim = _given("sum", dim, keepdim, axis, keepdims)
    if has_torch_function_unary(input):
        return overridden(sum, (input,), input, dim, keepdim, dtype=dtype, out=out)
    axes = _axes("sum", input, dim)
    return _sum(input if dtype is None else input.to(dtype), axes, keepdim, out=out)


_mean = _rows["mean"]


def mean(
    input: Tensor,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
    axis: Dims = None,
    keepdims: bool | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """The mean over some dimensions; without dim, over all."""
    dim, keepdim = _given("mean", dim, keepdim, axis, keepdims)
    if has_torch_function_unary(input):
        return overridden(mean, (input,), input, dim, keepdim, dtype=dtype, out=out)
    axes = _axes("mean", input, dim)
    return _mean(input if dtype is None else input.to(dtype), axes, keepdim, out=out)


_prod = _rows["prod"]


def prod(
    input: Tensor,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
    axis: Dims = None,
    keepdims: bool | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """The product over some dimensions; without dim, over all."""
    dim, keepdim = _given("prod", dim, keepdim, axis, keepdims)
    if has_torch_function_unary(input):
        return overridden(prod, (input,), input, dim, keepdim, dtype=dtype, out=out)
    axes = _axes("prod", input, dim)
    return _prod(input if dtype is None else input.to(dtype), axes, keepdim, out=out)


# ---- deviations ------------------------------------------------------------------------------------------------------


def _deviation(name: str, dim: Any, correction: float | None, unbiased: bool | None) -> tuple[Dims, float]:
    """dim, and what is taken off the count. torch.var(x, False) is an old form of torch.var(x, correction=0)."""
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    if unbiased is None:
        return dim, 1 if correction is None else correction
    if correction is not None:
        raise TypeError(f"{name}: unbiased and correction say the same, only one can be given")
    return dim, int(unbiased)


_var = _rows["var"]


def var(
    input: Tensor,
    dim: Dims = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
    unbiased: bool | None = None,
    axis: Dims = None,
    keepdims: bool | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """The variance over some dimensions; without dim, over all. It divides by the count minus the correction.
    unbiased=False is an older way to write correction=0."""
    dim, keepdim = _given("var", dim, keepdim, axis, keepdims)
    dim, less = _deviation("var", dim, correction, unbiased)
    if has_torch_function_unary(input):
        return overridden(var, (input,), input, dim, correction=less, keepdim=keepdim, out=out)
    return _var(input, _axes("var", input, dim), keepdim, less, out=out)


_std = _rows["std"]


def std(
    input: Tensor,
    dim: Dims = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
    unbiased: bool | None = None,
    axis: Dims = None,
    keepdims: bool | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """The root of tn.var: the standard deviation over some dimensions; without dim, over all.
    unbiased=False is an older way to write correction=0."""
    dim, keepdim = _given("std", dim, keepdim, axis, keepdims)
    dim, less = _deviation("std", dim, correction, unbiased)
    if has_torch_function_unary(input):
        return overridden(std, (input,), input, dim, correction=less, keepdim=keepdim, out=out)
    return _std(input, _axes("std", input, dim), keepdim, less, out=out)


_norm = _rows["norm"]


def norm(
    input: Tensor,
    p: float | str | None = "fro",
    dim: Dims = None,
    keepdim: bool = False,
    out: Tensor | None = None,
    dtype: torch.dtype | None = None,
    *,
    axis: Dims = None,
    keepdims: bool | None = None,
) -> Tensor:
    """sum(abs(input) ** p) ** (1 / p) over some dimensions; without dim, over all. p is 2 where it is 'fro'."""
    dim, keepdim = _given("norm", dim, keepdim, axis, keepdims)
    if has_torch_function_unary(input):
        return overridden(norm, (input,), input, p, dim, keepdim, out, dtype)
    if p == "nuc":
        raise NotImplementedError("norm: there is no 'nuc', the sum of singular values; torch.linalg.norm has it")
    power = 2.0 if p is None or p == "fro" else math.inf if p == "inf" else p
    if isinstance(power, str):
        raise ValueError(f"norm: p is {p!r}, must be a number or 'fro'")
    axes = _axes("norm", input, dim)
    return _norm(input if dtype is None else input.to(dtype), axes, keepdim, power, out=out)


# ---- extremes --------------------------------------------------------------------------------------------------------

_max, _min, _top_k = _rows["max"], _rows["min"], functions["top_k"]
_larger, _smaller = (
    fused(f"{name}_of_two(x: T[~*s], y: T[~*s]) -> z: T[*s] : {name}imum(x, y)", name) for name in ("max", "min")
)


def _with_index(input: Tensor, dim: int, keepdim: bool, largest: bool) -> tuple[Tensor, Tensor]:
    """The largest or smallest elements along a dimension and where they are. NaN counts as either, so what is smallest
    is the largest of the negatives."""
    x = input[None] if input.ndim == 0 else input
    turned = not largest and x.is_floating_point()
    values, index = _top_k((-x if turned else x).movedim(dim, -1), 1, largest or turned)
    values, index = (t.movedim(-1, dim) if keepdim and input.ndim else t.squeeze(-1) for t in (values, index))
    return (-values if turned else values), index


def max(
    input: Tensor,
    dim: Any = None,
    keepdim: bool = False,
    *,
    other: Tensor | None = None,
    axis: int | None = None,
    keepdims: bool | None = None,
    out: Tensor | None = None,
) -> Any:
    """The largest element; with dim, an int, the largest ones along it and where they are, as a pair; with another
    tensor, the larger of each two elements. torch.ops.tenon.max goes along several dimensions, as torch.amax does."""
    if dim is not None and other is not None:
        raise TypeError("max: dim and other are both given, and only one of them can be")
    other = dim if isinstance(dim, Tensor) else other
    if other is not None:
        return _larger(input, other, out=out)
    dim, keepdim = _given("max", dim, keepdim, axis, keepdims)
    if has_torch_function_unary(input):
        return overridden(max, (input,), input, dim, keepdim, out=out)
    check_tensors("max", input=input)
    if dim is None:
        return _max(input, (), keepdim, out=out)
    if out is not None or not isinstance(dim, int):
        raise TypeError("max: dim must be an int, and there is no out= for the two results")
    return torch.return_types.max(_with_index(input, dim, keepdim, largest=True))


def min(
    input: Tensor,
    dim: Any = None,
    keepdim: bool = False,
    *,
    other: Tensor | None = None,
    axis: int | None = None,
    keepdims: bool | None = None,
    out: Tensor | None = None,
) -> Any:
    """The smallest element; with dim, an int, the smallest ones along it and where they are, as a pair; with another
    tensor, the smaller of each two elements. torch.ops.tenon.min goes along several dimensions, as torch.amin does."""
    if dim is not None and other is not None:
        raise TypeError("min: dim and other are both given, and only one of them can be")
    other = dim if isinstance(dim, Tensor) else other
    if other is not None:
        return _smaller(input, other, out=out)
    dim, keepdim = _given("min", dim, keepdim, axis, keepdims)
    if has_torch_function_unary(input):
        return overridden(min, (input,), input, dim, keepdim, out=out)
    check_tensors("min", input=input)
    if dim is None:
        return _min(input, (), keepdim, out=out)
    if out is not None or not isinstance(dim, int):
        raise TypeError("min: dim must be an int, and there is no out= for the two results")
    return torch.return_types.min(_with_index(input, dim, keepdim, largest=False))


_argmax, _argmin = _rows["argmax"], _rows["argmin"]


def argmax(
    input: Tensor,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    axis: Dims = None,
    keepdims: bool | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Where the largest element is along a dimension; without dim, in the flattened tensor. Of several that are equal,
    the first. Several dimensions are counted as if they were one."""
    dim, keepdim = _given("argmax", dim, keepdim, axis, keepdims)
    if has_torch_function_unary(input):
        return overridden(argmax, (input,), input, dim, keepdim, out=out)
    return _argmax(input, _axes("argmax", input, dim), keepdim, out=out)


def argmin(
    input: Tensor,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    axis: Dims = None,
    keepdims: bool | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Where the smallest element is along a dimension; without dim, in the flattened tensor. Of several that are equal,
    the first. Several dimensions are counted as if they were one."""
    dim, keepdim = _given("argmin", dim, keepdim, axis, keepdims)
    if has_torch_function_unary(input):
        return overridden(argmin, (input,), input, dim, keepdim, out=out)
    return _argmin(input, _axes("argmin", input, dim), keepdim, out=out)


# ---- truth -----------------------------------------------------------------------------------------------------------

_any, _all = _rows["any"], _rows["all"]


def _truth(function: Callable[..., Tensor], input: Tensor, axes: Dims, keepdim: bool, out: Tensor | None) -> Tensor:
    """torch has a byte for the truth of bytes."""
    if input.dtype != torch.uint8 or out is not None:
        return function(input, axes, keepdim, out=out)
    return function(input, axes, keepdim).to(torch.uint8)


def any(
    input: Tensor,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    axis: Dims = None,
    keepdims: bool | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Whether any element is true, or not 0, over some dimensions; without dim, over all."""
    dim, keepdim = _given("any", dim, keepdim, axis, keepdims)
    if has_torch_function_unary(input):
        return overridden(any, (input,), input, dim, keepdim, out=out)
    return _truth(_any, input, _axes("any", input, dim), keepdim, out)


def all(
    input: Tensor,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    axis: Dims = None,
    keepdims: bool | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Whether every element is true, or not 0, over some dimensions; without dim, over all."""
    dim, keepdim = _given("all", dim, keepdim, axis, keepdims)
    if has_torch_function_unary(input):
        return overridden(all, (input,), input, dim, keepdim, out=out)
    return _truth(_all, input, _axes("all", input, dim), keepdim, out)


for _name in __all__:
    finish(globals()[_name])
