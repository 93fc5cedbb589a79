/* The kernel of every op of tensorflow_ops.c: attributes are read when TensorFlow makes it, tensors when it runs. It
 * runs on the CPU, on the core's own threads: TensorFlow hands none of its own to kernels in C. */
#include <string.h>

#include <tenon/fuse.h>

#include "core/host/memory.h"
#include "core/run/run.h"
#include "tensorflow.h"

/* ---- errors ------------------------------------------------------------------------------------------------------ */

static void set_status(TF_Status *to, tn_status status) {
    tni_tf.TF_SetStatus(to, tni_absl_code_of(status), tn_last_error());
}

static tn_status status_of(const TF_Status *status) {
    if (tni_tf.TF_GetCode(status) == TNI_ABSL_OK) return TN_OK;
    return tn_fail(TN_SYSTEM, "%s", tni_tf.TF_Message(status));
}

/* ---- making a kernel --------------------------------------------------------------------------------------------- */

typedef struct kernel {
    const tn_function *op;
    int32_t counts[TNI_MAX_ARGS];   /* tensors of each input; 0: it is absent */
    bool from_tensor[TNI_MAX_ARGS]; /* the value of an attribute is a tensor behind the inputs */
    tn_attr attrs[TNI_MAX_ARGS];    /* at their places */
    void *memory[TNI_MAX_ARGS];     /* what their values point to */
    int32_t n_memory;
} kernel;

typedef struct maker {
    TF_OpKernelConstruction *construction;
    TF_Status *status;
    kernel *k;
} maker;

/* The caller frees it. */
static tn_status get_text(const maker *m, const char *name, char **text) {
    int32_t list_size, bytes = 0;
    tni_tf.TF_OpKernelConstruction_GetAttrSize(m->construction, name, &list_size, &bytes, m->status);
    TN_TRY(status_of(m->status));
    *text = tni_calloc((size_t)bytes + 1, 1);
    if (!*text) return TN_NO_MEMORY;
    tni_tf.TF_OpKernelConstruction_GetAttrString(m->construction, name, *text, (size_t)bytes, m->status);
    return status_of(m->status);
}

static tn_status get_int(const maker *m, const char *name, int64_t *value) {
    tni_tf.TF_OpKernelConstruction_GetAttrInt64(m->construction, name, value, m->status);
    return status_of(m->status);
}

/* The caller frees them. */
static tn_status get_ints(const maker *m, const char *name, int64_t **values, int32_t *count) {
    int32_t bytes;
    tni_tf.TF_OpKernelConstruction_GetAttrSize(m->construction, name, count, &bytes, m->status);
    TN_TRY(status_of(m->status));
    *values = tni_malloc((size_t)*count * sizeof **values);
    if (!*values) return TN_NO_MEMORY;
    tni_tf.TF_OpKernelConstruction_GetAttrInt64List(m->construction, name, *values, *count, m->status);
    return status_of(m->status);
}

/* The number of tensors that an input or output has: of attribute `num_<name><suffix>`. */
static tn_status get_number(const maker *m, const char *name, const char *suffix, int64_t most, int32_t *number) {
    tni_text text = {0};
    tni_text_add(&text, "num_%s%s", name, suffix);
    int64_t value = 0;
    tn_status status = text.failed ? TN_NO_MEMORY : get_int(m, text.data, &value);
    tn_free(text.data);
    TN_TRY(status);
    if (value > most) {
        return tn_fail(TN_BAD_VALUE, "%s: %s is one tensor, not %lld", m->k->op->contract->name, name,
                       (long long)value);
    }
    *number = (int32_t)value;
    return TN_OK;
}

static tn_status get_value(const maker *m, const tni_attr *attr, tn_value *value) {
    const char *name = tni_tf_name(attr->name);
    void **memory = &m->k->memory[m->k->n_memory];
    int64_t number = 0;
    unsigned char yes = 0;
    int type = 0;
    switch (attr->kind) {
    case TNI_A_INT:
    case TNI_A_AXIS:
        TN_TRY(get_int(m, name, &number));
        *value = (tn_value){.kind = TN_ATTR_INT, .i = number};
        return TN_OK;
    case TNI_A_BOOL:
        tni_tf.TF_OpKernelConstruction_GetAttrBool(m->construction, name, &yes, m->status);
        *value = (tn_value){.kind = TN_ATTR_BOOL, .b = yes};
        return status_of(m->status);
    case TNI_A_AXES:
    case TNI_A_INTS:
        m->k->n_memory++;
        value->kind = TN_ATTR_INTS;
        TN_TRY(get_ints(m, name, (int64_t **)memory, &value->count));
        value->ints = *memory;
        return TN_OK;
    case TNI_A_DTYPE:
        tni_tf.TF_OpKernelConstruction_GetAttrType(m->construction, name, &type, m->status);
        *value = (tn_value){.kind = TN_ATTR_TYPE, .type = tni_tf_type_of(type)};
        return status_of(m->status);
    default:
        m->k->n_memory++;
        TN_TRY(get_text(m, name, (char **)memory));
        *value = (tn_value){.kind = TN_ATTR_STR, .s = *memory};
        return TN_OK;
    }
}

