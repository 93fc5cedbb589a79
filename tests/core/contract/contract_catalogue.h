/* The operator catalogue: every contract that Tenon means to have, written out, with calls and what inference answers
 * (contract_call.h has the notation; an answer that begins with '!' is a part of the message). */
#ifndef TENON_CONTRACT_CATALOGUE_H
#define TENON_CONTRACT_CATALOGUE_H

typedef struct catalogue_row {
    const char *contract;
    const char *calls[7];
} catalogue_row;

/* One operand or two, elementwise. */
#define UNARY(name)                                                  \
    {                                                                \
        name "(x: T[*s]) -> y: T[*s]", {                             \
            "x=f32[2, 3] -> y=f32[2, 3]", "x=bf16[..] -> y=bf16[..]" \
        }                                                            \
    }
#define BINARY(name)                                                                            \
    {                                                                                           \
        name "(a: T[~*s], b: T[~*s]) -> y: T[*s]", {                                            \
            "a=f32[2, 3] b=f32[2, 3] -> y=f32[2, 3]", "a=f32[3] b=f32[2, 1] -> y=f32[2, 3]",    \
                "a=f32[] b=f32[0, 4] -> y=f32[0, 4]", "a=f32[?, 3] b=f32[5, 1] -> y=f32[5, 3]", \
                "a=f32[..] b=f32[5] -> y=f32[..]", "a=f32[2] b=f32[3] -> !does not broadcast"   \
        }                                                                                       \
    }
#define REDUCTION(name)                                                                                        \
    {                                                                                                          \
        name "(x: T[*s], axes: axes = [], keepdim: bool = false) -> y: T[reduce(*s, axes, keepdim)]", {        \
            "x=f32[2, 3, 4] -> y=f32[]", "x=f32[2, 3, 4] axes=[-1, 0] -> y=f32[3]",                            \
                "x=f64[2, 3, 4] axes=[1] keepdim=true -> y=f64[2, 1, 4]", "x=f32[?, 3] axes=[1] -> y=f32[?]",  \
                "x=f32[..] -> y=f32[]", "x=f32[..] axes=[1] -> y=f32[..]", "x=f32[2] keepdim=true -> y=f32[1]" \
        }                                                                                                      \
    }
#define ARG_REDUCTION(name)                                                                                   \
    {                                                                                                         \
        name "(x: T[*s], axis: axis = -1, keepdim: bool = false) -> index: i64[reduce(*s, axis, keepdim)]", { \
            "x=f32[2, 3] -> index=i64[2]", "x=f16[2, 3] axis=0 keepdim=true -> index=i64[1, 3]",              \
                "x=f32[2, ?] axis=0 -> index=i64[?]", "x=f32[] -> !x has rank 0, needs at least 1"            \
        }                                                                                                     \
    }
#define SCAN(name)                                                                                        \
    {                                                                                                     \
        name "(x: T[*s], axis: axis = -1, exclusive: bool = false, reverse: bool = false) -> y: T[*s]", { \
            "x=f32[2, 3] axis=-2 -> y=f32[2, 3]", "x=f32[2, ?] reverse=true -> y=f32[2, ?]"               \
        }                                                                                                 \
    }
#define LOSS(name, options)                                                                            \
    {                                                                                                  \
        name "(x: T[*s], target: T[*s], " options "reduction: 'mean'|'sum'|'none' = 'mean') -> loss: " \
             "acc(T)[*s if reduction == 'none' else]",                                                 \
        {                                                                                              \
            "x=f16[2, 3] target=f16[2, 3] -> loss=f32[]",                                              \
                "x=f64[2, ?] target=f64[?, 3] reduction='none' -> loss=f64[2, 3]"                      \
        }                                                                                              \
    }
#define GATED(name)                                                                                  \
    {                                                                                                \
        name "(x: T[*s], gate: T[*s]) -> y: T[*s]", {                                                \
            "x=f32[2, 3] gate=f32[2, 3] -> y=f32[2, 3]", "x=f32[2, ?] gate=f32[?, 3] -> y=f32[2, 3]" \
        }                                                                                            \
    }
#define HALVED(name)                                                                                            \
    {                                                                                                           \
        name "_halves(x: T[*r, 2 * n]) -> y: T[*r, n]", {                                                       \
            "x=f32[5, 8] -> y=f32[5, 4]", "x=f32[5, ?] -> y=f32[5, ?]", "x=f32[5, 7] -> !its 7 has to be 2 * n" \
        }                                                                                                       \
    }

