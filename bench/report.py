"""The newest results of each machine as tables:  python bench/report.py [--write]

--write puts them into docs/speed.md, and a summary into README.md, between the two comments that mark the place, and
draws the charts in docs/img. A test compares what stands there with the files that it names.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from charts import THEMES, Chart, Group

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "img"
BEGIN, END = "<!-- numbers: bench/report.py --write -->\n", "<!-- end of numbers -->\n"


def newest() -> list[Path]:
    """The last file of each kind and machine; the names end in the date. Of bench/shapes.py, that of the grid and those
    of all seeds of the last day."""
    files = [path for kind in SECTIONS for path in sorted((ROOT / "bench" / "results").glob(f"{kind}-*.json"))]
    last = {path.stem.rsplit("-", 3)[0]: path for path in files if not of_part(path)}
    days: dict[str, str] = {}
    for name, path in last.items():
        days[without_seed(name)] = max(days.get(without_seed(name), ""), path.stem[-10:])
    return [path for name, path in last.items() if path.stem[-10:] == days[without_seed(name)]]


def without_seed(name: str) -> str:
    return re.sub(r"-seed\d+", "", name)


def of_part(path: Path) -> bool:
    """A part of the grid, which stands in the file of the whole, or goals, which stand elsewhere."""
    return bool(re.match(r"shapes-\w+-(grid-\d+of\d+|goals)-", path.name))


def kind_of(path: Path) -> str:
    return next(kind for kind in SECTIONS if path.name.startswith(kind))


def section(path: Path) -> str:
    result: dict[str, Any] = json.loads(path.read_text())
    link = f"[{path.name}](../{path.relative_to(ROOT).as_posix()})"
    return "\n".join(SECTIONS[kind_of(path)](result, link)) + "\n"


def gpu_kernels(result: dict[str, Any], link: str) -> list[str]:
    lines = [
        "Time on the device, compared with a copy of the same bytes and with PyTorch eager. Measured on",
        f"{result['gpu']}, PyTorch {result['torch']}, {result['date']} ({link}, made by `{result['command']}`).",
        "",
        "| operator | shape | type | µs | TB/s | of the copy's speed | times as fast as PyTorch eager |",
        "|---|---|---|---|---|---|---|",
    ]
    for r in result["rows"]:
        peer = f"{r['times_eager']:.2f}" if "times_eager" in r else "–"
        speed = f"{r['tenon_us']:.0f} | {r['tb_per_s']:.2f} | {r['of_copy']:.0%}"
        lines.append(f"| {r['op']} | {r['shape']} | {r['type']} | {speed} | {peer} |")
    return lines


def gpu_training(result: dict[str, Any], link: str) -> list[str]:
    lines = [
        f"Forward and backward pass through autograd on the same machine, in µs ({link}):",
        "",
        "| operator | shape | type | Tenon | PyTorch eager | torch.compile |",
        "|---|---|---|---|---|---|",
    ]
    for r in result["rows"]:
        times = " | ".join(f"{r[side]:.0f}" for side in ("tenon_us", "eager_us", "compile_us"))
        lines.append(f"| {r['op']} | {r['shape']} | {r['type']} | {times} |")
    return lines


def of_best_and_worst(found: dict[str, Any]) -> str:
    return f"{found['worst']:.2f} | {found['median']:.2f}" if found else "– | –"


def shapes(result: dict[str, Any], link: str) -> list[str]:
    """A run of bench/shapes.py."""
    whole, where = result["summary"], result.get("gpu", result["cpu"])
    drawn = f"drawn with seed {result['seed']}" if result["seed"] is not None else "of the grid"
    peers = {"eager": "PyTorch eager", "compile": "torch.compile", "liger": "Liger"}
    beside = " and ".join(peers[name] for name in result["peers"])
    share, mean = whole["meet_the_line"], whole["geometric_mean_of_peer"]
    return [
        f"{whole['cells']} calls {drawn}, on {where}, PyTorch {result['torch']}, {result['date']}",
        f"({link}, made by `{result['command']}`):",
        f"{share:.1%} of them meet the line that `python bench/shapes.py --help` draws. Beside the fastest of",
        f"{beside} in each, Tenon is {mean:.2f} times as fast (geometric mean).",
        "",
        "| operator | pass | calls | of the copy's speed, over 64 MB: worst | median | of the best peer's speed: worst "
        "| median | meet the line |",
        "|---|---|---|---|---|---|---|---|",
        *(
            f"| {name.replace(' ', ' | ')} | {of['cells']} | {of_best_and_worst(of['of_copy'])} "
            f"| {of_best_and_worst(of['of_peer'])} | {of['meet_the_line']:.0%} |"
            for name, of in result["operators"].items()
        ),
    ]


def gpu_launch(result: dict[str, Any], link: str) -> list[str]:
    lines = [
        "How long a call from C takes on the CPU with small tensors, beside a bare launch by the driver: µs on",
        f"{result['gpu']}, {result['date']} ({link}, made by `{result['command']}`).",
        "",
        "| operator | shape | tn_run | a bare launch | difference |",
        "|---|---|---|---|---|",
    ]
    for r in result["rows"]:
        times = " | ".join(f"{r[key]:.1f}" for key in ("call_us", "bare_launch_us", "more_us"))
        lines.append(f"| {r['op']} | `{r['shape']}` | {times} |")
    return lines


def cpu(result: dict[str, Any], link: str) -> list[str]:
    rows = result["rows"]
    lines = [
        f"{result['cpu']}, {result['cores']} cores, PyTorch {result['torch']}, {result['date']}:",
        f"{len(rows)} rows in {link}, made by `{result['command']}`.",
        "How many times as fast as PyTorch, geometric mean over types, sizes, 1 and 2 threads:",
        "",
        "| operator | forward | forward + backward | slowest row |",
        "|---|---|---|---|",
    ]
    for op, of in result["summary"]["operators"].items():
        means = [mean([r["ratio"] for r in rows if r["op"] == op and r["pass"] == p]) for p in ("forward", "fwd+bwd")]
        lines.append(f"| {op} | {means[0]:.2f} | {means[1]:.2f} | {of['slowest']:.2f} |")
    whole = result["summary"]
    lines.append(f"| all | | {whole['geometric_mean']:.2f} over both | {whole['slowest']:.2f} |")
    return lines


def by_type(rows: list[dict[str, Any]]) -> list[dict[str, dict[str, Any]]]:
    """The rows of a formula and a pass together: f32 and bf16."""
    found: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    for r in rows:
        found.setdefault((r["op"], r["pass"]), {})[r["type"]] = r
    return list(found.values())


def both(of: dict[str, dict[str, Any]], cell: Callable[[dict[str, Any]], str]) -> str:
    """A cell for both types."""
    said = [cell(of[t]) if t in of else "–" for t in ("f32", "bf16")]
    return "" if set(said) <= {"", "–"} else " / ".join(said)


def times(side: str) -> Callable[[dict[str, Any]], str]:
    """A cell: how many times as fast as a side."""
    return lambda r: f"{r[f'{side}_us'] / r['tenon_us']:.2f}" if f"{side}_us" in r and "tenon_us" in r else ""


def formulas_gpu(result: dict[str, Any], link: str) -> list[str]:
    def error(r: dict[str, Any]) -> str:
        return f"{r['tenon_error']:.1e} ({r['torch_error']:.1e})" if "tenon_error" in r else ""

    lines = [
        f"Time on the device for f32 / bf16, {result['rows'][0]['shape']}, on {result['gpu']}, {result['date']}. We",
        "compare with a copy of the bytes that must move, with torch.compile, and with the operator written by hand",
        "(layer_norm for rms_norm). The last column is the largest error against float64, and PyTorch's",
        f"({link}, made by `{result['command']}`).",
        "",
        "| formula | pass | µs | of the copy's speed | times torch.compile | times the operator | error (PyTorch's) |",
        "|---|---|---|---|---|---|---|",
    ]
    for of in by_type(result["rows"]):
        r = next(iter(of.values()))
        cells = [both(of, lambda r: f"{r['tenon_us']:.0f}"), both(of, lambda r: f"{r['of_copy']:.0%}")]
        cells += [both(of, times("compile")), both(of, times("operator")), both(of, error)]
        lines.append(f"| {r['op']} | {r['pass']} | {' | '.join(cells)} |")
    return lines


Rows = list[dict[str, Any]]


def ratios(rows: Rows, side: str, of: str | None = None) -> list[tuple[float, dict[str, Any]]]:
    """How many times as fast as a side, the slowest first; `of` a pass."""
    chosen = [r for r in rows if f"{side}_us" in r and "tenon_us" in r and of in (None, r["pass"])]
    return sorted(((r[f"{side}_us"] / r["tenon_us"], r) for r in chosen), key=lambda pair: pair[0])


def means(rows: Rows, side: str, name: str) -> list[str]:
    """Geometric means of both passes, and the rows that are slower, by name."""
    parts = [f"{mean([x for x, _ in ratios(rows, side, of)]):.2f} {of}" for of in ("forward", "fwd+bwd")]
    slow = [(ratio, r) for ratio, r in ratios(rows, side) if ratio < 0.95]
    lines = [f"Against {name}: geometric mean {', '.join(parts)}; {len(slow)} of {len(ratios(rows, side))} rows are"]
    worst = ", ".join(f"{r['op']} {r['type']} {r['pass']} {ratio:.2f}" for ratio, r in slow[:8])
    return [*lines, f"slower by more than 5%{', the slowest ones: ' if worst else ''}{worst}.", ""]


def operators(result: dict[str, Any], link: str) -> list[str]:
    rows: Rows = result["rows"]
    where = result.get("gpu", result["cpu"])
    lines = [
        "How many times as fast as PyTorch eager, and as torch.compile of the same code, for f32 / bf16. Measured on",
        f"{where}, PyTorch {result['torch']}, {result['date']}. The code is in [bench/peers.py](../bench/peers.py),",
        f"times and shapes are in {link}, made by `{result['command']}`.",
        "",
        *means(rows, "eager", "PyTorch eager"),
        *means(rows, "compile", "torch.compile"),
        "| | forward: eager | torch.compile | forward and backward: eager | torch.compile |",
        "|---|---|---|---|---|",
    ]
    found = {(r["op"], r["pass"]): of for of in by_type(rows) for r in of.values()}
    for op in dict.fromkeys(r["op"] for r in rows):
        passes = [found.get((op, of), {}) for of in ("forward", "fwd+bwd")]
        cells = [both(types, times(side)) for types in passes for side in ("eager", "compile")]
        lines.append(f"| {op} | {' | '.join(cells)} |")
    return lines


def jax_speed(result: dict[str, Any], link: str) -> list[str]:
    rows: Rows = result["rows"]
    where = result.get("gpu", result["cpu"])
    lines = [
        "How many times as fast as the same formula in JAX, both compiled by `jax.jit`, for f32 / bf16. Measured on",
        f"{where}, JAX {result['jax']}, {result['date']}. The code is in [bench/jax_peers.py](../bench/jax_peers.py),",
        f"times and shapes are in {link}, made by `{result['command']}`.",
        "",
        *means(rows, "jit", "jax.jit"),
        "| | forward | forward and gradient |",
        "|---|---|---|",
    ]
    found = {(r["op"], r["pass"]): of for of in by_type(rows) for r in of.values()}
    for op in dict.fromkeys(r["op"] for r in rows):
        cells = [both(found.get((op, of), {}), times("jit")) for of in ("forward", "fwd+bwd")]
        lines.append(f"| {op} | {' | '.join(cells)} |")
    return lines


def cost_of_calls(rows: Rows, side: str, name: str, most: dict[str, float]) -> list[str]:
    """Of each pass how many rows cost more than `most` times what the side's call costs, and all of them."""
    found = {(r["op"], r["pass"]): r for r in rows if f"times_{side}" in r}
    lines = []
    for of, limit in most.items():
        share = {op: r[f"times_{side}"] for (op, way), r in found.items() if way == of}
        over = sorted(((ratio, op) for op, ratio in share.items() if ratio > limit), key=lambda pair: -pair[0])
        worst = ", ".join(f"{op} {ratio:.2f}" for ratio, op in over[:8])
        middle = mean(list(share.values()))
        lines.append(f"- {of}: geometric mean {middle:.2f}, {len(over)} of {len(share)} over {limit:g}")
        lines[-1] += f": {worst}" if worst else ""
    lines += [
        "",
        f"| | forward, µs | times {name} | forward and backward, µs | times {name} |",
        "|---|---|---|---|---|",
    ]
    for op in dict.fromkeys(r["op"] for r in rows):
        pair = [found.get((op, of)) for of in most]
        cells = [f"{r['tenon_us']:.1f} | {r[f'times_{side}']:.2f}" if r else " | " for r in pair]
        lines.append(f"| {op} | {' | '.join(cells)} |")
    return lines


