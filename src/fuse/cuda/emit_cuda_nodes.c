/* What is computed: an expression for each node, or for several that are one operation together. */
#include <math.h>
#include <stdio.h>

#include "gpu.h"

static int count_uses(const tni_gpu_part *part, int32_t node) {
    int uses = 0;
    for (int32_t i = 0; i < part->p->g->n; i++) {
        const tni_gnode *n = tni_gpu_node_of(part, i);
        for (int k = 0; k < 3 && part->needed[i] && n->arg[k] >= 0; k++)
            uses += tni_resolve(part->p->b, n->arg[k]) == node;
    }
    return uses;
}

/* Is everything inside of a form made here? What is kept for later stages has its own value there, and not what it was
 * made of. A gate that others need too is computed once for all of them. */
static bool is_inside(const tni_gpu_part *part, const tni_form *form) {
    for (int k = 0; k < form->n_inside; k++) {
        if (part->p->memory_of[form->inside[k]] >= 0 || part->saved[form->inside[k]]) return false;
    }
    return form->op != TNI_P_TIMES_SIGMOID || count_uses(part, form->inside[0]) == 1;
}

/* What takes fewer instructions, and is more accurate, at once than one after the other. */
static bool print_form(const tni_gpu_part *part, int32_t node) {
    for (int k = 0; k < 2; k++) {
        const tni_form *form = &part->p->b->lowered[node].forms[k];
        if (!form->n_inside || !is_inside(part, form)) continue;
        tni_emit_form(part->text, part->p, form, tni_gpu_lane_of(part, node));
        return true;
    }
    return false;
}

/* The product that a node is; -1: it is none, or there in memory. */
static int32_t product_at(const tni_gpu_part *part, int32_t node, int lane) {
    node = tni_resolve(part->p->b, node);
    const tni_gnode *n = tni_gpu_node_of(part, node);
    bool real = lane == TNI_LANE_F32 || lane == TNI_LANE_F64;
    return real && n->op == TNI_P_MUL && part->p->memory_of[node] < 0 && tni_gpu_lane_of(part, node) == lane ? node
                                                                                                             : -1;
}

int32_t tni_gpu_product_of(const tni_gpu_part *part, int32_t sum) {
    int32_t product = part->p->b->lowered[sum].product;
    return product >= 0 && part->p->memory_of[product] < 0 ? product : -1;
}

void tni_gpu_factors(const tni_gpu_part *part, int32_t product, int lane) {
    tni_emit_value(part->text, part->p, tni_gpu_node_of(part, product)->arg[0], lane);
    tni_text_add(part->text, ", ");
    tni_emit_value(part->text, part->p, tni_gpu_node_of(part, product)->arg[1], lane);
}

/* name(a, b) of a node's two arguments. */
static void print_call(const tni_gpu_part *part, const char *name, int32_t node) {
    tni_text_add(part->text, "%s(", name);
    tni_gpu_factors(part, node, tni_gpu_lane_of(part, node));
    tni_text_add(part->text, ")");
}

/* Results of 16 bits need no exact division: elements are multiplied by the inverse. A row's divisor is inverted once
 * for the row, and the quotient corrected where it must be exact. Beside reductions dividing is faster. */
static bool print_quotient(const tni_gpu_part *part, int32_t node) {
    const tni_gnode *n = tni_gpu_node_of(part, node);
    int lane = tni_gpu_lane_of(part, node);
    if (n->op != TNI_P_DIV || lane != TNI_LANE_F32 || part->p->level[node] != TNI_ELEMENT) return false;
    int32_t divisor = tni_resolve(part->p->b, n->arg[1]);
    const tni_gnode *by = tni_gpu_node_of(part, divisor);
    float inverse = (float)(1 / by->value);
    bool coarse = part->coarse || part->p->g->fast, number = by->op == TNI_P_CONST && by->ref < 0;
    if (!number && part->p->level[divisor] == TNI_ELEMENT) {
        if (coarse) print_call(part, "tn_quick", node);
        return coarse;
    }
    if (!coarse) {
        if (!part->reduces) print_call(part, "tn_over", node);
        return !part->reduces;
    }
    if (number && isnormal((float)by->value) && isnormal(inverse)) {
        tni_emit_value(part->text, part->p, n->arg[0], lane);
        tni_text_add(part->text, " * (f32)");
        tni_text_hex(part->text, (double)inverse);
    } else {
        tni_emit_value(part->text, part->p, n->arg[0], lane);
        tni_text_add(part->text, " * (1 / ");
        tni_emit_value(part->text, part->p, n->arg[1], lane);
        tni_text_add(part->text, ")");
    }
    return true;
}

