/* Rows about what only a GPU can get wrong: streams, graphs, contexts, devices, errors that stay. */
#include "cli/check/check.h"
#include "core/table/table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char WANTED[] = "tenon check";

static bool solved_problem(checker *c, problem *p, uint64_t with) {
    tni_case *made;
    if (tni_sample_case(c->contract, c->sample->args, c->T, &made) != TN_OK ||
        problem_make(p, c->op, made, c->sample, check_seed(c, with)) != TN_OK) {
        check_fail(c, "%s", tn_last_error());
        return false;
    }
    if (problem_solve(p, true) == TN_OK) return true;
    check_fail(c, "the reference refused: %s", tn_last_error());
    problem_free(p);
    return false;
}

/* The sample's problem and a call of it. False: failure reported. */
static bool solved_call(checker *c, problem *p, made_call *k, layout how) {
    if (!solved_problem(c, p, 0)) return false;
    if (problem_call(p, k, (call_options){.how = how}) == TN_OK) return true;
    check_fail(c, "%s", tn_last_error());
    problem_free(p);
    return false;
}

/* Outputs without a result, inputs with the values of the problem. */
static void refill(const problem *p, made_call *k) {
    problem_write(p, k);
    for (int32_t i = 0; i < k->n_out; i++) {
        if (k->out[i].count >= 0) array_fill(&k->out[i]);
    }
}

/* ---- workspace --------------------------------------------------------------------------------------------------- */

enum { MOST_BLOCKS = 64, ZONE = 1024 };

/* Memory full of NaN between guards. It is looked at when the call is through: release comes while it still runs. */
typedef struct guarded {
    mirror *gpu;
    int count;
    cu_pointer blocks[MOST_BLOCKS];
    size_t bytes[MOST_BLOCKS];
} guarded;

static tn_block guarded_alloc(void *context, tn_device device, size_t bytes) {
    guarded *g = context;
    const tni_cuda_api *cu = tni_cuda(WANTED);
    tni_cuda_scope scope;
    cu_pointer block = 0;
    if (!cu || g->count == MOST_BLOCKS || tni_cuda_enter(WANTED, device.index, &scope) != TN_OK) return (tn_block){0};
    int error = cu->cuMemAlloc(&block, bytes + 2 * ZONE);
    if (!error) error = cu->cuMemsetD8Async(block, 0xff, bytes + 2 * ZONE, g->gpu->stream);
    tni_cuda_leave(&scope);
    if (error) {
        tni_cuda_failed(WANTED, "guarded memory", error);
        return (tn_block){0};
    }
    g->blocks[g->count] = block;
    g->bytes[g->count++] = bytes;
    return (tn_block){(void *)(uintptr_t)(block + ZONE), NULL};
}

static void guarded_release(void *context, tn_device device, tn_block block) {
    (void)context, (void)device, (void)block;
}

static bool zone_intact(const tni_cuda_api *cu, const guarded *g, cu_pointer zone) {
    unsigned char bytes[ZONE];
    if (cu->cuMemcpyDtoHAsync(bytes, zone, ZONE, g->gpu->stream) != 0) return false;
    if (cu->cuStreamSynchronize(g->gpu->stream) != 0) return false;
    for (int i = 0; i < ZONE; i++) {
        if (bytes[i] != 0xff) return false;
    }
    return true;
}

/* Frees all blocks; false: something was written around one of them. */
static bool guarded_end(guarded *g) {
    const tni_cuda_api *cu = tni_cuda(WANTED);
    tni_cuda_scope scope;
    bool good = true;
    if (!cu || tni_cuda_enter(WANTED, g->gpu->device, &scope) != TN_OK) return false;
    for (int i = 0; i < g->count; i++) {
        good &= zone_intact(cu, g, g->blocks[i]) && zone_intact(cu, g, g->blocks[i] + ZONE + g->bytes[i]);
        cu->cuMemFree(g->blocks[i]);
    }
    tni_cuda_leave(&scope);
    g->count = 0;
    return good;
}

