/* CUDA for authors of operators: a kernel is found in code that you embed, inspected and launched. The operators of
 * Tenon's own table use these very functions. No header of CUDA's is needed to compile with this one, and nothing of
 * CUDA's is linked: the driver is opened when a GPU is first used.
 *
 *     extern const unsigned char scale_cubin[], scale_cubin_end[];
 *
 *     static tn_status prepare(const tn_call *call, void **state) {
 *         tn_launch *l = (tn_launch *)calloc(1, sizeof *l);
 *         if (!l) return TN_NO_MEMORY;
 *         l->grid = (uint32_t)((tn_count(tn_in(call, 0)) + 255) / 256);
 *         l->block = 256;
 *         *state = l;
 *         return tn_cuda_find(call, l, scale_cubin, (size_t)(scale_cubin_end - scale_cubin), "scale_f32");
 *     }
 *     static tn_status run(const tn_call *call, void *state) {
 *         void *x = tn_in(call, 0)->data, *y = tn_out(call, 0)->data;
 *         int64_t n = tn_count(tn_in(call, 0));
 *         void *arguments[] = {&x, &y, &n};
 *         return tn_cuda_launch(call, (const tn_launch *)state, arguments);
 *     }
 *
 * `call` is always the one that a function of the kernel's row is given: messages begin with its operator's name, and
 * its device and stream are what is used. The device's context is current whenever `accepts`, `prepare`, `workspace`,
 * `run` or `release` of a plugin is called, so calls of the CUDA driver and the CUDA runtime find the right GPU there.
 *
 * All functions may be called from any thread, and from many at once. A tn_launch belongs to the caller: several
 * threads may launch from the same one while nobody changes it. docs/cuda.md is the guide to this header and to
 * tenon/device.cuh, the device code that goes with it. */
#ifndef TENON_CUDA_H
#define TENON_CUDA_H

#include <tenon/op.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- kernels and launches ---------------------------------------------------------------------------------------- */

/* A kernel and how it is launched. Begin with zeros; set what differs. */
typedef struct tn_launch {
    struct CUkern_st *kernel; /* CUDA's CUkernel, good in every context; tn_cuda_find sets it */
    char name[64];            /* of the kernel, for messages; tn_cuda_find sets it */
    uint32_t grid;            /* blocks along x; 0: tn_cuda_launch does nothing */
    uint32_t block;           /* threads of a block along x */
    uint32_t shared;          /* bytes of dynamic shared memory of a block */
    uint32_t cluster;         /* blocks of a cluster, along x (sm_90 and later); 0 or 1: none */
    bool programmatic;        /* may start before the kernel ahead of it in the stream is done; it calls
                                 tn::wait_for_last() before it reads what that one writes (sm_90 and later) */
    uint32_t grid_y, grid_z, block_y, block_z; /* 0 means 1 */
} tn_launch;

/* Finds the kernel `name` in `image`: `bytes` of a cubin, a fatbin or PTX, as nvcc or NVRTC make them. For `prepare`.
 * The kernel's name is that in the code: declare it extern "C", or pass the mangled name.
 *
 * An image is loaded once for each process and GPU, whoever asks for it, and known by its bytes: it may move or go when
 * this returns. It stays loaded until tn_shutdown. The kernel may use as much dynamic shared memory as a block of the
 * GPU can have, and clusters of up to 16 blocks where the GPU has them. It can be called while a CUDA graph is
 * captured: loading is no part of the graph.
 *
 * Fails with TN_UNSUPPORTED where the image has no code for the GPU, and with TN_NOT_FOUND where it has no such kernel.
 */
TN_API tn_status tn_cuda_find(const tn_call *call, tn_launch *launch, const void *image, size_t bytes,
                              const char *name);

/* Launches on the call's device and stream, and does not wait. `arguments` has a pointer to each of the kernel's
 * parameters, in order; they are read before it returns. It allocates nothing and looks nothing up: a call can be
 * captured in a CUDA graph. */
