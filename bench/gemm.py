"""Products on the CPU against PyTorch's:  python bench/gemm.py [--threads 1,2] [--types f32,bf16] [--drawn N]

Listed shapes of linear(x: (m, k), w: (n, k)), and N drawn ones. Both sides take turns on the same random data, called
from Python; a side's time is its best turn, since what else the machine does can only make a call slower. Prints the
ratio of each row and the geometric mean, writes bench/results/gemm-cpu-<machine>-<date>.json.
"""

from __future__ import annotations

import argparse
import math
import random
import time
from collections.abc import Iterator
from typing import Any

import torch

import tenon.torch as tn
from run import TYPES, environment, write_result

# (m, n, k): square, tall and wide, few rows, layers of transformers, odd sizes.
LISTED = [
    (128, 128, 128),
    (256, 256, 256),
    (512, 512, 512),
    (1024, 1024, 1024),
    (64, 4096, 64),
    (1024, 64, 1024),
    (4096, 128, 256),
    (1, 1024, 1024),
    (1, 4096, 4096),
    (4, 4096, 4096),
    (8, 4096, 1024),
    (16, 4096, 4096),
    (64, 1024, 4096),
    (128, 3072, 768),
    (512, 768, 768),
    (512, 768, 3072),
    (512, 2304, 768),
    (100, 101, 99),
    (333, 517, 1000),
    (1000, 1001, 999),
]
SECONDS = 0.6  # of each row, both sides together
FEWEST = 7  # turns


def drawn(count: int, seed: int) -> Iterator[tuple[int, int, int]]:
    """Sizes whose logarithms are uniform, up to 2 GFLOP."""
    source = random.Random(seed)
    while count > 0:
        m, n, k = (round(2 ** source.uniform(0, 12)) for _ in range(3))
        if 1e5 <= 2 * m * n * k <= 2e9:
            count -= 1
            yield m, n, k


def measure(m: int, n: int, k: int, dtype: torch.dtype) -> tuple[float, float, int]:
    """The best turn of ours and of PyTorch's in seconds, and how many turns there were."""
    x, w = torch.randn(m, k).to(dtype), torch.randn(n, k).to(dtype)
    sides = (tn.linear, torch.nn.functional.linear)
    best, turns = [math.inf, math.inf], 0
    with torch.no_grad():
        for side in sides:
            side(x, w)
        end = time.perf_counter() + SECONDS
        while turns < FEWEST or time.perf_counter() < end:
            turns += 1
            for i, side in enumerate(sides):
                start = time.perf_counter()
                side(x, w)
                best[i] = min(best[i], time.perf_counter() - start)
    return best[0], best[1], turns


def run(threads: list[int], types: list[str], shapes: list[tuple[int, int, int]]) -> list[dict[str, Any]]:
    rows = []
    for count in threads:
        torch.set_num_threads(count)
        for name in types:
            ratios = []
            for m, n, k in shapes:
                ours, theirs, turns = measure(m, n, k, TYPES[name])
                ratios.append(theirs / ours)
                row = {"m": m, "n": n, "k": k, "type": name, "threads": count, "turns": turns}
                rows.append({**row, "tenon_us": round(ours * 1e6, 1), "torch_us": round(theirs * 1e6, 1)})
                gflops = 2e-9 * m * n * k / ours
                print(
                    f"  {m:>5} x {n:>5} x {k:>5}  {name:<4} {count}  {gflops:8.1f} GFLOP/s  {ratios[-1]:5.2f}x",
                    flush=True,
                )
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            print(f"  {name}, {count} threads: geometric mean {mean:.2f}x, least {min(ratios):.2f}x\n", flush=True)
    return rows


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--threads", default="1,2", help="numbers of threads")
    arguments.add_argument("--types", default="f32,bf16")
    arguments.add_argument("--drawn", type=int, default=0, help="drawn shapes, behind the listed ones")
    arguments.add_argument("--seed", type=int, default=0)
    given = arguments.parse_args()
    shapes = LISTED + list(drawn(given.drawn, given.seed))
    rows = run([int(t) for t in given.threads.split(",")], given.types.split(","), shapes)
    method = "the best turn of each side, taking turns on the same data"
    write_result("gemm-cpu", {**environment(), "method": method, "rows": rows})


if __name__ == "__main__":
    main()
