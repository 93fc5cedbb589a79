/* Calls that are wrong: each gets a status and a sentence in the user's terms, from the one validator. */
#include "tests/test.h"

#include "contract_call.h"

static call_text call;

typedef struct bad_call {
    const char *call;
    tn_status status;
    const char *fragment;
} bad_call;

static const char softmax[] = "softmax(x: T[*s], mask: bool[~*s]?, axis: axis = -1, scale: float = 1.0, causal: bool = "
                              "false) -> y: T[*s] where not "
                              "causal or (rank(*s) >= 2 and axis == rank(*s) - 1)";
static const bad_call softmax_calls[] = {
    {"", TN_BAD_VALUE, "softmax: x is missing"},
    {"mask=bool[2]", TN_BAD_VALUE, "softmax: x is missing"},
    {"x=[f32[2], f32[2]]", TN_BAD_VALUE, "softmax: x is one tensor, not 2"},
    {"x=f32[2] mask=[bool[2], bool[2]]", TN_BAD_VALUE, "softmax: mask is one tensor, not 2"},
    {"x=f32[]", TN_BAD_SHAPE, "softmax: x has rank 0, needs at least 1"},
    {"x=i32[2]", TN_BAD_TYPE, "softmax: x has type i32, needs f16, bf16, f32 or f64"},
    {"x=bool[2]", TN_BAD_TYPE, "softmax: x has type bool, needs f16, bf16, f32 or f64"},
    {"x=c64[2]", TN_BAD_TYPE, "softmax: x has type c64"},
    {"x=e4m3[2]", TN_BAD_TYPE, "softmax: x has type e4m3"},
    {"x=f32[2] mask=f32[2]", TN_BAD_TYPE, "softmax: mask has type f32, needs bool"},
    {"x=f32[2, 3] mask=bool[2]", TN_BAD_SHAPE,
     "softmax: mask has shape (2), which does not broadcast to *s = (2, 3) from x (2, 3)"},
    {"x=f32[2, 3] mask=bool[1, 2, 3]", TN_BAD_SHAPE, "softmax: mask has shape (1, 2, 3), which does not broadcast"},
    {"x=f32[2, 3] mask=bool[3, 3]", TN_BAD_SHAPE, "softmax: mask has shape (3, 3), which does not broadcast"},
    {"x=f32[1, 3] mask=bool[0, 3]", TN_BAD_SHAPE, "softmax: mask has shape (0, 3), which does not broadcast"},
    {"x=f32[?, 3] mask=bool[4, 2]", TN_BAD_SHAPE, "softmax: mask has shape (4, 2), which does not broadcast"},
    {"x=f32[2, 3] axis=2", TN_BAD_VALUE, "softmax: axis is 2, x has rank 2 (-2 … 1)"},
    {"x=f32[2, 3] axis=-3", TN_BAD_VALUE, "softmax: axis is -3, x has rank 2 (-2 … 1)"},
    {"x=f32[2, 3] axis=9223372036854775807", TN_BAD_VALUE, "softmax: axis is 9223372036854775807, x has rank 2"},
    {"x=f32[2, 3] axis=-9223372036854775808", TN_BAD_VALUE, "softmax: axis is -9223372036854775808"},
    {"x=f32[2, 3] axis=1.0", TN_BAD_TYPE, "softmax: axis needs an int, not a float"},
    {"x=f32[2, 3] axis='x'", TN_BAD_TYPE, "softmax: axis needs an int, not a str"},
    {"x=f32[2, 3] axis=true", TN_BAD_TYPE, "softmax: axis needs an int, not a bool"},
    {"x=f32[2, 3] axis=[1]", TN_BAD_TYPE, "softmax: axis needs an int, not ints"},
    {"x=f32[2, 3] axis=f32", TN_BAD_TYPE, "softmax: axis needs an int, not a type"},
    {"x=f32[2, 3] scale='x'", TN_BAD_TYPE, "softmax: scale needs a float, not a str"},
    {"x=f32[2, 3] scale=true", TN_BAD_TYPE, "softmax: scale needs a float, not a bool"},
    {"x=f32[2, 3] scale=[1]", TN_BAD_TYPE, "softmax: scale needs a float, not ints"},
    {"x=f32[2, 3] causal=1", TN_BAD_TYPE, "softmax: causal needs a bool, not an int"},
    {"x=f32[2, 3] causal='true'", TN_BAD_TYPE, "softmax: causal needs a bool, not a str"},
    {"x=f32[2, 3] axs=1", TN_BAD_VALUE, "softmax: there is no attribute 'axs'; did you mean 'axis'?"},
    {"x=f32[2, 3] Axis=1", TN_BAD_VALUE, "did you mean 'axis'?"},
    {"x=f32[2, 3] caussal=true", TN_BAD_VALUE, "did you mean 'causal'?"},
    {"x=f32[2, 3] dim=1", TN_BAD_VALUE, "softmax: there is no attribute 'dim'; there is axis, scale, causal"},
    {"x=f32[2, 3] =1", TN_BAD_VALUE, "softmax: there is no attribute ''"},
    {"x=f32[2, 3] mask=1", TN_BAD_VALUE, "softmax: mask is a tensor, not an attribute"},
    {"x=f32[2, 3] axis=1 axis=0", TN_BAD_VALUE, "softmax: axis is given twice"},
    {"x=f32[2, 3] causal=true axis=0", TN_BAD_VALUE,
     "softmax: needs not causal or (rank(*s) >= 2 and axis == rank(*s) - 1), but causal is true, rank(*s) is 2 and "
     "axis is 0"},
    {"x=f32[2] causal=true", TN_BAD_VALUE, "causal is true, rank(*s) is 1 and axis is 0"},
    {"x=f32[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]", TN_BAD_SHAPE,
     "softmax: x has rank 17; 0 to 16 is possible"},
    {"x=f32[2, -3]", TN_BAD_SHAPE, "softmax: x has a size of -3"},
    {"x=f32[-9223372036854775808]", TN_BAD_SHAPE, "softmax: x has a size of -9223372036854775808"},
    {"x=f32[9223372036854775807]", TN_BAD_SHAPE,
     "softmax: x of shape (9223372036854775807) and type f32 is larger than 2^63 bytes"},
    {"x=f32[4294967296, 4294967296]", TN_BAD_SHAPE, "is larger than 2^63 bytes"},
    {"x=f64[1152921504606846976]", TN_BAD_SHAPE, "and type f64 is larger than 2^63 bytes"},
    {"x=f32[0, 4294967296, 4294967296]", TN_BAD_SHAPE, "is larger than 2^63 bytes"},
    {"x=f32[?, 4294967296, 4294967296]", TN_BAD_SHAPE, "softmax: x of shape (?, 4294967296, 4294967296)"},
};

