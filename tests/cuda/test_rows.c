/* The kernels of rows, on the CPU, thread by thread (emulate.h), as the library launches them for a driver that is made
 * up (tests/plugins/fake_cuda.c): rows of all lengths that begin anywhere, beside the reference. All rows of a call
 * have the same elements and must come out the same, wherever they begin; nothing outside of the tensors is read, and
 * nothing between their rows is written. A machine without a C++ compiler leaves it out, and says so. An argument
 * behind the driver names the only operator to try. */
#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/host/arith.h"
#include "cuda/driver/cuda.h"
#include "cuda/driver/driver.h"
#include "tests/plugins/fake_cuda.h"
#include "tests/test.h"
#include <tenon/call.h>

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

static char folder[64] = "/tmp/tenon-rows-XXXXXX";

typedef struct unit {
    const char *name, *source; /* of src/ops */
    void *library;             /* once a kernel of it was asked for */
    bool is_built;
} unit;

static unit units[] = {
    {.name = "softmax", .source = "softmax/softmax.cu"},
    {.name = "softmax_grad", .source = "softmax/softmax_grad.cu"},
    {.name = "layer_norm", .source = "norm/layer_norm.cu"},
    {.name = "layer_norm_grad", .source = "norm/layer_norm_grad.cu"},
    {.name = "cross_entropy", .source = "loss/cross_entropy.cu"},
};
enum { UNITS = sizeof units / sizeof *units };

/* Their "code" is their name. */
#define IMAGE(name) \
    { name, 90, 'a', (const unsigned char *)name, (const unsigned char *)name + sizeof name }
const tni_image tni_images[] = {
    IMAGE("softmax"), IMAGE("softmax_grad"), IMAGE("layer_norm"), IMAGE("layer_norm_grad"), IMAGE("cross_entropy"), {0},
};

static void build(unit *u) {
    char path[128], command[1024];
    u->is_built = true;
    snprintf(path, sizeof path, "%s/%s.so", folder, u->name);
    snprintf(command, sizeof command,
             "c++ -Og -std=c++17 -shared -fPIC -w -I " SOURCES " -x c++ -D__CUDACC__ -include " EMULATE_H " " SOURCES
             "/ops/%s -o %s",
             u->source, path);
    u->library = system(command) == 0 ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    unlink(path);
    CHECK_ROW(u->library, "%s", u->source);
}

static unit *unit_of(const char *name) {
    for (int i = 0; i < UNITS; i++) {
        if (strcmp(units[i].name, name) != 0) continue;
        if (!units[i].is_built) build(&units[i]);
        return units[i].library ? &units[i] : NULL;
    }
    return NULL;
}

typedef void (*kernel)(const void *);
typedef void (*emulate)(kernel run, const void *arguments, unsigned grid, unsigned block, unsigned cluster);
typedef void (*allow)(const char *const (*tensors)[2], int count);

enum { MOST_TENSORS = 16, MOST_KERNELS = 1024 };
static const char *inputs[MOST_TENSORS][2]; /* of a call: begin and end */
static int n_inputs;

static struct { void *kernel, *library; } found[MOST_KERNELS];
static int n_found;

static void *find(const char *code, const char *name) {
    const unit *u = unit_of(code);
    void *function = u ? dlsym(u->library, name) : NULL;
    int i = 0;
    while (i < n_found && found[i].kernel != function) i++;
    if (!function || i == MOST_KERNELS) return NULL;
    found[i].kernel = function;
    found[i].library = u->library;
    n_found = max(n_found, i + 1);
    return function;
}

