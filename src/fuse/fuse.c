/* The formula object. */
#include "fuse.h"

#include <stdio.h>
#include <string.h>

#include "fuse/grad/gradient.h"
#include "fuse/lang/language.h"
#include "fuse/steps/formula_steps.h"
#include "operator.h"

/* Not as the name of an argument, axis=-1. */
static bool is_word_of(const char *text, const char *word) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";
    const size_t length = strlen(word);
    for (const char *s = text + strcspn(text, letters); *s; s += strcspn(s, letters)) {
        const size_t n = strspn(s, letters);
        const char *next = s + n + strspn(s + n, " ");
        const bool argument = next[0] == '=' && next[1] != '=';
        if (n == length && memcmp(s, word, n) == 0 && !argument) return true;
        s += n;
    }
    return false;
}

/* The signature in front, parsed alone. */
static tn_status parse_signature(tni_fuse *f, const char *text, int32_t end) {
    char *signature = tni_arena_text(f->arena, text, (size_t)end);
    if (!signature) return TN_NO_MEMORY;
    TN_TRY(tni_contract_parse(signature, &f->contract));
    if (!text[end])
        return tn_fail(
            TN_BAD_CONTRACT,
            "formula of '%s': expected ':' and the formula behind the signature at column %d\n  %.100s\n  %*s",
            f->contract->name, (int)end + 1, text, (int)(end < 100 ? end : 100) + 1, "^");
    for (int i = 0; i < f->contract->n_types; i++) f->graph.masks[i] = f->contract->types[i].mask;
    for (int i = 0; i < f->contract->n_attrs; i++) {
        if (is_word_of(text + end, f->contract->attrs[i].name)) f->said_attrs |= (uint64_t)1 << i;
    }
    f->signed_by_user = true;
    return tni_make_axes(f, &f->axes);
}

static void set_outputs(tni_fuse *f, const tni_scope *scope) {
    for (int i = 0; i < scope->n_outputs; i++) {
        f->outputs[f->n_outputs++] = (tni_fuse_output){scope->output_nodes[i], -1};
    }
    for (int i = 0; i < scope->n_inputs; i++) {
        if (scope->is_updated[i]) f->outputs[f->n_outputs++] = (tni_fuse_output){scope->updated_nodes[i], i};
    }
}

/* How a formula without a signature is read. */
typedef struct reading {
    uint32_t types;          /* what T stands for */
    int32_t n_front, n_back; /* dimensions that have names, from the front and from the end */
} reading;

/* [dim0, dim1, *dims, dim_1] */
static tn_status name_dims(tni_fuse *f, const reading *how) {
    const int32_t n = how->n_front + how->n_back + 1;
    if (n > TN_MAX_RANK) return tn_fail(TN_BAD_CONTRACT, "formula: axes name more than %d dimensions", TN_MAX_RANK);
    for (int32_t k = 0; k < n; k++) {
        char name[16];
        const bool pack = k == how->n_front;
        snprintf(name, sizeof name,
                 k < how->n_front ? "dim%d"
                 : pack           ? "*dims"
                                  : "dim_%d",
                 (int)(k < how->n_front ? k : n - k));
        f->axes.items[k].key = tni_arena_text(f->arena, name, strlen(name));
        f->axes.items[k].pack = pack;
        f->axes.items[k].source = -1;
        if (!f->axes.items[k].key) return TN_NO_MEMORY;
    }
    f->axes.n_items = f->axes.n_own = n;
    return TN_OK;
}

/* What is updated may be read elsewhere through a window; random numbers and positions in everything go by the places
 * in the whole. */
static tn_status check_parts(const tni_fuse *f, const tni_scope *scope) {
    for (int i = 0; i < scope->n_inputs; i++) {
        if (!scope->is_updated[i]) continue;
        return tn_fail(TN_BAD_CONTRACT, "formula of '%s': it takes parts of values, so it cannot update %s in place",
                       f->contract->name, scope->inputs[i] ? scope->inputs[i] : f->contract->inputs[i].name);
    }
    for (int32_t i = 0; i < f->graph.n; i++) {
        const tni_gnode *node = &f->graph.nodes[i];
        const char *what = node->op == TNI_P_RAND ? "draw random numbers"
                           : node->op == TNI_P_INDEX && node->ref < 0
                               ? "count positions in everything: index(x) counts them in x"
                               : NULL;
        if (!what) continue;
        return tn_fail(TN_BAD_CONTRACT, "formula of '%s': it takes parts of values, so it cannot %s", f->contract->name,
                       what);
    }
    return TN_OK;
}

/* a = cumsum(x * 2); b = sum(x, -1): what is handed on between operators needs the name of the last dimension, where
 * the one input says nothing else of it. */
static bool rows_beside_calls(const tni_fuse *f, const tni_scope *scope) {
    bool rows = false;
    for (int32_t i = 0; i < f->graph.n; i++) rows |= f->graph.nodes[i].extent.row != 0;
    return rows && f->graph.n_calls && scope->n_inputs == 1 && !scope->is_seed[0];
}

