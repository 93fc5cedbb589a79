/* For tests of formulas: arrays, calls, and a reference (every operation of the graph in double, element by element
 * over the whole domain, in the plainest way); rows of formulas and shapes as calls, and how results are compared. */
#ifndef TENON_TEST_FUSE_HARNESS_H
#define TENON_TEST_FUSE_HARNESS_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/test.h"

#include "core/contract/parts.h"
#include "fuse/cpu/compile_c.h"
#include "fuse/operator.h"
#include "tests/fuse/run_formula.h"

/* Built with a sanitizer: it sees how code is made of every formula, and nothing of what another compiler then makes of
 * that, so few of them are compiled. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { IS_CHECKED = 1 };
#else
enum { IS_CHECKED = 0 };
#endif

typedef struct array {
    tn_type type;
    int32_t ndim;
    int64_t shape[TN_MAX_RANK], strides[TN_MAX_RANK];
    char *memory; /* NULL: absent */
    char *data;
    size_t bytes;
} array;

static uint64_t random_state = 1;

static inline uint64_t random_bits(void) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    uint64_t x = random_state;
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdu;
    return x ^ x >> 33;
}

static inline int random_below(int n) {
    return (int)(random_bits() >> 33) % n;
}

static inline double random_real(double low, double high) {
    return low + (high - low) * (double)(random_bits() >> 11) * 0x1p-53;
}

static inline int64_t array_count(const array *a) {
    int64_t n = 1;
    for (int d = 0; d < a->ndim; d++) n *= a->shape[d];
    return n;
}

/* layout: 0 dense, 1 dimensions reversed, 2 every second element, 3 the last dimension backwards,
 * 4 rows with room behind them. */
static inline void array_make(array *a, tn_type type, int32_t ndim, const int64_t *shape, int layout) {
    *a = (array){.type = type, .ndim = ndim};
    int64_t step = layout == 2 ? 2 : 1, first = 0;
    for (int d = 0; d < ndim; d++) a->shape[d] = shape[d];
    for (int k = 0; k < ndim; k++) {
        int d = layout == 1 ? k : ndim - 1 - k;
        a->strides[d] = step;
        step *= (shape[d] > 0 ? shape[d] : 1) + (layout == 4 && d == ndim - 1 ? 5 : 0);
    }
    if (layout == 3 && ndim > 0 && shape[ndim - 1] > 0) {
        first = (shape[ndim - 1] - 1) * a->strides[ndim - 1];
        a->strides[ndim - 1] = -a->strides[ndim - 1];
    }
    a->bytes = (size_t)(step + 1) * tn_type_size(type);
    a->memory = malloc(a->bytes);
    memset(a->memory, 0x5a, a->bytes);
    a->data = a->memory + first * (int64_t)tn_type_size(type);
}

static inline void array_free(array *a) {
    free(a->memory);
    *a = (array){0};
}

/* Where element i, counted in the order of the dimensions, is. */
static inline int64_t array_at(const array *a, int64_t i) {
    int64_t at = 0;
    for (int d = a->ndim - 1; d >= 0; d--) {
        at += i % a->shape[d] * a->strides[d];
        i /= a->shape[d];
    }
    return at;
}

static inline double array_get(const array *a, int64_t i) {
    return tn_get(a->type, a->data, array_at(a, i));
}

static inline void array_set(array *a, int64_t i, double value) {
    tn_set(a->type, a->data, array_at(a, i), value);
}

static inline void array_fill(array *a, double low, double high) {
    bool whole = !(TN_BIT(a->type) & TN_FLOATS);
    for (int64_t i = 0; i < array_count(a); i++) {
        double value = random_real(low, high);
        array_set(a, i, a->type == TN_BOOL ? value > (low + high) / 2 : whole ? floor(value * 4) : value);
    }
}

static inline tn_tensor array_tensor(array *a) {
    return (tn_tensor){.data = a->data,
                       .device = {TN_CPU, 0},
                       .ndim = a->ndim,
                       .dtype = tn_type_to_dlpack(a->type),
                       .shape = a->shape,
                       .strides = a->strides};
}

/* ---- a call ------------------------------------------------------------------------------------------------------ */

/* Lists are one array each, cut into parts where a kernel sees them. */
enum { MOST_PARTS = 200 };

