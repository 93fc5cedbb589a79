"""What a user of JAX writes in place of each operator: plain code, which jax.jit compiles.

Which inputs and attributes a call has is in bench/peers.py. Results are the operator's: outputs that users see, then
what it updates. An operator that is not here is named by tests/jax/test_peers.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from peers import LISTED, SEGMENTS, kinds

Given = dict[str, Any]  # arguments of a call by name: arrays, or lists of them
Shape = Sequence[int]
f32 = jnp.float32


# ---- inputs ----------------------------------------------------------------------------------------------------------


def array(kind: str, shape: Shape, dtype: Any, key: Array) -> Any:
    """An input of random numbers, where x has this shape and type; the kinds are those of bench/peers.py."""
    makers: dict[str, Callable[[], Any]] = {
        "x": lambda: jax.random.normal(key, shape, dtype),
        "fixed": lambda: jax.random.normal(key, shape, dtype),
        "flat": lambda: jax.random.normal(key, (math.prod(shape),), dtype),
        "angles": lambda: jax.random.normal(key, (*shape[:-1], shape[-1] // 2), f32),
        "positive": lambda: jax.random.uniform(key, shape, dtype, 0.5, 1.5),
        "chance": lambda: jax.random.uniform(key, shape, dtype),
        "state": lambda: jax.random.uniform(key, shape, f32),
        "sums": lambda: jax.random.normal(key, shape, f32),
        "state of rows": lambda: jax.random.uniform(key, shape[:-1], f32),
        "state of columns": lambda: jax.random.uniform(key, shape[-1:], f32),
        "row": lambda: jax.random.normal(key, shape[-1:], dtype),
        "column": lambda: jax.random.normal(key, shape[:1], dtype),
        "weight": lambda: jax.random.normal(key, (shape[-1], shape[-1]), dtype),
        "channel": lambda: jax.random.uniform(key, shape[1:2], f32, 0.5, 1.5),
        "slope": lambda: jax.random.uniform(key, shape[1:2], dtype),
        "mean": lambda: jnp.zeros(shape[1], f32),
        "var": lambda: jnp.ones(shape[1], f32),
        "class": lambda: jax.random.randint(key, shape[:-1], 0, shape[-1], jnp.int32),
        "place": lambda: jax.random.randint(key, shape[:1], 0, shape[0], jnp.int32),
        "places": lambda: jax.random.randint(key, shape, 0, shape[-1], jnp.int32),
        "segment": lambda: jax.random.randint(key, shape[:1], 0, SEGMENTS, jnp.int32),
        "offsets": lambda: jnp.linspace(0, shape[0], SEGMENTS + 1).astype(jnp.int32),
        "choice": lambda: jax.random.bernoulli(key, 0.5, shape),
        "byte": lambda: jax.random.randint(key, shape, -128, 128, jnp.int8),
        "seed": lambda: key,
        "rate": lambda: jnp.asarray(1e-3, f32),
        "large": lambda: jnp.asarray(1e9, f32),
        "step": lambda: jnp.asarray(10.0, f32),
        "unit": lambda: jnp.asarray(0.05, f32),
        "unit of T": lambda: jnp.asarray(0.05, dtype),
        "middle": lambda: jnp.asarray(3, jnp.int32),
    }
    if kind.startswith("["):
        part = (max(1, shape[0] // LISTED), *shape[1:])
        return [array(kind[1:-1], part, dtype, k) for k in jax.random.split(key, LISTED)]
    return makers[kind]()


def make(inputs: str, shape: Shape, dtype: Any, seed: int = 0) -> Given:
    wanted = kinds(inputs)
    keys = jax.random.split(jax.random.key(seed), len(wanted))
    return {name: array(kind, shape, dtype, key) for (name, kind), key in zip(wanted.items(), keys, strict=True)}


# ---- code where JAX has no single function ---------------------------------------------------------------------------


def layer_norm(x: Array, gamma: Array, beta: Array) -> Array:
    wide = x.astype(f32)
    mean = wide.mean(-1, keepdims=True)
    rstd = jax.lax.rsqrt(jnp.square(wide - mean).mean(-1, keepdims=True) + 1e-5)
    return ((wide - mean) * rstd * gamma + beta).astype(x.dtype)


def rms_norm(x: Array, gamma: Array) -> Array:
    wide = x.astype(f32)
    rstd = jax.lax.rsqrt(jnp.square(wide).mean(-1, keepdims=True) + 1e-6)
    return (wide * rstd * gamma).astype(x.dtype)


def cross_entropy(x: Array, target: Array) -> Array:
    logs = jax.nn.log_softmax(x.astype(f32))
    return -jnp.take_along_axis(logs, target[..., None], -1).mean()


def cross_entropy_inplace(x: Array, target: Array) -> tuple[Array, Array, Array]:
    loss, gradient = jax.value_and_grad(cross_entropy)(x, target)
    return loss, jax.nn.logsumexp(x.astype(f32), -1), gradient


def linear_cross_entropy_tokens(x: Array, w: Array, target: Array) -> tuple[Array, Array, Array]:
    logs = jax.nn.log_softmax((x @ w.T).astype(f32))
    aimed = jnp.take_along_axis(logs, target[..., None], -1)[..., 0]
    return -aimed, aimed, -(jnp.exp(logs) * logs).sum(-1)


def soft_cross_entropy(x: Array, target: Array) -> Array:
    return -(jax.nn.log_softmax(x.astype(f32)) * target).sum(-1).mean()


def rope(x: Array, cos: Array, sin: Array) -> Array:
    a, b = jnp.split(x.astype(f32), 2, -1)
    return jnp.concatenate((a * cos - b * sin, b * cos + a * sin), -1).astype(x.dtype)


def per_channel(x: Array, *values: Array) -> list[Array]:
    return [v.reshape([1, -1] + [1] * (x.ndim - 2)) for v in values]


def group_norm(x: Array, gamma: Array, beta: Array, groups: int) -> Array:
    rows = x.astype(f32).reshape(x.shape[0], groups, -1)
    off = rows - rows.mean(-1, keepdims=True)
    y = (off * jax.lax.rsqrt(jnp.square(off).mean(-1, keepdims=True) + 1e-5)).reshape(x.shape)
    g, b = per_channel(x, gamma, beta)
    return (y * g + b).astype(x.dtype)


def batch_norm_infer(x: Array, mean: Array, var: Array, gamma: Array, beta: Array) -> Array:
    m, v, g, b = per_channel(x, mean, var, gamma, beta)
    return ((x.astype(f32) - m) * jax.lax.rsqrt(v + 1e-5) * g + b).astype(x.dtype)


def batch_norm(x: Array, gamma: Array, beta: Array, mean: Array, var: Array) -> tuple[Array, Array, Array]:
    axes = [d for d in range(x.ndim) if d != 1]
    wide = x.astype(f32)
    m = wide.mean(axes)
    v = jnp.square(wide - per_channel(x, m)[0]).mean(axes)
    count = x.size // x.shape[1]
    unbiased = jax.lax.stop_gradient(v) * count / (count - 1)
    updated = 0.9 * mean + 0.1 * jax.lax.stop_gradient(m), 0.9 * var + 0.1 * unbiased
    return batch_norm_infer(x, m, v, gamma, beta), *updated


def dropout(x: Array, seed: Array, p: float = 0.5) -> Array:
    keep = jax.random.bernoulli(seed, 1 - p, x.shape)
    return jnp.where(keep, x / (1 - p), 0)


def huber(x: Array, target: Array) -> Array:
    far = jnp.abs(x - target)
    return jnp.where(far < 1, 0.5 * far * far, far - 0.5).mean()


def bce_with_logits(x: Array, target: Array) -> Array:
    return jnp.maximum(x, 0) - x * target + jnp.log1p(jnp.exp(-jnp.abs(x)))


def focal(x: Array, target: Array) -> Array:
    p = jax.nn.sigmoid(x)
    right = p * target + (1 - p) * (1 - target)
    balance = 0.25 * target + 0.75 * (1 - target)
    return (balance * bce_with_logits(x, target) * jnp.square(1 - right)).mean()


def kl_div(x: Array, target: Array) -> Array:
    return (jax.scipy.special.xlogy(target, target) - target * x).sum()


def cosine_similarity(x: Array, y: Array) -> Array:
    a, b = x.astype(f32), y.astype(f32)
    lengths = jnp.maximum(jnp.linalg.norm(a, axis=-1), 1e-8) * jnp.maximum(jnp.linalg.norm(b, axis=-1), 1e-8)
    return ((a * b).sum(-1) / lengths).astype(x.dtype)


def quantize(x: Array, scale: Array) -> Array:
    return jnp.clip(jnp.round(x / scale), -128, 127).astype(jnp.int8)


def fake_quantize(x: Array, scale: Array, zero: Array) -> Array:
    q = jnp.round(x / scale) + zero
    y = ((jnp.clip(q, -128, 127) - zero) * scale).astype(x.dtype)
    through = jnp.where((q >= -128) & (q <= 127), x, jax.lax.stop_gradient(x))
    return through + jax.lax.stop_gradient(y - through)


# ---- steps of optimisers ---------------------------------------------------------------------------------------------


def sgd(p: Array, g: Array, m: Array, lr: Array) -> tuple[Array, Array]:
    m = 0.9 * m + g.astype(m.dtype)
    return (p - lr * m).astype(p.dtype), m


def adamw(p: Array, g: Array, m: Array, v: Array, lr: Array, step: Array) -> tuple[Array, Array, Array]:
    wide = g.astype(m.dtype)
    m, v = 0.9 * m + 0.1 * wide, 0.999 * v + 0.001 * wide * wide
    c1, c2 = 1 - 0.9**step, 1 - 0.999**step
    decayed = p.astype(m.dtype) * (1 - lr * 0.01)
    return (decayed - lr / c1 * m / (jnp.sqrt(v / c2) + 1e-8)).astype(p.dtype), m, v


def adam(p: Array, g: Array, m: Array, v: Array, lr: Array, step: Array) -> tuple[Array, Array, Array]:
    wide = g.astype(m.dtype)
    m, v = 0.9 * m + 0.1 * wide, 0.999 * v + 0.001 * wide * wide
    c1, c2 = 1 - 0.9**step, 1 - 0.999**step
    return (p.astype(m.dtype) - lr / c1 * m / (jnp.sqrt(v / c2) + 1e-8)).astype(p.dtype), m, v


def lion(p: Array, g: Array, m: Array, lr: Array) -> tuple[Array, Array]:
    wide = g.astype(m.dtype)
    moved = p.astype(m.dtype) - lr * jnp.sign(0.9 * m + 0.1 * wide)
    return moved.astype(p.dtype), 0.99 * m + 0.01 * wide


def adafactor(p: Array, g: Array, row: Array, column: Array, lr: Array, step: Array) -> tuple[Array, Array, Array]:
    square, new, eps = jnp.square(g.astype(f32)), step**-0.8, 2.0**-23
    row = row + (square.mean(-1) - row) * new
    column = column + (square.mean(-2) - column) * new
    estimate = row[..., None] * column[..., None, :] / jnp.maximum(row.mean(-1)[..., None, None], eps)
    update = g.astype(f32) * jax.lax.rsqrt(jnp.maximum(estimate, eps * eps))
    wide = p.astype(f32)
    rate = jnp.maximum(jnp.sqrt(jnp.square(wide).mean()), 1e-3) * jnp.minimum(lr, jax.lax.rsqrt(step))
    moved = wide - rate / jnp.maximum(jnp.sqrt(jnp.square(update).mean()), 1) * update
    return moved.astype(p.dtype), row, column


def for_each(step: Callable[..., Any], lists: int) -> Callable[..., Any]:
    """A step for each array of lists, the first arguments."""

    def steps(*args: Any) -> Any:
        made = [step(*arrays, *args[lists:]) for arrays in zip(*args[:lists], strict=True)]
        return tuple(list(results) for results in zip(*made, strict=True))

    return steps


def clip_grad_norm(g: list[Array], max_norm: Array) -> tuple[Array, list[Array]]:
    norm = jnp.sqrt(sum(jnp.square(a.astype(f32)).sum() for a in g))
    factor = jnp.minimum(max_norm / (norm + 1e-6), 1.0)
    return norm, [(a * factor).astype(a.dtype) for a in g]


def gated(h: Array) -> Array:
    gate, up = jnp.split(h, 2, -1)
    return jax.nn.silu(gate) * up


def segment_sum_offsets(x: Array, offsets: Array) -> Array:
    ids = jnp.searchsorted(offsets, jnp.arange(x.shape[0]), side="right") - 1
    return jax.ops.segment_sum(x, ids, offsets.shape[0] - 1)


def cumulative_extremes(x: Array, function: Callable[..., Array]) -> tuple[Array, Array]:
    """jax.lax.cummax or cummin, and where these are: it has no function for that."""
    axis = x.ndim - 1
    values = function(x, axis)
    places = jax.lax.broadcasted_iota(jnp.int32, x.shape, axis)
    return values, jax.lax.cummax(jnp.where(x == values, places, 0), axis)


def scaled_linear(x: Array, w: Array, x_scale: Array, w_scale: Array, sums: Any) -> Array:
    y = jnp.matmul(x, w.T, preferred_element_type=sums)
    return (y * (x_scale[:, None] * w_scale)).astype(jnp.bfloat16)


def attention(q: Array, k: Array, v: Array) -> tuple[Array, Array]:
    scores = jnp.einsum("bhmd,bhnd->bhmn", q, k, preferred_element_type=f32) * q.shape[-1] ** -0.5
    o = jnp.einsum("bhmn,bhne->bhme", jax.nn.softmax(scores, -1).astype(v.dtype), v)
    return o, jax.nn.logsumexp(scores, -1)


# ---- the operators ---------------------------------------------------------------------------------------------------

OPERATORS: dict[str, Callable[..., Any]] = {
    "softmax": jax.nn.softmax,
    "layer_norm": layer_norm,
    "cross_entropy": cross_entropy,
    "cross_entropy_inplace": cross_entropy_inplace,
    "embedding": lambda table, index: jnp.take(table, index, axis=0),
    "index_select": lambda x, index: jnp.take(x, index, axis=0),
    "gather": lambda x, index: jnp.take_along_axis(x, index, -1),
    "scatter_add": lambda x, index, src: x.at[jnp.arange(x.shape[0])[:, None], index].add(src),
    "segment_sum": lambda x, ids: jax.ops.segment_sum(x, ids, SEGMENTS),
    "segment_sum_offsets": segment_sum_offsets,
    "one_hot": lambda index: jax.nn.one_hot(index, SEGMENTS, dtype=jnp.int32),
    "select": jnp.where,
    "rope": rope,
    "linear": lambda x, w, b: x @ w.T + b,
    "gated_linear": lambda x, w: gated(x @ w.T),
    "linear_int8": lambda *inputs: scaled_linear(*inputs, jnp.int32),
    "linear_fp8": lambda *inputs: scaled_linear(*inputs, f32),
    "grouped_linear": lambda x, w, offsets: jax.lax.ragged_dot(x, jnp.swapaxes(w, 1, 2), jnp.diff(offsets)),
    "linear_cross_entropy": lambda x, w, target: cross_entropy(x @ w.T, target),
    "linear_cross_entropy_tokens": linear_cross_entropy_tokens,
    "gated": lambda h: gated(h),
    "matmul": jnp.matmul,
    "matmul_add": lambda a, b, c: c + a @ b,
    "attention": attention,
    "matvec": jnp.matmul,
    "vecmat": jnp.matmul,
    "outer_product": lambda x, y: x[:, None] * y[None],
    "sum": lambda x: jnp.sum(x, -1),
    "log_softmax": jax.nn.log_softmax,
    "logsumexp": lambda x: jax.nn.logsumexp(x, -1),
    "mean": lambda x: jnp.mean(x, -1),
    "max": lambda x: jnp.max(x, -1),
    "min": lambda x: jnp.min(x, -1),
    "argmax": lambda x: jnp.argmax(x, -1),
    "argmin": lambda x: jnp.argmin(x, -1),
    "prod": lambda x: jnp.prod(x, -1),
    "var": lambda x: jnp.var(x, -1),
    "std": lambda x: jnp.std(x, -1),
    "norm": lambda x: jnp.linalg.norm(x, axis=-1),
    "any": lambda x: jnp.any(x, -1),
    "all": lambda x: jnp.all(x, -1),
    "group_norm": lambda x, gamma, beta: group_norm(x, gamma, beta, 4),
    "instance_norm": lambda x, gamma, beta: group_norm(x, gamma, beta, x.shape[1]),
    "add_layer_norm": lambda x, residual, gamma, beta: (layer_norm(x + residual, gamma, beta), x + residual),
    "add_rms_norm": lambda x, residual, gamma: (rms_norm(x + residual, gamma), x + residual),
    "cumsum": lambda x: jnp.cumsum(x, -1),
    "cumprod": lambda x: jnp.cumprod(x, -1),
    "cummax": lambda x: cumulative_extremes(x, jax.lax.cummax),
    "cummin": lambda x: cumulative_extremes(x, jax.lax.cummin),
    "sort": lambda x: (jnp.sort(x), jnp.argsort(x)),
    "top_k": lambda x: tuple(jax.lax.top_k(x, 64)),
    "histogram": lambda x: jnp.histogram(x, 64, (-4.0, 4.0))[0].astype(jnp.int32),
    "batch_norm": batch_norm,
    # moving data
    "permute": lambda x: jnp.transpose(x, (1, 0)),
    "concat": lambda xs: jnp.concatenate(xs, 0),
    "pad": lambda x: jnp.pad(x, ((0, 0), (8, 8))),
    "roll": lambda x: jnp.roll(x, 1, -1),
    "repeat": lambda x: jnp.tile(x, (1, 2)),
    "triu": jnp.triu,
    "tril": jnp.tril,
    # arithmetic
    "identity": jnp.copy,
    "add": jnp.add,
    "sub": jnp.subtract,
    "mul": jnp.multiply,
    "div": jnp.divide,
    "add_constant": lambda x: x + 0.5,
    "scale": lambda x: x * 2.5,
    "scale_bias_relu": lambda x, scale, bias: jax.nn.relu(x * scale + bias),
    "bias_act": lambda x, bias: jax.nn.relu(x + bias),
    "square": jnp.square,
    "sqrt": jnp.sqrt,
    "rsqrt": jax.lax.rsqrt,
    "exp": jnp.exp,
    "log": jnp.log,
    "abs": jnp.abs,
    "sign": jnp.sign,
    "floor": jnp.floor,
    "clamp": lambda x: jnp.clip(x, -1.0, 1.0),
    "pow": lambda x: x**1.5,
    "dot": jnp.dot,
    "axpy": lambda x, y, alpha: (alpha * x + y).astype(x.dtype),
    "nrm2": lambda x: jnp.linalg.norm(x.astype(f32)).astype(x.dtype),
    "lerp": lambda x, end, weight: x + weight * (end - x),
    # activations
    "relu": jax.nn.relu,
    "leaky_relu": jax.nn.leaky_relu,
    "prelu": lambda x, slope: jnp.where(x > 0, x, x * per_channel(x, slope)[0]),
    "elu": jax.nn.elu,
    "celu": jax.nn.celu,
    "selu": jax.nn.selu,
    "sigmoid": jax.nn.sigmoid,
    "log_sigmoid": jax.nn.log_sigmoid,
    "hard_sigmoid": jax.nn.hard_sigmoid,
    "tanh": jnp.tanh,
    "softplus": jax.nn.softplus,
    "softsign": jax.nn.soft_sign,
    "gelu": partial(jax.nn.gelu, approximate=False),
    "gelu_tanh": partial(jax.nn.gelu, approximate=True),
    "quick_gelu": lambda x: x * jax.nn.sigmoid(1.702 * x),
    "silu": jax.nn.silu,
    "hard_swish": jax.nn.hard_swish,
    "mish": jax.nn.mish,
    "swiglu": lambda x, gate: jax.nn.silu(gate) * x,
    "geglu": lambda x, gate: jax.nn.gelu(gate, approximate=False) * x,
    "reglu": lambda x, gate: jax.nn.relu(gate) * x,
    # around layers
    "dropout": dropout,
    "bias_dropout_add": lambda x, bias, residual, seed: residual + dropout(x + bias, seed),
    "residual_scale": lambda x, residual, scale: residual + x * scale,
    "rms_norm": rms_norm,
    "batch_norm_infer": batch_norm_infer,
    # losses
    "mse": lambda x, target: jnp.square(x - target).mean(),
    "l1": lambda x, target: jnp.abs(x - target).mean(),
    "huber": huber,
    "bce_with_logits": lambda x, target: bce_with_logits(x, target).mean(),
    "focal": focal,
    "kl_div": kl_div,
    "soft_cross_entropy": soft_cross_entropy,
    "cosine_similarity": cosine_similarity,
    # optimisers
    "sgd_step": sgd,
    "adamw_step": adamw,
    "adam_step": adam,
    "lion_step": lion,
    "adafactor_step": adafactor,
    "sgd_step_list": for_each(sgd, 3),
    "adamw_step_list": for_each(adamw, 4),
    "adam_step_list": for_each(adam, 4),
    "lion_step_list": for_each(lion, 3),
    "clip_grad_norm": clip_grad_norm,
    # quantisation
    "quantize": quantize,
    "fake_quantize": fake_quantize,
    "dequantize": lambda q, scale: q * scale,
}
