/* Kernels that reduce rows which stand upright (upright.cuh): a thread has VL rows that are neighbours in memory, and
 * loads U of their elements at a time. Names: h<n> a row value of each of them, a<n> a reduction under way, v<i>[u]
 * what was loaded of memory i. */
#include <stdio.h>
#include <string.h>

#include "gpu.h"

static int inner_stride(const tni_gpu_part *part, int32_t i) {
    const int n = (int)part->p->pass->n_dims;
    return (int)i * (n + 1) + n - 1;
}
static int along_stride(const tni_gpu_part *part, int32_t i) {
    return inner_stride(part, i) + 1;
}

/* Do the rows of memory lie beside each other? Else each has a place of its own, or they have one together. */
static bool lies_beside(const tni_gpu_part *part, int32_t i) {
    const tni_pass *pass = part->p->pass;
    return tni_gpu_lies_along(pass, pass->n_dims - 1, i);
}

static bool is_row_value(const tni_gpu_part *part, int32_t node) {
    return part->needed[node] && part->p->level[node] == TNI_ROW && tni_gpu_node_of(part, node)->op != TNI_P_CONST;
}

static bool is_reduction(const tni_gpu_part *part, int32_t node) {
    return tni_gpu_upright_reduces(part, node, part->stage[node] - 1);
}

/* Truth values are added up, and told to other blocks, as integers. */
static const char *reduced_text(const tni_gpu_part *part, int32_t node) {
    const int lane = tni_gpu_lane_of(part, node);
    return tni_emit_lane(lane == TNI_LANE_BOOL ? TNI_LANE_INT : lane);
}
static const char *row_text(const tni_gpu_part *part, int32_t node) {
    return is_reduction(part, node) ? reduced_text(part, node) : tni_emit_lane(tni_gpu_lane_of(part, node));
}

