"""What only a GPU has: streams, graphs, several devices, asynchronous errors. All of it is skipped without one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from cases import Case, assert_close, clone, one_each, tensors

import tenon.torch as tn

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


def moved(values: Any, device: str) -> Any:
    if isinstance(values, torch.Tensor):
        return values.detach().to(device).requires_grad_(values.requires_grad)
    return [moved(v, device) for v in values] if isinstance(values, list) else values


def on_gpu(values: Any) -> Any:
    return moved(values, "cuda")


@pytest.mark.parametrize("case", one_each(), ids=str)
def test_same_as_the_cpu(case: Case) -> None:
    args = case.make("f32")
    here, there = clone(moved(args, "cpu")), on_gpu(args)
    want, have = case.call(here), case.call(there)
    assert all(t.is_cuda for t in tensors(have))
    assert_close([t.cpu() for t in tensors(have)], want)
    assert_close([t.cpu() for t in tensors(there)], here)  # what is updated in place


@pytest.mark.parametrize("case", one_each(), ids=str)
def test_side_stream(case: Case) -> None:
    """The operator waits for what its stream is busy with, and for nothing else."""
    args = on_gpu(case.make("f32"))
    mine, late = clone(args), clone(args)
    want = case.call(mine)
    for t in tensors(late):
        t.detach().zero_()
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        for to, source in zip(tensors(late), tensors(args), strict=True):
            to.detach().copy_(source, non_blocking=True)
        have = case.call(late)
    stream.synchronize()
    assert_close([have, late], [want, mine])


@pytest.mark.parametrize("case", one_each(), ids=str)
def test_graph(case: Case) -> None:
    """Captured once, replayed on new data."""
    args, fresh = on_gpu(case.make("f32")), on_gpu(case.make("f32"))
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        case.call(clone(args))
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        have = case.call(args)
    for to, source in zip(tensors(args), tensors(fresh), strict=True):
        to.detach().copy_(source)
    mine = clone(args)
    want = case.call(mine)
    graph.replay()
    torch.cuda.synchronize()
    assert_close([have, args], [want, mine])


FIRST = """
import torch, tenon.torch as tn
x = torch.randn(64, 512, device="cuda")
p, m, lr = torch.zeros_like(x), torch.zeros_like(x), torch.tensor(0.1, device="cuda")
first = {
    "a formula": lambda: tn.fuse("silu(x) * 0.25 + sin(x)")(x),
    "columns, made dense": lambda: tn.layer_norm(x.t()),
    "much shared memory": lambda: tn.softmax(x.expand(8, 64, 512).reshape(8, -1)),
    "partial sums": lambda: tn.sum(x, [0]),
    "a list": lambda: tn.sgd_step_list([p], [x], [m], lr),
}
for name, call in first.items():
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="MODE"):
        made = call()
    x.normal_()
    graph.replay()
    want = call()
    assert made is None or torch.equal(made, want), name
"""


@pytest.mark.parametrize("mode", ["global", "thread_local"])
def test_first_use_in_a_graph(mode: str) -> None:
    """Code is loaded while the graph is captured."""
    code = FIRST.replace("MODE", mode)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


def test_training_step_in_a_graph() -> None:
    x = torch.randn(64, 512, device="cuda", requires_grad=True)
    target = torch.randint(512, (64,), device="cuda")
    static = x.detach().clone().requires_grad_()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            tn.cross_entropy(tn.layer_norm(static), target).backward()
            static.grad = None
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = tn.cross_entropy(tn.layer_norm(static), target)
        loss.backward()
    with torch.no_grad():
        static.copy_(x)
    graph.replay()
    want = tn.cross_entropy(tn.layer_norm(x), target)
    want.backward()
    assert_close([loss, static.grad], [want, x.grad])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_cross_entropy_needs_no_second_gradient(dtype: torch.dtype) -> None:
    """Loss and gradient in one pass: a step needs the memory of one gradient beside the logits, not of two."""
    x = torch.randn(512, 50257, device="cuda", dtype=dtype, requires_grad=True)
    target = torch.randint(50257, (512,), device="cuda")
    tn.cross_entropy(x, target).backward()
    x.grad = None
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    tn.cross_entropy(x, target).backward()
    assert torch.cuda.max_memory_allocated() - before < 1.1 * x.nbytes


def test_target_out_of_range_is_nan() -> None:
    """An index that is out of range makes its row NaN, and ruins nothing else."""
    x = torch.randn(4, 10, device="cuda", requires_grad=True)
    target = torch.tensor([1, 10, -3, 2], device="cuda")
    loss = tn.cross_entropy(x, target, reduction="none")
    loss.sum().backward()
    assert loss.isnan().tolist() == [False, True, True, False]
    assert x.grad is not None and x.grad.isnan().all(-1).tolist() == [False, True, True, False]


# ---- shapes at which another kernel takes over, and as many rows as keep all of them busy, against float64 -----------

Shape = tuple[int, ...]
TYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
LENGTHS = [3, 33, 511, 513, 1000, 1024, 1031, 4096, 4097, 8192, 16384, 20011, 50257, 65537, 131075, 300000]
ROWS = [(rows, n) for n in LENGTHS for rows in (1, 7)] + [(3000, 8192), (6000, 1024), (2500, 2560), (700, 5003)]
ROWS += [(9000, 264), (3000, 1288), (1500, 12288)]
COLUMNS = [(1000, 5), (1025, 3), (4097, 3), (4097, 333), (5, 2500, 33), (8191, 40), (9000, 3), (70000, 70), (33, 5001)]
CHANNELS = [(8, 64, 7, 7), (16, 2048, 7, 7), (32, 256, 28, 28), (2, 3, 224, 224), (64, 33, 1000), (4096, 512)]
EPS = {torch.float16: 1e-3, torch.bfloat16: 8e-3, torch.float32: 1e-5, torch.float64: 1e-12}


def gpu_randn(shape: Shape, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(shape, device="cuda", dtype=dtype)


def assert_near(have: torch.Tensor, want: torch.Tensor, scale: float = 1.0) -> None:
    """Against float64: rounding of the result's type, relative to the largest of the result."""
    most = want.abs().max().item() if want.numel() else 0.0
    error = (have.double() - want).abs().max().item() if want.numel() else 0.0
    assert error <= EPS[have.dtype] * scale * (most + 1e-30), (error, most)


