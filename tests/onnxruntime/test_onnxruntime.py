"""tenon.onnxruntime: every operator as a model of one node, shapes, formulas, and what is refused."""

from __future__ import annotations

import pathlib
from typing import Any

import arrays
import ml_dtypes
import numpy as np
import onnxruntime
import pytest
from arrays import Case, assert_close, cases, copies, dealt, flat, one_each
from kernels import triple
from onnx import AttributeProto, TensorProto, helper
from plugin import compile_plugin

import tenon
import tenon.numpy as tn
import tenon.onnxruntime
from tenon.contract import Input, Operator
from tenon.numpy._ops import numpy_op

VERSION = tuple(int(n) for n in onnxruntime.__version__.split(".")[:2])
DTYPES = {**arrays.DTYPES, "bf16": ml_dtypes.bfloat16}
ONNX = {np.dtype(np.float16): TensorProto.FLOAT16, np.dtype(np.float32): TensorProto.FLOAT}
ONNX |= {np.dtype(np.float64): TensorProto.DOUBLE, np.dtype(np.int8): TensorProto.INT8}
ONNX |= {np.dtype(np.int32): TensorProto.INT32, np.dtype(np.int64): TensorProto.INT64}
ONNX |= {np.dtype(np.bool_): TensorProto.BOOL, np.dtype(np.uint8): TensorProto.UINT8}
ONNX |= {np.dtype(ml_dtypes.bfloat16): TensorProto.BFLOAT16}
BF16 = np.dtype(ml_dtypes.bfloat16)


def session(nodes: list[Any], inputs: list[Any], outputs: list[Any], inner: list[Any] | None = None) -> Any:
    """`inner`: types of values in between, which ONNX Runtime 1.17 cannot always tell."""
    graph = helper.make_graph(nodes, "test", inputs, outputs, value_info=inner)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(tenon.onnxruntime.DOMAIN, tenon.onnxruntime.VERSION)]
    model = helper.make_model(graph, opset_imports=opsets)
    model.ir_version = 8  # of ONNX Runtime 1.17
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # errors are raised; they need not be printed too
    tenon.onnxruntime.register(options)
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def attributes(given: dict[str, Any]) -> list[Any]:
    kinds = {n: AttributeProto.INTS if v == [] else None for n, v in given.items()}  # which an empty list does not say
    values = {n: int(v) if isinstance(v, bool) else v for n, v in given.items() if v is not None}
    return [helper.make_attribute(n, v, attr_type=kinds[n]) for n, v in values.items()]


class Node:
    """A call as a node, its arrays as inputs and outputs of the model. NumPy cannot hand bf16 to ONNX Runtime: such
    inputs and outputs are f32, and cast."""

    def __init__(self, op_type: str, inputs: list[Any], outputs: list[Any], **attrs: Any) -> None:
        """`inputs`: arrays, None: absent. `outputs`: dtypes, None: left out."""
        self.nodes: list[Any] = []
        self.feeds: dict[str, Any] = {}
        self.outputs: list[Any] = []
        self.inner: list[Any] = []
        names = [self._input(f"i{k}", a) for k, a in enumerate(inputs)]
        made = [self._output(f"o{k}", dtype) for k, dtype in enumerate(outputs)]
        while names and not names[-1]:
            names.pop()
        node = helper.make_node(op_type, names, [name for name, _ in made], domain="tenon")
        node.attribute.extend(attributes(attrs))
        casts = [c for _, c in made if c is not None]
        infos = [helper.make_tensor_value_info(n, ONNX[a.dtype], a.shape) for n, a in self.feeds.items()]
        self.session = session([*self.nodes, node, *casts], infos, self.outputs, self.inner)

    def _input(self, name: str, array: Any) -> str:
        if array is None:
            return ""
        if array.dtype != BF16:
            self.feeds[name] = array
            return name
        self.feeds[f"{name}_f32"] = array.astype(np.float32)
        self.nodes.append(helper.make_node("Cast", [f"{name}_f32"], [name], to=TensorProto.BFLOAT16))
        return name

    def _output(self, name: str, dtype: Any) -> tuple[str, Any]:
        if dtype is None:
            return "", None
        if dtype != BF16:
            self.outputs.append(helper.make_tensor_value_info(name, ONNX[np.dtype(dtype)], None))
            return name, None
        self.inner.append(helper.make_tensor_value_info(name, TensorProto.BFLOAT16, None))
        self.outputs.append(helper.make_tensor_value_info(f"{name}_f32", TensorProto.FLOAT, None))
        return name, helper.make_node("Cast", [name], [f"{name}_f32"], to=TensorProto.FLOAT)

    def run(self) -> list[Any]:
        made: list[Any] = self.session.run(None, self.feeds)
        return made


