/* tenon/device.h: what programs do with a device by themselves. Each function finds the device's struct and hands on;
 * the one thing that core adds is to say what is wrong with an argument. */
#include <tenon/device.h>

#include "device.h"
#include "memory.h"

struct tn_event {
    tn_device device;
    const tni_device_ops *ops;
    void *handle; /* the device's */
};

static tn_status find(const char *wanted, tn_device *device, const tni_device_ops **ops) {
    *ops = tni_device_of(device->kind);
    if (!*ops) {
        char all[TNI_DEVICES_TEXT];
        tni_device_print_all(all);
        return tn_fail(TN_BAD_DEVICE, "%s: there is no device of kind %d (DLPack's number); Tenon runs on %s", wanted,
                       device->kind, all);
    }
    if ((*ops)->single) device->index = 0;
    return (*ops)->usable ? (*ops)->usable(wanted) : TN_OK;
}

static tn_status is_null(const char *wanted, const char *what) {
    return tn_fail(TN_BAD_VALUE, "%s: %s is NULL", wanted, what);
}

static tn_status lacks(const char *wanted, const tni_device_ops *ops, const char *what) {
    return tn_fail(TN_UNSUPPORTED, "%s: the device '%s' has no %s", wanted, ops->name, what);
}

tn_status tn_device_count(tn_device_kind kind, int *count) {
    static const char wanted[] = "tn_device_count";
    const tni_device_ops *ops;
    tn_device device = {(int32_t)kind, 0};
    if (!count) return is_null(wanted, "the place for the count");
    *count = 0;
    TN_TRY(find(wanted, &device, &ops));
    if (ops->count) return ops->count(wanted, count);
    *count = 1;
    return TN_OK;
}

