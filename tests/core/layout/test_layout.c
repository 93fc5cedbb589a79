/* Nested loops over views, copies between layouts, single elements. */
#include <stdlib.h>

#include "core/layout/layout.h"
#include "core/layout/nest.h"
#include "tests/test.h"

static uint64_t random_state = 12345;
static int64_t draw(int64_t n) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((random_state >> 33) % (uint64_t)n);
}

/* ---- nests ------------------------------------------------------------------------------------------------------- */

enum { LOOPS = 6, VIEWS = 4 };

typedef struct views {
    int64_t sizes[LOOPS], strides[LOOPS][VIEWS];
    int64_t *at[VIEWS];
    tni_nest nest;
} views;

static void random_views(views *v) {
    v->nest = (tni_nest){(int32_t)draw(LOOPS + 1), 1 + (int32_t)draw(VIEWS), v->sizes, v->at, VIEWS};
    for (int32_t k = 0; k < VIEWS; k++) v->at[k] = &v->strides[0][k];
    int64_t dense = 1;
    for (int32_t d = 0; d < v->nest.n_loops; d++) {
        v->sizes[d] = 1 + draw(4);
        for (int32_t k = 0; k < v->nest.n_views; k++) {
            const int64_t odd = draw(200) - 100;
            v->strides[d][k] = draw(8) == 0 ? odd : draw(4) == 0 ? 0 : draw(8) == 0 ? -dense : dense;
        }
        dense *= v->sizes[d];
    }
}

/* A number of all addresses that the loops reach together, in any order. */
static uint64_t addresses(const views *v) {
    uint64_t sum = 0;
    int64_t count = 1;
    for (int32_t d = 0; d < v->nest.n_loops; d++) count *= v->sizes[d];
    for (int64_t i = 0; i < count; i++) {
        int64_t rest = i, at[VIEWS] = {0};
        for (int32_t d = v->nest.n_loops - 1; d >= 0; d--) {
            for (int32_t k = 0; k < v->nest.n_views; k++) at[k] += rest % v->sizes[d] * v->strides[d][k];
            rest /= v->sizes[d];
        }
        uint64_t hash = 1;
        for (int32_t k = 0; k < v->nest.n_views; k++) hash = (hash ^ (uint64_t)at[k]) * 0x9E3779B97F4A7C15u;
        sum += hash ^ hash >> 31;
    }
    return sum;
}

/* Of two neighbours: 1 where the inner one steps further by the first of the keys that tells, -1 where the outer one
 * does, 0 where none tells. */
static int wrong_way(const views *v, int32_t n_keys, int32_t d) {
    for (int32_t k = 0; k < n_keys; k++) {
        const int64_t outer = llabs(v->strides[d][k]), inner = llabs(v->strides[d + 1][k]);
        if (outer && inner && outer != inner) return inner > outer ? 1 : -1;
    }
    return 0;
}

static bool could_merge(const views *v, int32_t d) {
    bool merges = true;
    for (int32_t k = 0; k < v->nest.n_views; k++) {
        merges &= v->strides[d][k] == v->strides[d + 1][k] * v->sizes[d + 1];
    }
    return merges;
}

static void check_nest(void) {
    views v = {0};
    random_views(&v);
    const int32_t n_keys = 1 + (int32_t)draw(v.nest.n_views), n_loops = v.nest.n_loops;
    const uint64_t before = addresses(&v);
    tni_nest_sort(&v.nest, n_keys);
    CHECK(addresses(&v) == before);
    for (int32_t d = 0; d + 1 < n_loops; d++) CHECK(wrong_way(&v, n_keys, d) <= 0);
    tni_nest_merge(&v.nest);
    CHECK(addresses(&v) == before && v.nest.n_loops <= n_loops && (v.nest.n_loops > 0) == (n_loops > 0));
    for (int32_t d = 0; d + 1 < v.nest.n_loops; d++) CHECK(!could_merge(&v, d));
}

/* A channels-last image and a bias of its channels: the two loops over its plane become one, outside of the
 * channels. */
static void check_example(void) {
    int64_t sizes[] = {3, 5, 7}, image[] = {1, 21, 3}, bias[] = {1, 0, 0};
    tni_nest nest = {3, 2, sizes, (int64_t *[]){image, bias}, 1};
    tni_nest_sort(&nest, 1);
    tni_nest_merge(&nest);
    CHECK(nest.n_loops == 2 && sizes[0] == 35 && sizes[1] == 3);
    CHECK(image[0] == 3 && image[1] == 1 && bias[0] == 0 && bias[1] == 1);
}

/* ---- copies ------------------------------------------------------------------------------------------------------ */

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
    check_example();
    for (int i = 0; i < 2000; i++) check_nest();
    tn_set_threads(2);
    const tn_type types[] = {TN_I8, TN_F16, TN_F32, TN_F64, TN_C128};
    for (int i = 0; i < 400; i++) compare_copies(types[i % 5]);
    small_floats(TN_F16, 65536);
    small_floats(TN_BF16, 65536);
    small_floats(TN_E4M3, 256);
    small_floats(TN_E5M2, 256);
    return test_end();
}
