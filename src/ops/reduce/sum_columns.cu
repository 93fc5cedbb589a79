/* sum over dimensions of which the innermost is none: the columns of a matrix. x is read once, 16 bytes at a time
 * wherever they lie. */
#include "sum.cuh"

/* The rows of a part are dealt out in turn to `slots` sums. How a part's rows and columns are dealt out to threads:
 *   PACKS  a row of threads has one slot, and each thread the packs at some place of its rows, all aligned and full.
 *          The next part's packs are under way while this one's sums are added up.
 *   ODD    the same where rows begin anywhere. `slots` rows further on, a row begins as far behind a multiple of 16
 *          bytes, whatever the stride: so packs are loaded as they lie, and what is at their places is the same column
 *          again.
 *   DENSE  rows are few columns and lie one behind the other: as many of them as a pack has elements are c packs, and
 *          a row of threads has those.
 *   ANY    packs of rows that are several dimensions, or elements that do not lie side by side. */
enum column_layout { PACKS, ODD, DENSE, ANY };

/* What a row of threads does: a tile of columns, at one place of the other kept dimensions, of one part. */
template <class T> struct column_work {
    const T *x; /* the first row's first column of the tile */
    i64 outer, column;
    i64 begin, end; /* rows */
    int part;
    bool there;

    TN_MEMBER column_work(const tni_sum_columns &p, i64 item, int part) : part(part) {
        const u64 index = quotient((u64)item, (u64)p.tiles);
        there = item < p.items && part < p.n_parts;
        outer = there ? (i64)index : 0;
        column = (item - (i64)index * p.tiles) * p.width;
        find_rows(p);
        x = (const T *)p.x + walk_any(p.kept, (u64)outer).at[0] + column * p.step;
    }
    TN_MEMBER void find_rows(const tni_sum_columns &p) {
        begin = part * p.per_part;
        end = min(begin + p.per_part, p.n_rows);
    }
    TN_MEMBER void go_on(const tni_sum_columns &p) {
        part += p.together;
        find_rows(p);
    }
};

/* How many steps it takes to the end of a length. */
TN_DEVICE int count_steps(i64 length, i64 step) {
    return length > 0 ? (int)quotient((u64)(length + step - 1), (u64)step) : 0;
}

/* Whether a pack reaches beyond memory that is ours. */
template <class T> TN_DEVICE bool is_beyond(const T *at, const T *low, const T *high) {
    return at < low || at + pack<T>::VL > high;
}

