/* The CUDA driver, opened at first need. No CUDA header is included and no CUDA library is linked: what is used of the
 * driver API is written out here, with the CUDA version that brought each function. */
#ifndef TNI_CUDA_DRIVER_H
#define TNI_CUDA_DRIVER_H

#include <tenon/op.h>

typedef uint64_t cu_pointer; /* CUdeviceptr */
typedef struct CUctx_st *cu_context;
typedef struct CUstream_st *cu_stream;
typedef struct CUevent_st *cu_event;
typedef struct CUlib_st *cu_library;
typedef struct CUkern_st *cu_kernel; /* CUkernel: a kernel of a library, good in every context */
typedef struct CUfunc_st *cu_function;
typedef struct CUgraph_st *cu_graph;
typedef struct CUgraphExec_st *cu_graph_exec;
typedef struct CUmemPoolHandle_st *cu_pool;

typedef struct cu_attribute { /* CUlaunchAttribute */
    int32_t id;
    char pad[4];
    union {
        char bytes[64];
        struct {
            uint32_t x, y, z;
        } cluster;
        int32_t flag;
    } value;
} cu_attribute;
enum { CU_CLUSTER = 4, CU_PROGRAMMATIC = 6 };

typedef struct cu_config { /* CUlaunchConfig */
    uint32_t grid_x, grid_y, grid_z, block_x, block_y, block_z, shared;
    cu_stream stream;
    cu_attribute *attributes;
    uint32_t n_attributes;
} cu_config;

typedef struct cu_pool_properties { /* CUmemPoolProps */
    int32_t allocation;             /* 1: pinned, the only kind */
    int32_t handles;
    int32_t location, device; /* 1: device memory, and whose */
    void *security;
    size_t most;
    uint8_t reserved[56];
} cu_pool_properties;
enum { CU_POOL_RELEASE_THRESHOLD = 4, CU_POOL_RESERVED = 5, CU_POOL_USED = 7, CU_POOL_USED_HIGH = 8 };
enum { CU_STREAM_NON_BLOCKING = 1 };
enum { CU_CAPTURE_RELAXED = 2 };

