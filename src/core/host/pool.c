#include "pool.h"

#include <pthread.h>

#include "memory.h"

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

static void *take(int c) {
    void *data = NULL;
    lock_pool();
    if (pool.counts[c] > 0) {
        data = pool.blocks[c][--pool.counts[c]];
        pool.kept -= class_size(c);
    }
    unlock_pool();
    return data;
}

/* The handle of a block is its class, counted from 1; of one that the pool is not to keep, 0. */
tn_status tni_pool_alloc(const char *wanted, tn_device device, size_t bytes, void *stream, tn_block *block) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)wanted, (void)device, (void)stream;
    pthread_once(&once, watch_forks);
    const int c = class_of(bytes);
    const bool pooled = c < CLASSES && bytes <= MOST_KEPT;
    block->handle = (void *)(uintptr_t)(pooled ? c + 1 : 0);
    block->data = pooled ? take(c) : NULL;
    if (!block->data) block->data = tni_malloc_aligned(pooled ? class_size(c) : bytes);
    return block->data ? TN_OK : TN_NO_MEMORY;
}

void tni_pool_free(tn_device device, tn_block block, void *stream) {
    (void)device, (void)stream;
    const int c = (int)(uintptr_t)block.handle - 1;
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

void tni_pool_trim(void) {
    lock_pool();
    for (int c = 0; c < CLASSES; c++) {
        while (pool.counts[c] > 0) tni_free(pool.blocks[c][--pool.counts[c]]);
    }
    pool.kept = 0;
    unlock_pool();
}
