/* ONNX Runtime from pure C: every row of the table as a custom operator of the domain `tenon`, and formulas as `Fuse`.
 *
 * A session asks for RegisterCustomOps in the file that it is told to load. No header of ONNX Runtime is included and
 * nothing of it is linked: what is used of its tables of functions is declared below, by place. Places never change once
 * a version is out; all of these are there since 1.17.
 *
 * A contract becomes a node like this:
 *   - inputs in the contract's order, lists behind all others, where ONNX Runtime has its one variadic input. Several
 *     lists follow each other; the attribute `lengths` then says how many tensors each has;
 *   - outputs in the contract's order, then the new values of inputs that are updated in place. All but the first may be
 *     left out;
 *   - attributes by their names; a type is its name ("f32"), a truth value an int. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tenon/fuse.h>

#include "../../src/core/contract_parts.h"

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
static const uint8_t onnx_types[TN_TYPE_COUNT] = {
    [TN_F32] = 1,  [TN_U8] = 2,   [TN_I8] = 3,   [TN_I16] = 5,   [TN_I32] = 6,   [TN_I64] = 7,
    [TN_BOOL] = 9, [TN_F16] = 10, [TN_F64] = 11, [TN_BF16] = 16, [TN_E4M3] = 17, [TN_E5M2] = 19,
};

static tn_type type_of(int onnx) {
    for (int t = 1; t < TN_TYPE_COUNT; t++) {
        if (onnx_types[t] == onnx) return (tn_type)t;
    }
    return TN_NO_TYPE;
}

/* ---- status ------------------------------------------------------------------------------------------------------ */

static OrtStatus *to_ort(const ort_api *api, tn_status status) {
    if (status == TN_OK) return NULL;
    bool argument = status == TN_BAD_VALUE || status == TN_BAD_TYPE || status == TN_BAD_SHAPE;
    return api->CreateStatus(argument                   ? ORT_INVALID_ARGUMENT
                             : status == TN_UNSUPPORTED ? ORT_NOT_IMPLEMENTED
                                                        : ORT_FAIL,
                             tn_last_error());
}

/* A failure of ONNX Runtime's own; frees it. */
static tn_status from_ort(const ort_api *api, const char *who, OrtStatus *failed) {
    if (!failed) return TN_OK;
    tn_fail(TN_SYSTEM, "%s: ONNX Runtime says: %s", who, api->GetErrorMessage(failed));
    api->ReleaseStatus(failed);
    return TN_SYSTEM;
}

static bool succeeds(const ort_api *api, OrtStatus *failed) {
    if (failed) api->ReleaseStatus(failed);
    return !failed;
}

/* ---- operators with their types ---------------------------------------------------------------------------------- */

/* One choice of types for an operator: ONNX Runtime has an operator of this name for each. */
typedef struct variant {
    custom_op base; /* first: callbacks get it */
    const ort_api *api;
    const tn_operator *op;                                       /* NULL: Fuse, the node has the formula */
    int32_t n_in, n_out;                                         /* of the node; a variadic one counts once */
    bool lists;                                                  /* the last input is variadic: all lists */
    bool lists_out;                                              /* the last output is */
    uint8_t in_types[TNI_MAX_ARGS], out_types[2 * TNI_MAX_ARGS]; /* tn_type */
    bool in_optional[TNI_MAX_ARGS];
} variant;

/* Which input of the contract is updated in place and is number k of those (`list`: or lists), or -1. */
static int32_t updated(const tni_contract *c, int32_t k, bool list) {
    for (int32_t i = 0; i < c->n_inputs; i++) {
        if (c->inputs[i].inplace && c->inputs[i].list == list && k-- == 0) return i;
    }
    return -1;
}

static int32_t count_lists(const tni_contract *c) {
    int32_t n = 0;
    for (int32_t i = 0; i < c->n_inputs; i++) n += c->inputs[i].list;
    return n;
}

static const char *fuse_name = "Fuse";

static const char *get_name(const custom_op *op) {
    const variant *v = (const variant *)op;
    return v->op ? v->op->contract->name : fuse_name;
}
static const char *get_provider(const custom_op *op) {
    (void)op;
    return "CPUExecutionProvider";
}
static size_t get_input_count(const custom_op *op) {
    return (size_t)((const variant *)op)->n_in;
}
static size_t get_output_count(const custom_op *op) {
    return (size_t)((const variant *)op)->n_out;
}
static int get_input_type(const custom_op *op, size_t i) {
    return onnx_types[((const variant *)op)->in_types[i]];
}
static int get_output_type(const custom_op *op, size_t i) {
    return onnx_types[((const variant *)op)->out_types[i]];
}
static int get_input_characteristic(const custom_op *op, size_t i) {
    const variant *v = (const variant *)op;
    if (v->lists && (int32_t)i == v->n_in - 1) return VARIADIC;
    return v->in_optional[i] ? OPTIONAL : REQUIRED;
}
static int get_output_characteristic(const custom_op *op, size_t i) {
    const variant *v = (const variant *)op;
    if (v->lists_out && (int32_t)i == v->n_out - 1) return VARIADIC;
    bool made = !v->op || !v->op->contract->n_outputs || v->op->contract->outputs[0].want == TNI_ALWAYS;
    return i == 0 && made ? REQUIRED : OPTIONAL;
}
static int get_memory(const custom_op *op, size_t i) {
    (void)op;
    (void)i;
    return 0; /* that of the provider */
}
static int one(const custom_op *op) {
    (void)op;
    return 1;
}

