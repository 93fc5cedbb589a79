"""Functions that have the name of a framework's own: whether a call of theirs can mean something else here."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pytest

from tenon._public import Spelling
from tenon.contract import Operator

# What frameworks call the parameters of ours; "x2" is whatever stands second.
SAME = {
    "x": {"x", "a", "x1", "m", "array", "features", "logits", "input"},
    "logits": {"logits", "x"},
    "y": {"y", "x2"},
    "a": {"a", "x1"},
    "b": {"b", "x2"},
    "exponent": {"y", "x2"},
    "where": {"where", "mask"},
    "negative_slope": {"negative_slope", "alpha"},
}
BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class Namesake(NamedTuple):
    """A function of a framework, and ours of the same name."""

    where: str  # the framework's module, jax.nn
    name: str
    theirs: Callable[..., Any]
    ours: Callable[..., Any]

    def __str__(self) -> str:
        return f"{self.where}.{self.name}"


def namesakes(tn: Any, modules: Sequence[str]) -> Iterator[Namesake]:
    for where in modules:
        root, *path = where.split(":")
        module = importlib.import_module(root)
        for part in path:
            module = getattr(module, part)
        for name in tn.ops():
            theirs = getattr(module, name, None)
            if callable(theirs):
                yield Namesake(where.replace(":", "."), name, theirs, getattr(tn, name))


def positional(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """The parameters that a call may give by position; of *args, two."""
    parameters = list(inspect.signature(function).parameters.values())
    if any(p.kind == p.VAR_POSITIONAL for p in parameters):
        return [inspect.Parameter(name, inspect.Parameter.POSITIONAL_ONLY) for name in ("x", "y")]
    return [p for p in parameters if p.kind in BY_POSITION]


def difference(pair: Namesake, same_defaults: Mapping[tuple[str, Any], Any]) -> str | None:
    """What a call by position means elsewhere and not here; None where there is nothing. `same_defaults` has defaults
    that are written otherwise: (parameter, theirs) to ours."""
    for mine, other in zip(positional(pair.ours), positional(pair.theirs), strict=False):
        if other.name not in SAME.get(mine.name, {mine.name}):
            return f"{other.name} stands where {mine.name} does here"
        default = same_defaults.get((mine.name, other.default), other.default)
        if other.default is not inspect.Parameter.empty and default != mine.default:
            return f"{other.name} is {other.default} by default, and {mine.default} here"
    return None


def assert_alike(pair: Namesake, reasons: Mapping[str, str], same_defaults: Mapping[tuple[str, Any], Any] = {}) -> None:
    """A call of theirs means the same here, or `reasons` says why it does not and how that is noticed."""
    found = difference(pair, same_defaults)
    assert (found is None) != (str(pair) in reasons), f"{pair}: {found}, {reasons.get(str(pair))}"


def assert_names_are_of_contracts(ops: Mapping[str, Operator], spellings: Mapping[str, Spelling]) -> None:
    """The table of how a framework calls things names operators and parameters that are there."""
    for name, spelling in spellings.items():
        names = {p.name for p in ops[name].params}
        assert names >= {*(spelling.order or ()), *spelling.names, *spelling.defaults}, name


def assert_suggests(tn: Any, x: Any) -> None:
    """A name of a function or an argument that does not exist gets a suggestion, unless it is like no other."""
    for wrong, right in (("sofmax", "softmax"), ("multiply", "mul"), ("huber_loss", "huber")):
        with pytest.raises(AttributeError, match=f"has no attribute '{wrong}'; did you mean '{right}'"):
            getattr(tn, wrong)
    with pytest.raises(AttributeError, match=r"has no attribute 'ptp'$"):
        tn.ptp  # noqa: B018
    for wrong, right in (("keepdim", "keepdims"), ("dim", "axis"), ("axes", "axis"), ("kepdims", "keepdims")):
        message = rf"sum\(\) got an unexpected keyword argument '{wrong}'; did you mean '{right}'"
        with pytest.raises(TypeError, match=message):
            tn.sum(x, **{wrong: 1})
