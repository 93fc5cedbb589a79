"""Tensors on the device that the tests run on: the CPU, or what TENON_TEST_DEVICE says (`make test-gpu`: cuda)."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

TORCH = tuple(int(part) for part in torch.__version__.split(".")[:2])
DEVICE = os.environ.get("TENON_TEST_DEVICE", "cpu")


def _made_here(factory: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def make(*args: Any, **named: Any) -> Tensor:
        return factory(*args, **{"device": DEVICE, **named})

    return make


randn = _made_here(torch.randn)
rand = _made_here(torch.rand)
randint = _made_here(torch.randint)
tensor = _made_here(torch.tensor)
zeros = _made_here(torch.zeros)
ones = _made_here(torch.ones)
arange = _made_here(torch.arange)
full = _made_here(torch.full)
