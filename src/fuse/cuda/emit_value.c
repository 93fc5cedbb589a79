/* Values and operations as CUDA C: one expression each. */
#include <math.h>
#include <string.h>

#include "gpu.h"

const char *tni_emit_lane(int lane) {
    static const char *const names[] = {"u8", "i64", "f32", "f64"};
    return names[lane];
}

const char *tni_emit_memory(tn_type type) {
    switch (type) {
    case TN_F16: return "f16";
    case TN_BF16: return "bf16";
    case TN_F32: return "f32";
    case TN_F64: return "f64";
    case TN_I8: return "i8";
    case TN_I16: return "i16";
    case TN_I32: return "i32";
    case TN_I64: return "i64";
    case TN_U16: return "u16";
    case TN_U32: return "u32";
    default: return "u8";
    }
}

static int lane_of(const tni_planner *p, int32_t node) {
    return tni_lane_of(p->g, p->g->nodes[node].type);
}

static void print_constant(tni_text *text, int lane, double value) {
    if (lane == TNI_LANE_BOOL || lane == TNI_LANE_INT) {
        tni_text_add(text, "%lldLL", (long long)value);
    } else if (isnan(value) || isinf(value)) {
        tni_text_add(text, "%s<%s>()",
                     isnan(value) ? "not_a_number"
                     : value < 0  ? "-infinity"
                                  : "infinity",
                     tni_emit_lane(lane));
    } else {
        tni_text_add(text, "(%s)", tni_emit_lane(lane));
        tni_text_hex(text, value);
    }
}

/* The value of a node in a lane. */
void tni_emit_value(tni_text *text, const tni_planner *p, int32_t node, int lane) {
    node = tni_resolve(p->b, node);
    if (p->g->nodes[node].op == TNI_P_CONST && p->g->nodes[node].ref >= 0) { /* a count: behind the sizes */
        tni_text_add(text, "(%s)z[%d]", tni_emit_lane(lane), (int)(p->pass->n_dims + 1 + p->g->nodes[node].ref));
        return;
    }
    if (p->g->nodes[node].op == TNI_P_CONST) {
        print_constant(text, lane, p->g->nodes[node].value);
        return;
    }
    int own = lane_of(p, node);
    bool whole = own >= TNI_LANE_F32 && lane == TNI_LANE_INT, truth = lane == TNI_LANE_BOOL && own != lane;
    tni_text_add(text,
                 truth         ? "(t%d != 0)"
                 : whole       ? "tn_whole(t%d)"
                 : own == lane ? "t%d"
                               : "(%2$s)t%1$d",
                 (int)node, tni_emit_lane(lane));
}

/* What memory of a type holds of a value: what a cast to it gives. */
static const char *rounding(tn_type type) {
    switch (type) {
    case TN_F16: return "rounded<f16>((f32)%s)";
    case TN_BF16: return "rounded<bf16>((f32)%s)";
    case TN_I8: return "(i8)%s";
    case TN_I16: return "(i16)%s";
    case TN_I32: return "(i32)%s";
    case TN_U8: return "(u8)%s";
    case TN_U16: return "(u16)%s";
    case TN_U32: return "(u32)%s";
    default: return "%s";
    }
}

void tni_emit_cast(tni_text *text, const tni_planner *p, int32_t node) {
    tni_text value = {0};
    tni_emit_value(&value, p, p->g->nodes[node].arg[0], lane_of(p, node));
    text->failed |= value.failed;
    if (!value.failed) {
        const char *form = rounding((tn_type)p->g->nodes[node].kind), *place = strstr(form, "%s");
        tni_text_add(text, "%.*s%s%s", (int)(place - form), form, value.data, place + 2);
    }
    tni_free(value.data);
}

/* The primitive's CUDA form with the values of these nodes, in this lane. */
static void print_form(tni_text *text, const tni_planner *p, int op, const int32_t *of, int lane) {
    bool wraps = lane == TNI_LANE_INT && tni_prims[op].wraps;
    if (wraps) tni_text_add(text, "(i64)(");
    for (const char *s = tni_prims[op].cuda; *s; s++) {
        if (*s != '$') {
            tni_text_add(text, "%c", *s);
            continue;
        }
        int k = *++s - 'a';
        if (wraps) tni_text_add(text, "(u64)");
        tni_emit_value(text, p, of[k], op == TNI_P_WHERE && k == 0 ? TNI_LANE_BOOL : lane);
    }
    if (wraps) tni_text_add(text, ")");
}

void tni_emit_operation(tni_text *text, const tni_planner *p, int32_t node) {
    const tni_gnode *n = &p->g->nodes[node];
    bool test = tni_prims[n->op].typing == TNI_TYPED_TEST;
    print_form(text, p, n->op, n->arg, test ? tni_lane_of_test(p->g, n) : lane_of(p, node));
}

void tni_emit_form(tni_text *text, const tni_planner *p, const tni_form *form, int lane) {
    print_form(text, p, form->op, form->of, lane);
}
