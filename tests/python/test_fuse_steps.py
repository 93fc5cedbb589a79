"""Formulas that call operators of the table: the same as in torch, with gradients of first and second order."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import here
import pytest
import torch
from torch import Tensor

import tenon.torch as tn

F = torch.nn.functional
Make = Callable[[], Tensor]


def floats(*shape: int) -> Make:
    return lambda: here.randn(*shape, dtype=torch.float64)


def index(below: int, *shape: int, dtype: torch.dtype = torch.int64) -> Make:
    return lambda: here.randint(0, below, shape, dtype=dtype)


CASES: list[tuple[str, Callable[..., Any], list[Make]]] = [
    ("gather(x, i)", lambda x, i: x.gather(-1, i), [floats(4, 9), index(9, 4, 3)]),
    (
        "sin(gather(tanh(x), i)) * w",
        lambda x, i, w: x.tanh().gather(-1, i).sin() * w,
        [floats(4, 9), index(9, 4, 3), floats(3)],
    ),
    (
        "f(x: T[n, c], i: i32[k, c], a: float = 2.0) -> y: T[k, c] : gather(x * a, i, axis=0) + index(k)",
        lambda x, i: (x * 2).gather(0, i.long()) + torch.arange(3, device=x.device)[:, None],
        [floats(4, 5), index(4, 3, 5, dtype=torch.int32)],
    ),
    ("sort(x * x) * x", lambda x: (x * x).sort(-1).values * x, [floats(4, 7)]),
    (
        "sort(x, axis=0, descending=true) - sort(x, result='index')",
        lambda x: x.sort(0, descending=True).values - x.sort(-1).indices,
        [floats(4, 7)],
    ),
    (
        "f(table: T[v, d], i: i64[b, t], pos: T[t, d]) -> y: T[b, t, d] : sin(table[i]) * pos + table[(i + 1) % 7]",
        lambda table, i, pos: table[i].sin() * pos + table[(i + 1) % 7],
        [floats(10, 4), index(10, 2, 3), floats(3, 4)],
    ),
    (
        "f(table: T[v, d], i: i64[*s]) -> y: T[*s, d] : embedding(tanh(table), i) * 2",
        lambda table, i: table.tanh()[i] * 2,
        [floats(10, 4), index(10, 2, 3)],
    ),
    (
        "f(x: T[n, c], i: i64[n, c], w: T[n, c]) -> y: T[n, c] : scatter_add(x * x, i, sin(w))",
        lambda x, i, w: (x * x).scatter_add(1, i, w.sin()),
        [floats(4, 5), index(5, 4, 5), floats(4, 5)],
    ),
    (
        "f(x: T[n, c], i: i64[k]) -> y: T[k, c] : index_select(x * x, i) * 2",
        lambda x, i: (x * x)[i] * 2,
        [floats(4, 5), index(4, 6)],
    ),
    (
        "f(x: T[n, n]) -> y: T[n, n] : softmax(x) + exp(cumsum(triu(x * 2)))",
        lambda x: x.softmax(-1) + (x * 2).triu().cumsum(-1).exp(),
        [floats(5, 5)],
    ),
    ("tril(x * x) - triu(sin(x), diagonal=1)", lambda x: (x * x).tril() - x.sin().triu(1), [floats(3, 4, 5)]),
    (
        "f(x: T[n, c], i: i64[n, k]) -> y: T[n, k], z: T[n, c] : t = sort(x * x); y = gather(t, i); z = t * sum(y, k)",
        lambda x, i: (
            (x * x).sort(-1).values.gather(-1, i),
            (x * x).sort(-1).values * (x * x).sort(-1).values.gather(-1, i).sum(-1, keepdim=True),
        ),
        [floats(4, 9), index(9, 4, 3)],
    ),
    (
        "f(x: T[n, c], m: T[n]) -> y: T[n] : sum(sort(x - mean(x, c)) * index(c), c) * m",
        lambda x, m: ((x - x.mean(1, keepdim=True)).sort(-1).values * torch.arange(6, device=x.device)).sum(1) * m,
        [floats(4, 6), floats(4)],
    ),
    (
        "exp(cumsum(x * 0.1, reverse=true)) * x",
        lambda x: (x * 0.1).flip(-1).cumsum(-1).flip(-1).exp() * x,
        [floats(4, 6)],
    ),
    # without a contract, what is handed on has the shape of what it is made of
    ("cumsum(x * w, axis=0) + x", lambda x, w: (x * w).cumsum(0) + x, [floats(4, 6), floats(6)]),
    (
        "cumsum(x + w) * cumsum(sin(w)) - v",
        lambda x, w, v: (x + w).cumsum(-1) * w.sin().cumsum(-1) - v,
        [floats(4, 6), floats(6), floats(4, 1)],
    ),
    (
        "f(x: T[*p], w: T[*q], b: T[*q]?) -> y: T[broadcast(*p, *q)] : cumsum(x * w, axis=0) + (b if has(b) else 1)",
        lambda x, w: (x * w).cumsum(0) + 1,
        [floats(4, 6), floats(6)],
    ),
    # operators with four tensors in their gradients
    ("cumprod(x * x) * x", lambda x: (x * x).cumprod(-1) * x, [floats(4, 6)]),
    # axes by their names, numbers that are computed, comments
    (
        "# in front\nf(x: T[*r, c], i: i64[*r, c] # and within\n) -> y: T[*r, c] :\n"
        "  cumsum(x, axis=c) + sort(sin(x), axis=-(1)) * gather(x, i, axis=c) + roll(x, shift=2 - 1, axis=c)",
        lambda x, i: x.cumsum(-1) + x.sin().sort(-1).values * x.gather(-1, i) + x.roll(1, -1),
        [floats(4, 6), index(6, 4, 6)],
    ),
    # results with a dimension that no argument has
    (
        "f(x: T[n, c], w: T[3]) -> y: T[n, 3], z: T[n] : t = top_k(sin(x), k=2); z = mean(t, axis=-1) - x[:, 0]\n"
        "  y = softmax(top_k(x, k=3, largest=false)) * w",
        lambda x, w: (
            x.topk(3, largest=False).values.softmax(-1) * w,
            x.sin().topk(2).values.mean(1) - x[:, 0],
        ),
        [floats(4, 6), floats(3)],
    ),
    # and parts
    (
        "f(x: T[n, c]) -> y: T[n - 1, c] : sort(x[1:]) - x[:-1]",
        lambda x: x[1:].sort(-1).values - x[:-1],
        [floats(4, 5)],
    ),
    (
        "f(x: T[n, c]) -> y: T[n, c] : rotate_half(cumsum(sin(x))) + shift(sort(x * index(n)), 1, n)",
        lambda x: (
            torch.cat([-x.sin().cumsum(1)[:, 3:], x.sin().cumsum(1)[:, :3]], 1)
            + torch.cat([torch.zeros_like(x[:1]), (x * torch.arange(4, device=x.device)[:, None]).sort(-1).values[:-1]])
        ),
        [floats(4, 6)],
    ),
    (
        "f(x: T[n, c], t: T[v, d], i: i64[n, c]) -> y: T[n - 1, c, d] :\n"
        "  t[i][1:] * 2 - t[i][:-1] * cumsum(x[1:], axis=n)",
        lambda x, t, i: t[i][1:] * 2 - t[i][:-1] * x[1:].cumsum(0)[..., None],
        [floats(4, 5), floats(7, 3), index(7, 4, 5)],
    ),
    (
        "f(x: T[n, c], k: int = 2) -> y: T[c] :\n"
        "  t = sort(x[k:]) * 2; reduce('a * s + b', a=t, b=x[:n - k], axis=n, start=x[0])",
        lambda x: (2 * x[3].sort().values) * ((2 * x[2].sort().values) * x[0] + x[0]) + x[1],
        [floats(4, 5)],
    ),
    # parts without a contract
    ("x[1:] - x[:-1]", lambda x: x[1:] - x[:-1], [floats(4, 5)]),
    ("x * sum(x[1:] * x[:-1])", lambda x: x * (x[1:] * x[:-1]).sum(), [floats(4, 5)]),
    (
        "f(x, w, k: int = 2) : y = sin(x[k:]) * w[:-k]; z = x[0] * w[-1]",
        lambda x, w: (x[2:].sin() * w[:-2], x[0] * w[-1]),
        [floats(5, 4), floats(5, 4)],
    ),
    ("sort(x[:, 1:]) - x[:, :-1] * 2", lambda x: x[:, 1:].sort(-1).values - x[:, :-1] * 2, [floats(4, 5)]),
    # products of matrices, whose gradients have the first sizes of a shape
    (
        "f(x: T[n, c], w: T[c, d]) -> y: T[n, d] : sin(matmul(x * x, w, alpha=0.5))",
        lambda x, w: ((x * x) @ w * 0.5).sin(),
        [floats(4, 6), floats(6, 3)],
    ),
    (
        "f(x: T[*r, n, c], w: T[c, d]) -> y: T[*r, n, d] : matmul(x, tanh(w)) * 2",
        lambda x, w: x @ w.tanh() * 2,
        [floats(2, 3, 4, 6), floats(6, 3)],
    ),
    (
        "f(a: T[h, n, m], v: T[h, m, d]) -> y: T[h, n, d] : matmul(softmax(a, m), v)",
        lambda a, v: a.softmax(-1) @ v,
        [floats(2, 4, 5), floats(2, 5, 3)],
    ),
    # attributes of operators that are those of the formula
    (
        "f(x: T[n, c], k: int = 2, s: float = 0.5) -> y: T[n, c] : roll(x * x, shift=k, axis=n) + rms_norm(x, eps=s)",
        lambda x: (x * x).roll(2, 0) + F.rms_norm(x, (5,), eps=0.5),
        [floats(4, 5)],
    ),
    (
        "f(x: T[n, c], k: int = 2) -> y: T[n, k] : top_k(x * x, k=k) * 3",
        lambda x: (x * x).topk(2).values * 3,
        [floats(4, 6)],
    ),
    (
        "f(x: T[n, c], s: float = 0.2) -> y: T[n, c] : leaky_relu(x, slope=s) * elu(x, alpha=0.5)",
        lambda x: F.leaky_relu(x, 0.2) * F.elu(x, 0.5),
        [floats(4, 5)],
    ),
    # a row's sum beside operators, and parts, without a contract
    ("a = cumprod(1 - p / 9); b = sum(p, -1)", lambda p: ((1 - p / 9).cumprod(-1), p.sum(-1)), [floats(4, 5)]),
    ("sort(x[..., ::-2]) + x[..., ::2]", lambda x: x.flip(-1)[..., ::2].sort(-1).values + x[..., ::2], [floats(3, 7)]),
    (
        "a, b = halves(x); c, d, e = split(w, [1, 2, 3], axis=0); y = silu(a) * b; z = sum(d) * flip(e, -1) + c",
        lambda x, w: (F.silu(x[:, :3]) * x[:, 3:], w[1:3].sum() * w[3:].flip(-1) + w[0]),
        [floats(6, 6), floats(6, 6)],
    ),
    # rows of the table that become a part of the formula
    (
        "layer_norm(x + r, g, b) * x",
        lambda x, r, g, b: F.layer_norm(x + r, (6,), g, b) * x,
        [floats(4, 6), floats(4, 6), floats(6), floats(6)],
    ),
    (
        "f(x: T[n, c], g: T[c], w: T[c, d]) -> y: T[n, d] : matmul(rms_norm(x, g, eps=0.1, zero_centered=true), w)",
        lambda x, g, w: F.rms_norm(x, (6,), 1 + g, eps=0.1) @ w,
        [floats(4, 6), floats(6), floats(6, 3)],
    ),
    (
        "f(x: T[n, c], y: T[c, n]) -> z: T[n] : sum(layer_norm(sin(y), eps=0.1), c) + sum(rms_norm(y) * x, c)",
        lambda x, y: F.layer_norm(y.sin().mT, (6,), eps=0.1).sum(1) + (F.rms_norm(y, (4,), eps=1e-6) * x.mT).sum(0),
        [floats(4, 6), floats(6, 4)],
    ),
]
IDS = [case[0] for case in CASES]


def made(makes: list[Make]) -> list[Tensor]:
    given = [make() for make in makes]
    return [t.requires_grad_() if t.is_floating_point() else t for t in given]


def all_of(value: Any) -> list[Tensor]:
    return list(value) if isinstance(value, tuple | list) else [value]


@pytest.mark.parametrize(("formula", "same", "makes"), CASES, ids=IDS)
def test_values(formula: str, same: Callable[..., Any], makes: list[Make]) -> None:
    given = made(makes)
    function = tn.fuse(formula)
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        args = [t.detach().to(dtype) if t.is_floating_point() else t for t in given]
        for have, want in zip(all_of(function(*args)), all_of(same(*args)), strict=True):
            assert have.dtype == want.dtype and have.shape == want.shape
            tolerance = {torch.float64: 1e-9, torch.float32: 1e-4, torch.bfloat16: 0.2}[dtype]
            assert torch.allclose(have, want, rtol=tolerance, atol=tolerance)
    strided = [t.detach().mT.contiguous().mT if t.ndim > 1 else t.detach() for t in given]
    for have, want in zip(all_of(function(*strided)), all_of(same(*given)), strict=True):
        assert torch.allclose(have, want)


@pytest.mark.parametrize(("formula", "same", "makes"), CASES, ids=IDS)
def test_gradients(formula: str, same: Callable[..., Any], makes: list[Make]) -> None:
    given = made(makes)
    smooth = [t for t in given if t.requires_grad]
    weights = [here.randn(*t.shape, dtype=t.dtype) for t in all_of(same(*given))]
    derived = []
    for function in (tn.fuse(formula), same):
        value = torch.stack([(t * w).sum() for t, w in zip(all_of(function(*given)), weights, strict=True)]).sum()
        first = torch.autograd.grad(value, smooth, create_graph=True)
        inner = torch.stack([(g * g).sum() for g in first]).sum()
        second = torch.autograd.grad(inner, smooth, allow_unused=True) if inner.requires_grad else [None] * len(smooth)
        derived.append(
            [*first, *(torch.zeros_like(t) if s is None else s for t, s in zip(smooth, second, strict=True))]
        )
    for have, want in zip(*derived, strict=True):
        assert torch.allclose(have, want, rtol=1e-8, atol=1e-8)


def test_parts_that_do_not_meet() -> None:
    with pytest.raises(ValueError, match="parts of different sizes do not meet"):
        tn.fuse("sum(x[1:] * x)")


def test_parts_that_do_not_fit() -> None:
    x = here.randn(3, 7)
    with pytest.raises(ValueError, match=r"the parts of .* come to 6 elements, and there are 7"):
        tn.fuse("a, b = split(x, [2, 4]); y = sum(a) * b")(x)
    with pytest.raises(ValueError, match="must be a whole number of elements, and is 7 / 2"):
        tn.fuse("a, b = halves(x); y = a * b")(x)
    turned = tn.fuse("f(x: T[*r, 2 * c]) -> y: T[*r, c] : x[..., ::2] * x[..., 1::2]")
    assert torch.equal(turned(x[:, 1:]), x[:, 1::2] * x[:, 2::2])
    with pytest.raises(ValueError, match="7 has to be 2"):
        turned(x)


def test_linear() -> None:
    """Its gradient is one operator for all arguments, which has none itself."""
    text = "f(x: T[*r, c], w: T[d, c], b: T[d]) -> y: T[*r, d] : silu(linear(layer_norm(x), w, b)) * linear(x, w)"
    x, w, b = made([floats(2, 5, 6), floats(3, 6), floats(3)])
    derived = []
    for y in (tn.fuse(text)(x, w, b), F.silu(F.linear(F.layer_norm(x, (6,)), w, b)) * F.linear(x, w)):
        derived.append([y, *torch.autograd.grad((y * y).sum(), [x, w, b])])
    for have, want in zip(*derived, strict=True):
        assert torch.allclose(have, want, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("seed", range(12))
def test_random(seed: int) -> None:
    """Operators and functions one inside the other, twice derived."""
    draw = random.Random(seed)
    wrappers: list[tuple[str, Callable[[Tensor, Tensor, Tensor], Tensor]]] = [
        ("gather({}, i, axis=1)", lambda a, i, w: a.gather(1, i)),
        ("sort({})", lambda a, i, w: a.sort(-1).values),
        ("tril({})", lambda a, i, w: a.tril()),
        ("roll({}, shift=2, axis=0)", lambda a, i, w: a.roll(2, 0)),
        ("sin({})", lambda a, i, w: a.sin()),
        ("tanh({}) * w", lambda a, i, w: a.tanh() * w),
        ("({} - mean(x, c))", lambda a, i, w: a),
        ("softmax({})", lambda a, i, w: a.softmax(-1)),
        ("({} * index(c))", lambda a, i, w: a * torch.arange(5, device=a.device)),
    ]
    chosen = [draw.choice(wrappers) for _ in range(5)]
    text, x, w, i = "x", floats(4, 5)(), floats(4, 5)(), index(5, 4, 5)()
    for wrapper, _ in chosen:
        text = wrapper.format(text)

    def same(x: Tensor, w: Tensor) -> Tensor:
        value = x
        for wrapper, function in chosen:
            value = value - x.mean(1, keepdim=True) if "mean" in wrapper else function(value, i, w)
        return value + 0.1 * w

    function = tn.fuse(f"f(x: T[n, c], w: T[n, c], i: i64[n, c]) -> y: T[n, c] : {text} + 0.1 * w")
    weight, derived = floats(4, 5)(), []
    for call in (lambda a, b: function(a, b, i), same):
        a, b = x.clone().requires_grad_(), w.clone().requires_grad_()
        y = call(a, b)
        first = torch.autograd.grad((y * weight).sum(), (a, b), create_graph=True, allow_unused=True)
        kept = [g for g in first if g is not None and g.requires_grad]
        inner = torch.stack([(g * g).sum() for g in kept]).sum() if kept else None
        second = (None, None) if inner is None else torch.autograd.grad(inner, (a, b), allow_unused=True)
        derived.append([y, *(torch.zeros_like(x) if g is None else g for g in (*first, *second))])
    for have, want in zip(*derived, strict=True):
        assert torch.allclose(have, want, rtol=1e-7, atol=1e-7), text


def test_compiled() -> None:
    """It stays one operator."""
    function = tn.fuse("sin(gather(x * 2, i)) * w")
    x, i, w = here.randn(4, 9, requires_grad=True), index(9, 4, 3)(), here.randn(3)
    compiled = torch.compile(lambda a, b, c: function(a.cos(), b, c) * 2, backend="aot_eager", fullgraph=True)
    want = (x.cos() * 2).gather(-1, i).sin() * w * 2
    assert torch.allclose(compiled(x, i, w), want, atol=1e-5)
    grads = [torch.autograd.grad(y.sum(), x)[0] for y in (compiled(x, i, w), want)]
    assert torch.allclose(grads[0], grads[1], atol=1e-5)


def test_optional_inputs_and_empty_tensors() -> None:
    function = tn.fuse("f(x: T[n, c], i: i64[n, k], w: T[k]?) -> y: T[n, k] : t = gather(x, i); t * w if has(w) else t")
    x, i, w = here.randn(4, 9), index(9, 4, 3)(), here.randn(3)
    assert torch.allclose(function(x, i), x.gather(1, i))
    assert torch.allclose(function(x, i, w), x.gather(1, i) * w)
    assert function(x, i[:, :0], w[:0]).shape == (4, 0)
    assert function(x[:0], i[:0], w).shape == (0, 3)


def test_dimensions_that_no_argument_has_all_of() -> None:
    function = tn.fuse("f(x: T[n, c], i: i64[n, m], w: T[k]) -> y: T[n, m, k] : sum(x, c) * gather(x, i) * w * sum(w)")
    x = here.randn(4, 7, dtype=torch.float64, requires_grad=True)
    w = here.randn(3, dtype=torch.float64, requires_grad=True)
    i = torch.randint(0, 7, (4, 5), device=x.device)
    want = x.sum(1)[:, None, None] * x.gather(1, i)[..., None] * w * w.sum()
    assert torch.allclose(function(x, i, w), want)
    assert torch.autograd.gradcheck(lambda x, w: function(x, i, w), (x, w))
    assert torch.autograd.gradgradcheck(lambda x, w: function(x, i, w), (x, w))


def test_one_call_for_two_results() -> None:
    sorted_x, where = tn.fuse("y = sort(x) * 1; z = sort(x, result='index')")(x := here.randn(5, 8))
    want = x.sort(-1)
    assert torch.equal(sorted_x, want.values) and torch.equal(where, want.indices)


@pytest.mark.parametrize(
    ("formula", "message"),
    [
        ("gather(x)", "gather needs 'index'"),
        ("gather(x, i, axes=0)", "gather has no attribute 'axes'"),
        (
            "f(x: T[n], k: int) -> y: T[n] : roll(x, shift=k + 1, axis=n)",
            "a number that the formula's text alone tells",
        ),
        ("f(x: T[n], w: T[m]) -> y: T[n] : cumsum(x, axis=m) * sum(w)", "is given first has not this one dimension"),
        ("f(x: T[n], a: axis = 0) -> y: T[n] : cumsum(x, axis=a)", "axis of cumsum cannot be one: only an int"),
        ("sort(x, axis=foo)", "axis needs an int"),
        ("sort(x, y)", "sort takes 1 tensor, and attributes by name"),
        ("sort(x, result='indices')", "sort has no result of this name, such as 'values'"),
        ("top_k(x, k=3)", "what top_k makes has another shape than what it is given"),
        ("table[i]", "what embedding makes has another shape than what it is given"),
        ("f(x: T[n, c], i: T[n, k]) -> y: T[n, k] : gather(x, i)", "gather takes integers as index"),
        ("f(x: T[n, c]!) : x = sort(x)", "cannot update its inputs"),
        ("f(x: T[n, c]?, w: T[n, c]) -> y: T[n, c] : w * sort(x)", "may be absent"),
    ],
)
def test_mistakes(formula: str, message: str) -> None:
    with pytest.raises(ValueError) as error:
        tn.fuse(formula)
    assert message in str(error.value)


def test_no_gradient() -> None:
    x = here.randn(4, 6, requires_grad=True)
    y = tn.fuse("f(x: T[*r, n]) -> y: T[*r, n] : log_softmax(x) * 2")(x)
    assert y.requires_grad
    assert not tn.fuse("sort(x, result='index')")(x).requires_grad
