"""The classifier of train_digits.py as a Flax model: Tenon's modules, and its functions in a module of your own.

    pip install jax flax optax scikit-learn
    PYTHONPATH=python python examples/jax/flax_digits.py

Parameters, running statistics and random numbers are Flax's, and what an operator updates is assigned to them; nnx.jit,
nnx.value_and_grad and Optax see ordinary functions.
"""

from __future__ import annotations

import argparse
import time

import jax
import jax.numpy as jnp
import optax
from flax import nnx

import tenon.jax as tn
from tenon.jax import nnx as tnx
from train_digits import accuracy, load

gated = tn.fuse("silu(x) * gate + residual")


class Classifier(nnx.Module):
    def __init__(self, width: int, rngs: nnx.Rngs) -> None:
        self.first = nnx.Linear(64, width, rngs=rngs)
        self.norm = tnx.BatchNorm(width, rngs=rngs)
        self.hidden = nnx.Linear(width, width, rngs=rngs)
        self.gate = nnx.Param(jnp.ones(width))
        self.last = nnx.Linear(width, 10, rngs=rngs)
        self.rngs = rngs

    def __call__(self, x: jax.Array, training: bool = False) -> jax.Array:
        x = self.norm(self.first(x), use_running_average=not training, act="relu")
        if training:
            x = tn.dropout(x, self.rngs.dropout(), p=0.1)
        return self.last(gated(self.hidden(tn.rms_norm(x)), self.gate, x))


@nnx.jit
def step(model: Classifier, optimizer: nnx.Optimizer, x: jax.Array, y: jax.Array) -> jax.Array:
    def loss_of(model: Classifier) -> jax.Array:
        return tn.cross_entropy(model(x, training=True), y, label_smoothing=0.05)

    loss, grads = nnx.value_and_grad(loss_of)(model)
    optimizer.update(model, grads)
    return loss


def main(epochs: int = 12, batch: int = 100) -> float:
    images, labels, test_images, test_labels = load()
    model = Classifier(96, nnx.Rngs(0, dropout=1))
    optimizer = nnx.Optimizer(model, optax.adamw(3e-3), wrt=nnx.Param)
    begin = time.perf_counter()
    for epoch in range(epochs):
        order = jax.random.permutation(jax.random.key(epoch), len(images))
        losses = [step(model, optimizer, images[part], labels[part]) for part in order.reshape(-1, batch)]
        if epoch % 4 == 3:
            print(f"epoch {epoch + 1:2}: loss {float(jnp.mean(jnp.stack(losses))):.3f}")
    seconds = time.perf_counter() - begin
    return accuracy(nnx.jit(Classifier.__call__)(model, test_images), test_labels, seconds)


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--epochs", type=int, default=12)
    assert main(arguments.parse_args().epochs) > 0.95
