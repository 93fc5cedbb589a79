/* Every contract of the catalogue parses, prints back, and infers. */
#include "tests/test.h"

#include "contract_call.h"
#include "contract_catalogue.h"

static call_text call;

/* Parsing what was printed gives the same contract: the same text and the same parsed form. */
static void check_prints_back(const tni_contract *contract, const char *text) {
    char *printed = tni_contract_print(contract), *again = NULL;
    tni_contract *second = NULL;
    CHECK_ROW(printed && tni_contract_parse(printed, &second) == TN_OK, "%s: %s", text, tn_last_error());
    if (second) {
        again = tni_contract_print(second);
        CHECK_ROW(again && strcmp(again, printed) == 0, "%s became %s", printed, again);
        tni_text one = {0}, two = {0};
        tni_contract_json(&one, contract);
        tni_contract_json(&two, second);
        CHECK_ROW(strcmp(one.data, two.data) == 0, "%s", text);
        tn_free(one.data);
        tn_free(two.data);
    }
    tni_contract_free(second);
    tn_free(printed);
    tn_free(again);
}

static void check_call(const tni_contract *contract, const char *row) {
    char text[1024], answer[1024];
    const char *arrow = strstr(row, " -> ");
    CHECK_ROW(arrow, "no arrow in '%s'", row);
    if (!arrow) return;
    snprintf(text, sizeof text, "%.*s", (int)(arrow - row), row);
    const char *expected = arrow + 4;
    tn_status status = call_bind(contract, text, &call);
    if (expected[0] == '!') {
        CHECK_ROW(status != TN_OK, "%s: %s", contract->name, row);
        CHECK_ROW(status == TN_OK || strstr(tn_last_error(), expected + 1), "%s: %s\n    gave %s", contract->name, row,
                  tn_last_error());
        return;
    }
    CHECK_ROW(status == TN_OK, "%s: %s: %s", contract->name, row, tn_last_error());
    if (status != TN_OK) return;
    call_answer(contract, &call, answer, sizeof answer);
    CHECK_ROW(strcmp(answer, expected) == 0, "%s: %s\n    gave %s", contract->name, row, answer);
}

static void test_catalogue(void) {
    for (int i = 0; i < CATALOGUE_ROWS; i++) {
        tni_contract *contract;
        tn_status status = tni_contract_parse(catalogue[i].contract, &contract);
        CHECK_ROW(status == TN_OK, "%s", tn_last_error());
        if (status != TN_OK) continue;
        check_prints_back(contract, catalogue[i].contract);
        CHECK_ROW(catalogue[i].calls[0], "no call for %s", catalogue[i].contract);
        for (int k = 0; k < 7 && catalogue[i].calls[k]; k++) check_call(contract, catalogue[i].calls[k]);
        tni_contract_free(contract);
    }
}

/* ---- what is not known ------------------------------------------------------------------------------------------- */

static bool compatible(const tn_spec *some, const tn_spec *all) {
    if (some->present != all->present) return false;
    if (some->type != TN_NO_TYPE && some->type != all->type) return false;
    if (some->ndim < 0) return true;
    bool same = some->ndim == all->ndim;
    for (int d = 0; same && d < some->ndim; d++) same = some->shape[d] < 0 || some->shape[d] == all->shape[d];
    return same;
}

/* Binds again with a part hidden: the answer may say less, but nothing else. */
static void check_hidden(const tni_contract *contract, const char *row, const tn_spec *all) {
    tni_inputs inputs = {call.operands, call.counts};
    tn_status status = tni_bind(contract, &inputs, call.attrs, call.n_attrs, &call.bound, call.specs);
    CHECK_ROW(status == TN_OK, "%s: %s with less known: %s", contract->name, row, tn_last_error());
    for (int i = 0; status == TN_OK && i < contract->n_outputs; i++) {
        CHECK_ROW(compatible(&call.specs[i], &all[i]), "%s: %s with less known", contract->name, row);
    }
}

