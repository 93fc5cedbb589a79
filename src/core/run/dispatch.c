/* Running a call: the plan's views get their data, tensors that the kernel cannot take as they are get a dense copy,
 * workspace is borrowed, the kernel runs, and what was written into copies goes back. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/host/status.h"
#include "core/host/threads.h"
#include "core/layout/layout.h"
#include "plan.h"
#include "run.h"
#include "watch.h"

enum { ON_STACK = 24 }; /* tensors of a call before memory is asked for */

/* A call under way. */
typedef struct running {
    const tni_plan *plan;
    const tn_host *host;
    tn_view *views;         /* (n_slots) what the kernel sees */
    tn_view *own;           /* (n_slots) the caller's tensors, laid out by the plan */
    tn_block *copies;       /* (n_slots) dense stand-ins; data is NULL where there is none */
    struct extent *extents; /* (n_slots) room to sort them by; NULL: there are few tensors */
    tn_slot *in, *out;
    tn_call call;
} running;

static const char *param_name(const tni_plan *plan, const tni_slot *slot) {
    const tni_contract *c = plan->op->contract;
    return slot->is_output ? c->outputs[slot->param].name : c->inputs[slot->param].name;
}

/* ---- pointers ---------------------------------------------------------------------------------------------------- */

static tn_status set_data(running *r, int32_t slot_index, const tn_tensor *t) {
    const tni_slot *slot = &r->plan->slots[slot_index];
    const char *name = r->plan->op->contract->name;
    bool empty = slot->low == slot->high;
    if (!t->data && !empty) {
        return tn_fail(TN_BAD_VALUE, "%s: %s has no data (NULL)", name, param_name(r->plan, slot));
    }
    char *data = t->data ? (char *)t->data + t->byte_offset : NULL;
    size_t size = tn_type_size(slot->view.type);
    size_t align = size > 8 ? 8 : size; /* complex numbers are pairs */
    if ((uintptr_t)data & (align - 1)) {
        return tn_fail(TN_BAD_VALUE, "%s: the address of %s is not a multiple of its %zu-byte elements", name,
                       param_name(r->plan, slot), size);
    }
    r->own[slot_index] = slot->view;
    r->own[slot_index].data = data;
    r->views[slot_index] = r->plan->views[slot_index];
    r->views[slot_index].data = slot->dense ? NULL : data;
    return TN_OK;
}

static tn_status set_inputs(running *r, const tn_args *args) {
    int32_t at = 0;
    for (int32_t i = 0; i < args->n_in; i++) {
        if (args->in[i]) TN_TRY(set_data(r, at++, args->in[i]));
    }
    return TN_OK;
}

static tn_status set_outputs(running *r, const tn_args *args, tni_make_output make, void *context) {
    const tni_plan *plan = r->plan;
    for (int32_t i = 0; i < plan->n_slots; i++) {
        const tni_slot *slot = &plan->slots[i];
        if (!slot->is_output) continue;
        if (slot->dropped) {
            r->own[i] = slot->view;
            r->views[i] = plan->views[i];
            continue;
        }
        tn_tensor *t = make ? NULL : args->out[slot->param];
        if (make) TN_TRY(make(context, slot->param, &plan->specs[slot->param], plan->strides[slot->param], &t));
        TN_TRY(set_data(r, i, t));
    }
    return TN_OK;
}

/* ---- memory that tensors share ----------------------------------------------------------------------------------- */

static bool overlap(const running *r, int32_t i, int32_t j) {
    const tni_slot *a = &r->plan->slots[i], *b = &r->plan->slots[j];
    const char *p = r->own[i].data, *q = r->own[j].data;
    return a->low < a->high && b->low < b->high && p + a->low < q + b->high && q + b->low < p + a->high;
}

/* The same elements at the same places. */
static bool identical(const running *r, int32_t i, int32_t j) {
    const tn_view *a = &r->own[i], *b = &r->own[j];
    if (a->data != b->data || a->type != b->type || a->ndim != b->ndim) return false;
    for (int32_t d = 0; d < a->ndim; d++) {
        if (a->shape[d] != b->shape[d] || (a->shape[d] > 1 && a->strides[d] != b->strides[d])) return false;
    }
    return true;
}

/* The memory of a tensor. */
typedef struct extent {
    const char *low, *high;
} extent;

static int by_place(const void *a, const void *b) {
    const extent *x = a, *y = b;
    return (x->low > y->low) - (x->low < y->low);
}