TN_API tn_status tn_cuda_launch(const tn_call *call, const tn_launch *launch, void **arguments);

/* How many blocks of this launch one SM holds at a time. With clusters: how many clusters the whole GPU holds. */
TN_API tn_status tn_cuda_occupancy(const tn_call *call, const tn_launch *launch, int *most);

/* What the compiler made of a kernel. */
typedef struct tn_cuda_code {
    int32_t registers;      /* of a thread */
    int32_t static_shared;  /* bytes of shared memory of a block, besides tn_launch.shared */
    int32_t local_bytes;    /* of a thread, in local memory: more than 0 means that registers are spilled, or arrays
                               are indexed by what is not known when compiling */
    int32_t constant_bytes; /* of __constant__ variables */
    int32_t most_threads;   /* that a block can have: its registers allow no more, or __launch_bounds__ says so */
    int32_t compiled_for;   /* 90 for sm_90: the code that the GPU runs */
} tn_cuda_code;
TN_API tn_status tn_cuda_inspect(const tn_call *call, const tn_launch *launch, tn_cuda_code *code);

/* ---- the GPU ----------------------------------------------------------------------------------------------------- */

/* What is known of a GPU; read once. Later versions may add members at the end. */
typedef struct tn_gpu {
    int32_t index;
    char name[96];        /* "NVIDIA H200" */
    int32_t major, minor; /* compute capability: 9, 0 */
    int32_t sms;          /* streaming multiprocessors */
    int32_t l2_bytes;
    int32_t threads_per_block, threads_per_sm, blocks_per_sm, registers_per_sm;
    int32_t shared_per_block, shared_per_sm; /* bytes of shared memory: the most of a block, and all that an SM has */
    int32_t shared_reserved;                 /* bytes that the system keeps for each block of an SM */
    size_t memory;                           /* bytes */
} tn_gpu;

/* The GPU that the call runs on. The struct is the library's and stays as it is. */
TN_API tn_status tn_cuda_gpu(const tn_call *call, const tn_gpu **gpu);

/* ---- errors ------------------------------------------------------------------------------------------------------ */

/* Writes this thread's message for a CUresult or cudaError_t that is not 0, and returns the status to pass on:
 * `return tn_cuda_failed(call, "cudaMemsetAsync", error);` says
 *     my_op: cudaMemsetAsync: CUDA error 700 (CUDA_ERROR_ILLEGAL_ADDRESS): an illegal memory access was encountered
 * After an error that ends the GPU's context for good, later calls of this process name this one. 0 is TN_OK. */
TN_API tn_status tn_cuda_failed(const tn_call *call, const char *what, int error);

/* ---- cuBLASLt ---------------------------------------------------------------------------------------------------- */

/* NVIDIA's library of matrix products, as Tenon has found it: a copy that the process has already, the system's, one of
 * Python's packages; TENON_CUBLASLT names another one. Nothing is linked: take its functions from `library` with dlsym,
 * and their types from NVIDIA's cublasLt.h. Later versions may add members at the end. */
typedef struct tn_cublaslt {
    void *library;                  /* of dlopen */
    struct cublasLtContext *handle; /* cublasLtHandle_t of the call's context; it stays the library's */
    int32_t version;                /* 130100 is 13.1.0; 12 or newer */
    size_t workspace;               /* bytes that are good for the GPU: let the kernel's `workspace` ask for as many */
} tn_cublaslt;

/* For `prepare` and `run`. TN_UNSUPPORTED where there is none that can be used: with TN_MAY_DECLINE among its flags, a
 * kernel whose `prepare` passes that on leaves the call to the next one. */
TN_API tn_status tn_cuda_cublaslt(const tn_call *call, tn_cublaslt *lt);

/* tn_cuda_failed for a cublasStatus_t, with the library's own words. */
TN_API tn_status tn_cuda_cublaslt_failed(const tn_call *call, const char *what, int error);

#ifdef __cplusplus
}
#endif
#endif
