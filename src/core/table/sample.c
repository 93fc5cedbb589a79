/* Samples: one line of text that says with which sizes and options an operator is checked and measured, made into the
 * shapes and types of a call. The language is described at tn_sample in tenon/op.h. Two more forms: `target=i32` picks
 * one of the types that an input may have, and a bool attribute that is only named is true. */
#include "setting.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

tn_status tni_setting_fail(const tni_setting *s, tn_status status, const char *format, ...) {
    char text[1024];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    return tn_fail(status, "%s: sample '%s': %s", s->contract->name, s->args, text);
}

tn_status tni_setting_pass_on(const tni_setting *s, tn_status status) {
    char text[1024];
    size_t prefix = strlen(s->contract->name);
    snprintf(text, sizeof text, "%s", tn_last_error());
    bool named = !strncmp(text, s->contract->name, prefix) && !strncmp(text + prefix, ": ", 2);
    return tni_setting_fail(s, status, "%s", named ? text + prefix + 2 : text);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* name, then nothing, or one of = < > and a value. */
typedef struct token {
    const char *name, *value;
    char op; /* 0: the name alone */
} token;

/* A value ends at a blank outside of brackets and quotes. NULL: they do not match. */
static const char *value_end(const char *p) {
    int depth = 0;
    char quote = 0;
    for (; *p && (depth || quote || !isspace((unsigned char)*p)); p++) {
        if (quote) {
            if (*p == quote) quote = 0;
        } else if (*p == '\'' || *p == '"') {
            quote = *p;
        } else {
            depth += (*p == '[') - (*p == ']');
            if (depth < 0) return NULL;
        }
    }
    return depth || quote ? NULL : p;
}

static bool name_char(char c) {
    return isalnum((unsigned char)c) || c == '_';
}

/* Reads the next token; *more is false at the end of the text. */
static tn_status next_token(const tni_setting *s, const char **at, token *t, bool *more) {
    const char *p = *at;
    while (isspace((unsigned char)*p)) p++;
    *more = *p != 0;
    if (!*more) return TN_OK;
    const char *name = p;
    while (name_char(*p)) p++;
    if (p == name) return tni_setting_fail(s, TN_BAD_VALUE, "expected a name at '%s'", p);
    t->name = tni_arena_text(s->arena, name, (size_t)(p - name));
    t->value = "";
    t->op = 0;
    if (*p == '=' || *p == '<' || *p == '>') {
        t->op = *p++;
        const char *end = value_end(p);
        if (!end) return tni_setting_fail(s, TN_BAD_VALUE, "brackets or quotes do not match in '%s'", p);
        if (end == p) return tni_setting_fail(s, TN_BAD_VALUE, "%s%c has no value", t->name, t->op);
        t->value = tni_arena_text(s->arena, p, (size_t)(end - p));
        p = end;
    } else if (*p && !isspace((unsigned char)*p)) {
        return tni_setting_fail(s, TN_BAD_VALUE, "expected '=', '<', '>' or a blank at '%s'", p);
    }
    *at = p;
    return t->name && t->value ? TN_OK : TN_NO_MEMORY;
}

static bool parse_int(const char *text, int64_t *value) {
    char *end;
    *value = strtoll(text, &end, 10);
    return end != text && *end == 0;
}

/* "[4, 33]" at *at, past its ']' afterwards. */
static bool parse_dims(const char **at, tni_dims *dims) {
    const char *p = *at;
    dims->ndim = 0;
    if (*p++ != '[') return false;
    while (isspace((unsigned char)*p)) p++;
    for (bool first = true; *p != ']'; first = false) {
        if (!first && *p++ != ',') return false;
        char *end;
        int64_t n = strtoll(p, &end, 10);
        if (end == p || n < 0 || dims->ndim == TN_MAX_RANK) return false;
        dims->d[dims->ndim++] = n;
        for (p = end; isspace((unsigned char)*p); p++) {
        }
    }
    *at = p + 1;
    return true;
}

static bool parse_whole_dims(const char *text, tni_dims *dims) {
    return parse_dims(&text, dims) && *text == 0;
}

/* "[[2, 3], [4, 3]]": the shapes of a list. */
static tn_status parse_list(const tni_setting *s, const char *text, tni_dims **shapes, int32_t *count) {
    int32_t most = 0;
    for (const char *p = text; *p; p++) most += *p == '[';
    *shapes = tni_arena_alloc(s->arena, (size_t)(most + 1) * sizeof **shapes);
    if (!*shapes) return TN_NO_MEMORY;
    *count = 0;
    const char *p = text;
    bool good = *p++ == '[';
    while (good && *p != ']') {
        while (isspace((unsigned char)*p) || (*count && *p == ',')) p++;
        good = parse_dims(&p, &(*shapes)[*count]);
        if (good) ++*count;
    }
    if (good && p[1] == 0) return TN_OK;
    return tni_setting_fail(s, TN_BAD_VALUE, "'%s' is not a list of shapes like [[2, 3], [4, 3]]", text);
}

static int32_t find(const char *const *names, int32_t count, const char *name) {
    for (int32_t i = 0; i < count; i++) {
        if (!strcmp(names[i], name)) return i;
    }
    return -1;
}

static int32_t find_input(const tni_contract *c, const char *name) {
    for (int32_t i = 0; i < c->n_inputs; i++) {
        if (!strcmp(c->inputs[i].name, name)) return i;
    }
    return -1;
}

static int32_t find_attr(const tni_contract *c, const char *name) {
    for (int32_t i = 0; i < c->n_attrs; i++) {
        if (!strcmp(c->attrs[i].name, name)) return i;
    }
    return -1;
}

static int32_t find_type(const tni_contract *c, const char *name) {
    for (int32_t i = 0; i < c->n_types; i++) {
        if (!strcmp(c->types[i].name, name)) return i;
    }
    return -1;
}

static tn_status unknown_name(const tni_setting *s, const char *name) {
    const tni_contract *c = s->contract;
    char known[768] = "";
    size_t n = 0;
#define KNOWN(count, text)                                    \
    for (int32_t i = 0; i < (count) && n < sizeof known; i++) \
        n += (size_t)snprintf(known + n, sizeof known - n, "%s%s", n ? ", " : "", text);
    KNOWN(c->n_dims, c->dims[i])
    KNOWN(c->n_packs, c->packs[i])
    KNOWN(c->n_types, c->types[i].name)
    KNOWN(c->n_inputs, c->inputs[i].name)
    KNOWN(c->n_attrs, c->attrs[i].name)
#undef KNOWN
    return tni_setting_fail(s, TN_BAD_VALUE, "nothing is named '%s' here; the contract has %s", name, known);
}

static tn_status set_type(tni_setting *s, int32_t var, const char *text) {
    const tni_typevar *v = &s->contract->types[var];
    tn_type type = tn_type_named(text);
    if (type == TN_NO_TYPE) return tni_setting_fail(s, TN_BAD_TYPE, "%s=%s: there is no such type", v->name, text);
    if (!(v->mask & TN_BIT(type))) return tni_setting_fail(s, TN_BAD_TYPE, "%s may not be %s", v->name, text);
    s->types[var] = type;
    return TN_OK;
}

static tn_status set_attr(tni_setting *s, int32_t index, const char *text) {
    tn_attr attr;
    void *memory = NULL;
    tn_status status = tni_attr_parse(s->contract, s->contract->attrs[index].name, text, &attr, &memory);
    if (status != TN_OK) return tni_setting_pass_on(s, status);
    tn_value v = attr.value;
    bool failed = false;
    if (v.kind == TN_ATTR_STR) {
        v.s = tni_arena_text(s->arena, v.s, strlen(v.s));
        failed = !v.s;
    } else if (v.kind == TN_ATTR_INTS) {
        int64_t *ints = tni_arena_alloc(s->arena, ((size_t)v.count + 1) * sizeof *ints);
        failed = !ints;
        if (ints && v.count) memcpy(ints, v.ints, (size_t)v.count * sizeof *ints);
        v.ints = ints;
    }
    s->attrs[index] = v;
    tn_free(memory);
    return failed ? TN_NO_MEMORY : TN_OK;
}

const char *tni_order_name(tni_order order) {
    static const char *const names[] = {
#define NAME(ORDER, name) name,
        TNI_ORDERS(NAME)
#undef NAME
    };
    return names[order];
}

/* `order=permutation`, `row=offsets(nnz)`; *known is false where the text is neither. */
static tn_status set_order(const tni_setting *s, const char *name, const char *text, tni_input_setting *g,
                           bool *known) {
    const size_t length = strcspn(text, "("), all = strlen(text);
    for (tni_order order = TNI_ORDER_SORTED; order <= TNI_ORDER_OFFSETS; order++) {
        if (strlen(tni_order_name(order)) != length || strncmp(text, tni_order_name(order), length) != 0) continue;
        const bool total = all > length + 2 && text[all - 1] == ')';
        if (total != (order == TNI_ORDER_OFFSETS) || (!total && all > length)) {
            return tni_setting_fail(s, TN_BAD_VALUE, "%s=%s: expected %s=%s%s", name, text, name, tni_order_name(order),
                                    order == TNI_ORDER_OFFSETS ? "(N), where N is the last" : "");
        }
        *known = true;
        g->order = order;
        if (total) g->total = tni_arena_text(s->arena, text + length + 1, all - length - 2);
        return total && !g->total ? TN_NO_MEMORY : TN_OK;
    }
    return TN_OK;
}

/* `mask=[1, 33]`, `xs=[[2, 3], [4, 3]]`, `target=i32`, `index=unique`. */
static tn_status set_input(tni_setting *s, int32_t index, const char *text) {
    const tni_param *p = &s->contract->inputs[index];
    tni_input_setting *g = &s->inputs[index];
    g->present = true;
    tn_type type = tn_type_named(text);
    if (type != TN_NO_TYPE) {
        g->type = type;
        return TN_OK;
    }
    bool ordered = false;
    TN_TRY(set_order(s, p->name, text, g, &ordered));
    if (ordered) return TN_OK;
    if (p->list) return parse_list(s, text, &g->shapes, &g->count);
    g->shapes = tni_arena_alloc(s->arena, sizeof *g->shapes);
    if (!g->shapes) return TN_NO_MEMORY;
    g->count = 1;
    if (parse_whole_dims(text, g->shapes)) return TN_OK;
    return tni_setting_fail(s, TN_BAD_VALUE,
                            "%s=%s: expected a shape like [4, 33], a type, sorted, unique, permutation or offsets(n)",
                            p->name, text);
}

static tn_status set_dim(tni_setting *s, int32_t dim, const char *text) {
    if (parse_int(text, &s->dims[dim]) && s->dims[dim] >= 0) return TN_OK;
    return tni_setting_fail(s, TN_BAD_VALUE, "%s=%s: expected a size", s->contract->dims[dim], text);
}

static tn_status set_pack(tni_setting *s, int32_t pack, const char *text) {
    s->pack_set[pack] = true;
    if (!strncmp(text, "[[", 2)) return parse_list(s, text, &s->elements[pack], &s->n_elements);
    if (parse_whole_dims(text, &s->packs[pack])) return TN_OK;
    return tni_setting_fail(s, TN_BAD_VALUE, "%s=%s: expected sizes like [4, 33]", s->contract->packs[pack], text);
}

static tn_status set_equal(tni_setting *s, const token *t) {
    const tni_contract *c = s->contract;
    int32_t dim = find(c->dims, c->n_dims, t->name), pack = find(c->packs, c->n_packs, t->name);
    int32_t type = find_type(c, t->name), attr = find_attr(c, t->name), input = find_input(c, t->name);
    if (type >= 0) return set_type(s, type, t->value);
    if (pack >= 0) return set_pack(s, pack, t->value);
    if (dim >= 0 && (input < 0 || isdigit((unsigned char)t->value[0]))) return set_dim(s, dim, t->value);
    if (attr >= 0) return set_attr(s, attr, t->value);
    if (input >= 0) return set_input(s, input, t->value);
    return unknown_name(s, t->name);
}

static tn_status set_alone(tni_setting *s, const token *t) {
    int32_t attr = find_attr(s->contract, t->name), input = find_input(s->contract, t->name);
    if (attr >= 0 && s->contract->attrs[attr].kind == TNI_A_BOOL) return set_attr(s, attr, "true");
    if (input < 0) return unknown_name(s, t->name);
    s->inputs[input].present = true;
    return TN_OK;
}

static tn_status set_range(tni_setting *s, const token *t) {
    int32_t input = find_input(s->contract, t->name);
    if (input < 0) return tni_setting_fail(s, TN_BAD_VALUE, "%s%c…: no input has that name", t->name, t->op);
    tni_input_setting *g = &s->inputs[input];
    if (t->op == '<') {
        g->below = t->value;
    } else if (!strcmp(t->value, "0")) {
        g->positive = true;
    } else {
        return tni_setting_fail(s, TN_BAD_VALUE, "%s>%s: only %s>0 can be said", t->name, t->value, t->name);
    }
    return TN_OK;
}

/* The type variable that a caller's T means: the one of that name, or the first. */
static int32_t main_type(const tni_contract *c) {
    int32_t named = find_type(c, "T");
    return named >= 0 ? named : c->n_types ? 0 : -1;
}

tn_type tni_usual_type(uint32_t mask) {
    static const tn_type order[] = {TN_I64, TN_I32, TN_F32, TN_F64, TN_BF16, TN_F16, TN_BOOL};
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        if (mask & TN_BIT(order[i])) return order[i];
    }
    for (int type = 1; type < TN_TYPE_COUNT; type++) {
        if (mask & TN_BIT(type)) return (tn_type)type;
    }
    return TN_NO_TYPE;
}

