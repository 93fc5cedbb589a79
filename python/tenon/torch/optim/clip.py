"""Clipping of gradients."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

import tenon.torch as tn
from tenon.torch._param import plain
from tenon.torch.optim._shared import Number, is_sharded, scalar


def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: Number,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """torch.nn.utils.clip_grad_norm_ in two passes over the gradients: scales them so that the norm of all together is
    at most `max_norm`, and returns what it was.

    Gradients of several types or devices, that are complex, DTensors or occur twice, other norms and
    `error_if_nonfinite` go to torch's.
    """
    parameters = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    grads = [p.grad for p in parameters if p.grad is not None]
    alike = len({(g.device, g.dtype) for g in grads}) == 1 and len({id(g) for g in grads}) == len(grads)
    ours = alike and not grads[0].is_complex() and not any(map(is_sharded, grads))
    if norm_type != 2.0 or error_if_nonfinite or not ours:
        norm: Tensor = torch.nn.utils.clip_grad_norm_(
            parameters, plain(max_norm), norm_type, error_if_nonfinite, foreach
        )
        return norm
    with torch.no_grad():
        return tn.clip_grad_norm(grads, scalar(plain(max_norm), grads[0]))
