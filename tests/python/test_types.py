"""Element types that meet: what torch promotes is promoted, and autocast does what the table says for each operator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import here
import pytest
import torch
import torch.nn.functional as F
from cases import Case, assert_close, clone, differentiable_inputs, one_each, tensors
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

import tenon
import tenon.torch as tn
from peers import OPERATORS, Given, make
from tenon.contract import Attr, Input
from tenon.torch._ops import same_type
from tenon.torch._types import DTYPES

FLOATS = [torch.bfloat16, torch.float16, torch.float32, torch.float64]


def results(case: Case, call: Callable[..., Any], args: list[Any]) -> list[Tensor]:
    """The outputs of a call; the gradients of its inputs, 0-dim tensors where there is none; what it wrote."""
    leaves = [args[i] for i in differentiable_inputs(case) if isinstance(args[i], Tensor)]
    for leaf in leaves:
        leaf.requires_grad_()
    outputs = list(tensors(call(args)))
    smooth = [o for o in outputs if o.requires_grad]
    if smooth:
        torch.autograd.backward(smooth, [torch.ones_like(o) for o in smooth])
    written = [args[i] for i, p in enumerate(case.op.params) if isinstance(p, Input) and p.inplace]
    return [*outputs, *(here.zeros(()) if t.grad is None else t.grad for t in leaves), *tensors(written)]


def by_name(case: Case) -> Callable[[list[Any]], Any]:
    """torch.ops.tenon.<name>, with the outputs that tn.<name> shows."""
    return lambda args: case.torch_op.select(getattr(torch.ops.tenon, case.op.name)(*args))


def compiled(case: Case) -> Callable[[list[Any]], Any]:
    def call(args: list[Any]) -> Any:
        torch._dynamo.reset()
        places = [i for i, a in enumerate(args) if isinstance(a, Tensor)]

        def function(*given: Tensor) -> Any:
            values = dict(zip(places, given, strict=True))
            return case.call([values.get(i, a) for i, a in enumerate(args)])

        return torch.compile(function, backend="aot_eager", fullgraph=True)(*(args[i] for i in places))

    return call


def assert_same(have: list[Tensor], want: list[Tensor]) -> None:
    assert [t.dtype for t in have] == [t.dtype for t in want]
    assert_close(have, want, "f32")


# ---- promotion -------------------------------------------------------------------------------------------------------


def first_of_several(case: Case, args: list[Any]) -> list[int]:
    """The first of the inputs that have one type by the contract, where there are more."""
    given = [[i for i in places if args[i] is not None] for places in case.torch_op.alike]
    return [places[0] for places in given if len(places) > 1]


@pytest.mark.parametrize("case", one_each(lambda c: bool(first_of_several(c, c.make()))), ids=str)
def test_types_are_promoted(case: Case) -> None:
    """In every way to call it; a gradient has the type of its input."""
    args = case.make("f32", same=True)
    changed = first_of_several(case, args)
    args = [a.bfloat16() if i in changed else a for i, a in enumerate(args)]

    def by_hand(given: list[Any]) -> Any:
        return case.call([a.float() if i in changed else a for i, a in enumerate(given)])

    want = results(case, by_hand, clone(args))
    for call in (case.call, by_name(case), compiled(case)):
        assert_same(results(case, call, clone(args)), want)
    with torch.inference_mode():
        assert_close(case.call(clone(args)), list(tensors(by_hand(clone(args)))))


@pytest.mark.parametrize("T", FLOATS, ids=str)
@pytest.mark.parametrize("U", [*FLOATS, torch.int64, torch.bool], ids=str)
def test_the_type_is_torchs(T: torch.dtype, U: torch.dtype) -> None:
    """A tensor without dimensions has less to say, as in torch."""
    for shapes in (((3,), (3,)), ((3,), ()), ((), (3,)), ((), ())):
        x, y = here.ones(shapes[0], dtype=T), here.ones(shapes[1], dtype=U)
        want = torch.add(x, y)
        assert all(t.dtype == want.dtype for t in same_type(x, y))
        for call in (tn.add, tn.fuse("x + y"), torch.ops.tenon.add):
            have = call(x, y)
            assert have.dtype == want.dtype
            assert_close(have, want)


def test_formulas_are_promoted() -> None:
    x, y, b = here.randn(3, 4).bfloat16(), here.randn(4), here.randn(3, 1, dtype=torch.float64)
    leaves = [t.requires_grad_() for t in (x, y, b)]
    formula = "silu(x) * y + b"
    traced = torch.compile(tn.fuse(formula), backend="aot_eager", fullgraph=True)
    expected = F.silu(x.double()) * y.double() + b
    want = torch.autograd.grad(expected.sum(), leaves)
    for call in (tn.fuse(formula), traced, lambda *given: torch.ops.tenon.fuse(formula, list(given))[0]):
        have = call(x, y, b)
        assert have.dtype == torch.float64
        assert_close(have, expected)
        grads = torch.autograd.grad(have.sum(), leaves)
        assert [g.dtype for g in grads] == [t.dtype for t in leaves]
        assert_close(list(grads), list(want))


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_transforms_are_promoted() -> None:
    x, y = here.randn(3, 4).bfloat16(), here.randn(4)
    have = torch.func.grad(lambda a, b: tn.mul(a, b).sum(), argnums=(0, 1))(x, y)
    want = torch.func.grad(lambda a, b: torch.mul(a, b).sum(), argnums=(0, 1))(x, y)
    assert [t.dtype for t in have] == [t.dtype for t in want] == [torch.bfloat16, torch.float32]
    assert_close(list(have), list(want), "bf16")
    assert_close(torch.vmap(lambda a: tn.mul(a, y))(x), x * y)
    compiled = torch.compile(tn.mul, backend="aot_eager", fullgraph=True)
    with torch.inference_mode():
        assert_close(compiled(x, y), x * y)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: tn.mul(x, 1j), "mul: other must be a tensor, not complex; torch.tensor(…) makes one"),
        (lambda x: tn.swiglu(x, 2.0), "swiglu: gate must be a tensor, not float; torch.tensor(…) makes one"),
        (lambda x: tn.fuse("x * y")(x, "2"), "formula: y must be a tensor, not str; torch.tensor(…) makes one"),
        (lambda x: tn.add(x, x.to(torch.complex64)), "add: other has type c64, needs"),
        (lambda x: tn.softmax(x, mask=here.ones(3, 4)), "softmax: mask has type f32, needs bool"),
        (lambda x: tn.fuse("x! = x * y")(x.detach(), x.detach().double()), "y has type f64, needs f32"),
        (
            lambda x: tn.mul(x.detach().to(torch.float8_e5m2), x),
            "mul: input has type e5m2, needs f16, bf16, f32 or f64",
        ),
    ],
)
def test_what_is_not_promoted_is_refused(call: Callable[[Tensor], Any], message: str) -> None:
    for needs_grad in (False, True):
        with pytest.raises(TypeError) as error:
            call(here.randn(3, 4, requires_grad=needs_grad))
        assert message in str(error.value)


# ---- autocast --------------------------------------------------------------------------------------------------------


@contextmanager
def autocast_for(device: str, dtype: torch.dtype) -> Iterator[None]:
    """torch.autocast, which does nothing where there is no such device."""
    before = torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)
    torch.set_autocast_enabled(device, True)
    torch.set_autocast_dtype(device, dtype)
    try:
        yield
    finally:
        torch.set_autocast_enabled(device, before[0])
        torch.set_autocast_dtype(device, before[1])


def on_gpu(given: Given) -> Given:
    """The same inputs as fake tensors of a GPU, which need not be there."""
    return {name: torch.empty_like(value, device="cuda") for name, value in given.items()}


# torch's fake_quantize wants a GPU that is there, what is overwritten is cast by nobody, counts are int64 here, 8-bit
# numbers and their scales have types of their own, and torch casts nothing for groups.
OTHERWISE = {
    "fake_quantize",
    "cross_entropy_inplace",
    "histogram",
    "linear_int8",
    "linear_fp8",
    "grouped_linear",
}
ONE_IN_TORCH = {"attention"}  # the logarithm of a row's sum is ours alone
TWO_RESULTS = {"add_layer_norm", "add_rms_norm"}  # of one type, which is that of the sum
RETURNS = [n for n, p in OPERATORS.items() if "[" not in p.inputs and tenon.ops()[n].outputs and n not in OTHERWISE]


@pytest.mark.parametrize("name", RETURNS)
def test_autocast_has_torchs_types(name: str) -> None:
    """Those that torch has on GPUs; on the CPU it casts fewer operators, Tenon the same."""
    early = name == "rms_norm" and here.TORCH < (2, 12)  # torch's policy for it came later
    peer = OPERATORS[name]
    updated = {p.name: None for p in tenon.ops()[name].inputs if p.inplace}  # a torch without CUDA cannot write those
    for T in ("bf16", "f16", "f32", "f64"):
        for dtype in (torch.bfloat16, torch.float16):
            given = make(peer.inputs, (2, 4, 3, 5) if peer.form == "images" else (4, 64), DTYPES[T])
            with FakeTensorMode(allow_non_fake_inputs=True), autocast_for("cuda", dtype):
                have = [t.dtype for t in tensors(peer.ours(name, on_gpu(given))())]
                try:
                    want = [t.dtype for t in tensors(peer.written(*{**on_gpu(given), **updated}.values()))]
                except RuntimeError as refused:  # scatter_add of the 16-bit type that is not autocast's
                    assert "at::autocast::prioritize" in str(refused) and {DTYPES[T], dtype} == set(FLOATS[:2])
                    want = [DTYPES[T]]
            if early and T != "f64":
                want = [torch.float32]
            if name in ONE_IN_TORCH:
                have = have[:1]
            if name in TWO_RESULTS:
                want[0] = want[1]
            assert have == want, f"{T} under {dtype}"


def casts(case: Case) -> bool:
    return case.op.autocast in ("16", "32")


@pytest.mark.parametrize("case", one_each(lambda c: bool(c.op.outputs)), ids=str)
def test_autocast_here(case: Case) -> None:
    """The row's policy, in every way to call it; a gradient has the type of its input."""
    policy = {"16": torch.bfloat16, "32": torch.float32}.get(case.op.autocast or "")
    args = case.make("f32" if case.op.autocast == "16" else "bf16")

    def by_hand(given: list[Any]) -> Any:
        if policy is None:
            return case.call(given)
        free = {i for i, _ in case.torch_op.free}
        return case.call([a.to(policy) if i in free and a is not None else a for i, a in enumerate(given)])

    want = results(case, by_hand, clone(args))
    for call in (case.call, by_name(case), compiled(case))[: 3 if casts(case) else 2]:

        def under(given: list[Any], call: Callable[..., Any] = call) -> Any:
            with torch.autocast(here.DEVICE, torch.bfloat16):
                return call(given)

        assert_same(results(case, under, clone(args)), want)


