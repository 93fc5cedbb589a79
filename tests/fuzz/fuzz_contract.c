/* libFuzzer target for the contract language. The input is a signature, then (behind a zero byte) numbers that make
 * calls of it; one that begins with '@' is a gradient rule. Whatever parses must print back as itself, a call must end
 * with a status, and one of which less is known must get an answer that says less. tests/fuzz/run.sh runs it. */
#include "fuzz_driver.h"

#include "core/table/activation_names.h"
#include "cpu/cpu_device.h"
#include "cuda/driver/cuda.h"

/* A table of its own: something to call and something to activate with. */
static tn_status run(const tn_call *call, void *state) {
    (void)call;
    (void)state;
    return TN_OK;
}

static const tn_kernel kernels[] = {{.name = "ref", .device = TN_CPU, .run = run}, {0}};
static const tn_op rows[] = {
    {.signature = "relu(x: T[*s]) -> y: T[*s]", .doc = "", .kernels = kernels},
    {.signature = "g(x: T[*s], dy: T[*q]?, xs: [T[*p]]?, axis: axis = -1, shape: ints = [], n: int = 1, "
                  "f: float = 1.0, m: 'a'|'b' = 'a', t: dtype = f32, act: activation = 'relu', b: bool = "
                  "false, two: ints[2] = [1, 2], label: str = '') -> dx: T[*s], dw: T[*q]?, dxs: [T[*p]]?",
     .doc = "",
     .kernels = kernels},
    {0},
};
static const tn_op *const families[] = {rows, NULL};
const tni_image tni_images[] = {{0}}; /* and no device code */

static __attribute__((constructor)) void wire(void) {
    tni_device_register(&tni_cpu_device);
    tni_set_activations(&tni_table_activations);
    tni_set_builtin(families);
}

static const char rule_contract[] =
    "op(x: T[*s, n], w: W[n]?, xs: [T[*p]], i: i32[n]?, axis: axis = -1, shape: ints = [], n2: "
    "int = 1, f: float?, m: 'a'|'b' = 'a', t: dtype = f32, act: activation = 'none', b: bool = "
    "true) -> y: T[*s], z: T[n]?grad, ys: [T[*p]]";

static int64_t take_size(source *from) {
    static const int64_t odd[] = {-1, 0, 1, 2147483648, 4611686018427387904, INT64_MAX, -2, 9};
    uint8_t byte = take(from);
    return byte < 200 ? byte % 9 : odd[byte % 8];
}

static tni_operand take_operand(source *from, int64_t *shape) {
    uint8_t byte = take(from);
    tni_operand o = {.type = (tn_type)(byte % (TN_TYPE_COUNT + 1)), .ndim = byte / 16 - 1, .shape = shape};
    if (byte & 1) o.type = TN_F32;
    for (int i = 0; i < o.ndim; i++) shape[i] = take_size(from);
    return o;
}

static tn_value take_value(source *from, const tni_attr *attr, int64_t *ints) {
    uint8_t byte = take(from);
    if (byte % 4 == 0) return (tn_value){.kind = TN_ATTR_UNSET};
    switch (byte % 16 == 1 ? (int)(byte / 16 % 10) : (int)attr->kind) { /* now and then of another kind */
    case TNI_A_FLOAT: return (tn_value){.kind = TN_ATTR_FLOAT, .f = byte / 7.0};
    case TNI_A_BOOL: return (tn_value){.kind = TN_ATTR_BOOL, .b = byte & 16};
    case TNI_A_DTYPE: return (tn_value){.kind = TN_ATTR_TYPE, .type = (tn_type)(byte / 4 % (TN_TYPE_COUNT + 1))};
    case TNI_A_CHOICE:
        if (attr->n_choices) return (tn_value){.kind = TN_ATTR_STR, .s = attr->choices[byte % attr->n_choices]};
        return (tn_value){.kind = TN_ATTR_STR, .s = "x"};
    case TNI_A_STR:
    case TNI_A_ACTIVATION: return (tn_value){.kind = TN_ATTR_STR, .s = byte & 64 ? "relu" : byte & 32 ? "none" : "g"};
    case TNI_A_AXES:
    case TNI_A_INTS:
        for (int i = 0; i < byte / 8; i++) ints[i] = take_size(from);
        return (tn_value){.kind = TN_ATTR_INTS, .count = byte / 8, .ints = ints};
    default: return (tn_value){.kind = TN_ATTR_INT, .i = take_size(from)};
    }
}

/* What inference promises of what it lets through. */
static void check_specs(const tni_contract *c, const tn_spec *specs) {
    for (int i = 0; i < c->n_outputs; i++) {
        must(specs[i].ndim >= -1 && specs[i].ndim <= TN_MAX_RANK && specs[i].type < TN_TYPE_COUNT);
        int64_t bytes = specs[i].type ? (int64_t)tn_type_size(specs[i].type) : 1;
        for (int d = 0; d < specs[i].ndim; d++) {
            must(specs[i].shape[d] >= -1);
            must(specs[i].shape[d] <= 0 || !__builtin_mul_overflow(bytes, specs[i].shape[d], &bytes));
        }
    }
}

