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

    // dx = g w, where g = dy if y > 0
    __global__ void to_x(const T *w, const T *y, const T *dy, T *dx, long long r, long long k, long long n) {
        long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
        if (!dx || i >= r * k) return;
        W sum = 0;
        for (long long j = 0; j < n; j++) {
            long long at = i / k * n + j;
            if ((W)y[at] > 0) sum += (W)dy[at] * (W)w[j * k + i % k];
        }
        dx[i] = sum;
    }

    // dw = g' x
    __global__ void to_w(const T *x, const T *y, const T *dy, T *dw, long long r, long long k, long long n) {
        long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
        if (!dw || i >= n * k) return;
        W sum = 0;
        for (long long j = 0; j < r; j++) {
            long long at = j * n + i / k;
            if ((W)y[at] > 0) sum += (W)dy[at] * (W)x[j * k + i % k];
        }
        dw[i] = sum;
    }

    // db = the sum of g over the rows
    __global__ void to_b(const T *y, const T *dy, T *db, long long r, long long n) {
        long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
        if (!db || i >= n) return;
        W sum = 0;
        for (long long j = 0; j < r; j++) sum += (W)y[j * n + i] > 0 ? (W)dy[j * n + i] : W(0);
        db[i] = sum;
    }""",
    launch="to_x: grid=ceil_div(r * k, 256); to_w: grid=ceil_div(n * k, 256); to_b: grid=ceil_div(n, 256)",
    cpu="""
    void linear_relu_grad(const T *x, const T *w, const T *y, const T *dy, T *dx, T *dw, T *db, int64_t r, int64_t k,
                          int64_t n) {
        if (dx) memset(dx, 0, r * k * sizeof(T));
        if (dw) memset(dw, 0, n * k * sizeof(T));
        if (db) memset(db, 0, n * sizeof(T));
        for (int64_t row = 0; row < r; row++) {
            for (int64_t j = 0; j < n; j++) {
                T g = y[row * n + j] > 0 ? dy[row * n + j] : 0;
                if (g == 0) continue;
                for (int64_t i = 0; dx && i < k; i++) dx[row * k + i] += g * w[j * k + i];
                for (int64_t i = 0; dw && i < k; i++) dw[j * k + i] += g * x[row * k + i];
                if (db) db[j] += g;
            }
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
            for (int i = 0; i < 16; i++) sum += left[ty][i] * right[tx][i];
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
            T sum = b[i % n];
            for (int64_t j = 0; j < k; j++) sum += x[i / n * k + j] * w[i % n * k + j];
            y[i] = sum < 0 ? 0 : sum;
        }
    }""",
    grad=linear_relu_grad,
)

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parents[1]))
    import torch
    from lesson import main

    import tenon.torch as tn

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
