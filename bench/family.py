"""Operators that sort, move and look up, on the GPU:  python bench/family.py [sort top_k permute concat pad …]

Time on the device beside PyTorch's and beside a copy of as many bytes: every side is a CUDA graph of several calls,
replayed in turns on the same random data, and the median counts. Writes
bench/results/family-cuda-<machine>-<date>.json.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

import tenon.torch as tn
from run import environment, write_result

CALLS, TURNS = 4, 7
BF16, F32, U8 = torch.bfloat16, torch.float32, torch.uint8
Call = Callable[[], Any]


class Cell(NamedTuple):
    op: str
    what: str
    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    args: Sequence[Any]
    moved: int  # bytes that must be read and written


def random(*shape: int, dtype: torch.dtype = BF16) -> Tensor:
    if dtype == U8:
        return index(100, *shape).to(U8)
    return torch.randn(shape, device="cuda", dtype=dtype)


def index(n: int, *shape: int) -> Tensor:
    return torch.randint(n, shape, device="cuda")


def name(x: Tensor) -> str:
    return f"{str(x.dtype)[6:]} {'x'.join(map(str, x.shape))}"


def permuted(x: Tensor, dims: Sequence[int]) -> Tensor:
    return x.permute(*dims).contiguous()


def repeated(x: Tensor, times: Sequence[int]) -> Tensor:
    return x.repeat(*times)


def dense_grad(dy: Tensor, i: Tensor, rows: int, padding: int) -> Tensor:
    return torch.ops.aten.embedding_dense_backward(dy, i, rows, padding, False)


def added(x: Tensor, ids: Tensor, rows: int) -> Tensor:
    return torch.zeros(rows, x.shape[1], device=x.device).index_add_(0, ids, x)


def sorting() -> Iterator[Cell]:
    sizes = [(1, 1 << 26), (1 << 20, 32), (1 << 17, 256), (32768, 1000), (8192, 4096), (1024, 32768), (64, 1 << 20)]
    for rows, n in sizes:
        x = random(rows, n, dtype=F32)
        yield Cell("sort", name(x), tn.sort, torch.sort, (x,), 4 * x.nbytes)
    for rows, n, k in (4096, 131072, 64), (32768, 1000, 10), (8192, 8192, 64), (64, 131072, 64), (256, 50257, 50):
        x = random(rows, n, dtype=F32)
        yield Cell("top_k", f"{k} of {name(x)}", tn.top_k, torch.topk, (x, k), x.nbytes)


def cumulative() -> Iterator[Cell]:
    sizes = [(1, 1 << 27), (1 << 20, 32), (32768, 1000), (8192, 4096), (1024, 32768), (64, 1 << 20)]
    for rows, n in sizes:
        x = random(rows, n, dtype=F32)
        for op in ("cumsum", "cumprod"):
            yield Cell(op, name(x), getattr(tn, op), getattr(torch, op), (x, 1), 2 * x.nbytes)
        yield Cell("cummax", name(x), tn.cummax, torch.cummax, (x, 1), 4 * x.nbytes)
    for dtype, shape in (F32, (4096, 4096)), (BF16, (64, 1024, 512)), (F32, (1 << 20, 16)):
        y = random(*shape, dtype=dtype)
        dim = len(shape) - 2
        yield Cell("cumsum", f"{name(y)} dim {dim}", tn.cumsum, torch.cumsum, (y, dim), 2 * y.nbytes)
        yield Cell("cummax", f"{name(y)} dim {dim}", tn.cummax, torch.cummax, (y, dim), 2 * y.nbytes + 8 * y.numel())


def permuting() -> Iterator[Cell]:
    x = random(64, 512, 32, 128)
    for dims in (0, 2, 1, 3), (0, 1, 3, 2), (3, 2, 1, 0), (1, 0, 3, 2), (2, 3, 0, 1), (3, 0, 1, 2), (0, 3, 2, 1):
        yield Cell("permute", f"{name(x)} {dims}", tn.permute, permuted, (x, dims), 2 * x.nbytes)
    shapes: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
        ((16384, 8192), (1, 0)),
        ((9001, 7003), (1, 0)),
        ((20_000_000, 3), (1, 0)),
        ((256, 3, 224, 224), (0, 2, 3, 1)),
        ((512, 512, 127), (1, 0, 2)),
    ]
    for dtype in U8, BF16, F32:
        for shape, order in shapes:
            x = random(*shape, dtype=dtype)
            yield Cell("permute", f"{name(x)} {order}", tn.permute, permuted, (x, order), 2 * x.nbytes)


def moving() -> Iterator[Cell]:
    a, b, few = random(16384, 2048), random(16384, 2047), [random(64, 64) for _ in range(100)]
    for xs, axis in ([a, b], 1), ([a, a], 1), ([a, a], 0), (few, 0):
        what = f"{len(xs)} of {name(xs[0])} axis {axis}"
        yield Cell("concat", what, tn.concat, torch.cat, (xs, axis), 2 * sum(x.nbytes for x in xs))
    x, image = random(16384, 4096), random(64, 64, 112, 112)
    for pad in (8, 8), (3, 2):
        yield Cell("pad", f"{name(x)} {pad}", tn.pad, F.pad, (x, pad), 2 * x.nbytes)
    for mode in "constant", "reflect", "replicate", "circular":
        yield Cell("pad", f"{name(image)} {mode}", tn.pad, F.pad, (image, (1, 1, 1, 1), mode), 2 * image.nbytes)
    for by, axis in (1000, 1), (1001, 1), (5000, 0):
        yield Cell("roll", f"{name(x)} {by} axis {axis}", tn.roll, torch.roll, (x, by, axis), 2 * x.nbytes)
    yield Cell("triu", name(x), tn.triu, torch.triu, (x,), 2 * x.nbytes)
    y = random(2048, 4096)
    for times in (1, 8), (8, 1):
        yield Cell("repeat", f"{name(y)} {times}", tn.repeat, repeated, (y, times), 9 * y.nbytes)


def looking_up() -> Iterator[Cell]:
    table, i, dy = random(128256, 2048), index(128256, 8192), random(8192, 2048)
    what = f"8192 of {name(table)}"
    yield Cell("embedding", what, tn.embedding, F.embedding, (i, table), 2 * dy.nbytes)
    args = (dy, i, len(table), -1)
    yield Cell("embedding_grad", what, torch.ops.tenon.embedding_grad, dense_grad, args, table.nbytes + dy.nbytes)
    x, ids = random(1 << 20, 64, dtype=F32), index(65536, 1 << 20)
    yield Cell("segment_sum", f"{name(x)} to 65536", tn.segment_sum, added, (x, ids, 65536), x.nbytes + (1 << 24))
    rows, j = random(65536, 1024), index(65536, 65536)
    yield Cell("index_select", name(rows), tn.index_select, torch.index_select, (rows, 0, j), 2 * rows.nbytes)
    m, at, s = random(4096, 4096, dtype=F32), index(4096, 4096, 4096), random(4096, 4096, dtype=F32)
    for dim in 1, 0:
        what = f"{name(m)} dim {dim}"
        yield Cell("gather", what, tn.gather, torch.gather, (m, dim, at), 4 * m.nbytes)
        yield Cell("scatter_add", what, tn.scatter_add, torch.scatter_add, (m, dim, at, s), 5 * m.nbytes)


def graph(call: Call) -> torch.cuda.CUDAGraph:
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(2):
            call()
    torch.cuda.synchronize()
    made = torch.cuda.CUDAGraph()
    with torch.cuda.graph(made):
        for _ in range(CALLS):
            call()
    return made


def replayed(made: torch.cuda.CUDAGraph) -> float:
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    made.replay()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e3 / CALLS


def measure(cell: Cell) -> dict[str, Any]:
    source = torch.empty(max(cell.moved // 2, 16), dtype=U8, device="cuda")
    target = torch.empty_like(source)
    sides: list[Call] = [partial(side, *cell.args) for side in (cell.ours, cell.theirs)]
    graphs = [graph(call) for call in (*sides, lambda: target.copy_(source))]
    times = [[replayed(made) for made in graphs] for _ in range(TURNS)]
    ours, theirs, copy = (statistics.median(column) for column in zip(*times, strict=True))
    return {
        "op": cell.op,
        "what": cell.what,
        "tenon_us": round(ours, 1),
        "torch_us": round(theirs, 1),
        "copy_us": round(copy, 1),
        "ratio": round(theirs / ours, 2),
        "of_copy": round(copy / ours, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("op", nargs="*", help="only these")
    only = parser.parse_args().op
    if not torch.cuda.is_available():
        raise SystemExit("bench/family.py needs an NVIDIA GPU")
    rows = []
    print(f"  {'operator':<16} {'':<52} {'tenon µs':>9} {'torch µs':>9} {'ratio':>6} {'of copy':>8}")
    for part in sorting, cumulative, permuting, moving, looking_up:
        for cell in part():
            if only and cell.op not in only:
                continue
            row = measure(cell)
            rows.append(row)
            times = f"{row['tenon_us']:9.1f} {row['torch_us']:9.1f} {row['ratio']:6.2f} {row['of_copy']:8.2f}"
            print(f"  {row['op']:<16} {row['what']:<52} {times}", flush=True)
    report = environment() | {
        "gpu": torch.cuda.get_device_name(),
        "method": f"medians of {TURNS} replayed graphs of {CALLS} calls, in turns",
    }
    write_result("family-cuda", {**report, "rows": rows})


if __name__ == "__main__":
    main()