static const catalogue_row catalogue[] = {
    /* ---- one pass over memory ------------------------------------------------------------------------------------ */
    {"softmax(x: T[*s], mask: bool[~*s]?, axis: axis = -1, scale: float = 1.0, causal: bool = false) -> y: T[*s]",
     {"x=f32[2, 3] -> y=f32[2, 3]", "x=f16[2, 3] mask=bool[3] axis=0 -> y=f16[2, 3]", "x=f32[?, 3] -> y=f32[?, 3]",
      "x=f32[?, 3] mask=bool[4, 1] -> y=f32[4, 3]", "x=_[..] -> y=_[..]", "x=f32[0, 3] -> y=f32[0, 3]",
      "x=f32[] -> !softmax: x has rank 0, needs at least 1"}},
    {"log_softmax(x: T[*s], axis: axis = -1) -> y: T[*s]",
     {"x=f64[5] -> y=f64[5]", "x=f32[4, ?] axis=-2 -> y=f32[4, ?]"}},
    {"logsumexp(x: T[*s], axes: axes = [-1], keepdim: bool = false) -> y: T[reduce(*s, axes, keepdim)]",
     {"x=f32[2, 3] -> y=f32[2]", "x=f32[2, 3] axes=[0, 1] keepdim=true -> y=f32[1, 1]", "x=f32[?, 3] -> y=f32[?]"}},
    {"cross_entropy(x: T[*r, v], target: i32|i64[*r], weight: f32[v]?, ignore_index: int = -100, label_smoothing: "
     "float "
     "= 0.0, z_loss: float = 0.0, reduction: 'mean'|'sum'|'none' = 'mean') -> loss: acc(T)[*r if reduction == 'none' "
     "else], lse: acc(T)[*r], gx: T[*r, v]?grad",
     {"x=bf16[5, 10] target=i64[5] -> loss=f32[] lse=f32[5]",
      "x=f32[2, 5, 10] target=i32[2, 5] reduction='none' want_gx=true -> loss=f32[2, 5] lse=f32[2, 5] gx=f32[2, 5, 10]",
      "x=f64[10] target=i64[] weight=f32[10] reduction='sum' -> loss=f64[] lse=f64[]",
      "x=f32[?, 10] target=i64[7] reduction='none' -> loss=f32[7] lse=f32[7]",
      "x=f32[..] target=i64[..] -> loss=f32[] lse=f32[..]",
      "x=f32[5, 10] target=i64[4] -> !target has shape (4), but *r is (5) from x (5, 10)"}},
    {"cross_entropy_inplace(x: T[*r, v]!, target: i32|i64[*r], weight: f32[v]?, ignore_index: int = -100, reduction: "
     "'mean'|'sum'|'none' = 'mean') -> loss: acc(T)[*r if reduction == 'none' else], lse: acc(T)[*r]",
     {"x=f16[5, 10] target=i64[5] -> loss=f32[] lse=f32[5]"}},
    {"soft_cross_entropy(x: T[*r, v], target: T[*r, v], label_smoothing: float = 0.0, reduction: 'mean'|'sum'|'none' = "
     "'mean') -> loss: acc(T)[*r if reduction == 'none' else], lse: acc(T)[*r], gx: T[*r, v]?grad",
     {"x=f32[5, 10] target=f32[5, 10] -> loss=f32[] lse=f32[5]",
      "x=f32[?, 10] target=f32[5, ?] reduction='none' want_gx=true -> loss=f32[5] lse=f32[5] gx=f32[5, 10]"}},
    {"layer_norm(x: T[*r, c], gamma: W[c]?, beta: W[c]?, eps: float = 1e-5) -> y: T[*r, c], mean: acc(T)[*r], rstd: "
     "acc(T)[*r]",
     {"x=f32[3, 7] -> y=f32[3, 7] mean=f32[3] rstd=f32[3]",
      "x=bf16[2, 3, 7] gamma=f32[7] beta=f32[7] -> y=bf16[2, 3, 7] mean=f32[2, 3] rstd=f32[2, 3]",
      "x=f64[?, ?] gamma=f64[7] -> y=f64[?, 7] mean=f64[?] rstd=f64[?]",
      "x=f32[..] gamma=f32[7] -> y=f32[..] mean=f32[..] rstd=f32[..]",
      "x=f32[3, 7] gamma=f32[5] -> !layer_norm: gamma has shape (5), but c is 7 from x (3, 7)"}},
    {"add_layer_norm(x: T[*r, c], residual: T[*r, c], gamma: W[c]?, beta: W[c]?, eps: float = 1e-5) -> y: T[*r, c], "
     "sum: "
     "T[*r, c], mean: acc(T)[*r], rstd: acc(T)[*r]",
     {"x=f16[3, 7] residual=f16[3, 7] -> y=f16[3, 7] sum=f16[3, 7] mean=f32[3] rstd=f32[3]"}},
    {"rms_norm(x: T[*r, c], gamma: W[c]?, eps: float = 1e-6, zero_centered: bool = false) -> y: T[*r, c], rstd: "
     "acc(T)[*r]",
     {"x=f16[3, 7] gamma=f16[7] zero_centered=true -> y=f16[3, 7] rstd=f32[3]", "x=f32[?] -> y=f32[?] rstd=f32[]"}},
    {"add_rms_norm(x: T[*r, c], residual: T[*r, c], gamma: W[c]?, eps: float = 1e-6) -> y: T[*r, c], sum: T[*r, c], "
     "rstd: "
     "acc(T)[*r]",
     {"x=f32[3, 7] residual=f32[3, 7] -> y=f32[3, 7] sum=f32[3, 7] rstd=f32[3]"}},
    {"group_norm(x: T[n, c, *s], gamma: W[c]?, beta: W[c]?, groups: int, eps: float = 1e-5, act: activation = 'none') "
     "-> "
     "y: T[n, c, *s], mean: acc(T)[n, groups], rstd: acc(T)[n, groups] where c % groups == 0",
     {"x=f32[2, 6, 5, 5] groups=3 -> y=f32[2, 6, 5, 5] mean=f32[2, 3] rstd=f32[2, 3]",
      "x=f32[?, 6] groups=2 -> y=f32[?, 6] mean=f32[?, 2] rstd=f32[?, 2]",
      "x=f32[2, 6] groups=4 -> !group_norm: needs c % groups == 0, but c is 6 and groups is 4",
      "x=f32[2, ?] groups=4 -> y=f32[2, ?] mean=f32[2, 4] rstd=f32[2, 4]",
      "x=f32[2, 6] groups=0 -> !c % groups == 0 divides by zero"}},
    {"instance_norm(x: T[n, c, *s], gamma: W[c]?, beta: W[c]?, eps: float = 1e-5) -> y: T[n, c, *s], mean: acc(T)[n, "
     "c], "
     "rstd: acc(T)[n, c]",
     {"x=f16[2, 3, 4] gamma=f32[3] -> y=f16[2, 3, 4] mean=f32[2, 3] rstd=f32[2, 3]"}},
    {"batch_norm(x: T[n, c, *s], gamma: W[c]?, beta: W[c]?, running_mean: f32[c]!, running_var: f32[c]!, residual: "
     "T[n, "
     "c, *s]?, momentum: float = 0.1, eps: float = 1e-5, act: activation = 'none') -> y: T[n, c, *s], mean: acc(T)[c], "
     "rstd: acc(T)[c]",
     {"x=f32[2, 3, 4, 4] running_mean=f32[3] running_var=f32[3] -> y=f32[2, 3, 4, 4] mean=f32[3] rstd=f32[3]",
      "x=bf16[2, ?] running_mean=f32[3] running_var=f32[3] residual=bf16[2, 3] -> y=bf16[2, 3] mean=f32[3] rstd=f32[3]",
      "x=f32[2, 3] running_mean=f32[3] running_var=f32[4] -> !running_var has shape (4), but c is 3 from x (2, 3)"}},
    {"batch_norm_infer(x: T[n, c, *s], mean: W[c], var: W[c], gamma: W[c]?, beta: W[c]?, residual: T[n, c, *s]?, eps: "
     "float = 1e-5, act: activation = 'none') -> y: T[n, c, *s]",
     {"x=f16[2, 3, 4] mean=f32[3] var=f32[3] gamma=f32[3] -> y=f16[2, 3, 4]"}},
    REDUCTION("sum"),
    REDUCTION("mean"),
    REDUCTION("max"),
    REDUCTION("min"),
    REDUCTION("prod"),
    REDUCTION("var"),
    REDUCTION("norm"),
    ARG_REDUCTION("argmax"),
    ARG_REDUCTION("argmin"),
    SCAN("cumsum"),
    SCAN("cumprod"),
    {"sort<T: any>(x: T[*s], axis: axis = -1, descending: bool = false) -> values: T[*s], index: i64[*s]",
     {"x=i16[2, 3] -> values=i16[2, 3] index=i64[2, 3]", "x=bool[?] axis=0 -> values=bool[?] index=i64[?]"}},
    {"top_k(x: T[*r, n], k: int, largest: bool = true) -> values: T[*r, k], index: i64[*r, k] where k <= n",
     {"x=f32[2, 9] k=3 -> values=f32[2, 3] index=i64[2, 3]", "x=f32[2, ?] k=3 -> values=f32[2, 3] index=i64[2, 3]",
      "x=f32[2, 2] k=3 -> !top_k: needs k <= n, but k is 3 and n is 2", "x=f32[2, 9] -> !k is missing",
      "x=f32[2, 9] k=-1 -> !values would have a size of -1"}},
    {"permute<T: any>(x: T[*s], dims: ints) -> y: T[permute(*s, dims)]",
     {"x=i8[2, 3, 4] dims=[2, 0, 1] -> y=i8[4, 2, 3]", "x=f32[2, 3] dims=[-1, -2] -> y=f32[3, 2]",
      "x=f32[..] dims=[1, 0] -> y=f32[?, ?]", "x=f32[2, 3] dims=[0, 0] -> !not an order of the dimensions",
      "x=f32[2, 3] dims=[0] -> !not an order of the dimensions", "x=f32[] dims=[] -> y=f32[]"}},
    {"concat<T: any>(xs: [T[*s]], axis: axis = 0) -> y: T[concat(*s, axis)]",
     {"xs=[f32[2, 3], f32[4, 3]] -> y=f32[6, 3]", "xs=[i8[2, 3], i8[2, ?]] axis=-1 -> y=i8[2, ?]",
      "xs=[f32[?, 3], f32[4, ?]] axis=1 -> y=f32[4, ?]", "xs=[f32[2, 3]] -> y=f32[2, 3]",
      "xs=[f32[..], f32[2]] -> y=f32[..]", "xs=[f32[2, 3], f64[2, 3]] -> !xs[1] has type f64",
      "xs=[f32[2, 3], f32[2, 4]] -> !xs[1] has shape (2, 4)"}},
    {"gather<T: any>(x: T[*s], index: i32|i64[resize(*s, axis, n)], axis: axis = -1) -> y: T[resize(*s, axis, n)]",
     {"x=f32[5, 3] index=i64[2, 3] axis=0 -> y=f32[2, 3]", "x=f32[5, 3] index=i64[5, 7] -> y=f32[5, 7]",
      "x=f32[5, 3] index=i64[2] -> !index has shape (2), needs (5, ?): resize(*s, axis, n)",
      "x=f32[5, 3] index=i64[2, 7] -> !index has shape (2, 7), needs (5, 7): resize(*s, axis, n)",
      "x=f32[5, 3] index=i64[?, ?] -> y=f32[5, ?]", "x=f32[5, 3] index=i64[..] axis=0 -> y=f32[?, 3]",
      "x=f32[..] index=i64[4, 7] -> y=f32[..]"}},
    {"scatter_add(x: T[*s], index: i32|i64[resize(*s, axis, n)], src: T[resize(*s, axis, n)], axis: axis = -1) "
     "-> y: T[*s]",
     {"x=f32[5, 3] index=i64[2, 3] src=f32[2, 3] axis=0 -> y=f32[5, 3]",
      "x=f32[5, 3] index=i64[2, 3] src=f32[4, 3] axis=0 -> !src has shape (4, 3), needs (2, 3)",
      "x=f32[5, 3] index=i64[2, 3] src=f32[2, 3] axis=2 -> !axis is 2, x has rank 2"}},
    {"gather_grad(dy: T[resize(*shape, axis, n)], index: i32|i64[resize(*shape, axis, n)], shape: ints, "
     "axis: axis = -1) -> dx: T[*shape]",
     {"dy=f32[5, 2] index=i64[5, 2] shape=[5, 9] -> dx=f32[5, 9]",
      "dy=f32[5, 2] index=i64[5, 2] shape=[6, 9] -> !dy has shape (5, 2), needs (6, 2)"}},
    {"segment_sum(x: T[n, *s], ids: i32|i64[n], segments: int) -> y: T[segments, *s] where segments >= 0",
     {"x=f32[9, 4] ids=i32[9] segments=3 -> y=f32[3, 4]", "x=f32[9] ids=i32[9] segments=-3 -> !needs segments >= 0"}},
    {"index_select<T: any>(x: T[*s], index: i32|i64[n], axis: axis = 0) -> y: T[resize(*s, axis, n)]",
     {"x=u8[9, 4] index=i64[5] -> y=u8[5, 4]", "x=u8[9, 4] index=i64[?] -> y=u8[?, 4]",
      "x=u8[9, 4] index=i64[5] axis=-1 -> y=u8[9, 5]", "x=u8[?, 4] index=i64[5] axis=1 -> y=u8[?, 5]"}},
    {"select<T: any>(cond: bool[~*s], a: T[~*s], b: T[~*s]) -> y: T[*s]",
     {"cond=bool[2, 1] a=f32[3] b=f32[] -> y=f32[2, 3]",
      "cond=bool[2] a=i32[2] b=f32[2] -> !b has type f32, needs i32"}},
    {"embedding(table: T[v, d], index: i32|i64[*s]) -> y: T[*s, d]",
     {"table=f32[100, 16] index=i64[4, 5] -> y=f32[4, 5, 16]", "table=f16[100, ?] index=i32[] -> y=f16[?]",
      "table=f32[100, 16] index=f32[4] -> !index has type f32, needs i32 or i64"}},
    {"rope(x: T[*r, t, d], cos: f32[t, d / 2], sin: f32[t, d / 2], interleaved: bool = false) -> y: T[*r, t, d]",
     {"x=f16[2, 5, 8] cos=f32[5, 4] sin=f32[5, 4] -> y=f16[2, 5, 8]",
      "x=f32[5, ?] cos=f32[5, 4] sin=f32[5, 4] -> y=f32[5, ?]",
      "x=f32[5, 9] cos=f32[5, 4] sin=f32[5, 4] -> y=f32[5, 9]",
      "x=f32[5, 8] cos=f32[5, 3] sin=f32[5, 4] -> !cos has shape (5, 3), but its 3 has to be d / 2 = 4, where d is 8"}},
    {"dot(x: T[n], y: T[n]) -> z: T[]", {"x=f32[5] y=f32[5] -> z=f32[]", "x=f32[?] y=f32[5] -> z=f32[]"}},
    {"axpy(x: T[n], y: T[n], alpha: acc(T)[]) -> z: T[n]",
     {"x=f16[5] y=f16[5] alpha=f32[] -> z=f16[5]", "x=f16[?] y=f16[5] alpha=f32[] -> z=f16[5]",
      "x=f16[5] y=f16[5] alpha=f16[] -> !alpha has type f16, needs f32: T is f16 from x"}},
    {"nrm2(x: T[n]) -> z: T[]", {"x=f64[5] -> z=f64[]"}},

    /* ---- formulas ------------------------------------------------------------------------------------------------ */
    UNARY("identity"),
    BINARY("add"),
    BINARY("sub"),
    BINARY("mul"),
    BINARY("div"),
    {"add_constant(x: T[*s], c: float) -> y: T[*s]",
     {"x=f32[2] c=1 -> y=f32[2]", "x=f32[2] -> !c is missing; it needs a float"}},
    {"scale(x: T[*s], factor: float) -> y: T[*s]", {"x=f32[2] factor=0.5 -> y=f32[2]"}},
    {"scale_bias_relu(x: T[n, c, *s], scale: W[c], bias: W[c]) -> y: T[n, c, *s]",
     {"x=f16[2, 3, 4] scale=f32[3] bias=f32[3] -> y=f16[2, 3, 4]"}},
    {"bias_act(x: T[*r, c], bias: T[c], act: activation = 'none') -> y: T[*r, c], z: T[*r, c]?grad",
     {"x=f16[2, 3] bias=f16[3] -> y=f16[2, 3]", "x=f16[2, ?] bias=f16[3] want_z=true -> y=f16[2, 3] z=f16[2, 3]",
      "x=f16[2, 3] bias=f16[3] act='nonsense' -> !act is 'nonsense', needs 'none' or the name of an operator"}},
    UNARY("square"),
    UNARY("sqrt"),
    UNARY("rsqrt"),
    UNARY("exp"),
    UNARY("log"),
    UNARY("abs"),
    UNARY("sign"),
    UNARY("floor"),
    {"clamp(x: T[*s], low: float = -inf, high: float = inf) -> y: T[*s]", {"x=f32[2] low=0 -> y=f32[2]"}},
    {"pow(x: T[*s], exponent: float) -> y: T[*s]", {"x=f32[2] exponent=2 -> y=f32[2]"}},
    {"lerp(a: T[~*s], b: T[~*s], weight: T[~*s]) -> y: T[*s]", {"a=f32[2, 3] b=f32[3] weight=f32[] -> y=f32[2, 3]"}},
    UNARY("relu"),
    {"leaky_relu(x: T[*s], slope: float = 0.01) -> y: T[*s]", {"x=f32[2] -> y=f32[2]"}},
    {"prelu(x: T[n, c, *s], slope: W[c]) -> y: T[n, c, *s]", {"x=f16[2, 3] slope=f32[3] -> y=f16[2, 3]"}},
    {"elu(x: T[*s], alpha: float = 1.0) -> y: T[*s]", {"x=f32[2] alpha=2 -> y=f32[2]"}},
    {"celu(x: T[*s], alpha: float = 1.0) -> y: T[*s]", {"x=f32[2] -> y=f32[2]"}},
    UNARY("selu"),
    UNARY("sigmoid"),
    UNARY("log_sigmoid"),
    UNARY("hard_sigmoid"),
    UNARY("tanh"),
    {"softplus(x: T[*s], beta: float = 1.0, threshold: float = 20.0) -> y: T[*s]", {"x=f32[2] -> y=f32[2]"}},
    UNARY("softsign"),
    UNARY("gelu"),
    UNARY("gelu_tanh"),
    UNARY("quick_gelu"),
    UNARY("silu"),
    UNARY("hard_swish"),
    UNARY("mish"),
    GATED("swiglu"),
    GATED("geglu"),
    GATED("reglu"),
    HALVED("swiglu"),
    HALVED("geglu"),
    HALVED("reglu"),
    {"dropout(x: T[*s], p: float, seed: i64[2]) -> y: T[*s]",
     {"x=f32[2, 3] seed=i64[2] p=0.5 -> y=f32[2, 3]",
      "x=f32[2] seed=i64[3] p=0.5 -> !seed has shape (3), but its 3 has to be 2"}},
    {"mixed(x: T[*s], p: float) -> y: T[*s] where p >= 0 and p <= 1",
     {"x=f32[3] p=0.25 -> y=f32[3]", "x=f32[3] p=1 -> y=f32[3]", "x=f32[3] p=1.5 -> !mixed: needs p <= 1, but p is 1.5",
      "x=f32[3] p=-0.5 -> !mixed: needs p >= 0, but p is -0.5",
      "x=f32[3] p=nan -> !mixed: needs p >= 0, but p is nan"}},
    {"bounded(x: T[*s], q: float = 0.5, n: int = 3) -> y: T[*s] where q != 0, q < n",
     {"x=f32[3] q=-1e300 -> y=f32[3]", "x=f32[3] q=0 -> !bounded: needs q != 0, but q is 0.0",
      "x=f32[3] q=2.5 -> y=f32[3]", "x=f32[3] q=3 -> !bounded: needs q < n, but q is 3.0 and n is 3",
      "x=f32[3] q=2.5 n=2 -> !bounded: needs q < n, but q is 2.5 and n is 2"}},
    {"bias_dropout_add(x: T[*r, c], bias: T[c]?, residual: T[*r, c], p: float, seed: i64[2]) -> y: T[*r, c]",
     {"x=f32[2, 3] residual=f32[2, 3] p=0.5 seed=i64[2] -> y=f32[2, 3]"}},
    {"residual_scale(x: T[*r, c], residual: T[*r, c], scale: W[c]) -> y: T[*r, c]",
     {"x=f16[2, 3] residual=f16[2, 3] scale=f32[3] -> y=f16[2, 3]"}},
    LOSS("mse", ""),
    LOSS("l1", ""),
    LOSS("huber", "delta: float = 1.0, "),
    LOSS("bce_with_logits", "pos_weight: float = 1.0, "),
    LOSS("focal", "alpha: float = 0.25, gamma: float = 2.0, "),
    LOSS("kl_div", "log_target: bool = false, "),
    {"cosine_similarity(x: T[*s], y: T[*s], axis: axis = -1, eps: float = 1e-8) -> z: T[reduce(*s, axis)]",
     {"x=f32[2, 3] y=f32[2, 3] -> z=f32[2]", "x=f32[2, 3] y=f32[2, 3] axis=0 -> z=f32[3]"}},
    {"sgd_step(p: T[*s]!, g: G[*s], m: f32[*s]!?, lr: f32[], momentum: float = 0.0, weight_decay: float = 0.0, "
     "nesterov: "
     "bool = false)",
     {"p=f16[2, 3] g=f32[2, 3] lr=f32[] -> ", "p=f16[2, 3] g=f32[2] lr=f32[] -> !g has shape (2), but *s is (2, 3)"}},
    {"adamw_step(p: T[*s]!, g: G[*s], m: f32[*s]!, v: f32[*s]!, master: f32[*s]!?, lr: f32[], step: f32[], beta1: "
     "float = "
     "0.9, beta2: float = 0.999, eps: float = 1e-8, weight_decay: float = 0.01)",
     {"p=bf16[5] g=bf16[5] m=f32[5] v=f32[5] master=f32[5] lr=f32[] step=f32[] -> ",
      "p=bf16[5] g=bf16[5] m=f32[5] v=f32[5] lr=f32[1] step=f32[] -> !lr has rank 1, needs 0: []"}},
    {"sgd_step_list(ps: [T[*s]]!, gs: [G[*s]], ms: [f32[*s]]!?, lr: f32[], momentum: float = 0.0)",
     {"ps=[f32[2], f32[3, 4]] gs=[f32[2], f32[3, 4]] lr=f32[] -> ",
      "ps=[f32[2], f32[3]] gs=[f32[2]] lr=f32[] -> !gs has 1 tensors, but ps has 2",
      "ps=[f32[2], f32[3]] gs=[f32[2], f32[4]] lr=f32[] -> !gs[1] has shape (4), but *s is (3) from ps[1] (3)"}},
    {"adamw_step_list(ps: [T[*s]]!, gs: [G[*s]], ms: [f32[*s]]!, vs: [f32[*s]]!, masters: [f32[*s]]!?, lr: f32[], "
     "step: "
     "f32[], beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8, weight_decay: float = 0.01)",
     {"ps=[f32[2]] gs=[f32[2]] ms=[f32[2]] vs=[f32[2]] lr=f32[] step=f32[] -> "}},
    {"clip_grad_norm(gs: [T[*s]]!, most: f32[]) -> norm: f32[]",
     {"gs=[f16[2], f16[3, 3], f16[]] most=f32[] -> norm=f32[]"}},
    {"quantize(x: T[*s], scale: f32[], zero: i32[]?) -> y: i8[*s]", {"x=f32[2, 3] scale=f32[] -> y=i8[2, 3]"}},
    {"quantize_channel(x: T[c, *s], scale: f32[c], zero: i32[c]?) -> y: i8[c, *s]",
     {"x=f32[2, 3] scale=f32[2] zero=i32[2] -> y=i8[2, 3]"}},
    {"dequantize(x: i8[*s], scale: f32[], zero: i32[]?, out: dtype = f32) -> y: out[*s]",
     {"x=i8[2, 3] scale=f32[] -> y=f32[2, 3]", "x=i8[2, 3] scale=f32[] out=bf16 -> y=bf16[2, 3]"}},
    {"dequantize_channel(x: i8[c, *s], scale: f32[c], zero: i32[c]?, out: dtype = f32) -> y: out[c, *s]",
     {"x=i8[2, 3] scale=f32[2] -> y=f32[2, 3]"}},
    {"fake_quantize(x: T[*s], scale: f32[~*s], zero: i32[~*s]?, bits: int = 8) -> y: T[*s] where bits >= 2 and bits <= "
     "8",
     {"x=f16[4, 5] scale=f32[4, 1] -> y=f16[4, 5]",
      "x=f16[4, 5] scale=f32[] bits=1 -> !needs bits >= 2, but bits is 1"}},

    /* ---- matrices ------------------------------------------------------------------------------------------------ */
    {"linear(x: T[*r, k], w: T[n, k], b: T[n]?, residual: T[*r, n]?, act: activation = 'none') -> y: T[*r, n], z: "
     "T[*r, "
     "n]?grad",
     {"x=f32[2, 5] w=f32[7, 5] -> y=f32[2, 7]", "x=f32[5] w=f32[7, 5] b=f32[7] want_z=true -> y=f32[7] z=f32[7]",
      "x=f16[?, ?] w=f16[7, 5] residual=f16[2, 7] -> y=f16[2, 7]", "x=f32[..] w=f32[7, 5] -> y=f32[..]",
      "x=f32[2, 5] w=f32[7, 6] -> !linear: w has shape (7, 6), but k is 5 from x (2, 5)",
      "x=f32[2, 5] w=f64[7, 5] -> !linear: w has type f64, needs f32: T is f32 from x"}},
    {"matmul(a: T[*p, m, k], b: T[*q, k, n], alpha: float = 1.0) -> y: T[broadcast(*p, *q), m, n]",
     {"a=f32[2, 3] b=f32[3, 4] -> y=f32[2, 4]", "a=f32[5, 1, 2, 3] b=f32[6, 3, 4] -> y=f32[5, 6, 2, 4]",
      "a=f32[?, 2, 3] b=f32[1, 3, ?] -> y=f32[?, 2, ?]", "a=f32[?, 2, 3] b=f32[7, 3, 4] -> y=f32[7, 2, 4]",
      "a=f32[..] b=f32[3, 4] -> y=f32[..]", "a=f32[2, 2, 3] b=f32[3, 3, 4] -> !*p (2) and *q (3) do not broadcast",
      "a=f32[3] b=f32[3, 4] -> !a has rank 1, needs at least 2: [*p, m, k]"}},
    {"rows(w: T[*p], x: T[*q], y: T[*r]) -> z: T[broadcast(*p, rows(*q), rows(*r))], v: T[rows(*q, *r)], u: "
     "T[broadcast(*p, *q, *r)]",
     {"w=f32[] x=f32[5, 3] y=f32[3] -> z=f32[5] v=f32[5] u=f32[5, 3]",
      "w=f32[4] x=f32[5, 1] y=f32[2, 1, 4] -> z=f32[2, 5, 4] v=f32[2, 5] u=f32[2, 5, 4]",
      "w=f32[5, 1] x=f32[5, 3] y=f32[] -> z=f32[5, 1] v=f32[5] u=f32[5, 3]",
      "w=f32[..] x=f32[5, 3] y=f32[3] -> z=f32[..] v=f32[5] u=f32[..]",
      "w=f32[] x=f32[] y=f32[?] -> z=f32[] v=f32[] u=f32[?]",
      "w=f32[2] x=f32[5, 3] y=f32[] -> !*p (2) and *q (5, 3) do not broadcast",
      "w=f32[5] x=f32[5, 3] y=f32[] -> !*p (5) and *q (5, 3) do not broadcast"}},
    {"row(d: T[rows(*s)], e: T[rows(*t)], x: T[*t]) -> y: T[rows(*s)], z: T[rows(*t)]",
     {"d=f32[] e=f32[2] x=f32[2, 3] -> y=f32[] z=f32[2]", "d=f32[4, 5] e=f32[] x=f32[] -> y=f32[4, 5] z=f32[]",
      "d=f32[..] e=f32[?] x=f32[2, 3] -> y=f32[..] z=f32[2]",
      "d=f32[] e=f32[3] x=f32[2, 3] -> !e has shape (3), needs (2): rows(*t)"}},
    {"matvec(a: T[*p, m, k], x: T[*p, k]) -> y: T[*p, m]", {"a=f32[9, 2, 3] x=f32[9, 3] -> y=f32[9, 2]"}},
    {"gated_linear(x: T[*r, k], w: T[2*n, k], act: activation = 'silu') -> y: T[*r, n]",
     {"x=f32[5, 3] w=f32[8, 3] -> y=f32[5, 4]", "x=f32[5, 3] w=f32[?, 3] -> y=f32[5, ?]",
      "x=f32[5, 3] w=f32[7, 3] -> !w has shape (7, 3), but its 7 has to be 2 * n"}},
    {"linear_cross_entropy(x: T[m, h], w: T[v, h], target: i32|i64[m], ignore_index: int = -100, label_smoothing: "
     "float = "
     "0.0, z_loss: float = 0.0, reduction: 'mean'|'sum'|'none' = 'mean') -> loss: acc(T)[m if reduction == 'none' "
     "else], "
     "lse: acc(T)[m], gx: T[m, h]?grad, gw: T[v, h]?grad",
     {"x=f16[8, 4] w=f16[100, 4] target=i64[8] want_gw=true -> loss=f32[] lse=f32[8] gw=f16[100, 4]",
      "x=f16[?, 4] w=f16[100, 4] target=i64[8] reduction='none' -> loss=f32[8] lse=f32[8]"}},
    {"linear_int8(x: i8[*r, k], w: i8[n, k], x_scale: f32[~*r], w_scale: f32[n], b: f32[n]?, out: dtype, act: "
     "activation "
     "= 'none') -> y: out[*r, n]",
     {"x=i8[2, 3, 8] w=i8[5, 8] x_scale=f32[] w_scale=f32[5] out=f16 -> y=f16[2, 3, 5]",
      "x=i8[2, 3, 8] w=i8[5, 8] x_scale=f32[3] w_scale=f32[5] out=f32 -> y=f32[2, 3, 5]",
      "x=i8[2, 8] w=i8[5, 8] x_scale=f32[] w_scale=f32[5] -> !out is missing; it needs a type"}},
    {"linear_fp8(x: e4m3|e5m2[*r, k], w: e4m3|e5m2[n, k], x_scale: f32[~*r], w_scale: f32[~n], b: f32[n]?, out: dtype "
     "= "
     "bf16, act: activation = 'none') -> y: out[*r, n]",
     {"x=e4m3[4, 8] w=e5m2[5, 8] x_scale=f32[] w_scale=f32[1] -> y=bf16[4, 5]",
      "x=e4m3[4, 8] w=e5m2[5, 8] x_scale=f32[] w_scale=f32[2] -> !its 2 has to be 1 or n = 5 from w (5, 8)"}},
    {"grouped_linear(x: T[t, k], w: T[e, n, k], offsets: i32[e + 1]) -> y: T[t, n]",
     {"x=f32[9, 4] w=f32[3, 5, 4] offsets=i32[4] -> y=f32[9, 5]",
      "x=f32[9, 4] w=f32[?, 5, 4] offsets=i32[4] -> y=f32[9, 5]",
      "x=f32[9, 4] w=f32[3, 5, 4] offsets=i32[3] -> !offsets has shape (3), but its 3 has to be e + 1 = 4"}},
    {"conv1d(x: T[n, c, l], f: T[k, c / groups, p], b: T[k]?, residual: T[n, k, (l + 2*pad[0] - dilation[0]*(p - 1) - "
     "1) / "
     "stride[0] + 1]?, stride: ints[1] = [1], pad: ints[1] = [0], dilation: ints[1] = [1], groups: int = 1, act: "
     "activation = 'none') -> y: T[n, k, (l + 2*pad[0] - dilation[0]*(p - 1) - 1) / stride[0] + 1] where c % groups == "
     "0",
     {"x=f32[2, 3, 16] f=f32[8, 3, 5] -> y=f32[2, 8, 12]",
      "x=f32[2, 3, 16] f=f32[8, 3, 5] residual=f32[2, 8, 8] stride=[2] pad=[2] -> y=f32[2, 8, 8]",
      "x=f32[2, 3, 16] f=f32[8, 3, 5] stride=2 -> y=f32[2, 8, 6]", "x=f32[2, 3, ?] f=f32[8, 3, 5] -> y=f32[2, 8, ?]"}},
    {"conv2d(x: T[n, c, h, w], f: T[k, c / groups, p, q], b: T[k]?, stride: ints[2] = [1, 1], pad: ints[2] = [0, 0], "
     "dilation: ints[2] = [1, 1], groups: int = 1, act: activation = 'none') -> y: T[n, k, (h + 2*pad[0] - "
     "dilation[0]*(p "
     "- 1) - 1) / stride[0] + 1, (w + 2*pad[1] - dilation[1]*(q - 1) - 1) / stride[1] + 1] where c % groups == 0, k % "
     "groups == 0",
     {"x=f32[1, 6, 8, 8] f=f32[4, 3, 3, 3] groups=2 pad=[1, 0] -> y=f32[1, 4, 8, 6]",
      "x=f32[1, 6, ?, 8] f=f32[4, 6, 3, 3] -> y=f32[1, 4, ?, 6]",
      "x=f32[1, 6, 8, 8] f=f32[4, 3, 3, 3] -> !f has shape (4, 3, 3, 3), but its 3 has to be c / groups = 6",
      "x=f32[1, 6, 8, 8] f=f32[4, 1, 3, 3] groups=4 -> !conv2d: needs c % groups == 0, but c is 6 and groups is 4",
      "x=f32[1, 6, 8, 8] f=f32[4, 6, 3, 3] stride=[0, 1] -> !divides by zero",
      "x=f32[1, 6, 2, 8] f=f32[4, 6, 4, 3] -> !y would have a size of -1",
      "x=f32[1, 6, 8, 8] f=f32[4, 6, 3, 3] stride=[1] -> !stride has 1 elements, needs 2"}},
    {"conv2d_same(x: T[n, c, h, w], f: T[k, c / groups, p, q], b: T[k]?, stride: int = 1, pad: int = 0, groups: int = "
     "1) -> "
     "y: T[n, k, (h + 2*pad - p) / stride + 1, (w + 2*pad - q) / stride + 1] where c % groups == 0",
     {"x=f32[1, 6, 8, 8] f=f32[4, 6, 3, 3] pad=1 -> y=f32[1, 4, 8, 8]"}},
    {"conv3d(x: T[n, c, d, h, w], f: T[k, c / groups, o, p, q], b: T[k]?, stride: ints[3] = [1, 1, 1], pad: ints[3] = "
     "[0, "
     "0, 0], dilation: ints[3] = [1, 1, 1], groups: int = 1, act: activation = 'none') -> y: T[n, k, (d + 2*pad[0] - "
     "dilation[0]*(o - 1) - 1) / stride[0] + 1, (h + 2*pad[1] - dilation[1]*(p - 1) - 1) / stride[1] + 1, (w + "
     "2*pad[2] - "
     "dilation[2]*(q - 1) - 1) / stride[2] + 1] where c % groups == 0",
     {"x=f32[1, 2, 4, 5, 6] f=f32[3, 2, 2, 2, 2] -> y=f32[1, 3, 3, 4, 5]"}},
    {"conv_transpose2d(x: T[n, c, h, w], f: T[c, k, p, q], b: T[groups * k]?, stride: ints[2] = [1, 1], pad: ints[2] = "
     "[0, "
     "0], output_pad: ints[2] = [0, 0], dilation: ints[2] = [1, 1], groups: int = 1, act: activation = 'none') -> y: "
     "T[n, "
     "groups * k, (h - 1)*stride[0] - 2*pad[0] + dilation[0]*(p - 1) + output_pad[0] + 1, (w - 1)*stride[1] - 2*pad[1] "
     "+ "
     "dilation[1]*(q - 1) + output_pad[1] + 1] where c % groups == 0",
     {"x=f32[1, 4, 5, 5] f=f32[4, 3, 3, 3] stride=[2, 2] -> y=f32[1, 3, 11, 11]",
      "x=f32[1, 4, 5, ?] f=f32[4, 3, 3, 3] groups=2 b=f32[6] -> y=f32[1, 6, 7, ?]"}},
    {"max_pool2d(x: T[n, c, h, w], size: ints[2], stride: ints[2], pad: ints[2] = [0, 0]) -> y: T[n, c, (h + 2*pad[0] "
     "- "
     "size[0]) / stride[0] + 1, (w + 2*pad[1] - size[1]) / stride[1] + 1], index: i64[n, c, (h + 2*pad[0] - size[0]) / "
     "stride[0] + 1, (w + 2*pad[1] - size[1]) / stride[1] + 1]?grad",
     {"x=f32[1, 2, 8, 9] size=[2, 2] stride=[2, 2] -> y=f32[1, 2, 4, 4]",
      "x=f32[1, 2, 8, ?] size=2 stride=2 want_index=true -> y=f32[1, 2, 4, ?] index=i64[1, 2, 4, ?]"}},
    {"avg_pool2d(x: T[n, c, h, w], size: ints[2], stride: ints[2], pad: ints[2] = [0, 0], count_pad: bool = true) -> "
     "y: T[n, "
     "c, (h + 2*pad[0] - size[0]) / stride[0] + 1, (w + 2*pad[1] - size[1]) / stride[1] + 1]",
     {"x=f32[1, 2, 8, 9] size=[2, 2] stride=[2, 2] -> y=f32[1, 2, 4, 4]"}},
    {"adaptive_avg_pool2d(x: T[n, c, h, w], size: ints[2]) -> y: T[n, c, *size]",
     {"x=f32[1, 2, 8, 9] size=[3, 4] -> y=f32[1, 2, 3, 4]", "x=f32[1, 2, ?, ?] size=1 -> y=f32[1, 2, 1, 1]"}},
    {"global_avg_pool(x: T[n, c, *s], keepdim: bool = false) -> y: T[n, c]", {"x=f32[1, 2, 8, 9] -> y=f32[1, 2]"}},
    {"resize(x: T[n, c, *s], size: ints, mode: 'nearest'|'bilinear'|'bicubic' = 'nearest') -> y: T[n, c, *size]",
     {"x=f32[1, 2, 8, 9] size=[16, 18] mode='bilinear' -> y=f32[1, 2, 16, 18]",
      "x=f32[1, 2, 8] size=[16] mode='linear' -> !mode is 'linear', needs 'nearest', 'bilinear' or 'bicubic'"}},
    {"attention(q: T[b, hq, m, d], k: T[b, hk, n, d], v: T[b, hk, n, e], bias: T[~b, ~hq, m, n]?, mask: bool[~b, ~hq, "
     "m, "
     "n]?, sinks: f32[hq]?, causal: bool = false, window: ints = [-1, -1], scale: float?, softcap: float = 0.0, "
     "dropout: "
     "float = 0.0, seed: i64[2]?) -> o: T[b, hq, m, e], lse: f32[b, hq, m] where hq % hk == 0",
     {"q=f16[2, 8, 16, 64] k=f16[2, 4, 20, 64] v=f16[2, 4, 20, 32] -> o=f16[2, 8, 16, 32] lse=f32[2, 8, 16]",
      "q=f16[2, 8, 16, 64] k=f16[2, 4, 20, 64] v=f16[2, 4, 20, 32] mask=bool[1, 8, 16, 20] scale=0.5 -> "
      "o=f16[2, 8, 16, 32] lse=f32[2, 8, 16]",
      "q=f16[?, 8, ?, 64] k=f16[2, 4, ?, 64] v=f16[2, 4, 20, ?] -> o=f16[2, 8, ?, ?] lse=f32[2, 8, ?]",
      "q=f16[2, 8, 16, 64] k=f16[2, 3, 20, 64] v=f16[2, 3, 20, 32] -> !needs hq % hk == 0, but hq is 8 and hk is 3",
      "q=f16[2, 8, 16, 64] k=f16[2, 4, 20, 64] v=f16[2, 4, 20, 32] mask=bool[3, 8, 16, 20] -> !mask has shape (3, 8, "
      "16, 20), "
      "but its 3 has to be 1 or b = 2 from q"}},
    {"attention_varlen(q: T[tq, hq, d], k: T[tk, hk, d], v: T[tk, hk, e], cu_q: i32[b + 1], cu_k: i32[b + 1], max_q: "
     "int, "
     "max_k: int, causal: bool = false, window: ints[2] = [-1, -1], scale: float?) -> o: T[tq, hq, e], lse: f32[hq, "
     "tq] "
     "where hq % hk == 0",
     {"q=f16[30, 8, 64] k=f16[40, 4, 64] v=f16[40, 4, 64] cu_q=i32[4] cu_k=i32[4] max_q=12 max_k=20 -> o=f16[30, 8, "
      "64] "
      "lse=f32[8, 30]",
      "q=f16[30, 8, 64] k=f16[40, 4, 64] v=f16[40, 4, 64] cu_q=i32[4] cu_k=i32[5] max_q=12 max_k=20 -> !cu_k has shape "
      "(5), "
      "but its 5 has to be b + 1 = 4, where b is 3",
      "q=f16[30, 8, 64] k=f16[40, 4, 64] v=f16[40, 4, 64] cu_q=i32[0] cu_k=i32[0] max_q=12 max_k=20 -> !cu_q has shape "
      "(0), "
      "but its 0 has to be b + 1"}},
    {"attention_decode(q: T[b, hq, d], k: T[pages, page, hk, d], v: T[pages, page, hk, e], table: i32[b, most], "
     "length: "
     "i32[b], scale: float?, window: int = -1) -> o: T[b, hq, e] where hq % hk == 0",
     {"q=bf16[3, 8, 64] k=bf16[100, 16, 2, 64] v=bf16[100, 16, 2, 64] table=i32[3, 7] length=i32[3] -> o=bf16[3, 8, "
      "64]"}},
    {"rnn(x: T[t, b, i], h: T[layers * dirs, b, n], w_ih: [T[n, k]], w_hh: [T[n, n]], length: i32[b]?, layers: int = "
     "1, dirs: "
     "int = 1, act: 'tanh'|'relu' = 'tanh') -> y: T[t, b, dirs * n], h_n: T[layers * dirs, b, n] where dirs >= 1 and "
     "dirs <= 2",
     {"x=f32[5, 2, 3] h=f32[1, 2, 4] w_ih=[f32[4, 3]] w_hh=[f32[4, 4]] -> y=f32[5, 2, 4] h_n=f32[1, 2, 4]",
      "x=f32[5, 2, 3] h=f32[4, 2, 4] w_ih=[f32[4, 3], f32[4, 8]] w_hh=[f32[4, 4], f32[4, 4]] layers=2 dirs=2 -> "
      "y=f32[5, 2, 8] h_n=f32[4, 2, 4]",
      "x=f32[5, 2, 3] h=f32[3, 2, 4] w_ih=[f32[4, 3]] w_hh=[f32[4, 4]] -> !h has shape (3, 2, 4), but its 3 has to be "
      "layers "
      "* dirs = 1"}},
    {"lstm(x: T[t, b, i], h: T[layers * dirs, b, n], c: T[layers * dirs, b, n], w_ih: [T[4 * n, k]], w_hh: [T[4 * n, "
     "n]], "
     "length: i32[b]?, layers: int = 1, dirs: int = 1) -> y: T[t, b, dirs * n], h_n: T[layers * dirs, b, n], c_n: "
     "T[layers * "
     "dirs, b, n]",
     {"x=f32[5, 2, 3] h=f32[1, 2, 4] c=f32[1, 2, 4] w_ih=[f32[16, 3]] w_hh=[f32[16, 4]] -> y=f32[5, 2, 4] h_n=f32[1, "
      "2, 4] "
      "c_n=f32[1, 2, 4]",
      "x=f32[5, 2, 3] h=f32[1, 2, 4] c=f32[1, 2, 4] w_ih=[f32[15, 3]] w_hh=[f32[16, 4]] -> !w_ih[0] has shape (15, "
      "3)"}},
    {"gru(x: T[t, b, i], h: T[layers * dirs, b, n], w_ih: [T[3 * n, k]], w_hh: [T[3 * n, n]], length: i32[b]?, layers: "
     "int = "
     "1, dirs: int = 1) -> y: T[t, b, dirs * n], h_n: T[layers * dirs, b, n]",
     {"x=f32[?, 2, 3] h=f32[1, 2, ?] w_ih=[f32[12, 3]] w_hh=[f32[12, 4]] -> y=f32[?, 2, 4] h_n=f32[1, 2, 4]"}},

    /* ---- sparse, spectral ---------------------------------------------------------------------------------------- */
    {"spmv<I: i32 i64>(values: T[nnz], col: I[nnz], row: I[m + 1], x: T[n]) -> y: T[m]",
     {"values=f32[9] col=i32[9] row=i32[5] x=f32[7] -> y=f32[4]",
      "values=f32[?] col=i64[9] row=i64[?] x=f32[7] -> y=f32[?]",
      "values=f32[9] col=i32[9] row=i64[5] x=f32[7] -> !row has type i64, needs i32: I is i32 from col",
      "values=f32[9] col=i16[9] row=i32[5] x=f32[7] -> !col has type i16, needs i32 or i64",
      "values=f32[9] col=i32[9] row=i32[0] x=f32[7] -> !row has shape (0), but its 0 has to be m + 1"}},
    {"spmm<I: i32 i64>(values: T[nnz], col: I[nnz], row: I[m + 1], b: T[k, n]) -> y: T[m, n]",
     {"values=f32[9] col=i32[9] row=i32[5] b=f32[7, 2] -> y=f32[4, 2]"}},
    {"sddmm<I: i32 i64>(col: I[nnz], row: I[m + 1], a: T[m, k], b: T[n, k]) -> values: T[nnz]",
     {"col=i32[9] row=i32[5] a=f32[4, 3] b=f32[6, 3] -> values=f32[9]",
      "col=i32[9] row=i32[5] a=f32[5, 3] b=f32[6, 3] -> !row has shape (5), but its 5 has to be m + 1 = 6"}},
    {"sparse_softmax<I: i32 i64>(values: T[nnz], row: I[m + 1], scale: float = 1.0) -> y: T[nnz]",
     {"values=f32[9] row=i32[5] -> y=f32[9]"}},
    {"block_sparse_attention(q: T[b, h, m, d], k: T[b, h, n, d], v: T[b, h, n, e], col: i32[blocks], row: i32[m / "
     "block + 1], "
     "block: int, scale: float?) -> o: T[b, h, m, e], lse: f32[b, h, m] where m % block == 0, n % block == 0",
     {"q=f16[1, 2, 64, 8] k=f16[1, 2, 32, 8] v=f16[1, 2, 32, 8] col=i32[5] row=i32[5] block=16 -> o=f16[1, 2, 64, 8] "
      "lse=f32[1, "
      "2, 64]",
      "q=f16[1, 2, 64, 8] k=f16[1, 2, 32, 8] v=f16[1, 2, 32, 8] col=i32[5] row=i32[5] block=0 -> !divides by zero"}},
    {"linear_2_4(x: T[*r, k], values: T[n, k / 2], meta: i16[n, k / 16], b: T[n]?, act: activation = 'none') -> y: "
     "T[*r, n] "
     "where k % 16 == 0",
     {"x=f16[3, 32] values=f16[8, 16] meta=i16[8, 2] -> y=f16[3, 8]",
      "x=f16[3, 24] values=f16[8, 12] meta=i16[8, 1] -> !needs k % 16 == 0, but k is 24"}},
    {"fft(x: complex(T)[*s], axis: axis = -1) -> y: complex(T)[*s]",
     {"x=c64[8] -> y=c64[8]", "x=c128[2, ?] axis=0 -> y=c128[2, ?]", "x=f32[8] -> !x has type f32, needs c64 or c128"}},
    {"ifft(x: complex(T)[*s], axis: axis = -1) -> y: complex(T)[*s]", {"x=c64[8] -> y=c64[8]"}},
    {"rfft(x: T[*r, n]) -> y: complex(T)[*r, n / 2 + 1]",
     {"x=f32[3, 8] -> y=c64[3, 5]", "x=f64[3, ?] -> y=c128[3, ?]"}},
    {"irfft(x: complex(T)[*r, m], n: int) -> y: T[*r, n] where m == n / 2 + 1",
     {"x=c64[3, 5] n=8 -> y=f32[3, 8]", "x=c128[3, 5] n=9 -> y=f64[3, 9]",
      "x=c64[3, 5] n=7 -> !needs m == n / 2 + 1, but m is 5"}},
    {"fft_conv1d(x: T[b, c, n], h: T[c, k]) -> y: T[b, c, n]", {"x=f32[2, 3, 9] h=f32[3, 5] -> y=f32[2, 3, 9]"}},

    /* ---- gradients, and corners of the language that no line above has ------------------------------------------- */
    {"softmax_grad(y: T[*s], dy: T[*s], axis: axis = -1, scale: float = 1.0) -> dx: T[*s]",
     {"y=f32[2, 3] dy=f32[2, 3] -> dx=f32[2, 3]"}},
    {"sum_grad(dy: T[reduce(*shape, axes, keepdim)], shape: ints, axes: axes = [], keepdim: bool = false) -> dx: "
     "T[*shape]",
     {"dy=f32[] shape=[2, 3] -> dx=f32[2, 3]", "dy=f32[2] shape=[2, 3] axes=[-1] -> dx=f32[2, 3]",
      "dy=f32[2, 1] shape=[2, -1] axes=[1] keepdim=true -> !shape has a size of -1",
      "dy=f32[2] shape=[2, 3] axes=[0] -> !dy has shape (2), needs (3): reduce(*shape, axes, keepdim)",
      "dy=f32[2] shape=[2, 3] axes=[2] -> !axes has 2, shape has rank 2 (-2 … 1)",
      "dy=f32[] shape=[2, -3] -> !shape has a size of -3"}},
    {"cross_entropy_grad(gx: T[*r, v], dloss: acc(T)[*r if reduction == 'none' else], reduction: 'mean'|'sum'|'none' = "
     "'mean') "
     "-> dx: T[*r, v]",
     {"gx=f16[5, 10] dloss=f32[] -> dx=f16[5, 10]", "gx=f16[5, 10] dloss=f32[5] reduction='none' -> dx=f16[5, 10]",
      "gx=f16[5, 10] dloss=f32[5] -> !dloss has rank 1, needs 0: []"}},
    {"concat_grad<T: any>(dy: T[concat(*s, axis)], xs: [T[*s]], axis: axis = 0) -> dxs: [T[*s]]",
     {"dy=f32[6, 3] xs=[f32[2, 3], f32[4, 3]] -> dxs=f32[2, 3]",
      "dy=f32[7, 3] xs=[f32[2, 3], f32[4, 3]] -> !dy has shape (7, 3), needs (6, 3): concat(*s, axis)"}},
    {"pad<T: any>(x: T[*s], pad: ints) -> y: T[pad(*s, pad)]",
     {"x=i8[2, 3] pad=[1, 2] -> y=i8[2, 6]", "x=f32[2, 3] pad=[-1, 0, 4, 5] -> y=f32[11, 2]",
      "x=f32[?, 3] pad=[1, 1, 1, 1] -> y=f32[?, 5]",
      "x=f32[2, 3] pad=[1] -> !pad is [1], which is not a pair for each of some dimensions of *s (2, 3)",
      "x=f32[2, 3] pad=[-2, -2] -> !pad is [-2, -2], which leaves no size for a dimension of *s (2, 3)",
      "x=f32[2] pad=[9223372036854775807, 0] -> !which leaves no size for a dimension of *s (2)"}},
    {"pad_grad(dy: T[pad(*shape, pad)], shape: ints, pad: ints) -> dx: T[*shape]",
     {"dy=f32[2, 6] shape=[2, 3] pad=[1, 2] -> dx=f32[2, 3]",
      "dy=f32[2, 5] shape=[2, 3] pad=[1, 2] -> !dy has shape (2, 5), needs (2, 6): pad(*shape, pad)"}},
    {"repeat<T: any>(x: T[*s], repeats: ints) -> y: T[repeat(*s, repeats)]",
     {"x=i8[2, 3] repeats=[2, 1] -> y=i8[4, 3]", "x=f32[3] repeats=[4, 2] -> y=f32[4, 6]",
      "x=f32[?, 3] repeats=[2, 2] -> y=f32[?, 6]",
      "x=f32[2, 3] repeats=[2] -> !repeats is [2], which needs a number for each dimension of *s (2, 3)",
      "x=f32[2] repeats=[-1] -> !repeats is [-1], which has a negative number of repeats for *s (2)",
      "x=f32[4] repeats=[4611686018427387904] -> !which has more repeats than 64 bits can count of *s (4)"}},
    {"stack<T: any>(xs: [T[*s]], count: int) -> y: T[count, *s]",
     {"xs=[f32[2], f32[2]] count=2 -> y=f32[2, 2]",
      "xs=[f32[2], f32[3]] count=2 -> !xs[1] has shape (3), but *s is (2) from xs[0] (2)"}},
    {"outer(a: T[*p], b: T[*q]) -> y: T[*p, *q]", {"a=f32[2] b=f32[3, 4] -> y=f32[2, 3, 4]"}},
    {"square_matrix(x: T[n, n]) -> y: T[n]",
     {"x=f32[3, 3] -> y=f32[3]", "x=f32[3, 4] -> !x has shape (3, 4), but n is 3 elsewhere in it"}},
    {"solves(x: T[n - 1], y: T[m*k], z: T[-p + 9], k: int) -> w: T[n, m, p]",
     {"x=f32[4] y=f32[6] z=f32[2] k=3 -> w=f32[5, 2, 7]",
      "x=f32[4] y=f32[7] z=f32[2] k=3 -> !y has shape (7), but its 7 has to be m * k",
      "x=f32[4] y=f32[0] z=f32[2] k=0 -> !cannot be told from the inputs given",
      "x=f32[4] y=f32[6] z=f32[10] k=3 -> !has to be -p + 9", "x=f32[?] y=f32[?] z=f32[?] k=3 -> w=f32[?, ?, ?]"}},
    {"chained(x: T[a + b], y: T[b * c], z: T[c]) -> w: T[a, b, c]", {"x=f32[9] y=f32[12] z=f32[3] -> w=f32[5, 4, 3]"}},
    {"optional_size(x: T[m], b: T[n]?) -> y: T[m, n]",
     {"x=f32[2] b=f32[3] -> y=f32[2, 3]",
      "x=f32[2] -> !n, a size of y, cannot be told from the inputs given: absent are b"}},
    {"chosen<T: int>(x: T[if flat else *s, c], flat: bool = false, names: str = 'abc') -> y: T[*s, c if not flat and "
     "names == "
     "'abc' else 1, 2]",
     {"x=i32[4, 5] -> y=i32[4, 5]", "x=i32[] flat=true -> y=i32[1, 2]", "x=i32[4, 5] names='x' -> y=i32[1, 2]"}},
    {"fixed_rank(x: T[2, ~n, 3], y: T[n]) -> z: T[n]",
     {"x=f32[2, 1, 3] y=f32[5] -> z=f32[5]", "x=f32[2, 1, 4] y=f32[5] -> !its 4 has to be 3"}},
    {"soft(x: T[~n], y: T[~n]) -> z: T[n]",
     {"x=f32[1] y=f32[5] -> z=f32[5]", "x=f32[?] y=f32[5] -> z=f32[5]", "x=f32[0] y=f32[1] -> z=f32[0]",
      "x=f32[?] y=f32[1] -> z=f32[?]"}},
    {"modes(x: T[n], a: int = -5, b: int = 2) -> y: T[(a % b + 3) / b], z: T[-a / b] where a / b == -3 or a != -5",
     {"x=f32[1] -> y=f32[2] z=f32[2]", "x=f32[1] a=-7 b=-2 -> !y would have a size of -1"}},
};

#undef UNARY
#undef BINARY
#undef REDUCTION
#undef ARG_REDUCTION
#undef SCAN
#undef LOSS
#undef GATED
#undef HALVED

enum { CATALOGUE_ROWS = sizeof catalogue / sizeof catalogue[0] };

#endif
