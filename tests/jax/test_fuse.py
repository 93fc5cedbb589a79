"""Formulas of the user's own."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from functional import assert_close
from jax.test_util import check_grads
from pickles import check_pickles

import tenon.jax as tn

RANDOM = np.random.default_rng(0)
X, Y, W = (jnp.asarray(RANDOM.standard_normal(shape)) for shape in ((4, 6), (4, 6), (6,)))


def test_one_output() -> None:
    gate = tn.fuse("silu(x) * y")
    assert gate is tn.fuse("silu(x) * y")
    assert_close(gate(X, Y), jax.nn.silu(X) * Y, "f64")
    assert_close(jax.jit(gate)(X, W), jax.nn.silu(X) * W, "f64")
    check_grads(gate, (X, W), order=2, modes=["rev"])
    assert gate(X.astype(jnp.bfloat16), W.astype(jnp.float32)).dtype == jnp.float32


def test_names_that_generated_code_has() -> None:
    function = tn.fuse("_call * 2 + _required")
    assert_close(function(X, Y), 2 * X + Y, "f64")
    assert_close(function(_required_=Y, _call_=X), 2 * X + Y, "f64")
    check_grads(function, (X, Y), order=1, modes=["rev"])


def test_nan_is_told_of_by_name() -> None:
    """Of the operator where it first comes up, with and without jit."""

    def chain(x: Any) -> Any:
        return tn.silu(tn.fuse("logarithm(x: T[*s]) -> y: T[*s] : log(x)")(x))

    for call in (chain, jax.jit(chain), jax.vmap(chain), jax.grad(lambda x: chain(x).sum())):
        with jax.debug_nans(True), pytest.raises(FloatingPointError, match=r"logarithm: invalid value \(nan\)"):
            call(-jnp.ones(3))
    with jax.debug_infs(True), pytest.raises(FloatingPointError, match=r"log: invalid value \(inf\)"):
        tn.log(jnp.zeros(3))


def test_jaxprs_show_what_is_called() -> None:
    text = str(jax.make_jaxpr(lambda x: tn.softmax(tn.fuse("silu(x) * 3")(x), axis=0))(X))
    assert "silu(x) * 3" in text and "row=softmax" in text and "object at" not in text


def test_several_outputs() -> None:
    both = tn.fuse("a = x * 2; b = sin(x) + y")
    a, b = both(X, Y)
    assert_close([a, b], [2 * X, jnp.sin(X) + Y], "f64")
    check_grads(both, (X, Y), order=1, modes=["rev"])
    assert_close(jax.grad(lambda x: both(x, Y)[1].sum())(X), jnp.cos(X), "f64")


def test_reductions() -> None:
    norm = tn.fuse("(x - mean(x, -1)) * rsqrt(var(x, -1) + 1e-5)")
    assert_close(norm(X), (X - X.mean(-1, keepdims=True)) / jnp.sqrt(X.var(-1, keepdims=True) + 1e-5), "f64")
    check_grads(norm, (X,), order=1, modes=["rev"])


def test_contract_with_attributes() -> None:
    act = tn.fuse(
        "act(x: T[*r, c], b: T[c]?, slope: float = 0.1, kind: 'leaky'|'none' = 'leaky') -> y: T[*r, c] : "
        "t = x + b if has(b) else x; y = (t if t > 0 else slope * t) if kind == 'leaky' else t"
    )
    assert_close(act(X), jax.nn.leaky_relu(X, 0.1), "f64")
    assert_close(act(X, W, slope=0.5), jax.nn.leaky_relu(X + W, 0.5), "f64")
    assert_close(act(X, kind="none"), X, "f64")
    assert "act(x: T[*r, c]" in act.__doc__


def test_updates_are_returned() -> None:
    step = tn.fuse("step(p: T[*s]!, g: T[*s], lr: f32[]) -> size: T[] : p = p - lr * g; size = sum(g * g)")
    size, p = step(X, Y, 0.5)
    assert_close([size, p], [(Y**2).sum(), X - 0.5 * Y], "f64")
    with pytest.raises(NotImplementedError, match="step has no gradient rule"):
        jax.grad(lambda g: step(X, g, 0.5)[0])(Y)


def test_fast() -> None:
    assert_close(tn.fuse("exp(x) / exp(y)", fast=True)(X, Y), jnp.exp(X - Y), "f64", scale=1e3)


def test_pickle() -> None:
    check_pickles(tn.fuse)


def test_lists() -> None:
    norm = tn.fuse("norm(g: [T[*s]]) -> n: acc(T)[] : n = sqrt(sum(g * g))")
    assert_close(norm([X, W]), jnp.sqrt((X**2).sum() + (W**2).sum()), "f64")


def test_no_array_at_all() -> None:
    filled = tn.fuse("filled(x: f32[2]?, a: float) -> y: f32[2] : a")
    for function in (filled, jax.jit(filled, static_argnames="a")):
        np.testing.assert_array_equal(function(a=2.0), [2, 2])


def test_operators_of_the_table() -> None:
    """They have gradients of every order, and go under jit and vmap."""
    random = np.random.default_rng(0)
    x, i = jnp.asarray(random.normal(size=(4, 9))), jnp.asarray(random.integers(0, 9, (4, 3)))
    fused = tn.fuse("sin(gather(x * x, i))")

    def same(x: Any, i: Any) -> Any:
        return jnp.sin(jnp.take_along_axis(x * x, i, -1))

    assert_close(jax.jit(fused)(x, i), same(x, i), "f64")

    def derived(function: Any) -> tuple[Any, Any]:
        first = jax.grad(lambda v: function(v, i).sum())
        return first(x), jax.grad(lambda v: (first(v) ** 2).sum())(x)

    for have, want in zip(derived(fused), derived(same), strict=True):
        assert_close(have, want, "f64")
    stacked = jnp.stack([x, x + 1]), jnp.stack([i, i])
    assert_close(jax.vmap(fused)(*stacked), jax.vmap(same)(*stacked), "f64")
