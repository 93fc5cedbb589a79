"""jax.vmap: where the contract has leading dimensions of any number, the batch becomes one of them; else an operator
runs for one element of the batch after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp

from tenon import _lib
from tenon.contract import Attr, Input, Json, Operator, attribute_text
from tenon.infer import Binding
from tenon.jax._types import is_wide

if TYPE_CHECKING:
    from tenon.jax._form import Form


def one_by_one(run: Callable[..., Any], is_batched: Sequence[bool], arrays: Sequence[Any]) -> Any:
    """A loop over the batch."""
    shared = [None if b else a for a, b in zip(arrays, is_batched, strict=True)]

    def element(parts: tuple[Any, ...]) -> Any:
        rest = iter(parts)
        return run(*(next(rest) if s is None else s for s in shared))

    return jax.lax.map(element, tuple(a for a, b in zip(arrays, is_batched, strict=True) if b))


# ---- as a leading dimension ------------------------------------------------------------------------------------------


def _pack(shape: Json) -> str | None:
    """The pack that a shape begins with, if it is the only one and its axes count from behind."""
    if isinstance(shape, dict) or not shape or any("expr" not in item for item in shape[1:]):
        return None
    item = shape[0]
    of = item["of"][0] if _is_by_position(shape) else item["a"] if item.get("fn") in ("reduce", "resize") else item
    pack: str | None = of.get("pack")
    return pack


def _is_by_position(shape: Json) -> bool:
    """Whether it is what several inputs broadcast to, so that their dimensions count from behind."""
    if not isinstance(shape, list) or len(shape) != 1 or shape[0].get("fn") not in ("broadcast", "rows"):
        return False
    return not any(of.get("rows") for of in shape[0]["of"])  # these go by whether an input has dimensions at all


def _mentions(shape: Json) -> bool:
    """Whether a shape has dimensions of any number at all."""
    return isinstance(shape, dict) or any("expr" not in item for item in shape)


def _is_by_rows(form: Form, arrays: Sequence[Any]) -> bool:
    """Whether what is computed of one row does not depend on the others."""
    op = form.row.op
    if op.formula is None:  # docs/contract.md says so
        along_axes = any(a.kind in ("axis", "axes") for a in op.attrs)
        return along_axes or any(len(p.shape) > 1 for p in op.inputs if _mentions(p.shape))
    operands: list[Any] = form.operands(arrays)
    types = [None if o is None else o[0] for o in operands]
    ranks = [0 if o is None else len(o[1]) for o in operands]
    kinds = {a.name: a.kind for a in op.attrs}
    text = " ".join(f"{name}={attribute_text(kinds[name], value)}" for name, value in form.attrs)
    graph = _lib.fuse_graph(op.address, types, ranks, text)
    if graph is None:
        return False
    over = [node["over"] for node in graph["nodes"] if "over" in node]
    axes = [axis for axis in over if isinstance(axis, list)]
    if any(not some or min(some) < _leading(op, ranks) for some in axes):  # it goes over the pack that the batch joins
        return False
    return "all" not in over and ("row" not in over or max(ranks) > 0)


def _leading(op: Operator, ranks: Sequence[int]) -> int:
    """How many dimensions the packs have that shapes begin with."""
    named = [rank - len(p.shape) + 1 for p, rank in zip(op.inputs, ranks, strict=True) if _mentions(p.shape)]
    return max(named, default=0)


def _counted_from_behind(attr: Attr, value: Any, rank: int) -> Any:
    if attr.kind == "axis":
        return value if value < 0 else value - rank
    return tuple(a if a < 0 else a - rank for a in value) or tuple(range(-rank, 0))


def _with_batch(param: Input, value: Any, batched: bool, size: Any, rank: int, by_position: bool) -> Any:
    """An input with the batch in front of its pack, which has `rank` dimensions in this call."""
    loose = by_position or bool(param.shape[0].get("broadcast"))
    if not batched:
        return value if loose else jnp.broadcast_to(value, (size, *value.shape))
    missing = rank + len(param.shape) - value.ndim if loose else 0
    return value.reshape((value.shape[0],) + (1,) * missing + value.shape[1:])


class Merged(NamedTuple):
    """A call that does a whole batch."""

    form: Form
    arrays: list[Any]
    shapes: list[tuple[Any, ...]]  # of the results; it may make them with more dimensions, of size 1


def merge(form: Form, size: Any, is_batched: Sequence[bool], arrays: Sequence[Any]) -> Merged | None:
    """The call that does the whole batch; None where there is none."""
    op = form.row.op
    outputs = [op.outputs[i] for i in form.wanted()]
    # With a seed, numbers depend on an element's place; each of the batch begins at 0.
    if op.mutates or any(p.list or is_wide(p) for p in op.inputs) or any(_pack(o.shape) is None for o in outputs):
        return None
    present = [p for p, count in zip(op.inputs, form.counts, strict=True) if count]
    for param, batched in zip(present, is_batched, strict=True):
        if _pack(param.shape) is None and (batched or _mentions(param.shape)):
            return None
    shapes = [a.shape[1:] if b else a.shape for a, b in zip(arrays, is_batched, strict=True)]
    one = [jax.ShapeDtypeStruct(shape, a.dtype) for shape, a in zip(shapes, arrays, strict=True)]
    binding = Binding(op, form.operands(one), dict(form.attrs))
    packs = {_pack(p.shape) for p in present} | {_pack(o.shape) for o in outputs}
    ranks = {len(binding.scope.packs[p]) for p in packs if p is not None}
    moved = {_pack(p.shape) for p, b in zip(present, is_batched, strict=True) if b}
    # Where each output is what inputs broadcast to, and one of the batch among them, their ranks may differ.
    by_position = all(_is_by_position(o.shape) and moved & {s.get("pack") for s in o.shape[0]["of"]} for o in outputs)
    if (len(ranks) != 1 and not by_position) or not ranks or not _is_by_rows(form, one):
        return None
    rank = max(ranks)
    made = [
        a if _pack(p.shape) is None else _with_batch(p, a, b, size, rank, by_position)
        for p, a, b in zip(present, arrays, is_batched, strict=True)
    ]
    attrs = dict(form.attrs)
    for attr in op.attrs:
        if attr.kind in ("axis", "axes"):
            of = binding.rank_of(attr)
            if of == 0:  # no axes would be all of them, the batch too
                return None
            attrs[attr.name] = _counted_from_behind(attr, attrs.get(attr.name, attr.default), of)
    merged = form._replace(attrs=tuple(sorted(attrs.items())))
    try:
        op.infer(merged.operands(made), attrs)
    except ValueError:  # a condition on the rank
        return None
    elements = op.infer(form.operands(one), dict(form.attrs))
    return Merged(merged, made, [(size, *element[1]) for element in elements if element is not None])