static int zero(const custom_op *op) {
    (void)op;
    return 0;
}

/* ---- attributes of a node ---------------------------------------------------------------------------------------- */

/* Where they are read: from a node whose kernel is made, or, `info` being NULL, while shapes are inferred. */
typedef struct source {
    const ort_api *api;
    const ort_info *info;
    const ort_inference *inference;
} source;

typedef enum found { FOUND, ABSENT, OTHER_KIND } found;

static found judge(const ort_api *api, OrtStatus *failed) {
    if (!failed) return FOUND;
    bool absent = strstr(api->GetErrorMessage(failed), "No attribute") != NULL;
    api->ReleaseStatus(failed);
    return absent ? ABSENT : OTHER_KIND;
}

static const ort_attr *inferred(const source *s, const char *name) {
    const ort_attr *attr = NULL;
    return succeeds(s->api, s->api->ShapeInferContext_GetAttribute(s->inference, name, &attr)) ? attr : NULL;
}

static found get_inferred(const source *s, const char *name, int type, void *data, size_t bytes, size_t *size) {
    const ort_attr *attr = inferred(s, name);
    if (!attr) return ABSENT;
    return succeeds(s->api, s->api->ReadOpAttr(attr, type, data, bytes, size)) ? FOUND : OTHER_KIND;
}

static found get_int(const source *s, const char *name, int64_t *value) {
    size_t size;
    if (!s->info) return get_inferred(s, name, ATTR_INT, value, sizeof *value, &size);
    return judge(s->api, s->api->KernelInfoGetAttribute_int64(s->info, name, value));
}

/* ONNX stores 32 bits: what is meant is the shortest decimal that rounds to them, 1e-5 and not 9.99999975e-06. */
static double widened(float value) {
    char text[32];
    for (int digits = 6; digits < 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtof(text, NULL) == value) return strtod(text, NULL);
    }
    return value;
}

static found get_float(const source *s, const char *name, double *value) {
    size_t size;
    float narrow;
    int64_t whole;
    found f = s->info ? judge(s->api, s->api->KernelInfoGetAttribute_float(s->info, name, &narrow))
                      : get_inferred(s, name, ATTR_FLOAT, &narrow, sizeof narrow, &size);
    if (f == FOUND) *value = widened(narrow);
    if (f != OTHER_KIND) return f;
    f = get_int(s, name, &whole); /* scale=2 */
    if (f == FOUND) *value = (double)whole;
    return f;
}

/* The bytes of a string, NUL behind them, or of integers, in memory that the caller frees; NULL if there is none. */
static found get_bytes(const source *s, const char *name, bool ints, void **data, size_t *size) {
    const ort_api *api = s->api;
    *data = NULL;
    *size = 0;
    if (s->info) {
        found f = judge(api, ints ? api->KernelInfoGetAttributeArray_int64(s->info, name, NULL, size)
                                  : api->KernelInfoGetAttribute_string(s->info, name, NULL, size));
        if (f != FOUND) return f;
    } else {
        const ort_attr *attr = inferred(s, name);
        if (!attr) return ABSENT;
        succeeds(api, api->ReadOpAttr(attr, ints ? ATTR_INTS : ATTR_STRING, NULL, 0, size)); /* says the size */
    }
    if (ints && s->info) *size *= sizeof(int64_t);
    *data = tni_calloc(*size + 1, 1);
    if (!*data) return FOUND;
    if (!s->info) return get_inferred(s, name, ints ? ATTR_INTS : ATTR_STRING, *data, *size + 1, size);
    size_t room = ints ? *size / sizeof(int64_t) : *size;
    return judge(api, ints ? api->KernelInfoGetAttributeArray_int64(s->info, name, *data, &room)
                           : api->KernelInfoGetAttribute_string(s->info, name, *data, &room));
}

/* What a call of a node is made with, whatever its tensors are. */
typedef struct form {
    const tn_operator *op;
    tn_attr attrs[TNI_MAX_ARGS];   /* by place */
    int32_t lengths[TNI_MAX_ARGS]; /* (n_inputs) of lists; -1: all tensors that are left */
    void *memory[TNI_MAX_ARGS + 2];
    int32_t n_memory;
} form;

static void free_form(form *f) {
    for (int32_t i = 0; i < f->n_memory; i++) tni_free(f->memory[i]);
}

static tn_status other_kind(const char *who, const tni_attr *attr) {
    tni_text text = {0};
    tni_text_add(&text, "%s: %s has another type in this node, needs ", who, attr->name);
    tni_print_attr_kind(&text, attr);
    return tni_fail_text(TN_BAD_TYPE, &text);
}

static tn_status read_text(const source *s, form *f, const char *who, const char *name, found *result, char **text) {
    size_t size;
    void *data;
    *result = get_bytes(s, name, false, &data, &size);
    *text = data;
    if (*result == FOUND && !data) return tn_fail(TN_NO_MEMORY, "%s: no memory for %s", who, name);
    if (data) f->memory[f->n_memory++] = data;
    return TN_OK;
}

/* ONNX Runtime reads a single number, or a string, as no integers at all. */
static bool is_single(const source *s, const char *name) {
    double number;
    void *text = NULL;
    size_t size;
    bool single = get_float(s, name, &number) == FOUND || get_bytes(s, name, false, &text, &size) == FOUND;
    tni_free(text);
    return single;
}

