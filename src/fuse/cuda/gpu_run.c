/* Programs on the GPU: code from the cache or the compiler, parameters, launches. */
#include <pthread.h>
#include <string.h>

#include "fuse/cache/cache.h"
#include "gpu.h"

/* ---- code -------------------------------------------------------------------------------------------------------- */

enum {
    GENERATOR = 7,   /* raised with every change of options or of what surrounds the text */
    MINIMAL = 12040, /* NVRTC from here on can leave out what no kernel uses: 8 ms less */
};

/* Libraries that are loaded stay so: other calls of the same form find them here. */
typedef struct loaded {
    tni_cache_key key;
    int device;
    cu_library library;
    struct loaded *next;
} loaded;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static loaded *libraries;

static bool find_loaded(const tni_cache_key *key, int device, cu_library *library) {
    pthread_mutex_lock(&lock);
    const loaded *l = libraries;
    while (l && !(l->device == device && memcmp(&l->key, key, sizeof *key) == 0)) l = l->next;
    if (l) *library = l->library;
    pthread_mutex_unlock(&lock);
    return l != NULL;
}

static tn_status keep_loaded(const tni_cache_key *key, int device, cu_library library) {
    loaded *made = tni_malloc(sizeof *made);
    if (!made) return TN_NO_MEMORY;
    pthread_mutex_lock(&lock);
    *made = (loaded){*key, device, library, libraries};
    libraries = made;
    pthread_mutex_unlock(&lock);
    return TN_OK;
}

static void unload_all(void) {
    pthread_mutex_lock(&lock);
    const tni_cuda_api *cu = libraries ? tni_cuda("unloading formulas") : NULL;
    for (loaded *l = libraries, *next; l; l = next) {
        next = l->next;
        if (cu) cu->cuLibraryUnload(l->library);
        tni_free(l);
    }
    libraries = NULL;
    pthread_mutex_unlock(&lock);
}

static tni_cache_key prelude_key; /* of what every text begins with */

static void hash_prelude(void) {
    prelude_key = tni_cache_key_of("prelude", tni_cuda_prelude);
}

/* The first byte says what the rest is. */
static tn_status take_cached(const tni_cached *cached, tni_compiled_code *code) {
    code->bytes = cached->bytes - 1;
    code->is_cached = true;
    code->is_ptx = cached->data[0] == 'p';
    code->data = tni_malloc(code->bytes + 1);
    if (!code->data) return TN_NO_MEMORY;
    memcpy(code->data, cached->data + 1, code->bytes);
    return TN_OK;
}

static void put_cached(tni_cache_entry *entry, const tni_compiled_code *code) {
    char *all = tni_malloc(code->bytes + 1);
    if (!all) return;
    all[0] = code->is_ptx ? 'p' : 'c';
    memcpy(all + 1, code->data, code->bytes);
    tni_cache_put(entry, all, code->bytes + 1);
    tni_free(all);
}

/* Of what a formula's text is compiled to. Code for the very GPU is good whichever NVRTC made it, so that what is
 * cached is found without opening one; PTX stands in for what that version does not know yet. */
static tni_cache_key key_of(const char *text, int variant, int major, int minor, int ptx_version) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, hash_prelude);
    return tni_cache_key_of("cuda %d, generator %d, %016llx%016llx, variant %d, sm_%d%d, NVRTC %d", text,
                            TNI_CACHE_SCHEMA, GENERATOR, (unsigned long long)prelude_key.hash[0],
                            (unsigned long long)prelude_key.hash[1], variant, major, minor, ptx_version);
}

int tni_gpu_options(const char *wanted, const char *text, const char **options) {
    const bool reduces = strstr(text, "_partial") || strstr(text, "_upright") || strstr(text, "finishes<");
    int n = 0;
    options[n++] = "--fmad=false"; /* products and sums are joined where the text says so: variants must not differ */
    if (tni_nvrtc_version(wanted) >= MINIMAL) options[n++] = "--minimal";
    options[n++] = "-DTN_PLAIN_HALVES";
    if (!strstr(text, "random_numbers(")) options[n++] = "-DTN_NO_RANDOM";
    if (!reduces) options[n++] = "-DTN_NO_PARTIALS";
    options[n] = NULL;
    return n;
}

