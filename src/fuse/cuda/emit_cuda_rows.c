/* Kernels that reduce rows: stage by stage, a reduction of all lanes that have a row behind each (gpu.h). */
#include <stdio.h>
#include <string.h>

#include "gpu.h"

/* slots: of warps; shares: of blocks of a cluster. */
static void slot_text(const tni_gpu_part *part, const char *of, int slot, char text[static 48]) {
    if (part->walks || (part->cuts && strcmp(of, "slots") == 0)) {
        snprintf(text, 48, "%s[set * %d + %d]", of, (int)part->n_slots, slot);
    } else {
        snprintf(text, 48, "%s[%d]", of, slot);
    }
}

/* Slots of a reduction: a pair has two; rows that begin anywhere have as many as VL numbers of 16 warps take. */
static int slots_of(const tni_gpu_part *part, int32_t node) {
    return part->odd ? tni_gpu_odd_slots(part->vector) : part->beside[node] >= 0 ? 2 : 1;
}

/* Sets `taken` for the element values of this stage; false: it has none. */
static bool mark_stage(tni_gpu_part *part, int32_t stage) {
    const tni_planner *p = part->p;
    bool any = false;
    memset(part->taken, 0, (size_t)part->p->g->n * sizeof *part->taken);
    for (int32_t t = 0; t < p->b->n_todo; t++) {
        bool here = tni_gpu_has_todo(part, t) && tni_level_of_todo(p, t) == TNI_ELEMENT &&
                    tni_stage_of_todo(p, t) == stage;
        if (here) part->taken[tni_todo_node(p, &p->b->todo[t])] = any = true;
    }
    for (int32_t i = p->g->n - 1; i >= 0; i--) {
        const tni_gnode *n = tni_gpu_node_of(part, i);
        bool now = tni_gpu_reduces_now(part, i, stage), constant = n->op == TNI_P_CONST;
        any |= now;
        bool element = part->taken[i] && !constant && p->level[i] == TNI_ELEMENT;
        if (p->memory_of[i] >= 0 || !(now || element)) continue;
        if (element && part->saved[i] && part->made[i] < stage) continue;
        for (int k = 0; k < 3 && n->arg[k] >= 0; k++) {
            if (!(n->op == TNI_P_SUM_TO && k == 1)) part->taken[tni_resolve(p->b, n->arg[k])] = true;
        }
    }
    return any;
}

/* What takes long to compute and is needed in several stages is kept, as far as registers allow. What is rounded to
 * bf16 takes less to compute than registers cost. */
static void find_saved(tni_gpu_part *part) {
    enum { MOST = 32 };
    const tni_planner *p = part->p;
    int32_t left = part->streams || part->coarse ? 0 : MOST / (part->vector * part->unroll[0]);
    for (int32_t i = 0; i < p->g->n; i++) part->made[i] = -1;
    for (int32_t stage = 0; stage < part->stages && left > 0; stage++) {
        if (!mark_stage(part, stage)) continue;
        for (int32_t i = 0; i < p->g->n; i++) {
            bool element = part->taken[i] && tni_gpu_node_of(part, i)->op != TNI_P_CONST && p->level[i] == TNI_ELEMENT;
            if (!element || p->memory_of[i] >= 0 || tni_prims[tni_gpu_node_of(part, i)->op].effort == TNI_CHEAP ||
                part->saved[i])
                continue;
            if (part->made[i] < 0) {
                part->made[i] = stage;
            } else if (left > 0 && tni_gpu_lane_of(part, i) == TNI_LANE_F32) {
                part->saved[i] = true;
                left--;
            }
        }
    }
}

/* Of rows that begin anywhere, all vectors at once. */
static void print_shifted(const tni_gpu_part *part, int32_t node, const char *to, bool fixed) {
    const int m = (int)part->p->memory_of[node];
    tni_text_add(part->text, "        load_shifted<across, %s>(%s%d, m%d + %s%d%s, %s, shift, x);\n",
                 fixed ? "false" : tni_gpu_alike(part, m), to, m, m, fixed ? "b" : "o", m,
                 part->cluster > 1 ? " + from" : "", fixed ? "have" : "left");
}

