/* The language: text to graph, and graph to text. */
#ifndef TNI_FUSE_LANGUAGE_H
#define TNI_FUSE_LANGUAGE_H

#include "fuse/graph/formula_object.h"

enum {
    TNI_FUSE_DEPTH = 100, /* of nested brackets and signs */
    TNI_FUSE_NAMES = 512, /* inputs, outputs and locals */
};

/* What the statements of a formula are about. */
typedef struct tni_scope {
    int32_t n_inputs; /* without a signature: found on the way */
    const char *inputs[TNI_MAX_ARGS];
    bool is_seed[TNI_MAX_ARGS], is_bool[TNI_MAX_ARGS], is_index[TNI_MAX_ARGS], is_updated[TNI_MAX_ARGS];
    int32_t n_outputs;
    const char *outputs[TNI_MAX_ARGS];
    int32_t output_nodes[TNI_MAX_ARGS];
    int32_t updated_nodes[TNI_MAX_ARGS]; /* by input; -1: none */
    /* A signature of bare names, f(x, b, eps: float = 1e-5): the inputs are there from the start, in its order. */
    tni_contract *bare;       /* its name and its attributes; NULL: there is no such signature */
    char *attrs;              /* these as they are written, behind commas */
    int32_t at[TNI_MAX_ARGS]; /* where each input stands */
} tni_scope;

/* Statements into the graph. For a formula with a signature, formula->contract and axes are there. */
tn_status tni_parse_formula(tni_fuse *formula, const char *text, int32_t begin, tni_scope *scope);
/* An expression of the library's own over nodes a, b, c, y, d (-1: not there); reductions without a second argument
 * reach as `kind` says. */
int32_t tni_template(tni_graph *g, const char *text, const int32_t nodes[5], int kind);

/* Where the signature in front of a formula ends, at its ':' or, where that is missing, with the text; -1: there is
 * none. */
int32_t tni_signature_end(const char *text);
/* Is it one of bare names? Then this reads it into the scope, whose `bare` and `attrs` the caller frees. */
bool tni_is_bare(const char *text);
tn_status tni_parse_bare(tni_fuse *formula, const char *text, int32_t end, tni_scope *scope);

/* The contract of a formula without a signature. */
tn_status tni_make_contract(tni_fuse *formula, const tni_scope *scope, const char *name);
/* Of one that takes parts, as text: formula->signature, and `whole` with results of no dimensions yet. */
tn_status tni_name_parts(tni_fuse *formula, const tni_scope *scope, const char *name);
/* " -> y: T[dim0 - 1, *dims]": the results as they came out when the formula was read with the whole signature. */
void tni_print_results(tni_text *text, const tni_fuse *read);

/* The statements of a graph, which the parser reads back. What would nest deeper than `nested` gets a name. */
enum { TNI_NESTED = 24 };
void tni_print_statements(tni_text *text, const tni_graph *g, const tni_contract *contract,
                          const tni_fuse_output *outputs, int32_t n_outputs, int32_t nested);

#endif
