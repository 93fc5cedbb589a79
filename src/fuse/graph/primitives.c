/* The table of primitives, and their references: the value of each in double. */
#include "primitives.h"

#include <math.h>
#include <stddef.h>

#include "core/layout/layout.h"
#include "special_functions.h"

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

/* Two that are infinite alike stay so. */
static double logaddexp(double a, double b) {
    return a == b ? a + 0.69314718055994530942 : most(a, b) + log1p(exp(-fabs(a - b)));
}

static int64_t shift_left(int64_t a, int64_t b) {
    return (uint64_t)b < 64 ? (int64_t)((uint64_t)a << b) : 0;
}
static int64_t shift_right(int64_t a, int64_t b) {
    return a >> ((uint64_t)b < 64 ? b : 63);
}

#define EVAL_VALUE(expression) return expression;
#define EVAL_NONE return NAN;
#define PRIMITIVE(id, value, ...)                                   \
    static double eval_##id(double a, double b, double c) {         \
        (void)a, (void)b, (void)c; /* most need fewer than three */ \
        EVAL_##value                                                \
    }
#include "primitive_list.h"

#define HAS_VALUE(expression) 1
#define HAS_NONE 0
#define PRIMITIVE(id, value, real, whole, truth, coarse, ...) \
    [TNI_P_##id] = {.eval = HAS_##value ? eval_##id : NULL, __VA_ARGS__},
const tni_prim_row tni_prims[TNI_PRIMS] = {
#include "primitive_list.h"
};

const tni_composite tni_composites[] = {
    {"pow", 2, "a ** b"},
    {"silu", 1, "a * sigmoid(a)"},
    {"gelu", 1, "a * (0.5 + 0.5 * erf(a * 0.7071067811865476))"},
    {"gelu_tanh", 1, "0.5 * a * (1 + tanh(0.7978845608028654 * (a + 0.044715 * (a * a * a))))"},
    {"isnan", 1, "a != a"},
    {"isinf", 1, "abs(a) == inf"},
    {"isfinite", 1, "abs(a) < inf"},
    {"relu6", 1, "where(a <= 0, 0, where(a >= 6, 6, a))"}, /* at its bounds the derivative is 0, as that of relu */
    {"hardtanh", 1, "where(a <= -1, -1, where(a >= 1, 1, a))"},
    {"hardtanh", 3, "where(a <= b, b, where(a >= c, c, a))"},
    /* The maximum makes no difference to the value, so it need not be differentiated. */
    {"softmax", 1, "exp(a - detach(max(a))) / sum(exp(a - detach(max(a))))", TNI_COMPOSED_ROWS},
    {"log_softmax", 1, "(a - detach(max(a))) - log(sum(exp(a - detach(max(a)))))", TNI_COMPOSED_ROWS},
    /* Where a root is 0 its derivative would be infinite, and that of higher orders 0 / 0. */
    {"norm", 1, "where(sum(a * a) == 0, 0.0, sqrt(where(sum(a * a) == 0, 1.0, sum(a * a))))", TNI_COMPOSED_ALL},
    {"std", 1, "where(var(a) == 0, 0.0, sqrt(where(var(a) == 0, 1.0, var(a))))", TNI_COMPOSED_ALL},
    /* The first of those that are equal; of a NaN, if there is one. No index is as large as the other number. */
    {"argmax", 1, "i64(min(where(a == max(a) or a != a, index(a), 9007199254740992)))", TNI_COMPOSED_ALL},
    {"argmin", 1, "i64(min(where(a == min(a) or a != a, index(a), 9007199254740992)))", TNI_COMPOSED_ALL},
    /* A sum of ones is 0 if there is none of them, however it is rounded: floats are added faster than integers. */
    {"any", 1, "sum(where(a, 1.0, 0.0)) != 0", TNI_COMPOSED_ALL},
    {"all", 1, "sum(where(a, 0.0, 1.0)) == 0", TNI_COMPOSED_ALL},
    {0},
};
