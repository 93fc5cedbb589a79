/* Random calls near a sample: its options stay, sizes, ranks, axes and broadcasts change. What comes out is a call that
 * the contract allows: a draw that the validator refuses is drawn again. */
#include "setting.h"

#include <string.h>

enum { TRIES = 200, MOST_RANK = 5 };

/* splitmix64 */
static uint64_t next(uint64_t *seed) {
    uint64_t z = *seed += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static int64_t below(uint64_t *seed, int64_t n) {
    return n > 0 ? (int64_t)(next(seed) % (uint64_t)n) : 0;
}

/* A size where kernels break: nothing, one, odd, a power of two and its neighbours; now and then anything. */
static int64_t draw_size(uint64_t *seed, int64_t limit) {
    int64_t n, kind = below(seed, 24);
    if (kind == 0) return 0;
    if (kind <= 4) {
        n = 1 + below(seed, 3);
    } else if (kind <= 9) {
        n = 5 + 2 * below(seed, 16);
    } else if (kind <= 19) {
        int bits = 1;
        while (bits < 20 && (int64_t)1 << bits < limit) bits++;
        n = ((int64_t)1 << (1 + below(seed, bits))) - 1 + below(seed, 3);
    } else {
        n = 1 + below(seed, 100);
    }
    return n < limit ? n : limit > 1 ? limit : 1;
}

static int32_t draw_rank(uint64_t *seed, int32_t near) {
    int64_t kind = below(seed, 4);
    int64_t rank = kind < 2 ? near : kind == 2 ? near - 1 + below(seed, 3) : below(seed, MOST_RANK);
    return (int32_t)(rank < 0 ? 0 : rank > MOST_RANK ? MOST_RANK : rank);
}

/* ---- sizes ------------------------------------------------------------------------------------------------------- */

/* Their product stays within a budget, so they are filled in any order: no dimension is always the one that gets the
 * rest. */
static void fill_slots(tni_setting *s, uint64_t *seed, int64_t budget) {
    int64_t *slots[TNI_MAX_SLOTS];
    for (int32_t n = tni_setting_slots(s, slots); n > 0; n--) {
        int64_t k = below(seed, n), *d = slots[k];
        slots[k] = slots[n - 1];
        *d = draw_size(seed, budget);
        if (*d > 1) budget /= *d;
    }
}

static bool set_ints(tni_setting *s, int32_t attr, const int64_t *values, int32_t count) {
    int64_t *ints = tni_arena_alloc(s->arena, ((size_t)count + 1) * sizeof *ints);
    if (!ints) return false;
    if (count) memcpy(ints, values, (size_t)count * sizeof *ints);
    s->attrs[attr] = (tn_value){.kind = TN_ATTR_INTS, .count = count, .ints = ints};
    return true;
}

static tn_status draw_sizes(tni_setting *s, uint64_t *seed, int64_t most) {
    const tni_contract *c = s->contract;
    for (int32_t i = 0; i < c->n_packs; i++) {
        if (!s->pack_set[i]) continue;
        if (s->elements[i] && s->n_elements) s->packs[i] = s->elements[i][0];
        s->packs[i].ndim = draw_rank(seed, s->packs[i].ndim);
    }
    for (int32_t i = 0; i < c->n_attrs; i++) {
        int64_t zeros[TN_MAX_RANK] = {0};
        if (s->attrs[i].kind != TN_ATTR_INTS || !tni_attr_is_shape(c, i)) continue;
        if (!set_ints(s, i, zeros, draw_rank(seed, s->attrs[i].count))) return TN_NO_MEMORY;
    }
    /* Small calls are as good at finding bugs and more of them fit into a second. */
    fill_slots(s, seed, below(seed, 3) ? most / 16 + 1 : most);
    return TN_OK;
}

/* ---- lists ------------------------------------------------------------------------------------------------------- */

/* The axis attribute along which the pack's elements may differ; -1: they differ everywhere. */
static int32_t concat_attr(const tni_contract *c, int32_t pack) {
    for (int32_t k = 0; k < c->n_items; k++) {
        const tni_item *item = &c->items[k];
        if (item->kind == TNI_ITEM_CONCAT && !item->a.is_attr && item->a.ref == pack) return item->attr;
    }
    return -1;
}

static tn_status draw_elements(tni_setting *s, uint64_t *seed) {
    const tni_contract *c = s->contract;
    int32_t n = 1 + (int32_t)below(seed, 3);
    for (int32_t p = 0; p < c->n_packs; p++) {
        if (!s->elements[p]) continue;
        tni_dims *made = tni_arena_alloc(s->arena, (size_t)n * sizeof *made);
        if (!made) return TN_NO_MEMORY;
        int32_t attr = concat_attr(c, p), rank = s->packs[p].ndim;
        int64_t axis = attr >= 0 ? tni_setting_attr(s, attr).i : 0;
        if (axis < 0) axis += rank;
        for (int32_t e = 0; e < n; e++) {
            made[e] = s->packs[p];
            for (int32_t d = 0; d < rank; d++) {
                if (attr < 0 || d == axis) made[e].d[d] = 1 + below(seed, made[e].d[d] + 1);
            }
        }
        s->elements[p] = made;
    }
    for (int32_t i = 0; i < c->n_inputs; i++) {
        if (c->inputs[i].list) s->inputs[i].count = -1;
    }
    s->n_elements = n;
    return TN_OK;
}

/* ---- axes and permutations --------------------------------------------------------------------------------------- */

static bool attr_rank(const tni_setting *s, int32_t attr, int32_t *rank) {
    const tni_attr *a = &s->contract->attrs[attr];
    if (a->rank_is_seq) {
        *rank = a->rank_seq.is_attr ? tni_setting_attr(s, a->rank_seq.ref).count : s->packs[a->rank_seq.ref].ndim;
        return true;
    }
    tni_dims shape;
    if (s->inputs[0].count > 0)
        shape = s->inputs[0].shapes[0];
    else if (tni_setting_shape(s, 0, 0, &shape) != TN_OK)
        return false;
    *rank = shape.ndim;
    return true;
}

/* A random order of 0 … n - 1. */
static void shuffle(uint64_t *seed, int64_t *order, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        int64_t k = below(seed, i + 1);
        order[i] = order[k];
        order[k] = i;
    }
}

