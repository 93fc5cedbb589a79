"""2-D convolution with its filter in constant memory, which Tenon fills from the input of that name.

pip install torch
PYTHONPATH=python python examples/kernels/conv2d/conv2d.py [--device cuda] [--check] [--bench]
"""

import sys
from pathlib import Path

import tenon

# y[i, j] is the sum of x[i + p, j + q] * filter[p, q], for one image after the other, as in torch.nn.functional.conv2d.
IMAGES = "x: T[*n, h, w], filter: T[a, b]"
CONDITIONS = "where a >= 1, b >= 1, a * b <= 1024, h >= a, w >= b"

conv2d_grad = tenon.kernel(
    f"my_conv2d_grad({IMAGES}, dy: T[*n, h - a + 1, w - b + 1]) -> dx: T[*n, h, w]?, dfilter: T[a, b]? {CONDITIONS}",
    cuda="""
    typedef tn::wide<T> W;
    __constant__ T filter[1024];

    // What an element of x has gone into: a thread gathers it, so nobody adds to the same place.
    __global__ void to_x(const T *dy, T *dx, long long n, long long h, long long w, int a, int b) {
        long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
        if (!dx || i >= n * h * w) return;
        long long image = i / (h * w), row = i / w % h, column = i % w, height = h - a + 1, width = w - b + 1;
        W sum = 0;
        for (int p = 0; p < a; p++) {
            for (int q = 0; q < b; q++) {
                long long r = row - p, c = column - q;
                bool inside = r >= 0 && r < height && c >= 0 && c < width;
                if (inside) sum += (W)dy[(image * height + r) * width + c] * (W)filter[p * b + q];
            }
        }
        dx[i] = sum;
    }

    // A block for each element of the filter: a sum over all images.
    __global__ void to_filter(const T *x, const T *dy, T *dfilter, long long n, long long h, long long w, int a,
                              int b) {
        __shared__ W shared[32];
        if (!dfilter) return;
        int p = blockIdx.x / b, q = blockIdx.x % b;
        long long height = h - a + 1, width = w - b + 1;
        W sum = 0;
        for (long long i = threadIdx.x; i < n * height * width; i += blockDim.x) {
            long long image = i / (height * width), row = i / width % height, column = i % width;
            sum += (W)x[(image * h + row + p) * w + column + q] * (W)dy[i];
        }
        sum = tn::block_sum(sum, shared);
        if (threadIdx.x == 0) dfilter[blockIdx.x] = sum;
    }""",
    launch="to_x: grid=ceil_div(x_count, 256) block=256; to_filter: grid=a * b block=256",
    cpu="""
    void conv2d_grad(const T *x, const T *filter, const T *dy, T *dx, T *dfilter, int64_t n, int64_t h, int64_t w,
                     int64_t a, int64_t b) {
        int64_t height = h - a + 1, width = w - b + 1;
        if (dx) memset(dx, 0, n * h * w * sizeof(T));
        for (int64_t p = 0; p < a; p++) {
            for (int64_t q = 0; q < b; q++) {
                double sum = 0;
                for (int64_t i = 0; i < n * height * width; i++) {
                    int64_t at = (i / (height * width) * h + i / width % height + p) * w + i % width + q;
                    if (dx) dx[at] += dy[i] * filter[p * b + q];
                    sum += (double)x[at] * dy[i];
                }
                if (dfilter) dfilter[p * b + q] = sum;
            }
        }
    }""",
    samples=[
        "n=[] h=5 w=6 a=1 b=1 want_dx=true want_dfilter=true",
        "n=[3] h=17 w=33 a=3 b=5 want_dx=true want_dfilter=true",
        "n=[2] h=9 w=8 a=4 b=2 want_dfilter=true",
        "n=[0] h=4 w=4 a=3 b=3 want_dx=true want_dfilter=true",
        "bench: n=[8] h=256 w=256 a=5 b=5 want_dx=true want_dfilter=true",
    ],
)

conv2d = tenon.kernel(
    f"my_conv2d({IMAGES}) -> y: T[*n, h - a + 1, w - b + 1] {CONDITIONS}",
    cuda="""
    typedef tn::wide<T> W;
    __constant__ T filter[1024];  // the input `filter` is copied here before the kernel starts

    __global__ void conv2d(const T *x, T *y, long long y_count, long long h, long long w, int a, int b) {
        long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
        if (i >= y_count) return;
        long long height = h - a + 1, width = w - b + 1;
        const T *from = x + (i / (height * width) * h + i / width % height) * w + i % width;
        W sum = 0;
        for (int p = 0; p < a; p++) {
            for (int q = 0; q < b; q++) sum += (W)from[p * w + q] * (W)filter[p * b + q];
        }
        y[i] = sum;
    }""",
    launch="elements",
    cpu="""
    void conv2d(const T *x, const T *filter, T *y, int64_t h, int64_t w, int64_t a, int64_t b, int64_t begin,
                int64_t end) {
        int64_t height = h - a + 1, width = w - b + 1;
        for (int64_t i = begin; i < end; i++) {
            const T *from = x + (i / (height * width) * h + i / width % height) * w + i % width;
            T sum = 0;
            for (int64_t p = 0; p < a; p++) {
                for (int64_t q = 0; q < b; q++) sum += from[p * w + q] * filter[p * b + q];
            }
            y[i] = sum;
        }
    }""",
    grad=conv2d_grad,
    samples=[
        "n=[] h=5 w=6 a=1 b=1",
        "n=[3] h=17 w=33 a=3 b=5",
        "n=[2, 2] h=9 w=8 a=4 b=2",
        "n=[0] h=4 w=4 a=3 b=3",
        "bench: n=[8] h=1024 w=1024 a=5 b=5",
    ],
)

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parents[1]))
    import torch

    from lesson import main

    def plain(x: torch.Tensor, filter: torch.Tensor) -> torch.Tensor:
        images = x.reshape(-1, 1, *x.shape[-2:])
        y = torch.nn.functional.conv2d(images, filter[None, None])
        return y.reshape(*x.shape[:-2], *y.shape[-2:])

    main(
        [conv2d],
        plain=plain,
        cases=[((3, 17, 33), (3, 5)), ((9, 8), (4, 2)), ((2, 2, 5, 5), (5, 5)), ((0, 4, 4), (3, 3))],
        timed=lambda edge: ((4, edge, edge), (5, 5)),
        beside={"torch": plain},
    )
