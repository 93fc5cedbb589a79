/* The kernel that fills shared memory. It is PTX, which the driver compiles: builds without a CUDA compiler have it. */
#include "poison.h"

#include <pthread.h>

/* A block has all the shared memory that a block can have, so a multiprocessor runs one at a time. */
static const char ptx[] = ".version 7.0\n"
                          ".target sm_75\n"
                          ".address_size 64\n"
                          ".extern .shared .align 16 .b8 memory[];\n"
                          ".visible .entry fill_shared(.param .u32 words, .param .u32 pattern)\n"
                          "{\n"
                          "    .reg .pred %done;\n"
                          "    .reg .b32 %i, %n, %step, %value, %at, %begin;\n"
                          "    ld.param.u32 %n, [words];\n"
                          "    ld.param.u32 %value, [pattern];\n"
                          "    mov.u32 %i, %tid.x;\n"
                          "    mov.u32 %step, %ntid.x;\n"
                          "    mov.u32 %begin, memory;\n"
                          "next:\n"
                          "    setp.ge.u32 %done, %i, %n;\n"
                          "    @%done bra end;\n"
                          "    shl.b32 %at, %i, 2;\n"
                          "    add.u32 %at, %at, %begin;\n"
                          "    st.volatile.shared.u32 [%at], %value;\n"
                          "    add.u32 %i, %i, %step;\n"
                          "    bra next;\n"
                          "end:\n"
                          "    ret;\n"
                          "}\n";

enum { THREADS = 1024, ROUNDS = 2, MAX_DYNAMIC_SHARED = 8 /* CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES */ };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of what follows */
static cu_library library;
static cu_kernel kernel;

static int find_kernel(const tni_cuda_api *cu) {
    pthread_mutex_lock(&lock);
    int error = library ? 0 : tni_cuda_load_code(cu, ptx, &library);
    if (!error && !kernel) error = cu->cuLibraryGetKernel(&kernel, library, "fill_shared");
    pthread_mutex_unlock(&lock);
    return error;
}

int poison_shared(const tni_cuda_api *cu, int device, cu_stream stream, uint32_t pattern) {
    const tn_gpu *gpu;
    cu_function function = NULL;
    if (tni_gpu_get("tenon check", device, &gpu) != TN_OK) return 0;
    int error = find_kernel(cu);
    if (!error) error = cu->cuKernelGetFunction(&function, kernel);
    if (!error) error = cu->cuFuncSetAttribute(function, MAX_DYNAMIC_SHARED, gpu->shared_per_block);
    if (error) return error;
    uint32_t words = (uint32_t)gpu->shared_per_block / sizeof pattern;
    const cu_config config = {.grid_x = (uint32_t)(ROUNDS * gpu->sms), /* each gets one, also if one is held up */
                              .grid_y = 1,
                              .grid_z = 1,
                              .block_x = THREADS,
                              .block_y = 1,
                              .block_z = 1,
                              .shared = (uint32_t)gpu->shared_per_block,
                              .stream = stream};
    return cu->cuLaunchKernelEx(&config, function, (void *[]){&words, &pattern}, NULL);
}
