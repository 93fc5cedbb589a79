/* Kernels of CUDA C: compiled by NVRTC once for each text, types and GPU, and launched as their line says. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/driver/cuda.h"
#include "cuda/driver/nvrtc.h"
#include "fuse/cache/cache.h"
#include "source.h"

enum { GENERATOR = 1, MOST_OPTIONS = 32, MOST_CONSTANTS = 8 };

/* ---- one text for one choice of types ---------------------------------------------------------------------------- */

typedef struct instance {
    char *text;                              /* all of it, as NVRTC gets it */
    const char *kernels[TNI_MOST_STEPS + 1]; /* expressions that stand for them */
    tni_cache_key key;                       /* of the text and its options */
    bool includes;                           /* files of CUDA's, perhaps */
    char options[128];                       /* that were tuned */
} instance;

/* What the text calls the types; f16 and bf16 are CUDA's own where it includes them. */
static const char *cuda_type(tn_type type, bool has_half, bool has_bfloat) {
    static const char *const names[TN_TYPE_COUNT] = {[TN_F32] = "float",        [TN_F64] = "double",
                                                     [TN_I8] = "signed char",   [TN_I16] = "short",
                                                     [TN_I32] = "int",          [TN_I64] = "long long",
                                                     [TN_U8] = "unsigned char", [TN_U16] = "unsigned short",
                                                     [TN_U32] = "unsigned int", [TN_U64] = "unsigned long long",
                                                     [TN_BOOL] = "bool",        [TN_F16] = "tn::f16",
                                                     [TN_BF16] = "tn::bf16"};
    if (type == TN_F16 && has_half) return "__half";
    if (type == TN_BF16 && has_bfloat) return "__nv_bfloat16";
    return names[type];
}

/* The type that a parameter of a template stands for: a type variable of the contract, or what a tensor has that it is
 * the type of. */
static const char *template_type(const tni_known *k, const tni_cfunction *f, const char *name, bool half, bool bfloat) {
    for (int32_t i = 0; i < k->contract->n_types; i++) {
        if (strcmp(k->contract->types[i].name, name) == 0) return cuda_type(k->bound.types[i], half, bfloat);
    }
    for (int32_t i = 0; i < f->n_params; i++) {
        const tni_cparam *p = &f->params[i];
        bool output;
        const int32_t at = strcmp(p->type, name) == 0 && p->pointers ? tni_find_tensor(k->contract, p->name, &output)
                                                                     : -1;
        const tn_type type = at < 0 ? TN_NO_TYPE : tni_tensor_type(k, at, output);
        if (type != TN_NO_TYPE) return cuda_type(type, half, bfloat);
    }
    return NULL;
}

/* "scale<float>"; parameters of the template that have a default may follow. */
static tn_status print_kernel(const tni_known *k, const tni_cfunction *f, bool half, bool bfloat, tni_text *made) {
    const char *op = k->contract->name;
    tni_text_put(made, f->name);
    for (const char *s = f->templates; s && *s;) {
        size_t n = strcspn(s, ",");
        const char *end = s + n, *equals = memchr(s, '=', n);
        const char *last = equals ? equals : end;
        while (last > s && last[-1] == ' ') last--;
        const char *name = last;
        while (name > s && name[-1] != ' ' && name[-1] != '.') name--;
        char word[64];
        snprintf(word, sizeof word, "%.*s", (int)(last - name), name);
        const bool is_type = strncmp(s + strspn(s, " "), "class", 5) == 0 ||
                             strncmp(s + strspn(s, " "), "typename", 8) == 0;
        const char *type = is_type ? template_type(k, f, word, half, bfloat) : NULL;
        if (!type && !equals) {
            return tn_fail(TN_BAD_VALUE, "%s: line %d: nobody says what '%s' of the template %s is; give it a default",
                           op, f->line, word, f->name);
        }
        if (!type) break;
        tni_text_add(made, s == f->templates ? "<%s" : ", %s", type);
        s = *end ? end + 1 : end;
        if (!*s || !*end) break;
    }
    if (made->data && strchr(made->data, '<')) tni_text_put(made, ">");
    return made->failed ? TN_NO_MEMORY : TN_OK;
}

