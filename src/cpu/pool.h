/* Memory of the CPU: what is freed is kept by size and handed out again. As a device has it (device.h). */
#ifndef TNI_POOL_H
#define TNI_POOL_H

#include <tenon/device.h>

tn_status tni_pool_alloc(const char *wanted, tn_device device, size_t bytes, void *stream, tn_block *block);
void tni_pool_free(tn_device device, tn_block block, void *stream);
void tni_pool_trim(void);
tn_status tni_pool_memory(const char *wanted, tn_device device, tn_memory_stats *stats, bool reset_peak);

#endif
