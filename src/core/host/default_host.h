/* Hosts of callers, which may leave members to the default one. */
#ifndef TNI_DEFAULT_HOST_H
#define TNI_DEFAULT_HOST_H

#include <tenon/host.h>

/* A host with all members: the one that was given, the default one for NULL, or `room`, which refers to the one that
 * was given. */
tn_status tni_host_fill(const char *wanted, const tn_host *given, tn_host *room, const tn_host **host);

#endif
