/* Other forms of a contract: JSON that is JSON, numbers that read back in every locale, and, with the Nth allocation
 * failing for every N, a status and no leak (which the sanitizer builds see). */
#include <locale.h>
#include <stdlib.h>

#include "tests/test.h"

#include "contract_call.h"
#include "contract_catalogue.h"
#include "core/host/memory.h"
#include "core/table/activation_names.h"
#include "core/table/grad_rule.h"

static call_text call;

/* ---- is it JSON? ------------------------------------------------------------------------------------------------- */

static const char *json_value(const char *s, int depth);

static const char *json_spaces(const char *s) {
    return s ? s + strspn(s, " \n\t\r") : NULL;
}

static const char *json_string(const char *s) {
    if (*s != '"') return NULL;
    for (s++; *s != '"'; s++) {
        if ((unsigned char)*s < 0x20) return NULL;
        if (*s != '\\') continue;
        s++;
        if (*s == 'u' && strspn(s + 1, "0123456789abcdefABCDEF") < 4) return NULL;
        if (!*s || !strchr("\"\\/bfnrtu", *s)) return NULL;
        if (*s == 'u') s += 4;
    }
    return s + 1;
}

static const char *json_number(const char *s) {
    s += *s == '-';
    size_t n = strspn(s, "0123456789");
    if (n == 0 || (n > 1 && *s == '0')) return NULL;
    s += n;
    if (*s == '.') {
        n = strspn(s + 1, "0123456789");
        if (n == 0) return NULL;
        s += 1 + n;
    }
    if (*s == 'e' || *s == 'E') {
        s++;
        s += *s == '-' || *s == '+';
        n = strspn(s, "0123456789");
        if (n == 0) return NULL;
        s += n;
    }
    return s;
}

/* An object or an array, at its bracket. */
static const char *json_members(const char *s, int depth) {
    bool object = *s == '{';
    char end = object ? '}' : ']';
    s = json_spaces(s + 1);
    if (*s == end) return s + 1;
    for (;;) {
        if (object) {
            s = json_spaces(json_string(s));
            if (!s || *s != ':') return NULL;
            s = json_spaces(s + 1);
        }
        s = json_spaces(json_value(s, depth + 1));
        if (!s || (*s != ',' && *s != end)) return NULL;
        if (*s == end) return s + 1;
        s = json_spaces(s + 1);
    }
}

static const char *json_value(const char *s, int depth) {
    static const char *const words[] = {"true", "false", "null"};
    if (depth > 300) return NULL;
    if (*s == '{' || *s == '[') return json_members(s, depth);
    if (*s == '"') return json_string(s);
    for (int i = 0; i < 3; i++) {
        if (strncmp(s, words[i], strlen(words[i])) == 0) return s + strlen(words[i]);
    }
    return json_number(s);
}

static bool is_json(const char *text) {
    const char *end = json_spaces(json_value(json_spaces(text), 0));
    return end && *end == 0;
}

static void test_checker(void) {
    CHECK(is_json("{\"a\": [1, -2.5e-3, true, null, \"x\\n\\u00e9\"], \"b\": {}}"));
    CHECK(!is_json("{\"a\": [1,]}") && !is_json("{a: 1}") && !is_json("[01]") && !is_json("[1") && !is_json("inf"));
    CHECK(!is_json("\"\n\"") && !is_json("[1] 2") && !is_json("") && !is_json("{\"a\"}"));
}

/* ---- contracts and rows ------------------------------------------------------------------------------------------ */

static void test_contracts(void) {
    for (int i = 0; i < CATALOGUE_ROWS; i++) {
        tni_contract *c;
        tni_text text = {0};
        if (tni_contract_parse(catalogue[i].contract, &c) != TN_OK) continue;
        tni_text_add(&text, "{");
        tni_contract_json(&text, c);
        tni_text_add(&text, "}");
        CHECK_ROW(!text.failed && is_json(text.data), "%s: %s", c->name, text.data);
        tn_free(text.data);
        tni_contract_free(c);
    }
}