static void hide_one_by_one(const tni_contract *contract, const char *row, const tn_spec *all) {
    for (int i = 0; i < call.n_operands; i++) {
        tni_operand *o = &call.operands[i];
        const tni_operand whole = *o;
        for (int d = 0; d < whole.ndim; d++) {
            int64_t size = call.shapes[i][d];
            call.shapes[i][d] = -1;
            check_hidden(contract, row, all);
            call.shapes[i][d] = size;
        }
        o->ndim = -1;
        check_hidden(contract, row, all);
        *o = whole;
        o->type = TN_NO_TYPE;
        check_hidden(contract, row, all);
        *o = whole;
    }
    for (int i = 0; i < call.n_operands; i++) { /* then more and more of it */
        for (int d = 0; d < call.operands[i].ndim; d++) {
            call.shapes[i][d] = -1;
            check_hidden(contract, row, all);
        }
    }
    for (int i = 0; i < call.n_operands; i++) {
        call.operands[i].ndim = -1;
        check_hidden(contract, row, all);
    }
}

/* Every call of the catalogue that is right stays right, and its answer true, whatever of it is not known. */
static void test_unknown(void) {
    for (int i = 0; i < CATALOGUE_ROWS; i++) {
        tni_contract *contract;
        if (tni_contract_parse(catalogue[i].contract, &contract) != TN_OK) continue;
        for (int k = 0; k < 7 && catalogue[i].calls[k]; k++) {
            const char *row = catalogue[i].calls[k], *arrow = strstr(row, " -> ");
            char text[1024];
            tn_spec all[TNI_MAX_ARGS];
            snprintf(text, sizeof text, "%.*s", (int)(arrow - row), row);
            if (call_bind(contract, text, &call) != TN_OK) continue;
            memcpy(all, call.specs, sizeof all);
            hide_one_by_one(contract, row, all);
        }
        tni_contract_free(contract);
    }
}

/* ---- the canonical form ------------------------------------------------------------------------------------------ */

