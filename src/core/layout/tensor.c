/* Element types, strides, and single elements. */
#include "layout.h"

#include <math.h>
#include <string.h>

typedef struct type_info {
    const char *name;
    uint8_t code, bits;
} type_info;

static const type_info types[TN_TYPE_COUNT] = {{"?", 0, 0},
#define INFO(NAME, name, code, bits) {name, code, bits},
                                               TN_TYPES(INFO)
#undef INFO
};

static bool is_type(tn_type type) {
    return (unsigned)type < TN_TYPE_COUNT;
}

const char *tn_type_name(tn_type type) {
    return types[is_type(type) ? type : TN_NO_TYPE].name;
}

tn_type tn_type_named(const char *name) {
    for (int t = 1; name && t < TN_TYPE_COUNT; t++) {
        if (strcmp(types[t].name, name) == 0) return (tn_type)t;
    }
    return TN_NO_TYPE;
}

size_t tn_type_size(tn_type type) {
    return types[is_type(type) ? type : TN_NO_TYPE].bits / 8;
}

tn_dlpack_type tn_type_to_dlpack(tn_type type) {
    const type_info *t = &types[is_type(type) ? type : TN_NO_TYPE];
    return (tn_dlpack_type){t->code, t->bits, 1};
}

tn_type tn_type_from_dlpack(tn_dlpack_type dtype) {
    if (dtype.lanes != 1) return TN_NO_TYPE;
    for (int t = 1; t < TN_TYPE_COUNT; t++) {
        if (types[t].code == dtype.code && types[t].bits == dtype.bits) return (tn_type)t;
    }
    return TN_NO_TYPE;
}

tn_tensor tn_dense(void *data, tn_type type, int32_t ndim, int64_t *shape) {
    return (tn_tensor){
        .data = data, .device = {TN_CPU, 0}, .ndim = ndim, .dtype = tn_type_to_dlpack(type), .shape = shape};
}

/* ---- strides ----------------------------------------------------------------------------------------------------- */

void tni_dense_strides(int32_t ndim, const int64_t *shape, int64_t *strides) {
    int64_t stride = 1;
    for (int32_t i = ndim - 1; i >= 0; i--) {
        strides[i] = stride;
        stride *= shape[i] > 0 ? shape[i] : 1;
    }
}

bool tni_is_dense(int32_t ndim, const int64_t *shape, const int64_t *strides) {
    int64_t stride = 1;
    bool dense = true;
    for (int32_t i = ndim - 1; i >= 0; i--) {
        if (shape[i] == 0) return true; /* no element to be out of place */
        if (shape[i] != 1 && strides[i] != stride) dense = false;
        stride *= shape[i];
    }
    return dense;
}

bool tni_is_permuted_dense(int32_t ndim, const int64_t *shape, const int64_t *strides) {
    /* Taken from the smallest stride up, each must be the product of the sizes before it. */
    bool taken[TN_MAX_RANK] = {false};
    int64_t stride = 1;
    for (int32_t step = 0; step < ndim; step++) {
        int32_t best = -1;
        for (int32_t i = 0; i < ndim; i++) {
            if (taken[i]) continue;
            if (shape[i] == 1) {
                best = i;
                break;
            }
            if (strides[i] == stride) best = i;
        }
        if (best < 0) return false;
        taken[best] = true;
        stride *= shape[best];
    }
    return true;
}

/* ---- single elements --------------------------------------------------------------------------------------------- */

