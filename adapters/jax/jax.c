/* JAX: XLA FFI handlers, for the CPU and for GPUs, run every operator of the table. A call says which in its attributes
 * (python/tenon/jax/_primitive.py writes them):
 *     _op        the operator's name, or _formula, its text, and _fast
 *     _counts    for each input how many tensors it has: 0 where it is absent
 *     _scratch   true: the last result is memory for the call itself
 *     the others are the operator's own
 * Arguments are the tensors of all inputs; results are the outputs that were asked for and, behind them, each tensor
 * that is updated in place, which XLA has put where the argument is (input_output_aliases). */
#include <string.h>

#include <tenon/fuse.h>

#include "adapters/absl.h"
#include "core/host/memory.h"
#include "core/run/run.h"

/* ---- what is used of XLA's FFI ----------------------------------------------------------------------------------- */
/* Of its version 0.1 (jaxlib 0.4.38) where nothing else is said. Later versions only add to the ends of structs, which
 * is why each begins with its size; a runtime takes handlers of its own version and of older ones. */

typedef struct ffi_error ffi_error;
typedef struct ffi_context ffi_context;

typedef struct ffi_extension {
    size_t size;
    int type;
    struct ffi_extension *next;
} ffi_extension;

enum { EXTENSION_METADATA = 1, STAGE_EXECUTE = 3, TRAIT_CAPTURED = 1 };
enum { ALIGNMENT = 16 };  /* the most that XLA promises */
enum { USUAL = 1 << 15 }; /* bytes that tensors and texts of most calls take; a gradient's text is some kilobytes */

typedef struct ffi_version {
    size_t size;
    ffi_extension *extensions;
    int major, minor;
} ffi_version;

typedef struct ffi_metadata {
    size_t size;
    ffi_version version;
    uint32_t traits;
} ffi_metadata;

typedef struct ffi_metadata_extension {
    ffi_extension base;
    ffi_metadata *metadata;
} ffi_metadata_extension;

typedef struct ffi_error_create {
    size_t size;
    ffi_extension *extensions;
    const char *message;
    tni_absl_code code;
} ffi_error_create;

typedef struct ffi_error_destroy {
    size_t size;
    ffi_extension *extensions;
    ffi_error *error;
} ffi_error_destroy;

typedef struct ffi_stream_get {
    size_t size;
    ffi_extension *extensions;
    ffi_context *context;
    void *stream; /* out */
} ffi_stream_get;

typedef struct ffi_ordinal_get {
    size_t size;
    ffi_extension *extensions;
    ffi_context *context;
    int32_t ordinal; /* out */
} ffi_ordinal_get;

typedef struct ffi_memory {
    size_t size;
    ffi_extension *extensions;
    ffi_context *context;
    size_t bytes, alignment;
    void *data; /* out */
} ffi_memory;

typedef struct ffi_memory_free {
    size_t size;
    ffi_extension *extensions;
    ffi_context *context;
    size_t bytes;
    void *data;
} ffi_memory_free;

typedef struct ffi_api {
    size_t size;
    ffi_extension *extensions;
    ffi_version version;
    const void *internal;
    ffi_error *(*error_create)(ffi_error_create *);
    void (*error_get_message)(void *);
    void (*error_destroy)(ffi_error_destroy *);
    ffi_error *(*handler_register)(void *);
    ffi_error *(*stream_get)(ffi_stream_get *);
    void (*unused[4])(void);
    ffi_error *(*memory_allocate)(ffi_memory *);
    ffi_error *(*memory_free)(ffi_memory_free *);
    void (*unused_too[6])(void);
    ffi_error *(*ordinal_get)(ffi_ordinal_get *); /* since 0.2 */
} ffi_api;

