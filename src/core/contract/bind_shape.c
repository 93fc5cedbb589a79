/* Shapes of a call. First every plain name takes its size from the first input that has it, then expressions are solved
 * for what is still open, then `~` gets its turn; with everything bound, each input is compared with what the contract
 * says of it. Sizes of -1 are unknown and agree with anything. */
#include <string.h>

#include "parts.h"

/* An operand beside what the contract says of it: dimensions before, inside and behind the `*` or shape function, if
 * there is one. */
typedef struct layout {
    int32_t input;  /* of the contract */
    int32_t number; /* among the operands of the call */
    const tni_operand *operand;
    int32_t sequence; /* which item is a `*` or shape function; -1: none */
    int32_t length;   /* how many dimensions it has */
    bool solves;      /* has expressions */
    bool grows;       /* has a `~` or rows() */
    bool checks;      /* has more than names that stand alone */
} layout;

static const tni_item *item_of(const tni_binder *r, int32_t input, int32_t k) {
    return &r->c->items[r->first[input] + k];
}

static int32_t position(const layout *l, int32_t k) {
    return l->sequence >= 0 && k > l->sequence ? k - 1 + l->length : k;
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

/* " from x (3, 7)" */
static void print_origin(tni_text *text, const tni_binder *r, int32_t from, int32_t operand) {
    if (from < 0) return;
    if (from == operand) {
        tni_text_add(text, " elsewhere in it");
        return;
    }
    tni_text_add(text, " from ");
    tni_print_operand(text, r, from);
    tni_text_add(text, " ");
    tni_print_dims(text, r->in->operands[from].ndim, r->in->operands[from].shape);
}

static tn_status dim_differs(const tni_binder *r, int32_t operand, int32_t dim) {
    tni_text text = {0};
    tni_begin_message(&text, r, operand);
    tni_text_add(&text, ", but %s is %lld", r->c->dims[dim], (long long)r->b->dims[dim]);
    print_origin(&text, r, r->dim_from[dim], operand);
    return tni_fail_text(TN_BAD_SHAPE, &text);
}

static tn_status pack_differs(const tni_binder *r, int32_t operand, int32_t pack, bool broadcast) {
    tni_text text = {0};
    tni_begin_message(&text, r, operand);
    tni_text_add(&text, ", %s *%s %s ", broadcast ? "which does not broadcast to" : "but", r->c->packs[pack],
                 broadcast ? "=" : "is");
    tni_print_dims(&text, r->b->packs[pack].ndim, r->b->packs[pack].d);
    print_origin(&text, r, r->pack_from[pack], operand);
    return tni_fail_text(TN_BAD_SHAPE, &text);
}

static tn_status wrong_rank(const tni_binder *r, int32_t input, int32_t operand, int32_t need, bool at_least) {
    tni_text text = {0};
    tni_text_add(&text, "%s: ", r->c->name);
    tni_print_operand(&text, r, operand);
    tni_text_add(&text, " has rank %d, needs %s%d: [", r->in->operands[operand].ndim, at_least ? "at least " : "",
                 need);
    tni_print_items(&text, r->c, r->first[input], r->count[input]);
    tni_text_add(&text, "]");
    return tni_fail_text(TN_BAD_SHAPE, &text);
}

/* ---- binding ----------------------------------------------------------------------------------------------------- */

static tn_status lay_out(const tni_binder *r, int32_t input, int32_t operand, layout *l) {
    int32_t count = r->count[input];
    *l = (layout){.input = input, .number = operand, .operand = &r->in->operands[operand], .sequence = -1};
    for (int k = 0; k < count; k++) {
        const tni_item *item = item_of(r, input, k);
        bool sequence = tni_is_sequence(item);
        if (sequence) l->sequence = k;
        bool plain = sequence ? item->kind == TNI_ITEM_PACK : r->c->nodes[item->node].kind == TNI_DIM;
        l->solves |= !plain && !sequence;
        l->grows |= item->broadcast || item->kind == TNI_ITEM_ROWS;
        l->checks |= !plain || item->broadcast;
    }
    int32_t fixed = count - (l->sequence >= 0), ndim = l->operand->ndim;
    if (ndim < 0) return TN_OK;
    if (l->sequence < 0 ? ndim != fixed : ndim < fixed) return wrong_rank(r, input, operand, fixed, l->sequence >= 0);
    l->length = ndim - fixed;
    return TN_OK;
}

/* The size at item k, -1 where it is unknown. */
static int64_t size_at(const layout *l, int32_t k) {
    return l->operand->ndim < 0 ? -1 : l->operand->shape[position(l, k)];
}

static tn_status bind_dim(tni_binder *r, int32_t operand, int32_t dim, int64_t size) {
    if (!r->b->dim_set[dim] || (r->b->dims[dim] < 0 && size >= 0)) {
        tni_set_dim(r, operand, dim, size);
        return TN_OK;
    }
    return size < 0 || size == r->b->dims[dim] ? TN_OK : dim_differs(r, operand, dim);
}

static tn_status bind_pack(tni_binder *r, int32_t operand, int32_t pack, int32_t ndim, const int64_t *shape) {
    tni_dims *dims = &r->b->packs[pack];
    if (!r->b->pack_set[pack] || dims->ndim < 0) {
        r->b->pack_set[pack] = true;
        dims->ndim = ndim;
        for (int i = 0; i < ndim; i++) dims->d[i] = shape[i];
        r->pack_from[pack] = operand;
        return TN_OK;
    }
    if (ndim < 0) return TN_OK;
    bool same = ndim == dims->ndim;
    for (int i = 0; same && i < ndim; i++) {
        if (dims->d[i] < 0) dims->d[i] = shape[i];
        same = shape[i] < 0 || shape[i] == dims->d[i];
    }
    return same ? TN_OK : pack_differs(r, operand, pack, false);
}

/* Names that stand alone: n and *s. */
static tn_status bind_plain(tni_binder *r, const layout *l) {
    bool known = l->operand->ndim >= 0;
    for (int k = 0; k < r->count[l->input]; k++) {
        const tni_item *item = item_of(r, l->input, k);
        if (item->broadcast) continue;
        if (item->kind == TNI_ITEM_PACK) {
            TN_TRY(bind_pack(r, l->number, item->ref, known ? l->length : -1, known ? l->operand->shape + k : NULL));
        } else if (item->kind == TNI_ITEM_EXPR && r->c->nodes[item->node].kind == TNI_DIM) {
            TN_TRY(bind_dim(r, l->number, r->c->nodes[item->node].ref, size_at(l, k)));
        }
    }
    return TN_OK;
}

/* ---- expressions, `~` -------------------------------------------------------------------------------------------- */

/* Is item k an expression that may have something to solve? */
static bool is_equation(const tni_binder *r, const layout *l, int32_t k) {
    const tni_item *item = item_of(r, l->input, k);
    return item->kind == TNI_ITEM_EXPR && r->c->nodes[item->node].kind > TNI_ATTR_AT;
}

/* One round over the expressions of an operand. */
static tn_status solve_operand(tni_binder *r, const layout *l, bool *progress) {
    for (int k = 0; l->solves && k < r->count[l->input]; k++) {
        const tni_item *item = item_of(r, l->input, k);
        int64_t size = size_at(l, k);
        if (!is_equation(r, l, k) || size < 0 || item->broadcast || tni_open_dims(r, item->node) != 1) continue;
        TN_TRY(tni_solve(r, l->number, item->node, size));
        *progress |= tni_open_dims(r, item->node) == 0;
    }
    return TN_OK;
}

/* What no equation solves because something in it is unknown becomes unknown itself. */
static void give_up(tni_binder *r, const layout *l, bool *progress) {
    for (int k = 0; l->solves && k < r->count[l->input]; k++) {
        if (!is_equation(r, l, k)) continue;
        int32_t node = item_of(r, l->input, k)->node;
        if (size_at(l, k) < 0 || tni_has_unknown(r, node)) *progress |= tni_give_up(r, l->number, node);
    }
}

/* `~n`: where nothing else binds n, the inputs that broadcast to it do, together. */
static void grow_dim(tni_binder *r, int32_t operand, int32_t dim, int64_t size) {
    if (!r->b->dim_set[dim]) {
        tni_set_dim(r, operand, dim, size);
        r->soft_dim[dim] = true;
    } else if (size >= 0 && size != 1 && r->b->dims[dim] < 0) {
        tni_set_dim(r, operand, dim, size);
    } else if (r->soft_dim[dim] && r->b->dims[dim] == 1) {
        tni_set_dim(r, operand, dim, size);
    }
}

static void grow_pack(tni_binder *r, int32_t operand, int32_t pack, int32_t ndim, const int64_t *shape) {
    tni_dims given = {.ndim = ndim}, *dims = &r->b->packs[pack];
    for (int i = 0; i < ndim; i++) given.d[i] = shape[i];
    if (!r->b->pack_set[pack]) {
        r->b->pack_set[pack] = r->soft_pack[pack] = true;
        *dims = given;
        r->pack_from[pack] = operand;
    } else if (r->soft_pack[pack]) {
        tni_broadcast(dims, &given); /* where the two do not, the check of this operand says so */
    } else if (ndim <= dims->ndim) { /* a size other than 1 has to be the one that is still unknown */
        for (int i = 0; i < ndim; i++) {
            int64_t *size = &dims->d[dims->ndim - ndim + i];
            if (*size < 0 && shape[i] != 1) *size = shape[i];
        }
    }
}

/* rows(*s) alone: where nothing else binds *s, it tells all of it but the last size. */
static void bind_rows(tni_binder *r, int32_t operand, const tni_item *item, int32_t ndim, const int64_t *shape) {
    if (item->n_more || item->a.is_attr || r->b->pack_set[item->a.ref]) return;
    tni_dims *dims = &r->b->packs[item->a.ref];
    r->b->pack_set[item->a.ref] = true;
    r->pack_from[item->a.ref] = operand;
    dims->ndim = ndim < 0 || ndim == TN_MAX_RANK ? -1 : ndim + 1;
    for (int i = 0; i < dims->ndim; i++) dims->d[i] = i < ndim ? shape[i] : -1;
}

static void grow_operand(tni_binder *r, const layout *l) {
    bool known = l->operand->ndim >= 0;
    for (int k = 0; l->grows && k < r->count[l->input]; k++) {
        const tni_item *item = item_of(r, l->input, k);
        if (item->kind == TNI_ITEM_ROWS) {
            bind_rows(r, l->number, item, known ? l->length : -1, known ? l->operand->shape + k : NULL);
        }
        if (!item->broadcast) continue;
        if (item->kind == TNI_ITEM_PACK) {
            grow_pack(r, l->number, item->ref, known ? l->length : -1, known ? l->operand->shape + k : NULL);
        } else if (item->kind == TNI_ITEM_EXPR && r->c->nodes[item->node].kind == TNI_DIM) {
            grow_dim(r, l->number, r->c->nodes[item->node].ref, size_at(l, k));
        }
    }
}

/* ---- comparing --------------------------------------------------------------------------------------------------- */

static tn_status check_size(const tni_binder *r, int32_t operand, const tni_item *item, int64_t size) {
    tni_result need;
    TN_TRY(tni_eval(r->c, r->b, item->node, &need));
    if (!need.known || size < 0 || size == need.value || (item->broadcast && size == 1)) return TN_OK;
    const tni_node *node = &r->c->nodes[item->node];
    if (node->kind == TNI_DIM && !item->broadcast) return dim_differs(r, operand, node->ref);
    tni_text text = {0};
    tni_begin_message(&text, r, operand);
    tni_text_add(&text, ", but its %lld has to be %s", (long long)size, item->broadcast ? "1 or " : "");
    if (node->kind != TNI_LIT_INT) {
        tni_print_node(&text, r->c, item->node);
        tni_text_add(&text, " = ");
    }
    tni_text_add(&text, "%lld", (long long)need.value);
    if (node->kind == TNI_DIM) print_origin(&text, r, r->dim_from[node->ref], operand);
    if (node->kind > TNI_RANK) {
        tni_text_add(&text, ", where ");
        tni_print_values(&text, r->c, r->b, item->node);
    }
    return tni_fail_text(TN_BAD_SHAPE, &text);
}

static bool agrees(const tni_dims *need, int32_t ndim, const int64_t *shape, bool broadcast) {
    if (need->ndim < 0) return true;
    if (broadcast ? ndim > need->ndim : ndim != need->ndim) return false;
    for (int i = 0; i < ndim; i++) {
        int64_t size = need->d[need->ndim - ndim + i];
        if (shape[i] >= 0 && size >= 0 && shape[i] != size && !(broadcast && shape[i] == 1)) return false;
    }
    return true;
}

static tn_status sequence_differs(const tni_binder *r, int32_t operand, const tni_item *item, const tni_dims *need) {
    tni_text text = {0};
    if (item->kind == TNI_ITEM_PACK) return pack_differs(r, operand, item->ref, true);
    tni_begin_message(&text, r, operand);
    tni_text_add(&text, ", %s ", item->broadcast ? "which does not broadcast to" : "needs");
    tni_print_dims(&text, need->ndim, need->d);
    tni_text_add(&text, ": ");
    tni_print_items(&text, r->c, (int32_t)(item - r->c->items), 1);
    return tni_fail_text(TN_BAD_SHAPE, &text);
}

static tn_status check_sequence(const tni_binder *r, const layout *l, int32_t k) {
    const tni_item *item = item_of(r, l->input, k);
    tni_dims need;
    bool unset = false;
    if (item->kind == TNI_ITEM_CONCAT) {
        TN_TRY(tni_concat_dims(r, item, &need));
    } else {
        TN_TRY(tni_item_dims(r->c, r->b, item, &need, &unset));
    }
    bool agree = agrees(&need, l->length, l->operand->shape + k, item->broadcast);
    return agree ? TN_OK : sequence_differs(r, l->number, item, &need);
}

static tn_status check_operand(const tni_binder *r, const layout *l) {
    for (int k = 0; l->checks && l->operand->ndim >= 0 && k < r->count[l->input]; k++) {
        const tni_item *item = item_of(r, l->input, k);
        if (item->kind == TNI_ITEM_EXPR) {
            TN_TRY(check_size(r, l->number, item, size_at(l, k)));
        } else if (item->kind != TNI_ITEM_PACK || item->broadcast) { /* a plain one was compared when it was bound */
            TN_TRY(check_sequence(r, l, k));
        }
    }
    return TN_OK;
}

/* ---- lists ------------------------------------------------------------------------------------------------------- */

/* Notes the names in an expression or item list as used by one who sees all elements alike. */
static void share_node(tni_binder *r, int32_t index) {
    if (index < 0) return;
    const tni_node *node = &r->c->nodes[index];
    if (node->kind == TNI_DIM) r->each_dim[node->ref] = false;
    if (node->kind == TNI_RANK) r->each_pack[node->ref] = false;
    share_node(r, node->left);
    share_node(r, node->right);
}

static void share_items(tni_binder *r, int32_t first, int32_t count) {
    for (int i = first; i < first + count; i++) {
        const tni_item *item = &r->c->items[i];
        if (item->kind == TNI_ITEM_EXPR || item->kind == TNI_ITEM_RESIZE) share_node(r, item->node);
        if (item->kind == TNI_ITEM_PACK) r->each_pack[item->ref] = false;
        if (item->kind > TNI_ITEM_SPREAD && item->kind != TNI_ITEM_CONCAT && !item->a.is_attr) {
            r->each_pack[item->a.ref] = false;
        }
        for (int k = 0; k < item->n_more; k++) {
            if (!item->more[k].is_attr) r->each_pack[item->more[k].ref] = false;
        }
    }
}

/* A name is each element's own unless something outside the lists uses it. */
static void find_each(tni_binder *r) {
    const tni_contract *c = r->c;
    memset(r->each_dim, true, (size_t)c->n_dims);
    memset(r->each_pack, true, (size_t)c->n_packs);
    for (int i = 0; i < c->n_inputs + c->n_outputs; i++) {
        const tni_param *param = i < c->n_inputs ? &c->inputs[i] : &c->outputs[i - c->n_inputs];
        if (param->list) continue;
        share_items(r, param->shape.first, param->shape.count);
        share_items(r, param->shape.else_first, param->shape.else_count);
    }
    for (int i = 0; i < c->n_conditions; i++) share_node(r, c->conditions[i].node);
}

static void forget_each(tni_binder *r) {
    for (int i = 0; i < r->c->n_dims; i++) r->b->dim_set[i] &= !r->each_dim[i];
    for (int i = 0; i < r->c->n_packs; i++) r->b->pack_set[i] &= !r->each_pack[i];
}

static bool uses_each(const tni_binder *r, int32_t input) {
    for (int k = 0; k < r->count[input]; k++) {
        const tni_item *item = item_of(r, input, k);
        if (item->kind == TNI_ITEM_PACK && r->each_pack[item->ref]) return true;
        if (item->kind == TNI_ITEM_EXPR && r->c->nodes[item->node].kind == TNI_DIM &&
            r->each_dim[r->c->nodes[item->node].ref]) {
            return true;
        }
    }
    return false;
}

/* Lists whose elements bind names together have the same length. */
static tn_status check_lengths(const tni_binder *r, int32_t *longest) {
    int32_t first = -1;
    *longest = 0;
    for (int i = 0; i < r->c->n_inputs; i++) {
        int32_t count = r->in->counts[i];
        if (!r->c->inputs[i].list || count == 0) continue;
        if (count > *longest) *longest = count;
        if (!uses_each(r, i)) continue;
        if (first >= 0 && r->in->counts[first] != count) {
            return tn_fail(TN_BAD_SHAPE, "%s: %s has %d tensors, but %s has %d", r->c->name, r->c->inputs[i].name,
                           count, r->c->inputs[first].name, r->in->counts[first]);
        }
        if (first < 0) first = i;
    }
    return TN_OK;
}

/* ---- passes over the inputs -------------------------------------------------------------------------------------- */

/* Element k of every list, or (k < 0) every input that is no list, beside its contract. Returns how many. */
static tn_status lay_out_all(const tni_binder *r, int32_t k, layout *all, int32_t *count) {
    *count = 0;
    for (int i = 0; i < r->c->n_inputs; i++) {
        if (r->c->inputs[i].list ? k < 0 || k >= r->in->counts[i] : k >= 0 || r->in->counts[i] == 0) continue;
        TN_TRY(lay_out(r, i, r->start[i] + (k < 0 ? 0 : k), &all[(*count)++]));
    }
    return TN_OK;
}

static tn_status bind_all(tni_binder *r, const layout *all, int32_t count) {
    bool solves = false;
    for (int i = 0; i < count; i++) {
        TN_TRY(bind_plain(r, &all[i]));
        solves |= all[i].solves;
    }
    while (solves) {
        solves = false;
        for (int i = 0; i < count; i++) TN_TRY(solve_operand(r, &all[i], &solves));
    }
    for (bool progress = true; progress;) {
        progress = false;
        for (int i = 0; i < count; i++) give_up(r, &all[i], &progress);
    }
    for (int i = 0; i < count; i++) grow_operand(r, &all[i]);
    return TN_OK;
}

static tn_status check_all(const tni_binder *r, const layout *all, int32_t count) {
    for (int i = 0; i < count; i++) TN_TRY(check_operand(r, &all[i]));
    return TN_OK;
}

/* Element k of the lists: bound, and compared where `check`. */
static tn_status bind_elements(tni_binder *r, int32_t k, bool check) {
    layout all[TNI_MAX_ARGS];
    int32_t count;
    forget_each(r);
    TN_TRY(lay_out_all(r, k, all, &count));
    TN_TRY(bind_all(r, all, count));
    return check ? check_all(r, all, count) : TN_OK;
}

/* The rank that an axis counts in, and whose it is. */
static int32_t axis_rank(const tni_binder *r, const tni_attr *attr, const char **whose) {
    const tni_contract *c = r->c;
    if (!attr->rank_is_seq || !attr->rank_seq.is_attr) *whose = c->inputs[0].name;
    if (!attr->rank_is_seq) return r->in->counts[0] ? r->in->operands[0].ndim : -1;
    int32_t ref = attr->rank_seq.ref;
    if (attr->rank_seq.is_attr) {
        *whose = c->attrs[ref].name;
        return r->b->attrs[ref].count;
    }
    for (int i = 0; i < c->n_inputs; i++) { /* x is a better name than s for the dimensions of x: T[*s] */
        const tni_item *item = item_of(r, i, 0);
        bool same = r->in->counts[i] && r->count[i] == 1 && item->kind == TNI_ITEM_PACK && item->ref == ref;
        *whose = same ? c->inputs[i].name : c->packs[ref];
        if (same) break;
    }
    return r->b->pack_set[ref] ? r->b->packs[ref].ndim : -1;
}

static tn_status bind_axes(tni_binder *r) {
    for (int i = 0; i < r->c->n_attrs; i++) {
        const tni_attr *attr = &r->c->attrs[i];
        if (attr->kind != TNI_A_AXIS && attr->kind != TNI_A_AXES) continue;
        const char *whose = "";
        int32_t rank = axis_rank(r, attr, &whose);
        TN_TRY(tni_bind_axes(r->c, i, rank, whose, r->b));
    }
    return TN_OK;
}

/* The dims of permute(*s, dims) are made non-negative like axes. */
static void bind_orders(tni_binder *r) {
    for (int i = 0; i < r->c->n_items; i++) {
        const tni_item *item = &r->c->items[i];
        if (item->kind != TNI_ITEM_PERMUTE) continue;
        int32_t count = r->b->attrs[item->attr].count;
        for (int k = 0; k < count; k++) {
            int64_t *dim = &r->b->ints[item->attr][k];
            if (*dim < 0 && *dim >= -count) *dim += count;
        }
    }
}

/* resize(*s, axis, n) tells n where nothing else does: axes are known by now. */
static void bind_resized(tni_binder *r, const layout *all, int32_t count) {
    for (int i = 0; i < count; i++) {
        const layout *l = &all[i];
        if (l->sequence < 0) continue;
        const tni_item *item = item_of(r, l->input, l->sequence);
        if (item->kind != TNI_ITEM_RESIZE || r->c->nodes[item->node].kind != TNI_DIM) continue;
        const int32_t dim = r->c->nodes[item->node].ref;
        const int64_t axis = r->b->attrs[item->attr].i;
        if (r->b->dim_set[dim] && r->b->dims[dim] >= 0) continue;
        const bool known = l->operand->ndim >= 0 && axis >= 0 && axis < l->length;
        if (known || !r->b->dim_set[dim]) {
            tni_set_dim(r, l->number, dim, known ? l->operand->shape[l->sequence + axis] : -1);
        }
    }
}

tn_status tni_bind_shapes(tni_binder *r) {
    const tni_contract *c = r->c;
    for (int i = 0; i < c->n_dims; i++) r->b->dim_set[i] = r->soft_dim[i] = r->each_dim[i] = false;
    for (int i = 0; i < c->n_packs; i++) r->b->pack_set[i] = r->soft_pack[i] = r->each_pack[i] = false;
    for (int i = 0; i < c->n_dims; i++) r->dim_from[i] = -1;
    for (int i = 0; i < c->n_packs; i++) r->pack_from[i] = -1;
    for (int i = 0; i < c->n_inputs; i++) {
        TN_TRY(tni_choose(c, r->b, &c->inputs[i].shape, &r->first[i], &r->count[i]));
    }
    layout all[TNI_MAX_ARGS];
    int32_t count, longest = 0;
    if (c->has_lists) {
        find_each(r);
        TN_TRY(check_lengths(r, &longest));
    }
    TN_TRY(lay_out_all(r, -1, all, &count));
    TN_TRY(bind_all(r, all, count));
    if (longest) TN_TRY(bind_elements(r, 0, false));
    TN_TRY(bind_axes(r));
    bind_orders(r);
    bind_resized(r, all, count);
    TN_TRY(check_all(r, all, count));
    for (int k = 0; k < longest; k++) TN_TRY(bind_elements(r, k, true));
    return longest > 1 ? bind_elements(r, 0, false) : TN_OK; /* the names are left as the first element has them */
}