static void run(void *function, const fake_launch *how, void **arguments) {
    const cu_config *config = (const void *)how;
    unsigned cluster = 1;
    int i = 0;
    emulate start;
    allow tell;
    kernel to_run;
    while (found[i].kernel != function) i++;
    for (uint32_t k = 0; k < config->n_attributes; k++) {
        if (config->attributes[k].id == CU_CLUSTER) cluster = config->attributes[k].value.cluster.x;
    }
    void *starter = dlsym(found[i].library, "tn_emulate"), *teller = dlsym(found[i].library, "tn_allow");
    memcpy(&start, &starter, sizeof start);
    memcpy(&tell, &teller, sizeof tell);
    memcpy(&to_run, &function, sizeof to_run);
    tell((const char *const(*)[2])inputs, n_inputs);
    start(to_run, arguments[0], how->grid[0], how->block[0], cluster);
}

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

enum { UNTOUCHED = 0xaa, AROUND = 64 };

typedef struct tensor {
    tn_type type;
    int32_t ndim;
    int64_t shape[2], strides[2];
    unsigned char *memory, *data;
    size_t bytes; /* of memory */
} tensor;

/* Rows of n that are `pitch` apart, the first one `lead` elements behind a multiple of 64 bytes; or one dimension,
 * where count is 0. */
static tensor make(tn_type type, int64_t count, int64_t n, int64_t pitch, int64_t lead) {
    tensor t = {
        .type = type, .ndim = count ? 2 : 1, .shape = {count ? count : n, n}, .strides = {count ? pitch : 1, 1}};
    const size_t size = tn_type_size(type);
    t.bytes = (size_t)round_up((int64_t)size * (lead + max(count, 1) * pitch) + 2 * AROUND, 64);
    t.memory = aligned_alloc(64, t.bytes);
    t.data = t.memory + AROUND + (size_t)lead * size;
    memset(t.memory, UNTOUCHED, t.bytes);
    return t;
}

/* All rows alike. */
static void fill(tensor *t, int seed) {
    const int64_t count = t->ndim > 1 ? t->shape[0] : 1, n = t->shape[t->ndim - 1];
    for (int64_t r = 0; r < count; r++) {
        uint64_t state = (uint64_t)seed;
        for (int64_t i = 0; i < n; i++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            tn_set(t->type, t->data, r * t->strides[0] + i, (double)(int64_t)(state >> 40 & 0xffff) / 0x4000 - 2);
        }
    }
}

static int64_t last_of(const tensor *t) {
    return t->ndim > 1 ? (t->shape[0] - 1) * t->strides[0] + t->shape[1] : t->shape[0];
}

