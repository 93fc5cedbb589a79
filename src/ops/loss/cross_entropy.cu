/* cross_entropy: loss, log-sum-exp and, where it is wanted, the gradient, all from one read of the logits. A row is in
 * the registers of some lanes, a block or a cluster of blocks. A cluster goes on to the next row as soon as it is done:
 * a new one would have to wait until there is room for all of its blocks. Without a gradient nothing needs to be held:
 * blocks walk through the rows that one block does not hold. Rows that no cluster holds are split: one kernel finds
 * what a second one needs to write.
 *
 * With m the largest logit and d = log(sum(exp(x - m))), log p[j] = x[j] - m - d: no large numbers cancel. A target
 * that is no class makes its loss and its gradient NaN. */
#include "cross_entropy.cuh"

#include "cuda/rows/join.cuh"
#include "cuda/rows/shares.cuh"

#define LOG2_E 1.4426950408889634074

/* ---- what is known of some elements of a row --------------------------------------------------------------------- */

template <class A> TN_DEVICE A base_of(A most) {
    return most == -infinity<A>() ? 0 : most;
}

/* exp(x - base): exactly 1 where they are equal. */
template <class A> TN_DEVICE A exponential(A x, A base) {
    return power_of_2((x - base) * (A)LOG2_E);
}

/* exp(x - base) for many x, all of them by a factor too large or too small: `corrected` divides by it. */
template <class T> struct exponentials {
    acc<T> base;

    TN_MEMBER acc<T> of(acc<T> x) const {
        return exponential(x, base);
    }
    TN_MEMBER acc<T> corrected(acc<T> a) const {
        return a;
    }
};

/* 2^(scale x - shift), one fma where x - base and its product with log2 e would be two roundings: what `shift` loses by
 * its own is the same factor for all x. It is between 0.95 and 1.05, because numbers of 2^20 and more have another
 * scale, with which shift is exact: those that differ are at least 2^12 apart, so exp(x - base) is 0 or 1, as is
 * 2^(x - base). */
template <class T> struct half_exponentials {
    float base, scale, shift;

    TN_MEMBER half_exponentials(float from)
        : base(from), scale(fabsf(from) < 0x1p20f ? (float)LOG2_E : 1), shift(rounded_product(from, scale)) {
    }
    TN_MEMBER float of(float x) const {
        return power_of_2(tn_fma(x, scale, -shift));
    }
    /* of(base) becomes exactly 1 */
    TN_MEMBER float corrected(float a) const {
        const float factor = of(base), inverse = rcp_approx(factor), quotient = a * inverse;
        return tn_fma(tn_fma(-quotient, factor, a), inverse, quotient);
    }
};
template <> struct exponentials<f16> : half_exponentials<f16> { using half_exponentials<f16>::half_exponentials; };
template <> struct exponentials<bf16> : half_exponentials<bf16> { using half_exponentials<bf16>::half_exponentials; };

/* most: the largest logit; sum: of exp(x - most). With label smoothing, also less: the sum of weight * (base - x), base
 * being most, or 0 where that is -inf; and weights: their sum. */
template <class A, bool SMOOTH> struct partial {
    enum { N = SMOOTH ? 4 : 2 };
    A v[N];

    TN_MEMBER A &most() {
        return v[0];
    }
    TN_MEMBER A &sum() {
        return v[1];
    }
    TN_MEMBER A &less() {
        return v[N - 2];
    }
    TN_MEMBER A &weights() {
        return v[N - 1];
    }
    static TN_MEMBER partial none() {
        partial r = {};
        r.most() = -infinity<A>();
        return r;
    }
    /* The same elements, relative to another number that is not below the largest of them; never inf - inf. */
    TN_MEMBER void rebase(A to) {
        sum() *= exponential(most(), base_of(to));
        if (SMOOTH) less() += weights() * (base_of(to) - base_of(most()));
        most() = to;
    }
    TN_MEMBER void add(partial other) {
        const A larger = take_max::of(most(), other.most());
        rebase(larger);
        other.rebase(larger);
#pragma unroll
        for (int i = 1; i < N; i++) v[i] += other.v[i];
    }
    TN_MEMBER void add_lanes(int lanes) {
        rebase(reduce_some_lanes<take_max>(most(), lanes));
#pragma unroll
        for (int i = 1; i < N; i++) v[i] = reduce_some_lanes<take_sum>(v[i], lanes);
    }
};

