"""The functions that users call: `tn.softmax(x)`. Arguments become what contracts say, then a compiled call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from tenon._public import (
    REQUIRED,
    Returning,
    alike_inputs,
    attribute_value,
    check_number,
    compile_source,
    drop_absent,
    identifier,
    is_number,
    is_told,
    listed,
    listed_axes,
    number_type,
    shown_outputs,
)
from tenon.contract import FLOATS, Attr, Input, Operator
from tenon.jax._call import function
from tenon.jax._form import Row, make_form
from tenon.jax._types import DTYPES, NAMES, X64, is_wide, operand, wide_array, widened


class _Public(Returning):
    tensor = "Array"
    number = "Array | float"
    written = ": no array is written to"

    def default(self, param: Input | Attr) -> str:
        if isinstance(param, Attr) and param.kind == "dtype" and param.default:
            return f"jax.numpy.{np.dtype(DTYPES[param.default]).name}"
        return super().default(param)


def write_stub(op: Operator) -> str:
    """The public function of an operator as type checkers and editors read it."""
    return _Public(op, shown_outputs(op)).stub()


# ---- arguments -------------------------------------------------------------------------------------------------------


def _is_traced(value: Any) -> bool:
    return isinstance(value, jax.core.Tracer)


def _attribute(op: Operator, attr: Attr, value: Any) -> Any:
    """A constant of the program, in the form that contracts and forms have it in."""
    if _is_traced(value) or (isinstance(value, list | tuple) and any(map(_is_traced, value))):
        message = "is an attribute, a constant of the compiled program, and this value is traced"
        raise TypeError(f"{op.name}: {attr.name} {message}; jax.jit(..., static_argnames=...) leaves it as it is")
    made = attribute_value(op, attr, listed_axes(attr, value), _dtype_name)
    return tuple(made) if isinstance(made, list) else made


def _dtype_name(value: Any) -> str | None:
    return NAMES.get(np.dtype(value))


def _refuse_cut(op: Operator, param: Input, value: Any) -> None:
    """Raises where JAX would cut off integers in silence."""
    if jax.config.jax_enable_x64 or not isinstance(value, np.ndarray | np.generic) or value.dtype.kind not in "iu":
        return
    if value.dtype.itemsize == 8 and value.size and not -(1 << 31) <= value.min() <= value.max() < 1 << 31:
        kind = value.dtype.name
        raise ValueError(f"{op.name}: {param.name} has integers of more than 32 bits; {X64.format(kind)}")


def _array(op: Operator, param: Input, value: Any, name: str) -> Any:
    """What a user gives for an input, or for one place of a list; `name` is that of the place."""
    if not isinstance(value, Array | np.ndarray | np.generic) and not hasattr(value, "__jax_array__"):
        what = "None" if value is None else f"{type(value).__name__}; jnp.asarray(…) makes one"
        raise TypeError(f"{op.name}: {name} must be an array, not {what}")
    if is_wide(param) and param.inplace and not jax.config.jax_enable_x64:
        raise TypeError(f"{op.name}: {name} has type i64, and is updated; {X64.format('int64')}")
    if is_wide(param) and isinstance(value, np.ndarray) and value.dtype.itemsize == 8 and value.dtype.kind in "iu":
        return wide_array(value)
    _refuse_cut(op, param, value)
    try:
        made = value if isinstance(value, Array) else jnp.asarray(value)
    except TypeError as error:
        kind = getattr(value, "dtype", type(value).__name__)
        raise TypeError(f"{op.name}: {name} has type {kind}, which JAX does not have") from error
    except ValueError as error:  # a mask
        raise ValueError(f"{op.name}: {name}: {error}") from error
    return widened(param, made) if is_wide(param) else made


def _arrays(op: Operator, param: Input, values: Sequence[Any]) -> list[Any]:
    return [_array(op, param, value, f"{param.name}[{i}]") for i, value in enumerate(values)]


def _takes_number(op: Operator, param: Input, value: Any) -> bool:
    """Plain numbers, and arrays of one that have no type to insist on."""
    if not is_number(param) or value is None:
        return False
    if isinstance(value, bool | int | float | complex | np.generic):
        return True
    if isinstance(value, np.ndarray) and value.ndim == 0 and value.dtype.kind in "biuf" and is_told(op, param):
        return True
    is_array = isinstance(value, Array | np.ndarray) and value.ndim == 0
    return is_array and (getattr(value, "weak_type", False) or jnp.issubdtype(value.dtype, jnp.integer))


def _cast(value: Array, dtype: Any) -> Any:
    """An array of one number in a type that JAX computes with beside it; else as it is, and the call says which type it
    needs: 1.5 that jit has made an array of is no integer."""
    with jax.numpy_dtype_promotion("standard"):
        return value.astype(dtype) if jnp.result_type(value, dtype) == dtype else value


class Arguments:
    """What users give, as an operator's calls take it."""

    def __init__(self, op: Operator) -> None:
        self.op = op
        self.alike = [[op.params[i].name for i in places] for places in alike_inputs(op)]

    def __call__(self, given: Mapping[str, Any]) -> dict[str, Any]:
        op = self.op
        made = {a.name: _attribute(op, a, given[a.name]) for a in op.attrs if a.name in given}
        numbers = []
        for param in op.inputs:
            value = given[param.name]
            if _takes_number(op, param, value):
                numbers.append(param)
            elif param.list and value is not None:
                made[param.name] = _arrays(op, param, listed(op, param, value, "arrays"))
            elif value is not None or not param.optional:
                made[param.name] = _array(op, param, value, param.name)
        self._promote(made)
        for param in numbers:
            made[param.name] = self._number(param, given[param.name], made)
        return made

    def _promote(self, made: dict[str, Any]) -> None:
        """Inputs of one type by the contract in the type that JAX computes with, if that is a floating one."""
        for names in self.alike:
            arrays = [made[n] for n in names if n in made]
            if len({a.dtype for a in arrays}) > 1:
                try:
                    dtype = jnp.result_type(*arrays)
                except (TypeError, ValueError):  # jax_numpy_dtype_promotion="strict": the call says which one it needs
                    continue
                if NAMES.get(dtype) in FLOATS:
                    made.update({n: made[n].astype(dtype) for n in names if n in made})

    def _number(self, param: Input, value: Any, made: Mapping[str, Any]) -> Any:
        arrays = {p.name: made.get(p.name) for p in self.op.inputs}
        lists = [(p, [] if arrays[p.name] is None else arrays[p.name]) for p in self.op.inputs]
        operands = [(p, [operand(p, a) for a in (v if isinstance(v, list) else [v])]) for p, v in lists]
        kind = number_type(self.op, param, operands, made)
        if isinstance(value, Array):
            return widened(param, value) if is_wide(param) else _cast(value, np.dtype(DTYPES[kind]))
        check_number(self.op, param, value, kind)
        number = np.asarray(value, np.dtype(DTYPES[kind]))  # JAX would run a program to make one
        return wide_array(number) if is_wide(param) else number


