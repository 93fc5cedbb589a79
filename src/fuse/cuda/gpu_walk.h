/* A scan on the GPU in one launch. The step is a formula over tensors without the axis, of s, the values, and what
 * s begins with:
 *
 *     begin = start; before = s; result = step(s, x, …); next = result; last = s
 *
 * where s, begin and next are in no memory but in a register. The call that its program is made for has a tni_gpu_walk
 * as its state, which says what moves along the axis, and views of the first element there. */
#ifndef TNI_FUSE_GPU_WALK_H
#define TNI_FUSE_GPU_WALK_H

#include "gpu.h"

/* What an output of the step is. */
enum { TNI_WALK_BEGIN, TNI_WALK_NEXT, TNI_WALK_RESULT, TNI_WALK_LAST, TNI_WALK_ROLES };

typedef struct tni_gpu_walk {
    int64_t n;                    /* elements of the axis, of which the views have the one that comes first */
    int64_t in[TNI_MAX_ARGS + 1]; /* how far an input is from its next element; input 0 is s */
    int64_t out[TNI_MAX_ARGS + 1];
    uint8_t role[TNI_MAX_ARGS + 1]; /* of outputs */
} tni_gpu_walk;

enum {
    TNI_WALK_THREADS = 128,
    TNI_WALK_FEW_LINES = 8, /* of a warp, where there are not enough lines for many blocks */
};

/* Where a result is made: before the walk, at each element, behind it. */
static inline int32_t tni_walk_place(int32_t role) {
    return role == TNI_WALK_RESULT ? TNI_WALK_NEXT : role;
}

typedef struct tni_walk_memory {
    bool there;   /* false: it is the state */
    bool written; /* or read */
    bool tile;    /* goes through shared memory */
    int64_t along;
} tni_walk_memory;

/* What its program has. */
typedef struct tni_gpu_walked {
    int32_t state, next; /* memory of s, -1 where the step does not look at it, and of what s becomes */
    bool tiled;          /* lines lie along the walk */
    int32_t width;       /* of tiles */
    int32_t unroll;      /* without them: elements that are under way */
    int32_t threads;     /* of a block */
    int64_t n, lines;
    uint32_t grid;
    tni_walk_memory *memory; /* (pass->n_memory) */
    const char *text;
    const char *kernel;
    tn_launch launch;
} tni_gpu_walked;

/* In no list: scan_operator.c asks for it. */
extern const tni_backend tni_cuda_walk;
/* The parameters of the launch, TNI_GPU_PARAMS bytes at most. */
void tni_gpu_walk_words(const tni_program *program, const tn_call *call, uint64_t *words);
void tni_emit_cuda_walk(const tni_gpu_part *part, const tni_gpu_walk *walk, const tni_gpu_walked *made);

#endif
