/* The thread pool of plain C programs. Workers wait for a loop, take pieces of it, and sleep again. A loop inside a
 * loop, or one started while another program thread uses the pool, runs on its own thread: always right, never a
 * deadlock. */
#include <errno.h>
#include <fenv.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "arith.h"
#include "threads.h"

enum { PIECES = 4 /* per thread, so that a slow one is helped out */, SPINS = 4000 };

typedef struct loop {
    tn_body body;
    void *arg;
    int64_t n, piece;
    _Atomic int64_t next; /* first element that nobody has taken */
    fenv_t rounding;      /* the caller's: XLA's threads make 0 of tiny numbers, and no part may differ */
} loop;

static struct {
    pthread_mutex_t busy; /* held by the thread whose loop runs */
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t wake;  /* a loop has come */
    pthread_cond_t done;  /* the last worker has left it */
    loop *current;
    _Atomic uint64_t round; /* counts loops; workers spin on it before they sleep */
    _Atomic int inside;     /* workers in the current loop */
    int helpers;            /* workers that the current loop wants */
    int started;            /* workers */
    bool stopping;          /* they are to end */
    pthread_t ids[TNI_MOST_THREADS];
    _Atomic int wanted; /* threads, the caller's included; 0: not decided yet */
} pool = {.busy = PTHREAD_MUTEX_INITIALIZER,
          .lock = PTHREAD_MUTEX_INITIALIZER,
          .wake = PTHREAD_COND_INITIALIZER,
          .done = PTHREAD_COND_INITIALIZER};

static _Thread_local bool inside_loop;

static void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb");
#endif
}

static void work(loop *l) {
    inside_loop = true;
    for (;;) {
        int64_t begin = atomic_fetch_add_explicit(&l->next, l->piece, memory_order_relaxed);
        if (begin >= l->n) break;
        l->body(l->arg, begin, l->n - begin < l->piece ? l->n : begin + l->piece);
    }
    inside_loop = false;
}

/* ---- workers ----------------------------------------------------------------------------------------------------- */

static void *worker(void *arg) {
    uint64_t seen = (uint64_t)(uintptr_t)arg;
    for (;;) {
        for (int i = 0; i < SPINS && atomic_load_explicit(&pool.round, memory_order_relaxed) == seen; i++) relax();
        pthread_mutex_lock(&pool.lock);
        while (atomic_load(&pool.round) == seen) pthread_cond_wait(&pool.wake, &pool.lock);
        seen = atomic_load(&pool.round);
        if (pool.stopping) break;
        loop *l = atomic_load(&pool.inside) < pool.helpers ? pool.current : NULL; /* NULL: over already */
        if (l) atomic_fetch_add(&pool.inside, 1);
        pthread_mutex_unlock(&pool.lock);
        if (!l) continue;
        fesetenv(&l->rounding);
        work(l);
        pthread_mutex_lock(&pool.lock);
        if (atomic_fetch_sub(&pool.inside, 1) == 1) pthread_cond_signal(&pool.done);
        pthread_mutex_unlock(&pool.lock);
    }
    pthread_mutex_unlock(&pool.lock);
    return NULL;
}

/* The caller holds pool.busy. Where the system refuses a thread, the loop does with fewer. */
static void start_workers(int count) {
    while (pool.started < count) {
        void *round = (void *)(uintptr_t)atomic_load(&pool.round);
        if (pthread_create(&pool.ids[pool.started], NULL, worker, round) != 0) break;
        pool.started++;
    }
}

void tni_threads_end(void) {
    pthread_mutex_lock(&pool.busy);
    pthread_mutex_lock(&pool.lock);
    pool.stopping = true;
    atomic_fetch_add(&pool.round, 1);
    pthread_cond_broadcast(&pool.wake);
    pthread_mutex_unlock(&pool.lock);
    for (int i = 0; i < pool.started; i++) pthread_join(pool.ids[i], NULL);
    pool.started = 0;
    pool.stopping = false;
    pthread_mutex_unlock(&pool.busy);
}

/* Threads do not survive a fork: the child starts its own when it needs them. */
static void after_fork(void) {
    pthread_mutex_init(&pool.busy, NULL);
    pthread_mutex_init(&pool.lock, NULL);
    pthread_cond_init(&pool.wake, NULL);
    pthread_cond_init(&pool.done, NULL);
    pool.current = NULL;
    pool.started = 0;
    atomic_store(&pool.inside, 0);
    inside_loop = false;
}

static void watch_forks(void) {
    pthread_atfork(NULL, NULL, after_fork);
}

/* ---- how many ---------------------------------------------------------------------------------------------------- */

static int cores(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (int)n : 1;
}

/* TENON_NUM_THREADS where it is a number in range, else a thread for every core that this process may use. */
static int default_threads(void) {
    const char *text = getenv("TENON_NUM_THREADS");
    if (text && *text) {
        char *end;
        errno = 0;
        long n = strtol(text, &end, 10);
        if (errno == 0 && *end == '\0' && n >= 1 && n <= TNI_MOST_THREADS) return (int)n;
    }
    int n = cores();
    return n < TNI_MOST_THREADS ? n : TNI_MOST_THREADS;
}

int tn_threads(void) {
    int n = atomic_load_explicit(&pool.wanted, memory_order_relaxed);
    if (n) return n;
    int none = 0;
    n = default_threads();
    return atomic_compare_exchange_strong(&pool.wanted, &none, n) ? n : none;
}

tn_status tn_set_threads(int count) {
    if (count < 0 || count > TNI_MOST_THREADS) {
        return tn_fail(TN_BAD_VALUE, "the number of threads is %d, must be 1 to %d, or 0 for the default", count,
                       TNI_MOST_THREADS);
    }
    atomic_store(&pool.wanted, count ? count : default_threads());
    return TN_OK;
}

/* ---- the loop ---------------------------------------------------------------------------------------------------- */

static void run_loop(loop *l, int threads) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    start_workers(threads - 1);
    pthread_mutex_lock(&pool.lock);
    pool.current = l;
    pool.helpers = threads - 1;
    atomic_fetch_add(&pool.round, 1);
    pthread_cond_broadcast(&pool.wake);
    pthread_mutex_unlock(&pool.lock);
    work(l);
    pthread_mutex_lock(&pool.lock);
    pool.current = NULL; /* whoever comes late finds nothing */
    while (atomic_load(&pool.inside) > 0) pthread_cond_wait(&pool.done, &pool.lock);
    pthread_mutex_unlock(&pool.lock);
}

void tni_parallel(void *context, int64_t n, int64_t grain, tn_body body, void *arg) {
    (void)context;
    if (n <= 0) return;
    if (grain < 1) grain = 1;
    int64_t most = n / grain > 0 ? n / grain : 1;
    int threads = tn_threads();
    if (threads > most) threads = (int)most;
    if (threads < 2 || inside_loop || pthread_mutex_trylock(&pool.busy) != 0) {
        body(arg, 0, n);
        return;
    }
    const int64_t pieces = min(threads * PIECES, most);
    loop l = {.body = body, .arg = arg, .n = n, .piece = ceil_div(n, pieces)};
    fegetenv(&l.rounding);
    run_loop(&l, threads);
    pthread_mutex_unlock(&pool.busy);
}
