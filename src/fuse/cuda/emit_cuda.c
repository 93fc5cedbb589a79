/* Kernels that reduce no rows, what is done behind others, what adds partial results up, and the entries of all
 * (gpu.h). */
#include <stdio.h>
#include <string.h>

#include "gpu.h"

/* Every block has one round, of which the first row is there. */
static bool is_exact(const tni_gpu_part *part) {
    return part->flat && !part->n_sums;
}

/* One long row: where a thread's vector begins, and which of its elements are there. */
static void print_flat_place(const tni_gpu_part *part) {
    if (!part->flat) return;
    tni_text_add(part->text, part->shifted ? "            const i64 c = (d * across + x) * VL - shift;\n"
                                             "            const int n = places_left<MODE, VL>(c, length);\n"
                                           : "            const i64 c = (d * across + x) * VL;\n"
                                             "            const int n = count_left<MODE>(c, length, VL);\n");
}

static const char *there_text(const tni_gpu_part *part) {
    return is_exact(part) ? "U == 1 || d < past" : "y < p.down && d < past";
}

/* Room for what is loaded: vectors, and what there is one of for a row. */
static void print_room(const tni_gpu_part *part, const char *margin, const char *rows) {
    const tni_planner *p = part->p;
    for (int32_t i = 0; i < p->g->n; i++) {
        bool row = part->needed[i] && p->memory_of[i] >= 0 && p->level[i] == TNI_ROW && !tni_gpu_is_index(part, i);
        const char *type = p->memory_of[i] >= 0 ? tni_emit_memory(tni_gpu_type_of(part, i)) : "";
        if (tni_gpu_is_leaf(part, i) && !p->fixed[i]) {
            tni_text_add(part->text, "%svec<%s, VL> v%d[U];\n", margin, type, (int)p->memory_of[i]);
        } else if (row) {
            tni_text_add(part->text, "%s%s x%d[%s];\n", margin, type, (int)i, rows);
        }
    }
}

static void take_moving(const tni_gpu_part *part, const char *count) {
    for (int32_t i = 0; i < part->p->g->n; i++) {
        if (tni_gpu_is_moving(part, i)) tni_gpu_take(part, i, "o", count);
    }
}

/* The one dimension that is summed over. */
static int summed_dim(const tni_gpu_part *part) {
    int d = 0;
    while (part->kept >> d & 1) d++;
    return d;
}

/* Where the elements of tensors begin and end that come in pieces. */
static void print_ends(const tni_gpu_part *part) {
    const int n = part->p->pass->n_dims;
    for (int32_t k = 0; k < part->p->g->n && part->pieced; k++) {
        const int i = (int)part->p->memory_of[k];
        if (!tni_gpu_is_moving(part, k)) continue;
        tni_text_add(part->text, "    const %1$s *low%2$d = m%2$d, *high%2$d = m%2$d + 1;\n",
                     tni_emit_memory(tni_gpu_type_of(part, k)), i);
        for (int d = 0; d <= n; d++)
            tni_text_add(part->text, "    reach(low%1$d, high%1$d, (z[%2$d] - 1) * s[%3$d]);\n", i, d, i * (n + 1) + d);
    }
}

/* All vectors of a thread's rows, which are `down` apart. */
static void print_pieces(const tni_gpu_part *part) {
    const int d = summed_dim(part), width = part->p->pass->n_dims + 1;
    tni_text_add(part->text, "        const i64 left = y < p.down ? (past - base - y + p.down - 1) / p.down : 0;\n");
    for (int32_t k = 0; k < part->p->g->n; k++) {
        const int i = (int)part->p->memory_of[k];
        if (!tni_gpu_is_moving(part, k)) continue;
        tni_text_add(part->text,
                     "        load_upright<MODE, 1>(v%1$d, m%1$d + b%1$d + (base + y) * s[%2$d] + c, p.down * s[%2$d], "
                     "left, n, low%1$d, high%1$d);\n",
                     i, i * width + d);
    }
}