typedef struct call_of {
    const tni_fuse *f;
    array in[TNI_MAX_ARGS], out[TNI_MAX_ARGS];
    int64_t parts[MOST_PARTS];
    int32_t n_parts;
    tn_attr attrs[TNI_MAX_ARGS];
    int32_t n_attrs;
} call_of;

static inline void call_free(call_of *c) {
    for (int i = 0; i < TNI_MAX_ARGS; i++) {
        array_free(&c->in[i]);
        array_free(&c->out[i]);
    }
}

typedef struct call_args {
    tn_tensor tensors[2 * TNI_MAX_ARGS];
    const tn_tensor *in[TNI_MAX_ARGS];
    tn_tensor *out[TNI_MAX_ARGS];
    tn_attr attrs[2 * TNI_MAX_ARGS];
    tn_args args;
} call_args;

/* wants: outputs marked `?` are asked for. */
static inline void call_arguments(call_of *c, bool wants, call_args *a) {
    const tni_contract *contract = c->f->contract;
    int n_attrs = 0;
    for (int i = 0; i < contract->n_inputs; i++) {
        a->tensors[i] = array_tensor(&c->in[i]);
        a->in[i] = c->in[i].memory ? &a->tensors[i] : NULL;
    }
    for (int i = 0; i < contract->n_outputs; i++) {
        a->tensors[TNI_MAX_ARGS + i] = array_tensor(&c->out[i]);
        a->out[i] = c->out[i].memory ? &a->tensors[TNI_MAX_ARGS + i] : NULL;
    }
    for (int i = 0; i < c->n_attrs; i++) a->attrs[n_attrs++] = c->attrs[i];
    for (int i = 0; wants && i < contract->n_attrs; i++) {
        if (contract->attrs[i].implied) a->attrs[n_attrs++] = tn_attr_bool(contract->attrs[i].name, true);
    }
    a->args = (tn_args){.in = a->in,
                        .n_in = contract->n_inputs,
                        .attrs = a->attrs,
                        .n_attrs = n_attrs,
                        .out = a->out,
                        .n_out = contract->n_outputs};
}

/* Outputs as inference says. */
static inline tn_status call_make_outputs(call_of *c, int layout) {
    tn_spec specs[TNI_MAX_ARGS];
    call_args a;
    call_arguments(c, true, &a);
    TN_TRY(run_infer(c->f, &a.args, specs));
    for (int i = 0; i < c->f->contract->n_outputs; i++) {
        array_make(&c->out[i], specs[i].type, specs[i].ndim, specs[i].shape, layout);
    }
    return TN_OK;
}

static inline tn_status call_run(call_of *c) {
    call_args a;
    call_arguments(c, false, &a);
    return run_formula(c->f, &a.args, NULL);
}

/* ---- the reference ----------------------------------------------------------------------------------------------- */

typedef struct reference {
    const tni_fuse *f;
    tni_domain domain;
    tn_value attrs[TNI_MAX_ARGS];
    int64_t n;       /* elements of the domain */
    double **values; /* (nodes, n) */
    uint32_t *masks;
} reference;

/* Dimensions of size 1 and 0 have nothing to count. */
static inline int64_t ref_index(const reference *r, int64_t i, int d) {
    for (int k = r->domain.n_dims - 1; k > d; k--) i /= r->domain.size[k] > 1 ? r->domain.size[k] : 1;
    return r->domain.size[d] > 1 ? i % r->domain.size[d] : 0;
}

/* Element i of the domain, with index 0 in the dimensions that are not in the mask. */
static inline int64_t ref_project(const reference *r, int64_t i, uint32_t mask) {
    int64_t made = 0;
    for (int d = 0; d < r->domain.n_dims; d++) {
        made = made * r->domain.size[d] + (mask >> d & 1 ? ref_index(r, i, d) : 0);
    }
    return made;
}

/* The dimensions that a reduction or a count goes over. */
static inline uint32_t ref_gone(const reference *r, uint32_t kind) {
    uint32_t gone = kind == TNI_OVER_ROW ? r->domain.tail : kind == TNI_OVER_ALL ? ~0u : 0;
    for (int k = 0; k < TN_MAX_RANK; k++) gone |= tni_items_over(kind) >> k & 1 ? r->domain.items[k] : 0;
    return gone;
}

