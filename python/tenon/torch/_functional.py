"""Functions that share their name with one of torch's: they take its arguments, in its order, and give its results.

Most are written from the table alone, by the names that `TorchFunction` of _frameworks.py gives to their parameters.
Here are those that take more than their contract does, or in another order. What an operator has beyond torch's, such
as the mask of softmax, is behind the star and by name.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function
from torch.overrides import (
    handle_torch_function,
    has_torch_function,
    has_torch_function_unary,
    has_torch_function_variadic,
)

from tenon.torch._fuse import fused_op
from tenon.torch._ops import torch_op
from tenon.torch._public import functions, in_place, make_public
from tenon.torch._seeds import draw

__all__ = [
    "add",
    "batch_norm",
    "clamp",
    "concat",
    "cosine_similarity",
    "div",
    "dropout",
    "embedding",
    "gather",
    "gelu",
    "group_norm",
    "index_select",
    "instance_norm",
    "layer_norm",
    "one_hot",
    "pad",
    "pow",
    "prelu",
    "rms_norm",
    "roll",
    "scale_bias_relu",
    "scatter_add",
    "softplus",
    "sort",
    "sub",
    "top_k",
]

_Result = TypeVar("_Result")
_EPS_32, _EPS_64 = torch.finfo(torch.float32).eps, torch.finfo(torch.float64).eps


_rows: dict[str, Callable[..., Tensor]] = functions


def fused(formula: str, called: str, **words: str) -> Callable[..., Tensor]:
    """A formula that does a part of what the function `called` does; its messages are that function's. `words` are what
    they say for names of the formula."""
    made = fused_op(formula)
    return make_public(made, {"x": "input", "y": "other", made.op.name: called, **words})


def _part(row: str, called: str, **words: str) -> Callable[..., Tensor]:
    """The same for a row of the table."""
    return make_public(torch_op(row), {"x": "input", row: called, **words})


def overridden(function: Callable[..., _Result], tensors: Sequence[Any], *args: Any, **named: Any) -> _Result:
    """A call with what stands for a tensor, such as what torch.fx traces with: that sees the function."""
    result: _Result = handle_torch_function(function, tensors, *args, **named)
    return result


def check_tensors(name: str, **given: Any) -> None:
    for parameter, value in given.items():
        if not isinstance(value, Tensor):
            raise TypeError(
                f"{name}: {parameter} must be a tensor, not {'None' if value is None else type(value).__name__}"
            )


# ---- activations -----------------------------------------------------------------------------------------------------


_gelu, _gelu_tanh = _rows["gelu"], _part("gelu_tanh", "gelu")


def gelu(input: Tensor, *, approximate: str = "none", out: Tensor | None = None) -> Tensor:
    """input times the normal distribution's probability below it; approximate='tanh' is tn.gelu_tanh."""
    if approximate == "none":
        return _gelu(input, out=out)
    if approximate != "tanh":
        raise ValueError(f"gelu: approximate is {approximate!r}, must be 'none' or 'tanh'")
    return _gelu_tanh(input, out=out)


_softplus = _rows["softplus"]
_softplus_from = fused(
    "softplus_from(x: T[*s], beta: float = 1.0, threshold: float = 20.0) -> y: T[*s] : "
    "x if x * beta > threshold else softplus(x * beta) / beta",
    "softplus",
)


def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0, *, out: Tensor | None = None) -> Tensor:
    """log(1 + exp(beta * input)) / beta, and input itself where beta * input is above threshold.

    With the threshold of 20 that is torch's default the result is exact everywhere: from there on both round to the
    same float32.
    """
    if threshold == 20:
        return _softplus(input, beta, out=out)
    return _softplus_from(input, beta, threshold, out=out)


_prelu = _rows["prelu"]


def prelu(input: Tensor, weight: Tensor, *, out: Tensor | None = None) -> Tensor:
    """input, or weight * input below 0. weight has one slope, or one for each channel, which is dimension 1."""
    if has_torch_function_variadic(input, weight):
        return overridden(prelu, (input, weight), input, weight, out=out)
    check_tensors("prelu", input=input, weight=weight)
    if weight.ndim == 1 and weight.shape[0] > 1:
        return _prelu(input if input.ndim > 1 else input[None], weight, out=out).view_as(input)
    # One slope for everything: a single channel.
    into = None if out is None else out[None, None]
    return _prelu(input[None, None], weight.reshape(-1), out=into)[0, 0]


