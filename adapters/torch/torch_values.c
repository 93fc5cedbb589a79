/* Arguments and results of one call: torch's slots to tn_tensor and tn_value and back, with torch's memory and threads.
 */
#include <string.h>

#include "core/host/memory.h"
#include "core/run/run.h"
#include "torch.h"

/* ---- the frame --------------------------------------------------------------------------------------------------- */

void tni_torch_frame_init(tni_torch_frame *frame, const tn_function *op) {
    const tni_contract *c = op->contract;
    frame->op = op;
    frame->tensors = frame->few_tensors;
    frame->in = frame->few_in;
    frame->owned = frame->few_owned;
    frame->capacity = TNI_TORCH_FEW;
    frame->n_owned = 0;
    frame->n_ints = 0;
    frame->more = NULL;
    frame->over = NULL;
    frame->given = 0;
    memset(frame->out, 0, (size_t)c->n_outputs * sizeof frame->out[0]);
    frame->args = (tn_args){
        .in = frame->in,
        .lengths = c->has_lists ? frame->lengths : NULL,
        .attrs = frame->attrs,
        .n_attrs = c->n_attrs,
        .n_out = c->n_outputs,
    };
}

void *tni_torch_frame_alloc(tni_torch_frame *frame, size_t bytes) {
    void **block = tni_malloc(sizeof(void *) + bytes);
    if (!block) return NULL;
    *block = frame->more;
    frame->more = block;
    return block + 1;
}

void tni_torch_frame_free(tni_torch_frame *frame) {
    while (frame->more) {
        void *next = *(void **)frame->more;
        tni_free(frame->more);
        frame->more = next;
    }
}

/* Room for n more tensors. The ones that are there move. */
tn_status tni_torch_frame_room(tni_torch_frame *frame, int32_t n) {
    int32_t have = frame->args.n_in;
    if (have + n <= frame->capacity) return TN_OK;
    int32_t capacity = 2 * (have + n);
    tn_tensor *tensors = tni_torch_frame_alloc(frame, (size_t)capacity * sizeof *tensors);
    const tn_tensor **in = tni_torch_frame_alloc(frame, (size_t)capacity * sizeof *in);
    tni_torch_handle *owned = tni_torch_frame_alloc(frame, (size_t)capacity * sizeof *owned);
    if (!tensors || !in || !owned) return TN_NO_MEMORY;
    memcpy(tensors, frame->tensors, (size_t)have * sizeof *tensors);
    memcpy(owned, frame->owned, (size_t)frame->n_owned * sizeof *owned);
    for (int32_t i = 0; i < have; i++) in[i] = frame->in[i] ? tensors + (frame->in[i] - frame->tensors) : NULL;
    frame->tensors = tensors;
    frame->args.in = frame->in = in;
    frame->owned = owned;
    frame->capacity = capacity;
    return TN_OK;
}

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

static tn_status shim_failed(const tni_torch_frame *frame, const char *what) {
    return tn_fail(TN_SYSTEM, "%s: torch could not %s", frame->op->contract->name, what);
}

static tn_status read_device(const tni_torch_frame *frame, const char *name, tni_torch_handle tensor,
                             tn_device *device) {
    int32_t type, index;
    if (tni_torch.aoti_torch_get_device_type(tensor, &type) || tni_torch.aoti_torch_get_device_index(tensor, &index)) {
        return shim_failed(frame, "say where a tensor is");
    }
    if (type != tni_torch.device_cpu && type != tni_torch.device_cuda) {
        return tn_fail(TN_BAD_DEVICE, "%s: %s is on a device that Tenon does not know; it knows cpu and cuda",
                       frame->op->contract->name, name);
    }
    bool cpu = type == tni_torch.device_cpu;
    *device = (tn_device){cpu ? TN_CPU : TN_CUDA, cpu || index < 0 ? 0 : index};
    return TN_OK;
}

