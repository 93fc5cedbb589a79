/* Kernels of CUDA C: found in the code of their text, and launched as their line says. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "cuda/driver/cuda.h"
#include "index_check.h"
#include "instance.h"

enum { MOST_CONSTANTS = 8 };

typedef struct step {
    tn_launch launch;
    int32_t n_params;
    tni_give give[TNI_MOST_PARAMS];
    tni_param_name *names; /* of the parameters, where indices are checked; else NULL */
} step;

/* A `__constant__` variable of the text with the name of an input, which is copied there before. */
typedef struct constant {
    int32_t input;
    uint64_t to;
    size_t bytes;
} constant;

typedef struct state {
    tn_device_kind device;
    size_t scratch;
    int32_t n_steps, n_constants;
    constant constants[MOST_CONSTANTS];
    step steps[];
} state;

static tn_status set_launch(const tni_launch_step *from, tn_launch *to) {
    to->grid = (uint32_t)from->grid[0];
    to->grid_y = (uint32_t)from->grid[1];
    to->grid_z = (uint32_t)from->grid[2];
    if (from->grid[1] == 0 || from->grid[2] == 0) to->grid = 0;
    to->block = (uint32_t)from->block[0];
    to->block_y = (uint32_t)from->block[1];
    to->block_z = (uint32_t)from->block[2];
    to->shared = (uint32_t)from->shared;
    to->cluster = (uint32_t)from->cluster;
    return TN_OK;
}

static tn_status find_constant(const tni_known *k, const tni_code *c, const tni_cvariable *v, int32_t input,
                               constant *to) {
    const tn_call *call = k->call;
    const tn_view *view = tn_in(call, input);
    const size_t bytes = (size_t)tn_count(view) * tn_type_size(view->type);
    TN_TRY(tni_cuda_global(call, c->data, c->bytes, v->name, &to->to, &to->bytes));
    if (bytes > to->bytes) {
        return tn_fail(TN_BAD_VALUE, "%s: line %d: __constant__ %s has %zu bytes, and %s has %zu", call->name, v->line,
                       v->name, to->bytes, v->name, bytes);
    }
    to->input = input;
    to->bytes = bytes;
    return TN_OK;
}

static tn_status find_constants(const tni_known *k, const tni_code *c, const tni_cfunctions *all, state *s) {
    for (int32_t i = 0; i < all->n_constants; i++) {
        for (int32_t j = 0; j < k->contract->n_inputs; j++) {
            if (strcmp(all->constants[i].name, k->contract->inputs[j].name) != 0 || !tn_in(k->call, j)) continue;
            if (s->n_constants == MOST_CONSTANTS)
                return tn_fail(TN_UNSUPPORTED, "%s: at most 8 __constant__ inputs", k->call->name);
            TN_TRY(find_constant(k, c, &all->constants[i], j, &s->constants[s->n_constants++]));
        }
    }
    return TN_OK;
}

static tn_status keep_names(const tni_cfunction *f, tni_param_name **names) {
    *names = tni_calloc((size_t)f->n_params + 1, sizeof **names);
    if (!*names) return TN_NO_MEMORY;
    for (int32_t i = 0; i < f->n_params; i++) snprintf((*names)[i], sizeof **names, "%s", f->params[i].name);
    return TN_OK;
}

static tn_status fill(const tni_known *k, const tn_source *source, const tni_launch_steps *steps,
                      const tni_cfunctions *all, const tni_instance *of, state *s) {
    const tn_call *call = k->call;
    const tn_gpu *gpu;
    const tni_code *c;
    TN_TRY(tn_cuda_gpu(call, &gpu));
    TN_TRY(tni_code_get(call->name, source, of, gpu->major, gpu->minor, &c));
    const char *name = c->names;
    for (int32_t i = 0; i < steps->n; i++) {
        step *to = &s->steps[i];
        const tni_cfunction *f;
        char lowered[1024];
        const size_t n = strcspn(name, "\n");
        TN_TRY(tni_pick_function(call->name, all, steps->steps[i].kernel, &f));
        TN_TRY(tni_give_params(call->name, k, f, false, to->give));
        to->n_params = f->n_params;
        if (tni_checks_index()) TN_TRY(keep_names(f, &to->names));
        TN_TRY(set_launch(&steps->steps[i], &to->launch));
        snprintf(lowered, sizeof lowered, "%.*s", (int)n, name);
        TN_TRY(tn_cuda_find(call, &to->launch, c->data, c->bytes, lowered));
        snprintf(to->launch.name, sizeof to->launch.name, "%s", f->name);
        name += n + (name[n] == '\n');
    }
    return find_constants(k, c, all, s);
}

/* What the text leaves open, for this call. */
static tn_status choose(tni_known *k, const tn_source *source, tni_arena *arena) {
    const tn_gpu *gpu;
    tni_sizes sizes;
    TN_TRY(tni_find_tunables(k->contract->name, source->cuda, arena, &k->tunables));
    if (!k->tunables.n) return TN_OK;
    TN_TRY(tn_cuda_gpu(k->call, &gpu));
    tni_sizes_of(k, &sizes);
    const tn_view *first = tn_in(k->call, 0);
    const tni_tune_point point = {gpu->major, gpu->minor, first ? first->type : TN_NO_TYPE, sizes.rows, sizes.columns};
    k->choice = tni_tune_choose(&k->tunables, &point);
    return TN_OK;
}

