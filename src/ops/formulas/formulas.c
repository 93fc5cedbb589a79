/* Rows of the table that are formulas, made from formulas.h, and what they are checked and measured with. */
#include "formulas.h"

#include <tenon/op.h>

static const tn_sample unary[] = {
    {"s=[7]"}, {"s=[4, 33]"}, {"s=[0, 5]"}, {"s=[]"}, {"s=[5000]"}, {"s=[4096, 4096]", .bench = true}, {0}};
static const tn_sample positive[] = {
    {"s=[7] x>0"}, {"s=[4, 33] x>0"}, {"s=[0, 5] x>0"}, {"s=[5000] x>0"}, {"s=[4096, 4096] x>0", .bench = true}, {0}};
static const tn_sample binary[] = {{"s=[7]"},
                                   {"s=[4, 33] y=[33]"},
                                   {"s=[4, 33] x=[4, 1]"},
                                   {"s=[5, 4, 3] x=[4, 1] y=[5, 1, 3]"},
                                   {"s=[0, 5]"},
                                   {"s=[5000] x=[]"},
                                   {"s=[4096, 4096]", .bench = true},
                                   {0}};
static const tn_sample quotient[] = {
    {"s=[7] y>0"}, {"s=[4, 33] y=[33] y>0"}, {"s=[0, 5] y>0"}, {"s=[4096, 4096] y>0", .bench = true}, {0}};
static const tn_sample constant[] = {
    {"s=[7] c=0.5"}, {"s=[4, 33] c=-3.0"}, {"s=[0, 5] c=1.0"}, {"s=[4096, 4096] c=2.5", .bench = true}, {0}};
static const tn_sample scaled[] = {{"s=[7]"},
                                   {"s=[4, 33] scale=[33] bias=[33]"},
                                   {"s=[2, 3, 5] scale=[3, 1] bias=[]"},
                                   {"s=[0, 5]"},
                                   {"s=[4096, 4096] scale=[4096] bias=[4096]", .bench = true},
                                   {0}};
static const tn_sample bias_act[] = {{"r=[4] c=33"},
                                     {"r=[2, 3] c=5 act='gelu'"},
                                     {"r=[4] c=9 act='gelu_tanh'"},
                                     {"r=[9] c=17 act='silu'"},
                                     {"r=[] c=65 act='tanh'"},
                                     {"r=[0] c=3 act='sigmoid'"},
                                     {"r=[3] c=7 act='none'"},
                                     {"r=[3] c=7 act='mish'"},
                                     {"r=[3] c=7 act='leaky_relu'"},
                                     {"r=[4096] c=4096", .bench = true},
                                     {0}};
static const tn_sample clamped[] = {{"s=[7] low=-0.5"},
                                    {"s=[4, 33] high=0.25"},
                                    {"s=[5, 9] low=-0.5 high=0.5"},
                                    {"s=[0, 5]"},
                                    {"s=[4096, 4096] low=-1.0 high=1.0", .bench = true},
                                    {0}};
static const tn_sample powers[] = {{"s=[7] x>0 exponent=2.5"},
                                   {"s=[4, 33] exponent=3.0"},
                                   {"s=[4, 33] x>0 exponent=-0.5"},
                                   {"s=[0, 5] exponent=2.0"},
                                   {"s=[4096, 4096] x>0 exponent=1.5", .bench = true},
                                   {0}};
static const tn_sample ternary[] = {
    {"s=[7]"},    {"s=[4, 33] weight=[]"},           {"s=[4, 33] end=[33] weight=[4, 1]"},
    {"s=[0, 5]"}, {"s=[4096, 4096]", .bench = true}, {0}};
static const tn_sample channels[] = {{"n=4 c=33 s=[]"},
                                     {"n=2 c=3 s=[4, 5]"},
                                     {"n=1 c=7 s=[300]"},
                                     {"n=0 c=3 s=[2]"},
                                     {"n=32 c=256 s=[56, 56]", .bench = true},
                                     {0}};
static const tn_sample pairs[] = {
    {"s=[7]"}, {"s=[4, 33]"}, {"s=[0, 5]"}, {"s=[5000]"}, {"s=[4096, 4096]", .bench = true}, {0}};
static const tn_sample dropped[] = {{"s=[7] p=0.25"},
                                    {"s=[4, 33]"},
                                    {"s=[0, 5]"},
                                    {"s=[5000] p=0.1"},
                                    {"s=[9] p=0.0"},
                                    {"s=[4096, 4096] p=0.1", .bench = true},
                                    {0}};
static const tn_sample dropped_rows[] = {{"r=[7] c=5 p=0.25"},
                                         {"r=[4] c=33 bias"},
                                         {"r=[0] c=5 bias"},
                                         {"r=[2] c=3000 bias p=0.1"},
                                         {"r=[4096] c=4096 bias p=0.1", .bench = true},
                                         {0}};
static const tn_sample residuals[] = {{"s=[7]"},
                                      {"s=[4, 33] scale=[33]"},
                                      {"s=[4, 33] scale=[]"},
                                      {"s=[0, 5]"},
                                      {"s=[4096, 4096] scale=[4096]", .bench = true},
                                      {0}};
static const tn_sample normed[] = {{"r=[7] c=5"},
                                   {"r=[4] c=33 gamma"},
                                   {"r=[2, 3] c=64 gamma W=f32 zero_centered=true"},
                                   {"r=[0] c=5 gamma"},
                                   {"r=[2] c=5000 gamma eps=1e-3"},
                                   {"r=[12] c=1024 gamma"},
                                   {"r=[20] c=2048 gamma W=f32"},
                                   {"r=[4096] c=4096 gamma", .bench = true},
                                   {0}};
