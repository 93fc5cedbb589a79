/* The grammar of a signature. Names are only noted here; contract_resolve.c finds what they stand for.
 *
 *   contract   name [< typevar, … >] ( param, … ) [-> output, …] [where expr, …]
 *   param      name : tensor [!][?]  |  name : attribute [?] [= value]
 *   output     name : tensor [? | ?grad]
 *   tensor     type shape  |  [ type shape ]
 *   shape      [ item, … ]  |  [ item, … if expr else item, … ]
 *   item       [~] * name  |  [~] expr  |  function ( * name, name, … )                                            */
#include <string.h>

#include "parts.h"

tn_status tni_draft_next(tni_draft *d) {
    return tni_lex_next(&d->lex);
}

bool tni_draft_at(const tni_draft *d, int kind) {
    return d->lex.token.kind == kind;
}

/* Takes the token where it is there. */
tn_status tni_draft_take(tni_draft *d, int kind, bool *taken) {
    *taken = tni_draft_at(d, kind);
    return *taken ? tni_draft_next(d) : TN_OK;
}

tn_status tni_draft_expect(tni_draft *d, int kind, const char *what) {
    return tni_draft_at(d, kind) ? tni_draft_next(d) : tni_lex_expected(&d->lex, "%s", what);
}

tn_status tni_draft_copy_token(tni_draft *d, const char **text) {
    *text = tni_arena_text(d->arena, d->lex.text + d->lex.token.at, (size_t)d->lex.token.length);
    return *text ? tni_draft_next(d) : TN_NO_MEMORY;
}

tn_status tni_draft_take_name(tni_draft *d, const char *what, tni_use *use) {
    const tni_token *token = &d->lex.token;
    if (token->kind != TNI_NAME) return tni_lex_expected(&d->lex, "%s", what);
    if (tni_is_keyword(d->lex.text + token->at, token->length)) {
        return tni_lex_fail(&d->lex, token->at, "expected %s, but '%.*s' is a word of the language", what,
                            (int)token->length, d->lex.text + token->at);
    }
    use->at = token->at;
    return tni_draft_copy_token(d, &use->name);
}

tn_type tni_draft_type_at(const tni_draft *d) {
    char name[TNI_MAX_NAME + 1] = "";
    if (!tni_draft_at(d, TNI_NAME)) return TN_NO_TYPE;
    memcpy(name, d->lex.text + d->lex.token.at, (size_t)d->lex.token.length);
    return tn_type_named(name);
}

/* ---- types ------------------------------------------------------------------------------------------------------- */

static tn_status parse_type(tni_draft *d, tni_draft_param *param) {
    tni_type *type = &param->param.type;
    *type = (tni_type){TNI_TYPE_FIXED, TNI_PLAIN, -1, 0};
    if (tni_draft_type_at(d) == TN_NO_TYPE) {
        TN_TRY(tni_draft_take_name(d, "a type", &param->type));
        bool acc = strcmp(param->type.name, "acc") == 0;
        if (!tni_draft_at(d, '(') || (!acc && strcmp(param->type.name, "complex") != 0)) return TN_OK;
        type->wrap = acc ? TNI_ACC : TNI_COMPLEX;
        TN_TRY(tni_draft_next(d));
        if (tni_draft_type_at(d) != TN_NO_TYPE) return tni_lex_expected(&d->lex, "a type variable, such as T");
        TN_TRY(tni_draft_take_name(d, "a type variable, such as T", &param->type));
        return tni_draft_expect(d, ')', "')' after the type");
    }
    for (bool more = true; more;) {
        tn_type one = tni_draft_type_at(d);
        if (one == TN_NO_TYPE) return tni_lex_expected(&d->lex, "the name of a type, such as i32, after '|'");
        if (type->mask & TN_BIT(one)) {
            return tni_lex_fail(&d->lex, d->lex.token.at, "%s is listed twice", tn_type_name(one));
        }
        type->mask |= TN_BIT(one);
        TN_TRY(tni_draft_next(d));
        TN_TRY(tni_draft_take(d, '|', &more));
    }
    return TN_OK;
}

