/* The gradient of a scan, whatever its step f(s, x): a scan from the other side, which is linear.
 *
 *     s[i] = f(s[i - 1], x[i])      D[i] = df/ds, E[i] = df/dx, where each is computed: from s[i - 1] and x[i]
 *     G[i] = dy[i] + c[i + 1]       what arrives at s[i]
 *     c[i] = D[i] G[i]              what arrives at s[i - 1]; c[n] is what arrives at the last s, c[0] at the first one
 *     dx[i] = E[i] G[i]
 *
 * What arrives at s[i - 1] itself, the result `before`, is added to c[i]. D and E come from the gradient of the step,
 * which is a formula as any other; so the second gradient is made of the same pieces. */
#include <string.h>

#include "core/contract/parts.h"
#include "fuse/lang/language.h"
#include "gradient.h"

typedef struct differ {
    tni_graph *g;
    const tni_scanning *how;
    tni_scan_call call;
    int32_t node, dy, before;
    int32_t slope[TNI_SCAN_VALUES + 1]; /* D, then E of each value; -1: it is 0 */
} differ;

static int32_t output_of(const differ *d, int32_t output) {
    tni_scan_call call = d->call;
    call.output = output;
    return tni_scan_node(d->g, d->how, &call);
}

/* The value that an input of the step's gradient has here. */
static int32_t leaf(const differ *d, const tni_fuse *step, int32_t ref) {
    if (ref >= step->contract->n_inputs) return tni_const(d->g, TNI_TY_WEAK_FLOAT, 1); /* what arrives at the step */
    if (ref == 0) return d->before;
    char name[TNI_MAX_NAME + 1];
    const char *names = d->call.names;
    int32_t k = 0;
    while (tni_scan_next_name(&names, name) && strcmp(name, step->contract->inputs[ref].name) != 0) k++;
    return d->call.values[k];
}

/* The graph of the step's gradient, node by node over what the scan is given. */
static void bring_in(differ *d, const tni_gradient *of, int32_t *map) {
    for (int32_t i = 0; i < of->g.n; i++) {
        const tni_gnode *n = &of->g.nodes[i];
        int32_t arg[3] = {-1, -1, -1};
        for (int k = 0; k < 3 && n->arg[k] >= 0; k++) arg[k] = map[n->arg[k]];
        map[i] = n->op == TNI_P_INPUT   ? leaf(d, of->f, n->ref)
                 : n->op == TNI_P_CONST ? tni_const(d->g, n->type, n->value)
                                        : tni_node3(d->g, (tni_prim)n->op, (int)n->kind, arg[0], arg[1], arg[2]);
    }
}

static tn_status set_slopes(differ *d, const tni_fuse *step) {
    tni_gradient *of = tni_calloc(1, sizeof *of);
    if (!of) return TN_NO_MEMORY;
    of->f = step;
    tn_status status = tni_differentiate(of);
    int32_t *map = status == TN_OK ? tni_malloc(((size_t)of->g.n + 1) * sizeof *map) : NULL;
    if (status == TN_OK && !map) status = TN_NO_MEMORY;
    if (status == TN_OK) bring_in(d, of, map);
    for (int32_t k = 0; k <= d->call.n; k++) d->slope[k] = -1;
    for (int32_t i = 0; i < step->contract->n_inputs && status == TN_OK; i++) {
        if (of->result[i] < 0) continue;
        char name[TNI_MAX_NAME + 1];
        const char *names = d->call.names;
        int32_t k = 0;
        for (; i > 0 && tni_scan_next_name(&names, name); k++) {
            if (strcmp(name, step->contract->inputs[i].name) == 0) break;
        }
        d->slope[i > 0 ? 1 + k : 0] = map[of->result[i]];
    }
    tni_free(map);
    tni_graph_clear(&of->g);
    tni_free(of);
    return status == TN_OK ? d->g->status : status;
}

