/* Checks of libraries that are opened when they are needed: where each is found, in which version, how many times. */
#include <ctype.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tenon/call.h>

#include "core/host/library.h"
#include "core/host/text.h"
#include "cuda/driver/cuda.h"
#include "cuda/driver/nvrtc.h"
#include "cuda/libraries/cublaslt.h"
#include "doctor.h"

static const char WANTED[] = "tenon doctor";

/* ---- NVRTC, which formulas need on the GPU ----------------------------------------------------------------------- */

static const char *get_nvrtc(void) {
    return driver_cuda_major() == 12 ? "python -m pip install nvidia-cuda-nvrtc-cu12"
                                     : "python -m pip install nvidia-cuda-nvrtc";
}

/* For the GPU at hand, or one that every NVRTC knows. */
static tn_status compile_something(void) {
    static const char source[] = "extern \"C\" __global__ void twice(float *x) { x[threadIdx.x] *= 2; }";
    const tn_gpu *gpu;
    tni_compiled_code code = {0};
    const bool here = tni_gpu_count(WANTED) > 0 && tni_gpu_get(WANTED, 0, &gpu) == TN_OK;
    const tn_status status = tni_nvrtc_compile("a test", "test.cu", source, here ? gpu->major : 8,
                                               here ? gpu->minor : 0, NULL, &code);
    tni_free(code.data);
    return status;
}

static void judge_cuda_major(doctor_result *r, check_state state, int major, const char *fix) {
    const int driver = driver_cuda_major();
    char reason[160];
    if (!driver || major <= driver) return;
    snprintf(reason, sizeof reason, "what is made for CUDA %d needs driver %d; this one is for CUDA %d", major,
             least_driver(major), driver);
    judge(r, state, reason, "%s", fix);
}

/* One that goes with the driver; it must be named, as the newest that is found is taken. */
static const char NAME_NVRTC_12[] = "python -m pip install nvidia-cuda-nvrtc-cu12 && export TENON_NVRTC=$(python -c "
                                    "'import nvidia.cuda_nvrtc as m; print(m.__path__[0])')/lib/libnvrtc.so.12";

static void check_nvrtc(doctor_result *r) {
    const int version = tni_nvrtc_version(WANTED);
    const char *exact = getenv("TENON_NVRTC"), *colon = strstr(tn_last_error(), ": ");
    char why[512], reason[512];
    snprintf(why, sizeof why, "%s", !version && colon ? colon + 2 : "");
    const check_state bad = has_gpu() ? FAILED : WARNED; /* without a GPU nobody compiles for one */
    require(r, "NVRTC 12.0 or newer, not newer than the driver");
    if (exact && *exact && !dlopen(exact, RTLD_NOW | RTLD_LOCAL)) {
        snprintf(reason, sizeof reason, "TENON_NVRTC cannot be opened: %s", dlerror());
        judge(r, WARNED, reason, "unset TENON_NVRTC");
    }
    if (!version && !tni_nvrtc_file()[0]) {
        observe(r, "not found");
        judge(r, has_gpu() ? FAILED : SKIPPED, "formulas need it on the GPU", "%s", get_nvrtc());
    } else if (!version) {
        observe(r, "%s", tni_nvrtc_file());
        if (!(exact && *exact) && is_from_library_path(tni_nvrtc_file())) {
            judge(r, bad, why, LEAVE_LIBRARY_PATH);
        } else {
            judge(r, bad, why, exact && *exact ? "unset TENON_NVRTC; %s" : "%s", get_nvrtc());
        }
    } else {
        observe(r, "NVRTC %d.%d, %s", version / 1000, version % 1000 / 10, tni_nvrtc_file());
        judge_cuda_major(r, bad, version / 1000, NAME_NVRTC_12);
        if (compile_something() != TN_OK) judge(r, bad, tn_last_error(), "%s", get_nvrtc());
    }
}

/* ---- cuBLASLt, which products may take on the GPU ---------------------------------------------------------------- */

static const char *get_cublaslt(void) {
    return driver_cuda_major() == 12 ? "python -m pip install nvidia-cublas-cu12"
                                     : "python -m pip install nvidia-cublas";
}

static void check_cublaslt(doctor_result *r) {
    const tni_cublaslt_found *found = tni_cublaslt_look();
    const char *exact = getenv("TENON_CUBLASLT"), *unset = exact && *exact ? "unset TENON_CUBLASLT" : NULL;
    char reason[512];
    require(r, "cuBLASLt 12.0 or newer, not newer than the driver; without it, Tenon's own kernels make all products");
    if (unset && !found->is_off && !dlopen(exact, RTLD_NOW | RTLD_LOCAL)) {
        snprintf(reason, sizeof reason, "TENON_CUBLASLT cannot be opened: %s", dlerror());
        judge(r, WARNED, reason, "%s", unset);
    }
    if (!found->file[0]) {
        observe(r, found->is_off ? "turned off" : "not found");
        judge(r, SKIPPED, found->why_not, "%s", found->is_off ? unset : get_cublaslt());
        return;
    }
    const int v = found->version;
    if (v) observe(r, "cuBLASLt %d.%d.%d, %s", v / 10000, v / 100 % 100, v % 100, found->file);
    if (!v) observe(r, "%s", found->file);
    if (found->why_not[0]) judge(r, WARNED, found->why_not, "%s", unset ? unset : get_cublaslt());
    judge_cuda_major(r, WARNED, v / 10000, get_cublaslt());
}

