/* Gradient rules: what they become, and what is wrong with those that are. */
#include <stdlib.h>

#include "tests/test.h"

#include "core/table/table.h"

/* ---- operators to call ------------------------------------------------------------------------------------------- */

static tn_status run(const tn_call *call, void *state) {
    (void)call;
    (void)state;
    return TN_OK;
}

static const tn_kernel kernels[] = {{.name = "ref", .device = TN_CPU, .run = run}, {0}};

#define ROW(name, text) static const tn_op name = {.signature = text, .doc = "For tests.", .kernels = kernels}
ROW(simple_grad, "t_simple_grad(y: T[*s], dy: T[*s], axis: axis = -1, scale: float = 1.0) -> dx: T[*s]");
ROW(norm_grad,
    "t_norm_grad(x: T[*r, c], gamma: W[c]?, dy: T[*r, c], eps: float, mode: 'a'|'b' = 'a') -> dx: T[*r, c]?, "
    "dgamma: W[c]?");
ROW(expand,
    "t_expand(dy: T[*q], shape: ints, n: int = 1, factor: float = 1.0, two: ints[2] = [1, 2], out: dtype = f32, "
    "label: str = '', flag: bool = false, act: activation = 'none') -> dx: T[*shape]");
ROW(list_grad, "t_list_grad(xs: [T[*s]], dy: T[*q]) -> dxs: [T[*s]], more: T[*q]");
ROW(update, "t_update(x: f32[n]!)");
static const tn_op *const rows[] = {&simple_grad, &norm_grad, &expand, &list_grad, &update};

/* The operators whose rules are written. */
static const char simple[] =
    "simple(x: T[*s], axis: axis = -1, scale: float = 1.0, extra: int = 3) -> y: T[*s], z: T[*s]";
static const char norm[] =
    "norm(x: T[*r, c], gamma: W[c]?, index: i32[c], eps: float = 1e-5, mode: 'a'|'b' = 'b') -> y: T[*r, "
    "c], mean: acc(T)[*r]";
static const char many[] =
    "many(x: T[*s, k], xs: [T[*p]], dy: T[*s], b: bool[1]?, n: int, shape: ints, size: ints[2], label: "
    "'p'|'q' = 'p', axes: axes = [], o: float?, flag: bool = true) -> y: T[*s], ys: [T[*p]], k2: T[k]";
static const char wrong_kind[] = "wrong_kind(x: T[*s], axis: str = 'a', scale: float = 1.0) -> y: T[*s]";
static const char fused[] = "fused(x: T[*s], act: activation = 'none') -> y: T[*s]";
static const char choices[] = "choices(x: T[*r, c], eps: float = 1.0, mode: 'a'|'c' = 'a') -> y: T[*r, c]";

/* ---- rules that are right ---------------------------------------------------------------------------------------- */

