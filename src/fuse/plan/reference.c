/* The reference of formulas: the graph of the call, one operation after the other over all of its elements, every value
 * a double. Slow, and with nothing of the plans and loops that it is there to check. */
#include <math.h>

#include "program.h"

typedef struct evaluation {
    const tni_fuse *f;
    const tn_call *call;
    tni_domain domain;
    tni_specialized specialized;
    double **values; /* (nodes) each over the dimensions that its node has, the last one fastest */
    uint32_t *masks; /* (nodes) which those are */
} evaluation;

/* ---- dimensions -------------------------------------------------------------------------------------------------- */

/* Elements of the domain's dimensions in `mask`, a row of the last of them at a time, and where it is in up to three
 * things. */
typedef struct walk {
    const tni_domain *domain;
    uint32_t mask;
    int last;         /* dimension of a row; -1: a row is one element */
    int64_t count, n; /* elements, and those of a row */
    int64_t index[TN_MAX_RANK];
    int64_t step[3][TN_MAX_RANK], at[3], by[3]; /* by: from an element of the row to the next */
} walk;

static walk walk_over(const evaluation *e, uint32_t mask) {
    walk w = {.domain = &e->domain, .mask = mask, .count = tni_mask_count(&e->domain, mask), .last = -1, .n = 1};
    for (int d = 0; d < e->domain.n_dims; d++) {
        if (mask >> d & 1) w.last = d;
    }
    if (w.last >= 0) w.n = e->domain.size[w.last];
    return w;
}

/* Thing k is a value that has the dimensions in `mask`. */
static void walk_value(walk *w, int k, uint32_t mask) {
    int64_t step = 1;
    for (int d = w->domain->n_dims - 1; d >= 0; d--) {
        bool has = mask >> d & 1;
        w->step[k][d] = has ? step : 0;
        step *= has ? w->domain->size[d] : 1;
    }
    if (w->last >= 0) w->by[k] = w->step[k][w->last];
}

static void walk_strides(walk *w, int k, const int64_t *strides) {
    for (int d = 0; d < w->domain->n_dims; d++) w->step[k][d] = strides[d];
    if (w->last >= 0) w->by[k] = w->step[k][w->last];
}

static void walk_next(walk *w) {
    for (int d = w->last - 1; d >= 0; d--) {
        if (!(w->mask >> d & 1)) continue;
        int64_t back = ++w->index[d] == w->domain->size[d] ? w->index[d] : 0;
        for (int k = 0; k < 3; k++) w->at[k] += w->step[k][d] * (1 - back);
        if (!back) return;
        w->index[d] = 0;
    }
}

/* ---- operations -------------------------------------------------------------------------------------------------- */

/* One tensor of a list after the other: its elements to or from the values of the long row, or a single value. */
static void move_list(const tn_slot *list, double *values, int64_t step, bool write) {
    for (int32_t k = 0; k < list->count; k++) {
        const tn_view *view = &list->views[k];
        int64_t n = tn_count(view);
        for (int64_t i = 0; i < n; i++, values += step) {
            int64_t at = 0, rest = i;
            for (int d = view->ndim - 1; d >= 0; d--) {
                at += rest % view->shape[d] * view->strides[d];
                rest /= view->shape[d];
            }
            if (write) {
                tn_set(view->type, view->data, at, *values);
            } else {
                *values = tn_get(view->type, view->data, at);
            }
        }
    }
}

static void read_input(const evaluation *e, const tni_gnode *node, uint32_t mask, double *to) {
    const tn_view *view = tn_in(e->call, node->ref);
    if (e->f->contract->inputs[node->ref].list) {
        move_list(&e->call->in[node->ref], to, 1, false);
        return;
    }
    walk w = walk_over(e, mask);
    walk_strides(&w, 0, e->domain.in[node->ref].strides);
    for (int64_t i = 0; i < w.count; i += w.n, walk_next(&w)) {
        for (int64_t j = 0; j < w.n; j++) to[i + j] = tn_get(view->type, view->data, w.at[0] + j * w.by[0]);
    }
}

static void draw(const evaluation *e, const tni_gnode *node, uint32_t mask, double *to) {
    const tn_view *view = tn_in(e->call, node->ref);
    const int64_t *data = view->data, seed[2] = {data[0], data[view->strides[0]]};
    for (int64_t i = 0; i < tni_mask_count(&e->domain, mask); i++) {
        float drawn;
        tni_random(seed, (int64_t)node->value, i, &drawn, 1);
        to[i] = (double)drawn;
    }
}

