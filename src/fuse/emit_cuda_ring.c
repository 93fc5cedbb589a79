/* Rings: what blocks that walk over rows read comes through shared memory, by bulk copies, several rounds ahead. */
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

/* send(base, k): one warp has the rows of a round copied into stage k. Warps take turns with that. */
void tni_gpu_ring(const tni_gpu_part *part) {
    const tni_planner *p = part->p;
    const int last = (int)p->pass->n_dims, all = bytes_before(part, p->g->n);
    char pitch[32];
    if (!part->ring) return;
    snprintf(pitch, sizeof pitch, part->reduces ? "z[%d]" : "across * VL", last);
    tni_text_add(part->text,
                 "    constexpr bool RING = MODE > 0 && TN_BULK;\n    TN_SHARED u64 full[%d], empty[%d];\n"
                 "    char *const ring = tn_ring();\n"
                 "    const u32 pitch = (u32)%s, slot = (u32)p.slot, stages = (u32)p.stages;\n"
                 "    u32 stage = 0, phase = 0, duty = 0;\n"
                 "    auto send = [&](i64 base, u32 k) {\n        const i64 d = base + tid %% 32;\n"
                 "        if (base >= past) return;\n",
                 TNI_GPU_STAGES, TNI_GPU_STAGES, pitch);
    tni_text_add(part->text,
                 part->reduces ? "        const i64 c = 0, n = pitch;\n"
                 : part->flat  ? "        const i64 c = d * pitch, n = tn_min(length - c, (i64)pitch);\n"
                               : "        const i64 c = column * pitch, n = tn_min(z[%d] - c, (i64)pitch);\n",
                 last);
    tni_text_add(part->text,
                 "        const i64 all = %s;\n"
                 "        if (tid %% 32 == 0) tn_expect(full + k, (u32)all * %d);\n"
                 "        if (tid %% 32 >= round || d >= past) return;\n",
                 part->flat ? "tn_min(length - c, round * pitch)" /* the last stretch may be shorter */
                            : "tn_min(past - base, round) * n",
                 all);
    tni_gpu_row_begin(part, "        ", "d");
    for (int32_t i = 0; i < p->g->n; i++) {
        if (!tni_gpu_is_moving(part, i)) continue;
        const int m = (int)p->memory_of[i], size = (int)tn_type_size(tni_gpu_type_of(part, i));
        tni_text_add(
            part->text,
            "        tn_bulk(ring + (k * %d + %d) * slot + tid %% 32 * pitch * %d, m%d + o%d + c, (u32)n * %d, "
            "full + k);\n",
            all, bytes_before(part, i), size, m, m, size);
    }
    tni_text_add(part->text,
                 "    };\n    if constexpr (RING) {\n"
                 "        if (tid == 0) tn_ring_begin(full, empty, stages, (u32)p.threads);\n        tn_sync();\n"
                 "        for (u32 k = 0; k < stages && tid < 32; k++) send(first + k * step, k);\n    }\n");
}

static const char next_stage[] = "            if (++stage == stages) stage = 0, phase ^= 1;\n"
                                 "            if (++duty == p.threads / 32) duty = 0;\n";

/* Without barriers: the stage of the round before is filled again when every warp has taken what it had. */
void tni_gpu_ring_next(const tni_gpu_part *part) {
    if (part->ring)
        tni_text_add(part->text, "        if constexpr (RING) {\n            if (tid / 32 == duty && base != first) {\n"
                                 "                const u32 before = stage ? stage - 1 : stages - 1;\n"
                                 "                tn_wait(empty + before, stage ? phase : phase ^ 1);\n"
                                 "                send(base + (stages - 1) * step, before);\n            }\n"
                                 "            tn_wait(full + stage, phase);\n        }\n");
}

void tni_gpu_ring_release(const tni_gpu_part *part) {
    if (part->ring)
        tni_text_add(part->text, "        if constexpr (RING) {\n            tn_release(empty + stage);\n%s        }\n",
                     next_stage);
}

/* Behind a barrier, if there was one. */
void tni_gpu_ring_refill(const tni_gpu_part *part, bool synced) {
    if (part->ring)
        tni_text_add(part->text,
                     "        if constexpr (RING) {\n            %stn_sync();\n"
                     "            if (tid / 32 == duty) send(base + stages * step, stage);\n%s        }\n",
                     synced ? "if (across <= 32) " : "", next_stage);
}

/* A vector of an element's leaf: from the ring, or from its memory. */
void tni_gpu_take(const tni_gpu_part *part, int32_t node, const char *at, const char *count) {
    const tni_planner *p = part->p;
    const int m = (int)p->memory_of[node];
    if (part->ring && !p->fixed[node]) {
        const char *type = tni_emit_memory(tni_gpu_type_of(part, node));
        tni_text_add(
            part->text,
            "            if constexpr (RING) v%d[u] = tn_near<%s, VL>(ring + (stage * %d + %d) * slot + (%s) * %d, "
            "%s);\n            else v%d[u] = ",
            m, type, bytes_before(part, p->g->n), bytes_before(part, node),
            part->reduces ? "y * pitch + (u32)c" : "(y + u * (u32)p.down) * pitch + x * VL",
            (int)tn_type_size(tni_gpu_type_of(part, node)), count, m);
    } else {
        tni_text_add(part->text, "            v%d[u] = ", m);
    }
    tni_gpu_vector(part, node, at, count);
    tni_text_add(part->text, ";\n");
}
