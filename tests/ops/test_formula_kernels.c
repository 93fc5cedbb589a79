/* Formulas that are one of an operator's kernels compute what the operator's reference does.
 *
 * In the table they are for GPUs. Here an operator gets a twin, in no table, whose kernels are the formula, on the CPU,
 * and the reference; `tenon check` then compares the two: all samples, all types, other layouts and random calls. */
#include "cli/check/check.h"
#include "core/run/plan.h"
#include "core/table/table.h"
#include "fuse/formula_kernel.h"
#include "tests/test.h"

static const char cases[] = "values,outputs,special,accumulate,mixed,expanded,empty,zero_dim,odd_rows,threads,random";

/* ---- twins ------------------------------------------------------------------------------------------------------- */

typedef struct twin {
    tn_op row;
    tn_kernel kernels[3];
    tn_function *op;
} twin;

static const tn_kernel *formula_kernel_of(const tn_op *row) {
    const tn_kernel *k = row->kernels;
    while (k->name && strcmp(k->name, "formula") != 0) k++;
    return k->name ? k : NULL;
}

static const tn_kernel *last_on_cpu(const tn_op *row) {
    const tn_kernel *last = NULL;
    for (const tn_kernel *k = row->kernels; k->name; k++) last = k->device == TN_CPU ? k : last;
    return last;
}

static bool twin_make(twin *t, const tn_op *row) {
    *t = (twin){.row = *row, .kernels = {*formula_kernel_of(row), *last_on_cpu(row)}};
    t->kernels[0].device = TN_CPU;
    t->row.kernels = t->kernels;
    const tn_status status = tni_operator_make(&t->row, &t->op);
    CHECK_ROW(status == TN_OK, "%s", tn_last_error());
    return status == TN_OK;
}

static void twin_free(twin *t) {
    tni_plans_free(t->op);
    tni_operator_free(t->op);
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

static void is_right(const tn_op *row) {
    twin t;
    if (!twin_make(&t, row)) return;
    const char *name = t.op->contract->name;
    checker *c = checker_new((check_options){.quick = true,
                                             .kernel = "formula",
                                             .rows = cases,
                                             .cases = 20,
                                             .limit = 600,
                                             .seed = 1,
                                             .sample = -1,
                                             .again = "build/test_formula_kernels"});
    CHECK(c);
    if (c) {
        const tn_function *op = t.op;
        check_operators(c, &op, 1, NULL);
        CHECK_ROW(c->failed == 0 && c->passed > 0 && c->status == 0, "%s: %lld passed, %lld failed", name,
                  (long long)c->passed, (long long)c->failed);
        checker_free(c);
    }
    twin_free(&t);
}

static int all_are_right(void) {
    int n = 0;
    for (int i = 0; i < tn_function_count(); i++) {
        const tn_op *row = tn_function_at(i)->row;
        if (!formula_kernel_of(row)) continue;
        CHECK_ROW(formula_kernel_of(row)->device == TN_CUDA, "%s", row->signature);
        is_right(row);
        n++;
    }
    return n;
}

/* ---- what they take ---------------------------------------------------------------------------------------------- */

static const struct {
    const char *op, *sample;
    bool taken;
} calls[] = {
    {"softmax", "s=[4, 33]", true},
    {"softmax", "s=[7] scale=-2.5", true},
    {"softmax", "s=[2, 3, 9] axis=2", true},
    {"softmax", "s=[4, 33] axis=0", false},
    {"softmax", "s=[2, 3, 9] axis=-2", false},
    {"softmax", "s=[4, 33] mask", false},
    {"softmax", "s=[4, 33] mask=[1, 33]", false},
    {"softmax", "s=[9, 9] causal=true", false},
    {"softmax_grad", "s=[4, 33] scale=0.5", true},
    {"softmax_grad", "s=[4, 33] axis=0", false},
    {"layer_norm", "r=[5] c=33", true},
    {"layer_norm", "r=[5] c=33 gamma beta W=f32", true},
    {"layer_norm_grad", "r=[5] c=33 rstd>0 want_dx=true", true},
    {"layer_norm_grad", "r=[5] c=33 gamma rstd>0 want_dx=true want_dgamma=true", true},
    {"layer_norm_grad", "r=[5] c=33 gamma beta rstd>0 want_dgamma=true want_dbeta=true", true},
    {"layer_norm_grad", "r=[5] c=33 rstd>0 want_dx=true want_dgamma=true", false},
    {"layer_norm_grad", "r=[5] c=33 gamma rstd>0 want_dbeta=true", false},
};

static void they_take_what_they_can(void) {
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        twin t;
        tni_case *sample;
        made_call call;
        const char *kernel = NULL;
        if (!twin_make(&t, tn_find(calls[i].op)->row)) continue;
        tn_status status = tni_sample_case(t.op->contract, calls[i].sample, TN_BF16, &sample);
        CHECK_ROW(status == TN_OK, "%s", tn_last_error());
        if (status == TN_OK) status = call_make(&call, t.op, sample, (call_options){.bare = true});
        CHECK_ROW(status == TN_OK, "%s", tn_last_error());
        if (status == TN_OK) {
            status = tn_explain(t.op, &call.args, &kernel, NULL);
            CHECK_ROW(status == TN_OK && strcmp(kernel, calls[i].taken ? "formula" : "ref") == 0,
                      "%s of %s goes to '%s': %s", calls[i].op, calls[i].sample, kernel ? kernel : "", tn_last_error());
            call.args.kernel = "formula";
            status = tn_explain(t.op, &call.args, &kernel, NULL);
            CHECK_ROW(status == (calls[i].taken ? TN_OK : TN_UNSUPPORTED), "%s of %s: %s", calls[i].op, calls[i].sample,
                      tn_last_error());
            call_free(&call);
            tni_case_free(sample);
        }
        twin_free(&t);
    }
}