static tn_status parse(tni_fuse *f, const char *text, const tni_fuse_options *options, const reading *how) {
    tni_scope *scope = tni_calloc(1, sizeof *scope);
    if (!scope) return TN_NO_MEMORY;
    int32_t end = tni_signature_end(text);
    tn_status status = TN_OK;
    bool bare = end >= 0 && tni_is_bare(text), typed = end >= 0 && !bare;
    f->graph.masks[0] = how->types;
    const bool named = !typed && (how->n_front || how->n_back);
    if (named) status = name_dims(f, how);
    if (status == TN_OK && bare) status = tni_parse_bare(f, text, end, scope);
    if (typed) status = parse_signature(f, text, end);
    if (status == TN_OK) status = tni_parse_formula(f, text, end + 1, scope);
    if (status == TN_OK && typed) status = tni_check_reductions(f);
    if (status == TN_OK && !typed && !named && rows_beside_calls(f, scope)) {
        f->names_axes = true;
        if (f->n_back < 1) f->n_back = 1;
    }
    if (status == TN_OK && f->windows) status = check_parts(f, scope);
    const char *name = bare && scope->bare ? scope->bare->name : options && options->name ? options->name : "formula";
    f->statements = end + 1;
    if (status == TN_OK && f->takes_parts) {
        status = tni_name_parts(f, scope, name);
    } else if (status == TN_OK && !typed) {
        status = tni_make_contract(f, scope, name);
        f->signed_by_user = named; /* the items of the graph are those of the contract */
        if (status == TN_OK) status = tni_make_axes(f, &f->axes);
    }
    const bool again = (f->names_axes && !named) || f->takes_parts; /* with names, which operators may need */
    if (status == TN_OK) set_outputs(f, scope);
    if (status == TN_OK && !f->takes_parts) status = tni_find_groups(f);
    if (status == TN_OK && !again) status = tni_make_steps(f);
    tni_contract_free(scope->bare);
    tni_free(scope->attrs);
    tni_free(scope);
    return status;
}

static tn_status parse_as(const char *text, const tni_fuse_options *options, const reading *how, tni_fuse **made) {
    tni_fuse *f = tni_calloc(1, sizeof *f);
    *made = f;
    if (!f) return TN_NO_MEMORY;
    f->fast = options && options->fast;
    f->n_known = options && options->n_known ? options->n_known : tn_function_count();
    f->formula_of = tni_operator_formula;
    f->scanning = &tni_scans;
    tni_graph_init(&f->graph, f->fast);
    f->arena = tni_arena_new();
    return f->arena ? parse(f, text, options, how) : TN_NO_MEMORY;
}

/* Inputs without types are floats, unless the formula takes their bits. Where it cannot be one of integers either, the
 * message is that about floats. */
static tn_status parse_types(const char *text, const tni_fuse_options *options, reading *how, tni_fuse **made) {
    tn_status status = parse_as(text, options, how, made);
    if (status != TN_BAD_CONTRACT || !(*made)->takes_bits || how->types == TN_INTS) return status;
    char message[2048];
    snprintf(message, sizeof message, "%s", tn_last_error());
    tni_fuse_free(*made);
    how->types = TN_INTS;
    status = parse_as(text, options, how, made);
    if (status == TN_BAD_CONTRACT) tn_fail(status, "%s", message);
    return status;
}

static tn_status parse_signed(const char *signature, const char *statements, const tni_fuse_options *options,
                              tni_fuse **made) {
    const reading how = {.types = TN_FLOATS};
    tni_text text = {0};
    tni_text_add(&text, "%s : ", signature);
    tni_text_put(&text, statements);
    const tn_status status = text.failed ? TN_NO_MEMORY : parse_as(text.data, options, &how, made);
    tni_free(text.data);
    return status;
}

/* Without a contract no value has more dimensions than the inputs: x[1:] + x is a mistake there. */
static tn_status check_ranks(const tni_fuse *first, const tni_fuse *read) {
    for (int32_t i = 0; i < read->graph.n; i++) {
        int32_t n = 0;
        for (int32_t k = 0; k < read->axes.n_items; k++)
            n += !read->axes.items[k].pack && read->graph.nodes[i].extent.full >> k & 1;
        if (n <= first->n_front + first->n_back) continue;
        return tn_fail(TN_BAD_CONTRACT, "formula: parts of different sizes do not meet, as x[1:] + x: only with a "
                                        "contract in front would they be two dimensions; x[::2] and x[1::2] have one "
                                        "size where a contract says x: T[2 * n]");
    }
    return TN_OK;
}

/* A formula that takes parts, without a contract: it gets one. Its dimensions have names from the front or from the
 * end; what its results have is known when it has been read with them. */
