/* A plugin with one operator, y = 2 x: what a user's shared object looks like. */
#include <tenon/op.h>

static tn_status twice_ref(const tn_call *call, void *state) {
    const tn_view *x = tn_in(call, 0), *y = tn_out(call, 0);
    (void)state;
    for (int64_t i = 0; i < tn_count(x); i++) tn_set(y->type, y->data, i, 2 * tn_get(x->type, x->data, i));
    return TN_OK;
}

static const tn_kernel kernels[] = {{.name = "ref", .device = TN_CPU, .run = twice_ref}, {0}};
static const tn_sample samples[] = {{"s=[3, 5]"}, {"s=[]"}, {"s=[0, 4]"}, {"s=[4096, 1024]", .bench = true}, {0}};

static const tn_op twice = {
    .signature = "twice(x: T[*s]) -> y: T[*s]",
    .doc = "2 x.",
    .grad = "x: twice(dy)",
    .kernels = kernels,
    .samples = samples,
};

static const tn_op *const table[] = {&twice};
const tn_plugin tenon_plugin = TN_PLUGIN(table);
