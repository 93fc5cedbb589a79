/* tenon fuse: what becomes of a formula, whether it is right, how fast it is. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tenon/fuse.h>

#include "cli/bench/bench.h"
#include "cli/check/check.h"
#include "cli/cli.h"
#include "core/contract/parts.h"
#include "core/run/plan.h"
#include "fuse/operator.h"
#include "fuse/plan/backend.h"
#include "fuse_apart.h"

static const char *shape, *type_name, *show, *device;
static bool no_bench, no_check, fast, json;
static const tn_function *written; /* by the user */

enum { MOST_CHECKED = 16384 }; /* elements of an input */

static int failed(void) {
    fprintf(stderr, "%s\n", tn_last_error());
    return 1;
}

/* ---- sizes ------------------------------------------------------------------------------------------------------- */

/* A call for every contract: packs and dimensions of these sizes; `optional`: all inputs are there. */
typedef struct sizes {
    const char *pack, *pack_with_dims; /* "[4, 33]" */
    int64_t dim, dim_of_many;          /* of contracts with one dimension, and with more */
    bool optional;
} sizes;

static const sizes small = {"[4, 33]", "[4]", 33, 5, false}, other = {"[7]", "[2, 3]", 17, 3, true},
                   large = {"[4096, 2048]", "[4096]", 2048, 64, true};

static void write_sizes(tni_text *text, const tni_contract *c, const sizes *s) {
    for (int32_t i = 0; c->has_lists && i < c->n_inputs; i++) { /* two tensors in each */
        if (c->inputs[i].list) tni_text_add(text, "%s=[%s, [7]] ", c->inputs[i].name, s->pack);
    }
    for (int32_t i = 0; !c->has_lists && i < c->n_packs; i++) {
        tni_text_add(text, "%s=%s ", c->packs[i], c->n_dims ? s->pack_with_dims : s->pack);
    }
    for (int32_t i = 0; i < c->n_dims; i++) {
        tni_text_add(text, "%s=%lld ", c->dims[i], (long long)(c->n_dims > 1 ? s->dim_of_many : s->dim));
    }
    for (int32_t i = 0; s->optional && i < c->n_inputs; i++) {
        if (c->inputs[i].optional && !c->inputs[i].list) tni_text_add(text, "%s ", c->inputs[i].name);
    }
    if (text->length) text->data[--text->length] = 0;
}

/* Is the number at p a size: in brackets, or a dimension's ("n=4096")? */
static bool is_size(const tni_contract *c, const char *p, int depth) {
    if (depth > 0) return true;
    const char *end = p - 1, *name = end;
    if (p == shape || *end != '=') return false;
    while (name > shape && !strchr(" ,", name[-1])) name--;
    for (int32_t i = 0; i < c->n_dims; i++) {
        size_t length = strlen(c->dims[i]);
        if (length == (size_t)(end - name) && strncmp(c->dims[i], name, length) == 0) return true;
    }
    return false;
}

/* What the user says with smaller sizes, at most `most`. Equal ones stay equal. */
static void write_smaller(tni_text *text, const tni_contract *c, int64_t most) {
    int depth = 0;
    for (const char *p = shape; *p;) {
        size_t digits = strspn(p, "0123456789"), length = digits ? digits : 1;
        int64_t n = digits && is_size(c, p, depth) ? strtoll(p, NULL, 10) : 0;
        depth += (*p == '[') - (*p == ']');
        if (n > most) {
            tni_text_add(text, "%lld", (long long)(most - n % 7));
        } else {
            tni_text_add(text, "%.*s", (int)length, p);
        }
        p += length;
    }
}

static int64_t count_elements(const tni_contract *c, const char *args, tn_type T) {
    tni_case *made;
    if (tni_sample_case(c, args, T, &made) != TN_OK) return -1;
    int64_t n = case_elements(made);
    tni_case_free(made);
    return n;
}

/* The check goes over every element many times, so it gets smaller sizes. Where they depend on each other in a way that
 * these do not follow, it gets what the user says. */
static void write_checked(tni_text *text, const tni_contract *c, tn_type T) {
    tni_text_add(text, "%s", shape);
    int64_t n = count_elements(c, shape, T);
    for (int64_t most = 2048; n > MOST_CHECKED && most >= 8; most /= 2) {
        tni_text smaller = {0};
        write_smaller(&smaller, c, most);
        n = smaller.failed ? -1 : count_elements(c, smaller.data, T);
        if (n >= 0) {
            text->length = 0;
            tni_text_add(text, "%s", smaller.data);
        }
        tni_free(smaller.data);
    }
}

