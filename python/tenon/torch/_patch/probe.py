"""What a module computes, found out on a small input: values, gradients and what it keeps for the backward pass.

A probe is a stand-in for a module with its class and settings but with random parameters and without hooks, so that
neither the module nor its gradients are touched, and a weight of ones or zeros cannot hide what it does.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from tenon.torch._patch.forward import Replacement

_CONTAINERS = (list, dict, set)
Function = Callable[..., Any]  # of a probe and its inputs

# What two ways to compute the same may differ by, in parts of the largest value: they round at other places.
_NOISE = {torch.float64: 3e-5, torch.float32: 3e-5, torch.float16: 1e-2, torch.bfloat16: 6e-2}


class Mismatch(Exception):
    """Why a candidate does not stand for a module, in words."""


def device_of(module: nn.Module) -> torch.device:
    """Where a module is probed: where it lies, but a module without memory on the CPU."""
    first = next((t for t in (*module.parameters(), *module.buffers())), None)
    return torch.device("cpu") if first is None or first.is_meta else first.device


def dtype_of(module: nn.Module) -> torch.dtype:
    floats = (t.dtype for t in (*module.parameters(), *module.buffers()) if t.dtype in _NOISE)
    return next(floats, torch.float32)


@dataclass
class Maker:
    """Makes random tensors of its own generator, the same ones every time."""

    dtype: torch.dtype
    device: torch.device

    def __post_init__(self) -> None:
        self.generator = torch.Generator("cpu").manual_seed(20)

    def normal(self, *shape: int, scale: float = 1.0) -> Tensor:
        """Values to call with; they need gradients."""
        made = torch.randn(shape, generator=self.generator, device="cpu") * scale
        return made.to(self.device, self.dtype).requires_grad_()

    def integers(self, high: int, *shape: int) -> Tensor:
        return torch.randint(high, shape, generator=self.generator, device="cpu").to(self.device)

    def like(self, tensor: Tensor, shape: Sequence[int]) -> Tensor:
        """Values for a parameter or a buffer: all different, and positive, as a variance is."""
        if not tensor.is_floating_point():
            return torch.zeros(tuple(shape), dtype=tensor.dtype, device=self.device)
        made = (torch.rand(tuple(shape), generator=self.generator, device="cpu") + 0.5).to(self.device, self.dtype)
        return made.requires_grad_(isinstance(tensor, nn.Parameter))


def probe(module: nn.Module, make: Maker, training: bool, shapes: dict[str, Sequence[int]] | None = None) -> nn.Module:
    """A stand-in for a module; `shapes` are other ones than its own for some of its tensors."""
    made: nn.Module = object.__new__(type(module))
    own = {k: v for k, v in module.__dict__.items() if not isinstance(v, Replacement)}
    made.__dict__.update({k: type(v)() if k.endswith("_hooks") and isinstance(v, dict) else v for k, v in own.items()})
    made.__dict__.update({k: copy.copy(v) for k, v in own.items() if type(v) in _CONTAINERS and k[0] != "_"})
    made.__dict__["training"] = training
    shapes = shapes or {}
    for kind in ("_parameters", "_buffers"):
        tensors = {n: t if t is None else make.like(t, shapes.get(n, t.shape)) for n, t in own[kind].items()}
        made.__dict__[kind] = tensors
    made.__dict__["_modules"] = {n: m if m is None else probe(m, make, training) for n, m in module._modules.items()}
    return made


@dataclass(frozen=True)
class Outcome:
    """What came of a call."""

    values: list[Tensor]
    grads: list[Tensor | None]
    state: list[Tensor]  # buffers
    wrote: bool  # to its inputs
    noted: bool  # something in its attributes


def _tensors(result: Any) -> list[Tensor]:
    if isinstance(result, Tensor):
        return [result]
    if isinstance(result, tuple | list):
        return [t for part in result for t in _tensors(part)]
    raise Mismatch(f"it returns {type(result).__name__}, not tensors")


def _attributes(probe: nn.Module) -> list[Any]:
    """Which objects a probe and its parts hold, and how many are in them."""
    held = [item for module in probe.modules() for item in module.__dict__.items()]
    return [(name, id(value), len(value) if type(value) in _CONTAINERS else 0) for name, value in held]


def run(function: Function, probe: nn.Module, inputs: Sequence[Tensor]) -> Outcome:
    """Calls it, and differentiates."""
    given = [t * 1 if t.requires_grad else t.clone() for t in inputs]  # what works in place may write to these
    versions = [t._version for t in given]
    notes = _attributes(probe)
    values = _tensors(function(probe, *given))
    noted = _attributes(probe) != notes
    wrote = [t._version for t in given] != versions
    wanted = [t for t in (*inputs, *probe.parameters()) if t.requires_grad]
    through = [v for v in values if v.requires_grad]
    grads: list[Tensor | None] = [None] * len(wanted)
    if wanted and through:
        weights = [torch.linspace(-1, 1, v.numel(), device=v.device, dtype=v.dtype).view_as(v) for v in through]
        grads = list(torch.autograd.grad(through, wanted, weights, allow_unused=True))
    return Outcome(values, grads, list(probe.buffers()), wrote, noted)


def difference(theirs: Outcome, ours: Outcome, dtype: torch.dtype) -> str | None:
    """In words, what tells them apart."""
    if theirs.wrote != ours.wrote:
        return "it writes to its input"
    if len(theirs.values) != len(ours.values):
        return "the number of results differs"
    for what, a, b in (
        ("values", theirs.values, ours.values),
        ("gradients", theirs.grads, ours.grads),
        ("buffers", theirs.state, ours.state),
    ):
        for x, y in zip(a, b, strict=True):
            if x is None or y is None:
                if (x is None) != (y is None) and not _is_zero(x) and not _is_zero(y):
                    return f"the {what} differ"
                continue
            if x.shape != y.shape or x.dtype != y.dtype or x.is_sparse != y.is_sparse:
                return f"the {what} have other shapes or types"
            far = _distance(x, y)
            if not far <= _NOISE.get(dtype, 0):
                return f"the {what} differ by {far:.1e} of the largest"
    return None


def unlike(theirs: Function, ours: Function, inputs: Sequence[Tensor], dtype: torch.dtype) -> str | None:
    """The same for two functions of tensors alone."""
    before, after = (run(of_tensors(f), nn.Module(), inputs) for f in (theirs, ours))
    return difference(before, after, dtype)


def of_tensors(function: Function) -> Function:
    """A function of tensors as one that is given a probe too."""
    return lambda probe, *tensors: function(*tensors)


def _is_zero(tensor: Tensor | None) -> bool:
    return tensor is None or not tensor.any()


def _distance(x: Tensor, y: Tensor) -> float:
    if x.numel() == 0:
        return 0.0
    x, y = x.detach().double(), y.detach().double()
    largest = float(x.abs().max())
    return float((x - y).abs().max()) / max(largest, 1e-30) if largest or float(y.abs().max()) else 0.0


class _Count(TorchDispatchMode):
    """Counts the operators that write memory; views launch nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        given = {t.untyped_storage()._cdata for t in args if isinstance(t, Tensor)}
        is_view = isinstance(result, Tensor) and result.untyped_storage()._cdata in given
        writes = func._schema.is_mutable or not is_view
        self.count += writes and func.name() not in ("aten::detach", "aten::empty.memory_format")
        return result