def by_kind(op: Operator, args: list[Any], where: str) -> list[Any]:
    """Arrays of a call in the node's order: single ones, then those of lists."""
    chosen = [(p, a) for p, a in zip(op.params, args, strict=True) if isinstance(p, Input) and getattr(p, where, True)]
    return [a for p, a in chosen if not p.list] + [v for p, a in chosen if p.list for v in a or ()]


def node_of(case: Case, args: list[Any], made: list[Any]) -> Node:
    """The node of a case; `made` are its outputs."""
    lists = [a or () for p, a in zip(case.op.params, args, strict=True) if isinstance(p, Input) and p.list]
    attrs = {k: v for k, v in case.sample["attrs"].items() if not k.startswith("want_")}
    if len(lists) > 1:
        attrs["lengths"] = [len(a) for a in lists]
    outputs = [None if a is None else a.dtype for a in [*made, *by_kind(case.op, args, "inplace")]]
    return Node(case.op.name, by_kind(case.op, args, "name"), outputs, **attrs)


def has_node(case: Case, T: str = "f32") -> bool:
    """ONNX Runtime has one variadic input, of one type, and the adapter no floats of 8 bits."""
    names = {p.name for p in case.op.inputs if p.list}
    lists = {case.kind(g, T) for g in case.sample["inputs"] if g["name"] in names}
    return len(lists) < 2 and "e4m3" not in {case.kind(g, T) for g in case.sample["inputs"]}


def wide(arrays: list[Any]) -> list[Any]:
    return [a.astype(np.float32) if a.dtype == BF16 else a for a in arrays]


