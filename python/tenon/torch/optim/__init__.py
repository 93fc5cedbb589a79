"""Optimisers with PyTorch's names, constructors and state_dicts, whose step is one pass over memory.

``tn.optim.AdamW(model.parameters(), lr=1e-3)`` stands wherever ``torch.optim.AdamW`` did: learning-rate schedulers,
hooks and ``GradScaler`` go on working, and a state_dict of one loads into the other. `lr` may be a number, a tensor or
a ``tn.Param``, which a captured CUDA graph reads at each replay. The state takes as many bytes as torch's: moments have
the parameter's type, unless `state_dtype=torch.float32` keeps those of 16-bit parameters in 32. Steps are computed in
f32 either way. Where parameters are DTensors, as FSDP2's are, each process makes the step of its part, and the state is
made of DTensors too.
"""

from typing import TYPE_CHECKING

import torch

from tenon._suggest import missing
from tenon.torch.optim.adafactor import Adafactor
from tenon.torch.optim.adam import Adam, AdamW
from tenon.torch.optim.clip import clip_grad_norm_
from tenon.torch.optim.lion import Lion
from tenon.torch.optim.sgd import SGD

__all__ = ["SGD", "Adafactor", "Adam", "AdamW", "Lion", "clip_grad_norm_"]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        raise missing(__name__, name, __all__, (torch.optim, torch.nn.utils))
