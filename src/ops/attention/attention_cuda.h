/* What the CUDA kernels of attention share on the host. */
#ifndef TNI_ATTENTION_CUDA_H
#define TNI_ATTENTION_CUDA_H

#include "attention.cuh"
#include "attention.h"
#include "core/contract/contract.h"
#include "core/host/status.h"
#include "cuda/driver/cuda.h"

/* Of either operator; the workspace begins with delta. */
tni_gpu_attention tni_attention_gpu(const tn_call *call, const attention_job *a);

/* Kernel attention_<what>_<type>, with a warp for each of so many rows. */
tn_status tni_attention_find(const tn_call *call, tn_launch *l, const char *what, int64_t rows);
tn_status tni_attention_launch(const tn_call *call, const tn_launch *l, tni_gpu_attention *p, int make, int64_t rows);

typedef struct attention_grad_launches {
    tn_launch delta, queries, keys, dbias, dsinks;
} attention_grad_launches;
tn_status tni_attention_fill_grad(const tn_call *call, attention_grad_launches *l);
tn_status tni_attention_run_rest(const tn_call *call, const attention_job *a, const attention_grad_launches *l,
                                 tni_gpu_attention *p);
/* All of it, a warp for each row. */
tn_status tni_attention_run_grad(const tn_call *call, const attention_job *a, const attention_grad_launches *l,
                                 tni_gpu_attention *p);

#endif
