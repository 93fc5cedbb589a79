/* The code of texts: compiled once, kept in memory and on disk, or compiled ahead. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/driver/nvrtc.h"
#include "instance.h"

enum { MOST_OPTIONS = 32 };

/* What people include by habit: NVRTC has most of it by itself. The types are those of CUDA's own headers for NVRTC,
 * which a text may include as well. */
static const char integers[] =
    "#pragma once\n"
    "typedef signed char int8_t; typedef short int16_t; typedef int int32_t; typedef long long int64_t;\n"
    "typedef unsigned char uint8_t; typedef unsigned short uint16_t; typedef unsigned int uint32_t;\n"
    "typedef unsigned long long uint64_t; typedef int64_t intptr_t; typedef uint64_t uintptr_t;\n"
    "#ifndef INT_MAX\n#define INT_MAX 2147483647\n#endif\n"
    "#ifndef LLONG_MAX\n#define LLONG_MAX 9223372036854775807LL\n#endif\n"
    "#ifndef INT32_MAX\n#define INT32_MAX INT_MAX\n#define INT64_MAX LLONG_MAX\n#endif\n";
static const char limits[] =
    "#pragma once\n#ifndef FLT_MAX\n#define FLT_MAX 3.402823466e+38F\n#define FLT_MIN 1.175494351e-38F\n"
    "#define FLT_EPSILON 1.192092896e-07F\n#define DBL_MAX 1.7976931348623158e+308\n"
    "#define INFINITY __int_as_float(0x7f800000)\n#define NAN __int_as_float(0x7fffffff)\n#endif\n"
    "#ifndef INT_MAX\n#define INT_MAX 2147483647\n#endif\n";

/* The code of a text, compiled before: in memory, with a plugin, or on disk. Kept until the library is shut down. */
typedef struct code {
    tni_code code;
    tni_cache_key key;
    int major, minor;
    struct code *next;
} code;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static code *codes;
static struct {
    const tn_built *lists[256];
    int n;
} built;

void tni_source_add_built(const void *list) {
    pthread_mutex_lock(&lock);
    if (built.n < 256) built.lists[built.n++] = list;
    pthread_mutex_unlock(&lock);
}

void tni_sources_close(void) {
    pthread_mutex_lock(&lock);
    for (code *c = codes, *next; c; c = next) {
        next = c->next;
        tni_free(c->code.names);
        tni_free(c->code.data);
        tni_free(c);
    }
    codes = NULL;
    built.n = 0;
    pthread_mutex_unlock(&lock);
}

static const tni_code *find_code(const tni_cache_key *key, int major, int minor) {
    pthread_mutex_lock(&lock);
    const code *c = codes;
    while (c && !(c->major == major && c->minor == minor && memcmp(&c->key, key, sizeof *key) == 0)) c = c->next;
    pthread_mutex_unlock(&lock);
    return c ? &c->code : NULL;
}

/* `names` and `data` are taken over. */
static tn_status keep_code(const tni_cache_key *key, int major, int minor, char *names, char *data, size_t bytes,
                           const tni_code **kept) {
    code *made = tni_malloc(sizeof *made);
    if (!made) {
        tni_free(names);
        tni_free(data);
        return TN_NO_MEMORY;
    }
    *made = (code){{names, data, bytes}, *key, major, minor, NULL};
    pthread_mutex_lock(&lock);
    made->next = codes;
    codes = made;
    pthread_mutex_unlock(&lock);
    *kept = &made->code;
    return TN_OK;
}

/* On disk and in plugins: the names, an empty line, the code. */
static tn_status unpack(const tni_cache_key *key, int major, int minor, const char *data, size_t bytes,
                        const tni_code **kept) {
    const char *end = memmem(data, bytes, "\n\n", 2);
    if (!end) return TN_NOT_FOUND;
    const size_t n_names = (size_t)(end - data) + 1, n_code = bytes - n_names - 1;
    char *names = tni_malloc(n_names + 1), *copy = tni_malloc(n_code + 1);
    if (!names || !copy) {
        tni_free(names);
        tni_free(copy);
        return TN_NO_MEMORY;
    }
    memcpy(names, data, n_names);
    names[n_names] = 0;
    memcpy(copy, end + 2, n_code);
    return keep_code(key, major, minor, names, copy, n_code, kept);
}

static char *pack(const tni_compiled_code *made, size_t *bytes) {
    const size_t n = strlen(made->names);
    char *all = tni_malloc(n + 1 + made->bytes);
    if (!all) return NULL;
    memcpy(all, made->names, n);
    all[n] = '\n';
    memcpy(all + n + 1, made->data, made->bytes);
    *bytes = n + 1 + made->bytes;
    return all;
}