static bool needs_device(const tni_known *k, const char *text, bool half, bool bfloat) {
    for (int32_t i = 0; i < k->contract->n_types; i++) {
        const tn_type type = k->bound.types[i];
        if ((type == TN_F16 && !half) || (type == TN_BF16 && !bfloat)) return true;
    }
    return strstr(text, "tn::") != NULL;
}

/* "my_op.cu" inside of quotes */
static void print_file(tni_text *text, const char *file) {
    tni_text_put(text, "#line 1 \"");
    for (; *file; file++) {
        if (*file == '"' || *file == '\\') tni_text_add(text, "\\");
        tni_text_add(text, "%c", *file == '\n' ? ' ' : *file);
    }
    tni_text_put(text, "\"\n");
}

/* Constants that were tuned, and options. */
static void print_choice(const tni_known *k, tni_text *text, char *options, size_t size) {
    size_t n = 0;
    options[0] = 0;
    if (k->tunables.n) tni_text_put(text, "#define TN_TUNE(...)\n");
    for (int32_t i = 0; i < k->tunables.n; i++) {
        const char *name = k->tunables.of[i].name;
        const long long value = k->choice.values[i];
        if (!tni_is_option(name)) {
            tni_text_add(text, "#define %s %lld\n", name, value);
        } else if (value && n < size) {
            const bool fast = strcmp(name, "use_fast_math") == 0;
            n += (size_t)snprintf(options + n, size - n, fast ? "--use_fast_math " : "--maxrregcount=%lld ", value);
        }
    }
}

/* The text without the table of what was tuned, which makes no other code of it. */
static void put_untuned(tni_text *text, const char *cuda) {
    const char *table = strstr(cuda, "/* TN_TUNED\n"), *end = table ? strstr(table, "*/") : NULL;
    if (!end) {
        tni_text_put(text, cuda);
    } else {
        tni_text_add(text, "%.*s%s", (int)(table - cuda), cuda, end + 2);
    }
}

static tn_status make_instance(const tni_known *k, const tn_source *source, const tni_cfunctions *all,
                               const tni_launch_steps *steps, tni_arena *arena, instance *made) {
    const char *op = k->contract->name;
    const bool half = strstr(source->cuda, "cuda_fp16.h"), bfloat = strstr(source->cuda, "cuda_bf16.h");
    tni_text text = {0};
    *made = (instance){.includes = strstr(source->cuda, "#include") != NULL};
    if (needs_device(k, source->cuda, half, bfloat)) tni_text_put(&text, "#include <tenon/device.cuh>\n");
    if (half) tni_text_put(&text, "#include <cuda_fp16.h>\n");
    if (bfloat) tni_text_put(&text, "#include <cuda_bf16.h>\n");
    tni_text_put(&text, "#include <stdint.h>\n");
    for (int32_t i = 0; i < k->contract->n_types; i++) {
        const char *type = cuda_type(k->bound.types[i], half, bfloat);
        if (!type) {
            tni_free(text.data);
            return tn_fail(TN_UNSUPPORTED, "%s: kernels from text know no type %s", op,
                           tn_type_name(k->bound.types[i]));
        }
        tni_text_add(&text, "using %s = %s;\n", k->contract->types[i].name, type);
    }
    print_choice(k, &text, made->options, sizeof made->options);
    print_file(&text, source->file ? source->file : op);
    put_untuned(&text, source->cuda);
    made->text = text.data;
    if (text.failed) return TN_NO_MEMORY;
    tni_text names = {0};
    for (int32_t i = 0; i < steps->n; i++) {
        const tni_cfunction *f;
        tni_text name = {0};
        tn_status status = tni_pick_function(op, all, steps->steps[i].kernel, &f);
        if (status == TN_OK) status = print_kernel(k, f, half, bfloat, &name);
        if (status == TN_OK) made->kernels[i] = tni_arena_text(arena, name.data, name.length);
        if (status == TN_OK && !made->kernels[i]) status = TN_NO_MEMORY;
        if (status == TN_OK) tni_text_add(&names, "%s\n", name.data);
        tni_free(name.data);
        if (status != TN_OK) {
            tni_free(names.data);
            return status;
        }
    }
    made->key = tni_cache_key_of("kernel %d, %s, %s, %s", made->text, GENERATOR, source->options ? source->options : "",
                                 made->options, names.data ? names.data : "");
    tni_free(names.data);
    return TN_OK;
}