static const struct {
    const char *contract, *rule, *json;
} good[] = {
    {simple, "x: t_simple_grad(y, dy)",
     "{'stands_in': false, 'locals': [], 'differentiable': ['y'], 'statements': [{'results': ['x'], 'local': false, "
     "'op': 't_simple_grad', "
     "'args': ["
     "{'param': 'y', 'attr': false, 'from': 'output', 'name': 'y'}, {'param': 'dy', 'attr': false, 'from': 'doutput', "
     "'name': "
     "'y'}, {'param': 'axis', 'attr': true, 'from': 'attr', 'name': 'axis'}, {'param': 'scale', 'attr': true, 'from': "
     "'attr', "
     "'name': 'scale'}]}]}"},
    {simple, "~ x: t_simple_grad(z, dz, scale=-2.5, axis = 0);",
     "{'stands_in': true, 'locals': [], 'differentiable': ['z'], 'statements': [{'results': ['x'], 'local': false, "
     "'op': 't_simple_grad', "
     "'args': ["
     "{'param': 'y', 'attr': false, 'from': 'output', 'name': 'z'}, {'param': 'dy', 'attr': false, 'from': 'doutput', "
     "'name': "
     "'z'}, {'param': 'scale', 'attr': true, 'from': 'literal', 'value': -2.5}, {'param': 'axis', 'attr': true, "
     "'from': "
     "'literal', 'value': 0}]}]}"},
    {simple, "t = t_simple_grad(y, dy, 1, 2) ; x: t_simple_grad(dy=t, y=x, scale=3)",
     "{'stands_in': false, 'locals': ['t'], 'differentiable': ['y'], 'statements': [{'results': ['t'], 'local': true, "
     "'op': "
     "'t_simple_grad', 'args': ["
     "{'param': 'y', 'attr': false, 'from': 'output', 'name': 'y'}, {'param': 'dy', 'attr': false, 'from': 'doutput', "
     "'name': "
     "'y'}, {'param': 'axis', 'attr': true, 'from': 'literal', 'value': 1}, {'param': 'scale', 'attr': true, 'from': "
     "'literal', "
     "'value': 2.0}]}, {'results': ['x'], 'local': false, 'op': 't_simple_grad', 'args': [{'param': 'dy', 'attr': "
     "false, 'from': "
     "'local', 'name': 't'}, {'param': 'y', 'attr': false, 'from': 'input', 'name': 'x'}, {'param': 'scale', 'attr': "
     "true, "
     "'from': 'literal', 'value': 3.0}, {'param': 'axis', 'attr': true, 'from': 'attr', 'name': 'axis'}]}]}"},
    {norm, "x, gamma: t_norm_grad(x, gamma, dy)",
     "{'stands_in': false, 'locals': [], 'differentiable': ['y'], 'statements': [{'results': ['x', 'gamma'], 'local': "
     "false, 'op': "
     "'t_norm_grad', "
     "'args': [{'param': 'x', 'attr': false, 'from': 'input', 'name': 'x'}, {'param': 'gamma', 'attr': false, 'from': "
     "'input', "
     "'name': 'gamma'}, {'param': 'dy', 'attr': false, 'from': 'doutput', 'name': 'y'}, {'param': 'eps', 'attr': true, "
     "'from': "
     "'attr', 'name': 'eps'}, {'param': 'mode', 'attr': true, 'from': 'attr', 'name': 'mode'}]}]}"},
    /* `dy` is an input here, so it is not the gradient of y; a shape, a dimension, literals of every kind */
    {many, "x: t_expand(dy, *s, k, n, size, bf16, label, false, 'none'); xs: t_list_grad(xs, dk2)",
     "{'stands_in': false, 'locals': [], 'differentiable': ['k2'], 'statements': [{'results': ['x'], 'local': false, "
     "'op': 't_expand', "
     "'args': ["
     "{'param': 'dy', 'attr': false, 'from': 'input', 'name': 'dy'}, {'param': 'shape', 'attr': true, 'from': 'pack', "
     "'name': 's'}"
     ", {'param': 'n', 'attr': true, 'from': 'dim', 'name': 'k'}, {'param': 'factor', 'attr': true, 'from': 'attr', "
     "'name': 'n'}, "
     "{'param': 'two', 'attr': true, 'from': 'attr', 'name': 'size'}, {'param': 'out', 'attr': true, 'from': "
     "'literal', 'value': "
     "'bf16'}, {'param': 'label', 'attr': true, 'from': 'attr', 'name': 'label'}, {'param': 'flag', 'attr': true, "
     "'from': "
     "'literal', 'value': false}, {'param': 'act', 'attr': true, 'from': 'literal', 'value': 'none'}]}, {'results': "
     "['xs'], "
     "'local': false, 'op': 't_list_grad', 'args': [{'param': 'xs', 'attr': false, 'from': 'input', 'name': 'xs'}, "
     "{'param': 'dy',"
     " 'attr': false, 'from': 'doutput', 'name': 'k2'}]}]}"},
    {many,
     "ts, t = t_list_grad(xs=dys, dy=y); x: t_expand(t, *shape, factor=inf, two=[3, -4]); xs: t_list_grad(ts, dy)",
     NULL},
    {many, "x: t_expand(k2, shape, dy=dk2)", "!dy of t_expand is given twice"},
    {many, "x: t_expand(dk2, axes)", NULL},
    {fused, "x: t_expand(dy, *s)", NULL},
};

