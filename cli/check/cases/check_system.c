/* Rows about the world around a call: the same bits every time, on any number of threads, in threads and after a fork;
 * nothing left behind. */
#include "cli/check/check.h"

#include <dirent.h>
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
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

/* A dense call with the problem's values, run once. False: failure reported, nothing to free. */
static bool first_run(checker *c, const problem *p, made_call *k, const tn_host *host) {
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

enum { CALLERS = 8 };

typedef struct caller {
    pthread_t thread;
    checker *c;
    mirror gpu; /* with a stream of its own, where the checker has a GPU */
    problem p;
    made_call serial, k;
    _Atomic int *go;
    int repeats;
    char wrong[512]; /* "" when all went well */
} caller;

/* The checker is not shared: what went wrong is kept for the thread that started us. */
static void *call_often(void *arg) {
    caller *who = arg;
    const tn_function *op = who->c->op;
    while (!atomic_load(who->go)) sched_yield();
    for (int i = 0; i < who->repeats && !who->wrong[0]; i++) {
        for (int32_t o = 0; o < who->k.n_out; o++) {
            if (who->k.out[o].count >= 0) array_fill(&who->k.out[o]);
        }
        for (int32_t j = 0; j < who->k.n_in; j++) {
            if (op->contract->inputs[who->k.param[j]].inplace) array_write(&who->k.in[j], who->p.in[j]);
        }
        if (call_run(&who->k, who->c->gpu ? &who->gpu : NULL, NULL) != TN_OK) {
            snprintf(who->wrong, sizeof who->wrong, "refused: %s", tn_last_error());
        }
        for (int32_t o = 0; o < who->k.n_out && !who->wrong[0]; o++) {
            if (who->k.out[o].count < 0) continue;
            size_t bytes = (size_t)who->k.out[o].count * tn_type_size(who->k.out[o].type);
            if (memcmp(who->k.out[o].tensor.data, who->serial.out[o].tensor.data, bytes) != 0) {
                snprintf(who->wrong, sizeof who->wrong, "%s differs from what one thread alone gets",
                         op->contract->outputs[o].name);
            }
        }
    }
    return NULL;
}

static bool prepare_caller(checker *c, caller *who, int i, _Atomic int *go) {
    who->c = c;
    who->go = go;
    who->repeats = c->options.quick ? 10 : 50;
    who->wrong[0] = 0;
    if (c->gpu && mirror_open(&who->gpu, c->gpu->device) != TN_OK) {
        check_fail(c, "%s", tn_last_error());
        return false;
    }
    if (grown_problem(c, 0, 500 + 700 * i, &who->p)) { /* shapes of their own, some above one grain */
        if (first_run(c, &who->p, &who->serial, NULL)) {
            if (first_run(c, &who->p, &who->k, NULL)) return true;
            call_free(&who->serial);
        }
        problem_free(&who->p);
    }
    mirror_close(&who->gpu);
    return false;
}

static void run_concurrent(checker *c) {
    static caller callers[CALLERS];
    _Atomic int go = 0;
    int ready = 0, started = 0;
    while (ready < CALLERS && prepare_caller(c, &callers[ready], ready, &go)) ready++;
    while (started < ready && pthread_create(&callers[started].thread, NULL, call_often, &callers[started]) == 0) {
        started++;
    }
    if (started < ready) check_fail(c, "the system refuses threads");
    atomic_store(&go, 1);
    for (int i = 0; i < started; i++) {
        pthread_join(callers[i].thread, NULL);
        if (callers[i].wrong[0]) check_fail(c, "%s (8 threads at once)", callers[i].wrong);
    }
    for (int i = 0; i < ready; i++) {
        call_free(&callers[i].serial);
        call_free(&callers[i].k);
        problem_free(&callers[i].p);
        mirror_close(&callers[i].gpu);
    }
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

/* On the CPU a child goes on as if nothing had happened. */
static bool child_repeats(checker *c, const problem *p, made_call *k, const made_call *first) {
    return again(c, p, k, NULL, first, "");
}

/* On the GPU it is told why it cannot; its CPU goes on all the same. The tensors are on the GPU already. */
static bool child_is_told(checker *c, const problem *p, made_call *k, const made_call *first) {
    (void)first;
    made_call on_cpu_call;
    const tn_host streaming = tn_stream_host(c->gpu->stream);
    bool told = tn_run(c->op, &k->args, &streaming) == TN_SYSTEM && strstr(tn_last_error(), "fork") != NULL;
    bool runs = problem_call(p, &on_cpu_call, (call_options){0}) == TN_OK &&
                tn_run(c->op, &on_cpu_call.args, NULL) == TN_OK;
    return told && runs;
}

static void fork_with(checker *c, const problem *p, made_call *k, const made_call *first) {
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        checker own = *c; /* the parent's is shared */
        own.broken = true; /* says nothing: the parent speaks */
        bool good = (c->gpu ? child_is_told : child_repeats)(&own, p, k, first);
        tni_c_end();
        _exit(good ? 0 : 1);
    }
    int status = 0, signal = child > 0 ? wait_for(child, &status) : 0;
    if (child < 0) check_fail(c, "fork failed");
    if (signal > 0) check_fail(c, "the child of a fork died of signal %d", signal);
    if (signal < 0) check_fail(c, "the child of a fork hangs");
    if (signal == 0 && status != 0) {
        check_fail(c, c->gpu ? "the child of a fork is not told that it cannot use CUDA, or cannot use the CPU"
                             : "the child of a fork gets another result");
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
    {"repeat", "1000 times the same bits", ONCE, 0, NULL, run_repeat},
    {"threads", "the same bits on 1, 2, 3 and 8 threads and in uneven pieces (cpu)", RARE | NOT_REF, 100000, on_cpu,
     run_threads},
    {"concurrent", "8 threads at once, with streams of their own, against one alone", ONCE, 0, NULL, run_concurrent},
    {"leaks", "1000 calls leave memory and files as they were", ONCE, 0, NULL, run_leaks},
    {"fork", "a child process gets the same bits; on a GPU, a clear error", ONCE, 0, NULL, run_fork},
    {0},
};
