/* Copies on the CPU between layouts that are fast along different dimensions. */
#ifndef TNI_BOX_COPY_H
#define TNI_BOX_COPY_H

#include "box.h"

/* size, n_dims, shape and strides of `box` are set. False: nothing was done, other ways suit this copy better. */
bool tni_box_copy(const tn_call *call, tni_box *box, char *to, const char *from);

#endif
