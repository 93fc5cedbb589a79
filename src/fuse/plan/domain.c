/* The domain of a call: the shape that everything broadcasts to, and where each argument lies in it. */
#include <string.h>

#include "core/contract/parts.h"
#include "program.h"

/* One argument's dimensions, after those are divided that an attribute divides: at[k] is the domain's dimension of
 * dimension k, -1 for a size of 1 that is none. */
typedef struct placed {
    const tn_view *view;
    const char *name;
    int32_t ndim;
    int64_t shape[TN_MAX_RANK], strides[TN_MAX_RANK];
    int32_t at[TN_MAX_RANK];
} placed;

typedef struct placer {
    const tni_fuse *f;
    const tn_call *call;
    tni_domain *domain;
    int32_t rank[TN_MAX_RANK], first[TN_MAX_RANK]; /* of items: how many dimensions, and which */
    int32_t ranks[TNI_MAX_ARGS];                   /* of inputs; -1: absent */
    int32_t behind[TNI_MAX_ARGS];                  /* of groups: where their dimensions end */
} placer;

/* The parameter with the shape that the attributes choose. */
static tn_status chosen(const placer *p, const tni_param *param, tni_param *made) {
    *made = *param;
    if (param->shape.cond < 0) return TN_OK;
    tni_bound *bound = tni_calloc(1, sizeof *bound);
    if (!bound) return TN_NO_MEMORY;
    const tni_contract *c = p->f->contract;
    memcpy(bound->attrs, p->call->attrs, (size_t)c->n_attrs * sizeof *bound->attrs);
    tn_status status = tni_choose(c, bound, &param->shape, &made->shape.first, &made->shape.count);
    made->shape.cond = -1;
    tni_free(bound);
    return status;
}

static const tn_view *output_view(const placer *p, int32_t i) {
    int32_t updated = p->f->outputs[i].inplace;
    return updated >= 0 ? tn_in(p->call, updated) : tn_out(p->call, i);
}

static const tni_param *output_param(const placer *p, int32_t i) {
    int32_t updated = p->f->outputs[i].inplace;
    return updated >= 0 ? &p->f->contract->inputs[updated] : &p->f->contract->outputs[i];
}

/* ---- dimensions by name ------------------------------------------------------------------------------------------ */

/* How many dimensions a pack has, from an argument that has all of it. */
static tn_status measure(placer *p, const tni_param *param, const tn_view *view) {
    tni_entry entries[TN_MAX_RANK];
    int32_t count;
    tni_param shaped;
    if (!view) return TN_OK;
    TN_TRY(chosen(p, param, &shaped));
    TN_TRY(tni_param_entries(p->f, &shaped, entries, &count));
    for (int k = 0; k < count; k++) {
        const int32_t item = entries[k].item;
        if (item < 0 || !p->f->axes.items[item].pack || p->f->axes.items[item].part == TNI_PART_OTHERS) continue;
        p->rank[item] = view->ndim - (count - 1);
    }
    return TN_OK;
}

/* Bits of the dimensions of *s that an attribute lists. */
static uint32_t listed(const placer *p, int32_t attr) {
    const tn_value *axes = &p->call->attrs[attr];
    uint32_t made = 0;
    if (p->f->contract->attrs[attr].kind == TNI_A_AXIS) return 1u << axes->i;
    for (int k = 0; k < axes->count; k++) made |= 1u << axes->ints[k];
    return made;
}

/* Of a pack that is divided, the dimensions of both parts lie as those of the pack do. */
static void set_item_dims(placer *p, int32_t k) {
    const tni_part part = p->f->axes.items[k].part;
    const int32_t of = part == TNI_PART_OTHERS ? k - 1 : k;
    uint32_t dims = 0;
    for (int d = 0; d < p->rank[of] && p->first[of] + d < TN_MAX_RANK; d++) dims |= 1u << (p->first[of] + d);
    uint32_t some = part == TNI_PART_LISTED || part == TNI_PART_OTHERS ? listed(p, p->f->axes.items[k].attr) : 0;
    some <<= p->first[of];
    p->domain->items[k] = part == TNI_PART_LISTED ? dims & some : dims & ~some;
}

