/* One block of an .xz file in memory, its data LZMA2 and nothing before it. What is unpacked is its own dictionary. */
#include "unpack.h"

#include <string.h>

enum {
    HEADER = 12, /* of the file; so long is its end, too */
    STATES = 12, /* the kinds of what came last: 0 … 6 end with a literal */
    LITERALS = 0x300,
    LEAST_MATCH = 2,
    NEAR_ENDS = 115, /* 128 - 14 + 1: bits of distances that are coded by their place */
};

typedef uint16_t bit_chance; /* that the bit is 0, in 2048ths */
enum { EVEN = 1024, CHANCE_BITS = 11, CHANCE_SHIFT = 5 };

typedef struct length_chances {
    bit_chance longer, longest, small[16][8], middle[16][8], large[256];
} length_chances;

typedef struct chances {
    bit_chance match[STATES][16], rep[STATES], rep0[STATES], rep1[STATES], rep2[STATES], rep0_long[STATES][16];
    bit_chance slot[4][64], near[NEAR_ENDS], low[16];
    length_chances length, rep_length;
    bit_chance literal[16][LITERALS]; /* lc + lp <= 4 */
} chances;

typedef struct reader {
    const uint8_t *in, *end; /* packed */
    uint8_t *to;             /* (size) unpacked */
    size_t at, size, begin;  /* begin: the dictionary's first byte */
    uint32_t range, code;
    uint32_t rep[4], state; /* the last distances, less 1 */
    uint32_t lc, lp, pb;    /* bits of the byte before, of the place, that choose chances */
    bool damaged;
    chances c;
} reader;

static uint32_t next_byte(reader *r) {
    if (r->in < r->end) return *r->in++;
    r->damaged = true;
    return 0;
}

/* ---- bits -------------------------------------------------------------------------------------------------------- */

static void normalise(reader *r) {
    if (r->range >> 24) return;
    r->range <<= 8;
    r->code = r->code << 8 | next_byte(r);
}

static uint32_t get_bit(reader *r, bit_chance *chance) {
    normalise(r);
    const uint32_t bound = (r->range >> CHANCE_BITS) * *chance;
    if (r->code < bound) {
        r->range = bound;
        *chance += (2 * EVEN - *chance) >> CHANCE_SHIFT;
        return 0;
    }
    r->range -= bound;
    r->code -= bound;
    *chance -= *chance >> CHANCE_SHIFT;
    return 1;
}

/* The highest bit first. */
static uint32_t get_bits(reader *r, bit_chance *tree, int count) {
    uint32_t at = 1;
    for (int i = 0; i < count; i++) at = at << 1 | get_bit(r, &tree[at]);
    return at - (1u << count);
}

/* The lowest bit first. */
static uint32_t get_reversed(reader *r, bit_chance *tree, int count) {
    uint32_t at = 1, value = 0;
    for (int i = 0; i < count; i++) {
        const uint32_t bit = get_bit(r, &tree[at]);
        at = at << 1 | bit;
        value |= bit << i;
    }
    return value;
}

static uint32_t get_even_bits(reader *r, int count) {
    uint32_t value = 0;
    for (int i = 0; i < count; i++) {
        normalise(r);
        r->range >>= 1;
        const uint32_t bit = r->code >= r->range;
        if (bit) r->code -= r->range;
        value = value << 1 | bit;
    }
    return value;
}

/* ---- literals and matches ---------------------------------------------------------------------------------------- */

static uint32_t byte_back(const reader *r, uint32_t distance) {
    return r->at - r->begin > distance ? r->to[r->at - distance - 1] : 0;
}

