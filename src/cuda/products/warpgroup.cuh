/* Hopper's tensor cores (sm_90a): boxes of tensors come into shared memory by themselves, and four warps multiply what
 * is there. emulate.h stands in for this file. */
#ifndef TNI_CUDA_WARPGROUP
#define TNI_CUDA_WARPGROUP

#include "cuda/device/cluster.cuh"
#include "cuda/device/types.cuh"
#include "eight_bits.cuh"

namespace tn {

/* CUDA's CUtensorMap: a tensor of five dimensions in memory, and the box that is fetched of it. */
struct alignas(64) tensor_map {
    u64 words[16];
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define TN_WARPGROUP true

TN_DEVICE u32 shared_address(const void *p) {
    return (u32)__cvta_generic_to_shared(p);
}

/* ---- barriers: by their addresses in shared memory --------------------------------------------------------------- */

/* A barrier's phase ends when `arrivals` threads have arrived and all bytes that were announced are there. */
TN_DEVICE void barrier_prepare(u32 barrier, u32 arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
/* Those of this thread are prepared, also for what fetches boxes. */
TN_DEVICE void barriers_prepared() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async;" ::: "memory");
}
/* What block `rank` of the cluster has at this address. */
TN_DEVICE u32 address_at(u32 shared, u32 rank) {
    u32 there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared), "r"(rank));
    return there;
}
/* At the barrier of block `rank` of the cluster that is where this block has this one. */
TN_DEVICE void barrier_arrive_at(u32 barrier, u32 rank) {
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(address_at(barrier, rank)) : "memory");
}
/* Arrives, and announces bytes. */
TN_DEVICE void barrier_expect(u32 barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
/* Until the phase of this parity has ended: 0 the first time, then 1, 0, … */
TN_DEVICE void barrier_wait(u32 barrier, u32 parity) {
    asm volatile("{\n\t"
                 ".reg .pred there;\n\t"
                 "again:\n\t"
                 "mbarrier.try_wait.parity.shared::cta.b64 there, [%0], %1;\n\t"
                 "@!there bra again;\n\t"
                 "}" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}

/* A box, from these coordinates on, to a multiple of 1024 bytes. What lies outside of the tensor is 0. */
TN_DEVICE void fetch_box(u32 to, const tensor_map *map, const int (&at)[5], u32 barrier) {
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], "
                 "[%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(to),
                 "l"(map), "r"(barrier), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(at[4])
                 : "memory");
}

/* The same for all blocks of the cluster in `blocks`, a bit each: the box and its bytes come to the same places of each
 * block's shared memory. */
TN_DEVICE void fetch_box_for(u32 to, const tensor_map *map, const int (&at)[5], u32 barrier, u32 blocks) {
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
                 "[%1, {%3, %4, %5, %6, %7}], [%2], %8;" ::"r"(to),
                 "l"(map), "r"(barrier), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(at[4]),
                 "h"((unsigned short)blocks)
                 : "memory");
}

/* Four numbers to where block `rank` of the cluster has this address; and from this block's. */
TN_DEVICE void send_four(u32 shared, u32 rank, const f32 *a) {
    asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(address_at(shared, rank)), "f"(a[0]),
                 "f"(a[1]), "f"(a[2]), "f"(a[3])
                 : "memory");
}
TN_DEVICE void load_four(u32 shared, f32 (&a)[4]) {
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(a[0]), "=f"(a[1]), "=f"(a[2]), "=f"(a[3])
                 : "r"(shared)
                 : "memory");
}

/* 16 bytes become 0; and when those of THREADS threads have, products see it. */
TN_DEVICE void clear_piece(u32 shared) {
    asm volatile("st.shared.v4.u32 [%0], {%1, %1, %1, %1};" ::"r"(shared), "r"(0) : "memory");
}
template <int THREADS> TN_DEVICE void cleared() {
    asm volatile("fence.proxy.async;" ::: "memory");
    asm volatile("bar.sync 1, %0;" ::"n"(THREADS) : "memory");
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

template <int REGISTERS> TN_DEVICE void take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}
template <int REGISTERS> TN_DEVICE void give_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