/* Does a leaf come all at once, too, where its rows have been found to begin anywhere when the kernel runs? */
static bool comes_at_once(const tni_gpu_part *part, int32_t node) {
    const int32_t m = part->p->memory_of[node];
    return !part->p->fixed[node] && part->p->pass->memory[m].strides[part->p->pass->n_dims] == 1;
}

static void print_at_once(const tni_gpu_part *part, int32_t node) {
    const int m = (int)part->p->memory_of[node];
    const char *margin = "        ";
    if (part->ring) {
        tni_text_add(part->text, "        if constexpr (RING) {\n");
        tni_gpu_ring_take(part, node);
        tni_text_add(part->text, "        } else {\n");
        margin = "            ";
    }
    tni_text_add(part->text, "%sload_row<across, MODE>(v%d, m%d + o%d%s%s, x%s);\n%s", margin, m, m, m,
                 part->cluster > 1 ? " + from" : "", part->streams ? " + tile, left - tile" : ", left",
                 part->streams ? ", tile > 0 ? VL : 0" : "", part->ring ? "        }\n" : "");
}

/* Is a leaf the same in every row, or for many columns of one? It is near, and comes when it is needed. */
static bool is_near(const tni_gpu_part *part, int32_t node) {
    return part->p->fixed[node] || part->p->pass->memory[part->p->memory_of[node]].stretched;
}

/* The leaves that `which` has and that come at this time. What is the same in every row: once, where a block has many
 * rows; else when it is needed, from nearby caches. The others with each row. Where rows are too long for registers,
 * all of them with each tile. */
static void print_row_loads(const tni_gpu_part *part, const bool *which, bool fixed) {
    const tni_planner *p = part->p;
    bool any = false;
    for (int32_t i = 0; i < p->g->n; i++) {
        if (!tni_gpu_is_leaf(part, i) || !which[i] || (!part->streams && is_near(part, i) != fixed)) continue;
        tni_text_add(part->text, "        vec<%s, VL> v%d[U];\n", tni_emit_memory(tni_gpu_type_of(part, i)),
                     (int)p->memory_of[i]);
        any = true;
    }
    if (!any) return;
    for (int32_t i = 0; i < p->g->n; i++) {
        const bool here = tni_gpu_is_leaf(part, i) && which[i] && (part->streams || is_near(part, i) == fixed);
        if (!here) continue;
        if (part->odd) {
            print_shifted(part, i, "v", fixed);
        } else if (comes_at_once(part, i)) {
            print_at_once(part, i);
        } else {
            tni_text_add(part->text, "#pragma unroll\n        for (int u = 0; u < U; u++) {\n");
            tni_gpu_place(part, fixed ? "have" : "left");
            tni_gpu_take(part, i, fixed ? "b" : "o", "n");
            tni_text_add(part->text, "        }\n");
        }
    }
}

/* ---- sums of exponentials ---------------------------------------------------------------------------------------- */

/* Sets `taken` for what one element value needs; false: it is random. */
static bool mark_value(tni_gpu_part *part, int32_t stage, int32_t node) {
    const tni_planner *p = part->p;
    bool plain = true;
    memset(part->taken, 0, (size_t)part->p->g->n * sizeof *part->taken);
    part->taken[node] = true;
    for (int32_t i = node; i >= 0; i--) {
        const tni_gnode *n = tni_gpu_node_of(part, i);
        bool element = part->taken[i] && n->op != TNI_P_CONST && p->level[i] == TNI_ELEMENT && p->memory_of[i] < 0;
        plain &= !(part->taken[i] && n->op == TNI_P_RAND);
        if (!element || (part->saved[i] && part->made[i] < stage)) continue;
        for (int k = 0; k < 3 && n->arg[k] >= 0; k++) part->taken[tni_resolve(p->b, n->arg[k])] = true;
    }
    return plain;
}

