/* Which rows run: every operator × type × kernel × sample × row. */
#include "check.h"

#include <stdio.h>
#include <string.h>

#include "core/host/arith.h"
#include "core/table/table.h"
#include "cpu/isa.h"

enum { MOST_SAMPLES = 256 };

const char *check_dtypes;

const check_row *const check_tables[] = {value_rows,  layout_rows, shape_rows,    alias_rows, batch_rows,
                                         system_rows, memory_rows, refuse_rows,   grad_rows,  random_rows,
                                         huge_rows,   gpu_rows,    sanitize_rows, NULL};

bool check_declined(checker *c, tn_status status) {
    if (status != TN_UNSUPPORTED || !c->kernel) return false;
    c->skipping = true;
    return true;
}

/* ---- which rows run ---------------------------------------------------------------------------------------------- */

/* False: a process before this one has done it. */
static bool is_new(checker *c) {
    return ++c->serial > c->resume;
}

static void run_row(checker *c, const check_row *r) {
    c->row = r;
    if (!is_new(c)) return;
    c->broken = c->skipping = false;
    c->found = (finding){0};
    c->tested.call = NULL;
    c->began = check_now();
    c->running = true;
    r->run(c);
    c->running = false;
    if (c->broken && c->gpu && !tni_cuda("tenon check")) c->dead = true;
    c->failed += c->broken;
    c->skipped += !c->broken && c->skipping;
    c->passed += !c->broken && !c->skipping;
    check_verbose(c, check_now() - c->began);
    check_progress(c);
}

/* The samples of an operator that are for checking, and how large they are. */
typedef struct sample_list {
    int count;
    int index[MOST_SAMPLES];
    int64_t elements[MOST_SAMPLES];
    int once; /* the place in this list that rows of which one is enough take */
} sample_list;

static bool list_samples(checker *c, sample_list *list) {
    list->count = 0;
    list->once = -1;
    int best = 0;
    for (int i = 0; c->op->row->samples && c->op->row->samples[i].args && list->count < MOST_SAMPLES; i++) {
        const tn_sample *s = &c->op->row->samples[i];
        tni_case *made;
        if (s->bench) continue;
        if (tni_sample_case(c->contract, s->args, c->T, &made) != TN_OK) {
            c->row = NULL;
            c->broken = !is_new(c);
            c->failed += !c->broken;
            check_fail(c, "%s", tn_last_error());
            return false;
        }
        int64_t n = case_elements(made);
        int rank = made->n_inputs ? made->inputs[0].shape.ndim : 0;
        int worth = n == 0 ? 0 : n == 1 ? 1 : rank < 2 ? 2 : 3;
        if (worth > best) {
            best = worth;
            list->once = list->count;
        }
        list->index[list->count] = i;
        list->elements[list->count++] = n;
        tni_case_free(made);
    }
    if (list->once < 0) list->once = 0;
    return true;
}

/* Is this one of `most` samples that have elements, spread over the list? */
static bool is_among(const sample_list *list, int at, int most) {
    int with = 0, before = 0;
    for (int i = 0; i < list->count; i++) {
        with += list->elements[i] > 0;
        before += i < at && list->elements[i] > 0;
    }
    return list->elements[at] > 0 && before % max(ceil_div(with, most), 1) == 0;
}

bool is_named(const char *names, const char *name) {
    size_t length = strlen(name);
    for (const char *p = names; p && *p; p += strspn(p, ", ")) {
        size_t n = strcspn(p, ", ");
        if (n == length && strncmp(p, name, n) == 0) return true;
        p += n;
    }
    return false;
}

bool kernel_takes(const checker *c, const tn_kernel *k, tn_type type) {
    bool here = c->gpu ? k->device == TN_CUDA : k->device == TN_CPU && !(k->isa & ~tni_cpu_isa());
    return here && (!k->types || k->types & TN_BIT(type));
}

static bool kernel_runs(const checker *c, const tn_kernel *k) {
    return kernel_takes(c, k, c->T);
}

/* One of several that are made from the same source, and not the one for this machine's best instruction set. */
static bool is_lesser(const checker *c) {
    const tn_kernel *best = c->op->row->kernels;
    while (best->name && !kernel_runs(c, best)) best++;
    if (!c->kernel || !best->name || !best->isa) return false;
    return strcmp(c->kernel, best->name) != 0 && strcmp(c->kernel, reference_kernel(c->op)) != 0;
}

/* Is this the type in which a row takes the sample? The next row takes it in the next type, so that all types meet all
 * rows. What goes by the layout or the batch shows in every type: a kernel is one source for all of them. */
static bool has_turn(const checker *c, const check_row *r, int at) {
    return (at + (int)(hash_text(r->name) % 64)) % c->n_types == c->type_index;
}

