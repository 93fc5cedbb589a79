/* TENON_CHECK_INDEX=1: kernels from text are compiled with pointers that know their tensor. An index out of range goes
 * nowhere, and the call fails and names the first one. Every call waits for the GPU. */
#ifndef TNI_TEXT_INDEX_CHECK_H
#define TNI_TEXT_INDEX_CHECK_H

#include "source.h"

bool tni_checks_index(void);

/* What a kernel is given instead of a pointer, and what it reports: both as the device code has them. */
typedef struct tni_checked {
    void *at, *first;
    int64_t bytes; /* from `first` on */
    void *report;
    int64_t which; /* the kernel's parameter */
} tni_checked;
typedef struct tni_report {
    int32_t taken; /* 0: nothing was out of range */
    int32_t which;
    int64_t index, count;
    uint32_t block[3], thread[3];
    double room[8]; /* what is out of range is written here */
} tni_report;

/* The device code of both. */
extern const char tni_checked_text[];
extern const char tni_checked_vectors[]; /* behind it and tenon/device.cuh */
/* The text with the pointers of its kernels' parameters replaced, and those that are made of them. */
void tni_put_checked(tni_text *text, const char *cuda, const tni_cfunctions *all, tni_arena *arena);

/* Launches a kernel that was compiled so, waits for it, and says what it reports. `checked` are what the pointers among
 * its parameters are given, and `names` what they are called. */
typedef char tni_param_name[32];
tn_status tni_launch_checked(const tn_call *call, const tn_launch *launch, int32_t n, const tni_give *give,
                             const tni_param_name *names);

#endif
