"""patch(model) puts Tenon's operators into a model that exists; unpatch(model) takes them out again.

Modules are found by what they compute, not by their names: recipes (modules.py, blocks.py) say which forms a
computation may have, and a small input with gradients shows whether a module has one of them. What stands for its
forward is in forward.py, and the functions that forwards call are in functions.py.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import torch
from torch import nn

from tenon.torch._patch import blocks, functions, linear, logits, losses, modules
from tenon.torch._patch.forward import Rebound, Replacement, restore
from tenon.torch._patch.probe import Mismatch, device_of, dtype_of, quiet
from tenon.torch._patch.recipe import Match, Recipe, Settings, match, original
from tenon.torch._patch.report import Replaced, Report

__all__ = ["Report", "patch", "unpatch"]

# The first that computes what a module does is taken. Products (linear layers) get a row here.
_RECIPES: tuple[Recipe, ...] = (*blocks.RECIPES, *modules.RECIPES)
_EVERY = {recipe.name: recipe for recipe in (*_RECIPES, modules.DROPOUT)}
_FUNCTIONS = "functions"
Replacement.makers = {name: recipe.make for name, recipe in _EVERY.items()} | {
    _FUNCTIONS: lambda forward, rotary: functions.rebound(forward, rotary)[0]
}


def patch(model: nn.Module, *, dropout: bool = False, logits_mib: int = 1024) -> Report:
    """Has the modules of a model compute with Tenon's operators, where these compute the same; says what it did.

    Each module is compared on a small random input: it is replaced only if values and gradients are equal, but for
    rounding. The model, its modules, parameters and state_dict stay the same objects; unpatch(model) restores
    everything. Call it before or after torch.compile, DistributedDataParallel, fully_shard or adapters. With dropout,
    dropout is replaced as well: it keeps no mask, but draws other numbers than torch's. While a language model is
    trained, at most logits_mib MiB of its logits are in memory; what has no room is computed twice.

        report = tn.patch(model)
        print(report)
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"patch: model must be a torch.nn.Module, not {type(model).__name__}")
    if not isinstance(logits_mib, int) or logits_mib < 1:
        raise ValueError(f"patch: logits_mib is {logits_mib!r}, must be a number of MiB from 1 on")
    report = Report()
    with quiet(device_of(model)):
        functions.check_swaps()
        functions.rebound.cache_clear()
        recipes = (*_RECIPES, modules.DROPOUT) if dropout else _RECIPES
        _Patching(report, recipes, functions.has_equal_halves(model), logits_mib).run(model)
    _forget_compiled(model)
    return report


def unpatch(model: nn.Module) -> None:
    """Takes out what patch put into a model: every forward is again what it was."""
    restored = [restore(module) for module in list(model.modules())]
    if any(restored):
        _forget_compiled(model)


class _Patching:
    """One call of patch. Modules of the same class, with the same settings and sizes, are compared once."""

    def __init__(self, report: Report, recipes: tuple[Recipe, ...], rotary: bool, logits_mib: int) -> None:
        self.report, self.recipes, self.rotary, self.logits_mib = report, recipes, rotary, logits_mib
        self.known: dict[Hashable, Match | Mismatch | None] = {}

    def run(self, model: nn.Module) -> None:
        inside: set[nn.Module] = set()  # children that a replaced parent does not call any more
        for module in list(model.modules()):
            if module in inside or type(module).__module__.startswith("tenon."):
                continue
            if isinstance(ours := module.__dict__.get("forward"), Replacement):
                inside |= _bypassed(module, ours.recipe, ours.settings)
                continue
            if "forward" in module.__dict__:
                if not isinstance(module, torch._dynamo.OptimizedModule):
                    self.leave(module, "its forward was already replaced by something else")
                continue
            self.loss(module)
            inside |= self.module(module)
            self.siblings(module)

    def module(self, module: nn.Module) -> set[nn.Module]:
        """Replaces one module if it can; its children that are a part of the operator now."""
        key = _form(module)
        if key not in self.known:
            self.known[key] = self.found(module)
        found = self.known[key]
        if isinstance(found, Match):
            parts = _bypassed(module, found.recipe.name, found.settings)
            if hooked := _hooked(parts):
                self.leave(module, f"its part {hooked} has hooks")
                return set()
            found.install(module)
            self.report.replaced[Replaced(type(module).__name__, _shown(found), found.theirs, found.ours)] += 1
            return parts
        if not self.functions(module) and isinstance(found, Mismatch):
            self.leave(module, str(found))
        return set()

    def found(self, module: nn.Module) -> Match | Mismatch | None:
        """The first recipe that computes what a module does, or why none does, if one might have."""
        if original(module) in _NOTHING:
            return None
        known, reasons = _left(module, modules.DROPOUT in self.recipes), list[Mismatch]()
        for recipe in () if known else self.recipes:
            try:
                matched = match(recipe, module)
            except Mismatch as reason:
                reasons.append(reason)
                continue
            if matched is not None:
                return matched
        if known or reasons:
            return Mismatch(known) if known else reasons[0]
        if any(p is not None and sum(n > 1 for n in p.shape) > 1 for p in module._parameters.values()):
            return Mismatch(_LEFT_PRODUCTS)
        return None if module._modules else Mismatch("no operator of the table computes this")

    def functions(self, module: nn.Module) -> bool:
        forward = original(module)
        _, swapped = functions.rebound(forward, self.rotary)
        if not swapped:
            return False
        module.forward = Rebound(module, _FUNCTIONS, (self.rotary,))
        for theirs, ours in swapped.items():
            self.report.replaced[Replaced(f"{theirs} in {type(module).__name__}", ours)] += 1
        return True

    def siblings(self, module: nn.Module) -> None:
        if type(module.__dict__.get("forward")) is Replacement:
            return
        for names in linear.install(module):
            self.report.replaced[Replaced(f"{names} of {type(module).__name__}", "linear layers of one input")] += 1

    def loss(self, module: nn.Module) -> None:
        try:
            installed = losses.install(module, dtype_of(module))
        except Mismatch as reason:
            self.report.left[f"{losses.ATTRIBUTE} of {type(module).__name__}", str(reason)] += 1
            return
        if installed is not None:
            theirs, before, after = installed
            what = f"{getattr(theirs, '__name__', losses.ATTRIBUTE)} of {type(module).__name__}"
            self.report.replaced[Replaced(what, "cross_entropy", before, after)] += 1
            if head := logits.install(module, self.logits_mib):
                self.report.replaced[Replaced(f"{head} of {type(module).__name__}", "linear_cross_entropy")] += 1

    def leave(self, module: nn.Module, reason: str) -> None:
        self.report.left[type(module).__name__, reason] += 1