typedef enum ffi_dtype {
    FFI_BOOL = 1,
    FFI_I8,
    FFI_I16,
    FFI_I32,
    FFI_I64,
    FFI_U8,
    FFI_U16,
    FFI_U32,
    FFI_U64,
    FFI_F16,
    FFI_F32,
    FFI_F64,
    FFI_C64 = 15,
    FFI_BF16,
    FFI_C128 = 18,
    FFI_E5M2,
    FFI_E4M3,
    FFI_DTYPES,
} ffi_dtype;

static const tn_type type_of[FFI_DTYPES] = {
#define TYPE_ROW(NAME, name, code, bits) [FFI_##NAME] = TN_##NAME,
    TN_TYPES(TYPE_ROW)
#undef TYPE_ROW
};

typedef struct ffi_buffer {
    size_t size;
    ffi_extension *extensions;
    ffi_dtype dtype;
    void *data;
    int64_t rank;
    int64_t *dims;
} ffi_buffer;

typedef enum ffi_attr_kind { ATTR_ARRAY = 1, ATTR_SCALAR = 3, ATTR_STRING = 4 } ffi_attr_kind;

typedef struct ffi_span {
    const char *text; /* not terminated */
    size_t length;
} ffi_span;

typedef struct ffi_scalar {
    ffi_dtype dtype;
    const void *value;
} ffi_scalar;

typedef struct ffi_array {
    ffi_dtype dtype;
    size_t count;
    const void *data;
} ffi_array;

typedef struct ffi_buffers {
    size_t size;
    ffi_extension *extensions;
    int64_t count;
    const int *kinds; /* all are buffers */
    ffi_buffer *const *items;
} ffi_buffers;

typedef struct ffi_attrs {
    size_t size;
    ffi_extension *extensions;
    int64_t count;
    const ffi_attr_kind *kinds;
    const ffi_span *const *names;
    const void *const *items;
} ffi_attrs;

typedef struct ffi_frame {
    size_t size;
    ffi_extension *extensions;
    const ffi_api *api;
    ffi_context *context;
    int stage;
    ffi_buffers args, rets;
    ffi_attrs attrs;
} ffi_frame;

/* ---- reading a call ---------------------------------------------------------------------------------------------- */

typedef struct call {
    const ffi_frame *frame;
    const tn_function *op;
    tn_device device;
    const int64_t *counts; /* (n_inputs) */
    int64_t n_results;     /* without scratch */
    tn_attr attrs[TNI_MAX_ARGS];
    int32_t n_attrs;
    int32_t lengths[TNI_MAX_ARGS];
    tn_tensor *outputs[TNI_MAX_ARGS];
    tn_tensor **inputs;
    int32_t n_inputs;
    tn_tensor *tensors; /* room for those of all buffers */
    char *text;         /* room for strings, terminated */
} call;

static bool is_named(const ffi_span *span, const char *name) {
    return span->length == strlen(name) && memcmp(span->text, name, span->length) == 0;
}

/* The attribute of this name and kind; NULL where there is none. */
static const void *find_attr(const ffi_frame *frame, const char *name, ffi_attr_kind kind) {
    for (int64_t i = 0; i < frame->attrs.count; i++) {
        if (is_named(frame->attrs.names[i], name)) {
            return frame->attrs.kinds[i] == kind ? frame->attrs.items[i] : NULL;
        }
    }
    return NULL;
}

static const void *find_scalar(const ffi_frame *frame, const char *name, ffi_dtype dtype) {
    const ffi_scalar *scalar = find_attr(frame, name, ATTR_SCALAR);
    return scalar && scalar->dtype == dtype ? scalar->value : NULL;
}

/* NULL too where the attribute has other elements, but not where it has none. */
static const int64_t *find_ints(const ffi_frame *frame, const char *name, int32_t *count) {
    static const int64_t none = 0;
    const ffi_array *array = find_attr(frame, name, ATTR_ARRAY);
    if (!array || array->dtype != FFI_I64 || array->count > INT32_MAX) return NULL;
    *count = (int32_t)array->count;
    return array->count ? array->data : &none;
}

