/* Operators that are text as a whole: rows of the table that own what they are made of. */
#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "core/table/sample.h"
#include "source.h"

/* The members of a tn_kernel_text, and what a file calls them. */
enum { SIGNATURE, DOC, FORMULA, GRAD, SAMPLES, CUDA, CPU, LAUNCH, FILE_NAME, OPTIONS, PARTS };
static const char *const part_names[PARTS] = {"signature", "doc", "formula", "grad", "samples",
                                              "cuda",      "cpu", "launch",  "file", "options"};

static void parts_of(const tn_kernel_text *t, const char *parts[static PARTS]) {
    const char *const all[PARTS] = {t->signature,   t->doc,        t->formula,       t->grad,        t->samples,
                                    t->source.cuda, t->source.cpu, t->source.launch, t->source.file, t->source.options};
    for (int i = 0; i < PARTS; i++) parts[i] = all[i] && *all[i] ? all[i] : NULL;
}

/* An operator that was defined, and its gradient where that is a formula. */
typedef struct defined {
    tn_op rows[2];
    tn_kernel kernels[3];
    tn_source source;
    tn_sample *samples;
    const char *parts[PARTS]; /* as they were given */
    const char *name;         /* that was asked for; the row's may be NAME_2 */
    const tn_function *op;
    tni_arena *arena;
    struct defined *next;
} defined;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static defined *all;

void tni_texts_close(void) {
    pthread_mutex_lock(&lock);
    for (defined *d = all, *next; d; d = next) {
        next = d->next;
        tni_arena_free(d->arena);
    }
    all = NULL;
    pthread_mutex_unlock(&lock);
}

static char *keep(tni_arena *arena, const char *text) {
    return tni_arena_text(arena, text, strlen(text));
}

/* Moves a text that was written to the arena. */
static tn_status keep_text(tni_arena *arena, tni_text *text, const char **kept) {
    *kept = text->failed ? NULL : tni_arena_text(arena, text->data, text->length);
    tni_free(text->data);
    return *kept ? TN_OK : TN_NO_MEMORY;
}

/* ---- the gradient that is a formula ----------------------------------------------------------------------------- */

static bool mentions(const char *text, const char *word) {
    const size_t n = strlen(word);
    for (const char *s = text; (s = strstr(s, word)); s++) {
        const bool begins = s == text || !(isalnum((unsigned char)s[-1]) || s[-1] == '_');
        if (begins && !(isalnum((unsigned char)s[n]) || s[n] == '_')) return true;
    }
    return false;
}

static bool assigns(const char *text, const char *word) {
    const size_t n = strlen(word);
    for (const char *s = text; (s = strstr(s, word)); s++) {
        const char *before = s;
        while (before > text && isspace((unsigned char)before[-1])) before--;
        const char *behind = s + n + strspn(s + n, " \t\n");
        if ((before == text || before[-1] == ';' || s[-1] == '\n') && behind[0] == '=' && behind[1] != '=') return true;
    }
    return false;
}

/* Where a list of parameters in a printed signature ends, and each of them. */
static const char *end_of_part(const char *s) {
    for (int depth = 0; *s; s++) {
        if (depth == 0 && (*s == ',' || *s == ')')) break;
        if (depth == 0 && strncmp(s, " where ", 7) == 0) break;
        depth += (*s == '(' || *s == '[' || *s == '<') - (*s == ')' || *s == ']' || *s == '>');
    }
    return s;
}

/* The declaration of a parameter, "x: T[*s]?" without its name: from the printed signature, behind `from`. */
static bool find_declaration(const char *from, const char *name, char *to, size_t size) {
    const size_t n = strlen(name);
    for (const char *s = from; *s;) {
        s += strspn(s, " ");
        const char *end = end_of_part(s);
        if (strncmp(s, name, n) == 0 && s[n] == ':') {
            return (size_t)snprintf(to, size, "%.*s", (int)(end - s - (ptrdiff_t)n - 2), s + n + 2) < size;
        }
        if (*end != ',') return false;
        s = end + 1;
    }
    return false;
}

/* Without the marks of how it is passed; one that broadcasts has a shape of its own in the gradient: *NAME_shape. */
static void plain(char *declaration, const char *name, size_t size) {
    char *end = declaration + strlen(declaration);
    while (end > declaration && (end[-1] == '!' || end[-1] == '?')) *--end = 0;
    char *bracket = strchr(declaration, '[');
    if (bracket && strchr(bracket, '~')) {
        snprintf(bracket, size - (size_t)(bracket - declaration), "[*%s_shape]", name);
    }
}

