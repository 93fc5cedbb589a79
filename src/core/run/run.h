/* Calls for adapters: one look-up serves inference and the run. */
#ifndef TNI_RUN_H
#define TNI_RUN_H

#include "core/table/table.h"

/* tn_run and tn_infer without a look at names: an attribute without one is the one at its place in the contract
 * (TN_ATTR_UNSET: the default). */
tn_status tni_run(const tn_function *op, const tn_args *args, const tn_host *host);
tn_status tni_infer(const tn_function *op, const tn_args *args, tn_spec *specs);
/* What the public functions ask of a call before anything else: that nothing is NULL that has to be there. */
tn_status tni_check_call(const char *wanted, const tn_function *op, const tn_args *args);

/* Makes output `output`, which the adapter owns; the core runs into it. */
typedef tn_status (*tni_make_output)(void *context, int32_t output, const tn_spec *spec, const int64_t *strides,
                                     tn_tensor **made);
/* tn_run with outputs made on the way: args->out is ignored, `?` outputs are made when their want_ attribute is true.
 * An attribute without a name is the one at its place in the contract (TN_ATTR_UNSET: the default). */
tn_status tni_call_alloc(const tn_function *op, const tn_args *args, const tn_host *host, tni_make_output make,
                         void *context);

/* The strides that an adapter gives output i: those of the first input that has its shape by the contract and in this
 * call, if that is permuted-dense (channels-last stays channels-last), else dense. */
void tni_output_strides(const tn_function *op, const tn_args *args, int32_t output, const tn_spec *spec,
                        int64_t *strides);

/* A tensor of the call, for a call of another operator that a kernel makes. */
tn_tensor tni_tensor_of(const tn_call *call, const tn_view *v);

/* A host whose memory is a piece that somebody has set aside for one call. Each block of it is given out once. Where it
 * is not enough, and for everything else, `outer` serves. */
typedef struct tni_scratch {
    const tn_host *outer;
    char *begin, *next, *end;
    tn_host host;
} tni_scratch;
const tn_host *tni_scratch_init(tni_scratch *s, const tn_host *outer, void *data, size_t bytes);

#endif
