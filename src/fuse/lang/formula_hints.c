/* What a message offers for a name that the language does not have: the name that was meant, or how other libraries'
 * functions are written here. */
#include <stdio.h>
#include <string.h>

#include "core/table/activation_names.h"
#include "formula_parse.h"

/* Functions that people know from elsewhere, and how a formula says the same. */
static const struct {
    const char *name, *written;
} elsewhere[] = {
    {"absolute", "abs(x)"},
    {"addcmul", "a + b * c"},
    {"amax", "max(x, axis=-1)"},
    {"amin", "min(x, axis=-1)"},
    {"arccos", "acos(x)"},
    {"arccosh", "acosh(x)"},
    {"arcsin", "asin(x)"},
    {"arcsinh", "asinh(x)"},
    {"arctan", "atan(x)"},
    {"arctan2", "atan2(y, x)"},
    {"arctanh", "atanh(x)"},
    {"average", "mean(x)"},
    {"bfloat16", "bf16(x)"},
    {"bitwise_and", "a & b"},
    {"bitwise_not", "~x"},
    {"bitwise_or", "a | b"},
    {"bitwise_xor", "a ^ b"},
    {"cast", "f32(x), or the name of another type"},
    {"clip", "clamp(x, low, high)"},
    {"count_nonzero", "sum(x != 0)"},
    {"divide", "a / b"},
    {"dot", "sum(a * b, -1)"},
    {"double", "f64(x)"},
    {"dropout", "where(rand(seed) < p, 0, x / (1 - p))"},
    {"expit", "sigmoid(x)"},
    {"fabs", "abs(x)"},
    {"fix", "trunc(x)"},
    {"float", "f32(x)"},
    {"float16", "f16(x)"},
    {"float32", "f32(x)"},
    {"float64", "f64(x)"},
    {"floor_divide", "floor(a / b)"},
    {"fmod", "a % b, which has the sign of b"},
    {"full_like", "expand(value, x)"},
    {"gammaln", "lgamma(x)"},
    {"half", "f16(x)"},
    {"hard_tanh", "hardtanh(x)"},
    {"heaviside", "where(x > 0, 1, 0)"},
    {"hypot", "sqrt(a * a + b * b)"},
    {"int", "i32(x)"},
    {"int16", "i16(x)"},
    {"int32", "i32(x)"},
    {"int64", "i64(x)"},
    {"int8", "i8(x)"},
    {"l2norm", "norm(x)"},
    {"layer_norm", "(x - mean(x, -1)) * rsqrt(var(x, -1) + 1e-5)"},
    {"len", "count(x)"},
    {"length", "count(x)"},
    {"lerp", "a + w * (b - a)"},
    {"logical_and", "a and b"},
    {"logical_not", "not a"},
    {"logical_or", "a or b"},
    {"logical_xor", "a != b"},
    {"logit", "log(x / (1 - x))"},
    {"logsigmoid", "-softplus(-x)"},
    {"logsoftmax", "log_softmax(x)"},
    {"long", "i64(x)"},
    {"masked_fill", "where(mask, value, x)"},
    {"mod", "a % b"},
    {"multiply", "a * b"},
    {"nan_to_num", "where(x != x, 0, x)"},
    {"neg", "-x"},
    {"negative", "-x"},
    {"normal", "sqrt(-2 * log(1 - rand(seed))) * cos(2 * pi * rand(seed, 1))"},
    {"numel", "count(x)"},
    {"ones_like", "expand(1, x)"},
    {"power", "a ** b"},
    {"randn", "sqrt(-2 * log(1 - rand(seed))) * cos(2 * pi * rand(seed, 1))"},
    {"random", "rand(seed)"},
    {"reciprocal", "1 / x"},
    {"reduce_max", "max(x)"},
    {"reduce_mean", "mean(x)"},
    {"reduce_sum", "sum(x)"},
    {"remainder", "a % b"},
    {"rms_norm", "x * rsqrt(mean(x * x, -1) + 1e-6)"},
    {"shape", "count(x), or count(x, -1) for the last dimension"},
    {"size", "count(x)"},
    {"stop_gradient", "detach(x)"},
    {"subtract", "a - b"},
    {"swish", "silu(x)"},
    {"uint8", "u8(x)"},
    {"vector_norm", "norm(x)"},
    {"zeros_like", "expand(0, x)"},
};

