/* `tenon::fuse`: one operator for all formulas. The text is the formula's identity, so a graph that holds it can be
 * saved and read again; its gradient is the same operator with another text. Formulas that update inputs are its
 * overload `inplace`, which says what it writes: torch must know. */
#include <tenon/fuse.h>

#include "core/host/memory.h"
#include "core/table/table.h"
#include "torch.h"

#define BEHIND "Tensor?[] inputs, str attributes=\"\", bool fast=False)"
#define PARAMETERS "(str formula, " BEHIND " -> Tensor[]"
/* written[k] is input places[k], or behind the inputs an output: memory for it. `inputs` has the others in their
 * places. */
#define INPLACE "(str formula, Tensor(a!)[] written, int[] places, " BEHIND " -> ()"

/* The arguments' places, without those that only INPLACE has. */
enum { FORMULA, INPUTS, ATTRIBUTES, FAST };

typedef struct arguments {
    tni_torch_frame frame;
    bool ready; /* the frame is in use */
    tni_torch_handle inputs[TNI_MAX_ARGS];
    tni_torch_slot *boxes[TNI_MAX_ARGS];
    int32_t n_boxes;
    size_t n_inputs, n_written; /* items of the lists that are ours by now: in `boxes`, in the frame's `owned` */
    void *values[TNI_MAX_ARGS]; /* memory of attributes */
    int32_t n_values;
} arguments;

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

static tn_status torch_failed(const char *what) {
    return tn_fail(TN_SYSTEM, "tenon::fuse: torch could not %s", what);
}

static tn_status length_of(tni_torch_handle list, size_t *size) {
    return tni_torch.torch_list_size(list, size) ? torch_failed("read a list") : TN_OK;
}

static tn_status item_of(tni_torch_handle list, size_t i, tni_torch_slot *item) {
    return tni_torch.torch_list_get_item(list, i, item) ? torch_failed("read a list") : TN_OK;
}

static tn_status take_inputs(arguments *a, tni_torch_handle list) {
    const tni_contract *c = a->frame.op->contract;
    size_t size;
    TN_TRY(length_of(list, &size));
    if (size > (size_t)c->n_inputs) {
        return tn_fail(TN_BAD_VALUE, "%s: takes %d tensors, got %zu", c->name, c->n_inputs, size);
    }
    for (size_t i = 0; i < size; i++) {
        tni_torch_slot item;
        TN_TRY(item_of(list, i, &item));
        a->n_inputs++;
        tni_torch_slot *box = (tni_torch_slot *)item;
        if (!box) continue;
        a->boxes[a->n_boxes++] = box;
        a->frame.owned[a->frame.n_owned++] = a->inputs[i] = (tni_torch_handle)*box;
        if (!c->inputs[i].inplace) continue;
        return tn_fail(TN_BAD_VALUE, "%s: updates %s in place, so it is for tenon::fuse.inplace, among `written`",
                       c->name, c->inputs[i].name);
    }
    return TN_OK;
}

static tn_status take_written(arguments *a, tni_torch_handle list, tni_torch_handle places) {
    const tni_contract *c = a->frame.op->contract;
    size_t size, also;
    TN_TRY(length_of(list, &size));
    TN_TRY(length_of(places, &also));
    if (size != also) return tn_fail(TN_BAD_VALUE, "%s: %zu tensors in %zu places", c->name, size, also);
    for (size_t k = 0; k < size; k++) {
        tni_torch_slot item, place;
        TN_TRY(item_of(list, k, &item));
        a->n_written++;
        tni_torch_handle tensor = a->frame.owned[a->frame.n_owned++] = (tni_torch_handle)item;
        TN_TRY(item_of(places, k, &place));
        uint64_t n_inputs = (uint64_t)c->n_inputs, n_outputs = (uint64_t)c->n_outputs;
        if (place >= n_inputs && place - n_inputs < n_outputs && !(a->frame.given >> (place - n_inputs) & 1)) {
            TN_TRY(tni_torch_give_output(&a->frame, (int32_t)(place - n_inputs), tensor));
        } else if (place < n_inputs && c->inputs[place].inplace && !a->inputs[place]) {
            a->inputs[place] = tensor;
        } else {
            return tn_fail(TN_BAD_VALUE, "%s: does not write to place %lld", c->name, (long long)place);
        }
    }
    return TN_OK;
}

