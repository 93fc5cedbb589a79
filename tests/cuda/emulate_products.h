/* The rest of emulate.h: what tensor cores do, and what fetches boxes for them. Stands in for matrix.cuh and
 * warpgroup.cuh of src/cuda/products. */
#define TNI_CUDA_MATRIX
#define TNI_CUDA_WARPGROUP

namespace tn {

/* Matrices of a warp: each lane lays down what it has, and takes what its own results need. */
#define TN_MATRIX true
static struct {
    const char *row;
    u32 a[4], b[2];
} tn_lanes[TN_MOST_THREADS];

template <bool TURNED> static inline void load_matrices(const void *row, u32 (&made)[4]) {
    const u32 lane = threadIdx.x % 32, first = threadIdx.x - lane;
    if ((size_t)row % 16) abort();
    tn_lanes[threadIdx.x].row = (const char *)row;
    __syncwarp();
    for (u32 i = 0; i < 4; i++) {
        for (u32 half = 0; half < 2; half++) {
            const u32 r = TURNED ? lane % 4 * 2 + half : lane / 4, c = TURNED ? lane / 4 : lane % 4 * 2 + half;
            memcpy((char *)&made[i] + 2 * half, tn_lanes[first + 8 * i + r].row + 2 * c, 2);
        }
    }
    __syncwarp();
}

/* Numbers (row, col) of a and b as their registers hold them. */
static inline u16 tn_a_at(u32 first, int row, int col) {
    const u32 *w = tn_lanes[first + row % 8 * 4 + col % 8 / 2].a;
    return (u16)(w[row / 8 + col / 8 * 2] >> col % 2 * 16);
}
static inline u16 tn_b_at(u32 first, int row, int col) {
    const u32 *w = tn_lanes[first + col * 4 + row % 8 / 2].b;
    return (u16)(w[row / 8] >> row % 2 * 16);
}
/* Bytes (row, k) of a and (k, col) of b, of matrices of 8-bit numbers. */
template <class T> static inline T tn_byte_of(u32 w, int at) {
    T x;
    const unsigned char byte = (unsigned char)(w >> at % 4 * 8);
    memcpy(&x, &byte, 1);
    return x;
}
template <class T> static inline T tn_a_byte(u32 first, int row, int k) {
    return tn_byte_of<T>(tn_lanes[first + row % 8 * 4 + k % 16 / 4].a[row / 8 + k / 16 * 2], k);
}
template <class T> static inline T tn_b_byte(u32 first, int k, int col) {
    return tn_byte_of<T>(tn_lanes[first + col * 4 + k % 16 / 4].b[k / 16], k);
}
template <class T, class S>
static inline void multiply_matrices(T, S (&sums)[4], const u32 (&a)[4], u32 b_low, u32 b_high) {
    const u32 lane = threadIdx.x % 32, first = threadIdx.x - lane;
    memcpy(tn_lanes[threadIdx.x].a, a, sizeof a);
    tn_lanes[threadIdx.x].b[0] = b_low;
    tn_lanes[threadIdx.x].b[1] = b_high;
    __syncwarp();
    for (int i = 0; i < 4; i++) {
        const int row = (int)lane / 4 + i / 2 * 8, col = (int)lane % 4 * 2 + i % 2;
        for (int l = 0; l < 32 / (int)sizeof(T); l++) {
            if constexpr (sizeof(T) == 1) {
                sums[i] += value_of(tn_a_byte<T>(first, row, l)) * value_of(tn_b_byte<T>(first, l, col));
            } else {
                T x, y;
                x.bits = tn_a_at(first, row, l);
                y.bits = tn_b_at(first, l, col);
                sums[i] += (f32)x * (f32)y;
            }
        }
    }
    __syncwarp();
}

/* ---- warpgroup.cuh: addresses are those in dynamic shared memory ------------------------------------------------- */

#define TN_WARPGROUP true

/* The test makes it: where the tensor begins, its sizes, its strides in bytes but for the first, numbers and lines of a
 * box, and bytes of a number. */
struct alignas(64) tensor_map {
    u64 words[16];
};

static inline u32 shared_address(const void *p) {
    return (u32)((const char *)p - (const char *)dynamic_shared_128());
}

/* The lowest bit is the phase; then how many threads arrive, how many are still to come, and bytes, which may come
 * before they are announced. */
struct tn_barrier {
    u64 phase : 1, arrivals : 15, left : 15;
    i64 bytes : 33;
};
static inline void tn_arrived(tn_barrier *b) {
    if (b->left || b->bytes) return;
    b->phase ^= 1;
    b->left = b->arrivals;
}
static inline tn_barrier *tn_barrier_at(u32 address, u32 rank = tn_block) {
    return (tn_barrier *)tn_there((char *)dynamic_shared_128() + address, rank);
}
static inline void barrier_prepare(u32 barrier, u32 arrivals) {
    tn_barrier *b = tn_barrier_at(barrier);
    b->phase = 0;
    b->arrivals = b->left = arrivals;
    b->bytes = 0;
}
static inline void barriers_prepared() {
}
static inline void barrier_arrive_at(u32 barrier, u32 rank) {
    tn_barrier *b = tn_barrier_at(barrier, rank);
    if (!b->left) abort();
    b->left--;
    tn_arrived(b);
}
static inline void barrier_expect(u32 barrier, u32 bytes) {
    tn_barrier_at(barrier)->bytes += bytes;
    barrier_arrive_at(barrier, tn_block);
}
static inline void barrier_wait(u32 barrier, u32 parity) {
    while (tn_barrier_at(barrier)->phase == parity) tn_yield();
}
static inline void send_four(u32 shared, u32 rank, const f32 *a) {
    if (shared % 16) abort();
    memcpy(tn_there((char *)dynamic_shared_128() + shared, rank), a, 16);
}
static inline void load_four(u32 shared, f32 (&a)[4]) {
    if (shared % 16) abort();
    memcpy(a, (char *)dynamic_shared_128() + shared, 16);
}

/* Pieces of 16 bytes change places as the hardware has it: by the number of the line of 128 bytes. */
static inline u32 tn_swizzled(u32 address) {
    return address ^ (address >> 7 & 7) << 4;
}
static inline void fetch_box_for(u32 first, const tensor_map *map, const int (&at)[5], u32 barrier, u32 blocks) {
    const u64 *w = map->words, size = w[12];
    if (first % 1024 || blocks >> tn_blocks) abort();
    for (u32 rank = 0; rank < tn_blocks; rank++) {
        if (!(blocks >> rank & 1)) continue;
        char *shared = tn_there(dynamic_shared_128(), rank);
        for (u32 line = 0; line < w[11]; line++) {
            for (u32 i = 0; i < w[10]; i++) {
                bool there = true;
                u64 from = w[0] + size * ((u64)at[0] + i);
                for (int d = 0; d < 5; d++) {
                    const u64 k = (u64)at[d] + (d == 0 ? i : d == 1 ? line : 0);
                    there = there && k < w[1 + d];
                    if (d) from += k * w[5 + d];
                }
                char *to = shared + tn_swizzled(first + line * 128 + (u32)size * i);
                memset(to, 0, size);
                if (there) memcpy(to, (const void *)from, size);
            }
        }
        tn_barrier *b = tn_barrier_at(barrier, rank);
        b->bytes -= (i64)(w[10] * w[11] * size);
        tn_arrived(b);
    }
}
static inline void fetch_box(u32 to, const tensor_map *map, const int (&at)[5], u32 barrier) {
    fetch_box_for(to, map, at, barrier, 1u << tn_block);
}

static inline void clear_piece(u32 shared) {
    if (shared % 16) abort();
    memset((char *)dynamic_shared_128() + shared, 0, 16);
}
static u32 tn_cleared[TN_MOST_BLOCKS], tn_clearing[TN_MOST_BLOCKS];
template <int THREADS> static inline void cleared() {
    const u32 turn = tn_clearing[tn_block];
    if (++tn_cleared[tn_block] == THREADS) {
        tn_cleared[tn_block] = 0;
        tn_clearing[tn_block]++;
    }
    while (tn_clearing[tn_block] == turn) tn_yield();
}

template <int> static inline void take_registers() {
}
template <int> static inline void give_registers() {
}
static inline void products_begin() {
}
static inline void products_commit() {
}
template <int> static inline void products_wait() {
}

/* Number (line, k) of a matrix that `at` describes. */
template <class T> static inline f32 tn_shared_number(u64 at, bool turned, u32 line, u32 k) {
    const u32 first = (u32)(at & 0x3fff) << 4, across = (u32)(at >> 16 & 0x3fff) << 4,
              down = (u32)(at >> 32 & 0x3fff) << 4;
    const u32 place = turned ? line / 64 * across + k / 8 * down + k % 8 * 128 + line % 64 * 2
                             : line / 8 * down + line % 8 * 128 + k * 2;
    T x;
    if (at >> 62 != 1) abort();
    memcpy(&x.bits, (const char *)dynamic_shared_128() + tn_swizzled(first + place), 2);
    return (f32)x;
}
template <class T> static inline T tn_shared_byte(u64 at, u32 line, u32 k) {
    const u32 first = (u32)(at & 0x3fff) << 4, down = (u32)(at >> 32 & 0x3fff) << 4;
    T x;
    if (at >> 62 != 1) abort();
    memcpy(&x, (const char *)dynamic_shared_128() + tn_swizzled(first + line / 8 * down + line % 8 * 128 + k), 1);
    return x;
}

/* The four warps read together: none goes on before all have. */
static u32 tn_group_arrived[TN_MOST_BLOCKS][TN_MOST_THREADS / 128],
    tn_group_turn[TN_MOST_BLOCKS][TN_MOST_THREADS / 128];
static inline void tn_group_meets() {
    const u32 group = threadIdx.x / 128, turn = tn_group_turn[tn_block][group];
    if (++tn_group_arrived[tn_block][group] == 128) {
        tn_group_arrived[tn_block][group] = 0;
        tn_group_turn[tn_block][group]++;
    }
    while (tn_group_turn[tn_block][group] == turn) tn_yield();
}
template <bool A_TURNED, bool B_TURNED, class T, int N>
static inline void multiply_shared(T, f32 (&sums)[N], u64 a, u64 b) {
    const u32 t = threadIdx.x % 128;
    for (u32 i = 0; i < N; i++) {
        const u32 row = t / 32 * 16 + t % 32 / 4 + i % 4 / 2 * 8, col = t % 4 * 2 + i / 4 * 8 + i % 2;
        for (u32 k = 0; k < 16; k++)
            sums[i] += tn_shared_number<T>(a, A_TURNED, row, k) * tn_shared_number<T>(b, B_TURNED, col, k);
    }
    tn_group_meets();
}
template <bool ADD, class T, class S, int N> static inline void multiply_bytes(T, S (&sums)[N], u64 a, u64 b) {
    const u32 t = threadIdx.x % 128;
    for (u32 i = 0; i < N; i++) {
        const u32 row = t / 32 * 16 + t % 32 / 4 + i % 4 / 2 * 8, col = t % 4 * 2 + i / 4 * 8 + i % 2;
        if (!ADD) sums[i] = 0;
        for (u32 k = 0; k < 32; k++)
            sums[i] += value_of(tn_shared_byte<T>(a, row, k)) * value_of(tn_shared_byte<T>(b, col, k));
    }
    tn_group_meets();
}

/* Here a warp needs no other one: barriers tell who has read what is in shared memory. */
template <bool B_TURNED, class T, int N> static inline void multiply_held(T, f32 (&sums)[N], const u32 (&a)[4], u64 b) {
    const u32 lane = threadIdx.x % 32, first = threadIdx.x - lane;
    memcpy(tn_lanes[threadIdx.x].a, a, sizeof a);
    __syncwarp();
    for (u32 i = 0; i < N; i++) {
        const u32 row = lane / 4 + i % 4 / 2 * 8, col = lane % 4 * 2 + i / 4 * 8 + i % 2;
        for (u32 k = 0; k < 16; k++) {
            T x;
            x.bits = tn_a_at(first, (int)row, (int)k);
            sums[i] += (f32)x * tn_shared_number<T>(b, B_TURNED, col, k);
        }
    }
    __syncwarp();
}

static inline u64 matrix_at(u32 address, u32 across) {
    return (u64)(address >> 4 & 0x3fff) | (u64)(across >> 4) << 16 | (u64)(1024 >> 4) << 32 | 1ull << 62;
}
static inline u64 matrix_on(u64 at, u32 bytes) {
    return at + (bytes >> 4);
}

} // namespace tn
