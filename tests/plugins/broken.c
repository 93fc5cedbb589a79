/* Operators that are wrong, each in its own way, beside a reference that is right: `tenon check` must catch every one
 * of them by the case that is meant for it (test_broken.sh). */
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <tenon/op.h>

static double get(const tn_view *v, int64_t i) {
    return tn_get(v->type, v->data, i);
}
static void set(const tn_view *v, int64_t i, double value) {
    tn_set(v->type, v->data, i, value);
}
static tn_status done(void *state) {
    (void)state;
    return TN_OK;
}

/* ---- y = 2 x ----------------------------------------------------------------------------------------------------- */

static tn_status twice_ref(const tn_call *call, void *state) {
    const tn_view *x = tn_in(call, 0), *y = tn_out(call, 0);
    for (int64_t i = 0; i < tn_count(x); i++) set(y, i, 2 * get(x, i));
    return done(state);
}

/* Whole vectors of 8 only. */
static tn_status twice_tail(const tn_call *call, void *state) {
    const tn_view *x = tn_in(call, 0), *y = tn_out(call, 0);
    for (int64_t i = 0; i < tn_count(x) / 8 * 8; i++) set(y, i, 2 * get(x, i));
    return done(state);
}

/* One element, off by a ten-thousandth. */
static tn_status twice_little(const tn_call *call, void *state) {
    const tn_view *y = tn_out(call, 0);
    twice_ref(call, state);
    if (tn_count(y)) set(y, tn_count(y) / 2, 1.0001 * get(y, tn_count(y) / 2));
    return done(state);
}

/* Not defined everywhere. */
static tn_status root_ref(const tn_call *call, void *state) {
    const tn_view *x = tn_in(call, 0), *y = tn_out(call, 0);
    for (int64_t i = 0; i < tn_count(x); i++) set(y, i, sqrt(get(x, i)));
    return done(state);
}

/* Whole vectors of 8, past the end if need be. */
static tn_status twice_past(const tn_call *call, void *state) {
    const tn_view *x = tn_in(call, 0), *y = tn_out(call, 0);
    int64_t n = tn_count(x);
    for (int64_t i = 0; i < (n + 7) / 8 * 8; i++) set(y, i, i < n ? 2 * get(x, i) : 0);
    return done(state);
}

/* As if an address were always a multiple of 16. */
static tn_status twice_aligned(const tn_call *call, void *state) {
    tn_view x = *tn_in(call, 0);
    x.data = (void *)((uintptr_t)x.data & ~(uintptr_t)15);
    for (int64_t i = 0; i < tn_count(&x); i++) set(tn_out(call, 0), i, 2 * get(&x, i));
    return done(state);
}

/* The first row's scale for all: rows are counted in 16 bits. */
static tn_status twice_short_counter(const tn_call *call, void *state) {
    const tn_view *x = tn_in(call, 0), *y = tn_out(call, 0);
    int64_t rows = x->ndim ? x->shape[0] : 1, n = rows ? tn_count(x) / rows : 0;
    for (int64_t r = 0; r < (uint16_t)rows; r++) {
        for (int64_t i = r * n; i < (r + 1) * n; i++) set(y, i, 2 * get(x, i));
    }
    return done(state);
}

/* Three dimensions are too many for it. */
static tn_status twice_crash(const tn_call *call, void *state) {
    static void *volatile nothing;
    if (tn_in(call, 0)->ndim == 3) memset(nothing, 0, 1);
    return twice_ref(call, state);
}

/* Elements are counted in 31 bits. */
static void twice_range(void *arg, int64_t begin, int64_t end) {
    const tn_call *call = arg;
    const uint16_t *x = tn_in(call, 0)->data;
    uint16_t *y = tn_out(call, 0)->data;
    for (int64_t i = begin; i < end; i++) { /* bf16: adding one to the exponent doubles, 0 stays 0 */
        uint32_t at = (uint32_t)i & 0x7fffffff;
        y[at] = x[at] & 0x7fff ? (uint16_t)(x[at] + 0x80) : x[at];
    }
}
static tn_status twice_huge(const tn_call *call, void *state) {
    tn_parallel(call, tn_count(tn_in(call, 0)), 1 << 16, twice_range, (void *)call);
    return done(state);
}

/* Never gives back. */
static tn_status twice_leak(const tn_call *call, void *state) {
    void *volatile lost = malloc(64);
    (void)lost;
    return twice_ref(call, state);
}

