/* Operators that are right and behave badly: towards the process, the memory around a call, the other threads, or the
 * last bits. `tenon check` must catch every one of them by the case that is meant for it (test_broken.sh). */
#include <stdlib.h>
#include <string.h>

#include <tenon/op.h>

static double get(const tn_view *v, int64_t i) {
    return tn_get(v->type, v->data, i);
}
static void set(const tn_view *v, int64_t i, double value) {
    tn_set(v->type, v->data, i, value);
}

static tn_status twice(const tn_call *call, void *state) {
    const tn_view *x = tn_in(call, 0), *y = tn_out(call, 0);
    (void)state;
    for (int64_t i = 0; i < tn_count(x); i++) set(y, i, 2 * get(x, i));
    return TN_OK;
}

/* ---- the process ------------------------------------------------------------------------------------------------- */

static bool is_special(const tn_call *call) {
    return tn_in(call, 0)->ndim == 3;
}

/* Three dimensions, and all is well, it says. */
static tn_status twice_exit(const tn_call *call, void *state) {
    if (is_special(call)) exit(0);
    return twice(call, state);
}

static tn_status twice_abort(const tn_call *call, void *state) {
    if (is_special(call)) abort();
    return twice(call, state);
}

/* Waits for what never comes. */
static tn_status twice_forever(const tn_call *call, void *state) {
    static volatile int never;
    while (is_special(call) && !never) continue;
    return twice(call, state);
}

/* ---- memory around a call ---------------------------------------------------------------------------------------- */

/* One element too far, which changes nothing. */
static tn_status twice_behind(const tn_call *call, void *state) {
    const tn_view *x = tn_in(call, 0);
    volatile double seen = get(x, tn_count(x));
    (void)seen;
    return twice(call, state);
}
static tn_status twice_before(const tn_call *call, void *state) {
    volatile double seen = get(tn_in(call, 0), -1);
    (void)seen;
    return twice(call, state);
}

/* Elements are counted in 31 bits. */
static void twice_range(void *arg, int64_t begin, int64_t end) {
    const tn_call *call = arg;
    const float *x = tn_in(call, 0)->data;
    float *y = tn_out(call, 0)->data;
    for (int64_t i = begin; i < end; i++) y[(uint32_t)i & 0x7fffffff] = 2 * x[(uint32_t)i & 0x7fffffff];
}
static tn_status twice_huge(const tn_call *call, void *state) {
    (void)state;
    tn_parallel(call, tn_count(tn_in(call, 0)), 1 << 16, twice_range, (void *)call);
    return TN_OK;
}

/* ---- what is prepared -------------------------------------------------------------------------------------------- */

static tn_status prepare_buffer(const tn_call *call, void **state) {
    *state = malloc((size_t)tn_count(tn_in(call, 0)) * sizeof(double) + 64);
    return *state ? TN_OK : tn_fail(TN_NO_MEMORY, "twice: out of memory");
}

/* The state is everybody's who calls with this shape. */
static tn_status twice_scratch(const tn_call *call, void *state) {
    const tn_view *x = tn_in(call, 0), *y = tn_out(call, 0);
    double *scratch = state;
    for (int64_t i = 0; i < tn_count(x); i++) scratch[i] = get(x, i);
    for (int64_t i = 0; i < tn_count(x); i++) set(y, i, 2 * scratch[i]);
    return TN_OK;
}

/* A buffer of the kernel's own, for all threads. */
static tn_status twice_static(const tn_call *call, void *state) {
    static double buffer[1 << 16];
    const tn_view *x = tn_in(call, 0), *y = tn_out(call, 0);
    const int64_t n = tn_count(x) < 1 << 16 ? tn_count(x) : 1 << 16;
    (void)state;
    for (int64_t i = 0; i < n; i++) buffer[i] = get(x, i);
    for (int64_t i = 0; i < tn_count(x); i++) set(y, i, 2 * (i < n ? buffer[i] : get(x, i)));
    return TN_OK;
}

/* The pieces of a loop share a place to put things. */
typedef struct shared {
    const tn_call *call;
    double buffer[256];
} shared;

static void twice_pieces(void *arg, int64_t begin, int64_t end) {
    shared *s = arg;
    const tn_view *x = tn_in(s->call, 0), *y = tn_out(s->call, 0);
    for (int64_t first = begin; first < end; first += 256) {
        const int64_t n = end - first < 256 ? end - first : 256;
        for (int64_t i = 0; i < n; i++) s->buffer[i] = get(x, first + i);
        for (int64_t i = 0; i < n; i++) set(y, first + i, 2 * s->buffer[i]);
    }
}
static tn_status twice_race(const tn_call *call, void *state) {
    shared s = {.call = call};
    (void)state;
    tn_parallel(call, tn_count(tn_in(call, 0)), 256, twice_pieces, &s);
    return TN_OK;
}

/* ---- the last bits ----------------------------------------------------------------------------------------------- */

