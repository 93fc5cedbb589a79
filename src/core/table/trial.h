/* The first time that a file is loaded, a child process opens it first: a file whose constructors crash, exit or hang,
 * or whose table leads nowhere, costs that process, and the one that asked gets a message. */
#ifndef TNI_TRIAL_H
#define TNI_TRIAL_H

#include <sys/stat.h>

#include "table.h"

#define TNI_PLUGIN_SYMBOL "tenon_plugin"

/* `local` is what dlopen gets, `path` what messages say. TN_OK also where there is no telling: dlopen says it then. */
tn_status tni_trial(const char *local, const char *path, const struct stat *info);

#endif