/* Before the first product of a group, and behind the last one. */
TN_DEVICE void products_begin() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
TN_DEVICE void products_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/* Until all groups but the last GROUPS ones are done. */
template <int GROUPS> TN_DEVICE void products_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(GROUPS) : "memory");
}

/* kind: "+f" or "+r" */
#define TN_SUMS_8(kind, i)                                                                                        \
    kind(sums[i]), kind(sums[i + 1]), kind(sums[i + 2]), kind(sums[i + 3]), kind(sums[i + 4]), kind(sums[i + 5]), \
        kind(sums[i + 6]), kind(sums[i + 7])
#define TN_SUMS_32(kind, i) TN_SUMS_8(kind, i), TN_SUMS_8(kind, i + 8), TN_SUMS_8(kind, i + 16), TN_SUMS_8(kind, i + 24)
#define TN_SUMS_64(kind, i) TN_SUMS_32(kind, i), TN_SUMS_32(kind, i + 32)
#define TN_SUMS_128(kind, i) TN_SUMS_64(kind, i), TN_SUMS_64(kind, i + 64)

#define TN_WORDS_32                                                                                                  \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, " \
    "%24, %25, %26, %27, %28, %29, %30, %31"
#define TN_WORDS_64                                                                                                 \
    TN_WORDS_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, " \
                "%51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define TN_WORDS_128                                                                                                \
    TN_WORDS_64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, " \
                "%83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, " \
                "%102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, "  \
                "%118, %119, %120, %121, %122, %123, %124, %125, %126, %127"

/* sums (64, COLS) += a (64, 16) * b (16, COLS), both in shared memory, where `a` and `b` say (see matrix_at). A_TURNED:
 * dense across k. Thread t of the four warps has, with g = t / 4 % 8 + t / 32 * 16 and c = 2 * (t % 4), for every 8
 * columns: (g, c), (g, c + 1), (g + 8, c), (g + 8, c + 1). A thread has COLS / 2 sums. */
#define TN_MULTIPLY(T, cols, count, A, B, A_TURN, B_TURN)                                                        \
    template <bool A_TURNED, bool B_TURNED> TN_DEVICE void multiply_shared(T, f32(&sums)[count], u64 a, u64 b) { \
        asm volatile("wgmma.mma_async.sync.aligned.m64n" #cols "k16.f32." #T "." #T " {" TN_WORDS_##count        \
                     "}, %" #A ", %" #B ", 1, 1, 1, %" #A_TURN ", %" #B_TURN ";"                                 \
                     : TN_SUMS_##count("+f", 0)                                                                  \
                     : "l"(a), "l"(b), "n"((int)A_TURNED), "n"((int)B_TURNED));                                  \
    }
#define TN_MULTIPLY_ALL(T)                  \
    TN_MULTIPLY(T, 64, 32, 32, 33, 34, 35)  \
    TN_MULTIPLY(T, 128, 64, 64, 65, 66, 67) \
    TN_MULTIPLY(T, 256, 128, 128, 129, 130, 131)
TN_MULTIPLY_ALL(f16)
TN_MULTIPLY_ALL(bf16)

/* The same of 8-bit numbers, a (64, 32) and b (32, COLS), both dense along k. ADD: to the sums; else they begin
 * here. */
#define TN_MULTIPLY_BYTES(T, S, kind, types, cols, count, A, B, D, more)                          \
    template <bool ADD> TN_DEVICE void multiply_bytes(T, S(&sums)[count], u64 a, u64 b) {         \
        asm volatile("{\n\t.reg .pred add;\n\tsetp.ne.b32 add, %" #D ", 0;\n\t"                   \
                     "wgmma.mma_async.sync.aligned.m64n" #cols "k32." types " {" TN_WORDS_##count \
                     "}, %" #A ", %" #B ", add" more ";\n\t}"                                     \
                     : TN_SUMS_##count(kind, 0)                                                   \
                     : "l"(a), "l"(b), "n"((int)ADD));                                            \
    }