tn_type tni_sample_type(const tni_contract *c) {
    const int32_t main = main_type(c);
    return main < 0 || c->types[main].mask & TN_BIT(TN_F32) ? TN_F32 : tni_usual_type(c->types[main].mask);
}

static tn_status begin(tni_setting *s, tn_type T) {
    const tni_contract *c = s->contract;
    int32_t main = main_type(c);
    for (int32_t i = 0; i < c->n_types; i++) {
        bool fits = c->types[i].mask & TN_BIT(T);
        if (i == main && !fits) {
            return tni_setting_fail(s, TN_BAD_TYPE, "%s may not be %s", c->types[i].name, tn_type_name(T));
        }
        s->types[i] = fits ? T : tni_usual_type(c->types[i].mask);
    }
    for (int32_t i = 0; i < c->n_dims; i++) s->dims[i] = -1;
    for (int32_t i = 0; i < c->n_inputs; i++) {
        s->inputs[i].present = !c->inputs[i].optional;
        s->inputs[i].count = -1;
    }
    return TN_OK;
}

/* A list with explicit shapes says what its pack is for each element, so that parallel lists follow. */
static void bind_lists(tni_setting *s) {
    const tni_contract *c = s->contract;
    for (int32_t i = 0; i < c->n_inputs; i++) {
        const tni_param *p = &c->inputs[i];
        if (!p->list || s->inputs[i].count < 0) continue;
        s->n_elements = s->inputs[i].count;
        const tni_item *item = &c->items[p->shape.first];
        if (p->shape.cond < 0 && p->shape.count == 1 && item->kind == TNI_ITEM_PACK && !s->pack_set[item->ref]) {
            s->elements[item->ref] = s->inputs[i].shapes;
            s->pack_set[item->ref] = true;
        }
    }
}

tn_status tni_setting_parse(const tni_contract *contract, const char *args, tn_type T, tni_arena *arena,
                            tni_setting **made) {
    tni_setting *s = tni_arena_alloc(arena, sizeof *s);
    if (!s) return TN_NO_MEMORY;
    s->contract = contract;
    s->arena = arena;
    s->args = args;
    TN_TRY(begin(s, T));
    token t = {0};
    bool more = true;
    for (const char *at = args;;) {
        TN_TRY(next_token(s, &at, &t, &more));
        if (!more) break;
        if (t.op == 0) {
            TN_TRY(set_alone(s, &t));
        } else if (t.op == '=') {
            TN_TRY(set_equal(s, &t));
        } else {
            TN_TRY(set_range(s, &t));
        }
    }
    bind_lists(s);
    *made = s;
    return TN_OK;
}
