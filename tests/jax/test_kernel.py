"""Kernels as text in JAX."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from kernels import triple

import tenon.jax as tn


def test_calls_and_gradients() -> None:
    kernel = triple()
    x = jnp.arange(6.0).reshape(2, 3)
    for function in (kernel, tn.triple, jax.jit(kernel), jax.jit(tn.triple)):
        np.testing.assert_allclose(function(x), 3 * np.asarray(x))
    np.testing.assert_allclose(jax.jit(jax.grad(lambda v: kernel(v, c=2.0).sum()))(x), np.full((2, 3), 3.0))
    assert kernel(x.astype(jnp.bfloat16), 1.0).dtype == jnp.bfloat16
    np.testing.assert_allclose(jax.vmap(kernel)(x), 3 * np.asarray(x))
