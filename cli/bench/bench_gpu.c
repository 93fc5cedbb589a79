/* Timing one call on a GPU. Work is queued in batches behind a head start, so that the GPU never waits for the CPU
 * between two events; copies of as many bytes take turns with the calls. */
#include "bench_gpu.h"
#include "core/host/arith.h"
#include "cuda/copy/copy.h"

#include <stdlib.h>
#include <string.h>

enum {
    MOST_BATCH = 32, /* pairs of events that are queued at once */
    MOST_TIMES = 2048,
    MOST_BUFFERS = 64,
    LEAST_ROUNDS = 3,
    HEAD_START = 12, /* fillings of the flush buffer ahead of a batch: half a millisecond */
    MOST_GRAPH = 256,
};
static const double BATCH_SECONDS = 10e-3, GRAPH_SECONDS = 4e-3;
static const double PART_OF_MEMORY = 0.7;
static const size_t LEAST_ARENA = (size_t)64 << 20;
static const char WANTED[] = "tenon bench";

/* What can be timed. */
typedef enum work { RUN, RUN_HOT, COPY_ENGINE, COPY_KERNEL, WORKS } work;

/* Times of one kind of work. */
typedef struct series {
    double *events, *graph; /* (MOST_TIMES) */
    int n_events, n_graph;
    cu_graph_exec exec; /* NULL: none */
    bool left_out;
} series;

typedef struct bench {
    const tni_cuda_api *cu;
    tn_device device;
    cu_stream stream;
    tn_host host;
    const tn_function *op;
    made_call *calls; /* (buffers) */
    int made, buffers;
    bool flushed;
    int64_t turn;
    int batch, graph_calls;
    cu_pointer flush, from, to; /* from, to: the copy's, `buffers` times `half` bytes */
    size_t flush_bytes, half;
    cu_event begin[MOST_BATCH], end[MOST_BATCH];
    cu_pointer arena; /* workspace: calls follow each other on one stream, so each may have all of it */
    size_t arena_bytes, arena_used;
    series series[WORKS];
} bench;

static tn_status failed(const char *what, int error) {
    return error ? tni_cuda_failed(WANTED, what, error) : TN_OK;
}

/* ---- workspace: what a framework's caching allocator does -------------------------------------------------------- */

static tn_block arena_alloc(void *context, tn_device device, size_t bytes) {
    bench *b = context;
    size_t at = (size_t)round_up((int64_t)b->arena_used, 256);
    (void)device;
    if (at + bytes > b->arena_bytes) { /* only before the clock runs: every call asks for the same */
        const size_t room = bytes > LEAST_ARENA / 2 ? 2 * bytes : LEAST_ARENA;
        cu_pointer larger;
        if (b->arena_used || b->cu->cuMemAlloc(&larger, room) != 0) return (tn_block){0};
        b->cu->cuStreamSynchronize(b->stream);
        if (b->arena) b->cu->cuMemFree(b->arena);
        b->arena = larger;
        b->arena_bytes = room;
        at = 0;
    }
    b->arena_used = at + bytes;
    return (tn_block){(void *)(uintptr_t)(b->arena + at), NULL};
}

static void arena_release(void *context, tn_device device, tn_block block) {
    bench *b = context;
    (void)device;
    size_t at = (size_t)((uintptr_t)block.data - b->arena);
    if (at < b->arena_used) b->arena_used = at;
}

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