/* '' is an attribute that is absent. */
static tn_status parse_value(const maker *m, const tni_attr *attr, tn_value *value) {
    char *text = NULL;
    tn_attr parsed = {0};
    tn_status status = get_text(m, tni_tf_name(attr->name), &text);
    if (status == TN_OK && *text) {
        status = tni_attr_parse(m->k->op->contract, attr->name, text, &parsed, &m->k->memory[m->k->n_memory++]);
    }
    *value = parsed.value;
    tni_free(text);
    return status;
}

static tn_status make_operator(const maker *m, const char *name) {
    kernel *k = m->k;
    k->op = tn_find(name);
    if (!k->op) return TN_NOT_FOUND;
    const tni_contract *c = k->op->contract;
    for (int32_t i = 0; i < c->n_inputs; i++) {
        const tni_param *input = &c->inputs[i];
        k->counts[i] = 1;
        if (input->list || input->optional) {
            TN_TRY(get_number(m, input->name, "", input->list ? INT32_MAX : 1, &k->counts[i]));
        }
    }
    for (int32_t i = 0; i < c->n_attrs; i++) {
        const tni_attr *attr = &c->attrs[i];
        if (attr->implied) continue;
        int32_t given = 0;
        if (tni_tf_may_be_tensor(attr)) TN_TRY(get_number(m, attr->name, "_tensor", 1, &given));
        k->from_tensor[i] = given;
        TN_TRY(tni_tf_is_text(attr) ? parse_value(m, attr, &k->attrs[i].value)
                                    : get_value(m, attr, &k->attrs[i].value));
    }
    for (int32_t i = 0; i < c->n_outputs; i++) {
        const tni_param *output = &c->outputs[i];
        int32_t wanted = 0;
        if (output->want_attr < 0) continue;
        TN_TRY(get_number(m, output->name, "", 1, &wanted));
        k->attrs[output->want_attr].value = (tn_value){.kind = TN_ATTR_BOOL, .b = wanted};
    }
    return TN_OK;
}

static tn_status read_counts(kernel *k, const int64_t *counts, int32_t n) {
    const tni_contract *c = k->op->contract;
    bool fits = n == c->n_inputs;
    for (int32_t i = 0; fits && i < n; i++) {
        fits = counts[i] >= 0 && counts[i] <= (c->inputs[i].list ? INT32_MAX : 1);
        k->counts[i] = (int32_t)counts[i];
    }
    return fits ? TN_OK : tn_fail(TN_BAD_VALUE, "%s: counts are not those of its inputs", c->name);
}

static tn_status make_formula(const maker *m, const char *formula) {
    kernel *k = m->k;
    tn_value fast;
    TN_TRY(get_value(m, &(tni_attr){.name = "fast", .kind = TNI_A_BOOL}, &fast));
    TN_TRY(tn_fuse(formula, &(tn_fuse_options){.fast = fast.b}, &k->op));
    int64_t *counts = NULL;
    int32_t n_counts = 0;
    tn_status status = get_ints(m, "counts", &counts, &n_counts);
    if (status == TN_OK) status = read_counts(k, counts, n_counts);
    tni_free(counts);
    TN_TRY(status);
    char *attributes = NULL;
    status = get_text(m, "attributes", &attributes);
    if (status == TN_OK) status = tni_attrs_parse(k->op->contract, attributes, k->attrs, k->memory, &k->n_memory);
    tni_free(attributes);
    return status;
}

/* The one attribute that tells what a kernel is for: `tenon_operator`, or `formula`. */
static tn_status make_kernel(const maker *m) {
    char *text = NULL;
    tn_status status = get_text(m, "tenon_operator", &text);
    if (status == TN_OK) {
        status = make_operator(m, text);
    } else if (status != TN_NO_MEMORY) {
        tni_tf.TF_SetStatus(m->status, TNI_ABSL_OK, "");
        tni_free(text);
        text = NULL;
        status = get_text(m, "formula", &text);
        if (status == TN_OK) status = make_formula(m, text);
    }
    tni_free(text);
    return status;
}

