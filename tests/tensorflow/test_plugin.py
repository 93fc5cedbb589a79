"""Operators from a shared object reach TensorFlow at once, with everything that the contract language allows."""

from __future__ import annotations

import inspect
import pathlib
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from functional import assert_close

import tenon
import tenon.tensorflow as tn

X = tf.constant(np.random.default_rng(0).standard_normal((3, 4)))
WAYS = pytest.mark.parametrize("wrap", [lambda f: f, tf.function], ids=["eager", "graph"])


pytestmark = pytest.mark.usefixtures("plugin")


def gradient_of(function: Any, *values: Any) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(values)
        y = function(*values)
    return tape.gradient(y, values)


def test_they_are_there(plugin: pathlib.Path) -> None:
    assert "cube" in tn.ops() and tn.load is tenon.load
    before = tn.ops()
    tn.load(plugin)  # again: nothing happens
    assert tn.ops() == before
    assert_close(tn.cube(X), X**3, "f64")


@WAYS
def test_numbers_for_0_dim_inputs(wrap: Any) -> None:
    for alpha in (2, 2.0, np.float32(2), tf.constant(2)):
        assert_close(wrap(lambda: tn.scaled(X, alpha))(), 2 * X, "f64")  # noqa: B023
    assert tn.scaled(tf.cast(X, tf.float16), 0.5).dtype == tf.float16  # acc(f16) is f32
    with pytest.raises(TypeError, match="scaled: alpha has type f32, needs f64"):
        tn.scaled(X, tf.constant(0.5))


@WAYS
def test_lists(wrap: Any) -> None:
    parts = [tf.fill((n, 3), float(n)) for n in (1, 4, 0, 2)]
    assert_close(wrap(tn.joined)(parts), tf.concat(parts, 0))
    assert_close(wrap(tn.joined)([tf.constant([1, 2]), tf.constant([3])]), np.array([1, 2, 3]))
    count, updated = wrap(tn.step_list)([X, X[0]], [X, X[0]], 0.25)
    assert count == 2
    assert_close(updated, [0.75 * X, 0.75 * X[0]], "f64")


@WAYS
def test_attributes_of_every_kind(wrap: Any) -> None:
    x = tf.reshape(tf.range(18.0), (2, 9))
    want = tf.stack([tf.reduce_sum(x[:, i : i + 3], -1) for i in (0, 2, 4, 6)], -1)
    assert tn.pooled(x, 3).dtype == tf.float64
    assert_close(wrap(lambda: tn.pooled(x, 3, [2], tf.float32))(), want)
    assert wrap(lambda: tn.pooled(x, 3, out=np.float16))().dtype == tf.float16
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match="pooled: needs size <= h"):
        wrap(lambda: tn.pooled(x, 10))()
    with pytest.raises(TypeError, match=r"pooled: out is .*, needs a type that Tenon has"):
        tn.pooled(x, 3, out=tf.qint8)
    assert_close(wrap(lambda: tn.ordered(x[None], [2, -3, 1]))(), tf.transpose(x[None], (2, 0, 1)))
    assert_close(wrap(lambda: tn.outer(X[:, None], X[0]))(), X[:, None] + X[0], "f64")
    assert wrap(lambda: tn.nothing(tf.ones((2, 1, 3)), lambda_=2))().shape == (2, 1, 6)


def test_required_behind_optional() -> None:
    assert_close(tn.grouped(X, None, 2), X, "f64")
    assert_close(tn.grouped(X, groups=2, b=tf.ones(4, tf.float64), add=0.5, sign="minus"), 1.5 - X, "f64")
    with pytest.raises(TypeError, match=r"grouped\(\) missing 1 required argument: 'groups'"):
        tn.grouped(X)
    assert "groups: int = <required>" in str(inspect.signature(tn.grouped))


@WAYS
def test_outputs_on_request(wrap: Any) -> None:
    assert isinstance(tn.grouped(X, groups=2), tf.Tensor)
    _, sums = wrap(lambda: tn.grouped(X, groups=2, want_sums=True))()
    assert_close(sums, tf.reduce_sum(tf.reshape(X, (3, 2, 2)), -1), "f64")


@WAYS
def test_rules(wrap: Any) -> None:
    """Several differentiable outputs of which one is used; two statements for one input; locals; sizes as arguments."""
    one = np.ones((3, 4))
    one[:, 2:] = 0
    assert_close(wrap(lambda: gradient_of(lambda x: tn.halves(x)[0], X))(), [one], "f64")
    assert_close(wrap(lambda: gradient_of(lambda x: tn.halves(x)[1], X))(), [1 - one], "f64")
    assert_close(wrap(lambda: gradient_of(tn.cube, X))(), [3 * X**2], "f64")
    both = wrap(lambda: gradient_of(lambda x, y: tn.product(x, y, 2.0), X, X + 1))()
    assert_close(both, [2 * (X + 1), 2 * X], "f64")
    assert_close(wrap(lambda: gradient_of(lambda x: tn.product(x, x), X))(), [2 * X], "f64")
    want = 2 * tf.reduce_sum(X, -1, keepdims=True) + 0 * X
    assert_close(wrap(lambda: gradient_of(lambda x: tn.row_sum(x) ** 2, X))(), [want], "f64")


def test_sizes_of_rules_that_are_not_known() -> None:
    """A rule hands a size on as an attribute: it becomes a tensor in a graph that does not know it."""
    spec = [tf.TensorSpec([None, None], tf.float64)]
    for function in (tn.row_sum, tn.sum, lambda x: tn.sum(x, axis=[1])):
        have = tf.function(lambda x: gradient_of(lambda t: function(t) ** 2, x), input_signature=spec)(X)  # noqa: B023
        assert_close(have, gradient_of(lambda t: function(t) ** 2, X), "f64")  # noqa: B023

    @tf.function(input_signature=spec)
    def twice(x: Any) -> Any:
        return gradient_of(lambda t: gradient_of(lambda s: tn.row_sum(s) ** 3, t)[0] ** 2, x)

    rows = tf.reduce_sum(X, -1, keepdims=True)
    assert_close(twice(X), [144 * rows**3 + 0 * X], "f64")
