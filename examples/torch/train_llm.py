"""Trains a small Llama in four ways: as it is, compiled, with tn.patch, and both. Says how fast each is.

    pip install torch
    PYTHONPATH=python python examples/torch/train_llm.py [--device cuda --type bf16 --layers 8 --hidden 1024]

The model below is written with PyTorch alone, as people write them. tn.patch finds what Tenon has operators for. All
ways start from the same weights and see the same batches of a text that the example makes, so their losses are the same
but for rounding; train_llm.svg shows them. "kept" is the memory that a step keeps for its backward pass.
"""

from __future__ import annotations

import argparse
import copy
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import tenon.torch as tn

sys.path.append(str(Path(__file__).resolve().parents[1]))
from llm import LETTERS, draw, text


class RMSNorm(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(size)), 1e-6

    def forward(self, x: Tensor) -> Tensor:
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * y.to(x.dtype)


class Rotary(nn.Module):
    """The cosines and sines of positions, the same in both halves of a head."""

    inv_freq: Tensor

    def __init__(self, head: int) -> None:
        super().__init__()
        self.register_buffer("inv_freq", 1e4 ** (-torch.arange(0, head, 2) / head), persistent=False)

    def forward(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        angles = positions[..., None].float() * self.inv_freq.float()
        angles = torch.cat((angles, angles), -1)
        return angles.cos().to(x.dtype), angles.sin().to(x.dtype)


def rotate(x: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return torch.cat((-b, a), -1)


def rotary(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    return q * cos + rotate(q) * sin, k * cos + rotate(k) * sin


class Attention(nn.Module):
    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(size, 3 * size, bias=False), nn.Linear(size, size, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        q, k = rotary(q, k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        z: Tensor = self.out(y.transpose(1, 2).flatten(2))
        return z


class MLP(nn.Module):
    def __init__(self, size: int, hidden: int) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(size, hidden, bias=False), nn.Linear(size, hidden, bias=False)
        self.down = nn.Linear(hidden, size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.down(F.silu(self.gate(x)) * self.up(x))
        return y


class Block(nn.Module):
    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.before_attention, self.attention = RMSNorm(size), Attention(size, heads)
        self.before_mlp, self.mlp = RMSNorm(size), MLP(size, 8 * size // 3)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.attention(self.before_attention(x), cos, sin)
        y: Tensor = x + self.mlp(self.before_mlp(x))
        return y


class Llama(nn.Module):
    def __init__(self, layers: int, size: int, heads: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(len(LETTERS), size)
        self.rotary = Rotary(size // heads)
        self.blocks = nn.ModuleList(Block(size, heads) for _ in range(layers))
        self.norm, self.head = RMSNorm(size), nn.Linear(size, len(LETTERS), bias=False)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        x = self.embedding(tokens)
        cos, sin = self.rotary(x, torch.arange(tokens.shape[1], device=tokens.device)[None])
        for block in self.blocks:
            x = block(x, cos, sin)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())


@dataclass
class Result:
    losses: list[float]
    tokens_per_s: float
    kept: float  # MiB
    peak: float  # MiB, on a GPU


def kept_for_backward(model: nn.Module, batch: tuple[Tensor, Tensor]) -> float:
    """MiB that a forward pass keeps, without the weights."""
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}
    found: dict[int, Tensor] = {}

    def keep(tensor: Tensor) -> Tensor:
        found.setdefault(tensor.untyped_storage().data_ptr(), tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = model(*batch)
    sizes = [t.untyped_storage().nbytes() for at, t in found.items() if at not in own]
    del loss
    return sum(sizes) / 2**20


def train(model: nn.Module, batches: list[tuple[Tensor, Tensor]]) -> Result:
    on_gpu = batches[0][0].is_cuda
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, fused=True)
    kept = kept_for_backward(model, batches[0])  # and all is compiled

    def step(batch: tuple[Tensor, Tensor]) -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = model(*batch)
        loss.backward()
        optimizer.step()
        return loss.detach()

    losses = [step(batches[0])]
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    losses[0].item()
    begin = time.perf_counter()
    losses += [step(batch) for batch in batches[1:]]
    values = torch.stack(losses).tolist()
    seconds = time.perf_counter() - begin
    peak = torch.cuda.max_memory_allocated() / 2**20 if on_gpu else 0.0
    return Result(values, batches[0][0].numel() * (len(batches) - 1) / seconds, kept, peak)


def make_batches(options: argparse.Namespace) -> list[tuple[Tensor, Tensor]]:
    letters = torch.tensor(text())
    generator = torch.Generator().manual_seed(1)
    made = []
    for _ in range(options.steps):
        start = torch.randint(len(letters) - options.length - 1, (options.batch, 1), generator=generator)
        rows = letters[start + torch.arange(options.length + 1)].to(options.device)
        made.append((rows[:, :-1].contiguous(), rows[:, 1:].contiguous()))
    return made


def main() -> None:
    ways = {"eager": (), "compiled": ("compile",), "patched": ("patch",), "patched, compiled": ("patch", "compile")}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--type", choices=("f32", "bf16"), default="f32", help="of weights and activations")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--hidden", type=int, default=96, help="size of a token's vector")
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--batch", type=int, default=8, help="rows of a batch")
    parser.add_argument("--length", type=int, default=64, help="tokens of a row")
    parser.add_argument("--ways", nargs="+", choices=tuple(ways), default=list(ways))
    parser.add_argument("--picture", type=Path, default=Path("train_llm.svg"), help="where the losses are drawn")
    options = parser.parse_args()
    torch.manual_seed(0)
    first = Llama(options.layers, options.hidden, options.heads).to(options.device)
    first = first.to(torch.bfloat16) if options.type == "bf16" else first
    batches, results = make_batches(options), {}
    print(tn.patch(copy.deepcopy(first)), end="\n\n")
    print(f"{'':18} {'tokens/s':>9} {'kept MiB':>9} {'peak MiB':>9} {'loss':>7}")
    for name in options.ways:
        model = copy.deepcopy(first)
        if "patch" in ways[name]:
            tn.patch(model)
        if "compile" in ways[name]:
            torch.compiler.reset()
            for block in model.blocks:  # one by one: all have the same code, which is compiled once
                block.compile()
        made = results[name] = train(model, batches)
        peak = f"{made.peak:9.1f}" if made.peak else f"{'':9}"
        print(f"{name:18} {made.tokens_per_s:9.0f} {made.kept:9.2f} {peak} {made.losses[-1]:7.4f}")
    draw(options.picture, {name: made.losses for name, made in results.items()})
    print(f"\nlosses: {options.picture}")
    want = results[options.ways[0]].losses
    near = 2e-3 if options.type == "f32" else 0.1
    assert all(abs(a - b) < near for made in results.values() for a, b in zip(made.losses, want, strict=True))


if __name__ == "__main__":
    main()
