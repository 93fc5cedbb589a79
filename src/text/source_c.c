/* Kernels of C: compiled by the host's compiler once for each text and types, and called. Tensors of 16 bits are floats
 * there: they are converted before and behind. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fuse/cache/cache.h"
#include "fuse/cpu/block_loops.h"
#include "fuse/cpu/compile_c.h"
#include "source.h"

enum { GENERATOR = 1, MOST_WORDS = 64, MOST_LOG = 4000, ALIGNED = 64 };

typedef void (*entry)(void *const *arguments);

/* ---- compiling --------------------------------------------------------------------------------------------------- */

typedef struct library {
    tni_cache_key key;
    void *handle;
    entry call;
    struct library *next;
} library;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* held while one compiles: whoever else needs it waits */
static library *libraries;

void tni_cpu_sources_close(void) {
    pthread_mutex_lock(&lock);
    for (library *l = libraries, *next; l; l = next) {
        next = l->next;
        dlclose(l->handle);
        tni_free(l);
    }
    libraries = NULL;
    pthread_mutex_unlock(&lock);
}

static tn_status write_file(const char *path, const char *text) {
    FILE *file = fopen(path, "we");
    bool done = file && fputs(text, file) >= 0;
    if (file) done = fclose(file) == 0 && done;
    return done ? TN_OK : tn_fail(TN_SYSTEM, "%s: %s", path, strerror(errno));
}

static char *read_file(const char *path, size_t most, size_t *bytes) {
    FILE *file = fopen(path, "re");
    char *data = NULL;
    *bytes = 0;
    if (!file) return NULL;
    if (fseek(file, 0, SEEK_END) == 0) {
        const long size = ftell(file);
        *bytes = size < 0 ? 0 : (size_t)size < most ? (size_t)size : most;
        rewind(file);
        data = tni_malloc(*bytes + 1);
        if (data) *bytes = fread(data, 1, *bytes, file);
        if (data) data[*bytes] = 0;
    }
    fclose(file);
    return data;
}

/* Runs a command; what it says goes to the file `log`. Its exit status, or -1 where it could not be started. */
static int run(char *const *words, const char *log) {
    extern char **environ;
    posix_spawn_file_actions_t files;
    pid_t pid;
    int status = -1;
    if (posix_spawn_file_actions_init(&files) != 0) return -1;
    posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&files, 1, log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&files, 1, 2);
    if (posix_spawnp(&pid, words[0], &files, NULL, words, environ) == 0) {
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
        status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    }
    posix_spawn_file_actions_destroy(&files);
    return status;
}

static tn_status refused(const char *op, int status, const char *log) {
    size_t bytes;
    if (status < 0) {
        return tn_fail(TN_SYSTEM,
                       "%s: its kernel for the CPU is C, and '%s' cannot be started; install a C compiler, or set "
                       "TENON_CC to one",
                       op, tni_c_compiler());
    }
    char *said = read_file(log, MOST_LOG, &bytes);
    tn_fail(TN_BAD_VALUE, "%s: its kernel for the CPU does not compile:\n%s", op, said ? said : "");
    tni_free(said);
    return TN_BAD_VALUE;
}

/* `cc … kernel.c -o kernel.so` in a folder of its own; the caller frees *data. */
static tn_status compile_in(const char *op, const char *folder, const char *text, const char *options, char **data,
                            size_t *bytes) {
    static const char *const flags[] = {"-O3", "-std=gnu11", "-fPIC", "-shared", "-w", "-fno-math-errno"};
    char source[512], target[512], log[512], name[512], more[1024], *words[MOST_WORDS], *rest = NULL;
    int n = 0;
    snprintf(source, sizeof source, "%s/kernel.c", folder);
    snprintf(target, sizeof target, "%s/kernel.so", folder);
    snprintf(log, sizeof log, "%s/log", folder);
    snprintf(name, sizeof name, "%s", tni_c_compiler());
    snprintf(more, sizeof more, "%s", options ? options : "");
    TN_TRY(write_file(source, text));
    for (char *word = strtok_r(name, " ", &rest); word && n < 16; word = strtok_r(NULL, " ", &rest)) words[n++] = word;
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) words[n++] = (char *)(uintptr_t)flags[i];
    for (char *word = strtok_r(more, " \t\n", &rest); word && n < MOST_WORDS - 5; word = strtok_r(NULL, " \t\n", &rest))
        if (strncmp(word, "-D", 2) == 0) words[n++] = word; /* the rest is NVRTC's */
    words[n++] = source;
    words[n++] = "-o";
    words[n++] = target;
    words[n++] = "-lm";
    words[n] = NULL;
    const int status = run(words, log);
    if (status != 0) return refused(op, status, log);
    *data = read_file(target, SIZE_MAX, bytes);
    return *data ? TN_OK : tn_fail(TN_SYSTEM, "%s: the compiler made nothing", op);
}

