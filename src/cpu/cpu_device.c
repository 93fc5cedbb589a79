#include "cpu_device.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/host/memory.h"
#include "core/layout/layout.h"
#include "isa.h"
#include "pool.h"

/* A thread that reads meanwhile gets the old value or the new one, never half of each. */
static tn_status cpu_write(const char *wanted, tn_device device, void *to, const void *from, size_t bytes,
                           void *stream) {
    (void)wanted, (void)device, (void)stream;
    uint8_t byte;
    uint16_t half;
    uint32_t word;
    uint64_t wide;
    switch (bytes && (uintptr_t)to % bytes == 0 ? bytes : 0) {
    case 1: memcpy(&byte, from, 1), __atomic_store_n((uint8_t *)to, byte, __ATOMIC_RELEASE); break;
    case 2: memcpy(&half, from, 2), __atomic_store_n((uint16_t *)to, half, __ATOMIC_RELEASE); break;
    case 4: memcpy(&word, from, 4), __atomic_store_n((uint32_t *)to, word, __ATOMIC_RELEASE); break;
    case 8: memcpy(&wide, from, 8), __atomic_store_n((uint64_t *)to, wide, __ATOMIC_RELEASE); break;
    default: memcpy(to, from, bytes);
    }
    return TN_OK;
}

static tn_status cpu_read(const char *wanted, tn_device device, void *to, const void *from, size_t bytes,
                          void *stream) {
    (void)wanted, (void)device, (void)stream;
    memcpy(to, from, bytes);
    return TN_OK;
}

/* Everything is done when its call returns. */
static tn_status cpu_wait(const char *wanted, tn_device device, void *stream) {
    (void)wanted, (void)device, (void)stream;
    return TN_OK;
}

static tn_status cpu_describe(const char *wanted, tn_device device, tn_device_info *info) {
    (void)wanted, (void)device;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    snprintf(info->name, sizeof info->name, "cpu");
    info->memory = (size_t)sysconf(_SC_PHYS_PAGES) * page;
    info->free_memory = (size_t)sysconf(_SC_AVPHYS_PAGES) * page;
    return TN_OK;
}

static tn_status cpu_pin(const char *wanted, tn_device device, size_t bytes, void **data) {
    (void)wanted, (void)device;
    *data = tni_malloc_aligned(bytes);
    return *data ? TN_OK : TN_NO_MEMORY;
}

static void cpu_unpin(tn_device device, void *data) {
    (void)device;
    tni_free(data);
}

static tn_status cpu_transfer(const char *wanted, tn_device device, tni_transfer way, void *to, const void *from,
                              size_t bytes, void *stream) {
    (void)wanted, (void)device, (void)way, (void)stream;
    memcpy(to, from, bytes);
    return TN_OK;
}

/* ---- streams and events: a stream is NULL, and an event is the time at which it was recorded --------------------- */

static tn_status cpu_stream_make(const char *wanted, tn_device device, void **stream) {
    (void)wanted, (void)device;
    *stream = NULL;
    return TN_OK;
}

static void cpu_stream_free(tn_device device, void *stream) {
    (void)device, (void)stream;
}

static tn_status cpu_event_make(const char *wanted, tn_device device, void **event) {
    (void)wanted, (void)device;
    *event = tni_calloc(1, sizeof(struct timespec));
    return *event ? TN_OK : TN_NO_MEMORY;
}

static void cpu_event_free(tn_device device, void *event) {
    (void)device;
    tni_free(event);
}

static tn_status cpu_event_record(const char *wanted, tn_device device, void *event, void *stream) {
    (void)wanted, (void)device, (void)stream;
    clock_gettime(CLOCK_MONOTONIC, event);
    return TN_OK;
}

/* Whatever was before is done already. */
static tn_status cpu_event_hold(const char *wanted, tn_device device, void *event, void *stream) {
    (void)wanted, (void)device, (void)event, (void)stream;
    return TN_OK;
}

static tn_status cpu_event_wait(const char *wanted, tn_device device, void *event) {
    (void)wanted, (void)device, (void)event;
    return TN_OK;
}

static tn_status cpu_event_time(const char *wanted, tn_device device, void *begin, void *end, double *milliseconds) {
    const struct timespec *a = begin, *b = end;
    (void)device;
    if ((a->tv_sec == 0 && a->tv_nsec == 0) || (b->tv_sec == 0 && b->tv_nsec == 0)) {
        return tn_fail(TN_BAD_VALUE, "%s: an event was not recorded", wanted);
    }
    *milliseconds = (double)(b->tv_sec - a->tv_sec) * 1e3 + (double)(b->tv_nsec - a->tv_nsec) * 1e-6;
    return TN_OK;
}

const tni_device_ops tni_cpu_device = {
    .kind = TN_CPU,
    .name = "cpu",
    .single = true,
    .isa = tni_cpu_isa,
    .alloc = tni_pool_alloc,
    .free = tni_pool_free,
    .trim = tni_pool_trim,
    .copy = tni_strided_copy,
    .write = cpu_write,
    .read = cpu_read,
    .wait = cpu_wait,
    .describe = cpu_describe,
    .memory = tni_pool_memory,
    .pin = cpu_pin,
    .unpin = cpu_unpin,
    .transfer = cpu_transfer,
    .stream_make = cpu_stream_make,
    .stream_free = cpu_stream_free,
    .event_make = cpu_event_make,
    .event_free = cpu_event_free,
    .event_record = cpu_event_record,
    .event_hold = cpu_event_hold,
    .event_wait = cpu_event_wait,
    .event_time = cpu_event_time,
    .close = tni_pool_trim,
};
