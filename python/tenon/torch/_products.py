"""Products of matrices: torch's functions of these names, with their arguments in their order and their results."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor
from torch.overrides import has_torch_function_variadic

from tenon.torch._functional import check_tensors, finish, overridden
from tenon.torch._public import functions

__all__ = ["linear", "matmul"]

_linear: Callable[..., Tensor] = functions["linear"]
_matmul: Callable[..., Tensor] = functions["matmul"]


def linear(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    residual: Tensor | None = None,
    act: str = "none",
    out: Tensor | None = None,
) -> Tensor:
    """input times the transposed weight, plus bias, plus residual, through an activation: all of it where the product
    is written. A weight of one dimension is one row, and the result lacks that dimension, as in torch."""
    given = [t for t in (input, weight, bias, residual) if t is not None]
    if has_torch_function_variadic(*given):
        return overridden(linear, given, input, weight, bias, residual=residual, act=act, out=out)
    check_tensors("linear", input=input, weight=weight)
    if weight.ndim != 1:
        return _linear(input, weight, bias, residual, act, out=out)
    bias, residual = bias if bias is None else bias.reshape(1), residual if residual is None else residual[..., None]
    y = _linear(input, weight[None], bias, residual, act, out=None if out is None else out[..., None])
    return y[..., 0] if out is None else out


finish(linear)


def _as_matrix(y: Tensor, row: bool, column: bool) -> Tensor:
    """A result that lacks dimensions, as the matrix that it stands for."""
    y = y.unsqueeze(-1) if column else y
    return y.unsqueeze(-2) if row else y


def matmul(input: Tensor, other: Tensor, *, alpha: float = 1.0, out: Tensor | None = None) -> Tensor:
    """alpha times the product of matrices; the dimensions before the last two broadcast. A vector is a row where it
    stands first and a column where it stands second, and the result lacks that dimension, as in torch."""
    if has_torch_function_variadic(input, other):
        return overridden(matmul, (input, other), input, other, alpha=alpha, out=out)
    check_tensors("matmul", input=input, other=other)
    row, column = input.ndim == 1, other.ndim == 1
    if not row and not column:
        return _matmul(input, other, alpha=alpha, out=out)
    into = None if out is None else _as_matrix(out, row, column)
    y = _matmul(input[None] if row else input, other[:, None] if column else other, alpha=alpha, out=into)
    y = y.squeeze(-1) if column else y
    return out if out is not None else y.squeeze(-1 if column else -2) if row else y


finish(matmul)
