"""Functions with the name of one of NumPy's mean what NumPy's do, and are called as people call those."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest
from namesakes import Namesake, assert_alike, assert_names_are_of_contracts, assert_suggests, namesakes

import tenon
import tenon.numpy as tn
from tenon._frameworks import NumpyFunction

PAIRS = list(namesakes(tn, ["numpy"]))
REASONS = {
    "numpy.identity": "the identity matrix there; an int is refused here",
    "numpy.histogram": "there are 10 bins and the range is that of the data there; here both are required",
    "numpy.roll": "without an axis it rolls the flattened array there; here an axis is required",
    "numpy.select": "lists of conditions and choices there; lists are refused here",
}
TYPES = [np.float16, np.float32, np.float64]
X = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)


# ---- no call means something else ------------------------------------------------------------------------------------


@pytest.mark.parametrize("pair", [p for p in PAIRS if not isinstance(p.theirs, np.ufunc)], ids=str)
def test_positional_order_and_defaults(pair: Namesake) -> None:
    assert_alike(pair, REASONS)


@pytest.mark.parametrize("pair", [p for p in PAIRS if isinstance(p.theirs, np.ufunc)], ids=str)
def test_ufuncs(pair: Namesake) -> None:
    """Inputs in their order, which `out` may follow by position; here it is a keyword."""
    ranks = {"matmul": (2, 2), "matvec": (2, 1), "vecmat": (1, 2)}.get(pair.name, (1, 1))
    arrays = [np.full((3,) * rank, value) for rank, value in zip(ranks, (1.5, 2.0), strict=True)][: pair.theirs.nin]
    given = [arrays[0], 2.0] if pair.name == "pow" else arrays  # its exponent is an attribute
    np.testing.assert_allclose(pair.ours(*given), pair.theirs(*given), rtol=1e-14)
    with pytest.raises(TypeError):
        pair.ours(*given, np.empty(3))


def test_the_reasons_are_needed() -> None:
    with pytest.raises(TypeError, match="identity: x must be an array, not int"):
        tn.identity(3)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'axis'"):
        tn.roll(X, 1)
    with pytest.raises(TypeError, match="missing 2 required keyword-only arguments: 'low' and 'high'"):
        tn.histogram(X, 10)
    with pytest.raises(TypeError, match="select: cond must be an array, not list"):
        tn.select([X > 0], [X], 0.0)


def test_names_that_mean_something_else_are_not_taken_by_position() -> None:
    for call in (lambda: tn.pad(X, (1, 2)), lambda: tn.repeat(X, 2), lambda: tn.repeat(X, repeats=2)):
        with pytest.raises(TypeError, match=r"positional argument|required keyword-only argument: 'reps'"):
            call()
    np.testing.assert_array_equal(tn.pad(X, pad=(1, 2)), np.pad(X, ((0, 0), (1, 2))))
    np.testing.assert_array_equal(tn.repeat(X, reps=(2, 3)), np.tile(X, (2, 3)))


def test_spellings_name_what_contracts_have() -> None:
    assert_names_are_of_contracts(tenon.ops(), NumpyFunction.spellings)


def test_roles_that_are_easily_swapped_are_given_by_name() -> None:
    with pytest.raises(TypeError, match="scale_bias_relu"):
        tn.scale_bias_relu(X, X, X)
    np.testing.assert_array_equal(tn.scale_bias_relu(X, scale=2, bias=0.5), np.maximum(X * 2 + 0.5, 0))


@pytest.mark.parametrize(("queries", "keys"), [(3, 3), (2, 5), (5, 2), (4, 1)])
def test_causal_softmax_of_any_shape(queries: int, keys: int) -> None:
    """The last query sees all keys. With more queries than keys, the first see none, and their rows are 0."""
    x = np.random.default_rng(0).standard_normal((queries, keys))
    seen = np.arange(keys) <= np.arange(queries)[:, None] + keys - queries
    powers = np.where(seen, np.exp(x), 0)
    sums = powers.sum(1, keepdims=True)
    want = np.divide(powers, sums, out=np.zeros_like(x), where=sums > 0)
    np.testing.assert_allclose(tn.softmax(x, causal=True), want, rtol=1e-12)
    assert not want[: max(0, queries - keys)].any() and seen[-1].all()


# ---- as people call it -----------------------------------------------------------------------------------------------


def test_a_name_that_does_not_exist_gets_a_suggestion() -> None:
    assert_suggests(tn, X)


def test_what_the_module_shows() -> None:
    assert set(dir(tn)) == {"fuse", "load", "ops", *tn.ops()}


def test_the_modules_can_be_loaded_again() -> None:
    joined = len(tenon._adapters)
    importlib.reload(tenon)
    assert importlib.reload(tn) is tn and len(tenon._adapters) == joined
    np.testing.assert_allclose(tn.softmax(X).sum(-1), 1, rtol=1e-6)


def test_numbers_alone_have_no_type() -> None:
    with pytest.raises(TypeError, match="add: x must be an array, not float: no other input says its type"):
        tn.add(1.0, 2.0)
    with pytest.raises(TypeError, match="dequantize: scale must be an array, not float"):
        tn.dequantize(np.ones(3, np.int8), 0.5)
    assert tn.add(np.float64(1), np.float64(2)).dtype == np.float64


# ---- NumPy's own cases -----------------------------------------------------------------------------------------------

SHAPES = [(), (0,), (5,), (2, 0, 3), (2, 3, 4), (1, 1)]
UNARY = [p.name for p in PAIRS if isinstance(p.theirs, np.ufunc) and p.theirs.nin == 1]
EDGES = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-30, -1e-30, 88.0, -88.0, 1.0, -1.5, 2.5])


def close(have: Any, want: Any, ulps: float = 4) -> None:
    assert isinstance(have, np.ndarray) and (have.shape, have.dtype) == (np.shape(want), want.dtype)
    bound = ulps * np.finfo(want.dtype).eps
    np.testing.assert_allclose(have.astype(np.float64), np.asarray(want, np.float64), rtol=bound, atol=bound / 100)


def arrays(shape: Any, dtype: Any) -> list[np.ndarray]:
    """The same numbers in the layouts that NumPy's tests go through."""
    x = np.asarray(np.random.default_rng(1).standard_normal(shape) * 3, dtype)
    wide = np.zeros((*shape[:-1], shape[-1] * 2), dtype) if shape else None
    made = [x, np.asfortranarray(x), x.astype(x.dtype.newbyteorder(">")), x[..., ::-1] if shape else x]
    if wide is not None:
        wide[..., ::2] = x
        made.append(wide[..., ::2])
    x.flags.writeable = False
    return made


