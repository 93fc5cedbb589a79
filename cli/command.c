/* The command tenon: one verb per file (cmd_<verb>.c), one row per verb below. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <tenon/call.h>

#include "cli.h"

static const verb *const verbs[] = {&verb_ops,     &verb_check,  &verb_bench, &verb_tune, &verb_fuse,
                                    &verb_devices, &verb_doctor, &verb_flags, NULL};

static char loads[4096], command[8192];
static int n_built_in = -1; /* operators before the first --load; -1: there was none */

const verb *const *all_verbs(void) {
    return verbs;
}

const char *loaded_plugins(void) {
    return loads;
}

int first_loaded(void) {
    return n_built_in < 0 ? tn_function_count() : n_built_in;
}

const char *command_text(void) {
    return command;
}

static void add_text(char *to, size_t size, const char *text) {
    size_t n = strlen(to);
    bool quote = strpbrk(text, " []'\"*?<>|&;()$") != NULL;
    snprintf(to + n, size - n, quote ? " \"%s\"" : " %s", text);
}

static const verb *find_verb(const char *name) {
    for (int i = 0; verbs[i]; i++) {
        if (strcmp(verbs[i]->name, name) == 0) return verbs[i];
    }
    return NULL;
}

static int unknown_verb(const char *name) {
    const char *names[16];
    int n = 0;
    for (int i = 0; verbs[i]; i++) names[n++] = verbs[i]->name;
    for (const topic *t = topics; t->name; t++) names[n++] = t->name;
    names[n++] = "help";
    names[n] = NULL;
    const char *near = nearest_name(name, names);
    const char *help = near && find_topic(near) ? "help " : "";
    if (near) return usage_error(NULL, "there is no '%s'; did you mean `tenon %s%s`?", name, help, near);
    return usage_error(NULL, "there is no '%s'", name);
}

static int print_overview(void) {
    printf("%stenon%s %s: fused operators for every ML framework, one table\n\n", style_text(BOLD), style_text(PLAIN),
           tn_version());
    for (int i = 0; verbs[i]; i++) {
        printf("  %stenon %-10s%s", style_text(BOLD), verbs[i]->name, style_text(PLAIN));
        print_wrapped(verbs[i]->summary, 18, 18);
    }
    printf("\n  %-21s  examples and options of a verb\n", "tenon help VERB");
    for (const topic *t = topics; t->name; t++) printf("  tenon help %-10s  %s\n", t->name, t->about);
    printf("  tenon --version\n\n"
           "Try %stenon ops softmax%s, then %stenon check softmax --quick%s.\n",
           style_text(BOLD), style_text(PLAIN), style_text(BOLD), style_text(PLAIN));
    return 0;
}

static int help(int argc, char **argv) {
    if (argc < 1) return print_overview();
    const verb *v = find_verb(argv[0]);
    const topic *t = find_topic(argv[0]);
    if (!v && !t) return unknown_verb(argv[0]);
    if (v) print_help(v);
    if (t) print_topic(t);
    return 0;
}

/* Takes every `--load plugin.so` out of the arguments and loads it. */
static int load_plugins(int *argc, char **argv) {
    int kept = 0;
    for (int i = 0; i < *argc; i++) {
        const char *path = NULL;
        if (strcmp(argv[i], "--load") == 0) {
            if (i + 1 >= *argc) return usage_error(NULL, "--load needs a shared object: --load plugin.so");
            path = argv[++i];
        } else if (strncmp(argv[i], "--load=", 7) == 0) {
            path = argv[i] + 7;
        }
        if (!path) {
            argv[kept++] = argv[i];
            continue;
        }
        if (n_built_in < 0) n_built_in = tn_function_count();
        if (tn_load(path) != TN_OK) {
            fprintf(stderr, "tenon: %s\n", tn_last_error());
            return 1;
        }
        snprintf(loads + strlen(loads), sizeof loads - strlen(loads), " --load");
        add_text(loads, sizeof loads, path);
    }
    *argc = kept;
    return 0;
}

static int run_command(int argc, char **argv) {
    snprintf(command, sizeof command, "tenon");
    for (int i = 1; i < argc; i++) add_text(command, sizeof command, argv[i]);
    int count = argc - 1;
    char **args = argv + 1;
    int status = load_plugins(&count, args);
    if (status) return status;
    if (count == 0 || strcmp(args[0], "--help") == 0 || strcmp(args[0], "-h") == 0) return print_overview();
    if (strcmp(args[0], "--version") == 0) {
        printf("tenon %s\n", tn_version());
        return 0;
    }
    if (strcmp(args[0], "help") == 0) return help(count - 1, args + 1);
    const verb *v = find_verb(args[0]);
    if (!v) return unknown_verb(args[0]);
    const char **rest = calloc((size_t)count, sizeof *rest);
    int n = 0;
    status = rest ? parse_options(v, count - 1, args + 1, rest, &n) : 1;
    if (status == 0) status = v->run(n, rest);
    free(rest);
    return status < 0 ? 0 : status;
}

/* `tenon ops | head`, where SIGPIPE is ignored and has not ended us: enough was read. */
static bool reader_is_gone(void) {
    struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};
    return poll(&out, 1, 0) == 1 && out.revents & POLLERR;
}

/* What was printed may not have arrived: the disk is full, the file is closed. */
int tni_command(int argc, char **argv) {
    int status = run_command(argc, argv);
    errno = 0;
    if ((fflush(stdout) == 0 && !ferror(stdout)) || reader_is_gone()) return status;
    fprintf(stderr, "tenon: the output could not be written%s%s\n", errno ? ": " : "", errno ? strerror(errno) : "");
    return status ? status : 1;
}