static tn_status compile(const char *op, const char *text, const char *options, char **data, size_t *bytes) {
    const char *where = getenv("TMPDIR");
    char folder[256], path[512];
    static const char *const files[] = {"kernel.c", "kernel.so", "log"};
    snprintf(folder, sizeof folder, "%.200s/tenon-XXXXXX", where && *where == '/' ? where : "/tmp");
    if (!mkdtemp(folder)) return tn_fail(TN_SYSTEM, "%s: no folder for the compiler: %s", op, strerror(errno));
    const tn_status status = compile_in(op, folder, text, options, data, bytes);
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, files[i]);
        unlink(path);
    }
    rmdir(folder);
    return status;
}

static tn_status open_code(const char *op, const tni_cache_key *key, const char *data, size_t bytes, entry *call) {
    void *handle = tni_open_library(data, bytes), *found = handle ? dlsym(handle, "tn_entry") : NULL;
    library *made = found ? tni_malloc(sizeof *made) : NULL;
    if (!made) {
        if (handle) dlclose(handle);
        return found ? TN_NO_MEMORY : tn_fail(TN_SYSTEM, "%s: what the compiler made cannot be loaded", op);
    }
    *made = (library){.key = *key, .handle = handle, .next = libraries};
    memcpy(&made->call, &found, sizeof found);
    libraries = made;
    *call = made->call;
    return TN_OK;
}

/* Under the lock. */
static tn_status load(const char *op, const char *text, const char *options, const tni_cache_key *key, entry *call) {
    tni_cache_entry place;
    tni_cached cached;
    char *data = NULL;
    size_t bytes = 0;
    tni_cache_open(key, &place, &cached);
    tn_status status = cached.bytes ? open_code(op, key, cached.data, cached.bytes, call) : TN_NOT_FOUND;
    tni_free(cached.data);
    if (status != TN_OK) {
        status = compile(op, text, options, &data, &bytes);
        if (status == TN_OK) status = open_code(op, key, data, bytes, call);
        if (status == TN_OK) tni_cache_put(&place, data, bytes);
        tni_free(data);
    }
    tni_cache_close(&place);
    return status;
}

static tn_status get_entry(const char *op, const char *text, const char *options, entry *call) {
    const tni_cache_key key = tni_cache_key_of("c kernel %d, %s, %s, %s", text, GENERATOR, tni_c_compiler(),
                                               options ? options : "", tni_loops_isa());
    pthread_mutex_lock(&lock);
    const library *l = libraries;
    while (l && memcmp(&l->key, &key, sizeof key) != 0) l = l->next;
    if (l) *call = l->call;
    const tn_status status = l ? TN_OK : load(op, text, options, &key, call);
    pthread_mutex_unlock(&lock);
    return status;
}

/* ---- the text ---------------------------------------------------------------------------------------------------- */

static const char *c_type(tn_type type) {
    static const char *const names[TN_TYPE_COUNT] = {
        [TN_F16] = "float",    [TN_BF16] = "float",   [TN_F32] = "float",   [TN_F64] = "double", [TN_I8] = "int8_t",
        [TN_I16] = "int16_t",  [TN_I32] = "int32_t",  [TN_I64] = "int64_t", [TN_U8] = "uint8_t", [TN_U16] = "uint16_t",
        [TN_U32] = "uint32_t", [TN_U64] = "uint64_t", [TN_BOOL] = "bool"};
    return names[type];
}

static tn_status print_text(const tni_known *k, const tn_source *source, const tni_cfunction *f, const tni_give *give,
                            tni_text *text) {
    const char *op = k->contract->name;
    tni_text_put(text, "#include <math.h>\n#include <stdbool.h>\n#include <stddef.h>\n#include <stdint.h>\n"
                       "#include <string.h>\n");
    for (int32_t i = 0; i < k->contract->n_types; i++) {
        const char *type = c_type(k->bound.types[i]);
        if (!type) {
            return tn_fail(TN_UNSUPPORTED, "%s: kernels from text know no type %s", op,
                           tn_type_name(k->bound.types[i]));
        }
        tni_text_add(text, "typedef %s %s;\n", type, k->contract->types[i].name);
    }
    tni_text_add(text, "#line 1 \"%s\"\n%s\n", source->file ? source->file : op, source->cpu);
    tni_text_add(text, "void tn_entry(void *const *a) {\n    %s(", f->name);
    for (int32_t i = 0; i < f->n_params; i++) {
        const bool value = give[i].how == TNI_GIVE_VALUE || give[i].how == TNI_GIVE_RANGE;
        tni_text_add(text, "%s*(%s%s)a[%d]", i ? ", " : "", value ? f->params[i].type : "void *", value ? " *" : "*",
                     (int)i);
    }
    tni_text_put(text, ");\n}\n");
    return text->failed ? TN_NO_MEMORY : TN_OK;
}

/* ---- a call ------------------------------------------------------------------------------------------------------ */

typedef struct state {
    tn_device_kind device;
    entry call;
    size_t bytes;  /* of workspace: floats of tensors of 16 bits */
    int64_t range; /* what begin … end goes over; -1: the function does all at once */
    int64_t grain;
    int32_t n_params;
    struct {
        tni_give give;
        size_t at;      /* in the workspace */
        bool converted; /* from 16 bits, and back */
        bool written;
    } params[TNI_MOST_PARAMS];
} state;

