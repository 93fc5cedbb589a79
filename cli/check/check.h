/* `tenon check`: what its parts share. A *problem* is a case with values and what the float64 reference makes of them;
 * a *row* is one kind of bug (docs: `tenon check --help`) with the function that looks for it. */
#ifndef CLI_CHECK_H
#define CLI_CHECK_H

#include "cli/data.h"
#include "cli/mirror.h"
#include "core/table/sample.h"
#include "core/table/setting.h"

/* Which sanitizer this was built with: gcc defines these, for clang the build would have to. */
#ifdef __SANITIZE_ADDRESS__
enum { CHECK_ASAN = 1 };
#else
enum { CHECK_ASAN = 0 };
#endif
#ifdef __SANITIZE_THREAD__
enum { CHECK_TSAN = 1 };
#else
enum { CHECK_TSAN = 0 };
#endif

/* ---- problems ---------------------------------------------------------------------------------------------------- */

/* What an output, or an input that is updated in place, must hold. */
typedef struct result {
    bool present;
    const char *name;
    int32_t output; /* of the contract; -1: an input in place */
    int32_t input;  /* of the call, where output is -1 */
    tn_type type;
    tni_dims shape;
    int64_t count;
    double *value;   /* (count) */
    double *bound;   /* (count) how far off an element may be; NULL: not computed */
    bool by_element; /* an element depends on nothing but the same element of the inputs */
} result;

typedef struct problem {
    const tn_function *op;
    tni_case *sample; /* owned */
    const char *text; /* the sample's */
    double tolerance;
    uint64_t seed;
    double **in; /* (sample->n_inputs) values, as the inputs' types hold them */
    int32_t n_results;
    result results[2 * TNI_MAX_ARGS];
} problem;

/* Values are drawn from the seed; the case is owned by the problem from now on, also on failure. */
tn_status problem_make(problem *p, const tn_function *op, tni_case *sample, const tn_sample *from, uint64_t seed);
/* Runs the reference on the values: results, and with `bounds` how far off they may be. Again after values changed. */
tn_status problem_solve(problem *p, bool bounds);
void problem_free(problem *p);
/* A call with the problem's values in it. */
tn_status problem_call(const problem *p, made_call *c, call_options options);
void problem_write(const problem *p, made_call *c);
/* The values of input i, as its type rounds them. */
void problem_round(problem *p, int32_t i);
const char *reference_kernel(const tn_function *op);

/* What problem_solve remembers: results by the key of a problem. False: not there, or no memory for a copy. */
uint64_t solved_key(const problem *p, bool bounds);
bool solved_find(uint64_t key, problem *p);
void solved_keep(uint64_t key, const problem *p);
void solved_forget(void); /* all of it */

/* ---- the run ----------------------------------------------------------------------------------------------------- */

typedef struct check_options {
    bool quick, verbose, json;
    bool sanitize;   /* compute-sanitizer over every operator */
    bool in_process; /* no child processes */
    int64_t limit;   /* seconds that a case may take */
    bool has_limit;  /* it was asked for */
    int64_t cases;   /* random ones, for each operator, type and kernel */
    uint64_t seed;
    const char *kernel; /* NULL: all */
    const char *rows;   /* "values,empty"; NULL: all */
    const char *skip;   /* likewise; NULL: none */
    int sample;         /* -1: all */
    const char *device; /* "cuda:0" for the command that reproduces; NULL: the CPU */
    const char *loads;  /* " --load x.so …" for the command that reproduces */
    const char *again;  /* the whole of that command, for operators in no table; NULL: `tenon check` */
} check_options;

struct check_row;

/* What was wrong with a result, counted. */
typedef struct finding {
    int64_t count, wrong;
    int64_t unwritten;    /* hold what was there before */
    int64_t nan, dropped; /* NaN for a number; a number for NaN */
    bool tail;            /* just the last ones, of all or of every row, are unwritten */
    double worst;         /* error as a part of its bound */
} finding;

/* Lies in memory that the process which started the cases shares with the one that runs them: when the latter is gone,
 * the former reads here how far it came, and another goes on behind that. What it points to was there before. */
