"""Functions and layers with the name of one of TensorFlow's or Keras's mean what those do. Keras's own tests, which are
installed with it, run with our layers and functions in place of Keras's."""

from __future__ import annotations

import importlib
import inspect
import unittest
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from functional import assert_close
from namesakes import Namesake, assert_alike, assert_names_are_of_contracts, assert_suggests, namesakes

import tenon
import tenon.tensorflow as tn
from tenon._frameworks import TensorFlowFunction
from tenon.tensorflow import layers

MODULES = ["tensorflow:nn", "tensorflow:math", "keras.ops", "keras.activations", "keras.losses"]
PAIRS = list(namesakes(tn, MODULES))
NAME = "the name of an op there; a str is refused here"
REASONS = {
    "tensorflow.nn.elu": NAME,
    "tensorflow.nn.softplus": NAME,
    "tensorflow.math.softplus": NAME,
    "tensorflow.nn.top_k": "k is 1 by default there; here a call without it is refused",
    "tensorflow.math.top_k": "k is 1 by default there; here a call without it is refused",
    "keras.ops.identity": "the identity matrix there; an int is refused here",
    "keras.ops.histogram": "there are 10 bins and the range is that of the data there; here both are required",
    "keras.ops.roll": "without an axis it rolls the flattened tensor there; here an axis is required",
    "keras.ops.cumsum": "without an axis it flattens there; here it goes along the first one, as tf.cumsum does",
    "keras.ops.cumprod": "without an axis it flattens there; here it goes along the first one, as tf.math.cumprod does",
    "keras.ops.argmax": "without an axis it flattens there; here it goes along the first one, as tf.argmax does",
    "keras.ops.argmin": "without an axis it flattens there; here it goes along the first one, as tf.argmin does",
    "keras.ops.select": "lists of conditions and choices there; lists are refused here",
    "keras.ops.gelu": "approximate there and exact in tf.nn and keras.activations: here as in those",
    "tensorflow.math.segment_sum": f"ids are sorted there, and the third is {NAME}",
    "keras.ops.segment_sum": "without num_segments the result is as large as the ids need there; here it is required",
    "keras.losses.huber": "the loss of each row there; here one number. The arguments may be swapped",
    "keras.losses.cosine_similarity": "a loss there, with the sign turned; here the cosine",
}
X = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)


# ---- no call means something else ------------------------------------------------------------------------------------


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_positional_order_and_defaults(pair: Namesake) -> None:
    means = {"softmax": -1, "log_softmax": -1, "argmax": 0, "argmin": 0}  # what no axis means there
    assert_alike(pair, REASONS, {("axis", None): means[pair.name]} if pair.name in means else {})


