/* Rows of the table as JSON: the contract, and what the row says beside it. */
#include <string.h>

#include "core/contract/parts.h"
#include "core/host/device.h"
#include "sample.h"
#include "table.h"

static void add_text(tni_text *text, const char *key, const char *value) {
    tni_text_add(text, "\"%s\": ", key);
    if (value) {
        tni_text_json_string(text, value);
    } else {
        tni_text_add(text, "null");
    }
}

static void add_kernels(tni_text *text, const tn_op *row) {
    tni_text_add(text, "\"kernels\": [");
    for (const tn_kernel *k = row->kernels; k && k->name; k++) {
        const tni_device_ops *device = tni_device_of((int32_t)k->device); /* there is one: the table has looked */
        tni_text_add(text, k > row->kernels ? ", {" : "{");
        add_text(text, "name", k->name);
        tni_text_add(text, ", \"device\": \"%s\", \"types\": [", device->name);
        if (k->types) {
            tni_text_add(text, "\"");
            tni_print_mask(text, k->types, "\", \"", "\", \"");
            tni_text_add(text, "\"");
        }
        tni_text_add(text, "]}");
    }
    tni_text_add(text, "]");
}

/* ---- rules ------------------------------------------------------------------------------------------------------- */

static const char *source_name(const tni_contract *c, const tni_rule *rule, const tni_source *source) {
    switch (source->kind) {
    case TNI_FROM_INPUT: return c->inputs[source->ref].name;
    case TNI_FROM_OUTPUT:
    case TNI_FROM_DOUTPUT: return c->outputs[source->ref].name;
    case TNI_FROM_ATTR: return c->attrs[source->ref].name;
    case TNI_FROM_DIM: return c->dims[source->ref];
    case TNI_FROM_PACK: return c->packs[source->ref];
    case TNI_FROM_LOCAL: return rule->locals[source->ref];
    case TNI_FROM_LITERAL: break;
    }
    return NULL;
}

static void add_source(tni_text *text, const tni_contract *c, const tni_rule *rule, const tni_contract *called,
                       const tni_source *source) {
    static const char *const kinds[] = {
        [TNI_FROM_INPUT] = "input", [TNI_FROM_OUTPUT] = "output",  [TNI_FROM_DOUTPUT] = "doutput",
        [TNI_FROM_ATTR] = "attr",   [TNI_FROM_DIM] = "dim",        [TNI_FROM_PACK] = "pack",
        [TNI_FROM_LOCAL] = "local", [TNI_FROM_LITERAL] = "literal"};
    tni_text_add(text, "{");
    add_text(text, "param", source->to_attr ? called->attrs[source->param].name : called->inputs[source->param].name);
    tni_text_add(text, ", ");
    tni_text_add(text, "\"attr\": %s, \"from\": \"%s\", ", source->to_attr ? "true" : "false", kinds[source->kind]);
    if (source->kind == TNI_FROM_LITERAL) {
        tni_text_add(text, "\"value\": ");
        tni_json_value(text, &source->literal);
    } else {
        add_text(text, "name", source_name(c, rule, source));
    }
    tni_text_add(text, "}");
}

static void add_statement(tni_text *text, const tni_contract *c, const tni_rule *rule, const tni_statement *s) {
    const tni_contract *called = s->op->contract;
    tni_text_add(text, "{\"results\": [");
    for (int i = 0; i < s->n_results; i++) {
        const char *name = s->result_is_local ? rule->locals[s->results[i]] : c->inputs[s->results[i]].name;
        tni_text_add(text, "%s\"%s\"", i ? ", " : "", name);
    }
    tni_text_add(text, "], \"local\": %s, \"op\": \"%s\", ", s->result_is_local ? "true" : "false", called->name);
    if (s->op->index < 0) { /* in no table: the formula says what it is */
        add_text(text, "formula", s->op->row->formula);
        tni_text_add(text, ", ");
    }
    tni_text_add(text, "\"args\": [");
    for (int i = 0; i < s->n_sources; i++) {
        if (i) tni_text_add(text, ", ");
        add_source(text, c, rule, called, &s->sources[i]);
    }
    tni_text_add(text, "]}");
}

void tni_rule_json(tni_text *text, const tni_contract *contract, const tni_rule *rule) {
    if (!rule) {
        tni_text_add(text, "null");
        return;
    }
    tni_text_add(text, "{\"stands_in\": %s, \"locals\": [", rule->stands_in ? "true" : "false");
    for (int i = 0; i < rule->n_locals; i++) tni_text_add(text, "%s\"%s\"", i ? ", " : "", rule->locals[i]);
    tni_text_add(text, "], \"differentiable\": [");
    const char *between = "";
    for (int i = 0; i < contract->n_outputs; i++) {
        if (!rule->differentiable[i]) continue;
        tni_text_add(text, "%s\"%s\"", between, contract->outputs[i].name);
        between = ", ";
    }
    tni_text_add(text, "], \"statements\": [");
    for (int i = 0; i < rule->n_statements; i++) {
        if (i) tni_text_add(text, ", ");
        add_statement(text, contract, rule, &rule->statements[i]);
    }
    tni_text_add(text, "]}");
}

/* ---- samples ----------------------------------------------------------------------------------------------------- */

/* The value of `name=` in a sample's arguments, and its length; NULL where it is not said. */
static const char *sample_value(const char *args, const char *name, size_t *length) {
    size_t n = strlen(name);
    for (const char *s = args; *s;) {
        while (*s == ' ') s++;
        int depth = 0;
        size_t end = 0;
        for (bool quoted = false; s[end] && (s[end] != ' ' || depth || quoted); end++) {
            quoted ^= s[end] == '\'';
            depth += (s[end] == '[') - (s[end] == ']');
        }
        if (strncmp(s, name, n) == 0 && s[n] == '=') {
            *length = end - n - 1;
            return s + n + 1;
        }
        s += end;
    }
    return NULL;
}

