/* Products of 16-bit numbers on Hopper's tensor cores. A block makes tiles of 128 rows and 256, 128 or 64 columns of
 * y, one after the other. One thread fetches: boxes of a and b, 64 of k at a time, into a ring in shared memory. Two
 * groups of four warps multiply 64 rows each, and write them. In a cluster of two, the blocks' tiles lie below each
 * other: each block fetches half of their common b, for both. */
#include "product.cuh"
#include "warpgroup.cuh"

enum {
    ROWS = 128,
    STEP = 64, /* of k: 128 bytes */
    THREADS = 384,
    GROUP = 128, /* threads that multiply together */
    BOX = 8192,  /* bytes of 64 lines */
    RING = 4 * (128 + 256) * 128,
    WARPS = 8,  /* that multiply */
    LINE = 256, /* bytes that a warp writes at a time, of each of its 16 rows */
    PATCH = PATCH_ROWS * (LINE + 16),
};

template <int COLS> struct ring {
    enum {
        A_BYTES = ROWS * 128,
        B_BYTES = COLS * 128,
        BYTES = A_BYTES + B_BYTES,
        STAGES = RING / BYTES,
        BEHIND = COLS == 256 ? 1 : 2, /* stages that are still being multiplied when the next one begins */
    };
    char *data;
    char *patches;
    u64 *full, *empty;
    int stage;
    u32 parity;
    u32 blocks, rank; /* of the cluster; this one's place */

    /* At the beginning of the block's dynamic shared memory, from the next multiple of 1024 bytes on. */
    TN_MEMBER ring() : stage(0), parity(0), blocks(cluster_blocks()), rank(cluster_rank()) {
        char *memory = (char *)dynamic_shared_128();
        const u32 off = shared_address(memory) % 1024;
        data = memory + (off ? 1024 - off : 0);
        patches = data + RING;
        full = (u64 *)(patches + WARPS * PATCH);
        empty = full + STAGES;
    }
    TN_MEMBER void prepare() const {
        for (int s = 0; s < STAGES; s++) {
            barrier_prepare(full + s, 1);
            barrier_prepare(empty + s, WARPS * blocks);
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
    /* A warp has read the stage that was the current one `ago` steps ago: every block that filled it may know. */
    TN_MEMBER void leave(int ago) const {
        const u32 lane = threadIdx.x % 32;
        const int left = stage >= ago ? stage - ago : stage - ago + STAGES;
        if (lane < blocks) barrier_arrive_at(empty + left, lane);
    }
};

/* Tiles of the cluster: as many times 128 rows as it has blocks. */
template <int COLS> TN_DEVICE tile_spot find_spot(const tni_gpu_product &p, u32 tile, const ring<COLS> &r) {
    tile_spot spot = find_tile(p, tile, ROWS * (int)r.blocks, COLS);
    spot.row += ROWS * r.rank;
    return spot;
}

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

/* 128 rows of a from `line` on, 64 of k from l on. TURNED: dense across k, so in two boxes. */
template <bool TURNED>
TN_DEVICE void fetch_a(char *to, const tensor_map *map, int (&at)[5], i64 line, i64 l, u64 *barrier) {
    at[TURNED] = (int)l;
    at[!TURNED] = (int)line;
    fetch_box(to, map, at, barrier);
    if constexpr (TURNED) {
        at[0] += 64;
        fetch_box(to + BOX, map, at, barrier);
    }
}

/* This block's share of COLS columns of b from `line` on, for the whole cluster. */
template <int COLS, bool TURNED>
TN_DEVICE void fetch_b(char *to, const tensor_map *map, int (&at)[5], i64 line, i64 l, const ring<COLS> &r) {
    u64 *barrier = r.full + r.stage;
    const int share = COLS / (int)r.blocks, first = share * (int)r.rank, step = TURNED ? 64 : share;
    at[TURNED] = (int)l;
    for (int i = first; i < first + share; i += step) {
        at[!TURNED] = (int)line + i;
        if (r.blocks > 1)
            fetch_box_for(to + i * 128, map, at, barrier, (1u << r.blocks) - 1);
        else
            fetch_box(to + i * 128, map, at, barrier);
    }
}

template <int COLS, bool A_TURNED, bool B_TURNED> TN_DEVICE void fetch_tiles(const tni_gpu_warpgroup &w, ring<COLS> r) {
    const tni_gpu_product &p = w.product;
    for (u32 tile = cluster_index(); tile < (u32)w.tiles; tile += gridDim.x / r.blocks) {
        const tile_spot spot = find_spot(p, tile, r);
        int a[5], b[5];
        find_matrix(p, p.a, spot.index, a);
        find_matrix(p, p.b, spot.index, b);
        for (i64 l = 0; l < p.k; l += STEP) {
            barrier_wait(r.empty + r.stage, r.parity ^ 1);
            barrier_expect(r.full + r.stage, ring<COLS>::BYTES);
            fetch_a<A_TURNED>(r.a(), (const tensor_map *)&w.a, a, spot.row, l, r.full + r.stage);
            fetch_b<COLS, B_TURNED>(r.b(), (const tensor_map *)&w.b, b, spot.col, l, r);
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

/* The warp's 16 rows of the tile. */
template <class Y, int COLS>
TN_DEVICE void put_tile(const tni_gpu_product &p, const tile_end<Y> &end, const tile_spot &spot, int warp,
                        char *patches, f32 (&sums)[COLS / 2]) {
    constexpr int MOST = LINE / (int)sizeof(Y), WIDTH = COLS < MOST ? COLS : MOST;
#pragma unroll
    for (int i = 0; i < COLS; i += WIDTH) {
        put_patch<Y, WIDTH, SEND>(p, end, patches + warp * PATCH, spot.row + warp * PATCH_ROWS, spot.col + i,
                                  sums + i / 2);
    }
}

/* y has type Y: that of a and b, or that of sums. */
template <class T, class Y, int COLS, bool A_TURNED, bool B_TURNED>
TN_DEVICE void multiply_tiles(const tni_gpu_warpgroup &w, ring<COLS> r) {
    constexpr int BEHIND = ring<COLS>::BEHIND;
    const tni_gpu_product &p = w.product;
    const int warp = (int)threadIdx.x / 32 - GROUP / 32, group = warp / 4;
    const int steps = (int)((p.k + STEP - 1) / STEP);
    for (u32 tile = cluster_index(); tile < (u32)w.tiles; tile += gridDim.x / r.blocks) {
        f32 sums[COLS / 2] = {};
        for (int step = 0; step < steps; step++) {
            barrier_wait(r.full + r.stage, r.parity);
            multiply_stage<T, COLS, A_TURNED, B_TURNED>(r, group, sums);
            products_wait<BEHIND>();
            if (step >= BEHIND) r.leave(BEHIND);
            r.next();
        }
        const tile_spot spot = find_spot(p, tile, r);
        const tile_end<Y> end = end_of<Y>(p, spot.index);
        products_wait<0>();
        for (int ago = steps < BEHIND ? steps : BEHIND; ago > 0; ago--) r.leave(ago);
        put_tile<Y, COLS>(p, end, spot, warp, r.patches, sums);
    }
    bulk_sent();
}

template <class T, class Y, int COLS, bool A_TURNED, bool B_TURNED>
TN_DEVICE void make_tiles(const tni_gpu_warpgroup &p) {
    const ring<COLS> r;
    if (threadIdx.x == 0) r.prepare();
    __syncthreads();
    cluster_arrive();
    cluster_wait(); /* every block's barriers are prepared */
    if (threadIdx.x < GROUP) {
        give_registers<40>();
        if (threadIdx.x == 0) fetch_tiles<COLS, A_TURNED, B_TURNED>(p, r);
        __syncwarp();
    } else {
        take_registers<232>();
        multiply_tiles<T, Y, COLS, A_TURNED, B_TURNED>(p, r);
    }
    cluster_arrive();
    cluster_wait(); /* nobody sends anything to a block that has ended */
}

#define PRODUCT(T, Y, name, cols, a, b, a_turned, b_turned)                                  \
    TN_ROW_KERNEL(product_warpgroup_##cols##_##a##b##_##name, THREADS, 1, tni_gpu_warpgroup, \
                  (make_tiles<T, Y, cols, a_turned, b_turned>(p)))
/* Of a dense across k and b along it there is none: products of networks have no such pair. */
#define PRODUCTS(T, Y, name, cols)                \
    PRODUCT(T, Y, name, cols, t, t, false, false) \
    PRODUCT(T, Y, name, cols, t, f, false, true)  \
    PRODUCT(T, Y, name, cols, f, f, true, true)
#define ALL(T, Y, name) PRODUCTS(T, Y, name, 256) PRODUCTS(T, Y, name, 128) PRODUCTS(T, Y, name, 64)
ALL(f16, f16, f16)
ALL(bf16, bf16, bf16)
PRODUCTS(f16, f32, f16_f32, 256)
PRODUCTS(bf16, f32, bf16_f32, 256)
