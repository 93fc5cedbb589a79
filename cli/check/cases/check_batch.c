/* One of many: an element of a batch must come out the same whatever else is in the batch. Whether an operator's
 * elements are independent along a dimension is asked of the reference, not of the operator's name. */
#include "cli/check/check.h"

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

static tn_status run_two(const slice *s, made_call *many, made_call *one, int64_t at, const char *kernel, mirror *gpu) {
    take_inputs(s, many, one, at);
    many->args.kernel = one->args.kernel = kernel;
    TN_TRY(call_run(one, gpu, NULL));
    return call_run(many, gpu, NULL);
}

static bool make_two(checker *c, const slice *s, made_call *many, made_call *one, uint32_t flags, uint64_t seed) {
    call_options options = {.flags = flags};
    if (call_make(many, c->op, s->many, options) != TN_OK) return false;
    if (call_make(one, c->op, s->one, options) != TN_OK) {
        call_free(many);
        return false;
    }
    for (int32_t i = 0; i < many->n_in; i++) {
        double *values = tni_malloc((size_t)many->in[i].count * sizeof(double));
        if (!values) continue;
        case_values(&s->many->inputs[i], s->many->inputs[i].type, mix_seed(seed, (uint64_t)i), values);
        array_write(&many->in[i], values);
        tni_free(values);
    }
    return true;
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

/* Of a few numbers, or of many small integers, some are by chance where sorting would put them, and the first is the
 * largest. So those are drawn more often. */
bool slice_compare_reference(checker *c, slice *s) {
    const int draws = s->n < 10 || !(TN_BIT(c->T) & TN_FLOATS) ? 4 * PLACES : PLACES;
    made_call many, one;
    bool any = false, ran = true;
    for (int32_t r = 0; r < 5 * TNI_MAX_ARGS; r++) s->out_dim[r] = -1;
    for (int i = 0; i < draws && ran; i++) {
        if (!make_two(c, s, &many, &one, CALL_WIDE, check_seed(c, 77 + 1000 * (uint64_t)i))) return false;
        ran = run_two(s, &many, &one, place(s, i), reference_kernel(c->op), NULL) == TN_OK;
        if (ran) compare_place(c, s, &many, &one, i);
        for (int32_t r = 0; r < result_count(&many); r++) {
            s->comparable[r] &= s->out_dim[r] >= 0;
            any = r == 0 ? s->comparable[r] : any | s->comparable[r];
        }
        call_free(&many);
        call_free(&one);
    }
    return ran && any;
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

static void compare_rows(checker *c, const slice *s, int64_t at) {
    made_call many, one;
    char what[96];
    if (!make_two(c, s, &many, &one, 0, check_seed(c, 78))) {
        check_fail(c, "%s", tn_last_error());
        return;
    }
    tn_status status = run_two(s, &many, &one, at, c->kernel, c->gpu);
    if (status != TN_OK && !check_declined(c, status)) check_fail(c, "refused: %s", tn_last_error());
    for (int32_t i = 0; i < result_count(&many) && !c->broken && !c->skipping; i++) {
        if (!s->comparable[i]) continue;
        array view;
        slice_view(&view, nth_result(c->contract, &many, i), s->out_dim[i], at);
        snprintf(what, sizeof what, "row %lld of %lld, then alone", (long long)at, (long long)s->n);
        const char *name = i < many.n_out ? c->contract->outputs[i].name
                                          : c->contract->inputs[many.param[i - many.n_out]].name;
        same_bits(c, name, &view, nth_result(c->contract, &one, i), what);
    }
    call_free(&many);
    call_free(&one);
}

static void run_batch(checker *c) {
    static const int64_t sizes[] = {2, 5, 67};
    variant v;
    if (!variant_begin(c, &v)) return;
    int32_t n_slots = v.n_slots;
    variant_drop(&v);
    for (int32_t slot = 0; slot < n_slots && !c->broken; slot++) {
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes && !c->broken; k++) {
            slice s;
            if (!slice_make(c, &s, slot, sizes[k], NULL)) continue;
            bool good = slice_compare_reference(c, &s) &&
                        is_leading(&s, s.many->n_inputs, c->contract->n_outputs + s.many->n_inputs);
            if (good) {
                for (int i = 0; i < PLACES && !c->broken; i++) compare_rows(c, &s, place(&s, i));
            }
            slice_free(&s);
        }
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
    slice s;
    row_length = length;
    if (!slice_make(c, &s, shorter->slot, n, set_row)) return;
    memcpy(s.out_dim, shorter->out_dim, sizeof s.out_dim);
    memcpy(s.comparable, shorter->comparable, sizeof s.comparable);
    for (int i = 0; i < 2 && !c->broken && !c->skipping; i++) compare_rows(c, &s, place(&s, i));
    slice_free(&s);
}

/* With a seed, what is drawn for a row depends on where it stands. */
static bool draws_nothing(const checker *c) {
    for (int32_t i = 0; i < c->contract->n_inputs; i++) {
        if (tni_is_seed(c->contract, i)) return false;
    }
    return true;
}

static bool is_batch_long(const checker *c) {
    return on_gpu(c) && draws_nothing(c) && (c->T == TN_F32 || c->T == TN_BF16);
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
        bool good = slice_compare_reference(c, &s) &&
                    is_leading(&s, s.many->n_inputs, c->contract->n_outputs + s.many->n_inputs);
        for (int i = 0; good && sizes[i][0] && !c->broken; i++) {
            compare_long(c, &s, sizes[i][0], sizes[i][1]);
        }
        slice_free(&s);
    }
}

const check_row batch_rows[] = {
    {"batch", "a row alone has the same bits as among others", DEALT, 20000, draws_nothing, run_batch,
     "A row comes out otherwise when other rows are beside it. The order of its sums goes by the grid or by its place, "
     "or it reads its neighbours."},
    {"batch_long", "the same for rows of 4097, 50257 and 300007 (cuda; f32 and bf16)", RARE, 20000, is_batch_long,
     run_batch_long},
    {0},
};
