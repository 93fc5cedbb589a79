/* What kernels of both forms are made of: nodes, memory, results. Names in the text: m<i> memory, o<i> where the row
 * begins in it, v<i> what was loaded of it, t<n> the value of a node, x<n> a row's value as it was loaded, a<n> a row
 * reduction under way, y<t> what is stored, r<i> a sum. */
#include <math.h>
#include <stdio.h>

#include "gpu.h"

const char *tni_gpu_operation(int op) {
    if (op == TNI_P_PROD) return "take_product";
    return op == TNI_P_RMAX ? "take_max_nan" : op == TNI_P_RMIN ? "take_min_nan" : "take_sum";
}

/* Partial results are in the lane itself: f32, f64, i64. */
static const char *sum_text(const tni_accumulator *acc) {
    return tni_emit_lane(acc->lane == TNI_LANE_BOOL ? TNI_LANE_INT : acc->lane);
}

static int64_t step_of(const tni_gpu_part *part, int32_t i) {
    return part->p->pass->memory[i].strides[part->p->pass->n_dims];
}

bool tni_gpu_has_todo(const tni_gpu_part *part, int32_t t) {
    const tni_item_todo *todo = &part->p->b->todo[t];
    if (!tni_in_pass(part->p->b, part->p->pass, todo)) return false;
    if (!todo->gathers) return part->main;
    for (int32_t i = 0; i < part->n_sums; i++) {
        if (part->sums[i] == part->p->todo_memory[t]) return true;
    }
    return false;
}

/* Rows' and single values that update inputs wait until every block has read them. */
bool tni_gpu_waits(const tni_gpu_part *part, int32_t t) {
    const tni_item_todo *todo = &part->p->b->todo[t];
    bool updates = !todo->gathers && todo->output >= 0 && tni_updated_by(part->p->b, todo->output) >= 0;
    return updates && !part->reduces && tni_level_of_todo(part->p, t) != TNI_ELEMENT;
}

bool tni_gpu_is_leaf(const tni_gpu_part *part, int32_t node) {
    const tni_planner *p = part->p;
    return part->needed[node] && p->memory_of[node] >= 0 && p->level[node] == TNI_ELEMENT &&
           tni_gpu_node_of(part, node)->op != TNI_P_RAND && !tni_gpu_is_index(part, node);
}

bool tni_gpu_reduces_now(const tni_gpu_part *part, int32_t node, int32_t stage) {
    const tni_planner *p = part->p;
    bool here = part->needed[node] && tni_gpu_node_of(part, node)->op != TNI_P_CONST && p->memory_of[node] < 0;
    return here && tni_reduces_rows(p, node) && p->stage[node] == stage + 1 && !part->along[node];
}

/* ---- the beginning ----------------------------------------------------------------------------------------------- */

void tni_gpu_offsets(const tni_gpu_part *part, const char *margin, uint32_t mask, const char *from) {
    const tni_pass *pass = part->p->pass;
    int32_t first = -1;
    for (int32_t d = pass->n_dims - 1; d >= 0; d--) {
        if (mask >> d & 1) first = d;
    }
    if (first < 0) return;
    tni_text_add(part->text, "%s{ i64 q = %s;", margin, from);
    for (int32_t d = pass->n_dims - 1; d >= 0; d--) {
        if (!(mask >> d & 1)) continue;
        if (d == first) {
            tni_text_add(part->text, " const i64 k = q;");
        } else {
            tni_text_add(part->text, " { const i64 k = divide(q, z[%d]);", (int)d);
        }
        for (int32_t i = 0; i < part->offsets; i++) {
            if (part->used[i])
                tni_text_add(part->text, " o%d += k * s[%d];", (int)i, (int)(i * (pass->n_dims + 1) + d));
        }
        tni_text_add(part->text, d == first ? "" : " }");
    }
    tni_text_add(part->text, " }\n");
}

/* Each row starts where its kept part does. */
void tni_gpu_row_begin(const tni_gpu_part *part, const char *margin, const char *from) {
    const uint32_t reduced = ((1u << part->p->pass->n_dims) - 1) & ~part->kept;
    for (int32_t i = 0; i < part->offsets; i++) {
        if (part->used[i]) tni_text_add(part->text, "%si64 o%d = b%d;\n", margin, (int)i, (int)i);
    }
    tni_gpu_offsets(part, margin, reduced, from);
}

/* Blocks that have one row after the other take turns with two sets: while some threads still read one, others may have
 * gone on to the next row. */