static void test_canonical(void) {
    static const char *const rows[][2] = {
        {"f ( x :T [ n,k ] )->y:T[n]", "f(x: T[n, k]) -> y: T[n]"},
        {"f(x: T[2*n, k])\n\t-> y: T[n]", "f(x: T[2 * n, k]) -> y: T[n]"},
        {"f(x: i64|i32[n]?!)", "f(x: i32|i64[n]!?)"},
        {"f<W: i64 i32, T: any>(x: T[n], w: W[n]) -> y: T[n]", "f<W: i64 i32, T: any>(x: T[n], w: W[n]) -> y: T[n]"},
        {"f(x: T[n], a: float = 1, b: float = 1e-05, c: float = 0.1, d: float = 1e300, e: float = -0.5) -> y: T[n]",
         "f(x: T[n], a: float = 1.0, b: float = 1e-5, c: float = 0.1, d: float = 1e300, e: float = -0.5) -> y: T[n]"},
        {"f(x: T[n], a: float = 123456789.125, b: float = -inf) -> y: T[n]",
         "f(x: T[n], a: float = 123456789.125, b: float = -inf) -> y: T[n]"},
        {"f(x: T[n], a: int = -9223372036854775807) -> y: T[n]",
         "f(x: T[n], a: int = -9223372036854775807) -> y: T[n]"},
        {"f(x: T[n]) -> y: T[((n + 1))]", "f(x: T[n]) -> y: T[n + 1]"},
        {"f(x: T[n]) -> y: T[n - (1 - n)]", "f(x: T[n]) -> y: T[n - (1 - n)]"},
        {"f(x: T[n]) -> y: T[(n - 1) - n]", "f(x: T[n]) -> y: T[n - 1 - n]"},
        {"f(x: T[n]) -> y: T[n + (1 + n)]", "f(x: T[n]) -> y: T[n + (1 + n)]"},
        {"f(x: T[n]) -> y: T[(n + 1) * 2 / (n % 3)]", "f(x: T[n]) -> y: T[(n + 1) * 2 / (n % 3)]"},
        {"f(x: T[n]) -> y: T[-(n + 1) - -2 - - n]", "f(x: T[n]) -> y: T[-(n + 1) - -2 - -n]"},
        {"f(x: T[n]) -> y: T[--n]", "f(x: T[n]) -> y: T[--n]"},
        {"f(x: T[n]) -> y: T[n] where (n > 1) and n < 9, n != 4", "f(x: T[n]) -> y: T[n] where n > 1, n < 9, n != 4"},
        {"f(x: T[n]) -> y: T[n] where not n > 1 or n == 2 and n >= 0",
         "f(x: T[n]) -> y: T[n] where not n > 1 or (n == 2 and n >= 0)"},
        {"f(x: T[n], a: bool) -> y: T[n] where not (a and n > 1), (n == 1) == a, (not a) == (n <= 2)",
         "f(x: T[n], a: bool) -> y: T[n] where not (a and n > 1), (n == 1) == a, (not a) == (n <= 2)"},
        {"f(x: T[n], a: 'a b'|'' = '') -> y: T[n if a == 'a b' or a != '' else]",
         "f(x: T[n], a: 'a b'|'' = '') -> y: T[n if a == 'a b' or a != '' else]"},
        {"f(x: T[if a else n], a: bool = true) -> y: T[if a else 1]",
         "f(x: T[if a else n], a: bool = true) -> y: T[if a else 1]"},
        {"f(x: T[n], a: ints[2] = [ 1,2 ], b: ints = [], c: axes = [-1], d: str = 'x', e: dtype = bf16, g: int?) -> y: "
         "T[a[1]]",
         "f(x: T[n], a: ints[2] = [1, 2], b: ints = [], c: axes = [-1], d: str = 'x', e: dtype = bf16, g: int?) -> y: "
         "T[a[1]]"},
        {"f(x: bool[n], b: bool, c: bool|i8[n]) -> y: T2[n]", NULL},
        {"f(x: bool[n], b: bool, c: bool|i8[n]) -> y: bool[n]", "f(x: bool[n], b: bool, c: i8|bool[n]) -> y: bool[n]"},
        {"f(xs: [acc(T)[*s]]?, ys: [T[*s]]!) -> zs: [complex(T)[*s]]?grad, w: acc(T)[]?",
         "f(xs: [acc(T)[*s]]?, ys: [T[*s]]!) -> zs: [complex(T)[*s]]?grad, w: acc(T)[]?"},
        {"f(x: T[n], a: bool) -> y: T[n] where a == true or false",
         "f(x: T[n], a: bool) -> y: T[n] where a == true or false"},
        {"f() -> y: f32[2]", "f() -> y: f32[2]"},
        {"f(out: dtype, shape: ints) -> y: out[*shape]", "f(out: dtype, shape: ints) -> y: out[*shape]"},
        {"rank(rank: T[broadcast, *rank]) -> broadcast: T[rank(*rank), broadcast]",
         "rank(rank: T[broadcast, *rank]) -> broadcast: T[rank(*rank), broadcast]"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tni_contract *contract;
        tn_status status = tni_contract_parse(rows[i][0], &contract);
        CHECK_ROW((status == TN_OK) == (rows[i][1] != NULL), "%s: %s", rows[i][0], tn_last_error());
        if (status != TN_OK) continue;
        char *printed = tni_contract_print(contract);
        CHECK_ROW(rows[i][1] && strcmp(printed, rows[i][1]) == 0, "%s\n    printed as %s", rows[i][0], printed);
        tn_free(printed);
        check_prints_back(contract, rows[i][0]);
        tni_contract_free(contract);
    }
}

/* ---- what the parsed form says ----------------------------------------------------------------------------------- */

static void test_parsed_form(void) {
    tni_contract *c;
    CHECK(tni_contract_parse("f(x: T[*s], k: int, y: W[~*s]!?, axis: axis = -1) -> a: T[*s], b: T[k]?, c: T[]?grad",
                             &c) == TN_OK);
    CHECK(c->n_inputs == 2 && c->n_outputs == 3 && c->n_attrs == 4 && c->n_order == 4);
    CHECK(c->n_types == 2 && strcmp(c->types[0].name, "T") == 0 && c->types[0].mask == TN_FLOATS);
    CHECK(!c->order[0].is_attr && c->order[1].is_attr && !c->order[2].is_attr && c->order[2].index == 1);
    CHECK(c->inputs[1].optional && c->inputs[1].inplace && c->items[c->inputs[1].shape.first].broadcast);
    CHECK(strcmp(c->attrs[2].name, "want_b") == 0 && c->attrs[2].implied && c->attrs[2].has_default &&
          !c->attrs[2].value.b);
    CHECK(strcmp(c->attrs[3].name, "want_c") == 0 && c->outputs[2].want == TNI_GRAD && c->outputs[2].want_attr == 3);
    CHECK(c->outputs[0].want == TNI_ALWAYS && c->outputs[0].want_attr == -1 && !c->attrs[0].implied);
    CHECK(!c->attrs[1].rank_is_seq);
    tni_contract_free(c);
    CHECK(tni_contract_parse("g(x: T[*s], ax: axis) -> y: T[reduce(*s, ax)]", &c) == TN_OK);
    CHECK(c->attrs[0].rank_is_seq && !c->attrs[0].rank_seq.is_attr && c->items[1].keep_attr == -1);
    tni_contract_free(c);
    tni_contract_free(NULL);
}

/* ---- what a call leaves behind ----------------------------------------------------------------------------------- */

static tni_contract *parsed(const char *text) {
    tni_contract *c;
    CHECK_ROW(tni_contract_parse(text, &c) == TN_OK, "%s", tn_last_error());
    return c;
}

static void test_bound(void) {
    tni_contract *c = parsed(
        "f(x: T[*s, n], axes: axes = [], axis: axis = -1, dims: ints = [-1, 0], m: 'a'|'b' = 'b', e: float "
        "= 2.0, o: float?) -> y: T[permute(*s, dims)]");
    CHECK_ROW(call_bind(c, "x=f16[2, 3, 4] axes=[-1, 0] e=3", &call) == TN_OK, "%s", tn_last_error());
    const tn_value *attrs = call.bound.attrs;
    CHECK(attrs[0].kind == TN_ATTR_INTS && attrs[0].count == 2 && attrs[0].ints[0] == 0 && attrs[0].ints[1] == 2);
    CHECK(attrs[1].kind == TN_ATTR_INT && attrs[1].i == 2);
    CHECK(attrs[2].count == 2 && attrs[2].ints[0] == 1 && attrs[2].ints[1] == 0);
    CHECK(attrs[3].kind == TN_ATTR_STR && attrs[3].choice == 1 && strcmp(attrs[3].s, "b") == 0);
    CHECK(attrs[4].kind == TN_ATTR_FLOAT && attrs[4].f == 3.0 && attrs[5].kind == TN_ATTR_UNSET);
    CHECK(call.bound.types[0] == TN_F16 && call.bound.dims[0] == 4 && call.bound.packs[0].ndim == 2);
    CHECK(call_bind(c, "x=f16[2, 3, 4] axes=1 m='a'", &call) == TN_OK);
    CHECK(attrs[0].count == 1 && attrs[0].ints[0] == 1 && attrs[3].choice == 0);
    CHECK(call_bind(c, "x=f16[2, 3, 4]", &call) == TN_OK);
    CHECK(attrs[0].count == 3 && attrs[0].ints[0] == 0 && attrs[0].ints[2] == 2);
    CHECK(call_bind(c, "x=f16[..] axes=[-1]", &call) == TN_OK);
    CHECK(attrs[0].count == 1 && attrs[0].ints[0] == -1 && attrs[1].i == -1);
    tni_contract_free(c);
    c = parsed("g(x: T[n], w: W[n]?, i: I[n]?) -> y: W[n]");
    CHECK(call_bind(c, "x=f16[2]", &call) == TN_OK && call.specs[0].type == TN_F16 && call.bound.types[2] == TN_F16);
    tni_contract_free(c);
}

static void test_input_shape(void) {
    static const struct {
        const char *contract, *call;
        int input;
        const char *expected;
    } rows[] = {
        {"f(x: T[*s], m: T[~*s]) -> y: T[*s]", "x=f32[2, 3] m=f32[3]", 1, "2 3"},
        {"f(x: T[*s], m: T[~*s]) -> y: T[*s]", "x=f32[2, 3] m=f32[]", 1, "2 3"},
        {"f(x: T[*s], m: T[~*s]) -> y: T[*s]", "x=f32[2, 3] m=f32[1, 3]", 0, "2 3"},
        {"f(x: T[*s], m: T[~*s]) -> y: T[*s]", "x=f32[2, ?] m=f32[1, 3]", 1, "2 3"},
        {"f(x: T[*s], m: T[~*s]) -> y: T[*s]", "x=f32[?, 3] m=f32[3]", 1, "3"},
        {"f(x: T[*s], m: T[~*s]) -> y: T[*s]", "x=f32[..] m=f32[3]", 1, "3"},
        {"f(x: T[b, h, m], k: T[~b, ~h, m]) -> y: T[b]", "x=f32[2, 3, 4] k=f32[1, 3, 4]", 1, "2 3 4"},
        {"f(a: T[~*s], b: T[~*s]) -> y: T[*s]", "a=f32[2, 1] b=f32[3]", 0, "2 3"},
        {"f(a: T[~*s], b: T[~*s]) -> y: T[*s]", "a=f32[2, 1] b=f32[3]", 1, "2 3"},
        {"f(x: T[*r, n], s: T[~*r, 2, ~n]) -> y: T[n]", "x=f32[4, 5, 6] s=f32[5, 2, 1]", 1, "4 5 2 6"},
        {"f(x: T[n], s: T[~*shape], shape: ints) -> y: T[n]", "x=f32[1] s=f32[3] shape=[2, 3]", 1, "2 3"},
        {"f(x: T[n], s: T[~2 * n]) -> y: T[n]", "x=f32[3] s=f32[1]", 1, "6"},
        {"f(xs: [T[~*s]], x: T[*s]) -> y: T[*s]", "xs=[f32[3]] x=f32[2, 3]", 0, "3"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tni_contract *c = parsed(rows[i].contract);
        char answer[256] = "";
        tni_dims full;
        CHECK_ROW(call_bind(c, rows[i].call, &call) == TN_OK, "%s: %s", rows[i].call, tn_last_error());
        CHECK(tni_input_shape(c, &call.bound, rows[i].input, &call.operands[rows[i].input], &full) == TN_OK);
        for (int d = 0, n = 0; d < full.ndim; d++) {
            n += snprintf(answer + n, sizeof answer - (size_t)n, d ? " %lld" : "%lld", (long long)full.d[d]);
        }
        CHECK_ROW(strcmp(answer, rows[i].expected) == 0, "%s: %s", rows[i].call, answer);
        tni_contract_free(c);
    }
}

static void test_attr_parse(void) {
    static const struct {
        const char *name, *text, *expected; /* as printed in a signature; '!': a part of the message */
    } rows[] = {
        {"i", "-3", "-3"},
        {"i", " 7 ", "7"},
        {"i", "x", "!i needs an int, not 'x'"},
        {"i", "1.5", "!i needs an int"},
        {"i", "", "!i needs an int"},
        {"i", "1 2", "!i needs an int"},
        {"i", "99999999999999999999", "!i needs an int"},
        {"f", "1e-5", "1e-5"},
        {"f", "2", "2.0"},
        {"f", "-inf", "-inf"},
        {"f", "nan", "nan"},
        {"f", "x", "!f needs a float"},
        {"b", "true", "true"},
        {"b", "0", "false"},
        {"b", "2", "!b needs a bool"},
        {"b", "yes", "!b needs a bool"},
        {"s", "hello world", "'hello world'"},
        {"s", "'x'", "'x'"},
        {"s", "", "''"},
        {"s", "'", "'''"},
        {"t", "bf16", "bf16"},
        {"t", "float", "!t needs a type"},
        {"ax", "-1", "-1"},
        {"axes", "[0, -2]", "[0, -2]"},
        {"axes", "0,1", "[0, 1]"},
        {"axes", "3", "[3]"},
        {"axes", "[]", "[]"},
        {"axes", "[1", "!axes needs ints"},
        {"axes", "[1,]", "!axes needs ints"},
        {"two", "[1, 2]", "[1, 2]"},
        {"two", "[1]", "!two has 1 elements, needs 2"},
        {"c", "'sum'", "'sum'"},
        {"c", "mean", "'mean'"},
        {"c", "x", "!c is 'x', needs 'sum' or 'mean'"},
        {"act", "none", "'none'"},
        {"act", "zzz", "!act is 'zzz'"},
        {"want_y", "true", "true"},
        {"axs", "1", "!there is no attribute 'axs'; did you mean 'ax'?"},
        {"x", "1", "!x is a tensor, not an attribute"},
        {"zzzzzz", "1", "!there is no attribute 'zzzzzz'; there is i, f"},
    };
    tni_contract *c = parsed(
        "f(x: T[*d], i: int, f: float, b: bool, s: str, t: dtype, ax: axis, axes: axes, two: ints[2], c: "
        "'sum'|'mean', act: activation) -> y: T[*d]?");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tn_attr attr;
        void *memory;
        tn_status status = tni_attr_parse(c, rows[i].name, rows[i].text, &attr, &memory);
        if (rows[i].expected[0] == '!') {
            CHECK_ROW(status != TN_OK && !memory && strstr(tn_last_error(), rows[i].expected + 1), "%s=%s: %s",
                      rows[i].name, rows[i].text, tn_last_error());
            continue;
        }
        CHECK_ROW(status == TN_OK, "%s", tn_last_error());
        if (status != TN_OK) continue;
        char shown[128] = "";
        const tn_value *v = &attr.value;
        if (v->kind == TN_ATTR_STR) snprintf(shown, sizeof shown, "'%s'", v->s);
        if (v->kind == TN_ATTR_TYPE) snprintf(shown, sizeof shown, "%s", tn_type_name(v->type));
        if (v->kind == TN_ATTR_INT) snprintf(shown, sizeof shown, "%lld", (long long)v->i);
        if (v->kind == TN_ATTR_BOOL) snprintf(shown, sizeof shown, "%s", v->b ? "true" : "false");
        if (v->kind == TN_ATTR_FLOAT)
            CHECK_ROW(v->f == strtod(rows[i].expected, NULL) || v->f != v->f, "%s", rows[i].text);
        if (v->kind == TN_ATTR_INTS) {
            size_t n = (size_t)snprintf(shown, sizeof shown, "[");
            for (int k = 0; k < v->count; k++) {
                n += (size_t)snprintf(shown + n, sizeof shown - n, k ? ", %lld" : "%lld", (long long)v->ints[k]);
            }
            snprintf(shown + n, sizeof shown - n, "]");
        }
        CHECK_ROW(v->kind == TN_ATTR_FLOAT || strcmp(shown, rows[i].expected) == 0, "%s=%s: %s", rows[i].name,
                  rows[i].text, shown);
        CHECK(strcmp(attr.name, rows[i].name) == 0);
        tn_free(memory);
    }
    tni_contract_free(c);
}

int main(void) {
    test_catalogue();
    test_unknown();
    test_canonical();
    test_parsed_form();
    test_bound();
    test_input_shape();
    test_attr_parse();
    return test_end();
}
