/* Operators that are formulas: rows of the table that have one instead of kernels, and those that tn_fuse makes. Such a
 * row gets the kernels below; what they run is parsed when the first call comes, or when the gradient is asked for. */
#include "operator.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <tenon/fuse.h>

#include "core/host/hash.h"
#include "core/layout/layout.h"
#include "core/run/plan.h"
#include "formula_kernel.h"
#include "fuse/lang/language.h"
#include "fuse/steps/formula_steps.h"

enum {
    BUCKETS = 256,
    KERNELS = 5,
    MOST_IDLE = 32, /* formulas that nobody holds and that are there all the same: whoever has the text comes again */
};

/* What the kernels of one operator find as their data. */
typedef struct formula {
    tn_op row;            /* as it came, with kernels */
    const tn_kernel *own; /* those that it came with; NULL: none */
    char *text;    /* all of the formula; the row's signature, ':' and statements where it is a row of the table */
    char *written; /* of operators by tn_fuse: as the user wrote it */
    char *name;    /* by which tn_fuse put it into the table; NULL: it did not */
    char *signature, *doc; /* of operators by tn_fuse: what the row says */
    bool fast;
    int32_t n_known; /* rows of the table that it may call; 0: all */
    _Atomic(tni_fuse *) parsed;
    const tn_function *op; /* by tn_fuse */
    uint64_t hash;
    struct formula *next;          /* in its bucket */
    int64_t refs;                  /* how often tn_fuse gave it and tn_fuse_release did not get it back */
    struct formula *newer, *older; /* of those that nobody holds */
    tn_kernel kernels[];           /* those that the row came with, KERNELS, {0} */
} formula;

/* Operators by tn_fuse. The lock is taken for a look-up, and never while something else is: whoever holds it waits for
 * nobody. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static formula *buckets[BUCKETS];
static formula *newest, *oldest; /* that nobody holds */
static int32_t n_idle;

static tn_status parsed_of(const formula *f, const tni_fuse **parsed) {
    *parsed = atomic_load_explicit(&f->parsed, memory_order_acquire);
    if (*parsed) return TN_OK;
    tni_fuse *made, *none = NULL;
    tni_fuse_options options = {f->name, f->fast, f->n_known};
    TN_TRY(tni_fuse_parse(f->text, &options, &made));
    if (atomic_compare_exchange_strong(&((formula *)f)->parsed, &none, made)) {
        *parsed = made;
    } else {
        tni_fuse_free(made); /* another thread was first */
        *parsed = none;
    }
    return TN_OK;
}

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

/* Lists are walked over as they lie in memory: tensor k of each must lie like that of the others, without gaps. What is
 * drawn at random goes by the order of the dimensions. */
static bool accepts(const tn_call *call) {
    const tni_fuse *parsed;
    if (parsed_of(call->kernel->data, &parsed) != TN_OK || !parsed->axes.list) return true; /* prepare says why not */
    const tni_contract *c = parsed->contract;
    const tn_slot *first = tni_list_of(parsed, call);
    bool drawn = false;
    for (int32_t i = 0; i < parsed->graph.n; i++) drawn |= parsed->graph.nodes[i].op == TNI_P_RAND;
    for (int i = 0; i < c->n_inputs + c->n_outputs; i++) {
        const tni_param *param = i < c->n_inputs ? &c->inputs[i] : &c->outputs[i - c->n_inputs];
        const tn_slot *arg = i < c->n_inputs ? &call->in[i] : &call->out[i - c->n_inputs];
        for (int32_t k = 0; k < arg->count && param->list; k++) {
            const tn_view *v = &arg->views[k], *like = &first->views[k];
            bool dense = tni_is_dense(v->ndim, v->shape, v->strides);
            bool alike = tni_is_permuted_dense(v->ndim, v->shape, v->strides) &&
                         memcmp(v->strides, like->strides, (size_t)v->ndim * sizeof *v->strides) == 0;
            if (!(drawn ? dense : alike)) return false;
        }
    }
    return true;
}

