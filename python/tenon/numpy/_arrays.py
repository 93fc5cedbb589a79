"""Arrays as the C library sees them: NumPy's own, and whatever speaks DLPack or __cuda_array_interface__.

A DLPack capsule holds a DLTensor, which is the library's tensor: nothing is copied or translated.
"""

from __future__ import annotations

import ctypes
import importlib
import sys
from collections.abc import Sequence
from typing import Any

import numpy
from numpy import ndarray

from tenon._frame import kind_of, make_tensor, type_number
from tenon._structs import CPU, CUDA, MAX_RANK, Tensor
from tenon.contract import NUMPY_NAMES, Operand

_EXTENSIONS = ("bf16", "e4m3", "e5m2")
_KINDS = {name: kind for kind, name in NUMPY_NAMES.items()}
_NUMBERS = {type_number(kind): kind for kind in NUMPY_NAMES}  # tn_type
_DTYPES: dict[int, Any] = {
    number: numpy.dtype(NUMPY_NAMES[k]) for number, k in _NUMBERS.items() if k not in _EXTENSIONS
}

_CUDA_HOST, _CUDA_MANAGED = 3, 13  # of DLDeviceType; Tenon has CPU and CUDA alone
_READ_ONLY, _COPIED = 1, 2  # flags of a DLManagedTensorVersioned
_FLAGS_AT, _TENSOR_AT = 24, 32  # where it has them and the tensor; the older struct begins with the tensor

_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_capsule_pointer.restype = ctypes.c_void_p
_capsule_is = ctypes.pythonapi.PyCapsule_IsValid
_capsule_is.argtypes = [ctypes.py_object, ctypes.c_char_p]
_capsule_is.restype = ctypes.c_int

Held = tuple[Any, int]  # what keeps a tensor alive, and its address


def dtype_name(dtype: Any) -> str | None:
    """Tenon's name of an element type; None where it has none."""
    try:
        named = isinstance(dtype, str) and dtype in _KINDS  # those of ml_dtypes, too, where it is not imported
        return _KINDS[dtype] if named else _KINDS.get(numpy.dtype(dtype).name)
    except TypeError:
        return None


def is_real(dtype: Any) -> bool:
    """Whether it is of numbers that a floating type may have: casts take dates and complex numbers too."""
    return dtype.kind in "biuf" or dtype_name(dtype) in _EXTENSIONS


def dtype_of(number: int, what: str) -> Any:
    """NumPy's dtype of a tn_type."""
    dtype = _DTYPES.get(number)
    if dtype is None:
        kind = _NUMBERS[number]
        try:
            dtype = numpy.dtype(getattr(importlib.import_module("ml_dtypes"), NUMPY_NAMES[kind]))
        except ModuleNotFoundError:
            message = f"{what} is {kind}, which NumPy has with the package ml_dtypes alone: pip install ml_dtypes"
            raise TypeError(message) from None
        _DTYPES[number] = dtype
    return dtype


def is_array(value: Any) -> bool:
    """Whether something can be read as an array where it lies."""
    return isinstance(value, ndarray) or hasattr(value, "__dlpack__") or hasattr(value, "__cuda_array_interface__")


def operand(held: Held) -> Operand:
    """The type and sizes of a tensor."""
    tensor = Tensor.from_address(held[1])
    return kind_of(tensor), tuple(tensor.shape[: tensor.ndim])


# ---- reading ---------------------------------------------------------------------------------------------------------


def read(value: Any, what: str, written: bool) -> Held:
    """The tensor of an array; `what` names it in messages ("softmax: x")."""
    if type(value) is ndarray:
        try:
            capsule = value.__dlpack__() if value.flags.aligned else None  # refused to arrays that are read-only
        except (BufferError, TypeError, RuntimeError):
            capsule = None
        return (capsule, _capsule_pointer(capsule, b"dltensor")) if capsule else _numpy_tensor(value, what, written)
    if isinstance(value, numpy.ma.MaskedArray):
        raise TypeError(f"{what} has a mask, which Tenon would not look at; its .data has none")
    if isinstance(value, ndarray | numpy.generic):
        if written and isinstance(value, numpy.generic):
            raise ValueError(f"{what} is written to, but this is a number of NumPy, not an array")
        return _numpy_tensor(numpy.asarray(value), what, written)
    interface = getattr(value, "__cuda_array_interface__", None)
    if interface is not None and ("stream" in interface or not hasattr(value, "__dlpack__")):
        return _cuda_tensor(value, interface, what, written)
    if hasattr(value, "__dlpack__"):
        return _dlpack_tensor(value, what, written)
    hint = "None" if value is None else f"{type(value).__name__}; numpy.asarray(…) makes one"
    raise TypeError(f"{what} must be an array, not {hint}")


def _check(dtype: Any, ndim: int, read_only: bool, what: str, written: bool) -> str:
    """Tenon's name of the element type."""
    kind = _KINDS.get(dtype.name)
    if kind is None:
        raise TypeError(f"{what} has type {dtype}, which Tenon does not have")
    if ndim > MAX_RANK:
        raise ValueError(f"{what} has rank {ndim}; Tenon goes up to {MAX_RANK}")
    if written and read_only:
        raise ValueError(f"{what} is written to, but this array is read-only")
    return kind


