/* tenon check: every operator × type × kernel × sample × row. */
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "cli/cli.h"
#include "core/host/arith.h"
#include "core/table/table.h"
#include "cpu/isa.h"

enum { MOST_SHOWN = 10, MOST_SAMPLES = 256, LONGEST_ROW = 600 /* seconds */ };

static const char *device, *dtypes, *kernel, *row_names, *skipped_rows;
static bool quick, verbose;
static int64_t cases = -1, seed = 1, sample = -1;

static const check_row *const tables[] = {value_rows,  layout_rows, shape_rows,  alias_rows, batch_rows, system_rows,
                                          refuse_rows, grad_rows,   random_rows, huge_rows,  gpu_rows,   NULL};

/* ---- saying what happened ---------------------------------------------------------------------------------------- */

static void clear_progress(void) {
    if (progress_wanted()) fprintf(stderr, "\r\033[K");
}

void check_command(const checker *c, char *text, size_t size) {
    bool random = c->case_seed != 0;
    if (c->options.again) {
        snprintf(text, size, "%s", c->options.again);
        return;
    }
    size_t n = (size_t)snprintf(text, size, "tenon check %s --dtype %s", c->contract->name, tn_type_name(c->T));
    if (c->options.device) n += (size_t)snprintf(text + n, size - n, " --device %s", c->options.device);
    if (c->kernel) n += (size_t)snprintf(text + n, size - n, " --kernel %s", c->kernel);
    n += (size_t)snprintf(text + n, size - n, " --case %s", c->row->name);
    if (random) {
        n += (size_t)snprintf(text + n, size - n, " --cases 1");
    } else {
        n += (size_t)snprintf(text + n, size - n, " --sample %d", c->sample_index);
    }
    n += (size_t)snprintf(text + n, size - n, " --seed %llu",
                          (unsigned long long)(random ? c->case_seed : c->options.seed));
    snprintf(text + n, size - n, "%s%s", c->options.quick ? " --quick" : "", c->options.loads);
}

static void print_place(const checker *c, char *text, size_t size) {
    snprintf(text, size, "%s %s %s %s, sample %d (%s)", c->contract->name, tn_type_name(c->T),
             c->kernel ? c->kernel : "any kernel", c->row->name, c->sample_index, c->sample->args);
}

void check_fail(checker *c, const char *format, ...) {
    if (c->broken) return;
    c->broken = true;
    if (++c->shown > MOST_SHOWN) return;
    char place[512], command[1024], text[1024];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    print_place(c, place, sizeof place);
    check_command(c, command, sizeof command);
    clear_progress();
    printf("%sFAIL%s %s: %s\n     %s\n", style_text(RED), style_text(PLAIN), place, text, command);
    fflush(stdout);
}

void check_skip(checker *c, const char *format, ...) {
    char text[512];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    c->skipping = true;
    clear_progress();
    printf("%sskip%s %s %s %s %s: %s\n", style_text(YELLOW), style_text(PLAIN), c->contract->name, tn_type_name(c->T),
           c->kernel ? c->kernel : "any kernel", c->row->name, text);
}

bool check_declined(checker *c, tn_status status) {
    if (status != TN_UNSUPPORTED || !c->kernel) return false;
    c->skipping = true;
    return true;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void show_progress(const checker *c) {
    static double last;
    if (!progress_wanted() || now() - last < 0.05) return;
    last = now();
    fprintf(stderr, "\r\033[K%s %s %s %s  %lld passed, %lld failed", c->contract->name, tn_type_name(c->T),
            c->kernel ? c->kernel : "", c->row->name, (long long)c->passed, (long long)c->failed);
}

/* ---- a kernel that takes the process with it --------------------------------------------------------------------- */

/* Written before each row, so that the handler has nothing to do but to say it. */
static struct {
    char place[512], command[1024], count[64];
    volatile sig_atomic_t armed;
} last_words;

static void say(const char *text) {
    if (write(STDOUT_FILENO, text, strlen(text)) < 0) _exit(1);
}

static void on_signal(int number) {
    if (last_words.armed) {
        say("FAIL ");
        say(last_words.place);
        say(number == SIGALRM ? ": does not come back\n     " : ": crashed (");
        if (number != SIGALRM) {
            say(strsignal(number));
            say(")\n     ");
        }
        say(last_words.command);
        say("\n");
        say(last_words.count);
    }
    _exit(1);
}

static void watch_signals(void) {
    if (CHECK_ASAN || CHECK_TSAN) return; /* they say more */
    const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGALRM};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) signal(signals[i], on_signal);
}

