/* Expressions on inputs: `2*n` with a size of 8 makes n 4. And what messages about inputs begin with. */
#include "parts.h"

void tni_print_operand(tni_text *text, const tni_binder *r, int32_t operand) {
    int32_t i = r->c->n_inputs - 1;
    while (i > 0 && (r->start[i] > operand || r->in->counts[i] == 0)) i--;
    tni_text_add(text, "%s", r->c->inputs[i].name);
    if (r->c->inputs[i].list) tni_text_add(text, "[%d]", operand - r->start[i]);
}

/* "layer_norm: gamma has shape (5)" */
void tni_begin_message(tni_text *text, const tni_binder *r, int32_t operand) {
    const tni_operand *o = &r->in->operands[operand];
    tni_text_add(text, "%s: ", r->c->name);
    tni_print_operand(text, r, operand);
    tni_text_add(text, " has shape ");
    tni_print_dims(text, o->ndim, o->shape);
}

void tni_set_dim(tni_binder *r, int32_t operand, int32_t dim, int64_t size) {
    r->b->dim_set[dim] = true;
    r->b->dims[dim] = size;
    r->dim_from[dim] = operand;
}

/* Is there something left to learn of it? */
static bool is_open(const tni_binder *r, int32_t dim) {
    return !r->b->dim_set[dim] || r->b->dims[dim] < 0;
}

int tni_open_dims(const tni_binder *r, int32_t index) {
    if (index < 0) return 0;
    const tni_node *node = &r->c->nodes[index];
    if (node->kind == TNI_DIM) return is_open(r, node->ref);
    return tni_open_dims(r, node->left) + tni_open_dims(r, node->right);
}

bool tni_has_unknown(const tni_binder *r, int32_t index) {
    if (index < 0) return false;
    const tni_node *node = &r->c->nodes[index];
    if (node->kind == TNI_DIM) return r->b->dim_set[node->ref] && r->b->dims[node->ref] < 0;
    if (node->kind == TNI_RANK) return !r->b->pack_set[node->ref] || r->b->packs[node->ref].ndim < 0;
    return tni_has_unknown(r, node->left) || tni_has_unknown(r, node->right);
}

bool tni_give_up(tni_binder *r, int32_t operand, int32_t index) {
    if (index < 0) return false;
    const tni_node *node = &r->c->nodes[index];
    if (node->kind == TNI_DIM) {
        bool unset = !r->b->dim_set[node->ref];
        if (unset) tni_set_dim(r, operand, node->ref, -1);
        return unset;
    }
    bool left = tni_give_up(r, operand, node->left);
    return tni_give_up(r, operand, node->right) || left;
}

/* "gated_linear: w has shape (7, 3), but its 7 has to be 2 * n" */
static tn_status no_solution(const tni_binder *r, int32_t operand, int32_t root, int64_t size) {
    tni_text text = {0};
    tni_begin_message(&text, r, operand);
    tni_text_add(&text, ", but its %lld has to be ", (long long)size);
    tni_print_node(&text, r->c, root);
    return tni_fail_text(TN_BAD_SHAPE, &text);
}

/* Finds the one open dimension such that the expression is `size`. Each step undoes the topmost operation. */
tn_status tni_solve(tni_binder *r, int32_t operand, int32_t root, int64_t size) {
    int64_t target = size;
    const tni_node *node = &r->c->nodes[root];
    while (node->kind != TNI_DIM) {
        bool overflow = false;
        tni_result other = {0};
        bool left = node->right < 0 || tni_open_dims(r, node->left) == 1;
        if (node->right >= 0) TN_TRY(tni_eval(r->c, r->b, left ? node->right : node->left, &other));
        if (node->right >= 0 && !other.known) return TN_OK; /* an attribute cannot be unknown; a rank can */
        switch (node->kind) {
        case TNI_NEG: overflow = __builtin_sub_overflow(0, target, &target); break;
        case TNI_ADD: overflow = __builtin_sub_overflow(target, other.value, &target); break;
        case TNI_SUB:
            overflow = left ? __builtin_add_overflow(target, other.value, &target)
                            : __builtin_sub_overflow(other.value, target, &target);
            break;
        case TNI_MUL:
            if (other.value == 0) return target == 0 ? TN_OK : no_solution(r, operand, root, size);
            if (other.value == -1) {
                overflow = __builtin_sub_overflow(0, target, &target);
            } else {
                overflow = target % other.value != 0;
                target /= other.value;
            }
            break;
        default: return TN_OK; /* division and the like lose information: they are compared, not solved */
        }
        if (overflow) return no_solution(r, operand, root, size);
        node = &r->c->nodes[left ? node->left : node->right];
    }
    if (target < 0) return no_solution(r, operand, root, size);
    tni_set_dim(r, operand, node->ref, target);
    return TN_OK;
}
