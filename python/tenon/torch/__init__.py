"""Tenon's operators for PyTorch: ``import tenon.torch as tn; y = tn.softmax(x)``.

One function for each row of the operator table, with gradients, torch.compile and torch.export; memory and threads are
torch's. ``tn.ops()`` lists them, ``help(tn.softmax)`` explains one, ``tn.load(path)`` adds more, and
``tn.fuse("silu(x) * y")`` makes one of a formula. ``tn.nn`` has modules and ``tn.optim`` optimisers that stand in for
torch's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tenon
import tenon.torch._need

# isort: split
from tenon import load as load
from tenon._public import identifier, named_formula, refuse_taken
from tenon.torch import _fuse, _ops, _public
from tenon.torch._fuse import fuse as fuse
from tenon.torch._param import Param as Param


def _refresh() -> None:
    """Makes the functions of operators that are new in the table."""
    new = {identifier(made.op.name): made for made in _ops.register_all()}
    free = [name for name in new if name not in globals()]
    for name in free:
        globals()[name] = _public.make_public(new[name])
        _names.append(name)
    for name in new:
        if name not in free:
            refuse_taken(globals(), name)


def ops() -> list[str]:
    """The names of the operators."""
    return list(_names)


_names: list[str] = []
_refresh()
_fuse.register()
tenon._adapters.append(_refresh)

from tenon.torch import nn as nn  # noqa: E402  (made of the functions above)
from tenon.torch import optim as optim  # noqa: E402

if TYPE_CHECKING:
    from tenon.torch._functions import *  # noqa: F403


def __getattr__(name: str) -> Any:  # type checkers take it for the operators that load adds
    """The functions of formulas, for pickle."""
    return named_formula(__name__, fuse, name)