/* Is what stands between a sum of exponentials and its maximum made here? */
static bool is_between(const tni_gpu_part *part, int32_t sum) {
    const tni_binding *b = part->p->b;
    int32_t exp = tni_resolve(b, tni_gpu_node_of(part, sum)->arg[0]);
    int32_t less = tni_resolve(b, tni_gpu_node_of(part, exp)->arg[0]);
    int32_t shift = tni_resolve(b, tni_gpu_node_of(part, less)->arg[1]);
    const int32_t *memory_of = part->p->memory_of;
    return memory_of[exp] < 0 && memory_of[less] < 0 && memory_of[shift] < 0;
}

/* sum(exp(x - max(x))) needs no stage of its own: each thread has the maximum of its elements and their sum with that,
 * and pairs of both are joined. */
static void find_pairs(tni_gpu_part *part) {
    const tni_planner *p = part->p;
    for (int32_t i = 0; i < p->g->n; i++) part->beside[i] = -1;
    if (part->odd) return; /* which elements a thread has depends on where the row begins, and so would its maximum */
    for (int32_t i = 0; i < p->g->n; i++) {
        int32_t most = p->b->lowered[i].most;
        bool here = most >= 0 && part->needed[i] && p->memory_of[i] < 0 && tni_reduces_rows(p, i);
        if (!here || !is_between(part, i)) continue;
        bool fits = p->memory_of[most] < 0 && part->needed[most] && tni_reduces_rows(p, most) &&
                    part->beside[most] < 0 && p->stage[i] == p->stage[most] + 1;
        if (!fits || !mark_value(part, 0, tni_resolve(p->b, tni_gpu_node_of(part, most)->arg[0]))) continue;
        part->beside[most] = i;
        part->along[i] = true;
    }
}

/* Is what all rows have in common loaded before them? Where a block has many rows, and single words, which take as long
 * as rows do. */
static bool has_fixed_first(const tni_gpu_part *part) {
    return !part->streams && (part->n_sums || (part->odd && part->vector <= 2));
}

/* What is the same in every row, where it is loaded when needed; the others are there. */
static void print_fixed(const tni_gpu_part *part) {
    for (int32_t i = 0; i < part->p->g->n && !part->streams && !has_fixed_first(part); i++) {
        const int m = (int)part->p->memory_of[i];
        const char *type;
        if (!tni_gpu_is_leaf(part, i) || !part->taken[i] || !is_near(part, i)) continue;
        type = tni_emit_memory(tni_gpu_type_of(part, i));
        tni_text_add(part->text, "            vec<%s, VL> v%d[U];\n", type, m);
        if (part->odd) {
            tni_text_add(part->text, "            v%1$d[u] = load_some<%2$s, VL>(m%1$d + b%1$d + c, n);\n", m, type);
        } else {
            tni_gpu_take(part, i, part->p->fixed[i] ? "b" : "o", "n");
        }
    }
}

/* The sum beside maximum m, of this thread's elements, behind the loop that has found their maximum. */
static void print_beside(tni_gpu_part *part, int32_t stage, int32_t m) {
    const int x = (int)tni_resolve(part->p->b, tni_gpu_node_of(part, m)->arg[0]), sum = (int)part->beside[m];
    mark_value(part, stage, x);
    tni_text_add(part->text, "        const auto low%d = zero_if_infinite(a%d.s);\n", sum, (int)m);
    if (part->streams) tni_text_add(part->text, "        a%d.scale(rescaling(was%d, a%d.s));\n", sum, sum, (int)m);
    tni_text_add(part->text, "#pragma unroll\n        for (int u = 0; u < U; u++) {\n");
    tni_gpu_some(part, "left");
    print_fixed(part);
    tni_text_add(part->text,
                 "            if (MODE != 2 || n > 0) {\n#pragma unroll\n            for (int j = 0; j < VL; j++) {\n");
    tni_gpu_values(part, "                ", stage, "[u]");
    tni_text_add(part->text,
                 "                if (is_in<MODE>(j, n)) a%d.add(tn_exp(t%d - low%d));\n            }\n            }\n",
                 sum, x, sum);
    tni_gpu_some_end(part, "left");
    tni_text_add(part->text, "        }\n");
}

