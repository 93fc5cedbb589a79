"""torch's names for Tenon's element types, and tensors as contracts see them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tenon.contract import Argument, Operand

DTYPES: dict[str, torch.dtype] = {
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f32": torch.float32,
    "f64": torch.float64,
    "i8": torch.int8,
    "i16": torch.int16,
    "i32": torch.int32,
    "i64": torch.int64,
    "u8": torch.uint8,
    "bool": torch.bool,
    "c64": torch.complex64,
    "c128": torch.complex128,
    "e4m3": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2,
}
NAMES: dict[torch.dtype, str] = {dtype: name for name, dtype in DTYPES.items()}


def operand(tensor: Tensor) -> Operand:
    """The type and sizes of a tensor; sizes may be symbolic."""
    name = NAMES.get(tensor.dtype)
    if name is None:
        raise TypeError(f"Tenon has no type for {tensor.dtype}")
    return name, tuple(tensor.shape)


def argument(value: Any) -> Argument:
    """An input of a call: a tensor, a list of them, or None."""
    if value is None:
        return None
    return operand(value) if isinstance(value, Tensor) else [operand(t) for t in value]
