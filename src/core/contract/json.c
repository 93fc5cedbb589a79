/* Operators as JSON, for other languages; contract.h has the format. */
#include <math.h>
#include <string.h>

#include "parts.h"

/* ---- small pieces ------------------------------------------------------------------------------------------------ */

static void add_key(tni_text *text, const char *key) {
    tni_text_json_string(text, key);
    tni_text_add(text, ": ");
}

static void add_string(tni_text *text, const char *key, const char *value) {
    add_key(text, key);
    if (value) {
        tni_text_json_string(text, value);
    } else {
        tni_text_add(text, "null");
    }
}

static void add_bool(tni_text *text, const char *key, bool value) {
    tni_text_add(text, "\"%s\": %s", key, value ? "true" : "false");
}

static void add_types(tni_text *text, uint32_t mask) {
    tni_text_add(text, "[");
    if (mask) {
        tni_text_add(text, "\"");
        tni_print_mask(text, mask, "\", \"", "\", \"");
        tni_text_add(text, "\"");
    }
    tni_text_add(text, "]");
}

/* JSON has no infinity; 1e999 reads as one everywhere. */
static void add_double(tni_text *text, double value) {
    if (isnan(value)) {
        tni_text_add(text, "null");
    } else if (isinf(value)) {
        tni_text_add(text, "%s1e999", value < 0 ? "-" : "");
    } else {
        tni_text_double(text, value);
    }
}

void tni_json_value(tni_text *text, const tn_value *value) {
    switch (value->kind) {
    case TN_ATTR_FLOAT: add_double(text, value->f); break;
    case TN_ATTR_STR: tni_text_json_string(text, value->s); break;
    case TN_ATTR_TYPE: tni_text_json_string(text, tn_type_name(value->type)); break;
    case TN_ATTR_UNSET: tni_text_add(text, "null"); break;
    default: tni_print_value(text, value); break; /* ints, bools and lists are written the same way in both */
    }
}

/* ---- expressions and shapes -------------------------------------------------------------------------------------- */

static void add_expr(tni_text *text, const tni_contract *c, int32_t index) {
    static const char *const names[] = {
        [TNI_ADD] = "+",   [TNI_SUB] = "-", [TNI_MUL] = "*", [TNI_DIV] = "/",   [TNI_MOD] = "%",
        [TNI_NEG] = "neg", [TNI_EQ] = "==", [TNI_NE] = "!=", [TNI_LT] = "<",    [TNI_LE] = "<=",
        [TNI_GT] = ">",    [TNI_GE] = ">=", [TNI_OR] = "or", [TNI_AND] = "and", [TNI_NOT] = "not"};
    const tni_node *node = &c->nodes[index];
    switch (node->kind) {
    case TNI_LIT_INT: tni_text_add(text, "%lld", (long long)node->value); return;
    case TNI_LIT_BOOL: tni_text_add(text, "%s", node->value ? "true" : "false"); return;
    case TNI_LIT_STR:
        tni_text_add(text, "{");
        add_string(text, "str", node->text);
        break;
    case TNI_DIM: tni_text_add(text, "{\"dim\": \"%s\"", c->dims[node->ref]); break;
    case TNI_ATTR: tni_text_add(text, "{\"attr\": \"%s\"", c->attrs[node->ref].name); break;
    case TNI_ATTR_AT:
        tni_text_add(text, "{\"attr\": \"%s\", \"at\": %d", c->attrs[node->ref].name, (int)node->value);
        break;
    case TNI_RANK: tni_text_add(text, "{\"rank\": \"%s\"", c->packs[node->ref]); break;
    default:
        tni_text_add(text, "{\"op\": \"%s\", \"args\": [", names[node->kind]);
        add_expr(text, c, node->left);
        if (node->right >= 0) {
            tni_text_add(text, ", ");
            add_expr(text, c, node->right);
        }
        tni_text_add(text, "]");
    }
    tni_text_add(text, "}");
}

static void add_seq(tni_text *text, const tni_contract *c, tni_seq seq) {
    tni_text_add(text, "{\"%s\": \"%s\"%s}", seq.is_attr ? "attr" : "pack",
                 seq.is_attr ? c->attrs[seq.ref].name : c->packs[seq.ref], seq.rows ? ", \"rows\": true" : "");
}