/* Works in the process that loaded it. */
static tn_status twice_fork(const tn_call *call, void *state) {
    static pid_t first;
    if (!first) first = getpid();
    return getpid() == first ? twice_ref(call, state) : done(state);
}

/* One buffer for all threads. */
static tn_status twice_static(const tn_call *call, void *state) {
    static double buffer[1 << 16];
    const tn_view *x = tn_in(call, 0), *y = tn_out(call, 0);
    int64_t n = tn_count(x) < 1 << 16 ? tn_count(x) : 1 << 16;
    for (int64_t i = 0; i < n; i++) buffer[i] = get(x, i);
    sched_yield();
    for (int64_t i = 0; i < tn_count(x); i++) set(y, i, 2 * (i < n ? buffer[i] : get(x, i)));
    return done(state);
}

/* Every thousandth call is off by a little. */
static tn_status twice_drift(const tn_call *call, void *state) {
    static _Thread_local int calls;
    twice_ref(call, state);
    const tn_view *y = tn_out(call, 0);
    if (++calls % 16 == 0 && tn_count(y)) memset(y->data, 0, 1);
    return done(state);
}

/* Reads what it has just written, when y is x. */
static tn_status twice_alias(const tn_call *call, void *state) {
    const tn_view *x = tn_in(call, 0), *y = tn_out(call, 0);
    int64_t n = tn_count(x);
    for (int64_t i = 0; i < n; i++) set(y, i, get(x, i) * 2);
    for (int64_t i = 0; i < n; i++) set(y, i, get(x, i) * 2);
    return done(state);
}

/* Any strides, it says. */
static tn_status twice_strides(const tn_call *call, void *state) {
    return twice_ref(call, state);
}

static int64_t place(const tn_view *v, int64_t index, bool zero_is_one) {
    int64_t at = 0;
    for (int d = v->ndim - 1; d >= 0; d--) {
        int64_t stride = v->strides[d] == 0 && zero_is_one ? 1 : v->strides[d];
        at += index % v->shape[d] * stride;
        index /= v->shape[d];
    }
    return at;
}

/* Any strides but 0. */
static tn_status twice_stride0(const tn_call *call, void *state) {
    const tn_view *x = tn_in(call, 0), *y = tn_out(call, 0);
    for (int64_t i = 0; i < tn_count(x); i++) set(y, place(y, i, false), 2 * get(x, place(x, i, true)));
    return done(state);
}

/* Writes into its input. */
static tn_status twice_const(const tn_call *call, void *state) {
    const tn_view *x = tn_in(call, 0);
    twice_ref(call, state);
    if (tn_count(x)) set(x, 0, 0);
    return done(state);
}

/* ---- y = max(x, 0) ----------------------------------------------------------------------------------------------- */

static tn_status relu_ref(const tn_call *call, void *state) {
    const tn_view *x = tn_in(call, 0), *y = tn_out(call, 0);
    for (int64_t i = 0; i < tn_count(x); i++) set(y, i, get(x, i) < 0 ? 0 : get(x, i));
    return done(state);
}

/* NaN is not larger than 0. */
static tn_status relu_nan(const tn_call *call, void *state) {
    const tn_view *x = tn_in(call, 0), *y = tn_out(call, 0);
    for (int64_t i = 0; i < tn_count(x); i++) set(y, i, get(x, i) > 0 ? get(x, i) : 0);
    return done(state);
}

/* ---- y = the sum of each row; x: (rows, n) ----------------------------------------------------------------------- */

static tn_status rows_ref(const tn_call *call, void *state) {
    const tn_view *x = tn_in(call, 0), *y = tn_out(call, 0);
    int64_t n = x->shape[x->ndim - 1];
    for (int64_t r = 0; r < tn_count(y); r++) {
        double sum = 0;
        for (int64_t i = 0; i < n; i++) sum += get(x, r * n + i);
        set(y, r, sum);
    }
    return done(state);
}

/* There is always a first element, it thinks: rows of none keep what was there. */
static tn_status rows_empty(const tn_call *call, void *state) {
    return tn_count(tn_in(call, 0)) ? rows_ref(call, state) : done(state);
}

/* The sum is kept in the type of y. */
static tn_status rows_narrow(const tn_call *call, void *state) {
    const tn_view *x = tn_in(call, 0), *y = tn_out(call, 0);
    int64_t n = x->shape[x->ndim - 1];
    for (int64_t r = 0; r < tn_count(y); r++) {
        set(y, r, 0);
        for (int64_t i = 0; i < n; i++) set(y, r, get(y, r) + get(x, r * n + i));
    }
    return done(state);
}

