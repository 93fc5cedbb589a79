#include "cuda_device.h"

#include "cuda/copy/copy.h"
#include "cuda/driver/cuda.h"
#include "cuda/libraries/cublaslt.h"

#include <stdio.h>

/* From memory that is not pinned: the driver has read it when the call returns. */
static tn_status cuda_write(const char *wanted, tn_device device, void *to, const void *from, size_t bytes,
                            void *stream) {
    tni_cuda_scope scope;
    TN_TRY(tni_cuda_enter(wanted, device.index, &scope));
    const tni_cuda_api *cu = tni_cuda(wanted);
    const int error = cu ? cu->cuMemcpyHtoDAsync((cu_pointer)(uintptr_t)to, from, bytes, stream) : 0;
    tni_cuda_leave(&scope);
    if (!cu) return TN_SYSTEM;
    return error ? tni_cuda_failed(wanted, "copying to the GPU", error) : TN_OK;
}

static tn_status cuda_read(const char *wanted, tn_device device, void *to, const void *from, size_t bytes,
                           void *stream) {
    tni_cuda_scope scope;
    TN_TRY(tni_cuda_enter(wanted, device.index, &scope));
    const tni_cuda_api *cu = tni_cuda(wanted);
    int error = cu ? cu->cuMemcpyDtoHAsync(to, (cu_pointer)(uintptr_t)from, bytes, stream) : 0;
    if (cu && !error) error = cu->cuStreamSynchronize(stream);
    tni_cuda_leave(&scope);
    if (!cu) return TN_SYSTEM;
    return error ? tni_cuda_failed(wanted, "copying from the GPU", error) : TN_OK;
}

static tn_status cuda_wait(const char *wanted, tn_device device, void *stream) {
    tni_cuda_scope scope;
    TN_TRY(tni_cuda_enter(wanted, device.index, &scope));
    const tni_cuda_api *cu = tni_cuda(wanted);
    const int error = cu ? cu->cuStreamSynchronize(stream) : 0;
    tni_cuda_leave(&scope);
    if (!cu) return TN_SYSTEM;
    return error ? tni_cuda_failed(wanted, "waiting for the GPU", error) : TN_OK;
}

/* An error counts as yes: on the default stream, CUDA gives one while any other stream is captured. */
static bool cuda_capturing(tn_device device, void *stream) {
    static const char wanted[] = "asking whether a graph is captured";
    tni_cuda_scope scope;
    int state = 0;
    if (tni_cuda_enter(wanted, device.index, &scope) != TN_OK) return false;
    const tni_cuda_api *cu = tni_cuda(wanted);
    const bool is = cu && (cu->cuStreamIsCapturing(stream, &state) != 0 || state != 0);
    tni_cuda_leave(&scope);
    return is;
}

/* ---- for programs that use a GPU by themselves ------------------------------------------------------------------- */

static tn_status cuda_count(const char *wanted, int *count) {
    *count = tni_gpu_count(wanted);
    return *count ? TN_OK : TN_SYSTEM;
}

static tn_status cuda_describe(const char *wanted, tn_device device, tn_device_info *info) {
    const tn_gpu *gpu;
    tni_cuda_scope scope;
    TN_TRY(tni_gpu_get(wanted, device.index, &gpu));
    TN_TRY(tni_cuda_enter(wanted, device.index, &scope));
    const tni_cuda_api *cu = tni_cuda(wanted);
    const int error = cu ? cu->cuMemGetInfo(&info->free_memory, &info->memory) : 0;
    tni_cuda_leave(&scope);
    if (!cu) return TN_SYSTEM;
    if (error) return tni_cuda_failed(wanted, "asking for the GPU's memory", error);
    snprintf(info->name, sizeof info->name, "%s", gpu->name);
    info->capability[0] = gpu->major;
    info->capability[1] = gpu->minor;
    return TN_OK;
}

/* A call of the driver in the GPU's context. */
#define IN_CONTEXT(wanted, device, what, call)                       \
    do {                                                             \
        tni_cuda_scope scope;                                        \
        TN_TRY(tni_cuda_enter(wanted, (device).index, &scope));      \
        const tni_cuda_api *cu = tni_cuda(wanted);                   \
        const int error = cu ? (call) : 0;                           \
        tni_cuda_leave(&scope);                                      \
        if (!cu) return TN_SYSTEM;                                   \
        return error ? tni_cuda_failed(wanted, what, error) : TN_OK; \
    } while (0)

static tn_status cuda_pin(const char *wanted, tn_device device, size_t bytes, void **data) {
    enum { PORTABLE = 1 }; /* pinned for all GPUs */
    IN_CONTEXT(wanted, device, "allocating pinned memory", cu->cuMemHostAlloc(data, bytes, PORTABLE));
}

static tn_status unpin(tn_device device, void *data) {
    IN_CONTEXT("tn_pinned_free", device, "freeing pinned memory", cu->cuMemFreeHost(data));
}

