/* SHA-256 by FIPS 180-4. Its constants are the first bits of roots of primes, and are computed. */
#include "sha256.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { BLOCK = 64, ROUNDS = 64 };

typedef struct sum {
    uint32_t state[8], constants[ROUNDS];
} sum;

/* 32 bits behind the point. */
static uint32_t fraction(long double x) {
    return (uint32_t)((x - floorl(x)) * 4294967296.0L);
}

static void begin(sum *s) {
    int found = 0;
    for (int n = 2; found < ROUNDS; n++) {
        int divisor = 2;
        while (n % divisor) divisor++;
        if (divisor != n) continue;
        if (found < 8) s->state[found] = fraction(sqrtl((long double)n));
        s->constants[found++] = fraction(cbrtl((long double)n));
    }
}

static uint32_t turn(uint32_t x, int by) {
    return x >> by | x << (32 - by);
}

static void add_block(sum *s, const unsigned char *data) {
    uint32_t w[ROUNDS], v[8];
    for (int i = 0; i < 16; i++) {
        const unsigned char *d = data + 4 * (size_t)i;
        w[i] = (uint32_t)d[0] << 24 | (uint32_t)d[1] << 16 | (uint32_t)d[2] << 8 | d[3];
    }
    for (int i = 16; i < ROUNDS; i++) {
        const uint32_t a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + (turn(a, 7) ^ turn(a, 18) ^ a >> 3) + w[i - 7] + (turn(b, 17) ^ turn(b, 19) ^ b >> 10);
    }
    memcpy(v, s->state, sizeof v);
    for (int i = 0; i < ROUNDS; i++) {
        const uint32_t a = v[0], e = v[4];
        const uint32_t t = v[7] + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + ((e & v[5]) ^ (~e & v[6])) +
                           s->constants[i] + w[i];
        const uint32_t u = (turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += t;
        v[0] = t + u;
    }
    for (int i = 0; i < 8; i++) s->state[i] += v[i];
}

/* A one, zeros, and the length in bits close the last block. */
static void end(sum *s, unsigned char *block, size_t n, uint64_t bytes, char *text) {
    block[n++] = 0x80;
    if (n > BLOCK - 8) {
        memset(block + n, 0, BLOCK - n);
        add_block(s, block);
        n = 0;
    }
    memset(block + n, 0, BLOCK - n);
    for (int i = 0; i < 8; i++) block[BLOCK - 1 - i] = (unsigned char)(bytes * 8 >> 8 * i);
    add_block(s, block);
    for (int i = 0; i < 8; i++) snprintf(text + 8 * (size_t)i, 9, "%08x", (unsigned)s->state[i]);
}

void tni_sha256(const void *bytes, size_t count, char text[static TNI_SHA256_TEXT]) {
    const unsigned char *from = bytes;
    unsigned char block[BLOCK];
    size_t left = count;
    sum s;
    begin(&s);
    for (; left >= BLOCK; left -= BLOCK, from += BLOCK) add_block(&s, from);
    if (left) memcpy(block, from, left);
    end(&s, block, left, count, text);
}

bool tni_sha256_file(const char *path, char text[static TNI_SHA256_TEXT]) {
    unsigned char block[BLOCK];
    uint64_t bytes = 0;
    size_t n;
    sum s;
    FILE *file = fopen(path, "re");
    if (!file) return false;
    begin(&s);
    while ((n = fread(block, 1, BLOCK, file)) == BLOCK) {
        add_block(&s, block);
        bytes += BLOCK;
    }
    const bool whole = !ferror(file);
    fclose(file);
    end(&s, block, n, bytes + n, text);
    return whole;
}