/* `any`, `float`, `int` or names of types. */
static tn_status parse_type_set(tni_draft *d, tni_typevar *var) {
    static const struct {
        const char *name;
        uint32_t mask;
    } sets[] = {{"any", (1u << TN_TYPE_COUNT) - 2}, {"float", TN_FLOATS}, {"int", TN_INTS}};
    for (int i = 0; i < 3; i++) {
        if (tni_lex_is(&d->lex, sets[i].name)) {
            var->set = sets[i].name;
            var->mask = sets[i].mask;
            return tni_draft_next(d);
        }
    }
    tni_text names = {0};
    tn_status status = TN_OK;
    for (tn_type one; status == TN_OK && (one = tni_draft_type_at(d)) != TN_NO_TYPE;) {
        tni_text_add(&names, "%s%s", var->mask ? " " : "", tn_type_name(one));
        if (var->mask & TN_BIT(one)) {
            status = tni_lex_fail(&d->lex, d->lex.token.at, "%s is listed twice", tn_type_name(one));
        } else {
            var->mask |= TN_BIT(one);
            status = tni_draft_next(d);
        }
    }
    if (status == TN_OK && !var->mask) status = tni_lex_expected(&d->lex, "any, float, int or names of types");
    if (status == TN_OK) var->set = names.failed ? NULL : tni_arena_text(d->arena, names.data, names.length);
    if (status == TN_OK && !var->set) status = TN_NO_MEMORY;
    tni_free(names.data);
    return status;
}

static tn_status parse_type_variables(tni_draft *d) {
    tni_contract *c = d->contract;
    bool more;
    TN_TRY(tni_draft_take(d, '<', &more));
    if (!more) return TN_OK;
    while (more) {
        tni_use use;
        TN_TRY(tni_draft_take_name(d, "a type variable, such as T", &use));
        if (use.name[0] < 'A' || use.name[0] > 'Z') {
            return tni_lex_fail(&d->lex, use.at, "a type variable begins with a capital letter");
        }
        for (int i = 0; i < c->n_types; i++) {
            if (strcmp(c->types[i].name, use.name) == 0) {
                return tni_lex_fail(&d->lex, use.at, "type variable '%s' is declared twice", use.name);
            }
        }
        if (c->n_types == TNI_MAX_TYPES) {
            return tni_lex_fail(&d->lex, use.at, "more than %d type variables", TNI_MAX_TYPES);
        }
        tni_typevar *var = &c->types[c->n_types];
        *var = (tni_typevar){.name = use.name, .declared = true};
        d->types[c->n_types++] = use;
        TN_TRY(tni_draft_expect(d, ':', "':' and the types, as in <T: any>"));
        TN_TRY(parse_type_set(d, var));
        TN_TRY(tni_draft_take(d, ',', &more));
    }
    return tni_draft_expect(d, '>', "',' or '>' after the type variables");
}

/* ---- parameters -------------------------------------------------------------------------------------------------- */

/* A tensor or a list of them, up to its `!` and `?`. */
static tn_status parse_tensor(tni_draft *d, const tni_use *use, tni_draft_param *param) {
    *param = (tni_draft_param){.param = {.name = use->name, .want_attr = -1}, .at = use->at};
    TN_TRY(tni_draft_take(d, '[', &param->param.list));
    TN_TRY(parse_type(d, param));
    TN_TRY(tni_parse_shape(d, &param->param.shape));
    return param->param.list ? tni_draft_expect(d, ']', "']' after the element of a list") : TN_OK;
}

static tn_status parse_input(tni_draft *d, const tni_use *use) {
    tni_contract *c = d->contract;
    if (c->n_inputs == TNI_MAX_ARGS) return tni_lex_fail(&d->lex, use->at, "more than %d inputs", TNI_MAX_ARGS);
    tni_draft_param *param = &d->inputs[c->n_inputs];
    TN_TRY(parse_tensor(d, use, param));
    for (bool more = true; more;) {
        bool update, optional;
        int32_t begin = d->lex.token.at;
        TN_TRY(tni_draft_take(d, '!', &update));
        TN_TRY(tni_draft_take(d, '?', &optional));
        more = update || optional;
        if ((update && param->param.inplace) || (optional && param->param.optional)) {
            return tni_lex_fail(&d->lex, begin, "'%c' stands twice behind '%s'",
                                update && param->param.inplace ? '!' : '?', use->name);
        }
        param->param.inplace |= update;
        param->param.optional |= optional;
    }
    if (tni_lex_is(&d->lex, "grad")) {
        return tni_lex_fail(&d->lex, d->lex.token.at, "'?grad' is for outputs; an optional input has '?'");
    }
    if (tni_draft_at(d, '='))
        return tni_lex_fail(&d->lex, d->lex.token.at, "a tensor has no default; '?' makes it optional");
    d->order[c->n_order].is_attr = false;
    d->order[c->n_order++].index = c->n_inputs++;
    return TN_OK;
}

static tn_status parse_param(tni_draft *d) {
    tni_use use;
    tni_attr_kind kind;
    TN_TRY(tni_draft_take_name(d, "the name of a parameter", &use));
    if (!tni_draft_at(d, ':')) return tni_lex_expected(&d->lex, "':' after '%s'", use.name);
    TN_TRY(tni_draft_next(d));
    return tni_at_attribute(d, &kind) ? tni_parse_attribute(d, &use, kind) : parse_input(d, &use);
}

