/* The products of a call, one after the other: for operators that do more than that. */
#ifndef TNI_GEMM_CPU_H
#define TNI_GEMM_CPU_H

#include "cpu/vec/variants.h"
#include "gemm_plan.h"

void TNI_CPU(gemm_run)(const tn_call *call, const gemm_plan *plan, const tni_product *products);

#endif