static bool row_wanted(const checker *c, const check_row *r, const sample_list *list, int at, bool only_kernel) {
    bool named = c->options.rows != NULL;
    if (named && !is_named(c->options.rows, r->name)) return false;
    if (is_named(c->options.skip, r->name)) return false;
    if (r->applies && !r->applies(c)) return false;
    if (r->most && list->elements[at] > r->most) return false;
    if (c->options.sample >= 0) return c->options.sample == list->index[at];
    bool reference = c->kernel && strcmp(c->kernel, reference_kernel(c->op)) == 0;
    if (r->flags & NOT_REF && reference && !only_kernel) return false;
    if (r->flags & SLOW && c->options.quick && !named) return false;
    if (c->options.quick && !named && !c->options.kernel && !(r->flags & LANES) && is_lesser(c)) return false;
    if (r->flags & ONCE) return at == list->once;
    if (r->flags & RARE) return is_among(list, at, c->options.quick ? 2 : 4);
    if (r->flags & FEW && (c->options.quick || reference)) return is_among(list, at, 3);
    if (r->flags & DEALT && c->options.quick && !named && !c->gpu) return has_turn(c, r, at);
    return true;
}

/* per_op: the rows that run once for the operator, or all the others. */
static void run_rows(checker *c, const sample_list *list, bool per_op, bool only_kernel) {
    for (int at = 0; at < list->count; at++) {
        c->sample_index = list->index[at];
        c->sample = &c->op->row->samples[c->sample_index];
        for (int t = 0; check_tables[t]; t++) {
            for (const check_row *r = check_tables[t]; r->name; r++) {
                bool once = r->flags & PER_OP;
                if (!c->dead && !c->stop && once == per_op && row_wanted(c, r, list, at, only_kernel)) run_row(c, r);
            }
        }
    }
}

/* ---- which kernels and types ------------------------------------------------------------------------------------- */

/* Names of the kernels that take T here, each once. */
static int list_kernels(const checker *c, const char **names, int most) {
    int n = 0;
    for (const tn_kernel *k = c->op->row->kernels; k->name && n < most; k++) {
        bool known = false;
        for (int i = 0; i < n; i++) known |= strcmp(names[i], k->name) == 0;
        if (!known && kernel_runs(c, k)) names[n++] = k->name;
    }
    return n;
}

static void check_type(checker *c, bool first) {
    const char *names[32];
    sample_list list;
    if (!list_samples(c, &list)) return;
    c->kernel = NULL;
    int n = list_kernels(c, names, 32);
    if (first && !c->options.kernel && (n || !c->gpu)) run_rows(c, &list, true, true);
    const char *last = n > 1 && c->options.quick && c->op->row->formula ? reference_kernel(c->op) : NULL;
    for (int i = 0; i < n; i++) {
        if (c->options.kernel && strcmp(c->options.kernel, names[i]) != 0) continue;
        if (!c->options.kernel && last && strcmp(last, names[i]) == 0) continue; /* all formulas share it */
        c->kernel = names[i];
        run_rows(c, &list, false, n == 1);
    }
}

/* The types asked for that T may be; floats, i32 and i64 where none are, or what T may be if it may be none of
 * these. */
static int list_types(const checker *c, tn_type *types) {
    uint32_t mask = TN_FLOATS | TN_BIT(TN_I32) | TN_BIT(TN_I64), wanted = 0;
    const uint32_t own = c->contract->n_types ? c->contract->types[0].mask : mask;
    const uint32_t real = own & ~(TN_BIT(TN_C64) | TN_BIT(TN_C128)); /* complex numbers have no double */
    for (const char *p = check_dtypes; p && *p; p += strspn(p, ", ")) {
        char name[16];
        size_t n = strcspn(p, ", ");
        snprintf(name, sizeof name, "%.*s", (int)n, p);
        wanted |= TN_BIT(tn_type_named(name));
        p += n;
    }
    mask = !wanted && own & mask ? own & mask : real;
    /* Formulas share their kernels: with --quick, each is checked in one of the 16-bit types. */
    bool one = !wanted && c->options.quick && c->op->row->formula;
    if (one) mask &= ~TN_BIT(hash_text(c->contract->name) % 2 ? TN_F16 : TN_BF16);
    if (!c->contract->n_types) mask = wanted ? wanted & -wanted : TN_BIT(TN_F32);
    int n = 0;
    for (int t = 1; t < TN_TYPE_COUNT; t++) {
        if (mask & TN_BIT(t) && (!wanted || wanted & TN_BIT(t))) types[n++] = (tn_type)t;
    }
    return n;
}

