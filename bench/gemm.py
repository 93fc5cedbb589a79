"""Products against PyTorch's:  python bench/gemm.py [--device cuda] [--threads 1,2] [--types f32,bf16] [--drawn N]
                              python bench/gemm.py --device cuda --grouped
                              python bench/gemm.py --device cuda --scaled

Listed shapes of linear(x: (m, k), w: (n, k)), and N drawn ones. Both sides take turns on the same random data. On the
CPU they are called from Python, and a side's time is its best turn, since what else the machine does can only make a
call slower. On a GPU they are replayed graphs, as in bench/gpu.py; TENON_CUBLASLT=none measures Tenon's own kernels.
Prints ratios and their geometric mean, writes bench/results/gemm-<device>-<machine>-<date>.json. --grouped: products of
uneven experts, forward and both gradients, beside F.grouped_mm and beside one product of as much work, in
grouped-cuda-….json. --scaled: products of 8-bit numbers with bf16 results, beside torch._scaled_mm, torch._int_mm
(which scales nothing) and the same product in bf16, in scaled-cuda-….json.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import time
from collections.abc import Iterator
from typing import Any

import torch

import tenon.torch as tn
from gpu import Call, device_us
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
# For GPUs: square, tall, wide, 1 to 64 rows, layers of transformers, odd sizes.
LISTED_CUDA = [
    *((s, s, s) for s in (512, 1024, 2048, 4096, 8192)),
    *((16384, 1024, 1024), (65536, 512, 512), (32768, 256, 2048), (1024, 16384, 1024), (512, 65536, 512)),
    *((m, 4096, 4096) for m in (1, 2, 4, 8, 16, 32, 64)),
    *((1, 14336, 4096), (8, 14336, 4096), (16, 4096, 14336), (64, 14336, 4096), (32, 128256, 2048)),
    *((8192, 2048, 2048), (8192, 8192, 2048), (8192, 2048, 8192), (8192, 6144, 2048), (4096, 14336, 4096)),
    *((4096, 4096, 14336), (2048, 6144, 4096), (512, 4096, 4096), (256, 4096, 11008), (8192, 768, 3072)),
    *((4096, 32000, 2048), (128, 4096, 4096)),
    *((5000, 3001, 2047), (1000, 1000, 1000), (999, 1001, 1003), (4095, 4097, 4096), (8192, 50257, 768)),
    *((2049, 2050, 2051), (777, 10007, 1234), (3000, 5003, 640)),
]
# Rows, n, k, experts: of Qwen3 30B A3B, DeepSeek V2 Lite, Mixtral and a decoder's step.
LISTED_GROUPED = [
    *((32768, 1536, 2048, 128), (32768, 2048, 768, 128), (24576, 2816, 2048, 64), (65536, 2048, 2048, 64)),
    *((8192, 2048, 2048, 64), (8192, 14336, 4096, 8), (512, 2816, 2048, 64)),
]
LISTED_SCALED = [
    *((s, s, s) for s in (1024, 2048, 4096, 8192)),
    *((8192, 2048, 8192), (4096, 14336, 4096), (2048, 6144, 4096), (512, 4096, 4096), (32, 4096, 4096)),
]
LEAST_FLOPS = 1e9  # of products by which kernels are compared
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


def measure_cuda(m: int, n: int, k: int, dtype: torch.dtype) -> tuple[float, float, int]:
    """The same of medians on the device."""
    x, w = torch.randn(m, k, device="cuda").to(dtype), torch.randn(n, k, device="cuda").to(dtype)
    with torch.no_grad():
        us = device_us({"tenon": lambda: tn.linear(x, w), "torch": lambda: torch.nn.functional.linear(x, w)}, FEWEST)
    return us["tenon"] / 1e6, us["torch"] / 1e6, FEWEST


def run_cuda(types: list[str], shapes: list[tuple[int, int, int]]) -> list[dict[str, Any]]:
    rows = []
    for name in types:
        ratios: dict[bool, list[float]] = {True: [], False: []}
        for m, n, k in shapes:
            ours, theirs, turns = measure_cuda(m, n, k, TYPES[name])
            ratios[2 * m * n * k > LEAST_FLOPS].append(theirs / ours)
            row = {"m": m, "n": n, "k": k, "type": name, "turns": turns}
            rows.append({**row, "tenon_us": round(ours * 1e6, 2), "torch_us": round(theirs * 1e6, 2)})
            tflops, gbs = 2e-12 * m * n * k / ours, TYPES[name].itemsize * 1e-9 * (m * k + n * k + m * n) / ours
            print(
                f"  {m:>5} x {n:>6} x {k:>5}  {name:<4} {ours * 1e6:9.1f} us  {tflops:6.1f} TFLOP/s  {gbs:6.0f} GB/s"
                f"  {theirs / ours:5.2f}x",
                flush=True,
            )
        for what, some in (("all", ratios[True] + ratios[False]), ("above 1 GFLOP", ratios[True])):
            mean = math.exp(sum(map(math.log, some)) / len(some))
            print(f"  {name}, {what}: geometric mean {mean:.3f}x, least {min(some):.2f}x", flush=True)
    return rows


def uneven(rows: int, experts: int, seed: int = 0) -> torch.Tensor:
    """Offsets of groups, the largest of which have some times as many rows as the average."""
    source = random.Random(seed)
    weights = [source.expovariate(1.0) for _ in range(experts)]
    ends = [round(rows * sum(weights[: i + 1]) / sum(weights)) for i in range(experts)]
    return torch.tensor([0, *ends], dtype=torch.int32, device="cuda")


def grouped_ways(t: int, n: int, k: int, offsets: torch.Tensor, dtype: torch.dtype) -> dict[str, dict[str, Call]]:
    """The product and both gradients: by Tenon, by PyTorch, and as one product of all rows."""
    experts, ends = offsets.numel() - 1, offsets[1:].contiguous()
    x, dy = torch.randn(t, k, device="cuda").to(dtype), torch.randn(t, n, device="cuda").to(dtype)
    w = torch.randn(experts, n, k, device="cuda").to(dtype)
    ours, theirs, one = torch.ops.tenon, torch.nn.functional.grouped_mm, w[0].contiguous()
    return {
        "forward": {
            "tenon": lambda: ours.grouped_linear(x, w, offsets),
            "torch": lambda: theirs(x, w.mT, offs=ends),
            "one": lambda: torch.nn.functional.linear(x, one),
        },
        "of x": {
            "tenon": lambda: ours.grouped_linear_x_grad(w, offsets, dy),
            "torch": lambda: theirs(dy, w, offs=ends),
            "one": lambda: dy @ one,
        },
        "of w": {
            "tenon": lambda: ours.grouped_linear_w_grad(x, offsets, dy),
            "torch": lambda: theirs(dy.mT, x, offs=ends),
            "one": lambda: dy.mT @ x,
        },
    }


def run_grouped(dtype: torch.dtype = torch.bfloat16) -> list[dict[str, Any]]:
    rows = []
    for t, n, k, experts in LISTED_GROUPED:
        offsets = uneven(t, experts)
        for way, sides in grouped_ways(t, n, k, offsets, dtype).items():
            us = device_us(sides, FEWEST)
            row = {"rows": t, "n": n, "k": k, "experts": experts, "way": way, "largest": int(offsets.diff().max())}
            rows.append({**row, **{f"{side}_us": round(us[side], 2) for side in us}})
            print(
                f"  {t:>5} x {n:>5} x {k:>5}, {experts:>3} experts  {way:<7} {us['tenon']:8.1f} us"
                f"  {2e-6 * t * n * k / us['tenon']:6.1f} TFLOP/s  {us['torch'] / us['tenon']:5.2f}x grouped_mm"
                f"  {us['one'] / us['tenon']:5.2f}x one product",
                flush=True,
            )
    return rows


def scaled_ways(m: int, n: int, k: int) -> dict[str, Call]:
    """8-bit integers and floats, by both; and bf16."""
    x8, w8 = (torch.randint(-128, 128, (rows, k), dtype=torch.int8, device="cuda") for rows in (m, n))
    x16, w16 = (torch.randn(rows, k, device="cuda").bfloat16() for rows in (m, n))
    xf, wf = x16.to(torch.float8_e4m3fn), w16.to(torch.float8_e4m3fn)
    by_row, by_column = torch.rand(m, device="cuda") + 0.5, torch.rand(n, device="cuda") + 0.5
    scales = {"scale_a": by_row[:, None], "scale_b": by_column[None]}
    return {
        "int8": lambda: tn.linear_int8(x8, w8, by_row, by_column),
        "fp8": lambda: tn.linear_fp8(xf, wf, by_row, by_column),
        "torch_int8": lambda: torch._int_mm(x8, w8.t()),
        "torch_fp8": lambda: torch._scaled_mm(xf, wf.t(), **scales, out_dtype=torch.bfloat16),
        "bf16": lambda: torch.nn.functional.linear(x16, w16),
    }


def run_scaled() -> list[dict[str, Any]]:
    rows = []
    for m, n, k in LISTED_SCALED:
        us = device_us(scaled_ways(m, n, k), FEWEST)
        rows.append({"m": m, "n": n, "k": k, **{f"{side}_us": round(us[side], 2) for side in us}})
        print(
            f"  {m:>5} x {n:>5} x {k:>5}"
            + "".join(
                f"  {side} {us[side]:7.1f} us {2e-6 * m * n * k / us[side]:6.0f} TOP/s"
                f" {us[f'torch_{side}'] / us[side]:5.2f}x torch {us['bf16'] / us[side]:5.2f}x bf16"
                for side in ("int8", "fp8")
            ),
            flush=True,
        )
    return rows


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
    arguments.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    arguments.add_argument("--threads", default="1,2", help="numbers of threads (cpu)")
    arguments.add_argument("--types", help="f32,bf16; on a GPU bf16")
    arguments.add_argument("--drawn", type=int, default=0, help="drawn shapes, behind the listed ones")
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--grouped", action="store_true", help="products of experts (cuda)")
    arguments.add_argument("--scaled", action="store_true", help="products of 8-bit numbers (cuda)")
    given = arguments.parse_args()
    more = list(drawn(given.drawn, given.seed))
    method = "replayed graphs that take turns on the same data; medians"
    for name, asked, measured in (("grouped", given.grouped, run_grouped), ("scaled", given.scaled, run_scaled)):
        if asked:
            found = {**environment(), "gpu": torch.cuda.get_device_name(), "method": method, "rows": measured()}
            write_result(f"{name}-cuda", found)
            return
    if given.device == "cuda":
        rows = run_cuda((given.types or "bf16").split(","), LISTED_CUDA + more)
        found = {**environment(), "gpu": torch.cuda.get_device_name(), "method": method, "rows": rows}
        own = os.environ.get("TENON_CUBLASLT") == "none"
        if own:
            found["command"] = f"TENON_CUBLASLT=none {found['command']}"
        write_result("gemm-cuda-own" if own else "gemm-cuda", found)
        return
    rows = run([int(t) for t in given.threads.split(",")], (given.types or "f32,bf16").split(","), LISTED + more)
    method = "the best turn of each side, taking turns on the same data"
    write_result("gemm-cpu", {**environment(), "method": method, "rows": rows})


if __name__ == "__main__":
    main()