static tn_status measure_all(placer *p) {
    const tni_axes *axes = &p->f->axes;
    const tni_contract *c = p->f->contract;
    for (int k = 0; k < axes->n_items; k++) p->rank[k] = axes->items[k].pack ? 0 : 1;
    for (int i = 0; i < c->n_inputs; i++) {
        if (!tni_is_seed(c, i)) TN_TRY(measure(p, &c->inputs[i], tn_in(p->call, i)));
    }
    for (int i = 0; i < p->f->n_outputs; i++) TN_TRY(measure(p, output_param(p, i), output_view(p, i)));
    int32_t n = 0;
    for (int k = 0; k < axes->n_items; k++) {
        p->first[k] = n;
        n += p->rank[k];
    }
    p->domain->n_dims = n;
    if (n > TN_MAX_RANK) return tn_fail(TN_BAD_SHAPE, "%s: more than %d dimensions", c->name, TN_MAX_RANK);
    for (int k = 0; k < axes->n_items; k++) set_item_dims(p, k);
    return TN_OK;
}

static void add_dim(placed *a, int64_t size, int64_t stride, int32_t at) {
    a->shape[a->ndim] = size;
    a->strides[a->ndim] = stride;
    a->at[a->ndim++] = at;
}

/* Dimension c of a tensor as `groups` of `c / groups`. Where its size is unknown both have its stride. */
static tn_status divide(const placer *p, placed *a, int32_t item, int k) {
    const int32_t attr = p->f->axes.items[item].attr;
    const int64_t size = a->view->shape[k], stride = a->view->strides[k], groups = p->call->attrs[attr].i;
    const bool known = size >= 0;
    if (groups < 1 || (known && size % groups != 0)) {
        return tn_fail(TN_BAD_SHAPE, "%s: %s has %lld elements in dimension %d, which %s, %lld, does not divide",
                       p->f->contract->name, a->name, (long long)size, k, p->f->contract->attrs[attr].name,
                       (long long)groups);
    }
    add_dim(a, groups, known ? stride * (size / groups) : stride, p->first[item]);
    add_dim(a, known ? size / groups : size, stride, p->first[item + 1]);
    return TN_OK;
}

/* Entry `e` of the shape, from dimension *k of the tensor on. */
static tn_status place_entry(const placer *p, const tni_entry *e, placed *a, int *k) {
    const tn_view *v = a->view;
    const tni_part part = e->item < 0 ? TNI_WHOLE : p->f->axes.items[e->item].part;
    if (part == TNI_PART_GROUPS && e->both && *k < v->ndim) return divide(p, a, e->item, (*k)++);
    const bool others = part == TNI_PART_OTHERS;
    const int32_t from = others ? e->item - 1 : e->item, rank = from < 0 ? 1 : p->rank[from];
    const bool keeps = others && e->keep >= 0 && p->call->attrs[e->keep].b;
    const uint32_t gone = others ? listed(p, p->f->axes.items[e->item].attr) : 0;
    for (int d = 0; d < rank && *k < v->ndim; d++) {
        if (gone >> d & 1 && !keeps) continue;
        add_dim(a, v->shape[*k], v->strides[*k], from < 0 || gone >> d & 1 ? -1 : p->first[from] + d);
        ++*k;
    }
    return TN_OK;
}

static tn_status place_by_name(const placer *p, const tni_param *param, placed *a) {
    tni_entry entries[TN_MAX_RANK];
    int32_t count;
    int n = 0;
    tni_param shaped;
    TN_TRY(chosen(p, param, &shaped));
    TN_TRY(tni_param_entries(p->f, &shaped, entries, &count));
    for (int k = 0; k < count; k++) TN_TRY(place_entry(p, &entries[k], a, &n));
    if (n == a->view->ndim) return TN_OK;
    return tn_fail(TN_BAD_SHAPE, "%s: %s has rank %d, needs %d", p->f->contract->name, a->name, a->view->ndim, n);
}

/* ---- by position ------------------------------------------------------------------------------------------------- */

