/* libFuzzer target for formulas. The input is a formula, then (behind a zero byte) numbers that make a call of it.
 * Whatever parses must print back as itself, have a gradient that parses or a reason why not, and run to a status.
 * tests/fuzz/run.sh runs it. */
#include "tests/fuzz/fuzz_driver.h"

#include "cpu/cpu_device.h"
#include "cuda/driver/cuda.h"
#include "fuse/operator.h"
#include "tests/fuse/run_formula.h"

const tni_image tni_images[] = {{0}};

static __attribute__((constructor)) void wire(void) {
    tni_device_register(&tni_cpu_device);
    tni_set_backends(tni_formula_backends);
}

static void check_prints_back(const tni_fuse *f) {
    tni_fuse *again = NULL;
    char *printed = tni_fuse_print(f), *second;
    must(printed && tni_fuse_parse(printed, NULL, &again) == TN_OK);
    second = tni_fuse_print(again);
    must(second && strcmp(printed, second) == 0);
    tn_free(printed);
    tn_free(second);
    tni_fuse_free(again);
}

enum { MOST = 4096 }; /* elements of a tensor */

static bool take_tensor(source *from, tn_type type, tn_tensor *tensor, int64_t *shape) {
    int32_t ndim = take(from) % 5;
    int64_t n = 1;
    for (int d = 0; d < ndim; d++) n *= shape[d] = take(from) % 7;
    if (type == TN_I64 && take(from) % 2) {
        ndim = 1;
        n = shape[0] = 2;
    }
    if (n > MOST) return false;
    void *data = calloc((size_t)n + 1, 16);
    for (int64_t i = 0; i < n && type != TN_C64 && type != TN_C128; i++) tn_set(type, data, i, take(from) / 16.0 - 8);
    *tensor = tn_dense(data, type, ndim, shape);
    return true;
}

static void run(const tni_fuse *f, source *from) {
    static const tn_type types[] = {TN_F32, TN_F64, TN_BF16, TN_F16, TN_I64, TN_BOOL, TN_I8, TN_C64};
    const tni_contract *c = f->contract;
    static tn_tensor tensors[2 * TNI_MAX_ARGS];
    static int64_t shapes[2 * TNI_MAX_ARGS][TN_MAX_RANK];
    static const tn_tensor *in[TNI_MAX_ARGS];
    static tn_tensor *out[TNI_MAX_ARGS];
    static tn_spec specs[TNI_MAX_ARGS];
    tn_type type = types[take(from) % 4];
    memset(tensors, 0, sizeof tensors);
    memset(out, 0, sizeof out);
    for (int i = 0; i < c->n_inputs; i++) {
        uint8_t byte = take(from);
        bool made = byte % 16 != 15 &&
                    take_tensor(from, byte % 8 == 7 ? types[byte / 16 % 8] : type, &tensors[i], shapes[i]);
        in[i] = made ? &tensors[i] : NULL;
    }
    tn_args args = {.in = in, .n_in = c->n_inputs, .out = out, .n_out = c->n_outputs};
    if (run_infer(f, &args, specs) == TN_OK) {
        bool fits = true;
        for (int i = 0; i < c->n_outputs && fits; i++) {
            int64_t n = 1;
            tn_tensor *t = &tensors[TNI_MAX_ARGS + i];
            if (!specs[i].present || specs[i].ndim < 0) continue;
            memcpy(shapes[TNI_MAX_ARGS + i], specs[i].shape, sizeof specs[i].shape);
            for (int d = 0; d < specs[i].ndim && n <= 1 << 20; d++) n *= specs[i].shape[d];
            fits = n <= 1 << 20;
            if (fits) *t = tn_dense(calloc((size_t)n + 1, 16), specs[i].type, specs[i].ndim, shapes[TNI_MAX_ARGS + i]);
            out[i] = fits ? t : NULL;
        }
        if (fits) (void)run_formula(f, &args, NULL);
    }
    for (int i = 0; i < 2 * TNI_MAX_ARGS; i++) free(tensors[i].data);
}

static void fuzz_text(const char *text, source *from) {
    tni_fuse *f, *g;
    char *rule;
    tni_fuse_options options = {.fast = take(from) % 4 == 3};
    if (tni_fuse_parse(text, &options, &f) != TN_OK) {
        must(tn_last_error()[0] != 0);
        return;
    }
    if (!options.fast) check_prints_back(f);
    tn_status status = tni_fuse_grad(f, &g, &rule);
    must(status == TN_OK || status == TN_UNSUPPORTED || status == TN_BAD_CONTRACT);
    run(f, from);
    if (status == TN_OK) {
        run(g, from);
        tn_free(rule);
    }
    tni_fuse_free(g);
    tni_fuse_free(f);
}
