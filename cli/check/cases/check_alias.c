/* Rows about memory that tensors share: the result is right, or the call is refused. */
#include "cli/check/check.h"

#include <stdio.h>
#include <string.h>

static bool same_shape(const array *a, const array *b) {
    return a->type == b->type && a->tensor.ndim == b->tensor.ndim &&
           memcmp(a->shape, b->shape, (size_t)a->tensor.ndim * sizeof *a->shape) == 0;
}

/* Output o lies in the memory of input i, `shift` elements later. */
static void run_pair(checker *c, const problem *p, int32_t i, int32_t o, int64_t shift) {
    made_call k;
    char what[128];
    if (problem_call(p, &k, (call_options){0}) != TN_OK) {
        check_fail(c, "%s", tn_last_error());
        return;
    }
    /* Input i again, with room behind it. */
    array old = k.in[i], out = k.out[o];
    bool fits = same_shape(&old, &out);
    size_t size = tn_type_size(old.type);
    if ((fits || shift) && old.count && out.count) {
        int64_t room = old.count + out.count + shift;
        array memory;
        if (!array_make(&memory, old.type, 1, &room, DENSE, 0)) {
            check_fail(c, "out of memory");
        } else {
            array_view(&k.in[i], old.type, old.tensor.ndim, old.shape, old.strides, memory.tensor.data);
            char *place = (char *)memory.tensor.data + shift * (int64_t)size;
            array_view(&k.out[o], out.type, out.tensor.ndim, out.shape, out.strides, place);
            array_write(&k.in[i], p->in[i]);
            call_link(&k);
            k.args.kernel = c->kernel;
            snprintf(what, sizeof what, "%s in the memory of %s, %lld elements on", c->contract->outputs[o].name,
                     c->contract->inputs[k.param[i]].name, (long long)shift);
            bool ran = call_run(&k, c->gpu, NULL) == TN_OK;
            if (ran) compare_call(c, p, &k, what);
            array_free(&memory);
        }
        k.in[i] = old;
        k.out[o] = out;
    }
    call_free(&k);
}

/* Outputs of another type are left out: bytes of one type read as another are no result. */
static void run_pairs(checker *c, const int64_t *shifts, int n) {
    problem p;
    if (!sample_problem(c, &p)) return;
    if (problem_solve(&p, true) != TN_OK) {
        check_fail(c, "the reference refused: %s", tn_last_error());
    } else {
        for (int32_t i = 0; i < p.sample->n_inputs; i++) {
            for (int32_t o = 0; o < c->contract->n_outputs; o++) {
                bool fits = p.results[o].present && p.results[o].type == p.sample->inputs[i].type &&
                            !c->contract->inputs[p.sample->inputs[i].input].inplace;
                for (int s = 0; s < n && fits && !c->broken; s++) run_pair(c, &p, i, o, shifts[s]);
            }
        }
    }
    problem_free(&p);
}

static void run_alias(checker *c) {
    run_pairs(c, (int64_t[]){0}, 1);
}

static void run_overlap(checker *c) {
    run_pairs(c, (int64_t[]){1, 4, 17}, 3);
}

/* Two outputs in one place cannot both be right: this must be refused. */
static void run_double(checker *c) {
    problem p;
    made_call k;
    if (!sample_problem(c, &p)) return;
    if (problem_call(&p, &k, (call_options){0}) == TN_OK) {
        for (int32_t a = 0; a < k.n_out; a++) {
            for (int32_t b = a + 1; b < k.n_out && !c->broken; b++) {
                if (k.out[a].count <= 0 || k.out[b].count <= 0) continue;
                void *kept = k.out[b].tensor.data;
                k.out[b].tensor.data = k.out[a].tensor.data;
                k.args.kernel = c->kernel;
                bool refused = k.out[a].bytes < k.out[b].bytes || call_run(&k, c->gpu, NULL) != TN_OK;
                if (!refused) {
                    check_fail(c, "%s and %s share memory, and nobody minds", c->contract->outputs[a].name,
                               c->contract->outputs[b].name);
                }
                k.out[b].tensor.data = kept;
            }
        }
        call_free(&k);
    }
    problem_free(&p);
}

const check_row alias_rows[] = {
    {"alias", "an output is an input", FEW, 20000, NULL, run_alias,
     "The kernel says TN_ALIAS, so an output may be the memory of an input: each thread reads an element before it "
     "writes it, and no thread reads what another one writes. Without TN_ALIAS, Tenon makes a copy."},
    {"overlap", "an output overlaps an input by a part: right or refused", FEW, 20000, NULL, run_overlap},
    {"double", "two outputs in the same memory are refused", FEW, 20000, has_outputs, run_double},
    {0},
};