static tn_status read_ints(const source *s, form *f, const char *who, const char *name, found *result,
                           const int64_t **ints, size_t *count) {
    void *data;
    *result = get_bytes(s, name, true, &data, count);
    if (*result == FOUND && !*count && is_single(s, name)) *result = OTHER_KIND;
    *count /= sizeof **ints;
    *ints = data;
    if (*result == FOUND && !data) return tn_fail(TN_NO_MEMORY, "%s: no memory for %s", who, name);
    if (data) f->memory[f->n_memory++] = data;
    if (*count <= TNI_MAX_INTS) return TN_OK;
    return tn_fail(TN_BAD_VALUE, "%s: %s has %zu elements; it may have %d", who, name, *count, TNI_MAX_INTS);
}

static tn_status read_attr(const source *s, form *f, const tni_attr *attr, tn_value *value) {
    const char *who = f->op->contract->name;
    found result = ABSENT;
    char *text = NULL;
    size_t count = 0;
    *value = (tn_value){.kind = TN_UNSET};
    switch (attr->kind) {
    case TNI_A_INT:
    case TNI_A_AXIS:
        result = get_int(s, attr->name, &value->i);
        if (result == FOUND) value->kind = TN_INT;
        break;
    case TNI_A_BOOL: {
        int64_t truth;
        result = get_int(s, attr->name, &truth);
        if (result == FOUND) *value = (tn_value){.kind = TN_BOOLEAN, .b = truth != 0};
        break;
    }
    case TNI_A_FLOAT:
        result = get_float(s, attr->name, &value->f);
        if (result == FOUND) value->kind = TN_FLOAT;
        break;
    case TNI_A_AXES:
    case TNI_A_INTS:
        TN_TRY(read_ints(s, f, who, attr->name, &result, &value->ints, &count));
        if (result == FOUND) value->kind = TN_INTS;
        value->count = (int32_t)count;
        break;
    case TNI_A_DTYPE:
        TN_TRY(read_text(s, f, who, attr->name, &result, &text));
        if (result == FOUND) *value = (tn_value){.kind = TN_DTYPE, .type = tn_type_named(text)};
        if (result == FOUND && value->type == TN_NO_TYPE) {
            return tn_fail(TN_BAD_VALUE, "%s: %s is '%s', which is no type", who, attr->name, text);
        }
        break;
    case TNI_A_STR:
    case TNI_A_CHOICE:
    case TNI_A_ACTIVATION:
        TN_TRY(read_text(s, f, who, attr->name, &result, &text));
        if (result == FOUND) *value = (tn_value){.kind = TN_STR, .s = text};
        break;
    }
    return result == OTHER_KIND ? other_kind(who, attr) : TN_OK;
}

static tn_status read_lengths(const source *s, form *f) {
    const tni_contract *c = f->op->contract;
    int32_t lists = count_lists(c);
    const int64_t *lengths = NULL;
    size_t count = 0, k = 0;
    found result = ABSENT;
    if (lists > 1) {
        TN_TRY(read_ints(s, f, c->name, "lengths", &result, &lengths, &count));
        if (result != FOUND || count != (size_t)lists) {
            return tn_fail(TN_BAD_VALUE, "%s: needs the attribute lengths, %d ints: how many tensors each list has",
                           c->name, lists);
        }
    }
    for (int32_t i = 0; i < c->n_inputs; i++) {
        f->lengths[i] = c->inputs[i].list ? -1 : 1;
        if (!c->inputs[i].list || !lengths) continue;
        if (lengths[k] < 0 || lengths[k] > INT16_MAX) {
            return tn_fail(TN_BAD_VALUE, "%s: lengths has %lld for %s, needs 0 to %d", c->name, (long long)lengths[k],
                           c->inputs[i].name, INT16_MAX);
        }
        f->lengths[i] = (int32_t)lengths[k++];
    }
    return TN_OK;
}

static tn_status read_formula(const source *s, form *f) {
    found result;
    char *formula, *attributes;
    int64_t fast = 0;
    TN_TRY(read_text(s, f, fuse_name, "formula", &result, &formula));
    if (result != FOUND) return tn_fail(TN_BAD_VALUE, "%s: needs the attribute formula, a string", fuse_name);
    if (get_int(s, "fast", &fast) == OTHER_KIND) return tn_fail(TN_BAD_TYPE, "%s: fast must be an int", fuse_name);
    tn_fuse_options options = {.fast = fast != 0};
    TN_TRY(tn_fuse(formula, &options, &f->op));
    if (f->op->contract->has_lists) {
        return tn_fail(TN_UNSUPPORTED, "%s: %s takes lists of tensors; a formula for ONNX Runtime takes single ones",
                       fuse_name, f->op->contract->name);
    }
    for (int32_t i = 0; i < f->op->contract->n_attrs; i++) f->attrs[i] = (tn_attr){0};
    TN_TRY(read_text(s, f, fuse_name, "attributes", &result, &attributes));
    if (result == OTHER_KIND) return tn_fail(TN_BAD_TYPE, "%s: attributes must be a string", fuse_name);
    if (result != FOUND) return TN_OK;
    int32_t n = 0;
    tn_status status = tni_attrs_parse(f->op->contract, attributes, f->attrs, f->memory + f->n_memory, &n);
    f->n_memory += n;
    return status;
}