static void cuda_unpin(tn_device device, void *data) {
    unpin(device, data);
}

static int transfer(const tni_cuda_api *cu, tni_transfer way, void *to, const void *from, size_t bytes, void *stream) {
    switch (way) {
    case TNI_INTO: return cu->cuMemcpyHtoDAsync((cu_pointer)(uintptr_t)to, from, bytes, stream);
    case TNI_OUT_OF: return cu->cuMemcpyDtoHAsync(to, (cu_pointer)(uintptr_t)from, bytes, stream);
    case TNI_WITHIN:
        return cu->cuMemcpyDtoDAsync((cu_pointer)(uintptr_t)to, (cu_pointer)(uintptr_t)from, bytes, stream);
    }
    return 0;
}

static tn_status cuda_transfer(const char *wanted, tn_device device, tni_transfer way, void *to, const void *from,
                               size_t bytes, void *stream) {
    IN_CONTEXT(wanted, device, "copying", transfer(cu, way, to, from, bytes, stream));
}

static tn_status cuda_stream_make(const char *wanted, tn_device device, void **stream) {
    IN_CONTEXT(wanted, device, "making a stream", cu->cuStreamCreate((cu_stream *)stream, CU_STREAM_NON_BLOCKING));
}

static tn_status destroy_stream(tn_device device, void *stream) {
    IN_CONTEXT("tn_stream_free", device, "giving a stream back", cu->cuStreamDestroy(stream));
}

static void cuda_stream_free(tn_device device, void *stream) {
    destroy_stream(device, stream);
}

static tn_status cuda_event_make(const char *wanted, tn_device device, void **event) {
    IN_CONTEXT(wanted, device, "making an event", cu->cuEventCreate((cu_event *)event, 0));
}

static tn_status destroy_event(tn_device device, void *event) {
    IN_CONTEXT("tn_event_free", device, "giving an event back", cu->cuEventDestroy(event));
}

static void cuda_event_free(tn_device device, void *event) {
    destroy_event(device, event);
}

static tn_status cuda_event_record(const char *wanted, tn_device device, void *event, void *stream) {
    IN_CONTEXT(wanted, device, "recording an event", cu->cuEventRecord(event, stream));
}

static tn_status cuda_event_hold(const char *wanted, tn_device device, void *event, void *stream) {
    IN_CONTEXT(wanted, device, "letting a stream wait", cu->cuStreamWaitEvent(stream, event, 0));
}

static tn_status cuda_event_wait(const char *wanted, tn_device device, void *event) {
    IN_CONTEXT(wanted, device, "waiting for an event", cu->cuEventSynchronize(event));
}

static tn_status cuda_event_time(const char *wanted, tn_device device, void *begin, void *end, double *milliseconds) {
    float time = 0;
    tni_cuda_scope scope;
    TN_TRY(tni_cuda_enter(wanted, device.index, &scope));
    const tni_cuda_api *cu = tni_cuda(wanted);
    const int error = cu ? cu->cuEventElapsedTime(&time, begin, end) : 0;
    tni_cuda_leave(&scope);
    *milliseconds = time;
    if (!cu) return TN_SYSTEM;
    return error ? tni_cuda_failed(wanted, "the time between two events", error) : TN_OK;
}

static tn_status cuda_enter(const char *wanted, tn_device device, void **entered) {
    tni_cuda_scope scope;
    TN_TRY(tni_cuda_enter(wanted, device.index, &scope));
    *entered = (void *)scope.pushed;
    return TN_OK;
}

static void cuda_leave(void *entered) {
    tni_cuda_leave(&(tni_cuda_scope){entered});
}

static void cuda_close(void) {
    tni_cublaslt_close();
    tni_images_unload();
    tni_cuda_close();
}

const tni_device_ops tni_cuda_device = {
    .kind = TN_CUDA,
    .name = "cuda",
    .usable = tni_cuda_usable,
    .alloc = tni_cuda_alloc,
    .free = tni_cuda_free,
    .trim = tni_cuda_trim,
    .copy = tni_cuda_copy,
    .write = cuda_write,
    .read = cuda_read,
    .wait = cuda_wait,
    .capturing = cuda_capturing,
    .enter = cuda_enter,
    .leave = cuda_leave,
    .count = cuda_count,
    .describe = cuda_describe,
    .memory = tni_cuda_memory,
    .pin = cuda_pin,
    .unpin = cuda_unpin,
    .transfer = cuda_transfer,
    .stream_make = cuda_stream_make,
    .stream_free = cuda_stream_free,
    .event_make = cuda_event_make,
    .event_free = cuda_event_free,
    .event_record = cuda_event_record,
    .event_hold = cuda_event_hold,
    .event_wait = cuda_event_wait,
    .event_time = cuda_event_time,
    .close = cuda_close,
};
