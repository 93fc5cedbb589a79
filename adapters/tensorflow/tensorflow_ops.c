/* TensorFlow: an op for each operator of the table, and one for formulas. What an op definition is made of:
 *     tenon_operator       which operator it is; it has this one value
 *     x: T                 an input. An optional one and a list have a number: x: num_x * T
 *     T, x_type            types: of a variable of the contract, or, where this is no plain variable, of one tensor
 *     y: T, z: num_z * T   outputs; one that is made when asked for has a number, 0 or 1, that asks for it
 *     updated_x: T         behind them, what is updated in place: TensorFlow's tensors are never written to
 *     shape_tensor         behind them an input of 0 or 1 tensors for each attribute of integers: its value, where that
 *                          is not known when a graph is made. Gradients have such: sizes of a batch
 * and the attributes of the contract. Floats, and attributes that may be absent (''), are text: TensorFlow's floats
 * have 32 bits. python/tenon/tensorflow/_call.py makes calls by the same rules. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "core/contract/parts.h"
#include "core/table/table.h"
#include "tensorflow.h"

struct tni_tensorflow tni_tf;

const tni_tf_type tni_tf_types[TN_TYPE_COUNT] = {
#define TYPE_ROW(NAME, code, name) [TN_##NAME] = {code, name},
    TNI_TF_TYPES(TYPE_ROW)
#undef TYPE_ROW
};

tn_type tni_tf_type_of(int code) {
    for (int i = 1; i < TN_TYPE_COUNT; i++) {
        if (tni_tf_types[i].code == code) return (tn_type)i;
    }
    return TN_NO_TYPE;
}

const char *tni_tf_name(const char *name) {
#define WORD(word) \
    { #word, #word "_" }
    static const char *const reserved[][2] = {
        WORD(and), WORD(as), WORD(assert), WORD(async), WORD(await), WORD(break), WORD(class), WORD(continue),
        WORD(def), WORD(del), WORD(elif), WORD(else), WORD(except), WORD(finally), WORD(for), WORD(from),
        WORD(global), WORD(if), WORD(import), WORD(in), WORD(is), WORD(lambda), WORD(nonlocal), WORD(not),
        WORD(or), WORD(pass), WORD(raise), WORD(return), WORD(try), WORD(while), WORD(with), WORD(yield),
        WORD(name), /* a parameter that every function has */
    };
#undef WORD
    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++) {
        if (strcmp(reserved[i][0], name) == 0) return reserved[i][1];
    }
    return name;
}

/* ---- finding TensorFlow ------------------------------------------------------------------------------------------ */

