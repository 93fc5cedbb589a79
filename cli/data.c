/* Arrays: memory, layouts, values. */
#include "data.h"
#include "core/host/memory.h"
#include "core/layout/layout.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { GUARD = 128, PATTERN = ARRAY_PATTERN, THIN = 64 << 20 /* bytes that a thin array has */ };

/* ---- random numbers ---------------------------------------------------------------------------------------------- */

uint64_t random_bits(uint64_t *seed) { /* splitmix64 */
    uint64_t z = *seed += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

double random_unit(uint64_t *seed) {
    return (double)(random_bits(seed) >> 11) * 0x1p-53;
}

/* The sum of four uniform numbers of 16 bits: no logarithm, so the same on every machine. */
double random_normal(uint64_t *seed) {
    uint64_t bits = random_bits(seed);
    double sum = 0;
    for (int i = 0; i < 4; i++, bits >>= 16) sum += (double)(bits & 0xffff) - 32767.5;
    return sum * (1.7320508075688772 / 65536);
}

int64_t random_below(uint64_t *seed, int64_t n) {
    return n > 0 ? (int64_t)(random_bits(seed) % (uint64_t)n) : 0;
}

uint64_t mix_seed(uint64_t seed, uint64_t with) {
    seed ^= with * 0xff51afd7ed558ccdu;
    return random_bits(&seed);
}

uint64_t hash_text(const char *text) {
    uint64_t h = 14695981039346656037u;
    for (; *text; text++) h = (h ^ (uint8_t)*text) * 1099511628211u;
    return h;
}

/* ---- layouts ----------------------------------------------------------------------------------------------------- */

static int64_t magnitude(int64_t n) {
    return n > 0 ? n : 1;
}

/* Strides, the distance from the lowest to the first element, and how many elements the tensor reaches over. */
static void lay_out(layout how, int32_t ndim, const int64_t *shape, int64_t *strides, int64_t *first, int64_t *reach) {
    int64_t step = 1;
    *first = 0;
    tni_dense_strides(ndim, shape, strides);
    if (how == TRANSPOSED) {
        for (int32_t d = 0; d < ndim; step *= magnitude(shape[d++])) strides[d] = step;
    } else if (how == CHANNELS_LAST && ndim >= 3) {
        strides[1] = 1;
        step = magnitude(shape[1]);
        for (int32_t d = ndim - 1; d >= 2; step *= magnitude(shape[d--])) strides[d] = step;
        strides[0] = step;
    } else if (how == SLICED) {
        for (int32_t d = ndim - 1; d >= 0; step *= 2 * magnitude(shape[d--])) strides[d] = 2 * step;
    } else if (how == PADDED) {
        for (int32_t d = ndim - 1; d >= 0; d--) {
            strides[d] = step;
            step = step * magnitude(shape[d]) + (d == ndim - 1 ? 3 : 1);
        }
    } else if (how == REVERSED) {
        for (int32_t d = 0; d < ndim; d++) {
            *first += (magnitude(shape[d]) - 1) * strides[d];
            strides[d] = -strides[d];
        }
    }
    *reach = 1;
    for (int32_t d = 0; d < ndim; d++) *reach += (magnitude(shape[d]) - 1) * llabs(strides[d]);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static void describe(array *a, tn_type type, int32_t ndim, const int64_t *shape, void *data) {
    if (ndim) memcpy(a->shape, shape, (size_t)ndim * sizeof *shape);
    a->type = type;
    a->count = 1;
    for (int32_t d = 0; d < ndim; d++) a->count *= shape[d];
    a->tensor = (tn_tensor){.data = data,
                            .device = {TN_CPU, 0},
                            .ndim = ndim,
                            .dtype = tn_type_to_dlpack(type),
                            .shape = a->shape,
                            .strides = a->strides};
}

bool array_make(array *a, tn_type type, int32_t ndim, const int64_t *shape, layout how, int64_t offset) {
    *a = (array){0};
    int64_t first, reach;
    size_t size = tn_type_size(type);
    lay_out(how, ndim, shape, a->strides, &first, &reach);
    a->bytes = (size_t)(reach + offset) * size + 2 * GUARD;
    a->memory = tni_malloc_aligned(a->bytes);
    if (!a->memory) return false;
    memset(a->memory, PATTERN, a->bytes);
    describe(a, type, ndim, shape, a->memory + GUARD + (size_t)(first + offset) * size);
    return true;
}

static bool take_map(array *a, size_t bytes) {
    void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    a->map = map == MAP_FAILED ? NULL : map;
    a->map_bytes = bytes;
    return a->map != NULL;
}

bool array_make_edge(array *a, tn_type type, int32_t ndim, const int64_t *shape, layout how, array_edge edge) {
    *a = (array){0};
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), size = tn_type_size(type);
    int64_t first, reach;
    lay_out(how, ndim, shape, a->strides, &first, &reach);
    a->bytes = ((size_t)reach * size + page - 1) / page * page;
    if (!take_map(a, a->bytes + 2 * page)) return false;
    a->memory = a->map + page;
    memset(a->memory, PATTERN, a->bytes);
    if (mprotect(a->map, page, PROT_NONE) != 0 || mprotect(a->memory + a->bytes, page, PROT_NONE) != 0) {
        array_free(a);
        return false;
    }
    char *lowest = edge == EDGE_BEFORE ? a->memory : a->memory + a->bytes - (size_t)reach * size;
    describe(a, type, ndim, shape, lowest + (size_t)first * size);
    return true;
}

bool array_make_thin(array *a, tn_type type, int32_t ndim, const int64_t *shape) {
    *a = (array){0};
    tni_dense_strides(ndim, shape, a->strides);
    describe(a, type, ndim, shape, NULL);
    a->bytes = ((size_t)a->count * tn_type_size(type) / THIN + 1) * THIN;
    const int file = memfd_create("thin", MFD_CLOEXEC);
    bool good = file >= 0 && ftruncate(file, THIN) == 0 && take_map(a, a->bytes);
    for (size_t at = 0; good && at < a->bytes; at += THIN) {
        good = mmap(a->map + at, THIN, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) != MAP_FAILED;
    }
    if (file >= 0) close(file);
    a->tensor.data = a->memory = a->map;
    if (!good) array_free(a);
    return good;
}

bool array_own(array *a, int64_t begin, int64_t end) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), size = tn_type_size(a->type);
    const size_t low = (size_t)begin * size / page * page, high = ((size_t)end * size + page - 1) / page * page;
    const int kind = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    return high <= low || mmap(a->map + low, high - low, PROT_READ | PROT_WRITE, kind, -1, 0) != MAP_FAILED;
}

