"""The GPU tests as parts of about the same length, for tools/test.py --gpu.

The work is a list of units: one kind of test for one operator, or a share of a framework's tests. Units are chosen (by
operators, by a change, by a part of all the work), and dealt to processes by the seconds that they took when
tools/gpu_seconds.json was measured (`tools/test.py --gpu --measure` writes it).
"""

from __future__ import annotations

import json
import math
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from changes import EVERYTHING, Selection
from parts import ROOT, Part, Result, needs_packages
from table import Table

SECONDS = ROOT / "tools" / "gpu_seconds.json"
PROCESS_SECONDS = 60  # units that are shorter share a process
LESSONS = 8  # processes: each test starts programs that import PyTorch and JAX
START_SECONDS = 20  # importing a framework and collecting its tests

FEW_THREADS = {"TENON_NUM_THREADS": "2", "OMP_NUM_THREADS": "2"}
PYTHON_ENV = {
    **FEW_THREADS,
    "PYTHONPATH": str(ROOT / "python"),
    "PYTHONUNBUFFERED": "1",
    "TENON_TEST_DEVICE": "cuda",
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",  # JAX would take most of the GPU's memory, in every process
}
PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
CHECK = ["build/tenon", "check", "--device", "cuda", "--alone"]

# Cases that look at the whole process, which compute-sanitizer is a part of, and those that take gigabytes.
UNTOOLED = "sticky,fork,idle,leaks,huge,repeat"
# initcheck takes memory of a pool for unwritten where several threads call, also in a program of nothing but a kernel
# that writes it and one that reads it (CUDA 13.0, thousands of reports). The other tools run this case.
UNTRACKED = "concurrent"
# The case has no sample of these that can grow: no dimension is independent of the others.
NOT_HUGE = ("dropout", "mse")


@dataclass(frozen=True)
class Unit:
    kind: str
    name: str  # an operator; I/N: a share of the tests; "": all of them
    seconds: float


@dataclass(frozen=True)
class Kind:
    """A kind of tests that are dealt out by operator."""

    what: str
    command: Sequence[str]
    among: Callable[[Table], Iterable[str]]
    unable: Callable[[], str | None] = lambda: None
    whole: bool = False  # in one process


# ---- what there is -------------------------------------------------------------------------------------------------


def sanitizer() -> str | None:
    """compute-sanitizer, which comes with CUDA."""
    return shutil.which("compute-sanitizer") or shutil.which("/usr/local/cuda/bin/compute-sanitizer")


def no_sanitizer() -> str | None:
    return None if sanitizer() else "there is no compute-sanitizer (it comes with the CUDA toolkit)"


def under(tool: str, what: str, among: Callable[[Table], Iterable[str]] = lambda table: table.unlike) -> Kind:
    skipped = f"{UNTOOLED},{UNTRACKED}" if tool == "initcheck" else UNTOOLED
    check = [*CHECK, "--quick", "--in-process", "--dtype", "f32,bf16", "--skip", skipped]
    command = [sanitizer() or "", "--tool", tool, "--error-exitcode", "9", *check]
    return Kind(f"compute-sanitizer: {what}", command, among, no_sanitizer)


@cache
def by_operator() -> dict[str, Kind]:
    return {
        "rows": Kind("formulas against float64, --quick", [*CHECK, "--quick"], lambda table: table.formulas),
        # racecheck looks at shared memory, which other formulas do not use
        "racecheck": under("racecheck", "races in shared memory", lambda table: (*table.own, "rms_norm", "mse")),
        "memcheck": under("memcheck", "accesses out of bounds, misaligned ones, leaks"),
        "synccheck": under("synccheck", "barriers that not all threads reach"),
        "initcheck": under("initcheck", "reads of memory that nobody wrote"),
        # all but tensors of gigabytes: two processes would each count on the memory that is free
        "check": Kind("operators with kernels of their own, all cases", [*CHECK, "--skip", "huge"], lambda t: t.own),
        "huge": Kind(
            "more than 2^31 elements",
            [*CHECK, "--case", "huge"],
            lambda table: (name for name in table.unlike if name not in NOT_HUGE),
            whole=True,
        ),
    }


# Frameworks: what it is, and among how many processes all of its tests are dealt.
FRAMEWORKS = {
    "python": ("PyTorch on CUDA: tests made from the operator table", 8),
    "jax": ("JAX on CUDA: tests made from the operator table", 4),
    "numpy": ("NumPy and CuPy: tests made from the operator table", 1),
    "together": ("all frameworks in one process, and without some of them", 1),
}


@cache
def measured() -> Mapping[str, Mapping[str, float]]:
    """Seconds of each kind, by operator, or of all tests of the kind under ''."""
    found: dict[str, dict[str, float]] = json.loads(SECONDS.read_text())
    return found


def seconds(kind: str, name: str) -> float:
    """An operator that nobody has measured yet takes as long as the average."""
    known = measured().get(kind, {})
    return known.get(name, sum(known.values()) / len(known) if known else 1.0)


# ---- which of it ---------------------------------------------------------------------------------------------------