def floor(rows: Rows) -> list[str]:
    """What recording costs by itself, of the rows where Tenon costs more than PyTorch."""
    over = [r for r in rows if "empty_us" in r and r["times_torch"] > 1]
    if not over:
        return []
    least = mean([r["empty_us"] / r["torch_us"] for r in over])
    ours = mean([r["times_torch"] for r in over])
    return [
        "",
        f"In {len(over)} rows with gradients, Tenon's call takes longer than PyTorch's: {ours:.2f} times as long in",
        f"the geometric mean. A `torch.autograd.Function` that computes nothing takes {least:.2f} of PyTorch's time by",
        "itself in these rows. Tenon has to use such a Function, because anything else would need a build for each",
        "version of PyTorch.",
    ]


def calls(result: dict[str, Any], link: str) -> list[str]:
    where = result.get("gpu") or (result["cpu"] if result["device"] == "cpu" else "a GPU")
    return [
        "How long a call takes on small tensors, in µs and as a multiple of PyTorch's time. Less is better. Measured",
        f"on {where}, PyTorch {result['torch']}, {result['date']} ({link}).",
        *floor(result["rows"]),
        "",
        *cost_of_calls(result["rows"], "torch", "PyTorch", {"forward": 1.2, "fwd+bwd": 1.0}),
    ]


