/* Shared memory of a GPU, filled before a call: what a kernel reads there before it has written it shows. */
#ifndef CLI_POISON_H
#define CLI_POISON_H

#include "cuda/driver/cuda.h"

/* Words of `pattern` in the shared memory of every multiprocessor, by a kernel in the stream. The context of the device
 * is current. Returns CUDA's error. */
int poison_shared(const tni_cuda_api *cu, int device, cu_stream stream, uint32_t pattern);

#endif
