"""Gradients: every rule against finite differences, in every way that a gradient can be asked for."""

from __future__ import annotations

import pathlib
from functools import reduce
from typing import Any

import here
import pytest
import torch
from cases import Case, assert_close, cases, clone, differentiable_inputs, one_each, tensors
from torch import Tensor
from torch.utils._pytree import tree_map

import tenon
import tenon.torch as tn
from tenon._rules import may_need_grad
from tenon.contract import Attr, Operator, fused
from tenon.torch import _direct
from tenon.torch._types import DTYPES


def has_rule(case: Case) -> bool:
    return case.op.rule is not None and not case.op.mutates


def arguments(case: Case, T: str = "f64") -> tuple[list[Any], list[int]]:
    """Arguments in which those that the rule has gradients for require one."""
    args = case.make(T, same=T == "f64")
    wanted = [i for i in differentiable_inputs(case) if isinstance(args[i], Tensor) and args[i].is_floating_point()]
    for i in wanted:
        args[i].requires_grad_()
    return args, wanted


def as_function(case: Case, args: list[Any], wanted: list[int]) -> Any:
    """The operator as a function of the inputs that are differentiated."""

    def function(*inputs: Tensor) -> Any:
        given = list(args)
        for i, value in zip(wanted, inputs, strict=True):
            given[i] = value
        written = [i for i, p in enumerate(case.op.params) if getattr(p, "inplace", False)]
        for i in written:
            given[i] = given[i].clone()
        outputs = [t for t in tensors(case.call(given)) if t.requires_grad or not torch.is_grad_enabled()]
        return tuple(outputs)

    return function


def all_rules(op: Operator) -> bool:
    """Whether everything that the rule calls has a rule itself, so that second derivatives follow."""
    called = [fused(s.formula) if s.formula else tenon.ops()[s.op] for s in op.rule.statements] if op.rule else []
    return op.rule is not None and all(other.rule is not None for other in called)


@pytest.mark.parametrize("case", cases(2048, lambda c: c.op.rule is not None and not c.op.rule.stands_in), ids=str)
def test_gradcheck(case: Case) -> None:
    if case.numel == 0:
        pytest.skip("nothing to differ")
    args, wanted = arguments(case)
    wanted = [i for i in wanted if args[i].dtype == torch.float64]  # others are too coarse for differences
    function = as_function(case, args, wanted)
    inputs = [args[i] for i in wanted]
    assert torch.autograd.gradcheck(function, inputs, fast_mode=case.numel > 64)
    if all_rules(case.op):
        assert torch.autograd.gradgradcheck(function, inputs, fast_mode=True)


@pytest.mark.parametrize("case", cases(2048, lambda c: c.op.rule is not None), ids=str)
def test_sum_backward(case: Case) -> None:
    """The gradient of sum() has stride 0 everywhere."""
    args, wanted = arguments(case, "f32")
    again = clone(args)
    outputs = [t for t in tensors(case.call(args)) if t.requires_grad]
    sum((o.sum() for o in outputs), here.zeros(())).backward()
    outputs = [t for t in tensors(case.call(again)) if t.requires_grad]
    torch.autograd.backward(outputs, [torch.ones_like(o).contiguous() for o in outputs])
    for i in wanted:
        assert args[i].grad is not None and args[i].grad.shape == args[i].shape
        assert_close(args[i].grad, again[i].grad)


@pytest.mark.parametrize("case", cases(2048, lambda c: c.op.rule is not None), ids=str)
def test_torch_ops_differentiate_too(case: Case) -> None:
    args, wanted = arguments(case, "f32")
    again = clone(args)
    first = [t for t in tensors(case.call(args)) if t.requires_grad]
    everything = [t for t in tensors(getattr(torch.ops.tenon, case.op.name)(*again)) if t.requires_grad]
    assert len(everything) == len(first)
    torch.autograd.backward(first, [torch.ones_like(o) for o in first])
    torch.autograd.backward(everything, [torch.ones_like(o) for o in everything])
    for i in wanted:
        assert_close(args[i].grad, again[i].grad)


