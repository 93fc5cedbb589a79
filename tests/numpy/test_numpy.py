"""tenon.numpy: every operator, arrays of all kinds, and what is refused."""

from __future__ import annotations

import ctypes
import gc
import pathlib
import re
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import arrays
import numpy as np
import pytest
from arrays import Case, assert_close, cases, copies, dealt, flat, has_numpys_types, one_each, updated
from pickles import check_pickles

import tenon
import tenon.numpy as tn
from tenon._frameworks import NumpyFunction
from tenon.contract import Input
from tenon.numpy._ops import numpy_op

DTYPES = dict(arrays.DTYPES)
try:
    import ml_dtypes

    DTYPES["bf16"] = ml_dtypes.bfloat16
except ModuleNotFoundError:
    ml_dtypes = None
try:
    import torch
except ModuleNotFoundError:
    torch = None

needs_torch = pytest.mark.skipif(torch is None, reason="no torch")
needs_ml_dtypes = pytest.mark.skipif(ml_dtypes is None, reason="no ml_dtypes")


def has_types(case: Case) -> bool:
    return case.has_types_of(DTYPES)


TYPES = ["f32", "f16", "f64", "bf16"] if ml_dtypes is not None else ["f32", "f16", "f64"]


def assert_same(have: Any, want: Any) -> None:
    have, want = list(flat(have)), list(flat(want))
    assert len(have) == len(want)
    for a, b in zip(have, want, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_array_equal(a, b)


# ---- numbers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("case", "T"), dealt(cases(where=has_types), TYPES, each=2), ids=str)
def test_agrees_with_float64(case: Case, T: str) -> None:
    args = case.arguments(T, DTYPES)
    wide = case.arguments("f64", DTYPES)
    for a, w in zip(flat(args), flat(wide), strict=True):
        w[...] = a
    op = numpy_op(case.op.name)
    assert_close(op.full(*args), op.full(*wide), T)
    assert_close(updated(case, args), updated(case, wide), T)


@needs_torch
@pytest.mark.parametrize("case", cases(where=has_numpys_types), ids=str)
def test_same_bits_as_torch(case: Case) -> None:
    """Another way into the library: whatever this one would mix up, that one does not."""
    from tenon.torch._ops import torch_op

    args = case.arguments("f32", DTYPES)
    theirs = [_tensors(a) for a in copies(args)]
    want = torch_op(case.op.name).full(*theirs)
    have = numpy_op(case.op.name).full(*args)
    want = want if isinstance(want, tuple) else (want,)
    assert_same(have, [None if t is None else t.numpy() for t in want])
    assert_same(updated(case, args), [_arrays(t) for t in updated(case, theirs)])


def _tensors(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return torch.from_numpy(value)
    if isinstance(value, np.dtype):
        return torch.from_numpy(np.empty(0, value)).dtype
    return [_tensors(v) for v in value] if isinstance(value, list) else value


def _arrays(value: Any) -> Any:
    return [t.numpy() for t in value] if isinstance(value, list) else value.numpy() if value is not None else None


@pytest.mark.parametrize("case", one_each(has_types), ids=str)
def test_public_functions(case: Case) -> None:
    args = case.arguments("f32", DTYPES)
    op = numpy_op(case.op.name)
    full = op.full(*copies(args))
    named = {p.name: a for p, a in zip(case.op.params, args, strict=True)}
    result = getattr(tn, case.op.name)(**NumpyFunction(case.op, op.shown).keywords(named))
    shown = [full[k] for k in op.shown if full[k] is not None]
    assert_same([result], [shown])
    if shown:
        assert isinstance(result, tuple if len(shown) > 1 else np.ndarray)
    else:
        assert result is None


@pytest.mark.parametrize("call", [tn.relu, tn.layer_norm, tn.fuse("x * 2"), tn.softmax])
def test_no_elements_take_no_time(call: Callable[..., Any]) -> None:
    begin = time.monotonic()
    assert call(np.zeros((10**9, 0))).shape == (10**9, 0)
    assert time.monotonic() - begin < 5


def test_a_function_for_each_row() -> None:
    assert tn.ops() == list(tenon.ops())
    assert "Contract:" in (tn.softmax.__doc__ or "")
    assert tn.layer_norm.__module__ == "tenon.numpy"


def test_needs_no_framework() -> None:
    """Importing it imports NumPy and nothing like it."""
    code = "import sys, tenon.numpy; print({'torch', 'jax', 'tensorflow', 'ml_dtypes'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


# ---- layouts ---------------------------------------------------------------------------------------------------------


def transposed(a: Any) -> Any:
    return np.asfortranarray(a) if a.ndim else a


def reversed_(a: Any) -> Any:
    """Negative strides."""
    return a[::-1].copy()[::-1] if a.ndim else a


def sliced(a: Any) -> Any:
    """Every second element of something larger, in every dimension."""
    view = np.zeros([2 * n + 1 for n in a.shape], a.dtype)[(..., *(slice(1, None, 2) for _ in a.shape))]
    view[...] = a
    return view


def read_only(a: Any) -> Any:
    a = a.copy()
    a.flags.writeable = False
    return a


def swapped(a: Any) -> Any:
    """The other byte order."""
    return a.astype(a.dtype.newbyteorder())


def unaligned(a: Any) -> Any:
    """Begins one byte into its memory."""
    made = np.frombuffer(bytearray(a.nbytes + 1), np.uint8)[1:].view(a.dtype).reshape(a.shape)
    made[...] = a
    return made


def a_field(a: Any) -> Any:
    """A field of structs whose size is no multiple of the field's."""
    made = np.zeros(a.shape, np.dtype([("value", a.dtype), ("odd", np.uint8)]))["value"]
    made[...] = a
    return made


LAYOUTS = [transposed, reversed_, sliced, read_only, swapped, unaligned, a_field]


@pytest.mark.parametrize("change", LAYOUTS)
@pytest.mark.parametrize("case", one_each(has_types), ids=str)
def test_layouts(case: Case, change: Callable[[Any], Any]) -> None:
    args = case.arguments("f32", DTYPES)
    changed = [
        (change(a) if isinstance(a, np.ndarray) else [change(v) for v in a])
        if isinstance(p, Input) and not p.inplace and a is not None
        else a
        for p, a in zip(case.op.params, copies(args), strict=True)
    ]
    op = numpy_op(case.op.name)
    assert_close(op.full(*changed), op.full(*args), "f32", 1.0)
    assert_close(updated(case, changed), updated(case, args), "f32", 1.0)


def test_results_are_laid_out_as_the_first_input() -> None:
    x = np.asfortranarray(np.ones((3, 4), np.float32))
    assert tn.relu(x).flags.f_contiguous
    assert tn.relu(x[:, ::2]).flags.f_contiguous
    assert tn.relu(np.ascontiguousarray(x)).flags.c_contiguous


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (1,) * 16], ids=str)
def test_any_shape(shape: tuple[int, ...]) -> None:
    x = np.full(shape, -2.0, np.float32)
    y = tn.relu(x)
    assert isinstance(y, np.ndarray) and y.shape == shape and not y.any()
    assert tn.add(x, np.float32(1)).shape == shape
    assert tn.sum(x).shape == ()


