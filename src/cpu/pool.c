#include "pool.h"

#include <pthread.h>

#include "core/host/memory.h"

enum {
    CLASSES = 160, /* sizes 64 · 2^k · {1, 1.25, 1.5, 1.75} */
    KEPT_PER_CLASS = 16,
};
static const size_t MOST_KEPT = (size_t)256 << 20; /* bytes in the whole pool */

static struct {
    pthread_mutex_t lock;
    size_t kept;         /* bytes */
    size_t in_use, peak; /* bytes, in sizes of classes */
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

static void count_use(size_t bytes) {
    pool.in_use += bytes;
    if (pool.in_use > pool.peak) pool.peak = pool.in_use;
}

/* NULL where the pool has none of this class; counted as in use all the same. c is CLASSES for a block of its own. */
static void *take(int c, size_t bytes) {
    void *data = NULL;
    lock_pool();
    if (c < CLASSES && pool.counts[c] > 0) {
        data = pool.blocks[c][--pool.counts[c]];
        pool.kept -= class_size(c);
    }
    count_use(bytes);
    unlock_pool();
    return data;
}

static void uncount(size_t bytes) {
    lock_pool();
    pool.in_use -= bytes;
    unlock_pool();
}

/* The handle of a block is its class, counted from 1; of one that the pool is not to keep, its bytes, which are more
 * than there are classes. */
tn_status tni_pool_alloc(const char *wanted, tn_device device, size_t bytes, void *stream, tn_block *block) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)wanted, (void)device, (void)stream;
    pthread_once(&once, watch_forks);
    const int c = class_of(bytes);
    const bool pooled = c < CLASSES && bytes <= MOST_KEPT;
    const size_t size = pooled ? class_size(c) : bytes;
    block->handle = (void *)(uintptr_t)(pooled ? (size_t)c + 1 : bytes);
    block->data = take(pooled ? c : CLASSES, size);
    if (!block->data) block->data = tni_malloc_aligned(size);
    if (!block->data) uncount(size);
    return block->data ? TN_OK : TN_NO_MEMORY;
}

void tni_pool_free(tn_device device, tn_block block, void *stream) {
    (void)device, (void)stream;
    const uintptr_t handle = (uintptr_t)block.handle;
    const bool pooled = handle <= CLASSES;
    const int c = (int)handle - 1;
    const size_t size = pooled ? class_size(c) : (size_t)handle;
    lock_pool();
    pool.in_use -= size;
    const bool kept = pooled && pool.counts[c] < KEPT_PER_CLASS && pool.kept + size <= MOST_KEPT;
    if (kept) {
        pool.blocks[c][pool.counts[c]++] = block.data;
        pool.kept += size;
    }
    unlock_pool();
    if (!kept) tni_free(block.data);
}

tn_status tni_pool_memory(const char *wanted, tn_device device, tn_memory_stats *stats, bool reset_peak) {
    (void)wanted, (void)device;
    lock_pool();
    if (reset_peak) pool.peak = pool.in_use;
    *stats = (tn_memory_stats){.in_use = pool.in_use, .peak = pool.peak, .pooled = pool.in_use + pool.kept};
    unlock_pool();
    return TN_OK;
}

void tni_pool_trim(void) {
    lock_pool();
    for (int c = 0; c < CLASSES; c++) {
        while (pool.counts[c] > 0) tni_free(pool.blocks[c][--pool.counts[c]]);
    }
    pool.kept = 0;
    unlock_pool();
}