# ---- numbers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("case", "T"), dealt(cases(where=has_node), ["f32", "f16", "f64", "bf16"], each=2), ids=str)
def test_every_operator(case: Case, T: str) -> None:
    if not has_node(case, T):
        pytest.skip("lists of several types")
    if case.types() and any(g["shape"] == [] for g in case.sample["inputs"]):
        pytest.skip("ONNX Runtime does not tell a scalar from a tensor of unknown rank: test_types_said_by_attributes")
    args = case.arguments(T, DTYPES)
    in_numpy = copies(args)
    made = numpy_op(case.op.name).full(*in_numpy)
    want = list(flat([*made, *by_kind(case.op, in_numpy, "inplace")]))
    before = copies(args)
    have = node_of(case, args, made).run()
    assert len(have) == len(want)
    for a, b in zip(have, wide(want), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_array_equal(a, b)
    for a, b in zip(flat(args), flat(before), strict=True):
        np.testing.assert_array_equal(a, b)  # nothing of the caller's is written to
    exact = case.arguments("f64", DTYPES)
    for a, w in zip(flat(args), flat(exact), strict=True):
        w[...] = a
    reference = list(flat([*numpy_op(case.op.name).full(*exact), *by_kind(case.op, exact, "inplace")]))
    assert_close(have, reference, T)


def gives_several(case: Case) -> bool:
    return (
        has_node(case) and sum(o.want == "always" or o.want_attr in case.sample["attrs"] for o in case.op.outputs) > 1
    )


@pytest.mark.parametrize("case", one_each(gives_several), ids=str)
def test_outputs_left_out(case: Case) -> None:
    """The last ones, and those in between."""
    args = case.arguments("f32", DTYPES)
    made = numpy_op(case.op.name).full(*copies(args))
    first, *_, last = (k for k, a in enumerate(made) if a is not None)
    for kept in ([first], [first, last]):
        dtypes = [made[k].dtype if k in kept else None for k in range(kept[-1] + 1)]
        node = Node(case.op.name, by_kind(case.op, args, "name"), dtypes, **case.sample["attrs"])
        for have, k in zip(node.run(), kept, strict=True):
            np.testing.assert_array_equal(have, made[k])


@pytest.mark.parametrize(
    ("name", "onnx"), [("f64", "DOUBLE"), ("f16", "FLOAT16"), ("bf16", "BFLOAT16"), ("u8", "UINT8")]
)
def test_types_said_by_attributes(name: str, onnx: str) -> None:
    """Also of values that the model says nothing of. Where the rank of the input is not known, nor is the type."""

    def one_hot(index: Any, shape: Any) -> Any:
        nodes = [helper.make_node("one_hot", ["i"], ["o"], domain="tenon", classes=4, type=name)]
        nodes += [helper.make_node("Cast", ["o"], ["y"], to=TensorProto.FLOAT)]
        given = helper.make_tensor_value_info("i", TensorProto.INT64, shape)
        made = session(nodes, [given], [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
        return made.run(None, {"i": index})[0]

    np.testing.assert_array_equal(one_hot(np.array([0, 3]), ["n"]), np.eye(4, dtype=np.float32)[[0, 3]])
    with pytest.raises(Exception, match=f"one_hot: y is {name} here, but in ONNX Runtime one_hot gives i64"):
        one_hot(np.array([0, 3]), None)


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (3, 5, 7), (1,) * 8], ids=str)
def test_any_shape(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    x = np.asarray(x, np.float32)
    np.testing.assert_array_equal(Node("relu", [x], [x.dtype]).run()[0], tn.relu(x))
    y = x[..., :1] if shape else x
    np.testing.assert_array_equal(Node("add", [x, y], [x.dtype]).run()[0], x + y)


def test_many_rows_on_the_threads_of_the_session() -> None:
    x = np.random.default_rng(0).standard_normal((3000, 257)).astype(np.float32)
    np.testing.assert_array_equal(Node("softmax", [x], [x.dtype]).run()[0], tn.softmax(x))


def test_floats_are_the_decimals_that_were_written() -> None:
    """ONNX stores 32 bits of 0.1; in f64 that would be another number."""
    x = np.ones(3)
    np.testing.assert_array_equal(Node("scale", [x], [x.dtype], c=0.1).run()[0], x * 0.1)
    np.testing.assert_array_equal(Node("scale", [x], [x.dtype], c=2).run()[0], x * 2)
    exact = float(np.float32(1 / 3))
    np.testing.assert_allclose(Node("scale", [x], [x.dtype], c=exact).run()[0], x / 3, rtol=1e-7)


# ---- shapes ----------------------------------------------------------------------------------------------------------


def shape_of(op_type: str, shapes: list[Any], types: list[int] | None = None, **attrs: Any) -> Any:
    names = [f"x{i}" if s is not None else "" for i, s in enumerate(shapes)]
    types = types or [TensorProto.FLOAT] * len(shapes)
    infos = [helper.make_tensor_value_info(n, t, s) for n, t, s in zip(names, types, shapes, strict=True) if n]
    node = helper.make_node(op_type, names, ["y"], domain="tenon", **attrs)
    return session([node], infos, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]).get_outputs()[0].shape


def test_shapes_are_inferred() -> None:
    assert shape_of("relu", [[2, 3]]) == [2, 3]
    assert shape_of("add", [[2, 1], [1, 3]]) == [2, 3]
    assert shape_of("sum", [[2, 3, 4]], axes=[0, 2]) == [3]
    assert shape_of("sum", [[2, 3, 4]], axes=[-1], keepdim=1) == [2, 3, 1]
    assert shape_of("cosine_similarity", [[5, 7], [5, 7]]) == [5]
    assert shape_of("bias_act", [[2, 3], [3]], act="gelu") == [2, 3]


def test_unknown_sizes() -> None:
    free, known = shape_of("relu", [["n", 3]])
    assert isinstance(free, str) and known == 3
    also, _ = shape_of("relu", [["n", 3]])
    assert also != free
    assert shape_of("relu", [[None, 3]])[1] == 3


def test_shapes_with_optional_inputs() -> None:
    """ONNX Runtime crashes on them before 1.24; nothing is inferred there."""
    known = VERSION >= (1, 24)
    assert shape_of("softmax", [[2, 3]]) == ([2, 3] if known else [])
    assert shape_of("layer_norm", [[2, 3], None, [3]]) == ([2, 3] if known else [])


# ---- formulas --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("T", ["f32", "f16", "f64", "bf16"])
def test_fuse(T: str) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((3, 4)).astype(DTYPES[T]), rng.standard_normal(4).astype(DTYPES[T])
    formula = "silu(x) * y"
    have = Node("Fuse", [x, y], [x.dtype], formula=formula).run()
    np.testing.assert_array_equal(have[0], wide([tn.fuse(formula)(x, y)])[0])


def test_fuse_with_everything() -> None:
    x, y = np.linspace(-2, 2, 12).reshape(3, 4), np.linspace(1, 2, 4)
    both = Node("Fuse", [x, y], [x.dtype, x.dtype], formula="a = x + y; b = x * y").run()
    np.testing.assert_array_equal(both[0], x + y)
    np.testing.assert_array_equal(both[1], x * y)
    formula = "scaled(x: T[*r, c], eps: float = 1.0) -> y: T[*r, c] : y = x / (mean(x * x) + eps)"
    have = Node("Fuse", [x], [x.dtype], formula=formula, attributes="eps=2.0", fast=1).run()
    np.testing.assert_allclose(have[0], x / ((x * x).mean() + 2))
    formula = "f(x: T[*s], axes: axes, k: float = 1.0) -> y: T[reduce(*s, axes)] : y = k * mean(x, axis=axes)"
    have = Node("Fuse", [x], [x.dtype], formula=formula, attributes="axes=[0, 1] k=2.0").run()
    np.testing.assert_allclose(have[0], 2 * x.mean(), atol=1e-12)
    step = "step(p: T[*s]!, g: T[*s]) : p = p - 0.5 * g"
    np.testing.assert_array_equal(Node("Fuse", [x, x], [x.dtype], formula=step).run()[0], 0.5 * x)
    assert shape_of("Fuse", [[2, 3], [3]], formula="x * y") == [2, 3]
    assert shape_of("Fuse", [[3], [5, 2, 3]], formula="-sum(exp(x - logsumexp(x, -1)) * t, -1)") == [5, 2]
    assert shape_of("Fuse", [[2, 1], [2, 3], [3]], formula="w * sum(x * y, -1)") == [2, 1]
    with pytest.raises(Exception, match="makes 1 tensors, the node has 2"):
        Node("Fuse", [x], [x.dtype, x.dtype], formula="x + 1")
    rest = "f(x: T[*s], a: T[*s]?, b: T[*s]?) -> y: T[*s] : t = x + a if has(a) else x; y = t * b if has(b) else t"
    np.testing.assert_array_equal(Node("Fuse", [x, x], [x.dtype], formula=rest, lengths=[1, 0, 1]).run()[0], x * x)
    np.testing.assert_array_equal(Node("Fuse", [x, x], [x.dtype], formula=rest).run()[0], x + x)
    names = [f"a{i}" for i in range(48)]  # as many as there may be
    many = f"f(x: T[*s], {', '.join(f'{n}: int' for n in names)}) -> y: T[*s] : x * ({' + '.join(names)})"
    told = {"attributes": " ".join(f"{n}=1" for n in names), "lengths": [1]}
    np.testing.assert_array_equal(Node("Fuse", [x], [x.dtype], formula=many, **told).run()[0], x * 48)


# ---- errors ----------------------------------------------------------------------------------------------------------

X = np.ones((2, 3), np.float32)
TIMES = "times(x: T[*s], a: int = 1) -> y: T[*s] : x * a"


@pytest.mark.parametrize(
    ("op_type", "inputs", "attrs", "message"),
    [
        ("softmax", [X], {"axis": 7}, "softmax: axis is 7"),
        ("softmax", [X], {"axis": 0.5}, "softmax: axis has another type in this node, needs an int"),
        ("softmax", [X], {"scale": "big"}, "softmax: scale has another type in this node, needs a float"),
        ("sum", [X], {"axes": 1}, "sum: axes has another type in this node, needs"),
        ("sum", [X], {"axes": [0, 0]}, "sum: axes"),
        ("sum", [X], {"axes": "all"}, "sum: axes has another type in this node, needs"),
        ("sum", [X], {"axes": [0.0]}, "sum: axes has another type in this node, needs"),
        ("mse", [X, X], {"reduction": "all"}, "mse: reduction is 'all'"),
        ("layer_norm", [X, np.ones(4, np.float32)], {}, "layer_norm: gamma has shape"),
        ("scale", [X], {}, "scale: c is missing"),
        ("clip_grad_norm", [np.ones(2, np.float32), X], {}, "clip_grad_norm: max_norm has"),
        (
            "sgd_step_list",
            [np.array(1, np.float32), X, X, X],
            {},
            "sgd_step_list: needs the attribute lengths, 3 ints",
        ),
        (
            "sgd_step_list",
            [np.array(1, np.float32), X, X, X],
            {"lengths": [1, 1, 2]},
            "takes 5 tensors, the node has 4",
        ),
        ("Fuse", [X], {}, "Fuse: needs the attribute formula, a string"),
        ("Fuse", [X], {"formula": "x +"}, r"\^"),
        ("Fuse", [X], {"formula": "x * 2", "attributes": "eps=1"}, "eps"),
        ("Fuse", [X], {"formula": TIMES, "attributes": "a=2 a=3"}, "times: a is there twice, in 'a=2 a=3'"),
        ("Fuse", [X, X], {"formula": "x * 2"}, "takes 1 tensors, the node has 2"),
        ("Fuse", [X], {"formula": "x * y", "lengths": [1, 0]}, "lengths has 0 for y, needs 1"),
        ("Fuse", [X], {"formula": "x * y", "lengths": [1]}, "lengths must be 2 ints"),
        ("Fuse", [X.astype(np.float16)], {"formula": "f(x: T[*s]) -> y: acc(T)[] : y = sum(x)"}, "y is f32 here"),
    ],
)
def test_errors_name_operator_and_argument(
    op_type: str, inputs: list[Any], attrs: dict[str, Any], message: str
) -> None:
    with pytest.raises(Exception, match=message):
        Node(op_type, inputs, [inputs[-1].dtype], **attrs).run()


def test_types_are_enforced() -> None:
    with pytest.raises(Exception, match="add"):
        Node("add", [X, X.astype(np.float64)], [X.dtype])
    with pytest.raises(Exception, match="softmax"):
        Node("softmax", [X.astype(np.int32)], [np.dtype(np.int32)])


def test_registering_needs_options() -> None:
    with pytest.raises(TypeError, match=r"register: needs onnxruntime\.SessionOptions, not NoneType"):
        tenon.onnxruntime.register(None)


def test_registering_twice_is_registering() -> None:
    options = tenon.onnxruntime.register(onnxruntime.SessionOptions())
    assert tenon.onnxruntime.register(options) is options
    node = helper.make_node("relu", ["x"], ["y"], domain="tenon")
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in "xy")
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("tenon", 1)]
    model = helper.make_model(helper.make_graph([node], "g", [x], [y]), opset_imports=opsets, ir_version=8)
    onnxruntime.InferenceSession(model.SerializeToString(), options)


