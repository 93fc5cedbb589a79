"""Every operator: element types, ways to call, layouts of memory."""

from __future__ import annotations

from collections.abc import Callable

import here
import pytest
import torch
from cases import Case, assert_close, cases, clone, dealt, differentiable_inputs, one_each, shown, tensors
from torch import Tensor

import tenon.torch as tn
from tenon.contract import Input
from tenon.torch import _direct


@pytest.mark.parametrize(("case", "T"), dealt(cases(), ["f32", "f16", "bf16"], each=2), ids=str)
def test_agrees_with_float64(case: Case, T: str) -> None:
    args = case.make(T)
    wide = case.make("f64")
    for a, w in zip(tensors(args), tensors(wide), strict=True):
        w.copy_(a)
    assert_close(case.torch_op.full(*args), case.torch_op.full(*wide), T, scale=4)
    for param, a, w in zip(case.op.params, args, wide, strict=True):
        if isinstance(param, Input) and param.inplace:
            assert_close(a, w, T, scale=4)


@pytest.mark.parametrize("case", cases(), ids=str)
def test_all_ways_to_call_agree(case: Case) -> None:
    args = case.make()
    full = case.torch_op.full(*clone(args))
    for other in (case.torch_op.overload, case.torch_op.raw, case.torch_op.forward):
        again = list(tensors(other(*clone(args))))
        assert all(torch.equal(a, b) or (a != a).any() for a, b in zip(tensors(full), again, strict=True))
    shown = list(tensors(case.call(clone(args))))
    assert shown or not case.op.outputs
    unasked = {o.want_attr for o in case.op.outputs if o.want == "grad"}  # another kernel may do without them
    plain = [False if p.name in unasked else a for p, a in zip(case.op.params, args, strict=True)]
    first = next(tensors(case.torch_op.full(*clone(plain))), None)
    assert first is None or torch.equal(shown[0].nan_to_num(), first.nan_to_num())


# ---- layouts ---------------------------------------------------------------------------------------------------------


def transposed(t: Tensor) -> Tensor:
    return t.transpose(0, -1).contiguous().transpose(0, -1) if t.ndim > 1 else t


def sliced(t: Tensor) -> Tensor:
    """Every second element of something larger, in every dimension."""
    big = here.zeros([2 * n + 1 for n in t.shape], dtype=t.dtype)
    view = big[tuple(slice(1, None, 2) for _ in t.shape)]
    return view.copy_(t)


def misaligned(t: Tensor) -> Tensor:
    """Begins three elements into its memory."""
    return here.zeros(t.numel() + 3, dtype=t.dtype)[3:].view(t.shape).copy_(t)


def repeated(t: Tensor) -> Tensor:
    """Stride 0 in the first dimension (and so other values)."""
    return t[:1].expand(t.shape) if t.ndim and t.shape[0] else t


def channels_last(t: Tensor) -> Tensor:
    return t.to(memory_format=torch.channels_last) if t.ndim == 4 else t


LAYOUTS = [transposed, sliced, misaligned, repeated, channels_last]


@pytest.mark.parametrize(("case", "change"), dealt(cases(4096), LAYOUTS, each=2), ids=shown)
def test_layouts(case: Case, change: Callable[[Tensor], Tensor]) -> None:
    ordered = [i for i in case.sample["inputs"] if i["order"] == "permutation" and i["along"] == 0]
    if ordered and change is repeated:
        pytest.skip("a permutation along the first dimension has no equal elements there")
    torch.manual_seed(0)
    args = case.make(change=change)
    dense = [a.contiguous() if isinstance(a, Tensor) else a for a in clone(args)]
    assert_close(case.torch_op.full(*args), case.torch_op.full(*dense))


@pytest.mark.parametrize("case", one_each(), ids=str)
def test_offsets(case: Case) -> None:
    for offset in range(1, 16):

        def shift(t: Tensor, offset: int = offset) -> Tensor:
            return here.zeros(t.numel() + offset, dtype=t.dtype)[offset:].view(t.shape).copy_(t)

        torch.manual_seed(0)
        args = case.make(change=shift)
        dense = clone(args)
        assert_close(case.torch_op.full(*args), case.torch_op.full(*dense))


