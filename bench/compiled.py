"""Formulas under torch.compile:  python bench/compiled.py [--device cuda|cpu] [--quick]

Each formula as the operator that it is (opaque), and as operations of torch that Inductor fuses with what stands before
and behind it (decomposed): alone, between two other operations, behind a product of matrices. Forward, and forward with
backward; on the CPU with 1 and 2 threads. Both sides are compiled by Inductor and run on the same random data, taking
turns. docs/formulas.md has the rule that follows. Writes bench/results/compiled-<device>-<machine>-<date>.json.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import types
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor

import gpu
import tenon.torch as tn
from formulas import RMS_NORM, SOFTMAX, Sides, warm
from run import TYPES, environment, keep_memory, seconds, write_result
from tenon.torch import _decompose

GATE = "silu(x) * y"
SHAPE = (4096, 4096)
INNER = 256  # of the product of matrices
TURNS = 7

Function = Callable[..., Tensor]
gate, softmax, rms = tn.fuse(GATE), tn.fuse(SOFTMAX), tn.fuse(RMS_NORM)

# What is compiled, and its inputs: x, row, or the two factors a and b.
CASES: list[tuple[str, str, Function, str]] = [
    ("gate", "alone", lambda x, y: gate(x, y), "x x"),
    ("gate", "between", lambda x, y: gate(x + 1, y) * 2, "x x"),
    ("gate", "behind a product", lambda a, b, y: gate(a @ b, y), "a b x"),
    ("softmax", "alone", lambda x: softmax(x), "x"),
    ("softmax", "between", lambda x: softmax(x + 1) * 2, "x"),
    ("rms_norm", "alone", lambda x, g: rms(x, g), "x row"),
    ("rms_norm", "between", lambda x, g: rms(x + 1, g) * 2, "x row"),
    ("rms_norm", "behind a product", lambda a, b, g: rms(a @ b, g), "a b row"),
]


def tensors(kinds: str, dtype: str, device: str, grad: bool) -> list[Tensor]:
    rows, columns = SHAPE
    shapes = {"x": SHAPE, "row": (columns,), "a": (rows, INNER), "b": (INNER, columns)}
    made = [torch.randn(shapes[k], dtype=TYPES[dtype], device=device) for k in kinds.split()]
    return [t.requires_grad_(grad) for t in made]


def compile_as(decomposed: bool, function: Function) -> Function:
    """The function compiled one way; code of its own keeps what dynamo remembers apart."""
    code = function.__code__.replace(co_name="decomposed" if decomposed else "opaque")
    own = types.FunctionType(code, function.__globals__)
    compiled: Function = torch.compile(own, dynamic=False, fullgraph=True)

    def run(*given: Tensor) -> Tensor:
        _decompose.is_worth_it = lambda inputs: decomposed
        return compiled(*given)

    return run


def step(call: Function, given: list[Tensor], dy: Tensor | None) -> None:
    for t in given:
        t.grad = None
    made = call(*given)
    if dy is not None:
        torch.autograd.backward(made, dy)


def rows_of(device: str, quick: bool) -> Iterable[dict[str, Any]]:
    chosen = _decompose.is_worth_it
    most = min(2, os.cpu_count() or 1)
    for name, place, function, kinds in CASES:
        for dtype in ("f32", "bf16"):
            for backward in (False, True):
                for threads in sorted({1, most}) if device == "cpu" else [most]:
                    torch._dynamo.reset()
                    torch.set_num_threads(threads)
                    given = tensors(kinds, dtype, device, backward)
                    dy = torch.randn(SHAPE, dtype=TYPES[dtype], device=device) if backward else None
                    sides: Sides = {
                        side: partial(step, compile_as(side == "decomposed", function), given, dy)
                        for side in ("opaque", "decomposed")
                    }
                    us = measure(sides, device, quick)
                    row: dict[str, Any] = {"op": name, "place": place, "shape": list(SHAPE), "type": dtype}
                    row |= {"pass": "fwd+bwd" if backward else "forward", "threads": threads}
                    row |= {f"{side}_us": round(t, 2) for side, t in us.items()}
                    yield row | {"ratio": round(us["opaque"] / us["decomposed"], 3)}
    _decompose.is_worth_it = chosen


def measure(sides: Sides, device: str, quick: bool) -> dict[str, float]:
    if device == "cuda":
        return gpu.step_us(sides)
    warm(sides["opaque"])  # the host's compiler has work to do for this one alone
    sides["decomposed"]()
    times: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(1 if quick else TURNS):
        for name, call in sides.items():
            times[name].append(seconds(call, 1))
    return {name: 1e6 * statistics.median(of) for name, of in times.items()}


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="cpu (default) or cuda")
    arguments.add_argument("--quick", action="store_true", help="one turn; writes no file")
    given = arguments.parse_args()
    if given.device == "cuda" and not torch.cuda.is_available():
        print("bench/compiled.py: there is no GPU that torch can use; --device cpu measures the CPU", file=sys.stderr)
        return 1
    # What an earlier run left on disk was compiled for one of the sides, and does not say for which.
    torch.compiler.config.force_disable_caches = True
    if given.device == "cpu":
        keep_memory()
    torch.manual_seed(0)
    state = {"gpu": torch.cuda.get_device_name(), "state_before": gpu.gpu_state()} if given.device == "cuda" else {}
    print(f"  {'formula':<10} {'where':<17} type  pass     threads   opaque µs  decomposed µs  times opaque")
    rows = []
    for row in rows_of(given.device, given.quick):
        rows.append(row)
        times = f"{row['opaque_us']:>11.1f} {row['decomposed_us']:>14.1f} {row['ratio']:>13.2f}"
        what = f"{row['op']:<10} {row['place']:<17} {row['type']:<5} {row['pass']:<8} {row['threads']:>7}"
        print(f"  {what} {times}", flush=True)
    if given.quick:
        return 0
    method = f"median of {TURNS} turns"
    if given.device == "cuda":
        method = f"median of {gpu.TURNS} turns of 5 steps, by events"
        state["state_after"] = gpu.gpu_state()
    write_result(f"compiled-{given.device}", {**environment(), **state, "method": method, "rows": rows})
    return 0


if __name__ == "__main__":
    sys.exit(main())
