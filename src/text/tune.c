/* Reading what a kernel leaves open, and choosing. */
#include "tune.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "params.h"

static const tni_choice *forced;

void tni_force_choice(const tni_choice *choice) {
    forced = choice;
}

bool tni_is_option(const char *name) {
    return strcmp(name, "maxrregcount") == 0 || strcmp(name, "use_fast_math") == 0;
}

/* ---- the text ---------------------------------------------------------------------------------------------------- */

static tn_status wrong(const char *op, const char *text, const char *at, const char *what) {
    return tn_fail(TN_BAD_VALUE, "%s: line %d: %s; it is written TN_TUNE(BLOCK, 128, 256)", op,
                   (int)tni_line_of(text, (int32_t)(at - text)), what);
}

/* `(BLOCK, 128, 256)` */
static tn_status read_tunable(const char *op, const char *text, const char *s, tni_tunable *t) {
    const char *at = s;
    size_t n = 0;
    *t = (tni_tunable){0};
    s += strspn(s, " \t");
    if (*s != '(') return wrong(op, text, at, "TN_TUNE has no '('");
    s += 1 + strspn(s + 1, " \t\n");
    while (isalnum((unsigned char)s[n]) || s[n] == '_') n++;
    if (n == 0 || n >= sizeof t->name || isdigit((unsigned char)*s)) return wrong(op, text, at, "TN_TUNE has no name");
    memcpy(t->name, s, n);
    for (s += n + strspn(s + n, " \t\n"); *s == ','; s += strspn(s, " \t\n")) {
        char *end;
        if (t->n == TNI_MOST_VALUES) return wrong(op, text, at, "TN_TUNE takes at most 16 values");
        t->values[t->n++] = strtoll(s + 1, &end, 0);
        if (end == s + 1) return wrong(op, text, at, "TN_TUNE takes whole numbers");
        s = end;
    }
    return *s == ')' && t->n ? TN_OK : wrong(op, text, at, "TN_TUNE has no values");
}

tn_status tni_find_tunables(const char *op, const char *text, tni_arena *arena, tni_tunables *found) {
    static const char word[] = "TN_TUNE", table[] = "/* TN_TUNED\n";
    *found = (tni_tunables){0};
    const char *at = strstr(text, table);
    if (at) found->table = at + sizeof table - 1;
    if (!strstr(text, word)) return TN_OK;
    const char *clean = tni_blank_text(text, arena);
    if (!clean) return TN_NO_MEMORY;
    for (const char *s = clean; (s = strstr(s, word));) {
        s += sizeof word - 1;
        if (isalnum((unsigned char)*s) || *s == '_') continue;
        if (found->n == TNI_MOST_TUNABLES) return wrong(op, text, text + (s - clean), "at most 4 TN_TUNE");
        TN_TRY(read_tunable(op, clean, s, &found->of[found->n++]));
    }
    return TN_OK;
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static bool read_number(const char *line, const char *end, const char *name, int64_t *value) {
    const size_t n = strlen(name);
    for (const char *s = line; s + n < end; s++) {
        const bool begins = s == line || isspace((unsigned char)s[-1]) || s[-1] == ':';
        if (!begins || memcmp(s, name, n) != 0 || s[n] != '=') continue;
        *value = strtoll(s + n + 1, NULL, 10);
        return true;
    }
    return false;
}

static bool read_line(const tni_tunables *of, const char *line, const char *end, tni_tune_point *p, tni_choice *c) {
    char type[16] = "";
    int arch = 0;
    const char *comment = memchr(line, '#', (size_t)(end - line));
    if (comment) end = comment;
    *p = (tni_tune_point){.rows = 1, .columns = 1};
    if (sscanf(line, " sm_%d %15s", &arch, type) != 2) return false;
    p->major = arch / 10;
    p->minor = arch % 10;
    p->type = tn_type_named(type);
    if (!read_number(line, end, "rows", &p->rows) || !read_number(line, end, "columns", &p->columns)) return false;
    *c = tni_first_choice(of);
    for (int32_t i = 0; i < of->n; i++) {
        int64_t value;
        if (!read_number(line, end, of->of[i].name, &value)) continue;
        for (int32_t k = 0; k < of->of[i].n; k++) {
            if (of->of[i].values[k] == value) c->values[i] = value; /* one that is no longer offered is none */
        }
    }
    return true;
}

bool tni_tuned_line(const tni_tunables *of, int32_t i, tni_tune_point *point, tni_choice *choice) {
    const char *s = of->table;
    while (s && *s && strncmp(s, "*/", 2) != 0) {
        const char *end = s + strcspn(s, "\n");
        if (i-- == 0) return read_line(of, s, end, point, choice);
        s = *end ? end + 1 : end;
    }
    return false;
}

static int32_t count_lines(const tni_tunables *of) {
    int32_t n = 0;
    for (const char *s = of->table; s && *s && strncmp(s, "*/", 2) != 0; n++) {
        s += strcspn(s, "\n");
        s += *s == '\n';
    }
    return n;
}

/* ---- choosing ---------------------------------------------------------------------------------------------------- */

tni_choice tni_first_choice(const tni_tunables *of) {
    tni_choice made = {0};
    for (int32_t i = 0; i < of->n; i++) made.values[i] = of->of[i].values[0];
    return made;
}

static double apart(int64_t a, int64_t b) {
    return fabs(log2((double)(a > 0 ? a : 1)) - log2((double)(b > 0 ? b : 1)));
}

/* In doublings; another type counts as much as four of them if its size is another, another GPU as much as eight. */
static double distance(const tni_tune_point *a, const tni_tune_point *b) {
    const bool same_size = tn_type_size(a->type) == tn_type_size(b->type);
    return apart(a->rows, b->rows) + apart(a->columns, b->columns) +
           (a->type == b->type ? 0
            : same_size        ? 0.5
                               : 4) +
           (a->major == b->major ? a->minor == b->minor ? 0 : 1 : 8);
}

tni_choice tni_tune_choose(const tni_tunables *of, const tni_tune_point *point) {
    if (forced) return *forced;
    tni_choice best = tni_first_choice(of), choice;
    double least = INFINITY;
    const int32_t n = of->n ? count_lines(of) : 0;
    for (int32_t i = 0; i < n; i++) {
        tni_tune_point line;
        if (!tni_tuned_line(of, i, &line, &choice)) continue;
        const double far = distance(point, &line);
        if (far >= least) continue;
        least = far;
        best = choice;
    }
    return best;
}
