#!/usr/bin/env python3
"""Runs each framework's tests on one built library under several of its versions, and writes docs/compatibility.md.

tools/compat                                 the versions that are promised: the oldest, some between, the newest
tools/compat torch==2.10 jax==newest         these: the last 2.10, and the last of all
tools/compat torch jax --python python3      what this interpreter has; needs no network
tools/compat torch --python python3 --device cuda --jobs 8

Each version is installed into an environment of its own in build/compatibility. Rows of other machines, and of the same
library file, stay. Uses nothing but the standard library.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import astuple, dataclass, fields
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLACE = ROOT / "build" / "compatibility"
DOCUMENT = ROOT / "docs" / "compatibility.md"
HEAD = """# Which versions work

We build one library file, without any framework, and run all tests of each framework with it, under every version
below. The tests are made from the operator table. `tools/compat` runs them and writes this page. The last column is
what `sha256sum build/libtenon.so` prints.

"""

PROBE = """
import json, platform, subprocess, sys
from importlib.metadata import packages_distributions, version
package, device = sys.argv[1:]
package = packages_distributions()[package][0]  # tensorflow may be that of tensorflow-cpu
ask = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
name = subprocess.run(ask, capture_output=True, text=True).stdout.splitlines()[0] if device == "cuda" else "CPU"
system = f"{platform.system()} {platform.machine()}, {' '.join(platform.libc_ver())}"
print(json.dumps([version(package), platform.python_version(), system, name]))
"""


@dataclass(frozen=True)
class Framework:
    """What its column says, where its tests are, and the packages that they need besides it."""

    title: str
    tests: str
    needs: tuple[str, ...]


FRAMEWORKS = {
    "torch": Framework("PyTorch", "tests/python", ("numpy", "scikit-learn")),
    "jax": Framework("JAX", "tests/jax", ("optax", "scikit-learn", "flatbuffers")),
    "tensorflow": Framework("TensorFlow", "tests/tensorflow", ("scikit-learn",)),
    "onnxruntime": Framework("ONNX Runtime", "tests/onnxruntime", ("onnx", "ml_dtypes")),
    "numpy": Framework("NumPy", "tests/numpy", ("ml_dtypes",)),
}

PROMISED = {
    "torch": ("2.10", "2.12", "newest"),
    "jax": ("0.8", "0.9", "newest"),
    "tensorflow": ("2.16", "2.18", "newest"),
    "onnxruntime": ("1.17", "1.20", "1.24", "newest"),
    "numpy": ("1.26", "newest"),
}


@dataclass(frozen=True)
class Row:
    framework: str
    version: str
    python: str
    platform: str
    device: str
    passed: str
    failed: str
    skipped: str
    date: str
    library: str

    def same_machine(self, other: Row) -> bool:
        return (self.platform, self.device) == (other.platform, other.device)

    def key(self) -> tuple[int, str, str, list[int], str]:
        order = [framework.title for framework in FRAMEWORKS.values()].index(self.framework)
        numbers = [int(n) for n in re.findall(r"\d+", self.version)[:3]]
        return order, self.platform, self.device, numbers, self.python


COLUMNS = [
    "framework",
    "version",
    "Python",
    "platform",
    "device",
    "passed",
    "failed",
    "skipped",
    "date",
    "SHA-256 of the library",
]


def read(text: str) -> list[Row]:
    """The rows of the page."""
    lines = [line.strip("| ") for line in text.splitlines() if line.startswith("| ") and COLUMNS[-1] not in line]
    cells = [[cell.strip() for cell in line.split(" | ")] for line in lines]
    return [Row(*row) for row in cells if len(row) == len(fields(Row))]


def write(rows: list[Row]) -> str:
    """The page."""
    table = [COLUMNS, ["---"] * len(COLUMNS), *(astuple(row) for row in sorted(rows, key=Row.key))]
    lines = ["|" + "|".join(row) + "|" if row[0] == "---" else f"| {' | '.join(row)} |" for row in table]
    return HEAD + "\n".join(lines) + "\n"


def with_row(rows: list[Row], new: Row) -> list[Row]:
    """The new row among the others; what other libraries of this machine were like is no longer of interest."""
    kept = [row for row in rows if not row.same_machine(new) or (row.library == new.library and row.key() != new.key())]
    return [*kept, new]


def newest(package: str, series: str) -> str:
    """The last version of a series, such as 2.10, or of all; what is a whole version is itself."""
    command = [sys.executable, "-m", "pip", "index", "versions", package]
    asked = subprocess.run(command, capture_output=True, text=True)
    listed = re.search(r"^Available versions: (.*)$", asked.stdout, re.MULTILINE)
    if listed is None:
        sys.exit(f"{' '.join(command)} lists no versions: {asked.stderr.strip()[-300:]}")
    versions = listed[1].split(", ")
    of = [v for v in versions if series == "newest" or v == series or v.startswith(f"{series}.")]
    if not of:
        sys.exit(f"there is no {package} {series} for this Python; there are {', '.join(versions[:8])} …")
    return of[0]


def pins(package: str, version: str) -> list[str]:
    """What a wheel needs and does not say."""
    numbers = [int(n) for n in re.findall(r"\d+", version)]
    return ["numpy<2"] if package == "onnxruntime" and numbers < [1, 19] else []


def environment(package: str, version: str) -> str:
    """The interpreter of an environment with this framework and what its tests need."""
    place = PLACE / f"{package}-{version}"
    python, done = str(place / "bin" / "python"), place / "installed"
    if not done.is_file():
        print(f"{package} {version}: pip install into {place}", flush=True)
        needs = [need for need in ("pytest", *FRAMEWORKS[package].needs) if need != package]
        needs += pins(package, version)
        subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", f"{package}=={version}", *needs], check=True)
        done.touch()
    return python


def counted(report: Path) -> dict[str, int]:
    """What pytest wrote; one error where it wrote nothing."""
    counts = {"tests": 0, "failures": 0, "errors": 1, "skipped": 0}
    if report.is_file():
        suites = list(ElementTree.parse(report).getroot().iter("testsuite"))
        counts = {what: sum(int(suite.get(what, 0)) for suite in suites) for what in counts}
    return counts


def tested(package: str, python: str, library: Path, device: str, jobs: int) -> Row:
    """What the tests say under this interpreter, by so many processes."""
    command = [python, "-c", PROBE, package, device]
    probed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    version, of_python, system, name = json.loads(probed.splitlines()[-1])
    sha = hashlib.sha256(library.read_bytes()).hexdigest()
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "TENON_LIBRARY": str(library), "TENON_TEST_DEVICE": device}
    print(f"{package} {version}, Python {of_python}, {name}", flush=True)
    reports, children = [], []
    for job in range(1, jobs + 1):
        report = PLACE / f"{package}-{version}-{device}-{job}.xml"
        report.unlink(missing_ok=True)
        reports.append(report)
        command = [python, "-m", "pytest", "-q", f"--junit-xml={report}", FRAMEWORKS[package].tests]
        with report.with_suffix(".log").open("w") as log:
            deal = [f"--deal={job}/{jobs}"] if jobs > 1 else []
            children.append(subprocess.Popen([*command, *deal], cwd=ROOT, env=env, stdout=log, stderr=log))
    for child in children:
        child.wait()
    counts = [counted(report) for report in reports]
    failed = sum(c["failures"] + c["errors"] for c in counts)
    skipped = sum(c["skipped"] for c in counts)
    passed = max(sum(c["tests"] for c in counts) - failed - skipped, 0)
    if failed:
        print(f"  logs: {reports[0].with_suffix('.log')} …", flush=True)
    date, title = time.strftime("%Y-%m-%d"), FRAMEWORKS[package].title
    return Row(title, version, of_python, system, name, str(passed), str(failed), str(skipped), date, sha)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = f"of {', '.join(FRAMEWORKS)}; VERSION may be a series, or newest"
    parser.add_argument("packages", nargs="*", metavar="PACKAGE[==VERSION]", help=kinds)
    parser.add_argument("--python", help="an interpreter that has those without a version (this one)")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--jobs", type=int, default=1, help="processes that share the tests (1)")
    parser.add_argument("--library", type=Path, default=ROOT / "build" / "libtenon.so")
    given = parser.parse_args()
    every = [f"{package}=={version}" for package, versions in PROMISED.items() for version in versions]
    wanted = [package.partition("==")[::2] for package in given.packages or every]
    unknown = [package for package, _ in wanted if package not in FRAMEWORKS]
    if unknown:
        parser.error(f"there are no tests of {unknown[0]}, only of {', '.join(FRAMEWORKS)}")
    if not given.library.is_file():
        parser.error(f"there is no {given.library}; make build makes one")
    wanted = [(package, newest(package, version) if version else "") for package, version in wanted]
    PLACE.mkdir(parents=True, exist_ok=True)
    copy = Path(tempfile.mkdtemp(dir=PLACE))  # nothing that is built meanwhile gets in between
    for file in (given.library, given.library.with_name("libtenon_tensorflow.so")):
        shutil.copy(file, copy)
    library, failed = copy / given.library.name, 0
    for package, version in wanted:
        python = environment(package, version) if version else given.python or sys.executable
        row = tested(package, python, library, given.device, given.jobs)
        failed += int(row.failed)
        print(f"  {row.passed} passed, {row.failed} failed, {row.skipped} skipped", flush=True)
        rows = read(DOCUMENT.read_text()) if DOCUMENT.is_file() else []
        DOCUMENT.write_text(write(with_row(rows, row)))
    shutil.rmtree(copy)
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