static inline uint32_t ref_mask(const reference *r, const tni_gnode *node) {
    uint32_t made = 0, first = node->arg[0] >= 0 ? r->masks[node->arg[0]] : 0;
    if (node->op == TNI_P_INPUT) return r->domain.in[node->ref].mask;
    if (node->op == TNI_P_RAND || node->op == TNI_P_INDEX) {
        uint32_t items = node->op == TNI_P_RAND || node->ref < 0 ? ~0u : 0;
        for (int k = 0; k < TN_MAX_RANK && !items; k++) made |= (uint32_t)node->ref >> k & 1 ? r->domain.items[k] : 0;
        items |= made;
        made = 0;
        for (int d = 0; d < r->domain.n_dims; d++) made |= r->domain.size[d] != 1 && items >> d & 1 ? 1u << d : 0;
        return made;
    }
    if (node->op == TNI_P_COUNT) return 0;
    if (node->op == TNI_P_SUM_TO) return r->masks[node->arg[1]];
    if (tni_is_reduction(node->op)) return first & ~ref_gone(r, node->kind);
    for (int k = 0; k < 3 && node->arg[k] >= 0; k++) made |= r->masks[node->arg[k]];
    if (tni_is_part(node->op)) {
        const int from = r->domain.windows[node->kind].from, to = r->domain.windows[node->kind].to;
        if (node->op == TNI_P_TAKE && from >= 0) made &= ~(1u << from);
        if (to >= 0 && r->domain.size[to] != 1) made |= 1u << to;
    }
    return made;
}

/* What a reduction has seen of the elements that end in one element of its result. */
typedef struct ref_seen {
    double sum, product, most, least, squares, exps, count;
} ref_seen;

static inline double ref_reduced(int op, const ref_seen *s) {
    switch (op) {
    case TNI_P_COUNT: return s->count;
    case TNI_P_MEAN: return s->sum / s->count;
    case TNI_P_PROD: return s->product;
    case TNI_P_RMAX: return s->most;
    case TNI_P_RMIN: return s->least;
    case TNI_P_VAR: return s->squares / s->count;
    case TNI_P_LSE: return log(s->exps) + (isinf(s->most) ? 0 : s->most);
    default: return s->sum;
    }
}

/* All of a reduction: every element of x, one by one, goes to the element of the result that it ends in. */
static inline void ref_reduce(const reference *r, const tni_gnode *node, uint32_t mask, double *result) {
    const double *x = r->values[node->arg[0]];
    uint32_t from = r->masks[node->arg[0]];
    ref_seen *seen = malloc((size_t)(r->n + 1) * sizeof *seen);
    for (int64_t i = 0; i <= r->n; i++)
        seen[i] = (ref_seen){.product = 1, .most = -(double)INFINITY, .least = (double)INFINITY};
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t i = 0; i < r->n; i++) {
            if (ref_project(r, i, from) != i) continue;
            ref_seen *s = &seen[ref_project(r, i, mask)];
            if (pass == 0) {
                s->sum += x[i];
                s->product *= x[i];
                s->count++;
                if (x[i] > s->most || x[i] != x[i]) s->most = s->most != s->most ? s->most : x[i];
                if (x[i] < s->least || x[i] != x[i]) s->least = s->least != s->least ? s->least : x[i];
            } else {
                s->squares += (x[i] - s->sum / s->count) * (x[i] - s->sum / s->count);
                s->exps += exp(x[i] - (isinf(s->most) ? 0 : s->most));
            }
        }
    }
    for (int64_t i = 0; i <= r->n; i++) result[i] = ref_reduced(node->op, &seen[i]);
    free(seen);
}

/* Of element i of the domain among those that have some of its dimensions. */
static inline double ref_position(const reference *r, uint32_t along, int64_t i) {
    int64_t made = 0;
    for (int d = 0; d < r->domain.n_dims; d++) {
        if (along >> d & 1) made = made * r->domain.size[d] + ref_index(r, i, d);
    }
    return (double)made;
}

