/* Products of 16-bit numbers on Hopper's tensor cores. A block makes tiles of 128 x 256 or 128 x 128 elements of y, one
 * after the other. One thread fetches: boxes of a and b, 64 of k at a time, into a ring in shared memory. Two groups of
 * four warps multiply 64 rows each, and write them. */
#include "product.cuh"
#include "warpgroup.cuh"

enum {
    ROWS = 128,
    STEP = 64, /* of k: 128 bytes */
    THREADS = 384,
    GROUP = 128, /* threads that multiply together */
    BOX = 8192,  /* bytes of 64 lines */
};

template <int COLS> struct ring {
    enum {
        A_BYTES = ROWS * 128,
        B_BYTES = COLS * 128,
        BYTES = A_BYTES + B_BYTES,
        STAGES = COLS == 256 ? 4 : 6,
    };
    char *data;
    u64 *full, *empty;
    int stage;
    u32 parity;

    /* At the beginning of the block's dynamic shared memory, from the next multiple of 1024 bytes on. */
    TN_MEMBER ring() : stage(0), parity(0) {
        char *memory = (char *)dynamic_shared_128();
        const u32 off = shared_address(memory) % 1024;
        data = memory + (off ? 1024 - off : 0);
        full = (u64 *)(data + STAGES * BYTES);
        empty = full + STAGES;
    }
    TN_MEMBER void prepare() const {
        for (int s = 0; s < STAGES; s++) {
            barrier_prepare(full + s, 1);
            barrier_prepare(empty + s, 2 * GROUP / 32);
        }
        barriers_prepared();
    }
    TN_MEMBER char *a() const {
        return data + stage * BYTES;
    }
    TN_MEMBER char *b() const {
        return a() + A_BYTES;
    }
    TN_MEMBER void next() {
        stage = stage + 1 == STAGES ? 0 : stage + 1;
        parity ^= stage == 0;
    }
};

/* Where matrix `index` of the batch is among those of a map: not every loop of the batch is one of the matrix's. */
TN_DEVICE void find_matrix(const tni_gpu_product &p, const tni_gpu_matrix &x, i64 index, int (&at)[5]) {
    at[2] = at[3] = at[4] = 0;
#pragma unroll
    for (int d = 2; d >= 0; d--) {
        if (d >= p.n_batch) continue;
        const i64 rest = index / p.batch[d];
        if (x.batch[d]) at[2 + d] = (int)(index - rest * p.batch[d]);
        index = rest;
    }
}

/* LINES rows of a or columns of b from `line` on, 64 of k from l on. TURNED: dense across k, so in several boxes. */
template <int LINES, bool TURNED>
TN_DEVICE void fetch_side(char *to, const tensor_map *map, int (&at)[5], i64 line, i64 l, u64 *barrier) {
    if constexpr (TURNED) {
#pragma unroll
        for (int i = 0; i < LINES / 64; i++) {
            at[0] = (int)line + 64 * i;
            at[1] = (int)l;
            fetch_box(to + i * BOX, map, at, barrier);
        }
    } else {
        at[0] = (int)l;
        at[1] = (int)line;
        fetch_box(to, map, at, barrier);
    }
}

template <int COLS, bool A_TURNED, bool B_TURNED>
TN_DEVICE void fetch_tiles(const tni_gpu_warpgroup &w, i64 tiles, ring<COLS> r) {
    const tni_gpu_product &p = w.product;
    for (i64 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const tile_spot spot = find_tile(p, tile, ROWS, COLS);
        int a[5], b[5];
        find_matrix(p, p.a, spot.index, a);
        find_matrix(p, p.b, spot.index, b);
        for (i64 l = 0; l < p.k; l += STEP) {
            barrier_wait(r.empty + r.stage, r.parity ^ 1);
            barrier_expect(r.full + r.stage, ring<COLS>::BYTES);
            fetch_side<ROWS, A_TURNED>(r.a(), (const tensor_map *)&w.a, a, spot.row, l, r.full + r.stage);
            fetch_side<COLS, B_TURNED>(r.b(), (const tensor_map *)&w.b, b, spot.col, l, r.full + r.stage);
            r.next();
        }
    }
}

