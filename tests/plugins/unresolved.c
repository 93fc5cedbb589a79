/* A plugin that calls a function which nobody has. */
#include <tenon/op.h>

tn_status function_that_nobody_has(const tn_call *call, void *state);

static const tn_kernel kernels[] = {{.name = "ref", .device = TN_CPU, .run = function_that_nobody_has}, {0}};
static const tn_op unresolved = {.signature = "unresolved(x: T[*s]) -> y: T[*s]", .doc = "?", .kernels = kernels};
static const tn_op *const table[] = {&unresolved};
const tn_plugin tenon_plugin = TN_PLUGIN(table);