def is_elementwise(case: Case) -> bool:
    """Whether its tensors may have any shape, one for all."""
    fixed = [p for p in case.op.inputs if p.list or p.inplace or len(p.shape) != 1 or "pack" not in p.shape[0]]
    along = [p for p in case.op.attrs if p.name in ("axis", "axes")]
    return not fixed and not along and case.op.formula is not None


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (2, 3, 4, 5)], ids=str)
@pytest.mark.parametrize("case", one_each(is_elementwise), ids=str)
def test_any_shape(case: Case, shape: tuple[int, ...]) -> None:
    """0-dim, empty, and channels-last, which stays: the same numbers as in a row, with gradients."""
    args = case.make("f64", same=True)
    row, shaped = list(args), list(args)
    for i, value in enumerate(args):
        if isinstance(value, Tensor):
            made = (here.rand(shape) + 0.5 if value.is_floating_point() else here.ones(shape)).to(value.dtype)
            wanted = i in differentiable_inputs(case)
            row[i] = made.reshape(-1).clone().requires_grad_(wanted)
            shaped[i] = channels_last(made).requires_grad_(wanted)
    have, want = case.call(shaped), case.call(row)
    whole = have.shape == shape
    assert_close(have.reshape(-1), want.reshape(-1), "f64")
    assert not whole or len(shape) < 4 or have.is_contiguous(memory_format=torch.channels_last)
    if have.requires_grad:
        have.sum().backward()
        want.sum().backward()
        for a, b in zip(tensors(shaped), tensors(row), strict=True):
            assert a.grad is None or (a.grad.shape == a.shape and a.grad.dtype == a.dtype)
            assert_close([a.grad.reshape(-1)] if a.grad is not None else [], b.grad, "f64")


def test_channels_last_stays() -> None:
    x = here.randn(2, 8, 5, 6).to(memory_format=torch.channels_last)
    assert tn.softmax(x, axis=1).is_contiguous(memory_format=torch.channels_last)
    assert tn.softmax(x[:, :, ::2]).is_contiguous()  # gaps do not stay


def test_a_single_axis() -> None:
    """It stands for a list, called directly and where a graph is made."""
    x = here.randn(3, 4, 5, requires_grad=True)
    for call in (tn.sum, torch.compile(tn.sum, fullgraph=True, backend="aot_eager")):
        assert_close(call(x, 1), x.sum(1))
        assert_close(call(x, axis=-1, keepdims=True), x.sum(-1, keepdim=True))
    (dx,) = torch.autograd.grad(tn.sum(x, 1).sum(), x)
    assert_close(dx, torch.ones_like(x))


@pytest.mark.parametrize("known", [True, False])
def test_negative_sign_and_conjugates_are_applied(known: bool) -> None:
    """Whether tensors are looked into for it, or asked."""
    z = here.randn(3, 4, dtype=torch.complex64)
    keys = _direct._keys()
    assert keys[2] or not _direct.available
    _direct._lib.tn_torch_direct_keys(*(keys if known else (0, 0, 0)))
    try:
        for x in (torch.imag(z.conj()), torch._neg_view(here.randn(3, 4)), torch._neg_view(here.tensor(1.0))):
            assert x.is_neg()
            assert_close(tn.softmax(x) if x.ndim else tn.relu(x), torch.softmax(x, -1) if x.ndim else torch.relu(x))
            assert torch.equal(tn.relu(x.resolve_neg()), tn.relu(x))
    finally:
        _direct._lib.tn_torch_direct_keys(*keys)


def test_zero_tensors_have_values() -> None:
    zeros = torch._efficientzerotensor((2, 5))
    assert_close(tn.softmax(zeros), here.full((2, 5), 0.2))


def test_parameters_and_buffers() -> None:
    p = torch.nn.Parameter(here.randn(3, 5))
    with torch.no_grad():
        y = tn.softmax(p)
    assert type(y) is Tensor and not y.requires_grad


def test_threads_of_torch_are_used() -> None:
    before = torch.get_num_threads()
    x = here.randn(2048, 257)
    try:
        results = []
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            results.append(tn.softmax(x))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])
