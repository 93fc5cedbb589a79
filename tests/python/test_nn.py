"""Modules: what tn.nn's do, torch.nn's of the same name and arguments do."""

from __future__ import annotations

import copy
import pickle
import threading
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import here
import pytest
import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from cases import assert_close
from torch import Tensor, nn
from torch.nn.utils import fusion

import tenon
import tenon.torch as tn


class Row(NamedTuple):
    """A module that torch has too, and the shapes of what it is called with."""

    name: str
    args: dict[str, Any]
    shapes: Sequence[Sequence[int]]

    def __str__(self) -> str:
        return "-".join([self.name, *(f"{k}={v}" for k, v in self.args.items())])


IMAGES = ((4, 6, 5, 3),)
SCALARS = [
    ("ReLU", {}),
    ("LeakyReLU", {}),
    ("LeakyReLU", {"negative_slope": 0.2}),
    ("ELU", {}),
    ("ELU", {"alpha": 0.5}),
    ("CELU", {"alpha": 2.0}),
    ("SELU", {}),
    ("Sigmoid", {}),
    ("LogSigmoid", {}),
    ("Hardsigmoid", {}),
    ("Tanh", {}),
    ("Softplus", {}),
    ("Softplus", {"beta": 2.0}),
    ("Softsign", {}),
    ("GELU", {}),
    ("GELU", {"approximate": "tanh"}),
    ("SiLU", {}),
    ("Hardswish", {}),
    ("Mish", {}),
    ("Softmax", {"dim": 1}),
    ("Softmax", {"dim": -1}),
    ("PReLU", {}),
    ("PReLU", {"num_parameters": 6, "init": 0.1}),
]
ROWS = [Row(name, args, IMAGES) for name, args in SCALARS]
ROWS += [Row("PReLU", {}, ((7,),)), Row("PReLU", {}, ((),))]
ROWS += [
    Row("LayerNorm", args, ((4, 5, 8),))
    for args in (
        {"normalized_shape": 8},
        {"normalized_shape": (5, 8), "eps": 1e-3},
        {"normalized_shape": 8, "bias": False},
        {"normalized_shape": (8,), "elementwise_affine": False},
    )
]
ROWS += [
    Row("RMSNorm", args, ((4, 5, 8),))
    for args in (
        {"normalized_shape": 8},
        {"normalized_shape": (5, 8), "eps": 1e-3},
        {"normalized_shape": [8], "elementwise_affine": False},
    )
]
ROWS += [
    Row("BatchNorm2d", args, IMAGES)
    for args in (
        {"num_features": 6},
        {"num_features": 6, "eps": 1e-3, "momentum": 0.3},
        {"num_features": 6, "momentum": None},
        {"num_features": 6, "affine": False},
        {"num_features": 6, "track_running_stats": False},
    )
]
ROWS += [Row("BatchNorm1d", {"num_features": 6}, (s,)) for s in ((9, 6), (4, 6, 7))]
ROWS += [Row("BatchNorm3d", {"num_features": 6}, ((2, 6, 3, 4, 5),))]
ROWS += [
    Row(name, {**more, "reduction": reduction}, ((4, 6), (4, 6)))
    for name, more in (("MSELoss", {}), ("L1Loss", {}), ("HuberLoss", {"delta": 0.7}), ("BCEWithLogitsLoss", {}))
    for reduction in ("mean", "sum", "none")
]
ROWS += [Row("CosineSimilarity", {"dim": d}, s) for d, s in ((1, ((4, 6),) * 2), (0, ((4, 6),) * 2), (2, IMAGES * 2))]
ROWS += [Row("CosineSimilarity", {}, ((4, 6), (1, 6)))]


def pair(row: Row, dtype: torch.dtype = torch.float32) -> tuple[nn.Module, nn.Module]:
    """The module and torch's, with the same weights, none of which is special."""
    theirs = getattr(nn, row.name)(**row.args).to(here.DEVICE, dtype)
    ours = getattr(tn.nn, row.name)(**row.args).to(here.DEVICE, dtype)
    with torch.no_grad():
        for p in theirs.parameters():
            p.add_(here.randn(p.shape, dtype=dtype), alpha=0.1)
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