static inline double ref_leaf(const reference *r, const call_of *c, const tni_gnode *node, int64_t i) {
    int64_t at = 0;
    float drawn;
    switch (node->op) {
    case TNI_P_CONST: return node->value;
    case TNI_P_INPUT:
        if (!c->in[node->ref].memory) return (double)NAN;
        for (int d = 0; d < r->domain.n_dims; d++) at += ref_index(r, i, d) * r->domain.in[node->ref].strides[d];
        return tn_get(c->in[node->ref].type, c->in[node->ref].data, at);
    case TNI_P_ATTR: {
        const tn_value *v = &r->attrs[node->ref];
        return v->kind == TN_ATTR_INT ? (double)v->i : v->kind == TN_ATTR_BOOL ? v->b : v->f;
    }
    case TNI_P_ATTR_IS: return r->attrs[node->ref].choice == (int)node->value;
    case TNI_P_HAS: return c->in[node->ref].memory != NULL;
    case TNI_P_HAS_ATTR: return r->attrs[node->ref].kind != TN_ATTR_UNSET;
    case TNI_P_INDEX: return ref_position(r, ref_mask(r, node) & ref_gone(r, node->kind), i);
    case TNI_P_RAND:
        tni_random((int64_t[2]){(int64_t)array_get(&c->in[node->ref], 0), (int64_t)array_get(&c->in[node->ref], 1)},
                   (int64_t)node->value, i, &drawn, 1);
        return (double)drawn;
    default: return (double)NAN;
    }
}

/* A number in a type, as docs/formulas.md has it: a float that is out of an integer's range becomes the end of it, and
 * NaN 0; of an integer the lower bits stay. */
static inline double in_type(int type, bool real, double v) {
    static const struct {
        tn_type type;
        double least, most;
    } ranges[] = {{TN_I8, -128, 127},
                  {TN_U8, 0, 255},
                  {TN_I16, -32768, 32767},
                  {TN_I32, -2147483648.0, 2147483647.0},
                  {TN_I64, -0x1p63, 0x1p63}};
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        if ((int)ranges[i].type != type) continue;
        if (real)
            return v != v ? 0 : v < ranges[i].least ? ranges[i].least : v > ranges[i].most ? ranges[i].most : trunc(v);
        int64_t whole = (int64_t)v;
        return type == TN_I8    ? (int8_t)whole
               : type == TN_U8  ? (uint8_t)whole
               : type == TN_I16 ? (int16_t)whole
               : type == TN_I32 ? (int32_t)whole
                                : v;
    }
    return type == TN_BOOL ? v != 0 : tni_round_to(type, v);
}

static inline bool is_real(const tni_fuse *f, int32_t node) {
    return tni_class_of(&f->graph, f->graph.nodes[node].type) == TNI_CLASS_FLOAT;
}

/* Of a window, element i: what the argument has at another place along one dimension. */
static inline double ref_part(const reference *r, const tni_gnode *n, int64_t i) {
    const int from = r->domain.windows[n->kind].from, to = r->domain.windows[n->kind].to;
    const int64_t begin = r->domain.windows[n->kind].begin, length = r->domain.windows[n->kind].length;
    const int64_t at = to >= 0 ? ref_index(r, i, to) : 0;
    const int64_t by = r->domain.windows[n->kind].step;
    int64_t of = n->op == TNI_P_FLIP ? length - 1 - at : at;
    if (n->op == TNI_P_TAKE && r->domain.windows[n->kind].spreads) {
        of = (at + begin) % by ? -1 : (at + begin) / by;
    } else if (n->op == TNI_P_TAKE) {
        of = at * by + begin;
    }
    const int32_t arg = n->arg[n->op == TNI_P_JOIN && at >= begin ? 1 : 0];
    const uint32_t mask = r->masks[arg], bit = from >= 0 ? 1u << from : 0;
    int64_t step = 1;
    if (of < 0 || of >= length) return 0;
    for (int d = r->domain.n_dims - 1; d > from; d--) step *= r->domain.size[d];
    return r->values[arg][ref_project(r, i, mask & ~bit) + (mask & bit ? of * step : 0)];
}

static inline double ref_value(const reference *r, const call_of *c, int32_t node, int64_t i) {
    const tni_gnode *n = &r->f->graph.nodes[node];
    double v[3] = {0};
    if (tni_prims[n->op].arity == 0) return ref_leaf(r, c, n, i);
    if (n->op == TNI_P_INDEX_IN) return ref_position(r, r->masks[node] & ref_gone(r, n->kind), i);
    if (tni_is_part(n->op)) return ref_part(r, n, i);
    for (int k = 0; k < tni_prims[n->op].arity; k++) {
        int32_t arg = n->arg[k];
        v[k] = r->values[arg][ref_project(r, i, r->masks[arg])];
    }
    if (n->op == TNI_P_EXPAND) return v[0];
    if (n->op == TNI_P_CAST) return in_type((int)n->kind, is_real(r->f, n->arg[0]), v[0]);
    return tni_prims[n->op].eval(v[0], v[1], v[2]);
}

