/* Expressions of a formula, from what binds least to what binds most:
 *
 *   expression  or [if or else expression]
 *   or          and {or and}
 *   and         not {and not}
 *   not         not not | comparison
 *   comparison  bits [< bits]           they do not chain
 *   bits        | ^ & and shifts of sums, each binding more than the one before
 *   sum         product {+ product}
 *   product     sign {* sign}
 *   sign        - sign | ~ sign | ! sign | power
 *   power       atom {[ subscripts ]} [** sign]
 *   atom        number | name | name ( arguments ) | ( expression )                                               */
#include <math.h>
#include <string.h>

#include "formula_parse.h"

tn_status tni_parse_next(tni_parser *p) {
    return tni_formula_next(&p->lex, p->brackets == 0);
}

bool tni_parse_at(const tni_parser *p, int kind) {
    return p->lex.token.kind == kind;
}

tn_status tni_parse_take(tni_parser *p, int kind, bool *taken) {
    *taken = tni_parse_at(p, kind);
    return *taken ? tni_parse_next(p) : TN_OK;
}

tn_status tni_parse_made(const tni_parser *p, int32_t node) {
    if (node >= 0 || p->g->status == TN_OK) return TN_OK;
    if (p->g->status == TN_NO_MEMORY) return TN_NO_MEMORY;
    if (!p->formula) return tn_fail(TN_BAD_CONTRACT, "it would have more than %d operations", TNI_FUSE_NODES);
    return tni_lex_fail(&p->lex, p->lex.token.at, "%s", "the formula has too many operations");
}

static tn_status enter(tni_parser *p) {
    if (p->depth++ < TNI_FUSE_DEPTH) return TN_OK;
    return tni_lex_fail(&p->lex, p->lex.token.at, "brackets, signs, powers and choices are nested more than %d deep",
                        TNI_FUSE_DEPTH);
}

/* Moves over an operator; its right side may stand on the next line. */
static tn_status pass_operator(tni_parser *p) {
    do {
        TN_TRY(tni_parse_next(p));
    } while (tni_parse_at(p, '\n'));
    return TN_OK;
}

/* ---- atoms ------------------------------------------------------------------------------------------------------- */

static tn_status parse_brackets(tni_parser *p, int32_t *node) {
    p->brackets++;
    TN_TRY(tni_parse_next(p));
    TN_TRY(tni_parse_expression(p, node));
    if (tni_parse_at(p, ',')) return tni_fail_comma(&p->lex);
    if (!tni_parse_at(p, ')')) return tni_lex_expected(&p->lex, "')'");
    p->brackets--;
    return tni_parse_next(p);
}

static bool constant_named(const tni_lexer *lex, double *value) {
    static const struct {
        const char *name;
        double value;
    } constants[] = {
        {"pi", 3.14159265358979323846}, {"e", 2.71828182845904523536}, {"inf", (double)INFINITY}, {"nan", (double)NAN}};
    for (size_t i = 0; i < sizeof constants / sizeof constants[0]; i++) {
        if (!tni_lex_is(lex, constants[i].name)) continue;
        *value = constants[i].value;
        return true;
    }
    return false;
}

/* pi and e, unless the formula gives the name to something else. */
static bool take_constant(tni_parser *p, double *value) {
    char name[TNI_MAX_NAME + 1] = "";
    if (!constant_named(&p->lex, value)) return false;
    memcpy(name, p->lex.text + p->lex.token.at, (size_t)p->lex.token.length);
    if (p->formula && tni_names_value(p, name)) return false;
    p->read_pi |= strcmp(name, "pi") == 0;
    p->read_e |= strcmp(name, "e") == 0;
    return true;
}

