"""What is refused says which operator and which argument, and what to do."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from imports import assert_asks_for, assert_refuses, run
from locales import make_locale

import tenon.tensorflow as tn

X = tf.ones((2, 3))
V = tf.Variable(X)
TIMES = "times(x: T[*s], n: i32[]) -> y: T[*s] : x * n"

# What Python sees, in eager mode and when a graph is made.
REFUSED = [
    (lambda: tn.softmax(tf.ones(3, tf.int32)), TypeError, "softmax: x has type i32, needs f16, bf16, f32 or f64"),
    (lambda: tn.softmax(tf.ones(3, tf.uint32)), TypeError, "softmax: x has type u32, needs f16, bf16, f32 or f64"),
    (lambda: tn.softmax(X, mask=X), TypeError, "softmax: mask has type f32, needs bool"),
    (lambda: tn.add(X, tf.cast(X, tf.float16)), TypeError, "add: y has type f16, needs f32"),
    (lambda: tn.softmax([1.0, 2.0]), TypeError, "softmax: x must be a tensor, not list; tf.constant"),
    (lambda: tn.add(1.0, 2.0), TypeError, "add: x must be a tensor, not float; tf.constant"),
    (lambda: tn.softmax(None), TypeError, "softmax: x must be a tensor, not None"),
    (lambda: tn.softmax(tf.keras.Input((3,))), TypeError, "softmax: x must be a tensor, not KerasTensor; in a model"),
    (lambda: tn.softmax(X, scale="much"), TypeError, "softmax: scale is 'much', needs a float"),
    (lambda: tn.softmax(X, axis=0.5), TypeError, "softmax: axis is 0.5, needs an int"),
    (lambda: tn.softmax(X, axis=tf.constant(0)), TypeError, "softmax: axis is an attribute, a constant of the graph"),
    (lambda: tn.sum(X, axis=1.5), TypeError, "sum: axes is 1.5, needs ints"),
    (lambda: tn.softmax(X, axis=2**64), ValueError, "softmax: axis is 18446744073709551616, beyond 64 bits"),
    (
        lambda: tn.softmax(X, axis=None),
        TypeError,
        "softmax: axis is None, needs an int; leave it out for the default, -1",
    ),
    (lambda: tn.softmax(X, causal="false"), TypeError, "softmax: causal is 'false', needs a bool"),
    (lambda: tn.clip_grad_norm((t for t in [X]), 1.0), TypeError, "clip_grad_norm: g must be a list of tensors, not"),
    (lambda: tn.scale(X), TypeError, "missing 1 required positional argument: 'c'"),
    (lambda: tn.adamw_step(X, X, X, X), TypeError, "adamw_step.. missing 1 required argument: 'lr'"),
    (lambda: tn.sgd_step(X, X, X, lr=10**400), ValueError, "sgd_step: lr is 10*, which is no f32"),
    (lambda: tn.sgd_step(X, X, X, lr=1j), ValueError, "sgd_step: lr is 1j, which is no f32"),
    (lambda: tn.fuse(TIMES)(X, 1.5), ValueError, "times: n is 1.5, which is no i32"),
    (lambda: tn.fuse(TIMES)(X, np.array(2**40)), ValueError, "times: n is .*, which is no i32"),
    (lambda: tn.softmax(np.array([None])), TypeError, "softmax: x is no tensor for TensorFlow"),
    (lambda: tn.softmax(np.ma.ones(3)), TypeError, "softmax: x has a mask, which TensorFlow would drop"),
    (lambda: tn.softmax(X, axes=[0]), TypeError, "unexpected keyword argument 'axes'; did you mean 'axis'"),
    (lambda: tn.sgd_step(V, X, V, 0.1), ValueError, "sgd_step: p and m are both written, but are one variable"),
    (lambda: tn.clip_grad_norm([V, V], 1.0), ValueError, r"clip_grad_norm: g\[0\] and g\[1\] are both written"),
    (lambda: tn.fuse("f(x: T[*s], out: dtype) -> y: out[*s] : x")(X, None), ValueError, "f: out is missing; it needs"),
    (lambda: tn.fuse("silu(x) *"), ValueError, r"\^"),
    (lambda: tn.fuse("1 + 2"), ValueError, "the formula has no inputs"),
    (lambda: tn.fuse(b"x"), TypeError, "a formula is a str, not bytes"),
    (lambda: tn.fuse(["x"]), TypeError, "a formula is a str, not list"),
    (lambda: tn.fuse("lambda * lambda_"), ValueError, "both lambda_ in Python"),
    (lambda: tn.fuse("x\0+ y"), ValueError, "NUL character, at column 2"),
]

# What the C library sees: InvalidArgumentError where it runs, ValueError where a graph is made.
CHECKED = [
    (lambda: tn.softmax(tf.ones(())), "softmax: x has rank 0, needs at least 1"),
    (lambda: tn.softmax(X, axis=2), "softmax: axis is 2, x has rank 2"),
    (lambda: tn.layer_norm(X, tf.ones(4)), "layer_norm: gamma has shape .4., but c is 3 from x .2, 3."),
    (lambda: tn.mse(X, X, reduction="most"), "mse: reduction is 'most', needs 'mean' or 'sum'"),
    (lambda: tn.bias_act(X, X[0], act="wild"), "bias_act: act is 'wild', needs"),
    (lambda: tn.sgd_step_list([X], [X[0]], [X], 0.1), "sgd_step_list: g"),
    (lambda: tn.clip_grad_norm([], 1.0), "clip_grad_norm: g is missing"),
    (lambda: tn.fuse("x * y")(X, tf.ones(4)), "do not broadcast|y has"),
]


@pytest.mark.parametrize(("call", "error", "message"), REFUSED)
def test_refused(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()
    with pytest.raises(error, match=message):
        tf.function(call, autograph=False)()


@pytest.mark.parametrize(("call", "message"), CHECKED)
def test_checked(call: Any, message: str) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        call()
    with pytest.raises(ValueError, match=message):
        tf.function(call, autograph=False)()


def test_sizes_that_do_not_fit_when_a_graph_runs() -> None:
    norm = tf.function(
        lambda x, g: tn.layer_norm(x, g), input_signature=[tf.TensorSpec([None, None]), tf.TensorSpec([None])]
    )
    assert norm(X, tf.ones(3)).shape == (2, 3)
    with pytest.raises(tf.errors.InvalidArgumentError, match="layer_norm: gamma has"):
        norm(X, tf.ones(4))


def test_ops_that_python_did_not_look_at() -> None:
    """The attributes of an op may be anything; the words are the C library's."""
    from tenon.tensorflow._call import _functions

    fuse = {"xs": [X], "formula": "silu(x)", "counts": [1], "Tout": [tf.float32]}
    assert _functions["TenonFuse"](**fuse)[0].shape == (2, 3)
    for wrong, message in (
        ({"formula": "silu(x"}, "silu"),
        ({"counts": [2]}, "counts are not those of its inputs"),
        ({"counts": []}, "counts are not those of its inputs"),
        ({"counts": [0]}, "the number of tensors is not what the op's attributes say"),
        ({"xs": [X, X]}, "the number of tensors is not what the op's attributes say"),
        ({"Tout": [tf.float32] * 2}, "the number of tensors is not what the op's attributes say"),
        ({"Tout": [tf.float64]}, "y has type f32, and the op's attributes say something else"),
        ({"attributes": "wild=1"}, "there is no attribute 'wild'"),
    ):
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            _functions["TenonFuse"](**fuse | wrong)
    with pytest.raises(tf.errors.InvalidArgumentError, match="softmax: scale needs a float, not 'much'"):
        _functions["TenonSoftmax"](x=X, mask=[], scale="much")
    with pytest.raises(tf.errors.InvalidArgumentError, match="softmax: mask is one tensor, not 2"):
        _functions["TenonSoftmax"](x=X, mask=[X > 0, X > 0])
    assert tn.softmax(X).shape == (2, 3)  # and goes on


