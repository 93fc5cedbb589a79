/* What a parsed signature must keep to as a whole: names are unique, every dimension and type is told by some input. */
#include <string.h>

#include "parts.h"

static int32_t find_param(const tni_draft_param *params, int32_t count, const char *name) {
    for (int i = 0; i < count; i++) {
        if (strcmp(params[i].param.name, name) == 0) return i;
    }
    return -1;
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

tn_status tni_check_names(tni_draft *d) {
    const tni_contract *c = d->contract;
    for (int i = 0; i < c->n_inputs; i++) {
        const tni_draft_param *in = &d->inputs[i];
        if (find_param(d->inputs, c->n_inputs, in->param.name) != i) {
            return tni_lex_fail(&d->lex, in->at, "there are two parameters '%s'", in->param.name);
        }
    }
    for (int i = 0; i < c->n_attrs; i++) {
        const char *name = d->attrs[i].name;
        if (tni_draft_attr(d, name) != i && d->attrs[i].implied) {
            return tni_lex_fail(&d->lex, d->attr_at[i], "the '?' implies an attribute '%s', but there is one already",
                                name);
        }
        int32_t input = find_param(d->inputs, c->n_inputs, name);
        if (tni_draft_attr(d, name) != i || input >= 0) {
            int32_t at = input >= 0 && d->inputs[input].at > d->attr_at[i] ? d->inputs[input].at : d->attr_at[i];
            return tni_lex_fail(&d->lex, at, "there are two parameters '%s'", name);
        }
    }
    for (int i = 0; i < c->n_outputs; i++) {
        const tni_draft_param *out = &d->outputs[i];
        const char *name = out->param.name;
        if (find_param(d->outputs, c->n_outputs, name) != i) {
            return tni_lex_fail(&d->lex, out->at, "there are two outputs '%s'", name);
        }
        if (find_param(d->inputs, c->n_inputs, name) >= 0 || tni_draft_attr(d, name) >= 0) {
            return tni_lex_fail(&d->lex, out->at, "output '%s' has the name of a parameter", name);
        }
    }
    return TN_OK;
}

static tn_status check_results(tni_draft *d) {
    tni_contract *c = d->contract;
    bool inplace = false;
    for (int i = 0; i < c->n_inputs; i++) {
        c->has_lists |= d->inputs[i].param.list;
        inplace |= d->inputs[i].param.inplace;
    }
    if (c->n_outputs == 0 && !inplace) {
        return tni_lex_fail(&d->lex, d->lex.token.at, "expected '->' and the outputs: nothing is updated in place");
    }
    for (int i = 0; i < c->n_outputs; i++) {
        if (!d->outputs[i].param.list || c->has_lists) continue;
        return tni_lex_fail(&d->lex, d->outputs[i].at, "output '%s' is a list, but no input tells its length",
                            d->outputs[i].param.name);
    }
    c->activation = -1;
    for (int i = 0; i < c->n_attrs; i++) {
        if (d->attrs[i].kind == TNI_A_ACTIVATION) c->activation = i;
        bool axis = d->attrs[i].kind == TNI_A_AXIS || d->attrs[i].kind == TNI_A_AXES;
        if (axis && !d->attrs[i].rank_is_seq && c->n_inputs == 0) {
            return tni_lex_fail(&d->lex, d->attr_at[i], "'%s' counts the dimensions of an input, and there is none",
                                d->attrs[i].name);
        }
    }
    return TN_OK;
}

static tn_status check_type_variables(tni_draft *d) {
    const tni_contract *c = d->contract;
    for (int i = 0; i < c->n_types; i++) {
        bool bound = false;
        for (int k = 0; k < c->n_inputs && !bound; k++) {
            const tni_type *type = &d->inputs[k].param.type;
            bound = type->kind == TNI_TYPE_VAR && type->ref == i;
        }
        if (!bound) return tni_lex_fail(&d->lex, d->types[i].at, "'%s' is not the type of any input", c->types[i].name);
    }
    return TN_OK;
}

/* ---- what the inputs bind ---------------------------------------------------------------------------------------- */

/* How often dimensions that are not bound yet occur in an expression; *dim is the last of them. */
static int unbound(const tni_draft *d, int32_t index, const bool *bound, int32_t *dim) {
    if (index < 0) return 0;
    const tni_node *node = &d->nodes[index];
    if (node->kind == TNI_DIM && !bound[node->ref]) {
        *dim = node->ref;
        return 1;
    }
    return unbound(d, node->left, bound, dim) + unbound(d, node->right, bound, dim);
}

/* Can the one unbound dimension of an expression be solved for? */
static bool solvable(const tni_draft *d, int32_t index, const bool *bound) {
    int32_t dim;
    const tni_node *node = &d->nodes[index];
    switch (node->kind) {
    case TNI_DIM: return true;
    case TNI_NEG: return solvable(d, node->left, bound);
    case TNI_ADD:
    case TNI_SUB:
    case TNI_MUL: return solvable(d, unbound(d, node->left, bound, &dim) ? node->left : node->right, bound);
    default: return false;
    }
}

/* Whether the last size of *pack is asked for anywhere: rows(*pack) alone does not. */
static bool is_used_whole(const tni_draft *d, int32_t pack) {
    for (int i = 0; i < d->contract->n_items; i++) {
        const tni_item *item = &d->items[i].item;
        if (item->kind == TNI_ITEM_PACK && item->ref == pack) return true;
        bool function = item->kind > TNI_ITEM_SPREAD && !(item->kind == TNI_ITEM_ROWS && !item->n_more);
        if (function && !item->a.is_attr && item->a.ref == pack) return true;
        for (int k = 0; k < item->n_more; k++) {
            if (!item->more[k].is_attr && item->more[k].ref == pack) return true;
        }
    }
    for (int i = 0; i < d->contract->n_nodes; i++) {
        if (d->nodes[i].kind == TNI_RANK && d->nodes[i].ref == pack) return true;
    }
    return false;
}

/* Binds what one input adds; true where it did. */
static bool bind_items(const tni_draft *d, int32_t first, int32_t count, bool *dims, bool *packs) {
    bool progress = false;
    for (int i = first; i < first + count; i++) {
        const tni_item *item = &d->items[i].item;
        int32_t dim;
        if (item->kind == TNI_ITEM_PACK) {
            packs[item->ref] = true;
        } else if (item->kind == TNI_ITEM_ROWS && !item->a.is_attr && !is_used_whole(d, item->a.ref)) {
            packs[item->a.ref] = true;
        } else if (item->kind == TNI_ITEM_RESIZE && d->nodes[item->node].kind == TNI_DIM) {
            progress |= !dims[d->nodes[item->node].ref];
            dims[d->nodes[item->node].ref] = true;
        } else if (item->kind == TNI_ITEM_EXPR && unbound(d, item->node, dims, &dim) == 1 &&
                   solvable(d, item->node, dims)) {
            dims[dim] = progress = true;
        }
    }
    return progress;
}

static tn_status check_bound(tni_draft *d) {
    const tni_contract *c = d->contract;
    bool dims[TNI_MAX_NAMES] = {0}, packs[TNI_MAX_PACKS] = {0};
    for (bool progress = true; progress;) {
        progress = false;
        for (int i = 0; i < c->n_inputs; i++) {
            const tni_shape *shape = &d->inputs[i].param.shape;
            progress |= bind_items(d, shape->first, shape->count, dims, packs);
            progress |= bind_items(d, shape->else_first, shape->else_count, dims, packs);
        }
    }
    for (int i = 0; i < c->n_dims; i++) {
        const tni_use *dim = &d->dims[i];
        if (dims[i]) continue;
        if (find_param(d->inputs, c->n_inputs, dim->name) >= 0) {
            return tni_lex_fail(&d->lex, dim->at, "'%s' is a tensor, and no input has a dimension '%s'", dim->name,
                                dim->name);
        }
        return tni_lex_fail(&d->lex, dim->at, "'%s' is no attribute, and no input tells it as a dimension", dim->name);
    }
    for (int i = 0; i < c->n_packs; i++) {
        if (!packs[i]) return tni_lex_fail(&d->lex, d->packs[i].at, "no input has '*%s'", d->packs[i].name);
    }
    return TN_OK;
}

/* concat(*s, …) adds up the elements of a list, so *s must be one's. */
static tn_status check_concat(tni_draft *d, const tni_draft_item *use) {
    const tni_contract *c = d->contract;
    for (int i = 0; i < c->n_inputs; i++) {
        const tni_shape *shape = &d->inputs[i].param.shape;
        for (int k = shape->first; k < shape->first + shape->count && d->inputs[i].param.list; k++) {
            const tni_item *item = &d->items[k].item;
            if (item->kind == TNI_ITEM_PACK && !use->item.a.is_attr && item->ref == use->item.a.ref) return TN_OK;
        }
    }
    return tni_lex_fail(&d->lex, use->a.at, "concat works on the elements of a list input, which '*%s' is not",
                        use->a.name);
}

tn_status tni_check_meaning(tni_draft *d) {
    for (int i = 0; i < d->contract->n_items; i++) {
        if (d->items[i].item.kind == TNI_ITEM_CONCAT) TN_TRY(check_concat(d, &d->items[i]));
    }
    TN_TRY(check_type_variables(d));
    TN_TRY(check_bound(d));
    return check_results(d);
}
