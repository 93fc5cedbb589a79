/* Kernels of formulas on the CPU, to test what they do where there is no GPU: each thread of a block, or of a cluster
 * of blocks, is a coroutine that runs until it waits for the others. Shared memory is what the library has for its only
 * thread; blocks of a cluster take turns with it. This stands in for CUDA's own words, and for three files of
 * src/cuda/device: instructions.cuh, bulk.cuh and cluster.cuh, which find their guards defined. */
#include <link.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#define TNI_CUDA_INSTRUCTIONS
#define TNI_CUDA_BULK
#define TNI_CUDA_CLUSTER

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
#define __shared__ static thread_local
#define __global__
#define __launch_bounds__(...)

/* ---- threads ----------------------------------------------------------------------------------------------------- */

static struct { u32 x; } threadIdx, blockIdx;

enum { TN_MOST_THREADS = 1024, TN_MOST_BLOCKS = 16, TN_STACK = 65536 };
static unsigned tn_threads, tn_blocks; /* of a block, of a cluster */
static unsigned tn_block;              /* which runs, of the cluster */
static ucontext_t tn_main;
static void (*tn_kernel)(const void *);
static const void *tn_arguments;

/* Of each block: its threads, those that have not ended, and how many have arrived at which barrier. */
static struct tn_group {
    ucontext_t contexts[TN_MOST_THREADS];
    bool done[TN_MOST_THREADS];
    unsigned long long slots[TN_MOST_THREADS];
    unsigned running, arrived, generation;
    char *stacks, *shared;
} tn_groups[TN_MOST_BLOCKS];

static void tn_let_go() {
    tn_group &g = tn_groups[tn_block];
    if (g.arrived < g.running) return;
    g.arrived = 0;
    g.generation++;
}
static void tn_start() {
    tn_group &g = tn_groups[tn_block];
    tn_kernel(tn_arguments);
    g.done[threadIdx.x] = true;
    g.running--;
    if (g.running) tn_let_go();
    swapcontext(&g.contexts[threadIdx.x], &tn_main);
}

static inline void tn_yield() {
    swapcontext(&tn_groups[tn_block].contexts[threadIdx.x], &tn_main);
}

/* Until every thread that has not ended is here. */
static inline void __syncthreads() {
    tn_group &g = tn_groups[tn_block];
    unsigned generation = g.generation;
    g.arrived++;
    tn_let_go();
    while (generation == g.generation) tn_yield();
}

/* Both halves of an exchange lie between waits, so that nobody overwrites what another has yet to read. */
template <class T> static inline T __shfl_sync(u32, T a, unsigned lane, int = 32) {
    unsigned long long *slots = tn_groups[tn_block].slots;
    memcpy(&slots[threadIdx.x], &a, sizeof a);
    __syncthreads();
    memcpy(&a, &slots[threadIdx.x / 32 * 32 + lane % 32], sizeof a);
    __syncthreads();
    return a;
}
template <class T> static inline T __shfl_xor_sync(u32 mask, T a, unsigned lane, int = 32) {
    return __shfl_sync(mask, a, threadIdx.x % 32 ^ lane);
}

/* ---- clusters ---------------------------------------------------------------------------------------------------- */

static thread_local char tn_touched;
static char *tn_shared; /* where it begins */
static size_t tn_shared_bytes;
static int tn_find_shared(struct dl_phdr_info *info, size_t, void *) {
    char *begin = (char *)info->dlpi_tls_data;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const size_t bytes = info->dlpi_phdr[i].p_memsz;
        if (info->dlpi_phdr[i].p_type != PT_TLS || &tn_touched < begin || &tn_touched >= begin + bytes) continue;
        tn_shared = begin;
        tn_shared_bytes = bytes;
        return 1;
    }
    return 0;
}
static unsigned tn_cluster_index;
static unsigned long long tn_cluster_arrived; /* threads, of all turns */

