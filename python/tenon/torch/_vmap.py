"""torch.vmap: an operator runs for one element of the batch after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor


def _element(value: Any, dim: Any, index: int) -> Any:
    """An argument for one element of the batch; `dim` has the batch dimension of each tensor in it, or None."""
    if isinstance(value, list | tuple):
        return [_element(v, d, index) for v, d in zip(value, dim, strict=True)]
    if dim is None:
        return value
    if value.shape[dim] == 0:  # there is none: zeros in its place, for the types and shapes of the results
        return value.new_zeros([size for i, size in enumerate(value.shape) if i != dim % value.ndim])
    return value.select(dim, index)


def _batch(parts: Sequence[Tensor], size: int) -> Tensor:
    stacked = torch.stack(list(parts))
    return stacked if size > 0 else stacked[:0]


def _is_shared(dim: Any) -> bool:
    return any(map(_is_shared, dim)) if isinstance(dim, list | tuple) else dim is None


def _refuse_shared(overload: Any, args: Sequence[Any], dims: Sequence[Any]) -> None:
    for argument, value, dim in zip(overload._schema.arguments, args, dims, strict=False):
        if argument.alias_info is not None and argument.alias_info.is_write and value is not None and _is_shared(dim):
            name = str(overload._schema.name).partition("::")[2]
            message = "is updated in place, so under vmap it needs an element for each of the batch"
            raise RuntimeError(f"{name}: {argument.name} {message}")


def batched(overload: Any) -> Callable[..., Any]:
    """The rule that torch.library.register_vmap takes."""

    def rule(info: Any, dims: Sequence[Any], *args: Any, **named: Any) -> Any:
        _refuse_shared(overload, args, dims)
        made = [overload(*_element(args, dims, k), **named) for k in range(max(info.batch_size, 1))]
        if made[0] is None:
            return None, None
        if isinstance(made[0], Tensor):
            return _batch(made, info.batch_size), 0
        outputs = [None if parts[0] is None else _batch(parts, info.batch_size) for parts in zip(*made, strict=True)]
        places = [None if output is None else 0 for output in outputs]
        return (outputs, places) if isinstance(made[0], list) else (tuple(outputs), tuple(places))

    return rule
