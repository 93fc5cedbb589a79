#include "new.h"
#include <stdio.h>

bool read_kernels(const char *path, const char *name, from_result *made) {
    (void)path, (void)name, (void)made;
    return false;
}
