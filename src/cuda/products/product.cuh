/* Matrix products on the GPU: what gemm_cuda.c tells the kernels, and what these have in common.
 *
 * z[i, j] = alpha * sum over l of a[i, l] * b[l, j], plus bias[j], plus residual[i, j], and y is z, or relu of it: for
 * each matrix of a batch. A block makes one tile of y. */
#pragma once

#ifdef __CUDACC__
#define TNI_ALIGNED_64 alignas(64)
#else
#define TNI_ALIGNED_64 _Alignas(64)
#endif

enum { TNI_PRODUCT_DIMS = 16 }; /* the most that a tensor has */

/* Rows of a matrix in groups: group g has those from offsets[g] up to offsets[g + 1] (groups.cuh). */
typedef struct tni_gpu_groups {
    const void *offsets; /* (count + 1), of 64 bits where they are wide, else of 32 */
    int wide, count;
    long long step; /* from one to the next */
    long long rows; /* of all groups, and of none */
} tni_gpu_groups;

/* Strides are in elements. */
typedef struct tni_gpu_matrix {
    void *data; /* NULL: there is none; a is all ones then */
    long long row, col;
    long long batch[TNI_PRODUCT_DIMS], sum[TNI_PRODUCT_DIMS];
} tni_gpu_matrix;

typedef struct tni_gpu_product {
    tni_gpu_matrix a, b, y, z, residual; /* (m, k), (k, n), (m, n) … */
    const void *bias;                    /* (n); NULL: there is none */
    long long bias_step;
    long long m, n, k;
    int n_batch, n_sums;
    long long batch[TNI_PRODUCT_DIMS], sums[TNI_PRODUCT_DIMS];
    long long terms; /* of a sum: as many times k */
    long long row_tiles, col_tiles;
    double alpha;
    int relu;
    tni_gpu_groups groups;
} tni_gpu_product;

/* For product_warpgroup.cu: with a and b as CUDA's tensor maps. */
typedef struct tni_gpu_warpgroup {
    TNI_ALIGNED_64 unsigned long long a[16];
    TNI_ALIGNED_64 unsigned long long b[16];
    tni_gpu_product product;
    long long tiles; /* of all matrices */
} tni_gpu_warpgroup;

enum { PASS_THREADS = 256 };
typedef struct tni_gpu_pass {
    const void *dy, *z;
    void *dz;
    long long count;
    int n_dims;
    long long shape[TNI_PRODUCT_DIMS];
    long long dy_strides[TNI_PRODUCT_DIMS], z_strides[TNI_PRODUCT_DIMS], dz_strides[TNI_PRODUCT_DIMS];
} tni_gpu_pass;

#ifdef __CUDACC__

#include "cuda/device/async_copy.cuh"
#include "cuda/device/bulk.cuh"
#include "cuda/device/kernel.cuh"
#include "cuda/device/packs.cuh"
#include "cuda/device/types.cuh"

using namespace tn;

/* ---- which tile a block makes ------------------------------------------------------------------------------------ */

/* A matrix of the batch, and the first row and column of a tile of it. */
struct tile_spot {
    i64 row, col, index;
};

/* Tile `tile` of a matrix of down * across tiles. Blocks that run at the same time have tiles close to each other,
 * GROUP rows of them: they read the same parts of a and b, which the L2 cache has then. There are fewer than 2^31
 * tiles. */
TN_DEVICE tile_spot place_tile(u32 tile, u32 down, u32 across, int rows, int cols) {
    enum { GROUP = 8 };
    const u32 group = tile / (GROUP * across), first = group * GROUP, within = tile - group * GROUP * across;
    const u32 high = down - first < GROUP ? down - first : GROUP, col = within / high;
    return {(i64)(first + within - col * high) * rows, (i64)col * cols, 0};
}

TN_DEVICE tile_spot find_tile(const tni_gpu_product &p, u32 number, int rows, int cols) {
    const u32 down = (u32)p.row_tiles, across = (u32)p.col_tiles, index = number / (down * across);
    tile_spot spot = place_tile(number - index * (down * across), down, across, rows, cols);
    spot.index = index;
    return spot;
}

/* How far entry `index` of loops of these sizes is from the first. The last loop is the fastest. */
TN_DEVICE i64 distance(i64 index, int n, const long long *sizes, const long long *strides) {
    i64 at = 0;
    for (int d = n - 1; d >= 0; d--) {
        const i64 rest = index / sizes[d];
        at += (index - rest * sizes[d]) * strides[d];
        index = rest;
    }
    return at;
}

template <class T> TN_DEVICE T *matrix_of(const tni_gpu_product &p, const tni_gpu_matrix &x, i64 index) {
    return x.data ? (T *)x.data + (index ? distance(index, p.n_batch, p.batch, x.batch) : 0) : nullptr;
}

/* ---- the end of a tile ------------------------------------------------------------------------------------------- */

