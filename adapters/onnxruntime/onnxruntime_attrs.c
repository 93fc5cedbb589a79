/* Attributes of a node, for kernels and while shapes are inferred; errors. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tenon/fuse.h>

#include "core/contract/parts.h"
#include "core/table/table.h"
#include "onnxruntime.h"

static const char *const fuse_name = "Fuse";

const char *tni_ort_name(const variant *v) {
    return v->op ? v->op->contract->name : fuse_name;
}

/* ---- errors ------------------------------------------------------------------------------------------------------ */

OrtStatus *tni_ort_status(const ort_api *api, tn_status status) {
    if (status == TN_OK) return NULL;
    bool argument = status == TN_BAD_VALUE || status == TN_BAD_TYPE || status == TN_BAD_SHAPE;
    return api->CreateStatus(argument                   ? ORT_INVALID_ARGUMENT
                             : status == TN_UNSUPPORTED ? ORT_NOT_IMPLEMENTED
                                                        : ORT_FAIL,
                             tn_last_error());
}

tn_status tni_ort_failed(const ort_api *api, const char *who, OrtStatus *failed) {
    if (!failed) return TN_OK;
    tn_fail(TN_SYSTEM, "%s: ONNX Runtime says: %s", who, api->GetErrorMessage(failed));
    api->ReleaseStatus(failed);
    return TN_SYSTEM;
}

bool tni_ort_good(const ort_api *api, OrtStatus *failed) {
    if (failed) api->ReleaseStatus(failed);
    return !failed;
}

/* ---- attributes of a node ---------------------------------------------------------------------------------------- */

typedef enum found { FOUND, ABSENT, OTHER_KIND } found;

static found judge(const ort_api *api, OrtStatus *failed) {
    if (!failed) return FOUND;
    bool absent = strstr(api->GetErrorMessage(failed), "No attribute") != NULL;
    api->ReleaseStatus(failed);
    return absent ? ABSENT : OTHER_KIND;
}

static const ort_attr *inferred(const source *s, const char *name) {
    const ort_attr *attr = NULL;
    return tni_ort_good(s->api, s->api->ShapeInferContext_GetAttribute(s->inference, name, &attr)) ? attr : NULL;
}

static found get_inferred(const source *s, const char *name, int type, void *data, size_t bytes, size_t *size) {
    const ort_attr *attr = inferred(s, name);
    if (!attr) return ABSENT;
    return tni_ort_good(s->api, s->api->ReadOpAttr(attr, type, data, bytes, size)) ? FOUND : OTHER_KIND;
}

static found get_int(const source *s, const char *name, int64_t *value) {
    size_t size;
    if (!s->info) return get_inferred(s, name, ATTR_INT, value, sizeof *value, &size);
    return judge(s->api, s->api->KernelInfoGetAttribute_int64(s->info, name, value));
}

/* ONNX stores 32 bits: what is meant is the shortest decimal that rounds to them, 1e-5 and not 9.99999975e-06. */
static double widened(float value) {
    char text[32];
    for (int digits = 6; digits < 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtof(text, NULL) == value) return strtod(text, NULL);
    }
    return value;
}

static found get_float(const source *s, const char *name, double *value) {
    size_t size;
    float narrow;
    int64_t whole;
    found f = s->info ? judge(s->api, s->api->KernelInfoGetAttribute_float(s->info, name, &narrow))
                      : get_inferred(s, name, ATTR_FLOAT, &narrow, sizeof narrow, &size);
    if (f == FOUND) *value = widened(narrow);
    if (f != OTHER_KIND) return f;
    f = get_int(s, name, &whole); /* scale=2 */
    if (f == FOUND) *value = (double)whole;
    return f;
}

