/* Every row of the table becomes `tenon::<name>`: a schema out of its contract, and a kernel for CPU and CUDA. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/host/memory.h"
#include "core/table/table.h"
#include "torch.h"

enum {
    MOST = 512, /* operators; as many trampolines below */
    LONGEST_NAME = 128,
};

#define TORCH_2_10 ((uint64_t)2 << 56 | (uint64_t)10 << 48) /* what the kernels below are written for */

/* ---- schemas ----------------------------------------------------------------------------------------------------- */

/* Integers may come from sizes, which are symbols while torch traces; axes may not. */
static const char *schema_type(tni_attr_kind kind) {
    switch (kind) {
    case TNI_A_INT: return "SymInt";
    case TNI_A_AXIS: return "int";
    case TNI_A_FLOAT: return "float";
    case TNI_A_BOOL: return "bool";
    case TNI_A_DTYPE: return "ScalarType";
    case TNI_A_AXES: return "int[]";
    case TNI_A_INTS: return "SymInt[]";
    case TNI_A_STR:
    case TNI_A_CHOICE:
    case TNI_A_ACTIVATION: return "str";
    }
    return "?";
}

/* torch's names of types in defaults. */
static const char *schema_dtype(tn_type type) {
    static const char *const names[TN_TYPE_COUNT] = {
        [TN_F16] = "float16", [TN_BF16] = "bfloat16", [TN_F32] = "float32",   [TN_F64] = "float64",
        [TN_I8] = "int8",     [TN_I16] = "int16",     [TN_I32] = "int32",     [TN_I64] = "int64",
        [TN_U8] = "uint8",    [TN_BOOL] = "bool",     [TN_C64] = "complex64", [TN_C128] = "complex128",
        [TN_U16] = "uint16",  [TN_U32] = "uint32",    [TN_U64] = "uint64",
    };
    return names[type] ? names[type] : "float32";
}

static void add_default(tni_text *text, const tni_attr *attr) {
    const tn_value *v = &attr->value;
    switch (v->kind) {
    case TN_ATTR_INT: tni_text_add(text, "=%lld", (long long)v->i); return;
    case TN_ATTR_BOOL: tni_text_add(text, v->b ? "=True" : "=False"); return;
    case TN_ATTR_STR: tni_text_add(text, "=\"%s\"", v->s); return;
    case TN_ATTR_TYPE: tni_text_add(text, "=%s", schema_dtype(v->type)); return;
    case TN_ATTR_FLOAT:
        tni_text_add(text, "=");
        tni_text_double(text, v->f);
        return;
    case TN_ATTR_INTS:
        tni_text_add(text, "=[");
        for (int32_t i = 0; i < v->count; i++) tni_text_add(text, "%s%lld", i ? ", " : "", (long long)v->ints[i]);
        tni_text_add(text, "]");
        return;
    default: tni_text_add(text, "=None"); return;
    }
}

/* A word of TorchScript's cannot be the name of a parameter: `in` is `in_`, as Python's functions have it. */
static const char *mark_of(const char *name) {
    static const char *const words[] = {"and",  "as",     "assert", "break", "class", "continue", "def",
                                        "del",  "elif",   "else",   "for",   "from",  "global",   "if",
                                        "in",   "import", "is",     "not",   "or",    "pass",     "raise",
                                        "None", "return", "True",   "False", "while", "with",     "yield"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strcmp(words[i], name) == 0) return "_";
    }
    return "";
}

static void add_input(tni_text *text, const tni_param *param, bool may_default, int *n_inplace) {
    char alias[8] = "";
    if (param->inplace) snprintf(alias, sizeof alias, "(%c!)", 'a' + (*n_inplace)++ % 26);
    tni_text_add(text, "Tensor%s%s%s %s%s%s", alias, param->list ? "[]" : "", param->optional ? "?" : "", param->name,
                 mark_of(param->name), param->optional && may_default ? "=None" : "");
}

