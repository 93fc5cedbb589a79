"""Tenon's operators for JAX: ``import tenon.jax as tn; y = tn.softmax(x)``.

One function for each row of the operator table, with gradients, jit, vmap, shard_map and export. ``tn.ops()`` lists
them, ``help(tn.softmax)`` explains one, ``tn.load(path)`` adds more, and ``tn.fuse("silu(x) * y")`` makes one of a
formula. Arrays are never written to: what an operator updates, it returns.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import tenon
import tenon.jax._need

# isort: split
from tenon import load as load
from tenon._public import add_functions, formula_operator, name_formula, named_formula
from tenon.jax import _form, _primitive, _public


def fuse(formula: str, fast: bool = False) -> Callable[..., Any]:
    """A function that computes a formula in one pass over memory, with its gradient.

    ``tn.fuse("relu(x * s + b)")`` takes x, s and b, as they occur; they broadcast as in NumPy. docs/formulas.md has the
    language: reductions, several outputs, contracts with dimensions and attributes by name. A mistake raises ValueError
    and points at the character. `fast` allows what may change the last bits, and NaN, infinity and -0. What a formula
    updates is returned behind its outputs.
    """
    formula_operator(formula, fast)  # says what is wrong with it
    return _function(formula, bool(fast))


@cache
def _function(formula: str, fast: bool) -> Callable[..., Any]:
    op = formula_operator(formula, fast)
    return name_formula(_public.make_public(_form.row_of(op, fast), range(len(op.outputs))), formula, fast)


def _refresh() -> None:
    """Makes the functions of operators that are new in the table."""
    add_functions(globals(), _names, lambda op: _public.make_public(_form.row_of(op)))


def ops() -> list[str]:
    """The names of the operators."""
    return list(_names)


_names: list[str] = []
_primitive.register()
_refresh()
tenon._adapters.append(_refresh)

if TYPE_CHECKING:
    from tenon.jax._functions import *  # noqa: F403


def __getattr__(name: str) -> Any:  # type checkers take it for the operators that load adds
    """The functions of formulas, for pickle."""
    return named_formula(__name__, fuse, name)