/* What is added to a tile, and where it goes. */
template <class T> struct tile_end {
    T *y, *z;
    const T *residual, *bias;
    i64 rows; /* that y has, or that are written */
};

template <class T> TN_DEVICE tile_end<T> end_of(const tni_gpu_product &p, i64 index, i64 rows) {
    return {matrix_of<T>(p, p.y, index), matrix_of<T>(p, p.z, index), matrix_of<T>(p, p.residual, index),
            (const T *)p.bias, rows};
}

template <class T> TN_DEVICE void put(const tni_gpu_product &p, const tile_end<T> &e, i64 i, i64 j, acc<T> sum) {
    if (i >= e.rows || j >= p.n) return;
    acc<T> v = (acc<T>)p.alpha * sum;
    if (e.bias) v += widen(e.bias[j * p.bias_step]);
    if (e.residual) v += widen(e.residual[i * p.residual.row + j * p.residual.col]);
    if (e.z) narrow(v, e.z[i * p.z.row + j * p.z.col]);
    narrow(p.relu && v < 0 ? (acc<T>)0 : v, e.y[i * p.y.row + j * p.y.col]);
}

/* ---- tensor cores' sums: through shared memory, so that whole lines are read and written ------------------------- */

enum { PATCH_ROWS = 16 };

/* Bytes from line to line of a patch. The 16 that are more than a line's numbers leave room for its lead, and lines
 * that lanes meet at the same time are in different banks. */
template <class T, int WIDTH> constexpr int PATCH_PITCH = WIDTH *(int)sizeof(T) + 16;

/* The part of a matrix that is in a patch, as far as the matrix goes. A dense line is as far behind a multiple of 16
 * bytes in the patch as in memory, so that all of it but its ends goes 16 bytes at a time, wherever it begins. */
template <class T> struct patch_part {
    T *memory;
    i64 row, col;
    int rows, cols;
    char *patch;
    int pitch;

    TN_MEMBER T *line(int r) const {
        return memory + r * row;
    }
    TN_MEMBER T *shared_line(int r) const {
        return (T *)(patch + r * pitch + (col == 1 ? (u64)line(r) % 16 : 0));
    }
    /* Two neighbours may be read and written at once. */
    TN_MEMBER bool in_twos() const {
        return col != 1 || ((u64)memory | (u64)(row * (i64)sizeof(T))) % (2 * sizeof(T)) == 0;
    }
};

enum way { READ, WRITE, SEND }; /* SEND: whole pieces are written by bulk copies */

template <way WAY, class T> TN_DEVICE void move_one(T *memory, T *shared) {
    if (WAY == READ)
        *shared = *memory;
    else
        *memory = *shared;
}

template <way WAY> TN_DEVICE void move_piece(void *memory, void *shared) {
    if (WAY == READ)
        *(words *)shared = load_words_if(memory, true);
    else
        store_words(memory, load_shared_if(shared, true));
}

/* Elements of a dense line before the first whole piece, and before the first that is none again. */
template <class T> struct line_pieces {
    int first, last;
    TN_MEMBER line_pieces(const T *line, int cols) {
        enum { VL = pack<T>::VL };
        const int ahead = (VL - (int)lead_of(line)) % VL;
        first = ahead < cols ? ahead : cols;
        last = first + (cols - first) / VL * VL;
    }
};

/* Lane l has the head of line l, or the tail of line l - 16. */
template <way WAY, class T> TN_DEVICE void move_ends(const patch_part<T> &part) {
    const int lane = (int)threadIdx.x % 32, r = lane % PATCH_ROWS;
    if (r >= part.rows) return;
    T *memory = part.line(r), *shared = part.shared_line(r);
    const line_pieces<T> pieces(memory, part.cols);
    const bool head = lane < PATCH_ROWS;
    const int end = head ? pieces.first : part.cols;
#pragma unroll 1
    for (int j = head ? 0 : pieces.last; j < end; j++) move_one<WAY>(memory + j, shared + j);
    const int bytes = (pieces.last - pieces.first) * (int)sizeof(T);
    if (WAY == SEND && head && bytes) bulk_send(memory + pieces.first, shared + pieces.first, (u32)bytes);
}

template <way WAY, int WIDTH, class T> TN_DEVICE void move_pieces(const patch_part<T> &part) {
    enum { VL = pack<T>::VL, PIECES = WIDTH / VL };
    const int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < PATCH_ROWS; i += 32 / PIECES) {
        const int r = i + lane / PIECES;
        if (r >= part.rows) continue;
        T *memory = part.line(r);
        const line_pieces<T> pieces(memory, part.cols);
        const int j = pieces.first + lane % PIECES * VL;
        if (j < pieces.last) move_piece<WAY>(memory + j, part.shared_line(r) + j);
    }
}

