/* The one place that launches kernels. */
#include <stdarg.h>
#include <stdio.h>

#include "cuda.h"

/* CUfunction_attribute */
enum { STATIC_SHARED = 1, MAX_DYNAMIC_SHARED = 8, NON_PORTABLE_CLUSTER = 14 };
enum { USUAL_SHARED = 32 * 1024, USUAL_CLUSTER = 8 }; /* 48 KB, less what a kernel has of its own */

static tn_status launch_failed(const char *wanted, const tni_launch *l, int error) {
    char what[200];
    snprintf(what, sizeof what, "kernel %s (grid %u, block %u, cluster %u, %u bytes of shared memory)", l->name,
             l->grid, l->block, l->cluster > 1 ? l->cluster : 1, l->shared);
    return tni_cuda_failed(wanted, what, error);
}

bool tni_cuda_has_90(const tn_call *call, const char *unit) {
    const tni_gpu *gpu;
    if (tni_gpu_get(call->name, call->device.index, &gpu) != TN_OK || gpu->major < 9) return false;
    const tni_image *image = tni_image_for(unit, gpu->major, gpu->minor);
    return image && image->arch >= 90; /* else code for older GPUs */
}

/* All that a block can have: the limit belongs to the kernel, which other calls launch with more or less. */
static int allow_shared(const tni_cuda_api *cu, cu_function function, const tni_gpu *gpu) {
    int own;
    const int error = cu->cuFuncGetAttribute(&own, STATIC_SHARED, function);
    return error ? error : cu->cuFuncSetAttribute(function, MAX_DYNAMIC_SHARED, gpu->shared_per_block - own);
}

static int allow(const tni_cuda_api *cu, const tni_launch *l, const tni_gpu *gpu) {
    cu_function function;
    const int mode = tni_cuda_begin_loading(cu);
    int error = cu->cuKernelGetFunction(&function, l->kernel);
    if (!error && l->shared > USUAL_SHARED) error = allow_shared(cu, function, gpu);
    if (!error && l->cluster > USUAL_CLUSTER) error = cu->cuFuncSetAttribute(function, NON_PORTABLE_CLUSTER, 1);
    tni_cuda_end_loading(cu, mode);
    return error;
}

tn_status tni_cuda_find(const tn_call *call, tni_launch *l, const char *unit, const char *name, ...) {
    va_list args;
    va_start(args, name);
    vsnprintf(l->name, sizeof l->name, name, args);
    va_end(args);
    TN_TRY(tni_cuda_kernel(call->name, call->device.index, unit, l->name, &l->kernel));
    return tni_cuda_allow(call, l);
}

tn_status tni_cuda_allow(const tn_call *call, const tni_launch *l) {
    if (l->shared <= USUAL_SHARED && l->cluster <= USUAL_CLUSTER) return TN_OK;
    const int index = call->device.index;
    tni_cuda_scope scope;
    const tni_gpu *gpu;
    TN_TRY(tni_gpu_get(call->name, index, &gpu));
    TN_TRY(tni_cuda_enter(call->name, index, &scope));
    const tni_cuda_api *cu = tni_cuda(call->name);
    const int error = cu ? allow(cu, l, gpu) : 0;
    tni_cuda_leave(&scope);
    if (!cu) return TN_SYSTEM;
    return error ? launch_failed(call->name, l, error) : TN_OK;
}

static cu_config config_of(const tni_launch *l, void *stream, cu_attribute attributes[static 2]) {
    cu_config config = {.grid_x = l->grid,
                        .grid_y = 1,
                        .grid_z = 1,
                        .block_x = l->block,
                        .block_y = 1,
                        .block_z = 1,
                        .shared = l->shared,
                        .stream = stream,
                        .attributes = attributes};
    if (l->cluster > 1) {
        attributes[config.n_attributes++] = (cu_attribute){.id = CU_CLUSTER, .value.cluster = {l->cluster, 1, 1}};
    }
    if (l->programmatic) attributes[config.n_attributes++] = (cu_attribute){.id = CU_PROGRAMMATIC, .value.flag = 1};
    return config;
}

static int occupancy(const tni_cuda_api *cu, const tni_launch *l, int *most) {
    cu_function function;
    const int mode = tni_cuda_begin_loading(cu);
    int error = cu->cuKernelGetFunction(&function, l->kernel);
    if (!error && l->cluster > 1) {
        cu_attribute attributes[2];
        tni_launch one = *l;
        one.grid = l->cluster;
        cu_config config = config_of(&one, NULL, attributes);
        error = cu->cuOccupancyMaxActiveClusters(most, function, &config);
    } else if (!error) {
        error = cu->cuOccupancyMaxActiveBlocksPerMultiprocessor(most, function, (int)l->block, l->shared);
    }
    tni_cuda_end_loading(cu, mode);
    return error;
}

tn_status tni_cuda_occupancy(const tn_call *call, const tni_launch *l, int *most) {
    tni_cuda_scope scope;
    TN_TRY(tni_cuda_enter(call->name, call->device.index, &scope));
    const tni_cuda_api *cu = tni_cuda(call->name);
    const int error = cu ? occupancy(cu, l, most) : 0;
    tni_cuda_leave(&scope);
    if (!cu) return TN_SYSTEM;
    return error ? launch_failed(call->name, l, error) : TN_OK;
}

tn_status tni_cuda_launch(const tn_call *call, const tni_launch *l, void **arguments) {
    if (l->grid == 0) return TN_OK;
    tni_cuda_scope scope;
    TN_TRY(tni_cuda_enter(call->name, call->device.index, &scope));
    const tni_cuda_api *cu = tni_cuda(call->name);
    cu_attribute attributes[2];
    cu_config config = config_of(l, call->host->stream, attributes);
    /* A CUkernel stands for its function in whatever context is current. */
    int error = cu ? cu->cuLaunchKernelEx(&config, (cu_function)l->kernel, arguments, NULL) : 0;
    tni_cuda_leave(&scope);
    if (!cu) return TN_SYSTEM;
    return error ? launch_failed(call->name, l, error) : TN_OK;
}

tn_status tni_cuda_prepare(const tn_call *call, size_t size, tn_status (*fill)(const tn_call *call, void *state),
                           void **state) {
    void *made = tni_calloc(1, size);
    if (!made) return TN_NO_MEMORY;
    const tn_status status = fill(call, made);
    if (status == TN_OK) {
        *state = made;
    } else {
        tni_free(made);
    }
    return status;
}