static void add_function(tni_text *text, const tni_contract *c, const tni_item *item) {
    static const char *const arguments[TNI_FUNCTIONS] = {"of", "of", "axes", "dims", "pad", "repeats", "axis", "axis"};
    int which = (int)item->kind - TNI_ITEM_BROADCAST;
    tni_text_add(text, "{\"fn\": \"%s\", \"%s\": ", tni_functions[which], item->attr < 0 ? "of" : "a");
    tni_text_add(text, item->attr < 0 ? "[" : "");
    add_seq(text, c, item->a);
    for (int i = 0; i < item->n_more; i++) {
        tni_text_add(text, ", ");
        add_seq(text, c, item->more[i]);
    }
    if (item->attr < 0) {
        tni_text_add(text, "]");
    } else {
        tni_text_add(text, ", \"%s\": ", arguments[which]);
        tni_text_json_string(text, c->attrs[item->attr].name);
    }
    if (item->kind == TNI_ITEM_REDUCE) {
        tni_text_add(text, ", ");
        add_string(text, "keepdim", item->keep_attr >= 0 ? c->attrs[item->keep_attr].name : NULL);
    }
    if (item->kind == TNI_ITEM_RESIZE) {
        tni_text_add(text, ", ");
        add_key(text, "size");
        add_expr(text, c, item->node);
    }
    tni_text_add(text, "}");
}

static void add_item(tni_text *text, const tni_contract *c, const tni_item *item) {
    if (item->kind > TNI_ITEM_SPREAD) {
        add_function(text, c, item);
        return;
    }
    tni_text_add(text, "{");
    if (item->kind == TNI_ITEM_EXPR) {
        add_key(text, "expr");
        add_expr(text, c, item->node);
    } else if (item->kind == TNI_ITEM_PACK) {
        add_string(text, "pack", c->packs[item->ref]);
    } else {
        add_string(text, "spread", c->attrs[item->ref].name);
    }
    tni_text_add(text, item->broadcast ? ", \"broadcast\": true}" : "}");
}

static void add_items(tni_text *text, const tni_contract *c, int32_t first, int32_t count) {
    tni_text_add(text, "[");
    for (int i = first; i < first + count; i++) {
        if (i > first) tni_text_add(text, ", ");
        add_item(text, c, &c->items[i]);
    }
    tni_text_add(text, "]");
}

static void add_shape(tni_text *text, const tni_contract *c, const tni_shape *shape) {
    add_key(text, "shape");
    if (shape->cond < 0) {
        add_items(text, c, shape->first, shape->count);
        return;
    }
    tni_text_add(text, "{\"if\": ");
    add_expr(text, c, shape->cond);
    tni_text_add(text, ", \"then\": ");
    add_items(text, c, shape->first, shape->count);
    tni_text_add(text, ", \"else\": ");
    add_items(text, c, shape->else_first, shape->else_count);
    tni_text_add(text, "}");
}

void tni_json_type(tni_text *text, const tni_contract *c, const tni_type *type) {
    static const char *const wraps[] = {"}", ", \"wrap\": \"acc\"}", ", \"wrap\": \"complex\"}"};
    tni_text_add(text, "\"type\": {");
    if (type->kind == TNI_TYPE_FIXED) {
        add_key(text, "fixed");
        add_types(text, type->mask);
    } else if (type->kind == TNI_TYPE_VAR) {
        add_string(text, "var", c->types[type->ref].name);
    } else {
        add_string(text, "attr", c->attrs[type->ref].name);
    }
    tni_text_add(text, "%s", wraps[type->wrap]);
}

/* ---- parameters -------------------------------------------------------------------------------------------------- */

static void add_tensor(tni_text *text, const tni_contract *c, const tni_param *param) {
    add_string(text, "name", param->name);
    tni_text_add(text, ", ");
    tni_json_type(text, c, &param->type);
    tni_text_add(text, ", ");
    add_shape(text, c, &param->shape);
    tni_text_add(text, ", ");
    add_bool(text, "list", param->list);
}

static void add_input(tni_text *text, const tni_contract *c, const tni_param *param) {
    tni_text_add(text, "{\"kind\": \"input\", ");
    add_tensor(text, c, param);
    tni_text_add(text, ", ");
    add_bool(text, "optional", param->optional);
    tni_text_add(text, ", ");
    add_bool(text, "inplace", param->inplace);
    tni_text_add(text, "}");
}

