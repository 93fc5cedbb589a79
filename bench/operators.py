"""Every operator, module and optimiser against PyTorch:  python bench/operators.py [--device cuda|cpu] [--part NAME]

  speed   large tensors, f32 and bf16: forward, and forward with backward by autograd, against PyTorch eager and
          torch.compile. On a GPU time on the device, as bench/gpu.py has it; optimisers as steps that a user makes
  calls   small tensors: what a call costs before it computes anything, against PyTorch eager and, where a gradient is
          recorded, a torch.autograd.Function that computes nothing

The PyTorch code is that of bench/peers.py. Sides run on the same random data, taking turns; a side's time is the median
over its turns. On a GPU, processes beside each other compile first what torch.compile will then find on disk. Names
after the options choose rows (gelu, nn.GELU, optim.AdamW); then no file is written. Else it is
bench/results/operators-<device>-<machine>-<date>.json, or calls-<device>-….
"""

from __future__ import annotations

import argparse
import atexit
import copy
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import gpu
import run
import tenon
import tenon.torch as tn
from formulas import compare_all, warm
from peers import LEAVES, MODULES, OPERATORS, OPTIMISERS, Peer, Shape, kinds, leaves, make
from run import TYPES, environment, keep_memory, write_result

Call = Callable[[], Any]
Sizes = Mapping[str, Shape]  # of x, by its form in bench/peers.py

SIZES: dict[str, Sizes] = {
    "cuda": {
        "rows": (8192, 8192),
        "images": (64, 256, 56, 56),
        "series": (64, 256, 3136),
        "volumes": (64, 256, 8, 14, 28),
        "features": (8192, 1024),
    },
    "cpu": {
        "rows": (512, 1024),
        "images": (8, 64, 32, 32),
        "series": (8, 64, 1024),
        "volumes": (8, 64, 8, 8, 16),
        "features": (256, 256),
    },
    "small": {
        "rows": (4, 64),
        "images": (2, 4, 3, 3),
        "series": (2, 4, 9),
        "volumes": (2, 4, 3, 3, 2),
        "features": (4, 64),
    },
}
AHEAD = 12  # processes that compile
TURNS, TURN_S = 25, 0.001  # of calls: short ones, which other processes seldom interrupt
# Per call, on small tensors: at most so many times PyTorch's time.
MOST = {"forward": 1.2, "fwd+bwd": 1.0}


# ---- rows and their sides --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Side:
    """One of the calls that are compared, and what a backward pass through it is taken of."""

    call: Call
    leaves: Sequence[Tensor] = ()


def differentiable(outputs: Any) -> Tensor:
    """The result that has a gradient: the first, where indices come with it."""
    y: Tensor = outputs if isinstance(outputs, Tensor) else outputs[0]
    return y


def gradient_like(y: Tensor) -> Tensor:
    return torch.randn_like(y) if y.ndim else torch.ones_like(y)


def step(side: Side, dy: Tensor) -> Sequence[Tensor]:
    return torch.autograd.grad(differentiable(side.call()), side.leaves, dy)


class Empty(torch.autograd.Function):
    """The least that an operator costs whose gradient is known to Python: memory for results, and nothing computed."""

    @staticmethod
    def forward(ctx: Any, shape: Sequence[int], *leaves: Tensor) -> Tensor:
        ctx.save_for_backward(*leaves)
        return leaves[0].new_empty(shape)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return None, *(torch.empty_like(leaf) for leaf in ctx.saved_tensors)


Empty._backward_cls.apply = Empty.backward  # type: ignore[attr-defined]  # the short ways that tenon.torch goes, too
empty = vars(torch._C._FunctionBase)["apply"].__get__(None, Empty)


