"""tn.patch and tn.unpatch, on modules that people write: what is found, what is left, and that nothing else changes."""

from __future__ import annotations

import copy
import io
import pickle
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from cases import assert_close
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import tenon.torch as tn


class Rms(nn.Module):
    """As large language models write it; `plus` is Gemma's."""

    def __init__(self, size: int, plus: float = 0.0, wide: bool = True) -> None:
        super().__init__()
        self.scale, self.plus, self.small, self.wide = nn.Parameter(torch.rand(size)), plus, 1e-5, wide

    def forward(self, hidden: Tensor) -> Tensor:
        x = hidden.float() if self.wide else hidden
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.small)
        return (self.plus + self.scale) * x.to(hidden.dtype)


class CodedEps(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.g = nn.Parameter(torch.rand(8))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.g


class NotQuiteRms(CodedEps):
    def forward(self, x: Tensor) -> Tensor:
        return x / (x.square().mean(-1, keepdim=True).sqrt() + 1e-6).detach() * self.g


class Gelu(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 0.5 * x * (1 + torch.tanh(0.7978845608 * (x + 0.044715 * x**3)))


class Wavy(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sin(x)


class Gated(nn.Module):
    """down(act(gate) * up), in the order of parts that `order` gives."""

    def __init__(self, act: Callable[[Tensor], Tensor], linear: Callable[[int, int], nn.Module] = nn.Linear) -> None:
        super().__init__()
        self.w1, self.w2, self.w3, self.act = linear(8, 24), linear(24, 8), linear(8, 24), act

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.w2(self.w3(x) * self.act(self.w1(x)))
        return y


class Halves(nn.Module):
    def __init__(self, swapped: bool) -> None:
        super().__init__()
        self.up, self.down, self.swapped = nn.Linear(8, 48), nn.Linear(24, 8), swapped

    def forward(self, x: Tensor) -> Tensor:
        a, b = self.up(x).chunk(2, dim=-1)
        y: Tensor = self.down(F.silu(a) * b if self.swapped else a * F.silu(b))
        return y


class Sum(nn.Module):
    """Of BERT: a linear layer, dropout, and the norm of a sum."""

    def __init__(self) -> None:
        super().__init__()
        self.dense, self.norm, self.drop = nn.Linear(12, 8), nn.LayerNorm(8, eps=1e-12), nn.Dropout(0.0)

    def forward(self, x: Tensor, residual: Tensor) -> Tensor:
        y: Tensor = self.norm(self.drop(self.dense(x)) + residual)
        return y


class Adapted(nn.Module):
    """A linear layer with a low-rank part, as PEFT wraps them."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.in_features, self.out_features = inputs, outputs
        self.base = nn.Linear(inputs, outputs).requires_grad_(False)
        self.a, self.b = nn.Linear(inputs, 2, bias=False), nn.Linear(2, outputs, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.base(x) + self.b(self.a(x))
        return y


def scores(x: Tensor) -> Tensor:
    return F.softmax(x @ x.mT, dim=-1, dtype=torch.float32) @ x


class Calls(nn.Module):
    """Functions of torch, by several names, in a function of the same file too."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return scores(F.layer_norm(F.silu(self.linear(x)), (8,))) + torch.nn.functional.gelu(x)


class Scaled(nn.Embedding):
    def __init__(self) -> None:
        super().__init__(30, 8, padding_idx=0)
        self.register_buffer("factor", torch.tensor(8**0.5), persistent=False)

    def forward(self, input: Tensor) -> Tensor:
        factor = self.factor
        assert isinstance(factor, Tensor)
        return super().forward(input) * factor


FOUND: list[tuple[str, Callable[[], nn.Module], str]] = [
    ("rms_norm", lambda: Rms(8), "x"),
    ("rms_norm", lambda: Rms(8, plus=1.0, wide=False), "x"),
    ("rms_norm", CodedEps, "x"),
    ("rms_norm", lambda: nn.RMSNorm(8), "x"),
    ("rms_norm", lambda: nn.RMSNorm((5, 8), eps=1e-4), "x"),
    ("layer_norm", lambda: nn.LayerNorm(8, eps=1e-12), "x"),
    ("layer_norm", lambda: nn.LayerNorm((5, 8), elementwise_affine=False), "x"),
    ("layer_norm", lambda: nn.LayerNorm(8, bias=False), "x"),
    ("group_norm", lambda: nn.GroupNorm(4, 8), "image"),
    ("batch_norm", lambda: nn.BatchNorm2d(8, momentum=None), "image"),
    ("batch_norm", lambda: nn.BatchNorm1d(5), "x"),
    ("instance_norm", lambda: nn.InstanceNorm2d(8, affine=True), "image"),
    ("softmax", lambda: nn.Softmax(1), "x"),
    ("log_softmax", lambda: nn.LogSoftmax(-1), "x"),
    ("gelu_tanh", Gelu, "x"),
    ("gelu", nn.GELU, "x"),
    ("leaky_relu", lambda: nn.LeakyReLU(0.3), "x"),
    ("elu", lambda: nn.ELU(1.5), "x"),
    ("softplus", lambda: nn.Softplus(2.0, 5.0), "x"),
    ("swiglu between its linear layers", lambda: Gated(F.silu), "x"),
    ("reglu between its linear layers", lambda: Gated(nn.ReLU()), "x"),
    ("x * mish(gate) between its linear layers", lambda: Gated(F.mish), "x"),
    ("swiglu between its linear layers", lambda: Gated(F.silu, Adapted), "x"),
    ("swiglu between its linear layers", lambda: Halves(False), "x"),
    ("swiglu between its linear layers", lambda: Halves(True), "x"),
    ("add_layer_norm", Sum, "two"),
    ("embedding", Scaled, "index"),
    ("embedding", lambda: nn.Embedding(30, 8, padding_idx=3), "index"),
    ("layer_norm", Calls, "x"),
]
INPUTS: dict[str, Callable[[], tuple[Tensor, ...]]] = {
    "x": lambda: (torch.randn(3, 5, 8, requires_grad=True),),
    "image": lambda: (torch.randn(3, 8, 4, 5, requires_grad=True),),
    "two": lambda: (torch.randn(3, 12, requires_grad=True), torch.randn(3, 8, requires_grad=True)),
    "index": lambda: (torch.randint(30, (3, 5)),),
}


def step(module: nn.Module, inputs: tuple[Tensor, ...]) -> list[Tensor]:
    """The result, the gradients and the buffers."""
    module.zero_grad()
    y = module(*inputs)
    wanted = [t for t in (*inputs, *module.parameters()) if t.requires_grad]
    grads = torch.autograd.grad(y.square().sum(), wanted)
    return [y.detach(), *grads, *(b.clone() for b in module.buffers())]


def computed_by(function: Callable[[], Any]) -> set[str]:
    """The operators of ours that a call runs."""
    with torch.profiler.profile() as profile:
        function()
    return {e.key for e in profile.key_averages() if e.key.startswith("tenon::")}


@pytest.mark.parametrize(("by", "make", "kind"), FOUND, ids=lambda v: v if isinstance(v, str) else "")
def test_computes_the_same(by: str, make: Callable[[], nn.Module], kind: str) -> None:
    torch.manual_seed(0)
    module, inputs = make(), INPUTS[kind]()
    before = copy.deepcopy(module)
    entries, keys, parameters = dict(module.__dict__), list(module.state_dict()), list(module.parameters())
    for training in (True, False):
        before.train(training), module.train(training)
        want = step(before, inputs)
        report = tn.patch(module)
        assert by in {row.by for row in report.replaced}, report
        assert by in str(report)
        assert_close(step(module, inputs), want)
        assert computed_by(lambda: copy.deepcopy(module)(*inputs))
        assert list(module.state_dict()) == keys
        assert all(a is b for a, b in zip(module.parameters(), parameters, strict=True))
        tn.unpatch(module)
        assert {k: v for k, v in module.__dict__.items() if k != "training"}.keys() == entries.keys() - {"training"}
        assert_close(step(module, inputs), step(before, inputs))
        assert not computed_by(lambda: copy.deepcopy(module)(*inputs))


def kept(module: nn.Module, *inputs: Tensor) -> int:
    """How many bytes a call keeps for its backward pass beside parameters, each memory once."""
    own = {p.untyped_storage()._cdata for p in module.parameters()}
    sizes, alive = dict[int, int](), list[Tensor]()

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in own:
            sizes[storage._cdata] = storage.nbytes()
        alive.append(tensor)  # so that no address is taken twice
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        module(*inputs)
    return sum(sizes.values())


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("make", [lambda: Gated(F.silu), lambda: Gated(F.mish), lambda: Halves(True)])
def test_gated_layers_keep_no_product(make: Callable[[], nn.Module], autocast: bool) -> None:
    torch.manual_seed(0)
    module, x = make(), torch.randn(3, 5, 8, requires_grad=True)
    cast = torch.autocast("cpu", torch.bfloat16, enabled=autocast)
    with cast:
        want = step(module, (x,))
    (row,) = tn.patch(module).replaced
    with cast:
        size = kept(module, x)
        assert_close(step(module, (x,)), want, "bf16" if autocast else "f32", scale=4)
    weights = sum(p.numel() for p in module.parameters() if p.ndim > 1)
    of_element, copies = (2, weights) if autocast else (4, 0)
    assert size == of_element * (15 * (8 + 2 * 24) + copies)  # the input, and what is on both sides of the gate
    assert row.ours is not None and row.theirs is not None and row.ours.kept < row.theirs.kept


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = nn.Linear(8, 8), nn.Linear(8, 8, bias=False), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        query = self.query(x)
        key, value = self.key(x), self.value(x).exp()
        return torch.tanh(query @ key.mT) @ value


class Changing(Attention):
    """Layers of inputs that differ, and calls that may not be: no layers of one input."""

    def forward(self, x: Tensor) -> Tensor:
        query = self.query(x)
        x = x + 1
        key = self.key(x)
        value = self.value(x) if x.ndim == 3 else x
        return query @ key.mT @ value


class InPlace(Attention):
    """What looks like one input changes after the first call."""

    def forward(self, x: Tensor) -> Tensor:
        y = x * 1
        query = self.query(y)
        y.mul_(2)
        return query @ self.key(y).mT @ self.value(y)


class Unused(Attention):
    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.query(x), self.key(x), self.value(x)
        return query * key.detach() + value.detach().sum()


def in_tandem(module: nn.Module) -> set[str]:
    return {row.what for row in tn.patch(module).replaced if row.by == "linear layers of one input"}


@pytest.mark.parametrize("make", [Attention, Changing, Unused])
def test_layers_of_one_input(make: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    module, x = nn.Sequential(nn.LayerNorm(8), make()), torch.randn(3, 5, 8, requires_grad=True)
    before = copy.deepcopy(module)
    name = make.__name__  # type: ignore[attr-defined]
    assert in_tandem(module) == (set() if make is Changing else {f"query, key, value of {name}"})
    for each in (module, copy.deepcopy(module), pickle.loads(pickle.dumps(module)), module.eval()):
        results, slopes = [m(x) for m in (each, before)], []
        assert_close(results[:1], results[1:])
        for m, y in zip((each, before), results, strict=True):
            m.zero_grad()
            (dx,) = torch.autograd.grad(y.square().sum(), x, retain_graph=True)
            y.square().sum().backward(inputs=list(m.parameters()))
            slopes.append(dx)
        assert_close(slopes[:1], slopes[1:], scale=4)
        for p, q in zip(each.parameters(), before.parameters(), strict=True):
            assert (p.grad is None) == (q.grad is None)
            if p.grad is not None:
                assert_close([p.grad], [q.grad], scale=4)
    with torch.no_grad():
        assert_close([module(x)], [before(x)])
    tn.unpatch(module)
    assert all("forward" not in m.__dict__ for m in module.modules())


def test_layers_of_an_input_that_changes() -> None:
    module, x = InPlace(), torch.randn(3, 5, 8, requires_grad=True)
    want = module(x)
    assert in_tandem(module) == {"query, key, value of InPlace"}
    assert_close([module(x)], [want])


def test_layers_of_one_input_as_they_are_changed_later() -> None:
    """Hooks, adapters and frozen weights come after patch, too."""
    torch.manual_seed(0)
    module, x, calls = Attention(), torch.randn(3, 5, 8, requires_grad=True), []
    before = copy.deepcopy(module)
    in_tandem(module)
    module.key.register_forward_hook(lambda *args: calls.append(1))
    assert_close(step(module, (x,)), step(before, (x,)))
    assert calls == [1]
    for name in ("query", "value"):
        for m in (module, before):
            torch.manual_seed(1)
            setattr(m, name, nn.Sequential(getattr(m, name), nn.Linear(8 if name == "query" else 4, 4 * 2)))
        assert_close(step(module, (x,)), step(before, (x,)))
    frozen = Attention()
    frozen.key.requires_grad_(False)
    other = copy.deepcopy(frozen)
    in_tandem(frozen)
    assert_close(step(frozen, (x,)), step(other, (x,)))


def test_layers_of_one_input_are_one_call() -> None:
    """Gradients of the input are summed up by the products, and no result waits for somebody to take it."""

    def added(module: nn.Module, x: Tensor) -> int:
        y = module(x)
        module.zero_grad()
        with torch.profiler.profile() as profile:
            y.sum().backward()
        return sum(e.count for e in profile.key_averages() if e.key in ("aten::add", "aten::add_"))

    module = Attention()
    before = added(module, torch.randn(3, 5, 8, requires_grad=True))
    in_tandem(module)
    assert added(module, torch.randn(3, 5, 8, requires_grad=True)) == before - 2
    assert all(layer.forward.made is None for layer in (module.query, module.key, module.value))


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("norm", [lambda: Rms(8), lambda: nn.LayerNorm(8)])
@pytest.mark.parametrize("make", [lambda: Gated(F.silu), lambda: Halves(True), Attention])
def test_layers_keep_no_normalised_input(
    make: Callable[[], nn.Module], norm: Callable[[], nn.Module], autocast: bool
) -> None:
    torch.manual_seed(0)
    module, alone, x = nn.Sequential(norm(), make()), make(), torch.randn(3, 5, 8, requires_grad=True)
    cast = torch.autocast("cpu", torch.bfloat16, enabled=autocast)
    with cast:
        want = step(module, (x,))
        tn.patch(module), tn.patch(alone)
        size, own, others = kept(module, x), kept(module[0], x), kept(alone, x)
        assert size == own + others - (2 if autocast else 4) * x.numel()
        have = step(module, (x,))
    assert_close(have, want, "bf16" if autocast else "f32", scale=4)
    with torch.no_grad(), cast:  # a normalised input that was changed
        assert not hasattr(module[0](x), "_tenon_source")
    with cast:
        normal = module[0](x)
        assert_close(step(module[1], (normal.mul_(2),)), step(module[1], (normal.clone(),)))


@pytest.mark.parametrize("make", [lambda: Gated(F.silu), Attention])
def test_checkpoints_take_all_that_layers_keep(make: Callable[[], nn.Module]) -> None:
    """What hooks have put elsewhere, as checkpoints and offloading do, is in nobody's hands."""
    module = nn.Sequential(nn.LayerNorm(8), make())
    tn.patch(module)
    hidden = torch.randn(3, 5, 8, requires_grad=True) * 1
    memory = weakref.ref(hidden)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.detach().clone(), lambda t: t):
        y = module(hidden)
    del hidden
    assert memory() is None
    y.sum().backward()


def test_layers_have_more_derivatives() -> None:
    for make in (lambda: Gated(F.silu), lambda: Halves(True), Attention, lambda: nn.Sequential(Rms(8), Gated(F.silu))):
        module, x = make().double(), torch.randn(2, 8, dtype=torch.float64, requires_grad=True)
        assert tn.patch(module).count >= 1
        assert torch.autograd.gradgradcheck(module, (x,))
        other = make().double()
        other.load_state_dict(module.state_dict())
        for first in (module, other):
            first.zero_grad()
            (slope,) = torch.autograd.grad(first(x).square().sum(), x, create_graph=True)
            slope.square().sum().backward()
        for p, q in zip(module.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(p.grad, q.grad)


class Noting(nn.Module):
    """A module that does more than compute."""

    def __init__(self, append: bool) -> None:
        super().__init__()
        self.seen: list[Tensor] = []
        self.last: Tensor | None = None
        self.append = append

    def forward(self, x: Tensor) -> Tensor:
        if self.append:
            self.seen.append(x)
        else:
            self.last = x
        return F.relu(x)


class Hooked(Gated):
    def __init__(self) -> None:
        super().__init__(nn.SiLU())
        self.act.register_forward_hook(lambda module, args, y: y * 2)  # type: ignore[attr-defined]


def already_replaced() -> nn.Module:
    module = nn.GELU()
    module.forward = lambda x: x  # type: ignore[method-assign]
    return module


LEFT: list[tuple[str, Callable[[], nn.Module]]] = [
    ("no operator of the table computes this", Wavy),
    ("no operator of the table computes this", NotQuiteRms),
    ("it writes to its input", lambda: nn.ReLU(inplace=True)),
    ("matrix products", lambda: nn.Linear(8, 8)),
    ("its random numbers would be others", lambda: nn.Dropout(0.5)),
    ("exchanges statistics", lambda: nn.SyncBatchNorm(8)),
    ("already replaced", already_replaced),
    ("its part SiLU has hooks", Hooked),
    ("it sets attributes of its own", lambda: Noting(True)),
    ("it sets attributes of its own", lambda: Noting(False)),
    ("max_norm writes to its weight", lambda: nn.Embedding(30, 8, max_norm=1.0)),
    ("embedding does not compute the same", lambda: nn.Embedding(30, 8, sparse=True)),
]


@pytest.mark.parametrize(("why", "make"), LEFT, ids=lambda v: v if isinstance(v, str) else "")
def test_says_what_it_leaves(why: str, make: Callable[[], nn.Module]) -> None:
    module = make()
    forward = module.forward
    report = tn.patch(module)
    assert not getattr(module, "seen", []) and getattr(module, "last", None) is None
    assert any(why in reason for _, reason in report.left), report
    assert module.forward == forward


def test_tells_modules_of_one_class_apart() -> None:
    """Functions may have the same name, and numbers be equal: 1 and True."""
    torch.manual_seed(0)
    acts = [F.silu, lambda x: x.relu(), lambda x: x.sigmoid(), torch.sin]
    made, x = nn.Sequential(*map(Gated, acts)), torch.randn(2, 8)
    want = made(x)
    assert [row.by for row in tn.patch(made).replaced] == [
        "swiglu between its linear layers",
        "reglu between its linear layers",
        "x * sigmoid(gate) between its linear layers",
        "linear layers of one input",  # beside sin
    ]
    assert_close([made(x)], [want])
    assert tn.patch(made).count == 0  # a second time


def test_views_of_what_functions_return() -> None:
    class Views(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return F.softmax(F.layer_norm(x.mT, (x.shape[-2],)), -1).view(-1)

    views, x = Views(), torch.randn(2, 3, 4)
    want = views(x)
    tn.patch(views)
    assert_close([views(x)], [want])


def test_hooks_stay() -> None:
    model, seen = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8)), []
    model[1].register_forward_hook(lambda *args: seen.append(1))
    tn.patch(model)
    assert not seen  # not by what is tried
    model(torch.randn(2, 8))
    assert len(seen) == 1


def test_takes_what_was_not_compared() -> None:
    """Names, other types and more arguments go to the module's own forward, or by name to ours."""
    norm = Rms(8)
    tn.patch(norm)
    x = torch.randn(3, 8)
    want = Rms.forward(norm, x)
    assert_close([norm(hidden=x)], [want])
    assert norm(x.bfloat16()).dtype == Rms.forward(norm, x.bfloat16()).dtype
    with pytest.raises(TypeError, match="positional argument"):
        norm(x, x)
    norm.small = 0.5  # is looked up in each call
    assert_close([norm(x)], [Rms.forward(norm, x)])


def test_dropout_by_choice() -> None:
    drop = nn.Dropout(0.25)
    assert tn.patch(drop, dropout=True).count == 1
    y = drop(torch.ones(10000))
    assert_close([y.unique()], [torch.tensor([0.0, 1 / 0.75])])
    assert abs(float((y == 0).float().mean()) - 0.25) < 0.03
    assert torch.equal(drop.eval()(y), y)


def test_other_models_stay() -> None:
    """Functions are replaced in the model alone, and not in its file."""
    patched, other = Calls(), Calls()
    softmax, here = F.softmax, dict(globals())
    tn.patch(patched)
    x = torch.randn(2, 5, 8)
    assert computed_by(lambda: patched(x)) >= {"tenon::softmax", "tenon::layer_norm", "tenon::silu", "tenon::gelu"}
    assert not computed_by(lambda: other(x))
    assert F.softmax is softmax and globals().keys() == here.keys()
    assert all(globals()[name] is value for name, value in here.items())


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(30, 8), Rms(8), Gated(F.silu), Calls(), nn.LayerNorm(8), nn.Linear(8, 30))


def losses(model: nn.Module, steps: int = 4) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    optimizer, found = torch.optim.AdamW(model.parameters(), lr=1e-2), []
    for _ in range(steps):
        index = torch.randint(30, (4, 6), generator=generator)
        loss = F.cross_entropy(model(index).flatten(0, 1), index.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        found.append(loss.detach())
    return found


def checkpointed(model: nn.Module) -> nn.Module:
    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, index: Tensor) -> Any:
            hidden = self.model[0](index)  # type: ignore[index]
            return checkpoint(self.model[1:], hidden, use_reentrant=False)  # type: ignore[index]

    return Checkpointed()


def loaded(model: nn.Module) -> nn.Module:
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    made: nn.Module = torch.load(file, weights_only=False)
    return made


def compiled(model: nn.Module) -> nn.Module:
    made: nn.Module = torch.compile(model, backend="eager", fullgraph=True)  # type: ignore[assignment]
    return made


def compiled_first(model: nn.Module) -> nn.Module:
    tn.unpatch(model)
    made = compiled(model)
    made(torch.randint(30, (4, 6)))  # what is compiled now is of no use later
    tn.patch(made)
    return made


WAYS: dict[str, Callable[[nn.Module], nn.Module]] = {
    "as it is": lambda m: m,
    "deepcopy": copy.deepcopy,
    "pickle": lambda m: pickle.loads(pickle.dumps(m)),
    "torch.save": loaded,
    "checkpointing": checkpointed,
    "torch.compile": compiled,
    "torch.compile first": compiled_first,
}


@pytest.fixture
def fresh_compiler() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.usefixtures("fresh_compiler")
def test_trains_the_same(way: str) -> None:
    patched = model()
    tn.patch(patched)
    patched = WAYS[way](patched)
    assert_close(losses(patched), losses(model()))
    used = computed_by(lambda: patched(torch.randint(30, (4, 6))))
    assert used >= {"tenon::embedding", "tenon::rms_norm", "tenon::swiglu", "tenon::layer_norm", "tenon::softmax"}
    tn.unpatch(patched)
    assert not computed_by(lambda: patched(torch.randint(30, (4, 6))))


def test_tied_and_loaded_weights() -> None:
    tied = model()
    tied[5].weight = tied[0].weight  # type: ignore[index]
    other = copy.deepcopy(tied)
    tn.patch(tied)
    assert tied[5].weight is tied[0].weight  # type: ignore[index]
    other.load_state_dict(tied.state_dict())
    assert_close(losses(tied), losses(other))


def test_types_of_16_bits() -> None:
    x = torch.randn(4, 8).bfloat16()
    norm = Rms(8).bfloat16()
    want = norm(x)
    report = tn.patch(norm)
    assert report.count == 1 and norm(x).dtype == torch.bfloat16
    assert_close([norm(x)], [want], "bf16")
    (row,) = report.replaced
    assert row.theirs is not None and row.ours is not None
    assert row.ours.kept < row.theirs.kept and row.ours.launches < row.theirs.launches
    assert report.launches == row.theirs.launches - row.ours.launches


def test_random_numbers_and_gradients_stay() -> None:
    made = model()
    torch.manual_seed(7)
    want = torch.rand(3)
    torch.manual_seed(7)
    tn.patch(made)
    assert torch.equal(torch.rand(3), want) and all(p.grad is None for p in made.parameters())


MODES: dict[str, Callable[[], Any]] = {
    "inference_mode": torch.inference_mode,
    "no_grad": torch.no_grad,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "another default device": lambda: torch.device("meta"),
}


@pytest.mark.parametrize("mode", MODES)
def test_finds_the_same_in_any_mode(mode: str) -> None:
    made = model()
    count = tn.patch(made).count
    tn.unpatch(made)
    with MODES[mode]():
        assert tn.patch(made).count == count


def test_models_without_memory() -> None:
    """As they are made before they are sharded or loaded."""
    plain = model()
    with torch.device("meta"):
        empty = model()
    count = tn.patch(empty).count
    made = empty.to_empty(device="cpu")
    made.load_state_dict(plain.state_dict())
    assert_close(losses(made), losses(plain))
    tn.unpatch(made)
    assert tn.patch(made).count == count


def test_refuses_what_is_no_module() -> None:
    with pytest.raises(TypeError, match=r"model must be a torch\.nn\.Module, not function"):
        tn.patch(lambda x: x)  # type: ignore[arg-type]
