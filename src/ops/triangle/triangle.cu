/* triu and tril: of each line, the elements on one side of a border, and 0 beyond it. */
#include "triangle.cuh"

template <class U> struct lines {
    const tni_triangle &p;
    const U *row;
    i64 first, past; /* elements that are kept */
    i64 col;         /* the next element */

    TN_MEMBER lines(const tni_triangle &p) : p(p) {
    }
    TN_MEMBER bool find(u64 number, i64 &to) {
        const u64 matrix = p.chunks.is_short ? quotient((u32)number, p.by_lines) : number / (u64)p.lines;
        const i64 i = (i64)(number - matrix * (u64)p.lines);
        const place at = walk_any(p.matrices, matrix);
        const i64 border = max(min(i + p.offset, p.n), (i64)0);
        to = at.at[0] + i * p.line_step[0];
        row = (const U *)p.from + at.at[1] + i * p.line_step[1];
        first = p.from_start ? 0 : border;
        past = p.from_start ? border : p.n;
        return first < past;
    }
    TN_MEMBER const U *whole(i64 at, int n) const {
        return at >= first && at + n <= past ? row + at : nullptr;
    }
    TN_MEMBER bool is_outside(i64 at, int n) const {
        return at + n <= first || at >= past;
    }
    TN_MEMBER void start(i64 at) {
        col = at;
    }
    TN_MEMBER const U *next() {
        const i64 at = col++;
        return at >= first && at < past ? row + at * p.step[1] : nullptr;
    }
    TN_MEMBER U outside() const {
        return U{};
    }
};

/* One element at a time, where those of a line are not side by side. */
template <class U> TN_DEVICE void triangle_elements(const tni_triangle &p) {
    const u64 i = (u64)blockIdx.x * TNI_CHUNK_THREADS + threadIdx.x;
    if (i >= (u64)p.chunks.count) return;
    const u64 number = p.chunks.is_short ? quotient((u32)i, p.chunks.divisor) : i / (u64)p.n;
    const i64 e = (i64)(i - number * (u64)p.n);
    lines<U> l(p);
    i64 to;
    l.find(number, to);
    l.start(e);
    const U *from = l.next();
    ((U *)p.chunks.to)[to + e * p.step[0]] = from ? *from : U{};
}

#define TRIANGLE(size, U)                                                     \
    TN_ROW_KERNEL(triangle_chunks_##size, TNI_CHUNK_THREADS, 4, tni_triangle, \
                  (write_chunks<U>(p.chunks, lines<U>(p))))                   \
    TN_ROW_KERNEL(triangle_elements_##size, TNI_CHUNK_THREADS, 4, tni_triangle, (triangle_elements<U>(p)))

TRIANGLE(1, u8)
TRIANGLE(2, u16)
TRIANGLE(4, u32)
TRIANGLE(8, u64)
TRIANGLE(16, u128)
