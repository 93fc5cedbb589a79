/* What the parameters of a kernel are given: by their names. */
#include "source.h"

#include <stdio.h>
#include <string.h>

#include "core/host/arith.h"

/* ---- what is known of a call ------------------------------------------------------------------------------------- */

/* The call's own attributes, by name, as tni_bind takes them. */
static int32_t attrs_of(const tni_contract *c, const tn_call *call, tn_attr *attrs) {
    int32_t n = 0;
    for (int32_t i = 0; i < c->n_attrs; i++) {
        if (call->attrs[i].kind != TN_ATTR_UNSET) attrs[n++] = (tn_attr){c->attrs[i].name, call->attrs[i]};
    }
    return n;
}

tn_status tni_known_of(const tn_call *call, tni_known *known) {
    const tn_function *op = tn_find(call->name);
    if (!op) return TN_NOT_FOUND;
    const tni_contract *c = op->contract;
    tni_operand operands[TNI_MAX_ARGS] = {0};
    int32_t counts[TNI_MAX_ARGS], n = 0;
    tn_attr attrs[TNI_MAX_ARGS];
    if (c->has_lists) return tn_fail(TN_UNSUPPORTED, "%s: kernels from text take no lists of tensors", call->name);
    for (int32_t i = 0; i < c->n_inputs; i++) {
        const tn_view *v = tn_in(call, i);
        counts[i] = v != NULL;
        if (v) operands[n++] = (tni_operand){v->type, v->ndim, v->shape};
    }
    *known = (tni_known){.contract = c, .call = call};
    const int32_t n_attrs = attrs_of(c, call, attrs);
    return tni_bind(c, &(tni_inputs){operands, counts}, attrs, n_attrs, &known->bound, known->specs);
}

void tni_known_names(const tni_contract *contract, tni_known *known) {
    *known = (tni_known){.contract = contract};
}

static int64_t product(const int64_t *d, int32_t n) {
    int64_t made = 1;
    for (int32_t i = 0; i < n; i++) made *= d[i];
    return made;
}

/* Input i's shape as the kernel sees it, then those of outputs. */
static bool shape_of(const tni_known *k, int32_t i, bool output, const int64_t **shape, int32_t *ndim) {
    static const int64_t one = 1;
    const tn_view *v = k->call ? output ? tn_out(k->call, i) : tn_in(k->call, i) : NULL;
    *shape = v ? v->shape : &one;
    *ndim = v ? v->ndim : 1;
    return v || !k->call;
}

static bool same(const char *name, size_t length, const char *other) {
    return strlen(other) == length && memcmp(name, other, length) == 0;
}

static bool count_of(const tni_known *k, const char *name, size_t length, int64_t *value) {
    static const char end[] = "_count";
    const size_t n = sizeof end - 1;
    if (length <= n || memcmp(name + length - n, end, n) != 0) return false;
    const tni_contract *c = k->contract;
    for (int32_t i = 0; i < c->n_inputs + c->n_outputs; i++) {
        const bool output = i >= c->n_inputs;
        const int32_t at = output ? i - c->n_inputs : i;
        const int64_t *shape;
        int32_t ndim;
        if (!same(name, length - n, output ? c->outputs[at].name : c->inputs[at].name)) continue;
        *value = shape_of(k, at, output, &shape, &ndim) ? product(shape, ndim) : 0;
        return true;
    }
    return false;
}

/* What is written: the first output that is wanted; else, of operators that update, the first input. */
static void written_shape(const tni_known *k, const int64_t **shape, int32_t *ndim) {
    for (int32_t i = 0; i < k->contract->n_outputs; i++) {
        if (shape_of(k, i, true, shape, ndim)) return;
    }
    for (int32_t i = 0; i < k->contract->n_inputs; i++) {
        if (k->contract->inputs[i].inplace && shape_of(k, i, false, shape, ndim)) return;
    }
    shape_of(k, 0, false, shape, ndim);
}

