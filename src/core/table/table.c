/* The table: rows compiled in, then those of plugins. Rows are only ever added, so look-ups take no lock. */
#include <pthread.h>
#include <string.h>

#include "core/host/device.h"
#include "core/host/memory.h"
#include "sample.h"
#include "table.h"

enum { MOST = 4096, SLOTS = 2 * MOST };

static _Atomic(tn_function *) operators[MOST];
static _Atomic(tn_function *) slots[SLOTS]; /* by name, open addressing; never more than half full */
static _Atomic int count;
static _Atomic bool ready;                                  /* the rows compiled in are there */
static _Atomic bool complete;                               /* and those of TENON_PLUGINS */
static _Thread_local bool completing;                       /* by this thread */
static pthread_mutex_t startup = PTHREAD_MUTEX_INITIALIZER; /* of whoever completes it */
static int n_builtin;                                       /* rows compiled in */
static tn_function *kept;                                   /* operators that are in no table */
static const tni_formulas *formulas;                        /* NULL: nobody compiles them */
static const tn_op *const *builtin;                         /* families compiled in: {0} ends each, NULL all */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;    /* of whoever adds */
static pthread_mutex_t keeping = PTHREAD_MUTEX_INITIALIZER; /* of `kept` */

static uint32_t hash_name(const char *name) {
    uint32_t h = 2166136261u;
    for (; *name; name++) h = (h ^ (uint8_t)*name) * 16777619u;
    return h;
}

/* The slot that holds the name, or the empty one where it belongs. */
static uint32_t slot_of(const char *name) {
    uint32_t i = hash_name(name) % SLOTS;
    for (;; i = (i + 1) % SLOTS) {
        tn_function *op = atomic_load_explicit(&slots[i], memory_order_acquire);
        if (!op || strcmp(op->contract->name, name) == 0) return i;
    }
}

static tn_status check_row(const tn_op *row, const tni_contract *contract) {
    const char *name = contract->name;
    const char *cast = row->autocast;
    if (!row->doc) return tn_fail(TN_BAD_CONTRACT, "%s: the row has no doc", name);
    if (cast && strcmp(cast, "16") != 0 && strcmp(cast, "32") != 0 && strcmp(cast, "widest") != 0) {
        return tn_fail(TN_BAD_CONTRACT, "%s: autocast is '%.100s', needs '16', '32' or 'widest'", name, cast);
    }
    if (!row->kernels || !row->kernels[0].name) {
        return tn_fail(TN_BAD_CONTRACT, "%s: the row has no kernels", name);
    }
    const tn_kernel *k = row->kernels;
    for (; k->name; k++) {
        if (!k->run) return tn_fail(TN_BAD_CONTRACT, "%s: kernel '%s' has no run function", name, k->name);
        if (!tni_device_of((int32_t)k->device)) {
            return tn_fail(TN_BAD_CONTRACT, "%s: kernel '%s' names no device of this build", name, k->name);
        }
    }
    if (k->run) { /* it would be left out without a word, and with it the reference, most often */
        return tn_fail(TN_BAD_CONTRACT, "%s: kernel %d of the list has a run function and no name, which ends the list",
                       name, (int)(k - row->kernels) + 1);
    }
    return TN_OK;
}

void tni_set_formulas(const tni_formulas *with) {
    formulas = with;
}

void tni_set_builtin(const tn_op *const *families) {
    builtin = families;
}

static void drop_rule(const tni_rule *rule) {
    const tn_function *called = rule ? rule->called : NULL;
    tni_rule_free((tni_rule *)rule);
    if (called) formulas->release(called);
}

void tni_operator_free(tn_function *op) {
    if (!op) return;
    drop_rule(atomic_load(&op->rule));
    if (op->completed) formulas->drop(op->row);
    tni_contract_free(op->contract);
    tni_free(op);
}

