/* Attributes of a call: names, kinds, defaults, axes. */
#include <stdio.h>
#include <string.h>

#include "parts.h"

int32_t tni_attr_named(const tni_contract *contract, const char *name) {
    for (int i = 0; i < contract->n_attrs; i++) {
        if (strcmp(contract->attrs[i].name, name) == 0) return i;
    }
    return -1;
}

static int32_t param_named(const tni_param *params, int32_t count, const char *name) {
    for (int i = 0; i < count; i++) {
        if (strcmp(params[i].name, name) == 0) return i;
    }
    return -1;
}

int32_t tni_input_named(const tni_contract *contract, const char *name) {
    return param_named(contract->inputs, contract->n_inputs, name);
}

int32_t tni_output_named(const tni_contract *contract, const char *name) {
    return param_named(contract->outputs, contract->n_outputs, name);
}

static const char *nearest(const tni_contract *contract, const char *name) {
    size_t length = strlen(name);
    int least = length < 3 ? 2 : 3; /* farther than this is another word */
    const char *near = NULL;
    for (int i = 0; i < contract->n_attrs; i++) {
        int distance = tni_edit_distance(name, contract->attrs[i].name, least);
        if (distance < least) {
            least = distance;
            near = contract->attrs[i].name;
        }
    }
    return near;
}

tn_status tni_attr_unknown(const tni_contract *c, const char *name) {
    if (tni_input_named(c, name) >= 0) {
        return tn_fail(TN_BAD_VALUE, "%s: %s is a tensor, not an attribute", c->name, name);
    }
    const char *near = nearest(c, name);
    if (near) {
        return tn_fail(TN_BAD_VALUE, "%s: there is no attribute '%.100s'; did you mean '%s'?", c->name, name, near);
    }
    tni_text text = {0};
    tni_text_add(&text, "%s: there is no attribute '%.100s'; there %s", c->name, name, c->n_attrs ? "is " : "are none");
    for (int i = 0; i < c->n_attrs; i++) tni_text_add(&text, "%s%s", i ? ", " : "", c->attrs[i].name);
    return tni_fail_text(TN_BAD_VALUE, &text);
}

/* ---- one value --------------------------------------------------------------------------------------------------- */

static void print_choices(tni_text *text, const tni_attr *attr) {
    for (int i = 0; i < attr->n_choices; i++) {
        tni_text_add(text, "%s'%s'", i == 0 ? "" : i < attr->n_choices - 1 ? ", " : " or ", attr->choices[i]);
    }
}

void tni_print_attr_kind(tni_text *text, const tni_attr *attr) {
    static const char *const names[] = {[TNI_A_INT] = "an int",   [TNI_A_FLOAT] = "a float",
                                        [TNI_A_BOOL] = "a bool",  [TNI_A_STR] = "a str",
                                        [TNI_A_DTYPE] = "a type", [TNI_A_AXIS] = "an int",
                                        [TNI_A_AXES] = "ints",    [TNI_A_INTS] = "ints",
                                        [TNI_A_CHOICE] = "",      [TNI_A_ACTIVATION] = "the name of an activation"};
    tni_text_add(text, "%s", names[attr->kind]);
    if (attr->kind == TNI_A_CHOICE) print_choices(text, attr);
}

static const char *given_name(int kind) {
    static const char *const names[] = {
        [TN_ATTR_UNSET] = "nothing", [TN_ATTR_INT] = "an int",  [TN_ATTR_FLOAT] = "a float", [TN_ATTR_BOOL] = "a bool",
        [TN_ATTR_STR] = "a str",     [TN_ATTR_TYPE] = "a type", [TN_ATTR_INTS] = "ints"};
    return kind >= 0 && kind <= TN_ATTR_INTS ? names[kind] : "something else";
}

static tn_status wrong_kind(const char *who, const tni_attr *attr, const tn_value *given) {
    tni_text text = {0};
    tni_text_add(&text, "%s: %s needs ", who, attr->name);
    tni_print_attr_kind(&text, attr);
    tni_text_add(&text, ", not %s", given_name(given->kind));
    return tni_fail_text(TN_BAD_TYPE, &text);
}

static tn_status accept_choice(const char *who, const tni_attr *attr, const char *given, tn_value *value) {
    for (int i = 0; i < attr->n_choices; i++) {
        if (strcmp(attr->choices[i], given) == 0) {
            value->s = attr->choices[i];
            value->choice = (int16_t)i;
            return TN_OK;
        }
    }
    tni_text text = {0};
    tni_text_add(&text, "%s: %s is '%.100s', needs ", who, attr->name, given);
    print_choices(&text, attr);
    return tni_fail_text(TN_BAD_VALUE, &text);
}

