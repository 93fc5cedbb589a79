/* A graph as statements of the language. What is used more than once gets a name, t1, t2 …; so does what would nest too
 * deeply to be read, by people or by the parser. */
#include <math.h>
#include <string.h>

#include "core/contract/parts.h"
#include "core/table/activation_names.h"
#include "core/table/table.h"
#include "language.h"

enum { COMPARISON = 4, SIGN = 11, ATOM = 13 }; /* how strongly they bind */

typedef struct printer {
    tni_text *text;
    const tni_graph *g;
    const tni_contract *c;
    const char *prefix; /* of names for temporary values: nothing of the contract begins so */
    int32_t nested;     /* deeper parts have names */
    int32_t uses[TNI_FUSE_NODES];
    int32_t depth[TNI_FUSE_NODES];
    int32_t temporary[TNI_FUSE_NODES]; /* number of its name; 0: none yet */
    const char *name[TNI_FUSE_NODES];  /* an output's name, once it is assigned */
    bool wants_name[TNI_FUSE_NODES];
} printer;

static void print_node(printer *p, int32_t i, int lowest);

/* ---- leaves ------------------------------------------------------------------------------------------------------ */

/* A weak number as it is written; one that has a type with its cast. */
static int print_const(printer *p, const tni_gnode *node) {
    bool weak_int = node->type == TNI_TY_WEAK_INT, negative = signbit(node->value) && !isnan(node->value);
    if (node->type == TN_BOOL) {
        tni_text_add(p->text, node->value != 0 ? "true" : "false");
        return ATOM;
    }
    bool cast = node->type < TNI_TY_VAR;
    if (cast) tni_text_add(p->text, "%s(", tn_type_name((tn_type)node->type));
    if (weak_int) {
        tni_text_add(p->text, "%lld", (long long)node->value);
    } else {
        tni_text_double(p->text, node->value);
    }
    if (cast) tni_text_add(p->text, ")");
    return negative && !cast ? SIGN : ATOM;
}

/* How far it goes, behind an argument or alone: -1, axis=n. */
static void print_reach(printer *p, const tni_gnode *node, bool alone);

static void print_leaf(printer *p, const tni_gnode *node) {
    const tni_contract *c = p->c;
    switch (node->op) {
    case TNI_P_INPUT: tni_text_add(p->text, "%s", c->inputs[node->ref].name); break;
    case TNI_P_ATTR: tni_text_add(p->text, "%s", c->attrs[node->ref].name); break;
    case TNI_P_HAS: tni_text_add(p->text, "has(%s)", c->inputs[node->ref].name); break;
    case TNI_P_HAS_ATTR: tni_text_add(p->text, "has(%s)", c->attrs[node->ref].name); break;
    case TNI_P_RAND:
        tni_text_add(p->text, "rand(%s", c->inputs[node->ref].name);
        if (node->value != 0) tni_text_add(p->text, ", %d", (int)node->value);
        tni_text_add(p->text, ")");
        break;
    case TNI_P_INDEX:
        tni_text_add(p->text, "index(");
        print_reach(p, node, true);
        tni_text_add(p->text, ")");
        break;
    default: break;
    }
}

/* ---- operations -------------------------------------------------------------------------------------------------- */

/* Left to right, but for **; comparisons do not chain. */
static void print_operator(printer *p, const tni_gnode *node) {
    const tni_prim_row *row = &tni_prims[node->op];
    if (row->arity == 1) {
        tni_text_add(p->text, "%s", row->name);
        print_node(p, node->arg[0], node->op == TNI_P_NOT ? COMPARISON : SIGN);
        return;
    }
    bool power = node->op == TNI_P_POW, chain = row->binds != COMPARISON && !power;
    print_node(p, node->arg[0], chain ? row->binds : power ? ATOM : row->binds + 1);
    tni_text_add(p->text, "%s", row->name);
    print_node(p, node->arg[1], power ? SIGN : row->binds + 1);
}

/* n, *s, and the parts of them: "c / groups", "*s / axes". */
static bool is_name(const char *key) {
    const char *by = strstr(key, " / ");
    const char *rest = by ? by + 3 : key + (*key == '*');
    return !strpbrk(rest, " +-*/%()[]") && !(rest[0] >= '0' && rest[0] <= '9') &&
           (!by || (size_t)(by - key) == strcspn(key, " +-/%()[]"));
}