/* A thread's packs of all its parts. ODD: the first and the last may reach beyond x's memory. */
template <class T, bool ODD> struct column_stream {
    static constexpr int VL = pack<T>::VL, BATCH = 8 / (sizeof(T) == 8 ? 2 : 1);
    words a[BATCH];
    const T *next;
    int left; /* packs from `next` on */
    int tail; /* the last pack, if it reaches beyond: after how many parts it comes, and by how much, in one */

    static constexpr int NO_TAIL = 0x7fffffff, SHARE = 32, MIDDLE = 16;
    TN_MEMBER void find_tail(const T *last, int parts, const T *low, const T *high) {
        const int beyond = (int)(last < low ? last - low : last + VL - high);
        tail = parts * SHARE + MIDDLE + beyond;
    }
    TN_MEMBER void add_tail(const tni_sum_columns &p, pack_sums<T> &sums) {
        const T *low = (const T *)p.low, *high = (const T *)p.high;
        const int beyond = tail + SHARE - MIDDLE;
        tail = NO_TAIL;
        sums.add(some_of_pack(beyond < 0 ? low + beyond : high - VL + beyond, low, high));
    }
    TN_MEMBER void load(const tni_sum_columns &p, int k, bool there) {
        a[k] = load_words_if(next + k * p.slot_step, there);
    }
    TN_MEMBER void go_on(const tni_sum_columns &p, bool part_ends) {
        next += BATCH * p.slot_step;
        left -= BATCH;
        if (part_ends) next += p.part_step;
    }
    /* w: the first part; all others are `together` further on each, up to `end`. */
    TN_MEMBER void begin(const tni_sum_columns &p, const column_work<T> &w, int end, int slot, int lane) {
        const T *low = (const T *)p.low, *high = (const T *)p.high;
        const int more = (end - 1 - w.part) / p.together; /* parts */
        const i64 rows = p.n_rows - (w.part + (i64)more * p.together) * p.per_part - slot, most = p.per_part - slot;
        next = w.x + (w.begin + slot) * p.rows.strides[0][0];
        const int place = lane * VL - (ODD ? (int)lead_of(next) : 0);
        const bool there = w.there && w.part < end && place < p.width && w.column + place < p.c;
        left = there ? more * p.per_slot + count_steps(min(rows, most), p.slots) : 0;
        next += place;
        tail = NO_TAIL;
        const bool has_head = ODD && left > 0 && is_beyond(next, low, high);
        if (ODD && left > 1) {
            const T *last = next + (left - 1) * p.slot_step + (left - 1) / p.per_slot * p.part_step;
            if (is_beyond(last, low, high)) find_tail(last, --left / p.per_slot, low, high);
        }
#pragma unroll
        for (int k = 0; k < BATCH; k++) load(p, k, k < left && !(k == 0 && has_head));
        if (has_head) a[0] = some_of_pack(next, low, high);
        go_on(p, p.per_slot == BATCH);
    }
    TN_MEMBER void add_part(const tni_sum_columns &p, pack_sums<T> &sums) {
#pragma unroll 1
        for (int i = 0; i < p.per_slot; i += BATCH) {
#pragma unroll
            for (int k = 0; k < BATCH; k += 2) {
                /* Never, but the compiler does not know: it would put all loads behind all additions, and the first one
                 * to be used last. */
                if (i + k >= p.per_slot) break;
                sums.add(a[k]);
                sums.add(a[k + 1]);
                load(p, k, k < left);
                load(p, k + 1, k + 1 < left);
            }
            go_on(p, i + 2 * BATCH == p.per_slot || p.per_slot == BATCH); /* a batch is under way */
        }
        if (ODD && (tail -= SHARE) < 0) add_tail(p, sums);
    }
};

template <class T>
TN_DEVICE void add_dense(const tni_sum_columns &p, const column_work<T> &w, int group, int lane, pack_sums<T> &sums) {
    const T *first = w.x + w.begin * p.c, *end = w.x + w.end * p.c;
    const i64 at = (group * p.c + lane) * pack<T>::VL, step = p.slots * p.c;
    const int count = count_steps(end - first - at, step);
    const T *last = first + at + (count - 1) * step;
    const bool has_tail = count > 0 && is_beyond(last, first, end);
    words a[16];
    load_packs(a, first + at, step, count - has_tail);
    sums.add_packs(a, first + at, step, count - has_tail);
    if (has_tail) sums.add(some_of_pack(last, first, end));
}

template <class T>
TN_DEVICE void add_any(const tni_sum_columns &p, const column_work<T> &w, int slot, int lane, pack_sums<T> &sums) {
    constexpr int BATCH = 2;
    const i64 first = p.side_by_side ? lane * pack<T>::VL : lane, left = p.c - w.column - first;
    const T *x = w.x + first * p.step;
    if (left <= 0) return;
#pragma unroll 1
    for (i64 row = w.begin + slot; row < w.end; row += BATCH * p.slots) {
        words a[BATCH];
#pragma unroll
        for (int k = 0; k < BATCH; k++) {
            const i64 r = row + k * p.slots;
            const T *at = x + (r < w.end ? walk_any(p.rows, (u64)r).at[0] : 0);
            a[k] = words{};
            if (r >= w.end) continue;
            a[k] = p.side_by_side ? load_words_if(at, true)
                                  : far_pack(at, p.lanes * p.step, ceil_div(left, (i64)p.lanes));
        }
#pragma unroll
        for (int k = 0; k < BATCH; k++) sums.add(a[k]);
    }
}

/* An item's place, its first column, and how many elements it begins behind a multiple of 16 bytes. */
struct column_item {
    i64 outer, column;
    int before;
};

