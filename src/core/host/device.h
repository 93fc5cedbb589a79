/* A device is a struct of functions. Core knows devices by this alone: it allocates, copies, and picks kernels through
 * the struct that is registered for a tensor's kind of device, and knows no device by name. src/tenon.c registers those
 * of the build; another one is added by registering its struct (tests/core/host/test_device.c is an example). */
#ifndef TNI_DEVICE_H
#define TNI_DEVICE_H

#include <stdatomic.h>

#include <tenon/device.h>
#include <tenon/op.h>

typedef enum tni_transfer { TNI_INTO, TNI_OUT_OF, TNI_WITHIN } tni_transfer;

typedef struct tni_device_ops {
    tn_device_kind kind;   /* DLPack's number for it */
    const char *name;      /* "cpu", "cuda": in messages and JSON */
    bool single;           /* there is one of it: messages leave its index out, and it is always 0 */
    uint32_t (*isa)(void); /* TN_ISA_… that its kernels may ask for; NULL: none */
    /* Whether it can be used now; the message, which begins with `wanted`, says why not. NULL: always. */
    tn_status (*usable)(const char *wanted);
    /* Memory in the order of `stream`, aligned to TNI_ALIGNMENT, for programs without an allocator of their own. */
    tn_status (*alloc)(const char *wanted, tn_device device, size_t bytes, void *stream, tn_block *block);
    void (*free)(tn_device device, tn_block block, void *stream);
    void (*trim)(void); /* gives the memory that it keeps for later back to the system; NULL: it keeps none */
    /* Copies elements between views of the same shape and type, any strides, on the call's device and stream. */
    tn_status (*copy)(const tn_call *call, const tn_view *to, const tn_view *from);
    /* Copies between the program's memory and the device's, in the order of `stream`. `write` has read all of `from`
     * when it returns, and replaces 1, 2, 4 or 8 aligned bytes at once; `read` has written all of `to`. */
    tn_status (*write)(const char *wanted, tn_device device, void *to, const void *from, size_t bytes, void *stream);
    tn_status (*read)(const char *wanted, tn_device device, void *to, const void *from, size_t bytes, void *stream);
    /* Returns when the device has done all that is in the stream. */
    tn_status (*wait)(const char *wanted, tn_device device, void *stream);
    bool (*capturing)(tn_device device, void *stream); /* a graph: nobody may wait. NULL: it has no graphs */
    /* Around functions of plugins: makes the device the one that this thread uses, such as CUDA's current context, and
     * leaves the thread as it was. NULL: there is nothing to be done. */
    tn_status (*enter)(const char *wanted, tn_device device, void **entered);
    void (*leave)(void *entered);

    /* What follows is for programs that use the device by themselves (tenon/device.h says what each does). NULL: the
     * device lacks it, and the caller is told so. */
    tn_status (*count)(const char *wanted, int *count); /* of a `single` device: NULL */
    tn_status (*describe)(const char *wanted, tn_device device, tn_device_info *info);
    tn_status (*memory)(const char *wanted, tn_device device, tn_memory_stats *stats, bool reset_peak);
    tn_status (*pin)(const char *wanted, tn_device device, size_t bytes, void **data);
    void (*unpin)(tn_device device, void *data);
    /* Bytes into the device's memory, out of it, or within it; returns before they are there, where it can. */
    tn_status (*transfer)(const char *wanted, tn_device device, tni_transfer way, void *to, const void *from,
                          size_t bytes, void *stream);
    tn_status (*stream_make)(const char *wanted, tn_device device, void **stream);
    void (*stream_free)(tn_device device, void *stream);
    tn_status (*event_make)(const char *wanted, tn_device device, void **event);
    void (*event_free)(tn_device device, void *event);
    tn_status (*event_record)(const char *wanted, tn_device device, void *event, void *stream);
    tn_status (*event_hold)(const char *wanted, tn_device device, void *event, void *stream);
    tn_status (*event_wait)(const char *wanted, tn_device device, void *event);
    tn_status (*event_time)(const char *wanted, tn_device device, void *begin, void *end, double *milliseconds);
    void (*close)(void); /* tn_shutdown: gives back all that it holds; it can be used again. NULL: it holds nothing */
} tni_device_ops;

/* The struct must stay where it is. Refused where its kind has another one already. */
tn_status tni_device_register(const tni_device_ops *device);
const tni_device_ops *tni_device_next(int32_t *at); /* all of them, from *at = 0 on; NULL: no more */

/* The one of a kind; NULL: none is registered. Inline, because every allocation asks. */
enum { TNI_DEVICE_KINDS = 64 }; /* DLPack numbers kinds of devices from 1 on; there are 18 */
extern _Atomic(const tni_device_ops *) tni_devices[TNI_DEVICE_KINDS];
static inline const tni_device_ops *tni_device_of(int32_t kind) {
    const bool fits = kind >= 0 && kind < TNI_DEVICE_KINDS;
    return fits ? atomic_load_explicit(&tni_devices[kind], memory_order_acquire) : NULL;
}

enum { TNI_DEVICE_TEXT = 32, TNI_DEVICES_TEXT = 128 };
/* "cpu", "cuda:1"; "device 77:0", DLPack's numbers, where none is registered. */
void tni_device_print(char text[TNI_DEVICE_TEXT], tn_device device);
void tni_device_print_all(char text[TNI_DEVICES_TEXT]); /* "cpu and cuda" */

#endif
