/* What CUDA C++ has no name for: one function for each instruction of the GPU, or what stands in for it on older ones.
 *
 * No header of CUDA's is included here or in the other files of this folder: nvcc and NVRTC compile them alike.
 * Hand-written kernels include them; formulas come with the text of them (formula.cuh). The tests run formulas on the
 * CPU with emulate.h in place of this file, which defines the guard below. */
#ifndef TNI_CUDA_INSTRUCTIONS
#define TNI_CUDA_INSTRUCTIONS

#define TN_DEVICE static __device__ __forceinline__
#define TN_CALLED static __device__ __noinline__ /* long, and seldom needed */
#define TN_MEMBER __device__ __forceinline__     /* of a struct, or a specialised template */
/* The parameters of a kernel that has them in one struct, p. */
#define TN_PARAMS(type) const __grid_constant__ type p

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

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

TN_DEVICE f32 f16_to_f32(u16 a) {
    f32 y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(a));
    return y;
}
TN_DEVICE u16 f32_to_f16(f32 a) {
    u16 y;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(a));
    return y;
}

/* f32_to_f16x2: `low` in the lower half. max_nan, min_nan: a NaN wins. */
#if __CUDA_ARCH__ >= 800
TN_DEVICE u16 f32_to_bf16(f32 a) {
    u16 y;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(a));
    return y;
}
TN_DEVICE u32 f32_to_f16x2(f32 low, f32 high) {
    u32 y;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
    return y;
}
TN_DEVICE u32 f32_to_bf16x2(f32 low, f32 high) {
    u32 y;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
    return y;
}
TN_DEVICE f32 max_nan(f32 a, f32 b) {
    f32 y;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
    return y;
}
TN_DEVICE f32 min_nan(f32 a, f32 b) {
    f32 y;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
    return y;
}
#else
TN_DEVICE u16 f32_to_bf16(f32 a) {
    u32 bits = __float_as_uint(a);
    return (u16)(a != a ? bits >> 16 | 0x40 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
TN_DEVICE u32 f32_to_f16x2(f32 low, f32 high) { return f32_to_f16(low) | (u32)f32_to_f16(high) << 16; }
TN_DEVICE u32 f32_to_bf16x2(f32 low, f32 high) { return f32_to_bf16(low) | (u32)f32_to_bf16(high) << 16; }
TN_DEVICE f32 max_nan(f32 a, f32 b) { return a > b || a != a ? a : b; }
TN_DEVICE f32 min_nan(f32 a, f32 b) { return a < b || a != a ? a : b; }
#endif

/* Right to 2 units in the last place. ex2 and rcp: what is below the smallest normal number is 0. */
TN_DEVICE f32 ex2_approx(f32 a) {
    f32 y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(a));
    return y;
}
TN_DEVICE f32 lg2_approx(f32 a) {
    f32 y;
    asm("lg2.approx.f32 %0, %1;" : "=f"(y) : "f"(a));
    return y;
}
TN_DEVICE f32 rcp_approx(f32 a) {
    f32 y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(a));
    return y;
}
TN_DEVICE f32 sqrt_approx(f32 a) {
    f32 y;
    asm("sqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(a));
    return y;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* 16 bytes, and 8, as they lie in registers. */
struct words {
    u32 w[4];
};
struct half_words {
    u32 w[2];
};

/* What is in memory where `there` is true, else zeros. No branch: all loads of a loop are under way together. Loads
 * have no hint: with L1::no_allocate what reads two tensors takes 4 % longer (H200). */
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
TN_DEVICE u32 load_word_if(const void *p, bool there) {
    u32 r;
    asm volatile("{\n\t"
                 ".reg .pred t;\n\t"
                 "setp.ne.u32 t, %2, 0;\n\t"
                 "mov.u32 %0, 0;\n\t"
                 "@t ld.global.u32 %0, [%1];\n\t"
                 "}"
                 : "=&r"(r)
                 : "l"(p), "r"((u32)there));
    return r;
}
TN_DEVICE u32 load_half_if(const void *p, bool there) {
    u32 r;
    asm volatile("{\n\t"
                 ".reg .pred t;\n\t"
                 "setp.ne.u32 t, %2, 0;\n\t"
                 "mov.u32 %0, 0;\n\t"
                 "@t ld.global.u16 %0, [%1];\n\t"
                 "}"
                 : "=&r"(r)
                 : "l"(p), "r"((u32)there));
    return r;
}
TN_DEVICE half_words load_half_words_if(const void *p, bool there) {
    half_words r;
    asm volatile("{\n\t"
                 ".reg .pred t;\n\t"
                 "setp.ne.u32 t, %3, 0;\n\t"
                 "mov.u32 %0, 0;\n\t"
                 "mov.u32 %1, 0;\n\t"
                 "@t ld.global.v2.u32 {%0,%1}, [%2];\n\t"
                 "}"
                 : "=&r"(r.w[0]), "=&r"(r.w[1])
                 : "l"(p), "r"((u32)there));
    return r;
}
/* What is in memory where `there` is true, else `other`. No branch: all loads of a loop are under way together. */
TN_DEVICE u32 load_word_or(const void *p, bool there, u32 other) {
    asm volatile("{\n\t"
                 ".reg .pred t;\n\t"
                 "setp.ne.u32 t, %2, 0;\n\t"
                 "@t ld.global.u32 %0, [%1];\n\t"
                 "}"
                 : "+r"(other)
                 : "l"(p), "r"((u32)there));
    return other;
}

TN_DEVICE u32 load_word(const void *p) {
    u32 r;
    asm volatile("ld.global.u32 %0, [%1];" : "=r"(r) : "l"(p));
    return r;
}

TN_DEVICE void store_word(void *p, u32 a) { asm volatile("st.global.u32 [%0], %1;" ::"l"(p), "r"(a) : "memory"); }

TN_DEVICE void store_word_if(void *p, bool there, u32 a) {
    asm volatile("{\n\t"
                 ".reg .pred t;\n\t"
                 "setp.ne.u32 t, %1, 0;\n\t"
                 "@t st.global.u32 [%0], %2;\n\t"
                 "}" ::"l"(p),
                 "r"((u32)there), "r"(a)
                 : "memory");
}

/* 16 bytes, or `other`; as load_word_or. */
TN_DEVICE words load_words_or(const void *p, bool there, words other) {
    asm volatile("{\n\t"
                 ".reg .pred t;\n\t"
                 "setp.ne.u32 t, %5, 0;\n\t"
                 "@t ld.global.v4.u32 {%0,%1,%2,%3}, [%4];\n\t"
                 "}"
                 : "+r"(other.w[0]), "+r"(other.w[1]), "+r"(other.w[2]), "+r"(other.w[3])
                 : "l"(p), "r"((u32)there));
    return other;
}

/* The same from shared memory. */
TN_DEVICE words load_shared_if(const void *p, bool there) {
    words r;
    asm volatile("{\n\t"
                 ".reg .pred t;\n\t"
                 "setp.ne.u32 t, %5, 0;\n\t"
                 "mov.u32 %0, 0;\n\t"
                 "mov.u32 %1, 0;\n\t"
                 "mov.u32 %2, 0;\n\t"
                 "mov.u32 %3, 0;\n\t"
                 "@t ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];\n\t"
                 "}"
                 : "=&r"(r.w[0]), "=&r"(r.w[1]), "=&r"(r.w[2]), "=&r"(r.w[3])
                 : "r"((u32)__cvta_generic_to_shared(p)), "r"((u32)there)
                 : "memory");
    return r;
}

TN_DEVICE void store_words(void *p, const words &a) {
    asm volatile("st.global.L1::no_allocate.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(p), "r"(a.w[0]), "r"(a.w[1]),
                 "r"(a.w[2]), "r"(a.w[3])
                 : "memory");
}
TN_DEVICE void store_half_words(void *p, const half_words &a) {
    asm volatile("st.global.L1::no_allocate.v2.u32 [%0], {%1,%2};" ::"l"(p), "r"(a.w[0]), "r"(a.w[1]) : "memory");
}

/* Words that blocks tell each other by, past the nearest cache: whole, in any order with what is around them. */
TN_DEVICE u64 load_relaxed(const u64 *p) {
    u64 a;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(a) : "l"(p) : "memory");
    return a;
}
TN_DEVICE void store_relaxed(u64 *p, u64 a) {
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(p), "l"(a) : "memory");
}
/* A moment, before one looks again whether there is something. */
TN_DEVICE void rest() { __nanosleep(64); }

