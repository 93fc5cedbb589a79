/* Kernels as text: CUDA C with a `__global__` function, or C, becomes a kernel of an operator. What its parameters are
 * given goes by their names, and how it is launched is one line (docs/own-kernels.md has both).
 *
 *     static const tn_source gpu = {
 *         .cuda = "__global__ void add(const float *x, float c, float *y, long long n) {\n"
 *                 "    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;\n"
 *                 "    if (i < n) y[i] = x[i] + c;\n"
 *                 "}",
 *         .launch = "elements",
 *     };
 *     static const tn_kernel kernels[] = {TN_CUDA_SOURCE("gpu", gpu), {0}};
 *
 * The CUDA text is compiled by NVRTC when it is first needed, and kept in the cache of formulas. */
#ifndef TENON_KERNEL_H
#define TENON_KERNEL_H

#include <tenon/call.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The text of a kernel. All of it stays where it is for as long as the operator is there. */
typedef struct tn_source {
    const char *cuda;    /* CUDA C */
    const char *cpu;     /* C: a function with the operator's name, or the only one that is not static */
    const char *launch;  /* "elements", "rows", "tiles(16, 16)", "grid=ceil_div(n, 256) block=256"; NULL: "elements" */
    const char *file;    /* what messages of the compiler call the text, "scale.cu"; NULL: the operator's name */
    const char *options; /* for the compiler, "-DN=3 --use_fast_math"; NULL: none */
} tn_source;

/* Rows of tn_op.kernels, whose `data` is the tn_source: TN_CUDA_SOURCE("gpu", source, .types = TN_BIT(TN_F32)). */
TN_API bool tn_source_accepts(const tn_call *call);
TN_API size_t tn_source_workspace(const tn_call *call);
TN_API tn_status tn_source_prepare(const tn_call *call, void **state);
TN_API void tn_source_release(void *state);
TN_API tn_status tn_source_run(const tn_call *call, void *state);
#define TN_SOURCE_(label, where, source, ...)                                                                \
    {                                                                                                        \
        .name = (label), .device = (where), .accepts = tn_source_accepts, .workspace = tn_source_workspace,  \
        .prepare = tn_source_prepare, .release = tn_source_release, .run = tn_source_run, .data = &(source), \
        __VA_ARGS__                                                                                          \
    }
#define TN_CUDA_SOURCE(label, ...) TN_SOURCE_(label, TN_CUDA, __VA_ARGS__, )
#define TN_CPU_SOURCE(label, ...) TN_SOURCE_(label, TN_CPU, __VA_ARGS__, )

/* An operator that is text as a whole. Only the signature and one of formula, source.cuda and source.cpu must be there.
 * {.size = sizeof(tn_kernel_text), …}. */
typedef struct tn_kernel_text {
    size_t size;           /* of this struct */
    const char *signature; /* the contract: "add(x: T[n], c: float) -> y: T[n]" */
    const char *doc;       /* one line */
    const char *formula;   /* what it computes: the reference, a kernel for the CPU, and the gradient */
    const char *grad;      /* a rule, "x: add_grad(x, dy)", or a formula, "dx = dy * c" */
    const char *samples;   /* calls to check with, one on each line; NULL: some are made up */
    tn_source source;
} tn_kernel_text;

/* Adds the operator to the table. The same text again gives the same operator. Another text for a name that such an
 * operator has already becomes NAME_2, NAME_3 …: whoever uses the first one keeps it. All of `text` is copied. From any
 * thread. */
TN_API tn_status tn_kernel_define(const tn_kernel_text *text, const tn_function **op);
/* The same as the text of a file, which tn_load reads; the caller frees it with tn_free. NULL and a message for
 * operators that were not defined so. */
TN_API char *tn_kernel_write(const tn_function *op);

/* Code that `tenon build` has compiled ahead: a plugin exports `const tn_built tenon_built[]`, which an entry of 0
 * bytes ends. Where none fits the GPU, NVRTC compiles the text. */
typedef struct tn_built {
    uint64_t key[2]; /* of the text and its types */
    int32_t major, minor;
    uint64_t bytes;
    const unsigned char *data;
} tn_built;

#ifdef __cplusplus
}
#endif
#endif
