/* Bad calls: each argument changed on its own. What the contract does not allow must come back as a status whose
 * message begins with the operator's name; nothing may crash. */
#include "cli/check/check.h"

#include <stdio.h>
#include <string.h>

/* A good call, and the one thing that is to be wrong in it. */
typedef struct attempt {
    checker *c;
    made_call k;
    tn_tensor tensor; /* the changed one */
    int64_t shape[TN_MAX_RANK + 2];
    array *memory; /* (n_in) room for shapes that are larger than they should be */
    int tried;
} attempt;

enum { ROOM = 4 }; /* times the elements, at 16 bytes each */

/* Runs the call as it now stands. */
static void try(attempt *a, bool must_fail, const char *what) {
    const char *name = a->c->contract->name;
    size_t length = strlen(name);
    if (a->c->broken) return;
    a->tried++;
    const tn_host streaming = tn_stream_host(a->c->gpu ? a->c->gpu->stream : NULL);
    if (tn_run(a->c->op, &a->k.args, a->c->gpu ? &streaming : NULL) == TN_OK) {
        if (must_fail) check_fail(a->c, "was accepted: %s", what);
        return;
    }
    const char *message = tn_last_error();
    bool named = strncmp(message, name, length) == 0 && strncmp(message + length, ": ", 2) == 0;
    if (!named) check_fail(a->c, "the message does not begin with '%s: ' but is '%s' (%s)", name, message, what);
}

/* Does inference still give the outputs that the call has? Then the change is allowed. */
static bool same_outputs(const attempt *a) {
    tn_spec specs[TNI_MAX_ARGS];
    if (tn_infer(a->c->op, &a->k.args, specs) != TN_OK) return false;
    for (int32_t o = 0; o < a->k.n_out; o++) {
        const tn_spec *x = &specs[o], *y = &a->k.specs[o];
        if (x->present != y->present) return false;
        if (!x->present) continue;
        if (x->type != y->type || x->ndim != y->ndim) return false;
        if (memcmp(x->shape, y->shape, (size_t)x->ndim * sizeof *x->shape) != 0) return false;
    }
    return true;
}

static const tn_tensor **input_place(attempt *a, int32_t i) {
    for (int32_t flat = 0; flat < a->k.args.n_in; flat++) {
        if (a->k.in_list[flat] == &a->k.in[i].tensor) return &a->k.in_list[flat];
    }
    return NULL;
}

/* A copy of the tensor to change: dense, in memory with room. */
static void begin_change(attempt *a, const tn_tensor *t, void *data) {
    a->tensor = *t;
    if (t->ndim) memcpy(a->shape, t->shape, (size_t)t->ndim * sizeof *a->shape);
    a->tensor.shape = a->shape;
    a->tensor.strides = NULL;
    a->tensor.data = data;
}

static bool fits_room(const attempt *a, int32_t i) {
    int64_t n = 1, size = (int64_t)tn_type_size(tn_type_from_dlpack(a->tensor.dtype));
    for (int32_t d = 0; d < a->tensor.ndim; d++) {
        if (a->tensor.shape[d] < 0 || __builtin_mul_overflow(n, a->tensor.shape[d], &n)) return false;
    }
    return n <= a->memory[i].count / (size ? size : 16);
}

/* Input i with the changed tensor: refused, unless inference allows it. */
static void try_input(attempt *a, int32_t i, bool must_fail, const char *what) {
    const tn_tensor **place = input_place(a, i), *kept = *place;
    char text[160];
    snprintf(text, sizeof text, "%s %s", a->c->contract->inputs[a->k.param[i]].name, what);
    *place = &a->tensor;
    bool allowed = !must_fail && same_outputs(a);
    if (!allowed) try(a, true, text);
    if (allowed && fits_room(a, i)) try(a, false, text);
    *place = kept;
}

