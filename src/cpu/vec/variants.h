/* Vectorised CPU kernels are one source, compiled once per instruction set and precision (CMakeLists.txt: every
 * src/ops/X_cpu.c). Here the variants of this architecture are listed, best first; the core leaves out at run time what
 * the machine lacks.
 *
 *     in softmax_cpu.c:   tn_status TNI_CPU(softmax)(const tn_call *call, void *state) { … }
 *     in softmax.c:       TNI_CPU_DECLARE(softmax)
 *                         static const tn_kernel kernels[] = {
 *                             TNI_CPU_KERNELS(softmax, .flags = TN_STRIDED),
 *                             {.name = "ref", .device = TN_CPU, .run = softmax_ref},
 *                             {0}};                                                                                  */
#ifndef TNI_VARIANTS_H
#define TNI_VARIANTS_H

#include <tenon/op.h>

/* X(isa, what it needs, argument) */
#if defined(TNI_SSE2_ALONE) /* builds with sanitizers have one of those of x86_64 (CMakeLists.txt) */
#define TNI_VARIANTS(X, arg) X(sse2, 0, arg)
#elif defined(TNI_AVX2_ALONE)
#define TNI_VARIANTS(X, arg) X(avx2, TN_ISA_AVX2, arg)
#elif defined(__x86_64__)
#define TNI_VARIANTS(X, arg) X(avx512, TN_ISA_AVX512, arg) X(avx2, TN_ISA_AVX2, arg) X(sse2, 0, arg)
#elif defined(__aarch64__)
#define TNI_VARIANTS(X, arg) X(neon, 0, arg)
#else
#define TNI_VARIANTS(X, arg) X(vector, 0, arg)
#endif

#define TNI_CPU_DECLARE_ONE(isa, needs, op)                       \
    tn_status op##_##isa##_f32(const tn_call *call, void *state); \
    tn_status op##_##isa##_f64(const tn_call *call, void *state);
#define TNI_CPU_DECLARE(op) TNI_VARIANTS(TNI_CPU_DECLARE_ONE, op)

#if defined(TNI_SSE2_ALONE)
#define TNI_CPU_KERNELS(op, ...) TNI_CPU_ROWS(op, sse2, 0, __VA_ARGS__)
#elif defined(TNI_AVX2_ALONE)
#define TNI_CPU_KERNELS(op, ...) TNI_CPU_ROWS(op, avx2, TN_ISA_AVX2, __VA_ARGS__)
#elif defined(__x86_64__)
#define TNI_CPU_KERNELS(op, ...)                                                                            \
    TNI_CPU_ROWS(op, avx512, TN_ISA_AVX512, __VA_ARGS__), TNI_CPU_ROWS(op, avx2, TN_ISA_AVX2, __VA_ARGS__), \
        TNI_CPU_ROWS(op, sse2, 0, __VA_ARGS__)
#elif defined(__aarch64__)
#define TNI_CPU_KERNELS(op, ...) TNI_CPU_ROWS(op, neon, 0, __VA_ARGS__)
#else
#define TNI_CPU_KERNELS(op, ...) TNI_CPU_ROWS(op, vector, 0, __VA_ARGS__)
#endif

/* The f32 build serves the 16-bit types too: they are widened in registers. */
#define TNI_CPU_ROWS(op, set, needs, ...)                                                                           \
    {.name = #set,                                                                                                  \
     .device = TN_CPU,                                                                                              \
     .types = TN_BIT(TN_F16) | TN_BIT(TN_BF16) | TN_BIT(TN_F32),                                                    \
     .isa = needs,                                                                                                  \
     .run = op##_##set##_f32,                                                                                       \
     __VA_ARGS__},                                                                                                  \
    {                                                                                                               \
        .name = #set, .device = TN_CPU, .types = TN_BIT(TN_F64), .isa = needs, .run = op##_##set##_f64, __VA_ARGS__ \
    }

/* KERNELS (TNI_CPU_KERNELS, TNI_CUDA_KERNEL) twice: as they are for the strides that `which` accepts, and for dense
 * tensors, which the core makes of all others. */
#define TNI_STRIDED_OR_DENSE(KERNELS, op, also, which, ...) \
    KERNELS(op, .flags = TN_STRIDED | (also), .accepts = which, __VA_ARGS__), KERNELS(op, .flags = also, __VA_ARGS__)

/* Inside a file that is compiled per variant: softmax -> softmax_avx2_f32. The build defines TNI_ISA and TNI_REAL. */
#ifdef TNI_ISA
#define TNI_CPU(op) TNI_CPU_(op, TNI_ISA, TNI_REAL)
#define TNI_CPU_(op, isa, real) TNI_CPU__(op, isa, real)
#define TNI_CPU__(op, isa, real) op##_##isa##_##real
#endif

#endif
