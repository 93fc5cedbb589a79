"""Tenon's operators for ONNX Runtime: ``tenon.onnxruntime.register(options)``.

Nodes of the domain ``tenon`` are then found by sessions that are made with these options: one operator for each row of
the table, and ``Fuse`` for formulas. docs/onnxruntime.md says how a contract becomes a node.
"""

from __future__ import annotations

from typing import Any

from tenon._lib import lib

DOMAIN = "tenon"
VERSION = 1  # of its operators, for opset_import


def register(options: Any) -> Any:
    """Adds the operators of the table, as it is now, to ``onnxruntime.SessionOptions``, and returns these."""
    options.register_custom_ops_library(lib._name)
    return options
