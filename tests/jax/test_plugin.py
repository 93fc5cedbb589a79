"""Operators from a shared object reach JAX at once, with everything that the contract language allows."""

from __future__ import annotations

import inspect
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from functional import assert_close

import tenon
import tenon.jax as tn

X = jnp.asarray(np.random.default_rng(0).standard_normal((3, 4)))


def test_they_are_there(plugin: pathlib.Path) -> None:
    assert "cube" in tn.ops() and tn.load is tenon.load
    assert_close(tn.cube(X), X**3, "f64")
    assert_close(jax.grad(lambda x: tn.cube(x).sum())(X), 3 * X**2, "f64")
    assert_close(jax.vmap(tn.cube)(X), X**3, "f64")


def test_numbers_for_0_dim_inputs(plugin: pathlib.Path) -> None:
    for alpha in (2, 2.0, np.float32(2), jnp.asarray(2)):
        assert_close(tn.scaled(X, alpha), 2 * X, "f64")
    assert tn.scaled(X.astype(jnp.float16), 0.5).dtype == jnp.float16  # acc(f16) is f32
    with pytest.raises(TypeError, match="scaled: alpha has type f32, needs f64"):
        tn.scaled(X, jnp.float32(0.5) * jnp.ones((), jnp.float32))


def test_lists(plugin: pathlib.Path) -> None:
    parts = [jnp.full((n, 3), float(n)) for n in (1, 4, 0, 2)]
    assert_close(tn.joined(parts), jnp.concatenate(parts))
    assert_close(jax.jit(tn.joined)(parts), jnp.concatenate(parts))
    count, updated = tn.step_list([X, X[0]], [X, X[0]], 0.25)
    assert count == 2
    assert_close(updated, [0.75 * X, 0.75 * X[0]], "f64")


def test_attributes_of_every_kind(plugin: pathlib.Path) -> None:
    x = jnp.arange(18.0).reshape(2, 9)
    want = jnp.stack([x[:, i : i + 3].sum(-1) for i in (0, 2, 4, 6)], -1)
    assert tn.pooled(x, 3).dtype == jnp.float64
    assert_close(tn.pooled(x, 3, [2], jnp.float32), want)
    assert tn.pooled(x, 3, out=np.dtype("float16")).dtype == jnp.float16
    with pytest.raises(ValueError, match="pooled: needs size <= h"):
        tn.pooled(x, 10)
    with pytest.raises(TypeError, match=r"pooled: out is .*, needs a type that Tenon has"):
        tn.pooled(x, 3, out=jnp.int4)
    assert_close(tn.ordered(x[None], [2, -3, 1]), x[None].transpose(2, 0, 1))
    assert_close(tn.outer(X[:, None], X[0]), X[:, None] + X[0], "f64")
    assert tn.nothing(jnp.ones((2, 1, 3)), lambda_=2).shape == (2, 1, 6)


def test_required_behind_optional(plugin: pathlib.Path) -> None:
    assert_close(tn.grouped(X, None, 2), X, "f64")
    assert_close(tn.grouped(X, groups=2, b=jnp.ones(4), add=0.5, sign="minus"), 1.5 - X, "f64")
    with pytest.raises(TypeError, match=r"grouped\(\) missing 1 required argument: 'groups'"):
        tn.grouped(X)
    assert "groups: int = <required>" in str(inspect.signature(tn.grouped))


def test_outputs_on_request(plugin: pathlib.Path) -> None:
    assert isinstance(tn.grouped(X, groups=2), jax.Array)
    _, sums = tn.grouped(X, groups=2, want_sums=True)
    assert_close(sums, X.reshape(3, 2, 2).sum(-1), "f64")


def test_rules(plugin: pathlib.Path) -> None:
    """Several differentiable outputs of which one is used; two statements for one input; locals; sizes as arguments."""
    assert_close(jax.grad(lambda x: tn.halves(x)[0].sum())(X), jnp.ones((3, 4)).at[:, 2:].set(0), "f64")
    assert_close(jax.grad(lambda x: tn.halves(x)[1].sum())(X), jnp.ones((3, 4)).at[:, :2].set(0), "f64")
    both = jax.grad(lambda x, y: tn.product(x, y, 2.0).sum(), (0, 1))(X, X + 1)
    assert_close(both, [2 * (X + 1), 2 * X], "f64")
    assert_close(jax.grad(lambda x: tn.product(x, x).sum())(X), 2 * X, "f64")
    assert_close(jax.grad(lambda x: (tn.row_sum(x) ** 2).sum())(X), 2 * X.sum(-1, keepdims=True) + 0 * X, "f64")
    assert_close(jax.vmap(jax.grad(lambda x: tn.row_sum(x) ** 2))(X), 2 * X.sum(-1, keepdims=True) + 0 * X, "f64")