/* What a block's threads tell each other. */
template <class T> struct column_shared {
    static constexpr int VL = pack<T>::VL, CHAPTERS = TNI_SUM_CHAPTER_BYTES / sizeof(acc<T>);
    acc<T> sums[2][TNI_SUM_ODD_THREADS * (VL * 3 / 2 + 1)]; /* (rows of threads, VL, lanes); they take turns */
    acc<T> parts[TNI_SUM_ODD_THREADS];                      /* (together, width) */
    acc<T> chapters[CHAPTERS];                              /* (chapters, width) */
    column_item item;                                       /* where it has several parts */
};

/* The length of a line of sums, and of a row's lines: more than they hold, so that threads that read across lines meet
 * different banks. */
TN_DEVICE int line_of(const tni_sum_columns &p) {
    return p.lanes < 8 ? p.lanes : (p.lanes + 3) / 8 * 8 + 4;
}
template <class T> TN_DEVICE int lines_of(const tni_sum_columns &p) {
    return pack<T>::VL * line_of(p) + 1;
}

/* A column's sum over a part, from where threads have put its slots: `ways` neighbouring lanes add up every ways-th of
 * them, then their sums. Threads without a column join in. */
template <class T, column_layout LAYOUT>
TN_DEVICE acc<T> sum_slots(const tni_sum_columns &p, int before, const acc<T> *sums, int group, int column, int way) {
    constexpr int VL = pack<T>::VL;
    const int line = line_of(p), lines = lines_of<T>(p);
    const u32 stride = (u32)p.rows.strides[0][0];
    acc<T> sum = 0;
#pragma unroll 8
    for (int slot = way; slot < p.slots; slot += p.ways) {
        int row = group * p.groups + slot, place = column;
        if (LAYOUT == ODD) place += (int)((before + slot * stride) & (VL - 1));
        if (LAYOUT == DENSE) {
            row = group * p.groups + slot / VL;
            place += slot % VL * (int)p.c;
        }
        if (LAYOUT == ANY && !p.side_by_side) place = column % p.lanes * VL + column / p.lanes;
        sum += sums[row * lines + place % VL * line + place / VL];
    }
    if (p.ways == 1) return sum;
    static_assert(TNI_SUM_WAYS == 4, "");
    return reduce_lanes<take_sum, TNI_SUM_WAYS>(sum);
}

template <class T> TN_DEVICE void put_column(const tni_sum_columns &p, i64 outer, i64 column, acc<T> value) {
    narrow(value, ((T *)p.y)[walk_any(p.kept, (u64)outer).at[1] + column * p.y_step]);
}

/* Adds parts first … first + together - 1, which are in shared memory, to the sums of their chapters. */
template <class T>
TN_DEVICE void add_to_chapters(const tni_sum_columns &p, column_shared<T> &shared, int first, int end) {
    const int chapter = first / p.per_chapter, last = (end - 1) / p.per_chapter;
    for (int k = threadIdx.x; k < (last - chapter + 1) * p.width; k += blockDim.x) {
        const int mine = chapter + k / p.width, column = k % p.width;
        const int from = mine * p.per_chapter, to = min(from + p.per_chapter, end);
        acc<T> &sum = shared.chapters[mine * p.width + column];
        acc<T> total = from >= first ? 0 : sum;
#pragma unroll 4
        for (int i = from < first ? first : from; i < to; i++) {
            total += shared.parts[(i - first) * p.width + column];
        }
        sum = total;
    }
}

/* Ends the sums of an item whose chapters are in shared memory, here or in the other blocks of the cluster, of which
 * each has those from chapter `first` on. */