/* What it is checked and measured with: as the user says, or two small calls and a large one. The text is in `text`. */
static bool make_samples(const tni_contract *c, tn_type T, tni_text text[3], tn_sample samples[4]) {
    const sizes *const kinds[] = {&small, &other, &large};
    int n = shape ? 2 : 3;
    for (int i = 0; i < n; i++) {
        if (!shape) {
            tni_text_add(&text[i], "%s", "");
            write_sizes(&text[i], c, kinds[i]);
        } else if (i == 0) {
            write_checked(&text[i], c, T);
        } else {
            tni_text_add(&text[i], "%s", shape);
        }
        if (text[i].failed) return false;
        samples[i] = (tn_sample){.args = text[i].data, .bench = i == n - 1};
    }
    samples[n] = (tn_sample){0};
    return true;
}

/* ---- printing ---------------------------------------------------------------------------------------------------- */

static void print_tensor(const char *name, tn_type type, int32_t ndim, const int64_t *dims) {
    printf("%s %s[", name, tn_type_name(type));
    for (int32_t d = 0; d < ndim; d++) printf("%s%lld", d ? ", " : "", (long long)dims[d]);
    printf("]");
}

static void print_shapes(const made_call *k) {
    const tni_contract *c = k->op->contract;
    printf("  ");
    for (int32_t i = 0; i < k->n_in; i++) {
        if (i) printf(", ");
        print_tensor(c->inputs[k->param[i]].name, k->in[i].type, k->in[i].tensor.ndim, k->in[i].shape);
    }
    for (int32_t i = 0; i < k->n_out; i++) {
        printf(i ? ", " : " -> ");
        print_tensor(c->outputs[i].name, k->specs[i].type, k->specs[i].ndim, k->specs[i].shape);
    }
    putchar('\n');
}

static int print_all(const tn_function *op, const made_call *k) {
    const tni_fuse *formula;
    const tn_function *gradient;
    if (tni_operator_formula(op, &formula) != TN_OK) return failed();
    char *text = tni_fuse_print(formula);
    if (!text) return failed();
    printf("%sformula%s\n", style_text(BOLD), style_text(PLAIN));
    print_formula(text);
    tn_free(text);
    heading("shapes");
    print_shapes(k);
    heading("gradient");
    if (tn_fuse_gradient(op, &gradient) == TN_OK) {
        print_formula(gradient->row->formula);
    } else {
        printf("  none: %s\n", tn_last_error());
    }
    return 0;
}

/* ---- for programs ------------------------------------------------------------------------------------------------ */

static void json_tensor(tni_text *text, bool first, const char *name, tn_type type, int32_t ndim, const int64_t *dims) {
    tni_text_add(text, first ? "{\"name\": " : ", {\"name\": ");
    tni_text_json_string(text, name);
    tni_text_add(text, ", \"type\": \"%s\", \"shape\": [", tn_type_name(type));
    for (int32_t d = 0; d < ndim; d++) tni_text_add(text, "%s%lld", d ? ", " : "", (long long)dims[d]);
    tni_text_add(text, "]}");
}

/* The document up to what is checked and measured. */
static int json_all(const tn_function *op, const made_call *k) {
    const tni_contract *c = k->op->contract;
    const tni_fuse *formula;
    const tn_function *gradient;
    tni_text text = {0};
    if (tni_operator_formula(op, &formula) != TN_OK) return failed();
    char *printed = tni_fuse_print(formula);
    if (!printed) return failed();
    tni_text_add(&text, "{\"formula\": ");
    tni_text_json_string(&text, printed);
    tn_free(printed);
    tni_text_add(&text, ",\n \"gradient\": ");
    if (tn_fuse_gradient(op, &gradient) == TN_OK) {
        tni_text_json_string(&text, gradient->row->formula);
    } else {
        tni_text_add(&text, "null");
    }
    tni_text_add(&text, ",\n \"inputs\": [");
    for (int32_t i = 0; i < k->n_in; i++) {
        const array *a = &k->in[i];
        json_tensor(&text, i == 0, c->inputs[k->param[i]].name, a->type, a->tensor.ndim, a->shape);
    }
    tni_text_add(&text, "],\n \"outputs\": [");
    for (int32_t i = 0; i < k->n_out; i++) {
        const tn_spec *s = &k->specs[i];
        json_tensor(&text, i == 0, c->outputs[i].name, s->type, s->ndim, s->shape);
    }
    const int status = text.failed ? failed() : 0;
    if (!status) printf("%s]", text.data);
    tni_free(text.data);
    return status;
}

/* ---- what it is compiled to -------------------------------------------------------------------------------------- */

