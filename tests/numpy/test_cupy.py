"""tenon.numpy with CuPy's arrays: every operator on a GPU against the same call with NumPy's, on CuPy's streams."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from arrays import DTYPES, Case, cases, has_numpys_types, updated
from samples import TOLERANCE

import tenon
import tenon.numpy as tn
from tenon.numpy._ops import numpy_op

cp = pytest.importorskip("cupy")
try:
    cp.cuda.runtime.getDeviceCount()
except cp.cuda.runtime.CUDARuntimeError as error:
    pytest.skip(f"no GPU: {error}", allow_module_level=True)


def on_gpu(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return cp.asarray(value)
    return [on_gpu(v) for v in value] if isinstance(value, list) else value


def assert_close(have: Any, want: Any, T: str) -> None:
    if isinstance(want, list | tuple):
        assert len(have) == len(want)
        for a, b in zip(have, want, strict=True):
            assert_close(a, b, T)
    elif isinstance(want, np.ndarray):
        assert isinstance(have, cp.ndarray)
        assert (have.shape, have.dtype) == (want.shape, want.dtype)
        rtol, atol = TOLERANCE[T]
        np.testing.assert_allclose(have.get().astype(np.float64), want.astype(np.float64), 4 * rtol, 4 * atol)
    else:
        assert have is None and want is None


@pytest.mark.parametrize("T", ["f32", "f16", "f64"])
@pytest.mark.parametrize("case", cases(where=has_numpys_types), ids=str)
def test_agrees_with_numpy(case: Case, T: str) -> None:
    args = case.arguments(T, DTYPES)
    theirs = [on_gpu(a) for a in args]
    op = numpy_op(case.op.name)
    assert_close(op.full(*theirs), op.full(*args), T)
    assert_close(updated(case, theirs), updated(case, args), T)


@pytest.mark.parametrize(
    "view", [lambda x: x.T, lambda x: x[:, ::2], lambda x: x[::-1], lambda x: x[1:, 1:], lambda x: x[:0]]
)
def test_any_strides(view: Any) -> None:
    x = np.random.default_rng(1).standard_normal((33, 64)).astype(np.float32)
    assert_close(tn.softmax(view(cp.asarray(x))), tn.softmax(view(x)), "f32")


def test_formulas() -> None:
    x, y = np.random.default_rng(2).standard_normal((2, 64, 1000)).astype(np.float32)
    gate = tn.fuse("silu(x) * y")
    assert_close(gate(cp.asarray(x), cp.asarray(y)), gate(x, y), "f32")


def test_out() -> None:
    x, y = cp.random.standard_normal((64, 100)).astype(cp.float32), cp.empty((64, 100), cp.float32)
    assert tn.softmax(x, out=y) is y
    assert_close(y, tn.softmax(x.get()), "f32")


def test_the_current_stream() -> None:
    """Work goes behind what CuPy has under way on its stream, and CuPy's goes behind it."""
    x = cp.random.standard_normal((4096, 4096)).astype(cp.float32)
    want = tn.softmax((x * 2 + 1).get()).sum()
    stream = cp.cuda.Stream(non_blocking=True)
    for _ in range(20):
        with stream:
            y = tn.softmax(x * 2 + 1).sum()
        stream.synchronize()
        np.testing.assert_allclose(float(y), float(want), 1e-4)


def test_in_a_captured_graph() -> None:
    """A graph that CuPy captures has the operator in it."""
    x, y = cp.random.standard_normal((64, 100)).astype(cp.float32), cp.empty((64, 100), cp.float32)
    tn.softmax(x, out=y)
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        tn.softmax(x, out=y)
        graph = stream.end_capture()
    x[:] = cp.random.standard_normal((64, 100))
    cp.cuda.Device().synchronize()
    graph.launch(stream)
    stream.synchronize()
    assert_close(y, tn.softmax(x.get()), "f32")


def test_arrays_on_two_devices() -> None:
    x = cp.zeros((4, 8), cp.float32)
    with pytest.raises(tenon.TenonError, match=r"add: y is on cpu, but x is on cuda:0"):
        tn.add(x, np.zeros((4, 8), np.float32))


def test_dlpack_of_a_gpu() -> None:
    """What has no interface of CuPy's is taken by DLPack."""
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch sees no GPU")
    x = torch.randn(64, 100, device="cuda")
    y = tn.softmax(x)
    assert isinstance(y, torch.Tensor)
    torch.testing.assert_close(y, torch.softmax(x, -1))
