"""Recipes for modules that combine their children: a gated MLP, and a sum that is normalised.

What the children compute plays no part: a probe has small random maps in their place, so a linear layer may be
quantised, sharded or wrapped by an adapter. They are called as modules, with their hooks.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from torch import Tensor, nn

import tenon.torch as tn
from tenon.torch._patch.linear import gate_of, gated, together
from tenon.torch._patch.modules import RECIPES as LEAVES
from tenon.torch._patch.probe import Maker, Mismatch, probe
from tenon.torch._patch.recipe import Recipe, Settings, match
from tenon.torch.nn._rows import held

_GATES = ("silu", "gelu", "gelu_tanh", "relu", "quick_gelu", "sigmoid", "tanh", "mish")


class _Map(nn.Module):
    """In the place of a child that is no plain layer: a small random matrix. It has no weight that a parent could look
    at."""

    def __init__(self, make: Maker, inputs: int, outputs: int) -> None:
        super().__init__()
        self.in_features, self.out_features = inputs, outputs
        self.matrix = make.normal(inputs, outputs, scale=inputs**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.matrix


def _sizes(child: nn.Module | None) -> tuple[int, int] | None:
    """What goes in and out of a linear layer, as torch, adapters and transformers' Conv1D name it."""
    for names in (("in_features", "out_features"), ("nx", "nf")):
        sizes = tuple(getattr(child, name, None) for name in names)
        if all(isinstance(n, int) for n in sizes):
            return sizes  # type: ignore[return-value]
    return None


def _is_dropout(child: nn.Module | None) -> bool:
    return child is not None and type(child).forward is nn.Dropout.forward


def _linears(module: nn.Module) -> dict[str, tuple[int, int]]:
    return {name: sizes for name, child in module._modules.items() if (sizes := _sizes(child)) is not None}


def _with_maps(module: nn.Module, make: Maker, training: bool) -> nn.Module:
    made = probe(_without(module, _linears(module)), make, training)
    for name, sizes in _linears(module).items():
        made._modules[name] = _map(module._modules[name], make, *_smaller(module, sizes))
    return made


def _map(child: nn.Module | None, make: Maker, inputs: int, outputs: int) -> nn.Module:
    """What stands for a linear layer: a plain one for a plain one, of which ours keeps less than of others."""
    if type(child) is not nn.Linear:
        return _Map(make, inputs, outputs)
    layer = nn.Linear(inputs, outputs, child.bias is not None, "meta")
    layer.weight = nn.Parameter(make.normal(outputs, inputs, scale=inputs**-0.5).detach())
    if child.bias is not None:
        layer.bias = nn.Parameter(make.normal(outputs).detach())
    return layer


def _without(module: nn.Module, names: Iterable[str]) -> nn.Module:
    """The same without some children, which may be large."""
    made: nn.Module = object.__new__(type(module))
    made.__dict__.update(module.__dict__)
    made.__dict__["_modules"] = {n: m for n, m in module._modules.items() if n not in names}
    return made