/* Does any tensor share memory with any other? Of hundreds in lists, hardly one ever does. */
static bool any_shared(const running *r) {
    const tni_plan *plan = r->plan;
    size_t n = 0;
    for (int32_t i = 0; i < plan->n_slots; i++) {
        const tni_slot *slot = &plan->slots[i];
        const char *data = r->own[i].data;
        if (!slot->dropped && slot->low < slot->high) r->extents[n++] = (extent){data + slot->low, data + slot->high};
    }
    qsort(r->extents, n, sizeof *r->extents, by_place);
    for (size_t i = 1; i < n; i++) {
        if (r->extents[i].low < r->extents[i - 1].high) return true;
    }
    return false;
}

static tn_status fail_both_written(const tni_plan *plan, int32_t i, int32_t j) {
    char place[2][16] = {"", ""}; /* in lists */
    const int32_t at[] = {i, j};
    for (int k = 0; k < 2; k++) {
        const tni_slot *slot = &plan->slots[at[k]];
        if (slot->is_output || !plan->op->contract->inputs[slot->param].list) continue;
        int32_t first = at[k];
        while (first > 0 && plan->slots[first - 1].param == slot->param) first--;
        (void)snprintf(place[k], sizeof place[k], "[%d]", at[k] - first);
    }
    return tn_fail(TN_BAD_VALUE, "%s: %s%s and %s%s are both written, but share memory", plan->op->contract->name,
                   param_name(plan, &plan->slots[i]), place[0], param_name(plan, &plan->slots[j]), place[1]);
}

/* An output in the memory of an input goes through a copy, unless they are the same tensor and the kernel allows that;
 * two tensors that are both written may not share memory at all. needs_copy: (n_slots). */
static tn_status check_aliases(const running *r, bool *needs_copy, bool *any) {
    const tni_plan *plan = r->plan;
    if (r->extents && !any_shared(r)) return TN_OK;
    for (int32_t i = 0; i < plan->n_slots; i++) {
        if (!plan->slots[i].written || plan->slots[i].dropped) continue;
        for (int32_t j = 0; j < plan->n_slots; j++) {
            const tni_slot *other = &plan->slots[j];
            if (j == i || other->dropped || !overlap(r, i, j)) continue;
            if (other->written) return fail_both_written(plan, i, j);
            if (plan->slots[i].dense || other->dense) continue; /* one of the two is a copy already */
            if ((plan->kernel->flags & TN_ALIAS) && identical(r, i, j)) continue;
            needs_copy[i] = true;
            *any = true;
        }
    }
    return TN_OK;
}

/* ---- copies ------------------------------------------------------------------------------------------------------ */

/* A dense copy; or, for an output that lies in an input's memory and a kernel that takes strides, one with the same
 * strides: the kernel has accepted just those. */
static size_t copy_bytes(const tni_slot *slot) {
    size_t dense = (size_t)tn_count(&slot->view) * tn_type_size(slot->view.type);
    size_t bytes = slot->dense ? dense : (size_t)(slot->high - slot->low);
    return bytes ? bytes : 1;
}

static tn_status make_copy(running *r, int32_t i) {
    const tni_slot *slot = &r->plan->slots[i];
    const size_t bytes = copy_bytes(slot);
    tn_block block = r->host->alloc(r->host->context, r->plan->device, bytes);
    if (!block.data) {
        return tn_fail(TN_NO_MEMORY, "%s: no memory for a copy of %s (%zu bytes)", r->plan->op->contract->name,
                       param_name(r->plan, slot), bytes);
    }
    r->copies[i] = block;
    r->views[i].data = (char *)block.data - (slot->dense ? 0 : slot->low);
    return slot->is_output ? TN_OK : r->plan->ops->copy(&r->call, &r->views[i], &r->own[i]);
}

static tn_status release_copies(running *r, bool back) {
    tn_status status = TN_OK;
    for (int32_t i = 0; i < r->plan->n_slots; i++) {
        const tni_slot *slot = &r->plan->slots[i];
        if (!r->copies[i].data) continue;
        if (back && status == TN_OK && slot->written && !slot->dropped) {
            status = r->plan->ops->copy(&r->call, &r->own[i], &r->views[i]);
        }
        r->host->release(r->host->context, r->plan->device, r->copies[i]);
    }
    return status;
}

/* ---- the run ----------------------------------------------------------------------------------------------------- */

static tn_status enter_and_run(running *r) {
    const tni_plan *plan = r->plan;
    void *entered;
    TN_TRY(plan->ops->enter(plan->op->contract->name, plan->device, &entered));
    const tn_status status = plan->kernel->run(&r->call, plan->state);
    plan->ops->leave(entered);
    return status;
}

