"""Trains a small classifier on real handwritten digits with Keras and Tenon's layers, saves it and loads it again.

    pip install tensorflow scikit-learn
    PYTHONPATH=python python examples/tensorflow/train_digits.py

Normalisations, activations, the gated layer and the loss are Tenon's, and one layer calls a formula that is written
here; matrices, the optimiser and the training loop are Keras's. The data is the UCI digits set that scikit-learn ships:
1,797 images of 8 x 8.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np
from sklearn.datasets import load_digits

import tenon.tensorflow as tn
from tenon.tensorflow import layers


@keras.saving.register_keras_serializable(package="digits")
class Residual(keras.layers.Layer):
    """silu(dense(x)) * gate + x, with a learned gate: all but the matrix in one pass over memory."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.supports_jit = False

    def build(self, shape: Any) -> None:
        self.dense = keras.layers.Dense(shape[-1], dtype=self.dtype_policy)
        self.dense.build(shape)
        self.gate = self.add_weight(name="gate", shape=(shape[-1],), initializer="ones")

    def call(self, x: Any) -> Any:
        return tn.fuse("silu(y) * gate + x")(self.dense(x), self.gate, x)

    def compute_output_shape(self, shape: Any) -> Any:
        return shape


def load() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Images (n, 64) from 0 to 1 and labels (n): for training, then for testing."""
    data = load_digits()
    order = np.random.default_rng(0).permutation(len(data.data))
    images, labels = data.data[order].astype(np.float32) / 16, data.target[order]
    return images[:1400], labels[:1400], images[1400:], labels[1400:]


def make(width: int = 96) -> keras.Model:
    inputs = keras.Input((64,))
    x = layers.BatchNormalization(momentum=0.9, act="relu")(keras.layers.Dense(width)(inputs))
    x = Residual()(layers.Dropout(0.1)(x))
    x = layers.GatedMLP(width)(layers.RMSNormalization()(x))
    return keras.Model(inputs, keras.layers.Dense(10, dtype="float32")(x))


def main(epochs: int = 12, policy: str = "float32") -> float:
    keras.utils.set_random_seed(0)
    keras.mixed_precision.set_dtype_policy(policy)
    images, labels, test_images, test_labels = load()
    model = make()
    loss = layers.SparseCategoricalCrossentropy(from_logits=True, label_smoothing=0.05)
    model.compile(keras.optimizers.AdamW(3e-3), loss)
    begin = time.perf_counter()
    history = model.fit(images, labels, batch_size=100, epochs=epochs, verbose=0)
    seconds = time.perf_counter() - begin
    for epoch, loss in enumerate(history.history["loss"], 1):
        if epoch % 4 == 0:
            print(f"epoch {epoch:2}: loss {loss:.3f}")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "digits.keras"
        model.save(file)
        again = keras.models.load_model(file)
    guess = np.argmax(again.predict(test_images, verbose=0), -1)
    accuracy = float((guess == test_labels).mean())
    print(f"{accuracy:.1%} of {len(test_labels)} digits right, trained in {seconds:.1f} s, saved and loaded")
    return accuracy


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--epochs", type=int, default=12)
    arguments.add_argument("--policy", default="float32", help="mixed_bfloat16, mixed_float16 …")
    given = arguments.parse_args()
    assert main(given.epochs, given.policy) > 0.95
