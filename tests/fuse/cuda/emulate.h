/* Kernels of formulas on the CPU, to test what they do where there is no GPU: each thread of a block is a coroutine that
 * runs until it waits for the others. This stands in for the first part of src/fuse/cuda/emit_cuda_text.c. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#define TN_MACHINE
#define TN_DEVICE static inline
#define TN_CALLED static inline
#define TN_MEMBER inline
#define TN_INF (__builtin_inff())
#define TN_NAN (__builtin_nanf(""))
#define TN_THREAD tn_thread
#define TN_BLOCK tn_block_index
#define TN_SHARED static
#define TN_KERNEL(most) extern "C" void
#define TN_PARAMS(type) const type &p

enum { TN_MOST_THREADS = 1024, TN_STACK = 65536 };
static unsigned tn_thread, tn_block_index, tn_threads;
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
    tn_done[tn_thread] = true;
    tn_running--;
    if (tn_running) tn_let_go();
    swapcontext(&tn_contexts[tn_thread], &tn_main);
}

static inline void tn_yield() {
    swapcontext(&tn_contexts[tn_thread], &tn_main);
}

/* Until every thread that has not ended is here. */
static unsigned tn_arrived, tn_generation;
static void tn_let_go() {
    if (tn_arrived < tn_running) return;
    tn_arrived = 0;
    tn_generation++;
}
static inline void tn_sync() {
    unsigned generation = tn_generation;
    tn_arrived++;
    tn_let_go();
    while (generation == tn_generation) tn_yield();
}

static inline void tn_after() {
}

/* Both halves of an exchange lie between waits, so that nobody overwrites what another has yet to read. */
template <class T> static inline T tn_shuffle(T a, unsigned lane) {
    memcpy(&tn_slots[tn_thread], &a, sizeof a);
    tn_sync();
    memcpy(&a, &tn_slots[tn_thread ^ lane], sizeof a);
    tn_sync();
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
            tn_thread = i;
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
        tn_block_index = i;
        tn_run_block();
    }
    free(tn_stacks);
}

static inline float tn_bits(unsigned a) {
    float f;
    memcpy(&f, &a, 4);
    return f;
}
static inline unsigned tn_word(float a) {
    unsigned w;
    memcpy(&w, &a, 4);
    return w;
}
static inline float tn_ex2(float a) {
    return exp2f(a);
}
static inline float tn_lg2(float a) {
    return log2f(a);
}
static inline float tn_rcp(float a) {
    return 1 / a;
}
static inline unsigned tn_high(unsigned a, unsigned b) {
    return (unsigned)((unsigned long long)a * b >> 32);
}
static inline void tn_opaque(unsigned &) {
}
static inline void tn_opaque(long long &) {
}
static inline float tn_root(float a) {
    return sqrtf(a);
}
static inline float rsqrtf(float a) {
    return 1 / sqrtf(a);
}
static inline double rsqrt(double a) {
    return 1 / sqrt(a);
}
static inline float tn_max(float a, float b) {
    return a > b || a != a ? a : b;
}
static inline float tn_min(float a, float b) {
    return a < b || a != a ? a : b;
}
static inline float tn_from_f16(unsigned short h) {
    unsigned s = (unsigned)(h & 0x8000) << 16, m = h & 0x7fff, b = (m << 13) + (112u << 23);
    if (m >= 0x7c00)
        b += 112u << 23;
    else if (m < 0x400)
        b = tn_word(tn_bits(m << 13 | 113u << 23) - 0x1p-14f);
    return tn_bits(b | s);
}
static inline unsigned short tn_to_f16(float f) {
    unsigned b = tn_word(f), s = b >> 16 & 0x8000, m = b & 0x7fffffff, h;
    if (m > 0x7f800000)
        h = 0x7e00 | (m >> 13 & 0x3ff);
    else if (m >= 0x47800000)
        h = 0x7c00;
    else if (m < 0x38800000)
        h = tn_word(tn_bits(m) + 0.5f) - tn_word(0.5f);
    else
        h = (m + 0xfff + (m >> 13 & 1) - (112u << 23)) >> 13;
    return (unsigned short)(h | s);
}
static inline unsigned short tn_to_bf16(float f) {
    unsigned b = tn_word(f);
    return (unsigned short)(f != f ? b >> 16 | 0x40 : (b + 0x7fff + (b >> 16 & 1)) >> 16);
}
static inline unsigned tn_pair_bf16(float a, float b) {
    return tn_to_bf16(a) | (unsigned)tn_to_bf16(b) << 16;
}
static inline unsigned tn_pair_f16(float a, float b) {
    return tn_to_f16(a) | (unsigned)tn_to_f16(b) << 16;
}
/* A ring's barriers: the lowest bit is the phase; above it the bytes that are still to come. */
#define TN_BULK true
static inline char *tn_ring() {
    alignas(128) static char dynamic[227 << 10];
    return dynamic;
}
static inline void tn_ring_begin(unsigned long long *full, unsigned stages) {
    for (unsigned k = 0; k < stages; k++) full[k] = 0;
}
static inline void tn_expect(unsigned long long *full, unsigned bytes) {
    *full += 2ull * bytes;
}
static inline void tn_bulk(void *to, const void *from, unsigned bytes, unsigned long long *full) {
    if (((size_t)to | (size_t)from | bytes) % 16 || *full < 2ull * bytes) abort();
    memcpy(to, from, bytes);
    *full -= 2ull * bytes;
    if (*full < 2) *full ^= 1;
}
static inline void tn_wait(unsigned long long *barrier, unsigned phase) {
    while ((*barrier & 1) == phase) tn_yield();
}
/* Misaligned vectors are what a GPU would stop at. */
static inline void tn_get4(const void *p, bool there, unsigned *w) {
    if (there && (size_t)p % 16) abort();
    if (there)
        memcpy(w, p, 16);
    else
        memset(w, 0, 16);
}
static inline void tn_near4(const void *p, bool there, unsigned *w) {
    tn_get4(p, there, w);
}
static inline void tn_get2(const void *p, bool there, unsigned *w) {
    if (there && (size_t)p % 8) abort();
    if (there)
        memcpy(w, p, 8);
    else
        memset(w, 0, 8);
}
static inline void tn_put4(void *p, const unsigned *w) {
    if ((size_t)p % 16) abort();
    memcpy(p, w, 16);
}
static inline void tn_put2(void *p, const unsigned *w) {
    if ((size_t)p % 8) abort();
    memcpy(p, w, 8);
}
