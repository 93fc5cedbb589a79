"""Every operator against the C reference, and the ways to call it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import arrays
import numpy as np
import pytest
import tensorflow as tf
from cases import Case, cases, dealt, one_each
from functional import assert_close

import tenon.tensorflow as tn
from tenon.tensorflow._types import NAMES


@pytest.mark.parametrize("case", cases(), ids=str)
def test_agrees_with_reference(case: Case) -> None:
    case.check()


@pytest.mark.parametrize(("case", "T"), dealt(one_each(), ["f16", "bf16", "f64"], each=2), ids=str)
def test_types(case: Case, T: str) -> None:
    case.check(T)


@pytest.mark.parametrize("known", [True, False], ids=["known", "unknown"])
@pytest.mark.parametrize("case", one_each(), ids=str)
def test_graphs(case: Case, known: bool) -> None:
    """With the sizes of all tensors, and without one of them; a graph knows shapes that are those of eager mode."""
    given = case.make()
    want = case.call(given)
    fixed = {n: v for n, v in given.items() if n not in case.tensors}
    shapes: list[Any] = []

    def spec(t: tf.Tensor) -> tf.TensorSpec:
        return tf.TensorSpec(t.shape if known else [None] * len(t.shape), t.dtype)

    def call(tensors: Any) -> Any:
        made = case.call(fixed | tensors)
        shapes[:] = [t.shape for t in made]
        return made

    tensors = {n: given[n] for n in case.tensors if given[n] is not None}
    absent = {n: None for n in case.tensors if given[n] is None}
    traced = tf.function(lambda t: call(t | absent), input_signature=[tf.nest.map_structure(spec, tensors)])
    assert_close(traced(tensors), want)
    for have, result in zip(shapes, want, strict=True):
        assert have.rank == len(result.shape)
        assert have == result.shape if known else have.is_compatible_with(result.shape)


def test_what_is_known_of_shapes_is_passed_on() -> None:
    @tf.function(input_signature=[tf.TensorSpec([None, 8]), tf.TensorSpec([None, 8]), tf.TensorSpec(None)])
    def call(x: Any, y: Any, z: Any) -> Any:
        assert tn.softmax(x).shape.as_list() == tn.fuse("silu(x) * y")(x, x).shape.as_list() == [None, 8]
        assert tn.add(x, y).shape.as_list() == [None, 8]
        assert tn.sum(x, axis=[0]).shape.as_list() == [8]
        assert tn.cross_entropy(x, tf.zeros(tf.shape(x)[0], tf.int32)).shape.as_list() == []
        assert tn.silu(z).shape.rank is None
        return tn.add(x, y), tn.silu(z)

    x = tf.random.normal((3, 8))
    have, silu = call(x, x[:1], x)
    assert_close(have, x + x[:1])
    assert_close(silu, tf.nn.silu(x))


# ---- what is updated -------------------------------------------------------------------------------------------------


def test_tensors_are_not_written_to() -> None:
    p, g, m = tf.ones(5), tf.ones(5), tf.zeros(5)
    new_p, new_m = tn.sgd_step(p, g, m, 0.5)
    assert np.all(p == 1) and np.all(m == 0)
    assert_close([new_p, new_m], [np.full(5, 0.5), np.ones(5)])


@pytest.mark.parametrize("wrap", [lambda f: f, tf.function], ids=["eager", "graph"])
def test_variables_are_assigned(wrap: Any) -> None:
    p, g, m = tf.Variable(tf.ones(5)), tf.ones(5), tf.Variable(tf.zeros(5))
    step = wrap(lambda: tn.sgd_step(p, g, m, 0.5))
    new_p, _ = step()
    assert_close([p, m, new_p], [np.full(5, 0.5), np.ones(5), np.full(5, 0.5)])


def test_lists() -> None:
    p = [tf.Variable(tf.ones(3)), tf.Variable(tf.ones((2, 4))), tf.Variable(tf.ones(0))]
    m = [tf.zeros_like(a) for a in p]
    g = [tf.ones_like(a) for a in p]
    new_p, new_m = tn.sgd_step_list(p, g, m, 0.5)
    assert [a.shape for a in new_p] == [a.shape for a in p] == [a.shape for a in new_m]
    assert all(np.all(a == 0.5) for a in [*new_p, *p])
    norm, clipped = tn.clip_grad_norm(g, 1.0)
    assert_close([norm, clipped[0]], [np.sqrt(11.0), np.full(3, 1 / np.sqrt(11.0))])


def test_long_lists() -> None:
    random = np.random.default_rng(0)
    p, g, m, v = ([tf.constant(random.random((k * 37) % 500)) for k in range(150)] for _ in range(4))
    have = tn.adamw_step_list(p, g, m, v, None, 0.01, 3.0)
    want = [tn.adamw_step(*one, None, 0.01, 3.0) for one in zip(p, g, m, v, strict=True)]
    assert_close(have, [list(part) for part in zip(*want, strict=True)], "f64")


def test_optional_updates_are_left_out() -> None:
    p = tf.ones(3)
    assert len(tn.adamw_step(p, p, p, p, None, 0.1, 1.0)) == 3
    assert len(tn.adamw_step(p, p, p, p, p, 0.1, 1.0)) == 4


# ---- arguments -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("axes", arrays.AXES, ids=repr)
def test_a_single_axis_stands_for_a_list(axes: Any) -> None:
    arrays.assert_takes_axes(tn, tf.constant(np.arange(6.0).reshape(2, 3)), axes)


@pytest.mark.parametrize("number", arrays.NUMBERS, ids=repr)
def test_what_numpy_makes_of_a_number(number: Any) -> None:
    arrays.assert_takes_number(tn, tf.constant(np.ones(3, np.float32)), number)


def test_numbers_for_tensors_without_dimensions() -> None:
    """Of the type that the contract says; integers too, as of a step that is counted."""
    p, g, m = tf.ones(5, tf.bfloat16), tf.ones(5, tf.bfloat16), tf.zeros(5)
    want = tn.sgd_step(p, g, m, tf.constant(0.25))
    for lr in (0.25, np.float64(0.25), np.array(0.25, np.float32), tf.Variable(0.25)):
        assert_close(tn.sgd_step(p, g, m, lr), want)
    x = tf.ones(3)
    counted = tn.adamw_step(x, x, x, x, None, 0.1, tf.Variable(2, dtype=tf.int64))
    assert_close(counted, tn.adamw_step(x, x, x, x, None, 0.1, 2.0))


def test_attributes_keep_all_their_digits() -> None:
    """TensorFlow's float attributes have 32 bits."""
    x = tf.constant([-3.0], tf.float64)
    slope = 0.1234567890123456
    assert tn.leaky_relu(x, slope).numpy()[0] == -3.0 * slope
    assert tf.function(lambda x: tn.leaky_relu(x, slope))(x).numpy()[0] == -3.0 * slope
    assert tn.clamp(x, low=-1.5).numpy()[0] == -1.5 and tn.clamp(x, high=1e-300).numpy()[0] == -3.0
    assert tn.clamp(x, low=float("-inf")).numpy()[0] == -3.0
    formula = tn.fuse("f(x: T[*s], c: float) -> y: T[*s] : y = x * c")
    assert formula(x, slope).numpy()[0] == -3.0 * slope


