"""Results and gradients equal those of PyTorch's own operators, which bench/peers.py has for every row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import here
import pytest
import torch
import torch.nn.functional as F
from cases import Case, assert_close, clone, every_sample, tensors
from torch import Tensor

import tenon
import tenon.torch as tn
from peers import MODULES, OPERATORS, OPTIMISERS


def softmax_grad(y: Tensor, dy: Tensor, axis: int, scale: float) -> Tensor:
    return scale * y * (dy - (y * dy).sum(axis, keepdim=True))


def sum_grad(dy: Tensor, shape: list[int], axes: list[int], keepdim: bool) -> Tensor:
    if not keepdim:
        for axis in sorted(a % max(len(shape), 1) for a in axes or range(len(shape))):
            dy = dy.unsqueeze(axis)
    return dy.expand(shape)


# Gradients that a rule calls are compared as such where they are simple, and through autograd in any case.
PEERS: dict[str, Callable[..., Any]] = {name: peer.general for name, peer in OPERATORS.items() if not peer.random}
PEERS |= {"softmax_grad": softmax_grad, "sum_grad": sum_grad}


TABLE = {name for name in tenon.ops() if not name.endswith("_grad")}  # before tests load plugins


def test_everything_has_a_peer() -> None:
    """What is new has to be there too, or else no benchmark would have it."""
    assert set(OPERATORS) == TABLE
    assert set(MODULES) == set(tn.nn.__all__)
    assert set(OPTIMISERS) == set(tn.optim.__all__)


def has_peer(case: Case) -> bool:
    return case.op.name in PEERS and torch.Size(case.sample["inputs"][0]["shape"]).numel() > 0


@pytest.mark.parametrize("T", ["f64", "f32"])
@pytest.mark.parametrize("case", every_sample(where=has_peer), ids=str)
def test_same_as_torch(case: Case, T: str) -> None:
    args = case.make(T)
    named = {r for s in case.op.rule.statements for r in s.results} if case.op.rule else set()
    for param, value in zip(case.op.params, args, strict=True):
        if param.name in named and isinstance(value, Tensor):
            value.requires_grad_()
    peers = clone(args)
    have, want = case.call(args), PEERS[case.op.name](*peers)
    if isinstance(have, tuple):  # of which the first has a gradient
        for one, other in zip(have[1:], want[1:], strict=True):
            assert_close(one, other, T)
        have, want = have[0], want[0]
    assert_close(have, want, "f32" if isinstance(have, Tensor) and have.dtype == torch.float32 else T)
    if named:
        gradient = torch.randn_like(have)
        have.backward(gradient)
        want.backward(gradient.to(want.dtype))
    for a, b in zip(tensors(args), tensors(peers), strict=True):
        bound = T if a.dtype == torch.float64 else "f32"
        assert_close(a.detach(), b.detach(), bound)  # what is updated in place
        assert (a.grad is None) == (b.grad is None)
        assert_close(a.grad, b.grad, bound)


def test_running_statistics_like_torch() -> None:
    x = here.randn(8, 3, 5, 5)
    mean, var = here.zeros(3), here.ones(3)
    peer_mean, peer_var = mean.clone(), var.clone()
    for layout in (torch.contiguous_format, torch.channels_last):
        have = tn.batch_norm(x.to(memory_format=layout), mean, var, training=True)
        want = F.batch_norm(x, peer_mean, peer_var, training=True)
        assert_close(have, want)
        assert have.is_contiguous(memory_format=layout)
        assert_close(mean, peer_mean)
        assert_close(var, peer_var)
