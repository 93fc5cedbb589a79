"""TensorFlow's names for Tenon's element types."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tenon.contract import NUMPY_NAMES

DTYPES: dict[str, tf.DType] = {name: tf.as_dtype(theirs) for name, theirs in NUMPY_NAMES.items()}
NAMES: dict[tf.DType, str] = {dtype: name for name, dtype in DTYPES.items()}


def dtype_name(value: Any) -> str | None:
    """Tenon's name of what TensorFlow takes for a type; None where there is none."""
    try:
        return NAMES.get(tf.as_dtype(value))
    except TypeError:
        return None
