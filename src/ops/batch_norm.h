/* How batch_norm sees its tensors and divides its work. Which numbers are summed up together depends on shapes and
 * strides alone, so the results have the same bits with any number of threads. */
#ifndef TNI_BATCH_NORM_H
#define TNI_BATCH_NORM_H

#include "../cpu/rows.h"

enum {
    TNI_BATCH_NORM_NARROW = 32, /* so few channels side by side are taken several positions at once */
    TNI_BATCH_NORM_TILE = 512,  /* columns that are worked on together */
};

/* The values of a channel are n * s, in one of two layouts:
 *   planes (NCHW): runs of `size` values side by side, one for each of `rows`; channels are step[] apart;
 *   columns (channels last): the channels side by side, `rows` of them. Where there are few, `fold` rows that follow each
 *   other in memory are one long row; `rest` columns are left over behind the last. */
typedef struct tni_channels {
    bool fits; /* all tensors have the same of the two layouts */
    bool columns;
    int64_t c, m;  /* channels, values of each */
    tni_rows rows; /* at[] of each tensor */
    int64_t step[TNI_ROWS_MAX];
    int64_t size;              /* planes */
    int64_t fold, width, rest; /* columns: width = fold * c */
    int64_t blocks, per_block; /* planes: of each channel's values; columns: of the rows. They are summed up apart. */
} tni_channels;

/* The views have the shape of views[0], or are NULL. */
tni_channels tni_channels_of(const tn_view *const *views, int32_t n_views);

/* Doubles that the sums of the blocks take, `each` for a value: planes (c, blocks), columns (blocks + 1, width). */
int64_t tni_channels_sums(const tni_channels *ch, int64_t each);

/* Walks through values begin … end - 1 of a channel in planes, one run of neighbours at a time. */
typedef struct tni_plane_run {
    tni_row row;
    int64_t offset, n, left; /* where in the plane, how many; how many after these */
} tni_plane_run;

static inline tni_plane_run tni_plane_first(const tni_channels *ch, int64_t begin, int64_t end) {
    const int64_t row = begin / ch->size, offset = begin % ch->size, most = ch->size - offset;
    const int64_t n = end - begin < most ? end - begin : most;
    return (tni_plane_run){tni_row_at(&ch->rows, row), offset, n, end - begin - n};
}

static inline bool tni_plane_next(const tni_channels *ch, tni_plane_run *run) {
    if (run->left == 0) return false;
    tni_row_next(&ch->rows, &run->row);
    run->offset = 0;
    run->n = run->left < ch->size ? run->left : ch->size;
    run->left -= run->n;
    return true;
}

/* Where the run of channel k begins in tensor v. */
static inline int64_t tni_plane_at(const tni_channels *ch, const tni_plane_run *run, int64_t k, int v) {
    return run->row.at[v] + k * ch->step[v] + run->offset;
}

#endif
