/* The contract of a formula that was written without one. */
#include "language.h"

/* How the inputs' shapes are written. */
typedef enum form {
    ALONE,     /* one input: x: T[*s] */
    ALONE_ROW, /* one input, a result without the last dimension: x: T[*s, n] */
    SHARED,    /* x: T[~*s], b: T[~*s] -> y: T[*s] */
    OWN,       /* x: T[*s_x], b: T[*s_b] -> y: T[broadcast(*s_x, *s_b)], and what print_own_shape has */
    NAMED,     /* x: T[dim0, *dims], b: T[dim0, *dims] -> y: T[*dims]: axes are reduced */
} form;

static uint64_t all_inputs(const tni_scope *scope) {
    uint64_t all = 0;
    for (int i = 0; i < scope->n_inputs; i++) {
        if (!scope->is_seed[i]) all |= (uint64_t)1 << i;
    }
    return all;
}

/* rand has the shape of all inputs, however many there turn out to be. */
static tni_extent known(tni_extent extent, uint64_t all) {
    return (tni_extent){extent.full & all, extent.row & all};
}

/* `~` makes every input as large as all: right where each result and each reduction takes all of them, or nothing. */
static bool can_share(const tni_fuse *f, const tni_scope *scope, uint64_t all) {
    if (f->graph.n_calls) return false; /* operators take tensors as they are */
    for (int i = 0; i < scope->n_outputs; i++) {
        tni_extent e = known(f->graph.nodes[scope->output_nodes[i]].extent, all);
        if (!tni_is_scalar(e) && e.full != all) return false;
    }
    for (int i = 0; i < scope->n_inputs; i++) {
        if (scope->is_updated[i]) return false; /* what is written cannot be broadcast */
    }
    for (int32_t i = 0; i < f->graph.n; i++) {
        const tni_gnode *node = &f->graph.nodes[i];
        for (int k = 0; k < tni_n_measured(node); k++) {
            tni_extent e = known(f->graph.nodes[node->arg[k]].extent, all);
            if ((e.full | e.row) != all && !tni_is_scalar(e)) return false;
        }
    }
    return true;
}

static form choose_form(const tni_fuse *f, const tni_scope *scope, uint64_t all) {
    bool single = (all & (all - 1)) == 0, row = false;
    if (f->axes.n_items) return NAMED;
    for (int i = 0; i < scope->n_outputs; i++) {
        row |= known(f->graph.nodes[scope->output_nodes[i]].extent, all).row != 0;
    }
    return single ? (row ? ALONE_ROW : ALONE) : can_share(f, scope, all) ? SHARED : OWN;
}

/* The items that a value has; those that a reduction took are gone. */
static void print_items(tni_text *text, const tni_axes *axes, uint64_t has) {
    const char *before = "[";
    for (int k = 0; k < axes->n_items; k++) {
        if (!(has >> k & 1)) continue;
        tni_text_add(text, "%s%s", before, axes->items[k].key);
        before = ", ";
    }
    tni_text_add(text, "]");
}

static void print_input_shape(tni_text *text, const tni_axes *axes, form how, const char *name) {
    static const char *const shapes[] = {[ALONE] = "[*s]", [ALONE_ROW] = "[*s, n]", [SHARED] = "[~*s]"};
    if (how == NAMED) {
        print_items(text, axes, ~(uint64_t)0);
    } else if (how == OWN) {
        tni_text_add(text, "[*s_%s]", name);
    } else {
        tni_text_add(text, "%s", shapes[how]);
    }
}

/* [*s_x], [broadcast(*s_x, *s_b)], [broadcast(*s_x, rows(*s_b))] or [rows(*s_x, *s_b)]. */
static void print_own_shape(tni_text *text, const tni_scope *scope, tni_extent e) {
    uint64_t of = e.full | e.row;
    bool function = e.row || (of & (of - 1)) != 0;
    const char *before = !function ? "[" : e.full ? "[broadcast(" : "[rows(";
    for (int pass = 0; pass < 2; pass++) { /* columns come last */
        for (int i = 0; i < scope->n_inputs; i++) {
            if (!((pass ? e.row : e.full) >> i & 1)) continue;
            tni_text_add(text, pass && e.full ? "%srows(*s_%s)" : "%s*s_%s", before, scope->inputs[i]);
            before = ", ";
        }
    }
    tni_text_add(text, function ? ")]" : "]");
}

static void print_output_shape(tni_text *text, const tni_axes *axes, form how, const tni_scope *scope, tni_extent e) {
    if (tni_is_scalar(e)) {
        tni_text_add(text, "[]");
    } else if (how == NAMED) {
        print_items(text, axes, e.full);
    } else if (how == OWN) {
        print_own_shape(text, scope, e);
    } else {
        tni_text_add(text, e.full && how == ALONE_ROW ? "[*s, n]" : "[*s]");
    }
}

static const char *type_text(int type) {
    if (type == TNI_TY_VAR) return "T";
    if (type == TNI_TY_ACC) return "acc(T)";
    if (type == TNI_TY_WEAK_FLOAT) return "f32";
    if (type == TNI_TY_WEAK_INT) return "i64";
    return type < TNI_TY_VAR ? tn_type_name((tn_type)type) : NULL;
}

