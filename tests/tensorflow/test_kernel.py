"""Kernels as text in TensorFlow."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from kernels import triple

import tenon.tensorflow as tn


def test_calls_and_gradients() -> None:
    kernel = triple()
    x = tf.reshape(tf.range(6.0), (2, 3))
    for function in (kernel, tn.triple, tf.function(kernel), tf.function(tn.triple)):
        np.testing.assert_allclose(function(x), 3 * x.numpy())
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.function(lambda v: kernel(v, c=2.0))(x)
    np.testing.assert_allclose(tape.gradient(y, x), np.full((2, 3), 3.0))
    assert kernel(tf.cast(x, tf.bfloat16), 1.0).dtype == tf.bfloat16
