/* A formula's plain reference: one operation after the other, every value in double. */
#ifndef TNI_FUSE_REFERENCE_H
#define TNI_FUSE_REFERENCE_H

#include "fuse/fuse.h"

tn_status tni_fuse_reference(const tni_fuse *formula, const tn_call *call);

#endif