static tn_status print_outputs(tni_text *text, const tni_fuse *f, const tni_scope *scope, form how, uint64_t all) {
    for (int i = 0; i < scope->n_outputs; i++) {
        const tni_gnode *node = &f->graph.nodes[scope->output_nodes[i]];
        const char *type = type_text(node->type);
        if (!type) {
            return tn_fail(
                TN_BAD_CONTRACT,
                "formula: the type of the output '%s' cannot be told from the formula alone; put a signature in "
                "front, such as f(x: T[*r, c], b: T[c]) -> %s: T[*r, c] : …",
                scope->outputs[i], scope->outputs[i]);
        }
        tni_text_add(text, "%s%s: %s", i ? ", " : " -> ", scope->outputs[i], type);
        print_output_shape(text, &f->axes, how, scope, how == NAMED ? node->extent : known(node->extent, all));
    }
    return TN_OK;
}

/* dim0, dim1, *dims, dim_1 */
static void print_named(tni_text *text, const tni_fuse *f) {
    for (int32_t k = 0; k < f->n_front; k++) tni_text_add(text, "dim%d, ", (int)k);
    tni_text_put(text, "*dims");
    for (int32_t k = f->n_back; k > 0; k--) tni_text_add(text, ", dim_%d", (int)k);
}

tn_status tni_name_parts(tni_fuse *f, const tni_scope *scope, const char *name) {
    tni_text text = {0};
    tni_text_add(&text, f->graph.masks[0] == TN_INTS ? "%s<T: int>(" : "%s(", name);
    for (int i = 0; i < scope->n_inputs; i++) {
        if (scope->is_seed[i])
            return tn_fail(TN_BAD_CONTRACT, "formula: it takes parts of values, so it cannot draw random numbers");
        tni_text_add(&text, "%s%s: %s[", i ? ", " : "", scope->inputs[i],
                     scope->is_bool[i]    ? "bool"
                     : scope->is_index[i] ? "i32|i64"
                                          : "T");
        print_named(&text, f);
        tni_text_put(&text, scope->is_updated[i] ? "]!" : "]");
    }
    const char *attrs = scope->attrs ? scope->attrs : "";
    tni_text_add(&text, "%s)", *attrs && !scope->n_inputs ? attrs + 2 : attrs);
    f->signature = text.failed ? NULL : tni_arena_text(f->arena, text.data, text.length);
    for (int i = 0; i < scope->n_outputs; i++) {
        tni_text_add(&text, "%s%s: T[]", i ? ", " : " -> ", scope->outputs[i]);
    }
    f->whole = text.failed ? NULL : tni_arena_text(f->arena, text.data, text.length);
    tni_free(text.data);
    return f->signature && f->whole ? TN_OK : TN_NO_MEMORY;
}

/* [dim0 - 1, *dims] */
static void print_shape(tni_text *text, const tni_fuse *f, tni_extent e) {
    int32_t items[TN_MAX_RANK];
    const int32_t n = tni_items_in_order(&f->axes, e.full, items);
    for (int32_t k = 0; k < n; k++) {
        tni_text_put(text, k ? ", " : "[");
        if (f->axes.items[items[k]].sized) {
            tni_size_print_plain(text, f->contract, &f->axes.items[items[k]].size);
        } else {
            tni_text_put(text, f->axes.items[items[k]].key);
        }
    }
    tni_text_put(text, n ? "]" : "[]");
}

void tni_print_results(tni_text *text, const tni_fuse *read) {
    for (int i = 0; i < read->contract->n_outputs; i++) {
        const tni_gnode *node = &read->graph.nodes[read->outputs[i].node];
        const char *type = type_text(node->type);
        tni_text_add(text, "%s%s: %s", i ? ", " : " -> ", read->contract->outputs[i].name, type ? type : "T");
        print_shape(text, read, node->extent);
    }
}

tn_status tni_make_contract(tni_fuse *f, const tni_scope *scope, const char *name) {
    uint64_t all = all_inputs(scope);
    form how = choose_form(f, scope, all);
    tni_text text = {0};
    tni_text_add(&text, f->graph.masks[0] == TN_INTS ? "%s<T: int>(" : "%s(", name);
    for (int i = 0; i < scope->n_inputs; i++) {
        tni_text_add(&text, "%s%s: ", i ? ", " : "", scope->inputs[i]);
        if (scope->is_seed[i]) {
            tni_text_add(&text, "i64[2]");
            continue;
        }
        tni_text_add(&text, scope->is_bool[i] ? "bool" : scope->is_index[i] ? "i32|i64" : "T");
        print_input_shape(&text, &f->axes, how, scope->inputs[i]);
        if (scope->is_updated[i]) tni_text_add(&text, "!");
    }
    const char *attrs = scope->attrs ? scope->attrs : "";
    tni_text_add(&text, "%s)", *attrs && !scope->n_inputs ? attrs + 2 : attrs);
    tn_status status = print_outputs(&text, f, scope, how, all);
    if (status == TN_OK) status = text.failed ? TN_NO_MEMORY : tni_contract_parse(text.data, &f->contract);
    tni_free(text.data);
    return status;
}
