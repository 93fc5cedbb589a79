/* Copies between layouts that are fast along different dimensions, or along short ones. A block takes boxes one after
 * the other: it reads runs of one into shared memory, as they lie, and writes the runs of the other layout, whose
 * elements it gathers there. Where each element is in shared memory is the same for all boxes and found once. */
#include "boxes.cuh"

template <int W> struct alignas(W) bytes { u32 w[W / 4]; };
template <> struct alignas(2) bytes<2> { u16 w[1]; };
template <> struct alignas(1) bytes<1> { u8 w[1]; };

/* Of each run: where it begins, from the box's first element on, and how far along the dimension that the other side
 * cuts. */
TN_DEVICE void find_runs(const tni_box_side &side, i64 *at, u16 *other) {
#pragma unroll 1
    for (int r = (int)threadIdx.x; r < side.n_runs; r += TNI_BOX_THREADS) {
        u32 rest = (u32)r;
        i64 offset = 0;
        u32 cut = 0;
#pragma unroll 1
        for (int d = 0; d < side.n_dims; d++) {
            const u32 next = quotient(rest, side.extent[d]), index = rest - next * side.extent[d].by;
            offset += index * side.stride[d];
            if (d == side.other) cut = index;
            rest = next;
        }
        at[r] = offset;
        other[r] = (u16)cut;
    }
}

/* Where an element is in shared memory, of those that are read one behind the other. */
TN_DEVICE int padded(const tni_boxes &p, u32 element) {
    return (int)(element + (quotient(element, p.line) >> p.pad_shift) * p.pad);
}

/* Where the elements are, in the order in which they are written. */
TN_DEVICE void find_places(const tni_boxes &p, u16 *places) {
    const int count = p.writes.n_runs * p.writes.run;
#pragma unroll 1
    for (int t = (int)threadIdx.x; t < count; t += TNI_BOX_THREADS) {
        u32 rest = (u32)t;
        int r = 0, place = 0;
#pragma unroll 1
        for (int d = 0; d < p.n_dims; d++) {
            const u32 next = quotient(rest, p.extent[d]), index = rest - next * p.extent[d].by;
            r += (int)index * p.run_step[d];
            place += (int)index * p.place_step[d];
            rest = next;
        }
        places[t] = (u16)padded(p, (u32)(r * p.reads.run + place));
    }
}

/* A box: where it is, and how much of the cut dimensions it has. */
struct box {
    i64 from, to;
    int rest[2];
};

TN_DEVICE box find_box(const tni_boxes &p, u64 number) {
    box b = {0, 0, {1, 1}};
#pragma unroll 1
    for (int d = 0; d < p.walk.n_dims; d++) {
        const u64 size = (u64)p.walk.shape[d];
        const u64 next = p.walk.is_short ? (u64)quotient((u32)number, p.walk.divisors[d]) : number / size;
        const i64 index = (i64)(number - next * size);
        b.to += index * p.walk.strides[d][0];
        b.from += index * p.walk.strides[d][1];
        if (d < 2) {
            const i64 left = p.sizes[d] - index * p.extents[d];
            if (d == 0)
                b.rest[0] = (int)min(left, (i64)p.extents[0]);
            else
                b.rest[1] = (int)min(left, (i64)p.extents[1]);
        }
        number = next;
    }
    if (p.same) b.rest[1] = b.rest[0];
    return b;
}

/* Some of a side's elements: the thread's k-th. */
struct share {
    int run, place; /* of the first */
    bool there;
};

template <int V> TN_DEVICE share find_share(const tni_box_side &side, int unit, const u16 *other, int limit, int rest) {
    const int units = side.n_runs * (int)side.per_run.by;
    const u32 r = quotient((u32)min(unit, units - 1), side.per_run);
    share s = {(int)r, (int)((u32)unit - r * side.per_run.by) * V, false};
    s.there = unit < units && s.place < limit && (side.other < 0 || other[r] < rest);
    return s;
}

template <class U, int W>
TN_DEVICE void read_box(const tni_boxes &p, const box &b, const i64 *runs, const u16 *other, char *image) {
    constexpr int V = W / (int)sizeof(U), BATCH = W == 16 ? 4 : 8;
    const int units = p.reads.n_runs * (int)p.reads.per_run.by, limit = p.reads.inner * b.rest[1];
    const U *from = (const U *)p.from + b.from;
#pragma unroll 1
    for (int u = (int)threadIdx.x; u < units; u += BATCH * TNI_BOX_THREADS) {
        bytes<W> a[BATCH];
        int at[BATCH]; /* in shared memory; -1: nowhere */
#pragma unroll
        for (int k = 0; k < BATCH; k++) {
            const share s = find_share<V>(p.reads, u + k * TNI_BOX_THREADS, other, limit, b.rest[0]);
            at[k] = s.there ? padded(p, (u32)(s.run * p.reads.run + s.place)) : -1;
            a[k] = bytes<W>{}; /* or it would be kept from the round before */
            if (s.there) a[k] = *(const bytes<W> *)(from + runs[s.run] + s.place);
        }
#pragma unroll
        for (int k = 0; k < BATCH; k++)
            if (at[k] >= 0) *(bytes<W> *)(image + at[k] * (int)sizeof(U)) = a[k];
    }
}