/* Kernels from the formula, unless the row comes with some that were made from it. */
static tn_status complete_row(tn_function *op) {
    if (!op->row->formula) return TN_OK;
    if (!formulas) {
        return tn_fail(TN_UNSUPPORTED, "%s: is a formula, which this program cannot compile", op->contract->name);
    }
    const tn_op *whole;
    TN_TRY(formulas->complete(op->row, &whole));
    op->completed = whole != op->row;
    op->row = whole;
    return TN_OK;
}

tn_status tni_operator_make(const tn_op *row, tn_function **made) {
    if (!row || !row->signature) return tn_fail(TN_BAD_CONTRACT, "a row of the table has no signature");
    tn_function *op = tni_calloc(1, sizeof *op);
    if (!op) return TN_NO_MEMORY;
    op->row = row;
    op->index = -1;
    tn_status status = tni_contract_parse(row->signature, &op->contract);
    if (status == TN_OK) status = complete_row(op);
    if (status == TN_OK) status = check_row(op->row, op->contract);
    if (status != TN_OK) {
        tni_operator_free(op);
        return status;
    }
    *made = op;
    return TN_OK;
}

void tni_operator_keep(tn_function *op) {
    tni_operators_lock();
    op->before = NULL;
    op->next = kept;
    if (kept) kept->before = op;
    kept = op;
    tni_operators_unlock();
}

void tni_operator_forget(tn_function *op) {
    tni_operators_lock();
    *(op->before ? &op->before->next : &kept) = op->next;
    if (op->next) op->next->before = op->before;
    tni_operators_unlock();
}

tn_function *tni_operators_kept(void) {
    return kept;
}

void tni_operators_lock(void) {
    pthread_mutex_lock(&keeping);
}

void tni_operators_unlock(void) {
    pthread_mutex_unlock(&keeping);
}

/* The operator that its rule calls goes by itself. */
static void free_alone(tn_function *op) {
    tni_rule_free((tni_rule *)atomic_exchange(&op->rule, NULL));
    tni_operator_free(op);
}

void tni_table_clear(void (*free_plans)(tn_function *op)) {
    pthread_mutex_lock(&lock);
    const int n = atomic_load(&count);
    for (int i = 0; i < n; i++) free_plans(atomic_load(&operators[i]));
    for (tn_function *op = kept; op; op = op->next) free_plans(op);
    atomic_store(&ready, false);
    atomic_store(&complete, false);
    atomic_store(&count, 0);
    for (int i = 0; i < SLOTS; i++) atomic_store_explicit(&slots[i], NULL, memory_order_relaxed);
    for (int i = 0; i < n; i++) free_alone(atomic_exchange(&operators[i], NULL));
    for (tn_function *op = kept, *next; op; op = next) {
        next = op->next;
        free_alone(op);
    }
    kept = NULL;
    if (formulas && formulas->forget) formulas->forget();
    pthread_mutex_unlock(&lock);
}

/* Makes the rows known to look-ups; they are complete before anybody can see them. */
static void publish(tn_function *const *made, int n) {
    int first = atomic_load(&count);
    for (int i = 0; i < n; i++) {
        made[i]->index = first + i;
        atomic_store_explicit(&operators[first + i], made[i], memory_order_release);
        atomic_store_explicit(&slots[slot_of(made[i]->contract->name)], made[i], memory_order_release);
    }
    atomic_store_explicit(&count, first + n, memory_order_release);
}

/* Takes the last n rows back. Whoever has found one in between keeps it. */
static void take_back(int n) {
    const int first = atomic_load(&count) - n;
    atomic_store_explicit(&count, first, memory_order_release);
    for (int i = first + n - 1; i >= first; i--) {
        tn_function *op = atomic_load(&operators[i]);
        atomic_store_explicit(&slots[slot_of(op->contract->name)], NULL, memory_order_release);
        tni_operator_keep(op);
    }
}

static tn_status fail_taken(const char *from, const char *name, const char *owner, bool of_file) {
    if (!from) return tn_fail(TN_BAD_CONTRACT, "%s: %s already has an operator of this name", name, owner);
    return tn_fail(TN_BAD_CONTRACT, "%s: its operator '%s' is refused: %s already has an operator of this name%s", from,
                   name, owner, of_file ? "" : "; call yours something else");
}

