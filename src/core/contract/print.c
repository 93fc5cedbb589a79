/* A contract as text. Parsing the text gives the same contract again, so it is the canonical form of a signature. */
#include <string.h>

#include "parts.h"

static const struct {
    const char *text;
    int precedence; /* as in contract_parse.c */
} operators[] = {
    [TNI_ADD] = {" + ", 5}, [TNI_SUB] = {" - ", 5},   [TNI_MUL] = {" * ", 6},  [TNI_DIV] = {" / ", 6},
    [TNI_MOD] = {" % ", 6}, [TNI_NEG] = {"-", 7},     [TNI_EQ] = {" == ", 4},  [TNI_NE] = {" != ", 4},
    [TNI_LT] = {" < ", 4},  [TNI_LE] = {" <= ", 4},   [TNI_GT] = {" > ", 4},   [TNI_GE] = {" >= ", 4},
    [TNI_OR] = {" or ", 1}, [TNI_AND] = {" and ", 2}, [TNI_NOT] = {"not ", 3},
};

static int operand_lowest(const tni_contract *c, const tni_node *node, int32_t operand, int lowest) {
    return node->kind == TNI_OR && c->nodes[operand].kind == TNI_AND ? 3 : lowest;
}

/* In brackets where it binds less than `lowest`. Recursion ends at TNI_MAX_DEPTH. */
static void print_node(tni_text *text, const tni_contract *c, int32_t index, int lowest) {
    const tni_node *node = &c->nodes[index];
    switch (node->kind) {
    case TNI_LIT_INT: tni_text_add(text, "%lld", (long long)node->value); return;
    case TNI_LIT_BOOL: tni_text_add(text, "%s", node->value ? "true" : "false"); return;
    case TNI_LIT_STR: tni_text_add(text, "'%s'", node->text); return;
    case TNI_DIM: tni_text_add(text, "%s", c->dims[node->ref]); return;
    case TNI_ATTR: tni_text_add(text, "%s", c->attrs[node->ref].name); return;
    case TNI_ATTR_AT: tni_text_add(text, "%s[%d]", c->attrs[node->ref].name, (int)node->value); return;
    case TNI_RANK: tni_text_add(text, "rank(*%s)", c->packs[node->ref]); return;
    default: break;
    }
    int precedence = operators[node->kind].precedence;
    bool unary = node->right < 0, brackets = precedence < lowest;
    if (brackets) tni_text_add(text, "(");
    if (unary) {
        tni_text_add(text, "%s", operators[node->kind].text);
        print_node(text, c, node->left, node->kind == TNI_NOT ? 4 : 7);
    } else {
        /* comparisons do not chain, and `and` inside `or` has brackets for the reader */
        print_node(text, c, node->left, operand_lowest(c, node, node->left, precedence == 4 ? 5 : precedence));
        tni_text_add(text, "%s", operators[node->kind].text);
        print_node(text, c, node->right, operand_lowest(c, node, node->right, precedence + 1));
    }
    if (brackets) tni_text_add(text, ")");
}

void tni_print_node(tni_text *text, const tni_contract *contract, int32_t node) {
    print_node(text, contract, node, 0);
}

static void print_seq(tni_text *text, const tni_contract *c, tni_seq seq) {
    tni_text_add(text, "*%s", seq.is_attr ? c->attrs[seq.ref].name : c->packs[seq.ref]);
}

static void print_item(tni_text *text, const tni_contract *c, const tni_item *item) {
    if (item->broadcast) tni_text_add(text, "~");
    switch (item->kind) {
    case TNI_ITEM_EXPR: tni_print_node(text, c, item->node); return;
    case TNI_ITEM_PACK: print_seq(text, c, (tni_seq){false, item->ref}); return;
    case TNI_ITEM_SPREAD: print_seq(text, c, (tni_seq){true, item->ref}); return;
    default: break;
    }
    tni_text_add(text, "%s(", tni_functions[item->kind - TNI_ITEM_BROADCAST]);
    print_seq(text, c, item->a);
    for (int i = 0; i < item->n_more; i++) {
        tni_text_add(text, item->more[i].rows ? ", rows(" : ", ");
        print_seq(text, c, item->more[i]);
        if (item->more[i].rows) tni_text_add(text, ")");
    }
    if (item->attr >= 0) tni_text_add(text, ", %s", c->attrs[item->attr].name);
    if (item->keep_attr >= 0) tni_text_add(text, ", %s", c->attrs[item->keep_attr].name);
    if (item->node >= 0) tni_text_add(text, ", ");
    if (item->node >= 0) tni_print_node(text, c, item->node);
    tni_text_add(text, ")");
}

void tni_print_items(tni_text *text, const tni_contract *contract, int32_t first, int32_t count) {
    for (int i = 0; i < count; i++) {
        if (i) tni_text_add(text, ", ");
        print_item(text, contract, &contract->items[first + i]);
    }
}

void tni_print_shape(tni_text *text, const tni_contract *contract, const tni_shape *shape) {
    tni_text_add(text, "[");
    tni_print_items(text, contract, shape->first, shape->count);
    if (shape->cond >= 0) {
        tni_text_add(text, "%sif ", shape->count ? " " : "");
        tni_print_node(text, contract, shape->cond);
        tni_text_add(text, " else%s", shape->else_count ? " " : "");
        tni_print_items(text, contract, shape->else_first, shape->else_count);
    }
    tni_text_add(text, "]");
}