/* ---- code -------------------------------------------------------------------------------------------------------- */

/* What people include by habit: NVRTC has most of it by itself. */
static const char integers[] =
    "#pragma once\n"
    "typedef signed char int8_t; typedef short int16_t; typedef int int32_t; typedef long int64_t;\n"
    "typedef unsigned char uint8_t; typedef unsigned short uint16_t; typedef unsigned int uint32_t;\n"
    "typedef unsigned long uint64_t; typedef long intptr_t; typedef unsigned long uintptr_t;\n"
    "#ifndef INT32_MAX\n#define INT32_MAX 2147483647\n#define INT64_MAX 9223372036854775807L\n#endif\n";
static const char limits[] =
    "#pragma once\n#ifndef FLT_MAX\n#define FLT_MAX 3.402823466e+38F\n#define FLT_MIN 1.175494351e-38F\n"
    "#define FLT_EPSILON 1.192092896e-07F\n#define DBL_MAX 1.7976931348623158e+308\n#define INT_MAX 2147483647\n"
    "#define INFINITY __int_as_float(0x7f800000)\n#define NAN __int_as_float(0x7fffffff)\n#endif\n";

/* The code of a text, compiled before: in memory, with a plugin, or on disk. Kept until the library is shut down. */
typedef struct code {
    tni_cache_key key;
    int major, minor;
    char *names; /* of the kernels, '\n' behind each */
    char *data;
    size_t bytes;
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
        tni_free(c->names);
        tni_free(c->data);
        tni_free(c);
    }
    codes = NULL;
    built.n = 0;
    pthread_mutex_unlock(&lock);
}

static const code *find_code(const tni_cache_key *key, int major, int minor) {
    pthread_mutex_lock(&lock);
    const code *c = codes;
    while (c && !(c->major == major && c->minor == minor && memcmp(&c->key, key, sizeof *key) == 0)) c = c->next;
    pthread_mutex_unlock(&lock);
    return c;
}

/* `names` and `data` are taken over. */
static tn_status keep_code(const tni_cache_key *key, int major, int minor, char *names, char *data, size_t bytes,
                           const code **kept) {
    code *made = tni_malloc(sizeof *made);
    if (!made) {
        tni_free(names);
        tni_free(data);
        return TN_NO_MEMORY;
    }
    *made = (code){*key, major, minor, names, data, bytes, NULL};
    pthread_mutex_lock(&lock);
    made->next = codes;
    codes = made;
    pthread_mutex_unlock(&lock);
    *kept = made;
    return TN_OK;
}

