"""Speed of the operators against PyTorch's own, in the same run:  python bench/run.py [--op NAME] [--quick]

Each row times both calls through the Python API, taking turns, on the same random data; forward without gradients, and
forward with backward by autograd, but for the smallest shapes: there autograd is what takes the time, and
bench/operators.py says how much it is. A turn is as many calls as fill some milliseconds; a side's time is the median
over its turns, and the best of the medians of a few rounds. Memory that is freed stays with the process. Prints a
table, writes bench/results/cpu-<machine>-<date>.json.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

import tenon
from peers import OPERATORS, leaves, make

RESULTS = Path(__file__).resolve().parent / "results"
TYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16, "f64": torch.float64}
ROWS: list[tuple[int, ...]] = [(16, 1024), (256, 1024), (4096, 1024), (16384, 1024), (128, 32768)]
# The operators with kernels of their own; from cache to memory.
SHAPES: dict[str, list[tuple[int, ...]]] = {
    "softmax": ROWS,
    "layer_norm": [(16, 768), (256, 1024), (4096, 1024), (16384, 1024), (2048, 4096)],
    "cross_entropy": [(16, 1000), (256, 1000), (4096, 1000), (512, 32000)],
    "sum": ROWS[:4],
    "batch_norm": [(8, 16, 8, 8), (16, 64, 16, 16), (32, 64, 56, 56), (32, 256, 28, 28)],
}
# f32 and bf16 on every shape, the others on one in the cache and one in memory.
FEW = {"f16", "f64"}
TURN_S = 0.004
TURNS = 7
ROUNDS = 3
# A row that comes out slower than SLOW is measured again, up to AGAIN times, and the best of each side counts: what
# else the machine does can only make a call slower.
SLOW, AGAIN = 0.95, 3


def cpu_name() -> str:
    """What /proc/cpuinfo or lscpu calls the processor."""
    lscpu = shutil.which("lscpu")
    if lscpu:
        for line in subprocess.run([lscpu], capture_output=True, text=True).stdout.splitlines():
            if line.startswith("Model name:"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


CLOCKS = {"wall": time.perf_counter, "cpu": time.thread_time}  # cpu: of this thread, where others use the machine
clock = "wall"


def seconds(call: Callable[[], object], times: int) -> float:
    now = CLOCKS[clock]
    begin = now()
    for _ in range(times):
        call()
    return (now() - begin) / times


def compare(ours: Callable[[], object], theirs: Callable[[], object]) -> tuple[float, float]:
    """Seconds of one call of each, taking turns."""
    ours(), theirs()
    times = [max(1, min(1000, math.ceil(TURN_S / max(seconds(f, 1), 1e-7)))) for f in (ours, theirs)]
    medians: list[tuple[float, float]] = []
    for _ in range(ROUNDS):
        a, b = [], []
        for _ in range(TURNS):
            a.append(seconds(ours, times[0]))
            b.append(seconds(theirs, times[1]))
        medians.append((statistics.median(a), statistics.median(b)))
    return min(m[0] for m in medians), min(m[1] for m in medians)


def compare_again(ours: Callable[[], object], theirs: Callable[[], object]) -> tuple[float, float]:
    a, b = compare(ours, theirs)
    for _ in range(AGAIN):
        if b / a >= SLOW:
            break
        c, d = compare(ours, theirs)
        a, b = min(a, c), min(b, d)
    return a, b


def gradients(call: Callable[[], torch.Tensor], wanted: Sequence[torch.Tensor], dy: torch.Tensor) -> None:
    """One forward and backward pass, gradients in .grad as a training step leaves them."""
    for leaf in wanted:
        leaf.grad = None
    call().backward(dy)


def measure(op: str, shape: tuple[int, ...], dtype: str, backward: bool) -> tuple[float, float]:
    torch.manual_seed(0)
    peer = OPERATORS[op]
    given = make(peer.inputs, shape, TYPES[dtype])
    ours, theirs = peer.ours(op, given), peer.theirs(given)
    if not backward:
        with torch.no_grad():
            return compare_again(ours, theirs)
    wanted = [leaf.requires_grad_() for leaf in leaves(peer.inputs, given)]
    dy = torch.randn_like(theirs())
    if dy.ndim == 0:
        dy = torch.ones_like(dy)
    return compare_again(partial(gradients, ours, wanted, dy), partial(gradients, theirs, wanted, dy))


def cases(only: str | None, quick: bool) -> Iterable[tuple[str, tuple[int, ...], str, bool, int]]:
    counts = sorted({1, min(2, os.cpu_count() or 1)})
    for op, all_shapes in SHAPES.items():
        if only and op != only:
            continue
        for dtype in ["f32"] if quick else TYPES:
            shapes = [all_shapes[1], all_shapes[-1]] if quick or dtype in FEW else all_shapes
            for shape in shapes:
                for backward in (False,) if shape == all_shapes[0] else (False, True):
                    for threads in counts:
                        yield op, shape, dtype, backward, threads


def mean_ratio(rows: Iterable[dict[str, Any]]) -> float:
    return statistics.geometric_mean(row["ratio"] for row in rows)


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    by_op = {op: [r for r in rows if r["op"] == op] for op in dict.fromkeys(r["op"] for r in rows)}
    return {
        "geometric_mean": round(mean_ratio(rows), 3),
        "slowest": round(min(r["ratio"] for r in rows), 3),
        "rows_slower_than_0.95": sum(r["ratio"] < 0.95 for r in rows),
        "operators": {
            op: {"geometric_mean": round(mean_ratio(of), 3), "slowest": round(min(r["ratio"] for r in of), 3)}
            for op, of in by_op.items()
        },
    }


def environment() -> dict[str, Any]:
    return {
        "command": " ".join(["PYTHONPATH=python python", os.path.relpath(sys.argv[0]), *sys.argv[1:]]),
        "date": datetime.date.today().isoformat(),
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "system": " ".join([platform.system(), *platform.libc_ver()]),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "tenon": tenon.__version__,
        "method": f"best of {ROUNDS} medians of {TURNS} turns of {TURN_S * 1e3:g} ms each, the sides taking turns",
    }


def write_result(name: str, report: dict[str, Any]) -> None:
    """Keeps a report in bench/results, a line for each of its rows."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}-{platform.machine()}-{report['date']}.json"
    text = json.dumps({k: v for k, v in report.items() if k != "rows"}, indent=1)[:-2]
    lines = ",\n".join("  " + json.dumps(row) for row in report["rows"])
    path.write_text(f'{text},\n "rows": [\n{lines}\n ]\n}}\n')
    print(f"\nwritten: {os.path.relpath(path)}")


