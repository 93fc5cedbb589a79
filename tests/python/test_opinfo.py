"""PyTorch's own samples of its functions and modules, through those of the same name here: values and gradients are
torch's, computed in float64 on the CPU (some constants of its GPU kernels are float32 in float64, too), and types and
shapes are torch's. An element may be off by the bound, or by twice what torch's own result in that type is.

Float32 takes all samples and the other types some; TENON_TEST_ALL=1 takes all of them. What is refused is in REFUSED,
with a reason and the message.
"""

from __future__ import annotations

import os
import re
import sys
import types
import unittest
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import here
import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map

import tenon.torch as tn

try:
    import expecttest  # noqa: F401
except ImportError:  # torch's tests are a class of it, the samples are not
    stand_in: Any = types.ModuleType("expecttest")
    stand_in.TestCase = unittest.TestCase
    sys.modules["expecttest"] = stand_in

common = pytest.importorskip("torch.testing._internal.common_methods_invocations")
modules = pytest.importorskip("torch.testing._internal.common_modules")

DTYPES = {"f64": torch.float64, "f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
# Of a result, beside its largest element: some roundings of the type, and for f64 what float32 constants would show.
BOUNDS = {torch.float64: 1e-9, torch.float32: 4e-6, torch.bfloat16: 2e-2, torch.float16: 2.5e-3}
FEW = 4  # samples of a type other than float32


class Refusal(NamedTuple):
    reason: str
    message: str  # a part of it, as a regular expression
    which: Callable[..., bool] = lambda *given, **named: True  # of the samples


REFUSED: dict[str, Refusal] = {
    "nn.functional.batch_norm": Refusal(
        "an empty tensor that has no channels", "needs a dimension of channels", lambda x, *_, **__: x.ndim < 2
    ),
    "norm:nuc": Refusal("the sum of singular values", "there is no 'nuc'"),
}


# What ours are called where that is not torch's name. Not hardsigmoid: the gradient of torch's has a 1 / 6 of float32,
# in float64 too.
CALLED = {
    "binary_cross_entropy_with_logits": "bce_with_logits",
    "hardswish": "hard_swish",
    "huber_loss": "huber",
    "l1_loss": "l1",
    "logsigmoid": "log_sigmoid",
    "mse_loss": "mse",
    "topk": "top_k",
    "where": "select",
}
# Other functions of torch's have the names of ours: select takes three tensors as torch.where does, and histogram what
# torch.histc takes.
OTHERS = {"select", "histogram"}


def our_function(name: str) -> Callable[..., Any]:
    """It takes arguments in the order of the samples."""
    function: Callable[..., Any] = getattr(tn, our_name(name))
    reordered: dict[str, Callable[..., Any]] = {
        "nn.functional.embedding": lambda weight, index, **named: function(index, weight, **named),
        "where": lambda x, condition, other: function(condition, x, other),
    }
    return reordered.get(name, function)


def stable_sort(x: Tensor, dim: int = -1, descending: bool = False, stable: bool | None = None) -> Any:
    return torch.sort(x, dim=dim, descending=descending, stable=True)


def stable_topk(x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    ordered = stable_sort(x, dim, largest)
    return tuple(t.narrow(dim, 0, k) for t in ordered) if x.ndim else tuple(ordered)


def torchs_function(info: Any, dtype: torch.dtype) -> Callable[..., Any]:
    """Numbers of 16 bits are often equal. Ours are sorted in a stable way then, torch's only if it is asked to."""
    stable = {"sort": stable_sort, "topk": stable_topk} if torch.finfo(dtype).bits == 16 else {}
    return stable.get(info.name, info.op)


def our_name(name: str) -> str:
    short = name.rpartition(".")[2]
    return CALLED.get(short, short)


def is_ours(name: str) -> bool:
    return name.rpartition(".")[0] in ("", "nn.functional") and our_name(name) in tn.ops() and name not in OTHERS


FUNCTIONS = {
    (f"{info.name}:{info.variant_test_name}" if info.variant_test_name else info.name): info
    for info in common.op_db
    if is_ours(info.name) and info.variant_test_name not in ("complex", "without_cudnn")
}
MODULES = {
    info.module_cls.__name__: info
    for info in modules.module_db
    if info.module_cls.__module__.startswith("torch.nn.") and hasattr(tn.nn, info.module_cls.__name__)
}


def some(samples: Sequence[Any], dtype: torch.dtype) -> Sequence[Any]:
    """All samples, or some that lie apart."""
    if dtype == torch.float32 or "TENON_TEST_ALL" in os.environ or len(samples) <= FEW:
        return samples
    return [samples[k * (len(samples) - 1) // (FEW - 1)] for k in range(FEW)]


def copied(values: Any, dtype: torch.dtype | None = None, device: str | None = None) -> Any:
    """The same arguments in other memory, and floating-point ones in another type."""

    def one(value: Any) -> Any:
        if dtype is not None and isinstance(value, torch.dtype):
            return dtype
        if not isinstance(value, Tensor):
            return value
        made = value.detach().clone(memory_format=torch.preserve_format)
        made = made.to(dtype) if dtype is not None and made.is_floating_point() else made
        made = made if device is None else made.to(device)
        return made.requires_grad_(value.requires_grad)

    return tree_map(one, values)


def shapes(values: Any) -> Any:
    return tree_map(lambda value: tuple(value.shape) if isinstance(value, Tensor) else value, values)


def floats(values: Any) -> list[Tensor]:
    return [v for v in tree_flatten(values)[0] if isinstance(v, Tensor) and v.is_floating_point()]


def gradients(
    outputs: Sequence[Tensor], given: Any, dtype: torch.dtype, more: Sequence[Tensor] = ()
) -> list[Tensor | None]:
    """What arrives is rounded to `dtype`, for the outputs in float64 too."""
    wanted = [t for t in (*floats(given), *more) if t.requires_grad]
    through = [y for y in outputs if y.requires_grad]
    if not wanted or not through:
        return []
    torch.manual_seed(1)
    arrived = [torch.randn(y.shape, dtype=torch.float64).to(dtype).to(y) for y in through]
    return list(torch.autograd.grad(through, wanted, arrived, allow_unused=True))


# Where a row has one element, or equal ones, its gradient is 0 as the difference of two numbers that were multiplied
# with rstd = 1 / sqrt(1e-5).
AMPLIFIED = 320


def assert_near(have: Tensor, exact: Tensor, dtype: torch.dtype, what: str, theirs: Tensor | None = None) -> None:
    """theirs: torch's result in the same type."""
    have = have.detach().cpu()
    want = exact.detach().cpu().to(have.dtype).double()  # what is beyond the type is infinite there
    bound, result = BOUNDS[dtype], have.double()
    if theirs is not None:
        peer = theirs.detach().cpu().double()
        excused = (result - want).abs() <= 2 * (peer - want).abs()
        result = torch.where(excused, want, result)
    finite = want[want.isfinite()]
    largest = float(finite.abs().max()) if finite.numel() else 0.0
    roundings = 8 * torch.finfo(dtype).eps * (AMPLIFIED if "norm" in what.lower() else 1)
    torch.testing.assert_close(
        result,
        want,
        rtol=bound,
        atol=bound * largest + roundings,
        equal_nan=True,
        msg=lambda text: f"{what}: {text}",
    )


def compare(
    ours: Callable[..., Any],
    theirs: Callable[..., Any],
    wide: Callable[..., Any],
    given: Any,
    dtype: torch.dtype,
    what: str,
    more: tuple[Sequence[Tensor], Sequence[Tensor], Sequence[Tensor]] = ((), (), ()),
) -> None:
    """Ours, and torch's in the same type and in float64 (`wide`), with copies of (arguments, keywords). `more` are the
    parameters of each."""
    mine, exact, plain = copied(given), copied(given, torch.float64, "cpu"), copied(given)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        have = floats(ours(*mine[0], **mine[1]))
        want = floats(wide(*exact[0], **exact[1]))
        typed = floats(theirs(*plain[0], **plain[1]))
    assert [(t.dtype, t.shape) for t in have] == [(t.dtype, t.shape) for t in typed], f"{what}: types and shapes"
    for y, z, t in zip(have, want, typed, strict=True):
        assert_near(y, z, dtype, what, t)
    for y, z in zip(floats(mine), floats(exact), strict=True):  # what is updated in place
        assert_near(y, z, dtype, f"{what}: an argument afterwards")
    sides = [
        gradients(outputs, of, dtype, parameters)
        for outputs, of, parameters in zip((have, typed, want), (mine, plain, exact), more, strict=True)
    ]
    for k, (dy, dt, dz) in enumerate(zip(*sides, strict=True)):
        assert (dy is None) == (dz is None) or (dz is None and not dy.any()), f"{what}: gradient {k}"  # or it is 0
        if dy is not None and dz is not None:
            assert_near(dy, dz, dtype, f"{what}: gradient {k}", dt)


def tried(name: str, check: Callable[[], None], refusal: Refusal | None, args: Any, named: Any) -> bool:
    """Runs a check; whether it was refused, as the list says."""
    if refusal is None or not refusal.which(*args, **named):
        check()
        return False
    with pytest.raises((ValueError, TypeError, NotImplementedError, RuntimeError)) as caught:
        check()
    assert re.search(refusal.message, str(caught.value)), f"{name}: {caught.value}"
    return True


def dropped(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> None:
    """Dropout has other random numbers than torch's: elements are 0, or have grown."""
    leaf = x.detach().clone().requires_grad_()
    y = tn.dropout(leaf, p, training, inplace)
    assert y.dtype == x.dtype and y.shape == x.shape
    share = p if training else 0.0
    grown = x / (1 - share) if share < 1 else x * 0
    kept = y != 0
    assert_near(y.detach(), torch.where(kept, grown, 0).double().detach(), x.dtype, "dropout")
    assert share not in (0.0, 1.0) or bool((kept == (x * (1 - share) != 0)).all())
    (dx,) = torch.autograd.grad(y.sum(), leaf)
    assert_near(dx, torch.where(kept, 1 / (1 - share) if share < 1 else 0.0, 0.0).double(), x.dtype, "its gradient")


@pytest.mark.parametrize("T", DTYPES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_function(name: str, T: str) -> None:
    info, dtype = FUNCTIONS[name], DTYPES[T]
    kind = torch.device(here.DEVICE).type
    if dtype not in info.supported_dtypes(kind):
        pytest.skip("torch has it not in this type")
    differentiable = info.supports_autograd and dtype in info.supported_backward_dtypes(kind)
    samples = list(info.sample_inputs(here.DEVICE, dtype, requires_grad=differentiable))
    ours, theirs, refused = our_function(info.name), torchs_function(info, dtype), False
    for k, sample in enumerate(some(samples, dtype)):
        args, named = (sample.input, *sample.args), sample.kwargs
        if name == "clamp" and len(args) == 3 and None not in args[1:]:
            # Where both bounds are equal, torch gives neither of them a gradient.
            args = (*args[:2], (args[2] + (args[1] == args[2])).detach().requires_grad_(args[2].requires_grad))
        what = f"{name} {k} {shapes(args)} {shapes(named)}"
        if info.name == "nn.functional.dropout":
            dropped(*args, **named)
            continue

        def check(args: Any = args, named: Any = named, what: str = what) -> None:
            compare(ours, theirs, theirs, (args, named), dtype, what)

        refused |= tried(what, check, REFUSED.get(name), args, named)
    assert refused == (name in REFUSED) or dtype != torch.float32, f"{name} is refused no more: take it off the list"


@pytest.mark.parametrize("T", DTYPES)
@pytest.mark.parametrize("name", MODULES)
def test_module(name: str, T: str) -> None:
    info, dtype = MODULES[name], DTYPES[T]
    refused = False
    for training in (True, False) if info.train_and_eval_differ else (True,):
        samples = info.module_inputs_func(info, here.DEVICE, dtype, requires_grad=True, training=training)
        for k, sample in enumerate(some(list(samples), dtype)):
            made, given = sample.constructor_input, sample.forward_input
            if given is None:
                continue
            what = f"{name} {k} {shapes((made.args, made.kwargs, given.args))}"

            def check(made: Any = made, given: Any = given, what: str = what, training: bool = training) -> None:
                torch.manual_seed(0)
                theirs = copied_module(info.module_cls, made, dtype).train(training)
                wide = copied_module(info.module_cls, made, torch.float64, "cpu").train(training)
                ours = copied_module(getattr(tn.nn, name), made, dtype).train(training)
                wide.load_state_dict(theirs.state_dict())
                ours.load_state_dict(theirs.state_dict())
                first, second, third = (list(m.parameters()) for m in (ours, theirs, wide))
                compare(ours, theirs, wide, (given.args, given.kwargs), dtype, what, (first, second, third))
                for (key, have), want in zip(ours.state_dict().items(), wide.state_dict().values(), strict=True):
                    assert_near(have.double(), want.double(), dtype, f"{what}: {key}")

            refused |= tried(what, check, REFUSED.get(name), made.args, made.kwargs)
    assert refused == (name in REFUSED) or dtype != torch.float32, f"{name} is refused no more: take it off the list"


def copied_module(module: Any, made: Any, dtype: torch.dtype, device: str = here.DEVICE) -> torch.nn.Module:
    """A module of a sample's constructor, with its tensors in another type."""
    args, named = copied((made.args, made.kwargs), dtype, device)
    # A device among the arguments says where the module is made.
    named = {key: device if key == "device" else value for key, value in named.items()}
    made_here: torch.nn.Module = module(*args, **named).to(device, dtype)
    return made_here


def test_there_are_samples_of_most_functions() -> None:
    assert len(FUNCTIONS) >= 36 and len(MODULES) >= 25
    assert set(REFUSED) <= {*FUNCTIONS, *MODULES}
