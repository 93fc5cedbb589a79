"""relu(x * scale + bias) as a layer with its gradient, trained on handwritten digits.

    pip install torch scikit-learn
    PYTHONPATH=python python examples/torch/fused_layer.py [--device cuda]

Replaces a fused kernel, a second one for its gradient, their C++ wrappers and an autograd Function. Here the line of
text is all there is: the gradient with respect to x, scale and bias is derived from it. The same model is trained with
PyTorch's three operators in a row, from the same weights on the same batches, and learns the same.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
from torch import Tensor, nn

import tenon.torch as tn
from digits import load

Fused = Callable[[Tensor, Tensor, Tensor], Tensor]
fused: Fused = tn.fuse("relu(x * scale + bias)")


def unfused(x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    return torch.relu(x * scale + bias)


class FusedOpLayer(nn.Module):
    """The formula with a learnt scale and bias. (tn.nn.ScaleBiasReLU is this, ready-made.)"""

    def __init__(self, features: int, op: Fused) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(features))
        self.bias = nn.Parameter(torch.zeros(features))
        self.op = op

    def forward(self, x: Tensor) -> Tensor:
        return self.op(x, self.scale, self.bias)


class CustomLayer(nn.Module):
    """A linear layer without a bias of its own, and the formula behind it."""

    def __init__(self, inputs: int, outputs: int, op: Fused) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs, bias=False)
        self.activation = FusedOpLayer(outputs, op)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.activation(self.linear(x))
        return y


def make(op: Fused, device: str) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(CustomLayer(64, 128, op), CustomLayer(128, 64, op), nn.Linear(64, 10)).to(device)


def train(model: nn.Module, images: Tensor, labels: Tensor, epochs: int) -> list[float]:
    """The mean loss of each epoch."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    shuffle = torch.Generator().manual_seed(1)
    losses = []
    for _ in range(epochs):
        total = 0.0
        for batch in torch.randperm(len(images), generator=shuffle).to(images.device).split(100):
            loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(batch)
        losses.append(total / len(images))
    return losses


def main(epochs: int = 6) -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--device", default="cpu")
    device = arguments.parse_args().device

    train_x, train_y, test_x, test_y = (t.flatten(1) if t.ndim > 1 else t for t in load(device))
    models = {"fused": make(fused, device), "unfused": make(unfused, device)}
    losses = {name: train(model, train_x, train_y, epochs) for name, model in models.items()}
    print(f"{'epoch':<7}{'fused':>9}{'unfused':>9}   loss on {len(train_x)} digits")
    for epoch, pair in enumerate(zip(losses["fused"], losses["unfused"], strict=True), 1):
        print(f"{epoch:<7}{pair[0]:>9.4f}{pair[1]:>9.4f}")

    with torch.no_grad():
        right = {name: (m(test_x).argmax(-1) == test_y).double().mean().item() for name, m in models.items()}
    for name, share in right.items():
        print(f"{name}: {share:.1%} of {len(test_x)} digits that it has not seen")
    assert right["fused"] > 0.9
    torch.testing.assert_close(torch.tensor(losses["fused"]), torch.tensor(losses["unfused"]), rtol=1e-2, atol=1e-3)


if __name__ == "__main__":
    main()