/* One of the two. */
typedef struct ready {
    tni_program *program;
    tni_prepared *steps;
} ready;

static void release(void *state) {
    ready *made = state;
    tni_program_free(made->program);
    tni_prepared_free(made->steps);
    tni_free(made);
}

/* Its program, or its steps with kernels of this name. */
static tn_status get_ready(const tn_call *call, const char *kernel, void **state) {
    const tni_fuse *parsed;
    TN_TRY(parsed_of(call->kernel->data, &parsed));
    ready *made = tni_calloc(1, sizeof *made);
    if (!made) return TN_NO_MEMORY;
    tn_status status = TN_OK;
    if (parsed->steps) {
        status = tni_prepare_steps(parsed, call, kernel, &made->steps);
    } else if (!kernel) {
        status = tni_fuse_bind(parsed, call, &made->program);
    }
    if (status == TN_OK) {
        *state = made;
    } else {
        release(made);
    }
    return status;
}

static tn_status prepare(const tn_call *call, void **state) {
    return get_ready(call, NULL, state);
}

static tn_status prepare_reference(const tn_call *call, void **state) {
    return get_ready(call, "ref", state);
}

static size_t workspace(const tn_call *call) {
    const ready *made = call->state;
    return made->steps ? tni_steps_workspace(made->steps) : made->program ? made->program->workspace : 0;
}

static tn_status run(const tn_call *call, void *state) {
    const ready *made = state;
    return made->steps ? tni_run_steps(made->steps, call) : tni_program_run(made->program, call);
}

static tn_status run_reference(const tn_call *call, void *state) {
    const ready *made = state;
    const tni_fuse *parsed;
    if (made->steps) return tni_run_steps(made->steps, call);
    TN_TRY(parsed_of(call->kernel->data, &parsed));
    return tni_fuse_reference(parsed, call);
}

static const formula *formula_of(const tn_op *row) {
    for (const tn_kernel *k = row->kernels; k && k->name; k++) {
        if (k->run == run) return k->data;
    }
    return NULL;
}

/* Each moved once. */
static tn_cost cost_of_tensors(const tn_call *call, const tni_contract *c) {
    tn_cost made = {0, 0};
    for (int i = 0; i < c->n_inputs + c->n_outputs; i++) {
        const tn_view *v = i < c->n_inputs ? tn_in(call, i) : tn_out(call, i - c->n_inputs);
        if (v) made.bytes += (double)tn_count(v) * (double)tn_type_size(v->type);
    }
    return made;
}

/* A kernel with a plan of its own has no program to ask. */
static tn_cost cost(const tn_call *call) {
    const formula *f = NULL;
    const tni_fuse *parsed;
    tn_cost made = {0, 0};
    const ready *state = call->kernel->run == run ? call->state : NULL;
    if (state && state->program) return state->program->cost;
    for (const tn_kernel *k = call->kernel; k->name && !f; k++)
        f = k->run == run || k->run == run_reference ? k->data : f;
    if (!f || parsed_of(f, &parsed) != TN_OK) return (tn_cost){0, 0};
    if (parsed->steps) return cost_of_tensors(call, parsed->contract);
    if (tni_fuse_cost(parsed, call, &made) != TN_OK) return (tn_cost){0, 0};
    return made;
}

/* `xs: [T[*s]]`: nothing else in a signature has a bracket behind a colon. */
static bool has_lists(const char *signature) {
    for (const char *s = strchr(signature, ':'); s; s = strchr(s + 1, ':')) {
        if (s[1 + strspn(s + 1, " \t\r\n")] == '[') return true;
    }
    return false;
}

/* How many kernels of a list are the operator's own, or (TNI_OF_GRADIENT) those of its gradient, which `to` gets. */
static int32_t take_kernels(const tn_kernel *list, uint32_t whose, tn_kernel *to) {
    int32_t n = 0;
    for (const tn_kernel *k = list; k && k->name; k++) {
        if ((k->flags & TNI_OF_GRADIENT) != whose) continue;
        if (to) {
            to[n] = *k;
            to[n].flags &= ~(uint32_t)TNI_OF_GRADIENT;
        }
        n++;
    }
    return n;
}

