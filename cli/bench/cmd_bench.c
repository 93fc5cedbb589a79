/* tenon bench: how fast, and how near to what the memory allows. */
#include <stdio.h>
#include <string.h>

#include "bench_kernel.h"
#include "cli/cli.h"
#include "cli/mirror.h"
#include "core/table/table.h"

static const char *shape, *dtypes = "f32", *device, *kernel, *kernels;
static int64_t threads;
static bool json, all, with_ncu;
static int64_t milliseconds = 500;
static const char *title_to_come; /* of the rows that come; NULL: it is printed */
static tn_device where = {TN_CPU, 0};

enum { COLUMNS = 44 }; /* of a shape in the table */

/* ---- printing ---------------------------------------------------------------------------------------------------- */

const char *bench_time(double seconds, char text[24]) {
    if (seconds < 1e-6) {
        snprintf(text, 24, "%.0f ns", seconds * 1e9);
    } else if (seconds < 1e-3) {
        snprintf(text, 24, "%.*f us", seconds < 1e-4 ? 2 : 1, seconds * 1e6);
    } else {
        snprintf(text, 24, "%.*f ms", seconds < 0.1 ? 2 : 1, seconds * 1e3);
    }
    return text;
}

static void print_header(const char *name) {
    printf("%s%s%s on %s, %d cores, %s; %d thread%s\n", style_text(BOLD), name, style_text(PLAIN), bench_cpu(),
           bench_cores(), bench_isa(), tn_threads(), tn_threads() == 1 ? "" : "s");
    printf("%s%-*s %-5s %-8s %10s %21s %8s %8s %6s%s\n", style_text(DIM), COLUMNS, "shape", "type", "kernel", "median",
           "10% … 90%", "GB/s", "copy", "of it", style_text(PLAIN));
}

static double gigabytes(const measurement *m, const spread *s) {
    return m->cost.bytes / s->median / 1e9;
}

/* ---- printing, on a GPU ------------------------------------------------------------------------------------------ */

enum { GPU_COLUMNS = 40 };

/* The clock that counts: calls in a graph, where they can be cold there; else events around single ones. */
static const spread *counted(const gpu_timing *t) {
    return t->graph.median > 0 ? &t->graph : &t->events;
}

static double part_of_copy(const gpu_measurement *m) {
    bool graph = m->cold.graph.median > 0 && m->copy.graph.median > 0;
    return graph ? m->copy.graph.median / m->cold.graph.median : m->copy.events.median / m->cold.events.median;
}

static double rate(const gpu_measurement *m, const gpu_timing *t) {
    const spread *s = m->cold.graph.median > 0 && t->graph.median > 0 ? &t->graph : &t->events;
    return s->median > 0 ? m->cost.bytes / s->median / 1e9 : 0;
}

static void print_state(const char *when, int index) {
    const gpu_state s = nvml_state(index);
    char reasons[160];
    if (!s.known) {
        printf("%s%s: clocks and temperature are not known (libnvidia-ml.so.1 cannot be used)%s\n", style_text(DIM),
               when, style_text(PLAIN));
        return;
    }
    printf("%s%s: SM %u of %u MHz, memory %u of %u MHz, %u °C, %u of %u W, held down by: %s%s\n", style_text(DIM), when,
           s.sm_mhz, s.most_sm_mhz, s.memory_mhz, s.most_memory_mhz, s.celsius, s.watts, s.most_watts,
           nvml_reasons(s.reasons, reasons), style_text(PLAIN));
}

static void print_gpu(void) {
    const tn_gpu *gpu;
    if (tni_gpu_get("tenon bench", where.index, &gpu) != TN_OK) return;
    printf("%s%s%s (cuda:%d), %d SMs, %.0f MB of L2", style_text(BOLD), gpu->name, style_text(PLAIN), where.index,
           gpu->sms, gpu->l2_bytes / 1048576.0);
    const double single = bench_fma(where.index, TN_F32), wide = bench_fma(where.index, TN_F64);
    const double launch = bench_launch(where.index);
    char text[24];
    if (single > 0) printf("; multiply-adds: %.1f Tflop/s in f32, %.1f in f64", single / 1e12, wide / 1e12);
    if (launch > 0) printf("; a bare launch: %s", bench_time(launch, text));
    putchar('\n');
    print_state("before", where.index);
}

