"""Trains a small classifier on real handwritten digits in plain JAX with Optax, with Tenon's operators.

    pip install jax optax scikit-learn
    PYTHONPATH=python python examples/jax/train_digits.py

Normalisations, activations and the loss are Tenon's, one of them a formula that is written here; matrices and the
optimiser are JAX's. The whole step is one jax.jit. The data is the UCI digits set that scikit-learn ships: 1,797 images
of 8 x 8.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.datasets import load_digits

import tenon.jax as tn

Params = dict[str, Any]
Stats = tuple[jax.Array, jax.Array]  # running mean and variance

# A residual branch with a learned gate, in one pass over memory.
gated = tn.fuse("silu(x) * gate + residual")


def load() -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Images (n, 64) from 0 to 1 and labels (n): for training, then for testing."""
    data = load_digits()
    order = np.random.default_rng(0).permutation(len(data.data))
    images, labels = data.data[order].astype(np.float32) / 16, data.target[order].astype(np.int32)
    return (
        jnp.asarray(images[:1400]),
        jnp.asarray(labels[:1400]),
        jnp.asarray(images[1400:]),
        jnp.asarray(labels[1400:]),
    )


def init(key: jax.Array, width: int = 96) -> Params:
    keys = jax.random.split(key, 3)

    def matrix(key: jax.Array, n: int, m: int) -> jax.Array:
        return jax.random.normal(key, (n, m)) * n**-0.5

    return {
        "in": matrix(keys[0], 64, width),
        "hidden": matrix(keys[1], width, width),
        "out": matrix(keys[2], width, 10),
        "gate": jnp.ones(width),
        "scale": jnp.ones(width),
        "shift": jnp.zeros(width),
    }


def model(params: Params, stats: Stats, x: jax.Array, key: jax.Array | None = None) -> tuple[jax.Array, Stats]:
    """Logits, and the statistics as they are then; without a key nothing is dropped and none are collected."""
    x = x @ params["in"]
    if key is None:
        x = tn.batch_norm_infer(x, *stats, params["scale"], params["shift"], act="relu")
    else:
        x, *stats = tn.batch_norm(x, params["scale"], params["shift"], *stats, act="relu")
        x = tn.dropout(x, key, p=0.1)
    x = gated(tn.rms_norm(x) @ params["hidden"], params["gate"], x)
    return x @ params["out"], tuple(stats)


def accuracy(logits: jax.Array, labels: jax.Array, seconds: float) -> float:
    """The share of right answers, printed."""
    right = float((jnp.argmax(logits, -1) == labels).mean())
    print(f"{right:.1%} of {len(labels)} digits right, trained in {seconds:.1f} s on {jax.devices()[0].platform}")
    return right


def main(epochs: int = 12, batch: int = 100) -> float:
    images, labels, test_images, test_labels = load()
    params = init(jax.random.key(0))
    stats: Stats = (jnp.zeros(96), jnp.ones(96))
    optimizer = optax.adamw(3e-3)
    state = optimizer.init(params)

    def loss_of(params: Params, stats: Stats, x: jax.Array, y: jax.Array, key: jax.Array) -> tuple[jax.Array, Stats]:
        logits, stats = model(params, stats, x, key)
        return tn.cross_entropy(logits, y, label_smoothing=0.05), stats

    @jax.jit
    def step(params: Params, stats: Stats, state: Any, x: jax.Array, y: jax.Array, key: jax.Array) -> Any:
        (loss, stats), grads = jax.value_and_grad(loss_of, has_aux=True)(params, stats, x, y, key)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), stats, state, loss

    begin = time.perf_counter()
    for epoch in range(epochs):
        order = jax.random.permutation(jax.random.key(epoch), len(images))
        losses = []
        for k, part in enumerate(order.reshape(-1, batch)):
            key = jax.random.fold_in(jax.random.key(epoch), k)
            params, stats, state, loss = step(params, stats, state, images[part], labels[part], key)
            losses.append(loss)
        if epoch % 4 == 3:
            print(f"epoch {epoch + 1:2}: loss {float(jnp.mean(jnp.stack(losses))):.3f}")
    seconds = time.perf_counter() - begin
    return accuracy(jax.jit(model)(params, stats, test_images)[0], test_labels, seconds)


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--epochs", type=int, default=12)
    assert main(arguments.parse_args().epochs) > 0.95