def inputs(row: Row, dtype: torch.dtype) -> tuple[list[Tensor], list[Tensor]]:
    made = [here.randn(shape, dtype=dtype).requires_grad_() for shape in row.shapes]
    return made, [t.detach().clone().requires_grad_() for t in made]


@pytest.mark.parametrize("T", ["f32", "f64", "bf16"])
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_same_as_torch(row: Row, T: str) -> None:
    dtype = {"f32": torch.float32, "f64": torch.float64, "bf16": torch.bfloat16}[T]
    ours, theirs = pair(row, dtype)
    # Running statistics are f32, whatever the module is; and torch's 1/6 of hard_sigmoid is.
    bound = "f32" if T == "f64" and ("BatchNorm" in row.name or "Hard" in row.name) else T
    for training in (True, True, False):
        ours.train(training)
        theirs.train(training)
        have_in, want_in = inputs(row, dtype)
        have, want = ours(*have_in), theirs(*want_in)
        assert_close(have, want, bound)
        gradient = here.randn(have.shape, dtype=have.dtype)
        have.backward(gradient)
        want.backward(gradient.to(want.dtype))
        for a, b in zip(have_in, want_in, strict=True):
            assert_close(a.grad, b.grad, bound)
    for (name, a), (same, b) in zip(ours.named_parameters(), theirs.named_parameters(), strict=True):
        assert name == same
        assert_close(a.grad, b.grad, bound, scale=4.0)
    for a, b in zip(ours.buffers(), theirs.buffers(), strict=True):
        assert a.dtype == b.dtype
        assert_close(a, b, bound)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_state_and_repr(row: Row) -> None:
    ours, theirs = pair(row)
    assert repr(ours) == repr(theirs)
    assert isinstance(ours, type(theirs))
    mine, other = ours.state_dict(), theirs.state_dict()
    assert list(mine) == list(other)
    assert [(t.shape, t.dtype) for t in mine.values()] == [(t.shape, t.dtype) for t in other.values()]
    theirs.load_state_dict(copy.deepcopy(mine))  # and back
    again = pickle.loads(pickle.dumps(ours))
    args = [here.randn(shape) for shape in row.shapes]
    assert_close(again.eval()(*args), ours.eval()(*args))


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_modules_of_torch_become_ours(row: Row) -> None:
    """By their class alone, as some convert a model."""
    ours, theirs = pair(row)
    want = repr(ours)
    theirs.__class__ = type(ours)
    assert repr(theirs) == want
    args = [here.randn(shape) for shape in row.shapes]
    assert_close(theirs(*args), ours(*args))


@pytest.mark.parametrize(("name", "arg"), [("LayerNorm", 6), ("RMSNorm", 6), ("Softmax", -1)])
def test_results_can_be_viewed(name: str, arg: int) -> None:
    """Whatever the strides of the input are, as they can with torch's: tokens made of images are transposed."""
    x = here.randn(2, 6, 5).transpose(1, 2)
    have, want = getattr(tn.nn, name)(arg).to(here.DEVICE)(x), getattr(nn, name)(arg).to(here.DEVICE)(x)
    assert_close(have.view(-1), want.view(-1))


@pytest.mark.parametrize("row", [r for r in ROWS if r.args.get("momentum", 0) is not None], ids=str)
def test_compiled(row: Row) -> None:
    torch._dynamo.reset()
    ours, theirs = pair(row)
    have_in, want_in = inputs(row, torch.float32)
    have = torch.compile(ours, fullgraph=True, backend="aot_eager")(*have_in)
    want = theirs(*want_in)
    assert_close(have, want)
    have.sum().backward()
    want.sum().backward()
    for a, b in zip(have_in, want_in, strict=True):
        assert_close(a.grad, b.grad)
    for a, b in zip(ours.buffers(), theirs.buffers(), strict=True):
        assert_close(a, b)


class Pair(nn.Sequential):
    """A module of two inputs, as a part of one that torch.fx can trace."""

    def forward(self, x: Tensor, y: Tensor) -> Any:
        return self[0](x, y)


