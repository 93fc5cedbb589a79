"""The modules of tenon.jax.nnx beside Flax's own: results, gradients, statistics, states, and what is left to Flax."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from functional import assert_close

pytest.importorskip("flax", minversion="0.12")

from flax import nnx

from tenon.jax import nnx as tnx

RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((3, 5, 4, 8)).astype(np.float32)
FIRST = RANDOM.standard_normal((3, 8, 5, 4)).astype(np.float32)

# What a module is made with, and called with: (name, arguments, by name, input, call).
CASES: dict[str, tuple[str, tuple[Any, ...], dict[str, Any], Any, dict[str, Any]]] = {
    "LayerNorm": ("LayerNorm", (8,), {}, X, {}),
    "LayerNorm plain": ("LayerNorm", (8,), {"use_bias": False, "use_scale": False, "epsilon": 1e-3}, X, {}),
    "LayerNorm bf16": ("LayerNorm", (8,), {"dtype": jnp.bfloat16}, X, {}),
    "LayerNorm of bf16": ("LayerNorm", (8,), {}, X.astype(jnp.bfloat16), {}),
    "LayerNorm of integers": ("LayerNorm", (8,), {}, np.arange(24).reshape(3, 8), {}),
    "LayerNorm along 1": ("LayerNorm", (5,), {"reduction_axes": 1, "feature_axes": 1}, X, {}),
    "LayerNorm with a mask": ("LayerNorm", (8,), {}, X, {"mask": X > -1}),
    "RMSNorm": ("RMSNorm", (8,), {}, X, {}),
    "RMSNorm along two": ("RMSNorm", (8,), {"reduction_axes": (-2, -1)}, X, {}),
    "RMSNorm f16": ("RMSNorm", (8,), {"dtype": jnp.float16, "param_dtype": jnp.float16}, X, {}),
    "GroupNorm": ("GroupNorm", (8,), {"num_groups": 4}, X, {}),
    "GroupNorm of rows": ("GroupNorm", (8,), {"num_groups": 2, "use_bias": False}, X[0, 0], {}),
    "GroupNorm by size": ("GroupNorm", (8, None, 4), {"epsilon": 1e-2}, X, {}),
    "GroupNorm with axes": ("GroupNorm", (8,), {"num_groups": 4, "reduction_axes": (1, 2, 3)}, X, {}),
    "InstanceNorm": ("InstanceNorm", (8,), {}, X, {}),
    "InstanceNorm in second place": ("InstanceNorm", (8,), {"feature_axes": 1, "use_scale": False}, FIRST, {}),
    "BatchNorm": ("BatchNorm", (8,), {}, X, {}),
    "BatchNorm running": ("BatchNorm", (8,), {}, X, {"use_running_average": True}),
    "BatchNorm in second place": ("BatchNorm", (8,), {"axis": 1, "momentum": 0.5}, FIRST, {}),
    "BatchNorm in third place": ("BatchNorm", (5,), {"axis": 2}, FIRST, {}),
    "BatchNorm plain bf16": ("BatchNorm", (8,), {"use_bias": False, "dtype": jnp.bfloat16}, X, {}),
    "BatchNorm with a mask": ("BatchNorm", (8,), {}, X, {"mask": X > -1}),
    "Embed": ("Embed", (11, 6), {}, np.array([[1, 0, 10], [3, 3, -1]]), {}),
    "Embed bf16": ("Embed", (11, 6), {"dtype": jnp.bfloat16}, np.array([1, 0, 10], np.uint8), {}),
    "Embed of one": ("Embed", (1, 6), {}, np.zeros((2, 3), np.int32), {}),
}

LEFT_TO_FLAX = {
    "LayerNorm along 1",
    "LayerNorm with a mask",
    "RMSNorm along two",
    "GroupNorm with axes",
    "BatchNorm in third place",
    "BatchNorm with a mask",
    "Embed of one",
}


def pair(name: str, args: tuple[Any, ...], given: dict[str, Any]) -> tuple[Any, Any]:
    """Ours and Flax's, with the same random parameters and statistics."""
    mine, theirs = (getattr(space, name)(*args, **given, rngs=nnx.Rngs(0)) for space in (tnx, nnx))
    random = np.random.default_rng(1)
    state = jax.tree.map(
        lambda p: jnp.asarray(np.abs(random.standard_normal(p.shape)) + 0.1, p.dtype), nnx.state(theirs)
    )
    nnx.update(theirs, state)
    nnx.update(mine, nnx.state(theirs))
    return mine, theirs


