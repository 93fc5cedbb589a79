"""The sum of all elements: threads of a block add up through shared memory, and a second kernel adds up the blocks.

pip install torch
PYTHONPATH=python python examples/kernels/block_reduction/block_reduction.py [--device cuda] [--check] [--bench]
"""

import sys
from pathlib import Path

import tenon

SIGNATURE = "(x: T[*s]) -> y: T[]"
# Up to 1024 blocks leave a number each in the scratch memory; blocks that have nothing to add up are not launched.
LAUNCH = """
partial: grid=min(ceil_div(x_count, 256), 1024) block=256 scratch=1024 * sizeof(acc(T));
total: grid=1 block=256
"""

sum_by_hand = tenon.kernel(
    f"my_sum_by_hand{SIGNATURE}",
    cuda="""
    typedef tn::wide<T> W;  // float for f16 and bf16: their sums would not fit

    __device__ W add_up(W sum) {
        __shared__ W sums[256];
        sums[threadIdx.x] = sum;
        for (int half = 128; half > 0; half /= 2) {
            __syncthreads();  // by all threads: outside of the if
            if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
        }
        return sums[0];  // of thread 0: it has written it itself
    }

    __global__ void partial(const T *x, W *scratch, long long x_count) {
        W sum = 0;
        long long step = (long long)gridDim.x * 256;
        for (long long i = blockIdx.x * 256LL + threadIdx.x; i < x_count; i += step) sum += x[i];
        sum = add_up(sum);
        if (threadIdx.x == 0) scratch[blockIdx.x] = sum;
    }

    __global__ void total(const W *scratch, T *y, long long x_count) {
        long long blocks = (x_count + 255) / 256;
        W sum = 0;
        for (int i = threadIdx.x; i < blocks && i < 1024; i += 256) sum += scratch[i];
        sum = add_up(sum);
        if (threadIdx.x == 0) *y = sum;
    }""",
    launch=LAUNCH,
    formula="sum(x)",
)

sum_by_warps = tenon.kernel(
    f"my_sum_by_warps{SIGNATURE}",
    cuda="""
    typedef tn::wide<T> W;

    __global__ void partial(const T *x, W *scratch, long long x_count) {
        __shared__ W shared[32];
        W sum = 0;
        long long step = (long long)gridDim.x * 256;
        for (long long i = blockIdx.x * 256LL + threadIdx.x; i < x_count; i += step) sum += x[i];
        sum = tn::block_sum(sum, shared);  // warps add up in registers, then 8 numbers go through shared memory
        if (threadIdx.x == 0) scratch[blockIdx.x] = sum;
    }

    __global__ void total(const W *scratch, T *y, long long x_count) {
        __shared__ W shared[32];
        long long blocks = (x_count + 255) / 256;
        W sum = 0;
        for (int i = threadIdx.x; i < blocks && i < 1024; i += 256) sum += scratch[i];
        sum = tn::block_sum(sum, shared);
        if (threadIdx.x == 0) *y = sum;
    }""",
    launch=LAUNCH,
    formula="sum(x)",
)

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parents[1]))
    import torch

    import tenon.torch as tn
    from lesson import main

    main(
        [sum_by_hand, sum_by_warps],
        plain=torch.sum,
        cases=[((33, 65),), ((),), ((3, 0),), ((300, 1001),)],
        timed=lambda edge: ((edge, edge),),
        beside={"tn.sum": tn.sum, "torch": torch.sum},
    )
