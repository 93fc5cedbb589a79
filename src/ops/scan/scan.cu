/* cumsum and cumprod. Floats of 16 bits are put together in f32; integers are known by their size, and wrap around. */
#include "scan.cuh"

template <class T, class Take> struct scan_take {
    typedef typename scan_acc<T>::type state;
    typedef T raw;
    enum {
        VECTORS = true,
        LANE = 16 / sizeof(T),
        STRIPES = sizeof(T) < 4 ? sizeof(T) : 4,
        SIDE = sizeof(T) == 8 ? 1 : 2
    };

    static TN_MEMBER state none() {
        return Take::template none<state>();
    }
    static TN_MEMBER state join(const tni_gpu_scan &, state a, state b) {
        return Take::of(a, b);
    }
    static TN_MEMBER T read(const tni_gpu_scan &p, i64 at, i64) {
        return ((const T *)p.x)[at];
    }
    static TN_MEMBER state state_of(const tni_gpu_scan &, T x, i64) {
        return (state)widen(x);
    }
    template <int N> static TN_MEMBER void put(const tni_gpu_scan &p, i64, i64, i64 at, const state (&y)[N]) {
        vec<T, N> values;
#pragma unroll
        for (int e = 0; e < N; e++) narrow(y[e], values.v[e]);
        *(vec<T, N> *)((T *)p.to + at) = values;
    }
    static TN_MEMBER void write(const tni_gpu_scan &p, i64 at, i64, state before, state upto) {
        narrow(p.exclusive ? before : upto, ((T *)p.to)[at]);
    }
};

template <class T> using sum_up = scan_take<T, take_sum>;
template <class T> using multiply = scan_take<T, take_product>;

#define SCANS(T, type)                  \
    SCAN(cumsum, type, 4, 3, sum_up<T>) \
    SCAN(cumprod, type, 4, 3, multiply<T>)

TN_FOR_TYPES(SCANS)
SCANS(u8, u8)
SCANS(u16, u16)
SCANS(u32, u32)
SCANS(u64, u64)

/* For the gradients, cummax and cummin, too. */
TN_ROW_KERNEL(scan_clear, TNI_SCAN_THREADS, 8, tni_gpu_scan, (scan_clear_words(p)))