/* `list`: what come before the derived ones, as far as they are `whose`. */
static void set_kernels(formula *f, const tn_kernel *list, uint32_t whose) {
    static const tn_kernel made[KERNELS] = {
        {"fused", TN_CPU, 0, 0, TN_STRIDED, accepts, workspace, prepare, release, run, NULL},
        {"fused", TN_CUDA, 0, 0, TN_STRIDED, accepts, workspace, prepare, release, run, NULL},
        {"fused_dense", TN_CPU, 0, 0, 0, NULL, workspace, prepare, release, run, NULL},
        {"fused_dense", TN_CUDA, 0, 0, 0, NULL, workspace, prepare, release, run, NULL},
        {"ref", TN_CPU, 0, 0, TN_STRIDED | TN_ALIAS, NULL, workspace, prepare_reference, release, run_reference, NULL},
    };
    bool lists = has_lists(f->row.signature);
    for (int i = 0, n = take_kernels(list, whose, f->kernels); i < KERNELS; i++) {
        if (!made[i].flags && !lists) continue; /* nothing else is handed over dense */
        f->kernels[n] = made[i];
        f->kernels[n++].data = f;
    }
    f->row.kernels = f->kernels;
    if (!f->row.cost) f->row.cost = cost;
}

/* Steps write outputs before all of them have read the inputs. */
static void refuse_alias(formula *f, const tni_fuse *parsed) {
    for (tn_kernel *k = f->kernels; parsed->steps && k->name; k++) {
        if (k->run == run_reference) k->flags &= ~(uint32_t)TN_ALIAS;
    }
}

/* ---- rows of the table ------------------------------------------------------------------------------------------- */

static void free_formula(formula *f) {
    if (!f) return;
    tni_fuse_free(atomic_load(&f->parsed));
    tni_free(f->text);
    tni_free(f->written);
    tni_free(f->name);
    tni_free(f->signature);
    tni_free(f->doc);
    tni_free(f);
}

static tn_status complete(const tn_op *row, const tn_op **whole) {
    const int32_t n_own = take_kernels(row->kernels, 0, NULL);
    if (formula_of(row)) { /* a copy of a row that was completed before */
        *whole = row;
        return TN_OK;
    }
    formula *f = tni_calloc(1, sizeof *f + (size_t)(n_own + KERNELS + 1) * sizeof *f->kernels);
    if (!f) return TN_NO_MEMORY;
    tni_text text = {0};
    tni_text_add(&text, "%s : %s", row->signature, row->formula);
    f->text = text.data;
    if (text.failed) {
        free_formula(f);
        return TN_NO_MEMORY;
    }
    f->row = *row;
    f->own = row->kernels;
    set_kernels(f, f->own, 0);
    *whole = &f->row;
    return TN_OK;
}

/* A row may call those before it, and so never itself. */
static tn_status check(const tn_function *op) {
    formula *f = (formula *)formula_of(op->row);
    const tni_fuse *parsed;
    if (!f) return TN_OK;
    f->n_known = op->index;
    TN_TRY(parsed_of(f, &parsed));
    refuse_alias(f, parsed);
    return TN_OK;
}

static void drop(const tn_op *whole) {
    tni_steps_outlive(true); /* they may have gone before it */
    free_formula((formula *)formula_of(whole));
    tni_steps_outlive(false);
}

/* ---- tn_fuse ----------------------------------------------------------------------------------------------------- */

static uint64_t add_to_hash(uint64_t hash, const char *text, size_t bytes) {
    uint64_t word = 0;
    memcpy(&word, text, bytes < sizeof word ? bytes : sizeof word);
    return tni_hash_add(hash, word);
}

/* Of the text's length and some words of it: a gradient may have 16 KB, and is looked up at every call. What is found
 * is compared whole. */