def test_nothing_is_left_behind() -> None:
    """Calls that fail free what they held: memory grows no more than with TensorFlow's own (which does on arm64)."""
    big = tf.ones((1000, 1000))

    def resident() -> int:  # bytes
        pages = Path("/proc/self/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def growth(fails: Callable[[], Any], works: Callable[[], Any]) -> int:
        before = 0
        for i in range(105):
            before = resident() if i == 5 else before
            with pytest.raises(tf.errors.InvalidArgumentError):
                fails()
            works()
        return resident() - before

    # The first time takes up what the process had free: that would count as theirs alone.
    for _ in range(2):
        theirs = growth(lambda: tf.matmul(big, tf.ones((4, 4))), lambda: tf.nn.softmax(big))
    ours = growth(lambda: tn.layer_norm(big, tf.ones(4)), lambda: tn.softmax(big))
    assert ours - theirs < 100e6  # 100 tensors have 400e6


# ---- importing -------------------------------------------------------------------------------------------------------


def test_no_tensorflow() -> None:
    assert_asks_for("tensorflow", "TensorFlow", "2.16")


def test_old_tensorflow(tmp_path: Path) -> None:
    assert_refuses("tensorflow", "2.15.1", tmp_path)


def test_registering_without_tensorflow() -> None:
    said = run("from tenon._lib import check, lib; check(lib.tn_tensorflow_register())")[1]
    assert "LookupError: TensorFlow is not loaded in this process: `import tensorflow` comes first" in said


TURKISH = """
import locale; locale.setlocale(locale.LC_ALL, "tr_TR")
import tenon, tenon.tensorflow as tn
from tenon.tensorflow._call import _functions, op_name
print([name for name in tenon.ops() if op_name(name) not in _functions])
"""


def test_a_locale_where_i_has_another_capital(tmp_path: Path) -> None:
    printed, said = run(TURKISH, environment=make_locale(tmp_path, "tr_TR"))
    assert printed == "[]\n", said