/* Alone a row is added up from the other end. */
static tn_status rows_batch(const tn_call *call, void *state) {
    const tn_view *x = tn_in(call, 0), *y = tn_out(call, 0);
    int64_t n = x->shape[x->ndim - 1], rows = tn_count(y);
    for (int64_t r = 0; r < rows; r++) {
        float sum = 0;
        for (int64_t i = 0; i < n; i++) sum += (float)get(x, r * n + (rows > 1 ? i : n - 1 - i));
        set(y, r, sum);
    }
    return done(state);
}

typedef struct total {
    const tn_view *x;
    float sum;
    pthread_mutex_t lock;
} total;

static void add_piece(void *arg, int64_t begin, int64_t end) {
    total *t = arg;
    float sum = 0;
    for (int64_t i = begin; i < end; i++) sum += (float)get(t->x, i);
    pthread_mutex_lock(&t->lock);
    t->sum += sum;
    pthread_mutex_unlock(&t->lock);
}

/* Every thread adds what it has to one sum: the order, and so the rounding, is whatever it happens to be. */
static tn_status rows_pieces(const tn_call *call, void *state) {
    const tn_view *x = tn_in(call, 0), *y = tn_out(call, 0);
    int64_t n = x->shape[x->ndim - 1];
    for (int64_t r = 0; r < tn_count(y); r++) {
        tn_view row = *x;
        row.data = (char *)x->data + (size_t)(r * n) * tn_type_size(x->type);
        total t = {.x = &row, .lock = PTHREAD_MUTEX_INITIALIZER};
        tn_parallel(call, n, 256, add_piece, &t);
        set(y, r, t.sum);
    }
    return done(state);
}

/* Workspace comes zeroed, does it not? */
static size_t one_double(const tn_call *call) {
    (void)call;
    return sizeof(double);
}
static tn_status rows_workspace(const tn_call *call, void *state) {
    const tn_view *x = tn_in(call, 0), *y = tn_out(call, 0);
    double *sum = call->workspace;
    int64_t n = x->shape[x->ndim - 1];
    for (int64_t r = 0; r < tn_count(y); r++) {
        for (int64_t i = 0; i < n; i++) *sum += get(x, r * n + i);
        set(y, r, *sum);
        *sum = 0;
    }
    return done(state);
}

/* ---- y = the mean of what the mask leaves of each row, 0 where it leaves nothing --------------------------------- */

static void masked_mean(const tn_call *call, bool careful) {
    const tn_view *x = tn_in(call, 0), *mask = tn_in(call, 1), *y = tn_out(call, 0);
    int64_t n = x->shape[x->ndim - 1];
    for (int64_t r = 0; r < tn_count(y); r++) {
        double sum = 0, count = 0;
        for (int64_t i = 0; i < n; i++) {
            if (!((const uint8_t *)mask->data)[r * n + i]) continue;
            sum += get(x, r * n + i);
            count++;
        }
        set(y, r, careful && count == 0 ? 0 : sum / count);
    }
}
static tn_status masked_ref(const tn_call *call, void *state) {
    masked_mean(call, true);
    return done(state);
}
static tn_status masked_nan(const tn_call *call, void *state) {
    masked_mean(call, false);
    return done(state);
}

/* ---- count += 1 in place, y = count * x -------------------------------------------------------------------------- */

static void counting(const tn_call *call, double step) {
    const tn_view *x = tn_in(call, 0), *count = tn_in(call, 1), *y = tn_out(call, 0);
    double now = get(count, 0) + 1;
    for (int64_t i = 0; i < tn_count(x); i++) set(y, i, now * get(x, i));
    set(count, 0, get(count, 0) + step);
}
static tn_status counting_ref(const tn_call *call, void *state) {
    counting(call, 1);
    return done(state);
}
static tn_status counting_not(const tn_call *call, void *state) {
    counting(call, 0);
    return done(state);
}

/* ---- the rows ---------------------------------------------------------------------------------------------------- */

static const tn_sample samples[] = {{"s=[7]"}, {"s=[4, 33]"}, {"s=[2, 3, 16]"}, {0}};
static const tn_sample row_samples[] = {{"r=[] n=7"}, {"r=[4] n=33"}, {"r=[2, 3] n=300"}, {0}};
static const tn_sample masked_samples[] = {{"r=[4] n=33"}, {0}};

