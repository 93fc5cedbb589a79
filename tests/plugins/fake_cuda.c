/* A CUDA driver for machines without one: two GPUs of memory that is the host's, kernels that do nothing unless their
 * image is made up too (fake_cuda.h). What goes wrong with it is set by FAKE_CUDA, so that the loader and its messages
 * can be tested anywhere. Built as libcuda.so.1: opened first, it is what the library finds under that name. */
#include "fake_cuda.h"

#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DEVICES = 2, DEEPEST = 16, MOST_THREADS = 1024 };
enum {
    INVALID_VALUE = 1,
    NO_DEVICE = 100,
    INVALID_IMAGE = 200,
    NO_CONTEXT = 201,
    NO_BINARY = 209,
    NO_SUCH_NAME = 500,
    ILLEGAL_ADDRESS = 700,
};

static int broken; /* a kernel has ended the context: every call says so from now on */

static int is(const char *what) {
    const char *set = getenv("FAKE_CUDA");
    return set && strcmp(set, what) == 0;
}

/* ---- the driver and its GPUs ------------------------------------------------------------------------------------- */

static int init(unsigned flags) {
    (void)flags;
    if (is("crashes")) abort();
    while (is("hangs")) pause();
    return is("does not start") ? NO_DEVICE : 0;
}
__attribute__((visibility("default"))) int cuDriverGetVersion(int *version);
int cuDriverGetVersion(int *version) {
    *version = is("old") ? 11080 : 12040;
    return 0;
}
static int error_name(int error, const char **name) {
    *name = error == ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "CUDA_ERROR_OTHER";
    return 0;
}
static int error_text(int error, const char **text) {
    *text = error == ILLEGAL_ADDRESS ? "an illegal memory access was encountered" : "something else";
    return 0;
}
static int count(int *n) {
    *n = is("no GPU") ? 0 : DEVICES;
    return 0;
}
static int device_name(char *name, int length, int device) {
    snprintf(name, (size_t)length, "Fake GPU %d", device);
    return 0;
}
static int total_memory(size_t *bytes, int device) {
    (void)device;
    *bytes = (size_t)80 << 30;
    return 0;
}
/* Where kernels are asked for (test_kernels.c): an H200 and an A100. */
static int asks(void) {
    return is("kernels") || is("no cluster fits");
}
static int attribute(int *value, int which, int device) {
    enum { SMS = 16, L2 = 38, SM_THREADS = 39, MAJOR = 75, MINOR = 76, SM_SHARED = 81, BLOCK_SHARED = 97 };
    const int old = asks() && device == 1;
    *value = which == SMS ? 132 : which == MAJOR ? 9 - old : which == MINOR ? 0 : 1024;
    if (asks() && which == L2) *value = 50 << 20;
    if (asks() && which == SM_THREADS) *value = 2048;
    if (asks() && which == SM_SHARED) *value = (old ? 164 : 228) << 10;
    if (asks() && which == BLOCK_SHARED) *value = (old ? 163 : 227) << 10;
    return 0;
}

/* ---- contexts ---------------------------------------------------------------------------------------------------- */

static char contexts[DEVICES];
static int active[DEVICES];
static __thread char *stack[DEEPEST];
static __thread int depth;

static int retain(void **context, int device) {
    if (is("no context")) abort();
    active[device] = 1;
    *context = &contexts[device];
    return 0;
}
static int state(int device, unsigned *flags, int *is_active) {
    *flags = 0;
    *is_active = active[device];
    return 0;
}
static int current(void **context) {
    *context = depth ? stack[depth - 1] : NULL;
    return 0;
}
static int current_device(int *device) {
    if (!depth) return NO_CONTEXT;
    *device = (int)(stack[depth - 1] - contexts);
    return 0;
}
static int push(void *context) {
    stack[depth++] = context;
    return broken ? ILLEGAL_ADDRESS : 0;
}
static int set_current(void *context) {
    if (depth) depth--;
    if (context) stack[depth++] = context;
    return 0;
}
static int pop(void **context) {
    if (!depth) return NO_CONTEXT;
    *context = stack[--depth];
    return 0;
}

