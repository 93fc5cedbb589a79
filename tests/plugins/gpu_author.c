/* An operator as an author writes it with tenon/cuda.h: code is embedded, found, inspected and launched by the public
 * functions alone. The code is made up, for the driver of fake_cuda.c. Each of the kernel's functions asks whether the
 * GPU's context is current, as whoever calls the CUDA runtime there counts on. */
#include <dlfcn.h>
#include <stdlib.h>

#include <tenon/cuda.h>

#include "fake_cuda.h"

enum { TILE = 64, DEEP = 2 };

/* ---- device code ------------------------------------------------------------------------------------------------- */

/* One thread of a grid in three dimensions: element (z * grid_y + y) * width + x, where that is one. */
static void scale_thread(const fake_launch *how, void **arguments, uint32_t x, uint32_t y, uint32_t z) {
    const float *from = *(const float **)arguments[0], c = *(const float *)arguments[2];
    float *to = *(float **)arguments[1];
    const int64_t n = *(const int64_t *)arguments[3], width = (int64_t)how->grid[0] * how->block[0];
    const int64_t i = ((int64_t)z * how->grid[1] + y) * width + x;
    if (i < n) to[i] = c * from[i];
}

static void scale_f32(const fake_launch *how, void **arguments) {
    for (uint32_t z = 0; z < how->grid[2]; z++) {
        for (uint32_t y = 0; y < how->grid[1] * how->block[1]; y++) {
            for (uint32_t x = 0; x < how->grid[0] * how->block[0]; x++) scale_thread(how, arguments, x, y, z);
        }
    }
}

static const fake_code image = {FAKE_CODE, 90, {{"scale_f32", scale_f32, 512, 40}}};

/* ---- the operator ------------------------------------------------------------------------------------------------ */

enum { X, Y = 0, C = 0 };

static bool is_current(const tn_call *call) {
    int (*current)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "fake_current");
    return current && current() == call->device.index;
}

static bool accepts(const tn_call *call) {
    return is_current(call);
}

static size_t workspace(const tn_call *call) {
    return is_current(call) ? 64 : (size_t)1 << 60;
}

static tn_status fill(const tn_call *call, tn_launch *l) {
    const int64_t n = tn_count(tn_in(call, X)), flat = (n + DEEP * TILE - 1) / (DEEP * TILE);
    const tn_gpu *gpu;
    tn_cuda_code code;
    int most = 0;
    TN_TRY(tn_cuda_gpu(call, &gpu));
    *l = (tn_launch){.grid = 1, .grid_y = (uint32_t)flat, .grid_z = DEEP, .block = TILE};
    TN_TRY(tn_cuda_find(call, l, &image, sizeof image, "scale_f32"));
    TN_TRY(tn_cuda_inspect(call, l, &code));
    TN_TRY(tn_cuda_occupancy(call, l, &most));
    if (gpu->sms != 132 || code.registers != 40 || code.most_threads != 512 || most != 2) {
        return tn_fail(TN_BAD_VALUE, "%s: %d SMs, %d registers, %d threads, %d blocks", call->name, gpu->sms,
                       code.registers, code.most_threads, most);
    }
    return TN_OK;
}

static tn_status prepare(const tn_call *call, void **state) {
    if (!is_current(call)) return tn_fail(TN_BAD_DEVICE, "%s: prepared without a context", call->name);
    tn_launch *l = calloc(1, sizeof *l);
    if (!l) return TN_NO_MEMORY;
    const tn_status status = fill(call, l);
    if (status == TN_OK) *state = l;
    if (status != TN_OK) free(l);
    return status;
}

static tn_status run(const tn_call *call, void *state) {
    void *x = tn_in(call, X)->data, *y = tn_out(call, Y)->data;
    int64_t n = tn_count(tn_in(call, X));
    float c = (float)call->attrs[C].f;
    if (!is_current(call)) return tn_fail(TN_BAD_DEVICE, "%s: run without a context", call->name);
    return tn_cuda_launch(call, state, (void *[]){&x, &y, &c, &n});
}

static const tn_sample samples[] = {{"s=[3, 5]"}, {"s=[]"}, {"s=[0, 4]"}, {"s=[7, 133] c=0.5"}, {0}};

static const tn_kernel kernels[] = {
    {.name = "cuda",
     .device = TN_CUDA,
     .types = TN_BIT(TN_F32),
     .flags = TN_ALIAS,
     .accepts = accepts,
     .workspace = workspace,
     .prepare = prepare,
     .release = free,
     .run = run},
    {0},
};
static const tn_op author_scale = {.signature = "author_scale<T: f32>(x: T[*s], c: float = 2.0) -> y: T[*s]",
                                   .doc = "c x.",
                                   .formula = "c * x",
                                   .kernels = kernels,
                                   .samples = samples};
static const tn_op *const table[] = {&author_scale};
TN_API const tn_plugin tenon_plugin = TN_PLUGIN(table);