static uint64_t hash_of(const char *text, const char *name, bool fast) {
    enum { WORD = sizeof(uint64_t), MOST = 32 };
    const size_t length = strlen(text), step = length / MOST > WORD ? length / MOST : WORD;
    uint64_t hash = 2 * length + fast;
    for (size_t i = 0; i < length; i += step) hash = add_to_hash(hash, text + i, length - i);
    if (length > WORD) hash = add_to_hash(hash, text + length - WORD, WORD);
    for (const char *s = name ? name : ""; *s; s++) hash = add_to_hash(hash, s, 1);
    return hash ^ hash >> 32;
}

static bool same_name(const char *a, const char *b) {
    return a && b ? strcmp(a, b) == 0 : a == b;
}

static void take_lock(void) {
    pthread_mutex_lock(&lock);
}

static void give_lock(void) {
    pthread_mutex_unlock(&lock);
}

/* A fork between the two would leave the child with a lock that nobody gives back. */
static void watch_forks(void) {
    pthread_atfork(take_lock, give_lock, give_lock);
}

static void leave_idle(formula *f) {
    *(f->newer ? &f->newer->older : &newest) = f->older;
    *(f->older ? &f->older->newer : &oldest) = f->newer;
    f->newer = f->older = NULL;
    n_idle--;
}

/* Under the lock. The caller has a reference to what is found. */
static formula *find(const char *text, const char *name, bool fast, uint64_t hash) {
    formula *f = buckets[hash % BUCKETS];
    while (f && !(f->hash == hash && f->fast == fast && same_name(f->name, name) && strcmp(f->written, text) == 0)) {
        f = f->next;
    }
    if (f && f->refs++ == 0 && !f->name) leave_idle(f);
    return f;
}

/* The same, and takes the lock for it. */
static formula *look_up(const char *text, const char *name, bool fast, uint64_t hash) {
    take_lock();
    formula *f = find(text, name, fast, hash);
    give_lock();
    return f;
}

/* The signature in front with another name. */
static char *renamed(const char *text, const char *name) {
    tni_text made = {0};
    const char *rest = text + strspn(text, " \t\r\n");
    while (*rest == '#') { /* comments before it go */
        rest += strcspn(rest, "\n");
        rest += strspn(rest, " \t\r\n");
    }
    rest += strcspn(rest, "(< \t\r\n");
    tni_text_add(&made, "%s%s", name, rest);
    if (!made.failed) return made.data;
    tni_free(made.data);
    return NULL;
}

/* One line for help texts. */
static char *doc_of(const char *text) {
    tni_text made = {0};
    tni_text_add(&made, "The formula %s", text);
    for (char *s = made.data; s && *s; s++) {
        if ((unsigned char)*s < ' ') *s = ' ';
    }
    if (!made.failed) return made.data;
    tni_free(made.data);
    return NULL;
}

/* `parsed` is the formula's from here on; NULL: it is parsed here. `of`: whose gradient it is; NULL: nobody's. */
static tn_status make_formula(const char *text, const char *name, bool fast, tni_fuse *parsed, const formula *of,
                              formula **made) {
    const tn_kernel *list = of ? of->own : NULL;
    const int32_t n_own = take_kernels(list, TNI_OF_GRADIENT, NULL);
    formula *f = tni_calloc(1, sizeof *f + (size_t)(n_own + KERNELS + 1) * sizeof *f->kernels);
    if (!f) {
        tni_fuse_free(parsed);
        return TN_NO_MEMORY;
    }
    atomic_store(&f->parsed, parsed);
    f->fast = fast;
    f->row.formula = f->written = tni_strdup(text);
    f->name = name ? tni_strdup(name) : NULL;
    f->doc = doc_of(text);
    f->text = name && tni_signature_end(text) >= 0 ? renamed(text, name) : tni_strdup(text);
    tn_status status = f->written && f->doc && f->text && (f->name || !name) ? TN_OK : TN_NO_MEMORY;
    const tni_fuse *whole = NULL;
    if (status == TN_OK) status = parsed_of(f, &whole);
    if (status == TN_OK) f->signature = tni_contract_print(whole->contract);
    if (status == TN_OK && !f->signature) status = TN_NO_MEMORY;
    if (status == TN_OK) {
        f->row.signature = f->signature;
        f->row.doc = f->doc;
        f->hash = hash_of(text, name, fast);
        set_kernels(f, list, TNI_OF_GRADIENT);
        refuse_alias(f, whole);
        *made = f;
    } else {
        free_formula(f);
    }
    return status;
}