/* The dimensions of each group behind those of the one before. */
static tn_status rank_groups(placer *p) {
    const tni_contract *c = p->f->contract;
    int32_t most[TNI_MAX_ARGS] = {0}, n = 0;
    for (int i = 0; i < c->n_inputs; i++) p->ranks[i] = tn_in(p->call, i) ? tn_in(p->call, i)->ndim : -1;
    for (int i = 0; i < c->n_inputs + p->f->n_outputs; i++) {
        bool in = i < c->n_inputs;
        int k = in ? i : i - c->n_inputs;
        const tn_view *view = in ? tn_in(p->call, k) : output_view(p, k);
        if (!view || (in && tni_is_seed(c, k))) continue;
        int32_t rank = view->ndim + tni_is_row(p->f, in ? &c->inputs[k] : output_param(p, k), p->ranks);
        int32_t *of = &most[in ? p->f->in_group[k] : p->f->out_group[k]];
        *of = rank > *of ? rank : *of;
    }
    for (int g = 0; g < p->f->n_groups || g == 0; g++) p->behind[g] = n += most[g];
    p->domain->n_dims = n;
    if (n <= TN_MAX_RANK) return TN_OK;
    return tn_fail(TN_BAD_SHAPE, "%s: more than %d dimensions", c->name, TN_MAX_RANK);
}

static tn_status place(const placer *p, const tni_param *param, int32_t group, placed *a) {
    if (!p->f->axes.numpy) return place_by_name(p, param, a);
    int32_t first = p->behind[group] - a->view->ndim - tni_is_row(p->f, param, p->ranks);
    for (int k = 0; k < a->view->ndim; k++) add_dim(a, a->view->shape[k], a->view->strides[k], first + k);
    return TN_OK;
}

/* ---- sizes ------------------------------------------------------------------------------------------------------- */

static tn_status add_sizes(placer *p, const placed *a) {
    for (int k = 0; k < a->ndim; k++) {
        int64_t size = a->shape[k];
        if (a->at[k] < 0 || size == 1) continue;
        int64_t *have = &p->domain->size[a->at[k]];
        if (*have == 1 || *have < 0) *have = size;
        if (*have == size || size < 0) continue;
        return tn_fail(TN_BAD_SHAPE, "%s: %s has %lld elements in dimension %d, which must go with %lld",
                       p->f->contract->name, a->name, (long long)size, k - a->ndim, (long long)*have);
    }
    return TN_OK;
}

/* Strides of 0 make a single value of a tensor; one without elements has none, and perhaps no memory. */
static void set_strides(const placed *a, uint32_t *mask, int64_t *strides) {
    bool empty = tn_count(a->view) == 0;
    for (int k = 0; k < a->ndim; k++) {
        if (a->at[k] < 0 || a->shape[k] == 1) continue;
        *mask |= 1u << a->at[k];
        strides[a->at[k]] = empty ? 1 : a->strides[k];
    }
}

/* ---- lists ------------------------------------------------------------------------------------------------------- */

const tn_slot *tni_list_of(const tni_fuse *f, const tn_call *call) {
    int32_t i = 0;
    while (!f->contract->inputs[i].list || !call->in[i].count) i++; /* a contract with lists takes one */
    return &call->in[i];
}

/* All tensors of a list one behind the other, each dense. */
static tn_status list_domain(const tni_fuse *f, const tn_call *call, tni_domain *domain) {
    const tni_contract *c = f->contract;
    const tn_slot *list = tni_list_of(f, call);
    domain->n_dims = 1;
    domain->tail = 1;
    for (int32_t k = 0; k < list->count; k++) domain->size[0] += tn_count(&list->views[k]);
    for (int i = 0; i < c->n_inputs; i++) {
        const tn_view *view = tn_in(call, i);
        if (!view) continue;
        domain->in[i].present = true;
        domain->in[i].type = view->type;
        domain->in[i].index = i;
        domain->in[i].mask = (uint32_t)(domain->in[i].strides[0] = c->inputs[i].list);
    }
    for (int i = 0; i < f->n_outputs; i++) {
        int32_t updated = f->outputs[i].inplace;
        const tn_view *view = updated >= 0 ? tn_in(call, updated) : tn_out(call, i);
        if (!view) continue;
        bool listed = updated >= 0 ? c->inputs[updated].list : c->outputs[i].list;
        domain->out[i].present = true;
        domain->out[i].type = view->type;
        domain->out[i].index = i;
        domain->out[i].mask = (uint32_t)(domain->out[i].strides[0] = listed);
    }
    return TN_OK;
}

