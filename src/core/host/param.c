/* Dynamic parameters: one value in the memory of a device, and a way to change it. */
#include <tenon/param.h>

#include <string.h>

#include "core/core.h"
#include "cuda/driver/cuda.h"

enum { ROOM = 16 }; /* bytes of a value, aligned as vectors are */

struct tn_param {
    tn_tensor tensor;
    tn_type type;
    void *memory;
    _Alignas(ROOM) char here[ROOM]; /* on the CPU */
};

/* ---- on a GPU ---------------------------------------------------------------------------------------------------- */

static tn_status cuda_make(tn_param *param) {
    tni_cuda_scope scope;
    cu_pointer data;
    TN_TRY(tni_cuda_enter("tn_param", param->tensor.device.index, &scope));
    const tni_cuda_api *cu = tni_cuda("tn_param");
    int error = cu ? cu->cuMemAlloc(&data, ROOM) : 0;
    tni_cuda_leave(&scope);
    if (!cu) return TN_SYSTEM;
    if (error) return tni_cuda_failed("tn_param", "memory for a value", error);
    param->memory = (void *)(uintptr_t)data;
    return TN_OK;
}

/* A source that is not pinned is copied before the call returns; the rest goes in the order of the stream. */
static tn_status cuda_write(const tn_param *param, const char *value, void *stream, bool wait) {
    tni_cuda_scope scope;
    TN_TRY(tni_cuda_enter("tn_param", param->tensor.device.index, &scope));
    const tni_cuda_api *cu = tni_cuda("tn_param");
    cu_pointer to = (cu_pointer)(uintptr_t)param->memory;
    int error = cu ? cu->cuMemcpyHtoDAsync(to, value, tn_type_size(param->type), stream) : 0;
    if (cu && !error && wait) error = cu->cuStreamSynchronize(stream);
    tni_cuda_leave(&scope);
    if (!cu) return TN_SYSTEM;
    return error ? tni_cuda_failed("tn_param", "setting a value", error) : TN_OK;
}

static void cuda_drop(const tn_param *param) {
    tni_cuda_scope scope;
    if (!param->memory || tni_cuda_enter("tn_param", param->tensor.device.index, &scope) != TN_OK) return;
    const tni_cuda_api *cu = tni_cuda("tn_param");
    if (cu) cu->cuMemFree((cu_pointer)(uintptr_t)param->memory);
    tni_cuda_leave(&scope);
}

/* ---- on the CPU -------------------------------------------------------------------------------------------------- */

/* Whole: whoever reads it on another thread gets the old value or the new one. */
static void cpu_write(tn_param *param, const char *value) {
    uint8_t byte;
    uint16_t half;
    uint32_t word;
    uint64_t wide;
    switch (tn_type_size(param->type)) {
    case 1:
        memcpy(&byte, value, 1);
        __atomic_store_n((uint8_t *)param->memory, byte, __ATOMIC_RELEASE);
        return;
    case 2:
        memcpy(&half, value, 2);
        __atomic_store_n((uint16_t *)param->memory, half, __ATOMIC_RELEASE);
        return;
    case 4:
        memcpy(&word, value, 4);
        __atomic_store_n((uint32_t *)param->memory, word, __ATOMIC_RELEASE);
        return;
    default: memcpy(&wide, value, 8); __atomic_store_n((uint64_t *)param->memory, wide, __ATOMIC_RELEASE);
    }
}

/* ---- both -------------------------------------------------------------------------------------------------------- */

static tn_status set(tn_param *param, double value, void *stream, bool wait) {
    char bytes[ROOM] = {0};
    tn_set(param->type, bytes, 0, value);
    if (param->tensor.device.kind == TN_CUDA) return cuda_write(param, bytes, stream, wait);
    cpu_write(param, bytes);
    return TN_OK;
}

tn_status tn_param_make(tn_type type, tn_device device, double value, tn_param **made) {
    if (!made) return tn_fail(TN_BAD_VALUE, "tn_param: there is no place for it (NULL)");
    *made = NULL;
    if (type <= TN_NO_TYPE || type >= TN_TYPE_COUNT || type == TN_C64 || type == TN_C128) {
        return tn_fail(TN_BAD_TYPE, "tn_param: the type must be a real one");
    }
    if (device.kind != TN_CPU && device.kind != TN_CUDA) {
        return tn_fail(TN_BAD_DEVICE, "tn_param: device %d:%d (DLPack's numbers); Tenon runs on cpu and cuda",
                       device.kind, device.index);
    }
    tn_param *param = tni_malloc_aligned(sizeof *param);
    if (!param) return TN_NO_MEMORY;
    memset(param, 0, sizeof *param);
    param->type = type;
    param->tensor = (tn_tensor){.device = device, .dtype = tn_dtype_of(type)};
    if (device.kind == TN_CPU) param->memory = param->here;
    tn_status status = device.kind == TN_CUDA ? cuda_make(param) : TN_OK;
    if (status == TN_OK) status = set(param, value, NULL, true);
    param->tensor.data = param->memory;
    if (status == TN_OK) {
        *made = param;
    } else {
        tn_param_free(param);
    }
    return status;
}

void tn_param_free(tn_param *param) {
    if (!param) return;
    if (param->tensor.device.kind == TN_CUDA) cuda_drop(param);
    tni_free(param);
}

const tn_tensor *tn_param_tensor(const tn_param *param) {
    return param ? &param->tensor : NULL;
}

tn_status tn_param_set(tn_param *param, double value, void *stream) {
    if (!param) return tn_fail(TN_BAD_VALUE, "tn_param_set: the parameter is NULL");
    return set(param, value, stream, false);
}