static void get_literal(reader *r) {
    const uint32_t place = (uint32_t)(r->at - r->begin) & ((1u << r->lp) - 1);
    bit_chance *tree = r->c.literal[(place << r->lc) + (byte_back(r, 0) >> (8 - r->lc))];
    uint32_t value = 1;
    if (r->state >= 7) { /* after a match: as long as its next byte is right, that chooses the chances */
        uint32_t match = byte_back(r, r->rep[0]), same = 0x100;
        while (value < 0x100 && same) {
            match <<= 1;
            const uint32_t expected = match & 0x100, bit = get_bit(r, &tree[0x100 + expected + value]);
            value = value << 1 | bit;
            same = (expected != 0) == bit ? 0x100 : 0;
        }
    }
    while (value < 0x100) value = value << 1 | get_bit(r, &tree[value]);
    r->to[r->at++] = (uint8_t)value;
    r->state = r->state < 4 ? 0 : r->state < 10 ? r->state - 3 : r->state - 6;
}

static uint32_t get_length(reader *r, length_chances *l, uint32_t place) {
    if (!get_bit(r, &l->longer)) return LEAST_MATCH + get_bits(r, l->small[place], 3);
    if (!get_bit(r, &l->longest)) return LEAST_MATCH + 8 + get_bits(r, l->middle[place], 3);
    return LEAST_MATCH + 16 + get_bits(r, l->large, 8);
}

static uint32_t get_distance(reader *r, uint32_t length) {
    const uint32_t slot = get_bits(r, r->c.slot[length < 6 ? length - 2 : 3], 6);
    if (slot < 4) return slot;
    const int bits = (int)(slot >> 1) - 1;
    const uint32_t distance = (2 | (slot & 1)) << bits;
    if (slot < 14) return distance + get_reversed(r, &r->c.near[distance - slot], bits);
    return distance + (get_even_bits(r, bits - 4) << 4) + get_reversed(r, r->c.low, 4);
}

static uint32_t get_match(reader *r, uint32_t place) {
    const uint32_t length = get_length(r, &r->c.length, place);
    memmove(r->rep + 1, r->rep, 3 * sizeof *r->rep);
    r->rep[0] = get_distance(r, length);
    r->state = r->state < 7 ? 7 : 10;
    return length;
}

/* At one of the last four distances. */
static uint32_t get_rep(reader *r, uint32_t place) {
    if (!get_bit(r, &r->c.rep0[r->state])) {
        if (!get_bit(r, &r->c.rep0_long[r->state][place])) {
            r->state = r->state < 7 ? 9 : 11;
            return 1;
        }
    } else {
        const int which = !get_bit(r, &r->c.rep1[r->state]) ? 1 : 2 + (int)get_bit(r, &r->c.rep2[r->state]);
        const uint32_t distance = r->rep[which];
        memmove(r->rep + 1, r->rep, (size_t)which * sizeof *r->rep);
        r->rep[0] = distance;
    }
    const uint32_t length = get_length(r, &r->c.rep_length, place);
    r->state = r->state < 7 ? 8 : 11;
    return length;
}

/* The two may overlap: what is written is read again. */
static void copy_match(reader *r, uint32_t length, size_t most) {
    const size_t distance = (size_t)r->rep[0] + 1;
    if (distance > r->at - r->begin || length > most) {
        r->damaged = true;
        return;
    }
    for (uint32_t i = 0; i < length; i++, r->at++) r->to[r->at] = r->to[r->at - distance];
}

/* ---- chunks ------------------------------------------------------------------------------------------------------ */

static void reset(reader *r) {
    bit_chance *all = (bit_chance *)&r->c;
    for (size_t i = 0; i < sizeof r->c / sizeof *all; i++) all[i] = EVEN;
    memset(r->rep, 0, sizeof r->rep);
    r->state = 0;
}

static void set_properties(reader *r, uint32_t byte) {
    r->lc = byte % 9;
    r->lp = byte / 9 % 5;
    r->pb = byte / 45;
    if (r->lc + r->lp > 4 || r->pb > 4) r->damaged = true;
}