void tni_gpu_slots(const tni_gpu_part *part) {
    if (!part->n_slots) return;
    const bool turns = part->reduces && (part->walks || part->cuts);
    tni_text_add(part->text, "    __shared__ u64 slots[%d][32];\n%s", (int)part->n_slots * (turns ? 2 : 1),
                 turns && !part->cuts ? "    u32 set = 0;\n" : "");
    if ((part->cluster > 1 || part->cuts) && part->reduces)
        tni_text_add(part->text, "    __shared__ u64 shares[%d][%d];\n", (int)part->n_slots * (turns ? 2 : 1),
                     TNI_GPU_CLUSTER);
}

/* Before a kernel whose results are rounded to bf16, and behind it: `#define tn_exp tn_exp_coarse`. */
static void print_coarse(const tni_gpu_part *part, bool begins) {
    for (int op = 0; op < TNI_PRIMS && part->coarse; op++) {
        const char *name = tni_prims[op].coarse;
        if (!name) continue;
        tni_text_add(part->text, begins ? "#define %1$s %1$s_coarse\n" : "#undef %1$s\n", name);
    }
}

static void print_seed(const tni_gpu_part *part, int32_t node) {
    const tn_view *seed = part->p->b->call->in[tni_gpu_node_of(part, node)->ref].views;
    int i = (int)part->p->memory_of[node];
    tni_text_add(part->text, "    const i64 key%d = m%d[0], more%d = m%d[%lld];\n", (int)node, i, (int)node, i,
                 (long long)seed->strides[0]);
}

/* Which part of the work a block has: rows from `first` on, one round of the block in each step. */
static const char place[] =
    "    const u32 tid = threadIdx.x, across = (u32)p.across, x = tid % across, y = tid / across;\n"
    "    const u32 far = block / (u32)p.columns;\n"
    "    const i64 column = block % (u32)p.columns;\n"
    "    const i64 piece = far % (u32)p.pieces, at = far / (u32)p.pieces, length = z[0];\n"
    "    const i64 first = piece * round, step = p.pieces * round, past = p.rows;\n"
    "    (void)at, (void)column, (void)length, (void)step;\n";
/* Rows that are reduced: how many threads have one is a constant, which saves divisions. */
static const char row_place[] =
    "    constexpr u32 across = %d;\n    const u32 tid = threadIdx.x, x = tid %% across, y = tid / across;\n"
    "    const i64 piece = %s, at = %s, round = p.down;\n"
    "    const i64 first = piece * round, step = p.pieces * round, past = p.rows;\n    (void)at, (void)step;\n";
/* A block of a cluster has some columns of a row; the last ones may have none. */
static const char cluster_place[] =
    "    const u32 column = cluster_rank();\n"
    "    const i64 from = column * p.width;\n    const int have = (int)tn_max(tn_min(p.width, z[%d] - from), (i64)0);\n"
    "    cluster_begin();\n";
/* Of a row that is cut it has some of the cuts. */
static const char cut_place[] = "    const u32 column = cluster_rank();\n    cluster_begin();\n";
/* Rows that stand upright: a thread has VL of them, and a block of a cluster some of their elements. */
static const char upright_place[] =
    "    constexpr u32 across = %1$d, down = %2$d;\n"
    "    const u32 tid = threadIdx.x, x = tid %% across, y = tid / across;\n"
    "    const i64 outer = block / (u32)p.columns, c = ((i64)(block %% (u32)p.columns) * (across%6$s) + x) * VL;\n"
    "    const int n = %7$scount_left<MODE>(c, z[%3$d], VL);\n    const u32 rank = %4$s;\n"
    "    const i64 from = rank * p.width, past = tn_min(from + p.width, z[%3$d + 1]);\n    (void)outer;\n%5$s";
/* Without one it has all of them, which may be more than an int counts. */
static const char no_cluster_place[] =
    "    const u32 column = 0;\n    const %1$s have = (%1$s)z[%2$d];\n    (void)column;\n";
/* One long row: a block has a stretch of it. */
static const char flat_place[] = "    const u32 tid = threadIdx.x, across = (u32)p.across, x = tid, y = 0;\n"
                                 "    const i64 column = 0, piece = block, at = 0, length = z[0], round = U;\n"
                                 "    const i64 first = piece * round, step = p.pieces * round, past = p.rows;\n"
                                 "    (void)at, (void)column, (void)step;\n";
