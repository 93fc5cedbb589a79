/* Kernels of an operator that are formulas. */
#include "formula_kernel.h"

#include "core/host/text.h"
#include "core/table/table.h"
#include "cuda/driver/nvrtc.h"
#include "fuse.h"

static _Atomic(tni_formula_kernel *) newest; /* of those that were parsed */

/* Two threads may be here with the first calls: one of them has parsed in vain. Without a lock, which a process that is
 * forked meanwhile would inherit. */
static const tni_fuse *keep(tni_formula_kernel *kernel, tni_fuse *made) {
    tni_fuse *before = NULL;
    if (!atomic_compare_exchange_strong(&kernel->parsed, &before, made)) {
        tni_fuse_free(made);
        return before;
    }
    kernel->older = atomic_load(&newest);
    while (!atomic_compare_exchange_weak(&newest, &kernel->older, kernel)) continue;
    return made;
}

tn_status tni_formula_kernel_parsed(const tn_kernel *kernel, const char *op, const tni_fuse **parsed) {
    tni_formula_kernel *own = (tni_formula_kernel *)kernel->data;
    const tn_function *function;
    tni_text text = {0};
    tni_fuse *made = NULL;
    *parsed = atomic_load_explicit(&own->parsed, memory_order_acquire);
    if (*parsed) return TN_OK;
    function = tn_find(op);
    if (!function) return tn_fail(TN_UNSUPPORTED, "%s: is not in the table, so its formula has no signature", op);
    tni_text_add(&text, "%s : %s", function->row->signature, own->statements);
    const tn_status status = text.failed ? TN_NO_MEMORY : tni_fuse_parse(text.data, NULL, &made);
    tni_free(text.data);
    if (status == TN_OK) *parsed = keep(own, made);
    return status;
}

void tni_formula_kernels_forget(void) {
    for (tni_formula_kernel *k = atomic_exchange(&newest, NULL), *older; k; k = older) {
        older = k->older;
        tni_fuse_free(atomic_exchange(&k->parsed, NULL));
    }
}

bool tni_formula_kernel_accepts(const tn_call *call) {
    const tni_formula_kernel *own = call->kernel->data;
    if (own->accepts && !own->accepts(call)) return false;
    return call->device.kind != TN_CUDA || tni_nvrtc_version(call->name) > 0;
}

bool tni_formula_rows_accepts(const tn_call *call) {
    const tni_formula_kernel *own = call->kernel->data;
    return own->wins(call) && tni_formula_kernel_accepts(call);
}

bool tni_formula_wins(const tn_view *x, const tni_lengths_by_hand *hand) {
    const size_t size = tn_type_size(x->type);
    if (x->ndim == 0 || (size != 2 && size != 4)) return false;
    const int64_t n = x->shape[x->ndim - 1];
    const tni_lengths by_hand = (n * (int64_t)size % 16 == 0 ? hand->whole : hand->odd)[size == 4];
    return n < by_hand.from || n >= by_hand.below;
}

tn_status tni_formula_kernel_prepare(const tn_call *call, void **state) {
    const tni_fuse *parsed;
    tni_program *program;
    TN_TRY(tni_formula_kernel_parsed(call->kernel, call->name, &parsed));
    TN_TRY(tni_fuse_bind(parsed, call, &program));
    *state = program;
    return TN_OK;
}

size_t tni_formula_kernel_workspace(const tn_call *call) {
    return ((const tni_program *)call->state)->workspace;
}

tn_status tni_formula_kernel_run(const tn_call *call, void *state) {
    return tni_program_run(state, call);
}

void tni_formula_kernel_release(void *state) {
    tni_program_free(state);
}
