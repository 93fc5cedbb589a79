/* What is used of TensorFlow's C API, and what the files of the adapter share. No header of TensorFlow is included: the
 * functions are declared here as TensorFlow 2.16 has them, and found in the library that the process has open. */
#ifndef TNI_TENSORFLOW_H
#define TNI_TENSORFLOW_H

#include "adapters/absl.h"
#include "core/contract/contract.h"

typedef struct TF_Status TF_Status;
typedef struct TF_Tensor TF_Tensor;
typedef struct TF_OpDefinitionBuilder TF_OpDefinitionBuilder;
typedef struct TF_KernelBuilder TF_KernelBuilder;
typedef struct TF_ShapeInferenceContext TF_ShapeInferenceContext;
typedef struct TF_OpKernelConstruction TF_OpKernelConstruction;
typedef struct TF_OpKernelContext TF_OpKernelContext;

typedef void (*tf_shape_function)(TF_ShapeInferenceContext *, TF_Status *);
typedef void *(*tf_create)(TF_OpKernelConstruction *);
typedef void (*tf_compute)(void *kernel, TF_OpKernelContext *);
typedef void (*tf_delete)(void *kernel);

/* X(type, code, name in op definitions) */
#define TNI_TF_TYPES(X)        \
    X(F32, 1, "float")         \
    X(F64, 2, "double")        \
    X(I32, 3, "int32")         \
    X(U8, 4, "uint8")          \
    X(I16, 5, "int16")         \
    X(I8, 6, "int8")           \
    X(C64, 8, "complex64")     \
    X(I64, 9, "int64")         \
    X(BOOL, 10, "bool")        \
    X(BF16, 14, "bfloat16")    \
    X(C128, 18, "complex128")  \
    X(F16, 19, "half")         \
    X(U16, 17, "uint16")       \
    X(U32, 22, "uint32")       \
    X(U64, 23, "uint64")       \
    X(E5M2, 24, "float8_e5m2") \
    X(E4M3, 25, "float8_e4m3fn")

