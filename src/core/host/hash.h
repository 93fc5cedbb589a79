/* Hashes, good for this process only: quick, and whoever finds something by one compares it. */
#ifndef TNI_HASH_H
#define TNI_HASH_H

#include <stdint.h>

static inline uint64_t tni_hash_add(uint64_t hash, uint64_t word) {
    hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
    return hash ^ hash >> 29;
}

#endif
