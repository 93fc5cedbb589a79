/* Finding operators and calling them by name. Programs that know the operator use the typed functions of tenon/ops.h.
 */
#ifndef TENON_CALL_H
#define TENON_CALL_H

#include <tenon/op.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What can be called: a row of the table, or a formula. It is the library's: nobody frees a row of the table, and
 * tenon/fuse.h says how long a formula lasts. tn_shutdown ends them all. */
typedef struct tn_function tn_function;

TN_API const tn_function *tn_find(const char *name); /* NULL and a message where there is none */
TN_API int tn_function_count(void);                  /* 0 and a message where there is no memory for the table */
TN_API const tn_function *tn_function_at(int index); /* in the table's order; NULL and a message past the end */
/* Both last as long as the operator. NULL and a message for NULL. */
TN_API const char *tn_function_name(const tn_function *op);
TN_API const tn_op *tn_function_row(const tn_function *op);

/* Adds the operators of a shared object to the table. Loading the same file again does nothing; one that
 * has changed since is refused, because operators stay as they were loaded. The file stays open until tn_shutdown. */
TN_API tn_status tn_load(const char *path);

/* The whole table, or one operator, as JSON; the caller frees it with tn_free. NULL and a message on failure. */
TN_API char *tn_table_json(void);
TN_API char *tn_function_json(const tn_function *op);
/* The gradient rule of an operator, or null; of a formula it is derived now, unless it was before. */
TN_API char *tn_gradient_json(const tn_function *op);
/* Frees text that the library returned. NULL is fine. */
TN_API void tn_free(void *memory);

/* Gives back all that the library holds: threads are joined, plans and their kernels' states released, formulas and
 * plugins gone, pools emptied, contexts and modules of GPUs released. Every tn_function is gone then. Blocks of memory,
 * streams, events, parameters and text that the caller still has are to be given back before. For programs that end, or
 * unload the library, and want to leave nothing behind (valgrind, dlclose); not for processes in which a framework uses
 * Tenon. No other call may run meanwhile. A later call starts everything anew. */
TN_API void tn_shutdown(void);

/* A named attribute: {"axis", {.kind = TN_ATTR_INT, .i = 1}}, or by the functions below. */
typedef struct tn_attr {
    const char *name;
    tn_value value;
} tn_attr;

TN_API tn_attr tn_attr_int(const char *name, int64_t value);
TN_API tn_attr tn_attr_float(const char *name, double value);
TN_API tn_attr tn_attr_bool(const char *name, bool value);
TN_API tn_attr tn_attr_str(const char *name, const char *value);
TN_API tn_attr tn_attr_type(const char *name, tn_type value);
TN_API tn_attr tn_attr_ints(const char *name, const int64_t *values, int32_t count);

/* The arguments of a call. Missing trailing inputs are absent; unset attributes take their defaults. The caller owns
 * all of it; a call keeps no pointer when it returns, but on a GPU the work that it put into the stream still reads and
 * writes the tensors' data. */
typedef struct tn_args {
    const tn_tensor *const *in; /* in the signature's order; NULL: absent. Lists are laid out one after the other. */
    int32_t n_in;
    const int32_t *lengths; /* of operators with list inputs: how many of `in` each input has; else NULL */
    const tn_attr *attrs;   /* by name, in any order */
    int32_t n_attrs;
    tn_tensor *const *out; /* in the signature's order; NULL: not wanted. The caller owns them. */
    int32_t n_out;
    const char *kernel; /* only this one; NULL: the best that accepts */
} tn_args;

/* What inference says of an output. */
typedef struct tn_spec {
    bool present;               /* false: a `?` output that was not asked for */
    tn_type type;               /* TN_NO_TYPE: unknown */
    int32_t ndim;               /* -1: unknown */
    int64_t shape[TN_MAX_RANK]; /* -1: unknown */
} tn_spec;

/* Output types and shapes. Looks at no data; a dimension of -1 or a rank of -1 in an input means that it is not known
 * yet. `?` outputs are present when their attribute want_<name> is true. specs: one for each output. */
TN_API tn_status tn_infer(const tn_function *op, const tn_args *args, tn_spec *specs);

/* Checks the call, picks a kernel and runs it. host NULL: the default one. At least one output must be wanted, unless
 * the operator writes into an input. Threads may call the same operator at once; two calls that write to the same
 * memory may not overlap. On a GPU it returns when the work is in the host's stream. */
TN_API tn_status tn_run(const tn_function *op, const tn_args *args, const tn_host *host);

/* Does everything of tn_run but the running: the kernel's plan is made and kept. Data pointers may be NULL. */
TN_API tn_status tn_prepare(const tn_function *op, const tn_args *args, const tn_host *host);

/* The most bytes that tn_run takes from the host, each block at a multiple of 64, unless an output lies in the memory
 * of an input: a host that gives out pieces of what it has set aside needs no more. The plan is made and kept, as
 * tn_prepare does it; outputs that are wanted must be there. */
TN_API tn_status tn_workspace(const tn_function *op, const tn_args *args, size_t *bytes);

/* The name of the kernel that tn_run would take, which lasts as long as the operator, and what must be moved and done.
 * Either may be NULL. */
TN_API tn_status tn_explain(const tn_function *op, const tn_args *args, const char **kernel, tn_cost *cost);

/* "0.1.0", of the library that runs; tenon/version.h has the version that a program was compiled with. A constant. */
TN_API const char *tn_version(void);

#ifdef __cplusplus
}
#endif
#endif