static tn_status add_inputs(arguments *a) {
    const tni_contract *c = a->frame.op->contract;
    for (int32_t i = 0; i < c->n_inputs; i++) {
        TN_TRY(tni_torch_add_tensor(&a->frame, &c->inputs[i], a->inputs[i]));
    }
    return TN_OK;
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

/* `lists`: what is written and its places, or NULL. */
static tn_status read_call(arguments *a, const tni_torch_slot *slots, const tni_torch_slot *lists) {
    const char *formula, *attributes;
    const tn_function *op;
    if (tni_torch.torch_string_c_str((tni_torch_handle)slots[FORMULA], &formula) ||
        tni_torch.torch_string_c_str((tni_torch_handle)slots[ATTRIBUTES], &attributes)) {
        return torch_failed("read a string");
    }
    tn_fuse_options options = {.fast = (uint8_t)slots[FAST] != 0};
    TN_TRY(tn_fuse(formula, &options, &op));
    tni_torch_frame_init(&a->frame, op);
    a->ready = true;
    for (int32_t i = 0; i < op->contract->n_attrs; i++) a->frame.attrs[i] = (tn_attr){0}; /* by place, unset */
    for (int32_t i = 0; i < op->contract->n_inputs; i++) a->inputs[i] = NULL;
    /* For the inputs, and what is written: each place once, and perhaps one that is refused. */
    TN_TRY(tni_torch_frame_room(&a->frame, 2 * op->contract->n_inputs + op->contract->n_outputs + 1));
    TN_TRY(tni_attrs_parse(op->contract, attributes, a->frame.attrs, a->values, &a->n_values));
    TN_TRY(take_inputs(a, (tni_torch_handle)slots[INPUTS]));
    if (lists) TN_TRY(take_written(a, (tni_torch_handle)lists[0], (tni_torch_handle)lists[1]));
    return add_inputs(a);
}

/* A list does not own its items: those that a call which failed has not taken are freed with it. */
static void drop_list(tni_torch_handle list, size_t taken, bool boxed) {
    size_t size = 0;
    tni_torch_slot item;
    for (tni_torch.torch_list_size(list, &size); taken < size; taken++) {
        if (tni_torch.torch_list_get_item(list, taken, &item) || !item) continue;
        tni_torch.aoti_torch_delete_tensor_object((tni_torch_handle)(boxed ? *(tni_torch_slot *)item : item));
        if (boxed) tni_torch_delete_box((tni_torch_slot *)item);
    }
    tni_torch.torch_delete_list(list);
}

static tn_status call(arguments *a, const tni_torch_slot *slots, const tni_torch_slot *lists) {
    a->ready = false;
    a->n_boxes = a->n_values = 0;
    a->n_inputs = a->n_written = 0;
    tn_status status = read_call(a, slots, lists);
    if (status == TN_OK) status = tni_torch_call(&a->frame);
    for (int32_t i = 0; a->ready && i < a->frame.n_owned; i++) {
        tni_torch.aoti_torch_delete_tensor_object(a->frame.owned[i]);
    }
    for (int32_t i = 0; i < a->n_boxes; i++) tni_torch_delete_box(a->boxes[i]);
    for (int32_t i = 0; i < a->n_values; i++) tni_free(a->values[i]);
    if (a->ready) tni_torch_frame_free(&a->frame);
    tni_torch.torch_delete_string((tni_torch_handle)slots[FORMULA]);
    tni_torch.torch_delete_string((tni_torch_handle)slots[ATTRIBUTES]);
    drop_list((tni_torch_handle)slots[INPUTS], a->n_inputs, true);
    if (!lists) return status;
    drop_list((tni_torch_handle)lists[0], a->n_written, false);
    tni_torch.torch_delete_list((tni_torch_handle)lists[1]);
    return status;
}

/* Nothing is owned any more but outputs. */
static _Noreturn void fail(arguments *a, tn_status status) {
    if (a->ready) tni_torch_delete_outputs(&a->frame);
    if (a->ready) tn_fuse_release(a->frame.op);
    tni_torch_raise(status);
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
    tn_status status = call(&a, stack, NULL);
    if (status == TN_OK) status = push(&a.frame, stack);
    if (status != TN_OK) fail(&a, status);
    tn_fuse_release(a.frame.op);
}

static void run_inplace(tni_torch_slot *stack, uint64_t n_in, uint64_t n_out) {
    (void)n_in;
    (void)n_out;
    arguments a;
    const tni_torch_slot slots[] = {stack[0], stack[3], stack[4], stack[5]};
    tn_status status = call(&a, slots, &stack[1]);
    if (status != TN_OK) fail(&a, status);
    tni_torch_delete_outputs(&a.frame); /* those that nobody gave memory for */
    tn_fuse_release(a.frame.op);
}

tn_status tni_torch_register_fuse(void) {
    TN_TRY(tni_torch_define("fuse" PARAMETERS, "fuse", run));
    TN_TRY(tni_torch_define("fuse.raw" PARAMETERS, "fuse.raw", run));
    return tni_torch_define("fuse.inplace" INPLACE, "fuse.inplace", run_inplace);
}