static tn_status emit(const tni_fuse *formula, made_call *k, const char *backend, tn_device_kind kind) {
    tni_plan *plan;
    tni_program *program;
    char *source;
    TN_TRY(tni_plan_get(k->op, &k->args, false, &plan));
    tn_call planned = tni_plan_call(plan);
    planned.device = (tn_device){kind, 0};
    tn_status status = tni_fuse_emit(formula, &planned, backend, &program, &source);
    if (status == TN_OK) {
        fputs(source, stdout);
        tni_program_free(program);
        tn_free(source);
    }
    tni_plan_release(plan);
    return status;
}

static tn_status show_graph(const tni_fuse *formula) {
    char *text = tni_fuse_print_graph(formula);
    if (!text) return TN_NO_MEMORY;
    fputs(text, stdout);
    tn_free(text);
    return TN_OK;
}

/* The backend that --show names; NULL: none that compiles has this name. */
static const tni_backend *shown_backend(void) {
    for (const tni_backend *const *b = tni_backends(); *b; b++) {
        if ((*b)->emit && strcmp((*b)->name, show) == 0) return *b;
    }
    return NULL;
}

static int show_source(const tn_function *op, made_call *k) {
    const tni_fuse *formula;
    const tni_backend *backend = shown_backend();
    tn_status status = tni_operator_formula(op, &formula);
    if (status == TN_OK) status = backend ? emit(formula, k, backend->name, backend->device) : show_graph(formula);
    return status == TN_OK ? 0 : failed();
}

static int refuse_show(void) {
    char names[200] = "";
    for (const tni_backend *const *b = tni_backends(); *b; b++) {
        const size_t length = strlen(names);
        if ((*b)->emit) snprintf(names + length, sizeof names - length, "%s, ", (*b)->name);
    }
    return usage_error(&verb_fuse, "--show %s: expected %sor graph", show, names);
}

/* ---- speed ------------------------------------------------------------------------------------------------------- */

/* The call of the gradient that follows a call of the formula. */
typedef struct backward_case {
    tni_sample_input inputs[TNI_MAX_ARGS];
    tn_attr attrs[2 * TNI_MAX_ARGS];
    tni_case made;
} backward_case;

static void add_tensor(backward_case *b, int32_t param, tn_type type, int32_t ndim, const int64_t *dims) {
    tni_sample_input *input = &b->inputs[b->made.n_inputs++];
    *input = (tni_sample_input){.input = param, .type = type, .shape = {.ndim = ndim}};
    memcpy(input->shape.d, dims, (size_t)ndim * sizeof *dims);
}

static void add_source(backward_case *b, const made_call *k, const tni_source *s) {
    if (s->kind == TNI_FROM_INPUT) {
        for (int32_t i = 0; i < k->n_in; i++) {
            const array *a = &k->in[i];
            if (k->param[i] == s->ref) add_tensor(b, s->param, a->type, a->tensor.ndim, a->shape);
        }
    } else if (s->kind == TNI_FROM_OUTPUT || s->kind == TNI_FROM_DOUTPUT) {
        const tn_spec *spec = &k->specs[s->ref];
        add_tensor(b, s->param, spec->type, spec->ndim, spec->shape);
    }
}

static void make_backward(backward_case *b, const made_call *k, const tni_statement *statement) {
    const tni_contract *c = statement->op->contract;
    *b = (backward_case){.made = {.inputs = b->inputs, .attrs = b->attrs}};
    for (int32_t param = 0; param < c->n_inputs; param++) { /* in the order of the contract */
        for (int32_t i = 0; i < statement->n_sources; i++) {
            const tni_source *s = &statement->sources[i];
            if (!s->to_attr && s->param == param) add_source(b, k, s);
        }
    }
    for (int32_t i = 0; i < k->args.n_attrs; i++) {
        for (int32_t a = 0; a < c->n_attrs; a++) {
            if (strcmp(c->attrs[a].name, k->attrs[i].name) == 0) b->attrs[b->made.n_attrs++] = k->attrs[i];
        }
    }
    for (int32_t r = 0; r < statement->n_results; r++) {
        bool given = false;
        for (int32_t i = 0; i < k->n_in; i++) given |= k->param[i] == statement->results[r];
        if (given) b->attrs[b->made.n_attrs++] = tn_attr_bool(c->attrs[c->outputs[r].want_attr].name, true);
    }
}

