"""Tenon's operators for JAX: ``import tenon.jax as tn; y = tn.softmax(x)``.

One function for each row of the operator table, with gradients, jit, vmap, shard_map and export. ``tn.ops()`` lists
them, ``help(tn.softmax)`` explains one, ``tn.load(path)`` adds more, and ``tn.fuse("silu(x) * y")`` makes one of a
formula. Arrays are never written to: what an operator updates, it returns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import tenon.jax._need  # noqa: F401

# isort: split
from tenon import load as load
from tenon._public import add_functions, formula_operator, join, make_fuse, named_formula
from tenon.jax import _form, _primitive, _public


def _make_formula(formula: str, fast: bool) -> Callable[..., Any]:
    op = formula_operator(formula, fast)
    return _public.make_public(_form.row_of(op, fast), range(len(op.outputs)))


fuse = make_fuse(__name__, _make_formula, "What a formula updates is returned behind its outputs.")


def _refresh() -> None:
    """Makes the functions of operators that are new in the table."""
    add_functions(globals(), _names, lambda op: _public.make_public(_form.row_of(op)))


def ops() -> list[str]:
    """The names of the operators."""
    return list(_names)


_names: list[str] = globals().get("_names", [])  # which importlib.reload leaves
_primitive.register()
_refresh()
join(_refresh)

if TYPE_CHECKING:
    from tenon.jax._functions import *  # noqa: F403


def __dir__() -> list[str]:
    """What is meant for users."""
    return sorted(["fuse", "load", "ops", *_names])


def __getattr__(name: str) -> Any:  # type checkers take it for the operators that load adds
    """The functions of formulas, for pickle."""
    return named_formula(__name__, fuse, name)
