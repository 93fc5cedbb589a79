"""relu(x w' + b) in one kernel: the bias and the activation while the sum is still in a register.

pip install torch
PYTHONPATH=python python examples/kernels/linear_relu/linear_relu.py [--device cuda] [--check] [--bench]
"""

import sys
from pathlib import Path

import tenon

# Where y is 0, nothing flows back. Each of the three gradients has a kernel.
linear_relu_grad = tenon.kernel(
    "my_linear_relu_grad(x: T[*r, k], w: T[n, k], b: T[n], y: T[*r, n], dy: T[*r, n])"
    " -> dx: T[*r, k]?, dw: T[n, k]?, db: T[n]?",
    cuda="""
    typedef tn::wide<T> W;

    // Sums of 256 terms at a time: one long sum of floats loses more.
    template <class F> __device__ W sum_of(long long n, F term) {
        W sum = 0;
        for (long long at = 0; at < n; at += 256) {
            W part = 0;
            for (long long i = at; i < n && i < at + 256; i++) part += term(i);
            sum += part;
        }
        return sum;
    }

    // dx = g w, where g = dy if y > 0
    __global__ void to_x(const T *w, const T *y, const T *dy, T *dx, long long r, long long k, long long n) {
        long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
        if (!dx || i >= r * k) return;
        dx[i] = sum_of(n, [=](long long j) {
            long long at = i / k * n + j;
            return (W)y[at] > 0 ? (W)dy[at] * (W)w[j * k + i % k] : W(0);
        });
    }

    // dw = g' x
    __global__ void to_w(const T *x, const T *y, const T *dy, T *dw, long long r, long long k, long long n) {
        long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
        if (!dw || i >= n * k) return;
        dw[i] = sum_of(r, [=](long long j) {
            long long at = j * n + i / k;
            return (W)y[at] > 0 ? (W)dy[at] * (W)x[j * k + i % k] : W(0);
        });
    }

    // db = the sum of g over the rows
    __global__ void to_b(const T *y, const T *dy, T *db, long long r, long long n) {
        long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
        if (!db || i >= n) return;
        db[i] = sum_of(r, [=](long long j) { return (W)y[j * n + i] > 0 ? (W)dy[j * n + i] : W(0); });
    }""",
    launch="to_x: grid=ceil_div(r * k, 256); to_w: grid=ceil_div(n * k, 256); to_b: grid=ceil_div(n, 256)",
    cpu="""
    void linear_relu_grad(const T *x, const T *w, const T *y, const T *dy, T *dx, T *dw, T *db, int64_t r, int64_t k,
                          int64_t n) {
        for (int64_t i = 0; dx && i < r * k; i++) {
            double sum = 0;
            for (int64_t j = 0, at = i / k * n; j < n; j++, at++) {
                if (y[at] > 0) sum += (double)dy[at] * w[j * k + i % k];
            }
            dx[i] = sum;
        }
        for (int64_t i = 0; dw && i < n * k; i++) {
            double sum = 0;
            for (int64_t j = 0, at = i / k; j < r; j++, at += n) {
                if (y[at] > 0) sum += (double)dy[at] * x[j * k + i % k];
            }
            dw[i] = sum;
        }
        for (int64_t i = 0; db && i < n; i++) {
            double sum = 0;
            for (int64_t j = 0, at = i; j < r; j++, at += n) sum += y[at] > 0 ? dy[at] : 0;
            db[i] = sum;
        }
    }""",
)

linear_relu = tenon.kernel(
    "my_linear_relu(x: T[*r, k], w: T[n, k], b: T[n]) -> y: T[*r, n]",
    cuda="""
    __global__ void linear_relu(const T *x, const T *w, const T *b, T *y, long long r, long long k, long long n) {
        typedef tn::wide<T> W;
        __shared__ W left[16][17], right[16][17];
        const int tx = threadIdx.x, ty = threadIdx.y;
        long long first = blockIdx.x % ((n + 15) / 16) * 16, top = blockIdx.x / ((n + 15) / 16) * 16;
        long long row = top + ty, column = first + tx;
        W sum = 0;
        for (long long at = 0; at < k; at += 16) {
            left[ty][tx] = row < r && at + tx < k ? (W)x[row * k + at + tx] : W(0);
            right[ty][tx] = first + ty < n && at + tx < k ? (W)w[(first + ty) * k + at + tx] : W(0);
            __syncthreads();
            W part = 0;
            for (int i = 0; i < 16; i++) part += left[ty][i] * right[tx][i];
            sum += part;
            __syncthreads();
        }
        if (row >= r || column >= n) return;
        sum += b[column];
        y[row * n + column] = sum < 0 ? W(0) : sum;
    }""",
    launch="grid=ceil_div(r, 16) * ceil_div(n, 16) block=(16, 16)",
    cpu="""
    void linear_relu(const T *x, const T *w, const T *b, T *y, int64_t k, int64_t n, int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; i++) {
            double sum = b[i % n];
            for (int64_t j = 0; j < k; j++) sum += (double)x[i / n * k + j] * w[i % n * k + j];
            y[i] = sum < 0 ? 0 : sum;
        }
    }""",
    grad=linear_relu_grad,
)

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parents[1]))
    import torch

    import tenon.torch as tn
    from lesson import main

    def plain(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.relu(torch.nn.functional.linear(x, w, b))

    def beside(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return tn.bias_act(x @ w.t(), b)

    main(
        [linear_relu],
        plain=plain,
        cases=[((33, 65), (17, 65), (17,)), ((2, 3, 7), (5, 7), (5,)), ((3, 0), (4, 0), (4,)), ((0, 4), (3, 4), (3,))],
        timed=lambda edge: ((edge // 4, edge // 4), (edge // 4, edge // 4), (edge // 4,)),
        beside={"torch @, tn.bias_act": beside, "torch": plain},
    )
