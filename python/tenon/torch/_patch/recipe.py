"""The form of a recipe: what one kind of module computes, written with operators of the table."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tenon.torch._patch.forward import Replacement, parameters_of
from tenon.torch._patch.probe import Cost, Maker, Mismatch, Outcome, cost, device_of, difference, dtype_of, probe, run

Settings = tuple[Any, ...]


def _none(settings: Settings) -> Sequence[str]:
    return ()


def _own_probe(module: nn.Module, make: Maker, training: bool) -> nn.Module:
    return probe(module, make, training)


@dataclass(frozen=True)
class Recipe:
    """`find` proposes settings for a module from its form alone, in which `make` may stand for its forward. Whether it
    does is seen by calling both on `inputs`."""

    name: str  # in reports: the operator
    find: Callable[[nn.Module], Iterable[Settings]]
    make: Callable[..., Callable[..., Any]]  # settings -> call(module, *tensors)
    inputs: Callable[[nn.Module, Maker], Sequence[Tensor]]
    probe: Callable[[nn.Module, Maker, bool], nn.Module] = _own_probe
    tensors: int = 1  # that the forward takes
    calls: Callable[[Settings], Sequence[str]] = _none  # children that are still called


@dataclass(frozen=True)
class Match:
    """A recipe that computes what a module does."""

    recipe: Recipe
    settings: Settings
    theirs: Cost
    ours: Cost

    def install(self, module: nn.Module) -> None:
        own = {**module._parameters, **module._buffers}
        weight = next((s for s in self.settings if isinstance(s, str) and own.get(s) is not None), None)
        module.forward = Replacement(module, self.recipe.name, self.settings, weight)


def original(module: nn.Module) -> Callable[..., Any]:
    forward: Callable[..., Any] = type(module).forward
    return forward


def _outcome(
    recipe: Recipe, function: Callable[..., Any], module: nn.Module, dtype: torch.dtype, training: bool
) -> Outcome:
    make = Maker(dtype, device_of(module))
    stand_in = recipe.probe(module, make, training)
    return run(function, stand_in, recipe.inputs(stand_in, make))


def _cost(recipe: Recipe, function: Callable[..., Any], module: nn.Module, dtype: torch.dtype) -> Cost:
    make = Maker(dtype, device_of(module))
    stand_in = recipe.probe(module, make, True)
    return cost(function, stand_in, recipe.inputs(stand_in, make))


def match(recipe: Recipe, module: nn.Module) -> Match | None:
    """The first settings with which the recipe computes what the module does: in f32 and in the module's own type, in
    training and without. Raises Mismatch where a reason is known."""
    if len(parameters_of(original(module))) != recipe.tensors:
        return None
    proposals = list(recipe.find(module))
    if not proposals:
        return None
    dtype = dtype_of(module)
    ways = list(itertools.product(dict.fromkeys((torch.float32, dtype)), (True, False)))
    try:
        theirs = {way: _outcome(recipe, original(module), module, *way) for way in ways}
    except Exception:  # it takes something else
        return None
    if any(outcome.wrote for outcome in theirs.values()):
        raise Mismatch("it writes to its input, of which ours would make a copy in training")
    if any(outcome.noted for outcome in theirs.values()):
        raise Mismatch("it sets attributes of its own when it is called")
    reason = ""
    for settings in proposals:
        ours = recipe.make(*settings)
        try:
            outcomes = ((way, _outcome(recipe, ours, module, *way)) for way in ways)
            found = next((d for way, o in outcomes if (d := difference(theirs[way], o, way[0]))), None)
        except Exception as error:
            found = first_line(error)
        if found is None:
            return Match(recipe, settings, *(_cost(recipe, f, module, dtype) for f in (original(module), ours)))
        reason = reason or found
    if len(proposals) == 1:
        raise Mismatch(f"{recipe.name} does not compute the same: {reason}")
    return None


def first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:100]}" if lines else type(error).__name__
