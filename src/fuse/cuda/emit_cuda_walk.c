/* The step of a scan as a kernel: every thread has a line, along which it walks with `state` in a register.
 *
 * Lines that lie side by side: a thread loads U elements of its line while it computes the U before them; neighbours
 * read neighbours. Lines that lie along the walk: a block of a warp has L of them. What it reads goes through tiles of
 * shared memory, L lines by W elements, which all lanes fill with W neighbours at a time, and so do results. A row of a
 * tile has one element more, so that lanes which read one column of it meet different banks. */
#include <stdio.h>
#include <string.h>

#include "gpu_walk.h"

typedef struct walk_text {
    tni_gpu_part part; /* needed: what is computed at the place where text goes */
    const tni_gpu_walk *walk;
    const tni_gpu_walked *made;
    bool tiles; /* elements of memory that has a tile are there */
} walk_text;

static int32_t role_of(const walk_text *w, int32_t t) {
    return w->walk->role[w->part.p->b->todo[t].output];
}

/* What is stored by todos of this place is needed, and all that it is made of. */
static void mark(walk_text *w, int32_t place) {
    const tni_planner *p = w->part.p;
    memset(w->part.needed, 0, (size_t)p->g->n * sizeof *w->part.needed);
    for (int32_t t = 0; t < p->b->n_todo; t++) {
        if (tni_walk_place(role_of(w, t)) == place) w->part.needed[tni_todo_node(p, &p->b->todo[t])] = true;
    }
    for (int32_t i = p->g->n - 1; i >= 0; i--) {
        const tni_gnode *n = &p->g->nodes[i];
        for (int k = 0; k < 3 && w->part.needed[i] && p->memory_of[i] < 0 && n->arg[k] >= 0; k++)
            w->part.needed[tni_resolve(p->b, n->arg[k])] = true;
    }
}

static bool is_state(const walk_text *w, int32_t node) {
    const int32_t m = w->part.p->memory_of[node];
    return m >= 0 && m == w->made->state;
}

/* A value of an element that is loaded, not the state. */
static bool is_loaded(const walk_text *w, int32_t node) {
    return w->part.needed[node] && w->part.p->memory_of[node] >= 0 && !is_state(w, node);
}

/* t<i> of all nodes that are needed; `from` is where a loaded one is, a form of its memory's number. */
static void print_values(const walk_text *w, const char *margin, const char *from) {
    const tni_planner *p = w->part.p;
    char what[96];
    for (int32_t i = 0; i < p->g->n; i++) {
        if (!w->part.needed[i] || p->g->nodes[i].op == TNI_P_CONST) continue;
        if (p->memory_of[i] < 0) {
            tni_gpu_node(&w->part, margin, i);
            continue;
        }
        const char *lane = tni_emit_lane(tni_gpu_lane_of(&w->part, i));
        tni_text_add(w->part.text, "%sconst %s t%d = ", margin, lane, (int)i);
        if (is_state(w, i)) {
            tni_text_add(w->part.text, "state");
        } else {
            const bool tile = w->tiles && w->made->memory[p->memory_of[i]].tile;
            (void)snprintf(what, sizeof what, tile ? "tile%1$d[tid][u]" : from, (int)p->memory_of[i]);
            tni_gpu_loaded(&w->part, i, what);
        }
        tni_text_add(w->part.text, ";\n");
    }
}

/* What todo t makes: the state, or memory at `to`. */
static void print_result(const walk_text *w, const char *margin, int32_t t, const char *to) {
    const tni_planner *p = w->part.p;
    const int32_t node = tni_todo_node(p, &p->b->todo[t]);
    const tn_type type = p->pass->memory[p->todo_memory[t]].type;
    const bool half = type == TN_F16 || type == TN_BF16;
    int lane = tni_lane_of(p->g, type);
    if (half && p->g->nodes[node].op != TNI_P_CONST && tni_gpu_lane_of(&w->part, node) == TNI_LANE_F64)
        lane = TNI_LANE_F64; /* rounded to 16 bits at once */
    tni_text_put(w->part.text, margin);
    tni_text_put(w->part.text, to ? "narrow(" : "state = ");
    tni_emit_value(w->part.text, p, node, lane);
    if (to) tni_text_add(w->part.text, ", %s)", to);
    tni_text_put(w->part.text, ";\n");
}

/* The state is new when everything else has been made of the old one. */
static void print_results(const walk_text *w, const char *margin, int32_t place, const char *form) {
    const tni_planner *p = w->part.p;
    char to[96];
    int32_t state = -1;
    for (int32_t t = 0; t < p->b->n_todo; t++) {
        const int32_t m = p->todo_memory[t];
        if (tni_walk_place(role_of(w, t)) != place) continue;
        if (role_of(w, t) == TNI_WALK_BEGIN || role_of(w, t) == TNI_WALK_NEXT) {
            state = t;
            continue;
        }
        const bool tile = w->tiles && w->made->memory[m].tile;
        (void)snprintf(to, sizeof to, tile ? "tile%1$d[tid][u]" : form, (int)m);
        print_result(w, margin, t, to);
    }
    if (state >= 0) print_result(w, margin, state, NULL);
}

