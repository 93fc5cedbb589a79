/* One of many: an element of a batch must come out the same whatever else is in the batch. Whether an operator's
 * elements are independent along a dimension is asked of the reference, not of the operator's name. */
#include "cli/check/check.h"
#include "core/table/table.h"

#include <stdio.h>
#include <string.h>

/* ---- slices ------------------------------------------------------------------------------------------------------ */

static tni_case *sized_case(checker *c, int32_t slot, int64_t n, void (*others)(variant *, int32_t)) {
    variant v;
    tni_case *made = NULL;
    if (!variant_begin(c, &v)) return NULL;
    if (slot < v.n_slots) {
        for (int32_t k = 0; k < v.n_slots; k++) {
            if (*v.slots[k] == 0) *v.slots[k] = 3;
        }
        if (others) others(&v, slot);
        *v.slots[slot] = n;
        if (tni_setting_case(v.setting, &made) == TN_OK) return made;
    }
    variant_drop(&v);
    return NULL;
}

/* The one dimension in which the shapes differ, n there and 1 here; -1: none. False: they differ otherwise. */
static bool differing(int32_t ndim, const int64_t *many, int32_t ndim_one, const int64_t *one, int64_t n,
                      int32_t *dim) {
    *dim = -1;
    if (ndim != ndim_one) return false;
    for (int32_t d = 0; d < ndim; d++) {
        if (many[d] == one[d]) continue;
        if (*dim >= 0 || many[d] != n || one[d] != 1) return false;
        *dim = d;
    }
    return true;
}

bool slice_make(checker *c, slice *s, int32_t slot, int64_t n, void (*others)(variant *v, int32_t slot)) {
    *s = (slice){.slot = slot, .n = n, .many = sized_case(c, slot, n, others)};
    if (s->many) s->one = sized_case(c, slot, 1, others);
    bool good = s->many && s->one && s->many->n_inputs == s->one->n_inputs;
    for (int32_t i = 0; good && i < s->many->n_inputs; i++) {
        const tni_dims *a = &s->many->inputs[i].shape, *b = &s->one->inputs[i].shape;
        const tni_sample_input *many = &s->many->inputs[i], *one = &s->one->inputs[i];
        good = differing(a->ndim, a->d, b->ndim, b->d, n, &s->in_dim[i]);
        /* The numbers of the one must be such as it may have: an index of the many would lead out of its tensors. */
        good = good && many->below == one->below;
        good = good && (many->order == TNI_ORDER_NONE || s->in_dim[i] != many->along);
    }
    if (!good) slice_free(s);
    return good;
}

void slice_free(slice *s) {
    tni_case_free(s->many);
    tni_case_free(s->one);
    *s = (slice){0};
}

void slice_view(array *view, const array *a, int32_t d, int64_t at) {
    int64_t shape[TN_MAX_RANK];
    memcpy(shape, a->shape, sizeof shape);
    int64_t offset = 0;
    if (d >= 0) {
        shape[d] = 1;
        offset = at * a->strides[d] * (int64_t)tn_type_size(a->type);
    }
    array_view(view, a->type, a->tensor.ndim, shape, a->strides, (char *)a->tensor.data + offset);
}

/* The inputs of a call for one element: copies of what the large call has. */
static void take_inputs(const slice *s, const made_call *many, made_call *one, int64_t at) {
    for (int32_t i = 0; i < many->n_in; i++) {
        array view;
        slice_view(&view, &many->in[i], s->in_dim[i], at);
        array_bits(&view, one->in[i].tensor.data);
    }
}

static int32_t result_count(const made_call *k) {
    return k->n_out + k->n_in;
}

/* Outputs, then inputs in place. NULL: absent. */
static const array *nth_result(const tni_contract *contract, const made_call *k, int32_t i) {
    if (i < k->n_out) return k->out[i].count >= 0 ? &k->out[i] : NULL;
    return contract->inputs[k->param[i - k->n_out]].inplace ? &k->in[i - k->n_out] : NULL;
}

static bool equal_bits(const array *a, const array *b) {
    size_t size = tn_type_size(a->type);
    for (int64_t i = 0; i < a->count; i++) {
        const char *x = (char *)a->tensor.data + array_place(a, i) * (int64_t)size;
        if (memcmp(x, (char *)b->tensor.data + array_place(b, i) * (int64_t)size, size) != 0) return false;
    }
    return true;
}

/* The call with all elements, of random numbers. */
static tn_status make_many(checker *c, const slice *s, made_call *many, uint32_t flags, uint64_t seed) {
    TN_TRY(call_make(many, c->op, s->many, (call_options){.flags = flags}));
    for (int32_t i = 0; i < many->n_in; i++) {
        double *values = tni_malloc((size_t)many->in[i].count * sizeof(double));
        if (!values) continue;
        case_values(&s->many->inputs[i], s->many->inputs[i].type, mix_seed(seed, (uint64_t)i), values);
        array_write(&many->in[i], values);
        tni_free(values);
    }
    return TN_OK;
}

