"""Runs the examples of a framework, and does what its document says."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tools"))

import follow_doc  # noqa: E402


def examples(framework: str) -> list[Path]:
    return sorted((ROOT / "examples" / framework).glob("*.py"))


def run_example(example: Path, framework: str, options: Sequence[str] = ()) -> str:
    """What it prints; what it asserts holds."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    status, output = follow_doc.run_program(example, ROOT, environment, [framework], list(options))
    assert status == 0, output
    return output


def follow(document: str, folder: Path) -> None:
    """Does what a document says in a folder that has what it builds on."""
    for name in ("build", "python", "include"):
        (folder / name).symlink_to(ROOT / name)
    follow_doc.follow(ROOT / "docs" / document, folder, folder / "plugin")
