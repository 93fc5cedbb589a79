/* Products of any types and strides, by multiplications of single numbers. A block has 64 rows and 64 columns of y, and
 * a thread 4 x 4 of them. It goes along k in steps of 16: the elements of a and b for a step are in shared memory,
 * those for the next one on their way into registers. */
#include "groups.cuh"

enum { TILE = 64, STEP = 16, THREADS = 256, OWN = 4, FETCHED = TILE * STEP / THREADS, PITCH = TILE + 4 };

/* One side of the tile, rows of a or columns of b: TILE lines, of which STEP elements are in shared memory. Threads
 * that are neighbours fetch what lies side by side in memory, along the line or from line to line. */
template <class T> struct side {
    const T *from;
    i64 line_step, step; /* from line to line, along a line */
    i64 lines, k;        /* that there are, from the first of the tile on */
    int line, at, next_line, next_at;

    TN_MEMBER side(const T *data, i64 first, i64 line_step, i64 step, i64 all, i64 k)
        : from(data ? data + first * line_step : nullptr), line_step(line_step), step(step), lines(all - first), k(k) {
        const int t = (int)threadIdx.x;
        const bool along = step == 1;
        line = along ? t / STEP : t % TILE;
        at = along ? t % STEP : t / TILE;
        next_line = along ? THREADS / STEP : 0;
        next_at = along ? 0 : THREADS / TILE;
    }
    TN_MEMBER void fetch(i64 first, acc<T> *own) const {
#pragma unroll
        for (int i = 0; i < FETCHED; i++) {
            const i64 o = line + i * next_line, l = first + at + i * next_at;
            const bool there = o < lines && l < k;
            own[i] = there && from ? (acc<T>)widen(from[o * line_step + l * step]) : (acc<T>)(there ? 1 : 0);
        }
    }
    TN_MEMBER void keep(const acc<T> *own, acc<T> (*shared)[PITCH]) const {
#pragma unroll
        for (int i = 0; i < FETCHED; i++) shared[at + i * next_at][line + i * next_line] = own[i];
    }
};

template <class T> TN_DEVICE void multiply(const acc<T> (*a)[PITCH], const acc<T> (*b)[PITCH], acc<T> (*sums)[OWN]) {
    const int row = (int)threadIdx.x / STEP * OWN, col = (int)threadIdx.x % STEP * OWN;
#pragma unroll
    for (int l = 0; l < STEP; l++) {
#pragma unroll
        for (int i = 0; i < OWN; i++) {
#pragma unroll
            for (int j = 0; j < OWN; j++) sums[i][j] += a[l][row + i] * b[l][col + j];
        }
    }
}

/* Where the sums of a tile go on over several pairs of matrices. */
template <class T> struct buffers { acc<T> (*a)[PITCH], (*b)[PITCH]; };

template <class T>
TN_DEVICE void add_product(const buffers<T> &shared, const side<T> &a, const side<T> &b, acc<T> (*sums)[OWN]) {
    acc<T> a_own[FETCHED], b_own[FETCHED];
    a.fetch(0, a_own);
    b.fetch(0, b_own);
    for (i64 l = 0; l < a.k; l += STEP) {
        a.keep(a_own, shared.a);
        b.keep(b_own, shared.b);
        __syncthreads();
        a.fetch(l + STEP, a_own);
        b.fetch(l + STEP, b_own);
        multiply<T>(shared.a, shared.b, sums);
        __syncthreads();
    }
}

/* y has type Y: that of a and b, or that of sums. */
template <class T, class Y, grouping G> TN_DEVICE void make_tile(const tni_gpu_product &p) {
    alignas(16) __shared__ acc<T> a_shared[STEP][PITCH];
    alignas(16) __shared__ acc<T> b_shared[STEP][PITCH];
    tile_work w;
    if (!find_work<G>(p, TILE, TILE, w)) return;
    const T *a = matrix_of<T>(p, p.a, w.spot.index), *b = matrix_of<T>(p, p.b, w.spot.index);
    acc<T> sums[OWN][OWN] = {};
    if (G != WHOLE && w.wrong) spoil<OWN * OWN>(&sums[0][0]);
    for (i64 t = 0; t < p.terms; t++) {
        const T *a_term = a ? a + distance(t, p.n_sums, p.sums, p.a.sum) + w.first * p.a.col : nullptr;
        const T *b_term = b + distance(t, p.n_sums, p.sums, p.b.sum) + w.first * p.b.row;
        add_product<T>({a_shared, b_shared}, side<T>(a_term, w.spot.row, p.a.row, p.a.col, w.rows, w.k),
                       side<T>(b_term, w.spot.col, p.b.col, p.b.row, p.n, w.k), sums);
    }
    const tile_end<Y> end = end_of<Y>(p, w.spot.index, w.rows);
    const i64 row = w.spot.row + threadIdx.x / STEP * OWN, col = w.spot.col + threadIdx.x % STEP * OWN;
#pragma unroll
    for (int i = 0; i < OWN; i++) {
#pragma unroll
        for (int j = 0; j < OWN; j++) put(p, end, row + i, col + j, sums[i][j]);
    }
}

#define PRODUCT_INTO(T, Y, name, grouping) \
    TN_ROW_KERNEL(product_tile_##name, THREADS, 2, tni_gpu_product, (make_tile<T, Y, grouping>(p)))
#define PRODUCT(T, name)                        \
    PRODUCT_INTO(T, T, name, WHOLE)             \
    PRODUCT_INTO(T, T, by_rows_##name, BY_ROWS) \
    PRODUCT_INTO(T, T, by_terms_##name, BY_TERMS)
TN_FOR_TYPES(PRODUCT)
PRODUCT_INTO(f16, f32, f16_f32, WHOLE)
PRODUCT_INTO(bf16, f32, bf16_f32, WHOLE)
