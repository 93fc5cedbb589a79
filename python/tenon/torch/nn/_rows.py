"""What the modules share: a forward that is written from a row of the table, and what is traced as a module."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn
from torch.fx.proxy import TraceError

import tenon
from tenon._public import compile_source, identifier
from tenon.contract import Operator
from tenon.torch._public import functions


def leaf(module: nn.Module, *args: Any) -> Tensor:
    """A call that torch.fx traces, as a node that calls the module: what its tracers make of torch.nn's modules. In one
    that they trace into, the forward can ask nothing about its input, and is in training for ever, or never."""
    tracer = args[0].tracer
    if tracer.root is module:
        name = f"tn.nn.{type(module).__name__}"
        raise TraceError(f"{name} is traced as a part of a module, such as nn.Sequential({name}(…)), and not alone")
    node: Tensor = tracer.create_proxy("call_module", tracer.path_of_module(module), args, {})
    return node


def held(module: nn.Module, name: str) -> Any:
    """A parameter or a buffer, or None; past Module.__getattr__, which takes as long as a small operator."""
    own: Tensor | None = module._parameters.get(name)
    if own is None:
        own = module._buffers.get(name)
    return getattr(module, name) if own is None else own  # None, or what parametrizations and their like have made


def find(name: str) -> tuple[Operator, Callable[..., Any]]:
    """An operator of the table and its function, with the parameters of the contract."""
    return tenon.ops()[name], functions[identifier(name)]


def attributes(op: Operator, renamed: Mapping[str, str]) -> str:
    """The operator's attributes as arguments, each from the field of the module that has its name, or torch's name."""
    return "".join(f", {identifier(a.name)}=self.{renamed.get(a.name, a.name)}" for a in op.attrs)


def set_forward(module: type, op: Operator, source: str, names: Mapping[str, Any]) -> None:
    """Gives a module its forward, written out so that a call costs what a hand-written one would."""
    made = compile_source(source, f"{module.__name__}.forward", names)["forward"]
    made.__qualname__, made.__module__ = f"{module.__name__}.forward", module.__module__
    type.__setattr__(module, "forward", made)
    if module.__doc__ is None:
        module.__doc__ = f"{op.doc} tn.{op.name} as a module; arguments as torch.nn.{module.__name__}'s."
