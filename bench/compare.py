"""Two builds of Tenon side by side:  python bench/compare.py --old BUILD --new BUILD [--device cuda] [OPERATOR …]

Before a change that must not cost speed lands, this shows that it does not. The program `tenon` of each build measures
its operators on their own shapes (`tenon bench --json`), a few operators at a time, the builds taking turns, for some
rounds; a row's time is the best of its medians, since what else the machine does can only make a call slower. Rows that
come out slower than --limit are measured again, up to --again times. On a GPU the time is that of a call in a CUDA
graph, and the time of `tn_run` on the CPU is compared as well. Ends with 1 where a row stays slower. Writes
bench/results/compare-<device>-<machine>-<date>.json.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results"
CHUNK = 6  # operators of a process
# Beside the operators' own: short rows, odd ones, long ones, few of them; and calls that take no time but their own.
SHAPES = {
    "softmax": ["s=[8, 16]", "s=[65536, 33]", "s=[4096, 1536]", "s=[1000, 50257]", "s=[512, 1000, 7] axis=1"],
    "softmax_grad": ["s=[65536, 33]", "s=[4096, 1536]"],
    "layer_norm": ["r=[8] c=16 gamma beta", "r=[65536] c=65 gamma beta", "r=[4096] c=1536 gamma", "r=[64] c=20001"],
    "layer_norm_grad": [f"r=[{r}] c={c} gamma want_dx=true want_dgamma=true" for r, c in ((4096, 1536), (64, 20001))],
    "cross_entropy": ["r=[4096] v=1000 target<v", "r=[1024] v=50257 target<v"],
    "sum": ["s=[8, 16] axes=[1]", "s=[4096, 1000] axes=[0]", "s=[4096, 1001] axes=[1]", "s=[16777217]"],
    "batch_norm": ["n=32 c=65 s=[7, 7] gamma beta", "n=4096 c=256 s=[] gamma beta"],
    "rms_norm": ["r=[8] c=16 gamma", "r=[4096] c=1536 gamma", "r=[64] c=20001 gamma"],
    "relu": ["s=[8, 16]", "s=[1000003]"],
    "gelu": ["s=[8, 16]", "s=[1000003]"],
    "adamw_step": ["s=[1000003] lr>0 step>0 v>0"],
}
Key = tuple[str, str, str, str]  # operator, shape, type, what was measured
Times = dict[Key, float]


def operators(program: Path) -> list[str]:
    table = json.loads(subprocess.run([program, "ops", "--json"], check=True, capture_output=True, text=True).stdout)
    return [row["name"] for row in table]


def measure(program: Path, arguments: Sequence[str], given: argparse.Namespace) -> Times:
    """Seconds of each row, by one process."""
    command = [program, "bench", *arguments, "--json", "--ms", str(given.ms), "--dtype", given.dtype]
    command += ["--device", given.device] if given.device != "cpu" else ["--threads", str(given.threads)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))}:\n{done.stderr}")
    times: Times = {}
    for row in json.loads(done.stdout)["results"]:
        for what in ("run", "call"):
            if what in row:
                times[row["operator"], row["shape"], row["dtype"], what] = row[what]["median_s"]
    return times


def keep_best(best: Times, measured: Times) -> None:
    for key, seconds in measured.items():
        best[key] = min(best.get(key, seconds), seconds)


def take_turns(names: Sequence[str], given: argparse.Namespace, old: Times, new: Times) -> None:
    work = [list(names[first : first + CHUNK]) for first in range(0, len(names), CHUNK)]
    work += [[name, "--shape", shape] for name in names for shape in SHAPES.get(name, [])]
    for arguments in work:
        keep_best(old, measure(given.old / "tenon", arguments, given))
        keep_best(new, measure(given.new / "tenon", arguments, given))


def slower(old: Times, new: Times, limit: float) -> list[Key]:
    return [key for key, seconds in old.items() if key in new and new[key] > seconds * limit]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("operators", nargs="*", metavar="OPERATOR", help="only these (all that both builds have)")
    parser.add_argument("--old", type=Path, required=True, metavar="BUILD", help="folder with tenon and libtenon.so")
    parser.add_argument("--new", type=Path, required=True, metavar="BUILD")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N (cpu)")
    parser.add_argument("--dtype", default="f32,bf16", help="types (f32,bf16)")
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1), help="on the CPU (2)")
    parser.add_argument("--ms", type=int, default=60, help="milliseconds for each row and turn (60)")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each build (3)")
    parser.add_argument("--again", type=int, default=4, help="further rounds for rows that come out slower (4)")
    parser.add_argument("--minutes", type=float, default=60, help="no further round after so many minutes (60)")
    parser.add_argument("--limit", type=float, default=1.03, help="times as slow is too slow (1.03)")
    return parser.parse_args()


def report(given: argparse.Namespace, old: Times, new: Times) -> dict[str, Any]:
    rows = [
        {
            "operator": key[0],
            "shape": key[1],
            "type": key[2],
            "time": key[3],
            "old_us": round(old[key] * 1e6, 3),
            "new_us": round(new[key] * 1e6, 3),
            "ratio": round(new[key] / old[key], 4),
        }
        for key in old
        if key in new
    ]
    ratios = {what: [r["ratio"] for r in rows if r["time"] == what] for what in ("run", "call")}
    return {
        "command": " ".join(["python", os.path.relpath(sys.argv[0]), *sys.argv[1:]]),
        "date": datetime.date.today().isoformat(),
        "machine": platform.machine(),
        "device": given.device,
        "method": f"best of {given.rounds} medians or more, the builds taking turns; ratio: new by old time",
        "summary": {
            what: {"rows": len(of), "geometric_mean": round(statistics.geometric_mean(of), 4), "slowest": max(of)}
            for what, of in ratios.items()
            if of
        },
        "rows": rows,
    }


def write(name: str, made: dict[str, Any]) -> None:
    path = RESULTS / f"{name}-{platform.machine()}-{made['date']}.json"
    text = json.dumps({k: v for k, v in made.items() if k != "rows"}, indent=1)[:-2]
    lines = ",\n".join("  " + json.dumps(row) for row in made["rows"])
    path.write_text(f'{text},\n "rows": [\n{lines}\n ]\n}}\n')
    print(f"written: {os.path.relpath(path)}")


def main() -> int:
    given = parse()
    theirs = set(operators(given.old / "tenon"))
    names = given.operators or [name for name in operators(given.new / "tenon") if name in theirs]
    old: Times = {}
    new: Times = {}
    end = time.monotonic() + 60 * given.minutes
    for turn in range(given.rounds):
        take_turns(names, given, old, new)
        print(f"round {turn + 1} of {given.rounds}: {len(slower(old, new, given.limit))} rows slower", flush=True)
        if time.monotonic() > end:
            break
    for _ in range(given.again):
        left = sorted({key[0] for key in slower(old, new, given.limit)})
        if not left or time.monotonic() > end:
            break
        print(f"again: {' '.join(left)}", flush=True)
        take_turns(left, given, old, new)
    made = report(given, old, new)
    print(json.dumps(made["summary"]))
    left_over = slower(old, new, given.limit)
    for key in left_over:
        print(f"  slower: {' '.join(key)}  {old[key] * 1e6:.2f} -> {new[key] * 1e6:.2f} us")
    if not given.operators:
        write(f"compare-{given.device.partition(':')[0]}", made)
    return 1 if left_over else 0


if __name__ == "__main__":
    sys.exit(main())
