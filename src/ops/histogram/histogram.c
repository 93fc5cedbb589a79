/* histogram: how many elements fall into each of equal bins.
 *
 * Bin i has the numbers from edge i up to, but without, edge i + 1; the last bin has its end too. A guess says which
 * bin it may be, and the edges say which it is: how the guess was rounded does not matter, so that every device counts
 * the same. */
#include "histogram.h"

#include <string.h>

#include "core/host/arith.h"
#include "cuda/driver/cuda.h"
#include "ops/elements.h"

TNI_CUDA_DECLARE(histogram)

enum {
    SLOTS = 64,     /* most pieces of x that are counted at once, each with counts of its own */
    PIECE = 65536,  /* fewest elements of one */
    TOGETHER = 512, /* elements that are read at a time */
};

static tn_status histogram_ref(const tn_call *call, void *state) {
    (void)state;
    const histogram_args a = histogram_args_of(call);
    const int64_t n = tn_count(a.x);
    int64_t *counts = a.counts->data;
    memset(counts, 0, (size_t)a.bins * sizeof *counts);
    for (int64_t i = 0; i < n; i++) {
        const double x = get(a.x, i);
        if (!(x >= a.low && x <= a.high)) continue;
        int64_t bin = 0;
        for (int64_t past = a.bins; past - bin > 1;) { /* by halves */
            const int64_t middle = bin + (past - bin) / 2;
            *(x < histogram_edge(&a, middle) ? &past : &bin) = middle;
        }
        counts[bin]++;
    }
    return TN_OK;
}

/* ---- the CPU's kernel -------------------------------------------------------------------------------------------- */

typedef struct job {
    histogram_args a;
    int64_t n, slots;
    double per_width;
    double *edges;   /* (bins + 1) */
    int64_t *counts; /* (slots, bins) */
} job;

static int64_t slots_of(const histogram_args *a) {
    return max(min(tn_count(a->x) / max(a->bins, PIECE), SLOTS), 1);
}

static size_t histogram_workspace(const tn_call *call) {
    const histogram_args a = histogram_args_of(call);
    return (size_t)(a.bins + 1) * sizeof(double) + (size_t)(slots_of(&a) * a.bins) * sizeof(int64_t);
}

#define WIDEN(name, T, value)                                \
    static void name(const void *x, int64_t n, double *to) { \
        for (int64_t i = 0; i < n; i++) {                    \
            const T v = ((const T *)x)[i];                   \
            to[i] = value;                                   \
        }                                                    \
    }
WIDEN(widen_f32, float, (double)v)
WIDEN(widen_f64, double, v)
WIDEN(widen_i8, int8_t, (double)v)
WIDEN(widen_u8, uint8_t, (double)v)
WIDEN(widen_i16, int16_t, (double)v)
WIDEN(widen_i32, int32_t, (double)v)
WIDEN(widen_i64, int64_t, (double)v)

static void read_numbers(const tn_view *x, int64_t first, int64_t n, double *to) {
    const void *from = (const char *)x->data + first * (int64_t)tn_type_size(x->type);
    switch (x->type) {
    case TN_F32: widen_f32(from, n, to); break;
    case TN_F64: widen_f64(from, n, to); break;
    case TN_I8: widen_i8(from, n, to); break;
    case TN_U8: widen_u8(from, n, to); break;
    case TN_I16: widen_i16(from, n, to); break;
    case TN_I32: widen_i32(from, n, to); break;
    case TN_I64: widen_i64(from, n, to); break;
    default:
        for (int64_t i = 0; i < n; i++) to[i] = tn_get(x->type, x->data, first + i);
    }
}

static void count_slots(void *arg, int64_t begin, int64_t end) {
    const job *j = arg;
    const histogram_args *a = &j->a;
    const double low = a->low, high = a->high, per_width = j->per_width, *edges = j->edges;
    const int64_t bins = a->bins;
    for (int64_t s = begin; s < end; s++) {
        int64_t *counts = j->counts + s * bins;
        const int64_t first = j->n / j->slots * s, past = s + 1 == j->slots ? j->n : j->n / j->slots * (s + 1);
        memset(counts, 0, (size_t)bins * sizeof *counts);
        for (int64_t at = first; at < past; at += TOGETHER) {
            double x[TOGETHER];
            const int64_t n = min(past - at, TOGETHER);
            read_numbers(a->x, at, n, x);
            for (int64_t i = 0; i < n; i++) {
                if (!(x[i] >= low && x[i] <= high)) continue;
                int64_t bin = min((int64_t)((x[i] - low) * per_width), bins - 1);
                while (x[i] < edges[bin]) bin--;
                while (bin + 1 < bins && x[i] >= edges[bin + 1]) bin++;
                counts[bin]++;
            }
        }
    }
}

static tn_status histogram_cpu(const tn_call *call, void *state) {
    (void)state;
    job j = {.a = histogram_args_of(call), .edges = call->workspace};
    j.n = tn_count(j.a.x);
    j.slots = slots_of(&j.a);
    j.counts = (int64_t *)(j.edges + j.a.bins + 1);
    j.per_width = (double)j.a.bins / (j.a.high - j.a.low);
    for (int64_t i = 0; i <= j.a.bins; i++) j.edges[i] = histogram_edge(&j.a, i);
    tn_parallel(call, j.slots, 1, count_slots, &j);
    int64_t *counts = j.a.counts->data;
    memset(counts, 0, (size_t)j.a.bins * sizeof *counts);
    for (int64_t s = 0; s < j.slots; s++) {
        for (int64_t i = 0; i < j.a.bins; i++) counts[i] += j.counts[s * j.a.bins + i];
    }
    return TN_OK;
}

static const tn_kernel histogram_kernels[] = {
    {.name = "pieces", .device = TN_CPU, .workspace = histogram_workspace, .run = histogram_cpu},
    TNI_CUDA_KERNEL(histogram),
    {.name = "ref", .device = TN_CPU, .run = histogram_ref},
    {0},
};

static const tn_sample histogram_samples[] = {
    {"s=[7] bins=3 low=-1.0 high=1.0"},
    {"s=[4, 33] bins=10 low=-2.0 high=1.5"},
    {"s=[5, 4, 3] bins=1 low=0.0 high=3.0"},
    {"s=[] bins=4 low=-4.0 high=4.0"},
    {"s=[0, 5] bins=4 low=0.0 high=1.0"},
    {"s=[5000] bins=64 low=-3.0 high=3.0"},
    {"s=[300000] bins=100 low=-3.0 high=3.0"},
    {"s=[1000] bins=20000 low=-3.0 high=3.0"},
    {"s=[16777216] bins=256 low=-4.0 high=4.0", .bench = true},
    {0},
};

const tn_op tni_ops_histogram[] = {
    {
        .signature = "histogram<T: f16 bf16 f32 f64 i8 i16 i32 i64 u8>(x: T[*s], bins: int, low: float, high: float) "
                     "-> counts: i64[bins] where bins >= 1, low < high",
        .doc = "How many elements fall into each of equal bins from low to high, which the last one has too; NaN and "
               "what is outside are left out.",
        .kernels = histogram_kernels,
        .samples = histogram_samples,
    },
    {0},
};
