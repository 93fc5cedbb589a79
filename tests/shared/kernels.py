"""A kernel as text that the tests of all frameworks define, each in its own process."""

from __future__ import annotations

import tenon

CUDA = """
template <class T> __global__ void triple(const T *x, float c, T *y, long long x_count) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < x_count) y[i] = (T)(3 * (float)x[i] + c);
}
"""
CPU = """
void triple(const T *x, float c, T *y, long begin, long end) {
    for (long i = begin; i < end; i++) y[i] = 3 * x[i] + c;
}
"""
SIGNATURE = "triple(x: T[*s], c: float = 0) -> y: T[*s]"


def triple() -> tenon.Kernel:
    """3 x + c; its gradient is a formula."""
    return tenon.kernel(SIGNATURE, cuda=CUDA, cpu=CPU, grad="dx = 3 * dy")
