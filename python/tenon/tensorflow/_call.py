"""Calls: from inputs and attributes by name to one of TensorFlow's ops and back.

adapters/tensorflow/tensorflow_ops.c says what an op looks like; what is written here follows the same rules.
"""

from __future__ import annotations

import keyword
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import tensorflow as tf

from tenon._frame import Calls
from tenon._lib import check, lib
from tenon.contract import Attr, Input, Operator, Output, attribute_text, attribute_words, read_attribute, table
from tenon.infer import Types
from tenon.tensorflow._types import DTYPES, NAMES, dtype_name

FUSE = "TenonFuse"

_LIBRARY = os.path.join(os.path.dirname(lib._name), "libtenon_tensorflow.so")
_functions: dict[str, Any] = {}  # by name of the op


def _load(path: str) -> None:
    module = tf.load_op_library(path)
    _functions.update({name: getattr(module, name) for name in vars(module) if name.startswith("Tenon")})
    check(lib.tn_tensorflow_status())


def register() -> None:
    """Makes ops of the operators that are new in the table."""
    if not _functions:
        if not os.path.isfile(_LIBRARY):
            raise ImportError(f"no {_LIBRARY}: `make build` makes it, beside libtenon.so")
        _load(_LIBRARY)
        return
    if len(_functions) == len(table()) + 1:  # one is for formulas
        return
    # A file is opened once, and ops are collected when one is: another file with the same in it.
    with tempfile.TemporaryDirectory() as folder:
        _load(shutil.copy(_LIBRARY, os.path.join(folder, f"libtenon_tensorflow_{len(_functions)}.so")))


def op_name(operator: str) -> str:
    """softmax_grad: TenonSoftmaxGrad."""
    return "Tenon" + "".join(word[:1].upper() + word[1:] for word in operator.split("_"))


def parameter(name: str) -> str:
    """What an op calls an input or attribute of a contract."""
    return f"{name}_" if keyword.iskeyword(name) or name == "name" else name


# ---- attributes ------------------------------------------------------------------------------------------------------


def is_text(attr: Attr) -> bool:
    """TensorFlow's floats have 32 bits, and none of its attributes may be absent."""
    return attr.kind == "float" or attr.optional


def _text(attr: Attr, value: Any) -> str:
    if value is None or attr.kind == "dtype":
        return value or ""
    return attribute_text(attr.kind, value)


def read_text(attr: Attr, text: str) -> Any:
    """The value of an attribute from what `_text` wrote."""
    return None if text == "" else read_attribute(attr.kind, text)


def _is_known(value: Any) -> bool:
    return all(isinstance(v, int) for v in (value if isinstance(value, list | tuple) else [value]))


# ---- an operator -----------------------------------------------------------------------------------------------------


def _is_many(param: Input | Output) -> bool:
    return param.list or (param.optional if isinstance(param, Input) else param.want_attr is not None)


