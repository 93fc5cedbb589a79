/* The operations of a formula one after the other, for comparison. */
#ifndef CLI_FUSE_APART_H
#define CLI_FUSE_APART_H

#include "cli/data.h"

typedef struct apart {
    int32_t operations;
    double seconds, fused; /* of all together, and of the formula beside them */
} apart;

/* False where it cannot be taken apart: one operation, attributes, dimensions by name, updates in place. */
bool time_apart(const tn_function *op, const tni_case *sample, const made_call *k, tn_device device, apart *made);

#endif