template <class T>
TN_DEVICE void end_item(const tni_sum_columns &p, column_shared<T> &shared, u32 rank, int first, int end) {
    __syncthreads();
    if (p.blocks > 1) {
        cluster_wait(); /* all have begun */
        for (int k = first * p.width + (int)threadIdx.x; rank > 0 && k < end * p.width; k += blockDim.x) {
            store_cluster(&shared.chapters[k], 0, shared.chapters[k]);
        }
        cluster_arrive();
        cluster_wait();
    }
    if (rank > 0) return;
    for (int column = threadIdx.x; column < p.width && shared.item.column + column < p.c; column += blockDim.x) {
        acc<T> total = 0;
#pragma unroll 8
        for (int i = 0; i < p.chapters; i++) total += shared.chapters[i * p.width + column];
        put_column<T>(p, shared.item.outer, shared.item.column + column, total);
    }
}

/* The sums of `together` parts from `part` on, whose slots are in shared memory. No divisions of 64 bits here: they
 * would take the registers of the packs under way. */
template <class T, column_layout LAYOUT>
TN_DEVICE void end_parts(const tni_sum_columns &p, column_shared<T> &shared, int part, int end, int turn) {
    const int all = p.together * p.width * TNI_SUM_WAYS, way = threadIdx.x % TNI_SUM_WAYS;
    for (int k = threadIdx.x; k - (int)threadIdx.x < all; k += blockDim.x) {
        const int its = k < all ? k / TNI_SUM_WAYS : 0, other = its / p.width, column = its - other * p.width;
        const column_item &item = shared.item;
        const acc<T> sum = sum_slots<T, LAYOUT>(p, item.before, shared.sums[turn], other, column, way);
        if (k >= all || way > 0 || part + other >= end || item.column + column >= p.c) continue;
        if (!p.ends) {
            ((acc<T> *)p.parts)[(part + other) * p.outputs + item.outer * p.c + item.column + column] = sum;
        } else if (p.together > 1) {
            shared.parts[its] = sum;
        } else {
            const int chapter = part / p.per_chapter;
            acc<T> &total = shared.chapters[chapter * p.width + column];
            total = part == chapter * p.per_chapter ? sum : total + sum;
        }
    }
}

/* The same where parts are whole items. */
template <class T, column_layout LAYOUT>
TN_DEVICE void end_items(const tni_sum_columns &p, column_shared<T> &shared, i64 item) {
    const int all = p.together * p.width * p.ways, way = (int)threadIdx.x & (p.ways - 1);
    for (int k = threadIdx.x; k - (int)threadIdx.x < all; k += blockDim.x) {
        const int one = k < all ? k / p.ways : 0, other = one / p.width, column = one - other * p.width;
        const column_work<T> its(p, item + other, 0);
        const acc<T> sum = sum_slots<T, LAYOUT>(p, (int)lead_of(its.x), shared.sums[0], other, column, way);
        if (k >= all || way > 0 || !its.there || its.column + column >= p.c) continue;
        put_column<T>(p, its.outer, its.column + column, sum);
    }
}

/* What a block does of an item: parts first … end - 1. If it ends sums, those are whole chapters. */
struct column_share {
    u32 block, rank;
    int first_chapter, end_chapter, first, end;

    TN_MEMBER column_share(const tni_sum_columns &p) {
        u32 index = blockIdx.x;
        hide(index); /* computed where it is used */
        block = index / (u32)p.blocks;
        rank = index - block * (u32)p.blocks;
        first_chapter = (int)rank * p.chapters / p.blocks;
        end_chapter = ((int)rank + 1) * p.chapters / p.blocks;
        first = p.ends ? first_chapter * p.per_chapter : (int)rank * p.per_block;
        end = p.ends ? end_chapter * p.per_chapter : first + p.per_block;
        if (end > p.n_parts) end = p.n_parts;
    }
};

