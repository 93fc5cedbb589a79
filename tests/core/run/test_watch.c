/* TENON_SYNC and TENON_LOG: what each call is told about, on a device whose failures come late, as a GPU's do. */
#include <stdlib.h>
#include <unistd.h>

#include "core/host/device.h"
#include "core/run/watch.h"
#include "tests/test.h"

enum { LATE = 12 /* DLPack's number for what it does not know */ };

static int waits;
static bool pending, capturing; /* pending: work in the stream fails when somebody waits for it */

static tn_status late_wait(const char *wanted, tn_device device, void *stream) {
    (void)device, (void)stream;
    waits++;
    return pending ? tn_fail(TN_SYSTEM, "%s: waiting: an illegal memory access", wanted) : TN_OK;
}
static bool late_capturing(tn_device device, void *stream) {
    (void)device, (void)stream;
    return capturing;
}
static tn_status late_copy(const tn_call *call, const tn_view *to, const tn_view *from) {
    (void)call, (void)to, (void)from;
    return TN_OK;
}
static tn_status late_alloc(const char *wanted, tn_device device, size_t bytes, void *stream, tn_block *block) {
    (void)wanted, (void)device, (void)stream;
    *block = (tn_block){tni_malloc_aligned(bytes), NULL};
    return TN_OK;
}
static void late_free(tn_device device, tn_block block, void *stream) {
    (void)device, (void)stream;
    tni_free(block.data);
}
static const tni_device_ops late = {.kind = (tn_device_kind)LATE,
                                    .name = "late",
                                    .alloc = late_alloc,
                                    .free = late_free,
                                    .copy = late_copy,
                                    .wait = late_wait,
                                    .capturing = late_capturing};

/* ---- an operator ------------------------------------------------------------------------------------------------- */

static bool fails_late;

static tn_status run(const tn_call *call, void *state) {
    (void)call, (void)state;
    pending |= fails_late; /* and says nothing */
    return TN_OK;
}
static bool never(const tn_call *call) {
    (void)call;
    return false;
}

static const tn_kernel kernels[] = {
    {.name = "vector", .device = TN_CPU, .isa = 1u << 31, .run = run},
    {.name = "warp", .device = (tn_device_kind)LATE, .accepts = never, .run = run},
    {.name = "half", .device = (tn_device_kind)LATE, .types = TN_BIT(TN_F16) | TN_BIT(TN_BF16), .run = run},
    {.name = "block", .device = (tn_device_kind)LATE, .run = run},
    {.name = "ref", .device = TN_CPU, .run = run},
    {0},
};
static const tn_op watched = {
    .signature = "watched(x: T[*s], axis: axis = -1) -> y: T[*s]", .doc = "Nothing.", .kernels = kernels};

typedef struct call {
    tn_tensor x, y;
    const tn_tensor *in[1];
    tn_tensor *out[1];
    tn_args args;
    float memory[2][32];
    int64_t shape[2], strides[2];
} call;

static tn_status run_on(call *c, int32_t device, bool transposed) {
    *c = (call){.shape = {4, 8}, .strides = {1, 4}};
    for (int i = 0; i < 2; i++) {
        tn_tensor *t = i ? &c->y : &c->x;
        t->data = c->memory[i];
        t->device = (tn_device){device, 0};
        t->ndim = 2;
        t->dtype = tn_type_to_dlpack(TN_F32);
        t->shape = c->shape;
    }
    if (transposed) c->x.strides = c->strides;
    c->in[0] = &c->x;
    c->out[0] = &c->y;
    c->args = (tn_args){.in = c->in, .n_in = 1, .out = c->out, .n_out = 1};
    return tn_run(tn_find("watched"), &c->args, NULL);
}

static void watch(const char *sync, const char *log) {
    if (sync) setenv("TENON_SYNC", sync, 1);
    if (!sync) unsetenv("TENON_SYNC");
    if (log) setenv("TENON_LOG", log, 1);
    if (!log) unsetenv("TENON_LOG");
    tni_watch_forget();
    waits = 0;
    pending = fails_late = capturing = false;
}