def test_updates_in_place() -> None:
    p, m, v = (np.ones((3, 4), np.float32) for _ in range(3))
    big = np.ones((6, 8), np.float32)
    assert tn.adamw_step(p, np.ones_like(p), m, v, lr=0.1, step=1) is None
    tn.adamw_step(big[::2, ::2], np.ones_like(p), np.ones_like(p), np.ones_like(p), lr=np.float32(0.1), step=1)
    np.testing.assert_array_equal(big[::2, ::2], p)
    assert (p != 1).all() and (big[1::2] == 1).all() and (big[:, 1::2] == 1).all()


def test_out() -> None:
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    big = np.zeros((3, 8), np.float32)
    out = big[:, ::2]
    assert tn.softmax(x, out=out) is out
    np.testing.assert_array_equal(out, tn.softmax(x))
    assert not big[:, 1::2].any()
    want = tn.softmax(x)
    assert tn.softmax(x, out=x) is x  # over the input itself
    np.testing.assert_array_equal(x, want)
    with pytest.raises(ValueError, match=r"softmax: out has shape \[4\], needs \[3, 4\]"):
        tn.softmax(x, out=np.empty(4, np.float32))
    with pytest.raises(TypeError, match="softmax: out has type f64, needs f32"):
        tn.softmax(x, out=np.empty((3, 4)))
    with pytest.raises(ValueError, match="softmax: out is written to, but this array is read-only"):
        tn.softmax(x, out=read_only(x))
    with pytest.raises(TypeError, match="softmax: out must be an array, not list"):
        tn.softmax(x, out=[1.0])