/* A cubin runs on later minor versions too. */
static const tn_built *find_built(const tni_cache_key *key, int major, int minor) {
    const tn_built *best = NULL;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < built.n; i++) {
        for (const tn_built *b = built.lists[i]; b->bytes; b++) {
            const bool fits = memcmp(b->key, key->hash, sizeof b->key) == 0 && b->major == major && b->minor <= minor;
            if (fits && (!best || b->minor > best->minor)) best = b;
        }
    }
    pthread_mutex_unlock(&lock);
    return best;
}

/* Folders of CUDA's headers, for texts that include some; cooperative_groups.h wants those of CCCL, too. */
enum { MOST_INCLUDES = 10 };
typedef char include_option[600];

static int add_folder(include_option *options, int n, const char *folder) {
    snprintf(options[n], sizeof options[n], "-I%.580s", folder);
    snprintf(options[n + 1], sizeof options[n + 1], "-I%.580s/cccl", folder);
    return n + 2;
}

static int include_options(include_option *options, const char **list, int n) {
    char folder[1200], found[600];
    const char *home = getenv("CUDA_HOME") ? getenv("CUDA_HOME") : getenv("CUDA_PATH");
    int made = 0;
    if (home && *home) {
        snprintf(folder, sizeof folder, "%.500s/include", home);
        made = add_folder(options, made, folder);
    }
    /* A wheel of NVIDIA's: …/nvidia/cu13/lib/libnvrtc.so.13, or …/nvidia/cuda_nvrtc/lib beside …/cuda_runtime. */
    snprintf(found, sizeof found, "%.500s", tni_nvrtc_file());
    char *lib = strstr(found, "/lib/libnvrtc");
    if (lib) {
        *lib = 0;
        snprintf(folder, sizeof folder, "%s/include", found);
        made = add_folder(options, made, folder);
        char *package = strrchr(found, '/');
        if (package) *package = 0;
        snprintf(folder, sizeof folder, "%s/cuda_runtime/include", found);
        made = add_folder(options, made, folder);
    }
    made = add_folder(options, made, "/usr/local/cuda/include");
    made = add_folder(options, made, "/opt/cuda/include");
    for (int i = 0; i < made; i++) list[n++] = options[i];
    return n;
}

static tn_status compile(const char *op, const tn_source *source, const tni_instance *of, int major, int minor,
                         const char *more, tni_compiled_code *made) {
    static const tni_header headers[] = {{"stdint.h", integers},
                                         {"cstdint", integers},
                                         {"stddef.h", ""},
                                         {"cstddef", ""},
                                         {"stdio.h", ""},
                                         {"cstdio", ""},
                                         {"stdlib.h", ""},
                                         {"math.h", limits},
                                         {"cmath", limits},
                                         {"float.h", limits},
                                         {"cfloat", limits},
                                         {"limits.h", limits},
                                         {"climits", limits},
                                         {"assert.h", ""},
                                         {"cassert", ""},
                                         {"cuda.h", ""},
                                         {"cuda_runtime.h", ""},
                                         {"device_launch_parameters.h", ""},
                                         {"cuda_runtime_api.h", ""},
                                         {"iostream", ""},
                                         {0}};
    const char *options[MOST_OPTIONS + MOST_INCLUDES + 1];
    include_option includes[MOST_INCLUDES];
    char words[1024], *rest = NULL;
    int n = 0;
    snprintf(words, sizeof words, "%s %s %s", source->options ? source->options : "", of->options, more ? more : "");
    for (char *word = strtok_r(words, " \t\n", &rest); word && n < MOST_OPTIONS; word = strtok_r(NULL, " \t\n", &rest))
        options[n++] = word;
    if (of->includes) n = include_options(includes, options, n);
    options[n] = NULL;
    const tni_nvrtc_job job = {source->file ? source->file : op, of->text, major, minor, options, headers, of->kernels};
    return tni_nvrtc_run(op, &job, made);
}

static void free_compiled(tni_compiled_code *made) {
    tni_free(made->data);
    tni_free(made->names);
}

static tn_status compile_and_keep(const char *op, const tn_source *source, const tni_instance *of, int major, int minor,
                                  tni_cache_entry *entry, const tni_code **found) {
    tni_compiled_code made;
    TN_TRY(compile(op, source, of, major, minor, NULL, &made));
    size_t bytes = 0;
    char *all = pack(&made, &bytes);
    free_compiled(&made);
    if (!all) return TN_NO_MEMORY;
    tni_cache_put(entry, all, bytes);
    const tn_status status = unpack(&of->key, major, minor, all, bytes, found);
    tni_free(all);
    return status;
}

