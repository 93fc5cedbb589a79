"""Seeds for what is random in modules, drawn from the generator of a device.

A kernel that draws two numbers costs as much as one that uses them. On a GPU a seed is where the generator stands
instead, which the host knows: seeds that are likely to come next lie in the GPU's memory, and one of them is taken. The
same state of the generator gives the same seed, as torch.utils.checkpoint needs it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import _C, Tensor

from tenon.torch._direct import take

_STEP = 4  # a generator counts in fours
_ROOM, _GROUP = 1024, 16  # seeds that lie in memory together; those that become tensors of their own at a time
_WORTH = 4  # of them must have been asked for one by one before
_OURS = 0x9E3779B97F4A7C15  # torch's own numbers have the generator's seed itself as their key


@dataclass
class _Near:
    """Seeds next to each other, on one stream of a GPU: their words are a key and a number that counts up."""

    device: torch.device
    seed: int  # of the generator
    first: int  # number
    asked: int = 0
    made: list[Tensor | None] = field(default_factory=lambda: [None] * _ROOM)

    @cached_property
    def key(self) -> int:
        return self.seed * _OURS >> 1 & 2**63 - 1

    @cached_property
    def words(self) -> Tensor:
        """All of them, for calls with gradients and without."""
        with torch.inference_mode(False):
            words = torch.full((_ROOM, 2), self.key, device="cpu")
            words[:, 1] = torch.arange(self.first, self.first + _ROOM, device="cpu")
            return words.to(self.device, non_blocking=True)

    def take(self, number: int) -> Tensor:
        self.asked += 1
        if self.asked <= _WORTH:
            return torch.tensor([self.key, number], device="cpu").to(self.device, non_blocking=True)
        place = number - self.first
        begin = place - place % _GROUP
        made = self.words[begin : begin + _GROUP].unbind(0)
        self.made[begin : begin + _GROUP] = made
        return made[place - begin]


class _Source:
    """The generator of a GPU."""

    def __init__(self, index: int) -> None:
        generator = torch.cuda.default_generators[index]
        self.seed = generator.initial_seed
        # By stream; `take` sees the generator's seed, the first number, and those that are made.
        self.near: dict[int, tuple[int, int, list[Tensor | None], _Near]] = {}
        self.given = (generator.get_offset, generator.set_offset, generator.initial_seed, index, self.near)


_sources: dict[int, _Source] = {}


def draw(device: torch.device) -> Tensor:
    """A seed on the device; torch.manual_seed decides which ones follow."""
    if torch.compiler.is_compiling() or device.type != "cuda" or take is None:
        return _by_torch(device)
    index = device.index
    source = _sources.get(index)
    if source is None:
        source = _sources[index] = _Source(index)
    made = take(source.given, _STEP, False)
    if made.__class__ is Tensor:
        return made
    if made is None:
        # Transforms, modes and graphs that are captured see an operator of torch; nobody else notices anything.
        hidden = not _C._are_functorch_transforms_active() and not _C._len_torch_dispatch_stack()
        made = take(source.given, _STEP, True) if hidden and not _C._cuda_isCurrentStreamCapturing() else None
        if made is None:
            return _by_torch(device)
    return made if isinstance(made, Tensor) else _make(source, device, made)


def _by_torch(device: torch.device) -> Tensor:
    return torch.randint(2**63 - 1, (2,), device=device)


def _make(source: _Source, device: torch.device, number: int) -> Tensor:
    """A seed that does not lie ready; those that are likely to come next will."""
    seed = source.seed()
    stream: int = _C._cuda_getCurrentRawStream(device.index)
    found = source.near.get(stream)
    near = found[3] if found else None
    if near is None or near.seed != seed or not 0 <= number - near.first < _ROOM:
        near = _Near(device, seed, number)
        source.near[stream] = seed, number, near.made, near
    return near.take(number)
