/* The primitives of formulas: what each is called, its value in double, its derivative, its code. A new one is a row
 * here, a name in parts.h and a loop in loops_cpu.c. */
#include <math.h>

#include "formula.h"

#define VALUE(name, expression)                                     \
    static double eval_##name(double a, double b, double c) {       \
        (void)a, (void)b, (void)c; /* most need fewer than three */ \
        return expression;                                          \
    }

/* Of the larger magnitude's sign, so that nothing overflows on the way. */
static double sigmoid(double a) {
    return a >= 0 ? 1 / (1 + exp(-a)) : exp(a) / (1 + exp(a));
}

static double softplus(double a) {
    return a != a ? a : fmax(a, 0) + log1p(exp(-fabs(a)));
}

/* With the sign of b, as in Python. */
static double modulo(double a, double b) {
    double r = fmod(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

/* A NaN on either side stays. */
static double least(double a, double b) {
    return a < b || a != a ? a : b;
}
static double most(double a, double b) {
    return a > b || a != a ? a : b;
}

VALUE(neg, -a)
VALUE(abs, fabs(a))
VALUE(sign, a != a ? a : (a > 0) - (a < 0))
VALUE(floor, floor(a))
VALUE(round, nearbyint(a))
VALUE(sqrt, sqrt(a))
VALUE(rsqrt, 1 / sqrt(a))
VALUE(exp, exp(a))
VALUE(log, log(a))
VALUE(log1p, log1p(a))
VALUE(expm1, expm1(a))
VALUE(sin, sin(a))
VALUE(cos, cos(a))
VALUE(tanh, tanh(a))
VALUE(erf, erf(a))
VALUE(sigmoid, sigmoid(a))
VALUE(softplus, softplus(a))
VALUE(relu, a != a || a > 0 ? a : 0)
VALUE(not, a == 0)
VALUE(add, a + b)
VALUE(sub, a - b)
VALUE(mul, a *b)
VALUE(div, a / b)
VALUE(mod, modulo(a, b))
VALUE(pow, pow(a, b))
VALUE(min, least(a, b))
VALUE(max, most(a, b))
VALUE(lt, a < b)
VALUE(le, a <= b)
VALUE(eq, a == b)
VALUE(ne, a != b)
VALUE(and, a != 0 && b != 0)
VALUE(or, a != 0 || b != 0)
VALUE(where, a != 0 ? b : c)
VALUE(clamp, least(most(a, b), c))

#define SAME TNI_TYPED_SAME
#define FLOAT TNI_TYPED_FLOAT
#define TEST TNI_TYPED_TEST
#define LOGIC TNI_TYPED_LOGIC

const tni_prim_row tni_prims[TNI_PRIMS] = {
    [TNI_P_CONST] = {"a number", 0, 0, TNI_TYPED_BY_HAND},
    [TNI_P_INPUT] = {"an input", 0, 0, TNI_TYPED_BY_HAND},
    [TNI_P_ATTR] = {"an attribute", 0, 0, TNI_TYPED_BY_HAND},
    [TNI_P_ATTR_IS] = {"a choice", 0, 0, TNI_TYPED_BY_HAND},
    [TNI_P_HAS] = {"has", 0, 0, TNI_TYPED_BY_HAND},
    [TNI_P_HAS_ATTR] = {"has", 0, 0, TNI_TYPED_BY_HAND},
    [TNI_P_RAND] = {"rand", 0, 0, TNI_TYPED_BY_HAND},
    [TNI_P_COUNT] = {"count", 1, 0, TNI_TYPED_BY_HAND},
    [TNI_P_NEG] = {"-", 1, 7, SAME, false, eval_neg, {"-d"}, "-($a)"},
    [TNI_P_ABS] = {"abs", 1, 0, SAME, false, eval_abs, {"d * sign(a)"}, "tn_abs($a)"},
    [TNI_P_SIGN] = {"sign", 1, 0, SAME, false, eval_sign, {0}, "tn_sign($a)"},
    [TNI_P_FLOOR] = {"floor", 1, 0, SAME, false, eval_floor, {0}, "tn_floor($a)"},
    [TNI_P_ROUND] = {"round", 1, 0, SAME, false, eval_round, {0}, "tn_round($a)"},
    [TNI_P_SQRT] = {"sqrt", 1, 0, FLOAT, false, eval_sqrt, {"d * 0.5 / y"}, "tn_sqrt($a)"},
    [TNI_P_RSQRT] = {"rsqrt", 1, 0, FLOAT, false, eval_rsqrt, {"d * (-0.5 * y * y * y)"}, "1 / tn_sqrt($a)"},
    [TNI_P_EXP] = {"exp", 1, 0, FLOAT, false, eval_exp, {"d * y"}, "tn_exp($a)"},
    [TNI_P_LOG] = {"log", 1, 0, FLOAT, false, eval_log, {"d / a"}, "tn_log($a)"},
    [TNI_P_LOG1P] = {"log1p", 1, 0, FLOAT, false, eval_log1p, {"d / (1 + a)"}, "tn_log1p($a)"},
    [TNI_P_EXPM1] = {"expm1", 1, 0, FLOAT, false, eval_expm1, {"d * (y + 1)"}, "tn_expm1($a)"},
    [TNI_P_SIN] = {"sin", 1, 0, FLOAT, false, eval_sin, {"d * cos(a)"}, "tn_sin($a)"},
    [TNI_P_COS] = {"cos", 1, 0, FLOAT, false, eval_cos, {"-(d * sin(a))"}, "tn_cos($a)"},
    [TNI_P_TANH] = {"tanh", 1, 0, FLOAT, false, eval_tanh, {"d * (1 - y * y)"}, "tn_tanh($a)"},
    [TNI_P_ERF] = {"erf", 1, 0, FLOAT, false, eval_erf, {"d * (1.1283791670955126 * exp(-(a * a)))"}, "tn_erf($a)"},
    [TNI_P_SIGMOID] = {"sigmoid", 1, 0, FLOAT, false, eval_sigmoid, {"d * (y * (1 - y))"}, "tn_sigmoid($a)"},
    [TNI_P_SOFTPLUS] = {"softplus", 1, 0, FLOAT, false, eval_softplus, {"d * sigmoid(a)"}, "tn_softplus($a)"},
    [TNI_P_RELU] = {"relu", 1, 0, SAME, false, eval_relu, {"where(y > 0, d, 0.0)"}, "tn_relu($a)"},
    [TNI_P_NOT] = {"not ", 1, 3, LOGIC, false, eval_not, {0}, "!($a)"},
    [TNI_P_CAST] = {"a cast", 1, 0, TNI_TYPED_BY_HAND, false, NULL, {"d"}},
    [TNI_P_ADD] = {" + ", 2, 5, SAME, true, eval_add, {"d", "d"}, "$a + $b"},
    [TNI_P_SUB] = {" - ", 2, 5, SAME, false, eval_sub, {"d", "-d"}, "$a - $b"},
    [TNI_P_MUL] = {" * ", 2, 6, SAME, true, eval_mul, {"d * b", "d * a"}, "$a * $b"},
    [TNI_P_DIV] = {" / ", 2, 6, FLOAT, false, eval_div, {"d / b", "-(d * y / b)"}, "$a / $b"},
    [TNI_P_MOD] = {" % ", 2, 6, SAME, false, eval_mod, {"d", "-(d * floor(a / b))"}, "tn_mod($a, $b)"},
    [TNI_P_POW] = {" ** ",
                   2,
                   8,
                   SAME,
                   false,
                   eval_pow,
                   {"where(b == 0, 0.0, d * b * a ** (b - 1))", "where(a == 0, 0.0, d * y * log(a))"},
                   "tn_pow($a, $b)"},
    [TNI_P_MIN] = {"min",
                   2,
                   0,
                   SAME,
                   true,
                   eval_min,
                   {"where(a <= b, where(a == b, d * 0.5, d), 0.0)", "where(b <= a, where(a == b, d * 0.5, d), 0.0)"},
                   "tn_min($a, $b)"},
    [TNI_P_MAX] = {"max",
                   2,
                   0,
                   SAME,
                   true,
                   eval_max,
                   {"where(a >= b, where(a == b, d * 0.5, d), 0.0)", "where(b >= a, where(a == b, d * 0.5, d), 0.0)"},
                   "tn_max($a, $b)"},
    [TNI_P_LT] = {" < ", 2, 4, TEST, false, eval_lt, {0}, "$a < $b"},
    [TNI_P_LE] = {" <= ", 2, 4, TEST, false, eval_le, {0}, "$a <= $b"},
    [TNI_P_EQ] = {" == ", 2, 4, TEST, true, eval_eq, {0}, "$a == $b"},
    [TNI_P_NE] = {" != ", 2, 4, TEST, true, eval_ne, {0}, "$a != $b"},
    [TNI_P_AND] = {" and ", 2, 2, LOGIC, true, eval_and, {0}, "$a & $b"},
    [TNI_P_OR] = {" or ", 2, 1, LOGIC, true, eval_or, {0}, "$a | $b"},
    [TNI_P_WHERE] = {"where",
                     3,
                     0,
                     TNI_TYPED_CHOICE,
                     false,
                     eval_where,
                     {NULL, "where(a, d, 0.0)", "where(a, 0.0, d)"},
                     "$a ? $b : $c"},
    [TNI_P_CLAMP] = {"clamp",
                     3,
                     0,
                     SAME,
                     false,
                     eval_clamp,
                     {"where(a < b, 0.0, where(a > c, 0.0, d))", "where(a < b, where(b <= c, d, 0.0), 0.0)",
                      "where(a > c, d, where(b > c, d, 0.0))"},
                     "tn_min(tn_max($a, $b), $c)"},
    [TNI_P_SUM] = {"sum", 1, 0, SAME, false, NULL, {"d"}},
    [TNI_P_MEAN] = {"mean", 1, 0, FLOAT, false, NULL, {"d / count(a)"}},
    [TNI_P_RMAX] = {"max", 1, 0, SAME, false, NULL, {"where(a == y, d / sum(where(a == y, 1.0, 0.0)), 0.0)"}},
    [TNI_P_RMIN] = {"min", 1, 0, SAME, false, NULL, {"where(a == y, d / sum(where(a == y, 1.0, 0.0)), 0.0)"}},
    [TNI_P_VAR] = {"var", 1, 0, FLOAT, false, NULL, {"d * 2.0 * (a - mean(a)) / count(a)"}},
    [TNI_P_LSE] = {"logsumexp", 1, 0, FLOAT, false, NULL, {"d * exp(a - y)"}},
    [TNI_P_SUM_TO] = {"sum_to", 2, 0, TNI_TYPED_FIRST, false, NULL, {"d"}},
    [TNI_P_EXPAND] = {"expand", 2, 0, TNI_TYPED_FIRST, false, NULL, {"d"}},
};

const tni_composite tni_composites[] = {
    {"pow", 2, "a ** b"},
    {"silu", 1, "a * sigmoid(a)"},
    {"gelu", 1, "a * (0.5 + 0.5 * erf(a * 0.7071067811865476))"},
    {"gelu_tanh", 1, "0.5 * a * (1 + tanh(0.7978845608028654 * (a + 0.044715 * (a * a * a))))"},
    {0},
};
