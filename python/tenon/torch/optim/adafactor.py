"""Adafactor (Shazeer and Stern, "Adafactor: Adaptive Learning Rates with Sublinear Memory Cost")."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import torch
from torch import Tensor

import tenon.torch as tn
from tenon.torch._param import plain
from tenon.torch.optim._shared import FusedOptimizer, Group, Number, is_sharded, scalar


class Adafactor(FusedOptimizer, torch.optim.Adafactor):
    """tn.adafactor_step as an optimiser; arguments as torch.optim.Adafactor's.

    A step is one call for each parameter, and none of its numbers comes to the CPU. `foreach` changes nothing here. The
    state is of `state_dtype`, or of the parameter's type; steps are computed in f32 at least.
    """

    _moments = ("row_var", "col_var", "variance")
    _absent = ()
    _sparse = "SparseAdam"

    def __init__(
        self,
        params: Any,
        lr: Number = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        state_dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(params, plain(lr), beta2_decay, eps, d, weight_decay, maximize=maximize)
        self._note(state_dtype=state_dtype)

    def _stage(self, group: Group, p: Tensor) -> Hashable:
        if is_sharded(p):
            raise NotImplementedError(
                "tn.optim.Adafactor takes no DTensors: its means go over whole tensors; tn.optim.AdamW takes them"
            )
        state = self.state[p]
        if not state:
            kept = self._kept(group, p)
            state["step"] = torch.zeros((), dtype=torch.float32)  # 16 bits would stop at 256
            if p.ndim > 1:
                state["row_var"] = p.new_zeros((*p.shape[:-1], 1), dtype=kept)
                state["col_var"] = p.new_zeros((*p.shape[:-2], 1, p.shape[-1]), dtype=kept)
            else:
                state["variance"] = torch.zeros_like(p, dtype=kept)
        return None

    @staticmethod
    def _count(state: dict[str, Any], like: Tensor) -> Tensor:
        """Counts a step, and gives its number where the parameter is. The count is on the CPU, where it can be read;
        but torch.compile would make a graph for each number that it reads."""
        if torch.compiler.is_dynamo_compiling():
            return scalar(state["step"].add_(1), like)
        step = state["step"].item() + 1
        state["step"].fill_(step)
        return scalar(step, like)

    def _update(self, group: Group, params: Sequence[Tensor], grads: Sequence[Tensor]) -> None:
        rate = scalar(group["lr"], params[0])
        eps1, eps2 = group["eps"]
        for p, grad in zip(params, grads, strict=True):
            state = self.state[p]
            matrix = p.ndim > 1
            # A vector is a matrix of one row: views, as the operator writes to them.
            shape = p.shape if matrix else (1, p.numel())
            tn.adafactor_step(
                p.view(shape),
                grad.reshape(shape),
                state["row_var"].squeeze(-1) if matrix else None,
                state["col_var"].squeeze(-2) if matrix else None,
                None if matrix else state["variance"].view(shape),
                rate,
                self._count(state, p),
                beta2_decay=float(group["beta2_decay"]),
                eps1=torch.finfo(p.dtype).eps if eps1 is None else float(eps1),
                eps2=float(eps2),
                clip=float(group["d"]),
                weight_decay=float(group["weight_decay"]),
            )
