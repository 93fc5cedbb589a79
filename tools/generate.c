/* Writes tenon/ops.h and ops.c from the table: one typed function per operator for C and C++ programs.
 *     tenon_generate OPS.H OPS.C */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "core/table/table.h"

static const char *upper(const char *name) {
    static char text[128];
    size_t i = 0;
    for (; name[i] && i + 1 < sizeof text; i++) text[i] = (char)toupper((unsigned char)name[i]);
    text[i] = '\0';
    return text;
}

static bool is_optional(const tni_attr *a) {
    return a->optional && !a->has_default;
}

/* ---- attributes: a struct, and a macro with the defaults --------------------------------------------------------- */

static const char *c_type(tni_attr_kind kind) {
    switch (kind) {
    case TNI_A_INT:
    case TNI_A_AXIS: return "int64_t ";
    case TNI_A_FLOAT: return "double ";
    case TNI_A_BOOL: return "bool ";
    case TNI_A_DTYPE: return "tn_type ";
    case TNI_A_STR:
    case TNI_A_CHOICE:
    case TNI_A_ACTIVATION: return "const char *";
    case TNI_A_AXES:
    case TNI_A_INTS: return "const int64_t *";
    }
    return "int64_t ";
}

static bool is_ints(const tni_attr *a) {
    return a->kind == TNI_A_AXES || a->kind == TNI_A_INTS;
}

/* Attributes that a caller sets: want_<output> follows from the outputs that are given. */
static int32_t written_attrs(const tni_contract *c) {
    int32_t n = 0;
    while (n < c->n_attrs && !c->attrs[n].implied) n++;
    return n;
}

static void print_attrs_struct(FILE *f, const tni_contract *c) {
    fprintf(f, "typedef struct tn_%s_attrs {\n", c->name);
    for (int32_t i = 0; i < written_attrs(c); i++) {
        const tni_attr *a = &c->attrs[i];
        if (is_optional(a)) fprintf(f, "    bool has_%s; /* false: %s is not given */\n", a->name, a->name);
        fprintf(f, "    %s%s;", c_type(a->kind), a->name);
        if (a->kind == TNI_A_CHOICE) {
            fprintf(f, " /*");
            for (int32_t k = 0; k < a->n_choices; k++) fprintf(f, "%s \"%s\"", k ? "," : "", a->choices[k]);
            fprintf(f, " */");
        }
        if (!a->has_default && !a->optional) fprintf(f, " /* required */");
        fprintf(f, "\n");
        if (is_ints(a)) fprintf(f, "    int32_t n_%s;\n", a->name);
    }
    fprintf(f, "} tn_%s_attrs;\n", c->name);
}

static void print_default(FILE *f, const tni_attr *a) {
    const tn_value *v = &a->value;
    if (is_optional(a)) fprintf(f, "false, ");
    if (is_ints(a)) {
        fprintf(f, "NULL, 0");
    } else if (!a->has_default) {
        bool text = a->kind == TNI_A_STR || a->kind == TNI_A_CHOICE || a->kind == TNI_A_ACTIVATION;
        fprintf(f, "%s", text ? "NULL" : a->kind == TNI_A_DTYPE ? "TN_NO_TYPE" : "0");
    } else if (v->kind == TN_ATTR_FLOAT) {
        tni_text number = {0};
        tni_text_double(&number, v->f);
        fprintf(f, "%s", number.data);
        tn_free(number.data);
    } else if (v->kind == TN_ATTR_BOOL) {
        fprintf(f, v->b ? "true" : "false");
    } else if (v->kind == TN_ATTR_STR) {
        fprintf(f, "\"%s\"", v->s);
    } else if (v->kind == TN_ATTR_TYPE) {
        fprintf(f, "TN_%s", upper(tn_type_name(v->type)));
    } else {
        fprintf(f, "%lld", (long long)v->i);
    }
}

/* A list of integers as a default needs memory that stays: an array of the library. */
static void print_default_ints(FILE *f, const tni_contract *c, const tni_attr *a) {
    fprintf(f, "tn_%s_%s, %d", c->name, a->name, a->value.count);
}

