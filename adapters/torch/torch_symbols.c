/* Finds the torch that is already in the process and its C symbols. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>

#include "torch.h"

struct tni_torch_symbols tni_torch;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic bool loaded;
static void *cpu_library; /* of dlopen: libtorch_cpu with all that it depends on */

/* The getters of torch's type codes, one for each type of Tenon that torch has. X(type, getter) */
#define DTYPES(X)                              \
    X(TN_F16, aoti_torch_dtype_float16)        \
    X(TN_BF16, aoti_torch_dtype_bfloat16)      \
    X(TN_F32, aoti_torch_dtype_float32)        \
    X(TN_F64, aoti_torch_dtype_float64)        \
    X(TN_I8, aoti_torch_dtype_int8)            \
    X(TN_I16, aoti_torch_dtype_int16)          \
    X(TN_I32, aoti_torch_dtype_int32)          \
    X(TN_I64, aoti_torch_dtype_int64)          \
    X(TN_U8, aoti_torch_dtype_uint8)           \
    X(TN_BOOL, aoti_torch_dtype_bool)          \
    X(TN_C64, aoti_torch_dtype_complex64)      \
    X(TN_C128, aoti_torch_dtype_complex128)    \
    X(TN_E4M3, aoti_torch_dtype_float8_e4m3fn) \
    X(TN_E5M2, aoti_torch_dtype_float8_e5m2)   \
    X(TN_U16, aoti_torch_dtype_uint16)         \
    X(TN_U32, aoti_torch_dtype_uint32)         \
    X(TN_U64, aoti_torch_dtype_uint64)

void *tni_torch_symbol(const char *name) {
    void *symbol = dlsym(RTLD_DEFAULT, name);
    if (!symbol && cpu_library) symbol = dlsym(cpu_library, name);
    if (symbol) return symbol;
    void *python = dlopen("libtorch_python.so", RTLD_NOW | RTLD_NOLOAD);
    if (!python) return NULL;
    symbol = dlsym(python, name);
    dlclose(python); /* only the count: torch keeps it open */
    return symbol;
}

/* A function pointer out of a dlsym result: C has no cast between the two. */
static bool find(void *function, const char *name) {
    void *symbol = cpu_library ? dlsym(cpu_library, name) : NULL;
    *(void **)function = symbol;
    return symbol != NULL;
}

static tn_status too_old(const char *missing) {
    uint64_t (*version)(void);
    if (find(&version, "aoti_torch_abi_version")) {
        uint64_t v = version();
        return tn_fail(TN_UNSUPPORTED, "torch %d.%d has no symbol '%s': Tenon needs torch 2.10 or newer",
                       (int)(v >> 56), (int)(v >> 48 & 0xff), missing);
    }
    return tn_fail(TN_UNSUPPORTED, "this torch has no symbol '%s': Tenon needs torch 2.10 or newer", missing);
}

static void find_dtypes(void) {
    for (int i = 0; i < TN_TYPE_COUNT; i++) tni_torch.dtypes[i] = -1;
    int32_t (*getter)(void);
#define FIND_DTYPE(type, name) \
    if (find(&getter, #name)) tni_torch.dtypes[type] = getter();
    DTYPES(FIND_DTYPE)
#undef FIND_DTYPE
}

static tn_status load_locked(void) {
    cpu_library = dlopen("libtorch_cpu.so", RTLD_NOW | RTLD_NOLOAD);
    if (!cpu_library) {
        return tn_fail(TN_NOT_FOUND,
                       "torch is not loaded in this process: `import torch` comes first (Tenon needs torch "
                       "2.10 or newer)");
    }
#define FIND_NEEDED(result, name, parameters) \
    if (!find(&tni_torch.name, #name)) return too_old(#name);
    TNI_TORCH_NEEDED(FIND_NEEDED)
#undef FIND_NEEDED
#define FIND_OPTIONAL(result, name, parameters) find(&tni_torch.name, #name);
    TNI_TORCH_OPTIONAL(FIND_OPTIONAL)
#undef FIND_OPTIONAL
    void *cuda_library = dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_NOLOAD);
    if (cuda_library) {
        *(void **)&tni_torch.aoti_torch_get_current_cuda_stream = dlsym(cuda_library,
                                                                        "aoti_torch_get_current_cuda_stream");
    }
    *(void **)&tni_torch.new_memory = tni_torch_symbol("_Znwm");
    *(void **)&tni_torch.delete_memory = tni_torch_symbol("_ZdlPv");
    if (!tni_torch.torch_delete_stable_ivalue && (!tni_torch.new_memory || !tni_torch.delete_memory)) {
        return too_old("torch_delete_stable_ivalue");
    }
    tni_torch.device_cpu = tni_torch.aoti_torch_device_type_cpu();
    tni_torch.device_cuda = tni_torch.aoti_torch_device_type_cuda();
    find_dtypes();
    return TN_OK;
}

tn_status tni_torch_load(void) {
    if (atomic_load_explicit(&loaded, memory_order_acquire)) return TN_OK;
    pthread_mutex_lock(&lock);
    tn_status status = atomic_load(&loaded) ? TN_OK : load_locked();
    if (status == TN_OK) atomic_store_explicit(&loaded, true, memory_order_release);
    pthread_mutex_unlock(&lock);
    return status;
}

tn_type tni_torch_type(int32_t dtype) {
    for (int i = 1; i < TN_TYPE_COUNT; i++) {
        if (tni_torch.dtypes[i] == dtype) return (tn_type)i;
    }
    return TN_NO_TYPE;
}
