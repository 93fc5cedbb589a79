"""All frameworks in one process, in either order, with and without GPUs to see, and without some of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from child import CALLS, COMPUTE, inputs

ROOT = Path(__file__).resolve().parents[2]
# TensorFlow's environment (tools/setup.sh) has the NumPy of this one: what is missing here can be taken from there.
VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"
ALSO = ROOT / ".venv" / "tensorflow" / "lib" / VERSION / "site-packages"
GRADIENTS = {"torch", "jax", "tensorflow"}


def is_here(package: str) -> bool:
    found = find_spec(package)
    return (found is not None and found.origin is not None) or (ALSO / package / "__init__.py").is_file()


HERE = [name for name in COMPUTE if is_here(name) and (name != "onnxruntime" or is_here("onnx"))]


def run(order: list[str], hide: list[str] | None = None, **settings: str) -> dict[str, Any]:
    command = [sys.executable, str(Path(__file__).with_name("child.py")), ",".join(order), "--also", str(ALSO)]
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "python"),
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        **settings,
    }
    if hide:
        command += ["--hide", ",".join(hide)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    made: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return made


def exact(call: str) -> tuple[Any, list[Any]]:
    """The result in float64, and the gradients of the sum of its squares."""
    x, *rest = (a.astype(np.float64) for a in inputs(call))
    if call == "softmax":
        y = np.exp(x) / np.exp(x).sum(-1, keepdims=True)
        return y, [y * (2 * y - (2 * y * y).sum(-1, keepdims=True))]
    s = 1 / (1 + np.exp(-x))
    y = x * s * rest[0]
    return y, [2 * y * rest[0] * s * (1 + x * (1 - s)), 2 * y * x * s]


def assert_right(name: str, made: dict[str, Any]) -> None:
    for call in CALLS:
        y, gradients = exact(call)
        np.testing.assert_allclose(made[call][0], y, rtol=1e-5, atol=1e-6, err_msg=f"{name}: {call}")
        assert len(made[call][1]) == (len(gradients) if name in GRADIENTS else 0)
        for have, want in zip(made[call][1], gradients, strict=False):
            np.testing.assert_allclose(have, want, rtol=1e-5, atol=1e-6, err_msg=f"{name}: gradient of {call}")


@pytest.mark.parametrize("backwards", [False, True], ids=["", "backwards, no GPU to see"])
def test_in_one_process(backwards: bool) -> None:
    order = HERE[::-1] if backwards else HERE
    made = run(order, **({"CUDA_VISIBLE_DEVICES": ""} if backwards else {}))
    assert list(made) == order
    for name in order:
        assert_right(name, made[name])


@pytest.mark.parametrize("works", ["torch", "jax"])
def test_missing_frameworks(works: str) -> None:
    """They say what to do, and the others work."""
    if works not in HERE:
        pytest.skip(f"there is no {works}")
    others = ["onnxruntime", "numpy"] if "onnxruntime" in HERE else ["numpy"]
    missing = [name for name in ("torch", "jax", "tensorflow") if name != works]
    made = run([*missing, works, *others], hide=missing)
    for name in missing:
        assert f"tenon.{name} needs " in made[name] and f"and there is none: pip install {name}" in made[name]
    for name in (works, *others):
        assert_right(name, made[name])


def test_no_numpy() -> None:
    code = "import sys; sys.modules['numpy'] = None; import tenon.numpy"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert "tenon.numpy needs NumPy 1.23 or newer, and there is none: pip install numpy" in done.stderr