bool tni_prints_alike(const tni_contract *contract, const tni_shape *a, const tni_shape *b) {
    tni_text one = {0}, other = {0};
    tni_print_shape(&one, contract, a);
    tni_print_shape(&other, contract, b);
    const bool same = !one.failed && !other.failed && strcmp(one.data, other.data) == 0;
    tni_free(one.data);
    tni_free(other.data);
    return same;
}

void tni_print_mask(tni_text *text, uint32_t mask, const char *separator, const char *last_separator) {
    const char *between = "";
    for (int type = 1; type < TN_TYPE_COUNT; type++) {
        if (!(mask & TN_BIT(type))) continue;
        mask &= ~TN_BIT(type);
        tni_text_add(text, "%s%s", between, tn_type_name((tn_type)type));
        between = mask & (mask - 1) ? separator : last_separator;
    }
}

void tni_print_type(tni_text *text, const tni_contract *contract, const tni_type *type) {
    static const char *const wraps[] = {"", "acc(", "complex("};
    tni_text_add(text, "%s", wraps[type->wrap]);
    if (type->kind == TNI_TYPE_FIXED) tni_print_mask(text, type->mask, "|", "|");
    if (type->kind == TNI_TYPE_VAR) tni_text_add(text, "%s", contract->types[type->ref].name);
    if (type->kind == TNI_TYPE_ATTR) tni_text_add(text, "%s", contract->attrs[type->ref].name);
    if (type->wrap != TNI_PLAIN) tni_text_add(text, ")");
}

void tni_print_value(tni_text *text, const tn_value *value) {
    switch (value->kind) {
    case TN_ATTR_INT: tni_text_add(text, "%lld", (long long)value->i); break;
    case TN_ATTR_FLOAT: tni_text_double(text, value->f); break;
    case TN_ATTR_BOOL: tni_text_add(text, "%s", value->b ? "true" : "false"); break;
    case TN_ATTR_STR: tni_text_add(text, "'%s'", value->s); break;
    case TN_ATTR_TYPE: tni_text_add(text, "%s", tn_type_name(value->type)); break;
    case TN_ATTR_INTS:
        tni_text_add(text, "[");
        for (int i = 0; i < value->count; i++) tni_text_add(text, "%s%lld", i ? ", " : "", (long long)value->ints[i]);
        tni_text_add(text, "]");
        break;
    }
}

static void print_tensor(tni_text *text, const tni_contract *c, const tni_param *param) {
    static const char *const wants[] = {"", "?", "?grad"};
    tni_text_add(text, "%s: %s", param->name, param->list ? "[" : "");
    tni_print_type(text, c, &param->type);
    tni_print_shape(text, c, &param->shape);
    tni_text_add(text, "%s%s%s%s", param->list ? "]" : "", param->inplace ? "!" : "", param->optional ? "?" : "",
                 wants[param->want]);
}

static void print_attr(tni_text *text, const tni_attr *attr) {
    static const char *const names[] = {[TNI_A_INT] = "int",     [TNI_A_FLOAT] = "float",
                                        [TNI_A_BOOL] = "bool",   [TNI_A_STR] = "str",
                                        [TNI_A_DTYPE] = "dtype", [TNI_A_AXIS] = "axis",
                                        [TNI_A_AXES] = "axes",   [TNI_A_INTS] = "ints",
                                        [TNI_A_CHOICE] = "",     [TNI_A_ACTIVATION] = "activation"};
    tni_text_add(text, "%s: %s", attr->name, names[attr->kind]);
    for (int i = 0; i < attr->n_choices; i++) tni_text_add(text, "%s'%s'", i ? "|" : "", attr->choices[i]);
    if (attr->length >= 0) tni_text_add(text, "[%d]", attr->length);
    if (attr->optional) tni_text_add(text, "?");
    if (attr->has_default) {
        tni_text_add(text, " = ");
        tni_print_value(text, &attr->value);
    }
}

static void print_type_variables(tni_text *text, const tni_contract *c) {
    bool any = false;
    for (int i = 0; i < c->n_types; i++) {
        if (!c->types[i].declared) continue;
        tni_text_add(text, "%s%s: %s", any ? ", " : "<", c->types[i].name, c->types[i].set);
        any = true;
    }
    if (any) tni_text_add(text, ">");
}

char *tni_contract_print(const tni_contract *c) {
    tni_text text = {0};
    tni_text_add(&text, "%s", c->name);
    print_type_variables(&text, c);
    tni_text_add(&text, "(");
    for (int i = 0; i < c->n_order; i++) {
        if (i) tni_text_add(&text, ", ");
        if (c->order[i].is_attr) {
            print_attr(&text, &c->attrs[c->order[i].index]);
        } else {
            print_tensor(&text, c, &c->inputs[c->order[i].index]);
        }
    }
    tni_text_add(&text, ")");
    for (int i = 0; i < c->n_outputs; i++) {
        tni_text_add(&text, "%s", i ? ", " : " -> ");
        print_tensor(&text, c, &c->outputs[i]);
    }
    for (int i = 0; i < c->n_conditions; i++) tni_text_add(&text, "%s%s", i ? ", " : " where ", c->conditions[i].text);
    if (!text.failed) return text.data;
    tni_free(text.data);
    return NULL;
}