static void try_shapes(attempt *a, int32_t i) {
    const tn_tensor *t = &a->k.in[i].tensor;
    void *data = a->memory[i].tensor.data;
    char what[96];
    begin_change(a, t, data);
    memmove(a->shape + 1, a->shape, TN_MAX_RANK * sizeof *a->shape);
    a->shape[0] = 1;
    a->tensor.ndim++;
    try_input(a, i, false, "with one more dimension");
    begin_change(a, t, data);
    if (t->ndim) {
        a->tensor.ndim--;
        try_input(a, i, false, "without its last dimension");
        begin_change(a, t, data);
        memmove(a->shape, a->shape + 1, TN_MAX_RANK * sizeof *a->shape);
        a->tensor.ndim--;
        try_input(a, i, false, "without its first dimension");
    }
    for (int32_t d = 0; d < t->ndim; d++) {
        const int64_t sizes[] = {t->shape[d] + 1, t->shape[d] - 1, 2 * t->shape[d] + 1, (int64_t)1 << 62, -1, -7};
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            begin_change(a, t, data);
            a->shape[d] = sizes[s];
            snprintf(what, sizeof what, "with dimension %d as %lld", d, (long long)sizes[s]);
            try_input(a, i, sizes[s] < 0, what);
        }
    }
    begin_change(a, t, data);
    for (int32_t d = 0; d < t->ndim; d++) a->shape[d] = (int64_t)1 << 40;
    if (t->ndim >= 2) try_input(a, i, true, "with 2^40 elements in every dimension");
}

static void try_tensor(attempt *a, int32_t i) {
    const tn_tensor *t = &a->k.in[i].tensor;
    void *data = a->memory[i].tensor.data;
    char what[96];
    for (int type = 1; type < TN_TYPE_COUNT; type++) {
        begin_change(a, t, data);
        a->tensor.dtype = tn_type_to_dlpack((tn_type)type);
        snprintf(what, sizeof what, "as %s", tn_type_name((tn_type)type));
        if ((tn_type)type != a->k.in[i].type) try_input(a, i, false, what);
    }
    begin_change(a, t, data);
    a->tensor.dtype = (tn_dlpack_type){99, 13, 7};
    try_input(a, i, true, "of an unknown type");
    static const tn_device devices[] = {{TN_CPU, 0}, {TN_CUDA, 0}, {TN_CUDA, 3}, {77, 0}, {0, 0}, {-5, -5}};
    for (size_t d = 0; d < sizeof devices / sizeof *devices; d++) {
        if (devices[d].kind == t->device.kind && devices[d].index == t->device.index) continue;
        begin_change(a, t, data);
        a->tensor.device = devices[d];
        snprintf(what, sizeof what, "on device %d:%d", devices[d].kind, devices[d].index);
        bool exists = devices[d].kind == TN_CPU || devices[d].kind == TN_CUDA;
        try_input(a, i, a->k.n_in > 1 || !exists, what);
    }
    begin_change(a, t, NULL);
    if (a->k.in[i].count) try_input(a, i, true, "without data");
    begin_change(a, t, data);
    a->tensor.shape = NULL;
    if (t->ndim) try_input(a, i, true, "without a shape");
    static const int32_t ranks[] = {TN_MAX_RANK + 1, 1000000, -1, -1000000};
    for (size_t r = 0; r < sizeof ranks / sizeof *ranks; r++) {
        begin_change(a, t, data);
        a->tensor.ndim = ranks[r];
        snprintf(what, sizeof what, "of rank %d", ranks[r]);
        try_input(a, i, true, what);
    }
    const tn_tensor **place = input_place(a, i), *kept = *place;
    *place = NULL;
    if (!a->c->contract->inputs[a->k.param[i]].optional) try(a, true, "a required input is missing");
    *place = kept;
}

/* ---- outputs and counts ------------------------------------------------------------------------------------------ */

typedef struct change {
    const char *text;
    void (*make)(attempt *a);
} change;

static void other_type(attempt *a) {
    a->tensor.dtype = tn_type_to_dlpack(tn_type_from_dlpack(a->tensor.dtype) == TN_I16 ? TN_I32 : TN_I16);
}
static void one_more_dimension(attempt *a) {
    a->shape[a->tensor.ndim++] = 1;
}
static void rank_17(attempt *a) {
    a->tensor.ndim = TN_MAX_RANK + 1;
}
static void other_device(attempt *a) {
    a->tensor.device.kind = a->tensor.device.kind == TN_CPU ? TN_CUDA : TN_CPU;
}
static void larger_dimension(attempt *a) {
    a->shape[0]++;
}
static void negative_dimension(attempt *a) {
    a->shape[0] = -1;
}
static void no_shape(attempt *a) {
    a->tensor.shape = NULL;
}
static void no_data(attempt *a) {
    a->tensor.data = NULL;
}
static void strides_of_0(attempt *a) {
    static int64_t zeros[TN_MAX_RANK];
    a->tensor.strides = zeros;
}

static const change any_output[] = {{"of another type", other_type},
                                    {"of one more dimension", one_more_dimension},
                                    {"on another device", other_device},
                                    {"of rank 17", rank_17},
                                    {0}};