def jax_costs(begin: str, result: dict[str, Any]) -> list[str]:
    return [begin, "", *cost_of_calls(result["rows"], "jit", "jax.jit", {"forward": 1.0, "fwd+bwd": 1.0})]


def jax_calls(result: dict[str, Any], link: str) -> list[str]:
    where = f"JAX {result['jax']}, {result.get('gpu', result['cpu'])}, {result['date']}"
    begin = "How long a compiled call takes on small arrays, in µs and as a multiple of `jax.jit` of the same\n"
    return jax_costs(f"{begin}formula. Less is better. Measured with {where} ({link}).", result)


def jax_programs(result: dict[str, Any], link: str) -> list[str]:
    begin = "The same for one of 20 calls in a program, each with arrays of its own. XLA makes CUDA graphs of\n"
    return jax_costs(f"{begin}these programs, and Tenon's calls are part of them ({link}).", result)


def formulas_first(result: dict[str, Any], link: str) -> list[str]:
    rows = result["rows"]
    where = result.get("gpu", result["cpu"])
    lines = [
        f"How long it takes from the text of a formula to its first result, in ms on {where}. We compare a formula",
        "that is new with one in the cache on disk, and the first use of Tenon in a process with later ones",
        f"({link}).",
        "",
        "| formula | nothing compiled, first | later | from the cache, first | later |",
        "|---|---|---|---|---|",
    ]
    total = {(r["formula"], r["cache"], r["process"]): r["total_ms"] for r in rows}
    for text in sorted({r["formula"] for r in rows}):
        keys = [(text, cache, process) for cache in ("empty", "full") for process in ("fresh", "running")]
        lines.append(f"| `{text}` | {' | '.join(f'{total[k]:.1f}' if k in total else '–' for k in keys)} |")
    return lines