/* The bytes of a string, NUL behind them, or of integers, in memory that the caller frees; NULL if there is none. */
static found get_bytes(const source *s, const char *name, bool ints, void **data, size_t *size) {
    const ort_api *api = s->api;
    *data = NULL;
    *size = 0;
    if (s->info) {
        found f = judge(api, ints ? api->KernelInfoGetAttributeArray_int64(s->info, name, NULL, size)
                                  : api->KernelInfoGetAttribute_string(s->info, name, NULL, size));
        if (f != FOUND) return f;
    } else {
        const ort_attr *attr = inferred(s, name);
        if (!attr) return ABSENT;
        tni_ort_good(api, api->ReadOpAttr(attr, ints ? ATTR_INTS : ATTR_STRING, NULL, 0, size)); /* says the size */
    }
    if (ints && s->info) *size *= sizeof(int64_t);
    *data = tni_calloc(*size + 1, 1);
    if (!*data) return FOUND;
    if (!s->info) return get_inferred(s, name, ints ? ATTR_INTS : ATTR_STRING, *data, *size + 1, size);
    size_t room = ints ? *size / sizeof(int64_t) : *size;
    return judge(api, ints ? api->KernelInfoGetAttributeArray_int64(s->info, name, *data, &room)
                           : api->KernelInfoGetAttribute_string(s->info, name, *data, &room));
}

void tni_ort_free_form(form *f) {
    tn_fuse_release(f->op); /* of the table: it stays */
    for (int32_t i = 0; i < f->n_memory; i++) tni_free(f->memory[i]);
}

static tn_status other_kind(const char *who, const tni_attr *attr) {
    tni_text text = {0};
    tni_text_add(&text, "%s: %s has another type in this node, needs ", who, attr->name);
    tni_print_attr_kind(&text, attr);
    return tni_fail_text(TN_BAD_TYPE, &text);
}

static tn_status read_text(const source *s, form *f, const char *who, const char *name, found *result, char **text) {
    size_t size;
    void *data;
    *result = get_bytes(s, name, false, &data, &size);
    *text = data;
    if (*result == FOUND && !data) return tn_fail(TN_NO_MEMORY, "%s: no memory for %s", who, name);
    if (data) f->memory[f->n_memory++] = data;
    return TN_OK;
}

static bool is_floats(const source *s, const char *name) {
    size_t size = 0;
    const ort_attr *attr = s->info ? NULL : inferred(s, name);
    if (s->info) tni_ort_good(s->api, s->api->KernelInfoGetAttributeArray_float(s->info, name, NULL, &size));
    if (attr) tni_ort_good(s->api, s->api->ReadOpAttr(attr, ATTR_FLOATS, NULL, 0, &size));
    return size > 0;
}

/* ONNX Runtime reads floats, a single number, or a string, as no integers at all. */
static bool is_other(const source *s, const char *name) {
    double number;
    void *text = NULL;
    size_t size;
    bool single = get_float(s, name, &number) == FOUND || get_bytes(s, name, false, &text, &size) == FOUND;
    tni_free(text);
    return single || is_floats(s, name);
}

static tn_status read_ints(const source *s, form *f, const char *who, const char *name, found *result,
                           const int64_t **ints, size_t *count) {
    void *data;
    *result = get_bytes(s, name, true, &data, count);
    if (*result == FOUND && !*count && is_other(s, name)) *result = OTHER_KIND;
    *count /= sizeof **ints;
    *ints = data;
    if (*result == FOUND && !data) return tn_fail(TN_NO_MEMORY, "%s: no memory for %s", who, name);
    if (data) f->memory[f->n_memory++] = data;
    if (*count <= TNI_MAX_INTS) return TN_OK;
    return tn_fail(TN_BAD_VALUE, "%s: %s has %zu elements; it may have %d", who, name, *count, TNI_MAX_INTS);
}