/* Large inputs repeat a million random numbers, on the GPU by copies that double. */
static tn_status fill_input(bench *b, array *a, const tni_sample_input *input, uint64_t seed) {
    const bool whole = input->order != TNI_ORDER_NONE;
    const int64_t most = 1000003, n = whole || a->count < most ? a->count : most;
    const size_t size = tn_type_size(a->type), all = (size_t)a->count * size;
    double *values = tni_malloc((size_t)n * sizeof *values + 1);
    char *held = tni_malloc((size_t)n * size + 1);
    tn_status status = values && held ? TN_OK : TN_NO_MEMORY;
    if (status == TN_OK && n) {
        tni_sample_input drawn = *input;
        if (!whole) drawn.shape = (tni_dims){.ndim = 1, .d = {n}};
        case_values(&drawn, a->type, seed, values);
        for (int64_t i = 0; i < n; i++) tn_set(a->type, held, i, values[i]);
        const cu_pointer to = (uintptr_t)a->tensor.data;
        int error = b->cu->cuMemcpyHtoDAsync(to, held, (size_t)n * size, b->stream);
        for (size_t done = (size_t)n * size; !error && done < all;) {
            size_t part = all - done < done ? all - done : done;
            error = b->cu->cuMemcpyDtoDAsync(to + done, to, part, b->stream);
            done += part;
        }
        if (!error) error = b->cu->cuStreamSynchronize(b->stream);
        status = failed("filling a tensor", error);
    }
    tni_free(values);
    tni_free(held);
    return status;
}

static tn_status place_array(bench *b, array *a) {
    cu_pointer data = 0;
    if (a->count < 0) return TN_OK;
    const size_t bytes = (size_t)a->count * tn_type_size(a->type);
    TN_TRY(failed("memory for a tensor", b->cu->cuMemAlloc(&data, bytes ? bytes : 1)));
    a->tensor.data = (void *)(uintptr_t)data;
    a->tensor.device = b->device;
    return failed("filling a tensor", b->cu->cuMemsetD8Async(data, 0, bytes ? bytes : 1, b->stream));
}

/* Arrays of a bare call own no memory of the host; what they have on the GPU is freed here. */
static void drop_call(const bench *b, made_call *k) {
    for (int32_t i = 0; k->in && i < k->n_in + k->n_out; i++) {
        array *a = i < k->n_in ? &k->in[i] : &k->out[i - k->n_in];
        if (a->tensor.data) b->cu->cuMemFree((uintptr_t)a->tensor.data);
        a->tensor.data = NULL;
    }
    call_free(k);
}

static tn_status make_call(bench *b, made_call *k, const tni_case *sample, const char *kernel) {
    TN_TRY(call_make(k, b->op, sample, (call_options){.bare = true}));
    b->made++;
    k->args.kernel = kernel;
    for (int32_t i = 0; i < k->n_in + k->n_out; i++) {
        TN_TRY(place_array(b, i < k->n_in ? &k->in[i] : &k->out[i - k->n_in]));
    }
    for (int32_t i = 0; i < k->n_in; i++) TN_TRY(fill_input(b, &k->in[i], &sample->inputs[i], (uint64_t)i + 1));
    return TN_OK;
}

/* ---- one piece of work ------------------------------------------------------------------------------------------- */

static tn_status copy_by_kernel(bench *b, cu_pointer to, cu_pointer from) {
    const int64_t shape[] = {(int64_t)(b->half / 16)}, strides[] = {1};
    const tn_call k = {.name = "copy", .device = b->device, .host = &b->host};
    tn_view x = {(void *)(uintptr_t)from, shape, strides, 1, TN_C128}, y = x;
    y.data = (void *)(uintptr_t)to;
    return tni_cuda_copy(&k, &y, &x);
}

static tn_status queue(bench *b, work w, int64_t turn) {
    const int64_t at = turn % b->buffers;
    const cu_pointer from = b->from + (uint64_t)at * b->half, to = b->to + (uint64_t)at * b->half;
    const made_call *k = &b->calls[w == RUN_HOT ? 0 : at];
    switch (w) {
    case COPY_ENGINE: return failed("copying", b->cu->cuMemcpyDtoDAsync(to, from, b->half, b->stream));
    case COPY_KERNEL: return copy_by_kernel(b, to, from);
    default: return tn_run(b->op, &k->args, &b->host);
    }
}

static tn_status flush(bench *b) {
    return failed("flushing L2", b->cu->cuMemsetD8Async(b->flush, 0, b->flush_bytes, b->stream));
}

/* ---- events ------------------------------------------------------------------------------------------------------ */