static tn_status run_kernel(running *r) {
    const tni_plan *plan = r->plan;
    tn_block workspace = {0};
    if (plan->workspace) {
        workspace = r->host->alloc(r->host->context, plan->device, plan->workspace);
        if (!workspace.data && !(plan->kernel->flags & TN_SPARE_WORKSPACE)) {
            return tn_fail(TN_NO_MEMORY, "%s: no memory for the workspace of kernel '%s' (%zu bytes)",
                           plan->op->contract->name, plan->kernel->name, plan->workspace);
        }
    }
    r->call.workspace = workspace.data;
    tni_expect_error();
    tn_status status = plan->enters ? enter_and_run(r) : plan->kernel->run(&r->call, plan->state);
    if (status != TN_OK && !tni_error_is_said()) {
        tn_fail(status, "%s: kernel '%s' failed and did not say why: %s", plan->op->contract->name, plan->kernel->name,
                tn_status_text(status));
    }
    if (workspace.data) r->host->release(r->host->context, plan->device, workspace);
    return status;
}

static tn_status run_with_copies(running *r, const bool *needs_copy) {
    tn_status status = TN_OK;
    for (int32_t i = 0; status == TN_OK && i < r->plan->n_slots; i++) {
        if (r->plan->slots[i].dense || needs_copy[i]) status = make_copy(r, i);
    }
    if (status == TN_OK) status = run_kernel(r);
    const tn_status back = release_copies(r, status == TN_OK);
    return status == TN_OK ? back : status;
}

/* Kept out of the way of calls that nobody watches. */
static __attribute__((noinline, cold)) tn_status run_watched(running *r, const bool *needs_copy, bool copies) {
    tni_watch w = {.plan = r->plan, .host = r->host, .copied = needs_copy};
    TN_TRY(tni_watch_begin(&w));
    return tni_watch_end(&w, copies ? run_with_copies(r, needs_copy) : run_kernel(r));
}

static void point(tn_slot *args, const tn_slot *plan_args, int32_t n, const tn_view *from, tn_view *to) {
    for (int32_t i = 0; i < n; i++) args[i] = (tn_slot){to + (plan_args[i].views - from), plan_args[i].count};
}

static tn_status run_planned(running *r, const tn_args *args, bool *needs_copy, tni_make_output make, void *context) {
    const tni_plan *plan = r->plan;
    const tni_contract *c = plan->op->contract;
    TN_TRY(set_inputs(r, args));
    TN_TRY(set_outputs(r, args, make, context));
    point(r->in, plan->in, c->n_inputs, plan->views, r->views);
    point(r->out, plan->out, c->n_outputs, plan->views, r->views);
    r->call = tni_plan_call(plan);
    r->call.in = r->in;
    r->call.out = r->out;
    r->call.host = r->host;
    bool copies = !plan->simple;
    TN_TRY(check_aliases(r, needs_copy, &copies));
    if (plan->idle) return TN_OK;
    if (tni_watching()) return run_watched(r, needs_copy, copies);
    return copies ? run_with_copies(r, needs_copy) : run_kernel(r);
}

/* Arrays for the call: on the stack where they are small. */
static tn_status run_plan(const tni_plan *plan, const tn_args *args, const tn_host *host, tni_make_output make,
                          void *context) {
    tn_view views[2 * ON_STACK];
    tn_block copies[ON_STACK];
    bool needs_copy[ON_STACK];
    tn_slot in[TNI_MAX_ARGS], out[TNI_MAX_ARGS];
    running r = {.plan = plan, .host = host, .in = in, .out = out, .views = views, .copies = copies};
    bool *needs = needs_copy;
    size_t n = (size_t)plan->n_slots;
    void *memory = NULL;
    if (n > ON_STACK) {
        memory = tni_malloc(n * (2 * sizeof *views + sizeof *copies + sizeof *r.extents + sizeof *needs));
        if (!memory) return TN_NO_MEMORY;
        r.views = memory;
        r.copies = (tn_block *)(r.views + 2 * n);
        r.extents = (extent *)(r.copies + n);
        needs = (bool *)(r.extents + n);
    }
    r.own = r.views + n;
    memset(r.copies, 0, n * sizeof *r.copies);
    memset(needs, 0, n * sizeof *needs);
    tn_status status = run_planned(&r, args, needs, make, context);
    tni_free(memory);
    return status;
}