tn_status tni_make_domain(const tni_fuse *f, const tn_call *call, tni_domain *domain) {
    const tni_contract *c = f->contract;
    placer p = {.f = f, .call = call, .domain = domain};
    memset(domain, 0, sizeof *domain);
    if (f->axes.list) return list_domain(f, call, domain);
    TN_TRY(f->axes.numpy ? rank_groups(&p) : measure_all(&p));
    for (int d = 0; d < TN_MAX_RANK; d++) domain->size[d] = 1;
    for (int i = 0; i < c->n_inputs + f->n_outputs; i++) {
        bool in = i < c->n_inputs;
        int k = in ? i : i - c->n_inputs;
        const tni_param *param = in ? &c->inputs[k] : output_param(&p, k);
        placed a = {.view = in ? tn_in(call, k) : output_view(&p, k), .name = param->name};
        if (!a.view) continue;
        if (in) {
            domain->in[k].present = true;
            domain->in[k].type = a.view->type;
            if (tni_is_seed(c, k)) continue;
        } else {
            domain->out[k].present = true;
            domain->out[k].type = a.view->type;
        }
        TN_TRY(place(&p, param, in ? f->in_group[k] : f->out_group[k], &a));
        TN_TRY(add_sizes(&p, &a));
        set_strides(&a, in ? &domain->in[k].mask : &domain->out[k].mask,
                    in ? domain->in[k].strides : domain->out[k].strides);
    }
    for (int i = 0; i < c->n_inputs; i++) domain->in[i].index = i;
    for (int i = 0; i < f->n_outputs; i++) domain->out[i].index = i;
    if (f->windows) TN_TRY(tni_place_windows(f, call, p.first, domain));
    int32_t last = f->windows ? p.first[f->axes.n_own - 1] + p.rank[f->axes.n_own - 1] - 1 : domain->n_dims - 1;
    domain->tail = last >= 0 && domain->size[last] != 1 ? 1u << last : 0;
    return TN_OK;
}

/* ---- merging ----------------------------------------------------------------------------------------------------- */

typedef struct merging {
    bool by_items; /* something is reduced or counted along items, or summed to the shape of an argument, */
    bool rows;     /* or along the last dimension, which stays what it is then */
} merging;

static merging merging_of(const tni_fuse *f) {
    merging made = {false, false};
    for (int32_t i = 0; i < f->graph.n; i++) {
        const tni_gnode *node = &f->graph.nodes[i];
        made.by_items |= node->op == TNI_P_SUM_TO;
        if (!tni_reaches(node->op) && node->op != TNI_P_INDEX) continue;
        made.by_items |= tni_is_over_items(node->kind);
        made.rows |= node->kind == TNI_OVER_ROW;
    }
    return made;
}

/* Do all arguments have both dimensions d and d + 1, one behind the other in memory, or neither? */
static bool lie_together(const tni_domain *domain, int32_t d) {
    for (int i = 0; i < 2 * TNI_MAX_VIEWS; i++) {
        const bool in = i < TNI_MAX_VIEWS;
        const int k = in ? i : i - TNI_MAX_VIEWS;
        if (!(in ? domain->in[k].present : domain->out[k].present)) continue;
        const uint32_t has = (in ? domain->in[k].mask : domain->out[k].mask) >> d & 3;
        const int64_t *strides = in ? domain->in[k].strides : domain->out[k].strides;
        if (has == 0) continue;
        if (has != 3 || strides[d] != strides[d + 1] * domain->size[d + 1]) return false;
    }
    for (int k = 0; k < TN_MAX_RANK; k++) { /* what one reduction takes and another one leaves are two */
        const uint32_t has = domain->items[k] >> d & 3;
        if (has == 1 || has == 2) return false;
    }
    return true;
}

/* Without bit d, those above move down. */
static uint32_t without_bit(uint32_t mask, int32_t d) {
    const uint32_t below = (1u << d) - 1;
    return (mask & below) | (mask >> 1 & ~below);
}

static void remove_stride(int64_t *strides, int32_t d) {
    memmove(&strides[d], &strides[d + 1], (size_t)(TN_MAX_RANK - 1 - d) * sizeof *strides);
    strides[TN_MAX_RANK - 1] = 0;
}

