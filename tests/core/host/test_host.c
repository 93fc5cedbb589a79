/* The default host: threads and pool. */
#include <fenv.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/host/memory.h"
#include "core/host/threads.h"
#include "tests/test.h"

/* ---- threads ----------------------------------------------------------------------------------------------------- */

enum { N = 100000 };
static unsigned char touched[N];
static _Atomic int64_t smallest;

static void touch(void *arg, int64_t begin, int64_t end) {
    (void)arg;
    for (int64_t i = begin; i < end; i++) touched[i]++;
    int64_t least = atomic_load(&smallest);
    while (end < N && end - begin < least && !atomic_compare_exchange_weak(&smallest, &least, end - begin)) continue;
}

static void touch_nested(void *arg, int64_t begin, int64_t end) {
    (void)arg;
    for (int64_t i = begin; i < end; i++) {
        /* a loop inside a loop does all of it, here and now */
        tni_parallel(NULL, 10, 1, touch, NULL);
    }
}

static bool all_are(int value, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        if (touched[i] != value) return false;
    }
    return true;
}

static void every_element_once(void) {
    const int threads[] = {1, 2, 3, 8};
    for (int t = 0; t < 4; t++) {
        CHECK(tn_set_threads(threads[t]) == TN_OK && tn_threads() == threads[t]);
        for (int repeat = 0; repeat < 50; repeat++) {
            memset(touched, 0, sizeof touched);
            atomic_store(&smallest, N);
            tni_parallel(NULL, N, 1000, touch, NULL);
            CHECK(all_are(1, N));
            CHECK(atomic_load(&smallest) >= 1000);
        }
    }
    memset(touched, 0, sizeof touched);
    tni_parallel(NULL, 0, 1, touch, NULL);
    tni_parallel(NULL, -5, 1, touch, NULL);
    CHECK(all_are(0, N));
    tni_parallel(NULL, 7, 0, touch, NULL);
    CHECK(all_are(1, 7));
    memset(touched, 0, sizeof touched);
    tn_set_threads(1);
    tni_parallel(NULL, 20, 1, touch_nested, NULL);
    CHECK(all_are(20, 10));
    CHECK(tn_set_threads(-1) == TN_BAD_VALUE && tn_set_threads(100000) == TN_BAD_VALUE);
    CHECK(tn_set_threads(0) == TN_OK && tn_threads() >= 1);
}

static void count_up(void *arg, int64_t begin, int64_t end) {
    atomic_fetch_add((_Atomic int64_t *)arg, end - begin);
}

static void count_rounded_up(void *arg, int64_t begin, int64_t end) {
    if (fegetround() == FE_UPWARD) count_up(arg, begin, end);
}

/* Workers compute as the caller does, whoever started them. */
static void callers_rounding(void) {
    tn_set_threads(4);
    for (int i = 0; i < 50; i++) {
        _Atomic int64_t total = 0;
        bool up = i % 2;
        fesetround(up ? FE_UPWARD : FE_TONEAREST);
        tni_parallel(NULL, 100000, 100, count_rounded_up, &total);
        CHECK(atomic_load(&total) == (up ? 100000 : 0));
    }
    fesetround(FE_TONEAREST);
}

static void *many_loops(void *arg) {
    for (int i = 0; i < 300; i++) tni_parallel(NULL, 5000, 100, count_up, arg);
    return NULL;
}

static void many_callers_at_once(void) {
    pthread_t id[8];
    _Atomic int64_t total = 0;
    tn_set_threads(4);
    for (int i = 0; i < 8; i++) pthread_create(&id[i], NULL, many_loops, &total);
    for (int i = 0; i < 8; i++) pthread_join(id[i], NULL);
    CHECK(atomic_load(&total) == 8 * 300 * (int64_t)5000);
}

static void alive_again_after_fork(void) {
    _Atomic int64_t total = 0;
    tn_set_threads(4);
    tni_parallel(NULL, 100000, 100, count_up, &total);
    fflush(stdout);
    for (int i = 0; i < 5; i++) {
        pid_t child = fork();
        if (child == 0) {
            _Atomic int64_t mine = 0;
            for (int k = 0; k < 20; k++) tni_parallel(NULL, 100000, 100, count_up, &mine);
            _exit(atomic_load(&mine) == 20 * (int64_t)100000 ? 0 : 1);
        }
        int status = 1;
        CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
}

/* ---- pool -------------------------------------------------------------------------------------------------------- */

static const tn_device cpu = {TN_CPU, 0};

static void blocks_come_back(void) {
    const tn_host *host = tn_default_host();
    for (size_t bytes = 1; bytes < (size_t)1 << 22; bytes = bytes * 5 / 4 + 1) {
        tn_block a = host->alloc(NULL, cpu, bytes);
        CHECK(a.data && (uintptr_t)a.data % 64 == 0);
        if (!a.data) continue;
        memset(a.data, 0xab, bytes);
        host->release(NULL, cpu, a);
        tn_block b = host->alloc(NULL, cpu, bytes);
        CHECK(b.data == a.data); /* the same one again */
        tn_block c = host->alloc(NULL, cpu, bytes);
        CHECK(c.data && c.data != b.data);
        host->release(NULL, cpu, b);
        host->release(NULL, cpu, c);
    }
    tn_block huge = host->alloc(NULL, cpu, (size_t)300 << 20); /* more than the pool keeps */
    CHECK(huge.data != NULL);
    host->release(NULL, cpu, huge);
    CHECK(host->alloc(NULL, cpu, SIZE_MAX - 10).data == NULL);
    tn_pool_trim();
    tni_fail_allocation(1);
    CHECK(host->alloc(NULL, cpu, 1000).data == NULL);
    tni_fail_allocation(0);
    for (int i = 0; i < 100; i++) host->release(NULL, cpu, host->alloc(NULL, cpu, 5000));
    tn_pool_trim();
}

static void *pool_worker(void *arg) {
    const tn_host *host = tn_default_host();
    unsigned seed = (unsigned)(uintptr_t)arg;
    bool right = true;
    for (int i = 0; i < 3000; i++) {
        size_t bytes = (size_t)(rand_r(&seed) % 20000) + 1;
        tn_block b = host->alloc(NULL, cpu, bytes);
        memset(b.data, (int)seed & 255, bytes);
        for (size_t k = 0; k < bytes; k += 997) right &= ((unsigned char *)b.data)[k] == (seed & 255);
        host->release(NULL, cpu, b);
    }
    return (void *)(uintptr_t)right;
}

static void pool_from_many_threads(void) {
    pthread_t id[8];
    for (uintptr_t i = 0; i < 8; i++) pthread_create(&id[i], NULL, pool_worker, (void *)i);
    for (int i = 0; i < 8; i++) {
        void *right = NULL;
        pthread_join(id[i], &right);
        CHECK(right != NULL);
    }
}

int main(void) {
    every_element_once();
    callers_rounding();
    many_callers_at_once();
    alive_again_after_fork();
    blocks_come_back();
    pool_from_many_threads();
    return test_end();
}
