/* The one place that launches kernels. */
#include <stdarg.h>
#include <stdio.h>

#include "cuda.h"

/* CUfunction_attribute */
enum {
    MOST_THREADS = 0,
    STATIC_SHARED = 1,
    CONSTANT_BYTES = 2,
    LOCAL_BYTES = 3,
    REGISTERS = 4,
    COMPILED_FOR = 6,
    MAX_DYNAMIC_SHARED = 8,
    NON_PORTABLE_CLUSTER = 14
};
enum { USUAL_SHARED = 32 * 1024, USUAL_CLUSTER = 8 }; /* 48 KB, less what a kernel has of its own */
/* CUresult */
enum {
    INVALID_VALUE = 1,
    INVALID_IMAGE = 200,
    NO_BINARY = 209,
    NEWER_PTX = 222,
    NO_SUCH_NAME = 500,
    OUT_OF_RESOURCES = 701,
    BAD_CLUSTER = 912
};

/* ---- what went wrong --------------------------------------------------------------------------------------------- */

static uint32_t at_least_1(uint32_t n) {
    return n ? n : 1;
}

/* The context is current. */
static int inspect(const tni_cuda_api *cu, const tn_launch *l, tn_cuda_code *code) {
    const struct {
        int attribute;
        int32_t *value;
    } rows[] = {{REGISTERS, &code->registers},       {STATIC_SHARED, &code->static_shared},
                {LOCAL_BYTES, &code->local_bytes},   {CONSTANT_BYTES, &code->constant_bytes},
                {MOST_THREADS, &code->most_threads}, {COMPILED_FOR, &code->compiled_for}};
    cu_function function;
    const int mode = tni_cuda_begin_loading(cu);
    int error = cu->cuKernelGetFunction(&function, l->kernel);
    for (size_t i = 0; !error && i < sizeof rows / sizeof *rows; i++) {
        error = cu->cuFuncGetAttribute(rows[i].value, rows[i].attribute, function);
    }
    tni_cuda_end_loading(cu, mode);
    return error;
}

/* What the GPU cannot do of a launch, in words, with ": " before it; "" where nothing is found. */
static void say_too_much(const tn_call *call, const tn_launch *l, char *text, size_t size) {
    const uint64_t threads = (uint64_t)l->block * at_least_1(l->block_y) * at_least_1(l->block_z);
    const uint32_t most_yz = 65535;
    const tni_cuda_api *cu = tni_cuda(call->name);
    tn_cuda_code code = {0};
    const tn_gpu *gpu;
    tni_cuda_scope scope;
    text[0] = 0;
    if (!cu || tn_cuda_gpu(call, &gpu) != TN_OK || tni_cuda_enter(call->name, call->device.index, &scope) != TN_OK) {
        return;
    }
    const bool known = inspect(cu, l, &code) == 0;
    tni_cuda_leave(&scope);
    if (threads == 0) {
        snprintf(text, size, ": a block has no threads: set .block");
    } else if (threads > (uint64_t)gpu->threads_per_block) {
        snprintf(text, size, ": a block of %llu threads, where the GPU allows %d", (unsigned long long)threads,
                 gpu->threads_per_block);
    } else if (known && threads > (uint64_t)code.most_threads) {
        snprintf(text, size,
                 ": a block of %llu threads, where this kernel can have %d (it takes %d registers for each, or has "
                 "__launch_bounds__)",
                 (unsigned long long)threads, code.most_threads, code.registers);
    } else if (known && (uint64_t)l->shared + (uint64_t)code.static_shared > (uint64_t)gpu->shared_per_block) {
        snprintf(text, size, ": %u bytes of dynamic and %d of static shared memory, where a block can have %d",
                 l->shared, code.static_shared, gpu->shared_per_block);
    } else if (l->grid_y > most_yz || l->grid_z > most_yz) {
        snprintf(text, size, ": the grid's y and z can be %u at most", most_yz);
    } else if (l->cluster > 1 && l->grid % l->cluster) {
        snprintf(text, size, ": the grid is no multiple of the cluster");
    }
}