def formulas_cpu(result: dict[str, Any], link: str) -> list[str]:
    threads = max(r["threads"] for r in result["rows"])
    largest = {t: max(r["shape"][0] for r in result["rows"] if r["type"] == t) for t in ("f32", "bf16")}
    rows = [r for r in result["rows"] if r["threads"] == threads and r["shape"][0] == largest[r["type"]]]
    lines = [
        f"{result['cpu']}, {threads} threads, tensors of 64 MiB, f32 / bf16, {result['date']}. We compare with the",
        "machine's own copy of the bytes that must move, and with PyTorch's operators one by one. Tensors that fit the",
        f"cache, and one thread, are in {link}, made by `{result['command']}`.",
        "",
        "| formula | pass | GB/s | of the copy's speed | times as fast as PyTorch |",
        "|---|---|---|---|---|",
    ]
    for of in by_type(rows):
        r = next(iter(of.values()))
        cells = [both(of, lambda r: f"{r['gb_per_s']:.1f}"), both(of, lambda r: f"{r['of_copy']:.0%}")]
        cells.append(both(of, lambda r: f"{r['ratio']:.2f}"))
        lines.append(f"| {r['op']} | {r['pass']} | {' | '.join(cells)} |")
    return lines


# By the beginning of the file's name, in the order of docs/speed.md.
SECTIONS = {
    "gpu-kernels": gpu_kernels,
    "gpu-training": gpu_training,
    "shapes-cuda": shapes,
    "operators-cuda": operators,
    "calls-cuda": calls,
    "gpu-launch": gpu_launch,
    "jax-speed-cuda": jax_speed,
    "jax-calls-cuda": jax_calls,
    "jax-programs-cuda": jax_programs,
    "formulas-gpu": formulas_gpu,
    "formulas-first-cuda": formulas_first,
    "cpu": cpu,
    "shapes-cpu": shapes,
    "calls-cpu": calls,
    "formulas-cpu": formulas_cpu,
    "formulas-first-cpu": formulas_first,
    "jax-speed-cpu": jax_speed,
    "jax-calls-cpu": jax_calls,
}