/* A product and a sum in one instruction. Compilers would do that too, but not in both variants alike. */
static bool print_fused(const tni_gpu_part *part, int32_t node) {
    const tni_gnode *n = tni_gpu_node_of(part, node);
    int lane = tni_gpu_lane_of(part, node);
    if (n->op != TNI_P_ADD && n->op != TNI_P_SUB) return false;
    for (int k = 0; k < 2; k++) {
        int32_t product = product_at(part, n->arg[k], lane);
        if (product < 0) continue;
        tni_text_add(part->text, n->op == TNI_P_SUB && k == 1 ? "tn_fma(-" : "tn_fma(");
        tni_gpu_factors(part, product, lane);
        tni_text_add(part->text, n->op == TNI_P_SUB && k == 0 ? ", -(" : ", (");
        tni_emit_value(part->text, part->p, n->arg[1 - k], lane);
        tni_text_add(part->text, "))");
        return true;
    }
    return false;
}

/* Is the argument of a logarithm as it lies in memory in bf16? Then it is 1 or well apart from it. */
static bool is_far_from_1(const tni_gpu_part *part, int32_t node) {
    int32_t of = tni_resolve(part->p->b, tni_gpu_node_of(part, node)->arg[0]);
    return part->p->memory_of[of] >= 0 && tni_gpu_type_of(part, of) == TN_BF16;
}

static void print_operation(const tni_gpu_part *part, int32_t node) {
    if (print_form(part, node) || print_quotient(part, node) || print_fused(part, node)) return;
    const tni_gnode *n = tni_gpu_node_of(part, node);
    bool apart = n->op == TNI_P_LOG && tni_gpu_lane_of(part, node) == TNI_LANE_F32 && is_far_from_1(part, node);
    if (apart) {
        tni_text_add(part->text, "tn_log_apart(");
        tni_emit_value(part->text, part->p, n->arg[0], tni_gpu_lane_of(part, node));
        tni_text_add(part->text, ")");
    } else {
        tni_emit_operation(part->text, part->p, node);
    }
}

/* From what was loaded to the lane: truth values are 0 and 1. */
void tni_gpu_loaded(const tni_gpu_part *part, int32_t node, const char *what) {
    int lane = tni_gpu_lane_of(part, node);
    tni_text_add(part->text, lane == TNI_LANE_BOOL ? "(u8)(widen(%s) != 0)" : "(%2$s)widen(%1$s)", what,
                 tni_emit_lane(lane));
}

void tni_gpu_node(const tni_gpu_part *part, const char *margin, int32_t node) {
    const tni_planner *p = part->p;
    char what[64];
    if (tni_gpu_node_of(part, node)->op == TNI_P_CONST) return;
    tni_text_add(part->text, "%sconst %s t%d = ", margin, tni_emit_lane(tni_gpu_lane_of(part, node)), (int)node);
    if (tni_gpu_is_index(part, node)) { /* of a row; along a single element it is 0 */
        tni_text_add(part->text, p->level[node] == TNI_ROW ? "o%d" : "0", (int)p->memory_of[node]);
    } else if (p->memory_of[node] >= 0 && p->level[node] == TNI_ROW) {
        snprintf(what, sizeof what, part->reduces ? "x%d" : "x%d[u]", (int)node);
        tni_gpu_loaded(part, node, what);
    } else if (p->memory_of[node] >= 0) {
        snprintf(what, sizeof what, "m%d[0]", (int)p->memory_of[node]);
        tni_gpu_loaded(part, node, what);
    } else if (tni_gpu_node_of(part, node)->op == TNI_P_CAST) {
        tni_emit_cast(part->text, p, node);
    } else {
        print_operation(part, node);
    }
    tni_text_add(part->text, ";\n");
}

void tni_gpu_row_nodes(const tni_gpu_part *part, const char *margin, int32_t stage) {
    const tni_planner *p = part->p;
    for (int32_t i = 0; i < p->g->n; i++) {
        bool row = part->needed[i] && p->level[i] == TNI_ROW && p->stage[i] == stage &&
                   tni_gpu_node_of(part, i)->op != TNI_P_CONST;
        if (row && (p->memory_of[i] >= 0 || !tni_reduces_rows(p, i))) tni_gpu_node(part, margin, i);
    }
}
