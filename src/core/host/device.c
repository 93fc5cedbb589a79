/* The devices that are registered, by kind. */
#include "device.h"

#include <stdio.h>

_Atomic(const tni_device_ops *) tni_devices[TNI_DEVICE_KINDS];

tn_status tni_device_register(const tni_device_ops *device) {
    const tni_device_ops *none = NULL;
    if ((int)device->kind <= 0 || (int)device->kind >= TNI_DEVICE_KINDS) {
        return tn_fail(TN_BAD_DEVICE, "device '%s': its kind is %d, must be 1 to %d", device->name, (int)device->kind,
                       TNI_DEVICE_KINDS - 1);
    }
    if (!atomic_compare_exchange_strong(&tni_devices[device->kind], &none, device) && none != device) {
        return tn_fail(TN_BAD_DEVICE, "device '%s': kind %d is '%s' already", device->name, (int)device->kind,
                       none->name);
    }
    return TN_OK;
}

const tni_device_ops *tni_device_next(int32_t *at) {
    const tni_device_ops *found = NULL;
    while (!found && *at < TNI_DEVICE_KINDS) found = tni_device_of((*at)++);
    return found;
}

void tni_device_print(char text[TNI_DEVICE_TEXT], tn_device device) {
    const tni_device_ops *known = tni_device_of(device.kind);
    if (!known) {
        snprintf(text, TNI_DEVICE_TEXT, "device %d:%d", device.kind, device.index);
    } else if (known->single) {
        snprintf(text, TNI_DEVICE_TEXT, "%s", known->name);
    } else {
        snprintf(text, TNI_DEVICE_TEXT, "%s:%d", known->name, device.index);
    }
}

void tni_device_print_all(char text[TNI_DEVICES_TEXT]) {
    const tni_device_ops *names[TNI_DEVICE_KINDS];
    int n = 0;
    size_t length = 0;
    for (int32_t at = 0; n < TNI_DEVICE_KINDS && (names[n] = tni_device_next(&at));) n++;
    text[0] = 0;
    for (int i = 0; i < n && length < TNI_DEVICES_TEXT; i++) {
        const char *before = i == 0 ? "" : i < n - 1 ? ", " : " and ";
        length += (size_t)snprintf(text + length, TNI_DEVICES_TEXT - length, "%s%s", before, names[i]->name);
    }
}
