"""The product of two matrices: a thread for each element of the result, as it is defined.

    pip install torch
    PYTHONPATH=python python examples/kernels/matmul_naive/matmul_naive.py [--device cuda] [--check] [--bench]
"""

import sys
from pathlib import Path

import tenon

# da = dy times b transposed, db = a transposed times dy: a kernel each, in one text.
matmul_grad = tenon.kernel(
    "my_matmul_naive_grad(a: T[m, k], b: T[k, n], dy: T[m, n]) -> da: T[m, k]?, db: T[k, n]?",
    cuda="""
    __global__ void to_a(const T *b, const T *dy, T *da, long long m, long long k, long long n) {
        long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
        if (!da || i >= m * k) return;
        tn::wide<T> sum = 0;
        for (long long j = 0; j < n; j++) sum += (tn::wide<T>)dy[i / k * n + j] * b[i % k * n + j];
        da[i] = sum;
    }

    __global__ void to_b(const T *a, const T *dy, T *db, long long m, long long k, long long n) {
        long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
        if (!db || i >= k * n) return;
        tn::wide<T> sum = 0;
        for (long long j = 0; j < m; j++) sum += (tn::wide<T>)a[j * k + i / n] * dy[j * n + i % n];
        db[i] = sum;
    }""",
    launch="to_a: grid=ceil_div(m * k, 256) block=256; to_b: grid=ceil_div(k * n, 256) block=256",
    cpu="""
    void matmul_grad(const T *a, const T *b, const T *dy, T *da, T *db, int64_t m, int64_t k, int64_t n) {
        for (int64_t i = 0; da && i < m * k; i++) {
            T sum = 0;
            for (int64_t j = 0; j < n; j++) sum += dy[i / k * n + j] * b[i % k * n + j];
            da[i] = sum;
        }
        for (int64_t i = 0; db && i < k * n; i++) {
            T sum = 0;
            for (int64_t j = 0; j < m; j++) sum += a[j * k + i / n] * dy[j * n + i % n];
            db[i] = sum;
        }
    }""",
)

matmul = tenon.kernel(
    "my_matmul_naive(a: T[m, k], b: T[k, n]) -> y: T[m, n]",
    cuda="""
    __global__ void matmul(const T *a, const T *b, T *y, long long m, long long k, long long n) {
        long long column = blockIdx.x * 16LL + threadIdx.x;
        if (column >= n) return;
        for (long long row = blockIdx.y * 16LL + threadIdx.y; row < m; row += gridDim.y * 16LL) {
            tn::wide<T> sum = 0;
            for (long long i = 0; i < k; i++) sum += (tn::wide<T>)a[row * k + i] * b[i * n + column];
            y[row * n + column] = sum;
        }
    }""",
    launch="tiles(16, 16) loop",
    cpu="""
    void matmul(const T *a, const T *b, T *y, int64_t k, int64_t n, int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; i++) {
            T sum = 0;
            for (int64_t j = 0; j < k; j++) sum += a[i / n * k + j] * b[j * n + i % n];
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
