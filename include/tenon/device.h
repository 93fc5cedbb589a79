/* Devices for programs that bring no framework: memory, copies, streams, events, statistics. The same calls work for
 * every device, so a program that runs on a GPU runs on the CPU too. There, a stream is NULL and everything is done
 * when its call returns.
 *
 *     tn_device gpu = {TN_CUDA, 0};
 *     tn_block x;
 *     void *stream;
 *     tn_stream_make(gpu, &stream);
 *     tn_device_alloc(gpu, bytes, stream, &x);
 *     tn_copy(gpu, x.data, (tn_device){TN_CPU, 0}, host_data, bytes, stream);
 *     tn_host host = tn_stream_host(stream);
 *     tn_softmax_on(&host, &tx, NULL, NULL, &ty);
 *     tn_stream_wait(gpu, stream);
 *
 * A stream is a CUstream: streams of other libraries can be passed wherever one is asked for, NULL is the device's
 * default stream. Every function makes the device's primary context current for itself and leaves the thread as it
 * found it. All of them may be called from any thread; what one thread gives back, no other may still use. Giving back
 * returns nothing; where the driver refuses, tn_last_error() has its words. */
#ifndef TENON_DEVICE_H
#define TENON_DEVICE_H

#include <tenon/host.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How many devices of a kind this process can use. Where there is none, the status and the message say why (no driver,
 * no GPU, a driver that is too old), and *count is 0. */
TN_API tn_status tn_device_count(tn_device_kind kind, int *count);

typedef struct tn_device_info {
    char name[128];             /* "NVIDIA H200", "cpu" */
    int32_t capability[2];      /* compute capability of a GPU: {9, 0}; {0, 0} elsewhere */
    size_t memory, free_memory; /* bytes of the device, and those that nobody has */
} tn_device_info;
TN_API tn_status tn_device_describe(tn_device device, tn_device_info *info);

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* From the pool that operators take their workspace from, in the order of `stream`: what is in the stream already does
 * not see it, what comes later may use it. Other streams must wait for this one first. Aligned to 64 bytes at least.
 * 0 bytes gives a block that holds nothing and is to be given back all the same. */
TN_API tn_status tn_device_alloc(tn_device device, size_t bytes, void *stream, tn_block *block);
/* Gives it back, in the order of `stream`. A block of zeros is fine. */
TN_API void tn_device_free(tn_device device, tn_block block, void *stream);

/* Memory of the host that the device copies from and to by itself, so that copies run beside kernels. On the CPU it is
 * memory like any other. Making it is slow: keep it. */
TN_API tn_status tn_pinned_alloc(tn_device device, size_t bytes, void **data);
/* Nothing may still copy from or to it. NULL is fine. */
TN_API void tn_pinned_free(tn_device device, void *data);

/* Copies bytes between two places, each on its device, in the order of `stream`, which is one of the device that is not
 * the CPU. With pinned memory it returns at once, and both sides must stay until the stream has come so far. From other
 * memory of the host it returns when that has been read; to such memory, when it has been written. Between two GPUs a
 * copy goes over memory of the host: tn_copy says so. */
TN_API tn_status tn_copy(tn_device to_device, void *to, tn_device from_device, const void *from, size_t bytes,
                         void *stream);

/* What the pool of a device holds, in bytes. Blocks are counted with what they are rounded up to. */
typedef struct tn_memory_stats {
    size_t in_use; /* by blocks that are not given back, workspace of calls included */
    size_t peak;   /* the most that were in use since the start, or since tn_memory_reset_peak */
    size_t pooled; /* what the pool has from the system: in use, and kept for later (tn_pool_trim) */
} tn_memory_stats;
TN_API tn_status tn_memory_get(tn_device device, tn_memory_stats *stats);
TN_API tn_status tn_memory_reset_peak(tn_device device);

/* ---- streams and events ------------------------------------------------------------------------------------------ */

/* A stream of its own, which does not wait for the default one. The caller gives it back with tn_stream_free, which
 * lets what is in it finish. */
TN_API tn_status tn_stream_make(tn_device device, void **stream);
TN_API void tn_stream_free(tn_device device, void *stream); /* NULL is fine */
/* Returns when all that is in the stream is done. An error of a kernel before shows here. */
TN_API tn_status tn_stream_wait(tn_device device, void *stream);

/* A place in a stream: other streams and the host can wait for it, and the time between two of them can be told. */
typedef struct tn_event tn_event;
TN_API tn_status tn_event_make(tn_device device, tn_event **event); /* given back with tn_event_free */
TN_API void tn_event_free(tn_event *event);                         /* NULL is fine */
/* Marks the place that the stream, which is one of the event's device, has now. Again: the new place. One thread at a
 * time. */
TN_API tn_status tn_event_record(tn_event *event, void *stream);
/* What comes into the stream from now on begins when the event's place is reached. The host goes on. */
TN_API tn_status tn_event_hold(const tn_event *event, void *stream);
TN_API tn_status tn_event_wait(const tn_event *event); /* returns when its place is reached */
/* Between two events that were recorded; waits for both. */
TN_API tn_status tn_event_milliseconds(const tn_event *begin, const tn_event *end, double *milliseconds);

#ifdef __cplusplus
}
#endif
#endif
