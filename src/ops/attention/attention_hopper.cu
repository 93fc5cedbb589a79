/* attention of 16-bit numbers on Hopper's tensor cores. A block has 128 rows of one head. One thread fetches: the rows,
 * then tiles of 128 keys and their values in turn, two of each under way. Two groups of four warps have 64 rows each.
 * While a group's weights are multiplied by values, it makes the next weights, whose scores were multiplied meanwhile;
 * and while one group works with its scores, the other one multiplies. Weights stay in registers. */
#include "attention_mma.cuh"
#include "cuda/products/warpgroup.cuh"

enum {
    ROWS = 128,
    KEYS = 128,
    THREADS = 384,
    GROUP = 128, /* threads that multiply together */
    WARPS = 8,   /* that multiply */
    BOX = 16384, /* bytes of 128 lines of 64 numbers */
    HALF = 8192, /* of 64 of them */
    STAGES = 2,
};

/* Addresses in shared memory: tiles, each in boxes of 64 columns, and barriers. */
template <int SIZE> struct room {
    enum { TILE = SIZE / 64 * BOX };
    u32 data;

    TN_MEMBER room() {
        const u32 first = shared_address(dynamic_shared_128());
        data = (first + 1023) / 1024 * 1024;
        hide(data);
    }
    TN_MEMBER u32 q() const {
        return data;
    }
    TN_MEMBER u32 k(int stage) const {
        return data + (1 + 2 * stage) * TILE;
    }
    TN_MEMBER u32 v(int stage) const {
        return data + (2 + 2 * stage) * TILE;
    }
    TN_MEMBER u32 barrier(int i) const {
        return data + (1 + 2 * STAGES) * TILE + 8 * i;
    }
    TN_MEMBER u32 q_full() const {
        return barrier(0);
    }
    TN_MEMBER u32 full(int stage, bool of_v) const {
        return barrier(1 + stage * 2 + of_v);
    }
    TN_MEMBER u32 empty(int stage, bool of_v) const {
        return barrier(1 + STAGES * 2 + stage * 2 + of_v);
    }
    TN_MEMBER void prepare() const {
        barrier_prepare(q_full(), 1);
        for (int s = 0; s < STAGES; s++) {
            for (int of_v = 0; of_v < 2; of_v++) {
                barrier_prepare(full(s, of_v), 1);
                barrier_prepare(empty(s, of_v), WARPS);
            }
        }
        barriers_prepared();
    }
};

/* A block's rows, and the tiles of keys that they see. */
struct work {
    int b, h;
    i64 row;
    int first, last;
};
TN_DEVICE work find_work(const tni_gpu_attention &p) {
    const i64 tiles = (p.m + ROWS - 1) / ROWS, head = blockIdx.x / tiles;
    const i64 row = (tiles - 1 - blockIdx.x % tiles) * ROWS, end = row + ROWS < p.m ? row + ROWS : p.m;
    const i64 first = first_key(p, row), keys = end_of_keys(p, end - 1);
    return {(int)(head / p.hq), (int)(head % p.hq), row, (int)(first / KEYS), (int)((keys + KEYS - 1) / KEYS)};
}

/* ---- the thread that fetches ------------------------------------------------------------------------------------- */

template <int SIZE>
TN_DEVICE void fetch_tile(u32 to, const unsigned long long *map, int line, int head, int entry, u32 barrier) {
    barrier_expect(barrier, room<SIZE>::TILE);
#pragma unroll
    for (int c = 0; c < SIZE / 64; c++) {
        const int at[5] = {c * 64, line, head, entry, 0};
        fetch_box(to + c * BOX, (const tensor_map *)map, at, barrier);
    }
}

template <int SIZE> TN_DEVICE void fetch_all(const tni_gpu_attention_hopper &p, const room<SIZE> &r, const work &w) {
    const int head = w.h / p.attention.group;
    fetch_tile<SIZE>(r.q(), p.q, (int)w.row, w.h, w.b, r.q_full());
    for (int tile = w.first; tile < w.last; tile++) {
        const int turn = tile - w.first, stage = turn % STAGES;
        const u32 parity = (u32)(turn / STAGES & 1) ^ 1;
        barrier_wait(r.empty(stage, false), parity);
        fetch_tile<SIZE>(r.k(stage), p.k, tile * KEYS, head, w.b, r.full(stage, false));
        barrier_wait(r.empty(stage, true), parity);
        fetch_tile<SIZE>(r.v(stage), p.v, tile * KEYS, head, w.b, r.full(stage, true));
    }
}

