/* Watching calls, for whoever looks for a mistake. TENON_SYNC=1: each call waits for its device, so that an error names
 * the call that caused it. TENON_LOG=1, or a file: a line for each call. */
#ifndef TNI_WATCH_H
#define TNI_WATCH_H

#include <stdatomic.h>

#include "core/host/text.h"
#include "plan.h"

enum { TNI_WATCH_SYNC = 1, TNI_WATCH_LOG = 2, TNI_WATCH_UNREAD = 4 };

extern _Atomic int tni_watched; /* TNI_WATCH_…; UNREAD: the environment was not looked at yet */
int tni_watch_read(void);       /* looks */

/* What is watched. Nothing, most often: a call pays for one branch that is never taken. */
static inline int tni_watching(void) {
    const int what = atomic_load_explicit(&tni_watched, memory_order_relaxed);
    return __builtin_expect(what == 0, 1) ? 0 : what & TNI_WATCH_UNREAD ? tni_watch_read() : what;
}
void tni_watch_forget(void); /* tests: the environment is read again */

/* A call that is about to run, and what became of it. */
typedef struct tni_watch {
    const tni_plan *plan;
    const tn_host *host;
    const bool *copied; /* (n_slots) beside those that the plan copies */
    double began;
    bool waits; /* TENON_SYNC, and no graph is being captured */
} tni_watch;
/* Waits for what is in the stream already: an error in it is not this call's. */
tn_status tni_watch_begin(tni_watch *w);
/* Waits for the call and logs it. `status` is what it returned; with TENON_SYNC, what the device made of it comes
 * back. */
tn_status tni_watch_end(tni_watch *w, tn_status status);
/* Logs tn_last_error(), where there is a log: "tenon linear: refused: x has rank 0, needs at least 1". */
void tni_watch_error(const char *name, const char *what);

/* Notes why a kernel was passed over, for the log: "'avx2' is for the cpu". declined: tn_last_error() says it. */
void tni_watch_pass(tni_text *why, const tni_plan *plan, const tn_kernel *kernel, const char *wanted, tn_type type,
                    uint32_t isa, bool declined);

#endif
