"""Adam and AdamW: weight decay is part of the gradient, or taken off the weights."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

import tenon.torch as tn
from tenon.torch._param import plain
from tenon.torch.optim._shared import FusedOptimizer, Group, Number, local, scalar, wide


class _Adam(FusedOptimizer):
    """What Adam and AdamW share."""

    _moments = ("exp_avg", "exp_avg_sq", "master")
    _absent = ("amsgrad", "differentiable")
    _sparse = "SparseAdam"

    def _is_decoupled(self, group: Group) -> bool:
        return bool(group.get("decoupled_weight_decay", self.defaults["decoupled_weight_decay"]))

    def _alike(self, group: Group) -> Iterator[tuple[list[Tensor], list[Tensor]]]:
        if group["capturable"]:
            begun = [p for p in group["params"] if p in self.state]
            if begun and [id(p) for p in begun] != [id(p) for p in group["params"] if p.grad is not None]:
                raise NotImplementedError(
                    f"tn.optim.{type(self).__name__}: with capturable=True, a group's parameters with a gradient must "
                    "stay the same ones"
                )
        return super()._alike(group)

    def _stage(self, group: Group, p: Tensor) -> Hashable:
        state = self.state[p]
        if not state:
            place = p.device if group["capturable"] else "cpu"
            state["step"] = torch.zeros((), dtype=torch.float32, device=place)  # 16 bits would stop at 256
            state["exp_avg"] = torch.zeros_like(p, dtype=self._kept(group, p))
            state["exp_avg_sq"] = torch.zeros_like(p, dtype=self._kept(group, p))
        masters = self._has_masters(group, p)
        if masters and "master" not in state:
            state["master"] = p.detach().to(wide(p.dtype))
        return masters, state["exp_avg"].dtype, None if group["capturable"] else float(state["step"])

    def _update(self, group: Group, params: Sequence[Tensor], grads: Sequence[Tensor]) -> None:
        states = [self.state[p] for p in params]
        step = states[0]["step"] if group["capturable"] else states[0]["step"].item() + 1
        if group["capturable"]:
            torch._foreach_add_([s["step"] for s in states], 1)
        else:
            for state in states:  # on the CPU, where adding takes twice as long
                state["step"].fill_(step)
        step_list = tn.adamw_step_list if self._is_decoupled(group) else tn.adam_step_list
        step_list(
            local(params),
            grads,
            local([s["exp_avg"] for s in states]),
            local([s["exp_avg_sq"] for s in states]),
            local([s["master"] for s in states]) if self._has_masters(group, params[0]) else None,
            scalar(group["lr"], params[0]),
            scalar(step, params[0]),
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            eps=group["eps"],
            weight_decay=group["weight_decay"],
        )

    def _settle(self, given: dict[str, Any]) -> None:
        super()._settle(given)
        for group in self.param_groups:
            begun = [p for p in group["params"] if p in self.state]
            for p in begun:  # torch's fused implementations have it on the device
                self.state[p]["step"] = self.state[p]["step"].to(p.device if group["capturable"] else "cpu", copy=True)
            steps = {float(self.state[p]["step"]) for p in begun}
            if group["capturable"] and len(steps) > 1:
                raise NotImplementedError(
                    f"tn.optim.{type(self).__name__}: with capturable=True all parameters of a group must have made as "
                    f"many steps, but they have made {', '.join(f'{s:g}' for s in sorted(steps))}"
                )


class AdamW(_Adam, torch.optim.AdamW):
    """tn.adamw_step as an optimiser; arguments as torch.optim.AdamW's, but for amsgrad and differentiable.

    `foreach` and `fused` choose between implementations of torch's, and change nothing here. Moments are of
    `state_dtype`, or of the parameter's type. With `master_weights`, 16-bit parameters are roundings of f32 ones that
    the state keeps, and so are moments. With `capturable`, the parameters of a group that have a gradient must be the
    same ones in each step.
    """

    def _refuse(self, group: Group) -> None:
        super()._refuse(group)
        if not group.get("decoupled_weight_decay", True):
            raise NotImplementedError("tn.optim.AdamW decouples weight decay; tn.optim.Adam is without that")

    def __init__(
        self,
        params: Any,
        lr: Number = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        master_weights: bool = False,
        state_dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(
            params,
            plain(lr),
            (float(betas[0]), float(betas[1])),
            eps,
            weight_decay,
            amsgrad,
            maximize=maximize,
            capturable=capturable,
            differentiable=differentiable,
        )
        self._note(master_weights=master_weights, state_dtype=state_dtype)


class Adam(_Adam, torch.optim.Adam):
    """tn.adam_step as an optimiser; arguments as torch.optim.Adam's, but for amsgrad and differentiable.

    Weight decay is added to the gradient, or with `decoupled_weight_decay` taken off the weights, as AdamW does. All
    else is as in tn.optim.AdamW.
    """

    def __init__(
        self,
        params: Any,
        lr: Number = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
        master_weights: bool = False,
        state_dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(
            params,
            plain(lr),
            (float(betas[0]), float(betas[1])),
            eps,
            weight_decay,
            amsgrad,
            maximize=maximize,
            capturable=capturable,
            differentiable=differentiable,
            decoupled_weight_decay=decoupled_weight_decay,
        )
        self._note(master_weights=master_weights, state_dtype=state_dtype)