static bool has_cuda_kernel(const tn_function *op) {
    for (const tn_kernel *k = op->row->kernels; k->name; k++) {
        if (k->device == TN_CUDA) return true;
    }
    return false;
}

/* Why nothing of an operator can be checked; NULL: it can. */
static const char *unchecked(const checker *c, const tn_function *op) {
    if (c->gpu && !has_cuda_kernel(op)) return "no kernel for cuda";
    return op->row->samples && op->row->samples[0].args ? NULL : "no samples to check it by";
}

/* Inputs of floats that the gradient rule says nothing of. */
static void note_gradients(checker *c) {
    const tni_rule *rule = NULL;
    char names[512] = "";
    if (tni_operator_rule(c->op, &rule) != TN_OK || !rule) return;
    for (int32_t i = 0; i < c->contract->n_inputs; i++) {
        const tni_type *type = &c->contract->inputs[i].type;
        const uint32_t mask = type->kind == TNI_TYPE_VAR     ? c->contract->types[type->ref].mask
                              : type->kind == TNI_TYPE_FIXED ? type->mask
                                                             : TN_FLOATS;
        bool given = c->contract->inputs[i].inplace || !(mask & TN_FLOATS);
        for (int32_t s = 0; s < rule->n_statements; s++) {
            for (int32_t r = 0; r < rule->statements[s].n_results; r++) given |= rule->statements[s].results[r] == i;
        }
        const size_t n = strlen(names);
        if (!given) snprintf(names + n, sizeof names - n, "%s%s", n ? ", " : "", c->contract->inputs[i].name);
    }
    if (*names) check_note(c, "the gradient rule has none for %s", names);
}

/* How many kernels there are on the CPU, and the last of them. */
static int cpu_kernels(const tn_op *row, const tn_kernel **last) {
    int n = 0;
    for (const tn_kernel *k = row->kernels; k->name; k++) {
        if (k->device != TN_CPU) continue;
        n += n == 0 || strcmp((*last)->name, k->name) != 0;
        *last = k;
    }
    return n;
}

/* Is there a type in which the reference, which is in f64, computes otherwise than the call? */
static bool computes_wider(const tni_contract *contract) {
    for (int32_t i = 0; i < contract->n_inputs; i++) {
        if (wide_type(contract, &contract->inputs[i].type, TN_F32) == TN_F64) return true;
    }
    return false;
}

/* Results are compared with those of the last kernel, in f64. False: it is good for nothing, which is a failure. */
static bool has_reference(checker *c) {
    const tn_kernel *last = NULL;
    const int n = cpu_kernels(c->op->row, &last);
    const bool wider = computes_wider(c->contract);
    c->row = NULL;
    c->broken = false;
    if (n == 0) {
        check_fail(c, "there is no kernel for the CPU to compare with: a plain one, the reference, comes last");
    } else if (last->types && wider && !(last->types & TN_BIT(TN_F64))) {
        check_fail(c,
                   "kernel '%s' is the last for the CPU and so the reference, but does not take f64: put a plain one "
                   "for all types behind it",
                   last->name);
    } else if (n == 1 && !c->gpu && !wider) {
        check_fail(c,
                   "nothing is proven: kernel '%s' would be compared with itself; put a plain one, the reference, "
                   "behind it",
                   last->name);
    } else if (n == 1 && !c->gpu) {
        check_note(c, "compared with itself in f64: there is no kernel but '%s', and no formula", last->name);
    }
    c->failed += c->broken;
    return !c->broken;
}

static void begin_operator(checker *c) {
    c->before.passed = c->passed;
    c->before.failed = c->failed;
    c->before.skipped = c->skipped;
    c->before.began = check_now();
    c->worst = 0;
    c->shown = c->said = 0;
    c->hangs = 0;
    c->notes[0] = c->why[0] = 0;
    c->sanitized = false;
    check_say_begin(c);
}

void check_operator(checker *c, const tn_function *op) {
    tn_type types[TN_TYPE_COUNT];
    c->op = op;
    c->contract = op->contract;
    c->serial = 0;
    if (c->resume == 0) {
        begin_operator(c);
        if (!unchecked(c, op) && !has_reference(c)) c->resume = INT64_MAX;
        if (!unchecked(c, op)) note_gradients(c);
    }
    int n = list_types(c, types);
    for (int i = 0; i < n && !c->dead && !c->stop; i++) {
        c->T = types[i];
        c->type_index = i;
        c->n_types = n;
        check_type(c, i == 0);
        solved_forget(); /* no other type has the same problems */
    }
    if (c->dead) { /* another process goes on */
        c->resume = c->serial;
        return;
    }
    check_say_end(c, unchecked(c, op));
    c->resume = 0;
}
