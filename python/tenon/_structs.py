"""The structs of the public headers (include/tenon) for ctypes, and the constants that the library has.

Names of structs and fields are those of C. The library tells sizes, offsets and constants (adapters/python/layout.c);
where a struct is declared otherwise here, importing Tenon fails and names it.
"""

from __future__ import annotations

import ctypes
from typing import Any

from tenon._open import another_version, lib

try:
    _layout: Any = lib.tn_layout
except AttributeError as error:  # no libtenon, or one of another version
    raise another_version(error) from None
_layout.argtypes = [ctypes.c_char_p]
_layout.restype = ctypes.c_int64


def _number(name: str) -> int:
    """A constant, the size of a struct, or the offset of a field."""
    number = int(_layout(name.encode()))
    if number < 0:
        raise another_version(f"it has no {name}")
    return number


MAX_RANK = _number("TN_MAX_RANK")
TYPE_COUNT = _number("TN_TYPE_COUNT")  # tn_type: 1 … TYPE_COUNT - 1 have names, 0 is none
CPU, CUDA = (_number(name) for name in ("TN_CPU", "TN_CUDA"))
UNSET, INT, FLOAT, BOOL, STR, TYPE, INTS = (
    _number(f"TN_ATTR_{name}") for name in ("UNSET", "INT", "FLOAT", "BOOL", "STR", "TYPE", "INTS")
)


class DType(ctypes.Structure):
    """A tn_dlpack_type, which is DLPack's DLDataType."""

    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class Device(ctypes.Structure):
    """A tn_device, which is DLPack's DLDevice."""

    _fields_ = [("kind", ctypes.c_int32), ("index", ctypes.c_int32)]


class Tensor(ctypes.Structure):
    """A tn_tensor, which is DLPack's DLTensor."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", Device),
        ("ndim", ctypes.c_int32),
        ("dtype", DType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Bits(ctypes.Union):
    """What the value of an attribute may be, by its kind."""

    _fields_ = [
        ("i", ctypes.c_int64),
        ("f", ctypes.c_double),
        ("b", ctypes.c_bool),
        ("s", ctypes.c_char_p),
        ("type", ctypes.c_int),
        ("ints", ctypes.POINTER(ctypes.c_int64)),
    ]


class Value(ctypes.Structure):
    """A tn_value."""

    _anonymous_ = ("bits",)
    _fields_ = [("kind", ctypes.c_int16), ("choice", ctypes.c_int16), ("count", ctypes.c_int32), ("bits", _Bits)]


class Attribute(ctypes.Structure):
    """A tn_attr."""

    _fields_ = [("name", ctypes.c_char_p), ("value", Value)]


class Args(ctypes.Structure):
    """A tn_args."""

    _fields_ = [
        ("in", ctypes.POINTER(ctypes.POINTER(Tensor))),
        ("n_in", ctypes.c_int32),
        ("lengths", ctypes.POINTER(ctypes.c_int32)),
        ("attrs", ctypes.POINTER(Attribute)),
        ("n_attrs", ctypes.c_int32),
        ("out", ctypes.POINTER(ctypes.POINTER(Tensor))),
        ("n_out", ctypes.c_int32),
        ("kernel", ctypes.c_char_p),
    ]


class Spec(ctypes.Structure):
    """A tn_spec."""

    _fields_ = [
        ("present", ctypes.c_bool),
        ("type", ctypes.c_int),
        ("ndim", ctypes.c_int32),
        ("shape", ctypes.c_int64 * MAX_RANK),
    ]


class Host(ctypes.Structure):
    """A tn_host."""

    _fields_ = [(name, ctypes.c_void_p) for name in ("context", "stream", "alloc", "release", "parallel", "threads")]


class FuseOptions(ctypes.Structure):
    """A tn_fuse_options."""

    _fields_ = [("name", ctypes.c_char_p), ("fast", ctypes.c_bool)]


class Source(ctypes.Structure):
    """A tn_source."""

    _fields_ = [(name, ctypes.c_char_p) for name in ("cuda", "cpu", "launch", "file", "options")]


class KernelText(ctypes.Structure):
    """A tn_kernel_text."""

    _fields_ = [
        ("size", ctypes.c_size_t),
        *((name, ctypes.c_char_p) for name in ("signature", "doc", "formula", "grad", "samples")),
        ("source", Source),
    ]


STRUCTS: dict[str, type[ctypes.Structure]] = {
    "tn_dlpack_type": DType,
    "tn_device": Device,
    "tn_tensor": Tensor,
    "tn_value": Value,
    "tn_attr": Attribute,
    "tn_args": Args,
    "tn_spec": Spec,
    "tn_host": Host,
    "tn_fuse_options": FuseOptions,
    "tn_source": Source,
    "tn_kernel_text": KernelText,
}


def check_struct(name: str, struct: type[ctypes.Structure]) -> None:
    """Raises ImportError unless a struct is declared as the library was compiled with it."""
    size = _number(name)
    if ctypes.sizeof(struct) != size:
        raise another_version(f"its {name} has {size} bytes, not {ctypes.sizeof(struct)}")
    for field, *_ in struct._fields_:
        # A union without a name in C is known by its first member.
        member = next(iter(_Bits._fields_))[0] if field in getattr(struct, "_anonymous_", ()) else field
        offset = _number(f"{name}.{member}")
        if getattr(struct, field).offset != offset:
            raise another_version(f"its {name} has {member} at byte {offset}, not {getattr(struct, field).offset}")


for _name, _struct in STRUCTS.items():
    check_struct(_name, _struct)