/* With less known, the answer may say less, but nothing else. */
static void check_less(const tn_spec *some, const tn_spec *all, int count) {
    for (int i = 0; i < count; i++) {
        must(some[i].present == all[i].present && (some[i].type == TN_NO_TYPE || some[i].type == all[i].type));
        must(some[i].ndim < 0 || some[i].ndim == all[i].ndim || all[i].ndim < 0);
        for (int d = 0; d < some[i].ndim && all[i].ndim >= 0; d++) {
            must(some[i].shape[d] < 0 || all[i].shape[d] < 0 || some[i].shape[d] == all[i].shape[d]);
        }
    }
}

static void hide(source *from, tni_operand *operand, int64_t *shape) {
    uint8_t byte = take(from);
    if (byte % 3 == 0) operand->type = TN_NO_TYPE;
    if (byte % 3 == 1) operand->ndim = -1;
    if (byte % 3 == 2 && operand->ndim > 0) shape[byte % operand->ndim] = -1;
}

static void fuzz_call(const tni_contract *c, source *from) {
    enum { MOST = 3 * TNI_MAX_ARGS };
    static tni_operand operands[MOST];
    static int64_t shapes[MOST][TN_MAX_RANK], ints[TNI_MAX_ARGS][TNI_MAX_INTS];
    static tn_attr attrs[TNI_MAX_ARGS];
    static tn_spec specs[TNI_MAX_ARGS], less[TNI_MAX_ARGS];
    static tni_bound bound;
    int32_t counts[TNI_MAX_ARGS], n = 0;
    for (int i = 0; i < c->n_inputs; i++) {
        uint8_t byte = take(from);
        counts[i] = c->inputs[i].optional && byte % 2 ? 0 : c->inputs[i].list ? byte % 3 + 1 : 1;
        for (int k = 0; k < counts[i]; k++, n++) operands[n] = take_operand(from, shapes[n]);
    }
    for (int i = 0; i < c->n_attrs; i++)
        attrs[i] = (tn_attr){c->attrs[i].name, take_value(from, &c->attrs[i], ints[i])};
    tni_inputs inputs = {operands, counts};
    tn_status status = tni_bind(c, &inputs, attrs, c->n_attrs, &bound, specs);
    if (status != TN_OK) {
        must(strncmp(tn_last_error(), c->name, strlen(c->name)) == 0);
        return;
    }
    check_specs(c, specs);
    for (int i = 0, first = 0; i < c->n_inputs; first += counts[i++]) {
        tni_dims full;
        if (counts[i] == 0) continue;
        must(tni_input_shape(c, &bound, i, &operands[first], &full) == TN_OK && full.ndim <= TN_MAX_RANK);
    }
    for (int i = 0; n > 0 && i < 3; i++) {
        int which = take(from) % n;
        hide(from, &operands[which], shapes[which]);
        must(tni_bind(c, &inputs, attrs, c->n_attrs, &bound, less) == TN_OK);
        check_less(less, specs, c->n_outputs);
    }
}

static void fuzz_contract(const char *text, source *from) {
    tni_contract *c, *again;
    if (tni_contract_parse(text, &c) != TN_OK) {
        must(strstr(tn_last_error(), " at column ") && tn_last_error()[strlen(tn_last_error()) - 1] == '^');
        return;
    }
    char *printed = tni_contract_print(c);
    must(tni_contract_parse(printed, &again) == TN_OK);
    char *second = tni_contract_print(again);
    tni_text one = {0}, two = {0};
    tni_contract_json(&one, c);
    tni_contract_json(&two, again);
    must(strcmp(printed, second) == 0 && strcmp(one.data, two.data) == 0);
    for (int i = 0; i < 4; i++) fuzz_call(c, from);
    tn_free(one.data);
    tn_free(two.data);
    tn_free(printed);
    tn_free(second);
    tni_contract_free(again);
    tni_contract_free(c);
}

static void fuzz_rule(const char *text) {
    static tni_contract *c;
    if (!c) must(tni_contract_parse(rule_contract, &c) == TN_OK && tn_find("g"));
    tni_rule *rule;
    if (tni_rule_parse(c, text, &rule) != TN_OK) {
        must(strstr(tn_last_error(), " at column ") && tn_last_error()[strlen(tn_last_error()) - 1] == '^');
        return;
    }
    tni_text json = {0};
    tni_rule_json(&json, c, rule);
    tn_free(json.data);
    tni_rule_free(rule);
}

static void fuzz_text(const char *text, source *from) {
    if (text[0] == '@') {
        fuzz_rule(text + 1);
    } else {
        fuzz_contract(text, from);
    }
}
