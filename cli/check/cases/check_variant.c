/* Samples with other sizes: what the rows about shapes are made of. */
#include "cli/check/check.h"

#include <string.h>

bool on_cpu(const checker *c) {
    return !c->gpu;
}

bool on_gpu(const checker *c) {
    return c->gpu;
}

bool has_sizes(const checker *c) {
    return c->contract->n_packs || c->contract->n_dims || c->contract->n_attrs;
}

bool has_outputs(const checker *c) {
    return c->contract->n_outputs > 1;
}

uint64_t check_seed(const checker *c, uint64_t with) {
    uint64_t seed = mix_seed(c->options.seed, hash_text(c->contract->name));
    return mix_seed(mix_seed(seed, (uint64_t)c->sample_index + 1), with);
}

bool sample_problem(checker *c, problem *p) {
    tni_case *made;
    if (tni_sample_case(c->contract, c->sample->args, c->T, &made) != TN_OK ||
        problem_make(p, c->op, made, c->sample, check_seed(c, 0)) != TN_OK) {
        check_fail(c, "%s", tn_last_error());
        return false;
    }
    return true;
}

/* The slot that input 0's last dimension is. */
static const int64_t *row_size(const tni_setting *s) {
    const tni_contract *c = s->contract;
    const tni_shape *shape = &c->inputs[0].shape;
    if (shape->cond >= 0 || shape->count == 0) return NULL;
    const tni_item *item = &c->items[shape->first + shape->count - 1];
    if (item->kind == TNI_ITEM_EXPR && c->nodes[item->node].kind == TNI_DIM) return &s->dims[c->nodes[item->node].ref];
    tni_seq seq = item->kind == TNI_ITEM_PACK     ? (tni_seq){false, item->ref}
                  : item->kind == TNI_ITEM_SPREAD ? (tni_seq){true, item->ref}
                                                  : item->a;
    if (item->kind == TNI_ITEM_EXPR) return NULL;
    if (seq.is_attr) return s->attrs[seq.ref].count ? &s->attrs[seq.ref].ints[s->attrs[seq.ref].count - 1] : NULL;
    return s->packs[seq.ref].ndim ? &s->packs[seq.ref].d[s->packs[seq.ref].ndim - 1] : NULL;
}

/* Explicit shapes of inputs that broadcast give way to the whole shape: other sizes would not fit them. */
static bool drop_shapes(tni_setting *s) {
    for (int32_t i = 0; i < s->contract->n_inputs; i++) {
        bool may_be_one[TN_MAX_RANK] = {false}, any = false;
        int32_t droppable;
        if (s->inputs[i].count < 0) continue;
        tni_setting_broadcast(s, i, may_be_one, &droppable);
        for (int32_t d = 0; d < TN_MAX_RANK; d++) any |= may_be_one[d];
        if (!any) return false;
        s->inputs[i].count = -1;
    }
    return true;
}

static void find_slots(variant *v) {
    v->n_slots = tni_setting_slots(v->setting, v->slots);
    v->row = -1;
    const int64_t *row = v->setting->contract->n_inputs ? row_size(v->setting) : NULL;
    for (int32_t k = 0; k < v->n_slots; k++) {
        if (v->slots[k] == row) v->row = k;
    }
}

bool variant_begin(checker *c, variant *v) {
    *v = (variant){.arena = tni_arena_new()};
    tn_status status = v->arena ? TN_OK : TN_NO_MEMORY;
    if (status == TN_OK) {
        status = tni_setting_parse(c->contract, c->sample->args, c->T, v->arena, &v->setting);
    }
    if (status != TN_OK) check_fail(c, "%s", tn_last_error());
    if (status != TN_OK || !drop_shapes(v->setting)) {
        variant_drop(v);
        return false;
    }
    find_slots(v);
    return true;
}

void variant_drop(variant *v) {
    tni_arena_free(v->arena);
    v->arena = NULL;
}

bool variant_flatten(variant *v) {
    tni_setting *s = v->setting;
    bool any = false;
    for (int32_t i = 0; i < s->contract->n_packs; i++) {
        any |= s->pack_set[i];
        s->packs[i].ndim = 0;
    }
    for (int32_t i = 0; i < s->contract->n_attrs; i++) {
        tni_attr_kind kind = s->contract->attrs[i].kind;
        if (kind == TNI_A_AXIS || kind == TNI_A_AXES) s->attrs[i].kind = TN_ATTR_UNSET;
        if (s->attrs[i].kind == TN_ATTR_INTS && tni_attr_is_shape(s->contract, i)) {
            s->attrs[i].count = 0;
            any = true;
        }
    }
    find_slots(v);
    return any;
}

/* Elements of the largest tensor, attributes that are shapes included. */
static int64_t elements_of(const variant *v) {
    const tni_setting *s = v->setting;
    int64_t most = 0;
    for (int32_t i = 0; i < s->contract->n_inputs; i++) {
        tni_dims shape;
        if (!s->inputs[i].present || tni_setting_shape(s, i, 0, &shape) != TN_OK) continue;
        if (dims_count(&shape) > most) most = dims_count(&shape);
    }
    for (int32_t i = 0; i < s->contract->n_attrs; i++) {
        if (s->attrs[i].kind != TN_ATTR_INTS || !tni_attr_is_shape(s->contract, i)) continue;
        int64_t n = 1;
        for (int32_t d = 0; d < s->attrs[i].count; d++) n *= s->attrs[i].ints[d];
        if (n > most) most = n;
    }
    return most;
}

void variant_grow(variant *v, int32_t k, int64_t elements) {
    for (int32_t i = 0; i < v->n_slots; i++) {
        if (*v->slots[i] == 0) *v->slots[i] = 3;
    }
    if (k < 0 || k >= v->n_slots) return;
    int64_t now = elements_of(v);
    if (now > 0 && now < elements) *v->slots[k] = elements / now * *v->slots[k] + 1;
}

bool variant_problem(checker *c, variant *v, problem *p) {
    tni_case *made = NULL;
    uint64_t with = 1;
    for (int32_t k = 0; k < v->n_slots; k++) with = mix_seed(with, (uint64_t)*v->slots[k]);
    if (tni_setting_case(v->setting, &made) != TN_OK) {
        variant_drop(v);
        return false;
    }
    return problem_make(p, c->op, made, c->sample, check_seed(c, with)) == TN_OK;
}

bool check_problem(checker *c, problem *p, const char *what) {
    made_call k;
    bool good = problem_solve(p, true) == TN_OK;
    if (!good) {
        check_fail(c, "the reference refused: %s", tn_last_error());
    } else if (problem_call(p, &k, (call_options){0}) != TN_OK) {
        check_fail(c, "%s", tn_last_error());
        good = false;
    } else {
        good = run_and_compare(c, p, &k, what);
        call_free(&k);
    }
    problem_free(p);
    return good;
}