typedef struct gradient {
    const tni_contract *c;
    const char *printed, *formula; /* the contract of the operator, and the gradient */
    tni_text signature, inputs, calls, wanted;
    int n_in, n_out;
} gradient;

static const char *params_of(const gradient *g) {
    return strchr(g->printed, '(') + 1;
}

static const char *outputs_of(const gradient *g) {
    const char *arrow = strstr(g->printed, " -> ");
    return arrow ? arrow + 4 : "";
}

static void add_input(gradient *g, const char *name, const char *declaration) {
    tni_text_add(&g->inputs, "%s%s: %s", g->n_in ? ", " : "", name, declaration);
    tni_text_add(&g->calls, "%s%s", g->n_in ? ", " : "", name);
    g->n_in++;
}

static tn_status add_parts(gradient *g) {
    const tni_contract *c = g->c;
    char text[600], name[80];
    for (int32_t i = 0; i < c->n_inputs; i++) {
        const char *input = c->inputs[i].name;
        snprintf(name, sizeof name, "d%.60s", input);
        const bool wanted = assigns(g->formula, name);
        if (!wanted && !mentions(g->formula, input)) continue;
        if (!find_declaration(params_of(g), input, text, sizeof text)) return TN_BAD_CONTRACT;
        const bool optional = text[strlen(text) - 1] == '?';
        plain(text, input, sizeof text);
        if (wanted) {
            tni_text_add(&g->signature, "%s%s: %s?", g->n_out ? ", " : "", name, text);
            tni_text_add(&g->wanted, "%s%s", g->n_out++ ? ", " : "", input);
        }
        /* The shape of what comes out is that of the input. */
        if (optional && strlen(text) + 1 < sizeof text) strcat(text, "?"); /* NOLINT: it fits */
        add_input(g, input, text);
    }
    for (int32_t i = 0; i < c->n_outputs; i++) {
        const char *output = c->outputs[i].name;
        if (!find_declaration(outputs_of(g), output, text, sizeof text)) return TN_BAD_CONTRACT;
        char *mark = strchr(text, '?');
        if (mark) *mark = 0;
        if (mentions(g->formula, output)) add_input(g, output, text);
        snprintf(name, sizeof name, "d%.60s", output);
        if (mentions(g->formula, name)) add_input(g, name, text);
    }
    for (int32_t i = 0; i < c->n_attrs; i++) {
        const char *attr = c->attrs[i].name;
        if (c->attrs[i].implied || !mentions(g->formula, attr)) continue;
        if (!find_declaration(params_of(g), attr, text, sizeof text)) return TN_BAD_CONTRACT;
        tni_text_add(&g->inputs, ", %s: %s", attr, text); /* the same name passes along */
    }
    return TN_OK;
}

static tn_status write_gradient(gradient *g, defined *d) {
    const char *op = g->c->name, *open = strchr(g->printed, '(');
    const tn_status status = add_parts(g);
    if (status != TN_OK) return tn_fail(status, "%s: grad: the signature cannot be read", op);
    if (!g->n_out) {
        return tn_fail(TN_BAD_VALUE,
                       "%s: grad: the formula assigns no gradient; that of the input %s is called d%s: `d%s = …`", op,
                       g->c->n_inputs ? g->c->inputs[0].name : "x", g->c->n_inputs ? g->c->inputs[0].name : "x",
                       g->c->n_inputs ? g->c->inputs[0].name : "x");
    }
    const char *angle = memchr(g->printed, '<', (size_t)(open - g->printed));
    tni_text whole = {0}, rule = {0}, doc = {0};
    tni_text_add(&whole, "%s_grad%.*s(%s) -> %s", op, angle ? (int)(open - angle) : 0, angle ? angle : "",
                 g->inputs.data, g->signature.data);
    tni_text_add(&rule, "%s: %s_grad(%s)", g->wanted.data, op, g->calls.data);
    tni_text_add(&doc, "The gradient of %s.", op);
    d->rows[1].formula = keep(d->arena, g->formula);
    TN_TRY(keep_text(d->arena, &whole, &d->rows[1].signature));
    TN_TRY(keep_text(d->arena, &rule, &d->rows[0].grad));
    TN_TRY(keep_text(d->arena, &doc, &d->rows[1].doc));
    return d->rows[1].formula ? TN_OK : TN_NO_MEMORY;
}