/* The last tensor that begins at this block or before it; its rows are stretches of it. */
static const char list_place[] =
    "    const u32 tid = threadIdx.x, across = (u32)p.across, x = tid, y = 0;\n    const i64 round = U;\n"
    "    u32 part = 0;\n"
    "    for (u32 step = 32; step; step /= 2) {\n"
    "        if (part + step < (u32)p.parts && p.begin[part + step] <= block) part += step;\n"
    "    }\n"
    "    const i64 column = 0, piece = p.piece + block, length = p.length[part];\n"
    "    const i64 first = (block - p.begin[part]) * p.span, rows = length ? (length - 1) / (across * VL) + 1 : 1;\n"
    "    const i64 past = first + p.span < rows ? first + p.span : rows, step = round;\n    (void)column, "
    "(void)step;\n";

static void print_memory(const tni_gpu_part *part) {
    const tni_pass *pass = part->p->pass;
    int32_t slot[TNI_FUSE_NODES + 2 * TNI_MAX_ARGS];
    if (part->list) tni_gpu_list_memory(pass, slot);
    for (int32_t i = 0; i < pass->n_memory; i++) {
        const char *type = tni_emit_memory(pass->memory[i].type);
        if (!part->used[i] || pass->memory[i].where == TNI_FROM_PLACE) continue;
        if (part->list && slot[i] >= 0) {
            tni_text_add(part->text, "    %s *const m%d = (%s *)p.lists[part][%d];\n", type, (int)i, type,
                         (int)slot[i]);
        } else {
            tni_text_add(part->text, "    %s *const m%d = (%s *)p.memory[%d];\n", type, (int)i, type, (int)i);
        }
    }
}

void tni_gpu_begin(const tni_gpu_part *part) {
    const tni_planner *p = part->p;
    const tni_pass *pass = p->pass;
    int32_t width = pass->n_dims + 1;
    print_coarse(part, true);
    tni_text_add(
        part->text,
        "\ntemplate <int VL, int U, int MODE> TN_DEVICE void tn_body_%d_%d(const tn_params_%d &p, u32 block) {\n"
        "    const i64 (&s)[%d] = p.s;\n    const i64 (&z)[%d] = p.z;\n    (void)s, (void)z;\n",
        (int)part->index, (int)part->number, (int)part->index, (int)(part->offsets * width),
        (int)(width + p->b->program->n_counts));
    if (part->list || part->flat || part->spread) {
        tni_text_add(part->text, "%s", part->list ? list_place : flat_place);
    } else if (part->upright) {
        const bool alone = part->cluster == 1;
        tni_text_add(part->text, upright_place, (int)part->lanes, (int)part->down, (int)pass->n_dims - 1,
                     alone ? "0" : "cluster_rank()", alone ? "" : "    cluster_begin();\n",
                     part->lying ? " - (MODE == 0)" : "", part->lying ? "MODE == 0 && x == across - 1 ? 0 : " : "");
    } else if (part->reduces) {
        tni_text_add(part->text, row_place, (int)part->lanes, part->kept ? "block % (u32)p.pieces" : "block",
                     part->kept ? "block / (u32)p.pieces" : "0");
        if (part->cuts) {
            tni_text_add(part->text, "%s", cut_place);
        } else if (part->cluster > 1) {
            tni_text_add(part->text, cluster_place, (int)pass->n_dims);
        } else {
            tni_text_add(part->text, no_cluster_place, part->streams ? "i64" : "int", (int)pass->n_dims);
        }
    } else {
        tni_text_add(part->text, "    const i64 round = %s;\n%s", part->wide ? "p.down" : "U * p.down", place);
    }
    print_memory(part);
    for (int32_t i = 0; i < part->offsets; i++) {
        bool number = part->list && i == part->offsets - 1;
        if (part->used[i]) tni_text_add(part->text, "    i64 b%d = %s;\n", (int)i, number ? "p.number[part]" : "0");
    }
    if (part->kept) {
        tni_text_add(part->text, "    {\n");
        for (int32_t i = 0; i < part->offsets; i++) {
            if (part->used[i]) tni_text_add(part->text, "    i64 &o%d = b%d;\n", (int)i, (int)i);
        }
        tni_gpu_offsets(part, "    ", part->kept, "at");
        tni_text_add(part->text, "    }\n");
    }
    for (int32_t i = 0; i < p->g->n; i++) {
        if (part->needed[i] && tni_gpu_node_of(part, i)->op == TNI_P_RAND) print_seed(part, i);
    }
    for (int32_t i = 0; i < part->n_sums; i++) {
        const tni_accumulator *acc = &pass->accumulators[part->sums[i]];
        bool along = acc->strides[pass->n_dims] != 0;
        if (along && part->streams) continue;
        if (acc->deviates) {
            tni_text_add(part->text, "    deviation_partial<%1$s> r%2$d;\n    r%2$d.begin();\n", sum_text(acc),
                         (int)part->sums[i]);
            continue;
        }
        tni_text_add(part->text, "    %s<%s, %s> r%d%s;\n", part->longer ? "long_partial" : "short_partial",
                     tni_gpu_operation(acc->op), sum_text(acc), (int)part->sums[i],
                     !along          ? ""
                     : part->reduces ? "[U][VL]"
                                     : "[VL]");
        if (!along) {
            tni_text_add(part->text, "    r%d.begin();\n", (int)part->sums[i]);
        } else if (part->reduces) {
            tni_text_add(
                part->text,
                "#pragma unroll\n    for (int u = 0; u < U; u++) {\n#pragma unroll\n        for (int j = 0; j < "
                "VL; j++) r%d[u][j].begin();\n    }\n",
                (int)part->sums[i]);
        } else {
            tni_text_add(part->text, "#pragma unroll\n    for (int j = 0; j < VL; j++) r%d[j].begin();\n",
                         (int)part->sums[i]);
        }
    }
}

