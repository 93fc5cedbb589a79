/* The arguments of embedding, index_select and their gradients. */
#ifndef TNI_EMBEDDING_H
#define TNI_EMBEDDING_H

#include "ops/arguments.h"

#define EMBEDDING_ARGUMENTS(IN, OUT, ATTR) \
    IN(table) IN(index) ATTR(padding_idx, integer) ATTR(zero_padding, boolean) OUT(y)
TNI_ARGUMENTS(embedding, EMBEDDING_ARGUMENTS)

#define EMBEDDING_GRAD_ARGUMENTS(IN, OUT, ATTR) IN(dy) IN(index) ATTR(v, integer) ATTR(padding_idx, integer) OUT(dtable)
TNI_ARGUMENTS(embedding_grad, EMBEDDING_GRAD_ARGUMENTS)

#define INDEX_SELECT_ARGUMENTS(IN, OUT, ATTR) IN(x) IN(index) ATTR(axis, integer) OUT(y)
TNI_ARGUMENTS(index_select, INDEX_SELECT_ARGUMENTS)

#define INDEX_SELECT_GRAD_ARGUMENTS(IN, OUT, ATTR) IN(dy) IN(index) ATTR(shape, list) ATTR(axis, integer) OUT(dx)
TNI_ARGUMENTS(index_select_grad, INDEX_SELECT_GRAD_ARGUMENTS)

#endif