/* Loads of U rows, one behind the other. */
static void print_loads(const tni_gpu_part *part) {
    print_room(part, "        ", "U");
    if (part->pieced) print_pieces(part);
    tni_text_add(part->text,
                 "#pragma unroll\n        for (int u = 0; u < U; u++) {\n"
                 "            const i64 d = base + y + (i64)u * p.down;\n"
                 "            const bool there = %s;\n",
                 there_text(part));
    print_flat_place(part);
    tni_gpu_row_begin(part, "            ", "d");
    if (!part->pieced) take_moving(part, "there ? n : 0");
    tni_gpu_row_loads(part, "            ", "[u]", "there");
    tni_text_add(part->text, "        }\n");
}

void tni_emit_cuda_plain(tni_gpu_part *part) {
    const tni_planner *p = part->p;
    tni_gpu_begin(part);
    tni_gpu_slots(part);
    if (!part->flat) {
        tni_text_add(
            part->text,
            "    const i64 c = (column * across + x) * VL;\n    const int n = count_left<MODE>(c, z[%d], VL);\n",
            (int)p->pass->n_dims);
    }
    for (int32_t i = 0; i < p->g->n; i++) {
        if (!tni_gpu_is_leaf(part, i) || !p->fixed[i]) continue;
        tni_text_add(part->text, "    const vec<%s, VL> v%d = ", tni_emit_memory(tni_gpu_type_of(part, i)),
                     (int)p->memory_of[i]);
        tni_gpu_vector(part, i, "b", "n");
        tni_text_add(part->text, ";\n");
    }
    if (part->n_sums) tni_gpu_once(part, "    ");
    if (part->longer) tni_text_add(part->text, "    u32 turn = 0;\n");
    print_ends(part);
    if (part->shifted)
        tni_text_add(part->text, "    const u32 shift = MODE > 2 ? shift_of<VL>(m%d) : 0;\n", (int)part->reference);
    tni_text_add(part->text, is_exact(part) ? "    {\n        const i64 base = first;\n"
                                            : "    for (i64 base = first; base < past; base += step) {\n");
    print_loads(part);
    if (!part->n_sums) tni_gpu_once(part, "        "); /* once all the same: loads are under way by now */
    tni_text_add(part->text,
                 "#pragma unroll\n        for (int u = 0; u < U; u++) {\n"
                 "            const i64 d = base + y + (i64)u * p.down;\n"
                 "            if (!(%s)) continue;\n",
                 there_text(part));
    print_flat_place(part);
    tni_gpu_row_begin(part, "            ", "d");
    for (int32_t stage = 0; stage < p->n_stages; stage++) tni_gpu_row_nodes(part, "            ", stage);
    tni_gpu_row_results(part, "            ", 0,
                        part->flat ? "piece == 0 && d == 0 && x == 0" : "column == 0 && x == 0");
    memcpy(part->taken, part->needed, (size_t)part->p->g->n * sizeof *part->taken);
    tni_gpu_random(part, "            ");
    tni_gpu_elements(part, "            ", 0, "[u]");
    tni_text_add(part->text, "        }\n");
    tni_gpu_fold(part);
    tni_text_add(part->text, "    }\n");
    tni_gpu_end(part);
}

/* Each thread has one row, and U vectors of it. */
void tni_emit_cuda_wide(tni_gpu_part *part) {
    static const char column[] = "#pragma unroll\n    for (int u = 0; u < U; u++) {\n"
                                 "        const i64 c = ((column * U + u) * across + x) * VL;\n"
                                 "        const int n = count_left<MODE>(c, z[%d], VL);\n";
    const int width = part->p->pass->n_dims;
    tni_gpu_begin(part);
    tni_text_add(part->text, "    const i64 d = first + y;\n    const int u = 0;\n"
                             "    if (y >= p.down || d >= past) return;\n");
    tni_gpu_row_begin(part, "    ", "d");
    print_room(part, "    ", "1");
    tni_text_add(part->text, column, width);
    take_moving(part, "n");
    tni_text_add(part->text, "    }\n");
    tni_gpu_row_loads(part, "    ", "[u]", "true");
    tni_gpu_once(part, "    ");
    for (int32_t stage = 0; stage < part->p->n_stages; stage++) tni_gpu_row_nodes(part, "    ", stage);
    tni_gpu_row_results(part, "    ", 0, "column == 0 && x == 0");
    memcpy(part->taken, part->needed, (size_t)part->p->g->n * sizeof *part->taken);
    tni_text_add(part->text, column, width);
    tni_gpu_random(part, "        ");
    tni_gpu_elements(part, "        ", 0, "[u]");
    tni_text_add(part->text, "    }\n");
    tni_gpu_end(part);
}

