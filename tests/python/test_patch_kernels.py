"""tn.kernel_mapping: layers that the package `kernels` of Hugging Face puts into modules, by their name."""

from __future__ import annotations

import copy
import inspect
import subprocess
import sys
from importlib import metadata
from types import MethodType
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from cases import assert_close
from torch import Tensor, nn

import tenon.torch as tn


class Norm(nn.Module):
    kernel_layer_name = "RMSNorm"

    def __init__(self, zero_centered: bool = False) -> None:
        super().__init__()
        self.weight, self.zero_centered = nn.Parameter(torch.rand(8)), zero_centered
        setattr(self, "eps" if zero_centered else "variance_epsilon", 1e-2)

    def forward(self, hidden_states: Tensor) -> Tensor:
        x = hidden_states.float()
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-2)
        if self.zero_centered:
            return (x * (1 + self.weight.float())).type_as(hidden_states)
        return self.weight * x.to(hidden_states.dtype)


def module(function: Any) -> nn.Module:
    class Act(nn.Module):
        def forward(self, input: Tensor) -> Tensor:
            y: Tensor = function(input)
            return y

    return Act()


def tanh_gelu(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


LAYERS = {
    "FastGELU": module(tanh_gelu),
    "GeLU": module(F.gelu),
    "GeluTanh": module(tanh_gelu),
    "NewGELU": module(tanh_gelu),
    "QuickGELU": module(lambda x: x * torch.sigmoid(1.702 * x)),
    "SiLU": module(F.silu),
    "RMSNorm": Norm(),
    "RMSNormZeroCentered": Norm(zero_centered=True),
}


def test_all_are_tested() -> None:
    assert LAYERS.keys() == tn.kernel_mapping().keys()


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_computes_the_same(name: str, dtype: torch.dtype) -> None:
    theirs = LAYERS[name]
    repository = tn.kernel_mapping()[name]["cpu"]
    layer = repository.load()
    # What `kernels` asks of a layer: no constructor, nothing but a forward with as many parameters.
    assert layer.__init__ is nn.Module.__init__
    names = {n for n, _ in inspect.getmembers(layer)} - {n for n, _ in inspect.getmembers(nn.Module)}
    assert names == {"can_torch_compile", "has_backward"}
    assert len(inspect.signature(layer.forward).parameters) == len(inspect.signature(type(theirs).forward).parameters)
    ours = copy.deepcopy(theirs)
    ours.forward = MethodType(layer.forward, ours)  # type: ignore[method-assign]
    x, y = (torch.linspace(-3, 3, 40).view(5, 8).to(dtype).requires_grad_() for _ in range(2))
    want, have = theirs(x), ours(y)
    assert have.dtype == want.dtype
    kind = "f32" if dtype == torch.float32 else "bf16"
    assert_close([have], [want], kind)
    grads = [
        torch.autograd.grad(r.float().square().sum(), [t, *m.parameters()])
        for r, t, m in ((want, x, theirs), (have, y, ours))
    ]
    assert_close(grads[1], grads[0], kind, scale=2)
    assert repository == tn.kernel_mapping()[name]["cuda"] and name in str(repository)


PROGRAM = """
import torch
import tenon.torch as tn
from kernels import Mode, kernelize, use_kernel_forward_from_hub, use_kernel_mapping

@use_kernel_forward_from_hub("RMSNorm")
class Norm(torch.nn.RMSNorm):
    def forward(self, hidden_states):
        return super().forward(hidden_states)

model, x = torch.nn.Sequential(Norm(8, eps=1e-6), torch.nn.Linear(8, 8)), torch.randn(3, 8)
want = model(x)
with use_kernel_mapping(tn.kernel_mapping()):
    kernelize(model, mode=Mode.TRAINING | Mode.TORCH_COMPILE, device="cpu")
with torch.profiler.profile() as profile:
    assert torch.allclose(model(x), want, atol=1e-5)
assert "tenon::rms_norm" in {e.key for e in profile.key_averages()}
"""


def test_kernelize() -> None:
    """In a process of its own: the tests have a file of the package's name."""
    try:
        metadata.version("kernels")
    except metadata.PackageNotFoundError:
        pytest.skip("there is no package kernels")
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
