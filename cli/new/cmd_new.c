/* tenon new: a project of one operator, with a kernel that works. */
#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <tenon/call.h>

#include "cli/cli.h"
#include "new.h"

static const char *template_name, *from_file;
static bool python, as_json;

const project_kind project_kinds[] = {
    {"elementwise", "silu(x) * y: each element by itself",
     "x, y = np.linspace(-2, 2, 5), np.ones(5)\nprint(tn.@name@(x, y))"},
    {"row", "each row divided by its root mean square: every element needs its whole row",
     "x, weight = np.ones((2, 8), np.float32), np.full(8, 0.5, np.float32)\nprint(tn.@name@(x, weight))"},
    {"tile", "a transposed matrix: data changes places, through shared memory",
     "print(tn.@name@(np.arange(6.0).reshape(2, 3)))"},
    {"reduction", "the sum of each row: many numbers become one", "print(tn.@name@(np.arange(6.0).reshape(2, 3)))"},
    {"scan", "cumulative sums along rows: each needs the ones before it",
     "print(tn.@name@(np.arange(6.0).reshape(2, 3)))"},
    {"stencil", "each pixel with its neighbours: data that several threads need", "print(tn.@name@(np.eye(5)))"},
    {0},
};

static const project_kind *find_kind(const char *name) {
    for (const project_kind *k = project_kinds; k->name; k++) {
        if (strcmp(k->name, name) == 0) return k;
    }
    return NULL;
}

static int unknown_kind(const verb *v) {
    const char *names[16];
    int n = 0;
    for (const project_kind *k = project_kinds; k->name; k++) names[n++] = k->name;
    names[n] = NULL;
    const char *near = nearest_name(template_name, names);
    if (near) return usage_error(v, "there is no template '%s'; did you mean %s?", template_name, near);
    return usage_error(v, "there is no template '%s'", template_name);
}

/* A name that C, Python and the contract language all take. */
static bool is_name(const char *name) {
    if (!islower((unsigned char)*name)) return false;
    for (; *name; name++) {
        if (!islower((unsigned char)*name) && !isdigit((unsigned char)*name) && *name != '_') return false;
    }
    return true;
}

static bool is_keyword(const char *name) {
    static const char *const words[] = {
        "auto",   "bool",    "break",   "case",    "char",     "class",    "const",    "continue", "def",    "default",
        "del",    "do",      "double",  "else",    "enum",     "extern",   "float",    "for",      "from",   "global",
        "goto",   "if",      "import",  "in",      "inline",   "int",      "is",       "lambda",   "long",   "main",
        "not",    "or",      "and",     "pass",    "register", "return",   "restrict", "short",    "signed", "sizeof",
        "static", "struct",  "switch",  "typedef", "union",    "unsigned", "void",     "volatile", "while",  "with",
        "yield",  "samples", "kernels", "table",   "gpu",      "tenon",    NULL};
    for (int i = 0; words[i]; i++) {
        if (strcmp(words[i], name) == 0) return true;
    }
    return false;
}

static int check_name(const verb *v, const char *name) {
    if (!is_name(name)) {
        return usage_error(v, "'%s' is no name for an operator: lower-case letters, digits and _, a letter first",
                           name);
    }
    if (is_keyword(name)) return usage_error(v, "'%s' means something else in C or Python; take another name", name);
    for (int i = 0; i < tn_function_count(); i++) {
        if (strcmp(tn_function_name(tn_function_at(i)), name) == 0) {
            return usage_error(v, "Tenon has a '%s' already (`tenon ops %s`); take another name", name, name);
        }
    }
    return 0;
}

static bool write_filled(const char *folder, const char *file, const char *source, const filling *fillings) {
    char *text = fill_template(source, fillings);
    const bool written = text && write_new_file(folder, file, text);
    tni_free(text);
    return written;
}

/* What makes it a package. */
static bool write_python(const char *folder, const char *name, const filling *fillings) {
    char package[PATH_MAX], test[PATH_MAX];
    snprintf(package, sizeof package, "%s/__init__.py", name);
    snprintf(test, sizeof test, "tests/test_%s.py", name);
    return write_filled(folder, "pyproject.toml", "pyproject.toml", fillings) &&
           write_filled(folder, package, "init.py", fillings) && write_filled(folder, test, "test.py", fillings) &&
           write_filled(folder, "example_usage.py", "example.py", fillings);
}

/* NAME.c and NAME.cu, of a template or of --from. */
static bool write_sources(const char *folder, const char *name, const from_result *from, const filling *fillings) {
    char contract[PATH_MAX], kernels[PATH_MAX], source[64];
    snprintf(contract, sizeof contract, "%s.c", name);
    snprintf(kernels, sizeof kernels, "%s.cu", name);
    if (from) {
        return write_new_file(folder, contract, from->contract.data) &&
               write_new_file(folder, kernels, from->kernels.data);
    }
    snprintf(source, sizeof source, "%s.c", template_name);
    if (!write_filled(folder, contract, source, fillings)) return false;
    snprintf(source, sizeof source, "%s.cu", template_name);
    return write_filled(folder, kernels, source, fillings);
}

