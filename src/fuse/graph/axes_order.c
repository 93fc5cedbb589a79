/* One order for the dimensions of all arguments, by name: rows go along the last of them. */
#include <string.h>

#include "axes.h"

/* The dimensions of all arguments, which become one order that each argument's own agrees with. */
typedef struct ordering {
    const tni_fuse *f;
    int32_t n, largest; /* dimensions; those of the argument that has most come first */
    struct {
        const char *key;
        const tni_param *param; /* the first that has it, */
        int32_t entry;          /* and where */
        uint32_t before;        /* dimensions that stand before it in some argument */
        bool made;              /* some output has it */
    } dims[TN_MAX_RANK];
} ordering;

static tn_status add_dim(ordering *o, const tni_axes *axes, const tni_param *param, int k, int32_t *at) {
    const char *key;
    *at = -1;
    if (tni_is_reduced(&o->f->contract->items[param->shape.first + k])) return TN_OK;
    TN_TRY(tni_entry_key(o->f, axes, param, k, &key));
    if (tni_is_one(key) || tni_is_part_of(o->f, key)) return TN_OK;
    for (*at = 0; *at < o->n && strcmp(o->dims[*at].key, key) != 0;) ++*at;
    if (*at < o->n) return TN_OK;
    if (o->n == TN_MAX_RANK) {
        return tn_fail(TN_BAD_CONTRACT, "formula of '%s': more than %d dimensions", o->f->contract->name, TN_MAX_RANK);
    }
    o->dims[o->n].key = key;
    o->dims[o->n].param = param;
    o->dims[o->n++].entry = k;
    return TN_OK;
}

/* Everything that stands before `dim`, by way of others too. */
static uint32_t all_before(const ordering *o, int32_t dim) {
    uint32_t all = o->dims[dim].before;
    for (uint32_t last = 0; last != all;) {
        last = all;
        for (int32_t i = 0; i < o->n; i++) all |= last >> i & 1 ? o->dims[i].before : 0;
    }
    return all;
}

/* One of the arguments so far that has b somewhere before a; NULL: they are so by way of others. */
static const char *says_before(const ordering *o, const char *b, const char *a) {
    const tni_contract *c = o->f->contract;
    for (int i = 0; i < c->n_inputs + c->n_outputs; i++) {
        const tni_param *param = i < c->n_inputs ? &c->inputs[i] : &c->outputs[i - c->n_inputs];
        const char *key;
        bool seen = false;
        if ((i < c->n_inputs && tni_is_seed(c, i)) || param->shape.cond >= 0) continue;
        for (int k = 0; k < param->shape.count; k++) {
            if (tni_is_reduced(&c->items[param->shape.first + k])) continue;
            if (tni_entry_key(o->f, &o->f->axes, param, k, &key) != TN_OK) break;
            if (seen && strcmp(key, a) == 0) return param->name;
            seen |= strcmp(key, b) == 0;
        }
    }
    return NULL;
}

static tn_status no_order(const ordering *o, const tni_param *param, int32_t a, int32_t b) {
    const char *first = o->dims[a].key, *second = o->dims[b].key, *other = says_before(o, second, first);
    return tn_fail(TN_BAD_CONTRACT,
                   "formula of '%s': %s has %s before %s, and %s%s it behind: no order of the dimensions fits both",
                   o->f->contract->name, param->name, first, second, other ? other : "the order of other arguments",
                   other ? " has" : " puts");
}

/* An argument whose dimensions are all the largest one's may have them in an order of its own: it is a transpose. */
static tn_status add_order(ordering *o, const tni_axes *axes, const tni_param *param, bool made) {
    int32_t dims[TN_MAX_RANK], n = 0, known = o->n;
    for (int k = 0; k < param->shape.count; k++) {
        int32_t at;
        TN_TRY(add_dim(o, axes, param, k, &at));
        if (at >= 0 && n < TN_MAX_RANK) dims[n++] = at;
    }
    bool within = known > 0 && o->n == known;
    for (int32_t i = 0; i < n; i++) {
        o->dims[dims[i]].made |= made;
        within &= dims[i] < o->largest;
    }
    for (int32_t i = 0; i + 1 < n && !within; i++) {
        if (all_before(o, dims[i]) >> dims[i + 1] & 1) return no_order(o, param, dims[i], dims[i + 1]);
        o->dims[dims[i + 1]].before |= 1u << dims[i];
    }
    return TN_OK;
}

/* Of dimensions that may come next: one that no output has, then one that the largest argument has not, so that rows go
 * along what is written. */
static int32_t next_dim(const ordering *o, uint32_t placed) {
    int32_t best = -1, least = 4;
    for (int32_t i = 0; i < o->n; i++) {
        if (placed >> i & 1 || o->dims[i].before & ~placed) continue;
        const int32_t rank = 2 * o->dims[i].made + (i < o->largest);
        if (rank >= least) continue;
        least = rank;
        best = i;
    }
    return best;
}

/* Is there a dimension of which nobody says whether it stands before or behind this one? */
static bool is_loose(const ordering *o, int32_t dim) {
    const uint32_t before = all_before(o, dim);
    for (int32_t i = 0; i < o->n; i++) {
        if (i != dim && !(before >> i & 1) && !(all_before(o, i) >> dim & 1)) return true;
    }
    return false;
}

tn_status tni_order_dims(tni_fuse *f, tni_axes *axes, const tni_param *largest) {
    const tni_contract *c = f->contract;
    ordering o = {.f = f};
    if (largest) TN_TRY(add_order(&o, axes, largest, largest >= c->outputs && largest < c->outputs + c->n_outputs));
    o.largest = o.n;
    for (int i = 0; i < c->n_inputs + c->n_outputs; i++) {
        const tni_param *param = i < c->n_inputs ? &c->inputs[i] : &c->outputs[i - c->n_inputs];
        if ((i < c->n_inputs && tni_is_seed(c, i)) || param->shape.cond >= 0) continue;
        TN_TRY(add_order(&o, axes, param, i >= c->n_inputs));
    }
    uint32_t placed = 0;
    for (int32_t n = 0; n < o.n; n++) {
        const int32_t next = next_dim(&o, placed), first = axes->n_items;
        placed |= 1u << next;
        TN_TRY(tni_add_item(f, axes, o.dims[next].param, o.dims[next].entry));
        for (int32_t k = first; k < axes->n_items; k++) axes->items[k].loose = is_loose(&o, next);
    }
    return TN_OK;
}
