"""Adds a constant to every element: the first kernel that everybody writes.

pip install torch
PYTHONPATH=python python examples/kernels/add_constant/add_constant.py [--device cuda] [--check] [--bench]
"""

import sys
from pathlib import Path

import tenon

add_constant = tenon.kernel(
    "my_add_constant(x: T[*s], c: float) -> y: T[*s]",
    cuda="""
    __global__ void add_constant(const T *x, double c, T *y, long long x_count) {
        long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
        if (i < x_count) y[i] = (tn::wide<T>)x[i] + (tn::wide<T>)c;
    }""",
    launch="elements",
    formula="x + c",
)

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parents[1]))
    import tenon.torch as tn
    from lesson import main

    main(
        [add_constant],
        plain=lambda x, c: x + c,
        cases=[((33, 65), 2.5), ((), -1.0), ((3, 0), 1.0), ((1025,), 0.1)],
        timed=lambda edge: ((edge, edge), 2.5),
        beside={"tn.add_constant": tn.add_constant, "torch": lambda x, c: x + c},
    )
