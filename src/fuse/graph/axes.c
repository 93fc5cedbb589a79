/* Which dimensions of the arguments belong together. */
#include <stdio.h>
#include <string.h>

#include "axes.h"
#include "core/contract/parts.h"

bool tni_broadcasts(const tni_contract *c, const tni_shape *shape) {
    for (int k = 0; k < shape->count; k++) {
        if (c->items[shape->first + k].broadcast) return true;
    }
    return false;
}

/* What item k of a shape is called: "*s", "n", "2 * n"; "1" is a size, not a dimension. */
static tn_status item_key(const tni_fuse *f, const tni_axes *axes, const tni_shape *shape, int k, const char *name,
                          const char **key) {
    const tni_contract *c = f->contract;
    const tni_item *item = &c->items[shape->first + k];
    tni_text text = {0};
    bool own = axes->numpy && tni_broadcasts(c, shape);
    if (item->kind == TNI_ITEM_PACK) tni_text_add(&text, "%s%s", own ? "~" : "*", own ? name : c->packs[item->ref]);
    if (item->kind == TNI_ITEM_ROWS && axes->numpy && !item->n_more && !item->a.is_attr) {
        tni_text_add(&text, "*%s", c->packs[item->a.ref]);
    }
    tni_size size; /* which 1 * c and c have in common */
    if (item->kind == TNI_ITEM_EXPR && tni_size_of_node(c, item->node, &size)) {
        tni_size_print_plain(&text, c, &size);
    } else if (item->kind == TNI_ITEM_EXPR) {
        tni_print_node(&text, c, item->node);
    }
    if (!text.data && !text.failed) {
        return tn_fail(TN_BAD_CONTRACT,
                       "formula of '%s': %s has a shape function or a list of sizes, which formulas do not take",
                       c->name, name);
    }
    *key = text.failed ? NULL : tni_arena_text(f->arena, text.data, text.length);
    tni_free(text.data);
    return *key ? TN_OK : TN_NO_MEMORY;
}

/* The item of this key, or the first part of what has it. */
static int32_t item_named(const tni_axes *axes, const char *key) {
    for (int i = 0; i < axes->n_items; i++) {
        const char *whole = axes->items[i].whole;
        if (strcmp(axes->items[i].key, key) == 0 || (whole && strcmp(whole, key) == 0)) return i;
    }
    return -1;
}

/* How often a shape has said the size of entry k before: a matrix T[n, n] has two axes of the same size. */
static int32_t n_before(const tni_contract *c, const tni_shape *shape, int k) {
    tni_size size, other;
    int32_t n = 0;
    const tni_item *items = &c->items[shape->first];
    if (items[k].kind != TNI_ITEM_EXPR || !tni_size_of_node(c, items[k].node, &size)) return 0;
    for (int i = 0; i < k; i++) {
        const bool linear = items[i].kind == TNI_ITEM_EXPR && tni_size_of_node(c, items[i].node, &other);
        n += linear && tni_size_same(&size, &other);
    }
    return n;
}

tn_status tni_entry_key(const tni_fuse *f, const tni_axes *axes, const tni_param *param, int k, const char **key) {
    const int32_t before = n_before(f->contract, &param->shape, k);
    TN_TRY(item_key(f, axes, &param->shape, k, param->name, key));
    if (!before || tni_is_one(*key)) return TN_OK;
    char text[256];
    const int length = snprintf(text, sizeof text, "%s (%d)", *key, (int)before + 1);
    *key = tni_arena_text(f->arena, text, (size_t)length);
    return *key ? TN_OK : TN_NO_MEMORY;
}

static bool is_called(const char *key, const char *name, int32_t length) {
    key += *key == '*';
    return (int32_t)strlen(key) == length && strncmp(key, name, (size_t)length) == 0;
}

uint32_t tni_items_named(const tni_axes *axes, const char *name, int32_t length) {
    uint32_t found = 0;
    for (int i = 0; i < axes->n_items && i < TN_MAX_RANK; i++) {
        const char *whole = axes->items[i].whole;
        if (is_called(axes->items[i].key, name, length)) return 1u << i;
        if (whole && is_called(whole, name, length)) found |= 1u << i;
    }
    return found;
}

