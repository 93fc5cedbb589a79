"""Functions that a module's forward calls by a global name, such as F.softmax or apply_rotary_pos_emb.

They are replaced for the patched model alone: its modules get a copy of their forward whose globals are a copy too,
where these names mean ours. The modules' file, and every other model made from it, stay as they are.
"""

from __future__ import annotations

import dis
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from types import CellType, FunctionType, ModuleType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import tenon.torch as tn
from tenon.torch._patch.probe import Maker, unlike
from tenon.torch.optim._shared import is_sharded

Swap = Callable[..., Any]


_OF_ROWS = {"layer_norm", "rms_norm", "softmax", "log_softmax"}


def _plain(theirs: Swap, name: str) -> Swap:
    """Ours, and theirs for what it does not take. torch's results of rows are contiguous, and may be viewed."""
    ours: Swap = getattr(tn, name)
    dense = name in _OF_ROWS

    def call(input: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(input, Tensor) or not input.is_floating_point() or is_sharded(input):
            return theirs(input, *args, **kwargs)
        return ours(input.contiguous() if dense else input, *args, **kwargs)

    return call


# torch's functions, by ours with the same arguments. Products (F.linear) get a row here.
_TORCHS: dict[str, Any] = {
    "cross_entropy": F.cross_entropy,
    "gelu": F.gelu,
    "group_norm": F.group_norm,
    "layer_norm": F.layer_norm,
    "log_softmax": F.log_softmax,
    "rms_norm": F.rms_norm,
    "silu": F.silu,
    "softmax": F.softmax,
}
_SWAPS: dict[Any, Swap] = {theirs: _plain(theirs, name) for name, theirs in _TORCHS.items()}
_SWAPS[nn.CrossEntropyLoss] = tn.nn.CrossEntropyLoss


# ---- rotary embedding ------------------------------------------------------------------------------------------------


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x with its first elements turned, as many as cos has; both halves of cos and sin are the same."""
    d = cos.shape[-1]
    if d == x.shape[-1]:
        return tn.rope(x, cos[..., : d // 2], sin[..., : d // 2])
    return torch.cat([tn.rope(x[..., :d], cos[..., : d // 2], sin[..., : d // 2]), x[..., d:]], -1)


def _rotary(theirs: Swap) -> Swap:
    def call(q: Any, k: Any, cos: Any, sin: Any, *rest: Any, **named: Any) -> Any:
        tensors = (q, k, cos, sin)
        other = named.keys() - {"unsqueeze_dim"}
        if rest or other or q.dtype != cos.dtype or k.dtype != cos.dtype or any(map(is_sharded, tensors)):
            return theirs(q, k, cos, sin, *rest, **named)
        dim = named.get("unsqueeze_dim", 1)
        cos, sin = cos.unsqueeze(dim), sin.unsqueeze(dim)
        return _turned(q, cos, sin), _turned(k, cos, sin)

    return call


@cache
def is_rotary(function: Swap) -> bool:
    """Whether a function turns q and k as tn.rope does, by the angles whose cosines and sines it takes."""
    params = inspect.signature(function.forward if isinstance(function, nn.Module) else function).parameters
    names = [p.name for p in params.values() if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
    if len(names) != 4 or not {"cos", "sin"} <= set(names):  # nothing else is called
        return False
    try:
        ways = ((8, 1), (4, 1), (8, 2)) if "unsqueeze_dim" in params else ((8, 1), (4, 1))
        return all(_turns_alike(function, *way) for way in ways)
    except Exception:
        return False


def _turns_alike(function: Swap, width: int, dim: int) -> bool:
    make = Maker(torch.float32, torch.device("cpu"))
    shapes = ((2, 3, 5, 8), (2, 1, 5, 8)) if dim == 1 else ((2, 5, 3, 8), (2, 5, 1, 8))
    q, k = (make.normal(*shape) for shape in shapes)
    half = make.normal(2, 5, width // 2).detach()
    angles = torch.cat([half, half], -1)
    named = {} if dim == 1 else {"unsqueeze_dim": dim}

    def called(which: Swap) -> Swap:
        return lambda a, b: which(a, b, angles.cos(), angles.sin(), **named)

    if width < 8:
        try:
            called(function)(q, k)
        except RuntimeError:  # most do not know what to do where cos has fewer elements than q
            return True
    return unlike(called(function), called(_rotary(function)), (q, k), torch.float32) is None


def has_equal_halves(model: nn.Module) -> bool:
    """Whether the angles that a model makes are the same in both halves, which tn.rope takes for granted: of those
    modules that make two equal tensors of a hidden state and positions."""
    found = False
    for module in model.modules():
        inv_freq = module._buffers.get("inv_freq")
        if inv_freq is None or inv_freq.is_meta or "forward" in module.__dict__:
            continue
        x = torch.zeros(1, 3, 4, device=inv_freq.device)
        stand_in = object.__new__(type(module))  # some change their buffers in a call
        stand_in.__dict__.update(module.__dict__, _buffers=dict(module._buffers))
        try:
            cos, sin = type(module).forward(stand_in, x, torch.arange(3, device=x.device)[None])
        except Exception:
            return False
        d = cos.shape[-1] // 2
        if cos.ndim != 3 or not all(torch.equal(t[..., :d], t[..., d:]) for t in (cos, sin)):
            return False
        found = True
    return found


# ---- other globals ---------------------------------------------------------------------------------------------------


def _chains(function: FunctionType) -> Iterator[tuple[list[str], Any]]:
    """The globals that a function reads, with the attributes of modules behind: nn.functional.silu, and its value."""
    path: list[str] = []
    value: Any = None
    for step in dis.get_instructions(function.__code__):
        if path and step.opname in ("LOAD_ATTR", "LOAD_METHOD") and isinstance(value, ModuleType):
            path.append(step.argval)
            value = getattr(value, step.argval, None)
            continue
        if path:
            yield path, value
            path = []
        if step.opname == "LOAD_GLOBAL" and step.argval in function.__globals__:
            path, value = [step.argval], function.__globals__[step.argval]
    if path:
        yield path, value


def _swap_for(value: Any, rotary: bool) -> Swap | None:
    try:
        if value in _SWAPS:
            return _SWAPS[value]
    except TypeError:  # what has no hash
        return None
    if rotary and callable(value) and not isinstance(value, type) and _is_of_python(value) and is_rotary(value):
        return _rotary(value)
    return None


def _is_of_python(value: Any) -> bool:
    """A function, or one that `kernels` has made a module of."""
    return isinstance(value, FunctionType | nn.Module)


def _shown(value: Any) -> str:
    return "cross_entropy" if value is nn.CrossEntropyLoss else str(value.__name__)


class _Rebinding:
    """Copies of functions in which some globals mean others. Functions of one file share their globals."""

    def __init__(self, rotary: bool) -> None:
        self.rotary = rotary
        self.swapped: dict[str, str] = {}  # what was replaced: by what
        self.globals: dict[int, dict[str, Any]] = {}
        self.copies: dict[FunctionType, FunctionType] = {}

    def copy(self, function: FunctionType) -> FunctionType:
        """The function itself, where nothing of it is replaced."""
        if function in self.copies:
            return self.copies[function]
        self.copies[function] = function  # a function that calls itself
        changes = dict(self._changes(function))
        closure = [self._cell(cell) for cell in function.__closure__ or ()]
        if not changes and all(a is b for a, b in zip(closure, function.__closure__ or (), strict=True)):
            return function
        # Without a name: torch.compile would look globals up in the file of that name.
        names = {k: v for k, v in function.__globals__.items() if k != "__name__"} | changes
        made = FunctionType(function.__code__, names, function.__name__, function.__defaults__, tuple(closure) or None)
        made.__kwdefaults__, made.__module__ = function.__kwdefaults__, function.__module__
        made.__dict__.update({k: v for k, v in function.__dict__.items() if k != "__wrapped__"})
        self.copies[function] = made
        return made

    def _cell(self, cell: CellType) -> CellType:
        """What a decorator holds of the function that it was put in front of."""
        try:
            value = cell.cell_contents
        except ValueError:  # empty
            return cell
        if not isinstance(value, FunctionType) or value.__module__.partition(".")[0] in ("torch", "tenon"):
            return cell
        made = self.copy(value)
        return cell if made is value else CellType(made)

    def _changes(self, function: FunctionType) -> Iterator[tuple[str, Any]]:
        modules: dict[str, ModuleType] = {}
        for path, value in _chains(function):
            swap = _swap_for(value, self.rotary)
            if swap is not None:
                name = ".".join(path)
                self.swapped[name] = "rope" if value not in _SWAPS else _shown(value)
            elif len(path) == 1 and isinstance(value, FunctionType) and value.__globals__ is function.__globals__:
                made = self.copy(value)
                swap = None if made is value else made
            if swap is None:
                continue
            if len(path) == 1:
                yield path[0], swap
                continue
            module: ModuleType = function.__globals__[path[0]]
            root = modules.setdefault(path[0], _copy(module))
            _put(root, path[1:], swap)
        yield from modules.items()


def _copy(module: ModuleType) -> ModuleType:
    made = ModuleType(module.__name__)
    made.__dict__.update(module.__dict__)
    return made


def _put(module: ModuleType, path: list[str], value: Any) -> None:
    """Sets an attribute of a copied module, and copies those in between."""
    for name in path[:-1]:
        inner: ModuleType = module.__dict__[name]
        if sys.modules.get(inner.__name__) is inner:  # not yet a copy
            inner = module.__dict__[name] = _copy(inner)
        module = inner
    module.__dict__[path[-1]] = value


@cache
def rebound(forward: Callable[..., Any], rotary: bool) -> tuple[Callable[..., Any], Mapping[str, str]]:
    """A forward with ours in the place of functions that it calls, and which these are. patch forgets the copies of its
    calls before, so that a new one has the globals of its time."""
    if not isinstance(forward, FunctionType):
        return forward, {}
    made = _Rebinding(rotary)
    return made.copy(forward), made.swapped


@cache
def check_swaps() -> None:
    """Leaves out what does not compute what torch's function does; it is seen once in each process."""
    make = Maker(torch.float32, torch.device("cpu"))
    x, w = make.normal(4, 8), make.normal(8)
    target = make.integers(8, 4)
    rest: dict[Any, tuple[Any, ...]] = {
        F.cross_entropy: (target,),
        F.group_norm: (2, w, w),
        F.layer_norm: ((8,), w, w),
        F.rms_norm: ((8,), w),
        F.softmax: (-1,),
        F.log_softmax: (-1,),
    }
    for theirs in _TORCHS.values():
        before, after = (partial(_with, function, rest.get(theirs, ())) for function in (theirs, _SWAPS[theirs]))
        if unlike(before, after, (x,), x.dtype) is not None:
            del _SWAPS[theirs]


def _with(function: Swap, rest: tuple[Any, ...], x: Tensor) -> Any:
    return function(x, *rest)