static const char *find_text(call *c, const char *name) {
    const ffi_span *span = find_attr(c->frame, name, ATTR_STRING);
    if (!span) return NULL;
    char *text = c->text;
    memcpy(text, span->text, span->length);
    text[span->length] = '\0';
    c->text += span->length + 1;
    return text;
}

static tn_status find_operator(call *c) {
    const char *formula = find_text(c, "_formula");
    if (formula) {
        const bool *fast = find_scalar(c->frame, "_fast", FFI_BOOL);
        tn_fuse_options options = {.fast = fast && *fast};
        return tn_fuse(formula, &options, &c->op);
    }
    const char *name = find_text(c, "_op");
    if (!name) return tn_fail(TN_BAD_VALUE, "tenon: the call names no operator; import tenon.jax makes such calls");
    c->op = tn_find(name);
    return c->op ? TN_OK : TN_NOT_FOUND;
}

static bool read_value(call *c, const tni_attr *attr, tn_value *value) {
    const void *found = NULL;
    const char *text = NULL;
    switch (attr->kind) {
    case TNI_A_INT:
    case TNI_A_AXIS:
        if ((found = find_scalar(c->frame, attr->name, FFI_I64))) {
            *value = (tn_value){.kind = TN_ATTR_INT, .i = *(const int64_t *)found};
        }
        return found;
    case TNI_A_FLOAT:
        if ((found = find_scalar(c->frame, attr->name, FFI_F64))) {
            *value = (tn_value){.kind = TN_ATTR_FLOAT, .f = *(const double *)found};
        }
        return found;
    case TNI_A_BOOL:
        if ((found = find_scalar(c->frame, attr->name, FFI_BOOL))) {
            *value = (tn_value){.kind = TN_ATTR_BOOL, .b = *(const bool *)found};
        }
        return found;
    case TNI_A_AXES:
    case TNI_A_INTS:
        value->kind = TN_ATTR_INTS;
        value->ints = find_ints(c->frame, attr->name, &value->count);
        return value->ints;
    case TNI_A_DTYPE:
        if ((text = find_text(c, attr->name))) *value = (tn_value){.kind = TN_ATTR_TYPE, .type = tn_type_named(text)};
        return text;
    default:
        if ((text = find_text(c, attr->name))) *value = (tn_value){.kind = TN_ATTR_STR, .s = text};
        return text;
    }
}

/* Attributes that are not given take their defaults. */
static tn_status read_attrs(call *c) {
    const tni_contract *contract = c->op->contract;
    const ffi_attrs *given = &c->frame->attrs;
    for (int64_t k = 0; k < given->count; k++) {
        const tni_attr *attr = NULL;
        for (int32_t i = 0; i < contract->n_attrs && !attr; i++) {
            if (is_named(given->names[k], contract->attrs[i].name)) attr = &contract->attrs[i];
        }
        if (!attr && given->names[k]->length > 0 && given->names[k]->text[0] == '_') continue;
        tn_attr *read = &c->attrs[c->n_attrs];
        *read = (tn_attr){.name = attr ? attr->name : NULL};
        if (!attr || c->n_attrs == TNI_MAX_ARGS || !read_value(c, attr, &read->value)) {
            return tn_fail(TN_BAD_VALUE, "%s: attribute '%.*s' is not as the contract says", contract->name,
                           (int)given->names[k]->length, given->names[k]->text);
        }
        c->n_attrs++;
    }
    return TN_OK;
}

static bool is_wanted(const call *c, const tni_param *output) {
    if (output->want_attr < 0) return true;
    for (int32_t i = 0; i < c->n_attrs; i++) {
        if (c->attrs[i].name == c->op->contract->attrs[output->want_attr].name) return c->attrs[i].value.b;
    }
    return false;
}

