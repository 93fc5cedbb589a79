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

/* Attributes of a released operator only ever become more, and a new one comes last: struct members are found by their
 * place. Here are the operators that have got some since the first release of this SONAME, and how many they had then.
 * Of a struct of zeros no more than those may be looked at, since that of an old program ends there. */
static const struct {
    const char *name;
    int32_t n_attrs;
} grown[] = {{NULL, 0}};

static int32_t first_attrs(const tni_contract *c) {
    for (int i = 0; grown[i].name; i++) {
        if (strcmp(grown[i].name, c->name) == 0) return grown[i].n_attrs;
    }
    return written_attrs(c);
}

/* Each member has 8 bytes of its own, so that there is no padding which a later member could fall into. */
static void print_attrs_struct(FILE *f, const tni_contract *c) {
    fprintf(f, "typedef struct tn_%s_attrs {\n    size_t size;\n", c->name);
    for (int32_t i = 0; i < written_attrs(c); i++) {
        const tni_attr *a = &c->attrs[i];
        if (is_optional(a)) fprintf(f, "    TN_WORD bool has_%s; /* false: %s is not given */\n", a->name, a->name);
        fprintf(f, "    TN_WORD %s%s;", c_type(a->kind), a->name);
        if (a->kind == TNI_A_CHOICE) {
            fprintf(f, " /*");
            for (int32_t k = 0; k < a->n_choices; k++) fprintf(f, "%s \"%s\"", k ? "," : "", a->choices[k]);
            fprintf(f, " */");
        }
        if (!a->has_default && !a->optional) fprintf(f, " /* required */");
        fprintf(f, "\n");
        if (is_ints(a)) fprintf(f, "    TN_WORD int32_t n_%s;\n", a->name);
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
    fprintf(f, "#define TN_%s_ATTRS \\\n    { sizeof(tn_%s_attrs)", upper(c->name), c->name);
    for (int32_t i = 0; i < written_attrs(c); i++) {
        const tni_attr *a = &c->attrs[i];
        fprintf(f, ", ");
        if (is_ints(a) && a->has_default && a->value.count > 0) {
            print_default_ints(f, c, a);
        } else {
            print_default(f, a);
        }
    }
    fprintf(f, " }\n");
}

/* ---- the function ------------------------------------------------------------------------------------------------ */

static void print_prototype(FILE *f, const tni_contract *c, bool on) {
    const char *comma = on ? ",\n    " : "";
    fprintf(f, on ? "tn_status tn_%s_on(const tn_host *host" : "tn_status tn_%s(", c->name);
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

/* Where the members of the attributes' struct are, for the reader of them. */
static void print_members(FILE *f, const tni_contract *c) {
    static const char *const kinds[] = {
        [TNI_A_INT] = "INT",   [TNI_A_AXIS] = "INT",   [TNI_A_FLOAT] = "FLOAT",    [TNI_A_BOOL] = "BOOL",
        [TNI_A_STR] = "STR",   [TNI_A_CHOICE] = "STR", [TNI_A_ACTIVATION] = "STR", [TNI_A_DTYPE] = "TYPE",
        [TNI_A_AXES] = "INTS", [TNI_A_INTS] = "INTS"};
    const tni_attr *last = NULL;
    fprintf(f, "\nstatic const member %s_members[] = {\n", c->name);
    for (int32_t i = 0; i < written_attrs(c); i++) {
        const tni_attr *a = &c->attrs[i];
        fprintf(f, "    {TN_ATTR_%s, offsetof(tn_%s_attrs, %s), ", kinds[a->kind], c->name, a->name);
        if (is_optional(a)) fprintf(f, "offsetof(tn_%s_attrs, has_%s), ", c->name, a->name);
        fprintf(f, is_optional(a) ? "" : "0, ");
        if (is_ints(a)) fprintf(f, "offsetof(tn_%s_attrs, n_%s)", c->name, a->name);
        fprintf(f, is_ints(a) ? "},\n" : "0},\n");
        if (i < first_attrs(c)) last = a;
    }
    fprintf(f, "};\nstatic const layout %s_attrs = {\"%s\", %s_members, %d, sizeof(tn_%s_attrs), ", c->name,
            upper(c->name), c->name, written_attrs(c), c->name);
    fprintf(f, "offsetof(tn_%s_attrs, %s%s) + 8};\n", c->name, last && is_ints(last) ? "n_" : "",
            last ? last->name : "size");
}

static void print_body(FILE *f, const tni_contract *c) {
    fprintf(f, "{\n    static _Atomic int found;\n");
    if (c->has_lists) {
        fprintf(f, "    return call_lists(&found, \"%s\", host, (const int32_t[]){", c->name);
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
        fprintf(f, "    return call(&found, \"%s\", host, (const tn_tensor *const[]){", c->name);
        for (int32_t i = 0; i < c->n_inputs; i++) fprintf(f, "%s%s", i ? ", " : "", c->inputs[i].name);
        fprintf(f, "}, %d, ", c->n_inputs);
    }
    if (written_attrs(c)) {
        fprintf(f, "attrs, &%s_attrs, ", c->name);
    } else {
        fprintf(f, "NULL, NULL, ");
    }
    fprintf(f, "(tn_tensor *const[]){");
    for (int32_t i = 0; i < c->n_outputs; i++) fprintf(f, "%s%s", i ? ", " : "", c->outputs[i].name);
    fprintf(f, "}, %d);\n}\n", c->n_outputs);
}

/* On the default host. */
static void print_short_body(FILE *f, const tni_contract *c) {
    fprintf(f, "{\n    return tn_%s_on(NULL", c->name);
    for (int32_t i = 0; i < c->n_inputs; i++) {
        const tni_param *p = &c->inputs[i];
        fprintf(f, p->list ? ", %s, n_%s" : ", %s", p->name, p->name);
    }
    if (written_attrs(c)) fprintf(f, ", attrs");
    for (int32_t i = 0; i < c->n_outputs; i++) fprintf(f, ", %s", c->outputs[i].name);
    fprintf(f, ");\n}\n");
}

/* ---- the files --------------------------------------------------------------------------------------------------- */

static const char introduction[] =
    "/* Two typed functions per operator, made from the table. Do not edit.\n"
    " *\n"
    " * Inputs come first, then attributes, then outputs. NULL for an optional input leaves it out, NULL for an "
    "output\n"
    " * means that it is not wanted. tn_softmax_on is tn_softmax on a host, which is how a stream is chosen; a host "
    "of\n"
    " * NULL is the default one.\n"
    " *     tn_softmax_attrs attrs = TN_SOFTMAX_ATTRS; // the defaults\n"
    " *     attrs.axis = 0;\n"
    " *     tn_status status = tn_softmax(&x, NULL, &attrs, &y);\n"
    " *     tn_host host = tn_stream_host(stream);\n"
    " *     status = tn_softmax_on(&host, &x, NULL, &attrs, &y);\n"
    " *\n"
    " * Attributes: NULL means the defaults, and so does a struct of zeros, {0}. To set some, begin with TN_…_ATTRS, "
    "which\n"
    " * holds every default and, in `size`, how much of the struct the program knows: what a later version of Tenon "
    "adds\n"
    " * takes its default then. A struct with members but without a size is refused, because nobody can tell a member\n"
    " * that was set to 0 from one that was not set.\n"
    " *\n"
    " * All of them are like tn_run (tenon/call.h): they return a status, leave a message, keep no pointer, and may "
    "be\n"
    " * called from many threads at once. The caller owns every tensor.\n"
    " */\n"
    "#ifndef TENON_OPS_H\n#define TENON_OPS_H\n\n#include <tenon/call.h>\n\n"
    "/* Members of attributes: 8 bytes each. */\n"
    "#ifdef __cplusplus\n#define TN_WORD alignas(8)\nextern \"C\" {\n#else\n#define TN_WORD _Alignas(8)\n#endif\n";

static void print_header(FILE *f) {
    fputs(introduction, f);
    for (int i = 0; i < tn_function_count(); i++) {
        const tn_function *op = tn_function_at(i);
        print_doc(f, op);
        if (written_attrs(op->contract)) {
            print_attrs_struct(f, op->contract);
            print_defaults(f, op->contract);
        }
        for (int on = 0; on < 2; on++) {
            fprintf(f, "TN_API ");
            print_prototype(f, op->contract, on);
            fprintf(f, ";\n");
        }
    }
    fprintf(f, "\n#ifdef __cplusplus\n}\n#endif\n#endif\n");
}

static const char helpers[] =
    "/* The functions of tenon/ops.h, made from the table. Do not edit. */\n"
    "#include <stdatomic.h>\n#include <string.h>\n\n#include <tenon.h>\n\n"
    "#include \"core/host/memory.h\"\n#include \"core/run/run.h\"\n#include \"core/table/table.h\"\n\n"
    "/* A member of an attributes' struct; an offset of 0, where the size is, means that there is none. */\n"
    "typedef struct member {\n"
    "    int16_t kind; /* tn_attr_kind */\n"
    "    uint16_t value, has, count;\n"
    "} member;\n\n"
    "typedef struct layout {\n"
    "    const char *name; /* in capitals */\n"
    "    const member *members;\n"
    "    int32_t count;\n"
    "    size_t size, first_size; /* now, and in the first release */\n"
    "} layout;\n\n"
    "/* Rows compiled in keep their places, also when the table is read again. */\n"
    "static const tn_function *look_up(_Atomic int *found, const char *name) {\n"
    "    const int place = atomic_load_explicit(found, memory_order_relaxed);\n"
    "    if (place) return tn_function_at(place - 1);\n"
    "    const tn_function *op = tn_find(name);\n"
    "    if (op) atomic_store_explicit(found, op->index + 1, memory_order_relaxed);\n"
    "    return op;\n"
    "}\n\n"
    "static tn_status check_size(const char *name, const char *attrs, const layout *l, size_t *size) {\n"
    "    memcpy(size, attrs, sizeof *size);\n"
    "    if (*size > l->size) {\n"
    "        return tn_fail(TN_BAD_VALUE,\n"
    "                       \"%s: attrs.size is %zu, but Tenon %s has %zu bytes of attributes: the program was "
    "compiled \"\n"
    "                       \"for a later version, or began without TN_%s_ATTRS\",\n"
    "                       name, *size, tn_version(), l->size, l->name);\n"
    "    }\n"
    "    if (*size % 8 || *size == 8) {\n"
    "        return tn_fail(TN_BAD_VALUE, \"%s: attrs.size is %zu, which no version has; begin with TN_%s_ATTRS\", "
    "name,\n"
    "                       *size, l->name);\n"
    "    }\n"
    "    for (size_t i = sizeof *size; *size == 0 && i < l->first_size; i++) {\n"
    "        if (!attrs[i]) continue;\n"
    "        return tn_fail(TN_BAD_VALUE,\n"
    "                       \"%s: attrs has members but its size is 0, so that a member set to 0 could not be told "
    "from \"\n"
    "                       \"one not set; begin with: tn_%s_attrs attrs = TN_%s_ATTRS;\",\n"
    "                       name, name, l->name);\n"
    "    }\n"
    "    return TN_OK;\n"
    "}\n\n"
    "static tn_value read_member(const char *attrs, const member *m) {\n"
    "    tn_value v = {.kind = m->kind};\n"
    "    const char *at = attrs + m->value;\n"
    "    bool has = true;\n"
    "    if (m->has) memcpy(&has, attrs + m->has, sizeof has);\n"
    "    if (!has) return (tn_value){.kind = TN_ATTR_UNSET};\n"
    "    switch (m->kind) {\n"
    "    case TN_ATTR_INT: memcpy(&v.i, at, sizeof v.i); break;\n"
    "    case TN_ATTR_FLOAT: memcpy(&v.f, at, sizeof v.f); break;\n"
    "    case TN_ATTR_BOOL: memcpy(&v.b, at, sizeof v.b); break;\n"
    "    case TN_ATTR_STR: memcpy(&v.s, at, sizeof v.s); break;\n"
    "    case TN_ATTR_TYPE: memcpy(&v.type, at, sizeof v.type); break;\n"
    "    default: memcpy(&v.ints, at, sizeof v.ints), memcpy(&v.count, attrs + m->count, sizeof v.count);\n"
    "    }\n"
    "    return v;\n"
    "}\n\n"
    "/* By their places, for tni_run. What lies behind the size that the caller knows keeps its default. */\n"
    "static tn_status read_attrs(const char *name, const void *attrs, const layout *l, tn_attr *read, tn_args *args) "
    "{\n"
    "    size_t size;\n"
    "    if (!attrs) return TN_OK;\n"
    "    TN_TRY(check_size(name, attrs, l, &size));\n"
    "    for (int32_t i = 0; i < l->count; i++) {\n"
    "        const member *m = &l->members[i];\n"
    "        if ((m->count ? m->count : m->value) + (size_t)8 > size) break;\n"
    "        read[args->n_attrs++] = (tn_attr){NULL, read_member(attrs, m)};\n"
    "    }\n"
    "    args->attrs = read;\n"
    "    return TN_OK;\n"
    "}\n\n"
    "static tn_status call(_Atomic int *found, const char *name, const tn_host *host, const tn_tensor *const *in,\n"
    "                      int32_t n_in, const void *attrs, const layout *l, tn_tensor *const *out, int32_t n_out) {\n"
    "    const tn_function *op = look_up(found, name);\n"
    "    tn_attr read[TNI_MAX_ARGS];\n"
    "    tn_args args = {.in = in, .n_in = n_in, .out = out, .n_out = n_out};\n"
    "    if (!op) return TN_NOT_FOUND;\n"
    "    TN_TRY(read_attrs(name, attrs, l, read, &args));\n"
    "    return tni_run(op, &args, host);\n"
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
    "static tn_status call_lists(_Atomic int *found, const char *name, const tn_host *host, const int32_t *lengths,\n"
    "                            const tn_tensor *const *const *lists, int32_t n_lists, const void *attrs,\n"
    "                            const layout *l, tn_tensor *const *out, int32_t n_out) {\n"
    "    const tn_tensor *on_stack[ON_STACK], **in = on_stack;\n"
    "    const tn_function *op = look_up(found, name);\n"
    "    tn_attr read[TNI_MAX_ARGS];\n"
    "    tn_args args = {.lengths = lengths, .out = out, .n_out = n_out};\n"
    "    int32_t n = 0, at = 0;\n"
    "    if (!op) return TN_NOT_FOUND;\n"
    "    TN_TRY(read_attrs(name, attrs, l, read, &args));\n"
    "    TN_TRY(count_tensors(op, lengths, lists, n_lists, &n));\n"
    "    if (n > ON_STACK) in = tni_malloc((size_t)n * sizeof *in);\n"
    "    if (!in) return TN_NO_MEMORY;\n"
    "    for (int32_t i = 0; i < n_lists; at += lengths[i++]) {\n"
    "        if (lengths[i]) memcpy(in + at, lists[i], (size_t)lengths[i] * sizeof *in);\n"
    "    }\n"
    "    args.in = in;\n"
    "    args.n_in = n;\n"
    "    tn_status status = tni_run(op, &args, host);\n"
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
        if (written_attrs(c)) print_members(f, c);
        for (int on = 1; on >= 0; on--) {
            fprintf(f, "\n");
            print_prototype(f, c, on);
            fprintf(f, " ");
            (on ? print_body : print_short_body)(f, c);
        }
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
