"""Formulas in PyTorch: one operator for all of them, with gradients, fake kernels, torch.compile and torch.export."""

from __future__ import annotations

import ctypes
import gc
import io
import pathlib
import weakref
from collections.abc import Callable
from typing import Any

import here
import pytest
import torch
import torch.nn.functional as F
from cases import assert_close, tensors
from pickles import check_pickles
from test_fuse_updates import STEP
from torch import Tensor
from torch._dynamo.backends.common import aot_autograd
from torch.autograd import gradcheck, gradgradcheck

import tenon
import tenon.torch as tn
from tenon.contract import fused
from tenon.torch._fuse import _on_one_line, fused_op

NORM = (
    "norm(x: T[*r, c], w: W[c]?, eps: float = 1e-5, sign: 'plus'|'minus' = 'plus') -> y: T[*r, c] : "
    "n = x * rsqrt(mean(x * x, -1) + eps); t = n * w if has(w) else n; y = t if sign == 'plus' else -t"
)


def norm(x: Tensor, w: Tensor | None = None, eps: float = 1e-5, sign: str = "plus") -> Tensor:
    n = x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps)
    t = n if w is None else n * w
    return t if sign == "plus" else -t


def _sum_to(x: Tensor, b: Tensor) -> Tensor:
    """Of the shape of b, whichever of the two has more dimensions."""
    return torch.broadcast_tensors(x, b)[0].sum_to_size(b.shape)


PACKS = "f(x: T[*a], b: T[*b]) -> y: T[]"
# formula, the same in torch, shapes of the inputs
FORMULAS: list[tuple[str, Callable[..., Any], list[tuple[int, ...]]]] = [
    ("relu(x * s + b)", lambda x, s, b: F.relu(x * s + b), [(4, 5), (5,), (4, 1)]),
    ("silu(x) * y", lambda x, y: F.silu(x) * y, [(3, 4), (3, 4)]),
    ("x * tanh(softplus(x))", F.mish, [(7,)]),
    ("exp(x - logsumexp(x, -1))", lambda x: F.softmax(x, -1), [(3, 6)]),
    ("mean((x - t) ** 2)", F.mse_loss, [(3, 4), (3, 4)]),
    ("sum(x, -1)", lambda x: x.sum(-1), [(2, 3, 4)]),
    ("logsumexp(x, -1) * 2", lambda x: x.logsumexp(-1) * 2, [(3, 0)]),
    ("exp(logsumexp(x)) - b", lambda x, b: x.flatten().logsumexp(0).exp() - b, [(0, 4), (2,)]),
    ("sum_to(x, b) * b", lambda x, b: x * b, [(4,), (3, 4)]),
    ("x + sum_to(x * b, b) * b", lambda x, b: x + (x * b).sum(0) * b, [(3, 4), (4,)]),
    ("sum_to(x, b) * 2", lambda x, b: _sum_to(x, b) * 2, [(1, 2, 2), (2, 1, 2)]),
    ("mean(sum_to(x, b)) + mean(x - b)", lambda x, b: _sum_to(x, b).mean() + (x - b).mean(), [(3, 1), (1, 4)]),
    ("var(tanh(sum_to(x, b)) * x)", lambda x, b: (_sum_to(x, b).tanh() * x).var(correction=0), [(1, 3), (4, 1)]),
    ("sum(sum_to(x, x * b))", lambda x, b: _sum_to(x, x * b).sum(), [(3, 1), (1, 4)]),
    (f"{PACKS} : sum(tanh(sum_to(x, b)))", lambda x, b: _sum_to(x, b).tanh().sum(), [(4,), (3, 4)]),
    (f"{PACKS} : mean(sum_to(x, b) * x)", lambda x, b: (_sum_to(x, b) * x).mean(), [(3, 1), (2, 1, 4)]),
    (f"{PACKS} : sum(count(sum_to(x, b)) * x)", lambda x, b: (b.numel() * x).sum(), [(4,), (3, 4)]),
    (f"{PACKS} : sum(sum_to(b, sum_to(x, b)) ** 2) * min(x)", lambda x, b: b.square().sum() * x.min(), [(4,), (3, 4)]),
    (f"{PACKS} : sum(expand(2.0, sum_to(x, b))) * max(x)", lambda x, b: 2 * b.numel() * x.max(), [(4,), (3, 4)]),
    (f"{PACKS} : sum(sum_to(sum_to(x, b), x))", lambda x, b: _sum_to(_sum_to(x, b), x).sum(), [(4,), (3, 4)]),
    (
        "f(x: T[c], b: T[n, c]) -> y: T[], z: T[n] : y = sum(sum_to(x, b)); z = sum(sum_to(x, b), -1)",
        lambda x, b: (_sum_to(x, b).sum(), _sum_to(x, b).sum(-1)),
        [(4,), (3, 4)],
    ),
    (
        "a = abs(x) + 0.5; y = exp2(x) + log2(a) * log10(a) + tan(x / 3) + atan(x) * ceil(x) + trunc(2 * x) * x",
        lambda x: (
            x.exp2()
            + (x.abs() + 0.5).log2() * (x.abs() + 0.5).log10()
            + (x / 3).tan()
            + x.atan() * x.ceil()
            + (2 * x).trunc() * x
        ),
        [(3, 4)],
    ),
    (
        "t = tanh(x) * 0.9; y = sinh(t) / cosh(x) + asinh(x) * acosh(t + 2.5) + atanh(t) + asin(t) * acos(t)",
        lambda x: (
            (0.9 * x.tanh()).sinh() / x.cosh()
            + x.asinh() * (0.9 * x.tanh() + 2.5).acosh()
            + (0.9 * x.tanh()).atanh()
            + (0.9 * x.tanh()).asin() * (0.9 * x.tanh()).acos()
        ),
        [(3, 4)],
    ),
    (
        "a = abs(x) + 0.5; y = erfc(x) * erfinv(0.9 * tanh(x)) + lgamma(a) * digamma(a) + polygamma(1, a)",
        lambda x: (
            x.erfc() * (0.9 * x.tanh()).erfinv()
            + (x.abs() + 0.5).lgamma() * (x.abs() + 0.5).digamma()
            + torch.polygamma(1, x.abs() + 0.5)
        ),
        [(3, 4)],
    ),
    ("atan2(x, w) * logaddexp(x, w)", lambda x, w: torch.atan2(x, w) * torch.logaddexp(x, w), [(3, 4), (4,)]),
    (
        "relu6(5 * x) + hardtanh(x) * hardtanh(x, -3, 0.7) + where(isnan(x) or isinf(x), 0, x) * isfinite(x)",
        lambda x: F.relu6(5 * x) + F.hardtanh(x) * F.hardtanh(x, -3, 0.7) + x,
        [(3, 4)],
    ),
    ("softmax(x) * x", lambda x: F.softmax(x, -1) * x, [(3, 4)]),
    ("log_softmax(x, axis=1)", lambda x: F.log_softmax(x, 1), [(2, 3, 4)]),
    ("norm(x, -1) * std(x) + norm(w)", lambda x, w: x.norm(dim=-1) * x.std(correction=0) + w.norm(), [(3, 4), (4,)]),
    (
        "gate(a, b) = a * sigmoid(b); y = gate(x, w) + gate(w, x)",
        lambda x, w: x * w.sigmoid() + w * x.sigmoid(),
        [(3, 4), (4,)],
    ),
    ("prod(x, -1) + prod(w) * 2", lambda x, w: x.prod(-1) + w.prod() * 2, [(3, 4), (2, 2)]),
    ("prod(x, axis=0)", lambda x: x.prod(0), [(3, 4)]),
    ("sum(x, axis=0)", lambda x: x.sum(0), [(3, 4)]),
    ("x - mean(x, axis=[0, 2])", lambda x: x - x.mean((0, 2), keepdim=True), [(2, 3, 4)]),
    ("mean(x, axis=[2, 3])", lambda x: x.mean((2, 3)), [(2, 3, 4, 2)]),
    ("max(x, axis=1) * 2 + min(x, axis=1)", lambda x: x.amax(1) * 2 + x.amin(1), [(2, 3, 4)]),
    ("t = exp(x - max(x, axis=1)); t / sum(t, axis=1)", lambda x: F.softmax(x, 1), [(2, 3, 4)]),
    ("logsumexp(x * w, axis=-2) * sum(x)", lambda x, w: (x * w).logsumexp(-2) * x.sum(), [(2, 3, 4), (2, 3, 4)]),
    (
        "f(x: T[n, c, *s], g: T[c], b: T[c]) -> y: T[n, c, *s] : "
        "(x - mean(x, axis=[n, s])) * rsqrt(var(x, axis=[n, s]) + 1e-5) * g + b",
        lambda x, g, b: F.batch_norm(x, None, None, g, b, training=True),
        [(2, 3, 4), (3,), (3,)],
    ),
    (
        "f(x: T[n, c, *s]) -> y: T[n, c], z: T[*s], v: T[c] : "
        "y = mean(x, s); z = max(x, axis=[n, c]); v = var(x, [0, s])",
        lambda x: (x.mean(-1), x.amax((0, 1)), x.var((0, 2), correction=0)),
        [(2, 3, 4)],
    ),
    ("y = x * 2; z = sin(x) + b", lambda x, b: (x * 2, x.sin() + b), [(3, 4), (4,)]),
    (
        "f(x: T[n, c, *s], b: T[c]) -> y: T[n, c, *s] : gelu(x + b)",
        lambda x, b: F.gelu(x + b[:, None]),
        [(2, 3, 4), (3,)],
    ),
    (NORM, norm, [(2, 3, 5), (5,)]),
]
IDS = [text[:24] for text, _, _ in FORMULAS]