/* The call with the one element at `at`, taken before the large call has updated its inputs. */
static tn_status make_one(checker *c, const slice *s, const made_call *many, made_call *one, uint32_t flags,
                          int64_t at) {
    TN_TRY(call_make(one, c->op, s->one, (call_options){.flags = flags}));
    take_inputs(s, many, one, at);
    return TN_OK;
}

static tn_status run_call(made_call *k, const char *kernel, mirror *gpu) {
    k->args.kernel = kernel;
    return call_run(k, gpu, NULL);
}

enum { PLACES = 3 };

/* Places of a batch that are looked at: the first, the last, and one in between. */
static int64_t place(const slice *s, int i) {
    return i % PLACES == 0 ? s->n - 1 : i % PLACES == 1 ? 0 : s->n / 2;
}

/* A result stays comparable while it is the same at every place: of causal rows only some are. */
static void compare_place(checker *c, slice *s, const made_call *many, const made_call *one, int i) {
    for (int32_t r = 0; r < result_count(many); r++) {
        const array *a = nth_result(c->contract, many, r), *b = nth_result(c->contract, one, r);
        array view;
        if (i == 0) s->comparable[r] = a && b;
        if (!s->comparable[r]) continue;
        s->comparable[r] = differing(a->tensor.ndim, a->shape, b->tensor.ndim, b->shape, s->n, &s->out_dim[r]);
        if (!s->comparable[r] || s->out_dim[r] < 0) continue;
        slice_view(&view, a, s->out_dim[r], place(s, i % PLACES));
        s->comparable[r] = equal_bits(&view, b);
    }
}

/* Compares draws first to last - 1 by the reference: what is no more the same is no more comparable. False: nothing is,
 * or failure. */
static bool ask_reference(checker *c, slice *s, int first, int last) {
    const char *kernel = reference_kernel(c->op);
    made_call many, one;
    bool any = false, ran = true;
    for (int i = first; i < last && ran; i++) {
        if (make_many(c, s, &many, CALL_WIDE, check_seed(c, 77 + 1000 * (uint64_t)i)) != TN_OK) return false;
        ran = make_one(c, s, &many, &one, CALL_WIDE, place(s, i)) == TN_OK;
        if (ran) {
            ran = run_call(&one, kernel, NULL) == TN_OK && run_call(&many, kernel, NULL) == TN_OK;
            if (ran) compare_place(c, s, &many, &one, i);
            call_free(&one);
        }
        for (int32_t r = 0; r < result_count(&many); r++) {
            s->comparable[r] &= s->out_dim[r] >= 0;
            any = r == 0 ? s->comparable[r] : any | s->comparable[r];
        }
        call_free(&many);
    }
    return ran && any;
}

/* Of a few numbers, or of many small integers, some are by chance where sorting would put them, and the first is the
 * largest. So those are drawn more often. */
bool slice_compare_reference(checker *c, slice *s) {
    const int draws = s->n < 10 || !(TN_BIT(c->T) & TN_FLOATS) ? 4 * PLACES : PLACES;
    for (int32_t r = 0; r < 5 * TNI_MAX_ARGS; r++) s->out_dim[r] = -1;
    return ask_reference(c, s, 0, draws);
}

/* ---- the row ----------------------------------------------------------------------------------------------------- */

/* Rows of a batch: the first dimension of everything that has it. */
static bool is_leading(const slice *s, int32_t n_in, int32_t n_results) {
    for (int32_t i = 0; i < n_in; i++) {
        if (s->in_dim[i] > 0) return false;
    }
    for (int32_t i = 0; i < n_results; i++) {
        if (s->out_dim[i] > 0) return false;
    }
    return true;
}

static void compare_row(checker *c, const slice *s, const made_call *many, const made_call *one, int64_t at) {
    char what[96];
    for (int32_t i = 0; i < result_count(many) && !c->broken && !c->skipping; i++) {
        if (!s->comparable[i]) continue;
        array view;
        slice_view(&view, nth_result(c->contract, many, i), s->out_dim[i], at);
        snprintf(what, sizeof what, "row %lld of %lld, then alone", (long long)at, (long long)s->n);
        const char *name = i < many->n_out ? c->contract->outputs[i].name
                                           : c->contract->inputs[many->param[i - many->n_out]].name;
        same_bits(c, name, &view, nth_result(c->contract, one, i), what);
    }
}

/* The rows at some places alone, then all rows at once. */
static void compare_rows(checker *c, const slice *s, int places) {
    made_call many, alone[PLACES];
    int made = 0;
    tn_status status = make_many(c, s, &many, 0, check_seed(c, 78));
    if (status != TN_OK) {
        check_fail(c, "%s", tn_last_error());
        return;
    }
    for (; made < places; made++) {
        status = make_one(c, s, &many, &alone[made], 0, place(s, made));
        if (status != TN_OK) break;
    }
    if (status != TN_OK) check_fail(c, "%s", tn_last_error());
    for (int i = 0; i < made && status == TN_OK; i++) status = run_call(&alone[i], c->kernel, c->gpu);
    if (status == TN_OK) status = run_call(&many, c->kernel, c->gpu);
    if (status != TN_OK && !c->broken && !check_declined(c, status)) check_fail(c, "refused: %s", tn_last_error());
    for (int i = 0; i < made; i++) {
        if (status == TN_OK) compare_row(c, s, &many, &alone[i], place(s, i));
        call_free(&alone[i]);
    }
    call_free(&many);
}

