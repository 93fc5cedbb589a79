#include "cpu_device.h"

#include <string.h>

#include "core/host/pool.h"
#include "core/layout/layout.h"
#include "isa.h"

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
};
