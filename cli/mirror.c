/* Mirrors: host memory copied to a GPU and back around a run. */
#include "mirror.h"
#include "core/table/table.h"
#include "poison.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    ZONE = 1024, /* bytes between two regions that nobody may write */
    LINE = 64,
    PATTERN = 0xff, /* NaN: a read past the end shows, too */
    LEAST_ROOM = 1 << 22,
    DELAYS = 48, /* fillings of DELAY_BYTES that a delayed upload waits for: some milliseconds */
};
static const size_t DELAY_BYTES = (size_t)256 << 20;
static const char WANTED[] = "copying a call's tensors to the GPU";

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static tn_status enter(const mirror *m, tni_cuda_scope *scope, const tni_cuda_api **cu) {
    TN_TRY(tni_cuda_enter(WANTED, m->device, scope));
    *cu = tni_cuda(WANTED);
    if (*cu) return TN_OK;
    tni_cuda_leave(scope);
    return TN_SYSTEM;
}

static void free_memory(const tni_cuda_api *cu, mirror *m) {
    if (m->staging) cu->cuMemFreeHost(m->staging);
    if (m->slab) cu->cuMemFree(m->slab);
    if (m->late) cu->cuMemFree(m->late);
    m->staging = NULL;
    m->slab = m->late = 0;
    m->room = 0;
}

tn_status mirror_open(mirror *m, int device) {
    const unsigned apart = 1; /* CU_STREAM_NON_BLOCKING */
    const tni_cuda_api *cu;
    tni_cuda_scope scope;
    *m = (mirror){.device = device, .around = PATTERN, .shared = UINT32_MAX};
    TN_TRY(enter(m, &scope, &cu));
    int error = cu->cuStreamCreate(&m->stream, apart);
    tni_cuda_leave(&scope);
    return error ? tni_cuda_failed(WANTED, "making a stream", error) : TN_OK;
}

void mirror_close(mirror *m) {
    const tni_cuda_api *cu;
    tni_cuda_scope scope;
    if (!m->stream || enter(m, &scope, &cu) != TN_OK) return;
    free_memory(cu, m);
    cu->cuStreamDestroy(m->stream);
    tni_cuda_leave(&scope);
    *m = (mirror){0};
}

/* ---- what lies where --------------------------------------------------------------------------------------------- */

/* The memory of an array: all that was allocated, or what its elements reach over where it borrows or is to lie apart
 * from everything else. */
static mirror_region array_region(const mirror *m, const array *a) {
    char *data = a->tensor.data;
    if (!m->apart && a->memory && data >= a->memory && data <= a->memory + a->bytes) {
        return (mirror_region){.begin = a->memory, .end = a->memory + a->bytes};
    }
    int64_t low = 0, high = a->count ? 1 : 0, size = (int64_t)tn_type_size(a->type);
    for (int32_t d = 0; a->count && d < a->tensor.ndim; d++) {
        int64_t reach = (a->shape[d] - 1) * a->strides[d];
        low += reach < 0 ? reach : 0;
        high += reach > 0 ? reach : 0;
    }
    return (mirror_region){.begin = data + low * size, .end = data + high * size};
}

static int by_begin(const void *a, const void *b) {
    const char *x = ((const mirror_region *)a)->begin, *y = ((const mirror_region *)b)->begin;
    return (x > y) - (x < y);
}

/* Regions that overlap become one: what shares memory on the host shares it on the GPU. */
static void lay_out(mirror *m) {
    int n = 0, kept = 0;
    for (int i = 0; i < m->n_arrays; i++) {
        m->regions[n] = array_region(m, m->arrays[i]);
        m->regions[n++].fresh = i >= m->n_inputs;
    }
    qsort(m->regions, (size_t)n, sizeof *m->regions, by_begin);
    for (int i = 0; i < n; i++) {
        mirror_region *last = kept ? &m->regions[kept - 1] : NULL;
        if (last && m->regions[i].begin < last->end) {
            if (m->regions[i].end > last->end) last->end = m->regions[i].end;
            last->fresh &= m->regions[i].fresh;
        } else {
            m->regions[kept++] = m->regions[i];
        }
    }
    m->n_regions = kept;
    m->used = 0;
    for (int i = 0; i < kept; i++) {
        mirror_region *r = &m->regions[i];
        m->used = (m->used + ZONE + LINE - 1) / LINE * LINE;
        r->at = m->used + (uintptr_t)r->begin % LINE;
        m->used = r->at + (size_t)(r->end - r->begin);
    }
    m->used += ZONE;
}

static cu_pointer place_of(const mirror *m, const void *data) {
    const char *p = data;
    int i = 0;
    while (i < m->n_regions && !(p >= m->regions[i].begin && p < m->regions[i].end)) i++;
    if (i == m->n_regions) return m->slab; /* an empty tensor: nobody looks */
    if (m->regions[i].apart) {
        return m->regions[i].apart + (uintptr_t)m->regions[i].begin % LINE + (uint64_t)(p - m->regions[i].begin);
    }
    return m->slab + m->regions[i].at + (uint64_t)(p - m->regions[i].begin);
}

