# Written by tools/stubs.py from the operator table: do not edit.
from collections.abc import Sequence
from typing import Any

from jax import Array

def softmax(x: Array, mask: Array | None = None, axis: int = -1, scale: float = 1.0, causal: bool = False) -> Array:
    """exp(scale * x), normalised along an axis; a false mask, or with causal a key after its query, takes
    an element out, and a row without any is 0.

    Contract:
        softmax(x: T[*s], mask: bool[~*s]?, axis: axis = -1, scale: float = 1.0, causal: bool = false)
            -> y: T[*s] where not causal or (rank(*s) >= 2 and axis == rank(*s) - 1)

    Returns y.
    """

def softmax_grad(y: Array, dy: Array, axis: int = -1, scale: float = 1.0) -> Array:
    """The gradient of softmax, from its output.

    Contract:
        softmax_grad(y: T[*s], dy: T[*s], axis: axis = -1, scale: float = 1.0) -> dx: T[*s]

    Returns dx.
    It has no gradient: differentiating through it raises NotImplementedError.
    """

def layer_norm(x: Array, gamma: Array | None = None, beta: Array | None = None, eps: float = 1e-05) -> Array:
    """Normalises the last dimension to mean 0 and variance 1, then times gamma, plus beta.

    Contract:
        layer_norm(x: T[*r, c], gamma: W[c]?, beta: W[c]?, eps: float = 1e-5) -> y: T[*r, c], mean:
            acc(T)[*r], rstd: acc(T)[*r]

    Returns y.
    """

def layer_norm_grad(
    x: Array,
    gamma: Array | None = None,
    beta: Array | None = None,
    mean: Array = ...,
    rstd: Array = ...,
    dy: Array = ...,
    want_dx: bool = False,
    want_dgamma: bool = False,
    want_dbeta: bool = False,
) -> Array | tuple[Array, ...]:
    """The gradients of layer_norm that are asked for.

    Contract:
        layer_norm_grad(x: T[*r, c], gamma: W[c]?, beta: W[c]?, mean: acc(T)[*r], rstd: acc(T)[*r], dy:
            T[*r, c]) -> dx: T[*r, c]?, dgamma: W[c]?, dbeta: W[c]?

    Returns dx, dgamma, dbeta.
    Only when asked for (want_<name>=True): dx, dgamma, dbeta.
    It has no gradient: differentiating through it raises NotImplementedError.
    """

def cross_entropy(
    x: Array,
    target: Array,
    weight: Array | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    reduction: str = "mean",
) -> Array:
    """The cross entropy of logits x with class indices, plus z_loss * lse^2 per row; gradient in the same
    pass.

    Contract:
        cross_entropy(x: T[*r, v], target: i32|i64[*r], weight: f32[v]?, ignore_index: int = -100,
            label_smoothing: float = 0.0, z_loss: float = 0.0, reduction: 'mean'|'sum'|'none' = 'mean')
            -> loss: acc(T)[*r if reduction == 'none' else], lse: acc(T)[*r], gx: T[*r, v]?grad where
            label_smoothing >= 0, label_smoothing <= 1

    Returns loss.
    """

def cross_entropy_grad(gx: Array, dloss: Array, reduction: str = "mean") -> Array:
    """The gradient of cross_entropy: gx times what arrives at the loss.

    Contract:
        cross_entropy_grad(gx: T[*r, v], dloss: acc(T)[*r if reduction == 'none' else], reduction:
            'mean'|'sum'|'none' = 'mean') -> dx: T[*r, v]

    Returns dx.
    It has no gradient: differentiating through it raises NotImplementedError.
    """

def sum(x: Array, axes: int | Sequence[int] = (), keepdim: bool = False) -> Array:
    """The sum over some axes; [] is all of them.

    Contract:
        sum(x: T[*s], axes: axes = [], keepdim: bool = false) -> y: T[reduce(*s, axes, keepdim)]

    Returns y.
    """

