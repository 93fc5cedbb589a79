"""The Keras layers against Keras's own, in models that train, under mixed policies, saved and loaded."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from conftest import ROOT
from functional import assert_close

import tenon.tensorflow as tn
from tenon.tensorflow import layers

RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((6, 4, 8)).astype(np.float32)
IMAGES = RANDOM.standard_normal((3, 8, 5, 6)).astype(np.float32)

# Layers that are Keras's too: makes ours, Keras's, and what they are called with.
PAIRS = {
    "softmax": lambda: (layers.Softmax(), keras.layers.Softmax(), X, {}),
    "softmax, axis": lambda: (layers.Softmax(axis=1), keras.layers.Softmax(axis=1), X, {}),
    "softmax, mask": lambda: (
        layers.Softmax(),
        keras.layers.Softmax(),
        X,
        {"mask": (np.arange(8) % 3 > 0)[None, None]},
    ),
    "layer_norm": lambda: (layers.LayerNormalization(), keras.layers.LayerNormalization(), X, {}),
    "layer_norm, plain": lambda: (
        layers.LayerNormalization(center=False, scale=False, epsilon=1e-5),
        keras.layers.LayerNormalization(center=False, scale=False, epsilon=1e-5),
        X,
        {},
    ),
    "group_norm": lambda: (layers.GroupNormalization(2), keras.layers.GroupNormalization(2), X, {}),
    "group_norm of channels first": lambda: (
        layers.GroupNormalization(2, axis=1, epsilon=1e-5),
        keras.layers.GroupNormalization(2, axis=1, epsilon=1e-5),
        IMAGES,
        {},
    ),
    "group_norm without weights": lambda: (
        layers.GroupNormalization(-1, center=False, scale=False),
        keras.layers.GroupNormalization(-1, center=False, scale=False),
        IMAGES,
        {},
    ),
    "batch_norm": lambda: (layers.BatchNormalization(), keras.layers.BatchNormalization(), X, {"training": True}),
    "batch_norm, channels first": lambda: (
        layers.BatchNormalization(axis=1),
        keras.layers.BatchNormalization(axis=1),
        IMAGES,
        {"training": True},
    ),
    "batch_norm, plain": lambda: (
        layers.BatchNormalization(center=False, scale=False),
        keras.layers.BatchNormalization(center=False, scale=False),
        X,
        {"training": True},
    ),
    "batch_norm, infer": lambda: (
        layers.BatchNormalization(),
        keras.layers.BatchNormalization(),
        IMAGES,
        {"training": False},
    ),
    "dropout, infer": lambda: (layers.Dropout(0.5), keras.layers.Dropout(0.5), X, {"training": False}),
    "activation": lambda: (layers.Activation("silu"), keras.layers.Activation("silu"), X, {}),
    "activation with an attribute": lambda: (layers.Activation("elu", alpha=0.5), keras.layers.ELU(0.5), X, {}),
}


def results(layer: Any, x: Any, given: Any, trainable: Any) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = layer(x, **given)
        loss = tf.reduce_sum(tf.cast(y, tf.float32) ** 3)
    return y, tape.gradient(loss, [x, *(v.value for v in trainable)])


@pytest.mark.parametrize("name", PAIRS)
def test_agrees_with_keras(name: str) -> None:
    mine, theirs, x, given = PAIRS[name]()
    for layer in (mine, theirs):
        layer.build(x.shape)
    weights = [RANDOM.random(w.shape) + 0.5 for w in theirs.get_weights()]
    for layer in (mine, theirs):
        if weights:  # a layer with a seed has that beside them
            layer.set_weights(weights)
    x = tf.constant(x)
    assert_close(
        results(mine, x, given, mine.trainable_variables),
        results(theirs, x, given, theirs.trainable_variables),
        scale=4,
    )
    assert mine.compute_output_shape(x.shape) == theirs.compute_output_shape(x.shape)


def test_rms_normalization() -> None:
    layer = layers.RMSNormalization()
    want = X / np.sqrt(np.mean(X**2, -1, keepdims=True) + 1e-6)
    assert_close(layer(X), want)
    layer.scale.assign(np.full(8, 2.0))
    assert_close(layer(X), 2 * want)
    assert_close(layers.RMSNormalization(zero_centered=True)(X), want)


def test_moving_statistics() -> None:
    layer = layers.BatchNormalization(momentum=0.9)
    layer(X, training=True)
    rows = X.reshape(-1, 8)
    assert_close(layer.moving_mean.value, 0.1 * rows.mean(0))
    assert_close(layer.moving_variance.value, 0.9 + 0.1 * rows.var(0))
    layer.trainable = False  # Keras: then it infers
    before = layer.moving_mean.numpy().copy()
    layer(X, training=True)
    assert_close(layer.moving_mean.value, before)


@pytest.mark.parametrize("policy", ["float32", "float64", "mixed_float16", "mixed_bfloat16"])
@pytest.mark.parametrize(("axis", "shape"), [(-1, (5, 8)), (1, (3, 8, 4)), (-1, (1, 8))], ids=str)
def test_moving_statistics_are_keras(policy: str, axis: int, shape: tuple[int, ...]) -> None:
    """The variance divides by n, which shows most in a batch of few; float64 keeps all of its bits."""
    mine, theirs = (of.BatchNormalization(axis=axis, dtype=policy) for of in (layers, keras.layers))
    random = np.random.default_rng(3)
    for step in range(3):
        x = tf.cast(random.standard_normal(shape) * 10.0**-step + 2, mine.compute_dtype)
        for layer in (mine, theirs):
            layer(x, training=True)
    bound = {"float64": 1e-12, "float32": 1e-6}.get(policy, 2e-3)
    for name in ("moving_mean", "moving_variance"):
        have, want = getattr(mine, name), getattr(theirs, name)
        assert have.dtype == want.dtype
        np.testing.assert_allclose(have, want, rtol=bound, atol=bound)


@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_with_activation_and_residual(training: bool) -> None:
    fused, plain = layers.BatchNormalization(act="relu"), keras.layers.BatchNormalization()
    residual = RANDOM.standard_normal(X.shape).astype(np.float32)
    want = tf.nn.relu(plain(X, training=training) + residual)
    assert_close(fused(X, training=training, residual=residual), want, scale=4)


def test_what_no_operator_has_is_done_by_keras() -> None:
    """An activation and a residual come behind it."""
    mask, residual = X[..., 0] > 0, np.ones_like(X)
    for given in ({"mask": mask}, {}):
        mine, theirs = layers.BatchNormalization(act="silu"), keras.layers.BatchNormalization()
        if not given:
            mine, theirs = layers.BatchNormalization(axis=-2, act="silu"), keras.layers.BatchNormalization(axis=-2)
        want = tf.nn.silu(theirs(X, training=True, **given) + residual)
        assert_close(mine(X, training=True, residual=residual, **given), want, scale=4)
        assert_close(mine.moving_variance.value, theirs.moving_variance.value)
    for name, given in (("LayerNormalization", {"axis": (1, 2)}), ("Softmax", {"axis": (1, 2)})):
        assert_close(getattr(layers, name)(**given)(X), getattr(keras.layers, name)(**given)(X), scale=4)
    held = layers.Dropout(0.5, noise_shape=(None, 1, None), seed=1)(np.ones((4, 6, 8), np.float32), training=True)
    assert_close(held, tf.broadcast_to(held[:, :1], held.shape))


def test_a_residual_has_the_shape_of_the_input() -> None:
    x = tf.random.normal((2, 3, 4))
    for shape in ((3, 2, 4), (6, 4), (4,)):
        with pytest.raises(ValueError, match="BatchNormalization: residual has shape"):
            layers.BatchNormalization()(x, residual=tf.zeros(shape))


NAMES = [
    n for n in ("LayerNormalization", "BatchNormalization", "RMSNormalization", "Softmax") if hasattr(keras.layers, n)
]
GIVEN = [(name, given) for name in NAMES for given in ("float16", "float32", "float64")]
GIVEN += [("LayerNormalization", "int32"), ("BatchNormalization", "int32")]


@pytest.mark.parametrize(("name", "given"), GIVEN)
@pytest.mark.parametrize("policy", ["mixed_float16", "float16", "bfloat16", "float64", "float32"])
def test_results_have_the_type_of_the_policy(name: str, given: str, policy: str) -> None:
    x = tf.cast(tf.random.normal((5, 8)) * 4, given)
    have, theirs = getattr(layers, name)(dtype=policy)(x), getattr(keras.layers, name)(dtype=policy)
    assert have.dtype == theirs(x).dtype
    want = theirs(x if x.dtype.is_floating else tf.cast(x, "float32"))
    np.testing.assert_allclose(tf.cast(have, tf.float64), tf.cast(want, tf.float64), rtol=2e-2, atol=2e-2)


def test_dropout() -> None:
    x = np.ones((100, 100), np.float32)
    layer = layers.Dropout(0.25, seed=1)
    first, second = layer(x, training=True).numpy(), layer(x, training=True).numpy()
    assert 0.2 < (first == 0).mean() < 0.3 and (first != second).any()
    assert set(np.unique(first)) == {np.float32(0), np.float32(1 / 0.75)}
    again = layers.Dropout(0.25, seed=1)
    assert_close(again(x, training=True), first)
    assert_close(layers.Dropout(1.0)(x, training=True), 0 * x)


def test_scale_bias_relu() -> None:
    layer = layers.ScaleBiasReLU()
    assert_close(layer(X), tf.nn.relu(X))
    channels = layers.ScaleBiasReLU((8, 1, 1))
    assert channels(IMAGES).shape == IMAGES.shape and channels.scale.shape == (8, 1, 1)
    channels.bias.assign(channels.bias + 1)
    assert_close(channels(IMAGES), tf.nn.relu(IMAGES + 1))


@pytest.mark.parametrize("gate", layers.GatedMLP.GATES)
def test_gated_mlp(gate: str) -> None:
    layer = layers.GatedMLP(5, 3, gate=gate)
    have = layer(X)
    x, g = tf.split(layer.up(X), 2, -1)
    act = {"swiglu": tf.nn.silu, "geglu": tf.nn.gelu, "reglu": tf.nn.relu}[gate]
    assert_close(have, layer.down(x * act(g)))
    assert have.shape == layer.compute_output_shape(X.shape) == (6, 4, 3)


def test_loss() -> None:
    logits, labels = X[:, 0], np.array([1, 7, 0, 3, 3, 5])
    theirs = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    mine = layers.SparseCategoricalCrossentropy(from_logits=True)
    weights = np.arange(6.0, dtype=np.float32)
    assert_close(mine(labels, logits), theirs(labels, logits))
    assert_close(mine(labels[:, None], logits, weights), theirs(labels, logits, weights))
    ignoring = layers.SparseCategoricalCrossentropy(from_logits=True, ignore_class=3, reduction="none")(labels, logits)
    assert np.all((ignoring.numpy() == 0) == (labels == 3))


# ---- models ----------------------------------------------------------------------------------------------------------


def model(features: int = 8, classes: int = 3) -> keras.Model:
    inputs = keras.Input((features,))
    x = layers.LayerNormalization()(inputs)
    x = layers.GatedMLP(16)(x)
    x = layers.BatchNormalization(momentum=0.8, act="silu")(
        keras.layers.Dense(16)(x), residual=keras.layers.Dense(16)(x)
    )
    x = layers.Dropout(0.1, seed=0)(layers.ScaleBiasReLU()(layers.RMSNormalization()(x)))
    x = layers.Activation("leaky_relu", negative_slope=0.3)(x)
    return keras.Model(inputs, keras.layers.Dense(classes, dtype="float32")(x))


def data() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(1)
    labels = random.integers(0, 3, 512)
    return (random.standard_normal((512, 8)) + 4 * np.eye(8)[labels]).astype(np.float32), labels


@pytest.mark.parametrize("policy", ["float32", "mixed_float16", "mixed_bfloat16", "float64"])
def test_trains(policy: str) -> None:
    keras.utils.set_random_seed(0)
    keras.mixed_precision.set_dtype_policy(policy)
    try:
        net = model()
        x, labels = data()
        net.compile("adam", layers.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
        net.fit(x, labels, epochs=10, batch_size=60, verbose=0)  # the last batch is smaller
        assert net.evaluate(x, labels, verbose=0)[1] > 0.9
        assert net.layers[1].compute_dtype == keras.mixed_precision.dtype_policy().compute_dtype
    finally:
        keras.mixed_precision.set_dtype_policy("float32")


def test_no_layer_is_compiled_by_xla() -> None:
    made = [layer for layer in model().layers if type(layer).__module__.startswith("tenon")]
    assert len(made) == 7 and not any(layer.supports_jit for layer in made)


READ = """
import sys
import numpy as np
import keras
import tensorflow as tf
from tenon.tensorflow import layers