template <class T, column_layout LAYOUT> TN_DEVICE void sum_columns(const tni_sum_columns &p) {
    constexpr int VL = pack<T>::VL;
    constexpr bool STREAM = LAYOUT == PACKS || LAYOUT == ODD;
    __shared__ column_shared<T> shared;
    const bool many_items = p.n_parts == 1;
    const int row = threadIdx.x / p.lanes, lane = threadIdx.x % p.lanes, group = row / p.groups;
    const int slot = row - group * p.groups;
    const column_share share(p);
    if (p.ends && p.blocks > 1) cluster_begin();
    if (!p.ends) let_next_begin();
    column_work<T> mine(p, many_items ? (i64)share.block * p.together + group : share.block,
                        many_items ? 0 : share.first + group);
    mine.there = mine.there && group < p.together;
    column_stream<T, LAYOUT == ODD> stream;
    if (STREAM) stream.begin(p, mine, share.end, slot, lane);
    if (threadIdx.x == 0) shared.item = {mine.outer, mine.column, (int)lead_of(mine.x)};
    int sums_at = group < p.together ? row * lines_of<T>(p) + lane : -1, turn = 0;
#pragma unroll 1
    for (int part = share.first; part < share.end; part += p.together, turn ^= 1) {
        pack_sums<T> sums = {};
        if (STREAM) {
            stream.add_part(p, sums);
        } else if (mine.there && mine.part < share.end) {
            if (LAYOUT == DENSE) add_dense<T>(p, mine, slot, lane, sums);
            if (LAYOUT == ANY) add_any<T>(p, mine, slot, lane, sums);
            mine.go_on(p);
        }
        hide(sums_at);
        if (sums_at >= 0) {
#pragma unroll
            for (int i = 0; i < VL; i++) shared.sums[turn][sums_at + i * line_of(p)] = sums.v[i];
        }
        __syncthreads();
        if (many_items) break;
        end_parts<T, LAYOUT>(p, shared, part, share.end, turn);
        if (!p.ends || p.together == 1) continue;
        __syncthreads();
        add_to_chapters<T>(p, shared, part, min(part + p.together, share.end));
    }
    const column_share done(p);
    if (many_items)
        end_items<T, LAYOUT>(p, shared, (i64)done.block * p.together);
    else if (p.ends)
        end_item<T>(p, shared, done.rank, done.first_chapter, done.end_chapter);
}

/* Few rows of many columns: a thread does all slots of its columns, one after the other: rows 0, VL, 2 * VL … , then 1,
 * VL + 1 … Which row is next. */
template <class T> struct few_order {
    static constexpr int VL = pack<T>::VL;
    const T *at, *slot; /* this row's columns, and those of its slot's first row */
    i64 stride;
    int row = 0, first = 0;

    TN_MEMBER few_order(const T *x, i64 stride) : at(x), slot(x), stride(stride) {
    }
    /* Returns whether the slot ends. */
    TN_MEMBER bool go_on(int n) {
        row += VL;
        const bool ends = row >= n;
        if (ends) {
            row = ++first;
            slot += stride;
        }
        at = ends ? slot : at + VL * stride;
        return ends;
    }
};

/* Rows that are aligned, of full packs. */
template <class T> TN_DEVICE void sum_few_rows(const tni_sum_columns &p) {
    constexpr int VL = pack<T>::VL, BATCH = 6;
    const u64 index = (u64)blockIdx.x * blockDim.x + threadIdx.x, threads = quotient((u64)p.c, VL);
    const u64 outer = quotient(index, threads);
    if (outer >= (u64)p.kept.count) return;
    const i64 column = (i64)(index - outer * threads) * VL;
    const place here = walk_any(p.kept, outer);
    const int n = (int)p.n_rows;
    few_order<T> next((const T *)p.x + here.at[0] + column, p.rows.strides[0][0]), now = next;
    words a[BATCH];
    acc<T> total[VL] = {};
    pack_sums<T> sums = {};
#pragma unroll
    for (int k = 0; k < BATCH; k++) {
        a[k] = load_words_if(next.at, k < n);
        next.go_on(n);
    }
#pragma unroll 1
    for (int rows = n; rows > 0; rows -= BATCH) {
#pragma unroll
        for (int k = 0; k < BATCH; k++) {
            sums.add(a[k]);
            a[k] = load_words_if(next.at, k + BATCH < rows);
            next.go_on(n);
            if (!now.go_on(n)) continue;
#pragma unroll
            for (int i = 0; i < VL; i++) {
                total[i] += sums.v[i];
                sums.v[i] = 0;
            }
        }
    }
    T *y = (T *)p.y + here.at[1] + column * p.y_step;
    if (p.y_step == 1 && is_aligned(y)) {
        store_pack(y, narrow_pack<T>(total));
    } else {
#pragma unroll
        for (int i = 0; i < VL; i++) narrow(total[i], y[i * p.y_step]);
    }
}