bool tni_is_one(const char *key) {
    return strcmp(key, "1") == 0;
}

bool tni_is_shape_function(const tni_contract *c, const tni_shape *shape) {
    return shape->cond < 0 && shape->count == 1 && tni_takes_packs(c->items[shape->first].kind);
}

/* rows(*p), which an input can have, too. */
static bool is_rows(const tni_contract *c, const tni_shape *shape) {
    const tni_item *item = &c->items[shape->first];
    return tni_is_shape_function(c, shape) && item->kind == TNI_ITEM_ROWS && !item->n_more && !item->a.is_attr;
}

/* [*p], or [*p, n]. */
static bool is_pack(const tni_contract *c, const tni_shape *shape) {
    const tni_item *items = &c->items[shape->first];
    if (shape->cond >= 0 || shape->count < 1 || shape->count > 2 || items[0].kind != TNI_ITEM_PACK) return false;
    return shape->count == 1 || (items[1].kind == TNI_ITEM_EXPR && c->nodes[items[1].node].kind == TNI_DIM);
}

/* By position as well: every shape is nothing, [*p, n] or [*p], which has not the last dimension then, and they are not
 * all of one pack, or one broadcasts. */
static bool has_tails(const tni_contract *c) {
    bool any = false, apart = false;
    int32_t first = -1;
    for (int i = 0; i < c->n_inputs + c->n_outputs; i++) {
        const tni_shape *shape = i < c->n_inputs ? &c->inputs[i].shape : &c->outputs[i - c->n_inputs].shape;
        if ((i < c->n_inputs && tni_is_seed(c, i)) || (shape->count == 0 && shape->cond < 0)) continue;
        if (!is_pack(c, shape)) return false;
        int32_t pack = c->items[shape->first].ref;
        any |= shape->count == 2;
        first = first < 0 ? pack : first;
        apart |= pack != first || tni_broadcasts(c, shape);
    }
    return any && apart;
}

/* By position: every shape is nothing, one pack, broadcast() or rows(). */
static bool is_numpy(const tni_contract *c) {
    for (int i = 0; i < c->n_inputs + c->n_outputs; i++) {
        const tni_param *param = i < c->n_inputs ? &c->inputs[i] : &c->outputs[i - c->n_inputs];
        bool seed = i < c->n_inputs && tni_is_seed(c, i);
        bool pack = param->shape.count == 1 && is_pack(c, &param->shape);
        if (param->shape.cond >= 0) return false;
        if (!seed && param->shape.count && !pack && !tni_is_shape_function(c, &param->shape)) return false;
    }
    return true;
}

/* ---- what attributes divide -------------------------------------------------------------------------------------- */

/* Does the formula say its name, or a shape of the contract? Softmax has an axis for its other kernels. */
static bool is_said(const tni_fuse *f, int32_t attr) {
    const tni_contract *c = f->contract;
    for (int i = 0; i < c->n_inputs + c->n_outputs; i++) {
        const tni_shape *shape = i < c->n_inputs ? &c->inputs[i].shape : &c->outputs[i - c->n_inputs].shape;
        for (int k = 0; k < shape->count; k++) {
            const tni_item *item = &c->items[shape->first + k];
            if (item->kind == TNI_ITEM_REDUCE && item->attr == attr) return true;
        }
    }
    return f->said_attrs >> attr & 1;
}

/* The pack that `axes: axes` or `axis: axis` lists dimensions of, where that is all that its tensor has; -1: none. */
static int32_t listed_pack(const tni_fuse *f, int32_t attr) {
    const tni_contract *c = f->contract;
    const tni_attr *a = &c->attrs[attr];
    const bool lists = (a->kind == TNI_A_AXIS || a->kind == TNI_A_AXES) && is_said(f, attr);
    if (!lists || a->optional || c->has_lists || c->n_inputs == 0) return -1;
    if (a->rank_is_seq) return a->rank_seq.is_attr ? -1 : a->rank_seq.ref;
    const tni_shape *first = &c->inputs[0].shape;
    return first->count == 1 && is_pack(c, first) && !tni_broadcasts(c, first) ? c->items[first->first].ref : -1;
}

