/* How an operator is written: one `tn_op`. Everything a framework needs is derived from its signature
 * (docs/contract.md has the language, docs/adding-an-operator.md a complete example). */
#ifndef TENON_OP_H
#define TENON_OP_H

#include <tenon/host.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Counts up whenever a struct in this file changes. A plugin built for another number is refused before it is opened.
 */
#define TN_ABI 1

/* ---- What a kernel sees ------------------------------------------------------------------------------------------ */

/* One tensor. An input that broadcasts (`~`) has its full shape here, with strides of 0. */
typedef struct tn_view {
    void *data;             /* the first element; NULL in accepts, workspace, prepare and cost */
    const int64_t *shape;   /* (ndim) */
    const int64_t *strides; /* (ndim), in elements, never NULL */
    int32_t ndim;
    tn_type type;
} tn_view;

/* One argument of the signature: count is 0 where an optional one is absent, and the length of a list. */
typedef struct tn_slot {
    const tn_view *views;
    int32_t count;
} tn_slot;

typedef enum tn_attr_kind {
    TN_ATTR_UNSET,
    TN_ATTR_INT,
    TN_ATTR_FLOAT,
    TN_ATTR_BOOL,
    TN_ATTR_STR,
    TN_ATTR_TYPE,
    TN_ATTR_INTS
} tn_attr_kind;

/* The value of an attribute. */
typedef struct tn_value {
    int16_t kind;   /* tn_attr_kind; TN_ATTR_UNSET: not given (a default, or an absent optional one) */
    int16_t choice; /* of 'a'|'b'|'c': which one; set by the core */
    int32_t count;  /* elements of ints */
    union {
        int64_t i;
        double f;
        bool b;
        const char *s;
        tn_type type;
        const int64_t *ints;
    };
} tn_value;

typedef struct tn_kernel tn_kernel;

typedef struct tn_call {
    const char *name;      /* the operator's */
    const tn_slot *in;     /* in the signature's order, tensors only */
    const tn_slot *out;    /* in the signature's order; count 0: not wanted */
    const tn_value *attrs; /* in the signature's order, attributes only; then want_<output> for outputs marked `?`.
                              Axes are non-negative; axes lists are sorted, [] has become all of them. */
    tn_device device;
    void *workspace; /* as many bytes as `workspace` asked for, 64-byte aligned */
    const tn_host *host;
    const tn_kernel *kernel; /* the one that is asked, or runs: `data` is its own */
    void *state;             /* in workspace, cost and run: what prepare made */
} tn_call;

/* Argument i, or NULL where it is absent. */
static inline const tn_view *tn_in(const tn_call *call, int i) {
    return call->in[i].count ? call->in[i].views : NULL;
}
static inline const tn_view *tn_out(const tn_call *call, int i) {
    return call->out[i].count ? call->out[i].views : NULL;
}

/* The product of shape[begin … end - 1]. */
static inline int64_t tn_product(const tn_view *v, int begin, int end) {
    int64_t n = 1;
    for (int i = begin; i < end; i++) n *= v->shape[i];
    return n;
}
static inline int64_t tn_count(const tn_view *v) {
    return tn_product(v, 0, v->ndim);
}

/* Splits 0 … n - 1 over the host's threads. Results must not depend on where the pieces end. */
static inline void tn_parallel(const tn_call *call, int64_t n, int64_t grain, tn_body body, void *arg) {
    if (n <= grain || call->host->parallel == NULL) {
        if (n > 0) body(arg, 0, n);
    } else {
        call->host->parallel(call->host->context, n, grain, body, arg);
    }
}

/* Element i of memory of a real type as a double, and back (rounded to nearest even): for references, not for speed. */
TN_API double tn_get(tn_type type, const void *data, int64_t i);
TN_API void tn_set(tn_type type, void *data, int64_t i, double value);

/* ---- What an author writes --------------------------------------------------------------------------------------- */

typedef struct tn_cost {
    double bytes; /* that must move: each input read once, each output written once */
    double flops;
} tn_cost;

/* Instruction sets that a CPU kernel may need beyond the baseline; the core leaves out what the machine lacks. */
enum { TN_ISA_AVX2 = 1, TN_ISA_AVX512 = 2 };

