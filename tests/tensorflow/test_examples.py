"""The examples and the document run, and what they assert holds."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest
from conftest import ROOT

sys.path.insert(0, str(ROOT / "tools"))
import follow_doc

EXAMPLES = sorted((ROOT / "examples" / "tensorflow").glob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.stem)
def test_runs(example: pathlib.Path) -> None:
    pytest.importorskip("sklearn")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    done = subprocess.run([sys.executable, str(example)], capture_output=True, text=True, timeout=600, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "digits right" in done.stdout


def test_document(tmp_path: pathlib.Path) -> None:
    for name in ("build", "python", "include"):
        (tmp_path / name).symlink_to(ROOT / name)
    follow_doc.follow(ROOT / "docs" / "tensorflow.md", tmp_path, tmp_path / "plugin")
