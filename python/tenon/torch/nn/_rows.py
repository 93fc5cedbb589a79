"""What the modules share: how torch.fx traces them, and how they look at what they hold."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.fx.proxy import TraceError


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