/* The lowest three bits of an f32 are thrown away. */
static tn_status thrice_cut(const tn_call *call, void *state) {
    const float *x = tn_in(call, 0)->data;
    float *y = tn_out(call, 0)->data;
    (void)state;
    for (int64_t i = 0; i < tn_count(tn_in(call, 0)); i++) {
        const float whole = 3 * x[i];
        uint32_t bits;
        memcpy(&bits, &whole, sizeof bits);
        bits &= ~(uint32_t)7;
        memcpy(&y[i], &bits, sizeof bits);
    }
    return TN_OK;
}
static tn_status thrice(const tn_call *call, void *state) {
    const tn_view *x = tn_in(call, 0), *y = tn_out(call, 0);
    (void)state;
    for (int64_t i = 0; i < tn_count(x); i++) set(y, i, 3 * get(x, i));
    return TN_OK;
}

/* ---- gradients --------------------------------------------------------------------------------------------------- */

static tn_status scaled(const tn_call *call, void *state) {
    const tn_view *x = tn_in(call, 0), *scale = tn_in(call, 1), *y = tn_out(call, 0);
    (void)state;
    for (int64_t i = 0; i < tn_count(x); i++) set(y, i, get(x, i) * get(scale, i));
    return TN_OK;
}

/* Only a fast one for its gradient, which is wrong. */
static tn_status half(const tn_call *call, void *state) {
    const tn_view *dy = tn_in(call, 0), *dx = tn_out(call, 0);
    (void)state;
    for (int64_t i = 0; i < tn_count(dy) / 8 * 8; i++) set(dx, i, 2 * get(dy, i));
    return TN_OK;
}

/* ---- the rows ---------------------------------------------------------------------------------------------------- */

static const tn_sample samples[] = {{"s=[7]"}, {"s=[4, 33]"}, {"s=[2, 3, 16]"}, {0}};

#define OP(op, contract, reference, rule, ...)                                                                      \
    static const tn_kernel op##_kernels[] = {                                                                       \
        {.name = "fast", .device = TN_CPU, __VA_ARGS__}, {.name = "ref", .device = TN_CPU, .run = reference}, {0}}; \
    static const tn_op op = {                                                                                       \
        .signature = #op contract,                                                                                  \
        .doc = "Misbehaves on purpose.",                                                                            \
        .grad = rule,                                                                                               \
        .kernels = op##_kernels,                                                                                    \
        .samples = samples,                                                                                         \
    };

/* One kernel and no other. */
#define ALONE(op, contract, function, ...)                                                                           \
    static const tn_kernel op##_kernels[] = {{.name = "fast", .device = TN_CPU, .run = function, __VA_ARGS__}, {0}}; \
    static const tn_op op = {                                                                                        \
        .signature = #op contract,                                                                                   \
        .doc = "Alone.",                                                                                             \
        .kernels = op##_kernels,                                                                                     \
        .samples = samples,                                                                                          \
    };

#define TWICE "(x: T[*s]) -> y: T[*s]"
#define F32 .types = TN_BIT(TN_F32)

OP(bad_exit, TWICE, twice, NULL, .run = twice_exit)
OP(bad_abort, TWICE, twice, NULL, .run = twice_abort)
OP(bad_forever, TWICE, twice, NULL, .run = twice_forever)
OP(bad_behind, TWICE, twice, NULL, .run = twice_behind)
OP(bad_before, TWICE, twice, NULL, .run = twice_before)
OP(bad_huge, TWICE, twice, NULL, .run = twice_huge, F32)
OP(bad_leak, TWICE, twice, NULL, .run = twice, .prepare = prepare_buffer)
OP(bad_scratch, TWICE, twice, NULL, .run = twice_scratch, .prepare = prepare_buffer, .release = free)
OP(bad_static, TWICE, twice, NULL, .run = twice_static)
OP(bad_race, TWICE, twice, NULL, .run = twice_race)
OP(bad_bits, TWICE, thrice, NULL, .run = thrice_cut, F32)
OP(bad_half, TWICE, twice, NULL, .run = half)
OP(bad_whole, TWICE, twice, "x: bad_half(dy)", .run = twice)
OP(bad_scaled, "(x: T[*s], scale: T[*s]) -> y: T[*s]", scaled, "x: bad_scaled(dy, scale)", .run = scaled)
ALONE(alone_wide, TWICE, twice, .types = 0)
ALONE(alone_narrow, TWICE, twice_huge, F32)
ALONE(alone_fixed, "(x: f32[*s]) -> y: f32[*s]", twice_huge, .types = 0)

static const tn_op *const table[] = {
    &bad_exit,  &bad_abort,   &bad_forever, &bad_behind,   &bad_before,  &bad_huge,
    &bad_leak,  &bad_scratch, &bad_static,  &bad_race,     &bad_bits,    &bad_half,
    &bad_whole, &bad_scaled,  &alone_wide,  &alone_narrow, &alone_fixed,
};

TN_API const tn_plugin tenon_plugin = TN_PLUGIN(table);
