"""Calls: what JAX traces and compiles of an operator, with its gradient and its batching.

XLA has one custom call for all operators (adapters/jax/jax.c). A `Form` is everything of a call but the arrays; each
has one function of arrays, which JAX compiles once for each set of shapes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap
from jax.custom_derivatives import SymbolicZero

from tenon import _rules
from tenon._frame import Calls
from tenon._lib import lib
from tenon.contract import Argument, Attr, Operand, Operator, table
from tenon.jax import _mesh, _vmap
from tenon.jax._types import DTYPES, X64, operand

TARGET = "tenon"  # the custom call's name

Arrays = Sequence[Any]


def register() -> None:
    """Tells XLA what runs the custom call."""
    for platform, function in (("cpu", lib.tn_jax_cpu), ("CUDA", lib.tn_jax_cuda)):
        jax.ffi.register_ffi_target(TARGET, jax.ffi.pycapsule(function), platform=platform)


class Row:
    """An operator as JAX has it. There is one for each, so that it can be a key."""

    def __init__(self, op: Operator, fast: bool = False) -> None:
        self.op = op
        self.fast = fast
        in_table = table().get(op.name) is op
        self.named: dict[str, Any] = {"_op": op.name} if in_table else {"_formula": op.formula, "_fast": fast}

    @cached_property
    def calls(self) -> Calls:
        return Calls(self.op, lambda name: name)

    def infer(self, arguments: Sequence[Argument], attrs: Mapping[str, Any]) -> Sequence[Operand | None]:
        """Types and shapes of the outputs; None: it was not asked for. The C library says it, or what is wrong, unless
        sizes are symbolic."""
        named = zip(self.op.inputs, arguments, strict=True)
        lists: list[Any] = [a if isinstance(a, list) else [] if p.list and a is None else [a] for p, a in named]
        sizes = [n for part in lists for one in part if one is not None for n in one[1]]
        sizes += [n for value in attrs.values() for n in (value if isinstance(value, tuple) else (value,))]
        if any(map(jax.export.is_symbolic_dim, sizes)):
            return self.op.infer(arguments, attrs)
        return self.calls.infer(lists, [attrs.get(a.name, a.default) for a in self.op.attrs])


_rows: dict[tuple[int, bool], Row] = {}  # by the operator's address in the C library


def row_of(op: Operator, fast: bool = False) -> Row:
    """The operator's row."""
    found = _rows.get((op.address, fast))
    if found is None:
        found = _rows.setdefault((op.address, fast), Row(op, fast))
    return found


