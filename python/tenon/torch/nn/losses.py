"""Losses: functions of tenon.torch as modules."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.fx import Proxy

import tenon.torch as tn
from tenon.torch.nn._rows import held, leaf


class MSELoss(nn.MSELoss):
    """tn.mse as a module; arguments as torch.nn.MSELoss's."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        if isinstance(input, Proxy):
            return leaf(self, input, target)
        return tn.mse(input, target, reduction=self.reduction)


class L1Loss(nn.L1Loss):
    """tn.l1 as a module; arguments as torch.nn.L1Loss's."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        if isinstance(input, Proxy):
            return leaf(self, input, target)
        return tn.l1(input, target, reduction=self.reduction)


class HuberLoss(nn.HuberLoss):
    """tn.huber as a module; arguments as torch.nn.HuberLoss's."""

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        if not delta > 0:
            raise ValueError(f"tn.nn.HuberLoss: delta must be above 0, not {delta}")
        super().__init__(reduction, delta)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        if isinstance(input, Proxy):
            return leaf(self, input, target)
        return tn.huber(input, target, self.reduction, self.delta)


class BCEWithLogitsLoss(nn.BCEWithLogitsLoss):
    """tn.bce_with_logits as a module; arguments as torch.nn.BCEWithLogitsLoss's."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        if isinstance(input, Proxy):
            return leaf(self, input, target)
        weights = {"weight": held(self, "weight"), "pos_weight": held(self, "pos_weight")}
        return tn.bce_with_logits(input, target, **weights, reduction=self.reduction)


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


class LinearCrossEntropyLoss(nn.Module):
    """A linear layer and the cross-entropy of its results, the logits, which are never whole in memory:
    tn.linear_cross_entropy as a module.

    The layer is `linear`, whose weight can be another module's: loss.linear.weight = embedding.weight; what it is
    called with are logits. weight counts classes, as in torch.nn.CrossEntropyLoss; at most logits_mib MiB of logits are
    in memory.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
        z_loss: float = 0.0,
        softcap: float = 0.0,
        temperature: float = 1.0,
        logits_mib: int = 512,
    ) -> None:
        super().__init__()
        if reduction not in ("mean", "sum"):
            raise ValueError(f"tn.nn.LinearCrossEntropyLoss: reduction is {reduction!r}, must be 'mean' or 'sum'")
        if not 0 <= label_smoothing <= 1:
            raise ValueError(
                f"tn.nn.LinearCrossEntropyLoss: label_smoothing must be from 0 to 1, not {label_smoothing}"
            )
        self.linear = nn.Linear(in_features, out_features, bias, device, dtype)
        self.register_buffer("weight", weight)
        self.ignore_index, self.reduction, self.label_smoothing = ignore_index, reduction, label_smoothing
        self.z_loss, self.softcap, self.temperature, self.logits_mib = z_loss, softcap, temperature, logits_mib

    def extra_repr(self) -> str:
        return f"reduction={self.reduction!r}, logits_mib={self.logits_mib}"

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        if isinstance(input, Proxy):
            return leaf(self, input, target)
        return tn.linear_cross_entropy(
            input,
            held(self.linear, "weight"),
            target,
            held(self.linear, "bias"),
            held(self, "weight"),
            ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
            z_loss=self.z_loss,
            reduction=self.reduction,
            softcap=self.softcap,
            temperature=self.temperature,
            logits_mib=self.logits_mib,
        )


class CosineSimilarity(nn.CosineSimilarity):
    """tn.cosine_similarity as a module; arguments as torch.nn.CosineSimilarity's."""

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        if isinstance(x1, Proxy):
            return leaf(self, x1, x2)
        return tn.cosine_similarity(x1, x2, self.dim, self.eps)
