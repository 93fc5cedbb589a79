/* An operator's arguments by name. Its header lists them once, tensors and attributes in the order of the contract:
 *
 *     #define SOFTMAX_ARGUMENTS(IN, OUT, ATTR) \
 *         IN(x) IN(mask) ATTR(axis, integer) ATTR(scale, number) ATTR(causal, boolean) OUT(y)
 *     TNI_ARGUMENTS(softmax, SOFTMAX_ARGUMENTS)
 *
 * This makes a struct softmax_args, with a field for each, and softmax_args_of(call), which fills it in; a tensor that
 * is absent is NULL. tests/ops/test_arguments.c compares every list with its contract. */
#ifndef TNI_ARGUMENTS_H
#define TNI_ARGUMENTS_H

#include <tenon/op.h>

/* The kinds of attributes: how each is kept, and read from a tn_value. */
#define TNI_KEEP_integer int64_t
#define TNI_READ_integer(value) (value).i
#define TNI_KEEP_number double
#define TNI_READ_number(value) (value).f
#define TNI_KEEP_boolean bool
#define TNI_READ_boolean(value) (value).b
#define TNI_KEEP_choice int
#define TNI_READ_choice(value) (value).choice
#define TNI_KEEP_type tn_type
#define TNI_READ_type(value) (value).type
#define TNI_KEEP_list const tn_value *
#define TNI_READ_list(value) &(value)

#define TNI_ARG_NONE(...)
#define TNI_ARG_IN_INDEX(name) in_##name,
#define TNI_ARG_OUT_INDEX(name) out_##name,
#define TNI_ARG_ATTR_INDEX(name, kind) attr_##name,
#define TNI_ARG_TENSOR(name) const tn_view *name;
#define TNI_ARG_ATTR(name, kind) TNI_KEEP_##kind name;
#define TNI_ARG_READ_IN(name) .name = tn_in(call, in_##name),
#define TNI_ARG_READ_OUT(name) .name = tn_out(call, out_##name),
#define TNI_ARG_READ_ATTR(name, kind) .name = TNI_READ_##kind(call->attrs[attr_##name]),

#define TNI_ARGUMENTS(op, LIST)                                                         \
    typedef struct op##_args {                                                          \
        LIST(TNI_ARG_TENSOR, TNI_ARG_TENSOR, TNI_ARG_ATTR)                              \
    } op##_args;                                                                        \
    static inline op##_args op##_args_of(const tn_call *call) {                         \
        enum { LIST(TNI_ARG_IN_INDEX, TNI_ARG_NONE, TNI_ARG_NONE) n_in };               \
        enum { LIST(TNI_ARG_NONE, TNI_ARG_OUT_INDEX, TNI_ARG_NONE) n_out };             \
        enum { LIST(TNI_ARG_NONE, TNI_ARG_NONE, TNI_ARG_ATTR_INDEX) n_attr };           \
        return (op##_args){LIST(TNI_ARG_READ_IN, TNI_ARG_READ_OUT, TNI_ARG_READ_ATTR)}; \
    }

static inline void *data_of(const tn_view *v) {
    return v ? v->data : NULL;
}

#endif
