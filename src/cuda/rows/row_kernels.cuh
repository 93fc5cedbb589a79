/* The kernels of an operator's rows, under the names that row_plan.c looks up, from templates OP_warp<T, V, E>,
 * OP_block<T, V>, OP_split<T, V> and OP_write<T, V>. In a name, p stands for pieces of 16 bytes and s for single
 * elements; behind it is how many elements a thread has. */
#pragma once

#include "rows.cuh"

/* Elements of a thread that holds its part of a row, in pieces and as single ones: held in rows.cuh, as a macro can
 * write it into a name. */
#define TN_HELD_f16 32
#define TN_HELD_bf16 32
#define TN_HELD_f32 32
#define TN_HELD_f64 16
#define TN_HELD_SINGLE_f16 16
#define TN_HELD_SINGLE_bf16 16
#define TN_HELD_SINGLE_f32 16
#define TN_HELD_SINGLE_f64 8

#define TN_WARP_KERNEL(op, T, name, piece, V, E, threads) TN_WARP_KERNEL_(op, T, name, piece, V, E, threads)
#define TN_WARP_KERNEL_(op, T, name, piece, V, E, threads) \
    TN_ROW_KERNEL(op##_warp_##piece##E##_##name, threads, 1, tni_##op, (op##_warp<T, V, E>(p)))

/* `threads` of a block, whose lanes have rows. */
#define TN_WARP_KERNELS(op, T, name, threads)                            \
    TN_WARP_KERNEL(op, T, name, p, pack<T>::VL, 8, threads)              \
    TN_WARP_KERNEL(op, T, name, p, pack<T>::VL, TN_HELD_##name, threads) \
    TN_WARP_KERNEL(op, T, name, s, 1, 2, threads)                        \
    TN_WARP_KERNEL(op, T, name, s, 1, 4, threads)                        \
    TN_WARP_KERNEL(op, T, name, s, 1, TN_HELD_SINGLE_##name, threads)

/* OP_STAGE for pieces and single elements, of which an SM is to hold so many blocks. */
#define TN_PIECES_KERNEL(op, stage, T, name, blocks) \
    TN_ROW_KERNEL(op##_##stage##_p_##name, TNI_ROW_BLOCK, blocks, tni_##op, (op##_##stage<T, pack<T>::VL>(p)))
#define TN_SINGLES_KERNEL(op, stage, T, name, blocks) \
    TN_ROW_KERNEL(op##_##stage##_s_##name, TNI_ROW_BLOCK, blocks, tni_##op, (op##_##stage<T, 1>(p)))
#define TN_BLOCK_KERNELS(op, stage, T, name, blocks) \
    TN_PIECES_KERNEL(op, stage, T, name, blocks) TN_SINGLES_KERNEL(op, stage, T, name, blocks)