/* X(name, version, result arguments). cuGetProcAddress picks the variant that this version introduced. */
#define TNI_CUDA_FUNCTIONS(X)                                                                                         \
    X(cuInit, 2000, (unsigned flags))                                                                                 \
    X(cuGetErrorName, 6000, (int error, const char **name))                                                           \
    X(cuGetErrorString, 6000, (int error, const char **text))                                                         \
    X(cuDeviceGetCount, 2000, (int *count))                                                                           \
    X(cuDeviceGetName, 2000, (char *name, int length, int device))                                                    \
    X(cuDeviceTotalMem, 3020, (size_t * bytes, int device))                                                           \
    X(cuDeviceGetAttribute, 2000, (int *value, int attribute, int device))                                            \
    X(cuMemPoolCreate, 11020, (cu_pool * pool, const cu_pool_properties *properties))                                 \
    X(cuMemPoolSetAttribute, 11020, (cu_pool pool, int attribute, void *value))                                       \
    X(cuMemPoolGetAttribute, 11020, (cu_pool pool, int attribute, void *value))                                       \
    X(cuMemPoolDestroy, 11020, (cu_pool pool))                                                                        \
    X(cuDevicePrimaryCtxRetain, 7000, (cu_context * context, int device))                                             \
    X(cuDevicePrimaryCtxRelease, 11000, (int device))                                                                 \
    X(cuCtxGetCurrent, 4000, (cu_context * context))                                                                  \
    X(cuCtxGetDevice, 2000, (int *device))                                                                            \
    X(cuCtxGetId, 12000, (cu_context context, unsigned long long *id))                                                \
    X(cuCtxPushCurrent, 4000, (cu_context context))                                                                   \
    X(cuCtxPopCurrent, 4000, (cu_context * context))                                                                  \
    X(cuCtxSynchronize, 2000, (void))                                                                                 \
    X(cuStreamCreate, 2000, (cu_stream * stream, unsigned flags))                                                     \
    X(cuStreamDestroy, 4000, (cu_stream stream))                                                                      \
    X(cuStreamSynchronize, 2000, (cu_stream stream))                                                                  \
    X(cuStreamWaitEvent, 3020, (cu_stream stream, cu_event event, unsigned flags))                                    \
    X(cuStreamBeginCapture, 10010, (cu_stream stream, int mode))                                                      \
    X(cuThreadExchangeStreamCaptureMode, 10010, (int *mode))                                                          \
    X(cuStreamIsCapturing, 10000, (cu_stream stream, int *state))                                                     \
    X(cuStreamEndCapture, 10000, (cu_stream stream, cu_graph * graph))                                                \
    X(cuGraphInstantiateWithFlags, 11040, (cu_graph_exec * exec, cu_graph graph, unsigned long long flags))           \
    X(cuGraphLaunch, 10000, (cu_graph_exec exec, cu_stream stream))                                                   \
    X(cuGraphExecDestroy, 10000, (cu_graph_exec exec))                                                                \
    X(cuGraphDestroy, 10000, (cu_graph graph))                                                                        \
    X(cuEventCreate, 2000, (cu_event * event, unsigned flags))                                                        \
    X(cuEventDestroy, 4000, (cu_event event))                                                                         \
    X(cuEventRecord, 2000, (cu_event event, cu_stream stream))                                                        \
    X(cuEventSynchronize, 2000, (cu_event event))                                                                     \
    X(cuEventElapsedTime, 2000, (float *milliseconds, cu_event begin, cu_event end))                                  \
    X(cuMemAllocFromPoolAsync, 11020, (cu_pointer * data, size_t bytes, cu_pool pool, cu_stream stream))              \
    X(cuMemPoolTrimTo, 11020, (cu_pool pool, size_t bytes))                                                           \
    X(cuMemFreeAsync, 11020, (cu_pointer data, cu_stream stream))                                                     \
    X(cuMemAlloc, 3020, (cu_pointer * data, size_t bytes))                                                            \
    X(cuMemFree, 3020, (cu_pointer data))                                                                             \
    X(cuMemHostAlloc, 2020, (void **data, size_t bytes, unsigned flags))                                              \
    X(cuMemFreeHost, 2000, (void *data))                                                                              \
    X(cuMemGetInfo, 3020, (size_t * free, size_t * total))                                                            \
    X(cuMemcpyHtoDAsync, 3020, (cu_pointer to, const void *from, size_t bytes, cu_stream stream))                     \
    X(cuMemcpyDtoHAsync, 3020, (void *to, cu_pointer from, size_t bytes, cu_stream stream))                           \
    X(cuMemcpyDtoDAsync, 3020, (cu_pointer to, cu_pointer from, size_t bytes, cu_stream stream))                      \
    X(cuMemsetD8Async, 3020, (cu_pointer to, unsigned char value, size_t bytes, cu_stream stream))                    \
    X(cuLibraryLoadData, 12000,                                                                                       \
      (cu_library * library, const void *code, int *options, void **values, unsigned n_options, int *library_options, \
       void **library_values, unsigned n_library_options))                                                            \
    X(cuLibraryUnload, 12000, (cu_library library))                                                                   \
    X(cuLibraryGetKernel, 12000, (cu_kernel * kernel, cu_library library, const char *name))                          \
    X(cuLibraryGetGlobal, 12000, (cu_pointer * data, size_t * bytes, cu_library library, const char *name))           \
    X(cuKernelGetFunction, 12000, (cu_function * function, cu_kernel kernel))                                         \
    X(cuFuncGetAttribute, 2020, (int *value, int attribute, cu_function function))                                    \
    X(cuFuncSetAttribute, 9000, (cu_function function, int attribute, int value))                                     \
    X(cuOccupancyMaxActiveBlocksPerMultiprocessor, 6050,                                                              \
      (int *blocks, cu_function function, int threads, size_t shared))                                                \
    X(cuOccupancyMaxActiveClusters, 11070, (int *clusters, cu_function function, const cu_config *config))            \
    X(cuLaunchKernelEx, 11060, (const cu_config *config, cu_function function, void **arguments, void **extra))       \
    X(cuDevicePrimaryCtxGetState, 7000, (int device, unsigned *flags, int *active))                                   \
    X(cuDeviceGetPCIBusId, 4010, (char *text, int length, int device))                                                \
    X(cuCtxSetCurrent, 4000, (cu_context context))                                                                    \
    X(cuTensorMapEncodeTiled, 12000,                                                                                  \
      (void *map, int type, uint32_t dims, void *data, const uint64_t *size, const uint64_t *strides,                 \
       const uint32_t *box, const uint32_t *steps, int interleave, int swizzle, int promotion, int fill))

typedef struct tni_cuda_api {
#define TNI_CUDA_FIELD(name, version, arguments) int(*name) arguments;
    TNI_CUDA_FUNCTIONS(TNI_CUDA_FIELD)
#undef TNI_CUDA_FIELD
    int version; /* of the driver: 13000 is CUDA 13.0 */
    int n_devices;
} tni_cuda_api;

/* The driver's functions; NULL and a message where there is no driver, it is too old, sees no GPU, or this process is a
 * fork of one that used it. `wanted` (an operator, a command) begins the message. */
const tni_cuda_api *tni_cuda(const char *wanted);
tn_status tni_cuda_usable(const char *wanted); /* the same, without the functions */

/* What was found, also where it cannot be used. */
typedef struct tni_cuda_found {
    bool opened, started;
    char file[1024]; /* that was opened; "": none */
    int version;     /* as above; 0: not known */
    int error;       /* with which it does not start: CUDA's number */
    int n_devices;
    const char *why_not; /* ""; the message */
} tni_cuda_found;
const tni_cuda_found *tni_cuda_look(void);

/* A message with CUDA's own words: "softmax: kernel softmax_warp_bf16: CUDA error 700 (CUDA_ERROR_ILLEGAL_ADDRESS): …".
 * After an error that ends the context for good, later calls say so and name the first one. */
tn_status tni_cuda_failed(const char *wanted, const char *what, int error);

#endif