def sum_grad(dy: Array, shape: Sequence[int], axes: int | Sequence[int] = (), keepdim: bool = False) -> Array:
    """The gradient of sum: dy, repeated along the axes that were summed.

    Contract:
        sum_grad(dy: T[reduce(*shape, axes, keepdim)], shape: ints, axes: axes = [], keepdim: bool =
            false) -> dx: T[*shape]

    Returns dx.
    """

def batch_norm(
    x: Array,
    gamma: Array | None = None,
    beta: Array | None = None,
    running_mean: Array = ...,
    running_var: Array = ...,
    residual: Array | None = None,
    momentum: float = 0.1,
    eps: float = 1e-05,
    act: str = "none",
) -> tuple[Array, ...]:
    """In training: normalises each channel over the batch, times gamma, plus beta, plus residual, then
    act; moves the running statistics.

    Contract:
        batch_norm(x: T[n, c, *s], gamma: W[c]?, beta: W[c]?, running_mean: f32[c]!, running_var:
            f32[c]!, residual: T[n, c, *s]?, momentum: float = 0.1, eps: float = 1e-5, act: activation =
            'none') -> y: T[n, c, *s], mean: acc(T)[c], rstd: acc(T)[c], z: T[n, c, *s if act != 'none'
            and act != 'relu' else 0]

    Returns y, running_mean, running_var, as updated: no array is written to.
    """

def batch_norm_grad(
    x: Array,
    gamma: Array | None = None,
    beta: Array | None = None,
    residual: Array | None = None,
    mean: Array = ...,
    rstd: Array = ...,
    dy: Array = ...,
    z: Array | None = None,
    act: str = "none",
    want_dx: bool = False,
    want_dgamma: bool = False,
    want_dbeta: bool = False,
    want_dresidual: bool = False,
) -> Array | tuple[Array, ...]:
    """The gradients of batch_norm that are asked for; what relu cut off is computed again, other
    activations need z, the values before them.

    Contract:
        batch_norm_grad(x: T[n, c, *s], gamma: W[c]?, beta: W[c]?, residual: T[n, c, *s]?, mean:
            acc(T)[c], rstd: acc(T)[c], dy: T[n, c, *s], z: T[n, c, *s if act != 'none' and act !=
            'relu' else 0]?, act: activation = 'none') -> dx: T[n, c, *s]?, dgamma: W[c]?, dbeta: W[c]?,
            dresidual: T[n, c, *s]?

    Returns dx, dgamma, dbeta, dresidual.
    Only when asked for (want_<name>=True): dx, dgamma, dbeta, dresidual.
    It has no gradient: differentiating through it raises NotImplementedError.
    """

def fake_quantize(x: Array, scale: Array, zero: Array | None = None, low: int = -128, high: int = 127) -> Array:
    """x as it is after quantize and dequantize, per tensor or per channel by the shape of scale; the
    gradient passes where nothing was cut off.

    Contract:
        fake_quantize(x: T[*s], scale: f32[~*s], zero: i32[~*s]?, low: int = -128, high: int = 127) ->
            y: T[*s]

    Returns y.
    """

def identity(x: Array) -> Array:
    """x.

    Contract:
        identity(x: T[*s]) -> y: T[*s]

    Returns y.
    """

def add(x: Array, y: Array) -> Array:
    """x + y.

    Contract:
        add(x: T[~*s], y: T[~*s]) -> z: T[*s]

    Returns z.
    """

def sub(x: Array, y: Array) -> Array:
    """x - y.

    Contract:
        sub(x: T[~*s], y: T[~*s]) -> z: T[*s]

    Returns z.
    """

def mul(x: Array, y: Array) -> Array:
    """x * y.

    Contract:
        mul(x: T[~*s], y: T[~*s]) -> z: T[*s]

    Returns z.
    """

def div(x: Array, y: Array) -> Array:
    """x / y.

    Contract:
        div(x: T[~*s], y: T[~*s]) -> z: T[*s]

    Returns z.
    """

def add_constant(x: Array, c: float) -> Array:
    """x + c.

    Contract:
        add_constant(x: T[*s], c: float) -> y: T[*s]

    Returns y.
    """