/* ---- stages ------------------------------------------------------------------------------------------------------ */

/* What is reduced by itself, and not beside another. */
static bool reduces_alone(const tni_gpu_part *part, int32_t i, int32_t stage) {
    return tni_gpu_reduces_now(part, i, stage) && part->beside[i] < 0;
}

/* Over `lanes` neighbouring lanes, all of them step by step: they need not wait for each other. */
static void print_joined(const tni_gpu_part *part, int32_t stage, const char *margin, int lanes) {
    bool any = false;
    for (int32_t i = 0; i < part->p->g->n; i++) {
        if (!reduces_alone(part, i, stage)) continue;
        if (!any) tni_text_add(part->text, "#pragma unroll\n%sfor (u32 o = %d; o; o /= 2) {\n", margin, lanes / 2);
        any = true;
        tni_text_add(part->text, "%1$s    t%2$d = %3$s::of(t%2$d, __shfl_xor_sync(0xffffffffu, t%2$d, o));\n", margin,
                     (int)i, tni_gpu_operation(tni_gpu_node_of(part, i)->op));
    }
    if (any) tni_text_add(part->text, "%s}\n", margin);
}

/* Over the lanes of each warp. */
static void print_lane_reductions(const tni_gpu_part *part, int32_t stage, int slot) {
    char at[48];
    for (int32_t i = 0; i < part->p->g->n; i++) {
        if (!tni_gpu_reduces_now(part, i, stage)) continue;
        const char *lane = tni_emit_lane(tni_gpu_lane_of(part, i));
        slot_text(part, "slots", slot + 1, at);
        if (!reduces_alone(part, i, stage)) {
            tni_text_add(part->text,
                         "        max_and_sum<%1$s> q%2$d = join_lanes(max_and_sum<%1$s>{a%2$d.s, a%3$d.total()}, "
                         "across);\n        %1$s t%2$d = q%2$d.most;\n",
                         lane, (int)i, (int)part->beside[i]);
        } else if (part->odd) {
            tni_text_add(part->text, "        %1$s t%2$d = slots_total<%3$s, across>(a%2$d, shift, (%1$s *)%4$s);\n",
                         lane, (int)i, tni_gpu_operation(tni_gpu_node_of(part, i)->op), at);
        } else {
            tni_text_add(part->text, "        %1$s t%2$d = a%2$d.total();\n", lane, (int)i);
        }
        slot += slots_of(part, i);
    }
    print_joined(part, stage, "        ", part->lanes < 32 ? part->lanes : 32);
}

/* Each warp's into its slot; a pair has two. */
static void print_slots(const tni_gpu_part *part, int32_t stage, int slot) {
    char at[48];
    for (int32_t i = 0; i < part->p->g->n; i++) {
        if (!tni_gpu_reduces_now(part, i, stage)) continue;
        static const char *const forms[] = {"        if (tid %% 32 == 0) ((%s *)%s)[tid / 32] = t%d;\n",
                                            "        if (tid %% 32 == 0) ((%s *)%s)[tid / 32] = q%d.sum;\n"};
        for (int k = 0; k < (part->beside[i] < 0 ? 1 : 2); k++) {
            slot_text(part, "slots", slot + k, at);
            tni_text_add(part->text, forms[k], tni_emit_lane(tni_gpu_lane_of(part, i)), at, (int)i);
        }
        slot += slots_of(part, i);
    }
}

