"""max(x, 0), and what a comparison does to NaN.

pip install torch
PYTHONPATH=python python examples/kernels/relu/relu.py [--device cuda] [--check] [--bench]
"""

import sys
from pathlib import Path

import tenon

relu = tenon.kernel(
    "my_relu(x: T[*s]) -> y: T[*s]",
    cuda="""
    __global__ void relu(const T *x, T *y, long long x_count) {
        long long i = 4 * (blockIdx.x * (long long)blockDim.x + threadIdx.x);
        if (i >= x_count) return;
        tn::vec<T, 4> v = tn::load<4>(x + i, x_count - i);
        for (int j = 0; j < 4; j++) v.v[j] = (tn::wide<T>)v.v[j] < 0 ? T(0) : v.v[j];  // a NaN is not below 0: it stays
        tn::store(y + i, v, x_count - i);
    }""",
    launch="elements(4)",
    formula="relu(x)",
)

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parents[1]))
    import torch

    import tenon.torch as tn
    from lesson import main

    device = main(
        [relu],
        plain=torch.relu,
        cases=[((33, 65),), ((),), ((3, 0),), ((1026,),)],
        timed=lambda edge: ((edge, edge),),
        beside={"tn.relu": tn.relu, "torch": torch.relu},
    )
    special = torch.tensor([float("nan"), -0.0, float("-inf"), float("inf")], device=device)
    assert str(relu(special).abs().tolist()) == "[nan, 0.0, 0.0, inf]"
