/* A formula bound to one form of call: passes over memory, and a backend that does them.
 *
 * The domain is the shape that everything in the formula broadcasts to. Rows go along its last dimension. A value has
 * some of the domain's dimensions (a mask); in a pass it is an element's, a row's or a single one. A pass walks over
 * the rows that its results have; what must be complete before it can be used (a sum over everything, over the
 * columns, or over rows that are shared) is made by an earlier pass and kept in the workspace. */
#ifndef TNI_FUSE_PROGRAM_H
#define TNI_FUSE_PROGRAM_H

#include "fuse/graph/formula_object.h"

/* What values are computed in. Truth values are bytes, integers int64_t. */
typedef enum tni_lane { TNI_LANE_BOOL, TNI_LANE_INT, TNI_LANE_F32, TNI_LANE_F64, TNI_LANES } tni_lane;
typedef enum tni_level { TNI_ONCE, TNI_ROW, TNI_ELEMENT } tni_level;

static inline int64_t tni_lane_size(int lane) {
    return lane == TNI_LANE_BOOL ? 1 : lane == TNI_LANE_F32 ? 4 : 8;
}
tni_lane tni_lane_of(const tni_graph *g, int type);
tn_type tni_lane_type(int lane); /* what its values are in memory */
/* What a comparison of a node's two arguments compares in. */
int tni_lane_of_test(const tni_graph *g, const tni_gnode *node);

/* Views of arguments: several where a formula takes parts. */
enum { TNI_MAX_VIEWS = 4 * TNI_MAX_ARGS };

/* ---- the domain (domain.c) --------------------------------------------------------------------------------------- */

/* The shape that everything broadcasts to, and where each argument lies in it. */
typedef struct tni_domain {
    int32_t n_dims;
    int64_t size[TN_MAX_RANK];   /* -1: unknown, where those of the tensors are */
    uint32_t tail;               /* the last dimension's bit; 0 where its size is 1, unless it is that of lists */
    bool turned;                 /* the last one was another, and elements lie beside each other along the one before */
    uint32_t items[TN_MAX_RANK]; /* by name: the dimensions of each item of the formula's shapes */
    struct {
        uint32_t mask;                /* dimensions that it has with a size other than 1 */
        int64_t strides[TN_MAX_RANK]; /* 0 where it has not */
        tn_type type;
        bool present;
        bool stretched; /* along the last dimension: each element stands for as many as the stride says (stretch.c) */
        int32_t index;  /* which argument of the call; parts.c makes several views of one */
        int64_t offset; /* where its first element lies, in elements */
    } in[TNI_MAX_VIEWS], out[TNI_MAX_VIEWS];
    struct {
        int32_t from, to;      /* dimensions; -1: a size of 1 */
        int64_t begin, length; /* of the whole: how many elements it has */
        int64_t step;
        bool spreads;
    } windows[TNI_WINDOWS];
} tni_domain;

/* What a size of the formula comes to in a call. */
tn_status tni_size_in(const tni_fuse *formula, const tn_call *call, const int64_t *dims, const tni_size *size,
                      int64_t *made);
/* domain_parts.c: what windows come to, now that the dimensions of arguments are known; `first` of each item. */
tn_status tni_place_windows(const tni_fuse *formula, const tn_call *call, const int32_t *first, tni_domain *domain);
/* Sizes of tensors may be unknown, -1: each stands for any size but 1, in every tensor of the call. */
tn_status tni_make_domain(const tni_fuse *formula, const tn_call *call, tni_domain *domain);
/* Makes one of dimensions that lie together in every argument and that all reductions along items go along together:
 * rows are longer then, and what went along several of their dimensions goes along one. */
void tni_merge_domain(const tni_fuse *formula, tni_domain *domain);
/* Dimension d + 1 takes d in, and has its place then. */
void tni_merge_dim(tni_domain *domain, int32_t d);
/* An argument of the call that is a list, for how many tensors there are and how large they are. */
const tn_slot *tni_list_of(const tni_fuse *formula, const tn_call *call);
/* The graph of a call whose arguments lie so. */
tn_status tni_specialize_in(const tni_fuse *formula, const tni_domain *domain, const tn_value *attrs,
                            tni_specialized *made);
/* The dimensions of a node; `masks` has those of the nodes before it. */
uint32_t tni_node_mask(const tni_domain *domain, const tni_gnode *node, const uint32_t *masks);
/* The dimensions that a reduction or a count of this kind goes over, of a value that has `mask`. */
uint32_t tni_reduced_mask(const tni_domain *domain, uint32_t kind, uint32_t mask);
int64_t tni_mask_count(const tni_domain *domain, uint32_t mask);
/* Of memory that has the mask's dimensions and lies densely. */
void tni_mask_strides(const tni_domain *domain, uint32_t mask, int64_t *strides);

