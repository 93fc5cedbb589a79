/* Which steps a formula has: level by level, what stands between the calls of one level and those of the next is one
 * fused formula, which is written as text and made an operator. */
#include <stdatomic.h>
#include <string.h>

#include <tenon/fuse.h>

#include "core/contract/parts.h"
#include "core/table/table.h"
#include "split.h"

/* ---- what goes where --------------------------------------------------------------------------------------------- */

static void mark(tni_splitter *s) {
    for (int32_t k = 0; k < s->f->n_outputs; k++) s->needed[s->f->outputs[k].node] = true;
    for (int32_t i = s->g->n - 1; i >= 0; i--) {
        for (int k = 0; k < TNI_NODE_ARGS && s->needed[i] && s->g->nodes[i].arg[k] >= 0; k++)
            s->needed[s->g->nodes[i].arg[k]] = true;
    }
    for (int32_t i = 0; i < s->g->n; i++) {
        const tni_gnode *n = &s->g->nodes[i];
        const bool calls = n->op == TNI_P_CALL;
        s->tensor[i] = n->op == TNI_P_INPUT ? n->ref : -1;
        for (int k = 0; k < TNI_NODE_ARGS && s->needed[i] && n->arg[k] >= 0; k++) {
            const int32_t behind = s->level[n->arg[k]] + calls;
            if (behind > s->level[i]) s->level[i] = behind;
            s->stored[n->arg[k]] |= calls && s->g->nodes[n->arg[k]].op != TNI_P_ATTR;
        }
    }
}

/* Has a call's result the type, the dimensions and their order of the output? */
static bool fits_output(const tni_splitter *s, int32_t k) {
    const tni_param *param = &s->f->contract->outputs[k];
    const tni_gnode *node = &s->g->nodes[s->f->outputs[k].node];
    tni_entry entries[TN_MAX_RANK];
    int32_t n, last = -1;
    if (node->op != TNI_P_CALL || s->tensor[s->f->outputs[k].node] >= 0) return false;
    if (!s->f->signed_by_user) return true; /* the contract is made of it */
    if (tni_param_type(&param->type) != node->type || param->shape.cond >= 0) return false;
    tni_extent extent;
    if (tni_param_extent(s->f, param, &extent) != TN_OK || !tni_same_extent(extent, node->extent)) return false;
    if (s->f->axes.numpy) return true;
    if (tni_param_entries(s->f, param, entries, &n) != TN_OK) return false;
    for (int i = 0; i < n; i++) {
        if (entries[i].item <= last) return false;
        last = entries[i].item;
    }
    return true;
}

/* A tensor for each call and for what calls take. */
static void number_tensors(tni_splitter *s) {
    const tni_contract *c = s->f->contract;
    int32_t n = c->n_inputs + c->n_outputs;
    for (int32_t k = 0; k < c->n_outputs; k++) {
        s->direct[k] = fits_output(s, k);
        if (s->direct[k]) s->tensor[s->f->outputs[k].node] = c->n_inputs + k;
    }
    for (int32_t i = 0; i < s->g->n; i++) {
        const bool has = s->needed[i] && (s->stored[i] || s->g->nodes[i].op == TNI_P_CALL);
        if (has && s->tensor[i] < 0) s->tensor[i] = n++;
    }
    s->made->n_tensors = n;
}

static tni_called *add_step(tni_splitter *s) {
    tni_called *steps = tni_realloc(s->made->steps, (size_t)(s->made->n + 1) * sizeof *steps);
    if (!steps) return NULL;
    s->made->steps = steps;
    memset(&steps[s->made->n], 0, sizeof *steps);
    return &steps[s->made->n++];
}

/* What a level stores and writes and no call makes. */
typedef struct target {
    int32_t node, output; /* -1: it is handed on */
    uint64_t has;         /* dimensions of all that is computed for it */
} target;

static uint64_t dims_for(const tni_splitter *s, int32_t node, int32_t level) {
    bool value[TNI_FUSE_NODES] = {false};
    uint64_t has = 0;
    value[node] = true;
    for (int32_t i = node; i >= 0; i--) {
        const tni_gnode *n = &s->g->nodes[i];
        if (!value[i]) continue;
        has |= n->extent.full | n->extent.row;
        for (int k = 0; k < TNI_NODE_ARGS && n->arg[k] >= 0 && !tni_is_there(s, i, level); k++) value[n->arg[k]] = true;
    }
    return has;
}

