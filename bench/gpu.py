"""Speed of the operators on a GPU against PyTorch's own, in the same run:  python bench/gpu.py [--part NAME] [--quick]

  kernels    time on the device against a copy of the same bytes, and against PyTorch eager
  training   forward and backward by autograd, against PyTorch eager and torch.compile
  launch     what `tn_run` takes on the CPU for a small call, beside a bare launch by the driver, from `tenon bench`

Every side runs on the same random data, taking turns, after a second of work. Device time: a CUDA graph of several
calls, replayed once, and once more timed with events; copies are not in a graph, which copies 512 MiB and more at two
thirds of the speed. softmax and layer_norm write to the tensor that the copy writes to. Training: events around whole
steps as a user writes them. A side's time is the median over its turns. Writes
bench/results/gpu-<part>-<machine>-<date>.json.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import tenon.torch as tn
from run import environment, write_result

Call = Callable[[], object]
TURNS, FEW_TURNS = 9, 5
SHORTEST_US, MOST_CALLS = 300, 400  # of a graph: shorter ones end before the next one is launched
TYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
DEVICE = "cuda"  # the tests make the same calls on the CPU, with smaller shapes
LARGE, IMAGES, LOGITS = (16384, 8192), (64, 256, 56, 56), (8192, 128256)


# ---- timing ----------------------------------------------------------------------------------------------------------


def event_us(call: Call) -> float:
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    call()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e3


def repeat(call: Call, times: int) -> None:
    for _ in range(times):
        call()


def keep_busy(seconds: float) -> None:
    """The clocks of an idle GPU are low; they rise when there is work. Copies: products would make it hot."""
    copy, end = copy_of(1 << 30), time.monotonic() + seconds
    while time.monotonic() < end:
        repeat(copy, 20)
        torch.cuda.synchronize()


def captured(call: Call, count: int) -> torch.cuda.CUDAGraph:
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
    try:
        with torch.cuda.graph(graph):
            repeat(call, count)
    finally:
        torch.cuda.set_stream(stream)  # a capture that fails leaves its own behind
    return graph


def replays(call: Call, in_graph: bool, multiple: int = 1) -> tuple[Call, int]:
    """As many calls as take about a millisecond, in a graph or one by one; a multiple of `multiple`. A small call takes
    longer on the CPU than on the device, so the first graph may turn out too short."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
        stream.synchronize()
        count = max(1, min(50, math.ceil(1000 / max(1.0, event_us(call)))))
    torch.cuda.current_stream().wait_stream(stream)
    count = math.ceil(count / multiple) * multiple
    if not in_graph:
        return partial(repeat, call, count), count
    graph = captured(call, count)
    graph.replay()
    us = event_us(graph.replay)
    if us < SHORTEST_US and count < MOST_CALLS:
        count = math.ceil(min(MOST_CALLS, count * SHORTEST_US / us) / multiple) * multiple
        graph = captured(call, count)
    return graph.replay, count


def take_turns(made: dict[str, tuple[Call, int]], turns: int) -> dict[str, float]:
    """Microseconds of one call of each, given what runs so many calls of it."""
    times: dict[str, list[float]] = {name: [] for name in made}
    for _ in range(turns):
        for name, (replay, count) in made.items():
            replay()  # what the other side left behind in caches is gone
            times[name].append(event_us(replay) / count)
    return {name: statistics.median(t) for name, t in times.items()}


def device_us(calls: dict[str, Call], turns: int = TURNS) -> dict[str, float]:
    """Microseconds on the device of one call of each, taking turns."""
    return take_turns({name: replays(call, name != "copy") for name, call in calls.items()}, turns)