x = np.load(sys.argv[1])
whole = keras.models.load_model(sys.argv[2])
exported = tf.saved_model.load(sys.argv[3])
np.savez(sys.argv[4], whole=whole(x), exported=exported.serve(x))
"""


def test_saved_and_loaded(tmp_path: Path) -> None:
    """In a new process: as a Keras file, and as a SavedModel for serving."""
    net = model()
    x, labels = data()
    net.compile("sgd", layers.SparseCategoricalCrossentropy(from_logits=True))
    net.fit(x, labels, verbose=0)
    names = [str(tmp_path / name) for name in ("x.npy", "model.keras", "exported", "made.npz")]
    np.save(names[0], x)
    net.save(names[1])
    net.export(names[2], verbose=False)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    subprocess.run([sys.executable, "-c", READ, *names], check=True, env=environment)
    made = np.load(names[3])
    assert_close([made["whole"], made["exported"]], [net(x)] * 2)


@pytest.mark.parametrize("name", PAIRS)
def test_configs(name: str) -> None:
    layer = PAIRS[name]()[0]
    again = type(layer).from_config(layer.get_config())
    assert again.get_config() == layer.get_config()


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: layers.Activation("add"), ValueError, "'add' is no operator of one tensor that keeps its shape"),
        (lambda: layers.Activation("wild"), ValueError, "'wild' is no operator"),
        (
            lambda: layers.BatchNormalization(act="wild"),
            ValueError,
            "BatchNormalization: act is 'wild', must be one of",
        ),
        (lambda: layers.GatedMLP(4, gate="wild"), ValueError, "GatedMLP: gate is 'wild', must be one of swiglu"),
    ],
)
def test_refused(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


def test_functions_inside_of_layers() -> None:
    """A layer of one's own may call the functions; a KerasTensor is refused with that advice."""

    class Gate(keras.layers.Layer):
        def call(self, x: Any) -> Any:
            return tn.fuse("silu(x) * x")(x)

        def compute_output_shape(self, shape: Any) -> Any:
            return shape

    inputs = keras.Input((8,))
    assert_close(keras.Model(inputs, Gate()(inputs))(X[:, 0]), tf.nn.silu(X[:, 0]) * X[:, 0])
    with pytest.raises(TypeError, match="must be a tensor, not KerasTensor"):
        tn.silu(inputs)


