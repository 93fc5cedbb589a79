"""Tenon's operators for NumPy: ``import tenon.numpy as tn; y = tn.softmax(x)``.

One function for each row of the operator table, on NumPy's arrays and on whatever speaks DLPack or
``__cuda_array_interface__``: no framework is needed. ``tn.ops()`` lists them, ``help(tn.softmax)`` explains one,
``tn.load(path)`` adds more, and ``tn.fuse("silu(x) * y")`` makes one of a formula. Nothing is differentiated here; the
gradients are operators like the others (``tn.softmax_grad``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tenon.numpy._need  # noqa: F401

# isort: split
from tenon import load as load
from tenon._public import add_functions, join, named_formula
from tenon.numpy import _ops
from tenon.numpy._ops import fuse as fuse


def _refresh() -> None:
    """Makes the functions of operators that are new in the table."""
    add_functions(globals(), _names, lambda op: _ops.make_public(_ops.numpy_op(op.name)))


def ops() -> list[str]:
    """The names of the operators."""
    return list(_names)


_names: list[str] = globals().get("_names", [])  # which importlib.reload leaves
_refresh()
join(_refresh)

if TYPE_CHECKING:
    from tenon.numpy._functions import *  # noqa: F403


def __dir__() -> list[str]:
    """What is meant for users."""
    return sorted(["fuse", "load", "ops", *_names])


def __getattr__(name: str) -> Any:  # type checkers take it for the operators that load adds
    """The functions of formulas, for pickle."""
    return named_formula(__name__, fuse, name)
