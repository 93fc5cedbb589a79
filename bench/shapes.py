"""Speed at shapes that nobody tuned for:  python bench/shapes.py [--device cuda|cpu] [--seed N] [--cells 200]

Draws operators, shapes and types as models have them, and their odd neighbours; the seed is printed. Prints the worst
cells first, and how many meet the line. Writes bench/results/shapes-<device>-…-<machine>-<date>.json.

cuda: time on the device of Tenon, PyTorch eager, torch.compile (for --compile-share of the cells, since it takes
  seconds for each shape) and Liger (from LIGER_PATH, the folder of its unzipped wheel). Every side is a CUDA graph of
  several calls, replayed in turns; the median counts. Liger's cross entropy waits for the device, which a graph
  cannot: it, and what else cannot be captured, is timed as calls in a row, with the time of Python in them, and the
  result says "queued". Gradients go through autograd, those of gamma and beta included.
  A copy of as many bytes is timed beside it, once by the copy engine and once by a kernel; the faster counts.
  A call that moves less than 128 MB runs on several sets of tensors in turn, up to 32, for every side alike: tensors
  of more than 4 MB come from memory, smaller ones from the L2 cache. The line: where more than 64 MB move, 0.92 of the
  copy's speed forward, 0.88 with gradient, 0.80 where rows begin at odd addresses; everywhere, at most 5% and half a
  microsecond slower than the fastest peer; a formula at most as much slower than the operator.
cpu: smaller shapes, against PyTorch eager with --threads; the line is 0.95 of its speed for each cell, and 2.0 for the
  geometric mean.

  --grid              the fixed grid instead: every size of the list, calls that move 8, 72, 512 and 2048 MB
  --goals             the calls through autograd for which a time was promised, beside that time
  --shape 4096x3001   these shapes, separated by commas, instead of drawn ones
  --clock cpu         CPU time of the calling thread, for one thread on a machine that others use at the same time
  --join FILES        measures nothing: the parts of the grid as one result
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import re
import statistics
import sys
import time
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import torch

import gpu
import run
from cells import GOALS, LIMITS, OPERATORS, Call, Cell, Rotation, drawn, goals, grid, liger, operators_for, sides_of
from formulas import compare_all, warm
from run import AGAIN, SLOW, TYPES, environment, keep_memory, write_result

PEERS = ("eager", "compile", "liger")
COLD, SETS = 128 << 20, 32  # bytes of all sets together that no cache keeps; sets at most
ENGINE_IN_GRAPH = 256 << 20  # a graph copies more than this more slowly than a stream does
LARGE = 64e6  # bytes from which on the copy is the measure
OF_COPY = {"forward": 0.92, "fwd+bwd": 0.88, "not aligned": 0.80}
SLOWER, SLOWER_US = 1.05, 0.5  # than the best peer, at most
MEAN = 2.0  # on the CPU
TURNS = 5
Row = dict[str, Any]


# ---- measuring -------------------------------------------------------------------------------------------------------


def set_count(nbytes: int) -> int:
    """How many sets of tensors a cell that moves so many bytes is measured on."""
    return max(1, min(SETS, math.ceil(COLD / nbytes)))


def copies(nbytes: int, sets: int) -> dict[str, Rotation]:
    """A copy that moves as many bytes, by the engine and by a kernel: half are read, half are written."""
    words = math.ceil(nbytes / 2 / 512) * 128
    apart = gpu.APART // 4
    engine: list[Call] = []
    kernel: list[Call] = []
    for _ in range(sets):
        memory = torch.randint(-(2**31), 2**31 - 1, (2 * words + apart,), dtype=torch.int32, device=gpu.DEVICE)
        source, target = memory[:words], memory[words + apart :]
        engine.append(lambda target=target, source=source: target.copy_(source))  # type: ignore[misc]
        kernel.append(lambda target=target, source=source: torch.bitwise_not(source, out=target))  # type: ignore[misc]
    return {"copy engine": Rotation(engine), "copy kernel": Rotation(kernel)}


def said(error: Exception) -> str:
    lines = f"{type(error).__name__}: {error}".splitlines()
    return lines[0][:200]


def in_graph(cell: Cell, side: str, nbytes: int) -> bool:
    if side == "liger":
        return not cell.operator.liger_waits
    return side != "copy engine" or nbytes <= ENGINE_IN_GRAPH


def replays_or_reason(name: str, call: Rotation, in_graph: bool, sets: int, row: Row) -> tuple[Call, int] | None:
    """What is replayed for a side. What cannot be captured is queued, what fails is left out, and the row says so."""
    if not in_graph and name != "copy engine":
        row[f"{name}_queued"] = "waits for the device"
    for graph in (True, False) if in_graph else (False,):
        try:
            return gpu.replays(call, graph, sets)
        except Exception as error:  # a peer may lack memory or a type: the others go on
            torch.cuda.synchronize()  # unless the device itself is lost
            if not graph or isinstance(error, torch.OutOfMemoryError):
                row[f"{name}_error"] = said(error)
                return None
            row[f"{name}_queued"] = said(error)
    return None


def on_gpu(cell: Cell, peers: Sequence[str], row: Row) -> dict[str, float]:
    """Microseconds on the device of each side that works."""
    torch._dynamo.reset()
    nbytes = row["bytes"]
    sets = set_count(nbytes)
    with torch.set_grad_enabled(cell.backward):
        sides = {**sides_of(cell, "cuda", peers, sets), **copies(nbytes, sets)}
        found = {
            name: replays_or_reason(name, call, in_graph(cell, name, nbytes), sets, row) for name, call in sides.items()
        }
        return gpu.take_turns({name: made for name, made in found.items() if made is not None}, TURNS)


def on_cpu(cell: Cell, peers: Sequence[str], row: Row) -> dict[str, float]:
    """Microseconds of each side; measured again where Tenon comes out slower, and the best of each side counts."""
    del row
    with torch.set_grad_enabled(cell.backward):
        sides: dict[str, Call] = {**sides_of(cell, "cpu", peers)}
        warm(sides["tenon"])
        us = compare_all(sides, quick=False, turns=3)
        for _ in range(AGAIN):
            if us.get("eager", math.inf) / us["tenon"] >= SLOW:
                break
            again = compare_all(sides, quick=False, turns=3)
            us = {side: min(us[side], again[side]) for side in us}
    return us


def measured(cell: Cell, device: str, peers: Sequence[str], threads: int = 0) -> Row:
    row: Row = {"op": cell.op, "shape": list(cell.shape), "type": cell.dtype, "pass": cell.direction}
    row |= {"layout": cell.layout, "aligned": cell.aligned, "bytes": cell.nbytes}
    if threads:
        row["threads"] = threads
        torch.set_num_threads(threads)
    try:
        us = (on_gpu if device == "cuda" else on_cpu)(cell, peers, row)
    except Exception as error:  # other cells may work, unless the device itself is lost
        if device == "cuda":
            torch.cuda.synchronize()
        return row | {"error": said(error), "misses": ["failed"]}
    finally:
        if device == "cuda":
            if cell.compile or row["bytes"] > 1 << 30:
                gc.collect()  # what torch.compile and autograd leave in cycles holds memory
            torch.cuda.empty_cache()
    return row | rated(row, us)


# ---- the line --------------------------------------------------------------------------------------------------------


def rated(row: Row, us: dict[str, float]) -> Row:
    """Times, what share of the copy's and the best peer's speed they are, and which lines the cell misses."""
    found: Row = {f"{side}_us": round(t, 2) for side, t in us.items() if not side.startswith("copy ")}
    ours = us.get("tenon")
    if ours is None:
        return {**found, "misses": ["failed"]}
    copy = min(((t, side) for side, t in us.items() if side.startswith("copy ")), default=None)
    if copy is not None:
        found |= {"copy_us": round(copy[0], 2), "copy_by": copy[1].removeprefix("copy ")}
        found["of_copy"] = round(copy[0] / ours, 3)
    best = min(((t, side) for side, t in us.items() if side in PEERS), default=None)
    if best is not None:
        found |= {"peer": best[1], "of_peer": round(best[0] / ours, 3)}
    if "operator" in us:
        found["of_operator"] = round(us["operator"] / ours, 3)
    return found | {"misses": misses({**row, **found})}


def needed(row: Row) -> float:
    """The share of the copy's speed that the line asks for; 0 where it asks for none."""
    if row["bytes"] <= LARGE or "of_copy" not in row or not OPERATORS[row["op"]].by_memory:
        return 0.0
    return OF_COPY[row["pass"] if row["aligned"] else "not aligned"]


