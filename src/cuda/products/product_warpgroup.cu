/* Products of 16-bit numbers on Hopper's tensor cores. A block makes tiles of 128 rows and 256, 128 or 64 columns of
 * y, one after the other. One thread fetches: boxes of a and b, 64 of k at a time, into a ring in shared memory. Two
 * groups of four warps multiply 64 rows each, and write them. In a cluster of two, the blocks' tiles lie below each
 * other: each block fetches half of their common b, for both.
 *
 * Where tiles are few, a cluster makes one of them in PARTS: each block multiplies a part of k, sends the others what
 * it has of their columns, and adds up and writes its own ones. */
#include "ring.cuh"

/* Tiles of the cluster: as many times 128 rows as it has blocks below each other. */
template <int COLS> TN_DEVICE tile_spot find_spot(const tni_gpu_product &p, u32 tile, const ring<COLS> &r) {
    tile_spot spot = find_tile(p, tile, ROWS * (int)r.blocks, COLS);
    spot.row += ROWS * r.rank;
    return spot;
}

/* The steps along k that this block makes. */
struct steps {
    int first, last;
};
template <int PARTS> TN_DEVICE steps own_steps(const tni_gpu_product &p) {
    const int all = (int)((p.k + STEP - 1) / STEP), part = PARTS == 1 ? 0 : (int)cluster_rank();
    return {(int)((i64)all * part / PARTS), (int)((i64)all * (part + 1) / PARTS)};
}

/* ---- the thread that fetches ------------------------------------------------------------------------------------- */

/* BLOCKS: of the cluster, below each other. */
template <int COLS, int BLOCKS, bool A_TURNED, bool B_TURNED>
TN_DEVICE void fetch_tiles(const tni_gpu_warpgroup &w, ring<COLS> r, const steps &own) {
    constexpr int SHARE = COLS / BLOCKS;
    const tni_gpu_product &p = w.product;
    const int first = BLOCKS > 1 ? SHARE * (int)r.rank : 0;
    for (u32 tile = cluster_index(); tile < (u32)w.tiles; tile += gridDim.x / cluster_blocks()) {
        const tile_spot spot = find_spot(p, tile, r);
        int a[5], b[5];
        find_matrix(p, p.a, (u32)spot.index, a);
        find_matrix(p, p.b, (u32)spot.index, b);
        for (int step = own.first; step < own.last; step++) {
            const u32 full = r.full(r.stage);
            barrier_wait(r.empty(r.stage), r.parity ^ 1);
            barrier_expect(full, ring<COLS>::BYTES);
            fetch_a<A_TURNED>(r.a(), (const tensor_map *)&w.a, a, (int)spot.row, step * STEP, full);
            fetch_b<SHARE, (BLOCKS > 1), B_TURNED>(r.b() + first * 128, (const tensor_map *)&w.b, b,
                                                   (int)spot.col + first, step * STEP, full);
            r.next();
        }
    }
}

/* ---- the groups that multiply ------------------------------------------------------------------------------------ */

/* The blocks' sums of one tile, in place of the ring: of each part, warp, four of a lane's sums and lane. */
template <int COLS, int PARTS> struct exchange {
    enum { FOURS = COLS / PARTS / 8 };
    u32 data;

    TN_MEMBER u32 place(u32 part, int warp, int four) const {
        return data + 16 * (((part * WARPS + warp) * FOURS + four) * 32 + threadIdx.x % 32);
    }
    /* Its own columns are the first `FOURS * 4` sums then, of all parts in order. */
    TN_MEMBER void add_up(int warp, f32 (&sums)[COLS / 2]) const {
        cluster_arrive();
        cluster_wait(); /* nobody multiplies any more */
#pragma unroll
        for (int i = 0; i < COLS / 8; i++)
            send_four(place(cluster_rank(), warp, i % FOURS), (u32)(i / FOURS), sums + 4 * i);
        cluster_arrive();
        cluster_wait();
#pragma unroll
        for (int i = 0; i < FOURS; i++) {
#pragma unroll
            for (int part = 0; part < PARTS; part++) {
                f32 four[4];
                load_four(place((u32)part, warp, i), four);
#pragma unroll
                for (int j = 0; j < 4; j++) sums[4 * i + j] = part ? sums[4 * i + j] + four[j] : four[j];
            }
        }
    }
    /* What warps do that have no sums. */
    static TN_MEMBER void wait() {
        cluster_arrive();
        cluster_wait();
        cluster_arrive();
        cluster_wait();
    }
};

