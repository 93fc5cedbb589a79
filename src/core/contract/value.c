/* An attribute's value from text, as the command line and samples write it. */
#include <string.h>

#include "parts.h"

typedef struct reader {
    const tni_contract *contract;
    const tni_attr *attr;
    tni_lexer lex;
} reader;

static tn_status unreadable(const reader *r) {
    tni_text text = {0};
    tni_text_add(&text, "%s: %s needs ", r->contract->name, r->attr->name);
    tni_print_attr_kind(&text, r->attr);
    tni_text_add(&text, ", not '%.100s'", r->lex.text);
    return tni_fail_text(TN_BAD_VALUE, &text);
}

static bool next(reader *r) {
    return tni_lex_next(&r->lex) == TN_OK;
}

static bool take(reader *r, int kind) {
    return r->lex.token.kind == kind && next(r);
}

/* -1, 2.5, inf */
static bool read_number(reader *r, tn_value *value) {
    bool negative = take(r, '-');
    const tni_token *token = &r->lex.token;
    bool real = r->attr->kind == TNI_A_FLOAT;
    double number = tni_lex_is(&r->lex, "inf") ? __builtin_inf() : tni_lex_is(&r->lex, "nan") ? __builtin_nan("") : 0;
    if (token->kind == TNI_INT && !real) {
        *value = (tn_value){.kind = TN_ATTR_INT, .i = negative ? -token->value : token->value};
        return next(r);
    }
    if (token->kind == TNI_INT || token->kind == TNI_FLOAT) {
        number = token->number;
    } else if (number == 0) {
        return false;
    }
    *value = (tn_value){.kind = TN_ATTR_FLOAT, .f = negative ? -number : number};
    return real && next(r);
}

/* [0, 2], or the same without brackets */
static bool read_ints(reader *r, int64_t *ints, int32_t *count) {
    bool bracket = take(r, '[');
    *count = 0;
    for (bool more = r->lex.token.kind != ']' && r->lex.token.kind != TNI_END; more; more = take(r, ',')) {
        bool negative = take(r, '-');
        if (r->lex.token.kind != TNI_INT || *count == TNI_MAX_INTS) return false;
        ints[(*count)++] = negative ? -r->lex.token.value : r->lex.token.value;
        if (!next(r)) return false;
    }
    return !bracket || take(r, ']');
}

static tn_status read_list(reader *r, tn_value *value, void **memory) {
    int64_t ints[TNI_MAX_INTS];
    int32_t count;
    if (!read_ints(r, ints, &count) || r->lex.token.kind != TNI_END) return unreadable(r);
    int64_t *kept = tni_malloc((size_t)count * sizeof *kept);
    if (!kept) return TN_NO_MEMORY;
    memcpy(kept, ints, (size_t)count * sizeof *kept);
    *memory = kept;
    *value = (tn_value){.kind = TN_ATTR_INTS, .count = count, .ints = kept};
    return TN_OK;
}

/* 'sum' or sum */
static tn_status read_string(const char *text, tn_value *value, void **memory) {
    size_t length = strlen(text);
    if (length >= 2 && text[0] == '\'' && text[length - 1] == '\'') {
        text++;
        length -= 2;
    }
    char *kept = tni_malloc(length + 1);
    if (!kept) return TN_NO_MEMORY;
    memcpy(kept, text, length);
    kept[length] = 0;
    *memory = kept;
    *value = (tn_value){.kind = TN_ATTR_STR, .s = kept};
    return TN_OK;
}

static tn_status read_scalar(reader *r, tn_value *value) {
    bool yes = tni_lex_is(&r->lex, "true"), no = tni_lex_is(&r->lex, "false");
    if (r->attr->kind == TNI_A_BOOL) {
        if (!yes && r->lex.token.kind == TNI_INT && r->lex.token.value <= 1) {
            yes = r->lex.token.value == 1;
            no = !yes;
        }
        *value = (tn_value){.kind = TN_ATTR_BOOL, .b = yes};
        if (!(yes || no) || !next(r)) return unreadable(r);
    } else if (r->attr->kind == TNI_A_DTYPE) {
        *value = (tn_value){.kind = TN_ATTR_TYPE, .type = tn_type_named(r->lex.text)};
        return value->type == TN_NO_TYPE ? unreadable(r) : TN_OK;
    } else if (!read_number(r, value)) {
        return unreadable(r);
    }
    return r->lex.token.kind == TNI_END ? TN_OK : unreadable(r);
}

static tn_status read_value(reader *r, const char *text, tn_value *value, void **memory) {
    tni_attr_kind kind = r->attr->kind;
    if (kind == TNI_A_STR || kind == TNI_A_CHOICE || kind == TNI_A_ACTIVATION) return read_string(text, value, memory);
    if (tni_lex_begin(&r->lex, "value", "", text) != TN_OK) return unreadable(r);
    return kind == TNI_A_AXES || kind == TNI_A_INTS ? read_list(r, value, memory) : read_scalar(r, value);
}

tn_status tni_attr_parse(const tni_contract *contract, const char *name, const char *text, tn_attr *attr,
                         void **memory) {
    *memory = NULL;
    int32_t index = tni_attr_named(contract, name);
    if (index < 0) return tni_attr_unknown(contract, name);
    reader r = {.contract = contract, .attr = &contract->attrs[index], .lex = {.text = text}};
    tn_value value;
    tn_status status = read_value(&r, text, &value, memory);
    attr->name = r.attr->name;
    if (status == TN_OK) status = tni_attr_accept(contract->name, r.attr, &value, &attr->value);
    if (status != TN_OK) {
        tni_free(*memory);
        *memory = NULL;
    }
    return status;
}

/* ---- all of a call ----------------------------------------------------------------------------------------------- */

enum { LONGEST_VALUE = 1024 };

static tn_status bad_attributes(const tni_contract *c, const char *text) {
    return tn_fail(TN_BAD_VALUE, "%s: attributes are written name=value, separated by blanks, not '%s'", c->name, text);
}

/* How long a value is: up to a blank that is in no quotes and no list. */
static size_t value_length(const char *text) {
    size_t length = 0;
    bool quoted = false, listed = false;
    for (; text[length] && (text[length] != ' ' || quoted || listed); length++) {
        quoted ^= text[length] == '\'';
        if (!quoted && strchr("[]", text[length])) listed = text[length] == '[';
    }
    return length;
}

tn_status tni_attrs_parse(const tni_contract *c, const char *text, tn_attr *attrs, void **memory, int32_t *n_memory) {
    bool told[TNI_MAX_ARGS] = {false};
    for (const char *p = text + strspn(text, " "); *p; p += strspn(p, " ")) {
        char name[TNI_MAX_NAME + 1], value[LONGEST_VALUE];
        const size_t length = strcspn(p, "= ");
        if (p[length] != '=' || length > TNI_MAX_NAME || *n_memory == TNI_MAX_ARGS) return bad_attributes(c, text);
        const char *written = p + length + 1;
        const size_t size = value_length(written);
        if (size >= sizeof value) return bad_attributes(c, text);
        memcpy(name, p, length);
        name[length] = 0;
        memcpy(value, written, size);
        value[size] = 0;
        tn_attr attr;
        TN_TRY(tni_attr_parse(c, name, value, &attr, &memory[*n_memory]));
        ++*n_memory;
        const int32_t index = tni_attr_named(c, name);
        if (told[index]) return tn_fail(TN_BAD_VALUE, "%s: %s is there twice, in '%s'", c->name, name, text);
        told[index] = true;
        attrs[index].value = attr.value;
        p = written + size;
    }
    return TN_OK;
}
