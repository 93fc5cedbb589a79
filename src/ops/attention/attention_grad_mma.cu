/* The gradient of attention of 16-bit numbers on tensor cores (sm_80 and later), in two kernels, each of which makes
 * the scores again: one has rows and goes along the keys for dq, the other has keys and goes along the rows for dk
 * and dv.
 * So every sum is made by one warp, in one order. */
#include "attention_mma.cuh"

/* Of the pair of row r and key j, from products of q and k and of dy and v. */
struct slopes {
    f32 weight, inner;
};
template <class T>
TN_DEVICE slopes slopes_of(const tni_gpu_attention &p, const query_spot &s, i64 j, bool seen, f32 product, f32 value,
                           f32 lse, f32 delta) {
    if (!seen || j < first_key(p, s.i) || j >= end_of_keys(p, s.i)) return {0, 0};
    const f32 raw = product * (f32)p.scale, score = end_score<T>(p, s, j, cap_score(p, raw));
    if (score == minus_infinity<f32>()) return {0, 0};
    const f32 weight = ex2_approx((score - lse) * LOG2_OF_E);
    return {weight, weight * (value - delta) * (f32)p.scale * cap_slope(p, raw)};
}
/* The same without bias, mask or cap, where the row sees the key. */
TN_DEVICE slopes plain_slopes(const tni_gpu_attention &p, f32 product, f32 value, f32 lse, f32 delta) {
    const f32 score = product * (f32)p.scale, weight = ex2_approx((score - lse) * LOG2_OF_E);
    if (score == minus_infinity<f32>()) return {0, 0};
    return {weight, weight * (value - delta) * (f32)p.scale};
}

TN_DEVICE f32 lse_of(const tni_gpu_attention &p, const query_spot &s) {
    return ((const f32 *)p.lse.data)[place(p.lse, s.p, s.h, s.i, 0)];
}
TN_DEVICE f32 delta_of(const tni_gpu_attention &p, const query_spot &s) {
    return ((const f32 *)p.delta)[((i64)s.p * p.hq + s.h) * p.m + s.i];
}

/* ---- dq ---------------------------------------------------------------------------------------------------------- */

/* scores become slopes. */
template <class T, int KEYS>
TN_DEVICE void slope_rows(const tni_gpu_attention &p, const head_tile &t, i64 row, i64 rows, i64 key, bool whole,
                          f32 (&scores)[KEYS / 8][4], const f32 (&values)[KEYS / 8][4]) {
    const int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const i64 r = row + lane / 4 + half * 8;
        const query_spot s = spot_of(p, t.b, t.h, r < rows ? r : rows - 1);
        const f32 lse = lse_of(p, s), delta = delta_of(p, s);
#pragma unroll
        for (int j = 0; j < KEYS / 8; j++) {
#pragma unroll
            for (int i = 0; i < 2; i++) {
                f32 &score = scores[j][half * 2 + i];
                const f32 value = values[j][half * 2 + i];
                score =
                    whole
                        ? plain_slopes(p, score, value, lse, delta).inner
                        : slopes_of<T>(p, s, key + j * 8 + lane % 4 * 2 + i, r < rows, score, value, lse, delta).inner;
            }
        }
    }
}