/* ---- which rows run ---------------------------------------------------------------------------------------------- */

void check_here(const checker *c) {
    print_place(c, last_words.place, sizeof last_words.place);
    check_command(c, last_words.command, sizeof last_words.command);
}

static void run_row(checker *c, const check_row *r) {
    c->row = r;
    c->broken = c->skipping = false;
    check_here(c);
    snprintf(last_words.count, sizeof last_words.count, "%lld passed, %lld failed\n", (long long)c->passed,
             (long long)c->failed + 1);
    last_words.armed = 1;
    alarm(LONGEST_ROW);
    double begin = now();
    r->run(c);
    alarm(0);
    last_words.armed = 0;
    if (c->broken && c->gpu && !tni_cuda("tenon check")) c->dead = true;
    c->failed += c->broken;
    c->skipped += !c->broken && c->skipping;
    c->passed += !c->broken && !c->skipping;
    if (c->options.verbose) {
        clear_progress();
        const char *outcome = c->broken ? "FAIL" : c->skipping ? "skip" : "ok  ";
        printf("%s %s  %.0f ms\n", outcome, last_words.place, 1e3 * (now() - begin));
    }
    show_progress(c);
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
            clear_progress();
            printf("%sFAIL%s %s: %s\n", style_text(RED), style_text(PLAIN), c->contract->name, tn_last_error());
            c->failed++;
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

/* Is it one of "values,empty"? */
static bool is_named(const char *names, const char *name) {
    size_t length = strlen(name);
    for (const char *p = names; p && *p; p += strspn(p, ", ")) {
        size_t n = strcspn(p, ", ");
        if (n == length && strncmp(p, name, n) == 0) return true;
        p += n;
    }
    return false;
}

static bool kernel_runs(const checker *c, const tn_kernel *k) {
    bool here = c->gpu ? k->device == TN_CUDA : k->device == TN_CPU && !(k->isa & ~tni_cpu_isa());
    return here && (!k->types || k->types & TN_BIT(c->T));
}

/* One of several that are made from the same source, and not the one for this machine's best instruction set. */
static bool is_lesser(const checker *c) {
    const tn_kernel *best = c->op->row->kernels;
    while (best->name && !kernel_runs(c, best)) best++;
    if (!c->kernel || !best->name || !best->isa) return false;
    return strcmp(c->kernel, best->name) != 0 && strcmp(c->kernel, reference_kernel(c->op)) != 0;
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
    return true;
}

/* per_op: the rows that run once for the operator, or all the others. */
static void run_rows(checker *c, const sample_list *list, bool per_op, bool only_kernel) {
    for (int at = 0; at < list->count; at++) {
        c->sample_index = list->index[at];
        c->sample = &c->op->row->samples[c->sample_index];
        for (int t = 0; tables[t]; t++) {
            for (const check_row *r = tables[t]; r->name; r++) {
                bool once = r->flags & PER_OP;
                if (!c->dead && once == per_op && row_wanted(c, r, list, at, only_kernel)) run_row(c, r);
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
    mask = own & mask ? own & mask : own & ~(TN_BIT(TN_C64) | TN_BIT(TN_C128)); /* complex numbers have no double */
    for (const char *p = dtypes; p && *p; p += strspn(p, ", ")) {
        char name[16];
        size_t n = strcspn(p, ", ");
        snprintf(name, sizeof name, "%.*s", (int)n, p);
        wanted |= TN_BIT(tn_type_named(name));
        p += n;
    }
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

static void check_operator(checker *c, const tn_function *op) {
    tn_type types[TN_TYPE_COUNT];
    checker before = *c;
    double begin = now();
    c->op = op;
    c->contract = op->contract;
    c->worst = 0;
    c->shown = 0;
    int n = list_types(c, types);
    for (int i = 0; i < n; i++) {
        c->T = types[i];
        check_type(c, i == 0);
        solved_forget(); /* no other type has the same problems */
    }
    int64_t failed = c->failed - before.failed, passed = c->passed - before.passed;
    clear_progress();
    const char *why = unchecked(c, op);
    if (why) {
        printf("%s%-24s%s %s%s%s\n", style_text(BOLD), op->contract->name, style_text(PLAIN), style_text(YELLOW), why,
               style_text(PLAIN));
        return;
    }
    if (c->shown > MOST_SHOWN) printf("     … and %lld more like these\n", (long long)(c->shown - MOST_SHOWN));
    printf("%s%-24s%s %6lld passed", style_text(BOLD), op->contract->name, style_text(PLAIN), (long long)passed);
    if (failed) printf(", %s%lld failed%s", style_text(RED), (long long)failed, style_text(PLAIN));
    printf("%s   worst error %.2f of its bound, %.1f s%s\n", style_text(DIM), c->worst, now() - begin,
           style_text(PLAIN));
    fflush(stdout);
}

/* ---- the verb ---------------------------------------------------------------------------------------------------- */

static int unknown_row(const char *row_name) {
    const char *names[64];
    int n = 0;
    for (int t = 0; tables[t]; t++) {
        for (const check_row *r = tables[t]; r->name && n < 63; r++) names[n++] = r->name;
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
    for (const char *p = dtypes; p && *p; p += strspn(p, ", ")) {
        char name[16];
        size_t n = strcspn(p, ", ");
        snprintf(name, sizeof name, "%.*s", (int)n, p);
        if (tn_type_named(name) == TN_NO_TYPE) return usage_error(&verb_check, "there is no type '%s'", name);
        p += n;
    }
    for (int i = 0; i < count; i++) {
        if (!tn_find(rest[i])) return usage_error(&verb_check, "%s", tn_last_error());
    }
    int status = unknown_rows(row_names);
    return status ? status : unknown_rows(skipped_rows);
}

/* The GPU asked for, and a mirror on it. 0, or the exit status. */
static int open_device(mirror *m, char name[static 16], bool *used) {
    tn_device at;
    if (read_device(device, &at) != TN_OK) return usage_error(&verb_check, "%s", tn_last_error());
    *used = at.kind == TN_CUDA;
    snprintf(name, 16, "cuda:%d", at.index);
    if (*used) check_idle(at.index);
    if (!*used || mirror_open(m, at.index) == TN_OK) return 0;
    fprintf(stderr, "tenon check: %s\n", tn_last_error());
    return 1;
}

int64_t check_alone(const tn_function *op, tn_type T, const char *on, const char *again) {
    static mirror gpu;
    char name[16], types[32];
    bool on_cuda = false;
    device = on;
    snprintf(types, sizeof types, "%s,f64", tn_type_name(T));
    dtypes = types;
    if (open_device(&gpu, name, &on_cuda)) return -1;
    checker c = {.options = {.quick = true, .cases = 20, .seed = 1, .sample = -1, .again = again, .loads = ""},
                 .gpu = on_cuda ? &gpu : NULL};
    watch_signals();
    check_operator(&c, op);
    mirror_close(&gpu);
    dtypes = NULL;
    return c.failed + (c.passed == 0);
}

static int run(int count, const char *const *rest) {
    static mirror gpu;
    char name[16];
    bool on_cuda = false;
    int status = check_arguments(count, rest);
    if (!status) status = open_device(&gpu, name, &on_cuda);
    if (status) return status;
    checker c = {.options = {.quick = quick,
                             .verbose = verbose,
                             .cases = cases >= 0 ? cases
                                      : quick    ? 20
                                                 : 200,
                             .seed = (uint64_t)seed,
                             .kernel = kernel,
                             .rows = row_names,
                             .skip = skipped_rows,
                             .device = on_cuda ? name : NULL,
                             .sample = (int)sample,
                             .loads = loaded_plugins()},
                 .gpu = on_cuda ? &gpu : NULL};
    watch_signals();
    int n = count ? count : tn_function_count();
    for (int i = 0; i < n && !c.dead; i++) check_operator(&c, count ? tn_find(rest[i]) : tn_function_at(i));
    if (c.dead) printf("%sstopped%s: %s\n", style_text(RED), style_text(PLAIN), tn_last_error());
    mirror_close(&gpu);
    if (c.passed + c.failed + c.skipped == 0) {
        printf("nothing to check: no operator has such a type, kernel, case or sample\n");
    }
    printf("%lld passed, %s%lld failed%s", (long long)c.passed, c.failed ? style_text(RED) : "", (long long)c.failed,
           c.failed ? style_text(PLAIN) : "");
    if (c.skipped) printf(", %lld skipped", (long long)c.skipped);
    putchar('\n');
    return c.failed != 0 || c.passed == 0;
}

static void print_rows(void) {
    printf("\n%sCases%s\n", style_text(BOLD), style_text(PLAIN));
    for (int t = 0; tables[t]; t++) {
        for (const check_row *r = tables[t]; r->name; r++) {
            printf("  %-16s", r->name);
            print_wrapped(r->what, 18, 18);
        }
    }
}

static const option options[] = {
    {"--dtype", "f32,bf16", "only these types for T; without it f16, bf16, f32 and f64", TEXT, &dtypes},
    {"--device", "cuda:0", "where to run: cpu (without it), cuda or cuda:N", TEXT, &device},
    {"--kernel", "NAME", "only this kernel", TEXT, &kernel},
    {"--case", "NAME,…", "only these cases, of those below", TEXT, &row_names},
    {"--skip", "NAME,…", "not these cases", TEXT, &skipped_rows},
    {"--sample", "N", "only this sample, as numbered by `tenon ops OP`", NUMBER, &sample},
    {"--quick", NULL, "fewer samples, positions and repeats: minutes for the whole table", FLAG, &quick},
    {"--cases", "N", "random calls for each operator, type and kernel (200; 20 with --quick)", NUMBER, &cases},
    {"--seed", "S", "for all random numbers (1)", NUMBER, &seed},
    {"--verbose", NULL, "a line for every case", FLAG, &verbose},
    {0},
};

const verb verb_check = {
    .name = "check",
    .summary = "proves operators: every type, kernel and sample, against float64 and the bugs that kernels really have",
    .examples = "tenon check\tthe whole table\n"
                "tenon check softmax --quick\tone operator, in seconds\n"
                "tenon check --device cuda\tthe whole table on the first GPU\n"
                "compute-sanitizer tenon check --device cuda --quick --skip sticky,fork,idle,leaks\n"
                "tenon check layer_norm --dtype bf16 --kernel neon\n"
                "tenon check sum --cases 5000 --seed 7\tlook longer, elsewhere\n"
                "tenon check my_op --load ./my_op.so\tone of your own",
    .options = options,
    .text =
        "A result r may be off by tolerance * (u |r| + a c (|r| + s)): u and a are half a unit in the last place of "
        "the output's type and of the type that sums are kept in, s is how far r moves when every input is off by "
        "its own last place, c = 48 + sqrt(n) for sums of n numbers, and tolerance is the sample's (1). One "
        "wrong element fails.\n"
        "On a GPU the numbers are drawn and the reference runs on the CPU all the same; tensors are copied there with "
        "whatever lies around them, and everything that comes back is looked at.\n"
        "A failure prints what was wrong and the one command that does it again. The last line counts.",
    .run = run,
    .more = print_rows,
};