/* The attribute that lists dimensions of the pack; of a formula there is one. */
static int32_t attr_listing(const tni_fuse *f, int32_t pack) {
    int32_t found = -1;
    for (int32_t i = 0; i < f->contract->n_attrs; i++) {
        if (listed_pack(f, i) != pack) continue;
        if (found >= 0) return -1;
        found = i;
    }
    return found;
}

static bool lists_dimensions(const tni_fuse *f) {
    for (int32_t i = 0; i < f->contract->n_packs; i++) {
        if (attr_listing(f, i) >= 0) return true;
    }
    return false;
}

/* The attribute of `where dim % attribute == 0`; -1: none. */
static int32_t attr_dividing(const tni_contract *c, int32_t dim) {
    for (int32_t i = 0; i < c->n_conditions; i++) {
        const tni_node *is = &c->nodes[c->conditions[i].node];
        if (is->kind != TNI_EQ || c->nodes[is->left].kind != TNI_MOD) continue;
        const tni_node *zero = &c->nodes[is->right], *rest = &c->nodes[is->left];
        const tni_node *of = &c->nodes[rest->left], *by = &c->nodes[rest->right];
        const bool divides = zero->kind == TNI_LIT_INT && zero->value == 0 && of->kind == TNI_DIM && of->ref == dim &&
                             by->kind == TNI_ATTR;
        if (divides && c->attrs[by->ref].kind == TNI_A_INT && !c->attrs[by->ref].optional) return by->ref;
    }
    return -1;
}

/* `whole` becomes two items; `last` is its own, and is there already. */
static tn_status divide_item(const tni_fuse *f, tni_axes *axes, int32_t attr) {
    const int32_t last = axes->n_items - 1;
    const char *whole = axes->items[last].key, *by = f->contract->attrs[attr].name;
    const bool pack = axes->items[last].pack;
    char key[2 * TNI_MAX_NAME + 8];
    const int length = snprintf(key, sizeof key, "%s / %s", whole, by);
    const char *parts[] = {by, tni_arena_text(f->arena, key, (size_t)length)};
    if (!parts[1]) return TN_NO_MEMORY;
    for (int k = 0; k < 2; k++) {
        axes->items[last + k].key = parts[k];
        axes->items[last + k].pack = pack;
        axes->items[last + k].part = (pack ? TNI_PART_LISTED : TNI_PART_GROUPS) + (unsigned)k;
        axes->items[last + k].whole = whole;
        axes->items[last + k].attr = attr;
        axes->items[last + k].source = -1;
    }
    axes->n_items++;
    return TN_OK;
}

/* The attribute that divides an item of a shape; -1: none does. */
static int32_t attr_of_item(const tni_fuse *f, const tni_item *item) {
    const tni_contract *c = f->contract;
    if (item->broadcast) return -1;
    if (item->kind == TNI_ITEM_PACK) return attr_listing(f, item->ref);
    const bool dim = item->kind == TNI_ITEM_EXPR && c->nodes[item->node].kind == TNI_DIM;
    return dim ? attr_dividing(c, c->nodes[item->node].ref) : -1;
}

bool tni_is_part_of(const tni_fuse *f, const char *key) {
    const tni_contract *c = f->contract;
    for (int i = 0; i < c->n_inputs + c->n_outputs; i++) {
        const tni_shape *shape = i < c->n_inputs ? &c->inputs[i].shape : &c->outputs[i - c->n_inputs].shape;
        for (int k = 0; k < shape->count; k++) {
            const tni_item *item = &c->items[shape->first + k];
            const int32_t by = item->kind == TNI_ITEM_EXPR ? attr_of_item(f, item) : -1;
            char members[2 * TNI_MAX_NAME + 8];
            if (by < 0) continue;
            snprintf(members, sizeof members, "%s / %s", c->dims[c->nodes[item->node].ref], c->attrs[by].name);
            if (strcmp(key, c->attrs[by].name) == 0 || strcmp(key, members) == 0) return true;
        }
    }
    return false;
}

