"""The table's samples become test cases; see cases.py. Run with

PYTHONPATH=python TENON_LIBRARY=build/libtenon.so python -m pytest tests/python
"""

from __future__ import annotations

import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))  # its table of peers
torch = pytest.importorskip("torch", minversion="2.10")

import torch._dynamo.guards as guards  # noqa: E402

# After each compilation torch measures how long its guards take, and empties the caches of the processor for that.
if hasattr(guards, "profile_guard_manager"):
    guards.profile_guard_manager = lambda *_: 0.0


# Operators that these define stay in the table, which other tests go over.
LAST = ("test_load_inline.py", "test_kernel.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: LAST.index(item.path.name) + 1 if item.path.name in LAST else 0)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)
