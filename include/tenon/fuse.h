/* Formulas as operators: one line of text becomes kernels for every device, a contract and a gradient (docs/formulas.md
 * has the language).
 *
 *     const tn_function *gate;
 *     if (tn_fuse("silu(x) * y", NULL, &gate) != TN_OK) puts(tn_last_error());
 *     tn_run(gate, &args, NULL); */
#ifndef TENON_FUSE_H
#define TENON_FUSE_H

#include <tenon/call.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tn_fuse_options {
    const char *name; /* adds it to the table by this name; NULL: the operator is in no table */
    bool fast;        /* simplifications that may change the last bits, and what happens to NaN, infinity and -0 */
} tn_fuse_options;

/* The operator that a formula is, for tn_run and everything else that takes one. The same text with the same options
 * gives the same operator, on every thread. It is there until everybody who got it has given it back with
 * tn_fuse_release; who never does so keeps it as long as the process lasts. Errors point at the character. `options`
 * may be NULL. */
TN_API tn_status tn_fuse(const char *text, const tn_fuse_options *options, const tn_function **op);

/* Gives back what tn_fuse or tn_fuse_gradient gave, once for each time, from any thread; the caller does not use it any
 * more. Calls that are under way keep it until they are through. What nobody holds is freed, with its gradient, plans
 * and compiled loops, but for the last few, which are there at once when their text comes again. Code that is loaded
 * into a GPU stays, since graphs that were captured may run it. Operators of the table stay: for them, and for NULL,
 * this does nothing. */
TN_API void tn_fuse_release(const tn_function *op);

/* The gradient of an operator that is a formula: another one, for the inputs and outputs that its contract names and
 * d<output> for each output. TN_UNSUPPORTED where there is none. It is given back with tn_fuse_release. */
TN_API tn_status tn_fuse_gradient(const tn_function *op, const tn_function **gradient);

/* What a call of an operator that is a formula computes, as JSON, for frameworks that can do it with operations of
 * their own. `types` and `ranks` are of the inputs (TN_NO_TYPE: absent), `attributes` text: "eps=1e-05 mode='sum'".
 *     {"inputs": [DIMS…], "sizes": […], "nodes": [NODE…],
 *      "outputs": [{"node": k (-1: not asked for), "dims": DIMS}…]}
 *     DIMS: for each dimension that the formula goes over, which one of the tensor it is; -1: the tensor does not have
 *           it. Where an attribute divides c into `groups` and `c / groups`, both are the tensor's c
 *     sizes: of these dimensions, where attributes tell them, as `groups` does; -1: tensors tell it
 *     NODE: {"op": "input", "type", "input": i} | {"op": "number", "type", "value" (null: NaN)} |
 *           {"op": "+", "type", "in": what the arguments are computed in, "args": [nodes before],
 *            "over": "row"|"all"|[dimensions that the formula goes over] of reductions and counts, "to" of casts,
 *            "torch": the function of PyTorch that does the same, where there is one};
 *           types of values are f32, f64, i64 and bool
 * The caller frees it with tn_free; NULL and a message where there is no such thing. */
TN_API char *tn_fuse_graph_json(const tn_function *op, const tn_type *types, const int32_t *ranks,
                                const char *attributes);

#ifdef __cplusplus
}
#endif
#endif