static tn_tensor seen(tensor *t, tn_device device) {
    tn_tensor view = tn_dense(t->data, t->type, t->ndim, t->shape);
    view.strides = t->strides;
    view.device = device;
    return view;
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

/* of what a tensor is: 'r' rows, 'v' a number for each column, 'a' one for each row, in what T is computed in, 'i' a
 * column for each row. */
typedef struct operation {
    const char *name, *in, *out;
    const char *reduction; /* an attribute, of operators that have it */
    bool is_short;         /* no clusters: they wait in a way that is not emulated; nor is it done in place */
} operation;

static const operation operators[] = {
    {"softmax", "r", "r"},
    {"softmax_grad", "rr", "r"},
    {"layer_norm", "rvv", "raa"},
    {"layer_norm_grad", "rvvaar", "rvv"},
    {"cross_entropy", "ri", "aar", .reduction = "none", .is_short = true},
};

typedef struct layout {
    int64_t pitch, lead; /* pitch: more than a row has elements */
    bool in_place;
} layout;

static tensor make_argument(char kind, tn_type type, int64_t count, int64_t n, const layout *how, int at) {
    const tn_type acc = type == TN_F64 ? TN_F64 : TN_F32;
    if (kind == 'r') return make(type, count, n, n + how->pitch, (how->lead + at) % 9);
    if (kind == 'i') return make(TN_I64, 0, count, count, 0);
    return kind == 'v' ? make(type, 0, n, n, 0) : make(acc, 0, count, count, 0);
}

static void call(const operation *op, tensor *in, tensor *out, tn_device device, const char *only) {
    tn_tensor views[2 * MOST_TENSORS];
    const tn_tensor *from[MOST_TENSORS];
    tn_tensor *to[MOST_TENSORS];
    const int n_in = (int)strlen(op->in), n_out = (int)strlen(op->out);
    n_inputs = n_in;
    for (int i = 0; i < n_in; i++) {
        views[i] = seen(&in[i], device);
        from[i] = &views[i];
        inputs[i][0] = (char *)in[i].data;
        inputs[i][1] = (char *)in[i].data + (size_t)last_of(&in[i]) * tn_type_size(in[i].type);
    }
    for (int i = 0; i < n_out; i++) {
        views[n_in + i] = seen(&out[i], device);
        to[i] = &views[n_in + i];
    }
    const tn_attr reduction = op->reduction ? tn_attr_str("reduction", op->reduction) : (tn_attr){0};
    const tn_args args = {.in = from,
                          .n_in = n_in,
                          .attrs = &reduction,
                          .n_attrs = op->reduction ? 1 : 0,
                          .out = to,
                          .n_out = n_out,
                          .kernel = only};
    CHECK_ROW(tn_run(tn_find(op->name), &args, NULL) == TN_OK, "%s: %s", op->name, tn_last_error());
}

/* Elements that differ from what they should be, rows that are not as the first one, bytes between rows that were
 * written. */
static void compare(const char *what, const tensor *got, const tensor *right) {
    const double last = got->type == TN_F64   ? 0x1p-43
                        : got->type == TN_F32 ? 0x1p-17
                        : got->type == TN_F16 ? 0x1p-10
                                              : 0x1p-7;
    const int64_t count = got->ndim > 1 ? got->shape[0] : 1, n = got->shape[got->ndim - 1];
    const size_t size = tn_type_size(got->type);
    double most = 0;
    int64_t wrong = 0, apart = 0, touched = 0;
    for (int64_t i = 0; i < n; i++) most = fmax(most, fabs(tn_get(right->type, right->data, i)));
    for (int64_t r = 0; r < count; r++) {
        for (int64_t i = 0; i < n; i++) {
            const double a = tn_get(got->type, got->data, r * got->strides[0] + i);
            const double b = tn_get(right->type, right->data, r * right->strides[0] + i);
            wrong += !(fabs(a - b) <= last * (fabs(b) + most / 8));
        }
        unsigned char *row = got->data + (size_t)(r * got->strides[0]) * size;
        apart += memcmp(row, got->data, (size_t)n * size) != 0;
        memset(row, UNTOUCHED, (size_t)n * size * (r > 0)); /* the first one stays, to be compared */
    }
    for (unsigned char *p = got->memory; p < got->memory + got->bytes; p++)
        touched += *p != UNTOUCHED && (p < got->data || p >= got->data + (size_t)n * size);
    CHECK_ROW(wrong == 0, "%s: %lld elements are wrong", what, (long long)wrong);
    CHECK_ROW(apart == 0, "%s: %lld rows are not as the first one", what, (long long)apart);
    CHECK_ROW(touched == 0, "%s: %lld bytes outside were written", what, (long long)touched);
}

/* `first`: of an earlier call with the same rows, which must be the same to the last bit; its memory is NULL if there
 * was none. */
static void try_rows(const operation *op, tn_type type, int64_t count, int64_t n, const layout *how, tensor *first) {
    tensor in[MOST_TENSORS], out[MOST_TENSORS], right[MOST_TENSORS];
    const int n_in = (int)strlen(op->in), n_out = (int)strlen(op->out);
    const int rows = (int)(strchr(op->out, 'r') - op->out); /* the output that is as x */
    const layout dense = {0};
    char what[128];
    snprintf(what, sizeof what, "%s of %lld x %lld in %s, pitch +%lld, lead %lld%s", op->name, (long long)count,
             (long long)n, tn_type_name(type), (long long)how->pitch, (long long)how->lead,
             how->in_place ? ", in place" : "");
    for (int i = 0; i < n_in; i++) {
        in[i] = make_argument(op->in[i], type, count, n, how, i);
        fill(&in[i], i + 1);
        for (int64_t r = 0; r < count && op->in[i] == 'a'; r++) tn_set(in[i].type, in[i].data, r, 0.75 + i);
        for (int64_t r = 0; r < count && op->in[i] == 'i'; r++) ((int64_t *)(void *)in[i].data)[r] = n / 2;
    }
    for (int i = 0; i < n_out; i++) {
        right[i] = make_argument(op->out[i], type, count, n, &dense, 0);
        out[i] = make_argument(op->out[i], type, count, n, how, n_in + i);
    }
    call(op, in, right, (tn_device){TN_CPU, 0}, "ref");
    if (how->in_place) {
        free(out[rows].memory);
        out[rows] = in[0];
    }
    call(op, in, out, (tn_device){TN_CUDA, 0}, "cuda");
    for (int i = 0; i < n_out; i++) compare(what, &out[i], &right[i]);
    if (first->memory) {
        CHECK_ROW(memcmp(first->data, out[rows].data, (size_t)n * tn_type_size(type)) == 0, "%s: other bits", what);
    } else {
        *first = make(type, 1, n, n, 0);
        memcpy(first->data, out[rows].data, (size_t)n * tn_type_size(type));
    }
    for (int i = how->in_place; i < n_in; i++) free(in[i].memory);
    for (int i = 0; i < n_out; i++) {
        free(out[i].memory);
        free(right[i].memory);
    }
}

/* One type of 2 bytes and a longer one for each length. */
static void try_lengths(const operation *op) {
    static const int64_t lengths[] = {1, 2, 5, 8, 9, 16, 17, 31, 65, 127, 256, 257, 600, 1025, 1536, 2049, 4100};
    static const layout layouts[] = {{1, 0, false}, {3, 1, false}, {2, 5, true}};
    for (size_t i = 0; i < 2 * (sizeof lengths / sizeof *lengths); i++) {
        const int64_t n = lengths[i / 2];
        const tn_type type = i % 2 ? i / 2 % 2 ? TN_F32 : TN_F64 : i / 2 % 2 ? TN_F16 : TN_BF16;
        tensor first = {0}, other = {0};
        for (size_t k = 0; k < sizeof layouts / sizeof *layouts; k++) {
            if ((n > 300 && k == i % 3) || (op->is_short && layouts[k].in_place)) continue;
            try_rows(op, type, n > 300 ? 2 : 9, n, &layouts[k], &first);
        }
        try_rows(op, type, 3, n, &(layout){0, (int64_t)i % 8, false}, &other); /* without gaps */
        free(first.memory);
        free(other.memory);
    }
}

/* A cluster has a row, or it is split. */
static void try_long(const operation *op, tn_type type) {
    tensor first = {0}, other = {0};
    try_rows(op, type, 2, 20001, &(layout){1, 0, false}, &first);
    try_rows(op, type, 1, 20001, &(layout){3, 1, false}, &first);
    try_rows(op, type, 2, 300007, &(layout){3, 1, true}, &other);
    free(first.memory);
    free(other.memory);
}

int main(int argc, char **argv) {
    const char *path = argc > 1 ? argv[1] : "fake_cuda.so";
    if (system("c++ --version > /dev/null 2>&1") != 0) {
        printf("there is no C++ compiler: nothing was run\n");
        return 0;
    }
    setenv("FAKE_CUDA", "kernels", 1);
    void *driver = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    void *(**finder)(const char *, const char *) = driver ? dlsym(driver, "fake_find") : NULL;
    void (**runner)(void *, const fake_launch *, void **) = driver ? dlsym(driver, "fake_run") : NULL;
    CHECK(finder && runner && mkdtemp(folder));
    if (!finder || !runner) return test_end();
    *finder = find;
    *runner = run;
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++) {
        if (argc > 2 && strcmp(argv[2], operators[i].name) != 0) continue;
        try_lengths(&operators[i]);
        if (!operators[i].is_short) try_long(&operators[i], i % 2 ? TN_F32 : TN_BF16);
    }
    rmdir(folder);
    return test_end();
}
