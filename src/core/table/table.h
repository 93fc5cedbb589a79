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
    struct tn_function *next;          /* of those in no table */
    _Atomic(const tni_rule *) rule;    /* parsed when first asked for: tni_operator_rule */
    _Atomic(bool) no_rule;             /* there is none: a formula that cannot be differentiated */
    _Atomic(struct tni_plans *) plans; /* of core/run: calls seen before; made by the first call */
};

/* The operator's gradient rule; *rule is NULL where it has none. */
tn_status tni_operator_rule(const tn_function *op, const tni_rule **rule);
/* Adds all rows or, with a message, none. The rows must stay where they are. */
tn_status tni_table_add(const tn_op *const *rows, int n);
/* An operator that is in no table. It is free to go until tni_operator_keep; from then on it stays. */
tn_status tni_operator_make(const tn_op *row, tn_function **made);
void tni_operator_free(tn_function *op); /* NULL is fine */
void tni_operator_keep(tn_function *op);
tn_function *tni_operators_kept(void); /* the last one; the others follow by `next` */
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
    void (*drop)(const tn_op *whole);
    /* The gradient of a row that was completed: a rule, and the operator that it calls, which is in no table. *rule is
     * NULL where there is none. The caller frees it. */
    tn_status (*gradient)(const tn_op *whole, char **rule, const tn_function **called);
    void (*forget)(void); /* frees what it has made for operators that are gone, when the library is shut down */
} tni_formulas;
void tni_set_formulas(const tni_formulas *formulas);

#endif
