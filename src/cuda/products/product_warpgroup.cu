/* Products of 16-bit numbers on Hopper's tensor cores. A block makes tiles of 128 rows and 256, 128 or 64 columns of
 * y, one after the other. One thread fetches: boxes of a and b, 64 of k at a time, into a ring in shared memory. Two
 * groups of four warps multiply 64 rows each, and write them. In a cluster of two, the blocks' tiles lie below each
 * other: each block fetches half of their common b, for both.
 *
 * Where tiles are few, a cluster makes one of them in PARTS: each block multiplies a part of k, sends the others what
 * it has of their columns, and adds up and writes its own ones. */
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

/* Addresses in shared memory are numbers that are known once: the one thread that fetches has no time to work them out
 * again for each step. */
template <int COLS> struct ring {
    enum {
        A_BYTES = ROWS * 128,
        B_BYTES = COLS * 128,
        BYTES = A_BYTES + B_BYTES,
        STAGES = RING / BYTES,
        BEHIND = COLS == 256 ? 1 : 2, /* stages that are still being multiplied when the next one begins */
    };
    u32 data, barriers;
    char *patches;
    int stage;
    u32 parity;
    u32 blocks, rank; /* that share a ring's boxes, below each other; this one's place among them, */
    u32 first;        /* and the first one's in the cluster */

    /* At the beginning of the block's dynamic shared memory, from the next multiple of 1024 bytes on. */
    TN_MEMBER ring(u32 blocks, u32 rank)
        : stage(0), parity(0), blocks(blocks), rank(rank), first(cluster_rank() - rank) {
        char *memory = (char *)dynamic_shared_128();
        const u32 first = shared_address(memory), off = (1024 - first % 1024) % 1024;
        data = first + off;
        patches = memory + off + RING;
        barriers = data + RING + WARPS * PATCH;
        hide(data);
        hide(barriers);
    }
    TN_MEMBER u32 full(int s) const {
        return barriers + 8 * s;
    }
    TN_MEMBER u32 empty(int s) const {
        return barriers + 8 * (STAGES + s);
    }
    TN_MEMBER void prepare() const {
        for (int s = 0; s < STAGES; s++) {
            barrier_prepare(full(s), 1);
            barrier_prepare(empty(s), WARPS * blocks);
        }
        barriers_prepared();
    }
    TN_MEMBER u32 a() const {
        return data + stage * BYTES;
    }
    TN_MEMBER u32 b() const {
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
        if (lane < blocks) barrier_arrive_at(empty(left), first + lane);
    }
};

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

/* Where matrix `index` of the batch is among those of a map: not every loop of the batch is one of the matrix's. */
TN_DEVICE void find_matrix(const tni_gpu_product &p, const tni_gpu_matrix &x, u32 index, int (&at)[5]) {
    at[2] = at[3] = at[4] = 0;
#pragma unroll
    for (int d = 2; d >= 0; d--) {
        if (d >= p.n_batch) continue;
        const u32 size = (u32)p.batch[d], rest = index / size;
        if (x.batch[d]) at[2 + d] = (int)(index - rest * size);
        index = rest;
    }
}

/* 128 rows of a from `line` on, 64 of k from l on. TURNED: dense across k, so in two boxes. */
template <bool TURNED>
TN_DEVICE void fetch_a(u32 to, const tensor_map *map, int (&at)[5], int line, int l, u32 barrier) {
    at[TURNED] = l;
    at[!TURNED] = line;
    fetch_box(to, map, at, barrier);
    if constexpr (TURNED) {
        at[0] += 64;
        fetch_box(to + BOX, map, at, barrier);
    }
}

/* COUNT columns of b from `line` on, for the whole cluster. */
template <int COUNT, bool SHARED, bool TURNED>
TN_DEVICE void fetch_b(u32 to, const tensor_map *map, int (&at)[5], int line, int l, u32 barrier) {
    constexpr int EACH = TURNED ? 64 : COUNT;
    at[TURNED] = l;
#pragma unroll
    for (int i = 0; i < COUNT; i += EACH) {
        at[!TURNED] = line + i;
        if (SHARED)
            fetch_box_for(to + i * 128, map, at, barrier, 3);
        else
            fetch_box(to + i * 128, map, at, barrier);
    }
}

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

/* What a group of four warps adds up of the ring's current stage. */
template <class T, int COLS, bool A_TURNED, bool B_TURNED>
TN_DEVICE void multiply_stage(const ring<COLS> &r, int group, f32 (&sums)[COLS / 2]) {
    constexpr int ALONG = 32, ACROSS = 2048; /* bytes from 16 of k to the next */
    const u64 a = matrix_at(r.a() + (u32)group * BOX, BOX), b = matrix_at(r.b(), BOX);
    products_begin();
#pragma unroll
    for (int i = 0; i < STEP / 16; i++) {
        multiply_shared<A_TURNED, B_TURNED>(T{}, sums, matrix_on(a, i * (A_TURNED ? ACROSS : ALONG)),
                                            matrix_on(b, i * (B_TURNED ? ACROSS : ALONG)));
    }
    products_commit();
}

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

/* The warp's 16 rows of WIDE columns of the tile. */
template <class Y, int WIDE>
TN_DEVICE void put_tile(const tni_gpu_product &p, const tile_end<Y> &end, const tile_spot &spot, int warp,
                        char *patches, f32 *sums) {
    constexpr int MOST = LINE / (int)sizeof(Y), WIDTH = WIDE < MOST ? WIDE : MOST;
#pragma unroll
    for (int i = 0; i < WIDE; i += WIDTH) {
        put_patch<Y, WIDTH, SEND>(p, end, patches + warp * PATCH, spot.row + warp * PATCH_ROWS, spot.col + i,
                                  sums + i / 2);
    }
}

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
        const tile_end<Y> end = end_of<Y>(p, spot.index);
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
