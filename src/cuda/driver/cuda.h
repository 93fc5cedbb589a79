/* Kernels on the GPU: found by name among those built in, loaded at first need, launched in one place.
 *
 * A CUDA kernel of an operator is a row of its table like any other:
 *     prepare   chooses the variant and the grid from the shapes and looks the kernel up; the plan keeps both
 *     run       fills in pointers and launches: no look-up, no allocation, nothing that a graph capture forbids */
#ifndef TNI_CUDA_H
#define TNI_CUDA_H

#include <tenon/cuda.h>

#include "core/host/device.h"
#include "core/host/memory.h"
#include "driver.h"

enum { TNI_MOST_GPUS = 64 };

int tni_gpu_count(const char *wanted); /* 0 and a message where there is no GPU */
/* Looks at no context and makes none. */
tn_status tni_gpu_get(const char *wanted, int index, const tn_gpu **gpu);

/* What only people ask for: the driver takes a millisecond to find it. 0: it does not tell. */
typedef struct tni_gpu_clocks {
    int sm_khz, memory_khz, bus_bits;
} tni_gpu_clocks;
tni_gpu_clocks tni_gpu_clocks_of(const tn_gpu *gpu);

/* Makes the device's context current for this thread: the current one where it is that device's already, else the
 * primary one, which is what frameworks use. leave() restores what was there. */
typedef struct tni_cuda_scope {
    const tni_cuda_api *pushed; /* to pop with; NULL: nothing was pushed */
} tni_cuda_scope;
tn_status tni_cuda_enter(const char *wanted, int index, tni_cuda_scope *scope);
void tni_cuda_leave(tni_cuda_scope *scope);

/* Memory in the order of a stream, for programs without an allocator of their own. */
tn_status tni_cuda_alloc(const char *wanted, tn_device device, size_t bytes, void *stream, tn_block *block);
void tni_cuda_free(tn_device device, tn_block block, void *stream);
void tni_cuda_trim(void); /* gives the pools' unused memory back */
tn_status tni_cuda_memory(const char *wanted, tn_device device, tn_memory_stats *stats, bool reset_peak);
void tni_cuda_close(void); /* pools destroyed, primary contexts released; kernels are unloaded before */

/* What is done to load a kernel is no part of a graph, and the driver allows it while one is captured, by this thread
 * or another, where it is said before: between begin and end. */
static inline int tni_cuda_begin_loading(const tni_cuda_api *cu) {
    int mode = CU_CAPTURE_RELAXED;
    cu->cuThreadExchangeStreamCaptureMode(&mode);
    return mode;
}
static inline void tni_cuda_end_loading(const tni_cuda_api *cu, int mode) {
    cu->cuThreadExchangeStreamCaptureMode(&mode);
}

/* ---- kernels built in -------------------------------------------------------------------------------------------- */

/* One compiled .cu file for one architecture; embedded by the build (cmake/cubins.cmake). */
typedef struct tni_image {
    const char *unit; /* the file's name: "softmax" */
    int arch;         /* 90 for sm_90 and sm_90a, 120 for sm_120 */
    char kind; /* ' ' plain: good for later minor versions too; 'a': this one exactly; 'p': PTX, for newer ones */
    const unsigned char *data, *end;
} tni_image;
extern const tni_image tni_images[]; /* {0} ends */

/* The units that there are images of, each once, from 0 on; NULL: no more. */
const char *tni_image_unit(int i);
/* The image of `unit` that a GPU of this compute capability gets; NULL where none fits. */
const tni_image *tni_image_for(const char *unit, int major, int minor);
/* The same among other images; {0} ends. */
const tni_image *tni_image_pick(const tni_image *images, const char *unit, int major, int minor);
/* "sm_90a", "PTX for sm_75" into text. */
void tni_image_describe(const tni_image *image, char text[static 32]);
/* What the driver loads. The caller frees *memory, where it was unpacked to; NULL: nowhere. */
tn_status tni_image_code(const char *wanted, const tni_image *image, void **memory, const void **code);

/* Loads what NVRTC or the build made; the driver has a copy of it then. Returns CUDA's error. */
int tni_cuda_load_code(const tni_cuda_api *cu, const void *code, cu_library *library);

void tni_images_unload(void);

/* A kernel for this GPU; valid in every context of it. */
tn_status tni_cuda_kernel(const char *wanted, int index, const char *unit, const char *name, cu_kernel *kernel);
/* The same in an image of somebody else's, which is known by its bytes. Returns CUDA's error, or -1 and a message where
 * there is no memory. */
int tni_cuda_kernel_in(const tni_cuda_api *cu, int index, const void *image, size_t bytes, const char *name,
                       cu_kernel *kernel);
/* The same for a variable of the image, in the context that is current. */
int tni_cuda_global_in(const tni_cuda_api *cu, int index, const void *image, size_t bytes, const char *name,
                       cu_pointer *data, size_t *size);
/* A variable of an image, `__constant__` or `__device__`, on the call's GPU; for `prepare`. */
tn_status tni_cuda_global(const tn_call *call, const void *image, size_t bytes, const char *name, uint64_t *data,
                          size_t *size);

/* ---- launch ------------------------------------------------------------------------------------------------------ */

/* This GPU runs code of `unit` for sm_<arch> or later: 90 has clusters, bulk copies and programmatic launches, 80 has
 * asynchronous copies and matrices of bf16. */
bool tni_cuda_has(const tn_call *call, const char *unit, int arch);

/* As tn_cuda_find, for kernel `name` (printf-style) of file `unit`, which the build embedded. It lets the kernel use
 * l->shared bytes and l->cluster blocks, which are set before. */
tn_status tni_cuda_find(const tn_call *call, tn_launch *l, const char *unit, const char *name, ...)
    __attribute__((format(printf, 4, 5)));
/* The second half of it, for a kernel from elsewhere. */
tn_status tni_cuda_allow(const tn_call *call, const tn_launch *l);

/* ---- rows of the table ------------------------------------------------------------------------------------------- */

/* X_cuda.c defines prepare and run, and accepts and workspace where the operator's kernels name them. The state that
 * prepare makes is freed with tni_free. */
#define TNI_CUDA_DECLARE(op)                                              \
    bool tni_##op##_cuda_accepts(const tn_call *call);                    \
    size_t tni_##op##_cuda_workspace(const tn_call *call);                \
    tn_status tni_##op##_cuda_prepare(const tn_call *call, void **state); \
    tn_status tni_##op##_cuda_run(const tn_call *call, void *state);
#define TNI_CUDA_KERNEL(op, ...)                                                                    \
    {                                                                                               \
        .name = "cuda", .device = TN_CUDA, .prepare = tni_##op##_cuda_prepare, .release = tni_free, \
        .run = tni_##op##_cuda_run, __VA_ARGS__                                                     \
    }

/* For `prepare`: makes a state of `size` bytes, all 0, and has `fill` fill it in. Frees it where that fails. */
tn_status tni_cuda_prepare(const tn_call *call, size_t size, tn_status (*fill)(const tn_call *call, void *state),
                           void **state);

#endif