namespace tn {
static inline u32 cluster_rank() {
    return tn_block;
}
static inline u32 cluster_index() {
    return tn_cluster_index;
}
static inline u32 cluster_blocks() {
    return tn_blocks;
}
/* A thread that arrives twice without a wait, or waits without having arrived, would hang a GPU. */
static unsigned long long tn_turns[TN_MOST_BLOCKS][TN_MOST_THREADS];
static inline void cluster_arrive() {
    tn_turns[tn_block][threadIdx.x]++;
    tn_cluster_arrived++;
}
static inline void cluster_begin() {
    cluster_arrive();
}
static inline void cluster_wait() {
    while (tn_cluster_arrived < tn_turns[tn_block][threadIdx.x] * tn_threads * tn_blocks) tn_yield();
}
template <class A> static inline void store_cluster(A *shared, u32 rank, A a) {
    const size_t at = (size_t)((char *)shared - tn_shared);
    if (at >= tn_shared_bytes || rank >= tn_blocks) abort();
    memcpy(rank == tn_block ? (char *)shared : tn_groups[rank].shared + at, &a, sizeof a);
}
} // namespace tn

static void tn_run_cluster() {
    unsigned left = tn_blocks;
    tn_cluster_arrived = 0;
    for (tn_block = 0; tn_block < tn_blocks; tn_block++) {
        tn_group &g = tn_groups[tn_block];
        for (unsigned i = 0; i < tn_threads; i++) {
            g.done[i] = false;
            tn_turns[tn_block][i] = 0;
            getcontext(&g.contexts[i]);
            g.contexts[i].uc_stack.ss_sp = g.stacks + (size_t)i * TN_STACK;
            g.contexts[i].uc_stack.ss_size = TN_STACK;
            g.contexts[i].uc_link = &tn_main;
            makecontext(&g.contexts[i], tn_start, 0);
        }
        g.running = tn_threads;
        g.arrived = 0;
    }
    while (left) {
        for (tn_block = 0; tn_block < tn_blocks; tn_block++) {
            tn_group &g = tn_groups[tn_block];
            if (!g.running) continue;
            if (tn_blocks > 1) memcpy(tn_shared, g.shared, tn_shared_bytes);
            blockIdx.x = tn_cluster_index * tn_blocks + tn_block;
            for (unsigned i = 0; i < tn_threads; i++) {
                if (g.done[i]) continue;
                threadIdx.x = i;
                swapcontext(&tn_main, &g.contexts[i]);
            }
            if (tn_blocks > 1) memcpy(g.shared, tn_shared, tn_shared_bytes);
            left -= !g.running;
        }
    }
}

extern "C" void tn_emulate(void (*kernel)(const void *), const void *arguments, unsigned grid, unsigned block,
                           unsigned cluster) {
    tn_kernel = kernel;
    tn_arguments = arguments;
    tn_threads = block;
    tn_blocks = cluster > 1 ? cluster : 1;
    tn_touched = 1;
    if (!dl_iterate_phdr(tn_find_shared, NULL)) abort();
    for (unsigned i = 0; i < tn_blocks; i++) {
        tn_groups[i].stacks = (char *)malloc((size_t)block * TN_STACK);
        tn_groups[i].shared = (char *)calloc(1, tn_shared_bytes);
    }
    for (tn_cluster_index = 0; tn_cluster_index < grid / tn_blocks; tn_cluster_index++) tn_run_cluster();
    for (unsigned i = 0; i < tn_blocks; i++) {
        free(tn_groups[i].stacks);
        free(tn_groups[i].shared);
    }
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
/* To 2e-3, then by Newton's method. */
static inline f64 erfinv(f64 y) {
    f64 l = log1p(-y * y), b = 2 / (M_PI * 0.147) + 0.5 * l, x = copysign(sqrt(sqrt(b * b - l / 0.147) - b), y);
    for (int k = 0; k < 5; k++) x -= (erf(x) - y) * 0.886226925452758 * exp(x * x);
    return x;
}
static inline f32 erfinvf(f32 y) {
    return (f32)erfinv((f64)y);
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
static inline u32 load_word_if(const void *p, bool there) {
    return tn_load_if<u32>(p, there);
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
    alignas(128) __shared__ char dynamic[227 << 10];
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
