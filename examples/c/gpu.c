/* A GPU by itself, from C: batches come from the host, go through softmax and back. First one after the other on one
 * stream, then on two, so that one batch is copied while another is computed. Without a GPU the same calls run on the
 * CPU, where nothing overlaps.
 *
 *     make build
 *     cc -O2 examples/c/gpu.c $(build/tenon flags) -lm -o build/gpu && build/gpu
 *
 * build/gpu 64 takes batches of 64 rows instead of 8192. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <tenon.h>

enum { BATCHES = 8, COLUMNS = 1024, STREAMS = 2, RUNS = 5 };

static const tn_device cpu = {TN_CPU, 0};

/* What one stream works with: a batch of its own on the device. */
typedef struct lane {
    void *stream;
    tn_block x, y;
} lane;

typedef struct work {
    tn_device device;
    int64_t shape[2]; /* of a batch */
    size_t bytes;
    float *from, *to; /* pinned: all batches, and their results */
    lane lanes[STREAMS];
    tn_event *begin, *end, *done[STREAMS];
} work;

static tn_status make(work *w) {
    TN_TRY(tn_pinned_alloc(w->device, BATCHES * w->bytes, (void **)&w->from));
    TN_TRY(tn_pinned_alloc(w->device, BATCHES * w->bytes, (void **)&w->to));
    TN_TRY(tn_event_make(w->device, &w->begin));
    TN_TRY(tn_event_make(w->device, &w->end));
    for (int i = 0; i < STREAMS; i++) {
        lane *l = &w->lanes[i];
        TN_TRY(tn_stream_make(w->device, &l->stream));
        TN_TRY(tn_event_make(w->device, &w->done[i]));
        TN_TRY(tn_device_alloc(w->device, w->bytes, l->stream, &l->x));
        TN_TRY(tn_device_alloc(w->device, w->bytes, l->stream, &l->y));
    }
    const size_t n = BATCHES * w->bytes / sizeof(float);
    for (size_t i = 0; i < n; i++) w->from[i] = (float)(i * 7 % 1000) / 100;
    return TN_OK;
}

/* NULL and blocks of zeros are fine, so this cleans up after a make that failed, too. */
static void drop(work *w) {
    for (int i = 0; i < STREAMS; i++) {
        lane *l = &w->lanes[i];
        tn_device_free(w->device, l->x, l->stream);
        tn_device_free(w->device, l->y, l->stream);
        tn_stream_wait(w->device, l->stream);
        tn_stream_free(w->device, l->stream);
        tn_event_free(w->done[i]);
    }
    tn_event_free(w->begin);
    tn_event_free(w->end);
    tn_pinned_free(w->device, w->from);
    tn_pinned_free(w->device, w->to);
}

/* Batch i in a stream: to the device, softmax, back. Nothing here waits. */
static tn_status put(work *w, int i, const lane *l) {
    const size_t at = (size_t)i * w->bytes / sizeof(float);
    const tn_host host = tn_stream_host(l->stream);
    tn_tensor x = tn_dense(l->x.data, TN_F32, 2, w->shape), y = tn_dense(l->y.data, TN_F32, 2, w->shape);
    x.device = y.device = w->device;
    TN_TRY(tn_copy(w->device, l->x.data, cpu, w->from + at, w->bytes, l->stream));
    TN_TRY(tn_softmax_on(&host, &x, NULL, NULL, &y));
    return tn_copy(cpu, w->to + at, w->device, l->y.data, w->bytes, l->stream);
}

/* All batches, over the first `streams`. The first stream has the events that time is taken by: the others begin when
 * it begins, and it ends when they are done. */
static tn_status run(work *w, int streams, double *milliseconds) {
    TN_TRY(tn_event_record(w->begin, w->lanes[0].stream));
    for (int i = 1; i < streams; i++) TN_TRY(tn_event_hold(w->begin, w->lanes[i].stream));
    for (int i = 0; i < BATCHES; i++) TN_TRY(put(w, i, &w->lanes[i % streams]));
    for (int i = 1; i < streams; i++) {
        TN_TRY(tn_event_record(w->done[i], w->lanes[i].stream));
        TN_TRY(tn_event_hold(w->done[i], w->lanes[0].stream));
    }
    TN_TRY(tn_event_record(w->end, w->lanes[0].stream));
    return tn_event_milliseconds(w->begin, w->end, milliseconds);
}

static tn_status measure(work *w, int streams, double *best) {
    double time;
    TN_TRY(run(w, streams, &time)); /* plans are made */
    *best = INFINITY;
    for (int i = 0; i < RUNS; i++) {
        TN_TRY(run(w, streams, &time));
        *best = fmin(*best, time);
    }
    return TN_OK;
}

/* The largest difference from what the CPU makes of all batches. */
static tn_status compare(const work *w, double *error) {
    int64_t shape[] = {BATCHES * w->shape[0], COLUMNS};
    const size_t n = (size_t)(shape[0] * shape[1]);
    float *expected = malloc(n * sizeof *expected);
    if (!expected) return tn_fail(TN_NO_MEMORY, "no memory to compare with");
    tn_tensor x = tn_dense(w->from, TN_F32, 2, shape), y = tn_dense(expected, TN_F32, 2, shape);
    const tn_status status = tn_softmax(&x, NULL, NULL, &y);
    *error = 0;
    for (size_t i = 0; status == TN_OK && i < n; i++)
        *error = fmax(*error, fabs((double)expected[i] - (double)w->to[i]));
    free(expected);
    return status;
}

static tn_status show(work *w) {
    double one, two, error = INFINITY;
    tn_memory_stats memory;
    TN_TRY(measure(w, 1, &one));
    TN_TRY(measure(w, STREAMS, &two));
    TN_TRY(compare(w, &error));
    TN_TRY(tn_memory_get(w->device, &memory));
    const double moved = 2.0 * BATCHES * (double)w->bytes; /* to the device and back */
    printf("%d batches of %lld x %d: one stream %.3f ms (%.1f GB/s), two streams %.3f ms (%.1f GB/s), %.2f times\n",
           BATCHES, (long long)w->shape[0], COLUMNS, one, moved / one * 1e-6, two, moved / two * 1e-6, one / two);
    printf("memory: %.1f MB in use, %.1f MB at most, %.1f MB in the pool\n", (double)memory.in_use * 1e-6,
           (double)memory.peak * 1e-6, (double)memory.pooled * 1e-6);
    printf("largest difference from the CPU: %.2g\n", error);
    return error < 1e-6 ? TN_OK : tn_fail(TN_SYSTEM, "the results are wrong");
}

int main(int argc, char **argv) {
    const int64_t rows = argc > 1 ? atoll(argv[1]) : 8192;
    work w = {.device = {TN_CUDA, 0}, .shape = {rows, COLUMNS}, .bytes = (size_t)rows * COLUMNS * sizeof(float)};
    tn_device_info info;
    int count;
    if (tn_device_count(TN_CUDA, &count) != TN_OK) {
        printf("no GPU (%s): the same on the CPU, where nothing overlaps\n", tn_last_error());
        w.device = cpu;
    }
    tn_status status = tn_device_describe(w.device, &info);
    if (status == TN_OK) printf("device: %s, %.0f GB\n", info.name, (double)info.memory * 1e-9);
    if (status == TN_OK) status = make(&w);
    if (status == TN_OK) status = show(&w);
    if (status != TN_OK) fprintf(stderr, "%s\n", tn_last_error());
    drop(&w);
    tn_shutdown();
    return status == TN_OK ? 0 : 1;
}
