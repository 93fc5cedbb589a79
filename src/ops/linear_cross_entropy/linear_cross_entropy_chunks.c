/* linear_cross_entropy by chunks of the vocabulary, on any device: products are matmul and matmul_add, and what
 * happens to a chunk of logits is a formula.
 *
 * The first pass goes over the chunks from the first to the last: product, then its part in what is known of each row
 * (lse, the target's logit). The second pass goes back, from the last chunk to the first: the logits become their
 * gradient where they are, and this is a factor of dw, which a chunk has by itself, and of dx, to which all chunks add.
 * So all sums are in f32 at least: one of dw is within one product, and dx has a tensor in f32 as large as x. Chunks of
 * rows would need one as large as w instead, which is 2 GiB where x has 64 MiB.
 *
 * As many chunks as logits_mib has room for are still there when the second pass comes to them: these take three
 * products. The others are computed again, which makes four. Where all logits have room there is one chunk. Without
 * gradients there is one pass; the gradient of tokens has all from forward and makes the second pass alone. */
#include <tenon/cuda.h>
#include <tenon/fuse.h>

#include "core/contract/contract.h"
#include "core/host/arith.h"
#include "core/host/memory.h"
#include "core/host/status.h"
#include "core/run/run.h"
#include "linear_cross_entropy.h"
#include "linear_cross_entropy_text.h"
#include "ops/loss/cross_entropy.h"

enum {
    PARTS = 3,     /* chunks that the room is for, where two passes come: fewer are larger products, and less is kept */
    COLUMNS = 256, /* of a chunk, at least */
    LINE = 64,     /* elements between rows of a chunk are a multiple of this */
};

/* What is in the workspace. The first ones are (rows). */
enum {
    AT,
    INDEX,
    SHARE,
    MOST,
    POWERS,
    AIMED,
    MEAN,
    SUM,
    NEW_MOST, /* as the five above, of one chunk */
    NEW_POWERS,
    NEW_AIMED,
    NEW_MEAN,
    NEW_SUM,
    LSE,
    LOG_SUM,
    LOSS,
    LOG_PROB,
    ENTROPY,
    COUNTED,
    ALL,
    EDGE,
    SOFT,
    WHOLE,
    ROW_ROOMS
};
enum { TOTAL = ROW_ROOMS, UNIT, BACK, DX, LOGITS, ROOMS };

/* The operators of the table that are called. */
enum { MATMUL, MATMUL_ADD, EMBEDDING, CALLED };
static const char *const called[CALLED] = {"matmul", "matmul_add", "embedding"};

/* What `prepare` makes. */
typedef struct plan {
    const tn_function *op[CALLED], *formula[TNI_TOKEN_FORMULAS];
    int64_t width, chunks; /* columns of a chunk; the last one may have fewer */
    int64_t held;          /* chunks at the end that keep their logits */
    int64_t pitch;         /* from row to row of a chunk */
    size_t offset[ROOMS];
    size_t bytes, nested; /* of all these; of the operators' own workspace */
} plan;

/* A tensor with its shape. */
typedef struct array {
    tn_tensor t;
    int64_t shape[2], strides[2];
} array;

typedef struct work {
    const tn_call *call;
    tni_token_loss a;
    const plan *plan;
    plan *planned; /* NULL: this is a run */
    tn_type type, sums;
    array rows[ROW_ROOMS], x, target, weight, total, unit, back;
} work;

/* ---- the plan ---------------------------------------------------------------------------------------------------- */

static bool has_gradient(const tni_token_loss *a) {
    return a->dx || a->dw || a->db;
}