static void print_defaults(FILE *f, const tni_contract *c) {
    for (int32_t i = 0; i < written_attrs(c); i++) {
        const tni_attr *a = &c->attrs[i];
        if (is_ints(a) && a->has_default && a->value.count > 0) {
            fprintf(f, "TN_API extern const int64_t tn_%s_%s[%d];\n", c->name, a->name, a->value.count);
        }
    }
    fprintf(f, "#define TN_%s_ATTRS \\\n    { ", upper(c->name));
    for (int32_t i = 0; i < written_attrs(c); i++) {
        const tni_attr *a = &c->attrs[i];
        if (i) fprintf(f, ", ");
        if (is_ints(a) && a->has_default && a->value.count > 0) {
            print_default_ints(f, c, a);
        } else {
            print_default(f, a);
        }
    }
    fprintf(f, " }\n");
}

/* ---- the function ------------------------------------------------------------------------------------------------ */

static void print_prototype(FILE *f, const tni_contract *c) {
    const char *comma = "";
    fprintf(f, "tn_status tn_%s(", c->name);
    for (int32_t i = 0; i < c->n_inputs; i++) {
        const tni_param *p = &c->inputs[i];
        if (p->list) {
            fprintf(f, "%sconst tn_tensor *const *%s, int32_t n_%s", comma, p->name, p->name);
        } else {
            fprintf(f, "%s%stn_tensor *%s", comma, p->inplace ? "" : "const ", p->name);
        }
        comma = ",\n    ";
    }
    if (written_attrs(c)) {
        fprintf(f, "%sconst tn_%s_attrs *attrs", comma, c->name);
        comma = ",\n    ";
    }
    for (int32_t i = 0; i < c->n_outputs; i++) {
        fprintf(f, "%stn_tensor *%s", comma, c->outputs[i].name);
        comma = ",\n    ";
    }
    fprintf(f, ")");
}

/* Breaks at spaces, so that a line of the comment stays readable. */
static void print_wrapped(FILE *f, const char *text, const char *indent) {
    enum { WIDTH = 110 };
    while (*text) {
        size_t n = strlen(text);
        if (n > WIDTH) {
            n = WIDTH;
            while (n > 0 && text[n] != ' ') n--;
            if (n == 0) n = strcspn(text, " ");
        }
        fprintf(f, "%s%.*s\n", indent, (int)n, text);
        text += n;
        while (*text == ' ') text++;
    }
}

static void print_doc(FILE *f, const tn_function *op) {
    char *signature = tni_contract_print(op->contract);
    fprintf(f, "\n/*\n");
    print_wrapped(f, op->row->doc, " * ");
    print_wrapped(f, signature ? signature : op->row->signature, " *     ");
    fprintf(f, " */\n");
    tn_free(signature);
}

static void print_body(FILE *f, const tni_contract *c) {
    int32_t attrs = written_attrs(c);
    fprintf(f, "{\n    static _Atomic(const tn_function *) found;\n");
    if (c->has_lists) {
        fprintf(f, "    return call_lists(&found, \"%s\", (const int32_t[]){", c->name);
        for (int32_t i = 0; i < c->n_inputs; i++) {
            const tni_param *p = &c->inputs[i];
            fprintf(f, "%s%s%s%s", i ? ", " : "", p->list ? "n_" : "", p->name, p->list ? "" : " != NULL");
        }
        fprintf(f, "}, (const tn_tensor *const *const[]){");
        for (int32_t i = 0; i < c->n_inputs; i++) {
            fprintf(f, "%s%s%s", i ? ", " : "", c->inputs[i].list ? "" : "&", c->inputs[i].name);
        }
        fprintf(f, "}, %d, ", c->n_inputs);
    } else {
        fprintf(f, "    return call(&found, \"%s\", (const tn_tensor *const[]){", c->name);
        for (int32_t i = 0; i < c->n_inputs; i++) fprintf(f, "%s%s", i ? ", " : "", c->inputs[i].name);
        fprintf(f, "}, %d, ", c->n_inputs);
    }
    if (attrs) {
        fprintf(f, "attrs ? (const tn_attr[]){");
        for (int32_t i = 0; i < attrs; i++) {
            const tni_attr *a = &c->attrs[i];
            static const char *const field[] = {
                [TNI_A_INT] = "INT, .i",        [TNI_A_AXIS] = "INT, .i",      [TNI_A_FLOAT] = "FLOAT, .f",
                [TNI_A_BOOL] = "BOOL, .b",      [TNI_A_STR] = "STR, .s",       [TNI_A_CHOICE] = "STR, .s",
                [TNI_A_ACTIVATION] = "STR, .s", [TNI_A_DTYPE] = "TYPE, .type", [TNI_A_AXES] = "INTS, .ints",
                [TNI_A_INTS] = "INTS, .ints"};
            fprintf(f, "%s{NULL, {.kind = ", i ? ", " : "");
            if (is_optional(a)) fprintf(f, "!attrs->has_%s ? TN_ATTR_UNSET : ", a->name);
            fprintf(f, "TN_ATTR_%s = attrs->%s", field[a->kind], a->name);
            if (is_ints(a)) fprintf(f, ", .count = attrs->n_%s", a->name);
            fprintf(f, "}}");
        }
        fprintf(f, "} : NULL, attrs ? %d : 0, ", attrs);
    } else {
        fprintf(f, "NULL, 0, ");
    }
    fprintf(f, "(tn_tensor *const[]){");
    for (int32_t i = 0; i < c->n_outputs; i++) fprintf(f, "%s%s", i ? ", " : "", c->outputs[i].name);
    fprintf(f, "}, %d);\n}\n", c->n_outputs);
}