#define OP(op, contract, reference, rule, from, ...)                                                                \
    static const tn_kernel op##_kernels[] = {                                                                       \
        {.name = "fast", .device = TN_CPU, __VA_ARGS__}, {.name = "ref", .device = TN_CPU, .run = reference}, {0}}; \
    static const tn_op op = {                                                                                       \
        .signature = #op contract,                                                                                  \
        .doc = "Wrong on purpose.",                                                                                 \
        .grad = rule,                                                                                               \
        .kernels = op##_kernels,                                                                                    \
        .samples = from,                                                                                            \
    };

#define TWICE "(x: T[*s]) -> y: T[*s]"
#define ROWS "(x: T[*r, n]) -> y: T[*r]"

OP(broken_none, TWICE, twice_ref, NULL, samples, .run = twice_ref)
OP(broken_not, "<T: u8 bool>(x: T[*s]) -> y: i64[*s]", twice_ref, NULL, samples, .run = twice_ref)
OP(broken_bare, TWICE, twice_ref, NULL, NULL, .run = twice_ref)
OP(broken_tail, TWICE, twice_ref, NULL, samples, .run = twice_tail)
OP(broken_both, TWICE, twice_tail, NULL, samples, .run = twice_tail)
OP(broken_index, "(x: T[*s]) -> y: i64[*s]", twice_tail, NULL, samples, .run = twice_tail)
OP(broken_little, TWICE, twice_ref, NULL, samples, .run = twice_little)
OP(broken_past, TWICE, twice_ref, NULL, samples, .run = twice_past)
OP(broken_aligned, TWICE, twice_ref, NULL, samples, .run = twice_aligned)
OP(broken_counter, TWICE, twice_ref, NULL, samples, .run = twice_short_counter)
OP(broken_huge, TWICE, twice_ref, NULL, samples, .run = twice_huge, .types = TN_BIT(TN_BF16))
OP(broken_crash, TWICE, twice_ref, NULL, samples, .run = twice_crash)
OP(broken_leak, TWICE, twice_ref, NULL, samples, .run = twice_leak)
OP(broken_fork, TWICE, twice_ref, NULL, samples, .run = twice_fork)
OP(broken_static, TWICE, twice_ref, NULL, samples, .run = twice_static)
OP(broken_drift, TWICE, twice_ref, NULL, samples, .run = twice_drift)
OP(broken_alias, TWICE, twice_ref, NULL, samples, .run = twice_alias, .flags = TN_ALIAS)
OP(broken_strides, TWICE, twice_ref, NULL, samples, .run = twice_strides, .flags = TN_STRIDED)
OP(broken_stride0, TWICE, twice_ref, NULL, samples, .run = twice_stride0, .flags = TN_STRIDED)
OP(broken_const, TWICE, twice_ref, NULL, samples, .run = twice_const)
OP(broken_nan, TWICE, relu_ref, NULL, samples, .run = relu_nan)
OP(broken_empty, ROWS, rows_ref, NULL, row_samples, .run = rows_empty)
OP(broken_narrow, ROWS, rows_ref, NULL, row_samples, .run = rows_narrow)
OP(broken_batch, ROWS, rows_ref, NULL, row_samples, .run = rows_batch)
OP(broken_pieces, ROWS, rows_ref, NULL, row_samples, .run = rows_pieces)
OP(broken_workspace, ROWS, rows_ref, NULL, row_samples, .run = rows_workspace, .workspace = one_double)
OP(broken_masked, "(x: T[*r, n], mask: bool[*r, n]) -> y: T[*r]", masked_ref, NULL, masked_samples, .run = masked_nan)
OP(broken_inplace, "(x: T[*s], count: f32[]!) -> y: T[*s]", counting_ref, NULL, samples, .run = counting_not)
/* The gradient of 2 x is 2 dy; that of relu is not. */
OP(broken_grad, TWICE, twice_ref, "x: broken_nan(dy)", samples, .run = twice_ref)
OP(broken_domain, TWICE, root_ref, "x: broken_none(dy)", samples, .run = root_ref)

static const tn_op *const table[] = {
    &broken_none,   &broken_tail,    &broken_past,      &broken_aligned, &broken_empty,   &broken_counter,
    &broken_huge,   &broken_leak,    &broken_fork,      &broken_static,  &broken_drift,   &broken_alias,
    &broken_const,  &broken_strides, &broken_stride0,   &broken_nan,     &broken_narrow,  &broken_batch,
    &broken_grad,   &broken_pieces,  &broken_workspace, &broken_masked,  &broken_inplace, &broken_crash,
    &broken_little, &broken_both,    &broken_index,     &broken_bare,    &broken_domain,  &broken_not,
};

TN_API const tn_plugin tenon_plugin = TN_PLUGIN(table);
