/* Dynamic parameters on the CPU: set from one thread, used by another. */
#include <pthread.h>

#include <tenon/fuse.h>
#include <tenon/param.h>

#include "core/host/memory.h"
#include "tests/test.h"

static tn_status scaled(const tn_tensor *scale, double x, double *y) {
    const tn_function *op;
    TN_TRY(tn_fuse("f(x: f64[], s: T[]) -> y: f64[] : x * s", NULL, &op));
    tn_tensor in = tn_dense(&x, TN_F64, 0, NULL), out = tn_dense(y, TN_F64, 0, NULL);
    return tn_run(
        op, &(tn_args){.in = (const tn_tensor *[]){&in, scale}, .n_in = 2, .out = (tn_tensor *[]){&out}, .n_out = 1},
        NULL);
}

static void test_types(void) {
    static const tn_type types[] = {TN_F16, TN_BF16, TN_F32, TN_F64};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        tn_param *param;
        double y = 0;
        CHECK(tn_param_make(types[i], (tn_device){TN_CPU, 0}, 0.5, &param) == TN_OK);
        CHECK_ROW(scaled(tn_param_tensor(param), 6, &y) == TN_OK && y == 3, "%s: %g, %s", tn_type_name(types[i]), y,
                  tn_last_error());
        CHECK(tn_param_set(param, -2, NULL) == TN_OK && scaled(tn_param_tensor(param), 6, &y) == TN_OK && y == -12);
        tn_param_free(param);
    }
}

static void test_refused(void) {
    tn_param *param = (tn_param *)&param;
    CHECK(tn_param_make(TN_NO_TYPE, (tn_device){TN_CPU, 0}, 0, &param) == TN_BAD_TYPE && !param);
    CHECK(tn_param_make(TN_C64, (tn_device){TN_CPU, 0}, 0, &param) == TN_BAD_TYPE);
    CHECK(tn_param_make(TN_F32, (tn_device){99, 0}, 0, &param) == TN_BAD_DEVICE);
    CHECK(tn_param_make(TN_F32, (tn_device){TN_CUDA, 77}, 0, &param) != TN_OK && !param);
    CHECK(tn_param_make(TN_F32, (tn_device){TN_CPU, 0}, 0, NULL) == TN_BAD_VALUE);
    CHECK(tn_param_set(NULL, 1, NULL) == TN_BAD_VALUE);
    CHECK(tn_param_tensor(NULL) == NULL);
    tn_param_free(NULL);
    tni_fail_allocation(1);
    CHECK(tn_param_make(TN_F32, (tn_device){TN_CPU, 0}, 0, &param) == TN_NO_MEMORY && !param);
    tni_fail_allocation(0);
}

typedef struct exchange {
    tn_param *param;
    pthread_barrier_t set, used;
} exchange;

enum { ROUNDS = 1000 };

static void *set_it(void *arg) {
    exchange *e = arg;
    for (int i = 0; i < ROUNDS; i++) {
        tn_param_set(e->param, i, NULL);
        pthread_barrier_wait(&e->set);
        pthread_barrier_wait(&e->used);
    }
    return NULL;
}

/* A second thread sets it, this one uses it: every value arrives. */
static void test_threads(void) {
    exchange e;
    pthread_t thread;
    int right = 0;
    CHECK(tn_param_make(TN_F32, (tn_device){TN_CPU, 0}, -1, &e.param) == TN_OK);
    pthread_barrier_init(&e.set, NULL, 2);
    pthread_barrier_init(&e.used, NULL, 2);
    pthread_create(&thread, NULL, set_it, &e);
    for (int i = 0; i < ROUNDS; i++) {
        double y = -1;
        pthread_barrier_wait(&e.set);
        right += scaled(tn_param_tensor(e.param), 2, &y) == TN_OK && y == 2 * i;
        pthread_barrier_wait(&e.used);
    }
    pthread_join(thread, NULL);
    CHECK_ROW(right == ROUNDS, "%d of %d", right, ROUNDS);
    tn_param_free(e.param);
}

int main(void) {
    test_types();
    test_refused();
    test_threads();
    return test_end();
}
