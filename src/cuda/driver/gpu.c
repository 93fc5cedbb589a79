/* GPUs, their contexts and their memory. */
#include <pthread.h>
#include <stdatomic.h>

#include "cuda.h"

/* CUdevice_attribute */
enum {
    THREADS_PER_BLOCK = 1,
    CLOCK = 13,
    SMS = 16,
    MEMORY_CLOCK = 36,
    BUS_WIDTH = 37,
    L2_SIZE = 38,
    THREADS_PER_SM = 39,
    MAJOR = 75,
    MINOR = 76,
    SHARED_PER_SM = 81,
    REGISTERS_PER_SM = 82,
    SHARED_PER_BLOCK = 97,
    BLOCKS_PER_SM = 106,
    SHARED_RESERVED = 111,
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of what is filled in at first need */
static struct {
    tn_gpu gpu;
    _Atomic bool known; /* gpu is filled in */
    cu_context primary; /* retained at first need; NULL before */
    cu_pool pool;       /* Tenon's own, made at first need; NULL before */
} gpus[TNI_MOST_GPUS];

/* ---- GPUs -------------------------------------------------------------------------------------------------------- */

static tn_status read_gpu(const tni_cuda_api *cu, const char *wanted, int index, tn_gpu *g) {
    const struct {
        int attribute, *value;
    } rows[] = {{SMS, &g->sms},
                {L2_SIZE, &g->l2_bytes},
                {THREADS_PER_SM, &g->threads_per_sm},
                {MAJOR, &g->major},
                {MINOR, &g->minor},
                {SHARED_PER_SM, &g->shared_per_sm},
                {SHARED_PER_BLOCK, &g->shared_per_block},
                {SHARED_RESERVED, &g->shared_reserved},
                {THREADS_PER_BLOCK, &g->threads_per_block},
                {BLOCKS_PER_SM, &g->blocks_per_sm},
                {REGISTERS_PER_SM, &g->registers_per_sm}};
    g->index = index;
    int error = cu->cuDeviceGetName(g->name, sizeof g->name, index);
    if (!error) error = cu->cuDeviceTotalMem(&g->memory, index);
    for (size_t i = 0; !error && i < sizeof rows / sizeof rows[0]; i++) {
        error = cu->cuDeviceGetAttribute(rows[i].value, rows[i].attribute, index);
    }
    return error ? tni_cuda_failed(wanted, "reading the GPU's properties", error) : TN_OK;
}

int tni_gpu_count(const char *wanted) {
    const tni_cuda_api *cu = tni_cuda(wanted);
    return !cu ? 0 : cu->n_devices < TNI_MOST_GPUS ? cu->n_devices : TNI_MOST_GPUS;
}

tn_status tni_gpu_get(const char *wanted, int index, const tn_gpu **gpu) {
    const tni_cuda_api *cu = tni_cuda(wanted);
    if (!cu) return TN_SYSTEM;
    if (index < 0 || index >= cu->n_devices || index >= TNI_MOST_GPUS) {
        return tn_fail(TN_BAD_DEVICE, "%s: there is no cuda:%d; this process sees %d GPU%s", wanted, index,
                       cu->n_devices, cu->n_devices == 1 ? "" : "s");
    }
    tn_status status = TN_OK;
    if (!atomic_load_explicit(&gpus[index].known, memory_order_acquire)) {
        pthread_mutex_lock(&lock);
        if (!atomic_load(&gpus[index].known)) {
            status = read_gpu(cu, wanted, index, &gpus[index].gpu);
            if (status == TN_OK) atomic_store_explicit(&gpus[index].known, true, memory_order_release);
        }
        pthread_mutex_unlock(&lock);
    }
    *gpu = &gpus[index].gpu;
    return status;
}

tn_status tn_cuda_gpu(const tn_call *call, const tn_gpu **gpu) {
    return tni_gpu_get(call->name, call->device.index, gpu);
}

tni_gpu_clocks tni_gpu_clocks_of(const tn_gpu *gpu) {
    tni_gpu_clocks made = {0};
    const tni_cuda_api *cu = tni_cuda("the GPU's clocks");
    if (!cu) return made;
    cu->cuDeviceGetAttribute(&made.sm_khz, CLOCK, gpu->index);
    cu->cuDeviceGetAttribute(&made.memory_khz, MEMORY_CLOCK, gpu->index);
    cu->cuDeviceGetAttribute(&made.bus_bits, BUS_WIDTH, gpu->index);
    return made;
}

/* ---- contexts ---------------------------------------------------------------------------------------------------- */

/* A CUdevice is its index: the driver numbers devices from 0. */
static bool is_current(const tni_cuda_api *cu, int index) {
    cu_context current = NULL;
    int device = -1;
    return cu->cuCtxGetCurrent(&current) == 0 && current && cu->cuCtxGetDevice(&device) == 0 && device == index;
}

tn_status tni_cuda_enter(const char *wanted, int index, tni_cuda_scope *scope) {
    const tn_gpu *gpu = NULL;
    scope->pushed = NULL;
    TN_TRY(tni_gpu_get(wanted, index, &gpu));
    const tni_cuda_api *cu = tni_cuda(wanted);
    if (!cu) return TN_SYSTEM;
    if (is_current(cu, index)) return TN_OK;
    int error = 0;
    pthread_mutex_lock(&lock);
    if (!gpus[index].primary) error = cu->cuDevicePrimaryCtxRetain(&gpus[index].primary, index);
    cu_context primary = gpus[index].primary;
    pthread_mutex_unlock(&lock);
    if (error) return tni_cuda_failed(wanted, "making the GPU's context", error);
    error = cu->cuCtxPushCurrent(primary);
    if (error) return tni_cuda_failed(wanted, "entering the GPU's context", error);
    scope->pushed = cu;
    return TN_OK;
}

void tni_cuda_leave(tni_cuda_scope *scope) {
    cu_context popped;
    if (scope->pushed) scope->pushed->cuCtxPopCurrent(&popped);
    scope->pushed = NULL;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* A pool of Tenon's own that keeps what is freed, so that nobody else's pool is changed. The context is current. */
static int own_pool(const tni_cuda_api *cu, int index, cu_pool *pool) {
    int error = 0;
    pthread_mutex_lock(&lock);
    if (!gpus[index].pool) {
        cu_pool_properties properties = {.allocation = 1, .location = 1, .device = index};
        uint64_t keep = UINT64_MAX;
        cu_pool made = NULL;
        error = cu->cuMemPoolCreate(&made, &properties);
        if (!error) error = cu->cuMemPoolSetAttribute(made, CU_POOL_RELEASE_THRESHOLD, &keep);
        if (!error) gpus[index].pool = made;
    }
    *pool = gpus[index].pool;
    pthread_mutex_unlock(&lock);
    return error;
}

tn_status tni_cuda_alloc(const char *wanted, tn_device device, size_t bytes, void *stream, tn_block *block) {
    tni_cuda_scope scope;
    cu_pool pool;
    cu_pointer data = 0;
    TN_TRY(tni_cuda_enter(wanted, device.index, &scope));
    const tni_cuda_api *cu = tni_cuda(wanted);
    int error = cu ? own_pool(cu, device.index, &pool) : 0;
    if (cu && !error) error = cu->cuMemAllocFromPoolAsync(&data, bytes, pool, stream);
    tni_cuda_leave(&scope);
    if (!cu) return TN_SYSTEM;
    if (error) return tni_cuda_failed(wanted, "allocating GPU memory", error);
    *block = (tn_block){(void *)(uintptr_t)data, NULL};
    return TN_OK;
}

void tni_cuda_free(tn_device device, tn_block block, void *stream) {
    const char *wanted = "freeing GPU memory";
    tni_cuda_scope scope;
    if (tni_cuda_enter(wanted, device.index, &scope) != TN_OK) return;
    const tni_cuda_api *cu = tni_cuda(wanted);
    int error = cu ? cu->cuMemFreeAsync((cu_pointer)(uintptr_t)block.data, stream) : 0;
    if (error) tni_cuda_failed(wanted, "cuMemFreeAsync", error);
    tni_cuda_leave(&scope);
}

void tni_cuda_trim(void) {
    for (int i = 0; i < TNI_MOST_GPUS; i++) {
        pthread_mutex_lock(&lock);
        cu_pool pool = gpus[i].pool;
        pthread_mutex_unlock(&lock);
        tni_cuda_scope scope;
        if (!pool || tni_cuda_enter("trimming the pool", i, &scope) != TN_OK) continue;
        const tni_cuda_api *cu = tni_cuda("trimming the pool");
        if (cu) cu->cuMemPoolTrimTo(pool, 0);
        tni_cuda_leave(&scope);
    }
}

/* The driver counts a block until the stream has come to where it was freed. */
static int read_pool(const tni_cuda_api *cu, cu_pool pool, tn_memory_stats *stats, bool reset_peak) {
    uint64_t used = 0, high = 0, reserved = 0, none = 0;
    int error = reset_peak ? cu->cuMemPoolSetAttribute(pool, CU_POOL_USED_HIGH, &none) : 0;
    if (!error) error = cu->cuMemPoolGetAttribute(pool, CU_POOL_USED, &used);
    if (!error) error = cu->cuMemPoolGetAttribute(pool, CU_POOL_USED_HIGH, &high);
    if (!error) error = cu->cuMemPoolGetAttribute(pool, CU_POOL_RESERVED, &reserved);
    *stats = (tn_memory_stats){(size_t)used, (size_t)high, (size_t)reserved};
    return error;
}

tn_status tni_cuda_memory(const char *wanted, tn_device device, tn_memory_stats *stats, bool reset_peak) {
    tni_cuda_scope scope;
    cu_pool pool;
    TN_TRY(tni_cuda_enter(wanted, device.index, &scope));
    const tni_cuda_api *cu = tni_cuda(wanted);
    int error = cu ? own_pool(cu, device.index, &pool) : 0;
    if (cu && !error) error = read_pool(cu, pool, stats, reset_peak);
    tni_cuda_leave(&scope);
    if (!cu) return TN_SYSTEM;
    return error ? tni_cuda_failed(wanted, "asking the pool of GPU memory", error) : TN_OK;
}

void tni_cuda_close(void) {
    for (int i = 0; i < TNI_MOST_GPUS; i++) {
        pthread_mutex_lock(&lock);
        cu_pool pool = gpus[i].pool;
        cu_context primary = gpus[i].primary;
        gpus[i].pool = NULL;
        pthread_mutex_unlock(&lock);
        if (!pool && !primary) continue;
        tni_cuda_scope scope;
        if (tni_cuda_enter("closing the GPU", i, &scope) == TN_OK) {
            const tni_cuda_api *cu = tni_cuda("closing the GPU");
            if (cu) cu->cuCtxSynchronize();
            if (cu && pool) cu->cuMemPoolDestroy(pool);
            tni_cuda_leave(&scope);
            if (cu && primary) cu->cuDevicePrimaryCtxRelease(i);
        }
        pthread_mutex_lock(&lock);
        gpus[i].primary = NULL;
        pthread_mutex_unlock(&lock);
    }
}
