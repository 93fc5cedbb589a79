"""Dynamic parameters: one value in device memory, set by one call."""

from __future__ import annotations

import threading

import here
import pytest
import torch
from cases import Case, assert_close, clone, one_each
from torch.fx.experimental.proxy_tensor import make_fx

import tenon.torch as tn
from tenon.contract import Input


def test_set() -> None:
    scale = tn.Param(2.0, device=here.DEVICE)
    x = here.randn(3, 4)
    stretch = tn.fuse("f(x: T[*s], k: f32[]) -> y: T[*s] : x * k")
    assert_close(stretch(x, scale), x * 2)
    scale.set(-0.5)
    assert_close(stretch(x, k=scale), x * -0.5)
    assert_close(tn.fuse("x * k")(x, scale), x * -0.5)  # what broadcasts takes it too
    assert_close(torch.mul(x, scale), x * -0.5)
    assert_close(torch.stack([scale, scale]), here.tensor([-0.5, -0.5]))
    assert float(scale) == -0.5 and "tn.Param(-0.5" in repr(scale)


def test_optimiser_step() -> None:
    p, g, m = here.randn(5), here.randn(5), here.zeros(5)
    lr = tn.Param(0.5, device=here.DEVICE)
    want = p - 0.5 * g
    tn.sgd_step(p, g, m, lr=lr, momentum=0.0)
    assert_close(p, want)
    lr.set(0.25)
    tn.sgd_step(p, g, m, lr, momentum=0.0)
    assert_close(p, want - 0.25 * g)


def has_numbers(case: Case) -> bool:
    return any(p.shape == [] and not p.inplace for p in case.op.inputs)


@pytest.mark.parametrize("T", ["f32", "f64", "bf16"])
@pytest.mark.parametrize("case", one_each(has_numbers), ids=str)
def test_plain_numbers(case: Case, T: str) -> None:
    """Where a 0-dim tensor is taken, a number is, beside tensors and lists of them."""
    args = case.make(T)
    peers = clone(args)
    for i, param in enumerate(case.op.params):
        if isinstance(param, Input) and param.shape == [] and peers[i] is not None:
            args[i] = peers[i].item()
    have, want = case.call(args), case.call(peers)
    assert_close([have], [want], T)
    written = [i for i, p in enumerate(case.op.params) if isinstance(p, Input) and p.inplace]
    assert_close([args[i] for i in written], [peers[i] for i in written], T)


def test_symbolic_numbers() -> None:
    """Numbers that a graph does not know yet: arguments that change, and sizes."""
    torch._dynamo.reset()
    stretch = tn.fuse("f(x: T[*s], k: f32[]) -> y: T[*s] : x * k")
    compiled = torch.compile(stretch, fullgraph=True, backend="aot_eager")
    for k in (0.5, 1.5, 2.5, 3):
        assert_close(compiled(here.ones(8), k), here.full((8,), k))
    traced = make_fx(lambda x: stretch(x, x.shape[0]), tracing_mode="symbolic")(here.ones(8))
    assert_close(traced(here.ones(5)), here.full((5,), 5.0))


def test_numbers_of_a_type_that_is_an_attribute() -> None:
    times = tn.fuse("f(x: T[*s], n: kind[], kind: dtype = f32) -> y: kind[*s] : x * n")
    for kind in (torch.float32, torch.float64, torch.int8):
        assert_close(times(here.ones(3), 3, kind), here.full((3,), 3, dtype=kind))
    assert times(here.ones(3), 3).dtype == torch.float32


def test_another_thread_sets_it() -> None:
    scale, x = tn.Param(0.0, device=here.DEVICE), here.ones(8)
    stretch = tn.fuse("f(x: T[*s], k: f32[]) -> y: T[*s] : x * k")
    for i in range(20):
        thread = threading.Thread(target=scale.set, args=(float(i),))
        thread.start()
        thread.join()
        assert (stretch(x, scale) == i).all()


@pytest.mark.skipif(here.DEVICE == "cpu", reason="needs a GPU")
def test_graph_replays() -> None:
    """1000 replays of a captured graph, each with a value that a second thread has set."""
    scale, x = tn.Param(0.0, device=here.DEVICE), here.ones(1024)
    stretch = tn.fuse("f(x: T[*s], k: f32[]) -> y: T[*s] : x * k + 1")
    stretch(x, scale)  # compiled before the capture
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = stretch(x, scale)
    go, ready = threading.Semaphore(0), threading.Semaphore(0)

    def setter() -> None:
        for i in range(1000):
            go.acquire()
            scale.set(float(i))
            ready.release()

    thread = threading.Thread(target=setter)
    thread.start()
    right = 0
    for i in range(1000):
        go.release()
        ready.acquire()
        graph.replay()
        right += bool((y == i + 1).all())
    thread.join()
    assert right == 1000