static void test_good(void) {
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        tni_contract *c;
        tni_rule *rule;
        CHECK_ROW(tni_contract_parse(good[i].contract, &c) == TN_OK, "%s", tn_last_error());
        tn_status status = tni_rule_parse(c, good[i].rule, &rule);
        if (good[i].json && good[i].json[0] == '!') {
            CHECK_ROW(status == TN_BAD_CONTRACT && strstr(tn_last_error(), good[i].json + 1), "%s", tn_last_error());
        } else {
            CHECK_ROW(status == TN_OK, "%s", tn_last_error());
        }
        if (status == TN_OK) {
            tni_text text = {0};
            tni_rule_json(&text, c, rule);
            for (char *s = text.data; *s; s++) *s = *s == '"' ? '\'' : *s; /* quotes that are readable in C */
            CHECK_ROW(!good[i].json || strcmp(text.data, good[i].json) == 0, "%s\n    gave %s", good[i].rule,
                      text.data);
            tn_free(text.data);
        }
        tni_rule_free(rule);
        tni_contract_free(c);
    }
}

/* ---- rules that are wrong ---------------------------------------------------------------------------------------- */

static const struct {
    const char *contract, *rule, *fragment;
} bad[] = {
    {simple, "", "expected the name of an input whose gradient this is, or of a result at column 1"},
    {simple, ";", "expected the name of an input"},
    {simple, "x", "expected ':' or '=' after 'x' at column 2"},
    {simple, "x:", "expected the name of an operator"},
    {simple, "x, : t_simple_grad(y, dy)", "expected the name of an input"},
    {simple, ": t_simple_grad(y, dy)", "expected the name of an input"},
    {simple, "x t_simple_grad(y, dy)", "expected ':' or '=' after 'x'"},
    {simple, "x: t_simple_grad", "expected '(' after the operator's name"},
    {simple, "x: t_simple_grad(", "expected a name or a value"},
    {simple, "x: t_simple_grad(y, dy", "expected ',' or ')' after an argument"},
    {simple, "x: t_simple_grad(y dy)", "expected ',' or ')' after an argument"},
    {simple, "x: t_simple_grad(y, dy) x", "expected ';' between statements"},
    {simple, "x: t_simple_grad(y, dy);; ", "expected the name of an input"},
    {simple, "x: t_simple_grad(y,, dy)", "expected a name or a value"},
    {simple, "x: t_simple_grad(y, )", "expected a name or a value"},
    {simple, "x: t_simple_grad(y, dy, $)", "unexpected character '$'"},
    {simple, "x: t_simple_grad(y, dy, 'a)", "the string has no closing quote"},
    {simple, "if: t_simple_grad(y, dy)", "expected the name of an input"},
    {simple, "x: where(y, dy)", "expected the name of an operator"},
    {simple, "x: t_simple_gard(y, dy)",
     "there is no operator 't_simple_gard'; did you mean 't_simple_grad'? at column 4"},
    {simple, "x: nothing_like_it(y, dy)", "there is no operator 'nothing_like_it'"},
    {simple, "w: t_simple_grad(y, dy)", "simple has no input 'w' at column 1"},
    {simple, "y: t_simple_grad(y, dy)", "simple has no input 'y'"},
    {simple, "axis: t_simple_grad(y, dy)", "simple has no input 'axis'"},
    {simple, "x: t_simple_grad(y, dy); x: t_simple_grad(z, dz)", "the gradient of 'x' is given twice at column 26"},
    {simple, "x, x: t_norm_grad(x, dy=dy, eps=1)", "the gradient of 'x' is given twice"},
    {simple, "x: t_simple_grad(y)", "t_simple_grad needs dy at column 4"},
    {simple, "x: t_simple_grad(dy=dy)", "t_simple_grad needs y"},
    {simple, "x: t_simple_grad()", "t_simple_grad needs y"},
    {simple, "x: t_simple_grad(y, dy, 0, 1, 2)", "t_simple_grad has only 4 parameters at column 31"},
    {simple, "x: t_simple_grad(y, dy, y=y)", "y of t_simple_grad is given twice"},
    {simple, "x: t_simple_grad(y, y=y, dy)", "y of t_simple_grad is given twice"},
    {simple, "x: t_simple_grad(y=y, dy)", "arguments without a name come first"},
    {simple, "x: t_simple_grad(y, dy, axs=1)", "t_simple_grad has no parameter 'axs'"},
    {simple, "x: t_simple_grad(y, dw)", "'dw' is no input, output, gradient of an output or earlier result"},
    {simple, "x: t_simple_grad(t, dy)", "'t' is no input, output, gradient of an output or earlier result"},
    {simple, "x: t_simple_grad(y, dx)", "'dx' is no input"},
    {simple, "x: t_simple_grad(1, dy)", "y of t_simple_grad is a tensor, not a value"},
    {simple, "x: t_simple_grad('a', dy)", "y of t_simple_grad is a tensor, not a value"},
    {simple, "x: t_simple_grad(*s, dy)", "y of t_simple_grad is a tensor, but 's' is none"},
    {simple, "x: t_simple_grad(axis, dy)", "y of t_simple_grad is a tensor, but 'axis' is none"},
    {simple, "x: t_simple_grad(y, dy, y)", "axis of t_simple_grad needs an int, which 'y' is not"},
    {simple, "x: t_simple_grad(y, dy, dy)", "axis of t_simple_grad needs an int, which 'dy' is not"},
    {simple, "x: t_simple_grad(y, dy, 1.5)", "t_simple_grad: axis needs an int, not a float at column 25"},
    {simple, "x: t_simple_grad(y, dy, 'a')", "t_simple_grad: axis needs an int, not a str"},
    {simple, "x: t_simple_grad(y, dy, true)", "t_simple_grad: axis needs an int, not a bool"},
    {simple, "x: t_simple_grad(y, dy, [0])", "t_simple_grad: axis needs an int, not ints"},
    {simple, "x: t_simple_grad(y, dy, *s)", "axis of t_simple_grad needs an int, which 's' is not"},
    {simple, "x: t_simple_grad(y, dy, *q)", "there is no '*q' in simple"},
    {simple, "x: t_simple_grad(y, dy, s)", "'s' is no attribute or dimension of simple; a shape is written with '*'"},
    {simple, "x: t_simple_grad(y, dy, nothing)", "'nothing' is no attribute or dimension of simple"},
    {simple, "x: t_simple_grad(y, dy, scale)", "axis of t_simple_grad needs an int, which 'scale' is not"},
    {simple, "x: t_simple_grad(y, dy, axis, - )", "expected a name or a value"},
    {simple, "x: t_simple_grad(y, dy, - x)", "expected a name or a value"},
    {simple, "x: t_simple_grad(y, dy, [1, ])", "expected an integer"},
    {simple, "x: t_simple_grad(y, dy, [1)", "expected ',' or ']' in a list"},
    {simple, "x: t_simple_grad(y, dy, 99999999999999999999)", "does not fit in 64 bits"},
    {simple, "x, t: t_simple_grad(y, dy)", "t_simple_grad has only 1 outputs at column 4"},
    {simple, "a, b = t_simple_grad(y, dy)", "t_simple_grad has only 1 outputs"},
    {simple, "x: t_update(x)", "t_update has only 0 outputs"},
    {simple, "y = t_simple_grad(y, dy); x: t_simple_grad(y, dy)", "'y' is the name of something else already"},
    {simple, "x = t_simple_grad(y, dy)", "'x' is the name of something else already"},
    {simple, "dy = t_simple_grad(y, dy)", "'dy' is the name of something else already"},
    {simple, "axis = t_simple_grad(y, dy)", "'axis' is the name of something else already"},
    {simple, "t = t_simple_grad(y, dy); t = t_simple_grad(y, dy)",
     "'t' is the name of something else already at column 27"},
    {simple, "t = t_simple_grad(y, dy)", "no input gets a gradient"},
    {simple, "x: t_simple_grad(y, z)", "no d<output> occurs, so nothing flows back"},
    {norm, "index: t_norm_grad(x, gamma, dy)", "'index' is not of a floating type, so it has no gradient"},
    {norm, "x: t_norm_grad(x, gamma, dy, 'a')", "t_norm_grad: eps needs a float, not a str"},
    {norm, "x: t_norm_grad(x, gamma, dy, c, 'z')", "t_norm_grad: mode is 'z', needs 'a' or 'b'"},
    {norm, "x: t_norm_grad(x, gamma, dy, c, c)", "mode of t_norm_grad needs 'a' or 'b', which 'c' is not"},
    {norm, "x: t_expand(dy, *r, out=f99)", "'f99' is no attribute or dimension of norm"},
    {norm, "x: t_expand(dy)", "t_expand needs shape"},
    {norm, "x: t_expand(dy, c)", "shape of t_expand needs ints, which 'c' is not"},
    {norm, "x: t_expand(dy, *r, act='nope')", "act is 'nope'"},
    {norm, "x: t_expand(dy, *r, two=[1])", "t_expand: two has 1 elements, needs 2"},
    {simple, "x: t_norm_grad(x, dy=dy)", "t_norm_grad needs eps"},
    {choices, "x: t_norm_grad(x, dy=dy)", "mode of t_norm_grad needs 'a' or 'b', which 'mode' is not"},
    {wrong_kind, "x: t_simple_grad(y, dy)", "axis of t_simple_grad needs an int, which 'axis' is not"},
    {many, "x: t_list_grad(x, dk2)", "'x' is one tensor, but xs of t_list_grad is a list"},
    {many, "xs: t_list_grad(xs, xs)", "'xs' is a list of tensors, but dy of t_list_grad is one tensor"},
    {many, "xs: t_list_grad(xs, dys)", "'dys' is a list of tensors"},
    {many, "x: t_list_grad(xs, dk2)", "only one of 'x' and dxs is a list"},
    {many, "xs: t_expand(dk2, *s)", "only one of 'xs' and dx is a list"},
    {many, "b: t_expand(dk2, *s)", "'b' is not of a floating type"},
    {many, "x: t_expand(dk2, *shape, o)", "n of t_expand needs an int, which 'o' is not"},
    {many, "x: t_expand(dk2, *s, factor=flag)", "factor of t_expand needs a float, which 'flag' is not"},
    {many, "x: t_expand(dk2, *s, two=shape)", "two of t_expand needs ints, which 'shape' is not"},
    {many, "x: t_expand(dk2, *s, two=axes)", "two of t_expand needs ints, which 'axes' is not"},
    {many, "x: t_expand(dk2, *label)", "there is no '*label' in many"},
    {many, "x: t_norm_grad(x, dy=dk2, eps=o)", "eps of t_norm_grad needs a float, which 'o' is not"},
};

