/* add on the CPU: rows in groups, and how much workspace it takes. */
#include "lookup_add.h"

#include <string.h>

enum {
    LONG_ROW = 16, /* elements from which on rows are put into groups */
    MOST_LANES = 16,
    BLOCK = 4096,   /* elements of the result */
    KEY_PIECES = 4, /* threads that share the k; each of them reads all of the index */
};

bool tni_lookup_is_grouped(const tni_lookup *l) {
    return tni_lookup_is_by_row(l) && l->inner >= LONG_ROW;
}

static tni_groups groups_of(const tni_lookup *l) {
    const bool same = l->by_outer == 0;
    return (tni_groups){.slabs = same ? l->outer : 1,
                        .keys = same ? l->v : l->outer * l->v,
                        .positions_of_slab = same ? l->n : l->outer * l->n};
}

tni_direct tni_direct_of(const tni_lookup *l) {
    const bool halves = l->to->type == TN_F16 || l->to->type == TN_BF16;
    const int64_t slab = l->v * l->inner, work = slab + l->n * l->inner;
    tni_direct d = {.by_key = l->outer == 1};
    d.block = d.by_key ? 1 : max(min(BLOCK / max(slab, 1), l->outer), 1);
    const int64_t blocks = max(ceil_div(l->outer, d.block), 1);
    d.lanes = halves ? min(blocks, MOST_LANES) : blocks;
    d.grain = d.by_key ? max(ceil_div(l->v, KEY_PIECES), 32768 / max(work / max(l->v, 1), 1))
                       : max(32768 / max(work * l->outer / d.lanes, 1), 1);
    d.bytes = halves ? (size_t)(d.lanes * d.block * slab) * sizeof(float) : 0;
    return d;
}

size_t tni_lookup_add_workspace(const tn_call *call) {
    const tni_lookup l = tni_lookup_of(call);
    if (!tni_lookup_is_grouped(&l)) return tni_direct_of(&l).bytes;
    const tni_groups g = groups_of(&l);
    return (size_t)(g.keys + 2 + g.positions_of_slab) * sizeof(int64_t);
}

/* What row p of a slab belongs to; -1: nothing. */
static tn_status key_of(const tn_call *call, const tni_lookup *l, int64_t o, int64_t j, int64_t *key) {
    const int64_t k = tni_index_at(l->index->data, tni_lookup_is_wide(l), o * l->by_outer + j * l->by_n);
    *key = -1;
    if (tni_lookup_skips(l, k)) return TN_OK;
    if (k < 0 || k >= l->v) return tni_lookup_bad(call, l, o, j, 0);
    *key = (l->by_outer ? o * l->v : 0) + k;
    return TN_OK;
}

/* starts[k + 2] counts the rows of k, then starts[k + 1] is where they begin, and when all are placed, where they end.
 */
tn_status tni_groups_make(const tn_call *call, const tni_lookup *l, tni_groups *g) {
    *g = groups_of(l);
    const int64_t outer = l->n ? g->positions_of_slab / l->n : 0;
    g->starts = call->workspace;
    g->positions = g->starts + g->keys + 2;
    memset(g->starts, 0, (size_t)(g->keys + 2) * sizeof *g->starts);
    for (int64_t o = 0; o < outer; o++) {
        for (int64_t j = 0; j < l->n; j++) {
            int64_t key;
            TN_TRY(key_of(call, l, o, j, &key));
            if (key >= 0) g->starts[key + 2]++;
        }
    }
    for (int64_t k = 0; k < g->keys; k++) g->starts[k + 2] += g->starts[k + 1];
    for (int64_t o = 0; o < outer; o++) {
        for (int64_t j = 0; j < l->n; j++) {
            int64_t key;
            TN_TRY(key_of(call, l, o, j, &key));
            if (key >= 0) g->positions[g->starts[key + 1]++] = o * l->n + j;
        }
    }
    return TN_OK;
}

tn_status tni_lookup_check(const tn_call *call, const tni_lookup *l) {
    for (int64_t o = 0; o < (l->by_outer ? l->outer : min(l->outer, 1)); o++) {
        for (int64_t j = 0; j < l->n; j++) {
            for (int64_t i = 0; i < (l->by_inner ? l->inner : min(l->inner, 1)); i++) {
                const int64_t at = o * l->by_outer + j * l->by_n + i * l->by_inner;
                const int64_t k = tni_index_at(l->index->data, tni_lookup_is_wide(l), at);
                if ((k < 0 || k >= l->v) && !tni_lookup_skips(l, k)) return tni_lookup_bad(call, l, o, j, i);
            }
        }
    }
    return TN_OK;
}
