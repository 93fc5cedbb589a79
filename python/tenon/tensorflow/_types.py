"""TensorFlow's names for Tenon's element types."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

_NAMES = {
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float32",
    "f64": "float64",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "u8": "uint8",
    "bool": "bool",
    "c64": "complex64",
    "c128": "complex128",
    "e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2",
}
DTYPES: dict[str, tf.DType] = {name: tf.as_dtype(theirs) for name, theirs in _NAMES.items()}
NAMES: dict[tf.DType, str] = {dtype: name for name, dtype in DTYPES.items()}


def dtype_name(value: Any) -> str | None:
    """Tenon's name of what TensorFlow takes for a type; None where there is none."""
    try:
        return NAMES.get(tf.as_dtype(value))
    except TypeError:
        return None