/* Into the table: all threads but one are told that the name is taken, and look who has it. */
static tn_status add_named(formula *f) {
    const tn_op *row = &f->row;
    tn_status status = tni_table_add(&row, 1);
    if (status == TN_OK || status == TN_NO_MEMORY) {
        f->op = status == TN_OK ? tn_find(f->name) : NULL;
        return status;
    }
    char message[256];
    snprintf(message, sizeof message, "%s", tn_last_error());
    const tn_function *op = tn_find(f->name);
    const formula *other = op ? formula_of(op->row) : NULL;
    bool same = other && other->fast == f->fast && other->name && strcmp(other->written, f->written) == 0;
    return same ? TN_OK : tn_fail(status, "%s", message);
}

/* What is left of an operator when its last call is through. */
static void free_fused(tn_function *op) {
    formula *f = (formula *)formula_of(op->row);
    tni_plans_free(op);
    tni_operator_free(op);
    free_formula(f);
}

/* Puts it in its bucket, unless another thread was first; then that one's is the result. */
static const tn_function *publish(formula *f, tn_function *op) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    if (op) {
        op->unheld = free_fused;
        atomic_store(&op->holders, 1);
        tni_operator_keep(op);
    }
    take_lock();
    const formula *other = find(f->written, f->name, f->fast, f->hash);
    if (!other) {
        f->refs = 1;
        f->next = buckets[f->hash % BUCKETS];
        buckets[f->hash % BUCKETS] = f;
    }
    give_lock();
    if (!other) return f->op;
    if (op) {
        tni_operator_forget(op);
        tni_operator_let_go(op);
    }
    return other->op;
}

/* `parsed` and `of` as for make_formula. */
static tn_status fuse(const char *text, const char *name, bool fast, tni_fuse *parsed, const formula *of,
                      const tn_function **op) {
    formula *f = look_up(text, name, fast, hash_of(text, name, fast));
    if (f) {
        tni_fuse_free(parsed);
        *op = f->op;
        return TN_OK;
    }
    tn_function *made = NULL;
    TN_TRY(make_formula(text, name, fast, parsed, of, &f));
    tn_status status = name ? add_named(f) : tni_operator_make(&f->row, &made);
    if (status != TN_OK) {
        free_formula(f);
        return status;
    }
    if (name && !f->op) { /* it is in the table since another thread put it there */
        *op = tn_find(name);
        free_formula(f);
        return TN_OK;
    }
    if (!name) f->op = made;
    *op = publish(f, made);
    return TN_OK;
}

/* Out of its bucket: nobody finds it any more. */
static void remove_formula(formula *f) {
    formula **at = &buckets[f->hash % BUCKETS];
    while (*at != f) at = &(*at)->next;
    *at = f->next;
}

/* Under the lock: the formula that goes now that this one is held by nobody; NULL: none. */
static formula *retire(formula *f, bool stays) {
    if (stays) {
        f->older = newest;
        *(newest ? &newest->newer : &oldest) = f;
        newest = f;
        if (++n_idle <= MOST_IDLE) return NULL;
        f = oldest;
        leave_idle(f);
    }
    remove_formula(f);
    return f;
}

static void give_back(const tn_function *op, bool stays) {
    formula *f = op && op->unheld == free_fused ? (formula *)formula_of(op->row) : NULL, *gone = NULL;
    if (!f) return;
    take_lock();
    if (f->refs > 0 && --f->refs == 0) gone = retire(f, stays);
    give_lock();
    if (!gone) return;
    tni_operator_forget((tn_function *)gone->op);
    tni_operator_let_go(gone->op); /* goes now, or with the last call that is under way */
}

