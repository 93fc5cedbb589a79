/* A further device, in this file alone: a struct of functions, one call that registers it, a kernel for it. Its memory
 * is the program's behind addresses that nobody can use, so whoever goes past the struct crashes. */
#include <stdlib.h>

#include <tenon/param.h>

#include "core/host/device.h"
#include "core/host/memory.h"
#include "core/table/table.h"
#include "tests/test.h"

enum { TOY = 12 /* DLPack's number for what it does not know */, TOYS = 2 };

/* ---- the device -------------------------------------------------------------------------------------------------- */

static const uintptr_t AWAY = (uintptr_t)1 << 60; /* from an address of the program to the toy's */
static int blocks, copies, trims, waits;
static void *last_stream;
static bool is_broken;

static void *far(const void *here) {
    return (void *)((uintptr_t)here + AWAY);
}

static void *near(const void *there) {
    return (void *)((uintptr_t)there - AWAY);
}

static tn_status toy_usable(const char *wanted) {
    return is_broken ? tn_fail(TN_SYSTEM, "%s: the toy is broken", wanted) : TN_OK;
}

static tn_status toy_alloc(const char *wanted, tn_device device, size_t bytes, void *stream, tn_block *block) {
    if (device.index < 0 || device.index >= TOYS) {
        return tn_fail(TN_BAD_DEVICE, "%s: there is no toy:%d", wanted, device.index);
    }
    void *data = tni_malloc_aligned(bytes);
    if (!data) return TN_NO_MEMORY;
    *block = (tn_block){far(data), NULL};
    last_stream = stream;
    blocks++;
    return TN_OK;
}

static void toy_free(tn_device device, tn_block block, void *stream) {
    (void)device;
    last_stream = stream;
    tni_free(near(block.data));
    blocks--;
}

static void toy_trim(void) {
    trims++;
}

static void copy_from(tn_view to, tn_view from, int32_t d) {
    const size_t size = tn_type_size(to.type);
    if (d == to.ndim) {
        memcpy(to.data, from.data, size);
        return;
    }
    for (int64_t i = 0; i < to.shape[d]; i++) {
        copy_from(to, from, d + 1);
        to.data = (char *)to.data + to.strides[d] * (int64_t)size;
        from.data = (char *)from.data + from.strides[d] * (int64_t)size;
    }
}

static tn_status toy_copy(const tn_call *call, const tn_view *to, const tn_view *from) {
    tn_view here = *to, there = *from;
    here.data = near(to->data);
    there.data = near(from->data);
    copy_from(here, there, 0);
    last_stream = call->host->stream;
    copies++;
    return TN_OK;
}

static tn_status toy_write(const char *wanted, tn_device device, void *to, const void *from, size_t bytes,
                           void *stream) {
    (void)wanted, (void)device;
    memcpy(near(to), from, bytes);
    last_stream = stream;
    return TN_OK;
}

static tn_status toy_read(const char *wanted, tn_device device, void *to, const void *from, size_t bytes,
                          void *stream) {
    (void)wanted, (void)device;
    memcpy(to, near(from), bytes);
    last_stream = stream;
    return TN_OK;
}

static tn_status toy_wait(const char *wanted, tn_device device, void *stream) {
    (void)wanted, (void)device, (void)stream;
    waits++;
    return TN_OK;
}

/* The toy that this thread uses, plus 1; 0: none. */
static int entered_toy, entries;
static tn_status toy_enter(const char *wanted, tn_device device, void **entered) {
    if (is_broken) return tn_fail(TN_SYSTEM, "%s: the toy is broken", wanted);
    *entered = (void *)(intptr_t)entered_toy;
    entered_toy = device.index + 1;
    entries++;
    return TN_OK;
}

static void toy_leave(void *entered) {
    entered_toy = (int)(intptr_t)entered;
}

static const tni_device_ops toy = {
    .kind = (tn_device_kind)TOY,
    .name = "toy",
    .usable = toy_usable,
    .alloc = toy_alloc,
    .free = toy_free,
    .trim = toy_trim,
    .copy = toy_copy,
    .write = toy_write,
    .read = toy_read,
    .wait = toy_wait,
    .enter = toy_enter,
    .leave = toy_leave,
};

/* ---- an operator with a kernel for it ---------------------------------------------------------------------------- */

/* y = x * s, by way of a workspace. */
static tn_status scale_on_toy(const tn_call *call, void *state) {
    (void)state;
    const tn_view *x = tn_in(call, 0), *y = tn_out(call, 0);
    double *factor = near(call->workspace);
    *factor = tn_get(TN_F32, near(tn_in(call, 1)->data), 0);
    for (int64_t i = 0; i < tn_count(x); i++) {
        tn_set(y->type, near(y->data), i, tn_get(x->type, near(x->data), i) * *factor);
    }
    return TN_OK;
}

