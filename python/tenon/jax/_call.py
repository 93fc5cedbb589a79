"""Calls: what JAX traces and compiles of an operator, with its gradient.

A form (_form.py) has one function of arrays, which JAX compiles once for each set of shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero

from tenon import _rules
from tenon.contract import Argument, Operator
from tenon.jax import _mesh
from tenon.jax._form import Arrays, Form, make_form, row_of
from tenon.jax._primitive import run as run_form
from tenon.jax._types import DTYPES

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
    outputs, updates = whole.arranged(called(whole, arrays))
    values = {p.name: value for p, value in zip(op.inputs, form.grouped(arrays), strict=True)}
    made = {o.name: value for o, value in zip(op.outputs, outputs, strict=True)}
    made |= {n: jax.lax.stop_gradient(value) for n, value in made.items() if _rules.is_accounted_for(op, n)}
    saved = {n: values[n] for n in _rules.used(op, "input")}, {n: made[n] for n in _rules.used(op, "output")}
    known = _Known(_frozen(form.operands(arrays)))
    return (*(outputs[i] for i in form.wanted()), *updates), (*saved, known, wanted)


def _present(cotangent: Any) -> Any:
    return None if isinstance(cotangent, SymbolicZero) or cotangent.dtype == jax.dtypes.float0 else cotangent


def _run_for_rule(fast: bool) -> Callable[[Operator, Mapping[str, Any]], Sequence[Any]]:
    def run(op: Operator, given: Mapping[str, Any]) -> Sequence[Any]:
        form, arrays = make_form(row_of(op, fast), given)
        return form.arranged(called(form, arrays))[0]

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
        return run_form(form, arrays)

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


def called(form: Form, arrays: Arrays) -> tuple[Any, ...]:
    """What the function of a form makes of arrays. JAX's own message of forward mode names neither the operator nor
    what works instead. (Inside of jax.jit it stays JAX's: it comes when the whole program is lowered.)"""
    try:
        return function(form)(*arrays)
    except TypeError as error:
        if "custom_vjp" not in str(error):
            raise
        raise TypeError(_rules.no_forward_mode(form.row.op)) from error
