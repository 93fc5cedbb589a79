/* Products of groups on Hopper's tensor cores: as in product_warpgroup.cu, but each warp finds out from the offsets
 * which rows and which matrix a tile is about. A tile of 128 rows begins where its group does; what it reads of the
 * next group's rows is multiplied and not written. Where groups are terms, the lines behind a group's last one are
 * cleared. */
#include "groups.cuh"
#include "ring.cuh"

/* The block's tiles, one after the other, for all lanes of a warp together. */
template <grouping G, int COLS> struct tile_walk {
    const tni_gpu_warpgroup &w;
    row_walk rows;
    u32 next;

    TN_MEMBER tile_walk(const tni_gpu_warpgroup &w) : w(w), rows(w.product, ROWS), next(blockIdx.x) {
    }
    TN_MEMBER bool find(tile_work &work) {
        const u32 tile = next;
        next += gridDim.x;
        if constexpr (G == BY_ROWS) return rows.find(tile, COLS, work);
        if (tile >= (u32)w.tiles) return false;
        find_terms(w.product, tile, ROWS, COLS, rows.wrong, work);
        return true;
    }
};

TN_DEVICE int steps_of(const tile_work &work) {
    return (int)((work.k + STEP - 1) / STEP);
}

/* ---- the thread that fetches, and its warp ----------------------------------------------------------------------- */

template <grouping G, int COLS, bool A_TURNED, bool B_TURNED>
TN_DEVICE void fetch_tile(const tni_gpu_warpgroup &w, const tile_work &work, ring<COLS> &r) {
    const tni_gpu_product &p = w.product;
    const int steps = steps_of(work);
    int a[5], b[5];
    find_matrix(p, p.a, (u32)work.spot.index, a);
    find_matrix(p, p.b, (u32)work.spot.index, b);
    for (int step = 0; step < steps; step++) {
        const u32 full = r.full(r.stage);
        const int at = (int)work.first + step * STEP;
        barrier_wait(r.empty(r.stage), r.parity ^ 1);
        barrier_expect(full, ring<COLS>::BYTES);
        fetch_a<A_TURNED>(r.a(), (const tensor_map *)&w.a, a, (int)work.spot.row, at, full);
        fetch_b<COLS, false, B_TURNED>(r.b(), (const tensor_map *)&w.b, b, (int)work.spot.col, at, full);
        r.next();
    }
}

template <grouping G, int COLS, bool A_TURNED, bool B_TURNED>
TN_DEVICE void fetch_tiles(const tni_gpu_warpgroup &w, ring<COLS> r) {
    tile_walk<G, COLS> walk(w);
    for (tile_work work; walk.find(work);) {
        if (threadIdx.x == 0) fetch_tile<G, COLS, A_TURNED, B_TURNED>(w, work, r);
        __syncwarp();
    }
}

/* ---- the groups that multiply ------------------------------------------------------------------------------------ */

/* The stage has `lines` of k that belong to the group, and then others: which may be NaN, so both sides' become 0. Each
 * group of warps clears the rows of a that it multiplies, and both share the columns of b. */
template <int COLS> TN_DEVICE void clear_behind(const ring<COLS> &r, int group, int lines) {
    enum { PIECES = 8, WARPGROUPS = 2 };
    const int t = (int)threadIdx.x % GROUP;
    for (int i = lines * PIECES + t; i < STEP * PIECES; i += GROUP) {
        clear_piece(r.a() + (u32)group * BOX + 16 * (u32)i);
#pragma unroll
        for (int box = 0; box < COLS / 64; box += WARPGROUPS) {
            if (box + group < COLS / 64) clear_piece(r.b() + (u32)(box + group) * BOX + 16 * (u32)i);
        }
    }
    cleared<WARPGROUPS * GROUP>();
}

/* The sums of a tile, and the stages that they came from are given back. */
template <class T, grouping G, int COLS, bool A_TURNED, bool B_TURNED>
TN_DEVICE void multiply_tile(const tile_work &work, ring<COLS> &r, int group, f32 (&sums)[COLS / 2]) {
    constexpr int BEHIND = ring<COLS>::BEHIND;
    const int count = steps_of(work);
    for (int step = 0; step < count; step++) {
        barrier_wait(r.full(r.stage), r.parity);
        if (G == BY_TERMS && step == count - 1 && work.k % STEP) clear_behind(r, group, (int)(work.k % STEP));
        multiply_stage<T, COLS, A_TURNED, B_TURNED>(r, group, sums);
        products_wait<BEHIND>();
        if (step >= BEHIND) r.leave(BEHIND);
        r.next();
    }
    products_wait<0>();
    for (int ago = count < BEHIND ? count : BEHIND; ago > 0; ago--) r.leave(ago);
}

/* All of the group's rows of the tile are another group's: the tensor cores are left to its neighbour. */
template <int COLS> TN_DEVICE void skip_tile(const tile_work &work, ring<COLS> &r) {
    for (int step = steps_of(work); step > 0; step--) {
        barrier_wait(r.full(r.stage), r.parity);
        r.leave(0);
        r.next();
    }
}

template <class T, grouping G, int COLS, bool A_TURNED, bool B_TURNED>
TN_DEVICE void multiply_tiles(const tni_gpu_warpgroup &w, ring<COLS> r) {
    const tni_gpu_product &p = w.product;
    const int warp = (int)threadIdx.x / 32 - GROUP / 32, group = warp / 4;
    tile_walk<G, COLS> walk(w);
    for (tile_work work; walk.find(work);) {
        if (G == BY_ROWS && work.spot.row + group * (ROWS / 2) >= work.rows) {
            skip_tile(work, r);
            continue;
        }
        f32 sums[COLS / 2] = {};
        multiply_tile<T, G, COLS, A_TURNED, B_TURNED>(work, r, group, sums);
        if (work.wrong) spoil<COLS / 2>(sums);
        put_tile<T, COLS>(p, end_of<T>(p, work.spot.index, work.rows), work.spot, warp, r.patches, sums);
    }
    bulk_sent();
}

template <class T, grouping G, int COLS, bool A_TURNED, bool B_TURNED>
TN_DEVICE void make_tiles(const tni_gpu_warpgroup &p) {
    const ring<COLS> r(1, 0);
    if (threadIdx.x == 0) r.prepare();
    __syncthreads();
    if (threadIdx.x < GROUP) {
        give_registers<40>();
        if (threadIdx.x < 32) fetch_tiles<G, COLS, A_TURNED, B_TURNED>(p, r);
    } else {
        take_registers<232>();
        multiply_tiles<T, G, COLS, A_TURNED, B_TURNED>(p, r);
    }
}

#define PRODUCT(T, cols, ab, grouping, a_turned, b_turned)                            \
    TN_ROW_KERNEL(product_grouped_##cols##_##ab##_##T, THREADS, 1, tni_gpu_warpgroup, \
                  (make_tiles<T, grouping, cols, a_turned, b_turned>(p)))
#define PRODUCTS(T, cols)                       \
    PRODUCT(T, cols, tt, BY_ROWS, false, false) \
    PRODUCT(T, cols, tf, BY_ROWS, false, true)  \
    PRODUCT(T, cols, ff, BY_TERMS, true, true)
PRODUCTS(f16, 256)
PRODUCTS(f16, 128)
PRODUCTS(bf16, 256)
PRODUCTS(bf16, 128)
