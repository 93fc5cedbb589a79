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
from tenon._frameworks import TorchFunction
from tenon._public import shown_outputs
from tenon.torch._public import functions

Given = dict[str, Any]  # arguments of a call by name: tensors, or lists of them
Shape = Sequence[int]
LISTED = 8  # tensors of a list


# ---- inputs ----------------------------------------------------------------------------------------------------------

# An input is of a kind, by which it follows from the shape and type of x; [kind] is a list of such tensors.
LEAVES = {"x", "positive", "row", "channel", "slope"}


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
        "positive": lambda: torch.rand(*shape, **here) + 0.5,
        "chance": lambda: torch.rand(*shape, **here),
        "state": lambda: torch.rand(*shape, **acc),  # of an optimiser
        "row": lambda: torch.randn(shape[-1], **here),
        "channel": lambda: torch.rand(shape[1], **acc) + 0.5,
        "slope": lambda: torch.rand(shape[1], **here),
        "mean": lambda: torch.zeros(shape[1], device=device),
        "var": lambda: torch.ones(shape[1], device=device),
        "class": lambda: torch.randint(shape[-1], tuple(shape[:-1]), device=device),
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


# ---- steps of optimisers ---------------------------------------------------------------------------------------------


def sgd(
    p: Tensor,
    g: Tensor,
    m: Tensor | None,
    lr: Tensor,
    momentum: float = 0.9,
    dampening: float = 0.0,
    weight_decay: float = 0.0,
    nesterov: bool = False,
) -> None:
    g = g.to(p.dtype if m is None else m.dtype)
    d = g.add(p, alpha=weight_decay) if weight_decay else g
    if m is None:
        p.sub_(lr * d)
        return
    m.mul_(momentum).add_(d, alpha=1 - dampening)
    p.sub_(lr * (d.add(m, alpha=momentum) if nesterov else m))


def adamw(
    p: Tensor,
    g: Tensor,
    m: Tensor,
    v: Tensor,
    master: Tensor | None,
    lr: Tensor,
    step: Tensor,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 0.01,
) -> None:
    """As PyTorch's optimiser does it without fusion, its numbers as tensors."""
    g = g.to(m.dtype)
    m.lerp_(g, 1 - beta1)
    v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
    c1, c2 = -torch.expm1(step * math.log(beta1)), (-torch.expm1(step * math.log(beta2))).sqrt()
    w = p if master is None else master
    w.mul_(1 - lr * weight_decay)
    w.sub_(lr / c1 * m / (v.sqrt() / c2 + eps))
    if master is not None:
        p.copy_(master)


def for_each(step: Callable[..., None], lists: int) -> Callable[..., None]:
    """A step for each tensor of lists, the first arguments."""

    def steps(*args: Any) -> None:
        absent = [None] * len(args[0])
        for tensors in zip(*(absent if a is None else a for a in args[:lists]), strict=True):
            step(*tensors, *args[lists:])

    return steps


FUSED_SGD: dict[str, Any] = {"weight_decay": 0.0, "momentum": 0.9, "dampening": 0.0, "nesterov": False}
FUSED_ADAMW: dict[str, Any] = {"beta1": 0.9, "beta2": 0.999, "weight_decay": 0.01, "eps": 1e-8, "amsgrad": False}


def fused_sgd(p: list[Tensor], g: list[Tensor], m: list[Tensor], lr: Tensor) -> None:
    torch._fused_sgd_(p, g, m, lr=lr, maximize=False, is_first_step=False, **FUSED_SGD)


def fused_adamw(p: list[Tensor], g: list[Tensor], m: list[Tensor], v: list[Tensor], lr: Tensor, step: Tensor) -> None:
    torch._fused_adamw_(p, g, m, v, [], [step] * len(p), lr=lr, maximize=False, **FUSED_ADAMW)


def clip_grad_norm(g: list[Tensor], max_norm: Tensor) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(g)))
    torch._foreach_mul_(g, torch.clamp(max_norm / (norm + 1e-6), max=1.0))
    return norm


SGD, ADAMW = "p:{0}, g:{0}, m:{1}, lr:rate", "p:{0}, g:{0}, m:{1}, v:{1}, lr:rate, step"
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


OPERATORS: dict[str, Peer] = {
    "softmax": Peer(softmax, usual=lambda x: torch.softmax(x, -1)),
    "layer_norm": Peer(
        layer_norm, "x, gamma:row, beta:row", lambda x, gamma, beta: F.layer_norm(x, gamma.shape, gamma, beta)
    ),
    "cross_entropy": Peer(cross_entropy, "x, target:class", F.cross_entropy),
    "sum": Peer(summed, usual=lambda x: torch.sum(x, -1), attrs={"axes": [-1]}),
    "batch_norm": Peer(
        batch_norm,
        "x, gamma:channel, beta:channel, running_mean:mean, running_var:var",
        lambda x, gamma, beta, mean, var: F.batch_norm(x, mean, var, gamma, beta, training=True),
        form="images",
    ),
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
    "cosine_similarity": Peer(
        lambda x, y, eps: F.cosine_similarity(x, y, -1, eps),
        "x, y:x",
        lambda x, y: F.cosine_similarity(x, y, -1),
    ),
    # optimisers: PyTorch's fused ones keep their state in the parameter's type, so it is f32 that can be compared
    "sgd_step": Peer(sgd, SGD.format(*PLAIN)),
    "adamw_step": Peer(adamw, ADAMW.format(*PLAIN), lambda p, g, m, v, lr, step: adamw(p, g, m, v, None, lr, step)),
    "sgd_step_list": Peer(for_each(sgd, 3), SGD.format(*LISTS), fused_sgd, compiled=for_each(sgd, 3), types=("f32",)),
    "adamw_step_list": Peer(
        for_each(adamw, 5),
        ADAMW.format(*LISTS),
        fused_adamw,
        compiled=lambda p, g, m, v, lr, step: for_each(adamw, 5)(p, g, m, v, None, lr, step),
        types=("f32",),
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
    "LayerNorm": norm_module(),
    "RMSNorm": norm_module(),
    "BatchNorm1d": batch_norm_module("series"),
    "BatchNorm2d": batch_norm_module("images"),
    "BatchNorm3d": batch_norm_module("volumes"),
    "Dropout": Module(random=True),
    "ScaleBiasReLU": Module(lambda shape: {"shape": shape[-1]}, theirs=lambda shape: ScaleBiasReLU(shape)),
    "GatedMLP": Module(
        lambda shape: {"in_features": shape[-1], "hidden_features": 4 * shape[-1]}, form="features", theirs=GatedMLP
    ),
    "CrossEntropyLoss": Module(inputs="x, target:class"),
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
    "clip_grad_norm_": (
        lambda p: partial(tn.optim.clip_grad_norm_, p, 1.0),
        lambda p: partial(torch.nn.utils.clip_grad_norm_, p, 1.0),
        lambda p: partial(torch.nn.utils.clip_grad_norm_, p, 1.0),
    ),
}