tn_status tn_device_describe(tn_device device, tn_device_info *info) {
    static const char wanted[] = "tn_device_describe";
    const tni_device_ops *ops;
    if (!info) return is_null(wanted, "the place for the description");
    *info = (tn_device_info){0};
    TN_TRY(find(wanted, &device, &ops));
    return ops->describe ? ops->describe(wanted, device, info) : lacks(wanted, ops, "description");
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

tn_status tn_device_alloc(tn_device device, size_t bytes, void *stream, tn_block *block) {
    static const char wanted[] = "tn_device_alloc";
    const tni_device_ops *ops;
    if (!block) return is_null(wanted, "the place for the block");
    *block = (tn_block){0};
    TN_TRY(find(wanted, &device, &ops));
    return ops->alloc(wanted, device, bytes ? bytes : 1, stream, block);
}

void tn_device_free(tn_device device, tn_block block, void *stream) {
    const tni_device_ops *ops;
    if (block.data && find("tn_device_free", &device, &ops) == TN_OK) ops->free(device, block, stream);
}

tn_status tn_pinned_alloc(tn_device device, size_t bytes, void **data) {
    static const char wanted[] = "tn_pinned_alloc";
    const tni_device_ops *ops;
    if (!data) return is_null(wanted, "the place for the memory");
    *data = NULL;
    TN_TRY(find(wanted, &device, &ops));
    return ops->pin ? ops->pin(wanted, device, bytes ? bytes : 1, data) : lacks(wanted, ops, "pinned memory");
}

void tn_pinned_free(tn_device device, void *data) {
    const tni_device_ops *ops;
    if (data && find("tn_pinned_free", &device, &ops) == TN_OK && ops->unpin) ops->unpin(device, data);
}

static tn_status fail_between(const char *wanted, tn_device to, tn_device from) {
    char there[TNI_DEVICE_TEXT], here[TNI_DEVICE_TEXT];
    tni_device_print(there, to);
    tni_device_print(here, from);
    return tn_fail(TN_UNSUPPORTED, "%s: from %s to %s is not one copy: copy to memory of the CPU, and from there",
                   wanted, here, there);
}

tn_status tn_copy(tn_device to_device, void *to, tn_device from_device, const void *from, size_t bytes, void *stream) {
    static const char wanted[] = "tn_copy";
    const tni_device_ops *to_ops, *from_ops;
    TN_TRY(find(wanted, &to_device, &to_ops));
    TN_TRY(find(wanted, &from_device, &from_ops));
    if (bytes == 0) return TN_OK;
    if (!to || !from) return is_null(wanted, to ? "what to copy from" : "where to copy to");
    const bool from_cpu = from_device.kind == TN_CPU, to_cpu = to_device.kind == TN_CPU;
    const bool same = from_ops == to_ops && from_device.index == to_device.index;
    if (!same && !from_cpu && !to_cpu) return fail_between(wanted, to_device, from_device);
    const tni_transfer way = same ? TNI_WITHIN : from_cpu ? TNI_INTO : TNI_OUT_OF;
    const tni_device_ops *ops = to_cpu ? from_ops : to_ops;
    if (!ops->transfer) return lacks(wanted, ops, "copies of bytes");
    return ops->transfer(wanted, to_cpu ? from_device : to_device, way, to, from, bytes, stream);
}

tn_status tn_memory_get(tn_device device, tn_memory_stats *stats) {
    static const char wanted[] = "tn_memory_get";
    const tni_device_ops *ops;
    if (!stats) return is_null(wanted, "the place for the statistics");
    *stats = (tn_memory_stats){0};
    TN_TRY(find(wanted, &device, &ops));
    return ops->memory ? ops->memory(wanted, device, stats, false) : lacks(wanted, ops, "statistics of memory");
}

tn_status tn_memory_reset_peak(tn_device device) {
    static const char wanted[] = "tn_memory_reset_peak";
    const tni_device_ops *ops;
    tn_memory_stats unused;
    TN_TRY(find(wanted, &device, &ops));
    return ops->memory ? ops->memory(wanted, device, &unused, true) : lacks(wanted, ops, "statistics of memory");
}

/* ---- streams ----------------------------------------------------------------------------------------------------- */

tn_status tn_stream_make(tn_device device, void **stream) {
    static const char wanted[] = "tn_stream_make";
    const tni_device_ops *ops;
    if (!stream) return is_null(wanted, "the place for the stream");
    *stream = NULL;
    TN_TRY(find(wanted, &device, &ops));
    return ops->stream_make ? ops->stream_make(wanted, device, stream) : lacks(wanted, ops, "streams");
}

void tn_stream_free(tn_device device, void *stream) {
    const tni_device_ops *ops;
    if (stream && find("tn_stream_free", &device, &ops) == TN_OK && ops->stream_free) ops->stream_free(device, stream);
}

tn_status tn_stream_wait(tn_device device, void *stream) {
    static const char wanted[] = "tn_stream_wait";
    const tni_device_ops *ops;
    TN_TRY(find(wanted, &device, &ops));
    return ops->wait(wanted, device, stream);
}

/* ---- events ------------------------------------------------------------------------------------------------------ */

tn_status tn_event_make(tn_device device, tn_event **event) {
    static const char wanted[] = "tn_event_make";
    const tni_device_ops *ops;
    if (!event) return is_null(wanted, "the place for the event");
    *event = NULL;
    TN_TRY(find(wanted, &device, &ops));
    if (!ops->event_make) return lacks(wanted, ops, "events");
    tn_event *made = tni_calloc(1, sizeof *made);
    if (!made) return TN_NO_MEMORY;
    *made = (tn_event){.device = device, .ops = ops};
    const tn_status status = ops->event_make(wanted, device, &made->handle);
    if (status == TN_OK) {
        *event = made;
    } else {
        tni_free(made);
    }
    return status;
}

void tn_event_free(tn_event *event) {
    if (!event) return;
    event->ops->event_free(event->device, event->handle);
    tni_free(event);
}

tn_status tn_event_record(tn_event *event, void *stream) {
    static const char wanted[] = "tn_event_record";
    return event ? event->ops->event_record(wanted, event->device, event->handle, stream)
                 : is_null(wanted, "the event");
}

tn_status tn_event_hold(const tn_event *event, void *stream) {
    static const char wanted[] = "tn_event_hold";
    return event ? event->ops->event_hold(wanted, event->device, event->handle, stream) : is_null(wanted, "the event");
}

tn_status tn_event_wait(const tn_event *event) {
    static const char wanted[] = "tn_event_wait";
    return event ? event->ops->event_wait(wanted, event->device, event->handle) : is_null(wanted, "the event");
}

tn_status tn_event_milliseconds(const tn_event *begin, const tn_event *end, double *milliseconds) {
    static const char wanted[] = "tn_event_milliseconds";
    if (!begin || !end) return is_null(wanted, "an event");
    if (!milliseconds) return is_null(wanted, "the place for the time");
    *milliseconds = 0;
    if (begin->ops != end->ops || begin->device.index != end->device.index) {
        return tn_fail(TN_BAD_DEVICE, "%s: the two events are on different devices", wanted);
    }
    TN_TRY(tn_event_wait(begin));
    TN_TRY(tn_event_wait(end));
    return begin->ops->event_time(wanted, begin->device, begin->handle, end->handle, milliseconds);
}