static tn_status make_gradient(const tni_contract *c, const char *formula, defined *d) {
    gradient g = {.c = c, .printed = tni_contract_print(c), .formula = formula};
    const tn_status status = g.printed ? write_gradient(&g, d) : TN_NO_MEMORY;
    tni_free((char *)(uintptr_t)g.printed);
    tni_free(g.signature.data);
    tni_free(g.inputs.data);
    tni_free(g.calls.data);
    tni_free(g.wanted.data);
    return status;
}

/* ---- samples ----------------------------------------------------------------------------------------------------- */

enum { MADE_UP = 5 };

/* A call with sizes that nobody chose for being round, one with an empty tensor, and a large one to measure with. */
static tn_status make_up_sample(const tni_contract *c, int which, tni_arena *arena, const char **made) {
    static const int64_t sizes[MADE_UP][3] = {{7, 5, 3}, {33, 65, 9}, {1, 1, 1}, {257, 130, 4}, {0, 0, 0}};
    static const char *const packs[MADE_UP] = {"[5]", "[4, 33]", "[]", "[3, 2, 257]", "[2, 0]"};
    tni_text text = {0};
    const int names = c->n_dims + c->n_packs;
    for (int32_t i = 0; i < c->n_dims; i++) {
        int64_t size = sizes[which == MADE_UP ? 0 : which][i % 3];
        if (which == MADE_UP) size = names == 1 ? 1 << 24 : names == 2 ? 4096 : 256;
        tni_text_add(&text, "%s=%lld ", c->dims[i], (long long)size);
    }
    for (int32_t i = 0; i < c->n_packs; i++) {
        const char *size = which < MADE_UP ? packs[which] : names == 1 ? "[4096, 4096]" : "[4096]";
        tni_text_add(&text, "%s=%s ", c->packs[i], size);
    }
    for (int32_t i = 0; i < c->n_attrs; i++) {
        const tni_attr *a = &c->attrs[i];
        if (a->implied || a->has_default || a->optional) continue;
        const bool number = a->kind == TNI_A_FLOAT || a->kind == TNI_A_INT;
        if (number) tni_text_add(&text, a->kind == TNI_A_FLOAT ? "%s=%d.5 " : "%s=%d ", a->name, which + 1);
    }
    for (int32_t i = 0; i < c->n_outputs; i++) { /* all that can be asked for */
        const int32_t want = c->outputs[i].want_attr;
        if (want >= 0) tni_text_add(&text, "%s=true ", c->attrs[want].name);
    }
    while (text.length && text.data[text.length - 1] == ' ') text.data[--text.length] = 0;
    if (!text.data) tni_text_put(&text, "");
    return keep_text(arena, &text, made);
}

static tn_status make_up_samples(const tni_contract *c, defined *d) {
    int n = 0;
    for (int which = 0; which <= MADE_UP; which++) {
        tni_case *made = NULL;
        const char *args;
        TN_TRY(make_up_sample(c, which, d->arena, &args));
        if (!*args || tni_sample_case(c, args, tni_sample_type(c), &made) != TN_OK)
            continue; /* a condition is not met */
        tni_case_free(made);
        d->samples[n++] = (tn_sample){.args = args, .bench = which == MADE_UP};
    }
    return TN_OK;
}

/* One on each line; `bench: ` in front of those that speed is measured with. */
static tn_status read_samples(const char *text, defined *d) {
    int n = 0;
    while (*text) {
        size_t length = strcspn(text, "\n");
        const char *s = text + strspn(text, " \t\r");
        const bool bench = strncmp(s, "bench:", 6) == 0;
        if (bench) s += 6 + strspn(s + 6, " ");
        const char *end = text + length;
        while (end > s && isspace((unsigned char)end[-1])) end--;
        if (end > s) {
            d->samples[n].args = tni_arena_text(d->arena, s, (size_t)(end - s));
            if (!d->samples[n].args) return TN_NO_MEMORY;
            d->samples[n++].bench = bench;
        }
        text += length + (text[length] == '\n');
    }
    return TN_OK;
}

static tn_status set_samples(const tni_contract *c, const char *text, defined *d) {
    size_t lines = MADE_UP + 2;
    for (const char *s = text ? text : ""; *s; s++) lines += *s == '\n';
    d->samples = tni_arena_alloc(d->arena, (lines + 1) * sizeof *d->samples);
    if (!d->samples) return TN_NO_MEMORY;
    d->rows[0].samples = d->samples;
    return text ? read_samples(text, d) : make_up_samples(c, d);
}