static int32_t list_targets(const tni_splitter *s, int32_t level, target *made) {
    int32_t n = 0;
    for (int32_t k = 0; k < s->f->n_outputs; k++) {
        const int32_t node = s->f->outputs[k].node;
        if (s->direct[k] || s->level[node] != level) continue;
        made[n++] = (target){node, k, dims_for(s, node, level)};
        tni_extent extent; /* it may be repeated when it is written */
        if (s->f->signed_by_user && tni_param_extent(s->f, &s->f->contract->outputs[k], &extent) == TN_OK)
            made[n - 1].has |= extent.full | extent.row;
    }
    for (int32_t i = 0; i < s->g->n; i++) {
        const bool makes = s->needed[i] && s->stored[i] && s->level[i] == level && !tni_is_there(s, i, level);
        if (makes) made[n++] = (target){i, -1, dims_for(s, i, level)};
    }
    return n;
}

/* The first of those that are left with most dimensions, and all that have no others: they share what they are made
 * of. */
static tn_status add_one_fused(tni_splitter *s, int32_t level, target *targets, int32_t *n) {
    tni_fused_step *x = tni_calloc(1, sizeof *x);
    if (!x) return TN_NO_MEMORY;
    x->s = s;
    x->level = level;
    int32_t first = 0, left = 0;
    for (int32_t i = 1; i < *n; i++) {
        if (__builtin_popcountll(targets[i].has) > __builtin_popcountll(targets[first].has)) first = i;
    }
    const uint64_t all = targets[first].has;
    for (int32_t i = 0; i < *n; i++) {
        const bool fits = !(targets[i].has & ~all) && (targets[i].output >= 0 || x->n_results < TNI_MAX_ARGS);
        if (!fits) {
            targets[left++] = targets[i];
        } else if (targets[i].output >= 0) {
            x->output[targets[i].output] = true;
        } else {
            x->results[x->n_results++] = targets[i].node;
        }
    }
    *n = left;
    x->step = add_step(s);
    const tn_status status = x->step ? tni_make_fused(x) : TN_NO_MEMORY;
    tni_free(x);
    return status;
}

static tn_status add_fused(tni_splitter *s, int32_t level) {
    target *targets = tni_calloc((size_t)s->g->n + TNI_MAX_ARGS, sizeof *targets);
    if (!targets) return TN_NO_MEMORY;
    int32_t n = list_targets(s, level, targets);
    tn_status status = TN_OK;
    while (n > 0 && status == TN_OK) status = add_one_fused(s, level, targets, &n);
    tni_free(targets);
    return status;
}

/* ---- a call ------------------------------------------------------------------------------------------------------ */

/* The same call for another output. */
static tni_called *same_step(tni_splitter *s, int32_t before, int32_t node) {
    const tni_gnode *n = &s->g->nodes[node];
    for (int32_t i = 0; i < before; i++) {
        const tni_gnode *other = &s->g->nodes[i];
        if (other->op != TNI_P_CALL || !s->needed[i] || memcmp(other->arg, n->arg, sizeof n->arg) != 0) continue;
        const tni_coarse *a = &s->g->calls[other->ref], *b = &s->g->calls[n->ref];
        if (a->op != b->op || strcmp(a->attrs, b->attrs) != 0 || memcmp(a->to, b->to, sizeof a->to) != 0 ||
            memcmp(a->axis, b->axis, sizeof a->axis) != 0)
            continue;
        for (int32_t k = 0; k < s->made->n; k++) {
            if (s->made->steps[k].op == a->op && s->made->steps[k].out[a->output] == s->tensor[i])
                return &s->made->steps[k];
        }
    }
    return NULL;
}

