"""Nodes with operators or attributes that Tenon does not have are named, by check and where a session is made."""

from __future__ import annotations

import pathlib
from typing import Any

import onnxruntime
import pytest
from onnx import TensorProto, helper, save

import tenon.onnxruntime


def model(*nodes: Any, functions: Any = ()) -> Any:
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 8]) for name in ("x", nodes[-1].output[0])]
    graph = helper.make_graph(nodes, "test", infos[:1], infos[1:])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("tenon", 1), helper.make_opsetid("mine", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8, functions=functions)


def node(op: str, **attributes: Any) -> Any:
    return helper.make_node(op, ["x"], ["y"], domain="tenon", **attributes)


def session(made: Any) -> Any:
    options = tenon.onnxruntime.register(onnxruntime.SessionOptions())
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])


MISTAKES = [
    (node("softmax", dim=0), "the node of y: softmax has no attribute 'dim'; did you mean 'axis'?"),
    (node("softmax", name="probabilities", axes=0), "node 'probabilities': softmax has no attribute 'axes'; did you"),
    (node("layer_norm", epsilon=1e-3), "layer_norm has no attribute 'epsilon'; did you mean 'eps'?"),
    (node("softmax", temperature=2.0), "softmax has no attribute 'temperature'; it has axis, scale, causal"),
    (node("relu", wild=2.0), "relu has no attribute 'wild'; it has none"),
    (node("sofmax"), "there is no operator 'sofmax'; did you mean 'softmax'?"),
    (node("Softmax"), "there is no operator 'Softmax'; did you mean 'softmax'?"),
    (node("Fuse", formula="x * 2", attribute="a=1"), "Fuse has no attribute 'attribute'; did you mean 'attributes'?"),
]


@pytest.mark.parametrize(("wrong", "message"), MISTAKES, ids=[m for _, m in MISTAKES])
def test_check_names_it(wrong: Any, message: str) -> None:
    with pytest.raises(ValueError) as raised:
        tenon.onnxruntime.check(model(wrong))
    assert message in str(raised.value)


def test_all_mistakes_at_once_wherever_they_are(tmp_path: pathlib.Path) -> None:
    inner = helper.make_graph([node("relu", slope=1)], "branch", [], [helper.make_tensor_value_info("y", 1, None)])
    outer = helper.make_node("If", ["x"], ["z"], then_branch=inner, else_branch=inner)
    body = helper.make_function(
        "mine", "Twice", ["x"], ["y"], [node("gelu", fast=1)], [helper.make_opsetid("tenon", 1)]
    )
    made = model(node("softmax", dim=0), outer, functions=[body])
    path = tmp_path / "model.onnx"
    save(made, path)
    for given in (made, made.SerializeToString(), path, str(path)):
        with pytest.raises(ValueError) as raised:
            tenon.onnxruntime.check(given)
        assert len(str(raised.value).splitlines()) == 4
    tenon.onnxruntime.check(model(helper.make_node("Softmax", ["x"], ["y"], dim=0)))  # not ours


@pytest.mark.parametrize("right", [node("softmax", axis=0, scale=2.0, causal=0), node("Fuse", formula="x * 2", fast=1)])
def test_nothing_is_said_of_what_is_right(right: Any) -> None:
    tenon.onnxruntime.check(model(right))
    session(model(right))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (node("softmax", dim=0), "softmax: has no attribute 'dim', which this node has; it has axis, scale, causal"),
        (node("softmax", axes=[0]), "softmax: has no attribute 'axes'"),
        (node("layer_norm", epsilon=1e-3), "layer_norm: has no attribute 'epsilon', which this node has; it has eps"),
        (node("relu", mode="tanh"), "relu: has no attribute 'mode', which this node has; it has none"),
    ],
    ids=["int", "ints", "float", "str"],
)
def test_sessions_refuse_common_spellings(wrong: Any, message: str) -> None:
    with pytest.raises(Exception, match=message):
        session(model(wrong))
