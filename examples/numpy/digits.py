"""Trains a small classifier of digits twice, without any framework: with Tenon's operators and with plain NumPy.

    pip install numpy
    PYTHONPATH=python python examples/numpy/digits.py

Two layers with layer_norm and gelu between them, cross entropy, AdamW: forward, backward and step are written out, so
this also shows what a gradient operator takes. Matrix products are NumPy's on both sides. The digits are scikit-learn's
handwritten ones where it is installed; otherwise they are drawn here, moved, thickened and with noise.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import tenon.numpy as tn

Array = NDArray[Any]
HIDDEN, CLASSES, BATCH, EPOCHS, RATE = 1024, 10, 200, 10, 3e-3

# ---- data ------------------------------------------------------------------------------------------------------------

# Ten glyphs of 5 x 3, a row after the other.
GLYPHS = [
    *("111101101101111", "010110010010111", "111001111100111", "111001011001111", "101101111001001"),
    *("111100111001111", "111100111101111", "111001010010010", "111101111101111", "111101111001111"),
]


def drawn(count: int, random: np.random.Generator) -> tuple[Array, Array]:
    """Images (count, 64) from 0 to 1, and what they show."""
    labels = random.integers(0, CLASSES, count)
    images = np.zeros((count, 8, 8), np.float32)
    for image, label in zip(images, labels, strict=True):
        glyph = np.array(list(GLYPHS[label]), np.float32).reshape(5, 3)
        top, left = random.integers(1, 3), 2
        image[top : top + 5, left : left + 3] = glyph * random.uniform(0.5, 1.0)
        image[:, 1:] = np.maximum(image[:, 1:], image[:, :-1] * random.uniform(0, 0.6))
    images += random.normal(0, 0.12, images.shape).astype(np.float32)
    return images.reshape(count, 64), labels


def load() -> tuple[str, Array, Array, Array, Array]:
    """What the digits are; images and labels to train with, then to test with."""
    random = np.random.default_rng(0)
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        images, labels = drawn(1800, random)
        kind = "drawn here"
    else:
        data = load_digits()
        order = random.permutation(len(data.target))
        images, labels = (data.data[order] / 16).astype(np.float32), data.target[order].astype(np.int64)
        kind = "handwritten"
    return kind, images[:1400], labels[:1400], images[1400:], labels[1400:]


# ---- the operators, from Tenon and from NumPy -----------------------------------------------------------------------


@dataclass(frozen=True)
class Ops:
    name: str
    norm: Callable[..., tuple[Array, Any]]  # y, and what its gradient wants
    norm_grad: Callable[..., tuple[Array, Array, Array]]
    gelu: Callable[[Array], Array]
    gelu_grad: Callable[[Array, Array], Array]
    loss: Callable[[Array, Array], tuple[float, Array]]  # the loss, and its gradient
    step: Callable[..., None]  # of AdamW, in place


STATISTICS = tn.fuse(
    "statistics(x: T[*r, c]) -> mean: T[*r], rstd: T[*r] : mean = mean(x, -1); rstd = rsqrt(var(x, -1) + 1e-5)"
)
GELU_GRAD = tn.fuse(
    "t = tanh(0.7978845608 * (x + 0.044715 * x * x * x));"
    "dy * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.7978845608 * (1 + 0.134145 * x * x))"
)


def tenon_norm(x: Array, gamma: Array, beta: Array) -> tuple[Array, Any]:
    return tn.layer_norm(x, gamma, beta), (x, gamma, beta)


def tenon_norm_grad(kept: Any, dy: Array) -> tuple[Array, Array, Array]:
    x, gamma, beta = kept
    mean, rstd = STATISTICS(x)
    wanted = {"want_dx": True, "want_dgamma": True, "want_dbeta": True}
    dx, dgamma, dbeta = tn.layer_norm_grad(x, gamma, beta, mean, rstd, dy, **wanted)
    return dx, dgamma, dbeta


def tenon_loss(logits: Array, labels: Array) -> tuple[float, Array]:
    gradient = tn.softmax(logits)
    gradient[np.arange(len(labels)), labels] -= 1
    return float(tn.cross_entropy(logits, labels)), gradient / len(labels)


def tenon_step(params: list[Array], grads: list[Array], state: list[list[Array]], number: int) -> None:
    tn.adamw_step_list(params, grads, *state, lr=RATE, step=number)


def numpy_norm(x: Array, gamma: Array, beta: Array) -> tuple[Array, Any]:
    rstd = 1 / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    normal = (x - x.mean(-1, keepdims=True)) * rstd
    return normal * gamma + beta, (normal, gamma, rstd)


def numpy_norm_grad(kept: Any, dy: Array) -> tuple[Array, Array, Array]:
    normal, gamma, rstd = kept
    d = dy * gamma
    dx = (d - d.mean(-1, keepdims=True) - normal * (d * normal).mean(-1, keepdims=True)) * rstd
    return dx, (dy * normal).sum(0), dy.sum(0)


def inner(x: Array) -> Array:
    return np.tanh(0.7978845608 * (x + 0.044715 * x * x * x))


def numpy_gelu_grad(x: Array, dy: Array) -> Array:
    t = inner(x)
    return dy * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.7978845608 * (1 + 0.134145 * x * x))


def numpy_loss(logits: Array, labels: Array) -> tuple[float, Array]:
    shifted = logits - logits.max(-1, keepdims=True)
    sums = np.exp(shifted).sum(-1, keepdims=True)
    rows = np.arange(len(labels))
    gradient = np.exp(shifted) / sums
    gradient[rows, labels] -= 1
    return float((np.log(sums[:, 0]) - shifted[rows, labels]).mean()), gradient / len(labels)


def numpy_step(params: list[Array], grads: list[Array], state: list[list[Array]], number: int) -> None:
    for p, g, m, v in zip(params, grads, *state, strict=True):
        m += 0.1 * (g - m)
        v += 0.001 * (g * g - v)
        p *= 1 - RATE * 0.01
        p -= RATE / (1 - 0.9**number) * m / (np.sqrt(v / (1 - 0.999**number)) + 1e-8)


TENON = Ops(
    "tenon",
    tenon_norm,
    tenon_norm_grad,
    tn.gelu_tanh,
    lambda x, dy: GELU_GRAD(x=x, dy=dy),
    tenon_loss,
    tenon_step,
)
NUMPY = Ops(
    "NumPy",
    numpy_norm,
    numpy_norm_grad,
    lambda x: 0.5 * x * (1 + inner(x)),
    numpy_gelu_grad,
    numpy_loss,
    numpy_step,
)

# ---- the model -------------------------------------------------------------------------------------------------------


def parameters() -> list[Array]:
    random = np.random.default_rng(1)
    shapes = [(64, HIDDEN), (HIDDEN, CLASSES)]
    first, second = (random.normal(0, shape[0] ** -0.5, shape).astype(np.float32) for shape in shapes)
    return [first, np.ones(HIDDEN, np.float32), np.zeros(HIDDEN, np.float32), second]


def logits_of(params: list[Array], images: Array, ops: Ops) -> tuple[Array, Any]:
    first, gamma, beta, second = params
    normal, kept = ops.norm(images @ first, gamma, beta)
    hidden = ops.gelu(normal)
    return hidden @ second, (kept, normal, hidden)


def gradients(params: list[Array], images: Array, labels: Array, ops: Ops) -> tuple[float, list[Array]]:
    logits, (kept, normal, hidden) = logits_of(params, images, ops)
    loss, dlogits = ops.loss(logits, labels)
    dnormal = ops.gelu_grad(normal, dlogits @ params[3].T)
    dx, dgamma, dbeta = ops.norm_grad(kept, dnormal)
    return loss, [images.T @ dx, dgamma, dbeta, hidden.T @ dlogits]


def batches(count: int) -> Iterator[Array]:
    random = np.random.default_rng(2)
    for _ in range(EPOCHS):
        order = random.permutation(count)
        yield from (order[i : i + BATCH] for i in range(0, count, BATCH))


def train(images: Array, labels: Array, ops: Ops) -> tuple[list[Array], list[float], float]:
    """The parameters, the loss of each epoch, and the seconds that all took."""
    params, losses = parameters(), []
    state = [[np.zeros_like(p) for p in params] for _ in range(2)]
    begin = time.perf_counter()
    for number, batch in enumerate(batches(len(images)), 1):
        loss, grads = gradients(params, images[batch], labels[batch], ops)
        ops.step(params, grads, state, number)
        losses.append(loss)
    seconds = time.perf_counter() - begin
    return params, [float(np.mean(part)) for part in np.array_split(losses, EPOCHS)], seconds


def main() -> int:
    kind, images, labels, test_images, test_labels = load()
    train(images, labels, TENON)  # formulas that are used often are compiled meanwhile
    results = [(ops, *train(images, labels, ops)) for ops in (TENON, NUMPY)]
    print(f"{len(images)} digits ({kind}) to learn from, {len(test_images)} to test with; the loss after each pass:")
    print(f"  {'epoch':<7}{'tenon':>9}{'NumPy':>9}")
    for epoch, (ours, theirs) in enumerate(zip(results[0][2], results[1][2], strict=True), 1):
        print(f"  {epoch:<7}{ours:>9.4f}{theirs:>9.4f}")
        assert abs(ours - theirs) < 0.01
    for ops, params, _, seconds in results:
        right = float((logits_of(params, test_images, ops)[0].argmax(-1) == test_labels).mean())
        print(f"  {ops.name}: {right:.1%} of the test digits right, {seconds:.2f} s")
        assert right > 0.9
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
