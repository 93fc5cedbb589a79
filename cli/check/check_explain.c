/* Why a case failed, in words. What can be found out by trying is tried: the call runs again with one thing changed
 * (what lies around its tensors, what shared memory holds, who is waited for), and where the result follows, that is
 * the cause. Else the message or the row says what such a failure most often comes from. */
#include "check.h"

#include <stdio.h>
#include <string.h>

enum { TURNS = 8, NEAR = 16, FEW_ELEMENTS = 1024 };

/* ---- the call, again --------------------------------------------------------------------------------------------- */

/* What is different this time. Bytes: 0xff is NaN in every float type. */
typedef struct trial {
    unsigned char around, outputs; /* what lies outside of the elements, and in the outputs before */
    int32_t only;                  /* `around` for this input alone; -1: for all tensors */
    uint32_t shared;               /* words of shared memory */
    bool settle;                   /* the whole GPU is waited for */
} trial;
static const trial USUAL = {.around = ARRAY_PATTERN, .outputs = ARRAY_PATTERN, .only = -1, .shared = UINT32_MAX};

static void surround(array *a, unsigned char with) {
    if (a->count >= 0 && a->memory && !a->map) memset(a->memory, with, a->bytes);
}

/* The elements of an output alone. */
static void prefill(array *a, unsigned char with) {
    const size_t size = tn_type_size(a->type);
    for (int64_t i = 0; i < a->count; i++) {
        memset((char *)a->tensor.data + array_place(a, i) * (int64_t)size, with, size);
    }
}

static bool run_trial(checker *c, trial t) {
    made_call *k = c->tested.call;
    for (int32_t i = 0; i < k->n_in; i++) surround(&k->in[i], t.only < 0 || t.only == i ? t.around : ARRAY_PATTERN);
    for (int32_t i = 0; i < k->n_out; i++) {
        surround(&k->out[i], t.only < 0 ? t.around : ARRAY_PATTERN);
        prefill(&k->out[i], t.outputs);
    }
    problem_write(c->tested.problem, k);
    if (c->gpu) {
        c->gpu->around = t.only < 0 ? t.around : ARRAY_PATTERN;
        c->gpu->shared = t.shared;
        c->gpu->settle = t.settle;
    }
    const tn_status status = call_run(k, c->gpu, NULL);
    if (c->gpu) {
        c->gpu->around = USUAL.around;
        c->gpu->shared = USUAL.shared;
        c->gpu->settle = false;
    }
    return status == TN_OK || (c->gpu && c->gpu->outside);
}

bool check_run_again(checker *c, unsigned char outputs) {
    trial t = USUAL;
    t.outputs = outputs;
    return run_trial(c, t);
}

/* The bits of all results. */
static uint64_t results_key(const checker *c) {
    uint64_t key = 1;
    for (int32_t i = 0; i < c->tested.problem->n_results; i++) {
        const result *r = &c->tested.problem->results[i];
        const array *a = result_array(c->tested.call, r);
        if (!r->present || a->count < 0) continue;
        for (int64_t e = 0; e < a->count; e++) {
            const size_t size = tn_type_size(a->type);
            uint64_t word[2] = {0};
            memcpy(word, (char *)a->tensor.data + array_place(a, e) * (int64_t)size, size);
            key = mix_seed(mix_seed(key, word[0]), word[1]);
        }
    }
    return key;
}

/* Does the result follow what is changed, and not chance? The two ways in turn, twice. */
static bool follows(checker *c, trial t) {
    uint64_t usual[2], changed[2];
    for (int i = 0; i < 2; i++) {
        if (!run_trial(c, USUAL)) return false;
        usual[i] = results_key(c);
        if (!run_trial(c, t)) return false;
        changed[i] = results_key(c);
    }
    return usual[0] == usual[1] && changed[0] == changed[1] && usual[0] != changed[0];
}

/* Is it right only when the whole GPU is waited for? */
static bool goes_by_stream(checker *c) {
    trial t = USUAL;
    t.settle = true;
    for (int i = 0; i < 2; i++) {
        if (!run_trial(c, USUAL) || results_right(c, c->tested.problem, c->tested.call)) return false;
        if (!run_trial(c, t) || !results_right(c, c->tested.problem, c->tested.call)) return false;
    }
    return true;
}