def excess(row: Row, side: str) -> float:
    """Tenon's time as a multiple of what the line allows beside a side."""
    return float(row["tenon_us"] / (SLOWER * row[f"{side}_us"] + SLOWER_US))


def misses(row: Row) -> list[str]:
    """The lines that a cell misses: the copy, the peer, the operator that a formula stands for."""
    if "threads" in row:
        return ["peer"] if "peer" in row and row["of_peer"] < SLOW else []
    found = ["copy"] if row.get("of_copy", 0.0) < needed(row) else []
    found += ["peer"] if "peer" in row and excess(row, row["peer"]) > 1 else []
    return found + (["operator"] if "operator_us" in row and excess(row, "operator") > 1 else [])


def badness(row: Row) -> float:
    """How far beyond the line a cell is, the worst of its lines; above 1 it misses one."""
    if "tenon_us" not in row:
        return math.inf
    if "threads" in row:
        return SLOW / float(row.get("of_peer", math.inf))
    found = [needed(row) / row["of_copy"]] if "of_copy" in row else [0.0]
    found += [excess(row, row["peer"])] if "peer" in row else []
    return float(max(found + ([excess(row, "operator")] if "operator_us" in row else [])))


# ---- the report ------------------------------------------------------------------------------------------------------


def share(rows: Sequence[Row]) -> float:
    return round(sum(not row["misses"] for row in rows) / len(rows), 3)