/* ---- the row ----------------------------------------------------------------------------------------------------- */

/* The signature with another name. */
static tn_status rename_signature(defined *d, const char *name, const char **made) {
    const char *rest = d->parts[SIGNATURE] + strspn(d->parts[SIGNATURE], " \t\r\n");
    rest += strcspn(rest, "(< \t\r\n");
    tni_text text = {0};
    tni_text_add(&text, "%s%s", name, rest);
    return keep_text(d->arena, &text, made);
}

static tn_status fill_row(const tni_contract *c, defined *d) {
    tn_op *row = &d->rows[0];
    const char *const *parts = d->parts;
    int n = 0;
    row->doc = parts[DOC] ? parts[DOC] : "A kernel that was given as text.";
    row->formula = parts[FORMULA];
    d->source = (tn_source){parts[CUDA], parts[CPU], parts[LAUNCH], parts[FILE_NAME], parts[OPTIONS]};
    TN_TRY(tni_source_check(c, &d->source));
    if (d->source.cuda) d->kernels[n++] = (tn_kernel)TN_CUDA_SOURCE("text", d->source);
    if (d->source.cpu) d->kernels[n++] = (tn_kernel)TN_CPU_SOURCE("text", d->source);
    row->kernels = d->kernels;
    if (parts[GRAD] && strchr(parts[GRAD], ':')) {
        row->grad = parts[GRAD];
    } else if (parts[GRAD]) {
        TN_TRY(make_gradient(c, parts[GRAD], d));
    }
    return set_samples(c, parts[SAMPLES], d);
}

static bool same_parts(const defined *a, const char *const parts[static PARTS]) {
    for (int i = 0; i < PARTS; i++) {
        if (!a->parts[i] != !parts[i] || (parts[i] && strcmp(a->parts[i], parts[i]) != 0)) return false;
    }
    return true;
}

/* Under the lock: the same again, or the number that a new one of this name gets. */
static const defined *look_up(const char *name, const char *const parts[static PARTS], int *number) {
    *number = 1;
    for (const defined *d = all; d; d = d->next) {
        if (strcmp(d->name, name) != 0) continue;
        if (same_parts(d, parts)) return d;
        ++*number;
    }
    return NULL;
}

static tn_status add(defined *d, int number) {
    char name[256];
    tni_contract *c;
    snprintf(name, sizeof name, number > 1 ? "%.200s_%d" : "%.200s", d->name, number);
    TN_TRY(rename_signature(d, name, &d->rows[0].signature));
    TN_TRY(tni_contract_parse(d->rows[0].signature, &c));
    tn_status status = fill_row(c, d);
    tni_contract_free(c);
    if (status != TN_OK) return status;
    const tn_op *const rows[] = {&d->rows[0], &d->rows[1]};
    TN_TRY(tni_table_add(rows, d->rows[1].signature ? 2 : 1));
    d->op = tn_find(name);
    d->next = all;
    all = d;
    return TN_OK;
}

static tn_status define(const char *name, const char *const parts[static PARTS], const tn_function **op) {
    int number;
    const defined *known = look_up(name, parts, &number);
    if (known) {
        *op = known->op;
        return TN_OK;
    }
    tni_arena *arena = tni_arena_new();
    defined *d = arena ? tni_arena_alloc(arena, sizeof *d) : NULL;
    tn_status status = d ? TN_OK : TN_NO_MEMORY;
    if (d) d->arena = arena;
    for (int i = 0; d && i < PARTS && status == TN_OK; i++) {
        d->parts[i] = parts[i] ? keep(arena, parts[i]) : NULL;
        if (parts[i] && !d->parts[i]) status = TN_NO_MEMORY;
    }
    if (status == TN_OK && !(d->name = keep(arena, name))) status = TN_NO_MEMORY;
    if (status == TN_OK) status = add(d, number);
    if (status == TN_OK) {
        *op = d->op;
    } else {
        tni_arena_free(arena);
    }
    return status;
}

