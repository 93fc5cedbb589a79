/* tenon check: the verb. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "cli/cli.h"
#include "core/table/table.h"

enum { LIMIT = 600, QUICK_LIMIT = 60 }; /* seconds */

static const char *device, *kernel, *row_names, *skipped_rows;
static bool quick, verbose, json, only_loaded, in_process, alone, sanitize;
static int64_t cases = -1, seed = 1, sample = -1, limit;

static int unknown_row(const char *row_name) {
    const char *names[64];
    int n = 0;
    for (int t = 0; check_tables[t]; t++) {
        for (const check_row *r = check_tables[t]; r->name && n < 63; r++) names[n++] = r->name;
    }
    names[n] = NULL;
    for (int i = 0; i < n; i++) {
        if (strcmp(names[i], row_name) == 0) return 0;
    }
    const char *near = nearest_name(row_name, names);
    if (near) return usage_error(&verb_check, "there is no case '%s'; did you mean '%s'?", row_name, near);
    return usage_error(&verb_check, "there is no case '%s'", row_name);
}

/* Every name of "values,empty". */
static int unknown_rows(const char *list) {
    for (const char *p = list; p && *p; p += strspn(p, ", ")) {
        char name[64];
        size_t n = strcspn(p, ", ");
        snprintf(name, sizeof name, "%.*s", (int)n, p);
        int status = unknown_row(name);
        if (status) return status;
        p += n;
    }
    return 0;
}

static int check_arguments(int count, const char *const *rest) {
    for (const char *p = check_dtypes; p && *p; p += strspn(p, ", ")) {
        char name[16];
        size_t n = strcspn(p, ", ");
        snprintf(name, sizeof name, "%.*s", (int)n, p);
        if (tn_type_named(name) == TN_NO_TYPE) return usage_error(&verb_check, "there is no type '%s'", name);
        p += n;
    }
    if (only_loaded && first_loaded() == tn_function_count()) {
        return usage_error(&verb_check, "--only-loaded needs operators of your own: --load plugin.so");
    }
    if (only_loaded && count) return usage_error(&verb_check, "--only-loaded and names of operators: say one of them");
    for (int i = 0; i < count; i++) {
        if (!tn_find(rest[i])) return usage_error(&verb_check, "%s", tn_last_error());
    }
    int status = unknown_rows(row_names);
    return status ? status : unknown_rows(skipped_rows);
}

int64_t check_alone(const tn_function *op, tn_type T, const char *on, const char *again, bool as_json) {
    char types[32];
    snprintf(types, sizeof types, "%s,f64", tn_type_name(T));
    check_dtypes = types;
    /* The caller has used the GPU by now, and a child could not. */
    checker *c = checker_new((check_options){.quick = true,
                                             .json = as_json,
                                             .in_process = on != NULL,
                                             .cases = 20,
                                             .seed = 1,
                                             .sample = -1,
                                             .limit = QUICK_LIMIT,
                                             .again = again,
                                             .device = on,
                                             .loads = ""});
    if (!c) return -1;
    check_operators(c, &op, 1, on);
    const int64_t failed = c->status ? -1 : c->failed + (c->passed == 0);
    checker_free(c);
    check_dtypes = NULL;
    return failed;
}

/* An operator and, where nothing else picks some of its cases, those of its gradient: what its rule calls under its own
 * name, and what a plugin has. */
static int add_with_gradient(const tn_function **list, int n, int most, const tn_function *op) {
    const tni_rule *rule = NULL;
    const size_t length = strlen(op->contract->name);
    for (int i = 0; i < n; i++) {
        if (list[i] == op) return n;
    }
    if (n == most) return n;
    list[n++] = op;
    if (alone || kernel || row_names || sample >= 0 || tni_operator_rule(op, &rule) != TN_OK || !rule) return n;
    for (int32_t i = 0; i < rule->n_statements; i++) {
        const tn_function *called = rule->statements[i].op;
        const char *name = called->contract->name;
        const bool own = strncmp(name, op->contract->name, length) == 0 && name[length] == '_';
        if (called->index >= 0 && (own || called->index >= first_loaded())) {
            n = add_with_gradient(list, n, most, called);
        }
    }
    return n;
}

static int list_operators(const tn_function **list, int most, int count, const char *const *rest) {
    int n = 0;
    for (int i = 0; i < count; i++) n = add_with_gradient(list, n, most, tn_find(rest[i]));
    for (int i = only_loaded ? first_loaded() : 0; !count && i < most; i++) list[n++] = tn_function_at(i);
    return n;
}

