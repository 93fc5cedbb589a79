/* Sizes of parts as numbers with names in them. */
#include "sizes.h"

#include <string.h>

static const int64_t MOST = (int64_t)1 << 40; /* so that no product of two wraps around with a third beside it */

static int64_t gcd(int64_t a, int64_t b) {
    while (b) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a < 0 ? -a : a;
}

static int64_t floor_div(int64_t a, int64_t b) {
    return a / b - (a % b < 0);
}

/* Its one form; false where a number is too large. */
static bool reduce(tni_size *s) {
    int64_t common = s->floors ? s->divisor : gcd(s->divisor, s->constant);
    int32_t n = 0;
    for (int32_t i = 0; i < s->n; i++) {
        if (s->factor[i] == 0) continue;
        s->ref[n] = s->ref[i];
        s->factor[n++] = s->factor[i];
    }
    for (int32_t i = n; i < TNI_SIZE_TERMS; i++) s->ref[i] = 0, s->factor[i] = 0;
    s->n = n;
    for (int32_t i = 0; i < n; i++) common = gcd(common, s->factor[i]);
    if (common == 0) return false;
    bool fits = true;
    for (int32_t i = 0; i < n; i++) {
        s->factor[i] /= common;
        fits &= s->factor[i] < MOST && s->factor[i] > -MOST;
    }
    s->constant = floor_div(s->constant, common); /* floor((2 * c + 1) / 2) is c */
    s->divisor /= common;
    s->floors &= s->divisor > 1;
    return fits && s->constant < MOST && s->constant > -MOST && s->divisor < MOST;
}

tni_size tni_size_of(int64_t constant) {
    return (tni_size){.constant = constant, .divisor = 1};
}

tni_size tni_size_named(int32_t ref) {
    return (tni_size){.n = 1, .ref = {ref}, .factor = {1}, .divisor = 1};
}

/* Over a common divisor; `by` is what b is taken times. */
static bool add_term(tni_size *s, int32_t ref, int64_t factor) {
    int32_t i = 0;
    while (i < s->n && s->ref[i] < ref) i++;
    if (i < s->n && s->ref[i] == ref) {
        s->factor[i] += factor;
        return true;
    }
    if (s->n == TNI_SIZE_TERMS) return false;
    memmove(&s->ref[i + 1], &s->ref[i], (size_t)(s->n - i) * sizeof *s->ref);
    memmove(&s->factor[i + 1], &s->factor[i], (size_t)(s->n - i) * sizeof *s->factor);
    s->ref[i] = ref;
    s->factor[i] = factor;
    s->n++;
    return true;
}

/* -floor(a / d) is floor((d - 1 - a) / d) */
tni_size tni_size_minus(const tni_size *a) {
    tni_size made = *a;
    for (int32_t i = 0; i < made.n; i++) made.factor[i] = -made.factor[i];
    made.constant = (a->floors ? a->divisor - 1 : 0) - made.constant;
    return made;
}

/* floor(a / d) + floor(b / d), which is one number where a + b is d * whole + d - 1, whatever the rests are. */
static bool add_rounded(const tni_size *a, const tni_size *b, tni_size *made) {
    if (a->divisor != b->divisor) return false;
    tni_size left = *a, right = *b;
    const tni_size rest = tni_size_of(a->divisor - 1);
    left.floors = right.floors = false;
    left.divisor = right.divisor = 1;
    return tni_size_add(&left, 1, &right, &left) && tni_size_add(&left, -1, &rest, &left) &&
           tni_size_scale(&left, 1, a->divisor, made) && made->divisor == 1;
}

bool tni_size_add(const tni_size *a, int64_t sign, const tni_size *b, tni_size *made) {
    if (a->divisor > (1 << 20) || b->divisor > (1 << 20)) return false;
    if (b->floors && sign < 0) {
        const tni_size other = tni_size_minus(b);
        return tni_size_add(a, 1, &other, made);
    }
    if (a->floors && b->floors) return add_rounded(a, b, made);
    tni_size sum = *a;
    sum.floors |= b->floors; /* the other one is whole */
    for (int32_t i = 0; i < sum.n; i++) sum.factor[i] *= b->divisor;
    sum.constant = a->constant * b->divisor + sign * b->constant * a->divisor;
    sum.divisor = a->divisor * b->divisor;
    for (int32_t i = 0; i < b->n; i++) {
        if (!add_term(&sum, b->ref[i], sign * b->factor[i] * a->divisor)) return false;
    }
    *made = sum;
    return reduce(made);
}