static int make_room(const tni_cuda_api *cu, mirror *m) {
    int error = 0;
    if (m->room < m->used) {
        free_memory(cu, m);
        size_t room = LEAST_ROOM;
        while (room < m->used) room *= 2;
        void *staging = NULL;
        error = cu->cuMemHostAlloc(&staging, room, 0);
        m->staging = staging;
        if (!error) error = cu->cuMemAlloc(&m->slab, room);
        if (!error) m->room = room;
    }
    if (!error && m->delay && !m->late) error = cu->cuMemAlloc(&m->late, m->room + DELAY_BYTES);
    if (error) free_memory(cu, m);
    return error;
}

/* ---- there ------------------------------------------------------------------------------------------------------- */

/* The tensors hold nothing until a chain of large fillings is through; a call that does not wait for it reads NaN. */
static int upload_late(const tni_cuda_api *cu, mirror *m) {
    int error = cu->cuMemsetD8Async(m->slab, PATTERN, m->used, m->stream);
    if (!error) error = cu->cuStreamSynchronize(m->stream);
    for (int i = 0; !error && i < DELAYS; i++) {
        error = cu->cuMemsetD8Async(m->late + m->room, (unsigned char)i, DELAY_BYTES, m->stream);
    }
    if (!error) error = cu->cuMemcpyHtoDAsync(m->late, m->staging, m->used, m->stream);
    if (!error) error = cu->cuMemcpyDtoDAsync(m->slab, m->late, m->used, m->stream);
    return error;
}

/* Every region as large as it is; as far from a boundary as on the host. */
static int upload_apart(const tni_cuda_api *cu, mirror *m) {
    int error = 0;
    for (int i = 0; i < m->n_regions && !error; i++) {
        mirror_region *r = &m->regions[i];
        const size_t before = (uintptr_t)r->begin % LINE, bytes = (size_t)(r->end - r->begin);
        if (!bytes) continue;
        error = cu->cuMemAlloc(&r->apart, before + bytes);
        if (error || r->fresh) continue;
        error = cu->cuMemcpyHtoDAsync(r->apart + before, m->staging + r->at, bytes, m->stream);
    }
    return error;
}

static int upload(const tni_cuda_api *cu, mirror *m) {
    memset(m->staging, m->around, m->used);
    for (int i = 0; i < m->n_regions; i++) {
        const mirror_region *r = &m->regions[i];
        if (r->end > r->begin) memcpy(m->staging + r->at, r->begin, (size_t)(r->end - r->begin));
    }
    if (m->apart) return upload_apart(cu, m);
    if (m->delay) return upload_late(cu, m);
    return cu->cuMemcpyHtoDAsync(m->slab, m->staging, m->used, m->stream);
}

static void point_to_gpu(mirror *m) {
    for (int i = 0; i < m->n_arrays; i++) {
        tn_tensor *t = &m->arrays[i]->tensor;
        m->kept[i] = t->data;
        t->data = (void *)(uintptr_t)place_of(m, t->data);
        t->device = (tn_device){TN_CUDA, m->device};
    }
}

static void point_back(mirror *m) {
    for (int i = 0; i < m->n_arrays; i++) {
        m->arrays[i]->tensor.data = m->kept[i];
        m->arrays[i]->tensor.device = (tn_device){TN_CPU, 0};
    }
    m->n_arrays = 0;
}

static tn_status begin(mirror *m, array *const *arrays, int n) {
    const tni_cuda_api *cu;
    tni_cuda_scope scope;
    if (n > MIRROR_MOST) return tn_fail(TN_UNSUPPORTED, "%s: more than %d tensors", WANTED, MIRROR_MOST);
    m->outside = false;
    TN_TRY(enter(m, &scope, &cu));
    m->n_arrays = n;
    if (n) memcpy(m->arrays, arrays, (size_t)n * sizeof(array *));
    lay_out(m);
    int error = make_room(cu, m);
    if (!error) error = upload(cu, m);
    tni_cuda_leave(&scope);
    if (error) {
        m->n_arrays = 0;
        return tni_cuda_failed(WANTED, "uploading", error);
    }
    point_to_gpu(m);
    return TN_OK;
}

tn_status mirror_begin(mirror *m, array *const *arrays, int n) {
    m->n_inputs = n;
    return begin(m, arrays, n);
}

tn_status mirror_begin_call(mirror *m, made_call *k) {
    array *arrays[MIRROR_MOST];
    int n = 0;
    for (int32_t i = 0; i < k->n_in; i++) arrays[n++] = &k->in[i];
    m->n_inputs = n;
    for (int32_t i = 0; i < k->n_out; i++) {
        if (k->out[i].count >= 0) arrays[n++] = &k->out[i];
    }
    return begin(m, arrays, n);
}

