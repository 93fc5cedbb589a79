/* One text for one choice of types and of what it leaves open, as NVRTC gets it. */
#include <stdio.h>
#include <string.h>

#include "index_check.h"
#include "instance.h"

enum { GENERATOR = 1 };

/* What the text calls the types; f16 and bf16 are CUDA's own where it includes them. */
const char *tni_cuda_type(tn_type type, bool has_half, bool has_bfloat) {
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
        if (strcmp(k->contract->types[i].name, name) == 0) return tni_cuda_type(k->bound.types[i], half, bfloat);
    }
    for (int32_t i = 0; i < f->n_params; i++) {
        const tni_cparam *p = &f->params[i];
        bool output;
        const int32_t at = strcmp(p->type, name) == 0 && p->pointers ? tni_find_tensor(k->contract, p->name, &output)
                                                                     : -1;
        const tn_type type = at < 0 ? TN_NO_TYPE : tni_tensor_type(k, at, output);
        if (type != TN_NO_TYPE) return tni_cuda_type(type, half, bfloat);
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

tn_status tni_instance_make(const tni_known *k, const tn_source *source, const tni_cfunctions *all,
                            const tni_launch_steps *steps, tni_arena *arena, tni_instance *made) {
    const char *op = k->contract->name;
    const bool half = strstr(source->cuda, "cuda_fp16.h"), bfloat = strstr(source->cuda, "cuda_bf16.h");
    tni_text text = {0};
    *made = (tni_instance){.includes = strstr(source->cuda, "#include") != NULL};
    const bool device = needs_device(k, source->cuda, half, bfloat);
    if (device) tni_text_put(&text, "#include <tenon/device.cuh>\n");
    if (half) tni_text_put(&text, "#include <cuda_fp16.h>\n");
    if (bfloat) tni_text_put(&text, "#include <cuda_bf16.h>\n");
    tni_text_put(&text, "#include <stdint.h>\n");
    for (int32_t i = 0; i < k->contract->n_types; i++) {
        const char *type = tni_cuda_type(k->bound.types[i], half, bfloat);
        if (!type) {
            tni_free(text.data);
            return tn_fail(TN_UNSUPPORTED, "%s: kernels from text know no type %s", op,
                           tn_type_name(k->bound.types[i]));
        }
        tni_text_add(&text, "using %s = %s;\n", k->contract->types[i].name, type);
    }
    print_choice(k, &text, made->options, sizeof made->options);
    if (tni_checks_index()) tni_text_put(&text, tni_checked_text);
    if (tni_checks_index() && device) tni_text_put(&text, tni_checked_vectors);
    print_file(&text, source->file ? source->file : op);
    if (tni_checks_index()) {
        tni_put_checked(&text, source->cuda, all, arena);
    } else {
        put_untuned(&text, source->cuda);
    }
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
