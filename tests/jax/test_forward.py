"""Every operator against the C reference, and the ways to call it."""

from __future__ import annotations

from typing import Any

import arrays
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import Case, cases, dealt, one_each
from functional import assert_close

import tenon.jax as tn
import tenon.numpy
from tenon.jax._call import function


@pytest.mark.parametrize("case", cases(), ids=str)
def test_agrees_with_reference(case: Case) -> None:
    case.check()


@pytest.mark.parametrize(("case", "T"), dealt(one_each(), ["f16", "bf16", "f64"], each=2), ids=str)
def test_types(case: Case, T: str) -> None:
    case.check(T)


@pytest.mark.parametrize("case", one_each(), ids=str)
def test_jit_and_eval_shape(case: Case) -> None:
    given = case.make()
    static = {n: v for n, v in given.items() if n not in case.tensors}
    arrays = {n: given[n] for n in case.tensors}

    def call(values: dict[str, object]) -> list[jax.Array]:
        return case.call(values | static)

    have = jax.jit(call)(arrays)
    want = case.call(given)
    assert_close(have, want)
    shapes = jax.eval_shape(call, arrays)
    assert [(s.shape, s.dtype) for s in shapes] == [(w.shape, w.dtype) for w in want]


def test_arguments_are_not_written_to() -> None:
    p, g, m = jnp.ones(5), jnp.ones(5), jnp.zeros(5)
    new_p, new_m = tn.sgd_step(p, g, m, 0.5)
    assert (p == 1).all() and (m == 0).all()
    np.testing.assert_allclose(new_p, np.full(5, 0.5))
    np.testing.assert_allclose(new_m, np.ones(5))


def test_donated_arguments_are_updated_where_they_are() -> None:
    step = jax.jit(lambda p, g, m: tn.sgd_step(p, g, m, 0.5), donate_argnums=(0, 2))
    p, g, m = jnp.ones(500), jnp.ones(500), jnp.zeros(500)
    place = p.unsafe_buffer_pointer()
    new_p, _ = step(p, g, m)
    assert p.is_deleted() and new_p.unsafe_buffer_pointer() == place
    assert (new_p == 0.5).all()


@pytest.mark.parametrize("axes", arrays.AXES, ids=repr)
def test_a_single_axis_stands_for_a_list(axes: Any) -> None:
    arrays.assert_takes_axes(tn, jnp.asarray(np.arange(6.0).reshape(2, 3)), axes)


@pytest.mark.parametrize("number", arrays.NUMBERS, ids=repr)
def test_what_numpy_makes_of_a_number(number: Any) -> None:
    arrays.assert_takes_number(tn, jnp.asarray(np.ones(3, np.float32)), number)


def test_numbers_for_tensors_without_dimensions() -> None:
    """Of the type that the contract says, traced or not."""
    p, g, m = jnp.ones(5, jnp.bfloat16), jnp.ones(5, jnp.bfloat16), jnp.zeros(5, jnp.float32)
    want = tn.sgd_step(p, g, m, jnp.float32(0.25))
    for lr in (0.25, np.float64(0.25), jnp.asarray(0.25, jnp.float32), np.array(0.25, np.float32)):
        assert_close(tn.sgd_step(p, g, m, lr), want)
    assert_close(jax.jit(lambda lr: tn.sgd_step(p, g, m, lr))(0.25), want)  # a weak type
    with jax.numpy_dtype_promotion("strict"):
        assert_close(tn.sgd_step(p, g, m, jnp.int32(2)), tn.sgd_step(p, g, m, 2))


def test_numbers_of_64_bits() -> None:
    """With and without jax_enable_x64, in a vmap too."""
    times = tn.fuse("times(x: T[*s], n: i64[]) -> y: T[*s] : x * n")
    for wide in (True, False):
        with jax.enable_x64(wide):
            x = jnp.ones((2, 3), jnp.float32)
            for n in (-3, 2**40, np.int64(2**40), np.array(-3), jnp.int32(-3), jnp.asarray(7)):
                assert (times(x, n) == float(n)).all()
            assert (jax.vmap(times)(x, jnp.array([4, -5])) == jnp.array([[4.0], [-5.0]])).all()


def test_constants_that_compare_equal() -> None:
    zero = -jnp.zeros(2)
    for c in (0.0, -0.0, 0.0):
        assert bool(jnp.signbit(tn.add_constant(zero, c))[0]) is (str(c) == "-0.0")


def test_nan_is_one_constant() -> None:
    """Though it does not compare equal: a program that was compiled is found again."""
    assert jnp.isnan(tn.add_constant(jnp.ones(2), float("nan"))).all()
    made = function.cache_info().misses
    tn.add_constant(jnp.ones(2), float("nan"))
    assert function.cache_info().misses == made


def test_lists() -> None:
    p = [jnp.ones(3), jnp.ones((2, 4)), jnp.ones(0)]
    m = [jnp.zeros_like(a) for a in p]
    new_p, new_m = tn.sgd_step_list(p, p, m, 0.5)
    assert [a.shape for a in new_p] == [a.shape for a in p] == [a.shape for a in new_m]
    assert all((a == 0.5).all() for a in new_p)
    (clipped, norm) = tn.clip_grad_norm(p, 1.0)[::-1]
    np.testing.assert_allclose(norm, np.sqrt(11.0))
    np.testing.assert_allclose(clipped[0], np.full(3, 1 / np.sqrt(11.0)), rtol=1e-5)


