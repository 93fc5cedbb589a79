/* Products of 8-bit numbers (scaled.cuh) on Hopper's tensor cores: as in product_warpgroup.cu, 128 of k at a time, a
 * block's tiles one after the other. Integers are added up exactly. Of floats, tensor cores keep fewer bits than an
 * f32 has, so what they add up of 128 terms is added to sums in registers. */
#include "ring.cuh"
#include "scaled.cuh"

enum { BYTES_STEP = 128 };

TN_DEVICE int steps_of(const tni_gpu_product &p) {
    return (int)((p.k + BYTES_STEP - 1) / BYTES_STEP);
}

template <int COLS> TN_DEVICE void fetch_tiles(const tni_gpu_warpgroup &w, ring<COLS> r) {
    const tni_gpu_product &p = w.product;
    const int steps = steps_of(p);
    int a[5] = {}, b[5] = {};
    for (u32 tile = blockIdx.x; tile < (u32)w.tiles; tile += gridDim.x) {
        const tile_spot spot = find_tile(p, tile, ROWS, COLS);
        for (int step = 0; step < steps; step++) {
            const u32 full = r.full(r.stage);
            barrier_wait(r.empty(r.stage), r.parity ^ 1);
            barrier_expect(full, ring<COLS>::BYTES);
            fetch_a<false>(r.a(), (const tensor_map *)&w.a, a, (int)spot.row, step * BYTES_STEP, full);
            fetch_b<COLS, false, false>(r.b(), (const tensor_map *)&w.b, b, (int)spot.col, step * BYTES_STEP, full);
            r.next();
        }
    }
}

/* The ring's current stage; it is added to the sums, or they begin with it. */
template <bool ADD, class T, int COLS, class S>
TN_DEVICE void multiply_stage(const ring<COLS> &r, int group, S (&sums)[COLS / 2]) {
    const u64 a = matrix_at(r.a() + (u32)group * BOX, BOX), b = matrix_at(r.b(), BOX);
    products_begin();
    multiply_bytes<ADD>(T{}, sums, a, b);
#pragma unroll
    for (int i = 32; i < BYTES_STEP; i += 32) multiply_bytes<true>(T{}, sums, matrix_on(a, i), matrix_on(b, i));
    products_commit();
}

template <int COLS> TN_DEVICE void multiply_tile(of_i8 t, int count, ring<COLS> &r, int group, int (&sums)[COLS / 2]) {
    constexpr int BEHIND = ring<COLS>::BEHIND;
    for (int step = 0; step < count; step++) {
        barrier_wait(r.full(r.stage), r.parity);
        multiply_stage<true, of_i8>(r, group, sums);
        products_wait<BEHIND>();
        if (step >= BEHIND) r.leave(BEHIND);
        r.next();
    }
    products_wait<0>();
    for (int ago = count < BEHIND ? count : BEHIND; ago > 0; ago--) r.leave(ago);
}

template <int COLS>
TN_DEVICE void multiply_tile(of_e4m3 t, int count, ring<COLS> &r, int group, f32 (&sums)[COLS / 2]) {
    for (int step = 0; step < count; step++) {
        f32 some[COLS / 2];
        barrier_wait(r.full(r.stage), r.parity);
        multiply_stage<false, of_e4m3>(r, group, some);
        products_wait<0>();
        r.leave(0);
        r.next();
#pragma unroll
        for (int i = 0; i < COLS / 2; i++) sums[i] += some[i];
    }
}

template <class T, class Y, int COLS> TN_DEVICE void multiply_tiles(const tni_gpu_scaled &s, ring<COLS> r) {
    constexpr int MOST = LINE / (int)sizeof(Y), WIDTH = COLS < MOST ? COLS : MOST;
    const tni_gpu_product &p = s.w.product;
    const int warp = (int)threadIdx.x / 32 - GROUP / 32, count = steps_of(p);
    const tile_end<Y> end = end_of<Y>(p, 0, p.m);
    for (u32 tile = blockIdx.x; tile < (u32)s.w.tiles; tile += gridDim.x) {
        const tile_spot spot = find_tile(p, tile, ROWS, COLS);
        const i64 row = spot.row + warp * PATCH_ROWS;
        sum_of<T> sums[COLS / 2] = {};
        multiply_tile<COLS>(T{}, count, r, warp / 4, sums);
#pragma unroll
        for (int i = 0; i < COLS; i += WIDTH) {
            f32 made[WIDTH / 2];
            scale_sums<WIDTH>(s, row, spot.col + i, sums + i / 2, made);
            put_patch<Y, WIDTH, SEND>(p, end, r.patches + warp * PATCH, row, spot.col + i, made);
        }
    }
    bulk_sent();
}

template <class T, class Y, int COLS> TN_DEVICE void make_tiles(const tni_gpu_scaled &p) {
    const ring<COLS> r(1, 0);
    if (threadIdx.x == 0) r.prepare();
    __syncthreads();
    if (threadIdx.x < GROUP) {
        give_registers<40>();
        if (threadIdx.x == 0) fetch_tiles(p.w, r);
    } else {
        take_registers<232>();
        multiply_tiles<T, Y, COLS>(p, r);
    }
}

#define PRODUCT(T, Y, cols)                                                                \
    TN_ROW_KERNEL(product_scaled_warpgroup_##cols##_##T##_##Y, THREADS, 1, tni_gpu_scaled, \
                  (make_tiles<of_##T, Y, cols>(p)))
#define PRODUCTS(Y) PRODUCT(i8, Y, 256) PRODUCT(i8, Y, 128) PRODUCT(e4m3, Y, 128)
PRODUCTS(f32)
PRODUCTS(f16)
PRODUCTS(bf16)
