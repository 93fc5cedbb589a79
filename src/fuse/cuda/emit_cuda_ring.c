/* Rings: what blocks that reduce rows and walk over them read comes through shared memory, by bulk copies, several
 * rounds ahead. */
#include <stdio.h>

#include "gpu.h"

bool tni_gpu_is_moving(const tni_gpu_part *part, int32_t node) {
    return tni_gpu_is_leaf(part, node) && !part->p->fixed[node];
}

/* Of one element of each tensor that comes through the ring, up to that of a node. */
static int bytes_before(const tni_gpu_part *part, int32_t node) {
    int bytes = 0;
    for (int32_t i = 0; i < node; i++) {
        if (tni_gpu_is_moving(part, i)) bytes += (int)tn_type_size(tni_gpu_type_of(part, i));
    }
    return bytes;
}

/* Where the tensor of rows that begin anywhere begins and ends. */
static void print_pieces(const tni_gpu_part *part, int m) {
    const int n = (int)part->p->pass->n_dims;
    tni_text_add(part->text, "    const whole_pieces w%1$d(m%1$d, m%1$d + z[%2$d]", m, n);
    for (int d = 0; d < n; d++) tni_text_add(part->text, " + (z[%d] - 1) * s[%d]", d, m * (n + 1) + d);
    tni_text_add(part->text, ");\n");
}

/* send(base, k): one warp has the rows of a round copied into stage k. Warps take turns with that. */
void tni_gpu_ring(const tni_gpu_part *part) {
    const tni_planner *p = part->p;
    const int all = bytes_before(part, p->g->n);
    if (!part->ring) return;
    for (int32_t i = 0; i < p->g->n && !part->whole; i++) {
        if (tni_gpu_is_moving(part, i)) print_pieces(part, (int)p->memory_of[i]);
    }
    tni_text_add(part->text,
                 "    constexpr bool RING = %s;\n    __shared__ u64 full[%d];\n"
                 "    char *const ring = (char *)dynamic_shared_128();\n"
                 "    const u32 slot = (u32)p.slot, stages = (u32)p.stages, pitch = slot / (u32)p.down, here = %s;\n"
                 "    u32 stage = 0, phase = 0, duty = 0;\n"
                 "    auto send = [&](i64 base, u32 k) {\n        const i64 d = base + tid %% 32;\n"
                 "        if (base >= past) return;\n"
                 "        if (tid %% 32 == 0) bulk_expect(full + k, (u32)(tn_min(past - base, round) * here) * %d);\n"
                 "        if (tid %% 32 >= round || d >= past || !here) return;\n",
                 part->whole ? "MODE > 0 && TN_BULK" : "TN_BULK", TNI_GPU_STAGES,
                 part->whole ? "(u32)have" : "have > 0 ? (u32)(have + 2 * VL - 1) / VL * VL : 0", all);
    tni_gpu_row_begin(part, "        ", "d");
    for (int32_t i = 0; i < p->g->n; i++) {
        if (!tni_gpu_is_moving(part, i)) continue;
        const int m = (int)p->memory_of[i], size = (int)tn_type_size(tni_gpu_type_of(part, i));
        char tensor[24] = "";
        if (!part->whole) snprintf(tensor, sizeof tensor, "w%d, ", m);
        tni_text_add(part->text,
                     "        %s(ring + (k * %d + %d) * slot + tid %% 32 * pitch * %d, m%d + o%d%s, here * %d, "
                     "%sfull + k);\n",
                     part->whole ? "bulk_fetch" : "fetch_row", all, bytes_before(part, i), size, m, m,
                     part->cluster > 1 ? " + from" : "", size, tensor);
    }
    tni_text_add(part->text,
                 "    };\n    if constexpr (RING) {\n        if (tid == 0) bulk_prepare(full, stages);\n"
                 "        __syncthreads();\n"
                 "        for (u32 k = 0; k < stages && tid < 32; k++) send(first + k * step, k);\n    }\n");
}

/* Behind a barrier, if there was one. */
void tni_gpu_ring_refill(const tni_gpu_part *part, bool synced) {
    if (part->ring)
        tni_text_add(part->text,
                     "        if constexpr (RING) {\n            %s__syncthreads();\n"
                     "            if (tid / 32 == duty) send(base + stages * step, stage);\n"
                     "            if (++stage == stages) stage = 0, phase ^= 1;\n"
                     "            if (++duty == p.threads / 32) duty = 0;\n        }\n",
                     synced ? "if (across <= 32) " : "");
}

/* v<i> of an element's leaf, from the ring. */
void tni_gpu_ring_take(const tni_gpu_part *part, int32_t node) {
    const tni_planner *p = part->p;
    const int m = (int)p->memory_of[node];
    const tn_type type = tni_gpu_type_of(part, node);
    char copy[112];
    snprintf(copy, sizeof copy, "ring + (stage * %d + %d) * slot + y * pitch * %d", bytes_before(part, p->g->n),
             bytes_before(part, node), (int)tn_type_size(type));
    if (part->whole) {
        tni_text_add(part->text, "#pragma unroll\n        for (int u = 0; u < U; u++) {\n");
        tni_gpu_place(part, "left");
        tni_text_add(part->text, "            v%d[u] = load_near<%s, VL>(%s + (u32)i * %d, n);\n        }\n", m,
                     tni_emit_memory(type), copy, (int)tn_type_size(type));
    } else {
        tni_text_add(part->text, "        take_row<across>(v%1$d, %2$s, m%1$d + o%1$d%3$s, left, x, w%1$d);\n", m, copy,
                     part->cluster > 1 ? " + from" : "");
    }
}

/* v<i>[u], from its memory. */
void tni_gpu_take(const tni_gpu_part *part, int32_t node, const char *at, const char *count) {
    tni_text_add(part->text, "            v%d[u] = ", (int)part->p->memory_of[node]);
    tni_gpu_vector(part, node, at, count);
    tni_text_add(part->text, ";\n");
}