def test_numpy_arrays_and_variables() -> None:
    x = np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32)
    for given in (x, tf.Variable(x), tf.keras.Variable(x)):
        assert_close(tn.softmax(given), tf.nn.softmax(x))


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (1, 1), (3, 1, 7)], ids=str)
def test_any_shape(shape: tuple[int, ...]) -> None:
    x = tf.constant(np.random.default_rng(0).standard_normal(shape), tf.float32)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        have, want = tn.silu(x), tf.nn.silu(x)
    assert_close(have, want)
    assert_close(tn.sum(x), tf.reduce_sum(x))
    assert_close(tape.gradient(have, x), tape.gradient(want, x))


def test_many_calls_beside_each_other() -> None:
    many = tf.function(lambda t: [tn.softmax(t * k) for k in range(20)])(tf.ones((64, 1000)))
    assert all(np.allclose(y, 1e-3) for y in many)


def test_many_threads() -> None:
    inputs = [tf.random.normal((k + 1, 300)) for k in range(40)]
    with ThreadPoolExecutor(4) as pool:
        assert_close(list(pool.map(tn.softmax, inputs)), [tf.nn.softmax(x) for x in inputs])


def test_seeds() -> None:
    x = tf.ones(1000)
    want = tn.dropout(x, seed=tf.constant([7, 9], tf.int64))
    assert 300 < np.sum(want == 0) < 700
    assert_close(tn.dropout(x, seed=tf.constant([7, 9])), want)
    assert_close(tn.dropout(x, seed=np.array([7, 9])), want)


def test_maps() -> None:
    x = tf.random.normal((4, 3, 5))
    want = tf.nn.softmax(x)
    assert_close(tf.map_fn(tn.softmax, x), want)
    assert_close(tf.vectorized_map(tn.softmax, x), want)
    assert_close(list(tf.data.Dataset.from_tensor_slices(x).map(tn.softmax, num_parallel_calls=4)), list(want))


def test_formulas() -> None:
    x, y = tf.random.normal((3, 5)), tf.random.normal((5,))
    assert_close(tn.fuse("silu(x) * y")(x, y), tf.nn.silu(x) * y)
    assert_close(tn.fuse("silu(_call) * _required")(_required_=y, _call_=x), tf.nn.silu(x) * y)
    scaled = tn.fuse(
        "f(x: T[*r, c], k: float = 2.0, kind: 'a'|'b' = 'a') -> y: T[*r, c] : y = x * k if kind == 'a' else x"
    )
    assert_close([scaled(x), scaled(x, 3.0), scaled(x, kind="b")], [x * 2, x * 3, x])
    assert tn.fuse("silu(x) * y") is tn.fuse("silu(x) * y")
    for kind in ("i8", "bf16", "e4m3"):  # the last is no attribute of tf
        assert NAMES[tn.fuse(f"f(x: T[*s], out: dtype = {kind}) -> y: out[*s] : x")(x).dtype] == kind


# ---- the table -------------------------------------------------------------------------------------------------------


def test_help() -> None:
    assert "softmax(x: T[*s], mask: bool[~*s]?" in tn.softmax.__doc__
    assert "Returns p, m, as updated; a tf.Variable among them is assigned." in tn.sgd_step.__doc__
    assert "softmax" in tn.ops() and len(tn.ops()) == len(set(tn.ops()))


def test_numbers_beside_tensors_of_unknown_rank() -> None:
    unknown = tf.TensorSpec(None)
    step = tf.function(lambda p, lr: tn.sgd_step(p, p, p * 0, lr=lr), input_signature=[unknown, unknown])
    assert_close(step(tf.ones((2, 3)), tf.constant(0.5))[0], tf.fill((2, 3), 0.5))
    fixed = tf.function(lambda p: tn.sgd_step(p, p, p * 0, lr=0.5), input_signature=[unknown])
    assert_close(fixed(tf.ones((2, 3)))[0], tf.fill((2, 3), 0.5))