void tni_gpu_once(const tni_gpu_part *part, const char *margin) {
    for (int32_t i = 0; i < part->p->g->n; i++) {
        bool once = part->needed[i] && part->p->level[i] == TNI_ONCE && tni_gpu_node_of(part, i)->op != TNI_P_CONST;
        if (once) tni_gpu_node(part, margin, i);
    }
}

/* What sums of f32 have lost is put beside them now and then. */
void tni_gpu_fold(const tni_gpu_part *part) {
    if (!part->longer) return;
    tni_text_add(part->text, "        if (++turn %% 32 == 0) {\n");
    for (int32_t k = 0; k < part->n_sums; k++) {
        const tni_accumulator *acc = &part->p->pass->accumulators[part->sums[k]];
        bool along = acc->strides[part->p->pass->n_dims] != 0;
        const char *form = !along ? "            r%d.fold();\n"
                           : part->reduces
                               ? "            for (auto &u : r%d)\n                for (auto &r : u) r.fold();\n"
                               : "            for (auto &r : r%d) r.fold();\n";
        if (!(along && part->streams)) tni_text_add(part->text, form, (int)part->sums[k]);
    }
    tni_text_add(part->text, "        }\n");
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

const char *tni_gpu_alike(const tni_gpu_part *part, int32_t memory) {
    return memory == part->reference && !part->n_sums ? "true" : "MODE == 3";
}

void tni_gpu_vector(const tni_gpu_part *part, int32_t node, const char *at, const char *count) {
    int32_t i = part->p->memory_of[node];
    const char *type = tni_emit_memory(part->p->pass->memory[i].type);
    if (step_of(part, i) == 1) {
        bool again = part->reduces && part->p->fixed[node]; /* by the next block */
        const char *form = again ? "load_kept" : part->shifted ? "load_places" : "load_vector";
        tni_text_add(part->text, "%s<%s, VL, MODE>(m%d + %s%d + c, %s)", form, type, (int)i, at, (int)i, count);
    } else if (part->p->pass->memory[i].stretched) {
        tni_text_add(part->text, "load_stretched<%s, VL>(m%d + %s%d, c, s[%d], %s)", type, (int)i, at, (int)i,
                     (int)(i * (part->p->pass->n_dims + 1) + part->p->pass->n_dims), count);
    } else {
        int width = part->p->pass->n_dims + 1;
        tni_text_add(part->text, "load_apart<%s, VL>(m%d + %s%d + c * s[%d], s[%d], %s)", type, (int)i, at, (int)i,
                     (int)i * width + width - 1, (int)i * width + width - 1, count);
    }
}

/* A row's values as they are in memory, of all rows that are under way. */
void tni_gpu_row_loads(const tni_gpu_part *part, const char *margin, const char *index, const char *there) {
    const tni_planner *p = part->p;
    for (int32_t i = 0; i < p->g->n; i++) {
        if (!part->needed[i] || p->memory_of[i] < 0 || p->level[i] != TNI_ROW || tni_gpu_is_index(part, i)) continue;
        const int m = (int)p->memory_of[i];
        const char *type = tni_emit_memory(p->pass->memory[m].type);
        if (part->reduces) tni_text_add(part->text, "%s%s x%d;\n", margin, type, (int)i);
        tni_text_add(part->text, "%sx%d%s = %s ? m%d[o%d] : %s{};\n", margin, (int)i, index, there, m, m, type);
    }
}

void tni_gpu_random(const tni_gpu_part *part, const char *margin) {
    const tni_planner *p = part->p;
    for (int32_t i = 0; i < p->g->n; i++) {
        if (!part->taken[i] || tni_gpu_node_of(part, i)->op != TNI_P_RAND) continue;
        tni_text_add(part->text, "%sf32 w%d[VL];\n%srandom_numbers(key%d, more%d, %lldLL, o%d + c, w%d);\n", margin,
                     (int)i, margin, (int)i, (int)i, (long long)tni_gpu_node_of(part, i)->value, (int)part->offsets - 1,
                     (int)i);
    }
}

/* The lane that is stored from: f64 is rounded to 16 bits at once. */
int tni_gpu_lane_for_store(const tni_gpu_part *part, int32_t node, tn_type type) {
    bool half = type == TN_F16 || type == TN_BF16;
    bool wide = half && tni_gpu_node_of(part, node)->op != TNI_P_CONST && tni_gpu_lane_of(part, node) == TNI_LANE_F64;
    return wide ? TNI_LANE_F64 : tni_lane_of(part->p->g, type);
}

/* A sum that keeps columns of rows too long for registers: its place in memory belongs to a thread. */
static bool keeps_in_memory(const tni_gpu_part *part, const tni_accumulator *acc) {
    return part->streams && acc->strides[part->p->pass->n_dims] != 0;
}

static void print_sum(const tni_gpu_part *part, const char *margin, int32_t t, const char *index, bool row) {
    const tni_planner *p = part->p;
    int32_t i = p->todo_memory[t];
    const tni_accumulator *acc = &p->pass->accumulators[i];
    bool along = acc->strides[p->pass->n_dims] != 0;
    tni_text_add(part->text, "%s", margin);
    if (keeps_in_memory(part, acc)) {
        tni_text_add(part->text, "if (is_in<MODE>(j, n)) h%d[u][j] = %s::of(h%d[u][j], (%s)", (int)i,
                     tni_gpu_operation(acc->op), (int)i, sum_text(acc));
    } else {
        if (!row) tni_text_add(part->text, "if (is_in<MODE>(j, n)) ");
        int32_t product = tni_gpu_product_of(part, p->b->todo[t].node);
        tni_text_add(part->text, "r%d%s%s.add(", (int)i, along && part->reduces ? index : "", along ? "[j]" : "");
        if (product >= 0) {
            tni_gpu_factors(part, product, acc->lane);
            tni_text_add(part->text, ");\n");
            return;
        }
        tni_text_add(part->text, "(%s)", sum_text(acc));
    }
    tni_emit_value(part->text, p, tni_todo_node(p, &p->b->todo[t]), acc->lane);
    tni_text_add(part->text, ");\n");
}

static bool is_result(const tni_gpu_part *part, int32_t t, int32_t stage, bool elements) {
    if (!tni_gpu_has_todo(part, t) || tni_gpu_waits(part, t)) return false;
    if (part->reduces && tni_stage_of_todo(part->p, t) != stage) return false;
    return (tni_level_of_todo(part->p, t) == TNI_ELEMENT) == elements;
}

static bool is_kept_sum(const tni_gpu_part *part, int32_t t, int32_t stage) {
    const tni_planner *p = part->p;
    return is_result(part, t, stage, true) && p->b->todo[t].gathers &&
           keeps_in_memory(part, &p->pass->accumulators[p->todo_memory[t]]);
}

void tni_gpu_sum_loads(const tni_gpu_part *part, int32_t stage) {
    const tni_pass *pass = part->p->pass;
    for (int32_t t = 0; t < part->p->b->n_todo; t++) {
        if (!is_kept_sum(part, t, stage)) continue;
        const int i = (int)part->p->todo_memory[t], at = (int)(pass->n_memory + i + 1) * (pass->n_dims + 1) - 1;
        tni_text_add(part->text, "        vec<%s, VL> h%d[U];\n#pragma unroll\n        for (int u = 0; u < U; u++) {\n",
                     sum_text(&pass->accumulators[i]), i);
        tni_gpu_place(part, "left");
        tni_text_add(part->text,
                     "            h%1$d[u] = load_totals<VL>(g%1$d + c * s[%2$d], s[%2$d], n);\n        }\n", i, at);
    }
}

void tni_gpu_stores(const tni_gpu_part *part, const char *margin, int32_t stage) {
    const tni_planner *p = part->p;
    int width = p->pass->n_dims + 1;
    for (int32_t t = 0; t < p->b->n_todo; t++) {
        int i = (int)p->todo_memory[t];
        if (is_kept_sum(part, t, stage)) {
            const int at = (int)(p->pass->n_memory + i + 1) * width - 1;
            tni_text_add(part->text, "%skeep_totals(g%d + c * s[%d], s[%d], h%d[u], n);\n", margin, i, at, at, i);
        }
        if (!is_result(part, t, stage, true) || p->b->todo[t].gathers) continue;
        const char *type = tni_emit_memory(p->pass->memory[i].type);
        if (step_of(part, i) == 1 && part->odd) {
            tni_text_add(part->text, "%sstore_shifted<%s, VL, %s>(m%d + o%d + c, y%d, n);\n", margin, type,
                         tni_gpu_alike(part, i), i, i, (int)t);
        } else if (step_of(part, i) == 1) {
            tni_text_add(part->text,
                         part->reduces ? "%sstore_row<across, %s, VL, MODE>(m%d + o%d + c, y%d, n);\n"
                                       : "%sstore_vector<%s, VL, MODE>(m%d + o%d + c, y%d, n);\n",
                         margin, type, i, i, (int)t);
        } else {
            tni_text_add(part->text, "%sstore_apart<%s, VL>(m%d + o%d + c * s[%d], s[%d], y%d, n);\n", margin, type, i,
                         i, i * width + width - 1, i * width + width - 1, (int)t);
        }
    }
}

/* The element values that `taken` has, of element j. */
void tni_gpu_values(const tni_gpu_part *part, const char *inner, int32_t stage, const char *index) {
    const tni_planner *p = part->p;
    char what[64];
    for (int32_t i = 0; i < p->g->n; i++) {
        if (!part->taken[i] || p->level[i] != TNI_ELEMENT || tni_gpu_node_of(part, i)->op == TNI_P_CONST) continue;
        if (part->saved[i] && part->made[i] < stage) {
            tni_text_add(part->text, "%sconst %s t%d = k%d[u][j];\n", inner, tni_emit_lane(tni_gpu_lane_of(part, i)),
                         (int)i, (int)i);
        } else if (tni_gpu_node_of(part, i)->op == TNI_P_RAND) {
            tni_text_add(part->text, "%sconst %s t%d = w%d[j];\n", inner, tni_emit_lane(tni_gpu_lane_of(part, i)),
                         (int)i, (int)i);
        } else if (tni_gpu_is_index(part, i) && part->upright) {
            const int m = (int)p->memory_of[i], last = (m + 1) * (int)(p->pass->n_dims + 1) - 1;
            tni_text_add(part->text, "%sconst i64 t%d = o%d + r * s[%d] + j * s[%d];\n", inner, (int)i, m, last,
                         last - 1);
        } else if (tni_gpu_is_index(part, i)) {
            const int m = (int)p->memory_of[i], width = (int)p->pass->n_dims + 1;
            tni_text_add(part->text, "%sconst i64 t%d = o%d + (c + j) * s[%d];\n", inner, (int)i, m,
                         m * width + width - 1);
        } else if (tni_gpu_is_leaf(part, i)) {
            snprintf(what, sizeof what, "widen_at(v%d%s, j)", (int)p->memory_of[i],
                     p->fixed[i] && !part->reduces ? "" : index);
            tni_text_add(part->text, "%sconst %s t%d = ", inner, tni_emit_lane(tni_gpu_lane_of(part, i)), (int)i);
            tni_gpu_loaded(part, i, what);
            tni_text_add(part->text, ";\n");
        } else if (!tni_reduces_rows(p, i)) {
            tni_gpu_node(part, inner, i);
        }
        if (part->saved[i] && part->made[i] == stage)
            tni_text_add(part->text, "%sk%d[u][j] = t%d;\n", inner, (int)i, (int)i);
    }
}

void tni_gpu_results(const tni_gpu_part *part, const char *margin, int32_t stage) {
    const tni_planner *p = part->p;
    for (int32_t t = 0; t < p->b->n_todo; t++) {
        if (!is_result(part, t, stage, true) || p->b->todo[t].gathers) continue;
        tn_type type = p->pass->memory[p->todo_memory[t]].type;
        int lane = tni_gpu_lane_for_store(part, tni_todo_node(p, &p->b->todo[t]), type);
        tni_text_add(part->text, "%s%s y%d[VL];\n", margin, tni_emit_lane(lane), (int)t);
    }
}

void tni_gpu_element_loop(const tni_gpu_part *part, const char *margin, int32_t stage, const char *index,
                          const char *guard) {
    const tni_planner *p = part->p;
    char inner[64];
    snprintf(inner, sizeof inner, "%s    ", margin);
    tni_text_add(part->text, "#pragma unroll\n%sfor (int j = 0; j < VL; j++) {\n%s", margin, guard);
    tni_gpu_values(part, inner, stage, index);
    for (int32_t i = 0; i < p->g->n; i++) {
        if (!tni_gpu_reduces_now(part, i, stage)) continue;
        const tni_gnode *n = tni_gpu_node_of(part, i);
        int lane = tni_gpu_lane_of(part, i);
        int32_t product = n->op == TNI_P_SUM ? tni_gpu_product_of(part, i) : -1;
        tni_text_add(part->text, "%sif (is_in<MODE>(j, n)) a%d%s.add(", inner, (int)i, part->odd ? "[j]" : "");
        if (product >= 0) {
            tni_gpu_factors(part, product, lane);
        } else {
            tni_emit_value(part->text, p, n->arg[0], lane);
        }
        tni_text_add(part->text, ");\n");
    }
    for (int32_t t = 0; t < p->b->n_todo; t++) {
        if (!is_result(part, t, stage, true)) continue;
        if (p->b->todo[t].gathers) {
            print_sum(part, inner, t, index, false);
            continue;
        }
        int32_t node = tni_todo_node(p, &p->b->todo[t]);
        tni_text_add(part->text, "%sy%d[j] = ", inner, (int)t);
        tni_emit_value(part->text, p, node,
                       tni_gpu_lane_for_store(part, node, p->pass->memory[p->todo_memory[t]].type));
        tni_text_add(part->text, ";\n");
    }
    tni_text_add(part->text, "%s}\n", margin);
}

void tni_gpu_elements(const tni_gpu_part *part, const char *margin, int32_t stage, const char *index) {
    tni_gpu_results(part, margin, stage);
    tni_text_add(part->text, "%sif (MODE != 2 || n > 0) {\n", margin);
    tni_gpu_element_loop(part, margin, stage, index, "");
    tni_gpu_stores(part, margin, stage);
    tni_text_add(part->text, "%s}\n", margin);
}

/* Into memory that has one element for a row; o<i> is where. */
void tni_gpu_put(const tni_gpu_part *part, const char *margin, int32_t t) {
    const tni_planner *p = part->p;
    int i = (int)p->todo_memory[t];
    int32_t node = tni_todo_node(p, &p->b->todo[t]);
    tni_text_add(part->text, "%snarrow(", margin);
    tni_emit_value(part->text, p, node, tni_gpu_lane_for_store(part, node, p->pass->memory[i].type));
    tni_text_add(part->text, ", m%d[o%d]);\n", i, i);
}

void tni_gpu_row_results(const tni_gpu_part *part, const char *margin, int32_t stage, const char *condition) {
    const tni_planner *p = part->p;
    char inner[64];
    bool any = false;
    snprintf(inner, sizeof inner, "%s    ", margin);
    for (int32_t t = 0; t < p->b->n_todo; t++) {
        if (!is_result(part, t, stage, false)) continue;
        if (!any) tni_text_add(part->text, "%sif (%s) {\n", margin, condition);
        any = true;
        if (p->b->todo[t].gathers) {
            print_sum(part, inner, t, "", true);
        } else {
            tni_gpu_put(part, inner, t);
        }
    }
    if (any) tni_text_add(part->text, "%s}\n", margin);
}

/* Where vector u of a row begins, c, and how many of its elements, or which, are before `past`: n. Rows that are
 * streamed may be longer than an int counts. Of rows that begin anywhere all vectors but the first and the last are
 * whole: what is done with one is there twice, and once without questions. The last one may be a thread's last or,
 * where one begins before the row, the one before. A vector of two elements is asked about with those of all threads at
 * once: the question would cost as much as the vector. Vectors that are put together are asked about by warps, whose
 * lanes store together. */
static void print_column(const tni_gpu_part *part) {
    tni_text_add(part->text,
                 "            const int i = (int)((u * across + x) * VL)%s;\n            const i64 c = %si;\n",
                 part->odd ? " - (int)shift" : "", part->cluster > 1 ? "from + " : "");
}
void tni_gpu_place(const tni_gpu_part *part, const char *past) {
    if (part->cuts) {
        tni_text_add(part->text,
                     "            const int i = tile + (int)((u * across + x) * VL)%s;\n"
                     "            const i64 c = from + i;\n",
                     part->odd ? " - (int)shift" : "");
        if (!part->odd) tni_text_add(part->text, "            const int n = count_left<MODE>(i, %s, VL);\n", past);
        return;
    }
    if (part->streams) {
        tni_text_add(part->text,
                     "            const i64 i = tile + (i64)(u * across + x) * VL, c = %si;\n"
                     "            const int n = count_left<MODE>(i, (i64)%s, VL);\n",
                     part->cluster > 1 ? "from + " : "", past);
        return;
    }
    print_column(part);
    if (!part->odd) tni_text_add(part->text, "            const int n = count_left<MODE>(i, %s, VL);\n", past);
}

/* Is what is done with a vector there twice? */
static bool is_twice(const tni_gpu_part *part) {
    return part->odd || part->vector > 1;
}
void tni_gpu_some(const tni_gpu_part *part, const char *past) {
    tni_gpu_place(part, past);
    if (is_twice(part)) tni_text_add(part->text, "            auto some = [&](const int n) {\n            (void)n;\n");
}
void tni_gpu_some_end(const tni_gpu_part *part, const char *past) {
    if (!is_twice(part)) return;
    tni_text_add(part->text,
                 !part->odd
                     ? "            };\n            if (MODE == 0 && __all_sync(0xffffffffu, n == VL)) some(VL);\n"
                       "            else some(n);\n"
                 : part->vector > 2 ? "            };\n            if (i >= 0 && i + VL <= %1$s) some((1 << VL) - 1);\n"
                                      "            else if (%2$si < %1$s) some(some_left<VL>(i, %1$s));\n"
                                    : "            };\n            if (u > 0 && (int)((u + 1) * across * VL) <= %1$s) "
                                      "some((1 << VL) - 1);\n            else some(some_left<VL>(i, %1$s));\n",
                 past, part->cluster > 1 ? "" : "(u == 0 || u >= U - 2) && ");
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

static void print_partial(const tni_gpu_part *part, int32_t i) {
    const tni_pass *pass = part->p->pass;
    const tni_accumulator *acc = &pass->accumulators[i];
    const char *type = sum_text(acc);
    int at = (int)(pass->n_memory + i), step = (at + 1) * (pass->n_dims + 1) - 1;
    if (acc->strides[pass->n_dims] == 0) {
        char made[32];
        snprintf(made, sizeof made, acc->deviates ? "moments<%s>" : "%s", type);
        tni_text_add(part->text,
                     "    {\n        const %1$s total = reduce_block<%2$s>(r%3$d.total(), (u32)p.threads, (%1$s "
                     "*)slots[0]);\n        if (tid == 0) ((%1$s *)p.sums[%3$d])[(piece * p.columns + column) * "
                     "p.size[%3$d] + b%4$d] = total;\n    }\n",
                     made, acc->deviates ? "take_moments" : tni_gpu_operation(acc->op), (int)i, at);
    } else if (part->reduces) {
        if (part->lanes < 32)
            tni_text_add(part->text, "#pragma unroll\n    for (int u = 0; u < U; u++) join_rows<%s, across>(r%d[u]);\n",
                         tni_gpu_operation(acc->op), (int)i);
        tni_text_add(part->text,
                     "    if (tid %% 32 < across) {\n"
                     "        %s *const g = (%s *)p.sums[%d] + %s * p.size[%d] + b%d;\n"
                     "#pragma unroll\n        for (int u = 0; u < U; u++) {\n",
                     type, type, (int)i, part->lanes > 32 ? "piece" : "(piece * (p.threads / 32) + tid / 32)", (int)i,
                     at);
        print_column(part);
        tni_text_add(part->text, "            const int n = %s;\n",
                     part->odd ? "some_left<VL>(i, have)" : "count_left<MODE>(i, have, VL)");
        tni_text_add(part->text, "            store_totals<MODE>(g + c * s[%d], s[%d], r%d[u], n);\n        }\n    }\n",
                     step, step, (int)i);
    } else {
        tni_text_add(
            part->text,
            "    if (y < p.down) {\n        %s *const g = (%s *)p.sums[%d] + (piece * p.down + y) * p.size[%d] + b%d;\n"
            "        store_totals<MODE>(g + c * s[%d], s[%d], r%d, n);\n    }\n",
            type, type, (int)i, (int)i, at, step, step, (int)i);
    }
}

void tni_gpu_end(const tni_gpu_part *part) {
    const tni_pass *pass = part->p->pass;
    for (int32_t i = 0; i < part->n_sums; i++) {
        bool along = pass->accumulators[part->sums[i]].strides[pass->n_dims] != 0;
        if (!along || !part->streams) print_partial(part, part->sums[i]);
    }
    tni_text_add(part->text, "}\n");
    print_coarse(part, false);
}