typedef struct checker {
    check_options options;
    mirror *gpu; /* what calls run on; NULL: the CPU */
    /* where it is */
    const tn_function *op;
    const tni_contract *contract;
    tn_type T;
    int type_index, n_types; /* which of the types that are checked T is */
    const char *kernel;
    const struct check_row *row;
    const tn_sample *sample;
    int sample_index;
    uint64_t case_seed;    /* of a random case; 0: the run's */
    int n_operators, next; /* operators asked for, and which of them is under way */
    int64_t serial;        /* cases of this operator that this process has come to */
    int64_t resume;        /* as many of them are done, by a process before this one */
    bool running;          /* a case is under way */
    double began;          /* when it began */
    char cause[256];       /* of the death of this process, said by a signal handler; "": none known */
    /* what came of it */
    int64_t passed, failed, skipped;
    struct {
        int64_t passed, failed, skipped;
        double began;
    } before;      /* this operator */
    int64_t shown; /* failures of this operator */
    int64_t said;  /* cases of this operator, and operators, that are in the JSON */
    int listed;
    int hangs;       /* cases of this operator that did not come back */
    bool broken;     /* the row under way has failed */
    bool skipping;   /* or cannot be done here */
    bool dead;       /* the GPU can do nothing more in this process */
    bool stop;       /* no further cases; `status` is the exit status */
    bool opened;     /* this process has its device */
    bool ended;      /* and did all that it was to do */
    char device[16]; /* "cuda:0" */
    int status;
    bool any_infinity; /* NaN and ±Inf count as the same: see `special` */
    finding found;     /* in the result that failed */
    struct {
        const problem *problem;
        made_call *call; /* NULL: none can be run again to see why it failed */
    } tested;            /* of this process alone */
    char why[1024];      /* said of this operator last */
    bool sanitized;      /* compute-sanitizer has looked at a failure of this operator */
    double worst;        /* error as a part of its bound, this operator */
    char notes[1024];    /* of this operator: lines */
    int made_context;    /* by naming and describing operators: 0 or 1; -1: not known */
    bool broke_context;  /* a process of its own did, on purpose: see `sticky` */
} checker;

enum {
    EACH = 0,     /* every sample */
    ONCE = 1,     /* the first sample that has elements and, if there is one, two dimensions */
    FEW = 2,      /* with --quick, and for the reference: three samples that have elements */
    RARE = 4,     /* four such samples, two with --quick */
    PER_OP = 8,   /* once for the operator: no type, no kernel */
    SLOW = 16,    /* not with --quick */
    NOT_REF = 32, /* not for the reference, where there are other kernels */
    LANES = 64,   /* goes by the width of vectors: lesser instruction sets get these alone with --quick */
    TELLS = 128,  /* what fails here and in no other row has the row's own cause, whatever it looks like */
    DEALT = 256   /* every sample; with --quick on the CPU each in one of the types, which take turns */
};

typedef struct check_row {
    const char *name;
    const char *what; /* one line, for --help */
    uint32_t flags;
    int64_t most;                      /* elements of a sample's largest input; larger ones are left out. 0: any */
    bool (*applies)(const checker *c); /* NULL: always */
    void (*run)(checker *c);
    const char *why; /* what a failure most often comes from, and what to look at; NULL: there is no saying */
} check_row;

/* Rows, in the order of their files; each table ends with a row without a name. */
extern const check_row value_rows[], layout_rows[], shape_rows[], system_rows[], alias_rows[], refuse_rows[],
    memory_rows[], grad_rows[], batch_rows[], huge_rows[], random_rows[], gpu_rows[], sanitize_rows[];

/* For `applies`: where calls run; samples have sizes that can be changed; there is more than one output. */
bool on_cpu(const checker *c);
bool on_gpu(const checker *c);
bool has_sizes(const checker *c);
bool has_outputs(const checker *c);

/* A quick check of an operator that need not be in the table, on `device` (NULL: the CPU), in T and in f64; `again` is
 * the command that does it again. Prints what `tenon check` does; returns how many cases failed, or -1. */
int64_t check_alone(const tn_function *op, tn_type T, const char *device, const char *again, bool json);

/* All rows of an operator (check_rows.c); in a process that goes on behind another, those that are left. */
void check_operator(checker *c, const tn_function *op);
/* Every operator of the list, in child processes: a crash, an exit or a hang costs the case that it happens in
 * (check_process.c). `device` is opened by whoever runs the cases. */
void check_operators(checker *c, const tn_function *const *ops, int n, const char *device);
/* A checker in shared memory; NULL: there is none. */
checker *checker_new(check_options options);
void checker_free(checker *c);
extern const check_row *const check_tables[]; /* NULL ends */
/* Types of `tenon check --dtype`, "f32,bf16"; NULL: the usual ones. */
extern const char *check_dtypes;
/* Can the kernel run here, with this T? */
bool kernel_takes(const checker *c, const tn_kernel *k, tn_type type);
bool is_named(const char *names, const char *name); /* is it one of "values,empty"? */

/* The command that does just this row again. */
void check_command(const checker *c, char *text, size_t size);
/* Looks whether naming, describing and inferring makes a context on this GPU, before anything else does; the row `idle`
 * says what came of it. */
void check_idle(checker *c, int device);

/* One failed row is one failure, whatever goes wrong in it; the first message is shown. */
void check_fail(checker *c, const char *format, ...) TN_PRINTF(2, 3);
/* Said beside an operator's result: what was not, or could not be, looked at. */
void check_note(checker *c, const char *format, ...) TN_PRINTF(2, 3);
/* The row cannot be done here; with a reason it is counted and, for SLOW rows, shown. */
void check_skip(checker *c, const char *format, ...) TN_PRINTF(2, 3);

