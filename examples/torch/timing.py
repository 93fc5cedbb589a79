"""Times a fused formula beside PyTorch's operators one after the other, forward and with the gradient.

    pip install torch
    PYTHONPATH=python python examples/torch/timing.py [--device cuda]

Replaces the timing script beside every extension. Unfused, each operator reads and writes the whole tensor; fused, the
formula goes over memory once. `make bench` measures with more care.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

import tenon.torch as tn

Op = Callable[[Tensor, Tensor, Tensor], Tensor]

CASES: dict[str, Op] = {
    "relu(x * s + b)": lambda x, s, b: torch.relu(x * s + b),
    "silu(x * s) + b": lambda x, s, b: torch.nn.functional.silu(x * s) + b,
    "gelu(x + b) * s": lambda x, s, b: torch.nn.functional.gelu(x + b) * s,
}


def microseconds(call: Callable[[], object], device: torch.device) -> float:
    """The median of 9 runs of 3 calls each."""

    def wait() -> float:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter()

    runs = []
    for _ in range(9):
        begin = wait()
        for _ in range(3):
            call()
        runs.append((wait() - begin) / 3)
    return statistics.median(runs) * 1e6


def both_ways(op: Op, inputs: list[Tensor], dy: Tensor) -> list[Tensor]:
    """The result and the gradients of everything."""
    y = op(*inputs)
    return [y, *torch.autograd.grad(y, inputs, dy)]


def compare(formula: str, unfused: Op, inputs: list[Tensor], dy: Tensor) -> str:
    text = tn.fuse(formula)

    def fused(x: Tensor, s: Tensor, b: Tensor) -> Tensor:
        y: Tensor = text(x=x, s=s, b=b)
        return y

    for have, want in zip(both_ways(fused, inputs, dy), both_ways(unfused, inputs, dy), strict=True):
        torch.testing.assert_close(have, want, rtol=1e-3, atol=1e-3)
    for _ in range(3):  # on the CPU, what is used often is compiled meanwhile
        both_ways(fused, inputs, dy)
        time.sleep(0.2)
    with torch.no_grad():
        forward = [microseconds(lambda op=op: op(*inputs), inputs[0].device) for op in (fused, unfused)]
    training = [microseconds(lambda op=op: both_ways(op, inputs, dy), inputs[0].device) for op in (fused, unfused)]
    columns = [f"{mine:>9.0f}{theirs:>9.0f}{theirs / mine:>6.1f}x" for mine, theirs in (forward, training)]
    return f"{formula:<18}" + "  ".join(columns)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--device", default="cpu")
    device = arguments.parse_args().device

    torch.manual_seed(0)
    rows = 8192 if device.startswith("cuda") else 512
    inputs = [torch.randn(*shape, device=device, requires_grad=True) for shape in ((rows, 1024), (1024,), (1024,))]
    x, s, b = inputs
    # Where relu bends, the last bit of x * s + b decides between two gradients, and fusing may round it another way:
    # no gradient arrives there.
    dy = ((x * s + b).abs() > 1e-3).to(x.dtype)
    print(f"x: {rows} x 1024 f32 on {device}; µs, fused and unfused")
    print(f"{'':<18}{'forward':>24}  {'with the gradient':>24}")
    for formula, unfused in CASES.items():
        print(compare(formula, unfused, inputs, dy))
    print("results and gradients are the same")


if __name__ == "__main__":
    main()
