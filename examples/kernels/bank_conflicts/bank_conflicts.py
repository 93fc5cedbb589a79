"""The same transpose through shared memory twice: without and with one column of padding.

pip install torch
PYTHONPATH=python python examples/kernels/bank_conflicts/bank_conflicts.py [--device cuda] [--check] [--bench]
"""

import sys
from pathlib import Path

import tenon

CUDA = """
// A block of 32 x 32 threads takes one tile. It reads rows of x and writes rows of y, so that both are coalesced; what
// it reads down a column is the tile in shared memory.
__global__ void transpose(const T *x, T *y, long long m, long long n) {
    __shared__ T tile[32][32 + PADDING];
    for (long long top = blockIdx.y * 32LL; top < n; top += gridDim.y * 32LL) {
        long long left = blockIdx.x * 32LL, row = left + threadIdx.y, column = top + threadIdx.x;
        if (row < m && column < n) tile[threadIdx.y][threadIdx.x] = x[row * n + column];
        __syncthreads();
        row = top + threadIdx.y, column = left + threadIdx.x;
        if (row < n && column < m) y[row * m + column] = tile[threadIdx.x][threadIdx.y];
        __syncthreads();
    }
}
"""
CPU = """
void transpose(const T *x, T *y, int64_t m, int64_t n, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end;) {
        for (int64_t row = i / m, column = i % m; column < m && i < end; column++, i++) y[i] = x[column * n + row];
    }
}
"""


def transpose(name: str, padding: int) -> tenon.Kernel:
    return tenon.kernel(
        f"{name}(x: T[m, n]) -> y: T[n, m]",
        cuda=CUDA,
        launch="tiles(32, 32) loop",
        options=[f"-DPADDING={padding}"],
        cpu=CPU,
        grad=f"x: {name}(dy)",
    )


with_conflicts = transpose("my_transpose_with_conflicts", padding=0)
without_conflicts = transpose("my_transpose_without_conflicts", padding=1)

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parents[1]))
    from lesson import main

    main(
        [with_conflicts, without_conflicts],
        plain=lambda x: x.t(),
        cases=[((33, 65),), ((1, 7),), ((3, 0),), ((0, 3),), ((64, 32),)],
        timed=lambda edge: ((edge, edge),),
        beside={"torch": lambda x: x.t().contiguous()},
    )
