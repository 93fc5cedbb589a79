/* The pieces of a scan: formulas over tensors without the axis, and calls of them. */
#ifndef TNI_FUSE_SCAN_PIECES_H
#define TNI_FUSE_SCAN_PIECES_H

#include "core/contract/parts.h"
#include "fuse/cuda/gpu_walk.h"
#include "operator.h"

#define TNI_SCAN_TYPES "f16 bf16 f32 f64 i8 i16 i32 i64 u8 u16 u32"

enum { TNI_SCAN_INPUTS = TNI_SCAN_VALUES + 2, TNI_SCAN_OUTPUTS = TNI_WALK_ROLES + 1 }; /* the most that a piece has */

/* A formula that the kernel runs, over tensors without the axis. */
typedef struct tni_scan_piece {
    tni_fuse *formula; /* NULL: it is not needed */
    tni_program *program;
    int32_t n_in, n_out;
    int32_t in[TNI_SCAN_INPUTS], out[TNI_SCAN_OUTPUTS]; /* of the operator; -1: s */
    bool wanted[TNI_SCAN_OUTPUTS];
} tni_scan_piece;

/* The part of a buffer that an argument has: -1: it goes through none. */
typedef struct tni_scan_buffers {
    int64_t width; /* elements of the axis that there is room for; 0: nothing goes through a buffer */
    int64_t in[TNI_SCAN_VALUES + 1], out[TNI_SCAN_LAST + 1]; /* bytes from where buffers begin */
    size_t bytes;
} tni_scan_buffers;

typedef struct tni_scan_run {
    tni_scan_piece begin, step, end;
    int64_t n, lines;  /* elements along the axis, and of s */
    size_t state, own; /* bytes: of s, and the most that a piece needs */
    tni_scan_buffers buffers;
    bool reference;
} tni_scan_run;

/* Views of a call of a piece. */
typedef struct tni_scan_views {
    tn_view views[TNI_SCAN_INPUTS + TNI_SCAN_OUTPUTS];
    int64_t shapes[TNI_SCAN_INPUTS + TNI_SCAN_OUTPUTS][TN_MAX_RANK],
        strides[TNI_SCAN_INPUTS + TNI_SCAN_OUTPUTS][TN_MAX_RANK];
    tn_slot in[TNI_SCAN_INPUTS], out[TNI_SCAN_OUTPUTS];
    tn_value attrs[TNI_MAX_ARGS];
    tn_call call;
} tni_scan_views;

static inline int32_t tni_scan_axis(const tn_call *call) {
    return (int32_t)call->attrs[TNI_SCAN_AXIS].i;
}

/* scan_pieces.c: the call of a piece for element i of the axis, its workspace and state not set */
void tni_scan_call_of(const tn_call *call, const tni_scan_run *s, const tni_scan_piece *p, int64_t i,
                      tni_scan_views *made);
/* p->formula from its text, which is gone then. */
tn_status tni_scan_parse(tni_scan_piece *p, tni_text *text);
/* The step as statements that assign step_result. The caller frees them with tni_free. */
tn_status tni_scan_step_text(const tn_call *call, char **statements);
/* ", x: f32[*r], a: bf16[*r]": the values of the step, which the piece takes. */
void tni_scan_add_values(const tn_call *call, tni_scan_piece *p, tni_text *text);
/* begin, step and end, bound. */
tn_status tni_scan_make_pieces(const tn_call *call, tni_scan_run *s);
void tni_scan_release(tni_scan_piece *p);

/* scan_walk.c: the step in one launch; TN_UNSUPPORTED where no kernel can walk with it */
tn_status tni_scan_make_walk(const tn_call *call, tni_scan_run *s);
tn_status tni_scan_run_walk(const tn_call *call, const tni_scan_run *s);

#endif
