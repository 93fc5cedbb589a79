"""Every operator in JAX:  python bench/jax_operators.py [--device cuda|cpu] [--part NAME] [--quick] [OPERATOR …]

  speed     large arrays, f32 and bf16: forward, and forward with gradient, tenon.jax under jax.jit against jax.jit of
            the same formula
  calls     small arrays: what a call costs before it computes anything
  programs  the same for one of 20 calls in a program, each with arrays of its own, which XLA makes a CUDA graph of

The JAX code is that of bench/jax_peers.py. Sides run on the same random data, taking turns; a turn is as many calls as
fill some milliseconds, with one wait at its end; a side's time is the median over its turns. The gradient arrives after
the result, as in a training step: neither side may compute both at once. What an operator updates is donated, and the
next call gets it. Names choose operators; then no file is written. Else it is
bench/results/jax-<part>-<device>-<machine>-<date>.json.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp

import gpu
import tenon
import tenon.jax as tn
from formulas import warm
from jax_peers import OPERATORS, Given, Shape, make
from peers import LEAVES, kinds
from peers import OPERATORS as CALLS
from run import environment, keep_memory, write_result
from tenon._frameworks import JaxFunction
from tenon._public import identifier, shown_outputs
from tenon.jax._types import DTYPES

State = tuple[Any, ...]  # those that an operator updates

SIZES: dict[str, Mapping[str, Shape]] = {  # of x, by its form in bench/peers.py
    "cuda": {"rows": (16384, 8192), "features": (8192, 1024), "images": (128, 256, 64, 64)},
    "cpu": {"rows": (512, 1024), "features": (256, 256), "images": (8, 64, 32, 32)},
    "small": {"rows": (4, 64), "features": (4, 64), "images": (2, 4, 3, 3)},
}
TURNS = {"speed": (7, 0.01), "calls": (15, 0.003), "programs": (9, 0.003)}  # how many, and seconds of each
CALLS_OF = {"speed": 1, "calls": 1, "programs": 20}  # in a program
COMPILERS = 12  # threads


# ---- the programs ----------------------------------------------------------------------------------------------------


def forward(call: Callable[..., Any], given: Given, dy: None, state: State) -> tuple[Any, State]:
    """Outputs; what is updated goes into the next call."""
    made = call(given, state)
    made = made if isinstance(made, tuple) else (made,)
    outputs = len(made) - len(state)
    return made[:outputs], made[outputs:]


def step(call: Callable[..., Any], leaves: Sequence[str], given: Given, dy: Any, state: State) -> tuple[Any, State]:
    """The first output, and gradients of the leaves."""

    def of(chosen: Given) -> Any:
        outputs, after = forward(call, {**given, **chosen}, None, state)
        return outputs[0], after

    y, back, after = jax.vjp(of, {name: given[name] for name in leaves}, has_aux=True)
    y, dy = jax.lax.optimization_barrier((y, dy))
    return (y, *back(dy)), after


def repeated(call: Callable[..., Any], count: int) -> Callable[..., Any]:
    """A program that makes several calls, each behind the one before, with arrays of its own: XLA makes one call of two
    that have the same."""

    def program(given: Sequence[Given], dy: Sequence[Any], state: State) -> tuple[Any, State]:
        every, rest = [], (list(given), list(dy))
        for k in range(count):
            made, state = call(rest[0][k], rest[1][k], state)
            made, rest, state = jax.lax.optimization_barrier((made, rest, state))
            every.append(made)
        return every, state

    return program if count > 1 else call


class Case:
    """One comparison: the programs of both sides, and what they are given."""

    def __init__(self, op: str, dtype: str, backward: bool, sizes: Mapping[str, Shape], count: int = 1) -> None:
        self.op, self.dtype, self.backward, self.count = op, dtype, backward, count
        self.inputs, self.shape = CALLS[op].inputs, sizes[CALLS[op].form]
        names = list(kinds(self.inputs))
        self.updated = [p.name for p in tenon.ops()[op].inputs if p.inplace and p.name in names]
        public = JaxFunction(tenon.ops()[op], shown_outputs(tenon.ops()[op]))
        leaves = [name for name, kind in kinds(self.inputs).items() if kind in LEAVES]

        def ours(given: Given, state: State) -> Any:
            updated = dict(zip(self.updated, state, strict=True))
            return getattr(tn, identifier(op))(**public.keywords({**given, **updated, **CALLS[op].attrs}))

        def theirs(given: Given, state: State) -> Any:
            updated = dict(zip(self.updated, state, strict=True))
            return OPERATORS[op](*({**given, **updated}[name] for name in names))

        self.calls = {"tenon": ours, "jit": theirs}
        made = {
            s: partial(step, call, leaves) if backward else partial(forward, call) for s, call in self.calls.items()
        }
        self.programs = {side: jax.jit(repeated(call, count), donate_argnums=2) for side, call in made.items()}

    def __str__(self) -> str:
        return f"{self.op}-{self.dtype}-{self.direction}"

    @property
    def direction(self) -> str:
        return "fwd+bwd" if self.backward else "forward"

    def given(self) -> tuple[Given, State]:
        """Inputs that are only read, and the others."""
        made = make(self.inputs, self.shape, DTYPES[self.dtype])
        return made, tuple(made.pop(name) for name in self.updated)

    def arguments(self, given: Given, dy: Any, state: State) -> tuple[Any, Any, State]:
        """Those of a program, from those of a call."""
        if self.count == 1:
            return given, dy, state
        copies = [jax.tree.map(jnp.copy, (given, dy)) for _ in range(self.count)]
        return [one for one, _ in copies], [one for _, one in copies], state

    @cached_property
    def abstract(self) -> dict[str, tuple[Any, Any, Any]]:
        """The arguments of each side's program, without their numbers."""
        given, state = jax.eval_shape(self.given)
        if not self.backward:
            return dict.fromkeys(self.calls, (given, None, state))
        outputs = {
            side: jax.eval_shape(partial(forward, call), given, None, state)[0] for side, call in self.calls.items()
        }
        return {side: (given, made[0], state) for side, made in outputs.items()}  # a loss of bf16 is f32 in Tenon

    def sides(self) -> dict[str, Side]:
        made = {}
        for side, program in self.programs.items():
            dy = self.abstract[side][1]
            if dy is not None:
                dy = jax.random.normal(jax.random.key(1), dy.shape, dy.dtype) if dy.shape else jnp.ones((), dy.dtype)
            given, state = self.given()  # an updated input is each side's own
            made[side] = Side(program, *self.arguments(given, dy, state))
        return made

    def compile(self) -> None:
        for side, program in self.programs.items():
            arguments = jax.eval_shape(self.arguments, *self.abstract[side])
            program.lower(*arguments).compile()  # jit finds it there


