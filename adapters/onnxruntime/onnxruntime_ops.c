/* An operator of ONNX Runtime for each row of the table and each choice of its types. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "core/host/memory.h"
#include "core/table/table.h"
#include "onnxruntime.h"

const uint8_t tni_ort_types[TN_TYPE_COUNT] = {
    [TN_F32] = 1,   [TN_U8] = 2,    [TN_I8] = 3,   [TN_I16] = 5,  [TN_I32] = 6,
    [TN_I64] = 7,   [TN_BOOL] = 9,  [TN_F16] = 10, [TN_F64] = 11, [TN_BF16] = 16,
    [TN_E4M3] = 17, [TN_E5M2] = 19, [TN_U16] = 4,  [TN_U32] = 12, [TN_U64] = 13,
};

int32_t tni_ort_updated(const tni_contract *c, int32_t k, bool list) {
    for (int32_t i = 0; i < c->n_inputs; i++) {
        if (c->inputs[i].inplace && c->inputs[i].list == list && k-- == 0) return i;
    }
    return -1;
}

/* ---- what an operator is ----------------------------------------------------------------------------------------- */

static const char *get_name(const custom_op *op) {
    return tni_ort_name((const variant *)op);
}
static const char *get_provider(const custom_op *op) {
    (void)op;
    return "CPUExecutionProvider";
}
static size_t get_input_count(const custom_op *op) {
    return (size_t)((const variant *)op)->n_in;
}
static size_t get_output_count(const custom_op *op) {
    return (size_t)((const variant *)op)->n_out;
}
static int get_input_type(const custom_op *op, size_t i) {
    return tni_ort_types[((const variant *)op)->in_types[i]];
}
static int get_output_type(const custom_op *op, size_t i) {
    return tni_ort_types[((const variant *)op)->out_types[i]];
}
static int get_input_characteristic(const custom_op *op, size_t i) {
    const variant *v = (const variant *)op;
    if (v->lists && (int32_t)i == v->n_in - 1) return VARIADIC;
    return v->in_optional[i] ? OPTIONAL : REQUIRED;
}
static int get_output_characteristic(const custom_op *op, size_t i) {
    const variant *v = (const variant *)op;
    if (v->lists_out && (int32_t)i == v->n_out - 1) return VARIADIC;
    bool made = !v->op || !v->op->contract->n_outputs || v->op->contract->outputs[0].want == TNI_ALWAYS;
    return i == 0 && made ? REQUIRED : OPTIONAL;
}
static int get_memory(const custom_op *op, size_t i) {
    (void)op;
    (void)i;
    return 0; /* that of the provider */
}
static int one(const custom_op *op) {
    (void)op;
    return 1;
}

static int zero(const custom_op *op) {
    (void)op;
    return 0;
}

/* ---- all choices of types ---------------------------------------------------------------------------------------- */

typedef struct builder {
    const ort_api *api;
    const tn_function *op;
    tn_type vars[TNI_MAX_TYPES];
    tn_type fixed[TNI_MAX_ARGS]; /* (n_inputs) of `i32|i64` */
    tn_type chosen;              /* of results whose type an attribute says; TN_NO_TYPE: there are none */
    variant **variants;
    size_t count, capacity, first; /* `first`: of this operator */
} builder;

static tn_type settle(const builder *b, const tni_type *type, tn_type fixed) {
    tn_type t = type->kind == TNI_TYPE_VAR ? b->vars[type->ref] : type->kind == TNI_TYPE_ATTR ? b->chosen : fixed;
    return type->wrap == TNI_ACC ? tni_acc_type(t) : type->wrap == TNI_COMPLEX ? tni_complex_type(t) : t;
}

static tn_type lowest(uint32_t mask) {
    for (int t = 1; t < TN_TYPE_COUNT; t++) {
        if (mask & TN_BIT(t)) return (tn_type)t;
    }
    return TN_NO_TYPE;
}

