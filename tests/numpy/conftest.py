"""The samples of the table become test cases; see tests/arrays.py. Takes ml_dtypes and torch where they are there.

PYTHONPATH=python python -m pytest tests/numpy
"""

from __future__ import annotations

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