TRACED = [*ROWS, Row("Dropout", {}, IMAGES), Row("KLDivLoss", {"reduction": "batchmean"}, ((4, 6),) * 2)]
TRACED += [Row("GatedMLP", {"in_features": 3, "hidden_features": 4}, IMAGES)]
TRACED += [Row("ScaleBiasReLU", {"shape": 3}, IMAGES), Row("QuickGELU", {}, IMAGES)]


@pytest.mark.parametrize("row", TRACED, ids=str)
def test_traced_by_fx(row: Row) -> None:
    """The graph computes what the module does, in training and afterwards."""
    model = (nn.Sequential, Pair)[len(row.shapes) - 1](getattr(tn.nn, row.name)(**row.args)).to(here.DEVICE)
    peer = copy.deepcopy(model)
    traced = torch.fx.symbolic_trace(model)
    for training in (True, False):
        args, results = [here.rand(shape) for shape in row.shapes], []
        for module in (traced, peer):
            torch.manual_seed(1)
            results.append(module.train(training)(*args))
        assert torch.equal(*results)
    for have, want in zip(traced.buffers(), peer.buffers(), strict=True):
        assert torch.equal(have, want)


def test_classes_traced_by_fx() -> None:
    model = Pair(tn.nn.CrossEntropyLoss())
    args = here.randn(4, 6), here.tensor([0, 1, 5, 3])
    assert torch.equal(torch.fx.symbolic_trace(model)(*args), model(*args))


def test_traced_by_fx_and_pickled() -> None:
    model = nn.Sequential(tn.nn.BatchNorm1d(6), tn.nn.GELU(), tn.nn.LayerNorm(6)).to(here.DEVICE)
    traced = pickle.loads(pickle.dumps(torch.fx.symbolic_trace(model)))
    x = here.randn(4, 6)
    assert torch.equal(traced(x), model(x))


def test_traced_by_fx_alone() -> None:
    with pytest.raises(ValueError, match=r"tn.nn.LayerNorm is traced as a part of a module"):
        torch.fx.symbolic_trace(tn.nn.LayerNorm(6))


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore::DeprecationWarning")
class TestTracedByJit:
    @pytest.mark.parametrize("row", [r for r in TRACED if r.args.get("reduction") != "none"], ids=str)
    def test_same(self, row: Row) -> None:
        """With other inputs than those it was traced with, and their gradients."""
        module = getattr(tn.nn, row.name)(**row.args).to(here.DEVICE).eval()
        traced = torch.jit.trace(module, tuple(here.rand(shape) for shape in row.shapes))
        have_in, want_in = inputs(row, torch.float32)
        have, want = traced(*have_in), module(*want_in)
        assert_close(have, want)
        gradient = here.randn(have.shape)
        assert_close(torch.autograd.grad(have, have_in, gradient), torch.autograd.grad(want, want_in, gradient))

    def test_what_torch_does_not_trace(self) -> None:
        x, target = here.rand(4, 6), here.tensor([0, 1, 5, 3])
        for call, args in (
            (tn.fuse("x * 2"), (x,)),
            (tn.nn.MSELoss(reduction="none"), (x, x)),
            (tn.nn.CrossEntropyLoss(), (x, target)),
        ):
            with pytest.raises(RuntimeError, match=r"unsupported .* type: Tensor\?"):
                torch.jit.trace(call, args)


def test_every_class_is_compared() -> None:
    """What torch has too is in the table above; the others have tests of their own, below."""
    own = {"QuickGELU", "ScaleBiasReLU", "GatedMLP", "Dropout", "CrossEntropyLoss", "KLDivLoss"}
    assert set(tn.nn.__all__) == {row.name for row in ROWS} | own
    assert all(getattr(tn.nn, name).__doc__ for name in tn.nn.__all__)


@pytest.mark.parametrize("name", tn.nn.__all__)
def test_subclasses(name: str) -> None:
    """A user's class is derived from one of these as from torch's."""
    base = getattr(tn.nn, name)
    assert type("Own", (base,), {}).forward is base.forward


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_default_eps_of_rms_norm(dtype: torch.dtype) -> None:
    """That of the type that it is computed in: among numbers this small eps is most of the result."""
    ours, theirs = pair(Row("RMSNorm", {"normalized_shape": 8}, ()), dtype)
    x = 1e-3 * here.randn(4, 8, dtype=dtype)
    assert_close(ours(x), theirs(x), {torch.float16: "f16", torch.bfloat16: "bf16"}.get(dtype, "f32"))


