"""The examples run, and what they assert holds."""

from __future__ import annotations

import os
from pathlib import Path

import here
import pytest
from examples import examples, run_example

# The ones that people begin with; docs/from-cpp-extension.md is about them.
CLASSIC = {"add_constant", "dynamic_constant", "fused_layer", "relu", "sum", "square", "timing", "ddp"}

# Those that take a minute by themselves.
SHORT = {"train_llm": ["--steps", "3", "--ways", "eager", "patched", "--picture", os.devnull]}


def test_all_are_there() -> None:
    assert {example.stem for example in examples("torch")} >= CLASSIC


@pytest.mark.parametrize("example", examples("torch"), ids=lambda e: e.stem)
def test_runs(example: Path) -> None:
    if "digits" in example.read_text():
        pytest.importorskip("sklearn")
    options = ["--device", here.DEVICE, *SHORT.get(example.stem, [])]
    assert len(run_example(example, "torch", options).splitlines()) > 2
