"""Lion, which torch does not have (Chen et al., "Symbolic Discovery of Optimization Algorithms")."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import torch
from torch import Tensor

import tenon.torch as tn
from tenon.torch._param import plain
from tenon.torch.optim._shared import FusedOptimizer, Group, Number, local, scalar, wide


class Lion(FusedOptimizer):
    """tn.lion_step as an optimiser: steps of one size, by the sign of a mean of gradients.

    The mean is `exp_avg` as far as the first of `betas` says, and the gradient for the rest; then the second makes the
    new `exp_avg`. Weight decay is taken off the weights. A rate a third to a tenth of AdamW's, and a decay as much
    larger, is what the paper advises. Moments are of `state_dtype`, or of the parameter's type. With `master_weights`,
    16-bit parameters are roundings of f32 ones that the state keeps, and so are moments. `foreach` is taken as torch's
    optimisers take it, and changes nothing.
    """

    _moments = ("exp_avg", "master")
    _absent = ()
    _sparse = "SparseAdam"

    def __init__(
        self,
        params: Any,
        lr: Number = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        master_weights: bool = False,
        state_dtype: torch.dtype | None = None,
    ) -> None:
        rate = plain(lr)
        if not rate >= 0.0:
            raise ValueError(f"Invalid learning rate: {rate}")
        for i, beta in enumerate(betas):
            if not 0.0 <= beta < 1.0:
                raise ValueError(f"Invalid beta parameter at index {i}: {beta}")
        if not weight_decay >= 0.0:
            raise ValueError(f"Invalid weight_decay value: {weight_decay}")
        defaults = {
            "lr": rate,
            "betas": (float(betas[0]), float(betas[1])),
            "weight_decay": weight_decay,
            "maximize": maximize,
            "foreach": foreach,
        }
        super().__init__(params, defaults)
        self._note(master_weights=master_weights, state_dtype=state_dtype)

    def _stage(self, group: Group, p: Tensor) -> Hashable:
        state = self.state[p]
        if not state:
            state["exp_avg"] = torch.zeros_like(p, dtype=self._kept(group, p))
        masters = self._has_masters(group, p)
        if masters and "master" not in state:
            state["master"] = p.detach().to(wide(p.dtype))
        return masters, state["exp_avg"].dtype

    def _update(self, group: Group, params: Sequence[Tensor], grads: Sequence[Tensor]) -> None:
        states = [self.state[p] for p in params]
        tn.lion_step_list(
            local(params),
            grads,
            local([s["exp_avg"] for s in states]),
            local([s["master"] for s in states]) if self._has_masters(group, params[0]) else None,
            scalar(group["lr"], params[0]),
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            weight_decay=float(group["weight_decay"]),
        )