def test_ignored_classes_do_not_count() -> None:
    logits, labels = tf.random.normal((6, 4), seed=1), np.array([0, 1, 2, 3, 1, 0])
    theirs = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=1)
    mine = layers.SparseCategoricalCrossentropy(from_logits=True, ignore_class=1)
    assert_close(mine(labels, logits), theirs(labels, logits))
    weights = np.arange(6.0)
    assert_close(mine(labels, logits, weights), theirs(labels, logits, weights))


def test_labels_that_are_none() -> None:
    logits, loss = tf.random.normal((3, 4), seed=1), layers.SparseCategoricalCrossentropy(from_logits=True)
    assert_close(loss([0, 1, 2], logits.numpy().tolist()), loss(np.array([0, 1, 2]), logits))
    with pytest.raises(ValueError, match=r"y_true has shape \(3, 4\), needs the indices of classes"):
        loss(np.eye(4)[:3], logits)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"target\[1\] is -100, must be at least 0"):
        loss(np.array([0, -100, 2]), logits)


def test_arguments_are_those_of_keras() -> None:
    x = tf.random.normal((3, 8), seed=1)
    assert_close(layers.LayerNormalization(-1, 1e-5)(x), keras.layers.LayerNormalization(-1, 1e-5)(x))
    assert layers.RMSNormalization(-1, 1e-3).epsilon == 1e-3
    assert layers.Dropout(0.5, None, 42).seed == 42
    for make, message in (
        (lambda: layers.RMSNormalization(0)(x), "axis is 0, must be the last one"),
        (lambda: layers.SparseCategoricalCrossentropy(label_smoothing=0.1), "needs logits; say from_logits=True"),
    ):
        with pytest.raises(NotImplementedError, match=message):
            make()


def test_masks_are_kept() -> None:
    x = keras.layers.Embedding(5, 4, mask_zero=True)(np.array([[1, 2, 0]]))
    for layer in (layers.GatedMLP(4), layers.ScaleBiasReLU(), layers.RMSNormalization()):
        assert layer(x)._keras_mask.numpy().tolist() == [[True, True, False]]


@pytest.mark.parametrize("kind", ["int32", "int64", "uint8"])
def test_embedding_is_kerass(kind: str) -> None:
    index = tf.constant([[0, 3, 3], [6, 1, 0]], kind)
    mine, theirs = layers.Embedding(7, 5), keras.layers.Embedding(7, 5)
    for layer in (mine, theirs):
        layer.build(index.shape)
    mine.set_weights(theirs.get_weights())
    gradients = []
    for layer in (mine, theirs):
        with tf.GradientTape() as tape:
            y = layer(index)
            loss = tf.reduce_sum(y**3)
        gradients.append(tf.convert_to_tensor(tape.gradient(loss, layer.embeddings.value)))
    assert_close(mine(index), theirs(index))
    assert_close(gradients[0], gradients[1])
