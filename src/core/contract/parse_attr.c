/* The grammar of attributes: their types and defaults. */
#include <string.h>

#include "parts.h"

static tn_status parse_number(tni_draft *d, const tni_attr *attr, tn_value *value) {
    bool negative, real = attr->kind == TNI_A_FLOAT;
    TN_TRY(tni_draft_take(d, '-', &negative));
    const tni_token *token = &d->lex.token;
    double infinity = __builtin_inf();
    if (real && tni_lex_is(&d->lex, "inf")) {
        *value = (tn_value){.kind = TN_ATTR_FLOAT, .f = negative ? -infinity : infinity};
    } else if (token->kind != TNI_INT && !(real && token->kind == TNI_FLOAT)) {
        return tni_lex_expected(&d->lex, "%s as the default of '%s'", real ? "a number" : "an integer", attr->name);
    } else if (real) {
        *value = (tn_value){.kind = TN_ATTR_FLOAT, .f = negative ? -token->number : token->number};
    } else {
        *value = (tn_value){.kind = TN_ATTR_INT, .i = negative ? -token->value : token->value};
    }
    return tni_draft_next(d);
}

static tn_status parse_ints(tni_draft *d, const tni_attr *attr, tn_value *value) {
    int64_t ints[TNI_MAX_INTS];
    int32_t n = 0, begin = d->lex.token.at;
    bool negative;
    if (!tni_draft_at(d, '['))
        return tni_lex_expected(&d->lex, "a list such as [0, 1] as the default of '%s'", attr->name);
    TN_TRY(tni_draft_next(d));
    for (bool more = !tni_draft_at(d, ']'); more;) {
        TN_TRY(tni_draft_take(d, '-', &negative));
        if (!tni_draft_at(d, TNI_INT)) return tni_lex_expected(&d->lex, "an integer");
        if (n == TNI_MAX_INTS) {
            return tni_lex_fail(&d->lex, d->lex.token.at, "a list has at most %d elements", TNI_MAX_INTS);
        }
        ints[n++] = negative ? -d->lex.token.value : d->lex.token.value;
        TN_TRY(tni_draft_next(d));
        TN_TRY(tni_draft_take(d, ',', &more));
    }
    TN_TRY(tni_draft_expect(d, ']', "',' or ']' in a list"));
    if (attr->length >= 0 && n != attr->length) {
        return tni_lex_fail(&d->lex, begin, "the default of '%s' has %d elements, not %d", attr->name, n, attr->length);
    }
    int64_t *kept = tni_arena_alloc(d->arena, (size_t)n * sizeof *ints);
    if (!kept) return TN_NO_MEMORY;
    memcpy(kept, ints, (size_t)n * sizeof *ints);
    *value = (tn_value){.kind = TN_ATTR_INTS, .count = n, .ints = kept};
    return TN_OK;
}

static tn_status parse_string_default(tni_draft *d, const tni_attr *attr, tn_value *value) {
    int32_t begin = d->lex.token.at;
    if (!tni_draft_at(d, TNI_STRING))
        return tni_lex_expected(&d->lex, "a string in quotes as the default of '%s'", attr->name);
    *value = (tn_value){.kind = TN_ATTR_STR};
    TN_TRY(tni_draft_copy_token(d, &value->s));
    if (attr->kind != TNI_A_CHOICE) return TN_OK;
    for (int i = 0; i < attr->n_choices; i++) {
        if (strcmp(attr->choices[i], value->s) == 0) {
            value->s = attr->choices[i];
            value->choice = (int16_t)i;
            return TN_OK;
        }
    }
    return tni_lex_fail(&d->lex, begin, "the default '%s' is not one of the choices of '%s'", value->s, attr->name);
}

static tn_status parse_default(tni_draft *d, tni_attr *attr) {
    tn_value *value = &attr->value;
    attr->has_default = true;
    switch (attr->kind) {
    case TNI_A_INT:
    case TNI_A_AXIS:
    case TNI_A_FLOAT: return parse_number(d, attr, value);
    case TNI_A_AXES:
    case TNI_A_INTS: return parse_ints(d, attr, value);
    case TNI_A_STR:
    case TNI_A_CHOICE:
    case TNI_A_ACTIVATION: return parse_string_default(d, attr, value);
    case TNI_A_DTYPE:
        *value = (tn_value){.kind = TN_ATTR_TYPE, .type = tni_draft_type_at(d)};
        if (value->type != TN_NO_TYPE) return tni_draft_next(d);
        return tni_lex_expected(&d->lex, "the name of a type as the default of '%s'", attr->name);
    case TNI_A_BOOL:
        *value = (tn_value){.kind = TN_ATTR_BOOL, .b = tni_lex_is(&d->lex, "true")};
        if (value->b || tni_lex_is(&d->lex, "false")) return tni_draft_next(d);
        return tni_lex_expected(&d->lex, "true or false as the default of '%s'", attr->name);
    }
    return TN_OK;
}

