/* More than 2^31 elements on a GPU. A few problems, one after the other along the slice, are copied there once and
 * doubled until the tensors are full; so every element of the slice has a known result, and many of them are looked
 * at. */
#include "check_huge.h"
#include "core/layout/layout.h"

#include <stdio.h>
#include <string.h>

enum { PROBLEMS = 4, RANDOM_PLACES = 24, ZONE = 4096 };
static const char WANTED[] = "tenon check";

typedef struct huge {
    checker *c;
    const slice *s;
    const tni_cuda_api *cu;
    made_call k;
    problem problems[PROBLEMS];
    int made;
} huge;

/* A tensor as (outer, n, inner): n is the dimension of the slice; 1 where the tensor does not have it. */
typedef struct parts {
    int64_t outer, n, inner;
} parts;

static parts split(const array *a, int32_t dim) {
    parts p = {1, 1, 1};
    for (int32_t d = 0; d < a->tensor.ndim; d++) {
        int64_t *part = dim >= 0 && d < dim ? &p.outer : d == dim ? &p.n : &p.inner;
        *part *= a->shape[d];
    }
    return p;
}

static cu_pointer address(const array *a) {
    return (uintptr_t)a->tensor.data;
}

static size_t bytes_of(const array *a) {
    return (size_t)a->count * tn_type_size(a->type);
}

static bool good(huge *h, int error) {
    if (!error) return true;
    tni_cuda_failed(WANTED, "a huge tensor", error);
    check_fail(h->c, "%s", tn_last_error());
    return false;
}

/* ---- there ------------------------------------------------------------------------------------------------------- */

/* Memory full of NaN, a zone on both sides. */
static bool place(huge *h, array *a) {
    cu_pointer data = 0;
    const size_t all = bytes_of(a) + 2 * ZONE;
    if (!good(h, h->cu->cuMemAlloc(&data, all))) return false;
    a->tensor.data = (void *)(uintptr_t)(data + ZONE);
    a->tensor.device = (tn_device){TN_CUDA, h->c->gpu->device};
    return good(h, h->cu->cuMemsetD8Async(data, 0xff, all, h->c->gpu->stream));
}

/* The problems' values for outer index o, one problem after the other: (PROBLEMS, inner). */
static void write_tile(const huge *h, int32_t i, parts p, int64_t o, int64_t count, void *tile) {
    for (int64_t k = 0; k < count; k++) {
        const double *values = h->problems[k].in[i] + o * p.inner;
        for (int64_t e = 0; e < p.inner; e++) tn_set(h->k.in[i].type, tile, k * p.inner + e, values[e]);
    }
}

static bool fill(huge *h, int32_t i) {
    const array *a = &h->k.in[i];
    const parts p = split(a, h->s->in_dim[i]);
    const int64_t count = p.n < PROBLEMS ? p.n : PROBLEMS;
    const size_t row = (size_t)p.inner * tn_type_size(a->type), all = (size_t)p.n * row;
    char *tile = tni_malloc((size_t)count * row + 1);
    bool fine = tile != NULL;
    for (int64_t o = 0; fine && o < p.outer; o++) {
        const cu_pointer to = address(a) + (uint64_t)o * all;
        size_t done = (size_t)count * row;
        write_tile(h, i, p, o, count, tile);
        fine = good(h, h->cu->cuMemcpyHtoDAsync(to, tile, done, h->c->gpu->stream)) &&
               good(h, h->cu->cuStreamSynchronize(h->c->gpu->stream));
        while (fine && done < all) {
            size_t part = all - done < done ? all - done : done;
            fine = good(h, h->cu->cuMemcpyDtoDAsync(to + done, to, part, h->c->gpu->stream));
            done += part;
        }
    }
    tni_free(tile);
    return fine;
}

/* ---- and back ---------------------------------------------------------------------------------------------------- */

/* Element `at` of the slice of one result. */
static void compare_part(huge *h, const result *r, const array *a, int32_t dim, int64_t at) {
    const parts p = split(a, dim);
    const size_t row = (size_t)p.inner * tn_type_size(a->type);
    char what[96];
    char *memory = tni_malloc((size_t)p.outer * row + 1);
    bool fine = memory != NULL;
    for (int64_t o = 0; fine && o < p.outer; o++) {
        const cu_pointer from = address(a) + (uint64_t)(o * p.n + at) * row;
        fine = good(h, h->cu->cuMemcpyDtoHAsync(memory + (size_t)o * row, from, row, h->c->gpu->stream));
    }
    if (fine && good(h, h->cu->cuStreamSynchronize(h->c->gpu->stream))) {
        int64_t shape[TN_MAX_RANK], strides[TN_MAX_RANK];
        memcpy(shape, a->shape, sizeof shape);
        if (dim >= 0) shape[dim] = 1;
        tni_dense_strides(a->tensor.ndim, shape, strides);
        array view;
        array_view(&view, a->type, a->tensor.ndim, shape, strides, memory);
        snprintf(what, sizeof what, "element %lld of %lld", (long long)at, (long long)h->s->n);
        compare_result(h->c, r, &view, what);
    }
    tni_free(memory);
}