# What stands above them; results with the same heading stand together.
HEADINGS = {
    "gpu-kernels": "PyTorch on a GPU: large tensors",
    "gpu-training": "PyTorch on a GPU: large tensors",
    "shapes-cuda": "PyTorch on a GPU: shapes drawn anew",
    "operators-cuda": "PyTorch on a GPU: every operator",
    "calls-cuda": "PyTorch on a GPU: the cost of a call",
    "gpu-launch": "C on a GPU: the cost of a call",
    "jax-speed-cuda": "JAX on a GPU: every operator",
    "jax-calls-cuda": "JAX on a GPU: the cost of a call",
    "jax-programs-cuda": "JAX on a GPU: the cost of a call",
    "formulas-gpu": "Formulas on a GPU",
    "formulas-first-cuda": "Formulas on a GPU",
    "cpu": "PyTorch on the CPU",
    "shapes-cpu": "PyTorch on the CPU: shapes drawn anew",
    "calls-cpu": "PyTorch on the CPU: the cost of a call",
    "formulas-cpu": "Formulas on the CPU",
    "formulas-first-cpu": "Formulas on the CPU",
    "jax-speed-cpu": "JAX on the CPU",
    "jax-calls-cpu": "JAX on the CPU",
}


def mean(ratios: list[float]) -> float:
    """Geometric."""
    product = 1.0
    for ratio in ratios:
        product *= ratio ** (1 / len(ratios))
    return product


def named(page: str) -> list[Path]:
    """The results that the text between the comments links to."""
    return [ROOT / link for link in re.findall(r"\((?:\.\./)?(bench/results/[^)]*)\)", split(page)[1])]


