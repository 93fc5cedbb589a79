/* Whether this thread has failed with a message since it was told to expect one. */
#ifndef TNI_STATUS_H
#define TNI_STATUS_H

#include <stdbool.h>

#include <tenon/status.h>

void tni_expect_error(void);
bool tni_error_is_said(void);

#endif