static const char layer_norm[] =
    "layer_norm(x: T[*r, c], gamma: W[c]?, beta: W[c]?, eps: float = 1e-5) -> y: T[*r, c], mean: "
    "acc(T)[*r], rstd: acc(T)[*r]";
static const bad_call layer_norm_calls[] = {
    {"gamma=f32[2]", TN_BAD_VALUE, "layer_norm: x is missing"},
    {"x=f32[]", TN_BAD_SHAPE, "layer_norm: x has rank 0, needs at least 1: [*r, c]"},
    {"x=f32[3, 7] gamma=f32[5]", TN_BAD_SHAPE, "layer_norm: gamma has shape (5), but c is 7 from x (3, 7)"},
    {"x=f32[3, 7] beta=f32[5]", TN_BAD_SHAPE, "layer_norm: beta has shape (5), but c is 7 from x (3, 7)"},
    {"x=f32[..] gamma=f32[7] beta=f32[5]", TN_BAD_SHAPE, "layer_norm: beta has shape (5), but c is 7 from gamma (7)"},
    {"x=f32[?] gamma=f32[7] beta=f32[5]", TN_BAD_SHAPE, "layer_norm: beta has shape (5), but c is 7 from gamma (7)"},
    {"x=f32[3, 7] gamma=f32[7, 1]", TN_BAD_SHAPE, "layer_norm: gamma has rank 2, needs 1: [c]"},
    {"x=f32[3, 7] gamma=f32[]", TN_BAD_SHAPE, "layer_norm: gamma has rank 0, needs 1: [c]"},
    {"x=f32[3, 7] gamma=i32[7]", TN_BAD_TYPE, "layer_norm: gamma has type i32, needs f16, bf16, f32 or f64"},
    {"x=f16[3, 7] gamma=f32[7] beta=f16[7]", TN_BAD_TYPE,
     "layer_norm: beta has type f16, needs f32: W is f32 from gamma"},
    {"x=f32[3, 7] eps='small'", TN_BAD_TYPE, "layer_norm: eps needs a float, not a str"},
    {"x=f32[3, 7] esp=1", TN_BAD_VALUE, "did you mean 'eps'?"},
};

static const char cross_entropy[] = "cross_entropy(x: T[*r, v], target: i32|i64[*r], weight: f32[v]?, ignore_index: "
                                    "int = -100, label_smoothing: float = 0.0, "
                                    "reduction: 'mean'|'sum'|'none' = 'mean') -> loss: acc(T)[*r if reduction == "
                                    "'none' else], lse: acc(T)[*r], gx: T[*r, "
                                    "v]?grad";
