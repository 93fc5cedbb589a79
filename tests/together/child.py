"""One process with several frameworks:  python child.py FRAMEWORK,… [--hide FRAMEWORK,…] [--also FOLDER]

Imports them in this order, each with its adapter, and only then computes in each: prints a line of JSON, by framework
and call, with the result and the gradients of the sum of its squares. What is hidden is not there to be imported; its
entry is what the adapter says. FOLDER has packages that are missing here.
"""

from __future__ import annotations

import argparse
import importlib.abc
import json
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import numpy as np

CALLS = {"softmax": 1, "silu(x) * y": 2}  # an operator and a formula, with how many inputs
Results = tuple[Any, Sequence[Any]]  # and gradients, where the framework has them


def inputs(call: str) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    return [random.standard_normal((5, 7)).astype(np.float32) for _ in range(CALLS[call])]


def function(call: str, tn: Any) -> Callable[..., Any]:
    return getattr(tn, call) if call.isidentifier() else tn.fuse(call)  # type: ignore[no-any-return]


def in_torch(call: str) -> Results:
    import torch

    import tenon.torch as tn

    device = "cuda" if torch.cuda.is_available() else "cpu"
    leaves = [torch.tensor(a, device=device, requires_grad=True) for a in inputs(call)]
    y = function(call, tn)(*leaves)
    return y.detach().cpu(), [g.cpu() for g in torch.autograd.grad((y * y).sum(), leaves)]


def in_jax(call: str) -> Results:
    import jax

    import tenon.jax as tn

    f, given = function(call, tn), inputs(call)
    gradients = jax.grad(lambda *arrays: (f(*arrays) ** 2).sum(), tuple(range(len(given))))
    return jax.jit(f)(*given), jax.jit(gradients)(*given)


def in_tensorflow(call: str) -> Results:
    import tensorflow as tf

    import tenon.tensorflow as tn

    given = [tf.constant(a) for a in inputs(call)]
    with tf.GradientTape() as tape:
        tape.watch(given)
        y = function(call, tn)(*given)
        total = tf.reduce_sum(y * y)
    return y, tape.gradient(total, given)


def in_onnxruntime(call: str) -> Results:
    import onnxruntime
    from onnx import TensorProto, helper

    import tenon.onnxruntime

    given = {f"i{k}": a for k, a in enumerate(inputs(call))}
    kind, attrs = (call, {}) if call.isidentifier() else ("Fuse", {"formula": call})
    node = helper.make_node(kind, list(given), ["y"], domain=tenon.onnxruntime.DOMAIN, **attrs)
    values = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [5, 7]) for name in (*given, "y")}
    graph = helper.make_graph([node], "one", [values[name] for name in given], [values["y"]])
    opset = helper.make_opsetid(tenon.onnxruntime.DOMAIN, tenon.onnxruntime.VERSION)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=8)
    options = tenon.onnxruntime.register(onnxruntime.SessionOptions())
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, given)[0], []


def in_numpy(call: str) -> Results:
    import tenon.numpy as tn

    return function(call, tn)(*inputs(call)), []


COMPUTE = {
    "torch": in_torch,
    "jax": in_jax,
    "tensorflow": in_tensorflow,
    "onnxruntime": in_onnxruntime,
    "numpy": in_numpy,
}


class Hide(importlib.abc.MetaPathFinder):
    def __init__(self, names: Sequence[str]) -> None:
        self.names = names

    def find_spec(self, name: str, path: Any, target: Any = None) -> None:
        if name in self.names:
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("frameworks", type=lambda text: text.split(","))
    arguments.add_argument("--hide", type=lambda text: text.split(","), default=[])
    arguments.add_argument("--also")
    given = arguments.parse_args()
    if given.also:
        sys.path.append(given.also)
    sys.meta_path.insert(0, Hide(given.hide))
    found: dict[str, Any] = {}
    for name in given.frameworks:
        try:
            import_module(f"tenon.{name}")  # which imports the framework, or says that there is none
            import_module(name)
        except ImportError as error:
            found[name] = str(error)
    for name in given.frameworks:
        if name not in found:
            made = {call: COMPUTE[name](call) for call in CALLS}
            found[name] = {
                c: [np.asarray(y).tolist(), [np.asarray(g).tolist() for g in gs]] for c, (y, gs) in made.items()
            }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
