/* The GPU's side without a GPU: which image is chosen, what the loader says when something is missing, contexts, errors
 * that stay, forks. Most of it runs against a driver that is made up (tests/plugins/fake_cuda.c), each time in a
 * process of its own; what is left holds on machines with a GPU as well. */
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tenon/device.h>
#include <tenon/param.h>

#include "core/run/watch.h"
#include "core/table/table.h"
#include "cuda/cuda_device.h"
#include "cuda/driver/cuda.h"
#include "tests/plugins/fake_cuda.h"
#include "tests/test.h"

static const char *fake_driver; /* the path of the shared object */

static bool says(const char *text) {
    if (strstr(tn_last_error(), text)) return true;
    printf("the message is '%s', expected '%s'\n", tn_last_error(), text);
    return false;
}

/* Runs the test in a child, where the driver is not open yet; with the made-up driver where `what` is not NULL. */
static void in_child(void (*test)(void), const char *what) {
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        test_failed = 0;
        if (what) {
            setenv("FAKE_CUDA", what, 1);
            if (!dlopen(fake_driver, RTLD_NOW | RTLD_GLOBAL)) _exit(2);
        }
        test();
        fflush(NULL);
        _exit(test_failed != 0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    CHECK_ROW(child > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s, status %d", what ? what : "no driver",
              status);
}

/* ---- images ------------------------------------------------------------------------------------------------------ */

static const unsigned char code[1];
static const tni_image images[] = {
    {"a", 75, 'p', code, code + 1},
    {"a", 80, ' ', code, code + 1},
    {"a", 86, ' ', code, code + 1},
    {"a", 90, 'a', code, code + 1},
    {"a", 100, ' ', code, code + 1},
    {"a", 120, ' ', code, code + 1},
    {"b", 90, 'a', code, code + 1},
    {"c", 80, 'p', code, code + 1},
    {"c", 90, 'p', code, code + 1},
    {"d", 80, ' ', code, code + 1},
    {0},
};

static const struct {
    const char *unit;
    int major, minor;
    const char *gets; /* NULL: none fits */
} choices[] = {
    {"a", 7, 0, NULL},             /* older than everything */
    {"a", 7, 5, "PTX for sm_75"},  /* Turing */
    {"a", 8, 0, "sm_80"},          /* A100 */
    {"a", 8, 6, "sm_86"},          /* the nearest one below, not just any */
    {"a", 8, 7, "sm_86"},          /* Orin */
    {"a", 8, 9, "sm_86"},          /* Ada: the same generation */
    {"a", 9, 0, "sm_90a"},         /* H100, H200: the exact one */
    {"a", 10, 0, "sm_100"},        /* B200 */
    {"a", 10, 3, "sm_100"},        /* B300 */
    {"a", 11, 0, "PTX for sm_75"}, /* a generation that nothing was made for */
    {"a", 12, 0, "sm_120"},
    {"a", 12, 1, "sm_120"},
    {"a", 13, 5, "PTX for sm_75"}, /* the future */
    {"b", 9, 0, "sm_90a"},
    {"b", 9, 1, NULL}, /* 'a' is for one GPU only */
    {"b", 10, 0, NULL},
    {"b", 8, 9, NULL},
    {"c", 8, 6, "PTX for sm_80"},
    {"c", 12, 0, "PTX for sm_90"}, /* the newest PTX that fits */
    {"c", 7, 5, NULL},
    {"d", 9, 0, NULL}, /* a plain image is for its own generation */
    {"no such unit", 9, 0, NULL},
};

static void test_choice(void) {
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++) {
        const tni_image *got = tni_image_pick(images, choices[i].unit, choices[i].major, choices[i].minor);
        char text[32] = "none";
        if (got) tni_image_describe(got, text);
        CHECK_ROW(strcmp(text, choices[i].gets ? choices[i].gets : "none") == 0, "%s on %d.%d gets %s", choices[i].unit,
                  choices[i].major, choices[i].minor, text);
    }
}

