"""The examples and the document run, and what they assert holds."""

from __future__ import annotations

from pathlib import Path

import pytest
from examples import examples, follow, run_example

NEEDED = {"train_digits": ("optax", "sklearn"), "flax_digits": ("flax", "sklearn")}


@pytest.mark.parametrize("example", examples("jax"), ids=lambda e: e.stem)
def test_runs(example: Path) -> None:
    for name in NEEDED[example.stem]:
        pytest.importorskip(name)
    assert "digits right" in run_example(example, "jax")


def test_document(tmp_path: Path) -> None:
    follow("jax.md", tmp_path)
