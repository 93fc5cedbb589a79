/* ONNX Runtime from pure C: every row of the table as a custom operator of the domain `tenon`, and formulas as `Fuse`.
 *
 * A session asks for RegisterCustomOps in the file that it is told to load. No header of ONNX Runtime is included and
 * nothing of it is linked: what is used of its tables of functions is declared below, by place. Places never change
 * once a version is out; all of these are there since 1.17.
 *
 * A contract becomes a node like this:
 *   - inputs in the contract's order, lists behind all others, where ONNX Runtime has its one variadic input. Several
 *     lists follow each other; the attribute `lengths` then says how many tensors each has;
 *   - outputs in the contract's order, then the new values of inputs that are updated in place. All but the first may
 *     be left out;
 *   - attributes by their names; a type is its name ("f32"), a truth value an int.
 *
 * onnxruntime_attrs.c   attributes of a node, errors
 * onnxruntime_calls.c   shapes, kernels of nodes, calls
 * onnxruntime_ops.c     an operator for each choice of types, registration */
#ifndef TNI_ONNXRUNTIME_H
#define TNI_ONNXRUNTIME_H

#include "core/contract/contract.h"

/* ---- what is used of ONNX Runtime -------------------------------------------------------------------------------- */

typedef struct OrtStatus OrtStatus;
typedef struct OrtSessionOptions OrtSessionOptions;
typedef struct ort_domain ort_domain;
typedef struct ort_value ort_value;
typedef struct ort_shape ort_shape; /* OrtTensorTypeAndShapeInfo */
typedef struct ort_info ort_info;   /* OrtKernelInfo: a node while its kernel is made */
typedef struct ort_context ort_context;
typedef struct ort_inference ort_inference; /* OrtShapeInferContext */
typedef struct ort_attr ort_attr;           /* OrtOpAttr */

typedef struct OrtApiBase {
    const void *(*GetApi)(uint32_t version);
    const char *(*GetVersionString)(void);
} OrtApiBase;

enum {
    OLDEST = 17,         /* minor version that has all of this */
    WRITTEN_FOR = 18,    /* the one whose custom_op is below */
    ABSENT_IS_SAFE = 24, /* before it, inferring shapes of a node without an optional input crashes */
};
enum { ORT_FAIL = 1, ORT_INVALID_ARGUMENT = 2, ORT_NOT_IMPLEMENTED = 9 };
enum { REQUIRED, OPTIONAL, VARIADIC };
enum { ATTR_INT = 1, ATTR_INTS, ATTR_FLOAT, ATTR_FLOATS, ATTR_STRING };

/* X(place, result, name, parameters) */
#define FUNCTIONS(X)                                                                                              \
    X(0, OrtStatus *, CreateStatus, (int code, const char *message))                                              \
    X(2, const char *, GetErrorMessage, (const OrtStatus *))                                                      \
    X(26, OrtStatus *, CreateCustomOpDomain, (const char *name, ort_domain **))                                   \
    X(27, OrtStatus *, CustomOpDomain_Add, (ort_domain *, const void *op))                                        \
    X(28, OrtStatus *, AddCustomOpDomain, (OrtSessionOptions *, ort_domain *))                                    \
    X(51, OrtStatus *, GetTensorMutableData, (ort_value *, void **data))                                          \
    X(57, OrtStatus *, CreateTensorTypeAndShapeInfo, (ort_shape **))                                              \
    X(58, OrtStatus *, SetTensorElementType, (ort_shape *, int type))                                             \
    X(59, OrtStatus *, SetDimensions, (ort_shape *, const int64_t *dims, size_t count))                           \
    X(60, OrtStatus *, GetTensorElementType, (const ort_shape *, int *type))                                      \
    X(61, OrtStatus *, GetDimensionsCount, (const ort_shape *, size_t *count))                                    \
    X(62, OrtStatus *, GetDimensions, (const ort_shape *, int64_t *dims, size_t count))                           \
    X(65, OrtStatus *, GetTensorTypeAndShape, (const ort_value *, ort_shape **))                                  \
    X(85, OrtStatus *, KernelInfoGetAttribute_float, (const ort_info *, const char *name, float *))               \
    X(86, OrtStatus *, KernelInfoGetAttribute_int64, (const ort_info *, const char *name, int64_t *))             \
    X(87, OrtStatus *, KernelInfoGetAttribute_string, (const ort_info *, const char *name, char *, size_t *size)) \
    X(88, OrtStatus *, KernelContext_GetInputCount, (const ort_context *, size_t *))                              \
    X(90, OrtStatus *, KernelContext_GetInput, (const ort_context *, size_t, const ort_value **))                 \
    X(91, OrtStatus *, KernelContext_GetOutput, (ort_context *, size_t, const int64_t *, size_t, ort_value **))   \
    X(93, void, ReleaseStatus, (OrtStatus *))                                                                     \
    X(99, void, ReleaseTensorTypeAndShapeInfo, (ort_shape *))                                                     \
    X(162, OrtStatus *, KernelInfoGetAttributeArray_float, (const ort_info *, const char *, float *, size_t *))   \
    X(163, OrtStatus *, KernelInfoGetAttributeArray_int64, (const ort_info *, const char *, int64_t *, size_t *)) \
    X(231, OrtStatus *, KernelInfo_GetOutputCount, (const ort_info *, size_t *))                                  \
    X(233, OrtStatus *, KernelInfo_GetOutputName, (const ort_info *, size_t, char *, size_t *size))               \
    X(267, OrtStatus *, ShapeInferContext_GetInputCount, (const ort_inference *, size_t *))                       \
    X(268, OrtStatus *, ShapeInferContext_GetInputTypeShape, (const ort_inference *, size_t, ort_shape **))       \
    X(269, OrtStatus *, ShapeInferContext_GetAttribute, (const ort_inference *, const char *, const ort_attr **)) \
    X(270, OrtStatus *, ShapeInferContext_SetOutputTypeShape, (const ort_inference *, size_t, const ort_shape *)) \
    X(271, OrtStatus *, SetSymbolicDimensions, (ort_shape *, const char **names, size_t count))                   \
    X(272, OrtStatus *, ReadOpAttr, (const ort_attr *, int type, void *data, size_t bytes, size_t *size))         \
    X(274, OrtStatus *, KernelContext_ParallelFor,                                                                \
      (const ort_context *, void (*)(void *, size_t), size_t total, size_t batches, void *))