static bool attr_number(const tni_known *k, int32_t i, double *real, int64_t *whole) {
    const tn_value *v = k->call ? &k->bound.attrs[i] : NULL;
    *whole = 1;
    *real = 1;
    switch (k->contract->attrs[i].kind) {
    case TNI_A_FLOAT:
        if (v) *real = v->kind == TN_ATTR_UNSET ? 0 : v->f;
        *whole = (int64_t)*real;
        return true;
    case TNI_A_INT:
    case TNI_A_AXIS:
        if (v) *whole = v->kind == TN_ATTR_UNSET ? 0 : v->i;
        break;
    case TNI_A_BOOL:
        if (v) *whole = v->kind != TN_ATTR_UNSET && v->b;
        break;
    case TNI_A_CHOICE:
    case TNI_A_ACTIVATION:
        if (v) *whole = v->choice;
        break;
    case TNI_A_DTYPE:
        if (v) *whole = v->type;
        break;
    default: return false;
    }
    *real = (double)*whole;
    return true;
}

/* The number that a name of the contract stands for; 0: none does, 1: a whole one, 2: a real one. */
static int number_of(const tni_known *k, const char *name, size_t length, double *real, int64_t *whole) {
    const tni_contract *c = k->contract;
    *whole = 1;
    for (int32_t i = 0; i < k->tunables.n; i++) {
        if (!same(name, length, k->tunables.of[i].name)) continue;
        *whole = k->choice.values[i];
        return 1;
    }
    for (int32_t i = 0; i < c->n_dims; i++) {
        if (!same(name, length, c->dims[i])) continue;
        if (k->call) *whole = k->bound.dims[i];
        return 1;
    }
    for (int32_t i = 0; i < c->n_packs; i++) {
        if (!same(name, length, c->packs[i])) continue;
        if (k->call) *whole = product(k->bound.packs[i].d, k->bound.packs[i].ndim);
        return 1;
    }
    for (int32_t i = 0; i < c->n_attrs; i++) {
        if (!same(name, length, c->attrs[i].name)) continue;
        if (!attr_number(k, i, real, whole)) return 0;
        return c->attrs[i].kind == TNI_A_FLOAT ? 2 : 1;
    }
    if (count_of(k, name, length, whole)) return 1;
    for (int32_t i = 0; i < c->n_inputs && length > 4 && memcmp(name, "has_", 4) == 0; i++) {
        if (!same(name + 4, length - 4, c->inputs[i].name)) continue;
        if (k->call) *whole = tn_in(k->call, i) != NULL;
        return 1;
    }
    if (same(name, length, "sms")) {
        const tn_gpu *gpu;
        const bool on_gpu = k->call && k->call->device.kind == TN_CUDA && tn_cuda_gpu(k->call, &gpu) == TN_OK;
        *whole = on_gpu ? gpu->sms : 1;
        return 1;
    }
    const bool rows = same(name, length, "rows"), columns = same(name, length, "columns");
    if (!rows && !columns) return 0;
    const int64_t *shape;
    int32_t ndim;
    shape_of(k, 0, false, &shape, &ndim);
    *whole = rows ? product(shape, ndim ? ndim - 1 : 0) : ndim ? shape[ndim - 1] : 1;
    return 1;
}

static bool size_value(const void *context, const char *name, size_t length, int64_t *value) {
    double real;
    return number_of(context, name, length, &real, value) == 1;
}

/* Type variables, and the types that the contract names by themselves: f32. */
static bool size_bytes(const void *context, const char *name, size_t length, bool acc, int64_t *bytes) {
    const tni_known *k = context;
    tn_type type = TN_NO_TYPE;
    for (int i = 1; i < TN_TYPE_COUNT; i++) {
        if (same(name, length, tn_type_name((tn_type)i))) type = (tn_type)i;
    }
    bool known = type != TN_NO_TYPE;
    for (int32_t i = 0; i < k->contract->n_types && !known; i++) {
        if (!same(name, length, k->contract->types[i].name)) continue;
        type = k->bound.types[i]; /* none yet where there is no call */
        known = true;
    }
    *bytes = type == TN_NO_TYPE ? 1 : (int64_t)tn_type_size(acc ? tni_acc_type(type) : type);
    return known;
}