def inputs(shapes: list[tuple[int, ...]], dtype: torch.dtype = torch.float64) -> list[Tensor]:
    return [here.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize(("formula", "same", "shapes"), FORMULAS, ids=IDS)
def test_values(formula: str, same: Callable[..., Any], shapes: list[tuple[int, ...]], dtype: torch.dtype) -> None:
    given = [t.detach() for t in inputs(shapes, dtype)]
    want = tensors(same(*(t.double() for t in given)))
    for h, w in zip(tensors(tn.fuse(formula)(*given)), want, strict=True):
        assert h.shape == w.shape and h.dtype == dtype
        assert_close(h, w.to(dtype), "bf16" if dtype == torch.bfloat16 else "f32")


@pytest.mark.parametrize(("formula", "same", "shapes"), FORMULAS, ids=IDS)
def test_gradients(formula: str, same: Callable[..., Any], shapes: list[tuple[int, ...]]) -> None:
    del same
    function = tn.fuse(formula)
    assert gradcheck(function, inputs(shapes))
    assert gradgradcheck(function, inputs(shapes))


@pytest.mark.parametrize("given", [False, True], ids=["absent", "given"])
@pytest.mark.parametrize(
    "formula",
    [
        "x + sum(sin((w if has(w) else 0.5) + b) + x, -1)",
        "x + mean((w if has(w) else 0.5) * b)",
        "x * sum(where(has(w), w * b, b * 2), -1)",
        "x * logsumexp(tanh(w if has(w) else 0.5) * b + 0 * x)",
    ],
)
def test_gradients_beside_an_optional_input(formula: str, given: bool) -> None:
    """Where w is absent, so are the dimensions that only w would have had."""
    function = tn.fuse(f"f(x: T[n, c], w: T[n, c]?, b: T[n]) -> y: T[n, c] : {formula}")
    x, w, b = inputs([(3, 4), (3, 4), (3,)])
    args = (x, b, w) if given else (x, b)
    assert gradcheck(lambda x, b, w=None: function(x, w, b), args)
    assert gradgradcheck(lambda x, b, w=None: function(x, w, b), args)


# Inductor is slow: two formulas are enough for it.
COMPILED = [("aot_eager", f, shapes) for f, _, shapes in FORMULAS]
COMPILED += [("inductor", f, shapes) for f, _, shapes in FORMULAS if f in (FORMULAS[0][0], NORM)]


@pytest.mark.parametrize(("backend", "formula", "shapes"), COMPILED)
def test_compile(backend: str, formula: str, shapes: list[tuple[int, ...]]) -> None:
    torch._dynamo.reset()
    function = tn.fuse(formula)

    def loss(*given: Tensor) -> Tensor:
        made = function(*given)
        return torch.stack([(o * o).sum() for o in (made if isinstance(made, tuple) else (made,))]).sum()

    given = inputs(shapes)
    want = torch.autograd.grad(loss(*given), given)
    have = torch.autograd.grad(torch.compile(loss, backend=backend, fullgraph=True, dynamic=True)(*given), given)
    for h, w in zip(have, want, strict=True):
        assert_close(h, w)


def test_detach() -> None:
    x, w = inputs([(3, 4), (4,)])
    function = tn.fuse("x * detach(x * w) + w * detach(norm(x, -1))")

    def same(x: Tensor, w: Tensor) -> Tensor:
        return x * (x * w).detach() + w * x.norm(dim=-1, keepdim=True).detach()

    assert_close(function(x, w), same(x, w))
    for h, want in zip(
        torch.autograd.grad(function(x, w).sin().sum(), (x, w), create_graph=True),
        torch.autograd.grad(same(x, w).sin().sum(), (x, w), create_graph=True),
        strict=True,
    ):
        assert_close(h, want)
        for second, other in zip(
            torch.autograd.grad(h.square().sum(), (x, w), retain_graph=True),
            torch.autograd.grad(want.square().sum(), (x, w), retain_graph=True),
            strict=True,
        ):
            assert_close(second, other)
    assert torch.equal(torch.autograd.grad(tn.fuse("detach(x) * 2")(x).sum(), x)[0], torch.zeros_like(x))


def test_norm_and_std_of_zeros() -> None:
    """Their derivative is 0 there, as torch's is."""
    x = torch.zeros(3, 4, dtype=torch.float64, device=here.DEVICE, requires_grad=True)
    for formula in ("norm(x, -1)", "std(x, axis=0)", "norm(x)"):
        made = tn.fuse(formula)(x)
        (grad,) = torch.autograd.grad(made.sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(grad.sum(), x)
        assert not made.any() and not grad.any() and not second.any()


def test_products_with_zeros() -> None:
    x = torch.tensor([[1.5, -2.0, 3.0], [0.0, -2.0, 3.0], [0.0, 0.0, 3.0]], dtype=torch.float64, device=here.DEVICE)
    x.requires_grad_()
    have, want = tn.fuse("prod(x, -1)")(x), x.prod(-1)
    assert torch.equal(have, want)
    (h,) = torch.autograd.grad(have.sum(), x, create_graph=True)
    (w,) = torch.autograd.grad(want.sum(), x, create_graph=True)
    assert_close(h, w)
    first = [torch.autograd.grad(g[:2].square().sum(), x, retain_graph=True)[0][:2] for g in (h, w)]
    assert_close(*first)


@pytest.mark.parametrize(("rows", "columns"), [(3, 4), (0, 4), (3, 0)])
def test_any_and_all(rows: int, columns: int) -> None:
    x = here.randn((rows, columns)) > 0.5
    y = x.float()
    for axis in (0, 1):
        assert torch.equal(tn.fuse(f"any(x, axis={axis})")(y), x.any(axis))
        assert torch.equal(tn.fuse(f"all(x > 0, axis={axis})")(y), x.all(axis))
    assert torch.equal(tn.fuse("any(x)")(y), x.any()) and torch.equal(tn.fuse("all(x)")(y), x.all())


@pytest.mark.parametrize("formula", ["silu(x) * w", "sum(x, -1) * w", "x + w * mean(x)", "x * mean(w)"])
def test_a_plain_number_for_a_tensor(formula: str) -> None:
    function = tn.fuse(formula)
    (x,) = inputs([(3, 4)], torch.float32)
    for value in (2.5, 3, True):
        want = function(x, torch.tensor(float(value)))
        assert_close(function(x, value), want)
        assert_close(function(x=x, w=value), want)
    assert function(x.bfloat16(), 2.5).dtype == torch.bfloat16
    (have,) = torch.autograd.grad(function(x, 2.5).sum(), x)
    (want,) = torch.autograd.grad(function(x, torch.tensor(2.5)).sum(), x)
    assert_close(have, want)
    compiled = torch.compile(lambda a: function(a, 2.5), backend="aot_eager", fullgraph=True)
    assert_close(compiled(x), function(x, 2.5))
    with pytest.raises(TypeError, match="one of them has to be a tensor"):
        function(1.0, 2.0)


def test_integers_without_a_contract() -> None:
    """What takes the bits of its inputs is a formula of integers."""
    x = torch.arange(-6, 6, dtype=torch.int32, device=here.DEVICE)
    y = torch.arange(12, dtype=torch.int32, device=here.DEVICE) % 5
    assert torch.equal(tn.fuse("x >> 2 & 3")(x), x >> 2 & 3)
    assert torch.equal(tn.fuse("(x ^ y | 8) + ~y")(x, y), (x ^ y | 8) + ~y)
    assert torch.equal(tn.fuse("sum(x << y, -1)")(x, y), (x.long() << y.long()).sum())
    assert_close(tn.fuse("sqrt((x & 7) / 2)")(x), torch.sqrt((x & 7) / 2))
    with pytest.raises(TypeError, match="x has type f32, needs"):
        tn.fuse("x & 1")(torch.ones(3, device=here.DEVICE))
    with pytest.raises(ValueError, match=r"a power is written a \*\* b"):
        tn.fuse("x ^ 2")
    with pytest.raises(ValueError, match="this is a float; i64"):
        tn.fuse("x * 0.5 << 1")


def test_parameters_by_name() -> None:
    x, w = inputs([(3, 5), (5,)])
    function = tn.fuse(NORM)
    assert_close(function(w=w, x=x, sign="minus", eps=0.25), norm(x, w, 0.25, "minus"))
    assert_close(function(x), norm(x))
    compiled = torch.compile(lambda a: function(a, eps=0.5, sign="minus"), backend="aot_eager", fullgraph=True)
    assert_close(compiled(x), norm(x, None, 0.5, "minus"))
    assert gradcheck(lambda a, b: function(a, b, eps=0.5, sign="minus"), (x, w))
    assert gradcheck(lambda a: function(a, eps=0.5), (x,))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_branches_that_are_not_taken_have_no_gradient(dtype: torch.dtype) -> None:
    """0 times the derivative of the other branch would be NaN where that is infinite."""
    ends = [1e-30, 1.0, 50.0, 89.0, 1000.0, 1e30]
    x = here.tensor([-v for v in ends] + [0.0] + ends, dtype=dtype, requires_grad=True)
    one = torch.ones_like(x)
    negative = x <= 0
    cases = [
        (tn.elu, torch.where(negative, torch.exp(x), one)),
        (tn.celu, torch.where(negative, torch.exp(x), one)),
        (tn.fuse("where(x > 0, log(x) * 3, 0)"), torch.where(negative, 0 * one, 3 / x)),
        (tn.fuse("x if x < 2 else sqrt(2 - x) * exp(-x)"), torch.where(x < 2, one, torch.nan * one)),
        (tn.fuse("min(x, exp(x))"), one),
        (tn.fuse("max(x, -exp(-x))"), one),
    ]
    for function, want in cases:
        (have,) = torch.autograd.grad(function(x).double().sum(), x)
        assert_close(have, want.detach(), "bf16" if dtype == torch.bfloat16 else "f32")


@pytest.mark.parametrize(
    ("formula", "exact"),
    [
        ("exp(x)", torch.exp),
        ("sigmoid(x)", torch.sigmoid),
        ("silu(x)", lambda x: x * torch.sigmoid(x)),
        ("x * tanh(softplus(x))", lambda x: x * torch.tanh(F.softplus(x))),
    ],
)
def test_every_number_of_bf16(formula: str, exact: Callable[[Tensor], Tensor]) -> None:
    """Functions whose results are rounded to 8 bits are computed to 16 on the CPU: that must not show."""
    x = torch.arange(-(2**15), 2**15, dtype=torch.int16).view(torch.bfloat16)
    x = x[x.isfinite()]
    right = exact(x.double())
    unit = torch.pow(2.0, right.abs().clamp_min(2.0**-126).log2().floor() - 7)  # of the last bit
    errors = (tn.fuse(formula)(x).double() - right) / unit
    within = right.abs() < torch.finfo(torch.bfloat16).max
    assert within.sum() > 40000
    assert errors[within].abs().max() <= 0.501
    assert torch.equal(tn.fuse(formula)(torch.full((9,), torch.nan, dtype=torch.bfloat16)).isnan(), torch.ones(9) > 0)


@pytest.mark.parametrize("name", ["d_y", "o_y", "g_x", "_d_y", "ctx", "lambda", "tuple", "Tensor", "isinstance"])
def test_names_that_the_code_of_gradients_may_have(name: str) -> None:
    x = here.randn(5, requires_grad=True)
    for head in ("y = ", f"f({name}: T[*s], a: T[]) -> y: T[*s] : a * "):
        given = (x,) if head == "y = " else (x, 1.0)
        made = tn.fuse(f"{head}sin({name}) * exp({name})")(*given)
        assert_close(made, x.sin() * x.exp())
        for weight in (1.0, 5.0):
            (have,) = torch.autograd.grad((made * weight).sum(), x, retain_graph=True)
            assert_close(have, (x.sin() + x.cos()) * x.exp() * weight)


def test_one_gradient_of_two() -> None:
    x, y = here.randn(3, 4, requires_grad=True), here.randn(4)
    (tn.fuse("silu(x) * y")(x, y)).sum().backward()
    wanted = torch.autograd.grad((F.silu(x) * y).sum(), x)[0]
    assert_close(x.grad, wanted)
    only = tn.fuse("y = x * 2; z = sin(x) + b")(x, y)[1]
    assert_close(torch.autograd.grad(only.sum(), x)[0], x.cos())


@pytest.mark.parametrize("shapes", [[(3, 4), (3, 4)], [(3, 4), (4,)], [(3, 1), (2, 1, 4)], [(4,), (4,)]])
def test_rows_of_what_broadcasts(shapes: list[tuple[int, ...]]) -> None:
    x, y = inputs(shapes)
    function = tn.fuse("sum(x * y, -1)")
    assert_close(function(x, y), (x * y).sum(-1))
    assert gradcheck(function, (x, y)) and gradgradcheck(function, (x, y))
    compiled = torch.compile(lambda a, b: function(a.sin(), b), backend="aot_eager", fullgraph=True, dynamic=True)
    have, want = compiled(x, y), (x.sin() * y).sum(-1)
    assert_close(have, want)
    assert_close(list(torch.autograd.grad(have.sum(), (x, y))), list(torch.autograd.grad(want.sum(), (x, y))))


def test_layouts() -> None:
    function = tn.fuse("relu(x * s + b)")
    x = here.randn(6, 8).t()[::2]
    s, b = here.randn(1).expand(6), here.randn(4, 1)
    assert_close(function(x, s, b), F.relu(x * s + b))
    empty = here.zeros(0, 6, requires_grad=True)
    out = function(empty, s, here.zeros(1))
    out.sum().backward()
    assert out.shape == (0, 6) and empty.grad is not None


def test_gradients_are_laid_out_as_their_inputs() -> None:
    x = here.randn(2, 3, 4, 5).to(memory_format=torch.channels_last).requires_grad_()
    b, y = here.randn(3, requires_grad=True), here.randn(5, 4, 3, 2).permute(3, 2, 1, 0).requires_grad_()
    by_name = tn.fuse("f(x: T[n, c, *s], b: T[c]) -> y: T[n, c, *s] : relu(x + b)")
    calls = [
        (by_name(x, b), F.relu(x + b[:, None, None]), (x, b)),
        (tn.fuse("tanh(x + y)")(x, y), torch.tanh(x + y), (x, y)),
        (tn.fuse("exp(x) * y")(x, y), torch.exp(x) * y, (x, y)),
    ]
    for have, want, leaves in calls:
        assert_close(have, want)
        grads = torch.autograd.grad(have.sum(), leaves)
        assert [g.stride() for g in grads] == [t.stride() for t in leaves]
        assert_close(list(grads), list(torch.autograd.grad(want.sum(), leaves)))


def test_the_same_formula_is_the_same_function() -> None:
    assert tn.fuse("x + 1") is tn.fuse("x + 1")
    assert fused_op("x + 1") is fused_op("x + 1")
    assert "Contract:" in (tn.fuse("x + 1").__doc__ or "")


def test_random_numbers_are_the_same_in_the_gradient() -> None:
    drop = tn.fuse("where(rand(seed) < 0.5, 0, x * 2)")
    seed, x = here.tensor([3, 4]), here.randn(1000, requires_grad=True)
    y = drop(seed, x)
    y.sum().backward()
    kept = y.detach() != 0
    assert 300 < kept.sum() < 700
    assert x.grad is not None and torch.equal(x.grad, kept * 2.0)
    assert torch.equal(tn.dropout(x, seed=seed), tn.dropout(x, seed=seed))


@pytest.mark.parametrize(
    ("formula", "message"),
    [
        ("sofplus(x)", "did you mean 'softplus'.* at column 1\n  sofplus\\(x\\)\n  \\^"),
        ("x +", "expected a number, a name or '\\('"),
        ("x ^ 2", "a power is written a \\*\\* b"),
        ("2", "no inputs"),
        ("lambda * lambda_", "lambda and lambda_ are both lambda_ in Python; call one otherwise"),
        ("x\0+ y", "NUL character, at column 2: 'x\\\\x00\\+ y'"),
    ],
)
def test_bad_formulas(formula: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tn.fuse(formula)


def test_what_is_no_text() -> None:
    for bad in (None, 3, b"x", ["x"]):
        with pytest.raises(TypeError, match=f"a formula is a str, not {type(bad).__name__}"):
            tn.fuse(bad)


def test_bad_calls() -> None:
    function = tn.fuse("x * b")
    with pytest.raises(ValueError, match="b has shape"):
        function(here.randn(3, 4), here.randn(5))
    with pytest.raises(TypeError, match="formula: x has type i64, needs f16, bf16, f32 or f64"):
        function(here.arange(3), here.arange(3))
    with pytest.raises(TypeError):
        function(here.randn(3))
    with pytest.raises(TypeError, match="must be a tensor"):
        function(here.randn(3), None)
    with pytest.raises(ValueError, match="needs 'plus' or 'minus'"):
        tn.fuse(NORM)(here.randn(3), sign="times")
    with pytest.raises(NotImplementedError, match="g is a list of tensors"):
        tn.fuse("f(g: [T[*s]]) -> n: f32[] : sum(g * g)")
    with pytest.raises(NotImplementedError, match="no gradient"):
        tn.fuse("f(x: T[*r, c], b: T[~c]) -> y: T[*r, c] : x * b")(
            here.randn(2, 3, requires_grad=True), here.randn(3)
        ).sum().backward()


# A value that is repeated over the output, which dimension is the last one, dimensions of 1: formulas and shapes.
SHAPED: list[tuple[str, list[tuple[int, ...]]]] = [
    ("sum(x)**2", [(3, 2)]),
    ("log(mean(x))", [(3, 2)]),
    ("mean(sum(x, -1)**2)", [(3, 2)]),
    ("logsumexp(mean(x, -1))", [(3, 2)]),
    ("mean(x) * mean(y)", [(3, 2), (3, 2)]),
    ("f(x: T[*s]) -> y: T[*s] : sum(x * x)", [(3, 2)]),
    ("f(x: T[*s]) -> y: T[*s] : sum(x * x, -1)", [(3, 2)]),
    ("f(x: T[*r, c]) -> y: T[*r, c] : mean(x * x, -1)", [(3, 2)]),
    ("f(x: T[*s], w: T[]) -> y: T[*s] : w * mean(x)", [(4,), ()]),
    ("f(x: T[~*s], b: T[~*s]) -> y: T[*s] : x * 2", [(2,), (3, 2)]),
    ("f(x: T[~*s], b: T[~*s]) -> y: T[*s] : x * x + 0 * b", [(3, 1), (3, 2)]),
    ("f(x: T[n, s, c]) -> y: T[n, c, s] : exp(x - logsumexp(x, -1))", [(2, 3, 4)]),
    ("f(x: T[n, s, c]) -> y: T[n, c, s] : x - mean(x, -1)", [(2, 3, 4)]),
    ("f(a: T[n, m], b: T[m, n]) -> y: T[n] : var(b, -1) + sum(a, -1)", [(2, 3), (3, 2)]),
    ("f(a: T[n, m], b: T[m]) -> y: T[n] : mean(b, -1)", [(2, 3), (3,)]),
    ("f(s: T[q, k], b: T[1, k]) -> p: T[q, k] : s * b", [(3, 4), (1, 4)]),
    ("f(s: T[h, q, k], b: T[h, 1, k]) -> p: T[h, q, k] : exp(s + b - logsumexp(s + b, -1))", [(2, 3, 4), (2, 1, 4)]),
]


@pytest.mark.parametrize(("formula", "shapes"), SHAPED, ids=[formula for formula, _ in SHAPED])
def test_gradients_of_shapes(formula: str, shapes: list[tuple[int, ...]]) -> None:
    xs = [(here.rand(shape).double() + 0.5).requires_grad_() for shape in shapes]
    assert gradcheck(tn.fuse(formula), xs)
    assert torch.autograd.gradgradcheck(tn.fuse(formula), xs)


def test_gradients_of_what_is_rounded() -> None:
    """What an output was rounded to is not what the gradient compares with, and what one pass rounds another does."""
    x = here.tensor([0.1, 0.2, 0.3], requires_grad=True)
    tn.fuse("f(x: f32[n]) -> y: bf16[] : max(x)")(x).backward()
    assert x.grad is not None and x.grad.tolist() == [0, 0, 1]
    y = here.tensor([300.3, 299.0, 298.0], requires_grad=True)
    tn.fuse("f(x: f32[n]) -> y: bf16[] : logsumexp(x)")(y).backward()
    assert_close(y.grad, torch.softmax(y.detach(), 0))
    z = here.tensor([[1.0], [3.4]]).bfloat16()
    assert tn.fuse("where(sigmoid(x) == max(sigmoid(x)), 1.0, 0.0)")(z).tolist() == [[0], [1]]
    z.requires_grad_()
    tn.fuse("max(silu(x))")(z).backward()
    assert z.grad is not None and z.grad[0] == 0 and z.grad[1] > 1


@pytest.mark.parametrize("formula", ["silu(x)", "x * tanh(softplus(x))", "x * sigmoid(1.702 * x)", "gelu(x)"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_gradients_far_out(formula: str, dtype: torch.dtype) -> None:
    most = 6e4 if dtype == torch.float16 else 1e10
    x = here.tensor([1e3, most, -1e3, -most]).to(dtype).requires_grad_()
    tn.fuse(formula)(x).sum().backward()
    assert_close(x.grad, here.tensor([1.0, 1.0, 0.0, 0.0]).to(dtype))


def test_signs_that_are_still_to_be_applied() -> None:
    x = here.tensor([1 + 2j, 3 - 4j]).conj().imag
    assert x.is_neg()
    assert_close(tn.fuse("x * 2")(x), here.tensor([-4.0, 8.0]))


def test_types_of_results() -> None:
    function = tn.fuse("f(x: T[n], k: dtype = f32) -> y: k[n] : x * x")
    for dtype in (torch.float64, torch.bfloat16, torch.float32):
        x = here.tensor([1.0, 3.0], requires_grad=True)
        function(x, k=dtype).sum().backward()
        assert_close(x.grad, 2 * x.detach())
    with pytest.raises(TypeError, match="y has type c64, and formulas make no complex numbers"):
        function(here.randn(3), k=torch.complex64)
    with pytest.raises(ValueError, match="an attribute cannot be called 'nan'"):
        tn.fuse("f(x: T[n], nan: float = 3) -> y: T[n] : x * nan")


def test_words_with_spaces() -> None:
    function = tn.fuse("f(x: T[*s], mode: 'a'|'b c' = 'a') -> y: T[*s] : x if mode == 'a' else -x")
    x = here.randn(3)
    assert_close(torch.compile(lambda x: function(x, mode="b c"), fullgraph=True)(x), -x)
    assert_close(torch.compile(lambda x: function(x), fullgraph=True)(x), x)


def test_attributes_of_another_kind() -> None:
    function = tn.fuse(
        "f(x: T[*s], k: int = 1, eps: float = 0.0, out: dtype = f32, m: 'a'|'b' = 'a') -> y: out[*s] : x * k + eps"
    )
    update = tn.fuse("f(x: T[*s]!, eps: float = 0.0) : x = x + eps")
    plain, x = here.ones(2, 3), here.ones(2, 3, requires_grad=True)
    for given, message in (
        ({"eps": "a"}, "f: eps is 'a', needs a float"),
        ({"eps": plain}, r"(?s)f: eps is tensor.*, needs a float"),
        ({"k": 1.5}, "f: k is 1.5, needs an int"),
        ({"out": plain}, r"(?s)f: out is tensor.*, needs a type that Tenon has"),
        ({"m": 3}, "f: m is 3, needs a str"),
    ):
        for tensor in (plain, x):
            with pytest.raises(TypeError, match=message):
                function(tensor, **given)
    with pytest.raises(TypeError, match="f: eps is 'a', needs a float"):
        update(plain, eps="a")
    assert_close(function(x, 2, torch.tensor(0.5).item(), torch.float64), x.double() * 2 + 0.5)


def test_the_operator_of_torch() -> None:
    """What graphs hold: text, tensors, attributes as text."""
    x, w = inputs([(3, 5), (5,)])
    (made,) = torch.ops.tenon.fuse(NORM, [x, w], "eps=0.25 sign='minus'")
    assert_close(made, norm(x, w, 0.25, "minus"))
    assert_close(torch.autograd.grad(made.sum(), w)[0], torch.autograd.grad(norm(x, w, 0.25, "minus").sum(), w)[0])
    (made,) = torch.ops.tenon.fuse(NORM, [x, None])
    assert_close(made, norm(x))
    for bad in ("eps", "eps=1 = 2", "nothing=3", "sign='times'", "eps='a'"):
        with pytest.raises((ValueError, TypeError, RuntimeError)):
            torch.ops.tenon.fuse.raw(NORM, [x.detach(), None], bad)
    for operator in (torch.ops.tenon.fuse, torch.ops.tenon.fuse.raw):
        with pytest.raises(ValueError, match="takes 2 tensors, got 3"):
            operator(NORM, [x.detach()] * 3)
    for args in ((NORM, [x, w], "eps=0.25"), (NORM, [x, None]), ("silu(x) * y", [x, w])):
        torch.library.opcheck(torch.ops.tenon.fuse.default, args)


def test_transforms() -> None:
    function = tn.fuse("silu(x) * y")
    x, y = here.randn(3, 4, dtype=torch.float64), here.randn(4, dtype=torch.float64)
    slope = torch.func.grad(lambda a: function(a, y).sum())
    assert_close(slope(x), torch.func.grad(lambda a: (F.silu(a) * y).sum())(x))
    assert_close(torch.vmap(function, (0, None))(x, y), F.silu(x) * y)
    assert_close(torch.vmap(slope)(x), slope(x))
    assert_close(torch.func.jacrev(lambda a: function(a, y))(x[0]), torch.func.jacrev(lambda a: F.silu(a) * y)(x[0]))


def test_fake_tensors() -> None:
    meta = torch.empty(3, 5, device="meta")
    out = tn.fuse("sum(x, -1)")(meta)
    assert out.shape == (3,) and out.device.type == "meta"
    with pytest.raises(ValueError, match="b"):
        tn.fuse("x * b")(meta, torch.empty(4, device="meta"))


class Gate(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate = tn.fuse("silu(x) * y * 1.5")

    def forward(self, x: Tensor, y: Tensor) -> Any:
        return self.gate(x, y)


def test_pickle() -> None:
    x, y = here.randn(3), here.randn(3)
    saved = io.BytesIO()
    torch.save(Gate(), saved)
    saved.seek(0)
    assert_close(torch.load(saved, weights_only=False)(x, y), F.silu(x) * y * 1.5)
    check_pickles(tn.fuse)


def test_export(tmp_path: pathlib.Path) -> None:
    class Gate(torch.nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return tn.fuse("silu(x) * y")(x, y)

    x, y = here.randn(3, 4), here.randn(3, 4)
    exported = torch.export.export(Gate(), (x, y))
    buffer = io.BytesIO()
    torch.export.save(exported, buffer)
    buffer.seek(0)
    assert_close(torch.export.load(buffer).module()(x, y), F.silu(x) * y)


def test_formulas_of_the_table() -> None:
    """Rows that are formulas have gradients of every order, by the same operator."""
    formulas = [op for op in tenon.ops().values() if op.rule and any(s.formula for s in op.rule.statements)]
    assert len(formulas) > 40
    x = here.randn(3, 4, dtype=torch.float64, requires_grad=True)
    for name, same in (("gelu", F.gelu), ("mish", F.mish), ("elu", F.elu), ("softplus", F.softplus), ("selu", F.selu)):
        function = getattr(tn, name)
        assert_close(function(x), same(x))
        assert gradcheck(function, (x,)) and gradgradcheck(function, (x,))
    y = here.randn(3, 4, dtype=torch.float64)
    assert_close(tn.huber(x, y, delta=0.5), F.huber_loss(x, y, delta=0.5))
    assert_close(tn.kl_div(x, y.abs(), reduction="sum"), F.kl_div(x, y.abs(), reduction="sum"))
    nan = float("nan")
    a, b = here.tensor([-1.0, -2.0, nan, -3.0]), here.tensor([0.5, nan, 0.0, -0.5])
    for k in range(4):
        assert_close(tn.kl_div(a[k:], b[k:], reduction="sum"), F.kl_div(a[k:], b[k:], reduction="sum"))
    ends = here.tensor([1e8, -3.0]), here.tensor([1.0, 5e7])
    for weight in (0.0, 0.3, 0.7, 1.0, 1.5):
        have = tn.lerp(*ends, here.tensor(weight))
        assert_close(have, torch.lerp(*ends, weight))
        assert weight not in (0.0, 1.0) or torch.equal(have, ends[int(weight)])
    compiled = torch.compile(lambda a: tn.gelu(a).sum(), backend="aot_eager", fullgraph=True)
    assert_close(torch.autograd.grad(compiled(x), x)[0], torch.autograd.grad(F.gelu(x).sum(), x)[0])


# Formulas over several lines, and on one.
LINES = [
    ("# softmax\nt = exp(x) # don't\n\ny = t / sum(t, -1)\n", "t = exp(x); y = t / sum(t, -1)"),
    ("y = x +\n    1\r\nz = max(x,\n  y)", "y = x + 1; z = max(x, y)"),
    ("y = x\n-x", "y = x; -x"),
    ("x if x > 0 or\n not\n y > 0 else\n y", "x if x > 0 or not y > 0 else y"),
    ("f(x: T[n]!, k: 'a#b'|'c' = 'c') :\n  x = x + 1\n", "f(x: T[n]!, k: 'a#b'|'c' = 'c') : x = x + 1"),
    (
        "f(x: T[n],\n  y: T[n])\n-> z: T[n],\n  u: T[n]\nwhere n > 1\n:\nz = x\nu = y",
        "f(x: T[n], y: T[n]) -> z: T[n], u: T[n] where n > 1 : z = x; u = y",
    ),
    ("y = x\nwhere(x > 0, x, y)", "y = x; where(x > 0, x, y)"),
]


@pytest.mark.parametrize(("text", "line"), LINES)
def test_lines_become_one(text: str, line: str) -> None:
    assert _on_one_line(text) == line
    assert _on_one_line(line) == line


def test_no_line_ends_in_graphs() -> None:
    """Inductor writes the arguments of calls into comments of the code that it makes for GPUs."""
    shown: list[str] = []

    def look(module: torch.fx.GraphModule, given: Any) -> Callable[..., Any]:
        shown.extend(node.format_node() or "" for node in module.graph.nodes)
        return module.forward

    torch._dynamo.reset()
    step, gate = tn.fuse(STEP), tn.fuse("# a gate\nt = silu(x)\nz = t * y")
    x, lr = here.ones(3, 4), here.tensor(0.1)

    @torch.compile(backend=aot_autograd(fw_compiler=look), fullgraph=True)
    def function(p: Tensor, g: Tensor, m: Tensor) -> Tensor:
        step(p, g, m, None, lr)
        return gate(p, g)

    function(x.clone(), x.clone(), x.clone())
    assert len([text for text in shown if "tenon.fuse" in text]) == 2
    assert not any("\n" in text for text in shown)
    with pytest.raises(ValueError, match=r"\n.*t = silu"):
        tn.fuse("# a gate\nt = silu(x\nz = t * y")


def test_many_inputs() -> None:
    names = [f"x{i}" for i in range(40)]
    given = [here.randn(4) for _ in names]
    (made,) = torch.ops.tenon.fuse(" + ".join(names), given)
    assert_close(made, torch.stack(given).sum(0))
    all_ones = f"f({', '.join(f'{n}: T[*s]!' for n in names)}) : {'; '.join(f'{n} = {n} * 0 + 1' for n in names)}"
    torch.ops.tenon.fuse.inplace(all_ones, given, list(range(40)), [None] * 40)
    assert all((t == 1).all() for t in given)


def test_limits() -> None:
    """As many inputs as docs/formulas.md says."""
    names = [f"x{i}" for i in range(48)]
    body = " + ".join(f"{n} * {n}" for n in names)
    assert len(fused(f"f({', '.join(f'{n}: T[*s]' for n in names)}) -> y: T[*s] : {body}").inputs) == 48
    contract = f"f({', '.join(f'{n}: T[*s]' for n in names[1:])}) -> y: T[*s] : {' * '.join(names[1:])}"
    assert fused(contract).rule is not None
    given = [here.randn(*((3, 4) if i % 2 else (4,)), dtype=torch.float64).requires_grad_() for i in range(47)]
    tn.fuse(" + ".join(f"{n} * {n}" for n in names[1:]))(*given).sum().backward()
    for x in given:
        assert_close(x.grad, 2 * x.detach() * (1 if x.ndim == 2 else 3))


def test_a_reduction_and_a_bound() -> None:
    x = here.randn(3, 4)
    assert_close(tn.fuse("max(x, axis=-1)")(x), x.amax(-1))
    assert_close(tn.fuse("min(x, -1.0)")(x), x.clamp(max=-1))
    assert_close(tn.fuse("clamp(x, -1, 1)")(x), x.clamp(-1, 1))


def test_second_derivatives_do_not_grow_from_step_to_step() -> None:
    """Terms that arrive under the same conditions are one; what is too large all the same is told."""
    x = here.randn(9, dtype=torch.float64).requires_grad_()

    def second(function: Any) -> Tensor:
        (g,) = torch.autograd.grad(function(x).sum(), x, create_graph=True)
        return torch.autograd.grad(g.sum(), x)[0]

    def chain(x: Tensor) -> Tensor:
        for _ in range(12):
            x = torch.nn.functional.silu(x)
        return x

    have = second(tn.fuse("; ".join(["t0 = x", *(f"t{i + 1} = silu(t{i})" for i in range(12))])))
    assert_close(have, second(chain), "f64", scale=10)
    with pytest.raises(NotImplementedError, match="can be derived: the formula has more than 4096 operations"):
        second(tn.fuse("; ".join(["t0 = x", *(f"t{i + 1} = max(t{i} * t{i}, x - {i})" for i in range(12))])))


# ---- what nobody holds -----------------------------------------------------------------------------------------------


class _Mallinfo(ctypes.Structure):
    _fields_ = tuple((f"field{k}", ctypes.c_size_t) for k in range(10))


def _allocated() -> int:
    """Bytes that malloc has given out: what the library keeps is among them, freed pages that Python keeps are not."""
    mallinfo = ctypes.CDLL(None).mallinfo2
    mallinfo.restype = _Mallinfo
    return int(mallinfo().field7)


def _use_once(number: int) -> weakref.ref[Any]:
    x = torch.randn(4, 8, requires_grad=True)
    formula = tn.fuse(f"x * {number}.125 + tanh(x)")
    formula(x).sum().backward()
    return weakref.ref(formula)


def test_formulas_that_nobody_holds_are_freed():
    held = tn.fuse("x * 4 - 0.125")
    for number in range(300):  # until the last few that stay are there
        _use_once(number)
    gc.collect()
    before = _allocated()
    made = [_use_once(number) for number in range(300, 1000)]
    gc.collect()
    assert sum(ref() is not None for ref in made) <= 64
    assert _allocated() - before < 4 << 20  # they were 36 to 92 kB each
    assert tn.fuse("x * 4 - 0.125") is held
    x = torch.ones(3, requires_grad=True)
    held(x).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [4, 4, 4]


def test_a_formula_comes_again_by_its_text():
    """A graph that was saved has the text and nothing else."""
    x = torch.ones(3)
    text = "x * 5 - 0.375"
    for number in range(200):
        assert torch.ops.tenon.fuse(text, [x], "", False)[0].tolist() == [4.625] * 3
        _use_once(number)


def test_bare_names_keep_their_order():
    a, b, c, s = (torch.randn(5) for _ in range(4))
    y, z = tn.fuse("rope(a, b, c, s) : y = a * c - b * s; z = s * a + c * b")(a, b, c, s)
    assert_close(y, a * c - b * s)
    assert_close(z, a * s + b * c)
    assert_close(tn.fuse("f(b, a, k: float = 2.0) : a - k * b")(a, b, k=3.0), b - 3 * a)


def test_casts_saturate():
    x = torch.tensor([-1e30, -300.7, -1.5, 0.0, 127.9, 300.0, 1e30, float("inf"), float("-inf"), float("nan")])
    assert tn.fuse("i8(x)")(x).tolist() == [-128, -128, -1, 0, 127, 127, 127, 127, -128, 0]
    assert tn.fuse("u8(x)")(x).tolist() == [0, 0, 0, 0, 127, 255, 255, 255, 0, 0]
    assert tn.fuse("i32(x)")(x).tolist()[-4:] == [2**31 - 1, 2**31 - 1, -(2**31), 0]
    assert tn.fuse("i64(x)")(x).tolist()[-4:] == [2**63 - 1, 2**63 - 1, -(2**63), 0]
    step = tn.fuse("f(x: T[*s]) -> q: i8[*s] : x * 2")
    compiled = torch.compile(lambda t: step(t + 0.0), fullgraph=True, backend="aot_eager")
    assert compiled(x).tolist() == step(x).tolist() == [-128, -128, -3, 0, 127, 127, 127, 127, -128, 0]


def test_bits_of_integers():
    n = torch.arange(-4, 9, dtype=torch.int32)
    of_ints = tn.fuse("f(n: i32[*s], m: i32[*s]) -> y: i32[*s], z: bool[*s] : y = n & m | ~n ^ 2; z = n & 1 == 0")
    y, z = of_ints(n, n.flip(0))
    assert torch.equal(y, n & n.flip(0) | ~n ^ 2) and torch.equal(z, n & 1 == 0)
    assert torch.equal(tn.fuse("f(n: i32[*s]) -> y: i32[*s] : (n << 3) + (n >> 1)")(n), (n << 3) + (n >> 1))