/* ---- what the compiler knows ------------------------------------------------------------------------------------- */

/* The compiler no longer knows what a is: what follows from it is computed where it is used, and not kept in registers
 * from one turn of a loop to the next. */
TN_DEVICE void hide(int &a) { asm volatile("" : "+r"(a)); }
TN_DEVICE void hide(u32 &a) { asm volatile("" : "+r"(a)); }
TN_DEVICE void hide(i64 &a) { asm volatile("" : "+l"(a)); }
TN_DEVICE void hide(f32 &a) { asm volatile("" : "+f"(a)); }
TN_DEVICE void hide(f64 &a) { asm volatile("" : "+d"(a)); }

/* Computed by here, not later. */
TN_DEVICE void pin(f32 a) { asm volatile("" ::"f"(a)); }
TN_DEVICE void pin(f64 a) { asm volatile("" ::"d"(a)); }

/* ---- kernels that follow one another closely (sm_90 and later; tn_launch.programmatic) -------------------------- */

#if __CUDA_ARCH__ >= 900
/* The next kernel may be brought onto the GPU; it waits for this one's results. */
TN_DEVICE void let_next_begin() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
TN_DEVICE void wait_for_last() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
#else
TN_DEVICE void let_next_begin() {}
TN_DEVICE void wait_for_last() {}
#endif

} // namespace tn

#endif