def scale(x: Array, c: float) -> Array:
    """x * c.

    Contract:
        scale(x: T[*s], c: float) -> y: T[*s]

    Returns y.
    """

def scale_bias_relu(x: Array, scale: Array, bias: Array) -> Array:
    """relu(x * scale + bias).

    Contract:
        scale_bias_relu(x: T[*s], scale: T[~*s], bias: T[~*s]) -> y: T[*s]

    Returns y.
    """

def bias_act(x: Array, bias: Array, act: str = "relu") -> Array:
    """act(x + bias).

    Contract:
        bias_act(x: T[*r, c], bias: T[c], act: activation = 'relu') -> y: T[*r, c]

    Returns y.
    """

def square(x: Array) -> Array:
    """x * x.

    Contract:
        square(x: T[*s]) -> y: T[*s]

    Returns y.
    """

def sqrt(x: Array) -> Array:
    """The square root.

    Contract:
        sqrt(x: T[*s]) -> y: T[*s]

    Returns y.
    """

def rsqrt(x: Array) -> Array:
    """1 / sqrt(x).

    Contract:
        rsqrt(x: T[*s]) -> y: T[*s]

    Returns y.
    """

def exp(x: Array) -> Array:
    """e to the power of x.

    Contract:
        exp(x: T[*s]) -> y: T[*s]

    Returns y.
    """

def log(x: Array) -> Array:
    """The natural logarithm.

    Contract:
        log(x: T[*s]) -> y: T[*s]

    Returns y.
    """

def abs(x: Array) -> Array:
    """|x|; the gradient at 0 is 0.

    Contract:
        abs(x: T[*s]) -> y: T[*s]

    Returns y.
    """

def sign(x: Array) -> Array:
    """-1, 0 or 1.

    Contract:
        sign(x: T[*s]) -> y: T[*s]

    Returns y.
    """

def floor(x: Array) -> Array:
    """The next integer below.

    Contract:
        floor(x: T[*s]) -> y: T[*s]

    Returns y.
    """

def clamp(x: Array, low: float | None = None, high: float | None = None) -> Array:
    """x, but at least low and at most high.

    Contract:
        clamp(x: T[*s], low: float?, high: float?) -> y: T[*s]

    Returns y.
    """

def pow(x: Array, exponent: float) -> Array:
    """x to the power of exponent.

    Contract:
        pow(x: T[*s], exponent: float) -> y: T[*s]

    Returns y.
    """

def lerp(x: Array, end: Array, weight: Array) -> Array:
    """From x (weight 0) to end (weight 1).

    Contract:
        lerp(x: T[~*s], end: T[~*s], weight: T[~*s]) -> y: T[*s]

    Returns y.
    """

def relu(x: Array) -> Array:
    """max(x, 0); the gradient at 0 is 0.

    Contract:
        relu(x: T[*s]) -> y: T[*s]

    Returns y.
    """

def leaky_relu(x: Array, slope: float = 0.01) -> Array:
    """x, or slope * x below 0.

    Contract:
        leaky_relu(x: T[*s], slope: float = 0.01) -> y: T[*s]

    Returns y.
    """

def prelu(x: Array, slope: Array) -> Array:
    """x, or slope * x below 0, with a slope for each channel.

    Contract:
        prelu(x: T[n, c, *s], slope: T[c]) -> y: T[n, c, *s]

    Returns y.
    """

def elu(x: Array, alpha: float = 1.0) -> Array:
    """x, or alpha * (exp(x) - 1) below 0.

    Contract:
        elu(x: T[*s], alpha: float = 1.0) -> y: T[*s]

    Returns y.
    """

def celu(x: Array, alpha: float = 1.0) -> Array:
    """x, or alpha * (exp(x / alpha) - 1) below 0.

    Contract:
        celu(x: T[*s], alpha: float = 1.0) -> y: T[*s] where alpha != 0

    Returns y.
    """

def selu(x: Array) -> Array:
    """The ELU that keeps mean 0 and variance 1.

    Contract:
        selu(x: T[*s]) -> y: T[*s]

    Returns y.
    """

