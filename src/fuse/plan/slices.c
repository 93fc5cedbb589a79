/* A call in slices. Each pass of a program goes over memory as a whole, and what one pass has read is out of the cache
 * when the next one reads it. Along a dimension that all passes keep, as batch_norm's keep the channels, a part of the
 * call needs nothing of the others: it goes through all passes, and stays in the cache meanwhile. */
#include "core/host/arith.h"
#include "planner.h"

enum {
    MOST_BYTES = 1 << 19, /* of inputs and outputs: about half of a second-level cache */
    LEAST_BYTES = 1 << 16 /* less would be over before it pays to begin it */
};

/* The dimensions that everything has which a pass makes. Positions must not be counted along them, and nothing may be
 * written that another slice still reads. */
static uint32_t kept_by_all(const tni_binding *b) {
    const tni_graph *g = &b->specialized.graph;
    const tni_domain *d = &b->domain;
    uint32_t kept = b->f->axes.list ? 0 : ~d->tail;
    for (int32_t t = 0; t < b->n_todo; t++) {
        const tni_item_todo *todo = &b->todo[t];
        const bool updates = todo->output >= 0 && tni_updated_by(b, todo->output) >= 0;
        kept &= updates ? 0 : todo->mask;
    }
    for (int32_t i = 0; i < g->n; i++) {
        if (g->nodes[i].op == TNI_P_RAND) return 0;
        if (g->nodes[i].op == TNI_P_INDEX) kept &= ~tni_reduced_mask(d, g->nodes[i].kind, b->mask[i]);
    }
    return kept;
}

/* Does a pass go over memory again that another one has gone over? */
static bool has_phases(const tni_binding *b) {
    bool again = false, waits = false;
    for (int32_t t = 0; t < b->n_todo; t++) {
        again |= b->todo[t].phase > 0;
        waits |= b->todo[t].output < 0 && !(b->lowered[b->todo[t].node].kept && !b->todo[t].gathers);
    }
    return again && waits;
}

/* From the outermost dimension inwards, until a slice is small enough. The domain has the sizes of a slice then. */
void tni_slice(tni_binding *b) {
    tni_program *program = b->program;
    tni_domain *d = &b->domain;
    const bool wanted = program->backend->slices && has_phases(b);
    const uint32_t kept = wanted ? kept_by_all(b) : 0;
    double bytes = program->cost.bytes;
    int64_t along[TN_MAX_RANK];
    for (int k = 0; k < TN_MAX_RANK; k++) {
        along[k] = 1;
        if (bytes <= MOST_BYTES || k >= d->n_dims || d->size[k] < 2 || !(kept >> k & 1)) continue;
        const int64_t most = (int64_t)(bytes / LEAST_BYTES);
        int64_t n = min((int64_t)(bytes / MOST_BYTES) + 1, d->size[k]);
        while (n <= most && d->size[k] % n != 0) n++; /* slices are of one size */
        if (n > most) continue;
        along[k] = n;
        bytes /= (double)n;
    }
    program->n_slices = 1;
    for (int k = 0; k < TN_MAX_RANK; k++) {
        program->slices[k] = bytes <= MOST_BYTES ? along[k] : 1;
        program->n_slices *= program->slices[k];
        if (k < d->n_dims) d->size[k] /= program->slices[k];
    }
}
