/* Elements of dense tensors, for references. */
#ifndef TNI_ELEMENTS_H
#define TNI_ELEMENTS_H

#include <tenon/op.h>

static inline double get(const tn_view *v, int64_t i) {
    return tn_get(v->type, v->data, i);
}

static inline double get_or(const tn_view *v, int64_t i, double absent) {
    return v ? get(v, i) : absent;
}

static inline void set(const tn_view *v, int64_t i, double value) {
    tn_set(v->type, v->data, i, value);
}

#endif
