/* Tensors. The memory layout is DLPack's (DLTensor), so any DLPack tensor can be passed as it is. */
#ifndef TENON_TENSOR_H
#define TENON_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tenon/status.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TN_MAX_RANK 16

/* X(NAME, "name", DLPack code, bits). The one list of element types. */
#define TN_TYPES(X)         \
    X(F16, "f16", 2, 16)    \
    X(BF16, "bf16", 4, 16)  \
    X(F32, "f32", 2, 32)    \
    X(F64, "f64", 2, 64)    \
    X(I8, "i8", 0, 8)       \
    X(I16, "i16", 0, 16)    \
    X(I32, "i32", 0, 32)    \
    X(I64, "i64", 0, 64)    \
    X(U8, "u8", 1, 8)       \
    X(BOOL, "bool", 6, 8)   \
    X(C64, "c64", 5, 64)    \
    X(C128, "c128", 5, 128) \
    X(E4M3, "e4m3", 10, 8)  \
    X(E5M2, "e5m2", 12, 8)  \
    X(U16, "u16", 1, 16)    \
    X(U32, "u32", 1, 32)    \
    X(U64, "u64", 1, 64)

typedef enum tn_type {
    TN_NO_TYPE, /* unknown, or absent */
#define TN_TYPE_ENUM(NAME, name, code, bits) TN_##NAME,
    TN_TYPES(TN_TYPE_ENUM)
#undef TN_TYPE_ENUM
        TN_TYPE_COUNT
} tn_type;

/* Sets of types are bit masks: TN_BIT(TN_F32) | TN_BIT(TN_F64). */
#define TN_BIT(type) (1u << (type))
#define TN_FLOATS (TN_BIT(TN_F16) | TN_BIT(TN_BF16) | TN_BIT(TN_F32) | TN_BIT(TN_F64))
#define TN_INTS (TN_SIGNED | TN_UNSIGNED)
#define TN_SIGNED (TN_BIT(TN_I8) | TN_BIT(TN_I16) | TN_BIT(TN_I32) | TN_BIT(TN_I64))
#define TN_UNSIGNED (TN_BIT(TN_U8) | TN_BIT(TN_U16) | TN_BIT(TN_U32) | TN_BIT(TN_U64))

TN_API const char *tn_type_name(tn_type type);  /* "bf16", a constant; "?" for TN_NO_TYPE */
TN_API tn_type tn_type_named(const char *name); /* TN_NO_TYPE where there is none */
TN_API size_t tn_type_size(tn_type type);       /* bytes of an element */

typedef struct tn_dlpack_type { /* DLDataType */
    uint8_t code;
    uint8_t bits;
    uint16_t lanes;
} tn_dlpack_type;

TN_API tn_dlpack_type tn_type_to_dlpack(tn_type type);
TN_API tn_type tn_type_from_dlpack(tn_dlpack_type dtype); /* TN_NO_TYPE where Tenon has no such type */

typedef enum tn_device_kind { TN_CPU = 1, TN_CUDA = 2 } tn_device_kind; /* DLDeviceType */

typedef struct tn_device { /* DLDevice */
    int32_t kind;
    int32_t index;
} tn_device;

typedef struct tn_tensor { /* DLTensor */
    void *data;
    tn_device device;
    int32_t ndim;
    tn_dlpack_type dtype;
    int64_t *shape;
    int64_t *strides; /* in elements; NULL: dense, last dimension fastest */
    uint64_t byte_offset;
} tn_tensor;

/* A dense tensor over the caller's memory, on the CPU. Neither `data` nor `shape` is copied: both must outlive the
 * tensor. Set .device for memory of another device. */
TN_API tn_tensor tn_dense(void *data, tn_type type, int32_t ndim, int64_t *shape);

#ifdef __cplusplus
}
#endif
#endif
