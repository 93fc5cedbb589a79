"""Softmax of rows that stay in shared memory between the three passes over them.

pip install torch
PYTHONPATH=python python examples/kernels/softmax/softmax.py [--device cuda] [--check] [--bench]
"""

import sys
from pathlib import Path

import tenon

softmax = tenon.kernel(
    "my_softmax(x: T[*r, c]) -> y: T[*r, c]",
    cuda="""
    // A block takes a row. What does not fit into 32 KiB is read again.
    __global__ void softmax(const T *x, T *y, long long c) {
        typedef tn::wide<T> W;
        extern __shared__ W row[];
        __shared__ W numbers[32];
        long long kept = tn::min(c, 32768LL / (long long)sizeof(W)), begin = blockIdx.x * c;

        W most = tn::minus_infinity<W>();
        for (long long i = threadIdx.x; i < c; i += blockDim.x) {
            W v = x[begin + i];
            if (i < kept) row[i] = v;
            most = tn::max(most, v);
        }
        most = tn::block_max(most, numbers);  // a NaN wins

        W sum = 0;
        for (long long i = threadIdx.x; i < c; i += blockDim.x) {
            W e = tn::exp((i < kept ? row[i] : (W)x[begin + i]) - most);
            if (i < kept) row[i] = e;
            sum += e;
        }
        sum = tn::block_sum(sum, numbers);

        for (long long i = threadIdx.x; i < c; i += blockDim.x) {
            y[begin + i] = (i < kept ? row[i] : tn::exp((W)x[begin + i] - most)) / sum;
        }
    }""",
    launch="rows shared=min(c * sizeof(acc(T)), 32768)",
    formula="t = exp(x - max(x, axis=-1)); y = t / sum(t, -1)",
    grad="dx = y * (dy - sum(y * dy, -1))",
)

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parents[1]))
    import torch

    import tenon.torch as tn
    from lesson import main

    device = main(
        [softmax],
        plain=lambda x: torch.softmax(x, -1),
        cases=[((33, 65),), ((7,),), ((2, 3, 1),), ((0, 4),), ((2, 20000),)],
        timed=lambda edge: ((edge, edge),),
        beside={"tn.softmax": tn.softmax, "torch": lambda x: torch.softmax(x, -1)},
    )
    nan, inf = float("nan"), float("inf")
    rows = [[-inf, 0, 0], [nan, 0, 1], [-inf, -inf, -inf], [inf, 0, 0], [1e30, 0, -1e30]]
    special = torch.tensor(rows, device=device)
    got = softmax(special)
    torch.testing.assert_close(got, torch.softmax(special, -1), equal_nan=True)
    print(f"\nrows with -inf, with NaN, of -inf, with inf, with 1e30:\n{got}")
