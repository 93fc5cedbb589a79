/* What the text of formulas begins with: this file and those that it includes, one behind the other in one text
 * (cmake/text.cmake). TN_VARIANT: the kernels for aligned memory, 0, or for any, 1; without it, both. */
#pragma once

#include "bulk.cuh"
#include "cluster.cuh"
#include "kernel.cuh"
#include "partials.cuh"
#include "random.cuh"
#include "upright.cuh"
#include "vectors.cuh"

#ifndef TN_VARIANT
#define TN_VARIANT 2
#endif

namespace tn {

/* q becomes q / n, the rest is returned; 32 bits where they do. */
TN_CALLED i64 divide_far(i64 q, i64 n) { return q / n; }
TN_DEVICE i64 divide(i64 &q, i64 n) {
    const i64 a = q;
    q = ((u64)a | (u64)n) >> 32 ? divide_far(a, n) : (i64)((u32)a / (u32)n);
    return a - q * n;
}

} // namespace tn

using namespace tn;
