# Written by tools/stubs.py from the operator table: do not edit.
from collections.abc import Sequence

from torch import Tensor

from tenon.torch._param import Param

def softmax(
    x: Tensor,
    mask: Tensor | None = None,
    axis: int = -1,
    scale: float = 1.0,
    causal: bool = False,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """exp(scale * x), normalised along an axis; a false mask, or with causal a key after its query, takes
    an element out, and a row without any is 0.

    Contract:
        softmax(x: T[*s], mask: bool[~*s]?, axis: axis = -1, scale: float = 1.0, causal: bool = false)
            -> y: T[*s] where not causal or (rank(*s) >= 2 and axis == rank(*s) - 1)

    Returns y.
    With out=tensor the result is written there; nothing can then be differentiated.
    """

def softmax_grad(y: Tensor, dy: Tensor, axis: int = -1, scale: float = 1.0, *, out: Tensor | None = None) -> Tensor:
    """The gradient of softmax, from its output.

    Contract:
        softmax_grad(y: T[*s], dy: T[*s], axis: axis = -1, scale: float = 1.0) -> dx: T[*s]

    Returns dx.
    With out=tensor the result is written there; nothing can then be differentiated.
    It has no gradient: differentiating through it raises NotImplementedError.
    """

def layer_norm(
    x: Tensor, gamma: Tensor | None = None, beta: Tensor | None = None, eps: float = 1e-05, *, out: Tensor | None = None
) -> Tensor:
    """Normalises the last dimension to mean 0 and variance 1, then times gamma, plus beta.

    Contract:
        layer_norm(x: T[*r, c], gamma: W[c]?, beta: W[c]?, eps: float = 1e-5) -> y: T[*r, c], mean:
            acc(T)[*r], rstd: acc(T)[*r]

    Returns y. torch.ops.tenon.layer_norm returns y, mean, rstd.
    With out=tensor the result is written there; nothing can then be differentiated.
    """

def layer_norm_grad(
    x: Tensor,
    gamma: Tensor | None = None,
    beta: Tensor | None = None,
    mean: Tensor = ...,
    rstd: Tensor = ...,
    dy: Tensor = ...,
    want_dx: bool = False,
    want_dgamma: bool = False,
    want_dbeta: bool = False,
) -> Tensor | tuple[Tensor, ...]:
    """The gradients of layer_norm that are asked for.

    Contract:
        layer_norm_grad(x: T[*r, c], gamma: W[c]?, beta: W[c]?, mean: acc(T)[*r], rstd: acc(T)[*r], dy:
            T[*r, c]) -> dx: T[*r, c]?, dgamma: W[c]?, dbeta: W[c]?

    Returns dx, dgamma, dbeta.
    Only when asked for (want_<name>=True): dx, dgamma, dbeta.
    It has no gradient: differentiating through it raises NotImplementedError.
    """

def cross_entropy(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    reduction: str = "mean",
    *,
    out: Tensor | None = None,
) -> Tensor:
    """The cross entropy of logits x with class indices, plus z_loss * lse^2 per row; gradient in the same
    pass.

    Contract:
        cross_entropy(x: T[*r, v], target: i32|i64[*r], weight: f32[v]?, ignore_index: int = -100,
            label_smoothing: float = 0.0, z_loss: float = 0.0, reduction: 'mean'|'sum'|'none' = 'mean')
            -> loss: acc(T)[*r if reduction == 'none' else], lse: acc(T)[*r], gx: T[*r, v]?grad where
            label_smoothing >= 0, label_smoothing <= 1

    Returns loss. torch.ops.tenon.cross_entropy returns loss, lse, gx?.
    With out=tensor the result is written there; nothing can then be differentiated.
    """

def cross_entropy_grad(gx: Tensor, dloss: Tensor, reduction: str = "mean", *, out: Tensor | None = None) -> Tensor:
    """The gradient of cross_entropy: gx times what arrives at the loss.

    Contract:
        cross_entropy_grad(gx: T[*r, v], dloss: acc(T)[*r if reduction == 'none' else], reduction:
            'mean'|'sum'|'none' = 'mean') -> dx: T[*r, v]

    Returns dx.
    With out=tensor the result is written there; nothing can then be differentiated.
    It has no gradient: differentiating through it raises NotImplementedError.
    """

def sum(x: Tensor, axes: int | Sequence[int] = (), keepdim: bool = False, *, out: Tensor | None = None) -> Tensor:
    """The sum over some axes; [] is all of them.

    Contract:
        sum(x: T[*s], axes: axes = [], keepdim: bool = false) -> y: T[reduce(*s, axes, keepdim)]

    Returns y.
    With out=tensor the result is written there; nothing can then be differentiated.
    """

def sum_grad(
    dy: Tensor,
    shape: Sequence[int],
    axes: int | Sequence[int] = (),
    keepdim: bool = False,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """The gradient of sum: dy, repeated along the axes that were summed.

    Contract:
        sum_grad(dy: T[reduce(*shape, axes, keepdim)], shape: ints, axes: axes = [], keepdim: bool =
            false) -> dx: T[*shape]

    Returns dx.
    With out=tensor the result is written there; nothing can then be differentiated.
    """

def batch_norm(
    x: Tensor,
    gamma: Tensor | None = None,
    beta: Tensor | None = None,
    running_mean: Tensor = ...,
    running_var: Tensor = ...,
    residual: Tensor | None = None,
    momentum: float = 0.1,
    eps: float = 1e-05,
    act: str = "none",
) -> Tensor:
    """In training: normalises each channel over the batch, times gamma, plus beta, plus residual, then
    act; moves the running statistics.

    Contract:
        batch_norm(x: T[n, c, *s], gamma: W[c]?, beta: W[c]?, running_mean: f32[c]!, running_var:
            f32[c]!, residual: T[n, c, *s]?, momentum: float = 0.1, eps: float = 1e-5, act: activation =
            'none') -> y: T[n, c, *s], mean: acc(T)[c], rstd: acc(T)[c], z: T[n, c, *s if act != 'none'
            and act != 'relu' else 0]

    Updates running_mean, running_var in place. Returns y. torch.ops.tenon.batch_norm returns y, mean, rstd, z.
    """

def batch_norm_grad(
    x: Tensor,
    gamma: Tensor | None = None,
    beta: Tensor | None = None,
    residual: Tensor | None = None,
    mean: Tensor = ...,
    rstd: Tensor = ...,
    dy: Tensor = ...,
    z: Tensor | None = None,
    act: str = "none",
    want_dx: bool = False,
    want_dgamma: bool = False,
    want_dbeta: bool = False,
    want_dresidual: bool = False,
) -> Tensor | tuple[Tensor, ...]:
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

def fake_quantize(
    x: Tensor, scale: Tensor, zero: Tensor | None = None, low: int = -128, high: int = 127, *, out: Tensor | None = None
) -> Tensor:
    """x as it is after quantize and dequantize, per tensor or per channel by the shape of scale; the
    gradient passes where nothing was cut off.

    Contract:
        fake_quantize(x: T[*s], scale: f32[~*s], zero: i32[~*s]?, low: int = -128, high: int = 127) ->
            y: T[*s]

    Returns y.
    With out=tensor the result is written there; nothing can then be differentiated.
    """

def identity(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """x.

    Contract:
        identity(x: T[*s]) -> y: T[*s]

    Returns y.
    With out=tensor the result is written there; nothing can then be differentiated.
    """

def add(x: Tensor, y: Tensor, *, out: Tensor | None = None) -> Tensor:
    """x + y.

    Contract:
        add(x: T[~*s], y: T[~*s]) -> z: T[*s]

    Returns z.
    With out=tensor the result is written there; nothing can then be differentiated.
    """

def sub(x: Tensor, y: Tensor, *, out: Tensor | None = None) -> Tensor:
    """x - y.

    Contract:
        sub(x: T[~*s], y: T[~*s]) -> z: T[*s]

    Returns z.
    With out=tensor the result is written there; nothing can then be differentiated.
    """

def mul(x: Tensor, y: Tensor, *, out: Tensor | None = None) -> Tensor:
    """x * y.

    Contract:
        mul(x: T[~*s], y: T[~*s]) -> z: T[*s]

    Returns z.
    With out=tensor the result is written there; nothing can then be differentiated.
    """

def div(x: Tensor, y: Tensor, *, out: Tensor | None = None) -> Tensor:
    """x / y.

    Contract:
        div(x: T[~*s], y: T[~*s]) -> z: T[*s]

    Returns z.
    With out=tensor the result is written there; nothing can then be differentiated.
    """

def add_constant(x: Tensor, c: float, *, out: Tensor | None = None) -> Tensor:
    """x + c.

    Contract:
        add_constant(x: T[*s], c: float) -> y: T[*s]

    Returns y.
    With out=tensor the result is written there; nothing can then be differentiated.
    """

def scale(x: Tensor, c: float, *, out: Tensor | None = None) -> Tensor:
    """x * c.

    Contract:
        scale(x: T[*s], c: float) -> y: T[*s]

    Returns y.
    With out=tensor the result is written there; nothing can then be differentiated.
    """

def scale_bias_relu(x: Tensor, scale: Tensor, bias: Tensor, *, out: Tensor | None = None) -> Tensor:
    """relu(x * scale + bias).

    Contract:
        scale_bias_relu(x: T[*s], scale: T[~*s], bias: T[~*s]) -> y: T[*s]

    Returns y.
    With out=tensor the result is written there; nothing can then be differentiated.
    """

def bias_act(x: Tensor, bias: Tensor, act: str = "relu", *, out: Tensor | None = None) -> Tensor:
    """act(x + bias).

    Contract:
        bias_act(x: T[*r, c], bias: T[c], act: activation = 'relu') -> y: T[*r, c]

    Returns y.
    With out=tensor the result is written there; nothing can then be differentiated.
    """

def square(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """x * x.

    Contract:
        square(x: T[*s]) -> y: T[*s]

    Returns y.
    With out=tensor the result is written there; nothing can then be differentiated.
    """

def sqrt(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The square root.

    Contract:
        sqrt(x: T[*s]) -> y: T[*s]

    Returns y.
    With out=tensor the result is written there; nothing can then be differentiated.
    """

def rsqrt(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """1 / sqrt(x).

    Contract:
        rsqrt(x: T[*s]) -> y: T[*s]

    Returns y.
    With out=tensor the result is written there; nothing can then be differentiated.
    """

def exp(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """e to the power of x.

    Contract:
        exp(x: T[*s]) -> y: T[*s]

    Returns y.
    With out=tensor the result is written there; nothing can then be differentiated.
    """

def log(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The natural logarithm.

    Contract:
        log(x: T[*s]) -> y: T[*s]

    Returns y.
    With out=tensor the result is written there; nothing can then be differentiated.
    """

def abs(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """|x|; the gradient at 0 is 0.

    Contract:
        abs(x: T[*s]) -> y: T[*s]

    Returns y.
    With out=tensor the result is written there; nothing can then be differentiated.
    """

def sign(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """-1, 0 or 1.

    Contract:
        sign(x: T[*s]) -> y: T[*s]

    Returns y.
    With out=tensor the result is written there; nothing can then be differentiated.
    """

def floor(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The next integer below.

    Contract:
        floor(x: T[*s]) -> y: T[*s]

    Returns y.
    With out=tensor the result is written there; nothing can then be differentiated.
    """

def clamp(x: Tensor, low: float | None = None, high: float | None = None, *, out: Tensor | None = None) -> Tensor:
    """x, but at least low and at most high.

    Contract:
        clamp(x: T[*s], low: float?, high: float?) -> y: T[*s]

    Returns y.
    With out=tensor the result is written there; nothing can then be differentiated.
    """

def pow(x: Tensor, exponent: float, *, out: Tensor | None = None) -> Tensor:
    """x to the power of exponent.

    Contract:
        pow(x: T[*s], exponent: float) -> y: T[*s]

    Returns y.
    With out=tensor the result is written there; nothing can then be differentiated.
    """

def lerp(x: Tensor, end: Tensor, weight: Tensor, *, out: Tensor | None = None) -> Tensor:
    """From x (weight 0) to end (weight 1).

    Contract:
        lerp(x: T[~*s], end: T[~*s], weight: T[~*s]) -> y: T[*s]

    Returns y.
    With out=tensor the result is written there; nothing can then be differentiated.
    """

def relu(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """max(x, 0); the gradient at 0 is 0.

    Contract:
        relu(x: T[*s]) -> y: T[*s]

    Returns y.
    With out=tensor the result is written there; nothing can then be differentiated.
    """

def leaky_relu(x: Tensor, slope: float = 0.01, *, out: Tensor | None = None) -> Tensor:
    """x, or slope * x below 0.

    Contract:
        leaky_relu(x: T[*s], slope: float = 0.01) -> y: T[*s]

    Returns y.
    With out=tensor the result is written there; nothing can then be differentiated.
    """

def prelu(x: Tensor, slope: Tensor, *, out: Tensor | None = None) -> Tensor:
    """x, or slope * x below 0, with a slope for each channel.

    Contract:
        prelu(x: T[n, c, *s], slope: T[c]) -> y: T[n, c, *s]

    Returns y.
    With out=tensor the result is written there; nothing can then be differentiated.
    """

def elu(x: Tensor, alpha: float = 1.0, *, out: Tensor | None = None) -> Tensor:
    """x, or alpha * (exp(x) - 1) below 0.

    Contract:
        elu(x: T[*s], alpha: float = 1.0) -> y: T[*s]

    Returns y.
    With out=tensor the result is written there; nothing can then be differentiated.
    """

def celu(x: Tensor, alpha: float = 1.0, *, out: Tensor | None = None) -> Tensor:
    """x, or alpha * (exp(x / alpha) - 1) below 0.

    Contract:
        celu(x: T[*s], alpha: float = 1.0) -> y: T[*s] where alpha != 0

    Returns y.
    With out=tensor the result is written there; nothing can then be differentiated.
    """

def selu(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The ELU that keeps mean 0 and variance 1.

    Contract:
        selu(x: T[*s]) -> y: T[*s]

    Returns y.
    With out=tensor the result is written there; nothing can then be differentiated.
    """

def sigmoid(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """1 / (1 + exp(-x)).

    Contract:
        sigmoid(x: T[*s]) -> y: T[*s]

    Returns y.
    With out=tensor the result is written there; nothing can then be differentiated.
    """

def log_sigmoid(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """log(sigmoid(x)).

    Contract:
        log_sigmoid(x: T[*s]) -> y: T[*s]

    Returns y.
    With out=tensor the result is written there; nothing can then be differentiated.
    """

def hard_sigmoid(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """clamp(x / 6 + 0.5, 0, 1); the gradient at -3 and 3 is 0.

    Contract:
        hard_sigmoid(x: T[*s]) -> y: T[*s]

    Returns y.
    With out=tensor the result is written there; nothing can then be differentiated.
    """

def tanh(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The hyperbolic tangent.

    Contract:
        tanh(x: T[*s]) -> y: T[*s]

    Returns y.
    With out=tensor the result is written there; nothing can then be differentiated.
    """

def softplus(x: Tensor, beta: float = 1.0, *, out: Tensor | None = None) -> Tensor:
    """log(1 + exp(beta * x)) / beta.

    Contract:
        softplus(x: T[*s], beta: float = 1.0) -> y: T[*s]

    Returns y.
    With out=tensor the result is written there; nothing can then be differentiated.
    """

def softsign(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """x / (1 + |x|).

    Contract:
        softsign(x: T[*s]) -> y: T[*s]

    Returns y.
    With out=tensor the result is written there; nothing can then be differentiated.
    """

def gelu(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """x times the normal distribution's probability below x.

    Contract:
        gelu(x: T[*s]) -> y: T[*s]

    Returns y.
    With out=tensor the result is written there; nothing can then be differentiated.
    """

def gelu_tanh(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """gelu, approximated with tanh.

    Contract:
        gelu_tanh(x: T[*s]) -> y: T[*s]

    Returns y.
    With out=tensor the result is written there; nothing can then be differentiated.
    """

def quick_gelu(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """x * sigmoid(1.702 * x).

    Contract:
        quick_gelu(x: T[*s]) -> y: T[*s]

    Returns y.
    With out=tensor the result is written there; nothing can then be differentiated.
    """

def silu(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """x * sigmoid(x).

    Contract:
        silu(x: T[*s]) -> y: T[*s]

    Returns y.
    With out=tensor the result is written there; nothing can then be differentiated.
    """

def hard_swish(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """x * hard_sigmoid(x).

    Contract:
        hard_swish(x: T[*s]) -> y: T[*s]

    Returns y.
    With out=tensor the result is written there; nothing can then be differentiated.
    """

def mish(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """x * tanh(softplus(x)).

    Contract:
        mish(x: T[*s]) -> y: T[*s]

    Returns y.
    With out=tensor the result is written there; nothing can then be differentiated.
    """

def swiglu(x: Tensor, gate: Tensor, *, out: Tensor | None = None) -> Tensor:
    """silu(gate) * x.

    Contract:
        swiglu(x: T[*s], gate: T[*s]) -> y: T[*s]

    Returns y.
    With out=tensor the result is written there; nothing can then be differentiated.
    """

def geglu(x: Tensor, gate: Tensor, *, out: Tensor | None = None) -> Tensor:
    """gelu(gate) * x.

    Contract:
        geglu(x: T[*s], gate: T[*s]) -> y: T[*s]

    Returns y.
    With out=tensor the result is written there; nothing can then be differentiated.
    """

def reglu(x: Tensor, gate: Tensor, *, out: Tensor | None = None) -> Tensor:
    """relu(gate) * x.

    Contract:
        reglu(x: T[*s], gate: T[*s]) -> y: T[*s]

    Returns y.
    With out=tensor the result is written there; nothing can then be differentiated.
    """

def dropout(x: Tensor, seed: Tensor, p: float = 0.5, *, out: Tensor | None = None) -> Tensor:
    """Elements are 0 with probability p, the others grow by 1 / (1 - p); the same seed gives the same
    mask.

    Contract:
        dropout(x: T[*s], seed: i64[2], p: float = 0.5) -> y: T[*s] where p >= 0, p <= 1

    Returns y.
    With out=tensor the result is written there; nothing can then be differentiated.
    """

def bias_dropout_add(
    x: Tensor,
    bias: Tensor | None = None,
    residual: Tensor = ...,
    seed: Tensor = ...,
    p: float = 0.5,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """residual + dropout(x + bias).

    Contract:
        bias_dropout_add(x: T[*r, c], bias: T[c]?, residual: T[*r, c], seed: i64[2], p: float = 0.5) ->
            y: T[*r, c] where p >= 0, p <= 1

    Returns y.
    With out=tensor the result is written there; nothing can then be differentiated.
    """

def residual_scale(x: Tensor, residual: Tensor, scale: Tensor, *, out: Tensor | None = None) -> Tensor:
    """residual + x * scale.

    Contract:
        residual_scale(x: T[*s], residual: T[*s], scale: T[~*s]) -> y: T[*s]

    Returns y.
    With out=tensor the result is written there; nothing can then be differentiated.
    """

def rms_norm(
    x: Tensor,
    gamma: Tensor | None = None,
    eps: float = 1e-06,
    zero_centered: bool = False,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """x over the root of its mean square along the last dimension, times gamma or 1 + gamma.

    Contract:
        rms_norm(x: T[*r, c], gamma: W[c]?, eps: float = 1e-6, zero_centered: bool = false) -> y: T[*r,
            c]

    Returns y.
    With out=tensor the result is written there; nothing can then be differentiated.
    """

def batch_norm_infer(
    x: Tensor,
    mean: Tensor,
    var: Tensor,
    gamma: Tensor | None = None,
    beta: Tensor | None = None,
    residual: Tensor | None = None,
    eps: float = 1e-05,
    act: str = "none",
    *,
    out: Tensor | None = None,
) -> Tensor:
    """batch_norm as it is once it has been trained: with the statistics given, plus residual, then act.

    Contract:
        batch_norm_infer(x: T[n, c, *s], mean: M[c], var: M[c], gamma: W[c]?, beta: W[c]?, residual:
            T[n, c, *s]?, eps: float = 1e-5, act: activation = 'none') -> y: T[n, c, *s]

    Returns y.
    With out=tensor the result is written there; nothing can then be differentiated.
    """

def mse(x: Tensor, target: Tensor, reduction: str = "mean", *, out: Tensor | None = None) -> Tensor:
    """The mean of (x - target) ** 2.

    Contract:
        mse(x: T[*s], target: T[*s], reduction: 'mean'|'sum' = 'mean') -> loss: acc(T)[]

    Returns loss.
    With out=tensor the result is written there; nothing can then be differentiated.
    """

def l1(x: Tensor, target: Tensor, reduction: str = "mean", *, out: Tensor | None = None) -> Tensor:
    """The mean of |x - target|.

    Contract:
        l1(x: T[*s], target: T[*s], reduction: 'mean'|'sum' = 'mean') -> loss: acc(T)[]

    Returns loss.
    With out=tensor the result is written there; nothing can then be differentiated.
    """

def huber(
    x: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0, *, out: Tensor | None = None
) -> Tensor:
    """The mean of a square up to a difference of delta, and of a straight line from there on.

    Contract:
        huber(x: T[*s], target: T[*s], reduction: 'mean'|'sum' = 'mean', delta: float = 1.0) -> loss:
            acc(T)[] where delta > 0

    Returns loss.
    With out=tensor the result is written there; nothing can then be differentiated.
    """

def bce_with_logits(x: Tensor, target: Tensor, reduction: str = "mean", *, out: Tensor | None = None) -> Tensor:
    """Binary cross-entropy of sigmoid(x) and target.

    Contract:
        bce_with_logits(x: T[*s], target: T[*s], reduction: 'mean'|'sum' = 'mean') -> loss: acc(T)[]

    Returns loss.
    With out=tensor the result is written there; nothing can then be differentiated.
    """

def focal(
    x: Tensor,
    target: Tensor,
    reduction: str = "mean",
    alpha: float = 0.25,
    gamma: float = 2.0,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """bce_with_logits, times (1 - the probability of what is right) ** gamma.

    Contract:
        focal(x: T[*s], target: T[*s], reduction: 'mean'|'sum' = 'mean', alpha: float = 0.25, gamma:
            float = 2.0) -> loss: acc(T)[]

    Returns loss.
    With out=tensor the result is written there; nothing can then be differentiated.
    """

def kl_div(x: Tensor, target: Tensor, reduction: str = "mean", *, out: Tensor | None = None) -> Tensor:
    """Kullback-Leibler divergence of the logarithms x from the probabilities target.

    Contract:
        kl_div(x: T[*s], target: T[*s], reduction: 'mean'|'sum' = 'mean') -> loss: acc(T)[]

    Returns loss.
    With out=tensor the result is written there; nothing can then be differentiated.
    """

def cosine_similarity(x: Tensor, y: Tensor, eps: float = 1e-08, *, out: Tensor | None = None) -> Tensor:
    """The cosine of the angle between the rows of x and y, whose norms count as eps at least.

    Contract:
        cosine_similarity(x: T[*r, c], y: T[*r, c], eps: float = 1e-8) -> z: T[*r]

    Returns z.
    With out=tensor the result is written there; nothing can then be differentiated.
    """

def sgd_step(
    p: Tensor,
    g: Tensor,
    m: Tensor,
    lr: Tensor | Param | float,
    momentum: float = 0.9,
    dampening: float = 0.0,
    weight_decay: float = 0.0,
    nesterov: bool = False,
) -> None:
    """A step of gradient descent with momentum, in place.

    Contract:
        sgd_step(p: T[*s]!, g: G[*s], m: acc(T)[*s]!, lr: acc(T)[], momentum: float = 0.9, dampening:
            float = 0.0, weight_decay: float = 0.0, nesterov: bool = false)

    Updates p, m in place.
    Tensors that require a gradient are taken inside of torch.no_grad() only.
    """

def adamw_step(
    p: Tensor,
    g: Tensor,
    m: Tensor,
    v: Tensor,
    master: Tensor | None = None,
    lr: Tensor | Param | float = ...,
    step: Tensor | Param | float = ...,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-08,
    weight_decay: float = 0.01,
) -> None:
    """A step of AdamW, the first being step 1, in place; with master, p is that rounded.

    Contract:
        adamw_step(p: T[*s]!, g: G[*s], m: acc(T)[*s]!, v: acc(T)[*s]!, master: acc(T)[*s]!?, lr:
            acc(T)[], step: acc(T)[], beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8,
            weight_decay: float = 0.01)

    Updates p, m, v, master in place.
    Tensors that require a gradient are taken inside of torch.no_grad() only.
    """

def sgd_step_list(
    p: Sequence[Tensor],
    g: Sequence[Tensor],
    m: Sequence[Tensor],
    lr: Tensor | Param | float,
    momentum: float = 0.9,
    dampening: float = 0.0,
    weight_decay: float = 0.0,
    nesterov: bool = False,
) -> None:
    """sgd_step for each tensor of the lists, in few launches.

    Contract:
        sgd_step_list(p: [T[*s]]!, g: [G[*s]], m: [acc(T)[*s]]!, lr: acc(T)[], momentum: float = 0.9,
            dampening: float = 0.0, weight_decay: float = 0.0, nesterov: bool = false)

    Updates p, m in place.
    Tensors that require a gradient are taken inside of torch.no_grad() only.
    """

def adamw_step_list(
    p: Sequence[Tensor],
    g: Sequence[Tensor],
    m: Sequence[Tensor],
    v: Sequence[Tensor],
    master: Sequence[Tensor] | None = None,
    lr: Tensor | Param | float = ...,
    step: Tensor | Param | float = ...,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-08,
    weight_decay: float = 0.01,
) -> None:
    """adamw_step for each tensor of the lists, in few launches.

    Contract:
        adamw_step_list(p: [T[*s]]!, g: [G[*s]], m: [acc(T)[*s]]!, v: [acc(T)[*s]]!, master:
            [acc(T)[*s]]!?, lr: acc(T)[], step: acc(T)[], beta1: float = 0.9, beta2: float = 0.999, eps:
            float = 1e-8, weight_decay: float = 0.01)

    Updates p, m, v, master in place.
    Tensors that require a gradient are taken inside of torch.no_grad() only.
    """

def clip_grad_norm(g: Sequence[Tensor], max_norm: Tensor | Param | float) -> Tensor:
    """The norm of all gradients together; where it is larger than max_norm, all are scaled down to that,
    in place.

    Contract:
        clip_grad_norm(g: [T[*s]]!, max_norm: acc(T)[]) -> norm: acc(T)[]

    Updates g in place. Returns norm.
    Tensors that require a gradient are taken inside of torch.no_grad() only.
    """

def quantize(x: Tensor, scale: Tensor, zero: Tensor | None = None, *, out: Tensor | None = None) -> Tensor:
    """x / scale + zero, rounded to the nearest 8-bit integer.

    Contract:
        quantize(x: T[*s], scale: f32[~*s], zero: i32[~*s]?) -> q: i8[*s]

    Returns q.
    With out=tensor the result is written there; nothing can then be differentiated.
    """

def fake_quantize_grad(
    x: Tensor,
    scale: Tensor,
    zero: Tensor | None = None,
    dy: Tensor = ...,
    low: int = -128,
    high: int = 127,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """The gradient of fake_quantize: dy where nothing was cut off.

    Contract:
        fake_quantize_grad(x: T[*s], scale: f32[~*s], zero: i32[~*s]?, dy: T[*s], low: int = -128, high:
            int = 127) -> dx: T[*s]

    Returns dx.
    With out=tensor the result is written there; nothing can then be differentiated.
    """

def dequantize(q: Tensor, scale: Tensor, zero: Tensor | None = None, *, out: Tensor | None = None) -> Tensor:
    """(q - zero) * scale, in the type of scale.

    Contract:
        dequantize(q: i8[*s], scale: T[~*s], zero: i32[~*s]?) -> y: T[*s]

    Returns y.
    With out=tensor the result is written there; nothing can then be differentiated.
    """
