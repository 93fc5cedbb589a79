/* A GPU's threads on the CPU, one block after the other, to run the kernels of `tenon new` where there is no GPU. Each
 * thread of a block is a coroutine that runs until it waits for the others. */
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ucontext.h>

#define __global__
#define __device__
#define __shared__ static
#define __restrict__
#define __launch_bounds__(...)

struct dim3 {
    unsigned x, y, z;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) {
    return {x, y, z, w};
}
static dim3 threadIdx, blockIdx, blockDim, gridDim;

enum { MOST_THREADS = 1024, STACK = 65536 };
static ucontext_t back, contexts[MOST_THREADS];
static char *stacks;
static bool is_done[MOST_THREADS];
static unsigned long long slots[MOST_THREADS];
static unsigned n_threads, current, waiting[33], generation[33]; /* of the 32 warps, and of the block */
static void (*body)();

static void set_place(unsigned thread) {
    current = thread;
    threadIdx = {thread % blockDim.x, thread / blockDim.x % blockDim.y, thread / blockDim.x / blockDim.y};
}
static void yield() {
    const unsigned me = current;
    swapcontext(&contexts[me], &back);
}
/* Until all of `members` threads have come here. */
static void meet(unsigned group, unsigned members) {
    const unsigned turn = generation[group];
    if (++waiting[group] == members) {
        waiting[group] = 0;
        generation[group]++;
    }
    while (generation[group] == turn) yield();
}
static inline void __syncthreads() {
    meet(32, n_threads);
}

template <class T> static T exchange(T value, unsigned from, bool is_valid) {
    memcpy(&slots[current], &value, sizeof value);
    meet(current / 32, 32);
    T other = value;
    if (is_valid) memcpy(&other, &slots[current / 32 * 32 + from], sizeof other);
    meet(current / 32, 32);
    return other;
}
template <class T> static T __shfl_xor_sync(unsigned, T value, unsigned lane) {
    return exchange(value, current % 32 ^ lane, true);
}
template <class T> static T __shfl_up_sync(unsigned, T value, unsigned by) {
    return exchange(value, current % 32 - by, current % 32 >= by);
}
template <class T> static T __shfl_sync(unsigned, T value, unsigned lane) {
    return exchange(value, lane, true);
}
template <class T> static void __stcs(T *to, T value) {
    if ((uintptr_t)to % sizeof(T)) abort(); /* as a GPU would */
    *to = value;
}

static void start() {
    body();
    is_done[current] = true;
    swapcontext(&contexts[current], &back);
}

/* Every thread of every block. Shared memory begins each block with what the last one left there. */
static void run(dim3 grid, dim3 block, void (*kernel)()) {
    gridDim = grid, blockDim = block, body = kernel;
    n_threads = block.x * block.y * block.z;
    if (!stacks) stacks = (char *)malloc((size_t)MOST_THREADS * STACK);
    for (unsigned b = 0; b < grid.x * grid.y * grid.z; b++) {
        blockIdx = {b % grid.x, b / grid.x % grid.y, b / grid.x / grid.y};
        memset(waiting, 0, sizeof waiting);
        for (unsigned i = 0; i < n_threads; i++) {
            is_done[i] = false;
            getcontext(&contexts[i]);
            contexts[i].uc_stack.ss_sp = stacks + (size_t)i * STACK;
            contexts[i].uc_stack.ss_size = STACK;
            contexts[i].uc_link = &back;
            makecontext(&contexts[i], start, 0);
        }
        for (unsigned left = n_threads; left;) {
            left = 0;
            for (unsigned i = 0; i < n_threads; i++) {
                if (is_done[i]) continue;
                set_place(i);
                swapcontext(&back, &contexts[i]);
                left += !is_done[i];
            }
        }
    }
}

namespace tn {
template <class A> static A silu(A a) {
    return a / (1 + std::exp(-a));
}
} // namespace tn

/* Two bytes that turn into a float and back, by rounding to nearest: as tn::bf16. */
struct bf16 {
    uint16_t bits;
    bf16() = default;
    bf16(float a) {
        uint32_t u;
        memcpy(&u, &a, 4);
        bits = (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
    }
    operator float() const {
        const uint32_t u = (uint32_t)bits << 16;
        float a;
        memcpy(&a, &u, 4);
        return a;
    }
};

/* Memory that ends where the last element does, from an odd place on if `offset` is one; bytes of 0xff. */
template <class T> static T *memory(size_t n, size_t offset) {
    char *made = (char *)aligned_alloc(64, (n + offset + 64) * sizeof(T) / 64 * 64 + 128);
    memset(made, 0xff, (n + offset) * sizeof(T));
    return (T *)made + offset;
}
