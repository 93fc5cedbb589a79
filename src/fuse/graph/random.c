/* Random numbers: what rand(seed, stream) is. */
#include <string.h>

#include "graph.h"

/* Philox 4x32 with 10 rounds: element i takes word i % 4 of the block with counter (i / 4, stream, seed[1]) under the
 * key seed[0], so that any element can be had on its own. */
static void philox(uint32_t c[4], uint32_t k0, uint32_t k1) {
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xD2511F53u * c[0], b = (uint64_t)0xCD9E8D57u * c[2];
        uint32_t next[4] = {(uint32_t)(b >> 32) ^ c[1] ^ k0, (uint32_t)b, (uint32_t)(a >> 32) ^ c[3] ^ k1, (uint32_t)a};
        memcpy(c, next, sizeof next);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}

void tni_random(const int64_t *seed, int64_t stream, int64_t first, float *out, int64_t n) {
    uint64_t key = (uint64_t)seed[0], more = (uint64_t)seed[1] + ((uint64_t)stream << 32);
    uint32_t words[4] = {0};
    for (int64_t i = first; i < first + n; i++) {
        uint64_t block = (uint64_t)i / 4;
        if (i == first || i % 4 == 0) {
            uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), (uint32_t)more, (uint32_t)(more >> 32)};
            memcpy(words, counter, sizeof words);
            philox(words, (uint32_t)key, (uint32_t)(key >> 32));
        }
        out[i - first] = (float)(words[i % 4] >> 8) * 0x1p-24f;
    }
}