static void compare_at(huge *h, int64_t at) {
    const problem *p = &h->problems[at % PROBLEMS];
    for (int32_t i = 0; i < p->n_results && !h->c->broken; i++) {
        const result *r = &p->results[i];
        int32_t index = r->output >= 0 ? r->output : h->k.n_out + r->input;
        if (!r->present || h->s->out_dim[index] < 0) continue;
        compare_part(h, r, result_array(&h->k, r), h->s->out_dim[index], at);
    }
}

static void compare_places(huge *h, int64_t boundary) {
    const int64_t n = h->s->n, places[] = {0, 1, boundary - 1, boundary, boundary + 1, n - 2, n - 1};
    uint64_t seed = check_seed(h->c, 600);
    for (size_t i = 0; i < sizeof places / sizeof *places && !h->c->broken; i++) {
        if (places[i] >= 0 && places[i] < n) compare_at(h, places[i]);
    }
    for (int i = 0; i < RANDOM_PLACES && !h->c->broken; i++) compare_at(h, random_below(&seed, n));
}

static bool zone_intact(huge *h, cu_pointer zone) {
    unsigned char bytes[ZONE];
    if (!good(h, h->cu->cuMemcpyDtoHAsync(bytes, zone, ZONE, h->c->gpu->stream)) ||
        !good(h, h->cu->cuStreamSynchronize(h->c->gpu->stream))) {
        return false;
    }
    for (int i = 0; i < ZONE; i++) {
        if (bytes[i] != 0xff) return false;
    }
    return true;
}

static void check_zones(huge *h) {
    for (int32_t i = 0; i < h->k.n_in + h->k.n_out && !h->c->broken; i++) {
        const array *a = i < h->k.n_in ? &h->k.in[i] : &h->k.out[i - h->k.n_in];
        if (a->count < 0) continue;
        bool intact = zone_intact(h, address(a) - ZONE) && zone_intact(h, address(a) + bytes_of(a));
        if (!intact) check_fail(h->c, "memory around a huge tensor was written to");
    }
}

/* ---- the run ----------------------------------------------------------------------------------------------------- */

static bool prepare(huge *h) {
    for (int32_t i = 0; i < h->k.n_in + h->k.n_out; i++) {
        array *a = i < h->k.n_in ? &h->k.in[i] : &h->k.out[i - h->k.n_in];
        if (a->count >= 0 && !place(h, a)) return false;
    }
    while (h->made < PROBLEMS && huge_problem(h->c, h->s, &h->problems[h->made], (uint64_t)h->made + 1)) h->made++;
    if (h->made < PROBLEMS) {
        check_fail(h->c, "%s", tn_last_error());
        return false;
    }
    for (int32_t i = 0; i < h->k.n_in; i++) {
        if (!fill(h, i)) return false;
    }
    return true;
}

static void run_and_look(huge *h, int64_t boundary) {
    const tn_host host = tn_stream_host(h->c->gpu->stream);
    h->k.args.kernel = h->c->kernel;
    tn_status status = tn_run(h->c->op, &h->k.args, &host);
    if (status != TN_OK && !check_declined(h->c, status)) check_fail(h->c, "refused: %s", tn_last_error());
    if (status != TN_OK || !good(h, h->cu->cuStreamSynchronize(h->c->gpu->stream))) return;
    compare_places(h, boundary);
    check_zones(h);
}

static void drop(huge *h) {
    for (int32_t i = 0; i < h->k.n_in + h->k.n_out; i++) {
        array *a = i < h->k.n_in ? &h->k.in[i] : &h->k.out[i - h->k.n_in];
        if (a->tensor.data) h->cu->cuMemFree(address(a) - ZONE);
    }
    call_free(&h->k);
    while (h->made > 0) problem_free(&h->problems[--h->made]);
}

void huge_on_gpu(checker *c, slice *s, int64_t boundary) {
    huge h = {.c = c, .s = s, .cu = tni_cuda(WANTED)};
    tni_cuda_scope scope;
    if (!h.cu || tni_cuda_enter(WANTED, c->gpu->device, &scope) != TN_OK) {
        check_fail(c, "%s", tn_last_error());
        return;
    }
    if (call_make(&h.k, c->op, s->many, (call_options){.bare = true}) != TN_OK) {
        check_fail(c, "%s", tn_last_error());
    } else {
        if (prepare(&h)) run_and_look(&h, boundary);
        drop(&h);
        tn_pool_trim(); /* copies of this size are not needed again */
    }
    tni_cuda_leave(&scope);
}