@dataclass(frozen=True)
class Row:
    name: str
    form: str
    types: Sequence[str]
    backward: bool  # whether there is one
    make: Callable[[Shape, torch.dtype, str], dict[str, Side]]  # tenon, eager, compile
    comparable: bool = True  # the results are the same
    whole_steps: bool = False  # on a GPU, it is steps that are timed

    def calls(self, sizes: Sizes, dtype: str, device: str, backward: bool, least: bool = False) -> dict[str, Call]:
        """By side. With `least`, there is one for what recording costs by itself: it computes nothing."""
        torch.manual_seed(0)
        sides = self.make(sizes[self.form], TYPES[dtype], device)
        if not backward:
            return {name: side.call for name, side in sides.items()}
        for leaf in {id(leaf): leaf for side in sides.values() for leaf in side.leaves}.values():
            leaf.requires_grad_()
        with torch.no_grad():
            # A loss of bf16 is f32 in Tenon.
            ours, theirs = differentiable(sides["tenon"].call()), differentiable(sides["eager"].call())
        dy = gradient_like(theirs)
        dys = {name: dy.to(ours.dtype) if name == "tenon" else dy for name in sides}
        if least:
            sides["empty"] = Side(partial(empty, ours.shape, *sides["tenon"].leaves), sides["tenon"].leaves)
            dys["empty"] = dys["tenon"]
        return {name: partial(step, side, dys[name]) for name, side in sides.items()}


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    made: Callable[..., Any] = torch.compile(function, dynamic=False)
    return made


def operator_sides(op: str, peer: Peer, shape: Shape, dtype: torch.dtype, device: str) -> dict[str, Side]:
    given = make(peer.inputs, shape, dtype, device)
    of = leaves(peer.inputs, given)
    writes = any(p.inplace for p in tenon.ops()[op].inputs)
    others = copy.deepcopy(given) if writes else given
    of_others = leaves(peer.inputs, others)
    theirs = peer.theirs(others)
    traced = compiled(peer.compiled or peer.written)
    return {
        "tenon": Side(peer.ours(op, given), of),
        "eager": Side(theirs, of_others),
        "compile": Side(partial(traced, *theirs.args), of_others),
    }


def module_sides(name: str, shape: Shape, dtype: torch.dtype, device: str) -> dict[str, Side]:
    row = MODULES[name]
    args = row.args(shape)
    ours: nn.Module = getattr(tn.nn, name)(**args).to(device, dtype)
    theirs: nn.Module = (row.theirs or getattr(nn, name))(**args).to(device, dtype)
    theirs.load_state_dict(ours.state_dict())
    given = make(row.inputs, shape, dtype, device)
    of = leaves(row.inputs, given)
    modules: dict[str, Callable[..., Any]] = {"tenon": ours, "eager": theirs, "compile": compiled(theirs)}
    weights = {"tenon": list(ours.parameters()), "eager": list(theirs.parameters())}
    weights["compile"] = weights["eager"]
    return {side: Side(partial(module, *given.values()), [*of, *weights[side]]) for side, module in modules.items()}


def optimiser_sides(name: str, shape: Shape, dtype: torch.dtype, device: str) -> dict[str, Side]:
    def parameters() -> list[nn.Parameter]:
        torch.manual_seed(0)
        given = make("p:[fixed], g:[fixed]", shape, dtype, device)
        made = [nn.Parameter(p) for p in given["p"]]
        for p, g in zip(made, given["g"], strict=True):
            p.grad = g
        return made

    ours, theirs, traced = (optimiser(parameters()) for optimiser in OPTIMISERS[name])
    return {"tenon": Side(ours), "eager": Side(theirs), "compile": Side(compiled(traced))}


def operator_row(op: str, peer: Peer) -> Row:
    backward = tenon.ops()[op].rule is not None and bool(LEAVES & set(kinds(peer.inputs).values()))
    return Row(op, peer.form, peer.types, backward, partial(operator_sides, op, peer), not peer.random)


ROWS: list[Row] = [
    *(operator_row(op, peer) for op, peer in OPERATORS.items()),
    *(
        Row(f"nn.{name}", row.form, ("f32", "bf16"), True, partial(module_sides, name), not row.random)
        for name, row in MODULES.items()
    ),
    # 16-bit parameters have f32 states in Tenon, and 16-bit ones in PyTorch: there is nothing to compare.
    *(
        Row(f"optim.{name}", "rows", ("f32",), False, partial(optimiser_sides, name), whole_steps=True)
        for name in OPTIMISERS
    ),
]


# ---- speed -----------------------------------------------------------------------------------------------------------


def works(row: dict[str, Any], side: str, call: Call) -> bool:
    """Whether a side can be called; if not, the row says why."""
    try:
        call()
    except Exception as error:  # PyTorch's code may not have every type on every device, and the others go on
        row[f"{side}_error"] = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        return False
    return True


