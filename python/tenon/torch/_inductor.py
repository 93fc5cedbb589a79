"""What Inductor is told: which operators it may take apart, and how."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_waiting: dict[Any, Callable[..., Any]] = {}


def add_decomposition(overload: Any, rule: Callable[..., Any]) -> None:
    """Inductor will ask `rule`, with a call's arguments, what it is made of; NotImplemented leaves it as it is."""
    _waiting[overload] = rule


def tell_inductor() -> None:
    """Hands over what there is, once something is being traced: until then nobody waits for Inductor to be imported."""
    if not _waiting or torch._guards.TracingContext.try_get() is None:
        return
    from torch._inductor import decomposition, lowering

    # The table that is used unless the configuration says otherwise. What is in the other one, `decompositions`, may
    # not stay as it is.
    table: dict[Any, Callable[..., Any]] = getattr(decomposition, "fast_random_decomps", dict)()
    table.update(_waiting)
    make_fallback: Callable[..., Any] = lowering.make_fallback
    for overload in _waiting:  # what its rule leaves as it is stays a call; strides as they were traced
        make_fallback(overload, lowering.constrain_to_fx_strides, warn=False, override_decomp=True)
    _waiting.clear()