/* What is really built in: of the right kind, and findable. */
static void test_built_in(void) {
    for (const tni_image *i = tni_images; i->unit; i++) {
        bool is_ptx = i->kind == 'p', is_cubin = i->kind == ' ' || i->kind == 'a';
        void *memory = NULL;
        const void *image = "";
        CHECK_ROW(is_ptx || is_cubin, "%s", i->unit);
        CHECK_ROW(i->end > i->data && *i->end == 0, "%s for %d", i->unit, i->arch);
        CHECK_ROW(tni_image_code("test", i, &memory, &image) == TN_OK, "%s for %d", i->unit, i->arch);
        CHECK_ROW(!is_cubin || strncmp(image, "\177ELF", 4) == 0, "%s for %d", i->unit, i->arch);
        CHECK_ROW(!is_ptx || strstr(image, ".version"), "%s for %d", i->unit, i->arch);
        CHECK_ROW(tni_image_for(i->unit, i->arch / 10, i->arch % 10), "%s for %d", i->unit, i->arch);
        tni_free(memory);
    }
}

/* ---- before anything is opened ----------------------------------------------------------------------------------- */

static void test_idle(void) {
    char *table = tn_table_json();
    CHECK(table != NULL);
    tn_free(table);
    CHECK(tn_find("softmax") != NULL);
    CHECK(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD) == NULL); /* nobody needed a driver for that */
}

/* softmax of (2, 3) numbers at addresses that are never looked at. */
static tn_status run_softmax(tn_device x_at, tn_device y_at, const tn_host *host) {
    static int64_t shape[] = {2, 3};
    tn_tensor x = tn_dense((void *)0x10000, TN_F32, 2, shape), y = tn_dense((void *)0x20000, TN_F32, 2, shape);
    x.device = x_at;
    y.device = y_at;
    const tn_tensor *in[] = {&x};
    tn_tensor *out[] = {&y};
    return tn_run(tn_find("softmax"), &(tn_args){.in = in, .n_in = 1, .out = out, .n_out = 1}, host);
}

static bool has_cuda_kernel(const char *name) {
    for (const tn_kernel *k = tn_function_row(tn_find(name))->kernels; k->name; k++) {
        if (k->device == TN_CUDA) return true;
    }
    return false;
}

static const tn_device cpu = {TN_CPU, 0}, gpu = {TN_CUDA, 0}, other_gpu = {TN_CUDA, 1}, far_gpu = {TN_CUDA, 7};

static void test_mixed(void) {
    CHECK(run_softmax(cpu, gpu, NULL) == TN_BAD_DEVICE && says("softmax: y is on cuda:0, but x is on cpu"));
    CHECK(run_softmax(gpu, cpu, NULL) == TN_BAD_DEVICE && says("softmax: y is on cpu, but x is on cuda:0"));
    CHECK(run_softmax(gpu, other_gpu, NULL) == TN_BAD_DEVICE && says("softmax: y is on cuda:1, but x is on cuda:0"));
}

/* ---- no driver, or one that cannot be used ----------------------------------------------------------------------- */

/* With CUDA_VISIBLE_DEVICES empty there is no GPU anywhere. */
static void test_missing(void) {
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    const tn_gpu *found;
    CHECK(tni_cuda("the test") == NULL && says("the test: "));
    CHECK(strstr(tn_last_error(), "NVIDIA driver") != NULL);
    CHECK(tni_gpu_count("counting") == 0 && says("counting: "));
    CHECK(tni_gpu_get("getting", 0, &found) == TN_SYSTEM && says("getting: "));
    if (has_cuda_kernel("softmax")) {
        CHECK(run_softmax(gpu, gpu, NULL) == TN_SYSTEM && says("softmax: "));
        CHECK(strstr(tn_last_error(), "NVIDIA driver") != NULL);
    } else {
        CHECK(run_softmax(gpu, gpu, NULL) == TN_BAD_DEVICE && says("softmax: the tensors are on cuda:0"));
    }
    const tn_host host = tn_stream_host(NULL);
    CHECK(host.alloc(host.context, gpu, 64).data == NULL && says("NVIDIA driver"));
    tn_block block = host.alloc(host.context, cpu, 64); /* the CPU goes on */
    CHECK(block.data != NULL);
    host.release(host.context, cpu, block);
    tn_pool_trim();
}

static void test_does_not_start(void) {
    CHECK(!tni_cuda("a") && says("a: the NVIDIA driver does not start: CUDA error 100: "));
    CHECK(!tni_cuda("b") && says("b: the NVIDIA driver does not start: CUDA error 100: ")); /* for everybody who asks */
}

