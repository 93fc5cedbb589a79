"""vmap: every operator, whatever is batched, against one element after the other. Compiling takes nearly all of the
time, so one program computes what a test compares."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import Case, one_each
from functional import assert_close, has_rule

import tenon.jax as tn


def stack(*elements: Any) -> Any:
    """By NumPy, which compiles nothing."""
    return jax.tree.map(lambda *parts: np.stack(parts), *elements)


def batched(case: Case, names: list[str], T: str) -> tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]]]:
    """Arguments of which `names` have a batch of 3 in front, what vmap is told of them, and the elements."""
    elements = [case.make(T, again) for again in range(3)]
    first = elements[0]
    elements = [{n: (v if n in names else first[n]) for n, v in one.items()} for one in elements]
    stacked = {n: stack(*(one[n] for one in elements)) for n in names}
    axes = {n: 0 if n in names else None for n in case.tensors}
    return {n: stacked.get(n, first[n]) for n in case.tensors}, axes, elements


def choices(case: Case) -> list[list[str]]:
    """All inputs; each of them alone."""
    present = [n for n, v in case.make().items() if n in case.tensors and v is not None]
    return [present] + ([[n] for n in present] if len(present) > 1 else [])


def over_batches(function: Callable[..., Any], axes: Sequence[Any]) -> Any:
    """A program that calls vmap(function) with one set of arguments after the other, each with axes of its own."""
    return jax.jit(lambda given: [jax.vmap(function, (a,))(one) for a, one in zip(axes, given, strict=True)])


@pytest.mark.parametrize("case", one_each(), ids=str)
def test_every_choice_of_inputs(case: Case) -> None:
    static = {n: v for n, v in case.make().items() if n not in case.tensors}
    made, axes, elements = zip(*(batched(case, names, "f64") for names in choices(case)), strict=True)
    have = over_batches(lambda given: case.call(given | static), axes)(made)
    for one, parts in zip(have, elements, strict=True):
        assert_close(one, stack(*map(case.call, parts)), "f64")


@pytest.mark.parametrize("case", one_each(has_rule), ids=str)
def test_of_gradients(case: Case) -> None:
    static = {n: v for n, v in case.make().items() if n not in case.tensors}

    def gradients(given: dict[str, Any]) -> Any:
        smooth = case.smooth(given)
        function = case.of(given | static, smooth)
        return jax.grad(lambda values: sum((r**2).sum() for r in function(*values)))(tuple(given[n] for n in smooth))

    single = jax.jit(gradients)
    made, axes, elements = zip(*(batched(case, names, "f64") for names in choices(case)), strict=True)
    for have, parts in zip(over_batches(gradients, axes)(made), elements, strict=True):
        assert_close(have, stack(*(single({n: one[n] for n in case.tensors}) for one in parts)), "f64")


def loops(function: Any, *args: Any) -> bool:
    return "scan" in str(jax.make_jaxpr(function)(*args)) or "while" in str(jax.make_jaxpr(function)(*args))


def test_the_batch_becomes_a_dimension() -> None:
    """Without a loop, where the contract shows that it may."""
    x, w = jnp.ones((4, 5, 6)), jnp.ones(6)
    assert not loops(jax.vmap(tn.silu), x)
    assert not loops(jax.vmap(lambda t: tn.softmax(t, axis=0)), x)
    assert not loops(jax.vmap(lambda t: tn.sum(t)), x)
    assert not loops(jax.vmap(lambda t: tn.layer_norm(t, w, w)), x)
    assert not loops(jax.vmap(jax.grad(lambda t: (tn.layer_norm(t, w) ** 2)[0, 0])), x)
    assert not loops(jax.vmap(lambda t: tn.rms_norm(t, w)), x)
    assert not loops(jax.vmap(tn.fuse("silu(x) * y"), in_axes=(0, None)), x, w)
    assert loops(jax.vmap(lambda t, w: tn.layer_norm(t, w), in_axes=(None, 0)), x[0], x[:, 0])  # a weight each
    assert loops(jax.vmap(lambda t: tn.mse(t, t)), x)  # all of an element is summed up
    assert loops(jax.vmap(lambda t: tn.dropout(t, jnp.ones(2, jnp.int64))), x)  # the same numbers for each


def test_nested_and_other_axes() -> None:
    x = jnp.arange(24.0).reshape(2, 3, 4)
    assert_close(jax.vmap(jax.vmap(lambda t: tn.softmax(t)))(x), jax.nn.softmax(x), "f64")
    have = jax.vmap(lambda t: tn.softmax(t, axis=0), in_axes=1, out_axes=-1)(x)
    assert_close(have, jnp.moveaxis(jax.nn.softmax(x, 0), 1, -1), "f64")
    fused = tn.fuse("x - mean(x)")
    assert_close(jax.vmap(fused)(x), x - x.mean((1, 2), keepdims=True), "f64")
    rows = tn.fuse("x - mean(x, -1)")
    assert_close(jax.vmap(rows)(x[0, 0]), jnp.zeros(4), "f64")  # elements without dimensions
    assert_close(jax.vmap(rows)(x), x - x.mean(-1, keepdims=True), "f64")


@pytest.mark.parametrize(
    ("formula", "same"),
    [
        ("max(x, axis=-2)", lambda v: v.max(-2)),
        ("x - mean(x, axis=-2)", lambda v: v - v.mean(-2, keepdims=True)),
        ("sum(x, axis=0)", lambda v: v.sum(0)),
        ("x * index(-1)", lambda v: v * jnp.arange(v.shape[-1])),
        ("x * index(0) + argmax(x)", lambda v: v * jnp.arange(v.shape[0])[:, None] + jnp.argmax(v)),
        ("x - index()", lambda v: v - jnp.arange(v.size).reshape(v.shape)),
        (
            "f(x: T[*r, n, c]) -> y: T[*r, n, c] : where(index(n) < argmin(x, c), x, index(c))",
            lambda v: jnp.where(
                jnp.arange(v.shape[-2])[:, None] < v.argmin(-1, keepdims=True), v, jnp.arange(v.shape[-1])
            ),
        ),
        ("f(x: T[*r, n, c]) -> y: T[*r, c] : sum(x, n)", lambda v: v.sum(-2)),
        ("f(x: T[*r, c]) -> y: T[c] : sum(x, r)", lambda v: v.sum(0)),
        ("f(x: T[*r, n, c]) -> y: T[n, c] : sum(x, axis=r)", lambda v: v),  # *r is empty, and the batch is none of it
    ],
)
def test_reductions_along_axes(formula: str, same: Callable[[Any], Any]) -> None:
    """The batch becomes a part of the pack in front, unless that is reduced."""
    x = jnp.asarray(np.random.default_rng(0).normal(size=(2, 5, 3, 4)))

    def batches(function: Callable[[Any], Any], x: Any) -> list[Any]:
        slope = jax.grad(lambda v: jnp.sin(function(v)).sum())
        return [jax.vmap(jax.vmap(function))(x), jax.vmap(function, 1)(x[0]), jax.vmap(slope)(x[0])]

    have, want = jax.jit(lambda x: (batches(tn.fuse(formula), x), batches(same, x)))(x)
    assert_close(have, want, "f64")


MEETING = [
    ("(x - mean(x, -1)) * rsqrt(var(x, -1) + 1e-5) * g + b", [(4, 3), (3,), ()]),
    ("-sum(exp(x - logsumexp(x, -1)) * t, -1)", [(3,), (4, 3)]),
    ("w * sum(x * y, -1)", [(), (2, 4, 3), (4, 1)]),
    ("m = mean(x, -1); y = x * w - m; z = m * w", [(), (4, 3)]),
    ("a = x * y; b = x * w; c = sum(x, -1)", [(3,), (4, 1), ()]),  # outputs of other ranks
]


@pytest.mark.parametrize(("formula", "shapes"), MEETING)
def test_inputs_that_meet_behind_reductions(formula: str, shapes: list[tuple[int, ...]]) -> None:
    """Of any of them a batch, as long as one of the dimensions, with the gradients of all."""
    function, rng = tn.fuse(formula), np.random.default_rng(0)

    def both(*arrays: Any) -> Any:
        made, back = jax.vjp(function, *arrays)
        return made, back(jax.tree.map(jnp.cos, made))

    single, axes = jax.jit(both), list(itertools.product((None, 0), repeat=len(shapes)))[1:]
    given = [
        [rng.standard_normal(s if m is None else (3, *s)) for s, m in zip(shapes, moved, strict=True)] for moved in axes
    ]
    have = over_batches(lambda arrays: both(*arrays), [list(moved) for moved in axes])(given)
    for one, arrays, moved in zip(have, given, axes, strict=True):
        elements = [[a if m is None else a[i] for a, m in zip(arrays, moved, strict=True)] for i in range(3)]
        assert_close(one, stack(*(single(*element) for element in elements)), "f64", scale=8)


def test_shapes_that_broadcast() -> None:
    x, y = jnp.ones((4, 5)), jnp.arange(15.0).reshape(3, 5)
    assert_close(jax.vmap(tn.add, (0, None))(x, y), x[:, None] + y, "f64")
    d = jax.vmap(jax.grad(lambda x, y: (tn.mul(x, y) ** 2).sum(), (0, 1)), (0, None))(x, y)
    want = jax.vmap(jax.grad(lambda x, y: ((x * y) ** 2).sum(), (0, 1)), (0, None))(x, y)
    assert_close(d, want, "f64")
