"""The example trains with Tenon's operators as with NumPy's: it compares the losses of every epoch itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("without", ["", "sklearn"])
def test_digits(without: str) -> None:
    """Without scikit-learn the digits are drawn."""
    code = f"import runpy, sys; sys.modules.update({{{without!r}: None}} if {without!r} else {{}})"
    code += f"; runpy.run_path({str(ROOT / 'examples/numpy/digits.py')!r}, run_name='__main__')"
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=env, text=True, capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("digits right") == 2 and (not without or "(drawn here)" in done.stdout)