static void test_old(void) {
    CHECK(!tni_cuda("a") && says("a: the NVIDIA driver is for CUDA 11.8, Tenon needs CUDA 12.0 (driver 525) or newer"));
}

static void test_no_gpu(void) {
    CHECK(!tni_cuda("a") && says("a: the NVIDIA driver sees no GPU"));
}

static void test_lacks(void) {
    CHECK(!tni_cuda("a") && says("a: the NVIDIA driver has no cuLaunchKernelEx"));
}

/* ---- a driver that works ----------------------------------------------------------------------------------------- */

static void test_gpus(void) {
    const tn_gpu *found = NULL;
    CHECK(tni_cuda("a") && tni_cuda("a")->version == 12040);
    CHECK(tni_gpu_count("a") == 2);
    CHECK(tni_gpu_get("a", 1, &found) == TN_OK && found->index == 1 && found->major == 9 && found->sms == 132);
    CHECK(strcmp(found->name, "Fake GPU 1") == 0);
    CHECK(tni_gpu_get("a", 7, &found) == TN_BAD_DEVICE && says("a: there is no cuda:7; this process sees 2 GPUs"));
    CHECK(tni_gpu_get("a", -1, &found) == TN_BAD_DEVICE && says("a: there is no cuda:-1"));
    unsigned flags;
    int active = 1;
    tni_cuda("a")->cuDevicePrimaryCtxGetState(1, &flags, &active);
    CHECK(!active); /* looking makes no context */
    if (has_cuda_kernel("softmax")) {
        CHECK(run_softmax(far_gpu, far_gpu, NULL) == TN_BAD_DEVICE && says("softmax: there is no cuda:7"));
    }
}

static cu_context current_context(void) {
    cu_context current = NULL;
    tni_cuda("a")->cuCtxGetCurrent(&current);
    return current;
}

static void test_contexts(void) {
    tni_cuda_scope first, second, third;
    CHECK(tni_cuda("a") && current_context() == NULL);
    CHECK(tni_cuda_enter("a", 0, &first) == TN_OK && first.pushed);
    cu_context zero = current_context();
    CHECK(zero != NULL);
    CHECK(tni_cuda_enter("a", 0, &second) == TN_OK && !second.pushed); /* it is there already */
    CHECK(tni_cuda_enter("a", 1, &third) == TN_OK && third.pushed);
    CHECK(current_context() != zero);
    tni_cuda_leave(&third);
    CHECK(current_context() == zero);
    tni_cuda_leave(&second);
    CHECK(current_context() == zero);
    tni_cuda_leave(&first);
    CHECK(current_context() == NULL);
}

static void test_memory(void) {
    const tn_host host = tn_stream_host((void *)0x50), *usual = tn_default_host();
    CHECK(host.stream == (void *)0x50 && host.context == (void *)0x50 && usual->stream == NULL);
    CHECK(host.alloc == usual->alloc && host.release == usual->release && host.parallel == usual->parallel);
    tn_block block = host.alloc(host.context, gpu, 1000);
    CHECK(block.data != NULL && (uintptr_t)block.data % 64 == 0);
    host.release(host.context, gpu, block);
    CHECK(current_context() == NULL);
    tn_pool_trim();
}

static void test_no_memory(void) {
    const tn_host host = tn_stream_host(NULL);
    CHECK(host.alloc(host.context, gpu, 1000).data == NULL && says("CUDA error 2"));
}

