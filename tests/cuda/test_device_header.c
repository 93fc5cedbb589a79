/* tenon/device.cuh, as authors get it: it compiles alone, in every type (device_header.cu), and so does each example of
 * docs/cuda.md, by NVRTC for the generations of GPUs, and by nvcc for the host's side too. Where there is a GPU, what
 * the kernels of device_header.cu compute is compared.
 *     test_device_header HEADER SOURCE DOCUMENT NVCC */
#include <math.h>
#include <stdlib.h>

#include <tenon/device.h>

#include "core/host/memory.h"
#include "cuda/driver/cuda.h"
#include "cuda/driver/nvrtc.h"
#include "tests/test.h"

static const int archs[] = {75, 80, 86, 89, 90, 100, 103, 120};

static char *read_file(const char *path) {
    FILE *f = fopen(path, "rb");
    char *text = calloc(1, 1 << 20);
    if (f && text && fread(text, 1, (1 << 20) - 1, f) == 0) text[0] = 0;
    if (f) fclose(f);
    return text;
}

static void compile(const char *name, const char *source, int arch) {
    tni_compiled_code code = {0};
    CHECK_ROW(tni_nvrtc_compile("test", name, source, arch / 10, arch % 10, NULL, &code) == TN_OK, "%s for sm_%d: %s",
              name, arch, tn_last_error());
    tni_free(code.data);
}

/* Blocks of the document that begin with ```cuda. */
static int compile_examples(char *document) {
    int count = 0;
    for (char *at = strstr(document, "\n```cuda"); at; at = strstr(at, "\n```cuda")) {
        char *begin = strchr(at + 1, '\n') + 1, *end = strstr(begin, "\n```");
        if (!end) break;
        char keep = end[1], name[32];
        end[1] = 0;
        snprintf(name, sizeof name, "example_%d.cu", ++count);
        CHECK_ROW(strstr(begin, "#include <tenon/device.cuh>"), "%s", name);
        compile(name, begin, 75);
        compile(name, begin, 90);
        end[1] = keep;
        at = end;
    }
    return count;
}

static void compile_by_nvcc(const char *nvcc, const char *header, const char *source) {
    char command[4096];
    const char *folder = "tenon/device.cuh";
    snprintf(command, sizeof command, "'%s' -std=c++17 -c -arch=sm_90 -Werror all-warnings -I '%.*s' -o /dev/null '%s'",
             nvcc, (int)(strlen(header) - strlen(folder)), header, source);
    CHECK_ROW(system(command) == 0, "%s", command);
}

/* ---- on a GPU ---------------------------------------------------------------------------------------------------- */

typedef struct device_code {
    tn_call call;
    tni_compiled_code code;
    void *stream;
    tn_host host;
} device_code;

static const tn_device gpu = {TN_CUDA, 0}, cpu = {TN_CPU, 0};

static tn_block upload(device_code *d, const void *data, size_t bytes) {
    tn_block block = {0};
    CHECK(tn_device_alloc(gpu, bytes, d->stream, &block) == TN_OK);
    CHECK(tn_copy(gpu, block.data, cpu, data, bytes, d->stream) == TN_OK);
    return block;
}

static void download(device_code *d, tn_block block, void *data, size_t bytes) {
    CHECK_ROW(tn_copy(cpu, data, gpu, block.data, bytes, d->stream) == TN_OK, "%s", tn_last_error());
    CHECK_ROW(tn_stream_wait(gpu, d->stream) == TN_OK, "%s", tn_last_error());
    tn_device_free(gpu, block, d->stream);
}

static bool launch(device_code *d, tn_launch l, const char *name, void **arguments) {
    int most = 1;
    tn_status status = tn_cuda_find(&d->call, &l, d->code.data, d->code.bytes, name);
    if (status == TN_OK && l.cluster > 8) status = tn_cuda_occupancy(&d->call, &l, &most); /* not every GPU has them */
    if (most == 0) return false;
    if (status == TN_OK) status = tn_cuda_launch(&d->call, &l, arguments);
    CHECK_ROW(status == TN_OK, "%s", tn_last_error());
    return status == TN_OK;
}

enum { MOST = 16 * 1024 };

/* The type's name in kernels, how it is stored, and how its results are. */
static const struct {
    const char *name;
    tn_type type, wide; /* TN_NO_TYPE: unsigned, which tensors are not */
} types[] = {{"f32", TN_F32, TN_F32}, {"f64", TN_F64, TN_F64}, {"f16", TN_F16, TN_F32}, {"bf16", TN_BF16, TN_F32},
             {"i32", TN_I32, TN_I32}, {"u32", TN_I32, TN_I32}, {"i64", TN_I64, TN_I64}};

/* Small whole numbers, whose sums are exact in every type and order. */
static double value(int i) {
    return (i * 37 + 11) % 101;
}

static void expect(const double *x, int n, double *out) {
    out[0] = 0, out[1] = x[0], out[2] = x[0];
    for (int i = 0; i < n; i++) {
        out[0] += x[i];
        out[1] = fmax(out[1], x[i]);
        out[2] = fmin(out[2], x[i]);
    }
}

