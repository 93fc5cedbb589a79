/* TENON_SYNC and TENON_LOG. */
#include "watch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/contract/parts.h"
#include "core/layout/layout.h"

_Atomic int tni_watched = TNI_WATCH_UNREAD;
static _Atomic int log_file = STDERR_FILENO;
static _Atomic bool said_capture;

static bool is_set(const char *value) {
    return value && *value && strcmp(value, "0") != 0;
}

/* Lines of several processes may go to one file: each is written at once, behind what is there. */
static int open_log(const char *name) {
    if (strcmp(name, "1") == 0) return STDERR_FILENO;
    const int file = open(name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (file < 0) fprintf(stderr, "tenon: TENON_LOG: %s: %s; the log goes to stderr\n", name, strerror(errno));
    return file < 0 ? STDERR_FILENO : file;
}

int tni_watch_read(void) {
    const char *log = getenv("TENON_LOG");
    int what = is_set(getenv("TENON_SYNC")) ? TNI_WATCH_SYNC : 0, unread = TNI_WATCH_UNREAD;
    if (is_set(log)) what |= TNI_WATCH_LOG;
    if (!is_set(log)) {
        atomic_compare_exchange_strong(&tni_watched, &unread, what);
        return what;
    }
    const int file = open_log(log);
    int before = STDERR_FILENO; /* two threads may be here: one of them has opened it in vain */
    if (file != STDERR_FILENO && !atomic_compare_exchange_strong(&log_file, &before, file)) close(file);
    atomic_compare_exchange_strong(&tni_watched, &unread, what);
    return what;
}

void tni_watch_forget(void) {
    const int file = atomic_exchange(&log_file, STDERR_FILENO);
    if (file != STDERR_FILENO) close(file);
    atomic_store(&said_capture, false);
    atomic_store(&tni_watched, TNI_WATCH_UNREAD);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The line ends here. What cannot be written is lost: a log is in nobody's way. */
static void write_line(tni_text *line) {
    tni_text_put(line, "\n");
    if (!line->failed && write(atomic_load(&log_file), line->data, line->length) < 0) errno = 0;
    tni_free(line->data);
}

/* The last message, without the operator's name where it begins with that. */
static const char *own_words(const char *name) {
    const char *said = tn_last_error();
    const size_t length = strlen(name);
    return strncmp(said, name, length) == 0 && strncmp(said + length, ": ", 2) == 0 ? said + length + 2 : said;
}

/* ---- describing a call ------------------------------------------------------------------------------------------- */

static void print_tensor(tni_text *text, const tni_contract *c, const tni_slot *slot) {
    const tn_view *v = &slot->view;
    const char *name = slot->is_output ? c->outputs[slot->param].name : c->inputs[slot->param].name;
    tni_text_add(text, "%s: %s[", name, tn_type_name(v->type));
    for (int32_t d = 0; d < v->ndim; d++) tni_text_add(text, d ? ", %lld" : "%lld", (long long)v->shape[d]);
    tni_text_put(text, "]");
    if (slot->dropped || tni_is_dense(v->ndim, v->shape, v->strides)) return;
    tni_text_put(text, " strides (");
    for (int32_t d = 0; d < v->ndim; d++) tni_text_add(text, d ? ", %lld" : "%lld", (long long)v->strides[d]);
    tni_text_put(text, ")");
}

/* "x: f32[4, 8], y: f32[4, 8] strides (1, 4), axis=1" */
static void print_call(tni_text *text, const tni_plan *plan) {
    const tni_contract *c = plan->op->contract;
    bool any = false;
    for (int32_t i = 0; i < plan->n_slots; i++) {
        if (plan->slots[i].dropped) continue;
        tni_text_put(text, any ? ", " : "");
        print_tensor(text, c, &plan->slots[i]);
        any = true;
    }
    for (int32_t a = 0; a < c->n_attrs; a++) {
        if (plan->attrs[a].kind == TN_ATTR_UNSET) continue;
        tni_text_add(text, "%s%s=", any ? ", " : "", c->attrs[a].name);
        tni_print_value(text, &plan->attrs[a]);
        any = true;
    }
}

static void print_copies(tni_text *text, const tni_watch *w) {
    const tni_contract *c = w->plan->op->contract;
    bool any = false;
    for (int32_t i = 0; i < w->plan->n_slots; i++) {
        const tni_slot *slot = &w->plan->slots[i];
        if (slot->dropped || (!slot->dense && !w->copied[i])) continue;
        const char *name = slot->is_output ? c->outputs[slot->param].name : c->inputs[slot->param].name;
        tni_text_add(text, "%s%s (%s)", any ? ", " : "; copied ", name,
                     slot->dense ? "the kernel takes dense tensors only" : "it overlaps an input");
        any = true;
    }
}

/* ---- why this kernel --------------------------------------------------------------------------------------------- */

void tni_watch_pass(tni_text *why, const tni_plan *plan, const tn_kernel *kernel, const char *wanted, tn_type type,
                    uint32_t isa, bool declined) {
    const tni_device_ops *device = tni_device_of((int32_t)kernel->device);
    tni_text_add(why, "%s'%s' ", why->length ? "; " : "", kernel->name);
    if (declined) {
        tni_text_add(why, "cannot take it: %s", own_words(plan->op->contract->name));
    } else if ((int32_t)kernel->device != plan->device.kind) {
        tni_text_add(why, "is for %s", device ? device->name : "another device");
    } else if (wanted && strcmp(wanted, kernel->name) != 0) {
        tni_text_add(why, "is not '%s', which was asked for", wanted);
    } else if (kernel->isa & ~isa) {
        tni_text_put(why, "needs instructions that this CPU lacks or TENON_ISA forbids");
    } else if (kernel->types && !(kernel->types & TN_BIT(type))) {
        tni_text_put(why, "takes ");
        tni_print_mask(why, kernel->types, ", ", " and ");
        tni_text_add(why, ", not %s", tn_type_name(type));
    } else {
        tni_text_put(why, "does not accept these shapes, strides or attributes");
    }
}

/* ---- a call ------------------------------------------------------------------------------------------------------ */

static void say_capture(void) {
    if (atomic_exchange(&said_capture, true)) return;
    fprintf(stderr, "tenon: TENON_SYNC does not wait while a CUDA graph is captured; an error shows when the graph "
                    "runs, and is not named\n");
}

tn_status tni_watch_begin(tni_watch *w) {
    const tni_plan *plan = w->plan;
    const char *name = plan->op->contract->name;
    w->waits = (tni_watching() & TNI_WATCH_SYNC) && plan->ops->wait;
    if (w->waits && plan->ops->capturing && plan->ops->capturing(plan->device, w->host->stream)) {
        say_capture();
        w->waits = false;
    }
    if (w->waits && plan->ops->wait(name, plan->device, w->host->stream) != TN_OK) {
        return tn_fail(TN_SYSTEM, "%s was not run: something before it in the stream failed: %s", name,
                       tn_last_error());
    }
    w->began = now();
    return TN_OK;
}

static tn_status fail_described(const tni_watch *w) {
    const tni_plan *plan = w->plan;
    tni_text text = {0};
    const char *name = plan->op->contract->name;
    tni_text_add(&text, "%s: kernel '%s' failed: %s; the call was ", name, plan->kernel->name, own_words(name));
    print_call(&text, plan);
    return tni_fail_text(TN_SYSTEM, &text);
}

static void log_call(const tni_watch *w, tn_status status, double seconds) {
    const tni_plan *plan = w->plan;
    char device[TNI_DEVICE_TEXT];
    tni_text line = {0};
    tni_device_print(device, plan->device);
    tni_text_add(&line, "tenon %s: kernel '%s' on %s; ", plan->op->contract->name, plan->kernel->name, device);
    print_call(&line, plan);
    print_copies(&line, w);
    if (plan->workspace) tni_text_add(&line, "; workspace %zu bytes", plan->workspace);
    tni_text_add(&line, "; %.1f us%s", 1e6 * seconds,
                 w->waits || plan->device.kind == TN_CPU ? "" : " until it was in the stream");
    if (plan->why && !atomic_exchange(&((tni_plan *)plan)->why_said, true)) {
        tni_text_add(&line, "; passed over: %s", plan->why);
    }
    if (status != TN_OK) tni_text_add(&line, "; failed: %s", tn_last_error());
    write_line(&line);
}

tn_status tni_watch_end(tni_watch *w, tn_status status) {
    const tni_plan *plan = w->plan;
    if (status == TN_OK && w->waits &&
        plan->ops->wait(plan->op->contract->name, plan->device, w->host->stream) != TN_OK) {
        status = fail_described(w);
    }
    const double seconds = now() - w->began;
    if (tni_watching() & TNI_WATCH_LOG) log_call(w, status, seconds);
    return status;
}

void tni_watch_error(const char *name, const char *what) {
    tni_text line = {0};
    if (!(tni_watching() & TNI_WATCH_LOG)) return;
    tni_text_add(&line, "tenon %s: %s: %s", name, what, own_words(name));
    write_line(&line);
}
