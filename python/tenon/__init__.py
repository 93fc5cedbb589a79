"""Tenon: fused operators from one table, in every framework.

``import tenon.torch as tn`` gives them to PyTorch, ``import tenon.jax as tn`` to JAX. This module needs nothing but the
C library, which is opened when it is first needed: a library that is missing or broken does not keep ``python -m
tenon.doctor`` from saying so.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tenon._kernel import Kernel, kernel
    from tenon._lib import TenonError
    from tenon.contract import Operator

    __version__: str

__all__ = ["Kernel", "TenonError", "__version__", "kernel", "load", "ops"]


def __getattr__(name: str) -> object:
    if name in ("Kernel", "kernel"):
        from tenon import _kernel

        return getattr(_kernel, name)
    if name not in ("TenonError", "__version__"):
        raise AttributeError(f"module 'tenon' has no attribute {name!r}{_where(name)}")
    from tenon import _lib

    made: object = _lib.TenonError if name == "TenonError" else _lib.lib.tn_version().decode()
    globals()[name] = made
    return made


def _where(name: str) -> str:
    """The end of a message about a name that the modules of frameworks have."""
    try:
        is_theirs = name in ("fuse", "nn", "optim") or (not name.startswith("_") and name in ops())
    except ImportError:  # a library that is missing or broken
        return ""
    ways = "import tenon.torch as tn, or tenon.jax, tenon.tensorflow, tenon.numpy"
    return f"; each framework has its own: {ways}, then tn.{name}" if is_theirs else ""


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def load(path: str | os.PathLike[str]) -> None:
    """Adds the operators of a shared object to the table. Frameworks that are in use get them at once."""
    from tenon._lib import check, lib

    check(lib.tn_load(os.fsencode(os.path.abspath(path))))
    for refresh in _adapters:
        refresh()


def ops() -> dict[str, Operator]:
    """The operators of the table, by name."""
    from tenon.contract import table  # not before it is needed: importing tenon should cost nothing

    return dict(table())


# What to call when the table has grown: one function for each framework that is in use.
_adapters: list[Callable[[], None]] = globals().get("_adapters", [])  # which importlib.reload leaves

# Operators that were defined again with another text: the name that users know, and the name of the newest.
_newest: dict[str, str] = globals().get("_newest", {})
