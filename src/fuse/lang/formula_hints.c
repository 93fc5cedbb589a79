/* What a message offers for a name that the language does not have: the name that was meant, or how other libraries'
 * functions are written here. */
#include <string.h>

#include "core/table/activation_names.h"
#include "formula_parse.h"

/* Functions that people know from elsewhere, and how a formula says the same. */
static const struct {
    const char *name, *written;
} elsewhere[] = {
    {"absolute", "abs(x)"},
    {"amax", "max(x, axis=-1)"},
    {"amin", "min(x, axis=-1)"},
    {"average", "mean(x)"},
    {"bitwise_and", "a & b"},
    {"bitwise_not", "~x"},
    {"bitwise_or", "a | b"},
    {"bitwise_xor", "a ^ b"},
    {"cast", "f32(x), or the name of another type"},
    {"ceil", "-floor(-x)"},
    {"clip", "clamp(x, low, high)"},
    {"cosh", "(exp(x) + exp(-x)) / 2"},
    {"divide", "a / b"},
    {"dot", "sum(a * b, -1)"},
    {"double", "f64(x)"},
    {"dropout", "where(rand(seed) < p, 0, x / (1 - p))"},
    {"exp2", "2 ** x"},
    {"expit", "sigmoid(x)"},
    {"fabs", "abs(x)"},
    {"float", "f32(x)"},
    {"floor_divide", "floor(a / b)"},
    {"fmod", "a % b, which has the sign of b"},
    {"half", "f16(x)"},
    {"int", "i32(x)"},
    {"isfinite", "abs(x) < inf"},
    {"isinf", "abs(x) == inf"},
    {"isnan", "x != x"},
    {"length", "count(x)"},
    {"log10", "log(x) / 2.302585092994046"},
    {"log2", "log(x) / 0.6931471805599453"},
    {"log_sigmoid", "-softplus(-x)"},
    {"log_softmax", "x - logsumexp(x, -1)"},
    {"logaddexp", "max(a, b) + log1p(exp(-abs(a - b)))"},
    {"logical_and", "a and b"},
    {"logical_not", "not a"},
    {"logical_or", "a or b"},
    {"logical_xor", "a != b"},
    {"logit", "log(x / (1 - x))"},
    {"logsigmoid", "-softplus(-x)"},
    {"mod", "a % b"},
    {"multiply", "a * b"},
    {"neg", "-x"},
    {"negative", "-x"},
    {"norm", "sqrt(sum(x * x, -1))"},
    {"numel", "count(x)"},
    {"power", "a ** b"},
    {"reciprocal", "1 / x"},
    {"remainder", "a % b"},
    {"sinh", "(exp(x) - exp(-x)) / 2"},
    {"size", "count(x)"},
    {"softmax", "exp(x - logsumexp(x, -1))"},
    {"square", "x * x"},
    {"std", "sqrt(var(x)), where var divides by the count"},
    {"subtract", "a - b"},
    {"swish", "silu(x)"},
    {"tan", "sin(x) / cos(x)"},
    {"trunc", "sign(x) * floor(abs(x))"},
};

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

static void consider(nearest *best, const char *name) {
    int distance = tni_misspelt(best->wanted, name);
    if (!distance || (best->distance && distance >= best->distance)) return;
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
    const char *written = written_as(name);
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
