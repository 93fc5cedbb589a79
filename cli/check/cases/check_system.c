/* Rows about the world around a call: the same bits every time, on any number of threads, in threads and after a
 * fork. */
#include "cli/check/check.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/table/table.h"
#include "fuse/cpu/compile_c.h"

/* The sample, grown along size k to so many elements. */
static bool grown_problem(checker *c, int32_t k, int64_t elements, problem *p) {
    variant v;
    if (!variant_begin(c, &v)) return sample_problem(c, p);
    if (k < 0) k = v.n_slots - 1;
    variant_grow(&v, k, elements);
    return variant_problem(c, &v, p) || sample_problem(c, p);
}

bool first_run(checker *c, const problem *p, made_call *k, const tn_host *host) {
    if (problem_call(p, k, (call_options){0}) != TN_OK) {
        check_fail(c, "%s", tn_last_error());
        return false;
    }
    k->args.kernel = c->kernel;
    tn_status status = call_run(k, c->gpu, host);
    if (status == TN_OK) return true;
    if (!check_declined(c, status)) check_fail(c, "refused: %s", tn_last_error());
    call_free(k);
    return false;
}

/* Run again into memory that holds nothing of the first run; inputs in place get their first values back. */
static bool again(checker *c, const problem *p, made_call *k, const tn_host *host, const made_call *first,
                  const char *what) {
    for (int32_t i = 0; i < k->n_out; i++) {
        if (k->out[i].count >= 0) array_fill(&k->out[i]);
    }
    for (int32_t i = 0; i < k->n_in; i++) {
        if (c->contract->inputs[k->param[i]].inplace) array_write(&k->in[i], p->in[i]);
    }
    if (call_run(k, c->gpu, host) == TN_OK) return same_results(c, first, k, what);
    check_fail(c, "refused: %s", tn_last_error());
    return false;
}

/* ---- repeats ----------------------------------------------------------------------------------------------------- */

