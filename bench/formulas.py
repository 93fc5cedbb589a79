"""Speed of formulas:  python bench/formulas.py [--device cuda|cpu] [--part NAME] [--quick]

  gpu     (cuda) time on the device, forward and backward, against a copy of the bytes that must move, torch.compile
          and, for rows that a hand-written operator computes too, that operator; errors against float64
  first   (both) milliseconds from the text of a formula to its first result: with nothing compiled before, and from
          the cache on disk; as the first thing that a process does with Tenon, and later on
  cpu     (cpu) forward, and forward with backward, against the machine's own copy of the bytes that must move, and
          against PyTorch's operators one by one; 1 and 2 threads, after the host's compiler has done its work

Every side runs on the same random data, taking turns. Bytes that must move: each input read once, each output written
once; for a backward pass, what the gradient cannot be computed without. Device time is measured as bench/gpu.py does,
the CPU's as bench/run.py does. Writes bench/results/formulas-<part>-<machine>-<date>.json (first: first-<device>).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import gpu
import tenon.torch as tn
from run import ROUNDS, TURN_S, TURNS, TYPES, environment, keep_memory, seconds, write_result
from tenon.torch._fuse import fused_op
from tenon.torch._ops import TorchOp, torch_op

Call = Callable[[], object]
Given = dict[str, Any]  # arguments of a call by name, in the order of the contract
aten = torch.ops.aten

SOFTMAX = "t = exp(x - max(x, axis=-1)); y = t / sum(t, -1)"
SOFTMAX_LSE = "exp(x - logsumexp(x, -1))"
RMS_NORM = "rms(x: T[*r, c], gamma: T[c], eps: float = 1e-6) -> y: T[*r, c] : x * rsqrt(mean(x * x, -1) + eps) * gamma"


# ---- the formulas and what PyTorch does instead ----------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A formula with its peer. Sizes are in tensors of the shape and type of x; the others are too small to count."""

    name: str
    made: Callable[[], TorchOp]
    inputs: str  # names of its inputs; after ':' x, row, scalar or state (f32, as optimisers keep it)
    theirs: Callable[..., Any]  # takes the inputs, unfused
    moves: float = 2  # tensors that must move forward
    back: float = 3  # backward; 0: there is none
    states: int = 0  # further f32 tensors that must move
    attrs: Given = field(default_factory=dict)

    def given(self, shape: Sequence[int], dtype: torch.dtype, device: str) -> Given:
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        made: Given = {}
        for word in self.inputs.split():
            name, _, kind = word.partition(":")
            sizes = {"row": shape[-1:], "scalar": (), "number": ()}.get(kind, shape)
            made[name] = torch.randn(sizes, dtype=wide if kind in ("state", "number") else dtype, device=device)
            if kind == "state":
                made[name] = made[name].abs_()
            elif kind == "number":
                made[name] = torch.full((), 1e-3 if name == "lr" else 10.0, dtype=wide, device=device)
        return made

    def nbytes(self, tensors: float, x: Tensor) -> int:
        return int(tensors * x.nbytes) + self.states * x.numel() * 4


def adamw(p: Tensor, g: Tensor, m: Tensor, v: Tensor, lr: Tensor, step: Tensor) -> None:
    """A step of AdamW as PyTorch's optimiser does it without fusion, its numbers as tensors."""
    wide = g.to(m.dtype)
    m.lerp_(wide, 0.1)
    v.mul_(0.999).addcmul_(wide, wide, value=0.001)
    c1, c2 = 1 - 0.9**step, 1 - 0.999**step
    p.mul_(1 - lr * 0.01)
    p.sub_(lr / c1 * (m / ((v / c2).sqrt_().add_(1e-8))))


def rms_norm(x: Tensor, gamma: Tensor) -> Tensor:
    """As models write it."""
    wide = x.to(torch.float32) if x.dtype != torch.float64 else x
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * gamma