static tn_status compile_with(const char *wanted, const char *text, int variant, int major, int minor,
                              tni_compiled_code *code) {
    const char *options[TNI_GPU_OPTIONS + 2];
    int n = tni_gpu_options(wanted, text, options);
    options[n++] = variant ? "-DTN_VARIANT=1" : "-DTN_VARIANT=0";
    options[n] = NULL;
    tni_text source = {0};
    tni_text_put(&source, tni_cuda_prelude);
    tni_text_put(&source, text);
    tn_status status = source.failed
                           ? TN_NO_MEMORY
                           : tni_nvrtc_compile(wanted, "formula.cu", source.data, major, minor, options, code);
    tni_free(source.data);
    return status;
}

tn_status tni_gpu_compile(const char *wanted, const char *text, int variant, int major, int minor,
                          tni_compiled_code *code) {
    tni_cache_key key = key_of(text, variant, major, minor, 0);
    tni_cache_entry entry;
    tni_cached cached;
    *code = (tni_compiled_code){0};
    tni_cache_get(&key, &cached);
    tn_status status = cached.bytes > 1 ? take_cached(&cached, code) : TN_OK;
    tni_free(cached.data);
    if (code->data || status != TN_OK) return status;
    const int version = tni_nvrtc_version(wanted);
    if (!version) return TN_SYSTEM;
    if (!tni_nvrtc_knows(major, minor)) key = key_of(text, variant, major, minor, version);
    tni_cache_open(&key, &entry, &cached);
    if (cached.bytes > 1) {
        status = take_cached(&cached, code);
    } else {
        status = compile_with(wanted, text, variant, major, minor, code);
        if (status == TN_OK) put_cached(&entry, code);
    }
    tni_free(cached.data);
    tni_cache_close(&entry);
    return status;
}

/* A driver may refuse what an NVRTC made that it is too old for; the one at hand then makes it anew. */
static tn_status load_code(const tn_call *call, const char *text, int variant, const tn_gpu *gpu, cu_library *library) {
    tni_compiled_code code;
    TN_TRY(tni_gpu_compile(call->name, text, variant, gpu->major, gpu->minor, &code));
    tn_status status = tni_cuda_load(call->name, call->device.index, &code, library);
    if (status == TN_SYSTEM && code.is_cached && tni_nvrtc_version(call->name)) {
        const tni_cache_key key = key_of(text, variant, gpu->major, gpu->minor, 0);
        tni_cache_drop(&key);
        tni_free(code.data);
        TN_TRY(tni_gpu_compile(call->name, text, variant, gpu->major, gpu->minor, &code));
        status = tni_cuda_load(call->name, call->device.index, &code, library);
    }
    tni_free(code.data);
    return status;
}

static tn_status load_library(const tn_call *call, const char *text, int variant, cu_library *library) {
    const tn_gpu *gpu;
    TN_TRY(tni_gpu_get(call->name, call->device.index, &gpu));
    tni_cache_key key = key_of(text, variant, gpu->major, gpu->minor, 0);
    if (find_loaded(&key, call->device.index, library)) return TN_OK;
    TN_TRY(load_code(call, text, variant, gpu, library));
    return keep_loaded(&key, call->device.index, *library);
}

static tn_status find_kernel(const tn_call *call, cu_library library, tn_launch *l) {
    const tni_cuda_api *cu = tni_cuda(call->name);
    if (!cu) return TN_SYSTEM;
    int error = cu->cuLibraryGetKernel(&l->kernel, library, l->name);
    return error ? tni_cuda_failed(call->name, l->name, error) : tni_cuda_allow(call, l);
}

tn_status tni_gpu_find(const tn_call *call, const char *text, tn_launch *launch) {
    cu_library library;
    TN_TRY(load_library(call, text, 0, &library));
    return find_kernel(call, library, launch);
}

/* Blocks or clusters that walk over rows and do not all fit would make the last ones wait for the first: fewer walk
 * further. */