# ---- operators of plugins --------------------------------------------------------------------------------------------


def test_plugin(tmp_path: pathlib.Path) -> None:
    """Contracts with what the built-in ones do not have; a session sees the table as it was when it registered."""
    options = tenon.onnxruntime.register(onnxruntime.SessionOptions())
    tenon.load(compile_plugin(tmp_path))
    with pytest.raises(ValueError, match="these options have the operators from before"):
        tenon.onnxruntime.register(options)
    x = np.arange(12, dtype=np.float64).reshape(3, 4)
    np.testing.assert_array_equal(Node("joined", [x, x], [x.dtype]).run()[0], np.concatenate([x, x]))
    with pytest.raises(Exception, match=r"tensor\(double\)\) .* does not match expected type \(tensor\(float\)"):
        Node("pooled", [x], [x.dtype], size=2, out="f32").run()
    for options in ({}, {"out": "f32"}):
        made = np.dtype(np.float32 if options else np.float64)
        pooled = Node("pooled", [x], [made], size=2, **options).run()[0]
        np.testing.assert_array_equal(pooled, (x[:, 1:] + x[:, :-1]).astype(made))
    y, sums = Node("grouped", [x, None], [x.dtype, np.dtype(np.float64)], groups=2, add=1.0, sign="plus").run()
    np.testing.assert_array_equal(y, tn.grouped(x, groups=2, add=1.0))
    assert sums.shape == (3, 2)
    p = np.ones(3, np.float32)
    count, left, right = Node(
        "step_list", [p, p, p, 2 * p], [np.dtype(np.int64), p.dtype, p.dtype], lengths=[2, 2]
    ).run()
    assert count == 2 and left.tolist() == [0.5] * 3 and right.tolist() == [0.0] * 3


def test_kernel_as_text() -> None:
    """The node has the kernel's name."""
    kernel = triple()
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.testing.assert_array_equal(Node("triple", [x], [x.dtype], c=1.0).run()[0], kernel(x, 1.0))