/* ---- others ------------------------------------------------------------------------------------------------------ */

/* "13.0.0" or the like; false: it does not say. */
typedef bool (*ask_version)(void *library, char *text, size_t size, int *cuda);

typedef struct other {
    const char *id, *name;
    tni_library places;
    ask_version ask;
    int least;           /* its major version; 0: any */
    const char *package; /* of pip; NULL: none */
    const package_names *system;
} other;

static bool dotted(long long number, long long major_unit, char *text, size_t size) {
    snprintf(text, size, "%lld.%lld.%lld", number / major_unit, number % major_unit / 100, number % 100);
    return number > 0;
}

/* Before version 9 minor versions had their hundreds behind thousands. */
static bool ask_cudnn(void *library, char *text, size_t size, int *cuda) {
    size_t (*version)(void) = (size_t(*)(void))dlsym(library, "cudnnGetVersion");
    size_t (*runtime)(void) = (size_t(*)(void))dlsym(library, "cudnnGetCudartVersion");
    const long long number = version ? (long long)version() : 0;
    *cuda = runtime ? (int)(runtime() / 1000) : 0;
    return dotted(number, number < 10000 ? 1000 : 10000, text, size);
}

static bool ask_nccl(void *library, char *text, size_t size, int *cuda) {
    int (*version)(int *) = (int (*)(int *))dlsym(library, "ncclGetVersion");
    int number = 0;
    (void)cuda;
    return version && version(&number) == 0 && dotted(number, number < 10000 ? 1000 : 10000, text, size);
}

/* May be called before MPI is started. */
static bool ask_mpi(void *library, char *text, size_t size, int *cuda) {
    int (*version)(char *, int *) = (int (*)(char *, int *))dlsym(library, "MPI_Get_library_version");
    char words[8192] = ""; /* MPI_MAX_LIBRARY_VERSION_STRING of every make */
    int length = 0;
    (void)cuda;
    if (!version || version(words, &length) != 0) return false;
    snprintf(text, size, "%.*s", (int)strcspn(words, ",\n"), words);
    return true;
}

static bool ask_blas(void *library, char *text, size_t size, int *cuda) {
    const char *(*openblas)(void) = (const char *(*)(void))dlsym(library, "openblas_get_config");
    (void)cuda;
    snprintf(text, size, "%s", openblas ? openblas() : "of unknown make");
    return dlsym(library, "sgemm_") != NULL;
}

#define NAMES(...) ((const char *const[]){__VA_ARGS__, NULL})
static const package_names mpi_packages = {"libopenmpi3", "openmpi", "openmpi4", "openmpi",
                                           "install Open MPI: https://www.open-mpi.org"};
static const package_names blas_packages = {"libopenblas0", "openblas", "libopenblas0", "openblas",
                                            "install OpenBLAS: https://www.openblas.net"};

static const other others[] = {
    {"cudnn",
     "cuDNN",
     {NULL, NAMES("libcudnn.so.9", "libcudnn.so.8"), NAMES("nvidia/cudnn/lib/libcudnn.so.9"), tni_cuda_folders},
     ask_cudnn,
     9,
     "nvidia-cudnn-cu"},
    {"nccl",
     "NCCL",
     {NULL, NAMES("libnccl.so.2"), NAMES("nvidia/nccl/lib/libnccl.so.2"), NULL},
     ask_nccl,
     2,
     "nvidia-nccl-cu"},
    {"mpi",
     "MPI",
     {NULL, NAMES("libmpi.so.40", "libmpi.so.12", "libmpi.so"), NULL, NULL},
     ask_mpi,
     0,
     NULL,
     &mpi_packages},
    {"blas",
     "BLAS",
     {NULL, NAMES("libopenblas.so.0", "libopenblas.so", "libmkl_rt.so.2", "libblas.so.3"), NULL, NULL},
     ask_blas,
     0,
     NULL,
     &blas_packages},
};
enum { OTHERS = sizeof others / sizeof others[0] };

/* The wheel for the driver's version of CUDA: of those for 12 the name says so. */
static const char *get_other(const other *o) {
    static char text[256];
    const int major = driver_cuda_major() == 12 ? 12 : 13;
    const bool numbered = o->package && o->package[strlen(o->package) - 1] == 'u';
    if (!o->package) return install_command(o->system);
    snprintf(text, sizeof text, "python -m pip install %s", o->package);
    const size_t n = strlen(text);
    if (numbered) snprintf(text + n, sizeof text - n, "%d", major);
    if (!numbered && major == 12) snprintf(text + n, sizeof text - n, "-cu12");
    return text;
}

