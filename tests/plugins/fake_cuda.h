/* Device code for the made-up driver of fake_cuda.c: an image whose kernels are functions of the host. */
#ifndef FAKE_CUDA_H
#define FAKE_CUDA_H

#include <stdint.h>

#define FAKE_CODE "\177made-up code"

typedef struct fake_launch { /* how CUlaunchConfig begins */
    uint32_t grid[3], block[3], shared;
} fake_launch;

typedef struct fake_kernel {
    const char *name; /* NULL: no more */
    /* All of the launch: every thread of every block. Pointers among the arguments are the host's. */
    void (*run)(const fake_launch *how, void **arguments);
    int most_threads, registers;
} fake_kernel;

typedef struct fake_code {
    char magic[16]; /* FAKE_CODE */
    int arch;       /* 90; 0: for every GPU */
    fake_kernel kernels[9];
} fake_code;

#endif
