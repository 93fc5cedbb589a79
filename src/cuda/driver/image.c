/* Which of the images built in a GPU gets, and the kernels in it. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "cuda.h"
#include "unpack.h"

enum { MOST_UNITS = 256 };

typedef struct unit {
    const char *name;
    cu_library libraries[TNI_MOST_GPUS]; /* GPUs of one kind load the same image; the driver shares it */
} unit;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unit units[MOST_UNITS];
static int n_units;

/* How well an image fits: an exact one, then the nearest plain one of the same generation, then the newest PTX that is
 * not newer than the GPU. 0: not at all. */
static int fit(const tni_image *image, int major, int minor) {
    const int arch = major * 10 + minor;
    switch (image->kind) {
    case 'a': return image->arch == arch ? 100000 : 0;
    case ' ': return image->arch / 10 == major && image->arch <= arch ? 10000 + image->arch : 0;
    case 'p': return image->arch <= arch ? image->arch : 0;
    default: return 0;
    }
}

const tni_image *tni_image_pick(const tni_image *images, const char *name, int major, int minor) {
    const tni_image *best = NULL;
    int most = 0;
    for (const tni_image *i = images; i->unit; i++) {
        const int score = strcmp(i->unit, name) == 0 ? fit(i, major, minor) : 0;
        if (score > most) {
            most = score;
            best = i;
        }
    }
    return best;
}

const char *tni_image_unit(int i) {
    for (const tni_image *image = tni_images; image->unit; image++) {
        bool seen = false;
        for (const tni_image *before = tni_images; before < image; before++) {
            seen |= strcmp(before->unit, image->unit) == 0;
        }
        if (!seen && i-- == 0) return image->unit;
    }
    return NULL;
}

const tni_image *tni_image_for(const char *name, int major, int minor) {
    return tni_image_pick(tni_images, name, major, minor);
}

void tni_image_describe(const tni_image *image, char text[static 32]) {
    if (image->kind == 'p') {
        snprintf(text, 32, "PTX for sm_%d", image->arch);
    } else {
        snprintf(text, 32, "sm_%d%s", image->arch, image->kind == 'a' ? "a" : "");
    }
}

static tn_status none(const char *wanted, const tni_gpu *gpu) {
    if (!tni_images[0].unit) {
        return tn_fail(TN_UNSUPPORTED, "%s: this build of Tenon has no CUDA kernels: there was no CUDA compiler",
                       wanted);
    }
    return tn_fail(
        TN_UNSUPPORTED,
        "%s: nothing built in runs on %s (sm_%d%d); build Tenon with -DTENON_CUDA_ARCHS=%d%d, or use the CPU", wanted,
        gpu->name, gpu->major, gpu->minor, gpu->major, gpu->minor);
}

tn_status tni_image_code(const char *wanted, const tni_image *image, void **memory, const void **code) {
    *memory = NULL;
    *code = image->data;
    if (!tni_is_packed(image->data, image->end)) return TN_OK;
    const size_t size = tni_unpacked_size(image->data, image->end);
    *memory = tni_malloc(size + 1);
    if (!*memory) return TN_NO_MEMORY;
    *code = *memory;
    if (size && tni_unpack(image->data, image->end, *memory, size)) return TN_OK;
    tni_free(*memory);
    *memory = NULL;
    return tn_fail(TN_SYSTEM, "%s: libtenon.so is damaged: the kernels of '%s' do not unpack", wanted, image->unit);
}

int tni_cuda_load_code(const tni_cuda_api *cu, const void *code, cu_library *library) {
    const int mode = tni_cuda_begin_loading(cu);
    const int error = cu->cuLibraryLoadData(library, code, NULL, NULL, 0, NULL, NULL, 0);
    tni_cuda_end_loading(cu, mode);
    return error;
}

static tn_status load(const tni_cuda_api *cu, const char *wanted, const tni_gpu *gpu, const char *name,
                      cu_library *library) {
    const tni_image *image = tni_image_for(name, gpu->major, gpu->minor);
    void *memory;
    const void *code;
    if (!image) return none(wanted, gpu);
    TN_TRY(tni_image_code(wanted, image, &memory, &code));
    int error = tni_cuda_load_code(cu, code, library);
    tni_free(memory);
    if (!error) return TN_OK;
    char what[128], kind[32];
    tni_image_describe(image, kind);
    snprintf(what, sizeof what, "loading the kernels of '%s' (%s)", name, kind);
    return tni_cuda_failed(wanted, what, error);
}

/* The caller holds the lock. */
static unit *unit_named(const char *name) {
    for (int i = 0; i < n_units; i++) {
        if (strcmp(units[i].name, name) == 0) return &units[i];
    }
    if (n_units == MOST_UNITS) return NULL;
    units[n_units].name = name;
    return &units[n_units++];
}

tn_status tni_cuda_kernel(const char *wanted, int index, const char *unit_name, const char *name, cu_kernel *kernel) {
    const tni_gpu *gpu;
    TN_TRY(tni_gpu_get(wanted, index, &gpu));
    const tni_cuda_api *cu = tni_cuda(wanted);
    if (!cu) return TN_SYSTEM;
    pthread_mutex_lock(&lock);
    unit *u = unit_named(unit_name);
    tn_status status = u ? TN_OK : tn_fail(TN_SYSTEM, "%s: more than %d files of kernels", wanted, MOST_UNITS);
    if (u && !u->libraries[index]) status = load(cu, wanted, gpu, unit_name, &u->libraries[index]);
    cu_library library = u ? u->libraries[index] : NULL;
    pthread_mutex_unlock(&lock);
    if (status != TN_OK) return status;
    int error = cu->cuLibraryGetKernel(kernel, library, name);
    if (!error) return TN_OK;
    char what[192];
    snprintf(what, sizeof what, "looking for kernel %s in '%s'", name, unit_name);
    return tni_cuda_failed(wanted, what, error);
}

void tni_images_unload(void) {
    const char *wanted = "unloading kernels";
    const bool any = n_units > 0;
    const tni_cuda_api *cu = any ? tni_cuda(wanted) : NULL;
    pthread_mutex_lock(&lock);
    for (int u = 0; u < n_units; u++) {
        for (int i = 0; i < TNI_MOST_GPUS; i++) {
            if (units[u].libraries[i] && cu) cu->cuLibraryUnload(units[u].libraries[i]);
            units[u].libraries[i] = NULL;
        }
    }
    n_units = 0;
    pthread_mutex_unlock(&lock);
}
