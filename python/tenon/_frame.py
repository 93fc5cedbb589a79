"""Calls of operators through ctypes: the memory that tn_infer and tn_run read, as tenon._structs declares it. It is
written with the module struct, which is faster than ctypes."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any

from tenon import _structs
from tenon._arguments import attribute_value
from tenon._lib import check, lib
from tenon._structs import CPU, MAX_RANK, Args, Attribute, Spec, Tensor
from tenon.contract import Attr, Operand, Operator

_CALL = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
_infer: Callable[..., int] = _CALL(("tn_infer", lib))
_run: Callable[..., int] = _CALL(("tn_run", lib))
_workspace: Callable[..., int] = _CALL(("tn_workspace", lib))


def _format(kind: Any) -> str:
    """How the module struct writes what a type of ctypes is."""
    if issubclass(kind, ctypes.Array):
        return f"{kind._length_}{_format(kind._type_)}"
    if issubclass(kind, ctypes.Union):
        return "Q"
    if issubclass(kind, ctypes.Structure):
        return "".join(_format(field[1]) for field in kind._fields_)
    pointer = not isinstance(kind._type_, str) or kind._type_ in "zP"
    return "P" if pointer else str(kind._type_)


_ARGS = Struct(f"@{_format(Args)}")
_ATTR = Struct(f"@{_format(Attribute)}")
_SPEC = Struct(f"@{_format(Spec)}")
_SHAPE_AT: int = Spec.shape.offset
_HEAD = Struct("@" + "".join(_format(field[1]) for field in Spec._fields_ if field[0] != "shape"))
_SHAPES = [Struct(f"@{n}q") for n in range(MAX_RANK + 1)]


def type_number(name: str) -> int:
    """The tn_type of a name like "f32"."""
    return int(lib.tn_type_named(name.encode()))


def type_name(number: int) -> str:
    """The name of a tn_type."""
    return str(lib.tn_type_name(number).decode())


def kind_of(tensor: Tensor) -> str:
    """The name of a tensor's element type, "?" where Tenon has none."""
    number = lib.tn_type_from_dlpack(tensor.dtype)
    return type_name(number)


def make_tensor(
    data: int, device: tuple[int, int], kind: str, shape: Sequence[int], strides: Sequence[int] | None
) -> Tensor:
    """A tensor over memory that somebody else owns; strides in elements, None: dense."""
    dtype, sizes = lib.tn_type_to_dlpack(type_number(kind)), ctypes.c_int64 * len(shape)
    steps = None if strides is None else sizes(*strides)
    return Tensor(data, device, len(shape), dtype, sizes(*shape), steps, 0)


# ---- attributes ------------------------------------------------------------------------------------------------------

_PLAIN = {"int": _structs.INT, "axis": _structs.INT, "float": _structs.FLOAT, "bool": _structs.BOOL}


class _Attribute:
    """Writes the value of one attribute: its kind, how many there are of a list, and the value's bits."""

    def __init__(self, op: Operator, attr: Attr, dtype_name: Callable[[Any], str | None]) -> None:
        self.op = op
        self.attr = attr
        self.dtype_name = dtype_name
        self.code = "d" if attr.kind == "float" else "Q" if attr.kind in ("str", "choice", "activation") else "q"
        self.texts: dict[str, ctypes.Array[ctypes.c_char]] = {}
        self.name = self._text(attr.name)

    def fields(self, value: Any, held: list[Any]) -> tuple[int, int, Any]:
        """`held` keeps what the value points to."""
        made = attribute_value(self.op, self.attr, value, self.dtype_name)
        if made is None:
            return _structs.UNSET, 0, 0
        kind = self.attr.kind
        if kind in _PLAIN:
            return _PLAIN[kind], 0, made
        if kind in ("axes", "ints"):
            held.append((ctypes.c_int64 * len(made))(*made))
            return _structs.INTS, len(made), ctypes.addressof(held[-1])
        return (_structs.TYPE, 0, type_number(made)) if kind == "dtype" else (_structs.STR, 0, self._text(made))

    def _text(self, value: str) -> int:
        made = self.texts.get(value)
        if made is None:  # kept: there are few, and somebody may be reading them
            made = self.texts.setdefault(value, ctypes.create_string_buffer(value.encode()))
        return ctypes.addressof(made)


# ---- a call ----------------------------------------------------------------------------------------------------------