/* What stands in a file. */
static const char *contents(const char *name) {
    static char text[16384];
    FILE *file = fopen(name, "re");
    text[file ? fread(text, 1, sizeof text - 1, file) : 0] = 0;
    if (file) fclose(file);
    return text;
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

static void calls_wait_when_asked(void) {
    call c;
    watch(NULL, NULL);
    fails_late = true;
    CHECK(run_on(&c, LATE, false) == TN_OK && waits == 0); /* nobody knows */
    watch("0", NULL);
    CHECK(run_on(&c, LATE, false) == TN_OK && waits == 0);
    watch("1", NULL);
    CHECK(run_on(&c, LATE, false) == TN_OK && waits == 2);
    fails_late = true;
    CHECK(run_on(&c, LATE, false) == TN_SYSTEM);
    CHECK_ROW(strcmp(tn_last_error(), "watched: kernel 'block' failed: waiting: an illegal memory access; the call was "
                                      "x: f32[4, 8], y: f32[4, 8], axis=1") == 0,
              "%s", tn_last_error());
}

/* A failure that was there before is not put down to this call. */
static void others_errors_are_told_apart(void) {
    call c;
    watch("1", NULL);
    pending = true;
    CHECK(run_on(&c, LATE, false) == TN_SYSTEM);
    CHECK_ROW(strstr(tn_last_error(), "watched was not run: something before it in the stream failed") != NULL, "%s",
              tn_last_error());
}

static void nobody_waits_in_a_capture(const char *folder) {
    call c;
    char name[4096];
    snprintf(name, sizeof name, "%s/stderr", folder);
    watch("1", NULL);
    capturing = true;
    const int kept = dup(STDERR_FILENO);
    CHECK(freopen(name, "w", stderr) != NULL);
    CHECK(run_on(&c, LATE, false) == TN_OK && run_on(&c, LATE, false) == TN_OK && waits == 0);
    fflush(stderr);
    dup2(kept, STDERR_FILENO);
    close(kept);
    const char *said = contents(name), *first = strstr(said, "does not wait while a CUDA graph is captured");
    CHECK(first != NULL && strstr(first + 1, "does not wait") == NULL); /* once */
}

static void calls_are_logged(const char *folder) {
    call c;
    char name[4096];
    snprintf(name, sizeof name, "%s/log", folder);
    watch(NULL, name);
    tni_plans_free((tn_function *)tn_find("watched")); /* a plan from before does not know why */
    CHECK(run_on(&c, LATE, true) == TN_OK && run_on(&c, LATE, true) == TN_OK);
    c.y.ndim = 1;
    CHECK(tn_run(tn_find("watched"), &c.args, NULL) != TN_OK);
    const char *text = contents(name), *second = strchr(text, '\n') + 1;
    static const char *const wanted[] = {
        "tenon watched: kernel 'block' on late:0; x: f32[4, 8] strides (1, 4), y: f32[4, 8]",
        "axis=1; copied x (the kernel takes dense tensors only); ",
        " us until it was in the stream",
        "passed over: 'vector' is for cpu; 'warp' does not accept these shapes, strides or attributes; 'half' takes "
        "f16 "
        "and bf16, not f32\n",
        "tenon watched: refused: y ",
    };
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) CHECK_ROW(strstr(text, wanted[i]), "%s", wanted[i]);
    CHECK(strstr(second, "kernel 'block'") && !strstr(second, "passed over")); /* once for each form of call */
    CHECK(run_on(&c, TN_CPU, false) == TN_OK);
    CHECK(strstr(contents(name), "'vector' needs instructions that this CPU lacks or TENON_ISA forbids") != NULL);
    /* With both, a failure is in the log, and the time is that of the work. */
    watch("1", name);
    fails_late = true;
    CHECK(run_on(&c, LATE, false) == TN_SYSTEM);
    CHECK(strstr(contents(name), "; failed: watched: kernel 'block' failed: ") != NULL);
    watch(NULL, "/nowhere/at/all");
    CHECK(run_on(&c, TN_CPU, false) == TN_OK); /* the log goes to stderr */
}

int main(void) {
    const tn_op *const rows[] = {&watched};
    char folder[] = "/tmp/tenon_watch.XXXXXX", command[64];
    CHECK(mkdtemp(folder) != NULL);
    CHECK(tni_device_register(&late) == TN_OK);
    CHECK_ROW(tni_table_add(rows, 1) == TN_OK, "%s", tn_last_error());
    calls_wait_when_asked();
    others_errors_are_told_apart();
    nobody_waits_in_a_capture(folder);
    calls_are_logged(folder);
    watch(NULL, NULL);
    tn_shutdown();
    snprintf(command, sizeof command, "rm -r %s", folder);
    CHECK(system(command) == 0);
    return test_end();
}