static void add_attr(tni_text *text, const tni_attr *attr, bool may_default) {
    tni_text_add(text, "%s%s %s%s", schema_type(attr->kind), attr->optional ? "?" : "", attr->name,
                 mark_of(attr->name));
    if (may_default && (attr->has_default || attr->optional)) add_default(text, attr);
}

static bool has_default(const tni_contract *c, int32_t k) {
    const tni_attr *attr = &c->attrs[c->order[k].index];
    return c->order[k].is_attr ? attr->has_default || attr->optional : c->inputs[c->order[k].index].optional;
}

/* torch, like Python, wants parameters with defaults behind all those without: an optional one that stands before a
 * required one must be given, as None. */
void tni_torch_schema(tni_text *text, const tn_function *op, const char *overload) {
    const tni_contract *c = op->contract;
    int32_t required = c->n_order; /* how many parameters there are up to the last required one */
    while (required > 0 && has_default(c, required - 1)) required--;
    int n_inplace = 0;
    tni_text_add(text, "%s%s(", c->name, overload);
    for (int32_t k = 0; k < c->n_order; k++) {
        if (k) tni_text_add(text, ", ");
        int32_t i = c->order[k].index;
        if (c->order[k].is_attr) {
            add_attr(text, &c->attrs[i], k >= required);
        } else {
            add_input(text, &c->inputs[i], k >= required, &n_inplace);
        }
    }
    for (int32_t i = 0; i < c->n_attrs; i++) {
        if (c->attrs[i].implied) tni_text_add(text, ", bool %s=False", c->attrs[i].name);
    }
    tni_text_add(text, c->n_outputs == 1 ? ") -> " : ") -> (");
    for (int32_t i = 0; i < c->n_outputs; i++) {
        tni_text_add(text, "%sTensor%s%s", i ? ", " : "", c->outputs[i].list ? "[]" : "",
                     c->outputs[i].want == TNI_ALWAYS ? "" : "?");
    }
    if (c->n_outputs != 1) tni_text_add(text, ")");
}

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

static const tn_function *registered[MOST];

/* A kernel of torch has no context: the operator's place comes from the trampoline, last, so that the trampoline passes
 * the other arguments on in their registers. */
static __attribute__((noinline)) void run(tni_torch_slot *stack, uint64_t n_in, uint64_t n_out, int place) {
    tni_torch_frame frame;
    tni_torch_frame_init(&frame, registered[place]);
    tn_status status = tni_torch_read(&frame, stack, n_in);
    if (status == TN_OK) status = tni_torch_call(&frame);
    tni_torch_release_slots(&frame, stack, n_in);
    if (status == TN_OK) status = tni_torch_push(&frame, stack, n_out);
    if (status == TN_OK) return;
    tni_torch_delete_outputs(&frame);
    tni_torch_raise(status);
}

