"""Kernels of one's own on a GPU:  python bench/own_kernel.py

How long it takes from the text of a kernel to its first result, what a call costs beside a built-in operator and
PyTorch, and how near to a copy the templates of `tenon new` come. Writes
bench/results/own-kernel-cuda-<machine>-<date>.json.
"""

from __future__ import annotations

import json
import random
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import tenon
import tenon.torch as tn
from run import environment, write_result

TEXTS, CALLS, TURNS = 7, 5000, 7
TEMPLATES = ("elementwise", "row", "tile", "reduction", "scan", "stencil")
TENON = Path(__file__).resolve().parent.parent / "build" / "tenon"

CUDA = """
__global__ void own(const T *x, float c, T *y, long long x_count) {{
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < x_count) y[i] = (T)((float)x[i] * c + {number});
}}
"""


def define() -> tenon.Kernel:
    """A kernel that nobody has compiled before."""
    number = random.randrange(10**9)
    cuda = CUDA.format(number=number)
    return tenon.kernel("own(x: T[*s], c: float) -> y: T[*s]", cuda=cuda, formula=f"x * c + {number}")


def first_results() -> list[float]:
    """Milliseconds from the text to its first result, of several texts."""
    x = torch.randn(1000, 77, device="cuda")
    took = []
    for _ in range(TEXTS):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        define()(x, 2.0)
        torch.cuda.synchronize()
        took.append(1e3 * (time.perf_counter() - begin))
    return took


def calls() -> dict[str, float]:
    """Microseconds of the CPU that a call takes, measured in turns."""
    kernel, x = define(), torch.randn(64, device="cuda")
    function = getattr(tn, kernel.name)
    sides: dict[str, Callable[[], Any]] = {
        "tn.own": lambda: function(x, 2.0),
        "the kernel itself": lambda: kernel(x, 2.0),
        "tn.scale": lambda: tn.scale(x, 2.0),
        "torch.mul": lambda: torch.mul(x, 2.0),
    }
    times: dict[str, list[float]] = {name: [] for name in sides}
    with torch.no_grad():
        for _ in range(TURNS):
            for name, call in sides.items():
                torch.cuda.synchronize()
                begin = time.perf_counter()
                for _ in range(CALLS):
                    call()
                times[name].append(1e6 * (time.perf_counter() - begin) / CALLS)
    return {name: statistics.median(all_times) for name, all_times in times.items()}


def templates() -> list[dict[str, Any]]:
    """What `tenon bench` says of each template."""
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for name in TEMPLATES:
            op = f"my_{name}"
            subprocess.run([TENON, "new", op, "--template", name], cwd=folder, check=True, stdout=subprocess.DEVNULL)
            subprocess.run([TENON, "build", op, "--arch", "none"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
            words = [TENON, "--load", f"{op}/{op}.tenon.so", "bench", op, "--device", "cuda", "--json", "--ms", "100"]
            said = subprocess.run([*words, "--dtype", "f32,f16,bf16"], cwd=folder, check=True, stdout=subprocess.PIPE)
            for row in json.loads(said.stdout)["results"]:
                keys = ("operator", "shape", "dtype", "percent_of_copy", "gb_per_s", "copy_gb_per_s")
                rows.append({**{key: row[key] for key in keys}, "microseconds": 1e6 * row["run"]["median_s"]})
                print(f"{op:16} {row['dtype']:5} {row['percent_of_copy']:6.1f}% of the copy")
    return rows


def main() -> None:
    torch.ones(1, device="cuda")
    took, cost = first_results(), calls()
    print(f"text to first result: {statistics.median(took):.1f} ms (at most {max(took):.1f})")
    for name, microseconds in cost.items():
        print(f"a call of {name}: {microseconds:.2f} us")
    result = {
        **environment(),
        "gpu": torch.cuda.get_device_name(),
        "method": f"medians of {TURNS} turns of {CALLS} calls; templates: tenon bench, calls in a graph beside a copy",
        "first_result_ms": took,
        "call_us": cost,
        "rows": templates(),
    }
    write_result("own-kernel-cuda", result)


if __name__ == "__main__":
    main()