static void print_file(const char *name, const char *end, const char *about) {
    char file[NAME_MAX + 8];
    snprintf(file, sizeof file, "%s%s", name, end);
    printf("  %-18s %s\n", file, about);
}

static void print_next(const char *folder, const char *name) {
    printf("%s/\n", folder);
    print_file(name, ".c", "what the operator is: contract, reference, samples to test with");
    print_file(name, ".cu", "the kernel for the GPU");
    if (python)
        print_file("pyproject", ".toml", "and the rest of a Python package; `pip wheel .` makes one file of it");
    printf("Next:\n  tenon build %s\n  tenon --load %s/%s.tenon.so check --only-loaded\n", folder, folder, name);
}

static int write_project(const char *name, const char *folder, const from_result *from) {
    char about[256], example[1024];
    const project_kind *kind = find_kind(template_name);
    snprintf(about, sizeof about, from ? "Kernels of %s" : "%s", from ? from_file : kind->about);
    if (!from) about[0] = (char)toupper((unsigned char)about[0]);
    snprintf(about + strlen(about), sizeof about - strlen(about), ".");
    const filling names[] = {{"name", name}, {0}};
    tni_text lines = {0};
    for (const char *s = from ? from->example.data : kind->example; s && *s;) { /* the example has @name@ in it */
        const bool here = strncmp(s, "@name@", 6) == 0;
        tni_text_add(&lines, "%.*s", here ? (int)strlen(name) : 1, here ? name : s);
        s += here ? 6 : 1;
    }
    snprintf(example, sizeof example, "%s", lines.data ? lines.data : "");
    tni_free(lines.data);
    const filling fillings[] = {names[0], {"about", about}, {"example", example}, {0}};
    const bool written = write_sources(folder, name, from, fillings) &&
                         write_filled(folder, "README.md", "readme.md", fillings) &&
                         (!python || write_python(folder, name, fillings));
    if (!written) return 1;
    print_next(folder, name);
    return 0;
}

static int run(int count, const char *const *rest) {
    const verb *v = &verb_new;
    if (count < 1 || count > 2) return usage_error(v, "needs a name: tenon new my_op");
    int status = check_name(v, rest[0]);
    if (status) return status;
    if (template_name && from_file) return usage_error(v, "--template and --from are two ways to begin; take one");
    if (as_json && !from_file) return usage_error(v, "--json goes with --from");
    if (!template_name) template_name = "elementwise";
    if (!find_kind(template_name)) return unknown_kind(v);
    if (!from_file) return write_project(rest[0], count > 1 ? rest[1] : rest[0], NULL);
    from_result made = {0};
    status = read_kernels(from_file, rest[0], &made) ? 0 : 1;
    if (!status && as_json) puts(made.json.data);
    if (!status && !as_json) status = write_project(rest[0], count > 1 ? rest[1] : rest[0], &made);
    if (!status && !as_json && made.notes.data) printf("\nRead %s:\n%s", from_file, made.notes.data);
    tni_text *const texts[] = {&made.contract, &made.kernels, &made.notes, &made.example, &made.json};
    for (int i = 0; i < 5; i++) tni_free(texts[i]->data);
    return status;
}

static void print_templates(void) {
    printf("\nTemplates\n");
    for (const project_kind *k = project_kinds; k->name; k++) {
        printf("  %-12s  ", k->name);
        print_wrapped(k->about, 16, 16);
    }
}

static const option options[] = {
    {"--template", "row", "the kernel to begin with, as listed below; elementwise unless you say so", TEXT,
     &template_name},
    {"--from", "kernel.cu", "take the __global__ functions of a file that you have, and guess their contract", TEXT,
     &from_file},
    {"--python", NULL, "a Python package too: pyproject.toml, tests, an example", FLAG, &python},
    {"--json", NULL, "with --from: print what was read, and write nothing", FLAG, &as_json},
    {0},
};

const verb verb_new = {
    .name = "new",
    .summary = "a project for a kernel of your own: contract, kernel, samples, in files that you change",
    .examples = "tenon new swiglu_op\ta folder with an operator that works\n"
                "tenon new my_norm --template row\tof another kind\n"
                "tenon new plus_constant --from kernel.cu\taround a kernel that you have\n"
                "tenon new my_sum --template reduction --python\ta package for pip, too",
    .text =
        "Then `tenon build DIR` makes one file of it, DIR/NAME.tenon.so, which `tenon --load`, tenon.load() in Python "
        "and tn_load() in C take. `tenon watch DIR` builds and checks again whenever you save.",
    .options = options,
    .run = run,
    .more = print_templates,
};