static const bad_call cross_entropy_calls[] = {
    {"x=f32[5, 10]", TN_BAD_VALUE, "cross_entropy: target is missing"},
    {"x=f32[5, 10] target=f32[5]", TN_BAD_TYPE, "cross_entropy: target has type f32, needs i32 or i64"},
    {"x=f32[5, 10] target=u8[5]", TN_BAD_TYPE, "cross_entropy: target has type u8, needs i32 or i64"},
    {"x=f32[5, 10] target=i64[4]", TN_BAD_SHAPE, "cross_entropy: target has shape (4), but *r is (5) from x (5, 10)"},
    {"x=f32[5, 10] target=i64[5, 1]", TN_BAD_SHAPE, "cross_entropy: target has shape (5, 1), but *r is (5)"},
    {"x=f32[5, 10] target=i64[]", TN_BAD_SHAPE, "cross_entropy: target has shape (), but *r is (5)"},
    {"x=f32[?, 6, 10] target=i64[5, 7]", TN_BAD_SHAPE, "cross_entropy: target has shape (5, 7), but *r is (5, 6)"},
    {"x=f32[5, 10] target=i64[5] weight=f32[9]", TN_BAD_SHAPE, "cross_entropy: weight has shape (9), but v is 10"},
    {"x=f32[5, 10] target=i64[5] weight=f64[10]", TN_BAD_TYPE, "cross_entropy: weight has type f64, needs f32"},
    {"x=f32[5, 10] target=i64[5] reduction='avg'", TN_BAD_VALUE,
     "cross_entropy: reduction is 'avg', needs 'mean', 'sum' or 'none'"},
    {"x=f32[5, 10] target=i64[5] reduction=''", TN_BAD_VALUE, "cross_entropy: reduction is '', needs"},
    {"x=f32[5, 10] target=i64[5] reduction='Mean'", TN_BAD_VALUE, "cross_entropy: reduction is 'Mean'"},
    {"x=f32[5, 10] target=i64[5] reduction=1", TN_BAD_TYPE, "reduction needs 'mean', 'sum' or 'none', not an int"},
    {"x=f32[5, 10] target=i64[5] ignore_index=1.5", TN_BAD_TYPE, "ignore_index needs an int, not a float"},
    {"x=f32[5, 10] target=i64[5] want_gx=1", TN_BAD_TYPE, "want_gx needs a bool, not an int"},
    {"x=f32[5, 10] target=i64[5] want_lse=true", TN_BAD_VALUE, "there is no attribute 'want_lse'"},
};

static const char reduction[] =
    "sum(x: T[*s], axes: axes = [], keepdim: bool = false) -> y: T[reduce(*s, axes, keepdim)]";
static const bad_call reduction_calls[] = {
    {"x=f32[2, 3] axes=[2]", TN_BAD_VALUE, "sum: axes has 2, x has rank 2 (-2 … 1)"},
    {"x=f32[2, 3] axes=[-3]", TN_BAD_VALUE, "sum: axes has -3, x has rank 2 (-2 … 1)"},
    {"x=f32[2, 3] axes=[0, 0]", TN_BAD_VALUE, "sum: axes names dimension 0 of x twice"},
    {"x=f32[2, 3] axes=[1, -1]", TN_BAD_VALUE, "sum: axes names dimension 1 of x twice"},
    {"x=f32[] axes=[0]", TN_BAD_SHAPE, "sum: x has rank 0, needs at least 1"},
    {"x=f32[2, 3] axes='0'", TN_BAD_TYPE, "sum: axes needs ints, not a str"},
    {"x=f32[2, 3] axes=1.0", TN_BAD_TYPE, "sum: axes needs ints, not a float"},
    {"x=f32[2, 3] axes=true", TN_BAD_TYPE, "sum: axes needs ints, not a bool"},
    {"x=f32[2, 3] axes=5", TN_BAD_VALUE, "sum: axes has 5, x has rank 2"},
    {"x=f32[..] axes=[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, "
     "0, 0, 0, "
     "0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]",
     TN_BAD_VALUE, "sum: axes has 65 elements; 64 is the most"},
    {"x=f32[2, 3] axis=0", TN_BAD_VALUE, "did you mean 'axes'?"},
    {"x=f32[2, 3] keepdims=true", TN_BAD_VALUE, "did you mean 'keepdim'?"},
    {"x=f32[2, 3] keepdim=0", TN_BAD_TYPE, "sum: keepdim needs a bool, not an int"},
};

static const char batch_norm[] =
    "batch_norm(x: T[n, c, *s], gamma: W[c]?, beta: W[c]?, running_mean: f32[c]!, running_var: "
    "f32[c]!, residual: T[n, c, *s]?, momentum: float = 0.1, eps: float = 1e-5, act: "
    "'none'|'relu' = 'none') -> y: T[n, c, *s], mean: acc(T)[c], rstd: acc(T)[c]";