/* Does the reference say that results have rows that depend on nothing but the same rows of the inputs? */
static bool has_rows(checker *c, slice *s) {
    return slice_compare_reference(c, s) &&
           is_leading(s, s->many->n_inputs, c->contract->n_outputs + s->many->n_inputs);
}

/* Another number of rows. What the reference said of few of them need not be found out again. Asking it once shows
 * whether it holds here, too: a roll by 5 leaves 5 rows where they are. */
static void compare_other(checker *c, const slice *few, int64_t n, void (*others)(variant *, int32_t), int places,
                          bool asks) {
    slice s;
    if (!slice_make(c, &s, few->slot, n, others)) return;
    memcpy(s.out_dim, few->out_dim, sizeof s.out_dim);
    memcpy(s.comparable, few->comparable, sizeof s.comparable);
    if (!asks || ask_reference(c, &s, PLACES, PLACES + 1)) compare_rows(c, &s, places);
    slice_free(&s);
}

static void run_batch(checker *c) {
    variant v;
    if (!variant_begin(c, &v)) return;
    int32_t n_slots = v.n_slots;
    variant_drop(&v);
    for (int32_t slot = 0; slot < n_slots && !c->broken; slot++) {
        slice s;
        if (!slice_make(c, &s, slot, 5, NULL)) continue;
        if (has_rows(c, &s)) {
            compare_rows(c, &s, PLACES);
            if (!c->broken && !c->skipping) compare_other(c, &s, 2, NULL, PLACES, true);
            if (!c->broken && !c->skipping) compare_other(c, &s, 67, NULL, PLACES, true);
        }
        slice_free(&s);
    }
}

/* ---- long rows --------------------------------------------------------------------------------------------------- */

static int64_t row_length; /* for set_row, which has no other way to know */

static void set_row(variant *v, int32_t slot) {
    for (int32_t k = 0; k < v->n_slots; k++) {
        if (k != slot) *v->slots[k] = k == v->row ? row_length : 1;
    }
}

/* Few rows may be shared out among the blocks of a GPU in another way than many. Which results are comparable was found
 * out with short rows. */
static void compare_long(checker *c, const slice *shorter, int64_t length, int64_t n) {
    row_length = length;
    if (!c->skipping) compare_other(c, shorter, n, set_row, 2, false);
}

/* With a seed, what is drawn for a row depends on where it stands. */
static bool draws_nothing(const checker *c) {
    for (int32_t i = 0; i < c->contract->n_inputs; i++) {
        if (tni_is_seed(c->contract, i)) return false;
    }
    return true;
}

/* A kernel that calls a library may not know. */
static bool is_batch(const checker *c) {
    for (const tn_kernel *k = c->op->row->kernels; c->kernel && k && k->name; k++) {
        if (strcmp(k->name, c->kernel) == 0 && k->flags & TN_ROWS_VARY) return false;
    }
    return draws_nothing(c);
}

static bool is_batch_long(const checker *c) {
    return on_gpu(c) && is_batch(c) && (c->T == TN_F32 || c->T == TN_BF16);
}

static void run_batch_long(checker *c) {
    static const int64_t few[][2] = {{4097, 70}, {150001, 2}, {0}}; /* length, number */
    static const int64_t many[][2] = {{4097, 140}, {50257, 34}, {300007, 3}, {0}};
    const int64_t(*sizes)[2] = c->options.quick ? few : many;
    variant v;
    if (!variant_begin(c, &v)) return;
    int32_t n_slots = v.n_slots, row = v.row;
    variant_drop(&v);
    for (int32_t slot = 0; slot < n_slots && !c->broken; slot++) {
        slice s;
        if (slot == row || !slice_make(c, &s, slot, 11, NULL)) continue;
        bool good = has_rows(c, &s);
        for (int i = 0; good && sizes[i][0] && !c->broken; i++) {
            compare_long(c, &s, sizes[i][0], sizes[i][1]);
        }
        slice_free(&s);
    }
}

const check_row batch_rows[] = {
    {"batch", "a row alone has the same bits as among others", DEALT, 20000, is_batch, run_batch,
     "A row comes out otherwise when other rows are beside it. The order of its sums goes by the grid or by its place, "
     "or it reads its neighbours."},
    {"batch_long", "the same for rows of 4097, 50257 and 300007 (cuda; f32 and bf16)", RARE, 20000, is_batch_long,
     run_batch_long},
    {0},
};