static void check_reduction(device_code *d, int t, tn_launch l) {
    static double x[MOST];
    static char stored[MOST * 8], got[9 * 8];
    const int threads = (int)(l.block * (l.block_y ? l.block_y : 1) * (l.block_z ? l.block_z : 1));
    const int n = threads * (int)l.grid;
    double wanted[9] = {0};
    char name[32];
    for (int i = 0; i < n; i++) tn_set(types[t].type, stored, i, x[i] = value(i));
    if (threads % 32 == 0) expect(x + n - 32, 32, wanted);
    expect(x + n - threads, threads, wanted + 3);
    expect(x, n, wanted + 6);
    tn_block in = upload(d, stored, (size_t)n * tn_type_size(types[t].type)), out = upload(d, got, sizeof got);
    snprintf(name, sizeof name, "reduce_%s", types[t].name);
    const bool done = launch(d, l, name, (void *[]){&in.data, &out.data});
    download(d, out, got, sizeof got);
    tn_device_free(gpu, in, d->stream);
    for (int k = 0; done && k < 9; k++) {
        const double is = tn_get(types[t].wide, got, k);
        CHECK_ROW(is == wanted[k], "%s, %u blocks of %u x %u x %u, number %d: %g, not %g", name, l.grid, l.block,
                  l.block_y, l.block_z, k, is, wanted[k]);
    }
}

static void check_reductions(device_code *d, bool clusters) {
    static const tn_launch shapes[] = {{.block = 1},
                                       {.block = 3},
                                       {.block = 32},
                                       {.block = 33},
                                       {.block = 100},
                                       {.block = 256},
                                       {.block = 1000},
                                       {.block = 1024},
                                       {.block = 8, .block_y = 5, .block_z = 3},
                                       {.block = 16, .block_y = 16}};
    for (int t = 0; t < (int)(sizeof types / sizeof *types); t++) {
        for (int s = 0; s < (int)(sizeof shapes / sizeof *shapes); s++) {
            for (uint32_t blocks = 1; blocks <= (clusters ? 16 : 1); blocks *= 2) {
                tn_launch l = shapes[s];
                l.grid = l.cluster = blocks;
                check_reduction(d, t, l);
            }
        }
    }
}

/* From every place that a vector can begin at, and with every rest. */
static void check_vectors(device_code *d, const char *name, tn_type type) {
    enum { N = 64 };
    const int size = (int)tn_type_size(type);
    for (int lead = 0; lead < 8; lead++) {
        for (long long n = 0; n < 24; n++) {
            char x[N * 8], y[N * 8];
            for (int i = 0; i < N; i++) tn_set(type, x, i, value(i)), tn_set(type, y, i, -1);
            tn_block in = upload(d, x, (size_t)(N * size)), out = upload(d, y, (size_t)(N * size));
            void *from = (char *)in.data + lead * size, *to = (char *)out.data + (lead * 3 % 8) * size;
            launch(d, (tn_launch){.grid = 1, .block = 32}, name, (void *[]){&from, &to, &n});
            download(d, out, y, (size_t)(N * size));
            tn_device_free(gpu, in, d->stream);
            for (int i = 0; i < N; i++) {
                const int at = i - lead * 3 % 8;
                const double is = tn_get(type, y, i), wanted = at >= 0 && at < n ? value(at + lead) + 1 : -1;
                CHECK_ROW(is == wanted, "%s, %lld from %d on, element %d: %g, not %g", name, n, lead, at, is, wanted);
            }
        }
    }
}

static void run_on_gpu(const char *source) {
    const tn_gpu *found;
    device_code d = {.call = {.name = "test", .device = gpu}};
    if (tni_gpu_get("test", 0, &found) != TN_OK || tn_stream_make(gpu, &d.stream) != TN_OK) return;
    d.host = tn_stream_host(d.stream);
    d.call.host = &d.host;
    CHECK(tni_nvrtc_compile("test", "device_header.cu", source, found->major, found->minor, NULL, &d.code) == TN_OK);
    check_reductions(&d, found->major >= 9);
    check_vectors(&d, "add_one_f32", TN_F32);
    check_vectors(&d, "add_one_f16", TN_F16);
    tni_free(d.code.data);
    tn_stream_free(gpu, d.stream);
    printf("the kernels ran on %s\n", found->name);
}

int main(int argc, char **argv) {
    CHECK(argc > 3);
    if (argc <= 3) return test_end();
    char *header = read_file(argv[1]), *source = read_file(argv[2]), *document = read_file(argv[3]);
    const bool has_nvrtc = tni_nvrtc_version("test") > 0, has_nvcc = argc > 4 && *argv[4] == '/';
    CHECK(strcmp(header, tni_device_text) == 0); /* NVRTC gets the file that is installed */
    /* The types and their functions where #if tells GPUs apart: sm_75, sm_80 and sm_90. */
    for (size_t i = 0; has_nvrtc && i < sizeof archs / sizeof *archs; i++) {
        compile("alone.cu", "#include <tenon/device.cuh>\n", archs[i]);
        if (archs[i] % 5 == 0 && archs[i] <= 90) compile("device_header.cu", source, archs[i]);
    }
    if (has_nvrtc) {
        CHECK(compile_examples(document) > 4);
        tni_compiled_code code = {0};
        CHECK(tni_nvrtc_compile("test", "mine.cu", "#include <tenon/device.cuh>\nint a = tn::none;\n", 9, 0, NULL,
                                &code) == TN_BAD_VALUE);
        CHECK_ROW(strstr(tn_last_error(), "mine.cu(2)"), "%s", tn_last_error()); /* the author's own line */
    }
    if (has_nvcc) compile_by_nvcc(argv[4], argv[1], argv[2]);
    if (!has_nvrtc && !has_nvcc) printf("there is neither NVRTC nor nvcc: nothing was compiled\n");
    if (has_nvrtc) run_on_gpu(source);
    free(header);
    free(source);
    free(document);
    return test_end();
}