static const bad_call batch_norm_calls[] = {
    {"x=f32[2, 3]", TN_BAD_VALUE, "batch_norm: running_mean is missing"},
    {"x=f32[2, 3] running_mean=f32[3]", TN_BAD_VALUE, "batch_norm: running_var is missing"},
    {"x=f32[2] running_mean=f32[3] running_var=f32[3]", TN_BAD_SHAPE, "x has rank 1, needs at least 2: [n, c, *s]"},
    {"x=f32[2, 3] running_mean=f32[2] running_var=f32[3]", TN_BAD_SHAPE,
     "running_mean has shape (2), but c is 3 from x"},
    {"x=f32[2, 3] running_mean=f64[3] running_var=f32[3]", TN_BAD_TYPE, "running_mean has type f64, needs f32"},
    {"x=f32[2, 3, 4] running_mean=f32[3] running_var=f32[3] residual=f32[2, 3]", TN_BAD_SHAPE,
     "residual has shape (2, 3), but *s is (4) from x (2, 3, 4)"},
    {"x=f32[2, 3] running_mean=f32[3] running_var=f32[3] residual=f32[1, 3]", TN_BAD_SHAPE,
     "residual has shape (1, 3), but n is 2 from x (2, 3)"},
    {"x=f32[2, 3] running_mean=f32[3] running_var=f32[3] residual=f16[2, 3]", TN_BAD_TYPE,
     "residual has type f16, needs f32: T is f32 from x"},
    {"x=f32[2, 3] running_mean=f32[3] running_var=f32[3] act='gelu'", TN_BAD_VALUE,
     "act is 'gelu', needs 'none' or 'relu'"},
};

static const char linear[] =
    "linear(x: T[*r, k], w: T[n, k], b: T[n]?, residual: T[*r, n]?, act: activation = 'none') -> y: "
    "T[*r, n], z: T[*r, n]?grad";
static const bad_call linear_calls[] = {
    {"x=f32[2, 5] w=f32[7, 6]", TN_BAD_SHAPE, "linear: w has shape (7, 6), but k is 5 from x (2, 5)"},
    {"x=f32[2, 5] w=f32[5]", TN_BAD_SHAPE, "linear: w has rank 1, needs 2: [n, k]"},
    {"x=f32[2, 5] w=f32[7, 5] b=f32[5]", TN_BAD_SHAPE, "linear: b has shape (5), but n is 7 from w (7, 5)"},
    {"x=f32[2, 5] w=f32[7, 5] b=f32[1]", TN_BAD_SHAPE, "linear: b has shape (1), but n is 7"},
    {"x=f32[2, 5] w=f32[7, 5] residual=f32[2, 5]", TN_BAD_SHAPE, "residual has shape (2, 5), but n is 7 from w"},
    {"x=f32[2, 5] w=f32[7, 5] residual=f32[7]", TN_BAD_SHAPE, "residual has shape (7), but *r is (2) from x"},
    {"x=f32[2, 5] w=f16[7, 5]", TN_BAD_TYPE, "linear: w has type f16, needs f32: T is f32 from x"},
    {"x=f32[2, 5] w=f32[7, 5] act='nope'", TN_BAD_VALUE, "act is 'nope', needs 'none' or the name of an operator"},
    {"x=f32[2, 5] w=f32[7, 5] act='softmax'", TN_BAD_VALUE, "act is 'softmax', needs 'none'"},
    {"x=f32[2, 5] w=f32[7, 5] act=1", TN_BAD_TYPE, "act needs the name of an activation, not an int"},
    {"x=f32[4294967296, 1] w=f32[4294967296, 1]", TN_BAD_SHAPE, "linear: y of shape (4294967296, 4294967296)"},
};

static const char conv2d[] = "conv2d(x: T[n, c, h, w], f: T[k, c / groups, p, q], b: T[k]?, stride: ints[2] = [1, 1], "
                             "pad: ints[2] = [0, 0], groups: "
                             "int = 1) -> y: T[n, k, (h + 2*pad[0] - p) / stride[0] + 1, (w + 2*pad[1] - q) / "
                             "stride[1] + 1] where c % groups == 0, "
                             "groups >= 1 and p >= 1";
