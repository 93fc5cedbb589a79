/* triu and tril. */
#include "triangle.cuh"

/* Where a line is, and which of its elements are kept: first … past - 1. */
struct line {
    i64 to, from, first, past;
};

TN_DEVICE line find_line(const tni_triangle &p, u64 number) {
    const u64 matrix = p.is_short ? quotient((u32)number, p.lines_divisor) : number / (u64)p.lines;
    const i64 i = (i64)(number - matrix * (u64)p.lines);
    const place at = walk_any(p.matrices, matrix);
    const i64 border = max(min(i + p.offset, p.n), (i64)0);
    return line{at.at[0] + i * p.line_step[0], at.at[1] + i * p.line_step[1], p.from_start ? 0 : border,
                p.from_start ? border : p.n};
}

template <class U> struct kept {
    const U *from; /* element 0 of the chunk */
    i64 begin, past;
    TN_MEMBER const U *at(int e) const {
        return e >= begin && e < past ? from + e : nullptr;
    }
    TN_MEMBER U outside() const {
        return U{};
    }
};

template <class U> TN_DEVICE void triangle_chunks(const tni_triangle &p) {
    constexpr int V = chunk<U>::V, ITEMS = TNI_CHUNK_ITEMS;
    chunk<U> mine[ITEMS];
    kept<U> from[ITEMS];
    bool there[ITEMS];
#pragma unroll
    for (int k = 0; k < ITEMS; k++) {
        const u64 i = ((u64)blockIdx.x * ITEMS + k) * TNI_CHUNK_THREADS + threadIdx.x;
        there[k] = i < (u64)p.count;
        if (!there[k]) continue;
        const u64 number = p.is_short ? quotient((u32)i, p.per_line_divisor) : i / (u64)p.per_line;
        const line l = find_line(p, number);
        mine[k].place((U *)p.to + l.to, p.n, (i64)(i - number * (u64)p.per_line));
        from[k] = kept<U>{(const U *)p.from + l.from + mine[k].first, l.first - mine[k].first, l.past - mine[k].first};
        mine[k].read(from[k].from, p.low, p.high, mine[k].is_whole() && from[k].begin <= 0 && from[k].past >= V);
    }
#pragma unroll
    for (int k = 0; k < ITEMS; k++) {
        if (there[k]) mine[k].write(from[k]);
    }
}

template <class U> TN_DEVICE void triangle_elements(const tni_triangle &p) {
    const u64 i = (u64)blockIdx.x * TNI_CHUNK_THREADS + threadIdx.x;
    if (i >= (u64)p.count) return;
    const u64 number = p.is_short ? quotient((u32)i, p.per_line_divisor) : i / (u64)p.per_line;
    const line l = find_line(p, number);
    const i64 e = (i64)(i - number * (u64)p.per_line);
    const bool is_kept = e >= l.first && e < l.past;
    ((U *)p.to)[l.to + e * p.step[0]] = is_kept ? ((const U *)p.from)[l.from + e * p.step[1]] : U{};
}

#define TRIANGLE(size, U)                                                                              \
    TN_ROW_KERNEL(triangle_chunks_##size, TNI_CHUNK_THREADS, 4, tni_triangle, (triangle_chunks<U>(p))) \
    TN_ROW_KERNEL(triangle_elements_##size, TNI_CHUNK_THREADS, 4, tni_triangle, (triangle_elements<U>(p)))

TRIANGLE(1, u8)
TRIANGLE(2, u16)
TRIANGLE(4, u32)
TRIANGLE(8, u64)
TRIANGLE(16, u128)
