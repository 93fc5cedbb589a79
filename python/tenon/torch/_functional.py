"""Functions that share their name with one of torch's: they take its arguments, in its order, and give its results.

Most are written from the table alone, by the names that `TorchFunction` of _frameworks.py gives to their parameters.
Here are those that take more than their contract does, or in another order. What an operator has beyond torch's, such
as the mask of softmax, is behind the star and by name.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function_unary, has_torch_function_variadic

from tenon.torch._fuse import fused_op
from tenon.torch._ops import torch_op
from tenon.torch._public import functions, in_place, make_public
from tenon.torch._seeds import draw

__all__ = [
    "add",
    "batch_norm",
    "clamp",
    "cosine_similarity",
    "div",
    "dropout",
    "gelu",
    "layer_norm",
    "pow",
    "prelu",
    "rms_norm",
    "scale_bias_relu",
    "softmax",
    "softplus",
    "sub",
    "sum",
]

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


def overridden(function: Callable[..., Tensor], tensors: Sequence[Any], *args: Any, **named: Any) -> Tensor:
    """A call with what stands for a tensor, such as what torch.fx traces with: that sees the function."""
    result: Tensor = handle_torch_function(function, tensors, *args, **named)
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


def _one_spelling(name: str, ours: str, given: Any, default: Any, other: str, value: Any) -> Any:
    """torch's name of a parameter or NumPy's, of which one is given."""
    if value is None:
        return given
    if given != default:
        raise TypeError(f"{name}: {ours} and {other} are the same, only one can be given")
    return value


_sum = _rows["sum"]


def sum(
    input: Tensor,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
    axis: int | Sequence[int] | None = None,
    keepdims: bool | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """The sum over some dimensions; without dim, over all. axis and keepdims are NumPy's names of dim and keepdim."""
    dim = _one_spelling("sum", "dim", dim, None, "axis", axis)
    keepdim = _one_spelling("sum", "keepdim", keepdim, False, "keepdims", keepdims)
    if has_torch_function_unary(input):
        return overridden(sum, (input,), input, dim, keepdim, dtype=dtype, out=out)
    check_tensors("sum", input=input)
    if dtype is not None:
        input = input.to(dtype)
    if input.ndim == 0 and dim in (0, -1, (0,), (-1,), [0], [-1]):  # as torch: as if there were one
        dim = None
    return _sum(input, () if dim is None else dim, keepdim, out=out)


_softmax = _rows["softmax"]


def softmax(
    input: Tensor,
    dim: int = -1,
    *,
    dtype: torch.dtype | None = None,
    mask: Tensor | None = None,
    scale: float = 1.0,
    causal: bool = False,
    axis: int | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """exp(scale * input), normalised along a dimension, which is the last where it is not given.

    Where mask is False, an element is taken out; a row without any is 0. causal takes out what lies after the
    diagonal: query i of q sees the keys up to i + (k - q) of k, so that the last query sees all keys, and with more
    queries than keys the first q - k rows are 0. axis is NumPy's name of dim.
    """
    if axis is not None:
        dim = _one_spelling("softmax", "dim", dim, -1, "axis", axis)
    if dtype is not None:
        input = input.to(dtype)
    if input.__class__ is Tensor and input.ndim == 0:  # as torch: as if there were one dimension
        return _softmax(input[None], mask, dim, scale, causal, out=None if out is None else out[None])[0]
    return _softmax(input, mask, dim, scale, causal, out=out)


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
    check_tensors("batch_norm", input=input)
    if input.ndim < 2:
        raise ValueError(f"batch_norm: input has shape {list(input.shape)}, needs a dimension of channels: [n, c, …]")
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


for _name in __all__:
    finish(globals()[_name])