static void check_other(doctor_result *r, const other *o) {
    char file[PATH_MAX], version[256] = "";
    int cuda = 0;
    void *library = tni_library_open(&o->places);
    if (o->least) require(r, "%s %d or newer; this version of Tenon works without it", o->name, o->least);
    if (!o->least) require(r, "any; this version of Tenon works without it");
    if (!library) {
        observe(r, "not found");
        judge(r, SKIPPED, "nothing in this version of Tenon needs it", "%s", get_other(o));
        return;
    }
    if (!tni_library_file(library, file, sizeof file)) snprintf(file, sizeof file, "%s", o->places.names[0]);
    if (!o->ask(library, version, sizeof version, &cuda)) {
        observe(r, "%s", file);
        judge(r, WARNED, "it does not tell its version", "%s", get_other(o));
        return;
    }
    observe(r, "%s %s, %s", o->name, version, file);
    if (atoi(version) < o->least) judge(r, WARNED, "it is too old", "%s", get_other(o));
    judge_cuda_major(r, WARNED, cuda, get_other(o));
}

#define CHECK(name, index)                       \
    static void check_##name(doctor_result *r) { \
        check_other(r, &others[index]);          \
    }
CHECK(cudnn, 0)
CHECK(nccl, 1)
CHECK(mpi, 2)
CHECK(blas, 3)
#undef CHECK

/* ---- the same library twice -------------------------------------------------------------------------------------- */

static const char *const single[] = {"libcuda", "libcudart", "libnvrtc", "libcublas", "libcublasLt", "libcudnn",
                                     "libnccl", "libmpi",    "libtenon", "libgomp",   "libopenblas"};
enum { SINGLE = sizeof single / sizeof single[0], MOST_COPIES = 8 };

/* "libgomp.so.1" and "libgomp-a34b3233.so.1.0.0", as packers of wheels rename it, are libgomp. */
static bool is_copy(const char *path, const char *name) {
    const char *file = strrchr(path, '/');
    const size_t length = strlen(name);
    if (!file || strncmp(file + 1, name, length) != 0) return false;
    const char *rest = file + 1 + length;
    if (*rest == '-') rest += 1 + strspn(rest + 1, "0123456789abcdef");
    return strncmp(rest, ".so", 3) == 0;
}

/* Files that are mapped into this process under one of the names. */
static int find_copies(const char *name, char copies[MOST_COPIES][PATH_MAX]) {
    char line[PATH_MAX + 128];
    int n = 0;
    FILE *maps = fopen("/proc/self/maps", "re");
    while (maps && fgets(line, sizeof line, maps)) {
        char *path = strchr(line, '/');
        bool known = false;
        if (!path) continue;
        path[strcspn(path, "\n")] = 0;
        for (int i = 0; i < n; i++) known |= strcmp(copies[i], path) == 0;
        if (known || n == MOST_COPIES || !is_copy(path, name)) continue;
        snprintf(copies[n++], PATH_MAX, "%s", path);
    }
    if (maps) fclose(maps);
    return n;
}

char *tni_doctor_duplicates(void) {
    static char copies[MOST_COPIES][PATH_MAX];
    tni_text text = {0};
    tni_nvrtc_version(WANTED);
    tni_cublaslt_look();
    tni_text_add(&text, "%s", "");
    for (int i = 0; i < SINGLE; i++) {
        const int n = find_copies(single[i], copies);
        for (int k = 0; n > 1 && k < n; k++) {
            const char *before = k ? " and " : text.length ? "; " : "";
            tni_text_add(&text, k ? "%s%s%s" : "%s%s: %s", before, k ? "" : single[i], copies[k]);
        }
    }
    if (!text.failed) return text.data;
    tn_free(text.data);
    return NULL;
}

/* With all libraries open that Tenon would open. */
static void check_duplicates(doctor_result *r) {
    tni_cuda_look();
    for (int i = 0; i < OTHERS; i++) tni_library_open(&others[i].places);
    char *text = tni_doctor_duplicates();
    require(r, "one copy of each library in a process");
    observe(r, "%s", text && *text ? text : "none in this process");
    if (text && *text) {
        judge(r, WARNED, "copies do not know of each other's state, and which one answers depends on who came first",
              "env -u LD_PRELOAD -u LD_LIBRARY_PATH -u TENON_NVRTC -u TENON_CUBLASLT tenon doctor duplicates   # where "
              "these name one of "
              "them");
    }
    tn_free(text);
}

const doctor_row library_checks[] = {
    {"nvrtc", "NVRTC, which compiles formulas for the GPU: found where, version, compiles", check_nvrtc},
    {"cublaslt", "cuBLASLt, which may make products on the GPU: found where, version", check_cublaslt},
    {"cudnn", "cuDNN: found where, version", check_cudnn},
    {"nccl", "NCCL: found where, version", check_nccl},
    {"mpi", "MPI: found where, version", check_mpi},
    {"blas", "a BLAS: found where, version", check_blas},
    {"duplicates", "two copies of one library in the process", check_duplicates},
    {0},
};