/* ---- a row ------------------------------------------------------------------------------------------------------- */

/* Where a row is in one of the tensors. Asked for when it is needed: five of them would take ten registers. There are
 * fewer than 2^31 rows where they have several dimensions. */
TN_DEVICE i64 row_in(const tni_cross_entropy &p, i64 row, int view) {
    i64 at = 0;
#pragma unroll 1
    for (int d = p.rows.n_dims - 1; d > 0; d--) {
        const u32 rest = (u32)row / (u32)p.rows.shape[d];
        at += ((u32)row - rest * (u32)p.rows.shape[d]) * p.rows.strides[d][view];
        row = rest;
    }
    return at + row * p.rows.strides[0][view];
}

/* A target as it is in memory; the high half only of i64. Its value is asked for where it is needed: that waits for
 * memory. */
struct raw_target {
    int low, high;

    TN_MEMBER i64 value(const tni_cross_entropy &p) const {
        return p.wide_target ? (i64)((u64)(u32)high << 32 | (u32)low) : low;
    }
};

TN_DEVICE raw_target load_target(const tni_cross_entropy &p, i64 row) {
    const int *at = (const int *)p.target + (row_in(p, row, CROSS_ENTROPY_TARGET) << (p.wide_target ? 1 : 0));
    raw_target r = {at[0], 0};
    if (p.wide_target) r.high = at[1];
    return r;
}

TN_DEVICE i64 target_of(const tni_cross_entropy &p, i64 row) {
    return load_target(p, row).value(p);
}

TN_DEVICE float weight_at(const tni_cross_entropy &p, i64 j) {
    return p.weight ? p.weight[j * p.weight_step] : 1.0f;
}

/* What a row's target says. The logit is widened where it is needed: that waits for memory. */
template <class T> struct aim {
    i64 target; /* or IGNORED or BAD */
    T raw;
    acc<T> weight;

    TN_MEMBER acc<T> logit() const {
        return widen(raw);
    }
};
enum { IGNORED = -1, BAD = -2 };

TN_DEVICE i64 aimed_at(const tni_cross_entropy &p, i64 target) {
    return target == p.ignore_index ? IGNORED : target < 0 || target >= p.rows.n ? BAD : target;
}

/* The logit only for those who need it. */
template <class T> TN_DEVICE aim<T> aim_at(const tni_cross_entropy &p, const T *x, i64 target, bool needed) {
    aim<T> a = {target, T(), target >= 0 ? weight_at(p, target) : 0};
    if (target >= 0 && needed) a.raw = x[target];
    return a;
}

/* Where gx is x, the logit is there before others of the row can have overwritten it: they wait for this thread in
 * join_row. */
template <class T> TN_DEVICE void settle(const tni_cross_entropy &p, const aim<T> &a) {
    if (p.gx == p.x) pin(a.logit());
}

/* gx[j] = by * e[j] - less * weight[j] with e[j] = exp(x[j] - most), and at the target `aimed` less: there it is put
 * together from what is left of 1 and the rest, because the two may nearly cancel. */
template <class A> struct slope {
    A base, by, less, aimed, share, rest; /* share: what makes e a probability */

    TN_MEMBER A at_target(A logit) const {
        const A e = exponential(logit, base);
        return tn_fma(tn_fma(e, share, (A)-1), aimed, e * rest);
    }
};

template <class T, bool SMOOTH>
TN_DEVICE slope<acc<T>> slope_of(const tni_cross_entropy &p, partial<acc<T>, SMOOTH> &row, const aim<T> &a,
                                 acc<T> unit) {
    typedef acc<T> A;
    const A z = number<A>(p.z), lse = z != 0 ? row.most() + tn_log(row.sum()) : 0;
    const A aimed = number<A>(p.hard) * a.weight * unit, less = number<A>(p.soft) * unit;
    const A rest = (SMOOTH ? less * row.weights() : 0) + 2 * z * lse * unit;
    const A nan = infinity<A>() - infinity<A>(), share = a.target == BAD ? nan : 1 / row.sum();
    if (a.target == IGNORED) return {};
    return {base_of(row.most()), (aimed + rest) * share, less, aimed, share, rest * share};
}