static void add_output(tni_text *text, const tni_contract *c, const tni_param *param) {
    static const char *const wants[] = {"always", "asked", "grad"};
    tni_text_add(text, "{");
    add_tensor(text, c, param);
    tni_text_add(text, ", ");
    add_string(text, "want", wants[param->want]);
    tni_text_add(text, ", ");
    add_string(text, "want_attr", param->want_attr >= 0 ? c->attrs[param->want_attr].name : NULL);
    tni_text_add(text, "}");
}

static void add_attr(tni_text *text, const tni_contract *c, const tni_attr *attr) {
    static const char *const kinds[] = {[TNI_A_INT] = "int",       [TNI_A_FLOAT] = "float",
                                        [TNI_A_BOOL] = "bool",     [TNI_A_STR] = "str",
                                        [TNI_A_DTYPE] = "dtype",   [TNI_A_AXIS] = "axis",
                                        [TNI_A_AXES] = "axes",     [TNI_A_INTS] = "ints",
                                        [TNI_A_CHOICE] = "choice", [TNI_A_ACTIVATION] = "activation"};
    tni_text_add(text, "{\"kind\": \"attr\", ");
    add_string(text, "name", attr->name);
    tni_text_add(text, ", \"type\": \"%s\", ", kinds[attr->kind]);
    add_bool(text, "optional", attr->optional);
    tni_text_add(text, ", ");
    add_bool(text, "required", !attr->optional && !attr->has_default);
    if (attr->has_default) {
        tni_text_add(text, ", \"default\": ");
        tni_json_value(text, &attr->value);
    }
    tni_text_add(text, ", ");
    add_bool(text, "implied", attr->implied);
    tni_text_add(text, attr->length >= 0 ? ", \"length\": %d" : ", \"length\": null", attr->length);
    if (attr->kind == TNI_A_CHOICE || attr->kind == TNI_A_ACTIVATION) {
        tni_text_add(text, ", \"choices\": [%s", attr->kind == TNI_A_ACTIVATION ? "\"none\"" : "");
        for (int i = 0; i < attr->n_choices; i++) {
            if (i) tni_text_add(text, ", ");
            tni_text_json_string(text, attr->choices[i]);
        }
        const bool more = attr->kind == TNI_A_ACTIVATION && tni_known_activations;
        const char *name;
        for (int at = 0; more && (name = tni_known_activations->next(&at));) tni_text_add(text, ", \"%s\"", name);
        tni_text_add(text, "]");
    }
    tni_text_add(text, ", \"rank_of\": ");
    if (attr->rank_is_seq) {
        add_seq(text, c, attr->rank_seq);
    } else {
        tni_text_add(text, "null");
    }
    tni_text_add(text, "}");
}

static void add_params(tni_text *text, const tni_contract *c) {
    const char *between = "";
    tni_text_add(text, "\"params\": [");
    for (int i = 0; i < c->n_order; i++, between = ", ") {
        tni_text_add(text, "%s", between);
        if (c->order[i].is_attr) {
            add_attr(text, c, &c->attrs[c->order[i].index]);
        } else {
            add_input(text, c, &c->inputs[c->order[i].index]);
        }
    }
    for (int i = 0; i < c->n_attrs; i++) {
        if (!c->attrs[i].implied) continue;
        tni_text_add(text, "%s", between);
        add_attr(text, c, &c->attrs[i]);
        between = ", ";
    }
    tni_text_add(text, "]");
}

void tni_contract_json(tni_text *text, const tni_contract *c) {
    tni_text_add(text, "\"types\": [");
    for (int i = 0; i < c->n_types; i++) {
        tni_text_add(text, "%s{\"name\": \"%s\", \"of\": ", i ? ", " : "", c->types[i].name);
        add_types(text, c->types[i].mask);
        tni_text_add(text, "}");
    }
    tni_text_add(text, "], ");
    add_params(text, c);
    tni_text_add(text, ", \"outputs\": [");
    for (int i = 0; i < c->n_outputs; i++) {
        if (i) tni_text_add(text, ", ");
        add_output(text, c, &c->outputs[i]);
    }
    tni_text_add(text, "], \"where\": [");
    for (int i = 0; i < c->n_conditions; i++) {
        tni_text_add(text, i ? ", {" : "{");
        add_string(text, "text", c->conditions[i].text);
        tni_text_add(text, ", \"expr\": ");
        add_expr(text, c, c->conditions[i].node);
        tni_text_add(text, "}");
    }
    tni_text_add(text, "]");
}