@dataclass(frozen=True)
class Cost:
    """What a call and its backward pass take."""

    launches: int
    kept: float  # for the backward pass, in bytes for each element of the input


def cost(function: Function, probe: nn.Module, inputs: Sequence[Tensor]) -> Cost:
    """Counted on a call; what is kept counts once, and parameters, which are kept anyway, do not."""
    own = {t.untyped_storage()._cdata for t in (*probe.parameters(), *probe.buffers())}
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in own:
            kept[storage._cdata] = storage.nbytes()
        alive.append(tensor)
        return tensor

    alive: list[Tensor] = []  # so that no address is taken twice
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t), _Count() as counted:
        values = [v for v in _tensors(function(probe, *inputs)) if v.requires_grad]
        if values:
            wanted = [t for t in (*inputs, *probe.parameters()) if t.requires_grad]
            torch.autograd.grad(values, wanted, [torch.ones_like(v) for v in values], allow_unused=True)
            counted.count -= len(values)
    return Cost(counted.count, math.fsum(kept.values()) / max(1, inputs[0].numel()))


@contextmanager
def quiet(device: torch.device) -> Iterator[None]:
    """Probing changes no random numbers of torch's, and no mode that it is called in has a say."""
    devices = [device] if device.type == "cuda" else []
    autocast = torch.autocast(device.type, enabled=False)
    with torch.random.fork_rng(devices), torch.inference_mode(False), torch.enable_grad(), autocast:
        yield