static void print_gpu_header(const char *name) {
    printf("\n%s%s%s\n", style_text(BOLD), name, style_text(PLAIN));
    printf("%s%-*s %-5s %-8s %10s %10s %21s %8s %8s %6s %10s %9s%s\n", style_text(DIM), GPU_COLUMNS, "shape", "type",
           "kernel", "graph", "event", "10% … 90%", "GB/s", "copy", "of it", "hot", "call", style_text(PLAIN));
}

static const char *maybe_time(double seconds, char text[24]) {
    if (seconds <= 0) return strcpy(text, "-");
    return bench_time(seconds, text);
}

static void print_gpu_row(const char *text, tn_type T, const gpu_measurement *m) {
    char graph[24], event[24], low[24], high[24], range[64], hot[24], host[24];
    const spread *s = &m->cold.events;
    snprintf(range, sizeof range, "%s … %s", bench_time(s->low, low), bench_time(s->high, high));
    double part = part_of_copy(m);
    printf("%-*s %-5s %-8s %10s %10s %*s %8.1f %8.1f %s%5.1f%%%s %10s %9s\n", GPU_COLUMNS, text, tn_type_name(T),
           m->kernel, maybe_time(m->cold.graph.median, graph), bench_time(s->median, event), 23, range,
           rate(m, &m->cold), rate(m, &m->copy), style_text(part > 0.9 ? GREEN : PLAIN), 100 * part, style_text(PLAIN),
           maybe_time(counted(&m->hot)->median, hot), bench_time(m->call.median, host));
}

/* When there is a row to print below it: what is refused has only its message. */
static void print_heading(void) {
    if (title_to_come) (where.kind == TN_CUDA ? print_gpu_header : print_header)(title_to_come);
    title_to_come = NULL;
}

static void print_row(const char *text, tn_type T, const measurement *m) {
    char median[24], low[24], high[24], range[64];
    snprintf(range, sizeof range, "%s … %s", bench_time(m->run.low, low), bench_time(m->run.high, high));
    double part = m->copy.median / m->run.median;
    printf("%-*s %-5s %-8s %10s %*s %8.2f %8.2f %s%5.0f%%%s  %s, %d x %d\n", COLUMNS, text, tn_type_name(T), m->kernel,
           bench_time(m->run.median, median), 23, range, gigabytes(m, &m->run), gigabytes(m, &m->copy),
           style_text(part > 0.8 ? GREEN : PLAIN), 100 * part, style_text(PLAIN), m->cached ? "cache" : "memory",
           m->repeats, m->inner);
}

static void json_spread(tni_text *t, const char *name, const spread *s) {
    tni_text_add(t, "\"%s\": {\"median_s\": %.9g, \"p10_s\": %.9g, \"p90_s\": %.9g}", name, s->median, s->low, s->high);
}

static void json_row(tni_text *t, const tn_function *op, const char *text, tn_type T, const measurement *m,
                     bool first) {
    tni_text_add(t, "%s\n    {\"operator\": \"%s\", \"shape\": ", first ? "" : ",", tn_function_name(op));
    tni_text_json_string(t, text);
    tni_text_add(t, ", \"dtype\": \"%s\", \"kernel\": \"%s\", \"threads\": %d, \"bytes\": %.0f, \"flops\": %.0f, ",
                 tn_type_name(T), m->kernel, tn_threads(), m->cost.bytes, m->cost.flops);
    json_spread(t, "run", &m->run);
    tni_text_add(t, ", ");
    json_spread(t, "copy", &m->copy);
    tni_text_add(t, ", \"gb_per_s\": %.4g, \"copy_gb_per_s\": %.4g, \"percent_of_copy\": %.4g, ", gigabytes(m, &m->run),
                 gigabytes(m, &m->copy), 100 * m->copy.median / m->run.median);
    tni_text_add(t, "\"repeats\": %d, \"calls_per_repeat\": %d, \"buffers\": %d, \"in_cache\": %s}", m->repeats,
                 m->inner, m->buffers, m->cached ? "true" : "false");
}