/* The place of item k: from the front where no pack stands before it, else from the end. */
static int number_of(const tni_graph *g, int k) {
    int n = 0, behind = 0;
    bool pack = false;
    for (int i = 0; i < k; i++) pack |= g->items[i] && g->items[i][0] == '*';
    for (int i = 0; i < TN_MAX_RANK && g->items[i]; i++) {
        const char *by = strstr(g->items[i], " / ");
        const bool second = by && i > 0 && strcmp(by + 3, g->items[i - 1]) == 0; /* the two parts of one are one */
        n += i < k && !second;
        behind += i > k && !second;
    }
    return pack ? -1 - behind : n;
}

/* A size such as 2 * n has no name: it is told by its place. */
static void print_items(printer *p, uint32_t items) {
    const char *before = items & (items - 1) ? "axis=[" : "axis=";
    for (int k = 0; k < TN_MAX_RANK; k++) {
        const char *key = p->g->items[k];
        if (!(items >> k & 1) || !key) continue;
        tni_text_add(p->text, "%s", before);
        before = ", ";
        if (is_name(key) || strncmp(key, "size(", 5) == 0) {
            tni_text_add(p->text, "%s", key + (key[0] == '*'));
        } else {
            tni_text_add(p->text, "%d", number_of(p->g, k));
        }
    }
    if (items & (items - 1)) tni_text_add(p->text, "]");
}

/* The last dimension where it is told by its name: where it is `c / groups`, as -1 would be all of c, or where nothing
 * says that it is the last. -1: it is not. */
static int last_named(const tni_graph *g) {
    const int last = g->n_items - 1;
    return last >= 0 && ((g->windows && !g->tail_pack) || g->names_tail || strstr(g->items[last], " / ")) ? last : -1;
}

static void print_reach(printer *p, const tni_gnode *node, bool alone) {
    const bool extreme = node->op == TNI_P_RMAX || node->op == TNI_P_RMIN; /* max(a, -1) could mean two things */
    const int last = last_named(p->g);
    if (node->kind == TNI_OVER_ALL) return;
    if (!alone) tni_text_add(p->text, ", ");
    if (tni_is_over_items(node->kind)) {
        print_items(p, tni_items_over(node->kind));
    } else if (last >= 0) {
        print_items(p, 1u << last);
    } else {
        tni_text_add(p->text, extreme ? "axis=-1" : "-1");
    }
}

static void print_function(printer *p, const tni_gnode *node) {
    const char *name = node->op == TNI_P_CAST ? tn_type_name((tn_type)node->kind) : tni_prims[node->op].name;
    tni_text_add(p->text, "%s(", name);
    for (int k = 0; k < TNI_NODE_ARGS && node->arg[k] >= 0; k++) {
        if (k) tni_text_add(p->text, ", ");
        print_node(p, node->arg[k], 0);
    }
    if (tni_reaches(node->op)) print_reach(p, node, false);
    tni_text_add(p->text, ")");
}

/* scan('a * s + x', a=t1, axis=n, start=0.0): what is called as in the step has its name there alone. */
static void print_scan(printer *p, int32_t i) {
    tni_scan_call call;
    char name[TNI_MAX_NAME + 1];
    if (tni_scan_of(p->g, i, &call) != TN_OK) {
        p->text->failed = true;
        return;
    }
    const char *names = call.names;
    tni_text_add(p->text, "%s('%s'", call.output == TNI_SCAN_LAST ? "reduce" : "scan", call.step);
    for (int32_t k = 0; tni_scan_next_name(&names, name); k++) {
        const size_t begin = p->text->length;
        tni_text_add(p->text, ", %s=", strcmp(name, "-") == 0 ? "like" : name);
        const size_t value = p->text->length;
        print_node(p, call.values[k], 0);
        if (!p->text->failed && strcmp(p->text->data + value, name) == 0) p->text->length = begin;
    }
    tni_text_add(p->text, ", start=");
    if (call.start >= 0) {
        print_node(p, call.start, 0);
    } else {
        tni_text_double(p->text, call.first);
    }
    const char *key = p->g->items[call.along];
    if (key && key[0] != '*') {
        tni_text_add(p->text, ", ");
        print_items(p, 1u << call.along);
    }
    if (call.reverse) tni_text_add(p->text, ", reverse=true");
    if (call.output == TNI_SCAN_BEFORE) tni_text_add(p->text, ", result='before'");
    tni_text_add(p->text, ")");
    tni_scan_free(&call);
}

