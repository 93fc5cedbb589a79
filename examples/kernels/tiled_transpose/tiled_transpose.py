"""The transpose of matrices: straight from memory to memory, and through a tile in shared memory.

pip install torch
PYTHONPATH=python python examples/kernels/tiled_transpose/tiled_transpose.py [--device cuda] [--check] [--bench]
"""

import sys
from pathlib import Path

import tenon

CPU = """
void transpose(const T *x, T *y, int64_t m, int64_t n, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end;) {
        int64_t matrix = i / (m * n), row = i / m % n, column = i % m;  // of y
        for (; column < m && i < end; column++, i++) y[i] = x[(matrix * m + column) * n + row];
    }
}
"""

naive = tenon.kernel(
    "my_transpose_naive(x: T[*b, m, n]) -> y: T[*b, n, m]",
    cuda="""
    __global__ void transpose(const T *x, T *y, long long m, long long n, long long y_count) {
        long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
        if (i >= y_count) return;
        long long matrix = i / (m * n), row = i / m % n, column = i % m;
        y[i] = x[(matrix * m + column) * n + row];  // threads write side by side, but read n elements apart
    }""",
    launch="elements",
    cpu=CPU,
    grad="x: my_transpose_naive(dy)",
)

tiled = tenon.kernel(
    "my_transpose_tiled(x: T[*b, m, n]) -> y: T[*b, n, m]",
    cuda="""
    // A block has 32 x 8 threads for a tile of 32 x 32 elements: each thread moves four.
    __global__ void transpose(const T *x, T *y, long long b, long long m, long long n) {
        __shared__ T tile[32][33];  // one more than 32, so that a column lies in different banks
        long long left = blockIdx.x * 32LL;
        for (long long matrix = blockIdx.z; matrix < b; matrix += gridDim.z) {
            for (long long top = blockIdx.y * 32LL; top < n; top += gridDim.y * 32LL) {
                long long at = matrix * m * n, column = top + threadIdx.x;
                for (int i = threadIdx.y; i < 32; i += 8) {
                    if (left + i < m && column < n) tile[i][threadIdx.x] = x[at + (left + i) * n + column];
                }
                __syncthreads();
                column = left + threadIdx.x;
                for (int i = threadIdx.y; i < 32; i += 8) {
                    if (top + i < n && column < m) y[at + (top + i) * m + column] = tile[threadIdx.x][i];
                }
                __syncthreads();  // the next tile takes the same memory
            }
        }
    }""",
    launch="tiles(32, 32) block=(32, 8) loop",
    cpu=CPU,
    grad="x: my_transpose_tiled(dy)",
)

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parents[1]))
    from lesson import main

    main(
        [naive, tiled],
        plain=lambda x: x.mT,
        cases=[((33, 65),), ((2, 3, 5, 7),), ((3, 0),), ((0, 4, 3),), ((2, 64, 32),)],
        timed=lambda edge: ((edge, edge),),
        beside={"torch": lambda x: x.mT.contiguous()},
    )