static void run_workspace(checker *c) {
    static const layout layouts[] = {DENSE, SLICED}; /* sliced: copies lie in such memory, too */
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts && !c->broken; i++) {
        problem p;
        made_call k;
        if (!solved_call(c, &p, &k, layouts[i])) return;
        guarded g = {.gpu = c->gpu};
        tn_host host = tn_stream_host(c->gpu->stream);
        host.context = &g;
        host.alloc = guarded_alloc;
        host.release = guarded_release;
        k.args.kernel = c->kernel;
        tn_status status = call_run(&k, c->gpu, &host);
        if (status != TN_OK && !check_declined(c, status)) check_fail(c, "refused: %s", tn_last_error());
        if (status == TN_OK) compare_call(c, &p, &k, "with workspace full of NaN");
        if (!guarded_end(&g)) check_fail(c, "wrote outside of its workspace");
        call_free(&k);
        problem_free(&p);
    }
}

/* ---- streams ----------------------------------------------------------------------------------------------------- */

/* The inputs arrive on the stream some milliseconds after the call was queued; nobody waits in between. */
static void run_side_stream(checker *c) {
    static const layout layouts[] = {DENSE, SLICED};
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts && !c->broken && !c->skipping; i++) {
        problem p;
        made_call k;
        if (!solved_call(c, &p, &k, layouts[i])) return;
        bool good = run_and_compare(c, &p, &k, "before anything else"); /* kernels are loaded, memory is there */
        if (good && !c->skipping) {
            refill(&p, &k);
            c->gpu->delay = true;
            run_and_compare(c, &p, &k, "behind slow work on its stream");
            c->gpu->delay = false;
        }
        call_free(&k);
        problem_free(&p);
    }
}

/* No host given: the default stream. */
static void run_default_stream(checker *c) {
    const tni_cuda_api *cu = tni_cuda(WANTED);
    tni_cuda_scope scope;
    problem p;
    made_call k;
    if (!cu || !solved_call(c, &p, &k, DENSE)) return;
    k.args.kernel = c->kernel;
    tn_status status = mirror_begin_call(c->gpu, &k);
    if (status == TN_OK) {
        if (tni_cuda_enter(WANTED, c->gpu->device, &scope) == TN_OK) {
            cu->cuCtxSynchronize(); /* the upload is on another stream */
            status = tn_run(c->op, &k.args, NULL);
            cu->cuCtxSynchronize();
            tni_cuda_leave(&scope);
        }
        char message[512];
        snprintf(message, sizeof message, "%s", tn_last_error());
        if (mirror_end(c->gpu) != TN_OK) check_fail(c, "%s", tn_last_error());
        if (status != TN_OK && !check_declined(c, status)) check_fail(c, "refused: %s", message);
        if (status == TN_OK) compare_call(c, &p, &k, "on the default stream");
    } else {
        check_fail(c, "%s", tn_last_error());
    }
    call_free(&k);
    problem_free(&p);
}

/* ---- shared memory ----------------------------------------------------------------------------------------------- */

/* Before every call on a GPU, shared memory is full of NaN. A kernel may drop that, and be wrong with anything else. */
static void run_shared(checker *c) {
    static const uint32_t patterns[] = {0x4b4b4b4b, 0, 0xcbcbcbcb};
    problem p;
    made_call k;
    if (!solved_call(c, &p, &k, DENSE)) return;
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns && !c->broken && !c->skipping; i++) {
        refill(&p, &k);
        c->gpu->shared = patterns[i];
        run_and_compare(c, &p, &k, "with other numbers in shared memory");
        c->gpu->shared = UINT32_MAX;
    }
    call_free(&k);
    problem_free(&p);
}

/* ---- graphs ------------------------------------------------------------------------------------------------------ */

/* The call as a graph; its tensors are on the GPU. NULL: failure reported. */
static cu_graph_exec capture(checker *c, made_call *k) {
    const int everywhere = 0; /* CU_STREAM_CAPTURE_MODE_GLOBAL: whatever a capture forbids fails */
    const tni_cuda_api *cu = tni_cuda(WANTED);
    tni_cuda_scope scope;
    cu_graph graph = NULL;
    cu_graph_exec exec = NULL;
    if (!cu || tni_cuda_enter(WANTED, c->gpu->device, &scope) != TN_OK) return NULL;
    const tn_host host = tn_stream_host(c->gpu->stream);
    int error = cu->cuStreamSynchronize(c->gpu->stream);
    if (!error) error = cu->cuStreamBeginCapture(c->gpu->stream, everywhere);
    if (!error) {
        tn_status status = tn_run(c->op, &k->args, &host);
        if (status != TN_OK) check_fail(c, "refused during capture: %s", tn_last_error());
        error = cu->cuStreamEndCapture(c->gpu->stream, &graph);
    }
    if (!error && !c->broken) error = cu->cuGraphInstantiateWithFlags(&exec, graph, 0);
    if (error) {
        tni_cuda_failed(c->contract->name, "capturing the call", error);
        check_fail(c, "%s", tn_last_error());
    }
    if (graph) cu->cuGraphDestroy(graph);
    tni_cuda_leave(&scope);
    return exec;
}