def everything(files: list[Path]) -> str:
    """What stands between the comments of docs/speed.md: a list of the headings, and below each the results of it."""
    if not files:
        return "\nNo result is stored yet; `make bench` makes one.\n\n"
    under: dict[str, list[str]] = {}
    for path in files:
        under.setdefault(HEADINGS[kind_of(path)], []).append(section(path))
    links = [f"- [{title}](#{re.sub('[^a-z0-9- ]', '', title.lower()).replace(' ', '-')})\n" for title in under]
    parts = [f"## {title}\n\n" + "\n".join(sections) for title, sections in under.items()]
    return "\n" + "".join(links) + "\n" + "\n".join(parts) + "\n"


def few(files: list[Path]) -> str:
    """What stands between those of README.md: every operator beside PyTorch and JAX, and how long a formula takes."""
    results = {kind_of(path): (path, json.loads(path.read_text())) for path in files}
    if not set(SUMMARY) <= set(results):
        return "\nNo result is stored yet; `make bench` makes one.\n\n"
    links = [f"[{kind}]({results[kind][0].relative_to(ROOT).as_posix()})" for kind in SUMMARY]
    (_, of_torch), (_, of_jax), (_, first) = (results[kind] for kind in SUMMARY)
    lines = [
        f"On one {of_torch['gpu']} we timed the operators and modules in f32 and bf16, forward and with gradients,",
        "beside the same code in PyTorch and JAX, in the same run:",
        "",
        "| compared with | measurements | Tenon's speed, geometric mean | Tenon is slower by more than 5% in |",
        "|---|---|---|---|",
    ]
    for result, side, name in (
        (of_torch, "eager", f"PyTorch {of_torch['torch']}, eager"),
        (of_torch, "compile", f"PyTorch {of_torch['torch']}, `torch.compile`"),
        (of_jax, "jit", f"JAX {of_jax['jax']}, `jax.jit`"),
    ):
        found = [ratio for ratio, _ in ratios(result["rows"], side)]
        lines.append(f"| {name} | {len(found)} | {mean(found):.2f}× | {sum(r < 0.95 for r in found)} |")
    total = {cache: [r["total_ms"] for r in first["rows"] if r["cache"] == cache] for cache in ("empty", "full")}
    new, cached = (f"{min(times):.1f} to {max(times):.1f} ms" for times in (total["empty"], total["full"]))
    lines += [
        "",
        f"A new formula takes {new} from its text to the first result on the GPU. After that it is in a cache",
        f"on disk, and takes {cached}.",
        "",
        f"These numbers are from {links[0]}, {links[1]} and",
        f"{links[2]}.",
    ]
    return "\n" + "\n".join(lines) + "\n\n"


SUMMARY = ("operators-cuda", "jax-speed-cuda", "formulas-first-cuda")

PAGES = {ROOT / "docs" / "speed.md": everything, ROOT / "README.md": few}


# The operators of the charts, and what they are called there: the common ones, the slowest one among them.
SHOWN = {
    "softmax": "softmax",
    "layer_norm": "layer_norm",
    "rms_norm": "rms_norm",
    "batch_norm": "batch_norm",
    "cross_entropy": "cross_entropy",
    "bce_with_logits": "bce_with_logits",
    "mse": "mse",
    "scale_bias_relu": "relu(x * scale + bias)",
    "gelu": "gelu",
    "swiglu": "silu(x) * y",
    "dropout": "dropout",
    "sum": "sum",
}


def group(rows: Rows, op: str, sides: tuple[str, ...]) -> Group | None:
    """An operator in bf16 with its gradient."""
    r = next((r for r in rows if (r["op"], r["type"], r["pass"]) == (op, "bf16", "fwd+bwd")), None)
    if r is None:
        return None
    compared = tuple(r[f"{side}_us"] / r["tenon_us"] if f"{side}_us" in r else None for side in sides)
    return Group(SHOWN[op], f"{r['tenon_us']:.0f} µs", compared)


