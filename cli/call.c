/* Calls: the tensors of a case, its attributes, and the outputs that follow. */
#include "core/host/memory.h"
#include "core/layout/layout.h"
#include "core/table/table.h"
#include "data.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int64_t dims_count(const tni_dims *dims) {
    int64_t n = 1;
    for (int32_t i = 0; i < dims->ndim; i++) n *= dims->d[i];
    return n;
}

int64_t case_elements(const tni_case *sample) {
    int64_t most = 0;
    for (int32_t i = 0; i < sample->n_inputs; i++) {
        int64_t n = dims_count(&sample->inputs[i].shape);
        if (n > most) most = n;
    }
    return most;
}

static double draw(const tni_sample_input *input, tn_type type, uint64_t *seed) {
    bool is_float = TN_BIT(type) & (TN_FLOATS | TN_BIT(TN_E4M3) | TN_BIT(TN_E5M2));
    if (input->below > 0) return (double)random_below(seed, input->below);
    if (type == TN_BOOL) return random_below(seed, 4) != 0;
    if (!is_float) return (double)random_below(seed, 4);
    return input->positive ? 0.25 + 1.5 * random_unit(seed) : random_normal(seed);
}

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void shuffle(double *row, int64_t n, uint64_t *seed) {
    for (int64_t i = n - 1; i > 0; i--) {
        const int64_t k = random_below(seed, i + 1);
        const double kept = row[i];
        row[i] = row[k];
        row[k] = kept;
    }
}

/* n different integers below `below`: each is taken with the chance that leaves enough for the rest. */
static void draw_unique(double *row, int64_t n, int64_t below, uint64_t *seed) {
    int64_t taken = 0;
    for (int64_t v = 0; v < below && taken < n; v++) {
        if (random_below(seed, below - v) < n - taken) row[taken++] = (double)v;
    }
    shuffle(row, n, seed);
}

/* Rows of n numbers, drawn without order, get the one that the sample wants. */
static void put_in_order(const tni_sample_input *input, double *row, int64_t n, uint64_t *seed) {
    switch (input->order) {
    case TNI_ORDER_NONE: break;
    case TNI_ORDER_UNIQUE:
    case TNI_ORDER_PERMUTATION: draw_unique(row, n, input->below, seed); break;
    case TNI_ORDER_OFFSETS:
        row[0] = 0;
        row[n - 1] = (double)(input->below - 1);
        qsort(row, (size_t)n, sizeof *row, by_size);
        break;
    case TNI_ORDER_SORTED: qsort(row, (size_t)n, sizeof *row, by_size); break;
    }
}

/* Every row of the dimension that the order is of. */
static void order_rows(const tni_sample_input *input, double *values, int64_t count, uint64_t *seed) {
    const int64_t n = input->shape.d[input->along];
    int64_t inner = 1;
    for (int32_t d = input->along + 1; d < input->shape.ndim; d++) inner *= input->shape.d[d];
    double *row = tni_malloc((size_t)n * sizeof *row);
    for (int64_t r = 0; row && r < count / n; r++) {
        double *first = values + r / inner * n * inner + r % inner;
        for (int64_t i = 0; i < n; i++) row[i] = first[i * inner];
        put_in_order(input, row, n, seed);
        for (int64_t i = 0; i < n; i++) first[i * inner] = row[i];
    }
    tni_free(row);
}

/* Normal numbers; 0.25 … 1.75 where the sample wants positive ones; what is read back is what the type can hold. */
void case_values(const tni_sample_input *input, tn_type type, uint64_t seed, double *values) {
    int64_t n = dims_count(&input->shape);
    for (int64_t i = 0; i < n; i++) {
        double rounded;
        tn_set(type, &rounded, 0, draw(input, type, &seed));
        values[i] = tn_get(type, &rounded, 0);
    }
    if (input->order != TNI_ORDER_NONE && n > 0) order_rows(input, values, n, &seed);
}

tn_type wide_type(const tni_contract *contract, const tni_type *declared, tn_type type) {
    bool is_float = TN_BIT(type) & TN_FLOATS;
    bool variable = declared->kind == TNI_TYPE_VAR && contract->types[declared->ref].mask & TN_BIT(TN_F64);
    return is_float && (variable || declared->kind == TNI_TYPE_ATTR) ? TN_F64 : type;
}