static bool differs_by_chance(checker *c) {
    uint64_t first = 0;
    for (int i = 0; i < TURNS; i++) {
        if (!run_trial(c, USUAL)) return false;
        if (i == 0) first = results_key(c);
        if (results_key(c) != first) return true;
    }
    return false;
}

/* ---- what it is -------------------------------------------------------------------------------------------------- */

static const char STREAM[] =
    "The result is right only when the whole GPU is waited for: the kernel runs in another stream than the call's, so "
    "it reads inputs before they are there. Launch in call->host->stream (kernel<<<grid, block, shared, "
    "(cudaStream_t)call->host->stream>>>), and use that stream for every copy and memset too.";
static const char RACE[] =
    "A data race: the same call gives different results. Two threads use the same place and one of them writes, with "
    "nothing to order them. Look for += on memory that several threads share (use atomicAdd or a reduction), a missing "
    "__syncthreads() between writing and reading shared memory, and blocks that read what other blocks of the same "
    "launch write.";
static const char SHARED[] =
    "The result depends on what shared memory held before: the kernel reads shared memory that nobody has written yet. "
    "Either it is not initialised (threads behind the end must write too: s[t] = i < n ? x[i] : 0), or a "
    "__syncthreads() is missing between the threads that write and those that read.";

static bool explain_unwritten(const checker *c, char *why, size_t size) {
    const finding *f = &c->found;
    if (f->unwritten == f->count && f->count < FEW_ELEMENTS) {
        snprintf(why, size,
                 "Nothing was written at all. If larger tensors come out right, it is a missing tail: the grid is "
                 "rounded down (n / block) to 0 blocks; launch (n + block - 1) / block and test `if (i < n)` in the "
                 "kernel. Else the kernel was not launched, or writes to another address: check what the launch "
                 "returns (cudaGetLastError).");
    } else if (f->unwritten == f->count) {
        snprintf(
            why, size,
            "Nothing was written at all. The kernel was not launched, its grid is 0 blocks, its condition is never "
            "true, or it writes to another address. With CUDA, check what the launch returns (cudaGetLastError).");
    } else if (f->tail) {
        snprintf(
            why, size,
            "A missing tail: just the last %lld of %lld elements were never written. The grid is rounded down (n / "
            "block), or what does not fill a whole block or vector is left out. Launch (n + block - 1) / block "
            "blocks and test `if (i < n)` in the kernel.",
            (long long)f->unwritten, (long long)f->count);
    } else if (f->unwritten) {
        snprintf(
            why, size,
            "%lld of %lld elements of the output were never written, here and there. An output holds garbage before "
            "the call: write every element on every way through the kernel, also where the result is 0. Look at "
            "`if` without `else`, at `continue` and `return`, and at the step of loops.",
            (long long)f->unwritten, (long long)f->count);
    }
    return f->unwritten != 0;
}

static bool explain_outside(checker *c, char *why, size_t size) {
    trial t = USUAL;
    t.around = 0;
    if (!follows(c, t)) return false;
    const char *name = NULL;
    for (int32_t i = 0; i < c->tested.call->n_in && !name; i++) {
        t.only = i;
        if (follows(c, t)) name = c->contract->inputs[c->tested.call->param[i]].name;
    }
    snprintf(why, size,
             "Reads out of bounds: the result changes with what lies outside of %s. An index goes past the end, or is "
             "negative. Look at i + 1 and i - 1 at the edges, `<=` for `<`, threads behind the end that are not "
             "stopped by `if (i < n)`, and vector loads past the last whole vector.",
             name ? name : "its tensors");
    return true;
}

static bool explain_output_read(checker *c, char *why, size_t size) {
    trial t = USUAL;
    t.outputs = 0;
    if (!follows(c, t)) return false;
    snprintf(why, size,
             "The result depends on what the output held before the call. An output holds garbage then: write "
             "it (=) before you add to it (+=, atomicAdd), in an earlier launch or with cudaMemsetAsync in "
             "the call's stream.");
    return true;
}