/* All elements of a node, in r->values; a count is the same for all elements of its result, and has but one. */
static inline void ref_node(const reference *r, const call_of *c, int32_t node) {
    const tni_gnode *n = &r->f->graph.nodes[node];
    if (n->op == TNI_P_SUM_TO) { /* summed, then repeated over what the first has not */
        uint32_t both = r->masks[n->arg[0]] & r->masks[node];
        ref_reduce(r, n, both, r->values[node]);
        for (int64_t i = 0; i < r->n; i++) r->values[node][i] = r->values[node][ref_project(r, i, both)];
        return;
    }
    if (tni_is_reduction(n->op) || n->op == TNI_P_COUNT) {
        uint32_t gone = ref_gone(r, n->kind);
        ref_reduce(r, n, n->op == TNI_P_COUNT ? r->masks[n->arg[0]] & ~gone : r->masks[node], r->values[node]);
        return;
    }
    for (int64_t i = 0; i < r->n; i++) {
        r->values[node][i] = ref_project(r, i, r->masks[node]) == i ? ref_value(r, c, node, i) : 0;
    }
    if (r->n == 0 && r->masks[node] == 0) r->values[node][0] = ref_value(r, c, node, 0); /* sums of nothing */
}

/* The outputs of a formula (contract's, then updated inputs) as doubles, in the order of their elements. Returns NULL
 * where the shapes do not go together. The caller frees with ref_free. */
static inline double **ref_run(const call_of *c) {
    reference r = {.f = c->f};
    const tni_contract *contract = c->f->contract;
    tn_view views[3 * TNI_MAX_ARGS];
    tn_slot in[TNI_MAX_ARGS] = {{0}}, out[TNI_MAX_ARGS] = {{0}};
    for (int i = 0; i < 2 * TNI_MAX_ARGS; i++) {
        const array *a = i < TNI_MAX_ARGS ? &c->in[i] : &c->out[i - TNI_MAX_ARGS];
        views[i] = (tn_view){a->data, a->shape, a->strides, a->ndim, a->type};
        if (a->memory) *(i < TNI_MAX_ARGS ? &in[i] : &out[i - TNI_MAX_ARGS]) = (tn_slot){&views[i], 1};
    }
    for (int i = 0; i < contract->n_attrs; i++) {
        r.attrs[i] = contract->attrs[i].value;
        for (int k = 0; k < c->n_attrs; k++) {
            if (strcmp(c->attrs[k].name, contract->attrs[i].name) == 0) r.attrs[i] = c->attrs[k].value;
        }
        for (int k = 0; k < contract->attrs[i].n_choices && r.attrs[i].kind == TN_ATTR_STR; k++) {
            if (strcmp(r.attrs[i].s, contract->attrs[i].choices[k]) == 0) r.attrs[i].choice = (int16_t)k;
        }
    }
    tn_call call = {.name = contract->name, .in = in, .out = out, .attrs = r.attrs};
    if (tni_make_domain(c->f, &call, &r.domain) != TN_OK) return NULL;
    int32_t nodes = c->f->graph.n;
    r.n = tni_mask_count(&r.domain, ~0u);
    r.values = calloc((size_t)nodes, sizeof *r.values);
    r.masks = calloc((size_t)nodes, sizeof *r.masks);
    for (int32_t k = 0; k < nodes; k++) {
        r.masks[k] = ref_mask(&r, &c->f->graph.nodes[k]);
        r.values[k] = malloc((size_t)(r.n + 1) * sizeof(double));
        ref_node(&r, c, k);
    }
    double **results = calloc((size_t)c->f->n_outputs + 1, sizeof *results);
    for (int k = 0; k < c->f->n_outputs; k++) {
        int32_t updated = c->f->outputs[k].inplace, node = c->f->outputs[k].node;
        const array *a = updated >= 0 ? &c->in[updated] : &c->out[k];
        results[k] = calloc((size_t)array_count(a) + 1, sizeof(double));
        int64_t next = 0;
        uint32_t own = r.domain.out[k].mask;
        for (int64_t i = 0; i < r.n && a->memory; i++) {
            if (ref_project(&r, i, own) != i || next >= array_count(a)) continue;
            results[k][next++] = r.values[node][ref_project(&r, i, r.masks[node])];
        }
        if (r.n == 0 && own == 0) results[k][0] = r.values[node][0];
    }
    for (int32_t k = 0; k < nodes; k++) free(r.values[k]);
    free(r.values);
    free(r.masks);
    return results;
}

