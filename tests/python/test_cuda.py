"""What only a GPU has: streams, graphs, several devices, asynchronous errors. All of it is skipped without one."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
from cases import Case, assert_close, clone, one_each, tensors

import tenon.torch as tn

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


def on_gpu(values: Any) -> Any:
    if isinstance(values, torch.Tensor):
        return values.detach().cuda().requires_grad_(values.requires_grad)
    return [on_gpu(v) for v in values] if isinstance(values, list) else values


@pytest.mark.parametrize("case", one_each(), ids=str)
def test_same_as_the_cpu(case: Case) -> None:
    args = case.make("f32")
    here, there = clone([a.cpu() if isinstance(a, torch.Tensor) else a for a in args]), on_gpu(args)
    want, have = case.call(here), case.call(there)
    assert all(t.is_cuda for t in tensors(have))
    assert_close([t.cpu() for t in tensors(have)], want)
    assert_close([t.cpu() for t in tensors(there)], here)  # what is updated in place


@pytest.mark.parametrize("case", one_each(), ids=str)
def test_side_stream(case: Case) -> None:
    """The operator waits for what its stream is busy with, and for nothing else."""
    args = on_gpu(case.make("f32"))
    want = case.call(clone(args))
    stream = torch.cuda.Stream()
    late = [torch.empty_like(a) if isinstance(a, torch.Tensor) else a for a in args]
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        for to, source in zip(late, args, strict=True):
            if isinstance(to, torch.Tensor):
                to.copy_(source, non_blocking=True)
        have = case.call(late)
    stream.synchronize()
    assert_close(have, want)


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
    for to, source in zip(args, fresh, strict=True):
        if isinstance(to, torch.Tensor):
            to.copy_(source)
    want = case.call(clone(args))
    graph.replay()
    torch.cuda.synchronize()
    assert_close(have, want)


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