def units(table: Table, selection: Selection = EVERYTHING) -> list[Unit]:
    """The work that is selected."""

    def is_whole(kind: str) -> bool:
        return selection.kinds is None or kind in selection.kinds

    ops = frozenset(table.names) if selection.ops is None else selection.ops
    made = []
    for kind, how in by_operator().items():
        made += [Unit(kind, n, seconds(kind, n)) for n in how.among(table) if is_whole(kind) or n in ops]
    for kind, (_, most) in FRAMEWORKS.items():
        # what is not made from the table is not about an operator
        share = 1.0 if is_whole(kind) else 0.0 if kind == "together" else len(ops) / len(table.names)
        n = math.ceil(most * share)
        for i in range(1, n + 1):
            made.append(Unit(kind, f"{i}/{n}", START_SECONDS + seconds(kind, "") * share / n))
    if is_whole("unit"):
        made.append(Unit("unit", "", seconds("unit", "")))
    if is_whole("lessons"):
        made += [Unit("lessons", f"{i}/{LESSONS}", seconds("lessons", "") / LESSONS) for i in range(1, LESSONS + 1)]
    return made


def deal(work: Iterable[Unit], n: int) -> list[list[Unit]]:
    """Shares of about the same number of seconds: the longest unit first, each to the share that has least."""
    shares: list[list[Unit]] = [[] for _ in range(n)]
    for unit in sorted(work, key=lambda u: (-u.seconds, u.kind, u.name)):
        min(shares, key=lambda share: sum(u.seconds for u in share)).append(unit)
    return shares


def part_of(work: list[Unit], part: str) -> list[Unit]:
    """part: 2/3 is the second of three shares."""
    number, _, among = part.partition("/")
    if not (number.isdecimal() and among.isdecimal() and 1 <= int(number) <= int(among)):
        raise SystemExit(f"PART={part} is not like 1/3")
    return deal(work, int(among))[int(number) - 1]


# ---- as parts ------------------------------------------------------------------------------------------------------


def share_command(unit: Unit, ops: frozenset[str] | None) -> list[str]:
    """pytest over a share of a framework's tests; of some operators, where the kind is not selected as a whole."""
    command = [*PYTEST, f"tests/{unit.kind}"]
    command += [f"--deal={unit.name}"] if unit.name != "1/1" else []
    return command + ([f"--ops={','.join(sorted(ops))}"] if ops is not None else [])


def parts(work: Sequence[Unit], selection: Selection = EVERYTHING, alone: bool = False) -> list[Part]:
    """A part is a process. alone: each unit has a process of its own, for measuring."""
    made = []
    for kind, how in by_operator().items():
        mine = [unit for unit in work if unit.kind == kind]
        total = sum(unit.seconds for unit in mine)
        n = 1 if how.whole else len(mine) if alone else math.ceil(total / PROCESS_SECONDS)
        for i, share in enumerate(filter(None, deal(mine, n)), 1) if mine else ():
            command = [*how.command, *(unit.name for unit in share)]
            taken = sum(unit.seconds for unit in share)
            made.append(Part(f"{kind}-{i}", how.what, [command], FEW_THREADS, seconds=taken, unable=how.unable))
    for unit in work:
        if unit.kind in FRAMEWORKS:
            ops = None if selection.kinds is None or unit.kind in selection.kinds else selection.ops
            name = f"{unit.kind}-{unit.name.partition('/')[0]}"
            what = FRAMEWORKS[unit.kind][0]
            command = share_command(unit, ops)
            unable = needs_packages("jax") if unit.kind == "jax" else needs_packages()
            made.append(Part(name, what, [command], PYTHON_ENV, seconds=unit.seconds, unable=unable))
        elif unit.kind == "unit":
            command = ["ctest", "--test-dir", "build", "--output-on-failure", "-j2"]
            made.append(Part("unit", "C unit tests", [command], seconds=unit.seconds))
        elif unit.kind == "lessons":
            command = [*PYTEST, "tests/test_examples_kernels.py", f"--deal={unit.name}"]
            name = f"lessons-{unit.name.partition('/')[0]}"
            what = "examples/kernels and its READMEs"
            unable = needs_packages("torch")
            made.append(Part(name, what, [command], PYTHON_ENV, seconds=unit.seconds, unable=unable))
    return sorted(made, key=lambda part: -part.seconds)


def write_measured(results: Sequence[Result]) -> None:
    """What parts(…, alone=True) took, into SECONDS."""
    found: dict[str, dict[str, float]] = {}
    for result in results:
        assert not callable(result.part.commands)
        kind, command = result.part.name.partition("-")[0], result.part.commands[0]
        of_kind = found.setdefault(kind, {})
        if kind in by_operator():
            names = command[len(by_operator()[kind].command) :]
            of_kind.update({name: round(result.seconds / len(names), 1) for name in names})
        else:
            start = START_SECONDS if kind in FRAMEWORKS else 0
            of_kind[""] = round(of_kind.get("", 0) + max(result.seconds - start, 0), 1)
    lines = [f'"{kind}": {json.dumps(by_name)}' for kind, by_name in found.items()]
    SECONDS.write_text("{\n" + ",\n".join(lines) + "\n}\n")