bool array_make_zero(array *a, tn_type type, int32_t ndim, const int64_t *shape) {
    *a = (array){0};
    tni_dense_strides(ndim, shape, a->strides);
    describe(a, type, ndim, shape, NULL);
    a->bytes = (size_t)(a->count ? a->count : 1) * tn_type_size(type);
    if (a->bytes >= (size_t)64 << 20) { /* pages of 2 MB, one of zeros for all that is only read */
        if (take_map(a, a->bytes)) madvise(a->map, a->bytes, MADV_HUGEPAGE);
        a->memory = a->map;
    } else {
        a->memory = tni_malloc_aligned(a->bytes);
        if (a->memory) memset(a->memory, 0, a->bytes);
    }
    a->tensor.data = a->memory;
    return a->memory != NULL;
}

void array_view(array *a, tn_type type, int32_t ndim, const int64_t *shape, const int64_t *strides, void *data) {
    *a = (array){0};
    if (ndim) memcpy(a->strides, strides, (size_t)ndim * sizeof *strides);
    describe(a, type, ndim, shape, data);
}

void array_move(array *to, array *from) {
    *to = *from;
    to->tensor.shape = to->shape;
    to->tensor.strides = to->strides;
    from->memory = from->before = from->map = NULL;
}

void array_free(array *a) {
    if (a->map) {
        munmap(a->map, a->map_bytes);
    } else {
        tni_free(a->memory);
    }
    tni_free(a->before);
    a->memory = a->before = a->map = NULL;
}

bool array_watch(array *a) {
    if (!a->before) a->before = tni_malloc(a->bytes);
    if (a->before && a->memory) memcpy(a->before, a->memory, a->bytes);
    return a->before != NULL;
}

/* ---- elements ---------------------------------------------------------------------------------------------------- */

