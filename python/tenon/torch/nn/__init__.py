"""Modules with PyTorch's names, constructors and state_dicts, whose forward is a fused operator of the table.

``tn.nn.LayerNorm(64)`` stands wherever ``torch.nn.LayerNorm(64)`` did: each class here is a subclass of torch's, so a
checkpoint of one loads into the other and ``isinstance`` still holds. An argument that no operator has is refused when
the module is made, with what to use instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from tenon._suggest import missing
from tenon.torch.nn.activations import (
    CELU,
    ELU,
    GELU,
    SELU,
    Hardsigmoid,
    Hardswish,
    LeakyReLU,
    LogSigmoid,
    LogSoftmax,
    Mish,
    PReLU,
    QuickGELU,
    ReLU,
    Sigmoid,
    SiLU,
    Softmax,
    Softplus,
    Softsign,
    Tanh,
)
from tenon.torch.nn.layers import (
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    Dropout,
    Embedding,
    GatedMLP,
    GroupNorm,
    InstanceNorm1d,
    InstanceNorm2d,
    InstanceNorm3d,
    LayerNorm,
    Linear,
    RMSNorm,
    ScaleBiasReLU,
)
from tenon.torch.nn.losses import (
    BCEWithLogitsLoss,
    CosineSimilarity,
    CrossEntropyLoss,
    HuberLoss,
    KLDivLoss,
    L1Loss,
    LinearCrossEntropyLoss,
    MSELoss,
)

__all__ = [
    "CELU",
    "ELU",
    "GELU",
    "SELU",
    "BCEWithLogitsLoss",
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "CosineSimilarity",
    "CrossEntropyLoss",
    "Dropout",
    "Embedding",
    "GatedMLP",
    "GroupNorm",
    "Hardsigmoid",
    "Hardswish",
    "HuberLoss",
    "InstanceNorm1d",
    "InstanceNorm2d",
    "InstanceNorm3d",
    "KLDivLoss",
    "L1Loss",
    "LayerNorm",
    "LeakyReLU",
    "Linear",
    "LinearCrossEntropyLoss",
    "LogSigmoid",
    "LogSoftmax",
    "MSELoss",
    "Mish",
    "PReLU",
    "QuickGELU",
    "RMSNorm",
    "ReLU",
    "ScaleBiasReLU",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Softplus",
    "Softsign",
    "Tanh",
]


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        raise missing(__name__, name, __all__, (torch.nn,))