/* What a program does with a GPU by itself. Two GPUs are there, and no context is left behind. */
static void test_use(void) {
    tn_device_info info;
    tn_memory_stats before, during, after;
    tn_block block;
    int count = 0;
    char from[100] = "some bytes", to[100] = "";
    const tn_device second = {TN_CUDA, 1};
    CHECK(tn_device_count(TN_CUDA, &count) == TN_OK && count == 2);
    CHECK(tn_device_describe(gpu, &info) == TN_OK && strcmp(info.name, "Fake GPU 0") == 0);
    CHECK(info.capability[0] == 9 && info.memory == (size_t)80 << 30 && info.free_memory <= info.memory);
    CHECK(tn_memory_get(gpu, &before) == TN_OK);
    CHECK(tn_device_alloc(gpu, sizeof from, NULL, &block) == TN_OK && block.data);
    CHECK(tn_memory_get(gpu, &during) == TN_OK && during.in_use >= before.in_use + sizeof from);
    CHECK(tn_copy(gpu, block.data, cpu, from, sizeof from, NULL) == TN_OK);
    CHECK(tn_copy(cpu, to, gpu, block.data, sizeof to, NULL) == TN_OK && strcmp(to, "some bytes") == 0);
    CHECK(tn_copy(second, block.data, gpu, block.data, 1, NULL) == TN_UNSUPPORTED);
    CHECK(says("tn_copy: from cuda:0 to cuda:1 is not one copy: copy to memory of the CPU, and from there"));
    tn_device_free(gpu, block, NULL);
    CHECK(tn_memory_get(gpu, &after) == TN_OK && after.in_use == before.in_use && after.peak >= during.in_use);
    CHECK(tn_memory_reset_peak(gpu) == TN_OK && tn_memory_get(gpu, &after) == TN_OK && after.peak == after.in_use);
    CHECK(tn_device_alloc(gpu, 0, NULL, &block) == TN_OK && block.data);
    tn_device_free(gpu, block, NULL);
    CHECK(tn_device_alloc((tn_device){TN_CUDA, 7}, 1, NULL, &block) == TN_BAD_DEVICE && !block.data);
    CHECK(says("tn_device_alloc: there is no cuda:7; this process sees 2 GPUs"));
    CHECK(current_context() == NULL);
}

static void test_streams(void) {
    void *streams[2], *pinned;
    tn_event *begin = NULL, *end = NULL;
    double milliseconds = 0;
    _Atomic int *holds = dlsym(RTLD_DEFAULT, "fake_holds");
    CHECK(tn_stream_make(gpu, &streams[0]) == TN_OK && tn_stream_make(gpu, &streams[1]) == TN_OK);
    CHECK(streams[0] && streams[1] && streams[0] != streams[1]);
    CHECK(tn_pinned_alloc(gpu, 1000, &pinned) == TN_OK && pinned);
    CHECK(tn_event_make(gpu, &begin) == TN_OK && tn_event_make(gpu, &end) == TN_OK);
    CHECK(tn_event_hold(begin, streams[1]) == TN_SYSTEM &&
          says("tn_event_hold: letting a stream wait: CUDA error 400"));
    CHECK(tn_event_record(begin, streams[0]) == TN_OK && tn_event_hold(begin, streams[1]) == TN_OK);
    CHECK(holds && *holds == 1);
    CHECK(tn_event_milliseconds(begin, end, &milliseconds) == TN_SYSTEM); /* the end was not recorded */
    CHECK(tn_event_record(end, streams[1]) == TN_OK && tn_event_wait(end) == TN_OK);
    CHECK(tn_event_milliseconds(begin, end, &milliseconds) == TN_OK && milliseconds == 1);
    CHECK(tn_stream_wait(gpu, streams[0]) == TN_OK && current_context() == NULL);
    tn_event_free(begin);
    tn_event_free(end);
    tn_pinned_free(gpu, pinned);
    for (int i = 0; i < 2; i++) tn_stream_free(gpu, streams[i]);
    tn_shutdown(); /* the pool and the context are gone, and come again */
    test_use();
}

/* A parameter is in the GPU's memory, and is written there in the order of a stream. */
static void test_param(void) {
    static char stream;
    const tn_device second = {TN_CUDA, 1};
    tn_param *param;
    float got = 0;
    CHECK(tn_param_make(TN_F32, second, 0.5, &param) == TN_OK && current_context() == NULL);
    const tn_tensor *t = tn_param_tensor(param);
    CHECK(t->device.kind == TN_CUDA && t->device.index == 1 && t->ndim == 0 && t->data);
    CHECK(tni_cuda_device.read("test", second, &got, t->data, sizeof got, NULL) == TN_OK && got == 0.5F);
    CHECK(tn_param_set(param, -3, &stream) == TN_OK);
    CHECK(tni_cuda_device.wait("test", second, &stream) == TN_OK && current_context() == NULL);
    CHECK(tni_cuda_device.read("test", second, &got, t->data, sizeof got, &stream) == TN_OK && got == -3);
    tn_param_free(param);
    CHECK(tn_param_make(TN_F32, (tn_device){TN_CUDA, 7}, 0, &param) == TN_BAD_DEVICE && !param);
    CHECK(says("tn_param: there is no cuda:7; this process sees 2 GPUs"));
}