void call_link(made_call *c) {
    const tni_contract *contract = c->op->contract;
    int32_t flat = 0, given = 0;
    for (int32_t i = 0; i < contract->n_inputs; i++) {
        c->lengths[i] = 0;
        bool present = given < c->n_in && c->param[given] == i;
        if (!present && !contract->has_lists) c->in_list[flat++] = NULL;
        for (; given < c->n_in && c->param[given] == i; given++, c->lengths[i]++) {
            c->in_list[flat++] = &c->in[given].tensor;
        }
    }
    for (int32_t i = 0; i < c->n_out; i++) c->out_list[i] = c->out[i].count >= 0 ? &c->out[i].tensor : NULL;
    c->args.in = c->in_list;
    c->args.n_in = flat;
    c->args.lengths = contract->has_lists ? c->lengths : NULL;
    c->args.attrs = c->attrs;
    c->args.out = c->out_list;
    c->args.n_out = c->n_out;
}

static tn_status no_memory(made_call *c) {
    call_free(c);
    return tn_fail(TN_NO_MEMORY, "out of memory for the tensors of a call");
}

static bool make_array(array *a, const call_options *o, tn_type type, int32_t ndim, const int64_t *shape) {
    if (o->bare) {
        int64_t strides[TN_MAX_RANK];
        tni_dense_strides(ndim, shape, strides);
        array_view(a, type, ndim, shape, strides, NULL);
        return true;
    }
    if (o->edge != NO_EDGE) return array_make_edge(a, type, ndim, shape, o->how, o->edge);
    return o->zero ? array_make_zero(a, type, ndim, shape) : array_make(a, type, ndim, shape, o->how, o->offset);
}

static void set_attr(made_call *c, tn_attr attr) {
    int32_t at = 0;
    while (at < c->args.n_attrs && strcmp(c->attrs[at].name, attr.name) != 0) at++;
    c->attrs[at] = attr;
    if (at == c->args.n_attrs) c->args.n_attrs++;
}

static void set_attrs(made_call *c, const tni_case *sample, uint32_t flags) {
    const tni_contract *contract = c->op->contract;
    for (int32_t i = 0; i < sample->n_attrs; i++) {
        tn_attr attr = sample->attrs[i];
        bool is_float = attr.value.kind == TN_ATTR_TYPE && TN_BIT(attr.value.type) & TN_FLOATS;
        if (is_float && flags & CALL_WIDE) attr.value.type = TN_F64;
        set_attr(c, attr);
    }
    for (int32_t i = 0; flags & CALL_ALL && i < contract->n_outputs; i++) {
        int32_t want = contract->outputs[i].want_attr;
        if (want >= 0) set_attr(c, tn_attr_bool(contract->attrs[want].name, true));
    }
}

tn_status call_outputs(made_call *c, call_options options) {
    if (options.dense_out) options.how = DENSE;
    call_link(c);
    TN_TRY(tn_infer(c->op, &c->args, c->specs));
    for (int32_t i = 0; i < c->n_out; i++) {
        const tn_spec *spec = &c->specs[i];
        if (!spec->present) continue;
        if (!(options.thin ? array_make_thin(&c->out[i], spec->type, spec->ndim, spec->shape)
                           : make_array(&c->out[i], &options, spec->type, spec->ndim, spec->shape))) {
            return tn_fail(TN_NO_MEMORY, "out of memory for an output");
        }
    }
    call_link(c);
    return TN_OK;
}

tn_status call_make(made_call *c, const tn_function *op, const tni_case *sample, call_options options) {
    const tni_contract *contract = op->contract;
    memset(c, 0, sizeof *c);
    c->op = op;
    c->n_out = contract->n_outputs;
    c->in = tni_calloc((size_t)sample->n_inputs + 1, sizeof *c->in);
    c->out = tni_calloc((size_t)c->n_out + 1, sizeof *c->out);
    if (!c->in || !c->out) return no_memory(c);
    for (int32_t i = 0; i < c->n_out; i++) c->out[i].count = -1;
    for (int32_t i = 0; i < sample->n_inputs; i++) {
        const tni_sample_input *input = &sample->inputs[i];
        const tni_type *declared = &contract->inputs[input->input].type;
        tn_type type = options.flags & CALL_WIDE ? wide_type(contract, declared, input->type) : input->type;
        if (!make_array(&c->in[i], &options, type, input->shape.ndim, input->shape.d)) return no_memory(c);
        c->param[i] = input->input;
        c->n_in++;
    }
    set_attrs(c, sample, options.flags);
    tn_status status = call_outputs(c, options);
    if (status != TN_OK) call_free(c);
    return status;
}

void call_free(made_call *c) {
    for (int32_t i = 0; c->in && i < c->n_in; i++) array_free(&c->in[i]);
    for (int32_t i = 0; c->out && i < c->n_out; i++) array_free(&c->out[i]);
    tni_free(c->in);
    tni_free(c->out);
    c->in = c->out = NULL;
    c->n_in = 0;
}