static bool points_at(const char *message, const char *text) {
    const char *column = strstr(message, " at column "), *line = column ? strchr(column, '\n') : NULL;
    const char *caret = line ? strchr(line + 1, '\n') : NULL;
    if (!caret || caret[strlen(caret) - 1] != '^') return false;
    long at = strtol(column + 11, NULL, 10);
    return at >= 1 && at <= (long)strlen(text) + 1 && (strlen(text) > 100 || (long)strlen(caret + 1) == at + 2);
}

static void test_bad(void) {
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        tni_contract *c;
        tni_rule *rule;
        CHECK_ROW(tni_contract_parse(bad[i].contract, &c) == TN_OK, "%s", tn_last_error());
        tn_status status = tni_rule_parse(c, bad[i].rule, &rule);
        CHECK_ROW(status == TN_BAD_CONTRACT && !rule, "%s", bad[i].rule);
        CHECK_ROW(strstr(tn_last_error(), bad[i].fragment), "%s\n    gave %s", bad[i].rule, tn_last_error());
        CHECK_ROW(points_at(tn_last_error(), bad[i].rule), "%s", tn_last_error());
        CHECK_ROW(strncmp(tn_last_error(), "gradient rule of '", 18) == 0, "%s", tn_last_error());
        tni_rule_free(rule);
        tni_contract_free(c);
    }
    printf("%zu bad rules\n", sizeof bad / sizeof bad[0]);
}

