"""torch.compile, torch.export and torch.library.opcheck on every operator."""

from __future__ import annotations

import io
import pathlib
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import here
import pytest
import torch
import torch._dynamo.testing
from cases import Case, assert_close, cases, clone, dealt, differentiable_inputs, one_each, tensors
from torch import Tensor

import tenon
import tenon.torch as tn
from tenon.contract import Attr
from tenon.torch._public import functions


def can_need_grad(case: Case) -> bool:
    return case.op.rule is not None


def split(case: Case, args: list[Any]) -> tuple[list[Tensor], Callable[..., Any]]:
    """The tensors of a call, those in lists too, and the call as a function of them: attributes are constants."""
    public = functions[case.op.name]
    named = case.public(args)
    places: dict[str, int | slice] = {}
    at = 0
    for name, value in named.items():
        count = len(list(tensors(value)))
        if count:
            places[name] = at if isinstance(value, Tensor) else slice(at, at + count)
        at += count

    def function(*given: Tensor) -> Any:
        return public(**named | {name: given[place] for name, place in places.items()})

    return list(tensors(args)), function


def differentiable(case: Case, T: str = "f32") -> list[Any]:
    args = case.make(T)
    for i in differentiable_inputs(case):
        if isinstance(args[i], Tensor):
            args[i].requires_grad_()
    return args


def backward(outputs: Any) -> None:
    smooth = [t for t in tensors(outputs) if t.requires_grad]
    if smooth:
        torch.autograd.backward(smooth, [torch.ones_like(t) for t in smooth])


# ---- opcheck ---------------------------------------------------------------------------------------------------


def possible(case: Case, *tests: str) -> tuple[str, ...]:
    """For its test of schemas torch multiplies the tensors, which it cannot do with floats of 8 bits."""
    eight = any(t.dtype == torch.float8_e4m3fn for t in tensors(case.make()))
    return tuple(test for test in tests if not (eight and test == "test_schema"))


