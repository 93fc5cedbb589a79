/* Gradient rules. `x, gamma: layer_norm_grad(x, gamma, mean, rstd, dy); t = …` becomes a list of calls whose arguments
 * say where each comes from, with attributes that pass along by name written out. */
#include <stdio.h>
#include <string.h>

#include "core/contract/parts.h"
#include "table.h"

enum { MOST_STATEMENTS = 32 };

typedef struct builder {
    tni_lexer lex;
    const tni_contract *c;
    const tn_function *known; /* NULL: none */
    tni_arena *arena;
    tni_rule *rule;
    tni_statement statements[MOST_STATEMENTS];
    tni_use locals[TNI_MAX_ARGS];
    bool local_list[TNI_MAX_ARGS]; /* it is a list of tensors */
    bool has_grad[TNI_MAX_ARGS];   /* of input i */
} builder;

/* The call being parsed. */
typedef struct call {
    const tni_contract *c; /* of the called operator */
    tni_source sources[2 * TNI_MAX_ARGS];
    int32_t n_sources, n_positional;
    bool named;
    bool input_given[TNI_MAX_ARGS], attr_given[TNI_MAX_ARGS];
} call;

/* A value as written. */
typedef struct argument {
    int32_t at;
    bool star;                   /* *s */
    char name[TNI_MAX_NAME + 1]; /* "": a literal */
    tn_value literal;
} argument;

static tn_status expect(builder *b, int kind, const char *what) {
    return b->lex.token.kind == kind ? tni_lex_next(&b->lex) : tni_lex_expected(&b->lex, "%s", what);
}

static tn_status take_name(builder *b, const char *what, tni_use *use) {
    const tni_token *token = &b->lex.token;
    if (token->kind != TNI_NAME || tni_is_keyword(b->lex.text + token->at, token->length)) {
        return tni_lex_expected(&b->lex, "%s", what);
    }
    use->at = token->at;
    use->name = tni_arena_text(b->arena, b->lex.text + token->at, (size_t)token->length);
    return use->name ? tni_lex_next(&b->lex) : TN_NO_MEMORY;
}

static int32_t find_name(const char *const *names, int32_t count, const char *name) {
    for (int i = 0; i < count; i++) {
        if (strcmp(names[i], name) == 0) return i;
    }
    return -1;
}

static int32_t find_local(const builder *b, const char *name) {
    for (int i = 0; i < b->rule->n_locals; i++) {
        if (strcmp(b->locals[i].name, name) == 0) return i;
    }
    return -1;
}

