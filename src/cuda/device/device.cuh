/* What the kernels share: element types, 16-byte accesses, reductions over lanes, blocks and clusters. Device code only, and
 * no header of CUDA's: nvcc and NVRTC compile it alike. */
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

#define TN_DEVICE static __device__ __forceinline__
#define TN_MEMBER __device__ __forceinline__ /* of a struct, or a specialised template */

/* ---- element types ---------------------------------------------------------------------------------------------------- */

struct f16 {
    u16 bits;
};
struct bf16 {
    u16 bits;
};

/* What a type is computed in. */
template <class T> struct acc_of { typedef float type; };
template <> struct acc_of<double> { typedef double type; };
template <class T> using acc = typename acc_of<T>::type;

TN_DEVICE float widen(f16 a) {
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(a.bits));
    return f;
}
TN_DEVICE float widen(bf16 a) {
    return __uint_as_float((u32)a.bits << 16);
}
TN_DEVICE float widen(float a) {
    return a;
}
TN_DEVICE double widen(double a) {
    return a;
}

TN_DEVICE void narrow(float a, f16 &to) {
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(to.bits) : "f"(a));
}
#if __CUDA_ARCH__ >= 800
TN_DEVICE void narrow(float a, bf16 &to) {
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(to.bits) : "f"(a));
}
#else
TN_DEVICE void narrow(float a, bf16 &to) {
    u32 bits = __float_as_uint(a);
    to.bits = (u16)(a != a ? bits >> 16 | 0x40 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
#endif
TN_DEVICE void narrow(float a, float &to) {
    to = a;
}
TN_DEVICE void narrow(double a, double &to) {
    to = a;
}

/* ---- 16 bytes at a time ------------------------------------------------------------------------------------------------- */

/* VL elements of T in 16 bytes. */
template <class T> struct alignas(16) pack {
    static constexpr int VL = 16 / sizeof(T);
    T v[VL];
};

template <class T> TN_DEVICE bool is_aligned(const T *p) {
    return ((u64)p & 15) == 0;
}

/* 16 bytes, p aligned to them. Loads have no hint: with L1::no_allocate what reads two tensors takes 4 % longer (H200). */
template <class T> TN_DEVICE pack<T> load_pack(const T *p) {
    union {
        u32 w[4];
        pack<T> a;
    } r;
    asm volatile("ld.global.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r.w[0]), "=r"(r.w[1]), "=r"(r.w[2]), "=r"(r.w[3])
                 : "l"(p));
    return r.a;
}

template <class T> TN_DEVICE void store_pack(T *p, const pack<T> &a) {
    union {
        pack<T> a;
        u32 w[4];
    } r;
    r.a = a;
    asm volatile("st.global.L1::no_allocate.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(p), "r"(r.w[0]), "r"(r.w[1]),
                 "r"(r.w[2]), "r"(r.w[3])
                 : "memory");
}

/* 16 bytes as they lie in registers. */
struct words {
    u32 w[4];
};

/* The same where `there` is true, else zeros. No branch: all loads of a loop are under way together. */
TN_DEVICE words load_words_if(const void *p, bool there) {
    words r;
    asm volatile("{\n\t"
                 ".reg .pred t;\n\t"
                 "setp.ne.u32 t, %5, 0;\n\t"
                 "mov.u32 %0, 0;\n\t"
                 "mov.u32 %1, 0;\n\t"
                 "mov.u32 %2, 0;\n\t"
                 "mov.u32 %3, 0;\n\t"
                 "@t ld.global.v4.u32 {%0,%1,%2,%3}, [%4];\n\t"
                 "}"
                 : "=&r"(r.w[0]), "=&r"(r.w[1]), "=&r"(r.w[2]), "=&r"(r.w[3])
                 : "l"(p), "r"((u32)there));
    return r;
}

TN_DEVICE void store_words(void *p, const words &a) {
    asm volatile("st.global.L1::no_allocate.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(p), "r"(a.w[0]), "r"(a.w[1]),
                 "r"(a.w[2]), "r"(a.w[3])
                 : "memory");
}

template <class T> TN_DEVICE words words_of(const pack<T> &a) {
    union {
        pack<T> a;
        words w;
    } r;
    r.a = a;
    return r.w;
}

/* Element i of 16 bytes of T. */
template <class T> TN_DEVICE acc<T> widen_word(const words &a, int i);
template <> TN_MEMBER float widen_word<bf16>(const words &a, int i) {
    return __uint_as_float(i % 2 ? a.w[i / 2] & 0xffff0000u : a.w[i / 2] << 16);
}
template <> TN_MEMBER float widen_word<f16>(const words &a, int i) {
    return widen(f16{(u16)(i % 2 ? a.w[i / 2] >> 16 : a.w[i / 2])});
}
template <> TN_MEMBER float widen_word<float>(const words &a, int i) {
    return __uint_as_float(a.w[i]);
}
template <> TN_MEMBER double widen_word<double>(const words &a, int i) {
    return __hiloint2double((int)a.w[2 * i + 1], (int)a.w[2 * i]);
}

/* The larger, or the smaller, of each of the two numbers that a register holds; a NaN does not win. 16-bit types. */
#if __CUDA_ARCH__ >= 800
#define TN_EXTREME_PAIR(T)                                              \
    TN_DEVICE u32 extreme_pair(T, u32 a, u32 b, bool smallest) {        \
        u32 r;                                                          \
        if (smallest) {                                                 \
            asm("min." #T "x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b)); \
        } else {                                                        \
            asm("max." #T "x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b)); \
        }                                                               \
        return r;                                                       \
    }
TN_EXTREME_PAIR(bf16)
TN_EXTREME_PAIR(f16)
#undef TN_EXTREME_PAIR
#else
template <class T> TN_DEVICE u32 extreme_pair(T, u32 a, u32 b, bool smallest) {
    u32 r = 0;
#pragma unroll
    for (int half = 0; half < 32; half += 16) {
        const float p = widen(T{(u16)(a >> half)}), q = widen(T{(u16)(b >> half)});
        const float most = smallest ? fminf(p, q) : fmaxf(p, q);
        T t;
        narrow(most, t);
        r |= (u32)t.bits << half;
    }
    return r;
}
#endif

/* VL numbers rounded to T: the 16-bit types in pairs. */
template <class T> TN_DEVICE pack<T> narrow_pack(const acc<T> *a) {
    pack<T> r;
#pragma unroll
    for (int i = 0; i < pack<T>::VL; i++) narrow(a[i], r.v[i]);
    return r;
}
#if __CUDA_ARCH__ >= 800
template <> TN_MEMBER pack<f16> narrow_pack<f16>(const float *a) {
    union {
        u32 w[4];
        pack<f16> a;
    } r;
#pragma unroll
    for (int i = 0; i < 4; i++) asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r.w[i]) : "f"(a[2 * i + 1]), "f"(a[2 * i]));
    return r.a;
}
template <> TN_MEMBER pack<bf16> narrow_pack<bf16>(const float *a) {
    union {
        u32 w[4];
        pack<bf16> a;
    } r;
#pragma unroll
    for (int i = 0; i < 4; i++) asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r.w[i]) : "f"(a[2 * i + 1]), "f"(a[2 * i]));
    return r.a;
}
#endif