static inline void ref_free(const tni_fuse *f, double **results) {
    for (int k = 0; results && k < f->n_outputs; k++) free(results[k]);
    free(results);
}

/* ---- rows of tests ----------------------------------------------------------------------------------------------- */

typedef struct row {
    const char *formula;
    const char *shapes; /* of the inputs, '-' absent: "4,5 5 1"; of lists, sizes of the tensors: "7/0/132" */
    double low, high;
} row;

/* "7/0/132"; "0*3" and "9*2" are three tensors without elements and two of 9. Returns all elements together. */
static inline int64_t parse_parts(const char **text, call_of *c) {
    int64_t total = 0;
    c->n_parts = 0;
    while (**text == ' ') (*text)++;
    for (;;) {
        char *end;
        int64_t size = strtoll(*text, &end, 10), times = *end == '*' ? strtoll(end + 1, &end, 10) : 1;
        for (; times > 0 && c->n_parts < MOST_PARTS; times--) {
            c->parts[c->n_parts++] = size;
            total += size;
        }
        *text = end;
        if (**text != '/') return total;
        (*text)++;
    }
}

static inline int parse_shape(const char **text, int64_t *shape) {
    int n = 0;
    while (**text == ' ') (*text)++;
    if (**text == '-') return (*text)++, -1;
    if (**text == '.') return (*text)++, 0;
    for (;;) {
        char *end;
        shape[n++] = strtoll(*text, &end, 10);
        *text = end;
        if (**text != ',') return n;
        (*text)++;
    }
}

static inline tn_type type_of_input(const tni_contract *c, int i, tn_type T, tn_type W) {
    const tni_type *type = &c->inputs[i].type;
    if (type->kind == TNI_TYPE_FIXED) return (tn_type)__builtin_ctz(type->mask);
    return strcmp(c->types[type->ref].name, "T") == 0 ? T : W;
}

/* Where the formula rounds in the middle, or divides by what comes close to 0, results of f32 differ more. */
static inline double tolerance_of(tn_type T, tn_type out, double scale) {
    double unit = T == TN_F64 && out == TN_F64 ? 1e-12 : T == TN_F64 ? 1e-6 : 2e-5;
    if (out == TN_F16) unit = 2e-3;
    if (out == TN_BF16) unit = 1.6e-2;
    return unit * (1 + scale);
}

static inline void compare(const row *r, const call_of *c, double **want, tn_type T, int layout) {
    for (int k = 0; k < c->f->n_outputs; k++) {
        int32_t updated = c->f->outputs[k].inplace;
        const array *a = updated >= 0 ? &c->in[updated] : &c->out[k];
        int64_t bad = -1;
        bool whole = !(TN_BIT(a->type) & TN_FLOATS);
        for (int64_t i = 0; i < array_count(a) && bad < 0; i++) {
            double got = array_get(a, i), to = want[k][i];
            if (whole) to = in_type((int)a->type, is_real(c->f, c->f->outputs[k].node), to);
            double scale = fabs(to) + (T == TN_F64 ? 0 : 3);
            bool same = (got != got && to != to) || got == to || fabs(got - to) <= tolerance_of(T, a->type, scale);
            if (whole) same = fabs(got - to) <= (T == TN_F64 ? 0 : 1);
            if (!same) bad = i;
        }
        CHECK_ROW(bad < 0, "%s with %s, %s, layout %d: output %d element %lld of %lld is %.9g, not %.9g", r->formula,
                  r->shapes, tn_type_name(T), layout, k, (long long)bad, (long long)array_count(a), array_get(a, bad),
                  want[k][bad]);
    }
}

/* A row as a call: its formula, inputs with numbers of its range, outputs. False, and a check that failed, where that
 * cannot be. row_close frees it all. */
