/* Kernels of formulas on the CPU, to test what they do where there is no GPU: each thread of a block is a coroutine
 * that runs until it waits for the others. This stands in for CUDA's own words, and for two files of src/cuda/device:
 * instructions.cuh and bulk.cuh, which find their guards defined. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#define TNI_CUDA_INSTRUCTIONS
#define TNI_CUDA_BULK

namespace tn {
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;
typedef float f32;
typedef double f64;
} // namespace tn
using namespace tn;

#define TN_DEVICE static inline
#define TN_CALLED static inline
#define TN_MEMBER inline
#define TN_PARAMS(type) const type &p
#define __shared__ static
#define __global__
#define __launch_bounds__(...)

/* ---- threads ----------------------------------------------------------------------------------------------------- */

static struct { u32 x; } threadIdx, blockIdx;

enum { TN_MOST_THREADS = 1024, TN_STACK = 65536 };
static unsigned tn_threads;
static ucontext_t tn_main, tn_contexts[TN_MOST_THREADS];
static bool tn_done[TN_MOST_THREADS];
static char *tn_stacks;
static unsigned long long tn_slots[TN_MOST_THREADS];
static void (*tn_kernel)(const void *);
static const void *tn_arguments;

static void tn_let_go();
static unsigned tn_running;
static void tn_start() {
    tn_kernel(tn_arguments);
    tn_done[threadIdx.x] = true;
    tn_running--;
    if (tn_running) tn_let_go();
    swapcontext(&tn_contexts[threadIdx.x], &tn_main);
}

static inline void tn_yield() {
    swapcontext(&tn_contexts[threadIdx.x], &tn_main);
}

/* Until every thread that has not ended is here. */
static unsigned tn_arrived, tn_generation;
static void tn_let_go() {
    if (tn_arrived < tn_running) return;
    tn_arrived = 0;
    tn_generation++;
}
static inline void __syncthreads() {
    unsigned generation = tn_generation;
    tn_arrived++;
    tn_let_go();
    while (generation == tn_generation) tn_yield();
}

/* Both halves of an exchange lie between waits, so that nobody overwrites what another has yet to read. */
template <class T> static inline T __shfl_xor_sync(u32, T a, unsigned lane, int = 32) {
    memcpy(&tn_slots[threadIdx.x], &a, sizeof a);
    __syncthreads();
    memcpy(&a, &tn_slots[threadIdx.x ^ lane], sizeof a);
    __syncthreads();
    return a;
}

static void tn_run_block() {
    for (unsigned i = 0; i < tn_threads; i++) {
        tn_done[i] = false;
        getcontext(&tn_contexts[i]);
        tn_contexts[i].uc_stack.ss_sp = tn_stacks + (size_t)i * TN_STACK;
        tn_contexts[i].uc_stack.ss_size = TN_STACK;
        tn_contexts[i].uc_link = &tn_main;
        makecontext(&tn_contexts[i], tn_start, 0);
    }
    tn_running = tn_threads;
    tn_arrived = 0;
    while (tn_running) {
        for (unsigned i = 0; i < tn_threads; i++) {
            if (tn_done[i]) continue;
            threadIdx.x = i;
            swapcontext(&tn_main, &tn_contexts[i]);
        }
    }
}

