"""Modules: what tn.nn's do, torch.nn's of the same name and arguments do."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Sequence
from typing import Any, NamedTuple

import here
import pytest
import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from cases import assert_close
from torch import Tensor, nn

import tenon
import tenon.torch as tn


class Row(NamedTuple):
    """A module that torch has too, and the shapes of what it is called with."""

    name: str
    args: dict[str, Any]
    shapes: Sequence[Sequence[int]]
    below: int = 0  # if it is not 0, the inputs are indices below it

    def tensors(self, dtype: torch.dtype = torch.float32, positive: bool = False) -> list[Tensor]:
        if self.below:
            return [here.randint(self.below, tuple(shape)) for shape in self.shapes]
        return [(here.rand if positive else here.randn)(shape, dtype=dtype) for shape in self.shapes]

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
    ("LogSoftmax", {"dim": 1}),
    ("PReLU", {}),
    ("PReLU", {"num_parameters": 6, "init": 0.1}),
]
ROWS = [Row(name, args, IMAGES) for name, args in SCALARS]
ROWS += [Row("PReLU", {}, ((7,),)), Row("PReLU", {}, ((),))]
ROWS += [Row("Linear", {"in_features": 8, "out_features": 5, **args}, ((4, 6, 8),)) for args in ({}, {"bias": False})]
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
ROWS += [
    Row("GroupNorm", {"num_groups": 3, "num_channels": 6, **more}, IMAGES)
    for more in ({}, {"affine": False, "eps": 1e-3})
]
ROWS += [
    Row("InstanceNorm2d", {"num_features": 6, **more}, IMAGES)
    for more in ({}, {"affine": True}, {"track_running_stats": True, "momentum": 0.3})
]
ROWS += [Row("InstanceNorm1d", {"num_features": 6, "affine": True}, (s,)) for s in ((6, 7), (4, 6, 7))]
ROWS += [Row("InstanceNorm3d", {"num_features": 6}, ((2, 6, 3, 4, 5),))]
ROWS += [Row("BatchNorm3d", {"num_features": 6}, ((2, 6, 3, 4, 5),))]
ROWS += [
    Row(name, {**more, "reduction": reduction}, ((4, 6), (4, 6)))
    for name, more in (("MSELoss", {}), ("L1Loss", {}), ("HuberLoss", {"delta": 0.7}), ("BCEWithLogitsLoss", {}))
    for reduction in ("mean", "sum", "none")
]
ROWS += [Row("CosineSimilarity", {"dim": d}, s) for d, s in ((1, ((4, 6),) * 2), (0, ((4, 6),) * 2), (2, IMAGES * 2))]
ROWS += [Row("CosineSimilarity", {}, ((4, 6), (1, 6)))]
ROWS += [
    Row("Embedding", {"num_embeddings": 7, "embedding_dim": 5, **more}, shapes, below=7)
    for more, shapes in (({}, ((4, 6),)), ({"padding_idx": 2}, ((9,),)), ({"padding_idx": -1}, ((),)))
]


def pair(row: Row, dtype: torch.dtype = torch.float32) -> tuple[nn.Module, nn.Module]:
    """The module and torch's, with the same weights, none of which is special."""
    theirs = getattr(nn, row.name)(**row.args).to(here.DEVICE, dtype)
    ours = getattr(tn.nn, row.name)(**row.args).to(here.DEVICE, dtype)
    with torch.no_grad():
        for p in theirs.parameters():
            p.add_(here.randn(p.shape, dtype=dtype), alpha=0.1)
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


@pytest.mark.parametrize("name", ["GroupNorm", "InstanceNorm2d"])
def test_norms_end_with_the_activation(name: str) -> None:
    sizes = {"num_groups": 2, "num_channels": 6} if name == "GroupNorm" else {"num_features": 6}
    fused, plain = getattr(tn.nn, name)(**sizes, act="silu").to(here.DEVICE), getattr(nn, name)(**sizes).to(here.DEVICE)
    x = here.randn(IMAGES[0])
    assert_close(fused(x), torch.nn.functional.silu(plain(x)))
    assert "act='silu'" in repr(fused)


def inputs(row: Row, dtype: torch.dtype) -> tuple[list[Tensor], list[Tensor]]:
    made = [t.requires_grad_(t.is_floating_point()) for t in row.tensors(dtype)]
    return made, [t.detach().clone().requires_grad_(t.requires_grad) for t in made]