/* ---- the beginning ----------------------------------------------------------------------------------------------- */

static void print_params(const walk_text *w) {
    const tni_pass *pass = w->part.p->pass;
    const int width = pass->n_dims + 1, n = pass->n_memory;
    tni_text_add(
        w->part.text,
        "struct tn_params_0 {\n    char *memory[%d];\n    i64 s[%d], z[%d], along[%d], n, lines, threads;\n};\n", n,
        n * width, width, n);
}

/* o<i>: where the thread's line begins in memory i. */
static void print_line(const walk_text *w) {
    const tni_pass *pass = w->part.p->pass;
    const int width = pass->n_dims + 1;
    for (int i = 0; i < pass->n_memory; i++) {
        if (!w->made->memory[i].there) continue;
        const char *type = tni_emit_memory(pass->memory[i].type);
        tni_text_add(w->part.text, "    %s *const m%d = (%s *)p.memory[%d];\n    i64 o%d = 0;\n", type, i, type, i, i);
    }
    tni_text_put(w->part.text, "    { i64 q = line < p.lines ? line : p.lines - 1;\n");
    for (int d = pass->n_dims; d >= 0; d--) {
        tni_text_add(w->part.text, d > 0 ? "    { const i64 k = divide(q, p.z[%d]);" : "    { const i64 k = q;", d);
        for (int i = 0; i < pass->n_memory; i++) {
            if (w->made->memory[i].there) tni_text_add(w->part.text, " o%d += k * p.s[%d];", i, i * width + d);
        }
        tni_text_put(w->part.text, " }\n");
    }
    tni_text_put(w->part.text, "    }\n");
}

static void print_begin(walk_text *w) {
    const char *state = tni_emit_memory(w->part.p->pass->memory[w->made->next].type);
    tni_text_add(w->part.text, "    %s state;\n    {\n", state);
    mark(w, TNI_WALK_BEGIN);
    print_values(w, "        ", "m%1$d[o%1$d]");
    print_results(w, "        ", TNI_WALK_BEGIN, "m%1$d[o%1$d]");
    tni_text_put(w->part.text, "    }\n");
}

static void print_end(walk_text *w, const char *condition) {
    mark(w, TNI_WALK_LAST);
    tni_text_add(w->part.text, "    if (%s) {\n", condition);
    print_values(w, "        ", "m%1$d[o%1$d]");
    print_results(w, "        ", TNI_WALK_LAST, "m%1$d[o%1$d]");
    tni_text_put(w->part.text, "    }\n");
}

/* ---- lines side by side ------------------------------------------------------------------------------------------ */

/* Of U elements from `at` on, into <name><i>. */
static void print_loads(const walk_text *w, const char *margin, const char *name, const char *at) {
    const tni_planner *p = w->part.p;
    tni_text_add(w->part.text, "#pragma unroll\n%sfor (int u = 0; u < U; u++) {\n", margin);
    for (int32_t i = 0; i < p->g->n; i++) {
        if (!is_loaded(w, i)) continue;
        const int m = (int)p->memory_of[i];
        tni_text_add(w->part.text, "%s    if (%s + u < p.n) %s%d[u] = m%d[o%d + (%s + u) * p.along[%d]];\n", margin, at,
                     name, m, m, m, at, m);
    }
    tni_text_add(w->part.text, "%s}\n", margin);
}

static void print_side_by_side(walk_text *w) {
    const tni_planner *p = w->part.p;
    tni_text_put(w->part.text, "\ntemplate <int U> TN_DEVICE void tn_walk(const tn_params_0 &p, i64 line) {\n");
    print_line(w);
    tni_text_put(w->part.text, "    if (line >= p.lines) return;\n");
    print_begin(w);
    mark(w, TNI_WALK_NEXT);
    for (int32_t i = 0; i < p->g->n; i++) {
        if (!is_loaded(w, i)) continue;
        const int m = (int)p->memory_of[i];
        tni_text_add(w->part.text, "    %1$s v%2$d[U], w%2$d[U] = {};\n", tni_emit_memory(p->pass->memory[m].type), m);
    }
    print_loads(w, "    ", "w", "(i64)0");
    tni_text_put(w->part.text, "    for (i64 i = 0; i < p.n; i += U) {\n#pragma unroll\n"
                               "        for (int u = 0; u < U; u++) {\n");
    for (int32_t i = 0; i < p->g->n; i++) {
        if (is_loaded(w, i)) tni_text_add(w->part.text, "            v%1$d[u] = w%1$d[u];\n", (int)p->memory_of[i]);
    }
    tni_text_put(w->part.text, "        }\n        const i64 after = i + U;\n");
    print_loads(w, "        ", "w", "after");
    tni_text_put(w->part.text, "#pragma unroll\n        for (int u = 0; u < U; u++) {\n"
                               "            if (i + u >= p.n) break;\n");
    print_values(w, "            ", "v%1$d[u]");
    print_results(w, "            ", TNI_WALK_NEXT, "m%1$d[o%1$d + (i + u) * p.along[%1$d]]");
    tni_text_put(w->part.text, "        }\n    }\n");
    print_end(w, "true");
    tni_text_put(w->part.text, "}\n");
    tni_text_add(w->part.text,
                 "TN_KERNEL(tn_walk_side, %1$d, (TN_PARAMS(tn_params_0)),\n"
                 "    tn_walk<%2$d>(p, (i64)blockIdx.x * p.threads + threadIdx.x))\n",
                 TNI_WALK_THREADS, (int)w->made->unroll);
}