static tn_status read_form(const source *s, const variant *v, form *f) {
    f->op = v->op;
    f->n_memory = 0;
    if (!v->op) {
        TN_TRY(read_formula(s, f));
        return read_lengths(s, f);
    }
    const tni_contract *c = v->op->contract;
    for (int32_t i = 0; i < c->n_attrs; i++) {
        f->attrs[i] = (tn_attr){0};
        if (!c->attrs[i].implied) TN_TRY(read_attr(s, f, &c->attrs[i], &f->attrs[i].value));
    }
    return read_lengths(s, f);
}

/* ---- shapes ------------------------------------------------------------------------------------------------------ */

typedef struct item {
    tn_tensor tensor;
    int64_t shape[TN_MAX_RANK];
} item;

/* The type, rank and sizes; data is left alone. False: a message. */
static tn_status describe(const ort_api *api, const char *who, const char *name, const ort_shape *from, item *to) {
    int onnx;
    size_t ndim;
    TN_TRY(from_ort(api, who, api->GetTensorElementType(from, &onnx)));
    TN_TRY(from_ort(api, who, api->GetDimensionsCount(from, &ndim)));
    if (ndim > TN_MAX_RANK) {
        return tn_fail(TN_BAD_SHAPE, "%s: %s has rank %zu; Tenon goes up to %d", who, name, ndim, TN_MAX_RANK);
    }
    TN_TRY(from_ort(api, who, api->GetDimensions(from, to->shape, ndim)));
    tn_type type = type_of(onnx);
    if (type == TN_NO_TYPE) {
        return tn_fail(TN_BAD_TYPE, "%s: %s has a type that Tenon does not have (ONNX's number %d)", who, name, onnx);
    }
    to->tensor = (tn_tensor){.device = {TN_CPU, 0}, .ndim = (int32_t)ndim, .dtype = tn_dtype_of(type)};
    to->tensor.shape = to->shape;
    return TN_OK;
}

/* The tensors of a call, in the contract's order. */
typedef struct inputs {
    item few[16], *items;
    const tn_tensor *few_in[16], **in;
    int32_t lengths[TNI_MAX_ARGS], *first; /* the node's input that the first tensor of an input is */
    int32_t firsts[TNI_MAX_ARGS];
    int32_t n;
    void *more;
} inputs;

/* Deals the node's `count` inputs out: how many each input of the contract has, and where they begin. */
static tn_status deal(const form *f, size_t count, inputs *to) {
    const tni_contract *c = f->op->contract;
    int32_t at = 0, lists = 0;
    to->n = 0;
    to->more = NULL;
    for (int32_t i = 0; i < c->n_inputs; i++) {
        if (!c->inputs[i].list) to->firsts[i] = at++;
    }
    for (int32_t i = 0; i < c->n_inputs; i++) {
        to->lengths[i] = 1;
        if (c->inputs[i].list) {
            to->firsts[i] = at;
            to->lengths[i] = f->lengths[i] >= 0 ? f->lengths[i] : (int32_t)count - at;
            if (to->lengths[i] < 0) to->lengths[i] = 0;
            at += to->lengths[i];
            lists++;
        }
        to->n += to->lengths[i];
    }
    if (count > (size_t)at || (lists > 1 && count != (size_t)at)) {
        return tn_fail(TN_BAD_VALUE, "%s: takes %d tensors, the node has %zu", c->name, at, count);
    }
    to->items = to->few;
    to->in = to->few_in;
    if (to->n <= (int32_t)(sizeof to->few / sizeof *to->few)) return TN_OK;
    to->more = tni_malloc((size_t)to->n * (sizeof *to->items + sizeof *to->in));
    if (!to->more) return TN_NO_MEMORY;
    to->items = to->more;
    to->in = (const tn_tensor **)(to->items + to->n);
    return TN_OK;
}

/* A scalar and a tensor of unknown rank look alike. */
static void forget_rank(const tni_param *param, item *i) {
    if (i->tensor.ndim == 0 && (param->shape.count || param->shape.cond >= 0)) i->tensor.ndim = -1;
}

static bool is_absent(const ort_api *api, const ort_shape *shape) {
    int onnx = 0;
    return !shape || !succeeds(api, api->GetTensorElementType(shape, &onnx)) || onnx == 0;
}

static tn_status infer_inputs(const source *s, const form *f, inputs *to) {
    const tni_contract *c = f->op->contract;
    size_t count;
    TN_TRY(from_ort(s->api, c->name, s->api->ShapeInferContext_GetInputCount(s->inference, &count)));
    TN_TRY(deal(f, count, to));
    int32_t at = 0;
    for (int32_t i = 0; i < c->n_inputs; i++) {
        for (int32_t k = 0; k < to->lengths[i]; k++, at++) {
            size_t place = (size_t)to->firsts[i] + (size_t)k;
            ort_shape *shape = NULL; /* stays ONNX Runtime's */
            to->in[at] = NULL;
            if (place >= count) continue;
            if (!succeeds(s->api, s->api->ShapeInferContext_GetInputTypeShape(s->inference, place, &shape))) continue;
            if (is_absent(s->api, shape)) continue;
            TN_TRY(describe(s->api, c->name, c->inputs[i].name, shape, &to->items[at]));
            forget_rank(&c->inputs[i], &to->items[at]);
            to->in[at] = &to->items[at].tensor;
        }
    }
    return TN_OK;
}

