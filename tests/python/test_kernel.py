"""Kernels as text in PyTorch: gradients, compilers, graphs, other definitions of the same name, files."""

from __future__ import annotations

import hashlib
import os
import pathlib
import subprocess
import sys
from functools import cache

import here
import numpy as np
import pytest
import torch
from kernels import CPU, CUDA, SIGNATURE, triple

import tenon
import tenon.torch as tn

GPU = here.DEVICE != "cpu"


@cache
def row_sum() -> tenon.Kernel:
    return tenon.kernel(
        "rowsum(x: T[*r, c]) -> y: T[*r]",
        cuda="""
        #include <tenon/device.cuh>
        __global__ void rowsum(const T *x, T *y, long long c) {
            __shared__ tn::acc<T> shared[32];
            tn::acc<T> sum = 0;
            for (long long i = threadIdx.x; i < c; i += blockDim.x) sum += tn::widen(x[blockIdx.x * c + i]);
            sum = tn::block_sum(sum, shared);
            if (threadIdx.x == 0) tn::narrow(sum, y[blockIdx.x]);
        }""",
        launch="rows block=128",
        formula="y = sum(x, -1)",
    )


def made(*shape: int, dtype: torch.dtype = torch.float32, grad: bool = False) -> torch.Tensor:
    return torch.randn(shape, device=here.DEVICE).to(dtype).requires_grad_(grad)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_types_and_shapes(dtype: torch.dtype) -> None:
    kernel = triple()
    for shape in ((), (0,), (5,), (3, 0, 2), (33, 257), (2, 3, 4, 5)):
        x = made(*shape, dtype=dtype)
        torch.testing.assert_close(
            kernel(x, 0.5), (3 * x.float() + 0.5).to(dtype) if dtype.itemsize < 4 else 3 * x + 0.5
        )
        rows = made(*shape, 9, dtype=dtype)
        torch.testing.assert_close(row_sum()(rows), rows.sum(-1), rtol=0.02 if dtype.itemsize < 4 else 1e-5, atol=0.02)


def test_gradient_and_compile() -> None:
    kernel = triple()
    x = made(3, 4, grad=True)
    (dx,) = torch.autograd.grad(kernel(x, c=1.0).sum(), x)
    assert torch.equal(dx, torch.full_like(x, 3))
    for function in (kernel, tn.triple):
        compiled = torch.compile(lambda t, f=function: f(t, 2.0).relu(), fullgraph=True, backend="aot_eager")
        assert torch.equal(compiled(x), kernel(x, 2.0).relu())
        assert torch.equal(torch.autograd.grad(compiled(x).sum(), x)[0], 3.0 * (kernel(x, 2.0) > 0))
    torch.library.opcheck(torch.ops.tenon.triple.default, (x, 1.0))


def test_another_text() -> None:
    """A cell of a notebook that runs again with a kernel that was changed."""
    first = tenon.kernel("again(x: T[n]) -> y: T[n]", formula="x + 1")
    assert tenon.kernel("again(x: T[n]) -> y: T[n]", formula="x + 1").name == "again"
    second = tenon.kernel("again(x: T[n], k: float = 2.0) -> y: T[n]", formula="x + k")
    x = made(3)
    assert torch.equal(first(x), x + 1) and torch.equal(second(x), x + 2)
    assert torch.equal(tn.again(x, k=4.0), x + 4) and second.name == "again_2"
    third = tenon.kernel("again(x: T[n]) -> y: T[n]", formula="x + 1")
    assert third.name == "again" and torch.equal(tn.again(x), x + 1)


def test_a_kernel_as_gradient() -> None:
    back = tenon.kernel(
        "leaky_back(x: T[n], dy: T[n], slope: float) -> dx: T[n]",
        cpu="void f(const T *x, const T *dy, float slope, T *dx, long n) {"
        "for (long i = 0; i < n; i++) dx[i] = x[i] > 0 ? dy[i] : slope * dy[i]; }",
        cuda="__global__ void f(const T *x, const T *dy, float slope, T *dx, long long n) {"
        "long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;"
        "if (i < n) dx[i] = x[i] > (T)0.0f ? dy[i] : (T)(slope * (float)dy[i]); }",
    )
    leaky = tenon.kernel(
        "leaky(x: T[n], slope: float = 0.1) -> y: T[n]", cpu="x if x > 0 else slope * x", grad=back, samples=["n=5"]
    )
    x = made(9, dtype=torch.float64, grad=True)
    assert torch.autograd.gradcheck(lambda t: leaky(t, slope=0.3), (x,))


def test_broadcast_inputs_in_a_gradient() -> None:
    weighted = tenon.kernel(
        "weighted(x: T[~*s], w: T[~*s]) -> y: T[*s]", cpu="x * w", grad="dx = sum_to(dy * w, x); dw = sum_to(dy * x, w)"
    )
    x, w = made(4, 3, dtype=torch.float64, grad=True), made(3, dtype=torch.float64, grad=True)
    assert torch.autograd.gradcheck(weighted, (x, w))


@pytest.mark.skipif(not GPU, reason="no GPU")
def test_cuda_alone() -> None:
    alone = tenon.kernel(
        "alone(x: f32[n]) -> y: f32[n]",
        cuda=CUDA.replace("triple", "alone").replace(", float c", "").replace(" + c", "").replace("x_count", "n"),
    )
    x = made(5)
    assert torch.equal(alone(x), 3 * x)
    with pytest.raises(RuntimeError, match="no kernel"):
        alone(x.cpu())
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = alone(x)
    x.fill_(2)
    graph.replay()
    assert torch.equal(y, torch.full_like(x, 6))


