/* Behind the grammar: names become references, and what the text alone can tell is checked. A dimension must be bound
 * by some input, an expression must be of integers, a shape function must work on the right kind of attribute. */
#include <stdio.h>
#include <string.h>

#include "parts.h"

typedef enum kind { INTEGER, BOOLEAN, STRING, REAL } kind; /* of an expression; reals are only compared */

/* Where an expression stands: what is known by then differs. A shape is chosen by attributes alone, and axes are only
 * non-negative once the inputs are bound. */
typedef enum place { IN_CHOICE, IN_INPUT, IN_RESULT } place;

int32_t tni_draft_attr(const tni_draft *d, const char *name) {
    for (int i = 0; i < d->contract->n_attrs; i++) {
        if (strcmp(d->attrs[i].name, name) == 0) return i;
    }
    return -1;
}

/* The index of a name among those seen so far, which it joins. */
static tn_status intern(tni_draft *d, tni_use *seen, int32_t *count, int32_t most, const char *what, const char *name,
                        int32_t at, int32_t *index) {
    for (int i = 0; i < *count; i++) {
        if (strcmp(seen[i].name, name) == 0) {
            *index = i;
            return TN_OK;
        }
    }
    if (*count == most) return tni_lex_fail(&d->lex, at, "more than %d %s", most, what);
    seen[*count] = (tni_use){name, at};
    *index = (*count)++;
    return TN_OK;
}

/* ---- expressions ------------------------------------------------------------------------------------------------- */

/* The attribute of an expression or shape function. An optional one may have no value to compute with. */
static tn_status not_optional(const tni_draft *d, int32_t attr, int32_t at) {
    if (!d->attrs[attr].optional) return TN_OK;
    return tni_lex_fail(&d->lex, at, "'%s' is optional, so no shape or condition can depend on it",
                        d->attrs[attr].name);
}

static tn_status resolve_attr(tni_draft *d, tni_node *node, int32_t at, place where, kind *type) {
    const tni_attr *attr = &d->attrs[node->ref];
    TN_TRY(not_optional(d, node->ref, at));
    switch (attr->kind) {
    case TNI_A_INT: *type = INTEGER; return TN_OK;
    case TNI_A_FLOAT: *type = REAL; return TN_OK;
    case TNI_A_BOOL: *type = BOOLEAN; return TN_OK;
    case TNI_A_STR:
    case TNI_A_CHOICE:
    case TNI_A_ACTIVATION: *type = STRING; return TN_OK;
    case TNI_A_INTS:
        return tni_lex_fail(&d->lex, at, "'%s' is a list; say which element: %s[0]", attr->name, attr->name);
    case TNI_A_AXIS:
        if (where == IN_RESULT) {
            *type = INTEGER;
            return TN_OK;
        }
        return tni_lex_fail(&d->lex, at, "'%s' counts in the inputs, so their shapes cannot depend on it", attr->name);
    case TNI_A_DTYPE:
    case TNI_A_AXES: break;
    }
    return tni_lex_fail(&d->lex, at, "'%s' is not a number, bool or string, so it cannot be part of an expression",
                        attr->name);
}

static tn_status resolve_name(tni_draft *d, int32_t index, place where, kind *type) {
    tni_node *node = &d->nodes[index];
    int32_t at = d->node_at[index];
    node->ref = tni_draft_attr(d, node->text);
    if (node->ref >= 0) {
        node->kind = TNI_ATTR;
        TN_TRY(resolve_attr(d, node, at, where, type));
    } else if (where == IN_CHOICE) {
        return tni_lex_fail(&d->lex, at, "'%s' is not an attribute; a shape is chosen by attributes only", node->text);
    } else {
        TN_TRY(intern(d, d->dims, &d->contract->n_dims, TNI_MAX_NAMES, "dimensions", node->text, at, &node->ref));
    }
    node->text = NULL;
    return TN_OK;
}

static tn_status resolve_element(tni_draft *d, int32_t index) {
    tni_node *node = &d->nodes[index];
    int32_t at = d->node_at[index];
    node->ref = tni_draft_attr(d, node->text);
    if (node->ref < 0 || d->attrs[node->ref].kind != TNI_A_INTS) {
        return tni_lex_fail(&d->lex, at, "'%s' is not an ints attribute, so it has no elements", node->text);
    }
    TN_TRY(not_optional(d, node->ref, at));
    const tni_attr *attr = &d->attrs[node->ref];
    if (attr->length >= 0 && node->value >= attr->length) {
        return tni_lex_fail(&d->lex, at, "'%s' has %d elements, so there is no %s[%d]", attr->name, attr->length,
                            attr->name, (int)node->value);
    }
    node->text = NULL;
    return TN_OK;
}