/* Each thread has one vector, the elements up to `cut` of one row and the others of the next. */
void tni_emit_cuda_spread(tni_gpu_part *part) {
    tni_gpu_begin(part);
    tni_text_add(part->text,
                 "    const i64 width = z[%d], c = (piece * across + x) * VL;\n    const int n = count_left<MODE>(c, "
                 "past * width, "
                 "VL), u = 0;\n    (void)first, (void)length, (void)y;\n    if (n <= 0) return;\n",
                 (int)part->p->pass->n_dims);
    for (int32_t i = 0; i < part->offsets; i++) {
        if (part->used[i]) tni_text_add(part->text, "    const i64 o%d = 0;\n", (int)i);
    }
    print_room(part, "    ", "1");
    take_moving(part, "n");
    tni_gpu_once(part, "    ");
    tni_text_add(part->text, "    i64 d = c;\n    const i64 cut = width - divide(d, width);\n");
    tni_gpu_results(part, "    ", 0);
    tni_text_add(part->text, "    for (int h = 0; h < (cut < n ? 2 : 1); h++, d++) {\n");
    tni_gpu_row_begin(part, "        ", "d");
    tni_gpu_row_loads(part, "        ", "[u]", "true");
    for (int32_t stage = 0; stage < part->p->n_stages; stage++) tni_gpu_row_nodes(part, "        ", stage);
    memcpy(part->taken, part->needed, (size_t)part->p->g->n * sizeof *part->taken);
    tni_gpu_element_loop(part, "        ", 0, "[u]", "            if ((j >= cut) != h) continue;\n");
    tni_text_add(part->text, "    }\n");
    tni_gpu_stores(part, "    ", 0);
    tni_gpu_end(part);
}

/* What updates rows' and single values that other blocks read as well: a kernel of its own behind. */
void tni_emit_cuda_tail(tni_gpu_part *part) {
    const tni_planner *p = part->p;
    tni_gpu_begin(part);
    tni_gpu_once(part, "    ");
    tni_text_add(part->text, "    const i64 d = first + tid;\n    const int u = 0;\n    if (d >= past) return;\n");
    for (int32_t i = 0; i < p->g->n; i++) {
        bool row = part->needed[i] && p->memory_of[i] >= 0 && p->level[i] == TNI_ROW && !tni_gpu_is_index(part, i);
        if (row) tni_text_add(part->text, "    %s x%d[1];\n", tni_emit_memory(tni_gpu_type_of(part, i)), (int)i);
    }
    tni_gpu_row_begin(part, "    ", "d");
    tni_gpu_row_loads(part, "    ", "[u]", "true");
    for (int32_t stage = 0; stage < p->n_stages; stage++) tni_gpu_row_nodes(part, "    ", stage);
    for (int32_t t = 0; t < p->b->n_todo; t++) {
        bool here = tni_in_pass(p->b, p->pass, &p->b->todo[t]) && tni_gpu_waits(part, t);
        if (here) tni_gpu_put(part, "    ", t);
    }
    tni_gpu_end(part);
}

/* Blocks have one sum after the other. */
void tni_emit_cuda_finish(const tni_gpu_part *part) {
    tni_text_add(part->text, "TN_DEVICE void tn_finish_%d_%d(const finishes<%d> &p, i64 block) {\n", (int)part->index,
                 (int)part->number, (int)part->n_sums);
    for (int32_t i = 0; i < part->n_sums; i++) {
        const tni_accumulator *acc = &part->p->pass->accumulators[part->sums[i]];
        bool whole = acc->lane == TNI_LANE_INT || acc->lane == TNI_LANE_BOOL;
        const char *lane = whole ? "i64" : "f64", *to = lane;
        char from[32], sum[32];
        snprintf(from, sizeof from, acc->deviates ? "moments<%s>" : "%s", whole ? "i64" : tni_emit_lane(acc->lane));
        snprintf(sum, sizeof sum, acc->deviates ? "moments<%s>" : "%s", lane);
        if (acc->output >= 0) to = tni_emit_memory(part->p->b->domain.out[acc->output].type);
        tni_text_add(part->text,
                     "    if (block >= 0 && block < p.sum[%d].blocks) finish<%s, %s, %s, %s>(p.sum[%d], block);\n"
                     "    block -= p.sum[%d].blocks;\n",
                     (int)i, acc->deviates ? "take_moments" : tni_gpu_operation(acc->op), from, sum, to, (int)i,
                     (int)i);
    }
    tni_text_add(part->text, "}\n");
}

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