static tn_status read_buffer(call *c, const tni_param *param, const ffi_buffer *buffer, tn_tensor *tensor) {
    tn_type type = buffer->dtype < FFI_DTYPES ? type_of[buffer->dtype] : TN_NO_TYPE;
    int64_t rank = buffer->rank;
    /* Without jax_enable_x64 there is no i64; it comes as pairs of 32-bit words, the low one first. */
    bool words = buffer->dtype == FFI_I32 || buffer->dtype == FFI_U32;
    bool wide = param->type.kind == TNI_TYPE_FIXED && param->type.mask == TN_BIT(TN_I64);
    if (words && wide && rank > 0 && buffer->dims[rank - 1] == 2) {
        type = TN_I64;
        rank--;
    }
    const char *name = c->op->contract->name;
    if (type == TN_NO_TYPE) {
        return tn_fail(TN_BAD_TYPE, "%s: %s has a type that Tenon does not have (%d of XLA's)", name, param->name,
                       (int)buffer->dtype);
    }
    if (rank > TN_MAX_RANK) {
        return tn_fail(TN_BAD_SHAPE, "%s: %s has rank %lld, and %d is the most", name, param->name, (long long)rank,
                       TN_MAX_RANK);
    }
    *tensor = tn_dense(buffer->data, type, (int32_t)rank, buffer->dims);
    tensor->device = c->device;
    return TN_OK;
}

static tn_status wrong_number(const call *c, const char *what, int64_t have) {
    return tn_fail(TN_BAD_VALUE, "%s: %lld %s are not what the call's attributes say", c->op->contract->name,
                   (long long)have, what);
}

static tn_status read_inputs(call *c) {
    const tni_contract *contract = c->op->contract;
    const ffi_buffers *args = &c->frame->args;
    int64_t next = 0;
    for (int32_t i = 0; i < contract->n_inputs; i++) {
        const tni_param *param = &contract->inputs[i];
        int64_t count = c->counts[i];
        if (count < 0 || count > args->count - next || (count > 1 && !param->list)) {
            return wrong_number(c, "arguments", args->count);
        }
        c->lengths[i] = param->list ? (int32_t)count : 1;
        if (count == 0 && !param->list) c->inputs[c->n_inputs++] = NULL;
        for (int64_t k = 0; k < count; k++) {
            tn_tensor *tensor = c->tensors++;
            TN_TRY(read_buffer(c, param, args->items[next++], tensor));
            c->inputs[c->n_inputs++] = tensor;
        }
    }
    return next == args->count ? TN_OK : wrong_number(c, "arguments", args->count);
}

/* XLA has put results that are updated arguments where these are. */
static tn_status check_updates(const call *c, int64_t next) {
    const tni_contract *contract = c->op->contract;
    const ffi_buffers *rets = &c->frame->rets;
    for (int32_t i = 0, at = 0; i < contract->n_inputs; at += c->lengths[i++]) {
        for (int32_t k = 0; k < c->lengths[i] && contract->inputs[i].inplace; k++) {
            const tn_tensor *tensor = c->inputs[at + k];
            if (!tensor) continue;
            if (next == c->n_results) return wrong_number(c, "results", c->n_results);
            bool empty = false; /* nothing to update; it may be anywhere */
            for (int32_t d = 0; d < tensor->ndim; d++) empty = empty || tensor->shape[d] == 0;
            if (rets->items[next++]->data == tensor->data || empty) continue;
            return tn_fail(TN_SYSTEM, "%s: XLA gave %s no place that can be updated", contract->name,
                           contract->inputs[i].name);
        }
    }
    return next == c->n_results ? TN_OK : wrong_number(c, "results", c->n_results);
}

static tn_status read_outputs(call *c) {
    const tni_contract *contract = c->op->contract;
    const ffi_buffers *rets = &c->frame->rets;
    int64_t next = 0;
    for (int32_t i = 0; i < contract->n_outputs; i++) {
        c->outputs[i] = NULL;
        if (!is_wanted(c, &contract->outputs[i])) continue;
        if (next == c->n_results) return wrong_number(c, "results", c->n_results);
        c->outputs[i] = c->tensors++;
        TN_TRY(read_buffer(c, &contract->outputs[i], rets->items[next++], c->outputs[i]));
    }
    return check_updates(c, next);
}

