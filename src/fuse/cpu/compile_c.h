/* Loops of a program made by the host's compiler (emit_c.c says which).
 *
 * When: a program whose calls move at least TNI_C_BYTES looks for its loops when it is bound, among those that are
 * loaded. The cache on disk is looked into by the second call (of all programs with the same text): loading takes
 * longer than the interpreter does for a first result, unless a call moves TNI_C_BYTES_SOON. Where there are no loops
 * it runs as it is; the third call starts the compiler in a thread of its own, and the calls after that thread is
 * through use what it made. What is compiled is cached, for processes to come and for machines without a compiler.
 *
 * Results are the same bits either way, so nobody needs to know when that is. Only the last bit of exp, log and what is
 * made of them can differ, and only where the library was built by another make of compiler than the host's.
 *
 * The compiler is TENON_CC, else CC, else cc. Before its first use it must make a program that runs and says so.
 * Whatever goes wrong, the interpreter does the work: no error, nothing cached, no second try in this process.
 * TENON_JIT=0: nothing is compiled or loaded; TENON_JIT=now: by binding, whatever the size. */
#ifndef TNI_FUSE_COMPILE_C_H
#define TNI_FUSE_COMPILE_C_H

#include "steps.h"

enum {
    TNI_C_BYTES = 1 << 16,      /* less is over before a loop could make a difference */
    TNI_C_BYTES_SOON = 1 << 23, /* where the first call alone gains what loading costs */
    TNI_C_CALLS = 3,            /* whoever calls so often will call again */
};

enum { TNI_MOST_OPERANDS = 128 }; /* of a loop, `memory` below */

/* at: the pass's values; memory: of the loop's loads, stores and sums, in their order, what is pending in front of its
 * sums, then what its place has more of; row: which the first one is, of `inner`; first: of a row that comes in blocks,
 * it is the first */
typedef void (*tni_c_loop)(void *const *at, char *const *memory, const uint64_t *constants, int64_t rows,
                           int64_t columns, int64_t row, int64_t inner, bool first);

/* emit_c.c: adds the loops' text, and their places in the passes; returns how many there are. */
int32_t tni_emit_c(tni_program *program, tni_text *text);

extern const tni_backend tni_c_backend;           /* compile_c.c */
extern const tni_backend tni_interpreter_backend; /* interpret.c */

/* interpret.c: loop n is loops[n - 1]; NULL: none is compiled */
tn_status tni_interpret(const tni_program *program, const tn_call *call, const tni_c_loop *loops);

/* compile_c.c */
bool tni_program_is_compiled(const tni_program *program); /* by now: its next run uses compiled loops */
/* A process that ends takes its compiler and its files along; the thread that compiles is given a moment to see that.
 * Who goes by _exit, as the child of a fork does, calls it before. */
void tni_c_end(void);

/* The command, which may be several words: TENON_CC, CC or cc. */
const char *tni_c_compiler(void);

/* A shared object from memory; NULL: it cannot be opened. */
void *tni_open_library(const char *data, size_t bytes);

/* A file that the loops' text includes. */
typedef struct tni_c_file {
    const char *name, *text;
} tni_c_file;
extern const tni_c_file tni_c_files[]; /* made by cmake/text.cmake; ends with a NULL name */

#endif
