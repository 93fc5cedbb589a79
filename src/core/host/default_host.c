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