static tn_status resolve_rank(tni_draft *d, int32_t index, place where) {
    tni_node *node = &d->nodes[index];
    int32_t at = d->node_at[index];
    if (where == IN_CHOICE) return tni_lex_fail(&d->lex, at, "a shape is chosen by attributes only, not by a rank");
    if (tni_draft_attr(d, node->text) >= 0)
        return tni_lex_fail(&d->lex, at, "'%s' is an attribute; rank takes *s", node->text);
    TN_TRY(intern(d, d->packs, &d->contract->n_packs, TNI_MAX_PACKS, "names with '*'", node->text, at, &node->ref));
    node->text = NULL;
    return TN_OK;
}

/* A string compared with a choice must be one of them: a slip there would never be found otherwise. */
static tn_status check_choice(tni_draft *d, const tni_node *node) {
    for (int side = 0; side < 2; side++) {
        const tni_node *name = &d->nodes[side ? node->right : node->left];
        int32_t other = side ? node->left : node->right;
        if (name->kind != TNI_ATTR || d->attrs[name->ref].kind != TNI_A_CHOICE) continue;
        const tni_attr *attr = &d->attrs[name->ref];
        bool found = d->nodes[other].kind != TNI_LIT_STR;
        for (int i = 0; i < attr->n_choices && !found; i++) found = strcmp(attr->choices[i], d->nodes[other].text) == 0;
        if (!found) {
            return tni_lex_fail(&d->lex, d->node_at[other], "'%s' is not one of the choices of '%s'",
                                d->nodes[other].text, attr->name);
        }
    }
    return TN_OK;
}

static const char *kind_name(kind type) {
    static const char *const names[] = {"an integer", "a condition", "a string", "a float"};
    return names[type];
}

static tn_status resolve_node(tni_draft *d, int32_t index, place where, kind *type);

static tn_status resolve_operand(tni_draft *d, int32_t index, place where, kind need, const char *role) {
    kind type;
    TN_TRY(resolve_node(d, index, where, &type));
    if (type == need) return TN_OK;
    return tni_lex_fail(&d->lex, d->node_at[index], "expected %s %s, not %s", kind_name(need), role, kind_name(type));
}

static bool is_number(kind type) {
    return type == INTEGER || type == REAL;
}

static tn_status resolve_equality(tni_draft *d, int32_t index, place where) {
    const tni_node *node = &d->nodes[index];
    kind left, right;
    TN_TRY(resolve_node(d, node->left, where, &left));
    TN_TRY(resolve_node(d, node->right, where, &right));
    if (left != right && !(is_number(left) && is_number(right))) {
        return tni_lex_fail(&d->lex, d->node_at[index], "%s cannot equal %s", kind_name(left), kind_name(right));
    }
    return check_choice(d, node);
}

static tn_status resolve_order(tni_draft *d, int32_t index, place where) {
    const int32_t sides[] = {d->nodes[index].left, d->nodes[index].right};
    for (int i = 0; i < 2; i++) {
        kind type;
        TN_TRY(resolve_node(d, sides[i], where, &type));
        if (is_number(type)) continue;
        return tni_lex_fail(&d->lex, d->node_at[sides[i]], "expected a number %s the operator, not %s",
                            i ? "after" : "before", kind_name(type));
    }
    return TN_OK;
}

