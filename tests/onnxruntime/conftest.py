"""The samples of the table become models of one node; see tests/arrays.py.

PYTHONPATH=python python -m pytest tests/onnxruntime
"""

from __future__ import annotations

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
for package in ("onnx", "onnxruntime", "ml_dtypes"):
    pytest.importorskip(package)
