/* What the kernels of cross_entropy share. */
#ifndef TNI_CROSS_ENTROPY_H
#define TNI_CROSS_ENTROPY_H

#include <tenon/op.h>

/* The failure that row `row` of the target (counted in dense order) causes by being `value`: neither a class nor
 * ignore_index. */
tn_status tni_cross_entropy_bad_target(const tn_call *call, int64_t row, int64_t value);

#endif