/* Sizes that are not known get names that nothing else has. */
static void set_shape(const source *s, const tn_spec *spec) {
    static _Atomic(unsigned) counter;
    const ort_api *api = s->api;
    char texts[TN_MAX_RANK][32];
    const char *names[TN_MAX_RANK];
    ort_shape *shape;
    for (int32_t d = 0; d < spec->ndim; d++) {
        texts[d][0] = 0;
        if (spec->shape[d] < 0) snprintf(texts[d], sizeof texts[d], "tenon_%u", counter++);
        names[d] = texts[d];
    }
    if (!succeeds(api, api->CreateTensorTypeAndShapeInfo(&shape))) return;
    size_t ndim = (size_t)spec->ndim;
    if (succeeds(api, api->SetTensorElementType(shape, onnx_types[spec->type])) &&
        succeeds(api, api->SetDimensions(shape, spec->shape, ndim)) &&
        succeeds(api, api->SetSymbolicDimensions(shape, names, ndim))) {
        succeeds(api, api->ShapeInferContext_SetOutputTypeShape(s->inference, 0, shape));
    }
    api->ReleaseTensorTypeAndShapeInfo(shape);
}

/* The first output's shape. Those of others may not be set: ONNX Runtime up to 1.27 aborts where a node leaves them out.
 * What is wrong with a node is not told here, where nobody listens, but when its kernel is made or runs. */
static OrtStatus *infer(const custom_op *op, ort_inference *inference) {
    const variant *v = (const variant *)op;
    const source s = {v->api, NULL, inference};
    form f;
    inputs in = {.more = NULL};
    tn_spec specs[TNI_MAX_ARGS];
    tn_status status = read_form(&s, v, &f);
    if (status == TN_OK) status = infer_inputs(&s, &f, &in);
    if (status == TN_OK && f.op->contract->n_outputs && f.op->contract->outputs[0].want == TNI_ALWAYS) {
        const tn_args args = {
            .in = in.in, .n_in = in.n, .lengths = in.lengths, .attrs = f.attrs, .n_attrs = f.op->contract->n_attrs};
        status = tn_infer(f.op, &args, specs);
        /* A result of Fuse has the type of its inputs, or its call fails and says so. */
        bool fits = v->op || (in.in[0] && tn_type_of(in.in[0]->dtype) == specs[0].type);
        if (status == TN_OK && fits && specs[0].ndim >= 0 && specs[0].type != TN_NO_TYPE) set_shape(&s, &specs[0]);
    }
    tni_free(in.more);
    free_form(&f);
    return NULL;
}

/* ---- a node and its calls ---------------------------------------------------------------------------------------- */

typedef struct node {
    const variant *v;
    form form;
    size_t n_outputs; /* that the node has */
    bool named[];     /* (n_outputs) whether it names them: others are made for nobody */
} node;

static tn_status read_outputs(const source *s, const char *who, node **made) {
    size_t count, length;
    TN_TRY(from_ort(s->api, who, s->api->KernelInfo_GetOutputCount(s->info, &count)));
    node *n = tni_calloc(1, sizeof *n + count);
    if (!n) return TN_NO_MEMORY;
    *made = n;
    n->n_outputs = count;
    for (size_t i = 0; i < count; i++) {
        length = 0; /* with its NUL */
        TN_TRY(from_ort(s->api, who, s->api->KernelInfo_GetOutputName(s->info, i, NULL, &length)));
        n->named[i] = length > 1;
    }
    return TN_OK;
}

static void destroy(void *kernel) {
    node *n = kernel;
    if (n) free_form(&n->form);
    tni_free(n);
}

static tn_status make_node(const source *s, const variant *v, node **made) {
    TN_TRY(read_outputs(s, get_name(&v->base), made));
    node *n = *made;
    n->v = v;
    TN_TRY(read_form(s, v, &n->form));
    const tni_contract *c = n->form.op->contract;
    for (int32_t i = 0; i < c->n_outputs; i++) {
        if (c->outputs[i].want_attr < 0) continue;
        bool wanted = (size_t)i < n->n_outputs && n->named[i];
        n->form.attrs[c->outputs[i].want_attr].value = (tn_value){.kind = TN_BOOLEAN, .b = wanted};
    }
    return TN_OK;
}

static OrtStatus *create(const custom_op *op, const void *table, const ort_info *info, void **kernel) {
    (void)table;
    const variant *v = (const variant *)op;
    const source s = {v->api, info, NULL};
    node *n = NULL;
    tn_status status = make_node(&s, v, &n);
    OrtStatus *failed = to_ort(v->api, status);
    if (failed) destroy(n);
    *kernel = failed ? NULL : n;
    return failed;
}

typedef struct call {
    const node *node;
    const ort_api *api;
    ort_context *context;
    inputs in;
    tn_tensor out[TNI_MAX_ARGS];
    void *scratch; /* chain of blocks: outputs that the node leaves out */
} call;

static const char *name_of(const call *c) {
    return c->node->form.op->contract->name;
}

/* Memory for an output of the node: ONNX Runtime's where it is named. */
static tn_status output_memory(call *c, size_t place, int32_t ndim, const int64_t *shape, tn_type type, void **data) {
    if (place < c->node->n_outputs && c->node->named[place]) {
        ort_value *value = NULL;
        TN_TRY(from_ort(c->api, name_of(c),
                        c->api->KernelContext_GetOutput(c->context, place, shape, (size_t)ndim, &value)));
        if (value) return from_ort(c->api, name_of(c), c->api->GetTensorMutableData(value, data));
    }
    size_t bytes = tn_type_size(type);
    for (int32_t d = 0; d < ndim; d++) bytes *= (size_t)shape[d];
    char *block = tni_malloc(16 + bytes);
    if (!block) return TN_NO_MEMORY;
    *(void **)block = c->scratch;
    c->scratch = block;
    *data = block + 16;
    return TN_OK;
}