/* Functions that are no part of the language, and are no misspelling of another one. */
static const struct {
    const char *names, *why; /* names: a blank before and behind each */
} outside[] = {
    {" mm bmm addmm einsum conv1d conv2d tensordot inner outer ",
     "matrix products are no part of a formula: compute it outside, and give the formula the result"},
    {" sort argsort topk cumsum cumprod roll flip gather scatter index_select take ",
     "a formula computes elements and reduces them: compute it outside, and give the formula the result"},
    {" cat concat concatenate stack split chunk reshape view permute transpose squeeze unsqueeze flatten t T pad ",
     "a formula does not rearrange its inputs: give it the values as it should read them"},
    {" to astype type type_as ", "a cast is written f32(x), or with the name of another type"},
};

static const char *why_outside(const char *name) {
    char word[TNI_MAX_NAME + 3];
    snprintf(word, sizeof word, " %s ", name);
    for (size_t i = 0; i < sizeof outside / sizeof outside[0]; i++) {
        if (strstr(outside[i].names, word)) return outside[i].why;
    }
    return NULL;
}

static const char *written_as(const char *name) {
    for (size_t i = 0; i < sizeof elsewhere / sizeof elsewhere[0]; i++) {
        if (strcmp(elsewhere[i].name, name) == 0) return elsewhere[i].written;
    }
    return NULL;
}

/* ---- the nearest name -------------------------------------------------------------------------------------------- */

typedef struct nearest {
    const char *wanted, *name;
    int distance; /* of the name; 0: there is none */
} nearest;

/* Of two that are as near, the one of the same length: tahn is tanh, and not tan. */
static void consider(nearest *best, const char *name) {
    int distance = tni_misspelt(best->wanted, name);
    bool has_alike = best->name && strlen(best->name) == strlen(best->wanted),
         alike = strlen(name) == strlen(best->wanted);
    if (!distance || (best->distance && distance > best->distance)) return;
    if (distance == best->distance && (has_alike || !alike)) return;
    best->distance = distance;
    best->name = name;
}

static void consider_functions(nearest *best) {
    for (int i = 0; tni_function_name(i); i++) consider(best, tni_function_name(i));
    for (const tni_composite *c = tni_composites; c->name; c++) consider(best, c->name);
    for (int i = 0; i < tn_function_count(); i++) {
        const tn_function *op = tn_function_at(i);
        if (tni_is_activation(op)) consider(best, op->contract->name);
    }
    for (size_t i = 0; i < sizeof elsewhere / sizeof elsewhere[0]; i++) consider(best, elsewhere[i].name);
}

static void consider_values(nearest *best, const tni_parser *p) {
    for (int i = 0; i < p->n_names; i++) consider(best, p->names[i].name);
    for (int i = 0; p->bare && i < p->scope->n_inputs; i++) consider(best, p->scope->inputs[i]);
    const tni_contract *c = tni_parse_attrs(p);
    for (int i = 0; c && i < c->n_attrs; i++) consider(best, c->attrs[i].name);
}

void tni_hint_function(tni_text *text, const char *name) {
    nearest best = {.wanted = name};
    const char *written = written_as(name), *why = why_outside(name);
    if (why) {
        tni_text_add(text, "; %s", why);
        return;
    }
    if (!written) consider_functions(&best);
    if (best.name) {
        tni_text_add(text, "; did you mean '%s'?", best.name);
        written = written_as(best.name);
    }
    if (written) tni_text_add(text, best.name ? " It is written %s" : "; it is written %s", written);
}

void tni_hint_value(tni_text *text, const tni_parser *p, const char *name) {
    nearest best = {.wanted = name};
    consider_values(&best, p);
    if (best.name) tni_text_add(text, "; did you mean '%s'?", best.name);
}

/* ---- words of Python and C --------------------------------------------------------------------------------------- */

const char *tni_hint_word(const char *name) {
    static const struct {
        const char *name, *hint;
    } words[] = {
        {"True", "the truth values are true and false"},
        {"TRUE", "the truth values are true and false"},
        {"False", "the truth values are true and false"},
        {"FALSE", "the truth values are true and false"},
        {"None", "an input that may be absent has a '?' in the signature, and has(x) says whether it is there"},
        {"none", "an input that may be absent has a '?' in the signature, and has(x) says whether it is there"},
        {"null", "an input that may be absent has a '?' in the signature, and has(x) says whether it is there"},
        {"NULL", "an input that may be absent has a '?' in the signature, and has(x) says whether it is there"},
        {"NaN", "it is written nan"},
        {"NAN", "it is written nan"},
        {"Inf", "it is written inf"},
        {"INF", "it is written inf"},
        {"infinity", "it is written inf"},
        {"Infinity", "it is written inf"},
        {"INFINITY", "it is written inf"},
    };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strcmp(words[i].name, name) == 0) return words[i].hint;
    }
    return NULL;
}