static void divide(const tni_token_loss *a, int64_t size, plan *p) {
    const int64_t column = max(a->rows, 1) * size, room = a->logits_mib << 20;
    const bool twice = has_gradient(a) && !a->lse_was;
    p->width = a->v;
    if (a->v * column > room) {
        const int64_t fit = room / (twice ? PARTS : 1) / column;
        const int64_t chunks = ceil_div(a->v, min(max(fit, COLUMNS), a->v));
        p->width = min(round_up(ceil_div(a->v, chunks), LINE), a->v);
    }
    p->chunks = a->v ? ceil_div(a->v, p->width) : 1;
    p->pitch = round_up(p->width, p->width < LINE ? 8 : LINE);
    p->held = twice ? min(max(room / (max(p->pitch, 1) * column), 1), p->chunks) : 1;
}

/* Where everything is. */
static void lay_out(const tni_token_loss *a, tn_type type, plan *p) {
    const int64_t sum = (int64_t)tn_type_size(tni_acc_type(type)), size = (int64_t)tn_type_size(type);
    int64_t bytes[ROOMS];
    for (int i = 0; i < ROW_ROOMS; i++) bytes[i] = a->rows * (i == AT || i == INDEX ? 8 : sum);
    bytes[TOTAL] = bytes[UNIT] = bytes[BACK] = sum;
    bytes[DX] = sum == size || p->chunks == 1 || !a->dx ? 0 : a->rows * a->k * sum;
    bytes[LOGITS] = p->held * a->rows * p->pitch * size;
    for (int i = 0; i < ROOMS; i++) {
        p->offset[i] = p->bytes;
        p->bytes += (size_t)round_up(bytes[i], 256);
    }
}

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

static void *room_at(const work *w, int room) {
    return w->call->workspace ? (char *)w->call->workspace + w->plan->offset[room] : NULL;
}

static void *element(void *data, tn_type type, int64_t at) {
    return data ? (char *)data + at * (int64_t)tn_type_size(type) : NULL;
}

/* (rows, columns) with a stride for each, or with fewer dimensions. */
static void set_array(const work *w, array *a, void *data, tn_type type, int32_t ndim, int64_t rows, int64_t columns,
                      int64_t row, int64_t column) {
    *a = (array){.shape = {rows, columns}, .strides = {row, column}};
    a->t = (tn_tensor){.data = data, .device = w->call->device, .ndim = ndim, .dtype = tn_type_to_dlpack(type)};
    a->t.shape = a->shape;
    a->t.strides = a->strides;
}

static void set_vector(const work *w, array *a, void *data, tn_type type, int64_t count) {
    set_array(w, a, data, type, 1, count, 1, 1, 1);
}

/* Rows of a tensor of the call, from row `first` on. */
static void set_matrix(const work *w, array *a, const tn_view *v, int64_t first, int64_t rows, int64_t columns) {
    set_array(w, a, element(v->data, v->type, first * columns), v->type, 2, rows, columns, columns, 1);
}