class Side:
    """A program with its arguments: a call a user makes again and again."""

    def __init__(self, program: Callable[..., Any], given: Given, dy: Any, state: State) -> None:
        self.program, self.given, self.dy, self.state = program, given, dy, state

    def __call__(self) -> Any:
        made, self.state = self.program(self.given, self.dy, self.state)
        return made


def cases(ops: Iterable[str], sizes: Mapping[str, Shape], types: Sequence[str], count: int = 1) -> list[Case]:
    made = []
    for op in ops:
        smooth = tenon.ops()[op].rule is not None and bool(LEAVES & set(kinds(CALLS[op].inputs).values()))
        for dtype in (t for t in CALLS[op].types if t in types):
            made += [Case(op, dtype, backward, sizes, count) for backward in ((False, True) if smooth else (False,))]
    return made


def compile_all(of: Sequence[Case]) -> None:
    """By threads beside each other, before anything is measured."""

    def attempt(case: Case) -> None:
        try:
            case.compile()
        except Exception:  # it comes again when the case is measured, and is told there
            return

    begin = time.monotonic()
    with ThreadPoolExecutor(max(1, min(COMPILERS, os.cpu_count() or 1))) as pool:
        for count, _ in enumerate(pool.map(attempt, of), 1):
            if count % 50 == 0 or count == len(of):
                print(
                    f"  compiled: {2 * count} of {2 * len(of)} programs, {time.monotonic() - begin:.0f} s", flush=True
                )


# ---- timing ----------------------------------------------------------------------------------------------------------


def turn(side: Side, count: int) -> float:
    """Seconds of one of `count` calls in a row."""
    begin = time.perf_counter()
    for _ in range(count):
        made = side()
    jax.block_until_ready((made, side.state))
    return (time.perf_counter() - begin) / count


def compare(sides: Mapping[str, Side], turns: int, turn_s: float) -> dict[str, float]:
    """Microseconds of a call of each, taking turns."""
    counts = {}
    for name, side in sides.items():
        turn(side, 3)
        counts[name] = max(1, min(1000, math.ceil(turn_s / turn(side, 3))))
    times: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(turns):
        for name, side in sides.items():
            times[name].append(turn(side, counts[name]))
    return {name: 1e6 * statistics.median(of) for name, of in times.items()}


