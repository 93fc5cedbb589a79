/* Registers, shared memory, how many blocks an SM holds and why not more, and what to try next. */
#include "bench_kernel.h"

#include <stdio.h>

#include "cli/cli.h"
#include "core/run/plan.h"
#include "text/source.h"

static uint32_t at_least_1(uint32_t n) {
    return n ? n : 1;
}

static int64_t threads_of(const tn_launch *l) {
    return (int64_t)at_least_1(l->block) * at_least_1(l->block_y) * at_least_1(l->block_z);
}

static int64_t blocks_of(const tn_launch *l) {
    return (int64_t)l->grid * at_least_1(l->grid_y) * at_least_1(l->grid_z);
}

int32_t kernel_uses(const tn_function *op, const tni_case *sample, const char *kernel, int device,
                    kernel_use uses[static MOST_LAUNCHES]) {
    const tn_launch *launches[MOST_LAUNCHES];
    made_call bare;
    tni_plan *plan;
    int32_t n = 0;
    if (call_make(&bare, op, sample, (call_options){.bare = true}) != TN_OK) return 0;
    for (int32_t i = 0; i < bare.n_in; i++) bare.in[i].tensor.device = (tn_device){TN_CUDA, device};
    for (int32_t i = 0; i < bare.n_out; i++) bare.out[i].tensor.device = (tn_device){TN_CUDA, device};
    bare.args.kernel = kernel;
    if (tni_plan_get(op, &bare.args, false, &plan) == TN_OK) {
        const tn_call call = tni_plan_call(plan);
        n = tni_source_launches(plan->kernel, plan->state, launches, MOST_LAUNCHES);
        for (int32_t i = 0; i < n; i++) {
            uses[i] = (kernel_use){.launch = *launches[i]};
            const bool known = tn_cuda_inspect(&call, launches[i], &uses[i].code) == TN_OK &&
                               tn_cuda_occupancy(&call, launches[i], &uses[i].blocks) == TN_OK;
            if (!known) n = 0;
        }
        tni_plan_release(plan);
    }
    call_free(&bare);
    return n;
}

/* ---- what an SM holds -------------------------------------------------------------------------------------------- */

/* Blocks that each of an SM's resources has room for. The hardware gives registers to warps 256 at a time. */
typedef struct room {
    int64_t threads, blocks, registers, shared;
} room;

static room room_of(const tn_gpu *gpu, const kernel_use *u) {
    const int64_t threads = threads_of(&u->launch), warps = (threads + 31) / 32;
    const int64_t registers = warps * (((int64_t)u->code.registers * 32 + 255) / 256 * 256);
    const int64_t shared = (int64_t)u->code.static_shared + u->launch.shared + gpu->shared_reserved;
    return (room){.threads = gpu->threads_per_sm / (warps * 32),
                  .blocks = gpu->blocks_per_sm,
                  .registers = registers ? gpu->registers_per_sm / registers : gpu->blocks_per_sm,
                  .shared = shared ? gpu->shared_per_sm / shared : gpu->blocks_per_sm};
}

/* What there is least of. */
static const char *limit_of(const room *r) {
    const int64_t least = r->threads < r->blocks ? r->threads : r->blocks;
    if (r->registers < least && r->registers <= r->shared) return "registers";
    if (r->shared < least) return "shared memory";
    return r->threads <= r->blocks ? "threads" : "blocks";
}

static double occupancy_of(const tn_gpu *gpu, const kernel_use *u) {
    const bool clusters = u->launch.cluster > 1;
    const double blocks = clusters ? (double)u->blocks * u->launch.cluster / gpu->sms : u->blocks;
    return blocks * (double)threads_of(&u->launch) / gpu->threads_per_sm;
}

/* The size of a block, of whole warps, of which an SM holds the most threads; the smallest of those that are equal. */
static int64_t best_block(const tn_gpu *gpu, const kernel_use *u) {
    int64_t best = 0, most = 0;
    for (int64_t block = 64; block <= u->code.most_threads; block *= 2) {
        kernel_use other = *u;
        other.launch.block = (uint32_t)block;
        other.launch.block_y = other.launch.block_z = 1;
        const room r = room_of(gpu, &other);
        int64_t n = r.threads < r.blocks ? r.threads : r.blocks;
        n = r.registers < n ? r.registers : n;
        n = r.shared < n ? r.shared : n;
        if (n * block > most) {
            most = n * block;
            best = block;
        }
    }
    return best;
}

/* ---- in words ---------------------------------------------------------------------------------------------------- */