static void json_timing(tni_text *t, const char *name, const gpu_timing *g) {
    tni_text_add(t, "\"%s\": {", name);
    json_spread(t, "events", &g->events);
    tni_text_add(t, ", ");
    json_spread(t, "graph", &g->graph);
    tni_text_add(t, "}, ");
}

/* A median of 0: not measured. "run" and "copy" are what percent_of_copy is made of. */
static void json_gpu_row(tni_text *t, const tn_function *op, const char *text, tn_type T, const gpu_measurement *m,
                         bool first) {
    tni_text_add(t, "%s\n    {\"operator\": \"%s\", \"shape\": ", first ? "" : ",", tn_function_name(op));
    tni_text_json_string(t, text);
    tni_text_add(t, ", \"dtype\": \"%s\", \"kernel\": \"%s\", \"bytes\": %.0f, \"flops\": %.0f, ", tn_type_name(T),
                 m->kernel, m->cost.bytes, m->cost.flops);
    json_spread(t, "run", counted(&m->cold));
    tni_text_add(t, ", ");
    json_spread(t, "copy", counted(&m->copy));
    tni_text_add(t, ", \"gb_per_s\": %.5g, \"copy_gb_per_s\": %.5g, \"percent_of_copy\": %.4g, ", rate(m, &m->cold),
                 rate(m, &m->copy), 100 * part_of_copy(m));
    json_timing(t, "cold", &m->cold);
    json_timing(t, "hot", &m->hot);
    json_timing(t, "cold_copy", &m->copy);
    json_spread(t, "call", &m->call);
    tni_text_add(t,
                 ", \"buffers\": %d, \"flushed\": %s, \"repeats\": %d, \"graphs\": %d, "
                 "\"calls_per_graph\": %d, ",
                 m->buffers, m->flushed ? "true" : "false", m->repeats, m->graphs, m->graph_calls);
}

static void json_state(tni_text *t, const char *when, int index) {
    const gpu_state s = nvml_state(index);
    char reasons[160];
    tni_text_add(t, "\"%s\": ", when);
    if (!s.known) {
        tni_text_add(t, "null");
        return;
    }
    tni_text_add(t, "{\"sm_mhz\": %u, \"memory_mhz\": %u, \"celsius\": %u, \"watts\": %u, \"held_down_by\": \"%s\"}",
                 s.sm_mhz, s.memory_mhz, s.celsius, s.watts, nvml_reasons(s.reasons, reasons));
}

static void json_gpu_begin(tni_text *t) {
    const tn_gpu *gpu;
    if (tni_gpu_get("tenon bench", where.index, &gpu) != TN_OK) return;
    tni_text_add(t, "{\n  \"command\": ");
    tni_text_json_string(t, command_text());
    tni_text_add(t, ",\n  \"date\": \"%s\",\n  \"version\": \"%s\",\n  \"hardware\": {\"gpu\": ", bench_date(),
                 tn_version());
    tni_text_json_string(t, gpu->name);
    tni_text_add(t,
                 ", \"driver\": \"%s\", \"sms\": %d, \"l2_bytes\": %d, \"fma_f32_flop_per_s\": %.4g, "
                 "\"fma_f64_flop_per_s\": %.4g, \"bare_launch_s\": %.4g, \"cpu\": ",
                 nvml_driver(), gpu->sms, gpu->l2_bytes, bench_fma(where.index, TN_F32), bench_fma(where.index, TN_F64),
                 bench_launch(where.index));
    tni_text_json_string(t, bench_cpu());
    tni_text_add(t, "},\n  ");
    json_state(t, "before", where.index);
    tni_text_add(t, ",\n  \"results\": [");
}

