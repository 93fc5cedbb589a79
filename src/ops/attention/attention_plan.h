/* How attention on the CPU is divided, and the memory that its parts are packed into.
 *
 * The heads of q that share one of k are worked on together: row r of such a group is head r % group of query r /
 * group. A row meets the keys in blocks of ATTENTION_KEYS from key 0 on, so its bits do not depend on the rows beside
 * it, nor on the number of threads. */
#ifndef TNI_ATTENTION_PLAN_H
#define TNI_ATTENTION_PLAN_H

#include "attention.h"
#include "core/host/memory.h"

enum {
    ATTENTION_ROWS = 96,  /* of a block: rows of its tiles come in 6s and 12s */
    ATTENTION_KEYS = 128, /* of a block */
};

/* What `prepare` makes. Sizes are in bytes. */
typedef struct attention_plan {
    int64_t pieces; /* that threads take by turns */
    int64_t slices; /* shares of the workspace, a thread's each */
    int64_t slice_bytes;
    int64_t shared_bytes; /* of the gradient, behind the slices: sums of dbias, and of dsinks for each entry and head */
} attention_plan;

tn_status tni_attention_prepare(const tn_call *call, void **state);
tn_status tni_attention_grad_prepare(const tn_call *call, void **state);
size_t tni_attention_workspace(const tn_call *call);

#endif
