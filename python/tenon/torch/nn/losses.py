"""Losses. They are summed up in f32 at least, and have the type of the input, as torch's do."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor, nn
from torch.fx import Proxy

import tenon.torch as tn
from tenon.torch._functional import as_input, each
from tenon.torch.nn._rows import attributes, find, held, leaf, set_forward


def _same_shape(input: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Both with the shape that they broadcast to, which is seldom meant: as torch does it, with a warning."""
    if input.shape != target.shape:
        warnings.warn(
            f"the target has shape {list(target.shape)} and the input {list(input.shape)}: they broadcast, which is "
            "seldom meant by a loss",
            stacklevel=3,
        )
        input, target = torch.broadcast_tensors(input, target)  # type: ignore[no-untyped-call]
    return input, target


class _Loss:
    """In front of torch's module in the list of bases: its forward becomes the operator `row`."""

    def __init_subclass__(cls, row: str | None = None) -> None:
        super().__init_subclass__()
        if row is None:  # a user's, which inherits the forward
            return
        op, function = find(row)
        given = attributes(op, {})
        source = (
            "def forward(self, input, target):\n"
            "    if isinstance(input, _Proxy):\n"
            "        return _leaf(self, input, target)\n"
            "    input, target = _same_shape(input, target)\n"
            "    if self.reduction == 'none':\n"
            f"        return _each(input, target{given.replace(', reduction=self.reduction', '')})\n"
            f"    return _as_input(_row(input, target{given}), input, target)\n"
        )
        names = {"_row": function, "_each": each(op), "_same_shape": _same_shape, "_as_input": as_input}
        set_forward(cls, op, source, {**names, "_Proxy": Proxy, "_leaf": leaf})


class MSELoss(_Loss, nn.MSELoss, row="mse"): ...


class L1Loss(_Loss, nn.L1Loss, row="l1"): ...


class HuberLoss(_Loss, nn.HuberLoss, row="huber"):
    """tn.huber as a module; arguments as torch.nn.HuberLoss's."""

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        if not delta > 0:
            raise ValueError(f"tn.nn.HuberLoss: delta must be above 0, not {delta}")
        super().__init__(reduction, delta)


_, _bce = find("bce_with_logits")
_BCE = "(x: T[*s], target: T[*s], weight: T[~*s]?, pos_weight: T[~*s]?"
_BCE_EACH = (
    "p = softplus(x) - x * target; q = p + (pos_weight - 1) * target * softplus(-x) if has(pos_weight) else p; "
    "t = q * weight if has(weight) else q"
)
_bce_each = tn.fuse(f"bce_with_logits_each{_BCE}) -> t: T[*s] : {_BCE_EACH}")
_bce_weighted = tn.fuse(
    f"bce_with_logits_weighted{_BCE}, reduction: 'mean'|'sum' = 'mean') -> loss: acc(T)[] : {_BCE_EACH}; "
    "loss = mean(t) if reduction == 'mean' else sum(t)"
)


class BCEWithLogitsLoss(nn.BCEWithLogitsLoss):
    """tn.bce_with_logits as a module; arguments as torch.nn.BCEWithLogitsLoss's."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        if isinstance(input, Proxy):
            return leaf(self, input, target)
        weight, pos_weight = held(self, "weight"), held(self, "pos_weight")
        if self.reduction == "none":
            losses: Tensor = _bce_each(input, target, weight, pos_weight)
            return losses
        if weight is None and pos_weight is None:
            return as_input(_bce(input, target, self.reduction), input, target)
        return as_input(_bce_weighted(input, target, weight, pos_weight, self.reduction), input, target)


class KLDivLoss(nn.KLDivLoss):
    """tn.kl_div as a module; arguments as torch.nn.KLDivLoss's."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        if isinstance(input, Proxy):
            return leaf(self, input, target)
        return tn.kl_div(input, target, reduction=self.reduction, log_target=self.log_target)


class CrossEntropyLoss(nn.CrossEntropyLoss):
    """tn.cross_entropy as a module; arguments as torch.nn.CrossEntropyLoss's.

    In training the gradient is made in the same pass over the logits.
    """

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        if not 0 <= label_smoothing <= 1:
            raise ValueError(f"tn.nn.CrossEntropyLoss: label_smoothing must be from 0 to 1, not {label_smoothing}")
        super().__init__(weight, size_average, ignore_index, reduce, reduction, label_smoothing)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        if isinstance(input, Proxy):
            return leaf(self, input, target)
        settings = (None, self.ignore_index, None, self.reduction, self.label_smoothing)
        return tn.cross_entropy(input, target, held(self, "weight"), *settings)


class CosineSimilarity(nn.CosineSimilarity):
    """tn.cosine_similarity as a module; arguments as torch.nn.CosineSimilarity's."""

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        if isinstance(x1, Proxy):
            return leaf(self, x1, x2)
        return tn.cosine_similarity(x1, x2, self.dim, self.eps)
