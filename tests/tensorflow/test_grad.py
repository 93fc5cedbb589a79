"""Gradients: every rule against finite differences, in the ways that TensorFlow can ask for one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from cases import Case, cases, each_operator, one_each
from differences import assert_gradients
from functional import assert_close, is_exact, is_rough

import tenon.tensorflow as tn


@pytest.mark.parametrize("case", cases(300, is_exact), ids=str)
def test_against_differences(case: Case) -> None:
    given = case.make("f64", same=True)
    names = [n for n in case.smooth(given) if given[n].dtype == np.float64]  # others are too coarse
    function = case.of(given, names)

    def gradients(values: Any, weights: Any) -> Any:
        values = [tf.constant(v) for v in values]
        with tf.GradientTape() as tape:
            tape.watch(values)
            made = function(*values)
        return arrays(tape.gradient(made, values, [tf.constant(w) for w in weights]))

    def arrays(values: Any) -> list[np.ndarray]:
        return [np.asarray(value) for value in values]

    assert_gradients(lambda values: arrays(function(*values)), gradients, arrays([given[n] for n in names]))


def is_small(case: Case) -> bool:
    """And not empty: a logsumexp of nothing is -inf, and so has no differences."""
    return is_exact(case) and case.numel <= 300 and all(0 not in given["shape"] for given in case.sample["inputs"])


@pytest.mark.parametrize("case", one_each(is_small), ids=str)
def test_by_tensorflow_itself(case: Case) -> None:
    given = case.make("f64", same=True)
    names = [n for n in case.smooth(given) if given[n].shape.num_elements()]
    function = case.of(given, names)
    for i in range(len(function(*(given[n] for n in names)))):
        have, want = tf.test.compute_gradient(
            lambda *values: function(*values)[i],  # noqa: B023
            [given[n] for n in names],
            delta=1e-5,
        )
        for a, b in zip(have, want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def gradients(case: Case, given: Any, names: list[str]) -> list[Any]:
    values = [given[n] for n in names]
    with tf.GradientTape() as tape:
        tape.watch(values)
        total = tf.add_n([tf.reduce_sum(tf.cast(r, tf.float64)) for r in case.of(given, names)(*values)])
    return tape.gradient(total, values)


@pytest.mark.parametrize("case", [*one_each(is_exact), *each_operator(is_rough)], ids=str)
def test_in_graphs_and_for_some_inputs(case: Case) -> None:
    """The same gradient from a graph, from a graph without sizes, from outside of a graph, and of each input alone."""
    given = case.make("f64")
    names = case.smooth(given)
    values = [given[n] for n in names]
    want = gradients(case, given, names)
    for value, d in zip(values, want, strict=True):
        assert d.shape == value.shape and d.dtype == value.dtype
    for sizes in (True, False):
        specs = [tf.TensorSpec(v.shape if sizes else [None] * len(v.shape), v.dtype) for v in values]

        @tf.function(input_signature=specs)
        def inside(*values: Any) -> Any:
            return gradients(case, given | dict(zip(names, values, strict=True)), names)

        assert_close(inside(*values), want, "f64")
        outside = tf.function(case.of(given, names), input_signature=specs)
        outside(*values)  # traced without a tape
        with tf.GradientTape() as tape:
            tape.watch(values)
            total = tf.add_n([tf.reduce_sum(tf.cast(r, tf.float64)) for r in outside(*values)])
        assert_close(tape.gradient(total, values), want, "f64")
    for name, d in zip(names, want, strict=True):
        assert_close(gradients(case, given, [name]), d, "f64")


def test_types_of_gradients() -> None:
    x, gamma = tf.ones((4, 8), tf.bfloat16), tf.ones(8)
    with tf.GradientTape() as tape:
        tape.watch([x, gamma])
        y = tn.layer_norm(x, gamma)
    assert [d.dtype for d in tape.gradient(y, [x, gamma])] == [tf.bfloat16, tf.float32]


def test_gradients_of_gradients() -> None:
    """Where the operators of a rule have rules themselves, as formulas do."""
    x, y = tf.linspace(-2.0, 2.0, 7), tf.linspace(1.0, 3.0, 7)

    def twice(function: Any) -> Any:
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                first = tf.reduce_sum(function(x) ** 2)
            second = tf.reduce_sum(inner.gradient(first, x) ** 2)
        return outer.gradient(second, x)

    def plain_norm(t: Any) -> Any:
        return (t * t - tf.reduce_mean(t * t)) * tf.math.rsqrt(tf.math.reduce_variance(t * t) + 1e-5)

    for have, want in (
        (tn.silu, tf.nn.silu),
        (lambda t: tn.mul(t, y), lambda t: t * y),
        (tn.tanh, tf.tanh),
        (tn.softmax, tf.nn.softmax),
        (lambda t: tn.layer_norm(t * t), plain_norm),
    ):
        assert_close(twice(have), twice(want))
        assert_close(tf.function(twice)(have), twice(want))


def test_sizes_that_broadcast_when_the_graph_runs() -> None:
    """Which of two batches has a size of 1 is not known when the gradient is made."""

    @tf.function(input_signature=[tf.TensorSpec([None, 3])] * 2)
    def both(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch([x, y])
            z = tn.add(x, y)
        return tape.gradient(z, [x, y])

    x, y = tf.ones((4, 3)), tf.ones((1, 3))
    assert_close(both(x, y), [np.ones((4, 3)), np.full((1, 3), 4.0)])
    assert_close(both(y, x), [np.full((1, 3), 4.0), np.ones((4, 3))])


def test_ranks_that_are_not_known() -> None:
    x = tf.ones((4, 3))

    @tf.function(input_signature=[tf.TensorSpec(None)], autograph=False)
    def told(x: Any) -> Any:
        x = tf.ensure_shape(x, [None, None])
        return tf.gradients(tn.sum(x, axis=1), x)[0]

    @tf.function(input_signature=[tf.TensorSpec(None)], autograph=False)
    def untold(x: Any) -> Any:
        return tf.gradients(tn.sum(x, axis=1), x)[0]

    assert_close(told(x), np.ones((4, 3)))
    with pytest.raises(NotImplementedError, match=r"sum: x has a rank that the gradient needs.*tf.ensure_shape"):
        untold(x)


def test_loops() -> None:
    x = tf.linspace(-1.0, 1.0, 6)

    def steps(x: Any, silu: Any) -> Any:
        return tf.while_loop(lambda i, t: i < 3, lambda i, t: (i + 1, silu(t)), (0, x))[1]

    @tf.function
    def gradient(silu: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = steps(x, silu)
        return tape.gradient(y, x)

    assert_close(gradient(tn.silu), gradient(tf.nn.silu))


def test_recompute_grad() -> None:
    x = tf.linspace(-1.0, 1.0, 6)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.recompute_grad(tn.gelu)(x)
    assert_close(tape.gradient(y, x), gradient_of(tf.nn.gelu, x))


def gradient_of(function: Any, x: Any) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = function(x)
    return tape.gradient(y, x)


def test_sparse_gradients_are_taken() -> None:
    """tf.gather's gradient is a tf.IndexedSlices."""
    x = tf.random.normal((5, 3))
    have = gradient_of(lambda t: tf.gather(tn.silu(t), [1, 1, 4]), x)
    assert_close(have, gradient_of(lambda t: tf.gather(tf.nn.silu(t), [1, 1, 4]), x))