static tn_status read_tensor(const tni_torch_frame *frame, const tni_param *param, bool written,
                             tni_torch_handle tensor, tn_tensor *t) {
    const char *op = frame->op->contract->name;
    bool defined;
    if (tni_torch.aoti_torch_is_defined(tensor, &defined)) return shim_failed(frame, "read a tensor");
    if (!defined) return tn_fail(TN_BAD_TYPE, "%s: %s must be a tensor, not None", op, param->name);
    int64_t ndim;
    int32_t dtype;
    if (tni_torch.aoti_torch_get_dim(tensor, &ndim) || tni_torch.aoti_torch_get_sizes(tensor, &t->shape) ||
        tni_torch.aoti_torch_get_strides(tensor, &t->strides) || tni_torch.aoti_torch_get_dtype(tensor, &dtype)) {
        return shim_failed(frame, "read a tensor");
    }
    if (ndim > TN_MAX_RANK) {
        return tn_fail(TN_BAD_SHAPE, "%s: %s has rank %lld; Tenon goes up to %d", op, param->name, (long long)ndim,
                       TN_MAX_RANK);
    }
    tn_type type = tni_torch_type(dtype);
    if (type == TN_NO_TYPE) {
        return tn_fail(TN_BAD_TYPE, "%s: %s has a type that Tenon does not know (torch's number %d)", op, param->name,
                       dtype);
    }
    t->ndim = (int32_t)ndim;
    t->dtype = tn_type_to_dlpack(type);
    t->byte_offset = 0;
    TN_TRY(read_device(frame, param->name, tensor, &t->device));
    tni_torch_error failed = written ? tni_torch.torch_get_mutable_data_ptr(tensor, &t->data)
                                     : tni_torch.torch_get_const_data_ptr(tensor, (const void **)&t->data);
    return failed ? shim_failed(frame, "say where a tensor's data is") : TN_OK;
}

tn_status tni_torch_add_tensor(tni_torch_frame *frame, const tni_param *param, tni_torch_handle tensor) {
    TN_TRY(tni_torch_frame_room(frame, 1));
    int32_t i = frame->args.n_in++;
    frame->in[i] = NULL;
    if (!tensor) return TN_OK;
    TN_TRY(read_tensor(frame, param, param->inplace, tensor, &frame->tensors[i]));
    frame->in[i] = &frame->tensors[i];
    return TN_OK;
}

tn_status tni_torch_give_output(tni_torch_frame *frame, int32_t output, tni_torch_handle tensor) {
    frame->given |= (uint64_t)1 << output;
    return read_tensor(frame, &frame->op->contract->outputs[output], true, tensor, &frame->out_tensors[output]);
}

static tn_status add_list(tni_torch_frame *frame, const tni_param *param, tni_torch_handle list, int32_t *length) {
    size_t size;
    if (tni_torch.torch_list_size(list, &size)) return shim_failed(frame, "read a list");
    if (size > INT16_MAX) {
        return tn_fail(TN_BAD_VALUE, "%s: %s has %zu tensors; a list holds at most %d", frame->op->contract->name,
                       param->name, size, INT16_MAX);
    }
    TN_TRY(tni_torch_frame_room(frame, (int32_t)size));
    int32_t first = frame->n_owned;
    for (size_t i = 0; i < size; i++) { /* all of them, before one may be refused */
        tni_torch_slot item;
        if (tni_torch.torch_list_get_item(list, i, &item)) return shim_failed(frame, "read a list");
        frame->owned[frame->n_owned++] = (tni_torch_handle)item;
    }
    for (size_t i = 0; i < size; i++) TN_TRY(tni_torch_add_tensor(frame, param, frame->owned[(size_t)first + i]));
    *length = (int32_t)size;
    return TN_OK;
}

static tn_status read_input(tni_torch_frame *frame, int32_t i, tni_torch_slot slot) {
    const tni_param *param = &frame->op->contract->inputs[i];
    if (param->optional && slot) slot = *(tni_torch_slot *)slot; /* out of its box */
    frame->lengths[i] = !param->list;
    if (!param->list) return tni_torch_add_tensor(frame, param, (tni_torch_handle)slot);
    return slot ? add_list(frame, param, (tni_torch_handle)slot, &frame->lengths[i]) : TN_OK;
}

/* ---- attributes -------------------------------------------------------------------------------------------------- */

