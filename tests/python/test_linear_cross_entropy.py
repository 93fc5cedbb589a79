"""linear_cross_entropy: the same as the loss of a linear layer's logits, in whatever chunks, and what it takes."""

from __future__ import annotations

from typing import Any

import here
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import tenon.torch as tn

OPTIONS: list[dict[str, Any]] = [
    {},
    {"reduction": "sum", "label_smoothing": 0.1, "z_loss": 1e-3},
    {"softcap": 4.0, "temperature": 0.7},
]


def _inputs(rows: int, k: int, v: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    x, w, b = here.randn(rows, k), here.randn(v, k) * 0.3, here.randn(v)
    target = here.randint(0, v, (rows,))
    target[::5] = -100
    made = [t.to(dtype).requires_grad_() for t in (x, w, b)]
    return made[0], made[1], made[2], target


def _written_out(x: Tensor, w: Tensor, b: Tensor, target: Tensor, reduction: str = "mean", **options: float) -> Tensor:
    logits = F.linear(x, w, b)
    cap = options.get("softcap", 0.0)
    logits = (cap * torch.tanh(logits / cap) if cap else logits) / options.get("temperature", 1.0)
    loss = F.cross_entropy(logits, target, reduction=reduction, label_smoothing=options.get("label_smoothing", 0.0))
    penalty = options.get("z_loss", 0.0) * (logits.logsumexp(-1).square() * (target >= 0)).sum()
    return loss + (penalty / (target >= 0).sum() if reduction == "mean" else penalty)


def _error(one: Tensor, other: Tensor) -> float:
    return float((one.detach().double() - other.detach()).norm() / other.detach().norm())


@pytest.mark.parametrize("mib", [512, 1])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_in_chunks(options: dict[str, Any], mib: int) -> None:
    for dtype, bound in ((torch.float64, 1e-12), (torch.float32, 2e-6), (torch.bfloat16, 8e-3)):
        x, w, b, target = _inputs(300, 24, 2003, dtype)  # 1 MiB has room for a part of these logits
        wide = [t.detach().double().requires_grad_() for t in (x, w, b)]
        loss = tn.linear_cross_entropy(x, w, target, b, logits_mib=mib, **options)
        expected = _written_out(*wide, target, **options)
        loss.backward()
        expected.backward()
        assert _error(loss, expected) < bound
        for one, other in zip((x, w, b), wide, strict=True):
            assert one.grad is not None and other.grad is not None
            assert _error(one.grad, other.grad) < bound, dtype


def test_tokens_in_chunks() -> None:
    x, w, b, target = _inputs(300, 24, 2003, torch.float64)
    found = []
    for mib in (512, 1):
        values = tn.linear_cross_entropy_tokens(x, w, target, b, softcap=4.0, label_smoothing=0.1, logits_mib=mib)
        found.append(values + torch.autograd.grad([v.sum() for v in values], (x, w, b)))
    torch.testing.assert_close(found[0], found[1])


def test_gradients_of_tokens() -> None:
    x, w, b, target = _inputs(11, 7, 23, torch.float64)

    def values(x: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        given = {"label_smoothing": 0.1, "z_loss": 0.01, "softcap": 5.0, "temperature": 0.8}
        found: tuple[Tensor, ...] = tn.linear_cross_entropy_tokens(x, w, target, b, **given)
        return found[:3]

    assert torch.autograd.gradcheck(values, (x, w, b))


def test_large_vocabulary() -> None:
    x, w, b, target = _inputs(6, 4, 262_149, torch.float32)
    target[0] = 262_148
    wide = [t.detach().double().requires_grad_() for t in (x, w, b)]
    loss, log_prob, entropy = tn.linear_cross_entropy_tokens(x, w, target, b)
    logs = torch.log_softmax(F.linear(*wide), -1)
    kept = target >= 0
    torch.testing.assert_close(log_prob, (logs.gather(-1, target.clamp(0)[:, None])[:, 0] * kept).float())
    torch.testing.assert_close(entropy, (-(logs.exp() * logs).sum(-1) * kept).float())
    torch.testing.assert_close(loss, -log_prob)
    (entropy.sum() + log_prob.sum()).backward()
    (-(logs.exp() * logs).sum(-1)[kept].sum() + logs.gather(-1, target.clamp(0)[:, None])[kept].sum()).backward()
    for one, other in zip((x, w, b), wide, strict=True):
        assert one.grad is not None and other.grad is not None
        assert _error(one.grad, other.grad) < 1e-5


@pytest.mark.skipif(here.DEVICE != "cpu", reason="a GPU makes NaN of them")
def test_target_that_is_no_class() -> None:
    x, w, _, target = _inputs(3, 4, 5, torch.float32)
    target[1] = 5
    with pytest.raises(ValueError, match=r"linear_cross_entropy: target\[1\] is 5, must be below v = 5"):
        tn.linear_cross_entropy(x, w, target)