def step_us(calls: dict[str, Call], count: int = 5, turns: int = TURNS) -> dict[str, float]:
    """Microseconds of one of `count` calls in a row, as a user writes them, by events; the sides take turns."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(turns + 3):
        for name, call in calls.items():
            call()
            us = event_us(partial(repeat, call, count)) / count
            if turn >= 3:
                times[name].append(us)
    return {name: statistics.median(t) for name, t in times.items()}


APART = 3 << 20  # bytes between what is read and what is written: a power of 2 would be slow


def copy_of(nbytes: int) -> Call:
    """A device copy that moves as many bytes, reading half and writing half."""
    count = nbytes // 2
    memory = torch.randint(-128, 127, (2 * count + APART,), dtype=torch.int8, device=DEVICE)
    source, target = memory[:count], memory[count + APART :]
    return lambda: target.copy_(source)


def pair(shape: Sequence[int], dtype: str) -> tuple[Tensor, Tensor]:
    """Random numbers, and room for as many, as far apart as a copy has them: that is worth some percent."""
    count = math.prod(shape)
    memory = randn(2 * count + APART // TYPES[dtype].itemsize, dtype=dtype)
    return memory[:count].view(shape), memory[-count:].view(shape)


# ---- kernels ---------------------------------------------------------------------------------------------------------


def randn(*shape: int, dtype: str, grad: bool = False) -> Tensor:
    return torch.randn(*shape, dtype=TYPES[dtype], device=DEVICE, requires_grad=grad)


def named(shape: Sequence[int]) -> str:
    return " x ".join(map(str, shape))


Row = tuple[str, str, str, int, dict[str, Call]]  # operator, shape, type, bytes that must move, the sides
ALL = {"want_dx": True, "want_dgamma": True, "want_dbeta": True}


def softmax_kernels(dtype: str) -> Iterable[Row]:
    (x, y), dy, shape = pair(LARGE, dtype), randn(*LARGE, dtype=dtype), named(LARGE)
    size = x.nbytes
    sides: dict[str, Call] = {
        "tenon": lambda: tn.softmax(x, out=y),
        "eager": lambda: torch.softmax(x, -1, out=y),
        "copy": lambda: y.copy_(x),
    }
    yield "softmax", shape, dtype, 2 * size, sides
    torch.softmax(x, -1, out=y)
    backward = torch.ops.aten._softmax_backward_data
    sides = {"tenon": lambda: tn.softmax_grad(y, dy), "eager": lambda: backward(dy, y, -1, x.dtype)}
    yield "softmax_grad", shape, dtype, 3 * size, sides


def layer_norm_kernels(dtype: str) -> Iterable[Row]:
    (x, y), dy, n = pair(LARGE, dtype), randn(*LARGE, dtype=dtype), LARGE[1]
    gamma, beta, size, shape = randn(n, dtype=dtype), randn(n, dtype=dtype), x.nbytes, named(LARGE)
    sides: dict[str, Call] = {
        "tenon": lambda: tn.layer_norm(x, weight=gamma, bias=beta, out=y),
        "eager": lambda: F.layer_norm(x, (n,), gamma, beta),
        "copy": lambda: y.copy_(x),
    }
    yield "layer_norm", shape, dtype, 2 * size, sides
    _, mean, rstd = torch.ops.tenon.layer_norm(x, gamma, beta)
    _, mu, sigma = torch.ops.aten.native_layer_norm(x, (n,), gamma, beta, 1e-5)
    backward = torch.ops.aten.native_layer_norm_backward
    sides = {
        "tenon": lambda: torch.ops.tenon.layer_norm_grad(x, gamma, beta, mean, rstd, dy, **ALL),
        "eager": lambda: backward(dy, x, (n,), mu, sigma, gamma, beta, [True, True, True]),
    }
    yield "layer_norm_grad", shape, dtype, 3 * size, sides


def sum_kernels(dtype: str) -> Iterable[Row]:
    x = randn(*LARGE, dtype=dtype)
    for title, axes in (("sum last", [1]), ("sum first", [0]), ("sum all", [0, 1])):
        sides: dict[str, Call] = {"tenon": partial(tn.sum, x, axes), "eager": partial(torch.sum, x, axes)}
        yield title, named(LARGE), dtype, x.nbytes, sides


def per_channel(n: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Weights of batch_norm, and its running statistics."""
    gamma, beta = torch.rand(n, device=DEVICE) + 0.5, torch.randn(n, device=DEVICE)
    return gamma, beta, torch.zeros(n, device=DEVICE), torch.ones(n, device=DEVICE)


def batch_norm_kernels(dtype: str, layout: str) -> Iterable[Row]:
    memory = torch.channels_last if layout == "channels-last" else torch.contiguous_format
    x, dy = (randn(*IMAGES, dtype=dtype).to(memory_format=memory) for _ in range(2))
    gamma, beta, means, variances = per_channel(IMAGES[1])
    size, shape = x.nbytes, f"{named(IMAGES)} {layout}"
    sides: dict[str, Call] = {
        "tenon": lambda: tn.batch_norm(x, means, variances, gamma, beta, training=True),
        "eager": lambda: F.batch_norm(x, means, variances, gamma, beta, training=True),
    }
    yield "batch_norm", shape, dtype, 3 * size, sides
    _, mean, rstd, z = torch.ops.tenon.batch_norm(x, gamma, beta, means, variances)
    _, mu, sigma = torch.ops.aten.native_batch_norm(x, gamma, beta, means, variances, True, 0.1, 1e-5)
    backward = torch.ops.aten.native_batch_norm_backward
    sides = {
        "tenon": lambda: torch.ops.tenon.batch_norm_grad(x, gamma, beta, None, mean, rstd, dy, z, **ALL),
        "eager": lambda: backward(dy, x, gamma, means, variances, mu, sigma, True, 1e-5, [True, True, True]),
    }
    yield "batch_norm_grad", shape, dtype, 5 * size, sides