# ---- in place --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["ReLU", "LeakyReLU", "ELU", "CELU", "SELU", "SiLU", "Mish", "Hardswish", "Hardsigmoid"]
)
def test_in_place(name: str) -> None:
    """The tensor that is given has the result, and gradients are torch's."""
    ours, theirs = (getattr(library, name)(inplace=True) for library in (tn.nn, nn))
    x = here.randn(4, 5)
    for leaf, module in ((x.clone().requires_grad_(), ours), (x.clone().requires_grad_(), theirs)):
        given = leaf * 2
        result = module(given)
        assert result is given
        result.square().sum().backward()
        if module is ours:
            have, gradient = result, leaf.grad
        else:
            assert_close((have, gradient), (result, leaf.grad))
    with torch.no_grad():
        memory = x.data_ptr()
        assert ours(x) is x and x.data_ptr() == memory
    leaf = here.randn(3).requires_grad_()
    with pytest.raises(RuntimeError, match="leaf"):  # torch's, and for the same reason
        ours(leaf)


def test_dropout_in_place() -> None:
    x = here.ones(1000)
    assert tn.nn.Dropout(inplace=True)(x) is x and set(x.tolist()) == {0.0, 2.0}


# ---- what would lose an activation -----------------------------------------------------------------------------------


def test_nothing_loses_an_activation() -> None:
    conv, norm = nn.Conv2d(3, 4, 3).eval(), tn.nn.BatchNorm2d(4, act="relu").eval()
    with pytest.raises(NotImplementedError, match=r"convert_sync_batchnorm would lose the activation of tn\.nn\.Batch"):
        nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(conv, norm))
    with pytest.raises(NotImplementedError, match="fuse_conv_bn_eval would lose"):
        fusion.fuse_conv_bn_eval(conv, norm)
    with pytest.raises(NotImplementedError, match="fuse_linear_bn_eval would lose"):
        fusion.fuse_linear_bn_eval(nn.Linear(3, 4).eval(), tn.nn.BatchNorm1d(4, act="relu").eval())
    assert norm.running_var is not None and norm.eps == 1e-5  # others may ask

    plain = tn.nn.BatchNorm2d(4).eval()
    x = torch.randn(2, 3, 5, 5)
    assert_close(fusion.fuse_conv_bn_eval(conv, plain)(x), plain(conv(x)), scale=10)
    assert isinstance(nn.SyncBatchNorm.convert_sync_batchnorm(plain), nn.SyncBatchNorm)


# ---- refused when the module is made ---------------------------------------------------------------------------------

REFUSED = [
    ("GELU", {"approximate": "erf"}, "must be 'none' or 'tanh'"),
    ("Softmax", {}, "dim has to be given"),
    ("BatchNorm2d", {"num_features": 4, "act": "gulp"}, "act is 'gulp', must be one of none, .*gelu"),
    ("GatedMLP", {"in_features": 4, "hidden_features": 4, "gate": "glu"}, "must be one of swiglu, geglu, reglu"),
]


@pytest.mark.parametrize(("name", "args", "message"), REFUSED, ids=lambda v: v if isinstance(v, str) else "")
def test_refused(name: str, args: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, NotImplementedError), match=message):
        getattr(tn.nn, name)(**args)


def test_wrong_calls() -> None:
    with pytest.raises(ValueError, match=r"layer_norm: input has shape \[2, 3\], must end with \[4\]"):
        tn.nn.LayerNorm(4, elementwise_affine=False)(torch.ones(2, 3))
    with pytest.raises(ValueError, match="one value per channel has no variance"):
        tn.nn.BatchNorm2d(4)(torch.ones(1, 4, 1, 1))
    with pytest.raises(ValueError, match="expected 4D input"):
        tn.nn.BatchNorm2d(4)(torch.ones(2, 4, 3))
    with pytest.raises(ValueError, match=r"target has shape \[2\], needs \[2, 3\] for probabilities"):
        tn.nn.CrossEntropyLoss()(torch.ones(2, 3), torch.ones(2))