def test_formulas_that_have_something_called_out() -> None:
    x, b = np.arange(3.0), np.ones(3)
    np.testing.assert_array_equal(tn.fuse("x - out")(x, b), [-1, 0, 1])  # an input, by its name too
    np.testing.assert_array_equal(tn.fuse("x - out")(x, out=b), [-1, 0, 1])
    np.testing.assert_array_equal(tn.fuse("f(x: T[*s], out: float) -> y: T[*s] : x - out")(x, out=2), [-2, -1, 0])
    np.testing.assert_array_equal(b, 1)
    assert tn.fuse("out = x - 1")(x, out=b) is b  # a result
    np.testing.assert_array_equal(b, [-1, 0, 1])
    assert tn.fuse("out! = x * 2")(x, b) is None
    np.testing.assert_array_equal(b, [0, 2, 4])


# ---- types -----------------------------------------------------------------------------------------------------------


def test_promotion() -> None:
    f32, f64 = np.ones(3, np.float32), np.ones(3)
    assert tn.add(f32, f64).dtype == np.float64
    for number in (2, 2.0, True, np.float64(2), np.array(2.0), np.array(2), np.float16(2)):
        assert tn.add(f32, number).dtype == np.add(f32, number).dtype  # NumPy 2 counts arrays of one, NumPy 1 does not
        assert tn.mul(number, f32).dtype == np.multiply(number, f32).dtype
    assert tn.add(np.arange(3), 0.5).dtype == np.float64
    assert tn.add(f32, np.arange(3, dtype=np.int8)).dtype == np.float32
    with pytest.raises(TypeError, match="add: x has type i64, needs"):
        tn.add(np.arange(3), np.arange(3))
    for other, kind in ((np.array(1j), "c128"), (np.array("a"), "<U1"), (np.array(None), "object")):
        with pytest.raises(TypeError, match=f"add: y has type {kind}"):
            tn.add(f32, other)


@needs_ml_dtypes
def test_types_without_a_common_one() -> None:
    with pytest.raises(TypeError, match="add: y has type f16, needs bf16"):
        tn.add(np.ones(3, DTYPES["bf16"]), np.ones(3, np.float16))


@pytest.mark.parametrize("axes", [1, -1, np.int64(1), np.array(1), [1], np.array([1])], ids=repr)
def test_a_single_axis_stands_for_a_list(axes: Any) -> None:
    x = np.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(tn.sum(x, axis=axes), [3, 12])


NUMBERS = [2, 2.0, np.float32(2), np.float64(2), np.int8(2), np.array(2), np.array(2.0), np.array(2.0, np.float32)]


@pytest.mark.parametrize("number", NUMBERS, ids=repr)
def test_what_numpy_makes_of_a_number(number: Any) -> None:
    """For attributes, and for 0-dim inputs whose types other inputs say."""
    x = np.ones(3, np.float32)
    np.testing.assert_array_equal(tn.softmax(x, scale=number), tn.softmax(x, scale=2.0))
    for kind in ("T", "f32"):
        made = tn.fuse(f"f(x: T[*s], a: {kind}[]) -> y: T[*s] : x * a")(x, number)
        assert made.dtype == np.float32 and (made == 2).all()
    p, m, v = x.copy(), 0 * x, 0 * x
    tn.adamw_step(p, x, m, v, lr=number, step=np.array(1))
    assert (p < 0).all()


