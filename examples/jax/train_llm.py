"""Trains the small Llama of examples/torch/train_llm.py in Flax: with Tenon's operators, and with JAX's own.

    pip install jax flax optax
    PYTHONPATH=python python examples/jax/train_llm.py [--layers 8 --hidden 512]

Both start from the same weights and see the same batches of a text that the example makes, so their losses are the same
but for rounding; train_llm_jax.svg shows them.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

import tenon.jax as tn
from tenon.jax import nnx as tnx

sys.path.append(str(Path(__file__).resolve().parents[1]))
from llm import LETTERS, draw, text


@dataclass(frozen=True)
class Ops:
    """Where the model takes its operators from."""

    norm: Callable[..., Any]
    embed: Callable[..., Any]
    gate: Callable[[jax.Array, jax.Array], jax.Array]  # x * silu(gate)
    rotary: Callable[[jax.Array, jax.Array, jax.Array], jax.Array]
    loss: Callable[[jax.Array, jax.Array], jax.Array]


def rotary(x: jax.Array, cos: jax.Array, sin: jax.Array) -> jax.Array:
    a, b = jnp.split(x, 2, -1)
    return jnp.concatenate((a * cos - b * sin, b * cos + a * sin), -1)


def loss(logits: jax.Array, targets: jax.Array) -> jax.Array:
    return optax.softmax_cross_entropy_with_integer_labels(logits, targets).mean()


JAX = Ops(nnx.RMSNorm, nnx.Embed, lambda x, gate: x * jax.nn.silu(gate), rotary, loss)
TENON = Ops(tnx.RMSNorm, tnx.Embed, tn.swiglu, tn.rope, tn.cross_entropy)


class Attention(nnx.Module):
    def __init__(self, ops: Ops, size: int, heads: int, rngs: nnx.Rngs) -> None:
        self.ops, self.heads = ops, heads
        self.qkv = nnx.Linear(size, 3 * size, use_bias=False, rngs=rngs)
        self.out = nnx.Linear(size, size, use_bias=False, rngs=rngs)

    def __call__(self, x: jax.Array, cos: jax.Array, sin: jax.Array) -> jax.Array:
        q, k, v = (t.reshape(*x.shape[:2], self.heads, -1) for t in jnp.split(self.qkv(x), 3, -1))
        q, k = (self.ops.rotary(t.swapaxes(1, 2), cos, sin).swapaxes(1, 2) for t in (q, k))
        return self.out(jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(x.shape))


class Block(nnx.Module):
    def __init__(self, ops: Ops, size: int, heads: int, rngs: nnx.Rngs) -> None:
        self.ops, hidden = ops, 8 * size // 3
        self.before_attention, self.before_mlp = (ops.norm(size, rngs=rngs) for _ in range(2))
        self.attention = Attention(ops, size, heads, rngs)
        self.gate, self.up = (nnx.Linear(size, hidden, use_bias=False, rngs=rngs) for _ in range(2))
        self.down = nnx.Linear(hidden, size, use_bias=False, rngs=rngs)

    def __call__(self, x: jax.Array, cos: jax.Array, sin: jax.Array) -> jax.Array:
        x = x + self.attention(self.before_attention(x), cos, sin)
        y = self.before_mlp(x)
        return x + self.down(self.ops.gate(self.up(y), self.gate(y)))


class Llama(nnx.Module):
    def __init__(self, ops: Ops, layers: int, size: int, heads: int, rngs: nnx.Rngs) -> None:
        self.embed = ops.embed(len(LETTERS), size, rngs=rngs)
        self.blocks = nnx.List([Block(ops, size, heads, rngs) for _ in range(layers)])
        self.norm = ops.norm(size, rngs=rngs)
        self.head = nnx.Linear(size, len(LETTERS), use_bias=False, rngs=rngs)
        self.half = size // heads // 2

    def __call__(self, tokens: jax.Array) -> jax.Array:
        inverse = 1e4 ** (-jnp.arange(self.half) / self.half)
        angles = jnp.arange(tokens.shape[1])[:, None] * inverse
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, jnp.cos(angles), jnp.sin(angles))
        return self.head(self.norm(x))


def train(ops: Ops, options: argparse.Namespace) -> tuple[list[float], float]:
    """The losses, and tokens in a second."""
    model = Llama(ops, options.layers, options.hidden, options.heads, nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adamw(3e-3), wrt=nnx.Param)

    @nnx.jit
    def step(model: Llama, optimizer: nnx.Optimizer, rows: jax.Array) -> jax.Array:
        value, grads = nnx.value_and_grad(lambda m: ops.loss(m(rows[:, :-1]), rows[:, 1:]))(model)
        optimizer.update(model, grads)
        return value

    letters = jnp.asarray(np.array(text()))
    losses, begin = [], 0.0
    for n in range(options.steps):
        start = jax.random.randint(jax.random.key(n), (options.batch, 1), 0, len(letters) - options.length - 1)
        losses.append(step(model, optimizer, letters[start + jnp.arange(options.length + 1)]))
        if n == 0:  # it has been compiled
            losses[0].block_until_ready()
            begin = time.perf_counter()
    values = [float(value) for value in losses]
    return values, options.batch * options.length * (options.steps - 1) / (time.perf_counter() - begin)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--hidden", type=int, default=96, help="size of a token's vector")
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--batch", type=int, default=8, help="rows of a batch")
    parser.add_argument("--length", type=int, default=64, help="tokens of a row")
    parser.add_argument("--picture", type=Path, default=Path("train_llm_jax.svg"), help="where the losses are drawn")
    options = parser.parse_args()
    results = {name: train(ops, options) for name, ops in {"jax": JAX, "tenon": TENON}.items()}
    for name, (losses, speed) in results.items():
        print(f"{name:6} {speed:9.0f} tokens/s, loss {losses[0]:.4f} -> {losses[-1]:.4f}")
    draw(options.picture, {name: losses for name, (losses, _) in results.items()})
    print(f"losses: {options.picture}")
    assert all(abs(a - b) < 5e-3 for a, b in zip(results["jax"][0], results["tenon"][0], strict=True))


if __name__ == "__main__":
    main()