static tn_status parse_name(tni_parser *p, int32_t *node) {
    tni_token name = p->lex.token;
    double value;
    bool yes = tni_lex_is(&p->lex, "true"), truth = yes || tni_lex_is(&p->lex, "false");
    bool constant = take_constant(p, &value);
    if (!truth && tni_is_keyword(p->lex.text + name.at, name.length) && !tni_lex_is(&p->lex, "where")) {
        return tni_lex_expected(&p->lex, "a value, but '%.*s' is a word of the language%s", (int)name.length,
                                p->lex.text + name.at,
                                tni_lex_is(&p->lex, "if") ? "; a choice is written a if c else b" : "");
    }
    if (tni_at_lookup(p)) return tni_parse_lookup(p, node);
    TN_TRY(tni_parse_next(p));
    if (truth) *node = tni_const(p->g, TN_BOOL, yes);
    if (constant) *node = tni_const(p->g, TNI_TY_WEAK_FLOAT, value);
    if (truth || constant) {
        p->want_truth = false; /* the name that the condition begins with was this one */
        return tni_parse_made(p, *node);
    }
    if (!tni_parse_at(p, '(')) return tni_value_of(p, &name, node);
    p->brackets++;
    TN_TRY(tni_parse_next(p));
    return tni_parse_call(p, &name, node);
}

static tn_status parse_atom(tni_parser *p, int32_t *node) {
    const tni_token *token = &p->lex.token;
    if (token->kind == '(') return parse_brackets(p, node);
    if (token->kind == TNI_NAME) return parse_name(p, node);
    if (token->kind == TNI_STRING) {
        return tni_lex_fail(&p->lex, token->at - 1, "a string is compared with an attribute: mode == 'sum'");
    }
    if (token->kind == '[') return tni_fail_bracket(&p->lex, token->at);
    if (token->kind == '|') return tni_lex_fail(&p->lex, token->at, "an absolute value is written abs(x)");
    if (token->kind != TNI_INT && token->kind != TNI_FLOAT) {
        return tni_lex_expected(&p->lex, "a number, a name or '('");
    }
    *node = tni_const(p->g, token->kind == TNI_INT ? TNI_TY_WEAK_INT : TNI_TY_WEAK_FLOAT, token->number);
    TN_TRY(tni_parse_made(p, *node));
    return tni_parse_next(p);
}

/* ---- bits -------------------------------------------------------------------------------------------------------- */

/* Of integers every bit by itself; `logic` of truth values. */
static const struct bits {
    int token, level;
    tni_prim op, logic;
    const char *hint;
} bits[] = {
    {'|', 0, TNI_P_BIT_OR, TNI_P_OR, "'or' takes the truth of anything"},
    {'^', 1, TNI_P_BIT_XOR, TNI_P_NE, "a power is written a ** b"},
    {'&', 2, TNI_P_BIT_AND, TNI_P_AND, "'and' takes the truth of anything"},
    {TNI_TOKEN_LEFT, 3, TNI_P_SHIFT_LEFT, TNI_P_SHIFT_LEFT, "i64(x) makes one"},
    {TNI_TOKEN_RIGHT, 3, TNI_P_SHIFT_RIGHT, TNI_P_SHIFT_RIGHT, "i64(x) makes one"},
    {'~', 4, TNI_P_BIT_NOT, TNI_P_NOT, "'not' takes the truth of anything"},
};
enum { BITS = sizeof bits / sizeof bits[0], BIT_LEVELS = 4 };

/* A value of the type that the inputs of a formula without a signature have. `^` alone may be meant as a power. */
static void note_bits(const tni_parser *p, const struct bits *how, int32_t node) {
    const char *text = p->lex.text;
    bool power = how->token == '^' && !strpbrk(text, "&|~") && !strstr(text, "<<") && !strstr(text, ">>");
    if (!p->formula || p->typed || power || node < 0) return;
    p->formula->takes_bits |= p->g->nodes[node].type == TNI_TY_VAR;
}

static tn_status make_bits(tni_parser *p, const struct bits *how, int32_t at, int32_t a, int32_t b, int32_t *node) {
    tni_class of_a = tni_class_of(p->g, p->g->nodes[a].type);
    tni_class of_b = b >= 0 ? tni_class_of(p->g, p->g->nodes[b].type) : of_a;
    if (of_a > TNI_CLASS_INT || of_b > TNI_CLASS_INT) {
        note_bits(p, how, a);
        note_bits(p, how, b);
        bool either = (of_a > TNI_CLASS_INT ? of_a : of_b) == TNI_CLASS_ANY;
        return tni_lex_fail(&p->lex, at, "'%.*s' takes integers or truth values, and this %s a float; %s",
                            how->token >= TNI_END ? 2 : 1, p->lex.text + at, either ? "can be" : "is", how->hint);
    }
    bool truth = of_a == TNI_CLASS_BOOL && of_b == TNI_CLASS_BOOL;
    *node = tni_node3(p->g, truth ? how->logic : how->op, 0, a, b, -1);
    return tni_parse_made(p, *node);
}