/* Other values at the same addresses, then the graph. */
static void replay(checker *c, const problem *p, made_call *k, cu_graph_exec exec, const char *what) {
    const tni_cuda_api *cu = tni_cuda(WANTED);
    tni_cuda_scope scope;
    refill(p, k);
    if (!cu || mirror_begin_call(c->gpu, k) != TN_OK) {
        check_fail(c, "%s", tn_last_error());
        return;
    }
    int error = 0;
    if (tni_cuda_enter(WANTED, c->gpu->device, &scope) == TN_OK) {
        error = cu->cuGraphLaunch(exec, c->gpu->stream);
        tni_cuda_leave(&scope);
    }
    tn_status status = mirror_end(c->gpu);
    if (error) tni_cuda_failed(c->contract->name, "launching the graph", error);
    if (error || status != TN_OK) {
        check_fail(c, "%s", tn_last_error());
    } else {
        compare_call(c, p, k, what);
    }
}

static void run_graph_with(checker *c, problem *p, problem *other, layout how) {
    made_call k;
    if (problem_call(p, &k, (call_options){.how = how}) != TN_OK) {
        check_fail(c, "%s", tn_last_error());
        return;
    }
    /* Once outside: what is made at first need is there, as after the warm-up that every framework asks for. */
    bool good = run_and_compare(c, p, &k, "before the capture") && !c->skipping;
    cu_graph_exec exec = NULL;
    if (good) {
        refill(p, &k);
        if (mirror_begin_call(c->gpu, &k) == TN_OK) {
            exec = capture(c, &k);
            if (mirror_end(c->gpu) != TN_OK) check_fail(c, "%s", tn_last_error());
        } else {
            check_fail(c, "%s", tn_last_error());
        }
    }
    if (exec && !c->broken) replay(c, other, &k, exec, "replayed on new values");
    if (exec && !c->broken) replay(c, p, &k, exec, "replayed on the first values");
    const tni_cuda_api *cu = exec ? tni_cuda(WANTED) : NULL;
    tni_cuda_scope scope;
    if (cu && tni_cuda_enter(WANTED, c->gpu->device, &scope) == TN_OK) {
        cu->cuGraphExecDestroy(exec);
        tni_cuda_leave(&scope);
    }
    call_free(&k);
}

static void run_graph(checker *c) {
    problem p, other;
    if (!solved_problem(c, &p, 0)) return;
    if (solved_problem(c, &other, 40)) {
        run_graph_with(c, &p, &other, DENSE);
        if (!c->broken && !c->skipping) run_graph_with(c, &p, &other, SLICED);
        problem_free(&other);
    }
    problem_free(&p);
}

/* ---- contexts and devices ---------------------------------------------------------------------------------------- */

static void run_in_context(checker *c, const problem *p, made_call *k, cu_context current, const char *what) {
    const tni_cuda_api *cu = tni_cuda(WANTED);
    cu_context before = NULL, after = NULL;
    if (!cu || cu->cuCtxGetCurrent(&before) != 0 || cu->cuCtxSetCurrent(current) != 0) return;
    refill(p, k);
    run_and_compare(c, p, k, what);
    cu->cuCtxGetCurrent(&after);
    if (after != current) check_fail(c, "the current context was not restored, %s", what);
    cu->cuCtxSetCurrent(before);
}

static void run_context(checker *c) {
    const tni_cuda_api *cu = tni_cuda(WANTED);
    cu_context context = NULL;
    problem p;
    made_call k;
    if (!cu || !solved_call(c, &p, &k, SLICED)) return;
    run_in_context(c, &p, &k, NULL, "with no context current");
    if (cu->cuDevicePrimaryCtxRetain(&context, c->gpu->device) == 0) {
        run_in_context(c, &p, &k, context, "with the GPU's context current");
    }
    const int other = c->gpu->device == 0 ? 1 : 0;
    if (cu->n_devices > 1 && cu->cuDevicePrimaryCtxRetain(&context, other) == 0) {
        run_in_context(c, &p, &k, context, "with another GPU's context current");
    }
    call_free(&k);
    problem_free(&p);
}