static void json_begin(tni_text *t) {
    tni_text_add(t, "{\n  \"command\": ");
    tni_text_json_string(t, command_text());
    tni_text_add(t, ",\n  \"date\": \"%s\",\n  \"version\": \"%s\",\n  \"hardware\": {\"cpu\": ", bench_date(),
                 tn_version());
    tni_text_json_string(t, bench_cpu());
    tni_text_add(t, ", \"cores\": %d, \"isa\": \"%s\", \"last_level_cache_bytes\": %lld},\n  \"results\": [",
                 bench_cores(), bench_isa(), (long long)bench_cache());
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

/* Measures occupancy: ncu watches a short run of this row. */
static void measure_uses(const tn_function *op, const char *text, tn_type T, kernel_use *uses, int32_t n, char *why,
                         size_t size) {
    char words[8192];
    if (strchr(text, '\'')) {
        snprintf(why, size, "the shape has quotes in it");
        return;
    }
    snprintf(words, sizeof words, "bench %s --shape '%s' --dtype %s --device cuda:%d --ms 1%s%s%s",
             tn_function_name(op), text, tn_type_name(T), where.index, kernel ? " --kernel " : "", kernel ? kernel : "",
             loaded_plugins());
    ncu_measure(words, uses, n, why, size);
}

static tn_status bench_on_gpu(const tn_function *op, const tni_case *made, const char *text, tn_type T, tni_text *out,
                              bool first) {
    gpu_measurement m;
    kernel_use uses[MOST_LAUNCHES];
    const tn_gpu *gpu;
    TN_TRY(tni_gpu_get("tenon bench", where.index, &gpu));
    TN_TRY(bench_gpu(op, made, kernel, where.index, (double)milliseconds / 1e3, &m));
    const int32_t n_uses = kernel_uses(op, made, kernel, where.index, uses);
    char why[256] = ""; /* there is no measured occupancy */
    if (with_ncu) measure_uses(op, text, T, uses, n_uses, why, sizeof why);
    if (json) {
        json_gpu_row(out, op, text, T, &m, first);
        if (n_uses) json_uses(out, gpu, uses, n_uses);
        if (why[0]) {
            tni_text_add(out, "\"not_measured_by_ncu\": ");
            tni_text_json_string(out, why);
            tni_text_add(out, ", ");
        }
        tni_text_add(out, "\"copy_by\": \"%s\"}", m.by_kernel ? "kernel" : "engine");
    } else {
        print_heading();
        print_gpu_row(text, T, &m);
        print_uses(gpu, uses, n_uses, &m, part_of_copy(&m));
        if (why[0]) {
            printf("    occupancy was not measured: ");
            print_wrapped(why, 32, 4);
        }
        fflush(stdout);
    }
    return TN_OK;
}

static tn_status bench_on_cpu(const tn_function *op, const tni_case *made, const char *text, tn_type T, tni_text *out,
                              bool first) {
    measurement m;
    TN_TRY(bench_measure(op, made, kernel, (double)milliseconds / 1e3, &m));
    if (json) {
        json_row(out, op, text, T, &m, first);
    } else {
        print_heading();
        print_row(text, T, &m);
        fflush(stdout);
    }
    return TN_OK;
}

/* One after the other, for a program; those that do not take the call are left out. */
static tn_status bench_kernels(const tn_function *op, const tni_case *made, const char *text, tn_type T, tni_text *out,
                               bool *first) {
    char title[512];
    snprintf(title, sizeof title, "%s  %s  %s", tn_function_name(op), text, tn_type_name(T));
    if (!json) return bench_ladder(op, made, title, kernels, where, (double)milliseconds / 1e3);
    const char *list[MOST_RUNGS];
    const int n = bench_kernels_of(op, kernels, where, list);
    for (int i = 0; i < n; i++) {
        kernel = list[i];
        const tn_status status = (where.kind == TN_CUDA ? bench_on_gpu : bench_on_cpu)(op, made, text, T, out, *first);
        if (status == TN_UNSUPPORTED) continue;
        TN_TRY(status);
        *first = false;
    }
    kernel = NULL;
    return TN_OK;
}

/* 0, or the exit status. */
static int bench_one(const tn_function *op, const char *text, tn_type T, tni_text *out, bool *first) {
    tni_case *made;
    tn_status status = tni_sample_case(op->contract, text, T, &made);
    if (status == TN_OK && kernels) {
        status = bench_kernels(op, made, text, T, out, first);
        tni_case_free(made);
    } else if (status == TN_OK) {
        status = (where.kind == TN_CUDA ? bench_on_gpu : bench_on_cpu)(op, made, text, T, out, *first);
        tni_case_free(made);
        *first = false;
    }
    if (status != TN_OK) {
        fprintf(stderr, "tenon bench: %s\n", tn_last_error());
        return 1;
    }
    return 0;
}

int bench_alone(const char *title, int n, const tn_function *const *ops, const tni_case *const *cases,
                const char *const *names, tn_type T, const char *on, tni_text *rows) {
    if (read_device(on, &where) != TN_OK) return usage_error(NULL, "%s", tn_last_error());
    json = rows != NULL;
    title_to_come = title;
    for (int i = 0; i < n; i++) {
        tn_status (*measure)(const tn_function *, const tni_case *, const char *, tn_type, tni_text *, bool);
        measure = where.kind == TN_CUDA ? bench_on_gpu : bench_on_cpu;
        if (measure(ops[i], cases[i], names[i], T, rows, i == 0) == TN_OK) continue;
        fprintf(stderr, "tenon: %s\n", tn_last_error());
        return 1;
    }
    return 0;
}

static bool takes_type(const tn_function *op, tn_type T) {
    return op->contract->n_types == 0 || op->contract->types[0].mask & TN_BIT(T);
}

/* The next of "f32,bf16"; TN_NO_TYPE and a message where it is none. */
static tn_type next_type(const char **p) {
    char name[16];
    size_t n = strcspn(*p, ", ");
    snprintf(name, sizeof name, "%.*s", (int)n, *p);
    *p += n;
    *p += strspn(*p, ", ");
    tn_type T = tn_type_named(name);
    if (T == TN_NO_TYPE) usage_error(&verb_bench, "there is no type '%s'", name);
    return T;
}

static int bench_operator(const tn_function *op, tni_text *out, bool *first) {
    title_to_come = tn_function_name(op);
    int shapes = 0;
    for (const char *p = dtypes; *p;) {
        tn_type T = next_type(&p);
        if (T == TN_NO_TYPE) return EXIT_USAGE;
        if (!takes_type(op, T) && all) continue;
        for (const tn_sample *s = op->row->samples; !shape && s && s->args; s++) {
            if (!s->bench) continue;
            int status = bench_one(op, s->args, T, out, first);
            if (status) return status;
            shapes++;
        }
        if (shape) {
            int status = bench_one(op, shape, T, out, first);
            if (status) return status;
            shapes++;
        }
    }
    if (shapes == 0 && !all) {
        return usage_error(&verb_bench, "%s has no shapes for measuring; say --shape \"…\"", tn_function_name(op));
    }
    return 0;
}

static int run_all(int count, const char *const *rest, tni_text *out) {
    bool first = true;
    int n = all ? tn_function_count() : count;
    for (int i = 0; i < n; i++) {
        const tn_function *op = all ? tn_function_at(i) : tn_find(rest[i]);
        if (i && !json && where.kind == TN_CPU) putchar('\n');
        int status = bench_operator(op, out, &first);
        if (status) return status;
    }
    return 0;
}

static int run(int count, const char *const *rest) {
    for (int i = 0; i < count; i++) {
        if (!tn_find(rest[i])) return usage_error(&verb_bench, "%s", tn_last_error());
    }
    if (count == 0 && !all) return usage_error(&verb_bench, "which operator? `tenon ops` lists them, --all takes all");
    if (read_device(device, &where) != TN_OK) return usage_error(&verb_bench, "%s", tn_last_error());
    const bool on_gpu = where.kind == TN_CUDA;
    if (with_ncu && !on_gpu) return usage_error(&verb_bench, "--ncu is for GPUs: say --device cuda as well");
    if (kernel && kernels) return usage_error(&verb_bench, "either --kernel or --kernels");
    if (shape && (all || count > 1)) return usage_error(&verb_bench, "--shape is for one operator");
    if (threads && tn_set_threads((int)threads) != TN_OK) return usage_error(&verb_bench, "%s", tn_last_error());
    tni_text out = {0};
    if (json) (on_gpu ? json_gpu_begin : json_begin)(&out);
    if (on_gpu && !json) print_gpu();
    int status = run_all(count, rest, &out);
    if (on_gpu && !json && status == 0) print_state("after", where.index);
    if (json && status == 0) {
        tni_text_add(&out, "\n  ]");
        if (on_gpu) {
            tni_text_add(&out, ",\n  ");
            json_state(&out, "after", where.index);
        }
        tni_text_add(&out, "\n}\n");
        if (out.failed) {
            fprintf(stderr, "tenon bench: out of memory\n");
            status = 1;
        } else {
            fputs(out.data, stdout);
        }
    }
    tn_free(out.data);
    return status;
}

static const option options[] = {
    {"--shape", "TEXT", "sizes and options, as `tenon ops OP` writes samples; without it the operator's own", TEXT,
     &shape},
    {"--dtype", "f32,bf16", "types for T (f32)", TEXT, &dtypes},
    {"--threads", "N", "threads (TENON_NUM_THREADS, or all cores)", NUMBER, &threads},
    {"--kernel", "NAME", "this kernel, not the one that would be taken", TEXT, &kernel},
    {"--kernels", "all", "beside each other: all but the reference, or some, such as mma,tile", TEXT, &kernels},
    {"--device", "cuda:0", "where to run: cpu (without it), cuda or cuda:N", TEXT, &device},
    {"--all", NULL, "every operator", FLAG, &all},
    {"--ms", "N", "milliseconds for each row of the table (500)", NUMBER, &milliseconds},
    {"--ncu", NULL, "measure occupancy as well, with NVIDIA's profiler; seconds for each row (cuda)", FLAG, &with_ncu},
    {"--json", NULL, "one object: command, date, hardware, results", FLAG, &json},
    {0},
};

const verb verb_bench = {
    .name = "bench",
    .summary = "how fast an operator is, and how near to what the memory allows",
    .examples = "tenon bench softmax\tthe operator's own shapes\n"
                "tenon bench softmax --shape \"s=[4096, 1024] axis=-1\" --dtype bf16\n"
                "tenon bench softmax --device cuda --dtype f32,bf16\ton the first GPU\n"
                "tenon bench layer_norm --threads 1 --kernel ref\tthe plain version, one thread\n"
                "tenon bench linear --kernels all --shape \"r=[512] k=512 n=512\"\thow its kernels compare\n"
                "tenon bench --all --json > today.json\tall of it, for a program",
    .options = options,
    .text =
        "GB/s are the bytes that the operator must move, each input read and each output written once, by the "
        "median time. Beside each repeat runs a copy of as many bytes on the same threads; \"of it\" is how fast "
        "the operator is compared to that copy. Calls that do not fit into half of the last cache take turns on "
        "several buffers, so that every call finds its data in memory; smaller ones stay in the cache, and so does "
        "their copy.\n"
        "On a GPU every call finds its data in memory too, not in the L2 cache: buffers take turns, or L2 is "
        "filled with something else. \"graph\" is the time of a call among many in one CUDA graph, where nothing "
        "but the GPU takes time, \"event\" that between two events around a single launch, with its spread; GB/s "
        "and the copy go by the graph where there is one. Two copies are timed, by the copy engine and by a "
        "kernel, and "
        "the faster one counts. \"hot\" is a call whose data are in L2 already, \"call\" what tn_run itself takes "
        "on the CPU. Below a kernel that was given as text stand its registers and shared memory, how much of an "
        "SM it can fill and what limits that, and what to try next. --ncu adds how much of it is really filled on "
        "average: NVIDIA's profiler counts that. It comes with the CUDA toolkit and needs permission to read the "
        "GPU's counters; if it cannot, a line says why.\n"
        "--kernels measures the same call with several kernels and holds each against the fastest. TFLOP/s count two "
        "operations for each term of a product. Below the table stands why a kernel does not take the call.",
    .run = run,
};
