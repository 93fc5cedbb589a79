/* tenon/device.h on the CPU, hosts that leave members to the default one, and what is told about arguments that are
 * missing. tests/cuda/test_cuda.c has the same for GPUs. */
#include <stdlib.h>

#include <tenon/ops.h>

#include <tenon/device.h>
#include <tenon/fuse.h>
#include <tenon/param.h>

#include "core/host/memory.h"
#include "core/host/threads.h"
#include "tests/test.h"

static const tn_device cpu = {TN_CPU, 0};

static bool says(const char *text) {
    if (strstr(tn_last_error(), text)) return true;
    printf("the message is '%s', expected '%s'\n", tn_last_error(), text);
    return false;
}

/* ---- the CPU as a device ----------------------------------------------------------------------------------------- */

static void memory(void) {
    tn_memory_stats before, during, after;
    tn_block small = {0}, large = {0};
    tn_device_info info;
    int count = 0;
    enum { LARGE = 300 << 20 }; /* more than the pool keeps */
    CHECK(tn_device_count(TN_CPU, &count) == TN_OK && count == 1);
    CHECK(tn_device_describe(cpu, &info) == TN_OK && strcmp(info.name, "cpu") == 0 && info.memory > info.free_memory);
    tn_pool_trim();
    CHECK(tn_memory_reset_peak(cpu) == TN_OK && tn_memory_get(cpu, &before) == TN_OK);
    CHECK(before.peak == before.in_use && before.pooled == before.in_use);
    CHECK(tn_device_alloc(cpu, 1000, NULL, &small) == TN_OK && tn_device_alloc(cpu, LARGE, NULL, &large) == TN_OK);
    CHECK((uintptr_t)small.data % 64 == 0);
    CHECK(tn_memory_get(cpu, &during) == TN_OK && during.in_use == before.in_use + 1024 + LARGE);
    CHECK(during.peak == during.in_use && during.pooled == during.in_use);
    tn_device_free(cpu, large, NULL);
    tn_device_free(cpu, small, NULL);
    CHECK(tn_memory_get(cpu, &after) == TN_OK && after.in_use == before.in_use && after.peak == during.peak);
    CHECK(after.pooled == before.pooled + 1024); /* the small one is kept for later */
    tn_device_free(cpu, (tn_block){0}, NULL);
    CHECK(tn_device_alloc(cpu, 0, NULL, &small) == TN_OK && small.data);
    tn_device_free(cpu, small, NULL);
    tn_pool_trim();
    tni_fail_allocation(1);
    CHECK(tn_device_alloc(cpu, 5000, NULL, &small) == TN_NO_MEMORY && !small.data && says("out of memory: 5120 bytes"));
    CHECK(tn_memory_get(cpu, &after) == TN_OK && after.in_use == before.in_use);
}

static void streams(void) {
    void *stream = &stream, *pinned;
    tn_event *begin = NULL, *end = NULL;
    double milliseconds = -1;
    char to[8] = "";
    CHECK(tn_stream_make(cpu, &stream) == TN_OK && stream == NULL && tn_stream_wait(cpu, stream) == TN_OK);
    CHECK(tn_pinned_alloc(cpu, 8, &pinned) == TN_OK && pinned);
    memcpy(pinned, "1234567", 8);
    CHECK(tn_copy(cpu, to, cpu, pinned, 8, stream) == TN_OK && strcmp(to, "1234567") == 0);
    CHECK(tn_copy(cpu, NULL, cpu, NULL, 0, stream) == TN_OK);
    CHECK(tn_event_make(cpu, &begin) == TN_OK && tn_event_make(cpu, &end) == TN_OK);
    CHECK(tn_event_record(begin, stream) == TN_OK);
    CHECK(tn_event_milliseconds(begin, end, &milliseconds) == TN_BAD_VALUE && says("an event was not recorded"));
    CHECK(tn_event_record(end, stream) == TN_OK && tn_event_hold(end, stream) == TN_OK && tn_event_wait(end) == TN_OK);
    CHECK(tn_event_milliseconds(begin, end, &milliseconds) == TN_OK && milliseconds >= 0 && milliseconds < 10000);
    tn_event_free(begin);
    tn_event_free(end);
    tn_pinned_free(cpu, pinned);
    tn_stream_free(cpu, stream);
}

/* Every place for a result may be forgotten, every device may be none. */
static void missing(void) {
    const tn_device none = {77, 0};
    void *pointer;
    tn_block block;
    int count = 5;
    CHECK(tn_device_count((tn_device_kind)77, &count) == TN_BAD_DEVICE && count == 0);
    CHECK(says("tn_device_count: there is no device of kind 77 (DLPack's number); Tenon runs on cpu and cuda"));
    CHECK(tn_device_alloc(none, 1, NULL, &block) == TN_BAD_DEVICE && tn_copy(cpu, &count, none, &count, 1, NULL));
    CHECK(tn_stream_make(none, &pointer) == TN_BAD_DEVICE && tn_pinned_alloc(none, 1, &pointer) == TN_BAD_DEVICE);
    CHECK(tn_device_count(TN_CPU, NULL) == TN_BAD_VALUE && tn_device_describe(cpu, NULL) == TN_BAD_VALUE);
    CHECK(tn_device_alloc(cpu, 1, NULL, NULL) == TN_BAD_VALUE && tn_pinned_alloc(cpu, 1, NULL) == TN_BAD_VALUE);
    CHECK(tn_memory_get(cpu, NULL) == TN_BAD_VALUE && tn_stream_make(cpu, NULL) == TN_BAD_VALUE);
    CHECK(tn_event_make(cpu, NULL) == TN_BAD_VALUE && tn_event_record(NULL, NULL) == TN_BAD_VALUE);
    CHECK(tn_event_hold(NULL, NULL) == TN_BAD_VALUE && tn_event_wait(NULL) == TN_BAD_VALUE);
    CHECK(tn_copy(cpu, NULL, cpu, &count, 1, NULL) == TN_BAD_VALUE && says("tn_copy: where to copy to is NULL"));
    CHECK(tn_event_milliseconds(NULL, NULL, NULL) == TN_BAD_VALUE && says("an event is NULL"));
    tn_event_free(NULL);
    tn_pinned_free(none, NULL);
    tn_stream_free(none, NULL);
}

