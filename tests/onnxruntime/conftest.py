"""The samples of the table become models of one node; see tests/shared/arrays.py.

PYTHONPATH=python python -m pytest tests/onnxruntime
"""

from __future__ import annotations

import importlib.util


def is_installed(package: str) -> bool:
    spec = importlib.util.find_spec(package)
    return spec is not None and spec.origin is not None  # a folder of that name is no package


collect_ignore_glob = [] if all(map(is_installed, ("onnx", "onnxruntime", "ml_dtypes"))) else ["test_*.py"]
