/* NVRTC, NVIDIA's run-time compiler, opened at first need: CUDA C becomes code for one GPU. Needs no GPU itself. */
#ifndef TNI_CUDA_NVRTC_H
#define TNI_CUDA_NVRTC_H

#include "driver.h"

typedef struct tni_compiled_code {
    char *data; /* the caller frees it with tni_free */
    size_t bytes;
    bool is_ptx;    /* the architecture is unknown to this NVRTC: text for the driver to compile */
    bool is_cached; /* it was not made now */
    char *names;    /* of the kernels that were asked for, as the code has them, a '\n' behind each; NULL: none were.
                       The caller frees it with tni_free */
} tni_compiled_code;

extern const char *const tni_cuda_folders[]; /* of CUDA's libraries, where the loader may not know them; NULL ends */

/* 13000 * … as CUDA counts: 12090 is 12.9; 0 and a message where there is no NVRTC. `wanted` begins the message. */
int tni_nvrtc_version(const char *wanted);
bool tni_nvrtc_knows(int major, int minor); /* code for such a GPU comes out, not PTX */
const char *tni_nvrtc_file(void);           /* that was found, even if it is of no use; "": none */

/* The text of tenon/device.cuh, which the build makes of src/cuda/device/author.cuh. */
extern const char tni_device_text[];

/* Code for compute capability major.minor. A source can include <tenon/device.cuh>. `name` is what messages of the
 * compiler call the source where no #line says otherwise; options end with NULL, and may be NULL. A failure's message
 * holds what the compiler says. */
tn_status tni_nvrtc_compile(const char *wanted, const char *name, const char *source, int major, int minor,
                            const char *const *options, tni_compiled_code *made);

/* A file that a source may include. */
typedef struct tni_header {
    const char *name, *text;
} tni_header;

/* The same for a text of somebody else's, with what it may include, and for kernels that are in no `extern "C"`:
 * `kernels` are expressions that stand for them, "scale<float>". All lists end with NULL and may be NULL. */
typedef struct tni_nvrtc_job {
    const char *name, *source;
    int major, minor;
    const char *const *options;
    const tni_header *headers;
    const char *const *kernels;
} tni_nvrtc_job;
tn_status tni_nvrtc_run(const char *wanted, const tni_nvrtc_job *job, tni_compiled_code *made);

/* Loads code on a GPU. Inside a graph capture that is impossible, and the message says what to do instead. */
tn_status tni_cuda_load(const char *wanted, int index, const tni_compiled_code *code, cu_library *library);

#endif