static const struct bits *bits_at(const tni_parser *p, int level) {
    for (int i = 0; i < BITS; i++) {
        if (bits[i].level == level && tni_parse_at(p, bits[i].token)) return &bits[i];
    }
    return NULL;
}

/* ---- operators --------------------------------------------------------------------------------------------------- */

static tn_status parse_sign(tni_parser *p, int32_t *node);

static tn_status parse_power(tni_parser *p, int32_t *node) {
    int32_t right;
    TN_TRY(parse_atom(p, node));
    while (tni_parse_at(p, '[')) TN_TRY(tni_parse_subscript(p, node));
    if (!tni_parse_at(p, TNI_TOKEN_POWER)) return TN_OK;
    TN_TRY(enter(p));
    TN_TRY(pass_operator(p));
    TN_TRY(parse_sign(p, &right));
    p->depth--;
    *node = tni_node2(p->g, TNI_P_POW, *node, right);
    return tni_parse_made(p, *node);
}

static tn_status parse_sign(tni_parser *p, int32_t *node) {
    bool minus = tni_parse_at(p, '-'), negate = tni_parse_at(p, '!');
    const struct bits *invert = bits_at(p, BIT_LEVELS);
    int32_t at = p->lex.token.at;
    if (!minus && !invert && !negate && !tni_parse_at(p, '+')) return parse_power(p, node);
    TN_TRY(enter(p));
    TN_TRY(pass_operator(p));
    TN_TRY(parse_sign(p, node));
    p->depth--;
    if (invert) return make_bits(p, invert, at, *node, -1, node);
    if (minus || negate) *node = tni_node1(p->g, minus ? TNI_P_NEG : TNI_P_NOT, *node);
    return tni_parse_made(p, *node);
}

static tn_status parse_product(tni_parser *p, int32_t *node) {
    TN_TRY(parse_sign(p, node));
    for (;;) {
        int32_t right;
        int op = tni_parse_at(p, '*')   ? TNI_P_MUL
                 : tni_parse_at(p, '/') ? TNI_P_DIV
                 : tni_parse_at(p, '%') ? TNI_P_MOD
                                        : -1;
        if (op < 0) return TN_OK;
        TN_TRY(pass_operator(p));
        TN_TRY(parse_sign(p, &right));
        *node = tni_node2(p->g, (tni_prim)op, *node, right);
        TN_TRY(tni_parse_made(p, *node));
    }
}

static tn_status parse_sum(tni_parser *p, int32_t *node) {
    TN_TRY(parse_product(p, node));
    while (tni_parse_at(p, '+') || tni_parse_at(p, '-')) {
        int32_t right;
        tni_prim op = tni_parse_at(p, '+') ? TNI_P_ADD : TNI_P_SUB;
        TN_TRY(pass_operator(p));
        TN_TRY(parse_product(p, &right));
        *node = tni_node2(p->g, op, *node, right);
        TN_TRY(tni_parse_made(p, *node));
    }
    return TN_OK;
}

static tn_status parse_bits(tni_parser *p, int level, int32_t *node) {
    if (level == BIT_LEVELS) return parse_sum(p, node);
    TN_TRY(parse_bits(p, level + 1, node));
    for (;;) {
        int32_t right, at = p->lex.token.at;
        const struct bits *how = bits_at(p, level);
        if (!how) return TN_OK;
        TN_TRY(pass_operator(p));
        TN_TRY(parse_bits(p, level + 1, &right));
        TN_TRY(make_bits(p, how, at, *node, right, node));
    }
}

