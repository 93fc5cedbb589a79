/* More than 2^31 elements: the elements at the end, and on both sides of element 2^31, against float64. Everything else
 * is 0 and takes no memory on the way in. (On a GPU: check_huge_gpu.c.) */
#include "check_huge.h"
#include "core/table/table.h"

#include <stdio.h>
#include <string.h>

static const double MOST_BYTES = 16e9, MOST_GPU_BYTES = 64e9;
static const int64_t MANY = (int64_t)1 << 31;

static double free_gpu_bytes(const checker *c) {
    const tni_cuda_api *cu = tni_cuda("tenon check");
    tni_cuda_scope scope;
    size_t unused = 0, all = 0;
    if (!cu || tni_cuda_enter("tenon check", c->gpu->device, &scope) != TN_OK) return 0;
    if (cu->cuMemGetInfo(&unused, &all) != 0) unused = 0;
    tni_cuda_leave(&scope);
    return (double)unused;
}

static double free_bytes(void) {
    char line[128];
    double kilobytes = 0;
    FILE *f = fopen("/proc/meminfo", "r");
    while (f && fgets(line, sizeof line, f)) {
        if (sscanf(line, "MemAvailable: %lf", &kilobytes) == 1) break;
    }
    if (f) fclose(f);
    return kilobytes * 1024;
}

/* The row as long as a vocabulary, so that few rows make many elements. */
static void long_rows(variant *v, int32_t slot) {
    if (v->row >= 0 && v->row != slot) *v->slots[v->row] = 50257;
}

/* Elements of the largest tensor of a case, outputs included, and the bytes of all tensors. */
static bool measure(const checker *c, const tni_case *sample, int64_t *most, double *bytes) {
    made_call k;
    *most = 0;
    *bytes = 0;
    if (call_make(&k, c->op, sample, (call_options){.bare = true}) != TN_OK) return false;
    for (int32_t i = 0; i < k.n_in + k.n_out; i++) {
        const array *a = i < k.n_in ? &k.in[i] : &k.out[i - k.n_in];
        if (a->count < 0) continue;
        *bytes += (double)a->count * (double)tn_type_size(a->type);
        if (a->count > *most) *most = a->count;
    }
    call_free(&k);
    return true;
}

/* Every result that has the dimension must be comparable: else nobody knows what is right. */
static bool all_comparable(checker *c, slice *s) {
    if (!slice_compare_reference(c, s)) return false;
    for (int32_t i = 0; i < c->contract->n_outputs + s->many->n_inputs; i++) {
        if (s->out_dim[i] >= 0 && !s->comparable[i]) return false;
    }
    return true;
}

/* A slot along which elements are independent, and how large it must be. */
static bool find_size(checker *c, int32_t slot, int64_t *n) {
    slice s;
    variant v;
    int64_t one = 0, most;
    double bytes;
    if (!slice_make(c, &s, slot, 3, NULL)) return false;
    bool good = all_comparable(c, &s);
    slice_free(&s);
    if (!good || !variant_begin(c, &v)) return false;
    bool has_row = v.row >= 0 && v.row != slot;
    variant_drop(&v);
    if (!has_row || !slice_make(c, &s, slot, 3, long_rows)) return false;
    good = measure(c, s.one, &one, &bytes) && measure(c, s.many, &most, &bytes) && most == 3 * one;
    slice_free(&s);
    if (good) *n = MANY / one + 3;
    return good;
}

bool huge_problem(checker *c, const slice *s, problem *p, uint64_t seed) {
    variant v;
    if (!variant_begin(c, &v)) return false;
    long_rows(&v, s->slot);
    *v.slots[s->slot] = 1;
    if (!variant_problem(c, &v, p)) return false;
    for (int32_t i = 0; i < p->sample->n_inputs; i++) {
        const tni_sample_input *input = &p->sample->inputs[i];
        uint64_t own = s->in_dim[i] < 0 ? 0 : seed; /* what all elements share is the same for all */
        case_values(input, input->type, mix_seed(check_seed(c, own), (uint64_t)i), p->in[i]);
    }
    if (problem_solve(p, true) == TN_OK) return true;
    problem_free(p);
    return false;
}