_NOTHING = (nn.Module.forward, nn.Identity.forward)  # of containers, and of what computes nothing
# Why modules that compute something are left as they are; other parents than these only call their children.
_LEFT_PRODUCTS = "matrix products and convolutions are left to PyTorch"
_PRODUCTS = (nn.Linear, nn.Bilinear, nn.modules.conv._ConvNd)


def _left(module: nn.Module, dropout: bool) -> str | None:
    if isinstance(module, _PRODUCTS):
        return _LEFT_PRODUCTS
    if isinstance(module, nn.SyncBatchNorm):
        return "it exchanges statistics between processes"
    if isinstance(module, nn.Embedding) and module.max_norm is not None:
        return "its max_norm writes to its weight"
    if isinstance(module, nn.Dropout) and not dropout:
        return "its random numbers would be others; patch(model, dropout=True) replaces it"
    return None


def _shown(found: Match) -> str:
    if found.recipe.name in ("activation", "softmax"):
        return str(found.settings[0])
    if found.recipe.name == "gated MLP":
        return f"{linear.gate_name(found.settings[0])} between its linear layers"
    return found.recipe.name


def _bypassed(module: nn.Module, recipe: str, settings: Settings) -> set[nn.Module]:
    """What of a module its operator does, so that it is not called any more: all children but those that it calls."""
    called = _EVERY[recipe].calls(settings) if recipe in _EVERY else module._modules
    return {part for n, m in module._modules.items() if m is not None and n not in called for part in m.modules()}


def _hooked(modules: set[nn.Module]) -> str | None:
    return next((type(module).__name__ for module in modules if linear.has_hooks(module)), None)


_OF_MODULES = frozenset(nn.Module().__dict__)  # what every module has


def _form(module: nn.Module) -> Hashable:
    """What decides what a module computes: class, attributes, and the shapes and types of its tensors. Attributes that
    are no plain values have to be the same objects."""

    def plain(value: Any) -> Hashable:
        if isinstance(value, bool | int | float | str | type(None)):
            return type(value), value
        if isinstance(value, tuple | list):
            return type(value), tuple(map(plain, value))
        return id(value)

    attributes = tuple((k, plain(v)) for k, v in module.__dict__.items() if k not in _OF_MODULES)
    tensors = tuple(
        (n, None if t is None else (tuple(t.shape), t.dtype, t.device))
        for n, t in (*module._parameters.items(), *module._buffers.items())
    )
    children = tuple((n, None if m is None else _form(m)) for n, m in module._modules.items())
    return type(module), attributes, tensors, children


def _forget_compiled(model: nn.Module) -> None:
    """What torch.compile has made of a model is made again: it does not see that a forward is another one."""
    compiled = any(
        isinstance(m, torch._dynamo.OptimizedModule) or m._compiled_call_impl is not None for m in model.modules()
    )
    if compiled:
        torch.compiler.reset()
