"""Every kind of bad call gets a message in the caller's terms, and the exception that fits."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Callable
from typing import Any

import here
import pytest
import torch

import tenon
import tenon.torch as tn

X = here.randn(4, 5)
T = here.tensor([0, 1, 2, 3])

# What is called; the exception; what its message has to contain, in the words of contracts.
BAD: list[tuple[str, Callable[[Any], Any], type[Exception], str]] = [
    ("rank", lambda s: s.bias_act(here.tensor(1.0), X), ValueError, "bias_act: x has rank 0, needs at least 1"),
    (
        "shape",
        lambda s: s.scale_bias_relu(X, scale=here.ones(4), bias=X),
        ValueError,
        "scale_bias_relu: scale has shape (4)",
    ),
    ("broadcast", lambda s: s.softmax(X, mask=here.ones(3, 5) > 0), ValueError, "softmax: mask has shape (3, 5)"),
    ("type", lambda s: s.softmax(here.arange(3)), TypeError, "softmax: x has type i64, needs f16, bf16, f32 or f64"),
    ("two types", lambda s: s.cross_entropy(X, T.to(torch.int16)), TypeError, "cross_entropy: target has type i16"),
    ("unknown type", lambda s: s.softmax(X.to(torch.float8_e8m0fnu)), TypeError, "Tenon"),
    ("axis", lambda s: s.softmax(X, axis=2), ValueError, "softmax: axis is 2, x has rank 2"),
    ("axes", lambda s: s.sum(X, [0, 0]), ValueError, "sum: axes names dimension 0 of x twice"),
    ("choice", lambda s: s.cross_entropy(X, T, reduction="max"), ValueError, "cross_entropy: reduction is 'max'"),
    ("condition", lambda s: s.softmax(X, axis=0, causal=True), ValueError, "softmax: needs not causal or"),
    ("kind", lambda s: s.softmax(X, axis=0.5), (TypeError, RuntimeError), "axis"),
    ("size", lambda s: s.sum_grad(here.tensor(1.0), [2, -1]), ValueError, "sum_grad: shape has a size of -1"),
    ("huge", lambda s: s.sum_grad(here.tensor(1.0), [2**40, 2**40]), ValueError, "larger than 2^63 bytes"),
]


# What functions with torch's names say instead.
IN_TORCHS_WORDS = {
    "type": "softmax: input has type i64, needs f16, bf16, f32 or f64",
    "axis": "softmax: dim is 2, input has rank 2",
    "axes": "sum: dim names dimension 0 of input twice",
    "kind": "softmax: dim is 0.5, needs an int",
}


@pytest.mark.parametrize("space", [tn, torch.ops.tenon], ids=["tn", "torch.ops"])
@pytest.mark.parametrize("bad", BAD, ids=[b[0] for b in BAD])
def test_bad_calls(space: Any, bad: tuple[str, Callable[[Any], Any], type[Exception], str]) -> None:
    name, call, error, message = bad
    for _ in range(3):  # the second time, too
        with pytest.raises(error, match=re.escape(IN_TORCHS_WORDS.get(name, message) if space is tn else message)):
            call(space)


@pytest.mark.parametrize("bad", BAD, ids=[b[0] for b in BAD])
def test_bad_calls_that_would_be_recorded(bad: tuple[str, Callable[[Any], Any], type[Exception], str]) -> None:
    name, call, error, message = bad

    class Recording:
        """The same operators on tensors that require gradients."""

        def __getattr__(self, name: str) -> Callable[..., Any]:
            def function(x: torch.Tensor, *args: Any, **named: Any) -> Any:
                smooth = x.is_floating_point() and x.dtype.itemsize > 1
                return getattr(tn, name)(x.clone().requires_grad_(smooth), *args, **named)

            return function

    with pytest.raises(error, match=re.escape(IN_TORCHS_WORDS.get(name, message))):
        call(Recording())


def test_none_for_a_tensor() -> None:
    with pytest.raises(TypeError, match="softmax: input must be a tensor, not None"):
        tn.softmax(None)
    with pytest.raises(TypeError, match="layer_norm_grad: dy must be a tensor, not None"):
        torch.ops.tenon.layer_norm_grad(X, None, None, X[:, 0], X[:, 0], None)
    with pytest.raises(TypeError, match="layer_norm_grad: dy must be a tensor, not None"):
        torch.ops.tenon.layer_norm_grad.raw(X, None, None, X[:, 0], X[:, 0], None)
    with pytest.raises(TypeError, match="softmax: input must be a tensor, not list"):
        tn.softmax([1.0, 2.0])


def test_names_that_are_not_there() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'axes'"):
        tn.softmax(X, axes=1)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'input'"):
        tn.softmax()
    with pytest.raises(TypeError, match="batch_norm\\(\\) missing 2 required positional arguments: 'running_mean'"):
        tn.batch_norm(X)
    with pytest.raises(RuntimeError, match="axes"):
        torch.ops.tenon.softmax(X, axes=1)
    with pytest.raises(AttributeError):
        tn.softmin  # noqa: B018


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: tn.add(X, None), "add: other must be a tensor, not None"),
        (lambda: tn.add(X, None, alpha=2), "add: other must be a tensor, not None"),
        (lambda: tn.sub(X, X[:, 0], alpha=2), "sub: other has shape (4), which does not broadcast to *s = (4, 5)"),
        (lambda: tn.div(X, X[:, 0], rounding_mode="floor"), "div: other has shape (4), which does not broadcast"),
        (lambda: tn.clamp(X, "a"), "clamp: min is 'a', needs a float"),
        (lambda: tn.clamp(X, X[0], X[:, 0]), "clamp: max has shape (4), which does not broadcast"),
        (lambda: tn.leaky_relu(X, "x"), "leaky_relu: negative_slope is 'x', needs a float"),
        (lambda: tn.layer_norm(X, weight=X[:, 0]), "layer_norm: weight has shape (4)"),
        (lambda: tn.batch_norm(X, X[0], X[0], X), "batch_norm: weight has rank 2, needs 1"),
        (lambda: tn.batch_norm(X, X, X[0]), "batch_norm: running_mean has rank 2, needs 1"),
        (lambda: tn.gelu(X.int(), approximate="tanh"), "gelu: input has type i32"),
        (lambda: tn.mse(X, X, weight=X[0]), "mse: weight has shape [5], needs [4, 5] like input"),
        (lambda: tn.bce_with_logits(X, X[0], reduction="none"), "bce_with_logits: target has"),
        (lambda: tn.square(X, out=here.zeros(2)), "square: out has shape [2], needs [4, 5]"),
        (lambda: tn.exp(X.int(), out=X), "exp: input has type i32"),
    ],
)
def test_what_is_said_is_what_the_caller_wrote(call: Callable[[], Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=re.escape(message)):
        call()


def test_numbers_alone() -> None:
    for call, message in (
        (lambda: tn.add(2, 3), "add: input and other are numbers; one of them has to be a tensor"),
        (lambda: tn.fuse("x * y")(2, 3), "formula: x and y are numbers; one of them has to be a tensor"),
    ):
        with pytest.raises(TypeError, match=message):
            call()
        with pytest.raises(Exception, match="these are numbers, and one of them has to be a tensor"):
            torch.compile(call, fullgraph=True, backend="eager")()


def test_a_formula_without_one_of_its_inputs() -> None:
    with pytest.raises(TypeError, match=re.escape("fuse('silu(x) * y')() missing 1 required positional argument: 'y'")):
        tn.fuse("silu(x) * y")(X)
    with pytest.raises(TypeError, match=re.escape("fuse('x * y', fast=True)() missing 1 required")):
        tn.fuse("x * y", fast=True)(X)


@pytest.mark.parametrize(
    ("space", "name", "message"),
    [
        (tn, "huber_loss", "did you mean 'huber'"),
        (tn, "gumbel_softmax", "Tenon does not have it, and torch.nn.functional.gumbel_softmax works beside Tenon"),
        (tn, "softmin", "torch.nn.functional.softmin works beside"),
        (tn, "clip_grad_norm_", "did you mean 'optim.clip_grad_norm_'"),
        (tn, "LayerNorm", "did you mean 'nn.LayerNorm'"),
        (tn, "Adam", "did you mean 'optim.Adam'"),
        (tn, "NAdam", "torch.optim.NAdam works beside"),
        (
            tn.nn,
            "LocalResponseNorm",
            "module 'tenon.torch.nn' has no attribute 'LocalResponseNorm': Tenon does not have it, and torch.nn",
        ),
        (tn.nn, "LayerNrom", "did you mean 'LayerNorm'"),
        (tn.optim, "NAdam", "torch.optim.NAdam works beside"),
        (tn.optim, "AdmaW", "did you mean 'AdamW'"),
        (tenon, "fuse", "each framework has its own: import tenon.torch as tn, or tenon.jax"),
        (tenon, "softmax", "then tn.softmax"),
    ],
)
def test_names_that_people_look_for(space: Any, name: str, message: str) -> None:
    with pytest.raises(AttributeError, match=re.escape(message)):
        getattr(space, name)


def test_more_dimensions_than_there_are() -> None:
    x = here.zeros([1] * 17)
    for call, name in ((tn.softmax, "input"), (torch.ops.tenon.softmax, "x")):
        with pytest.raises(ValueError, match=f"{name} has rank 17"):
            call(x)


def test_sparse_and_other_layouts_are_refused() -> None:
    with pytest.raises(NotImplementedError):
        tn.softmax(X.to_sparse())


def test_overlapping_memory_is_refused() -> None:
    shared = here.zeros(1).expand(5)
    with pytest.raises(ValueError, match="running_mean is written, but some of its elements share memory"):
        tn.batch_norm(X, shared, here.ones(5), training=True)
    same = here.zeros(5)
    with pytest.raises(ValueError, match="both written, but share memory"):
        tn.batch_norm(X, same, same, training=True)


def test_lists(plugin: pathlib.Path) -> None:
    with pytest.raises((ValueError, NotImplementedError)):
        tn.joined([])
    with pytest.raises(ValueError, match=r"joined: .*differs from the others"):
        tn.joined([here.ones(2, 3), here.ones(2, 4)])
    with pytest.raises(ValueError, match="step_list: gs has 1 tensors, but ps has 2"):
        tn.step_list([here.ones(2), here.ones(3)], [here.ones(2)])
    assert tn.joined([here.ones(2)] * 40).shape == (80,)  # more than fit on a stack


def test_nothing_is_left_behind_by_a_failure() -> None:
    """A good call after many bad ones works, and the message of one does not show up in another."""
    for _ in range(200):
        with pytest.raises(ValueError):
            tn.softmax(here.ones(2, 3), mask=here.ones(4, dtype=torch.bool))
    assert torch.equal(tn.softmax(here.zeros(2)), here.full((2,), 0.5))
    with pytest.raises(TypeError, match="i64"):
        tn.softmax(here.arange(3))


def test_no_memory_is_told() -> None:
    with pytest.raises(RuntimeError, match="sum_grad: torch has no memory for dx"):
        tn.sum_grad(here.tensor(1.0), [2**60])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_two_devices() -> None:
    cpu, gpu = torch.randn(3, 4), torch.randn(3, 4, device="cuda")
    for call in (tn.softmax, torch.ops.tenon.softmax):
        x = "input" if call is tn.softmax else "x"
        with pytest.raises(RuntimeError, match=f"softmax: mask is on cuda:0, but {x} is on cpu"):
            call(cpu, mask=gpu > 0)
        with pytest.raises(RuntimeError, match=f"softmax: mask is on cpu, but {x} is on cuda:0"):
            call(gpu, mask=cpu > 0)
    assert torch.equal(tn.softmax(torch.zeros(2, device="cuda")).cpu(), torch.full((2,), 0.5))


@pytest.mark.parametrize(
    "call",
    [
        lambda x: tn.layer_norm(x, weight=x[0, :3]),
        lambda x: tn.softmax(x, mask=x[:, 0] > 0),
        lambda x: tn.gelu(x.int()),
        lambda x: tn.swiglu(x, x[0]),
        lambda x: tn.add(x, x[:, 0]),
        lambda x: tn.cross_entropy(x, x[0].long()),
        lambda x: tn.cross_entropy(x, x[:, 0].short()),
    ],
)
def test_the_same_sentence_without_data(call: Callable[[torch.Tensor], Any]) -> None:
    """Where only shapes are known (torch.compile, meta tensors) they are compared in Python."""
    said = []
    for device in (X.device, "meta"):
        with pytest.raises((TypeError, ValueError)) as raised:
            call(X.to(device))
        said.append(str(raised.value))
    assert said[0] == said[1]


def test_attributes_are_explained() -> None:
    x, c = here.randn(4, 3), here.tensor(2.0).requires_grad_()
    for call, message in (
        (lambda: tn.sum(x, 0.5), "sum: dim is 0.5, needs ints"),
        (lambda: tn.softmax(x, axis="a"), "softmax: dim is 'a', needs an int"),
        (lambda: tn.softmax(x, dim=None), "softmax: dim is None, needs an int; leave it out for the default, -1"),
        (lambda: tn.scale(x, c), "scale: c is a number, and its gradient would be lost"),
        (lambda: tn.gelu(x, out=[1]), "gelu: out must be a tensor, not list"),
        (lambda: tn.add_constant(x, None), "add_constant: c is None, needs a float"),
        (lambda: tn.sum(x, here.tensor([1])), r"sum: dim is tensor\(.*\), needs ints"),
        (lambda: tn.clip_grad_norm(x, 1.0), "clip_grad_norm: g must be a list of tensors, not Tensor"),
        (lambda: tn.clip_grad_norm([x, None], 1.0), r"clip_grad_norm: g\[1\] must be a tensor, not NoneType"),
        (lambda: tn.clip_grad_norm([x], None), "clip_grad_norm: max_norm must be a number or a tensor without"),
        (lambda: tn.clip_grad_norm([x], "a"), "clip_grad_norm: max_norm must be a number .* not str"),
        (lambda: tn.clip_grad_norm([x, x.double()], 1.0), r"g\[1\] has type f64, needs f32: T is f32 from g\[0\]"),
    ):
        with pytest.raises(TypeError, match=message):
            call()
    for call, message in (
        (lambda: tn.clip_grad_norm([x], 10**400), "clip_grad_norm: max_norm is 10*, which is no f32"),
        (lambda: tn.fuse("times(x: T[*s], n: i32[]) -> y: T[*s] : x * n")(x, 1.5), "times: n is 1.5, which is no i32"),
        (lambda: tn.softmax(x, axis=2**64), "softmax: dim is 18446744073709551616, beyond 64 bits"),
        (lambda: tn.dropout(x, 1.5), "dropout: p is 1.5, must be from 0 to 1"),
        (lambda: tn.dropout(x, float("nan")), "dropout: p is nan, must be from 0 to 1"),
        (lambda: tn.celu(x, 0.0), "celu: needs alpha != 0, but alpha is 0.0"),
        (lambda: tn.huber(x, x, delta=-1.0), "huber: needs delta > 0, but delta is -1.0"),
        (lambda: tn.huber(x, x, "none", delta=-1.0), "huber: needs delta > 0, but delta is -1.0"),
        (lambda: tn.mse(x, x, reduction=None), "mse: reduction is None, must be 'mean', 'sum' or 'none'"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    with pytest.raises(ValueError, match="k is 9007199254740993, and numbers of a formula have 53 bits"):
        tn.fuse("f(x: i64[*s], k: int = 0) -> y: bool[*s] : x == k")(here.arange(3), k=2**53 + 1)