def scaled_relu(x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    return F.relu(x * scale + bias)


def row(name: str) -> Callable[[], TorchOp]:
    return partial(torch_op, name)


ADAMW = "p:x g:x m:state v:state lr:number step:number"
ACTIVATIONS = [
    Case("gelu", row("gelu"), "x", F.gelu),
    Case("mish", row("mish"), "x", F.mish),
    Case("tanh", row("tanh"), "x", torch.tanh),
    Case("silu", row("silu"), "x", F.silu),
]
BOUND_BY_MEMORY = [
    Case("relu(x*s+b), rows", row("scale_bias_relu"), "x scale:row bias:row", scaled_relu),
    Case("relu(x*s+b), scalars", row("scale_bias_relu"), "x scale:scalar bias:scalar", scaled_relu),
    Case("swiglu", row("swiglu"), "x gate", lambda x, gate: F.silu(gate) * x, 3, 5),
    Case("bias_act(relu)", row("bias_act"), "x bias:row", lambda x, bias: F.relu(x + bias)),
    Case("clamp", row("clamp"), "x", lambda x: x.clamp(-1.0, 1.0), attrs={"low": -1.0, "high": 1.0}),
    Case("adamw_step", row("adamw_step"), ADAMW, adamw, 3, 0, 4),
]
ROWS = [
    Case("softmax", partial(fused_op, SOFTMAX), "x", lambda x: torch.softmax(x, -1)),
    Case("softmax by logsumexp", partial(fused_op, SOFTMAX_LSE), "x", lambda x: torch.softmax(x, -1)),
    Case("rms_norm", partial(fused_op, RMS_NORM), "x gamma:row", rms_norm),
]
# What PyTorch's autograd runs, for torch.compile to fuse: dy, x, y.
BACKWARD: dict[str, Callable[..., Tensor]] = {
    "gelu": lambda dy, x, y: aten.gelu_backward(dy, x),
    "mish": lambda dy, x, y: aten.mish_backward(dy, x),
    "tanh": lambda dy, x, y: aten.tanh_backward(dy, y),
    "silu": lambda dy, x, y: aten.silu_backward(dy, x),
}


def arguments(made: TorchOp, given: Given, attrs: Given) -> list[Any]:
    """All arguments of a call, by position."""
    defaults = zip(made.op.params, made.defaults, strict=True)
    return [{**given, **attrs}.get(p.name, default) for p, default in defaults]


def forward_of(case: Case, given: Given) -> Call:
    made = case.made()
    return partial(made.call, *arguments(made, given, case.attrs))


def backward_of(case: Case, given: Given, dy: Tensor) -> Call:
    """The call that a formula's gradient is, with all gradients asked for; what the forward pass kept is there."""
    made = case.made()
    args = arguments(made, given, case.attrs)
    with torch.no_grad():
        y = made.full(*args)
    assert made.op.rule is not None
    (statement,) = made.op.rule.statements
    named = dict(zip(made.names, args, strict=True))
    values = {"input": named, "attr": named, "output": {"y": y}, "doutput": {"y": dy}}
    sources = {s.param: values[s.kind][s.name] for s in statement.sources}
    gradient = made._rule_op(statement)
    sources |= {o.want_attr: True for o in gradient.op.outputs if o.want_attr is not None}
    return partial(gradient.full, *arguments(gradient, sources, {}))


# ---- the GPU ---------------------------------------------------------------------------------------------------------

Sides = dict[str, Call]
GpuRow = tuple[Case, str, int, Sides]  # the formula, forward or backward, bytes that must move, the sides
LARGE = gpu.LARGE


def compiled(function: Callable[..., Any], *args: Any) -> Call:
    return partial(torch.compile(function, dynamic=False), *args)


def gpu_rows(dtype: str, shape: Sequence[int], device: str, peers: bool) -> Iterable[GpuRow]:
    for case in BOUND_BY_MEMORY + ACTIVATIONS:
        given = case.given(shape, TYPES[dtype], device)
        x = next(iter(given.values()))
        sides: Sides = {"tenon": forward_of(case, given)}
        if peers:
            sides["compile"] = compiled(case.theirs, *given.values())
        if case in ACTIVATIONS:
            sides["eager"] = partial(case.theirs, *given.values())
        yield case, "forward", case.nbytes(case.moves, x), sides
        if not case.back:
            continue
        dy = torch.randn_like(x)
        sides = {"tenon": backward_of(case, given, dy)}
        if case in ACTIVATIONS:
            function, y = BACKWARD[case.name], case.theirs(x)
            sides["eager"] = partial(function, dy, x, y)
            if peers:
                sides["compile"] = compiled(function, dy, x, y)
        yield case, "backward", case.nbytes(case.back, x), sides
    for case in ROWS:
        yield from against_operator(case, shape, TYPES[dtype], device)


def against_operator(case: Case, shape: Sequence[int], dtype: torch.dtype, device: str) -> Iterable[GpuRow]:
    """Beside the operator that was written by hand: softmax; layer_norm until rms_norm has a kernel of its own."""
    given = case.given(shape, dtype, device)
    x, dy = given["x"], torch.randn(shape, dtype=dtype, device=device)
    sides: Sides = {"tenon": forward_of(case, given)}
    back: Sides = {"tenon": backward_of(case, given, dy)}
    if case.name.startswith("softmax"):
        sides["operator"] = partial(tn.softmax, x)
        back["operator"] = partial(tn.softmax_grad, torch.softmax(x, -1), dy)
    else:
        gamma, beta = given["gamma"], torch.randn_like(given["gamma"])
        _, mean, rstd = torch.ops.tenon.layer_norm(x, gamma, beta)
        sides["operator"] = partial(tn.layer_norm, x, weight=gamma, bias=beta)
        back["operator"] = partial(torch.ops.tenon.layer_norm_grad, x, gamma, beta, mean, rstd, dy, **gpu.ALL)
    yield case, "forward", case.nbytes(case.moves, x), sides
    yield case, "backward", case.nbytes(case.back, x), back


def errors(case: Case, direction: str, dtype: str, device: str, peers: bool, count: int = 1 << 24) -> dict[str, float]:
    """The largest difference from float64, and the root of the mean square, of each side."""
    given = case.given((count // 4096, 4096), TYPES[dtype], device)
    x = given["x"]
    dy = torch.randn_like(x)
    wide = x.double().requires_grad_(direction == "backward")
    exact = case.theirs(wide)
    sides: Sides = {"tenon": forward_of(case, given), "torch": partial(case.theirs, x)}
    if direction == "backward":
        exact = torch.autograd.grad(exact, wide, dy.double())[0]
        args = (dy, x, case.theirs(x))
        sides = {"tenon": backward_of(case, given, dy), "torch": partial(BACKWARD[case.name], *args)}
        if peers:
            sides["compile"] = compiled(BACKWARD[case.name], *args)
    elif peers:
        sides["compile"] = compiled(case.theirs, x)
    found: dict[str, float] = {}
    for side, call in sides.items():
        made: Any = call()
        off = (made[0] if isinstance(made, tuple) else made).double() - exact.detach()
        found[f"{side}_error"] = float(f"{off.abs().max().item():.3e}")
        found[f"{side}_rms_error"] = float(f"{off.square().mean().sqrt().item():.3e}")
    return found


def gpu_row(case: Case, direction: str, dtype: str, nbytes: int, us: dict[str, float]) -> dict[str, Any]:
    row: dict[str, Any] = {"op": case.name, "shape": gpu.named(LARGE), "type": dtype, "pass": direction}
    row |= {"bytes": nbytes, **{f"{side}_us": round(t, 2) for side, t in us.items()}}
    row |= {"tb_per_s": round(nbytes / us["tenon"] * 1e-6, 3), "of_copy": round(us["copy"] / us["tenon"], 3)}
    for side in ("compile", "eager", "operator"):
        if side in us:  # the smaller, the faster is the formula
            row[f"of_{side}"] = round(us["tenon"] / us[side], 3)
    return row


def gpu_part(device: str, quick: bool) -> list[dict[str, Any]]:
    rows = []
    print(
        f"  {'formula':<22} {'pass':<9} type   tenon µs   copy µs  of copy   time of compile, eager, operator   error"
    )
    for dtype in ("bf16",) if quick else ("f32", "bf16"):
        for case, direction, nbytes, sides in gpu_rows(dtype, LARGE, device, not quick):
            with torch.no_grad():
                us = gpu.device_us({**sides, "copy": gpu.copy_of(nbytes)})
            row = gpu_row(case, direction, dtype, nbytes, us)
            sides.clear()
            torch.cuda.empty_cache()
            if case in ACTIVATIONS:
                row |= errors(case, direction, dtype, device, not quick)
            torch._dynamo.reset()
            rows.append(row)
            peers = " ".join(f"{row.get(f'of_{side}', math.nan):>9.2f}x" for side in ("compile", "eager", "operator"))
            error = f"{row['tenon_error']:.2e}, torch {row['torch_error']:.2e}" if "tenon_error" in row else ""
            times = f"{us['tenon']:>9.1f} {us['copy']:>9.1f} {row['of_copy']:>8.1%}"
            print(f"  {case.name:<22} {direction:<9} {dtype:<5} {times} {peers}   {error}", flush=True)
            torch.cuda.empty_cache()
    return rows


# ---- first use -------------------------------------------------------------------------------------------------------

# Five formulas and how their inputs are made; x has 256 KiB.
FIRST: list[tuple[str, str]] = [
    ("relu(x * s + b)", "x s:row b:row"),
    ("silu(x) * y", "x y"),
    ("x * tanh(softplus(x))", "x"),
    (SOFTMAX_LSE, "x"),
    ("x * rsqrt(mean(x * x, -1) + 1e-6) * g", "x g:row"),
]
FIRST_SHAPE = (64, 1024)  # the least that the host's compiler is used for, more or less
FIRST_ROUNDS = {"cpu": 3, "cuda": 1}  # a process that uses a GPU takes seconds to begin


def first_child(device: str, start: int) -> int:
    """In a process of its own: every formula once, beginning with `start`; prints milliseconds as JSON."""
    rows = []
    for text, inputs in FIRST[start:] + FIRST[:start]:
        given = list(
            Case("", partial(fused_op, text), inputs, F.relu).given(FIRST_SHAPE, torch.float32, device).values()
        )
        torch.relu(given[0] + 1).sum().item()  # the device and PyTorch are awake
        awake = time.perf_counter() + (0.05 if device == "cpu" else 0)
        while time.perf_counter() < awake:  # PyTorch's threads wait that long for more before they leave the cores
            pass
        begin = time.perf_counter()
        function = tn.fuse(text)
        made = time.perf_counter()
        function(*given)
        synchronize(device)
        called = time.perf_counter()
        function(*given)
        synchronize(device)
        again = time.perf_counter() - called
        ms = {"make_ms": made - begin, "call_ms": called - made, "total_ms": called - begin, "again_ms": again}
        rows.append({"formula": text, **{name: 1e3 * t for name, t in ms.items()}})
    print(json.dumps(rows))
    return 0


def synchronize(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()


def child(device: str, start: int, cache: str, jit: str | None) -> list[dict[str, Any]]:
    variables = {k: v for k, v in os.environ.items() if k != "TENON_JIT"}
    variables |= {"TENON_CACHE_DIR": cache, "OMP_NUM_THREADS": "2", **({"TENON_JIT": jit} if jit else {})}
    command = [sys.executable, os.path.abspath(__file__), "--device", device, "--first-child", str(start)]
    done = subprocess.run(command, env=variables, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr[-2000:]}")
    rows: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return [{**row, "process": "running" if i else "fresh"} for i, row in enumerate(rows)]


def first_samples(device: str, starts: Sequence[int]) -> Iterable[dict[str, Any]]:
    """Each formula with each cache; in the process that begins with it, and in those that begin with another."""
    with tempfile.TemporaryDirectory() as full:
        # The CPU's interpreter needs nothing compiled; `now` lets the host's compiler come first.
        child(device, 0, full, "now")
        for count, start in enumerate(starts, 1):
            print(f"  {count} of {len(starts)}: processes that begin with {FIRST[start][0]}", flush=True)
            with tempfile.TemporaryDirectory() as empty:
                yield from ({**row, "cache": "empty"} for row in child(device, start, empty, None))
            yield from ({**row, "cache": "full"} for row in child(device, start, full, None))
            if device == "cpu":
                with tempfile.TemporaryDirectory() as empty:
                    rows = child(device, start, empty, "now")
                yield from ({**row, "cache": "empty, TENON_JIT=now"} for row in rows)


def first_part(device: str, quick: bool) -> list[dict[str, Any]]:
    starts = [0] if quick else list(range(len(FIRST))) * FIRST_ROUNDS[device]
    samples: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for sample in first_samples(device, starts):
        samples.setdefault((sample["formula"], sample["cache"], sample["process"]), []).append(sample)
    rows = []
    print(f"  {'formula':<38} {'cache':<21} {'process':<8}  runs  text ms   call ms  both ms   again ms")
    for (text, cache, process), of in sorted(samples.items(), key=lambda item: item[0][1:]):
        names = ("make_ms", "call_ms", "total_ms", "again_ms")
        ms = {name: round(statistics.median(s[name] for s in of), 3) for name in names}
        rows.append({"formula": text, "device": device, "cache": cache, "process": process, "runs": len(of), **ms})
        times = " ".join(f"{t:>9.3f}" for t in ms.values())
        print(f"  {text:<38} {cache:<21} {process:<8} {len(of):>5} {times}", flush=True)
    return rows


# ---- the CPU ---------------------------------------------------------------------------------------------------------

CPU = [
    *BOUND_BY_MEMORY[:2],
    Case("silu(x)*y", partial(fused_op, "silu(x) * y"), "x y", lambda x, y: F.silu(x) * y, 3, 5),
    *BOUND_BY_MEMORY[3:],
    *ACTIVATIONS[:2],
    Case("rms_norm", row("rms_norm"), "x gamma:row", rms_norm),
]
LENGTH = 1024
MEMORY, CACHE = 64 << 20, 512 << 10  # bytes of x
LONG_S = 0.1  # calls that take longer get one round


def copy_on_cpu(nbytes: int) -> Call:
    """Moves as many bytes, reading half and writing half, with PyTorch's threads."""
    source = torch.randn(nbytes // 8)
    target = torch.zeros_like(source)
    return partial(target.copy_, source)


def compiling() -> bool:
    """Whether this process has children: the host's compiler at work."""
    for path in Path("/proc/self/task").glob("*/children"):
        try:
            if path.read_text().strip():
                return True
        except OSError:  # the thread has ended
            continue
    return False


def warm(call: Call, longest: float = 30.0) -> None:
    """Three calls, and then more until the host's compiler is through and the times have settled."""
    end, quiet = time.monotonic() + longest, 0
    while quiet < 3 and time.monotonic() < end:  # one child follows another, and a call must come between them
        for _ in range(3):
            call()
        time.sleep(0.02)
        quiet = 0 if compiling() else quiet + 1
    before = math.inf
    while time.monotonic() < end:
        now = min(seconds(call, 1) for _ in range(5))
        if now > 0.97 * before:
            break
        before = now


def compare_all(calls: Sides, quick: bool, turns: int = TURNS, turn_s: float = TURN_S) -> dict[str, float]:
    """Microseconds of one call of each, taking turns, as bench/run.py has them."""
    counts, longest = {}, 0.0
    for name, call in calls.items():
        call()
        once = seconds(call, 1)
        longest = max(longest, once)
        counts[name] = max(1, min(1000, math.ceil(turn_s / max(once, 1e-7))))
    medians: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(1 if quick or longest > LONG_S else ROUNDS):
        times: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(3 if quick else turns):
            for name, call in calls.items():
                times[name].append(seconds(call, counts[name]))
        for name, of in times.items():
            medians[name].append(statistics.median(of))
    return {name: 1e6 * min(of) for name, of in medians.items()}


def steps(case: Case, given: Given, dy: Tensor) -> Sides:
    """Forward and backward, ours and theirs."""
    leaves = [t.requires_grad_() for t in given.values()]
    made = case.made()
    args = arguments(made, given, case.attrs)

    def step(call: Callable[..., Tensor], with_args: Sequence[Any]) -> None:
        for leaf in leaves:
            leaf.grad = None
        torch.autograd.backward(call(*with_args), dy)

    return {"tenon": partial(step, made.call, args), "torch": partial(step, case.theirs, leaves)}


def cpu_cases(quick: bool) -> Iterable[tuple[Case, int, str, bool]]:
    """The formula, bytes of x, its type, with backward or without."""
    for case in CPU:
        for dtype in ("f32", "bf16"):
            for nbytes in (CACHE,) if quick else (MEMORY, CACHE):
                for backward in (False, True) if case.back else (False,):
                    yield case, nbytes, dtype, backward


def cpu_sides(case: Case, shape: Sequence[int], dtype: str, backward: bool) -> tuple[int, Sides]:
    """Bytes that must move, and the sides."""
    torch.manual_seed(0)
    given = case.given(shape, TYPES[dtype], "cpu")
    x = next(iter(given.values()))
    nbytes = case.nbytes(case.moves + (case.back if backward else 0), x)
    sides: Sides = {"tenon": forward_of(case, given), "torch": partial(case.theirs, *given.values())}
    if backward:
        sides = steps(case, given, torch.randn_like(x))
    return nbytes, {**sides, "copy": copy_on_cpu(nbytes)}


def cpu_part(device: str, quick: bool) -> list[dict[str, Any]]:
    del device
    rows = []
    print(
        f"  {'formula':<22} {'shape':<14} {'type':<5} {'pass':<8} threads   tenon µs    copy µs   torch µs   GB/s  "
        "of copy  times torch"
    )
    for case, size, dtype, backward in cpu_cases(quick):
        shape = (size // LENGTH // TYPES[dtype].itemsize, LENGTH)
        for threads in sorted({1, min(2, os.cpu_count() or 1)}, reverse=True):
            torch.set_num_threads(threads)
            nbytes, sides = cpu_sides(case, shape, dtype, backward)
            with torch.set_grad_enabled(backward):
                warm(sides["tenon"])
                us = compare_all(sides, quick)
            row: dict[str, Any] = {"op": case.name, "shape": list(shape), "type": dtype}
            row |= {"pass": "fwd+bwd" if backward else "forward", "threads": threads, "bytes": nbytes}
            row |= {f"{side}_us": round(t, 2) for side, t in us.items()}
            row |= {"gb_per_s": round(nbytes / us["tenon"] * 1e-3, 2), "of_copy": round(us["copy"] / us["tenon"], 3)}
            row["ratio"] = round(us["torch"] / us["tenon"], 3)
            rows.append(row)
            times = f"{us['tenon']:>10.1f} {us['copy']:>10.1f} {us['torch']:>10.1f} {row['gb_per_s']:>6.1f}"
            print(
                f"  {case.name:<22} {' x '.join(map(str, shape)):<14} {dtype:<5} {row['pass']:<8} {threads:>7} "
                f"{times} {row['of_copy']:>8.1%} {row['ratio']:>12.2f}",
                flush=True,
            )
    return rows


# ---- the parts -------------------------------------------------------------------------------------------------------

PARTS: dict[str, dict[str, Callable[[str, bool], list[dict[str, Any]]]]] = {
    "cuda": {"gpu": gpu_part, "first": first_part},
    "cpu": {"cpu": cpu_part, "first": first_part},
}
METHODS = {
    "gpu": f"median of {gpu.TURNS} turns, the sides taking turns; errors on 2^24 elements of N(0, 1)",
    **{
        f"first-{device}": f"median over processes, {n} beginning with each formula; x of 256 KiB; just after PyTorch"
        for device, n in FIRST_ROUNDS.items()
    },
    "cpu": f"best of {ROUNDS} medians (1 where a call takes {LONG_S:g} s) of {TURNS} turns of {TURN_S * 1e3:g} ms each",
}


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--device", choices=list(PARTS), default="cpu", help="cpu (default) or cuda")
    arguments.add_argument("--part", choices=["gpu", "first", "cpu"], action="append", help="may be repeated")
    arguments.add_argument("--quick", action="store_true", help="few rows, no torch.compile; writes no file")
    arguments.add_argument("--first-child", type=int, help=argparse.SUPPRESS)
    given = arguments.parse_args()
    parts = PARTS[given.device]
    if given.device == "cuda" and not torch.cuda.is_available():
        print("bench/formulas.py: there is no GPU that torch can use; --device cpu measures the CPU", file=sys.stderr)
        return 1
    if given.first_child is not None:
        return first_child(given.device, given.first_child)
    for name in given.part or parts:
        if name not in parts:
            print(f"bench/formulas.py: there is no part '{name}' for --device {given.device}", file=sys.stderr)
            return 2
    if given.device == "cpu":
        keep_memory()
    torch.manual_seed(0)
    for name in given.part or parts:
        measure(name, given.device, given.quick)
    return 0


def measure(name: str, device: str, quick: bool) -> None:
    """One part, and its file."""
    state = {}
    if device == "cuda":
        gpu.keep_busy(1)
        state = {"gpu": torch.cuda.get_device_name(), "state_before": gpu.gpu_state()}
    print(f"{name}  {state.get('state_before', '')}", flush=True)
    rows = PARTS[device][name](device, quick)
    if quick:
        return
    if device == "cuda":
        state["state_after"] = gpu.gpu_state()
    kind = f"first-{device}" if name == "first" else name
    write_result(f"formulas-{kind}", {**environment(), **state, "method": METHODS[kind], "rows": rows})


if __name__ == "__main__":
    sys.exit(main())