static const tn_sample trained[] = {{"n=4 c=5 s=[3, 2] var>0"},
                                    {"n=2 c=7 s=[] var>0 gamma beta act='relu'"},
                                    {"n=3 c=4 s=[9] var>0 gamma residual act='silu' W=f32"},
                                    {"n=0 c=3 s=[4] var>0 gamma beta"},
                                    {"n=32 c=64 s=[56, 56] var>0 gamma beta W=f32 M=f32 act='relu'", .bench = true},
                                    {0}};
static const tn_sample losses[] = {
    {"s=[7]"}, {"s=[4, 33] reduction='sum'"}, {"s=[5000]"}, {"s=[4096, 4096]", .bench = true}, {0}};
static const tn_sample chances[] = {{"s=[7] target>0"},
                                    {"s=[4, 33] target>0 reduction='sum'"},
                                    {"s=[5000] target>0"},
                                    {"s=[4096, 4096] target>0", .bench = true},
                                    {0}};
static const tn_sample rows[] = {
    {"r=[7] c=5"}, {"r=[] c=33"}, {"r=[0] c=5"}, {"r=[2] c=5000"}, {"r=[4096] c=4096", .bench = true}, {0}};
static const tn_sample sgd_steps[] = {{"s=[7] lr>0"},
                                      {"s=[4, 33] lr>0 nesterov=true weight_decay=0.1 G=f32"},
                                      {"s=[0, 5] lr>0"},
                                      {"s=[5000] lr>0 dampening=0.5"},
                                      {"s=[4096, 4096] lr>0", .bench = true},
                                      {0}};
static const tn_sample adamw_steps[] = {{"s=[7] lr>0 step>0 v>0"},
                                        {"s=[4, 33] lr>0 step>0 v>0 G=bf16 master"},
                                        {"s=[0, 5] lr>0 step>0 v>0"},
                                        {"s=[5000] lr>0 step>0 v>0 weight_decay=0.1"},
                                        {"s=[4096, 4096] lr>0 step>0 v>0", .bench = true},
                                        {0}};
static const tn_sample sgd_lists[] = {{"p=[[7], [4, 33]] g=[[7], [4, 33]] m=[[7], [4, 33]] lr>0"},
                                      {"p=[[0, 3], [5]] g=[[0, 3], [5]] m=[[0, 3], [5]] lr>0 nesterov=true G=f32"},
                                      {"p=[[40000], [3]] g=[[40000], [3]] m=[[40000], [3]] lr>0"},
                                      {"p=[[4096, 4096]] g=[[4096, 4096]] m=[[4096, 4096]] lr>0", .bench = true},
                                      {0}};
static const tn_sample adamw_lists[] = {
    {"p=[[7], [4, 33]] g=[[7], [4, 33]] m=[[7], [4, 33]] v=[[7], [4, 33]] lr>0 step>0 v>0"},
    {"p=[[], [9]] g=[[], [9]] m=[[], [9]] v=[[], [9]] master=[[], [9]] lr>0 step>0 v>0 G=bf16"},
    {"p=[[0]] g=[[0]] m=[[0]] v=[[0]] lr>0 step>0 v>0"},
    {"p=[[4096, 4096]] g=[[4096, 4096]] m=[[4096, 4096]] v=[[4096, 4096]] lr>0 step>0 v>0", .bench = true},
    {0}};
static const tn_sample clip_lists[] = {{"g=[[7], [4, 33]] max_norm>0"},
                                       {"g=[[0, 3], []] max_norm>0"},
                                       {"g=[[40000], [3]] max_norm>0"},
                                       {"g=[[0]] max_norm>0"},
                                       {"g=[[4096, 4096]] max_norm>0", .bench = true},
                                       {0}};
static const tn_sample quantized[] = {{"s=[7] scale=[] scale>0"},
                                      {"s=[4, 33] scale=[4, 1] scale>0 zero=[4, 1] zero<10"},
                                      {"s=[0, 5] scale>0"},
                                      {"s=[4096, 4096] scale=[] scale>0", .bench = true},
                                      {0}};
static const tn_sample dequantized[] = {{"s=[7] scale=[]"},
                                        {"s=[4, 33] scale=[4, 1] zero=[4, 1] zero<10"},
                                        {"s=[0, 5]"},
                                        {"s=[4096, 4096] scale=[]", .bench = true},
                                        {0}};

/* Rounding has a derivative of 0: the gradient goes through as if it were not there. */
extern const tn_op tni_op_fake_quantize;
const tn_op tni_op_fake_quantize = {
    .signature =
        "fake_quantize(x: T[*s], scale: f32[~*s], zero: i32[~*s]?, low: int = -128, high: int = 127) -> y: T[*s]",
    .doc = "x as it is after quantize and dequantize, per tensor or per channel by the shape of scale; the gradient "
           "passes "
           "where nothing was cut off.",
    .formula = "z = zero if has(zero) else 0; y = (clamp(round(x / scale) + z, low, high) - z) * scale",
    .grad = "~ x: fake_quantize_grad(x, scale, zero, dy)",
    .samples = quantized,
};

#define FORMULA(name, contract, text, cast, tried, about) \
    extern const tn_op tni_op_##name;                     \
    const tn_op tni_op_##name = {                         \
        .signature = #name contract, .doc = about, .formula = text, .autocast = cast, .samples = tried};
TNI_FORMULAS(FORMULA)