static tn_status read_ints(tni_torch_frame *frame, const tni_attr *attr, tni_torch_handle list, tn_value *value) {
    size_t size;
    if (tni_torch.torch_list_size(list, &size)) return shim_failed(frame, "read a list");
    if (size > TNI_MAX_INTS) {
        return tn_fail(TN_BAD_VALUE, "%s: %s has %zu elements; it may have %d", frame->op->contract->name, attr->name,
                       size, TNI_MAX_INTS);
    }
    int64_t *ints = frame->ints + frame->n_ints;
    if (frame->n_ints + (int32_t)size > TNI_MAX_INTS) {
        ints = tni_torch_frame_alloc(frame, size * sizeof *ints);
        if (!ints) return TN_NO_MEMORY;
    } else {
        frame->n_ints += (int32_t)size;
    }
    for (size_t i = 0; i < size; i++) {
        tni_torch_slot item;
        if (tni_torch.torch_list_get_item(list, i, &item)) return shim_failed(frame, "read a list");
        ints[i] = (int64_t)item;
    }
    *value = (tn_value){.kind = TN_ATTR_INTS, .count = (int32_t)size, .ints = ints};
    return TN_OK;
}

static tn_status read_string(tni_torch_frame *frame, tni_torch_handle string, tn_value *value) {
    *value = (tn_value){.kind = TN_ATTR_STR};
    return tni_torch.torch_string_c_str(string, &value->s) ? shim_failed(frame, "read a string") : TN_OK;
}

static tn_status read_dtype(tni_torch_frame *frame, const tni_attr *attr, int32_t dtype, tn_value *value) {
    *value = (tn_value){.kind = TN_ATTR_TYPE, .type = tni_torch_type(dtype)};
    if (value->type != TN_NO_TYPE) return TN_OK;
    return tn_fail(TN_BAD_TYPE, "%s: %s is a type that Tenon does not know (torch's number %d)",
                   frame->op->contract->name, attr->name, dtype);
}

static tn_status read_attr(tni_torch_frame *frame, int32_t i, tni_torch_slot slot) {
    const tni_attr *attr = &frame->op->contract->attrs[i];
    tn_value *value = &frame->attrs[i].value;
    frame->attrs[i].name = NULL; /* by its place */
    *value = (tn_value){.kind = TN_ATTR_UNSET};
    if (attr->optional) {
        if (!slot) return TN_OK;
        slot = *(tni_torch_slot *)slot;
    }
    switch (attr->kind) {
    case TNI_A_INT:
    case TNI_A_AXIS: *value = (tn_value){.kind = TN_ATTR_INT, .i = (int64_t)slot}; return TN_OK;
    case TNI_A_BOOL: *value = (tn_value){.kind = TN_ATTR_BOOL, .b = (uint8_t)slot != 0}; return TN_OK;
    case TNI_A_FLOAT:
        value->kind = TN_ATTR_FLOAT;
        memcpy(&value->f, &slot, sizeof slot);
        return TN_OK;
    case TNI_A_DTYPE: return read_dtype(frame, attr, (int32_t)slot, value);
    case TNI_A_AXES:
    case TNI_A_INTS: return read_ints(frame, attr, (tni_torch_handle)slot, value);
    case TNI_A_STR:
    case TNI_A_CHOICE:
    case TNI_A_ACTIVATION: return read_string(frame, (tni_torch_handle)slot, value);
    }
    return tn_fail(TN_UNSUPPORTED, "%s: %s cannot be passed from torch", frame->op->contract->name, attr->name);
}

/* ---- slots ------------------------------------------------------------------------------------------------------- */

/* Parameter k of the schema: the written ones, then the implied attributes. */
static bool param_at(const tni_contract *c, uint64_t k, bool *is_attr, int32_t *index) {
    if (k < (uint64_t)c->n_order) {
        *is_attr = c->order[k].is_attr;
        *index = c->order[k].index;
        return true;
    }
    *is_attr = true;
    *index = c->n_order - c->n_inputs + (int32_t)(k - (uint64_t)c->n_order);
    return *index < c->n_attrs;
}

tn_status tni_torch_read(tni_torch_frame *frame, const tni_torch_slot *stack, uint64_t n_in) {
    const tni_contract *c = frame->op->contract;
    bool is_attr;
    int32_t index;
    for (uint64_t k = 0; k < n_in && param_at(c, k, &is_attr, &index); k++) {
        TN_TRY(is_attr ? read_attr(frame, index, stack[k]) : read_input(frame, index, stack[k]));
    }
    return TN_OK;
}

void tni_torch_delete_box(tni_torch_slot *box) {
    if (tni_torch.torch_delete_stable_ivalue) {
        tni_torch.torch_delete_stable_ivalue(box);
    } else {
        tni_torch.delete_memory(box);
    }
}

