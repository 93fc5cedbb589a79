/* Tensors that own their memory, in every layout that a caller may hand over, and whole calls made of them. */
#ifndef CLI_DATA_H
#define CLI_DATA_H

#include "core/table/sample.h"

/* X(NAME, "name"): how the elements lie. */
#define LAYOUTS(X)                                                                                                 \
    X(DENSE, "dense")                                                                                              \
    X(TRANSPOSED, "transposed") /* the first dimension fastest */                                                  \
    X(SLICED, "sliced")         /* every second element of every dimension of a larger tensor */                   \
    X(PADDED, "padded")         /* rows of a wider tensor: the last dimension dense, odd distances between rows */ \
    X(REVERSED, "reversed")     /* every stride negative */                                                        \
    X(CHANNELS_LAST, "channels_last") /* (n, c, …) with c fastest */

typedef enum layout {
#define LAYOUT_ENUM(NAME, name) NAME,
    LAYOUTS(LAYOUT_ENUM)
#undef LAYOUT_ENUM
        LAYOUT_COUNT
} layout;

/* ---- random numbers: a stream that depends on nothing but its seed ----------------------------------------------- */
uint64_t random_bits(uint64_t *seed);
double random_unit(uint64_t *seed);   /* 0 <= u < 1 */
double random_normal(uint64_t *seed); /* mean 0, deviation 1, within 3.5 */
int64_t random_below(uint64_t *seed, int64_t n);
uint64_t mix_seed(uint64_t seed, uint64_t with); /* a seed of its own for each part of a run */
uint64_t hash_text(const char *text);

enum { ARRAY_PATTERN = 0xff }; /* all bits set: NaN in every float type, -1 in every integer */

/* ---- one tensor -------------------------------------------------------------------------------------------------- */
typedef struct array {
    tn_tensor tensor; /* its shape and strides are the ones below, so an array must stay where it is */
    int64_t shape[TN_MAX_RANK], strides[TN_MAX_RANK];
    tn_type type;
    int64_t count; /* elements */
    char *memory;  /* everything allocated: guards, gaps and elements; NULL: borrowed */
    size_t bytes;
    char *map; /* what it is a part of, from the system; NULL: it is from the heap */
    size_t map_bytes;
    char *before; /* what `memory` held when array_watch was called */
} array;

/* Memory is filled with a pattern that is NaN in every float type; the elements come later. `offset`: how many
 * elements past a 64-byte boundary the first one lies. False: no memory. */
bool array_make(array *a, tn_type type, int32_t ndim, const int64_t *shape, layout how, int64_t offset);
/* The same between two pages that nobody may touch: the elements begin behind the first, or end before the second. */
typedef enum array_edge { NO_EDGE, EDGE_BEFORE, EDGE_BEHIND } array_edge;
bool array_make_edge(array *a, tn_type type, int32_t ndim, const int64_t *shape, layout how, array_edge edge);
/* Large tensors that are only written: the same few pages all over, but for what array_own is called for. */
bool array_make_thin(array *a, tn_type type, int32_t ndim, const int64_t *shape);
bool array_own(array *a, int64_t begin, int64_t end); /* elements, from the first */
/* Large tensors: no guards, dense, zero, untouched until used. */
bool array_make_zero(array *a, tn_type type, int32_t ndim, const int64_t *shape);
/* The same elements with another shape and strides; owns nothing. */
void array_view(array *a, tn_type type, int32_t ndim, const int64_t *shape, const int64_t *strides, void *data);
void array_move(array *to, array *from); /* `from` owns nothing afterwards */
void array_free(array *a);
bool array_dense(const array *a);
void array_write(array *a, const double *values);   /* in logical order, rounded to the type */
void array_read(const array *a, double *values);    /* in logical order */
void array_bits(const array *a, void *to);          /* the elements as they are, in logical order */
void array_fill(array *a);                          /* the pattern again, into the elements */
int64_t array_place(const array *a, int64_t index); /* where element `index` lies, in elements from the first */
/* Remembers the memory; later: is everything outside of the elements (or, with whole, everything) as it was? */
bool array_watch(array *a);
bool array_intact(const array *a, bool whole);

/* ---- one call ---------------------------------------------------------------------------------------------------- */
typedef struct made_call {
    const tn_function *op;
    int32_t n_in;                    /* tensors given, as in tni_case */
    array *in;                       /* (n_in) */
    int32_t param[TNI_MAX_ARGS * 4]; /* the input of the contract that each is */
    int32_t n_out;                   /* outputs of the contract */
    array *out;                      /* (n_out); count is -1 where the output is absent */
    tn_spec specs[TNI_MAX_ARGS];
    const tn_tensor *in_list[TNI_MAX_ARGS * 4];
    int32_t lengths[TNI_MAX_ARGS];
    tn_tensor *out_list[TNI_MAX_ARGS];
    tn_attr attrs[TNI_MAX_ARGS];
    tn_args args; /* points to the above: a call must stay where it is */
} made_call;

enum {
    CALL_WIDE = 1, /* every type variable is f64: what the reference runs in */
    CALL_ALL = 2
}; /* all `?` outputs are asked for; else those of the sample's want_ attributes */

typedef struct call_options {
    uint32_t flags;
    layout how;     /* of inputs and outputs */
    bool dense_out; /* outputs are dense all the same */
    int64_t offset;
    array_edge edge; /* array_make_edge instead */
    bool zero;       /* array_make_zero instead */
    bool thin;       /* and array_make_thin for outputs */
    bool bare;       /* no memory at all: for inference and tn_explain */
} call_options;

/* Tensors for a case: inputs without values, outputs as inferred. Frees itself and leaves a message on failure. */
tn_status call_make(made_call *c, const tn_function *op, const tni_case *sample, call_options options);
/* Outputs follow from the inputs in place: for calls that were built by hand. */
tn_status call_outputs(made_call *c, call_options options);
/* Points args at the arrays again, after in or out has changed. */
void call_link(made_call *c);
void call_free(made_call *c);
/* Random values that suit input i of the case. */
void case_values(const tni_sample_input *input, tn_type type, uint64_t seed, double *values);
int64_t dims_count(const tni_dims *dims);
int64_t case_elements(const tni_case *sample); /* of the largest input */
/* The type that stands for `type` in the reference: f64 for floats of type variables, else itself. */
tn_type wide_type(const tni_contract *contract, const tni_type *declared, tn_type type);

#endif