static tn_status read_input(call *c, const tni_param *param, size_t place, item *to, bool *there) {
    const ort_value *value = NULL;
    ort_shape *shape;
    TN_TRY(from_ort(c->api, name_of(c), c->api->KernelContext_GetInput(c->context, place, &value)));
    *there = value != NULL;
    if (!value) return TN_OK;
    TN_TRY(from_ort(c->api, name_of(c), c->api->GetTensorTypeAndShape(value, &shape)));
    tn_status status = describe(c->api, name_of(c), param->name, shape, to);
    c->api->ReleaseTensorTypeAndShapeInfo(shape);
    TN_TRY(status);
    return from_ort(c->api, name_of(c), c->api->GetTensorMutableData((ort_value *)value, &to->tensor.data));
}

/* What is updated is a copy, which is a further output of the node. */
static tn_status copy_input(call *c, size_t place, item *i) {
    const tn_tensor *t = &i->tensor;
    tn_type type = tn_type_of(t->dtype);
    size_t bytes = tn_type_size(type);
    void *data;
    for (int32_t d = 0; d < t->ndim; d++) bytes *= (size_t)i->shape[d];
    TN_TRY(output_memory(c, place, t->ndim, i->shape, type, &data));
    if (bytes) memcpy(data, t->data, bytes);
    i->tensor.data = data;
    return TN_OK;
}

static tn_status read_inputs(call *c) {
    const tni_contract *contract = c->node->form.op->contract;
    size_t count;
    TN_TRY(from_ort(c->api, name_of(c), c->api->KernelContext_GetInputCount(c->context, &count)));
    TN_TRY(deal(&c->node->form, count, &c->in));
    int32_t at = 0;
    size_t single = (size_t)contract->n_outputs, list = single;
    while (updated(contract, (int32_t)(list - single), false) >= 0) list++;
    for (int32_t i = 0; i < contract->n_inputs; i++) {
        const tni_param *param = &contract->inputs[i];
        for (int32_t k = 0; k < c->in.lengths[i]; k++, at++) {
            size_t place = (size_t)c->in.firsts[i] + (size_t)k;
            bool there = false;
            if (place < count) TN_TRY(read_input(c, param, place, &c->in.items[at], &there));
            c->in.in[at] = there ? &c->in.items[at].tensor : NULL;
            if (!param->inplace) continue;
            size_t output = param->list ? list++ : single++;
            if (there) TN_TRY(copy_input(c, output, &c->in.items[at]));
        }
    }
    return TN_OK;
}

static tn_status make_output(void *context, int32_t output, const tn_spec *spec, const int64_t *strides,
                             tn_tensor **made) {
    (void)strides; /* all inputs are dense, and so are the outputs */
    call *c = context;
    const variant *v = c->node->v;
    tn_type declared = v->out_types[v->op ? output : 0];
    if (spec->type != declared) {
        return tn_fail(TN_UNSUPPORTED, "%s: %s is %s here, but in ONNX Runtime %s gives %s for these inputs",
                       name_of(c), c->node->form.op->contract->outputs[output].name, tn_type_name(spec->type),
                       get_name(&v->base), tn_type_name(declared));
    }
    c->out[output] = (tn_tensor){.device = {TN_CPU, 0}};
    *made = &c->out[output];
    return output_memory(c, (size_t)output, spec->ndim, spec->shape, spec->type, &c->out[output].data);
}

/* ---- ONNX Runtime as the host ------------------------------------------------------------------------------------ */

typedef struct loop {
    int64_t n, pieces;
    tn_body body;
    void *arg;
} loop;

static void loop_piece(void *context, size_t i) {
    const loop *l = context;
    int64_t part = l->n / l->pieces, rest = l->n % l->pieces, k = (int64_t)i;
    int64_t begin = k * part + (k < rest ? k : rest);
    l->body(l->arg, begin, begin + part + (k < rest));
}

static void host_parallel(void *context, int64_t n, int64_t grain, tn_body body, void *arg) {
    const call *c = context;
    int64_t threads = tn_threads(), pieces = n / (grain > 0 ? grain : 1);
    loop l = {n, pieces > threads ? threads : pieces, body, arg};
    if (l.pieces < 2 ||
        !succeeds(c->api, c->api->KernelContext_ParallelFor(c->context, loop_piece, (size_t)l.pieces, 0, &l))) {
        body(arg, 0, n);
    }
}

static int host_threads(void *context) {
    (void)context;
    return tn_threads();
}