tn_status tn_kernel_define(const tn_kernel_text *text, const tn_function **op) {
    const char *parts[PARTS];
    tni_contract *c;
    if (!text || !op) return tn_fail(TN_BAD_VALUE, "tn_kernel_define: %s is NULL", text ? "op" : "text");
    if (text->size != sizeof *text) {
        return tn_fail(TN_BAD_VALUE, "tn_kernel_define: size is %zu, but a tn_kernel_text has %zu bytes", text->size,
                       sizeof *text);
    }
    *op = NULL;
    parts_of(text, parts);
    if (!parts[SIGNATURE]) return tn_fail(TN_BAD_VALUE, "tn_kernel_define: there is no signature");
    TN_TRY(tni_contract_parse(parts[SIGNATURE], &c));
    tn_status status = TN_OK;
    if (!parts[FORMULA] && !parts[CUDA] && !parts[CPU]) {
        status = tn_fail(TN_BAD_VALUE, "%s: there is no kernel: neither cuda, nor cpu, nor formula", c->name);
    }
    if (status == TN_OK) {
        pthread_mutex_lock(&lock);
        status = define(c->name, parts, op);
        pthread_mutex_unlock(&lock);
    }
    tni_contract_free(c);
    return status;
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

static const char heading[] = "tenon kernel 1\n";

static bool is_text(const char *data, size_t bytes) {
    return bytes >= sizeof heading - 1 && memcmp(data, heading, sizeof heading - 1) == 0;
}

char *tn_kernel_write(const tn_function *op) {
    tni_text text = {0};
    pthread_mutex_lock(&lock);
    const defined *d = all;
    while (d && d->op != op) d = d->next;
    if (d) tni_text_put(&text, heading);
    for (int i = 0; d && i < PARTS; i++) {
        if (!d->parts[i]) continue;
        tni_text_add(&text, "--- %s\n", part_names[i]);
        tni_text_put(&text, d->parts[i]);
        tni_text_put(&text, "\n");
    }
    pthread_mutex_unlock(&lock);
    if (!d) tn_fail(TN_NOT_FOUND, "tn_kernel_write: the operator was not given as text");
    if (d && !text.failed) return text.data;
    tni_free(text.data);
    return NULL;
}

static int part_named(const char *name, size_t length) {
    for (int i = 0; i < PARTS; i++) {
        if (strlen(part_names[i]) == length && memcmp(part_names[i], name, length) == 0) return i;
    }
    return -1;
}

/* One operator of a file: from its heading to the next. `text` is changed: parts end with 0. */
static tn_status load_one(const char *path, char *text) {
    const char *parts[PARTS] = {0};
    char *s = text + sizeof heading - 1;
    while (*s) {
        if (strncmp(s, "--- ", 4) != 0) return tn_fail(TN_BAD_PLUGIN, "%s: expected a line `--- signature`", path);
        const size_t n = strcspn(s + 4, "\r\n");
        const int part = part_named(s + 4, n);
        if (part < 0) {
            return tn_fail(TN_BAD_PLUGIN, "%s: `--- %.*s` is no part of a kernel", path, (int)(n < 60 ? n : 60), s + 4);
        }
        char *begin = s + 4 + n + (s[4 + n] != 0), *end = strstr(begin, "\n--- ");
        if (strncmp(begin, "--- ", 4) == 0) end = begin; /* it is empty */
        parts[part] = begin;
        s = end ? end + (end > begin) : begin + strlen(begin);
        if (end) *(end > begin ? end : begin) = 0;
        if (end == begin && end) return tn_fail(TN_BAD_PLUGIN, "%s: `--- %s` is empty", path, part_names[part]);
        size_t length = strlen(begin);
        while (length && begin[length - 1] == '\n') begin[--length] = 0;
    }
    const tn_kernel_text made = {
        .size = sizeof made,
        .signature = parts[SIGNATURE],
        .doc = parts[DOC],
        .formula = parts[FORMULA],
        .grad = parts[GRAD],
        .samples = parts[SAMPLES],
        .source = {parts[CUDA], parts[CPU], parts[LAUNCH], parts[FILE_NAME], parts[OPTIONS]},
    };
    const tn_function *op;
    return tn_kernel_define(&made, &op);
}

static tn_status load_text(const char *path, const char *text) {
    char *copy = tni_strdup(text), *next;
    tn_status status = copy ? TN_OK : TN_NO_MEMORY;
    for (char *s = copy; status == TN_OK && s; s = next) {
        char mark[sizeof heading + 1] = "\n";
        memcpy(mark + 1, heading, sizeof heading);
        next = strstr(s + 1, mark);
        if (next) *next++ = 0;
        status = load_one(path, s);
    }
    tni_free(copy);
    return status;
}

const tni_kernel_texts tni_text_kernels = {is_text, load_text, tni_source_add_built};
