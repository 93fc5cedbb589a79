"""The table's samples become test cases; see cases.py. Run with a Python that has JAX 0.8 or newer:

PYTHONPATH=python python -m pytest tests/jax

TENON_TEST_DEVICE=cuda runs them on the GPU.
"""

from __future__ import annotations

import os
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))  # its table of peers
DEVICE = os.environ.get("TENON_TEST_DEVICE", "cpu")
os.environ["JAX_PLATFORMS"] = DEVICE
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # others use the GPU too
jax = pytest.importorskip("jax", minversion="0.8")
jax.config.update("jax_enable_x64", True)