/* On disk and in plugins: the names, an empty line, the code. */
static tn_status unpack(const tni_cache_key *key, int major, int minor, const char *data, size_t bytes,
                        const code **kept) {
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

/* Folders of CUDA's headers, for texts that include some. */
static int include_options(char (*options)[600], const char **list, int n) {
    static const char *const places[] = {"/usr/local/cuda/include", "/opt/cuda/include"};
    char found[600] = "";
    const char *home = getenv("CUDA_HOME") ? getenv("CUDA_HOME") : getenv("CUDA_PATH");
    int made = 0;
    if (home && *home) snprintf(options[made++], sizeof options[0], "-I%.500s/include", home);
    /* A wheel of NVIDIA's: …/nvidia/cu13/lib/libnvrtc.so.13, or …/nvidia/cuda_nvrtc/lib beside …/cuda_runtime. */
    snprintf(found, sizeof found, "%.500s", tni_nvrtc_file());
    char *lib = strstr(found, "/lib/libnvrtc");
    if (lib) {
        *lib = 0;
        snprintf(options[made++], sizeof options[0], "-I%.500s/include", found);
        char *package = strrchr(found, '/');
        if (package) *package = 0;
        snprintf(options[made++], sizeof options[0], "-I%.500s/cuda_runtime/include", found);
    }
    for (int i = 0; i < 2; i++) snprintf(options[made++], sizeof options[0], "-I%s", places[i]);
    for (int i = 0; i < made; i++) list[n++] = options[i];
    return n;
}

static tn_status compile(const char *op, const tn_source *source, const instance *of, int major, int minor,
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
    const char *options[MOST_OPTIONS + 8];
    char includes[8][600], words[1024], *rest = NULL;
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

static tn_status compile_and_keep(const char *op, const tn_source *source, const instance *of, int major, int minor,
                                  tni_cache_entry *entry, const code **found) {
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

static tn_status get_code(const char *op, const tn_source *source, const instance *of, int major, int minor,
                          const code **found) {
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

/* ---- a call ------------------------------------------------------------------------------------------------------ */

typedef struct step {
    tn_launch launch;
    int32_t n_params;
    tni_give give[TNI_MOST_PARAMS];
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

static tn_status find_constant(const tni_known *k, const code *c, const tni_cvariable *v, int32_t input, constant *to) {
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

static tn_status find_constants(const tni_known *k, const code *c, const tni_cfunctions *all, state *s) {
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

static tn_status fill(const tni_known *k, const tn_source *source, const tni_launch_steps *steps,
                      const tni_cfunctions *all, const instance *of, state *s) {
    const tn_call *call = k->call;
    const tn_gpu *gpu;
    const code *c;
    TN_TRY(tn_cuda_gpu(call, &gpu));
    TN_TRY(get_code(call->name, source, of, gpu->major, gpu->minor, &c));
    const char *name = c->names;
    for (int32_t i = 0; i < steps->n; i++) {
        step *to = &s->steps[i];
        const tni_cfunction *f;
        char lowered[1024];
        const size_t n = strcspn(name, "\n");
        TN_TRY(tni_pick_function(call->name, all, steps->steps[i].kernel, &f));
        TN_TRY(tni_give_params(call->name, k, f, false, to->give));
        to->n_params = f->n_params;
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
    instance of;
    TN_TRY(tni_find_functions(source->cuda, false, arena, &all));
    TN_TRY(choose(k, source, arena));
    tni_sizes_of(k, &sizes);
    TN_TRY(tni_launch_read(op, source->launch ? source->launch : "elements", &sizes, &steps));
    tn_status status = make_instance(k, source, &all, &steps, arena, &of);
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
        tni_free(s);
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

void tni_cuda_source_release(void *s) {
    tni_free(s);
}

static tn_status run_step(const tn_call *call, const step *s) {
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

tn_status tni_cuda_source_run(const tn_call *call, void *made) {
    const state *s = made;
    for (int32_t i = 0; i < s->n_constants; i++) {
        const constant *c = &s->constants[i];
        TN_TRY(tn_copy(call->device, (void *)(uintptr_t)c->to, call->device, tn_in(call, c->input)->data, c->bytes,
                       call->host->stream));
    }
    for (int32_t i = 0; i < s->n_steps; i++) TN_TRY(run_step(call, &s->steps[i]));
    return TN_OK;
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
    instance of;
    tni_compiled_code made = {0};
    for (int32_t i = 0; i < a->all.n; i++) {
        if (!tni_params_fit(&a->known, &a->all.functions[i], false)) return TN_OK; /* it is not for these types */
    }
    tn_status status = make_instance(&a->known, a->source, &a->all, &a->steps, a->arena, &of);
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
        if (!(c->types[i].mask & TN_BIT(type)) || !cuda_type((tn_type)type, false, false)) continue;
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
