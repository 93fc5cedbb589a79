#include "cuda_device.h"

#include "cuda/copy/copy.h"
#include "cuda/driver/cuda.h"

/* From memory that is not pinned: the driver has read it when the call returns. */
static tn_status cuda_write(const char *wanted, tn_device device, void *to, const void *from, size_t bytes,
                            void *stream) {
    tni_cuda_scope scope;
    TN_TRY(tni_cuda_enter(wanted, device.index, &scope));
    const tni_cuda_api *cu = tni_cuda(wanted);
    const int error = cu ? cu->cuMemcpyHtoDAsync((cu_pointer)(uintptr_t)to, from, bytes, stream) : 0;
    tni_cuda_leave(&scope);
    if (!cu) return TN_SYSTEM;
    return error ? tni_cuda_failed(wanted, "copying to the GPU", error) : TN_OK;
}

static tn_status cuda_read(const char *wanted, tn_device device, void *to, const void *from, size_t bytes,
                           void *stream) {
    tni_cuda_scope scope;
    TN_TRY(tni_cuda_enter(wanted, device.index, &scope));
    const tni_cuda_api *cu = tni_cuda(wanted);
    int error = cu ? cu->cuMemcpyDtoHAsync(to, (cu_pointer)(uintptr_t)from, bytes, stream) : 0;
    if (cu && !error) error = cu->cuStreamSynchronize(stream);
    tni_cuda_leave(&scope);
    if (!cu) return TN_SYSTEM;
    return error ? tni_cuda_failed(wanted, "copying from the GPU", error) : TN_OK;
}

static tn_status cuda_wait(const char *wanted, tn_device device, void *stream) {
    tni_cuda_scope scope;
    TN_TRY(tni_cuda_enter(wanted, device.index, &scope));
    const tni_cuda_api *cu = tni_cuda(wanted);
    const int error = cu ? cu->cuStreamSynchronize(stream) : 0;
    tni_cuda_leave(&scope);
    if (!cu) return TN_SYSTEM;
    return error ? tni_cuda_failed(wanted, "waiting for the GPU", error) : TN_OK;
}

const tni_device_ops tni_cuda_device = {
    .kind = TN_CUDA,
    .name = "cuda",
    .usable = tni_cuda_usable,
    .alloc = tni_cuda_alloc,
    .free = tni_cuda_free,
    .trim = tni_cuda_trim,
    .copy = tni_cuda_copy,
    .write = cuda_write,
    .read = cuda_read,
    .wait = cuda_wait,
};