static tn_status plan_and_run(const tn_function *op, const tn_args *args, const tn_host *host, tni_make_output make,
                              void *context) {
    tni_plan *plan;
    tn_host room;
    TN_TRY(tni_host_fill(op->contract->name, host, &room, &host));
    tn_status status = tni_plan_get(op, args, make != NULL, &plan);
    if (status != TN_OK) {
        tni_watch_error(op->contract->name, "refused");
        return status;
    }
    status = plan->ops->usable ? plan->ops->usable(plan->op->contract->name) : TN_OK;
    if (status == TN_OK) status = run_plan(plan, args, host, make, context);
    tni_plan_release(plan);
    return status;
}

/* A call that writes nothing is a mistake: an output that was forgotten. */
static tn_status check_wanted(const tni_contract *c, const tn_args *args) {
    for (int32_t o = 0; o < args->n_out && args->out; o++) {
        if (args->out[o]) return TN_OK;
    }
    for (int32_t i = 0; i < c->n_inputs; i++) {
        if (c->inputs[i].inplace) return TN_OK;
    }
    return c->n_outputs == 0 ? TN_OK
                             : tn_fail(TN_BAD_VALUE, "%s: no output is wanted: %s%s NULL", c->name, c->outputs[0].name,
                                       c->n_outputs == 1 ? " is" : " and all others are");
}

tn_status tni_run(const tn_function *op, const tn_args *args, const tn_host *host) {
    TN_TRY(check_wanted(op->contract, args));
    return plan_and_run(op, args, host, NULL, NULL);
}

tn_status tn_run(const tn_function *op, const tn_args *args, const tn_host *host) {
    TN_TRY(tni_check_call("tn_run", op, args));
    return tni_run(op, args, host);
}

tn_status tni_call_alloc(const tn_function *op, const tn_args *args, const tn_host *host, tni_make_output make,
                         void *context) {
    return plan_and_run(op, args, host, make, context);
}

tn_status tn_prepare(const tn_function *op, const tn_args *args, const tn_host *host) {
    (void)host; /* nothing is allocated or run */
    TN_TRY(tni_check_call("tn_prepare", op, args));
    tni_plan *plan;
    TN_TRY(tni_plan_get(op, args, false, &plan));
    tni_plan_release(plan);
    return TN_OK;
}

static size_t with_alignment(size_t bytes) {
    return bytes ? bytes + TNI_ALIGNMENT - 1 : 0;
}

tn_status tn_workspace(const tn_function *op, const tn_args *args, size_t *bytes) {
    TN_TRY(tni_check_call("tn_workspace", op, args));
    if (!bytes) return tn_fail(TN_BAD_VALUE, "tn_workspace: the place for the number of bytes is NULL");
    tni_plan *plan;
    TN_TRY(tni_plan_get(op, args, false, &plan));
    *bytes = plan->idle ? 0 : with_alignment(plan->workspace);
    for (int32_t i = 0; i < plan->n_slots && !plan->idle; i++) {
        if (plan->slots[i].dense) *bytes += with_alignment(copy_bytes(&plan->slots[i]));
    }
    tni_plan_release(plan);
    return TN_OK;
}

/* ---- explaining -------------------------------------------------------------------------------------------------- */

/* Each element that is really there moves once: dimensions of stride 0 are not. */
static double moved_bytes(const tni_plan *plan) {
    double bytes = 0;
    for (int32_t i = 0; i < plan->n_slots; i++) {
        const tni_slot *slot = &plan->slots[i];
        double n = (double)tn_type_size(slot->view.type);
        for (int32_t d = 0; d < slot->view.ndim; d++) {
            if (slot->view.strides[d] != 0 || slot->view.shape[d] == 0) n *= (double)slot->view.shape[d];
        }
        bool both_ways = slot->written && !slot->is_output;
        bytes += slot->dropped ? 0 : both_ways ? 2 * n : n;
    }
    return bytes;
}

tn_status tn_explain(const tn_function *op, const tn_args *args, const char **kernel, tn_cost *cost) {
    TN_TRY(tni_check_call("tn_explain", op, args));
    tni_plan *plan;
    TN_TRY(tni_plan_get(op, args, false, &plan));
    tn_call call = tni_plan_call(plan);
    if (kernel) *kernel = plan->kernel->name;
    if (cost) *cost = op->row->cost ? op->row->cost(&call) : (tn_cost){0};
    if (cost && cost->bytes == 0) cost->bytes = moved_bytes(plan);
    tni_plan_release(plan);
    return TN_OK;
}