/* By one thread of a row. */
template <class T, bool SMOOTH>
TN_DEVICE void write_loss(const tni_cross_entropy &p, i64 row, partial<acc<T>, SMOOTH> &r, const aim<T> &a) {
    typedef acc<T> A;
    /* nothing but -inf: NaN, as inf - inf is */
    const bool void_row = r.most() == -infinity<A>() && p.rows.n > 0, each = p.reduction == CROSS_ENTROPY_NONE;
    const A most = void_row ? r.most() - r.most() : r.most(), d = tn_log(r.sum()), lse = most + d;
    A loss = number<A>(p.hard) * a.weight * ((most - a.logit()) + d) + number<A>(p.z) * lse * lse;
    if (SMOOTH) loss += number<A>(p.soft) * (r.less() + r.weights() * d);
    if (a.target == BAD) loss = infinity<A>() - infinity<A>();
    ((A *)p.lse)[row_in(p, row, CROSS_ENTROPY_LSE)] = lse;
    ((A *)(each ? p.loss : p.losses))[each ? row_in(p, row, CROSS_ENTROPY_LOSS) : row] = a.target == IGNORED ? 0 : loss;
}

/* ---- a thread's share of a row ----------------------------------------------------------------------------------- */

/* The largest element of each slot; 16-bit types two at a time. */
template <class T, class Share> TN_DEVICE void find_largest(const Share &x, acc<T> (&most)[Share::SLOTS]) {
    if constexpr (Share::PAIRED) {
        u32 pair = x.word(0);
#pragma unroll
        for (int k = 1; k < Share::ELEMENTS / 2; k++) pair = extreme_pair(T{}, pair, x.word(k), false);
        const acc<T> low = widen_half(T{}, pair, 0), high = widen_half(T{}, pair, 1);
        most[0] = Share::SLOTS == 2 ? low : take_max::of(low, high);
        most[Share::SLOTS - 1] = Share::SLOTS == 2 ? high : most[0];
    } else {
        most[0] = x.get(0);
#pragma unroll
        for (int i = 1; i < Share::ELEMENTS; i++) most[0] = take_max::of(most[0], x.get(i));
    }
}

/* What is known of each slot. The share is of the n elements from element `first` of the row on. */
template <class T, class Share, class G, bool SMOOTH>
TN_DEVICE void look_at(const tni_cross_entropy &p, const Share &x, G g, int parity, i64 first, int n,
                       partial<acc<T>, SMOOTH> (&slot)[Share::SLOTS]) {
    typedef acc<T> A;
    constexpr int SLOTS = Share::SLOTS;
    A most[SLOTS], sum[2] = {0, 0};
    find_largest<T>(x, most);
    const exponentials<T> e[2] = {{base_of(most[0])}, {base_of(most[SLOTS - 1])}};
#pragma unroll
    for (int i = 0; i < Share::ELEMENTS; i++) {
        if (!Share::left(i, g, n)) break;
        sum[i % 2] += e[i % 2].of(x.get(i));
    }
#pragma unroll
    for (int s = 0; s < SLOTS; s++) {
        slot[s] = partial<A, SMOOTH>::none();
        slot[s].most() = most[s];
        slot[s].sum() = e[s].corrected(SLOTS == 2 ? sum[s] : sum[0] + sum[1]);
    }
    if constexpr (SMOOTH) {
#pragma unroll
        for (int i = 0; i < Share::ELEMENTS; i++) {
            const int at = Share::at(i, g, parity);
            if (at < 0 || at >= n) continue;
            const A weight = weight_at(p, first + at);
            slot[i % SLOTS].less() += weight * (e[i % 2].base - x.get(i));
            slot[i % SLOTS].weights() += weight;
        }
    }
}

/* gx of the n elements from element `first` of the row on. */
template <bool SMOOTH, class T, class Share, class G>
TN_DEVICE void write_gx(const tni_cross_entropy &p, Share &x, G g, int parity, i64 first, int n, T *gx,
                        const slope<acc<T>> &s, const aim<T> &a) {
    typedef acc<T> A;
    if (a.target == IGNORED) x.clear(); /* it may hold NaN, and slope_of has made the rest 0 */
    const auto smoothed = [&](A d, i64 at) {
        return SMOOTH ? d - rounded_product(s.less, (A)weight_at(p, first + at)) : d;
    };
    const i64 at = a.target - first;
    const bool mine = at >= 0 && at < n && Share::holds((int)at, g, parity);
    const A aimed = mine ? smoothed(s.at_target(a.logit()), at) : 0;
    pin(aimed);
    const exponentials<T> e = {s.base};
    const A by = e.corrected(s.by);
    x.store(gx, n, g, parity, [&](A logit, int j) {
        const A d = e.of(logit) * by;
        return SMOOTH && (u32)j < (u32)n ? smoothed(d, j) : d;
    });
    if (mine) narrow(aimed, gx[at]);
}