tn_status tni_code_get(const char *op, const tn_source *source, const tni_instance *of, int major, int minor,
                       const tni_code **found) {
    *found = find_code(&of->key, major, minor);
    if (*found) return TN_OK;
    const tn_built *ahead = find_built(&of->key, major, minor);
    if (ahead) return unpack(&of->key, major, minor, (const char *)ahead->data, ahead->bytes, found);
    const int version = tni_nvrtc_version(op);
    if (!version) return TN_SYSTEM;
    const tni_cache_key device = tni_cache_key_of("device", tni_device_text);
    tni_cache_key key = tni_cache_key_of("source %016llx%016llx, %016llx%016llx, sm_%d%d, NVRTC %d", "",
                                         (unsigned long long)of->key.hash[0], (unsigned long long)of->key.hash[1],
                                         (unsigned long long)device.hash[0], (unsigned long long)device.hash[1], major,
                                         minor, tni_nvrtc_knows(major, minor) ? 0 : version);
    tni_cache_entry entry;
    tni_cached cached;
    tni_cache_open(&key, &entry, &cached);
    tn_status status = cached.bytes ? unpack(&of->key, major, minor, cached.data, cached.bytes, found) : TN_NOT_FOUND;
    tni_free(cached.data);
    if (status == TN_NOT_FOUND) status = compile_and_keep(op, source, of, major, minor, &entry, found);
    tni_cache_close(&entry);
    return status;
}

/* ---- ahead of any call ------------------------------------------------------------------------------------------ */

typedef struct ahead {
    const tn_source *source;
    int major, minor;
    const char *options;
    tni_add_built add;
    void *context;
    tni_known known;
    tni_cfunctions all;
    tni_launch_steps steps;
    tni_arena *arena;
} ahead;

static tn_status build_instance(ahead *a) {
    const char *op = a->known.contract->name;
    tni_instance of;
    tni_compiled_code made = {0};
    for (int32_t i = 0; i < a->all.n; i++) {
        if (!tni_params_fit(&a->known, &a->all.functions[i], false)) return TN_OK; /* it is not for these types */
    }
    tn_status status = tni_instance_make(&a->known, a->source, &a->all, &a->steps, a->arena, &of);
    if (status == TN_OK) status = compile(op, a->source, &of, a->major, a->minor, a->options, &made);
    tni_free(of.text);
    size_t bytes = 0;
    char *all = status == TN_OK ? pack(&made, &bytes) : NULL;
    if (status == TN_OK && !all) status = TN_NO_MEMORY;
    if (status == TN_OK && !made.is_ptx) {
        tn_built built_now = {.major = a->major, .minor = a->minor, .bytes = bytes, .data = (unsigned char *)all};
        memcpy(built_now.key, of.key.hash, sizeof built_now.key);
        status = a->add(a->context, &built_now);
    }
    free_compiled(&made);
    tni_free(all);
    return status;
}

/* The first value of all that is left open, and each other choice that the table has. */
static tn_status build_choices(ahead *a) {
    enum { MOST = 64 };
    tni_choice done[MOST], choice = tni_first_choice(&a->known.tunables);
    tni_tune_point point;
    int32_t n = 0;
    for (int32_t line = -1; n < MOST && (line < 0 || tni_tuned_line(&a->known.tunables, line, &point, &choice));
         line++) {
        bool known = false;
        for (int32_t i = 0; i < n; i++) known |= memcmp(&done[i], &choice, sizeof choice) == 0;
        if (known) continue;
        done[n++] = a->known.choice = choice;
        TN_TRY(build_instance(a));
    }
    return TN_OK;
}

/* All choices of types from type variable i on. */
static tn_status build_types(ahead *a, int32_t i) {
    const tni_contract *c = a->known.contract;
    if (i == c->n_types) return build_choices(a);
    for (int type = 1; type < TN_TYPE_COUNT; type++) {
        if (!(c->types[i].mask & TN_BIT(type)) || !tni_cuda_type((tn_type)type, false, false)) continue;
        a->known.bound.types[i] = (tn_type)type;
        TN_TRY(build_types(a, i + 1));
    }
    return TN_OK;
}

tn_status tni_source_build(const tn_function *op, const tn_source *source, int major, int minor, const char *options,
                           tni_add_built add, void *context) {
    ahead a = {source, major, minor, options, add, context, .arena = tni_arena_new()};
    if (!a.arena) return TN_NO_MEMORY;
    tni_sizes sizes;
    tni_known_names(op->contract, &a.known);
    tn_status status = tni_find_functions(source->cuda, false, a.arena, &a.all);
    if (status == TN_OK) status = tni_find_tunables(op->contract->name, source->cuda, a.arena, &a.known.tunables);
    a.known.choice = tni_first_choice(&a.known.tunables);
    tni_sizes_of(&a.known, &sizes);
    const char *line = source->launch ? source->launch : "elements";
    if (status == TN_OK) status = tni_launch_read(op->contract->name, line, &sizes, &a.steps);
    if (status == TN_OK) status = build_types(&a, 0);
    tni_arena_free(a.arena);
    return status;
}