static void list_names(const tni_known *k, bool tensors, char *text, size_t size) {
    const tni_contract *c = k->contract;
    size_t n = 0;
    text[0] = 0;
#define ADD(name) \
    if (n < size) n += (size_t)snprintf(text + n, size - n, "%s%s", n ? ", " : "", name)
    for (int32_t i = 0; i < c->n_inputs && tensors; i++) ADD(c->inputs[i].name);
    for (int32_t i = 0; i < c->n_outputs && tensors; i++) ADD(c->outputs[i].name);
    for (int32_t i = 0; i < c->n_attrs; i++) {
        if (!c->attrs[i].implied && (tensors || c->attrs[i].kind != TNI_A_FLOAT)) ADD(c->attrs[i].name);
    }
    for (int32_t i = 0; i < k->tunables.n; i++) ADD(k->tunables.of[i].name);
    for (int32_t i = 0; i < c->n_dims; i++) ADD(c->dims[i]);
    for (int32_t i = 0; i < c->n_packs; i++) ADD(c->packs[i]);
    ADD("rows");
    ADD("columns");
    ADD("sms");
    if (c->n_inputs && n < size) n += (size_t)snprintf(text + n, size - n, ", %s_count", c->inputs[0].name);
    if (tensors) ADD("scratch");
#undef ADD
}

static void list_sizes(const void *context, char *text, size_t size) {
    list_names(context, false, text, size);
}

void tni_sizes_of(const tni_known *k, tni_sizes *sizes) {
    const int64_t *shape;
    int32_t ndim;
    *sizes = (tni_sizes){.value = size_value, .bytes = size_bytes, .list = list_sizes, .context = k};
    written_shape(k, &shape, &ndim);
    sizes->count = product(shape, ndim);
    sizes->width = ndim > 0 ? shape[ndim - 1] : 1;
    sizes->height = ndim > 1 ? shape[ndim - 2] : 1;
    sizes->batch = product(shape, ndim > 2 ? ndim - 2 : 0);
    shape_of(k, 0, false, &shape, &ndim);
    sizes->rows = product(shape, ndim ? ndim - 1 : 0);
    sizes->columns = ndim ? shape[ndim - 1] : 1;
}

/* ---- types of C -------------------------------------------------------------------------------------------------- */

typedef struct ctype {
    const char *name;
    tn_type type;
} ctype;

static const ctype ctypes[] = {
    {"float", TN_F32},
    {"double", TN_F64},
    {"int", TN_I32},
    {"long long", TN_I64},
    {"long", TN_I64},
    {"int64_t", TN_I64},
    {"unsigned", TN_U32},
    {"unsigned int", TN_U32},
    {"size_t", TN_U64},
    {"int32_t", TN_I32},
    {"uint32_t", TN_U32},
    {"uint64_t", TN_U64},
    {"unsigned long", TN_U64},
    {"unsigned long long", TN_U64},
    {"long long int", TN_I64},
    {"long int", TN_I64},
    {"ptrdiff_t", TN_I64},
    {"short", TN_I16},
    {"int16_t", TN_I16},
    {"unsigned short", TN_U16},
    {"uint16_t", TN_U16},
    {"signed char", TN_I8},
    {"int8_t", TN_I8},
    {"unsigned char", TN_U8},
    {"uint8_t", TN_U8},
    {"char", TN_I8},
    {"bool", TN_BOOL},
    {"_Bool", TN_BOOL},
    {"f16", TN_F16},
    {"tn::f16", TN_F16},
    {"__half", TN_F16},
    {"half", TN_F16},
    {"bf16", TN_BF16},
    {"tn::bf16", TN_BF16},
    {"__nv_bfloat16", TN_BF16},
    {"nv_bfloat16", TN_BF16},
    {"float2", TN_F32},
    {"float4", TN_F32},
    {"double2", TN_F64},
    {"int2", TN_I32},
    {"int4", TN_I32},
};

tn_type tni_ctype(const tni_known *k, const char *name) {
    for (int32_t i = 0; i < k->contract->n_types; i++) {
        if (strcmp(k->contract->types[i].name, name) == 0) return k->bound.types[i];
    }
    for (size_t i = 0; i < sizeof ctypes / sizeof ctypes[0]; i++) {
        if (strcmp(ctypes[i].name, name) == 0) return ctypes[i].type;
    }
    return TN_NO_TYPE;
}

/* Numbers of 16 bits are floats in C text: they are converted before and behind. */
static tn_type in_c(tn_type type) {
    return type == TN_F16 || type == TN_BF16 ? TN_F32 : type;
}

