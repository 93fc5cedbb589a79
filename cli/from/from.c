/* Reads the kernels of a file that somebody has, and writes a contract around them. */
#include "from.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include <tenon/call.h>

#include "cli/new/new.h"

/* from_write.c */
void write_contract(const from_file *file, const char *name, from_result *made);
void write_json(const from_file *file, from_result *made);

/* An operator's name: that of the project if there is one kernel, else the kernel's without what all of them have. */
static void name_operator(const from_file *file, const char *name, from_kernel *k) {
    static const char *const ends[] = {"_kernel", "_cuda_kernel", "_cuda", "_global", "Kernel"};
    if (file->functions.n == 1) {
        snprintf(k->op, sizeof k->op, "%s", name);
        return;
    }
    snprintf(k->op, sizeof k->op, "%s", k->function->name);
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        const size_t n = strlen(k->op), m = strlen(ends[i]);
        if (n > m && strcmp(k->op + n - m, ends[i]) == 0) k->op[n - m] = 0;
    }
    for (char *s = k->op; *s; s++) *s = (char)tolower((unsigned char)*s);
    bool is_taken = false;
    for (const from_kernel *other = file->kernels; other < k; other++) is_taken |= strcmp(other->op, k->op) == 0;
    for (int i = 0; i < tn_function_count(); i++) is_taken |= strcmp(tn_function_name(tn_function_at(i)), k->op) == 0;
    if (is_taken) snprintf(k->op, sizeof k->op, "%.28s_%.34s", name, k->function->name);
}

static void find_obstacles(from_kernel *k) {
    bool writes = false;
    for (int i = 0; i < k->n; i++) {
        const guess *g = &k->guesses[i];
        writes |= g->role == OUTPUT || g->role == UPDATED;
        if (g->role == STRANGE && !*k->stands_in_the_way) {
            snprintf(k->stands_in_the_way, sizeof k->stands_in_the_way, "%s", g->why);
        }
    }
    if (!writes && !*k->stands_in_the_way) {
        snprintf(k->stands_in_the_way, sizeof k->stands_in_the_way, "it writes to none of its parameters");
    }
}

static void read_kernel(const from_file *file, const char *name, from_kernel *k) {
    const tni_cfunction *f = k->function;
    k->n = f->n_params;
    for (int i = 0; i < k->n; i++) k->guesses[i].param = &f->params[i];
    k->body = read_tokens(file->arena, file->clean + f->body + 1, file->clean + f->end - 1);
    name_operator(file, name, k);
    find_launch(file, k);
    guess_roles(file, k);
    find_obstacles(k);
    if (*k->stands_in_the_way) return;
    guess_shapes(file, k);
    guess_launch(file, k);
    write_signature(k);
    guess_formula(file, k);
}

static bool read_all(from_file *file, const char *name, from_result *made) {
    if (tni_find_functions(file->text, false, file->arena, &file->functions) != TN_OK) return false;
    if (file->functions.n == 0) {
        fprintf(stderr, "tenon new: %s has no __global__ function\n", file->path);
        return false;
    }
    file->clean = tni_blank_text(file->text, file->arena);
    file->kernels = tni_arena_alloc(file->arena, (size_t)file->functions.n * sizeof *file->kernels);
    if (!file->clean || !file->kernels) return false;
    file->all = read_tokens(file->arena, file->clean, file->clean + strlen(file->clean));
    int good = 0;
    for (int i = 0; i < file->functions.n; i++) {
        file->kernels[i].function = &file->functions.functions[i];
        file->n = i + 1;
        read_kernel(file, name, &file->kernels[i]);
        good += !*file->kernels[i].stands_in_the_way;
    }
    write_device_text(file, &made->kernels, &made->notes);
    write_contract(file, name, made);
    write_json(file, made);
    if (good) return true;
    fprintf(stderr, "tenon new: no kernel of %s can be taken as it is:\n%s", file->path, made->notes.data);
    return false;
}

bool read_kernels(const char *path, const char *name, from_result *made) {
    char *text = read_whole_file(path);
    if (!text) return false;
    from_file file = {.path = path, .text = text, .arena = tni_arena_new()};
    const bool good = file.arena && read_all(&file, name, made);
    for (int i = 0; i < file.n; i++) {
        tni_free(file.kernels[i].launch.data);
        tni_free(file.kernels[i].formula.data);
        tni_free(file.kernels[i].signature.data);
    }
    tni_arena_free(file.arena);
    tni_free(text);
    return good;
}