def cross_entropy_kernels() -> Iterable[Row]:
    rows, classes = LOGITS
    x, target, shape = randn(*LOGITS, dtype="bf16"), torch.randint(classes, (rows,), device=DEVICE), named(LOGITS)
    sides: dict[str, Call] = {"tenon": lambda: torch.ops.tenon.cross_entropy(x, target, want_gx=True)}
    yield "cross_entropy with gradient", shape, "bf16", 2 * x.nbytes, sides
    sides = {"tenon": lambda: tn.cross_entropy(x, target), "eager": lambda: F.cross_entropy(x, target)}
    yield "cross_entropy", shape, "bf16", x.nbytes, sides


def kernel_rows() -> Iterable[Row]:
    for dtype in ("bf16", "f32"):
        yield from softmax_kernels(dtype)
        yield from layer_norm_kernels(dtype)
        yield from sum_kernels(dtype)
        yield from batch_norm_kernels(dtype, "NCHW")
        yield from batch_norm_kernels(dtype, "channels-last")
    yield from cross_entropy_kernels()


def kernels(quick: bool) -> list[dict[str, Any]]:
    rows = []
    print(f"  {'operator':<30} {'shape':<34} {'type':<5}  tenon µs  copy µs  eager µs   TB/s  of copy  of eager")
    for name, shape, dtype, nbytes, calls in kernel_rows():
        if quick and dtype != "bf16":
            continue
        with torch.no_grad():
            us = device_us(calls if "copy" in calls else {**calls, "copy": copy_of(int(nbytes))})
        row = {"op": name, "shape": shape, "type": dtype, "bytes": int(nbytes)}
        row |= {f"{side}_us": round(t, 2) for side, t in us.items()}
        row |= {"tb_per_s": round(nbytes / us["tenon"] * 1e-6, 3), "of_copy": round(us["copy"] / us["tenon"], 3)}
        if "eager" in us:
            row["times_eager"] = round(us["eager"] / us["tenon"], 2)
        rows.append(row)
        print(
            f"  {name:<30} {shape:<34} {dtype:<5} {us['tenon']:>9.1f} {us['copy']:>8.1f} "
            f"{us.get('eager', math.nan):>9.1f} {row['tb_per_s']:>6.2f} {row['of_copy']:>8.1%} "
            f"{us.get('eager', math.nan) / us['tenon']:>8.2f}x",
            flush=True,
        )
        torch.cuda.empty_cache()
    return rows


# ---- training --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """One training step of one operator."""

    op: str
    shape: str
    ours: Callable[..., Tensor]
    theirs: Callable[..., Tensor]
    leaves: list[Tensor]
    dy: Tensor

    def of(self, call: Callable[..., Tensor]) -> Call:
        def run() -> None:
            for leaf in self.leaves:
                leaf.grad = None
            call(*self.leaves).backward(self.dy)

        return run


def training_steps() -> Iterable[Step]:
    n = LARGE[1]
    x, dy = randn(*LARGE, dtype="bf16", grad=True), randn(*LARGE, dtype="bf16")
    yield Step("softmax", named(LARGE), lambda x: tn.softmax(x), lambda x: torch.softmax(x, -1), [x], dy)
    gamma, beta = randn(n, dtype="bf16", grad=True), randn(n, dtype="bf16", grad=True)
    yield Step(
        "layer_norm",
        named(LARGE),
        lambda x, g, b: tn.layer_norm(x, weight=g, bias=b),
        lambda x, g, b: F.layer_norm(x, (n,), g, b),
        [x, gamma, beta],
        dy,
    )
    del x, dy
    rows, classes = LOGITS
    x, target = randn(*LOGITS, dtype="bf16", grad=True), torch.randint(classes, (rows,), device=DEVICE)
    ours, theirs = lambda x: tn.cross_entropy(x, target), lambda x: F.cross_entropy(x, target)
    yield Step("cross_entropy", named(LOGITS), ours, theirs, [x], torch.ones((), device=DEVICE))


def loss_type(step: Step, side: str) -> Step:
    """PyTorch's loss has the type of its logits, Tenon's is f32: each gets a gradient of its own type."""
    if step.dy.ndim or side == "tenon":
        return step
    return replace(step, dy=step.dy.to(step.leaves[0].dtype))