static void release_attr(tni_attr_kind kind, tni_torch_slot slot) {
    switch (kind) {
    case TNI_A_AXES:
    case TNI_A_INTS: tni_torch.torch_delete_list((tni_torch_handle)slot); return;
    case TNI_A_STR:
    case TNI_A_CHOICE:
    case TNI_A_ACTIVATION: tni_torch.torch_delete_string((tni_torch_handle)slot); return;
    default: return; /* the slot is the value */
    }
}

static void release_slot(const tni_contract *c, bool is_attr, int32_t index, tni_torch_slot slot) {
    bool optional = is_attr ? c->attrs[index].optional : c->inputs[index].optional;
    tni_torch_slot *box = optional ? (tni_torch_slot *)slot : NULL;
    if (optional && !box) return;
    if (box) slot = *box;
    if (is_attr) {
        release_attr(c->attrs[index].kind, slot);
    } else if (c->inputs[index].list) {
        tni_torch.torch_delete_list((tni_torch_handle)slot);
    } else {
        tni_torch.aoti_torch_delete_tensor_object((tni_torch_handle)slot);
    }
    if (box) tni_torch_delete_box(box);
}

void tni_torch_release_slots(tni_torch_frame *frame, const tni_torch_slot *stack, uint64_t n_in) {
    const tni_contract *c = frame->op->contract;
    bool is_attr;
    int32_t index;
    for (int32_t i = 0; i < frame->n_owned; i++) tni_torch.aoti_torch_delete_tensor_object(frame->owned[i]);
    for (uint64_t k = 0; k < n_in && param_at(c, k, &is_attr, &index); k++) release_slot(c, is_attr, index, stack[k]);
    tni_torch_frame_free(frame);
}

static tni_torch_slot *new_box(void) {
    tni_torch_slot *box = NULL;
    if (!tni_torch.torch_new_stable_ivalue) return tni_torch.new_memory(sizeof *box);
    return tni_torch.torch_new_stable_ivalue(&box) ? NULL : box;
}

tn_status tni_torch_push(tni_torch_frame *frame, tni_torch_slot *stack, uint64_t n_out) {
    const tni_contract *c = frame->op->contract;
    tni_torch_slot *boxes[TNI_MAX_ARGS] = {0};
    for (uint64_t i = 0; i < n_out; i++) {
        if (!frame->out[i] || c->outputs[i].want == TNI_ALWAYS) continue;
        boxes[i] = new_box();
        if (boxes[i]) continue;
        while (i-- > 0) {
            if (boxes[i]) tni_torch_delete_box(boxes[i]);
        }
        return tn_fail(TN_NO_MEMORY, "%s: no memory for the results", c->name);
    }
    for (uint64_t i = 0; i < n_out; i++) {
        if (boxes[i]) *boxes[i] = (tni_torch_slot)frame->out[i];
        stack[i] = boxes[i] ? (tni_torch_slot)boxes[i] : (tni_torch_slot)frame->out[i];
        frame->out[i] = NULL;
    }
    return TN_OK;
}

void tni_torch_delete_outputs(tni_torch_frame *frame) {
    for (int32_t i = 0; i < frame->op->contract->n_outputs; i++) {
        if (frame->out[i]) tni_torch.aoti_torch_delete_tensor_object(frame->out[i]);
        frame->out[i] = NULL;
    }
}

/* ---- torch as the host ------------------------------------------------------------------------------------------- */

static int32_t torch_device(tn_device device) {
    return device.kind == TN_CPU ? tni_torch.device_cpu : tni_torch.device_cuda;
}

static tn_block host_alloc(void *context, tn_device device, size_t bytes) {
    (void)context;
    int64_t size = (int64_t)bytes, stride = 1;
    tni_torch_handle tensor;
    tn_block block = {0};
    if (tni_torch.aoti_torch_empty_strided(1, &size, &stride, tni_torch.dtypes[TN_U8], torch_device(device),
                                           device.index, &tensor)) {
        return block;
    }
    block.handle = tensor;
    if (tni_torch.torch_get_mutable_data_ptr(tensor, &block.data) || !block.data) {
        tni_torch.aoti_torch_delete_tensor_object(tensor);
        return (tn_block){0};
    }
    return block;
}

static void host_release(void *context, tn_device device, tn_block block) {
    (void)context;
    (void)device;
    tni_torch.aoti_torch_delete_tensor_object(block.handle);
}

typedef struct loop {
    tn_body body;
    void *arg;
} loop;