static const bad_call conv2d_calls[] = {
    {"x=f32[1, 6, 8] f=f32[4, 6, 3, 3]", TN_BAD_SHAPE, "conv2d: x has rank 3, needs 4: [n, c, h, w]"},
    {"x=f32[1, 6, 8, 8] f=f32[4, 3, 3, 3]", TN_BAD_SHAPE,
     "conv2d: f has shape (4, 3, 3, 3), but its 3 has to be c / groups = 6, where c is 6 and groups is 1"},
    {"x=f32[1, 6, 8, 8] f=f32[4, 1, 3, 3] groups=4", TN_BAD_VALUE,
     "conv2d: needs c % groups == 0, but c is 6 and groups is 4"},
    {"x=f32[1, 6, 8, 8] f=f32[4, 1, 3, 3] groups=0", TN_BAD_VALUE,
     "c / groups divides by zero: c is 6 and groups is 0"},
    {"x=f32[1, 6, 8, 8] f=f32[4, -6, 3, 3] groups=-1", TN_BAD_SHAPE, "f has a size of -6"},
    {"x=f32[1, 0, 8, 8] f=f32[4, 0, 3, 3] groups=-1", TN_BAD_VALUE, "needs groups >= 1, but groups is -1"},
    {"x=f32[1, 6, 8, 8] f=f32[4, 6, 0, 3]", TN_BAD_VALUE, "needs p >= 1, but p is 0"},
    {"x=f32[1, 6, 8, 8] f=f32[4, 6, 3, 3] stride=[0, 1]", TN_BAD_VALUE,
     "conv2d: (h + 2 * pad[0] - p) / stride[0] + 1 divides by zero: h is 8, pad[0] is 0, p is 3 and stride[0] is 0"},
    {"x=f32[1, 6, 8, 8] f=f32[4, 6, 3, 3] stride=[1]", TN_BAD_VALUE, "conv2d: stride has 1 elements, needs 2"},
    {"x=f32[1, 6, 8, 8] f=f32[4, 6, 3, 3] stride=[]", TN_BAD_VALUE, "conv2d: stride has 0 elements, needs 2"},
    {"x=f32[1, 6, 8, 8] f=f32[4, 6, 3, 3] stride='2'", TN_BAD_TYPE, "conv2d: stride needs ints, not a str"},
    {"x=f32[1, 6, 2, 8] f=f32[4, 6, 5, 3]", TN_BAD_SHAPE,
     "conv2d: y would have a size of -2: (h + 2 * pad[0] - p) / stride[0] + 1, where h is 2"},
    {"x=f32[1, 6, 8, 8] f=f32[4, 6, 3, 3] pad=[9223372036854775807, 0]", TN_BAD_VALUE, "does not fit in 64 bits"},
    {"x=f32[1, 6, 8, 8] f=f32[4, 6, 3, 3] pad=[-4611686018427387904, 0]", TN_BAD_SHAPE, "y would have a size of -"},
    {"x=f32[1, 6, 8, 8] f=f32[4, 6, 3, 3] pad=[4611686018427387800, 0]", TN_BAD_SHAPE, "is larger than 2^63 bytes"},
    {"x=f32[1, 6, 8, 8] f=f32[4, 6, 3, 3] b=f32[6]", TN_BAD_SHAPE, "b has shape (6), but k is 4 from f"},
};

static const char lists[] =
    "lists(ps: [T[*s, n]]!, gs: [G[*s, n]], hs: [T[m]]?, x: T[m], dims: ints, lr: f32[]) -> y: T[m, dims[1]]";
static const bad_call lists_calls[] = {
    {"gs=[f32[2]] x=f32[1] lr=f32[] dims=[1, 2]", TN_BAD_VALUE, "lists: ps is missing; it needs at least one tensor"},
    {"ps=[f32[2]] x=f32[1] lr=f32[] dims=[1, 2]", TN_BAD_VALUE, "lists: gs is missing"},
    {"ps=[f32[2], f32[3]] gs=[f32[2]] x=f32[1] lr=f32[] dims=[1, 2]", TN_BAD_SHAPE,
     "lists: gs has 1 tensors, but ps has 2"},
    {"ps=[f32[2], f32[3]] gs=[f32[2], f32[2]] x=f32[1] lr=f32[] dims=[1, 2]", TN_BAD_SHAPE,
     "lists: gs[1] has shape (2), but n is 3 from ps[1] (3)"},
    {"ps=[f32[2], f32[3]] gs=[f32[2], f32[1, 3]] x=f32[1] lr=f32[] dims=[1, 2]", TN_BAD_SHAPE,
     "lists: gs[1] has shape (1, 3), but *s is () from ps[1] (3)"},
    {"ps=[f32[2], f16[3]] gs=[f32[2], f32[3]] x=f32[1] lr=f32[] dims=[1, 2]", TN_BAD_TYPE,
     "lists: ps[1] has type f16, needs f32: T is f32 from ps[0]"},
    {"ps=[f32[2], f32[]] gs=[f32[2], f32[3]] x=f32[1] lr=f32[] dims=[1, 2]", TN_BAD_SHAPE,
     "lists: ps[1] has rank 0, needs at least 1: [*s, n]"},
    {"ps=[f32[2]] gs=[f32[2]] hs=[f32[4], f32[5]] x=f32[4] lr=f32[] dims=[1, 2]", TN_BAD_SHAPE,
     "lists: hs[1] has shape (5), but m is 4 from x (4)"},
    {"ps=[f32[2]] gs=[f32[2]] hs=[f32[4], f32[-5]] x=f32[4] lr=f32[] dims=[1, 2]", TN_BAD_SHAPE,
     "lists: hs[1] has a size of -5"},
    {"ps=[f32[2]] gs=[f32[2]] x=f32[4] lr=f32[] dims=[1]", TN_BAD_VALUE,
     "lists: dims has 1 elements, needs at least 2"},
    {"ps=[f32[2]] gs=[f32[2]] x=f32[4] lr=f32[]", TN_BAD_VALUE, "lists: dims is missing; it needs ints"},
    {"ps=[f32[2]] gs=[f32[2]] x=f32[4] lr=f32[] dims=[1, -7]", TN_BAD_SHAPE,
     "lists: y would have a size of -7: dims[1]"},
    {"ps=[f32[2]] gs=[f32[4294967296, 4294967296]] x=f32[4] lr=f32[] dims=[1, 2]", TN_BAD_SHAPE, "but *s is ()"},
};

