/* tenon ops: the table, and one operator in full. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "core/host/device.h"
#include "core/table/table.h"
#include "data.h"
#include "fuse/lang/language.h"

static bool json;

static void print_list(void) {
    int widest = 0;
    for (int i = 0; i < tn_function_count(); i++) {
        int n = (int)strlen(tn_function_name(tn_function_at(i)));
        if (n > widest) widest = n;
    }
    for (int i = 0; i < tn_function_count(); i++) {
        const tn_function *op = tn_function_at(i);
        printf("%s%-*s%s  ", style_text(BOLD), widest, tn_function_name(op), style_text(PLAIN));
        print_wrapped(op->row->doc, widest + 2, widest + 2);
    }
}

static int print_json(const tn_function *op) {
    char *text = op ? tn_function_json(op) : tn_table_json();
    if (!text) {
        fprintf(stderr, "tenon ops: %s\n", tn_last_error());
        return 1;
    }
    puts(text);
    tn_free(text);
    return 0;
}

void heading(const char *text) {
    printf("\n%s%s%s\n", style_text(BOLD), text, style_text(PLAIN));
}

/* One parameter to a line, where it does not fit on one. */
void print_signature(const char *text) {
    if ((int)strlen(text) + 2 <= terminal_width()) {
        printf("  %s\n", text);
        return;
    }
    int depth = 0;
    bool outputs = false;
    printf("  ");
    for (const char *p = text; *p; p++) {
        depth += (*p == '(' || *p == '[') - (*p == ')' || *p == ']');
        bool list = depth == 1 && !outputs;
        if (strncmp(p, " -> ", 4) == 0 && depth == 0) {
            outputs = true;
            printf("\n    -> ");
            p += 3;
        } else if (strncmp(p, " where ", 7) == 0 && depth == 0) {
            printf("\n    where ");
            p += 6;
        } else if (*p == '(' && list) {
            printf("(\n      ");
        } else if (*p == ',' && list) {
            printf(",\n      ");
            p += p[1] == ' ';
        } else if (*p == ',' && outputs && depth == 0) {
            printf(",\n       ");
        } else {
            putchar(*p);
        }
    }
    putchar('\n');
}

void print_formula(const char *text) {
    int32_t end = tni_signature_end(text);
    const char *p = text;
    if (end > 0) {
        size_t length = (size_t)end;
        while (length > 0 && text[length - 1] == ' ') length--;
        char *signature = strndup(text, length);
        if (signature) print_signature(signature);
        free(signature);
        p = text + end + 1;
    }
    const char *indent = end > 0 ? "    " : "  ";
    while (*p) {
        p += strspn(p, "; \t\r\n");
        size_t n = strcspn(p, ";\n");
        if (n) printf("%s%.*s\n", indent, (int)n, p);
        p += n;
    }
}

static void print_types(uint32_t types) {
    bool any = false;
    for (int t = 1; t < TN_TYPE_COUNT; t++) {
        if (types & TN_BIT(t)) {
            printf("%s%s", any ? " " : "", tn_type_name((tn_type)t));
            any = true;
        }
    }
    if (!any) printf("every type of the contract");
}

static void print_kernels(const tn_function *op) {
    heading("kernels, best first");
    for (const tn_kernel *k = op->row->kernels; k->name; k++) {
        const tni_device_ops *device = tni_device_of((int32_t)k->device);
        bool here = !(k->isa & ~(device->isa ? device->isa() : 0));
        printf("  %s%-12s%s %-5s ", style_text(here ? BOLD : DIM), k->name, style_text(PLAIN), device->name);
        print_types(k->types);
        printf("%s%s%s\n", k->flags & TN_STRIDED ? ", any strides" : "", k->accepts ? ", some calls" : "",
               here ? "" : ", not on this machine");
    }
}

/* 33554432 bytes as "33.6 MB". */
static void print_amount(double amount, const char *unit) {
    static const char *const prefixes[] = {"", "k", "M", "G", "T"};
    int i = 0;
    for (; amount >= 1000 && i < 4; i++) amount /= 1000;
    printf(", %.3g %s%s", amount, prefixes[i], unit);
}

/* Which kernel a sample's call takes here, and what it costs. */
static void print_sample(const tn_function *op, const tn_sample *s, int index) {
    tni_case *made;
    printf("  %2d  ", index);
    if (tni_sample_case(op->contract, s->args, tni_sample_type(op->contract), &made) != TN_OK) {
        printf("%s: %s\n", s->args, tn_last_error());
        return;
    }
    const char *kernel = "none";
    tn_cost cost = {0, 0};
    made_call k;
    bool known = call_make(&k, op, made, (call_options){.bare = true}) == TN_OK &&
                 tn_explain(op, &k.args, &kernel, &cost) == TN_OK;
    printf("%-48s  %s%s", s->args, style_text(DIM), s->bench ? "(bench) " : "");
    if (known) {
        printf("%s", kernel);
        print_amount(cost.bytes, "B");
        if (cost.flops > 0) print_amount(cost.flops, "flop");
    }
    printf("%s\n", style_text(PLAIN));
    call_free(&k);
    tni_case_free(made);
}

/* Of a formula, the formula that was derived. */
static void print_gradient(const tn_function *op) {
    const tni_rule *rule;
    if (op->row->grad) {
        printf("  %s\n", op->row->grad);
    } else if (tni_operator_rule(op, &rule) == TN_OK && rule) {
        print_formula(rule->statements[0].op->row->formula);
    } else {
        printf("  none: differentiating raises\n");
    }
}

static int print_operator(const tn_function *op) {
    char *signature = tni_contract_print(op->contract);
    if (!signature) {
        fprintf(stderr, "tenon ops: %s\n", tn_last_error());
        return 1;
    }
    printf("%s%s%s\n  ", style_text(BOLD), tn_function_name(op), style_text(PLAIN));
    print_wrapped(op->row->doc, 2, 2);
    heading("contract");
    print_signature(signature);
    tn_free(signature);
    if (op->row->formula) {
        heading("formula");
        print_formula(op->row->formula);
    }
    heading("gradient");
    print_gradient(op);
    if (op->row->autocast) printf("\n%sautocast%s  %s\n", style_text(BOLD), style_text(PLAIN), op->row->autocast);
    print_kernels(op);
    heading("samples, the kernel that each takes here, what it must move and do");
    for (int i = 0; op->row->samples && op->row->samples[i].args; i++) print_sample(op, &op->row->samples[i], i);
    return 0;
}

static int run(int count, const char *const *rest) {
    if (count > 1) return usage_error(&verb_ops, "one operator at a time, not '%s' too", rest[1]);
    if (count == 0 && json) return print_json(NULL);
    if (count == 0) {
        print_list();
        return 0;
    }
    const tn_function *op = tn_find(rest[0]);
    if (!op) {
        fprintf(stderr, "tenon ops: %s\n", tn_last_error());
        return EXIT_USAGE;
    }
    return json ? print_json(op) : print_operator(op);
}

static const option options[] = {
    {"--json", NULL, "the parsed contracts, for programs", FLAG, &json},
    {0},
};

const verb verb_ops = {
    .name = "ops",
    .summary = "what operators there are, and what each one promises",
    .examples = "tenon ops\tevery operator, a line each\n"
                "tenon ops layer_norm\tits contract, gradient, kernels, samples and cost\n"
                "tenon ops --json\tthe whole table for a program\n"
                "tenon ops my_op --load ./my_op.so\tone of your own",
    .options = options,
    .run = run,
};
