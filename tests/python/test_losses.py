"""Losses, as functions and as modules, beside torch's."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import here
import pytest
import torch
import torch.nn.functional as F
from cases import assert_close
from torch import Tensor, nn

import tenon.torch as tn

LOSSES: dict[str, tuple[Callable[..., Tensor], Callable[..., Tensor]]] = {
    "mse": (tn.mse, F.mse_loss),
    "l1": (tn.l1, F.l1_loss),
    "huber": (tn.huber, F.huber_loss),
    "bce_with_logits": (tn.bce_with_logits, F.binary_cross_entropy_with_logits),
}


SETTINGS: dict[str, list[dict[str, Any]]] = {
    "mse": [{}, {"size_average": False}, {"reduce": False}],
    "l1": [{}, {"size_average": False}],
    "huber": [{}, {"delta": 0.3}],
    "bce_with_logits": [{}, {"pos_weight": here.rand(4) + 0.5}, {"size_average": False}],
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("weighted", [False, True], ids=["", "weighted"])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("name", LOSSES)
def test_losses_take_what_torchs_take(name: str, reduction: str, weighted: bool, dtype: torch.dtype) -> None:
    x, target, weight = ((here.randn(3, 4)).to(dtype), here.rand(3, 4).to(dtype), (here.rand(3, 4) + 0.1).to(dtype))
    for named in SETTINGS[name]:
        given = {**named, "reduction": reduction, "weight": weight if weighted else None}
        results = []
        for function in LOSSES[name]:
            leaf = x.clone().requires_grad_()
            loss = function(leaf, target, **{k: v.to(dtype) if isinstance(v, Tensor) else v for k, v in given.items()})
            results.append([loss, *torch.autograd.grad(loss.sum(), leaf)])
        assert [t.dtype for t in results[0]] == [t.dtype for t in results[1]] == [dtype] * 2
        assert_close(results[0], results[1], "bf16" if dtype == torch.bfloat16 else "f32", scale=2)


@pytest.mark.parametrize("name", ["mse", "l1", "huber"])
def test_losses_broadcast_with_a_warning(name: str) -> None:
    x, target = here.randn(3, 4), here.rand(4)
    ours, theirs = LOSSES[name]
    for reduction in ("mean", "none"):
        with pytest.warns(UserWarning, match="they broadcast, which is seldom meant") as told:
            have = ours(x, target, reduction=reduction)
        assert told[0].filename == __file__
        with pytest.warns(UserWarning):
            assert_close(have, theirs(x, target, reduction=reduction))


def test_losses_while_compiling() -> None:
    x, target, weight = here.randn(3, 4), here.rand(3, 4), here.rand(3, 4)
    for ours, theirs in LOSSES.values():
        compiled = torch.compile(lambda *t, f=ours: f(t[0], t[1], weight=t[2]), fullgraph=True, backend="aot_eager")
        assert_close(compiled(x, target, weight), theirs(x, target, weight=weight))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_losses_have_the_type_of_the_input(dtype: torch.dtype) -> None:
    x, target = here.randn(4, 3).to(dtype).requires_grad_(), here.rand(4, 3).to(dtype)
    classes = here.tensor([0, 1, 2, 0])
    losses: dict[str, Callable[[Any], Tensor]] = {
        "CrossEntropyLoss": lambda m: m(x, classes),
        "MSELoss": lambda m: m(x, target),
        "KLDivLoss": lambda m: m(x, target),
        "BCEWithLogitsLoss": lambda m: m(x, target),
    }
    for name, call in losses.items():
        have, want = call(getattr(tn.nn, name)()), call(getattr(torch.nn, name)())
        assert have.dtype == want.dtype == dtype, name
        (dx,) = torch.autograd.grad(have, x)
        assert dx.dtype == dtype
        with torch.autocast(x.device.type, torch.bfloat16):
            assert call(getattr(tn.nn, name)()).dtype == torch.float32


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("shape", [(5, 7), (7,), (4, 7, 3), (2, 7, 3, 2)], ids=str)
@pytest.mark.parametrize("weighted", [False, True])
def test_cross_entropy(reduction: str, shape: tuple[int, ...], weighted: bool) -> None:
    args: dict[str, Any] = {"reduction": reduction, "label_smoothing": 0.1, "ignore_index": 2}
    args["weight"] = here.rand(7) + 0.5 if weighted else None
    ours, theirs = tn.nn.CrossEntropyLoss(**args), nn.CrossEntropyLoss(**args)
    assert repr(ours) == repr(theirs) and list(ours.state_dict()) == list(theirs.state_dict())
    x = here.randn(shape).requires_grad_()
    y = x.detach().clone().requires_grad_()
    target = here.randint(3, 7, (shape[0], *shape[2:]) if len(shape) > 1 else ())
    if target.ndim:
        target[0] = 2
    have, want = ours(x, target), theirs(y, target)
    assert_close(have, want)
    have.sum().backward()
    want.sum().backward()
    assert_close(x.grad, y.grad)


def test_cross_entropy_with_weights_of_float64() -> None:
    """No weight is rounded to f32 on the way."""
    x, weight = here.randn(3, 7, dtype=torch.float64).requires_grad_(), here.rand(7, dtype=torch.float64)
    target = here.tensor([0, 6, 2])
    for kind in (torch.int64, torch.int32):
        have, want = (m.CrossEntropyLoss(weight, label_smoothing=0.1) for m in (tn.nn, nn))
        (have_x,) = torch.autograd.grad(have(x, target.to(kind)), x)
        (want_x,) = torch.autograd.grad(want(x, target), x)
        assert torch.allclose(have(x, target.to(kind)), want(x, target), rtol=1e-14, atol=0)
        assert torch.allclose(have_x, want_x, rtol=1e-13, atol=1e-16)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_cross_entropy_of_probabilities_with_z_loss(reduction: str) -> None:
    x, target = here.randn(5, 7, 3), torch.softmax(here.randn(5, 7, 3), 1)
    results = []
    for ours in (True, False):
        leaf = x.clone().requires_grad_()
        if ours:
            loss = tn.cross_entropy(leaf, target, reduction=reduction, label_smoothing=0.1, z_loss=0.01)
        else:
            each = F.cross_entropy(leaf, target, reduction="none", label_smoothing=0.1)
            each = each + 0.01 * torch.logsumexp(leaf, 1).square()
            loss = {"mean": each.mean(), "sum": each.sum(), "none": each}[reduction]
        results.append([loss, *torch.autograd.grad(loss.square().sum(), leaf)])
    assert_close(results[0], results[1], scale=2)


def logits_of(weight: Tensor, dtype: torch.dtype) -> Tensor:
    return (here.ones(6, 1) * torch.arange(1, 7, device=here.DEVICE)[:, None] @ weight.T).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_cross_entropy_in_the_place_of_the_logits(reduction: str, dtype: torch.dtype) -> None:
    """The loss and the gradients are those of tn.cross_entropy, and the logits' memory has the gradient."""
    weight = here.randn(300, 1).requires_grad_()
    target = here.tensor([1, 299, -100, 0, 7, 8])
    args: dict[str, Any] = {"reduction": reduction, "label_smoothing": 0.1, "weight": here.rand(300) + 0.5}
    want = tn.cross_entropy(logits_of(weight, dtype), target, **args)
    x = logits_of(weight, dtype)
    place = x.data_ptr()
    have = tn.cross_entropy_inplace(x, target, **args)
    assert have.dtype == want.dtype and torch.equal(have, want)
    scale = here.rand(want.shape).to(want.dtype)  # a scalar, or a number for each row
    got = torch.autograd.grad(have, [x, weight], scale)
    assert got[0].data_ptr() == place
    assert_close(got[1], torch.autograd.grad(want, weight, scale)[0], "bf16" if dtype == torch.bfloat16 else "f32")
    images = logits_of(weight, dtype).detach().view(2, 3, 300).transpose(1, 2)  # classes are dimension 1
    same = images.clone()
    assert torch.equal(
        tn.cross_entropy_inplace(images, target.view(2, 3), **args), tn.cross_entropy(same, target.view(2, 3), **args)
    )
    assert not torch.equal(images, same)