def spread(values: Iterable[float]) -> dict[str, Any]:
    found = sorted(values)
    return {"cells": len(found), "worst": found[0], "median": round(statistics.median(found), 3)} if found else {}


def figures(rows: Sequence[Row]) -> dict[str, Any]:
    """Worst and median of some cells, and how many meet the line."""
    return {
        "cells": len(rows),
        "failed": sum("tenon_us" not in row for row in rows),
        "meet_the_line": share(rows),
        "of_copy": spread(row["of_copy"] for row in rows if needed(row)),
        "of_peer": spread(row["of_peer"] for row in rows if "peer" in row),
        "of_operator": spread(row["of_operator"] for row in rows if "of_operator" in row),
    }


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Of all cells."""
    ratios = [row["of_peer"] for row in rows if "peer" in row]
    large = [row for row in rows if needed(row)]
    made = figures(rows)
    if large:
        reach = sum("copy" not in row["misses"] for row in large)
        made["large_cells_that_reach_the_copy"] = round(reach / len(large), 3)
    return made | ({"geometric_mean_of_peer": round(statistics.geometric_mean(ratios), 3)} if ratios else {})


def by_operator(rows: Sequence[Row]) -> dict[str, dict[str, Any]]:
    """Of the cells of each operator and pass."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(f"{row['op']} {row['pass']}", []).append(row)
    return {name: figures(of) for name, of in sorted(found.items())}


def number(row: Row, key: str, form: str = "7.2f", width: int = 7) -> str:
    return f"{row[key]:{form}}" if key in row else "–".rjust(width)