/* The call must be refused because of a device, in a message that says which. */
static void expect_device(checker *c, made_call *k, const char *says, const char *what) {
    const tn_host host = tn_stream_host(c->gpu->stream);
    const char *name = c->contract->name;
    if (c->broken) return;
    tn_status status = tn_run(c->op, &k->args, &host);
    if (status == TN_OK) {
        check_fail(c, "was accepted: %s", what);
    } else if (status != TN_BAD_DEVICE || strncmp(tn_last_error(), name, strlen(name)) != 0 ||
               !strstr(tn_last_error(), says)) {
        check_fail(c, "'%s' should begin with '%s: ' and speak of %s: %s", tn_last_error(), name, says, what);
    }
}

static void try_devices(checker *c, made_call *k) {
    const tn_device here = {TN_CUDA, c->gpu->device}, cpu = {TN_CPU, 0};
    const tni_cuda_api *cu = tni_cuda(WANTED);
    const int32_t n = k->n_in + k->n_out;
    if (!cu) return;
    for (int32_t i = 0; i < n; i++) { /* one on the CPU, the others on the GPU */
        array *a = i < k->n_in ? &k->in[i] : &k->out[i - k->n_in];
        if (a->count < 0) continue;
        a->tensor.device = cpu;
        expect_device(c, k, "cpu", "one tensor on the CPU");
        a->tensor.device = (tn_device){TN_CUDA, c->gpu->device + 1};
        expect_device(c, k, "cuda:", "one tensor on another GPU");
        a->tensor.device = here;
    }
    char nowhere[32];
    snprintf(nowhere, sizeof nowhere, "cuda:%d", cu->n_devices + 5);
    for (int32_t i = 0; i < n; i++) {
        array *a = i < k->n_in ? &k->in[i] : &k->out[i - k->n_in];
        a->tensor.device = (tn_device){TN_CUDA, cu->n_devices + 5};
    }
    expect_device(c, k, nowhere, "a GPU that there is not");
}

static void run_devices(checker *c) {
    problem p;
    made_call k;
    if (!solved_call(c, &p, &k, DENSE)) return;
    if (mirror_begin_call(c->gpu, &k) != TN_OK) {
        check_fail(c, "%s", tn_last_error());
    } else {
        try_devices(c, &k);
        if (mirror_end(c->gpu) != TN_OK) check_fail(c, "%s", tn_last_error());
    }
    call_free(&k);
    problem_free(&p);
}

/* ---- contexts that nobody asked for ------------------------------------------------------------------------------ */

void check_idle(checker *c, int device) {
    const tni_cuda_api *cu = tni_cuda(WANTED);
    unsigned flags;
    int active = -1;
    tn_free(tn_table_json());
    for (int i = 0; i < tn_function_count(); i++) {
        const tn_function *op = tn_function_at(i);
        tni_case *made;
        made_call k;
        const char *sample = op->row->samples ? op->row->samples[0].args : NULL;
        if (!sample || tni_sample_case(op->contract, sample, TN_F32, &made) != TN_OK) continue;
        if (call_make(&k, op, made, (call_options){.bare = true}) == TN_OK) call_free(&k);
        tni_case_free(made);
    }
    if (cu && cu->cuDevicePrimaryCtxGetState(device, &flags, &active) == 0) c->made_context = active;
}

static void run_idle(checker *c) {
    if (c->made_context != 0) check_fail(c, "naming and describing operators makes a CUDA context");
}

/* ---- errors that stay -------------------------------------------------------------------------------------------- */

/* Set in the process that gets its context broken on purpose. */
static const char CHILD[] = "TENON_CHECK_CHILD";

/* A call with inputs at addresses that nothing lies at. False where it was refused: a copy looks at them first. */
static bool provoke(checker *c, made_call *k) {
    const tni_cuda_api *cu = tni_cuda(WANTED);
    const tn_host host = tn_stream_host(c->gpu->stream);
    tni_cuda_scope scope;
    void *kept[4 * TNI_MAX_ARGS];
    if (!cu || tni_cuda_enter(WANTED, c->gpu->device, &scope) != TN_OK) return false;
    for (int32_t i = 0; i < k->n_in; i++) {
        kept[i] = k->in[i].tensor.data;
        k->in[i].tensor.data = (void *)((uintptr_t)(i + 1) << 20);
    }
    const bool ran = tn_run(c->op, &k->args, &host) == TN_OK;
    for (int32_t i = 0; i < k->n_in; i++) k->in[i].tensor.data = kept[i];
    if (cu->cuStreamSynchronize(c->gpu->stream) == 0 && ran) check_fail(c, "reading at address 1 MB is no error");
    tni_cuda_leave(&scope);
    return ran;
}