static tn_status fit_walking(const tn_call *call, const tn_gpu *gpu, tni_gpu_step *step, int k) {
    tni_gpu_grid *g = &step->grid[k];
    tni_gpu_step *finish = step + 1;
    int most;
    if (g->kept > 1 || !step->walks) return TN_OK;
    TN_TRY(tn_cuda_occupancy(call, &step->launch[k], &most));
    if (step->cluster <= 1) most *= gpu->sms;
    if (most <= 0 || most >= g->pieces) return TN_OK;
    if (step->sums) most = (int)tni_gpu_whole_turns(most, g->apart); /* or a few more than fit */
    if (most >= g->pieces) return TN_OK;
    for (int32_t i = 0; step->sums && i < finish->n_finish; i++)
        finish->finish[i].partials[k] = finish->finish[i].partials[k] / g->pieces * most;
    g->pieces = most;
    g->grid = step->launch[k].grid = (uint32_t)(most * g->columns);
    return TN_OK;
}

static tn_status load_variant(const tni_program *program, const tn_call *call, int k) {
    cu_library library;
    const tn_gpu *gpu;
    TN_TRY(tni_gpu_get(call->name, call->device.index, &gpu));
    TN_TRY(load_library(call, tni_on_gpu(program)->text, k, &library));
    bool first = true;
    for (int32_t i = 0; i < tni_on_gpu(program)->n_steps; i++) {
        tni_gpu_step *step = &tni_on_gpu(program)->steps[i];
        tn_launch *l = &step->launch[k];
        if (!step->steps[k]) continue;
        *l = (tn_launch){.grid = step->grid[k].grid, .block = step->grid[k].block, .shared = step->grid[k].shared};
        if (step->cluster > 1) l->cluster = (uint32_t)step->cluster;
        memcpy(l->name, step->name[k], sizeof step->name[k]);
        l->programmatic = !first && gpu->major >= 9; /* what is ahead of the first is not ours */
        first = false;
        TN_TRY(find_kernel(call, library, l));
        if (step->kind == TNI_GPU_ROWS) TN_TRY(fit_walking(call, gpu, step, k));
    }
    atomic_store_explicit(&tni_on_gpu(program)->loaded[k], true, memory_order_release);
    return TN_OK;
}

/* What a pointer that is not aligned needs is compiled when the first one comes. */
static tn_status need_variant(const tni_program *program, const tn_call *call, int k) {
    static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;
    if (atomic_load_explicit(&tni_on_gpu(program)->loaded[k], memory_order_acquire)) return TN_OK;
    pthread_mutex_lock(&loading);
    tn_status status = atomic_load(&tni_on_gpu(program)->loaded[k]) ? TN_OK : load_variant(program, call, k);
    pthread_mutex_unlock(&loading);
    return status;
}

/* The variant that every step of the program runs with: one whose kernels all are of one library. */
int tni_gpu_variant(const tni_program *program, const tn_call *call) {
    for (int32_t i = 0; i < tni_on_gpu(program)->n_steps; i++) {
        const tni_gpu_step *step = &tni_on_gpu(program)->steps[i];
        bool any = step->kind == TNI_GPU_FINISH || step->kind == TNI_GPU_TAIL;
        if (!any && !(call ? tni_gpu_aligned(program, step, call) : step->aligned)) return 1;
    }
    return 0;
}

static tn_status load(tni_program *program, const tn_call *call) {
    return need_variant(program, call, tni_gpu_variant(program, NULL));
}

static tn_status emit(tni_program *program, tni_text *text) {
    tni_text_put(text, tni_cuda_prelude);
    tni_text_put(text, tni_on_gpu(program)->text);
    return TN_OK;
}

/* ---- parameters -------------------------------------------------------------------------------------------------- */

static char *partial_of(const tn_call *call, const tni_accumulator *acc) {
    return (char *)call->workspace + acc->partial;
}

static int32_t add_strides(const tni_pass *pass, uint64_t *words, int32_t n) {
    int64_t dense[TN_MAX_RANK + 1] = {0}, stride = pass->columns;
    for (int32_t d = pass->n_dims - 1; d >= 0; d--) {
        dense[d] = stride;
        stride *= pass->size[d];
    }
    dense[pass->n_dims] = 1;
    for (int32_t i = 0; i <= pass->n_memory + pass->n_accumulators; i++) {
        const int64_t *from = i < pass->n_memory ? pass->memory[i].strides
                              : i < pass->n_memory + pass->n_accumulators
                                  ? pass->accumulators[i - pass->n_memory].strides
                                  : dense;
        for (int32_t d = 0; d <= pass->n_dims; d++) words[n++] = (uint64_t)from[d];
    }
    return n;
}

