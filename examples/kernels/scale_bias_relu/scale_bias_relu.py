"""relu(x * scale + bias) in one pass, with a backward kernel that is written by hand.

pip install torch
PYTHONPATH=python python examples/kernels/scale_bias_relu/scale_bias_relu.py [--device cuda] [--check] [--bench]
"""

import sys
from pathlib import Path

import tenon

scale_bias_relu_grad = tenon.kernel(
    "my_scale_bias_relu_grad(x: T[*r, c], scale: T[c], bias: T[c], dy: T[*r, c])"
    " -> dx: T[*r, c]?, dscale: T[c]?, dbias: T[c]?",
    cuda="""
    // A block has 32 columns, and 8 threads for each of them, which go down the rows. A gradient that nobody asked for
    // is NULL.
    __global__ void backward(const T *x, const T *scale, const T *bias, const T *dy, T *dx, T *dscale, T *dbias,
                             long long rows, long long c) {
        typedef tn::wide<T> W;
        __shared__ W sums[2][8][32];
        long long column = blockIdx.x * 32LL + threadIdx.x;
        W to_scale = 0, to_bias = 0;
        if (column < c) {
            W s = scale[column], b = bias[column];
            for (long long row = threadIdx.y; row < rows; row += 8) {
                long long i = row * c + column;
                W v = x[i], g = v * s + b > 0 ? (W)dy[i] : W(0);
                if (dx) dx[i] = g * s;
                to_scale += g * v;
                to_bias += g;
            }
        }
        sums[0][threadIdx.y][threadIdx.x] = to_scale;
        sums[1][threadIdx.y][threadIdx.x] = to_bias;
        __syncthreads();
        if (threadIdx.y != 0 || column >= c) return;
        for (int i = 1; i < 8; i++) {
            to_scale += sums[0][i][threadIdx.x];
            to_bias += sums[1][i][threadIdx.x];
        }
        if (dscale) dscale[column] = to_scale;
        if (dbias) dbias[column] = to_bias;
    }""",
    launch="grid=ceil_div(c, 32) block=(32, 8)",
    formula="""
    g = dy if x * scale + bias > 0 else 0
    dx = g * scale
    dscale = sum_to(g * x, scale)
    dbias = sum_to(g, bias)
    """,
    samples=[
        "r=[4] c=33 want_dx=true want_dscale=true want_dbias=true",
        "r=[2, 3] c=7 want_dscale=true",
        "r=[] c=1 want_dx=true want_dbias=true",
        "r=[0] c=3 want_dx=true want_dscale=true want_dbias=true",
        "bench: r=[4096] c=4096 want_dx=true want_dscale=true want_dbias=true",
    ],
)

scale_bias_relu = tenon.kernel(
    "my_scale_bias_relu(x: T[*r, c], scale: T[c], bias: T[c]) -> y: T[*r, c]",
    cuda="""
    __global__ void forward(const T *x, const T *scale, const T *bias, T *y, long long x_count, long long c) {
        long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
        if (i >= x_count) return;
        tn::wide<T> v = (tn::wide<T>)x[i] * scale[i % c] + bias[i % c];
        y[i] = v < 0 ? 0 : v;
    }""",
    launch="elements",
    formula="relu(x * scale + bias)",
    grad=scale_bias_relu_grad,
)

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parents[1]))
    import torch

    import tenon.torch as tn
    from lesson import main

    main(
        [scale_bias_relu],
        plain=lambda x, scale, bias: torch.relu(x * scale + bias),
        cases=[((33, 65), (65,), (65,)), ((7,), (7,), (7,)), ((2, 0, 5), (5,), (5,)), ((3, 0), (0,), (0,))],
        timed=lambda edge: ((edge, edge), (edge,), (edge,)),
        beside={
            "tn.scale_bias_relu": lambda x, scale, bias: tn.scale_bias_relu(x, scale=scale, bias=bias),
            "torch": lambda x, scale, bias: torch.relu(x * scale + bias),
        },
    )