const tni_activations *tni_known_activations;

void tni_set_activations(const tni_activations *activations) {
    tni_known_activations = activations;
}

int16_t tni_activation_choice(const char *name) {
    if (strcmp(name, "none") == 0) return TNI_ACT_NONE;
    if (strcmp(name, "relu") == 0) return TNI_ACT_RELU;
    return tni_known_activations ? tni_known_activations->choice(name) : -1;
}

static tn_status accept_activation(const char *who, const tni_attr *attr, const char *given, tn_value *value) {
    value->choice = tni_activation_choice(given);
    if (value->choice >= 0) return TN_OK;
    const char *near = tni_known_activations ? tni_known_activations->nearest(given) : NULL;
    return tn_fail(TN_BAD_VALUE,
                   "%s: %s is '%.100s', needs 'none' or the name of an operator that is a formula of one "
                   "tensor, such as 'relu' or 'gelu'%s%s%s",
                   who, attr->name, given, near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

static tn_status accept_ints(const char *who, const tni_attr *attr, const tn_value *given) {
    if (given->kind == TN_ATTR_INT) return TN_OK;
    if (given->count < 0 || (given->count > 0 && !given->ints)) {
        return tn_fail(TN_BAD_VALUE, "%s: %s has no elements behind its count of %d", who, attr->name, given->count);
    }
    if (given->count > TNI_MAX_INTS) {
        return tn_fail(TN_BAD_VALUE, "%s: %s has %d elements; %d is the most", who, attr->name, given->count,
                       TNI_MAX_INTS);
    }
    if (attr->length >= 0 && given->count != attr->length) {
        return tn_fail(TN_BAD_VALUE, "%s: %s has %d elements, needs %d", who, attr->name, given->count, attr->length);
    }
    return TN_OK;
}

tn_status tni_attr_accept(const char *who, const tni_attr *attr, const tn_value *given, tn_value *value) {
    static const int16_t kinds[] = {
        [TNI_A_INT] = TN_ATTR_INT,       [TNI_A_FLOAT] = TN_ATTR_FLOAT, [TNI_A_BOOL] = TN_ATTR_BOOL,
        [TNI_A_STR] = TN_ATTR_STR,       [TNI_A_DTYPE] = TN_ATTR_TYPE,  [TNI_A_AXIS] = TN_ATTR_INT,
        [TNI_A_AXES] = TN_ATTR_INTS,     [TNI_A_INTS] = TN_ATTR_INTS,   [TNI_A_CHOICE] = TN_ATTR_STR,
        [TNI_A_ACTIVATION] = TN_ATTR_STR};
    int16_t need = kinds[attr->kind];
    bool integer = given->kind == TN_ATTR_INT &&
                   (need == TN_ATTR_FLOAT || need == TN_ATTR_INTS); /* 2 for 2.0, 1 for [1] */
    if (given->kind != need && !integer) return wrong_kind(who, attr, given);
    *value = *given;
    value->choice = 0;
    if (need == TN_ATTR_FLOAT && given->kind == TN_ATTR_INT)
        *value = (tn_value){.kind = TN_ATTR_FLOAT, .f = (double)given->i};
    if (need == TN_ATTR_INTS) return accept_ints(who, attr, given);
    if (need == TN_ATTR_TYPE && (given->type <= TN_NO_TYPE || given->type >= TN_TYPE_COUNT)) {
        return tn_fail(TN_BAD_VALUE, "%s: %s is not a type: %d", who, attr->name, (int)given->type);
    }
    if (need == TN_ATTR_STR && !given->s) return tn_fail(TN_BAD_VALUE, "%s: %s is a NULL string", who, attr->name);
    if (attr->kind == TNI_A_CHOICE) return accept_choice(who, attr, given->s, value);
    return attr->kind == TNI_A_ACTIVATION ? accept_activation(who, attr, given->s, value) : TN_OK;
}

/* ---- all of a call ----------------------------------------------------------------------------------------------- */

/* Ints move into the bound call; a single int becomes a list, for ints[n] one of n. */
static void own_ints(const tni_attr *attr, tn_value *value, int64_t *ints) {
    if (value->kind == TN_ATTR_INT) {
        int32_t count = attr->length > 0 ? attr->length : 1;
        for (int i = 0; i < count; i++) ints[i] = value->i;
        *value = (tn_value){.kind = TN_ATTR_INTS, .count = count};
    } else if (value->count > 0) {
        memcpy(ints, value->ints, (size_t)value->count * sizeof *ints);
    }
    value->ints = ints;
}

static bool has_ints(const tni_attr *attr) {
    return attr->kind == TNI_A_AXES || attr->kind == TNI_A_INTS;
}

static tn_status bind_attr(const tni_contract *c, const tn_attr *given, tni_bound *bound) {
    if (!given->name) return tn_fail(TN_BAD_VALUE, "%s: an attribute has no name", c->name);
    int32_t i = tni_attr_named(c, given->name);
    if (i < 0) return tni_attr_unknown(c, given->name);
    if (bound->attrs[i].kind != TN_ATTR_UNSET)
        return tn_fail(TN_BAD_VALUE, "%s: %s is given twice", c->name, given->name);
    TN_TRY(tni_attr_accept(c->name, &c->attrs[i], &given->value, &bound->attrs[i]));
    if (has_ints(&c->attrs[i])) own_ints(&c->attrs[i], &bound->attrs[i], bound->ints[i]);
    return TN_OK;
}

tn_status tni_bind_attrs(const tni_contract *c, const tn_attr *attrs, int32_t n_attrs, tni_bound *bound) {
    for (int i = 0; i < c->n_attrs; i++) bound->attrs[i] = (tn_value){.kind = TN_ATTR_UNSET};
    for (int i = 0; i < n_attrs; i++) {
        if (attrs[i].value.kind != TN_ATTR_UNSET) TN_TRY(bind_attr(c, &attrs[i], bound));
    }
    for (int i = 0; i < c->n_attrs; i++) {
        const tni_attr *attr = &c->attrs[i];
        if (bound->attrs[i].kind != TN_ATTR_UNSET || attr->optional) continue;
        if (!attr->has_default) {
            tni_text text = {0};
            tni_text_add(&text, "%s: %s is missing; it needs ", c->name, attr->name);
            tni_print_attr_kind(&text, attr);
            return tni_fail_text(TN_BAD_VALUE, &text);
        }
        bound->attrs[i] = attr->value;
        if (attr->kind == TNI_A_ACTIVATION) TN_TRY(tni_attr_accept(c->name, attr, &attr->value, &bound->attrs[i]));
        if (has_ints(attr)) own_ints(attr, &bound->attrs[i], bound->ints[i]);
    }
    return TN_OK;
}

/* ---- axes -------------------------------------------------------------------------------------------------------- */

static tn_status bind_axis(const tni_contract *c, const tni_attr *attr, int32_t rank, const char *whose,
                           int64_t *axis) {
    if (rank == 0) return tn_fail(TN_BAD_SHAPE, "%s: %s has rank 0, needs at least 1", c->name, whose);
    if (*axis < -rank || *axis >= rank) {
        return tn_fail(TN_BAD_VALUE, "%s: %s %s %lld, %s has rank %d (%d … %d)", c->name, attr->name,
                       attr->kind == TNI_A_AXIS ? "is" : "has", (long long)*axis, whose, rank, -rank, rank - 1);
    }
    if (*axis < 0) *axis += rank;
    return TN_OK;
}

tn_status tni_bind_axes(const tni_contract *contract, int32_t attr, int32_t rank, const char *whose, tni_bound *bound) {
    const tni_attr *a = &contract->attrs[attr];
    tn_value *value = &bound->attrs[attr];
    if (rank < 0 || value->kind == TN_ATTR_UNSET) return TN_OK;
    if (a->kind == TNI_A_AXIS) return bind_axis(contract, a, rank, whose, &value->i);
    int64_t *axes = bound->ints[attr];
    bool seen[TNI_MAX_INTS] = {0}; /* the rank may be the length of an attribute, not checked as a shape yet */
    for (int i = 0; i < value->count; i++) {
        TN_TRY(bind_axis(contract, a, rank, whose, &axes[i]));
        if (seen[axes[i]]) {
            return tn_fail(TN_BAD_VALUE, "%s: %s names dimension %d of %s twice", contract->name, a->name, (int)axes[i],
                           whose);
        }
        seen[axes[i]] = true;
    }
    bool all = value->count == 0;
    value->count = 0;
    for (int i = 0; i < rank; i++) { /* sorted */
        if (all || seen[i]) axes[value->count++] = i;
    }
    return TN_OK;
}
