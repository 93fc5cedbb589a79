/* `tenon help formulas`: a page of docs/ on the terminal. Of Markdown it knows what these pages use: headings,
 * paragraphs, lists, tables of two columns and code. */
#include "cli.h"

#include <stdio.h>
#include <string.h>

#include <tenon/call.h>

#include "core/host/text.h"

const topic *find_topic(const char *name) {
    for (const topic *t = topics; t->name; t++) {
        if (strcmp(t->name, name) == 0) return t;
    }
    return NULL;
}

/* Behind [, a link is "words](address)": its end, or NULL where this is none. */
static const char *end_of_link(const char *words, const char *end) {
    const char *close = memchr(words, ']', (size_t)(end - words));
    if (!close || close + 1 >= end || close[1] != '(') return NULL;
    return memchr(close, ')', (size_t)(end - close));
}

/* The text without marks: **bold** and, if `bare`, `code` lose theirs, a link becomes its words, \| becomes |. */
static void add_plain(tni_text *to, const char *from, const char *end, bool bare) {
    bool code = false;
    for (const char *p = from; p < end; p++) {
        const char *link = *p == '[' && !code ? end_of_link(p + 1, end) : NULL;
        if (link) {
            add_plain(to, p + 1, memchr(p, ']', (size_t)(end - p)), bare);
            p = link;
        } else if (*p == '`' && bare) {
            code = !code;
        } else if (!code && p[0] == '*' && p + 1 < end && p[1] == '*') {
            p++;
        } else if (p[0] == '\\' && p + 1 < end && p[1] == '|') {
            continue;
        } else {
            code ^= *p == '`';
            tni_text_add(to, "%c", *p == '\n' ? ' ' : *p);
        }
    }
}

static const char *end_of_line(const char *p) {
    return p + strcspn(p, "\n");
}

static void print_plain(const char *from, const char *end, int indent, bool bare) {
    tni_text text = {0};
    add_plain(&text, from, end, bare);
    print_wrapped(text.data ? text.data : "", indent, indent);
    tn_free(text.data);
}

/* `| written | means |`: what is written on a line of its own, what it means below it, further in. */
static void print_row(const char *line, const char *end) {
    enum { MEANING = 6 };
    const char *cell = line + 2, *bar = cell;
    while (bar < end && !(bar[0] == '|' && bar[-1] != '\\')) bar++;
    const char *last = end;
    while (last > bar && (last[-1] == '|' || last[-1] == ' ')) last--;
    printf("  %s", style_text(BOLD));
    print_plain(cell, bar, 2, true);
    printf("%s", style_text(PLAIN));
    if (last <= bar + 1) return;
    printf("%*s", MEANING, "");
    print_plain(bar + 1, last, MEANING, false);
}

static bool is_ruler(const char *line) {
    return strncmp(line, "|---", 4) == 0;
}

static bool begins_entry(const char *line) {
    return strncmp(line, "- ", 2) == 0;
}

static bool goes_on(const char *line) {
    return *line && !strchr("\n|#", *line) && !begins_entry(line) && strncmp(line, "```", 3) != 0;
}

/* Of a paragraph, or of an entry of a list. */
static const char *end_of_paragraph(const char *p) {
    for (p = end_of_line(p); *p && goes_on(p + 1);) p = end_of_line(p + 1);
    return p;
}

static const char *print_code(const char *p) {
    for (p = end_of_line(p) + 1; strncmp(p, "```", 3) != 0; p = end_of_line(p) + 1) {
        printf("    %.*s\n", (int)strcspn(p, "\n"), p);
    }
    return end_of_line(p);
}

/* Prints the block that begins here; returns its end. */
static const char *print_block(const char *p) {
    const char *end = end_of_line(p);
    if (*p == '#') {
        p += strspn(p, "# ");
        printf("%s%.*s%s\n", style_text(BOLD), (int)(end - p), p, style_text(PLAIN));
    } else if (strncmp(p, "```", 3) == 0) {
        return print_code(p);
    } else if (*p == '|') {
        const bool titled = end[0] && is_ruler(end + 1);
        if (!titled && !is_ruler(p)) print_row(p, end);
    } else if (strncmp(p, "    ", 4) == 0) {
        printf("%.*s\n", (int)(end - p), p);
    } else {
        end = end_of_paragraph(p);
        if (begins_entry(p)) printf("- ");
        print_plain(begins_entry(p) ? p + 2 : p, end, begins_entry(p) ? 2 : 0, false);
    }
    return end;
}

void print_topic(const topic *t) {
    for (const char *p = t->text; *p; p += *p == '\n') {
        if (*p == '\n') putchar('\n');
        if (*p != '\n') p = print_block(p);
    }
}