static const change shaped_output[] = {{"with a larger dimension", larger_dimension},
                                       {"with a negative dimension", negative_dimension},
                                       {"without a shape", no_shape},
                                       {0}};
static const change filled_output[] = {{"without data", no_data}, {0}};
static const change long_output[] = {{"with strides of 0", strides_of_0}, {0}};

static void try_output_changes(attempt *a, int32_t o, const change *changes) {
    tn_tensor *kept = a->k.out_list[o];
    char what[128];
    a->k.out_list[o] = &a->tensor;
    for (; changes->text; changes++) {
        begin_change(a, &a->k.out[o].tensor, a->k.out[o].tensor.data);
        changes->make(a);
        snprintf(what, sizeof what, "output %s %s", a->c->contract->outputs[o].name, changes->text);
        try(a, true, what);
    }
    a->k.out_list[o] = kept;
}

static void try_output(attempt *a, int32_t o) {
    const array *y = &a->k.out[o];
    try_output_changes(a, o, any_output);
    if (y->tensor.ndim) try_output_changes(a, o, shaped_output);
    if (y->count) try_output_changes(a, o, filled_output);
    if (y->count > 1) try_output_changes(a, o, long_output);
}

static void unknown_kernel(attempt *a) {
    a->k.args.kernel = "no such kernel";
}
static void negative_inputs(attempt *a) {
    a->k.args.n_in = -1;
}
static void no_inputs(attempt *a) {
    a->k.args.n_in = 0;
}
static void null_inputs(attempt *a) {
    a->k.args.in = NULL;
}
static void negative_outputs(attempt *a) {
    a->k.args.n_out = -1;
}
static void too_many_outputs(attempt *a) {
    a->k.args.n_out++;
}
static void null_outputs(attempt *a) {
    a->k.args.out = NULL;
}
static void negative_attrs(attempt *a) {
    a->k.args.n_attrs = -1;
}

static const change counts[] = {{"a kernel that there is not", unknown_kernel},
                                {"a negative number of inputs", negative_inputs},
                                {"no inputs", no_inputs},
                                {"inputs of NULL", null_inputs},
                                {"a negative number of outputs", negative_outputs},
                                {"too many outputs", too_many_outputs},
                                {"outputs of NULL", null_outputs},
                                {"a negative number of attributes", negative_attrs},
                                {0}};

static void try_counts(attempt *a) {
    tn_args good = a->k.args;
    for (const change *wrong = counts; wrong->text; wrong++) {
        if (wrong->make == null_outputs && good.n_out == 0) continue;
        wrong->make(a);
        try(a, true, wrong->text);
        a->k.args = good;
    }
}

/* ---- attributes -------------------------------------------------------------------------------------------------- */

static void try_attr(attempt *a, tn_attr attr, bool must_fail, const char *what) {
    int32_t kept_count = a->k.args.n_attrs, at = 0;
    while (at < kept_count && attr.name && strcmp(a->k.attrs[at].name, attr.name) != 0) at++;
    if (at >= TNI_MAX_ARGS) return;
    tn_attr kept = a->k.attrs[at];
    a->k.attrs[at] = attr;
    if (at == kept_count) a->k.args.n_attrs++;
    try(a, must_fail, what);
    a->k.attrs[at] = kept;
    a->k.args.n_attrs = kept_count;
}

/* Values, and the kinds of attributes that must refuse them; the others may. */
#define KIND(kind) (1u << TNI_A_##kind)
#define TEXTS (KIND(STR) | KIND(CHOICE) | KIND(ACTIVATION))
#define LISTS (KIND(AXES) | KIND(INTS))

static const int64_t far[] = {1000}, twice[] = {0, 0}, negative[] = {-1000}, many[TNI_MAX_INTS + 1];

