"""Losses. The loss of 16-bit inputs is in f32, the type in which it is summed up."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.fx import Proxy

import tenon.torch as tn
from tenon.contract import Operator
from tenon.torch.nn._rows import attributes, find, leaf, set_forward


def _each(op: Operator) -> Callable[..., Any]:
    """A loss of the table before it is summed up: its formula without the last statement."""
    assert op.formula is not None
    attrs = "".join(f", {a.name}: {a.kind} = {a.default}" for a in op.attrs if a.name != "reduction")
    body = op.formula.rpartition(";")[0]
    return tn.fuse(f"{op.name}_each(x: T[*s], target: T[*s]{attrs}) -> t: T[*s] : {body}")


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

    def __init_subclass__(cls, row: str | None = None, broadcasts: bool = True) -> None:
        super().__init_subclass__()
        if row is None:  # a user's, which inherits the forward
            return
        op, function = find(row)
        given = attributes(op, {})
        asked = (
            "    if isinstance(input, _Proxy):\n"
            "        return _leaf(self, input, target)\n"
            "    input, target = _same_shape(input, target)\n"
        )
        source = (
            "def forward(self, input, target):\n"
            f"{asked if broadcasts else ''}"
            "    if self.reduction == 'none':\n"
            f"        return _each(input, target{given.replace(', reduction=self.reduction', '')})\n"
            f"    return _row(input, target{given})\n"
        )
        names = {"_row": function, "_each": _each(op), "_same_shape": _same_shape, "_Proxy": Proxy, "_leaf": leaf}
        set_forward(cls, op, source, names)


class MSELoss(_Loss, nn.MSELoss, row="mse"): ...


class L1Loss(_Loss, nn.L1Loss, row="l1"): ...


class HuberLoss(_Loss, nn.HuberLoss, row="huber"):
    """tn.huber as a module; arguments as torch.nn.HuberLoss's."""

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        if not delta > 0:
            raise ValueError(f"tn.nn.HuberLoss: delta must be above 0, not {delta}")
        super().__init__(reduction, delta)


class BCEWithLogitsLoss(_Loss, nn.BCEWithLogitsLoss, row="bce_with_logits", broadcasts=False):
    """tn.bce_with_logits as a module; arguments as torch.nn.BCEWithLogitsLoss's, without weights."""

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        pos_weight: Tensor | None = None,
    ) -> None:
        super().__init__(weight, size_average, reduce, reduction, pos_weight)
        for name, value, instead in (
            ("weight", weight, "mean(w * (softplus(x) - x * t))"),
            ("pos_weight", pos_weight, "mean(softplus(x) - x * t + (w - 1) * t * softplus(-x))"),
        ):
            if value is not None:
                raise NotImplementedError(f'tn.nn.BCEWithLogitsLoss has no {name}: write tn.fuse("{instead}")')


_kl_div_each = _each(find("kl_div")[0])


class KLDivLoss(nn.KLDivLoss):
    """tn.kl_div as a module; arguments as torch.nn.KLDivLoss's, without log_target."""

    def __init__(
        self,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        log_target: bool = False,
    ) -> None:
        super().__init__(size_average, reduce, reduction, log_target)
        if log_target:
            raise NotImplementedError('tn.nn.KLDivLoss has no log_target: write tn.fuse("mean(exp(t) * (t - x))")')

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        if isinstance(input, Proxy):
            return leaf(self, input, target)
        input, target = _same_shape(input, target)
        if self.reduction == "none":
            each: Tensor = _kl_div_each(input, target)
            return each
        if self.reduction == "batchmean":
            return tn.kl_div(input, target, "sum") / (input.shape[0] if input.ndim else 1)
        return tn.kl_div(input, target, self.reduction)


class CrossEntropyLoss(nn.CrossEntropyLoss):
    """tn.cross_entropy as a module; arguments as torch.nn.CrossEntropyLoss's, for targets that are class indices.

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
        if target.is_floating_point():
            raise NotImplementedError(
                "tn.nn.CrossEntropyLoss: target has class probabilities, must have class indices; "
                "torch.nn.CrossEntropyLoss takes both"
            )
        if target.dtype == torch.uint8:
            target = target.long()
        logits = input.movedim(1, -1) if input.ndim > 2 else input
        weight = self.weight
        if weight is not None and weight.dtype != torch.float32:
            if weight.dtype == input.dtype == torch.float64:  # the operator's weights are f32
                settings = (None, self.ignore_index, None, self.reduction, self.label_smoothing)
                return F.cross_entropy(input, target.long(), weight, *settings)
            weight = weight.float()
        return tn.cross_entropy(
            logits, target, weight, self.ignore_index, self.label_smoothing, reduction=self.reduction
        )


class CosineSimilarity(nn.CosineSimilarity):
    """tn.cosine_similarity as a module; arguments as torch.nn.CosineSimilarity's."""

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        if isinstance(x1, Proxy):
            return leaf(self, x1, x2)
        if x1.shape != x2.shape:
            shape = torch.broadcast_shapes(x1.shape, x2.shape)  # type: ignore[no-untyped-call]
            x1, x2 = x1.expand(shape), x2.expand(shape)
        if self.dim not in (-1, x1.ndim - 1):
            x1, x2 = x1.movedim(self.dim, -1), x2.movedim(self.dim, -1)
        return tn.cosine_similarity(x1, x2, self.eps)
