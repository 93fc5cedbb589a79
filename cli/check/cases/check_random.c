/* Random calls near the samples: other ranks, sizes, axes, broadcasts, layouts. */
#include "cli/check/check.h"
#include "core/table/table.h"

#include <stdio.h>

enum { MOST = 4000 }; /* elements */

static const char *const layouts[] = {
#define LAYOUT_NAME(NAME, name) name,
    LAYOUTS(LAYOUT_NAME)
#undef LAYOUT_NAME
};

/* "x[3, 17] mask[17], reversed": what was drawn. */
static void describe(const checker *c, const tni_case *k, layout how, char *text, size_t size) {
    size_t n = 0;
    for (int32_t i = 0; i < k->n_inputs && n < size / 2; i++) {
        const tni_sample_input *input = &k->inputs[i];
        n += (size_t)snprintf(text + n, size - n, "%s%s[", i ? " " : "", c->contract->inputs[input->input].name);
        for (int32_t d = 0; d < input->shape.ndim && n < size / 2; d++) {
            n += (size_t)snprintf(text + n, size - n, d ? ", %lld" : "%lld", (long long)input->shape.d[d]);
        }
        n += (size_t)snprintf(text + n, size - n, "]");
    }
    snprintf(text + n, size - n, ", %s", layouts[how]);
}

/* One case, all of it drawn from its seed, so that `--case random --cases 1 --seed N` is the same again. */
static void run_one(checker *c, uint64_t seed) {
    uint64_t draws = mix_seed(mix_seed(seed, hash_text(c->contract->name)), 3);
    tni_case *made;
    problem p;
    made_call k;
    char what[512];
    int n = 0;
    while (c->op->row->samples[n].args && !c->op->row->samples[n].bench) n++;
    c->sample_index = (int)random_below(&draws, n);
    c->sample = &c->op->row->samples[c->sample_index];
    if (tni_sample_random(c->contract, c->sample->args, c->T, &draws, MOST, &made) != TN_OK ||
        problem_make(&p, c->op, made, c->sample, draws) != TN_OK) {
        check_fail(c, "%s", tn_last_error());
        return;
    }
    layout how = (layout)random_below(&draws, LAYOUT_COUNT);
    int64_t offset = random_below(&draws, 4);
    describe(c, p.sample, how, what, sizeof what);
    if (problem_solve(&p, true) != TN_OK) {
        check_fail(c, "the reference refused: %s", tn_last_error());
    } else if (problem_call(&p, &k, (call_options){.how = how, .offset = offset}) != TN_OK) {
        check_fail(c, "%s", tn_last_error());
    } else {
        run_and_compare(c, &p, &k, what);
        call_free(&k);
    }
    problem_free(&p);
}

static void run_random(checker *c) {
    const tn_sample *kept = c->sample;
    int kept_index = c->sample_index;
    for (int64_t i = 0; i < c->options.cases && !c->broken; i++) {
        c->case_seed = c->options.seed + (uint64_t)i;
        run_one(c, c->case_seed);
    }
    c->case_seed = 0;
    c->sample = kept;
    c->sample_index = kept_index;
}

const check_row random_rows[] = {
    {"random", "random ranks, sizes, axes, broadcasts and layouts (--cases, --seed)", ONCE | LANES, 0, NULL,
     run_random},
    {0},
};