def keep_busy(seconds: float) -> None:
    """The clocks of an idle GPU are low; they rise when there is work."""
    x, end = jnp.zeros(1 << 26), time.monotonic() + seconds
    while time.monotonic() < end:
        for _ in range(20):
            x = x + 1
        x.block_until_ready()


def measured(case: Case, device: str, turns: int, turn_s: float) -> dict[str, Any]:
    row: dict[str, Any] = {"op": case.op, "shape": gpu.named(case.shape), "type": case.dtype, "pass": case.direction}
    sides = case.sides()
    for name in list(sides):
        try:
            turn(sides[name], 1)
        except Exception as error:  # the row says so, and the others go on
            row[f"{name}_error"] = f"{type(error).__name__}: {error}".splitlines()[0][:200]
            del sides[name]
    if device == "cpu" and "tenon" in sides:
        warm(partial(turn, sides["tenon"], 1))
    return row | {f"{name}_us": round(us / case.count, 2) for name, us in compare(sides, turns, turn_s).items()}


# ---- the parts -------------------------------------------------------------------------------------------------------


def run_part(part: str, names: Sequence[str], device: str, quick: bool) -> None:
    turns, turn_s = TURNS[part]
    turns = 3 if quick else turns
    sizes, types = (SIZES[device], ("f32", "bf16")) if part == "speed" else (SIZES["small"], ("f32",))
    of = cases(names or OPERATORS, sizes, types, CALLS_OF[part])
    print(part, flush=True)
    compile_all(of)
    state: dict[str, Any] = {}
    if device == "cuda":
        keep_busy(1)
        state = {"gpu": jax.devices()[0].device_kind, "state_before": gpu.gpu_state()}
    rows = []
    print(f"  {'':<20} {'type':<5} {'pass':<8}   tenon µs     jit µs   jit / tenon")
    for case in of:
        r = measured(case, device, turns, turn_s)
        if part != "speed" and "jit_us" in r and "tenon_us" in r:
            r["times_jit"] = round(r["tenon_us"] / r["jit_us"], 2)
        rows.append(r)
        ours, theirs = (r.get(f"{side}_us", math.nan) for side in ("tenon", "jit"))
        errors = "  ".join(f"{key}: {r[key]}" for key in r if key.endswith("_error"))
        times = f"{ours:>10.1f} {theirs:>10.1f} {theirs / ours:>12.2f}x"
        print(f"  {r['op']:<20} {r['type']:<5} {r['pass']:<8} {times}  {errors}", flush=True)
    ratios = [r["jit_us"] / r["tenon_us"] for r in rows if "jit_us" in r and "tenon_us" in r]
    if ratios:
        slower = f"{sum(ratio < 0.95 for ratio in ratios)} of {len(ratios)} slower than 0.95"
        print(f"\n  geometric mean: {statistics.geometric_mean(ratios):.2f} times as fast as jax.jit, {slower}")
    if quick or names:
        return
    if device == "cuda":
        state["state_after"] = gpu.gpu_state()
    method = f"median of {turns} turns of {turn_s * 1e3:g} ms each, the sides taking turns"
    method += f"; a program makes {CALLS_OF[part]} calls, of which one is shown" if CALLS_OF[part] > 1 else ""
    state |= {"device": device, "jax": jax.__version__, "method": method}
    write_result(f"jax-{part}-{device}", {**environment(), **state, "rows": rows})


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("names", nargs="*", metavar="OPERATOR", help="only these; writes no file")
    arguments.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="cpu (default) or cuda")
    arguments.add_argument("--part", choices=list(TURNS), action="append", help="only this part; may be repeated")
    arguments.add_argument("--quick", action="store_true", help="few turns; writes no file")
    given = arguments.parse_args()
    unknown = set(given.names) - set(OPERATORS)
    if unknown:
        print(f"bench/jax_operators.py: there is no operator {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    if given.device == "cpu":
        keep_memory()
        jax.config.update("jax_platforms", "cpu")
    try:
        jax.devices(given.device)
    except RuntimeError as error:
        print(f"bench/jax_operators.py: JAX finds no GPU; --device cpu measures the CPU ({error})", file=sys.stderr)
        return 1
    for part in given.part or TURNS:
        run_part(part, given.names, given.device, given.quick)
    return 0


if __name__ == "__main__":
    sys.exit(main())
