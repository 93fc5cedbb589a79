"""Where a training step spends its time and what holds its memory, for bench/llama_step.py --profile."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

Row = dict[str, Any]
MODULE_CALL = nn.Module._call_impl.__code__


def kernels(step: Callable[[], object], steps: int = 3) -> list[Row]:
    """What runs on the GPU in a step, by name: how long, how often, and which part of all of it."""
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        for _ in range(steps):
            step()
        torch.cuda.synchronize()
    found = [e for e in profile.key_averages() if e.self_device_time_total]
    whole = sum(e.self_device_time_total for e in found)
    rows = [
        {
            "kernel": e.key,
            "times": e.count / steps,
            "ms": round(e.self_device_time_total / steps / 1e3, 3),
            "percent": round(100 * e.self_device_time_total / whole, 2),
        }
        for e in found
    ]
    return sorted(rows, key=lambda row: -row["ms"])


def kept(model: nn.Module, forward: Callable[[], object]) -> list[Row]:
    """What a forward pass keeps for the backward pass, by the innermost module that is called then. Layers of the same
    place count together, and memory counts where it is kept first; that of parameters does not count."""
    names = {id(module): re.sub(r"\b\d+\b", "*", name) or "the model" for name, module in model.named_modules()}
    seen = {p.untyped_storage().data_ptr() for p in model.parameters()}
    alive: list[Tensor] = []  # so that no address is taken twice
    sizes, times = Counter[tuple[str, str]](), Counter[tuple[str, str]]()

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in seen:
            seen.add(storage.data_ptr())
            alive.append(tensor)
            what = f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
            sizes[_caller(names), what] += storage.nbytes()
            times[_caller(names), what] += 1
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        forward()
    alive.clear()  # the hooks live on with the graph, which waits for the garbage collector
    return [
        {"where": where, "what": what, "times": times[where, what], "mib": round(size / 2**20, 3)}
        for (where, what), size in sizes.most_common()
    ]


def _caller(names: dict[int, str]) -> str:
    """The innermost module of a model whose call is under way."""
    frame: Any = sys._getframe(2)
    while frame is not None:
        if frame.f_code is MODULE_CALL:
            name = names.get(id(frame.f_locals["self"]))
            if name is not None:
                return name
        frame = frame.f_back
    return "outside of the model"


def held(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[Row]:
    """What is in memory between two steps."""
    states = [t for state in optimizer.state.values() for t in state.values() if isinstance(t, Tensor)]
    parts = {"parameters": list(model.parameters()), "states of the optimizer": states}
    return [
        {"where": where, "what": f"{len(tensors)} tensors", "times": 1, "mib": round(_bytes(tensors) / 2**20, 3)}
        for where, tensors in parts.items()
    ]


def _bytes(tensors: list[Tensor]) -> int:
    return sum({t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}.values())


def show(rows: list[Row], most: int = 40) -> None:
    for row in rows[:most]:
        cells = (f"{cell:>10.2f}" if isinstance(cell, float) else f"{cell!s:<44.44}" for cell in row.values())
        print("    " + "  ".join(cells))