def line(row: Row) -> str:
    shape = "x".join(map(str, row["shape"])) + ("" if row["layout"] == "dense" else f" {row['layout']}")
    threads = f" {row['threads']} threads" if "threads" in row else ""
    what = f"  {row['op']:<24} {row['pass']:<8} {row['type']:<5}{shape:<26}{threads}"
    if "tenon_us" not in row:
        return f"{what}  failed: {row.get('error') or row.get('tenon_error', '')}"
    times = (
        f"{row['bytes'] / 1e6:>8.1f} MB {row['tenon_us']:>10.2f} µs {number(row, 'of_copy')} {number(row, 'of_peer')}"
    )
    failed = "".join(f"; {key.removesuffix('_error')} failed" for key in row if key.endswith("_error"))
    missed = f"  misses: {', '.join(row['misses'])}" if row["misses"] else ""
    return f"{what} {times} {row.get('peer', ''):<8}{number(row, 'of_operator')}{missed}{failed}"


def spread_line(name: str, found: dict[str, Any]) -> str:
    return (
        f"  {name}: worst {found['worst']:.2f}, median {found['median']:.2f} of {found['cells']} cells" if found else ""
    )


def report(rows: Sequence[Row], worst: int, device: str) -> None:
    ordered = sorted(rows, key=badness, reverse=True)
    print(f"\nworst first ({min(worst, len(rows))} of {len(rows)} cells)")
    print(f"  {'operator':<24} {'pass':<8} {'type':<5}{'shape':<26}   moved         time of copy of peer")
    for row in ordered[:worst]:
        print(line(row))
    print(f"\n  {'operator and pass':<34} cells  of copy: worst  median   of peer: worst  median   meet the line")
    for name, of in by_operator(rows).items():
        shown = [f"{s[key]:.2f}" if s else "–" for s in (of["of_copy"], of["of_peer"]) for key in ("worst", "median")]
        print(
            f"  {name:<34} {of['cells']:>5} {shown[0]:>15} {shown[1]:>7} {shown[2]:>16} {shown[3]:>7} "
            f"{of['meet_the_line']:>15.0%}"
        )
    whole = summary(rows)
    print()
    for text in (
        spread_line(f"share of the copy's speed, more than {LARGE / 1e6:.0f} MB moved", whole.get("of_copy", {})),
        spread_line("speed beside the best peer", whole.get("of_peer", {})),
        spread_line("speed of formulas beside the operator", whole.get("of_operator", {})),
    ):
        if text:
            print(text)
    mean = whole.get("geometric_mean_of_peer")
    if mean is not None:
        goal = f" (the line: {MEAN:g})" if device == "cpu" else ""
        print(f"  geometric mean beside the best peer: {mean:.2f}{goal}")
    if "large_cells_that_reach_the_copy" in whole:
        reach = whole["large_cells_that_reach_the_copy"]
        print(f"  {reach:.1%} of the cells over {LARGE / 1e6:.0f} MB reach their share of the copy's speed")
    if rows:
        print(f"  {whole['cells']} cells, {whole['failed']} failed, {whole['meet_the_line']:.1%} meet the line")


def report_goals(rows: Sequence[Row]) -> None:
    print(f"\n  {'through autograd, bf16':<42} tenon µs   at most     copy µs    best peer")
    for row in rows:
        goal = GOALS[row["op"], tuple(row["shape"])]
        us = row.get("tenon_us", math.inf)
        peer = f"{row['peer']} {row[row['peer'] + '_us']:.0f}" if "peer" in row else "–"
        mark = "" if us <= goal else "  missed"
        name = f"{row['op']} {'x'.join(map(str, row['shape']))}"
        print(f"  {name:<40} {us:>10.1f} {goal:>9.0f} {row.get('copy_us', math.nan):>11.1f}    {peer}{mark}")