@pytest.mark.parametrize("dtype", TYPES, ids=lambda t: t.__name__)
@pytest.mark.parametrize("name", UNARY)
def test_functions_of_one_array(name: str, dtype: Any) -> None:
    mine, theirs = getattr(tn, name), getattr(np, name)
    with np.errstate(all="ignore"):
        for x in [a for shape in SHAPES for a in arrays(shape, dtype)] + [EDGES.astype(dtype)]:
            close(mine(x), np.asarray(theirs(x), dtype))


@pytest.mark.parametrize("name", [n for n in UNARY if n not in ("abs", "sign", "square", "floor")])
def test_integers_are_refused(name: str) -> None:
    """NumPy makes floats of them in silence."""
    with pytest.raises(TypeError, match=f"{name}: x has type i64, needs f16, bf16, f32 or f64"):
        getattr(tn, name)(np.arange(3))


BROADCAST = [((), (4,)), ((4,), ()), ((3, 1), (4,)), ((2, 3, 4), (1, 4)), ((0, 4), (4,)), ((5, 1, 4, 1), (3, 1, 2))]


@pytest.mark.parametrize(("a", "b"), BROADCAST, ids=str)
@pytest.mark.parametrize("types", [(s, t) for s in TYPES for t in (*TYPES, np.int8, np.int64, np.bool_)], ids=str)
def test_functions_of_two_arrays(a: Any, b: Any, types: Any) -> None:
    random = np.random.default_rng(0)
    x, y = (np.asarray(random.standard_normal(s) * 4).astype(t) for s, t in zip((a, b), types, strict=True))
    if np.result_type(x, y).kind == "f":
        close(tn.add(x, y), np.asarray(np.add(x, y)))
        close(tn.mul(y, x), np.asarray(np.multiply(y, x)))