/* Too long, too many, cut off anywhere. */
static void test_damaged(void) {
    static const char text[] =
        "ts, t = t_list_grad(xs=dys, dy=y); x: t_expand(t, *shape, k, factor=-1.5, two=[3, -4], label='a'); "
        "xs: t_list_grad(ts, dk2)";
    tni_contract *c;
    tni_rule *rule;
    CHECK(tni_contract_parse(many, &c) == TN_OK);
    CHECK_ROW(tni_rule_parse(c, text, &rule) == TN_OK, "%s", tn_last_error());
    tni_rule_free(rule);
    for (size_t cut = 0; cut < sizeof text - 1; cut++) {
        char part[sizeof text];
        memcpy(part, text, cut);
        part[cut] = 0;
        tn_status status = tni_rule_parse(c, part, &rule);
        CHECK_ROW(status == TN_OK || (status == TN_BAD_CONTRACT && points_at(tn_last_error(), part)), "%s", part);
        tni_rule_free(rule);
        memcpy(part, text, sizeof text);
        part[cut] = "(],;='*9"[cut % 8];
        status = tni_rule_parse(c, part, &rule);
        CHECK_ROW(status == TN_OK || (status == TN_BAD_CONTRACT && points_at(tn_last_error(), part)), "%s", part);
        tni_rule_free(rule);
    }
    char longer[8192] = "";
    for (int i = 0; i < 60; i++) {
        snprintf(longer + strlen(longer), sizeof longer - strlen(longer), "t%d = t_expand(dk2, *s); ", i);
    }
    CHECK(tni_rule_parse(c, longer, &rule) == TN_BAD_CONTRACT && strstr(tn_last_error(), "at most 32 statements"));
    longer[0] = 0;
    for (int i = 0; i < 30; i++) {
        snprintf(longer + strlen(longer), sizeof longer - strlen(longer), "a%d, b%d = t_list_grad(xs, dk2); ", i, i);
    }
    CHECK(tni_rule_parse(c, longer, &rule) == TN_BAD_CONTRACT && strstr(tn_last_error(), "more than 48 results"));
    longer[0] = 0;
    for (int i = 0; i < 60; i++) snprintf(longer + strlen(longer), sizeof longer - strlen(longer), "x%d, ", i);
    CHECK(tni_rule_parse(c, longer, &rule) == TN_BAD_CONTRACT && strstr(tn_last_error(), "at most 48 results"));
    CHECK(tni_rule_parse(c, NULL, &rule) == TN_BAD_CONTRACT && strstr(tn_last_error(), "there is no text"));
    tni_rule_free(NULL);
    tni_contract_free(c);
}

int main(void) {
    CHECK_ROW(tni_table_add(rows, sizeof rows / sizeof rows[0]) == TN_OK, "%s", tn_last_error());
    test_good();
    test_bad();
    test_damaged();
    return test_end();
}
