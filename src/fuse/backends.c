/* The backends of formulas, the best first. */
#include "fuse/cpu/compile_c.h"
#include "fuse/cuda/gpu.h"
#include "operator.h"

const tni_backend *const tni_formula_backends[] = {
    &tni_cuda_backend,
    &tni_c_backend,
    &tni_interpreter_backend,
    NULL,
};
