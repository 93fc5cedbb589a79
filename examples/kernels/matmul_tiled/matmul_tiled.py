"""The product of two matrices through tiles in shared memory: each element is read from memory 16 times less often.

pip install torch
PYTHONPATH=python python examples/kernels/matmul_tiled/matmul_tiled.py [--device cuda] [--check] [--bench]
"""

import sys
from pathlib import Path

import tenon

# One text for three products: y = a b, da = dy b', db = a' dy. What differs is how an element is read.
PRODUCT = """
typedef tn::wide<T> W;

// p: (height, depth), q: (depth, width). Blocks of 16 x 16 threads; all of them load, all of them compute.
template <class P, class Q, class Y>
__device__ void product(long long height, long long depth, long long width, P p, Q q, Y y) {
    __shared__ W left[16][16], right[16][16];
    const int tx = threadIdx.x, ty = threadIdx.y;
    long long column = blockIdx.x * 16LL + tx;
    for (long long top = blockIdx.y * 16LL; top < height; top += gridDim.y * 16LL) {
        long long row = top + ty;
        W sum = 0;
        for (long long at = 0; at < depth; at += 16) {
            left[ty][tx] = row < height && at + tx < depth ? p(row, at + tx) : W(0);
            right[ty][tx] = at + ty < depth && column < width ? q(at + ty, column) : W(0);
            __syncthreads();  // both tiles are there
            W part = 0;  // of these tiles: sums of sums lose less than one long sum
            for (int i = 0; i < 16; i++) part += left[ty][i] * right[i][tx];
            sum += part;
            __syncthreads();  // nobody reads them any more
        }
        if (row < height && column < width) y(row, column, sum);
    }
}
"""
CPU = """
#define PRODUCT(height, depth, width, P, Q, Y)                         \\
    for (int64_t row = 0; row < (height); row++)                       \\
        for (int64_t column = 0; column < (width); column++) {         \\
            double sum = 0;                                            \\
            for (int64_t i = 0; i < (depth); i++) sum += (double)(P) * (Q); \\
            Y = sum;                                                   \\
        }
"""

matmul_grad = tenon.kernel(
    "my_matmul_tiled_grad(a: T[m, k], b: T[k, n], dy: T[m, n]) -> da: T[m, k]?, db: T[k, n]?",
    cuda=PRODUCT
    + """
__global__ void to_a(const T *b, const T *dy, T *da, long long m, long long k, long long n) {
    if (!da) return;
    product(m, n, k, [=](long long r, long long c) { return (W)dy[r * n + c]; },
            [=](long long r, long long c) { return (W)b[c * n + r]; },
            [=](long long r, long long c, W sum) { da[r * k + c] = sum; });
}

__global__ void to_b(const T *a, const T *dy, T *db, long long m, long long k, long long n) {
    if (!db) return;
    product(k, m, n, [=](long long r, long long c) { return (W)a[c * k + r]; },
            [=](long long r, long long c) { return (W)dy[r * n + c]; },
            [=](long long r, long long c, W sum) { db[r * n + c] = sum; });
}
""",
    launch="to_a: grid=(ceil_div(k, 16), min(ceil_div(m, 16), 65535)) block=(16, 16);"
    " to_b: grid=(ceil_div(n, 16), min(ceil_div(k, 16), 65535)) block=(16, 16)",
    cpu=CPU
    + """
void matmul_grad(const T *a, const T *b, const T *dy, T *da, T *db, int64_t m, int64_t k, int64_t n) {
    if (da) PRODUCT(m, n, k, dy[row * n + i], b[column * n + i], da[row * k + column])
    if (db) PRODUCT(k, m, n, a[i * k + row], dy[i * n + column], db[row * n + column])
}
""",
)

matmul = tenon.kernel(
    "my_matmul_tiled(a: T[m, k], b: T[k, n]) -> y: T[m, n]",
    cuda=PRODUCT
    + """
__global__ void matmul(const T *a, const T *b, T *y, long long m, long long k, long long n) {
    product(m, k, n, [=](long long r, long long c) { return (W)a[r * k + c]; },
            [=](long long r, long long c) { return (W)b[r * n + c]; },
            [=](long long r, long long c, W sum) { y[r * n + c] = sum; });
}
""",
    launch="tiles(16, 16) loop",
    cpu=CPU
    + """
void matmul(const T *a, const T *b, T *y, int64_t m, int64_t k, int64_t n) {
    PRODUCT(m, k, n, a[row * k + i], b[i * n + column], y[row * n + column])
}
""",
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