/* ---- over all rows ----------------------------------------------------------------------------------------------- */

/* A thread's share of the weights of the targets from row `first` on that are not ignored. */
TN_DEVICE double add_weights(const tni_cross_entropy &p, i64 first, i64 end) {
    double sum = 0;
    for (i64 row = first + threadIdx.x; row < end && p.reduction == CROSS_ENTROPY_MEAN; row += blockDim.x) {
        const i64 target = aimed_at(p, target_of(p, row));
        if (target >= 0) sum += weight_at(p, target);
    }
    return sum;
}

/* A thread's share of the losses of the rows from `first` on. */
template <class A> TN_DEVICE double add_losses(const tni_cross_entropy &p, i64 first, i64 end) {
    double sum = 0;
    for (i64 row = first + threadIdx.x; row < end; row += blockDim.x) sum += ((const A *)p.losses)[row];
    return sum;
}

template <class A> TN_DEVICE void write_total(const tni_cross_entropy &p, double sum, double divisor) {
    if (threadIdx.x == 0) *(A *)p.loss = (A)(p.reduction == CROSS_ENTROPY_MEAN ? sum / divisor : sum);
}

/* The sum of all threads of the cluster that the grid is, for the threads of its first block. All have called
 * cluster_arrive. */
TN_DEVICE double add_cluster(double a) {
    __shared__ double warps[32], blocks[CROSS_ENTROPY_PARTS];
    a = reduce_block<take_sum>(a, blockDim.x, warps);
    cluster_wait();
    if (gridDim.x == 1) return a;
    if (threadIdx.x == 0) store_cluster(&blocks[cluster_rank()], 0, a);
    cluster_arrive();
    cluster_wait();
    return reduce_few<take_sum>(blocks, gridDim.x);
}

/* What the mean divides by. Each block has its part of the rows. */
TN_DEVICE void add_divisor(const tni_cross_entropy &p) {
    const i64 first = blockIdx.x * p.part_rows, end = min(first + p.part_rows, p.rows.count);
    cluster_arrive();
    let_next_begin();
    const double sum = add_cluster(add_weights(p, first, end));
    if (blockIdx.x != 0 || threadIdx.x != 0) return;
    p.sums->divisor = sum;
    p.sums->unit.f64 = 1 / sum;
    p.sums->unit.f32 = (float)(1 / sum);
}

/* The losses added up. */
template <class A> TN_DEVICE void cross_entropy_total(const tni_cross_entropy &p) {
    const i64 first = blockIdx.x * p.part_rows, end = min(first + p.part_rows, p.rows.count);
    cluster_arrive();
    wait_for_last();
    const double sum = add_cluster(add_losses<A>(p, first, end));
    double divisor = 1;
    if (p.gx && p.reduction == CROSS_ENTROPY_MEAN) {
        divisor = p.sums->divisor;
    } else { /* nobody has needed it yet */
        cluster_arrive();
        divisor = add_cluster(add_weights(p, first, end));
    }
    if (blockIdx.x == 0) write_total<A>(p, sum, divisor);
}

TN_ROW_KERNEL(cross_entropy_divisor, CROSS_ENTROPY_BLOCK, 1, tni_cross_entropy, add_divisor(p))
TN_ROW_KERNEL(cross_entropy_total_f32, CROSS_ENTROPY_BLOCK, 1, tni_cross_entropy, cross_entropy_total<float>(p))
TN_ROW_KERNEL(cross_entropy_total_f64, CROSS_ENTROPY_BLOCK, 1, tni_cross_entropy, cross_entropy_total<double>(p))

/* ---- rows that are held ------------------------------------------------------------------------------------------ */

/* x, gx: (rows, v). Threads of a block have a row; several rows may have a block's threads. A block that is ALONE has
 * all rows, and adds up their losses: few short rows take one launch. */