static OrtStatus *compute(void *kernel, ort_context *context) {
    const node *n = kernel;
    const tn_operator *op = n->form.op;
    call c = {.node = n, .api = n->v->api, .context = context, .scratch = NULL};
    tn_host host = *tn_default_host();
    host.context = &c;
    host.parallel = host_parallel;
    host.threads = host_threads;
    c.in.more = NULL;
    tn_status status = read_inputs(&c);
    if (status == TN_OK) {
        const tn_args args = {.in = c.in.in,
                              .n_in = c.in.n,
                              .lengths = op->contract->has_lists ? c.in.lengths : NULL,
                              .attrs = n->form.attrs,
                              .n_attrs = op->contract->n_attrs,
                              .n_out = op->contract->n_outputs};
        status = tni_call_alloc(op, &args, &host, make_output, &c);
    }
    while (c.scratch) {
        void *next = *(void **)c.scratch;
        tni_free(c.scratch);
        c.scratch = next;
    }
    tni_free(c.in.more);
    return to_ort(c.api, status);
}

/* ---- all choices of types ---------------------------------------------------------------------------------------- */

typedef struct builder {
    const ort_api *api;
    const tn_operator *op;
    tn_type vars[TNI_MAX_TYPES];
    tn_type fixed[TNI_MAX_ARGS]; /* (n_inputs) of `i32|i64` */
    variant **variants;
    size_t count, capacity, first; /* `first`: of this operator */
} builder;

static tn_type settle(const builder *b, const tni_type *type, tn_type fixed) {
    const tn_value *chosen = type->kind == TNI_TYPE_ATTR ? &b->op->contract->attrs[type->ref].value : NULL;
    tn_type t = type->kind == TNI_TYPE_VAR ? b->vars[type->ref] : fixed;
    if (chosen) t = chosen->kind == TN_DTYPE ? chosen->type : TN_F32;
    return type->wrap == TNI_ACC ? tni_acc_type(t) : type->wrap == TNI_COMPLEX ? tni_complex_type(t) : t;
}

static tn_type lowest(uint32_t mask) {
    for (int t = 1; t < TN_TYPE_COUNT; t++) {
        if (mask & TN_BIT(t)) return (tn_type)t;
    }
    return TN_NO_TYPE;
}

/* The inputs and outputs of the node in these types; false: ONNX Runtime cannot have them. */
static bool fill(const builder *b, variant *v) {
    const tni_contract *c = b->op->contract;
    tn_type list = TN_NO_TYPE;
    bool possible = true;
    for (int32_t i = 0; i < c->n_inputs; i++) {
        const tni_param *p = &c->inputs[i];
        tn_type t = settle(b, &p->type, b->fixed[i]);
        possible = possible && onnx_types[t] && (!p->list || list == TN_NO_TYPE || list == t);
        if (p->list) {
            list = t;
            v->lists_out = v->lists_out || p->inplace;
        } else {
            v->in_optional[v->n_in] = p->optional;
            v->in_types[v->n_in++] = (uint8_t)t;
        }
    }
    if (list != TN_NO_TYPE) v->in_types[v->n_in++] = (uint8_t)list;
    v->lists = list != TN_NO_TYPE;
    for (int32_t i = 0; i < c->n_outputs; i++) {
        tn_type t = settle(b, &c->outputs[i].type, lowest(c->outputs[i].type.mask));
        possible = possible && onnx_types[t] && !c->outputs[i].list;
        v->out_types[v->n_out++] = (uint8_t)t;
    }
    for (int32_t k = 0, i; (i = updated(c, k, false)) >= 0; k++) {
        v->out_types[v->n_out++] = (uint8_t)settle(b, &c->inputs[i].type, b->fixed[i]);
    }
    if (v->lists_out) v->out_types[v->n_out++] = (uint8_t)list;
    return possible && v->n_out;
}

static bool is_new(const builder *b, const variant *v) {
    for (size_t i = b->first; i < b->count; i++) {
        if (memcmp(b->variants[i]->in_types, v->in_types, sizeof v->in_types) == 0) return false;
    }
    return true;
}

static void set_callbacks(const builder *b, variant *v) {
    bool optional = false;
    for (int32_t i = 0; i < v->n_in; i++) optional = optional || v->in_optional[i];
    v->api = b->api;
    v->op = b->op;
    v->base = (custom_op){
        .version = (uint32_t)(b->api->minor < WRITTEN_FOR ? b->api->minor : WRITTEN_FOR),
        .GetName = get_name,
        .GetExecutionProviderType = get_provider,
        .GetInputType = get_input_type,
        .GetInputTypeCount = get_input_count,
        .GetOutputType = get_output_type,
        .GetOutputTypeCount = get_output_count,
        .KernelDestroy = destroy,
        .GetInputCharacteristic = get_input_characteristic,
        .GetOutputCharacteristic = get_output_characteristic,
        .GetInputMemoryType = get_memory,
        .GetVariadicInputMinArity = one,
        .GetVariadicInputHomogeneity = one,
        .GetVariadicOutputMinArity = zero,
        .GetVariadicOutputHomogeneity = one,
        .CreateKernelV2 = create,
        .KernelComputeV2 = compute,
        .InferOutputShapeFn = optional && b->api->minor < ABSENT_IS_SAFE ? NULL : infer,
    };
}

static tn_status add_variant(builder *b, const variant *like) {
    if (b->count == b->capacity) {
        size_t capacity = b->capacity ? 2 * b->capacity : 256;
        variant **more = tni_realloc(b->variants, capacity * sizeof *more);
        if (!more) return TN_NO_MEMORY;
        b->variants = more;
        b->capacity = capacity;
    }
    variant *v = tni_malloc(sizeof *v);
    if (!v) return TN_NO_MEMORY;
    *v = *like;
    set_callbacks(b, v);
    b->variants[b->count++] = v;
    return TN_OK;
}

