/* Kernels compiled before anybody calls them: for each operator of what was built, each type and each GPU. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tenon/call.h>

#include "build.h"
#include "cuda/driver/nvrtc.h"
#include "text/source.h"

typedef struct ahead {
    const builder *b;
    tni_text data, rows;
    int n; /* pieces of code */
} ahead;

/* ---- which GPUs -------------------------------------------------------------------------------------------------- */

/* Code for 8.0 runs on 8.6 and 8.9 as well. */
static const int usual[] = {80, 90, 100, 120};

static bool read_architectures(const builder *b, int *archs, int *n) {
    *n = 0;
    if (!b->architectures) {
        for (size_t i = 0; i < sizeof usual / sizeof usual[0]; i++) {
            if (tni_nvrtc_knows(usual[i] / 10, usual[i] % 10)) archs[(*n)++] = usual[i];
        }
        return true;
    }
    for (const char *s = b->architectures; *s; s += *s == ',') {
        char *end;
        if (strncmp(s, "sm_", 3) == 0) s += 3;
        const long arch = strtol(s, &end, 10);
        if (end == s || (*end && *end != ',') || arch < 50 || arch > 999 || *n == MOST_ARCHITECTURES) {
            fprintf(stderr, "tenon build: --arch %s: expected numbers such as 80,90, or none\n", b->architectures);
            return false;
        }
        if (!tni_nvrtc_knows((int)arch / 10, (int)arch % 10)) {
            fprintf(stderr, "tenon build: NVRTC %d.%d (%s) cannot compile for sm_%ld\n",
                    tni_nvrtc_version("tenon build") / 1000, tni_nvrtc_version("tenon build") % 1000 / 10,
                    tni_nvrtc_file(), arch);
            return false;
        }
        archs[(*n)++] = (int)arch;
        s = end;
    }
    return true;
}

/* ---- what is compiled -------------------------------------------------------------------------------------------- */

static tn_status add_code(void *context, const tn_built *code) {
    ahead *a = context;
    char name[80];
    snprintf(name, sizeof name, "static const unsigned char code_%d", a->n);
    put_bytes(&a->data, name, code->data, code->bytes);
    tni_text_add(&a->rows, "    {{0x%llxull, 0x%llxull}, %d, %d, %llu, code_%d},\n", (unsigned long long)code->key[0],
                 (unsigned long long)code->key[1], code->major, code->minor, (unsigned long long)code->bytes, a->n);
    a->n++;
    return a->data.failed || a->rows.failed ? TN_NO_MEMORY : TN_OK;
}

static const tn_source *source_of(const tn_kernel *k) {
    const bool is_text = k->run == tn_source_run && k->device == TN_CUDA;
    return is_text ? k->data : NULL;
}

static tn_status compile_operator(ahead *a, const tn_function *op, const int *archs, int n) {
    const char *options = a->b->device_debug ? "-G" : a->b->debug ? "-lineinfo" : NULL;
    for (const tn_kernel *k = op->row->kernels; k && k->name; k++) {
        const tn_source *source = source_of(k);
        if (!source || !source->cuda) continue;
        printf("  %s: %s for", op->row->signature ? tn_function_name(op) : "", source->file ? source->file : k->name);
        for (int i = 0; i < n; i++) {
            printf(" sm_%d", archs[i]);
            fflush(stdout);
            const tn_status status = tni_source_build(op, source, archs[i] / 10, archs[i] % 10, options, add_code, a);
            if (status != TN_OK) return putchar('\n'), status;
        }
        putchar('\n');
    }
    return TN_OK;
}

static bool write_ahead(const ahead *a, const char *path) {
    tni_text all = {0};
    tni_text_put(&all, "#include <tenon/kernel.h>\n\n");
    tni_text_put(&all, a->data.data);
    tni_text_put(&all, "TN_API extern const tn_built tenon_built[];\nconst tn_built tenon_built[] = {\n");
    tni_text_put(&all, a->rows.data);
    tni_text_put(&all, "    {{0, 0}, 0, 0, 0, 0},\n};\n");
    const bool written = write_text(path, &all);
    tni_free(all.data);
    return written;
}

/* Parameters and launch lines of all kernels: what is wrong there need not wait for a GPU. *n: how many there are. */
static bool check_kernels(int first, int *n) {
    *n = 0;
    for (int i = first; i < tn_function_count(); i++) {
        const tn_function *op = tn_function_at(i);
        for (const tn_kernel *k = op->row->kernels; k && k->name; k++) {
            const tn_source *source = k->run == tn_source_run ? k->data : NULL;
            if (!source) continue;
            if (tni_source_check(op->contract, source) != TN_OK) return false;
            *n += source_of(k) != NULL;
        }
    }
    return true;
}

/* Without NVRTC the text is compiled by whoever calls it first, unless somebody asks for code. */
static bool has_nvrtc(const builder *b) {
    if (tni_nvrtc_version("tenon build")) return true;
    fprintf(stderr, "%s%s\n", tn_last_error(),
            b->architectures ? "" : "\n  the kernels stay text, and are compiled when they are first called");
    return false;
}

bool compile_ahead(const builder *b, const char *built, const char *source, bool *any) {
    int archs[MOST_ARCHITECTURES], n = 0, kernels;
    const int first = tn_function_count();
    *any = false;
    if (tn_load(built) != TN_OK) return fprintf(stderr, "tenon build: %s\n", tn_last_error()), false;
    if (!check_kernels(first, &kernels)) return fprintf(stderr, "%s\n", tn_last_error()), false;
    if (!kernels || (b->architectures && strcmp(b->architectures, "none") == 0)) return true;
    if (!has_nvrtc(b)) return !b->architectures;
    if (!read_architectures(b, archs, &n)) return false;
    if (b->verbose) printf("NVRTC: %s\n", tni_nvrtc_file());
    ahead a = {.b = b};
    bool good = true;
    for (int i = first; good && i < tn_function_count(); i++) {
        good = compile_operator(&a, tn_function_at(i), archs, n) == TN_OK;
        if (!good) fprintf(stderr, "%s\n", tn_last_error());
    }
    good = good && (!a.n || write_ahead(&a, source));
    *any = good && a.n;
    tni_free(a.data.data);
    tni_free(a.rows.data);
    return good;
}