static void advice(const char *text) {
    printf("    %stry:%s ", style_text(YELLOW), style_text(PLAIN));
    print_wrapped(text, 9, 9);
}

static void print_advice(const tn_gpu *gpu, const kernel_use *u, double part) {
    const room r = room_of(gpu, u);
    const double occupancy = occupancy_of(gpu, u);
    const int64_t blocks = blocks_of(&u->launch), best = best_block(gpu, u);
    char text[300];
    if (u->code.local_bytes > 0) {
        snprintf(
            text, sizeof text,
            "registers are spilled to memory (%d bytes a thread). Unroll less, keep fewer values at a time, or index "
            "small arrays by constants only.",
            u->code.local_bytes);
        advice(text);
    }
    if (blocks < gpu->sms) {
        snprintf(text, sizeof text,
                 "the grid has %lld blocks for %d SMs, so some do nothing. Give a block less to do, or split rows.",
                 (long long)blocks, gpu->sms);
        advice(text);
    } else if (occupancy < 0.5 && best && best != threads_of(&u->launch)) {
        snprintf(text, sizeof text, "block=%lld: an SM would hold more threads; now %s limit it.", (long long)best,
                 limit_of(&r));
        advice(text);
    } else if (part > 0 && part < 0.85 && u->code.local_bytes == 0) {
        advice("16 bytes at a time for each thread (tn::load<4> and tn::store of tenon/device.cuh, or float4), and "
               "several loads before the first use, so that more of the memory's latency is hidden. "
               "TN_TUNE(UNROLL, 1, 2, 4) and `tenon tune` find how many.");
    }
}

static const char *bound_by(const tn_gpu *gpu, const gpu_measurement *m) {
    (void)gpu;
    if (m->cost.flops <= 0) return "memory-bound: it computes next to nothing";
    return m->cost.flops / m->cost.bytes < 8 ? "memory-bound" : "arithmetic counts too";
}

void print_uses(const tn_gpu *gpu, const kernel_use *uses, int32_t n, const gpu_measurement *m, double part) {
    for (int32_t i = 0; i < n; i++) {
        const kernel_use *u = &uses[i];
        const tn_launch *l = &u->launch;
        const room r = room_of(gpu, u);
        const int64_t blocks = blocks_of(l), at_once = (int64_t)u->blocks * gpu->sms;
        if (!blocks) continue; /* not needed for this shape */
        printf("  %s%s%s: %d registers, %d + %u bytes of shared memory%s; grid (%u, %u, %u), block (%u, %u, %u)\n",
               style_text(BOLD), l->name, style_text(PLAIN), u->code.registers, u->code.static_shared, l->shared,
               u->code.local_bytes ? ", spilled" : "", l->grid, at_least_1(l->grid_y), at_least_1(l->grid_z),
               at_least_1(l->block), at_least_1(l->block_y), at_least_1(l->block_z));
        printf("    an SM holds %.0f%% of its threads, limited by %s", 100 * occupancy_of(gpu, u), limit_of(&r));
        if (u->measured > 0) printf("; measured by ncu: %.0f%%", 100 * u->measured);
        if (l->cluster <= 1 && at_once > 0) printf("; %.1f waves of blocks", (double)blocks / (double)at_once);
        printf("; %.2f flop for each byte: %s\n", m->cost.bytes > 0 ? m->cost.flops / m->cost.bytes : 0,
               bound_by(gpu, m));
        print_advice(gpu, u, part);
    }
}

void json_uses(tni_text *text, const tn_gpu *gpu, const kernel_use *uses, int32_t n) {
    tni_text_add(text, "\"launches\": [");
    for (int32_t i = 0; i < n; i++) {
        const kernel_use *u = &uses[i];
        const room r = room_of(gpu, u);
        tni_text_add(text, "%s{\"kernel\": ", i ? ", " : "");
        tni_text_json_string(text, u->launch.name);
        tni_text_add(
            text,
            ", \"registers\": %d, \"static_shared\": %d, \"shared\": %u, \"local_bytes\": %d, \"blocks\": %lld, "
            "\"threads_per_block\": %lld, \"occupancy\": %.4g, \"limited_by\": \"%s\", \"best_block\": %lld",
            u->code.registers, u->code.static_shared, u->launch.shared, u->code.local_bytes,
            (long long)blocks_of(&u->launch), (long long)threads_of(&u->launch), occupancy_of(gpu, u), limit_of(&r),
            (long long)best_block(gpu, u));
        if (u->measured > 0) tni_text_add(text, ", \"measured_occupancy\": %.4g", u->measured);
        tni_text_add(text, "}");
    }
    tni_text_add(text, "], ");
}