def test_an_array_of_one_that_nothing_else_types() -> None:
    assert tn.fuse("f(x: T[], y: T[]) -> z: T[] : x * y")(np.array(2.0), np.array(3.0)).dtype == np.float64


def test_plain_numbers() -> None:
    p, m, v = (np.ones(3, np.float16), np.ones(3, np.float32), np.ones(3, np.float32))
    tn.adamw_step(p, np.ones(3, np.float16), m, v, lr=1, step=np.float32(2))
    with pytest.raises(TypeError, match="adamw_step: lr must be a number or an array, not str"):
        tn.adamw_step(p, p.copy(), m, v, lr="0.1", step=1)


@pytest.mark.skipif(ml_dtypes is not None or torch is None, reason="needs torch without ml_dtypes")
def test_bf16_without_ml_dtypes() -> None:
    x = torch.ones(3, dtype=torch.bfloat16)
    with pytest.raises(TypeError, match=r"relu: y is bf16, .* pip install ml_dtypes"):
        tn.relu(x)
    out = torch.empty(3, dtype=torch.bfloat16)
    assert tn.relu(x, out=out) is out and out.tolist() == [1, 1, 1]


@needs_ml_dtypes
def test_bf16() -> None:
    x = np.linspace(-1, 1, 7).astype(ml_dtypes.bfloat16)
    y = tn.relu(x)
    assert y.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(y.astype(np.float32), np.maximum(x.astype(np.float32), 0))
    assert tn.softmax(x[::2]).sum(dtype=np.float32) == pytest.approx(1, abs=1e-2)


# ---- arrays of others ------------------------------------------------------------------------------------------------


class Exporter:
    """Speaks DLPack and nothing else: the older capsule, or the one of version 1."""

    def __init__(self, array: Any, versioned: bool = False, device: int = 1) -> None:
        self.array = array
        self.versioned = versioned
        self.device = device

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device, 0

    def __dlpack__(self, stream: Any = None, **named: Any) -> Any:
        if not self.versioned and named:
            raise TypeError("unexpected keyword")
        capsule = self.array.__dlpack__(**named)
        if self.device != 1:
            name = b"dltensor_versioned" if self.versioned else b"dltensor"
            at = ctypes.pythonapi.PyCapsule_GetPointer(capsule, name) + (32 if self.versioned else 0)
            ctypes.c_int32.from_address(at + 8).value = self.device
        return capsule


speaks_1_0 = pytest.mark.skipif(np.lib.NumpyVersion(np.__version__) < "2.1.0", reason="NumPy without DLPack 1.0")
VERSIONED = [False, pytest.param(True, marks=speaks_1_0)]


def exported(value: Any, versioned: bool) -> Any:
    """Arguments whose arrays speak DLPack alone."""
    if isinstance(value, list):
        return [exported(v, versioned) for v in value]
    return Exporter(value, versioned) if isinstance(value, np.ndarray) else value


@pytest.mark.parametrize("versioned", VERSIONED)
@pytest.mark.parametrize("case", one_each(has_numpys_types), ids=str)
def test_dlpack(case: Case, versioned: bool) -> None:
    args = case.arguments("f32", DTYPES)
    wrapped = exported(copies(args), versioned)
    op = numpy_op(case.op.name)
    assert_same(op.full(*wrapped), op.full(*args))
    inner = [[e.array for e in (w if isinstance(w, list) else [w])] for w in updated(case, wrapped) if w is not None]
    assert_same(inner, [a for a in updated(case, args) if a is not None])


@pytest.mark.parametrize("versioned", VERSIONED)
def test_pinned_memory_is_the_cpus(versioned: bool) -> None:
    x = np.ones(3, np.float32)
    assert tn.relu(Exporter(x, versioned, device=3)).tolist() == [1, 1, 1]
    with pytest.raises(TypeError, match=r"relu: x is on a device that Tenon does not know \(DLPack's number 8\)"):
        tn.relu(Exporter(x, versioned, device=8))