/* ---- running it -------------------------------------------------------------------------------------------------- */

static tn_status run(call *c, const tn_host *host) {
    const ffi_frame *frame = c->frame;
    TN_TRY(find_operator(c));
    const tni_contract *contract = c->op->contract;
    int32_t n_counts = 0;
    c->counts = find_ints(frame, "_counts", &n_counts);
    if (!c->counts || n_counts != contract->n_inputs) return wrong_number(c, "counts", n_counts);
    TN_TRY(read_attrs(c));
    TN_TRY(read_inputs(c));
    TN_TRY(read_outputs(c));
    tn_args args = {
        .in = (const tn_tensor *const *)c->inputs,
        .n_in = c->n_inputs,
        .lengths = contract->has_lists ? c->lengths : NULL,
        .attrs = c->attrs,
        .n_attrs = c->n_attrs,
        .out = c->outputs,
        .n_out = contract->n_outputs,
    };
    return tn_run(c->op, &args, host);
}

/* The memory that the call has for itself; NULL where it has none. */
static const ffi_buffer *scratch_of(const ffi_frame *frame) {
    const bool *last = find_scalar(frame, "_scratch", FFI_BOOL);
    return last && *last && frame->rets.count > 0 ? frame->rets.items[frame->rets.count - 1] : NULL;
}

/* `scratch`: of the frame; NULL: none. */
static tn_status run_frame(const ffi_frame *frame, const ffi_buffer *scratch, tn_device device, const tn_host *host) {
    size_t n_tensors = (size_t)(frame->args.count + frame->rets.count);
    size_t n_inputs = (size_t)frame->args.count + TNI_MAX_ARGS; /* and the absent ones */
    size_t n_text = 0;
    for (int64_t i = 0; i < frame->attrs.count; i++) {
        if (frame->attrs.kinds[i] == ATTR_STRING) n_text += ((const ffi_span *)frame->attrs.items[i])->length + 1;
    }
    /* On the stack: to get and give back more than a kilobyte of the heap takes as long as a small operator does. */
    _Alignas(tn_tensor) char usual[USUAL];
    size_t bytes = n_tensors * sizeof(tn_tensor) + n_inputs * sizeof(tn_tensor *) + n_text;
    char *memory = bytes <= USUAL ? usual : tni_malloc(bytes);
    if (!memory) return TN_NO_MEMORY;
    call c = {.frame = frame, .device = device, .tensors = (tn_tensor *)(void *)memory};
    c.n_results = frame->rets.count - (scratch != NULL);
    c.inputs = (tn_tensor **)(void *)(memory + n_tensors * sizeof(tn_tensor));
    c.text = (char *)(c.inputs + n_inputs);
    tn_status status = run(&c, host);
    tn_fuse_release(c.op); /* of the table: it stays */
    if (memory != usual) tni_free(memory);
    return status;
}

/* ---- XLA as the host of a GPU ------------------------------------------------------------------------------------ */

static void drop_error(const ffi_frame *frame, ffi_error *error) {
    ffi_error_destroy args = {.size = sizeof args, .error = error};
    if (error) frame->api->error_destroy(&args);
}

/* Workspace comes out of the memory that XLA has set aside: it leaves little of a GPU to others. What is given back is
 * used again behind this call, on the same stream. */
static tn_block xla_alloc(void *context, tn_device device, size_t bytes) {
    (void)device;
    const ffi_frame *frame = context;
    ffi_memory memory = {.size = sizeof memory, .context = frame->context, .bytes = bytes, .alignment = ALIGNMENT};
    ffi_error *error = frame->api->memory_allocate(&memory);
    if (!error) return (tn_block){memory.data, (void *)(uintptr_t)bytes};
    drop_error(frame, error);
    return (tn_block){0};
}

