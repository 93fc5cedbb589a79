/* Operators that are formulas, one line each: X(name, parameters and outputs, formula, autocast, samples, one line about
 * it). Kernels and gradients are derived (docs/formulas.md). */
#define TNI_LOSS(more) "(x: T[*s], target: T[*s], reduction: 'mean'|'sum' = 'mean'" more ") -> loss: acc(T)[]"
#define TNI_REDUCED "loss = mean(t) if reduction == 'mean' else sum(t)"

/* Optimisers, of a tensor and of lists of them. */
#define TNI_SGD \
    "lr: acc(T)[], momentum: float = 0.9, dampening: float = 0.0, weight_decay: float = 0.0, nesterov: bool = false"
#define TNI_SGD_STEP                                                     \
    "d = g + weight_decay * p; m = momentum * m + (1 - dampening) * d; " \
    "p = p - lr * (d + momentum * m if nesterov else m)"
#define TNI_ADAMW                                                                                 \
    "lr: acc(T)[], step: acc(T)[], beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8, " \
    "weight_decay: float = 0.01"
#define TNI_ADAMW_STEP                                                                     \
    "w = master if has(master) else p; "                                                   \
    "m = m + (g - m) * (1 - beta1) if beta1 >= 0.5 else g + (m - g) * beta1; "             \
    "v = v + (g * g - v) * (1 - beta2) if beta2 >= 0.5 else g * g + (v - g * g) * beta2; " \
    "t = max(step, 1); c1 = -expm1(t * log(beta1)); c2 = sqrt(-expm1(t * log(beta2))); "   \
    "u = w * (1 - lr * weight_decay) - lr * c2 / c1 * m / (sqrt(v) + eps * c2); p = u; master = u"

