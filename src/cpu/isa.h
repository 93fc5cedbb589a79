/* Which instruction sets this machine has. */
#ifndef TNI_ISA_H
#define TNI_ISA_H

#include <tenon/op.h>

uint32_t tni_cpu_isa(void); /* TN_ISA_… of this machine, less what TENON_ISA=none|avx2|avx512 leaves out */
bool tni_cpu_bf16(void);    /* Arm: it rounds to bf16 by itself; not with TENON_ISA=none */

#endif
