"""Formulas as operations of torch, which is how Inductor gets them where it can fuse them with others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import here
import pytest
import torch
from cases import Case, assert_close, clone, every_sample, tensors
from torch import Tensor
from torch._dynamo.backends.common import aot_autograd

import tenon.torch as tn
from tenon.torch import _decompose
from tenon.torch._decompose import decompose, decompose_row
from tenon.torch._fuse import fused_op

# Inductor's table of decompositions and its partition, without its code.
BACKEND = "aot_eager_decomp_partition"
# What stays an operator: torch has other random numbers and no such rounding, and parts are not taken apart.
RANDOM, ROUNDS, PARTS = {"dropout", "bias_dropout_add"}, {"quantize"}, {"gated", "gated_grad"}

# Formulas, and the shapes of their inputs: what the operator and operations of torch must agree on.
FORMULAS: list[tuple[str, list[tuple[int, ...]]]] = [
    ("relu(x * s + b)", [(4, 5), (5,), (4, 1)]),
    ("y = x", [(4, 5)]),
    ("min(max(x, y), 0.5) - abs(x) ** y", [(4, 5), (1,)]),
    ("sum(x * y, -1) * z", [(4, 5), (5,), ()]),
    ("x * index(-1) + where(index(-1) < 3, y, sum(index(-1))) + index()", [(4, 5), (5,)]),
    ("x * index(0) - sum(index(2), axis=2) + index(x, axis=[0, 2]) * argmax(x, axis=1)", [(2, 3, 4)]),
    (
        "f(x: T[n, c, *s], g: T[c]) -> y: T[n, c, *s], z: i64[*s] : y = x * index(c) + index(g) * g; z = index(s)",
        [(2, 6, 4), (6,)],
    ),
    ("y = x * max(b, axis=-1); m = mean(x, -1); z = x - mean(x, -1) + b * g", [(4, 5), (4, 5), (5,)]),
    ("sign(x) * floor(y * 3) + round(x * 2) + sin(x) * cos(y) + expm1(x) + log1p(abs(y)) - tanh(x)", [(4, 5), (4, 5)]),
    ("sqrt(abs(x)) + rsqrt(abs(x) + 1) + log(abs(x) + 1) + erf(x) + sigmoid(x) + softplus(x * 40)", [(3, 4)]),
    ("exp2(x) + log2(abs(x) + 1) * log10(abs(y) + 1) + ceil(x) * trunc(3 * y) + tan(x / 3)", [(3, 4), (3, 4)]),
    ("asin(tanh(x)) * acos(tanh(x)) + atan(x) + sinh(x) / cosh(x) + erfc(x) + erfinv(0.9 * tanh(x))", [(3, 4)]),
    ("asinh(x) * acosh(abs(x) + 2) + atanh(0.9 * tanh(x)) + lgamma(abs(x) + 1) * digamma(abs(x) + 1)", [(3, 4)]),
    ("atan2(x, y) + logaddexp(x, y) + relu6(4 * x) * hardtanh(x) + where(isfinite(x), 1, 0)", [(3, 4), (4,)]),
    ("x - mean(x, axis=[0, 2]) * count(x, axis=1) + max(x, axis=1)", [(2, 3, 4)]),
    (
        "f(x: T[n, c, *s], g: T[c]) -> y: T[n, c, *s], z: T[n] : "
        "y = x * sum(x, axis=[n, s]) * g; z = min(x, axis=[c, s])",
        [(2, 3, 4, 2), (3,)],
    ),
    (
        "y = std(x, axis=[1, 3]) + norm(x, axis=[1, 3]) * prod(x, axis=[1, 3]); "
        "z = where(any(x > 2, axis=[1, 3]), x, 1)",
        [(2, 3, 4, 2)],
    ),
    (
        "f(x: T[n, c, *s], g: T[c], groups: int = 3) -> y: T[n, c, *s], m: T[groups, n] where c % groups == 0 : "
        "y = (x - mean(x, axis=[c / groups, s])) * g; m = prod(x, axis=[c / groups, s])",
        [(2, 6, 3), (6,)],
    ),
    ("where((x < y or x >= 2 * y) and not (x == 1) and x != 3 and x <= 1, x, -y)", [(4, 5), (5,)]),
    ("t = exp(x - max(x, axis=-1)); y = t / sum(t, -1)", [(2, 3, 6)]),
    ("x - logsumexp(x, -1) + var(x) + min(x) + count(x, -1)", [(3, 6)]),
    ("y = sum(x * b); z = mean(x * b)", [(3, 6), (6,)]),
    (
        "f(x: T[*a], b: T[*b]) -> y: T[broadcast(*a, *b)], s: T[*b] : y = expand(x, b); s = sum_to(x * b, b)",
        [(3, 6), (6,)],
    ),
    ("f(x: T[*a], b: T[*b]) -> y: T[] : mean(sum_to(x, b) * x)", [(3, 1), (2, 1, 6)]),
    (
        "f(x: T[n, c, *s], b: T[c], w: T[c, n]) -> y: T[n, c, *s], z: T[c, 1] : y = gelu(x + b) * w; z = b",
        [(2, 3, 4), (3,), (3, 2)],
    ),
    (
        "f(x: T[*r, c], g: W[c]?, eps: float = 1e-5) -> y: T[*r, c] : "
        "n = x * rsqrt(mean(x * x, -1) + eps); y = n * g if has(g) else n",
        [(2, 3, 5), (5,)],
    ),
    (
        "f(x: T[*s], n: i32[*s]) -> y: i32[*s], z: f32[*s] : y = n * 70000 * 70000 + abs(n); z = n / 2 + f32(x > 0)",
        [(3, 4), (3, 4)],
    ),
]


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever is in front."""
    torch._dynamo.reset()
    monkeypatch.setattr(_decompose, "is_worth_it", lambda inputs: True)
    yield
    torch._dynamo.reset()