def test_shapes_that_do_not_broadcast() -> None:
    for a, b in (((3,), (4,)), ((2, 3), (2,)), ((0,), (2,))):
        with pytest.raises(ValueError):
            np.add(np.ones(a), np.ones(b))
        with pytest.raises(ValueError, match="add: "):
            tn.add(np.ones(a), np.ones(b))


@pytest.mark.parametrize("dtype", TYPES, ids=lambda t: t.__name__)
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", [None, 0, 1, -1, (0,), (0, 1), (-1, 0), (0, 1, 2)], ids=str)
def test_sum(axis: Any, keepdims: bool, dtype: Any) -> None:
    for shape in ((2, 3, 4), (2, 0, 4), (1, 1, 1)):
        for x in arrays(shape, dtype):
            want = np.asarray(np.sum(x.astype(np.float64), axis, keepdims=keepdims)).astype(dtype)
            np.testing.assert_allclose(
                tn.sum(x, axis, keepdims=keepdims), want, rtol=2e-3 if dtype == np.float16 else 2e-5
            )
            assert tn.sum(x, axis, keepdims=keepdims).shape == want.shape


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int8, np.int64, np.bool_])
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_argmax(axis: Any, keepdims: bool, dtype: Any) -> None:
    x = np.random.default_rng(0).integers(0, 3, (5, 6, 7)).astype(dtype)
    for name in ("argmax", "argmin"):
        have = getattr(tn, name)(x, axis, keepdims=keepdims)
        want = getattr(np, name)(x, axis, keepdims=keepdims)
        assert have.dtype == np.int64 and have.shape == want.shape and (have == want).all()


@pytest.mark.parametrize(("axis", "error"), [((0, 0), ValueError), (3, ValueError), (-4, ValueError), ("a", TypeError)])
def test_axes_that_both_refuse(axis: Any, error: type[Exception]) -> None:
    x = np.ones((2, 3, 4))
    with pytest.raises((ValueError, TypeError)):
        np.sum(x, axis)
    with pytest.raises(error, match="sum: "):
        tn.sum(x, axis)


def test_axes_that_only_we_refuse() -> None:
    """np.sum(x, ()) is x. In a contract, no axes are all of them."""
    with pytest.raises(ValueError, match="sum: axis is empty, so nothing would be reduced; axis=None stands for all"):
        tn.sum(X, ())


@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
@pytest.mark.parametrize("dtype", ["f4", "f8", "i1", "i4", "i8", "u1", "?", ">i2"])
def test_cumulative(name: str, dtype: str) -> None:
    """Without an axis of all elements; narrow integers become wide ones."""
    mine, theirs = getattr(tn, name), getattr(np, name)
    x = np.random.default_rng(0).integers(0, 3, (4, 3, 5)).astype(dtype)
    for one in (x, x.T, x[::2], x[:0]):
        for axis in ((), (None,), (0,), (1,), (-1,)):
            have, want = mine(one, *axis), theirs(one, *axis)
            assert have.dtype == want.dtype.newbyteorder("=")
            np.testing.assert_array_equal(have, want)
    if dtype in ("f4", "f8"):
        out = np.empty(60, dtype)
        assert mine(x, out=out) is out
        np.testing.assert_array_equal(out, theirs(x))


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 0.5, -0.5, -1, -2, 2.5])
def test_pow(exponent: float) -> None:
    for dtype in TYPES:
        x = np.array([0.25, 1, 1.5, 2, 3, np.inf], dtype)
        close(tn.pow(x, exponent), np.asarray(np.power(x, exponent), dtype))
