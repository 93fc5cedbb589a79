/* Rows that are read once and are longer than a block holds: what is done with their elements (gpu.h).
 *
 * Cuts of a row are reduced each by itself, and the results of all of them in one order, so that a row comes out the
 * same however many blocks share it. Of rows that begin anywhere, most vectors are whole ones of memory; the row's
 * first and last elements of a cut are added by the threads that these vectors belong to, before the others and behind
 * them: each partial result then has its elements in the order of the row (slot_partials in partials.cuh). */
#include "gpu.h"

static bool is_read(const tni_gpu_part *part, int32_t node) {
    return tni_gpu_is_leaf(part, node) && part->taken[node];
}

/* fetch(tile, u): the load of vector u of a tile begins. */
static void print_fetch(const tni_gpu_part *part) {
    for (int32_t i = 0; i < part->p->g->n; i++) {
        if (is_read(part, i))
            tni_text_add(part->text, "        vec<%s, VL> v%d[U];\n", tni_emit_memory(tni_gpu_type_of(part, i)),
                         (int)part->p->memory_of[i]);
    }
    tni_text_add(part->text, "        auto fetch = [&](const int tile, const int u) {\n");
    tni_gpu_place(part, "left");
    for (int32_t i = 0; i < part->p->g->n; i++) {
        if (!is_read(part, i)) continue;
        if (part->odd) {
            tni_text_add(
                part->text,
                "            v%1$d[u] = load_all<%2$s, VL, %3$s>(m%1$d + o%1$d + c, i >= 0 && i + VL <= left);\n",
                (int)part->p->memory_of[i], tni_emit_memory(tni_gpu_type_of(part, i)),
                part->p->fixed[i] ? "false" : tni_gpu_alike(part, part->p->memory_of[i]));
        } else {
            tni_gpu_take(part, i, "o", "n");
        }
    }
    tni_text_add(part->text, "        };\n#pragma unroll\n        for (int u = 0; u < U; u++) fetch(0, u);\n");
}

/* What is done with the vectors of a tile. As soon as one is done with, that of the next tile is on its way: compilers
 * would put off loads that are used in the same round. */
static void print_tile(const tni_gpu_part *part) {
    tni_text_add(part->text, "#pragma unroll\n        for (int u = 0; u < U; u++) {\n");
    tni_gpu_place(part, "left");
    if (part->odd)
        tni_text_add(part->text, "            constexpr int n = (1 << VL) - 1;\n            (void)c;\n"
                                 "            if (i >= 0 && i + VL <= left) {\n");
    tni_gpu_random(part, "            ");
    tni_gpu_elements(part, "            ", 0, "[u]");
    tni_text_add(part->text, "%s            fetch(tile + ROUND, u);\n        }\n", part->odd ? "            }\n" : "");
}

/* edge(i): the elements of the cut that the vector at i has. */
static void print_edge(const tni_gpu_part *part) {
    tni_text_add(part->text, "        auto edge = [&](const int i) {\n            const i64 c = from + i;\n"
                             "            const int n = some_left<VL>(i, left);\n            constexpr int u = 0;\n");
    for (int32_t i = 0; i < part->p->g->n; i++) {
        if (!is_read(part, i)) continue;
        tni_text_add(part->text,
                     "            const vec<%2$s, VL> v%1$d[1] = {load_some<%2$s, VL>(m%1$d + o%1$d + c, n)};\n",
                     (int)part->p->memory_of[i], tni_emit_memory(tni_gpu_type_of(part, i)));
    }
    tni_gpu_random(part, "            ");
    tni_gpu_elements(part, "            ", 0, "[u]");
    tni_text_add(part->text, "            (void)u;\n        };\n");
}

static void print_cut(const tni_gpu_part *part) {
    tni_text_add(part->text, "        constexpr int ROUND = U * (int)across * VL;\n");
    print_fetch(part);
    tni_gpu_partials(part, 0);
    if (part->odd) {
        print_edge(part);
        tni_text_add(part->text, "        if (x == 0 && shift > 0 && left > 0) edge(-(int)shift);\n");
    }
    tni_text_add(part->text, "        for (int tile = 0; tile < left%s; tile += ROUND) {\n",
                 part->odd ? " + (int)shift" : "");
    print_tile(part);
    for (int32_t i = 0; i < part->p->g->n && !part->odd; i++) {
        if (tni_gpu_reduces_now(part, i, 0)) tni_text_add(part->text, "        a%d.fold();\n", (int)i);
    }
    tni_text_add(part->text, "        }\n");
    if (part->odd)
        tni_text_add(part->text,
                     "        const int last = (left + (int)shift - 1) / VL; /* vector */\n"
                     "        if (last * VL + VL > left + (int)shift && (last > 0 || shift == 0) && left > 0 && "
                     "last %% across == x)\n            edge(last * VL - (int)shift);\n");
}

void tni_gpu_cut_stage(const tni_gpu_part *part) {
    const tni_planner *p = part->p;
    int slot = 0;
    tni_text_add(part->text,
                 "        const u32 each = %d / (u32)p.columns;\n"
                 "        for (u32 cut = column * each; cut < (column + 1) * each; cut++) {\n"
                 "        const u32 set = cut & 1;\n        const i64 from = cut * p.width;\n"
                 "        const int left = (int)tn_max(tn_min(p.width, z[%d] - from), (i64)0);\n",
                 (int)part->cuts, (int)p->pass->n_dims);
    print_cut(part);
    tni_gpu_reduce_block(part, 0, 0);
    tni_text_add(part->text, "        if (cut == column * each) cluster_wait();\n"); /* all have begun */
    for (int32_t i = 0; i < p->g->n; i++) {
        if (!tni_gpu_reduces_now(part, i, 0)) continue;
        tni_text_add(part->text,
                     "        if (tid < (u32)p.columns) store_cluster((%1$s *)shares[%2$d] + cut, tid, t%3$d);\n",
                     tni_emit_lane(tni_gpu_lane_of(part, i)), slot++, (int)i);
    }
    tni_text_add(part->text,
                 "        }\n        cluster_arrive();\n        cluster_wait();\n        __syncthreads();\n");
    slot = 0;
    for (int32_t i = 0; i < p->g->n; i++) {
        if (!tni_gpu_reduces_now(part, i, 0)) continue;
        tni_text_add(part->text, "        const %1$s t%2$d = reduce_few<%3$s>((const %1$s *)shares[%4$d], %5$d);\n",
                     tni_emit_lane(tni_gpu_lane_of(part, i)), (int)i, tni_gpu_operation(tni_gpu_node_of(part, i)->op),
                     slot++, (int)part->cuts);
    }
}
