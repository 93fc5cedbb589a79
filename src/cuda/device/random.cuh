/* Random numbers that depend on a key and a place alone: Philox 4x32, 10 rounds. Element i takes word i % 4 of block
 * i / 4. */
#pragma once

#include "instructions.cuh"

/* Formulas without it leave it out: NVRTC takes 0.8 ms to read it. */
#ifndef TN_NO_RANDOM

namespace tn {

TN_DEVICE void philox(i64 key, i64 more, i64 stream, u64 block, u32 *c) {
    u64 m = (u64)more + ((u64)stream << 32);
    u32 k0 = (u32)key, k1 = (u32)((u64)key >> 32);
    c[0] = (u32)block;
    c[1] = (u32)(block >> 32);
    c[2] = (u32)m;
    c[3] = (u32)(m >> 32);
#pragma unroll
    for (int r = 0; r < 10; r++) {
        u32 a = __umulhi(0xD2511F53u, c[0]), b = __umulhi(0xCD9E8D57u, c[2]), la = 0xD2511F53u * c[0],
            lb = 0xCD9E8D57u * c[2];
        c[0] = b ^ c[1] ^ k0;
        c[1] = lb;
        c[2] = a ^ c[3] ^ k1;
        c[3] = la;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}

/* N numbers from 0 to 1, 1 excluded, of the elements from i on. */
template <int N> TN_DEVICE void random_numbers(i64 key, i64 more, i64 stream, i64 i, f32 (&y)[N]) {
    u32 c[4];
    if (N % 4 == 0 && i % 4 == 0) {
#pragma unroll
        for (int k = 0; k < N; k += 4) {
            philox(key, more, stream, (u64)(i + k) / 4, c);
#pragma unroll
            for (int j = 0; j < 4; j++) y[(k + j) % N] = (f32)(c[j] >> 8) * 0x1p-24f;
        }
        return;
    }
    for (int k = 0; k < N; k++) {
        philox(key, more, stream, (u64)(i + k) / 4, c);
        u32 w = (i + k) % 4, a = w & 1 ? c[1] : c[0], b = w & 1 ? c[3] : c[2];
        y[k] = (f32)((w & 2 ? b : a) >> 8) * 0x1p-24f;
    }
}

} // namespace tn

#endif
