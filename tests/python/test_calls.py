"""Calls as people write them, who know torch: numbers beside tensors, names of parameters, and what they then mean."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any

import here
import pytest
import torch
import torch.fx
import torch.nn.functional as F
from cases import assert_close
from torch import Tensor

import tenon.torch as tn

# ---- numbers beside tensors ------------------------------------------------------------------------------------------

BESIDE: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "add": lambda f, x: f.add(x, 2.0),
    "add, first": lambda f, x: f.add(x, 2),
    "add, alpha": lambda f, x: f.add(x, 2, alpha=0.5),
    "sub": lambda f, x: f.sub(x, 1.5),
    "mul": lambda f, x: f.mul(x, 2),
    "div": lambda f, x: f.div(x, 3),
    "div, rounded": lambda f, x: f.div(x, 0.3, rounding_mode="floor"),
    "pow": lambda f, x: f.pow(x, 2),
    "pow of a number": lambda f, x: f.pow(2.0, x),
    "lerp": lambda f, x: f.lerp(x, -x, 0.25),
    "clamp": lambda f, x: f.clamp(x, -0.5),
    "add, True": lambda f, x: f.add(x, True),
    "mul, False": lambda f, x: f.mul(x, False),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("name", BESIDE)
def test_numbers_beside_tensors(name: str, dtype: torch.dtype) -> None:
    call = BESIDE[name]
    x = here.randn(3, 4).to(dtype).requires_grad_()
    have, want = call(tn, x), call(torch, x)
    assert have.dtype == want.dtype == dtype
    gradients = [torch.autograd.grad(y.sum(), x)[0] for y in (have, want)]
    assert_close([have, gradients[0]], [want, gradients[1]], "bf16" if dtype == torch.bfloat16 else "f32")


def test_numbers_beside_tensors_while_compiling() -> None:
    scaled = tn.fuse("x * s + b")

    def both(x: Tensor) -> Tensor:
        return scaled(tn.add(x, 2.0), 3, 0.5) * tn.mul(x, 2)

    x = here.randn(4, 5, requires_grad=True)
    have = torch.compile(both, fullgraph=True, backend="aot_eager")(x)
    assert_close(have, ((x + 2) * 3 + 0.5) * (x * 2))
    assert_close(torch.autograd.grad(have.sum(), x), torch.autograd.grad((((x + 2) * 3 + 0.5) * (x * 2)).sum(), x))


def test_numbers_count_for_no_type() -> None:
    """An exact number stays so where types differ: it is no bf16 because the first tensor is."""
    x, y = here.ones(3, dtype=torch.bfloat16), here.ones(3, dtype=torch.float64)
    assert torch.equal(tn.lerp(x, y + 1, 0.1), 1 + here.full((3,), 0.1, dtype=torch.float64))
    assert tn.add(here.ones(2, dtype=torch.float16), 1e-3).dtype == torch.float16


@pytest.mark.parametrize("device", {"meta", here.DEVICE} - {"cpu"})
def test_a_0_dim_tensor_of_the_cpu_beside_others(device: str) -> None:
    x, number = torch.randn(3, 4, device=device), torch.tensor(2.0, requires_grad=True)
    for result in (tn.mul(x, number), tn.add(number, x), tn.fuse("x * s")(x, number), tn.lerp(x, x, number.detach())):
        assert result.device == x.device and result.shape == x.shape
    if device != "meta":
        (gradient,) = torch.autograd.grad(tn.mul(x, number).sum(), number)
        assert_close(gradient, x.sum(), scale=10)
        assert gradient.device == number.device
    p, g = (torch.zeros(3, device=device) for _ in range(2))
    tn.sgd_step(p, g, torch.zeros_like(p), torch.tensor(0.1))
    with pytest.raises(RuntimeError, match="add: other is on cpu, but input is on"):
        tn.add(x, torch.ones(4))


def test_scale_and_bias_are_given_by_name() -> None:
    x, scale, bias = here.randn(3, 4), here.randn(4), here.randn(4)
    assert_close(tn.scale_bias_relu(x, bias=bias, scale=scale), torch.relu(x * scale + bias))
    assert_close(tn.scale_bias_relu(x, scale=2.0, bias=1), torch.relu(x * 2 + 1))
    with pytest.raises(TypeError, match="positional"):
        tn.scale_bias_relu(x, bias, scale)


# ---- names and positions ---------------------------------------------------------------------------------------------


def test_dimensions_in_both_spellings() -> None:
    x = here.randn(2, 3, 4)
    spellings: list[dict[str, Any]] = [{"dim": 1}, {"axis": 1}, {"dim": (0, 2)}, {"axis": (0, 2), "keepdims": True}]
    for named in (*spellings, {"dim": 1, "keepdim": True}):
        assert_close(tn.sum(x, **named), torch.sum(x, **named))
    assert_close(tn.softmax(x, axis=1), torch.softmax(x, 1))
    with pytest.raises(TypeError, match="sum: dim and axis are the same"):
        tn.sum(x, 1, axis=0)
    with pytest.raises(TypeError, match="softmax: dim and axis are the same"):
        tn.softmax(x, 1, axis=0)


def test_the_third_argument_of_cosine_similarity_is_a_dimension() -> None:
    a, b = here.randn(5, 3), here.randn(5, 3)
    for dim in (0, 1, -1):
        assert_close(tn.cosine_similarity(a, b, dim), F.cosine_similarity(a, b, dim))


def test_batch_norm_writes_to_the_running_statistics_alone() -> None:
    x, weight, bias = here.randn(6, 3), here.rand(3), here.rand(3)
    means, variances = here.zeros(2, 3), here.ones(2, 3)
    kept = weight.clone(), bias.clone()
    have = tn.batch_norm(x, means[0], variances[0], weight, bias, True)
    want = F.batch_norm(x, means[1], variances[1], weight, bias, True)
    assert_close([have, means[0], variances[0]], [want, means[1], variances[1]])
    assert torch.equal(weight, kept[0]) and torch.equal(bias, kept[1])
    assert_close(tn.batch_norm(x, *means, weight), F.batch_norm(x, *means, weight))
    with pytest.raises(ValueError, match="running_mean and running_var are needed, as training is False"):
        tn.batch_norm(x, None, None)


@pytest.mark.parametrize("training", [True, False])
def test_statistics_of_float64_are_exact(training: bool) -> None:
    x = 1e4 + here.randn(64, 3, dtype=torch.float64)
    results = []
    for function in (tn.batch_norm, F.batch_norm):
        mean, var = here.zeros(3, dtype=torch.float64), here.ones(3, dtype=torch.float64)
        results.append([function(x, mean, var, training=training), mean, var])
    for have, want in zip(*results, strict=True):
        torch.testing.assert_close(have, want, rtol=1e-9, atol=1e-9)


def test_classes_are_dimension_1() -> None:
    x, target = here.randn(2, 3, 3), here.randint(3, (2, 3))
    assert_close(tn.cross_entropy(x, target), F.cross_entropy(x, target))
    assert_close(tn.cross_entropy(x, target, dim=-1), F.cross_entropy(x.movedim(-1, 1), target))
    soft = torch.softmax(here.randn(2, 3, 3), 1)
    assert_close(tn.cross_entropy(x, soft, label_smoothing=0.1), F.cross_entropy(x, soft, label_smoothing=0.1))
    penalty = 0.1 * torch.logsumexp(x, 1).square().mean()
    assert_close(tn.cross_entropy(x, soft, z_loss=0.1), F.cross_entropy(x, soft) + penalty)


ACTIVATIONS = ["celu", "elu", "hard_sigmoid", "hard_swish", "leaky_relu", "mish", "relu", "selu", "silu"]


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_in_place(name: str) -> None:
    function, theirs = getattr(tn, name), getattr(F, name.replace("hard_", "hard"))
    x = here.randn(3, 4)
    want, given = theirs(x), x.clone()
    assert function(given, inplace=True) is given
    assert_close(given, want)
    leaf = x.clone().requires_grad_()
    middle = leaf * 1
    function(middle, inplace=True).sum().backward()
    other = x.clone().requires_grad_()
    theirs(other * 1, inplace=True).sum().backward()
    assert_close([middle, leaf.grad], [want, other.grad])
    traced = torch.fx.symbolic_trace(lambda t: function(t, inplace=True))
    assert_close(traced(x.clone()), want)


def test_layer_norm_takes_sizes() -> None:
    x, weight = here.randn(2, 3, 4), here.rand(3, 4)
    assert_close(tn.layer_norm(x, (3, 4), weight), F.layer_norm(x, (3, 4), weight))
    assert_close(tn.layer_norm(x), F.layer_norm(x, (4,)))
    assert_close(tn.rms_norm(x, 4), F.rms_norm(x, (4,)))
    with pytest.raises(TypeError, match="normalized_shape must be sizes, such as \\(64,\\), not a tensor"):
        tn.layer_norm(x, weight[0])


def test_dropout_draws_its_seed() -> None:
    x = here.ones(1000)
    torch.manual_seed(3)
    y = tn.dropout(x, 0.25)
    torch.manual_seed(3)
    assert torch.equal(y, tn.dropout(x, 0.25)) and not torch.equal(y, tn.dropout(x, 0.25))
    assert tn.dropout(x, training=False) is x
    seed = here.tensor([1, 2])
    assert torch.equal(tn.dropout(x, seed=seed), tn.dropout(x, seed=seed))


# ---- what was not said, or not finite --------------------------------------------------------------------------------


@pytest.mark.parametrize(("queries", "keys"), [(3, 5), (4, 4), (5, 3)])
def test_causal_softmax_ends_with_all_keys(queries: int, keys: int) -> None:
    """The last query sees all keys; with more queries than keys the first see nothing, and their rows are 0."""
    x = here.randn(2, queries, keys)
    seen = here.ones(queries, keys, dtype=torch.bool).tril(keys - queries)
    want = torch.softmax(x.masked_fill(~seen, float("-inf")), -1).nan_to_num(0.0)
    assert_close(tn.softmax(x, causal=True), want)
    assert bool((want[:, : max(queries - keys, 0)] == 0).all())


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0, 2.0])
def test_focal_of_confident_samples_has_a_gradient(gamma: float) -> None:
    x = here.tensor([20.0, 60.0, 200.0, -200.0, 0.5, -3.0]).requires_grad_()
    target = here.tensor([1.0, 1.0, 1.0, 0.0, 1.0, 1.0])
    (dx,) = torch.autograd.grad(tn.focal(x, target, "sum", gamma=gamma), x)
    wide = x.detach().double().requires_grad_()
    signed = torch.where(target > 0, wide, -wide)
    each = torch.where(target > 0, 0.25, 0.75) * (gamma * F.logsigmoid(-signed)).exp() * F.softplus(-signed)
    (want,) = torch.autograd.grad(each.sum(), wide)
    assert dx.isfinite().all()
    assert_close(dx, want)


def test_clamp_passes_the_gradient_at_its_bounds() -> None:
    x = here.tensor([-2.0, -1.0, 0.0, 1.0, 2.0]).requires_grad_()
    for given in ((-1.0, 1.0), (-1.0, None), (None, 1.0), (1.0, -1.0)):
        have, want = (torch.autograd.grad(f.clamp(x, *given).sum(), x)[0] for f in (tn, torch))
        assert torch.equal(have, want), given
    assert_close(tn.clamp(x, x.detach()[1:2], 0.5), torch.clamp(x, -1.0, 0.5))  # a tensor beside a number
    with pytest.raises(ValueError, match="min and max are both None"):
        tn.clamp(x)


# ---- the module ------------------------------------------------------------------------------------------------------


def test_dir_has_what_is_meant() -> None:
    assert {"softmax", "fuse", "load", "nn", "optim", "ops", "Param"} <= {*dir(tn)}
    assert all(hasattr(tn, name) for name in dir(tn))
    strange = [n for n in dir(tn) if n.startswith("_") or getattr(getattr(tn, n), "__module__", "tenon")[:5] != "tenon"]
    assert strange == []


def test_a_name_that_is_nearly_right() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'sofmax'; did you mean 'softmax'"):
        tn.sofmax  # noqa: B018


def test_the_module_is_loaded_again() -> None:
    softmax, names = tn.softmax, tn.ops()
    assert importlib.reload(tn) is tn
    assert tn.softmax is softmax and tn.ops() == names
    assert_close(tn.fuse("x + 1")(here.zeros(2)), here.ones(2))
    assert len([f for f in __import__("tenon")._adapters if f.__module__ == "tenon.torch"]) == 1


def test_formulas_made_while_compiling() -> None:
    def two(x: Tensor, n: int) -> Tensor:
        return tn.fuse(f"silu(x) * {n}")(x) + tn.fuse("x * y", fast=True)(x, x)

    x = here.randn(4, 5, requires_grad=True)
    # dynamo would make n symbolic when it changes, and texts are made of constants alone
    compiled = torch.compile(two, fullgraph=True, dynamic=False, backend="aot_eager")
    for n in (2, 3, 2):
        have, want = compiled(x, n), F.silu(x) * n + x * x
        assert_close(have, want)
        assert_close(torch.autograd.grad(have.sum(), x), torch.autograd.grad(want.sum(), x))
    assert inspect.signature(tn.fuse).parameters.keys() == {"formula", "fast"}