static bool fits(tn_type text, tn_type tensor, bool host) {
    if (text == TN_NO_TYPE || text == tensor) return true;
    if (text == TN_BOOL || tensor == TN_BOOL) return tn_type_size(text) == tn_type_size(tensor);
    return host && in_c(text) == TN_F32 && in_c(tensor) == TN_F32;
}

tn_type tni_tensor_type(const tni_known *k, int32_t at, bool output) {
    const tn_view *v = k->call ? output ? tn_out(k->call, at) : tn_in(k->call, at) : NULL;
    const tni_type *t = output ? &k->contract->outputs[at].type : &k->contract->inputs[at].type;
    if (k->call || t->kind == TNI_TYPE_ATTR) return v ? v->type : TN_NO_TYPE;
    tn_type type = t->kind == TNI_TYPE_VAR ? k->bound.types[t->ref] : TN_NO_TYPE;
    for (int i = 1; t->kind == TNI_TYPE_FIXED && i < TN_TYPE_COUNT; i++) {
        if (t->mask == TN_BIT(i)) type = (tn_type)i;
    }
    return t->wrap == TNI_ACC ? tni_acc_type(type) : type;
}

int32_t tni_find_tensor(const tni_contract *c, const char *name, bool *output) {
    for (int32_t i = 0; i < c->n_inputs + c->n_outputs; i++) {
        *output = i >= c->n_inputs;
        const int32_t at = *output ? i - c->n_inputs : i;
        if (strcmp(*output ? c->outputs[at].name : c->inputs[at].name, name) == 0) return at;
    }
    return -1;
}

bool tni_params_fit(const tni_known *k, const tni_cfunction *f, bool host) {
    for (int32_t i = 0; i < f->n_params; i++) {
        bool output;
        const int32_t at = f->params[i].pointers ? tni_find_tensor(k->contract, f->params[i].name, &output) : -1;
        const tn_type type = at < 0 ? TN_NO_TYPE : tni_tensor_type(k, at, output);
        if (type != TN_NO_TYPE && !fits(tni_ctype(k, f->params[i].type), type, host)) return false;
    }
    return true;
}

/* ---- parameters -------------------------------------------------------------------------------------------------- */

static tn_status unknown_param(const char *op, const tni_known *k, const tni_cfunction *f, const tni_cparam *p) {
    char known[400];
    list_names(k, true, known, sizeof known);
    if (!*p->name) {
        return tn_fail(TN_BAD_VALUE, "%s: line %d: parameter %d of %s has no name, so nobody knows what it is given",
                       op, p->line, (int)(p - f->params) + 1, f->name);
    }
    return tn_fail(TN_BAD_VALUE, "%s: line %d: %s(… %s%s …): nothing is called '%s'; there are %s", op, p->line,
                   f->name, p->type, p->pointers ? " *" : "", p->name, known);
}

static tn_status give_pointer(const char *op, const tni_known *k, const tni_cfunction *f, const tni_cparam *p,
                              tni_give *give) {
    bool output;
    give->type = tni_ctype(k, p->type);
    if (strcmp(p->name, "scratch") == 0) {
        give->how = TNI_GIVE_SCRATCH;
        return TN_OK;
    }
    give->index = tni_find_tensor(k->contract, p->name, &output);
    if (give->index < 0) return unknown_param(op, k, f, p);
    give->how = output ? TNI_GIVE_OUTPUT : TNI_GIVE_INPUT;
    const tni_param *param = output ? &k->contract->outputs[give->index] : &k->contract->inputs[give->index];
    if (output && p->is_const) {
        return tn_fail(TN_BAD_VALUE, "%s: line %d: %s is an output, but %s has it as const", op, p->line, p->name,
                       f->name);
    }
    if (!output && !p->is_const && !param->inplace) {
        return tn_fail(TN_BAD_VALUE,
                       "%s: line %d: %s is an input, so %s takes it as `const %s *%s`; a kernel that changes it needs "
                       "`%s!` in the signature",
                       op, p->line, p->name, f->name, p->type, p->name, p->name);
    }
    return TN_OK;
}