int64_t array_place(const array *a, int64_t index) {
    int64_t place = 0;
    for (int32_t d = a->tensor.ndim - 1; d >= 0; d--) {
        place += index % a->shape[d] * a->strides[d];
        index /= a->shape[d];
    }
    return place;
}

bool array_dense(const array *a) {
    return tni_is_dense(a->tensor.ndim, a->shape, a->strides);
}

/* Walks through an array in logical order, a row at a time: the last dimension, or all elements that lie densely. */
typedef struct walk {
    const array *a;
    int64_t index[TN_MAX_RANK];
    int64_t n, step; /* elements of a row, and how far apart they are */
    int64_t place;   /* of the row, in elements from the first */
} walk;

static walk walk_rows(const array *a) {
    int32_t last = a->tensor.ndim - 1;
    if (array_dense(a)) return (walk){.a = a, .n = a->count, .step = 1};
    return (walk){.a = a, .n = a->shape[last], .step = a->strides[last]};
}

static void walk_on(walk *w) {
    for (int32_t d = w->a->tensor.ndim - 2; d >= 0; d--) {
        w->place += w->a->strides[d];
        if (++w->index[d] < w->a->shape[d]) return;
        w->place -= w->a->shape[d] * w->a->strides[d];
        w->index[d] = 0;
    }
}

/* Rows of doubles that lie closely, as those of references do, are copied. */
static bool copied(const walk *w) {
    return w->a->type == TN_F64 && w->step == 1;
}

void array_write(array *a, const double *values) {
    walk w = walk_rows(a);
    for (int64_t i = 0; i < a->count; i += w.n, walk_on(&w)) {
        if (copied(&w)) {
            memcpy((double *)a->tensor.data + w.place, values + i, (size_t)w.n * sizeof *values);
            continue;
        }
        for (int64_t k = 0; k < w.n; k++) tn_set(a->type, a->tensor.data, w.place + k * w.step, values[i + k]);
    }
}

void array_read(const array *a, double *values) {
    walk w = walk_rows(a);
    for (int64_t i = 0; i < a->count; i += w.n, walk_on(&w)) {
        if (copied(&w)) {
            memcpy(values + i, (const double *)a->tensor.data + w.place, (size_t)w.n * sizeof *values);
            continue;
        }
        for (int64_t k = 0; k < w.n; k++) values[i + k] = tn_get(a->type, a->tensor.data, w.place + k * w.step);
    }
}

/* Where element k of the row that a walk is at begins. */
static char *element_at(const walk *w, int64_t k) {
    return (char *)w->a->tensor.data + (w->place + k * w->step) * (int64_t)tn_type_size(w->a->type);
}

void array_bits(const array *a, void *to) {
    size_t size = tn_type_size(a->type);
    if (array_dense(a)) {
        memcpy(to, a->tensor.data, (size_t)a->count * size);
        return;
    }
    walk w = walk_rows(a);
    for (int64_t i = 0; i < a->count; i += w.n, walk_on(&w)) {
        for (int64_t k = 0; k < w.n; k++) memcpy((char *)to + (size_t)(i + k) * size, element_at(&w, k), size);
    }
}

void array_fill(array *a) {
    size_t size = tn_type_size(a->type);
    if (array_dense(a)) {
        memset(a->tensor.data, PATTERN, (size_t)a->count * size);
        return;
    }
    walk w = walk_rows(a);
    for (int64_t i = 0; i < a->count; i += w.n, walk_on(&w)) {
        for (int64_t k = 0; k < w.n; k++) memset(element_at(&w, k), PATTERN, size);
    }
}

bool array_intact(const array *a, bool whole) {
    if (!a->before || !a->memory) return true;
    if (!whole) { /* the elements may differ: take them over before comparing */
        size_t size = tn_type_size(a->type);
        bool dense = array_dense(a);
        walk w = walk_rows(a);
        if (dense) memcpy(a->before + ((char *)a->tensor.data - a->memory), a->tensor.data, (size_t)a->count * size);
        for (int64_t i = 0; !dense && i < a->count; i += w.n, walk_on(&w)) {
            for (int64_t k = 0; k < w.n; k++) {
                const char *element = element_at(&w, k);
                memcpy(a->before + (element - a->memory), element, size);
            }
        }
    }
    return memcmp(a->before, a->memory, a->bytes) == 0;
}
