/* What hand-written kernels share. Device code only. */
#pragma once

#include "async_copy.cuh"
#include "bulk.cuh"
#include "cluster.cuh"
#include "kernel.cuh"
#include "math.cuh"
#include "packs.cuh"
#include "reduce.cuh"

using namespace tn;