/* ---- arithmetic in float and double alike ------------------------------------------------------------------------- */

template <class A> TN_DEVICE A infinity();
template <> TN_MEMBER float infinity<float>() {
    return __int_as_float(0x7f800000);
}
template <> TN_MEMBER double infinity<double>() {
    return __longlong_as_double(0x7ff0000000000000ll);
}

/* 2^a: 2 units in the last place; what is below the smallest normal number is 0. */
TN_DEVICE float power_of_2(float a) {
    float r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(a));
    return r;
}
TN_DEVICE double power_of_2(double a) {
    return exp2(a);
}
TN_DEVICE float logarithm(float a) {
    return logf(a);
}
TN_DEVICE double logarithm(double a) {
    return log(a);
}
TN_DEVICE float multiply_add(float a, float b, float c) {
    return fmaf(a, b, c);
}
TN_DEVICE double multiply_add(double a, double b, double c) {
    return fma(a, b, c);
}
/* Never a part of a multiply_add: the same product is the same number wherever it is subtracted. */
TN_DEVICE float rounded_product(float a, float b) {
    return __fmul_rn(a, b);
}
TN_DEVICE double rounded_product(double a, double b) {
    return __dmul_rn(a, b);
}

/* The compiler no longer knows what a is: what follows from it is computed where it is used, and not kept in registers
 * from one turn of a loop to the next. */
