"""The table's samples become test cases; see cases.py. Run with a Python that has TensorFlow 2.16 or newer:

PYTHONPATH=python python -m pytest tests/tensorflow
"""

from __future__ import annotations

import os
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(pathlib.Path(__file__).parent), str(ROOT / "tests")]
import arrays  # noqa: E402, F401
import differences  # noqa: E402, F401
import locales  # noqa: E402, F401
import pickles  # noqa: E402, F401
import reference  # noqa: E402, F401
import samples  # noqa: E402, F401
import signatures  # noqa: E402, F401

sys.path.remove(str(ROOT / "tests"))  # it has a folder jax, which Keras would take for the package
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ["CUDA_VISIBLE_DEVICES"] = ""
tf = pytest.importorskip("tensorflow", minversion="2.16")
