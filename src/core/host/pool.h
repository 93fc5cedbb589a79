/* Freed memory of the CPU, kept by size and handed out again. */
#ifndef TNI_POOL_H
#define TNI_POOL_H

#include <tenon/host.h>

tn_block tni_pool_alloc(size_t bytes); /* aligned to TNI_ALIGNMENT; data is NULL, and a message, when there is none */
void tni_pool_free(tn_block block);
void tni_pool_trim(void); /* gives what nobody uses back to the system */

#endif
