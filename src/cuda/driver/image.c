/* Which of the images built in a GPU gets, images of others, and the kernels in them. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "cuda.h"
#include "unpack.h"

/* What tells images of others apart: they may lie elsewhere the next time, or something else where they were. */
typedef struct image_key {
    uint64_t hash[2];
    size_t bytes;
} image_key;

typedef struct unit {
    const char *name;                    /* of a file built in; NULL: an image of somebody else's */
    image_key key;                       /* of the latter */
    cu_library libraries[TNI_MOST_GPUS]; /* GPUs of one kind load the same image; the driver shares it */
    struct unit *next;
} unit;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unit *units;

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

static tn_status none(const char *wanted, const tn_gpu *gpu) {
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

static tn_status load(const tni_cuda_api *cu, const char *wanted, const tn_gpu *gpu, const char *name,
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

/* ---- what is loaded ---------------------------------------------------------------------------------------------- */

/* The caller holds the lock. NULL: no memory. */
static unit *unit_of(const char *name, image_key key) {
    unit *u = units;
    for (; u; u = u->next) {
        const bool same = name ? u->name && strcmp(u->name, name) == 0
                               : !u->name && memcmp(&u->key, &key, sizeof key) == 0;
        if (same) return u;
    }
    u = tni_calloc(1, sizeof *u);
    if (!u) return NULL;
    u->name = name;
    u->key = key;
    u->next = units;
    units = u;
    return u;
}

tn_status tni_cuda_kernel(const char *wanted, int index, const char *unit_name, const char *name, cu_kernel *kernel) {
    const tn_gpu *gpu;
    TN_TRY(tni_gpu_get(wanted, index, &gpu));
    const tni_cuda_api *cu = tni_cuda(wanted);
    if (!cu) return TN_SYSTEM;
    pthread_mutex_lock(&lock);
    unit *u = unit_of(unit_name, (image_key){0});
    tn_status status = u ? TN_OK : TN_NO_MEMORY;
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

static uint64_t hash_of(const unsigned char *data, size_t bytes, uint64_t h) {
    for (; bytes >= 8; data += 8, bytes -= 8) {
        uint64_t word;
        memcpy(&word, data, 8);
        h = (h ^ word) * 0x9E3779B97F4A7C15u;
        h ^= h >> 29;
    }
    for (; bytes; data++, bytes--) h = (h ^ *data) * 0x100000001B3u;
    return h ^ h >> 32;
}

/* PTX is text, and the driver reads on to its 0. */
static int load_foreign(const tni_cuda_api *cu, const void *image, size_t bytes, cu_library *library) {
    const unsigned char *data = image;
    const bool is_binary = data[0] == 0x7f || data[0] == 0x50; /* ELF, fatbin */
    if (is_binary || data[bytes - 1] == 0) return tni_cuda_load_code(cu, image, library);
    char *text = tni_malloc(bytes + 1);
    if (!text) return -1;
    memcpy(text, image, bytes);
    text[bytes] = 0;
    const int error = tni_cuda_load_code(cu, text, library);
    tni_free(text);
    return error;
}

/* The image as the driver has it; loads it where that is not done. */
static int library_of(const tni_cuda_api *cu, int index, const void *image, size_t bytes, cu_library *library) {
    const image_key key = {{hash_of(image, bytes, 1), hash_of(image, bytes, 0xC2B2AE3D27D4EB4Fu)}, bytes};
    pthread_mutex_lock(&lock);
    unit *u = unit_of(NULL, key);
    int error = u ? 0 : -1;
    if (u && !u->libraries[index]) error = load_foreign(cu, image, bytes, &u->libraries[index]);
    *library = u ? u->libraries[index] : NULL;
    pthread_mutex_unlock(&lock);
    return error;
}

int tni_cuda_kernel_in(const tni_cuda_api *cu, int index, const void *image, size_t bytes, const char *name,
                       cu_kernel *kernel) {
    cu_library library;
    const int error = library_of(cu, index, image, bytes, &library);
    return error ? error : cu->cuLibraryGetKernel(kernel, library, name);
}

int tni_cuda_global_in(const tni_cuda_api *cu, int index, const void *image, size_t bytes, const char *name,
                       cu_pointer *data, size_t *size) {
    cu_library library;
    const int error = library_of(cu, index, image, bytes, &library);
    return error ? error : cu->cuLibraryGetGlobal(data, size, library, name);
}

void tni_images_unload(void) {
    const char *wanted = "unloading kernels";
    const tni_cuda_api *cu = units ? tni_cuda(wanted) : NULL;
    pthread_mutex_lock(&lock);
    for (unit *u = units, *next; u; u = next) {
        next = u->next;
        for (int i = 0; i < TNI_MOST_GPUS; i++) {
            if (u->libraries[i] && cu) cu->cuLibraryUnload(u->libraries[i]);
        }
        tni_free(u);
    }
    units = NULL;
    pthread_mutex_unlock(&lock);
}