void tni_tf_delete(void *made) {
    kernel *k = made;
    if (!k) return;
    tn_fuse_release(k->op); /* of the table: it stays */
    for (int32_t i = 0; i < k->n_memory; i++) tni_free(k->memory[i]);
    tni_free(k);
}

void *tni_tf_create(TF_OpKernelConstruction *construction) {
    kernel *k = tni_calloc(1, sizeof *k);
    maker m = {.construction = construction, .status = tni_tf.TF_NewStatus(), .k = k};
    tn_status status = k ? make_kernel(&m) : TN_NO_MEMORY;
    if (status != TN_OK) {
        set_status(m.status, status);
        tni_tf.TF_OpKernelConstruction_Failure(construction, m.status);
        tni_tf_delete(k);
        k = NULL;
    }
    tni_tf.TF_DeleteStatus(m.status);
    return k;
}

/* ---- running it -------------------------------------------------------------------------------------------------- */

typedef struct slot { /* a tensor of TensorFlow, and the same for the core */
    TF_Tensor *held;
    tn_tensor tensor;
    int64_t shape[TN_MAX_RANK];
} slot;

typedef struct run {
    const kernel *k;
    TF_OpKernelContext *context;
    TF_Status *status;
    slot *slots; /* used ones first */
    int32_t n_slots;
    const tn_tensor **in;
    int32_t n_in;
    int32_t lengths[TNI_MAX_ARGS];
    tn_attr attrs[TNI_MAX_ARGS];
} run;

static tn_status wrong_number(const run *r, const char *what) {
    return tn_fail(TN_BAD_VALUE, "%s: the number of %s is not what the op's attributes say", r->k->op->contract->name,
                   what);
}

static tn_status fill(const run *r, const char *name, slot *s) {
    const char *op = r->k->op->contract->name;
    tn_type type = tni_tf_type_of(tni_tf.TF_TensorType(s->held));
    int rank = tni_tf.TF_NumDims(s->held);
    if (type == TN_NO_TYPE) return tn_fail(TN_BAD_TYPE, "%s: %s has a type that Tenon does not have", op, name);
    if (rank > TN_MAX_RANK) {
        return tn_fail(TN_BAD_SHAPE, "%s: %s has rank %d, and %d is the most", op, name, rank, TN_MAX_RANK);
    }
    for (int d = 0; d < rank; d++) s->shape[d] = tni_tf.TF_Dim(s->held, d);
    s->tensor = tn_dense(tni_tf.TF_TensorData(s->held), type, rank, s->shape);
    return TN_OK;
}

static tn_status get_input(run *r, const char *name, int index, slot **made) {
    slot *s = &r->slots[r->n_slots];
    s->held = NULL;
    tni_tf.TF_GetInput(r->context, index, &s->held, r->status);
    TN_TRY(status_of(r->status));
    r->n_slots++;
    *made = s;
    return fill(r, name, s);
}

static tn_status allocate(run *r, const char *name, int index, tn_type type, int32_t rank, const int64_t *shape,
                          slot **made) {
    int code = tni_tf_types[type].code;
    if (index >= tni_tf.TF_NumOutputs(r->context)) return wrong_number(r, "outputs");
    if (tni_tf.TF_ExpectedOutputDataType(r->context, index) != code) {
        return tn_fail(TN_BAD_TYPE, "%s: %s has type %s, and the op's attributes say something else",
                       r->k->op->contract->name, name, tn_type_name(type));
    }
    size_t bytes = tn_type_size(type);
    for (int32_t d = 0; d < rank; d++) bytes *= (size_t)shape[d];
    slot *s = &r->slots[r->n_slots];
    s->held = tni_tf.TF_AllocateOutput(r->context, index, code, shape, rank, bytes, r->status);
    TN_TRY(status_of(r->status));
    r->n_slots++;
    *made = s;
    return fill(r, name, s);
}

static bool is_wanted(const kernel *k, const tni_param *output) {
    return output->want_attr < 0 || k->attrs[output->want_attr].value.b;
}

/* Outputs that were asked for, of the first n. */
static int count_outputs(const kernel *k, int32_t n) {
    int count = 0;
    for (int32_t i = 0; i < n; i++) count += is_wanted(k, &k->op->contract->outputs[i]);
    return count;
}

