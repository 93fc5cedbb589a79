/* Opening the CUDA driver. */
#include "driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "core/host/library.h"

enum { LEAST_VERSION = 12000 };

static tni_cuda_api api;
static tni_cuda_found found;
static char why_not[512];      /* what is wrong, for everybody who asks */
static char sticky[512];       /* the error that ended the context; "" while all is well */
static _Atomic bool is_broken; /* sticky is set */
static _Atomic bool is_forked; /* this process is a fork of one that had opened the driver */

static bool give_up(const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(why_not, sizeof why_not, format, args);
    va_end(args);
    return false;
}

typedef int (*proc_address)(const char *name, void **function, int version, uint64_t flags, int *status);

static bool look_up(void *library) {
    proc_address find = (proc_address)dlsym(library, "cuGetProcAddress_v2"); /* CUDA 12.0 */
    if (!find) return give_up("the NVIDIA driver has no cuGetProcAddress_v2; Tenon needs driver 525 (CUDA 12.0)");
    const struct {
        const char *name;
        int version;
        void **function;
    } functions[] = {
#define ROW(name, version, arguments) {#name, version, (void **)&api.name},
        TNI_CUDA_FUNCTIONS(ROW)
#undef ROW
    };
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        int status;
        if (find(functions[i].name, functions[i].function, functions[i].version, 0, &status) != 0 ||
            !*functions[i].function) {
            return give_up("the NVIDIA driver has no %s; Tenon needs driver 525 (CUDA 12.0) or newer",
                           functions[i].name);
        }
    }
    return true;
}

/* Every driver tells its version, even one that lacks all the rest. */
static bool is_new_enough(void *library) {
    int (*ask)(int *) = (int (*)(int *))dlsym(library, "cuDriverGetVersion");
    if (ask) ask(&api.version);
    if (api.version >= LEAST_VERSION) return true;
    return give_up("the NVIDIA driver is for CUDA %d.%d, Tenon needs CUDA 12.0 (driver 525) or newer",
                   api.version / 1000, api.version % 1000 / 10);
}

static bool open_driver(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) return give_up("there is no NVIDIA driver (libcuda.so.1 cannot be opened)");
    found.opened = tni_library_file(library, found.file, sizeof found.file);
    if (!is_new_enough(library) || !look_up(library)) return false;
    const char *text = "no reason given";
    int error = api.cuInit(0);
    found.error = error;
    found.started = !error;
    if (error) {
        api.cuGetErrorString(error, &text);
        return give_up("the NVIDIA driver does not start: CUDA error %d: %s", error, text);
    }
    error = api.cuDeviceGetCount(&api.n_devices);
    found.error = error;
    if (error || api.n_devices == 0) return give_up("the NVIDIA driver sees no GPU (CUDA_VISIBLE_DEVICES?)");
    return true;
}

static void note_fork(void) {
    atomic_store_explicit(&is_forked, true, memory_order_relaxed);
}

static void open_once(void) {
    pthread_atfork(NULL, NULL, note_fork);
    if (!open_driver() && !why_not[0]) give_up("the NVIDIA driver cannot be used");
    found.version = api.version;
    found.n_devices = api.n_devices;
    found.why_not = why_not;
}

static const tni_cuda_api *refuse(const char *wanted) {
    if (why_not[0]) {
        tn_fail(TN_SYSTEM, "%s: %s", wanted, why_not);
    } else if (atomic_load_explicit(&is_forked, memory_order_relaxed)) {
        tn_fail(TN_SYSTEM,
                "%s: CUDA was used before this process was forked, and a fork cannot go on with it; start the process "
                "with 'spawn', or use CUDA only in the child",
                wanted);
    } else {
        tn_fail(TN_SYSTEM, "%s: the GPU cannot be used any more in this process, because of an earlier error: %s",
                wanted, sticky);
    }
    return NULL;
}

static pthread_once_t once = PTHREAD_ONCE_INIT;

const tni_cuda_found *tni_cuda_look(void) {
    pthread_once(&once, open_once);
    return &found;
}

const tni_cuda_api *tni_cuda(const char *wanted) {
    pthread_once(&once, open_once);
    bool fine = !why_not[0] && !atomic_load_explicit(&is_forked, memory_order_relaxed) &&
                !atomic_load_explicit(&is_broken, memory_order_acquire);
    return fine ? &api : refuse(wanted);
}

tn_status tni_cuda_usable(const char *wanted) {
    return tni_cuda(wanted) ? TN_OK : TN_SYSTEM;
}

/* Errors that no later call of this process gets over. */
static bool is_sticky(int error) {
    static const int errors[] = {
        214 /* uncorrectable ECC error */,
        220 /* NVLink */,
        226 /* contained */,
        700 /* illegal address */,
        702 /* timeout */,
        709 /* context destroyed */,
        710 /* assert */,
        714 /* stack error */,
        715 /* illegal instruction */,
        716 /* misaligned address */,
        717 /* address space */,
        718 /* invalid pc */,
        719 /* launch failed */,
        721 /* tensor memory leak */,
        999 /* unknown */,
    };
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
        if (errors[i] == error) return true;
    }
    return false;
}

tn_status tni_cuda_failed(const char *wanted, const char *what, int error) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    const char *name = "?", *text = "?";
    api.cuGetErrorName(error, &name);
    api.cuGetErrorString(error, &text);
    char message[480];
    snprintf(message, sizeof message, "%s: %s: CUDA error %d (%s): %s", wanted, what, error, name, text);
    if (is_sticky(error)) {
        pthread_mutex_lock(&lock);
        if (!sticky[0]) memcpy(sticky, message, sizeof message);
        atomic_store_explicit(&is_broken, true, memory_order_release);
        pthread_mutex_unlock(&lock);
    }
    return tn_fail(error == 2 ? TN_NO_MEMORY : TN_SYSTEM, "%s", message);
}
