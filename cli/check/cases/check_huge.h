/* Calls of more than 2^31 elements: what the CPU's and the GPU's version share. */
#ifndef CLI_CHECK_HUGE_H
#define CLI_CHECK_HUGE_H

#include "cli/check/check.h"

/* A problem for one element of the slice, solved; `seed` tells it from the others. False: failure, nothing to free. */
bool huge_problem(checker *c, const slice *s, problem *p, uint64_t seed);
/* Runs s->many on the GPU; `boundary` is the first element past 2^31. */
void huge_on_gpu(checker *c, slice *s, int64_t boundary);

#endif