/* ---- and back ---------------------------------------------------------------------------------------------------- */

static bool is_pattern(const mirror *m, const char *begin, const char *end) {
    for (; begin < end; begin++) {
        if (*begin != (char)m->around) return false;
    }
    return true;
}

static bool zones_intact(const mirror *m) {
    const char *at = m->staging;
    for (int i = 0; i < m->n_regions; i++) {
        const mirror_region *r = &m->regions[i];
        if (!is_pattern(m, at, m->staging + r->at)) return false;
        at = m->staging + r->at + (r->end - r->begin);
    }
    return is_pattern(m, at, m->staging + m->used);
}

static int download_apart(const tni_cuda_api *cu, mirror *m) {
    int error = 0;
    for (int i = 0; i < m->n_regions; i++) {
        mirror_region *r = &m->regions[i];
        if (!r->apart) continue;
        const size_t before = (uintptr_t)r->begin % LINE, bytes = (size_t)(r->end - r->begin);
        if (!error) error = cu->cuMemcpyDtoHAsync(m->staging + r->at, r->apart + before, bytes, m->stream);
        if (!error) error = cu->cuStreamSynchronize(m->stream);
        cu->cuMemFree(r->apart);
        r->apart = 0;
    }
    return error;
}

static tn_status download(const tni_cuda_api *cu, mirror *m) {
    int error = m->apart ? download_apart(cu, m) : cu->cuMemcpyDtoHAsync(m->staging, m->slab, m->used, m->stream);
    if (!error) error = cu->cuStreamSynchronize(m->stream);
    if (error) return tni_cuda_failed(WANTED, "waiting for the GPU", error);
    for (int i = 0; i < m->n_regions; i++) {
        const mirror_region *r = &m->regions[i];
        if (r->end > r->begin) memcpy(r->begin, m->staging + r->at, (size_t)(r->end - r->begin));
    }
    m->outside = !zones_intact(m);
    return TN_OK;
}

tn_status mirror_end(mirror *m) {
    const tni_cuda_api *cu;
    tni_cuda_scope scope;
    m->outside = false;
    point_back(m);
    TN_TRY(enter(m, &scope, &cu));
    tn_status status = download(cu, m);
    tni_cuda_leave(&scope);
    return status;
}

/* Shared memory as it is to be. With `settle`, nothing is under way any more. */
static tn_status get_ready(const mirror *m) {
    const tni_cuda_api *cu;
    tni_cuda_scope scope;
    TN_TRY(enter(m, &scope, &cu));
    int error = poison_shared(cu, m->device, m->stream, m->shared);
    if (!error && m->settle) error = cu->cuCtxSynchronize();
    tni_cuda_leave(&scope);
    return error ? tni_cuda_failed(WANTED, "filling shared memory", error) : TN_OK;
}

static tn_status settle(const mirror *m) {
    const tni_cuda_api *cu;
    tni_cuda_scope scope;
    TN_TRY(enter(m, &scope, &cu));
    const int error = cu->cuCtxSynchronize();
    tni_cuda_leave(&scope);
    return error ? tni_cuda_failed(WANTED, "waiting for the GPU", error) : TN_OK;
}

static tn_status run_mirrored(made_call *k, mirror *on, const tn_host *host) {
    const tn_host streaming = tn_stream_host(on->stream);
    TN_TRY(get_ready(on));
    TN_TRY(tn_run(k->op, &k->args, host ? host : &streaming));
    return on->settle ? settle(on) : TN_OK;
}

tn_status call_run(made_call *k, mirror *on, const tn_host *host) {
    if (!on) return tn_run(k->op, &k->args, host);
    TN_TRY(mirror_begin_call(on, k));
    tn_status status = run_mirrored(k, on, host);
    if (status != TN_OK) { /* what came of it is known; the message is kept */
        point_back(on);
        return status;
    }
    TN_TRY(mirror_end(on));
    if (!on->outside) return TN_OK;
    return tn_fail(TN_SYSTEM, "%s: memory of the GPU outside of every tensor was written to", k->op->contract->name);
}

/* ---- names of devices -------------------------------------------------------------------------------------------- */

tn_status read_device(const char *text, tn_device *device) {
    *device = (tn_device){TN_CPU, 0};
    if (!text || strcmp(text, "cpu") == 0) return TN_OK;
    char *end = NULL;
    long index = strncmp(text, "cuda:", 5) == 0 ? strtol(text + 5, &end, 10) : 0;
    bool known = strcmp(text, "cuda") == 0 || (end && end > text + 5 && !*end && index >= 0 && index < 1 << 16);
    if (!known) return tn_fail(TN_BAD_VALUE, "there is no device '%s'; say cpu, cuda or cuda:N", text);
    const tn_gpu *gpu;
    char wanted[32];
    snprintf(wanted, sizeof wanted, "--device %s", text);
    *device = (tn_device){TN_CUDA, (int32_t)index};
    return tni_gpu_get(wanted, (int)index, &gpu);
}
