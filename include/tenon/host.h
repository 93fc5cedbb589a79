/* What Tenon asks of the program it runs in: memory, threads, a stream. Inside a framework they are the framework's;
 * a plain C program passes NULL for a host and gets a caching pool and a thread pool (TENON_NUM_THREADS). */
#ifndef TENON_HOST_H
#define TENON_HOST_H

#include <tenon/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A piece of memory. Whoever asked for it gives it back whole, handle included, and only once. */
typedef struct tn_block {
    void *data;
    void *handle; /* the allocator's own */
} tn_block;

/* Does the elements begin … end - 1 of a parallel loop. */
typedef void (*tn_body)(void *arg, int64_t begin, int64_t end);

/* Every member may be NULL, which means what the default host does; so {0} is the default host, and {.stream = s} the
 * default host on a stream. `alloc` and `release` go together: set both or neither. A call uses the host until it
 * returns and keeps no pointer to it. Calls on several threads may share one host, if its functions allow that. */
typedef struct tn_host {
    void *context; /* handed to every function below; Tenon does not look at it */
    void *stream;  /* CUstream, on which a call puts its work; NULL on the CPU, and for a GPU's default stream */
    /* 64-byte aligned, `bytes` > 0; data is NULL when there is no memory. NULL: the device's pool, in the order of
     * `stream`. */
    tn_block (*alloc)(void *context, tn_device device, size_t bytes);
    void (*release)(void *context, tn_device device, tn_block block);
    /* Splits 0 … n - 1 into pieces of at least `grain` and returns when all are done. NULL: Tenon's threads. */
    void (*parallel)(void *context, int64_t n, int64_t grain, tn_body body, void *arg);
    int (*threads)(void *context); /* how many pieces run at once; NULL: tn_threads() */
} tn_host;

/* The host of calls that are given none: Tenon's memory and threads, and on a GPU the default stream. A constant of the
 * library. */
TN_API const tn_host *tn_default_host(void);
/* The same on a stream: a CUstream of the caller's, or one of tn_stream_make. */
TN_API tn_host tn_stream_host(void *stream);

/* Threads of the default host, the calling one included: 1 … 1024; 0 means TENON_NUM_THREADS or all cores. Holds for
 * loops that begin afterwards, on every thread. */
TN_API tn_status tn_set_threads(int count);
TN_API int tn_threads(void);

/* Gives the memory that the default host keeps for later back to the system, on all devices. */
TN_API void tn_pool_trim(void);

#ifdef __cplusplus
}
#endif
#endif
