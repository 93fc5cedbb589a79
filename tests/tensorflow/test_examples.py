"""The examples and the document run, and what they assert holds."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from examples import examples, follow, run_example

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tools"))

import coverage_doc  # noqa: E402
import follow_doc  # noqa: E402


@pytest.mark.parametrize("example", examples("tensorflow"), ids=lambda e: e.stem)
def test_runs(example: Path) -> None:
    pytest.importorskip("sklearn")
    assert "digits right" in run_example(example, "tensorflow")


@pytest.mark.parametrize("document", ["tensorflow.md", "getting-started.md"])
def test_document(document: str, tmp_path: Path) -> None:
    follow(document, tmp_path)


def test_readme(tmp_path: Path) -> None:
    """What the other environment leaves out, which follows the rest of it."""
    chosen = [block for block in follow_doc.blocks(ROOT / "README.md") if block.options.get("needs") == "tensorflow"]
    assert chosen
    for block in chosen:
        follow_doc.run_python(block, tmp_path, {**os.environ, "PYTHONPATH": str(ROOT / "python")})


def test_every_function_of_tensorflow_is_listed() -> None:
    (page,) = (page for page in coverage_doc.PAGES if page.file == "tensorflow.md")
    current = coverage_doc.is_current(page)
    if current is None:
        pytest.skip("another version")
    assert current, "python tools/coverage_doc.py --write tensorflow.md"
