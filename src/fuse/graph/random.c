/* Random numbers: what rand(seed, stream) is. */
#include "graph.h"

enum { LANES = 8, PER_BLOCK = 4 };

/* Philox 4x32 with 10 rounds, for some blocks side by side: element i takes word i % 4 of the block with counter
 * (i / 4, stream, seed[1]) under the key seed[0], so that any element can be had on its own. */
__attribute__((always_inline)) static inline void philox(const int lanes, uint64_t block, uint64_t key, uint64_t more,
                                                         uint32_t words[LANES][PER_BLOCK]) {
    uint32_t c0[LANES], c1[LANES], c2[LANES], c3[LANES], k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int l = 0; l < lanes; l++) {
        c0[l] = (uint32_t)(block + (uint64_t)l);
        c1[l] = (uint32_t)((block + (uint64_t)l) >> 32);
        c2[l] = (uint32_t)more;
        c3[l] = (uint32_t)(more >> 32);
    }
    for (int round = 0; round < 10; round++) {
        for (int l = 0; l < lanes; l++) {
            uint64_t a = (uint64_t)0xD2511F53u * c0[l], b = (uint64_t)0xCD9E8D57u * c2[l];
            c0[l] = (uint32_t)(b >> 32) ^ c1[l] ^ k0;
            c1[l] = (uint32_t)b;
            c2[l] = (uint32_t)(a >> 32) ^ c3[l] ^ k1;
            c3[l] = (uint32_t)a;
        }
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    for (int l = 0; l < lanes; l++) {
        words[l][0] = c0[l];
        words[l][1] = c1[l];
        words[l][2] = c2[l];
        words[l][3] = c3[l];
    }
}

void tni_random(const int64_t *seed, int64_t stream, int64_t first, float *out, int64_t n) {
    uint64_t key = (uint64_t)seed[0], more = (uint64_t)seed[1] + ((uint64_t)stream << 32);
    uint32_t words[LANES][PER_BLOCK];
    for (int64_t done = 0; done < n;) {
        const int64_t at = first + done, skip = at % PER_BLOCK, have = LANES * PER_BLOCK - skip;
        const int64_t some = have < n - done ? have : n - done;
        const uint32_t *drawn = &words[0][0] + skip;
        if (skip + some <= PER_BLOCK) { /* the reference takes one at a time */
            philox(1, (uint64_t)at / PER_BLOCK, key, more, words);
        } else {
            philox(LANES, (uint64_t)at / PER_BLOCK, key, more, words);
        }
        for (int64_t i = 0; i < some; i++) out[done + i] = (float)(int32_t)(drawn[i] >> 8) * 0x1p-24f;
        done += some;
    }
}
