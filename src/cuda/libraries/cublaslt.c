/* Opening cuBLASLt, and its handles. */
#include "cublaslt.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/driver/nvrtc.h"

enum { LEAST_VERSION = 120000, MOST_CONTEXTS = 64 };

static tni_cublaslt_api api;
static tni_cublaslt_found found;
static char why_not[512];
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* ---- opening it -------------------------------------------------------------------------------------------------- */

static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12", NULL};
static const char *const wheels[] = {"nvidia/cu13/lib/libcublasLt.so.13", "nvidia/cublas/lib/libcublasLt.so.12", NULL};
static const tni_library places = {"TENON_CUBLASLT", names, wheels, tni_cuda_folders};

__attribute__((format(printf, 1, 2))) static void give_up(const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(why_not, sizeof why_not, format, args);
    va_end(args);
}

static bool look_up(void *library) {
    const struct {
        const char *name;
        void **function;
    } functions[] = {
#define ROW(name, result, arguments) {"cublasLt" #name, (void **)&api.name},
        TNI_LT_FUNCTIONS(ROW)
#undef ROW
    };
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        *functions[i].function = dlsym(library, functions[i].name);
        if (*functions[i].function) continue;
        give_up("the cuBLASLt that was found (%s) has no %s; version 12 or newer is needed", found.file,
                functions[i].name);
        return false;
    }
    return true;
}

static void open_once(void) {
    const char *set = getenv("TENON_CUBLASLT");
    found.why_not = why_not;
    found.is_off = set && strcmp(set, "none") == 0;
    if (found.is_off) {
        give_up("TENON_CUBLASLT=none turns cuBLASLt off");
        return;
    }
    void *library = tni_library_open(&places);
    if (!library) {
        give_up("there is no cuBLASLt (libcublasLt.so.13 or .12); get it with: pip install nvidia-cublas, or set "
                "TENON_CUBLASLT to the file");
        return;
    }
    size_t (*ask)(void) = (size_t(*)(void))dlsym(library, "cublasLtGetVersion");
    found.version = ask ? (int)ask() : 0;
    if (!tni_library_file(library, found.file, sizeof found.file)) {
        give_up("the file that cuBLASLt was opened from is not known");
    } else if (ask && found.version < LEAST_VERSION) {
        give_up("the cuBLASLt that was found (%s) is %d.%d; version 12 or newer is needed", found.file,
                found.version / 10000, found.version / 100 % 100);
    }
    if (why_not[0] || !look_up(library)) return;
    api.library = library;
    api.version = found.version;
}

const tni_cublaslt_found *tni_cublaslt_look(void) {
    pthread_once(&once, open_once);
    return &found;
}

const tni_cublaslt_api *tni_cublaslt(const char *wanted) {
    pthread_once(&once, open_once);
    if (!why_not[0] && api.version) return &api;
    tn_fail(TN_UNSUPPORTED, "%s: %s", wanted, why_not[0] ? why_not : "cuBLASLt cannot be used");
    return NULL;
}

tn_status tni_cublaslt_failed(tn_status as, const char *wanted, const char *what, int error) {
    return tn_fail(as, "%s: cuBLASLt %d.%d.%d: %s: %s (%s)", wanted, api.version / 10000, api.version / 100 % 100,
                   api.version % 100, what, api.GetStatusName(error), api.GetStatusString(error));
}

size_t tni_cublaslt_workspace(const tn_gpu *gpu) {
    return (size_t)(gpu->major == 9 ? 32 : 4) << 20;
}

/* ---- handles ----------------------------------------------------------------------------------------------------- */

/* Each context has its own. One that was destroyed may have had the place in memory that another one has now: the
 * driver's number tells them apart. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    cu_context context;
    unsigned long long id;
    int index; /* of its GPU */
    lt_handle handle;
    int error; /* with which there is none */
} handles[MOST_CONTEXTS];
static int n_handles;

/* Making one allocates: no part of a graph that is captured meanwhile. */
static int create(const tni_cuda_api *cu, int index, cu_context context, unsigned long long id, int *at) {
    enum { ALLOC_FAILED = 3 }; /* CUBLAS_STATUS_ALLOC_FAILED */
    for (*at = 0; *at < n_handles; (*at)++) {
        if (handles[*at].context == context && handles[*at].id == id) return handles[*at].error;
    }
    if (*at == MOST_CONTEXTS) return ALLOC_FAILED;
    lt_handle handle = NULL;
    const int mode = tni_cuda_begin_loading(cu);
    const int error = api.Create(&handle);
    tni_cuda_end_loading(cu, mode);
    handles[n_handles].context = context;
    handles[n_handles].id = id;
    handles[n_handles].index = index;
    handles[n_handles].handle = handle;
    handles[n_handles++].error = error;
    return error;
}

tn_status tni_cublaslt_handle(const char *wanted, int index, lt_handle *handle) {
    const tni_cuda_api *cu = tni_cuda(wanted);
    if (!cu || !tni_cublaslt(wanted)) return TN_UNSUPPORTED;
    cu_context context = NULL;
    unsigned long long id = 0;
    int at = 0, error = cu->cuCtxGetCurrent(&context);
    if (!error) error = cu->cuCtxGetId(context, &id);
    if (error) {
        tni_cuda_failed(wanted, "looking for the context of cuBLASLt", error);
        return TN_UNSUPPORTED;
    }
    pthread_mutex_lock(&lock);
    error = create(cu, index, context, id, &at);
    *handle = error ? NULL : handles[at].handle;
    pthread_mutex_unlock(&lock);
    return error ? tni_cublaslt_failed(TN_UNSUPPORTED, wanted, "it does not start", error) : TN_OK;
}

/* Those of Tenon's own contexts. Others may be gone, and their handles with them. */
void tni_cublaslt_close(void) {
    const char *wanted = "closing cuBLASLt";
    pthread_mutex_lock(&lock);
    for (int i = 0; i < n_handles; i++) {
        tni_cuda_scope scope;
        cu_context context = NULL;
        if (!handles[i].handle || tni_cuda_enter(wanted, handles[i].index, &scope) != TN_OK) continue;
        const tni_cuda_api *cu = tni_cuda(wanted);
        if (cu && cu->cuCtxGetCurrent(&context) == 0 && context == handles[i].context) api.Destroy(handles[i].handle);
        tni_cuda_leave(&scope);
    }
    n_handles = 0;
    pthread_mutex_unlock(&lock);
}

/* ---- for authors ------------------------------------------------------------------------------------------------- */

tn_status tn_cuda_cublaslt(const tn_call *call, tn_cublaslt *made) {
    const tn_gpu *gpu;
    tni_cuda_scope scope;
    const tni_cublaslt_api *lt = tni_cublaslt(call->name);
    *made = (tn_cublaslt){0};
    if (!lt) return TN_UNSUPPORTED;
    TN_TRY(tn_cuda_gpu(call, &gpu));
    TN_TRY(tni_cuda_enter(call->name, call->device.index, &scope));
    const tn_status status = tni_cublaslt_handle(call->name, call->device.index, &made->handle);
    tni_cuda_leave(&scope);
    made->library = lt->library;
    made->version = lt->version;
    made->workspace = tni_cublaslt_workspace(gpu);
    return status;
}

tn_status tn_cuda_cublaslt_failed(const tn_call *call, const char *what, int error) {
    if (error == 0 || !tni_cublaslt(call->name)) return error ? TN_SYSTEM : TN_OK;
    return tni_cublaslt_failed(TN_SYSTEM, call->name, what, error);
}