/* The same without fusing. What cannot be taken apart has nothing to be compared with. */
static int compare_apart(const tn_function *op, const tni_case *sample, const made_call *k) {
    apart made;
    tn_device where;
    char text[24];
    if (read_device(device, &where) != TN_OK) return failed();
    if (!time_apart(op, sample, k, where, &made)) return 0;
    if (json) {
        printf(",\n \"unfused\": {\"operations\": %d, \"seconds\": %.9g, \"fused_seconds\": %.9g}",
               (int)made.operations, made.seconds, made.fused);
        return 0;
    }
    printf("unfused: %d operations one after the other take %s, %.1f times as long\n", (int)made.operations,
           bench_time(made.seconds, text), made.seconds / made.fused);
    return 0;
}

static int measure(const tn_function *op, const tni_case *forward, const made_call *k, tn_type T) {
    static backward_case backward;
    const tni_rule *rule;
    const tn_function *ops[2] = {op};
    const tni_case *cases[2] = {forward};
    int n = 1;
    if (tni_operator_rule(op, &rule) == TN_OK && rule) {
        make_backward(&backward, k, &rule->statements[0]);
        ops[n] = rule->statements[0].op;
        cases[n++] = &backward.made;
    }
    const char *const names[] = {"the formula", "its gradient"};
    tni_text rows = {0};
    int status = bench_alone("speed", n, ops, cases, names, T, device, json ? &rows : NULL);
    if (json && !status) printf(",\n \"speed\": [%s]", rows.failed ? "" : rows.data);
    tni_free(rows.data);
    return status ? status : compare_apart(op, forward, k);
}

/* ---- the verb ---------------------------------------------------------------------------------------------------- */

/* Operators want indices in range, or a rank: random inputs would have neither. */
static bool calls_operators(const tn_function *op) {
    const tni_fuse *formula;
    return tni_operator_formula(op, &formula) == TN_OK && formula->steps;
}

static int run_with(const tn_function *op, const tni_case *sample, tn_type T) {
    made_call k;
    if (call_make(&k, op, sample, (call_options){.bare = true, .flags = CALL_ALL}) != TN_OK) return failed();
    int status = show ? show_source(op, &k) : (json ? json_all : print_all)(written, &k);
    const bool begun = json && !status, steps = calls_operators(op);
    if (!status && !show && !json && steps && !(no_check && no_bench))
        printf(
            "\nneither checked nor measured: it calls operators, and what they need of their inputs it does not say\n");
    if (!status && !show && !no_check && !steps) {
        char again[2048]; /* without measuring */
        snprintf(again, sizeof again, "%s%s", command_text(), no_bench ? "" : " --no-bench");
        if (json) {
            printf(",\n \"check\":");
        } else {
            heading("check: values against float64, gradients against central differences");
            if (shape && strcmp(op->row->samples[0].args, shape) != 0) printf("  with %s\n", op->row->samples[0].args);
        }
        status = check_alone(op, T, device, again, json) != 0;
    }
    if (!status && !show && !no_bench && !steps) {
        if (!json) putchar('\n');
        status = measure(op, sample, &k, T);
    }
    if (begun) printf("}\n");
    call_free(&k);
    return status;
}

static int run_samples(const tn_function *op, tn_type T) {
    tni_text text[3] = {{0}};
    tn_sample samples[4];
    tn_function *sampled;
    tni_case *sample;
    tn_op row = *op->row;
    row.samples = samples;
    int status = 1;
    if (!make_samples(op->contract, T, text, samples) || tni_operator_make(&row, &sampled) != TN_OK) {
        failed();
    } else {
        const char *last = samples[shape ? 1 : 2].args;
        if (tni_sample_case(op->contract, last, T, &sample) == TN_OK) {
            status = run_with(sampled, sample, T);
            tni_case_free(sample);
        } else {
            failed();
        }
        /* Its plans and rule would go with it: it stays until the program ends. */
        tni_operator_keep(sampled);
    }
    for (int i = 0; i < 3; i++) tn_free(text[i].data);
    return status;
}

/* Behind the bracket that closes the first one. */
static const char *behind_brackets(const char *text) {
    int open = 0;
    do {
        text += strcspn(text, "()");
        open += *text == '(' ? 1 : -1;
        text++;
    } while (open);
    return text;
}

/* Where every input has a shape of its own, s_x and s_y, a check that changes one would give shapes that do not
 * broadcast: the same formula with one shape for all is checked. */