def inputs(formula: str, shapes: list[tuple[int, ...]], dtype: torch.dtype, grad: bool = False) -> list[Tensor]:
    """Random ones, as the contract wants them."""
    made = []
    for param, shape in zip(fused_op(formula).op.inputs, shapes, strict=True):
        if param.type.get("fixed") == ["i32"]:
            made.append(here.randint(-9, 9, shape, dtype=torch.int32))
        else:
            made.append(here.randn(shape, dtype=dtype).requires_grad_(grad))
    return made


def assert_same(have: Any, want: Any, T: str) -> None:
    for h, w in zip(tensors(have), tensors(want), strict=True):
        assert h.dtype == w.dtype
        assert all(a == b for size, a, b in zip(h.shape, h.stride(), w.stride(), strict=True) if size != 1)
        assert_close(h, w, T)


@pytest.mark.parametrize("T", ["f32", "bf16", "f64"])
@pytest.mark.parametrize(("formula", "shapes"), FORMULAS)
def test_formulas(formula: str, shapes: list[tuple[int, ...]], T: str) -> None:
    made = fused_op(formula)
    given = inputs(formula, shapes, {"f32": torch.float32, "bf16": torch.bfloat16, "f64": torch.float64}[T])
    have = decompose(made.op, made.arguments(given, ""), "")
    assert have is not None
    want = tn.fuse(formula)(*given)
    assert_same(have, want, T)
    assert not {t.data_ptr() for t in tensors(have)} & {t.data_ptr() for t in given}


def test_of_no_elements() -> None:
    function = tn.fuse("logsumexp(x, -1) * 2")
    compiled = torch.compile(lambda x: function(x.sin()), backend=BACKEND, fullgraph=True)
    assert_close(compiled(here.randn(3, 0)), here.full((3,), -torch.inf))


@pytest.mark.parametrize("formula", ["max(x, axis=-1)", "x - min(x, axis=-1)", "logsumexp(x, -1)", "prod(x, axis=0)"])
@pytest.mark.parametrize("shape", [(3, 0), (0, 3), (0, 0)])
def test_what_is_an_error_stays_the_operators(formula: str, shape: tuple[int, ...]) -> None:
    made, x = fused_op(formula), here.randn(shape)
    have = decompose(made.op, made.arguments([x], ""), "")
    if formula.startswith("max") and shape == (3, 0):
        assert have is None
        with pytest.raises(ValueError, match="max of no elements"):
            tn.fuse(formula)(x)
    else:
        assert_same(have, tn.fuse(formula)(x), "f32")