static tn_status parse_output(tni_draft *d) {
    tni_contract *c = d->contract;
    tni_use use;
    bool asked;
    TN_TRY(tni_draft_take_name(d, "the name of an output", &use));
    if (!tni_draft_at(d, ':')) return tni_lex_expected(&d->lex, "':' after '%s'", use.name);
    TN_TRY(tni_draft_next(d));
    if (c->n_outputs == TNI_MAX_ARGS) return tni_lex_fail(&d->lex, use.at, "more than %d outputs", TNI_MAX_ARGS);
    tni_draft_param *param = &d->outputs[c->n_outputs];
    TN_TRY(parse_tensor(d, &use, param));
    if (tni_draft_at(d, '!')) return tni_lex_fail(&d->lex, d->lex.token.at, "only inputs are updated in place");
    TN_TRY(tni_draft_take(d, '?', &asked));
    if (asked) param->param.want = tni_lex_is(&d->lex, "grad") ? TNI_GRAD : TNI_ASKED;
    if (param->param.want == TNI_GRAD) TN_TRY(tni_draft_next(d));
    c->n_outputs++;
    return TN_OK;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

/* `a and b` at the top are two conditions. */
static tn_status add_conditions(tni_draft *d, int32_t node) {
    if (d->nodes[node].kind == TNI_AND) { /* as deep as the expression: TNI_MAX_DEPTH */
        TN_TRY(add_conditions(d, d->nodes[node].left));
        return add_conditions(d, d->nodes[node].right);
    }
    d->conditions[d->contract->n_conditions++] = node; /* each has a node of its own, so there is room */
    return TN_OK;
}

static tn_status parse_where(tni_draft *d) {
    bool more = tni_lex_is(&d->lex, "where");
    if (more) TN_TRY(tni_draft_next(d));
    while (more) {
        int32_t node;
        TN_TRY(tni_parse_nested(d, 1, &node));
        TN_TRY(add_conditions(d, node));
        TN_TRY(tni_draft_take(d, ',', &more));
    }
    return TN_OK;
}

static tn_status parse_contract(tni_draft *d) {
    tni_contract *c = d->contract;
    tni_use use;
    bool more;
    TN_TRY(tni_draft_take_name(d, "the operator's name", &use));
    c->name = use.name;
    memcpy(d->lex.name, use.name, strlen(use.name) + 1);
    TN_TRY(parse_type_variables(d));
    TN_TRY(tni_draft_expect(d, '(', "'(' after the operator's name"));
    for (more = !tni_draft_at(d, ')'); more;) {
        TN_TRY(parse_param(d));
        if (!tni_draft_at(d, ',') && !tni_draft_at(d, ')'))
            return tni_lex_expected(&d->lex, "',' or ')' after a parameter");
        TN_TRY(tni_draft_take(d, ',', &more));
    }
    TN_TRY(tni_draft_expect(d, ')', "')' after the parameters"));
    TN_TRY(tni_draft_take(d, TNI_ARROW, &more));
    while (more) {
        TN_TRY(parse_output(d));
        TN_TRY(tni_draft_take(d, ',', &more));
    }
    TN_TRY(parse_where(d));
    if (!tni_draft_at(d, TNI_END)) return tni_lex_expected(&d->lex, c->n_outputs ? "the end" : "'->' and the outputs");
    return tni_draft_resolve(d);
}

tn_status tni_contract_parse(const char *signature, tni_contract **contract) {
    *contract = NULL;
    tni_draft *draft = tni_malloc(sizeof *draft);
    if (!draft) return TN_NO_MEMORY;
    tn_status status = TN_NO_MEMORY;
    draft->depth = 0;
    draft->arena = tni_arena_new();
    draft->contract = draft->arena ? tni_arena_alloc(draft->arena, sizeof *draft->contract) : NULL;
    if (draft->contract) {
        draft->contract->arena = draft->arena;
        status = tni_lex_begin(&draft->lex, "contract", "", signature);
        if (status == TN_OK) status = parse_contract(draft);
    }
    if (status == TN_OK) {
        *contract = draft->contract;
    } else {
        tni_arena_free(draft->arena);
    }
    tni_free(draft);
    return status;
}

void tni_contract_free(tni_contract *contract) {
    if (contract) tni_arena_free(contract->arena);
}

bool tni_is_seed(const tni_contract *c, int32_t input) {
    const tni_param *param = &c->inputs[input];
    const tni_item *item = &c->items[param->shape.first];
    return param->type.kind == TNI_TYPE_FIXED && param->type.mask == TN_BIT(TN_I64) && param->shape.cond < 0 &&
           param->shape.count == 1 && item->kind == TNI_ITEM_EXPR && c->nodes[item->node].kind == TNI_LIT_INT &&
           c->nodes[item->node].value == 2;
}
