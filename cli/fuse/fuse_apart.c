/* What a formula would take without being one: its operations one after the other, each a formula of its own with its
 * results in memory, as a framework without a compiler runs them. */
#include "fuse_apart.h"

#include <stdio.h>
#include <string.h>

#include <tenon/fuse.h>

#include "cli/bench/bench_gpu.h"
#include "core/contract/parts.h"
#include "fuse/graph/formula_object.h"
#include "fuse/operator.h"

enum { MOST_VALUES = 256 };

/* Everything that has a name so far. */
typedef struct value {
    char name[TNI_MAX_NAME + 1];
    tn_type type;
    tni_dims dims;
} value;

typedef struct values {
    value all[MOST_VALUES];
    int32_t n;
} values;

static const value *find(const values *v, const char *name) {
    for (int32_t i = 0; i < v->n; i++) {
        if (strcmp(v->all[i].name, name) == 0) return &v->all[i];
    }
    return NULL;
}

static bool add(values *v, const char *name, tn_type type, int32_t ndim, const int64_t *shape) {
    if (v->n == MOST_VALUES || ndim >= TN_MAX_RANK) return false;
    value *made = &v->all[v->n++];
    snprintf(made->name, sizeof made->name, "%s", name);
    made->type = type;
    made->dims.ndim = ndim;
    memcpy(made->dims.d, shape, (size_t)ndim * sizeof *shape);
    return true;
}

/* ---- one operation ----------------------------------------------------------------------------------------------- */

typedef struct operation {
    const tn_function *op;
    tni_sample_input inputs[TNI_MAX_ARGS];
    tni_case call;
} operation;

/* The statement as an operator, and its call on what its inputs are. */
static bool open_operation(const values *v, const char *text, operation *o) {
    if (tn_fuse(text, NULL, &o->op) != TN_OK) return false;
    const tni_contract *c = o->op->contract;
    o->call = (tni_case){.n_inputs = c->n_inputs, .inputs = o->inputs};
    for (int32_t i = 0; i < c->n_inputs; i++) {
        const value *from = find(v, c->inputs[i].name);
        if (!from) return false;
        o->inputs[i] = (tni_sample_input){.input = i, .type = from->type, .shape = from->dims};
    }
    return c->n_inputs > 0 && c->n_outputs == 1;
}

/* Its result: a row's is used as rows of one element. */
static bool add_result(values *v, const operation *o, bool row) {
    tn_tensor tensors[TNI_MAX_ARGS];
    const tn_tensor *in[TNI_MAX_ARGS];
    tn_spec spec;
    for (int32_t i = 0; i < o->call.n_inputs; i++) {
        const tni_sample_input *from = &o->inputs[i];
        tensors[i] = tn_dense(NULL, from->type, from->shape.ndim, (int64_t *)(uintptr_t)from->shape.d);
        in[i] = &tensors[i];
    }
    tn_args args = {.in = in, .n_in = o->call.n_inputs};
    if (tn_infer(o->op, &args, &spec) != TN_OK) return false;
    if (row) spec.shape[spec.ndim++] = 1;
    return add(v, o->op->contract->outputs[0].name, spec.type, spec.ndim, spec.shape);
}

static bool time_call(const tn_function *op, const tni_case *sample, tn_device device, double *seconds) {
    const double each = 0.1;
    measurement m;
    gpu_measurement g;
    bool gpu = device.kind == TN_CUDA;
    tn_status status = gpu ? bench_gpu(op, sample, NULL, device.index, each, &g)
                           : bench_measure(op, sample, NULL, each, &m);
    if (status == TN_OK) *seconds = gpu ? g.cold.events.median : m.run.median;
    return status == TN_OK;
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

/* The whole is measured beside each operation: a machine that is busy is so for both. */
static bool time_statements(values *v, char *text, const tn_function *op, const tni_case *sample, tn_device device,
                            apart *made) {
    for (char *next = text; next;) {
        static operation o;
        char *statement = next, *end = strstr(statement, "; ");
        next = end ? end + 2 : NULL;
        if (end) *end = 0;
        bool row = strstr(statement, ", -1)") != NULL;
        if (!open_operation(v, statement, &o) || !add_result(v, &o, row)) return false;
        double one, whole;
        if (!time_call(o.op, &o.call, device, &one) || !time_call(op, sample, device, &whole)) return false;
        made->seconds += one;
        made->fused += whole;
        made->operations++;
    }
    made->fused /= made->operations ? made->operations : 1;
    return made->operations > 1;
}

bool time_apart(const tn_function *op, const tni_case *sample, const made_call *k, tn_device device, apart *made) {
    const tni_fuse *formula;
    static values v;
    *made = (apart){0};
    v.n = 0;
    if (tni_operator_formula(op, &formula) != TN_OK || !formula->axes.numpy || formula->axes.list) return false;
    if (formula->contract->n_attrs || formula->n_outputs != formula->contract->n_outputs) return false;
    for (int32_t i = 0; i < k->n_in; i++) {
        const array *a = &k->in[i];
        if (!add(&v, formula->contract->inputs[k->param[i]].name, a->type, a->tensor.ndim, a->shape)) return false;
    }
    char *text = tni_fuse_print_apart(formula);
    bool done = text && time_statements(&v, text, op, sample, device, made);
    tn_free(text);
    return done;
}