static void run_repeat(checker *c) {
    problem p;
    made_call first, k;
    bool ref = strcmp(c->kernel, reference_kernel(c->op)) == 0;
    int repeats = !c->options.quick && !ref ? 1000 : c->gpu ? 50 : 20;
    if (!grown_problem(c, 0, ref ? 500 : 20000, &p)) return;
    if (first_run(c, &p, &first, NULL)) {
        if (first_run(c, &p, &k, NULL)) {
            char what[64];
            bool good = same_results(c, &first, &k, "the second time");
            for (int i = 2; i < repeats && good; i++) {
                snprintf(what, sizeof what, "in repeat %d", i);
                good = again(c, &p, &k, NULL, &first, what);
            }
            call_free(&k);
        }
        call_free(&first);
    }
    problem_free(&p);
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */

/* A loop in uneven pieces, the last one first: whoever's result depends on where pieces end is found out. */
static void uneven_parallel(void *context, int64_t n, int64_t grain, tn_body body, void *arg) {
    uint64_t seed = *(uint64_t *)context;
    if (grain < 1) grain = 1;
    for (int64_t end = n; end > 0;) {
        int64_t piece = grain + random_below(&seed, 2 * grain + 1);
        int64_t begin = end - piece < grain ? 0 : end - piece;
        body(arg, begin, end);
        end = begin;
    }
}

static int seven_threads(void *context) {
    (void)context;
    return 7;
}

/* A loop in the smallest pieces, on threads that take them as they come: what pieces do to the same memory shows. */
enum { SCATTERED = 4, MOST_PIECES = 512 };

typedef struct scattered {
    tn_body body;
    void *arg;
    int64_t n, piece;
    _Atomic int64_t next;
    _Atomic int here;
} scattered;

static void *take_pieces(void *loop) {
    scattered *s = loop;
    atomic_fetch_add(&s->here, 1);
    while (atomic_load(&s->here) < SCATTERED) sched_yield();
    for (int64_t at; (at = atomic_fetch_add(&s->next, s->piece)) < s->n;) {
        s->body(s->arg, at, at + s->piece < s->n ? at + s->piece : s->n);
    }
    return NULL;
}

static void scattered_parallel(void *context, int64_t n, int64_t grain, tn_body body, void *arg) {
    (void)context;
    const int64_t least = n / MOST_PIECES + 1;
    scattered s = {.body = body, .arg = arg, .n = n, .piece = grain > least ? grain : least};
    pthread_t threads[SCATTERED];
    int started = 0;
    while (started < SCATTERED - 1 && pthread_create(&threads[started], NULL, take_pieces, &s) == 0) started++;
    atomic_fetch_add(&s.here, SCATTERED - 1 - started); /* whom the system refused is not waited for */
    take_pieces(&s);
    for (int i = 0; i < started; i++) pthread_join(threads[i], NULL);
}

enum { WORKSPACE_GUARD = 64 };

/* Memory full of NaN with a guard behind it: kernels may not count on zeros, nor write past the end. */
static tn_block guarded_alloc(void *context, tn_device device, size_t bytes) {
    (void)context, (void)device;
    char *memory = tni_malloc_aligned(bytes + WORKSPACE_GUARD);
    if (memory) memset(memory, 0xff, bytes + WORKSPACE_GUARD);
    return (tn_block){memory, (void *)(uintptr_t)bytes};
}

static _Atomic int workspace_overruns;

static void guarded_release(void *context, tn_device device, tn_block block) {
    (void)context, (void)device;
    const char *guard = (char *)block.data + (size_t)(uintptr_t)block.handle;
    for (int i = 0; i < WORKSPACE_GUARD; i++) {
        if (guard[i] != (char)0xff) {
            atomic_fetch_add(&workspace_overruns, 1);
            break;
        }
    }
    tni_free(block.data);
}

static void compare_threads(checker *c, const problem *p, const made_call *one, made_call *k) {
    static const int counts[] = {2, 3, 8};
    char what[64];
    bool good = true;
    for (size_t i = 0; i < sizeof counts / sizeof *counts && good; i++) {
        tn_set_threads(counts[i]);
        snprintf(what, sizeof what, "with 1 thread and with %d", counts[i]);
        good = again(c, p, k, NULL, one, what);
    }
    for (uint64_t seed = 1; seed <= 4 && good; seed++) {
        uint64_t state = seed;
        tn_host host = {.context = &state,
                        .alloc = guarded_alloc,
                        .release = guarded_release,
                        .parallel = uneven_parallel,
                        .threads = seven_threads};
        atomic_store(&workspace_overruns, 0);
        good = again(c, p, k, &host, one, "when the loop is split elsewhere");
        if (atomic_load(&workspace_overruns)) check_fail(c, "wrote past the end of its workspace");
    }
    for (int i = 0; i < (c->options.quick ? 4 : 20) && good; i++) {
        const tn_host host = {.alloc = guarded_alloc,
                              .release = guarded_release,
                              .parallel = scattered_parallel,
                              .threads = seven_threads};
        good = again(c, p, k, &host, one, "when pieces of the loop run at once");
    }
}

static void run_threads(checker *c) {
    int before = tn_threads();
    for (int round = 0; round < 2 && !c->broken; round++) {
        problem p;
        made_call one, k;
        if (!grown_problem(c, round ? -1 : 0, c->options.quick ? 40000 : 100000, &p)) break;
        tn_set_threads(1);
        if (first_run(c, &p, &one, NULL)) {
            if (first_run(c, &p, &k, NULL)) {
                compare_threads(c, &p, &one, &k);
                call_free(&k);
            }
            call_free(&one);
        }
        problem_free(&p);
    }
    tn_set_threads(before);
}

/* ---- many callers ------------------------------------------------------------------------------------------------ */

enum { CALLERS = 8, SHAPES = 3 };

enum { NOBODY = -1 };

/* What all callers know. Until `enough` of them were held up, one after another, calls are made with the shape `turn`
 * or by NOBODY, as long as fewer than `until` of these are finished; then by all at once. */
typedef struct crowd {
    _Atomic bool go, enough;
    _Atomic int turn, until, holds;
    _Atomic int finished[SHAPES]; /* calls with each shape */
} crowd;

typedef struct caller {
    pthread_t thread;
    checker *c;
    mirror gpu; /* with a stream of its own, where the checker has a GPU */
    problem p;
    made_call serial, k;
    crowd *all;
    int shape, repeats;
    _Atomic bool inside, wanted; /* in a kernel; to be held up in the next one */
    char wrong[512];             /* "" when all went well */
} caller;

enum { NAP = 50 * 1000, LONGEST_HOLD = 500 /* naps */, MOST_SECONDS = 1 };

static void nap(void) {
    nanosleep(&(struct timespec){.tv_nsec = NAP}, NULL);
}

static _Thread_local caller *calling;

static bool may_call(const caller *who) {
    const crowd *all = who->all;
    const int turn = atomic_load(&all->turn);
    return atomic_load(&who->wanted) || atomic_load(&all->enough) ||
           (turn == who->shape && atomic_load(&all->finished[turn]) < atomic_load(&all->until));
}

/* The checker is not shared: what went wrong is kept for the thread that started us. */
static void *call_often(void *arg) {
    caller *who = arg;
    const tn_function *op = who->c->op;
    calling = who;
    while (!atomic_load(&who->all->go)) sched_yield();
    for (int i = 0; (i < who->repeats || !atomic_load(&who->all->enough)) && !who->wrong[0]; i++) {
        for (int32_t o = 0; o < who->k.n_out; o++) {
            if (who->k.out[o].count >= 0) array_fill(&who->k.out[o]);
        }
        for (int32_t j = 0; j < who->k.n_in; j++) {
            if (op->contract->inputs[who->k.param[j]].inplace) array_write(&who->k.in[j], who->p.in[j]);
        }
        while (!may_call(who)) nap();
        atomic_store(&who->inside, true);
        const tn_status status = call_run(&who->k, who->c->gpu ? &who->gpu : NULL, NULL);
        atomic_store(&who->inside, false);
        atomic_fetch_add(&who->all->finished[who->shape], 1);
        if (status != TN_OK) snprintf(who->wrong, sizeof who->wrong, "refused: %s", tn_last_error());
        for (int32_t o = 0; o < who->k.n_out && !who->wrong[0]; o++) {
            if (who->k.out[o].count < 0) continue;
            size_t bytes = (size_t)who->k.out[o].count * tn_type_size(who->k.out[o].type);
            if (memcmp(who->k.out[o].tensor.data, who->serial.out[o].tensor.data, bytes) != 0) {
                snprintf(who->wrong, sizeof who->wrong, "%s differs from what one thread alone gets",
                         op->contract->outputs[o].name);
            }
        }
    }
    if (who->wrong[0]) atomic_store(&who->all->enough, true);
    return NULL;
}

/* Shapes that some of the others have too, with other values: what is prepared for a shape serves all of its calls at
 * once. Some are above one grain. */
static bool caller_problem(checker *c, caller *who, int i) {
    if (!grown_problem(c, 0, 500 + 1600 * who->shape, &who->p)) return false;
    for (int32_t k = 0; k < who->p.sample->n_inputs; k++) {
        const tni_sample_input *input = &who->p.sample->inputs[k];
        case_values(input, input->type, mix_seed(check_seed(c, 600 + (uint64_t)i), (uint64_t)k), who->p.in[k]);
    }
    return true;
}

static bool prepare_caller(checker *c, caller *who, int i, crowd *all) {
    who->c = c;
    who->all = all;
    who->shape = i % SHAPES;
    atomic_store(&who->inside, false);
    atomic_store(&who->wanted, false);
    who->repeats = c->options.quick ? 10 : 50;
    who->wrong[0] = 0;
    if (c->gpu && mirror_open(&who->gpu, c->gpu->device) != TN_OK) {
        check_fail(c, "%s", tn_last_error());
        return false;
    }
    if (caller_problem(c, who, i)) {
        if (first_run(c, &who->p, &who->serial, NULL)) {
            if (first_run(c, &who->p, &who->k, NULL)) return true;
            call_free(&who->serial);
        }
        problem_free(&who->p);
    }
    mirror_close(&who->gpu);
    return false;
}

/* Holds a thread up in the middle of a kernel until others have made calls with its shape: what they do to its memory
 * shows. It does not wait for ever, for it may hold a lock that they need. */
static void hold_up(int signal) {
    caller *who = calling;
    (void)signal;
    if (!who) return;
    if (atomic_load(&who->inside)) {
        const _Atomic int *finished = &who->all->finished[who->shape];
        const int until = atomic_load(finished) + 2;
        atomic_store(&who->all->until, until);
        atomic_store(&who->all->turn, who->shape);
        for (int i = 0; i < LONGEST_HOLD && atomic_load(finished) < until; i++) nap();
        if (atomic_load(finished) >= until) atomic_fetch_add(&who->all->holds, 1);
        atomic_store(&who->all->turn, NOBODY);
    }
    atomic_store(&who->wanted, false);
}

/* Holds up one thread after another until enough of them have been overtaken; then all go on at once. Those who do not
 * matter wait meanwhile, so that those who do find a processor on a busy machine too. */
static void disturb(caller *callers, int n, crowd *all, int holds, uint64_t seed) {
    struct sigaction before, held_up = {.sa_handler = hold_up, .sa_flags = SA_RESTART};
    const double end = check_now() + MOST_SECONDS;
    sigaction(SIGUSR1, &held_up, &before);
    for (int tries = 0; tries < 8 * holds && atomic_load(&all->holds) < holds && check_now() < end; tries++) {
        caller *who = &callers[random_below(&seed, n)];
        atomic_store(&who->wanted, true);
        while (!atomic_load(&who->inside) && !atomic_load(&all->enough) && check_now() < end) continue;
        pthread_kill(who->thread, SIGUSR1);
        while (atomic_load(&who->wanted) && !atomic_load(&all->enough) && check_now() < end) nap();
    }
    atomic_store(&all->enough, true);
    for (int i = 0; i < n; i++) pthread_join(callers[i].thread, NULL);
    sigaction(SIGUSR1, &before, NULL);
}

static void run_concurrent(checker *c) {
    static caller callers[CALLERS];
    crowd all = {.enough = c->gpu != NULL, .turn = NOBODY};
    int ready = 0, started = 0;
    while (ready < CALLERS && prepare_caller(c, &callers[ready], ready, &all)) ready++;
    while (started < ready && pthread_create(&callers[started].thread, NULL, call_often, &callers[started]) == 0) {
        started++;
    }
    if (started < ready) check_fail(c, "the system refuses threads");
    atomic_store(&all.go, true);
    if (!c->gpu && started > 0) disturb(callers, started, &all, c->options.quick ? 4 : 40, check_seed(c, 650));
    for (int i = 0; i < started; i++) {
        if (c->gpu) pthread_join(callers[i].thread, NULL);
        if (callers[i].wrong[0]) check_fail(c, "%s (8 threads at once)", callers[i].wrong);
    }
    for (int i = 0; i < ready; i++) {
        call_free(&callers[i].serial);
        call_free(&callers[i].k);
        problem_free(&callers[i].p);
        mirror_close(&callers[i].gpu);
    }
}

/* ---- fork -------------------------------------------------------------------------------------------------------- */

/* 0: gone by itself with that status; else the signal, or -1 after half a minute. */
static int wait_for(pid_t child, int *status) {
    for (int i = 0; i < 3000; i++) {
        int got;
        if (waitpid(child, &got, WNOHANG) == child) {
            *status = WIFEXITED(got) ? WEXITSTATUS(got) : 0;
            return WIFSIGNALED(got) ? WTERMSIG(got) : 0;
        }
        usleep(10000);
    }
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    return -1;
}

static const char *const of_child[] = {NULL, "the child of a fork gets another result",
                                       "the child of a fork is not told that it cannot use CUDA",
                                       "the child of a fork cannot use the CPU"};

/* On the CPU a child goes on as if nothing had happened. Returns what is wrong, of `of_child`. */
static int child_repeats(checker *c, const problem *p, made_call *k, const made_call *first) {
    return again(c, p, k, NULL, first, "") ? 0 : 1;
}

/* On the GPU it is told why it cannot; its CPU goes on all the same. The tensors are on the GPU already. */
static int child_is_told(checker *c, const problem *p, made_call *k, const made_call *first) {
    (void)first;
    made_call on_cpu_call;
    const tn_host streaming = tn_stream_host(c->gpu->stream);
    const bool told = tn_run(c->op, &k->args, &streaming) == TN_SYSTEM && strstr(tn_last_error(), "fork") != NULL;
    const bool runs = problem_call(p, &on_cpu_call, (call_options){0}) == TN_OK &&
                      tn_run(c->op, &on_cpu_call.args, NULL) == TN_OK;
    return !told ? 2 : !runs ? 3 : 0;
}

static void fork_with(checker *c, const problem *p, made_call *k, const made_call *first) {
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        checker own = *c;  /* the parent's is shared */
        own.broken = true; /* says nothing: the parent speaks */
        const int wrong = (c->gpu ? child_is_told : child_repeats)(&own, p, k, first);
        tni_c_end();
        _exit(wrong);
    }
    int status = 0, signal = child > 0 ? wait_for(child, &status) : 0;
    if (child < 0) check_fail(c, "fork failed");
    if (signal > 0) check_fail(c, "the child of a fork died of signal %d", signal);
    if (signal < 0) check_fail(c, "the child of a fork hangs");
    if (signal == 0 && status != 0) {
        const bool known = status < (int)(sizeof of_child / sizeof *of_child);
        check_fail(c, "%s", known ? of_child[status] : "the child of a fork ends the process");
    }
}