static void break_context(checker *c) {
    const tn_host host = tn_stream_host(c->gpu->stream);
    problem p;
    made_call k;
    if (!solved_call(c, &p, &k, DENSE)) return;
    if (run_and_compare(c, &p, &k, "") && mirror_begin_call(c->gpu, &k) == TN_OK) {
        const bool broken = provoke(c, &k);
        tn_status first = tn_run(c->op, &k.args, &host), second = tn_run(c->op, &k.args, &host);
        if (!broken) {
            if (first != TN_OK) check_fail(c, "after a call that was refused the message is '%s'", tn_last_error());
        } else if (first == TN_OK || second == TN_OK) {
            check_fail(c, "a call after an illegal access was accepted");
        } else if (!strstr(tn_last_error(), "earlier error")) {
            check_fail(c, "after an illegal access the message is '%s'", tn_last_error());
        }
        mirror_end(c->gpu);
    }
    call_free(&k);
    problem_free(&p);
}

/* The same row in a process of its own; what it says when it fails. */
static bool run_child(checker *c, char *said, size_t size) {
    char path[4096], command[8192], again[2048], line[1024];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    path[n > 0 ? n : 0] = 0;
    check_command(c, again, sizeof again);
    snprintf(command, sizeof command, "%s=1 '%s'%s 2>&1", CHILD, path, again + strlen("tenon"));
    fflush(NULL);
    FILE *child = n > 0 ? popen(command, "r") : NULL;
    snprintf(said, size, "it does not start");
    while (child && fgets(line, sizeof line, child)) {
        const char *text = strstr(line, "): ");
        line[strcspn(line, "\n")] = 0;
        if (strstr(line, "FAIL")) snprintf(said, size, "%s", text ? text + 3 : line);
    }
    return child && pclose(child) == 0;
}

static void run_sticky(checker *c) {
    char said[1024];
    if (getenv(CHILD)) {
        break_context(c);
        c->stop = true; /* whatever the command checks besides */
        return;
    }
    if (c->options.quick && c->broke_context) return; /* a process and a context for each operator take their time */
    c->broke_context = true;
    if (!run_child(c, said, sizeof said)) check_fail(c, "in a process of its own: %s", said);
}

static const char SHARED[] = "The kernel reads shared memory that nobody has written yet: it is not initialised, or a "
                             "__syncthreads() is missing "
                             "between the threads that write and those that read.";

const check_row gpu_rows[] = {
    {"workspace", "workspace and copies full of NaN, with guards (cuda)", RARE, 20000, on_gpu, run_workspace,
     "Workspace holds whatever was there before: write it before you read it, and stay within the bytes that the "
     "workspace function asks for."},
    {"shared", "shared memory full of large numbers, of 0, of negative ones (cuda)", RARE, 20000, on_gpu, run_shared,
     SHARED},
    {"side_stream", "inputs that arrive late on the call's stream (cuda)", TELLS | RARE, 20000, on_gpu, run_side_stream,
     "The inputs arrive late in the call's stream. Launch in call->host->stream, use it for copies and memsets too, "
     "and wait for nothing else."},
    {"default_stream", "no host given (cuda)", ONCE, 0, on_gpu, run_default_stream,
     "call->host->stream is NULL here: the default stream. Do not take NULL for an error."},
    {"graph", "captured, then replayed on new values (cuda)", FEW, 20000, on_gpu, run_graph,
     "The call does what a CUDA graph cannot record: it allocates, waits (cudaDeviceSynchronize, cudaMemcpy), uses "
     "another stream, or reads values of tensors on the host. Ask for workspace, and decide by shapes alone."},
    {"context", "the current context is restored, whatever it was (cuda)", ONCE, 0, on_gpu, run_context,
     "run and prepare leave the thread's current CUDA context as they found it. Look for cudaSetDevice and "
     "cuCtxSetCurrent."},
    {"devices", "CPU and GPU mixed, a GPU that there is not: refused (cuda)", ONCE | PER_OP, 0, on_gpu, run_devices},
    {"idle", "naming and describing operators makes no context (cuda)", ONCE | PER_OP, 0, on_gpu, run_idle},
    {"sticky", "after an illegal access, in a process of its own, calls say so (cuda)", ONCE | PER_OP, 0, on_gpu,
     run_sticky},
    {0},
};
