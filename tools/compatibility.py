"""Runs tests/python on one built library under several PyTorch versions, and writes docs/compatibility.md.

tools/compatibility.py 2.10.0 2.15.0          installs each into an environment of its own in build/compatibility
tools/compatibility.py --python python3       uses this interpreter as it is; needs no network
tools/compatibility.py --python python3 --device cuda

Rows of other machines, and of the same library file, stay. Uses nothing but the standard library.
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
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import astuple, dataclass, fields
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLACE = ROOT / "build" / "compatibility"
DOCUMENT = ROOT / "docs" / "compatibility.md"
HEAD = """# Which PyTorch works

One library file is built once, without any PyTorch, and tested under each version: all of `tests/python`, which is made
from the operator table. `tools/compatibility.py` runs the tests and writes this page; `sha256sum build/libtenon.so` is
what the last column has.

"""

PROBE = """
import json, platform, sys, torch
device = sys.argv[1]
name = torch.cuda.get_device_name() if device == "cuda" else "CPU"
system = f"{platform.system()} {platform.machine()}, {' '.join(platform.libc_ver())}"
print(json.dumps([torch.__version__, platform.python_version(), system, name]))
"""


@dataclass(frozen=True)
class Row:
    pytorch: str
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

    def key(self) -> tuple[str, str, list[int], str]:
        return self.platform, self.device, [int(n) for n in re.findall(r"\d+", self.pytorch)[:3]], self.python


COLUMNS = ["PyTorch", "Python", "platform", "device", "passed", "failed", "skipped", "date", "SHA-256 of the library"]


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


def environment(version: str) -> str:
    """The interpreter of an environment with this PyTorch and what the tests need."""
    place = PLACE / f"torch-{version}"
    python, done = str(place / "bin" / "python"), place / "installed"
    if not done.is_file():
        print(f"torch {version}: pip install into {place}", flush=True)
        lines = (ROOT / "tools" / "requirements-test.txt").read_text().splitlines()
        others = [line for line in lines if line and not line.startswith(("#", "torch=="))]
        subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", f"torch=={version}", *others], check=True)
        done.touch()
    return python


def tested(python: str, library: Path, device: str) -> Row:
    """What the tests say under this interpreter."""
    probed = subprocess.run([python, "-c", PROBE, device], check=True, capture_output=True, text=True).stdout
    version, of_python, system, name = json.loads(probed.splitlines()[-1])
    sha = hashlib.sha256(library.read_bytes()).hexdigest()
    report, log = PLACE / f"tests-{version}-{device}.xml", PLACE / f"tests-{version}-{device}.log"
    report.unlink(missing_ok=True)
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "TENON_LIBRARY": str(library), "TENON_TEST_DEVICE": device}
    print(f"torch {version}, Python {of_python}, {name}: {log}", flush=True)
    with log.open("w") as file:
        command = [python, "-m", "pytest", "-q", f"--junit-xml={report}", "tests/python"]
        subprocess.run(command, cwd=ROOT, env=env, stdout=file, stderr=subprocess.STDOUT)
    counts = {"tests": 0, "failures": 0, "errors": 1, "skipped": 0}  # no report: pytest itself failed
    if report.is_file():
        suites = list(ElementTree.parse(report).getroot().iter("testsuite"))
        counts = {what: sum(int(suite.get(what, 0)) for suite in suites) for what in counts}
    failed = counts["failures"] + counts["errors"]
    passed = max(counts["tests"] - failed - counts["skipped"], 0)
    date = time.strftime("%Y-%m-%d")
    return Row(version, of_python, system, name, str(passed), str(failed), str(counts["skipped"]), date, sha)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("versions", nargs="*", metavar="VERSION", help="of PyTorch, to be installed")
    parser.add_argument("--python", action="append", default=[], help="an interpreter that has one")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--library", type=Path, default=ROOT / "build" / "libtenon.so")
    given = parser.parse_args()
    PLACE.mkdir(parents=True, exist_ok=True)
    library = PLACE / f"libtenon-{os.getpid()}.so"  # a copy: nothing that is built meanwhile gets in between
    shutil.copyfile(given.library, library)
    failed = 0
    for python in [*given.python, *(environment(version) for version in given.versions)]:
        row = tested(python, library, given.device)
        failed += int(row.failed)
        print(f"  {row.passed} passed, {row.failed} failed, {row.skipped} skipped", flush=True)
        rows = read(DOCUMENT.read_text()) if DOCUMENT.is_file() else []
        DOCUMENT.write_text(write(with_row(rows, row)))
    library.unlink()
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
