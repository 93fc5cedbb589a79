/* What the kernels for Hopper's tensor cores have in common: a ring of boxes in shared memory, which one thread
 * fills, 64 of k at a time, and from which two groups of four warps multiply 64 rows each. */
#pragma once

#include "product.cuh"
#include "warpgroup.cuh"

#ifdef __CUDACC__

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

#endif
