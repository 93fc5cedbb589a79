/* Opening NVRTC and compiling with it. */
#include "nvrtc.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "core/host/library.h"
#include "core/host/text.h"
#include "cuda.h"

typedef struct nvrtc_program *program; /* nvrtcProgram */

/* All of them are in NVRTC 11.2 and later. */
#define FUNCTIONS(X)                                                                                             \
    X(Version, (int *major, int *minor))                                                                         \
    X(GetNumSupportedArchs, (int *count))                                                                        \
    X(GetSupportedArchs, (int *archs))                                                                           \
    X(CreateProgram, (program * made, const char *source, const char *name, int n_headers, const char **headers, \
                      const char **include_names))                                                               \
    X(DestroyProgram, (program * made))                                                                          \
    X(CompileProgram, (program made, int n_options, const char *const *options))                                 \
    X(GetCUBINSize, (program made, size_t * bytes))                                                              \
    X(GetCUBIN, (program made, char *code))                                                                      \
    X(GetPTXSize, (program made, size_t * bytes))                                                                \
    X(GetPTX, (program made, char *code))                                                                        \
    X(GetProgramLogSize, (program made, size_t * bytes))                                                         \
    X(GetProgramLog, (program made, char *log))                                                                  \
    X(AddNameExpression, (program made, const char *expression))                                                 \
    X(GetLoweredName, (program made, const char *expression, const char **name))

#define DEVICE_HEADER "tenon/device.cuh"
enum { MOST_ARCHS = 128, MOST_OPTIONS = 48, MOST_HEADERS = 32, LEAST_MAJOR = 12 };

static struct {
#define FIELD(name, arguments) int(*name) arguments;
    FUNCTIONS(FIELD)
#undef FIELD
    const char *(*GetErrorString)(int error);
    int version;
    int n_archs, archs[MOST_ARCHS];
} nvrtc;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static char why_not[256];
static char file[PATH_MAX]; /* it was opened from */

/* ---- opening it -------------------------------------------------------------------------------------------------- */

const char *const tni_cuda_folders[] = {"/usr/local/cuda/lib64", "/opt/cuda/lib64", NULL};
static const char *const names[] = {"libnvrtc.so.13", "libnvrtc.so.12", NULL};
static const char *const wheels[] = {"nvidia/cu13/lib/libnvrtc.so.13", "nvidia/cuda_nvrtc/lib/libnvrtc.so.12", NULL};
static const tni_library places = {"TENON_NVRTC", names, wheels, tni_cuda_folders};

static bool look_up(void *library) {
    const struct {
        const char *name;
        void **function;
    } functions[] = {
#define ROW(name, arguments) {"nvrtc" #name, (void **)&nvrtc.name},
        FUNCTIONS(ROW)
#undef ROW
            {"nvrtcGetErrorString", (void **)&nvrtc.GetErrorString},
    };
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        *functions[i].function = dlsym(library, functions[i].name);
        if (*functions[i].function) continue;
        snprintf(why_not, sizeof why_not, "the NVRTC that was found has no %s; version 12 or newer is needed",
                 functions[i].name);
        return false;
    }
    return true;
}

static void open_once(void) {
    void *library = tni_library_open(&places);
    int major = 0, minor = 0, count = 0;
    if (!library) {
        snprintf(why_not, sizeof why_not,
                 "there is no NVRTC (libnvrtc.so.13 or .12), which compiles formulas for the GPU; get it with: pip "
                 "install nvidia-cuda-nvrtc-cu12, or set TENON_NVRTC to the file");
        return;
    }
    if (!tni_library_file(library, file, sizeof file) || !look_up(library)) return;
    nvrtc.Version(&major, &minor);
    if (major < LEAST_MAJOR) {
        snprintf(why_not, sizeof why_not, "the NVRTC that was found is %d.%d; version 12 or newer is needed", major,
                 minor);
        return;
    }
    if (nvrtc.GetNumSupportedArchs(&count) == 0 && count <= MOST_ARCHS && nvrtc.GetSupportedArchs(nvrtc.archs) == 0) {
        nvrtc.n_archs = count;
    }
    nvrtc.version = major * 1000 + minor * 10;
}

int tni_nvrtc_version(const char *wanted) {
    pthread_once(&once, open_once);
    if (!nvrtc.version) tn_fail(TN_SYSTEM, "%s: %s", wanted, why_not);
    return nvrtc.version;
}

const char *tni_nvrtc_file(void) {
    pthread_once(&once, open_once);
    return file;
}

/* ---- compiling --------------------------------------------------------------------------------------------------- */

static tn_status failed(const char *wanted, const char *what, int error) {
    return tn_fail(TN_SYSTEM, "%s: NVRTC %d.%d: %s: %s", wanted, nvrtc.version / 1000, nvrtc.version % 1000 / 10, what,
                   nvrtc.GetErrorString(error));
}

/* The status of a source that does not compile, with the compiler's own words. */
static tn_status refused(const char *wanted, program made, int error) {
    size_t bytes = 0;
    char *log = nvrtc.GetProgramLogSize(made, &bytes) == 0 && bytes > 1 ? tni_malloc(bytes) : NULL;
    if (!log || nvrtc.GetProgramLog(made, log) != 0) {
        tni_free(log);
        return failed(wanted, "does not compile", error);
    }
    const tn_status status = tn_fail(TN_BAD_VALUE, "%s: does not compile:\n%s", wanted, log);
    tni_free(log);
    return status;
}