static inline bool row_open(const row *r, tn_type T, tn_type W, int layout, int out_layout, call_of *c) {
    tni_fuse *f;
    *c = (call_of){0};
    tn_status status = tni_fuse_parse(r->formula, NULL, &f);
    CHECK_ROW(status == TN_OK, "%s: %s", r->formula, tn_last_error());
    if (status != TN_OK) return false;
    c->f = f;
    const char *shapes = r->shapes;
    for (int i = 0; i < f->contract->n_inputs; i++) {
        int64_t shape[TN_MAX_RANK];
        bool list = f->contract->inputs[i].list;
        if (list) shape[0] = parse_parts(&shapes, c);
        int ndim = list ? 1 : parse_shape(&shapes, shape);
        if (ndim < 0) continue;
        array_make(&c->in[i], type_of_input(f->contract, i, T, W), ndim, shape, list ? 0 : layout);
        array_fill(&c->in[i], r->low, r->high);
    }
    status = call_make_outputs(c, out_layout);
    CHECK_ROW(status == TN_OK, "%s: %s", r->formula, tn_last_error());
    return status == TN_OK;
}

static inline void row_close(call_of *c) {
    call_free(c);
    tni_fuse_free((tni_fuse *)(uintptr_t)c->f);
}

/* The call as a kernel sees it. */
typedef struct views {
    tn_view views[2 * TNI_MAX_ARGS];
    tn_view lists[8][MOST_PARTS];
    tn_slot in[TNI_MAX_ARGS], out[TNI_MAX_ARGS];
    tn_value attrs[TNI_MAX_ARGS];
    int64_t axes[TNI_MAX_ARGS][TN_MAX_RANK];
    tn_call call;
} views;

/* Axes as the core hands them on: counted from the front. */
static inline void resolve_axes(const call_of *c, views *v) {
    const int64_t rank = c->in[0].ndim;
    for (int i = 0; i < c->f->contract->n_attrs; i++) {
        tn_value *value = &v->attrs[i];
        if (c->f->contract->attrs[i].kind == TNI_A_AXIS && value->i < 0) value->i += rank;
        if (c->f->contract->attrs[i].kind != TNI_A_AXES) continue;
        for (int k = 0; k < value->count; k++) v->axes[i][k] = value->ints[k] + (value->ints[k] < 0 ? rank : 0);
        value->ints = v->axes[i];
    }
}

static inline void make_views(const call_of *c, views *v) {
    memset(v, 0, sizeof *v);
    for (int i = 0; i < 2 * TNI_MAX_ARGS; i++) {
        const array *a = i < TNI_MAX_ARGS ? &c->in[i] : &c->out[i - TNI_MAX_ARGS];
        v->views[i] = (tn_view){a->data, a->shape, a->strides, a->ndim, a->type};
        if (a->memory) *(i < TNI_MAX_ARGS ? &v->in[i] : &v->out[i - TNI_MAX_ARGS]) = (tn_slot){&v->views[i], 1};
    }
    for (int i = 0, list = 0; i < c->f->contract->n_inputs && c->n_parts; i++) {
        const array *a = &c->in[i];
        if (!c->f->contract->inputs[i].list || !a->memory) continue;
        char *data = a->data;
        for (int32_t k = 0; k < c->n_parts; k++) {
            v->lists[list][k] = (tn_view){data, &c->parts[k], a->strides, 1, a->type};
            data += c->parts[k] * a->strides[0] * (int64_t)tn_type_size(a->type);
        }
        v->in[i] = (tn_slot){v->lists[list++], c->n_parts};
    }
    for (int i = 0; i < c->f->contract->n_attrs; i++) v->attrs[i] = c->f->contract->attrs[i].value;
    for (int i = 0; i < c->n_attrs; i++) {
        int32_t at = tni_attr_named(c->f->contract, c->attrs[i].name);
        if (at >= 0 && c->attrs[i].value.kind != TN_ATTR_STR)
            v->attrs[at] = c->attrs[i].value; /* words: their default */
    }
    resolve_axes(c, v);
    v->call = (tn_call){
        .name = "f", .in = v->in, .out = v->out, .attrs = v->attrs, .device = {TN_CPU, 0}, .host = tn_default_host()};
}

/* Bound and run on the CPU. */
static inline tn_status views_run(call_of *c, bool *compiled) {
    static views v;
    tni_program *program = NULL;
    make_views(c, &v);
    TN_TRY(tni_fuse_bind(c->f, &v.call, &program));
    *compiled = tni_program_is_compiled(program);
    v.call.workspace = aligned_alloc(64, (program->workspace + 127) / 64 * 64);
    tn_status status = tni_program_run(program, &v.call);
    free(v.call.workspace);
    tni_program_free(program);
    return status;
}

#endif
