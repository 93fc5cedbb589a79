/* Kernels of both forms: how they walk over rows and columns (gpu.h says which form does what). */
#include <string.h>

#include "gpu.h"

/* Each row starts where its kept part does. */
static void begin_row(const tni_gpu_part *part, const char *margin, uint32_t mask, const char *from) {
    for (int32_t i = 0; i < part->offsets; i++) {
        if (part->used[i]) tni_text_add(part->text, "%si64 o%d = b%d;\n", margin, (int)i, (int)i);
    }
    tni_gpu_offsets(part, margin, mask, from);
}

static uint32_t reduced_mask(const tni_gpu_part *part) {
    return ((1u << part->p->pass->n_dims) - 1) & ~part->kept;
}

static void print_slots(const tni_gpu_part *part) {
    if (part->n_slots) tni_text_add(part->text, "    TN_SHARED u64 slots[%d][32];\n", (int)part->n_slots);
}

/* ---- plain ------------------------------------------------------------------------------------------------------- */

/* Loads of U rows, one behind the other. */
static void print_loads(const tni_gpu_part *part) {
    const tni_planner *p = part->p;
    for (int32_t i = 0; i < p->g->n; i++) {
        bool row = part->needed[i] && p->memory_of[i] >= 0 && p->level[i] == TNI_ROW;
        if (tni_gpu_is_leaf(part, i) && !p->fixed[i]) {
            tni_text_add(part->text, "        tn_vec<%s, VL> v%d[U];\n", tni_emit_memory(tni_gpu_type_of(part, i)),
                         (int)p->memory_of[i]);
        } else if (row) {
            tni_text_add(part->text, "        %s x%d[U];\n", tni_emit_memory(tni_gpu_type_of(part, i)), (int)i);
        }
    }
    tni_text_add(part->text,
                 "#pragma unroll\n        for (int u = 0; u < U; u++) {\n"
                 "            const i64 d = d0 + (i64)u * p.down;\n            const bool there = d < past;\n");
    if (part->flat)
        tni_text_add(part->text, "            const i64 c = (d * across + x) * VL;\n"
                                 "            const int n = tn_left(c, length, VL);\n");
    begin_row(part, "            ", reduced_mask(part), "d");
    for (int32_t i = 0; i < p->g->n; i++) {
        if (!tni_gpu_is_leaf(part, i) || p->fixed[i]) continue;
        tni_text_add(part->text, "            v%d[u] = ", (int)p->memory_of[i]);
        tni_gpu_vector(part, i, "o", "there ? n : 0");
        tni_text_add(part->text, ";\n");
    }
    tni_gpu_row_loads(part, "            ", "[u]", "there");
    tni_text_add(part->text, "        }\n");
}

void tni_emit_cuda_plain(tni_gpu_part *part) {
    const tni_planner *p = part->p;
    tni_gpu_begin(part);
    print_slots(part);
    if (!part->flat) {
        tni_text_add(part->text,
                     "    const i64 c = (column * across + x) * VL;\n    const int n = tn_left(c, z[%d], VL);\n",
                     (int)p->pass->n_dims);
    }
    for (int32_t i = 0; i < p->g->n; i++) {
        if (!tni_gpu_is_leaf(part, i) || !p->fixed[i]) continue;
        tni_text_add(part->text, "    const tn_vec<%s, VL> v%d = ", tni_emit_memory(tni_gpu_type_of(part, i)),
                     (int)p->memory_of[i]);
        tni_gpu_vector(part, i, "b", "n");
        tni_text_add(part->text, ";\n");
    }
    tni_text_add(part->text, "    for (i64 d0 = y < p.down ? first + y : past; d0 < past; d0 += U * p.down) {\n");
    print_loads(part);
    tni_text_add(part->text, "#pragma unroll\n        for (int u = 0; u < U; u++) {\n"
                             "            const i64 d = d0 + (i64)u * p.down;\n            if (d >= past) continue;\n");
    if (part->flat)
        tni_text_add(part->text, "            const i64 c = (d * across + x) * VL;\n"
                                 "            const int n = tn_left(c, length, VL);\n");
    begin_row(part, "            ", reduced_mask(part), "d");
    for (int32_t stage = 0; stage < p->n_stages; stage++) tni_gpu_row_nodes(part, "            ", stage);
    tni_gpu_row_results(part, "            ", 0,
                        part->flat ? "piece == 0 && d == 0 && x == 0" : "column == 0 && x == 0");
    memcpy(part->taken, part->needed, sizeof part->taken);
    tni_gpu_random(part, "            ");
    tni_gpu_elements(part, "            ", 0, "[u]");
    tni_text_add(part->text, "        }\n    }\n");
    tni_gpu_end(part);
}