def run(only: str | None, quick: bool) -> list[dict[str, Any]]:
    rows = []
    print(f"  {'operator':<14} {'shape':<18} {'type':<5} {'pass':<9} threads    tenon µs    torch µs  ratio")
    for op, shape, dtype, backward, threads in cases(only, quick):
        torch.set_num_threads(threads)
        ours, theirs = measure(op, shape, dtype, backward)
        row = {
            "op": op,
            "shape": list(shape),
            "type": dtype,
            "pass": "fwd+bwd" if backward else "forward",
            "threads": threads,
            "tenon_us": round(ours * 1e6, 2),
            "torch_us": round(theirs * 1e6, 2),
            "ratio": round(theirs / ours, 3),
        }
        rows.append(row)
        size = " x ".join(map(str, shape))
        print(
            f"  {row['op']:<14} {size:<18} {dtype:<5} {row['pass']:<9} {threads:>7} "
            f"{row['tenon_us']:>11.1f} {row['torch_us']:>11.1f} {row['ratio']:>6.2f}",
            flush=True,
        )
    return rows


# Freed memory stays with the process: else one side may get fresh pages and wait for them, the other one old ones.
KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(1 << 40)}


def keep_memory() -> None:
    """Starts anew with the settings above, which the C library reads once."""
    if any(os.environ.get(name) != value for name, value in KEEP_MEMORY.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **KEEP_MEMORY})


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--op", help="only this operator", choices=list(SHAPES))
    arguments.add_argument("--quick", action="store_true", help="f32 and two shapes only; writes no file")
    given = arguments.parse_args()
    keep_memory()
    rows = run(given.op, given.quick)
    short = summary(rows)
    print(f"\n  {'operator':<14} {'geometric mean':>14} {'slowest row':>12}   (times as fast as PyTorch)")
    for op, of in [*short["operators"].items(), ("all", short)]:
        print(f"  {op:<14} {of['geometric_mean']:>14.2f} {of['slowest']:>12.2f}")
    if not given.quick and not given.op:
        write_result("cpu", {**environment(), "summary": short, "rows": rows})
        print("`python bench/report.py --write` puts it into README.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