static size_t scale_workspace(const tn_call *call) {
    (void)call;
    return sizeof(double);
}

static const tn_kernel scale_kernels[] = {
    {.name = "toy", .device = (tn_device_kind)TOY, .workspace = scale_workspace, .run = scale_on_toy}, {0}};
static const tn_op scale = {
    .signature = "toy_scale(x: T[*s], s: f32[]) -> y: T[*s]", .doc = "x * s.", .kernels = scale_kernels};

static void test_registration(void) {
    static const tni_device_ops another = {.kind = (tn_device_kind)TOY, .name = "another"}, none = {.name = "none"};
    const tn_op *const rows[] = {&scale};
    CHECK(tni_device_of(TOY) == NULL);
    CHECK(tni_table_add(rows, 1) == TN_BAD_CONTRACT);
    CHECK(strstr(tn_last_error(), "kernel 'toy' names no device") != NULL);
    CHECK(tni_device_register(&toy) == TN_OK && tni_device_of(TOY) == &toy);
    CHECK(tni_device_register(&toy) == TN_OK); /* again */
    CHECK(tni_device_register(&another) == TN_BAD_DEVICE && tni_device_register(&none) == TN_BAD_DEVICE);
    CHECK(tni_device_of(-1) == NULL && tni_device_of(1 << 30) == NULL);
    CHECK_ROW(tni_table_add(rows, 1) == TN_OK, "%s", tn_last_error());
    char *json = tn_function_json(tn_find("toy_scale"));
    CHECK(json && strstr(json, "\"kernels\": [{\"name\": \"toy\", \"device\": \"toy\"") != NULL);
    tn_free(json);
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

enum { ROWS = 5, COLUMNS = 3 };

static tn_status run_scale(const tn_tensor *x, const tn_tensor *s, tn_tensor *y, const tn_host *host) {
    return tn_run(tn_find("toy_scale"),
                  &(tn_args){.in = (const tn_tensor *[]){x, s}, .n_in = 2, .out = (tn_tensor *[]){y}, .n_out = 1},
                  host);
}

/* A transposed input: the kernel takes dense ones alone, so core has the device copy it. */
static void test_run(void) {
    const tn_device device = {TOY, 1};
    static char stream;
    const tn_host host = tn_stream_host(&stream);
    float from[ROWS * COLUMNS], got[ROWS * COLUMNS];
    int64_t shape[] = {ROWS, COLUMNS}, transposed[] = {1, ROWS};
    tn_block x = {0}, y = {0};
    tn_param *factor;
    for (int i = 0; i < ROWS * COLUMNS; i++) from[i] = (float)i;
    CHECK(tn_param_make(TN_F32, device, 3, &factor) == TN_OK && waits == 1);
    CHECK(toy.alloc("test", device, sizeof from, &stream, &x) == TN_OK);
    CHECK(toy.alloc("test", device, sizeof got, &stream, &y) == TN_OK);
    CHECK(toy.write("test", device, x.data, from, sizeof from, &stream) == TN_OK);
    tn_tensor in = tn_dense(x.data, TN_F32, 2, shape), out = tn_dense(y.data, TN_F32, 2, shape);
    in.strides = transposed;
    in.device = out.device = device;
    for (int turn = 0; turn < 2; turn++) { /* of which the second has the plan of the first */
        CHECK_ROW(run_scale(&in, tn_param_tensor(factor), &out, &host) == TN_OK, "%s", tn_last_error());
        CHECK(copies == turn + 1 && blocks == 3 && last_stream == &stream);
        CHECK(toy.read("test", device, got, y.data, sizeof got, &stream) == TN_OK);
        for (int r = 0; r < ROWS; r++) {
            for (int c = 0; c < COLUMNS; c++) {
                CHECK(got[r * COLUMNS + c] == from[r + c * ROWS] * (float)(turn ? -2 : 3));
            }
        }
        CHECK(tn_param_set(factor, -2, &stream) == TN_OK);
    }
    is_broken = true;
    CHECK(run_scale(&in, tn_param_tensor(factor), &out, &host) == TN_SYSTEM);
    CHECK(strcmp(tn_last_error(), "toy_scale: the toy is broken") == 0);
    is_broken = false;
    tn_param_free(factor);
    toy.free(device, x, &stream);
    toy.free(device, y, &stream);
    CHECK(blocks == 0);
}

/* Whatever core says of devices, it says of this one too. */
static void test_messages(void) {
    int64_t shape[] = {2};
    float values[2] = {0}, factor = 1;
    tn_param *param;
    char text[TNI_DEVICE_TEXT];
    tn_tensor x = tn_dense(values, TN_F32, 1, shape), s = tn_dense(&factor, TN_F32, 0, NULL);
    tn_tensor y = tn_dense(values, TN_F32, 1, shape);
    tni_device_print(text, (tn_device){TOY, 1});
    CHECK(strcmp(text, "toy:1") == 0);
    tni_device_print(text, (tn_device){TN_CPU, 3});
    CHECK(strcmp(text, "cpu") == 0);
    x.device = (tn_device){TOY, 1};
    CHECK(run_scale(&x, &s, &y, NULL) == TN_BAD_DEVICE);
    CHECK(strcmp(tn_last_error(), "toy_scale: s is on cpu, but x is on toy:1") == 0);
    x.device = (tn_device){33, 1};
    CHECK(run_scale(&x, &s, &y, NULL) == TN_BAD_DEVICE);
    CHECK_ROW(strstr(tn_last_error(), "x is on device 33:1 (DLPack's numbers); Tenon runs on cpu, cuda and toy"), "%s",
              tn_last_error());
    x.device = (tn_device){TN_CPU, 0};
    CHECK(run_scale(&x, &s, &y, NULL) == TN_BAD_DEVICE); /* there is no kernel for the CPU */
    CHECK(tn_param_make(TN_F32, (tn_device){33, 0}, 0, &param) == TN_BAD_DEVICE);
    CHECK(tn_param_make(TN_F32, (tn_device){TOY, TOYS}, 0, &param) == TN_BAD_DEVICE && !param);
    CHECK(strcmp(tn_last_error(), "tn_param: there is no toy:2") == 0);
    CHECK(tn_default_host()->alloc(NULL, (tn_device){33, 0}, 8).data == NULL);
    tn_pool_trim();
    CHECK(trims == 1);
}

/* ---- functions of a plugin --------------------------------------------------------------------------------------- */

static int outside; /* calls of them for which the toy was not entered */
static int released;

static void note(const tn_call *call) {
    outside += entered_toy != call->device.index + 1;
}
static bool noted_accepts(const tn_call *call) {
    return note(call), true;
}
static size_t noted_workspace(const tn_call *call) {
    return note(call), 0;
}
static tn_status noted_prepare(const tn_call *call, void **state) {
    static int made;
    *state = &made;
    return note(call), TN_OK;
}
static void noted_release(void *state) {
    (void)state;
    outside += entered_toy != 2 && !is_broken;
    released++;
}
static tn_status noted_run(const tn_call *call, void *state) {
    (void)state;
    return note(call), TN_OK;
}
static const tn_kernel noted_kernels[] = {{.name = "toy",
                                           .device = (tn_device_kind)TOY,
                                           .accepts = noted_accepts,
                                           .workspace = noted_workspace,
                                           .prepare = noted_prepare,
                                           .release = noted_release,
                                           .run = noted_run},
                                          {0}};
static const tn_op noted = {
    .signature = "toy_noted(x: f32[*s]) -> y: f32[*s]", .doc = "Nothing.", .kernels = noted_kernels};

static tn_status run_noted(int64_t size) {
    static float data[2];
    tn_tensor x = tn_dense(far(data), TN_F32, 1, &size), y = tn_dense(far(data + 1), TN_F32, 1, &size);
    x.device = y.device = (tn_device){TOY, 1};
    const tn_args args = {.in = (const tn_tensor *[]){&x}, .n_in = 1, .out = (tn_tensor *[]){&y}, .n_out = 1};
    return tn_run(tn_find("toy_noted"), &args, NULL);
}

static void test_plugin(void) {
    const tn_op *const rows[] = {&noted};
    CHECK(entries == 0); /* what is built in enters by itself */
    CHECK_ROW(tni_table_add_plugin(rows, 1) == TN_OK, "%s", tn_last_error());
    CHECK(run_noted(1) == TN_OK && entries == 2 && entered_toy == 0); /* the plan is made, and the kernel run */
    CHECK(run_noted(1) == TN_OK && entries == 3);
    is_broken = true;
    CHECK(run_noted(0) == TN_SYSTEM && strcmp(tn_last_error(), "toy_noted: the toy is broken") == 0);
    is_broken = false;
    CHECK(outside == 0 && released == 0);
    tn_shutdown();
    CHECK(outside == 0 && released == 1 && entered_toy == 0);
}

/* A parameter and a run ask for memory of several kinds; wherever there is none, nothing is lost. */
static void test_no_memory(void) {
    tn_param *param = NULL;
    for (int64_t n = 1; !param; n++) {
        tni_fail_allocation(n);
        const tn_status status = tn_param_make(TN_F64, (tn_device){TOY, 0}, 1, &param);
        CHECK((status == TN_OK) == (param != NULL) && (param || (status == TN_NO_MEMORY && blocks == 0)));
    }
    tni_fail_allocation(0);
    tn_param_free(param);
    CHECK(blocks == 0);
}

int main(void) {
    test_registration();
    test_run();
    test_messages();
    test_no_memory();
    test_plugin(); /* the last: it shuts everything down */
    return test_end();
}
