/* A copy between two layouts, cut into boxes. A box has long runs in both: it takes the dimensions that each layout is
 * fastest along, whole as long as they are short, and some of the next. So at most two dimensions are cut, the last of
 * the one run and of the other. A box is read run by run to memory nearby, and written from there. */
#ifndef TNI_BOX_H
#define TNI_BOX_H

#include <tenon/op.h>

enum { TNI_TO, TNI_FROM }; /* what is written, and what is read */

typedef struct tni_box {
    int size; /* bytes of an element */
    int n_dims;
    int64_t shape[TN_MAX_RANK], strides[2][TN_MAX_RANK]; /* strides in elements */
    /* found by tni_box_cut: */
    int order[2][TN_MAX_RANK];   /* a view's dimensions, the fastest first */
    int64_t extent[TN_MAX_RANK]; /* of a box */
    int n_run[2];                /* of a view's fastest dimensions, so many are its run */
    int64_t run[2];              /* elements of it */
} tni_box;

/* Cuts boxes of about `most` elements. False where the runs are shorter than 16 bytes, or the same is read often. */
bool tni_box_cut(tni_box *box, int64_t most);

int64_t tni_box_elements(const tni_box *box);
bool tni_box_in_run(const tni_box *box, int view, int dim);
/* The dimension of a view's run that is cut, or could be. */
static inline int tni_box_cut_dim(const tni_box *box, int view) {
    return box->order[view][box->n_run[view] - 1];
}
/* What a step along a dimension is in the memory nearby: runs that were read, and elements of one. Runs lie there in
 * the order in which their elements are written. */
void tni_box_steps(const tni_box *box, int dim, int *run_step, int *place_step);

#endif