static bool knows(int arch) {
    for (int i = 0; i < nvrtc.n_archs; i++) {
        if (nvrtc.archs[i] == arch) return true;
    }
    return false;
}

bool tni_nvrtc_knows(int major, int minor) {
    return knows(major * 10 + minor);
}

/* The newest architecture that is not newer than the GPU: PTX for it runs there. */
static int nearest(int arch) {
    int best = 0;
    for (int i = 0; i < nvrtc.n_archs; i++) {
        if (nvrtc.archs[i] <= arch && nvrtc.archs[i] > best) best = nvrtc.archs[i];
    }
    return best;
}

static tn_status take_code(const char *wanted, program made, tni_compiled_code *code) {
    int error = code->is_ptx ? nvrtc.GetPTXSize(made, &code->bytes) : nvrtc.GetCUBINSize(made, &code->bytes);
    if (error) return failed(wanted, "asking for the code", error);
    code->data = tni_malloc(code->bytes ? code->bytes : 1);
    if (!code->data) return TN_NO_MEMORY;
    error = code->is_ptx ? nvrtc.GetPTX(made, code->data) : nvrtc.GetCUBIN(made, code->data);
    if (!error) return TN_OK;
    tni_free(code->data);
    code->data = NULL;
    return failed(wanted, "taking the code", error);
}

static tn_status take_names(const char *wanted, program made, const char *const *kernels, tni_compiled_code *code) {
    tni_text text = {0};
    for (int error; kernels && *kernels; kernels++) {
        const char *name;
        error = nvrtc.GetLoweredName(made, *kernels, &name);
        if (error) {
            tni_free(text.data);
            return failed(wanted, *kernels, error);
        }
        tni_text_add(&text, "%s\n", name);
    }
    code->names = text.data;
    return text.failed ? TN_NO_MEMORY : TN_OK;
}

static int begin(const tni_nvrtc_job *job, program *made) {
    const char *called[MOST_HEADERS], *texts[MOST_HEADERS];
    int n = 0;
    if (strstr(job->source, DEVICE_HEADER)) {
        called[n] = DEVICE_HEADER;
        texts[n++] = tni_device_text;
    }
    for (const tni_header *h = job->headers; h && h->name && n < MOST_HEADERS; h++) {
        called[n] = h->name;
        texts[n++] = h->text;
    }
    int error = nvrtc.CreateProgram(made, job->source, job->name, n, texts, called);
    for (const char *const *k = job->kernels; k && *k && !error; k++) error = nvrtc.AddNameExpression(*made, *k);
    return error;
}

tn_status tni_nvrtc_run(const char *wanted, const tni_nvrtc_job *job, tni_compiled_code *made) {
    const char *all[MOST_OPTIONS];
    char arch[32];
    int n = 0;
    program compiled = NULL;
    *made = (tni_compiled_code){0};
    if (!tni_nvrtc_version(wanted)) return TN_SYSTEM;
    const int exact = job->major * 10 + job->minor, best = knows(exact) ? exact : nearest(exact);
    if (!best) {
        return tn_fail(TN_UNSUPPORTED, "%s: NVRTC %d.%d cannot compile for sm_%d or anything older", wanted,
                       nvrtc.version / 1000, nvrtc.version % 1000 / 10, exact);
    }
    made->is_ptx = best != exact;
    snprintf(arch, sizeof arch, "-arch=%s_%d", made->is_ptx ? "compute" : "sm", best);
    all[n++] = arch;
    all[n++] = "-std=c++17";
    for (const char *const *o = job->options; o && *o; o++) {
        if (n == MOST_OPTIONS) return tn_fail(TN_BAD_VALUE, "%s: at most %d options for NVRTC", wanted, MOST_OPTIONS - 2);
        all[n++] = *o;
    }
    int error = begin(job, &compiled);
    if (error) return failed(wanted, "beginning", error);
    error = nvrtc.CompileProgram(compiled, n, all);
    tn_status status = error ? refused(wanted, compiled, error) : take_code(wanted, compiled, made);
    if (status == TN_OK) status = take_names(wanted, compiled, job->kernels, made);
    if (status != TN_OK) tni_free(made->data), made->data = NULL;
    nvrtc.DestroyProgram(&compiled);
    return status;
}

tn_status tni_nvrtc_compile(const char *wanted, const char *name, const char *source, int major, int minor,
                            const char *const *options, tni_compiled_code *made) {
    const tni_nvrtc_job job = {name, source, major, minor, options, NULL, NULL};
    return tni_nvrtc_run(wanted, &job, made);
}

/* ---- loading ----------------------------------------------------------------------------------------------------- */

tn_status tni_cuda_load(const char *wanted, int index, const tni_compiled_code *code, cu_library *library) {
    tni_cuda_scope scope;
    TN_TRY(tni_cuda_enter(wanted, index, &scope));
    const tni_cuda_api *cu = tni_cuda(wanted);
    const int error = cu ? tni_cuda_load_code(cu, code->data, library) : 0;
    tni_cuda_leave(&scope);
    if (!cu) return TN_SYSTEM;
    return error ? tni_cuda_failed(wanted, "loading what was compiled", error) : TN_OK;
}