static tn_status read_attr(const source *s, form *f, const tni_attr *attr, tn_value *value) {
    const char *who = f->op->contract->name;
    found result = ABSENT;
    char *text = NULL;
    size_t count = 0;
    *value = (tn_value){.kind = TN_ATTR_UNSET};
    switch (attr->kind) {
    case TNI_A_INT:
    case TNI_A_AXIS:
        result = get_int(s, attr->name, &value->i);
        if (result == FOUND) value->kind = TN_ATTR_INT;
        break;
    case TNI_A_BOOL: {
        int64_t truth;
        result = get_int(s, attr->name, &truth);
        if (result == FOUND) *value = (tn_value){.kind = TN_ATTR_BOOL, .b = truth != 0};
        break;
    }
    case TNI_A_FLOAT:
        result = get_float(s, attr->name, &value->f);
        if (result == FOUND) value->kind = TN_ATTR_FLOAT;
        break;
    case TNI_A_AXES:
    case TNI_A_INTS:
        TN_TRY(read_ints(s, f, who, attr->name, &result, &value->ints, &count));
        if (result == FOUND) value->kind = TN_ATTR_INTS;
        value->count = (int32_t)count;
        break;
    case TNI_A_DTYPE:
        TN_TRY(read_text(s, f, who, attr->name, &result, &text));
        if (result == FOUND) *value = (tn_value){.kind = TN_ATTR_TYPE, .type = tn_type_named(text)};
        if (result == FOUND && value->type == TN_NO_TYPE) {
            return tn_fail(TN_BAD_VALUE, "%s: %s is '%s', which is no type", who, attr->name, text);
        }
        break;
    case TNI_A_STR:
    case TNI_A_CHOICE:
    case TNI_A_ACTIVATION:
        TN_TRY(read_text(s, f, who, attr->name, &result, &text));
        if (result == FOUND) *value = (tn_value){.kind = TN_ATTR_STR, .s = text};
        break;
    }
    return result == OTHER_KIND ? other_kind(who, attr) : TN_OK;
}

static int32_t count_lists(const tni_contract *c) {
    int32_t n = 0;
    for (int32_t i = 0; i < c->n_inputs; i++) n += c->inputs[i].list;
    return n;
}

static tn_status read_lengths(const source *s, form *f) {
    const tni_contract *c = f->op->contract;
    int32_t lists = count_lists(c);
    const int64_t *lengths = NULL;
    size_t count = 0, k = 0;
    found result = ABSENT;
    if (lists > 1) {
        TN_TRY(read_ints(s, f, c->name, "lengths", &result, &lengths, &count));
        if (result != FOUND || count != (size_t)lists) {
            return tn_fail(TN_BAD_VALUE, "%s: needs the attribute lengths, %d ints: how many tensors each list has",
                           c->name, lists);
        }
    }
    for (int32_t i = 0; i < c->n_inputs; i++) {
        f->lengths[i] = c->inputs[i].list ? -1 : 1;
        if (!c->inputs[i].list || !lengths) continue;
        if (lengths[k] < 0 || lengths[k] > INT16_MAX) {
            return tn_fail(TN_BAD_VALUE, "%s: lengths has %lld for %s, needs 0 to %d", c->name, (long long)lengths[k],
                           c->inputs[i].name, INT16_MAX);
        }
        f->lengths[i] = (int32_t)lengths[k++];
    }
    return TN_OK;
}

/* Variadic inputs are all there: a formula's node says by `lengths` which of its inputs it leaves out. */
static tn_status read_present(const source *s, form *f) {
    const tni_contract *c = f->op->contract;
    const int64_t *lengths = NULL;
    size_t count = 0;
    found result = ABSENT;
    TN_TRY(read_ints(s, f, c->name, "lengths", &result, &lengths, &count));
    if (result == OTHER_KIND || (result == FOUND && count != (size_t)c->n_inputs)) {
        return tn_fail(TN_BAD_VALUE, "%s: lengths must be %d ints: 1 for each input that the node has, 0 for others",
                       c->name, c->n_inputs);
    }
    for (int32_t i = 0; i < c->n_inputs; i++) {
        f->lengths[i] = result != FOUND || lengths[i] != 0;
        if (result == FOUND && lengths[i] != 1 && (lengths[i] != 0 || !c->inputs[i].optional)) {
            return tn_fail(TN_BAD_VALUE, "%s: lengths has %lld for %s, needs %s", c->name, (long long)lengths[i],
                           c->inputs[i].name, c->inputs[i].optional ? "0 or 1" : "1");
        }
    }
    return TN_OK;
}

