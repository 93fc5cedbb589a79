/* A plan is all that can be said of a call before its data is known: the call checked, outputs inferred, kernel chosen,
 * state prepared, workspace counted. Calls that look the same share it, so a repeated call pays for one look-up. */
#ifndef TNI_PLAN_H
#define TNI_PLAN_H

#include "core/host/device.h"
#include "core/host/memory.h"
#include "core/table/table.h"

/* One tensor of a plan. */
typedef struct tni_slot {
    tn_view view;         /* as the caller's tensor is laid out, broadcasts expanded; data is NULL */
    const int64_t *dense; /* strides of the dense copy that the kernel gets instead; NULL: the tensor itself */
    int64_t low, high;    /* bytes from the first element that it reaches: low … high - 1; equal: nothing */
    int32_t param;        /* input or output of the contract */
    bool is_output;
    bool written; /* an output, or an input updated in place */
    bool dropped; /* an output that the kernel writes and nobody wants */
} tni_slot;

typedef struct tni_plan {
    const tn_function *op;
    const tn_kernel *kernel;
    void *state; /* what prepare made */
    size_t workspace;
    int32_t n_slots, n_given; /* inputs first; n_given: how many come from args->in */
    tni_slot *slots;
    tn_slot *in, *out;               /* views of the call, data NULL, as the kernel sees them: dense where it asked */
    tn_view *views;                  /* (n_slots) what `in` and `out` point to */
    tn_value *attrs;                 /* normalised */
    tn_spec *specs;                  /* (n_outputs) */
    int64_t (*strides)[TN_MAX_RANK]; /* (n_outputs) of outputs that are made on the way */
    tn_device device;
    const tni_device_ops *ops; /* of the device */
    bool enters;               /* the kernel is called between ops->enter and ops->leave */
    bool idle;                 /* what it writes has no elements */
    bool simple;               /* no slot is dense or dropped, and nothing can go wrong but the pointers */
    const char *why;           /* TENON_LOG: which kernels were passed over, and for what; NULL: none */
    _Atomic bool why_said;

    /* of the cache */
    struct tni_plan *next;
    _Atomic int refs;
    uint64_t hash;
    size_t n_key;
    const uint64_t *key;
    tni_arena *arena; /* owns all of this */
} tni_plan;

/* The plan for this call, made if it is new; give it back with tni_plan_release. With `made` outputs are inferred and
 * args->out is not looked at. */
tn_status tni_plan_get(const tn_function *op, const tn_args *args, bool made, tni_plan **plan);
void tni_plan_release(tni_plan *plan);
void tni_plans_free(tn_function *op); /* all of an operator that no call uses */

/* Checks the call and fills a new plan's arena, not cached (plan_make.c). */
tn_status tni_plan_make(const tn_function *op, const tn_args *args, bool made, tni_plan **plan);
void tni_plan_free(tni_plan *plan);

/* A call for functions that see no data: accepts, workspace, prepare, cost. */
tn_call tni_plan_call(const tni_plan *plan);

#endif
