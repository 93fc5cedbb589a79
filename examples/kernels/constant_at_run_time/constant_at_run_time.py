"""Numbers that change with every call, without compiling anything anew: as an attribute, and as a tensor.

pip install torch
PYTHONPATH=python python examples/kernels/constant_at_run_time/constant_at_run_time.py [--device cuda]
    [--check] [--bench]
"""

import sys
import time
from pathlib import Path

import tenon

# An attribute is passed to the kernel like any argument. The program of a JAX function or a CUDA graph keeps its value.
scale_by_number = tenon.kernel(
    "my_scale_by_number(x: T[*s], c: float) -> y: T[*s]",
    cuda="""
    __global__ void scale(const T *x, double c, T *y, long long x_count) {
        long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
        if (i < x_count) y[i] = (tn::wide<T>)x[i] * (tn::wide<T>)c;
    }""",
    launch="elements",
    cpu="""
    void scale(const T *x, double c, T *y, int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; i++) y[i] = x[i] * (T)c;
    }""",
    grad="dx = dy * c",
)

# A tensor without dimensions is read when the kernel runs: a graph that is replayed sees the new value, and the number
# may come from another kernel.
scale_by_tensor = tenon.kernel(
    "my_scale_by_tensor(x: T[*s], c: T[]) -> y: T[*s]",
    cuda="""
    __global__ void scale(const T *x, const T *c, T *y, long long x_count) {
        long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
        if (i < x_count) y[i] = (tn::wide<T>)x[i] * (tn::wide<T>)*c;
    }""",
    launch="elements",
    formula="x * c",
)

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parents[1]))
    import torch

    import tenon.torch as tn
    from lesson import main

    device = main(
        [scale_by_number],
        plain=lambda x, c: x * c,
        cases=[((33, 65), 2.5), ((), -1.0), ((3, 0), 1.0), ((1025,), 0.1)],
        timed=lambda edge: ((edge, edge), 2.5),
        beside={"my_scale_by_tensor": lambda x, c: scale_by_tensor(x, torch.full((), c, dtype=x.dtype).to(x.device))}
        | {"tn.scale": tn.scale, "torch": lambda x, c: x * c},
    )

    x = torch.ones(1000, device=device)
    begin = time.perf_counter()
    for i in range(1000):
        y = scale_by_number(x, i / 1000)
    taken = time.perf_counter() - begin
    assert torch.equal(y, x * 0.999)
    print(f"\n1000 calls with 1000 numbers: {taken * 1e3:.1f} ms")
    assert taken < 10, "a compiler would take longer for a single one"

    c = torch.full((), 3.0, device=device, requires_grad=True)
    scale_by_tensor(x, c).sum().backward()
    assert c.grad is not None and float(c.grad) == 1000
    c = c.detach()
    run = lambda: scale_by_tensor(x, c)  # noqa: E731
    if device == "cuda":
        run()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = scale_by_tensor(x, c)
        run = lambda: (graph.replay(), y)[1]  # noqa: E731
    for value in (2.0, 5.0):
        c.fill_(value)
        assert torch.equal(run(), x * value)
    print("the tensor's new value is seen" + (" by a CUDA graph" if device == "cuda" else ""))