/* t<n> of the row values that are there before a stage, or with it. */
static void print_known(const tni_gpu_part *part, const char *margin, int32_t past) {
    for (int32_t i = 0; i < part->p->g->n; i++) {
        if (is_row_value(part, i) && part->stage[i] < past)
            tni_text_add(part->text, "%1$sconst %2$s t%3$d = (%2$s)h%3$d[j];\n", margin,
                         tni_emit_lane(tni_gpu_lane_of(part, i)), (int)i);
    }
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

/* How far a thread's first element is behind 16 bytes, in all of its rows, and whether its vector has any of them. */
static void print_lying(const tni_gpu_part *part, int i) {
    tni_text_add(part->text,
                 "    const u32 shift = MODE == 0 ? shift_of<VL>(m%1$d + o%1$d + (from + y) * s[%2$d]) : 0;\n"
                 "    const int lying = MODE > 0 ? n : c - (i64)shift < z[%3$d] ? VL : 0;\n",
                 i, along_stride(part, i), (int)part->p->pass->n_dims - 1);
}

static void print_places(const tni_gpu_part *part) {
    const int n = (int)part->p->pass->n_dims;
    for (int32_t i = 0; i < part->offsets; i++) {
        if (part->used[i])
            tni_text_add(part->text, "    i64 o%1$d = b%1$d + c * s[%2$d];\n", (int)i, inner_stride(part, i));
    }
    tni_gpu_offsets(part, "    ", (1u << (n - 1)) - 1, "outer");
    for (int32_t k = 0; k < part->p->g->n; k++) {
        const int i = (int)part->p->memory_of[k];
        if (!tni_gpu_is_leaf(part, k) || !lies_beside(part, i)) continue;
        tni_text_add(part->text, "    const %1$s *low%2$d = m%2$d, *high%2$d = m%2$d + 1;\n",
                     tni_emit_memory(tni_gpu_type_of(part, k)), i);
        for (int d = 0; d <= n; d++)
            tni_text_add(part->text, "    reach(low%1$d, high%1$d, (z[%2$d] - 1) * s[%3$d]);\n", i, d, i * (n + 1) + d);
        if (part->lying) print_lying(part, i);
    }
}

/* Values of rows that are in memory, and room for all others. */
static void print_row_room(const tni_gpu_part *part) {
    for (int32_t i = 0; i < part->p->g->n; i++) {
        const int m = (int)part->p->memory_of[i];
        if (!is_row_value(part, i)) continue;
        tni_text_add(part->text, "    %s h%d[VL];\n", row_text(part, i), (int)i);
        if (m < 0 || tni_gpu_is_index(part, i)) continue;
        const char *type = tni_emit_memory(tni_gpu_type_of(part, i));
        if (lies_beside(part, m)) {
            tni_text_add(part->text, "    const vec<%1$s, VL> x%2$d = load_vector<%1$s, VL, MODE>(m%3$d + o%3$d, n);\n",
                         type, (int)i, m);
        } else {
            tni_text_add(part->text,
                         "    const vec<%1$s, VL> x%2$d = load_apart<%1$s, VL>(m%3$d + o%3$d, s[%4$d], n);\n", type,
                         (int)i, m, inner_stride(part, m));
        }
    }
}

static void print_row_value(const tni_gpu_part *part, int32_t i) {
    char what[48];
    const int m = (int)part->p->memory_of[i];
    const char *lane = tni_emit_lane(tni_gpu_lane_of(part, i));
    if (m < 0) {
        tni_gpu_node(part, "        ", i);
    } else if (tni_gpu_is_index(part, i)) {
        tni_text_add(part->text, "        const i64 t%d = o%d + j * s[%d];\n", (int)i, m, inner_stride(part, m));
    } else {
        snprintf(what, sizeof what, "widen_at(x%d, j)", (int)i);
        tni_text_add(part->text, "        const %s t%d = ", lane, (int)i);
        tni_gpu_loaded(part, i, what);
        tni_text_add(part->text, ";\n");
    }
    tni_text_add(part->text, "        h%1$d[j] = t%1$d;\n", (int)i);
}

/* The row values of a stage, but for its reductions, which are there. */
static void print_row_values(const tni_gpu_part *part, int32_t stage) {
    bool any = false;
    for (int32_t i = 0; i < part->p->g->n; i++)
        any |= is_row_value(part, i) && part->stage[i] == stage && !is_reduction(part, i);
    if (!any) return;
    tni_text_add(part->text, "#pragma unroll\n    for (int j = 0; j < VL; j++) {\n");
    print_known(part, "        ", stage);
    for (int32_t i = 0; i < part->p->g->n; i++) {
        if (!is_row_value(part, i) || part->stage[i] != stage) continue;
        if (is_reduction(part, i)) {
            tni_text_add(part->text, "        const %1$s t%2$d = (%1$s)h%2$d[j];\n",
                         tni_emit_lane(tni_gpu_lane_of(part, i)), (int)i);
        } else {
            print_row_value(part, i);
        }
    }
    tni_text_add(part->text, "    }\n");
}

static void print_store(const tni_gpu_part *part, const char *margin, int32_t t, const char *further,
                        const char *count) {
    const int i = (int)part->p->todo_memory[t];
    const char *type = tni_emit_memory(part->p->pass->memory[i].type);
    if (lies_beside(part, i)) {
        tni_text_add(part->text, "%1$sstore_row<across, %2$s, VL, MODE>(m%3$d + o%3$d%4$s, y%5$d, %6$s);\n", margin,
                     type, i, further, (int)t, count);
    } else {
        tni_text_add(part->text, "%1$sstore_apart<%2$s, VL>(m%3$d + o%3$d%4$s, s[%7$d], y%5$d, %6$s);\n", margin, type,
                     i, further, (int)t, count, inner_stride(part, i));
    }
}

/* Room for what is stored of todo t, and its element j. */
static int lane_of_result(const tni_gpu_part *part, int32_t t) {
    return tni_gpu_lane_for_store(part, tni_todo_node(part->p, &part->p->b->todo[t]),
                                  part->p->pass->memory[part->p->todo_memory[t]].type);
}
static void print_result_room(const tni_gpu_part *part, const char *margin, int32_t t) {
    tni_text_add(part->text, "%s%s y%d[VL];\n", margin, tni_emit_lane(lane_of_result(part, t)), (int)t);
}
static void print_result(const tni_gpu_part *part, const char *margin, int32_t t) {
    tni_text_add(part->text, "%sy%d[j] = ", margin, (int)t);
    tni_emit_value(part->text, part->p, tni_todo_node(part->p, &part->p->b->todo[t]), lane_of_result(part, t));
    tni_text_add(part->text, ";\n");
}

static bool is_result(const tni_gpu_part *part, int32_t t, int32_t stage, bool elements) {
    const tni_planner *p = part->p;
    return tni_gpu_has_todo(part, t) && part->stage[tni_todo_node(p, &p->b->todo[t])] == stage &&
           (tni_level_of_todo(p, t) == TNI_ELEMENT) == elements;
}

static void print_row_results(const tni_gpu_part *part, int32_t stage) {
    for (int32_t t = 0; t < part->p->b->n_todo; t++) {
        if (!is_result(part, t, stage, false)) continue;
        tni_text_add(part->text, "    {\n");
        print_result_room(part, "        ", t);
        tni_text_add(part->text, "#pragma unroll\n        for (int j = 0; j < VL; j++) {\n");
        print_known(part, "            ", stage + 1);
        print_result(part, "            ", t);
        tni_text_add(part->text, "        }\n");
        print_store(part, "        ", t, "", "y == 0 && rank == 0 ? n : 0");
        tni_text_add(part->text, "    }\n");
    }
}

/* ---- elements ---------------------------------------------------------------------------------------------------- */

/* v<i> of the elements that `which` has, U of each row. */
static void print_loads(const tni_gpu_part *part, const bool *which) {
    for (int32_t k = 0; k < part->p->g->n; k++) {
        const int i = (int)part->p->memory_of[k];
        if (!tni_gpu_is_leaf(part, k) || !which[k]) continue;
        const char *type = tni_emit_memory(tni_gpu_type_of(part, k));
        tni_text_add(part->text, "        vec<%s, VL> v%d[U];\n", type, i);
        if (part->lying) {
            tni_text_add(part->text,
                         "        load_lying<MODE, down>(v%1$d, m%1$d + o%1$d - shift + r0 * s[%2$d], down * s[%2$d], "
                         "past - r0, lying, low%1$d, high%1$d);\n",
                         i, along_stride(part, i));
        } else if (lies_beside(part, i)) {
            tni_text_add(
                part->text,
                "        load_upright<MODE, down>(v%1$d, m%1$d + o%1$d + r0 * s[%2$d], down * s[%2$d], past - r0, "
                "n, low%1$d, high%1$d);\n",
                i, along_stride(part, i));
        } else {
            tni_text_add(part->text,
                         "#pragma unroll\n        for (int u = 0; u < U; u++) v%1$d[u] = load_apart<%2$s, VL>(m%1$d + "
                         "o%1$d + (r0 + u * down) * s[%3$d], s[%4$d], r0 + u * down < past ? n : 0);\n",
                         i, type, along_stride(part, i), inner_stride(part, i));
        }
    }
}

/* What element j, of vector u, adds to the reductions of a stage. */
static void print_additions(const tni_gpu_part *part, int32_t stage) {
    for (int32_t i = 0; i < part->p->g->n; i++) {
        if (!tni_gpu_upright_reduces(part, i, stage)) continue;
        const tni_gnode *node = tni_gpu_node_of(part, i);
        const int lane = tni_gpu_lane_of(part, i);
        const int32_t product = node->op == TNI_P_SUM && part->deviates[i] < 0 ? tni_gpu_product_of(part, i) : -1;
        tni_text_add(part->text, "                a%d[j].add(", (int)i);
        if (product >= 0) {
            tni_gpu_factors(part, product, lane);
        } else {
            tni_emit_value(part->text, part->p, part->deviates[i] >= 0 ? part->deviates[i] : node->arg[0], lane);
        }
        tni_text_add(part->text, part->deviates[i] >= 0 ? ", inverse);\n" : ");\n");
    }
}

/* A sum of this stage that is made of means; -1: there is none. */
static int32_t find_deviating(const tni_gpu_part *part, int32_t stage) {
    int32_t found = -1;
    for (int32_t i = 0; i < part->p->g->n; i++) {
        const bool here = tni_gpu_upright_reduces(part, i, stage) && part->deviates[i] >= 0;
        if (here && (found < 0 || tni_gpu_lane_of(part, i) == TNI_LANE_F64)) found = i;
    }
    return found;
}

static void print_elements(const tni_gpu_part *part, int32_t stage) {
    const tni_planner *p = part->p;
    char further[48];
    tni_text_add(part->text, "#pragma unroll\n        for (int u = 0; u < U; u++) {\n"
                             "            const i64 r = r0 + u * down;\n");
    for (int32_t t = 0; t < p->b->n_todo; t++) {
        if (is_result(part, t, stage, true)) print_result_room(part, "            ", t);
    }
    for (int32_t i = 0; i < p->g->n && !part->streams && stage > 0; i++) {
        if (tni_gpu_is_leaf(part, i) && part->taken[i])
            tni_text_add(part->text, "            hide(v%d[u]);\n", (int)p->memory_of[i]);
    }
    tni_text_add(part->text, "            if (r < past) {\n");
    if (find_deviating(part, stage) >= 0)
        tni_text_add(part->text, "            const auto inverse = 1 / (seen += 1);\n");
    tni_text_add(part->text, "#pragma unroll\n            for (int j = 0; j < VL; j++) {\n");
    print_known(part, "                ", stage + 1);
    tni_gpu_values(part, "                ", stage, "[u]");
    print_additions(part, stage);
    for (int32_t t = 0; t < p->b->n_todo; t++) {
        if (is_result(part, t, stage, true)) print_result(part, "                ", t);
    }
    tni_text_add(part->text, "            }\n            }\n");
    for (int32_t t = 0; t < p->b->n_todo; t++) {
        if (!is_result(part, t, stage, true)) continue;
        snprintf(further, sizeof further, " + r * s[%d]", along_stride(part, p->todo_memory[t]));
        print_store(part, "            ", t, further, "r < past ? n : 0");
    }
    tni_text_add(part->text, "        }\n");
}

/* ---- stages ------------------------------------------------------------------------------------------------------ */

static void print_begin(const tni_gpu_part *part, int32_t stage) {
    for (int32_t i = 0; i < part->p->g->n; i++) {
        if (!tni_gpu_upright_reduces(part, i, stage)) continue;
        if (part->deviates[i] >= 0) {
            tni_text_add(part->text, "    moments<%s> a%d[VL];\n", reduced_text(part, i), (int)i);
        } else {
            tni_text_add(part->text, "    %s<%s, %s> a%d[VL];\n", part->longer ? "long_partial" : "short_partial",
                         tni_gpu_operation(tni_gpu_node_of(part, i)->op), reduced_text(part, i), (int)i);
        }
        tni_text_add(part->text, "#pragma unroll\n    for (int j = 0; j < VL; j++) a%d[j].begin();\n", (int)i);
    }
    const int32_t found = find_deviating(part, stage);
    if (found >= 0) tni_text_add(part->text, "    %s seen = 0;\n", reduced_text(part, found));
}

/* What threads have, put together. */
static void print_joins(const tni_gpu_part *part, int32_t stage, int *set) {
    for (int32_t i = 0; i < part->p->g->n; i++) {
        char type[32];
        if (!tni_gpu_upright_reduces(part, i, stage)) continue;
        const bool deviates = part->deviates[i] >= 0;
        const char *lane = reduced_text(part, i), *lying = NULL;
        if (part->lying) lying = "        if constexpr (MODE == 0) stand_up<across>(q, (%s *)slots, shift);\n";
        snprintf(type, sizeof type, deviates ? "moments<%s>" : "%s", lane);
        tni_text_add(part->text, "    {\n        %s q[VL];\n#pragma unroll\n        for (int j = 0; j < VL; j++) ",
                     type);
        tni_text_add(part->text, deviates ? "a%1$d[j].n = seen, q[j] = a%1$d[j];\n" : "q[j] = a%1$d[j].total();\n",
                     (int)i);
        if (lying) tni_text_add(part->text, lying, type);
        tni_text_add(part->text, "        join_upright<%1$s, across, down, %2$d>(q, (%3$s *)slots, (%3$s *)",
                     deviates ? "take_moments" : tni_gpu_operation(tni_gpu_node_of(part, i)->op), (int)part->cluster,
                     type);
        tni_text_add(part->text, part->cluster > 1 ? "shares[%d], rank);\n" : "slots, rank);\n", *set);
        tni_text_add(part->text, "#pragma unroll\n        for (int j = 0; j < VL; j++) h%d[j] = q[j]%s;\n    }\n",
                     (int)i, deviates ? ".m2" : "");
        *set = (*set + 1) % part->sets;
    }
}

static void print_stage(tni_gpu_part *part, int32_t stage, int *set) {
    print_row_values(part, stage);
    print_row_results(part, stage);
    if (!tni_gpu_upright_mark(part, stage)) return;
    print_begin(part, stage);
    if (part->streams) {
        tni_text_add(part->text, "    for (i64 tile = from; tile < past; tile += U * down) {\n"
                                 "        const i64 r0 = tile + y;\n");
        print_loads(part, part->taken);
    } else {
        tni_text_add(part->text, "    {\n");
    }
    print_elements(part, stage);
    for (int32_t i = 0; i < part->p->g->n && part->longer; i++) {
        if (tni_gpu_upright_reduces(part, i, stage) && part->deviates[i] < 0)
            tni_text_add(part->text, "        for (auto &a : a%d) a.fold();\n", (int)i);
    }
    tni_text_add(part->text, "    }\n");
    print_joins(part, stage, set);
}

void tni_emit_cuda_upright(tni_gpu_part *part) {
    int set = 0;
    tni_gpu_begin(part);
    tni_text_add(part->text, "    __shared__ u64 slots[%d];\n", (int)part->n_slots);
    if (part->cluster > 1)
        tni_text_add(part->text, "    __shared__ u64 shares[%d][%d];\n", (int)part->sets, (int)part->n_shares);
    print_places(part);
    if (!part->streams) {
        tni_text_add(part->text, "    const i64 r0 = from + y;\n");
        print_loads(part, part->needed);
    }
    print_row_room(part);
    tni_gpu_once(part, "    ");
    if (part->cluster > 1) tni_text_add(part->text, "    cluster_wait();\n");
    for (int32_t stage = 0; stage < part->stages; stage++) print_stage(part, stage, &set);
    tni_gpu_end(part);
}