def _smaller(module: nn.Module, sizes: Iterable[int]) -> tuple[int, ...]:
    """Sizes of linear layers as their probes have them: what was equal or double still is."""
    every = sorted({n for pair in _linears(module).values() for n in pair})
    small: dict[int, int] = {}
    for n in every:
        small[n] = 2 * small[n // 2] if n % 2 == 0 and n // 2 in small else 6 + 2 * len(small)
    return tuple(small[n] for n in sizes)


# ---- gated MLP -------------------------------------------------------------------------------------------------------


def _find_gated(module: nn.Module) -> Iterator[Settings]:
    linears = _linears(module)
    own = [p for p in module._parameters.values() if p is not None]
    if own or len(linears) not in (2, 3):
        return
    for names in itertools.permutations(linears):
        *ups, down = names
        outs = {linears[up] for up in ups}
        if len(outs) != 1:
            continue
        hidden, halves = outs.pop()[1], 3 - len(ups)
        if linears[down][0] * halves != hidden or (halves == 2 and linears[down][0] == hidden):
            continue
        for activation in _GATES:
            yield from ((activation, names, swapped) for swapped in ((False, True) if halves == 2 else (False,)))


def _gated(activation: str, names: tuple[str, ...], swapped: bool) -> Callable[..., Tensor]:
    *ups, down = names
    act = gate_of(activation)

    def separate(module: nn.Module, x: Tensor) -> Tensor:
        children: Any = module._modules
        gate, value = together([children[name] for name in ups], x)
        return gated(act, value, gate, children[down])

    def joined(module: nn.Module, x: Tensor) -> Tensor:
        children: Any = module._modules
        (both,) = together([children[ups[0]]], x)
        a, b = both.chunk(2, -1)
        return gated(act, *((a, b) if swapped else (b, a)), children[down])

    return separate if len(ups) == 2 else joined


def _rows(module: nn.Module, make: Maker) -> Sequence[Tensor]:
    """What fits into the maps of an MLP's probe that do not take what is between the layers."""
    sizes = list(_linears(module).values())
    first = max(sizes, key=lambda size: (sizes.count(size), size[0] in [other[1] for other in sizes]))
    return [make.normal(2, 5, first[0], scale=2.0)]


# ---- a sum that is normalised ----------------------------------------------------------------------------------------


def _norm_of(module: nn.Module) -> tuple[str, Settings] | None:
    """The one child that is a layer_norm with weight and bias, and where its parts are."""
    recipe = next(r for r in LEAVES if r.name == "layer_norm")
    found = []
    for name, child in module._modules.items():
        try:
            matched = None if child is None or _sizes(child) else match(recipe, child)
        except Mismatch:
            continue
        if matched is not None and child is not None and not child._forward_hooks and not child._forward_pre_hooks:
            found.append((name, matched.settings))
    return found[0] if len(found) == 1 and None not in found[0][1] else None


def _find_add_norm(module: nn.Module) -> Iterator[Settings]:
    linears, norm = _linears(module), _norm_of(module)
    rest = [n for n, m in module._modules.items() if n not in linears and (norm is None or n != norm[0])]
    if len(linears) != 1 or norm is None or len(rest) > 1:
        return
    if all(_is_dropout(module._modules[n]) for n in rest):
        yield ((*linears, *rest), *norm)


def _add_norm(before: tuple[str, ...], norm: str, settings: Settings) -> Callable[..., Tensor]:
    weight, bias, eps = settings

    def call(module: nn.Module, x: Tensor, residual: Tensor) -> Tensor:
        children = module._modules
        for name in before:
            x = children[name](x)  # type: ignore[misc]
        child: Any = children[norm]
        w, b = held(child, weight), held(child, bias)
        if x.dtype != residual.dtype or w is None or w.dtype != x.dtype or hasattr(w, "to_local"):
            y: Tensor = child(x + residual)
            return y
        size = getattr(child, eps) if isinstance(eps, str) else eps
        y, _ = tn.add_layer_norm(x.contiguous(), residual.contiguous(), w, b, size)
        return y

    return call


def _two_rows(module: nn.Module, make: Maker) -> Sequence[Tensor]:
    mapped = next(m for m in module._modules.values() if isinstance(m, _Map))
    inputs, outputs = mapped.matrix.shape
    return [make.normal(2, 5, inputs), make.normal(2, 5, outputs)]


def _with_maps_no_mask(module: nn.Module, make: Maker, training: bool) -> nn.Module:
    """The norm keeps its size, which its weight has, and masks are random."""
    linears = _linears(module)
    made = probe(_without(module, linears), make, training)
    for name, (_, outputs) in linears.items():
        made._modules[name] = _Map(make, 6, outputs)
    for child in made._modules.values():
        if _is_dropout(child):
            child.p = 0.0  # type: ignore[union-attr]
    return made


RECIPES: Iterable[Recipe] = (
    Recipe("gated MLP", _find_gated, _gated, _rows, _with_maps, calls=lambda settings: settings[1]),
    Recipe(
        "add_layer_norm",
        _find_add_norm,
        _add_norm,
        _two_rows,
        _with_maps_no_mask,
        tensors=2,
        calls=lambda settings: settings[0],
    ),
)
