"""The projects that `tenon new` writes, built and checked on a GPU. On the CPU they are in tests/cli."""

from __future__ import annotations

import subprocess
from pathlib import Path

import here
import pytest

TENON = Path(__file__).resolve().parents[2] / "build/tenon"

pytestmark = pytest.mark.skipif(here.DEVICE == "cpu", reason="needs a GPU")


@pytest.mark.parametrize("template", ["elementwise", "row", "tile", "reduction", "scan", "stencil"])
def test_a_template_passes_the_check(template: str, tmp_path: Path) -> None:
    subprocess.run([TENON, "new", "my_op", "--template", template], cwd=tmp_path, check=True)
    subprocess.run([TENON, "build", "my_op"], cwd=tmp_path, check=True)
    command = [TENON, "--load", "my_op/my_op.tenon.so", "check", "--only-loaded", "--device", "cuda", "--kernel", "gpu"]
    done = subprocess.run([*command, "--skip", "huge"], cwd=tmp_path, text=True, capture_output=True)
    assert done.returncode == 0, done.stdout[-4000:]
