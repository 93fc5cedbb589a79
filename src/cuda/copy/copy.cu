/* Copies between layouts. */
#include "copy.cuh"

/* ---- lines ------------------------------------------------------------------------------------------------------- */

/* 16 bytes at a multiple of 8 */
struct u64_pair {
    u64 w[2];
};

template <class U> TN_DEVICE U load(const U *p) {
    return *p;
}
template <> __device__ __forceinline__ u128 load<u128>(const u128 *p) {
    const pack<u32> a = load_pack((const u32 *)p);
    return u128{{a.v[0], a.v[1], a.v[2], a.v[3]}};
}

/* 16 bytes of one element. */
TN_DEVICE u128 repeat(u32 a) {
    return u128{{a, a, a, a}};
}
TN_DEVICE u128 repeat(u8 a) {
    return repeat(a * 0x01010101u);
}
TN_DEVICE u128 repeat(u16 a) {
    return repeat(a * 0x00010001u);
}
TN_DEVICE u128 repeat(u64 a) {
    const u32 low = (u32)a, high = (u32)(a >> 32);
    return u128{{low, high, low, high}};
}

template <class To, class From> struct spread {
    TN_DEVICE To of(From a) {
        return repeat(a);
    }
};
template <class U> struct spread<U, U> {
    TN_DEVICE U of(U a) {
        return a;
    }
};

/* One element of To for every step of the walk; a thread's are a block apart, so that neighbouring threads write
 * neighbours. Where To is wider than From, an element of To is 16 bytes of the same From. */
template <class To, class From, class I> TN_DEVICE void copy_lines(const tni_copy_lines &p) {
    constexpr int ITEMS = sizeof(To) == 16 || sizeof(I) == 8 ? TNI_COPY_FEW_ITEMS : TNI_COPY_ITEMS;
    const I first = (I)blockIdx.x * (TNI_COPY_THREADS * ITEMS) + threadIdx.x;
    To *to = (To *)p.to;
    const From *from = (const From *)p.from;
    From value[ITEMS];
    i64 at[ITEMS];
#pragma unroll
    for (int k = 0; k < ITEMS; k++) {
        const I i = first + k * TNI_COPY_THREADS;
        if (i < (I)p.walk.count) {
            const place here = sizeof(I) == 4 ? walk_to(p.walk, (u32)i) : walk_any(p.walk, i);
            at[k] = here.at[0];
            value[k] = load(from + here.at[1]);
        }
    }
#pragma unroll
    for (int k = 0; k < ITEMS; k++) {
        if (first + k * TNI_COPY_THREADS < (I)p.walk.count) to[at[k]] = spread<To, From>::of(value[k]);
    }
}