static void print_type(const tni_gpu_step *step, tni_text *text) {
    if (step->kind == TNI_GPU_FINISH) {
        tni_text_add(text, "finishes<%d>", (int)step->n_finish);
    } else {
        tni_text_add(text, "tn_params_%d", (int)step->pass);
    }
}

/* A block that does several steps does what blocks of theirs would, one after the other. */
static void print_call(const tni_gpu_step *step, int k, bool alone, const char *p, tni_text *text) {
    const int pass = (int)step->pass, number = (int)step->number;
    const bool walks = !alone && step->grid[k].grid != 1;
    const bool rows = step->kind == TNI_GPU_ROWS || step->kind == TNI_GPU_UPRIGHT;
    const bool together = rows && (step->cluster > 1 || step->cut);
    const char *block = !alone ? (walks ? "b" : "0") : together ? "cluster_index()" : "blockIdx.x";
    if (walks) tni_text_add(text, "    for (u32 b = 0; b < %u; b++, __syncthreads())\n    ", step->grid[k].grid);
    if (step->kind == TNI_GPU_FINISH) {
        tni_text_add(text, "    tn_finish_%d_%d(%s, %s);\n", pass, number, p, block);
    } else {
        const int vector = k == 0 || rows || step->shifted || step->pieced ? step->vector : 1;
        const int mode = step->odd ? 3 + k : k ? (step->shifted ? 3 : 0) : step->whole ? 2 : 1;
        tni_text_add(text, "    tn_body_%d_%d<%d, %d, %d>(%s, %s);\n", pass, number, vector, (int)step->unroll[k], mode,
                     p, block);
    }
}

/* Launches of a program are brought onto the GPU while the one before still runs, and wait for its results: all begin
 * with that, so that each has everything before it behind it. */
static void print_kernel(const tni_gpu_step *step, int k, bool first, bool last, tni_text *text) {
    const int32_t n = step->steps[k];
    char place[32];
    if (n > 1) {
        tni_text_add(text, "struct %s_steps {", step->name[k]);
        for (int32_t i = 0; i < n; i++) {
            tni_text_add(text, " ");
            print_type(step + i, text);
            tni_text_add(text, " p%d;", (int)i);
        }
        tni_text_add(text, " };\n");
    }
    tni_text_add(text, "TN_KERNEL(%s, %d, (TN_PARAMS(", step->name[k], (int)step->bound);
    if (n > 1) {
        tni_text_add(text, "%s_steps", step->name[k]);
    } else {
        print_type(step, text);
    }
    tni_text_add(text, ")),\n%s%s", last ? "" : "    let_next_begin();\n", first ? "" : "    wait_for_last();\n");
    for (int32_t i = 0; i < n; i++) {
        snprintf(place, sizeof place, "p.p%d", (int)i);
        if (i) tni_text_add(text, "    __syncthreads();\n");
        print_call(step + i, k, n == 1, n == 1 ? "p" : place, text);
    }
    tni_text_add(text, ")\n");
}

void tni_emit_cuda_kernels(const tni_gpu_program *made, tni_text *text) {
    for (int k = 0; k < 2; k++) {
        tni_text_add(text, "#if TN_VARIANT != %d\n", 1 - k);
        for (int32_t i = 0, n; i < made->n_steps; i += n) {
            n = made->steps[i].steps[k];
            print_kernel(&made->steps[i], k, i == 0, i + n == made->n_steps, text);
        }
        tni_text_add(text, "#endif\n");
    }
}