/* a > b is b < a: one primitive for both. */
static bool comparison_at(const tni_parser *p, tni_prim *op, bool *swapped) {
    static const struct {
        int token;
        tni_prim op;
        bool swapped;
    } comparisons[] = {{'<', TNI_P_LT, false},          {TNI_TOKEN_LE, TNI_P_LE, false},
                       {'>', TNI_P_LT, true},           {TNI_TOKEN_GE, TNI_P_LE, true},
                       {TNI_TOKEN_EQ, TNI_P_EQ, false}, {TNI_TOKEN_NE, TNI_P_NE, false}};
    for (size_t i = 0; i < sizeof comparisons / sizeof comparisons[0]; i++) {
        if (!tni_parse_at(p, comparisons[i].token)) continue;
        *op = comparisons[i].op;
        *swapped = comparisons[i].swapped;
        return true;
    }
    return false;
}

static tn_status parse_comparison(tni_parser *p, int32_t *node) {
    tni_prim op;
    bool swapped;
    int32_t right, at = p->lex.token.at;
    bool negates = tni_parse_at(p, '!');
    TN_TRY(parse_bits(p, 0, node));
    if (!comparison_at(p, &op, &swapped)) return TN_OK;
    if (negates) {
        return tni_lex_fail(&p->lex, at, "'!' could be of one side or of the comparison: write (!a) == b or !(a == b)");
    }
    TN_TRY(pass_operator(p));
    TN_TRY(parse_bits(p, 0, &right));
    *node = swapped ? tni_node2(p->g, op, right, *node) : tni_node2(p->g, op, *node, right);
    TN_TRY(tni_parse_made(p, *node));
    if (!comparison_at(p, &op, &swapped)) return TN_OK;
    return tni_lex_fail(&p->lex, p->lex.token.at, "comparisons do not chain; write a < b and b < c");
}

static tn_status parse_not(tni_parser *p, int32_t *node) {
    if (!tni_lex_is(&p->lex, "not")) return parse_comparison(p, node);
    TN_TRY(enter(p));
    TN_TRY(pass_operator(p));
    TN_TRY(parse_not(p, node));
    p->depth--;
    *node = tni_node1(p->g, TNI_P_NOT, *node);
    return tni_parse_made(p, *node);
}

static tn_status parse_and(tni_parser *p, int32_t *node) {
    TN_TRY(parse_not(p, node));
    while (tni_lex_is(&p->lex, "and")) {
        int32_t right;
        TN_TRY(pass_operator(p));
        TN_TRY(parse_not(p, &right));
        *node = tni_node2(p->g, TNI_P_AND, *node, right);
        TN_TRY(tni_parse_made(p, *node));
    }
    return TN_OK;
}

static tn_status parse_or(tni_parser *p, int32_t *node) {
    TN_TRY(parse_and(p, node));
    while (tni_lex_is(&p->lex, "or")) {
        int32_t right;
        TN_TRY(pass_operator(p));
        TN_TRY(parse_and(p, &right));
        *node = tni_node2(p->g, TNI_P_OR, *node, right);
        TN_TRY(tni_parse_made(p, *node));
    }
    return TN_OK;
}

tn_status tni_parse_condition(tni_parser *p, int32_t *node) {
    p->want_truth = tni_parse_at(p, TNI_NAME);
    tn_status status = parse_or(p, node);
    p->want_truth = false;
    return status;
}

tn_status tni_parse_expression(tni_parser *p, int32_t *node) {
    int32_t condition, other;
    TN_TRY(enter(p));
    TN_TRY(parse_or(p, node));
    if (tni_lex_is(&p->lex, "if")) {
        TN_TRY(pass_operator(p));
        TN_TRY(tni_parse_condition(p, &condition));
        if (!tni_lex_is(&p->lex, "else")) return tni_lex_expected(&p->lex, "'else' and the other value");
        TN_TRY(pass_operator(p));
        TN_TRY(tni_parse_expression(p, &other));
        *node = tni_node3(p->g, TNI_P_WHERE, 0, condition, *node, other);
        TN_TRY(tni_parse_made(p, *node));
    }
    p->depth--;
    return TN_OK;
}