static tn_status time_events(bench *b, work w) {
    series *s = &b->series[w];
    const bool between = b->flushed && w != RUN_HOT;
    for (int i = 0; i < HEAD_START; i++) TN_TRY(flush(b));
    for (int i = 0; w == RUN_HOT && i < 2; i++) TN_TRY(queue(b, w, 0));
    for (int i = 0; i < b->batch; i++) {
        if (between) TN_TRY(flush(b));
        TN_TRY(failed("an event", b->cu->cuEventRecord(b->begin[i], b->stream)));
        TN_TRY(queue(b, w, b->turn++));
        TN_TRY(failed("an event", b->cu->cuEventRecord(b->end[i], b->stream)));
    }
    TN_TRY(failed("waiting for the GPU", b->cu->cuStreamSynchronize(b->stream)));
    for (int i = 0; i < b->batch && s->n_events < MOST_TIMES; i++) {
        float milliseconds = 0;
        TN_TRY(failed("an event", b->cu->cuEventElapsedTime(&milliseconds, b->begin[i], b->end[i])));
        s->events[s->n_events++] = (double)milliseconds * 1e-3;
    }
    return TN_OK;
}

/* ---- graphs ------------------------------------------------------------------------------------------------------ */

static tn_status capture(bench *b, work w) {
    const int this_thread = 1; /* CU_STREAM_CAPTURE_MODE_THREAD_LOCAL */
    cu_graph graph = NULL;
    TN_TRY(failed("capturing", b->cu->cuStreamBeginCapture(b->stream, this_thread)));
    tn_status status = TN_OK;
    for (int i = 0; status == TN_OK && i < b->graph_calls; i++) status = queue(b, w, i);
    int error = b->cu->cuStreamEndCapture(b->stream, &graph);
    if (status == TN_OK) status = failed("capturing", error);
    if (status == TN_OK) {
        status = failed("making a graph", b->cu->cuGraphInstantiateWithFlags(&b->series[w].exec, graph, 0));
    }
    if (graph) b->cu->cuGraphDestroy(graph);
    return status;
}

static tn_status time_graph(bench *b, work w) {
    series *s = &b->series[w];
    float milliseconds = 0;
    if (!s->exec || s->n_graph == MOST_TIMES) return TN_OK;
    for (int i = 0; i < HEAD_START; i++) TN_TRY(flush(b)); /* meanwhile the graph gets to the GPU */
    TN_TRY(failed("an event", b->cu->cuEventRecord(b->begin[0], b->stream)));
    TN_TRY(failed("launching a graph", b->cu->cuGraphLaunch(s->exec, b->stream)));
    TN_TRY(failed("an event", b->cu->cuEventRecord(b->end[0], b->stream)));
    TN_TRY(failed("waiting for the GPU", b->cu->cuStreamSynchronize(b->stream)));
    TN_TRY(failed("an event", b->cu->cuEventElapsedTime(&milliseconds, b->begin[0], b->end[0])));
    s->graph[s->n_graph++] = (double)milliseconds * 1e-3 / b->graph_calls;
    return TN_OK;
}

/* ---- the CPU's part ---------------------------------------------------------------------------------------------- */

