/* Bounds and sizes of parts: sums of dimensions, attributes of type int and whole numbers. */
#include <string.h>

#include "formula_parse.h"

tn_status tni_size_too_large(const tni_parser *p, int32_t at) {
    return tni_lex_fail(&p->lex, at, "this size is no sum of a few dimensions, whole attributes and numbers");
}

/* A dimension of the contract, or an attribute that is an int. */
static tn_status size_named(tni_parser *p, tni_size *made) {
    const tni_contract *c = tni_parse_attrs(p);
    char name[TNI_MAX_NAME + 1] = "";
    memcpy(name, p->lex.text + p->lex.token.at, (size_t)p->lex.token.length);
    const int32_t attr = c ? tni_attr_named(c, name) : -1;
    for (int32_t i = 0; c && i < c->n_dims; i++) {
        if (strcmp(c->dims[i], name) != 0) continue;
        *made = tni_size_named(i);
        return tni_parse_next(p);
    }
    if (attr >= 0 && c->attrs[attr].kind == TNI_A_INT && !c->attrs[attr].optional) {
        *made = tni_size_named(TNI_SIZE_ATTR + attr);
        return tni_parse_next(p);
    }
    return tni_lex_fail(&p->lex, p->lex.token.at,
                        "'%s' is no dimension of the signature and no attribute of type int: bounds are made of these "
                        "and of whole numbers",
                        name);
}

static tn_status parse_factor(tni_parser *p, tni_size *made) {
    const int32_t at = p->lex.token.at;
    if (tni_parse_at(p, '-')) {
        tni_size inner;
        TN_TRY(tni_parse_next(p));
        TN_TRY(parse_factor(p, &inner));
        return tni_size_scale(&inner, -1, 1, made) ? TN_OK : tni_size_too_large(p, at);
    }
    if (tni_parse_at(p, '(')) {
        TN_TRY(tni_parse_next(p));
        TN_TRY(tni_parse_size(p, made));
        if (!tni_parse_at(p, ')')) return tni_lex_expected(&p->lex, "')'");
        return tni_parse_next(p);
    }
    if (tni_parse_at(p, TNI_NAME)) return size_named(p, made);
    if (!tni_parse_at(p, TNI_INT)) {
        return tni_lex_expected(&p->lex, "a whole number, a dimension or an attribute of type int");
    }
    if (p->lex.token.value >= (int64_t)1 << 40) return tni_size_too_large(p, at);
    *made = tni_size_of(p->lex.token.value);
    return tni_parse_next(p);
}

static tn_status parse_size_product(tni_parser *p, tni_size *made) {
    TN_TRY(parse_factor(p, made));
    while (tni_parse_at(p, '*') || tni_parse_at(p, '/')) {
        const bool times = tni_parse_at(p, '*');
        const int32_t at = p->lex.token.at;
        tni_size left = *made, right;
        TN_TRY(tni_parse_next(p));
        TN_TRY(parse_factor(p, &right));
        if (times && tni_size_is_number(&left)) {
            const tni_size other = left;
            left = right;
            right = other;
        }
        const bool number = tni_size_is_number(&right);
        const bool fits = number && (times ? tni_size_scale(&left, right.constant, 1, made)
                                           : tni_size_scale(&left, 1, right.constant, made));
        if (!fits) return tni_size_too_large(p, at);
    }
    return TN_OK;
}

tn_status tni_parse_size(tni_parser *p, tni_size *made) {
    TN_TRY(parse_size_product(p, made));
    while (tni_parse_at(p, '+') || tni_parse_at(p, '-')) {
        const int sign = tni_parse_at(p, '+') ? 1 : -1;
        const int32_t at = p->lex.token.at;
        tni_size left = *made, right;
        TN_TRY(tni_parse_next(p));
        TN_TRY(parse_size_product(p, &right));
        if (!tni_size_add(&left, sign, &right, made)) return tni_size_too_large(p, at);
    }
    return TN_OK;
}
