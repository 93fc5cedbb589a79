/* Gradient rules: calls of other operators, and where each argument comes from. */
#ifndef TNI_GRAD_RULE_H
#define TNI_GRAD_RULE_H

#include "core/contract/contract.h"

typedef enum tni_source_kind {
    TNI_FROM_INPUT,
    TNI_FROM_OUTPUT,
    TNI_FROM_DOUTPUT,
    TNI_FROM_ATTR,
    TNI_FROM_DIM,
    TNI_FROM_PACK,
    TNI_FROM_LOCAL,
    TNI_FROM_LITERAL,
} tni_source_kind;

/* What a parameter of the called operator is given. */
typedef struct tni_source {
    tni_source_kind kind;
    int32_t ref; /* input, output, attribute, dimension, pack or local */
    tn_value literal;
    bool to_attr;  /* the parameter is an attribute of the called operator */
    int32_t param; /* which input or attribute of the called operator */
} tni_source;

typedef struct tni_statement {
    int32_t n_results;
    int32_t result_is_local;       /* 0: gradients of inputs results[]; 1: locals results[] */
    int32_t results[TNI_MAX_ARGS]; /* result k is output k of the called operator */
    const tn_function *op;         /* the called operator */
    int32_t n_sources;
    tni_source *sources; /* same-named attributes that pass along are written out here */
} tni_statement;

typedef struct tni_rule {
    int32_t n_locals, n_statements;
    const char **locals;
    tni_statement *statements;
    bool *differentiable;             /* (n_outputs of the operator): its d<output> occurs */
    const struct tn_function *called; /* that it has from tni_formulas, and is given back with it; NULL: none */
    bool stands_in;                   /* `~` in front: what it gives is not the derivative, and is meant not to be */
    void *arena;
} tni_rule;

/* Called operators are looked up with tn_find; messages name the operator and point at the character. */
tn_status tni_rule_parse(const tni_contract *contract, const char *text, tni_rule **rule);
/* The same, where the rule may also call `known`, which need not be in the table. */
tn_status tni_rule_parse_with(const tni_contract *contract, const char *text, const tn_function *known,
                              tni_rule **rule);
void tni_rule_free(tni_rule *rule);
void tni_rule_json(tni_text *text, const tni_contract *contract, const tni_rule *rule); /* a value */

#endif