tn_status tni_add_item(const tni_fuse *f, tni_axes *axes, const tni_param *param, int k) {
    const tni_item *item = &f->contract->items[param->shape.first + k];
    const bool first = n_before(f->contract, &param->shape, k) == 0;
    const int32_t by = axes->numpy || !first ? -1 : attr_of_item(f, item);
    const char *key;
    TN_TRY(tni_entry_key(f, axes, param, k, &key));
    if (tni_is_one(key) || item_named(axes, key) >= 0) return TN_OK;
    if (axes->n_items + (by >= 0) >= (axes->numpy ? TNI_MAX_ARGS : TN_MAX_RANK)) {
        return tn_fail(TN_BAD_CONTRACT,
                       axes->numpy ? "formula of '%s': more than %d inputs and outputs"
                                   : "formula of '%s': more than %d dimensions",
                       f->contract->name, axes->numpy ? TNI_MAX_ARGS : TN_MAX_RANK);
    }
    axes->items[axes->n_items].pack = item->kind != TNI_ITEM_EXPR;
    axes->items[axes->n_items].source = -1;
    axes->items[axes->n_items].nth = n_before(f->contract, &param->shape, k);
    axes->items[axes->n_items].sized = item->kind == TNI_ITEM_EXPR && by < 0 &&
                                       tni_size_of_node(f->contract, item->node, &axes->items[axes->n_items].size);
    axes->items[axes->n_items++].key = key;
    return by >= 0 ? divide_item(f, axes, by) : TN_OK;
}

/* With lists, every element of every tensor is treated alike: shapes are one pack, or nothing. */
static tn_status check_lists(const tni_contract *c) {
    for (int i = 0; i < c->n_inputs + c->n_outputs; i++) {
        const tni_param *param = i < c->n_inputs ? &c->inputs[i] : &c->outputs[i - c->n_inputs];
        const tni_item *item = param->shape.count == 1 ? &c->items[param->shape.first] : NULL;
        bool pack = item && item->kind == TNI_ITEM_PACK && !item->broadcast && param->shape.cond < 0;
        bool single = param->shape.count == 0 && param->shape.cond < 0;
        if (param->list ? pack : single || (i < c->n_inputs && tni_is_seed(c, i))) continue;
        return tn_fail(TN_BAD_CONTRACT,
                       "formula of '%s': beside lists of tensors such as [T[*s]] there are only single numbers (T[]), "
                       "which %s is not",
                       c->name, param->name);
    }
    return TN_OK;
}

bool tni_is_reduced(const tni_item *item) {
    return item->kind == TNI_ITEM_REDUCE && !item->a.is_attr;
}

/* Dimensions of a shape: what is 1 is a size. */
static int32_t n_named(const tni_contract *c, const tni_shape *shape) {
    int32_t n = 0;
    for (int k = 0; k < shape->count; k++) {
        const tni_item *item = &c->items[shape->first + k];
        bool one = item->kind == TNI_ITEM_EXPR && c->nodes[item->node].kind == TNI_LIT_INT &&
                   c->nodes[item->node].value == 1;
        n += !one && !tni_is_reduced(item);
    }
    return n;
}

/* Every pack that is used, or every dimension. */
tn_status tni_make_axes(tni_fuse *f, tni_axes *axes) {
    const tni_contract *c = f->contract;
    const tni_param *largest = NULL;
    const bool listed = lists_dimensions(f);
    *axes = (tni_axes){.tails = !listed && has_tails(c), .list = c->has_lists};
    axes->numpy = axes->tails || (!listed && is_numpy(c));
    if (axes->list) TN_TRY(check_lists(c));
    for (int i = 0; i < c->n_inputs + c->n_outputs; i++) {
        const tni_param *param = i < c->n_inputs ? &c->inputs[i] : &c->outputs[i - c->n_inputs];
        bool seed = i < c->n_inputs && tni_is_seed(c, i);
        bool has = param->shape.count && (is_pack(c, &param->shape) || is_rows(c, &param->shape));
        if (axes->numpy && !seed && has) TN_TRY(tni_add_item(f, axes, param, 0));
        if (!seed && (!largest || n_named(c, &param->shape) > n_named(c, &largest->shape))) largest = param;
    }
    if (!axes->numpy) TN_TRY(tni_order_dims(f, axes, largest));
    axes->n_own = axes->n_items;
    return TN_OK;
}

