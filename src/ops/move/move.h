/* Operators that move data: what they share. The arguments of each, and moves: copies in which every dimension of the
 * result follows its own map (maps.cuh). */
#ifndef TNI_MOVE_H
#define TNI_MOVE_H

#include "core/host/memory.h"
#include "cpu/vec/variants.h"
#include "maps.cuh"
#include "ops/arguments.h"

#define PERMUTE_ARGUMENTS(IN, OUT, ATTR) IN(x) ATTR(dims, list) OUT(y)
TNI_ARGUMENTS(permute, PERMUTE_ARGUMENTS)
#define PERMUTE_GRAD_ARGUMENTS(IN, OUT, ATTR) IN(dy) ATTR(shape, list) ATTR(dims, list) OUT(dx)
TNI_ARGUMENTS(permute_grad, PERMUTE_GRAD_ARGUMENTS)

#define PAD_ARGUMENTS(IN, OUT, ATTR) IN(x) ATTR(pad, list) ATTR(mode, choice) ATTR(value, number) OUT(y)
TNI_ARGUMENTS(pad, PAD_ARGUMENTS)
#define PAD_GRAD_ARGUMENTS(IN, OUT, ATTR) IN(dy) ATTR(shape, list) ATTR(pad, list) ATTR(mode, choice) OUT(dx)
TNI_ARGUMENTS(pad_grad, PAD_GRAD_ARGUMENTS)

#define ROLL_ARGUMENTS(IN, OUT, ATTR) IN(x) ATTR(shift, integer) ATTR(axis, integer) OUT(y)
TNI_ARGUMENTS(roll, ROLL_ARGUMENTS)
#define ROLL_GRAD_ARGUMENTS(IN, OUT, ATTR) IN(dy) ATTR(shift, integer) ATTR(axis, integer) OUT(dx)
TNI_ARGUMENTS(roll_grad, ROLL_GRAD_ARGUMENTS)

#define REPEAT_ARGUMENTS(IN, OUT, ATTR) IN(x) ATTR(repeats, list) OUT(y)
TNI_ARGUMENTS(repeat, REPEAT_ARGUMENTS)
#define REPEAT_GRAD_ARGUMENTS(IN, OUT, ATTR) IN(dy) ATTR(shape, list) ATTR(repeats, list) OUT(dx)
TNI_ARGUMENTS(repeat_grad, REPEAT_GRAD_ARGUMENTS)

/* ---- moves ------------------------------------------------------------------------------------------------------- */

/* One dimension: its map, and the strides of result and operand, in elements. */
typedef struct tni_move_dim {
    tni_map map;
    int64_t to, from;
} tni_move_dim;

typedef struct tni_move {
    const tn_view *to, *from;
    int32_t n_dims;
    tni_move_dim dims[TN_MAX_RANK]; /* in memory order of the result, the last is the fastest */
    unsigned char constant[16];     /* an element of what lies outside */
} tni_move;

/* An operator says what its dimensions do: dims[d] for each dimension of the result, `to` and `from` filled in, and the
 * constant, 0 before. Kernels of moves have it as their data. */
typedef struct tni_mover {
    void (*describe)(const tn_call *call, tni_move *move);
} tni_mover;

/* The move of a call, with dimensions sorted and merged. */
tni_move tni_move_of(const tn_call *call);
/* The same with dimensions as they are described: for sums, in which result and operand change places. */
tni_move tni_move_described(const tn_call *call);

tn_status tni_move_cpu(const tn_call *call, void *state);
tn_status tni_move_cuda_prepare(const tn_call *call, void **state);
tn_status tni_move_cuda_run(const tn_call *call, void *state);
/* The plain version, for dense tensors. */
tn_status tni_move_ref(const tn_call *call, void *state);

/* Rows of the table: all kernels of a move, and those that are not the plain one, with further members. */
#define TNI_MOVES(mover, ...)                                                                                          \
    {.name = "rows", .device = TN_CPU, .flags = TN_STRIDED, .run = tni_move_cpu, .data = &(mover), __VA_ARGS__}, {     \
        .name = "cuda", .device = TN_CUDA, .flags = TN_STRIDED, .prepare = tni_move_cuda_prepare, .release = tni_free, \
        .run = tni_move_cuda_run, .data = &(mover), __VA_ARGS__                                                        \
    }
#define TNI_MOVE_KERNELS(mover)                                                                               \
    TNI_MOVES(mover, .types = 0), {.name = "ref", .device = TN_CPU, .run = tni_move_ref, .data = &(mover)}, { \
        0                                                                                                     \
    }

/* ---- sums, where a move brings an element to several places ------------------------------------------------------
 * The gradient of a move: each element of the operand is the sum of those that it became. The mover describes the move,
 * whose result is the operator's input and whose operand is its output. */

size_t tni_fold_ref_workspace(const tn_call *call);
tn_status tni_fold_ref(const tn_call *call, void *state);
tn_status tni_fold_cuda_prepare(const tn_call *call, void **state);
tn_status tni_fold_cuda_run(const tn_call *call, void *state);
TNI_CPU_DECLARE(tni_fold)

#define TNI_FOLD_KERNELS(mover)                                                                                        \
    TNI_CPU_KERNELS(tni_fold, .flags = TN_STRIDED, .data = &(mover)),                                                  \
        {.name = "cuda",                                                                                               \
         .device = TN_CUDA,                                                                                            \
         .flags = TN_STRIDED,                                                                                          \
         .prepare = tni_fold_cuda_prepare,                                                                             \
         .release = tni_free,                                                                                          \
         .run = tni_fold_cuda_run,                                                                                     \
         .data = &(mover)},                                                                                            \
        {.name = "ref", .device = TN_CPU, .workspace = tni_fold_ref_workspace, .run = tni_fold_ref, .data = &(mover)}, \
    {                                                                                                                  \
        0                                                                                                              \
    }

#endif