# ---- the program -----------------------------------------------------------------------------------------------------


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=list(LIMITS), default="cuda", help="cuda (default) or cpu")
    parser.add_argument("--seed", type=int, help="of the shapes (the time)")
    parser.add_argument("--cells", type=int, default=200, help="how many are drawn (200)")
    parser.add_argument("--grid", action="store_true", help="the fixed grid, not drawn cells")
    parser.add_argument("--goals", action="store_true", help="the calls for which a time was promised")
    parser.add_argument("--shape", metavar="SHAPES", help="these shapes, such as 4096x3001,1x50257")
    parser.add_argument("--types", default="bf16,f32", help="of --shape (bf16,f32)")
    parser.add_argument("--part", default="1/1", metavar="K/N", help="of the grid: every N-th cell, from the K-th on")
    parser.add_argument("--ops", metavar="NAMES", help="these operators, such as softmax,sum/first (all)")
    parser.add_argument("--only", metavar="PATTERN", help="cells whose name, as --list shows it, matches this")
    parser.add_argument("--seconds", type=float, default=math.inf, help="no further cell after so many seconds")
    parser.add_argument("--peers", default=",".join(PEERS), help=f"whom to compare with ({','.join(PEERS)})")
    parser.add_argument("--compile-share", type=float, default=0.15, help="of the cells that torch.compile gets (0.15)")
    parser.add_argument("--threads", default="1,2", help="on the CPU (1,2)")
    parser.add_argument("--clock", choices=list(run.CLOCKS), default="wall", help="what is measured on the CPU (wall)")
    parser.add_argument("--worst", type=int, default=40, help="how many cells are printed (40)")
    parser.add_argument("--join", nargs="+", type=Path, metavar="FILE", help="results that are parts of one grid")
    parser.add_argument("--list", action="store_true", help="print the cells; measure nothing")
    given = parser.parse_args(arguments)
    given.ops = given.ops.split(",") if given.ops else None
    given.peers = [peer for peer in given.peers.split(",") if peer]
    given.threads = [int(n) for n in given.threads.split(",")] if given.device == "cpu" else [0]
    if unknown := set(given.peers) - set(PEERS):
        parser.error(f"there is no peer '{min(unknown)}'; there are {', '.join(PEERS)}")
    if unknown := set(given.types.split(",")) - set(TYPES):
        parser.error(f"there is no type '{min(unknown)}'; there are {', '.join(TYPES)}")
    if not re.fullmatch(r"[1-9]\d*/[1-9]\d*", given.part) or int(given.part.split("/")[0]) > int(
        given.part.split("/")[1]
    ):
        parser.error(f"--part {given.part}: write K/N with K from 1 to N, such as 1/3")
    if given.clock == "cpu" and given.threads != [1]:
        parser.error("--clock cpu is the time of one thread: say --device cpu --threads 1 as well")
    if given.device == "cpu":
        given.peers = [peer for peer in given.peers if peer == "eager"]
    try:
        operators_for(given.device, given.ops)
    except ValueError as error:
        parser.error(str(error))
    if given.seed is None:
        given.seed = int(time.time())
    return given


def of_shapes(given: argparse.Namespace) -> list[Cell]:
    """Every operator that takes such a shape, both passes."""
    shapes = [tuple(int(n) for n in word.split("x")) for word in given.shape.split(",")]
    ranks = {"rows": 2, "blocks": 3}
    found = []
    for name in operators_for(given.device, given.ops):
        operator = OPERATORS[name]
        for shape in shapes:
            if len(shape) != ranks.get(operator.form, 4):
                continue
            for dtype in given.types.split(","):
                for backward in (False, True) if operator.again is not None else (False,):
                    found.append(Cell(name, backward, shape, dtype, compile=given.compile_share >= 1))
    return found


def chosen(given: argparse.Namespace) -> list[Cell]:
    if given.goals:
        cells: Iterable[Cell] = goals()
    elif given.shape:
        cells = of_shapes(given)
    elif given.grid:
        part, parts = map(int, given.part.split("/"))
        cells = grid(given.ops, given.compile_share)[part - 1 :: parts]
    else:
        cells = drawn(given.seed, given.device, given.ops, given.compile_share)
        if given.only:
            cells = islice(cells, 100 * given.cells)  # the pattern may match no cell at all
    if given.only:
        cells = (cell for cell in cells if re.search(given.only, cell.name))
    return list(cells if given.grid else islice(cells, given.cells))


