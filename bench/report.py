"""The newest results of each machine as a table:  python bench/report.py [--write]

--write puts it into README.md, between the two comments that mark the place. A test compares what stands there with the
files that it names.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
BEGIN, END = "<!-- numbers: bench/report.py --write -->\n", "<!-- end of numbers -->\n"


def newest() -> list[Path]:
    """The last file of each machine; the names end in the date."""
    files = sorted((ROOT / "bench" / "results").glob("cpu-*.json"))
    return list({path.stem.rsplit("-", 3)[0]: path for path in files}.values())


def section(path: Path) -> str:
    result: dict[str, Any] = json.loads(path.read_text())
    rows = result["rows"]
    link = path.relative_to(ROOT).as_posix()
    lines = [
        f"{result['cpu']}, {result['cores']} cores, PyTorch {result['torch']}, {result['date']}:",
        f"{len(rows)} rows in [{path.name}]({link}), made by `{result['command']}`.",
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
    return "\n".join(lines) + "\n"


def mean(ratios: list[float]) -> float:
    """Geometric."""
    product = 1.0
    for ratio in ratios:
        product *= ratio ** (1 / len(ratios))
    return product


def named(readme: str) -> list[Path]:
    """The results that the text between the comments links to."""
    return [ROOT / link for link in re.findall(r"\((bench/results/[^)]*)\)", split(readme)[1])]


def text(files: list[Path]) -> str:
    """What stands between the comments."""
    sections = [section(path) for path in files]
    return "\n" + "\n".join(sections or ["No result is stored yet; `make bench` makes one.\n"]) + "\n"


def split(readme: str) -> tuple[str, str, str]:
    """README up to the first comment, between the two, and from the second on."""
    head, _, rest = readme.partition(BEGIN)
    middle, _, tail = rest.partition(END)
    return head + BEGIN, middle, END + tail


def main() -> int:
    if sys.argv[1:] == ["--write"]:
        head, _, tail = split(README.read_text())
        README.write_text(head + text(newest()) + tail)
    else:
        print(text(newest()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