static tn_status parse_choices(tni_draft *d, tni_attr *attr) {
    const char *choices[TNI_MAX_ARGS];
    attr->kind = TNI_A_CHOICE;
    for (bool more = true; more;) {
        if (!tni_draft_at(d, TNI_STRING)) return tni_lex_expected(&d->lex, "a string in quotes after '|'");
        int32_t begin = d->lex.token.at;
        if (attr->n_choices == TNI_MAX_ARGS) {
            return tni_lex_fail(&d->lex, begin, "more than %d choices", TNI_MAX_ARGS);
        }
        TN_TRY(tni_draft_copy_token(d, &choices[attr->n_choices]));
        for (int i = 0; i < attr->n_choices; i++) {
            if (strcmp(choices[i], choices[attr->n_choices]) == 0) {
                return tni_lex_fail(&d->lex, begin, "the choice '%s' is listed twice", choices[i]);
            }
        }
        attr->n_choices++;
        TN_TRY(tni_draft_take(d, '|', &more));
    }
    const char **kept = tni_arena_alloc(d->arena, (size_t)attr->n_choices * sizeof *kept);
    if (!kept) return TN_NO_MEMORY;
    memcpy(kept, choices, (size_t)attr->n_choices * sizeof *kept);
    attr->choices = kept;
    return TN_OK;
}

static const struct {
    const char *name;
    tni_attr_kind kind;
} attr_kinds[] = {{"int", TNI_A_INT},   {"float", TNI_A_FLOAT}, {"bool", TNI_A_BOOL},
                  {"str", TNI_A_STR},   {"axis", TNI_A_AXIS},   {"axes", TNI_A_AXES},
                  {"ints", TNI_A_INTS}, {"dtype", TNI_A_DTYPE}, {"activation", TNI_A_ACTIVATION}};

/* `ints[2]`, at the bracket. */
static tn_status parse_length(tni_draft *d, tni_attr *attr) {
    TN_TRY(tni_draft_next(d));
    if (!tni_draft_at(d, TNI_INT) || d->lex.token.value < 1 || d->lex.token.value > TNI_MAX_INTS) {
        return tni_lex_expected(&d->lex, "a length from 1 to %d", TNI_MAX_INTS);
    }
    attr->length = (int32_t)d->lex.token.value;
    TN_TRY(tni_draft_next(d));
    return tni_draft_expect(d, ']', "']' after the length");
}

/* Is an attribute's type next? `bool` begins a tensor's type too: bool[n]. */
bool tni_at_attribute(tni_draft *d, tni_attr_kind *kind) {
    *kind = TNI_A_CHOICE;
    if (tni_draft_at(d, TNI_STRING)) return true;
    for (size_t i = 0; i < sizeof attr_kinds / sizeof attr_kinds[0]; i++) {
        if (!tni_lex_is(&d->lex, attr_kinds[i].name)) continue;
        *kind = attr_kinds[i].kind;
        tni_token token = d->lex.token;
        bool tensor = *kind == TNI_A_BOOL && tni_lex_next(&d->lex) == TN_OK &&
                      (tni_draft_at(d, '[') || tni_draft_at(d, '|'));
        d->lex.token = token;
        return !tensor;
    }
    return false;
}

tn_status tni_parse_attribute(tni_draft *d, const tni_use *use, tni_attr_kind kind) {
    tni_contract *c = d->contract;
    if (c->n_attrs == TNI_MAX_ARGS) return tni_lex_fail(&d->lex, use->at, "more than %d attributes", TNI_MAX_ARGS);
    tni_attr *attr = &d->attrs[c->n_attrs];
    *attr = (tni_attr){.name = use->name, .kind = kind, .length = -1};
    d->attr_at[c->n_attrs] = use->at;
    bool given;
    if (kind == TNI_A_CHOICE) {
        TN_TRY(parse_choices(d, attr));
    } else {
        TN_TRY(tni_draft_next(d));
    }
    if (kind == TNI_A_INTS && tni_draft_at(d, '[')) TN_TRY(parse_length(d, attr));
    if (tni_draft_at(d, '!')) return tni_lex_fail(&d->lex, d->lex.token.at, "only tensors are updated in place");
    TN_TRY(tni_draft_take(d, '?', &attr->optional));
    int32_t begin = d->lex.token.at;
    TN_TRY(tni_draft_take(d, '=', &given));
    if (given && attr->optional) {
        return tni_lex_fail(&d->lex, begin, "'%s' is optional with '?', so it has no default", attr->name);
    }
    if (given) TN_TRY(parse_default(d, attr));
    d->order[c->n_order].is_attr = true;
    d->order[c->n_order++].index = c->n_attrs++;
    return TN_OK;
}
