"""2 * x twice: with neighbouring threads at neighbouring elements, and with neighbouring threads far apart.

pip install torch
PYTHONPATH=python python examples/kernels/coalesced/coalesced.py [--device cuda] [--check] [--bench]
"""

import sys
from pathlib import Path

import tenon

coalesced = tenon.kernel(
    "my_double_coalesced(x: T[m, n]) -> y: T[m, n]",
    cuda="""
    __global__ void coalesced(const T *x, T *y, long long x_count) {
        long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
        if (i < x_count) y[i] = 2 * (tn::wide<T>)x[i];
    }""",
    launch="elements",
    formula="2 * x",
)

strided = tenon.kernel(
    "my_double_strided(x: T[m, n]) -> y: T[m, n]",
    cuda="""
    __global__ void strided(const T *x, T *y, long long x_count, long long m, long long n) {
        long long thread = blockIdx.x * (long long)blockDim.x + threadIdx.x;
        if (thread >= x_count) return;
        long long i = thread % m * n + thread / m;  // down a column: the next thread is a row further
        y[i] = 2 * (tn::wide<T>)x[i];
    }""",
    launch="elements",
    formula="2 * x",
)

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parents[1]))
    import tenon.torch as tn
    from lesson import main

    main(
        [coalesced, strided],
        plain=lambda x: 2 * x,
        cases=[((33, 65),), ((1, 7),), ((3, 0),), ((0, 3),)],
        timed=lambda edge: ((edge, edge),),
        beside={"tn.scale": lambda x: tn.scale(x, 2.0), "torch": lambda x: 2 * x},
    )
