/* Options and help, from each verb's tables. */
#include "cli.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/host/text.h"

const char *nearest_name(const char *name, const char *const *names) {
    const char *best = NULL;
    const size_t length = strlen(name);
    int least = length < 6 ? 1 + (int)length / 2 : 4; /* as far as that it is another word */
    for (; *names; names++) {
        bool begins = strlen(name) >= 2 && strncmp(*names, name, strlen(name)) == 0;
        int far = begins ? 1 : tni_edit_distance(name, *names, least);
        if (far < least) {
            least = far;
            best = *names;
        }
    }
    return best;
}

int usage_error(const verb *v, const char *format, ...) {
    va_list list;
    va_start(list, format);
    fprintf(stderr, "tenon%s%s: ", v ? " " : "", v ? v->name : "");
    vfprintf(stderr, format, list);
    va_end(list);
    fprintf(stderr, "\n`tenon help%s%s` shows what there is.\n", v ? " " : "", v ? v->name : "");
    return EXIT_USAGE;
}

static const option *find_option(const verb *v, const char *name, size_t length) {
    for (const option *o = v->options; o->name; o++) {
        if (strlen(o->name) == length && strncmp(o->name, name, length) == 0) return o;
    }
    return NULL;
}

static int unknown_option(const verb *v, const char *name) {
    const char *names[64];
    int n = 0;
    for (const option *o = v->options; o->name && n < 62; o++) names[n++] = o->name;
    names[n++] = "--load";
    names[n] = NULL;
    const char *near = nearest_name(name, names);
    if (near) return usage_error(v, "there is no option %s; did you mean %s?", name, near);
    return usage_error(v,
                       v->takes_text ? "there is no option %s; write -- before an argument that begins with '-'"
                                     : "there is no option %s",
                       name);
}

static int set_option(const verb *v, const option *o, const char *value) {
    if (o->kind == TEXT) {
        *(const char **)o->to = value;
        return 0;
    }
    char *end;
    errno = 0;
    long long number = strtoll(value, &end, 10);
    const int least = o->kind == POSITIVE;
    if (errno || *end || end == value || number < least) {
        return usage_error(v, "%s %s: expected a whole number, %d or more", o->name, value, least);
    }
    *(int64_t *)o->to = number;
    return 0;
}

int parse_options(const verb *v, int argc, char **argv, const char **rest, int *count) {
    bool plain = false; /* behind "--" nothing is an option */
    *count = 0;
    for (int i = 0; i < argc; i++) {
        const char *text = argv[i];
        if (!plain && strcmp(text, "--") == 0) {
            plain = true;
            continue;
        }
        if (!plain && (strcmp(text, "--help") == 0 || strcmp(text, "-h") == 0)) {
            print_help(v);
            return -1;
        }
        if (plain || text[0] != '-' || !text[1]) {
            rest[(*count)++] = text;
            continue;
        }
        size_t length = strcspn(text, "=");
        const option *o = find_option(v, text, length);
        if (!o) return unknown_option(v, text);
        bool joined = text[length] == '=';
        if (o->kind == FLAG) {
            if (joined) return usage_error(v, "%s takes no value", o->name);
            *(bool *)o->to = true;
            continue;
        }
        const char *value = joined ? text + length + 1 : i + 1 < argc ? argv[++i] : NULL;
        bool given = value && (o->kind == TEXT || value[0]);
        if (!given) return usage_error(v, "%s needs a value: %s %s", o->name, o->name, o->value);
        int status = set_option(v, o, value);
        if (status) return status;
    }
    return 0;
}

/* "command\tcomment" lines in two columns. */
static void print_examples(const char *text) {
    size_t widest = 0;
    for (const char *p = text; *p; p += strcspn(p, "\n"), p += *p == '\n') {
        size_t n = strcspn(p, "\t\n");
        if (n > widest && n < 64) widest = n;
    }
    for (const char *p = text; *p; p += *p == '\n') {
        size_t n = strcspn(p, "\t\n"), rest = strcspn(p, "\n");
        printf("  %s%.*s%s", style_text(BOLD), (int)n, p, style_text(PLAIN));
        if (rest > n) {
            int pad = n < widest ? (int)(widest - n) : 0;
            printf("%*s  %s%.*s%s", pad, "", style_text(DIM), (int)(rest - n - 1), p + n + 1, style_text(PLAIN));
        }
        putchar('\n');
        p += rest;
    }
}

static void print_option(const char *name, const char *value, const char *help) {
    char text[64];
    snprintf(text, sizeof text, "%s%s%s", name, value ? " " : "", value ? value : "");
    printf("  %-24s", text);
    if (strlen(text) > 23) printf("\n%26s", "");
    print_wrapped(help, 26, 26);
}

void print_help(const verb *v) {
    printf("%stenon %s%s: ", style_text(BOLD), v->name, style_text(PLAIN));
    print_wrapped(v->summary, (int)strlen(v->name) + 8, 2);
    putchar('\n');
    print_examples(v->examples);
    printf("\n");
    for (const option *o = v->options; o->name; o++) print_option(o->name, o->value, o->help);
    print_option("--load", "plugin.so", "operators of a shared object too; may be repeated");
    for (const char *p = v->text; p && *p;) {
        size_t n = strcspn(p, "\n");
        char line[1024];
        snprintf(line, sizeof line, "%.*s", (int)n, p);
        putchar('\n');
        print_wrapped(line, 0, 0);
        p += n + (p[n] == '\n');
    }
    if (v->more) v->more();
}
