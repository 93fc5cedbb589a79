"""What is refused says which operator and which argument, and what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import DEVICE
from imports import assert_asks_for, assert_refuses

import tenon.jax as tn
from tenon._lib import lib

X = jnp.ones((2, 3), jnp.float32)
NOTHING = "nothing(x: T[*s]?, y: T[*s]?) -> z: T[*s] : x + y"
NEEDED = "needed(x: T[*s], y: T[*s]?) -> z: T[*s] : x + y"
TIMES = "times(x: T[*s], n: i32[]) -> y: T[*s] : x * n"


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: tn.softmax(jnp.ones(())), ValueError, "softmax: x has rank 0, needs at least 1"),
        (lambda: tn.softmax(X, axis=2), ValueError, "softmax: axis is 2, x has rank 2"),
        (lambda: tn.layer_norm(X, jnp.ones(4)), ValueError, "gamma has shape .4., but c is 3 from x .2, 3."),
        (lambda: tn.add(X, jnp.ones((2, 4))), ValueError, "add: y has shape .2, 4., which does not broadcast to"),
        (
            lambda: tn.softmax(X, axis=None),
            TypeError,
            "softmax: axis is None, needs an int; leave it out for the default, -1",
        ),
        (lambda: tn.softmax(X, causal="false"), TypeError, "softmax: causal is 'false', needs a bool"),
        (lambda: tn.clip_grad_norm(X, 1.0), TypeError, "clip_grad_norm: g must be a list of arrays"),
        (lambda: tn.softmax(jnp.ones(3, jnp.int32)), TypeError, "softmax: x has type i32, needs f16, bf16, f32 or f64"),
        (lambda: tn.softmax(jnp.ones(3, jnp.uint32)), TypeError, "softmax: x has type u32, needs f16, bf16, f32"),
        (lambda: tn.softmax(X, where=X), TypeError, "softmax: mask has type f32, needs bool"),
        (lambda: tn.softmax([1.0, 2.0]), TypeError, "softmax: x must be an array, not list; jnp.asarray"),
        (lambda: tn.add(1.0, 2.0), TypeError, "add: x must be an array, not float; jnp.asarray"),
        (lambda: tn.softmax(None), TypeError, "softmax: x must be an array, not None"),
        (lambda: tn.dropout(X, 0.1), TypeError, "seed must be an array, not float; p=0.1 by keyword is the attribute"),
        (lambda: tn.softmax(X, scale="much"), TypeError, "softmax: scale is 'much', needs a float"),
        (lambda: tn.softmax(X, axis=0.5), TypeError, "softmax: axis is 0.5, needs an int"),
        (lambda: tn.sum(X, axis=1.5), TypeError, "sum: axes is 1.5, needs ints"),
        (lambda: tn.sum(X, axis=[2**64]), ValueError, "sum: axes is .18446744073709551616., beyond 64 bits"),
        (lambda: tn.sum_grad(X[0, 0], shape=(-1, 2)), ValueError, "sum_grad: shape has a size of -1"),
        (lambda: tn.softmax(jax.random.key(0)), TypeError, "softmax: x has type key<fry>, which Tenon does not have"),
        (lambda: tn.mse(X, X, reduction="most"), ValueError, "mse: reduction is 'most', needs 'mean' or 'sum'"),
        (lambda: tn.bias_act(X, X[0], act="wild"), ValueError, "bias_act: act is 'wild', needs 'none' or"),
        (lambda: tn.scale(X), TypeError, "missing 1 required positional argument: 'c'"),
        (lambda: tn.adamw_step(X, X, X, X), TypeError, "adamw_step.. missing 1 required argument: 'lr'"),
        (lambda: tn.sgd_step_list([X], [X[0]], [X], 0.1), ValueError, "sgd_step_list: g.0. has shape .3., but"),
        (lambda: tn.clip_grad_norm([], 1.0), ValueError, "clip_grad_norm: g is missing"),
        (lambda: tn.clip_grad_norm([X, None], 1.0), TypeError, r"clip_grad_norm: g\[1\] must be an array, not None"),
        (lambda: tn.sgd_step(X, X, X, lr=10**400), ValueError, "sgd_step: lr is 10*, which is no f32"),
        (lambda: tn.sgd_step(X, X, X, lr=1j), ValueError, "sgd_step: lr is 1j, which is no f32"),
        (lambda: tn.fuse(TIMES)(X, 1.5), ValueError, "times: n is 1.5, which is no i32"),
        (lambda: tn.fuse(TIMES)(X, np.array(2**40)), ValueError, "times: n is .*, which is no i32"),
        (lambda: tn.softmax(np.ones(3, ">f4")), TypeError, "softmax: x has type >f4, which JAX does not have"),
        (lambda: tn.softmax(np.array([None])), TypeError, "softmax: x has type object, which JAX does not have"),
        (lambda: tn.softmax(np.ma.ones(3)), ValueError, "softmax: x: .*masked arrays are not supported"),
        (lambda: tn.softmax(X, axes=[0]), TypeError, "unexpected keyword argument 'axes'; did you mean 'axis'"),
        (lambda: tn.fuse(NOTHING)(), ValueError, "nothing: .s, a size of z, cannot be told from the inputs given"),
        (lambda: tn.fuse(NEEDED)(X), ValueError, "needed: z needs y, which is absent"),
        (lambda: tn.fuse("a = sum(x); b = sum(x * y)")(X, X.T), ValueError, "y has 3 elements in dimension -2"),
        (lambda: tn.fuse("max(x, axis=-1)")(X[:, :0]), ValueError, "formula: max of no elements"),
        (lambda: tn.fuse("silu(x) *"), ValueError, r"\^"),
        (lambda: tn.fuse("1 + 2"), ValueError, "the formula has no inputs"),
        (lambda: tn.fuse(b"x"), TypeError, "a formula is a str, not bytes"),
        (lambda: tn.fuse(["x"]), TypeError, "a formula is a str, not list"),
        (lambda: tn.fuse("lambda * lambda_"), ValueError, "both lambda_ in Python"),
        (lambda: tn.fuse("x\0+ y"), ValueError, "NUL character, at column 2"),
    ],
)
def test_refused(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()
    with pytest.raises(error, match=message):
        jax.jit(call)()


def test_integers_that_jax_would_cut_off() -> None:
    target = np.array([0, 2**40])
    with jax.enable_x64(False):
        with pytest.raises(ValueError, match="cross_entropy: target has integers of more than 32 bits"):
            tn.cross_entropy(X, target)
        tn.cross_entropy(X, target % 3)


def test_types_that_jax_shall_not_promote() -> None:
    with jax.numpy_dtype_promotion("strict"), pytest.raises(TypeError, match="add: y has type bf16, needs f32"):
        tn.add(X, X.astype(jnp.bfloat16))


@pytest.mark.parametrize("number", [1.5, 1j, jnp.int32(2**20)], ids=repr)
def test_numbers_that_would_be_cut_off(number: Any) -> None:
    """What jit makes an array of is told from what it would be cut off to, as plain numbers are."""
    times = tn.fuse("times(x: T[*s], n: i8[]) -> y: T[*s] : x * n")
    with pytest.raises(TypeError, match=r"times: n has type [fci]\d+, needs i8"):
        jax.jit(times)(X, number)
    with pytest.raises(TypeError, match=r"times: n has type [fci]\d+, needs i8"):
        times(X, jnp.asarray(number))
    assert (jax.jit(times)(X, 2) == 2).all()


def test_attributes_are_constants() -> None:
    with pytest.raises(TypeError, match=r"softmax: axis is an attribute.*static_argnames"):
        jax.jit(lambda x, axis: tn.softmax(x, axis=axis))(X, 0)
    static = jax.jit(tn.softmax, static_argnames="axis")
    assert static(X, axis=0).shape == X.shape


def test_errors_of_the_kernel_reach_python() -> None:
    """A call that Python did not look at: the words and the kind of the C library."""
    counts = np.ones(1, np.int64)
    call = jax.ffi.ffi_call("tenon", jax.ShapeDtypeStruct((2, 3), jnp.float32))
    with pytest.raises(Exception, match=r"NOT_FOUND.*there is no operator 'softmux'; did you mean 'softmax'"):
        call(X, _op="softmux", _counts=counts).block_until_ready()
    with pytest.raises(Exception, match=r"INVALID_ARGUMENT.*silu.*y"):
        wrong = jax.ffi.ffi_call("tenon", jax.ShapeDtypeStruct((5,), jnp.float32))
        wrong(X, _op="silu", _counts=counts).block_until_ready()
    with pytest.raises(Exception, match=r"INVALID_ARGUMENT.*attribute 'wild' is not as the contract says"):
        call(X, _op="silu", _counts=counts, wild=1).block_until_ready()
    with pytest.raises(Exception, match=r"INVALID_ARGUMENT.*softmax: attribute 'axis' is not as the contract says"):
        call(X, _op="softmax", _counts=np.array([1, 0], np.int64), axis=0.5).block_until_ready()
    with pytest.raises(Exception, match=r"INVALID_ARGUMENT.*silu: 2 arguments are not what the call's attributes say"):
        call(X, X, _op="silu", _counts=counts).block_until_ready()
    with pytest.raises(Exception, match=r"INVALID_ARGUMENT.*names no operator"):
        call(X, _counts=counts).block_until_ready()
    assert call(X, _op="silu", _counts=counts).shape == (2, 3)  # and goes on


@pytest.mark.skipif(DEVICE != "cpu", reason="for machines without a GPU")
def test_handler_for_gpus_asks_xla_for_the_stream() -> None:
    """On the CPU XLA has none to give, and says so."""
    jax.ffi.register_ffi_target("tenon_gpu", jax.ffi.pycapsule(lib.tn_jax_cuda), platform="cpu")
    call = jax.ffi.ffi_call("tenon_gpu", jax.ShapeDtypeStruct((2, 3), jnp.float32))
    with pytest.raises(Exception, match=r"(?i)gpu|stream"):
        call(X, _op="silu", _counts=np.ones(1, np.int64)).block_until_ready()


def test_no_jax() -> None:
    assert_asks_for("jax", "JAX", "0.8")


def test_old_jax(tmp_path: Path) -> None:
    assert_refuses("jax", "0.4.30", tmp_path)
