/* Copies between layouts. */
#include "copy.cuh"

/* ---- lines ------------------------------------------------------------------------------------------------------- */

struct alignas(16) u128 {
    u32 w[4];
};
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

/* Each thread reads one square and puts it turned round. rows, cols: what there is of the tile along i and j. */
template <class U> TN_DEVICE void read_wide(const tni_copy_tiles &p, const U *from, int rows, int cols, tile<U> &to) {
    constexpr int N = tile<U>::N;
    const int i = threadIdx.x / tile<U>::GROUPS * N, j = threadIdx.x % tile<U>::GROUPS * N;
    const U *at = from + i * p.from_i + j;
    if (i + N <= rows && j + N <= cols) {
        u128 line[N], turned[N];
#pragma unroll
        for (int k = 0; k < N; k++) line[k] = load((const u128 *)(at + k * p.from_i));
        square<sizeof(U)>::turn(line, turned);
#pragma unroll
        for (int k = 0; k < N; k++) to.group(j + k, i / N) = turned[k];
    } else {
        for (int k = 0; k < N && i + k < rows; k++) {
            for (int e = 0; e < N && j + e < cols; e++) to.element(j + e, i + k) = at[k * p.from_i + e];
        }
    }
}

template <class U> TN_DEVICE void read_narrow(const tni_copy_tiles &p, const U *from, int rows, int cols, tile<U> &to) {
    constexpr int EDGE = tile<U>::EDGE, THREADS = tile<U>::THREADS;
#pragma unroll 8
    for (int k = threadIdx.x; k < EDGE * EDGE; k += THREADS) {
        const int i = k / EDGE, j = k % EDGE;
        if (i < rows && j < cols) to.element(j, i) = from[i * p.from_i + j * p.from_j];
    }
}

template <class U> TN_DEVICE void write_wide(const tni_copy_tiles &p, U *to, int rows, int cols, tile<U> &from) {
    constexpr int N = tile<U>::N, GROUPS = tile<U>::GROUPS;
#pragma unroll
    for (int k = 0; k < N; k++) {
        const int at = threadIdx.x + k * tile<U>::THREADS, j = at / GROUPS, i = at % GROUPS * N;
        U *line = to + j * p.to_j + i;
        if (j >= cols) break;
        if (i + N <= rows) {
            *(u128 *)line = from.group(j, i / N);
        } else {
            for (int e = 0; e < N && i + e < rows; e++) line[e] = from.element(j, i + e);
        }
    }
}

template <class U> TN_DEVICE void write_narrow(const tni_copy_tiles &p, U *to, int rows, int cols, tile<U> &from) {
    constexpr int EDGE = tile<U>::EDGE, THREADS = tile<U>::THREADS;
#pragma unroll 8
    for (int k = threadIdx.x; k < EDGE * EDGE; k += THREADS) {
        const int j = k / EDGE, i = k % EDGE;
        if (i < rows && j < cols) to[i * p.to_i + j * p.to_j] = from.element(j, i);
    }
}

/* A block turns one tile: it reads lines of 256 bytes along j and writes lines of 256 bytes along i. */
template <class U> TN_DEVICE void copy_tiles(const tni_copy_tiles &p) {
    constexpr int EDGE = tile<U>::EDGE;
    __shared__ tile<U> shared;
    const u32 across = (u32)p.tiles_j, down = (u32)p.tiles_i;
    const u32 row = blockIdx.x / across;
    const i64 j = (i64)(blockIdx.x % across) * EDGE, i = (i64)(row % down) * EDGE;
    const place outer = walk_to(p.outer, row / down);
    const int rows = (int)min(p.n_i - i, (i64)EDGE), cols = (int)min(p.n_j - j, (i64)EDGE);
    const U *from = (const U *)p.from + outer.at[1] + i * p.from_i + j * p.from_j;
    U *to = (U *)p.to + outer.at[0] + i * p.to_i + j * p.to_j;
    if (p.wide_from)
        read_wide(p, from, rows, cols, shared);
    else
        read_narrow(p, from, rows, cols, shared);
    __syncthreads();
    if (p.wide_to)
        write_wide(p, to, rows, cols, shared);
    else
        write_narrow(p, to, rows, cols, shared);
}

#define TILES(name, U) TN_KERNEL(name, tile<U>::THREADS, (TN_PARAMS(tni_copy_tiles)), (copy_tiles<U>(p)))

TILES(copy_tiles_1, u8)
TILES(copy_tiles_2, u16)
TILES(copy_tiles_4, u32)
TILES(copy_tiles_8, u64)
TILES(copy_tiles_16, u128)
