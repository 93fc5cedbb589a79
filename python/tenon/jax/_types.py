"""JAX's names for Tenon's element types, and arrays as contracts see them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tenon.contract import NUMPY_NAMES, Input, Operand

DTYPES: dict[str, Any] = {name: getattr(jnp, theirs) for name, theirs in NUMPY_NAMES.items()}
NAMES: dict[Any, str] = {np.dtype(dtype): name for name, dtype in DTYPES.items()}


X64 = 'jax.config.update("jax_enable_x64", True) lets JAX have {}'  # of a type that it has not

_SEED = [{"expr": 2}]  # the shape of one


def is_wide(param: Input) -> bool:
    """An input of 64-bit integers and nothing else, as seeds are."""
    return bool(param.type.get("fixed") == ["i64"])


def widened(param: Input, value: jax.Array) -> jax.Array:
    """Integers of at most 32 bits as i64; where JAX has no such type, as pairs of words, the low one first, which is
    the same memory (adapters/jax/jax.c reads it so). Keys of jax.random are their data; two words are two integers, and
    so are the four of `rbg`, which has as many bits as a seed."""
    if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        value = jax.random.key_data(value)
    if param.shape == _SEED and value.shape == (4,) and value.dtype == np.uint32:
        to = jnp.int64 if jax.config.jax_enable_x64 else jnp.int32
        return jax.lax.bitcast_convert_type(value.reshape(2, 2), to)
    if value.dtype == np.int64 or not jnp.issubdtype(value.dtype, jnp.integer):
        return value
    if jax.config.jax_enable_x64:
        return value.astype(jnp.int64)
    low = jax.lax.bitcast_convert_type(value, jnp.int32) if value.dtype == np.uint32 else value.astype(jnp.int32)
    high = jnp.zeros_like(low) if jnp.issubdtype(value.dtype, jnp.unsignedinteger) else low >> 31
    return jnp.stack([low, high], axis=-1)


def wide_array(value: np.ndarray[Any, Any]) -> jax.Array:
    """Integers of 64 bits as `widened` has them; JAX would cut off what it has no type for."""
    if jax.config.jax_enable_x64:
        return jnp.asarray(value.astype(np.int64))
    words = np.ascontiguousarray(value.astype("<i8")).view(np.dtype("<i4"))
    return jnp.asarray(words.reshape(*value.shape, 2))


def operand(param: Input, value: Any) -> Operand:
    """The type and sizes of an array, as `widened` made it; sizes may be symbolic."""
    name = NAMES.get(value.dtype)
    if name is None:
        raise TypeError(f"{param.name} has type {value.dtype}, which Tenon does not have")
    if name == "i32" and is_wide(param):
        return "i64", tuple(value.shape[:-1])
    return name, tuple(value.shape)