/* Recursion ends at TNI_MAX_DEPTH, which add_node kept to. */
static tn_status resolve_node(tni_draft *d, int32_t index, place where, kind *type) {
    const tni_node *node = &d->nodes[index];
    *type = INTEGER;
    switch (node->kind) {
    case TNI_LIT_INT: return TN_OK;
    case TNI_LIT_BOOL: *type = BOOLEAN; return TN_OK;
    case TNI_LIT_STR: *type = STRING; return TN_OK;
    case TNI_DIM:
    case TNI_ATTR: return resolve_name(d, index, where, type);
    case TNI_ATTR_AT: return resolve_element(d, index);
    case TNI_RANK: return resolve_rank(d, index, where);
    case TNI_NEG: return resolve_operand(d, node->left, where, INTEGER, "after '-'");
    case TNI_NOT: *type = BOOLEAN; return resolve_operand(d, node->left, where, BOOLEAN, "after 'not'");
    case TNI_EQ:
    case TNI_NE: *type = BOOLEAN; return resolve_equality(d, index, where);
    case TNI_AND:
    case TNI_OR:
        *type = BOOLEAN;
        TN_TRY(resolve_operand(d, node->left, where, BOOLEAN, "before 'and' or 'or'"));
        return resolve_operand(d, node->right, where, BOOLEAN, "after 'and' or 'or'");
    case TNI_LT:
    case TNI_LE:
    case TNI_GT:
    case TNI_GE: *type = BOOLEAN; return resolve_order(d, index, where);
    default:
        TN_TRY(resolve_operand(d, node->left, where, INTEGER, "before the operator"));
        return resolve_operand(d, node->right, where, INTEGER, "after the operator");
    }
}

/* ---- shapes ------------------------------------------------------------------------------------------------------ */

static tn_status resolve_seq(tni_draft *d, const tni_use *use, tni_seq *seq) {
    int32_t attr = tni_draft_attr(d, use->name);
    seq->is_attr = attr >= 0;
    seq->ref = attr;
    if (attr < 0) {
        return intern(d, d->packs, &d->contract->n_packs, TNI_MAX_PACKS, "names with '*'", use->name, use->at,
                      &seq->ref);
    }
    if (d->attrs[attr].kind != TNI_A_INTS) {
        return tni_lex_fail(&d->lex, use->at, "'*%s' needs an ints attribute, which '%s' is not", use->name, use->name);
    }
    return not_optional(d, attr, use->at);
}

static bool takes(tni_item_kind function, tni_attr_kind attr) {
    switch (function) {
    case TNI_ITEM_REDUCE: return attr == TNI_A_AXES || attr == TNI_A_AXIS;
    case TNI_ITEM_PERMUTE:
    case TNI_ITEM_PAD:
    case TNI_ITEM_REPEAT: return attr == TNI_A_INTS;
    case TNI_ITEM_CONCAT:
    case TNI_ITEM_RESIZE: return attr == TNI_A_AXIS;
    default: return false;
    }
}

static tn_status resolve_operands(tni_draft *d, tni_draft_item *use) {
    tni_seq *seqs = tni_arena_alloc(d->arena, (size_t)use->item.n_more * sizeof *seqs);
    if (!seqs) return TN_NO_MEMORY;
    for (int i = 0; i < use->item.n_more; i++) {
        TN_TRY(resolve_seq(d, &use->more[i], &seqs[i]));
        seqs[i].rows = use->more[i].rows;
    }
    use->item.more = seqs;
    return TN_OK;
}

static tn_status resolve_function(tni_draft *d, tni_draft_item *use, place where) {
    static const char *const needs[TNI_FUNCTIONS] = {"",
                                                     "",
                                                     "an axis or axes attribute",
                                                     "an ints attribute",
                                                     "an ints attribute",
                                                     "an ints attribute",
                                                     "an axis attribute",
                                                     "an axis attribute"};
    tni_item *item = &use->item;
    TN_TRY(resolve_seq(d, &use->a, &item->a));
    if (tni_takes_packs(item->kind)) return resolve_operands(d, use);
    item->attr = tni_draft_attr(d, use->attr.name);
    if (item->attr < 0 || !takes(item->kind, d->attrs[item->attr].kind)) {
        return tni_lex_fail(&d->lex, use->attr.at, "'%s' is not %s", use->attr.name,
                            needs[item->kind - TNI_ITEM_BROADCAST]);
    }
    tni_attr *attr = &d->attrs[item->attr];
    TN_TRY(not_optional(d, item->attr, use->attr.at));
    if (!attr->rank_is_seq && attr->kind != TNI_A_INTS) {
        attr->rank_is_seq = true;
        attr->rank_seq = item->a;
    }
    if (item->kind == TNI_ITEM_RESIZE) return resolve_operand(d, item->node, where, INTEGER, "as a dimension");
    if (!use->keep.name) return TN_OK;
    item->keep_attr = tni_draft_attr(d, use->keep.name);
    if (item->keep_attr < 0 || d->attrs[item->keep_attr].kind != TNI_A_BOOL) {
        return tni_lex_fail(&d->lex, use->keep.at, "'%s' is not a bool attribute", use->keep.name);
    }
    return not_optional(d, item->keep_attr, use->keep.at);
}