static int run(int count, const char *const *rest) {
    int status = check_arguments(count, rest);
    if (status) return status;
    const int most = tn_function_count();
    const tn_function **list = calloc((size_t)most + 1, sizeof *list);
    checker *c = checker_new((check_options){.quick = quick,
                                             .verbose = verbose,
                                             .json = json,
                                             .in_process = in_process,
                                             .sanitize = sanitize,
                                             .cases = cases >= 0 ? cases
                                                      : quick    ? 20
                                                                 : 200,
                                             .limit = limit                ? limit
                                                      : quick && !sanitize ? QUICK_LIMIT
                                                                           : LIMIT,
                                             .has_limit = limit != 0,
                                             .seed = (uint64_t)seed,
                                             .kernel = kernel,
                                             .rows = row_names,
                                             .skip = skipped_rows,
                                             .device = device,
                                             .sample = (int)sample,
                                             .loads = loaded_plugins()});
    status = 1;
    if (c && list) {
        check_say_all(c, true);
        check_operators(c, list, list_operators(list, most, count, rest), device);
        if (!c->stop) check_say_all(c, false);
        status = c->status ? c->status : c->failed != 0 || (c->passed == 0 && !c->stop);
    }
    if (c) checker_free(c);
    free(list);
    return status;
}

static void print_rows(void) {
    printf("\n%sCases%s\n", style_text(BOLD), style_text(PLAIN));
    for (int t = 0; check_tables[t]; t++) {
        for (const check_row *r = check_tables[t]; r->name; r++) {
            printf("  %-16s", r->name);
            print_wrapped(r->what, 18, 18);
        }
    }
}

static const option options[] = {
    {"--dtype", "f32,bf16", "only these types for T; without it f16, bf16, f32 and f64", TEXT, &check_dtypes},
    {"--device", "cuda:0", "where to run: cpu (without it), cuda or cuda:N", TEXT, &device},
    {"--kernel", "NAME", "only this kernel", TEXT, &kernel},
    {"--case", "NAME,…", "only these cases, of those below", TEXT, &row_names},
    {"--skip", "NAME,…", "not these cases", TEXT, &skipped_rows},
    {"--sample", "N", "only this sample, as numbered by `tenon ops OP`", NUMBER, &sample},
    {"--quick", NULL, "fewer samples, positions, types and repeats: minutes for the whole table", FLAG, &quick},
    {"--cases", "N", "random calls for each operator, type and kernel (200; 20 with --quick)", NUMBER, &cases},
    {"--seed", "S", "for all random numbers (1)", NUMBER, &seed},
    {"--alone", NULL, "without the operators of its gradient", FLAG, &alone},
    {"--only-loaded", NULL, "only the operators of --load", FLAG, &only_loaded},
    {"--limit", "S", "seconds that a case may take before it counts as hanging (600; 60 with --quick alone)", POSITIVE,
     &limit},
    {"--in-process", NULL, "no child processes: for debuggers and tools that do not follow them; a crash ends the run",
     FLAG, &in_process},
    {"--sanitize", NULL, "compute-sanitizer over every operator as well; without it, over the first failure of each",
     FLAG, &sanitize},
    {"--json", NULL, "results for a program, one document", FLAG, &json},
    {"--verbose", NULL, "a line for every case", FLAG, &verbose},
    {0},
};

const verb verb_check = {
    .name = "check",
    .summary = "proves operators: every type, kernel and sample, against float64 and the bugs that kernels really have",
    .examples = "tenon check\tthe whole table\n"
                "tenon check softmax --quick\tone operator, in seconds\n"
                "tenon check --device cuda\tthe whole table on the first GPU\n"
                "tenon check --load ./my_op.so --only-loaded --device cuda --sanitize\tyour own, on the GPU\n"
                "tenon check layer_norm --dtype bf16 --kernel neon\n"
                "tenon check sum --cases 5000 --seed 7\tlook longer, elsewhere\n"
                "tenon check --load ./my_op.so --only-loaded\tall of your own",
    .options = options,
    .text =
        "A result r may be off by tolerance * (u |r| + a c (|r| + s)): u and a are half a unit in the last place of "
        "the output's type and of the type that sums are kept in, s is how far r moves when every input is off by "
        "its own last place, c = 48 + sqrt(n) for sums of n numbers, and tolerance is the sample's (1). One "
        "wrong element fails. Where an element of a result depends on nothing but the same element of the inputs, c is "
        "8, "
        "and results in f32 may be off by a tenth of the bound on average, which is about one unit in the last place.\n"
        "Results are compared with those of the last kernel for the CPU. An operator is checked with those that its "
        "gradient rule calls, unless --alone is said, or --case, --kernel or --sample picks something.\n"
        "Cases run in child processes. One that crashes, exits or takes longer than --limit has failed, and the others "
        "run all the same.\n"
        "On a GPU the numbers are drawn and the reference runs on the CPU all the same; tensors are copied there with "
        "whatever lies around them, and everything that comes back is looked at.\n"
        "A failure prints what was wrong, the one command that does it again, and why, where that can be found out: "
        "the "
        "call runs again with other bytes around its tensors, in its outputs and in shared memory, with the whole GPU "
        "waited for, and several times. compute-sanitizer, where it is installed, adds the kernel and the line. The "
        "last "
        "line counts.",
    .run = run,
    .more = print_rows,
};