/* The functions that return a pointer leave a sentence with their NULL. */
static void null_has_a_sentence(void) {
#define FAILS(call, text)      \
    tn_fail(TN_SYSTEM, "old"); \
    CHECK((call) == NULL && says(text))
    FAILS(tn_find("nothing_like_it"), "there is no operator 'nothing_like_it'");
    FAILS(tn_find(NULL), "the name is NULL");
    FAILS(tn_function_at(-1), "there is no operator -1");
    FAILS(tn_function_at(1 << 30), "there is no operator");
    FAILS(tn_function_name(NULL), "tn_function_name: the operator is NULL");
    FAILS(tn_function_row(NULL), "tn_function_row: the operator is NULL");
    FAILS(tn_function_json(NULL), "NULL");
    FAILS(tn_gradient_json(NULL), "NULL");
    FAILS(tn_fuse_graph_json(NULL, NULL, NULL, NULL), "NULL");
    FAILS(tn_param_tensor(NULL), "tn_param_tensor: the parameter is NULL");
#undef FAILS
}

/* ---- hosts ------------------------------------------------------------------------------------------------------- */

static int own_allocs, own_releases, own_loops;

static tn_block own_alloc(void *context, tn_device device, size_t bytes) {
    own_allocs += context == &own_allocs && device.kind == TN_CPU;
    return (tn_block){aligned_alloc(64, (bytes + 63) / 64 * 64), NULL};
}
static void own_release(void *context, tn_device device, tn_block block) {
    own_releases += context == &own_allocs && device.kind == TN_CPU;
    free(block.data);
}
static void own_parallel(void *context, int64_t n, int64_t grain, tn_body body, void *arg) {
    (void)grain;
    own_loops += context == &own_allocs;
    body(arg, 0, n);
}

/* A transposed softmax along the first axis: some kernel or other copies, and shares its rows out. */
static tn_status softmax_on(const tn_host *host) {
    enum { ROWS = 300, COLUMNS = 200 };
    static float x[ROWS * COLUMNS], y[ROWS * COLUMNS];
    int64_t shape[] = {ROWS, COLUMNS}, strides[] = {1, ROWS};
    tn_tensor tx = tn_dense(x, TN_F32, 2, shape), ty = tn_dense(y, TN_F32, 2, shape);
    tx.strides = strides;
    const tn_status status = tn_softmax_on(host, &tx, NULL, NULL, &ty);
    for (int i = 0; status == TN_OK && i < ROWS * COLUMNS; i++) {
        if (y[i] < 0.00499F || y[i] > 0.00501F) return tn_fail(TN_SYSTEM, "y[%d] is %g", i, (double)y[i]);
    }
    return status;
}

static void members_of_hosts(void) {
    tn_host host = {0};
    CHECK(softmax_on(NULL) == TN_OK && softmax_on(&host) == TN_OK && softmax_on(tn_default_host()) == TN_OK);
    host = (tn_host){.context = &own_allocs, .alloc = own_alloc, .release = own_release};
    CHECK(softmax_on(&host) == TN_OK && own_allocs == own_releases);
    host = (tn_host){.context = &own_allocs, .parallel = own_parallel};
    CHECK(softmax_on(&host) == TN_OK && own_loops > 0);
    host = (tn_host){.alloc = own_alloc};
    CHECK(softmax_on(&host) == TN_BAD_VALUE && says("softmax: the host has alloc but no release; set both or neither"));
    host = (tn_host){.release = own_release};
    CHECK(softmax_on(&host) == TN_BAD_VALUE && says("softmax: the host has release but no alloc"));

    const tn_host given = {.context = &own_allocs, .alloc = own_alloc, .release = own_release}, *filled;
    tn_host room;
    CHECK(tni_host_fill("test", &given, &room, &filled) == TN_OK && filled == &room);
    const int before = own_allocs;
    tn_block block = filled->alloc(filled->context, cpu, 100);
    filled->release(filled->context, cpu, block);
    CHECK(own_allocs == before + 1 && own_releases == own_allocs && filled->threads(filled->context) == tn_threads());
    CHECK(tni_host_fill("test", tn_default_host(), &room, &filled) == TN_OK && filled == tn_default_host());
}

int main(void) {
    memory();
    streams();
    missing();
    null_has_a_sentence();
    members_of_hosts();
    return test_end();
}