/* "3", or "3 x 4 x 1" where there is more than one dimension. */
static const char *print_size(char text[static 48], uint32_t x, uint32_t y, uint32_t z) {
    if (at_least_1(y) * at_least_1(z) == 1) {
        snprintf(text, 48, "%u", x);
    } else {
        snprintf(text, 48, "%u x %u x %u", x, at_least_1(y), at_least_1(z));
    }
    return text;
}

static tn_status launch_failed(const tn_call *call, const tn_launch *l, int error) {
    char what[400], grid[48], block[48], reason[160] = "";
    if (error == INVALID_VALUE || error == OUT_OF_RESOURCES || error == BAD_CLUSTER) {
        say_too_much(call, l, reason, sizeof reason);
    }
    snprintf(what, sizeof what, "kernel %s (grid %s, block %s, cluster %u, %u bytes of shared memory)%s", l->name,
             print_size(grid, l->grid, l->grid_y, l->grid_z), print_size(block, l->block, l->block_y, l->block_z),
             at_least_1(l->cluster), l->shared, reason);
    return tni_cuda_failed(call->name, what, error);
}

tn_status tn_cuda_failed(const tn_call *call, const char *what, int error) {
    if (!error) return TN_OK;
    return tni_cuda(call->name) ? tni_cuda_failed(call->name, what, error) : TN_SYSTEM;
}

/* ---- finding ----------------------------------------------------------------------------------------------------- */

bool tni_cuda_has(const tn_call *call, const char *unit, int arch) {
    const tn_gpu *gpu;
    if (tni_gpu_get(call->name, call->device.index, &gpu) != TN_OK) return true; /* whatever comes next says why */
    if (gpu->major * 10 + gpu->minor < arch) return false;
    const tni_image *image = tni_image_for(unit, gpu->major, gpu->minor);
    return image && image->arch >= arch; /* else code for older GPUs */
}

/* All that a block can have: the limit belongs to the kernel, which other calls launch with more or less. */
static int allow_shared(const tni_cuda_api *cu, cu_function function, const tn_gpu *gpu) {
    int own;
    const int error = cu->cuFuncGetAttribute(&own, STATIC_SHARED, function);
    return error ? error : cu->cuFuncSetAttribute(function, MAX_DYNAMIC_SHARED, gpu->shared_per_block - own);
}

static int allow(const tni_cuda_api *cu, const tn_launch *l, const tn_gpu *gpu) {
    cu_function function;
    const int mode = tni_cuda_begin_loading(cu);
    int error = cu->cuKernelGetFunction(&function, l->kernel);
    if (!error && l->shared > USUAL_SHARED) error = allow_shared(cu, function, gpu);
    if (!error && l->cluster > USUAL_CLUSTER) error = cu->cuFuncSetAttribute(function, NON_PORTABLE_CLUSTER, 1);
    tni_cuda_end_loading(cu, mode);
    return error;
}

tn_status tni_cuda_find(const tn_call *call, tn_launch *l, const char *unit, const char *name, ...) {
    va_list args;
    va_start(args, name);
    vsnprintf(l->name, sizeof l->name, name, args);
    va_end(args);
    TN_TRY(tni_cuda_kernel(call->name, call->device.index, unit, l->name, &l->kernel));
    return tni_cuda_allow(call, l);
}

tn_status tni_cuda_allow(const tn_call *call, const tn_launch *l) {
    if (l->shared <= USUAL_SHARED && l->cluster <= USUAL_CLUSTER) return TN_OK;
    const int index = call->device.index;
    tni_cuda_scope scope;
    const tn_gpu *gpu;
    TN_TRY(tni_gpu_get(call->name, index, &gpu));
    TN_TRY(tni_cuda_enter(call->name, index, &scope));
    const tni_cuda_api *cu = tni_cuda(call->name);
    const int error = cu ? allow(cu, l, gpu) : 0;
    tni_cuda_leave(&scope);
    if (!cu) return TN_SYSTEM;
    return error ? launch_failed(call, l, error) : TN_OK;
}

