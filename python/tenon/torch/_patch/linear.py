"""Linear layers inside of a module that was patched: torch's products, with backward passes that keep less for them.

Layers of one input, such as those of queries, keys and values, are recorded as one call: their gradients of the input
are added by the products that make them. Such an input is not kept if it is a normalisation's result, whose own input
is kept anyway, and neither is the product of a gate. This is for layers whose forward is that of torch.nn.Linear and
that have no hooks. All others, such as those that an adapter wraps, are called as modules.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from types import NoneType
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn.modules.module import _has_any_global_hook

import tenon.torch as tn
from tenon import _rules
from tenon.contract import fused
from tenon.torch._patch.forward import Replacement

_TABLE = {"silu": "swiglu", "gelu": "geglu", "relu": "reglu"}


def has_hooks(module: nn.Module) -> bool:
    return any(value for name, value in module.__dict__.items() if name.endswith("_hooks"))


class Layer(NamedTuple):
    """A linear layer, in the type of its products."""

    weight: Tensor
    bias: Tensor | None


def _product_type(tensor: Tensor) -> torch.dtype:
    """The type that autocast has products of this tensor in."""
    kind = tensor.device.type
    if tensor.dtype == torch.float64 or not tensor.is_floating_point() or not torch.is_autocast_enabled(kind):
        return tensor.dtype
    return torch.get_autocast_dtype(kind)


def is_distributed() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def is_recorded() -> bool:
    """Whether what is called now is recorded by autograd alone, and by nothing that follows it."""
    return (
        torch.is_grad_enabled()
        and not torch.compiler.is_compiling()
        and torch._C._get_tracing_state() is None
        and not torch._C._are_functorch_transforms_active()
    )


def plain_layer(child: nn.Module, input: Tensor) -> Layer | None:
    """The layer that a child is, for an input that is recorded; None where it has to be called as a module."""
    if not is_recorded() or type(child) is not nn.Linear:
        return None
    if not isinstance(child.__dict__.get("forward"), Sibling | NoneType):
        return None
    if has_hooks(child) or _has_any_global_hook():  # type: ignore[no-untyped-call]
        return None
    weight, bias, dtype = child.weight, child.bias, _product_type(input)
    tensors = [weight] if bias is None else [weight, bias]
    if any(type(t) is not nn.Parameter or t.device != input.device or _product_type(t) != dtype for t in tensors):
        return None
    return Layer(weight.to(dtype), None if bias is None else bias.to(dtype))


def _as_rows(tensor: Tensor) -> Tensor:
    return tensor.reshape(-1, tensor.shape[-1])


# ---- what is made again ----------------------------------------------------------------------------------------------

_ATTRIBUTE = "_tenon_source"


class Remaking(NamedTuple):
    """How a tensor is made; what it is made of goes another way, so that checkpoints and their like can take it."""

    make: Callable[..., Tensor]
    autocast: torch.dtype | None

    def again(self, kind: str, dtype: torch.dtype, tensors: Sequence[Tensor | None]) -> Tensor:
        with torch.autocast(kind, self.autocast, enabled=self.autocast is not None):
            return self.make(*tensors).to(dtype)


class Source(NamedTuple):
    """What a tensor was made of, where that is kept anyway: whoever needs the tensor later can make it again."""

    remaking: Remaking
    tensors: tuple[Tensor | None, ...]
    version: int  # of the tensor


def _given(tensors: Sequence[Tensor]) -> Tensor:
    """A tensor that was kept itself."""
    return tensors[0]


def remade(make: Callable[..., Tensor], *tensors: Tensor | None) -> Tensor:
    """make(*tensors), which keeps its tensors for the backward pass and whose result is cheap to make again. FSDP may
    have taken them away when somebody else's backward pass needs the result."""
    made = make(*tensors)
    if is_recorded() and made.requires_grad and not is_distributed():
        kind = made.device.type
        autocast = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
        setattr(made, _ATTRIBUTE, Source(Remaking(make, autocast), tensors, made._version))
    return made


def _source_of(tensor: Tensor) -> Source | None:
    source: Source | None = getattr(tensor, _ATTRIBUTE, None)
    return source if source is not None and source.version == tensor._version else None


# ---- layers of one input ---------------------------------------------------------------------------------------------


