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
import torch

from tenon._public import named_formula, refuse_taken, use_newest
from tenon.torch import _fuse, _public
from tenon.torch._fuse import fuse as fuse
from tenon.torch._load import load as load
from tenon.torch._load import load_inline as load_inline
from tenon.torch._param import Param as Param


def _refresh() -> None:
    """Adds the functions of operators that are new in the table."""
    taken = []
    for name in _public.add_new():
        if name in globals():
            taken.append(name)
        else:
            globals()[name] = _public.functions[name]
    use_newest(globals())
    for name in taken:
        del _public.functions[name]
        refuse_taken(globals(), name)


def ops() -> list[str]:
    """The names of the operators."""
    return list(_public.functions)


_refresh()
_fuse.register()

# Made of the functions above, and in the place of some.
from tenon.torch._attention import *  # noqa: E402, F403
from tenon.torch._cumulative import *  # noqa: E402, F403
from tenon.torch._functional import *  # noqa: E402, F403
from tenon.torch._losses import *  # noqa: E402, F403
from tenon.torch._products import *  # noqa: E402, F403
from tenon.torch._reductions import *  # noqa: E402, F403

globals().update({name: made for name, made in _public.functions.items() if name not in globals()})  # after a reload
tenon._adapters[:] = [*(known for known in tenon._adapters if known.__module__ != __name__), _refresh]

from tenon.torch import nn as nn  # noqa: E402
from tenon.torch import optim as optim  # noqa: E402
from tenon.torch._patch import patch as patch  # noqa: E402
from tenon.torch._patch import unpatch as unpatch  # noqa: E402
from tenon.torch._patch.kernels import kernel_mapping as kernel_mapping  # noqa: E402

if TYPE_CHECKING:
    from tenon.torch._functions import *  # noqa: F403


def __dir__() -> list[str]:
    return sorted(
        ["Param", "fuse", "kernel_mapping", "load", "load_inline", "nn", "ops", "optim", "patch", "unpatch", *ops()]
    )


def __getattr__(name: str) -> Any:  # type checkers take it for the operators that load adds
    """The functions of formulas, for pickle."""
    within = [f"{part}.{one}" for part, module in (("nn", nn), ("optim", optim)) for one in module.__all__]
    peers = (torch.nn.functional, torch, torch.nn, torch.optim, torch.nn.utils)
    return named_formula(__name__, fuse, name, within, peers)