/* As finishes of the text. */
static int32_t finish_words(const tni_pass *pass, const tni_gpu_step *step, int k, const tn_call *call,
                            uint64_t *words) {
    const uint64_t *const first = words;
    for (int32_t i = 0; i < step->n_finish; i++) {
        const tni_gpu_finish *f = &step->finish[i];
        const tni_accumulator *acc = &pass->accumulators[f->sum];
        const tni_memory output = {.where = TNI_FROM_CALL_OUT, .index = acc->output};
        char *to = acc->output < 0 ? (char *)call->workspace + acc->result : tni_memory_base(call, &output, 0);
        *words++ = (uint64_t)(uintptr_t)partial_of(call, acc);
        *words++ = (uint64_t)(uintptr_t)to;
        *words++ = (uint64_t)f->partials[k];
        *words++ = (uint64_t)acc->size;
        *words++ = (uint64_t)tni_gpu_pitch(acc);
        *words++ = (uint64_t)f->across;
        *words++ = (uint64_t)f->blocks;
    }
    return (int32_t)(words - first);
}

/* As many tensors as there is room for, and what the kernel must know of each; the blocks that they take. */
static uint32_t add_parts(const tni_program *program, const tni_gpu_step *step, const tni_gpu_grid *g,
                          const tn_call *call, tni_gpu_next *next, uint64_t *words) {
    const tni_pass *pass = &program->passes[step->pass];
    int32_t slot[TNI_FUSE_NODES + 2 * TNI_MAX_ARGS], lists = tni_gpu_list_memory(pass, slot), n = 0;
    uint64_t *begin = words + 2, *number = begin + step->parts, *length = number + step->parts,
             *at = length + step->parts;
    int64_t blocks = 0;
    words[1] = (uint64_t)next->piece;
    for (; next->part < program->n_parts && n < step->parts; next->part++) {
        int64_t size = program->parts[next->part];
        bool only = next->part == program->n_parts - 1 && n == 0 && next->piece == 0;
        if (size == 0 && !only) continue; /* single values are there all the same */
        begin[n] = (uint64_t)blocks;
        number[n] = (uint64_t)next->number;
        length[n] = (uint64_t)size;
        for (int32_t i = 0; i < pass->n_memory; i++) {
            if (slot[i] < 0) continue;
            at[n * lists + slot[i]] = (uint64_t)(uintptr_t)tni_memory_base(call, &pass->memory[i], next->part);
        }
        blocks += size ? ceil_div(size, g->room) : 1;
        next->number += size;
        n++;
    }
    words[0] = (uint64_t)n;
    next->piece += blocks;
    next->words += (int32_t)(at + (int64_t)step->parts * lists - words);
    return (uint32_t)blocks;
}

bool tni_gpu_is_done(const tni_program *program, const tni_gpu_step *step, const tni_gpu_next *next) {
    return !step->parts || next->part == program->n_parts;
}

static uint32_t step_words(const tni_program *program, const tni_gpu_step *step, int k, const tn_call *call,
                           tni_gpu_next *next, uint64_t *words) {
    const tni_pass *pass = &program->passes[step->pass];
    const tni_gpu_grid *g = &step->grid[k];
    int32_t n = 0;
    if (step->kind == TNI_GPU_FINISH) {
        next->words = finish_words(pass, step, k, call, words);
        return g->grid;
    }
    for (int32_t i = 0; i < pass->n_memory; i++)
        words[n++] = (uint64_t)(uintptr_t)tni_memory_base(call, &pass->memory[i], 0);
    if (!pass->n_memory) words[n++] = 0;
    for (int32_t i = 0; i < pass->n_accumulators; i++) {
        words[n++] = (uint64_t)(uintptr_t)partial_of(call, &pass->accumulators[i]);
    }
    if (!pass->n_accumulators) words[n++] = 0;
    n = add_strides(pass, words, n);
    for (int32_t d = 0; d < pass->n_dims; d++) words[n++] = (uint64_t)pass->size[d];
    words[n++] = (uint64_t)pass->columns;
    for (int32_t i = 0; i < program->n_counts; i++) words[n++] = (uint64_t)program->counts[i];
    for (int32_t i = 0; i < pass->n_accumulators; i++) words[n++] = (uint64_t)tni_gpu_pitch(&pass->accumulators[i]);
    if (!pass->n_accumulators) words[n++] = 0;
    const int64_t last[] = {g->across, g->down,  g->columns, g->span, g->pieces,
                            g->rows,   g->block, g->stages,  g->slot, g->width};
    for (size_t i = 0; i < sizeof last / sizeof last[0]; i++) words[n++] = (uint64_t)last[i];
    next->words = n;
    return step->parts ? add_parts(program, step, g, call, next, words + n) : g->grid;
}