/* Positions along some of the dimensions, those of `along`. */
static void number(const evaluation *e, uint32_t mask, uint32_t along, double *to) {
    int64_t strides[TN_MAX_RANK] = {0};
    tni_mask_strides(&e->domain, along & mask, strides);
    walk w = walk_over(e, mask);
    walk_strides(&w, 0, strides);
    for (int64_t i = 0; i < w.count; i += w.n, walk_next(&w)) {
        for (int64_t j = 0; j < w.n; j++) to[i + j] = (double)(w.at[0] + j * w.by[0]);
    }
}

static void add_to(const tni_gnode *node, double *sum, double x) {
    if (node->op == TNI_P_RMAX || node->op == TNI_P_RMIN) {
        bool better = node->op == TNI_P_RMAX ? x > *sum : x < *sum;
        if (better || isnan(x)) *sum = isnan(*sum) ? *sum : x;
    } else if (node->op == TNI_P_PROD) {
        *sum *= x;
    } else {
        *sum += x;
    }
}

static void gather(const evaluation *e, const tni_gnode *node, uint32_t mask, double *to) {
    uint32_t from = e->masks[node->arg[0]];
    const double *x = e->values[node->arg[0]];
    double start = node->op == TNI_P_RMAX ? -(double)INFINITY : node->op == TNI_P_RMIN ? (double)INFINITY : 0;
    if (node->op == TNI_P_PROD) start = 1;
    for (int64_t i = 0; i < tni_mask_count(&e->domain, mask); i++) to[i] = start;
    walk w = walk_over(e, from);
    walk_value(&w, 0, mask);
    for (int64_t i = 0; i < w.count; i += w.n, walk_next(&w)) {
        for (int64_t j = 0; j < w.n; j++) add_to(node, &to[w.at[0] + j * w.by[0]], x[i + j]);
    }
}

/* Where element i of a value that has the dimensions in `mask` lies along dimension d. */
static int64_t index_of(const evaluation *e, uint32_t mask, int64_t i, int dim) {
    for (int d = e->domain.n_dims - 1; d > dim; d--) i /= mask >> d & 1 ? e->domain.size[d] : 1;
    return dim >= 0 && mask >> dim & 1 ? i % e->domain.size[dim] : 0;
}

/* The element that a window shows at a place; outside of what there is where it shows nothing. */
static int64_t seen_at(const evaluation *e, const tni_gnode *node, int64_t at) {
    const int64_t begin = e->domain.windows[node->kind].begin, length = e->domain.windows[node->kind].length;
    const int64_t step = e->domain.windows[node->kind].step;
    if (node->op == TNI_P_JOIN) return at;
    if (node->op == TNI_P_FLIP) return length - 1 - at;
    if (!e->domain.windows[node->kind].spreads) return begin + step * at;
    return (begin + at) % step == 0 ? (begin + at) / step : -1;
}

/* Element i of a value with `mask` as an element of one with `of`, which lies at `at` along dimension `dim`. */
static int64_t element_of(const evaluation *e, uint32_t mask, int64_t i, uint32_t of, int dim, int64_t at) {
    int64_t element = 0;
    for (int d = 0; d < e->domain.n_dims; d++) {
        if (of >> d & 1) element = element * e->domain.size[d] + (d == dim ? at : index_of(e, mask, i, d));
    }
    return element;
}

static void compute_part(const evaluation *e, const tni_gnode *node, uint32_t mask, double *to) {
    const int from = e->domain.windows[node->kind].from, dim = e->domain.windows[node->kind].to;
    const int64_t begin = e->domain.windows[node->kind].begin, length = e->domain.windows[node->kind].length;
    for (int64_t i = 0; i < tni_mask_count(&e->domain, mask); i++) {
        const int64_t at = index_of(e, mask, i, dim);
        const int64_t of = seen_at(e, node, at);
        const int32_t arg = node->arg[node->op == TNI_P_JOIN && at >= begin];
        const bool there = of >= 0 && of < length;
        to[i] = there ? e->values[arg][element_of(e, mask, i, e->masks[arg], from, of)] : 0;
    }
}

static int64_t count_of(const evaluation *e, const tni_gnode *node) {
    uint32_t of = e->masks[node->arg[0]];
    return tni_mask_count(&e->domain, tni_reduced_mask(&e->domain, node->kind, of));
}

/* `real`: the first argument is a float. */
static double apply(const tni_gnode *node, bool real, double a, double b, double c) {
    if (node->op == TNI_P_EXPAND) return a;
    if (node->op == TNI_P_CAST) return tni_cast_to(node->kind, real, a);
    return tni_prims[node->op].eval(a, b, c);
}