static void xla_release(void *context, tn_device device, tn_block block) {
    (void)device;
    const ffi_frame *frame = context;
    ffi_memory_free memory = {.size = sizeof memory, .context = frame->context, .data = block.data};
    memory.bytes = (uintptr_t)block.handle;
    drop_error(frame, frame->api->memory_free(&memory));
}

/* A call that is captured runs again and again with the memory that it had: nothing but what was made for it before
 * will do. Python has asked tn_workspace how much that is. */
static tn_block no_alloc(void *context, tn_device device, size_t bytes) {
    (void)context, (void)device, (void)bytes;
    return (tn_block){0};
}

/* ---- handlers ---------------------------------------------------------------------------------------------------- */

static ffi_error *error_of(const ffi_frame *frame, tn_status status) {
    if (status == TN_OK) return NULL;
    ffi_error_create args = {.size = sizeof args, .message = tn_last_error(), .code = tni_absl_code_of(status)};
    return frame->api->error_create(&args);
}

/* True where XLA only asks what the handler is. */
static bool tell_metadata(const ffi_frame *frame, uint32_t traits) {
    for (ffi_extension *e = frame->extensions; e; e = e->next) {
        if (e->type != EXTENSION_METADATA) continue;
        ffi_metadata *metadata = ((ffi_metadata_extension *)(void *)e)->metadata;
        metadata->version.major = 0;
        metadata->version.minor = 1;
        metadata->traits = traits;
        return true;
    }
    return false;
}

/* `host`: with its memory; the stream is set here. */
static ffi_error *run_on_gpu(const ffi_frame *frame, const ffi_buffer *scratch, tn_host host) {
    const ffi_api *api = frame->api;
    ffi_stream_get stream = {.size = sizeof stream, .context = frame->context};
    ffi_error *error = api->stream_get(&stream);
    if (error) return error;
    if (api->size < sizeof *api) {
        return error_of(frame, tn_fail(TN_UNSUPPORTED, "tenon: this jaxlib does not say which GPU a call is for; "
                                                       "pip install --upgrade jax"));
    }
    ffi_ordinal_get ordinal = {.size = sizeof ordinal, .context = frame->context};
    error = api->ordinal_get(&ordinal);
    if (error) return error;
    host.stream = stream.stream;
    return error_of(frame, run_frame(frame, scratch, (tn_device){TN_CUDA, ordinal.ordinal}, &host));
}

TN_API ffi_error *tn_jax_cpu(const ffi_frame *frame) {
    if (tell_metadata(frame, 0) || frame->stage != STAGE_EXECUTE) return NULL;
    return error_of(frame, run_frame(frame, scratch_of(frame), (tn_device){TN_CPU, 0}, NULL));
}

TN_API ffi_error *tn_jax_cuda(const ffi_frame *frame) {
    if (tell_metadata(frame, 0) || frame->stage != STAGE_EXECUTE) return NULL;
    tn_host host = tn_stream_host(NULL);
    host.context = (void *)(uintptr_t)frame;
    host.alloc = xla_alloc;
    host.release = xla_release;
    return run_on_gpu(frame, NULL, host);
}

/* For calls that XLA may capture in a command buffer, a CUDA graph. */
TN_API ffi_error *tn_jax_cuda_graph(const ffi_frame *frame) {
    if (tell_metadata(frame, TRAIT_CAPTURED) || frame->stage != STAGE_EXECUTE) return NULL;
    const ffi_buffer *scratch = scratch_of(frame);
    const size_t bytes = scratch ? (size_t)scratch->dims[0] : 0;
    tn_host host = tn_stream_host(NULL);
    host.alloc = no_alloc;
    tni_scratch memory;
    return run_on_gpu(frame, scratch, *tni_scratch_init(&memory, &host, scratch ? scratch->data : NULL, bytes));
}
