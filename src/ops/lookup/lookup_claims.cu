/* add of elements that have an index each, where there is work for all SMs: the sums of a block's places are in shared
 * memory, and so are claims to add to them. It takes half of the memory of lists (lookup_lists.cu), so that a block has
 * twice as many places, and more rounds, in which threads wait for each other. */
#include "lookup_columns.cuh"

/* Where the terms of a tile are added, and by whom. Threads claim places: in each round, of those that want the same
 * one, the first along the axis has it. A claim is a number of 32 bits, the round's in front, the term's behind it, of
 * which the lowest stays; rounds count down, so that claims of earlier rounds need not be cleared. Rounds take turns
 * with two tables of claims, for then one barrier is enough: who still reads one table meets nobody who writes it.
 * Places whose numbers differ by a multiple of the table share a claim, which costs a round and changes no sum. */
template <class A> struct places {
    enum { ITEMS = TNI_COLUMN_ADD_ITEMS, TERM_BITS = 12, ROUNDS = 1 << (32 - TERM_BITS), MANY_ROUNDS = 8 };
    static_assert(TNI_COLUMN_ADD_THREADS * TNI_COLUMN_ADD_ITEMS <= 1 << TERM_BITS, "a claim has room for each term");
    A *sums;
    u32 *claims; /* (2, table + 32): the last 32 are for terms that want nothing, one for each lane */
    u32 table, round;

    TN_MEMBER places(const tni_columns &p, A *sums, int count)
        : sums(sums), claims((u32 *)(sums + count)), table((u32)p.table) {
        clear();
    }
    TN_MEMBER void clear() {
        for (u32 i = threadIdx.x; i < 2 * (table + 32); i += blockDim.x) claims[i] = ~0u;
        round = ROUNDS - 1;
    }
    /* For as many rounds as a tile can take. */
    TN_MEMBER void make_room() {
        if (round > ITEMS * TNI_COLUMN_ADD_THREADS) return;
        __syncthreads();
        clear();
        __syncthreads();
    }

    /* Adds what the lanes have to their places, in the order of the lanes. */
    TN_MEMBER void add_group(bool mine, u32 place, A a) {
        const u32 lane = threadIdx.x % 32, alike = __match_any_sync(0xffffffffu, mine ? place : ~lane);
        u32 left = mine ? alike : 0;
        A sum = mine ? sums[place] : A{};
        __syncwarp();
        while (__any_sync(0xffffffffu, left != 0)) { /* all that are alike have the same sum */
            const A next = __shfl_sync(0xffffffffu, a, left ? __ffs((int)left) - 1 : 0);
            if (left) sum += next;
            left &= left - 1;
        }
        if (mine && lane == (u32)__ffs((int)alike) - 1) sums[place] = sum;
        __syncwarp();
    }
    /* Where very many want the same: one warp after the other. */
    TN_MEMBER void add_in_turns(u32 waiting, const u32 (&place)[ITEMS], const A (&a)[ITEMS]) {
#pragma unroll
        for (int e = 0; e < ITEMS; e++) {
#pragma unroll 1
            for (u32 warp = 0; warp < blockDim.x / 32; warp++) {
                __syncthreads();
                if (threadIdx.x / 32 == warp) add_group(waiting >> e & 1, place[e], a[e]);
            }
        }
    }
    /* Adds a[e] at place[e] of those that `waiting` has a bit for; the terms of a thread are `step` apart. */
    TN_MEMBER void add(u32 waiting, const u32 (&place)[ITEMS], const A (&a)[ITEMS], u32 term, u32 step) {
        const u32 none = table + threadIdx.x % 32;
        u32 want[ITEMS];
        make_room();
#pragma unroll
        for (int e = 0; e < ITEMS; e++) want[e] = waiting >> e & 1 ? place[e] & (table - 1) : none;
#pragma unroll 1
        for (int rounds = 0;; rounds++, round--) {
            u32 *const claim = claims + (round & 1) * (table + 32);
            const u32 mine = round << TERM_BITS | term;
            if (waiting) {
#pragma unroll
                for (int e = 0; e < ITEMS; e++) atomicMin(&claim[want[e]], mine + e * step);
            }
            const int threads = __syncthreads_count(waiting != 0);
            if (threads == 0) return;
            if (rounds == MANY_ROUNDS && 2 * threads > (int)blockDim.x) {
                round--;
                return add_in_turns(waiting, place, a);
            }
            if (!waiting) continue;
            u32 found[ITEMS];
#pragma unroll
            for (int e = 0; e < ITEMS; e++) found[e] = claim[want[e]];
#pragma unroll
            for (int e = 0; e < ITEMS; e++) {
                const bool has = found[e] == mine + e * step && (waiting >> e & 1);
                if (has) sums[place[e]] += a[e];
                want[e] = has ? none : want[e];
                waiting &= ~((u32)has << e);
            }
        }
    }
};

/* A block has some columns, and of those the k from `low` on. Their sums are in shared memory: (width, pitch). Each is
 * added to in the order of j, and each element of `to` is written once. The next tile is under way while one is added.
 */
template <class T> TN_DEVICE void add_claimed(const tni_columns &p) {
    enum { ITEMS = TNI_COLUMN_ADD_ITEMS };
    const u32 group = blockIdx.x / (u32)p.parts, low = (blockIdx.x - group * p.parts) * (u32)p.range;
    const column c(p, group);
    const int range = c.there ? min(p.range, (int)(p.index.v - low)) : 0, pitch = column_pitch(p.range, p.width);
    const i64 here = (c.o * p.index.v + low + c.slot) * p.inner + c.i, step = c.slots * p.inner;
    const T *base = p.base ? (const T *)p.base + c.o * p.by_outer + (low + c.slot) * p.by_v + c.i : nullptr;
    const u32 begin = c.which * pitch;
    column_tile<T> next(p, c);
    places<acc<T>> to_add(p, (acc<T> *)dynamic_shared(), p.width * pitch);
    next.load(p);
    fill_sums<T>(to_add.sums + begin, base, c.slots * p.by_v, c.slot, c.slots, range);
    __syncthreads();
#pragma unroll 1
    for (int first = 0; first < (int)p.n; first += c.slots * ITEMS) {
        u32 place[ITEMS], waiting = 0;
        acc<T> a[ITEMS];
#pragma unroll
        for (int e = 0; e < ITEMS; e++) {
            const u32 k = next.index.low[e], behind = k - low;
            const bool mine = next.index.high[e] == 0 && k != (u32)p.index.skipped && behind < (u32)range;
            waiting |= (u32)mine << e;
            place[e] = begin + behind;
            a[e] = widen(next.a[e]);
        }
        next.load(p);
        to_add.add(waiting, place, a, (u32)c.slot, (u32)c.slots);
    }
    __syncthreads();
    T *to = (T *)p.to + here;
#pragma unroll 4
    for (int k = c.slot; k < range; k += c.slots, to += step) narrow(to_add.sums[begin + k], *to);
}

#define ADD(T, name) \
    TN_KERNEL(lookup_add_claimed_##name, TNI_COLUMN_ADD_THREADS, (TN_PARAMS(tni_columns)), add_claimed<T>(p))
TN_FOR_TYPES(ADD)
