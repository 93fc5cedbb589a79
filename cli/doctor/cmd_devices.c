/* tenon devices: the GPUs that this process sees, and what is built in for each. */
#include <stdio.h>
#include <string.h>

#include "cli/bench/bench.h"
#include "cli/cli.h"
#include "cli/nvml.h"

static bool json;

static const char WANTED[] = "tenon devices";

/* ---- what is built in -------------------------------------------------------------------------------------------- */

static int count_units(void) {
    int n = 0;
    while (tni_image_unit(n)) n++;
    return n;
}

/* "sm_90a: softmax sum …", a line for each kind of image that this GPU gets. */
static void print_images(const tn_gpu *gpu) {
    const int n = count_units();
    if (n == 0) {
        printf("  %-12s nothing: this build has no CUDA kernels\n", "built in");
        return;
    }
    for (const tni_image *kind = tni_images; kind->unit; kind++) {
        bool first = true; /* of its kind: arch and kind of an image before it differ */
        for (const tni_image *before = tni_images; before < kind; before++) {
            first &= before->arch != kind->arch || before->kind != kind->kind;
        }
        char text[32], line[1024] = "";
        int units = 0;
        tni_image_describe(kind, text);
        for (int i = 0; first && i < n; i++) {
            const tni_image *image = tni_image_for(tni_image_unit(i), gpu->major, gpu->minor);
            if (!image || image->arch != kind->arch || image->kind != kind->kind) continue;
            size_t length = strlen(line);
            snprintf(line + length, sizeof line - length, "%s%s", units++ ? " " : "", image->unit);
        }
        if (!units) continue;
        printf("  %-12s %s: ", "built in", text);
        print_wrapped(line, 17 + (int)strlen(text), 15);
    }
    for (int i = 0; i < n; i++) {
        if (!tni_image_for(tni_image_unit(i), gpu->major, gpu->minor))
            printf("  %-12s %s\n", "not built in", tni_image_unit(i));
    }
}

/* ---- one GPU ----------------------------------------------------------------------------------------------------- */

/* Both edges of the clock, every line of the bus. */
static double bandwidth(const tni_gpu_clocks *clocks) {
    return 2e3 * clocks->memory_khz * (clocks->bus_bits / 8.0);
}

static void print_gpu(const tn_gpu *gpu) {
    const gpu_state s = nvml_state(gpu->index);
    const tni_gpu_clocks clocks = tni_gpu_clocks_of(gpu);
    char reasons[160];
    printf("%scuda:%d%s  %s%s%s, compute capability %d.%d\n", style_text(BOLD), gpu->index, style_text(PLAIN),
           style_text(BOLD), gpu->name, style_text(PLAIN), gpu->major, gpu->minor);
    printf("  %-12s %.1f GiB", "memory", (double)gpu->memory / 1073741824.0);
    if (s.known) printf(", %.1f GiB free", (double)s.memory_free / 1073741824.0);
    if (bandwidth(&clocks) > 0) {
        printf(", %d bits at %.0f MHz: %.2f TB/s in theory", clocks.bus_bits, clocks.memory_khz / 1e3,
               bandwidth(&clocks) / 1e12);
    }
    printf("\n  %-12s %d SMs at up to %.0f MHz, %.0f MiB of L2, %d KiB of shared memory for a block\n", "processors",
           gpu->sms, clocks.sm_khz / 1e3, gpu->l2_bytes / 1048576.0, gpu->shared_per_block / 1024);
    if (s.known) {
        printf("  %-12s SM %u MHz, memory %u MHz, %u °C, %u of %u W, held down by: %s\n", "now", s.sm_mhz, s.memory_mhz,
               s.celsius, s.watts, s.most_watts, nvml_reasons(s.reasons, reasons));
    } else {
        printf("  %-12s not known: libnvidia-ml.so.1 cannot be used\n", "now");
    }
    print_images(gpu);
}

static void print_cpu(void) {
    printf("%scpu%s     %s%s%s, %d cores, %s, %.0f MiB of cache in the last level\n", style_text(BOLD),
           style_text(PLAIN), style_text(BOLD), bench_cpu(), style_text(PLAIN), bench_cores(), bench_isa(),
           (double)bench_cache() / 1048576.0);
}

/* ---- for programs ------------------------------------------------------------------------------------------------ */

static void json_images(tni_text *t, const tn_gpu *gpu) {
    const char *unit;
    tni_text_add(t, "\"built_in\": {");
    for (int i = 0; (unit = tni_image_unit(i)); i++) {
        const tni_image *image = tni_image_for(unit, gpu->major, gpu->minor);
        char text[32];
        tni_text_add(t, "%s\"%s\": ", i ? ", " : "", unit);
        if (image) tni_image_describe(image, text);
        tni_text_add(t, image ? "\"%s\"" : "null", text);
    }
    tni_text_add(t, "}");
}

