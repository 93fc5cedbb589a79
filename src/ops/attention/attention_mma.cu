/* attention of 16-bit numbers on tensor cores (sm_80 and later). A warp has 16 rows, and their sums of o in registers;
 * a block's warps share the tiles of keys and values, of which the next ones come while these are worked on. Heads of q
 * that share one of k are rows of the same tiles. Weights are rounded to the type of v. */
#include "attention_mma.cuh"

/* Of a lane's two lines: the largest score, in powers of 2, and the sum of 2^(score - most). */
struct lines_state {
    f32 most[2], sum[2];
};

/* Scores of a tile, times log2(e); -inf where a key takes no part. */
template <class T, int KEYS>
TN_DEVICE void end_scores(const tni_gpu_attention &p, const head_tile &t, i64 row, i64 rows, i64 key, bool whole,
                          f32 (&scores)[KEYS / 8][4]) {
    const int lane = (int)threadIdx.x % 32;
    const f32 scale = (f32)p.scale * LOG2_OF_E;
    if (whole) {
#pragma unroll
        for (int j = 0; j < KEYS / 8; j++) {
#pragma unroll
            for (int i = 0; i < 4; i++) scores[j][i] *= scale;
        }
        return;
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const i64 r = row + lane / 4 + half * 8;
        const query_spot s = spot_of(p, t.b, t.h, r < rows ? r : rows - 1);
        const i64 begin = first_key(p, s.i), end = end_of_keys(p, s.i);
#pragma unroll
        for (int j = 0; j < KEYS / 8; j++) {
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const i64 at = key + j * 8 + lane % 4 * 2 + i;
                f32 score = minus_infinity<f32>();
                if (at >= begin && at < end)
                    score = end_score<T>(p, s, at, cap_score(p, scores[j][half * 2 + i] * (f32)p.scale)) * LOG2_OF_E;
                scores[j][half * 2 + i] = score;
            }
        }
    }
}

/* Scores become weights; what came before is scaled down. */
template <int SIZE, int KEYS>
TN_DEVICE void weigh(f32 (&scores)[KEYS / 8][4], lines_state &state, f32 (&sums)[SIZE / 8][4]) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
        f32 most = minus_infinity<f32>();
#pragma unroll
        for (int j = 0; j < KEYS / 8; j++) most = fmaxf(most, fmaxf(scores[j][half * 2], scores[j][half * 2 + 1]));
        most = fmaxf(state.most[half], reduce_quarter<take_max>(most));
        const f32 shift = most == minus_infinity<f32>() ? 0 : most, down = ex2_approx(state.most[half] - shift);
        f32 sum = 0;
#pragma unroll
        for (int j = 0; j < KEYS / 8; j++) {
#pragma unroll
            for (int i = 0; i < 2; i++) {
                f32 &score = scores[j][half * 2 + i];
                score = ex2_approx(score - shift);
                sum += score;
            }
        }
        state.sum[half] = state.sum[half] * down + sum;
        state.most[half] = most;
#pragma unroll
        for (int c = 0; c < SIZE / 8; c++) {
            sums[c][half * 2] *= down;
            sums[c][half * 2 + 1] *= down;
        }
    }
}

TN_DEVICE lines_state first_state(const tni_gpu_attention &p, const head_tile &t, i64 row, i64 rows) {
    lines_state state;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const i64 r = row + (int)threadIdx.x % 32 / 4 + half * 8;
        const f32 sink = p.sinks ? load_sink<f32>(p, spot_of(p, t.b, t.h, r < rows ? r : rows - 1).h)
                                 : minus_infinity<f32>();
        state.most[half] = sink * LOG2_OF_E;
        state.sum[half] = p.sinks && (int)threadIdx.x % 4 == 0 ? ex2_approx(state.most[half] - state.most[half]) : 0;
    }
    return state;
}

/* o and lse of the warp's lines. A line of o with what is no number, although its scores are: v has one where a key
 * takes no part, maybe. It is made again, key by key. */
