/* Calls in one line of text, for tables of tests:
 *     "x=f32[2, 3] axis=1"             a tensor and an attribute
 *     "x=f32[2, ?] y=i32[..] z=_[1]"   an unknown size, an unknown rank, an unknown type
 *     "xs=[f32[2], f32[3]]"            a list
 *     "s='sum' a=1.5 b=true d=f16 k=[0, -1]"
 * and what inference answers in the same notation: "y=f32[2, ?]". */
#ifndef TENON_CONTRACT_CALL_H
#define TENON_CONTRACT_CALL_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/contract/contract.h"

enum { CALL_OPERANDS = 128, CALL_INTS = 512 };

typedef struct call_text {
    tni_operand operands[CALL_OPERANDS];
    int64_t shapes[CALL_OPERANDS][TN_MAX_RANK + 2];
    int32_t counts[TNI_MAX_ARGS];
    tn_attr attrs[TNI_MAX_ARGS + 2];
    char names[TNI_MAX_ARGS + 2][80];
    char strings[TNI_MAX_ARGS + 2][128];
    int64_t ints[TNI_MAX_ARGS + 2][CALL_INTS];
    int32_t n_operands, n_attrs;
    tni_bound bound;
    tn_spec specs[TNI_MAX_ARGS];
} call_text;

static inline const char *call_spaces(const char *s) {
    while (*s == ' ') s++;
    return s;
}

/* [2, ?, 3] or [..], at the bracket. */
static inline const char *call_shape(const char *s, tni_operand *o, int64_t *shape) {
    o->ndim = 0;
    o->shape = shape;
    s = call_spaces(s + 1);
    if (s[0] == '.' && s[1] == '.') {
        o->ndim = -1;
        s += 2;
    }
    while (*s && *s != ']') {
        char *end = (char *)s + 1;
        shape[o->ndim++] = *s == '?' ? -1 : strtoll(s, &end, 10);
        s = call_spaces(end);
        if (*s == ',') s = call_spaces(s + 1);
    }
    return *s ? s + 1 : s;
}

static inline bool call_is_tensor(const char *s) {
    size_t n = strcspn(s, "[], ");
    char name[16] = "";
    if (n == 0 || n >= sizeof name || s[n] != '[') return false;
    memcpy(name, s, n);
    return name[0] == '_' || tn_type_named(name) != TN_NO_TYPE;
}

static inline const char *call_tensor(call_text *call, const char *s) {
    size_t n = strcspn(s, "[");
    char name[16] = "";
    memcpy(name, s, n < 15 ? n : 15);
    tni_operand *o = &call->operands[call->n_operands];
    o->type = name[0] == '_' ? TN_NO_TYPE : tn_type_named(name);
    return call_shape(s + n, o, call->shapes[call->n_operands++]);
}

static inline const char *call_value(call_text *call, const char *s, int k) {
    tn_value *value = &call->attrs[k].value;
    char word[128] = "", *end;
    size_t n = strcspn(s, " ");
    if (*s == '[') {
        *value = (tn_value){.kind = TN_ATTR_INTS, .ints = call->ints[k]};
        for (s = call_spaces(s + 1); *s && *s != ']'; s = call_spaces(s)) {
            call->ints[k][value->count++] = strtoll(s, &end, 10);
            s = call_spaces(end);
            if (*s == ',') s++;
        }
        return *s ? s + 1 : s;
    }
    if (*s == '\'') {
        n = strcspn(s + 1, "'");
        memcpy(call->strings[k], s + 1, n);
        *value = (tn_value){.kind = TN_ATTR_STR, .s = call->strings[k]};
        return s + n + 2;
    }
    memcpy(word, s, n);
    long long integer = strtoll(word, &end, 10);
    if (strcmp(word, "true") == 0 || strcmp(word, "false") == 0) {
        *value = (tn_value){.kind = TN_ATTR_BOOL, .b = word[0] == 't'};
    } else if (*end == 0) {
        *value = (tn_value){.kind = TN_ATTR_INT, .i = integer};
    } else if (tn_type_named(word) != TN_NO_TYPE) {
        *value = (tn_value){.kind = TN_ATTR_TYPE, .type = tn_type_named(word)};
    } else {
        *value = (tn_value){.kind = TN_ATTR_FLOAT, .f = strtod(word, NULL)};
    }
    return s + n;
}

/* Inputs have to stand in the contract's order. */
static inline void call_read(const tni_contract *contract, const char *s, call_text *call) {
    call->n_operands = call->n_attrs = 0;
    memset(call->counts, 0, sizeof call->counts);
    memset(call->strings, 0, sizeof call->strings);
    for (s = call_spaces(s); *s; s = call_spaces(s)) {
        size_t n = strcspn(s, "=");
        int k = call->n_attrs;
        memset(call->names[k], 0, sizeof call->names[k]);
        memcpy(call->names[k], s, n);
        s += n + (s[n] == '=');
        int input = -1;
        for (int i = 0; i < contract->n_inputs; i++) {
            if (strcmp(contract->inputs[i].name, call->names[k]) == 0) input = i;
        }
        if (input >= 0 && *s == '[') {
            for (s = call_spaces(s + 1); call_is_tensor(s); call->counts[input]++) {
                s = call_spaces(call_tensor(call, s));
                if (*s == ',') s = call_spaces(s + 1);
            }
            s += *s == ']';
        } else if (input >= 0 && call_is_tensor(s)) {
            call->counts[input]++;
            s = call_tensor(call, s);
        } else {
            call->attrs[k].name = call->names[k];
            s = call_value(call, s, k);
            call->n_attrs++;
        }
    }
}

static inline tn_status call_bind(const tni_contract *contract, const char *text, call_text *call) {
    call_read(contract, text, call);
    tni_inputs inputs = {call->operands, call->counts};
    return tni_bind(contract, &inputs, call->attrs, call->n_attrs, &call->bound, call->specs);
}

static inline void call_answer(const tni_contract *contract, const call_text *call, char *out, size_t size) {
    size_t n = 0;
    out[0] = 0;
    for (int i = 0; i < contract->n_outputs; i++) {
        const tn_spec *spec = &call->specs[i];
        if (!spec->present) continue;
        const char *type = spec->type == TN_NO_TYPE ? "_" : tn_type_name(spec->type);
        n += (size_t)snprintf(out + n, size - n, "%s%s=%s[", n ? " " : "", contract->outputs[i].name, type);
        for (int d = 0; d < spec->ndim; d++) {
            n += (size_t)snprintf(out + n, size - n, spec->shape[d] < 0 ? "%s?" : "%s%lld", d ? ", " : "",
                                  (long long)spec->shape[d]);
        }
        n += (size_t)snprintf(out + n, size - n, spec->ndim < 0 ? "..]" : "]");
    }
}

#endif