typedef struct ort_api {
#define FIELD(place, result, name, parameters) result(*name) parameters;
    FUNCTIONS(FIELD)
#undef FIELD
    int minor; /* of the version that runs */
} ort_api;

/* OrtCustomOp as 1.18 has it; what is NULL is not called. */
typedef struct custom_op custom_op;
struct custom_op {
    uint32_t version;
    void *(*CreateKernel)(const custom_op *, const void *api, const ort_info *);
    const char *(*GetName)(const custom_op *);
    const char *(*GetExecutionProviderType)(const custom_op *);
    int (*GetInputType)(const custom_op *, size_t);
    size_t (*GetInputTypeCount)(const custom_op *);
    int (*GetOutputType)(const custom_op *, size_t);
    size_t (*GetOutputTypeCount)(const custom_op *);
    void (*KernelCompute)(void *, ort_context *);
    void (*KernelDestroy)(void *);
    int (*GetInputCharacteristic)(const custom_op *, size_t);
    int (*GetOutputCharacteristic)(const custom_op *, size_t);
    int (*GetInputMemoryType)(const custom_op *, size_t);
    int (*GetVariadicInputMinArity)(const custom_op *);
    int (*GetVariadicInputHomogeneity)(const custom_op *);
    int (*GetVariadicOutputMinArity)(const custom_op *);
    int (*GetVariadicOutputHomogeneity)(const custom_op *);
    OrtStatus *(*CreateKernelV2)(const custom_op *, const void *api, const ort_info *, void **kernel);
    OrtStatus *(*KernelComputeV2)(void *, ort_context *);
    OrtStatus *(*InferOutputShapeFn)(const custom_op *, ort_inference *);
    int (*GetStartVersion)(const custom_op *);
    int (*GetEndVersion)(const custom_op *);
    size_t (*GetMayInplace)(int **, int **);
    void (*ReleaseMayInplace)(int *, int *);
    size_t (*GetAliasMap)(int **, int **);
    void (*ReleaseAliasMap)(int *, int *);
};

/* ONNX's numbers of element types; 0: it has no such type, or ONNX Runtime takes none (complex numbers). */
extern const uint8_t tni_ort_types[TN_TYPE_COUNT];

/* ---- errors ------------------------------------------------------------------------------------------------------ */

OrtStatus *tni_ort_status(const ort_api *api, tn_status status); /* NULL: success */
/* A failure of ONNX Runtime's own; frees it. */
tn_status tni_ort_failed(const ort_api *api, const char *who, OrtStatus *failed);
bool tni_ort_good(const ort_api *api, OrtStatus *failed); /* the same without a message */

/* ---- operators with their types ---------------------------------------------------------------------------------- */

/* One choice of types for an operator: ONNX Runtime has an operator of this name for each. */
typedef struct variant {
    custom_op base; /* first: callbacks get it */
    const ort_api *api;
    const tn_function *op;                                       /* NULL: Fuse, the node has the formula */
    int32_t n_in, n_out;                                         /* of the node; a variadic one counts once */
    bool lists;                                                  /* the last input is variadic: all lists */
    bool lists_out;                                              /* the last output is */
    uint8_t in_types[TNI_MAX_ARGS], out_types[2 * TNI_MAX_ARGS]; /* tn_type */
    bool in_optional[TNI_MAX_ARGS];
} variant;

const char *tni_ort_name(const variant *v);
/* Which input of the contract is number k of those that are updated in place and are a list, or not; -1: none. */
int32_t tni_ort_updated(const tni_contract *c, int32_t k, bool list);

/* ---- what a node says -------------------------------------------------------------------------------------------- */

/* Where they are read: from a node whose kernel is made, or, `info` being NULL, while shapes are inferred. */
typedef struct source {
    const ort_api *api;
    const ort_info *info;
    const ort_inference *inference;
} source;

/* What a call of a node is made with, whatever its tensors are. */
typedef struct form {
    const tn_function *op;
    tn_attr attrs[TNI_MAX_ARGS];    /* by place */
    int32_t lengths[TNI_MAX_ARGS];  /* (n_inputs) of lists; -1: all tensors that are left; 0: it is left out */
    void *memory[TNI_MAX_ARGS + 3]; /* of attributes' values, and of a formula's own: its text, attributes, lengths */
    int32_t n_memory;
} form;

/* The form is freed in any case. */
tn_status tni_ort_read_form(const source *s, const variant *v, form *f);
void tni_ort_free_form(form *f);

/* ---- callbacks of custom_op -------------------------------------------------------------------------------------- */

OrtStatus *tni_ort_infer(const custom_op *op, ort_inference *inference);
OrtStatus *tni_ort_create(const custom_op *op, const void *table, const ort_info *info, void **kernel);
OrtStatus *tni_ort_compute(void *kernel, ort_context *context);
void tni_ort_destroy(void *kernel);

#endif
