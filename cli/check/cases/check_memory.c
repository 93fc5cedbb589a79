/* Rows about memory that is not the call's: nothing is touched before or behind a tensor, and calls leave nothing
 * behind. */
#include "cli/check/check.h"

#include <dirent.h>
#include <dlfcn.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/run/plan.h"
#include "core/table/table.h"

/* ---- edges ------------------------------------------------------------------------------------------------------- */

/* For the handler, which can do little: the pages around every tensor of a call, and what to say of each. */
static struct {
    checker *c;
    int n;
    struct {
        const char *begin, *end;
        char words[128];
    } pages[4 * 5 * TNI_MAX_ARGS];
} watched;

static void on_fault(int number, siginfo_t *info, void *context) {
    (void)context;
    const char *at = info->si_addr;
    for (int i = 0; i < watched.n; i++) {
        if (at < watched.pages[i].begin || at >= watched.pages[i].end) continue;
        memcpy(watched.c->cause, watched.pages[i].words, sizeof watched.pages[i].words);
        if (watched.c->options.in_process && write(STDERR_FILENO, watched.c->cause, strlen(watched.c->cause))) break;
    }
    signal(number, SIG_DFL); /* and it happens again */
}

static void watch_page(const array *a, const char *begin, const char *end, const char *where, const char *name) {
    if (!a->map || watched.n == sizeof watched.pages / sizeof *watched.pages) return;
    watched.pages[watched.n].begin = begin;
    watched.pages[watched.n].end = end;
    snprintf(watched.pages[watched.n].words, sizeof watched.pages->words, "reads or writes memory %s of %.60s", where,
             name);
    watched.n++;
}

static void watch_array(const array *a, const char *kind, const char *name) {
    char text[96];
    snprintf(text, sizeof text, "%s %s", kind, name);
    watch_page(a, a->map, a->memory, "before the first element", text);
    watch_page(a, a->memory + a->bytes, a->map + a->map_bytes, "behind the last element", text);
}

static void run_edge(checker *c, const problem *p, layout how, array_edge edge) {
    const int signals[] = {SIGSEGV, SIGBUS};
    struct sigaction before[2], fault = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    made_call k;
    if (problem_call(p, &k, (call_options){.how = how, .edge = edge}) != TN_OK) {
        check_fail(c, "%s", tn_last_error());
        return;
    }
    watched.c = c;
    watched.n = 0;
    for (int32_t i = 0; i < k.n_in; i++) watch_array(&k.in[i], "input", c->contract->inputs[k.param[i]].name);
    for (int32_t i = 0; i < k.n_out; i++) {
        if (k.out[i].count >= 0) watch_array(&k.out[i], "output", c->contract->outputs[i].name);
    }
    for (int i = 0; i < 2; i++) sigaction(signals[i], &fault, &before[i]);
    run_and_compare(c, p, &k, edge == EDGE_BEHIND ? "ending where memory ends" : "beginning where memory begins");
    for (int i = 0; i < 2; i++) sigaction(signals[i], &before[i], NULL);
    watched.n = 0;
    call_free(&k);
}

/* Sliced: copies and strides end there, too. */
static void run_edges(checker *c) {
    problem p;
    if (!sample_problem(c, &p)) return;
    if (problem_solve(&p, true) != TN_OK) {
        check_fail(c, "the reference refused: %s", tn_last_error());
    } else {
        run_edge(c, &p, DENSE, EDGE_BEHIND);
        if (!c->broken && !c->skipping) run_edge(c, &p, DENSE, EDGE_BEFORE);
        if (!c->broken && !c->skipping) run_edge(c, &p, SLICED, EDGE_BEHIND);
    }
    problem_free(&p);
}

/* ---- leaks ------------------------------------------------------------------------------------------------------- */

static int64_t resident_bytes(void) {
    long pages = 0, skipped = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f) return 0;
    if (fscanf(f, "%ld %ld", &skipped, &pages) != 2) pages = 0;
    fclose(f);
    return pages * sysconf(_SC_PAGESIZE);
}

static int open_files(void) {
    DIR *dir = opendir("/proc/self/fd");
    int n = 0;
    while (dir && readdir(dir)) n++;
    if (dir) closedir(dir);
    return n;
}

/* 0 where glibc is older than 2.33 and cannot tell. */
static int64_t heap_bytes(void) {
    struct mallinfo2 (*look)(void) = (struct mallinfo2(*)(void))dlsym(RTLD_DEFAULT, "mallinfo2");
    if (!look) return 0;
    struct mallinfo2 info = look();
    return (int64_t)(info.uordblks + info.hblkhd);
}

static bool use_often(checker *c, const problem *p, int times) {
    for (int i = 0; i < times; i++) {
        made_call k;
        if (!first_run(c, p, &k, NULL)) return false;
        call_free(&k);
    }
    return true;
}

/* Bytes of the GPU in use, by everybody. */
static int64_t gpu_bytes(const checker *c) {
    const tni_cuda_api *cu = c->gpu ? tni_cuda("tenon check") : NULL;
    size_t unused = 0, all = 0;
    tni_cuda_scope scope;
    if (!cu || tni_cuda_enter("tenon check", c->gpu->device, &scope) != TN_OK) return 0;
    if (cu->cuMemGetInfo(&unused, &all) != 0) unused = all = 0;
    tni_cuda_leave(&scope);
    return (int64_t)(all - unused);
}