# ---- arithmetic ------------------------------------------------------------------------------------------------------

_add, _sub, _div = _rows["add"], _rows["sub"], _rows["div"]
_add_scaled, _sub_scaled = (
    fused(f"{name}_scaled(x: T[~*s], y: T[~*s], alpha: float) -> z: T[*s] : x {sign} alpha * y", name)
    for name, sign in (("add", "+"), ("sub", "-"))
)
# How torch rounds a quotient: towards 0 of what the division gave, and down with the remainder taken off first.
_QUOTIENTS = {
    mode: fused(f"div_{mode}(x: T[~*s], y: T[~*s]) -> z: T[*s] : {formula}", "div")
    for mode, formula in {
        "trunc": "q = x / y; z = floor(q) if q > 0 else -floor(-q)",
        "floor": "x / y if y == 0 else round((x - x % y) / y)",
    }.items()
}


def add(input: Tensor, other: Tensor | float, *, alpha: float = 1, out: Tensor | None = None) -> Tensor:
    """input + alpha * other."""
    if alpha == 1:
        return _add(input, other, out=out)
    return _add_scaled(input, other, alpha, out=out)


def sub(input: Tensor, other: Tensor | float, *, alpha: float = 1, out: Tensor | None = None) -> Tensor:
    """input - alpha * other."""
    if alpha == 1:
        return _sub(input, other, out=out)
    return _sub_scaled(input, other, alpha, out=out)


def div(input: Tensor, other: Tensor | float, *, rounding_mode: str | None = None, out: Tensor | None = None) -> Tensor:
    """input / other; rounding_mode='trunc' rounds it towards 0 and 'floor' down."""
    if rounding_mode is None:
        return _div(input, other, out=out)
    if rounding_mode not in _QUOTIENTS:
        raise ValueError(f"div: rounding_mode is {rounding_mode!r}, must be None, 'trunc' or 'floor'")
    return _QUOTIENTS[rounding_mode](input, other, out=out)


_pow = _rows["pow"]
_pow_tensors = fused("pow_tensors(x: T[~*s], exponent: T[~*s]) -> z: T[*s] : x ** exponent", "pow")


def pow(input: Tensor | float, exponent: Tensor | float, *, out: Tensor | None = None) -> Tensor:
    """input to the power of exponent; either may be a number."""
    if isinstance(exponent, int | float):
        return _pow(input, exponent, out=out)
    return _pow_tensors(input, exponent, out=out)


_clamp = _rows["clamp"]
_clamp_tensors = fused(
    "clamp_tensors(x: T[~*s], low: T[~*s]?, high: T[~*s]?) -> y: T[*s] : "
    "clamp(x, low if has(low) else -inf, high if has(high) else inf)",
    "clamp",
    low="min",
    high="max",
)


def clamp(
    input: Tensor, min: Tensor | float | None = None, max: Tensor | float | None = None, *, out: Tensor | None = None
) -> Tensor:
    """input, but at least min and at most max, which may be numbers or tensors. The gradient at a bound passes."""
    if min is None and max is None:
        raise ValueError("clamp: min and max are both None, one of them has to be given")
    if isinstance(min, Tensor) or isinstance(max, Tensor):
        return _clamp_tensors(input, min, max, out=out)
    return _clamp(input, min, max, out=out)


_scale_bias_relu = _rows["scale_bias_relu"]


def scale_bias_relu(x: Tensor, *, scale: Tensor | float, bias: Tensor | float, out: Tensor | None = None) -> Tensor:
    """relu(x * scale + bias); scale and bias broadcast to x, and are given by name."""
    return _scale_bias_relu(x, scale, bias, out=out)


# ---- along dimensions ------------------------------------------------------------------------------------------------


def one_spelling(name: str, ours: str, given: Any, default: Any, other: str, value: Any) -> Any:
    """torch's name of a parameter or NumPy's, of which one is given."""
    if value is None:
        return given
    if given != default:
        raise TypeError(f"{name}: {ours} and {other} are the same, only one can be given")
    return value


_sort: Callable[..., Any] = functions["sort"]


