/* What the arithmetic units can do: the ceiling that `tenon bench` holds operators against. */
#include "cuda/device/device.cuh"

/* Independent chains of multiply-adds in registers: enough of them to cover the latency of one another. `out` is never
 * written, but the compiler cannot know. */
template <class A> TN_DEVICE void fma_chains(A *out, A a, A b, int rounds) {
    constexpr int CHAINS = 16;
    A x[CHAINS];
#pragma unroll
    for (int i = 0; i < CHAINS; i++) x[i] = a * (A)(i + (int)threadIdx.x);
#pragma unroll 8
    for (int r = 0; r < rounds; r++) {
#pragma unroll
        for (int i = 0; i < CHAINS; i++) x[i] = x[i] * a + b;
    }
    A sum = 0;
#pragma unroll
    for (int i = 0; i < CHAINS; i++) sum += x[i];
    if (sum == (A)-12345.678) *out = sum;
}

TN_KERNEL(ceiling_fma_f32, 256, (float *out, float a, float b, int rounds), fma_chains<float>(out, a, b, rounds))
TN_KERNEL(ceiling_fma_f64, 256, (double *out, double a, double b, int rounds), fma_chains<double>(out, a, b, rounds))
