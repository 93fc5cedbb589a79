/* What the threads of a row know of it, put together: over lanes, warps and the blocks of a cluster, in an order that
 * depends on the length of the row alone. A block joins once, or once for each of several row_joins.
 *
 * S is what is known of some elements: numbers v[N], and
 *     S::none()            of no elements
 *     a.add(b)             a becomes what is known of both
 *     a.add_lanes(count)   of the elements of `count` neighbouring lanes, a power of 2, for each of them */
#pragma once

#include "rows.cuh"

/* The threads of a block that have a row, or a block's piece of one: this one's number among them; they begin with warp
 * `warp`. */
struct row_team {
    int thread, warp, threads;

    TN_MEMBER row_group all() const {
        return {thread, threads};
    }
};

enum { TNI_JOIN_WARPS = TNI_ROW_BLOCK / 32 };

/* apart: what belongs to the last lane of a warp, and another one may have (pairs). */
template <class S> struct row_join { S warp[TNI_JOIN_WARPS], warp_apart[TNI_JOIN_WARPS]; };

/* The same where each block of a cluster has a piece of the row. A cluster that goes from row to row takes two of them
 * in turns, and nothing is overwritten that somebody still needs: a block sends what it knows of row k + 2 only after
 * it has got that of row k + 1 from all blocks, and a block sends that only after all of its threads have read what
 * they need of row k. */
template <class S> struct cluster_join {
    row_join<S> piece;
    S block[TNI_ROW_CLUSTER];
    u64 arrived; /* a barrier: what the blocks of the cluster send */
};

/* To block `rank` of the cluster, whose barrier counts the bytes: nobody else waits, as at a barrier of all threads. */
#if __CUDA_ARCH__ >= 900
TN_DEVICE void send_cluster(float *shared, u32 rank, float a, u64 *arrived) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(
                     cluster_address(shared, rank)),
                 "r"(__float_as_uint(a)), "r"(cluster_address(arrived, rank))
                 : "memory");
}
TN_DEVICE void send_cluster(double *shared, u32 rank, double a, u64 *arrived) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b64 [%0], %1, [%2];" ::"r"(
                     cluster_address(shared, rank)),
                 "l"(__double_as_longlong(a)), "r"(cluster_address(arrived, rank))
                 : "memory");
}
#else
template <class A> TN_DEVICE void send_cluster(A *, u32, A, u64 *) {
}
#endif

template <class S> TN_DEVICE S from_lane(const S &s, int lane) {
    S r;
#pragma unroll
    for (int i = 0; i < S::N; i++) r.v[i] = __shfl_sync(0xffffffffu, s.v[i], lane);
    return r;
}

template <class S> TN_DEVICE void send_state(S *shared, u32 rank, const S &s, u64 *arrived) {
#pragma unroll
    for (int i = 0; i < S::N; i++) send_cluster(shared->v + i, rank, s.v[i], arrived);
}

/* Of `count` states, at most 16, and of those apart where there are any; for every lane. */
template <class S> TN_DEVICE S join_few(const S *state, const S *apart, int count, int count_apart) {
    const int i = threadIdx.x % 16;
    S r = i < count ? state[i] : S::none();
    if (i < count_apart) r.add(apart[i]);
    r.add_lanes(16);
    return r;
}

/* half: what is known of the low and the high halves of a thread's words, and the parity of the row (pairs.cuh). Gives
 * what this thread's two classes have, and the first of them alone where the second belongs to `apart`. */
template <class S> TN_DEVICE S join_halves(const S (&half)[2], int parity, const row_team &t, S *apart) {
    const int lane = threadIdx.x % 32, lanes = min(t.threads, 32), warps = t.threads / 32;
    const S next = from_lane(half[0], (lane & -lanes) | ((lane + 1) & (lanes - 1)));
    S r = parity ? half[1] : half[0];
    const S second = parity ? next : half[1];
    if (t.threads <= 32 || lane < 31) r.add(second);
    if (t.threads > 32 && lane == (parity ? 0 : 31)) {
        const int warp = t.thread / 32;
        apart[t.warp + (parity ? (warp ? warp : warps) - 1 : warp)] = parity ? half[0] : half[1];
    }
    return r;
}

/* Among the threads of a block, all of which call it. SLOTS: 1, or 2 for pairs. */
template <int SLOTS, class S>
TN_DEVICE S join_row(const S (&slot)[SLOTS], int parity, const row_team &t, row_join<S> &shared) {
    constexpr bool PAIRS = SLOTS == 2;
    const int warps = t.threads / 32;
    S r = slot[0];
    if constexpr (PAIRS) r = join_halves(slot, parity, t, shared.warp_apart);
    if (t.threads <= 32) {
        r.add_lanes(t.threads);
        return r;
    }
    r.add_lanes(32);
    if (threadIdx.x % 32 == 0) shared.warp[threadIdx.x / 32] = r;
    __syncthreads();
    return join_few(shared.warp + t.warp, shared.warp_apart + t.warp, warps, PAIRS ? warps : 0);
}

/* Before the first join_pieces, by all threads of the block, as early as can be: blocks of a cluster begin at different
 * times. Between the two they wait for each other (cluster_wait). */
template <int JOINS, class S> TN_DEVICE void begin_pieces(cluster_join<S> (&shared)[JOINS]) {
    if (threadIdx.x == 0) {
#pragma unroll
        for (int i = 0; i < JOINS; i++) bulk_prepare(&shared[i].arrived, 1);
    }
    cluster_begin();
}

/* Of a row whose pieces `cluster` blocks have, by all of their threads; `piece` is what a block knows (join_row). phase
 * is 0 the first time, then 1, 0, … */
template <class S> TN_DEVICE S join_pieces(const S &piece, int cluster, cluster_join<S> &shared, u32 phase) {
    if (threadIdx.x == 0) bulk_expect(&shared.arrived, (u32)(cluster * sizeof(S)));
    if ((int)threadIdx.x < cluster) send_state(shared.block + cluster_rank(), threadIdx.x, piece, &shared.arrived);
    bulk_wait(&shared.arrived, phase);
    return join_few(shared.block, shared.block, cluster, 0);
}