/* ---- where they are preferred ------------------------------------------------------------------------------------ */

static const struct {
    const char *op, *sample;
    tn_type type;
    bool preferred;
} rows[] = {
    {"softmax", "s=[2, 768]", TN_BF16, true},
    {"softmax", "s=[2, 769]", TN_BF16, false},
    {"softmax", "s=[2, 8192]", TN_BF16, false},
    {"softmax", "s=[2, 12288]", TN_BF16, true},
    {"softmax", "s=[2, 12288]", TN_F32, false},
    {"softmax", "s=[2, 5001]", TN_F32, true},
    {"softmax", "s=[2, 5001]", TN_F64, false},
    {"softmax", "s=[12288, 2] axis=0", TN_BF16, false},
    {"softmax", "s=[2, 12288] mask", TN_BF16, false},
    {"softmax_grad", "s=[2, 1025]", TN_F16, true},
    {"layer_norm", "r=[2] c=769 gamma beta", TN_BF16, true},
    {"layer_norm", "r=[2] c=768 gamma beta", TN_BF16, true},
    {"layer_norm", "r=[2] c=4096 gamma beta", TN_F32, false},
    {"layer_norm", "r=[2] c=4099 gamma beta", TN_F32, true},
    {"layer_norm_grad", "r=[2] c=18432 gamma beta rstd>0 want_dx=true want_dgamma=true want_dbeta=true", TN_BF16, true},
    {"layer_norm_grad", "r=[2] c=8192 gamma beta rstd>0 want_dx=true want_dgamma=true want_dbeta=true", TN_BF16, false},
};

/* The kernel "rows" of a twin stands in front of the reference and takes these calls. */
static void they_are_preferred_where_they_win(void) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        twin t;
        tni_case *sample;
        made_call call;
        const char *kernel = NULL;
        const tn_op *row = tn_find(rows[i].op)->row;
        const tn_kernel *k = row->kernels;
        while (k->name && strcmp(k->name, "rows") != 0) k++;
        CHECK_ROW(k->name && k->device == TN_CUDA, "%s", rows[i].op);
        if (!k->name || !twin_make(&t, row)) continue;
        t.kernels[0] = *k;
        t.kernels[0].device = TN_CPU;
        tn_status status = tni_sample_case(t.op->contract, rows[i].sample, rows[i].type, &sample);
        CHECK_ROW(status == TN_OK, "%s", tn_last_error());
        if (status == TN_OK) status = call_make(&call, t.op, sample, (call_options){.bare = true});
        CHECK_ROW(status == TN_OK, "%s", tn_last_error());
        if (status == TN_OK) {
            status = tn_explain(t.op, &call.args, &kernel, NULL);
            CHECK_ROW(status == TN_OK && strcmp(kernel, rows[i].preferred ? "rows" : "ref") == 0,
                      "%s of %s in %s goes to '%s'", rows[i].op, rows[i].sample, tn_type_name(rows[i].type),
                      kernel ? kernel : "");
            call_free(&call);
            tni_case_free(sample);
        }
        twin_free(&t);
    }
}

int main(void) {
    they_are_preferred_where_they_win();
    they_take_what_they_can();
    CHECK(all_are_right() >= 4);
    tn_shutdown();
    they_take_what_they_can(); /* what was read is read again */
    tn_shutdown();
    return test_end();
}