template <bool SMOOTH, class T, class Share, bool ALONE = false>
TN_DEVICE void cross_entropy_held(const tni_cross_entropy &p) {
    typedef acc<T> A;
    __shared__ row_join<partial<A, SMOOTH>> shared;
    const int local = threadIdx.x >> p.row_shift; /* row of this block */
    const auto row = [&] { return (i64)blockIdx.x * p.block_rows + local; };
    const row_team team = {(int)threadIdx.x - (local << p.row_shift), local << p.row_shift >> 5, p.row_threads};
    const bool there = row() < p.rows.count; /* threads without a row take part in the exchange */
    const int n = there ? (int)p.rows.n : 0;
    const T *x = (const T *)p.x + (there ? row_in(p, row(), CROSS_ENTROPY_X) : 0);
    const int parity = Share::SLOTS == 2 ? parity_of(x) : 0;
    const auto wanted = [&] { return there ? load_target(p, row()) : raw_target(); };
    const raw_target early = Share::SLOTS == 2 ? wanted() : raw_target(); /* pairs wait at the end of their load */
    Share share;
    share.load(x, n, team.all());
    const raw_target found = Share::SLOTS == 2 ? early : wanted(); /* others need fewer registers so */
    const int target = there ? (int)aimed_at(p, found.value(p)) : IGNORED;
    partial<A, SMOOTH> slot[Share::SLOTS];
    look_at<T>(p, share, team.all(), parity, 0, n, slot);
    const bool holds = target >= 0 && Share::holds(target, team.all(), parity);
    const aim<T> a = aim_at(p, x, target, team.thread == 0 || holds);
    settle(p, a);
    partial<A, SMOOTH> known = join_row(slot, parity, team, shared);
    share.forget();
    if (there && team.thread == 0) write_loss(p, row(), known, a);
    double divisor = 1;
    if (ALONE) {
        __shared__ double sums[32];
        divisor = reduce_block<take_sum>(add_weights(p, 0, p.rows.count), blockDim.x, sums);
        write_total<A>(p, reduce_block<take_sum>(add_losses<A>(p, 0, p.rows.count), blockDim.x, sums), divisor);
    }
    if (!p.gx || !there) return;
    wait_for_last();
    const A unit = p.reduction != CROSS_ENTROPY_MEAN ? 1 : ALONE ? (A)(1 / divisor) : number<A>(p.sums->unit);
    T *gx = (T *)p.gx + row_in(p, row(), CROSS_ENTROPY_GX);
    write_gx<SMOOTH>(p, share, team.all(), parity, 0, n, gx, slope_of(p, known, a, unit), a);
}

template <bool SMOOTH, class T, class Share> TN_DEVICE void cross_entropy_alone(const tni_cross_entropy &p) {
    cross_entropy_held<SMOOTH, T, Share, true>(p);
}

/* x, gx: (rows, v). Each block of a cluster has a piece of a row, of p.split elements or what is left, and all its
 * threads have a share of that. The cluster goes on to the row that is as many rows on as there are clusters; its last
 * thread fetches that into shared memory as soon as all threads have their shares of this one; but not rows of whole
 * vectors, which come faster straight into registers (H200: by 8 %). */
