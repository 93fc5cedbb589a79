"""Tenon: fused operators from one table, in every framework.

``import tenon.torch as tn`` gives them to PyTorch, ``import tenon.jax as tn`` to JAX. This module needs nothing but the
C library.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from tenon._lib import TenonError, check, lib

if TYPE_CHECKING:
    from tenon.contract import Operator

__all__ = ["TenonError", "__version__", "load", "ops"]

__version__: str = lib.tn_version().decode()


def load(path: str | os.PathLike[str]) -> None:
    """Adds the operators of a shared object to the table. Frameworks that are in use get them at once."""
    check(lib.tn_load(os.fsencode(os.path.abspath(path))))
    for refresh in _adapters:
        refresh()


def ops() -> dict[str, Operator]:
    """The operators of the table, by name."""
    from tenon.contract import table  # not before it is needed: importing tenon should cost nothing

    return dict(table())


# What to call when the table has grown: one function for each framework that is in use.
_adapters: list[Callable[[], None]] = globals().get("_adapters", [])  # which importlib.reload leaves
