/* NAME.c: the contract around kernels that somebody had, with what was guessed said beside it. */
#include <stdio.h>
#include <string.h>

#include "cli/new/new.h"
#include "from.h"

static bool is_tensor(const guess *g) {
    return g->role == INPUT || g->role == OUTPUT || g->role == UPDATED;
}

void write_signature(from_kernel *k) {
    tni_text *to = &k->signature;
    tni_text_add(to, "%s(", k->op);
    int n = 0;
    for (int i = 0; i < k->n; i++) {
        const guess *g = &k->guesses[i];
        const bool takes = g->role == INPUT || g->role == UPDATED || g->role == ATTRIBUTE;
        if (!takes) continue;
        tni_text_add(to, "%s%s: %s", n++ ? ", " : "", g->param->name, g->type);
        if (is_tensor(g)) tni_text_add(to, "[%s]%s", g->shape, g->role == UPDATED ? "!" : "");
    }
    tni_text_put(to, ")");
    n = 0;
    for (int i = 0; i < k->n; i++) {
        const guess *g = &k->guesses[i];
        if (g->role == OUTPUT) tni_text_add(to, "%s%s: %s[%s]", n++ ? ", " : " -> ", g->param->name, g->type, g->shape);
    }
}

/* ---- samples ----------------------------------------------------------------------------------------------------- */