static tn_status time_call(bench *b, spread *to) {
    enum { TIMES = 15, CALLS = 50 }; /* fewer than the driver's queue holds */
    double times[TIMES];
    for (int i = 0; i < TIMES; i++) {
        TN_TRY(failed("waiting for the GPU", b->cu->cuStreamSynchronize(b->stream)));
        double begin = bench_now();
        for (int j = 0; j < CALLS; j++) TN_TRY(queue(b, RUN, j));
        times[i] = (bench_now() - begin) / CALLS;
    }
    *to = bench_spread(times, TIMES);
    return failed("waiting for the GPU", b->cu->cuStreamSynchronize(b->stream));
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

/* How long one call takes, roughly; also the warm-up. */
static tn_status estimate(bench *b) {
    series *s = &b->series[RUN];
    b->batch = 2;
    for (int w = 0; w < WORKS; w++) {
        tn_status status = b->series[w].left_out ? TN_OK : time_events(b, (work)w);
        b->series[w].left_out |= w == COPY_KERNEL && status == TN_UNSUPPORTED; /* a build without that kernel */
        if (!b->series[w].left_out) TN_TRY(status);
        b->series[w].n_events = 0;
    }
    TN_TRY(time_events(b, RUN));
    double seconds = s->events[0] < s->events[1] ? s->events[0] : s->events[1];
    s->n_events = 0;
    if (seconds < 1e-6) seconds = 1e-6;
    double batch = BATCH_SECONDS / seconds, calls = GRAPH_SECONDS / seconds;
    b->batch = batch < 4 ? 4 : batch > MOST_BATCH ? MOST_BATCH : (int)batch;
    b->graph_calls = calls < b->buffers ? b->buffers : calls > MOST_GRAPH ? MOST_GRAPH : (int)calls;
    return TN_OK;
}

static tn_status measure(bench *b, double seconds, gpu_measurement *m) {
    double begin = bench_now();
    TN_TRY(estimate(b));
    for (int w = 0; w < WORKS; w++) {
        bool wanted = !b->series[w].left_out && (w == RUN_HOT || !b->flushed);
        if (wanted) TN_TRY(capture(b, (work)w));
    }
    for (int round = 0; round < LEAST_ROUNDS || bench_now() - begin < seconds; round++) {
        for (int w = 0; w < WORKS; w++) {
            if (b->series[w].left_out) continue;
            TN_TRY(time_events(b, (work)w));
            for (int i = 0; i < 3; i++) TN_TRY(time_graph(b, (work)w));
        }
        if (b->series[RUN].n_events == MOST_TIMES) break;
    }
    return time_call(b, &m->call);
}

static gpu_timing summarise(series *s) {
    return (gpu_timing){.events = bench_spread(s->events, s->n_events), .graph = bench_spread(s->graph, s->n_graph)};
}

static void conclude(bench *b, gpu_measurement *m) {
    m->cold = summarise(&b->series[RUN]);
    m->hot = summarise(&b->series[RUN_HOT]);
    gpu_timing engine = summarise(&b->series[COPY_ENGINE]), kernel = summarise(&b->series[COPY_KERNEL]);
    bool graphs = engine.graph.median > 0 && kernel.graph.median > 0;
    m->by_kernel = b->series[COPY_KERNEL].left_out ? false
                   : graphs                        ? kernel.graph.median < engine.graph.median
                                                   : kernel.events.median < engine.events.median;
    m->copy = m->by_kernel ? kernel : engine;
    m->repeats = b->series[RUN].n_events;
    m->graphs = b->series[RUN].n_graph ? b->series[RUN].n_graph : b->series[RUN_HOT].n_graph;
    m->graph_calls = b->graph_calls;
}

/* Enough buffers to go three times around L2, if that is possible; else L2 is flushed between calls. */
static tn_status choose_buffers(bench *b, const tn_gpu *gpu, gpu_measurement *m) {
    double l2 = (double)gpu->l2_bytes, bytes = m->cost.bytes > 64 ? m->cost.bytes : 64;
    size_t unused = 0, all = 0;
    TN_TRY(failed("cuMemGetInfo", b->cu->cuMemGetInfo(&unused, &all)));
    double wanted = 3 * l2 / bytes + 1, fitting = PART_OF_MEMORY * (double)unused / (2 * bytes);
    double n = wanted < 2 ? 2 : wanted > MOST_BUFFERS ? MOST_BUFFERS : wanted;
    n = n < fitting ? n : fitting;
    b->buffers = m->buffers = n < 1 ? 1 : (int)n;
    b->flushed = m->flushed = b->buffers * bytes < 3 * l2;
    b->flush_bytes = (size_t)(3 * l2);
    b->half = (size_t)round_up((int64_t)(bytes / 2), 256);
    return TN_OK;
}

static tn_status prepare(bench *b, const tni_case *sample, const char *kernel) {
    TN_TRY(failed("making a stream", b->cu->cuStreamCreate(&b->stream, 1)));
    b->host = tn_stream_host(b->stream);
    b->host.context = b;
    b->host.alloc = arena_alloc;
    b->host.release = arena_release;
    b->calls = tni_calloc((size_t)b->buffers, sizeof *b->calls);
    if (!b->calls) return TN_NO_MEMORY;
    TN_TRY(failed("memory", b->cu->cuMemAlloc(&b->flush, b->flush_bytes)));
    TN_TRY(failed("memory for the copy", b->cu->cuMemAlloc(&b->from, b->half * (size_t)b->buffers)));
    TN_TRY(failed("memory for the copy", b->cu->cuMemAlloc(&b->to, b->half * (size_t)b->buffers)));
    TN_TRY(failed("filling", b->cu->cuMemsetD8Async(b->from, 0x3c, b->half * (size_t)b->buffers, b->stream)));
    for (int i = 0; i < b->buffers; i++) TN_TRY(make_call(b, &b->calls[i], sample, kernel));
    for (int i = 0; i < MOST_BATCH; i++) {
        TN_TRY(failed("an event", b->cu->cuEventCreate(&b->begin[i], 0)));
        TN_TRY(failed("an event", b->cu->cuEventCreate(&b->end[i], 0)));
    }
    for (int w = 0; w < WORKS; w++) {
        b->series[w].events = tni_malloc(2 * MOST_TIMES * sizeof(double));
        if (!b->series[w].events) return TN_NO_MEMORY;
        b->series[w].graph = b->series[w].events + MOST_TIMES;
    }
    return TN_OK;
}

static void drop(bench *b) {
    if (b->stream) b->cu->cuStreamSynchronize(b->stream);
    for (int w = 0; w < WORKS; w++) {
        if (b->series[w].exec) b->cu->cuGraphExecDestroy(b->series[w].exec);
        tni_free(b->series[w].events);
    }
    for (int i = 0; i < MOST_BATCH; i++) {
        if (b->begin[i]) b->cu->cuEventDestroy(b->begin[i]);
        if (b->end[i]) b->cu->cuEventDestroy(b->end[i]);
    }
    for (int i = 0; i < b->made; i++) drop_call(b, &b->calls[i]);
    tni_free(b->calls);
    const cu_pointer memory[] = {b->flush, b->from, b->to, b->arena};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++) {
        if (memory[i]) b->cu->cuMemFree(memory[i]);
    }
    if (b->stream) b->cu->cuStreamDestroy(b->stream);
}

