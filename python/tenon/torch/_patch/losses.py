"""Losses that a model holds as `loss_function`, as those of transformers do: logits and labels to a number.

Theirs make a copy of the logits in 32 bits, and their softmax is kept for the backward pass. Ours reads the logits as
they are, sums in 32 bits and makes the gradient in the same pass.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tenon.torch._patch.forward import ReplacedAttribute
from tenon.torch._patch.logits import Logits
from tenon.torch._patch.probe import Cost, Maker, Mismatch, cost, of_tensors, unlike
from tenon.torch._patch.recipe import first_line
from tenon.torch._public import functions
from tenon.torch.optim._shared import is_sharded

Loss = Callable[..., Any]
ATTRIBUTE = "loss_function"
_cross_entropy = functions["cross_entropy"]


def _token_loss(shift: bool) -> Callable[[Loss], Loss]:
    """The mean over tokens; with shift, token n is judged by what token n + 1 is."""

    def make(theirs: Loss) -> Loss:
        def call(
            logits: Any,
            labels: Any,
            vocab_size: Any,
            num_items_in_batch: Any = None,
            ignore_index: int = -100,
            shift_labels: Any = None,
            **rest: Any,
        ) -> Any:
            if rest or is_sharded(logits) or (shift_labels is not None and not shift):
                if shift_labels is not None:
                    rest["shift_labels"] = shift_labels
                return theirs(logits, labels, vocab_size, num_items_in_batch, ignore_index, **rest)
            if shift_labels is None:
                shift_labels = F.pad(labels, (0, 1), value=ignore_index)[..., 1:] if shift else labels
            target = shift_labels.reshape(-1).to(logits.device)
            reduction = "mean" if num_items_in_batch is None else "sum"
            loss: Tensor
            if isinstance(logits, Logits) and logits.shape[-1] == vocab_size:
                loss = logits.loss(target, ignore_index, reduction)
            else:
                rows = logits.view(-1, vocab_size)
                loss = _cross_entropy(rows, target, None, ignore_index, 0.0, 0.0, reduction)
            if isinstance(num_items_in_batch, Tensor):
                num_items_in_batch = num_items_in_batch.to(loss.device)
            return loss if num_items_in_batch is None else loss / num_items_in_batch

        return call

    return make


ReplacedAttribute.makers = {"causal": _token_loss(True), "masked": _token_loss(False)}


def _cases(make: Maker) -> list[tuple[Tensor, dict[str, Any]]]:
    labels = make.integers(7, 2, 5)
    labels[0, 2:4] = -100
    cases: list[dict[str, Any]] = [{}, {"num_items_in_batch": torch.tensor(6, device="cpu")}, {"num_items_in_batch": 6}]
    return [(make.normal(2, 5, 7), {"labels": labels, "vocab_size": 7, **case}) for case in cases]


def _called(function: Loss, named: dict[str, Any]) -> Callable[..., Any]:
    return lambda logits: function(logits=logits, **named)


def match_loss(theirs: Loss, dtype: torch.dtype) -> tuple[str, Cost, Cost]:
    """Which of ours computes the same, and what both take."""
    if not {"logits", "labels", "vocab_size"} <= inspect.signature(theirs).parameters.keys():
        raise Mismatch("it does not take logits, labels and vocab_size")
    reason = ""
    for name, make in ReplacedAttribute.makers.items():
        ours = make(theirs)
        for kind in (torch.float32, dtype):
            for logits, named in _cases(Maker(kind, torch.device("cpu"))):
                reason = unlike(_called(theirs, named), _called(ours, named), (logits,), kind) or ""
                if reason:
                    break
            if reason:
                break
        if not reason:
            logits, named = _cases(Maker(dtype, torch.device("cpu")))[0]
            costs = [cost(of_tensors(_called(f, named)), nn.Module(), (logits,)) for f in (theirs, ours)]
            return name, costs[0], costs[1]
    raise Mismatch(reason)


def install(module: nn.Module, dtype: torch.dtype) -> tuple[Loss, Cost, Cost] | None:
    """Puts ours where a module has a loss that computes the same. Properties keep their value in an attribute."""
    code = getattr(inspect.unwrap(type(module).forward), "__code__", None)
    if code is None or ATTRIBUTE not in code.co_names:  # transformers' models without a head have one too
        return None
    theirs = getattr(module, ATTRIBUTE, None)
    if not callable(theirs) or isinstance(theirs, ReplacedAttribute | nn.Module):
        return None
    try:
        name, before, after = match_loss(theirs, dtype)
    except Mismatch:
        raise
    except Exception as error:
        raise Mismatch(f"it could not be called with small logits: {first_line(error)}") from None
    was_there = any(value is theirs for value in module.__dict__.values())
    setattr(module, ATTRIBUTE, ReplacedAttribute(theirs, name, was_there))
    return theirs, before, after
