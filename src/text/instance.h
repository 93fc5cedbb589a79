/* One text for one choice of types and of what it leaves open: what NVRTC compiles, and the code that it makes. */
#ifndef TNI_TEXT_INSTANCE_H
#define TNI_TEXT_INSTANCE_H

#include "fuse/cache/cache.h"
#include "source.h"

typedef struct tni_instance {
    char *text;                              /* all of it, as NVRTC gets it; the caller frees it with tni_free */
    const char *kernels[TNI_MOST_STEPS + 1]; /* expressions that stand for the kernels of the launch */
    tni_cache_key key;                       /* of the text and its options */
    bool includes;                           /* files of CUDA's, perhaps */
    char options[128];                       /* that were tuned */
} tni_instance;

/* What CUDA C calls a type; NULL: it has none. `half`, `bfloat`: the text includes CUDA's headers of these. */
const char *tni_cuda_type(tn_type type, bool half, bool bfloat);
/* `all`: the functions of the text; `steps`: the kernels that are launched. */
tn_status tni_instance_make(const tni_known *known, const tn_source *source, const tni_cfunctions *all,
                            const tni_launch_steps *steps, tni_arena *arena, tni_instance *made);

/* Code of an instance. It stays until the library is shut down. */
typedef struct tni_code {
    char *names; /* of the kernels, '\n' behind each */
    char *data;
    size_t bytes;
} tni_code;
/* From memory, from a plugin, from disk, or from NVRTC. */
tn_status tni_code_get(const char *op, const tn_source *source, const tni_instance *of, int major, int minor,
                       const tni_code **found);

#endif
