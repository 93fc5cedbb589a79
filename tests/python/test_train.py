"""A classifier trained on real digits with Tenon's operators learns what it learns with PyTorch's."""

from __future__ import annotations

from collections.abc import Callable

import here
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import tenon.torch as tn

datasets = pytest.importorskip("sklearn.datasets")

Step = Callable[[list[Tensor], Tensor, Tensor], Tensor]


def digits() -> tuple[Tensor, Tensor]:
    data = datasets.load_digits()
    return here.tensor(data.images, dtype=torch.float32) / 16, here.tensor(data.target)


def parameters() -> list[Tensor]:
    torch.manual_seed(1)
    shapes = [(16, 1, 3, 3), (16,), (16,), (64, 16 * 16), (64,), (64,), (10, 64)]
    made = [here.randn(s) * (2 / max(torch.Size(s[1:]).numel(), 1)) ** 0.5 for s in shapes]
    for i in (1, 4):
        made[i] = here.ones(shapes[i])
    for i in (2, 5):
        made[i] = here.zeros(shapes[i])
    return [p.requires_grad_() for p in made]


def with_torch(p: list[Tensor], x: Tensor, target: Tensor, mean: Tensor, var: Tensor) -> Tensor:
    h = F.conv2d(x[:, None], p[0], stride=2, padding=1)
    h = torch.relu(F.batch_norm(h, mean, var, p[1], p[2], training=True))
    h = F.linear(h.flatten(1), p[3])
    h = h * torch.softmax(F.layer_norm(h, (64,), p[4], p[5]), -1)
    return F.cross_entropy(F.linear(h, p[6]), target, label_smoothing=0.05)


def with_tenon(p: list[Tensor], x: Tensor, target: Tensor, mean: Tensor, var: Tensor) -> Tensor:
    h = F.conv2d(x[:, None], p[0], stride=2, padding=1)
    h = tn.batch_norm(h, mean, var, p[1], p[2], training=True, act="relu")
    h = F.linear(h.flatten(1), p[3])
    h = h * tn.softmax(tn.layer_norm(h, weight=p[4], bias=p[5]))
    return tn.cross_entropy(F.linear(h, p[6]), target, label_smoothing=0.05)


def train(step: Callable[..., Tensor], epochs: int = 3) -> tuple[list[float], Tensor, Tensor]:
    images, targets = digits()
    p = parameters()
    mean, var = here.zeros(16), here.ones(16)
    optimizer = torch.optim.Adam(p, lr=3e-3)
    losses = []
    for _ in range(epochs):
        for batch in torch.split(here.arange(1536), 128):
            loss = step(p, images[batch], targets[batch], mean, var)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses, mean, var


def test_training_follows_the_same_curve() -> None:
    ours, mean, var = train(with_tenon)
    theirs, peer_mean, peer_var = train(with_torch)
    assert theirs[-1] < 0.6 * theirs[0]
    torch.testing.assert_close(here.tensor(ours), here.tensor(theirs), rtol=5e-3, atol=5e-3)
    torch.testing.assert_close(mean, peer_mean, rtol=1e-2, atol=1e-2)
    torch.testing.assert_close(var, peer_var, rtol=1e-2, atol=1e-2)


def test_training_compiled() -> None:
    torch._dynamo.reset()
    ours, _, _ = train(torch.compile(with_tenon, backend="aot_eager", fullgraph=True), epochs=1)
    theirs, _, _ = train(with_torch, epochs=1)
    torch.testing.assert_close(here.tensor(ours), here.tensor(theirs), rtol=5e-3, atol=5e-3)