def times(row: Row, found: dict[str, Any], calls: dict[str, Call], device: str, quick: bool) -> dict[str, float]:
    """Microseconds of each side. What cannot be captured in a graph is timed as steps, and the row says so."""
    if device == "cpu":
        warm(calls["tenon"])
        return compare_all(calls, quick)
    if not row.whole_steps:
        try:
            return gpu.device_us(calls, gpu.FEW_TURNS)
        except RuntimeError as error:
            found["not_captured"] = str(error).splitlines()[0][:200]
    return gpu.step_us(calls, turns=gpu.FEW_TURNS)


def cases(rows: Iterable[Row]) -> Iterable[tuple[Row, str, bool]]:
    for row in rows:
        for dtype in row.types:
            for backward in (False, True) if row.backward else (False,):
                yield row, dtype, backward


def measured(row: Row, dtype: str, backward: bool, device: str, quick: bool) -> dict[str, Any]:
    torch._dynamo.reset()
    shape = SIZES[device][row.form]
    found: dict[str, Any] = {"op": row.name, "shape": gpu.named(shape), "type": dtype}
    found["pass"] = "fwd+bwd" if backward else "forward"
    with torch.set_grad_enabled(backward):
        calls = row.calls(SIZES[device], dtype, device, backward)
        if quick:
            del calls["compile"]
        calls = {side: call for side, call in calls.items() if works(found, side, call)}
        if "tenon" in calls:
            us = times(row, found, calls, device, quick)
            found |= {f"{side}_us": round(t, 2) for side, t in us.items()}
    return found


def speed(rows: Sequence[Row], device: str, quick: bool) -> list[dict[str, Any]]:
    found = []
    print(f"  {'':<24} {'type':<5} {'pass':<8}   tenon µs   eager µs  compile µs   of eager  of compile")
    for row, dtype, backward in cases(rows):
        r = measured(row, dtype, backward, device, quick)
        found.append(r)
        us = [r.get(f"{side}_us", math.nan) for side in ("tenon", "eager", "compile")]
        line = f"{us[0]:>10.1f} {us[1]:>10.1f} {us[2]:>11.1f} {us[1] / us[0]:>9.2f}x {us[2] / us[0]:>10.2f}x"
        errors = "  ".join(f"{key}: {r[key]}" for key in r if key.endswith("_error") or key == "not_captured")
        print(f"  {row.name:<24} {dtype:<5} {r['pass']:<8} {line}  {errors}", flush=True)
        if device == "cuda":
            torch.cuda.empty_cache()
    for side in ("eager", "compile"):
        ratios = [r[f"{side}_us"] / r["tenon_us"] for r in found if f"{side}_us" in r]
        if ratios:
            print(
                f"\n  geometric mean: {statistics.geometric_mean(ratios):.2f} times as fast as {side}, "
                f"{sum(ratio < 0.95 for ratio in ratios)} of {len(ratios)} slower than 0.95"
            )
    return found


# ---- torch.compile's work, ahead -------------------------------------------------------------------------------------


def compile_some(rows: Sequence[Row], device: str, share: str) -> None:
    """Every n-th case once, from the k-th on: what is compiled stays on disk."""
    k, n = map(int, share.split("/"))
    for row, dtype, backward in list(cases(rows))[k::n]:
        torch._dynamo.reset()
        with torch.set_grad_enabled(backward):
            call = row.calls(SIZES[device], dtype, device, backward)["compile"]
            for _ in range(3):  # an optimiser's second step is another program than its first, which makes its state
                if not works({}, "compile", call):
                    break