/* Into the bits of a C type; whole numbers must fit. */
static tn_status set_value(const char *op, const tni_cfunction *f, const tni_cparam *p, tn_type type, int kind,
                           double real, int64_t whole, uint64_t *bits) {
    static const struct {
        tn_type type;
        int64_t least, most;
    } ranges[] = {{TN_I8, INT8_MIN, INT8_MAX},    {TN_I16, INT16_MIN, INT16_MAX},
                  {TN_I32, INT32_MIN, INT32_MAX}, {TN_U8, 0, UINT8_MAX},
                  {TN_U16, 0, UINT16_MAX},        {TN_U32, 0, UINT32_MAX},
                  {TN_U64, 0, INT64_MAX},         {TN_BOOL, 0, 1},
                  {TN_I64, INT64_MIN, INT64_MAX}};
    *bits = 0;
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        if (ranges[i].type != type) continue;
        if (kind == 2) {
            return tn_fail(TN_BAD_VALUE, "%s: line %d: %s is a float, but %s takes it as %s", op, p->line, p->name,
                           f->name, p->type);
        }
        if (whole < ranges[i].least || whole > ranges[i].most) {
            return tn_fail(TN_BAD_VALUE, "%s: %s is %lld, which `%s %s` of kernel %s cannot hold; make it long long",
                           op, p->name, (long long)whole, p->type, p->name, f->name);
        }
        memcpy(bits, &whole, tn_type_size(type)); /* little-endian: the low bytes */
        return TN_OK;
    }
    tn_set(type, bits, 0, kind == 2 ? real : (double)whole);
    return TN_OK;
}

static tn_status give_value(const char *op, const tni_known *k, const tni_cfunction *f, const tni_cparam *p, bool host,
                            tni_give *give) {
    double real = 0;
    int64_t whole = 0;
    give->how = TNI_GIVE_VALUE;
    const int kind = number_of(k, p->name, strlen(p->name), &real, &whole);
    if (!kind) return unknown_param(op, k, f, p);
    give->type = tni_ctype(k, p->type);
    if (host) give->type = in_c(give->type);
    if (give->type == TN_NO_TYPE) {
        if (!k->call) return TN_OK; /* a type variable */
        return tn_fail(TN_UNSUPPORTED, "%s: line %d: '%s' of %s has the type '%s', which is none that can be passed",
                       op, p->line, p->name, f->name, p->type);
    }
    return set_value(op, f, p, give->type, kind, real, whole, &give->bits);
}

tn_status tni_give_params(const char *op, const tni_known *k, const tni_cfunction *f, bool host, tni_give *give) {
    for (int32_t i = 0; i < f->n_params; i++) {
        const tni_cparam *p = &f->params[i];
        give[i] = (tni_give){.type = TN_NO_TYPE};
        const bool begins = strcmp(p->name, "begin") == 0, ends = strcmp(p->name, "end") == 0;
        if (host && !p->pointers && (begins || ends)) {
            give[i] = (tni_give){TNI_GIVE_RANGE, ends, tni_ctype(k, p->type), 0};
            continue;
        }
        TN_TRY(p->pointers ? give_pointer(op, k, f, p, &give[i]) : give_value(op, k, f, p, host, &give[i]));
    }
    return TN_OK;
}

/* ---- the text ---------------------------------------------------------------------------------------------------- */

static tn_status no_function(const char *op, const tni_cfunctions *all, const char *wanted) {
    tni_text text = {0};
    tni_text_add(&text, "%s: ", op);
    if (!all->n) {
        tni_text_put(&text, "the text has no `__global__ void name(…) { … }`");
    } else if (*wanted) {
        tni_text_add(&text, "launch: there is no kernel '%s'; the text has", wanted);
    } else {
        tni_text_put(&text, "the launch must say which kernel it is of, `name: elements`; the text has");
    }
    for (int32_t i = 0; i < all->n; i++) tni_text_add(&text, "%s %s", i ? "," : "", all->functions[i].name);
    return tni_fail_text(TN_BAD_VALUE, &text);
}

