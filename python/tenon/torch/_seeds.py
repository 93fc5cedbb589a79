"""Seeds for what is random in modules, drawn from the generator of a device.

A kernel that draws two numbers costs as much as one that uses them. On a GPU a seed is where the generator stands
instead, which the host knows: seeds that are likely to come next lie in the GPU's memory, and one of them is taken. The
same state of the generator gives the same seed, as torch.utils.checkpoint needs it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import _C, Tensor

from tenon.torch._direct import available, take_numbers

_STEP = 4  # a generator counts in fours
_ROOM = 256  # seeds that lie in memory together
_WORTH = 4  # of them must have been asked for one by one before
_OURS = 0x9E3779B97F4A7C15  # torch's own numbers have the generator's seed itself as their key


@dataclass
class _Near:
    """Seeds next to each other, on one stream of a GPU."""

    key: int  # the first word of all of them
    first: int  # the second word of the first one
    asked: int = 0
    seeds: Tensor | None = None


_near: dict[tuple[int, int], _Near] = {}


def _is_plain() -> bool:
    """Nothing watches or replaces the call: no trace, no transform, no mode, no graph that is captured."""
    return not (
        torch.compiler.is_compiling()
        or _C._are_functorch_transforms_active()
        or _C._len_torch_dispatch_stack()
        or torch.cuda.is_current_stream_capturing()
    )


def draw(device: torch.device) -> Tensor:
    """A seed on the device; torch.manual_seed decides which ones follow."""
    if device.type != "cuda" or not available or not _is_plain():
        return torch.randint(2**63 - 1, (2,), device=device)
    index = device.index
    generator = torch.cuda.default_generators[index]
    number = take_numbers(generator, _STEP) // _STEP
    key = generator.initial_seed() * _OURS >> 1 & 2**63 - 1
    stream = _C._cuda_getCurrentRawStream(index)
    near = _near.get((index, stream))
    if near is None or near.key != key or not 0 <= number - near.first < _ROOM:
        near = _near[index, stream] = _Near(key, number)
    near.asked += 1
    if near.asked <= _WORTH:
        return torch.tensor([key, number], device="cpu").to(device, non_blocking=True)
    if near.seeds is None:
        near.seeds = _make(near, device)
    return near.seeds.select(0, number - near.first)


def _make(near: _Near, device: torch.device) -> Tensor:
    """All of them, one a row, for calls with gradients and without."""
    with torch.inference_mode(False):
        words = torch.full((_ROOM, 2), near.key, device="cpu")
        words[:, 1] = torch.arange(near.first, near.first + _ROOM, device="cpu")
        return words.to(device, non_blocking=True)