/* The outputs that the call has are what they are; the others are in the workspace. */
static void set_arrays(work *w) {
    const tni_token_loss *a = &w->a;
    const tn_view *const own[ROW_ROOMS] = {[LSE] = a->lse_was ? a->lse_was : a->lse,
                                           [LOSS] = a->reduction == REDUCE_NONE ? a->loss : NULL,
                                           [LOG_PROB] = a->log_prob_was ? a->log_prob_was : a->log_prob,
                                           [ENTROPY] = a->entropy_was ? a->entropy_was : a->entropy};
    for (int i = 0; i < ROW_ROOMS; i++) {
        const tn_type type = i == AT || i == INDEX ? TN_I64 : i == SHARE ? TN_F32 : w->sums;
        set_vector(w, &w->rows[i], own[i] ? own[i]->data : room_at(w, i), type, a->rows);
    }
    set_vector(w, &w->target, a->target->data, a->target->type, a->rows);
    set_matrix(w, &w->x, a->x, 0, a->rows, a->k);
    if (a->weight) set_vector(w, &w->weight, a->weight->data, TN_F32, a->v);
    void *total = a->reduction != REDUCE_NONE && a->loss ? a->loss->data : room_at(w, TOTAL);
    set_array(w, &w->total, total, w->sums, 0, 1, 1, 1, 1);
    set_array(w, &w->unit, room_at(w, UNIT), w->sums, 0, 1, 1, 1, 1);
    set_array(w, &w->back, room_at(w, BACK), w->sums, 0, 1, 1, 1, 1);
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

/* Plans a call, or makes it. */
static tn_status step(work *w, const tn_function *op, const tn_args *args) {
    if (w->planned) {
        size_t bytes = 0;
        TN_TRY(tn_prepare(op, args, w->call->host));
        TN_TRY(tn_workspace(op, args, &bytes));
        if (bytes > w->planned->nested) w->planned->nested = bytes;
        return TN_OK;
    }
    tni_scratch own;
    char *behind = w->call->workspace ? (char *)w->call->workspace + w->plan->bytes : NULL;
    return tn_run(op, args, tni_scratch_init(&own, w->call->host, behind, w->plan->nested));
}

#define COUNT(list) ((int32_t)(sizeof(list) / sizeof((list)[0])))
#define STEP(w, op, inputs, attributes, outputs)  \
    step(w, op,                                   \
         &(tn_args){.in = inputs,                 \
                    .n_in = COUNT(inputs),        \
                    .attrs = attributes,          \
                    .n_attrs = COUNT(attributes), \
                    .out = outputs,               \
                    .n_out = COUNT(outputs)})

static const tn_tensor *given(const tn_view *v, const array *a) {
    return v ? &a->t : NULL;
}

static int64_t columns_of(const work *w, int64_t chunk) {
    return min(w->a.v - chunk * w->plan->width, w->plan->width);
}

/* The logits of a chunk. The last chunks have their own place. */
static void set_logits(const work *w, int64_t chunk, array *h) {
    const int64_t slot = max(chunk - (w->plan->chunks - w->plan->held), 0), n = columns_of(w, chunk);
    void *data = element(room_at(w, LOGITS), w->type, slot * w->a.rows * w->plan->pitch);
    set_array(w, h, data, w->type, 2, w->a.rows, n, w->plan->pitch, 1);
}

/* x w^T of a chunk: over the temperature, if nothing comes in between. b is added where the logits are read. */
static tn_status make_logits(work *w, int64_t chunk) {
    const int64_t first = chunk * w->plan->width, n = columns_of(w, chunk), k = w->a.k;
    array h, turned;
    set_logits(w, chunk, &h);
    set_array(w, &turned, element(w->a.w->data, w->type, first * k), w->type, 2, k, n, 1, k);
    const tn_tensor *const in[] = {&w->x.t, &turned.t};
    const tn_attr attrs[] = {tn_attr_float("alpha", w->a.softcap > 0 ? 1 : 1 / w->a.temperature)};
    tn_tensor *const out[] = {&h.t};
    return STEP(w, w->plan->op[MATMUL], in, attrs, out);
}

/* Where the targets are, and their weights. */
static tn_status begin(work *w) {
    array table, share;
    const tn_tensor *const targets[] = {&w->target.t};
    const tn_attr spots[] = {tn_attr_int("classes", w->a.v), tn_attr_int("ignore_index", w->a.ignore_index),
                             tn_attr_bool("behind", w->a.lse_was)};
    tn_tensor *const found[] = {&w->rows[AT].t, &w->rows[INDEX].t};
    TN_TRY(STEP(w, w->plan->formula[TNI_TOKEN_SPOTS], targets, spots, found));
    if (!w->a.weight) return TN_OK;
    set_array(w, &table, w->a.weight->data, TN_F32, 2, w->a.v, 1, 1, 1);
    set_array(w, &share, w->rows[SHARE].t.data, TN_F32, 2, w->a.rows, 1, 1, 1);
    const tn_tensor *const in[] = {&table.t, &w->rows[INDEX].t};
    const tn_attr none[] = {tn_attr_int("padding_idx", -1)};
    tn_tensor *const out[] = {&share.t};
    return STEP(w, w->plan->op[EMBEDDING], in, none, out);
}

/* ---- the first pass ---------------------------------------------------------------------------------------------- */

static tn_status clear(work *w) {
    const tn_tensor *const in[] = {&w->target.t};
    const tn_attr attrs[] = {tn_attr_type("out", w->sums)};
    tn_tensor *const out[] = {&w->rows[MOST].t, &w->rows[POWERS].t, &w->rows[AIMED].t, &w->rows[MEAN].t,
                              &w->rows[SUM].t};
    return STEP(w, w->plan->formula[TNI_TOKEN_CLEAR], in, attrs, out);
}

/* b and the weights of a chunk. */
static void set_beside(const work *w, int64_t chunk, array *b, array *weights) {
    const tni_token_loss *a = &w->a;
    const int64_t first = chunk * w->plan->width, n = columns_of(w, chunk);
    if (a->b) set_vector(w, b, element(a->b->data, w->type, first), w->type, n);
    if (a->weight) set_vector(w, weights, element(a->weight->data, TN_F32, first), TN_F32, n);
}

/* What a chunk says joins what is known. */
static tn_status merge(work *w, int64_t columns) {
    const tn_tensor *const in[] = {&w->rows[NEW_MOST].t, &w->rows[NEW_POWERS].t, &w->rows[NEW_AIMED].t,
                                   &w->rows[NEW_MEAN].t, &w->rows[NEW_SUM].t,    &w->rows[AT].t,
                                   &w->rows[MOST].t,     &w->rows[POWERS].t,     &w->rows[AIMED].t,
                                   &w->rows[MEAN].t,     &w->rows[SUM].t};
    const tn_attr attrs[] = {tn_attr_int("columns", columns)};
    return step(w, w->plan->formula[TNI_TOKEN_MERGE],
                &(tn_args){.in = in, .n_in = COUNT(in), .attrs = attrs, .n_attrs = COUNT(attrs)});
}

static tn_status read_logits(work *w, int64_t chunk) {
    const tni_token_loss *a = &w->a;
    array h, b, weights;
    if (a->v == 0) return TN_OK;
    TN_TRY(make_logits(w, chunk));
    set_logits(w, chunk, &h);
    set_beside(w, chunk, &b, &weights);
    const tn_tensor *const in[] = {&h.t, &w->rows[AT].t, given(a->b, &b), given(a->weight, &weights)};
    const tn_attr attrs[] = {tn_attr_float("softcap", a->softcap), tn_attr_float("temperature", a->temperature),
                             tn_attr_bool("entropy", a->entropy), tn_attr_bool("smooth", a->label_smoothing > 0)};
    tn_tensor *const out[] = {&w->rows[NEW_MOST].t, &w->rows[NEW_POWERS].t, &w->rows[NEW_AIMED].t, &w->rows[NEW_MEAN].t,
                              &w->rows[NEW_SUM].t};
    TN_TRY(STEP(w, w->plan->formula[TNI_TOKEN_READ], in, attrs, out));
    return merge(w, columns_of(w, chunk));
}

static tn_status find_losses(work *w) {
    const tni_token_loss *a = &w->a;
    const tn_tensor *const in[] = {&w->target.t,
                                   &w->rows[MOST].t,
                                   &w->rows[POWERS].t,
                                   &w->rows[AIMED].t,
                                   &w->rows[MEAN].t,
                                   &w->rows[SUM].t,
                                   given(a->weight, &w->rows[SHARE]),
                                   given(a->weight, &w->weight)};
    const tn_attr attrs[] = {tn_attr_int("classes", a->v), tn_attr_int("ignore_index", a->ignore_index),
                             tn_attr_float("label_smoothing", a->label_smoothing), tn_attr_float("z_loss", a->z_loss)};
    tn_tensor *const out[] = {&w->rows[LOSS].t, &w->rows[LOG_PROB].t, &w->rows[ENTROPY].t,
                              &w->rows[LSE].t,  &w->rows[LOG_SUM].t,  &w->rows[COUNTED].t};
    TN_TRY(STEP(w, w->plan->formula[TNI_TOKEN_LOSSES], in, attrs, out));
    if (a->reduction == REDUCE_NONE) return TN_OK;
    const tn_tensor *const rows[] = {&w->rows[LOSS].t, &w->rows[COUNTED].t};
    const tn_attr how[] = {tn_attr_bool("mean", a->reduction == REDUCE_MEAN)};
    tn_tensor *const numbers[] = {&w->total.t, &w->unit.t, &w->back.t};
    return STEP(w, w->plan->formula[TNI_TOKEN_TOTAL], rows, how, numbers);
}

/* ---- the second pass --------------------------------------------------------------------------------------------- */

/* The factors of a row's gradient. */
static tn_status find_factors(work *w) {
    const tni_token_loss *a = &w->a;
    array dloss, dlog_prob;
    if (a->dloss) set_vector(w, &dloss, a->dloss->data, w->sums, a->rows);
    if (a->dlog_prob) set_vector(w, &dlog_prob, a->dlog_prob->data, w->sums, a->rows);
    const tn_tensor *const in[] = {&w->target.t,
                                   &w->rows[LSE].t,
                                   &w->rows[LOG_PROB].t,
                                   given(a->weight, &w->rows[SHARE]),
                                   given(a->weight, &w->weight),
                                   a->lse_was ? NULL : &w->unit.t,
                                   given(a->dloss, &dloss),
                                   given(a->dlog_prob, &dlog_prob)};
    const tn_attr attrs[] = {tn_attr_int("classes", a->v), tn_attr_int("ignore_index", a->ignore_index),
                             tn_attr_float("label_smoothing", a->label_smoothing), tn_attr_float("z_loss", a->z_loss)};
    tn_tensor *const out[] = {&w->rows[ALL].t, &w->rows[EDGE].t, &w->rows[SOFT].t, &w->rows[WHOLE].t};
    return STEP(w, w->plan->formula[TNI_TOKEN_FACTORS], in, attrs, out);
}

/* Targets are counted from the first column of the chunk before. */
static tn_status go_left(work *w, int64_t columns) {
    const tn_tensor *const in[] = {&w->rows[AT].t};
    const tn_attr attrs[] = {tn_attr_int("columns", columns)};
    return step(w, w->plan->formula[TNI_TOKEN_BACK], &(tn_args){.in = in, .n_in = 1, .attrs = attrs, .n_attrs = 1});
}

/* The logits of a chunk become their gradient. */
static tn_status turn_logits(work *w, int64_t chunk, array *h) {
    const tni_token_loss *a = &w->a;
    array b, weights, spread;
    if (a->v == 0) return TN_OK;
    TN_TRY(go_left(w, columns_of(w, chunk)));
    set_beside(w, chunk, &b, &weights);
    if (a->dentropy) set_vector(w, &spread, a->dentropy->data, w->sums, a->rows);
    const tn_tensor *const in[] = {&h->t,
                                   &w->rows[AT].t,
                                   &w->rows[a->lse_was ? LSE : MOST].t,
                                   a->lse_was ? NULL : &w->rows[LOG_SUM].t,
                                   &w->rows[ALL].t,
                                   &w->rows[EDGE].t,
                                   a->label_smoothing > 0 ? &w->rows[SOFT].t : NULL,
                                   a->label_smoothing > 0 ? &w->rows[WHOLE].t : NULL,
                                   given(a->dentropy, &spread),
                                   given(a->dentropy, &w->rows[ENTROPY]),
                                   given(a->b, &b),
                                   given(a->weight, &weights)};
    const tn_attr attrs[] = {tn_attr_float("softcap", a->softcap), tn_attr_float("temperature", a->temperature)};
    return step(w, w->plan->formula[TNI_TOKEN_SLOPE],
                &(tn_args){.in = in, .n_in = COUNT(in), .attrs = attrs, .n_attrs = COUNT(attrs)});
}

/* What gradients of h are too large by, so that in f16 none of them is lost: 'mean' divides by about as much. */
static double alpha_of(const tni_token_loss *a) {
    return a->reduction == REDUCE_MEAN ? 1 / (double)max(a->rows, 1) : 1;
}

static tn_status add_dx(work *w, int64_t chunk, const array *h) {
    const tni_token_loss *a = &w->a;
    const bool single = w->plan->chunks == 1;
    array rows, dx;
    set_matrix(w, &rows, a->w, chunk * w->plan->width, columns_of(w, chunk), a->k);
    set_matrix(w, &dx, a->dx, 0, a->rows, a->k);
    const tn_attr alpha = tn_attr_float("alpha", alpha_of(a));
    if (single) {
        const tn_tensor *const in[] = {&h->t, &rows.t};
        const tn_attr attrs[] = {alpha};
        tn_tensor *const out[] = {&dx.t};
        return STEP(w, w->plan->op[MATMUL], in, attrs, out);
    }
    void *sums = w->type == w->sums ? a->dx->data : room_at(w, DX);
    set_array(w, &dx, sums, w->sums, 2, a->rows, a->k, a->k, 1);
    const tn_tensor *const in[] = {&h->t, &rows.t, &dx.t};
    const tn_attr attrs[] = {alpha, tn_attr_bool("add", chunk < w->plan->chunks - 1)};
    return step(w, w->plan->op[MATMUL_ADD], &(tn_args){.in = in, .n_in = 3, .attrs = attrs, .n_attrs = 2});
}

static tn_status make_dw(work *w, int64_t chunk, const array *h) {
    array turned, dw;
    set_array(w, &turned, h->t.data, w->type, 2, h->shape[1], h->shape[0], 1, h->strides[0]);
    set_matrix(w, &dw, w->a.dw, chunk * w->plan->width, h->shape[1], w->a.k);
    const tn_tensor *const in[] = {&turned.t, &w->x.t};
    const tn_attr attrs[] = {tn_attr_float("alpha", alpha_of(&w->a))};
    tn_tensor *const out[] = {&dw.t};
    return STEP(w, w->plan->op[MATMUL], in, attrs, out);
}

/* Sums over rows; over none of them where there is no b. */
static tn_status make_db(work *w, int64_t chunk, const array *h) {
    array read = *h, db;
    set_array(w, &read, h->t.data, w->type, 2, w->a.b ? h->shape[0] : 0, h->shape[1], h->strides[0], 1);
    set_vector(w, &db, element(w->a.db->data, w->type, chunk * w->plan->width), w->type, h->shape[1]);
    const tn_tensor *const in[] = {&read.t, w->a.lse_was ? NULL : &w->back.t};
    tn_tensor *const out[] = {&db.t};
    return step(w, w->plan->formula[TNI_TOKEN_COLUMNS], &(tn_args){.in = in, .n_in = 2, .out = out, .n_out = 1});
}

static tn_status go_back(work *w, int64_t chunk) {
    const bool there = !w->a.lse_was && chunk >= w->plan->chunks - w->plan->held;
    array h;
    set_logits(w, chunk, &h);
    if (!there) TN_TRY(make_logits(w, chunk));
    TN_TRY(turn_logits(w, chunk, &h));
    if (w->a.dw) TN_TRY(make_dw(w, chunk, &h));
    if (w->a.db) TN_TRY(make_db(w, chunk, &h));
    return w->a.dx ? add_dx(w, chunk, &h) : TN_OK;
}

/* dx, rounded. */
static tn_status end_dx(work *w) {
    array sums, dx;
    if (!w->a.dx || w->plan->chunks == 1 || w->type == w->sums) return TN_OK;
    set_vector(w, &sums, room_at(w, DX), w->sums, w->a.rows * w->a.k);
    set_vector(w, &dx, w->a.dx->data, w->type, w->a.rows * w->a.k);
    const tn_tensor *const in[] = {&sums.t};
    const tn_attr attrs[] = {tn_attr_type("out", w->type)};
    tn_tensor *const out[] = {&dx.t};
    return STEP(w, w->plan->formula[TNI_TOKEN_ROUND], in, attrs, out);
}

/* ---- both -------------------------------------------------------------------------------------------------------- */

/* A plan needs no more than chunks of each size, beside each other and at either end. */
static int64_t next_chunk(const work *w, int64_t chunk) {
    const int64_t last = w->plan->chunks - 1;
    return w->planned && chunk < last - 1 ? last - 1 : chunk + 1;
}

static tn_status walk(work *w) {
    TN_TRY(begin(w));
    if (!w->a.lse_was) {
        TN_TRY(clear(w));
        for (int64_t c = 0; c < w->plan->chunks; c = next_chunk(w, c)) TN_TRY(read_logits(w, c));
        TN_TRY(find_losses(w));
    }
    if (!has_gradient(&w->a)) return TN_OK;
    TN_TRY(find_factors(w));
    for (int64_t c = 0; c < w->plan->chunks; c = next_chunk(w, c)) TN_TRY(go_back(w, w->plan->chunks - 1 - c));
    return end_dx(w);
}

static tn_status work_of(const tn_call *call, const plan *p, work *w) {
    *w = (work){.call = call, .a = tni_token_loss_of(call), .plan = p};
    w->type = w->a.x->type;
    w->sums = tni_acc_type(w->type);
    set_arrays(w);
    return TN_OK;
}

void tni_token_loss_release(void *state) {
    plan *p = state;
    for (int i = 0; p && i < TNI_TOKEN_FORMULAS; i++) tn_fuse_release(p->formula[i]);
    tni_free(p);
}

static tn_status find_operators(plan *p) {
    for (int i = 0; i < CALLED; i++) {
        p->op[i] = tn_find(called[i]);
        if (!p->op[i]) return TN_UNSUPPORTED;
    }
    for (int i = 0; i < TNI_TOKEN_FORMULAS; i++) TN_TRY(tn_fuse(tni_token_formulas[i], NULL, &p->formula[i]));
    return TN_OK;
}

static tn_status make_plan(const tn_call *call, plan *p) {
    const tni_token_loss a = tni_token_loss_of(call);
    const tn_gpu *gpu;
    work w;
    if (call->device.kind == TN_CUDA) TN_TRY(tn_cuda_gpu(call, &gpu)); /* a GPU that is not there is this operator's */
    TN_TRY(find_operators(p));
    divide(&a, (int64_t)tn_type_size(a.x->type), p);
    lay_out(&a, a.x->type, p);
    TN_TRY(work_of(call, p, &w));
    w.planned = p;
    return walk(&w);
}

tn_status tni_token_loss_prepare(const tn_call *call, void **state) {
    plan *p = tni_calloc(1, sizeof *p);
    if (!p) return TN_NO_MEMORY;
    const tn_status status = make_plan(call, p);
    if (status != TN_OK) {
        tni_token_loss_release(p);
        return status;
    }
    *state = p;
    return TN_OK;
}

size_t tni_token_loss_workspace(const tn_call *call) {
    const plan *p = call->state;
    return p->bytes + p->nested;
}

tn_status tni_token_loss_run(const tn_call *call, void *state) {
    work w;
    TN_TRY(work_of(call, state, &w));
    if (call->device.kind == TN_CPU) TN_TRY(tni_token_loss_check(call, &w.a));
    return walk(&w);
}