/* Over what the warps have left: as many lanes as there are warps, or more. */
static void print_warp_reductions(const tni_gpu_part *part, int32_t stage, int slot) {
    char at[48], other[48];
    const int warps = (int)part->lanes / 32;
    int lanes = 1;
    while (lanes < warps) lanes *= 2;
    tni_text_add(part->text, "        {\n            __syncthreads();\n            const u32 w = tid & %d;\n",
                 lanes - 1);
    for (int32_t i = 0; i < part->p->g->n; i++) {
        if (!tni_gpu_reduces_now(part, i, stage)) continue;
        const char *lane = tni_emit_lane(tni_gpu_lane_of(part, i)),
                   *op = tni_gpu_operation(tni_gpu_node_of(part, i)->op);
        slot_text(part, "slots", slot, at);
        slot_text(part, "slots", slot + 1, other);
        slot += slots_of(part, i);
        if (!reduces_alone(part, i, stage)) {
            tni_text_add(part->text,
                         "            q%1$d = join_warps((const %2$s *)%3$s, (const %2$s *)%4$s, %5$du);\n"
                         "            t%1$d = q%1$d.most;\n",
                         (int)i, lane, at, other, warps);
        } else if (part->odd) {
            tni_text_add(part->text,
                         "            t%1$d = w < %5$d ? rest_total<%4$s, VL>((const %2$s *)%3$s, (const %2$s *)%6$s, "
                         "w) : %4$s::none<%2$s>();\n",
                         (int)i, lane, at, op, warps, other);
        } else {
            tni_text_add(part->text, "            t%1$d = w < %5$d ? ((const %2$s *)%3$s)[w] : %4$s::none<%2$s>();\n",
                         (int)i, lane, at, op, warps);
        }
    }
    print_joined(part, stage, "            ", lanes);
    tni_text_add(part->text, "            (void)w;\n        }\n");
}

/* Over the blocks of a cluster: each tells all of them. */
static void print_cluster_reductions(const tni_gpu_part *part, int32_t stage, int slot) {
    char at[48], other[48];
    const int first = slot;
    /* not earlier: the first row is on its way meanwhile */
    if (!part->n_sums && first == 0) tni_text_add(part->text, "        if (base == first) cluster_wait();\n");
    for (int32_t i = 0; i < part->p->g->n; i++) {
        if (!tni_gpu_reduces_now(part, i, stage)) continue;
        const char *lane = tni_emit_lane(tni_gpu_lane_of(part, i));
        slot_text(part, "shares", slot, at);
        slot_text(part, "shares", slot + 1, other);
        slot += slots_of(part, i);
        const char *form = "        if (tid < %4$d) store_cluster((%1$s *)%2$s + column, tid, t%3$d);\n";
        tni_text_add(part->text, form, lane, at, (int)i, (int)part->cluster);
        if (reduces_alone(part, i, stage)) continue;
        tni_text_add(part->text, "        if (tid < %4$d) store_cluster((%1$s *)%2$s + column, tid, q%3$d.sum);\n",
                     lane, other, (int)i, (int)part->cluster);
    }
    tni_text_add(part->text, "        cluster_arrive();\n        cluster_wait();\n");
    slot = first;
    for (int32_t i = 0; i < part->p->g->n; i++) {
        if (!tni_gpu_reduces_now(part, i, stage)) continue;
        const char *lane = tni_emit_lane(tni_gpu_lane_of(part, i)),
                   *op = tni_gpu_operation(tni_gpu_node_of(part, i)->op);
        slot_text(part, "shares", slot, at);
        slot_text(part, "shares", slot + 1, other);
        slot += slots_of(part, i);
        if (reduces_alone(part, i, stage)) {
            tni_text_add(part->text, "        t%1$d = reduce_few<%2$s>((const %3$s *)%4$s, %5$du);\n", (int)i, op, lane,
                         at, (int)part->cluster);
        } else {
            tni_text_add(part->text,
                         "        q%1$d = join_warps((const %2$s *)%3$s, (const %2$s *)%4$s, %5$du);\n"
                         "        t%1$d = q%1$d.most;\n",
                         (int)i, lane, at, other, (int)part->cluster);
        }
    }
}