static const struct {
    const char *text;
    uint32_t kinds;
    tn_value value;
} bad_values[] = {
    {"a string", ~TEXTS, {.kind = TN_ATTR_STR, .s = "nonsense"}},
    {"a choice that there is not", KIND(CHOICE), {.kind = TN_ATTR_STR, .s = "no such choice"}},
    {"a string of NULL", TEXTS, {.kind = TN_ATTR_STR, .s = NULL}},
    {"a type", ~KIND(DTYPE), {.kind = TN_ATTR_TYPE, .type = TN_F32}},
    {"a list", ~LISTS, {.kind = TN_ATTR_INTS, .ints = twice, .count = 2}},
    {"a list of NULL", LISTS, {.kind = TN_ATTR_INTS, .ints = NULL, .count = 2}},
    {"a list of negative length", LISTS, {.kind = TN_ATTR_INTS, .ints = twice, .count = -2}},
    {"a list that is too long", LISTS, {.kind = TN_ATTR_INTS, .ints = many, .count = TNI_MAX_INTS + 1}},
    {"1000", KIND(AXIS), {.kind = TN_ATTR_INT, .i = 1000}},
    {"-1000", KIND(AXIS), {.kind = TN_ATTR_INT, .i = -1000}},
    {"[1000]", KIND(AXES), {.kind = TN_ATTR_INTS, .ints = far, .count = 1}},
    {"[-1000]", KIND(AXES), {.kind = TN_ATTR_INTS, .ints = negative, .count = 1}},
    {"[0, 0]", KIND(AXES), {.kind = TN_ATTR_INTS, .ints = twice, .count = 2}},
    {"a kind that there is not", ~0u, {.kind = 99}},
};

static void try_attrs(attempt *a) {
    const tni_contract *contract = a->c->contract;
    try_attr(a, tn_attr_int("no_such_attribute", 1), true, "an attribute that there is not");
    for (int32_t i = 0; i < contract->n_attrs; i++) {
        const tni_attr *attr = &contract->attrs[i];
        for (size_t v = 0; v < sizeof bad_values / sizeof *bad_values; v++) {
            char what[128];
            if (attr->implied) continue; /* what is asked for follows from the outputs of the call */
            snprintf(what, sizeof what, "%s as %s", attr->name, bad_values[v].text);
            bool must = bad_values[v].kinds >> attr->kind & 1;
            try_attr(a, (tn_attr){attr->name, bad_values[v].value}, must, what);
        }
    }
}

/* Memory with room for every input, so that a change that is allowed after all reads what is there. */
static bool make_room(attempt *a) {
    a->memory = tni_calloc((size_t)a->k.n_in + 1, sizeof *a->memory);
    for (int32_t i = 0; a->memory && i < a->k.n_in; i++) {
        int64_t bytes = (a->k.in[i].count + 16) * ROOM * 16;
        if (!array_make_zero(&a->memory[i], TN_U8, 1, &bytes)) return false;
    }
    return a->memory != NULL;
}

/* On a GPU: everything that a changed tensor may point to is there before the first attempt. */
static bool move_to_gpu(attempt *a) {
    array *arrays[MIRROR_MOST];
    int n = 0;
    for (int32_t i = 0; i < a->k.n_in; i++) arrays[n++] = &a->k.in[i];
    for (int32_t i = 0; i < a->k.n_in; i++) arrays[n++] = &a->memory[i];
    for (int32_t i = 0; i < a->k.n_out; i++) {
        if (a->k.out[i].count >= 0) arrays[n++] = &a->k.out[i];
    }
    if (mirror_begin(a->c->gpu, arrays, n) == TN_OK) return true;
    check_fail(a->c, "%s", tn_last_error());
    return false;
}

static void try_all(attempt *a) {
    for (int32_t i = 0; i < a->k.n_in && !a->c->broken; i++) try_shapes(a, i);
    for (int32_t i = 0; i < a->k.n_in && !a->c->broken; i++) try_tensor(a, i);
    for (int32_t o = 0; o < a->k.n_out && !a->c->broken; o++) {
        if (a->k.out[o].count >= 0) try_output(a, o);
    }
    try_attrs(a);
    try_counts(a);
}

static void run_refuse(checker *c) {
    problem p;
    attempt a = {.c = c};
    if (!sample_problem(c, &p)) return;
    if (problem_call(&p, &a.k, (call_options){0}) != TN_OK) {
        check_fail(c, "%s", tn_last_error());
    } else {
        if (!make_room(&a)) {
            check_fail(c, "out of memory");
        } else if (!c->gpu) {
            try_all(&a);
        } else if (move_to_gpu(&a)) {
            try_all(&a);
            if (mirror_end(c->gpu) != TN_OK) check_fail(c, "%s", tn_last_error());
        }
        for (int32_t i = 0; a.memory && i < a.k.n_in; i++) array_free(&a.memory[i]);
        tni_free(a.memory);
        call_free(&a.k);
    }
    problem_free(&p);
}

const check_row refuse_rows[] = {
    {"refuse", "each shape, type, device, pointer and attribute wrong on its own", FEW | PER_OP, 20000, NULL,
     run_refuse},
    {0},
};
