/* Templates filled in, and files written. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "new.h"

static const char *find_template(const char *name) {
    for (const template_file *f = template_files; f->name; f++) {
        if (strcmp(f->name, name) == 0) return f->text;
    }
    return NULL;
}

char *fill_template(const char *name, const filling *fillings) {
    tni_text made = {0};
    for (const char *s = find_template(name); s && *s;) {
        const filling *f = *s == '@' ? fillings : NULL;
        size_t n = 0;
        for (; f && f->name; f++) {
            n = strlen(f->name);
            if (strncmp(s + 1, f->name, n) == 0 && s[n + 1] == '@') break;
        }
        if (f && f->name) {
            tni_text_put(&made, f->text);
            s += n + 2;
        } else {
            const size_t plain = 1 + strcspn(s + 1, "@");
            tni_text_add(&made, "%.*s", (int)plain, s);
            s += plain;
        }
    }
    if (!made.failed && made.data) return made.data;
    tni_free(made.data);
    return NULL;
}

static bool make_folders(char *path) {
    for (char *slash = strchr(path + 1, '/');; slash = strchr(slash + 1, '/')) {
        if (slash) *slash = 0;
        const bool made = mkdir(path, 0777) == 0 || errno == EEXIST;
        if (slash) *slash = '/';
        if (!made || !slash) return made;
    }
}

bool write_new_file(const char *folder, const char *name, const char *text) {
    char path[PATH_MAX], parent[PATH_MAX];
    const int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    if (n < 0 || (size_t)n >= sizeof path) return fprintf(stderr, "tenon new: the path is too long\n"), false;
    snprintf(parent, sizeof parent, "%s", path);
    *strrchr(parent, '/') = 0;
    FILE *file = make_folders(parent) ? fopen(path, "wxe") : NULL;
    const bool written = file && fputs(text, file) >= 0;
    if (file && fclose(file) == 0 && written) return true;
    fprintf(stderr, "tenon new: %s: %s\n", path,
            errno == EEXIST ? "is there already, and stays as it is" : strerror(errno));
    return false;
}

char *read_whole_file(const char *path) {
    FILE *file = fopen(path, "re");
    tni_text made = {0};
    char piece[4096];
    if (!file) return fprintf(stderr, "tenon: %s: %s\n", path, strerror(errno)), NULL;
    tni_text_put(&made, "");
    for (size_t n; (n = fread(piece, 1, sizeof piece, file)) > 0;) tni_text_add(&made, "%.*s", (int)n, piece);
    const bool bad = ferror(file) || made.failed;
    fclose(file);
    if (!bad) return made.data;
    fprintf(stderr, "tenon: %s cannot be read\n", path);
    tni_free(made.data);
    return NULL;
}