/* clang-format off */
/* 32 rows of 16 trampolines: kernel_000 … kernel_1ff. */
#define SIXTEEN(X, h)                                                                                                  \
    X(h##0) X(h##1) X(h##2) X(h##3) X(h##4) X(h##5) X(h##6) X(h##7)                                                    \
    X(h##8) X(h##9) X(h##a) X(h##b) X(h##c) X(h##d) X(h##e) X(h##f)
#define ALL(X)                                                                                                         \
    SIXTEEN(X, 00) SIXTEEN(X, 01) SIXTEEN(X, 02) SIXTEEN(X, 03) SIXTEEN(X, 04) SIXTEEN(X, 05) SIXTEEN(X, 06)           \
    SIXTEEN(X, 07) SIXTEEN(X, 08) SIXTEEN(X, 09) SIXTEEN(X, 0a) SIXTEEN(X, 0b) SIXTEEN(X, 0c) SIXTEEN(X, 0d)           \
    SIXTEEN(X, 0e) SIXTEEN(X, 0f) SIXTEEN(X, 10) SIXTEEN(X, 11) SIXTEEN(X, 12) SIXTEEN(X, 13) SIXTEEN(X, 14)           \
    SIXTEEN(X, 15) SIXTEEN(X, 16) SIXTEEN(X, 17) SIXTEEN(X, 18) SIXTEEN(X, 19) SIXTEEN(X, 1a) SIXTEEN(X, 1b)           \
    SIXTEEN(X, 1c) SIXTEEN(X, 1d) SIXTEEN(X, 1e) SIXTEEN(X, 1f)
/* clang-format on */

#define TRAMPOLINE(place)                                                              \
    static void kernel_##place(tni_torch_slot *stack, uint64_t n_in, uint64_t n_out) { \
        run(stack, n_in, n_out, 0x##place);                                            \
    }
ALL(TRAMPOLINE)

#define ADDRESS(place) kernel_##place,
static const tni_torch_kernel trampolines[MOST] = {ALL(ADDRESS)};

/* ---- registration ------------------------------------------------------------------------------------------------ */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int n_registered;
/* torch's libraries; deleting one would take its operators back, so they are kept. */
static tni_torch_handle definitions, cpu_kernels, cuda_kernels;

static tn_status open_libraries(void) {
    if (cuda_kernels) return TN_OK;
    if ((!definitions && tni_torch.aoti_torch_library_init_fragment("tenon", "tenon", 0, &definitions)) ||
        (!cpu_kernels && tni_torch.aoti_torch_library_init_impl("tenon", "CPU", "tenon", 0, &cpu_kernels)) ||
        tni_torch.aoti_torch_library_init_impl("tenon", "CUDA", "tenon", 0, &cuda_kernels)) {
        cuda_kernels = NULL;
        return tn_fail(TN_SYSTEM, "torch refused to open a library of operators");
    }
    return TN_OK;
}

tn_status tni_torch_define(const char *schema, const char *name, tni_torch_kernel kernel) {
    if (tni_torch.aoti_torch_library_def(definitions, schema)) {
        return tn_fail(TN_SYSTEM, "torch refused the operator tenon::%s; is another copy of libtenon loaded?", name);
    }
    if (tni_torch.torch_library_impl(cpu_kernels, name, kernel, TORCH_2_10) ||
        tni_torch.torch_library_impl(cuda_kernels, name, kernel, TORCH_2_10)) {
        return tn_fail(TN_SYSTEM, "torch refused a kernel of the operator tenon::%s", name);
    }
    return TN_OK;
}

static tn_status register_overload(const tn_function *op, const char *overload, tni_torch_kernel kernel) {
    tni_text schema = {0};
    char name[LONGEST_NAME];
    tni_torch_schema(&schema, op, overload);
    snprintf(name, sizeof name, "%s%s", op->contract->name, overload);
    tn_status status = schema.failed ? tn_fail(TN_NO_MEMORY, "%s: no memory for its schema", op->contract->name)
                                     : tni_torch_define(schema.data, name, kernel);
    tni_free(schema.data);
    return status;
}

/* `tenon::softmax` is what users see: Python adds its gradient. `tenon::softmax.raw` has none, and so costs nothing on
 * top: it is what `tenon::softmax` comes to below autograd, and what compiled graphs hold. */
static tn_status register_operator(const tn_function *op) {
    if (n_registered == MOST) {
        return tn_fail(TN_UNSUPPORTED, "%s: torch can have %d operators of Tenon, and has them", op->contract->name,
                       MOST);
    }
    tni_torch_kernel kernel = trampolines[n_registered];
    registered[n_registered] = op;
    TN_TRY(register_overload(op, "", kernel));
    TN_TRY(register_overload(op, ".raw", kernel));
    n_registered++;
    return TN_OK;
}

/* Rows are only ever added to the table, so those not registered yet are its last ones. */
static tn_status register_locked(void) {
    static bool fuse;
    TN_TRY(open_libraries());
    if (!fuse) TN_TRY(tni_torch_register_fuse());
    fuse = true;
    while (n_registered < tn_function_count()) TN_TRY(register_operator(tn_function_at(n_registered)));
    return TN_OK;
}

tn_status tn_torch_register(void) {
    TN_TRY(tni_torch_load());
    pthread_mutex_lock(&lock);
    tn_status status = register_locked();
    pthread_mutex_unlock(&lock);
    return status;
}
