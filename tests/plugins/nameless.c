/* A reference that was given no name, which ends the list of kernels: it must not be left out without a word. */
#include <tenon/op.h>

static tn_status twice(const tn_call *call, void *state) {
    const tn_view *x = tn_in(call, 0), *y = tn_out(call, 0);
    (void)state;
    for (int64_t i = 0; i < tn_count(x); i++) tn_set(y->type, y->data, i, 2 * tn_get(x->type, x->data, i));
    return TN_OK;
}

static const tn_kernel kernels[] = {
    {.name = "fast", .device = TN_CPU, .run = twice},
    {.device = TN_CPU, .run = twice},
    {0},
};
static const tn_sample samples[] = {{"s=[3, 5]"}, {0}};
static const tn_op nameless = {
    .signature = "nameless(x: T[*s]) -> y: T[*s]",
    .doc = "2 x.",
    .kernels = kernels,
    .samples = samples,
};

static const tn_op *const table[] = {&nameless};
const tn_plugin tenon_plugin = TN_PLUGIN(table);