# ---- modules with tests of their own ---------------------------------------------------------------------------------


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


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("act", ["relu", "silu"])
def test_batch_norm_with_residual_and_activation(act: str, training: bool) -> None:
    ours, theirs = tn.nn.BatchNorm2d(6, act=act).to(here.DEVICE), nn.BatchNorm2d(6).to(here.DEVICE)
    assert repr(ours).endswith(f"act={act!r})")
    x, r = here.randn(4, 6, 3, 3), here.randn(4, 6, 3, 3)
    ours(x), theirs(x)
    ours.train(training), theirs.train(training)
    a, b = (t.requires_grad_() for t in (x.clone(), r.clone()))
    c, d = (t.requires_grad_() for t in (x.clone(), r.clone()))
    have, want = ours(a, b), getattr(F, act)(theirs(c) + d)
    assert_close(have, want)
    have.square().sum().backward()
    want.square().sum().backward()
    for m, o in ((a, c), (b, d)):
        assert_close(m.grad, o.grad, scale=4.0)
    for m, o in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert_close(m.grad, o.grad, scale=4.0)


def test_gated_mlp() -> None:
    act = {"swiglu": F.silu, "geglu": F.gelu, "reglu": F.relu}
    x = here.randn(3, 5, 8)
    for name in tn.nn.GatedMLP.GATES:
        mlp = tn.nn.GatedMLP(8, 12, 4, gate=name, bias=False, device=here.DEVICE)
        assert {k: list(v.shape) for k, v in mlp.state_dict().items()} == {"up.weight": [24, 8], "down.weight": [4, 12]}
        value, gate = F.linear(x, mlp.up.weight).split(12, -1)
        assert_close(mlp(x), F.linear(value * act[name](gate), mlp.down.weight))
        mlp(x).sum().backward()
        assert all(p.grad is not None for p in mlp.parameters())


@pytest.mark.parametrize("shape", [8, (6, 1, 1)], ids=str)
def test_scale_bias_relu(shape: int | tuple[int, ...]) -> None:
    layer = tn.nn.ScaleBiasReLU(shape, device=here.DEVICE)
    with torch.no_grad():
        layer.scale.uniform_(-1, 1)
        layer.bias.uniform_(-1, 1)
    x = here.randn(4, 6, 5, 8)
    peers = [p.detach().clone().requires_grad_() for p in layer.parameters()]
    have, want = layer(x), torch.relu(x * peers[0] + peers[1])
    assert_close(have, want)
    have.square().sum().backward()
    want.square().sum().backward()
    for p, peer in zip(layer.parameters(), peers, strict=True):
        assert_close(p.grad, peer.grad, scale=10.0)
    assert repr(layer) == f"ScaleBiasReLU({layer.shape})"
    layer.reset_parameters()  # as what makes modules on the meta device asks for
    assert (layer.scale == 1).all() and (layer.bias == 0).all()


def test_quick_gelu() -> None:
    x = here.randn(5, 7)
    assert_close(tn.nn.QuickGELU()(x), x * torch.sigmoid(1.702 * x))
    assert repr(tn.nn.QuickGELU()) == "QuickGELU()"


@pytest.mark.parametrize("module", [tn.nn.GatedMLP(8, 12), tn.nn.ScaleBiasReLU(8), tn.nn.QuickGELU()], ids=repr)
def test_own_modules_compiled(module: nn.Module) -> None:
    torch._dynamo.reset()
    module.to(here.DEVICE)
    x = here.randn(3, 8)
    assert_close(torch.compile(module, fullgraph=True, backend="aot_eager")(x), module(x))