# ---- functions -------------------------------------------------------------------------------------------------------


def _caller(row: Row, shown: Sequence[int]) -> Callable[[Mapping[str, Any]], Any]:
    op = row.op
    arguments = Arguments(op)
    updated = [i for i, p in enumerate(op.inputs) if p.inplace]
    has_rule = op.mutates and op.rule is not None

    def call(given: Mapping[str, Any]) -> Any:
        form, arrays = make_form(row, arguments(given))
        outputs, updates = form.arranged(function(form)(*arrays))
        results = [outputs[i] for i in shown]
        if updates:
            # Statistics that a call keeps beside its result are constants to gradients, as they are in PyTorch.
            fresh = iter(jax.lax.stop_gradient(updates) if has_rule else updates)
            for i in updated:
                part = [next(fresh) for _ in range(form.counts[i])]
                results.append(part if op.inputs[i].list and part else part[0] if part else None)
        return drop_absent(tuple(results))

    return call


def make_public(row: Row, shown: Sequence[int] | None = None) -> Callable[..., Any]:
    """The public function of an operator."""
    shown = shown_outputs(row.op) if shown is None else shown
    writer = _Public(row.op, shown)
    names = {
        "Array": Array,
        "Any": Any,
        "Sequence": Sequence,
        "dtype": np.dtype,
        "jax": jax,
        "_required": REQUIRED,
        "_call": _caller(row, shown),
    }
    made = compile_source(writer.source(), row.op.name, names)[identifier(row.op.name)]
    made.__doc__ = writer.doc()
    made.__module__ = "tenon.jax"
    return made  # type: ignore[no-any-return]