static void run_fork(checker *c) {
    problem p;
    made_call first, k;
    if (CHECK_TSAN) {
        check_skip(c, "ThreadSanitizer cannot follow a fork");
        return;
    }
    if (!grown_problem(c, 0, 60000, &p)) return;
    if (first_run(c, &p, &first, NULL)) {
        if (first_run(c, &p, &k, NULL)) {
            bool ready = !c->gpu || mirror_begin_call(c->gpu, &k) == TN_OK;
            if (!ready) check_fail(c, "%s", tn_last_error());
            if (ready) fork_with(c, &p, &k, &first);
            if (ready && c->gpu && mirror_end(c->gpu) != TN_OK) check_fail(c, "%s", tn_last_error());
            call_free(&k);
        }
        call_free(&first);
    }
    problem_free(&p);
}

const check_row system_rows[] = {
    {"repeat", "1000 times the same bits", ONCE, 0, NULL, run_repeat,
     "A data race: the same call gives different results. Look for += on memory that several threads share (use "
     "atomicAdd or a reduction; atomicAdd of floats adds in another order each time), a missing __syncthreads(), and "
     "memory that is read before it is written."},
    {"threads", "the same bits on 1, 2, 3 and 8 threads, in uneven pieces and in the smallest at once (cpu)",
     RARE | NOT_REF, 100000, on_cpu, run_threads},
    {"concurrent", "8 threads at once, some with the same shapes, held up here and there, against one alone", ONCE, 0,
     NULL, run_concurrent,
     "Calls run in several threads at once. Look for static and global variables, and for a buffer that calls share: "
     "ask for workspace instead."},
    {"fork", "a child process gets the same bits; on a GPU, a clear error", ONCE, 0, NULL, run_fork},
    {0},
};
