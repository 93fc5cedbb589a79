/* What is in a folder, and the files on the way to what is built. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "build.h"
#include "cli/new/new.h"

static bool ends_with(const char *name, const char *end) {
    const size_t n = strlen(name), m = strlen(end);
    return n > m && strcmp(name + n - m, end) == 0;
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool add_source(char **to, int *n, const char *name) {
    if (*n == MOST_SOURCES) return fprintf(stderr, "tenon build: more than %d files\n", MOST_SOURCES), false;
    to[*n] = tni_strdup(name);
    return to[*n] && ++*n;
}

static bool list_folder(builder *b) {
    DIR *folder = opendir(b->folder);
    bool good = true;
    if (!folder) return fprintf(stderr, "tenon build: %s: %s\n", b->folder, strerror(errno)), false;
    for (const struct dirent *entry; good && (entry = readdir(folder));) {
        if (entry->d_name[0] == '.') continue;
        if (ends_with(entry->d_name, ".c")) good = add_source(b->c, &b->n_c, entry->d_name);
        if (ends_with(entry->d_name, ".cu")) good = add_source(b->cu, &b->n_cu, entry->d_name);
    }
    closedir(folder);
    qsort(b->c, (size_t)b->n_c, sizeof b->c[0], by_name);
    qsort(b->cu, (size_t)b->n_cu, sizeof b->cu[0], by_name);
    return good;
}

static bool name_it(builder *b) {
    char real[PATH_MAX];
    if (b->n_c == 1) {
        snprintf(b->name, sizeof b->name, "%.*s", (int)strlen(b->c[0]) - 2, b->c[0]);
        return true;
    }
    if (!realpath(b->folder, real)) return fprintf(stderr, "tenon build: %s: %s\n", b->folder, strerror(errno)), false;
    snprintf(b->name, sizeof b->name, "%s", strrchr(real, '/') + 1);
    return true;
}

bool find_sources(builder *b, const char *output) {
    if (!list_folder(b)) return false;
    if (!b->n_c) {
        fprintf(stderr, "tenon build: %s has no .c file with an operator; `tenon new my_op` writes one\n", b->folder);
        return false;
    }
    if (!name_it(b)) return false;
    const int n = output ? snprintf(b->output, sizeof b->output, "%s", output)
                         : snprintf(b->output, sizeof b->output, "%s/%s.tenon.so", b->folder, b->name);
    if (n >= 0 && (size_t)n < sizeof b->output) return true;
    return fprintf(stderr, "tenon build: the path is too long\n"), false;
}

void free_sources(builder *b) {
    for (int i = 0; i < b->n_c; i++) tni_free(b->c[i]);
    for (int i = 0; i < b->n_cu; i++) tni_free(b->cu[i]);
}

bool make_work(builder *b) {
    const char *folder = getenv("TMPDIR");
    snprintf(b->work, sizeof b->work, "%s/tenon-build-XXXXXX", folder && *folder ? folder : "/tmp");
    if (mkdtemp(b->work)) return true;
    fprintf(stderr, "tenon build: %s: %s\n", b->work, strerror(errno));
    b->work[0] = 0;
    return false;
}

void work_file(const builder *b, const char *name, char path[static PATH_MAX]) {
    const int n = snprintf(path, PATH_MAX, "%s/%s", b->work, name);
    if (n < 0 || n >= PATH_MAX) path[0] = 0; /* no compiler makes that */
}

void remove_work(const builder *b) {
    DIR *folder = b->work[0] ? opendir(b->work) : NULL;
    for (const struct dirent *entry; folder && (entry = readdir(folder));) {
        char path[PATH_MAX];
        work_file(b, entry->d_name, path);
        unlink(path); /* of . and .. that fails */
    }
    if (folder) closedir(folder);
    if (b->work[0]) rmdir(b->work);
}

void put_bytes(tni_text *text, const char *name, const void *data, size_t bytes) {
    static const char digits[] = "0123456789abcdef";
    const unsigned char *at = data;
    char line[16 * 5 + 2];
    tni_text_add(text, "%s[] = {\n", name);
    for (size_t i = 0; i < bytes;) {
        char *to = line;
        for (int k = 0; k < 16 && i < bytes; k++, i++) {
            *to++ = '0', *to++ = 'x', *to++ = digits[at[i] >> 4], *to++ = digits[at[i] & 15], *to++ = ',';
        }
        *to++ = '\n', *to = 0;
        tni_text_put(text, line);
    }
    tni_text_put(text, "};\n");
}

bool write_text(const char *path, const tni_text *text) {
    FILE *file = text->failed ? NULL : fopen(path, "we");
    const bool written = file && fwrite(text->data, 1, text->length, file) == text->length;
    if (file && fclose(file) == 0 && written) return true;
    fprintf(stderr, "tenon build: %s: %s\n", path, text->failed ? "out of memory" : strerror(errno));
    return false;
}

/* my-op.cu is `my_op_cu`. */
static void name_of_text(const char *file, char name[static NAME_MAX + 1]) {
    snprintf(name, NAME_MAX + 1, "%s%s", isdigit((unsigned char)*file) ? "_" : "", file);
    for (char *s = name; *s; s++) {
        if (!isalnum((unsigned char)*s)) *s = '_';
    }
}

/* The kernel with the table that `tenon tune -o my_op.tune` has written beside my_op.cu, where there is one. NULL: it
 * cannot be read. */
static char *tuned_text(const builder *b, const char *name) {
    char file[PATH_MAX], table[PATH_MAX];
    snprintf(file, sizeof file, "%s/%s", b->folder, name);
    snprintf(table, sizeof table, "%s/%.*s.tune", b->folder, (int)strlen(name) - 3, name);
    char *cuda = read_whole_file(file), *lines = cuda && access(table, R_OK) == 0 ? read_whole_file(table) : NULL;
    if (!lines) return cuda;
    tni_text whole = {0};
    tni_text_put(&whole, cuda);
    tni_text_add(&whole, "\n/* TN_TUNED\n%s*/\n", lines);
    tni_free(cuda);
    tni_free(lines);
    if (!whole.failed) return whole.data;
    tni_free(whole.data);
    return NULL;
}

bool write_embedded(const builder *b, const char *path) {
    tni_text text = {0};
    bool good = true;
    tni_text_put(&text, "/* Texts of kernels, written by tenon build. */\n");
    for (int i = 0; good && i < b->n_cu; i++) {
        char name[NAME_MAX + 1], declared[NAME_MAX + 64];
        char *cuda = tuned_text(b, b->cu[i]);
        name_of_text(b->cu[i], name);
        snprintf(declared, sizeof declared, "__attribute__((visibility(\"hidden\"))) const char %s", name);
        good = cuda != NULL;
        if (cuda) put_bytes(&text, declared, cuda, strlen(cuda) + 1);
        tni_free(cuda);
    }
    good = good && write_text(path, &text);
    tni_free(text.data);
    return good;
}
