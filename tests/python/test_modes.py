"""Whatever stands between a call and its kernel in torch still sees the call: direct calls are for plain ones only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import here
import pytest
import torch
from cases import assert_close, each_operator
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import tenon.torch as tn
from tenon.torch import _direct

X = here.randn(3, 4)


def test_direct_calls_are_available() -> None:
    """With the torch versions that are tested; others may lack what they need, and then are slower."""
    assert _direct.available


class Log(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


def test_dispatch_modes() -> None:
    with Log() as log:
        y = tn.softmax(X)
    assert "tenon.softmax.raw" in log.seen
    assert_close(y, torch.softmax(X, -1))


def test_function_modes() -> None:
    class Functions(torch.overrides.TorchFunctionMode):
        seen: list[str] = []  # noqa: RUF012

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.seen.append(str(func))
            return func(*args, **(kwargs or {}))

    with Functions() as mode:
        tn.softmax(X)
    assert any("tenon.softmax" in name for name in mode.seen)


def test_subclasses() -> None:
    class Meters(Tensor):
        pass

    y = tn.softmax(X.as_subclass(Meters))
    assert type(y) is Meters
    assert_close(y.as_subclass(Tensor), torch.softmax(X, -1))


def test_fake_tensors() -> None:
    with torch._subclasses.fake_tensor.FakeTensorMode() as mode:
        fake = mode.from_tensor(X)
        assert isinstance(tn.softmax(fake), torch._subclasses.fake_tensor.FakeTensor)


def test_profiler_sees_every_operator() -> None:
    todo = [(case, case.make()) for case in each_operator()]
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        for case, args in todo:
            case.call(args)
    seen = {event.key for event in profile.key_averages()}
    assert {f"tenon::{case.op.name}" for case, _ in todo} <= seen


def test_inference_mode() -> None:
    with torch.inference_mode():
        y = tn.softmax(X)
        assert y.is_inference()
        assert not y.requires_grad


def test_threads_have_their_own_state() -> None:
    """A mode in one thread does not show in another."""
    import threading

    seen: list[bool] = []
    with Log():
        thread = threading.Thread(target=lambda: seen.append(_direct._lib.tn_torch_direct_plain()))
        thread.start()
        thread.join()
        assert not _direct._lib.tn_torch_direct_plain()
    assert seen == [True] and _direct._lib.tn_torch_direct_plain()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(dtype: torch.dtype) -> None:
    x = X.to(dtype).requires_grad_()
    with torch.autocast(here.DEVICE, dtype=dtype):
        y = tn.softmax(x)
    assert y.dtype == torch.float32  # the row says "32"
    y.sum().backward()
    assert x.grad is not None and x.grad.dtype == dtype
    with torch.autocast(here.DEVICE, dtype=dtype):
        assert tn.softmax(X.double()).dtype == torch.float64
        gamma = here.ones(4)
        assert tn.layer_norm(x, weight=gamma).dtype == torch.float32
        loss = tn.cross_entropy(x, here.tensor([0, 1, 2]))
        assert loss.dtype == torch.float32


def test_gradients_under_autocast_match() -> None:
    x, y = X.clone().requires_grad_(), X.clone().requires_grad_()
    with torch.autocast(here.DEVICE, dtype=torch.bfloat16):
        tn.softmax(x).square().sum().backward()
        torch.softmax(y, -1).square().sum().backward()
    assert_close(x.grad, y.grad)


def test_checkpoint_and_hooks() -> None:
    from torch.utils.checkpoint import checkpoint

    x, y = X.clone().requires_grad_(), X.clone().requires_grad_()
    checkpoint(lambda t: tn.layer_norm(tn.softmax(t)), x, use_reentrant=False).square().sum().backward()
    tn.layer_norm(tn.softmax(y)).square().sum().backward()
    assert_close(x.grad, y.grad)
    packed: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        packed.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        tn.softmax(x)
    assert len(packed) == 1


def test_default_device_mode() -> None:
    with torch.device("cpu"):
        assert_close(tn.softmax(X), torch.softmax(X, -1))


def test_functions_have_signatures_and_docs() -> None:
    import inspect

    for name in tn.ops():
        function = getattr(tn, name)
        assert function.__module__ == "tenon.torch" and function.__name__ == name
        assert "Contract:" in function.__doc__ and ("Returns" in function.__doc__ or "Updates" in function.__doc__)
        assert inspect.signature(function).parameters
    assert str(inspect.signature(tn.softmax)) == (
        "(input: 'Tensor', dim: 'int' = -1, *, dtype: 'torch.dtype | None' = None, mask: 'Tensor | None' = None, "
        "scale: 'float' = 1.0, causal: 'bool' = False, axis: 'int | None' = None, out: 'Tensor | None' = None) "
        "-> 'Tensor'"
    )
    assert str(inspect.signature(tn.swiglu)) == (
        "(x: torch.Tensor, gate: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor"
    )


def test_fx_traces_calls() -> None:
    """What is no tensor but stands for one sees the call, as it would one of torch's functions."""
    model = torch.nn.Sequential(tn.nn.GELU(), tn.nn.Softmax(-1)).to(here.DEVICE)
    traced = torch.fx.symbolic_trace(model)
    targets = [node.target for node in traced.graph.nodes if node.op == "call_function"]
    assert targets == [torch.ops.tenon.gelu.default, torch.ops.tenon.softmax.default]
    assert torch.equal(traced(X), model(X))


def test_fx_traces_what_may_be_a_number() -> None:
    stretch = tn.fuse("f(x: T[*s], k: f32[]) -> y: T[*s] : x * k")
    traced = torch.fx.symbolic_trace(lambda x, k: stretch(x, k))
    assert torch.equal(traced(X, here.tensor(2.0)), X * 2)


@pytest.mark.parametrize("function", [tn.softmax, tn.fuse("exp(x - logsumexp(x, -1))")])
def test_functionalize(function: Callable[[Tensor], Tensor]) -> None:
    """As what torch.ops has: alone, and with other transforms around it."""
    func = torch.func
    assert_close(func.functionalize(lambda x: function(x.clone().add_(1)))(X), X.softmax(-1))
    assert_close(func.vmap(func.functionalize(function))(X), X.softmax(-1))
    have = func.grad(func.functionalize(lambda x: function(x).square().sum()))(X)
    assert_close(have, func.grad(lambda x: x.softmax(-1).square().sum())(X))


def test_what_hooks_were_given_stays_as_it_is() -> None:
    """cross_entropy's backward may write over what it saved, but not where somebody else may have it."""
    kept: list[Tensor] = []
    x = here.randn(4, 8).requires_grad_()

    def pack(tensor: Tensor) -> Tensor:
        kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = tn.cross_entropy(x, here.tensor([0, 1, 2, 0]))
    before = [tensor.clone() for tensor in kept]
    (3 * loss).backward()
    assert before and all(map(torch.equal, before, kept))