class Frame:
    """The memory of one call at a time."""

    def __init__(self, calls: Calls, n_in: int) -> None:
        n_attrs, n_out = len(calls.attributes), len(calls.op.outputs)
        self.pointers_in, self.pointers_out = Struct(f"@{n_in}P"), Struct(f"@{n_out}P")
        at_in = _ARGS.size
        at_lengths = at_in + self.pointers_in.size
        self.at_lengths = at_lengths
        self.at_attrs = at_lengths + -(-4 * len(calls.op.inputs) // 8) * 8
        self.at_out = self.at_attrs + n_attrs * _ATTR.size
        self.at_specs = self.at_out + self.pointers_out.size
        self.memory = (ctypes.c_char * (self.at_specs + n_out * _SPEC.size))()
        start = ctypes.addressof(self.memory)
        self.address, self.specs = start, start + self.at_specs
        lengths = start + at_lengths if calls.has_lists else 0
        attrs, out = start + self.at_attrs, start + self.at_out
        _ARGS.pack_into(self.memory, 0, start + at_in, n_in, lengths, attrs, n_attrs, out, n_out, 0)


class Calls:
    """Calls of one operator.

    `begin` writes the inputs and attributes of one into a frame, `spec` says what outputs it has, `run` runs it. Frames
    that are free are kept in a list: threads, and calls inside of calls, each have their own.
    """

    def __init__(self, op: Operator, dtype_name: Callable[[Any], str | None]) -> None:
        self.op = op
        self.attributes = [_Attribute(op, a, dtype_name) for a in op.attrs]
        self.has_lists = any(p.list for p in op.inputs)
        self._pack_attrs = Struct("@" + "".join(f"Phhi{a.code}" for a in self.attributes)).pack_into
        self._free: list[Frame] = []

    def begin(self, pointers: Sequence[int], lengths: Sequence[int], attrs: Sequence[Any], held: list[Any]) -> Frame:
        """A frame with the call, its outputs inferred. `pointers`: tensors, 0: absent; `lengths`: of each input, for
        operators with lists; `held`: gets what must live until the call is over."""
        if self.has_lists:
            frame = Frame(self, len(pointers))
            Struct(f"@{len(lengths)}i").pack_into(frame.memory, frame.at_lengths, *lengths)
        else:
            frame = self._free.pop() if self._free else Frame(self, len(pointers))
        frame.pointers_in.pack_into(frame.memory, _ARGS.size, *pointers)
        if attrs:
            fields: list[Any] = []
            for attribute, value in zip(self.attributes, attrs, strict=True):
                kind, count, bits = attribute.fields(value, held)
                fields += (attribute.name, kind, 0, count, bits)
            self._pack_attrs(frame.memory, frame.at_attrs, *fields)
        status = _infer(self.op.address, frame.address, frame.specs)
        if status:
            check(status)
        return frame

    def spec(self, frame: Frame, output: int) -> tuple[int, tuple[int, ...]] | None:
        """The tn_type and the shape of an output; None: it was not asked for."""
        at = frame.at_specs + output * _SPEC.size
        present, kind, ndim = _HEAD.unpack_from(frame.memory, at)
        return (kind, _SHAPES[ndim].unpack_from(frame.memory, at + _SHAPE_AT)) if present else None

    def _begin_dense(
        self, inputs: Sequence[Sequence[Operand | None]], attrs: Sequence[Any], device: tuple[int, int]
    ) -> tuple[Frame, list[Any]]:
        """A frame of a call with dense tensors without data, and what must live as long as it is used."""
        flat = [one for part in inputs for one in part]
        held: list[Any] = [one if one is None else make_tensor(0, device, one[0], one[1], None) for one in flat]
        pointers = [0 if tensor is None else ctypes.addressof(tensor) for tensor in held]
        return self.begin(pointers, [len(part) for part in inputs], attrs, held), held

    def infer(self, inputs: Sequence[Sequence[Operand | None]], attrs: Sequence[Any]) -> list[Operand | None]:
        """Types and shapes of a call's outputs; None: it was not asked for. `inputs`: those of each one's tensors, None
        for one that is absent; sizes may be -1, unknown."""
        frame, _ = self._begin_dense(inputs, attrs, (CPU, 0))
        specs = [self.spec(frame, i) for i in range(len(self.op.outputs))]
        if not self.has_lists:
            self._free.append(frame)
        return [None if spec is None else (type_name(spec[0]), spec[1]) for spec in specs]

    def workspace(
        self, inputs: Sequence[Sequence[Operand | None]], attrs: Sequence[Any], device: tuple[int, int]
    ) -> int:
        """The bytes that a call with dense tensors on a device needs for itself. What it needs of code is loaded."""
        frame, held = self._begin_dense(inputs, attrs, device)
        outputs = []
        for i in range(len(self.op.outputs)):
            spec = self.spec(frame, i)
            held.append(None if spec is None else make_tensor(0, device, type_name(spec[0]), spec[1], None))
            outputs.append(0 if spec is None else ctypes.addressof(held[-1]))
        frame.pointers_out.pack_into(frame.memory, frame.at_out, *outputs)
        needed = ctypes.c_size_t()
        check(_workspace(self.op.address, frame.address, ctypes.byref(needed)))
        return needed.value

    def run(self, frame: Frame, outputs: Sequence[int], host: int | None) -> None:
        """`outputs`: tensors, 0: not wanted; `host`: a tn_host, None: the default one."""
        frame.pointers_out.pack_into(frame.memory, frame.at_out, *outputs)
        status = _run(self.op.address, frame.address, host)
        if not self.has_lists:
            self._free.append(frame)
        if status:
            check(status)