static tn_status prepare(tni_known *k, const tn_source *source, tni_arena *arena, state **made) {
    const char *op = k->contract->name;
    tni_cfunctions all;
    tni_sizes sizes;
    tni_launch_steps steps;
    tni_instance of;
    TN_TRY(tni_find_functions(source->cuda, false, arena, &all));
    TN_TRY(choose(k, source, arena));
    tni_sizes_of(k, &sizes);
    TN_TRY(tni_launch_read(op, source->launch ? source->launch : "elements", &sizes, &steps));
    tn_status status = tni_instance_make(k, source, &all, &steps, arena, &of);
    state *s = status == TN_OK ? tni_calloc(1, sizeof *s + (size_t)steps.n * sizeof s->steps[0]) : NULL;
    if (status == TN_OK && !s) status = TN_NO_MEMORY;
    if (status == TN_OK) {
        s->device = TN_CUDA;
        s->n_steps = steps.n;
        s->scratch = (size_t)steps.scratch;
        status = fill(k, source, &steps, &all, &of, s);
    }
    tni_free(of.text);
    if (status == TN_OK) {
        *made = s;
    } else {
        tni_cuda_source_release(s);
    }
    return status;
}

tn_status tni_cuda_source_prepare(const tn_call *call, const tn_source *source, void **made) {
    tni_known known;
    TN_TRY(tni_known_of(call, &known));
    tni_arena *arena = tni_arena_new();
    if (!arena) return TN_NO_MEMORY;
    state *s = NULL;
    const tn_status status = prepare(&known, source, arena, &s);
    tni_arena_free(arena);
    *made = s;
    return status;
}

int32_t tni_source_launches(const tn_kernel *kernel, const void *made, const tn_launch **launches, int32_t most) {
    const state *s = made;
    if (kernel->run != tn_source_run || !s || s->device != TN_CUDA) return 0;
    int32_t n = s->n_steps < most ? s->n_steps : most;
    for (int32_t i = 0; i < n; i++) launches[i] = &s->steps[i].launch;
    return n;
}

size_t tni_cuda_source_workspace(const void *s) {
    return ((const state *)s)->scratch;
}

void tni_cuda_source_release(void *made) {
    state *s = made;
    for (int32_t i = 0; s && i < s->n_steps; i++) tni_free(s->steps[i].names);
    tni_free(s);
}

static tn_status run_step(const tn_call *call, const step *s) {
    if (s->names) return tni_launch_checked(call, &s->launch, s->n_params, s->give, s->names);
    void *pointers[TNI_MOST_PARAMS], *arguments[TNI_MOST_PARAMS];
    for (int32_t i = 0; i < s->n_params; i++) {
        const tni_give *g = &s->give[i];
        const tn_view *v = g->how == TNI_GIVE_INPUT    ? tn_in(call, g->index)
                           : g->how == TNI_GIVE_OUTPUT ? tn_out(call, g->index)
                                                       : NULL;
        pointers[i] = g->how == TNI_GIVE_SCRATCH ? call->workspace : v ? v->data : NULL;
        arguments[i] = g->how == TNI_GIVE_VALUE ? (void *)(uintptr_t)&g->bits : (void *)&pointers[i];
    }
    return tn_cuda_launch(call, &s->launch, arguments);
}

static tn_status run_all(const tn_call *call, const state *s) {
    for (int32_t i = 0; i < s->n_constants; i++) {
        const constant *c = &s->constants[i];
        TN_TRY(tn_copy(call->device, (void *)(uintptr_t)c->to, call->device, tn_in(call, c->input)->data, c->bytes,
                       call->host->stream));
    }
    for (int32_t i = 0; i < s->n_steps; i++) TN_TRY(run_step(call, &s->steps[i]));
    return TN_OK;
}

/* ---- constant memory --------------------------------------------------------------------------------------------- */

/* A `__constant__` variable belongs to the compiled text, whatever stream fills and reads it. So calls that fill one
 * take turns on each GPU: what one puts on its stream waits for what the one before has put on another. */
static struct {
    pthread_mutex_t lock;
    tn_event *ends[TNI_MOST_GPUS]; /* of what the last call has put on its stream */
} turns = {.lock = PTHREAD_MUTEX_INITIALIZER};

void tni_cuda_sources_close(void) {
    pthread_mutex_lock(&turns.lock);
    for (int i = 0; i < TNI_MOST_GPUS; i++) {
        tn_event_free(turns.ends[i]);
        turns.ends[i] = NULL;
    }
    pthread_mutex_unlock(&turns.lock);
}

static tn_status run_in_turn(const tn_call *call, const state *s) {
    tn_event **end = &turns.ends[call->device.index];
    if (!*end) TN_TRY(tn_event_make(call->device, end));
    TN_TRY(tn_event_hold(*end, call->host->stream));
    TN_TRY(run_all(call, s));
    return tn_event_record(*end, call->host->stream);
}

/* A graph that is captured cannot wait for what is outside of it. An error counts as yes: on the default stream, CUDA
 * gives one while any other stream is captured. */
static bool is_captured(const tn_call *call) {
    const tni_cuda_api *cu = tni_cuda(call->name);
    int is = 0;
    return cu && (cu->cuStreamIsCapturing(call->host->stream, &is) != 0 || is != 0);
}

tn_status tni_cuda_source_run(const tn_call *call, void *made) {
    const state *s = made;
    if (!s->n_constants || is_captured(call)) return run_all(call, s);
    pthread_mutex_lock(&turns.lock);
    const tn_status status = run_in_turn(call, s);
    pthread_mutex_unlock(&turns.lock);
    return status;
}