static const tn_view *view_of(const tn_call *call, const tni_give *g) {
    return g->how == TNI_GIVE_INPUT ? tn_in(call, g->index) : g->how == TNI_GIVE_OUTPUT ? tn_out(call, g->index) : NULL;
}

static tn_status fill(const tni_known *k, const tn_source *source, const tni_cfunction *f, state *s) {
    const tn_call *call = k->call;
    tni_give give[TNI_MOST_PARAMS];
    tni_sizes sizes;
    tni_launch_steps steps;
    tni_text text = {0};
    s->device = TN_CPU;
    s->n_params = f->n_params;
    s->range = -1;
    TN_TRY(tni_give_params(call->name, k, f, true, give));
    tni_sizes_of(k, &sizes);
    TN_TRY(tni_launch_read(call->name, source->launch ? source->launch : "elements", &sizes, &steps));
    const bool rows = source->launch && strstr(source->launch, "rows");
    for (int32_t i = 0; i < f->n_params; i++) {
        const tn_view *v = view_of(call, &give[i]);
        s->params[i].give = give[i];
        s->params[i].converted = v && (v->type == TN_F16 || v->type == TN_BF16);
        s->params[i].written = give[i].how == TNI_GIVE_OUTPUT ||
                               (give[i].how == TNI_GIVE_INPUT && k->contract->inputs[give[i].index].inplace);
        s->params[i].at = s->bytes;
        size_t bytes = s->params[i].converted ? (size_t)tn_count(v) * sizeof(float) : 0;
        if (give[i].how == TNI_GIVE_SCRATCH) bytes = (size_t)steps.scratch;
        s->bytes += (bytes + ALIGNED - 1) / ALIGNED * ALIGNED;
        if (give[i].how == TNI_GIVE_RANGE) s->range = rows ? sizes.rows : sizes.count;
    }
    s->grain = rows && sizes.columns > 0 ? 1 + 16384 / sizes.columns : 16384;
    tn_status status = print_text(k, source, f, give, &text);
    if (status == TN_OK) status = get_entry(call->name, text.data, source->options, &s->call);
    tni_free(text.data);
    return status;
}

tn_status tni_cpu_source_prepare(const tn_call *call, const tn_source *source, void **made) {
    tni_known known;
    tni_cfunctions all;
    const tni_cfunction *f = NULL;
    TN_TRY(tni_known_of(call, &known));
    tni_arena *arena = tni_arena_new();
    state *s = tni_calloc(1, sizeof *s);
    tn_status status = arena && s ? tni_find_functions(source->cpu, true, arena, &all) : TN_NO_MEMORY;
    if (status == TN_OK) status = tni_pick_function(call->name, &all, "", &f);
    if (status == TN_OK) status = fill(&known, source, f, s);
    tni_arena_free(arena);
    if (status == TN_OK) {
        *made = s;
    } else {
        tni_free(s);
    }
    return status;
}

size_t tni_cpu_source_workspace(const void *s) {
    return ((const state *)s)->bytes;
}

void tni_cpu_source_release(void *s) {
    tni_free(s);
}

typedef struct running {
    const tn_call *call;
    const state *s;
} running;

/* Calls the function for begin … end. */
static void call_part(void *arg, int64_t begin, int64_t end) {
    const running *r = arg;
    const state *s = r->s;
    void *pointers[TNI_MOST_PARAMS], *arguments[TNI_MOST_PARAMS];
    const int64_t range[] = {begin, end};
    for (int32_t i = 0; i < s->n_params; i++) {
        const tni_give *g = &s->params[i].give;
        const tn_view *v = view_of(r->call, g);
        char *work = (char *)r->call->workspace;
        const bool in_work = s->params[i].converted || g->how == TNI_GIVE_SCRATCH;
        pointers[i] = in_work ? work + s->params[i].at : v ? v->data : NULL;
        arguments[i] = g->how == TNI_GIVE_VALUE   ? (void *)(uintptr_t)&g->bits
                       : g->how == TNI_GIVE_RANGE ? (void *)(uintptr_t)&range[g->index]
                                                  : (void *)&pointers[i];
    }
    s->call(arguments);
}

static void convert(const tn_call *call, const state *s, bool back) {
    for (int32_t i = 0; i < s->n_params; i++) {
        const tni_give *g = &s->params[i].give;
        const tn_view *v = view_of(call, g);
        if (!s->params[i].converted || !(back ? s->params[i].written : g->how == TNI_GIVE_INPUT)) continue;
        float *floats = (float *)((char *)call->workspace + s->params[i].at);
        for (int64_t j = 0, n = tn_count(v); j < n; j++) {
            if (back) {
                tn_set(v->type, v->data, j, floats[j]);
            } else {
                floats[j] = (float)tn_get(v->type, v->data, j);
            }
        }
    }
}

tn_status tni_cpu_source_run(const tn_call *call, void *made) {
    const state *s = made;
    running r = {call, s};
    convert(call, s, false);
    if (s->range >= 0) {
        tn_parallel(call, s->range, s->grain, call_part, &r);
    } else {
        call_part(&r, 0, 0);
    }
    convert(call, s, true);
    return TN_OK;
}
