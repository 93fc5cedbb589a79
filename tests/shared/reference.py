"""The plain C reference of any operator on NumPy arrays, through ctypes: what adapters are compared with."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tenon import _structs
from tenon._frame import make_tensor, type_number
from tenon._lib import check, lib
from tenon._structs import Args, Attribute, Tensor
from tenon.contract import NUMPY_NAMES, Input, Operator

TYPES = {name: kind for kind, name in NUMPY_NAMES.items()}
lib.tn_run.argtypes = [ctypes.c_void_p, ctypes.POINTER(Args), ctypes.c_void_p]
lib.tn_run.restype = ctypes.c_int


def _attribute(kind: str, name: str, value: Any) -> Attribute:
    made = Attribute(name.encode())
    to = made.value
    if kind in ("int", "axis"):
        to.kind, to.i = _structs.INT, value
    elif kind == "float":
        to.kind, to.f = _structs.FLOAT, value
    elif kind == "bool":
        to.kind, to.b = _structs.BOOL, value
    elif kind == "dtype":
        to.kind, to.type = _structs.TYPE, type_number(value)
    elif kind in ("axes", "ints"):
        to.kind, to.count, to.ints = _structs.INTS, len(value), (ctypes.c_int64 * len(value))(*value)
    else:
        to.kind, to.s = _structs.STR, value.encode()
    return made


def _pointers(tensors: Sequence[Tensor | None]) -> Any:
    made = (ctypes.POINTER(Tensor) * len(tensors))()
    for i, tensor in enumerate(tensors):
        if tensor is not None:
            made[i] = ctypes.pointer(tensor)
    return made


def make_args(
    op: Operator,
    inputs: Sequence[Sequence[Tensor | None]],
    attrs: Mapping[str, Any],
    outputs: Sequence[Tensor | None] = (),
    kernel: bytes | None = None,
) -> Args:
    """A call. `inputs`: the tensors of each, None for one that is absent; `attrs`: those that are given."""
    flat = [tensor for part in inputs for tensor in part]
    kinds = {a.name: a.kind for a in op.attrs}
    made = [_attribute(kinds[name], name, value) for name, value in attrs.items() if value is not None]
    lengths = (ctypes.c_int32 * len(inputs))(*map(len, inputs))
    attributes = (Attribute * len(made))(*made)
    return Args(_pointers(flat), len(flat), lengths, attributes, len(made), _pointers(outputs), len(outputs), kernel)


def _tensor(array: np.ndarray | None) -> Tensor | None:
    if array is None:
        return None
    return make_tensor(array.ctypes.data, (_structs.CPU, 0), TYPES[array.dtype.name], array.shape, None)


def reference(op: Operator, given: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """All outputs (None where one was not asked for), and the inputs with those that were updated as they are then."""
    inputs: dict[str, Any] = {}
    for param in op.inputs:
        value = given.get(param.name)
        listed = [] if value is None else [np.array(v) for v in value] if param.list else [np.array(value)]
        inputs[param.name] = listed if param.list else listed[0] if listed else None
    attrs = {a.name: given[a.name] for a in op.attrs if given.get(a.name) is not None}
    specs = op.infer([_operands(p, inputs[p.name]) for p in op.inputs], attrs)
    outputs = [None if s is None else np.zeros(s[1], NUMPY_NAMES[s[0]]) for s in specs]
    parts = [inputs[p.name] if p.list else [inputs[p.name]] for p in op.inputs]
    tensors = [[_tensor(a) for a in part] for part in parts]
    args = make_args(op, tensors, attrs, [_tensor(o) for o in outputs], b"ref")
    check(lib.tn_run(op.address, ctypes.byref(args), None))
    return outputs, inputs


def _operands(param: Input, value: Any) -> Any:
    if value is None or (param.list and not value):
        return None
    operands = [(TYPES[v.dtype.name], v.shape) for v in (value if param.list else [value])]
    return operands if param.list else operands[0]
