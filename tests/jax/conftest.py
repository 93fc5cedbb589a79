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
sys.path[:0] = [str(pathlib.Path(__file__).parent), str(ROOT / "tests"), str(ROOT / "bench")]  # its table of peers
DEVICE = os.environ.get("TENON_TEST_DEVICE", "cpu")
os.environ["JAX_PLATFORMS"] = DEVICE
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # others use the GPU too
jax = pytest.importorskip("jax", minversion="0.8")
jax.config.update("jax_enable_x64", True)

from plugin import compile_plugin  # noqa: E402


@pytest.fixture(scope="session")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Operators whose contracts use what the built-in ones do not, compiled and loaded."""
    if DEVICE != "cpu":
        pytest.skip("the plugin's kernels are for the CPU")
    made = compile_plugin(tmp_path_factory.mktemp("plugin"))
    import tenon.jax

    tenon.load(made)
    return made
