"""The examples run, and what they assert holds."""

from __future__ import annotations

import os
import pathlib
import sys

import here
import pytest
from conftest import ROOT

sys.path.insert(0, str(ROOT / "tools"))
import follow_doc

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
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    status, output = follow_doc.run_program(example, ROOT, environment, ["torch"], ["--device", here.DEVICE])
    assert status == 0, output
    assert len(output.splitlines()) > 2