static void add_sample_types(tni_text *text, const tni_contract *c, const char *args) {
    const char *between = "";
    tni_text_add(text, "\"types\": {");
    for (int i = 0; i < c->n_types; i++) {
        size_t length = 0;
        const char *value = sample_value(args, c->types[i].name, &length);
        if (!value) continue;
        tni_text_add(text, "%s\"%s\": \"%.*s\"", between, c->types[i].name, (int)length, value);
        between = ", ";
    }
    tni_text_add(text, "}");
}

static void add_sample_input(tni_text *text, const tni_contract *c, const tni_sample_input *input) {
    const tni_param *param = &c->inputs[input->input];
    tni_text_add(text, "{");
    add_text(text, "name", param->name);
    tni_text_add(text, ", \"shape\": [");
    for (int i = 0; i < input->shape.ndim; i++) {
        tni_text_add(text, "%s%lld", i ? ", " : "", (long long)input->shape.d[i]);
    }
    tni_text_add(text, "], ");
    tni_json_type(text, c, &param->type);
    if (input->below) {
        tni_text_add(text, ", \"below\": %lld", (long long)input->below);
    } else {
        tni_text_add(text, ", \"below\": null");
    }
    tni_text_add(text, ", \"positive\": %s, ", input->positive ? "true" : "false");
    add_text(text, "order", input->order == TNI_ORDER_NONE ? NULL : tni_order_name(input->order));
    tni_text_add(text, ", \"along\": %d", (int)input->along);
    tni_text_add(text, "}");
}

static tn_status add_sample(tni_text *text, const tni_contract *c, const tn_sample *sample) {
    tni_case *made;
    TN_TRY(tni_sample_case(c, sample->args, tni_sample_type(c), &made));
    tni_text_add(text, "{");
    add_text(text, "text", sample->args);
    tni_text_add(text, ", \"tolerance\": ");
    tni_text_double(text, sample->tolerance);
    tni_text_add(text, ", \"bench\": %s, ", sample->bench ? "true" : "false");
    add_sample_types(text, c, sample->args);
    tni_text_add(text, ", \"inputs\": [");
    for (int i = 0; i < made->n_inputs; i++) {
        if (i) tni_text_add(text, ", ");
        add_sample_input(text, c, &made->inputs[i]);
    }
    tni_text_add(text, "], \"attrs\": {");
    for (int i = 0; i < made->n_attrs; i++) {
        if (i) tni_text_add(text, ", ");
        tni_text_json_string(text, made->attrs[i].name);
        tni_text_add(text, ": ");
        tni_json_value(text, &made->attrs[i].value);
    }
    tni_text_add(text, "}}");
    tni_case_free(made);
    return TN_OK;
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

/* What is derived from a formula is made when it is asked for. */
static tn_status add_gradient(tni_text *text, const tn_function *op) {
    const tni_rule *rule;
    TN_TRY(tni_operator_rule(op, &rule));
    tni_rule_json(text, op->contract, rule);
    return TN_OK;
}

static tn_status add_operator(tni_text *text, const tn_function *op) {
    const tni_contract *c = op->contract;
    char *signature = tni_contract_print(c);
    if (!signature) return TN_NO_MEMORY;
    tni_text_add(text, "{");
    add_text(text, "name", c->name);
    tni_text_add(text, ", ");
    add_text(text, "signature", signature);
    tni_free(signature);
    tni_text_add(text, ", ");
    add_text(text, "doc", op->row->doc);
    tni_text_add(text, ", ");
    add_text(text, "autocast", op->row->autocast);
    tni_text_add(text, ", ");
    add_text(text, "formula", op->row->formula);
    tni_text_add(text, ", ");
    tni_contract_json(text, c);
    tni_text_add(text, ", \"grad\": ");
    if (op->row->formula && !op->row->grad) {
        tni_text_add(text, "\"derived\"");
    } else {
        TN_TRY(add_gradient(text, op));
    }
    tni_text_add(text, ", ");
    add_kernels(text, op->row);
    tni_text_add(text, ", \"samples\": [");
    for (const tn_sample *sample = op->row->samples; sample && sample->args; sample++) {
        if (sample > op->row->samples) tni_text_add(text, ", ");
        TN_TRY(add_sample(text, c, sample));
    }
    tni_text_add(text, "]}");
    return TN_OK;
}

static tn_status no_operator(const char *what) {
    return tn_fail(TN_BAD_VALUE, "%s: the operator is NULL", what);
}

static char *finish(tni_text *text, tn_status status) {
    if (status == TN_OK && !text->failed) return text->data;
    tni_free(text->data);
    return NULL;
}

char *tn_function_json(const tn_function *op) {
    tni_text text = {0};
    return finish(&text, op ? add_operator(&text, op) : no_operator("tn_function_json"));
}

char *tn_gradient_json(const tn_function *op) {
    tni_text text = {0};
    return finish(&text, op ? add_gradient(&text, op) : no_operator("tn_gradient_json"));
}

char *tn_table_json(void) {
    tni_text text = {0};
    tn_status status = TN_OK;
    int count = tn_function_count();
    if (count == 0) return NULL; /* there are rows, so this is a failure, and its message stands */
    tni_text_add(&text, "[");
    for (int i = 0; i < count && status == TN_OK; i++) {
        if (i) tni_text_add(&text, ",\n");
        status = add_operator(&text, tn_function_at(i));
    }
    tni_text_add(&text, "]");
    return finish(&text, status);
}
