/* What axes.c and axes_order.c share: the dimensions of shapes, as items of a formula. */
#ifndef TNI_FUSE_AXES_H
#define TNI_FUSE_AXES_H

#include "formula_object.h"

/* The key of entry k of a shape: "n", "*s"; the second n of T[n, n] is "n (2)", which no name says. */
tn_status tni_entry_key(const tni_fuse *formula, const tni_axes *axes, const tni_param *param, int k, const char **key);
bool tni_is_one(const char *key); /* a size, not a dimension */
/* reduce(*s, axes, keepdim), which has some dimensions of *s. */
bool tni_is_reduced(const tni_item *item);
/* `groups` or `c / groups`, where an argument has the dimension c that groups divides. */
bool tni_is_part_of(const tni_fuse *formula, const char *key);
/* Entry k becomes an item, or two where an attribute divides it; not if it is one already. */
tn_status tni_add_item(const tni_fuse *formula, tni_axes *axes, const tni_param *param, int k);
/* By name: the dimensions of the argument that has most, and what others have before, between and behind them. */
tn_status tni_order_dims(tni_fuse *formula, tni_axes *axes, const tni_param *largest);

#endif
