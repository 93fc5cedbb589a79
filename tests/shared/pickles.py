"""Functions of formulas are pickled by their text, in every framework."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

NORM = "f(x: T[*r, c], eps: float = 1e-5) -> y: T[*r, c] : x * rsqrt(mean(x * x, -1) + eps)"
FORMULAS = [
    NORM,
    "silu(x) * y",
    "# half, größer\ny = x * 0.5\nz = x % 0.5",
    "f(x: T[*s], k: 'a%2E'|'.' = '.') -> y: T[*s] : y = x",
]
READ = "import pickle, sys; print(pickle.loads(sys.stdin.buffer.read()).__doc__)"


def check_pickles(fuse: Callable[..., Any]) -> None:
    """They come back as themselves, in another process too."""
    for formula in FORMULAS:
        for function in (fuse(formula), fuse(formula, fast=False), fuse(formula, True)):
            assert copy.deepcopy(function) is function
            for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
                assert pickle.loads(pickle.dumps(function, protocol)) is function
    norm = fuse(NORM)
    assert norm is not fuse(NORM, True)
    shown = subprocess.run([sys.executable, "-c", READ], input=pickle.dumps(norm), capture_output=True, check=True)
    assert shown.stdout.decode().endswith(f"{norm.__doc__}\n")