static bool attr_permutes(const tni_contract *c, int32_t attr) {
    for (int32_t k = 0; k < c->n_items; k++) {
        if (c->items[k].kind == TNI_ITEM_PERMUTE && c->items[k].attr == attr) return true;
    }
    return false;
}

static tn_status draw_axes(tni_setting *s, uint64_t *seed) {
    for (int32_t i = 0; i < s->contract->n_attrs; i++) {
        tni_attr_kind kind = s->contract->attrs[i].kind;
        bool permutes = kind == TNI_A_INTS && attr_permutes(s->contract, i);
        int32_t rank;
        if ((kind != TNI_A_AXIS && kind != TNI_A_AXES && !permutes) || !attr_rank(s, i, &rank)) continue;
        int64_t order[TN_MAX_RANK] = {0};
        if (kind == TNI_A_AXIS) {
            int64_t axis = rank ? below(seed, 2 * rank) - rank : -1;
            s->attrs[i] = (tn_value){.kind = TN_ATTR_INT, .i = axis};
            continue;
        }
        shuffle(seed, order, rank);
        int32_t count = permutes ? rank : (int32_t)below(seed, rank + 1);
        for (int32_t k = 0; k < count && !permutes; k++) {
            if (below(seed, 2)) order[k] -= rank; /* counted from the end */
        }
        if (!set_ints(s, i, order, count)) return TN_NO_MEMORY;
    }
    return TN_OK;
}

/* ---- inputs ------------------------------------------------------------------------------------------------------ */

static tn_type draw_type(uint64_t *seed, uint32_t mask) {
    int32_t n = __builtin_popcount(mask), k = (int32_t)below(seed, n);
    for (int type = 1; type < TN_TYPE_COUNT; type++) {
        if (mask & TN_BIT(type) && k-- == 0) return (tn_type)type;
    }
    return TN_NO_TYPE;
}

/* An input that broadcasts gets 1s, or loses leading dimensions. */
static tn_status draw_broadcast(tni_setting *s, int32_t input, uint64_t *seed) {
    bool may_be_one[TN_MAX_RANK] = {false}, any = false;
    int32_t droppable;
    tni_setting_broadcast(s, input, may_be_one, &droppable);
    for (int32_t d = 0; d < TN_MAX_RANK; d++) any |= may_be_one[d];
    if (!any) return TN_OK;
    tni_dims full, *shape = tni_arena_alloc(s->arena, sizeof *shape);
    if (!shape) return TN_NO_MEMORY;
    s->inputs[input].count = -1;
    TN_TRY(tni_setting_shape(s, input, 0, &full));
    int32_t drop = below(seed, 2) ? (int32_t)below(seed, droppable + 1) : 0;
    shape->ndim = full.ndim - drop;
    for (int32_t d = drop; d < full.ndim; d++) {
        shape->d[d - drop] = may_be_one[d] && below(seed, 2) ? 1 : full.d[d];
    }
    s->inputs[input].shapes = shape;
    s->inputs[input].count = 1;
    return TN_OK;
}

static tn_status draw_inputs(tni_setting *s, uint64_t *seed) {
    for (int32_t i = 0; i < s->contract->n_inputs; i++) {
        const tni_param *p = &s->contract->inputs[i];
        if (!s->inputs[i].present || p->list) continue;
        if (p->type.kind == TNI_TYPE_FIXED) s->inputs[i].type = draw_type(seed, p->type.mask);
        TN_TRY(draw_broadcast(s, i, seed));
    }
    return TN_OK;
}

/* ---- the call ---------------------------------------------------------------------------------------------------- */

static bool fits(const tni_case *c, int64_t most) {
    for (int32_t i = 0; i < c->n_inputs; i++) {
        int64_t n = 1;
        for (int32_t d = 0; d < c->inputs[i].shape.ndim; d++) {
            if (__builtin_mul_overflow(n, c->inputs[i].shape.d[d], &n)) return false;
        }
        if (n > most) return false;
    }
    return true;
}

static tn_status draw(tni_setting *s, uint64_t *seed, int64_t most, tni_case **made) {
    TN_TRY(draw_sizes(s, seed, most));
    TN_TRY(draw_axes(s, seed));
    if (s->contract->has_lists) TN_TRY(draw_elements(s, seed));
    TN_TRY(draw_inputs(s, seed));
    return tni_setting_case(s, made);
}

tn_status tni_sample_random(const tni_contract *contract, const char *args, tn_type T, uint64_t *seed, int64_t most,
                            tni_case **made) {
    *made = NULL;
    for (int i = 0; i < TRIES; i++) {
        tni_arena *arena = tni_arena_new();
        if (!arena) return TN_NO_MEMORY;
        tni_setting *s = NULL;
        tn_status status = tni_setting_parse(contract, args, T, arena, &s);
        bool wrong_sample = status != TN_OK;
        if (status == TN_OK) status = draw(s, seed, most, made);
        if (status == TN_OK && fits(*made, most)) return TN_OK;
        tni_arena_free(arena);
        *made = NULL;
        if (wrong_sample || status == TN_NO_MEMORY) return status;
    }
    /* Conditions that chance does not meet: the sample itself does. */
    return tni_sample_case(contract, args, T, made);
}