def peers(title: str, under: str, sides: dict[str, str]) -> Callable[[list[Path]], Chart]:
    """A chart of one result file: Tenon beside these sides, by the names that the results have for them."""

    def chart(files: list[Path]) -> Chart:
        (path,) = files
        result = json.loads(path.read_text())
        found = [group(result["rows"], op, tuple(sides)) for op in SHOWN]
        said = under.format(**result)
        return Chart(title, said, ("Tenon", *sides.values()), [g for g in found if g], f"bench/results/{path.name}")

    return chart


def plain(cpu: str) -> str:
    """The name of a CPU without its trade marks."""
    return re.sub(r"\(\w+\)| Processor", "", cpu)


def of_cpus(files: list[Path]) -> Chart:
    """Operators with kernels of their own on the CPU, forward and with gradients, all sizes and types together."""
    results = [json.loads(path.read_text()) for path in files]
    groups = []
    for op in results[0]["summary"]["operators"]:
        compared = tuple(mean([r["ratio"] for r in result["rows"] if r["op"] == op]) for result in results)
        groups.append(Group(op, "", compared))
    sides = ("Tenon", *(f"PyTorch, {result['machine']}" for result in results))
    machines = " and ".join(plain(result["cpu"]) for result in results)
    under = f"{machines}. Mean over types, sizes, threads and both passes. Shorter is faster"
    source = " and ".join(f"bench/results/{path.name}" for path in files)
    return Chart("Time on the CPU, as multiples of Tenon's time", under, sides, groups, source)


# By name: the kinds of results that a chart is of, and what draws it.
CHARTS: dict[str, tuple[tuple[str, ...], Callable[[list[Path]], Chart]]] = {
    "pytorch": (
        ("operators-cuda",),
        peers(
            "Forward and backward pass, as multiples of Tenon's time",
            "{gpu}, bf16, PyTorch {torch}. Shorter is faster; most tensors are 8192 x 8192",
            {"compile": "torch.compile", "eager": "PyTorch eager"},
        ),
    ),
    "jax": (
        ("jax-speed-cuda",),
        peers(
            "Value and gradient in JAX, as multiples of Tenon's time",
            "{gpu}, bf16, JAX {jax}, both sides compiled by jax.jit. Shorter is faster",
            {"jit": "jax.jit"},
        ),
    ),
    "cpu": (("cpu-x86_64", "cpu-aarch64"), of_cpus),
}


def newest_for(chart: str) -> list[Path]:
    return [max((ROOT / "bench" / "results").glob(f"{kind}-*.json")) for kind in CHARTS[chart][0]]


def drawn_from(chart: str) -> list[Path]:
    """The results that the stored chart names."""
    stored = (IMAGES / f"{chart}-{THEMES[0].name}.svg").read_text()
    return [ROOT / name for name in re.findall(r"bench/results/[\w.-]+\.json", stored)]


def images(chart: str, files: list[Path]) -> dict[Path, str]:
    """The files of a chart, and what belongs into them."""
    made = CHARTS[chart][1](files)
    return {IMAGES / f"{chart}-{theme.name}.svg": made.draw(theme) for theme in THEMES}


def split(page: str) -> tuple[str, str, str]:
    """A page up to the first comment, between the two, and from the second on."""
    head, _, rest = page.partition(BEGIN)
    middle, _, tail = rest.partition(END)
    return head + BEGIN, middle, END + tail


def main() -> int:
    if sys.argv[1:] != ["--write"]:
        print(everything(newest()))
        return 0
    for page, make in PAGES.items():
        head, _, tail = split(page.read_text())
        page.write_text(head + make(newest()) + tail)
    IMAGES.mkdir(exist_ok=True)
    for chart in CHARTS:
        for path, drawn in images(chart, newest_for(chart)).items():
            path.write_text(drawn)
    return 0


if __name__ == "__main__":
    sys.exit(main())
