/* tenon tune: the best values of what a kernel leaves open, over many shapes at once. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/bench/bench_gpu.h"
#include "cli/cli.h"
#include "cli/mirror.h"
#include "core/run/plan.h"
#include "text/source.h"

enum { MOST_SHAPES = 24, MOST_CHOICES = 48, MOST_TEXT = 256 };

static const char *shape, *dtypes = "f32,bf16", *device = "cuda", *into;
static int64_t seconds = 90;

typedef struct tuning {
    const tn_function *op;
    const tn_source *source;
    tni_tunables of;
    tn_device device;
    const tn_gpu *gpu;
    int32_t n_shapes, n_choices;
    char shapes[MOST_SHAPES][MOST_TEXT];
    tni_choice choices[MOST_CHOICES];
    double each; /* seconds for a measurement */
    tni_text table;
    double gain; /* the sum of log(first / best), over n_rows */
    int32_t n_rows, done, all;
} tuning;

/* ---- shapes ------------------------------------------------------------------------------------------------------ */

/* Whether a number stands at s in a sample that is a size: behind '=' or in brackets. */
static bool is_size(const char *begin, const char *s) {
    return s > begin && strchr("=[, ", s[-1]) && *s >= '0' && *s <= '9' && !strchr("0123456789.", s[-1]);
}

/* The sample with every size of 32 and more divided by 4^k, for each k of the digits of `code`. */
static bool scale(const char *sample, int code, char *made, size_t size) {
    size_t n = 0;
    bool changed = false;
    for (const char *s = sample; *s && n + 32 < size;) {
        char *end;
        if (!is_size(sample, s)) {
            made[n++] = *s++;
            continue;
        }
        int64_t value = strtoll(s, &end, 10);
        if (value >= 32 && *end != '.') {
            const int k = code % 3;
            code /= 3;
            changed |= k > 0;
            value = value >> 2 * k > 1 ? value >> 2 * k : 1;
        }
        n += (size_t)snprintf(made + n, size - n, "%lld", (long long)value);
        s = end;
    }
    made[n] = 0;
    return changed && code == 0;
}

static void add_shape(tuning *t, const char *text) {
    for (int32_t i = 0; i < t->n_shapes; i++) {
        if (strcmp(t->shapes[i], text) == 0) return;
    }
    if (t->n_shapes < MOST_SHAPES) snprintf(t->shapes[t->n_shapes++], MOST_TEXT, "%s", text);
}

/* The operator's own shapes for measuring, and smaller ones of other proportions. */
static void add_shapes(tuning *t) {
    char made[MOST_TEXT];
    if (shape) add_shape(t, shape);
    for (const tn_sample *s = t->op->row->samples; !shape && s && s->args; s++) {
        if (s->bench) add_shape(t, s->args);
    }
    const int32_t own = t->n_shapes;
    for (int32_t i = 0; !shape && i < own; i++) {
        for (int code = 1; code < 27; code++) {
            if (scale(t->shapes[i], code, made, sizeof made)) add_shape(t, made);
        }
    }
}

/* ---- choices ----------------------------------------------------------------------------------------------------- */

/* All of them, or as many as fit, the first one of each first. */
static void add_choices(tuning *t) {
    int64_t all = 1;
    for (int32_t i = 0; i < t->of.n; i++) all *= t->of.of[i].n;
    const int64_t step = all > MOST_CHOICES ? all / MOST_CHOICES + 1 : 1;
    for (int64_t code = 0; code < all && t->n_choices < MOST_CHOICES; code += step) {
        int64_t left = code;
        for (int32_t i = 0; i < t->of.n; i++) {
            t->choices[t->n_choices].values[i] = t->of.of[i].values[left % t->of.of[i].n];
            left /= t->of.of[i].n;
        }
        t->n_choices++;
    }
}

static const char *choice_text(const tuning *t, const tni_choice *c, char *text, size_t size) {
    size_t n = 0;
    text[0] = 0;
    for (int32_t i = 0; i < t->of.n && n < size; i++) {
        n += (size_t)snprintf(text + n, size - n, "%s%s=%lld", i ? " " : "", t->of.of[i].name, (long long)c->values[i]);
    }
    return text;
}

/* ---- measuring --------------------------------------------------------------------------------------------------- */

static void show_progress(tuning *t) {
    if (!progress_wanted()) return;
    fprintf(stderr, "\r%s: %d of %d measured", tn_function_name(t->op), ++t->done, t->all);
    if (t->done == t->all) fputc('\n', stderr);
}