class _Together(Function):
    """linear(x, w, b) for each w and b of `layers`. Their gradients of x are summed up by the products that make them,
    and an x that has a source is not kept."""

    @staticmethod
    def forward(ctx: Any, source: Source | None, x: Tensor, *layers: Tensor | None) -> tuple[Tensor, ...]:
        weights, biases = layers[::2], layers[1::2]
        ctx.save_for_backward(*weights, *((x,) if source is None else source.tensors))
        ctx.again = _given if source is None else partial(source.remaking.again, x.device.type, x.dtype)
        ctx.shape = x.shape
        ctx.set_materialize_grads(False)
        return tuple(F.linear(x, w, b) for w, b in zip(weights, biases, strict=True))  # type: ignore[arg-type]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        _, needs_x, *needs = ctx.needs_input_grad
        saved = ctx.saved_tensors
        arrived = [None if dy is None else _as_rows(dy) for dy in grads]
        dx, x = None, None
        for dy, w in zip(arrived, saved, strict=False):
            if dy is not None and needs_x:
                dx = dy @ w if dx is None else dx.addmm_(dy, w)
        found: list[Tensor | None] = []
        for dy, needs_w, needs_b in zip(arrived, needs[::2], needs[1::2], strict=True):
            if dy is not None and needs_w and x is None:
                x = _as_rows(ctx.again(saved[len(grads) :]))
            found.append(None if dy is None or x is None or not needs_w else dy.mT @ x)
            found.append(None if dy is None or not needs_b else dy.sum(0))
        return None, dx if dx is None else dx.view(ctx.shape), *found


def _together(children: Sequence[nn.Module], x: Tensor) -> tuple[Tensor, ...] | None:
    """What linear layers make of one input, recorded as one call; None where that cannot be, or is of no use."""
    layers, source = [plain_layer(child, x) for child in children], _source_of(x)
    if len(layers) == 1 and source is None:
        return None
    if any(layer is None or not layer.weight.requires_grad for layer in layers):
        return None
    flat = [tensor for layer in layers if layer is not None for tensor in layer]
    made: tuple[Tensor, ...] = _Together.apply(source, x.to(flat[0].dtype), *flat)  # type: ignore
    return made


def together(children: Sequence[nn.Module], x: Tensor) -> Sequence[Tensor]:
    made = _together(children, x)
    return [child(x) for child in children] if made is None else made


class Sibling(Replacement):
    """The forward of a linear layer whose parent calls it on the same input as other ones. The first of them makes the
    results of all, and the others take theirs.

    Its settings are the parent, the layer's name there and the names of all, in the order of their calls.
    """

    def __init__(self, module: nn.Module, recipe: str, settings: tuple[Any, ...], weight: str | None = None) -> None:
        self.module, self.recipe, self.settings, self.weight = module, recipe, settings, weight
        self.made: tuple[Tensor, int, dict[str, Tensor]] | None = None  # by the first: of what, its version, the rest

    def __call__(self, input: Tensor) -> Tensor:
        module: Any = self.module
        made = self.taken(input) if is_recorded() else None
        return F.linear(input, module.weight, module.bias) if made is None else made

    def taken(self, input: Tensor) -> Tensor | None:
        parent, name, names = self.settings
        children = [parent._modules.get(each) for each in names]
        first = None if children[0] is None else children[0].__dict__.get("forward")
        if not isinstance(first, Sibling) or parent._modules.get(name) is not self.module:
            return None
        if first is self:
            self.made = None
            made = _together(children, input)
            if made is None:
                return None
            self.made = input, input._version, dict(zip(names[1:], made[1:], strict=True))
            return made[0]
        if first.made is None or first.made[0] is not input or first.made[1] != input._version:
            return None
        rest = first.made[2]
        result = rest.pop(name, None)
        if not rest:
            first.made = None
        return result


_MAYBE = (ast.IfExp, ast.BoolOp, ast.Lambda, ast.GeneratorExp, ast.ListComp, ast.SetComp, ast.DictComp)


def _calls(node: ast.AST, me: str) -> Iterator[tuple[str, str]]:
    """The children that code calls on nothing but a variable, in any case: variables and names of children."""
    if isinstance(node, _MAYBE):
        return
    for part in ast.iter_child_nodes(node):
        yield from _calls(part, me)
    match node:
        case ast.Call(ast.Attribute(ast.Name(owner), child), [ast.Name(variable)], []) if owner == me:
            yield variable, child