static void test_param_no_memory(void) {
    tn_param *param;
    CHECK(tn_param_make(TN_F32, gpu, 0, &param) == TN_NO_MEMORY && !param && says("tn_param: allocating GPU memory"));
}

/* ---- launches and errors ----------------------------------------------------------------------------------------- */

static const tn_host *streaming(void) {
    static tn_host host;
    host = tn_stream_host(NULL);
    return &host;
}

static tn_status launch(const char *name) {
    const tn_call call = {.name = name, .device = {TN_CUDA, 0}, .host = streaming()};
    const tn_launch l = {.kernel = (cu_kernel)(uintptr_t)64, .name = "made_up_f32", .grid = 3, .block = 128};
    return tn_cuda_launch(&call, &l, NULL);
}

static void test_launch(void) {
    const tn_call call = {.name = "op", .device = {TN_CUDA, 0}, .host = streaming()};
    CHECK(launch("op") == TN_OK && current_context() == NULL);
    CHECK(tn_cuda_launch(&call, &(tn_launch){.name = "empty"}, NULL) == TN_OK); /* a grid of 0 does nothing */
}

/* ---- images of authors ------------------------------------------------------------------------------------------- */

static fake_launch seen;
static void note_launch(const fake_launch *how, void **arguments) {
    seen = *how;
    *(int *)arguments[0] += 1;
}
static const fake_code for_all = {FAKE_CODE, 0, {{"noted", note_launch, 256, 77}, {"other", note_launch, 0, 1}}};
static const fake_code for_other = {FAKE_CODE, 100, {{"noted", note_launch, 0, 0}}};

static void test_find(void) {
    const tn_call call = {.name = "op", .device = gpu, .host = streaming()};
    const tn_call second = {.name = "op", .device = other_gpu, .host = streaming()};
    _Atomic int *loads = dlsym(RTLD_DEFAULT, "fake_loads");
    tn_launch l = {.grid = 3, .block = 128, .shared = 1000}, again = {0};
    tn_cuda_code made;
    const tn_gpu *found;
    CHECK(tn_cuda_find(&call, &l, &for_all, sizeof for_all, "noted") == TN_OK && l.kernel && l.grid == 3);
    CHECK(strcmp(l.name, "noted") == 0 && current_context() == NULL && *loads == 1);
    fake_code moved = for_all; /* known by its bytes, not by where it is */
    CHECK(tn_cuda_find(&call, &again, &moved, sizeof moved, "noted") == TN_OK && again.kernel == l.kernel);
    CHECK(tn_cuda_find(&call, &again, &for_all, sizeof for_all, "other") == TN_OK && again.kernel != l.kernel);
    CHECK(*loads == 1);
    CHECK(tn_cuda_find(&second, &again, &for_all, sizeof for_all, "noted") == TN_OK && *loads == 2);
    moved.kernels[1].name = "new"; /* and what is there now may be something else */
    CHECK(tn_cuda_find(&call, &again, &moved, sizeof moved, "new") == TN_OK && *loads == 3);
    CHECK(tn_cuda_inspect(&call, &l, &made) == TN_OK && made.registers == 77 && made.most_threads == 256);
    CHECK(made.compiled_for == 90 && tn_cuda_gpu(&second, &found) == TN_OK && found->index == 1);
    tn_shutdown();
    CHECK(tn_cuda_find(&call, &l, &for_all, sizeof for_all, "noted") == TN_OK && *loads == 4);
}