/* Element `at` of the large call's inputs gets the values of a problem of its own. */
static bool place_problem(checker *c, const slice *s, made_call *large, problem *p, int64_t at, uint64_t seed) {
    if (!huge_problem(c, s, p, seed)) return false;
    for (int32_t i = 0; i < large->n_in; i++) {
        array view;
        slice_view(&view, &large->in[i], s->in_dim[i], at);
        array_write(&view, p->in[i]);
    }
    return true;
}

static void compare_place(checker *c, const slice *s, const made_call *large, const problem *p, int64_t at) {
    char what[96];
    snprintf(what, sizeof what, "element %lld of %lld", (long long)at, (long long)s->n);
    for (int32_t i = 0; i < p->n_results && !c->broken; i++) {
        const result *r = &p->results[i];
        int32_t index = r->output >= 0 ? r->output : large->n_out + r->input;
        if (!r->present || s->out_dim[index] < 0) continue;
        array view;
        slice_view(&view, result_array(large, r), s->out_dim[index], at);
        compare_result(c, r, &view, what);
    }
}

/* The dimensions of results, as found with few elements. */
static bool learn_dims(checker *c, slice *s) {
    slice few;
    if (!slice_make(c, &few, s->slot, 3, NULL)) return false;
    bool good = all_comparable(c, &few);
    memcpy(s->out_dim, few.out_dim, sizeof s->out_dim);
    slice_free(&few);
    return good;
}

enum { PLACES = 4 };

/* Rows of an output follow each other: each place is a piece of it. */
static bool is_outermost(const slice *s, const made_call *k, int32_t output) {
    for (int32_t d = 0; d < s->out_dim[output]; d++) {
        if (k->specs[output].shape[d] != 1) return false;
    }
    return s->out_dim[output] >= 0;
}

/* Outputs may be thin where what is looked at lies in one piece, and nobody reads the rest. */
static bool may_be_thin(const checker *c, const slice *s) {
    made_call k;
    if (c->gpu || call_make(&k, c->op, s->many, (call_options){.bare = true}) != TN_OK) return false;
    bool thin = true;
    for (int32_t i = 0; i < k.n_in; i++) thin &= !c->contract->inputs[k.param[i]].inplace;
    for (int32_t i = 0; i < k.n_out; i++) thin &= !k.specs[i].present || is_outermost(s, &k, i);
    call_free(&k);
    return thin;
}

static bool own_places(const slice *s, made_call *large, const int64_t places[PLACES]) {
    for (int32_t i = 0; i < large->n_out; i++) {
        if (large->out[i].count < 0) continue;
        const int64_t each = large->out[i].count / s->n;
        for (int k = 0; k < PLACES; k++) {
            if (!array_own(&large->out[i], places[k] * each, (places[k] + 1) * each)) return false;
        }
    }
    return true;
}

static void run_at(checker *c, slice *s, int64_t boundary) {
    const int64_t places[PLACES] = {0, boundary - 1, boundary, s->n - 1};
    problem problems[PLACES];
    made_call large;
    int made = 0;
    const bool thin = may_be_thin(c, s);
    if (call_make(&large, c->op, s->many, (call_options){.zero = true, .thin = thin}) != TN_OK) {
        check_skip(c, "%s", tn_last_error());
        return;
    }
    if (thin && !own_places(s, &large, places)) {
        check_skip(c, "the system does not map that much memory");
        call_free(&large);
        return;
    }
    while (made < PLACES && place_problem(c, s, &large, &problems[made], places[made], (uint64_t)made + 1)) made++;
    large.args.kernel = c->kernel;
    if (made < PLACES) {
        check_fail(c, "%s", tn_last_error());
    } else {
        tn_status status = tn_run(c->op, &large.args, NULL);
        if (status != TN_OK && !check_declined(c, status)) check_fail(c, "refused: %s", tn_last_error());
    }
    for (int i = 0; i < PLACES && !c->broken && !c->skipping; i++) compare_place(c, s, &large, &problems[i], places[i]);
    while (made > 0) problem_free(&problems[--made]);
    call_free(&large);
}