template <class T, int SIZE> TN_DEVICE void make_dq_tile(const tni_gpu_attention &p) {
    enum { WARPS = 4, ROWS = WARPS * 16, THREADS = WARPS * 32, KEYS = 64, TILE = KEYS * SIZE / PIECE };
    words *shared = dynamic_shared_128();
    const tile<T, SIZE> q = {shared}, dy = {shared + TILE};
    const i64 rows = p.m * p.group, tiles = (rows + ROWS - 1) / ROWS;
    const head_tile t = find_head_tile(p, tiles);
    const i64 first = (tiles - 1 - t.tile) * ROWS, last = (first + ROWS < rows ? first + ROWS : rows) - 1;
    const i64 begin = first_key(p, first / p.group) / KEYS * KEYS, end = end_of_keys(p, last / p.group);
    auto stage = [&](i64 key) { return shared + (2 + key / KEYS % 2 * 2) * TILE; };
    auto fetch = [&](i64 key) {
        const tile<T, SIZE> k = {stage(key)}, v = {stage(key) + TILE};
        k.template fetch<KEYS>(THREADS, p.d, keys_from<T>{p.k, t.b, t.h, key, p.n});
        v.template fetch<KEYS>(THREADS, p.dy.data ? p.e : 0, keys_from<T>{p.v, t.b, t.h, key, p.n});
    };
    q.template fetch<ROWS>(THREADS, p.d, rows_from<T>{p, p.q, t.b, t.h, first, rows});
    dy.template fetch<ROWS>(THREADS, p.dy.data ? p.e : 0, rows_from<T>{p, p.dy, t.b, t.h, first, rows});
    if (begin < end) fetch(begin);
    copy_commit();
    const int line = (int)threadIdx.x / 32 * 16;
    f32 sums[SIZE / 8][4] = {};
    for (i64 key = begin; key < end; key += KEYS) {
        copy_wait_for<0>();
        __syncthreads();
        if (key + KEYS < end) fetch(key + KEYS);
        copy_commit();
        const tile<T, SIZE> k = {stage(key)}, v = {stage(key) + TILE};
        f32 scores[KEYS / 8][4] = {}, values[KEYS / 8][4] = {};
        multiply_lines(q, line, k, scores);
        multiply_lines(dy, line, v, values);
        const bool whole = is_plain(p) && see_all(p, first, last, key, key + KEYS) && first + ROWS <= rows;
        slope_rows<T, KEYS>(p, t, first + line, rows, key, whole, scores, values);
        multiply_weights(scores, k, sums);
    }
    const f32 by[2] = {1, 1};
    put_lines<T, SIZE>(sums, by, p.d, p.dq.at[3], rows_from<T>{p, p.dq, t.b, t.h, first + line, rows});
    const u32 odd = odd_lines(sums);
    if (odd == 0) return;
    __syncwarp();
#pragma unroll 1
    for (int i = 0; i < 16 && first + line + i < rows; i++) {
        const query_spot s = spot_of(p, t.b, t.h, first + line + i);
        const f32 lse = lse_of(p, s);
        if (odd >> i & 1 && lse == lse) make_dq<T>(p, s, 0);
    }
}

/* ---- dk and dv --------------------------------------------------------------------------------------------------- */

/* Lines are keys here, and columns rows of q: scores become weights, values slopes. */
template <class T, int ROWS>
TN_DEVICE void slope_keys(const tni_gpu_attention &p, const head_tile &t, i64 row, i64 rows, i64 key, bool whole,
                          const f32 *lse, const f32 *delta, f32 (&scores)[ROWS / 8][4], f32 (&values)[ROWS / 8][4]) {
    const int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int j = 0; j < ROWS / 8; j++) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int column = j * 8 + lane % 4 * 2 + i;
            const i64 r = row + column;
            const query_spot s = whole ? query_spot{0, 0, 0} : spot_of(p, t.b, t.h, r < rows ? r : rows - 1);
#pragma unroll
            for (int half = 0; half < 2; half++) {
                f32 &score = scores[j][half * 2 + i], &value = values[j][half * 2 + i];
                const slopes made = whole ? plain_slopes(p, score, value, lse[column], delta[column])
                                          : slopes_of<T>(p, s, key + lane / 4 + half * 8, r < rows, score, value,
                                                         lse[column], delta[column]);
                score = made.weight;
                value = made.inner;
            }
        }
    }
}

/* The first and the last row that see some of keys first … last. */
TN_DEVICE i64 first_row(const tni_gpu_attention &p, i64 key) {
    const i64 i = key - p.after - (p.n - p.m);
    return i < 0 ? 0 : i < p.m ? i * p.group : p.m * p.group;
}
TN_DEVICE i64 end_of_rows(const tni_gpu_attention &p, i64 key) {
    const i64 i = key + p.before - (p.n - p.m) + 1;
    return i < 0 ? 0 : i < p.m ? i * p.group : p.m * p.group;
}

