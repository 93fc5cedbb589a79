/* Which rows of the table are activations. */
#include "activation_names.h"

/* What takes an axis computes with rows, not with each element by itself. */
static bool has_defaults(const tni_contract *c) {
    for (int32_t i = 0; i < c->n_attrs; i++) {
        if (c->attrs[i].kind == TNI_A_AXIS || c->attrs[i].kind == TNI_A_AXES) return false;
        if (!c->attrs[i].has_default && !c->attrs[i].optional && !c->attrs[i].implied) return false;
    }
    return true;
}

/* One tensor of any shape, and one of the same shape and type made from it. */
bool tni_is_activation(const tn_function *op) {
    const tni_contract *c = op->contract;
    if (!op->row->formula || c->n_inputs != 1 || c->n_outputs != 1 || !has_defaults(c)) return false;
    const tni_param *x = &c->inputs[0], *y = &c->outputs[0];
    bool packs = x->shape.count == 1 && y->shape.count == 1 && x->shape.cond < 0 && y->shape.cond < 0;
    if (!packs || x->list || x->inplace || x->optional || y->want != TNI_ALWAYS) return false;
    const tni_item *a = &c->items[x->shape.first], *b = &c->items[y->shape.first];
    bool alike = a->kind == TNI_ITEM_PACK && b->kind == TNI_ITEM_PACK && a->ref == b->ref && !a->broadcast;
    return alike && x->type.kind == TNI_TYPE_VAR && y->type.kind == TNI_TYPE_VAR && x->type.ref == y->type.ref &&
           x->type.wrap == y->type.wrap;
}

const char *tni_activation_name(int16_t choice) {
    if (choice < TNI_ACT_OTHER) return choice == TNI_ACT_RELU ? "relu" : "none";
    return tn_function_name(tn_function_at(choice - TNI_ACT_OTHER));
}

/* ---- for the contract language ----------------------------------------------------------------------------------- */

static int16_t choice_of(const char *name) {
    const tn_function *op = tn_find(name);
    return op && tni_is_activation(op) ? (int16_t)(TNI_ACT_OTHER + op->index) : -1;
}

static const char *next_name(int *at) {
    while (*at < tn_function_count()) {
        const tn_function *op = tn_function_at((*at)++);
        if (tni_is_activation(op)) return op->contract->name;
    }
    return NULL;
}

static const char *nearest_name(const char *name) {
    const char *near = NULL, *other;
    int least = 3; /* farther than this is another word */
    for (int at = 0; (other = next_name(&at));) {
        const int distance = tni_edit_distance(name, other, least);
        if (distance >= least) continue;
        least = distance;
        near = other;
    }
    return near;
}

const tni_activations tni_table_activations = {choice_of, nearest_name, next_name};
