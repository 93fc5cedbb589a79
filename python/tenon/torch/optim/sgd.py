"""Gradient descent with momentum."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import torch
from torch import Tensor

import tenon.torch as tn
from tenon.torch._param import plain
from tenon.torch.optim._shared import FusedOptimizer, Group, Number, local, scalar


class SGD(FusedOptimizer, torch.optim.SGD):
    """tn.sgd_step as an optimiser; arguments as torch.optim.SGD's, but for differentiable.

    `foreach` and `fused` choose between implementations of torch's, and change nothing here. The buffers of momentum
    are of `state_dtype`, or of the parameter's type; without momentum there are none.
    """

    _moments = ("momentum_buffer",)
    _absent = ("differentiable",)
    _sparse = "SGD"

    def __init__(
        self,
        params: Any,
        lr: Number = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
        state_dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(
            params,
            plain(lr),
            momentum,
            dampening,
            weight_decay,
            nesterov,
            maximize=maximize,
            differentiable=differentiable,
        )
        self._note(state_dtype=state_dtype)

    def _stage(self, group: Group, p: Tensor) -> Hashable:
        if group["momentum"] == 0:
            return None
        buffer = self.state[p].get("momentum_buffer")
        return None if buffer is None else buffer.dtype

    def _update(self, group: Group, params: Sequence[Tensor], grads: Sequence[Tensor]) -> None:
        states = [self.state[p] for p in params]
        first = group["momentum"] != 0 and states[0].get("momentum_buffer") is None
        if first:  # torch's first buffer is the gradient itself: what one of 0 gives without dampening
            for p, state in zip(params, states, strict=True):
                state["momentum_buffer"] = torch.zeros_like(p, dtype=self._kept(group, p))
        tn.sgd_step_list(
            local(params),
            grads,
            local([s["momentum_buffer"] for s in states]) if group["momentum"] != 0 else None,
            scalar(group["lr"], params[0]),
            momentum=float(group["momentum"]),
            dampening=0.0 if first else float(group["dampening"]),
            weight_decay=float(group["weight_decay"]),
            nesterov=group["nesterov"],
        )