/* In all dimensions of the scan. */
static int32_t whole(const differ *d, int32_t node) {
    return tni_node2(d->g, TNI_P_EXPAND, node, d->call.values[0]);
}

/* c: its result `output`. A D that is one number stands in the step. */
static int32_t carried(const differ *d, int32_t output) {
    const int32_t slope = d->slope[0], kind = d->call.output;
    const tni_gnode *by = &d->g->nodes[slope];
    const bool number = by->op == TNI_P_CONST, one = number && by->value == 1;
    tni_text text = {0}, names = {0};
    tni_scan_call c = {.start = -1, .axis = d->call.axis, .reverse = !d->call.reverse, .output = output};
    c.along = d->call.along;
    c.start = kind == TNI_SCAN_LAST ? d->dy : -1;
    tni_text_add(&names, kind == TNI_SCAN_LAST ? "-" : "g");
    c.values[c.n++] = kind == TNI_SCAN_LAST ? d->call.values[0] : d->dy;
    if (!number) {
        tni_text_add(&names, " d");
        c.values[c.n++] = tni_scan_typed(d->g, slope);
    }
    if (number && !one) tni_text_double(&text, by->value);
    if (!number) tni_text_add(&text, "d");
    if (!one) tni_text_add(&text, " * ");
    tni_text_add(&text, kind == TNI_SCAN_Y ? "(s + g)" : kind == TNI_SCAN_BEFORE ? "s + g" : "s");
    int32_t made = -1;
    if (text.failed || names.failed) {
        d->g->status = TN_NO_MEMORY;
    } else {
        c.step = text.data;
        c.names = names.data;
        made = tni_scan_node(d->g, d->how, &c);
    }
    tni_free(text.data);
    tni_free(names.data);
    return made;
}

/* G */
static int32_t arriving(const differ *d) {
    const int32_t slope = d->slope[0], kind = d->call.output;
    if (slope < 0 && kind == TNI_SCAN_Y) return d->dy;
    const bool one = slope >= 0 && d->g->nodes[slope].op == TNI_P_CONST && d->g->nodes[slope].value == 1;
    if (one && kind == TNI_SCAN_LAST) return whole(d, d->dy); /* each s becomes the next one, and something more */
    const int32_t c = carried(d, TNI_SCAN_BEFORE);
    return kind == TNI_SCAN_Y ? tni_node2(d->g, TNI_P_ADD, d->dy, c) : c;
}

static tn_status differentiate(differ *d, int32_t *made) {
    const tni_coarse call = d->g->calls[d->g->nodes[d->node].ref];
    tni_fuse *step;
    d->before = output_of(d, TNI_SCAN_BEFORE);
    if (d->before < 0) return d->g->status;
    TN_TRY(tni_scan_step(d->how, d->call.step, d->call.names, "", &step));
    const tn_status status = set_slopes(d, step);
    d->how->free(step);
    TN_TRY(status);
    if (d->slope[0] < 0) d->slope[0] = tni_const(d->g, TNI_TY_WEAK_FLOAT, 0);
    const int32_t g = arriving(d);
    for (int32_t k = 0; k < call.n_args; k++) {
        const int32_t to = call.to[k];
        made[k] = -1;
        if (to == TNI_SCAN_START) {
            made[k] = carried(d, TNI_SCAN_LAST);
        } else if (d->slope[1 + to] >= 0) {
            made[k] = tni_node2(d->g, TNI_P_MUL, g, d->slope[1 + to]);
        }
    }
    return d->g->status;
}

tn_status tni_scan_gradient(tni_graph *g, const tni_scanning *how, int32_t node, int32_t dy,
                            int32_t made[static TNI_NODE_ARGS]) {
    differ d = {.g = g, .how = how, .node = node, .dy = dy};
    tn_status status = tni_scan_of(g, node, &d.call);
    if (status == TN_OK) status = differentiate(&d, made);
    tni_scan_free(&d.call);
    return status;
}