/* Entry k of a shape, as items of the formula. */
static tn_status entry_of(const tni_fuse *f, const tni_param *param, int k, tni_entry *entry) {
    const tni_item *item = &f->contract->items[param->shape.first + k];
    const char *key;
    *entry = (tni_entry){.item = -1, .keep = -1};
    const int32_t by = tni_is_reduced(item) ? attr_listing(f, item->a.ref) : -1;
    if (by >= 0 && by == item->attr) {
        char whole[TNI_MAX_NAME + 2];
        snprintf(whole, sizeof whole, "*%s", f->contract->packs[item->a.ref]);
        entry->item = item_named(&f->axes, whole) + 1;
        entry->keep = item->keep_attr;
        if (entry->item > 0) return TN_OK;
    }
    TN_TRY(tni_entry_key(f, &f->axes, param, k, &key));
    if (tni_is_one(key)) return TN_OK;
    entry->item = item_named(&f->axes, key);
    if (entry->item >= 0) {
        const char *whole = f->axes.items[entry->item].whole;
        entry->both = whole && strcmp(whole, key) == 0;
        return TN_OK;
    }
    return tn_fail(TN_BAD_CONTRACT, "formula of '%s': %s has the dimension %s, which the formula does not know",
                   f->contract->name, param->name, key);
}

static uint64_t items_of_entry(const tni_entry *entry) {
    return entry->item < 0 ? 0 : (uint64_t)(entry->both ? 3 : 1) << entry->item;
}

tn_status tni_param_entries(const tni_fuse *f, const tni_param *param, tni_entry *entries, int32_t *count) {
    const char *name = f->contract->name;
    uint64_t seen = 0;
    *count = 0;
    for (int k = 0; k < (f->axes.tails && param->shape.count ? 1 : param->shape.count); k++) {
        if (*count == TN_MAX_RANK) {
            return tn_fail(TN_BAD_CONTRACT, "formula of '%s': %s has more than %d dimensions", name, param->name,
                           TN_MAX_RANK);
        }
        tni_entry *entry = &entries[(*count)++];
        TN_TRY(entry_of(f, param, k, entry));
        if (seen & items_of_entry(entry)) {
            return tn_fail(TN_BAD_CONTRACT, "formula of '%s': %s has the dimension %s twice", name, param->name,
                           f->axes.items[entry->item].key);
        }
        seen |= items_of_entry(entry);
    }
    return TN_OK;
}

/* The items of broadcast() and rows() are those of the inputs that they name. */
static tn_status function_extent(const tni_fuse *f, const tni_param *param, tni_extent *extent) {
    const tni_contract *c = f->contract;
    const tni_item *item = &c->items[param->shape.first];
    for (int32_t k = 0; k <= item->n_more; k++) {
        const tni_seq *seq = k ? &item->more[k - 1] : &item->a;
        char key[TNI_MAX_NAME + 2];
        snprintf(key, sizeof key, "*%s", seq->is_attr ? "" : c->packs[seq->ref]);
        int32_t at = item_named(&f->axes, key);
        if (at < 0) {
            return tn_fail(TN_BAD_CONTRACT, "formula of '%s': %s has a shape function of something that is no input's",
                           c->name, param->name);
        }
        *(seq->rows || item->kind == TNI_ITEM_ROWS ? &extent->row : &extent->full) |= (uint64_t)1 << at;
    }
    extent->row &= ~extent->full;
    return TN_OK;
}

tn_status tni_param_extent(const tni_fuse *f, const tni_param *param, tni_extent *extent) {
    tni_entry entries[TN_MAX_RANK];
    int32_t count;
    *extent = (tni_extent){0, 0};
    if (f->axes.numpy && tni_is_shape_function(f->contract, &param->shape)) return function_extent(f, param, extent);
    TN_TRY(tni_param_entries(f, param, entries, &count));
    for (int k = 0; k < count; k++) {
        *(tni_is_row(f, param, NULL) ? &extent->row : &extent->full) |= items_of_entry(&entries[k]);
    }
    return TN_OK;
}