def test_cross_entropy_in_place_of_what_is_needed_again() -> None:
    weight, target = here.randn(9, 1).requires_grad_(), here.tensor([1, 2, 0, 3, 4, 8])
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        tn.cross_entropy_inplace(logits_of(weight, torch.float32).exp(), target).backward()
    loss = tn.cross_entropy_inplace(logits_of(weight, torch.float32), target)
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    with pytest.raises(RuntimeError, match="input is a leaf that requires a gradient"):
        tn.cross_entropy_inplace(here.randn(6, 9).requires_grad_(), target)
    with pytest.raises(ValueError, match="target has probabilities, needs indices"):
        tn.cross_entropy_inplace(here.randn(6, 9), here.rand(6, 9))
    with pytest.raises(ValueError, match=r"cross_entropy_inplace: target\[5\] is 8, must be below v = 7"):
        tn.cross_entropy_inplace(here.randn(6, 7), target)


def test_cross_entropy_in_place_compiles() -> None:
    weight, target = here.randn(9, 1).requires_grad_(), here.tensor([1, 2, 0, 3, 4, 8])

    def call(w: Tensor) -> Tensor:
        return tn.cross_entropy_inplace(logits_of(w, torch.float32), target)

    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    assert_close(torch.autograd.grad(compiled(weight), weight), torch.autograd.grad(call(weight), weight))