TN_DEVICE void hide(int &a) {
    asm volatile("" : "+r"(a));
}
TN_DEVICE void hide(u32 &a) {
    asm volatile("" : "+r"(a));
}
TN_DEVICE void hide(i64 &a) {
    asm volatile("" : "+l"(a));
}
TN_DEVICE void hide(float &a) {
    asm volatile("" : "+f"(a));
}
TN_DEVICE void hide(double &a) {
    asm volatile("" : "+d"(a));
}

/* Computed by here, not later. */
TN_DEVICE void pin(float a) {
    asm volatile("" ::"f"(a));
}
TN_DEVICE void pin(double a) {
    asm volatile("" ::"d"(a));
}

/* ---- reductions ------------------------------------------------------------------------------------------------------------ */

struct take_sum {
    template <class A> static TN_MEMBER A of(A a, A b) {
        return a + b;
    }
};
/* A NaN does not win: kernels that must keep it see it in the sum that follows. */
struct take_max {
    static TN_MEMBER float of(float a, float b) {
        return fmaxf(a, b);
    }
    static TN_MEMBER double of(double a, double b) {
        return fmax(a, b);
    }
};

/* Over groups of LANES neighbouring lanes (a power of 2 up to 32), every lane gets the result; the order is fixed. */
template <class Op, int LANES, class A> TN_DEVICE A reduce_lanes(A a) {
#pragma unroll
    for (int d = LANES / 2; d > 0; d /= 2) a = Op::of(a, __shfl_xor_sync(0xffffffffu, a, d, 32));
    return a;
}

/* Over groups of `lanes` neighbouring lanes, a power of 2 that all threads agree on. */
template <class Op, class A> TN_DEVICE A reduce_some_lanes(A a, int lanes) {
    for (int d = lanes / 2; d > 0; d /= 2) a = Op::of(a, __shfl_xor_sync(0xffffffffu, a, d, 32));
    return a;
}

/* ---- clusters: blocks that see each other's shared memory (sm_90 and later) ------------------------------------------ */

#if __CUDA_ARCH__ >= 900
/* This block's number in its cluster, and the cluster's number; a block without a cluster is one by itself. */
TN_DEVICE u32 cluster_rank() {
    u32 r;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
    return r;
}
TN_DEVICE u32 cluster_index() {
    u32 r;
    asm volatile("mov.u32 %0, %%clusterid.x;" : "=r"(r));
    return r;
}
/* Every thread of every block arrives; what was written before is seen after the wait. */
TN_DEVICE void cluster_arrive() {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
TN_DEVICE void cluster_wait() {
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
/* Only that every block has begun, which must be before its shared memory is written. */
TN_DEVICE void cluster_begin() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
TN_DEVICE u32 cluster_address(const void *shared, u32 rank) {
    u32 local = (u32)__cvta_generic_to_shared(shared), there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(local), "r"(rank));
    return there;
}
/* Writes into block `rank`'s copy of a shared variable. */
TN_DEVICE void store_cluster(float *shared, u32 rank, float a) {
    asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(cluster_address(shared, rank)), "f"(a) : "memory");
}
TN_DEVICE void store_cluster(double *shared, u32 rank, double a) {
    asm volatile("st.shared::cluster.f64 [%0], %1;" ::"r"(cluster_address(shared, rank)), "d"(a) : "memory");
}
#else
TN_DEVICE u32 cluster_rank() {
    return 0;
}
TN_DEVICE u32 cluster_index() {
    return blockIdx.x;
}
TN_DEVICE void cluster_begin() {
}
TN_DEVICE void cluster_arrive() {
}
TN_DEVICE void cluster_wait() {
}
template <class A> TN_DEVICE void store_cluster(A *shared, u32 rank, A a) {
    shared[rank] = a;
}
#endif

/* ---- kernels that follow one another closely (sm_90 and later; tni_launch.programmatic) ------------------------------ */

#if __CUDA_ARCH__ >= 900
/* The next kernel may be brought onto the GPU; it waits for this one's results. */
TN_DEVICE void let_next_begin() {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}
TN_DEVICE void wait_for_last() {
    asm volatile("griddepcontrol.wait;" ::: "memory");
}
#else
TN_DEVICE void let_next_begin() {
}
TN_DEVICE void wait_for_last() {
}
#endif

/* ---- shared memory that is filled while the thread goes on (sm_80 and later) ------------------------------------------ */

/* The block's dynamic shared memory. */
TN_DEVICE words *dynamic_shared() {
    extern __shared__ words memory[];
    return memory;
}

