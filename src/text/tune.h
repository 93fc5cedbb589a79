/* What a kernel leaves open: `TN_TUNE(BLOCK, 128, 256, 512)` in its text is a constant BLOCK whose best value `tenon
 * tune` finds. What it found stands in the text too, as a table that people can read:
 *
 *     / * TN_TUNED
 *     sm_90 f32 rows=4096 columns=1024: BLOCK=256 UNROLL=4  # 12.3 us, 1.21 times as fast
 *     * /
 *
 * A call takes the line that is nearest to it; without a table, the first value of each. */
#ifndef TNI_TEXT_TUNE_H
#define TNI_TEXT_TUNE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tenon/tensor.h>

#include "core/host/memory.h"

enum { TNI_MOST_TUNABLES = 4, TNI_MOST_VALUES = 16 };

typedef struct tni_tunable {
    char name[32];
    int32_t n;
    int64_t values[TNI_MOST_VALUES];
} tni_tunable;

typedef struct tni_tunables {
    int32_t n;
    tni_tunable of[TNI_MOST_TUNABLES];
    const char *table; /* in the text, behind TN_TUNED; NULL: there is none */
} tni_tunables;

/* A choice: a value for each. */
typedef struct tni_choice {
    int64_t values[TNI_MOST_TUNABLES];
} tni_choice;

/* What a choice goes by. */
typedef struct tni_tune_point {
    int major, minor;
    tn_type type; /* of the first input */
    int64_t rows, columns;
} tni_tune_point;

tn_status tni_find_tunables(const char *op, const char *text, tni_arena *arena, tni_tunables *found);
tni_choice tni_first_choice(const tni_tunables *of);
/* The nearest line of the table; what is forced comes first. */
tni_choice tni_tune_choose(const tni_tunables *of, const tni_tune_point *point);
/* Line `i` of the table, from 0 on; false: there is none, or it says nothing of use. */
bool tni_tuned_line(const tni_tunables *of, int32_t i, tni_tune_point *point, tni_choice *choice);

/* Every call of every kernel takes this one until it is NULL: for `tenon tune`, which runs nothing beside it. */
void tni_force_choice(const tni_choice *choice);

/* maxrregcount and use_fast_math are options of the compiler; others are constants. */
bool tni_is_option(const char *name);

#endif