@pytest.mark.filterwarnings("ignore:reduction")
@pytest.mark.parametrize("reduction", ["mean", "sum", "none", "batchmean"])
def test_kl_div(reduction: str) -> None:
    ours, theirs = tn.nn.KLDivLoss(reduction=reduction), nn.KLDivLoss(reduction=reduction)
    assert repr(ours) == repr(theirs)
    x, target = here.randn(4, 6).log_softmax(-1).requires_grad_(), here.randn(4, 6).softmax(-1)
    target[0, 0] = 0
    y = x.detach().clone().requires_grad_()
    have, want = ours(x, target), theirs(y, target)
    assert_close(have, want)
    have.sum().backward()
    want.sum().backward()
    assert_close(x.grad, y.grad)


class TestLosses:
    X = here.rand(4, 3)

    @pytest.mark.parametrize("reduction", ["mean", "none"])
    @pytest.mark.parametrize("name", ["MSELoss", "L1Loss", "HuberLoss", "KLDivLoss"])
    def test_targets_broadcast(self, name: str, reduction: str) -> None:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            have = getattr(tn.nn, name)(reduction=reduction)(self.X, self.X[0])
        assert ("broadcast" in str([w.message for w in caught])) == (name != "KLDivLoss")  # as torch's
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            want = getattr(nn, name)(reduction=reduction)(self.X, self.X[0])
        assert_close(have, want)

    def test_single_values(self) -> None:
        x, target = here.tensor(-1.0), here.tensor(0.5)
        want = nn.KLDivLoss(reduction="batchmean")(x, target)
        assert_close(tn.nn.KLDivLoss(reduction="batchmean")(x, target), want)

    def test_bytes_are_classes(self) -> None:
        target = here.tensor([0, 1, 2, 0])
        want = tn.nn.CrossEntropyLoss()(self.X, target)
        assert torch.equal(tn.nn.CrossEntropyLoss()(self.X, target.to(torch.uint8)), want)

    def test_arguments_out_of_range(self) -> None:
        for make, message in (
            (lambda: tn.nn.HuberLoss(delta=0.0), "delta must be above 0"),
            (lambda: tn.nn.CrossEntropyLoss(label_smoothing=1.5), "label_smoothing must be from 0 to 1"),
            (lambda: tn.nn.CELU(0.0), "alpha must not be 0"),
        ):
            with pytest.raises(ValueError, match=message):
                make()


@pytest.mark.parametrize("size", [1e-5, 1.0, 1e10])
def test_cosine_similarity_of_any_norm(size: float) -> None:
    """Each norm counts as eps at least, not their product; and a row of zeros has a gradient."""
    x, y = (size * here.randn(3, 8) for _ in range(2))
    assert_close(tn.nn.CosineSimilarity(-1)(x, y), nn.CosineSimilarity(-1)(x, y), scale=4)
    zero = here.zeros(1, 3).requires_grad_()
    (have,) = torch.autograd.grad(tn.cosine_similarity(zero, here.tensor([[3.0, 4.0, 0.0]])), zero, here.ones(1))
    assert_close(have / 1e8, here.tensor([[0.6, 0.8, 0.0]]))