/* The value of an attribute that comes as a tensor. */
static tn_status read_value(const run *r, const tni_attr *attr, const slot *s, tn_value *value) {
    size_t count = tni_tf.TF_TensorByteSize(s->held) / sizeof(int64_t);
    if (attr->kind == TNI_A_INTS && count <= TNI_MAX_INTS) {
        *value = (tn_value){.kind = TN_ATTR_INTS, .count = (int32_t)count, .ints = s->tensor.data};
    } else if (attr->kind == TNI_A_INT && count == 1) {
        *value = (tn_value){.kind = TN_ATTR_INT, .i = *(const int64_t *)s->tensor.data};
    } else {
        return tn_fail(TN_BAD_VALUE, "%s: %s has %zu elements", r->k->op->contract->name, attr->name, count);
    }
    return TN_OK;
}

/* What is updated in place is a copy, and an output. */
static tn_status read_inputs(run *r) {
    const tni_contract *c = r->k->op->contract;
    int next = 0, updated = count_outputs(r->k, c->n_outputs);
    for (int32_t i = 0; i < c->n_inputs; i++) {
        const tni_param *param = &c->inputs[i];
        r->lengths[i] = param->list ? r->k->counts[i] : 1;
        if (r->k->counts[i] == 0 && !param->list) r->in[r->n_in++] = NULL;
        for (int32_t j = 0; j < r->k->counts[i]; j++) {
            if (next == tni_tf.TF_NumInputs(r->context)) return wrong_number(r, "inputs");
            slot *s;
            TN_TRY(get_input(r, param->name, next++, &s));
            if (param->inplace) {
                const slot *from = s;
                tn_type type = tn_type_from_dlpack(from->tensor.dtype);
                TN_TRY(allocate(r, param->name, updated++, type, from->tensor.ndim, from->shape, &s));
                size_t bytes = tni_tf.TF_TensorByteSize(from->held);
                if (bytes > 0) memcpy(s->tensor.data, from->tensor.data, bytes);
            }
            r->in[r->n_in++] = &s->tensor;
        }
    }
    for (int32_t i = 0; i < c->n_attrs; i++) {
        r->attrs[i] = r->k->attrs[i];
        if (!r->k->from_tensor[i]) continue;
        if (next == tni_tf.TF_NumInputs(r->context)) return wrong_number(r, "inputs");
        slot *s;
        TN_TRY(get_input(r, c->attrs[i].name, next++, &s));
        TN_TRY(read_value(r, &c->attrs[i], s, &r->attrs[i].value));
    }
    bool fits = next == tni_tf.TF_NumInputs(r->context) && updated == tni_tf.TF_NumOutputs(r->context);
    return fits ? TN_OK : wrong_number(r, "tensors");
}

static tn_status make_output(void *context, int32_t output, const tn_spec *spec, const int64_t *strides,
                             tn_tensor **made) {
    (void)strides; /* inputs are dense, so outputs are */
    run *r = context;
    slot *s;
    const char *name = r->k->op->contract->outputs[output].name;
    TN_TRY(allocate(r, name, count_outputs(r->k, output), spec->type, spec->ndim, spec->shape, &s));
    *made = &s->tensor;
    return TN_OK;
}

static tn_status run_operator(run *r) {
    const tni_contract *c = r->k->op->contract;
    TN_TRY(read_inputs(r));
    tn_args args = {
        .in = r->in,
        .n_in = r->n_in,
        .lengths = c->has_lists ? r->lengths : NULL,
        .attrs = r->attrs,
        .n_attrs = c->n_attrs,
        .n_out = c->n_outputs,
    };
    return tni_call_alloc(r->k->op, &args, tn_default_host(), make_output, r);
}

void tni_tf_compute(void *made, TF_OpKernelContext *context) {
    const kernel *k = made;
    size_t n_slots = (size_t)tni_tf.TF_NumInputs(context) + (size_t)tni_tf.TF_NumOutputs(context);
    size_t n_in = n_slots + TNI_MAX_ARGS; /* absent ones too */
    char *memory = tni_malloc(n_slots * sizeof(slot) + n_in * sizeof(tn_tensor *));
    run r = {.k = k, .context = context, .status = tni_tf.TF_NewStatus(), .slots = (slot *)(void *)memory};
    r.in = (const tn_tensor **)(void *)(memory + n_slots * sizeof(slot));
    tn_status status = memory ? run_operator(&r) : TN_NO_MEMORY;
    if (status != TN_OK) {
        set_status(r.status, status);
        tni_tf.TF_OpKernelContext_Failure(context, r.status);
    }
    for (int32_t i = 0; i < r.n_slots; i++) tni_tf.TF_DeleteTensor(r.slots[i].held);
    tni_tf.TF_DeleteStatus(r.status);
    tni_free(memory);
}
