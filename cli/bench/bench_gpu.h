/* What `tenon bench --device cuda` measures with. */
#ifndef CLI_BENCH_GPU_H
#define CLI_BENCH_GPU_H

#include "bench.h"
#include "cli/nvml.h"

/* Two clocks: events around single launches, as a caller sees them; and many calls in one graph, where nothing but the
 * GPU takes time. `median` is 0 where that was not measured. */
typedef struct gpu_timing {
    spread events, graph;
} gpu_timing;

typedef struct gpu_measurement {
    const char *kernel;
    tn_cost cost;
    gpu_timing cold; /* every call finds its data in memory, not in the L2 cache */
    gpu_timing hot;  /* the same data again and again; only where it fits into half of L2 */
    gpu_timing copy; /* as many bytes, cold: the better of a kernel and the copy engine */
    bool by_kernel;  /* the better one was the kernel */
    spread call;     /* what tn_run itself takes on the CPU */
    int buffers;     /* that take turns in `cold` */
    bool flushed;    /* they are too small for that: L2 is filled with something else between calls */
    int repeats, graphs, graph_calls;
} gpu_measurement;

/* Measures the call on this GPU for about `seconds`. */
tn_status bench_gpu(const tn_function *op, const tni_case *sample, const char *kernel, int device, double seconds,
                    gpu_measurement *m);
/* Multiply-adds in registers, flop/s; 0 where this build has no such kernel for the GPU. type: TN_F32 or TN_F64. */
double bench_fma(int device, tn_type type);
/* Seconds of the CPU that the driver takes to launch a kernel that does nothing: what `call` is held against. 0 as
 * above. */
double bench_launch(int device);

#endif