template <class T, int SIZE>
TN_DEVICE void end_lines(const tni_gpu_attention &p, const head_tile &t, i64 row, i64 rows, lines_state &state,
                         f32 (&sums)[SIZE / 8][4]) {
    const int lane = (int)threadIdx.x % 32;
    f32 by[2], lse[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const f32 sum = reduce_quarter<take_sum>(state.sum[half]), most = state.most[half];
        const i64 r = row + lane / 4 + half * 8;
        by[half] = sum == 0 ? 0 : 1 / sum;
        lse[half] = ((most == minus_infinity<f32>() ? 0 : most) + lg2_approx(sum)) * LN_OF_2;
        if (p.lse.data && r < rows && lane % 4 == 0) {
            const query_spot s = spot_of(p, t.b, t.h, r);
            ((f32 *)p.lse.data)[place(p.lse, s.p, s.h, s.i, 0)] = lse[half];
        }
    }
    if (!p.o.data) return;
    put_lines<T, SIZE>(sums, by, p.e, p.o.at[3], rows_from<T>{p, p.o, t.b, t.h, row, rows});
    u32 odd = odd_lines(sums);
    if (odd == 0) return;
    __syncwarp();
#pragma unroll 1
    for (int line = 0; line < 16 && row + line < rows; line++) {
        const f32 own = __shfl_sync(0xffffffffu, line < 8 ? lse[0] : lse[1], line % 8 * 4);
        if (odd >> line & 1 && own == own) make_o<T>(p, spot_of(p, t.b, t.h, row + line), 0);
    }
}

template <class T, int SIZE, int WARPS, int KEYS> TN_DEVICE void make_tile(const tni_gpu_attention &p) {
    enum { ROWS = WARPS * 16, THREADS = WARPS * 32, TILE = KEYS * SIZE / PIECE };
    words *shared = dynamic_shared_128();
    const tile<T, SIZE> q = {shared};
    const i64 rows = p.m * p.group, tiles = (rows + ROWS - 1) / ROWS;
    const head_tile t = find_head_tile(p, tiles);
    const i64 first = (tiles - 1 - t.tile) * ROWS, last = (first + ROWS < rows ? first + ROWS : rows) - 1;
    const i64 begin = first_key(p, first / p.group) / KEYS * KEYS, end = end_of_keys(p, last / p.group);
    auto stage = [&](i64 key) { return shared + ROWS * SIZE / PIECE + (key / KEYS % 2) * 2 * TILE; };
    auto fetch = [&](i64 key) {
        const tile<T, SIZE> k = {stage(key)}, v = {stage(key) + TILE};
        k.template fetch<KEYS>(THREADS, p.d, keys_from<T>{p.k, t.b, t.h, key, p.n});
        v.template fetch<KEYS>(THREADS, p.e, keys_from<T>{p.v, t.b, t.h, key, p.n});
    };
    q.template fetch<ROWS>(THREADS, p.d, rows_from<T>{p, p.q, t.b, t.h, first, rows});
    if (begin < end) fetch(begin);
    copy_commit();
    const int line = (int)threadIdx.x / 32 * 16;
    lines_state state = first_state(p, t, first + line, rows);
    f32 sums[SIZE / 8][4] = {};
    for (i64 key = begin; key < end; key += KEYS) {
        copy_wait_for<0>();
        __syncthreads(); /* this tile is there, and nobody reads the one whose place is taken now */
        if (key + KEYS < end) fetch(key + KEYS);
        copy_commit();
        const tile<T, SIZE> k = {stage(key)}, v = {stage(key) + TILE};
        f32 scores[KEYS / 8][4] = {};
        multiply_lines(q, line, k, scores);
        const bool whole = is_plain(p) && see_all(p, first, last, key, key + KEYS);
        end_scores<T, KEYS>(p, t, first + line, rows, key, whole, scores);
        weigh<SIZE, KEYS>(scores, state, sums);
        multiply_weights(scores, v, sums);
    }
    end_lines<T, SIZE>(p, t, first + line, rows, state, sums);
}

#define FORWARD(T, size, warps, keys) \
    TN_ROW_KERNEL(attention_mma_##size##_##T, warps * 32, 1, tni_gpu_attention, (make_tile<T, size, warps, keys>(p)))
#define KERNELS(T) FORWARD(T, 64, 8, 64) FORWARD(T, 128, 8, 64) FORWARD(T, 256, 4, 32)
KERNELS(f16)
KERNELS(bf16)