@pytest.mark.parametrize("case", one_each(lambda c: c.op.rule is not None), ids=str)
def test_each_input_alone(case: Case) -> None:
    """Only what is asked for is computed, and it is the same as when all is asked for."""
    args, wanted = arguments(case, "f64")
    outputs = [t for t in tensors(case.call(clone(args))) if t.requires_grad]
    for i in wanted:
        one = [a.detach() if isinstance(a, Tensor) else a for a in clone(args)]
        one[i].requires_grad_()
        alone = [t for t in tensors(case.call(one)) if t.requires_grad]
        assert len(alone) == len(outputs)
        torch.autograd.backward(alone, [torch.ones_like(o) for o in alone])
        together = clone(args)
        both = [t for t in tensors(case.call(together)) if t.requires_grad]
        torch.autograd.backward(both, [torch.ones_like(o) for o in both])
        assert_close(one[i].grad, together[i].grad, "f64")
        others = [a for k, a in enumerate(one) if isinstance(a, Tensor) and k != i]
        assert all(a.grad is None for a in others)


def is_smooth(case: Case) -> bool:
    """Whether an output could carry a gradient: of integers alone none could."""
    if not any(DTYPES[i.type.get("fixed", ["f32"])[0]].is_floating_point for i in case.op.inputs):
        return False
    return any(DTYPES[o.type.get("fixed", ["f32"])[0]].is_floating_point for o in case.op.outputs)


def has_no_rule(case: Case) -> bool:
    """And would give a silent zero: gradients of lists are refused at once (test_lists.py)."""
    return case.op.rule is None and is_smooth(case) and not case.op.mutates and not any(p.list for p in case.op.inputs)


@pytest.mark.parametrize("case", one_each(has_no_rule), ids=str)
def test_without_a_rule_it_raises(case: Case) -> None:
    args = case.make("f32", grad=True)
    for call in (case.torch_op.full, case.torch_op.overload):
        outputs = [t for t in tensors(call(*args)) if t.requires_grad]
        assert outputs, "an output that hides its history would give a silent zero"
        with pytest.raises(NotImplementedError, match=f"{case.op.name} has no gradient rule"):
            outputs[0].sum().backward()


def test_an_update_in_place_takes_no_gradient() -> None:
    with pytest.raises(RuntimeError, match="max_norm requires a gradient, which an update in place does not give"):
        tn.clip_grad_norm([here.randn(3)], here.tensor(1.0, requires_grad=True))


def test_an_input_without_a_gradient_raises() -> None:
    x = here.randn(4, 5, requires_grad=True)
    weight = here.rand(5, requires_grad=True)
    loss = tn.cross_entropy(x, here.tensor([0, 1, 2, 3]), weight)
    with pytest.raises(NotImplementedError, match="cross_entropy has no gradient for weight"):
        loss.backward()


def test_second_derivative_without_a_rule_raises() -> None:
    x = here.randn(1, 2, 3, 4, requires_grad=True)
    (g,) = torch.autograd.grad(tn.attention(x, x, x)[0].square().sum(), x, create_graph=True)
    assert g.requires_grad
    with pytest.raises(NotImplementedError, match="attention_grad has no gradient rule"):
        g.sum().backward()


def smooth(*shape: int) -> Tensor:
    return here.randn(*shape, dtype=torch.float64, requires_grad=True)


KEEP = [[True, False, True, True, True], [True, True, False, False, True], [False] * 5]
TWICE: dict[str, Any] = {
    "softmax": (lambda x: tn.softmax(x, 1, scale=0.5), lambda x: torch.softmax(0.5 * x, 1), [(2, 3, 5)]),
    "softmax, masked": (
        lambda x: tn.softmax(x, mask=here.tensor(KEEP)),
        lambda x: torch.softmax(x.masked_fill(~here.tensor(KEEP), -torch.inf), -1).nan_to_num(),
        [(2, 3, 5)],
    ),
    "softmax, causal": (
        lambda x: tn.softmax(x, causal=True),
        lambda x: torch.softmax(x.masked_fill(torch.ones_like(x).triu(1) > 0, -torch.inf), -1),
        [(2, 4, 4)],
    ),
    "layer_norm": (
        lambda x, g, b: tn.layer_norm(x, 5, g, b),
        lambda x, g, b: torch.nn.functional.layer_norm(x, (5,), g, b),
        [(2, 3, 5), (5,), (5,)],
    ),
    "layer_norm, bare": (
        lambda x: tn.layer_norm(x, 5, eps=0.1),
        lambda x: torch.nn.functional.layer_norm(x, (5,), eps=0.1),
        [(4, 5)],
    ),
}


