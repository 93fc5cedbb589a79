/* Gradient rules, carried out: the statements of a rule run on the tensors of a forward call. */
#ifndef CLI_CHECK_RULE_H
#define CLI_CHECK_RULE_H

#include "cli/mirror.h"
#include "core/table/grad_rule.h"

typedef struct backward {
    const made_call *forward;
    const tni_rule *rule;
    tni_bound *bound;            /* of the forward call: dimensions, packs, attributes */
    const array *dout;           /* (outputs) what arrives; count -1: nothing */
    array locals[TNI_MAX_ARGS];  /* count -1: not computed */
    array din[4 * TNI_MAX_ARGS]; /* (tensors of the forward call) gradients; count -1: none */
    const char *kernel;          /* for the operators that the rule calls, where they have one of that name */
    mirror *gpu;                 /* what they run on; NULL: the CPU */
} backward;

/* Runs the rule; afterwards din holds the gradients of all inputs that the rule names and the call has. */
tn_status backward_run(backward *b, const made_call *forward, const tni_rule *rule, const array *dout,
                       const char *kernel, mirror *gpu);
void backward_free(backward *b);

#endif