def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)).

    Contract:
        sigmoid(x: T[*s]) -> y: T[*s]

    Returns y.
    """

def log_sigmoid(x: Array) -> Array:
    """log(sigmoid(x)).

    Contract:
        log_sigmoid(x: T[*s]) -> y: T[*s]

    Returns y.
    """

def hard_sigmoid(x: Array) -> Array:
    """clamp(x / 6 + 0.5, 0, 1); the gradient at -3 and 3 is 0.

    Contract:
        hard_sigmoid(x: T[*s]) -> y: T[*s]

    Returns y.
    """

def tanh(x: Array) -> Array:
    """The hyperbolic tangent.

    Contract:
        tanh(x: T[*s]) -> y: T[*s]

    Returns y.
    """

def softplus(x: Array, beta: float = 1.0) -> Array:
    """log(1 + exp(beta * x)) / beta.

    Contract:
        softplus(x: T[*s], beta: float = 1.0) -> y: T[*s]

    Returns y.
    """

def softsign(x: Array) -> Array:
    """x / (1 + |x|).

    Contract:
        softsign(x: T[*s]) -> y: T[*s]

    Returns y.
    """

def gelu(x: Array) -> Array:
    """x times the normal distribution's probability below x.

    Contract:
        gelu(x: T[*s]) -> y: T[*s]

    Returns y.
    """

def gelu_tanh(x: Array) -> Array:
    """gelu, approximated with tanh.

    Contract:
        gelu_tanh(x: T[*s]) -> y: T[*s]

    Returns y.
    """

def quick_gelu(x: Array) -> Array:
    """x * sigmoid(1.702 * x).

    Contract:
        quick_gelu(x: T[*s]) -> y: T[*s]

    Returns y.
    """

def silu(x: Array) -> Array:
    """x * sigmoid(x).

    Contract:
        silu(x: T[*s]) -> y: T[*s]

    Returns y.
    """

def hard_swish(x: Array) -> Array:
    """x * hard_sigmoid(x).

    Contract:
        hard_swish(x: T[*s]) -> y: T[*s]

    Returns y.
    """

def mish(x: Array) -> Array:
    """x * tanh(softplus(x)).

    Contract:
        mish(x: T[*s]) -> y: T[*s]

    Returns y.
    """

def swiglu(x: Array, gate: Array) -> Array:
    """silu(gate) * x.

    Contract:
        swiglu(x: T[*s], gate: T[*s]) -> y: T[*s]

    Returns y.
    """

def geglu(x: Array, gate: Array) -> Array:
    """gelu(gate) * x.

    Contract:
        geglu(x: T[*s], gate: T[*s]) -> y: T[*s]

    Returns y.
    """

def reglu(x: Array, gate: Array) -> Array:
    """relu(gate) * x.

    Contract:
        reglu(x: T[*s], gate: T[*s]) -> y: T[*s]

    Returns y.
    """

def dropout(x: Array, seed: Array, p: float = 0.5) -> Array:
    """Elements are 0 with probability p, the others grow by 1 / (1 - p); the same seed gives the same
    mask.

    Contract:
        dropout(x: T[*s], seed: i64[2], p: float = 0.5) -> y: T[*s] where p >= 0, p <= 1

    Returns y.
    """

def bias_dropout_add(
    x: Array, bias: Array | None = None, residual: Array = ..., seed: Array = ..., p: float = 0.5
) -> Array:
    """residual + dropout(x + bias).

    Contract:
        bias_dropout_add(x: T[*r, c], bias: T[c]?, residual: T[*r, c], seed: i64[2], p: float = 0.5) ->
            y: T[*r, c] where p >= 0, p <= 1

    Returns y.
    """

def residual_scale(x: Array, residual: Array, scale: Array) -> Array:
    """residual + x * scale.

    Contract:
        residual_scale(x: T[*s], residual: T[*s], scale: T[~*s]) -> y: T[*s]

    Returns y.
    """

def rms_norm(x: Array, gamma: Array | None = None, eps: float = 1e-06, zero_centered: bool = False) -> Array:
    """x over the root of its mean square along the last dimension, times gamma or 1 + gamma.

    Contract:
        rms_norm(x: T[*r, c], gamma: W[c]?, eps: float = 1e-6, zero_centered: bool = false) -> y: T[*r,
            c]

    Returns y.
    """

def batch_norm_infer(
    x: Array,
    mean: Array,
    var: Array,
    gamma: Array | None = None,
    beta: Array | None = None,
    residual: Array | None = None,
    eps: float = 1e-05,
    act: str = "none",
) -> Array:
    """batch_norm as it is once it has been trained: with the statistics given, plus residual, then act.

    Contract:
        batch_norm_infer(x: T[n, c, *s], mean: M[c], var: M[c], gamma: W[c]?, beta: W[c]?, residual:
            T[n, c, *s]?, eps: float = 1e-5, act: activation = 'none') -> y: T[n, c, *s]

    Returns y.
    """

def mse(x: Array, target: Array, reduction: str = "mean") -> Array:
    """The mean of (x - target) ** 2.

    Contract:
        mse(x: T[*s], target: T[*s], reduction: 'mean'|'sum' = 'mean') -> loss: acc(T)[]

    Returns loss.
    """

def l1(x: Array, target: Array, reduction: str = "mean") -> Array:
    """The mean of |x - target|.

    Contract:
        l1(x: T[*s], target: T[*s], reduction: 'mean'|'sum' = 'mean') -> loss: acc(T)[]

    Returns loss.
    """

def huber(x: Array, target: Array, reduction: str = "mean", delta: float = 1.0) -> Array:
    """The mean of a square up to a difference of delta, and of a straight line from there on.

    Contract:
        huber(x: T[*s], target: T[*s], reduction: 'mean'|'sum' = 'mean', delta: float = 1.0) -> loss:
            acc(T)[] where delta > 0

    Returns loss.
    """

def bce_with_logits(x: Array, target: Array, reduction: str = "mean") -> Array:
    """Binary cross-entropy of sigmoid(x) and target.

    Contract:
        bce_with_logits(x: T[*s], target: T[*s], reduction: 'mean'|'sum' = 'mean') -> loss: acc(T)[]

    Returns loss.
    """

def focal(x: Array, target: Array, reduction: str = "mean", alpha: float = 0.25, gamma: float = 2.0) -> Array:
    """bce_with_logits, times (1 - the probability of what is right) ** gamma.

    Contract:
        focal(x: T[*s], target: T[*s], reduction: 'mean'|'sum' = 'mean', alpha: float = 0.25, gamma:
            float = 2.0) -> loss: acc(T)[]

    Returns loss.
    """

def kl_div(x: Array, target: Array, reduction: str = "mean") -> Array:
    """Kullback-Leibler divergence of the logarithms x from the probabilities target.

    Contract:
        kl_div(x: T[*s], target: T[*s], reduction: 'mean'|'sum' = 'mean') -> loss: acc(T)[]

    Returns loss.
    """

def cosine_similarity(x: Array, y: Array, eps: float = 1e-08) -> Array:
    """The cosine of the angle between the rows of x and y, whose norms count as eps at least.

    Contract:
        cosine_similarity(x: T[*r, c], y: T[*r, c], eps: float = 1e-8) -> z: T[*r]

    Returns z.
    """

def sgd_step(
    p: Array,
    g: Array,
    m: Array,
    lr: Array | float,
    momentum: float = 0.9,
    dampening: float = 0.0,
    weight_decay: float = 0.0,
    nesterov: bool = False,
) -> tuple[Array, ...]:
    """A step of gradient descent with momentum, in place.

    Contract:
        sgd_step(p: T[*s]!, g: G[*s], m: acc(T)[*s]!, lr: acc(T)[], momentum: float = 0.9, dampening:
            float = 0.0, weight_decay: float = 0.0, nesterov: bool = false)

    Returns p, m, as updated: no array is written to.
    It has no gradient: differentiating through it raises NotImplementedError.
    """

def adamw_step(
    p: Array,
    g: Array,
    m: Array,
    v: Array,
    master: Array | None = None,
    lr: Array | float = ...,
    step: Array | float = ...,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-08,
    weight_decay: float = 0.01,
) -> tuple[Array, ...]:
    """A step of AdamW, the first being step 1, in place; with master, p is that rounded.

    Contract:
        adamw_step(p: T[*s]!, g: G[*s], m: acc(T)[*s]!, v: acc(T)[*s]!, master: acc(T)[*s]!?, lr:
            acc(T)[], step: acc(T)[], beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8,
            weight_decay: float = 0.01)

    Returns p, m, v, master, as updated: no array is written to. One that was not given is left out.
    It has no gradient: differentiating through it raises NotImplementedError.
    """

def sgd_step_list(
    p: Sequence[Array],
    g: Sequence[Array],
    m: Sequence[Array],
    lr: Array | float,
    momentum: float = 0.9,
    dampening: float = 0.0,
    weight_decay: float = 0.0,
    nesterov: bool = False,
) -> tuple[Any, ...]:
    """sgd_step for each tensor of the lists, in few launches.

    Contract:
        sgd_step_list(p: [T[*s]]!, g: [G[*s]], m: [acc(T)[*s]]!, lr: acc(T)[], momentum: float = 0.9,
            dampening: float = 0.0, weight_decay: float = 0.0, nesterov: bool = false)

    Returns p, m, as updated: no array is written to.
    It has no gradient: differentiating through it raises NotImplementedError.
    """

def adamw_step_list(
    p: Sequence[Array],
    g: Sequence[Array],
    m: Sequence[Array],
    v: Sequence[Array],
    master: Sequence[Array] | None = None,
    lr: Array | float = ...,
    step: Array | float = ...,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-08,
    weight_decay: float = 0.01,
) -> tuple[Any, ...]:
    """adamw_step for each tensor of the lists, in few launches.

    Contract:
        adamw_step_list(p: [T[*s]]!, g: [G[*s]], m: [acc(T)[*s]]!, v: [acc(T)[*s]]!, master:
            [acc(T)[*s]]!?, lr: acc(T)[], step: acc(T)[], beta1: float = 0.9, beta2: float = 0.999, eps:
            float = 1e-8, weight_decay: float = 0.01)

    Returns p, m, v, master, as updated: no array is written to. One that was not given is left out.
    It has no gradient: differentiating through it raises NotImplementedError.
    """

def clip_grad_norm(g: Sequence[Array], max_norm: Array | float) -> tuple[Any, ...]:
    """The norm of all gradients together; where it is larger than max_norm, all are scaled down to that,
    in place.

    Contract:
        clip_grad_norm(g: [T[*s]]!, max_norm: acc(T)[]) -> norm: acc(T)[]

    Returns norm, g, as updated: no array is written to.
    It has no gradient: differentiating through it raises NotImplementedError.
    """

def quantize(x: Array, scale: Array, zero: Array | None = None) -> Array:
    """x / scale + zero, rounded to the nearest 8-bit integer.

    Contract:
        quantize(x: T[*s], scale: f32[~*s], zero: i32[~*s]?) -> q: i8[*s]

    Returns q.
    """

def fake_quantize_grad(
    x: Array, scale: Array, zero: Array | None = None, dy: Array = ..., low: int = -128, high: int = 127
) -> Array:
    """The gradient of fake_quantize: dy where nothing was cut off.

    Contract:
        fake_quantize_grad(x: T[*s], scale: f32[~*s], zero: i32[~*s]?, dy: T[*s], low: int = -128, high:
            int = 127) -> dx: T[*s]

    Returns dx.
    """

def dequantize(q: Array, scale: Array, zero: Array | None = None) -> Array:
    """(q - zero) * scale, in the type of scale.

    Contract:
        dequantize(q: i8[*s], scale: T[~*s], zero: i32[~*s]?) -> y: T[*s]

    Returns y.
    """