static void loop_body(int64_t begin, int64_t end, void *context) {
    const loop *l = context;
    l->body(l->arg, begin, end);
}

static void host_parallel(void *context, int64_t n, int64_t grain, tn_body body, void *arg) {
    (void)context;
    loop l = {body, arg};
    tni_torch.torch_parallel_for(0, n, grain > 0 ? grain : 1, loop_body, &l);
}

static int host_threads(void *context) {
    (void)context;
    uint32_t threads = 1;
    return tni_torch.torch_get_num_threads(&threads) ? 1 : (int)threads;
}

static const tn_host torch_host = {
    .alloc = host_alloc,
    .release = host_release,
    .parallel = host_parallel,
    .threads = host_threads,
};

/* Where the call runs: its tensors are all on one device. */
static tn_device device_of(const tni_torch_frame *frame) {
    for (int32_t i = 0; i < frame->args.n_in; i++) {
        if (frame->in[i]) return frame->in[i]->device;
    }
    return (tn_device){TN_CPU, 0};
}

static bool is_laid_out(const tn_tensor *given, const tn_spec *spec, const int64_t *strides) {
    bool alike = tn_type_from_dlpack(given->dtype) == spec->type && given->ndim == spec->ndim && given->strides;
    for (int32_t d = 0; alike && d < spec->ndim; d++) {
        alike = given->shape[d] == spec->shape[d] && (spec->shape[d] == 1 || given->strides[d] == strides[d]);
    }
    return alike;
}

/* The first output takes over the memory of a tensor, where they are laid out alike. */
static bool take_over(tni_torch_frame *frame, const tn_spec *spec, const int64_t *strides, tn_tensor **made) {
    const tn_device device = device_of(frame);
    const tn_tensor *given = frame->over;
    bool here = given && given->device.kind == device.kind && given->device.index == device.index;
    if (!here || !is_laid_out(given, spec, strides)) {
        frame->over = NULL;
        return false;
    }
    frame->out_tensors[0] = *given;
    *made = &frame->out_tensors[0];
    return true;
}

static tn_status make_output(void *context, int32_t output, const tn_spec *spec, const int64_t *strides,
                             tn_tensor **made) {
    tni_torch_frame *frame = context;
    const tni_contract *c = frame->op->contract;
    if (c->outputs[output].list) {
        return tn_fail(TN_UNSUPPORTED, "%s: %s is a list of outputs, which torch does not get yet", c->name,
                       c->outputs[output].name);
    }
    if (frame->given >> output & 1) {
        *made = &frame->out_tensors[output];
        return is_laid_out(*made, spec, strides) ? TN_OK
                                                 : tn_fail(TN_BAD_SHAPE, "%s: the tensor for %s has another layout",
                                                           c->name, c->outputs[output].name);
    }
    if (output == 0 && take_over(frame, spec, strides, made)) return TN_OK;
    const tn_device device = device_of(frame);
    tn_tensor *t = &frame->out_tensors[output];
    tni_torch_handle *tensor = &frame->out[output];
    if (tni_torch.aoti_torch_empty_strided(spec->ndim, spec->shape, strides, tni_torch.dtypes[spec->type],
                                           torch_device(device), device.index, tensor)) {
        *tensor = NULL;
        double bytes = (double)tn_type_size(spec->type);
        for (int32_t d = 0; d < spec->ndim; d++) bytes *= (double)spec->shape[d];
        return tn_fail(TN_NO_MEMORY, "%s: torch has no memory for %s (%.3g bytes)", c->name, c->outputs[output].name,
                       bytes);
    }
    *t = (tn_tensor){.device = device};
    *made = t;
    return tni_torch.torch_get_mutable_data_ptr(*tensor, &t->data) ? shim_failed(frame, "say where a tensor's data is")
                                                                   : TN_OK;
}

tn_status tni_torch_call(tni_torch_frame *frame) {
    const tn_device device = device_of(frame);
    if (device.kind != TN_CUDA) return tni_call_alloc(frame->op, &frame->args, &torch_host, make_output, frame);
    tn_host host = torch_host;
    if (!tni_torch.aoti_torch_get_current_cuda_stream ||
        tni_torch.aoti_torch_get_current_cuda_stream(device.index, &host.stream)) {
        return shim_failed(frame, "say which CUDA stream is current");
    }
    return tni_call_alloc(frame->op, &frame->args, &host, make_output, frame);
}
