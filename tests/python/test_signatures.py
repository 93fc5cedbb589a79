"""Functions that share their name with one of torch's take its arguments by position, or only by name from where they
differ, and take all of them by torch's names: no call of the one means something else to the other."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import here
import pytest
import torch
import torch.nn.functional as F
from cases import assert_close
from namesakes import assert_names_are_of_contracts

import tenon
import tenon.torch as tn
from tenon._frameworks import TorchFunction

# Functions that are something else than torch's, and why that cannot be mistaken.
OTHER = {
    "histogram": "torch's finds the range itself, and returns the edges too; ours, as torch.histc, needs min and max",
    "select": "torch's takes a dimension and an index, which are ints; ours takes three tensors, as torch.where does",
    "dequantize": "torch's takes a tensor that knows its own scale, and nothing else; ours needs one by position",
}
# Parameters of torch's that ours does not have, and why.
LESS = {
    ("sort", "values"): "torch's out=; operators of two results have none",
    ("sort", "indices"): "torch's out=; operators of two results have none",
    ("cummax", "values"): "torch's out=; operators of two results have none",
    ("cummax", "indices"): "torch's out=; operators of two results have none",
    ("cummin", "values"): "torch's out=; operators of two results have none",
    ("cummin", "indices"): "torch's out=; operators of two results have none",
    ("sort", "reverse"): "TorchScript's own, for lists",
    ("softmax", "_stacklevel"): "which line torch's warning is about; there is no warning here",
    ("log_softmax", "_stacklevel"): "which line torch's warning is about; there is no warning here",
    ("max", "max"): "torch's out= with dim; what has two results has none",
    ("max", "max_values"): "torch's out= with dim; what has two results has none",
    ("min", "min"): "torch's out= with dim; what has two results has none",
    ("min", "min_indices"): "torch's out= with dim; what has two results has none",
}


def find(name: str) -> Callable[..., Any] | None:
    """torch's function of this name: as people call it, torch.nn.functional's first."""
    theirs = getattr(F, name, None) or getattr(torch, name, None)
    return theirs if callable(theirs) and not inspect.isclass(theirs) else None


SHARED = [name for name in tn.ops() if find(name) is not None]


POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def parameters(function: Callable[..., Any]) -> dict[str, bool]:
    """The names of a function's parameters, and whether they are taken by position."""
    return {n: p.kind in POSITIONAL for n, p in inspect.signature(function).parameters.items()}


def theirs(name: str) -> list[dict[str, bool]]:
    """The parameters of torch's function, of each overload."""
    function = find(name)
    assert function is not None
    try:
        return [parameters(function)]
    except ValueError:  # a function of C: its schemas say it, and those of TorchScript's own begin otherwise
        schemas: Any = torch._C._jit_get_schemas_for_operator(f"aten::{name}")
        known = [{a.name: not a.kwarg_only for a in schema.arguments} for schema in schemas]
        firsts = ("self", "x1", "tensors", "input")
        # What they call self is input in Python.
        return [{"input" if n == "self" else n: p for n, p in k.items()} for k in known if next(iter(k)) in firsts]


@pytest.mark.parametrize("name", SHARED)
def test_positions(name: str) -> None:
    ours = [n for n, by_position in parameters(getattr(tn, name)).items() if by_position]
    known = [[n for n, by_position in one.items() if by_position] for one in theirs(name)]
    assert known
    agree = any(ours == other[: len(ours)] for other in known)
    assert agree != (name in OTHER), f"tn.{name} takes {ours} by position, torch's {known}"


@pytest.mark.parametrize("name", [n for n in SHARED if n not in OTHER])
def test_names(name: str) -> None:
    """What torch's function takes by name, ours takes."""
    known = {n for one in theirs(name) for n in one}
    assert known - parameters(getattr(tn, name)).keys() == {n for o, n in LESS if o == name}


BY_NAME: dict[str, dict[str, Any]] = {
    "abs": {},
    "add": {"other": 2.0},
    "clamp": {"min": 0.5, "max": 1.0},
    "cumprod": {"dim": 0, "dtype": torch.float64},
    "cumsum": {"dim": 1},
    "exp": {},
    "floor": {},
    "gather": {"dim": 0, "index": here.tensor([[2, 1, 0, 1]])},
    "index_select": {"dim": 1, "index": here.tensor([3, 0, 3])},
    "leaky_relu": {"negative_slope": 0.3},
    "lerp": {"end": here.ones(3, 4), "weight": 0.25},
    "all": {"dim": (0, 1)},
    "any": {"dim": 1},
    "argmax": {"dim": 0, "keepdim": True},
    "argmin": {"dim": 1},
    "group_norm": {"num_groups": 2, "weight": here.rand(4)},
    "log": {},
    "log_softmax": {"dim": 0},
    "logsumexp": {"dim": (0, 1), "keepdim": True},
    "max": {"dim": 1},
    "mean": {"dim": (0,), "dtype": torch.float64},
    "min": {"other": here.rand(4)},
    "norm": {"p": 3, "dim": 1},
    "prod": {"dim": 0, "keepdim": True},
    "std": {"dim": 1, "unbiased": False},
    "var": {"dim": (0, 1), "correction": 0.5},
    "mul": {"other": here.full((4,), 3.0)},
    "pow": {"exponent": 3},
    "prelu": {"weight": here.full((4,), 0.1)},
    "rsqrt": {},
    "scatter_add": {"dim": 1, "index": here.tensor([[0, 0, 3], [1, 1, 1]]), "src": here.ones(2, 3)},
    "sigmoid": {},
    "sign": {},
    "softmax": {"dim": 0},
    "softsign": {},
    "sqrt": {},
    "square": {},
    "sum": {"dim": 1, "keepdim": True},
    "tanh": {},
}


@pytest.mark.parametrize("name", BY_NAME)
def test_calls_by_name(name: str) -> None:
    x, function = here.rand(3, 4) + 0.1, find(name)
    assert function is not None
    assert_close(getattr(tn, name)(input=x, **BY_NAME[name]), function(input=x, **BY_NAME[name]))


# What stands for a function of torch's under another name, and where its parameters stand otherwise: by name only.
LOSSES = {
    "bce_with_logits": "binary_cross_entropy_with_logits",
    "huber": "huber_loss",
    "l1": "l1_loss",
    "mse": "mse_loss",
}
UNDER_ANOTHER_NAME = {
    **LOSSES,
    "hard_sigmoid": "hardsigmoid",
    "hard_swish": "hardswish",
    "log_sigmoid": "logsigmoid",
}


@pytest.mark.parametrize("name", UNDER_ANOTHER_NAME)
def test_names_of_what_is_called_otherwise(name: str) -> None:
    function = getattr(F, UNDER_ANOTHER_NAME[name])
    try:
        known = parameters(function)
    except ValueError:  # a function of C of one tensor
        known = {"input": True}
    ours = parameters(getattr(tn, name))
    assert known.keys() <= ours.keys()
    by_position = [n for n, is_by_position in ours.items() if is_by_position]
    assert by_position == list(known)[: len(by_position)]


def test_spellings_name_what_contracts_have() -> None:
    assert_names_are_of_contracts(tenon.ops(), TorchFunction.spellings)


def test_there_are_many() -> None:
    assert len(SHARED) > 35 and {"batch_norm", "cosine_similarity", "cross_entropy", "dropout", "softmax"} <= {*SHARED}
