"""The functions that users call: `tn.softmax(x)`. Arguments become what contracts say, then an op."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tenon import _rules
from tenon._public import (
    REQUIRED,
    Returning,
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
from tenon.contract import Attr, Input, Operator
from tenon.tensorflow._call import Row, run
from tenon.tensorflow._types import DTYPES, NAMES, dtype_name

try:
    from tensorflow.python.eager.record import could_possibly_record as _may_record
except ImportError:  # a call then always makes what its gradient needs

    def _may_record() -> bool:
        return True


class _Public(Returning):
    """Variables among what is updated are assigned as well."""

    written = "; a tf.Variable among them is assigned"

    def default(self, param: Input | Attr) -> str:
        if isinstance(param, Attr) and param.kind == "dtype" and param.default:
            return f'"{DTYPES[param.default].name}"'  # not all are attributes of tf
        return super().default(param)


def write_stub(op: Operator) -> str:
    """The public function of an operator as type checkers and editors read it."""
    return _Public(op, shown_outputs(op)).stub()


# ---- arguments -------------------------------------------------------------------------------------------------------


def _is_tensor(value: Any) -> bool:
    is_plain = isinstance(value, tf.Tensor | tf.Variable | np.ndarray | np.generic)
    return is_plain or (hasattr(value, "__tf_tensor__") and not hasattr(value, "_keras_history"))


def _tensor(op: Operator, param: Input, value: Any) -> tf.Tensor:
    if not _is_tensor(value):
        raise TypeError(f"{op.name}: {param.name} must be a tensor, not {_instead(value)}")
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(f"{op.name}: {param.name} has a mask, which TensorFlow would drop; its .data has none")
    try:
        made = value if isinstance(value, tf.Tensor) else tf.convert_to_tensor(value)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{op.name}: {param.name} is no tensor for TensorFlow: {error}") from error
    if param.type.get("fixed") == ["i64"] and made.dtype.is_integer:  # seeds
        return tf.cast(made, tf.int64)
    return made


def _instead(value: Any) -> str:
    if value is None:
        return "None"
    if hasattr(value, "_keras_history"):
        return "KerasTensor; in a model, use tenon.tensorflow.layers, or a layer that calls this function"
    if isinstance(value, tf.RaggedTensor):
        return "RaggedTensor; to_tensor() makes one"
    if isinstance(value, tf.SparseTensor):
        return "SparseTensor; tf.sparse.to_dense(…) makes one"
    return f"{type(value).__name__}; tf.constant(…) makes one"


def _takes_number(op: Operator, param: Input, value: Any) -> bool:
    """Plain numbers, and integers such as a step that is counted."""
    if not is_number(param) or value is None:
        return False
    if isinstance(value, bool | int | float | complex | np.generic):
        return True
    if isinstance(value, np.ndarray) and value.ndim == 0 and value.dtype.kind in "biuf" and is_told(op, param):
        return True
    return _is_tensor(value) and tf.TensorShape(value.shape).rank == 0 and tf.as_dtype(value.dtype).is_integer


def _known(shape: Any) -> tuple[Any, ...]:
    """The sizes; none where not even their number is known, as types are all that is asked for."""
    return () if shape.rank is None else tuple(shape)


class Arguments:
    """What users give, as an operator's calls take it."""

    def __init__(self, op: Operator) -> None:
        self.op = op

    def __call__(self, given: Mapping[str, Any]) -> dict[str, Any]:
        op = self.op
        made = {a.name: self._attribute(a, given[a.name]) for a in op.attrs if a.name in given}
        numbers = []
        for param in op.inputs:
            value = given[param.name]
            if _takes_number(op, param, value):
                numbers.append(param)
            elif param.list and value is not None:
                made[param.name] = [_tensor(op, param, v) for v in listed(op, param, value, "tensors")]
            elif value is not None or not param.optional:
                made[param.name] = _tensor(op, param, value)
        for param in numbers:
            made[param.name] = self._number(param, given[param.name], made)
        return made

    def _attribute(self, attr: Attr, value: Any) -> Any:
        if isinstance(value, tf.Tensor | tf.Variable):
            message = "is an attribute, a constant of the graph, and this value is a tensor"
            raise TypeError(f"{self.op.name}: {attr.name} {message}")
        return attribute_value(self.op, attr, listed_axes(attr, value), dtype_name)

    def _number(self, param: Input, value: Any, made: Mapping[str, Any]) -> tf.Tensor:
        lists = [(p, made.get(p.name)) for p in self.op.inputs]
        present = [(p, v if p.list else [v]) for p, v in lists if v is not None]
        operands = [(p, [(NAMES.get(t.dtype, t.dtype.name), _known(t.shape)) for t in v]) for p, v in present]
        kind = number_type(self.op, param, operands, made)
        if isinstance(value, int | float | complex | np.generic | np.ndarray):
            check_number(self.op, param, value, kind)
        return tf.cast(value, DTYPES[kind]) if _is_tensor(value) else tf.constant(value, DTYPES[kind])


# ---- functions -------------------------------------------------------------------------------------------------------


def _caller(row: Row, shown: Sequence[int]) -> Callable[[Mapping[str, Any]], Any]:
    op = row.op
    arguments = Arguments(op)
    asked = dict.fromkeys(_rules.asked_for(op), True)

    def call(given: Mapping[str, Any]) -> Any:
        made = arguments(given)
        _refuse_twice(row, given)
        if asked and _may_record():
            made |= asked
        outputs, updates = run(row, made)
        results = [outputs[i] for i in shown]
        for param, tensors in zip(row.updated, updates, strict=True):
            # Statistics that a call keeps beside its result are constants to gradients, as they are in PyTorch.
            fresh = [tf.stop_gradient(t) for t in tensors] if op.rule is not None else tensors
            _assign(given[param.name] if param.list else [given[param.name]], fresh)
            results.append(fresh if param.list and fresh else fresh[0] if fresh else None)
        return drop_absent(tuple(results))

    return call


def _refuse_twice(row: Row, given: Mapping[str, Any]) -> None:
    """A variable that is updated in two places would keep one of the values."""
    names: dict[int, str] = {}
    for param in row.updated:
        values = given[param.name] or () if param.list else [given[param.name]]
        for k, value in enumerate(values):
            name = f"{param.name}[{k}]" if param.list else param.name
            other = names.setdefault(id(value), name)
            if hasattr(value, "assign") and other != name:
                raise ValueError(f"{row.op.name}: {other} and {name} are both written, but are one variable")


def _assign(given: Any, fresh: Sequence[tf.Tensor]) -> None:
    for variable, value in zip(given or (), fresh, strict=False):
        if hasattr(variable, "assign"):
            variable.assign(value)


def make_public(row: Row, shown: Sequence[int] | None = None) -> Callable[..., Any]:
    """The public function of an operator."""
    shown = shown_outputs(row.op) if shown is None else shown
    writer = _Public(row.op, shown)
    names = {
        "Tensor": tf.Tensor,
        "Any": Any,
        "Sequence": Sequence,
        "dtype": tf.DType,
        "tf": tf,
        "_required": REQUIRED,
        "_call": _caller(row, shown),
    }
    made = compile_source(writer.source(), row.op.name, names)[identifier(row.op.name)]
    made.__doc__ = writer.doc()
    made.__module__ = "tenon.tensorflow"
    # Keras and AutoGraph read the source of what they call; there is nothing in it for them to convert.
    return tf.autograph.experimental.do_not_convert(made)  # type: ignore[no-any-return]