@pytest.mark.parametrize("versioned", VERSIONED)
def test_nothing_is_kept(versioned: bool) -> None:
    class Owned(np.ndarray[Any, Any]):
        pass

    x = np.ones(3, np.float32).view(Owned)
    gone = weakref.ref(x)
    tn.relu(Exporter(x, versioned))
    with pytest.raises(ValueError, match="softmax"):
        tn.softmax(Exporter(x, versioned), axis=7)
    del x
    gc.collect()
    assert gone() is None


@speaks_1_0
def test_read_only_by_dlpack() -> None:
    p = Exporter(read_only(np.ones(3, np.float32)), versioned=True)
    m = np.ones(3, np.float32)
    assert tn.relu(p).tolist() == [1, 1, 1]
    with pytest.raises(ValueError, match=r"sgd_step: p is written to, but this array is read-only"):
        tn.sgd_step(p, m, m.copy(), lr=0.1)


@needs_torch
def test_torch_tensors() -> None:
    x = torch.randn(3, 4)
    y = tn.softmax(x.t(), axis=0)
    assert isinstance(y, np.ndarray)
    np.testing.assert_allclose(y, torch.softmax(x.t(), 0).numpy(), rtol=1e-6)
    with pytest.raises(TypeError, match=r"softmax: x does not give its memory away: .*detach"):
        tn.softmax(torch.randn(3, requires_grad=True))
    p = torch.ones(3)
    tn.sgd_step(p, np.ones(3, np.float32), torch.zeros(3), lr=0.5)
    assert p.tolist() == [0.5, 0.5, 0.5]


def test_gpu() -> None:
    """On one that is made up: which arrays come out, and on which streams calls run."""
    here = pathlib.Path(__file__).resolve()
    folder = here.parents[2] / "build"
    if not (folder / "fake_cuda.so").is_file():
        pytest.skip("build/fake_cuda.so is missing: tools/build.sh release makes it")
    done = subprocess.run([sys.executable, here.with_name("gpu.py"), folder], capture_output=True, text=True)
    assert done.stdout.strip() == "good", done.stdout + done.stderr


# ---- errors ----------------------------------------------------------------------------------------------------------