/* The documented members of one of each, spelled out. */
static void test_form(void) {
    static const char contract[] = "f<I: i32 i64>(x: T[*s, 2*n]!?, xs: [acc(T)[m if a == 'p' else]], i: I[~n, "
                                   "~*shape], y: out[reduce(*shape, axes, keep)], "
                                   "z: u8|bool[broadcast(*s, *shape)], shape: ints[2] = [1, 2], a: 'p'|'q' = 'q', "
                                   "axes: axes, keep: bool = true, out: dtype, "
                                   "r: float = -inf, o: int?) -> w: complex(T)[rank(*s) - shape[1], -n]?grad where not "
                                   "(n < 3 or o2 == 1), o2 % 2 != 0";
    static const char *const parts[] = {
        "\"types\": [{\"name\": \"I\", \"of\": [\"i32\", \"i64\"]}, {\"name\": \"T\", \"of\": [\"f16\", \"bf16\", "
        "\"f32\", \"f64\"]}]",
        "{\"kind\": \"input\", \"name\": \"x\", \"type\": {\"var\": \"T\"}, \"shape\": [{\"pack\": \"s\"}, {\"expr\": "
        "{\"op\": \"*\", "
        "\"args\": [2, {\"dim\": \"n\"}]}}], \"list\": false, \"optional\": true, \"inplace\": true}",
        "\"name\": \"xs\", \"type\": {\"var\": \"T\", \"wrap\": \"acc\"}, \"shape\": {\"if\": {\"op\": \"==\", "
        "\"args\": [{\"attr\": "
        "\"a\"}, {\"str\": \"p\"}]}, \"then\": [{\"expr\": {\"dim\": \"m\"}}], \"else\": []}, \"list\": true",
        "\"shape\": [{\"expr\": {\"dim\": \"n\"}, \"broadcast\": true}, {\"spread\": \"shape\", \"broadcast\": true}]",
        "\"type\": {\"attr\": \"out\"}, \"shape\": [{\"fn\": \"reduce\", \"a\": {\"attr\": \"shape\"}, \"axes\": "
        "\"axes\", "
        "\"keepdim\": \"keep\"}]",
        "\"type\": {\"fixed\": [\"u8\", \"bool\"]}, \"shape\": [{\"fn\": \"broadcast\", \"of\": [{\"pack\": \"s\"}, "
        "{\"attr\": \"shape\"}]}]",
        "{\"kind\": \"attr\", \"name\": \"shape\", \"type\": \"ints\", \"optional\": false, \"required\": false, "
        "\"default\": [1, 2], "
        "\"implied\": false, \"length\": 2, \"rank_of\": null}",
        "\"type\": \"choice\", \"optional\": false, \"required\": false, \"default\": \"q\", \"implied\": false, "
        "\"length\": null, "
        "\"choices\": [\"p\", \"q\"]",
        "\"type\": \"axes\", \"optional\": false, \"required\": true, \"implied\": false, \"length\": null, "
        "\"rank_of\": {\"attr\": "
        "\"shape\"}}",
        "\"name\": \"r\", \"type\": \"float\", \"optional\": false, \"required\": false, \"default\": -1e999",
        "\"name\": \"o\", \"type\": \"int\", \"optional\": true, \"required\": false, \"implied\"",
        "\"name\": \"want_w\", \"type\": \"bool\", \"optional\": false, \"required\": false, \"default\": false, "
        "\"implied\": true",
        "\"outputs\": [{\"name\": \"w\", \"type\": {\"var\": \"T\", \"wrap\": \"complex\"}, \"shape\": [{\"expr\": "
        "{\"op\": \"-\", "
        "\"args\": [{\"rank\": \"s\"}, {\"attr\": \"shape\", \"at\": 1}]}}, {\"expr\": {\"op\": \"neg\", \"args\": "
        "[{\"dim\": "
        "\"n\"}]}}], \"list\": false, \"want\": \"grad\", \"want_attr\": \"want_w\"}]",
        "\"where\": [{\"text\": \"not (n < 3 or m == 1)\", \"expr\": {\"op\": \"not\", \"args\": [{\"op\": \"or\", "
        "\"args\": [{\"op\": "
        "\"<\", \"args\": [{\"dim\": \"n\"}, 3]}, {\"op\": \"==\", \"args\": [{\"dim\": \"m\"}, 1]}]}]}}, {\"text\": "
        "\"m % 2 != 0\"",
    };
    char text[2048];
    snprintf(text, sizeof text, "%s", contract);
    for (char *s = strstr(text, "o2"); s; s = strstr(s, "o2")) memcpy(s, "m ", 2); /* a dimension */
    tni_contract *c = NULL;
    CHECK_ROW(tni_contract_parse(text, &c) == TN_OK, "%s", tn_last_error());
    if (!c) return;
    tni_text json = {0};
    tni_contract_json(&json, c);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        CHECK_ROW(strstr(json.data, parts[i]), "%s\nin %s", parts[i], json.data);
    tn_free(json.data);
    tni_contract_free(c);
}