@pytest.mark.parametrize("name", TWICE)
def test_second_derivatives(name: str) -> None:
    ours, theirs, shapes = TWICE[name]
    inputs = [smooth(*shape) for shape in shapes]
    assert torch.autograd.gradgradcheck(ours, inputs)
    penalties = []
    for function in (ours, theirs):  # a gradient penalty: nothing arrives at the gradients of parameters
        (g,) = torch.autograd.grad(function(*inputs).sin().sum(), inputs[0], create_graph=True)
        found = torch.autograd.grad(g.square().sum(), inputs, allow_unused=True)
        penalties.append([torch.zeros_like(t) if f is None else f for f, t in zip(found, inputs, strict=True)])
    assert_close(penalties[0], penalties[1], "f64", scale=10)


@pytest.mark.parametrize("name", ["softmax", "layer_norm"])
def test_second_derivatives_in_other_ways(name: str) -> None:
    """Of torch.func, of what is compiled, and through torch.ops."""
    ours, theirs, shapes = TWICE[name]
    x, *rest = [smooth(*shape).detach() for shape in shapes]

    def hessian(function: Any) -> Any:
        return torch.func.jacrev(torch.func.jacrev(lambda t: function(t, *rest).sin().sum()))(x)

    want = hessian(theirs)
    assert_close(hessian(ours), want, "f64", scale=10)
    assert_close(torch.autograd.functional.hessian(lambda t: ours(t, *rest).sin().sum(), x), want, "f64", scale=10)


def test_what_is_not_asked_for_is_not_kept() -> None:
    x = here.randn(3, 4, requires_grad=True)
    with torch.no_grad():
        assert not tn.softmax(x).requires_grad
        assert not torch.ops.tenon.softmax(x).requires_grad
    assert tn.softmax(x).requires_grad
    assert not tn.softmax(x.detach()).requires_grad
    with torch.inference_mode():
        assert tn.softmax(x).is_inference()


def test_gradient_outputs_are_made_only_for_gradients() -> None:
    x, target = here.randn(4, 5), here.tensor([0, 1, 2, 3])
    assert torch.ops.tenon.cross_entropy(x, target)[2] is None
    assert torch.ops.tenon.cross_entropy(x, target, want_gx=True)[2].shape == x.shape
    assert torch.ops.tenon.cross_entropy(x.requires_grad_(), target)[2] is None
    assert isinstance(tn.cross_entropy(x, target), Tensor)


def test_statistics_are_not_differentiable() -> None:
    x = here.randn(4, 5, requires_grad=True)
    y, mean, rstd = torch.ops.tenon.layer_norm(x)
    assert y.requires_grad and not mean.requires_grad and not rstd.requires_grad
    torch.autograd.backward([y], [torch.ones_like(y)])
    assert x.grad is not None


# ---- in place --------------------------------------------------------------------------------------------------


def test_running_statistics_are_updated_and_noted() -> None:
    x = here.randn(6, 3, 4, requires_grad=True)
    mean, var = here.zeros(3), here.ones(3)
    operator: Any = torch.ops.tenon.batch_norm
    calls = (
        lambda: tn.batch_norm(x, mean, var, training=True),
        lambda: operator(x, None, None, mean, var),
        lambda: operator.raw(x, None, None, mean, var),
    )
    for expected, call in enumerate(calls, 1):
        with torch.set_grad_enabled(expected == 1):
            call()
        assert mean._version == expected and var._version == expected
    assert (mean != 0).all()


