/* cummax and cummin. Elements are compared by keys of their size (keys.cuh), so kernels are made for sizes. What is
 * smallest has the largest key. Where a key and the place that it is from fit into one word, to compare words is to
 * compare keys, and places where those are equal. */
#include "scan.cuh"

template <class K> struct extreme {
    typedef u32 key_type;
    u64 word;

    static TN_MEMBER extreme of(u32 key, i64 place) {
        return extreme{(u64)key << 32 | (u32)place};
    }
    static TN_MEMBER extreme none() {
        return extreme{0};
    }
    static TN_MEMBER extreme join(extreme a, extreme b) {
        return extreme{a.word > b.word ? a.word : b.word};
    }
    TN_MEMBER u32 key() const {
        return (u32)(word >> 32);
    }
    TN_MEMBER i64 place() const {
        return (u32)word;
    }
};
template <> struct extreme<u64> {
    typedef u64 key_type;
    u64 most;
    i64 at; /* -1: of no elements */

    static TN_MEMBER extreme of(u64 key, i64 place) {
        return extreme{key, place};
    }
    static TN_MEMBER extreme none() {
        return extreme{0, -1};
    }
    static TN_MEMBER extreme join(extreme a, extreme b) {
        return a.most > b.most || (a.most == b.most && a.at > b.at) ? a : b;
    }
    TN_MEMBER u64 key() const {
        return most;
    }
    TN_MEMBER i64 place() const {
        return at;
    }
};

/* A key as the rule makes it becomes one of ours, and the other way round: NaN has the largest one all the same. */
template <class U> TN_DEVICE U turn_key(const tni_gpu_scan &p, U key) {
    const U nan = (U)p.rule.sign | ((U)p.rule.sign - 1);
    return !p.smallest || (p.rule.infinity && key == nan) ? key : (U)p.rule.flip ^ key;
}
TN_DEVICE u32 rule_key(const tni_gpu_scan &p, u32 bits) {
    return tni_key_u32(bits, (u32)p.rule.sign, (u32)p.rule.infinity, 0);
}
TN_DEVICE u64 rule_key(const tni_gpu_scan &p, u64 bits) {
    return tni_key_u64(bits, p.rule.sign, p.rule.infinity, 0);
}
TN_DEVICE bool is_shared(const tni_gpu_scan &p, u32 key) {
    return tni_key_is_shared_u32(key, (u32)p.rule.sign, (u32)p.rule.infinity, 0);
}
TN_DEVICE bool is_shared(const tni_gpu_scan &p, u64 key) {
    return tni_key_is_shared_u64(key, p.rule.sign, p.rule.infinity, 0);
}
TN_DEVICE u32 rule_bits(const tni_gpu_scan &p, u32 key) {
    return tni_bits_u32(key, (u32)p.rule.sign, (u32)p.rule.infinity, 0);
}
TN_DEVICE u64 rule_bits(const tni_gpu_scan &p, u64 key) {
    return tni_bits_u64(key, p.rule.sign, p.rule.infinity, 0);
}

template <class K> struct extremes {
    typedef extreme<K> state;
    typedef K raw;
    typedef typename state::key_type key_type;
    enum { VECTORS = true, LANE = TNI_CUMMAX_LANE, STRIPES = sizeof(K) == 8 ? 4 : 8, SIDE = 1 };

    static TN_MEMBER state none() {
        return state::none();
    }
    static TN_MEMBER state join(const tni_gpu_scan &, state a, state b) {
        return state::join(a, b);
    }
    static TN_MEMBER K read(const tni_gpu_scan &p, i64 at, i64) {
        return ((const K *)p.x)[at];
    }
    static TN_MEMBER state state_of(const tni_gpu_scan &p, K x, i64 i) {
        return state::of(turn_key(p, rule_key(p, (key_type)x)), i);
    }
    /* The element at the extreme's place, of a row that begins at `first`: most keys say what it is. */
    static TN_MEMBER K value_of(const tni_gpu_scan &p, i64 first, state a) {
        const key_type key = turn_key(p, a.key());
        return is_shared(p, key) ? read(p, first + a.place() * p.inner, 0) : (K)rule_bits(p, key);
    }
    template <int N>
    static TN_MEMBER void put(const tni_gpu_scan &p, i64 first, i64 step, i64 at, const state (&y)[N]) {
        vec<K, N> values;
        vec<i64, N> places;
#pragma unroll
        for (int e = 0; e < N; e++) {
            values.v[e] = value_of(p, first + e * step, y[e]);
            places.v[e] = y[e].place();
        }
        if (p.to) *(vec<K, N> *)((K *)p.to + at) = values;
        if (p.index) *(vec<i64, N> *)((i64 *)p.index + at) = places;
    }
    static TN_MEMBER void write(const tni_gpu_scan &p, i64 at, i64 i, state, state upto) {
        const state y[1] = {upto};
        put<1>(p, at - i * p.inner, 0, at, y);
    }
};

SCAN(cummax, u8, 3, 2, extremes<u8>)
SCAN(cummax, u16, 3, 2, extremes<u16>)
SCAN(cummax, u32, 3, 2, extremes<u32>)
SCAN(cummax, u64, 2, 2, extremes<u64>)
