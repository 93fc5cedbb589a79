"""Convolution, batch norm and relu in one kernel, as a trained model runs them.

pip install torch
PYTHONPATH=python python examples/kernels/conv_bn_relu/conv_bn_relu.py [--device cuda] [--check] [--bench]
"""

import sys
from pathlib import Path

import tenon

conv_bn_relu = tenon.kernel(
    "my_conv_bn_relu(x: T[n, c, h, w], filter: T[k, c, a, b], gamma: T[k], beta: T[k], mean: T[k], var: T[k],"
    " eps: float = 1e-5) -> y: T[n, k, h - a + 1, w - b + 1] where a >= 1, b >= 1, h >= a, w >= b",
    cuda="""
    // A thread for each element of y. The sum over c, a and b never leaves its register: it is normalised, moved and
    // cut off at 0 there, and written once.
    __global__ void conv_bn_relu(const T *x, const T *filter, const T *gamma, const T *beta, const T *mean,
                                 const T *var, double eps, T *y, long long y_count, long long c, long long h,
                                 long long w, long long k, long long a, long long b) {
        typedef tn::wide<T> W;
        long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
        if (i >= y_count) return;
        long long height = h - a + 1, width = w - b + 1;
        long long image = i / (k * height * width), channel = i / (height * width) % k;
        long long row = i / width % height, column = i % width;
        const T *weights = filter + channel * c * a * b;
        W sum = 0;
        for (long long first = 0; first < c; first += 64) {
            W part = 0;  // of 64 channels: sums of sums lose less than one long sum
            for (long long in = first; in < c && in < first + 64; in++) {
                const T *from = x + ((image * c + in) * h + row) * w + column;
                for (long long p = 0; p < a; p++) {
                    for (long long q = 0; q < b; q++) part += (W)from[p * w + q] * (W)*weights++;
                }
            }
            sum += part;
        }
        W v = (sum - (W)mean[channel]) * (W)gamma[channel] * tn::rsqrt((W)var[channel] + (W)eps) + (W)beta[channel];
        y[i] = v < 0 ? W(0) : v;
    }""",
    launch="elements",
    cpu="""
    void conv_bn_relu(const T *x, const T *filter, const T *gamma, const T *beta, const T *mean, const T *var,
                      double eps, T *y, int64_t c, int64_t h, int64_t w, int64_t k, int64_t a, int64_t b,
                      int64_t begin, int64_t end) {
        int64_t height = h - a + 1, width = w - b + 1;
        for (int64_t i = begin; i < end; i++) {
            int64_t image = i / (k * height * width), channel = i / (height * width) % k;
            int64_t row = i / width % height, column = i % width;
            const T *weights = filter + channel * c * a * b;
            double sum = 0;
            for (int64_t in = 0; in < c; in++) {
                const T *from = x + ((image * c + in) * h + row) * w + column;
                for (int64_t p = 0; p < a; p++) {
                    for (int64_t q = 0; q < b; q++) sum += (double)from[p * w + q] * *weights++;
                }
            }
            T v = (sum - mean[channel]) * gamma[channel] / sqrt(var[channel] + eps) + beta[channel];
            y[i] = v < 0 ? 0 : v;
        }
    }""",
    samples=[
        "n=1 c=1 h=3 w=3 k=1 a=3 b=3 var>0",
        "n=2 c=3 h=9 w=8 k=5 a=3 b=2 var>0",
        "n=2 c=0 h=4 w=4 k=3 a=1 b=1 var>0",
        "n=0 c=2 h=4 w=4 k=3 a=2 b=2 var>0",
        "bench: n=8 c=64 h=56 w=56 k=64 a=3 b=3 var>0",
    ],
)

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parents[1]))
    import torch
    from torch.nn.functional import batch_norm, conv2d

    import tenon.torch as tn
    from lesson import Positive, main

    def plain(x: torch.Tensor, filter: torch.Tensor, *norm: torch.Tensor) -> torch.Tensor:
        gamma, beta, mean, var = norm
        return torch.relu(batch_norm(conv2d(x, filter), mean, var, gamma, beta))

    def beside(x: torch.Tensor, filter: torch.Tensor, *norm: torch.Tensor) -> torch.Tensor:
        gamma, beta, mean, var = norm
        return tn.batch_norm_infer(conv2d(x, filter), mean, var, gamma, beta, act="relu")

    def case(x: tuple[int, ...], filter: tuple[int, ...]) -> list[object]:
        channels = filter[:1]
        return [x, filter, channels, channels, channels, Positive(channels)]

    main(
        [conv_bn_relu],
        plain=plain,
        cases=[case((2, 3, 9, 8), (5, 3, 3, 2)), case((1, 1, 3, 3), (1, 1, 3, 3)), case((0, 2, 4, 4), (3, 2, 2, 2))],
        timed=lambda edge: case((2, 16, edge // 8, edge // 8), (32, 16, 3, 3)),
        beside={"torch conv2d, tn.batch_norm_infer": beside, "torch": plain},
        differentiable=False,
    )
