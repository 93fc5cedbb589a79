"""Functions with the name of one of JAX's mean what JAX's do, and are called as people call those."""

from __future__ import annotations

import importlib.util
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from functional import assert_close
from namesakes import Namesake, assert_alike, assert_names_are_of_contracts, assert_suggests, namesakes

import tenon
import tenon.jax as tn
from tenon._frameworks import JaxFunction

MODULES = ["jax.nn", "jax.numpy", *(["flax.nnx"] if importlib.util.find_spec("flax") else [])]
PAIRS = list(namesakes(tn, MODULES))
REASONS = {
    "jax.numpy.identity": "the identity matrix there; an int is refused here",
    "jax.numpy.histogram": "there are 10 bins and the range is that of the data there; here both are required",
    "jax.numpy.roll": "without an axis it rolls the flattened array there; here an axis is required",
    "jax.numpy.select": "lists of conditions and choices there; lists are refused here",
}
X = jnp.asarray(np.random.default_rng(0).standard_normal((3, 4)), jnp.float32)


# ---- no call means something else ------------------------------------------------------------------------------------


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_positional_order_and_defaults(pair: Namesake) -> None:
    assert_alike(pair, REASONS)


def test_the_reasons_are_needed() -> None:
    assert {str(p) for p in PAIRS} >= REASONS.keys()
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
    assert_close(tn.pad(X, pad=(1, 2)), jnp.pad(X, ((0, 0), (1, 2))))
    assert_close(tn.repeat(X, reps=(2, 3)), jnp.tile(X, (2, 3)))


def test_spellings_name_what_contracts_have() -> None:
    assert_names_are_of_contracts(tenon.ops(), JaxFunction.spellings)


def test_gelu_is_the_approximation_unless_told() -> None:
    assert_close(tn.gelu(X), jax.nn.gelu(X))
    assert_close(tn.gelu(X, False), jax.nn.gelu(X, False))
    assert np.abs(np.asarray(tn.gelu(X) - tn.gelu(X, approximate=False))).max() > 1e-5
    assert_close(jax.grad(lambda x: tn.gelu(x).sum())(X), jax.grad(lambda x: jax.nn.gelu(x).sum())(X))


def test_softmax_takes_axis_and_where() -> None:
    where = X > -1
    assert_close(tn.softmax(X, 0), jax.nn.softmax(X, 0))
    assert_close(tn.softmax(X, 1, where), jax.nn.softmax(X, 1, where))


def test_clamp_passes_the_gradient_at_its_bounds() -> None:
    """As PyTorch and TensorFlow do: jax.lax.clamp has 0 there, and jnp.clip a half. docs/jax.md says so."""
    x = jnp.array([-2.0, -1.0, 0.0, 1.0, 2.0])
    assert jax.grad(lambda x: tn.clamp(x, -1.0, 1.0).sum())(x).tolist() == [0, 1, 1, 1, 0]
    with pytest.raises(TypeError, match=r"clamp: low is .*, needs a float"):
        tn.clamp(-1.0, x, 1.0)  # the order of jax.lax.clamp


def test_roles_that_are_easily_swapped_are_given_by_name() -> None:
    with pytest.raises(TypeError, match="scale_bias_relu"):
        tn.scale_bias_relu(X, X, X)
    assert_close(tn.scale_bias_relu(X, scale=2, bias=0.5), jax.nn.relu(X * 2 + 0.5))


# ---- as people call it -----------------------------------------------------------------------------------------------

NUMBERS = [2, 2.5, True, np.float32(2), np.float64(2), np.array(2.0), np.int32(2), jnp.asarray(2.0), jnp.float32(2)]


@pytest.mark.parametrize("number", NUMBERS, ids=repr)
def test_numbers_beside_arrays(number: Any) -> None:
    for dtype in ("float32", "bfloat16"):
        x = X.astype(dtype)
        for have, want in ((tn.add(x, number), jnp.add(x, number)), (tn.mul(number, x), jnp.multiply(number, x))):
            assert have.dtype == want.dtype
            np.testing.assert_allclose(np.asarray(have, np.float64), np.asarray(want, np.float64), rtol=1e-2)


def test_numbers_inside_of_transformations() -> None:
    assert_close(jax.jit(lambda x: tn.mul(x, 2))(X), X * 2)
    assert_close(jax.vmap(lambda x: tn.add(x, 2.0))(X), X + 2)
    assert_close(jax.grad(lambda s: tn.mul(X, s).sum())(3.0), X.sum())
    assert_close(tn.fuse("silu(x) * y")(X, 2.0), jax.nn.silu(X) * 2)


def test_a_name_that_does_not_exist_gets_a_suggestion() -> None:
    assert_suggests(tn, X)


def test_what_the_module_shows() -> None:
    assert set(dir(tn)) == {"fuse", "load", "ops", *tn.ops()}


def test_the_module_can_be_loaded_again() -> None:
    joined = len(tenon._adapters)
    again = importlib.reload(tn)
    assert again is tn and len(tenon._adapters) == joined
    assert_close(tn.softmax(X), jax.nn.softmax(X))


# ---- JAX's own cases -------------------------------------------------------------------------------------------------

UNARY = ["abs", "exp", "floor", "log", "sign", "sqrt", "square", "tanh"]
ACTIVATIONS = ["celu", "elu", "gelu", "hard_sigmoid", "hard_swish", "leaky_relu", "log_sigmoid", "mish", "relu", "selu"]
ACTIVATIONS += ["sigmoid", "silu", "softplus", "tanh", "identity"]