def compile_ahead(names: Sequence[str], device: str) -> None:
    """By processes beside each other. Which variant of a kernel is fastest is found later, when nothing else runs."""
    begin = time.monotonic()
    cache = tempfile.mkdtemp(prefix="tenon-bench-")
    atexit.register(shutil.rmtree, cache, ignore_errors=True)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
    count = max(1, min(AHEAD, (os.cpu_count() or 1) - 2))
    command = [sys.executable, os.path.abspath(__file__), "--device", device, *names]
    settings = {**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    children = [subprocess.Popen([*command, "--ahead", f"{k}/{count}"], env=settings) for k in range(count)]
    for child in children:
        child.wait()
    for choice in Path(cache).rglob("*.best_config"):
        choice.unlink()
    print(f"  torch.compile, by {count} processes: {time.monotonic() - begin:.0f} s", flush=True)


# ---- calls -----------------------------------------------------------------------------------------------------------


def calls(rows: Sequence[Row], device: str, quick: bool) -> list[dict[str, Any]]:
    torch.set_num_threads(1)
    found: list[dict[str, Any]] = []
    print(f"  {'':<24} {'pass':<9}    tenon µs    torch µs    empty µs   tenon / torch")
    for row, dtype, backward in cases(rows):
        if dtype != "f32":
            continue
        name = "fwd+bwd" if backward else "forward"
        with torch.set_grad_enabled(backward):
            sides = row.calls(SIZES["small"], dtype, device, backward, least=True)
            compared = {"tenon": sides["tenon"], "torch": sides["eager"]}
            if backward:
                compared["empty"] = sides["empty"]
            us = compare_all(compared, quick, TURNS, TURN_S)
        r: dict[str, Any] = {"op": row.name, "pass": name, **{f"{side}_us": round(t, 2) for side, t in us.items()}}
        r["times_torch"] = round(us["tenon"] / us["torch"], 2)
        found.append(r)
        mark = "  over" if r["times_torch"] > MOST[name] else ""
        nothing = f"{us['empty']:>11.2f}" if backward else 11 * " "
        times = f"{us['tenon']:>11.2f} {us['torch']:>11.2f} {nothing} {r['times_torch']:>15.2f}{mark}"
        print(f"  {row.name:<24} {name:<9} {times}")
    for name, most in MOST.items():
        of = [r["times_torch"] for r in found if r["pass"] == name]
        print(f"\n  {name}: {sum(ratio > most for ratio in of)} of {len(of)} over {most:g}")
    return found


# ---- the parts -------------------------------------------------------------------------------------------------------

PARTS = {"speed": speed, "calls": calls}


def run_part(part: str, names: Sequence[str], device: str, quick: bool) -> None:
    rows = [row for row in ROWS if not names or row.name in names]
    state: dict[str, Any] = {}
    print(part, flush=True)
    if device == "cuda":
        if part == "speed" and not quick:
            compile_ahead(names, device)
        gpu.keep_busy(1)
        state = {"gpu": torch.cuda.get_device_name(), "state_before": gpu.gpu_state()}
    found = PARTS[part](rows, device, quick)
    if quick or names:
        return
    if device == "cuda":
        state["state_after"] = gpu.gpu_state()
    title = {"speed": "operators", "calls": "calls"}[part]
    state |= {"device": device, "method": method(part, device)}
    write_result(f"{title}-{device}", {**environment(), **state, "rows": found})


def method(part: str, device: str) -> str:
    if part == "speed" and device == "cuda":
        return f"median of {gpu.FEW_TURNS} turns, the sides taking turns"
    turns, ms = (TURNS, TURN_S * 1e3) if part == "calls" else (run.TURNS, run.TURN_S * 1e3)
    return f"best of {run.ROUNDS} medians of {turns} turns of {ms:g} ms each, the sides taking turns"


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("names", nargs="*", metavar="NAME", help="only these rows; writes no file")
    arguments.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="cpu (default) or cuda")
    arguments.add_argument("--part", choices=list(PARTS), action="append", help="only this part; may be repeated")
    arguments.add_argument("--quick", action="store_true", help="few turns, no torch.compile; writes no file")
    arguments.add_argument("--ahead", help=argparse.SUPPRESS)
    given = arguments.parse_args()
    unknown = set(given.names) - {row.name for row in ROWS}
    if unknown:
        print(f"bench/operators.py: there is no row {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    if given.device == "cuda" and not torch.cuda.is_available():
        print("bench/operators.py: there is no GPU that torch can use; --device cpu measures the CPU", file=sys.stderr)
        return 1
    if given.ahead:
        compile_some([row for row in ROWS if not given.names or row.name in given.names], given.device, given.ahead)
        return 0
    if given.device == "cpu":
        keep_memory()
    for part in given.part or PARTS:
        run_part(part, given.names, given.device, given.quick)
    return 0


if __name__ == "__main__":
    sys.exit(main())