/* ---- the groups that multiply ------------------------------------------------------------------------------------ */

TN_DEVICE void leave(u32 barrier) {
    if (threadIdx.x % 32 == 0) barrier_arrive_at(barrier, 0);
}

template <class T, int SIZE>
TN_DEVICE void multiply_keys(const room<SIZE> &r, int stage, int group, f32 (&scores)[KEYS / 2]) {
#pragma unroll
    for (int i = 0; i < KEYS / 2; i++) scores[i] = 0;
    products_begin();
#pragma unroll
    for (int i = 0; i < SIZE / 16; i++) {
        const u32 at = (u32)(i / 4 * BOX + i % 4 * 32);
        multiply_shared<false, false>(T{}, scores, matrix_at(r.q() + group * HALF + at, BOX),
                                      matrix_at(r.k(stage) + at, BOX));
    }
    products_commit();
}

template <class T, int SIZE>
TN_DEVICE void multiply_values(const room<SIZE> &r, int stage, const u32 (&weights)[KEYS / 4], f32 (&sums)[SIZE / 2]) {
    products_begin();
#pragma unroll
    for (int i = 0; i < KEYS / 16; i++) {
        const u32 own[4] = {weights[4 * i], weights[4 * i + 1], weights[4 * i + 2], weights[4 * i + 3]};
        multiply_held<true>(T{}, sums, own, matrix_at(r.v(stage) + i * 2048, BOX));
    }
    products_commit();
}

/* Of a lane's two rows: the largest score, in powers of 2, and the lane's part of the sum of 2^(score - most). */
struct rows_state {
    f32 most[2], sum[2];
};

/* Scores become weights. Returns by how much what came before is scaled down. */
TN_DEVICE void weigh(const tni_gpu_attention &p, i64 row, i64 key, bool whole, f32 (&scores)[KEYS / 2],
                     rows_state &state, f32 (&down)[2]) {
    const int lane = (int)threadIdx.x % 32;
    const f32 scale = (f32)p.scale * LOG2_OF_E;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const i64 i = row + lane / 4 + half * 8;
        const int begin = whole ? 0 : (int)(first_key(p, i) - key), end = whole ? KEYS : (int)(end_of_keys(p, i) - key);
        f32 most = minus_infinity<f32>(), sum = 0;
#pragma unroll
        for (int j = 0; j < KEYS / 4; j++) {
            f32 &score = scores[j / 2 * 4 + half * 2 + j % 2];
            const int at = j / 2 * 8 + lane % 4 * 2 + j % 2;
            if (!whole && (at < begin || at >= end)) score = minus_infinity<f32>();
            most = fmaxf(most, score);
        }
        most = fmaxf(state.most[half], reduce_quarter<take_max>(most) * scale);
        const f32 shift = most == minus_infinity<f32>() ? 0 : most;
        down[half] = ex2_approx(state.most[half] - shift);
#pragma unroll
        for (int j = 0; j < KEYS / 4; j++) {
            f32 &score = scores[j / 2 * 4 + half * 2 + j % 2];
            score = ex2_approx(fmaf(score, scale, -shift));
            sum += score;
        }
        state.sum[half] = state.sum[half] * down[half] + sum;
        state.most[half] = most;
    }
}

template <class T> TN_DEVICE void round_weights(const f32 (&scores)[KEYS / 2], u32 (&weights)[KEYS / 4]) {
#pragma unroll
    for (int i = 0; i < KEYS / 4; i++) weights[i] = narrow_pair(T{}, scores[2 * i], scores[2 * i + 1]);
}

template <int SIZE> TN_DEVICE void scale_down(f32 (&sums)[SIZE / 2], const f32 (&down)[2]) {
#pragma unroll
    for (int i = 0; i < SIZE / 2; i++) sums[i] *= down[i / 2 % 2];
}

/* o and lse of the warp's 16 rows; see end_lines of attention_mma.cu. */
template <class T, int SIZE>
TN_DEVICE void end_rows(const tni_gpu_attention &p, const work &w, i64 row, const rows_state &state,
                        f32 (&sums)[SIZE / 2]) {
    const int lane = (int)threadIdx.x % 32;
    f32 by[2], lse[2], lines[SIZE / 8][4];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const f32 sum = reduce_quarter<take_sum>(state.sum[half]), most = state.most[half];
        const i64 i = row + lane / 4 + half * 8;
        by[half] = sum == 0 ? 0 : 1 / sum;
        lse[half] = ((most == minus_infinity<f32>() ? 0 : most) + lg2_approx(sum)) * LN_OF_2;
        if (p.lse.data && i < p.m && lane % 4 == 0) ((f32 *)p.lse.data)[place(p.lse, w.b, w.h, i, 0)] = lse[half];
    }
    if (!p.o.data) return;
