/* The default host of plain C programs: freed workspaces are kept by size and handed out again. Its context is the
 * stream that GPU memory is ordered by. */
#include <pthread.h>
#include <stdlib.h>

#include "core/core.h"

enum {
    CLASSES = 160, /* sizes 64 · 2^k · {1, 1.25, 1.5, 1.75} */
    KEPT_PER_CLASS = 16,
};
static const size_t MOST_KEPT = (size_t)256 << 20; /* bytes in the whole pool */

static struct {
    pthread_mutex_t lock;
    size_t kept; /* bytes */
    int counts[CLASSES];
    void *blocks[CLASSES][KEPT_PER_CLASS];
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* A fork between lock and unlock would leave the child with a locked pool. */
static void lock_pool(void) {
    pthread_mutex_lock(&pool.lock);
}
static void unlock_pool(void) {
    pthread_mutex_unlock(&pool.lock);
}
static void watch_forks(void) {
    pthread_atfork(lock_pool, unlock_pool, unlock_pool);
}

static size_t class_size(int c) {
    return ((size_t)64 << c / 4) / 4 * (size_t)(4 + c % 4);
}

/* The smallest class that holds `bytes`; CLASSES: none does. */
static int class_of(size_t bytes) {
    if (bytes <= 64) return 0;
    int log = 63 - __builtin_clzll(bytes - 1); /* 2^log < bytes <= 2^(log + 1) */
    int c = (log - 6) * 4;
    while (c < CLASSES && class_size(c) < bytes) c++;
    return c;
}

static tn_block pool_alloc(void *context, tn_device device, size_t bytes) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (device.kind == TN_CUDA) return tni_cuda_alloc(device, bytes, context);
    pthread_once(&once, watch_forks);
    int c = class_of(bytes);
    if (c >= CLASSES || bytes > MOST_KEPT) return (tn_block){tni_malloc_aligned(bytes), NULL};
    void *data = NULL;
    lock_pool();
    if (pool.counts[c] > 0) {
        data = pool.blocks[c][--pool.counts[c]];
        pool.kept -= class_size(c);
    }
    unlock_pool();
    if (!data) data = tni_malloc_aligned(class_size(c));
    return (tn_block){data, (void *)(uintptr_t)(c + 1)}; /* the handle: its class, from 1 */
}

static void pool_release(void *context, tn_device device, tn_block block) {
    if (device.kind == TN_CUDA) {
        tni_cuda_free(device, block, context);
        return;
    }
    int c = (int)(uintptr_t)block.handle - 1;
    bool kept = false;
    if (c >= 0) {
        lock_pool();
        kept = pool.counts[c] < KEPT_PER_CLASS && pool.kept + class_size(c) <= MOST_KEPT;
        if (kept) {
            pool.blocks[c][pool.counts[c]++] = block.data;
            pool.kept += class_size(c);
        }
        unlock_pool();
    }
    if (!kept) tni_free(block.data);
}

void tn_pool_trim(void) {
    lock_pool();
    for (int c = 0; c < CLASSES; c++) {
        while (pool.counts[c] > 0) tni_free(pool.blocks[c][--pool.counts[c]]);
    }
    pool.kept = 0;
    unlock_pool();
    tni_cuda_trim();
}

static int pool_threads(void *context) {
    (void)context;
    return tn_threads();
}

tn_host tn_stream_host(void *stream) {
    return (tn_host){.context = stream,
                     .stream = stream,
                     .alloc = pool_alloc,
                     .release = pool_release,
                     .parallel = tni_parallel,
                     .threads = pool_threads};
}

const tn_host *tn_default_host(void) {
    static const tn_host host = {
        .alloc = pool_alloc, .release = pool_release, .parallel = tni_parallel, .threads = pool_threads};
    return &host;
}