/* gather(x, i, axis=0): tensors by their places, or by name where one before them is absent. */
static void print_coarse(printer *p, const tni_gnode *node) {
    const tni_coarse *call = &p->g->calls[node->ref];
    const tni_contract *c = call->op->contract;
    tni_text_add(p->text, "%s(", c->name);
    for (int k = 0; k < call->n_args; k++) {
        const int to = call->to[k];
        int left = 0;
        const bool shape = to < 0 && tni_gives_shape(call->axis[k], &left), own = call->axis[k] == TNI_NO_SIZE;
        if (k) tni_text_add(p->text, ", ");
        if (to != k) tni_text_add(p->text, "%s=", to < 0 ? c->attrs[-1 - to].name : c->inputs[to].name);
        if (to < 0 && !own) tni_text_add(p->text, shape ? "shape(" : "size(");
        print_node(p, node->arg[k], 0);
        if (to < 0 && !shape && !own) tni_text_add(p->text, ", %d", call->axis[k]);
        if (shape && left) tni_text_add(p->text, ", %d", left);
        if (to < 0 && !own) tni_text_add(p->text, ")");
    }
    for (const char *s = call->attrs; *s;) { /* "axis=0 mode='a b'": blanks in brackets and quotes are no ends */
        int n = 0, open = 0;
        bool quoted = false;
        for (; s[n] && (quoted || open || s[n] != ' '); n++) {
            quoted ^= s[n] == '\'';
            open += quoted ? 0 : (s[n] == '[') - (s[n] == ']');
        }
        tni_text_add(p->text, ", %.*s", n, s);
        s += n + (s[n] == ' ');
    }
    if (call->output) tni_text_add(p->text, ", result='%s'", c->outputs[call->output].name);
    tni_text_add(p->text, ")");
}

/* window(x, n, 1, size(n - 1)), window(x, n, 0, size(floor((n + 1) / 2)), 2), join(a, b, n, 3), flip(x, n) */
static void print_part(printer *p, const tni_gnode *node) {
    const tni_window *window = &p->g->windows[node->kind];
    const char *from = window->from < 0 ? "size(1)" : p->g->items[window->from];
    const char *to = window->to < 0 ? "size(1)" : p->g->items[window->to];
    tni_text_add(p->text, "%s(", tni_prims[node->op].name);
    for (int k = 0; k < tni_prims[node->op].arity; k++) {
        print_node(p, node->arg[k], 0);
        tni_text_add(p->text, ", ");
    }
    tni_text_add(p->text, "%s", from);
    if (node->op != TNI_P_FLIP) tni_text_add(p->text, ", %s", window->text);
    if (node->op == TNI_P_TAKE) tni_text_add(p->text, ", %s", to);
    if (node->op == TNI_P_TAKE && window->step > 1)
        tni_text_add(p->text, window->spreads ? ", 1 / %d" : ", %d", (int)window->step);
    tni_text_add(p->text, ")");
}

static void print_operation(printer *p, int32_t i, int lowest) {
    const tni_gnode *node = &p->g->nodes[i];
    const tni_prim_row *row = &tni_prims[node->op];
    if (node->op == TNI_P_CONST) {
        size_t begin = p->text->length;
        if (print_const(p, node) >= lowest || p->text->failed) return;
        p->text->length = begin;
        tni_text_add(p->text, "(");
        print_const(p, node);
        tni_text_add(p->text, ")");
    } else if (node->op == TNI_P_ATTR_IS) {
        const tni_attr *attr = &p->c->attrs[node->ref];
        bool act = attr->kind == TNI_A_ACTIVATION;
        tni_text_add(p->text, "(%s == '%s')", attr->name,
                     act ? tni_activation_name((int16_t)node->value) : attr->choices[(int)node->value]);
    } else if (node->op == TNI_P_CALL && p->g->calls[node->ref].scans) {
        print_scan(p, i);
    } else if (node->op == TNI_P_CALL) {
        print_coarse(p, node);
    } else if (row->arity == 0) {
        print_leaf(p, node);
    } else if (tni_is_part(node->op)) {
        print_part(p, node);
    } else if (row->binds == 0) {
        print_function(p, node);
    } else {
        if (row->binds < lowest) tni_text_add(p->text, "(");
        print_operator(p, node);
        if (row->binds < lowest) tni_text_add(p->text, ")");
    }
}