/* Seconds of the GPU; 0: this choice cannot run there (too much shared memory, too many registers). */
static double time_choice(tuning *t, const tni_case *sample, const tni_choice *choice) {
    gpu_measurement m;
    tni_force_choice(choice);
    tni_plans_free((tn_function *)(uintptr_t)t->op);
    const tn_status status = bench_gpu(t->op, sample, NULL, t->device.index, t->each, &m);
    tni_force_choice(NULL);
    show_progress(t);
    if (status != TN_OK) return 0;
    return m.cold.graph.median > 0 ? m.cold.graph.median : m.cold.events.median;
}

/* The rows and columns that a call is looked up by. */
static bool point_of(const tni_case *sample, int64_t *rows, int64_t *columns) {
    if (!sample->n_inputs) return false;
    const tni_dims *d = &sample->inputs[0].shape;
    *rows = 1;
    for (int32_t i = 0; i + 1 < d->ndim; i++) *rows *= d->d[i];
    *columns = d->ndim ? d->d[d->ndim - 1] : 1;
    return true;
}

static tn_status tune_shape(tuning *t, const char *text, tn_type T) {
    tni_case *sample;
    double times[MOST_CHOICES];
    int64_t rows, columns;
    char best_text[128], first_text[24], time_text[24];
    TN_TRY(tni_sample_case(t->op->contract, text, T, &sample));
    int32_t best = -1;
    for (int32_t i = 0; i < t->n_choices; i++) {
        times[i] = time_choice(t, sample, &t->choices[i]);
        if (times[i] > 0 && (best < 0 || times[i] < times[best])) best = i;
    }
    /* What is as good as the first is the first: a table with fewer differences is easier to read, and to trust. */
    if (best >= 0 && times[0] > 0 && times[best] > 0.98 * times[0]) best = 0;
    const bool known = best >= 0 && point_of(sample, &rows, &columns);
    const tn_type first = known ? sample->inputs[0].type : T;
    tni_case_free(sample);
    if (!known) return best < 0 ? tn_fail(TN_UNSUPPORTED, "%s: %s", text, tn_last_error()) : TN_OK;
    const double gain = times[0] > 0 ? times[0] / times[best] : 1;
    tni_text_add(&t->table, "sm_%d%d %s rows=%lld columns=%lld: %s  # %s, %.2f times as fast\n", t->gpu->major,
                 t->gpu->minor, tn_type_name(first), (long long)rows, (long long)columns,
                 choice_text(t, &t->choices[best], best_text, sizeof best_text), bench_time(times[best], time_text),
                 gain);
    printf("%-44s %-5s %10s %10s  %s%.2f%s  %s\n", text, tn_type_name(T), bench_time(times[0], first_text), time_text,
           style_text(gain > 1.05 ? GREEN : PLAIN), gain, style_text(PLAIN), best_text);
    fflush(stdout);
    t->gain += log(gain);
    t->n_rows++;
    return TN_OK;
}

static tn_status tune_types(tuning *t) {
    for (const char *p = dtypes; *p; p += strspn(p, ", ")) {
        char name[16];
        const size_t n = strcspn(p, ", ");
        snprintf(name, sizeof name, "%.*s", (int)n, p);
        p += n;
        const tn_type T = tn_type_named(name);
        if (T == TN_NO_TYPE) return tn_fail(TN_BAD_VALUE, "there is no type '%s'", name);
        const tni_contract *c = t->op->contract;
        if (c->n_types && !(c->types[0].mask & TN_BIT(T))) continue;
        for (int32_t i = 0; i < t->n_shapes; i++) TN_TRY(tune_shape(t, t->shapes[i], T));
        if (!c->n_types) break;
    }
    return TN_OK;
}

/* ---- the verb ---------------------------------------------------------------------------------------------------- */

static int count_types(const tuning *t) {
    int n = 1;
    for (const char *p = dtypes; *p; p++) n += *p == ',';
    return t->op->contract->n_types ? n : 1;
}

static const tn_source *source_of(const tn_function *op) {
    for (const tn_kernel *k = op->row->kernels; k && k->name; k++) {
        if (k->run == tn_source_run && k->device == TN_CUDA) return k->data;
    }
    return NULL;
}

static tn_status write_table(const tuning *t) {
    FILE *file = fopen(into, "we");
    if (!file) return tn_fail(TN_SYSTEM, "%s cannot be written", into);
    char day[32];
    const time_t now = time(NULL);
    struct tm utc;
    strftime(day, sizeof day, "%Y-%m-%d", gmtime_r(&now, &utc));
    fprintf(file, "# %s, tuned on %s, %s\n%s", tn_function_name(t->op), t->gpu->name, day, t->table.data);
    return fclose(file) == 0 ? TN_OK : tn_fail(TN_SYSTEM, "%s cannot be written", into);
}