/* Whoever has no more than the text of it may come again: the last few stay. */
void tn_fuse_release(const tn_function *op) {
    give_back(op, true);
}

/* A gradient goes with its formula. */
static void release_gradient(const tn_function *called) {
    give_back(called, false);
}

tn_status tn_fuse(const char *text, const tn_fuse_options *options, const tn_function **op) {
    if (!op) return tn_fail(TN_BAD_VALUE, "tn_fuse: there is no place for the operator (NULL)");
    *op = NULL;
    if (!text) return tn_fail(TN_BAD_VALUE, "tn_fuse: the formula is NULL");
    return fuse(text, options ? options->name : NULL, options && options->fast, NULL, NULL, op);
}

/* ---- gradients --------------------------------------------------------------------------------------------------- */

/* What cannot be was not written by anybody: there is no place to point at. It is too large, or what the contract says
 * of shapes and types cannot be said of the gradient's. */
static tn_status not_written(const tni_fuse *parsed, tn_status status) {
    if (status != TN_BAD_CONTRACT) return status;
    char why[1024];
    snprintf(why, sizeof why, "%s", tn_last_error());
    why[strcspn(why, "\n")] = 0;
    return tn_fail(TN_UNSUPPORTED, "no gradient of '%s' can be derived: %s", parsed->contract->name, why);
}

static tn_status derive(const formula *f, char **rule, const tn_function **called) {
    const tni_fuse *parsed;
    tni_fuse *grad;
    TN_TRY(parsed_of(f, &parsed));
    TN_TRY(not_written(parsed, tni_fuse_grad(parsed, &grad, rule)));
    char *text = tni_fuse_print(grad);
    tn_status status = text ? not_written(parsed, fuse(text, NULL, f->fast, grad, f, called)) : TN_NO_MEMORY;
    if (!text) tni_fuse_free(grad);
    tni_free(text);
    if (status != TN_OK) {
        tni_free(*rule);
        *rule = NULL;
    }
    return status;
}

static tn_status gradient(const tn_op *whole, char **rule, const tn_function **called) {
    const formula *f = formula_of(whole);
    *rule = NULL;
    *called = NULL;
    if (!f) return TN_OK;
    tn_status status = derive(f, rule, called);
    /* No derivative, or one that is too large to be written: an operator without a gradient, and no failure. */
    return status == TN_UNSUPPORTED ? TN_OK : status;
}

tn_status tn_fuse_gradient(const tn_function *op, const tn_function **made) {
    if (!op || !made) return tn_fail(TN_BAD_VALUE, "tn_fuse_gradient: the operator or its place is NULL");
    const formula *f = formula_of(op->row);
    *made = NULL;
    if (!f) return tn_fail(TN_UNSUPPORTED, "%s: is no formula", op->contract->name);
    char *rule;
    TN_TRY(derive(f, &rule, made));
    tni_free(rule);
    return TN_OK;
}

tn_status tni_operator_formula(const tn_function *op, const tni_fuse **parsed) {
    const formula *f = formula_of(op->row);
    for (const tn_kernel *k = f ? NULL : op->row->kernels; k && k->name; k++) {
        if (k->run == tni_formula_kernel_run) return tni_formula_kernel_parsed(k, op->contract->name, parsed);
    }
    if (!f) return tn_fail(TN_UNSUPPORTED, "%s: is no formula", op->contract->name);
    return parsed_of(f, parsed);
}

/* The operators are gone, and what they were made of goes. */
static void forget(void) {
    tni_steps_outlive(true);
    take_lock();
    for (int i = 0; i < BUCKETS; i++) {
        for (formula *f = buckets[i], *next; f; f = next) {
            next = f->next;
            free_formula(f);
        }
        buckets[i] = NULL;
    }
    newest = oldest = NULL;
    n_idle = 0;
    give_lock();
    tni_steps_outlive(false);
    tni_formula_kernels_forget();
    tni_scans_forget();
}

const tni_formulas tni_fused_rows = {complete, check, drop, gradient, release_gradient, forget};