template <bool SMOOTH, class T, class Share> TN_DEVICE void cross_entropy_cluster(const tni_cross_entropy &p) {
    typedef acc<T> A;
    __shared__ cluster_join<partial<A, SMOOTH>> shared[2];
    __shared__ u64 arrived;
    const int first = (int)(cluster_rank() * p.split), n = (int)min(p.rows.n - first, p.split);
    const block_group g = {(int)threadIdx.x};
    const row_team team = {(int)threadIdx.x, 0, TNI_ROW_BLOCK};
    const bool is_first = threadIdx.x == 0 && cluster_rank() == 0;
    const i64 clusters = gridDim.x / cluster_blocks();
    const auto piece = [&](i64 row) -> row_copy<T> {
        return {(const T *)p.x + row_in(p, row, CROSS_ENTROPY_X) + first, n, p.low, p.high};
    };
    const auto fetch = [&](i64 row) {
        if (Share::COPIES && p.high && threadIdx.x == TNI_ROW_BLOCK - 1 && row < p.rows.count)
            piece(row).fetch(&arrived);
    };
    if (threadIdx.x == TNI_ROW_BLOCK - 1) bulk_prepare(&arrived, 1);
    begin_pieces(shared);
    __syncthreads();
    fetch(cluster_index());
    u32 turn = 0;
    for (i64 row = cluster_index(); row < p.rows.count; row += clusters, turn++) {
        const row_copy<T> copy = piece(row);
        const T *x = copy.x;
        const raw_target wanted = load_target(p, row);
        Share share;
        if constexpr (Share::COPIES) {
            if (p.high) {
                copy.wait(&arrived, turn % 2);
                share.take(copy, g);
            } else {
                share.load(x, n, g);
            }
        } else {
            share.load(x, n, g);
        }
        if (turn == 0) cluster_wait();
        const int parity = Share::SLOTS == 2 ? parity_of(x) : 0;
        partial<A, SMOOTH> slot[Share::SLOTS];
        look_at<T>(p, share, g, parity, first, n, slot);
        const int target = (int)aimed_at(p, wanted.value(p)), mine = target - first;
        const bool holds = target >= 0 && (u32)mine < (u32)n && Share::holds(mine, g, parity);
        const aim<T> a = aim_at(p, x - first, target, is_first || holds);
        settle(p, a);
        partial<A, SMOOTH> known = join_row(slot, parity, team, shared[turn % 2].piece);
        fetch(row + clusters); /* join_row has a barrier: all have taken their shares out of the copy */
        known = join_pieces(known, p.cluster, shared[turn % 2], turn / 2 % 2);
        share.forget();
        if (is_first) write_loss(p, row, known, a);
        if (p.gx) {
            wait_for_last();
            const A unit = p.reduction == CROSS_ENTROPY_MEAN ? number<A>(p.sums->unit) : 1;
            T *gx = (T *)p.gx + row_in(p, row, CROSS_ENTROPY_GX) + first;
            write_gx<SMOOTH>(p, share, g, parity, first, n, gx, slope_of(p, known, a, unit), a);
        }
    } /* and nobody sends to this block any more: it has waited for all that was sent */
}

/* ---- rows that are walked through -------------------------------------------------------------------------------- */

/* Block b has piece b % splits of row b / splits, and walks through it by tiles, of which the next one is on its way
 * while one is looked at. Where the pieces are blocks of a cluster and no gradient is wanted, that is all there is to
 * do. */
template <bool SMOOTH, class T, class Share> TN_DEVICE void cross_entropy_split(const tni_cross_entropy &p) {
    constexpr int TILE = TNI_ROW_BLOCK * Share::ELEMENTS;
    typedef partial<acc<T>, SMOOTH> known;
    __shared__ cluster_join<known> shared[1];
    const i64 row = blockIdx.x / p.splits, begin = (i64)(blockIdx.x % p.splits) * p.split;
    const i64 end = min(begin + p.split, p.rows.n);
    const T *x = (const T *)p.x + row_in(p, row, CROSS_ENTROPY_X);
    const row_team team = {(int)threadIdx.x, 0, TNI_ROW_BLOCK};
    const row_group g = {(int)threadIdx.x, TNI_ROW_BLOCK};
    const auto tile_at = [&](i64 first) { return (int)max(min(end - first, (i64)TILE), 0ll); };
    known all[1] = {known::none()};
    Share now;
    now.load(x + begin, tile_at(begin), g);
    if (p.cluster > 1) begin_pieces(shared);
    if (p.partials && begin == 0 && threadIdx.x == 0)
        ((T *)p.aimed)[row] = aim_at(p, x, aimed_at(p, target_of(p, row)), true).raw;
    for (i64 first = begin; first < end; first += TILE) {
        Share next;
        known tile[1];
        next.load(x + first + TILE, tile_at(first + TILE), g);
        look_at<T>(p, now, g, 0, first, tile_at(first), tile);
        all[0].add(tile[0]);
        now = next;
    }
    all[0] = join_row(all, 0, team, shared[0].piece);
    if (p.cluster > 1) {
        cluster_wait();
        all[0] = join_pieces(all[0], p.cluster, shared[0], 0);
    }
    if (threadIdx.x != 0 || cluster_rank() != 0) return;
    if (p.partials) {
        ((known *)p.partials)[blockIdx.x] = all[0];
    } else {
        write_loss(p, row, all[0], aim_at(p, x, aimed_at(p, target_of(p, row)), true));
    }
}

