/* The kernels that .cu files export, found by the build (cmake/kernels.cmake). */
#ifndef TENON_TEST_KERNELS_H
#define TENON_TEST_KERNELS_H

#include "cuda/driver/cuda.h"

typedef struct exported_kernel {
    const char *unit, *name;
    bool asked; /* some call wants it */
} exported_kernel;
extern exported_kernel exported_kernels[]; /* {0} ends */

#endif