def test_a_saved_tensor_that_is_overwritten_is_noticed() -> None:
    mean, var = here.zeros(3), here.ones(3)
    scale = here.randn(3, requires_grad=True)
    kept = (scale * mean).sum()
    tn.batch_norm(here.randn(6, 3), mean, var, training=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        kept.backward()


def test_what_is_updated_in_place_cannot_require_a_gradient() -> None:
    mean, var = here.zeros(3, requires_grad=True), here.ones(3)
    with pytest.raises(RuntimeError, match="running_mean is updated in place"):
        tn.batch_norm(here.randn(6, 3), mean, var, training=True)
    p, g, m = torch.nn.Parameter(here.ones(3)), here.ones(3), here.zeros(3)
    for step in (lambda: tn.sgd_step(p, g, m, 0.1), lambda: tn.sgd_step_list([p], [g], [m], 0.1)):
        with pytest.raises(RuntimeError, match=r"p is updated in place.*; torch\.no_grad\(\) allows it"):
            step()
        with torch.no_grad():
            step()


# ---- rules that the built-in operators do not need -------------------------------------------------------------


def test_rules_of_a_plugin(plugin: pathlib.Path) -> None:
    x = here.randn(2, 4, dtype=torch.float64, requires_grad=True)
    y = here.randn(2, 4, dtype=torch.float64, requires_grad=True)
    for function, inputs in (
        (tn.cube, (x,)),
        (lambda x: tn.scaled(x, 2.5), (x,)),
        (lambda x, y: tn.product(x, y, 1.5), (x, y)),
        (lambda x: tn.product(x, x), (x,)),
        (tn.row_sum, (x,)),
        (lambda x: tn.row_spread(x, 3), (x,)),
    ):
        assert torch.autograd.gradcheck(function, inputs)
        assert torch.autograd.gradgradcheck(function, inputs)
    assert torch.autograd.gradcheck(tn.halves, (x,))


def test_unused_outputs_arrive_absent(plugin: pathlib.Path) -> None:
    for used in (0, 1):
        x = here.randn(3, 4, requires_grad=True)
        tn.halves(x)[used].sum().backward()
        expected = here.zeros(3, 4)
        expected[:, 2 * used : 2 * used + 2] = 1
        assert x.grad is not None and torch.equal(x.grad, expected)


def test_lists_have_no_gradient(plugin: pathlib.Path) -> None:
    x = here.randn(3, requires_grad=True)
    with pytest.raises(NotImplementedError, match="no gradient for xs"):
        tn.joined([x, x])
    assert tn.joined([x.detach()]).shape == (3,)


def test_numbers_have_no_gradient(plugin: pathlib.Path) -> None:
    alpha = here.tensor(2.0, requires_grad=True)
    y = tn.scaled(here.randn(3, requires_grad=True), alpha)
    with pytest.raises(NotImplementedError, match="scaled has no gradient for alpha"):
        y.sum().backward()


def test_which_arguments_may_need_a_gradient() -> None:
    op = tenon.ops()["cross_entropy"]
    assert [p.name for p in op.params if may_need_grad(op, p)] == ["x", "weight"]
    assert not any(may_need_grad(op, p) for p in op.params if isinstance(p, Attr))


# ---- torch.func ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["tn", "torch.ops"])
@pytest.mark.parametrize("case", one_each(has_rule), ids=str)
def test_func_grad(case: Case, way: str) -> None:
    args, wanted = arguments(case, "f64")
    function = as_function(case, args, wanted)

    def total(*inputs: Tensor) -> Tensor:
        given = replaced(args, wanted, inputs)
        with torch.enable_grad():
            outputs = case.call(given) if way == "tn" else case.torch_op.select(case.torch_op.overload(*given))
        return sum((o.sum() for o in tensors(outputs) if o.is_floating_point()), here.zeros(()).double())

    inputs = [args[i].detach() for i in wanted]
    have = torch.func.grad(total, argnums=tuple(range(len(wanted))))(*inputs)
    for i in wanted:
        args[i].grad = None
    outputs = [o for o in function(*[args[i] for i in wanted]) if o.requires_grad]
    torch.autograd.backward(outputs, [torch.ones_like(o) for o in outputs])
    assert_close(list(have), [args[i].grad for i in wanted], "f64")


def test_transforms_of_what_is_compiled_or_exported() -> None:
    """They meet operators, not functions."""
    x = here.randn(3, 4, dtype=torch.float64)
    gate = tn.fuse("x * sigmoid(x) * y")
    for function in (tn.gelu, lambda t: gate(t, t), lambda t: torch.ops.tenon.fuse("x * tanh(x)", [t])[0]):
        grad = torch.func.grad(lambda t, f=function: f(t).square().sum())
        want = torch.autograd.grad(function(t := x.clone().requires_grad_()).square().sum(), t)[0]
        assert_close(grad(x), want, "f64")
        assert_close(torch.compile(grad, backend="aot_eager", fullgraph=True)(x), want, "f64")
        assert_close(torch.vmap(grad)(x), want, "f64")
    exported = torch.export.export(tn.nn.GELU(), (x,)).module()
    have = torch.func.grad(lambda t: exported(t).sum())(x)
    assert_close(have, torch.func.grad(lambda t: torch.nn.functional.gelu(t).sum())(x), "f64")
    second = torch.func.jacrev(torch.func.jacrev(lambda t: torch.ops.tenon.gelu(t).sum()))(x[0])
    assert_close(second, torch.func.hessian(lambda t: torch.nn.functional.gelu(t).sum())(x[0]), "f64")


def test_forward_mode_is_refused() -> None:
    x = here.randn(3)
    for transformed in (torch.func.jacfwd(tn.gelu), torch.func.hessian(lambda t: tn.gelu(t).sum())):
        with pytest.raises(NotImplementedError, match="gelu: there is no forward mode"):
            transformed(x)
    for function in (tn.softmax, torch.ops.tenon.softmax, tn.fuse("softmax(x: T[*s]) -> y: T[*s] : x * x")):
        with pytest.raises(NotImplementedError, match="softmax: there is no forward mode"):
            torch.func.jvp(function, (x,), (x,))
    with torch.autograd.forward_ad.dual_level(), pytest.raises(NotImplementedError, match=r"softmax: .*jvp"):
        tn.softmax(torch.autograd.forward_ad.make_dual(x, x))


def replaced(args: list[Any], wanted: list[int], inputs: Any) -> list[Any]:
    given = [a.detach() if isinstance(a, Tensor) else a for a in args]
    for i, value in zip(wanted, inputs, strict=True):
        given[i] = value
    return given


def stacked(value: Any, other: Any) -> tuple[Any, Any]:
    """Two arguments as a batch, and its dimension."""
    if isinstance(value, Tensor):
        return torch.stack([value, other], -1), -1
    if isinstance(value, list) and value and isinstance(value[0], Tensor):
        pairs = [stacked(v, o) for v, o in zip(value, other, strict=True)]
        return [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    return value, None


@pytest.mark.parametrize("case", one_each(), ids=str)
def test_vmap(case: Case) -> None:
    """Every operator, what it updates and its gradients: as in a loop, and for a batch of none."""
    both = [case.make("f64", same=True) for _ in range(2)]
    pairs = [stacked(a, b) for a, b in zip(*both, strict=True)]
    args, dims = [p[0] for p in pairs], tuple(p[1] for p in pairs)

    def call(*given: Any) -> list[Tensor]:
        given = tuple(given)
        return [*tensors(case.call(list(given))), *tensors([given[i] for i in case.torch_op.written])]

    def total(*given: Any) -> Tensor:
        return reduce(torch.add, [t.sum() for t in tensors(case.call(list(given)))])  # torch's 0 + t needs a batch

    def gradients(*given: Any) -> Any:
        wanted = tuple(i for i in differentiable_inputs(case) if isinstance(given[i], Tensor))
        return torch.func.grad(total, wanted)(*given)

    functions = [call, gradients] if has_rule(case) else [call]
    for function in functions:
        have = list(tensors(torch.vmap(function, in_dims=dims)(*clone(args))))
        want = zip(*(tensors(function(*clone(one))) for one in both), strict=True)
        assert_close(have, [torch.stack(parts) for parts in want], "f64")
        nothing = tree_map(lambda t: t[..., :0] if isinstance(t, Tensor) else t, args)
        empty = tensors(torch.vmap(function, in_dims=dims)(*nothing))
        assert [(t.shape, t.dtype) for t in empty] == [(t[:0].shape, t.dtype) for t in have]


def test_vmap_of_torch_ops() -> None:
    x, w = here.randn(5, 3, 4), here.randn(4)
    assert_close(torch.vmap(lambda t: torch.ops.tenon.softmax(t, axis=0))(x), torch.softmax(x, 1))
    twice = torch.vmap(torch.vmap(lambda t: tn.mul(t, w)))
    assert_close(twice(x), x * w)
    assert twice(x[:, :0]).shape == (5, 0, 4) and twice(x[:0]).shape == (0, 3, 4)


def test_vmap_needs_a_place_for_each_update() -> None:
    mean, var = here.zeros(3), here.ones(3)
    with pytest.raises(RuntimeError, match="batch_norm: running_mean is updated in place, so under vmap it needs"):
        torch.vmap(lambda t: tn.batch_norm(t, mean, var, training=True))(here.randn(2, 6, 3))


def loss_of(x: Tensor, target: Tensor) -> tuple[Tensor, list[int]]:
    """A cross entropy, and the addresses of what it keeps for the backward pass."""
    loss = tn.cross_entropy(x, target)
    node: Any = loss.grad_fn
    return loss, [t.data_ptr() for t in node.saved_tensors]


@pytest.mark.parametrize("factor", [1.0, -2.5])
def test_memory_is_handed_over(factor: float) -> None:
    """The gradient that cross_entropy makes in its forward pass becomes x.grad without a copy."""
    x, target = here.randn(6, 50, requires_grad=True), here.randint(50, (6,))
    torch.nn.functional.cross_entropy(x, target).mul(factor).backward()
    expected, x.grad = x.grad, None
    loss, kept = loss_of(x, target)
    loss.mul(factor).backward()
    assert_close(x.grad, expected)
    assert _direct.available is False or x.grad.data_ptr() in kept


def test_memory_that_is_needed_again_is_kept() -> None:
    """With retain_graph, or where the user holds the tensor, nothing is written over."""
    x, target = here.randn(6, 50, requires_grad=True), here.randint(50, (6,))
    loss, kept = loss_of(x, target)
    first = torch.autograd.grad(loss, x, here.tensor(3.0), retain_graph=True)[0]
    assert first.data_ptr() not in kept
    second = torch.autograd.grad(loss, x, here.tensor(1.0), retain_graph=True)[0]
    assert_close(second * 3, first)
    third = torch.autograd.grad(loss, x, here.tensor(2.0))[0]
    assert_close(third * 1.5, first)
    loss, _, gx = torch.ops.tenon.cross_entropy(x, target, want_gx=True)
    before = gx.clone()
    loss.backward(here.tensor(5.0))
    assert torch.equal(gx, before)


STEPS = {
    "sign": (tn.sign, torch.sign),
    "floor": (tn.floor, torch.floor),
    "rounded": (tn.fuse("round(x) * 3"), lambda x: torch.round(x) * 3),
    "compared": (tn.fuse("where(x > 0, 1.0, 0.5)"), lambda x: torch.sign(x)),
}


@pytest.mark.parametrize("name", STEPS)
def test_what_goes_up_in_steps_has_a_gradient_of_zero(name: str) -> None:
    ours, theirs = STEPS[name]
    x = here.randn(5, 3, requires_grad=True)
    dy = torch.full_like(x, float("inf"))  # 0 is no factor of what arrives
    want = torch.autograd.grad(theirs(x), x, torch.ones_like(x))
    assert_close(torch.autograd.grad(ours(x), x, dy), want)
    compiled = torch.compile(lambda x: ours(x) + x, fullgraph=True)
    assert_close(torch.autograd.grad(compiled(x), x, torch.ones_like(x)), [torch.ones_like(x)])
    assert_close(torch.func.vmap(torch.func.grad(lambda row: ours(row).sum()))(x.detach()), want[0])


SLOPES: dict[str, Any] = {
    "leaky_relu": (tn.leaky_relu, torch.nn.functional.leaky_relu),
    "abs": (tn.abs, torch.abs),
    "l1": (lambda x: tn.l1(x, x.detach() - 0.5), lambda x: torch.nn.functional.l1_loss(x, x.detach() - 0.5)),
    "penalty": (tn.fuse("sum(abs(x) * y)"), lambda x, y: (x.abs() * y).sum()),
}


@pytest.mark.parametrize("name", SLOPES)
def test_second_derivatives_of_what_is_straight_are_zero(name: str) -> None:
    found = []
    for call in SLOPES[name]:
        x = torch.linspace(-2, 2, 7, device=here.randn(1).device).requires_grad_()
        args = (x, 2 * x.detach()) if name == "penalty" else (x,)
        (slope,) = torch.autograd.grad(call(*args).sum(), x, create_graph=True)
        found.append([slope.detach(), *torch.autograd.grad(slope.sum(), x)])
    assert_close(*found)
    assert not found[0][1].any()


def test_gradients_that_are_passed_on() -> None:
    """Those of a sum are that of its result, the same memory; what was broadcast is summed up."""
    x, y, row = (here.randn(s, requires_grad=True) for s in ((3, 4), (3, 4), (4,)))
    dz = here.randn(3, 4)
    for call, same, sign in ((tn.add, 2, 1), (tn.sub, 1, -1), (tn.fuse("x + y"), 2, 1)):
        have = torch.autograd.grad(call(x, y), [x, y], dz)
        assert [g.data_ptr() == dz.data_ptr() for g in have] == [True, same == 2]
        assert_close(list(have), [dz, sign * dz])
        have = torch.autograd.grad(call(x, row), [x, row], dz)
        assert_close(list(have), [dz, sign * dz.sum(0)])
        assert_close(list(torch.autograd.grad(call(x, row), [row], dz)), [sign * dz.sum(0)])
    (have,) = torch.autograd.grad(tn.residual_scale(x, y, row), [y], dz)
    assert have.data_ptr() == dz.data_ptr()


def test_gradients_of_terms_are_one() -> None:
    """Of a sum that goes on into something else: the same memory, whichever are wanted."""
    x, y, w = (here.randn(s, requires_grad=True) for s in ((3, 4), (3, 4), (4,)))
    formula = tn.fuse("f(x: T[*s, c], y: T[*s, c], w: T[c]) -> z: T[*s, c] : silu(x + y) * w")
    for call in (tn.add_rms_norm, tn.add_layer_norm, lambda *given: (formula(*given),)):
        whole = torch.autograd.grad(call(x, y, w)[0].square().sum(), [x, y, w])
        assert whole[0].data_ptr() == whole[1].data_ptr()
        for places in ((0,), (1,), (1, 2), (2,)):
            given = [t if i in places else t.detach() for i, t in enumerate((x, y, w))]
            some = torch.autograd.grad(call(*given)[0].square().sum(), [given[i] for i in places])
            assert_close(list(some), [whole[i] for i in places])


def test_gradients_that_are_passed_on_stay_apart() -> None:
    """What is left in two leaves' .grad is two tensors, as with PyTorch's own: optimisers write to them."""
    x, y, dz = here.randn(3, 4, requires_grad=True), here.randn(3, 4, requires_grad=True), here.randn(3, 4)
    for call in (tn.add, tn.fuse("x + y"), lambda x, y: tn.add_rms_norm(x, y)[0]):
        x.grad = y.grad = None
        call(x, y).backward(dz)
        before, given = y.grad.clone(), dz.clone()
        x.grad.mul_(2)
        assert_close(y.grad, before)
        assert_close(dz, given)


def test_second_derivatives_that_are_not_there_are_refused() -> None:
    """The gradient of cross_entropy is made in the forward pass: differentiated again it would be 0."""
    x, target = here.randn(4, 3, dtype=torch.float64), here.tensor([0, 1, 2, 0])

    def loss(x: torch.Tensor) -> torch.Tensor:
        return tn.cross_entropy(x * 2, target)

    once = torch.func.grad(loss)(x)  # asks for a graph, and does not use it
    want = torch.func.grad(lambda x: torch.nn.functional.cross_entropy(x * 2, target))(x)
    assert_close(once, want, "f64")
    each = torch.func.vmap(torch.func.grad(lambda x, t: tn.cross_entropy(x[None], t[None])))(x, target)
    assert_close(each.sum(), here.tensor(0.0, dtype=torch.float64), "f64", scale=10)
    leaf = x.clone().requires_grad_()
    for again in (
        lambda: torch.func.jacrev(torch.func.jacrev(loss))(x),
        lambda: torch.autograd.functional.hessian(loss, x),
        lambda: torch.autograd.grad(loss(leaf), leaf, create_graph=True),
    ):
        with pytest.raises(NotImplementedError, match="gradients of cross_entropy cannot be differentiated again"):
            again()


@pytest.mark.parametrize("size", [1, 5])
def test_many_gradients_at_once(size: int) -> None:
    """is_grads_batched=True, and vectorize=True, go through another vmap than torch.func's."""
    x = here.rand(size, dtype=torch.float64)
    jacobian, hessian = torch.autograd.functional.jacobian, torch.autograd.functional.hessian
    for function in (tn.gelu, tn.fuse("x * tanh(x)"), lambda x: tn.swiglu(x, 2 * x)):
        assert_close(jacobian(function, x, vectorize=True), jacobian(function, x), "f64")
        want = hessian(lambda x, f=function: f(x).sum(), x)
        assert_close(hessian(lambda x, f=function: f(x).sum(), x, vectorize=True), want, "f64", scale=4)


def test_threads_that_do_not_know_of_a_batch() -> None:
    """Backward passes of a GPU run on a thread of their own, which torch does not tell how many vmaps are around it."""
    x, made = here.rand(3, 4), tn.fuse("x * tanh(x) + y")
    one, two = torch._add_batch_dim(x, 0, 1), torch._add_batch_dim(torch._add_batch_dim(x, 0, 1), 0, 2)
    want = made(x, x)
    assert torch.equal(torch._remove_batch_dim(made(one, one), 1, 1, 0), want)
    inner = torch._remove_batch_dim(made(two, one[0]), 2, 1, 0)
    assert torch.equal(torch._remove_batch_dim(inner, 1, 1, 0), made(x, x[:, :1]))


def test_batches_within_batches() -> None:
    """Of the vmap of before torch.func: an operator may have nothing of the inner one."""
    x, made = here.rand(3, 4), tn.fuse("x * tanh(x) + y")
    vmap = torch._vmap_internals._vmap
    assert_close(vmap(lambda a: vmap(lambda b: made(b, b))(a))(x), made(x, x))
    assert_close(vmap(lambda a: vmap(lambda b: made(a, a) + b)(x[0]))(x), made(x, x)[:, None] + x[0][:, None])
    none = vmap(lambda a: made(a, x[0]))(x[:0])
    assert none.shape == (0, 4)


@pytest.mark.parametrize("name", ["LayerNorm", "BatchNorm1d"])
def test_many_gradients_of_modules_at_once(name: str) -> None:
    """What some gradients leave out is no tensor."""
    ours, theirs = (getattr(m, name)(3).to(here.DEVICE, torch.float64) for m in (tn.nn, torch.nn))
    x, jacobian = here.randn(2, 3, dtype=torch.float64), torch.autograd.functional.jacobian
    assert_close(jacobian(ours, x, vectorize=True), jacobian(theirs, x), "f64", scale=10)