def both(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A leaf and the same in float64."""
    return x.detach().clone().requires_grad_(), x.detach().double().requires_grad_()


def shifted(x: torch.Tensor) -> torch.Tensor:
    """The same values in memory that begins at no multiple of 16 bytes."""
    room = torch.empty(x.numel() + 1, device=x.device, dtype=x.dtype)
    return room[1:].view(x.shape).copy_(x)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("shape", ROWS, ids=str)
def test_rows(shape: Shape, dtype: torch.dtype) -> None:
    x, dy, n = gpu_randn(shape, dtype), gpu_randn(shape, dtype), shape[-1]
    gamma, beta = gpu_randn((n,), dtype), gpu_randn((n,), dtype)
    leaf, wide = both(x)
    y, want = tn.softmax(leaf), torch.softmax(wide, -1)
    y.backward(dy)
    want.backward(dy.double())
    assert leaf.grad is not None and wide.grad is not None
    assert_near(y.detach(), want.detach())
    assert_near(leaf.grad, wide.grad, 4)
    assert_near(tn.softmax(shifted(x)), want.detach())
    leaf, wide = both(x)
    (g, g64), (b, b64) = both(gamma), both(beta)
    y, want = tn.layer_norm(leaf, weight=g, bias=b), torch.nn.functional.layer_norm(wide, (n,), g64, b64)
    y.backward(dy)
    want.backward(dy.double())
    assert_near(y.detach(), want.detach(), 2)
    for have, true in ((leaf, wide), (g, g64), (b, b64)):
        assert have.grad is not None and true.grad is not None
        assert_near(have.grad, true.grad, 4 + 0.1 * shape[0] ** 0.5)
    assert_near(tn.sum(x, dim=[1]), x.double().sum(1), 2)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("shape", ROWS, ids=str)
def test_cross_entropy_rows(shape: Shape, dtype: torch.dtype) -> None:
    x, target = gpu_randn(shape, dtype), torch.randint(shape[1], (shape[0],), device="cuda")
    leaf, wide = both(x)
    loss, want = tn.cross_entropy(leaf, target), torch.nn.functional.cross_entropy(wide, target)
    loss.backward()
    want.backward()
    assert leaf.grad is not None and wide.grad is not None
    assert_near(loss.detach(), want.detach(), 2)
    assert_near(leaf.grad, wide.grad, 4)
    with torch.no_grad():
        assert_near(tn.cross_entropy(x, target), want.detach(), 2)
        smooth = torch.nn.functional.cross_entropy(x.double(), target, label_smoothing=0.1)
        assert_near(tn.cross_entropy(shifted(x), target, label_smoothing=0.1), smooth, 2)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("shape", COLUMNS, ids=str)
def test_columns(shape: Shape, dtype: torch.dtype) -> None:
    axis = len(shape) - 2
    x, dy = gpu_randn(shape, dtype), gpu_randn(shape, dtype)
    leaf, wide = both(x)
    y, want = tn.softmax(leaf, axis=axis), torch.softmax(wide, axis)
    y.backward(dy)
    want.backward(dy.double())
    assert leaf.grad is not None and wide.grad is not None
    assert_near(y.detach(), want.detach())
    assert_near(leaf.grad, wide.grad, 4)
    assert_near(tn.softmax(shifted(x), axis=axis), want.detach())
    assert_near(tn.sum(x, dim=[axis]), x.double().sum(axis), 2)
    assert_near(tn.sum(shifted(x), dim=[axis]), x.double().sum(axis), 2)


@pytest.mark.parametrize("layout", ["planes", "channels last"])
@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("shape", CHANNELS, ids=str)
def test_channels(shape: Shape, dtype: torch.dtype, layout: str) -> None:
    x, dy, c = gpu_randn(shape, dtype), gpu_randn(shape, dtype), shape[1]
    if layout == "channels last":
        x, dy = (t.movedim(1, -1).contiguous().movedim(-1, 1) for t in (x, dy))
    wide_type = dtype if dtype == torch.float64 else torch.float32
    gamma, beta = gpu_randn((c,), wide_type), gpu_randn((c,), wide_type)
    (leaf, wide), (g, g64), (b, b64) = both(x), both(gamma), both(beta)
    means, variances = torch.zeros(c, device="cuda"), torch.ones(c, device="cuda")
    y = tn.batch_norm(leaf, means, variances, g, b, training=True)
    want = torch.nn.functional.batch_norm(wide, None, None, g64, b64, training=True)
    y.backward(dy)
    want.backward(dy.double())
    assert_near(y.detach(), want.detach(), 2)
    for have, true in ((leaf, wide), (g, g64), (b, b64)):
        assert have.grad is not None and true.grad is not None
        assert_near(have.grad, true.grad, 8)
    batch_mean = x.double().transpose(0, 1).reshape(c, -1).mean(1)
    assert torch.allclose(means.double(), 0.1 * batch_mean, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("n", [513, 1024, 4097, 8192, 50257])
def test_a_row_does_not_depend_on_the_others(n: int, dtype: torch.dtype) -> None:
    x = gpu_randn((300, n), dtype)
    gamma, beta = gpu_randn((n,), dtype), gpu_randn((n,), dtype)
    calls: list[Callable[[torch.Tensor], torch.Tensor]] = [
        lambda x: tn.softmax(x),
        lambda x: tn.layer_norm(x, weight=gamma, bias=beta),
        lambda x: tn.sum(x, dim=[1]),
        lambda x: tn.softmax(x.t().contiguous(), axis=0).t(),
        lambda x: tn.sum(x.t().contiguous(), dim=[0]),
    ]
    for which, call in enumerate(calls):
        every = call(x)
        for rows in (2, 3, 17) if which > 2 else (1, 2, 3, 17):  # one column is a row
            assert torch.equal(call(x[:rows].clone()), every[:rows]), (which, rows)
        assert torch.equal(call(x[8:10].clone()), every[8:10]), which


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("shape", [(1100, 24000), (2000, 70000), (600, 41000), (4096, 8192), (9000, 5128)], ids=str)
def test_sums_of_many_columns(shape: Shape, dtype: torch.dtype) -> None:
    """However many blocks share the columns out, a column's sum is the same."""
    x = gpu_randn(shape, dtype)
    y = tn.sum(x, dim=[0])
    assert_near(y, x.sum(0, dtype=torch.float64), 2)
    for first in (0, 8, shape[1] - 64):
        assert torch.equal(tn.sum(x[:, first : first + 64].contiguous(), dim=[0]), y[first : first + 64])


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one GPU")
def test_second_device() -> None:
    x = torch.randn(8, 100, device="cuda:1")
    y = tn.softmax(x)
    assert y.device == x.device and torch.cuda.current_device() == 0
    assert_close(y.cpu(), torch.softmax(x, -1).cpu())


def test_fork_is_refused() -> None:
    code = """
import os, torch, tenon.torch as tn
x = torch.randn(3, 4, device="cuda")
tn.softmax(x)
pid = os.fork()
if pid == 0:
    try:
        tn.softmax(x)
    except RuntimeError as e:
        cpu = tn.softmax(torch.zeros(2)).tolist() == [0.5, 0.5]
        os._exit(0 if "forked" in str(e) and cpu else 1)
    os._exit(2)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


@pytest.mark.parametrize(
    "formula", ["floor(x / y)", "round(x / y)", "1.0 if x / y >= round(x / y) else 0.0", "x % y + floor(x / y)"]
)
def test_steps_behind_quotients(formula: str) -> None:
    """bf16 has 8 bits, so most functions need not be exact to more. But where a step stands behind one, a quotient that
    is a little less than 3 is 2."""
    y = torch.arange(1, 129, dtype=torch.bfloat16)
    x = (y.double()[:, None] * torch.arange(-9, 10)).to(torch.bfloat16)
    args = (x, y[:, None].expand_as(x).contiguous())
    made = tn.fuse(formula)
    want = made(*(t.double() for t in args)).to(torch.bfloat16)
    assert torch.equal(made(*(t.cuda() for t in args)).cpu(), want)
