"""Trains a small classifier on real handwritten digits twice: with Tenon's operators and with PyTorch's own.

    pip install torch scikit-learn
    PYTHONPATH=python python examples/torch/digits.py [--device cuda]

Both models start from the same weights and see the same batches. layer_norm, batch_norm (with its relu fused) and
cross_entropy come from `ops`; everything else is PyTorch. The data is the UCI digits set that scikit-learn ships:
1,797 images of 8 x 8.
"""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import tenon.torch as tn


@dataclass(frozen=True)
class Ops:
    """Where a model takes its operators from."""

    name: str
    layer_norm: Callable[[Tensor, Tensor, Tensor], Tensor]
    batch_norm_relu: Callable[[Tensor, nn.BatchNorm2d], Tensor]
    cross_entropy: Callable[[Tensor, Tensor], Tensor]
    softmax: Callable[[Tensor], Tensor]


def tenon_batch_norm(x: Tensor, norm: nn.BatchNorm2d) -> Tensor:
    return tn.batch_norm(
        x,
        norm.running_mean,
        norm.running_var,
        norm.weight,
        norm.bias,
        training=True,
        momentum=norm.momentum,
        eps=norm.eps,
        act="relu",
    )


TENON = Ops(
    "tenon",
    lambda x, weight, bias: tn.layer_norm(x, weight.shape, weight, bias),
    tenon_batch_norm,
    tn.cross_entropy,
    tn.softmax,
)
TORCH = Ops(
    "torch",
    lambda x, gamma, beta: F.layer_norm(x, gamma.shape, gamma, beta),
    lambda x, norm: F.relu(norm(x)),
    F.cross_entropy,
    lambda x: torch.softmax(x, -1),
)


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.norm1 = nn.BatchNorm2d(16)
        self.conv2 = nn.Conv2d(16, 32, 3, stride=2, padding=1)
        self.norm2 = nn.BatchNorm2d(32)
        self.hidden = nn.Linear(32 * 16, 64)
        self.norm3 = nn.LayerNorm(64)
        self.out = nn.Linear(64, 10)
        self.ops = TORCH

    def normalise(self, x: Tensor, norm: nn.BatchNorm2d) -> Tensor:
        # After training both models use PyTorch's formula, with the statistics that their own operator kept.
        return self.ops.batch_norm_relu(x, norm) if self.training else F.relu(norm(x))

    def forward(self, x: Tensor) -> Tensor:
        x = self.normalise(self.conv1(x), self.norm1)
        x = self.normalise(self.conv2(x), self.norm2)
        x = self.ops.layer_norm(self.hidden(x.flatten(1)), self.norm3.weight, self.norm3.bias)
        return self.out(F.relu(x))


def load(device: str = "cpu") -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Images (n, 1, 8, 8) from 0 to 1 and labels (n): for training, then for testing."""
    from sklearn.datasets import load_digits

    data = load_digits()
    order = torch.randperm(len(data.images), generator=torch.Generator().manual_seed(0))
    images = (torch.tensor(data.images, dtype=torch.float32).unsqueeze(1)[order] / 16).to(device)
    labels = torch.tensor(data.target)[order].to(device)
    return images[:1400], labels[:1400], images[1400:], labels[1400:]


def train(model: Classifier, images: Tensor, labels: Tensor, epochs: int) -> tuple[list[float], float]:
    """The mean loss of each epoch, and the seconds that all took."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    shuffle = torch.Generator().manual_seed(1)
    losses = []
    begin = time.perf_counter()
    model.train()
    for _ in range(epochs):
        total = 0.0
        for batch in torch.randperm(len(images), generator=shuffle).to(images.device).split(100):
            loss = model.ops.cross_entropy(model(images[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(batch)
        losses.append(total / len(images))
    return losses, time.perf_counter() - begin


@torch.no_grad()
def test(model: Classifier, images: Tensor, labels: Tensor) -> tuple[float, float]:
    """The share that is right, and how sure the model is on average."""
    model.eval()
    probability = model.ops.softmax(model(images))
    sure, guess = probability.max(-1)
    return (guess == labels).double().mean().item(), sure.mean().item()


def main(device: str = "cpu", epochs: int = 8) -> int:
    try:
        train_images, train_labels, test_images, test_labels = load(device)
    except ImportError:
        print("The digits come with scikit-learn, which this Python does not have: no model is trained.")
        return 0
    torch.manual_seed(0)
    first = Classifier().to(device)
    second = copy.deepcopy(first)
    first.ops, second.ops = TENON, TORCH
    results = [(model, *train(model, train_images, train_labels, epochs)) for model in (first, second)]

    print(f"{len(train_images)} digits to learn from, {len(test_images)} to test with; the loss after each pass:")
    print(f"  {'epoch':<7}{'tenon':>9}{'torch':>9}")
    for epoch, (ours, theirs) in enumerate(zip(results[0][1], results[1][1], strict=True), 1):
        print(f"  {epoch:<7}{ours:>9.4f}{theirs:>9.4f}")
    for model, _, seconds in results:
        right, sure = test(model, test_images, test_labels)
        print(f"  {model.ops.name}: {right:.1%} of the test digits right, {sure:.1%} sure on average, {seconds:.1f} s")
        assert right > 0.95
    return 0


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--device", default="cpu")
    raise SystemExit(main(arguments.parse_args().device))
