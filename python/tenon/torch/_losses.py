"""Losses with the parameters and the results of torch's. They are summed up in f32 at least, and have the type of the
input, as torch's do."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function
from torch.nn._reduction import legacy_get_string
from torch.overrides import has_torch_function_variadic

from tenon.contract import table
from tenon.torch._functional import check_tensors, finish, fused, overridden
from tenon.torch._public import functions

__all__ = ["bce_with_logits", "cross_entropy", "cross_entropy_inplace", "huber", "kl_div", "l1", "mse"]

_rows: dict[str, Callable[..., Tensor]] = functions


def _reduction(
    name: str,
    reduction: str,
    size_average: bool | None,
    reduce: bool | None,
    known: Sequence[str] = ("mean", "sum", "none"),
) -> str:
    """How a loss is summed up; size_average and reduce are how torch said it before."""
    if size_average is not None or reduce is not None:
        reduction = legacy_get_string(size_average, reduce)
    if reduction not in known:
        *most, last = map(repr, known)
        raise ValueError(f"{name}: reduction is {reduction!r}, must be {', '.join(most)} or {last}")
    return reduction


def _as_input(loss: Tensor, input: Tensor, target: Tensor | None = None) -> Tensor:
    """A loss, which is summed up in f32 at least, in the type that torch's has: that of the input, or f32 under
    autocast, where losses are computed in f32."""
    if loss.dtype == input.dtype or torch.is_autocast_enabled(input.device.type):
        return loss
    return loss.to(input.dtype if target is None else torch.promote_types(input.dtype, target.dtype))


# ---- of each element -------------------------------------------------------------------------------------------------


def _of_row(name: str, result: str, statement: str, weight: str = "") -> Callable[..., Tensor]:
    """A loss of the table with another last statement, which makes `u` of what is there for each element, `t`."""
    op = table()[name]
    assert op.formula is not None
    attrs = "".join(f", {a.name}: {a.kind} = {a.default}" for a in op.attrs if a.name != "reduction")
    _, needs, condition = op.signature.partition(" where ")
    body = op.formula.rpartition(";")[0]
    head = f"{name}_of(x: T[*s], target: T[*s]{weight}{attrs}) -> u: {result}{needs}{condition}"
    return fused(f"{head} : {body}; u = {statement}", name)


class _Distance(NamedTuple):
    """A loss of the table that compares element with element. Attributes follow the tensors, and the reduction."""

    name: str
    row: Callable[..., Tensor]
    each: Callable[..., Tensor]  # before it is summed up
    weighted_sum: Callable[..., Tensor]
    per_weight: bool  # whether a mean with weights is divided by their sum, and not by how many elements there are

    @classmethod
    def make(cls, name: str, per_weight: bool) -> _Distance:
        each = _of_row(name, "T[*s]", "t * weight if has(weight) else t", ", weight: T[~*s]?")
        weighted_sum = _of_row(name, "acc(T)[]", "sum(t * weight)", ", weight: T[~*s]")
        return cls(name, _rows[name], each, weighted_sum, per_weight)

    def of(self, input: Tensor, target: Tensor, weight: Tensor | None, reduction: str, *attrs: float) -> Tensor:
        check_tensors(self.name, input=input, target=target)
        if weight is not None and weight.shape != input.shape:
            raise ValueError(
                f"{self.name}: weight has shape {list(weight.shape)}, needs {list(input.shape)} like input"
            )
        if input.shape != target.shape:
            warnings.warn(
                f"the target has shape {list(target.shape)} and the input {list(input.shape)}: they broadcast, which "
                "is seldom meant by a loss",
                stacklevel=3,
            )
            input, target = torch.broadcast_tensors(input, target)  # type: ignore[no-untyped-call]
        if reduction == "none":
            return self.each(input, target, weight, *attrs)
        if weight is None:
            return _as_input(self.row(input, target, reduction, *attrs), input, target)
        total = self.weighted_sum(input, target, weight, *attrs)
        if reduction == "mean":
            total = total / (weight.sum(dtype=total.dtype) if self.per_weight else input.numel())
        return _as_input(total, input, target)


_mse, _l1, _huber = _Distance.make("mse", True), _Distance.make("l1", True), _Distance.make("huber", False)


def mse(
    input: Tensor,
    target: Tensor,
    *,
    reduction: str = "mean",
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
) -> Tensor:
    """(input - target) ** 2, each times its weight. reduction: 'mean', which is over the sum of the weights where there
    are some, 'sum' or 'none'. It is torch.nn.functional.mse_loss."""
    if has_torch_function_variadic(input, target, weight):
        named = {"reduction": reduction, "weight": weight, "size_average": size_average, "reduce": reduce}
        return overridden(mse, (input, target, weight), input, target, **named)
    return _mse.of(input, target, weight, _reduction("mse", reduction, size_average, reduce))


def l1(
    input: Tensor,
    target: Tensor,
    *,
    reduction: str = "mean",
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
) -> Tensor:
    """|input - target|, each times its weight. reduction: 'mean', which is over the sum of the weights where there are
    some, 'sum' or 'none'. It is torch.nn.functional.l1_loss."""
    if has_torch_function_variadic(input, target, weight):
        named = {"reduction": reduction, "weight": weight, "size_average": size_average, "reduce": reduce}
        return overridden(l1, (input, target, weight), input, target, **named)
    return _l1.of(input, target, weight, _reduction("l1", reduction, size_average, reduce))


def huber(
    input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0, weight: Tensor | None = None
) -> Tensor:
    """Half the square of input - target up to delta, and linear from there on, each times its weight. reduction:
    'mean', 'sum' or 'none'. It is torch.nn.functional.huber_loss; divided by delta, smooth_l1_loss with that beta."""
    if has_torch_function_variadic(input, target, weight):
        return overridden(huber, (input, target, weight), input, target, reduction, delta, weight)
    return _huber.of(input, target, weight, _reduction("huber", reduction, None, None), delta)


_bce_with_logits = _rows["bce_with_logits"]
_bce_each, _bce_weighted = (
    fused(
        "bce_of(x: T[*s], target: T[*s], weight: T[~*s]?, pos_weight: T[~*s]?, reduction: 'mean'|'sum' = 'mean') "
        f"-> loss: {result} : p = softplus(x) - x * target; "
        "q = p + (pos_weight - 1) * target * softplus(-x) if has(pos_weight) else p; "
        f"t = q * weight if has(weight) else q; loss = {statement}",
        "bce_with_logits",
    )
    for result, statement in (("T[*s]", "t"), ("acc(T)[]", "mean(t) if reduction == 'mean' else sum(t)"))
)


def bce_with_logits(
    input: Tensor,
    target: Tensor,
    *,
    weight: Tensor | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
) -> Tensor:
    """The binary cross-entropy of logits and probabilities. Each element counts weight times, and as much more as
    pos_weight says by as much as it is positive; both broadcast. reduction: 'mean', 'sum' or 'none'. It is
    torch.nn.functional.binary_cross_entropy_with_logits."""
    tensors = (input, target, weight, pos_weight)
    if has_torch_function_variadic(*tensors):
        named = {"weight": weight, "reduction": reduction, "pos_weight": pos_weight}
        return overridden(bce_with_logits, tensors, input, target, **named, size_average=size_average, reduce=reduce)
    check_tensors("bce_with_logits", input=input, target=target)
    reduction = _reduction("bce_with_logits", reduction, size_average, reduce)
    if reduction == "none":
        return _bce_each(input, target, weight, pos_weight)
    if weight is None and pos_weight is None:
        return _as_input(_bce_with_logits(input, target, reduction), input, target)
    return _as_input(_bce_weighted(input, target, weight, pos_weight, reduction), input, target)


# ---- of logarithms and classes ---------------------------------------------------------------------------------------

_kl_div, _kl_div_each = _rows["kl_div"], _of_row("kl_div", "T[*s]", "t")
_kl_div_logs_each = fused(
    "kl_div_logs_each(x: T[*s], target: T[*s]) -> t: T[*s] : exp(target) * (target - x)", "kl_div"
)
_kl_div_logs = fused(
    "kl_div_logs(x: T[*s], target: T[*s], reduction: 'mean'|'sum' = 'mean') -> loss: acc(T)[] : "
    "t = exp(target) * (target - x); loss = mean(t) if reduction == 'mean' else sum(t)",
    "kl_div",
)


def kl_div(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    log_target: bool = False,
) -> Tensor:
    """Kullback-Leibler divergence of the logarithms input from the probabilities target, or their logarithms.

    reduction: 'mean', 'sum', 'none', or 'batchmean', which divides the sum by the first size.
    """
    if has_torch_function_variadic(input, target):
        named = {"reduction": reduction, "log_target": log_target}
        return overridden(kl_div, (input, target), input, target, size_average, reduce, **named)
    check_tensors("kl_div", input=input, target=target)
    reduction = _reduction("kl_div", reduction, size_average, reduce, ("mean", "sum", "none", "batchmean"))
    batch = input.shape[0] if reduction == "batchmean" and input.ndim else 1
    if input.shape != target.shape:
        input, target = torch.broadcast_tensors(input, target)  # type: ignore[no-untyped-call]
    if reduction == "none":
        return (_kl_div_logs_each if log_target else _kl_div_each)(input, target)
    how = "sum" if reduction == "batchmean" else reduction
    loss = (_kl_div_logs if log_target else _kl_div)(input, target, how)
    return _as_input(loss / batch if reduction == "batchmean" else loss, input, target)


_cross_entropy = _rows["cross_entropy"]
_soft_cross_entropy = _rows["soft_cross_entropy"]
_soft_cross_entropy_each = fused(
    "soft_cross_entropy_each(x: T[*r, v], target: T[*r, v], weight: W[v]?, label_smoothing: float = 0.0, "
    "z_loss: float = 0.0) -> u: acc(T)[*r] : "
    f"{(table()['soft_cross_entropy'].formula or '').rpartition(';')[0]}; u = t",
    "cross_entropy",
)


def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    *,
    z_loss: float = 0.0,
    dim: int = 1,
) -> Tensor:
    """The cross-entropy of logits and classes, which are indices, or probabilities if target has the shape of input.

    Classes are dimension 1 of input, [N, C, …], or the only one; dim=-1 says that they are the last, [N, …, C], which
    needs no copy. z_loss adds z_loss * logsumexp(input) ** 2. In training the gradient is made in the same pass over
    the logits.
    """
    if has_torch_function_variadic(input, target, weight):
        given = (input, target, weight, size_average, ignore_index, reduce, reduction, label_smoothing)
        return overridden(cross_entropy, (input, target, weight), *given, z_loss=z_loss, dim=dim)
    check_tensors("cross_entropy", input=input, target=target)
    reduction = _reduction("cross_entropy", reduction, size_average, reduce)
    axis = dim if input.ndim > 1 else -1
    logits = input if axis in (-1, input.ndim - 1) else input.movedim(axis, -1)
    if target.is_floating_point():
        if target.shape != input.shape:
            raise ValueError(
                f"cross_entropy: target has shape {list(target.shape)}, needs {list(input.shape)} for probabilities"
            )
        classes = target if logits is input else target.movedim(axis, -1)
        return _of_probabilities(logits, classes, weight, reduction, label_smoothing, z_loss)
    if target.dtype == torch.uint8:
        target = target.long()
    if weight is not None and weight.dtype != torch.float32:
        if weight.dtype == input.dtype == torch.float64 and not z_loss:  # the operator's weights are f32
            first = input if logits is input and input.ndim <= 2 else logits.movedim(-1, 1)
            return F.cross_entropy(first, target.long(), weight, None, ignore_index, None, reduction, label_smoothing)
        weight = weight.float()
    return _as_input(_cross_entropy(logits, target, weight, ignore_index, label_smoothing, z_loss, reduction), input)


def _of_probabilities(
    logits: Tensor, target: Tensor, weight: Tensor | None, reduction: str, label_smoothing: float, z_loss: float
) -> Tensor:
    """cross_entropy of probabilities; both have the classes last."""
    if reduction == "none":
        return _as_input(_soft_cross_entropy_each(logits, target, weight, label_smoothing, z_loss), logits)
    return _as_input(_soft_cross_entropy(logits, target, weight, reduction, label_smoothing, z_loss), logits)


_cross_entropy_inplace: Callable[..., Any] = functions["cross_entropy_inplace"]
_cross_entropy_grad = _rows["cross_entropy_grad"]


class _InPlace(Function):
    """cross_entropy_inplace, recorded. What is saved is the gradient, in the memory of the logits."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, target: Tensor, weight: Tensor | None, *attrs: Any) -> Tensor:
        logits = input.detach()  # the same memory and the same version, so that whoever saved input is told
        loss: Tensor = _cross_entropy_inplace(logits, target, weight, *attrs)[0]
        ctx.save_for_backward(logits)
        ctx.reduction = attrs[-1]
        return loss

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        gx: Tensor = ctx.saved_tensors[0]
        return _cross_entropy_grad(gx, grads[0], ctx.reduction, out=gx), *[None] * 6


