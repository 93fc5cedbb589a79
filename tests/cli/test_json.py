"""What the command says to programs: `--json` of check and fuse."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def tenon(*words: str, status: int = 0) -> Any:
    done = subprocess.run([ROOT / "build/tenon", *words, "--json"], text=True, capture_output=True, timeout=120)
    assert done.returncode == status, done.stderr
    return json.loads(done.stdout)


def test_check() -> None:
    said = tenon("check", "relu", "sqrt", "--quick", "--dtype", "f32", "--case", "values,grad")
    assert [op["name"] for op in said["operators"]] == ["relu", "sqrt"]
    assert said["device"] == "cpu" and said["quick"] is True and said["limit_s"] == 60
    assert said["passed"] == sum(op["passed"] for op in said["operators"]) > 0 and said["failed"] == 0
    for op in said["operators"]:
        assert op["cases"] == [] and op["notes"] == [] and 0 <= op["worst"] <= 1


def test_check_says_every_case() -> None:
    said = tenon("check", "relu", "--quick", "--dtype", "f32", "--case", "values", "--verbose")
    (op,) = said["operators"]
    assert len(op["cases"]) == op["passed"] > 1
    case = op["cases"][0]
    assert case["outcome"] == "pass" and case["case"] == "values" and case["dtype"] == "f32" and case["seconds"] >= 0
    assert case["command"].startswith("tenon check relu --dtype f32 --kernel ")


def test_fuse() -> None:
    said = tenon("fuse", "silu(x) * y", "--shape", "x=[4, 33] y=[33]", "--no-bench")
    assert "sigmoid(x)" in said["formula"] and "dx" in said["gradient"]
    assert said["inputs"][1] == {"name": "y", "type": "f32", "shape": [33]}
    assert said["outputs"][0]["shape"] == [4, 33]
    assert said["check"]["passed"] > 0 and said["check"]["failed"] == 0 and "speed" not in said


def test_fuse_measures() -> None:
    said = tenon("fuse", "relu(x) + 1", "--shape", "x=[4, 33]", "--no-check")
    assert "check" not in said and [row["shape"] for row in said["speed"]] == ["the formula", "its gradient"]
    assert all(row["run"]["median_s"] > 0 for row in said["speed"])
