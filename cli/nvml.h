/* What NVML says of a GPU: clocks, temperature, power, why it is slower than it could be. Opened when first asked for;
 * where it is missing, `known` is false and nothing else is lost. */
#ifndef CLI_NVML_H
#define CLI_NVML_H

#include "cuda/driver/cuda.h"

typedef struct gpu_state {
    bool known;
    unsigned sm_mhz, memory_mhz, most_sm_mhz, most_memory_mhz;
    unsigned celsius, watts, most_watts;
    uint64_t memory_used, memory_free;
    uint64_t reasons; /* clocks are held down: NVML's bits */
} gpu_state;

/* The GPU that CUDA calls `device` in this process. Makes no context. */
gpu_state nvml_state(int device);
const char *nvml_driver(void); /* "580.65.06"; "" where NVML is missing */
/* "power cap, thermal": `reasons` in words, "none" where there are none but idleness. */
const char *nvml_reasons(uint64_t reasons, char text[static 160]);

#endif
