"""torch.vmap: an operator runs for one element of the batch after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten


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


class _Info(NamedTuple):
    """As torch.vmap has it."""

    batch_size: int


def _level(tensors: Sequence[Tensor]) -> int:
    """The innermost vmap of before torch.func that one of these is batched by. The thread knows how many there are
    around it, but for those that a GPU's backward passes run on."""
    nesting: Any = torch._C
    most: int = nesting._vmapmode_increment_nesting() - 1
    nesting._vmapmode_decrement_nesting()

    def has(tensor: Tensor, level: int) -> bool:
        """What is not batched by a level gets a dimension of any size instead."""
        return len({torch._remove_batch_dim(tensor, level, size, 0).shape[0] for size in (1, 2)}) == 1

    return next(level for level in range(most or 64, 0, -1) if any(has(tensor, level) for tensor in tensors))


def batched_before(overload: Any) -> Callable[..., Any]:
    """The kernel for the vmap of before torch.func, which is_grads_batched=True and vectorize=True still are. Without
    one, torch runs an operator for one element after the other too, but for lists of tensors and absent ones."""
    rule = batched(overload)

    def kernel(*args: Any) -> Any:
        # What is not batched comes with a dimension of 1 in front.
        flat, spec = tree_flatten(args)
        level = _level([v for v in flat if isinstance(v, Tensor)])
        flat = [torch._remove_batch_dim(v, level, 1, 0) if isinstance(v, Tensor) else v for v in flat]
        size = next((v.shape[0] for v in flat if isinstance(v, Tensor) and v.shape[0] != 1), 1)
        dims = [0 if isinstance(v, Tensor) and v.shape[0] == size else None for v in flat]
        flat = [v[0] if isinstance(v, Tensor) and dim is None else v for v, dim in zip(flat, dims, strict=True)]
        outputs, _ = rule(_Info(size), tree_unflatten(dims, spec), *tree_unflatten(flat, spec))
        return tree_map(lambda v: v if v is None else torch._add_batch_dim(v, 0, level), outputs)

    return kernel


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
