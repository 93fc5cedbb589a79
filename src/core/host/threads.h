/* The default host's parallel loop. */
#ifndef TNI_THREADS_H
#define TNI_THREADS_H

#include <tenon/host.h>

enum { TNI_MOST_THREADS = 1024 };
void tni_parallel(void *context, int64_t n, int64_t grain, tn_body body, void *arg);
void tni_threads_end(void); /* joins the workers; the next loop starts new ones */

#endif