static void test_cannot_find(void) {
    const tn_call call = {.name = "op", .device = gpu, .host = streaming()};
    tn_launch l = {0};
    CHECK(tn_cuda_find(&call, &l, &for_all, sizeof for_all, "nowhere") == TN_NOT_FOUND);
    CHECK(says("op: the image has no kernel 'nowhere'; declare it extern \"C\", or give its mangled name"));
    CHECK(tn_cuda_find(&call, &l, &for_other, sizeof for_other, "noted") == TN_UNSUPPORTED);
    CHECK(
        says("op: the image with kernel noted has no code for Fake GPU 0; compile it with -arch=sm_90, or embed PTX"));
    CHECK(tn_cuda_find(&call, &l, "nonsense", 8, "noted") == TN_BAD_VALUE && says("is neither cubin, fatbin nor PTX"));
    CHECK(tn_cuda_find(&call, &l, NULL, 0, "noted") == TN_BAD_VALUE && says("op: tn_cuda_find: the image is empty"));
    CHECK(tn_cuda_find(&call, &l, "x", 1, NULL) == TN_BAD_VALUE && says("op: tn_cuda_find: no name is given"));
    CHECK(tn_cuda_launch(&call, &(tn_launch){.grid = 1, .block = 1}, NULL) == TN_BAD_VALUE);
    CHECK(says("op: a launch has no kernel: tn_cuda_find sets it") && current_context() == NULL);
    CHECK(tn_cuda_failed(&call, "mine", 0) == TN_OK);
    CHECK(tn_cuda_failed(&call, "cudaMemsetAsync", 1) == TN_SYSTEM && says("op: cudaMemsetAsync: CUDA error 1 ("));
}

/* A grid in three dimensions, and what the GPU has no room for. */
static void test_launch_shapes(void) {
    const tn_call call = {.name = "op", .device = gpu, .host = streaming()};
    int count = 0;
    void *arguments[] = {&count};
    tn_launch l = {.grid = 3, .grid_y = 4, .grid_z = 5, .block = 8, .block_y = 2, .shared = 9};
    CHECK(tn_cuda_find(&call, &l, &for_all, sizeof for_all, "noted") == TN_OK);
    CHECK(tn_cuda_launch(&call, &l, arguments) == TN_OK && count == 1 && current_context() == NULL);
    CHECK(seen.grid[0] == 3 && seen.grid[1] == 4 && seen.grid[2] == 5 && seen.shared == 9);
    CHECK(seen.block[0] == 8 && seen.block[1] == 2 && seen.block[2] == 1);
    l.block = 256;
    CHECK(tn_cuda_launch(&call, &l, arguments) == TN_SYSTEM && count == 1);
    CHECK(says("kernel noted (grid 3 x 4 x 5, block 256 x 2 x 1, cluster 1, 9 bytes of shared memory): a block of 512 "
               "threads, where this kernel can have 256 (it takes 77 registers for each, or has __launch_bounds__): "
               "CUDA error 1"));
    l.block = 2048;
    CHECK(tn_cuda_launch(&call, &l, arguments) == TN_SYSTEM);
    CHECK(says("a block of 4096 threads, where the GPU allows 1024"));
    l.block = 0;
    CHECK(tn_cuda_launch(&call, &l, arguments) == TN_SYSTEM && says("a block has no threads: set .block"));
    l.grid = 0;
    CHECK(tn_cuda_launch(&call, &l, arguments) == TN_OK && count == 1); /* nothing to do */
}

static void test_sticky(void) {
    CHECK(tni_cuda("a") != NULL);
    CHECK(launch("op") == TN_SYSTEM && says("op: kernel made_up_f32 (grid 3, block 128, cluster 1"));
    CHECK(says("CUDA error 700 (CUDA_ERROR_ILLEGAL_ADDRESS): an illegal memory access was encountered"));
    CHECK(launch("later") == TN_SYSTEM && says("later: the GPU cannot be used any more in this process"));
    CHECK(says("earlier error: op: kernel made_up_f32"));
    CHECK(tni_cuda("a") == NULL && says("a: the GPU cannot be used any more"));
}

/* ---- TENON_SYNC -------------------------------------------------------------------------------------------------- */

static tn_status launch_watched(const tn_call *call, void *state) {
    const tn_launch l = {.kernel = (cu_kernel)(uintptr_t)64, .name = "made_up_f32", .grid = 3, .block = 128};
    (void)state;
    return tn_cuda_launch(call, &l, NULL);
}

