"""The functions that users call: `tn.softmax(x)`. Arguments become what contracts say, then a compiled call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from tenon._arguments import alike_inputs, check_number
from tenon._by_name import Arguments
from tenon._frameworks import JaxFunction
from tenon._public import drop_absent, shown_outputs
from tenon._suggest import instead
from tenon.contract import FLOATS, Input, Operand, Operator, table
from tenon.jax._call import called
from tenon.jax._form import Row, make_form, row_of
from tenon.jax._types import DTYPES, NAMES, X64, is_wide, operand, wide_array, widened

# ---- arguments -------------------------------------------------------------------------------------------------------


def _is_traced(value: Any) -> bool:
    return isinstance(value, jax.core.Tracer)


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
        what = "None" if value is None else f"{type(value).__name__}; {instead(op, value, 'jnp.asarray')}"
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


def _cast(value: Array, dtype: Any) -> Any:
    """An array of one number in a type that JAX computes with beside it; else as it is, and the call says which type it
    needs: 1.5 that jit has made an array of is no integer."""
    with jax.numpy_dtype_promotion("standard"):
        return value.astype(dtype) if jnp.result_type(value, dtype) == dtype else value


class _Arguments(Arguments):
    tensors = "arrays"

    def __init__(self, op: Operator) -> None:
        super().__init__(op)
        self.alike = [[op.params[i].name for i in places] for places in alike_inputs(op)]

    def dtype_name(self, value: Any) -> str | None:
        return NAMES.get(np.dtype(value))

    def refuse_attribute(self, value: Any) -> str | None:
        if _is_traced(value) or (isinstance(value, list | tuple) and any(map(_is_traced, value))):
            fixed = "jax.jit(..., static_argnames=...) leaves it as it is"
            return f"a constant of the compiled program, and this value is traced; {fixed}"
        return None

    def make_tensor(self, param: Input, value: Any, name: str) -> Any:
        return _array(self.op, param, value, name)

    def is_untyped(self, value: Any) -> bool:
        """Arrays that have no type to insist on, and integers."""
        is_array = isinstance(value, Array | np.ndarray) and value.ndim == 0
        return is_array and (getattr(value, "weak_type", False) or jnp.issubdtype(value.dtype, jnp.integer))

    def operand(self, param: Input, tensor: Any) -> Operand:
        return operand(param, tensor)

    def make_number(self, param: Input, value: Any, kind: str) -> Any:
        if isinstance(value, Array):
            return widened(param, value) if is_wide(param) else _cast(value, np.dtype(DTYPES[kind]))
        check_number(self.op, param, value, kind)
        number = np.asarray(value, np.dtype(DTYPES[kind]))  # JAX would run a program to make one
        return wide_array(number) if is_wide(param) else number

    def promoted(self, made: dict[str, Any]) -> dict[str, Any]:
        """Inputs of one type by the contract in the type that JAX computes with, if that is a floating one."""
        for names in self.alike:
            arrays = [made[n] for n in names if n in made]
            if len({a.dtype for a in arrays}) > 1:
                try:
                    dtype = jnp.result_type(*arrays)
                except (TypeError, ValueError):  # jax_numpy_dtype_promotion="strict": the call says which one it needs
                    continue
                if NAMES.get(dtype) in FLOATS:
                    made |= {n: made[n].astype(dtype) for n in names if n in made}
        return made


# ---- functions -------------------------------------------------------------------------------------------------------


def _caller(row: Row, shown: Sequence[int]) -> Callable[[Mapping[str, Any]], Any]:
    op = row.op
    arguments = _Arguments(op)
    updated = [i for i, p in enumerate(op.inputs) if p.inplace]
    has_rule = op.mutates and op.rule is not None

    def call(given: Mapping[str, Any]) -> Any:
        form, arrays = make_form(row, arguments(given))
        outputs, updates = form.arranged(called(form, arrays))
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
    writer = JaxFunction(row.op, shown)
    flag = writer.spelling.flag
    other = None if flag is None else _caller(row_of(table()[flag.other]), shown)
    names = {"Array": Array, "dtype": np.dtype, "jax": jax, "_call": _caller(row, shown), "_other": other}
    return writer.compiled(names)