/* X(result, name, parameters) */
#define TNI_TF_FUNCTIONS(X)                                                                                            \
    X(TF_Status *, TF_NewStatus, (void))                                                                               \
    X(void, TF_DeleteStatus, (TF_Status *))                                                                            \
    X(void, TF_SetStatus, (TF_Status *, tni_absl_code, const char *message))                                           \
    X(tni_absl_code, TF_GetCode, (const TF_Status *))                                                                  \
    X(const char *, TF_Message, (const TF_Status *))                                                                   \
    X(TF_OpDefinitionBuilder *, TF_NewOpDefinitionBuilder, (const char *name))                                         \
    X(void, TF_OpDefinitionBuilderAddAttr, (TF_OpDefinitionBuilder *, const char *spec))                               \
    X(void, TF_OpDefinitionBuilderAddInput, (TF_OpDefinitionBuilder *, const char *spec))                              \
    X(void, TF_OpDefinitionBuilderAddOutput, (TF_OpDefinitionBuilder *, const char *spec))                             \
    X(void, TF_OpDefinitionBuilderSetShapeInferenceFunction, (TF_OpDefinitionBuilder *, tf_shape_function))            \
    X(void, TF_DeleteOpDefinitionBuilder, (TF_OpDefinitionBuilder *))                                                  \
    X(void, TF_RegisterOpDefinition, (TF_OpDefinitionBuilder *, TF_Status *))                                          \
    X(void, TF_ShapeInferenceContextSetUnknownShape, (TF_ShapeInferenceContext *, TF_Status *))                        \
    X(TF_KernelBuilder *, TF_NewKernelBuilder, (const char *op, const char *device, tf_create, tf_compute, tf_delete)) \
    X(void, TF_RegisterKernelBuilder, (const char *name, TF_KernelBuilder *, TF_Status *))                             \
    X(void, TF_OpKernelConstruction_Failure, (TF_OpKernelConstruction *, TF_Status *))                                 \
    X(void, TF_OpKernelConstruction_GetAttrSize,                                                                       \
      (TF_OpKernelConstruction *, const char *name, int32_t *list_size, int32_t *bytes, TF_Status *))                  \
    X(void, TF_OpKernelConstruction_GetAttrType, (TF_OpKernelConstruction *, const char *name, int *, TF_Status *))    \
    X(void, TF_OpKernelConstruction_GetAttrInt64,                                                                      \
      (TF_OpKernelConstruction *, const char *name, int64_t *, TF_Status *))                                           \
    X(void, TF_OpKernelConstruction_GetAttrBool,                                                                       \
      (TF_OpKernelConstruction *, const char *name, unsigned char *, TF_Status *))                                     \
    X(void, TF_OpKernelConstruction_GetAttrString,                                                                     \
      (TF_OpKernelConstruction *, const char *name, char *, size_t most, TF_Status *))                                 \
    X(void, TF_OpKernelConstruction_GetAttrInt64List,                                                                  \
      (TF_OpKernelConstruction *, const char *name, int64_t *, int most, TF_Status *))                                 \
    X(void, TF_OpKernelContext_Failure, (TF_OpKernelContext *, TF_Status *))                                           \
    X(int, TF_NumInputs, (TF_OpKernelContext *))                                                                       \
    X(int, TF_NumOutputs, (TF_OpKernelContext *))                                                                      \
    X(void, TF_GetInput, (TF_OpKernelContext *, int index, TF_Tensor **, TF_Status *))                                 \
    X(int, TF_ExpectedOutputDataType, (TF_OpKernelContext *, int index))                                               \
    X(TF_Tensor *, TF_AllocateOutput,                                                                                  \
      (TF_OpKernelContext *, int index, int type, const int64_t *dims, int rank, size_t bytes, TF_Status *))           \
    X(void, TF_DeleteTensor, (TF_Tensor *))                                                                            \
    X(int, TF_TensorType, (const TF_Tensor *))                                                                         \
    X(int, TF_NumDims, (const TF_Tensor *))                                                                            \
    X(int64_t, TF_Dim, (const TF_Tensor *, int dim))                                                                   \
    X(void *, TF_TensorData, (const TF_Tensor *))                                                                      \
    X(size_t, TF_TensorByteSize, (const TF_Tensor *))

struct tni_tensorflow {
#define FIELD(result, name, parameters) result(*name) parameters;
    TNI_TF_FUNCTIONS(FIELD)
#undef FIELD
};
extern struct tni_tensorflow tni_tf;

/* The op that runs every formula. */
#define TNI_TF_FUSE "TenonFuse"

typedef struct tni_tf_type {
    int code; /* TensorFlow's; 0: it has none */
    const char *name;
} tni_tf_type;
extern const tni_tf_type tni_tf_types[TN_TYPE_COUNT];
tn_type tni_tf_type_of(int code); /* TN_NO_TYPE where Tenon has none */

/* The name of a parameter in op definitions: TensorFlow writes Python functions of these, and `lambda` becomes
 * `lambda_`. */
const char *tni_tf_name(const char *name);

/* Whether an attribute of a contract is text in TensorFlow: its floats have 32 bits, and nothing in it is optional. */
static inline bool tni_tf_is_text(const tni_attr *attr) {
    return attr->kind == TNI_A_FLOAT || attr->optional;
}

/* Whether the value of an attribute may come as a tensor. */
static inline bool tni_tf_may_be_tensor(const tni_attr *attr) {
    return (attr->kind == TNI_A_INT || attr->kind == TNI_A_INTS) && !attr->optional;
}

/* The kernel of every op (tensorflow_kernels.c). */
void *tni_tf_create(TF_OpKernelConstruction *construction);
void tni_tf_compute(void *kernel, TF_OpKernelContext *context);
void tni_tf_delete(void *kernel);

#endif
