"""Runs a list of parts, one after the other or several at a time: a line each, a log each, a table at the end.

Shared by tools/test.py and tools/lint.py. Uses nothing but the standard library.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOGS = ROOT / "build" / "logs"

Command = Sequence[str]


@dataclass(frozen=True)
class Part:
    name: str
    what: str
    # A function is called when the part begins: it may ask what an earlier part has built.
    commands: Sequence[Command] | Callable[[], Sequence[Command]]
    env: Mapping[str, str] = field(default_factory=dict)
    needs: Sequence[str] = ()  # the parts that must have passed before this one begins
    seconds: float = 0  # about how long it takes; among the parts that can begin, the longest does
    # Why the part cannot run on this machine, or None.
    unable: Callable[[], str | None] = lambda: None


@dataclass
class Result:
    part: Part
    seconds: float
    cpu: float = 0  # seconds that processors worked: unlike the others, the same beside any other work
    passed: int = 0
    failed: int = 0
    skipped: str = ""


def needs_packages(*packages: str) -> Callable[[], str | None]:
    """Why a part that needs these packages cannot run, as a function."""

    def missing() -> str | None:
        for name in packages:
            spec = importlib.util.find_spec(name)
            if spec is None or spec.origin is None:  # a folder of that name is no package
                return f"there is no {name} for {sys.executable}"
        return None

    return missing


# How the tools that are run here close: (regular expression, what it counts).
CLOSINGS = [
    # ctest, which may show what its tests printed
    (r"tests passed, (?P<failed>\d+) tests? failed out of (?P<all>\d+)", 0),
    # tenon check, tests/core
    (r"^(?P<passed>\d+) passed, (?P<failed>\d+) failed", re.MULTILINE),
    # pytest
    (r"^=* ?(?:(?P<failed>\d+) failed, )?(?P<passed>\d+) passed[^=]* in [\d.]+s", re.MULTILINE),
]


def count(output: str) -> tuple[int, int]:
    """How many tests passed and failed by the output of one command; a command without a count is one test."""
    for pattern, flags in CLOSINGS:
        found = list(re.finditer(pattern, output, flags))
        if found:
            groups = found[-1].groupdict()
            failed = int(groups.get("failed") or 0)
            passed = int(groups["all"]) - failed if groups.get("all") else int(groups["passed"])
            return passed, failed
    return 0, 0


def run(part: Part, verbose: bool, alone: bool = True) -> Result:
    """alone: no other part prints meanwhile, so that its line can be begun."""
    begin = time.monotonic()
    result = Result(part, 0)
    title = f"  {part.name:<12} {part.what:<58} "
    if alone:
        print(title, end="\n" if verbose else "", flush=True)
        title = ""
    result.skipped = part.unable() or ""
    if result.skipped:
        print(f"{title}not here: {result.skipped}", flush=True)
        return result
    log = LOGS / f"part-{part.name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("")
    for command in part.commands() if callable(part.commands) else part.commands:
        output, status, cpu = call(command, part.env, log, verbose)
        result.cpu += cpu
        passed, failed = count(output)
        if status != 0 and failed == 0:
            failed = 1
        if status == 0 and passed == 0 and failed == 0:
            passed = 1
        result.passed += passed
        result.failed += failed
        if status != 0:
            break
    result.seconds = time.monotonic() - begin
    state = "FAILED" if result.failed else "ok"
    print(f"{title}{result.seconds:6.1f} s  {state}", flush=True)
    if result.failed and not verbose:
        # What was compiled beside a file that failed helps nobody.
        lines = [line for line in log.read_text(errors="replace").splitlines() if not re.match(r"\[\d+/\d+\] ", line)]
        tail = lines[-80:]
        print("\n".join("    " + line for line in tail))
        print(f"    all of it: {log.relative_to(ROOT)}", flush=True)
    return result


def call(command: Command, env: Mapping[str, str], log: Path, verbose: bool) -> tuple[str, int, float]:
    """What the command says, its exit status and the processor seconds of it and its children."""
    shown = " ".join([f"{k}={v}" for k, v in env.items()] + list(command))
    shown = shown if len(shown) < 400 else shown[:400] + " …"
    with log.open("a") as sink:
        sink.write(f"$ {shown}\n")
    process = subprocess.Popen(
        list(command),
        cwd=ROOT,
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    lines = []
    assert process.stdout is not None
    with log.open("a") as sink:
        for line in process.stdout:
            lines.append(line)
            sink.write(line)
            if verbose:
                print("    " + line, end="", flush=True)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)  # nobody else need wait for it
    return "".join(lines), process.returncode, used.ru_utime + used.ru_stime


def run_unless_blocked(part: Part, verbose: bool, alone: bool, before: Mapping[str, Result]) -> Result:
    """Runs the part, unless one that it needs has failed. A needed part that was not chosen counts as passed."""
    for name in part.needs:
        if name in before and (before[name].failed or before[name].skipped):
            print(f"  {part.name:<12} {part.what:<58} not run: it needs {name}", flush=True)
            return Result(part, 0, skipped=f"it needs {name}")
    return run(part, verbose, alone)


def urgency(part: Part, parts: Sequence[Part]) -> float:
    """Seconds from the beginning of this part to the end of the longest chain of parts that need it."""
    return part.seconds + max((urgency(p, parts) for p in parts if part.name in p.needs), default=0)


def run_several(parts: Sequence[Part], jobs: int) -> list[Result]:
    """As many parts at a time as there are jobs, the most urgent first."""
    print(f"  {len(parts)} parts, {jobs} at a time: {', '.join(p.name for p in parts)}", flush=True)
    chosen = {part.name for part in parts}
    waiting = sorted(parts, key=lambda part: -urgency(part, parts))
    results: dict[str, Result] = {}
    running: set[Future[Result]] = set()
    with ThreadPoolExecutor(jobs) as pool:
        while waiting or running:
            ready = [part for part in waiting if all(name in results for name in part.needs if name in chosen)]
            for part in ready[: jobs - len(running)]:
                waiting.remove(part)
                running.add(pool.submit(run_unless_blocked, part, False, False, dict(results)))
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                results[future.result().part.name] = future.result()
    return [results[part.name] for part in parts]


def run_in_order(parts: Sequence[Part], verbose: bool) -> list[Result]:
    results: dict[str, Result] = {}
    for part in parts:
        results[part.name] = run_unless_blocked(part, verbose, True, results)
    return list(results.values())


def run_all(
    parts: Sequence[Part], verbose: bool, jobs: int = 1, use: Callable[[Sequence[Result]], None] | None = None
) -> int:
    """Runs every part and closes with a table and the line 'N passed, N failed'. Goes on after a failure.

    use: is given the results where all is well.
    """
    begin = time.monotonic()
    several = jobs > 1 and not verbose and len(parts) > 1
    results = run_several(parts, jobs) if several else run_in_order(parts, verbose)
    print(f"\n  {'part':<12} {'passed':>8} {'failed':>7} {'seconds':>8} {'CPU':>8}")
    for r in results:
        note = f"   not run: {r.skipped}" if r.skipped else ""
        print(f"  {r.part.name:<12} {r.passed:>8} {r.failed:>7} {r.seconds:>8.1f} {r.cpu:>8.1f}{note}")
    cpu = sum(r.cpu for r in results)
    print(f"  {'all':<12} {'':>8} {'':>7} {time.monotonic() - begin:>8.1f} {cpu:>8.1f}\n")
    failed = sum(r.failed for r in results)
    print(f"{sum(r.passed for r in results)} passed, {failed} failed")
    if use and not failed:
        use(results)
    return 1 if failed else 0


def choose(parts: Sequence[Part], names: Sequence[str]) -> list[Part]:
    """The parts of these names and those that they need, or all; 'python' stands for python-1, python-2 and so on."""

    def has_name(part: Part, name: str) -> bool:
        return name in (part.name, part.name.partition("-")[0])

    for name in names:
        if not any(has_name(part, name) for part in parts):
            sys.exit(f"there is no part '{name}'; there are: {' '.join(part.name for part in parts)}")
    chosen = {part.name for part in parts if not names or any(has_name(part, name) for name in names)}
    for part in reversed(parts):  # a part stands behind those that it needs
        if part.name in chosen:
            chosen.update(part.needs)
    return [part for part in parts if part.name in chosen]