class TestDropout:
    X = here.ones(200, 100)

    @pytest.mark.parametrize("backend", [None, "aot_eager", "inductor"])
    def test_seeded_by_torch(self, backend: str | None) -> None:
        torch._dynamo.reset()
        module = tn.nn.Dropout(0.3)
        call = torch.compile(module, fullgraph=True, backend=backend) if backend else module
        torch.manual_seed(5)
        first, second = call(self.X), call(self.X)
        torch.manual_seed(5)
        assert torch.equal(call(self.X), first)
        assert not torch.equal(first, second)
        assert abs((first == 0).double().mean().item() - 0.3) < 0.02
        assert_close(first[first != 0], torch.full_like(first[first != 0], 1 / 0.7))

    @pytest.mark.parametrize("between", [False, True], ids=["alone", "others draw too"])
    def test_many_calls(self, between: bool) -> None:
        module = tn.nn.Dropout(0.5)

        def masks() -> list[Tensor]:
            torch.manual_seed(9)
            made = []
            for _ in range(20):
                made.append(module(self.X) == 0)
                if between:
                    here.rand(4096)
            return made

        first, second = masks(), masks()
        assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
        assert len({tuple(mask.flatten().tolist()) for mask in first}) == len(first)
        shares = torch.stack(first).double().mean((1, 2))
        assert (shares - 0.5).abs().max() < 0.02

    @pytest.mark.parametrize("count", [1, 12])
    def test_checkpoint(self, count: int) -> None:
        """What is computed again in the backward pass has the masks of the first time."""
        model = nn.Sequential(*(tn.nn.Dropout(0.1) for _ in range(count)))
        x = self.X.clone().requires_grad_()
        for _ in range(3):
            y = torch.utils.checkpoint.checkpoint(model, x, use_reentrant=False)
            (grad,) = torch.autograd.grad(y.sum(), x)
            assert_close(grad, y)

    def test_recorded_after_inference_mode(self) -> None:
        module, x = tn.nn.Dropout(0.5), self.X.clone().requires_grad_()
        for _ in range(8):
            with torch.inference_mode():
                module(self.X)
        for _ in range(8):
            y = module(x)
            (grad,) = torch.autograd.grad(y.sum(), x)
            assert_close(grad, y)

    @pytest.mark.skipif(here.DEVICE == "cpu", reason="needs a GPU")
    def test_two_streams_and_two_threads(self) -> None:
        module = tn.nn.Dropout(0.5)
        made: dict[int, list[Tensor]] = {0: [], 1: []}

        def work(k: int) -> None:
            with torch.cuda.stream(torch.cuda.Stream()):
                made[k] = [module(self.X) == 0 for _ in range(50)]
                torch.cuda.current_stream().synchronize()

        torch.cuda.synchronize()
        threads = [threading.Thread(target=work, args=(k,)) for k in made]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        masks = torch.stack(made[0] + made[1]).flatten(1).double()
        assert len({tuple(mask[:64].tolist()) for mask in masks}) == 100
        assert (masks.mean(1) - 0.5).abs().max() < 0.02

    def test_same_mask_in_the_backward_pass(self) -> None:
        x = self.X.clone().requires_grad_()
        y = tn.nn.Dropout(0.5)(x)
        y.sum().backward()
        assert_close(x.grad, y)

    def test_not_in_training(self) -> None:
        module = tn.nn.Dropout(0.5).eval()
        assert module(self.X) is self.X
        assert repr(module) == repr(nn.Dropout(0.5))
        assert tn.nn.Dropout(0.0)(self.X) is self.X

    def test_everything(self) -> None:
        x = self.X.clone().requires_grad_()
        y = tn.nn.Dropout(1.0)(x)
        y.sum().backward()
        assert x.grad is not None and not y.any() and not x.grad.any()

    def test_probability(self) -> None:
        with pytest.raises(ValueError, match="probability"):
            tn.nn.Dropout(1.5)

    @pytest.mark.skipif(here.DEVICE == "cpu", reason="needs a GPU")
    def test_each_replay_of_a_graph_has_a_mask_of_its_own(self) -> None:
        module = tn.nn.Dropout(0.5)
        module(self.X)  # compiled before the capture
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = module(self.X)
        graph.replay()
        first = y.clone()
        graph.replay()
        assert not torch.equal(first, y)


def test_module_in_a_few_lines(plugin: Any) -> None:
    """A row that is new in the table becomes a module by being named."""
    from tenon.torch.nn.activations import _Activation

    class Cube(_Activation, nn.Module, row="cube"): ...

    x = here.randn(3, 4)
    assert_close(Cube()(x), x**3)
    assert Cube.__doc__ is not None and tenon.ops()["cube"].doc in Cube.__doc__