/* All reductions of a stage share a barrier. */
int tni_gpu_reduce_block(const tni_gpu_part *part, int32_t stage, int slot) {
    const int first = slot;
    for (int32_t i = 0; i < part->p->g->n; i++) {
        if (tni_gpu_reduces_now(part, i, stage)) slot += slots_of(part, i);
    }
    if (slot == first) return slot;
    print_lane_reductions(part, stage, first);
    if (part->lanes > 32) {
        print_slots(part, stage, first);
        print_warp_reductions(part, stage, first);
    }
    return slot;
}

static void print_reductions(const tni_gpu_part *part, int32_t stage, int *slot) {
    const tni_planner *p = part->p;
    const int first = *slot;
    *slot = tni_gpu_reduce_block(part, stage, first);
    if (*slot == first) return;
    if (part->cluster > 1) print_cluster_reductions(part, stage, first);
    for (int32_t i = 0; i < p->g->n; i++) {
        const int sum = (int)part->beside[i];
        if (!tni_gpu_reduces_now(part, i, stage) || sum < 0) continue;
        /* inf - inf is what one element has, unless it is guarded against */
        const char *form = p->b->lowered[sum].guarded ? "        const auto t%d = q%d.sum;\n"
                                                      : "        const auto t%d = sum_unless_infinite(q%d);\n";
        tni_text_add(part->text, form, sum, (int)i);
    }
}

void tni_gpu_partials(const tni_gpu_part *part, int32_t stage) {
    for (int32_t i = 0; i < part->p->g->n; i++) {
        if (!tni_gpu_reduces_now(part, i, stage)) continue;
        const char *op = tni_gpu_operation(tni_gpu_node_of(part, i)->op),
                   *lane = tni_emit_lane(tni_gpu_lane_of(part, i));
        const char *kind = part->odd ? "slot_partials" : part->streams ? "long_partial" : "short_partial";
        tni_text_add(part->text, "        %s<%s, %s%s> a%d;\n        a%d.begin();\n", kind, op, lane,
                     part->odd ? ", VL" : "", (int)i, (int)i);
        if (part->beside[i] >= 0)
            tni_text_add(part->text, "        %s<take_sum, %s> a%d;\n        a%d.begin();\n", kind, lane,
                         (int)part->beside[i], (int)part->beside[i]);
    }
}

static void print_stage(tni_gpu_part *part, int32_t stage, int *slot) {
    const tni_planner *p = part->p;
    tni_gpu_row_nodes(part, "        ", stage);
    const int before = *slot;
    tni_gpu_row_results(part, "        ", stage,
                        part->cluster > 1 || part->cuts ? "x == 0 && there && column == 0" : "x == 0 && there");
    if (!mark_stage(part, stage)) {
        if (stage == 0) tni_gpu_ring_refill(part, false);
        return;
    }
    if (part->cuts) {
        tni_gpu_cut_stage(part);
        return;
    }
    tni_gpu_partials(part, stage);
    if (part->streams) {
        tni_text_add(part->text, "        for (i64 tile = 0; tile < have; tile += (i64)U * across * VL) {\n");
        for (int32_t i = 0; i < p->g->n; i++) {
            if (tni_gpu_reduces_now(part, i, stage) && part->beside[i] >= 0)
                tni_text_add(part->text, "        const auto was%d = a%d.s;\n", (int)part->beside[i], (int)i);
        }
        print_row_loads(part, part->taken, false);
        tni_gpu_sum_loads(part, stage);
    }
    tni_text_add(part->text, "#pragma unroll\n        for (int u = 0; u < U; u++) {\n");
    tni_gpu_some(part, "left");
    print_fixed(part);
    for (int32_t i = 0; i < p->g->n && !part->streams && stage > 0; i++) {
        bool there = tni_gpu_is_leaf(part, i) && part->taken[i] && (has_fixed_first(part) || !p->fixed[i]);
        if (there) tni_text_add(part->text, "            hide(v%d[u]);\n", (int)p->memory_of[i]);
    }
    tni_gpu_random(part, "            ");
    tni_gpu_elements(part, "            ", stage, "[u]");
    tni_gpu_some_end(part, "left");
    tni_text_add(part->text, "        }\n");
    for (int32_t i = 0; i < p->g->n; i++) {
        if (tni_gpu_reduces_now(part, i, stage) && part->beside[i] >= 0) print_beside(part, stage, i);
    }
    if (part->streams) {
        for (int32_t i = 0; i < p->g->n; i++) {
            if (!tni_gpu_reduces_now(part, i, stage)) continue;
            tni_text_add(part->text, "        a%d.fold();\n", (int)i);
            if (part->beside[i] >= 0) tni_text_add(part->text, "        a%d.fold();\n", (int)part->beside[i]);
        }
        tni_text_add(part->text, "        }\n");
    }
    print_reductions(part, stage, slot);
    if (stage == 0) tni_gpu_ring_refill(part, *slot > before);
}

