/* Kernels from text: what the operators of src/text share. */
#ifndef TNI_TEXT_SOURCE_H
#define TNI_TEXT_SOURCE_H

#include <tenon/cuda.h>
#include <tenon/device.h>
#include <tenon/kernel.h>

#include "core/table/table.h"
#include "launch_line.h"
#include "params.h"
#include "tune.h"

/* What is known of a call: the contract's names have values. */
typedef struct tni_known {
    const tni_contract *contract;
    const tn_call *call; /* NULL: nothing is known but names, and every size is 1 */
    tni_bound bound;
    tn_spec specs[TNI_MAX_ARGS];
    tni_tunables tunables; /* of the text, and their values in this call */
    tni_choice choice;
} tni_known;

/* What a parameter of a kernel is given. */
typedef enum tni_given { TNI_GIVE_INPUT, TNI_GIVE_OUTPUT, TNI_GIVE_SCRATCH, TNI_GIVE_VALUE, TNI_GIVE_RANGE } tni_given;
typedef struct tni_give {
    tni_given how;
    int32_t index; /* of inputs and outputs; of a range: 0 its begin, 1 its end */
    tn_type type;  /* of a value, and of what is pointed to; TN_NO_TYPE: any */
    uint64_t bits; /* of a value */
} tni_give;

tn_status tni_known_of(const tn_call *call, tni_known *known);
/* A contract without a call. */
void tni_known_names(const tni_contract *contract, tni_known *known);
/* As launch lines ask for it. */
void tni_sizes_of(const tni_known *known, tni_sizes *sizes);

/* What each parameter of a function is given. `host`: the text is C. */
tn_status tni_give_params(const char *op, const tni_known *known, const tni_cfunction *f, bool host, tni_give *give);
/* The element type that C text calls by this name; TN_NO_TYPE: not known. Type variables are those of the call. */
tn_type tni_ctype(const tni_known *known, const char *name);
int32_t tni_find_tensor(const tni_contract *contract, const char *name, bool *output); /* -1: none has this name */
/* Of an input or output in the call; without one, by the types of `bound`. TN_NO_TYPE: not known, or absent. */
tn_type tni_tensor_type(const tni_known *known, int32_t at, bool output);
/* Whether the text's pointers fit the types of the call. */
bool tni_params_fit(const tni_known *known, const tni_cfunction *f, bool host);

/* The kernel of a text that a step means: by name, by the operator's name, or the only one. */
tn_status tni_pick_function(const char *op, const tni_cfunctions *all, const char *wanted, const tni_cfunction **found);

/* Reads the text without a call: all names are known, the launch line says something. */
tn_status tni_source_check(const tni_contract *contract, const tn_source *source);

/* ---- for one device each: source_cuda.c, source_c.c ------------------------------------------------------------- */

tn_status tni_cuda_source_prepare(const tn_call *call, const tn_source *source, void **state);
tn_status tni_cuda_source_run(const tn_call *call, void *state);
void tni_cuda_source_release(void *state);
size_t tni_cuda_source_workspace(const void *state);

tn_status tni_cpu_source_prepare(const tn_call *call, const tn_source *source, void **state);
tn_status tni_cpu_source_run(const tn_call *call, void *state);
void tni_cpu_source_release(void *state);
size_t tni_cpu_source_workspace(const void *state);

/* The launches of a call whose plan has this state; 0 where the kernel is none of this file's. */
int32_t tni_source_launches(const tn_kernel *kernel, const void *state, const tn_launch **launches, int32_t most);

/* The code of every instance of a text for one architecture, compiled ahead. `add` is called with each. */
typedef tn_status (*tni_add_built)(void *context, const tn_built *built);
TN_API tn_status tni_source_build(const tn_function *op, const tn_source *source, int major, int minor,
                                  const char *options, tni_add_built add, void *context);
/* Code that came with a plugin; it is there from now on. bytes 0 ends the list. */
void tni_source_add_built(const void *list);

/* No call is left: gives back what was compiled, and the operators' texts. */
void tni_sources_close(void);
void tni_cpu_sources_close(void);
void tni_cuda_sources_close(void);
void tni_texts_close(void);

extern const tni_kernel_texts tni_text_kernels; /* define.c */

#endif
