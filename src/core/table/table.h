/* The table of operators. */
#ifndef TNI_TABLE_H
#define TNI_TABLE_H

#include <stdatomic.h>

#include "grad_rule.h"

struct tn_function {
    const tn_op *row;
    tni_contract *contract;
    int32_t index;                     /* in the table; -1: in none */
    bool completed;                    /* the row was made from a formula */
    bool of_plugin;                    /* its functions do not enter the device by themselves */
    struct tn_function *next, *before; /* of those in no table */
    /* Of one that may go: its owner and every call under way hold it, and the last to let go calls `unheld`, which
     * frees it. Others have no `unheld`, and stay. */
    _Atomic int32_t holders;
    void (*unheld)(struct tn_function *op);
    _Atomic(const tni_rule *) rule;    /* parsed when first asked for: tni_operator_rule */
    _Atomic(bool) no_rule;             /* there is none: a formula that cannot be differentiated */
    _Atomic(struct tni_plans *) plans; /* of core/run: calls seen before; made by the first call */
};

/* The operator's gradient rule; *rule is NULL where it has none. */
tn_status tni_operator_rule(const tn_function *op, const tni_rule **rule);
/* Adds all rows or, with a message, none. The rows must stay where they are. */
tn_status tni_table_add(const tn_op *const *rows, int n);
tn_status tni_table_add_plugin(const tn_op *const *rows, int n); /* the same of a plugin's rows */
/* An operator that is in no table, and nobody knows until tni_operator_keep. */
tn_status tni_operator_make(const tn_op *row, tn_function **made);
void tni_operator_free(tn_function *op); /* with its gradient rule, not with plans; NULL is fine */
void tni_operator_keep(tn_function *op);
void tni_operator_forget(tn_function *op); /* takes that back */
/* The last one that is kept; the others follow by `next`, for whoever has the lock. */
tn_function *tni_operators_kept(void);
void tni_operators_lock(void);
void tni_operators_unlock(void);

static inline void tni_operator_hold(const tn_function *op) {
    if (op->unheld) atomic_fetch_add_explicit(&((tn_function *)op)->holders, 1, memory_order_relaxed);
}
static inline void tni_operator_let_go(const tn_function *op) {
    tn_function *held = (tn_function *)op;
    if (op->unheld && atomic_fetch_sub_explicit(&held->holders, 1, memory_order_acq_rel) == 1) held->unheld(held);
}
/* Frees all operators, those in no table too, and before that, with `free_plans`, the plans of each. The next call
 * reads the rows compiled in again. */
void tni_table_clear(void (*free_plans)(tn_function *op));
void tni_plugins_close(void); /* behind tni_table_clear, whose rows are in them */
/* Families of rows that are there from the start: {0} ends the rows of each, NULL the list. Read when the table is
 * first asked for something. */
void tni_set_builtin(const tn_op *const *families);

/* Rows with a formula: whoever can compile one says so. The table knows formulas by this alone; without it, such rows
 * are refused. */
typedef struct tni_formulas {
    /* The row with kernels that run its formula. It stays, unless drop is called. Looks at the formula when it must. */
    tn_status (*complete)(const tn_op *row, const tn_op **whole);
    /* Whether the formula of an operator of the table can be read, with the rows before it: the message names the row
     * and points at the place. */
    tn_status (*check)(const tn_function *op);
    void (*drop)(const tn_op *whole);
    /* The gradient of a row that was completed: a rule, and the operator that it calls, which is in no table. *rule is
     * NULL where there is none. The caller frees it, and gives the operator back with `release`. */
    tn_status (*gradient)(const tn_op *whole, char **rule, const tn_function **called);
    void (*release)(const tn_function *called);
    void (*forget)(void); /* frees what it has made for operators that are gone, when the library is shut down */
} tni_formulas;
void tni_set_formulas(const tni_formulas *formulas);

/* Kernels as text: files that hold some, and code that plugins have of theirs; handed in by whoever compiles them. */
typedef struct tni_kernel_texts {
    bool (*is_text)(const char *data, size_t bytes); /* by the first bytes of a file */
    tn_status (*load)(const char *path, const char *text);
    void (*add_built)(const void *list); /* `tenon_built` of a plugin */
} tni_kernel_texts;
void tni_set_kernel_texts(const tni_kernel_texts *texts);

#endif