def assert_same_gradients(have: Sequence[Tensor], want: Sequence[Tensor], bound: str = "f32") -> None:
    for a, b in zip(have, want, strict=True):
        assert (a.grad is None) == (b.grad is None) == (not a.requires_grad)
        if a.requires_grad:
            assert_close(a.grad, b.grad, bound)


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
        assert_same_gradients(have_in, want_in, bound)
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
    args = row.tensors()
    assert_close(again.eval()(*args), ours.eval()(*args))


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_modules_of_torch_become_ours(row: Row) -> None:
    """By their class alone, as some convert a model."""
    ours, theirs = pair(row)
    want = repr(ours)
    theirs.__class__ = type(ours)
    assert repr(theirs) == want
    args = row.tensors()
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
    assert_same_gradients(have_in, want_in)
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
        args, results = row.tensors(positive=True), []
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
    @pytest.mark.parametrize(
        "row", [r for r in TRACED if r.args.get("reduction") != "none" and r.name != "Linear"], ids=str
    )
    def test_same(self, row: Row) -> None:
        """With other inputs than those it was traced with, and their gradients."""
        module = getattr(tn.nn, row.name)(**row.args).to(here.DEVICE).eval()
        traced = torch.jit.trace(module, tuple(row.tensors(positive=True)))
        have_in, want_in = inputs(row, torch.float32)
        have, want = traced(*have_in), module(*want_in)
        assert_close(have, want)
        gradient = here.randn(have.shape)
        have.backward(gradient)
        want.backward(gradient)
        assert_same_gradients(have_in, want_in)

    def test_what_torch_does_not_trace(self) -> None:
        x, target = here.rand(4, 6), here.tensor([0, 1, 5, 3])
        for call, args in (
            (tn.fuse("x * 2"), (x,)),
            (tn.nn.MSELoss(reduction="none"), (x, x)),
            (tn.nn.CrossEntropyLoss(), (x, target)),
            (tn.nn.Linear(6, 3).to(here.DEVICE), (x,)),
        ):
            with pytest.raises(RuntimeError, match=r"unsupported .* type: Tensor\?"):
                torch.jit.trace(call, args)


def test_every_class_is_compared() -> None:
    """What torch has too is in the table above; the others have tests of their own, below."""
    own = {"QuickGELU", "ScaleBiasReLU", "GatedMLP", "Dropout", "CrossEntropyLoss", "KLDivLoss"}
    own |= {"LinearCrossEntropyLoss"}
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


# ---- refused when the module is made ---------------------------------------------------------------------------------

REFUSED = [
    ("GELU", {"approximate": "erf"}, "must be 'none' or 'tanh'"),
    ("Softmax", {}, "dim has to be given"),
    ("LogSoftmax", {}, "dim has to be given"),
    ("GroupNorm", {"num_groups": 2, "num_channels": 4, "act": "wild"}, "act is 'wild', must be one of"),
    ("InstanceNorm2d", {"num_features": 4, "act": "wild"}, "act is 'wild', must be one of"),
    ("BatchNorm2d", {"num_features": 4, "act": "gulp"}, "act is 'gulp', must be one of none, .*gelu"),
    ("GatedMLP", {"in_features": 4, "hidden_features": 4, "gate": "glu"}, "must be one of swiglu, geglu, reglu"),
    ("LinearCrossEntropyLoss", {"in_features": 4, "out_features": 4, "reduction": "none"}, "must be 'mean' or 'sum'"),
    ("LinearCrossEntropyLoss", {"in_features": 4, "out_features": 4, "label_smoothing": 2.0}, "must be from 0 to 1"),
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


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_linear_cross_entropy(reduction: str) -> None:
    weight = here.rand(11) + 0.5
    settings: dict[str, Any] = {"ignore_index": 3, "reduction": reduction, "label_smoothing": 0.1}
    loss = tn.nn.LinearCrossEntropyLoss(8, 11, device=here.DEVICE, weight=weight, softcap=4.0, **settings)
    head, x, target = copy.deepcopy(loss.linear), here.randn(4, 5, 8), here.randint(11, (4, 5))
    logits = 4.0 * torch.tanh(head(x) / 4.0)
    have, want = loss(x, target), F.cross_entropy(logits.flatten(0, 1), target.flatten(), weight, **settings)
    assert_close(have, want)
    have.backward()
    want.backward()
    for p, peer in zip(loss.linear.parameters(), head.parameters(), strict=True):
        assert_close(p.grad, peer.grad, scale=10.0)
    assert list(loss.state_dict()) == ["weight", "linear.weight", "linear.bias"]


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


def test_module_in_a_few_lines(plugin: Any) -> None:
    """A row that is new in the table becomes a module by being named."""
    from tenon.torch.nn.activations import _Activation

    class Cube(_Activation, nn.Module, row="cube"): ...

    x = here.randn(3, 4)
    assert_close(Cube()(x), x**3)
    assert Cube.__doc__ is not None and tenon.ops()["cube"].doc in Cube.__doc__


@pytest.mark.parametrize("name", ["Hardswish", "Hardsigmoid"])
def test_gradients_at_the_corners(name: str) -> None:
    x = here.tensor([-4.0, -3.0, -2.0, 2.0, 3.0, 4.0]).requires_grad_()
    (have,) = torch.autograd.grad(getattr(tn.nn, name)()(x).sum(), x)
    (want,) = torch.autograd.grad(getattr(nn, name)()(x).sum(), x)
    assert_close(have, want)
