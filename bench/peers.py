"""The calls that are compared with PyTorch, one row for each operator. The benchmark and the demo share them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

import tenon.torch as tn

Inputs = dict[str, Tensor]


@dataclass(frozen=True)
class Peer:
    """One operator: how its inputs are made, Tenon's call of it and PyTorch's."""

    op: str
    make: Callable[[Sequence[int], torch.dtype], Inputs]
    ours: Callable[[Inputs], Tensor]
    theirs: Callable[[Inputs], Tensor]
    differentiate: Sequence[str]
    shapes: Sequence[Sequence[int]]  # from cache to memory


def _only_x(shape: Sequence[int], dtype: torch.dtype) -> Inputs:
    return {"x": torch.randn(*shape, dtype=dtype)}


def _layer_norm(shape: Sequence[int], dtype: torch.dtype) -> Inputs:
    c = shape[-1]
    return {**_only_x(shape, dtype), "gamma": torch.rand(c, dtype=dtype) + 0.5, "beta": torch.randn(c, dtype=dtype)}


def _cross_entropy(shape: Sequence[int], dtype: torch.dtype) -> Inputs:
    return {**_only_x(shape, dtype), "target": torch.randint(0, shape[-1], shape[:-1])}


def _batch_norm(shape: Sequence[int], dtype: torch.dtype) -> Inputs:
    c = shape[1]
    # PyTorch wants statistics of the data's own type, or f32 beside 16 bits; Tenon keeps them in f32.
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    return {
        **_only_x(shape, dtype),
        "gamma": torch.rand(c, dtype=wide) + 0.5,
        "beta": torch.randn(c, dtype=wide),
        "running_mean": torch.zeros(c),
        "running_var": torch.ones(c),
        "peer_mean": torch.zeros(c, dtype=wide),
        "peer_var": torch.ones(c, dtype=wide),
    }


def _ours_batch_norm(i: Inputs) -> Tensor:
    return tn.batch_norm(i["x"], i["gamma"], i["beta"], i["running_mean"], i["running_var"])


def _theirs_batch_norm(i: Inputs) -> Tensor:
    return F.batch_norm(i["x"], i["peer_mean"], i["peer_var"], i["gamma"], i["beta"], training=True)


ROWS = [(16, 1024), (256, 1024), (4096, 1024), (16384, 1024), (128, 32768)]

PEERS = [
    Peer("softmax", _only_x, lambda i: tn.softmax(i["x"]), lambda i: torch.softmax(i["x"], -1), ["x"], ROWS),
    Peer(
        "layer_norm",
        _layer_norm,
        lambda i: tn.layer_norm(i["x"], i["gamma"], i["beta"]),
        lambda i: F.layer_norm(i["x"], i["gamma"].shape, i["gamma"], i["beta"]),
        ["x", "gamma", "beta"],
        [(16, 768), (256, 1024), (4096, 1024), (16384, 1024), (2048, 4096)],
    ),
    Peer(
        "cross_entropy",
        _cross_entropy,
        lambda i: tn.cross_entropy(i["x"], i["target"]),
        lambda i: F.cross_entropy(i["x"], i["target"]),
        ["x"],
        [(16, 1000), (256, 1000), (4096, 1000), (512, 32000)],
    ),
    Peer("sum", _only_x, lambda i: tn.sum(i["x"], axes=[-1]), lambda i: torch.sum(i["x"], -1), ["x"], ROWS[:4]),
    Peer(
        "batch_norm",
        _batch_norm,
        _ours_batch_norm,
        _theirs_batch_norm,
        ["x", "gamma", "beta"],
        [(8, 16, 8, 8), (16, 64, 16, 16), (32, 64, 56, 56), (32, 256, 28, 28)],
    ),
]


def double(inputs: Inputs) -> Inputs:
    """The same numbers in float64, for PyTorch to say what is right."""
    wide = {name: t.double() if t.is_floating_point() else t for name, t in inputs.items()}
    for name in ("running_mean", "running_var"):
        if name in wide:
            wide[name] = inputs[name].clone()
    return wide


def gradients(call: Callable[[Inputs], Tensor], inputs: Inputs, wanted: Sequence[str], dy: Tensor) -> None:
    """One forward and backward pass, gradients in .grad as a training step leaves them."""
    for name in wanted:
        inputs[name].grad = None
    call(inputs).backward(dy)