void tni_merge_dim(tni_domain *domain, int32_t d) {
    domain->size[d + 1] *= domain->size[d];
    memmove(&domain->size[d], &domain->size[d + 1], (size_t)(TN_MAX_RANK - 1 - d) * sizeof *domain->size);
    domain->size[TN_MAX_RANK - 1] = 1;
    for (int k = 0; k < TN_MAX_RANK; k++) domain->items[k] = without_bit(domain->items[k], d);
    for (int k = 0; k < TNI_MAX_VIEWS; k++) {
        domain->in[k].mask = without_bit(domain->in[k].mask, d);
        remove_stride(domain->in[k].strides, d);
        domain->out[k].mask = without_bit(domain->out[k].mask, d);
        remove_stride(domain->out[k].strides, d);
    }
    domain->n_dims--;
}

void tni_merge_domain(const tni_fuse *f, tni_domain *domain) {
    const merging how = merging_of(f);
    if (f->axes.numpy || f->axes.list || f->windows || !how.by_items) return;
    for (int32_t d = domain->n_dims - 2 - how.rows; d >= 0; d--) {
        /* A size of 1 is in no mask: it would make a difference to the bits whether there is one row or several. */
        const bool sized = domain->size[d] != 1 && domain->size[d + 1] != 1;
        if (sized && lie_together(domain, d)) tni_merge_dim(domain, d);
    }
    const int32_t last = domain->n_dims - 1;
    domain->tail = last >= 0 && domain->size[last] != 1 ? 1u << last : 0;
}

tn_status tni_specialize_in(const tni_fuse *f, const tni_domain *domain, const tn_value *attrs, tni_specialized *made) {
    tni_call_form form = {.attrs = attrs};
    for (int i = 0; i < f->contract->n_inputs; i++) form.types[i] = domain->in[i].type;
    for (int i = 0; i < f->n_outputs; i++) {
        form.wanted[i] = domain->out[i].present;
        form.made[i] = domain->out[i].type;
    }
    return tni_specialize(f, &form, made);
}

uint32_t tni_reduced_mask(const tni_domain *d, uint32_t kind, uint32_t mask) {
    if (!tni_is_over_items(kind)) return kind == TNI_OVER_ALL ? mask : mask & d->tail;
    uint32_t gone = 0, items = tni_items_over(kind);
    for (int k = 0; k < TN_MAX_RANK; k++) gone |= items >> k & 1 ? d->items[k] : 0;
    return mask & gone;
}

/* Those of its items, or all dimensions. */
static uint32_t index_mask(const tni_domain *d, const tni_gnode *node) {
    uint32_t made = 0, items = 0;
    for (int k = 0; k < TN_MAX_RANK; k++) items |= (uint32_t)node->ref >> k & 1 ? d->items[k] : 0;
    for (int k = 0; k < d->n_dims; k++) made |= d->size[k] != 1 ? 1u << k : 0;
    return node->ref < 0 ? made : made & items;
}

static uint32_t window_mask(const tni_domain *d, int32_t dim) {
    return dim >= 0 && d->size[dim] != 1 ? 1u << dim : 0;
}

uint32_t tni_node_mask(const tni_domain *d, const tni_gnode *node, const uint32_t *masks) {
    uint32_t made = 0, first = node->arg[0] >= 0 ? masks[node->arg[0]] : 0;
    switch (node->op) {
    case TNI_P_INPUT: return d->in[node->ref].mask;
    case TNI_P_RAND:
        for (int k = 0; k < d->n_dims; k++) made |= d->size[k] != 1 ? 1u << k : 0;
        return made;
    case TNI_P_INDEX: return index_mask(d, node);
    case TNI_P_COUNT: return 0;
    case TNI_P_TAKE:
        return (first & ~window_mask(d, d->windows[node->kind].from)) | window_mask(d, d->windows[node->kind].to);
    case TNI_P_FLIP: return first;
    case TNI_P_JOIN: return first | masks[node->arg[1]] | window_mask(d, d->windows[node->kind].to);
    case TNI_P_SUM_TO: return first & masks[node->arg[1]];
    default: break;
    }
    if (tni_is_reduction(node->op)) return first & ~tni_reduced_mask(d, node->kind, first);
    for (int k = 0; k < 3 && node->arg[k] >= 0; k++) made |= masks[node->arg[k]];
    return made;
}

int64_t tni_mask_count(const tni_domain *domain, uint32_t mask) {
    int64_t count = 1;
    for (int d = 0; d < domain->n_dims; d++) {
        if (mask >> d & 1) count *= domain->size[d];
    }
    return count;
}
