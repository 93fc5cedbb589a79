/* Flags of kernels that are of no use outside of the library, beside those of tenon/op.h. */
#ifndef TNI_KERNEL_FLAGS_H
#define TNI_KERNEL_FLAGS_H

enum {
    TNI_ROUNDS_BETWEEN = 1 << 16, /* what is between its steps is rounded to T, as tensor cores take it: `tenon check`
                                     allows for that in results of 16 bits */
};

#endif
