/* What Tenon asks of the program it runs in: memory, threads, a stream. Inside a framework they are the framework's;
 * a plain C program passes NULL for a host and gets a caching pool and a thread pool (TENON_NUM_THREADS). */
#ifndef TENON_HOST_H
#define TENON_HOST_H

#include <tenon/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tn_block {
    void *data;
    void *handle; /* the allocator's own */
} tn_block;

/* Does the elements begin … end - 1 of a parallel loop. */
typedef void (*tn_body)(void *arg, int64_t begin, int64_t end);

typedef struct tn_host {
    void *context; /* handed to every function below */
    void *stream;  /* CUstream; NULL on the CPU */
    /* 64-byte aligned, `bytes` > 0; data is NULL when there is no memory. */
    tn_block (*alloc)(void *context, tn_device device, size_t bytes);
    void (*release)(void *context, tn_device device, tn_block block);
    /* Splits 0 … n - 1 into pieces of at least `grain` and returns when all are done. */
    void (*parallel)(void *context, int64_t n, int64_t grain, tn_body body, void *arg);
    int (*threads)(void *context); /* how many pieces run at once */
} tn_host;

TN_API const tn_host *tn_default_host(void); /* on a GPU: its default stream */
TN_API tn_host tn_stream_host(void *stream); /* the default host, on a CUstream of the caller's */

/* Threads of the default host, this one included: 1 … 1024; 0 means TENON_NUM_THREADS or all cores. */
TN_API tn_status tn_set_threads(int count);
TN_API int tn_threads(void);

/* Gives the default pool's unused memory back to the system. */
TN_API void tn_pool_trim(void);

#ifdef __cplusplus
}
#endif
#endif
