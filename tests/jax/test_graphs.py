"""Calls that XLA captures in its command buffers, which are CUDA graphs on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import Case, one_each
from conftest import DEVICE
from functional import assert_close
from jax import export
from test_export import CHECKS

import tenon.jax as tn

needs_gpu = pytest.mark.skipif(DEVICE != "cuda", reason="there are graphs on GPUs only")
ENOUGH = 6  # calls in a program; XLA makes no graph of less than 5


def each(call: Callable[[Any], Any]) -> Any:
    """A program that calls a function with one set of arrays after the other."""
    return jax.jit(lambda given: [call(arrays) for arrays in given])


def assert_captured(call: Callable[[Any], Any], given: list[Any]) -> None:
    """Results stay right while XLA's arrays are at other places in each run, with the same graph or a new one."""
    program = each(call)
    assert len(given) == ENOUGH
    assert "@tenon(" not in program.lower(given).as_text()  # the call that is not captured
    orders = [given, given[1:] + given[:1], given, given[::-1], given]
    kept = [program(order) for order in orders]
    for order, made in zip(orders, kept, strict=True):
        for arrays, have in zip(order, made, strict=True):
            assert_close(have, call(arrays))


def test_a_program_makes_as_many_calls() -> None:
    """XLA makes one call of two with the same arrays."""
    given = [jnp.full((3, 8), k, jnp.float32) for k in range(ENOUGH)]
    text = each(tn.softmax).lower(given).compile().as_text()
    assert text.count(" custom-call(") == ENOUGH


@needs_gpu
@pytest.mark.parametrize("case", one_each(), ids=str)
def test_calls(case: Case) -> None:
    made = [case.make(again=k) for k in range(ENOUGH)]
    static = {n: v for n, v in made[0].items() if n not in case.tensors}
    assert_captured(lambda arrays: case.call(arrays | static), [{n: m[n] for n in case.tensors} for m in made])


@needs_gpu
@pytest.mark.parametrize("case", [c for c in one_each() if c.smooth(c.make())], ids=str)
def test_gradients(case: Case) -> None:
    made = [case.make(again=k) for k in range(ENOUGH)]
    names = case.smooth(made[0])

    def call(values: list[Any]) -> Any:
        results, pull = jax.vjp(case.of(made[0], names), *values)
        return pull([jnp.cos(jnp.arange(r.size, dtype=r.dtype)).reshape(r.shape) for r in results])

    assert_captured(call, [[m[n] for n in names] for m in made])


@needs_gpu
def test_memory_of_their_own() -> None:
    """Sums of columns have partial sums, which no two calls of a graph may share."""
    random = np.random.default_rng(0)
    given = [[jnp.asarray(random.standard_normal(s)) for s in ((4096, 512), 512, (4096, 512))] for _ in range(ENOUGH)]
    formula = tn.fuse("silu(x * b)")
    assert_captured(lambda arrays: jax.vjp(formula, *arrays[:2])[1](arrays[2]), given)
    text = jax.jit(lambda x, b, dy: jax.vjp(formula, x, b)[1](dy)).lower(*given[0]).as_text()
    assert "tenon_graph" in text and "_scratch = true" in text


def test_programs_for_other_machines_have_the_plain_call() -> None:
    x = jax.ShapeDtypeStruct((3, 8), jnp.float32)
    function = jax.jit(lambda x: tn.softmax(tn.fuse("silu(x) * 2")(x)))
    exported = export.export(function, platforms=["cpu", "cuda"], disabled_checks=CHECKS)(x)
    assert "@tenon(" in exported.mlir_module() and "tenon_graph" not in exported.mlir_module()
    if DEVICE == "cpu":
        text = function.trace(x).lower(lowering_platforms=("cuda",)).as_text()
        assert "@tenon(" in text and "tenon_graph" not in text


@pytest.mark.skipif(DEVICE != "cpu", reason="for GPUs there is test_calls")
def test_scratch_is_no_output() -> None:
    """The last result of a call may be memory for itself."""
    x = jnp.asarray([-1.0, 2.0], jnp.float32)
    results = [jax.ShapeDtypeStruct(x.shape, x.dtype), jax.ShapeDtypeStruct((64,), jnp.uint8)]
    call = jax.ffi.ffi_call("tenon", results)
    y, _ = call(x, _op="relu", _counts=np.array([1]), _scratch=True)
    np.testing.assert_array_equal(y, [0, 2])
    with pytest.raises(Exception, match="relu: 2 results are not what the call's attributes say"):
        jax.block_until_ready(call(x, _op="relu", _counts=np.array([1])))
