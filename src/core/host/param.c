/* Dynamic parameters: one value in the memory of a device, and a way to change it. */
#include <tenon/param.h>

#include <string.h>

#include "device.h"
#include "memory.h"

enum { ROOM = 16 }; /* bytes of a value */

struct tn_param {
    tn_tensor tensor;
    tn_type type;
    const tni_device_ops *device;
    tn_block block;
};

static tn_status set(tn_param *param, double value, void *stream) {
    char bytes[ROOM] = {0};
    tn_set(param->type, bytes, 0, value);
    return param->device->write("tn_param", param->tensor.device, param->block.data, bytes, tn_type_size(param->type),
                                stream);
}

/* Every stream may use the value from here on, so the first one is waited for. */
static tn_status fill(tn_param *param, double value) {
    const tni_device_ops *device = param->device;
    if (device->usable) TN_TRY(device->usable("tn_param"));
    TN_TRY(device->alloc("tn_param", param->tensor.device, ROOM, NULL, &param->block));
    param->tensor.data = param->block.data;
    TN_TRY(set(param, value, NULL));
    return device->wait("tn_param", param->tensor.device, NULL);
}

tn_status tn_param_make(tn_type type, tn_device device, double value, tn_param **made) {
    if (!made) return tn_fail(TN_BAD_VALUE, "tn_param: there is no place for it (NULL)");
    *made = NULL;
    if (type <= TN_NO_TYPE || type >= TN_TYPE_COUNT || type == TN_C64 || type == TN_C128) {
        return tn_fail(TN_BAD_TYPE, "tn_param: the type must be a real one");
    }
    const tni_device_ops *known = tni_device_of(device.kind);
    if (!known) {
        char there[TNI_DEVICE_TEXT], all[TNI_DEVICES_TEXT];
        tni_device_print(there, device);
        tni_device_print_all(all);
        return tn_fail(TN_BAD_DEVICE, "tn_param: %s (DLPack's numbers); Tenon runs on %s", there, all);
    }
    tn_param *param = tni_calloc(1, sizeof *param);
    if (!param) return TN_NO_MEMORY;
    param->type = type;
    param->device = known;
    param->tensor = (tn_tensor){.device = device, .dtype = tn_type_to_dlpack(type)};
    const tn_status status = fill(param, value);
    if (status == TN_OK) {
        *made = param;
    } else {
        tn_param_free(param);
    }
    return status;
}

void tn_param_free(tn_param *param) {
    if (!param) return;
    if (param->block.data) param->device->free(param->tensor.device, param->block, NULL);
    tni_free(param);
}

const tn_tensor *tn_param_tensor(const tn_param *param) {
    if (!param) tn_fail(TN_BAD_VALUE, "tn_param_tensor: the parameter is NULL");
    return param ? &param->tensor : NULL;
}

tn_status tn_param_set(tn_param *param, double value, void *stream) {
    if (!param) return tn_fail(TN_BAD_VALUE, "tn_param_set: the parameter is NULL");
    return set(param, value, stream);
}