def cross_entropy_inplace(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    *,
    z_loss: float = 0.0,
    dim: int = 1,
) -> Tensor:
    """tn.cross_entropy of indices, whose gradient overwrites the logits: training then needs no second tensor of their
    size. It always does so, also where nothing is differentiated.

    input must be nothing that is needed again, such as what a linear layer returned; torch raises an error in the
    backward pass if it was. Backward scales the gradient in the same memory, and can run once. Classes are dimension 1
    of input, or `dim`; input may be a view.
    """
    if has_torch_function_variadic(input, target, weight):
        named = {"z_loss": z_loss, "dim": dim}
        given = (input, target, weight, ignore_index, reduction, label_smoothing)
        return overridden(cross_entropy_inplace, (input, target, weight), *given, **named)
    check_tensors("cross_entropy_inplace", input=input, target=target)
    if target.is_floating_point():
        raise ValueError("cross_entropy_inplace: target has probabilities, needs indices; tn.cross_entropy takes both")
    reduction = _reduction("cross_entropy_inplace", reduction, None, None)
    recorded = torch.is_grad_enabled() and input.requires_grad
    if recorded and input.is_leaf:
        raise RuntimeError(
            "cross_entropy_inplace: input is a leaf that requires a gradient; its values would be overwritten by it"
        )
    axis = dim if input.ndim > 1 else -1
    logits = input if axis in (-1, input.ndim - 1) else input.movedim(axis, -1)
    target = target.long() if target.dtype == torch.uint8 else target
    weight = weight if weight is None else weight.float()
    attrs = (ignore_index, label_smoothing, z_loss, reduction)
    if recorded:
        loss: Tensor = _InPlace.apply(logits, target, weight, *attrs)  # type: ignore[no-untyped-call]
    else:
        loss = _cross_entropy_inplace(logits, target, weight, *attrs)[0]
    return _as_input(loss, input)


for _name in __all__:
    finish(globals()[_name])
