"""Tenon's operators for ONNX Runtime: ``tenon.onnxruntime.register(options)``.

Nodes of the domain ``tenon`` are then found by sessions that are made with these options: one operator for each row of
the table, and ``Fuse`` for formulas. docs/onnxruntime.md says how a contract becomes a node. ``check(model)`` names
what is misspelt in a model.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any
from weakref import WeakKeyDictionary

from tenon._lib import lib
from tenon._need import need
from tenon._suggest import hint
from tenon.contract import Operator, table

need("onnxruntime", "ONNX Runtime", "1.17")

DOMAIN = "tenon"
VERSION = 1  # of its operators, for opset_import
_FUSE = "Fuse"

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


def check(model: Any) -> None:
    """Raises ValueError where nodes of a model have operators or attributes that Tenon does not have, and names all of
    them. ONNX Runtime does not show a node's attributes to its operator, so a session passes over a misspelt one.

    `model`: an ``onnx.ModelProto``, its bytes, or a path. It needs the package ``onnx``.
    """
    import onnx

    if isinstance(model, bytes):
        model = onnx.load_from_string(model)
    elif isinstance(model, str | os.PathLike):
        model = onnx.load(model, load_external_data=False)
    found = [line for node in _nodes(model) if node.domain == DOMAIN for line in _mistakes(node)]
    if found:
        raise ValueError("\n".join(found))


def _nodes(model: Any) -> Iterator[Any]:
    """All nodes, those of functions and of graphs inside of nodes too."""
    graphs = [model.graph, *model.functions]
    while graphs:
        for node in graphs.pop().node:
            yield node
            for attribute in node.attribute:
                graphs += [attribute.g] if attribute.HasField("g") else []
                graphs += attribute.graphs


def _mistakes(node: Any) -> Iterator[str]:
    name = f"node '{node.name}'" if node.name else f"the node of {', '.join(node.output)}"
    if node.op_type == _FUSE:
        known = ["formula", "attributes", "fast", "lengths"]
    elif node.op_type in table():
        known = _attributes(table()[node.op_type])
    else:
        yield f"{name}: there is no operator '{node.op_type}'{hint(node.op_type, [_FUSE, *table()])}"
        return
    for attribute in node.attribute:
        if attribute.name not in known:
            has = f"it has {', '.join(known)}" if known else "it has none"
            suggestion = hint(attribute.name, known) or f"; {has}"
            yield f"{name}: {node.op_type} has no attribute '{attribute.name}'{suggestion}"


def _attributes(op: Operator) -> list[str]:
    """The attributes that a node of the operator may have."""
    several = sum(p.list for p in op.inputs) > 1
    return [*(a.name for a in op.attrs if not a.implied), *(["lengths"] if several else [])]