static tn_status parse_parts(const char *text, const tni_fuse_options *options, tni_fuse **made) {
    tni_fuse *first = *made, *read = NULL;
    tni_text signature = {0};
    const char *statements = text + first->statements;
    *made = NULL;
    tn_status status = parse_signed(first->whole, statements, options, &read);
    if (status == TN_OK) status = check_ranks(first, read);
    if (status == TN_OK) {
        tni_text_put(&signature, first->signature);
        tni_print_results(&signature, read);
        status = signature.failed ? TN_NO_MEMORY : parse_signed(signature.data, statements, options, made);
    }
    tni_free(signature.data);
    tni_fuse_free(read);
    tni_fuse_free(first);
    return status;
}

tn_status tni_fuse_parse(const char *text, const tni_fuse_options *options, tni_fuse **made) {
    reading how = {.types = TN_FLOATS};
    *made = NULL;
    if (!text) return tn_fail(TN_BAD_CONTRACT, "formula: there is no text");
    if (strlen(text) > INT32_MAX / 2) return tn_fail(TN_BAD_CONTRACT, "formula: too long");
    tn_status status = parse_types(text, options, &how, made);
    if (status == TN_OK && (*made)->takes_parts) {
        status = parse_parts(text, options, made);
    } else if (status == TN_OK && (*made)->names_axes) { /* which axes there are is known now */
        how.n_front = (*made)->n_front;
        how.n_back = (*made)->n_back;
        tni_fuse_free(*made);
        status = parse_types(text, options, &how, made);
    }
    if (status == TN_OK) return TN_OK;
    tni_fuse_free(*made);
    *made = NULL;
    return status;
}

void tni_fuse_free(tni_fuse *f) {
    if (!f) return;
    tni_steps_free(f->steps);
    tni_graph_clear(&f->graph);
    tni_contract_free(f->contract);
    tni_arena_free(f->arena);
    tni_free(f);
}

/* The text of `text`, which the caller frees; NULL and a message where memory ran out. */
static char *finish(tni_text *text) {
    if (!text->failed) return text->data;
    tni_free(text->data);
    return NULL;
}

char *tni_fuse_print(const tni_fuse *f) {
    tni_text text = {0};
    char *contract = tni_contract_print(f->contract);
    if (!contract) return NULL;
    tni_text_add(&text, "%s : ", contract);
    tni_free(contract);
    tni_print_statements(&text, &f->graph, f->contract, f->outputs, f->n_outputs, TNI_NESTED);
    return finish(&text);
}

char *tni_fuse_print_apart(const tni_fuse *f) {
    tni_text text = {0};
    tni_print_statements(&text, &f->graph, f->contract, f->outputs, f->n_outputs, 0);
    return finish(&text);
}

static void print_type(tni_text *text, const tni_fuse *f, int type) {
    static const char *const words[] = {"int", "float", "some float", "some type"};
    const tni_contract *c = f->contract;
    if (type < TNI_TY_VAR) {
        tni_text_add(text, "%s", tn_type_name((tn_type)type));
    } else if (type < TNI_TY_WEAK_INT) {
        const char *variable = type % 16 < c->n_types ? c->types[type % 16].name : "T";
        tni_text_add(text, type < TNI_TY_ACC ? "%s" : "acc(%s)", variable);
    } else {
        tni_text_add(text, "%s", words[type - TNI_TY_WEAK_INT]);
    }
}

static const char *level_of(const tni_graph *g, const tni_gnode *node) {
    if (node->op == TNI_P_CONST || node->op == TNI_P_ATTR) return "constant";
    if (tni_is_scalar(node->extent)) return "scalar";
    return tni_has_tail(g, node->extent) ? "element" : "row";
}

char *tni_fuse_print_graph(const tni_fuse *f) {
    tni_text text = {0};
    for (int32_t i = 0; i < f->graph.n; i++) {
        const tni_gnode *node = &f->graph.nodes[i];
        tni_text_add(&text, "%d: ", (int)i);
        print_type(&text, f, node->type);
        tni_text_add(&text, " %s %s", level_of(&f->graph, node), tni_prims[node->op].name);
        if (node->op == TNI_P_CONST) tni_text_double(&text, node->value);
        if (node->op == TNI_P_INPUT) tni_text_add(&text, " %s", f->contract->inputs[node->ref].name);
        for (int k = 0; k < TNI_NODE_ARGS && node->arg[k] >= 0; k++) tni_text_add(&text, " %d", (int)node->arg[k]);
        tni_text_add(&text, "\n");
    }
    return finish(&text);
}

tn_status tni_fuse_grad(const tni_fuse *f, tni_fuse **grad, char **rule) {
    tni_text text = {0}, calls = {0};
    *grad = NULL;
    *rule = NULL;
    tni_gradient *made = tni_calloc(1, sizeof *made);
    if (!made) return TN_NO_MEMORY;
    made->f = f;
    tn_status status = tni_differentiate(made);
    if (status == TN_OK) status = tni_gradient_text(made, &text, &calls);
    tni_fuse_options options = {.fast = f->fast};
    if (status == TN_OK) status = tni_fuse_parse(text.data, &options, grad);
    if (status == TN_OK) {
        *rule = calls.data;
    } else {
        tni_free(calls.data);
    }
    tni_free(text.data);
    tni_graph_clear(&made->g);
    tni_free(made);
    return status;
}