static void json_gpu(tni_text *t, const tn_gpu *gpu) {
    const gpu_state s = nvml_state(gpu->index);
    const tni_gpu_clocks clocks = tni_gpu_clocks_of(gpu);
    char reasons[160];
    tni_text_add(t, "%s\n    {\"device\": \"cuda:%d\", \"name\": ", gpu->index ? "," : "", gpu->index);
    tni_text_json_string(t, gpu->name);
    tni_text_add(t,
                 ", \"compute_capability\": \"%d.%d\", \"memory_bytes\": %zu, \"sms\": %d, \"l2_bytes\": %d, "
                 "\"shared_memory_per_block\": %d, \"clock_mhz\": %.0f, \"memory_clock_mhz\": %.0f, \"bus_bits\": %d, "
                 "\"bytes_per_s\": %.4g, ",
                 gpu->major, gpu->minor, gpu->memory, gpu->sms, gpu->l2_bytes, gpu->shared_per_block,
                 clocks.sm_khz / 1e3, clocks.memory_khz / 1e3, clocks.bus_bits, bandwidth(&clocks));
    if (s.known) {
        tni_text_add(
            t,
            "\"now\": {\"free_bytes\": %llu, \"sm_mhz\": %u, \"memory_mhz\": %u, \"celsius\": %u, \"watts\": %u, "
            "\"held_down_by\": \"%s\"}, ",
            (unsigned long long)s.memory_free, s.sm_mhz, s.memory_mhz, s.celsius, s.watts,
            nvml_reasons(s.reasons, reasons));
    } else {
        tni_text_add(t, "\"now\": null, ");
    }
    json_images(t, gpu);
    tni_text_add(t, "}");
}

static int print_json(const tni_cuda_api *cu, const char *why_not, int n) {
    tni_text t = {0};
    tni_text_add(&t, "{\n  \"cpu\": {\"name\": ");
    tni_text_json_string(&t, bench_cpu());
    tni_text_add(&t, ", \"cores\": %d, \"isa\": \"%s\"},\n  \"cuda\": ", bench_cores(), bench_isa());
    if (cu) {
        tni_text_add(&t, "{\"version\": \"%d.%d\", \"driver\": \"%s\"}", cu->version / 1000, cu->version % 1000 / 10,
                     nvml_driver());
    } else {
        tni_text_add(&t, "null,\n  \"why_not\": ");
        tni_text_json_string(&t, why_not);
    }
    tni_text_add(&t, ",\n  \"gpus\": [");
    for (int i = 0; i < n; i++) {
        const tn_gpu *gpu;
        if (tni_gpu_get(WANTED, i, &gpu) == TN_OK) json_gpu(&t, gpu);
    }
    tni_text_add(&t, "%s]\n}\n", n ? "\n  " : "");
    bool failed = t.failed;
    if (failed) fprintf(stderr, "tenon devices: out of memory\n");
    if (!failed) fputs(t.data, stdout);
    tn_free(t.data);
    return failed;
}

/* ---- the verb ---------------------------------------------------------------------------------------------------- */

static int run(int count, const char *const *rest) {
    char why_not[512] = "";
    if (count) return usage_error(&verb_devices, "takes no arguments, not '%s'", rest[0]);
    const tni_cuda_api *cu = tni_cuda(WANTED);
    const char *message = tn_last_error(), *colon = strstr(message, ": ");
    if (!cu) snprintf(why_not, sizeof why_not, "%s", colon ? colon + 2 : message);
    const int n = cu ? tni_gpu_count(WANTED) : 0;
    if (json) return print_json(cu, why_not, n);
    if (cu) {
        printf("CUDA %d.%d", cu->version / 1000, cu->version % 1000 / 10);
        printf(nvml_driver()[0] ? ", driver %s\n\n" : "\n\n", nvml_driver());
    } else {
        printf("no GPU: %s; operators run on the CPU\n\n", why_not);
    }
    for (int i = 0; i < n; i++) {
        const tn_gpu *gpu;
        if (tni_gpu_get(WANTED, i, &gpu) != TN_OK) {
            fprintf(stderr, "tenon devices: %s\n", tn_last_error());
            return 1;
        }
        print_gpu(gpu);
        putchar('\n');
    }
    print_cpu();
    return 0;
}

static const option options[] = {
    {"--json", NULL, "one object, for programs", FLAG, &json},
    {0},
};

const verb verb_devices = {
    .name = "devices",
    .summary = "the GPUs and the CPU that operators can run on, and what is built in for them",
    .examples = "tenon devices\twhat there is\n"
                "tenon devices --json\tthe same for a program\n"
                "CUDA_VISIBLE_DEVICES=1 tenon devices\twhat a process that sees one GPU is offered",
    .options = options,
    .text =
        "Looks without touching: no CUDA context is made, no memory is taken. A GPU gets the image that was made for "
        "it, else the nearest one of its generation, else the PTX, which the driver compiles at first use.",
    .run = run,
};