X = np.ones((2, 3), np.float32)
TIMES = "times(x: T[*s], n: i32[]) -> y: T[*s] : x * n"


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: tn.softmax(None), TypeError, "softmax: x must be an array, not None"),
        (lambda: tn.dropout(X, 0.1), TypeError, "seed must be an array, not float; p=0.1 by keyword is the attribute"),
        (lambda: tn.softmax([1.0]), TypeError, r"softmax: x must be an array, not list; numpy.asarray\(…\) makes one"),
        (lambda: tn.softmax(np.array("a")), TypeError, "softmax: x has type <U1, which Tenon does not have"),
        (lambda: tn.softmax(np.ones(3, np.uint32)), TypeError, "softmax: x has type u32, needs f16, bf16, f32 or f64"),
        (lambda: tn.softmax(np.ones(3, np.int32)), TypeError, "softmax: x has type i32, needs"),
        (lambda: tn.softmax(X, axis=5), ValueError, "softmax: axis is 5"),
        (lambda: tn.softmax(X, axis=0.5), TypeError, "softmax: axis is 0.5, needs an int"),
        (lambda: tn.softmax(X, axis=2**70), ValueError, "softmax: axis is 1180591620717411303424, beyond 64 bits"),
        (lambda: tn.sum(X, axis=[2**64]), ValueError, "sum: axes is .18446744073709551616., beyond 64 bits"),
        (lambda: tn.sum_grad(X, shape=[-1, 2]), ValueError, "sum_grad: shape has a size of -1"),
        (lambda: tn.softmax(X, scale="big"), TypeError, "softmax: scale is 'big', needs a float"),
        (lambda: tn.softmax(X, mask=X), TypeError, "softmax: mask has type f32, needs bool"),
        (lambda: tn.layer_norm(X, np.ones(4, np.float32)), ValueError, "layer_norm: gamma has shape"),
        (lambda: tn.mse(X, X, reduction="all"), ValueError, "mse: reduction is 'all'"),
        (lambda: tn.sgd_step(X, X, X.copy(), lr=10**400), ValueError, "sgd_step: lr is 10*, which is no f32"),
        (lambda: tn.fuse(TIMES)(X, 1.5), ValueError, "times: n is 1.5, which is no i32"),
        (lambda: tn.fuse(TIMES)(X, np.array(2**40)), ValueError, "times: n is .*, which is no i32"),
        (lambda: tn.mse(X, X, reduction=3), TypeError, "mse: reduction is 3, needs a str"),
        (lambda: tn.sum(X, axis="ab"), TypeError, "sum: axes is 'ab', needs ints"),
        (
            lambda: tn.softmax(X, axis=None),
            TypeError,
            "softmax: axis is None, needs an int; leave it out for the default, -1",
        ),
        (lambda: tn.softmax(X, causal="false"), TypeError, "softmax: causal is 'false', needs a bool"),
        (lambda: tn.sgd_step(X[0, 0], X[0, 1], X[0, 2], lr=0.1), ValueError, "sgd_step: p is written to, but this is"),
        (lambda: tn.relu(X[0, 0], out=X[0, 1]), ValueError, "relu: out is written to, but this is a number"),
        (lambda: tn.adamw_step(X, X, X, X, lr=1.0), TypeError, r"adamw_step\(\) missing 1 required argument: 'step'"),
        (lambda: tn.sgd_step(X, X, X, lr=1.0), ValueError, "sgd_step: .* share memory"),
        (lambda: tn.clip_grad_norm(X, 1.0), TypeError, "clip_grad_norm: g must be a list of arrays, not ndarray"),
        (lambda: tn.clip_grad_norm([X, None], 1.0), TypeError, r"clip_grad_norm: g\[1\] must be an array, not None"),
        (lambda: tn.sgd_step(read_only(X), X, X, lr=1.0), ValueError, "sgd_step: p is written to, but this"),
        (lambda: tn.sgd_step(swapped(X), X, X, lr=1.0), ValueError, "sgd_step: p is written to, so its elements"),
        (lambda: tn.relu(np.ones((1,) * 17, np.float32)), ValueError, "relu: x has rank 17"),
        (lambda: tn.relu(np.ma.masked_array(X)), TypeError, "relu: x has a mask"),
        (lambda: tn.fuse("x +"), ValueError, "\\^"),
        (lambda: tn.fuse("3 * 4"), ValueError, "the formula has no inputs"),
        (lambda: tn.fuse(b"x"), TypeError, "a formula is a str, not bytes"),
        (lambda: tn.fuse(["x"]), TypeError, "a formula is a str, not list"),
        (lambda: tn.fuse("lambda * lambda_"), ValueError, "both lambda_ in Python"),
        (lambda: tn.fuse("x\0+ y"), ValueError, "NUL character, at column 2"),
    ],
)
def test_errors(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


# ---- formulas, threads -----------------------------------------------------------------------------------------------


def test_fuse() -> None:
    x, y = np.linspace(-2, 2, 12).reshape(3, 4), np.linspace(1, 2, 4)
    gate = tn.fuse("silu(x) * y")
    assert gate is tn.fuse("silu(x) * y")
    np.testing.assert_allclose(gate(x, y), x / (1 + np.exp(-x)) * y)
    out = np.empty((3, 4))
    assert gate(x, y, out=out) is out
    np.testing.assert_array_equal(out, gate(x, y))
    both = tn.fuse("a = x + y; b = x * y")
    a, b = both(x, y)
    np.testing.assert_array_equal(a, x + y)
    np.testing.assert_array_equal(b, x * y)
    np.testing.assert_array_equal(tn.fuse("_call * _required")(_call_=x, _required_=y), x * y)
    scaled = tn.fuse("scaled(x: T[*r, c], eps: float = 1.0) -> y: T[*r, c] : y = x / (mean(x * x) + eps)")
    np.testing.assert_allclose(scaled(x, eps=2.0), x / ((x * x).mean() + 2))


def test_types_as_attributes() -> None:
    """Tenon's i8 is another type than NumPy's."""
    x = np.ones(3, np.float32)
    for kind, dtype in (("f64", np.float64), ("i8", np.int8), ("bool", np.bool_)):
        assert tn.fuse(f"f(x: T[*s], kind: dtype = {kind}) -> y: kind[*s] : x * 2")(x).dtype == dtype
        times = tn.fuse(f"f(x: T[*s], n: kind[], kind: dtype = {kind}) -> y: kind[*s] : x * n")
        assert times(x, 1).dtype == dtype and times(x, 3, kind="float32").tolist() == [3, 3, 3]
    with pytest.raises(ValueError, match="f: kind is missing; it needs a type"):
        tn.fuse("f(x: T[*s], n: kind[], kind: dtype) -> y: kind[*s] : x * n")(x, 1, None)


def test_pickle() -> None:
    check_pickles(tn.fuse)


def test_threads() -> None:
    """Each call has memory of its own."""
    failed: list[Any] = []

    def work(seed: int) -> None:
        x = np.random.default_rng(seed).standard_normal((seed + 2, 5))
        for _ in range(200):
            if not np.array_equal(tn.softmax(x, axis=seed % 2), wanted[seed]):
                failed.append(seed)

    wanted = [tn.softmax(np.random.default_rng(s).standard_normal((s + 2, 5)), axis=s % 2) for s in range(4)]
    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def test_arrays_that_cannot_be_written() -> None:
    """JAX's arrays are immutable, and do not say so through DLPack."""
    pytest.importorskip("jax.numpy")  # `jax` alone may be the folder of tests
    import jax

    a = jax.device_put(np.ones(3, "f4"), jax.devices("cpu")[0])
    with pytest.raises(ValueError, match=r"sgd_step: p is written to, but .*arrays are read-only"):
        tn.sgd_step(a, np.ones(3, "f4"), np.zeros(3, "f4"), lr=0.5)
    with pytest.raises(ValueError, match=r"softmax: out is written to, but .*arrays are read-only"):
        tn.softmax(np.ones(3, "f4"), out=a)
    assert np.array_equal(np.asarray(a), np.ones(3))


def test_tensors_of_the_opposite_sign() -> None:
    torch = pytest.importorskip("torch")
    t = torch.tensor([1 + 2j, 3 + 4j]).conj().imag
    assert np.allclose(tn.softmax(t), torch.softmax(t, 0).numpy())


@pytest.mark.parametrize("kind", [np.uint16, np.uint32])
def test_integers_without_a_sign(kind: type) -> None:
    plus = tn.fuse("f<T: int>(x: T[*s]) -> y: T[*s] : x + 1")
    x = np.array([0, np.iinfo(kind).max - 1, np.iinfo(kind).max], kind)
    assert np.array_equal(plus(x), x + kind(1)) and plus(x).dtype == kind
    with pytest.raises(TypeError, match="f: x has type u64; formulas compute integers in 64 bits with a sign"):
        plus(x.astype(np.uint64))


def test_help_of_fuse_is_true() -> None:
    said = tn.fuse.__doc__ or ""
    formulas = re.findall(r'tn\.fuse\("(.*?)"\)', said)
    assert len(formulas) == 2 and "tenon help formulas" in said
    for formula in formulas:
        tn.fuse(formula)
    (each,) = re.findall(r"^    (exp .*)$", said, re.MULTILINE)
    (reduced,) = re.findall(r"^    (sum .*?)  +of everything", said, re.MULTILINE)
    two = {"pow", "minimum", "maximum"}
    for name in [*each.split(), *reduced.split()]:
        tn.fuse(f"{name}(x, y)" if name in two else f"{name}(x, 0.0, 1.0)" if name == "clamp" else f"{name}(x)")
    for name in reduced.split():
        tn.fuse(f"{name}(x, axis=-1)")
