/* What a kernel takes of a GPU, and what holds it back: of kernels from text, whose launches Tenon makes itself. */
#ifndef CLI_BENCH_KERNEL_H
#define CLI_BENCH_KERNEL_H

#include "bench_gpu.h"

enum { MOST_LAUNCHES = 8 };

typedef struct kernel_use {
    tn_launch launch;
    tn_cuda_code code;
    int blocks;      /* that an SM holds at a time; with clusters, clusters of the whole GPU */
    double measured; /* part of an SM's warps that are active on average, by ncu; 0: not measured */
} kernel_use;

/* The kernels that a call launches; 0: they are not known, since the operator launches them by itself. */
int32_t kernel_uses(const tn_function *op, const tni_case *sample, const char *kernel, int device,
                    kernel_use uses[static MOST_LAUNCHES]);
/* Fills `measured` in. words: what `tenon` is called with to make the calls, for a shell. why: what stands in the way,
 * or "". */
void ncu_measure(const char *words, kernel_use *uses, int32_t n, char *why, size_t size);
/* Lines below a row of the table. part: of the copy's speed. */
void print_uses(const tn_gpu *gpu, const kernel_use *uses, int32_t n, const gpu_measurement *m, double part);
/* A list, for JSON. */
void json_uses(tni_text *text, const tn_gpu *gpu, const kernel_use *uses, int32_t n);

#endif