@pytest.mark.parametrize("case", cases(2048), ids=str)
def test_opcheck(case: Case) -> None:
    """Schema, fake kernel and strides; with gradients where there is a rule."""
    tests = possible(case, "test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(case.torch_op.overload, tuple(differentiable(case)), test_utils=tests)


@pytest.mark.parametrize("case", one_each(), ids=str)
def test_opcheck_traced(case: Case) -> None:
    """Functionalisation, and gradients of what was traced."""
    args = differentiable(case)
    if any(t.isnan().any() for t in tensors(case.torch_op.full(*clone(args)))):
        pytest.skip("it takes NaN for a difference")
    torch.library.opcheck(case.torch_op.overload, tuple(args), test_utils=["test_aot_dispatch_dynamic"])


@pytest.mark.parametrize("case", one_each(), ids=str)
def test_opcheck_raw(case: Case) -> None:
    tests = possible(case, "test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
    torch.library.opcheck(case.torch_op.raw, tuple(case.make()), test_utils=tests)


@pytest.mark.parametrize("case", one_each(), ids=str)
def test_opcheck_layouts(case: Case) -> None:
    def transposed(t: Tensor) -> Tensor:
        return t.transpose(0, -1).contiguous().transpose(0, -1) if t.ndim > 1 else t

    def gaps(t: Tensor) -> Tensor:
        return torch.stack([t, t], -1)[..., 0]

    tests = possible(case, "test_schema", "test_faketensor")
    for change in (transposed, gaps):
        torch.library.opcheck(case.torch_op.overload, tuple(case.make(change=change)), test_utils=tests)


# ---- compile ---------------------------------------------------------------------------------------------------


def assert_compiles(todo: list[Case], backend: str) -> None:
    """In one program, with gradients: that is quicker than many."""
    torch._dynamo.reset()
    args = [differentiable(case) for case in todo]
    peers = [split(case, clone(given)) for case, given in zip(todo, args, strict=True)]
    parts = [split(case, given) for case, given in zip(todo, args, strict=True)]

    def program(given: list[list[Tensor]]) -> list[Any]:
        return [function(*tensors) for (_, function), tensors in zip(parts, given, strict=True)]

    compiled = torch.compile(program, backend=backend, fullgraph=True, dynamic=True)
    have = compiled([given for given, _ in parts])
    backward(have)
    for case, one, (given, _), (others, plain) in zip(todo, have, parts, peers, strict=True):
        want = plain(*others)
        backward(want)
        assert_same(case, one, want, given, others)


def assert_same(case: Case, have: Any, want: Any, given: list[Tensor], others: list[Tensor]) -> None:
    """A failure shows the case."""
    assert_close([have], [want])
    for a, b in zip(given, others, strict=True):
        assert_close(a.detach(), b.detach())  # what is updated in place, too
        assert (a.grad is None) == (b.grad is None)
        assert_close(a.grad, b.grad)


SAMPLES = {name: [c for c in one_each() if c.op.name == name] for name in sorted({c.op.name for c in one_each()})}


@pytest.mark.parametrize("op", SAMPLES)
def test_compile_with_dynamic_shapes(op: str) -> None:
    """An operator with some of its samples. What AOTAutograd makes of them is looked at by opcheck."""
    assert_compiles(SAMPLES[op], "eager")


def test_one_graph_serves_all_sizes() -> None:
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")

    @torch.compile(backend=counter, fullgraph=True, dynamic=True)
    def function(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return tn.softmax(tn.layer_norm(x, weight=w, bias=b), dim=0).sum() + tn.sum(x, [1]).sum()

    counts = []
    for n, c in ((4, 8), (5, 9), (17, 3)):
        x = here.randn(n, c, requires_grad=True)
        w, b = here.randn(c), here.randn(c)
        function(x, w, b).backward()
        assert x.grad is not None and x.grad.shape == x.shape
        counts.append(counter.frame_count)
    assert len(set(counts)) == 1  # the first may take two tries


SCALED = tn.fuse("x * s + b")
STEPPED = tn.fuse("f(x: T[*s], lr: acc(T)[]) -> y: T[*s] : x * lr")
CHANGING: dict[str, Callable[[Tensor, float], Tensor]] = {
    "add": lambda x, c: tn.add(x, c),
    "formula": lambda x, c: SCALED(x, c, 2 * c),
    "number of a formula": lambda x, c: STEPPED(x, c),
}


@pytest.mark.parametrize("name", CHANGING)
def test_a_number_that_changes(name: str) -> None:
    """Torch makes a graph of its first value, and one for all others."""
    torch._dynamo.reset()
    counter, call = torch._dynamo.testing.CompileCounterWithBackend("aot_eager"), CHANGING[name]
    compiled = torch.compile(call, backend=counter, fullgraph=True)
    for value in (0.5, 0.75, -0.0, 0.0, 1e-3, 3.25):
        x = here.randn(3, 4, requires_grad=True)
        y = compiled(x, value)
        assert torch.equal(y, call(x, value)) and torch.equal(y.signbit(), call(x, value).signbit())
        y.sum().backward()
    assert counter.frame_count == 2


def test_inductor() -> None:
    """All operators in one program: a compilation of C++ takes seconds."""
    torch._dynamo.reset()
    target = here.tensor([0, 3, 1, 2, 2, 0])

    def function(x: Tensor, gamma: Tensor, beta: Tensor, mean: Tensor, var: Tensor) -> Tensor:
        h = tn.batch_norm(torch.relu(x), mean, var, gamma, beta, training=True, act="relu")
        h = tn.layer_norm(h + x, weight=gamma, bias=beta) * 2
        h = h + tn.softmax(h, causal=False) + tn.sum(h, dim=[1], keepdim=True)
        return tn.cross_entropy(h, target)

    def arguments() -> list[Tensor]:
        torch.manual_seed(0)
        smooth = [here.randn(6, 5), here.rand(5) + 0.5, here.randn(5)]
        return [t.requires_grad_() for t in smooth] + [here.zeros(5), here.ones(5)]

    plain = arguments()
    want = function(*plain)
    want.backward()
    compiled = torch.compile(function, fullgraph=True, dynamic=True)
    for _ in range(2):
        args = arguments()
        have = compiled(*args)
        have.backward()
        assert_close(have, want)
        for a, b in zip(args, plain, strict=True):
            assert_close(a.grad, b.grad)
            assert_close(a.detach(), b.detach())


def test_inductor_on_every_trait() -> None:
    assert_compiles(one_each(), "inductor")


def test_compiled_code_holds_operators_without_autograd() -> None:
    """What runs in a compiled graph has been differentiated already: it should not pay for that again."""
    torch._dynamo.reset()
    seen: list[str] = []

    def backend(gm: torch.fx.GraphModule, example: Any) -> Any:
        def note(graph: torch.fx.GraphModule, inputs: Any) -> Any:
            seen.extend(str(n.target) for n in graph.graph.nodes if n.op == "call_function")
            return graph.forward

        from torch._dynamo.backends.common import aot_autograd

        return aot_autograd(fw_compiler=note, bw_compiler=note)(gm, example)

    x = here.randn(3, 4, requires_grad=True)
    torch.compile(lambda x: tn.softmax(x), backend=backend, fullgraph=True)(x).sum().backward()
    assert any("softmax.raw" in s for s in seen) and any("softmax_grad.raw" in s for s in seen)
    assert not any("tenon" in s and "default" in s for s in seen)


# ---- export ----------------------------------------------------------------------------------------------------


class Wrap(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Tensor) -> Any:
        return self.function(*args)


@pytest.mark.parametrize(("case", "strict"), dealt(one_each(), [False, True]), ids=str)
def test_export(case: Case, strict: bool) -> None:
    args = case.make()
    given, function = split(case, args)
    want = function(*[t.clone() for t in given])
    program = torch.export.export(Wrap(function), tuple(given), strict=strict)
    assert f"tenon.{case.op.name}" in program.graph_module.code
    assert_close(program.module()(*[t.clone() for t in given]), want)


PLAIN_PACKAGE = """
import sys, torch

class Plain(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) + 1

x = torch.ones(4, 8, device="cuda")
package = torch._inductor.aoti_compile_and_package(torch.export.export(Plain(), (x,)), package_path=sys.argv[1])
torch._inductor.aoti_load_package(package)(x)
"""


def skip_where_torch_alone_dies(folder: pathlib.Path) -> None:
    """On some machines with a GPU torch 2.11 crashes when it loads any package (std::regex of two C++ libraries)."""
    command = [sys.executable, "-c", PLAIN_PACKAGE, str(folder / "plain.pt2")]
    if here.DEVICE != "cpu" and subprocess.run(command, capture_output=True).returncode != 0:
        pytest.skip("torch's own packages cannot be loaded here, without Tenon")


def test_aotinductor(tmp_path: pathlib.Path) -> None:
    """A package that runs without Python holds the operators, and formulas."""
    skip_where_torch_alone_dies(tmp_path)
    gate = tn.fuse("silu(x) * y")

    def function(x: Tensor, gamma: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        h = gate(tn.layer_norm(torch.relu(x), weight=gamma), x)
        return tn.softmax(h, axis=0), tn.cross_entropy(h, target)

    def arguments(n: int) -> tuple[Tensor, Tensor, Tensor]:
        return here.randn(n, 8), here.rand(8), here.randint(0, 8, (n,))

    n = torch.export.Dim("n", min=2)
    program = torch.export.export(Wrap(function), arguments(4), dynamic_shapes=(({0: n}, None, {0: n}),))
    package = torch._inductor.aoti_compile_and_package(program, package_path=str(tmp_path / "model.pt2"))
    given = arguments(7)
    assert_close(list(torch._inductor.aoti_load_package(package)(*given)), list(function(*given)))


def test_export_with_a_dynamic_size_can_be_saved() -> None:
    x = here.randn(4, 6)
    program = torch.export.export(
        Wrap(lambda x: tn.softmax(x)), (x,), dynamic_shapes=(({0: torch.export.Dim("n", min=2)},),)
    )
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    loaded = torch.export.load(file).module()
    y = here.randn(9, 6)
    assert_close(loaded(y), torch.softmax(y, -1))


# ---- what a trace must get right -------------------------------------------------------------------------------


def test_fake_kernels_say_what_is_wrong() -> None:
    meta = torch.empty(3, 4, device="meta")
    assert tn.softmax(meta).shape == (3, 4) and tn.softmax(meta).device.type == "meta"
    with pytest.raises(ValueError, match="input has rank 0, needs at least 1"):
        tn.layer_norm(torch.empty((), device="meta"))
    with pytest.raises(TypeError, match="input has type i64"):
        tn.softmax(torch.empty(3, dtype=torch.int64, device="meta"))
    with pytest.raises(RuntimeError, match=r"mask is on (cpu|cuda:0), but input is on meta"):
        tn.softmax(meta, mask=here.ones(3, 4, dtype=torch.bool))


def test_meta_tensors_have_the_strides_of_real_ones() -> None:
    for x in (
        here.randn(2, 8, 5, 6).to(memory_format=torch.channels_last),
        here.randn(6, 4).t(),
        here.randn(3, 8)[:, ::2],
    ):
        meta = torch.empty_strided(x.shape, x.stride(), device="meta")
        assert tn.softmax(x).stride() == tn.softmax(meta).stride()
        for a, b in zip(torch.ops.tenon.layer_norm(x), torch.ops.tenon.layer_norm(meta), strict=True):
            assert a.stride() == b.stride()


def test_plugins_compile(plugin: pathlib.Path) -> None:
    torch._dynamo.reset()

    def function(x: Tensor, y: Tensor) -> Tensor:
        a, b = tn.halves(tn.cube(x))
        joined = tn.joined([a.detach(), b.detach()])
        windows = tn.pooled(joined, 2, out=torch.float32)
        grouped, sums = tn.grouped(joined, groups=2, want_sums=True)
        return tn.scaled(a, 2.0).sum() + tn.row_sum(b).sum() + windows.sum() + grouped.sum() + sums.sum() + y.sum()

    x, y = here.randn(3, 8, requires_grad=True), here.randn(2)
    want = function(x, y)
    want.backward()
    expected, x.grad = x.grad, None
    have = torch.compile(function, backend="aot_eager", fullgraph=True, dynamic=True)(x, y)
    have.backward()
    assert_close(have, want)
    assert_close(x.grad, expected)


def test_updates_of_lists_compile(plugin: pathlib.Path) -> None:
    torch._dynamo.reset()

    def function(a: Tensor, b: Tensor) -> Tensor:
        return tn.step_list([a, b], [torch.ones_like(a), torch.ones_like(b)], lr=0.25)

    a, b = here.zeros(3), here.zeros(2, 2)
    count = torch.compile(function, backend="aot_eager", fullgraph=True)(a, b)
    assert count.item() == 2 and (a == -0.25).all() and (b == -0.25).all()


def test_attributes_are_all_typed() -> None:
    """Every attribute kind of the table reaches the schema."""

    for op in tenon.ops().values():
        schema = getattr(torch.ops.tenon, op.name).default._schema
        assert [a.name for a in schema.arguments] == [p.name for p in op.params]
        for argument, param in zip(schema.arguments, op.params, strict=True):
            if isinstance(param, Attr) and not param.required and argument.has_default_value():
                assert argument.default_value == param.default or param.kind == "dtype"


W = here.ones(4)
NORM, GATE = tn.fuse("(x - mean(x, -1)) * rsqrt(var(x, -1) + 0.1) * g + b"), tn.fuse("silu(x) * 2")
OF_DATA: dict[str, Any] = {
    "gelu": tn.gelu,
    "softmax": tn.softmax,
    "formula": GATE,
    "broadcast": lambda x: tn.add(x, W),
    "two": lambda x: tn.swiglu(x, x * 2),
    "rms_norm": lambda x: tn.rms_norm(x, weight=W, eps=1e-6),
    "norm": lambda x: NORM(x, W, W),
}


def assert_data_tells_sizes(names: list[str], backend: str) -> None:
    torch._dynamo.reset()
    x = here.randn(20, 4)

    def function(x: torch.Tensor) -> list[Any]:
        return [OF_DATA[name](x[x[:, 0] > 0] * 2) for name in names]

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled = torch.compile(function, fullgraph=True, backend=backend)
        for have, want in zip(compiled(x), function(x), strict=True):
            assert_close(have, want)


@pytest.mark.parametrize("name", OF_DATA)
def test_sizes_that_data_tells(name: str) -> None:
    assert_data_tells_sizes([name], "aot_eager")


def test_sizes_that_data_tells_inductor() -> None:
    """In one program: a compilation of C++ takes seconds."""
    assert_data_tells_sizes(list(OF_DATA), "inductor")
