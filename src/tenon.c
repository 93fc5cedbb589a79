/* Wires the library: what each layer needs from those above it is handed in here, before anything can be called. */
#include "ops/list.h"

#include <string.h>

#include "core/host/threads.h"
#include "core/run/plan.h"
#include "core/table/activation_names.h"
#include "cpu/cpu_device.h"
#include "cuda/cuda_device.h"
#include "fuse/cache/cache.h"
#include "fuse/operator.h"
#include "text/source.h"

#define DECLARE(name) extern const tn_op tni_ops_##name[];
TNI_FAMILIES(DECLARE)

#define FAMILY(name) tni_ops_##name,
static const tn_op *const families[] = {TNI_FAMILIES(FAMILY) NULL};

/* Files that were tried (core/table/trial.h) are remembered beside the formulas that were compiled. */
static tni_cache_key tried_key(const char *file) {
    return tni_cache_key_of("plugin", file);
}

static bool was_tried(const char *file) {
    const tni_cache_key key = tried_key(file);
    tni_cached found = {0};
    tni_cache_get(&key, &found);
    const bool known = found.data != NULL;
    tni_free(found.data);
    return known;
}

static void remember_tried(const char *file) {
    const tni_cache_key key = tried_key(file);
    tni_cache_entry entry;
    tni_cached found = {0};
    tni_cache_open(&key, &entry, &found);
    if (!found.data) tni_cache_put(&entry, "opens", strlen("opens"));
    tni_cache_close(&entry);
    tni_free(found.data);
}

static const tni_tried tried = {was_tried, remember_tried};

/* Runs when the library is loaded or, where it is linked in, before main and before other constructors, which may call
 * operators already. It only stores pointers. */
static __attribute__((constructor(101))) void wire(void) {
    tni_device_register(&tni_cpu_device);
    tni_device_register(&tni_cuda_device);
    tni_set_activations(&tni_table_activations);
    tni_set_formulas(&tni_fused_rows);
    tni_set_backends(tni_formula_backends);
    tni_set_kernel_texts(&tni_text_kernels);
    tni_set_builtin(families);
    tni_set_tried(&tried);
}

/* From above down: what calls use goes before what it is made of. */
void tn_shutdown(void) {
    const tni_device_ops *device;
    tni_threads_end();
    tni_table_clear(tni_plans_free);
    tni_texts_close();
    tni_sources_close();
    tni_cpu_sources_close();
    tni_cuda_sources_close();
    for (const tni_backend *const *backend = tni_formula_backends; *backend; backend++) {
        if ((*backend)->close) (*backend)->close();
    }
    tni_plugins_close();
    for (int32_t at = 0; (device = tni_device_next(&at));) {
        if (device->close) device->close();
    }
}