template <class U, int W>
TN_DEVICE void write_box(const tni_boxes &p, const box &b, const i64 *runs, const u16 *other, const char *image,
                         const u16 *places) {
    constexpr int V = W / (int)sizeof(U);
    const int units = p.writes.n_runs * (int)p.writes.per_run.by, limit = p.writes.inner * b.rest[0];
    U *to = (U *)p.to + b.to;
    const U *elements = (const U *)image;
#pragma unroll 1
    for (int u = (int)threadIdx.x; u < units; u += TNI_BOX_THREADS) {
        const share s = find_share<V>(p.writes, u, other, limit, b.rest[1]);
        if (!s.there) continue;
        constexpr int PART = 2 * V < 16 ? 2 * V : 16;
        union {
            bytes<PART> a[2 * V / PART];
            u16 at[V];
        } where;
        union {
            bytes<W> a;
            U v[V];
        } r;
        const bytes<PART> *found = (const bytes<PART> *)(places + s.run * p.writes.run + s.place);
#pragma unroll
        for (int k = 0; k < 2 * V / PART; k++) where.a[k] = found[k];
#pragma unroll
        for (int e = 0; e < V; e++) r.v[e] = elements[where.at[e]];
        *(bytes<W> *)(to + runs[s.run] + s.place) = r.a;
    }
}

template <class U>
TN_DEVICE void read_any(const tni_boxes &p, const box &b, const i64 *runs, const u16 *other, char *image) {
    if constexpr (sizeof(U) < 16) {
        switch (p.reads.width) {
        case 1:
            if constexpr (sizeof(U) <= 1) read_box<U, 1>(p, b, runs, other, image);
            return;
        case 2:
            if constexpr (sizeof(U) <= 2) read_box<U, 2>(p, b, runs, other, image);
            return;
        case 4:
            if constexpr (sizeof(U) <= 4) read_box<U, 4>(p, b, runs, other, image);
            return;
        case 8: read_box<U, 8>(p, b, runs, other, image); return;
        }
    }
    read_box<U, 16>(p, b, runs, other, image);
}

template <class U>
TN_DEVICE void write_any(const tni_boxes &p, const box &b, const i64 *runs, const u16 *other, const char *image,
                         const u16 *places) {
    if constexpr (sizeof(U) < 16) {
        switch (p.writes.width) {
        case 1:
            if constexpr (sizeof(U) <= 1) write_box<U, 1>(p, b, runs, other, image, places);
            return;
        case 2:
            if constexpr (sizeof(U) <= 2) write_box<U, 2>(p, b, runs, other, image, places);
            return;
        case 4:
            if constexpr (sizeof(U) <= 4) write_box<U, 4>(p, b, runs, other, image, places);
            return;
        case 8: write_box<U, 8>(p, b, runs, other, image, places); return;
        }
    }
    write_box<U, 16>(p, b, runs, other, image, places);
}

/* Shared memory, in this order: what was read; of each element that is written, where it is; where runs begin, and how
 * far they are along the dimension that the other side cuts. boxes.c has the same sizes. */
template <class U> TN_DEVICE void copy_boxes(const tni_boxes &p) {
    extern __shared__ __align__(16) char shared[];
    char *image = shared;
    i64 *read_runs = (i64 *)(image + p.image), *write_runs = read_runs + p.reads.n_runs;
    u16 *places = (u16 *)(shared + p.tables);
    u16 *read_other = places + p.writes.n_runs * p.writes.run, *write_other = read_other + p.reads.n_runs;
    find_runs(p.reads, read_runs, read_other);
    find_runs(p.writes, write_runs, write_other);
    find_places(p, places);
    for (u64 number = blockIdx.x; number < (u64)p.walk.count; number += gridDim.x) {
        const box b = find_box(p, number);
        __syncthreads();
        read_any<U>(p, b, read_runs, read_other, image);
        __syncthreads();
        write_any<U>(p, b, write_runs, write_other, image, places);
    }
}

#define BOXES(name, U) TN_ROW_KERNEL(name, TNI_BOX_THREADS, 4, tni_boxes, (copy_boxes<U>(p)))

BOXES(copy_boxes_1, u8)
BOXES(copy_boxes_2, u16)
BOXES(copy_boxes_4, u32)
BOXES(copy_boxes_8, u64)
BOXES(copy_boxes_16, u128)