template <class T, int SIZE> TN_DEVICE void make_dkv_tile(const tni_gpu_attention &p) {
    enum { WARPS = 4, KEYS = WARPS * 16, THREADS = WARPS * 32, ROWS = 32, KEY_TILE = KEYS * SIZE / PIECE };
    enum { TILE = ROWS * SIZE / PIECE, STAGE = 2 * TILE + 2 * ROWS / 4 };
    words *shared = dynamic_shared_128();
    const tile<T, SIZE> k = {shared}, v = {shared + KEY_TILE};
    const i64 rows = p.m * p.group, tiles = (p.n + KEYS - 1) / KEYS;
    const head_tile t = find_head_tile(p, tiles);
    const i64 first = t.tile * KEYS, last = (first + KEYS < p.n ? first + KEYS : p.n) - 1;
    const i64 begin = first_row(p, first) / ROWS * ROWS, end = end_of_rows(p, last);
    auto stage = [&](i64 row) { return shared + 2 * KEY_TILE + (row / ROWS % 2) * STAGE; };
    auto fetch = [&](i64 row) {
        const tile<T, SIZE> q = {stage(row)}, dy = {stage(row) + TILE};
        f32 *of_rows = (f32 *)(stage(row) + 2 * TILE);
        q.template fetch<ROWS>(THREADS, p.d, rows_from<T>{p, p.q, t.b, t.h, row, rows});
        dy.template fetch<ROWS>(THREADS, p.dy.data ? p.e : 0, rows_from<T>{p, p.dy, t.b, t.h, row, rows});
        if (threadIdx.x < ROWS) {
            const i64 r = row + threadIdx.x;
            const query_spot s = spot_of(p, t.b, t.h, r < rows ? r : rows - 1);
            of_rows[threadIdx.x] = lse_of(p, s);
            of_rows[ROWS + threadIdx.x] = delta_of(p, s);
        }
    };
    k.template fetch<KEYS>(THREADS, p.d, keys_from<T>{p.k, t.b, t.h, first, p.n});
    v.template fetch<KEYS>(THREADS, p.dy.data ? p.e : 0, keys_from<T>{p.v, t.b, t.h, first, p.n});
    if (begin < end) fetch(begin);
    copy_commit();
    const int line = (int)threadIdx.x / 32 * 16;
    f32 dk[SIZE / 8][4] = {}, dv[SIZE / 8][4] = {};
    for (i64 row = begin; row < end; row += ROWS) {
        copy_wait_for<0>();
        __syncthreads();
        if (row + ROWS < end) fetch(row + ROWS);
        copy_commit();
        const tile<T, SIZE> q = {stage(row)}, dy = {stage(row) + TILE};
        const f32 *of_rows = (const f32 *)(stage(row) + 2 * TILE);
        f32 scores[ROWS / 8][4] = {}, values[ROWS / 8][4] = {};
        multiply_lines(k, line, q, scores);
        multiply_lines(v, line, dy, values);
        const bool whole = is_plain(p) && row + ROWS <= rows && see_all(p, row, row + ROWS - 1, first, first + KEYS);
        slope_keys<T, ROWS>(p, t, row, rows, first + line, whole, of_rows, of_rows + ROWS, scores, values);
        multiply_weights(scores, dy, dv);
        multiply_weights(values, q, dk);
    }
    const f32 by[2] = {1, 1};
    const i64 key = first + line;
    u32 odd = 0;
    if (p.dk.data) put_lines<T, SIZE>(dk, by, p.d, p.dk.at[3], keys_from<T>{p.dk, t.b, t.h, key, p.n});
    if (p.dv.data) put_lines<T, SIZE>(dv, by, p.e, p.dv.at[3], keys_from<T>{p.dv, t.b, t.h, key, p.n});
    odd |= odd_lines(dk) | odd_lines(dv);
    if (odd == 0) return;
    __syncwarp();
#pragma unroll 1
    for (int i = 0; i < 32; i++) {
        const bool of_v = i >= 16;
        if (key + i % 16 < p.n && odd >> i % 16 & 1 && (of_v ? p.dv.data : p.dk.data))
            make_dkv<T>(p, t.b, t.h, key + i % 16, 0, of_v);
    }
}

#define BACK(T, size)                                                                                        \
    TN_ROW_KERNEL(attention_grad_mma_dq_##size##_##T, 128, 1, tni_gpu_attention, (make_dq_tile<T, size>(p))) \
    TN_ROW_KERNEL(attention_grad_mma_dkv_##size##_##T, 128, 1, tni_gpu_attention, (make_dkv_tile<T, size>(p)))
#define KERNELS(T) BACK(T, 64) BACK(T, 128)
KERNELS(f16)
KERNELS(bf16)