static tn_status tie_shapes(const tn_function **op, const tn_fuse_options *options) {
    const tni_contract *c = (*op)->contract;
    const tni_fuse *formula;
    tni_text text = {0};
    bool own = c->n_packs > 1 && !c->has_lists;
    for (int32_t i = 0; i < c->n_packs; i++)
        own &= strncmp(c->packs[i], "s_", 2) == 0 && tni_input_named(c, c->packs[i] + 2) >= 0;
    if (!own) return TN_OK;
    TN_TRY(tni_operator_formula(*op, &formula));
    char *printed = tni_fuse_print(formula);
    if (!printed) return TN_NO_MEMORY;
    for (const char *p = printed; *p;) {
        if (strncmp(p, "broadcast(*s_", 13) == 0 || strncmp(p, "rows(*s_", 8) == 0) {
            tni_text_add(&text, *p == 'b' ? "*s" : "rows(*s)");
            p = behind_brackets(p);
        } else if (strncmp(p, "*s_", 3) == 0 && (p[-1] == '[' || p[-1] == '(')) {
            tni_text_add(&text, "*s");
            p += strcspn(p, ",)]");
        } else {
            tni_text_add(&text, "%c", *p++);
        }
    }
    tn_status status = text.failed ? TN_NO_MEMORY : tn_fuse(text.data, options, op);
    tni_free(text.data);
    tn_free(printed);
    return status;
}

static int run(int count, const char *const *rest) {
    const tn_function *op;
    tn_fuse_options options = {.fast = fast};
    tn_type T = type_name ? tn_type_named(type_name) : TN_F32;
    tn_device where;
    if (count == 0) return usage_error(&verb_fuse, "which formula? tenon fuse \"relu(x * s + b)\"");
    if (count > 1) return usage_error(&verb_fuse, "one formula at a time, in quotes; '%s' is another word", rest[1]);
    if (show && json) return usage_error(&verb_fuse, "--show prints source, not JSON: say one of the two");
    if (T == TN_NO_TYPE) return usage_error(&verb_fuse, "there is no type '%s'", type_name);
    if (show && strcmp(show, "graph") != 0 && !shown_backend()) return refuse_show();
    if (read_device(device, &where) != TN_OK) return usage_error(&verb_fuse, "%s", tn_last_error());
    if (tn_fuse(rest[0], &options, &op) != TN_OK) return failed();
    written = op;
    const bool floats = !op->contract->n_types || op->contract->types[0].mask & TN_BIT(TN_F32);
    if (!type_name && !floats) T = TN_I64; /* a formula of integers */
    if (!shape && !show && tie_shapes(&op, &options) != TN_OK) return failed();
    return run_samples(op, T);
}

static const option options_of_fuse[] = {
    {"--shape", "TEXT", "shapes of inputs, and attributes: \"x=[4096, 1024] b=[1024] eps=1e-3 v>0\"", TEXT, &shape},
    {"--type", "f32", "the type T (f32, or i64 of integers)", TEXT, &type_name},
    {"--show", "WHAT", "print what it is compiled to, and nothing else: cuda, c, or the graph of operations", TEXT,
     &show},
    {"--device", "cuda:0", "where to check and measure: cpu (without it), cuda or cuda:N", TEXT, &device},
    {"--fast", NULL, "allow what may change the last bits, and NaN, infinity and -0", FLAG, &fast},
    {"--no-check", NULL, "do not check it", FLAG, &no_check},
    {"--no-bench", NULL, "do not measure it", FLAG, &no_bench},
    {"--json", NULL, "all of it for a program, one document", FLAG, &json},
    {0},
};

const verb verb_fuse = {
    .name = "fuse",
    .summary = "a formula becomes an operator: its contract, shapes and gradient, checked and measured",
    .examples = "tenon fuse \"relu(x * s + b)\"\tinputs broadcast as in NumPy\n"
                "tenon fuse \"silu(x) * y\" --shape \"x=[4096, 11008] y=[4096, 11008]\" --type bf16\n"
                "tenon fuse \"exp(x - logsumexp(x, -1))\" --no-bench\tsoftmax\n"
                "tenon fuse \"log(x)\" --shape \"x=[64, 100] x>0\"\tonly positive numbers\n"
                "tenon fuse \"x * tanh(softplus(x))\" --show cuda\n"
                "tenon fuse \"f(x: T[n, c, *s], b: T[c]) -> y: T[n, c, *s] : relu(x + b)\"\tdimensions by name",
    .text =
        "docs/formulas.md has the language. Errors point at the character. Numbers are drawn at random, so a "
        "formula that is not defined everywhere needs --shape \"x>0\".\n"
        "The check is that of `tenon check --quick`, in the type T and in f64, where gradients are compared with "
        "central differences, with smaller sizes than a large --shape has; the speed is that of `tenon bench`, and is "
        "compared with the operations one after the other.",
    .options = options_of_fuse,
    .takes_text = true,
    .run = run,
};