static tn_status image_failed(const tn_call *call, const tn_gpu *gpu, const char *name, int error) {
    char what[160];
    const int driver = tni_cuda_look()->version;
    switch (error) {
    case -1: return TN_NO_MEMORY;
    case NO_BINARY:
        return tn_fail(TN_UNSUPPORTED,
                       "%s: the image with kernel %s has no code for %s; compile it with -arch=sm_%d%d, or embed PTX",
                       call->name, name, gpu->name, gpu->major, gpu->minor);
    case NEWER_PTX:
        return tn_fail(TN_UNSUPPORTED,
                       "%s: the PTX with kernel %s is newer than this driver, which is for CUDA %d.%d; compile it with "
                       "an older nvcc, or embed a cubin for sm_%d%d",
                       call->name, name, driver / 1000, driver % 1000 / 10, gpu->major, gpu->minor);
    case INVALID_IMAGE:
        return tn_fail(TN_BAD_VALUE, "%s: what is given as the image with kernel %s is neither cubin, fatbin nor PTX",
                       call->name, name);
    case NO_SUCH_NAME:
        return tn_fail(TN_NOT_FOUND,
                       "%s: the image has no kernel '%s'; declare it extern \"C\", or give its mangled name",
                       call->name, name);
    default:
        snprintf(what, sizeof what, "loading the image with kernel %.100s", name);
        return tni_cuda_failed(call->name, what, error);
    }
}

/* Now and not at the first launch, so that what fails does so here, and nothing is left to be done in a capture. */
static int get_ready(const tni_cuda_api *cu, cu_kernel kernel, const tn_gpu *gpu) {
    cu_function function;
    const int mode = tni_cuda_begin_loading(cu);
    int error = cu->cuKernelGetFunction(&function, kernel);
    if (!error) error = allow_shared(cu, function, gpu);
    if (!error && gpu->major >= 9) cu->cuFuncSetAttribute(function, NON_PORTABLE_CLUSTER, 1); /* or launches say so */
    tni_cuda_end_loading(cu, mode);
    return error;
}

tn_status tn_cuda_find(const tn_call *call, tn_launch *l, const void *image, size_t bytes, const char *name) {
    const tn_gpu *gpu;
    tni_cuda_scope scope;
    if (!image || !bytes || !name) {
        return tn_fail(TN_BAD_VALUE, "%s: tn_cuda_find: %s", call->name,
                       name ? "the image is empty" : "no name is given");
    }
    snprintf(l->name, sizeof l->name, "%s", name);
    TN_TRY(tn_cuda_gpu(call, &gpu));
    TN_TRY(tni_cuda_enter(call->name, gpu->index, &scope));
    const tni_cuda_api *cu = tni_cuda(call->name);
    int error = cu ? tni_cuda_kernel_in(cu, gpu->index, image, bytes, name, &l->kernel) : 0;
    if (cu && !error) error = get_ready(cu, l->kernel, gpu);
    tni_cuda_leave(&scope);
    if (!cu) return TN_SYSTEM;
    return error ? image_failed(call, gpu, name, error) : TN_OK;
}

tn_status tni_cuda_global(const tn_call *call, const void *image, size_t bytes, const char *name, uint64_t *data,
                          size_t *size) {
    const tn_gpu *gpu;
    tni_cuda_scope scope;
    cu_pointer found = 0;
    TN_TRY(tn_cuda_gpu(call, &gpu));
    TN_TRY(tni_cuda_enter(call->name, gpu->index, &scope));
    const tni_cuda_api *cu = tni_cuda(call->name);
    const int mode = cu ? tni_cuda_begin_loading(cu) : 0;
    const int error = cu ? tni_cuda_global_in(cu, gpu->index, image, bytes, name, &found, size) : 0;
    if (cu) tni_cuda_end_loading(cu, mode);
    tni_cuda_leave(&scope);
    if (!cu) return TN_SYSTEM;
    *data = (uint64_t)found;
    return error ? tni_cuda_failed(call->name, name, error) : TN_OK;
}

