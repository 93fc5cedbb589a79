/* Shapes, and the kernels of nodes: what ONNX Runtime asks for while a session is made and runs. */
#include <stdio.h>
#include <string.h>

#include "core/host/memory.h"
#include "core/run/run.h"
#include "onnxruntime.h"

static tn_type type_of(int onnx) {
    for (int t = 1; t < TN_TYPE_COUNT; t++) {
        if (tni_ort_types[t] == onnx) return (tn_type)t;
    }
    return TN_NO_TYPE;
}

/* ---- shapes ------------------------------------------------------------------------------------------------------ */

typedef struct item {
    tn_tensor tensor;
    int64_t shape[TN_MAX_RANK];
} item;

/* The type, rank and sizes; there is no data yet. */
static tn_status describe(const ort_api *api, const char *who, const char *name, const ort_shape *from, item *to) {
    int onnx;
    size_t ndim;
    TN_TRY(tni_ort_failed(api, who, api->GetTensorElementType(from, &onnx)));
    TN_TRY(tni_ort_failed(api, who, api->GetDimensionsCount(from, &ndim)));
    if (ndim > TN_MAX_RANK) {
        return tn_fail(TN_BAD_SHAPE, "%s: %s has rank %zu; Tenon goes up to %d", who, name, ndim, TN_MAX_RANK);
    }
    TN_TRY(tni_ort_failed(api, who, api->GetDimensions(from, to->shape, ndim)));
    tn_type type = type_of(onnx);
    if (type == TN_NO_TYPE) {
        return tn_fail(TN_BAD_TYPE, "%s: %s has a type that Tenon does not have (ONNX's number %d)", who, name, onnx);
    }
    to->tensor = (tn_tensor){.device = {TN_CPU, 0}, .ndim = (int32_t)ndim, .dtype = tn_type_to_dlpack(type)};
    to->tensor.shape = to->shape;
    return TN_OK;
}

/* The tensors of a call, in the contract's order. */
typedef struct inputs {
    item few[16], *items;
    const tn_tensor *few_in[16], **in;
    int32_t lengths[TNI_MAX_ARGS],
        firsts[TNI_MAX_ARGS]; /* of each input: tensors, and which of the node's is the first */
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
        if (!c->inputs[i].list) to->firsts[i] = f->lengths[i] ? at++ : INT32_MAX; /* behind all that there are */
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
    return !shape || !tni_ort_good(api, api->GetTensorElementType(shape, &onnx)) || onnx == 0;
}

