"""What the benchmarks call: every side of every row, on small tensors, and the sides agree."""

from __future__ import annotations

import copy
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
    """Results, of which one side may have more; f32 against bf16 where a loss is."""
    ops = {name: call for name, call in sides.items() if name != "copy"}
    made = {name: [t.clone() for t in tree_leaves(call()) if t is not None] for name, call in ops.items()}
    for name, results in made.items():
        for have, want in zip(results, made["tenon"], strict=False):  # updates in place have none
            torch.testing.assert_close(
                have, want, rtol=0.03, atol=0.03, check_dtype=False, msg=lambda m, n=name: f"{what}: {n}: {m}"
            )


def test_operators(bench: Callable[[str], Any]) -> None:
    gpu = bench("gpu")
    with torch.no_grad():
        for name, shape, dtype, nbytes, sides in gpu.kernel_rows():
            assert nbytes > 0
            assert_agree(f"{name} {shape} {dtype}", sides)


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


def test_rows_of_the_table(bench: Callable[[str], Any]) -> None:
    """Every operator, module and optimiser; torch.compile has the code of the eager side, or is tried here."""
    operators = bench("operators")
    for row, dtype, backward in operators.cases(operators.ROWS):
        with torch.set_grad_enabled(backward):
            sides = row.calls(operators.SIZES["small"], dtype, here.DEVICE, backward)
            del sides["compile"]
            if row.comparable and dtype == "f32":  # what is rounded in between differs in bf16, and then relu
                assert_agree(f"{row.name} {dtype} backward={backward}", sides)
            else:
                assert len([call() for call in sides.values()]) == 2


def test_what_is_compiled_instead(bench: Callable[[str], Any]) -> None:
    """The PyTorch code for torch.compile where it is not that of the eager side."""
    peers = bench("peers")
    for name, peer in peers.OPERATORS.items():
        if peer.compiled is None:
            continue
        given = peers.make(peer.inputs, (8, 5), torch.float32, here.DEVICE)
        other = copy.deepcopy(given)
        peer.theirs(given)()
        peer.compiled(*other.values())
        torch.testing.assert_close(given, other, msg=name)


def test_step_profile(bench: Callable[[str], Any]) -> None:
    """Each memory counts once, where it is kept first, and that of parameters does not."""
    profile = bench("step_profile")

    class Layer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y: torch.Tensor = self.linear(x)
            return y.exp()

    model = torch.nn.Sequential(Layer(), Layer()).to(here.DEVICE)
    x = here.randn(4, 8)
    rows = [(row["where"], row["what"], row["times"]) for row in profile.kept(model, lambda: model(x).square())]
    # An input of the second layer is a result of the first one's exp; square keeps the second one's.
    assert sorted(rows) == [("*", "float32[4, 8]", 2), ("*.linear", "float32[4, 8]", 1)]
    optimizer = torch.optim.AdamW(model.parameters())
    model(x).sum().backward()
    optimizer.step()
    assert [row["where"] for row in profile.held(model, optimizer)] == ["parameters", "states of the optimizer"]
    profile.show(profile.held(model, optimizer))