/* Sums that keep columns of rows too long for registers: each thread's own in memory. */
static void begin_sums(const tni_gpu_part *part) {
    const tni_pass *pass = part->p->pass;
    for (int32_t k = 0; k < part->n_sums; k++) {
        int i = (int)part->sums[k], at = (int)pass->n_memory + i, along = (at + 1) * (pass->n_dims + 1) - 1;
        const tni_accumulator *acc = &pass->accumulators[i];
        const char *type = tni_emit_lane(acc->lane == TNI_LANE_BOOL ? TNI_LANE_INT : acc->lane);
        if (acc->strides[pass->n_dims] == 0) continue;
        tni_text_add(part->text,
                     "    %s *const g%d = (%s *)p.sums[%d] + piece * p.size[%d] + b%d;\n"
                     "    for (i64 i = (i64)x * VL; i < have; i += (i64)across * VL) {\n"
                     "        for (int j = 0; j < VL && i + j < have; j++) g%d[(%si + j) * s[%d]] = %s::none<%s>();\n"
                     "    }\n",
                     type, i, type, i, i, at, i, part->cluster > 1 ? "from + " : "", along, tni_gpu_operation(acc->op),
                     type);
    }
}

/* Where results go is worked out once for a row: for each vector it would take as long as the vector itself. */
static void keep_places(const tni_gpu_part *part) {
    const tni_planner *p = part->p;
    for (int32_t t = 0; t < p->b->n_todo; t++) {
        if (tni_gpu_has_todo(part, t) && !p->b->todo[t].gathers && tni_level_of_todo(p, t) == TNI_ELEMENT)
            tni_text_add(part->text, "        hide(o%d);\n", (int)p->todo_memory[t]);
    }
}

/* Which elements lie in one vector: by the row that comes first, and those that follow lie alike. Rows that share a
 * warp are summed up by columns that they have in common. */
static void print_shift(const tni_gpu_part *part) {
    if (part->lanes < 32) {
        tni_text_add(part->text, "    const u32 shift = 0;\n");
        return;
    }
    tni_text_add(part->text, "    u32 shift;\n    {\n");
    tni_gpu_row_begin(part, "        ", "first + y < past ? first + y : first");
    for (int32_t i = 0; i < part->offsets; i++) {
        if (part->used[i]) tni_text_add(part->text, "        (void)o%d;\n", (int)i);
    }
    tni_text_add(part->text, "        shift = shift_of<VL>(m%1$d + o%1$d);\n    }\n", (int)part->reference);
}