/* What a group of four warps adds up of the ring's current stage. */
template <class T, int COLS, bool A_TURNED, bool B_TURNED>
TN_DEVICE void multiply_stage(const ring<COLS> &r, int group, f32 (&sums)[COLS / 2]) {
    const u32 a = shared_address(r.a()) + (u32)group * BOX, b = shared_address(r.b());
    products_begin();
#pragma unroll
    for (int i = 0; i < STEP / 16; i++) {
        const u32 along = (u32)i * 32, across = (u32)i * 2048;
        multiply_shared<A_TURNED, B_TURNED>(T{}, sums, matrix_at(a + (A_TURNED ? across : along), BOX),
                                            matrix_at(b + (B_TURNED ? across : along), BOX));
    }
    products_commit();
}

template <class T, int COLS>
TN_DEVICE void put_tile(const tni_gpu_product &p, const tile_spot &spot, int group, const f32 (&sums)[COLS / 2]) {
    const tile_end<T> end = end_of<T>(p, spot.index);
    const int thread = (int)threadIdx.x % GROUP;
    const i64 row = spot.row + group * 64 + thread / 32 * 16 + thread % 32 / 4, col = spot.col + thread % 4 * 2;
#pragma unroll
    for (int i = 0; i < COLS / 2; i++) put(p, end, row + i % 4 / 2 * 8, col + i / 4 * 8 + i % 2, sums[i]);
}

template <class T, int COLS, bool A_TURNED, bool B_TURNED>
TN_DEVICE void multiply_tiles(const tni_gpu_product &p, i64 tiles, int group, ring<COLS> r) {
    const bool speaks = threadIdx.x % 32 == 0;
    for (i64 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const tile_spot spot = find_tile(p, tile, ROWS, COLS);
        f32 sums[COLS / 2] = {};
        int before = -1; /* the stage that is still being multiplied */
        for (i64 l = 0; l < p.k; l += STEP) {
            barrier_wait(r.full + r.stage, r.parity);
            multiply_stage<T, COLS, A_TURNED, B_TURNED>(r, group, sums);
            products_wait<1>();
            if (before >= 0 && speaks) barrier_arrive(r.empty + before);
            before = r.stage;
            r.next();
        }
        products_wait<0>();
        if (before >= 0 && speaks) barrier_arrive(r.empty + before);
        put_tile<T, COLS>(p, spot, group, sums);
    }
}

template <class T, int COLS, bool A_TURNED, bool B_TURNED> TN_DEVICE void make_tiles(const tni_gpu_warpgroup &p) {
    const ring<COLS> r;
    const i64 tiles = p.tiles;
    if (threadIdx.x == 0) r.prepare();
    __syncthreads();
    if (threadIdx.x < GROUP) {
        give_registers<40>();
        if (threadIdx.x == 0) fetch_tiles<COLS, A_TURNED, B_TURNED>(p, tiles, r);
    } else {
        take_registers<232>();
        multiply_tiles<T, COLS, A_TURNED, B_TURNED>(p.product, tiles, (int)threadIdx.x / GROUP - 1, r);
    }
}

#define PRODUCT(T, name, cols, a, b, a_turned, b_turned)                                     \
    TN_ROW_KERNEL(product_warpgroup_##cols##_##a##b##_##name, THREADS, 1, tni_gpu_warpgroup, \
                  (make_tiles<T, cols, a_turned, b_turned>(p)))
/* Of a dense across k and b along it there is none: products of networks have no such pair. */
#define PRODUCTS(T, name, cols)                \
    PRODUCT(T, name, cols, t, t, false, false) \
    PRODUCT(T, name, cols, t, f, false, true)  \
    PRODUCT(T, name, cols, f, f, true, true)
PRODUCTS(f16, f16, 256)
PRODUCTS(bf16, bf16, 256)
PRODUCTS(f16, f16, 128)
PRODUCTS(bf16, bf16, 128)
