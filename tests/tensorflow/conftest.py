"""The table's samples become test cases; see cases.py. Run with a Python that has TensorFlow 2.16 or newer:

PYTHONPATH=python python -m pytest tests/tensorflow
"""

from __future__ import annotations

import os
import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ["CUDA_VISIBLE_DEVICES"] = ""
tf = pytest.importorskip("tensorflow", minversion="2.16")