TN_DEVICE words load_shared(const words *p) {
    words r;
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r.w[0]), "=r"(r.w[1]), "=r"(r.w[2]), "=r"(r.w[3])
                 : "r"((u32)__cvta_generic_to_shared(p)));
    return r;
}

#if __CUDA_ARCH__ >= 800
#define TN_COPY_ASYNC 1
/* 16 bytes from global memory, or zeros where there are none. */
TN_DEVICE void copy_async(words *to, const void *from, bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"((u32)__cvta_generic_to_shared(to)), "l"(from),
                 "r"(there ? 16 : 0)
                 : "memory");
}
/* What has been asked for since the last time becomes a group. */
TN_DEVICE void copy_commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
/* Until all groups but the last GROUPS ones are there, for this thread. */
template <int GROUPS> TN_DEVICE void copy_wait_for() {
    asm volatile("cp.async.wait_group %0;" ::"n"(GROUPS) : "memory");
}
/* Until everything that this thread has asked for is there, for this thread. */
TN_DEVICE void copy_wait() {
    asm volatile("cp.async.wait_all;" ::: "memory");
}
#else
#define TN_COPY_ASYNC 0
TN_DEVICE void copy_async(words *, const void *, bool) {
}
TN_DEVICE void copy_commit() {
}
template <int GROUPS> TN_DEVICE void copy_wait_for() {
}
TN_DEVICE void copy_wait() {
}
#endif

/* ---- whole rows into shared memory, by one thread (sm_90 and later) ------------------------------------------------- */

#if __CUDA_ARCH__ >= 900
/* `barrier`, in shared memory, waits for one thread and its bytes at a time. One thread prepares all barriers; the block
 * synchronises before the first is used. */
TN_DEVICE void bulk_prepare(u64 *barriers, int count) {
    for (int i = 0; i < count; i++)
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"((u32)__cvta_generic_to_shared(barriers + i))
                     : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
/* How many bytes are to arrive before those who wait go on. */
TN_DEVICE void bulk_expect(u64 *barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"((u32)__cvta_generic_to_shared(barrier)),
                 "r"(bytes)
                 : "memory");
}
/* Multiples of 16 bytes, both sides aligned to 16. */
TN_DEVICE void bulk_fetch(void *to, const void *from, u32 bytes, u64 *barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     (u32)__cvta_generic_to_shared(to)),
                 "l"(from), "r"(bytes), "r"((u32)__cvta_generic_to_shared(barrier))
                 : "memory");
}
/* Until everything has arrived; phase: 0 the first time, then 1, 0, … */
TN_DEVICE void bulk_wait(u64 *barrier, u32 phase) {
    asm volatile("{\n\t"
                 ".reg .pred there;\n\t"
                 "again:\n\t"
                 "mbarrier.try_wait.parity.shared::cta.b64 there, [%0], %1;\n\t"
                 "@!there bra again;\n\t"
                 "}" ::"r"((u32)__cvta_generic_to_shared(barrier)),
                 "r"(phase)
                 : "memory");
}
#else
TN_DEVICE void bulk_prepare(u64 *, int) {
}
TN_DEVICE void bulk_expect(u64 *, u32) {
}
TN_DEVICE void bulk_fetch(void *, const void *, u32, u64 *) {
}
TN_DEVICE void bulk_wait(u64 *, u32) {
}
#endif

/* ---- plain C names ------------------------------------------------------------------------------------------------------------ */

/* TN_KERNEL(softmax_warp_bf16, (args), body): one instance under a name that the host finds it by. */
#define TN_KERNEL(name, bounds, parameters, call)                          \
    extern "C" __global__ void __launch_bounds__(bounds) name parameters { \
        call;                                                              \
    }

/* Threads that an SM holds. */
#if __CUDA_ARCH__ == 750
#define TN_SM_THREADS 1024
#elif __CUDA_ARCH__ == 860 || __CUDA_ARCH__ == 890 || __CUDA_ARCH__ == 1200
#define TN_SM_THREADS 1536
#else
#define TN_SM_THREADS 2048
#endif

/* A kernel whose parameters are one struct, p; `blocks` of it fit onto an SM, or as many as it has threads for. */
#define TN_ROW_KERNEL(name, bounds, blocks, parameters, call)                               \
    extern "C" __global__ void __launch_bounds__(                                           \
        bounds, (blocks) * (bounds) <= TN_SM_THREADS ? (blocks) : TN_SM_THREADS / (bounds)) \
        name(const __grid_constant__ parameters p) {                                        \
        call;                                                                               \
    }