/* Has an input *pack, and dimensions? */
static bool has_rank(const tni_contract *c, int32_t pack, const int32_t *ranks) {
    for (int32_t i = 0; i < c->n_inputs; i++) {
        const tni_shape *shape = &c->inputs[i].shape;
        if (shape->count && is_pack(c, shape) && c->items[shape->first].ref == pack && ranks[i] > 0) return true;
    }
    return false;
}

bool tni_is_row(const tni_fuse *f, const tni_param *param, const int32_t *ranks) {
    if (!f->axes.numpy || param->shape.count != 1) return false;
    const tni_contract *c = f->contract;
    const tni_item *item = &c->items[param->shape.first];
    if (f->axes.tails || item->kind == TNI_ITEM_ROWS) return true;
    bool columns = item->kind == TNI_ITEM_BROADCAST && item->n_more && item->more[item->n_more - 1].rows;
    if (!columns || !ranks || has_rank(c, item->a.ref, ranks)) return false;
    for (int32_t k = 0; k < item->n_more && !item->more[k].rows; k++) {
        if (has_rank(c, item->more[k].ref, ranks)) return false;
    }
    return true;
}

static tn_status check_list_reductions(const tni_fuse *f) {
    for (int32_t i = 0; i < f->graph.n; i++) {
        const tni_gnode *node = &f->graph.nodes[i];
        bool measures = tni_reaches(node->op);
        if (!measures || node->kind == TNI_OVER_ALL) continue;
        return tn_fail(TN_BAD_CONTRACT,
                       "formula of '%s': %s along the last dimension of a list; it goes over everything",
                       f->contract->name, tni_prims[node->op].name);
    }
    return TN_OK;
}

static uint64_t items_of(tni_extent extent) {
    return extent.full | extent.row;
}

int tni_n_measured(const tni_gnode *node) {
    return node->op == TNI_P_SUM_TO ? 2 : tni_reaches(node->op);
}

tn_status tni_check_reductions(const tni_fuse *f) {
    uint64_t partial = 0;
    if (f->axes.list) return check_list_reductions(f);
    for (int i = 0; f->axes.numpy && i < f->axes.n_items; i++) {
        if (f->axes.items[i].key[0] == '~') partial |= (uint64_t)1 << i;
    }
    for (int32_t i = 0; partial && i < f->graph.n; i++) {
        const tni_gnode *node = &f->graph.nodes[i];
        for (int k = 0; k < tni_n_measured(node); k++) {
            uint64_t has = items_of(f->graph.nodes[node->arg[k]].extent);
            bool whole = (has & ~partial) || (has & partial) == partial; /* has *s itself, or all that makes it up */
            if (whole || !has) continue;
            return tn_fail(TN_BAD_CONTRACT,
                           "formula of '%s': %s of an input that broadcasts (~): give it a pack of its own",
                           f->contract->name, tni_prims[node->op].name);
        }
    }
    return TN_OK;
}

/* ---- groups ------------------------------------------------------------------------------------------------------ */

typedef struct grouping {
    const tni_fuse *f;
    uint8_t of[64]; /* the items of the graph: one of their group */
    uint64_t rows;  /* items that something is reduced along the rows of */
} grouping;

static void join_items(grouping *g, uint64_t items) {
    for (int i = 0; items >> i > 1; i++) {
        if (!(items >> i & 1)) continue;
        int next = i + 1 + __builtin_ctzll(items >> (i + 1));
        uint8_t from = g->of[next], to = g->of[i];
        for (int k = 0; k < 64; k++) g->of[k] = g->of[k] == from ? to : g->of[k];
    }
}

/* What an input has, in items of the graph: without a signature there is one for each. */
static tn_status input_items(const tni_fuse *f, int32_t i, uint64_t *items) {
    tni_extent extent = {f->signed_by_user ? 0 : (uint64_t)1 << i, 0};
    bool seed = tni_is_seed(f->contract, i);
    if (f->signed_by_user && !seed) TN_TRY(tni_param_extent(f, &f->contract->inputs[i], &extent));
    *items = seed ? 0 : items_of(extent);
    return TN_OK;
}

