"""The examples and the document run, and what they assert holds."""

from __future__ import annotations

import os
import pathlib
import sys

import pytest
from conftest import ROOT

sys.path.insert(0, str(ROOT / "tools"))
import follow_doc

EXAMPLES = sorted((ROOT / "examples" / "jax").glob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.stem)
def test_runs(example: pathlib.Path) -> None:
    needed = {"train_digits": ("optax", "sklearn"), "flax_digits": ("flax", "sklearn")}
    for name in needed[example.stem]:
        pytest.importorskip(name)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    status, output = follow_doc.run_program(example, ROOT, environment, ["jax"])
    assert status == 0, output
    assert "digits right" in output


def test_document(tmp_path: pathlib.Path) -> None:
    for name in ("build", "python", "include"):
        (tmp_path / name).symlink_to(ROOT / name)
    follow_doc.follow(ROOT / "docs" / "jax.md", tmp_path, tmp_path / "plugin")