static tn_status add_call(tni_splitter *s, int32_t node) {
    const tni_gnode *n = &s->g->nodes[node];
    const tni_coarse *call = &s->g->calls[n->ref];
    const tni_contract *c = call->op->contract;
    tni_called *step = same_step(s, node, node);
    if (step) {
        step->out[call->output] = s->tensor[node];
        return TN_OK;
    }
    step = add_step(s);
    if (!step) return TN_NO_MEMORY;
    step->op = call->op;
    step->n_in = c->n_inputs;
    step->n_out = c->n_outputs;
    for (int i = 0; i < c->n_inputs; i++) step->in[i] = -1;
    for (int i = 0; i < c->n_outputs; i++) step->out[i] = -1;
    step->out[call->output] = s->tensor[node];
    for (int k = 0; k < call->n_args; k++) {
        const int32_t tensor = s->tensor[n->arg[k]], to = call->to[k];
        if (to >= 0) {
            step->in[to] = tensor;
            continue;
        }
        step->sizes[step->n_sizes].attr = c->attrs[-1 - to].name;
        const bool own = call->axis[k] == TNI_NO_SIZE;
        step->sizes[step->n_sizes].of = own ? s->g->nodes[n->arg[k]].ref : tensor;
        step->sizes[step->n_sizes++].axis = call->axis[k];
    }
    tn_attr all[TNI_MAX_ARGS] = {{0}};
    for (int i = 0; i < c->n_attrs; i++) all[i].name = c->attrs[i].name;
    TN_TRY(tni_attrs_parse(c, call->attrs, all, step->memory, &step->n_memory));
    for (int i = 0; i < c->n_attrs; i++) {
        if (all[i].value.kind != TN_ATTR_UNSET) step->attrs[step->n_attrs++] = all[i];
    }
    return TN_OK;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

/* What steps cannot say of the formula yet. */
static tn_status check(const tni_fuse *f) {
    const tni_contract *c = f->contract;
    if (f->n_outputs != c->n_outputs) {
        return tn_fail(TN_BAD_CONTRACT, "formula of '%s': what calls operators of the table cannot update its inputs",
                       c->name);
    }
    for (int i = 0; i < c->n_attrs; i++) {
        const tni_attr_kind kind = c->attrs[i].kind;
        if (kind != TNI_A_AXIS && kind != TNI_A_AXES && kind != TNI_A_INTS && kind != TNI_A_STR) continue;
        return tn_fail(TN_BAD_CONTRACT,
                       "formula of '%s': what calls operators of the table cannot have the attribute '%s': only int, "
                       "float, bool and words",
                       c->name, c->attrs[i].name);
    }
    for (int i = 0; i < f->axes.n_items; i++) {
        if (!f->axes.items[i].part) continue;
        return tn_fail(TN_BAD_CONTRACT, "formula of '%s': what calls operators of the table cannot divide dimensions",
                       c->name);
    }
    return TN_OK;
}

static tn_status split(tni_splitter *s) {
    int32_t levels = 0;
    mark(s);
    number_tensors(s);
    for (int32_t i = 0; i < s->g->n; i++) levels = s->needed[i] && s->level[i] > levels ? s->level[i] : levels;
    for (int32_t level = 0; level <= levels; level++) {
        TN_TRY(add_fused(s, level));
        for (int32_t i = 0; i < s->g->n; i++) {
            const bool now = s->needed[i] && s->g->nodes[i].op == TNI_P_CALL && s->level[i] == level + 1;
            if (now) TN_TRY(add_call(s, i));
        }
    }
    return TN_OK;
}

tn_status tni_make_steps(tni_fuse *f) {
    if (!f->graph.n_calls) return TN_OK;
    TN_TRY(check(f));
    tni_splitter *s = tni_calloc(1, sizeof *s);
    tni_steps *made = tni_calloc(1, sizeof *made);
    tn_status status = TN_NO_MEMORY;
    f->steps = made;
    if (s && made) {
        *s = (tni_splitter){.f = f, .g = &f->graph, .made = made};
        status = split(s);
    }
    tni_free(s);
    return status;
}

static _Atomic bool operators_gone;

void tni_steps_outlive(bool operators) {
    atomic_store(&operators_gone, operators);
}

void tni_steps_free(tni_steps *steps) {
    if (!steps) return;
    for (int32_t i = 0; i < steps->n; i++) {
        tni_called *step = &steps->steps[i];
        for (int32_t k = 0; k < step->n_memory; k++) tni_free(step->memory[k]);
        if (step->made && !atomic_load(&operators_gone)) tn_fuse_release(step->op);
    }
    tni_free(steps->steps);
    tni_free(steps);
}