/* Every size once, and every attribute: `large` 0 and 1 to check with, 2 to measure. */
static void put_sample(const from_kernel *k, int large, tni_text *to) {
    static const int small[] = {7, 5, 3, 4, 6, 2}, middle[] = {33, 20, 17, 9, 5, 3};
    char seen[1024] = " ";
    int n = 0, words = 0, most = 0;
    for (int i = 0; i < k->n; i++) {
        const guess *g = &k->guesses[i];
        const int dims = g->n_dims + g->is_partial;
        if (is_tensor(g) && dims > most) most = dims;
    }
    for (int i = 0; i < k->n; i++) {
        const guess *g = &k->guesses[i];
        if (g->role == ATTRIBUTE) {
            const char *value = strcmp(g->type, "bool") == 0 ? "true" : strcmp(g->type, "int") == 0 ? "3" : "0.5";
            tni_text_add(to, "%s%s=%s", words++ ? " " : "", g->param->name, value);
        }
        if (g->role != INPUT && g->role != UPDATED) continue;
        for (int d = g->is_partial ? -1 : 0; d < g->n_dims; d++) {
            char word[MOST_NAME + 2];
            const char *name = d < 0 ? "r" : g->dims[d];
            const bool is_pack = d < 0 ||
                                 (strlen(g->shape) > 1 && g->shape[0] == '*' && g->n_dims == 1 && !g->is_partial);
            snprintf(word, sizeof word, " %s ", name);
            if (strstr(seen, word) || (name[0] >= '0' && name[0] <= '9')) continue;
            snprintf(seen + strlen(seen), sizeof seen - strlen(seen), "%s", word + 1);
            const int size = large == 0           ? small[n % 6]
                             : large == 1         ? middle[n % 6]
                             : most > 2           ? 256
                             : most == 2 || d < 0 ? 4096
                                                  : 1 << 26;
            if (is_pack && large == 1)
                tni_text_add(to, "%s%s=[4, %d]", words++ ? " " : "", name, size);
            else
                tni_text_add(to, is_pack ? "%s%s=[%d]" : "%s%s=%d", words++ ? " " : "", name, size);
            n++;
        }
    }
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

/* A comment of one line in front of a field. */
static void put_comment(tni_text *to, const char *text) {
    tni_text_add(to, "    /* %s */\n", text);
}

/* How much of a text is one line: up to the last `; ` or `, ` that fits. */
static int line_of(const char *text) {
    enum { LINE = 90 };
    const int length = (int)strlen(text);
    for (int n = LINE; length > LINE && n > LINE / 3; n--) {
        if (text[n - 1] == ' ' && (text[n - 2] == ';' || text[n - 2] == ',')) return n;
    }
    return length;
}

/* A string of C, a line for each piece of it. */
static void put_string(tni_text *to, const char *text) {
    int n = 0;
    if (!text) text = "";
    do {
        tni_text piece = {0}, quoted = {0};
        const char *before = n ? "\n        " : "";
        text += n;
        n = line_of(text);
        tni_text_add(&piece, "%.*s", n, text);
        tni_text_json_string(&quoted, piece.data ? piece.data : "");
        tni_text_add(to, "%s%s", before, quoted.data ? quoted.data : "\"\"");
        tni_free(piece.data);
        tni_free(quoted.data);
    } while (text[n]);
}

static void put_guesses(const from_kernel *k, tni_text *to, tni_text *notes) {
    for (int i = 0; i < k->n; i++) {
        const guess *g = &k->guesses[i];
        char text[400];
        if (g->role == LENGTH)
            snprintf(text, sizeof text, "guessed: %s is a length", g->param->name);
        else if (*g->why)
            snprintf(text, sizeof text, "guessed: %s is %s", g->param->name, g->why);
        else
            continue;
        put_comment(to, text);
        tni_text_add(notes, "    %s\n", text);
    }
}

static void put_operator(const from_kernel *k, const char *file, tni_text *to, tni_text *notes) {
    const char *op = k->op;
    tni_text_add(notes, "  %s: %s\n", k->function->name, k->signature.data);
    tni_text_add(to, "static const tn_sample %s_samples[] = {\n", op);
    for (int large = 0; large < 3; large++) {
        tni_text_put(to, "    {\"");
        put_sample(k, large, to);
        tni_text_put(to, large == 2 ? "\", .bench = true},\n" : "\"},\n");
    }
    tni_text_put(to, "    {0},\n};\n\n");
    tni_text_add(to, "static const tn_source %s_gpu = {\n    .cuda = %s_cu,\n", op, file);
    char text[200];
    snprintf(text, sizeof text,
             k->launch_is_read ? "read from %.60s<<<…>>> in %.60s" : "guessed, from how it uses its place in the grid",
             k->function->name, *k->site.host ? k->site.host : "the file");
    put_comment(to, text);
    tni_text_add(notes, "    launch, %s: %s\n", text, k->launch.data);
    tni_text_add(to, "    .launch = \"%s: %s\",\n    .file = \"%s.cu\",\n};\n", k->function->name, k->launch.data,
                 file);
    tni_text_add(to, "static const tn_kernel %s_kernels[] = {TN_CUDA_SOURCE(\"gpu\", %s_gpu), {0}};\n\n", op, op);
    tni_text_add(to, "static const tn_op %s = {\n", op);
    put_guesses(k, to, notes);
    tni_text_put(to, "    .signature = ");
    put_string(to, k->signature.data);
    tni_text_add(to, ",\n    .doc = \"The kernel %s of %s.cu.\",\n", k->function->name, file);
    if (k->formula.data) {
        put_comment(
            to, "read from the kernel: what it is compared with, what runs on the CPU, where the gradient comes from");
        tni_text_put(to, "    .formula = ");
        put_string(to, k->formula.data);
        tni_text_put(to, ",\n");
        tni_text_add(notes, "    formula: %s\n", k->formula.data);
    } else {
        put_comment(
            to,
            "Say what it computes, if that is a formula (`tenon help formulas`): then it can be checked, runs on the");
        put_comment(to, "CPU and has a gradient. Without it, it is for CUDA only.  .formula = \"…\",");
        tni_text_put(notes,
                     "    no formula could be read from it: add one, or a kernel for the CPU, to check it with\n");
    }
    tni_text_add(to, "    .kernels = %s_kernels,\n    .samples = %s_samples,\n};\n\n", op, op);
}

void write_contract(const from_file *file, const char *name, from_result *made) {
    tni_text *to = &made->contract;
    const char *slash = strrchr(file->path, '/'), *base = slash ? slash + 1 : file->path;
    tni_text_add(to,
                 "/* Operators around the kernels of %s.cu, guessed from %s. Look at\n"
                 " * what is marked as guessed. */\n"
                 "#include <tenon/kernel.h>\n\nextern const char %s_cu[]; /* the text of %s.cu */\n\n",
                 name, base, name, name);
    for (int i = 0; i < file->n; i++) {
        const from_kernel *k = &file->kernels[i];
        if (*k->stands_in_the_way) {
            tni_text_add(to, "/* %s: %s. */\n\n", k->function->name, k->stands_in_the_way);
            tni_text_add(&made->notes, "  %s is left out: %s\n", k->function->name, k->stands_in_the_way);
        } else {
            put_operator(k, name, to, &made->notes);
        }
    }
    tni_text_put(to, "static const tn_op *const table[] = {");
    for (int i = 0, first = 1; i < file->n; i++) {
        if (*file->kernels[i].stands_in_the_way) continue;
        tni_text_add(to, "%s&%s", first ? "" : ", ", file->kernels[i].op);
        first = 0;
    }
    tni_text_put(to, "};\nconst tn_plugin tenon_plugin = TN_PLUGIN(table);\n");
    for (int i = 0; i < file->n; i++) {
        if (!*file->kernels[i].stands_in_the_way)
            tni_text_add(&made->example, "print(tn.%s.__doc__)\n", file->kernels[i].op);
    }
}

/* ---- for programs ------------------------------------------------------------------------------------------------ */

static void put_key(tni_text *to, const char *key, const char *value) {
    tni_text_add(to, "\"%s\": ", key);
    tni_text_json_string(to, value ? value : "");
}

static void put_site(const from_file *file, const from_kernel *k, tni_text *to) {
    const launch_site *s = &k->site;
    put_key(to, "host", s->host);
    tni_text_put(to, ", ");
    put_key(to, "host_params", s->host_params.n ? joined(file->arena, &s->host_params) : "");
    tni_text_put(to, ", ");
    put_key(to, "host_body", s->host_body.n ? joined(file->arena, &s->host_body) : "");
    tni_text_put(to, ", \"arguments\": [");
    for (int i = 0; i < s->n_arguments; i++) {
        tni_text_put(to, i ? ", " : "");
        tni_text_json_string(to, joined(file->arena, &s->arguments[i]));
    }
    tni_text_put(to, "]");
}

void write_json(const from_file *file, from_result *made) {
    static const char *const roles[] = {"input", "output", "updated", "length", "attribute", "strange"};
    tni_text *to = &made->json;
    tni_text_put(to, "{");
    put_key(to, "cuda", made->kernels.data);
    tni_text_put(to, ", \"kernels\": [");
    for (int i = 0; i < file->n; i++) {
        const from_kernel *k = &file->kernels[i];
        tni_text_put(to, i ? ", {" : "{");
        put_key(to, "kernel", k->function->name);
        tni_text_put(to, ", ");
        put_key(to, "problem", k->stands_in_the_way);
        tni_text_put(to, ", ");
        put_key(to, "signature", k->signature.data);
        tni_text_put(to, ", ");
        put_key(to, "launch", k->launch.data);
        tni_text_put(to, ", ");
        put_key(to, "formula", k->formula.data);
        tni_text_put(to, ", ");
        put_site(file, k, to);
        tni_text_put(to, ", \"params\": [");
        for (int j = 0; j < k->n; j++) {
            tni_text_put(to, j ? ", {" : "{");
            put_key(to, "name", k->guesses[j].param->name);
            tni_text_put(to, ", ");
            put_key(to, "role", roles[k->guesses[j].role]);
            tni_text_put(to, "}");
        }
        tni_text_put(to, "]}");
    }
    tni_text_put(to, "]}");
}