static float float_of_bits(uint32_t bits) {
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* 2^n, for n from -1022 to 1023. References call what follows for each of their elements, so nothing here is a call of
 * the C library. */
static double two_to(int n) {
    uint64_t bits = (uint64_t)(n + 1023) << 52;
    double d;
    memcpy(&d, &bits, sizeof d);
    return d;
}

/* Of a positive number: that of its highest bit; of numbers without one in front, -1023. */
static int exponent_of(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (int)(bits >> 52) - 1023;
}

/* A small float of 1 sign, `exponent` and `mantissa` bits: every value of it is a double. */
static inline double widen(uint32_t bits, int exponent, int mantissa, bool has_inf) {
    int bias = (1 << (exponent - 1)) - 1;
    int e = (int)(bits >> mantissa) & ((1 << exponent) - 1);
    uint32_t m = bits & ((1u << mantissa) - 1);
    double sign = bits >> (exponent + mantissa) & 1 ? -1.0 : 1.0;
    if (e == (1 << exponent) - 1) {
        if (has_inf && m == 0) return sign * (double)INFINITY;
        if (has_inf || m == (1u << mantissa) - 1) return (double)NAN;
    }
    if (e == 0) return sign * (double)m * two_to(1 - bias - mantissa);
    return sign * (double)(m | 1u << mantissa) * two_to(e - bias - mantissa);
}

/* The nearest such float, ties to even; past the largest: infinity, or NaN where there is none. */
static inline uint32_t narrow(double value, int exponent, int mantissa, bool has_inf) {
    int bias = (1 << (exponent - 1)) - 1;
    uint32_t sign = signbit(value) ? 1u << (exponent + mantissa) : 0;
    uint32_t top = ((1u << exponent) - 1) << mantissa;
    uint32_t nan = has_inf ? top | 1u << (mantissa - 1) : top | ((1u << mantissa) - 1);
    if (isnan(value)) return sign | nan;
    double a = fabs(value);
    if (isinf(a)) return sign | (has_inf ? top : nan);
    if (a == 0) return sign;
    int e = exponent_of(a) < 1 - bias ? 1 - bias : exponent_of(a);
    double units = a * two_to(mantissa - e) + 0x1p52 - 0x1p52; /* of the last place; exact until it is rounded here */
    uint64_t m = (uint64_t)units;
    uint64_t bits = m < 1u << mantissa ? m : m + ((uint64_t)(e + bias - 1) << mantissa);
    uint64_t largest = has_inf ? top - 1 : nan - 1;
    return sign | (bits > largest ? (has_inf ? top : nan) : (uint32_t)bits);
}

double tn_get(tn_type type, const void *data, int64_t i) {
    switch (type) {
    case TN_F16: return widen(((const uint16_t *)data)[i], 5, 10, true);
    case TN_BF16: return float_of_bits((uint32_t)((const uint16_t *)data)[i] << 16);
    case TN_F32: return ((const float *)data)[i];
    case TN_F64: return ((const double *)data)[i];
    case TN_I8: return ((const int8_t *)data)[i];
    case TN_I16: return ((const int16_t *)data)[i];
    case TN_I32: return ((const int32_t *)data)[i];
    case TN_I64: return (double)((const int64_t *)data)[i];
    case TN_U8: return ((const uint8_t *)data)[i];
    case TN_BOOL: return ((const uint8_t *)data)[i] != 0;
    case TN_E4M3: return widen(((const uint8_t *)data)[i], 4, 3, false);
    case TN_E5M2: return widen(((const uint8_t *)data)[i], 5, 2, true);
    case TN_U16: return ((const uint16_t *)data)[i];
    case TN_U32: return ((const uint32_t *)data)[i];
    case TN_U64: return (double)((const uint64_t *)data)[i];
    default: return (double)NAN; /* complex numbers have no double */
    }
}

void tn_set(tn_type type, void *data, int64_t i, double value) {
    switch (type) {
    case TN_F16: ((uint16_t *)data)[i] = (uint16_t)narrow(value, 5, 10, true); break;
    case TN_BF16: ((uint16_t *)data)[i] = (uint16_t)narrow(value, 8, 7, true); break;
    case TN_F32: ((float *)data)[i] = (float)value; break;
    case TN_F64: ((double *)data)[i] = value; break;
    case TN_I8: ((int8_t *)data)[i] = (int8_t)tni_whole(value); break;
    case TN_I16: ((int16_t *)data)[i] = (int16_t)tni_whole(value); break;
    case TN_I32: ((int32_t *)data)[i] = (int32_t)tni_whole(value); break;
    case TN_I64: ((int64_t *)data)[i] = tni_whole(value); break;
    case TN_U8: ((uint8_t *)data)[i] = (uint8_t)tni_whole(value); break;
    case TN_BOOL: ((uint8_t *)data)[i] = value != 0; break;
    case TN_E4M3: ((uint8_t *)data)[i] = (uint8_t)narrow(value, 4, 3, false); break;
    case TN_E5M2: ((uint8_t *)data)[i] = (uint8_t)narrow(value, 5, 2, true); break;
    case TN_U16: ((uint16_t *)data)[i] = (uint16_t)tni_whole(value); break;
    case TN_U32: ((uint32_t *)data)[i] = (uint32_t)tni_whole(value); break;
    case TN_U64: ((uint64_t *)data)[i] = tni_whole_unsigned(value); break;
    default: break;
    }
}