/* ---- lines along the walk ---------------------------------------------------------------------------------------- */

/* Between memory and tiles, of the elements from i on. */
static void print_tiles(const walk_text *w, bool loads) {
    const tni_pass *pass = w->part.p->pass;
    tni_text_put(w->part.text, "#pragma unroll 8\n        for (int r = tid / W; r < L; r += 32 / W) {\n"
                               "            if (i + x >= p.n || first + r >= p.lines) continue;\n");
    for (int i = 0; i < pass->n_memory; i++) {
        const tni_walk_memory *m = &w->made->memory[i];
        if (!m->tile || m->written == loads) continue;
        tni_text_add(w->part.text,
                     loads ? "            tile%1$d[r][x] = m%1$d[begin%1$d[r] + (i + x) * p.along[%1$d]];\n"
                           : "            m%1$d[begin%1$d[r] + (i + x) * p.along[%1$d]] = tile%1$d[r][x];\n",
                     i);
    }
    tni_text_put(w->part.text, "        }\n");
}

static void print_along(walk_text *w) {
    const tni_pass *pass = w->part.p->pass;
    tni_text_put(w->part.text, "\ntemplate <int L, int W> TN_DEVICE void tn_walk(const tn_params_0 &p, i64 first) {\n"
                               "    const int tid = threadIdx.x, x = tid % W;\n"
                               "    const i64 line = first + tid % L;\n");
    for (int i = 0; i < pass->n_memory; i++) {
        if (!w->made->memory[i].tile) continue;
        tni_text_add(w->part.text, "    __shared__ %s tile%d[L][W + 1];\n    __shared__ i64 begin%d[L];\n",
                     tni_emit_memory(pass->memory[i].type), i, i);
    }
    print_line(w);
    for (int i = 0; i < pass->n_memory; i++) {
        if (w->made->memory[i].tile) tni_text_add(w->part.text, "    if (tid < L) begin%1$d[tid] = o%1$d;\n", i);
    }
    print_begin(w);
    tni_text_put(w->part.text, "    for (i64 i = 0; i < p.n; i += W) {\n        __syncthreads();\n");
    print_tiles(w, true);
    tni_text_put(w->part.text, "        __syncthreads();\n        const int there = (int)tn_min(p.n - i, (i64)W);\n"
                               "#pragma unroll 4\n"
                               "        for (int u = 0; u < there && tid < L && line < p.lines; u++) {\n");
    mark(w, TNI_WALK_NEXT);
    w->tiles = true;
    print_values(w, "            ", "m%1$d[o%1$d + (i + u) * p.along[%1$d]]");
    print_results(w, "            ", TNI_WALK_NEXT, "m%1$d[o%1$d + (i + u) * p.along[%1$d]]");
    w->tiles = false;
    tni_text_put(w->part.text, "        }\n        __syncthreads();\n");
    print_tiles(w, false);
    tni_text_put(w->part.text, "    }\n");
    print_end(w, "tid < L && line < p.lines");
    tni_text_put(w->part.text, "}\n");
    for (int k = 0; k < 2; k++) {
        const int lines = k ? TNI_WALK_FEW_LINES : 32;
        tni_text_add(w->part.text,
                     "TN_KERNEL(tn_walk_%1$d, 32, (TN_PARAMS(tn_params_0)),\n"
                     "    tn_walk<%1$d, %2$d>(p, (i64)blockIdx.x * %1$d))\n",
                     lines, (int)w->made->width);
    }
}

void tni_emit_cuda_walk(const tni_gpu_part *part, const tni_gpu_walk *walk, const tni_gpu_walked *made) {
    walk_text w = {*part, walk, made, false};
    print_params(&w);
    if (made->tiled) {
        print_along(&w);
    } else {
        print_side_by_side(&w);
    }
}