TN_MULTIPLY_BYTES(of_i8, int, "+r", "s32.s8.s8", 128, 64, 64, 65, 66, "")
TN_MULTIPLY_BYTES(of_i8, int, "+r", "s32.s8.s8", 256, 128, 128, 129, 130, "")
TN_MULTIPLY_BYTES(of_e4m3, f32, "+f", "f32.e4m3.e4m3", 128, 64, 64, 65, 66, ", 1, 1")
/* The same where a is in registers: each warp has 16 of its rows, as multiply_matrices takes them. They must stay as
 * they are until the product is done. */
#define TN_MULTIPLY_HELD(T, cols, count, A0, A1, A2, A3, B, TURN)                                          \
    template <bool B_TURNED> TN_DEVICE void multiply_held(T, f32(&sums)[count], const u32(&a)[4], u64 b) { \
        asm volatile("wgmma.mma_async.sync.aligned.m64n" #cols "k16.f32." #T "." #T " {" TN_WORDS_##count  \
                     "}, {%" #A0 ", %" #A1 ", %" #A2 ", %" #A3 "}, %" #B ", 1, 1, 1, %" #TURN ";"          \
                     : TN_SUMS_##count("+f", 0)                                                            \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"((int)B_TURNED));            \
    }
TN_MULTIPLY_HELD(f16, 64, 32, 32, 33, 34, 35, 36, 37)
TN_MULTIPLY_HELD(bf16, 64, 32, 32, 33, 34, 35, 36, 37)
TN_MULTIPLY_HELD(f16, 128, 64, 64, 65, 66, 67, 68, 69)
TN_MULTIPLY_HELD(bf16, 128, 64, 64, 65, 66, 67, 68, 69)
#else
#define TN_WARPGROUP false
TN_DEVICE u32 shared_address(const void *) {
    return 0;
}
TN_DEVICE void barrier_prepare(u32, u32) {
}
TN_DEVICE void barriers_prepared() {
}
TN_DEVICE void barrier_arrive_at(u32, u32) {
}
TN_DEVICE void barrier_expect(u32, u32) {
}
TN_DEVICE void barrier_wait(u32, u32) {
}
TN_DEVICE void fetch_box(u32, const tensor_map *, const int (&)[5], u32) {
}
TN_DEVICE void fetch_box_for(u32, const tensor_map *, const int (&)[5], u32, u32) {
}
TN_DEVICE void send_four(u32, u32, const f32 *) {
}
TN_DEVICE void load_four(u32, f32 (&)[4]) {
}
TN_DEVICE void clear_piece(u32) {
}
template <int> TN_DEVICE void cleared() {
}
template <int> TN_DEVICE void take_registers() {
}
template <int> TN_DEVICE void give_registers() {
}
TN_DEVICE void products_begin() {
}
TN_DEVICE void products_commit() {
}
template <int> TN_DEVICE void products_wait() {
}
template <bool, bool, class T, int N> TN_DEVICE void multiply_shared(T, f32 (&)[N], u64, u64) {
}
template <bool, class T, class S, int N> TN_DEVICE void multiply_bytes(T, S (&)[N], u64, u64) {
}
template <bool, class T, int N> TN_DEVICE void multiply_held(T, f32 (&)[N], const u32 (&)[4], u64) {
}
#endif

/* Where a matrix for multiply_shared lies: lines of 128 bytes, whose pieces of 16 bytes have changed places as a box
 * does it; 8 lines below each other are 1024 bytes on. Turned: 64 numbers across k are a line, and the next 64 `across`
 * bytes on. */
TN_DEVICE u64 matrix_at(u32 address, u32 across) {
    return (u64)(address >> 4 & 0x3fff) | (u64)(across >> 4) << 16 | (u64)(1024 >> 4) << 32 | 1ull << 62;
}
/* The one that is some bytes on: addresses are below 2^18, so nothing is carried. */
TN_DEVICE u64 matrix_on(u64 at, u32 bytes) {
    return at + (bytes >> 4);
}

} // namespace tn

#endif