def test_autocast_around_layers() -> None:
    """bf16 from a matrix product meets f32 parameters, as it does in a model."""
    torch.manual_seed(0)
    linear = torch.nn.Linear(8, 6).to(here.DEVICE)
    gamma, residual = here.randn(6, requires_grad=True), here.randn(4, 6, requires_grad=True)
    x, target = here.randn(4, 8), here.tensor([0, 1, 2, 5])
    mixed = tn.fuse("h * 2 + r")

    def loss() -> Tensor:
        h = linear(x)
        h = tn.layer_norm(tn.swiglu(h, residual), weight=gamma)
        return tn.cross_entropy(mixed(h, residual), target)

    for function in (loss, torch.compile(loss, backend="aot_eager", fullgraph=True)):
        gamma.grad = residual.grad = None
        with torch.autocast(here.DEVICE, torch.bfloat16):
            value = function()
        value.backward()
        assert value.dtype == torch.float32 and gamma.grad is not None and residual.grad is not None
        assert gamma.grad.dtype == residual.grad.dtype == linear.weight.grad.dtype == torch.float32


def test_policies_are_known() -> None:
    import tenon

    assert {op.autocast for op in tenon.ops().values()} <= {None, "16", "32", "widest"}
    assert all(isinstance(p, Attr) or not p.list for o in tenon.ops().values() if o.autocast for p in o.params)
