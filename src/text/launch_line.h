/* The line that says how a kernel is launched: "rows block=1024 shared=4*c". */
#ifndef TNI_TEXT_LAUNCH_LINE_H
#define TNI_TEXT_LAUNCH_LINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tenon/status.h>

enum { TNI_MOST_STEPS = 8 }; /* kernels that a call launches one after the other */

/* What the sizes in a line are. */
typedef struct tni_sizes {
    /* The number of a name; false: there is none. */
    bool (*value)(const void *context, const char *name, size_t length, int64_t *value);
    /* Bytes of a type of the contract, or with `acc` of the type of its sums; false: there is none. */
    bool (*bytes)(const void *context, const char *type, size_t length, bool acc, int64_t *bytes);
    void (*list)(const void *context, char *text, size_t size); /* all names, for messages */
    const void *context;
    int64_t count;                /* elements of what the kernel writes */
    int64_t rows, columns;        /* of what it reads: the last dimension, and all before it */
    int64_t height, width, batch; /* of what it writes: the last two dimensions, and all before them */
} tni_sizes;

typedef struct tni_launch_step {
    char kernel[64]; /* "": the text has one */
    int64_t grid[3], block[3], shared, cluster;
} tni_launch_step;

typedef struct tni_launch_steps {
    int32_t n;
    tni_launch_step steps[TNI_MOST_STEPS];
    int64_t scratch; /* bytes that they share */
} tni_launch_steps;

/* Messages begin with the operator's name and point at the character. */
tn_status tni_launch_read(const char *op, const char *line, const tni_sizes *sizes, tni_launch_steps *made);

#endif
