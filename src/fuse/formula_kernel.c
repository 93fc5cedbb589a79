/* Kernels of an operator that are formulas. */
#include "formula_kernel.h"

#include <pthread.h>

#include "core/host/text.h"
#include "core/table/table.h"
#include "cuda/driver/nvrtc.h"
#include "fuse.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static tni_formula_kernel *newest; /* of those that were parsed */

/* Two threads may be here with the first calls: one of them has parsed in vain. */
static const tni_fuse *keep(tni_formula_kernel *kernel, tni_fuse *made) {
    tni_fuse *before = NULL;
    pthread_mutex_lock(&lock);
    if (atomic_compare_exchange_strong(&kernel->parsed, &before, made)) {
        kernel->older = newest;
        newest = kernel;
    }
    pthread_mutex_unlock(&lock);
    if (!before) return made;
    tni_fuse_free(made);
    return before;
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
    pthread_mutex_lock(&lock);
    for (tni_formula_kernel *next; newest; newest = next) {
        next = newest->older;
        newest->older = NULL;
        tni_fuse_free(atomic_exchange(&newest->parsed, NULL));
    }
    pthread_mutex_unlock(&lock);
}

bool tni_formula_kernel_accepts(const tn_call *call) {
    const tni_formula_kernel *own = call->kernel->data;
    if (own->accepts && !own->accepts(call)) return false;
    return call->device.kind != TN_CUDA || tni_nvrtc_version(call->name) > 0;
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
