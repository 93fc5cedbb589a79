"""The plain C reference of any operator on NumPy arrays, through ctypes: what adapters are compared with."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

import numpy as np

from tenon._frame import Tensor
from tenon._lib import check, lib
from tenon.contract import Input, Operator

NAMES = {
    "f16": "f2",
    "f32": "f4",
    "f64": "f8",
    "i8": "i1",
    "i16": "i2",
    "i32": "i4",
    "i64": "i8",
    "u8": "u1",
    "bool": "?",
}
TYPES = {np.dtype(code): name for name, code in NAMES.items()}
CODES = {"f": 2, "i": 0, "u": 1, "b": 6}  # DLPack's, by NumPy's kind


class Value(ctypes.Union):
    _fields_ = [
        ("i", ctypes.c_int64),
        ("f", ctypes.c_double),
        ("b", ctypes.c_bool),
        ("s", ctypes.c_char_p),
        ("type", ctypes.c_int),
        ("ints", ctypes.POINTER(ctypes.c_int64)),
    ]


class Attribute(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("kind", ctypes.c_int16),
        ("choice", ctypes.c_int16),
        ("count", ctypes.c_int32),
        ("value", Value),
    ]


class Args(ctypes.Structure):
    _fields_ = [
        ("inputs", ctypes.POINTER(ctypes.POINTER(Tensor))),
        ("n_in", ctypes.c_int32),
        ("lengths", ctypes.POINTER(ctypes.c_int32)),
        ("attrs", ctypes.POINTER(Attribute)),
        ("n_attrs", ctypes.c_int32),
        ("outputs", ctypes.POINTER(ctypes.POINTER(Tensor))),
        ("n_out", ctypes.c_int32),
        ("kernel", ctypes.c_char_p),
    ]


lib.tn_run.argtypes = [ctypes.c_void_p, ctypes.POINTER(Args), ctypes.c_void_p]
lib.tn_run.restype = ctypes.c_int


def _ints(values: Any) -> Any:
    return (ctypes.c_int64 * max(len(values), 1))(*values)


def _tensor(array: np.ndarray | None) -> Any:
    if array is None:
        return None
    made = Tensor(array.ctypes.data, 1, 0, array.ndim, CODES[array.dtype.kind], 8 * array.itemsize, 1)
    made.shape = _ints(array.shape)
    return ctypes.pointer(made)


def _attribute(kind: str, name: str, value: Any) -> Attribute:
    made = Attribute(name.encode())
    if kind in ("int", "axis"):
        made.kind, made.value.i = 1, value
    elif kind == "float":
        made.kind, made.value.f = 2, value
    elif kind == "bool":
        made.kind, made.value.b = 3, value
    elif kind == "dtype":
        made.kind, made.value.type = 5, lib.tn_type_named(value.encode())
    elif kind in ("axes", "ints"):
        made.kind, made.count, made.value.ints = 6, len(value), _ints(value)
    else:
        made.kind, made.value.s = 4, value.encode()
    return made


def _pointers(tensors: list[Any]) -> Any:
    made = (ctypes.POINTER(Tensor) * max(len(tensors), 1))()
    for i, tensor in enumerate(tensors):
        if tensor is not None:
            made[i] = tensor
    return made


def reference(op: Operator, given: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """All outputs (None where one was not asked for), and the inputs with those that were updated as they are then."""
    inputs: dict[str, Any] = {}
    flat: list[np.ndarray | None] = []
    lengths = []
    for param in op.inputs:
        value = given.get(param.name)
        part = [] if value is None else [np.array(v) for v in value] if param.list else [np.array(value)]
        inputs[param.name] = part if param.list else part[0] if part else None
        flat += part or ([] if param.list else [None])
        lengths.append(len(part) if param.list else 1)
    attrs = {a.name: given[a.name] for a in op.attrs if given.get(a.name) is not None}
    operands = [_operands(p, inputs[p.name]) for p in op.inputs]
    specs = op.infer(operands, attrs)
    outputs = [None if s is None else np.zeros(s[1], NAMES[s[0]]) for s in specs]
    kinds = {a.name: a.kind for a in op.attrs}
    made = [_attribute(kinds[name], name, value) for name, value in attrs.items()]
    args = Args(_pointers([_tensor(a) for a in flat]), len(flat), n_attrs=len(made), n_out=len(outputs), kernel=b"ref")
    args.lengths = (ctypes.c_int32 * len(lengths))(*lengths)
    args.attrs = (Attribute * max(len(made), 1))(*made)
    args.outputs = _pointers([_tensor(o) for o in outputs])
    check(lib.tn_run(op.address, ctypes.byref(args), None))
    return outputs, inputs


def _operands(param: Input, value: Any) -> Any:
    if value is None or (param.list and not value):
        return None
    return [(TYPES[v.dtype], v.shape) for v in value] if param.list else (TYPES[value.dtype], value.shape)