/* Lines with gaps. */
template <way WAY, int WIDTH, class T> TN_DEVICE void move_each(const patch_part<T> &part) {
#pragma unroll 1
    for (int i = (int)threadIdx.x % 32; i < PATCH_ROWS * WIDTH; i += 32) {
        const int r = i % PATCH_ROWS, j = i / PATCH_ROWS;
        if (r < part.rows && j < part.cols) move_one<WAY>(part.line(r) + j * part.col, part.shared_line(r) + j);
    }
}

/* What a warp has of tensor cores: of every 8 columns, lane l has columns 2 * (l % 4) and the next one, of row l / 4
 * and of row l / 4 + 8. READ: what the patch has is added to them; else they go to the patch. */
template <way WAY, bool IN_TWOS, int WIDTH, class T> TN_DEVICE void meet_sums(const patch_part<T> &part, f32 *sums) {
    const int lane = (int)threadIdx.x % 32, own = lane % 4 * 2;
    T *const lines[2] = {part.shared_line(lane / 4) + own, part.shared_line(lane / 4 + 8) + own};
#pragma unroll
    for (int i = 0; i < WIDTH / 4; i++) {
        T *at = lines[i % 2] + i / 2 * 8;
        vec<T, 2> two;
        if (WAY == READ) {
            if (IN_TWOS)
                two = *(const vec<T, 2> *)at;
            else
                two = {at[0], at[1]};
            sums[2 * i] += widen(two.v[0]);
            sums[2 * i + 1] += widen(two.v[1]);
            continue;
        }
        two = narrow_vector<T, 2>(sums + 2 * i);
        if (IN_TWOS) {
            *(vec<T, 2> *)at = two;
        } else {
            at[0] = two.v[0];
            at[1] = two.v[1];
        }
    }
}
template <way WAY, int WIDTH, class T> TN_DEVICE void meet_sums(const patch_part<T> &part, f32 *sums) {
    if (part.in_twos())
        meet_sums<WAY, true, WIDTH>(part, sums);
    else
        meet_sums<WAY, false, WIDTH>(part, sums);
}

template <way WAY, int WIDTH, class T> TN_DEVICE void move_part(const patch_part<T> &part) {
    if (part.col != 1) {
        move_each<WAY, WIDTH>(part);
        return;
    }
    move_ends<WAY>(part);
    if constexpr (WAY != SEND) move_pieces<WAY, WIDTH>(part);
}

template <int WIDTH, class T> TN_DEVICE void add_part(const patch_part<T> &part, f32 *sums) {
    bulk_sent();
    __syncwarp();
    move_part<READ, WIDTH>(part);
    __syncwarp();
    meet_sums<READ, WIDTH>(part, sums);
}

template <way WAY, int WIDTH, class T> TN_DEVICE void put_part(const patch_part<T> &part, f32 *sums) {
    bulk_sent();
    __syncwarp();
    meet_sums<WRITE, WIDTH>(part, sums);
    bulk_written();
    __syncwarp();
    move_part<WAY, WIDTH>(part);
}

/* The warp's 16 rows and WIDTH columns of a tile, which begin at (row, col) of y. `patch`: PATCH_ROWS lines of
 * PATCH_PITCH bytes, the warp's own. Whoever sends waits with bulk_sent before the patch goes. */
template <class T, int WIDTH, way WAY>
TN_DEVICE void put_patch(const tni_gpu_product &p, const tile_end<T> &e, char *patch, i64 row, i64 col, f32 *sums) {
    if (row >= e.rows || col >= p.n) return;
    const int rows = e.rows - row < PATCH_ROWS ? (int)(e.rows - row) : PATCH_ROWS;
    const int cols = p.n - col < WIDTH ? (int)(p.n - col) : WIDTH;
    auto part_of = [&](const T *data, i64 row_step, i64 col_step) {
        return patch_part<T>{
            (T *)data + row * row_step + col * col_step, row_step, col_step, rows, cols, patch, PATCH_PITCH<T, WIDTH>};
    };
    const f32 alpha = (f32)p.alpha;
#pragma unroll
    for (int i = 0; i < WIDTH / 2; i++) sums[i] *= alpha;
#pragma unroll 1 /* the code is short then */
    for (int i = 0; i < 2; i++) {
        const T *from = i ? e.residual : e.bias;
        if (from) add_part<WIDTH>(part_of(from, i ? p.residual.row : 0, i ? p.residual.col : p.bias_step), sums);
    }
#pragma unroll 1
    for (int i = 0; i < 2; i++) {
        T *to = i ? e.y : e.z;
        if (!to) continue;
        if (i && p.relu) {
#pragma unroll
            for (int k = 0; k < WIDTH / 2; k++) sums[k] = sums[k] < 0 ? 0 : sums[k];
        }
        put_part<WAY, WIDTH>(part_of(to, i ? p.y.row : p.z.row, i ? p.y.col : p.z.col), sums);
    }
}

#endif
