/* A warp's instructions for small matrices of 16-bit and 8-bit numbers (sm_80 and later). emulate.h stands in for this
 * file. */
#ifndef TNI_CUDA_MATRIX
#define TNI_CUDA_MATRIX

#include "cuda/device/types.cuh"
#include "eight_bits.cuh"

namespace tn {

/* Four matrices of 8 x 8 numbers from shared memory. Lane l says where row l % 8 of matrix l / 8 begins, at a multiple
 * of 16 bytes. It gets of each matrix numbers 2 * (l % 4) and the next one of row l / 4; turned: of column l / 4. */
#if __CUDA_ARCH__ >= 800
#define TN_MATRIX true
template <bool TURNED> TN_DEVICE void load_matrices(const void *row, u32 (&made)[4]) {
    const u32 at = (u32)__cvta_generic_to_shared(row);
    if constexpr (TURNED) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(made[0]), "=r"(made[1]), "=r"(made[2]), "=r"(made[3])
                     : "r"(at)
                     : "memory");
    } else {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(made[0]), "=r"(made[1]), "=r"(made[2]), "=r"(made[3])
                     : "r"(at)
                     : "memory");
    }
}

/* sums (16, 8) += a (16, 16) * b (16, 8). Lane l has, with g = l / 4 and t = 2 * (l % 4): of the sums (g, t), (g, t +
 * 1) and the same of row g + 8; of a rows g, g + 8, g, g + 8 from column t, t, t + 8, t + 8 on, two numbers each; of b
 * column g from row t and t + 8 on. */
#define TN_MULTIPLY(T)                                                                                        \
    TN_DEVICE void multiply_matrices(T, f32(&sums)[4], const u32(&a)[4], u32 b_low, u32 b_high) {             \
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." #T "." #T ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, " \
                     "{%8,%9}, {%0,%1,%2,%3};"                                                                \
                     : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])                             \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b_low), "r"(b_high));                  \
    }
TN_MULTIPLY(f16)
TN_MULTIPLY(bf16)
#undef TN_MULTIPLY

/* The same of 8-bit numbers, of which a (16, 32) and b (32, 8) have twice as many: four in the place of two. */
TN_DEVICE void multiply_matrices(of_i8, int (&sums)[4], const u32 (&a)[4], u32 b_low, u32 b_high) {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b_low), "r"(b_high));
}
#if __CUDA_ARCH__ >= 890
TN_DEVICE void multiply_matrices(of_e4m3, f32 (&sums)[4], const u32 (&a)[4], u32 b_low, u32 b_high) {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b_low), "r"(b_high));
}
#else
TN_DEVICE void multiply_matrices(of_e4m3, f32 (&)[4], const u32 (&)[4], u32, u32) {
}
#endif
#else
#define TN_MATRIX false
template <bool TURNED> TN_DEVICE void load_matrices(const void *, u32 (&)[4]) {
}
template <class T, class S> TN_DEVICE void multiply_matrices(T, S (&)[4], const u32 (&)[4], u32, u32) {
}
#endif

} // namespace tn

#endif