#pragma unroll
    for (int i = 0; i < SIZE / 2; i++) lines[i / 4][i % 4] = sums[i];
    put_lines<T, SIZE>(lines, by, p.e, p.o.at[3], keys_from<T>{p.o, w.b, w.h, row, p.m});
    const u32 odd = odd_lines(lines);
    if (odd == 0) return;
    __syncwarp();
#pragma unroll 1
    for (int line = 0; line < 16 && row + line < p.m; line++) {
        const f32 own = __shfl_sync(0xffffffffu, line < 8 ? lse[0] : lse[1], line % 8 * 4);
        if (odd >> line & 1 && own == own) make_o<T>(p, {w.b, w.h, row + line}, 0);
    }
}

template <class T, int SIZE>
TN_DEVICE void multiply_all(const tni_gpu_attention &p, const room<SIZE> &r, const work &w) {
    const int warp = (int)threadIdx.x / 32 - GROUP / 32, group = warp / 4;
    const i64 row = w.row + warp * 16, last = w.row + ROWS < p.m ? w.row + ROWS : p.m;
    f32 scores[KEYS / 2], sums[SIZE / 2] = {}, down[2];
    u32 weights[KEYS / 4];
    const f32 sink = p.sinks ? load_sink<f32>(p, w.h) * LOG2_OF_E : minus_infinity<f32>();
    const f32 of_sink = p.sinks && threadIdx.x % 4 == 0 ? ex2_approx(sink - sink) : 0;
    rows_state state = {{sink, sink}, {of_sink, of_sink}};
    auto is_whole = [&](int tile) {
        return first_key(p, last - 1) <= (i64)tile * KEYS && end_of_keys(p, w.row) >= (i64)(tile + 1) * KEYS;
    };
    if (w.first < w.last) {
        barrier_wait(r.q_full(), 0);
        barrier_wait(r.full(0, false), 0);
        multiply_keys<T>(r, 0, group, scores);
        products_wait<0>();
        leave(r.empty(0, false));
        weigh(p, row, (i64)w.first * KEYS, is_whole(w.first), scores, state, down);
        round_weights<T>(scores, weights);
        int turn = 0;
        for (int tile = w.first + 1; tile < w.last; tile++, turn++) {
            const int stage = turn % STAGES, next = (turn + 1) % STAGES;
            barrier_wait(r.full(next, false), (u32)((turn + 1) / STAGES & 1));
            multiply_keys<T>(r, next, group, scores);
            barrier_wait(r.full(stage, true), (u32)(turn / STAGES & 1));
            multiply_values<T>(r, stage, weights, sums);
            products_wait<1>();
            leave(r.empty(next, false));
            weigh(p, row, (i64)tile * KEYS, is_whole(tile), scores, state, down);
            products_wait<0>();
            leave(r.empty(stage, true));
            scale_down<SIZE>(sums, down);
            round_weights<T>(scores, weights);
        }
        barrier_wait(r.full(turn % STAGES, true), (u32)(turn / STAGES & 1));
        multiply_values<T>(r, turn % STAGES, weights, sums);
        products_wait<0>();
    }
    end_rows<T, SIZE>(p, w, row, state, sums);
}

template <class T, int SIZE> TN_DEVICE void make_rows(const tni_gpu_attention_hopper &p) {
    const room<SIZE> r;
    const work w = find_work(p.attention);
    if (threadIdx.x == 0) r.prepare();
    __syncthreads();
    if (threadIdx.x < GROUP) {
        give_registers<24>();
        if (threadIdx.x == 0) fetch_all<SIZE>(p, r, w);
    } else {
        take_registers<240>();
        multiply_all<T, SIZE>(p.attention, r, w);
    }
}

#define KERNELS(T)                                                                                      \
    TN_ROW_KERNEL(attention_hopper_64_##T, THREADS, 1, tni_gpu_attention_hopper, (make_rows<T, 64>(p))) \
    TN_ROW_KERNEL(attention_hopper_128_##T, THREADS, 1, tni_gpu_attention_hopper, (make_rows<T, 128>(p)))
KERNELS(f16)
KERNELS(bf16)