/* The inputs and outputs of the node in these types; false: ONNX Runtime cannot have them. */
static bool fill(const builder *b, variant *v) {
    const tni_contract *c = b->op->contract;
    tn_type list = TN_NO_TYPE;
    bool possible = true;
    for (int32_t i = 0; i < c->n_inputs; i++) {
        const tni_param *p = &c->inputs[i];
        tn_type t = settle(b, &p->type, b->fixed[i]);
        /* lists of a node are of one type; an optional one of another type can only be absent */
        const bool fits = !p->list || list == TN_NO_TYPE || list == t || p->optional;
        possible = possible && tni_ort_types[t] && fits;
        if (p->list) {
            if (list == TN_NO_TYPE) list = t;
            v->lists_out = v->lists_out || p->inplace;
        } else {
            v->in_optional[v->n_in] = p->optional;
            v->in_types[v->n_in++] = (uint8_t)t;
        }
    }
    if (list != TN_NO_TYPE) v->in_types[v->n_in++] = (uint8_t)list;
    v->lists = list != TN_NO_TYPE;
    for (int32_t i = 0; i < c->n_outputs; i++) {
        tn_type t = settle(b, &c->outputs[i].type, lowest(c->outputs[i].type.mask));
        possible = possible && tni_ort_types[t] && !c->outputs[i].list;
        v->out_types[v->n_out++] = (uint8_t)t;
    }
    for (int32_t k = 0, i; (i = tni_ort_updated(c, k, false)) >= 0; k++) {
        v->out_types[v->n_out++] = (uint8_t)settle(b, &c->inputs[i].type, b->fixed[i]);
    }
    if (v->lists_out) v->out_types[v->n_out++] = (uint8_t)list;
    return possible && v->n_out;
}

static bool is_new(const builder *b, const variant *v) {
    for (size_t i = b->first; i < b->count; i++) {
        const variant *other = b->variants[i];
        const bool same_results = !b->chosen || memcmp(other->out_types, v->out_types, sizeof v->out_types) == 0;
        if (same_results && memcmp(other->in_types, v->in_types, sizeof v->in_types) == 0) return false;
    }
    return true;
}

static void set_callbacks(const builder *b, variant *v) {
    bool optional = false;
    for (int32_t i = 0; i < v->n_in; i++) optional = optional || v->in_optional[i];
    v->api = b->api;
    v->op = b->op;
    v->base = (custom_op){
        .version = (uint32_t)(b->api->minor < WRITTEN_FOR ? b->api->minor : WRITTEN_FOR),
        .GetName = get_name,
        .GetExecutionProviderType = get_provider,
        .GetInputType = get_input_type,
        .GetInputTypeCount = get_input_count,
        .GetOutputType = get_output_type,
        .GetOutputTypeCount = get_output_count,
        .KernelDestroy = tni_ort_destroy,
        .GetInputCharacteristic = get_input_characteristic,
        .GetOutputCharacteristic = get_output_characteristic,
        .GetInputMemoryType = get_memory,
        .GetVariadicInputMinArity = one,
        .GetVariadicInputHomogeneity = one,
        .GetVariadicOutputMinArity = zero,
        .GetVariadicOutputHomogeneity = one,
        .CreateKernelV2 = tni_ort_create,
        .KernelComputeV2 = tni_ort_compute,
        .InferOutputShapeFn = optional && b->api->minor < ABSENT_IS_SAFE ? NULL : tni_ort_infer,
    };
}

static tn_status add_variant(builder *b, const variant *like) {
    if (b->count == b->capacity) {
        size_t capacity = b->capacity ? 2 * b->capacity : 256;
        variant **more = tni_realloc(b->variants, capacity * sizeof *more);
        if (!more) return TN_NO_MEMORY;
        b->variants = more;
        b->capacity = capacity;
    }
    variant *v = tni_malloc(sizeof *v);
    if (!v) return TN_NO_MEMORY;
    *v = *like;
    set_callbacks(b, v);
    b->variants[b->count++] = v;
    return TN_OK;
}

/* Where an attribute says the type of a result, there is one for each type, first that of the default: ONNX Runtime
 * takes the first where it knows no better. */
static tn_status choose_results(builder *b) {
    const tni_contract *c = b->op->contract;
    const tni_attr *says = NULL;
    for (int32_t i = 0; i < c->n_attrs; i++) {
        if (c->attrs[i].kind == TNI_A_DTYPE) says = &c->attrs[i];
    }
    for (int k = 0; k < (says ? TN_TYPE_COUNT : 1); k++) {
        variant v = {.n_in = 0};
        b->chosen = k || !says ? (tn_type)k : says->value.kind == TN_ATTR_TYPE ? says->value.type : TN_F32;
        if (fill(b, &v) && is_new(b, &v)) TN_TRY(add_variant(b, &v));
    }
    return TN_OK;
}

/* Every choice for type variables from `var` on, then for inputs of one of several types. A variable that an absent
 * input leaves open is T, and ONNX Runtime takes the first operator that fits: those come first where all are T. */