static tn_status make_all(const tn_op *const *rows, int n, const char *from, tn_function **made) {
    for (int i = 0; i < n; i++) {
        TN_TRY(tni_operator_make(rows[i], &made[i]));
        made[i]->from = from;
        const char *name = made[i]->contract->name;
        const tn_function *taken = atomic_load(&slots[slot_of(name)]);
        if (taken) return fail_taken(from, name, taken->from ? taken->from : "the table", taken->from != NULL);
        for (int j = 0; j < i; j++) {
            if (strcmp(made[j]->contract->name, name) == 0) return fail_taken(from, name, "the same list", true);
        }
    }
    return TN_OK;
}

/* All rows or none. The caller holds the lock. */
static tn_status add_rows(const tn_op *const *rows, int n, const char *from) {
    if (n > MOST - atomic_load(&count)) return tn_fail(TN_BAD_VALUE, "the table holds at most %d operators", MOST);
    tn_function **made = tni_calloc((size_t)n, sizeof *made);
    if (!made) return TN_NO_MEMORY;
    tn_status status = make_all(rows, n, from, made);
    if (status == TN_OK) {
        publish(made, n);
    } else {
        for (int i = 0; i < n; i++) tni_operator_free(made[i]);
    }
    tni_free(made);
    return status;
}

static tn_status add_builtin_locked(void) {
    if (atomic_load(&ready)) return TN_OK;
    const tn_op *rows[MOST + 1]; /* one more than add_rows takes */
    int n = 0;
    for (const tn_op *const *family = builtin; family && *family; family++) {
        for (const tn_op *row = *family; row->signature && n <= MOST; row++) rows[n++] = row;
    }
    TN_TRY(add_rows(rows, n, NULL));
    n_builtin = n;
    atomic_store_explicit(&ready, true, memory_order_release);
    return TN_OK;
}

static tn_status add_builtin(void) {
    pthread_mutex_lock(&lock);
    tn_status status = add_builtin_locked();
    pthread_mutex_unlock(&lock);
    return status;
}

/* A failure (no memory) is not kept: the next call tries again. Files that are loaded here ask the table themselves:
 * they get what is there. */
tn_status tni_table_ready(void) {
    if (atomic_load_explicit(&complete, memory_order_acquire)) return TN_OK;
    if (completing) return atomic_load(&ready) ? TN_OK : add_builtin();
    pthread_mutex_lock(&startup);
    tn_status status = add_builtin();
    if (status == TN_OK && !atomic_load(&complete)) {
        completing = true;
        tni_plugins_load_named();
        completing = false;
        atomic_store_explicit(&complete, true, memory_order_release);
    }
    pthread_mutex_unlock(&startup);
    return status;
}

/* Whoever reads the table reads its samples: one that says nothing would be in the way of all rows. */
static tn_status check_samples(const tn_function *op) {
    for (const tn_sample *s = op->row->samples; s && s->args; s++) {
        tni_case *made;
        TN_TRY(tni_sample_case(op->contract, s->args, tni_sample_type(op->contract), &made));
        tni_case_free(made);
    }
    return TN_OK;
}

static tn_status add(const tn_op *const *rows, int n, const char *from) {
    TN_TRY(tni_table_ready()); /* not with the lock: it may load files */
    pthread_mutex_lock(&lock);
    tn_status status = add_rows(rows, n, from);
    const int first = atomic_load(&count) - n;
    bool bad = false; /* rules may call each other's rows, so these are all there first */
    for (int i = 0; status == TN_OK && i < n; i++) {
        const tn_function *op = atomic_load(&operators[first + i]);
        const tni_rule *rule;
        if (op->row->formula) status = formulas->check(op);
        if (status == TN_OK && rows[i]->grad) status = tni_operator_rule(op, &rule);
        if (status == TN_OK) status = check_samples(op);
        bad = status != TN_OK;
    }
    if (bad) take_back(n);
    pthread_mutex_unlock(&lock);
    return status;
}