def sort(
    input: Tensor,
    dim: int = -1,
    descending: bool = False,
    *,
    stable: bool | None = None,
    axis: int | None = None,
) -> tuple[Tensor, Tensor]:
    """input in order along a dimension, and where each element was. Equal elements keep their order, with stable or
    without; NaN is larger than every number. axis is NumPy's name of dim."""
    dim = one_spelling("sort", "dim", dim, -1, "axis", axis)
    if has_torch_function_unary(input):
        return overridden(sort, (input,), input, dim, descending, stable=stable)
    check_tensors("sort", input=input)
    if input.ndim == 0:  # as torch: as if there were one dimension
        values, index = _sort(input[None], dim, descending)
        return values[0], index[0]
    values, index = _sort(input, dim, descending)
    return values, index


_top_k: Callable[..., Any] = functions["top_k"]


def top_k(
    input: Tensor,
    k: int,
    dim: int = -1,
    largest: bool = True,
    sorted: bool = True,
    *,
    axis: int | None = None,
) -> tuple[Tensor, Tensor]:
    """The k largest or smallest elements along a dimension, and where they were: the first k that tn.sort would give.
    So of equal elements the first are taken, and NaN is the largest. They come sorted, also with sorted=False. It is
    torch.topk; axis is NumPy's name of dim."""
    dim = one_spelling("top_k", "dim", dim, -1, "axis", axis)
    if has_torch_function_unary(input):
        return overridden(top_k, (input,), input, k, dim, largest, sorted)
    check_tensors("top_k", input=input)
    if input.ndim == 0:  # as torch: as if there were one dimension
        values, index = _top_k(input[None], k, largest)
        return (values[0], index[0]) if k else (values, index)
    if dim in (-1, input.ndim - 1):
        values, index = _top_k(input, k, largest)
        return values, index
    values, index = _top_k(input.movedim(dim, -1), k, largest)
    return values.movedim(-1, dim), index.movedim(-1, dim)


_cosine_similarity = _rows["cosine_similarity"]


def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """The cosine of the angle between x1 and x2 along a dimension; norms count as eps at least."""
    if has_torch_function_variadic(x1, x2):
        return overridden(cosine_similarity, (x1, x2), x1, x2, dim, eps)
    check_tensors("cosine_similarity", x1=x1, x2=x2)
    if x1.shape != x2.shape:
        shape = torch.broadcast_shapes(x1.shape, x2.shape)  # type: ignore[no-untyped-call]
        x1, x2 = x1.expand(shape), x2.expand(shape)
    if x1.ndim == 0:
        x1, x2 = x1[None], x2[None]
    if dim not in (-1, x1.ndim - 1):
        x1, x2 = x1.movedim(dim, -1), x2.movedim(dim, -1)
    return _cosine_similarity(x1, x2, eps)


# ---- normalisations --------------------------------------------------------------------------------------------------


def _row_shape(name: str, input: Tensor, shape: int | Sequence[int] | None) -> tuple[int, ...]:
    """The last dimensions, which are normalised."""
    check_tensors(name, input=input)
    if shape is None:
        return tuple(input.shape[-1:])
    if isinstance(shape, Tensor):
        raise TypeError(f"{name}: normalized_shape must be sizes, such as (64,), not a tensor; the weight follows it")
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    if not shape or tuple(input.shape[-len(shape) :]) != shape:
        raise ValueError(f"{name}: input has shape {list(input.shape)}, must end with {list(shape)}")
    return shape


def _flat(tensor: Tensor | None, shape: tuple[int, ...]) -> Tensor | None:
    """With the dimensions that are normalised as one."""
    return None if tensor is None else tensor.view(*tensor.shape[: -len(shape)], -1)


_layer_norm = _rows["layer_norm"]