static tn_status resolve_item(tni_draft *d, tni_draft_item *use, place where) {
    tni_item *item = &use->item;
    if (item->kind == TNI_ITEM_EXPR) return resolve_operand(d, item->node, where, INTEGER, "as a dimension");
    if (item->kind != TNI_ITEM_PACK) return resolve_function(d, use, where);
    tni_seq seq;
    TN_TRY(resolve_seq(d, &use->a, &seq));
    item->kind = seq.is_attr ? TNI_ITEM_SPREAD : TNI_ITEM_PACK;
    item->ref = seq.ref;
    return TN_OK;
}

static tn_status resolve_items(tni_draft *d, int32_t first, int32_t count, bool output) {
    int sequences = 0;
    for (int i = first; i < first + count; i++) {
        TN_TRY(resolve_item(d, &d->items[i], output ? IN_RESULT : IN_INPUT));
        if (output && d->items[i].item.broadcast) {
            return tni_lex_fail(&d->lex, d->items[i].at, "an output has the shape it has; '~' is for inputs");
        }
        sequences += tni_is_sequence(&d->items[i].item);
        if (!output && sequences > 1) {
            return tni_lex_fail(&d->lex, d->items[i].at,
                                "an input has at most one '*' or shape function: where would "
                                "one end and the other begin?");
        }
    }
    return TN_OK;
}

static tn_status resolve_shape(tni_draft *d, const tni_shape *shape, bool output) {
    if (shape->cond >= 0) TN_TRY(resolve_operand(d, shape->cond, IN_CHOICE, BOOLEAN, "after 'if'"));
    TN_TRY(resolve_items(d, shape->first, shape->count, output));
    return resolve_items(d, shape->else_first, shape->else_count, output);
}

/* ---- types ------------------------------------------------------------------------------------------------------- */

/* float32 is f32 here. */
static tn_status no_such_type(const tni_draft *d, int32_t at, const char *name) {
    static const struct {
        const char *theirs, *ours;
    } prefixes[] = {{"float", "f"}, {"bfloat", "bf"}, {"int", "i"}, {"uint", "u"}};
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++) {
        char here[TNI_MAX_NAME + 1];
        size_t n = strlen(prefixes[i].theirs);
        if (strncmp(name, prefixes[i].theirs, n) != 0) continue;
        snprintf(here, sizeof here, "%s%s", prefixes[i].ours, name + n);
        if (tn_type_named(here) == TN_NO_TYPE) continue;
        return tni_lex_fail(&d->lex, at, "there is no type '%s'; it is called %s", name, here);
    }
    return tni_lex_fail(&d->lex, at, "there is no type '%s', nor a dtype attribute of that name", name);
}

static tn_status resolve_type(tni_draft *d, tni_draft_param *param, bool output) {
    tni_contract *c = d->contract;
    tni_type *type = &param->param.type;
    if (!param->type.name) {
        if (!output || (type->mask & (type->mask - 1)) == 0) return TN_OK;
        return tni_lex_fail(&d->lex, param->at, "output '%s' has several types; it needs one", param->param.name);
    }
    const char *name = param->type.name;
    int32_t attr = tni_draft_attr(d, name), at = param->type.at, known = c->n_types;
    if (attr >= 0 && d->attrs[attr].kind == TNI_A_DTYPE) {
        type->kind = TNI_TYPE_ATTR;
        type->ref = attr;
        return not_optional(d, attr, at);
    }
    if (name[0] < 'A' || name[0] > 'Z') {
        return no_such_type(d, at, name);
    }
    type->kind = TNI_TYPE_VAR;
    TN_TRY(intern(d, d->types, &c->n_types, TNI_MAX_TYPES, "type variables", name, at, &type->ref));
    if (c->n_types > known) c->types[known] = (tni_typevar){.name = name, .mask = TN_FLOATS};
    return TN_OK;
}

/* ---- names, lists, axes ------------------------------------------------------------------------------------------ */

