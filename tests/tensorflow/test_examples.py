"""The examples and the document run, and what they assert holds."""

from __future__ import annotations

from pathlib import Path

import pytest
from examples import examples, follow, run_example


@pytest.mark.parametrize("example", examples("tensorflow"), ids=lambda e: e.stem)
def test_runs(example: Path) -> None:
    pytest.importorskip("sklearn")
    assert "digits right" in run_example(example, "tensorflow")


@pytest.mark.parametrize("document", ["tensorflow.md", "getting-started.md"])
def test_document(document: str, tmp_path: Path) -> None:
    follow(document, tmp_path)
