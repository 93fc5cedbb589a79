"""Functions that share their name with one of torch's take its arguments by position, or only by name from where they
differ: no call of the one means something else to the other."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import tenon.torch as tn

# What a parameter is called elsewhere: torch takes NumPy's x for its input, and schemas call that self.
SAME = {"x": "input", "self": "input", "y": "other", "q": "input"}

# Where ours takes something by position that torch's does not, and why that cannot be mistaken.
MORE = {
    "dequantize": "torch's takes a tensor that knows its own scale, and nothing else",
}
# Parameters of torch's that ours does not have, and why.
LESS = {
    ("softmax", "_stacklevel"): "which line torch's warning is about; there is no warning here",
}


def find(name: str) -> Callable[..., Any] | None:
    """torch's function of this name: as people call it, torch.nn.functional's first."""
    theirs = getattr(F, name, None) or getattr(torch, name, None)
    return theirs if callable(theirs) and not inspect.isclass(theirs) else None


SHARED = [name for name in tn.ops() if find(name) is not None]


def positional(function: Callable[..., Any]) -> list[str]:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [p.name for p in inspect.signature(function).parameters.values() if p.kind in kinds]
    return [SAME.get(n, n) for n in names]


def theirs(name: str) -> list[list[str]]:
    """The names of torch's positional parameters, of each overload."""
    function = find(name)
    assert function is not None
    try:
        return [positional(function)]
    except ValueError:  # a function of C: its schemas say it
        schemas: Any = torch._C._jit_get_schemas_for_operator(f"aten::{name}")
        return [[SAME.get(a.name, a.name) for a in schema.arguments if not a.kwarg_only] for schema in schemas]


@pytest.mark.parametrize("name", SHARED)
def test_positions(name: str) -> None:
    ours, known = positional(getattr(tn, name)), theirs(name)
    assert known
    agree = any(ours == other[: len(ours)] for other in known)
    assert agree != (name in MORE), f"tn.{name} takes {ours} by position, torch's {known}"


@pytest.mark.parametrize("name", [n for n in SHARED if inspect.isfunction(find(n))])
def test_keywords(name: str) -> None:
    """What torch's function takes by name, ours takes."""
    function = find(name)
    assert function is not None
    ours = {SAME.get(n, n) for n in inspect.signature(getattr(tn, name)).parameters}
    missing = set(inspect.signature(function).parameters) - ours - {"args", "kwargs"}
    assert missing == {n for o, n in LESS if o == name}


def test_there_are_many() -> None:
    assert len(SHARED) > 35 and {"batch_norm", "cosine_similarity", "cross_entropy", "dropout", "softmax"} <= {*SHARED}