static const char concat[] = "concat<T: any>(xs: [T[*s]], axis: axis = 0) -> y: T[concat(*s, axis)]";
static const bad_call concat_calls[] = {
    {"", TN_BAD_VALUE, "concat: xs is missing; it needs at least one tensor"},
    {"xs=[f32[]]", TN_BAD_SHAPE, "concat: xs has rank 0, needs at least 1"},
    {"xs=[f32[2], f32[2, 1]]", TN_BAD_SHAPE, "concat: xs[1] has shape (2, 1), which differs from the others"},
    {"xs=[f32[2, 3], f32[2, 3], f32[2, 4]]", TN_BAD_SHAPE, "concat: xs[2] has shape (2, 4), which differs"},
    {"xs=[f32[2, 3], f32[2, 3]] axis=2", TN_BAD_VALUE, "concat: axis is 2, xs has rank 2 (-2 … 1)"},
    {"xs=[f32[4611686018427387904], f32[4611686018427387904]]", TN_BAD_SHAPE, "is larger than 2^63 bytes"},
    {"xs=[i8[9223372036854775807], i8[1]]", TN_BAD_SHAPE, "add up to more than 64 bits"},
    {"xs=[f32[2, 3], i32[2, 3]]", TN_BAD_TYPE, "concat: xs[1] has type i32, needs f32: T is f32 from xs[0]"},
};

static const char wide[] =
    "wide<T: any>(x: T[n], shape: ints = [1], pads: ints = [1], dims: ints = [0], k: int = 1, out: dtype = "
    "f32, name: str = 'x') -> y: out[broadcast(*shape, *pads), n * k], z: complex(out)[permute(*shape, "
    "dims)]?";
static const bad_call wide_calls[] = {
    {"x=f32[2] shape=[2, 3] pads=[2]", TN_BAD_SHAPE, "wide: *shape (2, 3) and *pads (2) do not broadcast"},
    {"x=f32[2] shape=[2, -3]", TN_BAD_VALUE, "wide: shape has a size of -3"},
    {"x=f32[2] shape=[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]", TN_BAD_VALUE,
     "wide: shape has 17 elements; a shape has at most 16"},
    {"x=f32[2] shape=[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]", TN_BAD_SHAPE,
     "wide: y would have 17 dimensions; 16 is the most"},
    {"x=f32[2] k=-1", TN_BAD_SHAPE, "wide: y would have a size of -2: n * k, where n is 2 and k is -1"},
    {"x=f32[2] k=9223372036854775807", TN_BAD_VALUE,
     "wide: n * k does not fit in 64 bits: n is 2 and k is 9223372036854775807"},
    {"x=f32[2] k=2305843009213693952", TN_BAD_SHAPE,
     "wide: y of shape (1, 4611686018427387904) and type f32 is larger"},
    {"x=f32[2] out=1", TN_BAD_TYPE, "wide: out needs a type, not an int"},
    {"x=f32[2] out='f32'", TN_BAD_TYPE, "wide: out needs a type, not a str"},
    {"x=f32[2] out=i32 want_z=true", TN_BAD_TYPE, "wide: z would be complex, but i32 has no complex type"},
    {"x=f32[2] name=1", TN_BAD_TYPE, "wide: name needs a str, not an int"},
    {"x=f32[2] dims=[0, 1] want_z=true", TN_BAD_VALUE,
     "wide: dims is [0, 1], which is not an order of the dimensions of *shape (1)"},
    {"x=f32[2] dims=[1] want_z=true", TN_BAD_VALUE, "wide: dims is [1], which is not an order"},
    {"x=f32[2] shape=[2, 3] dims=[0, 0] want_z=true", TN_BAD_VALUE, "wide: dims is [0, 0], which is not an order"},
    {"x=f32[2] shape=[2, 3] pads=[3] dims=[-3, 0] want_z=true", TN_BAD_VALUE,
     "wide: dims is [-3, 0], which is not an order"},
};

