"""The functions that users call: `tn.softmax(x)`. Arguments become what contracts say, then an op."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tenon import _rules
from tenon._arguments import check_number
from tenon._by_name import Arguments
from tenon._frameworks import TensorFlowFunction
from tenon._public import drop_absent, shown_outputs
from tenon.contract import Input, Operand, Operator, table
from tenon.tensorflow._call import Row, row_of, run
from tenon.tensorflow._types import DTYPES, NAMES, dtype_name

try:
    from tensorflow.python.eager.record import could_possibly_record as _may_record
except ImportError:  # a call then always makes what its gradient needs

    def _may_record() -> bool:
        return True


# ---- arguments -------------------------------------------------------------------------------------------------------


def _is_tensor(value: Any) -> bool:
    is_plain = isinstance(value, tf.Tensor | tf.Variable | np.ndarray | np.generic)
    return is_plain or (hasattr(value, "__tf_tensor__") and not hasattr(value, "_keras_history"))


def _tensor(op: Operator, param: Input, value: Any, name: str) -> tf.Tensor:
    """What a user gives for an input, or for one place of a list; `name` is that of the place."""
    if not _is_tensor(value):
        raise TypeError(f"{op.name}: {name} must be a tensor, not {_instead(value)}")
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(f"{op.name}: {name} has a mask, which TensorFlow would drop; its .data has none")
    try:
        made = value if isinstance(value, tf.Tensor) else tf.convert_to_tensor(value)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{op.name}: {name} is no tensor for TensorFlow: {error}") from error
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


def _known(shape: Any) -> tuple[Any, ...]:
    """The sizes; none where not even their number is known, as types are all that is asked for."""
    return () if shape.rank is None else tuple(shape)


class _Arguments(Arguments):
    def dtype_name(self, value: Any) -> str | None:
        return dtype_name(value)

    def refuse_attribute(self, value: Any) -> str | None:
        is_tensor = isinstance(value, tf.Tensor | tf.Variable)
        return "a constant of the graph, and this value is a tensor" if is_tensor else None

    def make_tensor(self, param: Input, value: Any, name: str) -> tf.Tensor:
        return _tensor(self.op, param, value, name)

    def is_untyped(self, value: Any) -> bool:
        """Integers, such as a step that is counted."""
        return _is_tensor(value) and tf.TensorShape(value.shape).rank == 0 and tf.as_dtype(value.dtype).is_integer

    def is_weak(self, value: Any) -> bool:
        """NumPy's numbers too, as in TensorFlow's own functions."""
        return isinstance(value, int | float | np.generic)

    def operand(self, param: Input, tensor: tf.Tensor) -> Operand:
        return NAMES.get(tensor.dtype, tensor.dtype.name), _known(tensor.shape)

    def make_number(self, param: Input, value: Any, kind: str) -> tf.Tensor:
        if isinstance(value, int | float | complex | np.generic | np.ndarray):
            check_number(self.op, param, value, kind)
        return tf.cast(value, DTYPES[kind]) if _is_tensor(value) else tf.constant(value, DTYPES[kind])


# ---- functions -------------------------------------------------------------------------------------------------------


def _caller(row: Row, shown: Sequence[int]) -> Callable[[Mapping[str, Any]], Any]:
    op = row.op
    arguments = _Arguments(op)
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
    writer = TensorFlowFunction(row.op, shown)
    flag = writer.spelling.flag
    other = None if flag is None else _caller(row_of(table()[flag.other]), shown)
    names = {"Tensor": tf.Tensor, "dtype": tf.DType, "tf": tf, "_call": _caller(row, shown), "_other": other}
    # Keras and AutoGraph read the source of what they call; there is nothing in it for them to convert.
    made = writer.compiled(names)
    return tf.autograph.experimental.do_not_convert(made)  # type: ignore[no-any-return]
