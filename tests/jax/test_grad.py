"""Gradients: every rule against finite differences, in the ways that JAX can ask for one."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import Case, cases, each_operator, one_each
from differences import assert_gradients
from functional import assert_close, is_exact, is_rough
from jax.test_util import check_grads

import tenon.jax as tn


def arrays(values: Any) -> list[np.ndarray]:
    """What NumPy computes is not compiled for each shape."""
    return [np.asarray(value) for value in values]


@pytest.mark.parametrize("case", cases(600, is_exact), ids=str)
def test_against_differences(case: Case) -> None:
    given = case.make("f64", same=True)
    names = [n for n in case.smooth(given) if given[n].dtype == np.float64]  # others are too coarse
    function = case.of(given, names)
    assert_gradients(
        lambda values: arrays(jax.vjp(function, *values)[0]),
        lambda values, weights: arrays(jax.vjp(function, *values)[1]([jnp.asarray(w) for w in weights])),
        arrays([given[n] for n in names]),
    )


@pytest.mark.parametrize("case", one_each(is_exact), ids=str)
def test_by_jax_itself(case: Case) -> None:
    given = case.make("f64", same=True)
    names = case.smooth(given)
    values = [given[n] for n in names]
    check_grads(case.of(given, names), values, order=1, modes=["rev"], atol=1e-5, rtol=1e-5, eps=1e-6)


@pytest.mark.parametrize("case", [*one_each(is_exact), *each_operator(is_rough)], ids=str)
def test_some_inputs_under_jit(case: Case) -> None:
    """The gradient of one input does not depend on which others are asked for."""
    given = case.make("f64")
    names = case.smooth(given)

    def total(*values: Any) -> Any:
        return sum(r.sum() for r in case.of(given, names[: len(values)])(*values))

    values = [given[n] for n in names]
    every = jax.jit(jax.grad(total, tuple(range(len(names)))))(*values)
    for i, d in enumerate(every):
        assert d.shape == values[i].shape and d.dtype == values[i].dtype
        assert_close(jax.grad(total, i)(*values), d, "f64")


def test_other_inputs_in_turn() -> None:
    """What was asked for last is not what is asked for now."""
    x, y = jnp.linspace(-2, 2, 7), jnp.linspace(1, 3, 7)
    for i in (0, 1, 0, 1):
        assert_close(jax.grad(lambda x, y: tn.mul(x, y).sum(), i)(x, y), (y, x)[i], "f64")


def test_types_of_gradients() -> None:
    x, gamma = jnp.ones((4, 8), jnp.bfloat16), jnp.ones(8, jnp.float32)
    d = jax.grad(lambda x, g: tn.layer_norm(x, g).astype(jnp.float32).sum(), (0, 1))(x, gamma)
    assert [a.dtype for a in d] == [jnp.bfloat16, jnp.float32]


def test_mixed_types() -> None:
    """What was promoted gets its gradient in its own type."""
    d = jax.grad(lambda x, y: tn.mul(x, y).sum(), (0, 1))(jnp.ones(3, jnp.bfloat16), jnp.ones(3, jnp.float32))
    assert [a.dtype for a in d] == [jnp.bfloat16, jnp.float32]


def test_scan_and_checkpoint() -> None:
    x = jnp.linspace(-1, 1, 6)

    def steps(x: Any) -> Any:
        return jax.lax.scan(lambda c, _: (tn.silu(c), tn.sum(c)), x, None, length=3)

    def plain(x: Any) -> Any:
        return jax.lax.scan(lambda c, _: (jax.nn.silu(c), c.sum()), x, None, length=3)

    def gradient(function: Any) -> Any:
        return jax.grad(lambda x: sum(part.sum() for part in function(x)))(x)

    want = gradient(plain)
    for wrapped in (steps, jax.checkpoint(steps), jax.jit(steps)):
        assert_close(gradient(wrapped), want, "f64")


def test_gradients_of_gradients() -> None:
    """Where the operators of a rule have rules themselves, as formulas do."""
    x, y = jnp.linspace(-2, 2, 7), jnp.linspace(1, 3, 7)

    def twice(function: Any) -> Any:
        first = jax.grad(lambda t: (function(t) ** 2).sum())
        return jax.grad(lambda t: (first(t) ** 2).sum())(x)

    for have, want in ((tn.silu, jax.nn.silu), (lambda t: tn.mul(t, y), lambda t: t * y), (tn.tanh, jnp.tanh)):
        assert_close(twice(have), twice(want), "f64")


def test_second_derivatives_through_what_is_kept() -> None:
    """Such as the mean of layer_norm."""
    rng = np.random.default_rng(0)
    x, b = (jnp.asarray(rng.standard_normal(shape)) for shape in ((3, 5), (5,)))

    def plain_norm(x: Any) -> Any:
        return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * b

    for have, want in (
        (tn.softmax, jax.nn.softmax),
        (lambda x: tn.layer_norm(x, b), plain_norm),
    ):
        hessians = [jax.jacrev(jax.grad(lambda t, f=f: jnp.sin(f(t)).sum())) for f in (have, want)]
        assert_close(hessians[0](x), hessians[1](x), "f64", scale=10)
        assert_close(jax.jit(hessians[0])(x), hessians[1](x), "f64", scale=10)


def test_updates_are_constants_to_gradients() -> None:
    """Running statistics may be carried along; what is differentiated is the result."""
    x = jnp.asarray(np.random.default_rng(0).standard_normal((6, 3)))

    def loss(x: Any) -> Any:
        def step(stats: Any, _: Any) -> Any:
            y, *stats = tn.batch_norm(x, None, None, *stats)
            return tuple(stats), (y**3).sum()

        (mean, var), losses = jax.lax.scan(step, (jnp.zeros(3, jnp.float32), jnp.ones(3, jnp.float32)), None, length=2)
        return losses.sum() + mean.sum() + var.sum()

    def plain(x: Any) -> Any:
        return 2 * (((x - x.mean(0)) * jax.lax.rsqrt(x.var(0) + 1e-5)) ** 3).sum()

    assert_close(jax.grad(loss)(x), jax.grad(plain)(x), "f64")


# ---- what is refused -------------------------------------------------------------------------------------------------


def test_operators_without_a_rule() -> None:
    x = jnp.ones((2, 3))
    with pytest.raises(NotImplementedError, match="cross_entropy_grad has no gradient rule"):
        jax.grad(lambda g: tn.cross_entropy_grad(g, jnp.ones(())).sum())(x)
    q = jnp.ones((1, 1, 2, 3))
    with pytest.raises(NotImplementedError, match="attention_grad has no gradient rule"):
        jax.grad(lambda x: jax.grad(lambda t: (tn.attention(t, t, t)[0] ** 2).sum())(x).sum())(q)
    assert tn.cross_entropy_grad(x, jnp.ones(())).shape == (2, 3)


def test_updates_have_no_gradient() -> None:
    p = jnp.ones(3)
    with pytest.raises(NotImplementedError, match="sgd_step has no gradient rule"):
        jax.grad(lambda g: tn.sgd_step(p, g, p, 0.1)[0].sum())(p)
    x, var = jnp.ones((2, 3)), jnp.ones(3, jnp.float32)
    with pytest.raises(NotImplementedError, match="batch_norm: running_mean is updated"):
        jax.grad(lambda mean: tn.batch_norm(x, None, None, mean, var)[0].sum())(var)


def test_inputs_without_a_gradient() -> None:
    x, target, weight = jnp.ones((2, 3)), jnp.zeros(2, jnp.int32), jnp.ones(3, jnp.float32)
    with pytest.raises(NotImplementedError, match="cross_entropy has no gradient for weight"):
        jax.grad(lambda w: tn.cross_entropy(x, target, w))(weight)


def test_forward_mode_is_refused() -> None:
    x = jnp.ones(3)
    for what in (lambda: jax.jvp(tn.silu, (x,), (x,)), lambda: jax.jacfwd(tn.silu)(x)):
        with pytest.raises(TypeError, match=r"^silu: there is no forward mode .* vjp and jacrev go backwards"):
            what()
    with pytest.raises(TypeError, match="there is no forward mode"):  # of an operator of the gradient
        jax.hessian(lambda x: tn.sum(tn.silu(x)))(x)
    with pytest.raises(TypeError, match="forward-mode"):  # JAX's words: the call is behind us
        jax.jit(lambda x: jax.jvp(tn.silu, (x,), (x,)))(x)
    both = jax.jacrev(jax.jacrev(tn.silu))(x)
    np.testing.assert_allclose(both, jax.hessian(jax.nn.silu)(x), atol=1e-5)