tn_status tni_table_add(const tn_op *const *rows, int n) {
    return add(rows, n, NULL);
}

tn_status tni_table_add_plugin(const tn_op *const *rows, int n, const char *from) {
    return add(rows, n, from);
}

/* The operator that was meant, for the message; NULL: there is none that one could mean. */
static const char *nearest(const char *name) {
    const char *best = NULL;
    int least = 0;
    for (int i = 0; i < tn_function_count(); i++) {
        const char *other = tn_function_name(tn_function_at(i));
        int distance = tni_misspelt(name, other);
        if (!distance || (least && distance >= least)) continue;
        least = distance;
        best = other;
    }
    return best;
}

const tn_function *tn_find(const char *name) {
    if (!name) {
        tn_fail(TN_NOT_FOUND, "no operator: the name is NULL");
        return NULL;
    }
    if (tni_table_ready() != TN_OK) return NULL;
    const tn_function *op = atomic_load_explicit(&slots[slot_of(name)], memory_order_acquire);
    if (op) return op;
    const char *close = nearest(name);
    if (close) {
        tn_fail(TN_NOT_FOUND, "there is no operator '%s'; did you mean '%s'?", name, close);
    } else {
        tn_fail(TN_NOT_FOUND, "there is no operator '%s'; `tenon ops` lists them", name);
    }
    return NULL;
}

int tni_table_builtin(void) {
    return tni_table_ready() == TN_OK ? n_builtin : 0;
}

int tn_function_count(void) {
    return tni_table_ready() == TN_OK ? atomic_load_explicit(&count, memory_order_acquire) : 0;
}

const tn_function *tn_function_at(int index) {
    const int n = tn_function_count();
    if (index < 0 || index >= n) {
        if (n) tn_fail(TN_NOT_FOUND, "there is no operator %d; the table has %d", index, n);
        return NULL;
    }
    return atomic_load_explicit(&operators[index], memory_order_acquire);
}

const char *tn_function_name(const tn_function *op) {
    if (!op) tn_fail(TN_BAD_VALUE, "tn_function_name: the operator is NULL");
    return op ? op->contract->name : NULL;
}

const tn_op *tn_function_row(const tn_function *op) {
    if (!op) tn_fail(TN_BAD_VALUE, "tn_function_row: the operator is NULL");
    return op ? op->row : NULL;
}

/* The rule as written, or as derived from the formula; *rule is NULL where there is none. */
static tn_status make_rule(const tn_function *op, tni_rule **rule) {
    char *text;
    const tn_function *called;
    *rule = NULL;
    if (op->row->grad) return tni_rule_parse(op->contract, op->row->grad, rule);
    if (!op->row->formula || op->no_rule) return TN_OK;
    TN_TRY(formulas->gradient(op->row, &text, &called));
    if (!text) {
        atomic_store(&((tn_function *)op)->no_rule, true);
        return TN_OK;
    }
    tn_status status = tni_rule_parse_with(op->contract, text, called, rule);
    tni_free(text);
    if (status == TN_OK) {
        (*rule)->called = called;
    } else {
        formulas->release(called);
    }
    return status;
}

tn_status tni_operator_rule(const tn_function *op, const tni_rule **rule) {
    *rule = atomic_load_explicit(&op->rule, memory_order_acquire);
    if (*rule) return TN_OK;
    tni_rule *parsed;
    TN_TRY(make_rule(op, &parsed));
    if (!parsed) return TN_OK;
    /* Two threads may have parsed it; the first to get here wins. */
    const tni_rule *none = NULL;
    if (atomic_compare_exchange_strong(&((tn_function *)op)->rule, &none, parsed)) {
        *rule = parsed;
    } else {
        drop_rule(parsed);
        *rule = none;
    }
    return TN_OK;
}

const char *tn_version(void) {
    return TENON_VERSION;
}