static tn_status choose(builder *b, int32_t var, int32_t input) {
    const tni_contract *c = b->op->contract;
    if (var < c->n_types) {
        tn_type same = var ? b->vars[0] : TN_NO_TYPE;
        for (int k = same == TN_NO_TYPE; k < TN_TYPE_COUNT; k++) {
            tn_type t = k ? (tn_type)k : same;
            if ((k && t == same) || !(c->types[var].mask & TN_BIT(t)) || !tni_ort_types[t]) continue;
            b->vars[var] = t;
            TN_TRY(choose(b, var + 1, input));
        }
        return TN_OK;
    }
    if (input < c->n_inputs) {
        uint32_t mask = c->inputs[input].type.kind == TNI_TYPE_FIXED ? c->inputs[input].type.mask : 0;
        for (uint32_t rest = mask; rest; rest &= ~TN_BIT(b->fixed[input])) {
            b->fixed[input] = lowest(rest);
            TN_TRY(choose(b, var, input + 1));
        }
        return mask ? TN_OK : choose(b, var, input + 1);
    }
    return choose_results(b);
}

/* Formulas: any number of tensors of one type, and as many results of it. */
static tn_status add_fuse(builder *b) {
    b->op = NULL;
    for (int t = 1; t < TN_TYPE_COUNT; t++) {
        if (!(TN_FLOATS & TN_BIT(t))) continue;
        variant v = {.n_in = 1, .n_out = 1, .lists = true, .lists_out = true};
        v.in_types[0] = v.out_types[0] = (uint8_t)t;
        TN_TRY(add_variant(b, &v));
    }
    return TN_OK;
}

/* ---- registration ------------------------------------------------------------------------------------------------ */

/* The domain for one copy of ONNX Runtime, with the rows that the table had. Sessions may use it at any time: it stays.
 */
typedef struct registration {
    ort_api api;
    const void *table;
    int operators;
    ort_domain *domain;
    struct registration *next;
} registration;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static registration *registrations;

static tn_status open_api(const OrtApiBase *base, registration *r) {
    const char *version = base->GetVersionString();
    int major = 0, minor = 0;
    if (sscanf(version, "%d.%d", &major, &minor) != 2 || major != 1 || minor < OLDEST) {
        return tn_fail(TN_UNSUPPORTED, "tenon needs ONNX Runtime 1.%d or newer, and this is %s", OLDEST, version);
    }
    r->table = base->GetApi((uint32_t)(minor < WRITTEN_FOR ? minor : WRITTEN_FOR));
    if (!r->table) return tn_fail(TN_UNSUPPORTED, "ONNX Runtime %s does not give its functions away", version);
    void *const *places = r->table;
#define FIND(place, result, name, parameters) memcpy(&r->api.name, &places[place], sizeof(void *));
    FUNCTIONS(FIND)
#undef FIND
    r->api.minor = minor;
    return TN_OK;
}

static tn_status fill_domain(registration *r, builder *b) {
    TN_TRY(tni_ort_failed(&r->api, "tenon", r->api.CreateCustomOpDomain("tenon", &r->domain)));
    for (int i = 0; i < r->operators; i++) {
        b->op = tn_function_at(i);
        b->first = b->count;
        TN_TRY(choose(b, 0, 0));
    }
    TN_TRY(add_fuse(b));
    for (size_t i = 0; i < b->count; i++) {
        TN_TRY(tni_ort_failed(&r->api, "tenon", r->api.CustomOpDomain_Add(r->domain, &b->variants[i]->base)));
    }
    return TN_OK;
}

static tn_status find_registration(const registration *like, registration **found_one) {
    for (registration *r = registrations; r; r = r->next) {
        if (r->table == like->table && r->operators == like->operators) {
            *found_one = r;
            return TN_OK;
        }
    }
    registration *r = tni_malloc(sizeof *r);
    if (!r) return TN_NO_MEMORY;
    *r = *like;
    builder b = {.api = &r->api};
    tn_status status = fill_domain(r, &b);
    tni_free(b.variants); /* the array; the domain has what was in it */
    r->next = registrations;
    if (status == TN_OK) *found_one = registrations = r;
    return status; /* on failure what ONNX Runtime may have seen is left to it */
}

/* What ONNX Runtime calls: SessionOptions.register_custom_ops_library, RegisterCustomOpsLibrary_V2. */
TN_API OrtStatus *RegisterCustomOps(OrtSessionOptions *options, const OrtApiBase *base);

OrtStatus *RegisterCustomOps(OrtSessionOptions *options, const OrtApiBase *base) {
    registration like = {.operators = tn_function_count()}, *r = NULL;
    tn_status status = open_api(base, &like);
    if (!like.table) { /* too old: what makes a status has been at its place since 1.0 */
        void *const *places = base->GetApi(1);
        memcpy(&like.api.CreateStatus, &places[0], sizeof(void *));
    }
    if (status == TN_OK) {
        pthread_mutex_lock(&lock);
        status = find_registration(&like, &r);
        pthread_mutex_unlock(&lock);
    }
    return status == TN_OK ? r->api.AddCustomOpDomain(options, r->domain) : tni_ort_status(&like.api, status);
}