/* In brackets where it binds less than `lowest`. */
static void print_node(printer *p, int32_t i, int lowest) {
    if (p->name[i]) {
        tni_text_add(p->text, "%s", p->name[i]);
    } else if (p->temporary[i]) {
        tni_text_add(p->text, "%s%d", p->prefix, (int)p->temporary[i]);
    } else {
        print_operation(p, i, lowest);
    }
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

static bool begins(const char *name, const char *prefix) {
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

static bool is_free(const tni_contract *c, const char *prefix) {
    for (int i = 0; i < c->n_inputs; i++) {
        if (begins(c->inputs[i].name, prefix)) return false;
    }
    for (int i = 0; i < c->n_outputs; i++) {
        if (begins(c->outputs[i].name, prefix)) return false;
    }
    for (int i = 0; i < c->n_attrs; i++) {
        if (begins(c->attrs[i].name, prefix)) return false;
    }
    return true;
}

static const char *free_prefix(const tni_contract *c) {
    static const char *const prefixes[] = {"t", "u", "t_", "u_", "tmp", "v_"};
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++) {
        if (is_free(c, prefixes[i])) return prefixes[i];
    }
    return "temporary_value_";
}

static void count_uses(printer *p, const tni_fuse_output *outputs, int32_t n) {
    const tni_graph *g = p->g;
    for (int32_t i = 0; i < n; i++) p->uses[outputs[i].node]++;
    for (int32_t i = g->n - 1; i >= 0; i--) {
        if (!p->uses[i]) continue;
        for (int k = 0; k < TNI_NODE_ARGS && g->nodes[i].arg[k] >= 0; k++) p->uses[g->nodes[i].arg[k]]++;
    }
    for (int32_t i = 0; i < g->n; i++) {
        const tni_gnode *node = &g->nodes[i];
        if (!p->uses[i] || tni_prims[node->op].arity == 0) continue;
        for (int k = 0; k < TNI_NODE_ARGS && node->arg[k] >= 0; k++) {
            if (p->depth[node->arg[k]] >= p->depth[i]) p->depth[i] = p->depth[node->arg[k]] + 1;
        }
        p->wants_name[i] |= p->uses[i] > 1 || p->depth[i] > p->nested;
        if (p->wants_name[i]) p->depth[i] = 0;
    }
}

/* Several updates: the new values are all made before the first one is written. */
static void name_updates(printer *p, const tni_fuse_output *outputs, int32_t n) {
    int32_t updates = 0;
    for (int32_t i = 0; i < n; i++) updates += outputs[i].inplace >= 0;
    for (int32_t i = 0; i < n; i++) {
        if (outputs[i].inplace >= 0 && updates > 1) p->wants_name[outputs[i].node] = true;
    }
}

static void separate(printer *p, bool *first) {
    tni_text_add(p->text, *first ? "" : "; ");
    *first = false;
}

/* A value that is used more than once, or written later, gets a name: that of the output that it is, if it is one. */
static void print_named(printer *p, const tni_fuse_output *outputs, int32_t n, int32_t i, int32_t *named, bool *first) {
    int32_t output = -1;
    separate(p, first);
    for (int32_t k = 0; k < n && output < 0; k++) {
        if (outputs[k].node == i && outputs[k].inplace < 0) output = k;
    }
    if (output >= 0) {
        tni_text_add(p->text, "%s = ", p->c->outputs[output].name);
    } else {
        tni_text_add(p->text, "%s%d = ", p->prefix, (int)++*named);
    }
    print_operation(p, i, 0);
    if (output >= 0) p->name[i] = p->c->outputs[output].name;
    if (output < 0) p->temporary[i] = *named;
}

/* Inputs come first: reading the text again, they are known before anything is computed. */
static void print_all(printer *p, const tni_fuse_output *outputs, int32_t n) {
    int32_t named = 0;
    bool first = true;
    for (int pass = 0; pass < 2; pass++) {
        for (int32_t i = 0; i < p->g->n; i++) {
            const bool now = (p->g->nodes[i].op == TNI_P_INPUT) == (pass == 0);
            if (now && p->uses[i] && p->wants_name[i]) print_named(p, outputs, n, i, &named, &first);
        }
    }
    for (int32_t k = 0; k < n; k++) {
        int32_t node = outputs[k].node;
        const char *name = outputs[k].inplace >= 0 ? p->c->inputs[outputs[k].inplace].name : p->c->outputs[k].name;
        if (p->name[node] && strcmp(p->name[node], name) == 0) continue;
        separate(p, &first);
        tni_text_add(p->text, "%s = ", name);
        print_node(p, node, 0);
    }
}

/* outputs: the contract's in order, then those that update inputs. */
void tni_print_statements(tni_text *text, const tni_graph *g, const tni_contract *contract,
                          const tni_fuse_output *outputs, int32_t n_outputs, int32_t nested) {
    printer *p = tni_calloc(1, sizeof *p);
    if (!p) {
        text->failed = true;
        return;
    }
    p->text = text;
    p->g = g;
    p->c = contract;
    p->prefix = free_prefix(contract);
    p->nested = nested;
    name_updates(p, outputs, n_outputs);
    count_uses(p, outputs, n_outputs);
    print_all(p, outputs, n_outputs);
    tni_free(p);
}