def loss_of(call: dict[str, Any]) -> Callable[[Any, Any], Any]:
    def loss(module: Any, x: Any) -> Any:
        y = module(x, **call)
        weights = jnp.cos(jnp.arange(y.size, dtype=jnp.float32)).reshape(y.shape)
        return (y.astype(jnp.float32) * weights).sum(), y

    return loss


@pytest.mark.parametrize("case", CASES)
def test_is_what_flax_computes(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, args, given, x, call = CASES[case]
    mine, theirs = pair(name, args, given)
    kind, calls = type(theirs), []
    whole = kind.__call__
    monkeypatch.setattr(kind, "__call__", lambda self, *a, **k: (calls.append(type(self)), whole(self, *a, **k))[1])
    x = jnp.asarray(x)
    wanted = (0, 1) if jnp.issubdtype(x.dtype, jnp.floating) else (0,)
    run = nnx.jit(nnx.value_and_grad(loss_of(call), argnums=wanted, has_aux=True))
    ((_, y), grads), ((_, expected), others) = run(mine, x), run(theirs, x)
    assert (type(mine) in calls) == (case in LEFT_TO_FLAX)
    low = {jnp.dtype(jnp.bfloat16), jnp.dtype(jnp.float16)} & {expected.dtype, x.dtype}
    pairs = zip(
        *(jax.tree.leaves((g, nnx.state(m, nnx.BatchStat))) for g, m in ((grads, mine), (others, theirs))), strict=True
    )
    for g, e, times in [(y, expected, 1), *((g, e, 20) for g, e in pairs)]:
        assert g.dtype == e.dtype and g.shape == e.shape
        np.testing.assert_allclose(*(np.asarray(v, np.float32) for v in (g, e)), **tolerance(bool(low), times))


def tolerance(low: bool, times: float = 1) -> dict[str, float]:
    bound = times * (0.02 if low else 2e-5)
    return {"rtol": bound, "atol": bound}


@pytest.mark.parametrize("axis", [-1, 1, 2])
@pytest.mark.parametrize("running", [True, False])
def test_batch_norm_ends_with_residual_and_activation(axis: int, running: bool) -> None:
    mine, theirs = pair("BatchNorm", (5,) if axis == 2 else (8,), {"axis": axis})
    x = X if axis == -1 else FIRST
    residual = RANDOM.standard_normal(x.shape).astype(np.float32)
    y = mine(x, running, residual=residual, act="relu")
    assert_close(y, jax.nn.relu(theirs(x, running) + residual))
    with pytest.raises((ValueError, TypeError), match=r"residual|broadcast|shape"):
        mine(x, running, residual=residual[:2])


def test_dropout() -> None:
    layer = tnx.Dropout(0.25, rngs=nnx.Rngs(0))
    x = jnp.ones((200, 300), jnp.float32)
    first, second = layer(x), layer(x)
    assert abs(float((first == 0).mean()) - 0.25) < 0.01
    assert set(np.unique(first)) == {np.float32(0), np.float32(1 / 0.75)}
    assert not (first == second).all()  # the stream has moved on
    key = jax.random.key(3)
    assert (layer(x, rngs=key) == layer(x, rngs=key)).all()
    assert (jax.grad(lambda x: layer(x, rngs=key).sum())(x) == layer(x, rngs=key)).all()
    assert layer(x, deterministic=True) is x
    rows = tnx.Dropout(0.5, broadcast_dims=(1,), rngs=nnx.Rngs(1))(x)
    assert all(len(set(row.tolist())) == 1 for row in np.asarray(rows[:20]))
    assert (tnx.Dropout(1.0, rngs=nnx.Rngs(0))(x) == 0).all()
    with pytest.raises(ValueError, match="rngs"):
        tnx.Dropout(0.5)(x)


def test_a_model_of_flax_becomes_ours() -> None:
    rngs = nnx.Rngs(0)
    model = nnx.Sequential(nnx.Linear(8, 8, rngs=rngs), nnx.LayerNorm(8, rngs=rngs), nnx.RMSNorm(8, rngs=rngs))
    before = model(X)
    for _, module in nnx.iter_modules(model):
        module.__class__ = getattr(tnx, type(module).__name__, type(module))
    assert [type(m).__module__ for m in model.layers] == ["flax.nnx.nn.linear", "tenon.jax.nnx", "tenon.jax.nnx"]
    assert_close(nnx.jit(lambda m, x: m(x))(model, X), before)


def test_an_index_is_counted_from_the_end_or_refused() -> None:
    embed = tnx.Embed(5, 3, rngs=nnx.Rngs(0))
    assert (embed(jnp.array([-1, -5])) == embed(jnp.array([4, 0]))).all()
    with pytest.raises(ValueError, match="integer"):
        embed(jnp.ones(3))