static const char solving[] =
    "solving<I: i32 i64>(x: T[2*n, m + 1], i: I[~n]?, w: complex(T)[-p + 9]?, a: acc(T)[]?, o: "
    "T[k*q]?, lit: T[8, ~3]?, k: int = 1) -> y: T[n, m]";
static const bad_call solving_calls[] = {
    {"x=f32[3, 3]", TN_BAD_SHAPE, "solving: x has shape (3, 3), but its 3 has to be 2 * n"},
    {"x=f32[4, 0]", TN_BAD_SHAPE, "solving: x has shape (4, 0), but its 0 has to be m + 1"},
    {"x=f32[4, 3] i=i32[3]", TN_BAD_SHAPE, "solving: i has shape (3), but its 3 has to be 1 or n = 2 from x (4, 3)"},
    {"x=f32[4, 3] i=i16[2]", TN_BAD_TYPE, "solving: i has type i16, needs i32 or i64"},
    {"x=f32[4, 3] i=f32[2]", TN_BAD_TYPE, "solving: i has type f32, needs i32 or i64"},
    {"x=f32[4, 3] w=f32[2]", TN_BAD_TYPE, "solving: w has type f32, needs c64: T is f32 from x"},
    {"x=f64[4, 3] w=c64[2]", TN_BAD_TYPE, "solving: w has type c64, needs c128: T is f64 from x"},
    {"x=f32[4, 3] w=c64[10]", TN_BAD_SHAPE, "solving: w has shape (10), but its 10 has to be -p + 9"},
    {"x=f16[4, 3] a=f16[]", TN_BAD_TYPE, "solving: a has type f16, needs f32: T is f16 from x"},
    {"x=f32[4, 3] a=f32[1]", TN_BAD_SHAPE, "solving: a has rank 1, needs 0: []"},
    {"x=f32[4, 3] o=f32[5] k=2", TN_BAD_SHAPE, "solving: o has shape (5), but its 5 has to be k * q"},
    {"x=f32[4, 3] o=f32[5] k=0", TN_BAD_SHAPE, "solving: o has shape (5), but its 5 has to be k * q"},
    {"x=f32[4, 3] o=f32[5] k=-5", TN_BAD_SHAPE, "solving: o has shape (5), but its 5 has to be k * q"},
    {"x=f32[4, 3] o=f32[5] k=-1", TN_BAD_SHAPE, "solving: o has shape (5), but its 5 has to be k * q"},
    {"x=f32[4, 3] lit=f32[7, 3]", TN_BAD_SHAPE, "solving: lit has shape (7, 3), but its 7 has to be 8"},
    {"x=f32[4, 3] lit=f32[8, 2]", TN_BAD_SHAPE, "solving: lit has shape (8, 2), but its 2 has to be 1 or 3"},
    {"x=f32[4, 3] lit=f32[8]", TN_BAD_SHAPE, "solving: lit has rank 1, needs 2: [8, ~3]"},
};

static const char spread[] =
    "spread(dy: T[reduce(*shape, axes, keepdim)], shape: ints, axes: axes = [], keepdim: bool = "
    "false) -> dx: T[*shape]";
static const bad_call spread_calls[] = {
    {"dy=f32[] shape=[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]", TN_BAD_VALUE,
     "spread: shape has 17 elements; a shape has at most 16"},
    {"dy=f32[] shape=[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1] axes=[16]", TN_BAD_VALUE,
     "spread: shape has 17 elements; a shape has at most 16"},
    {"dy=f32[] shape=[]  axes=[0]", TN_BAD_SHAPE, "spread: shape has rank 0, needs at least 1"},
};

static const char odd[] =
    "odd(x: T[*s, n], y: out[m]?, z: T[*q]?, axes: axes = [-1], out: dtype = f32, mode: 'a'|'b' = 'a') -> w: "
    "T[reduce(*s, axes)], v: T[reduce(*q, axes)]? where not (n == 1 or m == 1), mode == 'a' or n < 5";
static const bad_call odd_calls[] = {
    {"x=f32[3, 2] y=f16[3]", TN_BAD_TYPE, "odd: y has type f16, needs f32: out is f32"},
    {"x=f32[3, 1] y=f32[?]", TN_BAD_VALUE, "odd: needs not (n == 1 or m == 1), but n is 1 and m is unknown"},
    {"x=f32[3, 6] y=f32[2] mode='b'", TN_BAD_VALUE, "odd: needs mode == 'a' or n < 5, but mode is 'b' and n is 6"},
    {"x=f32[3, 4, 6] z=f32[3] want_v=true", TN_BAD_VALUE, "odd: axes has 1, but *q (3) has rank 1"},
    {"x=f32[3, 4, 6] want_v=true", TN_BAD_SHAPE,
     "odd: reduce(*q, axes), a size of v, cannot be told from the inputs given: absent are y, z"},
    {"x=f32[6]", TN_BAD_SHAPE, "odd: s has rank 0, needs at least 1"},
};