/* The kernel that would be taken, and the bytes that must move. */
static tn_status explain(const bench *b, const tni_case *sample, const char *kernel, gpu_measurement *m) {
    made_call bare;
    TN_TRY(call_make(&bare, b->op, sample, (call_options){.bare = true}));
    for (int32_t i = 0; i < bare.n_in; i++) bare.in[i].tensor.device = b->device;
    for (int32_t i = 0; i < bare.n_out; i++) bare.out[i].tensor.device = b->device;
    bare.args.kernel = kernel;
    tn_status status = tn_explain(b->op, &bare.args, &m->kernel, &m->cost);
    call_free(&bare);
    return status;
}

tn_status bench_gpu(const tn_function *op, const tni_case *sample, const char *kernel, int device, double seconds,
                    gpu_measurement *m) {
    const tn_gpu *gpu;
    tni_cuda_scope scope;
    *m = (gpu_measurement){0};
    TN_TRY(tni_gpu_get(WANTED, device, &gpu));
    TN_TRY(tni_cuda_enter(WANTED, device, &scope));
    bench b = {.cu = tni_cuda(WANTED), .device = {TN_CUDA, device}, .op = op};
    tn_status status = b.cu ? explain(&b, sample, kernel, m) : TN_SYSTEM;
    b.series[RUN_HOT].left_out = m->cost.bytes > gpu->l2_bytes / 2.0;
    if (status == TN_OK) status = choose_buffers(&b, gpu, m);
    if (status == TN_OK) status = prepare(&b, sample, kernel);
    if (status == TN_OK) status = measure(&b, seconds, m);
    if (status == TN_OK) conclude(&b, m);
    if (b.cu) drop(&b);
    tni_cuda_leave(&scope);
    return status;
}

