/* How a and b get to kernels that read 16 bytes at a time: as they lie, or copied into the workspace, which is little
 * beside the product. */
#include "core/contract/contract.h"
#include "core/host/arith.h"
#include "cuda/copy/copy.h"
#include "gemm_cuda.h"

/* a or b as lines: `line` and `step` are its strides from line to line and along k. */
typedef struct lines {
    const tni_matrix *x;
    int64_t count, line, step;
} lines;

static lines lines_of_a(const tni_product *p) {
    return (lines){&p->a, p->m, p->a.row, p->a.column};
}

static lines lines_of_b(const tni_product *p) {
    return (lines){&p->b, p->n, p->b.column, p->b.row};
}

int64_t tni_gemm_terms(const tni_product *p) {
    int64_t terms = p->k;
    for (int32_t d = 0; d < p->n_sums; d++) terms *= p->sums[d];
    return terms;
}

/* Numbers in 16 bytes. */
static int64_t piece_of(const tni_matrix *x) {
    return 16 / (int64_t)tn_type_size(x->type);
}

/* `count` lines, `pitch` apart and at least `least`, and the matrices of the batch begin at multiples of 16 bytes. */
static bool in_pieces(const tni_product *p, const tni_matrix *x, int64_t count, int64_t pitch, int64_t least) {
    const int64_t piece = piece_of(x);
    bool fits = p->n_sums == 0 && (count <= 1 || (pitch >= least && pitch % piece == 0));
    for (int32_t d = 0; d < p->n_batch; d++) {
        fits = fits && (p->batch[d] == 1 || (x->batch[d] >= 0 && x->batch[d] % piece == 0));
    }
    return fits;
}

/* As it lies, if that is in pieces of 16 bytes; else as a dense copy along k. */
static tni_gemm_operand operand_of(const tni_product *p, lines l, bool apart, bool must_be_along, size_t *bytes) {
    const bool along = (p->k <= 1 || l.step == 1) && in_pieces(p, l.x, l.count, l.line, apart ? p->k : 1);
    const bool across = (l.count <= 1 || l.line == 1) && in_pieces(p, l.x, p->k, l.step, apart ? l.count : 1);
    if (along || (across && !must_be_along)) return (tni_gemm_operand){.along = along};
    int64_t entries = 1;
    for (int32_t d = 0; d < p->n_batch; d++) entries *= l.x->batch[d] ? p->batch[d] : 1;
    const tni_gemm_operand o = {
        .copied = true, .along = true, .pitch = round_up(tni_gemm_terms(p), piece_of(l.x)), .offset = *bytes};
    *bytes += (size_t)round_up(entries * l.count * o.pitch * (int64_t)tn_type_size(l.x->type), 256);
    return o;
}

size_t tni_gemm_operands(const tni_product *p, size_t used, const tni_gemm_wants *wants, tni_gemm_operand *a,
                         tni_gemm_operand *b) {
    used = (size_t)round_up((int64_t)used, 256);
    *b = operand_of(p, lines_of_b(p), wants->apart, false, &used);
    *a = operand_of(p, lines_of_a(p), wants->apart, wants->a_along || (wants->alike && b->along), &used);
    return used;
}

/* A copy's loops, of which the last is the fastest; *job then says where it lies. */
typedef struct loops {
    int32_t n;
    int64_t shape[TN_MAX_RANK], from[TN_MAX_RANK], to[TN_MAX_RANK];
} loops;

static void add_loop(loops *to, int64_t size, int64_t from_stride, int64_t to_stride) {
    to->shape[to->n] = size;
    to->from[to->n] = from_stride;
    to->to[to->n++] = to_stride;
}

static loops lay_out(const tni_product *p, lines l, const tni_gemm_operand *o, tni_gpu_matrix *job) {
    loops made = {0};
    int64_t next = l.count * o->pitch, inner = p->k;
    for (int32_t d = p->n_batch - 1; d >= 0; d--) {
        job->batch[d] = 0;
        if (!l.x->batch[d] || p->batch[d] == 1) continue;
        add_loop(&made, p->batch[d], l.x->batch[d], next);
        job->batch[d] = next;
        next *= p->batch[d];
    }
    add_loop(&made, l.count, l.line, o->pitch);
    for (int32_t d = p->n_sums - 1; d >= 0; d--) {
        add_loop(&made, p->sums[d], l.x->sum[d], inner);
        inner *= p->sums[d];
    }
    add_loop(&made, p->k, l.step, 1);
    return made;
}

static tn_status copy_operand(const tn_call *call, const tni_product *p, lines l, const tni_gemm_operand *o,
                              tni_gpu_matrix *job) {
    const loops made = lay_out(p, l, o, job);
    job->data = (char *)call->workspace + o->offset;
    const tn_view from = {
        .data = l.x->data, .type = l.x->type, .ndim = made.n, .shape = made.shape, .strides = made.from};
    const tn_view to = {.data = job->data, .type = l.x->type, .ndim = made.n, .shape = made.shape, .strides = made.to};
    return tni_cuda_copy(call, &to, &from);
}

void tni_gemm_place_operands(const tni_product *p, const tni_gemm_operand *a, const tni_gemm_operand *b,
                             tni_gpu_product *job) {
    if (a->copied) {
        lay_out(p, lines_of_a(p), a, &job->a);
        job->a.row = a->pitch;
        job->a.col = 1;
    }
    if (b->copied) {
        lay_out(p, lines_of_b(p), b, &job->b);
        job->b.col = b->pitch;
        job->b.row = 1;
    }
    job->k = tni_gemm_terms(p);
    job->n_sums = 0;
}

tn_status tni_gemm_copy_operands(const tn_call *call, const tni_product *p, const tni_gemm_operand *a,
                                 const tni_gemm_operand *b, tni_gpu_product *job) {
    tni_gemm_place_operands(p, a, b, job);
    if (a->copied) TN_TRY(copy_operand(call, p, lines_of_a(p), a, &job->a));
    if (b->copied) TN_TRY(copy_operand(call, p, lines_of_b(p), b, &job->b));
    return TN_OK;
}

bool tni_gemm_is_aligned(const tni_gpu_product *job) {
    return (uintptr_t)job->a.data % 16 == 0 && (uintptr_t)job->b.data % 16 == 0;
}
