"""torch.onnx.export of models with Tenon's operators: they run in ONNX Runtime with the same numbers."""

from __future__ import annotations

import io
from collections import Counter
from typing import Any

import numpy as np
import onnxruntime
import pytest
from arrays import Case, each_operator, flat

torch = pytest.importorskip("torch", minversion="2.10")
pytest.importorskip("onnxscript")

import tenon.onnxruntime  # noqa: E402
import tenon.torch as tn  # noqa: E402
from tenon.torch._types import DTYPES  # noqa: E402
from tenon.torch.onnx import translations  # noqa: E402


def exported(model: Any, args: tuple[Any, ...], **named: Any) -> Any:
    """A session with the model."""
    table = translations()
    program = torch.onnx.export(model.eval(), args, custom_translation_table=table, verbose=False, **named)
    saved = io.BytesIO()
    program.save(saved)
    options = tenon.onnxruntime.register(onnxruntime.SessionOptions())
    return onnxruntime.InferenceSession(saved.getvalue(), options, providers=["CPUExecutionProvider"])


def assert_same(session: Any, model: Any, args: tuple[Any, ...], **named: Any) -> None:
    feeds = {i.name: a.numpy() for i, a in zip(session.get_inputs(), args, strict=True)}
    with torch.no_grad():
        want = model(*args)
    for a, b in zip(session.run(None, feeds), want, strict=True):
        np.testing.assert_allclose(a, b.numpy(), **named)


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)
        self.norm = tn.nn.LayerNorm(8, eps=1e-3)
        self.gate = tn.fuse("silu(x) * y")
        self.scaled = tn.fuse("scaled(x: T[*r, c], eps: float = 1.0) -> y: T[*r, c] : y = x / (mean(x * x) + eps)")

    def forward(self, x: Any, mask: Any) -> Any:
        y = self.gate(self.norm(self.linear(x)), tn.gelu(x))
        return tn.softmax(y, mask=mask, scale=0.3), tn.rms_norm(x), self.scaled(y, eps=0.1)


def test_model_with_free_sizes() -> None:
    model = Model()
    session = exported(model, inputs(3), dynamic_shapes=({0: "batch"}, {0: "batch"}))
    for n in (1, 3, 7):
        assert_same(session, model, inputs(n), rtol=1e-5, atol=1e-6)


def inputs(n: int) -> tuple[Any, Any]:
    return torch.randn(n, 8), torch.rand(n, 8) > 0.2


def is_exported(case: Case) -> bool:
    """It updates nothing, outputs that are not asked for come last, and no type is named, which torch has codes for."""
    wanted = [o.want_attr is None or case.sample["attrs"].get(o.want_attr, False) for o in case.op.outputs]
    named = "type" in case.sample["attrs"]
    return not case.op.mutates and not named and wanted[0] and all(wanted[: sum(wanted)])


class Everything(torch.nn.Module):
    """A call of each operator."""

    def __init__(self, calls: list[Case]) -> None:
        super().__init__()
        self.calls = calls

    def forward(self, *tensors: Any) -> Any:
        left = list(tensors)
        results: list[Any] = []
        for case in self.calls:
            counts = Counter(i["name"] for i in case.sample["inputs"])
            given = dict(case.sample["attrs"])
            for param in case.op.inputs:
                taken = [left.pop(0) for _ in range(counts[param.name])]
                given[param.name] = taken if param.list else taken[0] if taken else None
            made = getattr(torch.ops.tenon, case.op.name)(**given)
            results += [t for t in (made if isinstance(made, tuple) else (made,)) if t is not None]
        return tuple(results)


def test_every_operator() -> None:
    calls = each_operator(is_exported)
    assert len(calls) > 50
    dtypes = {kind: getattr(np, str(dtype).removeprefix("torch."), None) for kind, dtype in DTYPES.items()}
    made = [(case, case.arrays("f32", dtypes)) for case in calls]
    args = tuple(torch.from_numpy(a) for case, arrays in made for p in case.op.inputs for a in flat(arrays[p.name]))
    model = Everything(calls)
    assert_same(exported(model, args), model, args, rtol=0, atol=0)


class Call(torch.nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *tensors: Any) -> Any:
        return (self.function(*tensors),)


def test_an_output_that_is_not_made() -> None:
    """The loss of a call for which no gradient is asked."""
    model, args = Call(tn.cross_entropy), (torch.randn(3, 8), torch.tensor([0, 7, 2]))
    assert_same(exported(model, args), model, args, rtol=1e-6)


@pytest.mark.parametrize("dtype", [torch.int64, torch.float32, torch.bool, torch.uint8], ids=str)
def test_a_type_that_an_attribute_says(dtype: Any) -> None:
    model, args = Call(lambda index: tn.one_hot(index, 8, dtype=dtype)), (torch.tensor([[0, 7, 2]]),)
    assert_same(exported(model, args), model, args, rtol=0)


X = torch.ones(3, 4)
SEED = torch.tensor([1, 2])


@pytest.mark.parametrize(
    ("formula", "args", "message"),
    [
        ("f(x: T[*s], y: U[*s]) -> z: T[*s] : x * y", (X, X.double()), "y is f64"),
        ("f(x: T[*s]) -> z: bool[*s] : x > 0", (X,), "z is bool"),
        ("f(x: T[*s], seed: i64[2]) -> z: T[*s] : x * rand(seed)", (X, SEED), "seed is int64"),
        ("f(x: T[*s], out: dtype = f64) -> z: out[*s] : x * 2", (X,), "z is f64"),
    ],
)
def test_formulas_that_onnx_cannot_have(formula: str, args: tuple[Any, ...], message: str) -> None:
    with pytest.raises(
        torch.onnx.OnnxExporterError, match=f"f: ONNX cannot have this formula: {message}, but the inputs"
    ):
        exported(Call(tn.fuse(formula)), args)


MASKED = "f(x: T[*s], a: T[*s]?, b: T[*s]?) -> y: T[*s] : t = x + a if has(a) else x; y = t * b if has(b) else t"


@pytest.mark.parametrize("present", [(True, True), (True, False), (False, True), (False, False)])
def test_formulas_with_inputs_left_out(present: tuple[bool, bool]) -> None:
    function = tn.fuse(MASKED)
    places = [i for i, there in enumerate(present) if there]

    def call(x: Any, *given: Any) -> Any:
        every: list[Any] = [None, None]
        for i, value in zip(places, given, strict=True):
            every[i] = value
        return function(x, *every)

    model, args = Call(call), tuple(torch.randn(3, 4) for _ in range(1 + len(places)))
    assert_same(exported(model, args), model, args, rtol=1e-6)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: tn.fuse("x! = x * 2")(x.clone()), "formula: ONNX cannot have this operator, which updates x in"),
        (
            lambda x: tn.batch_norm(x, torch.zeros(4), torch.ones(4), torch.ones(4), torch.zeros(4), training=True),
            "batch_norm: ONNX cannot have this operator, which updates running_mean, running_var in place",
        ),
    ],
)
def test_updates_are_refused_by_name(function: Any, message: str) -> None:
    with pytest.raises(torch.onnx.OnnxExporterError, match=message):
        exported(Call(function), (X,))
