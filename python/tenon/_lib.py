"""The functions of libtenon.so, through ctypes, and its errors."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

from tenon._open import another_version
from tenon._open import lib as lib
from tenon._structs import DType, FuseOptions, KernelText, Source


class TenonError(RuntimeError):
    """What the C library said, where no built-in exception fits better."""


# By tn_status's names; what is not listed is a TenonError.
_ERRORS: dict[str, type[Exception]] = {
    "BAD_VALUE": ValueError,
    "BAD_SHAPE": ValueError,
    "BAD_TYPE": TypeError,
    "NOT_FOUND": LookupError,
    "UNSUPPORTED": NotImplementedError,
    "NO_MEMORY": MemoryError,
}


def _declare(lib: ctypes.CDLL) -> None:
    """Types of the library's functions."""
    lib.tn_version.restype = ctypes.c_char_p
    lib.tn_last_error.restype = ctypes.c_char_p
    lib.tn_status_name.restype = ctypes.c_char_p
    lib.tn_status_name.argtypes = [ctypes.c_int]
    lib.tn_function_count.restype = ctypes.c_int
    lib.tn_table_json.restype = ctypes.c_void_p
    lib.tn_free.argtypes = [ctypes.c_void_p]
    lib.tn_free.restype = None
    lib.tn_load.argtypes = [ctypes.c_char_p]
    lib.tn_load.restype = ctypes.c_int
    lib.tn_find.argtypes = [ctypes.c_char_p]
    lib.tn_find.restype = ctypes.c_void_p
    lib.tn_function_json.argtypes = [ctypes.c_void_p]
    lib.tn_function_json.restype = ctypes.c_void_p
    lib.tn_gradient_json.argtypes = [ctypes.c_void_p]
    lib.tn_gradient_json.restype = ctypes.c_void_p
    lib.tn_fuse_gradient.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    lib.tn_fuse_gradient.restype = ctypes.c_int
    lib.tn_fuse.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p)]
    lib.tn_fuse.restype = ctypes.c_int
    lib.tn_kernel_define.argtypes = [ctypes.POINTER(KernelText), ctypes.POINTER(ctypes.c_void_p)]
    lib.tn_kernel_define.restype = ctypes.c_int
    lib.tn_kernel_write.argtypes = [ctypes.c_void_p]
    lib.tn_kernel_write.restype = ctypes.c_void_p
    lib.tn_function_name.argtypes = [ctypes.c_void_p]
    lib.tn_function_name.restype = ctypes.c_char_p
    lib.tn_fuse_release.argtypes = [ctypes.c_void_p]
    lib.tn_fuse_release.restype = None
    lib.tn_type_named.argtypes = [ctypes.c_char_p]
    lib.tn_type_named.restype = ctypes.c_int
    lib.tn_type_name.argtypes = [ctypes.c_int]
    lib.tn_type_name.restype = ctypes.c_char_p
    lib.tn_type_to_dlpack.argtypes = [ctypes.c_int]
    lib.tn_type_to_dlpack.restype = DType
    lib.tn_type_from_dlpack.argtypes = [DType]
    lib.tn_type_from_dlpack.restype = ctypes.c_int
    lib.tn_fuse_graph_json.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p]
    lib.tn_fuse_graph_json.restype = ctypes.c_void_p


try:
    _declare(lib)
except AttributeError as error:  # no libtenon, or one of another version
    raise another_version(error) from None


def last_error() -> str:
    """The message of this thread's last failure."""
    return str(lib.tn_last_error().decode(errors="replace"))


def check(status: int) -> None:
    """Raises what a tn_status says, if it is not 0."""
    if status != 0:
        raise _ERRORS.get(lib.tn_status_name(status).decode(), TenonError)(last_error())


def _read_json(address: int | None) -> Any:
    """What the C library wrote; frees it."""
    import json

    if not address:
        raise TenonError(last_error())
    try:
        return json.loads(ctypes.string_at(address).decode())
    finally:
        lib.tn_free(address)


def table_json() -> list[dict[str, Any]]:
    """The operator table as the C library describes it (the format is in src/core/contract/contract.h)."""
    table: list[dict[str, Any]] = _read_json(lib.tn_table_json())
    return table


def gradient_json(address: int) -> Any:
    """The gradient rule of an operator; None where it has none."""
    return _read_json(lib.tn_gradient_json(address))


def why_no_gradient(address: int) -> str:
    """What stands against the gradient of a formula; "" where nothing does."""
    made = ctypes.c_void_p()
    if lib.tn_fuse_gradient(address, ctypes.byref(made)):
        return last_error()
    lib.tn_fuse_release(made)
    return ""


def find(name: str) -> int:
    """The address of an operator of the table."""
    address: int | None = lib.tn_find(name.encode())
    if not address:
        raise LookupError(last_error())
    return address


def fuse(formula: str, fast: bool) -> tuple[int, dict[str, Any]]:
    """The operator that a formula is: its address, and what it is. It is given back with tn_fuse_release."""
    if "\0" in formula:
        raise ValueError(f"the formula has a NUL character, at column {formula.index(chr(0)) + 1}: {formula!r}")
    made = ctypes.c_void_p()
    options = FuseOptions(None, fast)
    status = lib.tn_fuse(formula.encode(), ctypes.byref(options), ctypes.byref(made))
    if status != 0 and lib.tn_status_name(status) == b"BAD_CONTRACT":
        raise ValueError(last_error())
    check(status)
    assert made.value is not None
    row: dict[str, Any] = _read_json(lib.tn_function_json(made))
    return made.value, row


def define(parts: Mapping[str, str | None]) -> tuple[int, str]:
    """The operator of a text: its address, and its name in the table. `parts` are the members of a tn_kernel_text."""
    given = {name: None if text is None else text.encode() for name, text in parts.items()}
    for name, text in given.items():
        if text is not None and b"\0" in text:
            raise ValueError(f"{name} has a NUL character")
    source = Source(**{field[0]: given.pop(field[0], None) for field in Source._fields_})
    whole = KernelText(size=ctypes.sizeof(KernelText), source=source, **given)
    made = ctypes.c_void_p()
    status = lib.tn_kernel_define(ctypes.byref(whole), ctypes.byref(made))
    if status != 0 and lib.tn_status_name(status) == b"BAD_CONTRACT":
        raise ValueError(last_error())
    check(status)
    assert made.value is not None
    return made.value, lib.tn_function_name(made).decode()


def kernel_text(address: int) -> str:
    """The text that `define` was given, as a file has it."""
    made = lib.tn_kernel_write(address)
    if not made:
        raise TenonError(last_error())
    try:
        return ctypes.string_at(made).decode()
    finally:
        lib.tn_free(made)


def fuse_graph(address: int, types: Sequence[str | None], ranks: Sequence[int], attributes: str) -> Any:
    """What a call of a formula computes (the format is in tenon/fuse.h); None where that cannot be said."""
    kinds = (ctypes.c_int * len(types))(*(0 if t is None else lib.tn_type_named(t.encode()) for t in types))
    made = lib.tn_fuse_graph_json(address, kinds, (ctypes.c_int32 * len(ranks))(*ranks), attributes.encode())
    return _read_json(made) if made else None
