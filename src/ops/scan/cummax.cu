/* cummax and cummin. Elements are compared by keys of their size (keys.cuh), so kernels are made for sizes. */
#include "scan.cuh"

template <class K> struct extreme {
    K bits;
    i64 at; /* -1: of no elements */
};

template <class K> TN_DEVICE extreme<K> from_below(extreme<K> a, int d, int width) {
    return extreme<K>{(K)from_below((typename scan_acc<K>::type)a.bits, d, width), from_below(a.at, d, width)};
}
template <class K> TN_DEVICE extreme<K> from_lane(extreme<K> a, int lane, int width) {
    return extreme<K>{(K)from_lane((typename scan_acc<K>::type)a.bits, lane, width), from_lane(a.at, lane, width)};
}

TN_DEVICE u32 extreme_key(const tni_gpu_scan &p, u32 bits) {
    const u32 sign = (u32)p.rule.sign, infinity = (u32)p.rule.infinity;
    const u32 key = tni_key_u32(bits, sign, infinity, 0), nan = sign | (sign - 1);
    /* What is smallest has the largest key, but NaN has it all the same. */
    return !p.smallest || (infinity && key == nan) ? key : (u32)p.rule.flip ^ key;
}
TN_DEVICE u64 extreme_key(const tni_gpu_scan &p, u64 bits) {
    const u64 key = tni_key_u64(bits, p.rule.sign, p.rule.infinity, 0), nan = p.rule.sign | (p.rule.sign - 1);
    return !p.smallest || (p.rule.infinity && key == nan) ? key : p.rule.flip ^ key;
}

template <class K> struct extremes {
    typedef extreme<K> state;
    typedef K raw;
    typedef typename scan_acc<K>::type wide;
    enum { VECTORS = false, LANE = TNI_SCAN_LANE, STRIPES = 1, SIDE = 1 };

    static TN_MEMBER state none() {
        return state{0, -1};
    }
    static TN_MEMBER state join(const tni_gpu_scan &p, state a, state b) {
        if (b.at < 0) return a;
        return a.at < 0 || extreme_key(p, (wide)b.bits) >= extreme_key(p, (wide)a.bits) ? b : a;
    }
    static TN_MEMBER K read(const tni_gpu_scan &p, i64 at, i64) {
        return ((const K *)p.x)[at];
    }
    static TN_MEMBER state state_of(const tni_gpu_scan &, K x, i64 i) {
        return state{x, i};
    }
    static TN_MEMBER void write(const tni_gpu_scan &p, i64 at, i64, state, state upto) {
        if (p.to) ((K *)p.to)[at] = upto.bits;
        if (p.index) p.index[at] = upto.at;
    }
};

SCAN(cummax, u8, 2, 2, extremes<u8>)
SCAN(cummax, u16, 2, 2, extremes<u16>)
SCAN(cummax, u32, 2, 2, extremes<u32>)
SCAN(cummax, u64, 2, 2, extremes<u64>)