def close(have: Any, want: Any, dtype: str, what: str = "") -> None:
    assert (have.shape, have.dtype) == (want.shape, want.dtype), what
    bound = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 2e-6, "float64": 1e-12}[dtype]
    np.testing.assert_allclose(np.asarray(have, np.float64), np.asarray(want, np.float64), bound, bound, err_msg=what)


def assert_all_close(x: Any, dtype: str, without: set[str] = frozenset()) -> None:
    """Every function of one array, in one program each, which compiles once."""
    names = [n for n in (*UNARY, *ACTIVATIONS) if n not in without]
    theirs = [getattr(jnp if n in UNARY else jax.nn, n) for n in names]
    have = jax.jit(lambda x: [getattr(tn, n)(x) for n in names])(x)
    want = jax.jit(lambda x: [f(x) for f in theirs])(x)
    for name, mine, other in zip(names, have, want, strict=True):
        close(mine, other, dtype, name)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("shape", [(), (2, 0, 4), (2, 3, 4)], ids=str)
def test_functions_of_one_array(shape: Any, dtype: str) -> None:
    assert_all_close(jnp.asarray(np.random.default_rng(1).standard_normal(shape) * 3, dtype), dtype)


def test_numbers_at_the_edges() -> None:
    edges = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-30, 88.0, -88.0, 1e4, -1e4, 0.5, 3.0, -3.0]
    # hard_swish of -inf is its limit, 0; JAX multiplies by 0 and has NaN.
    assert_all_close(jnp.array(edges, jnp.float32), "float32", {"hard_swish"})
    assert tn.hard_swish(jnp.array([-jnp.inf]))[0] == 0


AXES = [None, 0, (-1,), (0, -1)]


@pytest.mark.parametrize("axis", AXES, ids=str)
@pytest.mark.parametrize("keepdims", [False, True])
def test_sum(axis: Any, keepdims: bool) -> None:
    for shape in ((2, 3, 4), (2, 0)):
        x = jnp.asarray(np.random.default_rng(0).standard_normal(shape))
        close(tn.sum(x, axis, keepdims=keepdims), jnp.sum(x, axis, keepdims=keepdims), "float64")


@pytest.mark.parametrize("axis", [None, 0, -1])
@pytest.mark.parametrize("keepdims", [False, True])
def test_argmax(axis: Any, keepdims: bool) -> None:
    x = jnp.asarray(np.random.default_rng(0).integers(0, 3, (2, 3, 4)))
    for name in ("argmax", "argmin"):
        have = getattr(tn, name)(x, axis, keepdims=keepdims)
        assert (have == getattr(jnp, name)(x, axis, keepdims=keepdims)).all()


@pytest.mark.parametrize(
    ("axis", "error", "message"),
    [
        ((), ValueError, "sum: axis is empty"),
        ((0, 0), ValueError, "sum"),
        (3, ValueError, "sum"),
        ("a", TypeError, "needs ints"),
    ],
    ids=str,
)
def test_axes_that_are_refused(axis: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        tn.sum(X, axis)


@pytest.mark.parametrize("axis", [0, -1])
def test_softmax(axis: int) -> None:
    for x in (X, X * 1e3, jnp.full((3, 4), -jnp.inf).at[:, 1].set(0), jnp.zeros((0, 4)), X.astype(jnp.float16)):
        close(tn.softmax(x, axis), jax.nn.softmax(x, axis), str(x.dtype))


@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
@pytest.mark.parametrize("axis", [None, 0, -1])
def test_cumulative(name: str, axis: int | None) -> None:
    """Without an axis of all elements. Gradients as well, where elements are 0."""
    mine, theirs = getattr(tn, name), getattr(jnp, name)
    x = jnp.asarray(np.random.default_rng(0).standard_normal((3, 4))).at[1, 2].set(0.0)
    close(mine(x, axis), theirs(x, axis), "float64")
    slope = jax.grad(lambda x: (mine(x, axis) ** 2).sum())
    np.testing.assert_allclose(slope(x), jax.grad(lambda x: (theirs(x, axis) ** 2).sum())(x), rtol=1e-12, atol=1e-12)
    for dtype in (jnp.int8, jnp.int32, jnp.uint32):
        whole = jnp.arange(1, 7).reshape(2, 3).astype(dtype)
        have, want = mine(whole, axis), theirs(whole, axis)
        assert have.dtype == want.dtype
        assert have.tolist() == want.tolist()
    assert_close(jax.jit(jax.vmap(lambda row: mine(row)))(x), theirs(x, 1))


BROADCAST = [((), (4,)), ((2, 3, 4), (1, 4)), ((0, 4), (4,))]


@pytest.mark.parametrize(("a", "b"), BROADCAST, ids=str)
def test_functions_of_two_arrays(a: Any, b: Any) -> None:
    random = np.random.default_rng(0)
    for left, right in (("float32", "float32"), ("float32", "float16"), ("bfloat16", "float16"), ("int32", "float32")):
        x, y = (
            jnp.asarray(random.standard_normal(a) * 4).astype(left),
            jnp.asarray(random.standard_normal(b)).astype(right),
        )
        close(tn.add(x, y), jnp.add(x, y), "float32")
    x = jnp.abs(jnp.asarray(random.standard_normal(a)))
    for exponent in (2, 0.5, -1) if a == (2, 3, 4) else (0,):
        close(tn.pow(x, exponent), jnp.pow(x, exponent), "float64")