/* Block b writes piece b % writers of row b / writers. */
template <bool SMOOTH, class T, class Share> TN_DEVICE void cross_entropy_write(const tni_cross_entropy &p) {
    constexpr int TILE = TNI_ROW_BLOCK * Share::ELEMENTS;
    typedef partial<acc<T>, SMOOTH> known;
    __shared__ row_join<known> shared;
    const i64 row = blockIdx.x / p.writers, begin = (i64)(blockIdx.x % p.writers) * p.split;
    const i64 end = min(begin + p.split, p.rows.n);
    const T *x = (const T *)p.x + row_in(p, row, CROSS_ENTROPY_X);
    aim<T> a = aim_at(p, x, aimed_at(p, target_of(p, row)), false);
    a.raw = ((const T *)p.aimed)[row];
    const row_team team = {(int)threadIdx.x, 0, TNI_ROW_BLOCK};
    const row_group g = {(int)threadIdx.x, TNI_ROW_BLOCK};
    known all[1] = {known::none()};
    for (int i = threadIdx.x; i < p.splits; i += TNI_ROW_BLOCK)
        all[0].add(((const known *)p.partials)[row * p.splits + i]);
    all[0] = join_row(all, 0, team, shared);
    if (blockIdx.x % p.writers == 0 && threadIdx.x == 0) write_loss(p, row, all[0], a);
    if (!p.gx) return;
    T *gx = (T *)p.gx + row_in(p, row, CROSS_ENTROPY_GX);
    const acc<T> unit = p.reduction == CROSS_ENTROPY_MEAN ? number<acc<T>>(p.sums->unit) : 1;
    const slope<acc<T>> s = slope_of(p, all[0], a, unit);
    for (i64 first = begin; first < end; first += TILE) {
        const int n = (int)min(end - first, (i64)TILE);
        Share share;
        share.load(x + first, n, g);
        write_gx<SMOOTH>(p, share, g, 0, first, n, gx + first, s, a);
    }
}

/* ---- instances --------------------------------------------------------------------------------------------------- */

/* A kernel has both ways, with label smoothing and without, and the registers that the second one needs. `blocks` of so
 * many threads fit onto an SM; of f64 fewer. */
#define KERNEL(stage, letter, T, name, threads, blocks, ...)                                                          \
    TN_ROW_KERNEL(cross_entropy_##stage##_##letter##_##name, threads, sizeof(T) == 8 ? 1 : blocks, tni_cross_entropy, \
                  (p.soft.f32 == 0 ? cross_entropy_##stage<false, T, __VA_ARGS__>(p)                                  \
                                   : cross_entropy_##stage<true, T, __VA_ARGS__>(p)))

#define CROSS_ENTROPY(T, name)                                               \
    KERNEL(held, p16, T, name, TNI_ROW_BLOCK, 3, vector_share<T, 16>)        \
    KERNEL(held, p32, T, name, TNI_ROW_BLOCK, 2, vector_share<T, 32>)        \
    KERNEL(held, s16, T, name, CROSS_ENTROPY_ODD_BLOCK, 5, odd_share<T, 16>) \
    KERNEL(held, s32, T, name, TNI_ROW_BLOCK, 2, odd_share<T, 32>)           \
    KERNEL(cluster, p32, T, name, TNI_ROW_BLOCK, 2, vector_share<T, 32>)     \
    KERNEL(cluster, s32, T, name, TNI_ROW_BLOCK, 2, odd_share<T, 32>)        \
    KERNEL(alone, p16, T, name, TNI_ROW_BLOCK, 1, vector_share<T, 16>)       \
    KERNEL(alone, s16, T, name, TNI_ROW_BLOCK, 1, odd_share<T, 16>)          \
    KERNEL(split, p, T, name, TNI_ROW_BLOCK, 2, vector_share<T, 16>)         \
    KERNEL(split, s, T, name, TNI_ROW_BLOCK, 2, single_share<T, 16>)         \
    KERNEL(write, p, T, name, TNI_ROW_BLOCK, 2, vector_share<T, 16>)         \
    KERNEL(write, s, T, name, TNI_ROW_BLOCK, 2, single_share<T, 16>)
TN_FOR_TYPES(CROSS_ENTROPY)