static const struct {
    const char *contract;
    const bad_call *calls;
    size_t count;
} tables[] = {
#define TABLE(name) \
    { name, name##_calls, sizeof name##_calls / sizeof name##_calls[0] }
    TABLE(softmax), TABLE(layer_norm), TABLE(cross_entropy), TABLE(reduction), TABLE(batch_norm),
    TABLE(linear),  TABLE(conv2d),     TABLE(lists),         TABLE(concat),    TABLE(wide),
    TABLE(solving), TABLE(odd),        TABLE(spread),
};

static tni_contract *parsed(const char *text) {
    tni_contract *c = NULL;
    CHECK_ROW(tni_contract_parse(text, &c) == TN_OK, "%s", tn_last_error());
    return c;
}

static void test_tables(void) {
    size_t rows = 0;
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
        tni_contract *contract = parsed(tables[i].contract);
        for (size_t k = 0; contract && k < tables[i].count; k++, rows++) {
            const bad_call *row = &tables[i].calls[k];
            tn_status status = call_bind(contract, row->call, &call);
            CHECK_ROW(status == row->status, "%s %s: %s: %s", contract->name, row->call, tn_status_name(status),
                      tn_last_error());
            CHECK_ROW(strstr(tn_last_error(), row->fragment), "%s %s\n    gave %s", contract->name, row->call,
                      tn_last_error());
            size_t length = strlen(contract->name);
            CHECK_ROW(strncmp(tn_last_error(), contract->name, length) == 0 && tn_last_error()[length] == ':', "%s",
                      tn_last_error());
        }
        tni_contract_free(contract);
    }
    printf("%zu rows\n", rows);
}

/* What text cannot say: null pointers, wild enums, lists without elements. */
static void test_raw(void) {
    tni_contract *c = parsed("f(x: T[n], m: 'a'|'b' = 'a', t: dtype = f32, l: ints = [], s: str = '') -> y: T[n]");
    int64_t three = 3;
    tni_operand x = {TN_F32, 1, &three};
    int32_t counts[] = {1};
    tni_inputs in = {&x, counts};
    static const struct {
        tn_attr attr;
        const char *fragment;
    } rows[] = {
        {{NULL, {.kind = TN_ATTR_INT}}, "f: an attribute has no name"},
        {{"m", {.kind = TN_ATTR_STR}}, "f: m is a NULL string"},
        {{"s", {.kind = TN_ATTR_STR}}, "f: s is a NULL string"},
        {{"t", {.kind = TN_ATTR_TYPE, .type = TN_NO_TYPE}}, "f: t is not a type: 0"},
        {{"t", {.kind = TN_ATTR_TYPE, .type = (tn_type)99}}, "f: t is not a type: 99"},
        {{"l", {.kind = TN_ATTR_INTS, .count = 2}}, "f: l has no elements behind its count of 2"},
        {{"l", {.kind = TN_ATTR_INTS, .count = -2}}, "f: l has no elements behind its count of -2"},
        {{"l", {.kind = 77}}, "f: l needs ints, not something else"},
        {{"m", {.kind = -1}}, "f: m needs 'a' or 'b', not something else"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tn_status status = tni_bind(c, &in, &rows[i].attr, 1, &call.bound, call.specs);
        CHECK_ROW(status != TN_OK && strstr(tn_last_error(), rows[i].fragment), "%s: %s", rows[i].fragment,
                  tn_last_error());
    }
    tn_attr unset = {"m", {.kind = TN_ATTR_UNSET}};
    CHECK(tni_bind(c, &in, &unset, 1, &call.bound, call.specs) == TN_OK && call.bound.attrs[0].choice == 0);
    CHECK(tni_bind(c, &in, NULL, 0, &call.bound, NULL) == TN_OK);
    static const tni_operand operands[] = {
        {(tn_type)99, 1, NULL}, {(tn_type)-1, 1, NULL}, {TN_F32, -2, NULL}, {TN_F32, 99, NULL}};
    static const char *const fragments[] = {"f: x has no type that Tenon knows", "f: x has no type that Tenon knows",
                                            "f: x has rank -2", "f: x has rank 99; 0 to 16 is possible"};
    for (int i = 0; i < 4; i++) {
        tni_operand o = operands[i];
        o.shape = &three;
        tni_inputs wild = {&o, counts};
        tn_status status = tni_bind(c, &wild, NULL, 0, &call.bound, NULL);
        CHECK_ROW(status != TN_OK && strstr(tn_last_error(), fragments[i]), "%s", tn_last_error());
    }
    counts[0] = -1;
    CHECK(tni_bind(c, &in, NULL, 0, &call.bound, NULL) == TN_BAD_VALUE);
    tni_contract_free(c);
}

int main(void) {
    test_tables();
    test_raw();
    return test_end();
}