tn_status tni_pick_function(const char *op, const tni_cfunctions *all, const char *wanted,
                            const tni_cfunction **found) {
    *found = NULL;
    int32_t n = 0;
    for (int32_t i = 0; i < all->n; i++) {
        const tni_cfunction *f = &all->functions[i];
        if (strcmp(f->name, *wanted ? wanted : op) == 0) *found = f;
        n += !f->is_static;
    }
    if (*found) return TN_OK;
    for (int32_t i = 0; i < all->n && !*wanted && n == 1; i++) {
        if (!all->functions[i].is_static) *found = &all->functions[i];
    }
    return *found ? TN_OK : no_function(op, all, wanted);
}

static tn_status check_cuda(tni_known *k, const tn_source *source, tni_arena *arena) {
    const char *op = k->contract->name;
    tni_cfunctions all;
    tni_sizes sizes;
    tni_launch_steps steps;
    tni_give give[TNI_MOST_PARAMS];
    const tni_cfunction *f;
    TN_TRY(tni_find_functions(source->cuda, false, arena, &all));
    TN_TRY(tni_find_tunables(op, source->cuda, arena, &k->tunables));
    k->choice = tni_first_choice(&k->tunables);
    tni_sizes_of(k, &sizes);
    TN_TRY(tni_launch_read(op, source->launch ? source->launch : "elements", &sizes, &steps));
    for (int32_t i = 0; i < steps.n; i++) {
        TN_TRY(tni_pick_function(op, &all, steps.steps[i].kernel, &f));
        TN_TRY(tni_give_params(op, k, f, false, give));
    }
    return TN_OK;
}

static tn_status check_c(const tni_known *k, const tn_source *source, tni_arena *arena) {
    tni_cfunctions all;
    tni_give give[TNI_MOST_PARAMS];
    const tni_cfunction *f;
    TN_TRY(tni_find_functions(source->cpu, true, arena, &all));
    TN_TRY(tni_pick_function(k->contract->name, &all, "", &f));
    return tni_give_params(k->contract->name, k, f, true, give);
}

tn_status tni_source_check(const tni_contract *contract, const tn_source *source) {
    tni_known known;
    tni_known_names(contract, &known);
    if (contract->has_lists) {
        return tn_fail(TN_UNSUPPORTED, "%s: kernels from text take no lists of tensors", contract->name);
    }
    tni_arena *arena = tni_arena_new();
    if (!arena) return TN_NO_MEMORY;
    tn_status status = source->cuda ? check_cuda(&known, source, arena) : TN_OK;
    if (status == TN_OK && source->cpu) status = check_c(&known, source, arena);
    tni_arena_free(arena);
    return status;
}

/* ---- rows of tn_op.kernels --------------------------------------------------------------------------------------- */

static bool all_fit(const tni_known *k, const tn_source *source, bool host, tni_arena *arena) {
    tni_cfunctions all;
    const char *text = host ? source->cpu : source->cuda;
    if (!text || tni_find_functions(text, host, arena, &all) != TN_OK) return text != NULL;
    for (int32_t i = 0; i < all.n; i++) {
        if (!tni_params_fit(k, &all.functions[i], host)) return false;
    }
    return true;
}

/* Whatever else is wrong, prepare says. */
bool tn_source_accepts(const tn_call *call) {
    tni_known known;
    tni_arena *arena = tni_arena_new();
    bool fit = !arena || tni_known_of(call, &known) != TN_OK ||
               all_fit(&known, call->kernel->data, call->device.kind == TN_CPU, arena);
    tni_arena_free(arena);
    return fit;
}

tn_status tn_source_prepare(const tn_call *call, void **state) {
    const tn_source *source = call->kernel->data;
    return call->device.kind == TN_CPU ? tni_cpu_source_prepare(call, source, state)
                                       : tni_cuda_source_prepare(call, source, state);
}

/* A state begins with its device. */
static bool is_host(const void *state) {
    return *(const tn_device_kind *)state == TN_CPU;
}

size_t tn_source_workspace(const tn_call *call) {
    return is_host(call->state) ? tni_cpu_source_workspace(call->state) : tni_cuda_source_workspace(call->state);
}

tn_status tn_source_run(const tn_call *call, void *state) {
    return is_host(state) ? tni_cpu_source_run(call, state) : tni_cuda_source_run(call, state);
}

void tn_source_release(void *state) {
    if (state) is_host(state) ? tni_cpu_source_release(state) : tni_cuda_source_release(state);
}