# Taken apart Inductor gets the graph for these axes, else an operator and its attributes as text: both read that text.
@pytest.mark.parametrize("taken_apart", [True, False])
@pytest.mark.parametrize(
    ("reduction", "theirs"),
    [
        ("mean(x, axis=axes)", lambda x, dims: x.mean(dims)),
        ("std(x, axis=axes)", lambda x, dims: x.std(dims, unbiased=False)),
        ("norm(x, axis=axes)", lambda x, dims: torch.linalg.vector_norm(x, dim=dims)),
        ("prod(x, axis=axes)", lambda x, dims: x.prod(dims[0]).prod(dims[1])),
        ("where(any(x > 1, axis=axes), max(x, axis=axes), 2)", lambda x, dims: x.amax(dims).where(x.amax(dims) > 1, 2)),
    ],
)
def test_axes_of_a_call(
    reduction: str, theirs: Callable[..., Tensor], taken_apart: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_decompose, "is_worth_it", lambda inputs: taken_apart)
    function = tn.fuse(f"f(x: T[*s], axes: axes = [-1]) -> y: T[reduce(*s, axes)] : {reduction}")
    compiled = torch.compile(lambda x, axes: function(x, axes=axes), backend=BACKEND, fullgraph=True)
    x = here.randn(2, 3, 4, 5, dtype=torch.float64, requires_grad=True)
    for axes in ([3, 1], [-1, 0]):
        have, want = compiled(x, axes), theirs(x, axes)
        assert have.shape == want.shape
        assert_close(have, want, "f64")
        weight = here.randn(want.shape, dtype=torch.float64)
        for h, w in zip(*(torch.autograd.grad((y * weight).sum(), x) for y in (have, want)), strict=True):
            assert_close(h, w, "f64")


@pytest.mark.parametrize("case", every_sample(4096, lambda c: c.op.formula is not None and not c.op.mutates), ids=str)
def test_rows(case: Case) -> None:
    for T in ("f32", "bf16", "f64"):
        for change in (None, lambda t: t.transpose(0, -1).contiguous().transpose(0, -1) if t.ndim > 1 else t):
            args = case.make(T, change=change)
            have = decompose_row(case.op, args)
            assert (have is NotImplemented) == (case.op.name in RANDOM | ROUNDS | PARTS)
            if have is not NotImplemented:
                assert_same(have, case.torch_op.forward(*args), T)


@pytest.mark.parametrize(
    "formula",
    [
        "where(rand(seed) < 0.5, 0, x)",  # torch has other random numbers
        "f(x: T[*s]) -> y: T[*s] : x + bf16(x * 2)",  # Inductor leaves such roundings out
        "f(x: T[*s]) -> y: i32[*s] : x * 3",  # torch does not say what becomes of NaN
        "f(x: i32[*s], y: i32[*s]) -> z: i32[*s] : x % y",  # nor of x % 0
        "x % 1.5",  # Inductor's is wrong for large numbers, and by infinity
    ],
)
def test_what_stays_an_operator(formula: str) -> None:
    made = fused_op(formula)
    dtypes = {"seed": torch.int64, "x": torch.int32 if "x: i32" in formula else torch.float32, "y": torch.int32}
    given = [here.ones(2, dtype=dtypes[p.name]) for p in made.op.inputs]
    assert decompose(made.op, made.arguments(given, ""), "") is None


def test_numbers_that_are_none() -> None:
    """What torch computes to another number is said otherwise."""
    x = here.tensor([1.0, float("nan"), -2.0, 0.0, float("inf")])
    for formula in ("sign(x)", "abs(x)", "relu(x)", "max(x, 0.5)", "where(x > 0, x, -x)", "softplus(x)"):
        made = fused_op(formula)
        have = decompose(made.op, made.arguments([x], ""), "")
        assert have is not None and have[0] is not None
        assert torch.equal(have[0].isnan(), x.isnan()), formula
        assert_close(have[0].nan_to_num(), tn.fuse(formula)(x).nan_to_num())


def loss(function: Callable[..., Any], *given: Tensor) -> Tensor:
    made = [t for t in tensors(function(*given)) if t.is_floating_point()]
    return torch.stack([(t * t).sum() for t in made]).sum()


