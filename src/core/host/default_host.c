/* The default host, of plain C programs: the devices' own memory and Tenon's threads. Its context is the stream that
 * memory is ordered by. */
#include "device.h"
#include "threads.h"

static tn_block default_alloc(void *stream, tn_device device, size_t bytes) {
    const tni_device_ops *ops = tni_device_of(device.kind);
    tn_block block = {0};
    if (ops) ops->alloc("the default host", device, bytes, stream, &block);
    return block;
}

static void default_release(void *stream, tn_device device, tn_block block) {
    const tni_device_ops *ops = tni_device_of(device.kind);
    if (ops) ops->free(device, block, stream);
}

static int default_threads(void *stream) {
    (void)stream;
    return tn_threads();
}

/* ---- hosts that leave members to the default one: their context is the host as it was given ---------------------- */

static tn_block filled_alloc(void *context, tn_device device, size_t bytes) {
    const tn_host *given = context;
    return given->alloc ? given->alloc(given->context, device, bytes) : default_alloc(given->stream, device, bytes);
}

static void filled_release(void *context, tn_device device, tn_block block) {
    const tn_host *given = context;
    if (given->release) {
        given->release(given->context, device, block);
    } else {
        default_release(given->stream, device, block);
    }
}

static void filled_parallel(void *context, int64_t n, int64_t grain, tn_body body, void *arg) {
    const tn_host *given = context;
    if (given->parallel) {
        given->parallel(given->context, n, grain, body, arg);
    } else {
        tni_parallel(NULL, n, grain, body, arg);
    }
}

static int filled_threads(void *context) {
    const tn_host *given = context;
    return given->threads ? given->threads(given->context) : tn_threads();
}

tn_status tni_host_fill(const char *wanted, const tn_host *given, tn_host *room, const tn_host **host) {
    *host = given ? given : tn_default_host();
    if (!given || (given->alloc && given->release && given->parallel && given->threads)) return TN_OK;
    if (!given->alloc != !given->release) {
        return tn_fail(TN_BAD_VALUE, "%s: the host has %s but no %s; set both or neither", wanted,
                       given->alloc ? "alloc" : "release", given->alloc ? "release" : "alloc");
    }
    *room = (tn_host){.context = (void *)given,
                      .stream = given->stream,
                      .alloc = filled_alloc,
                      .release = filled_release,
                      .parallel = filled_parallel,
                      .threads = filled_threads};
    *host = room;
    return TN_OK;
}

void tn_pool_trim(void) {
    const tni_device_ops *device;
    for (int32_t at = 0; (device = tni_device_next(&at));) {
        if (device->trim) device->trim();
    }
}

tn_host tn_stream_host(void *stream) {
    return (tn_host){.context = stream,
                     .stream = stream,
                     .alloc = default_alloc,
                     .release = default_release,
                     .parallel = tni_parallel,
                     .threads = default_threads};
}

const tn_host *tn_default_host(void) {
    static const tn_host host = {
        .alloc = default_alloc, .release = default_release, .parallel = tni_parallel, .threads = default_threads};
    return &host;
}