static tn_status run_watched(const char *sync) {
    static const tn_kernel kernels[] = {{.name = "made_up", .device = TN_CUDA, .run = launch_watched}, {0}};
    static const tn_op row = {.signature = "watched(x: T[*s]) -> y: T[*s]", .doc = "Nothing.", .kernels = kernels};
    const tn_op *const rows[] = {&row};
    static float memory[2][32];
    int64_t shape[] = {4, 8};
    tn_tensor x = tn_dense(memory[0], TN_F32, 2, shape), y = tn_dense(memory[1], TN_F32, 2, shape);
    x.device = y.device = (tn_device){TN_CUDA, 0};
    setenv("TENON_SYNC", sync, 1);
    tni_watch_forget(); /* the parent has looked before */
    if (!tn_find("watched")) CHECK(tni_table_add(rows, 1) == TN_OK);
    return tn_run(tn_find("watched"),
                  &(tn_args){.in = (const tn_tensor *[]){&x}, .n_in = 1, .out = (tn_tensor *[]){&y}, .n_out = 1},
                  streaming());
}

static void test_error_is_late(void) {
    CHECK(run_watched("0") == TN_OK); /* and whoever waits next is told of an error that is not theirs */
}

static void test_error_is_named(void) {
    CHECK(run_watched("1") == TN_SYSTEM && says("watched: kernel 'made_up' failed: "));
    CHECK(says("CUDA error 700 (CUDA_ERROR_ILLEGAL_ADDRESS): an illegal memory access"));
    CHECK(says("the call was x: f32[4, 8], y: f32[4, 8]"));
}

static void test_capture_is_not_waited_for(void) {
    const int *waits = dlsym(RTLD_DEFAULT, "fake_waits");
    CHECK(waits && run_watched("1") == TN_OK && *waits == 0);
}

static void test_wrong_image(void) {
    cu_kernel kernel;
    CHECK(tni_cuda("a") != NULL);
    const char *unit = tni_images[0].unit;
    tn_status status = tni_cuda_kernel("op", 0, unit ? unit : "softmax", "name", &kernel);
    if (unit && tni_image_for(unit, 9, 0)) {
        CHECK(status == TN_SYSTEM && says("op: loading the kernels of '") && says("CUDA error 209"));
    } else {
        CHECK(status == TN_UNSUPPORTED && says("op: "));
    }
}

/* ---- forks ------------------------------------------------------------------------------------------------------- */

static void child_of_fork(void) {
    const tn_gpu *found;
    CHECK(!tni_cuda("a") && says("a: CUDA was used before this process was forked"));
    CHECK(tni_gpu_get("a", 0, &found) == TN_SYSTEM && says("fork"));
    if (has_cuda_kernel("softmax")) CHECK(run_softmax(gpu, gpu, NULL) == TN_SYSTEM && says("fork"));
    float x[6] = {1, 2, 3, 4, 5, 6}, y[6] = {0};
    int64_t shape[] = {2, 3};
    tn_tensor a = tn_dense(x, TN_F32, 2, shape), b = tn_dense(y, TN_F32, 2, shape);
    const tn_tensor *in[] = {&a};
    tn_tensor *out[] = {&b};
    tn_args args = {.in = in, .n_in = 1, .out = out, .n_out = 1};
    CHECK(tn_run(tn_find("softmax"), &args, NULL) == TN_OK && y[2] > y[1]); /* the CPU goes on */
}

static void test_fork(void) {
    CHECK(tni_cuda("a") != NULL);
    in_child(child_of_fork, NULL);
    CHECK(tni_cuda("a") != NULL); /* the parent keeps it */
}

int main(int argc, char **argv) {
    fake_driver = argc > 1 ? argv[1] : "fake_cuda.so";
    test_choice();
    test_built_in();
    test_idle();
    test_mixed();
    in_child(test_missing, NULL);
    const struct {
        const char *what;
        void (*test)(void);
    } rows[] = {{"does not start", test_does_not_start},
                {"old", test_old},
                {"no GPU", test_no_gpu},
                {"lacks a function", test_lacks},
                {"works", test_gpus},
                {"works", test_contexts},
                {"works", test_memory},
                {"works", test_launch},
                {"works", test_find},
                {"works", test_cannot_find},
                {"works", test_launch_shapes},
                {"works", test_fork},
                {"works", test_param},
                {"works", test_use},
                {"works", test_streams},
                {"no memory", test_no_memory},
                {"no memory", test_param_no_memory},
                {"illegal access", test_sticky},
                {"late illegal access", test_error_is_late},
                {"late illegal access", test_error_is_named},
                {"captures", test_capture_is_not_waited_for},
                {"wrong image", test_wrong_image}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) in_child(rows[i].test, rows[i].what);
    return test_end();
}
