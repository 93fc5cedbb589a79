/* The default host: its parallel loop, and hosts of callers, which may leave members to it. */
#ifndef TNI_THREADS_H
#define TNI_THREADS_H

#include <tenon/host.h>

enum { TNI_MOST_THREADS = 1024 };
void tni_parallel(void *context, int64_t n, int64_t grain, tn_body body, void *arg);
void tni_threads_end(void); /* joins the workers; the next loop starts new ones */

/* A host with all members: the one that was given, the default one for NULL, or `room`, which refers to the one that
 * was given. */
tn_status tni_host_fill(const char *wanted, const tn_host *given, tn_host *room, const tn_host **host);

#endif