def test_updates_are_constants_to_gradients() -> None:
    """Running statistics may be carried along, in variables that a tape watches too."""
    x = tf.constant(np.random.default_rng(0).standard_normal((6, 3)))
    mean, var = tf.Variable(tf.zeros(3)), tf.Variable(tf.ones(3))

    def loss(x: Any) -> Any:
        y, new_mean, new_var = tn.batch_norm(x, None, None, mean, var)
        return tf.reduce_sum(y**3) + tf.cast(tf.reduce_sum(new_mean + new_var), tf.float64)

    def plain(x: Any) -> Any:
        centred = x - tf.reduce_mean(x, 0)
        return tf.reduce_sum((centred * tf.math.rsqrt(tf.reduce_mean(centred**2, 0) + 1e-5)) ** 3)

    assert_close(gradient_of(loss, x), gradient_of(plain, x), "f64")
    assert np.all(mean != 0)


@pytest.mark.parametrize("known", [True, False])
def test_inputs_that_meet_behind_reductions(known: bool) -> None:
    """A graph that knows no sizes, or not even how many there are."""
    norm = tn.fuse("(x - mean(x, -1)) * rsqrt(var(x, -1) + 1e-5) * g + b")
    given = [tf.constant(np.random.default_rng(0).standard_normal(s)) for s in ((4, 3), (3,), ())]

    def plain(x: Any, g: Any, b: Any) -> Any:
        centred = x - tf.reduce_mean(x, -1, keepdims=True)
        return centred * tf.math.rsqrt(tf.reduce_mean(centred**2, -1, keepdims=True) + 1e-5) * g + b

    def gradients(function: Any, *tensors: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            made = tf.sin(function(*tensors))
        return tape.gradient(made, tensors)

    specs = [tf.TensorSpec([None] * len(t.shape) if known else None, t.dtype) for t in given]
    have = tf.function(lambda *tensors: gradients(norm, *tensors), input_signature=specs)(*given)
    for d, want in zip(have, gradients(plain, *given), strict=True):
        assert_close(d, want, "f64", scale=8)


def test_what_has_steps_has_a_gradient_of_0() -> None:
    x, y = tf.linspace(-1.0, 1.0, 6), tf.ones(6)
    assert_close(gradient_of(lambda t: tn.fuse("floor(x) * y")(t, y), x), np.zeros(6))


# ---- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrap", [lambda f: f, tf.function], ids=["eager", "graph"])
def test_operators_without_a_rule(wrap: Any) -> None:
    x = tf.ones((2, 3))
    with pytest.raises(NotImplementedError, match="cross_entropy_grad has no gradient rule"):
        wrap(lambda: gradient_of(lambda t: tn.cross_entropy_grad(t, tf.constant(1.0)), x))()
    q = tf.ones((1, 1, 2, 3))
    with pytest.raises(NotImplementedError, match="attention_grad has no gradient rule"):
        wrap(lambda: gradient_of(lambda t: gradient_of(lambda s: tn.attention(s, s, s)[0] ** 2, t), q))()
    with pytest.raises(NotImplementedError, match="sgd_step has no gradient rule"):
        wrap(lambda: gradient_of(lambda t: tn.sgd_step(x, t, x, 0.1)[0], x))()


def test_inputs_without_a_gradient() -> None:
    """Refused where TensorFlow says what is needed; None in a graph, where it asks for everything."""
    x, target, weight = tf.ones((2, 3)), tf.zeros(2, tf.int32), tf.ones(3)
    want = gradient_of(lambda t: tn.cross_entropy(t, target, weight), x)
    assert_close(gradient_of(tf.function(lambda t: tn.cross_entropy(t, target, weight)), x), want)
    with pytest.raises(NotImplementedError, match="cross_entropy has no gradient for weight"):
        gradient_of(lambda t: tn.cross_entropy(x, target, t), weight)
    graph = tf.function(lambda x, t: tn.cross_entropy(x, target, t))
    with tf.GradientTape() as tape:
        tape.watch([x, weight])
        loss = graph(x, weight)
    dx, dweight = tape.gradient(loss, [x, weight])
    assert dweight is None and np.isfinite(dx).all()
    with tf.GradientTape() as tape:
        tape.watch(weight)
        loss = graph(x, weight * 2) + tf.reduce_sum(weight)
    assert_close(tape.gradient(loss, weight), tf.ones_like(weight))
