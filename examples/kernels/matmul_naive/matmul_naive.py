"""The product of two matrices: a thread for each element of the result, as it is defined.

pip install torch
PYTHONPATH=python python examples/kernels/matmul_naive/matmul_naive.py [--device cuda] [--check] [--bench]
"""

import sys
from pathlib import Path

import tenon

SUM = """
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
"""

# da = dy times b transposed, db = a transposed times dy: a kernel each, in one text.
matmul_grad = tenon.kernel(
    "my_matmul_naive_grad(a: T[m, k], b: T[k, n], dy: T[m, n]) -> da: T[m, k]?, db: T[k, n]?",
    cuda=SUM
    + """
    __global__ void to_a(const T *b, const T *dy, T *da, long long m, long long k, long long n) {
        long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
        if (!da || i >= m * k) return;
        da[i] = sum_of(n, [=](long long j) { return (W)dy[i / k * n + j] * (W)b[i % k * n + j]; });
    }

    __global__ void to_b(const T *a, const T *dy, T *db, long long m, long long k, long long n) {
        long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
        if (!db || i >= k * n) return;
        db[i] = sum_of(m, [=](long long j) { return (W)a[j * k + i / n] * (W)dy[j * n + i % n]; });
    }""",
    launch="to_a: grid=ceil_div(m * k, 256) block=256; to_b: grid=ceil_div(k * n, 256) block=256",
    cpu="""
    void matmul_grad(const T *a, const T *b, const T *dy, T *da, T *db, int64_t m, int64_t k, int64_t n) {
        for (int64_t i = 0; da && i < m * k; i++) {
            double sum = 0;
            for (int64_t j = 0; j < n; j++) sum += (double)dy[i / k * n + j] * b[i % k * n + j];
            da[i] = sum;
        }
        for (int64_t i = 0; db && i < k * n; i++) {
            double sum = 0;
            for (int64_t j = 0; j < m; j++) sum += (double)a[j * k + i / n] * dy[j * n + i % n];
            db[i] = sum;
        }
    }""",
)

matmul = tenon.kernel(
    "my_matmul_naive(a: T[m, k], b: T[k, n]) -> y: T[m, n]",
    cuda=SUM
    + """
    __global__ void matmul(const T *a, const T *b, T *y, long long m, long long k, long long n) {
        long long column = blockIdx.x * 16LL + threadIdx.x;
        if (column >= n) return;
        for (long long row = blockIdx.y * 16LL + threadIdx.y; row < m; row += gridDim.y * 16LL) {
            y[row * n + column] = sum_of(k, [=](long long i) { return (W)a[row * k + i] * (W)b[i * n + column]; });
        }
    }""",
    launch="tiles(16, 16) loop",
    cpu="""
    void matmul(const T *a, const T *b, T *y, int64_t k, int64_t n, int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; i++) {
            double sum = 0;
            for (int64_t j = 0; j < k; j++) sum += (double)a[i / n * k + j] * b[j * n + i % n];
            y[i] = sum;
        }
    }""",
    grad=matmul_grad,
)

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parents[1]))
    import torch

    from lesson import main

    main(
        [matmul],
        plain=torch.matmul,
        cases=[((33, 65), (65, 17)), ((1, 7), (7, 1)), ((3, 0), (0, 4)), ((0, 4), (4, 3)), ((64, 32), (32, 48))],
        timed=lambda edge: ((edge // 4, edge // 4), (edge // 4, edge // 4)),
        beside={"torch": torch.matmul},
    )