static bool explain_call(checker *c, char *why, size_t size) {
    trial t = USUAL;
    if (c->gpu && goes_by_stream(c)) {
        snprintf(why, size, "%s", STREAM);
        return true;
    }
    if (explain_unwritten(c, why, size)) return true;
    if (c->found.dropped) {
        snprintf(why, size,
                 "NaN is dropped: an input is NaN and the result is a number, so an error upstream goes "
                 "unseen. fmaxf(x, 0), max() and `x > 0 ? x : 0` turn NaN into 0: write `x < 0 ? 0 : x`, "
                 "which keeps it.");
        return true;
    }
    t.shared = 0;
    if (c->gpu && follows(c, t)) {
        snprintf(why, size, "%s", SHARED);
        return true;
    }
    if (explain_outside(c, why, size) || explain_output_read(c, why, size)) return true;
    const bool by_chance = differs_by_chance(c), near = c->found.worst < NEAR && !c->row->why;
    /* By chance, and with NaN where numbers are: what is read there is what was there before. */
    if (by_chance) snprintf(why, size, "%s", c->gpu && c->found.nan ? SHARED : RACE);
    if (!by_chance && near) {
        snprintf(why, size,
                 "Nearly right: off by %.3g times what rounding may cost. Look for sums and intermediate "
                 "results in a 16-bit type (use float, and round once at the end), float constants and "
                 "functions in f64 (1.0f, expf), fast approximations (__expf, --use_fast_math), and "
                 "differences of numbers that are nearly equal.",
                 c->found.worst);
    }
    return by_chance || near;
}

/* ---- what messages say ------------------------------------------------------------------------------------------- */

static const struct {
    const char *fragment, *why;
} known[] = {
    {"memory around output",
     "Writes out of bounds, just outside of the output. An index goes past the end: `<=` for `<`, a thread behind the "
     "end that is not stopped by `if (i < n)`, a vector store past the last whole vector, or a row that is taken for "
     "longer than it is."},
    {"outside of every tensor was written",
     "Writes out of bounds, far outside of its tensors. An index is wrong by a lot: rows and columns exchanged, the "
     "size of one tensor used for another, bytes for elements, or a missing `if (i < n)`."},
    {"wrote outside of its workspace",
     "The kernel uses more workspace than its workspace function asks for. Count the bytes again, for every shape."},
    {"was written to", "The contract says that this input is read only. Write to outputs alone, or mark the input as "
                       "updated in place (`!` in the contract)."},
    {"ILLEGAL_ADDRESS",
     "Out of bounds by so much that the GPU stopped: an index is far off, a pointer is the host's or NULL (an optional "
     "input that is absent?), or an int overflowed. TENON_SYNC=1 names the call, compute-sanitizer the line."},
    {"MISALIGNED_ADDRESS",
     "A vector load or store (float4, double2, int4) at an address that is not a multiple of its size. Tensors may "
     "begin at any multiple of their element's size: test the address, and use single elements where it does not fit."},
    {"OUT_OF_RESOURCES",
     "The launch asks for more registers or shared memory than a block can have: use fewer threads, "
     "or __launch_bounds__, or less shared memory."},
    {"INVALID_VALUE", "The launch itself is wrong: a grid or block of 0, more than 1024 threads in a block, more than "
                      "65535 blocks in y or z, or more than 48 KB of shared memory without asking for it first."},
    {"LAUNCH_FAILED", "The kernel was stopped by the GPU. compute-sanitizer says where and for what."},
    {"ILLEGAL_INSTRUCTION", "The code is not for this GPU, or a function pointer is wrong."},
    {"_ASSERT", "An assert() in the kernel is false; its text is above."},
    {"does not come back", "The kernel never ends. Look for a loop whose condition stays true (a step of 0), and for "
                           "__syncthreads() in a branch that some threads of the block do not take."},
    {"crashed (",
     "Run the command above with --in-process under gdb to see where: gdb -batch -ex run -ex bt --args tenon "
     "check …"},
};

static const char *known_cause(const char *message) {
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strstr(message, known[i].fragment)) return known[i].why;
    }
    return NULL;
}

void check_explain(checker *c, const char *message, char *why, size_t size) {
    const char *cause = known_cause(message);
    why[0] = 0;
    if (check_is_sanitized()) return; /* the process that asked explains */
    if (c->row && c->row->flags & TELLS) {
        snprintf(why, size, "%s", c->row->why);
    } else if (cause) {
        snprintf(why, size, "%s", cause);
    } else if (c->tested.call && c->found.wrong && explain_call(c, why, size)) {
        return;
    } else if (c->row && c->row->why) {
        snprintf(why, size, "%s", c->row->why);
    }
}
