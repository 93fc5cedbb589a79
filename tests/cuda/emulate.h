/* Kernels on the CPU, to test what they do where there is no GPU: each thread of a block, or of a cluster of blocks, is
 * a coroutine that runs until it waits for the others. Shared memory is what the library has for its only thread;
 * blocks of a cluster take turns with it. This stands in for CUDA's own words, and for these files, which find their
 * guards defined: instructions.cuh, async_copy.cuh, bulk.cuh and cluster.cuh of src/cuda/device. emulate_products.h has
 * what stands in for those of src/cuda/products. */
#include <link.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TNI_CUDA_INSTRUCTIONS
#define TNI_CUDA_ASYNC_COPY
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
#define __device__
#define __forceinline__
#define __noinline__
#define __launch_bounds__(...)

template <class A> static inline A min(A a, A b) {
    return b < a ? b : a;
}
template <class A> static inline A max(A a, A b) {
    return a < b ? b : a;
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */

static struct { u32 x; } threadIdx, blockIdx, blockDim, gridDim;

enum { TN_MOST_THREADS = 1024, TN_MOST_BLOCKS = 32, TN_STACK = 65536 };
static unsigned tn_threads, tn_blocks; /* of a block, of a cluster */
static unsigned tn_block;              /* which runs, of the cluster */
static void *tn_main;                  /* the stack of who runs them */
static void (*tn_kernel)(const void *);
static const void *tn_arguments;

/* Of each block: its threads, those that have not ended, and how many have arrived at which barrier. */
static struct tn_group {
    void *places[TN_MOST_THREADS]; /* the stack where each goes on, once it has begun */
    bool done[TN_MOST_THREADS], votes[TN_MOST_THREADS];
    unsigned running, arrived, generation;
    char *stacks, *shared;
} tn_groups[TN_MOST_BLOCKS];

static struct tn_warp {
    unsigned long long slots[2][32];
    unsigned running, arrived, generation;
} tn_warps[TN_MOST_BLOCKS][TN_MOST_THREADS / 32];
template <class G> static void tn_let_go(G &g) {
    if (g.arrived < g.running) return;
    g.arrived = 0;
    g.generation++;
}
template <class G> static void tn_end(G &g) {
    g.running--;
    if (g.running) tn_let_go(g);
}
/* Goes on where `to` was left, and leaves here in `from`. Unlike swapcontext it asks the system for nothing: a stack
 * has the registers that a call keeps, and where to return to. */
extern "C" __attribute__((visibility("hidden"))) void tn_switch(void **from, void *to);
#if defined(__x86_64__)
enum { TN_SAVED = 8, TN_RETURN = 6 }; /* words; of these, the address */
asm(".text\n.type tn_switch, @function\ntn_switch:\n"
    "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
    "mov %rsp, (%rdi)\nmov %rsi, %rsp\n"
    "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n");
#else
enum { TN_SAVED = 20, TN_RETURN = 11 };
asm(".text\n.type tn_switch, %function\ntn_switch:\n"
    "sub sp, sp, #160\n"
    "stp x19, x20, [sp]\nstp x21, x22, [sp, #16]\nstp x23, x24, [sp, #32]\nstp x25, x26, [sp, #48]\n"
    "stp x27, x28, [sp, #64]\nstp x29, x30, [sp, #80]\n"
    "stp d8, d9, [sp, #96]\nstp d10, d11, [sp, #112]\nstp d12, d13, [sp, #128]\nstp d14, d15, [sp, #144]\n"
    "mov x9, sp\nstr x9, [x0]\nmov sp, x1\n"
    "ldp x19, x20, [sp]\nldp x21, x22, [sp, #16]\nldp x23, x24, [sp, #32]\nldp x25, x26, [sp, #48]\n"
    "ldp x27, x28, [sp, #64]\nldp x29, x30, [sp, #80]\n"
    "ldp d8, d9, [sp, #96]\nldp d10, d11, [sp, #112]\nldp d12, d13, [sp, #128]\nldp d14, d15, [sp, #144]\n"
    "add sp, sp, #160\nret\n");
#endif

static void tn_yield() {
    tn_switch(&tn_groups[tn_block].places[threadIdx.x], tn_main);
}

/* One after the other, the threads of all blocks that have this place. */
static void tn_start() {
    for (;;) {
        tn_group &g = tn_groups[tn_block];
        tn_kernel(tn_arguments);
        g.done[threadIdx.x] = true;
        tn_end(g);
        tn_end(tn_warps[tn_block][threadIdx.x / 32]);
        tn_yield();
    }
}

/* Until thread i waits or ends. */
static void tn_run_thread(tn_group &g, unsigned i) {
    if (!g.stacks) g.stacks = (char *)malloc((size_t)TN_MOST_THREADS * TN_STACK);
    if (!g.places[i]) { /* as if it had been left just before tn_start */
        void **saved = (void **)(((size_t)g.stacks & ~(size_t)63) + (size_t)(i + 1) * TN_STACK - 64) - TN_SAVED;
        saved[TN_RETURN] = (void *)tn_start;
        g.places[i] = saved;
    }
    tn_switch(&tn_main, g.places[i]);
}
static __attribute__((destructor)) void tn_free_stacks() {
    for (tn_group &g : tn_groups) free(g.stacks);
}

/* Until every thread of the block, or of the warp, that has not ended is here. */
template <class G> static inline void tn_meet(G &g) {
    const unsigned generation = g.generation;
    g.arrived++;
    tn_let_go(g);
    while (generation == g.generation) tn_yield();
}
static inline void __syncthreads() {
    tn_meet(tn_groups[tn_block]);
}
static inline void __syncwarp(u32 = 0xffffffffu) {
    tn_meet(tn_warps[tn_block][threadIdx.x / 32]);
}

/* What each thread of the warp gives: 32 slots, which stay as they are while others read them. Two generations of slots
 * take turns: who writes the same ones again has waited since, and so have all that read them. */
static inline const unsigned long long *tn_exchange(const void *given, size_t bytes) {
    const unsigned lane = threadIdx.x % 32;
    tn_warp &w = tn_warps[tn_block][threadIdx.x / 32];
    unsigned long long *slots = w.slots[w.generation % 2];
    memcpy(&slots[lane], given, bytes);
    tn_meet(w);
    return slots;
}
template <class T> static inline T __shfl_sync(u32, T a, unsigned lane, unsigned width = 32) {
    const unsigned long long *slots = tn_exchange(&a, sizeof a);
    memcpy(&a, &slots[threadIdx.x % 32 / width * width + lane % width], sizeof a);
    return a;
}
template <class T> static inline T __shfl_xor_sync(u32 mask, T a, unsigned lane, int = 32) {
    return __shfl_sync(mask, a, threadIdx.x % 32 ^ lane);
}
template <class T> static inline T __shfl_up_sync(u32 mask, T a, unsigned by, unsigned width = 32) {
    const unsigned lane = threadIdx.x % width;
    return __shfl_sync(mask, a, lane < by ? lane : lane - by, width);
}

static inline bool __all_sync(u32, bool a) {
    const unsigned long long yes = a, *slots = tn_exchange(&yes, sizeof yes);
    bool all = true;
    for (unsigned lane = 0; lane < 32; lane++) all &= slots[lane] != 0;
    return all;
}
static inline bool __any_sync(u32, bool a) {
    const unsigned long long yes = a, *slots = tn_exchange(&yes, sizeof yes);
    bool any = false;
    for (unsigned lane = 0; lane < 32; lane++) any |= slots[lane] != 0;
    return any;
}

/* A bit for each lane, and for each that has the same. */
static inline u32 __ballot_sync(u32, bool a) {
    const unsigned long long yes = a, *slots = tn_exchange(&yes, sizeof yes);
    const unsigned running = tn_warps[tn_block][threadIdx.x / 32].running;
    u32 all = 0;
    for (unsigned lane = 0; lane < running; lane++) all |= (u32)(slots[lane] != 0) << lane;
    return all;
}
static inline u32 __match_any_sync(u32, u32 a) {
    const unsigned long long mine = a, *slots = tn_exchange(&mine, sizeof mine);
    const unsigned running = tn_warps[tn_block][threadIdx.x / 32].running;
    u32 alike = 0;
    for (unsigned lane = 0; lane < running; lane++) alike |= (u32)(slots[lane] == mine) << lane;
    return alike;
}

static inline int __syncthreads_count(int yes) {
    tn_group &g = tn_groups[tn_block];
    int count = 0;
    g.votes[threadIdx.x] = yes != 0;
    __syncthreads();
    for (unsigned i = 0; i < tn_threads; i++) count += !g.done[i] && g.votes[i];
    __syncthreads(); /* nobody ends or votes again before all have counted */
    return count;
}
static inline int __syncthreads_or(int yes) {
    return __syncthreads_count(yes) > 0;
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
/* Where block `rank` has what this block has at `shared`. */
static inline char *tn_there(void *shared, u32 rank) {
    const size_t at = (size_t)((char *)shared - tn_shared);
    if (at >= tn_shared_bytes || rank >= tn_blocks) abort();
    return rank == tn_block ? (char *)shared : tn_groups[rank].shared + at;
}
template <class A> static inline void store_cluster(A *shared, u32 rank, A a) {
    memcpy(tn_there(shared, rank), &a, sizeof a);
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
        }
        g.running = tn_threads;
        g.arrived = 0;
        for (unsigned w = 0; w * 32 < tn_threads; w++) {
            tn_warps[tn_block][w].running = min(tn_threads - w * 32, 32u);
            tn_warps[tn_block][w].arrived = 0;
        }
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
                tn_run_thread(g, i);
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
    gridDim.x = grid;
    blockDim.x = block;
    tn_touched = 1;
    if (!dl_iterate_phdr(tn_find_shared, NULL)) abort();
    for (unsigned i = 0; i < tn_blocks; i++) {
        tn_groups[i].shared = (char *)calloc(1, tn_shared_bytes);
    }
    for (tn_cluster_index = 0; tn_cluster_index < grid / tn_blocks; tn_cluster_index++) tn_run_cluster();
    for (unsigned i = 0; i < tn_blocks; i++) free(tn_groups[i].shared);
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
static inline i64 __double_as_longlong(f64 a) {
    i64 w;
    memcpy(&w, &a, 8);
    return w;
}
static inline f64 __longlong_as_double(i64 a) {
    f64 f;
    memcpy(&f, &a, 8);
    return f;
}
static inline f64 __hiloint2double(int high, int low) {
    return __longlong_as_double((i64)((u64)(u32)high << 32 | (u32)low));
}
/* The 32 bits from bit `by` on of the 64 of high and low. */
static inline u32 __funnelshift_r(u32 low, u32 high, u32 by) {
    return (u32)(((u64)high << 32 | low) >> (by & 31));
}
static inline u32 atomicAdd(u32 *p, u32 a) {
    const u32 before = *p;
    *p += a;
    return before;
}
static inline u32 atomicMin(u32 *p, u32 a) {
    const u32 before = *p;
    if (a < before) *p = a;
    return before;
}
static inline u32 atomicExch(u32 *p, u32 a) {
    const u32 before = *p;
    *p = a;
    return before;
}
static inline u32 __umulhi(u32 a, u32 b) {
    return (u32)((u64)a * b >> 32);
}
static inline int __popc(u32 a) {
    return __builtin_popcount(a);
}
static inline int __ffs(int a) {
    return __builtin_ffs(a);
}
static inline f32 __fdividef(f32 a, f32 b) {
    return a / b;
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
template <class A> static inline void hide(A &) {
}
template <class A> static inline void pin(A) {
}
static inline void let_next_begin() {
}
static inline void wait_for_last() {
}
static inline u64 load_relaxed(const u64 *p) {
    return *(const volatile u64 *)p;
}
static inline void store_relaxed(u64 *p, u64 a) {
    *(volatile u64 *)p = a;
}
static inline void rest() {
    tn_yield();
}

/* ---- memory: misaligned vectors are what a GPU would stop at, and what is not a tensor's ------------------------- */

/* The tensors that a test has told of: begin and end of each. */
enum { TN_MOST_TENSORS = 16 };
static const char *tn_tensors[TN_MOST_TENSORS][2];
static int tn_n_tensors;
extern "C" void tn_allow(const char *const (*tensors)[2], int count) {
    memcpy(tn_tensors, tensors, sizeof *tensors * count);
    tn_n_tensors = count;
}
static inline void tn_look(const void *p, size_t bytes) {
    bool good = tn_n_tensors == 0;
    for (int i = 0; i < tn_n_tensors; i++)
        good |= (const char *)p >= tn_tensors[i][0] && (const char *)p + bytes <= tn_tensors[i][1];
    if (!good) abort();
}

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
template <class W> static inline W tn_load_global_if(const void *p, bool there) {
    if (there) tn_look(p, sizeof(W));
    return tn_load_if<W>(p, there);
}
static inline words load_words_if(const void *p, bool there) {
    return tn_load_global_if<words>(p, there);
}
static inline words load_shared(const void *p) {
    return tn_load_if<words>(p, true);
}
static inline words load_shared_if(const void *p, bool there) {
    return tn_load_if<words>(p, there);
}
static inline u32 load_word_if(const void *p, bool there) {
    return tn_load_global_if<u32>(p, there);
}
static inline u32 load_half_if(const void *p, bool there) {
    return tn_load_global_if<u16>(p, there);
}
static inline half_words load_half_words_if(const void *p, bool there) {
    return tn_load_global_if<half_words>(p, there);
}
static inline words load_words_or(const void *p, bool there, const words &other) {
    return there ? load_words_if(p, true) : other;
}
static inline u32 load_word_or(const void *p, bool there, u32 other) {
    return there ? load_word_if(p, true) : other;
}
static inline u32 load_word(const void *p) {
    return load_word_if(p, true);
}
static inline void store_word_if(void *p, bool there, u32 a) {
    if (there) tn_store(p, a);
}
static inline void store_word(void *p, u32 a) {
    tn_store(p, a);
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
static inline words *dynamic_shared() {
    return dynamic_shared_128();
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

/* What a thread sends goes when it waits for that, and not before: what is overwritten too early is wrong then. */
enum { TN_MOST_SENT = 8 };
static struct tn_sent {
    struct {
        void *to;
        const void *from;
        u32 bytes;
    } copies[TN_MOST_SENT];
    int count;
} tn_all_sent[TN_MOST_BLOCKS][TN_MOST_THREADS];

static inline void bulk_written() {
}
static inline void bulk_send(void *to, const void *from, u32 bytes) {
    tn_sent &s = tn_all_sent[tn_block][threadIdx.x];
    if (((size_t)to | (size_t)from | bytes) % 16 || s.count == TN_MOST_SENT) abort();
    s.copies[s.count++] = {to, from, bytes};
}
static inline void bulk_sent() {
    tn_sent &s = tn_all_sent[tn_block][threadIdx.x];
    for (int i = 0; i < s.count; i++) memcpy(s.copies[i].to, s.copies[i].from, s.copies[i].bytes);
    s.count = 0;
}

/* Copies that a thread has asked for happen when it waits for them, and not before. */
struct tn_copy {
    void *to;
    const void *from;
    int bytes, group;
};
enum { TN_MOST_COPIES = 256 };
static struct tn_copies {
    tn_copy copies[TN_MOST_COPIES];
    int count, group; /* that are under way; the group that comes next */
} tn_all_copies[TN_MOST_THREADS];

#define TN_COPY_ASYNC 1
static inline void copy_some_async(words *to, const void *from, int bytes) {
    tn_copies &c = tn_all_copies[threadIdx.x];
    if (((size_t)to | (size_t)from) % 16 || bytes < 0 || bytes > 16 || c.count == TN_MOST_COPIES) abort();
    c.copies[c.count++] = {to, from, bytes, c.group};
}
static inline void copy_async(words *to, const void *from, bool there) {
    copy_some_async(to, from, there ? 16 : 0);
}
static inline void copy_commit() {
    tn_all_copies[threadIdx.x].group++;
}
template <int GROUPS> static inline void copy_wait_for() {
    tn_copies &c = tn_all_copies[threadIdx.x];
    int left = 0;
    for (int i = 0; i < c.count; i++) {
        const tn_copy &one = c.copies[i];
        if (one.group >= c.group - GROUPS) {
            c.copies[left++] = one;
            continue;
        }
        memset(one.to, 0, 16);
        memcpy(one.to, one.from, (size_t)one.bytes);
    }
    c.count = left;
}
static inline void copy_wait() {
    copy_commit();
    copy_wait_for<0>();
}

} // namespace tn

#include "emulate_products.h"