static void test_table(void) {
    char *json = tn_table_json();
    CHECK_ROW(json && is_json(json) && json[0] == '[', "%s", tn_last_error());
    tn_free(json);
    CHECK(tn_function_count() > 0);
    for (int i = 0; i < tn_function_count(); i++) {
        const tn_function *op = tn_function_at(i);
        json = tn_function_json(op);
        CHECK_ROW(json && is_json(json), "%s: %s", tn_function_name(op), tn_last_error());
        static const char *const keys[] = {"name",   "signature", "doc",   "autocast", "formula", "types",
                                           "params", "outputs",   "where", "grad",     "kernels", "samples"};
        for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++) {
            char key[32];
            snprintf(key, sizeof key, "\"%s\": ", keys[k]);
            CHECK_ROW(json && strstr(json, key), "%s has no %s", tn_function_name(op), key);
        }
        tn_free(json);
    }
}

static void test_strings(void) {
    static const char *const rows[][2] = {
        {"plain", "\"plain\""},
        {"a \"b\" \\ c", "\"a \\\"b\\\" \\\\ c\""},
        {"\n\t\x01\x7f", "\"\\u000a\\u0009\\u0001\\u007f\""},
        {"caf\xc3\xa9 \xe2\x80\xa6 \xf0\x9f\x98\x80", "\"caf\xc3\xa9 \xe2\x80\xa6 \xf0\x9f\x98\x80\""},
        {"\xff|\xc3|\xe2\x80|\xc0\xaf|\xed\xa0\x80|\xf4\x90\x80\x80|\xc3", NULL},
        {"", "\"\""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tni_text text = {0};
        tni_text_json_string(&text, rows[i][0]);
        CHECK_ROW(is_json(text.data) && (!rows[i][1] || strcmp(text.data, rows[i][1]) == 0), "%s", text.data);
        for (const char *s = text.data; !rows[i][1] && *s; s++)
            CHECK((unsigned char)*s < 0x80); /* nothing invalid is left */
        tn_free(text.data);
    }
    tni_text text = {0};
    for (int i = 0; i < 5000; i++) tni_text_add(&text, "%d,", i);
    CHECK(text.length == 23890 && strlen(text.data) == text.length);
    tni_text_add(&text, "%5000d", 1);
    CHECK(text.length == 28890);
    tn_free(text.data);
    text = (tni_text){0};
    tni_text_add(&text, "%5000d", 1);
    CHECK(text.length == 5000 && strlen(text.data) == 5000);
    tn_free(text.data);
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

static void check_number(double value) {
    char text[256];
    tni_contract *c = NULL;
    snprintf(text, sizeof text, "f(x: T[n], a: float = 1.5) -> y: T[n]");
    CHECK(tni_contract_parse(text, &c) == TN_OK);
    if (!c) return;
    c->attrs[0].value.f = value;
    char *printed = tni_contract_print(c);
    tni_contract *again = NULL;
    CHECK_ROW(tni_contract_parse(printed, &again) == TN_OK && again->attrs[0].value.f == value, "%s", printed);
    tni_contract_free(again);
    tni_contract_free(c);
    tn_free(printed);
}

static void check_numbers(void) {
    static const double values[] = {0.0,
                                    1.0,
                                    -1.0,
                                    0.1,
                                    1.0 / 3,
                                    1e-5,
                                    1e22,
                                    1e23,
                                    5e-324,
                                    1.7976931348623157e308,
                                    123456789.0,
                                    2.2250738585072014e-308,
                                    4.35,
                                    0.000001,
                                    9007199254740993.0};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) check_number(values[i]);
    uint64_t bits = 88172645463325252u;
    for (int i = 0; i < 2000; i++) {
        bits ^= bits << 13, bits ^= bits >> 7, bits ^= bits << 17;
        double value;
        memcpy(&value, &bits, sizeof value);
        if (value == value && value - value == 0) check_number(value);
    }
}

/* A host program may have set a locale whose decimal point is a comma. */
static void test_locale(void) {
    static const char *const names[] = {"C", "de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "pt_BR.UTF-8", "ps_AF.UTF-8"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (!setlocale(LC_NUMERIC, names[i])) continue;
        check_numbers();
        tni_contract *c = NULL;
        CHECK(tni_contract_parse("f(x: T[n], a: float = 1.5, b: float = 2.5e-3) -> y: T[n]", &c) == TN_OK);
        char *printed = c ? tni_contract_print(c) : NULL;
        CHECK(printed && strcmp(printed, "f(x: T[n], a: float = 1.5, b: float = 0.0025) -> y: T[n]") == 0);
        tn_free(printed);
        tni_contract_free(c);
        tni_text hex = {0};
        tni_text_hex(&hex, -1.5);
        CHECK(hex.data && strcmp(hex.data, "-0x1.8p+0") == 0);
        tn_free(hex.data);
    }
    setlocale(LC_NUMERIC, "C");
}

/* ---- activations that are handed in ------------------------------------------------------------------------------ */

static int16_t wiggle_choice(const char *name) {
    return strcmp(name, "wiggle") == 0 ? TNI_ACT_OTHER + 7 : -1;
}

static const char *wiggle_nearest(const char *name) {
    return name[0] == 'w' ? "wiggle" : NULL;
}

static const char *wiggle_next(int *at) {
    return (*at)++ == 0 ? "wiggle" : NULL;
}

static bool accepts(const tni_contract *c, const char *name, int16_t choice) {
    char text[64];
    snprintf(text, sizeof text, "x=f32[2] act='%s'", name);
    return call_bind(c, text, &call) == TN_OK && call.bound.attrs[0].choice == choice;
}

static bool lists(const tni_contract *c, const char *choices) {
    tni_text json = {0};
    tni_contract_json(&json, c);
    const bool found = json.data && strstr(json.data, choices) != NULL;
    tn_free(json.data);
    return found;
}

/* The language knows 'none' and 'relu'; what else there is, it is told. */
static void test_activations(void) {
    static const tni_activations made_up = {wiggle_choice, wiggle_nearest, wiggle_next};
    tni_contract *c;
    CHECK(tni_contract_parse("f(x: T[n], act: activation = 'none') -> y: T[n]", &c) == TN_OK);
    tni_set_activations(NULL);
    CHECK(accepts(c, "none", TNI_ACT_NONE) && accepts(c, "relu", TNI_ACT_RELU) && lists(c, "[\"none\"]"));
    CHECK(call_bind(c, "x=f32[2] act='gelu'", &call) == TN_BAD_VALUE && !strstr(tn_last_error(), "did you mean"));
    tni_set_activations(&made_up);
    CHECK(accepts(c, "none", TNI_ACT_NONE) && accepts(c, "wiggle", TNI_ACT_OTHER + 7));
    CHECK(lists(c, "[\"none\", \"wiggle\"]"));
    CHECK(call_bind(c, "x=f32[2] act='wigle'", &call) == TN_BAD_VALUE);
    CHECK(strstr(tn_last_error(), "did you mean 'wiggle'?") != NULL);
    tni_set_activations(&tni_table_activations);
    CHECK(tni_activation_choice("gelu") >= TNI_ACT_OTHER && tni_activation_choice("softmax") == -1);
    CHECK(lists(c, "\"gelu\""));
    tni_contract_free(c);
}

/* ---- the Nth allocation fails ------------------------------------------------------------------------------------ */

/* One thing done from beginning to end; it leaves nothing behind, whatever happens. */
typedef tn_status (*task)(const char *text);

static tn_status do_contract(const char *text) {
    tni_contract *c, *again = NULL;
    TN_TRY(tni_contract_parse(text, &c));
    char *printed = tni_contract_print(c);
    tni_text json = {0};
    tni_contract_json(&json, c);
    tn_status status = printed && !json.failed ? tni_contract_parse(printed, &again) : TN_NO_MEMORY;
    tn_free(json.data);
    tn_free(printed);
    tni_contract_free(again);
    tni_contract_free(c);
    return status;
}

static const tni_contract *bound_contract;

static tn_status do_bind(const char *text) {
    return call_bind(bound_contract, text, &call);
}

static tn_status do_attr(const char *text) {
    tn_attr attr;
    void *memory;
    tn_status status = tni_attr_parse(bound_contract, "axes", text, &attr, &memory);
    tn_free(memory);
    return status;
}

static tn_status do_rule(const char *text) {
    tni_rule *rule;
    tn_status status = tni_rule_parse(bound_contract, text, &rule);
    tni_text json = {0};
    if (status == TN_OK) {
        tni_rule_json(&json, bound_contract, rule);
        status = json.failed ? TN_NO_MEMORY : TN_OK;
    }
    tn_free(json.data);
    tni_rule_free(rule);
    return status;
}

static tn_status do_operator(const char *name) {
    char *json = tn_function_json(tn_find(name));
    bool made = json != NULL;
    tn_free(json);
    return made ? TN_OK : TN_NO_MEMORY;
}

/* Until it ends as it would with all the memory there is. */
static void starve(task run, const char *text, tn_status expected) {
    tn_status status = TN_NO_MEMORY;
    int64_t n = 1;
    for (; status == TN_NO_MEMORY && n < 5000; n++) {
        tni_fail_allocation(n);
        status = run(text);
        tni_fail_allocation(0);
        bool fine = status == expected || (status == TN_NO_MEMORY && strstr(tn_last_error(), "out of memory"));
        CHECK_ROW(fine, "%s at %d: %s: %s", text, (int)n, tn_status_name(status), tn_last_error());
    }
    CHECK_ROW(status == expected, "%s: %s", text, tn_last_error());
}

static void test_starving(void) {
    tni_contract *c;
    CHECK(tn_function_count() > 0); /* the table is made before memory runs out */
    for (int i = 0; i < CATALOGUE_ROWS; i += 3) starve(do_contract, catalogue[i].contract, TN_OK);
    starve(do_contract, "f(x: T[n]) -> y: T[m] where n > 1", TN_BAD_CONTRACT);
    starve(do_contract, "f<T: i32 i64 f32 f32>(x: T[n]) -> y: T[n]", TN_BAD_CONTRACT);
    CHECK(tni_contract_parse(
              "f(x: T[*s, n], m: T[~*s]?, i: i32[n / 2]?, axes: axes = [], k: int = 1, m2: 'a'|'b' = 'a') -> y: "
              "T[reduce(*s, axes), n - k] where n > 2",
              &c) == TN_OK);
    bound_contract = c;
    starve(do_bind, "x=f32[2, 3]", TN_OK);
    starve(do_bind, "x=f32[2, 2]", TN_BAD_VALUE);
    starve(do_bind, "x=f32[]", TN_BAD_SHAPE);
    starve(do_bind, "x=i32[2, 3]", TN_BAD_TYPE);
    starve(do_bind, "x=f32[2, 3] k=9", TN_BAD_SHAPE);
    starve(do_bind, "x=f32[2, 3] k='a'", TN_BAD_TYPE);
    starve(do_bind, "x=f32[2, 3] m2='z'", TN_BAD_VALUE);
    starve(do_bind, "x=f32[2, 3] zzz=1", TN_BAD_VALUE);
    starve(do_bind, "x=f32[2, 3] m=f32[4]", TN_BAD_SHAPE);
    starve(do_bind, "x=f32[2, 3] i=i32[4]", TN_BAD_SHAPE);
    starve(do_bind, "x=f32[4294967296, 4294967296]", TN_BAD_SHAPE);
    starve(do_attr, "[0, 1]", TN_OK);
    starve(do_attr, "what", TN_BAD_VALUE);
    tni_contract_free(c);
    CHECK(tni_contract_parse("f(x: T[*s], axes: axes = [], keepdim: bool = false) -> y: T[reduce(*s, axes, keepdim)]",
                             &c) == TN_OK);
    bound_contract = c;
    starve(do_rule, "x: sum_grad(dy, *s)", TN_OK);
    starve(do_rule, "t = sum_grad(dy, *s); x: sum_grad(dy=dy, shape=[1, 2], keepdim=true)", TN_OK);
    starve(do_rule, "x: sum_grad(dy, axes)", TN_OK);
    starve(do_rule, "x: sum_grad(dy, keepdim)", TN_BAD_CONTRACT);
    starve(do_rule, "x: sum_grad(dy, 'x')", TN_BAD_CONTRACT);
    tni_contract_free(c);
    for (int i = 0; i < tn_function_count(); i++) starve(do_operator, tn_function_name(tn_function_at(i)), TN_OK);
}

int main(void) {
    test_checker();
    test_contracts();
    test_form();
    test_table();
    test_strings();
    test_locale();
    test_activations();
    test_starving();
    return test_end();
}
