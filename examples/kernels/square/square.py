"""x * x, with its gradient as a formula.

pip install torch
PYTHONPATH=python python examples/kernels/square/square.py [--device cuda] [--check] [--bench]
"""

import sys
from pathlib import Path

import tenon

square = tenon.kernel(
    "my_square(x: T[*s]) -> y: T[*s]",
    cuda="""
    __global__ void square(const T *x, T *y, long long x_count) {
        long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
        if (i < x_count) y[i] = (tn::wide<T>)x[i] * (tn::wide<T>)x[i];
    }""",
    launch="elements",
    cpu="""
    void square(const T *x, T *y, int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; i++) y[i] = x[i] * x[i];
    }""",
    grad="dx = 2 * x * dy",
)

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parents[1]))
    import torch

    import tenon.torch as tn
    from lesson import main

    main(
        [square],
        plain=torch.square,
        cases=[((33, 65),), ((),), ((3, 0),), ((1025,),)],
        timed=lambda edge: ((edge, edge),),
        beside={"tn.square": tn.square, "torch": torch.square},
    )
    x = torch.tensor([-1.5, 0.0, 2.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(square, x)  # the formula has a gradient in its turn
