"""Tenon's operators for ONNX Runtime: ``tenon.onnxruntime.register(options)``.

Nodes of the domain ``tenon`` are then found by sessions that are made with these options: one operator for each row of
the table, and ``Fuse`` for formulas. docs/onnxruntime.md says how a contract becomes a node.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from tenon._lib import lib
from tenon._need import need
from tenon.contract import table

need("onnxruntime", "ONNX Runtime", "1.17")

DOMAIN = "tenon"
VERSION = 1  # of its operators, for opset_import

_registered: WeakKeyDictionary[Any, int] = WeakKeyDictionary()  # how many operators options have


def register(options: Any) -> Any:
    """Adds the operators of the table, as it is now, to ``onnxruntime.SessionOptions``, and returns these.

    Options that have them already stay as they are: twice, no session could be made with them.
    """
    add = getattr(options, "register_custom_ops_library", None)
    if add is None:
        raise TypeError(f"register: needs onnxruntime.SessionOptions, not {type(options).__name__}")
    have, count = _registered.get(options), len(table())
    if have is None:
        add(lib._name)
        _registered[options] = count
    elif have != count:
        raise ValueError("these options have the operators from before tenon.load, and cannot get more; make new ones")
    return options
