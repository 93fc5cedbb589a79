"""What stands in the `forward` of a module that was patched.

A patched module stays the object that it was, of its class and with its parameters, hooks and children: only an entry
`forward` in its `__dict__` is new, which torch's `__call__` prefers to the method. So optimisers, FSDP2 and
DistributedDataParallel, adapters, `isinstance` and state_dicts see nothing of it, and taking the entry out restores
everything. Copies and pickles of a patched model are patched.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from tenon.torch.nn._rows import held
from tenon.torch.optim._shared import is_sharded

Call = Callable[..., Any]


class Replacement:
    """The forward of a module, computed by `recipe`. A call that is unlike those that were compared when the module was
    patched goes to the module's own forward."""

    makers: ClassVar[dict[str, Callable[..., Call]]] = {}  # by recipe: settings -> call(module, *tensors)

    def __init__(self, module: nn.Module, recipe: str, settings: tuple[Any, ...], weight: str | None) -> None:
        # The module may be empty yet: a copy or a pickle is filled afterwards.
        self.module, self.recipe, self.settings, self.weight = module, recipe, settings, weight
        self.names = parameters_of(type(module).forward)
        self.count = len(self.names)
        self.call = self.makers[recipe](*settings)

    def __reduce__(self) -> Any:
        return type(self), (self.module, self.recipe, self.settings, self.weight)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        given = args if not kwargs and len(args) == self.count else self.bound(args, kwargs)
        if given is None or not self.fits(given):
            return type(self.module).forward(self.module, *args, **kwargs)
        return self.call(self.module, *given)

    def bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...] | None:
        """The arguments by position, or None where they are not exactly the tensors that were compared."""
        rest = self.names[len(args) :]
        if len(args) + len(kwargs) != self.count or any(name not in kwargs for name in rest):
            return None
        return (*args, *(kwargs[name] for name in rest))

    def fits(self, given: Sequence[Any]) -> bool:
        """Whether the operators take these: tensors in one piece, in the type of the module's weight or under autocast,
        which decides on types by itself."""
        if any(not isinstance(t, Tensor) or is_sharded(t) for t in given):
            return False
        if self.weight is None:
            return True
        weight = held(self.module, self.weight)
        if is_sharded(weight) or weight.device != given[0].device:
            return False
        same = weight.dtype == given[0].dtype or not given[0].is_floating_point()
        return same or torch.is_autocast_enabled(given[0].device.type)


class Rebound(Replacement):
    """The module's own forward, with other functions in the place of some that it calls."""

    def __init__(self, module: nn.Module, recipe: str, settings: tuple[Any, ...], weight: str | None = None) -> None:
        self.module, self.recipe, self.settings, self.weight = module, recipe, settings, weight
        self.call = self.makers[recipe](type(module).forward, *settings)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.call(self.module, *args, **kwargs)


class ReplacedAttribute:
    """A function that a module holds, such as its loss, computed by `recipe`; `original` is what it was."""

    makers: ClassVar[dict[str, Callable[..., Call]]] = {}  # by recipe: original -> call

    def __init__(self, original: Call, recipe: str, was_there: bool) -> None:
        self.original, self.recipe, self.was_there = original, recipe, was_there
        self.call = self.makers[recipe](original)

    def __reduce__(self) -> Any:
        return type(self), (self.original, self.recipe, self.was_there)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.call(*args, **kwargs)


def parameters_of(forward: Call) -> tuple[str, ...]:
    """The parameters of a forward that have to be given, without self."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    params = list(inspect.signature(forward).parameters.values())[1:]
    return tuple(p.name for p in params if p.kind in kinds and p.default is inspect.Parameter.empty)


def restore(module: nn.Module) -> int:
    """Takes out of a module what was put into it; how much that was."""
    ours = [k for k, v in module.__dict__.items() if isinstance(v, Replacement | ReplacedAttribute)]
    for name in ours:
        value = module.__dict__[name]
        if isinstance(value, ReplacedAttribute) and value.was_there:
            module.__dict__[name] = value.original
        else:
            del module.__dict__[name]
    return len(ours)