uint32_t tni_gpu_words(const tni_program *program, const tni_gpu_step *step, int k, const tn_call *call,
                       tni_gpu_next *next, uint64_t *words) {
    if (step->steps[k] == 1) return step_words(program, step, k, call, next, words);
    for (int32_t i = 0; i < step->steps[k]; i++) {
        step_words(program, step + i, k, call, next, words);
        words += next->words;
    }
    return 1;
}

/* Does the first row lie in every tensor as in every other, as far as vectors go? */
static bool lie_alike(const tni_pass *pass, const tni_gpu_step *step, const tn_call *call) {
    uintptr_t wanted = 0;
    for (int32_t k = -1; k < pass->n_memory; k++) {
        const int32_t i = k < 0 ? step->reference : k;
        const tni_memory *m = &pass->memory[i];
        const uintptr_t at = (uintptr_t)tni_memory_base(call, m, 0) / tn_type_size(m->type) % (uintptr_t)step->vector;
        if (k < 0) wanted = at;
        if (tni_gpu_has_rows(pass, i) && at != wanted) return false;
    }
    return true;
}

bool tni_gpu_aligned(const tni_program *program, const tni_gpu_step *step, const tn_call *call) {
    const tni_pass *pass = &program->passes[step->pass];
    if (!step->aligned) return false;
    if (step->odd) return lie_alike(pass, step, call);
    for (int32_t i = 0; i < pass->n_memory; i++) {
        const tni_memory *m = &pass->memory[i];
        if (m->strides[step->along] != 1) continue;
        uintptr_t bytes = (uintptr_t)step->vector * tn_type_size(m->type), all = 0;
        for (int32_t part = 0; part < (m->list ? program->n_parts : 1); part++) {
            if (!m->list || program->parts[part]) all |= (uintptr_t)tni_memory_base(call, m, part);
        }
        if (all % (bytes > 16 ? 16 : bytes)) return false;
    }
    return true;
}

/* ---- launches ---------------------------------------------------------------------------------------------------- */

static tn_status run(const tni_program *program, const tn_call *call) {
    uint64_t words[TNI_GPU_PARAMS / 8 + 8];
    int k = tni_gpu_variant(program, call);
    TN_TRY(need_variant(program, call, k));
    for (int32_t i = 0; i < tni_on_gpu(program)->n_steps; i++) {
        const tni_gpu_step *step = &tni_on_gpu(program)->steps[i];
        tni_gpu_next next = {0};
        if (!step->steps[k]) continue;
        do {
            tn_launch launch = step->launch[k];
            launch.grid = tni_gpu_words(program, step, k, call, &next, words);
            if (launch.grid) TN_TRY(tn_cuda_launch(call, &launch, (void *[]){words}));
        } while (!tni_gpu_is_done(program, step, &next));
    }
    return TN_OK;
}

const tni_backend tni_cuda_backend = {.name = "cuda",
                                      .device = TN_CUDA,
                                      .writes_sums = true, /* each kernel less counts */
                                      .deviates = true,
                                      .rows_first = true,
                                      .stretches = true,
                                      .turns = tni_gpu_turns,
                                      .plan = tni_plan_cuda,
                                      .emit = emit,
                                      .load = load,
                                      .run = run,
                                      .close = unload_all};