extern "C" void tn_emulate(void (*kernel)(const void *), const void *arguments, unsigned grid, unsigned block) {
    tn_kernel = kernel;
    tn_arguments = arguments;
    tn_threads = block;
    tn_stacks = (char *)malloc((size_t)TN_MOST_THREADS * TN_STACK);
    for (unsigned i = 0; i < grid; i++) {
        blockIdx.x = i;
        tn_run_block();
    }
    free(tn_stacks);
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

static inline f32 __uint_as_float(u32 a) {
    f32 f;
    memcpy(&f, &a, 4);
    return f;
}
static inline f32 __int_as_float(int a) {
    return __uint_as_float((u32)a);
}
static inline u32 __float_as_uint(f32 a) {
    u32 w;
    memcpy(&w, &a, 4);
    return w;
}
static inline f64 __longlong_as_double(i64 a) {
    f64 f;
    memcpy(&f, &a, 8);
    return f;
}
static inline u32 __umulhi(u32 a, u32 b) {
    return (u32)((u64)a * b >> 32);
}
static inline f32 __fmul_rn(f32 a, f32 b) {
    return a * b;
}
static inline f64 __dmul_rn(f64 a, f64 b) {
    return a * b;
}
static inline f32 rsqrtf(f32 a) {
    return 1 / sqrtf(a);
}
static inline f64 rsqrt(f64 a) {
    return 1 / sqrt(a);
}

/* What follows stands in for files of src/cuda/device. */
namespace tn {

static inline f32 ex2_approx(f32 a) {
    return exp2f(a);
}
static inline f32 lg2_approx(f32 a) {
    return log2f(a);
}
static inline f32 rcp_approx(f32 a) {
    return 1 / a;
}
static inline f32 sqrt_approx(f32 a) {
    return sqrtf(a);
}
static inline f32 max_nan(f32 a, f32 b) {
    return a > b || a != a ? a : b;
}
static inline f32 min_nan(f32 a, f32 b) {
    return a < b || a != a ? a : b;
}
static inline f32 f16_to_f32(u16 h) {
    u32 s = (u32)(h & 0x8000) << 16, m = h & 0x7fff, b = (m << 13) + (112u << 23);
    if (m >= 0x7c00)
        b += 112u << 23;
    else if (m < 0x400)
        b = __float_as_uint(__uint_as_float(m << 13 | 113u << 23) - 0x1p-14f);
    return __uint_as_float(b | s);
}
static inline u16 f32_to_f16(f32 f) {
    u32 b = __float_as_uint(f), s = b >> 16 & 0x8000, m = b & 0x7fffffff, h;
    if (m > 0x7f800000)
        h = 0x7e00 | (m >> 13 & 0x3ff);
    else if (m >= 0x47800000)
        h = 0x7c00;
    else if (m < 0x38800000)
        h = __float_as_uint(__uint_as_float(m) + 0.5f) - __float_as_uint(0.5f);
    else
        h = (m + 0xfff + (m >> 13 & 1) - (112u << 23)) >> 13;
    return (u16)(h | s);
}
static inline u16 f32_to_bf16(f32 f) {
    u32 b = __float_as_uint(f);
    return (u16)(f != f ? b >> 16 | 0x40 : (b + 0x7fff + (b >> 16 & 1)) >> 16);
}
static inline u32 f32_to_f16x2(f32 low, f32 high) {
    return f32_to_f16(low) | (u32)f32_to_f16(high) << 16;
}
static inline u32 f32_to_bf16x2(f32 low, f32 high) {
    return f32_to_bf16(low) | (u32)f32_to_bf16(high) << 16;
}
static inline void hide(u32 &) {
}
static inline void hide(i64 &) {
}
static inline void wait_for_last() {
}

/* ---- memory: misaligned vectors are what a GPU would stop at ----------------------------------------------------- */

struct words {
    u32 w[4];
};
struct half_words {
    u32 w[2];
};
template <class W> static inline W tn_load_if(const void *p, bool there) {
    W w = {};
    if (there && (size_t)p % sizeof w) abort();
    if (there) memcpy(&w, p, sizeof w);
    return w;
}
template <class W> static inline void tn_store(void *p, const W &w) {
    if ((size_t)p % sizeof w) abort();
    memcpy(p, &w, sizeof w);
}
static inline words load_words_if(const void *p, bool there) {
    return tn_load_if<words>(p, there);
}
static inline words load_shared_if(const void *p, bool there) {
    return tn_load_if<words>(p, there);
}
static inline half_words load_half_words_if(const void *p, bool there) {
    return tn_load_if<half_words>(p, there);
}
static inline void store_words(void *p, const words &w) {
    tn_store(p, w);
}
static inline void store_half_words(void *p, const half_words &w) {
    tn_store(p, w);
}

/* A barrier of bulk copies: the lowest bit is the phase; above it the bytes that are still to come. */
#define TN_BULK true
static inline words *dynamic_shared_128() {
    alignas(128) static char dynamic[227 << 10];
    return (words *)dynamic;
}
static inline void bulk_prepare(u64 *barriers, int count) {
    for (int k = 0; k < count; k++) barriers[k] = 0;
}
static inline void bulk_expect(u64 *barrier, u32 bytes) {
    *barrier += 2ull * bytes;
}
static inline void bulk_fetch(void *to, const void *from, u32 bytes, u64 *barrier) {
    if (((size_t)to | (size_t)from | bytes) % 16 || *barrier < 2ull * bytes) abort();
    memcpy(to, from, bytes);
    *barrier -= 2ull * bytes;
    if (*barrier < 2) *barrier ^= 1;
}
static inline void bulk_wait(u64 *barrier, u32 phase) {
    while ((*barrier & 1) == phase) tn_yield();
}

} // namespace tn