static tn_status tune(tuning *t) {
    TN_TRY(tni_gpu_get("tenon tune", t->device.index, &t->gpu));
    add_shapes(t);
    add_choices(t);
    if (!t->n_shapes) {
        return tn_fail(TN_BAD_VALUE, "%s has no shapes for measuring; say --shape \"…\"", tn_function_name(t->op));
    }
    t->all = t->n_shapes * t->n_choices * count_types(t);
    t->each = (double)seconds / t->all;
    t->each = t->each > 0.05 ? 0.05 : t->each;
    printf("%s%s%s on %s: %d choices, %d shapes\n%s%-44s %-5s %10s %10s  %s%s\n", style_text(BOLD),
           tn_function_name(t->op), style_text(PLAIN), t->gpu->name, t->n_choices, t->n_shapes, style_text(DIM),
           "shape", "type", "first", "best", "gain  choice", style_text(PLAIN));
    TN_TRY(tune_types(t));
    if (t->table.failed) return TN_NO_MEMORY;
    printf("%.2f times as fast in the mean\n", t->n_rows ? exp(t->gain / t->n_rows) : 1.0);
    if (into) return write_table(t);
    printf("\nThe table, for the text of the kernel (-o FILE writes it to a file; `tenon build` takes NAME.tune):\n\n"
           "/* TN_TUNED\n%s*/\n",
           t->table.data);
    return TN_OK;
}

static int run(int count, const char *const *rest) {
    static tuning t;
    if (count != 1) return usage_error(&verb_tune, "which operator? One, of a plugin: --load FILE");
    t.op = tn_find(rest[0]);
    if (!t.op) return usage_error(&verb_tune, "%s", tn_last_error());
    if (read_device(device, &t.device) != TN_OK) return usage_error(&verb_tune, "%s", tn_last_error());
    if (t.device.kind != TN_CUDA) return usage_error(&verb_tune, "kernels are tuned on a GPU");
    t.source = source_of(t.op);
    tni_arena *arena = tni_arena_new();
    tn_status status = arena ? TN_OK : TN_NO_MEMORY;
    if (status == TN_OK && !t.source) {
        status = tn_fail(TN_UNSUPPORTED, "%s has no kernel that was given as text", rest[0]);
    }
    if (status == TN_OK) status = tni_find_tunables(rest[0], t.source->cuda, arena, &t.of);
    if (status == TN_OK && !t.of.n) {
        status = tn_fail(TN_UNSUPPORTED,
                         "%s leaves nothing open; a kernel says what can be tuned: TN_TUNE(BLOCK, 128, 256)", rest[0]);
    }
    if (status == TN_OK) status = tune(&t);
    tni_arena_free(arena);
    tni_free(t.table.data);
    if (status != TN_OK) fprintf(stderr, "tenon tune: %s\n", tn_last_error());
    return status == TN_OK ? 0 : 1;
}

static const option options[] = {
    {"--shape", "TEXT", "this shape only; without it the operator's own, and smaller ones of other proportions", TEXT,
     &shape},
    {"--dtype", "f32,bf16", "types for T (f32,bf16)", TEXT, &dtypes},
    {"--device", "cuda:0", "the GPU (cuda)", TEXT, &device},
    {"--seconds", "N", "how long to measure, at most (90); compiling comes on top", POSITIVE, &seconds},
    {"-o", "FILE", "writes the table there", TEXT, &into},
    {0},
};

const verb verb_tune = {
    .name = "tune",
    .summary = "finds the best values of what a kernel from text leaves open",
    .examples = "tenon --load my_op.tenon.so tune my_op --device cuda -o my_op.tune\t`tenon build` then takes them along\n"
                "tenon --load my_op.tenon tune my_op --device cuda --shape \"n=4096 c=1024\"\tone shape",
    .options = options,
    .text =
        "A kernel says what can be tuned: TN_TUNE(BLOCK, 128, 256, 512) in its text makes a constant BLOCK, for the "
        "code and for the launch line (`block=BLOCK`). TN_TUNE(maxrregcount, 0, 64, 128) and "
        "TN_TUNE(use_fast_math, 0, 1) are options of the compiler. Every combination is measured with every shape, "
        "as `tenon bench` does it, and the best one of each shape is a line of a small table. A call takes the line "
        "that is nearest to it by the rows and columns of its first input, its type and its GPU; shapes that nobody "
        "tuned get the nearest one's values.",
    .run = run,
};