/* ---- the files --------------------------------------------------------------------------------------------------- */

static void print_header(FILE *f) {
    fprintf(f, "/* One typed function per operator, made from the table. Do not edit.\n"
               " * Inputs come first, then attributes (NULL: the defaults), then outputs. NULL for an optional input "
               "leaves it\n"
               " * out, NULL for an output means that it is not wanted.\n"
               " *     tn_softmax_attrs attrs = TN_SOFTMAX_ATTRS;\n"
               " *     attrs.axis = 0;\n"
               " *     tn_status status = tn_softmax(&x, NULL, &attrs, &y);\n"
               " */\n"
               "#ifndef TENON_OPS_H\n#define TENON_OPS_H\n\n#include <tenon/call.h>\n\n"
               "#ifdef __cplusplus\nextern \"C\" {\n#endif\n");
    for (int i = 0; i < tn_function_count(); i++) {
        const tn_function *op = tn_function_at(i);
        print_doc(f, op);
        if (written_attrs(op->contract)) {
            print_attrs_struct(f, op->contract);
            print_defaults(f, op->contract);
        }
        fprintf(f, "TN_API ");
        print_prototype(f, op->contract);
        fprintf(f, ";\n");
    }
    fprintf(f, "\n#ifdef __cplusplus\n}\n#endif\n#endif\n");
}

static const char helpers[] =
    "/* The functions of tenon/ops.h, made from the table. Do not edit. */\n"
    "#include <stdatomic.h>\n#include <string.h>\n\n#include <tenon.h>\n\n"
    "#include \"core/host/memory.h\"\n#include \"core/table/table.h\"\n\n"
    "typedef _Atomic(const tn_function *) slot;\n\n"
    "static const tn_function *look_up(slot *found, const char *name) {\n"
    "    const tn_function *op = atomic_load_explicit(found, memory_order_acquire);\n"
    "    if (op) return op;\n"
    "    op = tn_find(name);\n"
    "    if (op) atomic_store_explicit(found, op, memory_order_release);\n"
    "    return op;\n"
    "}\n\n"
    "static inline tn_status call(slot *found, const char *name, const tn_tensor *const *in, int32_t n_in,\n"
    "                             const tn_attr *attrs, int32_t n_attrs, tn_tensor *const *out, int32_t n_out) {\n"
    "    const tn_function *op = look_up(found, name);\n"
    "    if (!op) return TN_NOT_FOUND;\n"
    "    tn_args args = {.in = in, .n_in = n_in, .attrs = attrs, .n_attrs = n_attrs, .out = out, .n_out = n_out};\n"
    "    return tn_run(op, &args, NULL);\n"
    "}\n";

