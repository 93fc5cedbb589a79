"""What the benchmarks call: every side of every row, on small tensors, and the sides agree."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import here
import pytest
import torch
from torch.utils._pytree import tree_leaves


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """Its modules, which find each other by name; sizes for a second."""
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "bench"))
    gpu = importlib.import_module("gpu")
    for name, value in {"DEVICE": here.DEVICE, "LARGE": (6, 32), "IMAGES": (3, 4, 5, 5), "LOGITS": (6, 40)}.items():
        monkeypatch.setattr(gpu, name, value)
    return importlib.import_module


def assert_agree(what: str, sides: Mapping[str, Callable[[], object]]) -> None:
    """The first result of each; f32 against bf16 where a loss is."""
    made = {name: [t for t in tree_leaves(call()) if t is not None] for name, call in sides.items()}
    for name, results in made.items():
        if results and made["tenon"]:  # updates in place have none
            torch.testing.assert_close(
                results[0], made["tenon"][0], rtol=0.03, atol=0.03, check_dtype=False, msg=f"{what}: {name}"
            )


def test_operators(bench: Callable[[str], Any]) -> None:
    gpu = bench("gpu")
    with torch.no_grad():
        for name, shape, dtype, nbytes, sides in gpu.kernel_rows():
            assert nbytes > 0
            assert_agree(f"{name} {shape} {dtype}", sides)
        for op, axis in (("softmax", 0), ("sum", 0), ("layer_norm", 1), ("cross_entropy", 1), ("batch_norm", 1)):
            assert_agree(op, gpu.shape_sides(op, (7, 33), axis, "f32"))


def test_training_steps(bench: Callable[[str], Any]) -> None:
    gpu = bench("gpu")
    for step in gpu.training_steps():
        step.of(step.ours)()
        have = [leaf.grad for leaf in step.leaves]
        gpu.loss_type(step, "eager").of(step.theirs)()
        want = [leaf.grad for leaf in step.leaves]
        torch.testing.assert_close(have, want, rtol=0.05, atol=0.05, msg=step.op)


def test_formulas(bench: Callable[[str], Any]) -> None:
    formulas = bench("formulas")
    for dtype in ("f32", "bf16"):
        for case, direction, _, sides in formulas.gpu_rows(dtype, (6, 32), here.DEVICE, False):
            with torch.no_grad():
                if case.name != "rms_norm":  # its operator is layer_norm, for the time alone
                    assert_agree(f"{case.name} {direction} {dtype}", sides)
                else:
                    assert len([call() for call in sides.values()]) == 2
            if case in formulas.ACTIVATIONS:
                assert formulas.errors(case, direction, dtype, here.DEVICE, False, 4096)["tenon_error"] < 0.1


def test_calls(bench: Callable[[str], Any]) -> None:
    calls = bench("calls")
    for peer in calls.PEERS:
        for name, (ours, theirs) in calls.calls(peer, here.DEVICE).items():
            assert_agree(f"{peer.op} {name}", {"tenon": ours, "torch": theirs})
