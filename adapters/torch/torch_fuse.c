/* `tenon::fuse`: one operator for all formulas. The text is the formula's identity, so a graph that holds it can be
 * saved and read again; its gradient is the same operator with another text. */
#include <string.h>

#include <tenon/fuse.h>

#include "../../src/core/contract_parts.h"
#include "torch.h"

#define PARAMETERS "(str formula, Tensor?[] inputs, str attributes=\"\", bool fast=False) -> Tensor[]"

/* The arguments' places. */
enum { FORMULA, INPUTS, ATTRIBUTES, FAST };

enum { LONGEST_VALUE = 256 };

typedef struct arguments {
    tni_torch_frame frame;
    bool ready; /* the frame is in use */
    tni_torch_slot *boxes[TNI_MAX_ARGS];
    int32_t n_boxes;
    void *values[TNI_MAX_ARGS]; /* memory of attributes */
    int32_t n_values;
} arguments;

/* ---- attributes: "eps=1e-05 mode='sum' want_dx=true" ------------------------------------------------------------- */

static tn_status bad_attributes(const tni_contract *c, const char *text) {
    return tn_fail(TN_BAD_VALUE, "%s: attributes are written name=value, separated by blanks, not '%s'", c->name, text);
}

static tn_status read_attribute(arguments *a, const char *name, const char *value) {
    const tni_contract *c = a->frame.op->contract;
    tn_attr attr;
    TN_TRY(tni_attr_parse(c, name, value, &attr, &a->values[a->n_values]));
    a->n_values++;
    a->frame.attrs[tni_attr_named(c, name)].value = attr.value;
    return TN_OK;
}

static tn_status read_attributes(arguments *a, const char *text) {
    const tni_contract *c = a->frame.op->contract;
    for (int32_t i = 0; i < c->n_attrs; i++) a->frame.attrs[i] = (tn_attr){0}; /* by place, unset */
    for (const char *p = text + strspn(text, " "); *p; p += strspn(p, " ")) {
        char name[TNI_MAX_NAME + 1], value[LONGEST_VALUE];
        size_t length = strcspn(p, "= "), end = length + 1;
        if (p[length] != '=' || length > TNI_MAX_NAME || a->n_values == TNI_MAX_ARGS) return bad_attributes(c, text);
        for (bool quoted = false; p[end] && (p[end] != ' ' || quoted); end++) quoted ^= p[end] == '\'';
        if (end - length - 1 >= sizeof value) return bad_attributes(c, text);
        memcpy(name, p, length);
        name[length] = 0;
        memcpy(value, p + length + 1, end - length - 1);
        value[end - length - 1] = 0;
        TN_TRY(read_attribute(a, name, value));
        p += end;
    }
    return TN_OK;
}

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

static tn_status torch_failed(const char *what) {
    return tn_fail(TN_SYSTEM, "tenon::fuse: torch could not %s", what);
}

static tn_status read_inputs(arguments *a, tni_torch_handle list) {
    const tni_contract *c = a->frame.op->contract;
    size_t size;
    if (tni_torch.torch_list_size(list, &size)) return torch_failed("read a list");
    if (size > (size_t)c->n_inputs) {
        return tn_fail(TN_BAD_VALUE, "%s: takes %d tensors, got %zu", c->name, c->n_inputs, size);
    }
    for (size_t i = 0; i < size; i++) {
        tni_torch_slot item;
        if (tni_torch.torch_list_get_item(list, i, &item)) return torch_failed("read a list");
        tni_torch_slot *box = (tni_torch_slot *)item;
        TN_TRY(tni_torch_frame_room(&a->frame, 1));
        if (box) {
            a->boxes[a->n_boxes++] = box;
            a->frame.owned[a->frame.n_owned++] = (tni_torch_handle)*box;
        }
        TN_TRY(tni_torch_add_tensor(&a->frame, &c->inputs[i], box ? (tni_torch_handle)*box : NULL));
    }
    return TN_OK;
}

static tn_status read_call(arguments *a, const tni_torch_slot *stack) {
    const char *formula, *attributes;
    const tn_operator *op;
    if (tni_torch.torch_string_c_str((tni_torch_handle)stack[FORMULA], &formula) ||
        tni_torch.torch_string_c_str((tni_torch_handle)stack[ATTRIBUTES], &attributes)) {
        return torch_failed("read a string");
    }
    tn_fuse_options options = {.fast = (uint8_t)stack[FAST] != 0};
    TN_TRY(tn_fuse(formula, &options, &op));
    tni_torch_frame_init(&a->frame, op);
    a->ready = true;
    TN_TRY(read_attributes(a, attributes));
    return read_inputs(a, (tni_torch_handle)stack[INPUTS]);
}

static void release(arguments *a, const tni_torch_slot *stack) {
    for (int32_t i = 0; a->ready && i < a->frame.n_owned; i++) {
        tni_torch.aoti_torch_delete_tensor_object(a->frame.owned[i]);
    }
    for (int32_t i = 0; i < a->n_boxes; i++) tni_torch_delete_box(a->boxes[i]);
    for (int32_t i = 0; i < a->n_values; i++) tni_free(a->values[i]);
    if (a->ready) tni_torch_frame_free(&a->frame);
    tni_torch.torch_delete_string((tni_torch_handle)stack[FORMULA]);
    tni_torch.torch_delete_list((tni_torch_handle)stack[INPUTS]);
    tni_torch.torch_delete_string((tni_torch_handle)stack[ATTRIBUTES]);
}

/* The outputs that are there, in the contract's order. */
static tn_status push(tni_torch_frame *frame, tni_torch_slot *stack) {
    int32_t n = frame->op->contract->n_outputs;
    tni_torch_handle list;
    if (tni_torch.torch_new_list_reserve_size((size_t)n, &list)) return torch_failed("make a list");
    for (int32_t i = 0; i < n; i++) {
        if (!frame->out[i]) continue;
        if (tni_torch.torch_list_push_back(list, (tni_torch_slot)frame->out[i])) return torch_failed("make a list");
        frame->out[i] = NULL;
    }
    stack[0] = (tni_torch_slot)list;
    return TN_OK;
}

static void run(tni_torch_slot *stack, uint64_t n_in, uint64_t n_out) {
    (void)n_in;
    (void)n_out;
    arguments a;
    a.ready = false;
    a.n_boxes = a.n_values = 0;
    tn_status status = read_call(&a, stack);
    if (status == TN_OK) status = tni_torch_call(&a.frame);
    release(&a, stack);
    if (status == TN_OK) status = push(&a.frame, stack);
    if (status == TN_OK) return;
    if (a.ready) tni_torch_delete_outputs(&a.frame);
    tni_torch_raise(status);
}

tn_status tni_torch_register_fuse(void) {
    TN_TRY(tni_torch_define("fuse" PARAMETERS, "fuse", run));
    return tni_torch_define("fuse.raw" PARAMETERS, "fuse.raw", run);
}
