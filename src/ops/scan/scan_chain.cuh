/* What tiles of a row tell each other, so that each element is read once (scan.cuh).
 *
 * A tile tells its total as soon as it has read its elements. What stands in front of it is put together from what the
 * tiles before it tell: their blocks began earlier, so none waits for a block that cannot begin. SLOTS tiles are a
 * group. A tile puts together the totals of its group, in order, and of the groups before it the totals behind the
 * nearest group that tells all that is up to its end. Either way the same things are put together in the same order,
 * so a row has the same bits every time.
 *
 * A state is told in words of 64 bits: 32 of its own, and a mark above them. So a word says whether it has been
 * written, and no fence is needed. All are 0 before the kernel begins (scan_clear_words). */
#pragma once

#include "scan_job.cuh"

#ifdef __CUDACC__

#include "cuda/device/device.cuh"

template <class S> TN_DEVICE void scan_tell(u64 *to, const S &a) {
    const scan_parts<S> parts(a);
#pragma unroll
    for (int k = 0; k < parts.COUNT; k++) store_relaxed(to + k, (u64)1 << 32 | parts.w[k]);
}

template <class S> TN_DEVICE bool scan_is_told(const u64 *from, S &a) {
    scan_parts<S> parts;
    bool there = true;
#pragma unroll
    for (int k = 0; k < parts.COUNT; k++) {
        const u64 word = load_relaxed(from + k);
        there = there && word >> 32;
        parts.w[k] = (u32)word;
    }
    a = parts.whole();
    return there;
}

/* A block has V columns for each of LANES lanes; a row is one column. all: of this tile, of the columns from `column`
 * on, if they are `there`; prefix: what stands in front of it. By every thread of the block. */
template <class Op, int V, int LANES>
TN_DEVICE void scan_chain(const tni_gpu_scan &p, i64 tile, i64 column, bool there, const typename Op::state (&all)[V],
                          typename Op::state (&prefix)[V]) {
    typedef typename Op::state state;
    constexpr int SLOTS = LANES == 1 ? TNI_SCAN_ROW_GROUP : TNI_SCAN_COLUMN_GROUP, WORDS = scan_parts<state>::COUNT;
    alignas(16) __shared__ unsigned char memory[SLOTS * V * LANES * sizeof(state)];
    __shared__ bool is_prefix[SLOTS * V * LANES]; /* what was told of a group: all up to its end */
    state *const told = (state *)memory;
    const int lane = (int)threadIdx.x % LANES, slot = (int)threadIdx.x / LANES;
    const i64 group = tile / SLOTS, at = tile % SLOTS, groups = p.tiles / SLOTS; /* whole ones: the last tells nobody */
    u64 *const totals = (u64 *)p.words, *const group_totals = totals + p.tiles * p.rows * WORDS,
               *const prefixes = group_totals + groups * p.rows * WORDS;
    const bool asks = there && slot < SLOTS, tells = there && slot == 0, ends_group = at == SLOTS - 1;
    wait_for_last(); /* until all words are 0 */
#pragma unroll
    for (int v = 0; v < V; v++) {
        if (tells) scan_tell(totals + (tile * p.rows + column + v) * WORDS, all[v]);
    }
#pragma unroll
    for (int v = 0; v < V; v++) {
        const u64 *const from = totals + ((tile - at + slot) * p.rows + column + v) * WORDS;
        while (asks && slot < at && !scan_is_told(from, told[(slot * V + v) * LANES + lane])) rest();
    }
    __syncthreads();
#pragma unroll
    for (int v = 0; v < V; v++) {
        prefix[v] = Op::none();
        for (int k = 0; k < at; k++) prefix[v] = Op::join(p, prefix[v], told[(k * V + v) * LANES + lane]);
        if (tells && ends_group)
            scan_tell(group_totals + (group * p.rows + column + v) * WORDS, Op::join(p, prefix[v], all[v]));
    }
    state before[V];
#pragma unroll
    for (int v = 0; v < V; v++) before[v] = Op::none();
    for (bool done = group == 0; !done;) {
        __syncthreads();
#pragma unroll
        for (int v = 0; v < V; v++) {
            const i64 word = ((group - 1 - slot) * p.rows + column + v) * WORDS;
            state &a = told[(slot * V + v) * LANES + lane];
            if (!asks) continue;
            bool &ends = is_prefix[(slot * V + v) * LANES + lane];
            ends = true;
            if (slot >= group) {
                a = Op::none(); /* there is no such group */
                continue;
            }
            state total;
            while (!(ends = scan_is_told(prefixes + word, a)) && !scan_is_told(group_totals + word, total)) rest();
            if (!ends) a = total;
        }
        __syncthreads();
        done = true;
#pragma unroll
        for (int v = 0; v < V; v++) {
            int k = 0;
            while (k < SLOTS && !is_prefix[(k * V + v) * LANES + lane]) k++;
            done = done && k < SLOTS;
            before[v] = k < SLOTS ? told[(k * V + v) * LANES + lane] : Op::none();
            while (k > 0) before[v] = Op::join(p, before[v], told[(--k * V + v) * LANES + lane]);
        }
        done = !__syncthreads_or(there && !done);
    }
#pragma unroll
    for (int v = 0; v < V; v++) {
        if (tells && ends_group)
            scan_tell(prefixes + (group * p.rows + column + v) * WORDS,
                      Op::join(p, before[v], Op::join(p, prefix[v], all[v])));
        prefix[v] = Op::join(p, before[v], prefix[v]);
    }
}

TN_DEVICE void scan_clear_words(const tni_gpu_scan &p) {
    let_next_begin();
    const i64 first = (i64)blockIdx.x * TNI_SCAN_THREADS + threadIdx.x, step = (i64)gridDim.x * TNI_SCAN_THREADS;
    for (i64 i = first; i < p.n_words; i += step) ((u64 *)p.words)[i] = 0;
}

#endif