def name_of(given: argparse.Namespace) -> str:
    if given.goals:
        return f"shapes-{given.device}-goals"
    part = "" if given.part == "1/1" else "-" + given.part.replace("/", "of")
    return f"shapes-{given.device}-grid{part}" if given.grid else f"shapes-{given.device}-seed{given.seed}"


def measure_all(cells: Sequence[Cell], given: argparse.Namespace) -> list[Row]:
    """Rows of the cells that there is time for; a device that is lost ends it, with what there is by then."""
    rows: list[Row] = []
    begin = shown = time.monotonic()
    for count, cell in enumerate(cells):
        now = time.monotonic()
        if now - begin > given.seconds:
            print(f"{count} of {len(cells)} cells: {given.seconds:g} s are over", file=sys.stderr)
            break
        if now - shown > 5:
            print(f"{count} of {len(cells)}, {now - begin:.0f} s: {cell.name}", file=sys.stderr, flush=True)
            shown = now
        try:
            rows += [measured(cell, given.device, given.peers, threads) for threads in given.threads]
        except RuntimeError as error:  # from waiting for the device after another error
            print(f"{cell.name}: {said(error)}; the device does not answer, and the run ends here", file=sys.stderr)
            break
    return rows


def usable_peers(peers: Sequence[str]) -> list[str]:
    if "liger" not in peers:
        return list(peers)
    try:
        liger()
    except ImportError as error:
        print(f"without Liger: {said(error)}", file=sys.stderr)
        return [peer for peer in peers if peer != "liger"]
    return list(peers)


def join(files: Sequence[Path], worst: int) -> int:
    """Reports parts of the grid as one, and keeps them so."""
    parts = [json.loads(path.read_text()) for path in files]
    rows = [row for part in parts for row in part["rows"]]
    whole = {**parts[0], "cells_chosen": sum(part["cells_chosen"] for part in parts)}
    whole["command"] = "; ".join(part["command"] for part in parts)
    report(rows, worst, "cuda")
    write_result("shapes-cuda-grid", {**whole, "summary": summary(rows), "operators": by_operator(rows), "rows": rows})
    return 0


def main() -> int:
    given = parse()
    if given.join:
        return join(given.join, given.worst)
    cells = chosen(given)
    if given.list:
        for cell in cells:
            mark = "" if cell.aligned else "  not aligned"
            print(f"{cell.name:<60} {cell.nbytes / 1e6:>9.1f} MB{mark}{'  compile' if cell.compile else ''}")
        print(f"{len(cells)} cells, seed {given.seed}")
        return 0
    if given.device == "cuda" and not torch.cuda.is_available():
        print("bench/shapes.py: there is no GPU that torch can use; --device cpu measures the CPU", file=sys.stderr)
        return 1
    state: Row = {}
    if given.device == "cpu":
        keep_memory()
        run.clock = given.clock
        state = {"clock": given.clock}
    print(f"{len(cells)} cells" + ("" if given.grid or given.goals else f", seed {given.seed}"), flush=True)
    torch.manual_seed(0)
    if given.device == "cuda":
        given.peers = usable_peers(given.peers)
        gpu.keep_busy(1)
        state = {"gpu": torch.cuda.get_device_name(), "state_before": gpu.gpu_state()}
    rows = measure_all(cells, given)
    if given.goals:
        report_goals(rows)
    report(rows, given.worst, given.device)
    if given.device == "cuda":
        state["state_after"] = gpu.gpu_state()
        state["method"] = f"replayed CUDA graphs, median of {TURNS} turns, the sides taking turns"
    if rows and given.peers and not given.shape and not given.only and not given.ops:
        drawn_anew = not given.grid and not given.goals
        whole = {"seed": given.seed if drawn_anew else None, "cells_chosen": len(cells), "peers": given.peers}
        found = {"summary": summary(rows), "operators": by_operator(rows), "rows": rows}
        write_result(name_of(given), {**environment(), **state, **whole, **found})
    return 0


if __name__ == "__main__":
    sys.exit(main())