def _in_elements(strides: Sequence[int], size: int) -> list[int] | None:
    """Strides in elements, from bytes; None where they are no multiples."""
    return [s // size for s in strides] if all(s % size == 0 for s in strides) else None


def _numpy_tensor(array: ndarray[Any, Any], what: str, written: bool) -> Held:
    """What NumPy does not hand out by DLPack: types of ml_dtypes, read-only arrays, odd strides and byte orders."""
    kind = _check(array.dtype, array.ndim, not array.flags.writeable, what, written)
    strides = _in_elements(array.strides, array.itemsize)
    if strides is None or not array.dtype.isnative or not array.flags.aligned:
        if written:
            raise ValueError(f"{what} is written to, so its elements must be aligned and in the machine's byte order")
        array = array.astype(array.dtype.newbyteorder("="), order="C")
        strides = None
    tensor = make_tensor(array.ctypes.data, (CPU, 0), kind, array.shape, strides)
    return (array, tensor), ctypes.addressof(tensor)


def _cuda_tensor(value: Any, interface: Any, what: str, written: bool) -> Held:
    dtype, shape, strides = numpy.dtype(interface["typestr"]), interface["shape"], interface.get("strides")
    data, read_only = interface["data"]
    kind = _check(dtype, len(shape), read_only, what, written)
    if interface.get("mask") is not None:
        raise TypeError(f"{what} has a mask, which Tenon would not look at")
    steps = None if strides is None else _in_elements(strides, dtype.itemsize)
    if strides is not None and steps is None:
        raise ValueError(f"{what} has strides of {tuple(strides)} bytes, which are no multiples of its elements")
    tensor = make_tensor(data, (CUDA, _gpu_of(value)), kind, shape, steps)
    return (value, tensor), ctypes.addressof(tensor)


def _gpu_of(value: Any) -> int:
    """The interface does not say on which GPU the array is."""
    if hasattr(value, "__dlpack_device__"):
        return int(value.__dlpack_device__()[1])
    return int(getattr(getattr(value, "device", None), "id", 0))


def _capsule_of(value: Any, what: str) -> Any:
    """The capsule; on a GPU the memory is ready for the default stream."""
    try:
        kind = value.__dlpack_device__()[0] if hasattr(value, "__dlpack_device__") else CPU
        named = {"stream": 1} if kind in (CUDA, _CUDA_MANAGED) else {}
        try:
            return value.__dlpack__(max_version=(1, 0), **named)
        except TypeError:  # from before DLPack 1.0
            return value.__dlpack__(**named)
    except Exception as error:
        raise TypeError(f"{what} does not give its memory away: {error}") from error


_IMMUTABLE = ("jax", "jaxlib", "tensorflow")  # which do not say so


def _is_negated(value: Any) -> bool:
    """torch's tensors may be the negative of what their memory has, which DLPack does not tell."""
    is_neg = getattr(value, "is_neg", None)
    return bool(callable(is_neg) and is_neg())


def _dlpack_tensor(value: Any, what: str, written: bool) -> Held:
    package = type(value).__module__.partition(".")[0]
    if written and package in _IMMUTABLE:
        raise ValueError(f"{what} is written to, but {package}'s arrays are read-only")
    if _is_negated(value):
        if written:
            raise ValueError(f"{what} is written to, but its memory has the opposite sign (is_neg())")
        value = value.resolve_neg()
    capsule = _capsule_of(value, what)
    flags = 0
    if _capsule_is(capsule, b"dltensor_versioned"):
        address = _capsule_pointer(capsule, b"dltensor_versioned")
        major = ctypes.c_uint32.from_address(address).value
        if major != 1:
            raise TypeError(f"{what} comes as DLPack {major}, and Tenon knows 1")
        flags = ctypes.c_uint64.from_address(address + _FLAGS_AT).value
        address += _TENSOR_AT
    elif _capsule_is(capsule, b"dltensor"):
        address = _capsule_pointer(capsule, b"dltensor")
    else:
        raise TypeError(f"{what}: __dlpack__ of {type(value).__name__} gave no DLPack capsule")
    if written and flags & (_READ_ONLY | _COPIED):
        why = "this array is read-only" if flags & _READ_ONLY else "its memory cannot be shared"
        raise ValueError(f"{what} is written to, but {why}")
    tensor = Tensor.from_address(address)
    if tensor.device.kind in (CPU, CUDA):
        return (capsule, value), address
    if tensor.device.kind not in (_CUDA_HOST, _CUDA_MANAGED):
        raise TypeError(f"{what} is on a device that Tenon does not know (DLPack's number {tensor.device.kind})")
    moved = Tensor.from_buffer_copy(tensor)
    if tensor.device.kind == _CUDA_HOST:  # pinned memory is the CPU's
        moved.device = (CPU, 0)
    else:
        moved.device.kind = CUDA
    return (capsule, value, moved), ctypes.addressof(moved)


# ---- GPUs ------------------------------------------------------------------------------------------------------------


def is_on_gpu(held: Held) -> bool:
    return bool(Tensor.from_address(held[1]).device.kind == CUDA)


def stream_of(value: Any) -> int | None:
    """The CUDA stream that an array wants its work on: CuPy's say so. Others are ready for the default one, None."""
    interface = getattr(value, "__cuda_array_interface__", None) or {}
    return interface.get("stream")


def made_like(value: Any, maker: str, shape: Sequence[int], number: int, what: str, *more: Any) -> Any:
    """An array of the same kind as `value`, which is on a GPU, by `empty` or `full` of the module that it is from."""
    root = type(value).__module__.partition(".")[0]
    make = getattr(sys.modules.get(root), maker, None)
    if make is None:
        raise TypeError(f"{what} would be an array of {root}, which has no {root}.{maker} to make one with")
    dtype = getattr(sys.modules[root], NUMPY_NAMES[_NUMBERS[number]], None) or _DTYPES.get(number)
    with value.device:
        return make(tuple(shape), *more, dtype=dtype)