static tn_status find_functions(void) {
    void *library = dlopen("libtensorflow_framework.so.2", RTLD_NOW | RTLD_NOLOAD);
    if (!library) {
        return tn_fail(TN_NOT_FOUND, "TensorFlow is not loaded in this process: `import tensorflow` comes first");
    }
#define FIND(result, name, parameters)                                                                             \
    *(void **)&tni_tf.name = dlsym(library, #name);                                                                \
    if (!tni_tf.name) {                                                                                            \
        return tn_fail(TN_UNSUPPORTED, "this TensorFlow has no function %s: Tenon needs TensorFlow 2.16 or newer", \
                       #name);                                                                                     \
    }
    TNI_TF_FUNCTIONS(FIND)
#undef FIND
    return TN_OK;
}

/* ---- types ------------------------------------------------------------------------------------------------------- */

static uint32_t all_types(void) {
    return TN_BIT(TN_TYPE_COUNT) - TN_BIT(1);
}

/* What a tensor may be by its contract. */
static uint32_t mask_of(const tni_contract *c, const tni_type *type) {
    uint32_t mask = all_types(), made = 0;
    if (type->kind == TNI_TYPE_FIXED) mask = type->mask;
    if (type->kind == TNI_TYPE_VAR) mask = c->types[type->ref].mask;
    for (int i = 1; i < TN_TYPE_COUNT; i++) {
        tn_type t = (tn_type)i;
        if (type->wrap == TNI_ACC) t = tni_acc_type(t);
        if (type->wrap == TNI_COMPLEX) t = tni_complex_type(t);
        if (mask & TN_BIT(i) && t != TN_NO_TYPE) made |= TN_BIT(t);
    }
    return made;
}

static bool is_many(const tni_param *param) {
    return param->list || param->optional || param->want_attr >= 0;
}

static bool is_var(const tni_type *type) {
    return type->kind == TNI_TYPE_VAR && type->wrap == TNI_PLAIN;
}

/* Whether an input that every call has says what the variable is. */
static bool is_bound(const tni_contract *c, int32_t var) {
    for (int32_t i = 0; i < c->n_inputs; i++) {
        const tni_param *input = &c->inputs[i];
        if (is_var(&input->type) && input->type.ref == var && !input->list && !input->optional) return true;
    }
    return false;
}

static bool has_own_type(const tni_contract *c, const tni_param *param, bool is_output) {
    if (param->type.kind == TNI_TYPE_FIXED) return __builtin_popcount(mask_of(c, &param->type)) > 1;
    return !is_var(&param->type) || (is_output && !is_bound(c, param->type.ref));
}

static void add_choice(tni_text *text, uint32_t mask) {
    const char *separator = "{";
    if (mask & (TN_BIT(TN_E4M3) | TN_BIT(TN_E5M2))) { /* whose names a definition cannot have; the core checks */
        tni_text_add(text, "type");
        return;
    }
    for (int i = 1; i < TN_TYPE_COUNT; i++) {
        if (!(mask & TN_BIT(i))) continue;
        tni_text_add(text, "%s%s", separator, tni_tf_types[i].name);
        separator = ", ";
    }
    tni_text_add(text, "}");
}

/* toupper follows the host program's locale, and there is a Turkish i without an I. */
static char capital(char c) {
    return c >= 'a' && c <= 'z' ? (char)(c - 'a' + 'A') : c;
}

static void add_default(tni_text *text, tn_type type) {
    tni_text_add(text, " = DT_");
    for (const char *s = tni_tf_types[type].name; *s; s++) tni_text_add(text, "%c", capital(*s));
}

/* ---- parts of a definition --------------------------------------------------------------------------------------- */

typedef void (*add_spec)(TF_OpDefinitionBuilder *, const char *spec);

/* Hands the text over and empties it. */
static tn_status hand_over(TF_OpDefinitionBuilder *builder, add_spec add, tni_text *text) {
    bool failed = text->failed;
    if (!failed) add(builder, text->data);
    tn_free(text->data);
    *text = (tni_text){0};
    return failed ? TN_NO_MEMORY : TN_OK;
}

static tn_status add_attr(TF_OpDefinitionBuilder *builder, tni_text *text) {
    return hand_over(builder, tni_tf.TF_OpDefinitionBuilderAddAttr, text);
}

static tn_status add_type_attrs(TF_OpDefinitionBuilder *builder, const tni_contract *c) {
    tni_text text = {0};
    for (int32_t var = 0; var < c->n_types; var++) {
        bool used = false;
        for (int32_t i = 0; i < c->n_inputs; i++) used |= is_var(&c->inputs[i].type) && c->inputs[i].type.ref == var;
        if (!used) continue;
        tni_text_add(&text, "%s: ", c->types[var].name);
        add_choice(&text, c->types[var].mask);
        if (!is_bound(c, var)) add_default(&text, (tn_type)__builtin_ctz(c->types[var].mask));
        TN_TRY(add_attr(builder, &text));
    }
    for (int32_t i = 0; i < c->n_inputs + c->n_outputs; i++) {
        bool is_output = i >= c->n_inputs;
        const tni_param *param = is_output ? &c->outputs[i - c->n_inputs] : &c->inputs[i];
        if (!has_own_type(c, param, is_output)) continue;
        uint32_t mask = mask_of(c, &param->type);
        tni_text_add(&text, "%s_type: ", param->name);
        add_choice(&text, mask);
        if (is_many(param)) add_default(&text, (tn_type)__builtin_ctz(mask));
        TN_TRY(add_attr(builder, &text));
    }
    return TN_OK;
}

static tn_status add_own_attr(TF_OpDefinitionBuilder *builder, const tni_attr *attr) {
    static const char *const kinds[] = {
        [TNI_A_INT] = "int",           [TNI_A_AXIS] = "int",     [TNI_A_BOOL] = "bool",      [TNI_A_STR] = "string",
        [TNI_A_ACTIVATION] = "string", [TNI_A_FLOAT] = "string", [TNI_A_AXES] = "list(int)", [TNI_A_INTS] = "list(int)",
        [TNI_A_CHOICE] = "string",     [TNI_A_DTYPE] = "type",
    };
    tni_text text = {0};
    bool is_text = tni_tf_is_text(attr);
    tni_text_add(&text, "%s: %s", tni_tf_name(attr->name), is_text ? "string" : kinds[attr->kind]);
    if (attr->has_default && attr->kind == TNI_A_DTYPE && !is_text) {
        add_default(&text, attr->value.type);
    } else if (attr->has_default) {
        bool quoted = is_text && attr->value.kind != TN_ATTR_STR;
        tni_text_add(&text, quoted ? " = '" : " = ");
        tni_print_value(&text, &attr->value);
        if (quoted) tni_text_add(&text, "'");
    } else if (attr->optional) {
        tni_text_add(&text, " = ''");
    }
    return add_attr(builder, &text);
}

static tn_status add_attrs(TF_OpDefinitionBuilder *builder, const tni_contract *c) {
    tni_text text = {0};
    tni_text_add(&text, "tenon_operator: {'%s'} = '%s'", c->name, c->name);
    TN_TRY(add_attr(builder, &text));
    TN_TRY(add_type_attrs(builder, c));
    for (int32_t i = 0; i < c->n_inputs; i++) {
        if (!is_many(&c->inputs[i])) continue;
        tni_text_add(&text, "num_%s: int >= 0", c->inputs[i].name);
        TN_TRY(add_attr(builder, &text));
    }
    for (int32_t i = 0; i < c->n_outputs; i++) {
        if (!is_many(&c->outputs[i])) continue;
        tni_text_add(&text, "num_%s: int >= 0 = 0", c->outputs[i].name);
        TN_TRY(add_attr(builder, &text));
    }
    for (int32_t i = 0; i < c->n_attrs; i++) {
        if (!c->attrs[i].implied) TN_TRY(add_own_attr(builder, &c->attrs[i]));
        if (!tni_tf_may_be_tensor(&c->attrs[i])) continue;
        tni_text_add(&text, "num_%s_tensor: int >= 0", c->attrs[i].name);
        TN_TRY(add_attr(builder, &text));
    }
    return TN_OK;
}

static tn_status add_tensor(TF_OpDefinitionBuilder *builder, const tni_contract *c, const tni_param *param,
                            const char *prefix, bool is_output, add_spec add) {
    tni_text text = {0};
    tni_text_add(&text, "%s%s: ", prefix, *prefix ? param->name : tni_tf_name(param->name));
    if (is_many(param)) tni_text_add(&text, "num_%s * ", param->name);
    if (has_own_type(c, param, is_output)) {
        tni_text_add(&text, "%s_type", param->name);
    } else if (param->type.kind == TNI_TYPE_VAR) {
        tni_text_add(&text, "%s", c->types[param->type.ref].name);
    } else {
        tni_text_add(&text, "%s", tni_tf_types[__builtin_ctz(mask_of(c, &param->type))].name);
    }
    return hand_over(builder, add, &text);
}

static tn_status add_tensors(TF_OpDefinitionBuilder *builder, const tni_contract *c) {
    add_spec add_input = tni_tf.TF_OpDefinitionBuilderAddInput, add_output = tni_tf.TF_OpDefinitionBuilderAddOutput;
    for (int32_t i = 0; i < c->n_inputs; i++) TN_TRY(add_tensor(builder, c, &c->inputs[i], "", false, add_input));
    for (int32_t i = 0; i < c->n_attrs; i++) {
        const char *name = c->attrs[i].name;
        if (!tni_tf_may_be_tensor(&c->attrs[i])) continue;
        tni_text text = {0};
        tni_text_add(&text, "%s_tensor: num_%s_tensor * int64", name, name);
        TN_TRY(hand_over(builder, add_input, &text));
    }
    for (int32_t i = 0; i < c->n_outputs; i++) TN_TRY(add_tensor(builder, c, &c->outputs[i], "", true, add_output));
    for (int32_t i = 0; i < c->n_inputs; i++) {
        if (!c->inputs[i].inplace) continue;
        TN_TRY(add_tensor(builder, c, &c->inputs[i], "updated_", false, add_output));
    }
    return TN_OK;
}

static tn_status add_formula_parts(TF_OpDefinitionBuilder *builder, const tni_contract *none) {
    (void)none;
    static const char *const attrs[] = {
        "formula: string",   "fast: bool = false",   "attributes: string = ''",
        "counts: list(int)", "Tin: list(type) >= 0", "Tout: list(type) >= 0",
    };
    for (size_t i = 0; i < sizeof attrs / sizeof *attrs; i++) {
        tni_tf.TF_OpDefinitionBuilderAddAttr(builder, attrs[i]);
    }
    tni_tf.TF_OpDefinitionBuilderAddInput(builder, "xs: Tin");
    tni_tf.TF_OpDefinitionBuilderAddOutput(builder, "ys: Tout");
    return TN_OK;
}

static tn_status add_operator_parts(TF_OpDefinitionBuilder *builder, const tni_contract *c) {
    for (int32_t i = 0; i < c->n_outputs; i++) {
        if (!c->outputs[i].list) continue;
        return tn_fail(TN_UNSUPPORTED, "%s: %s is a list of outputs, which TensorFlow does not get yet", c->name,
                       c->outputs[i].name);
    }
    TN_TRY(add_attrs(builder, c));
    return add_tensors(builder, c);
}

/* ---- registering ------------------------------------------------------------------------------------------------- */

/* A shape function sees no attributes, so Python says what shapes there are. */
static void know_no_shape(TF_ShapeInferenceContext *context, TF_Status *status) {
    tni_tf.TF_ShapeInferenceContextSetUnknownShape(context, status);
}

static tn_status status_of(const char *op, const TF_Status *status) {
    if (tni_tf.TF_GetCode(status) == TNI_ABSL_OK) return TN_OK;
    return tn_fail(TN_SYSTEM, "TensorFlow does not take the op %s: %s", op, tni_tf.TF_Message(status));
}

typedef tn_status (*add_parts)(TF_OpDefinitionBuilder *, const tni_contract *);

static tn_status register_op(const char *name, const tni_contract *contract, add_parts add, TF_Status *status) {
    TF_OpDefinitionBuilder *builder = tni_tf.TF_NewOpDefinitionBuilder(name);
    tni_tf.TF_OpDefinitionBuilderSetShapeInferenceFunction(builder, know_no_shape);
    tn_status made = add(builder, contract);
    if (made != TN_OK) {
        tni_tf.TF_DeleteOpDefinitionBuilder(builder);
        return made;
    }
    tni_tf.TF_RegisterOpDefinition(builder, status); /* and frees it */
    TN_TRY(status_of(name, status));
    TF_KernelBuilder *kernel = tni_tf.TF_NewKernelBuilder(name, "CPU", tni_tf_create, tni_tf_compute, tni_tf_delete);
    tni_tf.TF_RegisterKernelBuilder(name, kernel, status);
    return status_of(name, status);
}

static tn_status register_with_status(const char *name, const tni_contract *contract, add_parts add) {
    TF_Status *status = tni_tf.TF_NewStatus();
    tn_status made = register_op(name, contract, add, status);
    tni_tf.TF_DeleteStatus(status);
    return made;
}

/* softmax_grad: TenonSoftmaxGrad */
static tn_status register_operator(const tn_function *op) {
    tni_text name = {0};
    tni_text_add(&name, "Tenon");
    bool upper = true;
    for (const char *s = op->contract->name; *s; s++) {
        if (*s != '_') tni_text_add(&name, "%c", upper ? capital(*s) : *s);
        upper = *s == '_';
    }
    tn_status made = name.failed ? TN_NO_MEMORY : register_with_status(name.data, op->contract, add_operator_parts);
    tn_free(name.data);
    return made;
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int registered = -1; /* operators of the table; -1: formulas are not yet */
static tn_status last = TN_NOT_FOUND;

/* What fails is left out: the operators behind it get in. */
static tn_status register_all(void) {
    tn_status first = TN_OK;
    if (registered < 0) {
        TN_TRY(find_functions());
        TN_TRY(register_with_status(TNI_TF_FUSE, NULL, add_formula_parts));
        registered = 0;
    }
    char message[1024] = "";
    for (; registered < tn_function_count(); registered++) {
        tn_status made = register_operator(tn_function_at(registered));
        if (made == TN_OK || first != TN_OK) continue;
        first = made;
        snprintf(message, sizeof message, "%s", tn_last_error());
    }
    return first == TN_OK ? TN_OK : tn_fail(first, "%s", message);
}

/* Registers operators that are new in the table. */
TN_API tn_status tn_tensorflow_register(void);
TN_API tn_status tn_tensorflow_register(void) {
    pthread_mutex_lock(&lock);
    last = register_all();
    tn_status status = last;
    pthread_mutex_unlock(&lock);
    return status;
}

/* How the last registration went; its message is this thread's, if it was by this thread. */
TN_API tn_status tn_tensorflow_status(void);
TN_API tn_status tn_tensorflow_status(void) {
    pthread_mutex_lock(&lock);
    tn_status status = last;
    pthread_mutex_unlock(&lock);
    return status;
}