static void compute(const evaluation *e, const tni_gnode *node, uint32_t mask, double *to) {
    walk w = walk_over(e, mask);
    const double *arg[3] = {to, to, to};
    const tni_graph *g = &e->specialized.graph;
    const bool real = tni_class_of(g, g->nodes[node->arg[0]].type) == TNI_CLASS_FLOAT;
    for (int k = 0; k < 3 && node->arg[k] >= 0; k++) {
        uint32_t has = e->masks[node->arg[k]];
        walk_value(&w, k, has);
        arg[k] = e->values[node->arg[k]];
    }
    for (int64_t i = 0; i < w.count; i += w.n, walk_next(&w)) {
        const double *a = arg[0] + w.at[0], *b = arg[1] + w.at[1], *c = arg[2] + w.at[2];
        for (int64_t j = 0; j < w.n; j++) {
            to[i + j] = apply(node, real, a[j * w.by[0]], b[j * w.by[1]], c[j * w.by[2]]);
        }
    }
}

static void evaluate(const evaluation *e, const tni_gnode *node, uint32_t mask, double *to) {
    switch (node->op) {
    case TNI_P_CONST: to[0] = node->value; return;
    case TNI_P_INPUT: read_input(e, node, mask, to); return;
    case TNI_P_RAND: draw(e, node, mask, to); return;
    case TNI_P_INDEX:
    case TNI_P_INDEX_IN: number(e, mask, tni_reduced_mask(&e->domain, node->kind, mask), to); return;
    case TNI_P_COUNT: to[0] = (double)count_of(e, node); return;
    default: break;
    }
    if (tni_is_part(node->op)) {
        compute_part(e, node, mask, to);
    } else if (tni_is_reduction(node->op) || node->op == TNI_P_SUM_TO) {
        gather(e, node, mask, to);
    } else {
        compute(e, node, mask, to);
    }
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static tn_status evaluate_all(evaluation *e) {
    const tni_graph *g = &e->specialized.graph;
    for (int32_t i = 0; i < g->n; i++) {
        e->masks[i] = tni_node_mask(&e->domain, &g->nodes[i], e->masks);
        int64_t n = tni_mask_count(&e->domain, e->masks[i]);
        e->values[i] = tni_calloc((size_t)n + 1, sizeof **e->values);
        if (!e->values[i]) return TN_NO_MEMORY;
        evaluate(e, &g->nodes[i], e->masks[i], e->values[i]);
    }
    return TN_OK;
}

static void write_output(const evaluation *e, int32_t i) {
    int32_t node = e->specialized.outputs[i], updated = e->f->outputs[i].inplace;
    const tn_slot *arg = updated >= 0 ? &e->call->in[updated] : &e->call->out[i];
    const tn_view *view = arg->views;
    const tni_contract *c = e->f->contract;
    if ((updated >= 0 ? c->inputs[updated] : c->outputs[i]).list) {
        move_list(arg, e->values[node], e->masks[node] != 0, true);
        return;
    }
    walk w = walk_over(e, e->domain.out[i].mask);
    walk_strides(&w, 0, e->domain.out[i].strides);
    walk_value(&w, 1, e->masks[node]);
    for (int64_t k = 0; k < w.count; k += w.n, walk_next(&w)) {
        const double *from = e->values[node] + w.at[1];
        for (int64_t j = 0; j < w.n; j++) tn_set(view->type, view->data, w.at[0] + j * w.by[0], from[j * w.by[1]]);
    }
}

/* Outputs are written last: they may lie where inputs do. */
static tn_status run(evaluation *e) {
    size_t n = (size_t)e->specialized.graph.n;
    e->values = tni_calloc(n + 1, sizeof *e->values);
    e->masks = tni_calloc(n + 1, sizeof *e->masks);
    tn_status status = e->values && e->masks ? evaluate_all(e) : TN_NO_MEMORY;
    for (int32_t i = 0; status == TN_OK && i < e->specialized.n_outputs; i++) {
        if (e->specialized.outputs[i] >= 0) write_output(e, i);
    }
    for (size_t i = 0; e->values && i < n; i++) tni_free(e->values[i]);
    tni_free(e->values);
    tni_free(e->masks);
    return status;
}

tn_status tni_fuse_reference(const tni_fuse *f, const tn_call *call) {
    if (f->steps)
        return tn_fail(TN_UNSUPPORTED, "%s: calls operators of the table, and runs in steps", f->contract->name);
    evaluation *e = tni_calloc(1, sizeof *e);
    if (!e) return TN_NO_MEMORY;
    e->f = f;
    e->call = call;
    tn_status status = tni_make_domain(f, call, &e->domain);
    if (status == TN_OK) status = tni_specialize_in(f, &e->domain, call->attrs, &e->specialized);
    if (status == TN_OK) {
        status = run(e);
        tni_graph_clear(&e->specialized.graph);
    }
    tni_free(e);
    return status;
}