/* What this process holds; of the GPU, what everybody does. */
typedef struct holdings {
    int64_t gpu, heap, resident;
    int files;
} holdings;

static holdings look_around(const checker *c) {
    return (holdings){gpu_bytes(c), heap_bytes(), resident_bytes(), open_files()};
}

/* What there is more of, in words; false: nothing. */
static bool has_grown(const checker *c, holdings before, holdings now, char *text, size_t size) {
    /* The driver has a heap of its own making: what 1000 calls leave there is more than it keeps back. */
    const int64_t most_heap = c->gpu ? 32768 : 4096;
    int64_t gpu = now.gpu - before.gpu, heap = now.heap - before.heap, resident = now.resident - before.resident;
    if (gpu >= 2 << 20) {
        snprintf(text, size, "leave %lld bytes of GPU memory in use", (long long)gpu);
    } else if (heap > most_heap) {
        snprintf(text, size, "leave %lld bytes on the heap", (long long)heap);
    } else if (resident > 8 << 20) {
        snprintf(text, size, "grow the process by %lld bytes", (long long)resident);
    } else if (now.files > before.files) {
        snprintf(text, size, "leave %d files open", now.files - before.files);
    } else {
        return false;
    }
    return true;
}

/* Calls that leak do so every time, and by the same amount. Now and then others take memory meanwhile: a thread that
 * compiles a formula and keeps the code, or other processes on the same GPU. The latter take as they please, for as
 * long as they please: where GPU memory grows by different amounts, there are many more turns to see it not grow. */
static void run_leaks(checker *c) {
    enum { TURNS = 10, TURNS_BESIDE_OTHERS = 100, SAME = 4 << 20 };
    const int times = c->gpu && c->options.quick ? 200 : 1000;
    int64_t least = INT64_MAX, most = 0;
    char text[128];
    problem p;
    if (CHECK_ASAN || CHECK_TSAN) {
        check_skip(c, "the sanitizer counts for itself");
        return;
    }
    if (!sample_problem(c, &p)) return;
    int turns = 0;
    bool grown = use_often(c, &p, 100);
    while (grown && turns < (most - least > SAME ? TURNS_BESIDE_OTHERS : TURNS)) {
        if (turns++) usleep(100000);
        const holdings before = look_around(c);
        if (!use_often(c, &p, times)) break;
        const holdings now = look_around(c);
        grown = has_grown(c, before, now, text, sizeof text);
        least = now.gpu - before.gpu < least ? now.gpu - before.gpu : least;
        most = now.gpu - before.gpu > most ? now.gpu - before.gpu : most;
    }
    if (grown && turns >= TURNS) check_fail(c, "%d calls %s, and so every time of %d", times, text, turns);
    problem_free(&p);
}

/* ---- what is prepared -------------------------------------------------------------------------------------------- */

static const tn_kernel *kernel_named(const checker *c) {
    const tn_kernel *k = c->op->row->kernels;
    while (k->name && (strcmp(k->name, c->kernel) != 0 || !kernel_takes(c, k, c->T))) k++;
    return k;
}

/* Kernels of formulas are all made in one way, which has tests of its own. */
static bool prepares(const checker *c) {
    return !c->gpu && c->kernel && !c->op->row->formula && kernel_named(c)->name && kernel_named(c)->prepare;
}

/* What calls of other shapes make room for is given back: plans that no cache keeps. */
static void run_prepared(checker *c) {
    enum { TURNS = 4, TIMES = 100, LEAST = 8 };
    problem p;
    made_call k;
    if (!sample_problem(c, &p)) return;
    if (first_run(c, &p, &k, NULL)) {
        int64_t least = INT64_MAX;
        tn_status status = TN_OK;
        k.args.kernel = c->kernel;
        for (int turn = 0; turn < TURNS && status == TN_OK; turn++) {
            const int64_t before = heap_bytes();
            for (int i = 0; i < TIMES && status == TN_OK; i++) {
                tni_plan *plan;
                status = tni_plan_make(c->op, &k.args, false, &plan);
                if (status == TN_OK) tni_plan_free(plan);
            }
            const int64_t grown = heap_bytes() - before;
            if (turn && grown < least) least = grown; /* at first, some of it is for good */
        }
        if (status != TN_OK) check_fail(c, "refused: %s", tn_last_error());
        if (status == TN_OK && least >= TIMES * LEAST) {
            check_fail(c, "what prepare makes is not given back: %lld bytes of each call's state; %s",
                       (long long)least / TIMES,
                       kernel_named(c)->release ? "release must free all of it" : "the kernel has no release");
        }
        call_free(&k);
    }
    problem_free(&p);
}

const check_row memory_rows[] = {
    {"edges", "tensors that begin and end where memory does: one element too far crashes (cpu)", FEW | LANES, 20000,
     on_cpu, run_edges},
    {"leaks", "1000 calls leave memory and files as they were", ONCE, 0, NULL, run_leaks,
     "Whatever a call allocates, it gives back: prepare's state in release, memory of the host's allocator with "
     "host->release."},
    {"prepared", "what prepare makes for a call is released (cpu)", ONCE, 0, prepares, run_prepared},
    {0},
};