bool tni_size_scale(const tni_size *a, int64_t by, int64_t divisor, tni_size *made) {
    const int64_t most = 1 << 20;
    if (divisor < 1 || divisor > most || by > most || by < -most || a->divisor > most) return false;
    if (a->floors && by == -1 && divisor == 1) {
        *made = tni_size_minus(a);
        return reduce(made);
    }
    if (a->floors && (by != 1 || divisor != 1)) return false;
    *made = *a;
    for (int32_t i = 0; i < made->n; i++) made->factor[i] *= by;
    made->constant *= by;
    made->divisor *= divisor;
    return reduce(made);
}

bool tni_size_steps(const tni_size *length, int64_t step, tni_size *made) {
    const tni_size rest = tni_size_of(step - 1);
    if (step < 1 || step > 1 << 20 || !tni_size_add(length, 1, &rest, made) || made->divisor > 1 << 20) return false;
    made->divisor *= step;
    made->floors = made->divisor > 1;
    return reduce(made);
}

bool tni_size_same(const tni_size *a, const tni_size *b) {
    bool same = a->n == b->n && a->constant == b->constant && a->divisor == b->divisor;
    for (int32_t i = 0; i < a->n && same; i++) same = a->ref[i] == b->ref[i] && a->factor[i] == b->factor[i];
    return same;
}

bool tni_size_of_node(const tni_contract *c, int32_t index, tni_size *made) {
    const tni_node *node = &c->nodes[index];
    tni_size left, right;
    if (node->kind == TNI_DIM || (node->kind == TNI_ATTR && c->attrs[node->ref].kind == TNI_A_INT)) {
        *made = tni_size_named(node->kind == TNI_DIM ? node->ref : TNI_SIZE_ATTR + node->ref);
        return true;
    }
    if (node->kind == TNI_LIT_INT) {
        *made = tni_size_of(node->value);
        return node->value < MOST && node->value > -MOST;
    }
    if (node->left < 0 || !tni_size_of_node(c, node->left, &left)) return false;
    if (node->right < 0 || !tni_size_of_node(c, node->right, &right)) return false;
    switch (node->kind) {
    case TNI_ADD: return tni_size_add(&left, 1, &right, made);
    case TNI_SUB: return tni_size_add(&left, -1, &right, made);
    case TNI_MUL:
        if (tni_size_is_number(&left)) return tni_size_scale(&right, left.constant, 1, made);
        return tni_size_is_number(&right) && tni_size_scale(&left, right.constant, 1, made);
    case TNI_DIV: return tni_size_is_number(&right) && tni_size_scale(&left, 1, right.constant, made);
    default: return false;
    }
}

void tni_size_print_plain(tni_text *text, const tni_contract *c, const tni_size *s) {
    const bool several = s->n + (s->constant != 0) > 1, brackets = several && s->divisor > 1;
    bool first = true;
    if (brackets) tni_text_add(text, "(");
    for (int pass = 0; pass < 2; pass++) { /* what is added comes first: no contract begins with a sign */
        for (int32_t i = 0; i < s->n; i++) {
            if ((s->factor[i] < 0) != (pass == 1)) continue;
            const int32_t ref = s->ref[i];
            const int64_t factor = s->factor[i] < 0 ? -s->factor[i] : s->factor[i];
            const char *name = ref >= TNI_SIZE_ATTR ? c->attrs[ref - TNI_SIZE_ATTR].name : c->dims[ref];
            tni_text_add(text, "%s", pass ? (first ? "0 - " : " - ") : first ? "" : " + ");
            if (factor != 1) tni_text_add(text, "%lld * ", (long long)factor);
            tni_text_add(text, "%s", name);
            first = false;
        }
        if (pass == 0 && (s->constant > 0 || (s->n == 0 && s->constant == 0))) {
            tni_text_add(text, "%s%lld", first ? "" : " + ", (long long)s->constant);
            first = false;
        }
    }
    if (s->constant < 0) tni_text_add(text, "%s%lld", first ? "0 - " : " - ", -(long long)s->constant);
    if (brackets) tni_text_add(text, ")");
    if (s->divisor > 1) tni_text_add(text, " / %lld", (long long)s->divisor);
}

void tni_size_print(tni_text *text, const tni_contract *c, const tni_size *s) {
    if (s->floors) tni_text_put(text, "floor(");
    tni_size_print_plain(text, c, s);
    if (s->floors) tni_text_put(text, ")");
}
