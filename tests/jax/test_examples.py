"""The examples and the document run, and what they assert holds."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from examples import examples, follow, run_example

NEEDED = {"train_digits": ("optax", "sklearn"), "flax_digits": ("flax", "sklearn"), "train_llm": ("flax", "optax")}
OPTIONS = {"train_llm": ["--steps", "2", "--layers", "1", "--length", "16", "--picture", os.devnull]}
SAYS = {"train_llm": "tokens/s"}


@pytest.mark.parametrize("example", examples("jax"), ids=lambda e: e.stem)
def test_runs(example: Path) -> None:
    for name in NEEDED[example.stem]:
        pytest.importorskip(name)
    output = run_example(example, "jax", OPTIONS.get(example.stem, []))
    assert SAYS.get(example.stem, "digits right") in output


def test_document(tmp_path: Path) -> None:
    follow("jax.md", tmp_path)
