/* The default host: threads and pool; and copies between layouts, which use both. */
#include <fenv.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/host/memory.h"
#include "core/host/threads.h"
#include "core/layout/layout.h"
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

/* ---- copies ------------------------------------------------------------------------------------------------------ */

static uint64_t random_state = 12345;
static int64_t draw(int64_t n) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((random_state >> 33) % (uint64_t)n);
}

/* Strides of a random layout: dimensions in any order, gaps, now and then backwards. Returns where the first element is
 * and how many elements the layout spans. */
static int64_t random_layout(int32_t ndim, const int64_t *shape, int64_t *strides, int64_t *span) {
    int32_t order[TN_MAX_RANK];
    int64_t stride = 1 + draw(2), first = 0;
    for (int32_t d = 0; d < ndim; d++) order[d] = d;
    for (int32_t d = ndim - 1; d > 0; d--) {
        int32_t other = (int32_t)draw(d + 1), kept = order[d];
        order[d] = order[other];
        order[other] = kept;
    }
    for (int32_t k = 0; k < ndim; k++) {
        int32_t d = order[k];
        strides[d] = stride;
        stride *= shape[d] > 0 ? shape[d] : 1;
        stride += draw(3);
        if (draw(4) == 0 && shape[d] > 0) {
            first += (shape[d] - 1) * strides[d];
            strides[d] = -strides[d];
        }
    }
    *span = stride + 1;
    return first;
}

static void compare_copies(tn_type type) {
    size_t size = tn_type_size(type);
    int32_t ndim = (int32_t)draw(5);
    int64_t shape[4], a[4], b[4], span_a, span_b, count = 1;
    for (int32_t d = 0; d < ndim; d++) {
        shape[d] = draw(20) == 0 ? 0 : 1 + draw(ndim < 3 ? 300 : 24);
        count *= shape[d];
    }
    int64_t first_a = random_layout(ndim, shape, a, &span_a), first_b = random_layout(ndim, shape, b, &span_b);
    if (draw(5) == 0) { /* a source that repeats itself */
        for (int32_t d = 0; d < ndim; d++) a[d] = draw(2) ? 0 : (a[d] < 0 ? -a[d] : a[d]);
        first_a = 0;
    }
    unsigned char *from = malloc((size_t)span_a * size), *to = calloc((size_t)span_b, size);
    for (size_t i = 0; i < (size_t)span_a * size; i++) from[i] = (unsigned char)(1 + draw(255));
    tn_view vf = {from + (size_t)first_a * size, shape, a, ndim, type};
    tn_view vt = {to + (size_t)first_b * size, shape, b, ndim, type};
    const tn_call call = {.device = {TN_CPU, 0}, .host = tn_default_host()};
    CHECK(tni_strided_copy(&call, &vt, &vf) == TN_OK);
    bool right = true;
    for (int64_t i = 0; i < count; i++) {
        int64_t rest = i, x = 0, y = 0;
        for (int32_t d = ndim - 1; d >= 0; d--) {
            x += rest % shape[d] * a[d];
            y += rest % shape[d] * b[d];
            rest /= shape[d];
        }
        right &= memcmp((char *)vf.data + x * (int64_t)size, (char *)vt.data + y * (int64_t)size, size) == 0;
    }
    CHECK_ROW(right, "type %s, rank %d", tn_type_name(type), ndim);
    /* Nothing beside the elements was written. */
    int64_t written = 0;
    for (int64_t i = 0; i < span_b; i++) {
        bool any = false;
        for (size_t k = 0; k < size; k++) any |= to[(size_t)i * size + k] != 0;
        written += any;
    }
    CHECK_ROW(written == count, "type %s, rank %d: %lld of %lld", tn_type_name(type), ndim, (long long)written,
              (long long)count);
    free(from);
    free(to);
}

/* ---- elements ---------------------------------------------------------------------------------------------------- */

/* Every 16-bit and 8-bit float goes to a double and back; in between, the nearest one wins and ties go to even. */
static void small_floats(tn_type type, uint32_t count) {
    uint16_t bits = 0, back = 0;
    for (uint32_t i = 0; i < count; i++) {
        bits = (uint16_t)i;
        double value = tn_get(type, &bits, 0);
        tn_set(type, &back, 0, value);
        if (value != value) {
            CHECK(tn_get(type, &back, 0) != tn_get(type, &back, 0));
        } else {
            CHECK_ROW(back == bits, "%s %04x became %04x", tn_type_name(type), bits, back);
        }
        uint16_t next = (uint16_t)(i + 1);
        double above = tn_get(type, &next, 0);
        if (!(value >= 0) || !(above > value) || above > 1e300) continue;
        double middle = value + (above - value) / 2;
        tn_set(type, &back, 0, middle);
        CHECK_ROW(back == (i % 2 == 0 ? bits : next), "%s: the middle above %04x became %04x", tn_type_name(type), bits,
                  back);
        tn_set(type, &back, 0, middle * (1 + 1e-12));
        CHECK(back == next);
    }
}

int main(void) {
    every_element_once();
    callers_rounding();
    many_callers_at_once();
    alive_again_after_fork();
    blocks_come_back();
    pool_from_many_threads();
    tn_set_threads(2);
    const tn_type types[] = {TN_I8, TN_F16, TN_F32, TN_F64, TN_C128};
    for (int i = 0; i < 400; i++) compare_copies(types[i % 5]);
    small_floats(TN_F16, 65536);
    small_floats(TN_BF16, 65536);
    small_floats(TN_E4M3, 256);
    small_floats(TN_E5M2, 256);
    return test_end();
}