static void get_packed_chunk(reader *r, size_t unpacked) {
    const size_t until = r->at + unpacked;
    r->range = UINT32_MAX;
    r->code = 0;
    for (int i = 0; i < 5; i++) r->code = r->code << 8 | next_byte(r);
    while (r->at < until && !r->damaged) {
        const uint32_t place = (uint32_t)(r->at - r->begin) & ((1u << r->pb) - 1);
        if (!get_bit(r, &r->c.match[r->state][place])) {
            get_literal(r);
        } else {
            const uint32_t length = get_bit(r, &r->c.rep[r->state]) ? get_rep(r, place) : get_match(r, place);
            copy_match(r, length, until - r->at);
        }
    }
}

static uint32_t next_pair(reader *r) {
    const uint32_t high = next_byte(r);
    return high << 8 | next_byte(r);
}

/* False: it was the last one. */
static bool get_chunk(reader *r) {
    const uint32_t control = next_byte(r), resets = control >> 5 & 3;
    if (control == 0 || r->damaged) return false;
    const bool packed = control >= 0x80;
    const size_t unpacked = ((packed ? (control & 0x1f) << 16 : 0) | next_pair(r)) + (size_t)1;
    const size_t length = packed ? next_pair(r) + (size_t)1 : unpacked;
    if (control == 1 || (packed && resets == 3)) r->begin = r->at;
    if (packed && resets >= 2) set_properties(r, next_byte(r));
    if (packed && resets >= 1) reset(r);
    if ((!packed && control > 2) || unpacked > r->size - r->at || length > (size_t)(r->end - r->in)) r->damaged = true;
    if (r->damaged) return false;
    const uint8_t *file_end = r->end, *next = r->in + length;
    r->end = next;
    if (packed) {
        get_packed_chunk(r, unpacked);
    } else {
        memcpy(r->to + r->at, r->in, unpacked);
        r->at += unpacked;
    }
    r->in = next;
    r->end = file_end;
    return !r->damaged;
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

static const uint8_t magic[6] = {0xfd, '7', 'z', 'X', 'Z', 0};

bool tni_is_packed(const uint8_t *data, const uint8_t *end) {
    return end - data > (ptrdiff_t)sizeof magic && memcmp(data, magic, sizeof magic) == 0;
}

static uint64_t get_number(reader *r) {
    uint64_t value = 0;
    uint32_t byte = 0x80;
    for (int shift = 0; shift < 63 && byte & 0x80; shift += 7) {
        byte = next_byte(r);
        value |= (uint64_t)(byte & 0x7f) << shift;
    }
    return value;
}

size_t tni_unpacked_size(const uint8_t *data, const uint8_t *end) {
    if (!tni_is_packed(data, end) || end - data < 2 * HEADER || memcmp(end - 2, "YZ", 2) != 0) return 0;
    uint32_t quarter;
    memcpy(&quarter, end - 8, sizeof quarter);
    const uint64_t length = ((uint64_t)quarter + 1) * 4;
    if (length > (uint64_t)(end - data) - 2 * HEADER) return 0;
    /* The index: 0, how many blocks there are, and of each its packed and its unpacked size. */
    reader r = {.in = end - HEADER - length, .end = end - HEADER};
    if (next_byte(&r) != 0 || get_number(&r) != 1) return 0;
    get_number(&r);
    const uint64_t size = get_number(&r);
    return r.damaged || size > UINT32_MAX ? 0 : (size_t)size;
}

bool tni_unpack(const uint8_t *data, const uint8_t *end, uint8_t *to, size_t size) {
    if (tni_unpacked_size(data, end) != size) return false;
    const uint8_t *block = data + HEADER; /* opens with its header: a quarter of its length, less 1, and flags */
    const size_t header = ((size_t)block[0] + 1) * 4;
    if (block[0] == 0 || (block[1] & 3) != 0 || header > (size_t)(end - block)) return false;
    reader r = {.in = block + header, .end = end, .to = to, .size = size, .damaged = false};
    reset(&r);
    while (get_chunk(&r)) continue;
    return !r.damaged && r.at == size;
}