/* clang-format off */
#define TNI_FORMULAS(X)                                                                                                \
    /* arithmetic */                                                                                                   \
    X(identity, "(x: T[*s]) -> y: T[*s]", "x", NULL, unary, "x.")                                                      \
    X(add, "(x: T[~*s], y: T[~*s]) -> z: T[*s]", "x + y", "widest", binary, "x + y.")                                  \
    X(sub, "(x: T[~*s], y: T[~*s]) -> z: T[*s]", "x - y", "widest", binary, "x - y.")                                  \
    X(mul, "(x: T[~*s], y: T[~*s]) -> z: T[*s]", "x * y", "widest", binary, "x * y.")                                  \
    X(div, "(x: T[~*s], y: T[~*s]) -> z: T[*s]", "x / y", "widest", quotient, "x / y.")                                \
    X(add_constant, "(x: T[*s], c: float) -> y: T[*s]", "x + c", NULL, constant, "x + c.")                             \
    X(scale, "(x: T[*s], c: float) -> y: T[*s]", "x * c", NULL, constant, "x * c.")                                    \
    X(scale_bias_relu, "(x: T[*s], scale: T[~*s], bias: T[~*s]) -> y: T[*s]", "relu(x * scale + bias)", "widest",      \
      scaled, "relu(x * scale + bias).")                                                                               \
    X(bias_act, "(x: T[*r, c], bias: T[c], act: activation = 'relu') -> y: T[*r, c]", "act(x + bias)", "widest",       \
      bias_act, "act(x + bias).")                                                                                      \
    X(square, "(x: T[*s]) -> y: T[*s]", "x * x", "32", unary, "x * x.")                                                \
    X(sqrt, "(x: T[*s]) -> y: T[*s]", "sqrt(x)", NULL, positive, "The square root.")                                   \
    X(rsqrt, "(x: T[*s]) -> y: T[*s]", "rsqrt(x)", "32", positive, "1 / sqrt(x).")                                     \
    X(exp, "(x: T[*s]) -> y: T[*s]", "exp(x)", "32", unary, "e to the power of x.")                                    \
    X(log, "(x: T[*s]) -> y: T[*s]", "log(x)", "32", positive, "The natural logarithm.")                               \
    X(abs, "(x: T[*s]) -> y: T[*s]", "abs(x)", NULL, unary, "|x|; the gradient at 0 is 0.")                            \
    X(sign, "(x: T[*s]) -> y: T[*s]", "sign(x)", NULL, unary, "-1, 0 or 1.")                                           \
    X(floor, "(x: T[*s]) -> y: T[*s]", "floor(x)", NULL, unary, "The next integer below.")                             \
    X(clamp, "(x: T[*s], low: float?, high: float?) -> y: T[*s]",                                                      \
      "clamp(x, low if has(low) else -inf, high if has(high) else inf)", NULL, clamped,                                \
      "x, but at least low and at most high.")                                                                         \
    X(pow, "(x: T[*s], exponent: float) -> y: T[*s]", "x ** exponent", "32", powers, "x to the power of exponent.")    \
    X(lerp, "(x: T[~*s], end: T[~*s], weight: T[~*s]) -> y: T[*s]",                                             \
      "x + weight * (end - x) if abs(weight) < 0.5 else end - (1 - weight) * (end - x)", "widest", ternary,            \
      "From x (weight 0) to end (weight 1).")                                                                          \
    /* activations */                                                                                                  \
    X(relu, "(x: T[*s]) -> y: T[*s]", "relu(x)", NULL, unary, "max(x, 0); the gradient at 0 is 0.")                    \
    X(leaky_relu, "(x: T[*s], slope: float = 0.01) -> y: T[*s]", "x if x > 0 else x * slope", NULL, unary,             \
      "x, or slope * x below 0.")                                                                                      \
    X(prelu, "(x: T[n, c, *s], slope: T[c]) -> y: T[n, c, *s]", "x if x > 0 else x * slope", "16", channels,           \
      "x, or slope * x below 0, with a slope for each channel.")                                                       \
    X(elu, "(x: T[*s], alpha: float = 1.0) -> y: T[*s]", "x if x > 0 else alpha * expm1(x)", NULL, unary,              \
      "x, or alpha * (exp(x) - 1) below 0.")                                                                           \
    X(celu, "(x: T[*s], alpha: float = 1.0) -> y: T[*s] where alpha != 0",                                             \
      "x if x > 0 else alpha * expm1(x / alpha)", NULL, unary,                                                         \
      "x, or alpha * (exp(x / alpha) - 1) below 0.")                                                                   \
    X(selu, "(x: T[*s]) -> y: T[*s]",                                                                                  \
      "1.0507009873554805 * (x if x > 0 else 1.6732632423543772 * expm1(x))", NULL, unary,                             \
      "The ELU that keeps mean 0 and variance 1.")                                                                     \
    X(sigmoid, "(x: T[*s]) -> y: T[*s]", "sigmoid(x)", NULL, unary, "1 / (1 + exp(-x)).")                              \
    X(log_sigmoid, "(x: T[*s]) -> y: T[*s]", "-softplus(-x)", NULL, unary, "log(sigmoid(x)).")                         \
    X(hard_sigmoid, "(x: T[*s]) -> y: T[*s]", "0.0 if x <= -3 else 1.0 if x >= 3 else x / 6 + 0.5", NULL, unary,       \
      "clamp(x / 6 + 0.5, 0, 1); the gradient at -3 and 3 is 0.")                                                      \
    X(tanh, "(x: T[*s]) -> y: T[*s]", "tanh(x)", NULL, unary, "The hyperbolic tangent.")                               \
    X(softplus, "(x: T[*s], beta: float = 1.0) -> y: T[*s]", "softplus(x * beta) / beta", "32", unary,                 \
      "log(1 + exp(beta * x)) / beta.")                                                                                \
    X(softsign, "(x: T[*s]) -> y: T[*s]", "x / (1 + abs(x))", NULL, unary, "x / (1 + |x|).")                           \
    X(gelu, "(x: T[*s]) -> y: T[*s]", "gelu(x)", NULL, unary, "x times the normal distribution's probability below x.") \
    X(gelu_tanh, "(x: T[*s]) -> y: T[*s]", "gelu_tanh(x)", NULL, unary, "gelu, approximated with tanh.")               \
    X(quick_gelu, "(x: T[*s]) -> y: T[*s]", "x * sigmoid(1.702 * x)", NULL, unary, "x * sigmoid(1.702 * x).")          \
    X(silu, "(x: T[*s]) -> y: T[*s]", "silu(x)", NULL, unary, "x * sigmoid(x).")                                       \
    X(hard_swish, "(x: T[*s]) -> y: T[*s]", "0.0 if x <= -3 else x if x >= 3 else x * (x / 6 + 0.5)", NULL, unary,     \
      "x * hard_sigmoid(x).")                                                                                          \
    X(mish, "(x: T[*s]) -> y: T[*s]", "x * tanh(softplus(x))", NULL, unary, "x * tanh(softplus(x)).")                  \
    X(swiglu, "(x: T[*s], gate: T[*s]) -> y: T[*s]", "silu(gate) * x", "widest", pairs, "silu(gate) * x.")             \
    X(geglu, "(x: T[*s], gate: T[*s]) -> y: T[*s]", "gelu(gate) * x", "widest", pairs, "gelu(gate) * x.")              \
    X(reglu, "(x: T[*s], gate: T[*s]) -> y: T[*s]", "relu(gate) * x", "widest", pairs, "relu(gate) * x.")              \
    /* around layers */                                                                                                \
    X(dropout, "(x: T[*s], seed: i64[2], p: float = 0.5) -> y: T[*s] where p >= 0, p <= 1",                            \
      "where(rand(seed) < p, 0, x * (1 / (1 - p)))", NULL, dropped,                                                    \
      "Elements are 0 with probability p, the others grow by 1 / (1 - p); the same seed gives the same mask.")         \
    X(bias_dropout_add,                                                                                                \
      "(x: T[*r, c], bias: T[c]?, residual: T[*r, c], seed: i64[2], p: float = 0.5) -> y: T[*r, c] "                   \
      "where p >= 0, p <= 1",                                                                                          \
      "t = x + bias if has(bias) else x; y = residual + where(rand(seed) < p, 0, t * (1 / (1 - p)))", "widest",        \
      dropped_rows, "residual + dropout(x + bias).")                                                                   \
    X(residual_scale, "(x: T[*s], residual: T[*s], scale: T[~*s]) -> y: T[*s]", "residual + x * scale", "widest",      \
      residuals, "residual + x * scale.")                                                                              \
    X(rms_norm, "(x: T[*r, c], gamma: W[c]?, eps: float = 1e-6, zero_centered: bool = false) -> y: T[*r, c]",          \
      "n = x * rsqrt(mean(x * x, -1) + eps); w = n * gamma; y = (w + n if zero_centered else w) if has(gamma) else n", \
      "32", normed, "x over the root of its mean square along the last dimension, times gamma or 1 + gamma.")          \
    X(batch_norm_infer, "(x: T[n, c, *s], mean: M[c], var: M[c], gamma: W[c]?, beta: W[c]?, residual: T[n, c, *s]?, "  \
      "eps: float = 1e-5, act: activation = 'none') -> y: T[n, c, *s]",                                                \
      "t = (x - mean) * rsqrt(var + eps); u = t * gamma if has(gamma) else t; v = u + beta if has(beta) else u; "      \
      "y = act(v + residual if has(residual) else v)", "widest", trained,                                              \
      "batch_norm as it is once it has been trained: with the statistics given, plus residual, then act.")             \
    /* losses */                                                                                                       \
    X(mse, TNI_LOSS(""), "d = x - target; t = d * d; " TNI_REDUCED, "32", losses, "The mean of (x - target) ** 2.")    \
    X(l1, TNI_LOSS(""), "t = abs(x - target); " TNI_REDUCED, "32", losses, "The mean of |x - target|.")                \
    X(huber, TNI_LOSS(", delta: float = 1.0") " where delta > 0",                                                      \
      "d = abs(x - target); t = 0.5 * d * d if d <= delta else delta * (d - 0.5 * delta); " TNI_REDUCED, "32", losses, \
      "The mean of a square up to a difference of delta, and of a straight line from there on.")                       \
    X(bce_with_logits, TNI_LOSS(""), "t = softplus(x) - x * target; " TNI_REDUCED, "32", losses,                       \
      "Binary cross-entropy of sigmoid(x) and target.")                                                                \
    X(focal, TNI_LOSS(", alpha: float = 0.25, gamma: float = 2.0"),                                                    \
      "p = sigmoid(x); miss = p + target - 2 * p * target; a = 1 - alpha + (2 * alpha - 1) * target; "                 \
      "t = a * miss ** gamma * (softplus(x) - x * target); " TNI_REDUCED, "32", chances,                               \
      "bce_with_logits, times (1 - the probability of what is right) ** gamma.")                                       \
    X(kl_div, TNI_LOSS(""), "t = target * (log(target) - x) if target != 0 else -target * x; " TNI_REDUCED, "32", chances,      \
      "Kullback-Leibler divergence of the logarithms x from the probabilities target.")                                \
    X(cosine_similarity, "(x: T[*r, c], y: T[*r, c], eps: float = 1e-8) -> z: T[*r]",                                  \
      "sum(x * y, -1) / (max(sqrt(sum(x * x, -1)), eps) * max(sqrt(sum(y * y, -1)), eps))", "32", rows,                \
      "The cosine of the angle between the rows of x and y, whose norms count as eps at least.")                       \
    /* optimisers */                                                                                                   \
    X(sgd_step, "(p: T[*s]!, g: G[*s], m: acc(T)[*s]!, " TNI_SGD ")", TNI_SGD_STEP, NULL, sgd_steps,                   \
      "A step of gradient descent with momentum, in place.")                                                           \
    X(adamw_step, "(p: T[*s]!, g: G[*s], m: acc(T)[*s]!, v: acc(T)[*s]!, master: acc(T)[*s]!?, " TNI_ADAMW ")",        \
      TNI_ADAMW_STEP, NULL, adamw_steps, "A step of AdamW, the first being step 1, in place; with master, p is that rounded.")                 \
    X(sgd_step_list, "(p: [T[*s]]!, g: [G[*s]], m: [acc(T)[*s]]!, " TNI_SGD ")", TNI_SGD_STEP, NULL, sgd_lists,        \
      "sgd_step for each tensor of the lists, in few launches.")                                                       \
    X(adamw_step_list, "(p: [T[*s]]!, g: [G[*s]], m: [acc(T)[*s]]!, v: [acc(T)[*s]]!, master: [acc(T)[*s]]!?, "        \
      TNI_ADAMW ")", TNI_ADAMW_STEP, NULL, adamw_lists, "adamw_step for each tensor of the lists, in few launches.")   \
    X(clip_grad_norm, "(g: [T[*s]]!, max_norm: acc(T)[]) -> norm: acc(T)[]",                                           \
      "n = sqrt(sum(g * g)); g = g * min(1, max_norm / (n + 1e-6)); norm = n", NULL, clip_lists,                       \
      "The norm of all gradients together; where it is larger than max_norm, all are scaled down to that, in place.")  \
    /* quantisation: per tensor or per channel, by the shape of scale */                                               \
    X(quantize, "(x: T[*s], scale: f32[~*s], zero: i32[~*s]?) -> q: i8[*s]",                                           \
      "clamp(round(x / scale) + (zero if has(zero) else 0), -128, 127)", NULL, quantized,                              \
      "x / scale + zero, rounded to the nearest 8-bit integer.")                                                       \
    X(fake_quantize_grad, "(x: T[*s], scale: f32[~*s], zero: i32[~*s]?, dy: T[*s], low: int = -128, high: int = 127) " \
      "-> dx: T[*s]",                                                                                                  \
      "q = round(x / scale) + (zero if has(zero) else 0); dx = dy if q >= low and q <= high else 0", NULL, quantized,  \
      "The gradient of fake_quantize: dy where nothing was cut off.")                                                  \
    X(dequantize, "(q: i8[*s], scale: T[~*s], zero: i32[~*s]?) -> y: T[*s]",                                           \
      "(q - zero if has(zero) else q) * scale", NULL, dequantized, "(q - zero) * scale, in the type of scale.")
/* clang-format on */