/* Every choice for type variables from `var` on, then for inputs of one of several types. A variable that an absent input
 * leaves open is T, and ONNX Runtime takes the first operator that fits: those come first where all are T. */
static tn_status choose(builder *b, int32_t var, int32_t input) {
    const tni_contract *c = b->op->contract;
    if (var < c->n_types) {
        tn_type same = var ? b->vars[0] : TN_NO_TYPE;
        for (int k = same == TN_NO_TYPE; k < TN_TYPE_COUNT; k++) {
            tn_type t = k ? (tn_type)k : same;
            if ((k && t == same) || !(c->types[var].mask & TN_BIT(t)) || !onnx_types[t]) continue;
            b->vars[var] = t;
            TN_TRY(choose(b, var + 1, input));
        }
        return TN_OK;
    }
    if (input < c->n_inputs) {
        uint32_t mask = c->inputs[input].type.kind == TNI_TYPE_FIXED ? c->inputs[input].type.mask : 0;
        for (uint32_t rest = mask; rest; rest &= ~TN_BIT(b->fixed[input])) {
            b->fixed[input] = lowest(rest);
            TN_TRY(choose(b, var, input + 1));
        }
        return mask ? TN_OK : choose(b, var, input + 1);
    }
    variant v = {.n_in = 0};
    return fill(b, &v) && is_new(b, &v) ? add_variant(b, &v) : TN_OK;
}

/* Formulas: any number of tensors of one type, and as many results of it. */
static tn_status add_fuse(builder *b) {
    b->op = NULL;
    for (int t = 1; t < TN_TYPE_COUNT; t++) {
        if (!(TN_FLOATS & TN_BIT(t))) continue;
        variant v = {.n_in = 1, .n_out = 1, .lists = true, .lists_out = true};
        v.in_types[0] = v.out_types[0] = (uint8_t)t;
        TN_TRY(add_variant(b, &v));
    }
    return TN_OK;
}

/* ---- registration ------------------------------------------------------------------------------------------------ */

/* The domain for one copy of ONNX Runtime, with the rows that the table had. Sessions may use it at any time: it stays.
 */
typedef struct registration {
    ort_api api;
    const void *table;
    int operators;
    ort_domain *domain;
    struct registration *next;
} registration;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static registration *registrations;

static tn_status open_api(const OrtApiBase *base, registration *r) {
    const char *version = base->GetVersionString();
    int major = 0, minor = 0;
    if (sscanf(version, "%d.%d", &major, &minor) != 2 || major != 1 || minor < OLDEST) {
        return tn_fail(TN_UNSUPPORTED, "tenon needs ONNX Runtime 1.%d or newer, and this is %s", OLDEST, version);
    }
    r->table = base->GetApi((uint32_t)(minor < WRITTEN_FOR ? minor : WRITTEN_FOR));
    if (!r->table) return tn_fail(TN_UNSUPPORTED, "ONNX Runtime %s does not give its functions away", version);
    void *const *places = r->table;
#define FIND(place, result, name, parameters) memcpy(&r->api.name, &places[place], sizeof(void *));
    FUNCTIONS(FIND)
#undef FIND
    r->api.minor = minor;
    return TN_OK;
}

static tn_status fill_domain(registration *r, builder *b) {
    TN_TRY(from_ort(&r->api, "tenon", r->api.CreateCustomOpDomain("tenon", &r->domain)));
    for (int i = 0; i < r->operators; i++) {
        b->op = tn_operator_at(i);
        b->first = b->count;
        TN_TRY(choose(b, 0, 0));
    }
    TN_TRY(add_fuse(b));
    for (size_t i = 0; i < b->count; i++) {
        TN_TRY(from_ort(&r->api, "tenon", r->api.CustomOpDomain_Add(r->domain, &b->variants[i]->base)));
    }
    return TN_OK;
}

static tn_status find_registration(const registration *like, registration **found_one) {
    for (registration *r = registrations; r; r = r->next) {
        if (r->table == like->table && r->operators == like->operators) {
            *found_one = r;
            return TN_OK;
        }
    }
    registration *r = tni_malloc(sizeof *r);
    if (!r) return TN_NO_MEMORY;
    *r = *like;
    builder b = {.api = &r->api};
    tn_status status = fill_domain(r, &b);
    tni_free(b.variants); /* the array; the domain has what was in it */
    r->next = registrations;
    if (status == TN_OK) *found_one = registrations = r;
    return status; /* on failure what ONNX Runtime may have seen is left to it */
}

/* What ONNX Runtime calls: SessionOptions.register_custom_ops_library, RegisterCustomOpsLibrary_V2. */
TN_API OrtStatus *RegisterCustomOps(OrtSessionOptions *options, const OrtApiBase *base);

OrtStatus *RegisterCustomOps(OrtSessionOptions *options, const OrtApiBase *base) {
    registration like = {.operators = tn_operator_count()}, *r = NULL;
    tn_status status = open_api(base, &like);
    if (!like.table) { /* too old: what makes a status has been at its place since 1.0 */
        void *const *places = base->GetApi(1);
        memcpy(&like.api.CreateStatus, &places[0], sizeof(void *));
    }
    if (status == TN_OK) {
        pthread_mutex_lock(&lock);
        status = find_registration(&like, &r);
        pthread_mutex_unlock(&lock);
    }
    return status == TN_OK ? r->api.AddCustomOpDomain(options, r->domain) : to_ort(&like.api, status);
}