/* ---- launching --------------------------------------------------------------------------------------------------- */

static cu_config config_of(const tn_launch *l, void *stream, cu_attribute attributes[static 2]) {
    cu_config config = {.grid_x = l->grid,
                        .grid_y = at_least_1(l->grid_y),
                        .grid_z = at_least_1(l->grid_z),
                        .block_x = l->block,
                        .block_y = at_least_1(l->block_y),
                        .block_z = at_least_1(l->block_z),
                        .shared = l->shared,
                        .stream = stream,
                        .attributes = attributes};
    if (l->cluster > 1) {
        attributes[config.n_attributes++] = (cu_attribute){.id = CU_CLUSTER, .value.cluster = {l->cluster, 1, 1}};
    }
    if (l->programmatic) attributes[config.n_attributes++] = (cu_attribute){.id = CU_PROGRAMMATIC, .value.flag = 1};
    return config;
}

static int occupancy(const tni_cuda_api *cu, const tn_launch *l, int *most) {
    cu_function function;
    const int mode = tni_cuda_begin_loading(cu);
    int error = cu->cuKernelGetFunction(&function, l->kernel);
    if (!error && l->cluster > 1) {
        cu_attribute attributes[2];
        tn_launch one = *l;
        one.grid = l->cluster;
        one.grid_y = one.grid_z = 1;
        cu_config config = config_of(&one, NULL, attributes);
        error = cu->cuOccupancyMaxActiveClusters(most, function, &config);
    } else if (!error) {
        const uint32_t threads = l->block * at_least_1(l->block_y) * at_least_1(l->block_z);
        error = cu->cuOccupancyMaxActiveBlocksPerMultiprocessor(most, function, (int)threads, l->shared);
    }
    tni_cuda_end_loading(cu, mode);
    return error;
}

tn_status tn_cuda_occupancy(const tn_call *call, const tn_launch *l, int *most) {
    tni_cuda_scope scope;
    TN_TRY(tni_cuda_enter(call->name, call->device.index, &scope));
    const tni_cuda_api *cu = tni_cuda(call->name);
    const int error = cu ? occupancy(cu, l, most) : 0;
    tni_cuda_leave(&scope);
    if (!cu) return TN_SYSTEM;
    return error ? launch_failed(call, l, error) : TN_OK;
}

tn_status tn_cuda_inspect(const tn_call *call, const tn_launch *l, tn_cuda_code *code) {
    tni_cuda_scope scope;
    *code = (tn_cuda_code){0};
    TN_TRY(tni_cuda_enter(call->name, call->device.index, &scope));
    const tni_cuda_api *cu = tni_cuda(call->name);
    const int error = cu ? inspect(cu, l, code) : 0;
    tni_cuda_leave(&scope);
    if (!cu) return TN_SYSTEM;
    return error ? launch_failed(call, l, error) : TN_OK;
}

tn_status tn_cuda_launch(const tn_call *call, const tn_launch *l, void **arguments) {
    if (l->grid == 0) return TN_OK;
    if (!l->kernel) return tn_fail(TN_BAD_VALUE, "%s: a launch has no kernel: tn_cuda_find sets it", call->name);
    tni_cuda_scope scope;
    TN_TRY(tni_cuda_enter(call->name, call->device.index, &scope));
    const tni_cuda_api *cu = tni_cuda(call->name);
    cu_attribute attributes[2];
    cu_config config = config_of(l, call->host->stream, attributes);
    /* A CUkernel stands for its function in whatever context is current. */
    int error = cu ? cu->cuLaunchKernelEx(&config, (cu_function)l->kernel, arguments, NULL) : 0;
    tni_cuda_leave(&scope);
    if (!cu) return TN_SYSTEM;
    return error ? launch_failed(call, l, error) : TN_OK;
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