static tn_status infer_inputs(const source *s, const form *f, inputs *to) {
    const tni_contract *c = f->op->contract;
    size_t count;
    TN_TRY(tni_ort_failed(s->api, c->name, s->api->ShapeInferContext_GetInputCount(s->inference, &count)));
    TN_TRY(deal(f, count, to));
    int32_t at = 0;
    for (int32_t i = 0; i < c->n_inputs; i++) {
        for (int32_t k = 0; k < to->lengths[i]; k++, at++) {
            size_t place = (size_t)to->firsts[i] + (size_t)k;
            ort_shape *shape = NULL; /* stays ONNX Runtime's */
            to->in[at] = NULL;
            if (place >= count) continue;
            OrtStatus *failed = s->api->ShapeInferContext_GetInputTypeShape(s->inference, place, &shape);
            if (!tni_ort_good(s->api, failed) || is_absent(s->api, shape)) continue;
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
    if (!tni_ort_good(api, api->CreateTensorTypeAndShapeInfo(&shape))) return;
    size_t ndim = (size_t)spec->ndim;
    if (tni_ort_good(api, api->SetTensorElementType(shape, tni_ort_types[spec->type])) &&
        tni_ort_good(api, api->SetDimensions(shape, spec->shape, ndim)) &&
        tni_ort_good(api, api->SetSymbolicDimensions(shape, names, ndim))) {
        tni_ort_good(api, api->ShapeInferContext_SetOutputTypeShape(s->inference, 0, shape));
    }
    api->ReleaseTensorTypeAndShapeInfo(shape);
}

/* The first output's shape. Those of others may not be set: ONNX Runtime up to 1.27 aborts where a node leaves them
 * out. What is wrong with a node is not told here, where nobody listens, but when its kernel is made or runs. */
OrtStatus *tni_ort_infer(const custom_op *op, ort_inference *inference) {
    const variant *v = (const variant *)op;
    const source s = {v->api, NULL, inference};
    form f;
    inputs in = {.more = NULL};
    tn_spec specs[TNI_MAX_ARGS];
    tn_status status = tni_ort_read_form(&s, v, &f);
    if (status == TN_OK) status = infer_inputs(&s, &f, &in);
    if (status == TN_OK && f.op->contract->n_outputs && f.op->contract->outputs[0].want == TNI_ALWAYS) {
        const tn_args args = {
            .in = in.in, .n_in = in.n, .lengths = in.lengths, .attrs = f.attrs, .n_attrs = f.op->contract->n_attrs};
        status = tni_infer(f.op, &args, specs);
        /* A result of Fuse has the type of its inputs, or its call fails and says so. */
        bool fits = v->op || (in.in[0] && tn_type_from_dlpack(in.in[0]->dtype) == specs[0].type);
        if (status == TN_OK && fits && specs[0].ndim >= 0 && specs[0].type != TN_NO_TYPE) set_shape(&s, &specs[0]);
    }
    tni_free(in.more);
    tni_ort_free_form(&f);
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
    TN_TRY(tni_ort_failed(s->api, who, s->api->KernelInfo_GetOutputCount(s->info, &count)));
    node *n = tni_calloc(1, sizeof *n + count);
    if (!n) return TN_NO_MEMORY;
    *made = n;
    n->n_outputs = count;
    for (size_t i = 0; i < count; i++) {
        length = 0; /* with its NUL */
        TN_TRY(tni_ort_failed(s->api, who, s->api->KernelInfo_GetOutputName(s->info, i, NULL, &length)));
        n->named[i] = length > 1;
    }
    return TN_OK;
}

void tni_ort_destroy(void *kernel) {
    node *n = kernel;
    if (n) tni_ort_free_form(&n->form);
    tni_free(n);
}

/* ONNX Runtime looks at how many outputs a node has, but not for Fuse. */
static tn_status check_outputs(const node *n) {
    const tni_contract *c = n->form.op->contract;
    int32_t most = c->n_outputs;
    for (int32_t i = 0; i < c->n_inputs; i++) most += c->inputs[i].inplace;
    if (n->v->op || n->n_outputs <= (size_t)most) return TN_OK;
    return tn_fail(TN_BAD_VALUE, "%s: makes %d tensors, the node has %zu", c->name, most, n->n_outputs);
}

static tn_status make_node(const source *s, const variant *v, node **made) {
    TN_TRY(read_outputs(s, tni_ort_name(v), made));
    node *n = *made;
    n->v = v;
    TN_TRY(tni_ort_read_form(s, v, &n->form));
    TN_TRY(check_outputs(n));
    const tni_contract *c = n->form.op->contract;
    for (int32_t i = 0; i < c->n_outputs; i++) {
        if (c->outputs[i].want_attr < 0) continue;
        bool wanted = (size_t)i < n->n_outputs && n->named[i];
        n->form.attrs[c->outputs[i].want_attr].value = (tn_value){.kind = TN_ATTR_BOOL, .b = wanted};
    }
    return TN_OK;
}

OrtStatus *tni_ort_create(const custom_op *op, const void *table, const ort_info *info, void **kernel) {
    (void)table;
    const variant *v = (const variant *)op;
    const source s = {v->api, info, NULL};
    node *n = NULL;
    tn_status status = make_node(&s, v, &n);
    OrtStatus *failed = tni_ort_status(v->api, status);
    if (failed) tni_ort_destroy(n);
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
        TN_TRY(tni_ort_failed(c->api, name_of(c),
                              c->api->KernelContext_GetOutput(c->context, place, shape, (size_t)ndim, &value)));
        if (value) return tni_ort_failed(c->api, name_of(c), c->api->GetTensorMutableData(value, data));
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
    TN_TRY(tni_ort_failed(c->api, name_of(c), c->api->KernelContext_GetInput(c->context, place, &value)));
    *there = value != NULL;
    if (!value) return TN_OK;
    TN_TRY(tni_ort_failed(c->api, name_of(c), c->api->GetTensorTypeAndShape(value, &shape)));
    tn_status status = describe(c->api, name_of(c), param->name, shape, to);
    c->api->ReleaseTensorTypeAndShapeInfo(shape);
    TN_TRY(status);
    return tni_ort_failed(c->api, name_of(c), c->api->GetTensorMutableData((ort_value *)value, &to->tensor.data));
}

/* What is updated is a copy, which is a further output of the node. */
static tn_status copy_input(call *c, size_t place, item *i) {
    const tn_tensor *t = &i->tensor;
    tn_type type = tn_type_from_dlpack(t->dtype);
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
    TN_TRY(tni_ort_failed(c->api, name_of(c), c->api->KernelContext_GetInputCount(c->context, &count)));
    TN_TRY(deal(&c->node->form, count, &c->in));
    int32_t at = 0;
    size_t single = (size_t)contract->n_outputs, list = single;
    while (tni_ort_updated(contract, (int32_t)(list - single), false) >= 0) list++;
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
                       tni_ort_name(v), tn_type_name(declared));
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
        !tni_ort_good(c->api, c->api->KernelContext_ParallelFor(c->context, loop_piece, (size_t)l.pieces, 0, &l))) {
        body(arg, 0, n);
    }
}

static int host_threads(void *context) {
    (void)context;
    return tn_threads();
}

OrtStatus *tni_ort_compute(void *kernel, ort_context *context) {
    const node *n = kernel;
    const tn_function *op = n->form.op;
    call c = {.node = n, .api = n->v->api, .context = context, .scratch = NULL};
    tn_host host = *tn_default_host(); /* its allocator looks at the context for GPUs alone */
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
    return tni_ort_status(c.api, status);
}