/* Rows that begin anywhere, in words of 4 bytes, or of one larger element; a thread's are 32 apart. Where words are
 * pairs, the sums of a slot whose rows begin in the middle of one are a place further on: the last of a warp's belongs
 * to the next one. `left`: columns from the thread's first on. INSIDE: all of the warp's words are whole and its
 * own. */
template <class T, bool INSIDE> TN_DEVICE void sum_few_words(const tni_sum_columns &p, const T *x, T *y, int left) {
    constexpr int PER = sizeof(T) == 2 ? 2 : 1, WORDS = TNI_SUM_FEW_WORDS, BATCH = sizeof(T) == 8 ? 4 : 8;
    constexpr int APART = 32 * PER;
    const int lane = threadIdx.x % 32, n = (int)p.n_rows;
    const T *high = (const T *)p.high;
    few_order<T> next(x, p.rows.strides[0][0]), now = next;
    lane_word<T> a[BATCH][WORDS];
    acc<T> sums[WORDS][PER] = {}, total[WORDS][PER] = {}, tail[WORDS] = {};
    const auto load = [&](int k, bool there) {
        const int odd = PER > 1 && ((u64)next.at & 2);
        const T *at = next.at - odd;
#pragma unroll
        for (int i = 0; i < WORDS; i++) {
            const bool whole = INSIDE || (i * APART < left + odd && at + i * APART + PER <= high);
            a[k][i].load_if((const lane_word<T> *)(at + i * APART), there && whole);
        }
        next.go_on(n);
    };
#pragma unroll
    for (int k = 0; k < BATCH; k++) load(k, k < n);
    /* x's last element, if its pair is not whole. */
    const int last = next.stride < 0 ? 0 : n - 1;
    if (!INSIDE && PER > 1) {
        const T *at = x + last * next.stride;
        const int odd = ((u64)at & 2) != 0;
        at -= odd;
#pragma unroll
        for (int i = 0; i < WORDS; i++, at += APART)
            tail[i] = widen(i * APART < left + odd && at + 1 == high ? *at : T{});
    }
#pragma unroll 1
    for (int rows = n; rows > 0; rows -= BATCH) {
#pragma unroll
        for (int k = 0; k < BATCH; k++) {
            const bool odd = PER > 1 && ((u64)now.at & 2), there = k < rows;
#pragma unroll
            for (int i = 0; i < WORDS; i++) {
                if (!INSIDE && PER > 1 && now.row == last) sums[i][0] += tail[i];
#pragma unroll
                for (int j = 0; j < PER; j++) sums[i][j] += a[k][i].get(j);
            }
            load(k, k + BATCH < rows);
            if (!now.go_on(n) || !there) continue;
#pragma unroll
            for (int i = 0; i < WORDS; i++) {
                const acc<T> mine = i + 1 < WORDS && lane == 0 ? sums[i + 1 < WORDS ? i + 1 : i][0] : sums[i][0];
                const acc<T> begun = PER > 1 ? __shfl_sync(0xffffffffu, mine, (lane + 1) % 32) : 0;
                total[i][0] += odd ? sums[i][PER - 1] : sums[i][0];
                if (PER > 1) total[i][PER - 1] += odd ? begun : sums[i][PER - 1];
            }
#pragma unroll
            for (int i = 0; i < WORDS; i++) {
#pragma unroll
                for (int j = 0; j < PER; j++) sums[i][j] = 0;
            }
        }
    }
#pragma unroll
    for (int i = 0; i < WORDS; i++) {
#pragma unroll
        for (int j = 0; j < PER; j++) {
            const int at = i * APART + j;
            const bool is_next = PER > 1 && i == WORDS - 1 && lane == 31;
            if ((INSIDE || at < left) && !is_next) narrow(total[i][j], y[at * p.y_step]);
        }
    }
}