CALLS = {
    "elu": lambda: tn.elu(X, "name"),
    "softplus": lambda: tn.softplus(X, "name"),
    "identity": lambda: tn.identity(3),
    "segment_sum": lambda: tn.segment_sum(X, np.zeros(3, np.int32), "name"),
    "roll": lambda: tn.roll(X, 1),
    "select": lambda: tn.select([X > 0], [X], 0.0),
    "pad": lambda: tn.pad(X, ((1, 1), (2, 2))),
    "repeat": lambda: tn.repeat(X, 2),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_calls_that_would_differ_are_refused(call: Callable[[], Any]) -> None:
    with pytest.raises(TypeError, match=r"needs a float|needs an int|must be a tensor|required|positional"):
        call()
    assert REASONS.keys() <= {str(p) for p in PAIRS}


def test_spellings_name_what_contracts_have() -> None:
    assert_names_are_of_contracts(tenon.ops(), TensorFlowFunction.spellings)


LAYERS = [n for n in layers.__all__ if hasattr(keras.layers, n) or hasattr(keras.losses, n)]


@pytest.mark.parametrize("name", LAYERS)
def test_layers_take_the_arguments_of_keras(name: str) -> None:
    theirs = getattr(keras.layers, name, None) or getattr(keras.losses, name)
    mine = inspect.signature(getattr(layers, name)).parameters.values()
    if any(p.kind == p.VAR_POSITIONAL for p in mine):
        assert issubclass(getattr(layers, name), theirs)  # which gets them as they are
        return
    given = [p for p in mine if p.kind == p.POSITIONAL_OR_KEYWORD]
    want = list(inspect.signature(theirs).parameters.values())[: len(given)]
    assert [(p.name, p.default) for p in given] == [(p.name, p.default) for p in want]


def test_clamp_passes_the_gradient_at_its_bounds() -> None:
    x = tf.constant([-2.0, -1.0, 0.0, 1.0, 2.0])
    made = []
    for clamp in (tn.clamp, tf.clip_by_value):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = clamp(x, -1.0, 1.0)
        made.append(tape.gradient(y, x).numpy().tolist())
    assert made[0] == made[1] == [0, 1, 1, 1, 0]


def test_roles_that_are_easily_swapped_are_given_by_name() -> None:
    with pytest.raises(TypeError, match="scale_bias_relu"):
        tn.scale_bias_relu(X, X, X)
    assert_close(tn.scale_bias_relu(X, scale=2, bias=0.5), np.maximum(X * 2 + 0.5, 0))


# ---- as people call it -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [2, 2.5, np.float32(2), np.float64(2), np.int64(2)], ids=repr)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_numbers_beside_tensors(number: Any, dtype: str) -> None:
    x = tf.cast(X, dtype)
    for have, want in (
        (tn.add(x, number), x + tf.cast(number, dtype)),
        (tn.mul(number, x), tf.cast(number, dtype) * x),
        (tf.function(lambda: tn.div(x, number))(), x / tf.cast(number, dtype)),
    ):
        assert have.dtype == want.dtype == dtype
        np.testing.assert_allclose(tf.cast(have, tf.float64), tf.cast(want, tf.float64), rtol=1e-2)


def test_keywords_of_tf_nn() -> None:
    x = tf.reshape(tf.range(6.0), (2, 3))
    np.testing.assert_allclose(tn.softmax(logits=x, axis=0), tf.nn.softmax(logits=x, axis=0), rtol=1e-5)
    with pytest.raises(TypeError, match="'logits'"):
        tn.softmax(x=x)
    with pytest.raises(TypeError, match="silu"):  # tf.nn.silu(x, beta): docs/tensorflow.md has the formula
        tn.silu(x, 2.0)
    scaled = tn.fuse("x * sigmoid(beta * x)")(x, tf.constant(2.0))
    np.testing.assert_allclose(scaled, tf.nn.silu(x, 2.0), rtol=1e-5)


def test_a_name_that_does_not_exist_gets_a_suggestion() -> None:
    assert_suggests(tn, X)


def test_what_the_module_shows() -> None:
    assert set(dir(tn)) == {"fuse", "layers", "load", "ops", *tn.ops()}


def test_the_module_can_be_loaded_again() -> None:
    joined = len(tenon._adapters)
    assert importlib.reload(tn) is tn and len(tenon._adapters) == joined
    assert_close(tn.softmax(X), tf.nn.softmax(X))


# ---- Keras's own cases -----------------------------------------------------------------------------------------------


class Mixed:
    """A module of Keras with some names of ours."""

    def __init__(self, theirs: Any, mine: Any, names: list[str]) -> None:
        self.theirs, self.mine, self.names = theirs, mine, names

    def __getattr__(self, name: str) -> Any:
        return getattr(self.mine if name in self.names else self.theirs, name)


# Which tests of Keras cannot pass, and why; by the beginnings of their names.
CASES = {
    "layers.normalization.batch_normalization_test": {},
    "layers.normalization.layer_normalization_test": {},
    "layers.normalization.rms_normalization_test": {"test_unsorted_axis": "several axes are refused"},
    "layers.normalization.group_normalization_test": {},
    "layers.core.embedding_test": dict.fromkeys(
        ("test_embedding_int8", "test_embedding_quantize", "test_int4", "test_quantize_"),
        "Keras quantizes its own class, and none that is derived from it",
    ),
    "layers.activations.softmax_test": {},
    "layers.activations.activation_test": {"test_activation_basics": "a function is no operator of the table"},
    "layers.regularization.dropout_test": {
        "test_dropout_rescaling": "another generator: its mean is off by 2.2 standard deviations, where 2 are allowed",
    },
    "activations.activations_test": {
        "test_get_method": "compares with Keras's own function",
        "test_relu_": "relu has no slope, maximum or threshold, and says so",
        "test_log_softmax_3d_axis_tuple": "several axes are refused",
        "test_log_softmax_higher_dim": "several axes are refused",
        "test_softmax_3d_axis_tuple": "several axes are refused",
        "test_softmax_higher_dim": "several axes are refused",
    },
    "losses.losses_test": {"test_squeezes_singleton_class_dim_on_user_axis": "Keras's own fails on TensorFlow too"},
}


def keras_module(name: str) -> Any:
    """A module of tests with our layers and functions in place of Keras's."""
    try:
        module = importlib.import_module(f"keras.src.{name}")
    except ImportError:
        pytest.skip("this Keras has no such tests")
    ours = {n: getattr(layers, n) for n in LAYERS}
    for one, value in list(vars(module).items()):
        if isinstance(value, type) and one in ours and value.__module__.startswith("keras."):
            setattr(module, one, ours[one])
    # Keras calls the identity `linear`.
    functions = [n for n in tn.ops() if hasattr(keras.activations, n) and n != "linear"]
    for one, mine, names in (("layers", layers, LAYERS), ("losses", layers, LAYERS), ("activations", tn, functions)):
        if hasattr(module, one) and not isinstance(getattr(module, one), Mixed):
            setattr(module, one, Mixed(getattr(module, one), mine, names))
    return module


def short_name(test: unittest.TestCase) -> str:
    """The method, without the parameters that Keras writes behind it."""
    return test.id().partition(" (")[0].rpartition(".")[2]


@pytest.mark.parametrize("name", CASES)
def test_keras_tests(name: str) -> None:
    module = keras_module(name)
    of_interest = "SparseCategorical" if name == "losses.losses_test" else ""
    suite = unittest.TestSuite()
    for case in [c for c in vars(module).values() if isinstance(c, type) and issubclass(c, unittest.TestCase)]:
        if case.__module__ == module.__name__ and of_interest in case.__name__:
            suite.addTests(unittest.defaultTestLoader.loadTestsFromTestCase(case))
    result = unittest.TestResult()
    suite.run(result)
    failed = {short_name(test): text for test, text in [*result.failures, *result.errors]}
    unexpected = [text for n, text in failed.items() if not n.startswith(tuple(CASES[name]))]
    assert not unexpected, "\n\n".join(unexpected)
    assert result.testsRun > 0
    assert all(any(n.startswith(known) for n in failed) for known in CASES[name]), "a reason that is not needed"