def _siblings(block: Sequence[ast.stmt], me: str) -> Iterator[tuple[str, ...]]:
    """The children that statements, one after the other, call on a variable while it stays the same."""
    called: dict[str, list[str]] = {}
    for statement in block:
        if not any(isinstance(part, ast.stmt | ast.match_case) for part in ast.iter_child_nodes(statement)):
            for variable, child in _calls(statement, me):
                called.setdefault(variable, []).append(child)
        for part in ast.walk(statement):
            if isinstance(part, ast.Name) and not isinstance(part.ctx, ast.Load):
                yield tuple(dict.fromkeys(called.pop(part.id, ())))
    yield from (tuple(dict.fromkeys(names)) for names in called.values())


@cache
def _siblings_of(forward: Callable[..., Any]) -> Sequence[tuple[str, ...]]:
    """The same for the code of a forward; nothing where it cannot be read."""
    try:
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(forward)))).body
    except (OSError, TypeError, SyntaxError, ValueError):
        return ()
    if not isinstance(definition, ast.FunctionDef) or not definition.args.args:
        return ()
    me = definition.args.args[0].arg
    lists = (getattr(node, field, None) for node in ast.walk(definition) for field in ("body", "orelse", "finalbody"))
    return [names for block in lists if isinstance(block, list) for names in _siblings(block, me)]


def install(module: nn.Module) -> list[str]:
    """Has the plain layers that a module calls on one input called together; their names, for each such input."""
    found = []
    for called in _siblings_of(type(module).forward):
        children = {name: module._modules.get(name) for name in called}
        names = tuple(n for n, m in children.items() if type(m) is nn.Linear and "forward" not in m.__dict__)
        if len(names) > 1:
            for name in names:
                child: Any = children[name]
                child.forward = Sibling(child, "sibling", (module, name, names))
            found.append(", ".join(names))
    return found


# ---- a gate and the layer behind it ----------------------------------------------------------------------------------


def gate_name(activation: str) -> str:
    """The operator, or the formula, of a gate."""
    return _TABLE.get(activation, f"x * {activation}(gate)")


class Gate(NamedTuple):
    """x * act(gate)"""

    result: Callable[..., Tensor]  # of x and gate
    gradients: Callable[..., tuple[Tensor, Tensor, Tensor]]  # of x, gate and dy: theirs, and the result once more


@cache
def gate_of(activation: str) -> Gate:
    name, text = gate_name(activation), f"x * {activation}(gate)"
    (rule,) = _rules.statements_of(fused(f"gate(x: T[*s], gate: T[*s]) -> y: T[*s] : {text}"))
    assert rule.formula is not None
    head, _, body = rule.formula.replace("?", "").partition(" : ")
    gradients = tn.fuse(f"{head}, again: T[*s] : {body}; again = {text}")
    return Gate(getattr(tn, name) if activation in _TABLE else tn.fuse(name), gradients)


class _Gated(Function):
    """linear(x * act(gate), weight, bias). The weight's gradient needs this product again: it is made where the
    gradients of x and gate are, and so it is not kept."""

    @staticmethod
    def forward(ctx: Any, act: Gate, x: Tensor, gate: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, gate, weight)
        ctx.act = act
        return F.linear(act.result(x, gate), weight, bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        x, gate, weight = ctx.saved_tensors
        dy = _as_rows(grads[0])
        dx, dgate, again = ctx.act.gradients(x, gate, (dy @ weight).view(x.shape))
        wants_bias = ctx.needs_input_grad[4]
        return None, dx, dgate, dy.mT @ _as_rows(again), dy.sum(0) if wants_bias else None


def gated(act: Gate, x: Tensor, gate: Tensor, down: nn.Module) -> Tensor:
    """down(x * act(gate))"""
    layer = plain_layer(down, x)
    if layer is None or x.dtype != gate.dtype or not (layer.weight.requires_grad and x.requires_grad):
        y: Tensor = down(act.result(x, gate))
    else:
        dtype = layer.weight.dtype
        y = _Gated.apply(act, x.to(dtype), gate.to(dtype), *layer)  # type: ignore[no-untyped-call]
    return y