/* The call was refused because the kernel under check does not take it (its `accepts` said so): nothing wrong, and
 * nothing to compare; the row counts as skipped. */
bool check_declined(checker *c, tn_status status);

/* ---- why (check_explain.c) --------------------------------------------------------------------------------------- */

/* What is wrong, the usual cause and what to look at, for a failure with this message; "": nothing is known. */
void check_explain(checker *c, const char *message, char *why, size_t size);

/* The call under test again, with these bytes in its outputs before. False: it does not run. */
bool check_run_again(checker *c, unsigned char outputs);

/* What compute-sanitizer finds in the case that has just failed; "": nothing, or it is not installed. */
void check_sanitize(checker *c, char *text, size_t size);
bool check_is_sanitized(void); /* this process runs under it */

/* ---- saying it (check_report.c) ---------------------------------------------------------------------------------- */

double check_now(void); /* seconds */
void check_progress(const checker *c);
void check_verbose(checker *c, double seconds);        /* a case is over */
void check_say_begin(checker *c);                      /* an operator */
void check_say_end(checker *c, const char *unchecked); /* why there was nothing to check; NULL: there was */
void check_say_all(const checker *c, bool begin);      /* before the first operator, and behind the last */

/* ---- comparing --------------------------------------------------------------------------------------------------- */

bool results_right(const checker *c, const problem *p, const made_call *k); /* without a word */
/* Every result of the call against the problem's. `what` is put into the message: "base 3 elements off". */
bool compare_call(checker *c, const problem *p, const made_call *k, const char *what);
/* Elements begin … begin + result's count - 1 along nothing else: one result against an array. */
bool compare_result(checker *c, const result *r, const array *a, const char *what);
/* Runs the call with the checker's kernel (or `kernel`) and compares; false after a failure. */
bool run_and_compare(checker *c, const problem *p, made_call *k, const char *what);
/* The same bits in two arrays of the same shape; a failure says where. */
bool same_bits(checker *c, const char *name, const array *a, const array *b, const char *what);
bool same_results(checker *c, const made_call *a, const made_call *b, const char *what);
/* The array that holds result r of a call. */
array *result_array(const made_call *k, const result *r);

/* ---- making problems in rows ------------------------------------------------------------------------------------- */

uint64_t check_seed(const checker *c, uint64_t with);
/* The sample as it stands. False: failure reported. */
bool sample_problem(checker *c, problem *p);
/* A sample with other sizes. */
typedef struct variant {
    tni_arena *arena;
    tni_setting *setting;
    int32_t n_slots;
    int64_t *slots[TNI_MAX_SLOTS]; /* every size of the sample */
    int32_t row;                   /* the slot of the first input's last dimension; -1: none */
} variant;
/* False: the sample cannot be read (reported), or has explicit shapes that no other size would fit. */
bool variant_begin(checker *c, variant *v);
void variant_drop(variant *v);
/* Packs of rank 0, axes back to their defaults. False: there is no pack. */
bool variant_flatten(variant *v);
/* Multiplies slot k until the largest tensor has about `elements`. Sizes of 0 become 3. */
void variant_grow(variant *v, int32_t k, int64_t elements);
/* Values drawn for the sizes as they are now; ends the variant. False: the contract refuses them, or no memory. */
bool variant_problem(checker *c, variant *v, problem *p);
/* A dense call with the problem's values, run once. False: failure reported, nothing to free. */
bool first_run(checker *c, const problem *p, made_call *k, const tn_host *host);
/* Solves the problem, runs it densely and compares; frees it. */
bool check_problem(checker *c, problem *p, const char *what);

/* ---- one of many ------------------------------------------------------------------------------------------------- */

/* Size `slot` of the sample once as n and once as 1. Inputs and results that have it differ in one dimension; element
 * `at` of that dimension of the large problem is what the small one has. */
typedef struct slice {
    int32_t slot;
    int64_t n;
    tni_case *many, *one;              /* owned */
    int32_t in_dim[4 * TNI_MAX_ARGS];  /* (inputs) the dimension that differs; -1: none does */
    int32_t out_dim[5 * TNI_MAX_ARGS]; /* (results) likewise */
    bool comparable[5 * TNI_MAX_ARGS]; /* (results) the reference says that element `at` depends on nothing else */
} slice;
/* others: changes the other sizes before cases are made; NULL: as in the sample. False: there is no such slice. */
bool slice_make(checker *c, slice *s, int32_t slot, int64_t n, void (*others)(variant *v, int32_t slot));
void slice_free(slice *s);
/* A view of element `at` along dimension d of an array (d == -1: the whole). */
void slice_view(array *view, const array *a, int32_t d, int64_t at);
/* Asks the reference, with n elements: which results are comparable? False: none, or failure. */
bool slice_compare_reference(checker *c, slice *s);

#endif