class _MinusZero(float):
    """-0.0 as a key, which is not 0.0."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _MinusZero)

    def __hash__(self) -> int:
        return hash(_MinusZero)


def constant(attr: Attr, value: Any) -> Any:
    """The value of an attribute in the one form that is a part of keys."""
    if value is None:
        return None
    if attr.kind == "float":
        return _MinusZero(value) if value == 0 and math.copysign(1, value) < 0 else float(value)
    return tuple(value) if attr.kind in ("axes", "ints") else bool(value) if attr.kind == "bool" else value


class Form(NamedTuple):
    """Everything of a call but its arrays."""

    row: Row
    counts: tuple[int, ...]  # arrays that each input has; 0: it is absent
    attrs: tuple[tuple[str, Any], ...]  # those that are not at their defaults

    def grouped(self, arrays: Arrays) -> list[Any]:
        """The arrays by input: one, a list, or None."""
        made: list[Any] = []
        at = 0
        for param, count in zip(self.row.op.inputs, self.counts, strict=True):
            part = list(arrays[at : at + count])
            made.append(part if param.list and part else part[0] if part else None)
            at += count
        return made

    def operands(self, arrays: Arrays) -> list[Argument]:
        """Types and shapes of the inputs."""
        made: list[Argument] = []
        for param, value in zip(self.row.op.inputs, self.grouped(arrays), strict=True):
            try:
                made.append([operand(param, v) for v in value] if param.list and value else _maybe(param, value))
            except TypeError as error:
                raise TypeError(f"{self.row.op.name}: {error}") from None
        return made

    def updated(self) -> list[int]:
        """Which of the arrays are updated in place."""
        owners = [p for p, count in zip(self.row.op.inputs, self.counts, strict=True) for _ in range(count)]
        return [i for i, param in enumerate(owners) if param.inplace]

    def wanted(self) -> list[int]:
        """Which outputs a call makes."""
        asked = {name for name, value in self.attrs if value is True}
        outputs = enumerate(self.row.op.outputs)
        return [i for i, o in outputs if o.want_attr is None or o.want_attr in asked]

    def arranged(self, results: Arrays) -> tuple[list[Any], list[Any]]:
        """All outputs, None where one was not asked for; and the updated arrays."""
        outputs: list[Any] = [None] * len(self.row.op.outputs)
        wanted = self.wanted()
        for i, value in zip(wanted, results, strict=False):
            outputs[i] = value
        return outputs, list(results[len(wanted) :])


def _maybe(param: Any, value: Any) -> Operand | None:
    return None if value is None else operand(param, value)


# ---- the custom call -------------------------------------------------------------------------------------------------


def _ffi_value(op: Operator, attr: Attr, value: Any) -> Any:
    """An attribute as XLA takes it."""
    sizes = value if attr.kind in ("axes", "ints") else (value,)
    if any(jax.export.is_symbolic_dim(n) for n in sizes):
        message = "a constant of the compiled program, would be a symbolic size; export with that size fixed"
        raise NotImplementedError(f"{op.name}: {attr.name}, {message}")
    if attr.kind in ("axes", "ints"):
        return np.array(value, np.int64)
    return float(value) if attr.kind == "float" else value


def _results(form: Form, arrays: Arrays) -> list[jax.ShapeDtypeStruct]:
    op = form.row.op
    varying = _mesh.like(arrays[0])
    made = []
    for output, spec in zip(op.outputs, form.row.infer(form.operands(arrays), dict(form.attrs)), strict=True):
        if spec is None:
            continue
        dtype = np.dtype(DTYPES[spec[0]])
        if jax.dtypes.canonicalize_dtype(dtype) != dtype:
            raise TypeError(f"{op.name}: {output.name} has type {spec[0]}; {X64.format(dtype)}")
        made.append(jax.ShapeDtypeStruct(spec[1], dtype, **varying))
    return made + [jax.ShapeDtypeStruct(arrays[i].shape, arrays[i].dtype, **varying) for i in form.updated()]


def _run(form: Form, *arrays: Any) -> tuple[Any, ...]:
    """Outputs that were asked for, then updated arrays."""
    op = form.row.op
    results, updated = _results(form, arrays), form.updated()
    aliases = {i: len(results) - len(updated) + k for k, i in enumerate(updated)}
    attrs = {a.name: a for a in op.attrs}
    given = {name: _ffi_value(op, attrs[name], value) for name, value in form.attrs}
    call = jax.ffi.ffi_call(TARGET, results, input_output_aliases=aliases)
    made = call(*arrays, **form.row.named, **given, _counts=np.array(form.counts, np.int64))
    return tuple(made)


@lru_cache(maxsize=4096)
def runner(form: Form) -> Callable[..., tuple[Any, ...]]:
    """A call that can be batched."""

    def run(*arrays: Any) -> tuple[Any, ...]:
        return _run(form, *arrays)

    def batched(size: Any, is_batched: Sequence[bool], *given: Any) -> Any:
        arrays = [_mesh.gathered(a) for a in given]
        merged = _vmap.merge(form, size, is_batched, arrays)
        results = _vmap.one_by_one(made, is_batched, arrays) if merged is None else runner(merged[0])(*merged[1])
        return results, (True,) * len(results)

    made: Any = custom_vmap(run)
    made.def_vmap(batched)
    return made  # type: ignore[no-any-return]


# ---- gradients -------------------------------------------------------------------------------------------------------


@jax.tree_util.register_static
@dataclass(frozen=True)
class _Known:
    """What a backward pass knows without arrays."""

    operands: tuple[Any, ...]


def _flags(values: Sequence[bool]) -> Any:
    """An array without elements that says which inputs want a gradient, by its shape.

    The structure of what is saved must not say it: JAX remembers one for a function, whichever inputs its gradients
    were asked for.
    """
    return jnp.zeros((0, *map(int, values)), jnp.int8)


def _flagged(flags: Any) -> list[bool]:
    return [bool(n) for n in flags.shape[1:]]


def _frozen(arguments: Sequence[Argument]) -> tuple[Any, ...]:
    return tuple(tuple(a) if isinstance(a, list) else a for a in arguments)


def _forward(form: Form, *primals: Any) -> Any:
    """Runs the call with what its gradient needs; also says which inputs want one."""
    op = form.row.op
    arrays = [p.value for p in primals]
    perturbed = form.grouped([p.perturbed for p in primals])
    wanted = _flags([any(p) if isinstance(p, list) else bool(p) for p in perturbed])
    asked = dict(form.attrs) | dict.fromkeys(_rules.asked_for(op), True)
    whole = form._replace(attrs=tuple(sorted(asked.items())))
    outputs, updates = whole.arranged(function(whole)(*arrays))
    values = {p.name: value for p, value in zip(op.inputs, form.grouped(arrays), strict=True)}
    made = {o.name: value for o, value in zip(op.outputs, outputs, strict=True)}
    saved = {n: values[n] for n in _rules.used(op, "input")}, {n: made[n] for n in _rules.used(op, "output")}
    known = _Known(_frozen(form.operands(arrays)))
    return (*(outputs[i] for i in form.wanted()), *updates), (*saved, known, wanted)


def _present(cotangent: Any) -> Any:
    return None if isinstance(cotangent, SymbolicZero) or cotangent.dtype == jax.dtypes.float0 else cotangent


def _run_for_rule(fast: bool) -> Callable[[Operator, Mapping[str, Any]], Sequence[Any]]:
    def run(op: Operator, given: Mapping[str, Any]) -> Sequence[Any]:
        form, arrays = make_form(row_of(op, fast), given)
        return form.arranged(function(form)(*arrays))[0]

    return run


def _zeros(kind: str, shape: Sequence[Any]) -> Any:
    return jnp.zeros(shape, DTYPES[kind])


def _backward(form: Form, saved: Any, cotangents: Arrays) -> tuple[Any, ...]:
    inputs, outputs, known, flags = saved
    op = form.row.op
    wanted = [p.name for p, flag in zip(op.inputs, _flagged(flags), strict=True) if flag]
    grads, updates = form.arranged([_present(c) for c in cotangents])
    if any(d is not None for d in updates):
        if op.rule is None:
            raise _rules.no_rule(op)
        raise NotImplementedError(f"{op.name} has no gradient of the tensors that it updates")
    attrs = {a.name: a.default for a in op.attrs} | dict(form.attrs)
    call = _rules.Recorded(op, known.operands, attrs, inputs, outputs, form.row.fast)
    backend = _rules.Backend(_run_for_rule(form.row.fast), _zeros, jnp.shape)
    named = {o.name: d for o, d in zip(op.outputs, grads, strict=True)}
    made = _rules.differentiate(backend, call, wanted, named)
    owners = [p for p, count in zip(op.inputs, form.counts, strict=True) for _ in range(count)]
    return tuple(made.get(p.name) for p in owners)


@lru_cache(maxsize=4096)
def function(form: Form) -> Callable[..., tuple[Any, ...]]:
    """The function of arrays that a form is: outputs that were asked for, then updated arrays."""

    def call(*arrays: Any) -> tuple[Any, ...]:
        return runner(form)(*arrays)

    def forward(*primals: Any) -> Any:
        return _forward(form, *primals)

    def backward(saved: Any, cotangents: Arrays) -> tuple[Any, ...]:
        return _backward(form, saved, cotangents)

    call.__name__ = call.__qualname__ = f"tenon_{form.row.op.name}"
    made: Any = jax.custom_vjp(call)
    made.defvjp(forward, backward, symbolic_zeros=True)

    def spread(*arrays: Any) -> tuple[Any, ...]:
        return made(*_mesh.spread(arrays))  # type: ignore[no-any-return]

    spread.__name__ = spread.__qualname__ = call.__name__  # what jax_debug_nans says
    compiled: Callable[..., tuple[Any, ...]] = jax.jit(spread, inline=True)
    return compiled


def make_form(row: Row, given: Mapping[str, Any]) -> tuple[Form, list[Any]]:
    """A form and its arrays, from inputs and attributes by name; both as _public.py leaves them."""
    arrays: list[Any] = []
    counts = []
    for param in row.op.inputs:
        value = given.get(param.name)
        part = [] if value is None else list(value) if param.list else [value]
        arrays += part
        counts.append(len(part))
    attrs = [(a.name, constant(a, given.get(a.name))) for a in row.op.attrs]
    own = [(a.name, constant(a, a.default)) for a in row.op.attrs]
    changed = [one for one, default in zip(attrs, own, strict=True) if one != default and one[1] is not None]
    return Form(row, tuple(counts), tuple(sorted(changed))), arrays
