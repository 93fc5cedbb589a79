/* The kernels of an operator's rows, under the names that row_plan.c looks up, from templates OP_warp<T, V, E>,
 * OP_block<T, V>, OP_split<T, V> and OP_write<T, V>. The number in a name is how many elements a lane has. */
#pragma once

#include "rows.cuh"

/* Elements of a thread that holds its part of a row: held in rows.cuh, as a macro can write it into a name. */
#define TN_HELD_f16 32
#define TN_HELD_bf16 32
#define TN_HELD_f32 32
#define TN_HELD_f64 16

#define TN_WARP_KERNEL(op, T, name, E, threads) TN_WARP_KERNEL_(op, T, name, E, threads)
#define TN_WARP_KERNEL_(op, T, name, E, threads) \
    TN_ROW_KERNEL(op##_warp_##E##_##name, threads, 1, tni_##op, (op##_warp<T, pack<T>::VL, E>(p)))

/* `threads` of a block, whose lanes have rows. */
#define TN_WARP_KERNELS(op, T, name, threads) \
    TN_WARP_KERNEL(op, T, name, 8, threads)   \
    TN_WARP_KERNEL(op, T, name, TN_HELD_##name, threads)

/* OP_STAGE, of which an SM is to hold so many blocks. */
#define TN_BLOCK_KERNEL(op, stage, T, name, blocks) \
    TN_ROW_KERNEL(op##_##stage##_##name, TNI_ROW_BLOCK, blocks, tni_##op, (op##_##stage<T, pack<T>::VL>(p)))