/* ---- arithmetic -------------------------------------------------------------------------------------------------- */

double bench_fma(int device, tn_type type) {
    enum { CHAINS = 16, ROUNDS = 4096, TIMES = 5 };
    const tn_gpu *gpu;
    tni_cuda_scope scope;
    const tni_cuda_api *cu = tni_cuda(WANTED);
    if (!cu || tni_gpu_get(WANTED, device, &gpu) != TN_OK) return 0;
    const tn_host host = tn_stream_host(NULL);
    const tn_call k = {.name = WANTED, .device = {TN_CUDA, device}, .host = &host};
    tn_launch l = {.grid = (uint32_t)gpu->sms * 8, .block = 256};
    if (tni_cuda_find(&k, &l, "ceiling", "ceiling_fma_%s", tn_type_name(type)) != TN_OK) return 0;
    if (tni_cuda_enter(WANTED, device, &scope) != TN_OK) return 0;
    cu_event begin = NULL, end = NULL;
    cu_pointer nowhere = 0;
    float single = 0.5f, one = 1, milliseconds = 0, best = 0;
    double precise = 0.5, precise_one = 1;
    int rounds = ROUNDS;
    bool wide = type == TN_F64;
    void *arguments[] = {&nowhere, wide ? (void *)&precise : &single, wide ? (void *)&precise_one : &one, &rounds};
    int error = cu->cuEventCreate(&begin, 0) | cu->cuEventCreate(&end, 0);
    for (int i = 0; !error && i < TIMES; i++) {
        error = cu->cuEventRecord(begin, NULL);
        if (!error && tn_cuda_launch(&k, &l, arguments) != TN_OK) error = 1;
        if (!error) error = cu->cuEventRecord(end, NULL);
        if (!error) error = cu->cuEventSynchronize(end);
        if (!error) error = cu->cuEventElapsedTime(&milliseconds, begin, end);
        if (!error && (best == 0 || milliseconds < best)) best = milliseconds;
    }
    if (begin) cu->cuEventDestroy(begin);
    if (end) cu->cuEventDestroy(end);
    tni_cuda_leave(&scope);
    const double flops = 2.0 * CHAINS * ROUNDS * l.grid * l.block;
    return error || best <= 0 ? 0 : flops / ((double)best * 1e-3);
}

/* ---- what a launch costs by itself ------------------------------------------------------------------------------- */

double bench_launch(int device) {
    enum { TIMES = 15, LAUNCHES = 50 }; /* as time_call */
    tni_cuda_scope scope;
    const tni_cuda_api *cu = tni_cuda(WANTED);
    const tn_host host = tn_stream_host(NULL);
    const tn_call k = {.name = WANTED, .device = {TN_CUDA, device}, .host = &host};
    tn_launch l = {.grid = 1, .block = 32};
    if (!cu || tni_cuda_find(&k, &l, "ceiling", "ceiling_fma_f32") != TN_OK) return 0;
    if (tni_cuda_enter(WANTED, device, &scope) != TN_OK) return 0;
    cu_pointer nowhere = 0;
    float half = 0.5f, one = 1;
    int rounds = 0, error = 0;
    void *arguments[] = {&nowhere, &half, &one, &rounds};
    const cu_config config = {
        .grid_x = 1, .grid_y = 1, .grid_z = 1, .block_x = l.block, .block_y = 1, .block_z = 1, .stream = NULL};
    double times[TIMES];
    for (int i = 0; !error && i < TIMES; i++) {
        error = cu->cuStreamSynchronize(NULL);
        const double begin = bench_now();
        for (int j = 0; !error && j < LAUNCHES; j++) {
            error = cu->cuLaunchKernelEx(&config, (cu_function)l.kernel, arguments, NULL);
        }
        times[i] = (bench_now() - begin) / LAUNCHES;
    }
    if (!error) error = cu->cuStreamSynchronize(NULL);
    tni_cuda_leave(&scope);
    return error ? 0 : bench_spread(times, TIMES).median;
}