@pytest.mark.skipif(not GPU, reason="no GPU")
def test_an_index_out_of_range() -> None:
    """TENON_CHECK_INDEX names the first one."""
    code = """
import torch, tenon
text = '''
template <class E> __global__ void past(const E *x, E *__restrict__ y, int n, int at) {
    const E *p = x + at;
    y[threadIdx.x] = *p++ + p[-1];
}'''
past = tenon.kernel("past(x: T[n], at: int) -> y: T[n]", cuda=text, launch="grid=2 block=n")
x = torch.ones(8, device="cuda", dtype=torch.float16)
assert (past(x, 7) == 2).all()
try:
    past(x, 8)
except ValueError as error:
    assert "past: kernel past: x[8] is out of range: x has 8 elements (block (" in str(error), error
    assert (past(x, 0) == 2).all()
    print("named")
"""
    environment = {**os.environ, "TENON_CHECK_INDEX": "1"}
    done = subprocess.run([sys.executable, "-c", code], check=True, timeout=120, env=environment, capture_output=True)
    assert done.stdout == b"named\n"


@pytest.mark.skipif(not GPU, reason="no GPU")
def test_tuned(tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]) -> None:
    """tenon tune writes a table that kernels go by, and tenon bench says what a kernel takes."""
    text = """
    TN_TUNE(BLOCK, 64, 256)
    __global__ void tuned(const T *x, T *y, long long n) {
        long long i = blockIdx.x * (long long)BLOCK + threadIdx.x;
        if (i < n) y[i] = x[i];
    }
    """
    kernel = tenon.kernel("tuned(x: T[n]) -> y: T[n]", cuda=text, launch="elements block=BLOCK", formula="x")
    kernel.tune("--dtype", "f32", "--seconds", "2", "-o", str(tmp_path / "tuned.tune"))
    lines = (tmp_path / "tuned.tune").read_text().splitlines()
    assert lines[0].startswith("# tuned, tuned on") and all(": BLOCK=" in line for line in lines[1:]) and len(lines) > 2
    kernel.bench("--device", "cuda", "--ms", "20")
    said = capfd.readouterr().out
    assert "registers" in said and "an SM holds" in said and "times as fast in the mean" in said
    table = "/* TN_TUNED\nsm_90 f32 rows=1 columns=9: BLOCK=64\n*/"
    again = tenon.kernel("tuned(x: T[n]) -> y: T[n]", cuda=text + table, launch="elements block=BLOCK", formula="x")
    x = made(1000)
    assert torch.equal(again(x), x)


def test_words_of_python_as_names() -> None:
    named = tenon.kernel("named(in: T[n], is: float = 2.0) -> out: T[n]", formula="out = in * is")
    x = made(5, grad=True)
    assert torch.equal(named(x), 2 * x) and torch.equal(tn.named(in_=x, is_=3.0), 3 * x)
    compiled = torch.compile(tn.named, fullgraph=True, backend="aot_eager")
    assert torch.equal(torch.autograd.grad(compiled(x, is_=4.0).sum(), x)[0], torch.full_like(x, 4))


def test_files(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "triple.tenon"
    triple().save(path)
    code = f"""
import numpy as np, tenon, tenon.numpy as tn
tenon.load({str(path)!r})
assert (tn.triple(np.ones(3, np.float32), 1.0) == 4).all()
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_files_by_name_and_hash(tmp_path: pathlib.Path) -> None:
    """TENON_PLUGINS and a pinned hash take a text as they take a shared object."""
    path = tmp_path / "triple.tenon"
    triple().save(path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    code = f"""
import tenon
for sha256 in ("0" * 64, {digest!r}):
    try:
        tenon.load({str(path)!r}, sha256=sha256)
        print("loaded")
    except RuntimeError as error:
        print("the file has changed" in str(error))
print("triple" in tenon.ops())
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert ran.stdout == "True\nloaded\nTrue\n", ran.stderr
    env = {**os.environ, "TENON_PLUGINS": str(path)}
    named = [sys.executable, "-c", "import tenon; print('triple' in tenon.ops())"]
    ran = subprocess.run(named, capture_output=True, text=True, timeout=120, env=env)
    assert (ran.stdout, ran.stderr) == ("True\n", "")


def test_errors() -> None:
    with pytest.raises(ValueError, match="nothing is called 'in'; there are x, y, c, s"):
        tenon.kernel(SIGNATURE, cuda="__global__ void k(const float *in, float *y) {}")
    with pytest.raises(ValueError, match="launch: 'm' is none of"):
        tenon.kernel(SIGNATURE, cuda=CUDA, launch="grid=m")
    with pytest.raises(ValueError, match="cpu is a formula"):
        tenon.kernel(SIGNATURE, cpu="x", formula="x")
    with pytest.raises(ValueError, match="outputs are called d<input>"):
        tenon.kernel("q(x: T[n]) -> y: T[n]", formula="x", grad=triple())
    with pytest.raises(TypeError, match="no tensor of PyTorch"):
        triple()(1.0, 2.0)
    broken = tenon.kernel("broken(x: T[n]) -> y: T[n]", cpu="void broken(const T *x, T *y) {\n  y[0] = none;\n}")
    with pytest.raises(ValueError, match=r"broken:2:\d+: error"):
        broken(torch.ones(3))


def test_the_kernel_takes_what_is_there() -> None:
    assert (triple()(np.ones(3, np.float16), 1.0) == 4).all()
    assert CPU in triple().text() and "triple(x: T[*s]" in repr(triple())