/* y has type Y: that of a and b, or that of sums. */
template <class T, class Y, int COLS, int PARTS, bool A_TURNED, bool B_TURNED>
TN_DEVICE void multiply_tiles(const tni_gpu_warpgroup &w, ring<COLS> r, const steps &own) {
    constexpr int BEHIND = ring<COLS>::BEHIND;
    const tni_gpu_product &p = w.product;
    const int warp = (int)threadIdx.x / 32 - GROUP / 32, group = warp / 4, count = own.last - own.first;
    for (u32 tile = cluster_index(); tile < (u32)w.tiles; tile += gridDim.x / cluster_blocks()) {
        f32 sums[COLS / 2] = {};
        for (int step = 0; step < count; step++) {
            barrier_wait(r.full(r.stage), r.parity);
            multiply_stage<T, COLS, A_TURNED, B_TURNED>(r, group, sums);
            products_wait<BEHIND>();
            if (step >= BEHIND) r.leave(BEHIND);
            r.next();
        }
        tile_spot spot = find_spot(p, tile, r);
        const tile_end<Y> end = end_of<Y>(p, spot.index, p.m);
        products_wait<0>();
        for (int ago = count < BEHIND ? count : BEHIND; ago > 0; ago--) r.leave(ago);
        if constexpr (PARTS > 1) {
            exchange<COLS, PARTS>{r.data}.add_up(warp, sums);
            spot.col += COLS / PARTS * cluster_rank();
        }
        put_tile<Y, COLS / PARTS>(p, end, spot, warp, r.patches, sums);
    }
    bulk_sent();
}

/* PARTS > 1: as many blocks of a cluster make one tile, and there are no more tiles than clusters. */
template <class T, class Y, int COLS, int PARTS, bool A_TURNED, bool B_TURNED>
TN_DEVICE void make_tiles(const tni_gpu_warpgroup &p) {
    const ring<COLS> r(PARTS > 1 ? 1 : cluster_blocks(), PARTS > 1 ? 0 : cluster_rank());
    const steps own = own_steps<PARTS>(p.product);
    if (threadIdx.x == 0) r.prepare();
    __syncthreads();
    cluster_arrive();
    cluster_wait(); /* every block's barriers are prepared */
    if (threadIdx.x < GROUP) {
        give_registers<40>();
        if (threadIdx.x == 0) {
            if (PARTS == 1 && r.blocks > 1)
                fetch_tiles<COLS, 2, A_TURNED, B_TURNED>(p, r, own);
            else
                fetch_tiles<COLS, 1, A_TURNED, B_TURNED>(p, r, own);
        }
        __syncwarp();
        if constexpr (PARTS > 1) exchange<COLS, PARTS>::wait();
    } else {
        take_registers<232>();
        multiply_tiles<T, Y, COLS, PARTS, A_TURNED, B_TURNED>(p, r, own);
    }
    cluster_arrive();
    cluster_wait(); /* nobody sends anything to a block that has ended */
}

#define PRODUCT(T, Y, name, cols, parts, a, b, a_turned, b_turned)                                     \
    TN_ROW_KERNEL(product_warpgroup_##cols##x##parts##_##a##b##_##name, THREADS, 1, tni_gpu_warpgroup, \
                  (make_tiles<T, Y, cols, parts, a_turned, b_turned>(p)))
/* Of a dense across k and b along it there is none: products of networks have no such pair. */
#define PRODUCTS(T, Y, name, cols, parts)                \
    PRODUCT(T, Y, name, cols, parts, t, t, false, false) \
    PRODUCT(T, Y, name, cols, parts, t, f, false, true)  \
    PRODUCT(T, Y, name, cols, parts, f, f, true, true)
#define WHOLE(T) PRODUCTS(T, T, T, 256, 1) PRODUCTS(T, T, T, 128, 1) PRODUCTS(T, T, T, 64, 1)
#define HALVES(T) PRODUCTS(T, T, T, 256, 2) PRODUCTS(T, T, T, 128, 2)
#define QUARTERS(T) PRODUCTS(T, T, T, 256, 4) PRODUCTS(T, T, T, 128, 4)
WHOLE(f16)
WHOLE(bf16)
HALVES(f16)
HALVES(bf16)
QUARTERS(f16)
QUARTERS(bf16)
PRODUCTS(f16, f32, f16_f32, 256, 1)
PRODUCTS(bf16, f32, bf16_f32, 256, 1)