static tn_status read_formula(const source *s, form *f) {
    found result;
    char *formula, *attributes;
    int64_t fast = 0;
    TN_TRY(read_text(s, f, fuse_name, "formula", &result, &formula));
    if (result != FOUND) return tn_fail(TN_BAD_VALUE, "%s: needs the attribute formula, a string", fuse_name);
    if (get_int(s, "fast", &fast) == OTHER_KIND) return tn_fail(TN_BAD_TYPE, "%s: fast must be an int", fuse_name);
    tn_fuse_options options = {.fast = fast != 0};
    TN_TRY(tn_fuse(formula, &options, &f->op));
    if (f->op->contract->has_lists) {
        return tn_fail(TN_UNSUPPORTED, "%s: %s takes lists of tensors; a formula for ONNX Runtime takes single ones",
                       fuse_name, f->op->contract->name);
    }
    for (int32_t i = 0; i < f->op->contract->n_attrs; i++) f->attrs[i] = (tn_attr){0};
    TN_TRY(read_text(s, f, fuse_name, "attributes", &result, &attributes));
    if (result == OTHER_KIND) return tn_fail(TN_BAD_TYPE, "%s: attributes must be a string", fuse_name);
    if (result != FOUND) return TN_OK;
    int32_t n = 0;
    tn_status status = tni_attrs_parse(f->op->contract, attributes, f->attrs, f->memory + f->n_memory, &n);
    f->n_memory += n;
    return status;
}

/* What people call attributes, here and elsewhere. ONNX Runtime does not tell which attributes a node has, but says of
 * a name whether there is one: these are asked for, so that axis=0 for axes is no node with the default.
 * tenon.onnxruntime.check of Python sees all names. */
static const char *const spellings[] = {
    "act",      "activation", "alpha",           "approximate", "axes",          "axis",
    "beta",     "causal",     "delta",           "dim",         "dims",          "dtype",
    "eps",      "epsilon",    "exponent",        "gamma",       "high",          "ignore_index",
    "keepdim",  "keepdims",   "label_smoothing", "low",         "max",           "min",
    "momentum", "mode",       "negative_slope",  "p",           "ratio",         "reduction",
    "rounding", "scale",      "slope",           "to",          "zero_centered",
};

static bool has_attr(const tni_contract *c, const char *name) {
    for (int32_t i = 0; i < c->n_attrs; i++) {
        if (!strcmp(c->attrs[i].name, name)) return true;
    }
    return false;
}

static tn_status refuse_unknown(const source *s, const tni_contract *c) {
    for (size_t i = 0; s->info && i < sizeof spellings / sizeof *spellings; i++) {
        int64_t number;
        if (has_attr(c, spellings[i]) || get_int(s, spellings[i], &number) == ABSENT) continue;
        tni_text text = {0};
        tni_text_add(&text, "%s: has no attribute '%s', which this node has; it has", c->name, spellings[i]);
        const char *before = " ";
        for (int32_t k = 0; k < c->n_attrs; k++) {
            if (c->attrs[k].implied) continue;
            tni_text_add(&text, "%s%s", before, c->attrs[k].name);
            before = ", ";
        }
        if (*before == ' ') tni_text_add(&text, " none");
        return tni_fail_text(TN_BAD_VALUE, &text);
    }
    return TN_OK;
}

tn_status tni_ort_read_form(const source *s, const variant *v, form *f) {
    f->op = v->op;
    f->n_memory = 0;
    if (!v->op) {
        TN_TRY(read_formula(s, f));
        return read_present(s, f);
    }
    const tni_contract *c = v->op->contract;
    TN_TRY(refuse_unknown(s, c));
    for (int32_t i = 0; i < c->n_attrs; i++) {
        f->attrs[i] = (tn_attr){0};
        if (!c->attrs[i].implied) TN_TRY(read_attr(s, f, &c->attrs[i], &f->attrs[i].value));
    }
    return read_lengths(s, f);
}
