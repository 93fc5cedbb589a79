/* The codes of absl::Status, which XLA and TensorFlow report errors with. */
#ifndef TNI_ABSL_H
#define TNI_ABSL_H

#include <tenon/status.h>

typedef enum tni_absl_code {
    TNI_ABSL_OK = 0,
    TNI_ABSL_INVALID_ARGUMENT = 3,
    TNI_ABSL_NOT_FOUND = 5,
    TNI_ABSL_RESOURCE_EXHAUSTED = 8,
    TNI_ABSL_UNIMPLEMENTED = 12,
    TNI_ABSL_INTERNAL = 13,
} tni_absl_code;

static inline tni_absl_code tni_absl_code_of(tn_status status) {
    static const tni_absl_code codes[] = {
        [TN_OK] = TNI_ABSL_OK,
        [TN_BAD_VALUE] = TNI_ABSL_INVALID_ARGUMENT,
        [TN_BAD_TYPE] = TNI_ABSL_INVALID_ARGUMENT,
        [TN_BAD_SHAPE] = TNI_ABSL_INVALID_ARGUMENT,
        [TN_BAD_DEVICE] = TNI_ABSL_INVALID_ARGUMENT,
        [TN_BAD_CONTRACT] = TNI_ABSL_INVALID_ARGUMENT,
        [TN_BAD_PLUGIN] = TNI_ABSL_INVALID_ARGUMENT,
        [TN_NOT_FOUND] = TNI_ABSL_NOT_FOUND,
        [TN_UNSUPPORTED] = TNI_ABSL_UNIMPLEMENTED,
        [TN_NO_MEMORY] = TNI_ABSL_RESOURCE_EXHAUSTED,
        [TN_SYSTEM] = TNI_ABSL_INTERNAL,
    };
    return codes[status];
}

#endif