static bool run_slot(checker *c, int32_t slot) {
    slice s;
    int64_t n, most;
    double bytes;
    if (!find_size(c, slot, &n) || !slice_make(c, &s, slot, n, long_rows)) return false;
    if (!learn_dims(c, &s) || !measure(c, s.many, &most, &bytes)) {
        slice_free(&s);
        return false;
    }
    double room = 0.8 * (c->gpu ? free_gpu_bytes(c) : free_bytes()), most_bytes = c->gpu ? MOST_GPU_BYTES : MOST_BYTES;
    if (may_be_thin(c, &s)) { /* zeros that are read take no memory, thin outputs next to none */
        run_at(c, &s, MANY / (most / n));
    } else if (bytes > most_bytes || bytes > room) {
        check_skip(c, "needs %.1f GB, %.1f GB may be used", bytes / 1e9, (room < most_bytes ? room : most_bytes) / 1e9);
    } else {
        (c->gpu ? huge_on_gpu : run_at)(c, &s, MANY / (most / n));
    }
    slice_free(&s);
    return true;
}

/* The first sample that has such a size. */
static void run_huge(checker *c) {
    const tn_sample *kept = c->sample;
    int kept_index = c->sample_index;
    bool done = false;
    for (int i = 0; kept && !done && c->op->row->samples[i].args; i++) {
        c->sample = &c->op->row->samples[i];
        c->sample_index = i;
        variant v;
        if (c->sample->bench || !variant_begin(c, &v)) continue;
        int32_t n_slots = v.n_slots;
        variant_drop(&v);
        for (int32_t slot = 0; slot < n_slots && !done; slot++) done = run_slot(c, slot);
    }
    if (!done) check_skip(c, "no dimension of the samples is independent of the others");
    c->sample = kept;
    c->sample_index = kept_index;
}

/* Does the kernel under check take this type? */
static bool takes(const checker *c, tn_type type) {
    const tni_contract *contract = c->contract;
    if (contract->n_types && !(contract->types[0].mask & TN_BIT(type))) return false;
    for (const tn_kernel *k = c->op->row->kernels; k->name; k++) {
        if (c->kernel && strcmp(k->name, c->kernel) == 0 && kernel_takes(c, k, type)) return true;
    }
    return false;
}

/* In the smallest type that the kernel takes: the least memory. */
static bool is_smallest(const checker *c) {
    const char *reference = reference_kernel(c->op);
    if (c->kernel && reference && strcmp(c->kernel, reference) == 0 &&
        strcmp(reference, c->op->row->kernels->name) != 0) {
        return false; /* plain and slow: minutes, also where no other kernel takes this type */
    }
    static const tn_type order[] = {TN_BF16, TN_F16, TN_F32, TN_F64, TN_U8, TN_I8, TN_I16, TN_I32, TN_I64};
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        if (takes(c, order[i])) return c->T == order[i] || !c->contract->n_types;
    }
    return false;
}

const check_row huge_rows[] = {
    {"huge", "2^31 and more elements, in the kernel's smallest type: both sides of 2^31 and the end",
     TELLS | ONCE | SLOW | NOT_REF, 0, is_smallest, run_huge,
     "An index or a size does not fit in 32 bits. Compute them in 64: int64_t i = (int64_t)blockIdx.x * blockDim.x + "
     "threadIdx.x, and int64_t for n, strides and products of sizes."},
    {0},
};