def layer_norm(
    input: Tensor,
    normalized_shape: int | Sequence[int] | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Normalises the last dimensions, whose sizes are normalized_shape, to mean 0 and variance 1; then times weight,
    plus bias. Without normalized_shape it is the last dimension alone."""
    if has_torch_function_variadic(input, weight, bias):
        given = (input, normalized_shape, weight, bias, eps)
        return overridden(layer_norm, (input, weight, bias), *given, out=out)
    shape = _row_shape("layer_norm", input, normalized_shape)
    if len(shape) <= 1:
        return _layer_norm(input, weight, bias, eps, out=out)
    flat = input.flatten(-len(shape)), _flat(weight, shape), _flat(bias, shape)
    return _layer_norm(*flat, eps, out=_flat(out, shape)).view(input.shape)


_rms_norm = _rows["rms_norm"]


def rms_norm(
    input: Tensor,
    normalized_shape: int | Sequence[int] | None = None,
    weight: Tensor | None = None,
    eps: float | None = None,
    *,
    zero_centered: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """input over the root of its mean square along the last dimensions, whose sizes are normalized_shape, times weight,
    or 1 + weight with zero_centered. Without normalized_shape it is the last dimension alone; without eps, it is the
    smallest step at 1 of the type that is computed in."""
    if has_torch_function_variadic(input, weight):
        given = (input, normalized_shape, weight, eps)
        return overridden(rms_norm, (input, weight), *given, zero_centered=zero_centered, out=out)
    shape = _row_shape("rms_norm", input, normalized_shape)
    if eps is None:
        eps = _EPS_64 if input.dtype == torch.float64 else _EPS_32
    if len(shape) <= 1:
        return _rms_norm(input, weight, eps, zero_centered, out=out)
    flat = input.flatten(-len(shape)), _flat(weight, shape)
    return _rms_norm(*flat, eps, zero_centered, out=_flat(out, shape)).view(input.shape)


_batch_norm = _rows["batch_norm"]
_batch_norm_infer = _part(
    "batch_norm_infer", "batch_norm", mean="running_mean", var="running_var", gamma="weight", beta="bias"
)


def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
    *,
    residual: Tensor | None = None,
    act: str = "none",
) -> Tensor:
    """Normalises each channel (dimension 1) by its mean and variance, then times weight, plus bias, plus residual, then
    act.

    In training they are those of the batch, and running_mean and running_var, where they are given, move towards them
    by the factor momentum; otherwise they are running_mean and running_var.
    """
    tensors = (input, running_mean, running_var, weight, bias, residual)
    if has_torch_function_variadic(*tensors):
        given = (input, running_mean, running_var, weight, bias, training, momentum, eps)
        return overridden(batch_norm, tensors, *given, residual=residual, act=act)
    _check_channels("batch_norm", input)
    if not training:
        if running_mean is None or running_var is None:
            raise ValueError("batch_norm: running_mean and running_var are needed, as training is False")
        return _batch_norm_infer(input, running_mean, running_var, weight, bias, residual, eps, act)
    if input.numel() == input.shape[1]:
        raise ValueError(f"batch_norm: one value per channel has no variance; input has shape {list(input.shape)}")
    wide = running_mean is not None and running_mean.dtype == torch.float64  # the operator's are f32
    mean, var = _statistic(running_mean, input), _statistic(running_var, input)
    y: Tensor = _batch_norm(input, weight, bias, mean, var, residual, momentum, eps, act)
    with torch.no_grad():
        if wide:
            F.batch_norm(input.double(), running_mean, running_var, training=True, momentum=momentum)
        elif running_mean is not None and running_mean is not mean:
            running_mean.copy_(mean)
        if not wide and running_var is not None and running_var is not var:
            running_var.copy_(var)
    return y


_group_norm, _instance_norm = _rows["group_norm"], _rows["instance_norm"]


def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    *,
    act: str = "none",
    out: Tensor | None = None,
) -> Tensor:
    """Normalises each of num_groups groups of channels (dimension 1) of each sample to mean 0 and variance 1; then
    times weight, plus bias, then act."""
    tensors = (input, weight, bias)
    if has_torch_function_variadic(*tensors):
        return overridden(group_norm, tensors, input, num_groups, weight, bias, eps, act=act, out=out)
    _check_channels("group_norm", input)
    if input.shape[1] % num_groups != 0:
        raise ValueError(f"group_norm: num_groups is {num_groups}, must divide the {input.shape[1]} channels of input")
    if input.shape[0] * input.shape[1:].numel() == num_groups:
        raise ValueError(f"group_norm: one value per group has no variance; input has shape {list(input.shape)}")
    return _group_norm(input, weight, bias, num_groups, eps, act, out=out)


def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
    *,
    act: str = "none",
    out: Tensor | None = None,
) -> Tensor:
    """Normalises each channel (dimension 1) of each sample to mean 0 and variance 1; then times weight, plus bias, then
    act.

    running_mean and running_var, where they are given, move towards the mean of the samples' by the factor momentum;
    without use_input_stats they are what is normalised by.
    """
    tensors = (input, running_mean, running_var, weight, bias)
    if has_torch_function_variadic(*tensors):
        given = (*tensors, use_input_stats, momentum, eps)
        return overridden(instance_norm, tensors, *given, act=act, out=out)
    _check_channels("instance_norm", input)
    if not use_input_stats:
        if running_mean is None or running_var is None:
            raise ValueError("instance_norm: running_mean and running_var are needed, as use_input_stats is False")
        return _batch_norm_infer(input, running_mean, running_var, weight, bias, None, eps, act, out=out)
    if input.shape[2:].numel() == 1:
        raise ValueError(f"instance_norm: one value per channel has no variance; input has shape {list(input.shape)}")
    with torch.no_grad():
        over = tuple(range(2, input.ndim))
        if running_mean is not None:
            running_mean.lerp_(input.detach().mean(over).mean(0).to(running_mean.dtype), momentum)
        if running_var is not None:
            running_var.lerp_(input.detach().var(over).mean(0).to(running_var.dtype), momentum)
    return _instance_norm(input, weight, bias, eps, act, out=out)


def _check_channels(name: str, input: Tensor) -> None:
    check_tensors(name, input=input)
    if input.ndim < 2:
        raise ValueError(f"{name}: input has shape {list(input.shape)}, needs a dimension of channels: [n, c, …]")


def _statistic(running: Tensor | None, input: Tensor) -> Tensor:
    """The statistic in f32, as the operator wants it; one that is not kept so is there to be written over."""
    if running is None:
        return torch.zeros(input.shape[1], device=input.device, dtype=torch.float32)
    return running if running.dtype == torch.float32 else running.float()


# ---- dropout ---------------------------------------------------------------------------------------------------------

_dropout = _rows["dropout"]


def dropout(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False, *, seed: Tensor | None = None
) -> Tensor:
    """Elements are 0 with probability p, the others grow by 1 / (1 - p); without training it is input.

    The mask comes from a counter and a seed, two integers, and is made again in the backward pass instead of being
    kept. Without one, a seed is drawn from the generator of the input's device, which torch.manual_seed sets.
    """
    if has_torch_function_unary(input):
        return overridden(dropout, (input,), input, p, training, inplace, seed=seed)
    check_tensors("dropout", input=input)
    if not 0 <= p <= 1:
        raise ValueError(f"dropout: p is {p}, must be from 0 to 1")
    if not training or p == 0:
        return input
    if p == 1:
        return input.mul_(0.0) if inplace else input * 0.0
    seed = draw(input.device) if seed is None else seed
    return in_place(_dropout, input, seed, p) if inplace else _dropout(input, seed, p)


# ---- moving data -----------------------------------------------------------------------------------------------------


_concat, _roll = _rows["concat"], _rows["roll"]


class _Joined(Function):
    """concat, recorded: the gradients of its tensors are views of the result's."""

    generate_vmap_rule = True

    @staticmethod
    def forward(dim: int, *tensors: Tensor) -> Tensor:
        return _concat(tensors, dim)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.dim = inputs[0]
        ctx.sizes = [t.shape[ctx.dim] for t in inputs[1:]]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return None, *torch.split(grads[0], ctx.sizes, ctx.dim)


def concat(tensors: Sequence[Tensor], dim: int = 0, *, out: Tensor | None = None) -> Tensor:
    """The tensors joined along dim. All other sizes are the same; types are promoted as torch does it."""
    if has_torch_function(tensors):
        return overridden(concat, tensors, tensors, dim, out=out)
    if len({t.dtype for t in tensors if isinstance(t, Tensor)}) > 1:
        dtype = reduce(torch.promote_types, [t.dtype for t in tensors])
        tensors = [t.to(dtype) for t in tensors]
    recorded = torch.is_grad_enabled() and any(isinstance(t, Tensor) and t.requires_grad for t in tensors)
    if recorded and out is None:
        joined: Tensor = _Joined.apply(dim, *tensors)  # type: ignore[no-untyped-call]
        return joined
    return _concat(tensors, dim, out=out)


def roll(
    input: Tensor,
    shifts: int | Sequence[int],
    dims: int | Sequence[int] | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Elements moved on along dims, one after the other; those that leave at the end come in again at the beginning.
    Without dims, input is rolled as if it had one dimension."""
    if has_torch_function_unary(input):
        return overridden(roll, (input,), input, shifts, dims, out=out)
    check_tensors("roll", input=input)
    by = [shifts] if isinstance(shifts, int) else list(shifts)
    along = [] if dims is None else [dims] if isinstance(dims, int) else list(dims)
    if not along and len(by) == 1:
        return roll(input.reshape(-1), by, 0, out=None if out is None else out.view(-1)).view(input.shape)
    if len(by) != len(along) or not by:
        raise ValueError(f"roll: shifts has {len(by)} numbers, but dims has {len(along)}")
    for shift, dim in zip(by[:-1], along[:-1], strict=True):
        input = _roll(input, shift, dim)
    return _roll(input, by[-1], along[-1], out=out)


_pad = _rows["pad"]


def pad(
    input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None, *, out: Tensor | None = None
) -> Tensor:
    """More elements before and behind, a pair of numbers for each dimension from the last on; negative ones cut. An
    empty dimension is padded with value in every mode. In mode 'circular' what is left after cutting goes round."""
    if has_torch_function_unary(input):
        return overridden(_public_pad, (input,), input, pad, mode, value, out=out)
    check_tensors("pad", input=input)
    if mode == "circular" and len(pad) <= 2 * input.ndim and any(n < 0 for n in pad):
        # The operator takes from the whole circle, also what is cut.
        for k, n in enumerate(pad):
            d = input.ndim - 1 - k // 2
            if input.shape[d] + n < 0:
                raise ValueError(f"pad: pad[{k}] is {n}, but dimension {d} has only {input.shape[d]} elements to cut")
            if n < 0:
                input = input.narrow(d, -n if k % 2 == 0 else 0, input.shape[d] + n)
        pad = [max(n, 0) for n in pad]
    return _pad(input, pad, mode, 0.0 if value is None else value, out=out)


_public_pad = pad  # the parameter has the function's name


def finish(function: Callable[..., Tensor]) -> None:
    """Users have it as tn.<name>, and so do graphs that torch.fx makes; its contract stands in the docstring."""
    name = function.__name__
    function.__module__ = "tenon.torch"
    _, _, contract = str(functions[name].__doc__).partition("Contract:\n")
    lines = contract.splitlines()
    if "out" not in inspect.signature(function).parameters:
        lines = [line for line in lines if not line.startswith("With out=")]
    about = f"torch.ops.tenon.{name} is the operator itself. Contract:"
    function.__doc__ = "\n".join([inspect.cleandoc(str(function.__doc__)), "", about, *lines])


# ---- looking up ------------------------------------------------------------------------------------------------------

_embedding, _gather, _index_select = _rows["embedding"], _rows["gather"], _rows["index_select"]
_scatter_add, _one_hot = _rows["scatter_add"], _rows["one_hot"]


def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Rows of weight, which input names. The row padding_idx gets no gradient; -1 is the last one.

    The gradient is dense, and has the same bits every time. On a GPU, an index that is out of range makes a row of NaN.
    """
    if has_torch_function_variadic(input, weight):
        given = (input, weight, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse)
        return overridden(embedding, (input, weight), *given)
    check_tensors("embedding", input=input, weight=weight)
    if max_norm is not None or scale_grad_by_freq or sparse:
        wish = "max_norm" if max_norm is not None else "scale_grad_by_freq" if scale_grad_by_freq else "sparse"
        raise NotImplementedError(f"embedding: there is no {wish}; torch.nn.functional.embedding has it")
    rows = weight.shape[0] if weight.ndim else 0
    if padding_idx is not None and not -rows <= padding_idx < rows:
        raise ValueError(f"embedding: padding_idx is {padding_idx}, must be from {-rows} to {rows - 1}")
    padding = -1 if padding_idx is None else padding_idx % rows
    return _embedding(weight, input, padding)


def index_select(input: Tensor, dim: int, index: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The parts of input along a dimension that the index names."""
    if has_torch_function_variadic(input, index):
        return overridden(index_select, (input, index), input, dim, index, out=out)
    check_tensors("index_select", input=input, index=index)
    if input.ndim == 0:  # as torch: as if there were one dimension
        return _index_select(input[None], index.reshape(-1), dim, out=None if out is None else out[None])[0]
    return _index_select(input, index.reshape(-1) if index.ndim == 0 else index, dim, out=out)


def _at_least_1d(tensor: Tensor) -> Tensor:
    """As torch takes a tensor without dimensions: as if it had one, of size 1."""
    return tensor[None] if tensor.ndim == 0 else tensor


def _cut(name: str, whole: Tensor, dim: int, index: Tensor) -> Tensor:
    """What of `whole` an index with smaller dimensions, which torch allows beside `dim`, reaches."""
    if whole.ndim != index.ndim:
        raise ValueError(f"{name}: index has rank {index.ndim}, must have that of input, {whole.ndim}")
    for d in range(whole.ndim):
        if d != dim % whole.ndim and index.shape[d] != whole.shape[d]:
            if index.shape[d] > whole.shape[d]:
                raise ValueError(f"{name}: index has {index.shape[d]} along dimension {d}, input {whole.shape[d]}")
            whole = whole.narrow(d, 0, index.shape[d])
    return whole


def gather(input: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False, out: Tensor | None = None) -> Tensor:
    """input[…, index[…, j, …], …] along a dimension, for each element of the index.

    The gradient has the same bits every time. On a GPU, an index that is out of range makes NaN, or 0 of integers.
    """
    if has_torch_function_variadic(input, index):
        return overridden(gather, (input, index), input, dim, index, sparse_grad=sparse_grad, out=out)
    check_tensors("gather", input=input, index=index)
    if sparse_grad:
        raise NotImplementedError("gather: there is no sparse_grad; torch.gather has it")
    whole = _at_least_1d(input)
    if index.ndim == 0 and whole.ndim == 1:
        return _gather(whole, index[None], dim, out=None if out is None else out[None])[0]
    other = index.ndim != whole.ndim or index.dtype not in (torch.int64, torch.int32)
    if other and index.numel() == 0:  # torch takes any that has no elements
        into = None if out is None else out.view(-1)
        return _gather(whole.reshape(-1), index.reshape(-1).long(), 0, out=into).view(index.shape)
    return _gather(_cut("gather", whole, dim, index), index, dim, out=out)


def scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor, *, out: Tensor | None = None) -> Tensor:
    """input, with src added at index along a dimension: in a fixed order, so with the same bits every time.

    On a GPU, what has an index that is out of range is left out.
    """
    if has_torch_function_variadic(input, index, src):
        return overridden(scatter_add, (input, index, src), input, dim, index, src, out=out)
    check_tensors("scatter_add", input=input, index=index, src=src)
    if input.ndim == 0:
        into = None if out is None else out[None]
        return scatter_add(input[None], dim, _at_least_1d(index), _at_least_1d(src), out=into)[0]
    if input.ndim == 1:
        index, src = _at_least_1d(index), _at_least_1d(src)
    if src.shape != index.shape:
        for d in range(min(src.ndim, index.ndim)):
            if src.ndim == index.ndim and index.shape[d] <= src.shape[d]:
                src = src.narrow(d, 0, index.shape[d])
    part = _cut("scatter_add", input, dim, index)
    if part.shape == input.shape:
        return _scatter_add(input, index, src, dim, out=out)
    places = tuple(slice(0, n) for n in part.shape)
    result = input.clone() if out is None else out.copy_(input)
    result[places] = _scatter_add(part, index, src, dim)
    return result


def one_hot(
    input: Tensor, num_classes: int = -1, *, dtype: torch.dtype = torch.int64, out: Tensor | None = None
) -> Tensor:
    """A row of num_classes zeros for each index, with a one at its place; -1: as many as the largest index needs."""
    if has_torch_function_unary(input):
        return overridden(one_hot, (input,), input, num_classes, dtype=dtype, out=out)
    check_tensors("one_hot", input=input)
    if num_classes == -1:
        if input.numel() == 0:
            raise ValueError("one_hot: num_classes is needed where input has no elements")
        num_classes = int(input.max().item()) + 1
    return _one_hot(input, num_classes, dtype, out=out)


for _name in __all__:
    finish(globals()[_name])
