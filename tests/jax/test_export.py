"""Programs that leave the process, and programs over several devices."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import DEVICE, ROOT
from functional import assert_close
from jax import export

import tenon.jax as tn

CHECKS = [export.DisabledSafetyCheck.custom_call("tenon")]
W = jnp.linspace(0.5, 1.5, 8)
needs_flatbuffers = pytest.mark.skipif(not importlib.util.find_spec("flatbuffers"), reason="jax.export writes with it")


def block(x: Any) -> Any:
    """Rows, a formula, a formula of the table, a result of each row."""
    x = tn.layer_norm(x, W, None)
    x = tn.fuse("silu(x) * x + mean(x, -1)")(x)
    return tn.cosine_similarity(tn.gelu(x), x)


@needs_flatbuffers
def test_round_trip_with_a_symbolic_batch() -> None:
    shape = jax.ShapeDtypeStruct(export.symbolic_shape("b, 8"), jnp.float64)
    exported = export.export(jax.jit(block), disabled_checks=CHECKS)(shape)
    again = export.deserialize(exported.serialize())
    for n in (1, 5):
        x = jnp.asarray(np.random.default_rng(n).standard_normal((n, 8)))
        assert_close(again.call(x), block(x), "f64")


@needs_flatbuffers
def test_gradients_are_exported() -> None:
    shape = jax.ShapeDtypeStruct(export.symbolic_shape("b, 8"), jnp.float64)
    exported = export.export(jax.jit(lambda x: tn.layer_norm(x, W)), disabled_checks=CHECKS)(shape)
    again = export.deserialize(exported.serialize(vjp_order=1))
    x = jnp.asarray(np.random.default_rng(0).standard_normal((4, 8)))
    have, want = (jax.grad(lambda x, f=f: (f(x) ** 3).sum())(x) for f in (again.call, lambda x: tn.layer_norm(x, W)))
    assert_close(have, want, "f64")


@pytest.mark.parametrize("platforms", [("tpu",), ("cpu", "tpu"), ("rocm",)], ids=str)
def test_platforms_without_a_kernel_are_refused(platforms: tuple[str, ...]) -> None:
    with pytest.raises(
        NotImplementedError, match=f"softmax: Tenon has kernels for cpu and cuda, none for {platforms[-1]}"
    ):
        export.export(jax.jit(tn.softmax), platforms=platforms, disabled_checks=CHECKS)(jnp.ones((2, 3)))


def test_a_program_for_both_platforms() -> None:
    made = export.export(jax.jit(tn.softmax), platforms=("cpu", "cuda"), disabled_checks=CHECKS)(jnp.ones((2, 3)))
    assert made.platforms == ("cpu", "cuda")


def test_symbolic_sizes_that_do_not_fit() -> None:
    b, c = export.symbolic_shape("b, c")
    x, w = jax.ShapeDtypeStruct((b, c), jnp.float32), jax.ShapeDtypeStruct((b,), jnp.float32)
    with pytest.raises(ValueError, match=r"layer_norm: gamma has shape \(b\), but c is c from x \(b, c\)"):
        jax.eval_shape(lambda x, w: tn.layer_norm(x, w), x, w)


def test_symbolic_sizes_that_would_be_constants() -> None:
    """The gradient of a sum needs the shape, which is an attribute."""
    x = jax.ShapeDtypeStruct(export.symbolic_shape("b, 8"), jnp.float64)
    with pytest.raises(NotImplementedError, match=r"sum_grad: shape, .* would be a symbolic size; export with that"):
        jax.eval_shape(jax.grad(lambda x: tn.sum(x)), x)
    jax.eval_shape(jax.grad(lambda x: tn.silu(x).sum()), x)


@needs_flatbuffers
def test_other_process(tmp_path: Path) -> None:
    """A file with a formula and an operator runs where nobody made them before."""
    shape = jax.ShapeDtypeStruct((3, 8), jnp.float32)
    exported = export.export(jax.jit(lambda x: tn.softmax(tn.fuse("silu(x) * 2")(x))), disabled_checks=CHECKS)(shape)
    (tmp_path / "program").write_bytes(exported.serialize())
    code = """
import sys, jax.export, numpy as np, tenon.jax
made = jax.export.deserialize(open(sys.argv[1], "rb").read()).call(np.ones((3, 8), np.float32))
assert np.allclose(made, 1 / 8)
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "program")], check=True, env=environment)


SHARDED = """
import jax, jax.numpy as jnp, numpy as np
import tenon.jax as tn
from jax.sharding import Mesh, PartitionSpec as P

mesh = Mesh(np.array(jax.devices()[:2]), ("b",))
x = jnp.asarray(np.random.default_rng(0).standard_normal((4, 8)), jnp.float32)
w = jnp.linspace(0.5, 1.5, 8)

def local(x, w):
    return tn.fuse("silu(x) * y")(tn.layer_norm(x, w), x)

def loss(x, w):
    return jax.lax.psum(tn.sum(local(x, w) ** 2), "b")

whole = jax.jit(jax.shard_map(local, mesh=mesh, in_specs=(P("b"), P()), out_specs=P("b")))
assert np.allclose(whole(x, w), local(x, w), atol=1e-6)
total = jax.shard_map(loss, mesh=mesh, in_specs=(P("b"), P()), out_specs=P())
have = jax.jit(jax.grad(total, (0, 1)))(x, w)
want = jax.grad(lambda x, w: (local(x, w) ** 2).sum(), (0, 1))(x, w)
for a, b in zip(have, want):
    assert np.allclose(a, b, atol=1e-5), (a, b)

# Without shard_map XLA gathers what is spread over devices.
spread = jax.device_put(x, jax.sharding.NamedSharding(mesh, P("b")))
assert np.allclose(jax.jit(local)(spread, w), local(x, w), atol=1e-6)

# Where axes are explicit, gradients are spread as their arrays are.
if hasattr(jax, "set_mesh"):
    ones = np.ones((4, 8), np.float32)
    each = jax.vmap(tn.layer_norm)(x, ones)
    with jax.set_mesh(jax.make_mesh((2,), ("b",), axis_types=(jax.sharding.AxisType.Explicit,))):
        spread = jax.device_put(x, P("b"))
        for differentiate in (jax.grad, lambda f, i: jax.jit(jax.grad(f, i))):
            have = differentiate(lambda x, w: (local(x, w) ** 2).sum(), (0, 1))(spread, w)
            assert jax.typeof(have[0]) == jax.typeof(spread), have[0]
            for a, b in zip(have, want):
                assert np.allclose(a, b, atol=1e-5), (a, b)
        assert np.allclose(jax.vmap(tn.layer_norm)(spread, jax.device_put(ones, P("b"))), each, atol=1e-6)
        for function in (jax.vmap(tn.silu), jax.grad(lambda x: (jax.vmap(local, (0, None))(x, w) ** 2).sum())):
            for batch in (function, jax.jit(function)):
                assert jax.typeof(batch(spread)) == jax.typeof(spread)  # that of a batch too
                assert np.allclose(batch(spread), function(x), atol=1e-5)
"""


@pytest.mark.skipif(DEVICE != "cpu" and len(jax.devices()) < 2, reason="needs two devices")
def test_two_devices() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    if DEVICE == "cpu":
        environment["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
    done = subprocess.run([sys.executable, "-c", SHARDED], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