/* The GPU whose context this thread has; -1: none. For functions that must be called with one. */
__attribute__((visibility("default"))) int fake_current(void);
int fake_current(void) {
    return depth ? (int)(stack[depth - 1] - contexts) : -1;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* A handle like no other. Nobody looks into one, so there is nothing to give back. */
static int make(void **thing) {
    static uintptr_t last = 1 << 20;
    *thing = (void *)__atomic_add_fetch(&last, 16, __ATOMIC_RELAXED);
    return 0;
}
static int make_second(void *where, void **thing) {
    (void)where;
    return make(thing);
}

static _Atomic size_t in_use, pool_used, pool_high;

static int allocate(uint64_t *data, size_t bytes) {
    if (is("no memory")) return 2;
    void *memory = aligned_alloc(256, (bytes + 255) / 256 * 256 + 256);
    *data = (uintptr_t)memory;
    in_use += malloc_usable_size(memory);
    return broken ? ILLEGAL_ADDRESS : 0;
}
static int allocate_ordered(uint64_t *data, size_t bytes, void *pool, void *stream) {
    (void)pool, (void)stream;
    const int error = allocate(data, bytes);
    if (error) return error;
    pool_used += malloc_usable_size((void *)(uintptr_t)*data);
    if (pool_used > pool_high) pool_high = pool_used;
    return 0;
}
static int pool_attribute(void *pool, int which, uint64_t *value) {
    enum { RESERVED = 5, USED = 7, USED_HIGH = 8 };
    (void)pool;
    *value = which == USED ? pool_used : which == USED_HIGH ? pool_high : which == RESERVED ? pool_high : 0;
    return 0;
}
static int set_pool_attribute(void *pool, int which, const uint64_t *value) {
    (void)pool;
    if (which == 8 && *value != 0) return 1; /* the driver takes nothing but 0 */
    if (which == 8) pool_high = pool_used;
    return 0;
}
static int allocate_pinned(void **data, size_t bytes, unsigned flags) {
    (void)flags;
    uint64_t memory = 0;
    int error = allocate(&memory, bytes);
    *data = (void *)(uintptr_t)memory;
    return error;
}
static int release(uint64_t data) {
    in_use -= malloc_usable_size((void *)(uintptr_t)data);
    free((void *)(uintptr_t)data);
    return 0;
}
static int release_ordered(uint64_t data, void *stream) {
    (void)stream;
    pool_used -= malloc_usable_size((void *)(uintptr_t)data);
    return release(data);
}
static int memory_info(size_t *unused, size_t *all) {
    static int looked;
    /* Another process comes between the first look and the second, and goes. */
    size_t of_others = is("neighbour") && looked++ % 4 == 1 ? (size_t)1 << 30 : 0;
    *all = (size_t)80 << 30;
    *unused = *all - in_use - of_others;
    return 0;
}
/* Host and device memory are one, so copies in all directions are, too. */
static int copy(void *to, const void *from, size_t bytes, void *stream) {
    (void)stream;
    memcpy(to, from, bytes);
    return 0;
}
/* What is that large is there to take time, which nothing does here. */
static int fill(void *to, unsigned char value, size_t bytes, void *stream) {
    (void)stream;
    memset(to, value, bytes < (size_t)64 << 20 ? bytes : 1);
    return 0;
}
/* Events that were recorded, and how many streams were told to wait for one. */
enum { EVENTS = 4096 };
static void *recorded[EVENTS];
static _Atomic int n_recorded;
__attribute__((visibility("default"))) _Atomic int fake_holds;
static int record(void *event, void *stream) {
    (void)stream;
    if (!event) return 400;
    recorded[n_recorded++ % EVENTS] = event;
    return 0;
}
static int is_recorded(const void *event) {
    for (int i = 0; i < EVENTS; i++) {
        if (recorded[i] && recorded[i] == event) return 1;
    }
    return 0;
}
static int hold(void *stream, void *event, unsigned flags) {
    if (!stream || !is_recorded(event) || flags) return 400;
    fake_holds++;
    return 0;
}
static int elapsed(float *milliseconds, void *begin, void *end) {
    if (!is_recorded(begin) || !is_recorded(end)) return 400;
    *milliseconds = 1;
    return 0;
}
static int bus_id(char *text, int length, int device) {
    snprintf(text, (size_t)length, "0000:%02x:00.0", device);
    return 0;
}

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

enum { LIBRARIES = 64 };
static fake_code *libraries[LIBRARIES]; /* of made-up code */
static _Atomic int n_libraries;
__attribute__((visibility("default"))) _Atomic int fake_loads; /* how often an image was loaded */

static int load_made_up(void **library, const fake_code *code) {
    if (code->arch && code->arch != 90) return NO_BINARY;
    fake_code *copy = malloc(sizeof *copy);
    memcpy(copy, code, sizeof *copy);
    libraries[n_libraries++] = copy;
    *library = copy;
    return 0;
}
static int load(void **library, const void *code, int *a, void **b, unsigned c, int *d, void **e, unsigned f) {
    (void)a, (void)b, (void)c, (void)d, (void)e, (void)f;
    fake_loads++;
    if (is("wrong image")) return NO_BINARY;
    if (strcmp(code, FAKE_CODE) == 0) return load_made_up(library, code);
    if (strncmp(code, "nonsense", 8) == 0) return INVALID_IMAGE;
    *library = (void *)(uintptr_t)code;
    return 0;
}
static fake_code *made_up(void *library) {
    for (int i = 0; i < n_libraries; i++) {
        if (libraries[i] == library) return library;
    }
    return NULL;
}
/* The one that a handle stands for; NULL: it does nothing. */
static const fake_kernel *kernel_of(void *handle) {
    for (int i = 0; i < n_libraries; i++) {
        for (const fake_kernel *k = libraries[i]->kernels; k->name; k++) {
            if (k == handle) return k;
        }
    }
    return NULL;
}
/* Is told of every kernel that is asked for, and the code it is to be in. */
__attribute__((visibility("default"))) void (*fake_asked)(const char *code, const char *name);
/* Where it is set, kernels are what it finds, and fake_run runs them. */
__attribute__((visibility("default"))) void *(*fake_find)(const char *code, const char *name);
__attribute__((visibility("default"))) void (*fake_run)(void *kernel, const fake_launch *how, void **arguments);
static int find_kernel(void **kernel, void *library, const char *name) {
    fake_code *code = made_up(library);
    if (fake_asked) fake_asked(library, name);
    if (fake_find) {
        *kernel = fake_find(library, name);
        return *kernel ? 0 : NO_SUCH_NAME;
    }
    for (fake_kernel *k = code ? code->kernels : NULL; k && k->name; k++) {
        *kernel = k;
        if (strcmp(k->name, name) == 0) return 0;
    }
    return code ? NO_SUCH_NAME : make(kernel);
}
static int function_of(void **function, void *kernel) {
    *function = kernel;
    return depth ? 0 : NO_CONTEXT;
}
static int function_attribute(int *value, int which, void *function) {
    enum { THREADS = 0, REGISTERS = 4, ARCH = 6 };
    const fake_kernel *k = kernel_of(function);
    *value = which == THREADS ? MOST_THREADS : which == ARCH ? 90 : 0;
    if (k && which == THREADS && k->most_threads) *value = k->most_threads;
    if (k && which == REGISTERS) *value = k->registers;
    return 0;
}
static int fitting_blocks(int *most) {
    *most = 2;
    return 0;
}
static int fitting_clusters(int *most) {
    *most = is("no cluster fits") ? 0 : 2;
    return 0;
}
static int launch(const fake_launch *how, void *function, void **arguments, void **extra) {
    const fake_kernel *k = kernel_of(function);
    const uint64_t threads = (uint64_t)how->block[0] * how->block[1] * how->block[2];
    int most;
    (void)extra;
    function_attribute(&most, 0, function);
    if (!depth) return NO_CONTEXT;
    if (threads == 0 || threads > (uint64_t)most) return INVALID_VALUE;
    broken |= is("illegal access") || is("late illegal access");
    if (broken) return is("late illegal access") ? 0 : ILLEGAL_ADDRESS;
    if (k) k->run(how, arguments);
    if (fake_run) fake_run(function, how, arguments);
    return 0;
}
/* Where a kernel's error shows, most often. */
__attribute__((visibility("default"))) int fake_waits;
static int wait_stream(void *stream) {
    (void)stream;
    fake_waits++;
    return broken ? ILLEGAL_ADDRESS : 0;
}
static int is_capturing(void *stream, int *state) {
    (void)stream;
    *state = is("captures");
    return 0;
}
static int nothing(void) {
    return 0;
}

typedef void (*function)(void);
static const struct {
    const char *name;
    function to;
} functions[] = {
    {"cuInit", (function)init},
    {"cuGetErrorName", (function)error_name},
    {"cuGetErrorString", (function)error_text},
    {"cuDeviceGetCount", (function)count},
    {"cuDeviceGetName", (function)device_name},
    {"cuDeviceTotalMem", (function)total_memory},
    {"cuDeviceGetAttribute", (function)attribute},
    {"cuDevicePrimaryCtxRetain", (function)retain},
    {"cuDevicePrimaryCtxGetState", (function)state},
    {"cuCtxGetCurrent", (function)current},
    {"cuCtxGetDevice", (function)current_device},
    {"cuCtxPushCurrent", (function)push},
    {"cuCtxPopCurrent", (function)pop},
    {"cuMemPoolCreate", (function)make},
    {"cuMemAllocFromPoolAsync", (function)allocate_ordered},
    {"cuMemPoolGetAttribute", (function)pool_attribute},
    {"cuMemPoolSetAttribute", (function)set_pool_attribute},
    {"cuMemFreeAsync", (function)release_ordered},
    {"cuMemAlloc", (function)allocate},
    {"cuMemFree", (function)release},
    {"cuMemHostAlloc", (function)allocate_pinned},
    {"cuMemFreeHost", (function)release},
    {"cuMemGetInfo", (function)memory_info},
    {"cuMemcpyHtoDAsync", (function)copy},
    {"cuMemcpyDtoHAsync", (function)copy},
    {"cuMemcpyDtoDAsync", (function)copy},
    {"cuMemsetD8Async", (function)fill},
    {"cuStreamCreate", (function)make},
    {"cuStreamEndCapture", (function)make_second},
    {"cuStreamIsCapturing", (function)is_capturing},
    {"cuStreamSynchronize", (function)wait_stream},
    {"cuGraphInstantiateWithFlags", (function)make},
    {"cuEventCreate", (function)make},
    {"cuEventRecord", (function)record},
    {"cuStreamWaitEvent", (function)hold},
    {"cuEventElapsedTime", (function)elapsed},
    {"cuDeviceGetPCIBusId", (function)bus_id},
    {"cuCtxSetCurrent", (function)set_current},
    {"cuLibraryLoadData", (function)load},
    {"cuLibraryGetKernel", (function)find_kernel},
    {"cuKernelGetFunction", (function)function_of},
    {"cuFuncGetAttribute", (function)function_attribute},
    {"cuOccupancyMaxActiveBlocksPerMultiprocessor", (function)fitting_blocks},
    {"cuOccupancyMaxActiveClusters", (function)fitting_clusters},
    {"cuLaunchKernelEx", (function)launch},
};

__attribute__((visibility("default"))) int cuGetProcAddress_v2(const char *name, void **to, int version, uint64_t flags,
                                                               int *status);
int cuGetProcAddress_v2(const char *name, void **to, int version, uint64_t flags, int *status) {
    function found = (function)nothing;
    (void)version, (void)flags;
    if (is("old")) abort(); /* there was no such function then */
    *status = 0;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        if (strcmp(functions[i].name, name) == 0) found = functions[i].to;
    }
    if (is("lacks a function") && strcmp(name, "cuLaunchKernelEx") == 0) return 500;
    memcpy(to, &found, sizeof found);
    return 0;
}