/* The same of what is written, whose value may be repeated over dimensions that it has not. */
static tn_status output_items(const tni_fuse *f, int32_t i, uint64_t *items) {
    int32_t updated = f->outputs[i].inplace;
    tni_extent extent = {0, 0};
    *items = 0;
    if (updated >= 0) TN_TRY(input_items(f, updated, items));
    bool named = updated < 0 && f->signed_by_user && f->contract->outputs[i].shape.cond < 0;
    if (named) TN_TRY(tni_param_extent(f, &f->contract->outputs[i], &extent));
    *items |= items_of(extent) | items_of(f->graph.nodes[f->outputs[i].node].extent);
    return TN_OK;
}

static void find_meetings(grouping *g) {
    const tni_graph *graph = &g->f->graph;
    for (int32_t i = 0; i < graph->n; i++) {
        const tni_gnode *node = &graph->nodes[i];
        join_items(g, items_of(node->extent));
        bool measures = tni_reaches(node->op);
        if (node->arg[0] < 0) continue;
        uint64_t of = items_of(graph->nodes[node->arg[0]].extent);
        if (measures && node->kind == TNI_OVER_ROW) g->rows |= of;
        if (node->op == TNI_P_SUM_TO) join_items(g, of | items_of(graph->nodes[node->arg[1]].extent));
    }
}

/* The group of some items, counted from 0; that of rows comes last. */
static uint8_t number_of(const grouping *g, uint64_t items, uint8_t *numbers, int32_t *n) {
    if (!items) return 0;
    uint8_t *number = &numbers[g->of[__builtin_ctzll(items)]];
    if (!*number) *number = (uint8_t)(*n += 1);
    return (uint8_t)(*number - 1);
}

static void move_rows_last(tni_fuse *f, const grouping *g, const uint8_t *numbers) {
    int rows = g->rows ? numbers[g->of[__builtin_ctzll(g->rows)]] - 1 : -1, last = f->n_groups - 1;
    if (rows < 0 || rows == last) return;
    for (int i = 0; i < f->contract->n_inputs + f->n_outputs; i++) {
        uint8_t *group = i < f->contract->n_inputs ? &f->in_group[i] : &f->out_group[i - f->contract->n_inputs];
        *group = (uint8_t)(*group == rows ? last : *group == last ? rows : *group);
    }
}

tn_status tni_find_groups(tni_fuse *f) {
    const tni_contract *c = f->contract;
    grouping g = {.f = f};
    uint8_t numbers[64] = {0};
    uint64_t items;
    if (!f->axes.numpy || f->axes.tails) return TN_OK;
    for (int i = 0; i < c->n_inputs; i++) {
        if (tni_broadcasts(c, &c->inputs[i].shape)) return TN_OK; /* `~`: all broadcast together */
    }
    for (int i = 0; i < 64; i++) g.of[i] = (uint8_t)i;
    find_meetings(&g);
    join_items(&g, g.rows); /* there is one last dimension */
    for (int i = 0; i < f->n_outputs; i++) {
        TN_TRY(output_items(f, i, &items));
        join_items(&g, items);
    }
    for (int i = 0; i < c->n_inputs; i++) {
        TN_TRY(input_items(f, i, &items));
        join_items(&g, items);
    }
    for (int i = 0; i < c->n_inputs; i++) {
        TN_TRY(input_items(f, i, &items));
        f->in_group[i] = number_of(&g, items, numbers, &f->n_groups);
    }
    for (int i = 0; i < f->n_outputs; i++) {
        TN_TRY(output_items(f, i, &items));
        f->out_group[i] = number_of(&g, items, numbers, &f->n_groups);
    }
    move_rows_last(f, &g, numbers);
    return TN_OK;
}

int tni_param_type(const tni_type *type) {
    if (type->kind == TNI_TYPE_ATTR || type->wrap == TNI_COMPLEX) return TNI_TY_SOME;
    if (type->kind == TNI_TYPE_VAR) return (type->wrap == TNI_ACC ? TNI_TY_ACC : TNI_TY_VAR) + type->ref;
    int first = __builtin_ctz(type->mask);
    if (type->mask == TN_BIT(first)) return first;
    return type->mask & ~TN_INTS ? TNI_TY_SOME : TN_I64; /* one of several integers: computed as i64 anyway */
}