static const char list_helper[] =
    "\nenum { ON_STACK = 512 }; /* tensors of a call with lists before memory is asked for */\n\n"
    "static tn_status count_tensors(const tn_function *op, const int32_t *lengths,\n"
    "                               const tn_tensor *const *const *lists, int32_t n_lists, int32_t *count) {\n"
    "    int64_t n = 0;\n"
    "    for (int32_t i = 0; i < n_lists; i++) {\n"
    "        if (lengths[i] < 0 || (lengths[i] > 0 && !lists[i])) {\n"
    "            return tn_fail(TN_BAD_VALUE, \"%s: the list %s is NULL or has a negative length (%d)\",\n"
    "                           op->contract->name, op->contract->inputs[i].name, lengths[i]);\n"
    "        }\n"
    "        n += lengths[i];\n"
    "    }\n"
    "    if (n > INT32_MAX) return tn_fail(TN_BAD_VALUE, \"%s: too many tensors\", op->contract->name);\n"
    "    *count = (int32_t)n;\n"
    "    return TN_OK;\n"
    "}\n\n"
    "static tn_status call_lists(slot *found, const char *name, const int32_t *lengths,\n"
    "                            const tn_tensor *const *const *lists, int32_t n_lists, const tn_attr *attrs,\n"
    "                            int32_t n_attrs, tn_tensor *const *out, int32_t n_out) {\n"
    "    const tn_tensor *on_stack[ON_STACK], **in = on_stack;\n"
    "    const tn_function *op = look_up(found, name);\n"
    "    int32_t n = 0, at = 0;\n"
    "    if (!op) return TN_NOT_FOUND;\n"
    "    TN_TRY(count_tensors(op, lengths, lists, n_lists, &n));\n"
    "    if (n > ON_STACK) in = tni_malloc((size_t)n * sizeof *in);\n"
    "    if (!in) return TN_NO_MEMORY;\n"
    "    for (int32_t i = 0; i < n_lists; at += lengths[i++]) {\n"
    "        if (lengths[i]) memcpy(in + at, lists[i], (size_t)lengths[i] * sizeof *in);\n"
    "    }\n"
    "    tn_args args = {.in = in, .n_in = n, .lengths = lengths, .attrs = attrs, .n_attrs = n_attrs, .out = out,\n"
    "                    .n_out = n_out};\n"
    "    tn_status status = tn_run(op, &args, NULL);\n"
    "    if (in != on_stack) tni_free(in);\n"
    "    return status;\n"
    "}\n";

static void print_source(FILE *f) {
    bool lists = false;
    for (int i = 0; i < tn_function_count(); i++) lists |= tn_function_at(i)->contract->has_lists;
    fprintf(f, "%s%s", helpers, lists ? list_helper : "");
    for (int i = 0; i < tn_function_count(); i++) {
        const tni_contract *c = tn_function_at(i)->contract;
        for (int32_t a = 0; a < written_attrs(c); a++) {
            const tni_attr *attr = &c->attrs[a];
            if (!is_ints(attr) || !attr->has_default || attr->value.count == 0) continue;
            fprintf(f, "\nconst int64_t tn_%s_%s[%d] = {", c->name, attr->name, attr->value.count);
            for (int32_t k = 0; k < attr->value.count; k++) {
                fprintf(f, "%s%lld", k ? ", " : "", (long long)attr->value.ints[k]);
            }
            fprintf(f, "};\n");
        }
        fprintf(f, "\n");
        print_prototype(f, c);
        fprintf(f, " ");
        print_body(f, c);
    }
}

static int write_file(const char *path, void (*print)(FILE *)) {
    FILE *f = fopen(path, "w");
    if (!f) {
        perror(path);
        return 1;
    }
    print(f);
    return fclose(f) != 0;
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: tenon_generate OPS.H OPS.C\n");
        return 2;
    }
    if (tn_function_count() == 0) {
        fprintf(stderr, "the operator table cannot be read: %s\n", tn_last_error());
        return 1;
    }
    /* A wrong gradient rule stops the build, not the first user who differentiates. */
    for (int i = 0; i < tn_function_count(); i++) {
        const tni_rule *rule;
        if (tni_operator_rule(tn_function_at(i), &rule) == TN_OK) continue;
        fprintf(stderr, "%s\n", tn_last_error());
        return 1;
    }
    return write_file(argv[1], print_header) || write_file(argv[2], print_source);
}