class Row:
    """An operator as TensorFlow has it."""

    def __init__(self, op: Operator, fast: bool = False) -> None:
        self.op = op
        self.fast = fast
        self.is_formula = table().get(op.name) is not op
        self.name = FUSE if self.is_formula else op_name(op.name)
        bound = {p.type["var"] for p in op.inputs if "var" in p.type and not (p.type.get("wrap") or _is_many(p))}
        # Outputs whose types no input says.
        self.typed = [
            i
            for i, o in enumerate(op.outputs)
            if len(o.type.get("fixed", ())) != 1 and (bool(o.type.get("wrap")) or o.type.get("var") not in bound)
        ]
        self.updated = [p for p in op.inputs if p.inplace]
        self.ints = [a for a in op.attrs if a.kind in ("int", "ints") and not a.optional]  # which may be tensors
        self.kinds: dict[Any, list[str | None]] = {}  # of outputs, by types of inputs and the attributes that matter

    @cached_property
    def calls(self) -> Calls:
        return Calls(self.op, dtype_name)

    def complete(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """All attributes; one that is absent has its default."""
        return {a.name: a.default if given.get(a.name) is None else given[a.name] for a in self.op.attrs}

    def types(self, inputs: Mapping[str, Sequence[Any]], attrs: Mapping[str, Any]) -> list[str | None]:
        """The type of each output; None: it was not asked for. Raises TypeError where inputs do not fit."""
        op = self.op
        kinds = tuple(tuple(t.dtype for t in inputs[p.name]) for p in op.inputs)
        chosen = tuple(attrs[a.name] for a in op.attrs if a.kind == "dtype" or a.implied)
        found = self.kinds.get((kinds, chosen))
        if found is None:
            types = Types(op, attrs)
            types.bind([(p, [(self._kind(p, t), ()) for t in inputs[p.name]]) for p in op.inputs])
            wanted = [o.want_attr is None or attrs[o.want_attr] for o in op.outputs]
            found = [types.of(o.type) if w else None for o, w in zip(op.outputs, wanted, strict=True)]
            self.kinds[kinds, chosen] = found
        return found

    def _kind(self, param: Input, tensor: tf.Tensor) -> str:
        name = NAMES.get(tensor.dtype)
        if name is None:
            raise TypeError(f"{self.op.name}: {param.name} has type {tensor.dtype.name}, which Tenon does not have")
        return name


def row_of(op: Operator, fast: bool = False) -> Row:
    """The operator's row."""
    found: Row | None = op.kept.get(("tensorflow", fast))
    return found if found is not None else op.kept.setdefault(("tensorflow", fast), Row(op, fast))


# ---- a call ----------------------------------------------------------------------------------------------------------


def run(row: Row, given: Mapping[str, Any]) -> tuple[list[Any], list[list[Any]]]:
    """All outputs, None where one was not asked for; and for each input that is updated, its tensors.

    `given`: tensors, lists of them and attributes by name, as _public.py leaves them. An integer, or one of a list, may
    be what becomes a tensor.
    """
    op = row.op
    inputs = {p.name: _listed(p, given.get(p.name)) for p in op.inputs}
    attrs = row.complete(given)
    kinds = row.types(inputs, attrs)
    made = _run_formula(row, inputs, attrs, kinds) if row.is_formula else _run_op(row, inputs, attrs, kinds)
    outputs, updates = made
    if not tf.executing_eagerly():
        _set_shapes(row, inputs, attrs, outputs)
        for param, tensors in zip(row.updated, updates, strict=True):
            for before, after in zip(inputs[param.name], tensors, strict=True):
                after.set_shape(before.shape)
    return outputs, updates


def _listed(param: Input, value: Any) -> list[Any]:
    return [] if value is None else list(value) if param.list else [value]


def _run_op(
    row: Row, inputs: Mapping[str, list[Any]], attrs: Mapping[str, Any], kinds: Sequence[str | None]
) -> tuple[list[Any], list[list[Any]]]:
    op = row.op
    given: dict[str, Any] = {
        parameter(p.name): inputs[p.name] if _is_many(p) else _only(op, p, inputs) for p in op.inputs
    }
    for attr in op.attrs:
        value = attrs[attr.name]
        if not attr.implied:
            given[parameter(attr.name)] = _text(attr, value) if is_text(attr) else _value(attr, value)
    for attr in row.ints:
        value = attrs[attr.name]
        given[f"{attr.name}_tensor"] = []
        if not _is_known(value):
            given[parameter(attr.name)] = [] if attr.kind == "ints" else 0
            given[f"{attr.name}_tensor"] = [_int64(value)]
    for output, kind in zip(op.outputs, kinds, strict=True):
        if output.want_attr is not None:
            given[f"num_{output.name}"] = int(kind is not None)
    for i in row.typed:
        kind = kinds[i]
        if kind is not None:
            given[f"{op.outputs[i].name}_type"] = DTYPES[kind]
    made = _functions[row.name](**given)
    parts = list(made) if len(op.outputs) + len(row.updated) > 1 else [made]
    outputs = [part if not isinstance(part, list) else part[0] if part else None for part in parts[: len(op.outputs)]]
    return outputs, [part if isinstance(part, list) else [part] for part in parts[len(op.outputs) :]]


def _only(op: Operator, param: Input, inputs: Mapping[str, list[Any]]) -> Any:
    if not inputs[param.name]:
        raise ValueError(f"{op.name}: {param.name} is missing")
    return inputs[param.name][0]


def _int64(value: Any) -> tf.Tensor:
    return tf.stack([_int64(v) for v in value]) if isinstance(value, list | tuple) else tf.cast(value, tf.int64)


def _value(attr: Attr, value: Any) -> Any:
    if attr.kind == "dtype":
        return DTYPES[value]
    return list(value) if attr.kind in ("axes", "ints") else value


def _run_formula(
    row: Row, inputs: Mapping[str, list[Any]], attrs: Mapping[str, Any], kinds: Sequence[str | None]
) -> tuple[list[Any], list[list[Any]]]:
    op = row.op
    told = {a.name: (a, attrs[a.name]) for a in op.attrs if attrs[a.name] is not None}
    updated = [t for p in row.updated for t in inputs[p.name]]
    made = _functions[FUSE](
        xs=[t for p in op.inputs for t in inputs[p.name]],
        formula=op.formula,
        fast=row.fast,
        attributes=" ".join(f"{name}={_text(*attribute)}" for name, attribute in told.items()),
        counts=[len(inputs[p.name]) for p in op.inputs],
        Tout=[DTYPES[kind] for kind in kinds if kind is not None] + [t.dtype for t in updated],
    )
    rest = iter(made)
    outputs = [None if kind is None else next(rest) for kind in kinds]
    return outputs, [[next(rest) for _ in inputs[p.name]] for p in row.updated]


def read_formula_attributes(op: Operator, text: str) -> dict[str, Any]:
    """The attributes that `_run_formula` wrote."""
    told = dict(attribute_words(text))
    return {a.name: read_text(a, told[a.name]) if a.name in told else None for a in op.attrs}


# ---- shapes ----------------------------------------------------------------------------------------------------------


def _set_shapes(row: Row, inputs: Mapping[str, list[Any]], attrs: Mapping[str, Any], outputs: Sequence[Any]) -> None:
    """Tells a graph what is known of the outputs' shapes. Raises ValueError where the contract allows no such call."""
    op = row.op
    tensors = [t for p in op.inputs for t in inputs[p.name]]
    if any(t.shape.rank is None for t in tensors) or not all(_is_known(attrs[a.name]) for a in row.ints):
        return
    known: list[list[Any]] = [
        [(NAMES[t.dtype], [-1 if n is None else n for n in t.shape]) for t in inputs[p.name]] for p in op.inputs
    ]
    lists = [part if part or p.list else [None] for p, part in zip(op.inputs, known, strict=True)]
    specs = row.calls.infer(lists, [_spoken(a, attrs[a.name]) for a in op.attrs])
    for tensor, spec in zip(outputs, specs, strict=True):
        if tensor is not None and spec is not None:
            tensor.set_shape([None if n < 0 else n for n in spec[1]])


def _spoken(attr: Attr, value: Any) -> Any:
    """As tenon._frame takes it."""
    return DTYPES[value] if attr.kind == "dtype" and value is not None else value
