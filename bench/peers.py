"""What PyTorch has in place of each operator, module and optimiser: the one table of them, for tests and benchmarks.

An operator that is not here is named by tests/python/test_peers.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import tenon
import tenon.torch as tn
from step_peers import (
    adafactor,
    adam,
    adamw,
    clip_grad_norm,
    for_each,
    fused_adam,
    fused_adamw,
    fused_sgd,
    lion,
    lion_each,
    sgd,
)
from tenon._frameworks import TorchFunction
from tenon._public import shown_outputs
from tenon.torch._public import functions

Given = dict[str, Any]  # arguments of a call by name: tensors, or lists of them
Shape = Sequence[int]
LISTED = 8  # tensors of a list
SEGMENTS = 64  # of what is summed up by segments


# ---- inputs ----------------------------------------------------------------------------------------------------------

# An input is of a kind, by which it follows from the shape and type of x; [kind] is a list of such tensors.
LEAVES = {"x", "flat", "positive", "row", "column", "weight", "experts", "channel", "slope"}


def wide(dtype: torch.dtype) -> torch.dtype:
    """acc(T)."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def tensor(kind: str, shape: Shape, dtype: torch.dtype, device: str) -> Any:
    """An input of random numbers, where x has this shape and type."""
    here: dict[str, Any] = {"dtype": dtype, "device": device}
    acc: dict[str, Any] = {"dtype": wide(dtype), "device": device}
    makers: dict[str, Callable[[], Any]] = {
        "x": lambda: torch.randn(*shape, **here),
        "fixed": lambda: torch.randn(*shape, **here),  # nobody wants its gradient
        "flat": lambda: torch.randn(math.prod(shape), **here),
        "angles": lambda: torch.randn(*shape[:-1], shape[-1] // 2, **acc),
        "positive": lambda: torch.rand(*shape, **here) + 0.5,
        "chance": lambda: torch.rand(*shape, **here),
        "state": lambda: torch.rand(*shape, **acc),  # of an optimiser
        "sums": lambda: torch.randn(*shape, **acc),  # of what has the type of x
        "state of rows": lambda: torch.rand(*shape[:-1], **acc),
        "state of columns": lambda: torch.rand(shape[-1], **acc),
        "row": lambda: torch.randn(shape[-1], **here),
        "column": lambda: torch.randn(shape[0], **here),
        "weight": lambda: torch.randn(shape[-1], shape[-1], **here),
        "experts": lambda: torch.randn(SEGMENTS, 32, shape[-1], **here),
        "channel": lambda: torch.rand(shape[1], **acc) + 0.5,
        "slope": lambda: torch.rand(shape[1], **here),
        "mean": lambda: torch.zeros(shape[1], device=device),
        "var": lambda: torch.ones(shape[1], device=device),
        "class": lambda: torch.randint(shape[-1], tuple(shape[:-1]), device=device),
        "place": lambda: torch.randint(shape[0], (shape[0],), device=device),
        "places": lambda: torch.randint(shape[-1], tuple(shape), device=device),
        "segment": lambda: torch.randint(SEGMENTS, (shape[0],), device=device),
        "offsets": lambda: torch.linspace(0, shape[0], SEGMENTS + 1, device=device).long(),
        "choice": lambda: torch.rand(*shape, device=device) < 0.5,
        "byte weight": lambda: torch.randint(-128, 128, (shape[-1], shape[-1]), dtype=torch.int8, device=device),
        "eight": lambda: torch.randn(*shape, device=device).to(torch.float8_e4m3fn),
        "eight weight": lambda: torch.randn(shape[-1], shape[-1], device=device).to(torch.float8_e4m3fn),
        "byte": lambda: torch.randint(-128, 128, tuple(shape), dtype=torch.int8, device=device),
        "seed": lambda: torch.randint(2**62, (2,), device=device),
        "rate": lambda: torch.full((), 1e-3, **acc),
        "large": lambda: torch.full((), 1e9, **acc),
        "step": lambda: torch.full((), 10.0, **acc),
        "unit": lambda: torch.full((), 0.05, dtype=torch.float32, device=device),
        "unit of T": lambda: torch.full((), 0.05, **here),
        "middle": lambda: torch.full((), 3, dtype=torch.int32, device=device),
    }
    if kind.startswith("["):
        part = (max(1, shape[0] // LISTED), *shape[1:])
        return [tensor(kind[1:-1], part, dtype, device) for _ in range(LISTED)]
    return makers[kind]()


def kinds(inputs: str) -> dict[str, str]:
    """ "x, gamma:row": the names of inputs, each with its kind where that is not its name."""
    parts = (word.strip().partition(":") for word in inputs.split(","))
    return {name: kind or name for name, _, kind in parts}


def make(inputs: str, shape: Shape, dtype: torch.dtype, device: str = "cpu") -> Given:
    return {name: tensor(kind, shape, dtype, device) for name, kind in kinds(inputs).items()}


def leaves(inputs: str, given: Given) -> list[Tensor]:
    """Those that a user would have gradients of."""
    return [given[name] for name, kind in kinds(inputs).items() if kind in LEAVES]


@dataclass(frozen=True)
class Peer:
    """What PyTorch has for an operator."""

    general: Callable[..., Any]  # takes all arguments of the contract in its order: the tests' peer
    inputs: str = "x"  # of the call that is measured
    usual: Callable[..., Any] | None = None  # what a user writes for that call, given its inputs; general, if None
    attrs: Mapping[str, Any] = field(default_factory=dict)  # of that call
    compiled: Callable[..., Any] | None = None  # what torch.compile is given, if not what a user writes
    form: str = "rows"
    types: Sequence[str] = ("f32", "bf16")
    random: bool = False  # cannot be compared

    @property
    def written(self) -> Callable[..., Any]:
        """The PyTorch code of the call that is measured."""
        return self.usual or self.general

    def theirs(self, given: Given) -> partial[Any]:
        """PyTorch's call. Running statistics are its own, in the type that it wants."""
        statistics = [name for name, kind in kinds(self.inputs).items() if kind in ("mean", "var")]
        own = {name: given[name].to(wide(given["x"].dtype), copy=True) for name in statistics}
        return partial(self.written, *{**given, **own}.values())

    def ours(self, op: str, given: Given) -> partial[Any]:
        """The function of the operator, the inputs by position as far as they follow each other."""
        row = tenon.ops()[op]
        names = [p.name for p in row.inputs]
        first = next((i for i, name in enumerate(names) if name not in given), len(names))
        rest = {name: value for name, value in given.items() if name not in names[:first]} | dict(self.attrs)
        by_name = TorchFunction(row, shown_outputs(row)).keywords(rest)
        return partial(functions[op], *(given[name] for name in names[:first]), **by_name)


def reduced(function: Callable[..., Tensor], last: str | None = None) -> Peer:
    """A reduction over axes, of which none are all; `last` is what it calls the attribute behind them."""

    def general(x: Tensor, axes: Sequence[int], keepdim: bool, *more: float) -> Tensor:
        over = tuple(axes) or tuple(range(x.ndim))
        named = dict(zip([last] if last else [], more, strict=True))
        if over:
            return function(x, dim=over, keepdim=keepdim, **named)
        return function(x[None], dim=(0,), keepdim=False, **named)

    usual = {"var": {"correction": 0}, "std": {"correction": 0}}.get(getattr(function, "__name__", ""), {})
    return Peer(general, usual=lambda x: function(x, dim=-1, **usual), attrs={"axes": [-1]})


def position(function: Callable[..., Tensor], x: Tensor, dim: int | Sequence[int], keepdim: bool = False) -> Tensor:
    """torch.argmax goes along one dimension, or all of them: several are made one."""
    dims = sorted(d % x.ndim for d in ([dim] if isinstance(dim, int) else dim))
    others = [d for d in range(x.ndim) if d not in dims]
    found = function(x.permute(*others, *dims).flatten(len(others)), dim=-1)
    return found.reshape([1 if d in dims else x.shape[d] for d in range(x.ndim)]) if keepdim else found


def vector_norm(x: Tensor, ord: float = 2.0, **over: Any) -> Tensor:
    """The count of what is not 0 has a gradient, which is 0."""
    y = torch.linalg.vector_norm(x, ord, **over)
    return y if ord else y + (0 * x).sum(**over)


def product(x: Tensor, dim: int | Sequence[int], keepdim: bool = False) -> Tensor:
    """torch.prod goes along one dimension."""
    for axis in [dim] if isinstance(dim, int) else sorted((d % x.ndim for d in dim), reverse=True):
        x = x.prod(axis, keepdim)
    return x


# ---- code where PyTorch has no single operator -----------------------------------------------------------------------


def act(name: str, y: Tensor) -> Tensor:
    made: Tensor = y if name == "none" else OPERATORS[name].general(y)
    return made


def softmax(x: Tensor, mask: Tensor | None, axis: int, scale: float, causal: bool) -> Tensor:
    keep = torch.ones_like(x, dtype=torch.bool) if mask is None else mask.expand(x.shape)
    if causal:  # the last query sees the last key
        rows, cols = x.shape[-2], x.shape[-1]
        keep = keep & torch.ones(rows, cols, dtype=torch.bool, device=x.device).tril(cols - rows)
    y = torch.softmax((scale * x).masked_fill(~keep, -torch.inf), axis)
    return torch.where(keep.any(axis, keepdim=True), y, 0.0)


def affine(y: Tensor, gamma: Tensor | None, beta: Tensor | None) -> Tensor:
    y = y if gamma is None else y * gamma
    return y if beta is None else y + beta


def layer_norm(x: Tensor, gamma: Tensor | None, beta: Tensor | None, eps: float) -> Tensor:
    return affine(F.layer_norm(x, x.shape[-1:], eps=eps), gamma, beta)


def rms_norm(x: Tensor, gamma: Tensor | None, eps: float, zero_centered: bool) -> Tensor:
    y = F.rms_norm(x, x.shape[-1:], eps=eps)
    w = y if gamma is None else y * gamma
    return w + y if zero_centered else w


def cross_entropy(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None,
    ignore: int,
    smoothing: float,
    z_loss: float,
    reduction: str,
    want_gx: bool,
) -> Tensor:
    flat, wanted = x.reshape(-1, x.shape[-1]), target.reshape(-1).long()
    if weight is not None:
        weight = weight.to(x.dtype)
    options: dict[str, Any] = {"weight": weight, "ignore_index": ignore, "label_smoothing": smoothing}
    loss = F.cross_entropy(flat, wanted, reduction=reduction, **options)
    if z_loss:
        penalty = z_loss * torch.logsumexp(flat, -1).square() * (wanted != ignore)
        count = (wanted != ignore).sum()
        loss = loss + {"none": penalty, "sum": penalty.sum(), "mean": penalty.sum() / count}[reduction]
    return loss.reshape(target.shape) if reduction == "none" else loss


def cross_entropy_inplace(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore: int = -100,
    smoothing: float = 0.0,
    z_loss: float = 0.0,
    reduction: str = "mean",
) -> tuple[Tensor, Tensor]:
    with torch.enable_grad():
        logits = x.detach().clone().requires_grad_()
        loss = cross_entropy(logits, target, weight, ignore, smoothing, z_loss, reduction, True)
        lse = torch.logsumexp(x.detach().to(wide(x.dtype)), -1)
        loss.sum().backward()
    x.copy_(logits.grad if logits.grad is not None else x)
    return loss.detach(), lse


def soft_cross_entropy(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: str = "mean",
    smoothing: float = 0.0,
    z_loss: float = 0.0,
) -> Tensor:
    flat, wanted = x.reshape(-1, x.shape[-1]), target.reshape(-1, x.shape[-1])
    if weight is not None:
        weight = weight.to(x.dtype)
    loss = F.cross_entropy(flat, wanted, weight, reduction=reduction, label_smoothing=smoothing)
    if z_loss:
        penalty = z_loss * torch.logsumexp(flat, -1).square()
        loss = loss + (penalty.mean() if reduction == "mean" else penalty.sum())
    return loss


def rope(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool = False) -> Tensor:
    cos, sin = cos.to(x.dtype), sin.to(x.dtype)
    if interleaved:
        a, b = x[..., ::2], x[..., 1::2]
        return torch.stack((a * cos - b * sin, b * cos + a * sin), -1).flatten(-2)
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


def per_channel(x: Tensor, *values: Tensor | None) -> list[Any]:
    return [None if v is None else v.reshape([1, -1] + [1] * (x.ndim - 2)) for v in values]


def batch_norm(
    x: Tensor,
    gamma: Tensor | None,
    beta: Tensor | None,
    mean: Tensor,
    var: Tensor,
    residual: Tensor | None,
    momentum: float,
    eps: float,
    activation: str,
) -> Tensor:
    """Written out: F.batch_norm takes no single value per channel, and no statistics of another type."""
    axes = [d for d in range(x.ndim) if d != 1]
    m = x.mean(axes, keepdim=True)
    v = (x - m).square().mean(axes, keepdim=True)
    y = affine((x - m) * torch.rsqrt(v + eps), *per_channel(x, gamma, beta))
    n = x.numel() // max(x.shape[1], 1)
    with torch.no_grad():
        mean.lerp_(m.reshape(-1).to(mean.dtype), momentum)
        var.lerp_((v.reshape(-1) * n / max(n - 1, 1)).to(var.dtype), momentum)
    return act(activation, y if residual is None else y + residual)


def group_norm(
    x: Tensor, gamma: Tensor | None, beta: Tensor | None, groups: int, eps: float, activation: str
) -> Tensor:
    """Written out: F.group_norm takes no single value per group, and no weights of another type."""
    rows = x.reshape(x.shape[0], groups, x.shape[1] // groups, *x.shape[2:])
    over = list(range(2, rows.ndim))
    off = rows - rows.mean(over, keepdim=True)
    y = (off * torch.rsqrt(off.square().mean(over, keepdim=True) + eps)).reshape(x.shape)
    return act(activation, affine(y, *per_channel(x, gamma, beta)))


def batch_norm_infer(
    x: Tensor,
    mean: Tensor,
    var: Tensor,
    gamma: Tensor | None,
    beta: Tensor | None,
    residual: Tensor | None,
    eps: float,
    activation: str,
) -> Tensor:
    """Written out: F.batch_norm has no gradients of the statistics."""
    m, v, g, b = per_channel(x, mean, var, gamma, beta)
    y = affine((x - m) * torch.rsqrt(v + eps), g, b)
    return act(activation, y if residual is None else y + residual)


def summed(x: Tensor, axes: Sequence[int], keepdim: bool) -> Tensor:
    return x.sum(list(axes) or list(range(x.ndim)), keepdim=keepdim) if x.ndim else x.clone()


def histogram(x: Tensor, bins: int, low: float, high: float) -> Tensor:
    """By edges of f64, as ours; torch.histc's are of the type of x, and it returns that type."""
    edges = low + torch.arange(bins + 1, dtype=torch.float64, device=x.device) * ((high - low) / bins)
    wide = x.double().flatten()
    inside = wide[(wide >= low) & (wide <= high)]
    return torch.bincount(torch.bucketize(inside, edges[1:-1], right=True), minlength=bins)


def transposed(x: Tensor) -> Tensor:
    return x.t().contiguous()


def padded(x: Tensor, pad: Sequence[int], mode: str, value: float) -> Tensor:
    """One dimension after the other, as F.pad does it for some ranks and sizes only."""
    if mode == "constant":
        return F.pad(x, tuple(pad), value=value)
    for k in range(len(pad) // 2):
        d, n = x.ndim - 1 - k, x.shape[x.ndim - 1 - k]
        at = torch.arange(-pad[2 * k], n + pad[2 * k + 1], device=x.device)
        if mode == "circular":
            at = at % n
        elif mode == "reflect" and n > 1:
            at = at % (2 * n - 2)
            at = torch.where(at < n, at, 2 * n - 2 - at)
        x = x.index_select(d, at.clamp(0, n - 1))
    return x


def repeated(x: Tensor, repeats: Sequence[int]) -> Tensor:
    return x.repeat(*repeats) if repeats else x.clone()


def focal(x: Tensor, target: Tensor, reduction: str = "mean", alpha: float = 0.25, gamma: float = 2.0) -> Tensor:
    """As torchvision.ops.sigmoid_focal_loss."""
    p = torch.sigmoid(x)
    loss = F.binary_cross_entropy_with_logits(x, target, reduction="none")
    right = p * target + (1 - p) * (1 - target)
    loss = (alpha * target + (1 - alpha) * (1 - target)) * loss * (1 - right) ** gamma
    return loss.mean() if reduction == "mean" else loss.sum()


def kl_div(x: Tensor, target: Tensor, reduction: str) -> Tensor:
    """Each element and then the mean: 'mean' has a warning in PyTorch."""
    loss = F.kl_div(x, target, reduction="none")
    return loss.mean() if reduction == "mean" else loss.sum()


def fake_quantize(x: Tensor, scale: Tensor, zero: Tensor | None, low: int, high: int) -> Tensor:
    z = 0 if zero is None else zero
    q = torch.round(x.detach() / scale) + z
    y = (q.clamp(low, high) - z) * scale
    through = torch.where((q >= low) & (q <= high), x, x.detach())
    return through + (y - through).detach()


def quantize(x: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
    q = torch.round(x / scale)
    return (q if zero is None else q + zero).clamp(-128, 127).to(torch.int8)


def dequantize(q: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
    return (q if zero is None else q - zero) * scale


# ---- what steps of optimisers are given ------------------------------------------------------------------------------

SGD, ADAMW = "p:{0}, g:{0}, m:{1}, lr:rate", "p:{0}, g:{0}, m:{1}, v:{1}, lr:rate, step"
LION = "p:{0}, g:{0}, m:{1}, lr:rate"
ADAFACTOR = "p:fixed, g:fixed, row:state of rows, column:state of columns, lr:rate, step"
PLAIN, LISTS = ("fixed", "state"), ("[fixed]", "[state]")


# ---- the operators ---------------------------------------------------------------------------------------------------


def loss(function: Callable[..., Tensor], target: str = "fixed") -> Peer:
    return Peer(lambda x, t, reduction, *more: function(x, t, reduction=reduction), f"x, target:{target}", function)


def gated(activation: Callable[[Tensor], Tensor]) -> Peer:
    return Peer(lambda x, gate: activation(gate) * x, "x, gate:x")


def with_constant(function: Callable[..., Tensor], name: str, value: float, kind: str = "x") -> Peer:
    return Peer(function, f"x:{kind}", lambda x: function(x, value), {name: value})


def dropout_add(x: Tensor, bias: Tensor | None, residual: Tensor, seed: Tensor, p: float = 0.5) -> Tensor:
    return residual + F.dropout(x if bias is None else x + bias, p)


def embedding(table: Tensor, index: Tensor, padding_idx: int = -1, zero_padding: bool = False) -> Tensor:
    y = F.embedding(index.long(), table, padding_idx if padding_idx >= 0 else None)
    return y * (index != padding_idx)[..., None] if zero_padding and padding_idx >= 0 else y


def segment_sum(x: Tensor, ids: Tensor, segments: int) -> Tensor:
    return x.new_zeros(segments, *x.shape[1:]).index_add(0, ids.long(), x)


def segment_sum_offsets(x: Tensor, offsets: Tensor) -> Tensor:
    return torch.segment_reduce(x, "sum", offsets=offsets.long())


def linear_cross_entropy(
    x: Tensor,
    w: Tensor,
    target: Tensor,
    b: Tensor | None,
    weight: Tensor | None,
    ignore: int,
    smoothing: float,
    z_loss: float,
    reduction: str,
    softcap: float,
    temperature: float,
    *more: Any,
) -> Tensor:
    logits = F.linear(x, w, b)
    logits = (softcap * torch.tanh(logits / softcap) if softcap else logits) / temperature
    return cross_entropy(logits, target, weight, ignore, smoothing, z_loss, reduction, True)


def linear_cross_entropy_tokens(
    x: Tensor,
    w: Tensor,
    target: Tensor,
    b: Tensor | None,
    weight: Tensor | None,
    ignore: int,
    smoothing: float,
    z_loss: float,
    softcap: float,
    temperature: float,
    *more: Any,
) -> tuple[Tensor, Tensor, Tensor]:
    logits = F.linear(x, w, b)
    logits = (softcap * torch.tanh(logits / softcap) if softcap else logits) / temperature
    loss = cross_entropy(logits, target, weight, ignore, smoothing, z_loss, "none", True)
    logs, kept = torch.log_softmax(logits, -1), target != ignore
    place = target.long().clamp(0, logits.shape[-1] - 1)
    return loss, logs.gather(-1, place[..., None])[..., 0] * kept, -(logs.exp() * logs).sum(-1) * kept


def matmul_add(a: Tensor, b: Tensor, c: Tensor, alpha: float = 1.0, add: bool = True) -> None:
    c.copy_(alpha * torch.matmul(a, b) + (c if add else 0))


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    mask: Tensor | None,
    sinks: Tensor | None,
    causal: bool,
    window: Sequence[int],
    scale: float | None,
    softcap: float,
) -> tuple[Tensor, Tensor]:
    m, n, group = q.shape[2], k.shape[2], q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = q @ k.mT * (max(q.shape[3], 1) ** -0.5 if scale is None else scale)
    scores = softcap * torch.tanh(scores / softcap) if softcap else scores
    scores = scores if bias is None else scores + bias
    keep = torch.ones_like(scores, dtype=torch.bool) if mask is None else mask.expand(scores.shape)
    ahead = torch.arange(m, device=q.device)[:, None] + n - m - torch.arange(n, device=q.device)
    before, after = window[0], 0 if causal else window[1]
    keep = keep & (ahead <= before) if before >= 0 else keep
    keep = keep & (-ahead <= after) if after >= 0 else keep
    scores = scores.masked_fill(~keep, -torch.inf)
    if sinks is not None:
        scores = torch.cat([scores, sinks.to(scores.dtype)[:, None, None].expand(*scores.shape[:3], 1)], -1)
    any_kept = (scores > -torch.inf).any(-1, keepdim=True)
    weights = torch.where(any_kept, torch.softmax(scores, -1), 0.0)[..., :n]
    return weights @ v, torch.logsumexp(scores, -1)


def cumulative(function: Callable[..., Tensor], none: float) -> Callable[..., Tensor]:
    """torch.cumsum or torch.cumprod; `none` is that of no elements."""

    def along(x: Tensor, axis: int, exclusive: bool = False, reverse: bool = False) -> Tensor:
        y = function(x.flip(axis) if reverse else x, axis, dtype=x.dtype)
        if exclusive and y.shape[axis]:
            y = torch.cat([torch.full_like(y.narrow(axis, 0, 1), none), y.narrow(axis, 0, y.shape[axis] - 1)], axis)
        return y.flip(axis) if reverse else y

    return along


def one_hot(index: Tensor, classes: int, type: torch.dtype = torch.int64) -> Tensor:
    return F.one_hot(index.long(), classes).to(type)


def linear(
    x: Tensor,
    w: Tensor,
    b: Tensor | None = None,
    residual: Tensor | None = None,
    act: str = "none",
    want_z: bool = False,
) -> Tensor:
    y = F.linear(x, w, b)
    y = y if residual is None else y + residual
    return y if act == "none" else getattr(F, act)(y)


def scaled_linear(
    x: Tensor,
    w: Tensor,
    x_scale: Tensor,
    w_scale: Tensor,
    b: Tensor | None = None,
    type: torch.dtype = torch.bfloat16,
    act: str = "none",
) -> Tensor:
    y = F.linear(x.float(), w.float()) * (x_scale[..., None] * w_scale)
    y = y if b is None else y + b
    return (y if act == "none" else getattr(F, act)(y)).to(type)


def grouped_linear(x: Tensor, w: Tensor, offsets: Tensor) -> Tensor:
    first, *ends = offsets.tolist()
    nothing = w.sum(0) * 0  # of rows that are in no group
    parts = [F.linear(x[:first], nothing)]
    for group, end in zip(w, ends, strict=True):
        parts.append(F.linear(x[first:end], group))
        first = end
    return torch.cat([*parts, F.linear(x[first:], nothing)])


GATES: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
    "sigmoid": torch.sigmoid,
    "none": lambda gate: gate,
}


def gated_halves(h: Tensor, act: str = "silu") -> Tensor:
    gate, up = h.chunk(2, -1)
    return GATES[act](gate) * up


def contraction(sums: str) -> Callable[..., Tensor]:
    return lambda *tensors: torch.einsum(sums, *tensors)


OPERATORS: dict[str, Peer] = {
    "softmax": Peer(softmax, usual=lambda x: torch.softmax(x, -1)),
    "layer_norm": Peer(
        layer_norm, "x, gamma:row, beta:row", lambda x, gamma, beta: F.layer_norm(x, gamma.shape, gamma, beta)
    ),
    "cross_entropy": Peer(cross_entropy, "x, target:class", F.cross_entropy),
    "cross_entropy_inplace": Peer(cross_entropy_inplace, "x:fixed, target:class"),
    "embedding": Peer(embedding, "table:x, index:place", lambda table, index: F.embedding(index, table)),
    "index_select": Peer(
        lambda x, index, axis: torch.index_select(x, axis, index.long()),
        "x, index:place",
        lambda x, index: torch.index_select(x, 0, index),
    ),
    "gather": Peer(
        lambda x, index, axis: torch.gather(x, axis, index.long()),
        "x, index:places",
        lambda x, index: torch.gather(x, -1, index),
    ),
    "scatter_add": Peer(
        lambda x, index, src, axis: torch.scatter_add(x, axis, index.long(), src),
        "x, index:places, src:x",
        lambda x, index, src: torch.scatter_add(x, -1, index, src),
    ),
    "segment_sum": Peer(segment_sum, "x, ids:segment", lambda x, ids: segment_sum(x, ids, SEGMENTS), {"segments": 64}),
    "segment_sum_offsets": Peer(segment_sum_offsets, "x, offsets", types=("f32",)),
    "one_hot": Peer(one_hot, "index:segment", lambda index: F.one_hot(index, SEGMENTS), {"classes": 64}),
    "select": Peer(torch.where, "cond:choice, a:x, b:x"),
    "rope": Peer(rope, "x, cos:angles, sin:angles"),
    # products
    "linear": Peer(linear, "x, w:weight, b:row", F.linear, form="features"),
    "gated_linear": Peer(
        lambda x, w, act="silu": gated_halves(F.linear(x, w), act),
        "x, w:weight",
        lambda x, w: gated_halves(F.linear(x, w)),
        form="features",
    ),
    "linear_int8": Peer(
        scaled_linear,
        "x:byte, w:byte weight, x_scale:state of rows, w_scale:state of columns",
        lambda x, w, x_scale, w_scale: (torch._int_mm(x, w.t()) * (x_scale[:, None] * w_scale)).bfloat16(),
        form="features",
        types=("bf16",),
    ),
    "linear_fp8": Peer(
        scaled_linear,
        "x:eight, w:eight weight, x_scale:state of rows, w_scale:state of columns",
        lambda x, w, x_scale, w_scale: (F.linear(x.float(), w.float()) * (x_scale[:, None] * w_scale)).bfloat16(),
        form="features",
        types=("bf16",),
    ),
    "grouped_linear": Peer(
        grouped_linear,
        "x, w:experts, offsets",
        lambda x, w, offsets: F.grouped_mm(x, w.mT, offs=offsets[1:].int()),
        form="features",
        types=("bf16",),
    ),
    "linear_cross_entropy": Peer(
        linear_cross_entropy,
        "x, w:weight, target:class",
        lambda x, w, target: F.cross_entropy(F.linear(x, w), target),
        form="features",
    ),
    "linear_cross_entropy_tokens": Peer(
        linear_cross_entropy_tokens,
        "x, w:weight, target:class",
        lambda x, w, target: linear_cross_entropy_tokens(x, w, target, None, None, -100, 0.0, 0.0, 0.0, 1.0),
        form="features",
    ),
    "gated": Peer(gated_halves, "h:x", lambda h: gated_halves(h), form="features"),
    "matmul": Peer(lambda a, b, alpha=1.0: alpha * torch.matmul(a, b), "a:x, b:weight", torch.matmul, form="features"),
    "matmul_add": Peer(
        matmul_add, "a:x, b:weight, c:sums", lambda a, b, c: c.add_(torch.matmul(a, b)), form="features"
    ),
    "attention": Peer(attention, "q:x, k:x, v:x", F.scaled_dot_product_attention, form="images"),
    "matvec": Peer(contraction("...mk,...k->...m"), "a:x, x:row", torch.mv, form="features"),
    "vecmat": Peer(contraction("...m,...mk->...k"), "x:column, a:x", torch.matmul, form="features"),
    "outer_product": Peer(contraction("...m,...n->...mn"), "x:column, y:row", torch.outer, form="features"),
    "sum": Peer(summed, usual=lambda x: torch.sum(x, -1), attrs={"axes": [-1]}),
    # reductions
    "log_softmax": Peer(lambda x, axis: torch.log_softmax(x, axis), usual=lambda x: torch.log_softmax(x, -1)),
    "logsumexp": reduced(torch.logsumexp),
    "mean": reduced(torch.mean),
    "max": reduced(torch.amax),
    "min": reduced(torch.amin),
    "argmax": reduced(partial(position, torch.argmax)),
    "argmin": reduced(partial(position, torch.argmin)),
    "prod": reduced(product),
    "var": reduced(torch.var, "correction"),
    "std": reduced(torch.std, "correction"),
    "norm": reduced(vector_norm, "ord"),
    "any": reduced(torch.any),
    "all": reduced(torch.all),
    "cumsum": Peer(cumulative(torch.cumsum, 0), usual=lambda x: torch.cumsum(x, -1)),
    "cumprod": Peer(cumulative(torch.cumprod, 1), usual=lambda x: torch.cumprod(x, -1)),
    "cummax": Peer(lambda x, axis: tuple(torch.cummax(x, axis)), usual=lambda x: tuple(torch.cummax(x, -1))),
    "cummin": Peer(lambda x, axis: tuple(torch.cummin(x, axis)), usual=lambda x: tuple(torch.cummin(x, -1))),
    "sort": Peer(
        lambda x, axis, descending: tuple(torch.sort(x, dim=axis, descending=descending, stable=True)),
        usual=lambda x: torch.sort(x, -1),
    ),
    "top_k": Peer(
        lambda x, k, largest: tuple(t[..., :k] for t in torch.sort(x, dim=-1, descending=largest, stable=True)),
        usual=lambda x: torch.topk(x, 64),
        attrs={"k": 64},
    ),
    "group_norm": Peer(
        group_norm,
        "x, gamma:channel, beta:channel",
        lambda x, gamma, beta: F.group_norm(x, 4, gamma.to(x.dtype), beta.to(x.dtype)),
        {"groups": 4},
        form="images",
    ),
    "instance_norm": Peer(
        lambda x, gamma, beta, *more: group_norm(x, gamma, beta, x.shape[1], *more),
        "x, gamma:channel, beta:channel",
        lambda x, gamma, beta: F.instance_norm(x, weight=gamma.to(x.dtype), bias=beta.to(x.dtype)),
        form="images",
    ),
    "add_layer_norm": Peer(
        lambda x, residual, *more: (layer_norm(x + residual, *more), x + residual),
        "x, residual:x, gamma:row, beta:row",
        lambda x, residual, gamma, beta: (F.layer_norm(x + residual, gamma.shape, gamma, beta), x + residual),
    ),
    "add_rms_norm": Peer(
        lambda x, residual, *more: (rms_norm(x + residual, *more), x + residual),
        "x, residual:x, gamma:row",
        lambda x, residual, gamma: (F.rms_norm(x + residual, gamma.shape, gamma, 1e-6), x + residual),
    ),
    "histogram": Peer(
        histogram,
        usual=lambda x: torch.histc(x, 64, -4.0, 4.0),
        attrs={"bins": 64, "low": -4.0, "high": 4.0},
        types=("f32",),
    ),
    "batch_norm": Peer(
        batch_norm,
        "x, gamma:channel, beta:channel, running_mean:mean, running_var:var",
        lambda x, gamma, beta, mean, var: F.batch_norm(x, mean, var, gamma, beta, training=True),
        form="images",
    ),
    # moving data
    "permute": Peer(lambda x, dims: x.permute(tuple(dims)).contiguous(), usual=transposed, attrs={"dims": [1, 0]}),
    "concat": Peer(torch.cat, "xs:[x]"),
    "pad": Peer(padded, usual=lambda x: F.pad(x, (8, 8)), attrs={"pad": [8, 8]}),
    "roll": Peer(torch.roll, usual=lambda x: torch.roll(x, 1, -1), attrs={"shift": 1, "axis": -1}),
    "repeat": Peer(repeated, usual=lambda x: x.repeat(1, 2), attrs={"repeats": [1, 2]}),
    "triu": Peer(torch.triu),
    "tril": Peer(torch.tril),
    # arithmetic
    "identity": Peer(torch.clone),
    "add": Peer(torch.add, "x, y:x"),
    "sub": Peer(torch.sub, "x, y:x"),
    "mul": Peer(torch.mul, "x, y:x"),
    "div": Peer(torch.div, "x, y:positive"),
    "add_constant": with_constant(torch.add, "c", 0.5),
    "scale": with_constant(torch.mul, "c", 2.5),
    "scale_bias_relu": Peer(lambda x, scale, bias: torch.relu(x * scale + bias), "x, scale:row, bias:row"),
    "bias_act": Peer(lambda x, bias, name: act(name, x + bias), "x, bias:row", lambda x, bias: torch.relu(x + bias)),
    "square": Peer(torch.square),
    "sqrt": Peer(torch.sqrt, "x:positive"),
    "rsqrt": Peer(torch.rsqrt, "x:positive"),
    "exp": Peer(torch.exp),
    "log": Peer(torch.log, "x:positive"),
    "abs": Peer(torch.abs),
    "sign": Peer(torch.sign),
    "floor": Peer(torch.floor),
    "clamp": Peer(
        lambda x, low, high: x.clone() if low is None and high is None else torch.clamp(x, low, high),
        usual=lambda x: torch.clamp(x, -1.0, 1.0),
        attrs={"low": -1.0, "high": 1.0},
    ),
    "pow": with_constant(torch.pow, "exponent", 1.5, "positive"),
    "dot": Peer(torch.dot, "x:flat, y:flat"),
    "axpy": Peer(lambda x, y, alpha: alpha.to(x.dtype) * x + y, "x, y:x, alpha:rate"),
    "nrm2": Peer(torch.linalg.vector_norm),
    "lerp": Peer(torch.lerp, "x, end:x, weight:x"),
    # activations
    "relu": Peer(torch.relu),
    "leaky_relu": Peer(F.leaky_relu),
    "prelu": Peer(F.prelu, "x, slope", form="images"),
    "elu": Peer(F.elu),
    "celu": Peer(F.celu),
    "selu": Peer(F.selu),
    "sigmoid": Peer(torch.sigmoid),
    "log_sigmoid": Peer(F.logsigmoid),
    "hard_sigmoid": Peer(lambda x: torch.clamp(x / 6 + 0.5, 0, 1), usual=F.hardsigmoid),  # its 1 / 6 is f32
    "tanh": Peer(torch.tanh),
    "softplus": Peer(F.softplus),
    "softsign": Peer(F.softsign),
    "gelu": Peer(F.gelu),
    "gelu_tanh": Peer(partial(F.gelu, approximate="tanh")),
    "quick_gelu": Peer(lambda x: x * torch.sigmoid(1.702 * x)),
    "silu": Peer(F.silu),
    "hard_swish": Peer(lambda x: x * torch.clamp(x / 6 + 0.5, 0, 1), usual=F.hardswish),
    "mish": Peer(F.mish),
    "swiglu": gated(F.silu),
    "geglu": gated(F.gelu),
    "reglu": gated(torch.relu),
    # around layers
    "dropout": Peer(lambda x, seed, p=0.5: F.dropout(x, p), "x, seed", random=True),
    "bias_dropout_add": Peer(dropout_add, "x, bias:row, residual:x, seed", random=True),
    "residual_scale": Peer(lambda x, residual, scale: residual + x * scale, "x, residual:x, scale:row"),
    "rms_norm": Peer(rms_norm, "x, gamma:row", lambda x, gamma: F.rms_norm(x, gamma.shape, gamma, 1e-6)),
    "batch_norm_infer": Peer(
        batch_norm_infer,
        "x, mean, var, gamma:channel, beta:channel",
        lambda x, mean, var, gamma, beta: F.batch_norm(x, mean, var, gamma, beta),
        form="images",
    ),
    # losses
    "mse": loss(F.mse_loss),
    "l1": loss(F.l1_loss),
    "huber": Peer(
        lambda x, t, reduction, delta: F.huber_loss(x, t, reduction=reduction, delta=delta),
        "x, target:fixed",
        F.huber_loss,
    ),
    "bce_with_logits": loss(F.binary_cross_entropy_with_logits, "chance"),
    "focal": Peer(focal, "x, target:chance"),
    "kl_div": Peer(
        kl_div,
        "x, target:chance",
        lambda x, target: F.kl_div(x, target, reduction="sum"),
        {"reduction": "sum"},
    ),
    "soft_cross_entropy": Peer(soft_cross_entropy, "x, target:chance", F.cross_entropy),
    "cosine_similarity": Peer(
        lambda x, y, eps: F.cosine_similarity(x, y, -1, eps),
        "x, y:x",
        lambda x, y: F.cosine_similarity(x, y, -1),
    ),
    # optimisers: PyTorch's fused ones keep their state in the parameter's type, so it is f32 that can be compared
    "sgd_step": Peer(sgd, SGD.format(*PLAIN)),
    "adamw_step": Peer(adamw, ADAMW.format(*PLAIN), lambda p, g, m, v, lr, step: adamw(p, g, m, v, None, lr, step)),
    "adam_step": Peer(adam, ADAMW.format(*PLAIN), lambda p, g, m, v, lr, step: adam(p, g, m, v, None, lr, step)),
    "lion_step": Peer(lion, LION.format(*PLAIN), lambda p, g, m, lr: lion(p, g, m, None, lr)),
    "adafactor_step": Peer(
        adafactor, ADAFACTOR, lambda p, g, row, column, lr, step: adafactor(p, g, row, column, None, lr, step)
    ),
    "sgd_step_list": Peer(for_each(sgd, 3), SGD.format(*LISTS), fused_sgd, compiled=for_each(sgd, 3), types=("f32",)),
    "adamw_step_list": Peer(
        for_each(adamw, 5),
        ADAMW.format(*LISTS),
        fused_adamw,
        compiled=lambda p, g, m, v, lr, step: for_each(adamw, 5)(p, g, m, v, None, lr, step),
        types=("f32",),
    ),
    "adam_step_list": Peer(
        for_each(adam, 5),
        ADAMW.format(*LISTS),
        fused_adam,
        compiled=lambda p, g, m, v, lr, step: for_each(adam, 5)(p, g, m, v, None, lr, step),
        types=("f32",),
    ),
    "lion_step_list": Peer(
        for_each(lion, 4), LION.format(*LISTS), lambda p, g, m, lr: for_each(lion, 4)(p, g, m, None, lr)
    ),
    "clip_grad_norm": Peer(clip_grad_norm, "g:[fixed], max_norm:large"),
    # quantisation
    "quantize": Peer(quantize, "x:fixed, scale:unit"),
    "fake_quantize": Peer(
        fake_quantize,
        "x, scale:unit, zero:middle",
        lambda x, scale, zero: torch.fake_quantize_per_tensor_affine(x, scale, zero, -128, 127),
    ),
    "dequantize": Peer(dequantize, "q:byte, scale:unit of T"),
}


# ---- modules ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Module:
    """A module of tn.nn, and torch.nn's of the same name, or what one would write instead."""

    args: Callable[[Shape], Given] = lambda shape: {}
    inputs: str = "x"
    form: str = "rows"
    theirs: Callable[..., nn.Module] | None = None
    random: bool = False


class ScaleBiasReLU(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.scale, self.bias = nn.Parameter(torch.ones(features)), nn.Parameter(torch.zeros(features))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x * self.scale + self.bias)


class QuickGELU(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(1.702 * x)


class GatedMLP(nn.Module):
    def __init__(self, in_features: int, hidden_features: int) -> None:
        super().__init__()
        self.up = nn.Linear(in_features, 2 * hidden_features)
        self.down = nn.Linear(hidden_features, in_features)

    def forward(self, x: Tensor) -> Tensor:
        y, gate = self.up(x).chunk(2, -1)
        made: Tensor = self.down(F.silu(gate) * y)
        return made


class LinearCrossEntropyLoss(nn.Module):
    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(self.linear(x), target)


def batch_norm_module(form: str) -> Module:
    return Module(lambda shape: {"num_features": shape[1]}, form=form)


def norm_module() -> Module:
    return Module(lambda shape: {"normalized_shape": shape[-1]})


MODULES: dict[str, Module] = {
    **{
        name: Module()
        for name in (
            *("ReLU", "LeakyReLU", "ELU", "CELU", "SELU", "Sigmoid", "LogSigmoid", "Hardsigmoid", "Tanh", "Softplus"),
            *("Softsign", "GELU", "SiLU", "Hardswish", "Mish"),
        )
    },
    "QuickGELU": Module(theirs=QuickGELU),
    "PReLU": Module(lambda shape: {"num_parameters": shape[1]}, form="images"),
    "Softmax": Module(lambda shape: {"dim": -1}),
    "LogSoftmax": Module(lambda shape: {"dim": -1}),
    "GroupNorm": Module(lambda shape: {"num_groups": 4, "num_channels": shape[1]}, form="images"),
    "InstanceNorm1d": Module(lambda shape: {"num_features": shape[1], "affine": True}, form="series"),
    "InstanceNorm2d": Module(lambda shape: {"num_features": shape[1], "affine": True}, form="images"),
    "InstanceNorm3d": Module(lambda shape: {"num_features": shape[1], "affine": True}, form="volumes"),
    "LayerNorm": norm_module(),
    "RMSNorm": norm_module(),
    "BatchNorm1d": batch_norm_module("series"),
    "BatchNorm2d": batch_norm_module("images"),
    "BatchNorm3d": batch_norm_module("volumes"),
    "Dropout": Module(random=True),
    "Linear": Module(lambda shape: {"in_features": shape[-1], "out_features": shape[-1]}, form="features"),
    "Embedding": Module(lambda shape: {"num_embeddings": shape[0], "embedding_dim": shape[-1]}, "index:place"),
    "ScaleBiasReLU": Module(lambda shape: {"shape": shape[-1]}, theirs=lambda shape: ScaleBiasReLU(shape)),
    "GatedMLP": Module(
        lambda shape: {"in_features": shape[-1], "hidden_features": 4 * shape[-1]}, form="features", theirs=GatedMLP
    ),
    "CrossEntropyLoss": Module(inputs="x, target:class"),
    "LinearCrossEntropyLoss": Module(
        lambda shape: {"in_features": shape[-1], "out_features": shape[-1]},
        "x, target:class",
        form="features",
        theirs=LinearCrossEntropyLoss,
    ),
    "MSELoss": Module(inputs="x, target:fixed"),
    "L1Loss": Module(inputs="x, target:fixed"),
    "HuberLoss": Module(inputs="x, target:fixed"),
    "BCEWithLogitsLoss": Module(inputs="x, target:chance"),
    "KLDivLoss": Module(lambda shape: {"reduction": "batchmean"}, "x, target:chance"),
    "CosineSimilarity": Module(lambda shape: {"dim": -1}, "x, y:x"),
}


# ---- optimisers ------------------------------------------------------------------------------------------------------


def stepping(optimizer: torch.optim.Optimizer) -> Callable[[], Any]:
    return optimizer.step


# What a step is, ours, PyTorch's fastest, and what torch.compile is given: each a function of the parameters.
Steps = Callable[[list[nn.Parameter]], Callable[[], Any]]
OPTIMISERS: dict[str, tuple[Steps, Steps, Steps]] = {
    "SGD": (
        lambda p: stepping(tn.optim.SGD(p, lr=1e-3, momentum=0.9)),
        lambda p: stepping(torch.optim.SGD(p, lr=1e-3, momentum=0.9, fused=True)),
        lambda p: stepping(torch.optim.SGD(p, lr=1e-3, momentum=0.9)),
    ),
    "AdamW": (
        lambda p: stepping(tn.optim.AdamW(p)),
        lambda p: stepping(torch.optim.AdamW(p, fused=True)),
        lambda p: stepping(torch.optim.AdamW(p)),
    ),
    "Adam": (
        lambda p: stepping(tn.optim.Adam(p)),
        lambda p: stepping(torch.optim.Adam(p, fused=True)),
        lambda p: stepping(torch.optim.Adam(p)),
    ),
    # which torch does not have: what one writes, for each tensor
    "Lion": (
        lambda p: stepping(tn.optim.Lion(p)),
        lambda p: partial(lion_each, p, [torch.zeros_like(q) for q in p]),
        lambda p: partial(lion_each, p, [torch.zeros_like(q) for q in p]),
    ),
    "Adafactor": (
        lambda p: stepping(tn.optim.Adafactor(p)),
        lambda p: stepping(torch.optim.Adafactor(p, foreach=True)),
        lambda p: stepping(torch.optim.Adafactor(p)),
    ),
    "clip_grad_norm_": (
        lambda p: partial(tn.optim.clip_grad_norm_, p, 1.0),
        lambda p: partial(torch.nn.utils.clip_grad_norm_, p, 1.0),
        lambda p: partial(torch.nn.utils.clip_grad_norm_, p, 1.0),
    ),
}
