"""The examples run, and what they assert holds."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import here
import pytest
from conftest import ROOT

FOLDER = ROOT / "examples" / "torch"
EXAMPLES = sorted(FOLDER.glob("*.py"))
# The ones that people begin with; docs/from-cpp-extension.md is about them.
CLASSIC = {"add_constant", "dynamic_constant", "fused_layer", "relu", "sum", "square", "timing", "ddp"}


def test_all_are_there() -> None:
    assert {example.stem for example in EXAMPLES} >= CLASSIC


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.stem)
def test_runs(example: pathlib.Path) -> None:
    if "digits" in example.read_text():
        pytest.importorskip("sklearn")
    command = [sys.executable, str(example), "--device", here.DEVICE]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(done.stdout.splitlines()) > 2