/* fetch(base): the loads of a round begin. */
static void print_fetch(const tni_gpu_part *part) {
    const tni_planner *p = part->p;
    for (int32_t i = 0; i < p->g->n; i++) {
        if (tni_gpu_is_moving(part, i))
            tni_text_add(part->text, "    vec<%s, VL> f%d[U];\n", tni_emit_memory(tni_gpu_type_of(part, i)),
                         (int)p->memory_of[i]);
    }
    tni_text_add(part->text, "    auto fetch = [&](i64 base) {\n        const i64 d = base + y;\n"
                             "        const bool there = d < past;\n"
                             "        const int left = there ? (int)have : 0;\n");
    tni_gpu_row_begin(part, "        ", "there ? d : first");
    if (!part->odd) {
        tni_text_add(part->text, "#pragma unroll\n        for (int u = 0; u < U; u++) {\n");
        tni_gpu_place(part, "left");
    }
    for (int32_t i = 0; i < p->g->n; i++) {
        if (!tni_gpu_is_moving(part, i)) continue;
        if (part->odd) {
            print_shifted(part, i, "f", false);
            continue;
        }
        tni_text_add(part->text, "            f%d[u] = ", (int)p->memory_of[i]);
        tni_gpu_vector(part, i, "o", "n");
        tni_text_add(part->text, ";\n");
    }
    tni_text_add(part->text, "%s    };\n    fetch(first);\n", part->odd ? "" : "        }\n");
}

static void print_fetched(const tni_gpu_part *part) {
    const tni_planner *p = part->p;
    for (int32_t i = 0; i < p->g->n; i++) {
        if (tni_gpu_is_moving(part, i))
            tni_text_add(part->text,
                         "        vec<%1$s, VL> v%2$d[U];\n#pragma unroll\n"
                         "        for (int u = 0; u < U; u++) v%2$d[u] = f%2$d[u];\n",
                         tni_emit_memory(tni_gpu_type_of(part, i)), (int)p->memory_of[i]);
    }
    tni_text_add(part->text, "        fetch(base + step);\n");
}

void tni_emit_cuda_rows(tni_gpu_part *part) {
    int slot = 0;
    find_pairs(part);
    find_saved(part);
    tni_gpu_begin(part);
    tni_gpu_slots(part);
    if (part->odd && part->n_sums) print_shift(part);
    tni_gpu_once(part, "    ");
    if (part->streams) begin_sums(part);
    tni_gpu_ring(part);
    if (part->ahead) print_fetch(part);
    if (!part->streams && part->n_sums) print_row_loads(part, part->needed, true);
    if (part->cluster > 1 && part->n_sums) tni_text_add(part->text, "    cluster_wait();\n");
    if (part->longer) tni_text_add(part->text, "    u32 turn = 0;\n");
    /* else a block has one round */
    tni_text_add(part->text, part->walks ? "    for (i64 base = first; base < past; base += step) {\n"
                                         : "    {\n        const i64 base = first;\n");
    tni_text_add(part->text, "        const i64 d = base + y;\n        const bool there = d < past;\n");
    if (!part->cuts)
        tni_text_add(part->text, "        const %1$s left = there ? (%1$s)have : 0;\n", part->streams ? "i64" : "int");
    tni_gpu_row_begin(part, "        ", "there ? d : first");
    if (part->odd && !part->n_sums) {
        tni_text_add(part->text, "        const u32 shift = shift_of<VL>(m%1$d + o%1$d);\n", (int)part->reference);
        if (has_fixed_first(part)) print_row_loads(part, part->needed, true);
    }
    tni_gpu_row_loads(part, "        ", "", "there");
    for (int32_t i = 0; i < part->p->g->n; i++) {
        if (part->saved[i])
            tni_text_add(part->text, "        %s k%d[U][VL];\n", tni_emit_lane(tni_gpu_lane_of(part, i)), (int)i);
    }
    if (part->ring) {
        keep_places(part);
        tni_text_add(part->text, "        if constexpr (RING) bulk_wait(full + stage, phase);\n");
    }
    if (part->ahead) {
        print_fetched(part);
    } else if (!part->streams) {
        print_row_loads(part, part->needed, false);
    }
    for (int32_t stage = 0; stage < part->stages; stage++) print_stage(part, stage, &slot);
    tni_gpu_fold(part);
    tni_text_add(part->text, part->walks ? "        set ^= 1;\n    }\n" : "    }\n");
    tni_gpu_end(part);
}