/* The output whose gradient is called `name`, -1: none. */
static int32_t find_doutput(const builder *b, const char *name) {
    return name[0] == 'd' ? tni_output_named(b->c, name + 1) : -1;
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

static tn_status parse_ints(builder *b, tn_value *value) {
    int64_t ints[TNI_MAX_INTS];
    int32_t n = 0;
    TN_TRY(tni_lex_next(&b->lex));
    for (bool more = b->lex.token.kind != ']'; more;) {
        bool negative = b->lex.token.kind == '-';
        if (negative) TN_TRY(tni_lex_next(&b->lex));
        if (b->lex.token.kind != TNI_INT || n == TNI_MAX_INTS) {
            return tni_lex_expected(&b->lex, "an integer, of at most %d", TNI_MAX_INTS);
        }
        ints[n++] = negative ? -b->lex.token.value : b->lex.token.value;
        TN_TRY(tni_lex_next(&b->lex));
        more = b->lex.token.kind == ',';
        if (more) TN_TRY(tni_lex_next(&b->lex));
    }
    int64_t *kept = tni_arena_alloc(b->arena, (size_t)n * sizeof *ints);
    if (!kept) return TN_NO_MEMORY;
    memcpy(kept, ints, (size_t)n * sizeof *ints);
    *value = (tn_value){.kind = TN_ATTR_INTS, .count = n, .ints = kept};
    return expect(b, ']', "',' or ']' in a list");
}

static tn_status parse_number(builder *b, tn_value *value) {
    bool negative = b->lex.token.kind == '-';
    if (negative) TN_TRY(tni_lex_next(&b->lex));
    const tni_token *token = &b->lex.token;
    if (token->kind == TNI_INT) {
        *value = (tn_value){.kind = TN_ATTR_INT, .i = negative ? -token->value : token->value};
    } else if (token->kind == TNI_FLOAT || tni_lex_is(&b->lex, "inf")) {
        double number = token->kind == TNI_FLOAT ? token->number : __builtin_inf();
        *value = (tn_value){.kind = TN_ATTR_FLOAT, .f = negative ? -number : number};
    } else {
        return tni_lex_expected(&b->lex, "a name or a value");
    }
    return tni_lex_next(&b->lex);
}

static tn_status parse_value(builder *b, argument *arg) {
    const tni_token *token = &b->lex.token;
    *arg = (argument){.at = token->at, .star = token->kind == '*'};
    if (arg->star) TN_TRY(tni_lex_next(&b->lex));
    if (token->kind == TNI_STRING) {
        char *text = tni_arena_text(b->arena, b->lex.text + token->at, (size_t)token->length);
        if (!text) return TN_NO_MEMORY;
        arg->literal = (tn_value){.kind = TN_ATTR_STR, .s = text};
        return tni_lex_next(&b->lex);
    }
    if (token->kind == '[') return parse_ints(b, &arg->literal);
    bool yes = tni_lex_is(&b->lex, "true");
    if (yes || tni_lex_is(&b->lex, "false")) {
        arg->literal = (tn_value){.kind = TN_ATTR_BOOL, .b = yes};
        return tni_lex_next(&b->lex);
    }
    if (token->kind != TNI_NAME || tni_lex_is(&b->lex, "inf")) return parse_number(b, &arg->literal);
    memcpy(arg->name, b->lex.text + token->at, (size_t)token->length);
    return tni_lex_next(&b->lex);
}

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

/* Inputs come before outputs, so an input `dy` is that and not the gradient of an output y. */
static bool find_tensor(const builder *b, const char *name, tni_source *source, bool *list) {
    const struct {
        tni_source_kind kind;
        int32_t ref;
    } found[] = {{TNI_FROM_INPUT, tni_input_named(b->c, name)},
                 {TNI_FROM_LOCAL, find_local(b, name)},
                 {TNI_FROM_OUTPUT, tni_output_named(b->c, name)},
                 {TNI_FROM_DOUTPUT, find_doutput(b, name)}};
    for (int i = 0; i < 4; i++) {
        if (found[i].ref < 0) continue;
        source->kind = found[i].kind;
        source->ref = found[i].ref;
        *list = i == 0   ? b->c->inputs[found[i].ref].list
                : i == 1 ? b->local_list[found[i].ref]
                         : b->c->outputs[found[i].ref].list;
        return true;
    }
    return false;
}

static tn_status give_tensor(builder *b, call *to, int32_t param, const argument *arg, tni_source *source) {
    const tni_param *input = &to->c->inputs[param];
    bool list = false, found = arg->name[0] && !arg->star && find_tensor(b, arg->name, source, &list);
    if (!found && !arg->name[0]) {
        return tni_lex_fail(&b->lex, arg->at, "%s of %s is a tensor, not a value", input->name, to->c->name);
    }
    if (!found &&
        (arg->star || tni_attr_named(b->c, arg->name) >= 0 || find_name(b->c->dims, b->c->n_dims, arg->name) >= 0)) {
        return tni_lex_fail(&b->lex, arg->at, "%s of %s is a tensor, but '%s' is none", input->name, to->c->name,
                            arg->name);
    }
    if (!found) {
        return tni_lex_fail(&b->lex, arg->at, "'%s' is no input, output, gradient of an output or earlier result",
                            arg->name);
    }
    if (list != input->list) {
        return tni_lex_fail(&b->lex, arg->at, "'%s' is %s, but %s of %s is %s", arg->name,
                            list ? "a list of tensors" : "one tensor", input->name, to->c->name,
                            list ? "one tensor" : "a list");
    }
    if (source->kind == TNI_FROM_DOUTPUT) b->rule->differentiable[source->ref] = true;
    return TN_OK;
}

/* ---- attributes -------------------------------------------------------------------------------------------------- */

static bool is_choice_of(const tni_attr *attr, const char *text) {
    return find_name(attr->choices, attr->n_choices, text) >= 0;
}

/* Can every value of one attribute be a value of the other? */
static bool fits(const tni_attr *from, const tni_attr *to) {
    if (from->optional && !to->optional && !to->has_default) return false;
    switch (to->kind) {
    case TNI_A_FLOAT: return from->kind == TNI_A_FLOAT || from->kind == TNI_A_INT;
    case TNI_A_INT: return from->kind == TNI_A_INT || from->kind == TNI_A_AXIS;
    case TNI_A_INTS:
        if (from->kind == TNI_A_AXES) return to->length < 0;
        return from->kind == TNI_A_INTS && (to->length < 0 || to->length == from->length);
    case TNI_A_STR: return from->kind == TNI_A_STR || from->kind == TNI_A_CHOICE || from->kind == TNI_A_ACTIVATION;
    case TNI_A_ACTIVATION: return from->kind == TNI_A_ACTIVATION || from->kind == TNI_A_CHOICE;
    case TNI_A_CHOICE:
        if (from->kind != TNI_A_CHOICE) return false;
        for (int i = 0; i < from->n_choices; i++) {
            if (!is_choice_of(to, from->choices[i])) return false;
        }
        return true;
    default: return from->kind == to->kind;
    }
}

static tn_status does_not_fit(builder *b, const call *to, const tni_attr *attr, const argument *arg) {
    tni_text need = {0};
    tni_print_attr_kind(&need, attr);
    tn_status status = need.failed ? TN_NO_MEMORY
                                   : tni_lex_fail(&b->lex, arg->at, "%s of %s needs %s, which '%s' is not", attr->name,
                                                  to->c->name, need.data, arg->name);
    tni_free(need.data);
    return status;
}

/* *s: a pack, or an ints attribute written as a shape. */
static bool find_shape(const builder *b, const char *name, tni_source *source) {
    int32_t attr = tni_attr_named(b->c, name), pack = find_name(b->c->packs, b->c->n_packs, name);
    source->kind = pack >= 0 ? TNI_FROM_PACK : TNI_FROM_ATTR;
    source->ref = pack >= 0 ? pack : attr;
    return pack >= 0 || (attr >= 0 && b->c->attrs[attr].kind == TNI_A_INTS);
}

static tn_status give_literal(builder *b, call *to, const tni_attr *attr, const argument *arg, tni_source *source) {
    source->kind = TNI_FROM_LITERAL;
    tn_status status = tni_attr_accept(to->c->name, attr, &arg->literal, &source->literal);
    return status == TN_OK || status == TN_NO_MEMORY ? status : tni_lex_fail(&b->lex, arg->at, "%s", tn_last_error());
}

static tn_status give_attr(builder *b, call *to, int32_t param, argument *arg, tni_source *source) {
    const tni_attr *attr = &to->c->attrs[param];
    if (!arg->name[0]) return give_literal(b, to, attr, arg, source);
    if (arg->star) {
        if (!find_shape(b, arg->name, source)) {
            return tni_lex_fail(&b->lex, arg->at, "there is no '*%s' in %s", arg->name, b->c->name);
        }
        return attr->kind == TNI_A_INTS ? TN_OK : does_not_fit(b, to, attr, arg);
    }
    source->ref = tni_attr_named(b->c, arg->name);
    if (source->ref >= 0) {
        source->kind = TNI_FROM_ATTR;
        return fits(&b->c->attrs[source->ref], attr) ? TN_OK : does_not_fit(b, to, attr, arg);
    }
    source->ref = find_name(b->c->dims, b->c->n_dims, arg->name);
    if (source->ref >= 0) {
        source->kind = TNI_FROM_DIM;
        bool number = attr->kind == TNI_A_INT || attr->kind == TNI_A_FLOAT;
        return number ? TN_OK : does_not_fit(b, to, attr, arg);
    }
    tn_type type = tn_type_named(arg->name);
    if (attr->kind == TNI_A_DTYPE && type != TN_NO_TYPE) {
        arg->literal = (tn_value){.kind = TN_ATTR_TYPE, .type = type};
        return give_literal(b, to, attr, arg, source);
    }
    bool list;
    if (find_tensor(b, arg->name, source, &list)) return does_not_fit(b, to, attr, arg);
    return tni_lex_fail(&b->lex, arg->at, "'%s' is no attribute or dimension of %s%s", arg->name, b->c->name,
                        find_name(b->c->packs, b->c->n_packs, arg->name) >= 0 ? "; a shape is written with '*'" : "");
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

static tn_status give(builder *b, call *to, bool to_attr, int32_t param, argument *arg) {
    bool *given = to_attr ? &to->attr_given[param] : &to->input_given[param];
    const char *name = to_attr ? to->c->attrs[param].name : to->c->inputs[param].name;
    if (*given) return tni_lex_fail(&b->lex, arg->at, "%s of %s is given twice", name, to->c->name);
    *given = true;
    tni_source *source = &to->sources[to->n_sources];
    *source = (tni_source){.ref = -1, .to_attr = to_attr, .param = param};
    TN_TRY(to_attr ? give_attr(b, to, param, arg, source) : give_tensor(b, to, param, arg, source));
    to->n_sources++;
    return TN_OK;
}

/* Is `name =` next? */
static bool at_named(builder *b) {
    if (b->lex.token.kind != TNI_NAME) return false;
    tni_token token = b->lex.token;
    bool named = tni_lex_next(&b->lex) == TN_OK && b->lex.token.kind == '=';
    b->lex.token = token;
    return named;
}

static tn_status parse_named(builder *b, call *to) {
    tni_use use;
    argument arg;
    TN_TRY(take_name(b, "a parameter", &use));
    TN_TRY(tni_lex_next(&b->lex));
    int32_t input = tni_input_named(to->c, use.name), attr = tni_attr_named(to->c, use.name);
    if (input < 0 && attr < 0) {
        return tni_lex_fail(&b->lex, use.at, "%s has no parameter '%s'", to->c->name, use.name);
    }
    TN_TRY(parse_value(b, &arg));
    to->named = true;
    return give(b, to, input < 0, input < 0 ? attr : input, &arg);
}

static tn_status parse_positional(builder *b, call *to) {
    argument arg;
    int32_t at = b->lex.token.at, k = to->n_positional++;
    if (to->named) return tni_lex_fail(&b->lex, at, "arguments without a name come first");
    if (k >= to->c->n_order) {
        return tni_lex_fail(&b->lex, at, "%s has only %d parameters", to->c->name, to->c->n_order);
    }
    TN_TRY(parse_value(b, &arg));
    return give(b, to, to->c->order[k].is_attr, to->c->order[k].index, &arg);
}

/* Attributes of the same name go along; what is required has to be there. */
static tn_status complete(builder *b, call *to, int32_t at) {
    for (int i = 0; i < to->c->n_attrs; i++) {
        const tni_attr *attr = &to->c->attrs[i];
        int32_t own = tni_attr_named(b->c, attr->name);
        if (to->attr_given[i] || attr->implied) continue;
        if (own >= 0 && !b->c->attrs[own].implied) {
            argument arg = {.at = at};
            snprintf(arg.name, sizeof arg.name, "%s", attr->name);
            TN_TRY(give(b, to, true, i, &arg));
        } else if (!attr->has_default && !attr->optional) {
            return tni_lex_fail(&b->lex, at, "%s needs %s", to->c->name, attr->name);
        }
    }
    for (int i = 0; i < to->c->n_inputs; i++) {
        if (!to->input_given[i] && !to->c->inputs[i].optional) {
            return tni_lex_fail(&b->lex, at, "%s needs %s", to->c->name, to->c->inputs[i].name);
        }
    }
    return TN_OK;
}

static tn_status parse_arguments(builder *b, call *to, int32_t at) {
    TN_TRY(expect(b, '(', "'(' after the operator's name"));
    for (bool more = b->lex.token.kind != ')'; more;) {
        TN_TRY(at_named(b) ? parse_named(b, to) : parse_positional(b, to));
        more = b->lex.token.kind == ',';
        if (more) TN_TRY(tni_lex_next(&b->lex));
    }
    TN_TRY(expect(b, ')', "',' or ')' after an argument"));
    return complete(b, to, at);
}

static tn_status parse_call(builder *b, tni_statement *statement) {
    tni_use use;
    TN_TRY(take_name(b, "the name of an operator", &use));
    bool known = b->known && strcmp(b->known->contract->name, use.name) == 0;
    statement->op = known ? b->known : tn_find(use.name);
    if (!statement->op) return tni_lex_fail(&b->lex, use.at, "%s", tn_last_error());
    call *to = tni_calloc(1, sizeof *to);
    if (!to) return TN_NO_MEMORY;
    to->c = statement->op->contract;
    tn_status status = parse_arguments(b, to, use.at);
    if (status == TN_OK) {
        size_t bytes = (size_t)to->n_sources * sizeof *to->sources;
        statement->n_sources = to->n_sources;
        statement->sources = tni_arena_alloc(b->arena, bytes);
        if (statement->sources) {
            memcpy(statement->sources, to->sources, bytes);
        } else {
            status = TN_NO_MEMORY;
        }
    }
    tni_free(to);
    return status;
}

/* ---- statements -------------------------------------------------------------------------------------------------- */

static bool has_gradient(const tni_contract *c, const tni_type *type) {
    uint32_t mask = type->kind == TNI_TYPE_FIXED ? type->mask
                    : type->kind == TNI_TYPE_VAR ? c->types[type->ref].mask
                                                 : ~0u;
    return mask & (TN_FLOATS | TN_BIT(TN_C64) | TN_BIT(TN_C128) | TN_BIT(TN_E4M3) | TN_BIT(TN_E5M2));
}

static tn_status add_gradient(builder *b, const tni_use *use, const tni_param *output, int32_t *result) {
    int32_t input = tni_input_named(b->c, use->name);
    *result = input;
    if (input < 0) return tni_lex_fail(&b->lex, use->at, "%s has no input '%s'", b->c->name, use->name);
    if (b->has_grad[input]) return tni_lex_fail(&b->lex, use->at, "the gradient of '%s' is given twice", use->name);
    if (!has_gradient(b->c, &b->c->inputs[input].type)) {
        return tni_lex_fail(&b->lex, use->at, "'%s' is not of a floating type, so it has no gradient", use->name);
    }
    if (b->c->inputs[input].list != output->list) {
        return tni_lex_fail(&b->lex, use->at, "only one of '%s' and %s is a list", use->name, output->name);
    }
    b->has_grad[input] = true;
    return TN_OK;
}

static tn_status add_local(builder *b, const tni_use *use, const tni_param *output, int32_t *result) {
    tni_source source;
    bool list;
    if (find_tensor(b, use->name, &source, &list) || tni_attr_named(b->c, use->name) >= 0) {
        return tni_lex_fail(&b->lex, use->at, "'%s' is the name of something else already", use->name);
    }
    if (b->rule->n_locals == TNI_MAX_ARGS) {
        return tni_lex_fail(&b->lex, use->at, "more than %d results with names of their own", TNI_MAX_ARGS);
    }
    *result = b->rule->n_locals;
    b->local_list[*result] = output->list;
    b->locals[b->rule->n_locals++] = *use;
    return TN_OK;
}

static tn_status parse_statement(builder *b, tni_statement *statement) {
    tni_use names[TNI_MAX_ARGS];
    int32_t n = 0;
    for (bool more = true; more;) {
        if (n == TNI_MAX_ARGS) return tni_lex_expected(&b->lex, "at most %d results", TNI_MAX_ARGS);
        TN_TRY(take_name(b, "the name of an input whose gradient this is, or of a result", &names[n++]));
        more = b->lex.token.kind == ',';
        if (more) TN_TRY(tni_lex_next(&b->lex));
    }
    bool local = b->lex.token.kind == '=';
    if (!local && b->lex.token.kind != ':')
        return tni_lex_expected(&b->lex, "':' or '=' after '%s'", names[n - 1].name);
    TN_TRY(tni_lex_next(&b->lex));
    *statement = (tni_statement){.n_results = n, .result_is_local = local};
    TN_TRY(parse_call(b, statement));
    const tni_contract *called = statement->op->contract;
    for (int i = 0; i < n; i++) {
        if (i >= called->n_outputs) {
            return tni_lex_fail(&b->lex, names[i].at, "%s has only %d outputs", called->name, called->n_outputs);
        }
        TN_TRY(local ? add_local(b, &names[i], &called->outputs[i], &statement->results[i])
                     : add_gradient(b, &names[i], &called->outputs[i], &statement->results[i]));
    }
    return TN_OK;
}

static tn_status check_flow(builder *b) {
    bool any = false;
    for (int i = 0; i < b->c->n_outputs; i++) any |= b->rule->differentiable[i];
    if (!any) return tni_lex_fail(&b->lex, 0, "no d<output> occurs, so nothing flows back");
    any = false;
    for (int i = 0; i < b->c->n_inputs; i++) any |= b->has_grad[i];
    return any ? TN_OK : tni_lex_fail(&b->lex, 0, "no input gets a gradient");
}

static tn_status parse_rule(builder *b, const char *text) {
    tni_rule *rule = b->rule;
    TN_TRY(tni_lex_begin(&b->lex, "gradient rule", b->c->name, text));
    rule->stands_in = b->lex.token.kind == '~';
    if (rule->stands_in) TN_TRY(tni_lex_next(&b->lex));
    for (bool more = true; more;) {
        if (rule->n_statements == MOST_STATEMENTS) {
            return tni_lex_expected(&b->lex, "at most %d statements", MOST_STATEMENTS);
        }
        TN_TRY(parse_statement(b, &b->statements[rule->n_statements]));
        rule->n_statements++;
        if (b->lex.token.kind != TNI_END) TN_TRY(expect(b, ';', "';' between statements"));
        more = b->lex.token.kind != TNI_END;
    }
    TN_TRY(check_flow(b));
    size_t bytes = (size_t)rule->n_statements * sizeof *rule->statements;
    rule->statements = tni_arena_alloc(b->arena, bytes);
    rule->locals = tni_arena_alloc(b->arena, (size_t)rule->n_locals * sizeof *rule->locals);
    if (!rule->statements || !rule->locals) return TN_NO_MEMORY;
    memcpy(rule->statements, b->statements, bytes);
    for (int i = 0; i < rule->n_locals; i++) rule->locals[i] = b->locals[i].name;
    return TN_OK;
}

tn_status tni_rule_parse(const tni_contract *contract, const char *text, tni_rule **rule) {
    return tni_rule_parse_with(contract, text, NULL, rule);
}

tn_status tni_rule_parse_with(const tni_contract *contract, const char *text, const tn_function *known,
                              tni_rule **rule) {
    *rule = NULL;
    builder *b = tni_calloc(1, sizeof *b);
    if (!b) return TN_NO_MEMORY;
    tn_status status = TN_NO_MEMORY;
    b->c = contract;
    b->known = known;
    b->arena = tni_arena_new();
    b->rule = b->arena ? tni_arena_alloc(b->arena, sizeof *b->rule) : NULL;
    if (b->rule) {
        b->rule->arena = b->arena;
        b->rule->differentiable = tni_arena_alloc(b->arena, (size_t)contract->n_outputs * sizeof(bool));
        if (b->rule->differentiable) status = parse_rule(b, text);
    }
    if (status == TN_OK) {
        *rule = b->rule;
    } else {
        tni_arena_free(b->arena);
    }
    tni_free(b);
    return status;
}

void tni_rule_free(tni_rule *rule) {
    if (rule) tni_arena_free(rule->arena);
}
