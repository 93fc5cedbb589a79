/* A call's tensors on a GPU. The host's arrays stay what they are, with their guards, gaps and patterns; a mirror has a
 * copy of all of that memory on the GPU, as far from a 64-byte boundary and shared between tensors as on the host, with
 * guards of its own around it. It points the tensors there for a while and then brings everything back: whoever
 * compares looks at the host's memory alone. */
#ifndef CLI_MIRROR_H
#define CLI_MIRROR_H

#include "cuda/driver/cuda.h"
#include "data.h"

enum { MIRROR_MOST = 8 * TNI_MAX_ARGS };

/* Memory of the host, and where its copy lies. */
typedef struct mirror_region {
    char *begin, *end; /* on the host */
    size_t at;         /* bytes from the beginning of the slab */
    bool fresh;        /* outputs alone */
    cu_pointer apart;  /* memory of its own; 0: it lies in the slab */
} mirror_region;

typedef struct mirror {
    int device;
    cu_stream stream; /* its own; does not wait for the default one */
    bool delay;       /* inputs arrive late: behind some milliseconds of other work in the stream */
    bool settle;      /* the whole GPU is waited for before and behind the call: what goes by streams does not show */
    bool apart;       /* each tensor in memory of its own, just as large, for tools that watch allocations; outputs
                         hold nothing */
    unsigned char around; /* what lies around tensors: all bits set, unless somebody wants to see a difference */
    uint32_t shared;      /* what shared memory holds before a call; likewise */
    bool outside;         /* of the last run: memory outside of every tensor was written */
    char *staging;        /* pinned memory of the host, laid out like the slab */
    cu_pointer slab;
    cu_pointer late; /* where a delayed upload waits, and what it waits for; 0: none yet */
    size_t room;     /* bytes of staging and slab */
    size_t used;     /* by the arrays now there */
    int n_regions, n_arrays;
    int n_inputs; /* of the arrays: those behind are outputs */
    mirror_region regions[MIRROR_MOST];
    array *arrays[MIRROR_MOST];
    void *kept[MIRROR_MOST]; /* their data on the host */
} mirror;

/* A stream on this GPU; memory comes when it is needed. Frees itself and leaves a message on failure. */
tn_status mirror_open(mirror *m, int device);
void mirror_close(mirror *m);
/* Copies the arrays to the GPU and points their tensors there. The same arrays get the same addresses again. */
tn_status mirror_begin(mirror *m, array *const *arrays, int n);
tn_status mirror_begin_call(mirror *m, made_call *k);
/* Waits for the stream, copies everything back, points the tensors to the host again (also on failure). */
tn_status mirror_end(mirror *m);

/* Runs the call on the CPU (`on` is NULL) or, with its tensors mirrored, on a GPU. host NULL: the default one, on the
 * mirror's stream. */
tn_status call_run(made_call *k, mirror *on, const tn_host *host);

/* Reads what follows --device: "cpu", "cuda" or "cuda:1" (NULL: cpu). Else, or where there is no such GPU, a
 * message. */
tn_status read_device(const char *text, tn_device *device);

#endif