static tn_status add_implied(tni_draft *d) {
    tni_contract *c = d->contract;
    for (int i = 0; i < c->n_outputs; i++) {
        tni_draft_param *out = &d->outputs[i];
        if (out->param.want == TNI_ALWAYS) continue;
        if (c->n_attrs == TNI_MAX_ARGS) {
            return tni_lex_fail(&d->lex, out->at, "more than %d attributes, with those that '?' implies", TNI_MAX_ARGS);
        }
        size_t length = strlen(out->param.name);
        char *name = tni_arena_alloc(d->arena, length + 6);
        if (!name) return TN_NO_MEMORY;
        memcpy(name, "want_", 5);
        memcpy(name + 5, out->param.name, length);
        out->param.want_attr = c->n_attrs;
        d->attr_at[c->n_attrs] = out->at;
        d->attrs[c->n_attrs++] = (tni_attr){.name = name,
                                            .kind = TNI_A_BOOL,
                                            .has_default = true,
                                            .implied = true,
                                            .value = {.kind = TN_ATTR_BOOL},
                                            .length = -1};
    }
    return TN_OK;
}

/* ---- into the contract's own arrays ------------------------------------------------------------------------------ */

static tn_status copy_conditions(tni_draft *d) {
    tni_contract *c = d->contract;
    for (int i = 0; i < c->n_conditions; i++) {
        tni_text text = {0};
        tni_print_node(&text, c, d->conditions[i]);
        c->conditions[i].node = d->conditions[i];
        c->conditions[i].text = text.failed ? NULL : tni_arena_text(d->arena, text.data, text.length);
        tni_free(text.data);
        if (!c->conditions[i].text) return TN_NO_MEMORY;
    }
    return TN_OK;
}

static tn_status copy_arrays(tni_draft *d) {
    tni_contract *c = d->contract;
    c->inputs = tni_arena_alloc(d->arena, (size_t)c->n_inputs * sizeof *c->inputs);
    c->outputs = tni_arena_alloc(d->arena, (size_t)c->n_outputs * sizeof *c->outputs);
    c->attrs = tni_arena_alloc(d->arena, (size_t)c->n_attrs * sizeof *c->attrs);
    c->dims = tni_arena_alloc(d->arena, (size_t)c->n_dims * sizeof *c->dims);
    c->packs = tni_arena_alloc(d->arena, (size_t)c->n_packs * sizeof *c->packs);
    c->conditions = tni_arena_alloc(d->arena, (size_t)c->n_conditions * sizeof *c->conditions);
    c->nodes = tni_arena_alloc(d->arena, (size_t)c->n_nodes * sizeof *c->nodes);
    c->items = tni_arena_alloc(d->arena, (size_t)c->n_items * sizeof *c->items);
    c->order = tni_arena_alloc(d->arena, (size_t)c->n_order * sizeof *c->order);
    bool all = c->inputs && c->outputs && c->attrs && c->dims && c->packs && c->conditions && c->nodes && c->items;
    if (!all || !c->order) return TN_NO_MEMORY;
    for (int i = 0; i < c->n_inputs; i++) c->inputs[i] = d->inputs[i].param;
    for (int i = 0; i < c->n_outputs; i++) c->outputs[i] = d->outputs[i].param;
    for (int i = 0; i < c->n_dims; i++) c->dims[i] = d->dims[i].name;
    for (int i = 0; i < c->n_packs; i++) c->packs[i] = d->packs[i].name;
    for (int i = 0; i < c->n_items; i++) c->items[i] = d->items[i].item;
    for (int i = 0; i < c->n_order; i++) {
        c->order[i].is_attr = d->order[i].is_attr;
        c->order[i].index = d->order[i].index;
    }
    memcpy(c->attrs, d->attrs, (size_t)c->n_attrs * sizeof *c->attrs);
    memcpy(c->nodes, d->nodes, (size_t)c->n_nodes * sizeof *c->nodes);
    return copy_conditions(d);
}

tn_status tni_draft_resolve(tni_draft *d) {
    tni_contract *c = d->contract;
    TN_TRY(add_implied(d));
    TN_TRY(tni_check_names(d));
    for (int i = 0; i < c->n_inputs; i++) TN_TRY(resolve_type(d, &d->inputs[i], false));
    for (int i = 0; i < c->n_outputs; i++) TN_TRY(resolve_type(d, &d->outputs[i], true));
    for (int i = 0; i < c->n_inputs; i++) TN_TRY(resolve_shape(d, &d->inputs[i].param.shape, false));
    for (int i = 0; i < c->n_outputs; i++) TN_TRY(resolve_shape(d, &d->outputs[i].param.shape, true));
    for (int i = 0; i < c->n_conditions; i++)
        TN_TRY(resolve_operand(d, d->conditions[i], IN_RESULT, BOOLEAN, "after 'where'"));
    TN_TRY(tni_check_meaning(d));
    return copy_arrays(d);
}