/* flags of a kernel */
enum {
    TN_STRIDED = 1,         /* takes any strides; without it the core hands over dense tensors, copying where it must */
    TN_ALIAS = 2,           /* an output may be the very memory of an input of the same shape, strides and type */
    TN_MAY_DECLINE = 4,     /* where prepare returns TN_UNSUPPORTED, the next kernel takes the call, and TENON_LOG has
                               the message: for what is found out there, such as a library that is not installed */
    TN_SPARE_WORKSPACE = 8, /* run does without: workspace is NULL where there is no memory for it */
    TN_ROWS_VARY = 16,      /* a row may come out with other bits beside other rows, and `tenon check` does not ask for
                               the same: for libraries that choose by the shape of all of it */
};

struct tn_kernel {
    const char *name; /* "warp_row", "avx2", "ref" */
    tn_device_kind device;
    uint32_t types;                                      /* TN_BIT()s that T may be; 0: whatever the signature allows */
    uint32_t isa;                                        /* TN_ISA_…; 0: none needed */
    uint32_t flags;                                      /* TN_STRIDED … */
    bool (*accepts)(const tn_call *call);                /* NULL: whatever the signature allows */
    size_t (*workspace)(const tn_call *call);            /* bytes, asked for after prepare; NULL: none */
    tn_status (*prepare)(const tn_call *, void **state); /* NULL: none; kept by the core for calls of the same shape */
    void (*release)(void *state);
    tn_status (*run)(const tn_call *call, void *state);
    const void *data; /* the kernel's own */
};

/* One call to check and measure with. `args` names dimensions, attributes, type variables and optional inputs:
 *     "s=[4, 33] axis=0 mask=[1, 33]"      mask is given an explicit shape that broadcasts
 *     "r=[2, 3] c=64 gamma beta W=f32"     optional inputs are present when named, with the contract's shape
 *     "r=[5] v=10 target<v reduction='sum'"  integers are drawn from 0 … v - 1
 *     "s=[4, 9] n=5 axis=1 index<s[axis]"  the size of *s along the axis; an int attribute may stand there, too
 *     "c=7 var>0"                          only positive numbers
 *     "n=9 x=sorted"                       none is less than the one before it
 *     "n=9 v=50 index<v index=unique"      integers below v, none of them twice
 *     "n=9 order=permutation"              0 … n - 1, each once
 *     "m=4 nnz=9 row=offsets(nnz)"         sorted, the first 0 and the last nnz: where each of m parts begins and ends
 * Each row of the last dimension is sorted, unique, a permutation or offsets by itself; where the operator has an
 * attribute `axis`, each row along that. */
typedef struct tn_sample {
    const char *args;
    double tolerance; /* how many times the usual rounding bound a result may be off; 0: once */
    bool bench;       /* a shape for measuring speed; checks leave it out */
} tn_sample;

typedef struct tn_op {
    const char *signature;
    const char *doc;                      /* one line */
    const char *grad;                     /* gradient rule, or NULL: differentiating raises */
    const char *formula;                  /* its statements: kernels and gradient are derived (docs/formulas.md), or
                                             NULL. Kernels given all the same come first, a rule given is taken */
    const char *autocast;                 /* "16", "32", "widest" or NULL: as it comes */
    const tn_kernel *kernels;             /* best first, plain reference last, {0} ends */
    tn_cost (*cost)(const tn_call *call); /* NULL: no flops. bytes of 0: each tensor moved once */
    const tn_sample *samples;             /* {0} ends */
} tn_op;

/* A shared object with operators exports `const tn_plugin tenon_plugin = TN_PLUGIN(table);` */
typedef struct tn_plugin {
    uint32_t abi;
    uint32_t op_size;
    uint32_t kernel_size;
    uint32_t count;
    const tn_op *const *ops;
} tn_plugin;

#define TN_PLUGIN(table) \
    { TN_ABI, sizeof(tn_op), sizeof(tn_kernel), sizeof(table) / sizeof((table)[0]), table }

/* Seen from outside in C++ too, and whatever -fvisibility says. */
TN_API extern const tn_plugin tenon_plugin;

#ifdef __cplusplus
}
#endif
#endif