@pytest.mark.parametrize("count", [1, 150])
def test_long_lists(count: int) -> None:
    random = np.random.default_rng(0)
    p, g, m, v = ([jnp.asarray(random.random(k % 9 * 61)) for k in range(count)] for _ in range(4))
    have = tn.adamw_step_list(p, g, m, v, None, 0.01, 3.0)
    want = [tn.adamw_step(*one, None, 0.01, 3.0) for one in zip(p, g, m, v, strict=True)]
    assert_close(have, [list(part) for part in zip(*want, strict=True)], "f64")


def test_optional_updates_are_left_out() -> None:
    p = jnp.ones(3)
    assert len(tn.adamw_step(p, p, p, p, None, 0.1, 1.0)) == 3
    assert len(tn.adamw_step(p, p, p, p, p, 0.1, 1.0)) == 4


def test_mixed_types_are_promoted_as_in_jax() -> None:
    x, y = jnp.ones(3, jnp.bfloat16), jnp.ones(3, jnp.float32)
    assert tn.add(x, y).dtype == (x + y).dtype == jnp.float32
    assert tn.add(x, y.astype(jnp.float16)).dtype == jnp.float32
    assert tn.layer_norm(jnp.ones((2, 3), jnp.bfloat16), y).dtype == jnp.bfloat16  # W and T are different types


def test_numpy_arrays() -> None:
    x = np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32)
    assert_close(tn.softmax(x), jax.nn.softmax(x))


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (1, 1), (3, 1, 7)], ids=str)
def test_any_shape(shape: tuple[int, ...]) -> None:
    x = jnp.asarray(np.random.default_rng(0).standard_normal(shape), jnp.float32)
    assert_close(tn.silu(x), jax.nn.silu(x))
    assert_close(tn.sum(x), jnp.sum(x))
    assert_close(jax.grad(lambda t: tn.silu(t).sum())(x), jax.grad(lambda t: jax.nn.silu(t).sum())(x))


def test_many_calls_beside_each_other() -> None:
    x = jnp.ones((64, 1000))
    many = jax.jit(lambda t: [tn.softmax(t * k) for k in range(20)])(x)
    assert all(np.allclose(y, 1e-3) for y in many)


def test_every_thread_computes_alike() -> None:
    """XLA's threads make 0 of tiny numbers; those that help them do so too, and do not when NumPy calls."""
    x = np.full(1 << 20, 1e-310)
    for _ in range(5):
        assert len(np.unique(tn.scale(x, 2.0))) == 1
        assert (tenon.numpy.scale(x, 2.0) == 2e-310).all()


# ---- random numbers --------------------------------------------------------------------------------------------------


def test_seeds_with_and_without_64_bits() -> None:
    """The same numbers from a key, its words, and 64-bit integers; JAX has no such type unless it is told to."""
    x = jnp.ones(1000, jnp.float32)
    key = jax.random.key(7)
    want = tn.dropout(x, jnp.asarray(jax.random.key_data(key), jnp.int64))
    assert 300 < int((want == 0).sum()) < 700
    assert (tn.dropout(x, key) == want).all()
    with jax.enable_x64(False):
        for seed in (key, jax.random.key_data(key), jax.random.key_data(key).astype(jnp.int32)):
            assert (tn.dropout(x, seed) == want).all()
            assert (jax.jit(tn.dropout)(x, seed) == want).all()
        negative = tn.dropout(x, jnp.array([-5, 3], jnp.int32))
    assert (negative == tn.dropout(x, jnp.array([-5, 3]))).all()


@pytest.mark.parametrize("typed", [True, False])
def test_keys_of_four_words(typed: bool) -> None:
    """As many bits as a seed has, and each of them counts."""
    x = jnp.ones(1000, jnp.float32)
    key = (jax.random.key if typed else jax.random.PRNGKey)(7, impl="rbg")
    words = np.asarray(jax.random.key_data(key) if typed else key, np.int64)
    want = tn.dropout(x, words[::2] + (words[1::2] << 32))
    for wide in (True, False):
        with jax.enable_x64(wide):
            assert (tn.dropout(x, key) == want).all()
            assert (jax.jit(tn.dropout)(x, key) == want).all()


def test_seeds_have_64_bits() -> None:
    """With and without jax_enable_x64: nothing is cut off."""
    x, seed = jnp.ones(64, jnp.float32), np.array([2**40 + 1, -7])
    without = tn.dropout(x, seed)
    assert not (without == tn.dropout(x, np.array([1, -7]))).all()
    assert (without == jax.jit(lambda x: tn.dropout(x, seed))(x)).all()
    with jax.enable_x64(not jax.config.jax_enable_x64):
        other = tn.dropout(jnp.ones(64, jnp.float32), seed)
    assert (np.asarray(without) == np.asarray(other)).all()
