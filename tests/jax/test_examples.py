"""The examples and the document run, and what they assert holds."""

from __future__ import annotations

import importlib
from pathlib import Path

import jax
import pytest
from examples import examples, follow, run_example
from functional import assert_close

NEEDED = {"train_digits": ("optax", "sklearn"), "flax_digits": ("flax", "sklearn")}


@pytest.mark.parametrize("example", examples("jax"), ids=lambda e: e.stem)
def test_runs(example: Path) -> None:
    for name in NEEDED[example.stem]:
        pytest.importorskip(name)
    assert "digits right" in run_example(example, "jax")


def test_the_flax_module_has_the_statistics_of_flax(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("optax", *NEEDED["flax_digits"]):
        pytest.importorskip(name)
    from flax import nnx

    monkeypatch.syspath_prepend(next(e for e in examples("jax") if e.stem == "flax_digits").parent)
    mine, theirs = importlib.import_module("flax_digits").BatchNormReLU(8), nnx.BatchNorm(8, rngs=nnx.Rngs(0))
    for seed in range(3):
        x = jax.random.normal(jax.random.key(seed), (5, 8), "float32")
        assert_close(mine(x, True), jax.nn.relu(theirs(x, use_running_average=False)))
    assert_close([mine.mean[...], mine.var[...]], [theirs.mean[...], theirs.var[...]])
    assert_close(mine(x, False), jax.nn.relu(theirs(x, use_running_average=True)))


def test_document(tmp_path: Path) -> None:
    follow("jax.md", tmp_path)
