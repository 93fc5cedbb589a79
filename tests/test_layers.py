"""The house keeps its order: includes point down, folders are small, names are used once, lines are short.

The order is data, here and nowhere else. A check returns what is wrong, a line each; planted faults try the checks.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# From the top down. A file may include files of its own row and of those below. A row names folders, with all that is
# in them, or files.
LAYERS = [
    ["cli", "adapters"],
    ["src/engine", "src/serve", "src/tape", "src/comm"],
    ["src/tenon.c"],
    ["src/ops"],
    ["src/text"],
    ["src/fuse"],
    ["src/cpu", "src/cuda"],
    ["src/core/run"],
    ["src/core/table"],
    ["src/core/contract"],
    ["src/core/layout"],
    ["src/core/host"],
    ["src/glibc"],
]

# The contract language is pure: of what is below it, it takes these alone, and it calls no part of the layers above.
CONTRACT = "src/core/contract/"
CONTRACT_TAKES = {"src/core/host/memory.h", "src/core/host/status.h", "src/core/host/text.h"}
CONTRACT_CALLS_NONE = r"\b(tn_find|tn_function_\w+|tn_run|tn_load|tn_infer|tn_prepare|tn_explain)\s*\("

MOST_FILES = 18  # of a folder
MOST_COLUMNS = 120

LAYERED = ("src", "cli", "adapters")
FOLDERS = (*LAYERED, "include", "python", "tests", "bench", "examples", "tools")
CODE = (".c", ".h", ".cu", ".cuh")

Tree = dict[str, str]  # the text of each file, by its path


@cache
def project() -> Tree:
    paths = (path for top in FOLDERS for path in (ROOT / top).rglob("*"))
    return {str(path.relative_to(ROOT)): path.read_text("utf-8") for path in paths if path.suffix in (*CODE, ".py")}


def layered(tree: Tree) -> list[str]:
    return [path for path in sorted(tree) if path.split("/")[0] in LAYERED and path.endswith(CODE)]


def layer(path: str) -> int | None:
    """The row of a file: 0 is the top; None where it has none."""
    fits = [row for row, names in enumerate(LAYERS) for name in names if f"{path}/".startswith(f"{name}/")]
    return fits[0] if fits else None


def folder(path: str) -> str:
    """src/tenon.c, which wires, counts as a folder of its own."""
    return path if path == "src/tenon.c" else str(Path(path).parent)


def code(text: str) -> str:
    """The text without comments and strings."""
    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', "", text, flags=re.DOTALL)


def arrows(tree: Tree) -> list[tuple[str, str]]:
    """(file, file that it includes). A bare name is of the same folder, all others begin at src or at the root."""
    found = []
    for path in layered(tree):
        for name in re.findall(r'^\s*#\s*include "([^"]+)"', tree[path], re.MULTILINE):
            places = [f"src/{name}", name] if "/" in name else [f"{Path(path).parent}/{name}"]
            found.append((path, next((place for place in places if place in tree), f"{name}, which is no file")))
    return found


def without_layer(tree: Tree) -> list[str]:
    return sorted({folder(path) for path in layered(tree) if layer(path) is None})


def upward(tree: Tree) -> list[str]:
    ends = [(a, layer(a), b, layer(b)) for a, b in arrows(tree)]
    return [f"{a} → {b}" for a, above, b, below in ends if above is None or below is None or above > below]


def circles(tree: Tree) -> list[str]:
    """The includes between folders that reach each other."""
    to: dict[str, set[str]] = defaultdict(set)
    between = [(a, b) for a, b in arrows(tree) if folder(a) != folder(b)]
    for a, b in between:
        to[folder(a)].add(folder(b))

    @cache
    def reached(start: str) -> frozenset[str]:
        seen: set[str] = set()
        todo = [start]
        while todo:
            new = to[todo.pop()] - seen
            seen |= new
            todo += new
        return frozenset(seen)

    return [f"{a} → {b}" for a, b in between if folder(a) in reached(folder(b))]


def impure(tree: Tree) -> list[str]:
    taken = [(a, b) for a, b in arrows(tree) if a.startswith(CONTRACT) and not b.startswith(CONTRACT)]
    own = [path for path in layered(tree) if path.startswith(CONTRACT)]
    called = [(path, name) for path in own for name in re.findall(CONTRACT_CALLS_NONE, code(tree[path]))]
    return [f"{a} → {b}" for a, b in [*taken, *called] if b not in CONTRACT_TAKES]


def devices_in_core(tree: Tree) -> list[str]:
    """Core knows devices by their structs."""
    named = re.compile(r"cuda|nvrtc|gpu", re.IGNORECASE)
    return [path for path in layered(tree) if path.startswith("src/core/") and named.search(code(tree[path]))]


def names_used_twice(tree: Tree) -> list[str]:
    count = Counter(Path(path).name for path in layered(tree))
    return [path for path in layered(tree) if count[Path(path).name] > 1]


def large_folders(tree: Tree) -> list[str]:
    count = Counter(str(Path(path).parent) for path in layered(tree))
    return [f"{name}: {files} files" for name, files in count.items() if files > MOST_FILES]


def long_lines(tree: Tree) -> list[str]:
    lines = ((path, n, len(line)) for path in sorted(tree) for n, line in enumerate(tree[path].split("\n"), 1))
    return [f"{path}:{n}: {columns} columns" for path, n, columns in lines if columns > MOST_COLUMNS]


Check = Callable[[Tree], list[str]]
CHECKS: list[Check] = [
    without_layer,
    upward,
    circles,
    impure,
    devices_in_core,
    names_used_twice,
    large_folders,
    long_lines,
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_project(check: Check) -> None:
    wrong = check(project())
    assert not wrong, f"{len(wrong)}:\n" + "\n".join(wrong)


GOOD: Tree = {
    "cli/main.c": '#include "cli/bench/bench.h"\n#include "fuse/fuse.h"',
    "cli/bench/bench.h": "#include <tenon.h>",
    "src/tenon.c": '#include "core/host/text.h"\n#include "fuse/fuse.h"',
    "src/fuse/fuse.h": '#include "core/contract/contract.h"\n#include "lang.h"',
    "src/fuse/lang.h": "",
    "src/core/contract/contract.h": '#include "core/host/text.h" /* not tn_find() of cuda */',
    "src/core/host/text.h": "x" * MOST_COLUMNS,
}

INCLUDES_A = '#include "cli/a/a.h"'
FAULTS: list[tuple[Check, Tree]] = [
    (without_layer, {"src/new/new.c": ""}),
    (upward, {"src/core/host/text.c": '#include "fuse/fuse.h"'}),
    (upward, {"src/core/host/text.c": '#include "tenon/text.h"'}),
    (upward, {"src/ops/sum.c": '#include "cli/bench/bench.h"'}),
    (circles, {"cli/bench/bench.h": '#include "cli/cli.h"', "cli/cli.h": ""}),
    (circles, {"cli/a/a.h": '#include "cli/b/b.h"', "cli/b/b.h": '#include "cli/c.h"', "cli/c.h": INCLUDES_A}),
    (impure, {"src/core/contract/bind.c": '#include "core/host/device.h"', "src/core/host/device.h": ""}),
    (impure, {"src/core/contract/bind.c": "return tn_find(name);"}),
    (devices_in_core, {"src/core/host/pool.c": "if (device.kind == TN_CUDA) return;"}),
    (names_used_twice, {"cli/text.h": ""}),
    (large_folders, {f"src/ops/{i}.c": "" for i in range(MOST_FILES + 1)}),
    (long_lines, {"tests/long.py": "x" * (MOST_COLUMNS + 1)}),
]


def test_good_tree() -> None:
    assert [wrong for check in CHECKS for wrong in check(GOOD)] == []


@pytest.mark.parametrize(("check", "fault"), FAULTS, ids=lambda value: getattr(value, "__name__", ""))
def test_planted(check: Check, fault: Tree) -> None:
    assert check(GOOD | fault)