#define LINES(name, To, From)                                                                              \
    TN_KERNEL(name##_short, TNI_COPY_THREADS, (TN_PARAMS(tni_copy_lines)), (copy_lines<To, From, u32>(p))) \
    TN_KERNEL(name##_long, TNI_COPY_THREADS, (TN_PARAMS(tni_copy_lines)), (copy_lines<To, From, u64>(p)))

LINES(copy_lines_1, u8, u8)
LINES(copy_lines_2, u16, u16)
LINES(copy_lines_4, u32, u32)
LINES(copy_lines_8, u64, u64)
LINES(copy_lines_16, u128, u128)
LINES(copy_lines_pair, u64_pair, u64_pair)
LINES(copy_fill_1, u128, u8)
LINES(copy_fill_2, u128, u16)
LINES(copy_fill_4, u128, u32)
LINES(copy_fill_8, u128, u64)

/* ---- rows that begin anywhere ------------------------------------------------------------------------------------ */

/* For write_chunks. */
template <class U> struct plain_rows : memory_rows<U> {
    const tni_copy_rows &p;

    TN_MEMBER plain_rows(const tni_copy_rows &p) : p(p) {
    }
    TN_MEMBER bool find(u64 number, i64 &to) {
        const place at = walk_any(p.outer, number);
        to = at.at[0];
        this->row = (const U *)p.from + at.at[1];
        return true;
    }
    TN_MEMBER U outside() const {
        return U{};
    }
};

template <class U> TN_DEVICE void copy_rows(const tni_copy_rows &p) {
    write_chunks<U>(p.chunks, plain_rows<U>(p));
}

#define ROWS(name, U) TN_ROW_KERNEL(name, TNI_CHUNK_THREADS, 4, tni_copy_rows, (copy_rows<U>(p)))

ROWS(copy_rows_1, u8)
ROWS(copy_rows_2, u16)
ROWS(copy_rows_4, u32)

/* ---- tiles ------------------------------------------------------------------------------------------------------- */

/* A square of N lines of 16 bytes turned round: element j of line i changes places with element i of line j. */
template <int SIZE> struct square;

template <> struct square<16> {
    TN_DEVICE void turn(const u128 (&a)[1], u128 (&b)[1]) {
        b[0] = a[0];
    }
};
template <> struct square<8> {
    TN_DEVICE void turn(const u128 (&a)[2], u128 (&b)[2]) {
#pragma unroll
        for (int j = 0; j < 2; j++) b[j] = u128{{a[0].w[2 * j], a[0].w[2 * j + 1], a[1].w[2 * j], a[1].w[2 * j + 1]}};
    }
};
template <> struct square<4> {
    TN_DEVICE void turn(const u128 (&a)[4], u128 (&b)[4]) {
#pragma unroll
        for (int j = 0; j < 4; j++) b[j] = u128{{a[0].w[j], a[1].w[j], a[2].w[j], a[3].w[j]}};
    }
};
template <> struct square<2> {
    TN_DEVICE void turn(const u128 (&a)[8], u128 (&b)[8]) {
#pragma unroll
        for (int j = 0; j < 8; j++) {
#pragma unroll
            for (int k = 0; k < 4; k++) {
                b[j].w[k] = __byte_perm(a[2 * k].w[j / 2], a[2 * k + 1].w[j / 2], j % 2 ? 0x7632 : 0x5410);
            }
        }
    }
};
template <> struct square<1> {
    TN_DEVICE void turn(const u128 (&a)[16], u128 (&b)[16]) {
#pragma unroll
        for (int j = 0; j < 16; j += 4) {
#pragma unroll
            for (int k = 0; k < 4; k++)
                four(a[4 * k].w[j / 4], a[4 * k + 1].w[j / 4], a[4 * k + 2].w[j / 4], a[4 * k + 3].w[j / 4], &b[j], k);
        }
    }

  private:
    /* Word k of lines to[0 … 3] is byte 0 … 3 of each of p, q, r, s. */
    TN_DEVICE void four(u32 p, u32 q, u32 r, u32 s, u128 *to, int k) {
        const u32 pq_low = __byte_perm(p, q, 0x5140), pq_high = __byte_perm(p, q, 0x7362);
        const u32 rs_low = __byte_perm(r, s, 0x5140), rs_high = __byte_perm(r, s, 0x7362);
        to[0].w[k] = __byte_perm(pq_low, rs_low, 0x5410);
        to[1].w[k] = __byte_perm(pq_low, rs_low, 0x7632);
        to[2].w[k] = __byte_perm(pq_high, rs_high, 0x5410);
        to[3].w[k] = __byte_perm(pq_high, rs_high, 0x7632);
    }
};

/* A tile in shared memory, as it is written: EDGE lines j of GROUPS times 16 bytes along i. Where a group lies depends
 * on its line, so that neither side of the exchange has threads waiting for the same bank. */
template <class U> struct tile {
    static constexpr int N = 16 / sizeof(U);
    static constexpr int GROUPS = sizeof(U) == 1 ? TNI_TILE_GROUPS / 2 : TNI_TILE_GROUPS;
    static constexpr int EDGE = GROUPS * N, THREADS = GROUPS * GROUPS;
    u128 groups[EDGE * GROUPS];

    __device__ __forceinline__ u128 &group(int j, int g) {
        return groups[j * GROUPS + (g ^ ((j / N + j % N) & (GROUPS - 1)))];
    }
    __device__ __forceinline__ U &element(int j, int i) {
        return ((U *)&group(j, i / N))[i % N];
    }
};

/* Where index i of a dimension is. */
TN_DEVICE i64 step_to(const tni_tile_dim &d, i64 i) {
    const i64 above = i >> d.shift;
    return (i - (above << d.shift)) * d.to + above * d.stack_to;
}
TN_DEVICE i64 step_from(const tni_tile_dim &d, i64 i) {
    const i64 above = i >> d.shift;
    return (i - (above << d.shift)) * d.from + above * d.stack_from;
}

/* A tile: its first element, and what there is of it along i and j. */
template <class U> struct part {
    const U *from;
    U *to;
    i64 i, j;
    int rows, cols;

    TN_MEMBER const U *source(const tni_copy_tiles &p, int di, int dj) const {
        return from + step_from(p.i, i + di) + step_from(p.j, j + dj);
    }
    TN_MEMBER U *target(const tni_copy_tiles &p, int di, int dj) const {
        return to + step_to(p.i, i + di) + step_to(p.j, j + dj);
    }
};

/* 16 bytes from anywhere. */
TN_DEVICE u128 join_words(const words &a, const words &b, u32 shift) {
    const words r = shift ? shift_words(a, b, shift) : a;
    return u128{{r.w[0], r.w[1], r.w[2], r.w[3]}};
}
TN_DEVICE words words_at(const u128 &a) {
    return words{{a.w[0], a.w[1], a.w[2], a.w[3]}};
}

/* N lines of 16 bytes, all of one step of a stack. False: the aligned 16 bytes around one of them are not all of the
 * operand's memory. */
template <class U, int N, bool ANYWHERE>
TN_DEVICE bool read_square(const tni_copy_tiles &p, const part<U> &t, int i, int j, u128 (&line)[N]) {
    const U *first = t.source(p, i, j), *last = first + (N - 1) * p.i.from;
    if constexpr (!ANYWHERE) {
#pragma unroll
        for (int k = 0; k < N; k++) line[k] = load((const u128 *)(first + k * p.i.from));
        return true;
    } else {
        constexpr int TOGETHER = N < 4 ? N : 4;
        const char *low = (const char *)(first < last ? first : last),
                   *high = (const char *)(first < last ? last : first);
        if (low - 15 < (const char *)p.low || high + 32 > (const char *)p.high) return false;
#pragma unroll
        for (int k = 0; k < N; k += TOGETHER) {
            words a[TOGETHER], b[TOGETHER];
            u32 shift[TOGETHER];
#pragma unroll
            for (int e = 0; e < TOGETHER; e++) {
                const char *at = (const char *)(first + (k + e) * p.i.from);
                shift[e] = (u32)((u64)at & 15);
                a[e] = load_words_if(at - shift[e], true);
                b[e] = load_words_if(at - shift[e] + 16, shift[e] != 0);
            }
#pragma unroll
            for (int e = 0; e < TOGETHER; e++) line[k + e] = join_words(a[e], b[e], shift[e]);
        }
        return true;
    }
}

/* Each thread reads one square and puts it turned round. */
template <class U, bool ANYWHERE> TN_DEVICE void read_wide(const tni_copy_tiles &p, const part<U> &t, tile<U> &to) {
    constexpr int N = tile<U>::N;
    const int i = threadIdx.x / tile<U>::GROUPS * N, j = threadIdx.x % tile<U>::GROUPS * N;
    u128 line[N], turned[N];
    if (i + N <= t.rows && j + N <= t.cols && read_square<U, N, ANYWHERE>(p, t, i, j, line)) {
        square<sizeof(U)>::turn(line, turned);
#pragma unroll
        for (int k = 0; k < N; k++) to.group(j + k, i / N) = turned[k];
    } else {
#pragma unroll 1
        for (int k = 0; k < N && i + k < t.rows; k++) {
#pragma unroll 1
            for (int e = 0; e < N && j + e < t.cols; e++) to.element(j + e, i + k) = *t.source(p, i + k, j + e);
        }
    }
}

template <class U> TN_DEVICE void read_narrow(const tni_copy_tiles &p, const part<U> &t, tile<U> &to) {
    constexpr int EDGE = tile<U>::EDGE, THREADS = tile<U>::THREADS;
#pragma unroll 8
    for (int k = threadIdx.x; k < EDGE * EDGE; k += THREADS) {
        const int i = k / EDGE, j = k % EDGE;
        if (i < t.rows && j < t.cols) to.element(j, i) = *t.source(p, i, j);
    }
}

template <class U> TN_DEVICE void write_wide(const tni_copy_tiles &p, const part<U> &t, tile<U> &from) {
    constexpr int N = tile<U>::N, GROUPS = tile<U>::GROUPS;
#pragma unroll
    for (int k = 0; k < N; k++) {
        const int at = threadIdx.x + k * tile<U>::THREADS, j = at / GROUPS, i = at % GROUPS * N;
        if (j >= t.cols) break;
        U *line = t.target(p, i, j);
        if (i + N <= t.rows) {
            *(u128 *)line = from.group(j, i / N);
        } else {
            for (int e = 0; e < N && i + e < t.rows; e++) line[e] = from.element(j, i + e);
        }
    }
}

/* Lines that begin anywhere: 16 bytes at a multiple of 16 have parts of two groups. */
template <class U> TN_DEVICE void write_anywhere(const tni_copy_tiles &p, const part<U> &t, tile<U> &from) {
    constexpr int N = tile<U>::N, GROUPS = tile<U>::GROUPS, EACH = GROUPS + 1, THREADS = tile<U>::THREADS;
#pragma unroll 2
    for (int at = threadIdx.x; at < t.cols * EACH; at += THREADS) {
        const int j = at / EACH, g = at % EACH;
        U *line = t.target(p, 0, j);
        const int lead = (int)(((u64)line & 15) / sizeof(U)), i = g * N - lead;
        if (i >= 0 && i + N <= t.rows) {
            const words a = words_at(from.group(j, lead ? g - 1 : g)),
                        b = words_at(from.group(j, lead ? g : g - (g > 0)));
            *(u128 *)(line + i) = join_words(a, b, lead ? (u32)(16 - lead * (int)sizeof(U)) : 0);
        } else {
            const int past = min(N, t.rows - i);
#pragma unroll 1
            for (int e = i < 0 ? -i : 0; e < past; e++) line[i + e] = from.element(j, i + e);
        }
    }
}

template <class U> TN_DEVICE void write_narrow(const tni_copy_tiles &p, const part<U> &t, tile<U> &from) {
    constexpr int EDGE = tile<U>::EDGE, THREADS = tile<U>::THREADS;
#pragma unroll 8
    for (int k = threadIdx.x; k < EDGE * EDGE; k += THREADS) {
        const int j = k / EDGE, i = k % EDGE;
        if (i < t.rows && j < t.cols) *t.target(p, i, j) = from.element(j, i);
    }
}

/* A block turns one tile: it reads lines of 256 bytes along j and writes lines of 256 bytes along i. */
template <class U> TN_DEVICE void copy_tiles(const tni_copy_tiles &p) {
    constexpr int EDGE = tile<U>::EDGE;
    __shared__ tile<U> shared;
    const u32 across = (u32)p.j.tiles, down = (u32)p.i.tiles;
    const u32 row = blockIdx.x / across;
    const place outer = walk_to(p.outer, row / down);
    part<U> t = {(const U *)p.from + outer.at[1], (U *)p.to + outer.at[0]};
    t.j = (i64)(blockIdx.x % across) * EDGE;
    t.i = (i64)(row % down) * EDGE;
    t.rows = (int)min(p.i.size - t.i, (i64)EDGE);
    t.cols = (int)min(p.j.size - t.j, (i64)EDGE);
    if (p.reads == TNI_TILE_WIDE)
        read_wide<U, false>(p, t, shared);
    else if (p.reads == TNI_TILE_ANYWHERE)
        read_wide<U, true>(p, t, shared);
    else
        read_narrow(p, t, shared);
    __syncthreads();
    if (p.writes == TNI_TILE_WIDE)
        write_wide(p, t, shared);
    else if (p.writes == TNI_TILE_ANYWHERE)
        write_anywhere(p, t, shared);
    else
        write_narrow(p, t, shared);
}

#define TILES(name, U) \
    TN_ROW_KERNEL(name, tile<U>::THREADS, tile<U>::THREADS == 64 ? 8 : 4, tni_copy_tiles, (copy_tiles<U>(p)))

TILES(copy_tiles_1, u8)
TILES(copy_tiles_2, u16)
TILES(copy_tiles_4, u32)
TILES(copy_tiles_8, u64)
TILES(copy_tiles_16, u128)