@pytest.mark.parametrize(("formula", "shapes"), [(f, s) for f, s in FORMULAS if "i32" not in f])
def test_gradients(formula: str, shapes: list[tuple[int, ...]]) -> None:
    """Forward and backward as compiled, with sizes that may change: no operator of Tenon is left."""
    function = tn.fuse(formula)
    given = inputs(formula, shapes, torch.float64, True)
    want = torch.autograd.grad(loss(function, *given), given, allow_unused=True)
    compiled = torch.compile(lambda *args: loss(function, *args), backend=BACKEND, fullgraph=True, dynamic=True)
    have = torch.autograd.grad(compiled(*given), given, allow_unused=True)
    for h, w in zip(have, want, strict=True):
        assert (h is None) == (w is None)
        assert_close(h, w, "f64")


# ---- the rule --------------------------------------------------------------------------------------------------------


def operators(function: Callable[..., Tensor], *given: Tensor) -> tuple[list[str], list[str]]:
    """The operators in the graphs that Inductor would get, forward and backward."""
    from torch._inductor.decomposition import select_decomp_table

    seen: list[list[str]] = []

    def note(graph: torch.fx.GraphModule, example: Any) -> Any:
        del example
        seen.append([str(n.target) for n in graph.graph.nodes if n.op == "call_function"])
        return graph.forward

    def backend(graph: torch.fx.GraphModule, example: Any) -> Any:
        return aot_autograd(fw_compiler=note, bw_compiler=note, decompositions=select_decomp_table())(graph, example)

    torch.compile(function, backend=backend, fullgraph=True)(*given).sum().backward()
    forward, backward = seen
    return forward, backward


def has_fuse(names: list[str]) -> bool:
    return any("tenon.fuse" in name for name in names)


@pytest.fixture
def by_rule(always: None, monkeypatch: pytest.MonkeyPatch) -> None:
    del always
    monkeypatch.undo()


@pytest.mark.usefixtures("by_rule")
def test_the_rule() -> None:
    gate, norm = tn.fuse("silu(x) * y"), tn.fuse("x * rsqrt(mean(x * x, -1) + 1)")
    x, y = here.randn(3, 4, requires_grad=True), here.randn(3, 4)
    forward, backward = operators(lambda x, y: gate(x, y), x, y)
    assert has_fuse(forward) and has_fuse(backward)
    forward, backward = operators(lambda x, y: gate(x @ y.t(), y[:, :3]) @ y[:, :3], x, y)  # products and views
    assert has_fuse(forward) and has_fuse(backward)
    forward, backward = operators(lambda x, y: norm(x) + y, x, y)
    assert has_fuse(forward) and has_fuse(backward)
    forward, backward = operators(lambda x, y: gate((x + 1).t(), y.t()) * 2, x, y)
    assert not has_fuse(forward) and not has_fuse(backward)
    forward, backward = operators(lambda x, y: norm(x + y), x, y)
    assert not has_fuse(forward)


@pytest.mark.usefixtures("by_rule")
def test_inductor() -> None:
    gate, norm = tn.fuse("silu(x) * y"), tn.fuse("x * rsqrt(mean(x * x, -1) + 1) * g")
    drop = tn.fuse("where(rand(seed) < 0.5, 0, x * 2)")
    seed = here.tensor([3, 4])

    def function(x: Tensor, y: Tensor, g: Tensor) -> Tensor:
        h = norm(gate(x + 1, y) * 2, g)
        return drop(seed, h) + tn.gelu(h * 2) + gate(x, y)

    compiled = torch.compile(function, fullgraph=True, dynamic=True)
    for dtype, T in ((torch.float32, "f32"), (torch.bfloat16, "bf16")):
        for n in (4, 7):
            given = [here.randn(s, dtype=dtype, requires_grad=True) for s in ((n, 6), (n, 6), (6,))]
            again = clone(given)
            have, want = compiled(*given), function(*again)
            assert_close(have, want, T)
            have.sum().backward()
            want.sum().backward()
            for a, b in zip(given, again, strict=True):
                assert_close(a.grad, b.grad, T, 2)


@pytest.mark.usefixtures("by_rule")
def test_exported_programs_keep_the_text() -> None:
    class Gate(torch.nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return tn.fuse("silu(x) * y")(x + 1, y) * 2

    x, y = here.randn(3, 4), here.randn(3, 4)
    exported = torch.export.export(Gate(), (x, y))
    assert "silu(x) * y" in exported.graph_module.code
    compiled = torch.compile(exported.module(), backend=BACKEND)
    assert_close(compiled(x, y), Gate()(x, y))