def training(quick: bool) -> list[dict[str, Any]]:
    rows = []
    print(f"  {'operator':<14} {'shape':<16} type   tenon µs  eager µs  compile µs   of eager  of compile")
    for step in training_steps():
        sides = {"tenon": step.of(step.ours), "eager": loss_type(step, "eager").of(step.theirs)}
        if not quick:
            sides["compile"] = loss_type(step, "compile").of(torch.compile(step.theirs))
        us = step_us(sides)
        row = {"op": step.op, "shape": step.shape, "type": "bf16", "pass": "fwd+bwd"}
        rows.append({**row, **{f"{side}_us": round(t, 1) for side, t in us.items()}})
        compiled = us.get("compile", math.nan)
        print(
            f"  {step.op:<14} {step.shape:<16} bf16 {us['tenon']:>10.1f} {us['eager']:>9.1f} {compiled:>11.1f} "
            f"{us['eager'] / us['tenon']:>9.2f}x {compiled / us['tenon']:>10.2f}x",
            flush=True,
        )
        torch.cuda.empty_cache()
    return rows


# ---- launch ----------------------------------------------------------------------------------------------------------

LAUNCH_RUNS = 5
SMALL = {  # as `tenon bench --shape` takes it
    "softmax": "s=[16, 128]",
    "layer_norm": "r=[16] c=128 gamma beta",
    "sum": "s=[16, 128] axes=[1]",
    "cross_entropy": "r=[16] v=128 target<v want_gx=true",
    "batch_norm": "n=16 c=8 s=[4, 4] gamma beta W=f32",
    "relu": "s=[16, 128]",
    "rms_norm": "r=[16] c=128 gamma",
}


def launch(quick: bool) -> list[dict[str, Any]]:
    """Medians of some runs of each, which take turns; the bare launch is the same for all, and its median is of all."""
    calls: dict[str, list[float]] = {op: [] for op in SMALL}
    commands, bare = {}, []
    for op, shape in list(SMALL.items()) * (1 if quick else LAUNCH_RUNS):
        command = ["-m", "tenon", "bench", op, "--shape", shape, "--device", "cuda", "--ms", "20", "--json"]
        said = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=True)
        report = json.loads(said.stdout)
        calls[op].append(report["results"][0]["call"]["median_s"] * 1e6)
        bare.append(report["hardware"]["bare_launch_s"] * 1e6)
        commands[op] = report["command"]
    rows, alone = [], statistics.median(bare)
    print(f"  {'operator':<14} {'shape':<36} call µs  bare launch µs  more than that")
    for op, shape in SMALL.items():
        call = statistics.median(calls[op])
        row = {"op": op, "shape": shape, "type": "f32", "call_us": round(call, 2), "bare_launch_us": round(alone, 2)}
        rows.append({**row, "more_us": round(call - alone, 2), "runs": len(calls[op]), "command": commands[op]})
        print(f"  {op:<14} {shape:<36} {call:>7.2f} {alone:>15.2f} {call - alone:>15.2f}", flush=True)
    return rows


METHODS = {
    "launch": f"median of {LAUNCH_RUNS} runs, which take turns, of 15 times 50 calls each; the bare launch of all runs",
}
PARTS = {"kernels": kernels, "training": training, "launch": launch}


def gpu_state() -> str:
    query = "name,driver_version,clocks.sm,clocks.mem,temperature.gpu,power.draw,clocks_event_reasons.active"
    command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"]
    said = subprocess.run(command, capture_output=True, text=True)
    return said.stdout.strip() or "nvidia-smi says nothing"


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--part", choices=list(PARTS), action="append", help="only this part; may be repeated")
    arguments.add_argument("--quick", action="store_true", help="bf16 only, no torch.compile; writes no file")
    given = arguments.parse_args()
    if not torch.cuda.is_available():
        print("bench/gpu.py: there is no GPU that torch can use; bench/run.py measures the CPU", file=sys.stderr)
        return 1
    torch.manual_seed(0)
    for name in given.part or PARTS:
        keep_busy(1)
        before = gpu_state()
        print(f"{name}  ({before})", flush=True)
        rows = PARTS[name](given.quick)
        if not given.quick:
            report = {**environment(), "gpu": torch.cuda.get_device_name(), "state_before": before}
            report |= {
                "state_after": gpu_state(),
                "method": METHODS.get(name, f"median of {TURNS} turns, the sides taking turns"),
            }
            write_result(f"gpu-{name}", {**report, "rows": rows})
    return 0


if __name__ == "__main__":
    sys.exit(main())