/* ---- passes ------------------------------------------------------------------------------------------------------ */

/* Memory that a pass reads or writes. */
typedef enum tni_where {
    TNI_FROM_CALL_IN,
    TNI_FROM_CALL_OUT,
    TNI_FROM_WORKSPACE,
    TNI_FROM_PLACE /* there is none: the value of an element is how far its strides lead, in i64 */
} tni_where;
typedef struct tni_memory {
    uint8_t where;
    int32_t index;  /* input or output */
    int64_t offset; /* bytes into the workspace, or from where the argument begins */
    tn_type type;
    bool list;                        /* one tensor for each part of the row */
    bool stretched;                   /* an element is that of so many columns as the last stride says */
    int64_t strides[TN_MAX_RANK + 1]; /* over the pass's dimensions, the last one along a row; in elements */
    int64_t step[TN_MAX_RANK];        /* bytes from slice to slice, along each of the domain's dimensions */
} tni_memory;

/* A reduction over more than rows. */
typedef struct tni_accumulator {
    uint8_t op, lane;
    bool deviates;   /* the sum of the squares of what values are off their mean */
    int64_t size;    /* results */
    int64_t partial; /* bytes into the workspace: where the backend keeps partial results */
    int64_t result;  /* bytes into the workspace: (size), 8 bytes each */
    int32_t output;  /* of the call, which it becomes at once; -1: the workspace */
    int64_t strides[TN_MAX_RANK + 1];
} tni_accumulator;

typedef struct tni_pass {
    uint32_t rows_mask; /* dimensions of the domain that its rows have */
    int32_t phase;
    bool narrow;    /* gathers values of rows, without the last dimension */
    bool last;      /* updates inputs: after everything else of its phase */
    int32_t n_dims; /* of rows, merged where memory allows */
    int64_t size[TN_MAX_RANK + 1];
    int64_t columns;
    bool reduces; /* has row reductions: rows stay whole */
    bool coarse;  /* everything that it makes is rounded to bf16: functions need not be exact to more */
    int32_t n_memory, n_accumulators;
    tni_memory *memory;
    tni_accumulator *accumulators;
} tni_pass;

typedef struct tni_program {
    const struct tni_backend *backend;
    void *own; /* the backend's */
    int32_t n_passes;
    tni_pass *passes; /* over one slice of the call */
    size_t workspace;
    int64_t n_slices;            /* 1: the call as a whole; each goes through all passes, and has its own workspace */
    int64_t slices[TN_MAX_RANK]; /* along each of the domain's dimensions */
    size_t slice_workspace;
    tn_cost cost;
    tni_arena *arena;
    int32_t n_parts;
    int64_t *parts; /* elements of each tensor of the lists; NULL: there are none */
    int32_t n_counts;
    int64_t *counts; /* sizes that the formula computes with: arguments of what is compiled, not part of it */
} tni_program;

/* Where memory begins (NULL where there is none), of tensor `part` of a list. */
char *tni_memory_base(const tn_call *call, const tni_memory *memory, int32_t part);

/* ---- programs ---------------------------------------------------------------------------------------------------- */

/* Makes a formula ready for calls of one form: types, shapes, strides, attributes, which optional ones are present.
 * Looks at no data. The first backend of the call's device that accepts it has it from then on; one that compiles does
 * so here, unless the cache has it. */
tn_status tni_fuse_bind(const tni_fuse *formula, const tn_call *call, tni_program **made);
/* The same for this backend, which need not be in the list. */
tn_status tni_fuse_bind_to(const tni_fuse *formula, const tn_call *call, const struct tni_backend *backend,
                           tni_program **made);
void tni_program_free(tni_program *program); /* NULL is fine */
/* Any call of that form, on the device that it was bound for; on a GPU in the call's stream. Inputs that the formula
 * updates are written; no other memory may be shared. */
tn_status tni_program_run(const tni_program *program, const tn_call *call);

/* The program of the backend of this name, and the text that it compiles, for whichever device. Sizes and strides are
 * arguments, so the text serves every call of the same types and structure. Such a program is not loaded. The caller
 * frees both. */
tn_status tni_fuse_emit(const tni_fuse *formula, const tn_call *call, const char *backend, tni_program **made,
                        char **source);
tn_status tni_fuse_emit_for(const tni_fuse *formula, const tn_call *call, const struct tni_backend *backend,
                            tni_program **made, char **source);

/* The plain reference (reference.c): one operation after the other, every value in double. */
tn_status tni_fuse_reference(const tni_fuse *formula, const tn_call *call);

/* What a call must move and compute, without a program for it. */
tn_status tni_fuse_cost(const tni_fuse *formula, const tn_call *call, tn_cost *cost);

#endif