/* What updates rows' and single values that other blocks read as well: a kernel of its own behind. */
void tni_emit_cuda_tail(tni_gpu_part *part) {
    const tni_planner *p = part->p;
    tni_gpu_begin(part);
    tni_text_add(part->text, "    const i64 d = first + tid;\n    const int u = 0;\n    if (d >= past) return;\n");
    for (int32_t i = 0; i < p->g->n; i++) {
        bool row = part->needed[i] && p->memory_of[i] >= 0 && p->level[i] == TNI_ROW;
        if (row) tni_text_add(part->text, "    %s x%d[1];\n", tni_emit_memory(tni_gpu_type_of(part, i)), (int)i);
    }
    begin_row(part, "    ", reduced_mask(part), "d");
    tni_gpu_row_loads(part, "    ", "[u]", "true");
    for (int32_t stage = 0; stage < p->n_stages; stage++) tni_gpu_row_nodes(part, "    ", stage);
    for (int32_t t = 0; t < p->b->n_todo; t++) {
        bool here = tni_in_pass(p->b, p->pass, &p->b->todo[t]) && tni_gpu_waits(part, t);
        if (here) tni_gpu_put(part, "    ", t);
    }
    tni_gpu_end(part);
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

static bool is_reduced_now(const tni_gpu_part *part, int32_t node, int32_t stage) {
    const tni_planner *p = part->p;
    bool here = part->needed[node] && tni_gpu_node_of(part, node)->op != TNI_P_CONST && p->memory_of[node] < 0;
    return here && tni_reduces_rows(p, node) && p->stage[node] == stage + 1;
}

/* Sets `taken` for the element values of this stage; false: it has none. */
static bool mark_stage(tni_gpu_part *part, int32_t stage) {
    const tni_planner *p = part->p;
    bool any = false;
    memset(part->taken, 0, sizeof part->taken);
    for (int32_t t = 0; t < p->b->n_todo; t++) {
        bool here = tni_gpu_has_todo(part, t) && tni_level_of_todo(p, t) == TNI_ELEMENT &&
                    tni_stage_of_todo(p, t) == stage;
        if (here) part->taken[tni_todo_node(p, &p->b->todo[t])] = any = true;
    }
    for (int32_t i = p->g->n - 1; i >= 0; i--) {
        const tni_gnode *n = tni_gpu_node_of(part, i);
        bool now = is_reduced_now(part, i, stage), constant = n->op == TNI_P_CONST;
        any |= now;
        bool element = part->taken[i] && !constant && p->level[i] == TNI_ELEMENT;
        if (p->memory_of[i] >= 0 || !(now || element)) continue;
        if (element && part->saved[i] && part->made[i] < stage) continue;
        for (int k = 0; k < 3 && n->arg[k] >= 0; k++) {
            if (!(n->op == TNI_P_SUM_TO && k == 1)) part->taken[tni_resolve(p, n->arg[k])] = true;
        }
    }
    return any;
}

static bool is_dear(int op) {
    return (op >= TNI_P_SQRT && op <= TNI_P_SOFTPLUS) || op == TNI_P_POW || op == TNI_P_MOD || op == TNI_P_RAND;
}

/* What takes long to compute and is needed in several stages is kept, as far as registers allow. */
static void find_saved(tni_gpu_part *part) {
    enum { MOST = 32 };
    const tni_planner *p = part->p;
    int32_t left = part->streams ? 0 : MOST / (part->vector * part->unroll[0]);
    for (int32_t i = 0; i < p->g->n; i++) part->made[i] = -1;
    for (int32_t stage = 0; stage < part->stages && left > 0; stage++) {
        if (!mark_stage(part, stage)) continue;
        for (int32_t i = 0; i < p->g->n; i++) {
            bool element = part->taken[i] && tni_gpu_node_of(part, i)->op != TNI_P_CONST && p->level[i] == TNI_ELEMENT;
            if (!element || p->memory_of[i] >= 0 || !is_dear(tni_gpu_node_of(part, i)->op) || part->saved[i]) continue;
            if (part->made[i] < 0) {
                part->made[i] = stage;
            } else if (left > 0 && tni_gpu_lane_of(part, i) == TNI_LANE_F32) {
                part->saved[i] = true;
                left--;
            }
        }
    }
}

/* The vectors of leaves that `which` has; c and n are there. */
static void print_row_loads(const tni_gpu_part *part, const char *margin, const bool *which) {
    const tni_planner *p = part->p;
    for (int32_t i = 0; i < p->g->n; i++) {
        if (!tni_gpu_is_leaf(part, i) || !which[i]) continue;
        tni_text_add(part->text, "%sv%d[u] = ", margin, (int)p->memory_of[i]);
        tni_gpu_vector(part, i, "o", "n");
        tni_text_add(part->text, ";\n");
    }
}

static void print_row_vectors(const tni_gpu_part *part, const char *margin, const bool *which) {
    const tni_planner *p = part->p;
    for (int32_t i = 0; i < p->g->n; i++) {
        if (!tni_gpu_is_leaf(part, i) || !which[i]) continue;
        tni_text_add(part->text, "%stn_vec<%s, VL> v%d[U];\n", margin, tni_emit_memory(tni_gpu_type_of(part, i)),
                     (int)p->memory_of[i]);
    }
    tni_text_add(part->text, "#pragma unroll\n%sfor (int u = 0; u < U; u++) {\n", margin);
}

static const char *place_text(const tni_gpu_part *part) {
    return part->streams ? "            const i64 c = tile + ((i64)u * across + x) * VL;\n"
                         : "            const i64 c = ((i64)u * across + x) * VL;\n";
}

static void print_place(const tni_gpu_part *part) {
    tni_text_add(part->text, "%s            const int n = there ? tn_left(c, z[%d], VL) : 0;\n", place_text(part),
                 (int)part->p->pass->n_dims);
}

/* All reductions of a stage share a barrier. */
static void print_reductions(const tni_gpu_part *part, int32_t stage, int *slot) {
    const tni_planner *p = part->p;
    int first = *slot;
    for (int32_t i = 0; i < p->g->n; i++) {
        if (!is_reduced_now(part, i, stage)) continue;
        const char *op = tni_gpu_operation(tni_gpu_node_of(part, i)->op),
                   *lane = tni_emit_lane(tni_gpu_lane_of(part, i));
        tni_text_add(part->text, "        %s t%d = tn_lanes(%s{}, a%d%s, across);\n", lane, (int)i, op, (int)i,
                     part->streams ? ".total()" : "");
        tni_text_add(part->text, "        if (across > 32 && tid %% 32 == 0) ((%s *)slots[%d])[tid / 32] = t%d;\n",
                     lane, (*slot)++, (int)i);
    }
    if (*slot == first) return;
    tni_text_add(part->text, "        if (across > 32) {\n            tn_sync();\n");
    for (int32_t i = 0, k = first; i < p->g->n; i++) {
        if (!is_reduced_now(part, i, stage)) continue;
        tni_text_add(part->text, "            t%d = tn_warps(%s{}, (const %s *)slots[%d], across / 32);\n", (int)i,
                     tni_gpu_operation(tni_gpu_node_of(part, i)->op), tni_emit_lane(tni_gpu_lane_of(part, i)),
                     (int)k++);
    }
    tni_text_add(part->text, "        }\n");
}

static void print_stage(tni_gpu_part *part, int32_t stage, int *slot) {
    const tni_planner *p = part->p;
    tni_gpu_row_nodes(part, "        ", stage);
    tni_gpu_row_results(part, "        ", stage, "x == 0 && there");
    if (!mark_stage(part, stage)) return;
    for (int32_t i = 0; i < p->g->n; i++) {
        if (!is_reduced_now(part, i, stage)) continue;
        const char *op = tni_gpu_operation(tni_gpu_node_of(part, i)->op),
                   *lane = tni_emit_lane(tni_gpu_lane_of(part, i));
        tni_text_add(part->text,
                     part->streams ? "        tn_run<%1$s, %2$s> a%3$d;\n        a%3$d.begin();\n"
                                   : "        %2$s a%3$d = tn_none(%1$s{}, %2$s{});\n",
                     op, lane, (int)i);
    }
    if (part->streams) {
        tni_text_add(part->text, "        for (i64 tile = 0; tile < z[%d]; tile += (i64)U * across * VL) {\n",
                     (int)p->pass->n_dims);
        print_row_vectors(part, "        ", part->taken);
        print_place(part);
        print_row_loads(part, "            ", part->taken);
        tni_text_add(part->text, "        }\n");
    }
    tni_text_add(part->text, "#pragma unroll\n        for (int u = 0; u < U; u++) {\n");
    print_place(part);
    for (int32_t i = 0; i < p->g->n && stage > 0 && !part->streams; i++) {
        if (tni_gpu_is_leaf(part, i) && part->taken[i])
            tni_text_add(part->text, "            tn_hide(v%d[u]);\n", (int)p->memory_of[i]);
    }
    tni_gpu_random(part, "            ");
    tni_gpu_elements(part, "            ", stage, "[u]");
    tni_text_add(part->text, part->streams ? "        }\n        }\n" : "        }\n");
    print_reductions(part, stage, slot);
}

/* Sums that keep columns of rows too long for registers: each thread's own in memory. */
static void begin_sums(const tni_gpu_part *part) {
    const tni_pass *pass = part->p->pass;
    for (int32_t k = 0; k < part->n_sums; k++) {
        int i = (int)part->sums[k], at = (int)pass->n_memory + i, along = (at + 1) * (pass->n_dims + 1) - 1;
        const tni_accumulator *acc = &pass->accumulators[i];
        const char *type = tni_emit_lane(acc->lane == TNI_LANE_BOOL ? TNI_LANE_INT : acc->lane);
        if (acc->strides[pass->n_dims] == 0) continue;
        tni_text_add(
            part->text,
            "    %s *const g%d = (%s *)p.sums[%d] + piece * p.size[%d] + b%d;\n"
            "    for (i64 c = (i64)x * VL; c < z[%d]; c += (i64)across * VL) {\n"
            "        for (int j = 0; j < VL && c + j < z[%d]; j++) g%d[(c + j) * s[%d]] = tn_none(%s{}, %s{});\n"
            "    }\n",
            type, i, type, i, i, at, (int)pass->n_dims, (int)pass->n_dims, i, along, tni_gpu_operation(acc->op), type);
    }
}

void tni_emit_cuda_rows(tni_gpu_part *part) {
    int slot = 0;
    find_saved(part);
    tni_gpu_begin(part);
    print_slots(part);
    if (part->streams) begin_sums(part);
    tni_text_add(part->text, "    for (i64 base = first; base < past; base += p.down) {\n"
                             "        const i64 d = base + y;\n        const bool there = y < p.down && d < past;\n");
    begin_row(part, "        ", reduced_mask(part), "there ? d : first");
    tni_gpu_row_loads(part, "        ", "", "there");
    for (int32_t i = 0; i < part->p->g->n; i++) {
        if (part->saved[i])
            tni_text_add(part->text, "        %s k%d[U][VL];\n", tni_emit_lane(tni_gpu_lane_of(part, i)), (int)i);
    }
    if (!part->streams) {
        print_row_vectors(part, "        ", part->needed);
        print_place(part);
        print_row_loads(part, "            ", part->needed);
        tni_text_add(part->text, "        }\n");
    }
    for (int32_t stage = 0; stage < part->stages; stage++) print_stage(part, stage, &slot);
    if (part->n_sums) tni_text_add(part->text, "        if (across > 32) tn_sync();\n");
    tni_text_add(part->text, "    }\n");
    tni_gpu_end(part);
}

void tni_emit_cuda_finish(const tni_accumulator *acc, tni_text *text, const char *name) {
    bool whole = acc->lane == TNI_LANE_INT || acc->lane == TNI_LANE_BOOL;
    tni_text_add(text, "TN_KERNEL(256) %s(TN_PARAMS(tn_finish_params)) { tn_finish<%s, %s, %s>(p); }\n", name,
                 tni_gpu_operation(acc->op), whole ? "i64" : tni_emit_lane(acc->lane), whole ? "i64" : "f64");
}