@pytest.mark.parametrize("tracked", [True, False])
def test_batch_norm_in_transforms(tracked: bool) -> None:
    """Training under torch.func.grad, with statistics that are arguments, or none."""
    x, results = here.randn(6, 5), []
    for module in (tn.nn.BatchNorm1d(5, track_running_stats=tracked), nn.BatchNorm1d(5, track_running_stats=tracked)):
        module.to(here.DEVICE)
        params = {name: p.detach() for name, p in module.named_parameters()}
        buffers = {name: b.clone() for name, b in module.named_buffers()}

        def loss(params: Any, buffers: Any, module: nn.Module = module) -> Tensor:
            y: Tensor = torch.func.functional_call(module, (params, buffers), (x,))
            return y.pow(3).sum()

        results.append((torch.func.grad(loss)(params, buffers), buffers))
    for name, grad in results[1][0].items():
        assert_close(results[0][0][name], grad, scale=20)
    for name, buffer in results[1][1].items():
        assert_close(results[0][1][name].double(), buffer.double(), scale=2)


def test_statistics_that_are_not_kept_have_their_own_type() -> None:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        x = here.randn(6, 3, dtype=torch.float64)
        y = tn.nn.BatchNorm1d(3, track_running_stats=False).to(here.DEVICE)(x)
        assert_close(y, nn.BatchNorm1d(3, track_running_stats=False).to(here.DEVICE)(x), "f64", scale=10)
    finally:
        torch.set_default_dtype(before)


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


@pytest.mark.parametrize("name", ["Hardswish", "Hardsigmoid"])
def test_gradients_at_the_corners(name: str) -> None:
    x = here.tensor([-4.0, -3.0, -2.0, 2.0, 3.0, 4.0]).requires_grad_()
    (have,) = torch.autograd.grad(getattr(tn.nn, name)()(x).sum(), x)
    (want,) = torch.autograd.grad(getattr(nn, name)()(x).sum(), x)
    assert_close(have, want)


@pytest.mark.parametrize("momentum", [0.1, 1.0, None])
def test_statistics_of_f64_are_f64(momentum: float | None) -> None:
    modules = [m.BatchNorm1d(2, momentum=momentum).to(here.DEVICE, torch.float64) for m in (tn.nn, nn)]
    for shift in (1e8, -3.0):
        x = shift + here.randn(6, 2, 5, dtype=torch.float64)
        ours, theirs = (module(x) for module in modules)
        assert_close(ours, theirs, "f64", scale=1e8)
    for name, buffer in modules[1].named_buffers():
        assert_close(dict(modules[0].named_buffers())[name].double(), buffer.double(), "f64", scale=10)


ODD = {
    "empty": torch.zeros(0, 3),
    "no places": torch.zeros(2, 3, 0),
    "infinite": torch.tensor([[1.0, torch.inf, 2.0], [2.0, 1.0, -torch.inf]]),
    "nan": torch.tensor([[1.0, torch.nan, 2.0], [2.0, 1.0, 3.0]]),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", ODD)
def test_statistics_of_odd_batches(kind: str, dtype: torch.dtype) -> None:
    if kind == "infinite" and here.DEVICE != "cpu":
        pytest.skip("on GPUs it is for torch's kernels to say whether inf or NaN")
    modules = [m.BatchNorm1d(3).to(here.DEVICE, dtype) for m in (tn.nn, nn)]
    for module in modules:
        module(ODD[kind].to(here.DEVICE, dtype))
    for ours, theirs in zip(modules[0].buffers(), modules[1].buffers(), strict=True):
        torch.testing.assert_close(ours, theirs, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("channels", [1, 4])
def test_statistics_stay_where_the_call_is_refused(channels: int, affine: bool, dtype: torch.dtype) -> None:
    module = tn.nn.BatchNorm1d(3, affine=affine).to(here.DEVICE, dtype)
    name = "weight" if affine else "running_mean"
    with pytest.raises(ValueError, match=rf"batch_norm: {name} has shape \(3\), but c is {channels} from input"):
        module(here.ones(5, channels, dtype=dtype))
    assert module.running_mean is not None and module.running_var is not None
    assert not module.running_mean.any() and (module.running_var == 1).all()