template <class T> TN_DEVICE void sum_few_odd_rows(const tni_sum_columns &p) {
    constexpr int PER = sizeof(T) == 2 ? 2 : 1, OF_WARP = PER > 1 ? TNI_SUM_FEW_PAIRS : TNI_SUM_FEW_SINGLES;
    constexpr int REACH = 32 * TNI_SUM_FEW_WORDS * PER; /* columns that a warp reads */
    const u64 warp = ((u64)blockIdx.x * blockDim.x + threadIdx.x) / 32;
    const u64 warps = quotient((u64)p.c + OF_WARP - 1, OF_WARP), outer = quotient(warp, warps);
    if (outer >= (u64)p.kept.count) return;
    const i64 first = (i64)(warp - outer * warps) * OF_WARP, column = first + threadIdx.x % 32 * PER;
    const place here = walk_any(p.kept, outer);
    const T *x = (const T *)p.x + here.at[0] + column;
    T *y = (T *)p.y + here.at[1] + column * p.y_step;
    if (first + REACH <= p.c)
        sum_few_words<T, true>(p, x, y, REACH);
    else
        sum_few_words<T, false>(p, x, y, (int)(p.c - column));
}

/* Adds up the parts of columns: a thread has a chapter of one. */
template <class A, class Y> TN_DEVICE void sum_end_columns(const tni_sum_end &p) {
    constexpr int LANES = TNI_SUM_END_LANES;
    __shared__ A chapters[TNI_SUM_CHAPTERS][LANES];
    const int lane = threadIdx.x % LANES, chapter = threadIdx.x / LANES;
    const i64 output = (i64)blockIdx.x * LANES + lane;
    const int first = chapter * p.per_chapter, end = min(first + p.per_chapter, p.n_parts);
    A sum = 0;
    wait_for_last();
    if (output < p.outputs) {
#pragma unroll 16
        for (int i = first; i < end; i++) sum += ((const A *)p.parts)[i * p.outputs + output];
    }
    chapters[chapter][lane] = sum;
    __syncthreads();
    if (chapter > 0 || output >= p.outputs) return;
#pragma unroll
    for (int i = 1; i < TNI_SUM_CHAPTERS; i++) sum += chapters[i][lane];
    const i64 outer = (i64)quotient((u64)output, (u64)p.c);
    narrow(sum, ((Y *)p.y)[walk_any(p.kept, (u64)outer).at[1] + (output - outer * p.c) * p.y_step]);
}

/* Room for 64 registers: a batch of packs, the sums, and what it takes to get at them; for 128 where the batch is
 * large. */
#define COLUMNS(name, blocks, call) TN_ROW_KERNEL(name, TNI_SUM_COLUMN_THREADS, blocks, tni_sum_columns, call)
#define ODD_COLUMNS(name, call) TN_ROW_KERNEL(name, TNI_SUM_ODD_THREADS, 3, tni_sum_columns, call)
#define FEW(name, blocks, call) TN_ROW_KERNEL(name, TNI_SUM_FEW_THREADS, blocks, tni_sum_columns, call)
#define END(name, call) TN_ROW_KERNEL(name, TNI_SUM_THREADS, 4, tni_sum_end, call)

#define SUM(T, type)                                                 \
    COLUMNS(sum_columns_packs_##type, 4, (sum_columns<T, PACKS>(p))) \
    ODD_COLUMNS(sum_columns_odd_##type, (sum_columns<T, ODD>(p)))    \
    COLUMNS(sum_columns_dense_##type, 2, (sum_columns<T, DENSE>(p))) \
    COLUMNS(sum_columns_any_##type, 2, (sum_columns<T, ANY>(p)))     \
    FEW(sum_columns_few_##type, 4, (sum_few_rows<T>(p)))             \
    FEW(sum_columns_few_odd_##type, 4, (sum_few_odd_rows<T>(p)))     \
    END(sum_end_columns_##type, (sum_end_columns<acc<T>, T>(p)))
TN_FOR_TYPES(SUM)
