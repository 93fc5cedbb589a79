"""The same formulas in every framework that this Python has: values and gradients against float64, time against the
framework's own code. A part of `make demo`; alone, it needs NumPy and takes what else is installed:

    pip install numpy
    PYTHONPATH=python python examples/frameworks.py
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

Arrays = Sequence[Any]
SHAPE = (2048, 2048)


# ---- formulas --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Formula:
    """A formula, the shapes of its inputs, the same thing in any array library, and its gradients for ones."""

    text: str
    shapes: Sequence[tuple[int, ...]]
    written: Callable[..., Any]  # xp, then the inputs; xp has exp and maximum
    gradients: Callable[..., Arrays]

    def inputs(self) -> Arrays:
        random = np.random.default_rng(0)
        return [random.standard_normal(shape).astype(np.float32) for shape in self.shapes]


def _gate(xp: Any, x: Any, y: Any) -> Any:
    return x / (1 + xp.exp(-x)) * y


def _gate_gradients(x: Any, y: Any) -> Arrays:
    s = 1 / (1 + np.exp(-x))
    return y * s * (1 + x * (1 - s)), x * s


def _scaled(xp: Any, x: Any, s: Any, b: Any) -> Any:
    return xp.maximum(x * s + b, 0)


def _scaled_gradients(x: Any, s: Any, b: Any) -> Arrays:
    on = (x * s + b > 0).astype(x.dtype)
    return on * s, (on * x).sum(0), on.sum(0)


FORMULAS = [
    Formula("relu(x * s + b)", (SHAPE, SHAPE[1:], SHAPE[1:]), _scaled, _scaled_gradients),
    Formula("silu(x) * y", (SHAPE, SHAPE), _gate, _gate_gradients),
]


# ---- frameworks ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Side:
    """What a framework makes of a formula."""

    device: str
    peer: str
    value: Any
    gradients: Arrays | None  # None: the framework has none
    ours: Callable[[], object]  # until the result is there
    theirs: Callable[[], object]


def in_pytorch(formula: Formula) -> Side:
    import torch

    import tenon.torch as tn

    class Torch:
        exp = staticmethod(torch.exp)
        maximum = staticmethod(lambda a, b: torch.clamp(a, min=b))

    cuda = torch.cuda.is_available()
    leaves = [torch.tensor(a, device="cuda" if cuda else "cpu").requires_grad_() for a in formula.inputs()]
    fused = tn.fuse(formula.text)
    value = fused(*leaves)
    gradients = torch.autograd.grad(value.sum(), leaves)
    inputs = [leaf.detach() for leaf in leaves]

    def wait(result: object) -> object:
        if cuda:
            torch.cuda.synchronize()
        return result

    return Side(
        torch.cuda.get_device_name() if cuda else "cpu",
        "PyTorch, unfused",
        value.detach().cpu().numpy(),
        [g.cpu().numpy() for g in gradients],
        lambda: wait(fused(*inputs)),
        lambda: wait(formula.written(Torch, *inputs)),
    )


def in_jax(formula: Formula) -> Side:
    import jax
    import jax.numpy as jnp

    import tenon.jax as tn

    fused = tn.fuse(formula.text)
    inputs = [jnp.asarray(a) for a in formula.inputs()]
    ours = jax.jit(fused)
    theirs = jax.jit(lambda *given: formula.written(jnp, *given))
    gradients = jax.grad(lambda *given: fused(*given).sum(), tuple(range(len(inputs))))(*inputs)
    return Side(
        str(jax.devices()[0].device_kind),
        "jax.jit",
        np.asarray(ours(*inputs)),
        [np.asarray(g) for g in gradients],
        lambda: ours(*inputs).block_until_ready(),
        lambda: theirs(*inputs).block_until_ready(),
    )


def in_tensorflow(formula: Formula) -> Side:
    import tensorflow as tf

    import tenon.tensorflow as tn

    fused, inputs = tn.fuse(formula.text), [tf.constant(a) for a in formula.inputs()]
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        value = fused(*inputs)
    gradients = tape.gradient(value, inputs)
    return Side(
        "cpu",
        "TensorFlow, unfused",
        value.numpy(),
        [g.numpy() for g in gradients],
        lambda: fused(*inputs).numpy(),
        lambda: formula.written(tf, *inputs).numpy(),
    )


def in_onnxruntime(formula: Formula) -> Side:
    import onnxruntime
    from onnx import TensorProto, helper

    import tenon.onnxruntime

    given = dict(zip((f"i{k}" for k in range(len(formula.shapes))), formula.inputs(), strict=True))
    names = list(given)
    fuse = [helper.make_node("Fuse", names, ["out"], domain="tenon", formula=formula.text)]
    unfused = {
        "relu(x * s + b)": [("Mul", names[:2], "t"), ("Add", ["t", names[-1]], "u"), ("Relu", ["u"], "out")],
        "silu(x) * y": [("Sigmoid", names[:1], "t"), ("Mul", ["t", names[0]], "u"), ("Mul", ["u", names[-1]], "out")],
    }
    nodes = [helper.make_node(kind, inputs, [output]) for kind, inputs, output in unfused[formula.text]]

    def session(nodes: Sequence[Any]) -> Callable[[], Any]:
        shown = [helper.make_tensor_value_info(n, TensorProto.FLOAT, list(a.shape)) for n, a in given.items()]
        result = helper.make_tensor_value_info("out", TensorProto.FLOAT, list(SHAPE))
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("tenon", 1)]
        graph = helper.make_graph(nodes, "formula", shown, [result])
        model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
        options = tenon.onnxruntime.register(onnxruntime.SessionOptions())
        made = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return lambda: made.run(None, given)[0]

    ours, theirs = session(fuse), session(nodes)
    return Side("cpu", "ONNX Runtime's own nodes", ours(), None, ours, theirs)


def in_numpy(formula: Formula) -> Side:
    import tenon.numpy as tn

    fused, inputs = tn.fuse(formula.text), formula.inputs()
    return Side("cpu", "NumPy", fused(*inputs), None, lambda: fused(*inputs), lambda: formula.written(np, *inputs))


@dataclass(frozen=True)
class Framework:
    title: str
    package: str
    needs: Sequence[str]  # packages besides it
    make: Callable[[Formula], Side]


FRAMEWORKS = [
    Framework("PyTorch", "torch", (), in_pytorch),
    Framework("JAX", "jax", (), in_jax),
    Framework("TensorFlow", "tensorflow", (), in_tensorflow),
    Framework("ONNX Runtime", "onnxruntime", ("onnx",), in_onnxruntime),
    Framework("NumPy", "numpy", (), in_numpy),
]


# ---- the table -------------------------------------------------------------------------------------------------------


def difference(got: Any, exact: Any) -> float:
    """The largest one, relative where the exact value is above 1."""
    return float((np.abs(np.asarray(got, np.float64) - exact) / np.maximum(np.abs(exact), 1)).max())


def milliseconds(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return (time.perf_counter() - begin) * 1e3


def line(framework: Framework, formula: Formula) -> str:
    side = framework.make(formula)
    wide = [a.astype(np.float64) for a in formula.inputs()]
    error = difference(side.value, formula.written(np, *wide))
    gradient = ""
    if side.gradients is not None:
        exact = formula.gradients(*wide)
        gradient = f"{max(difference(g, e) for g, e in zip(side.gradients, exact, strict=True)):.1e}"
    for _ in range(3):  # a formula that is used often is compiled meanwhile
        side.ours()
        side.theirs()
        time.sleep(0.2)
    turns = [(milliseconds(side.ours), milliseconds(side.theirs)) for _ in range(15)]
    ours, theirs = (statistics.median(times) for times in zip(*turns, strict=True))
    numbers = f"{error:>8.1e} {gradient:>9} {ours:>8.3f} ms {theirs:>8.3f} ms {theirs / ours:>6.1f}x"
    version = import_module(framework.package).__version__
    about = f"{framework.title:<13} {version:<13} {side.device:<12}"
    return f"  {formula.text:<17} {about} {numbers}  {side.peer}"


def absent(framework: Framework) -> str:
    """Why it is left out; "" where it is not."""
    for package in (framework.package, *framework.needs):
        found = find_spec(package)
        if found is None or found.origin is None:  # a folder of that name is no package
            return f"there is no {package} here"
    return ""


def main() -> None:
    head = f"  {'formula':<17} {'framework':<13} {'version':<13} {'device':<12}"
    print(f"{head}    error  gradient       tenon        peer   ratio  the peer is")
    notes = []
    for formula in FORMULAS:
        for framework in FRAMEWORKS:
            why = absent(framework)
            if not why:
                try:
                    print(line(framework, formula), flush=True)
                except ImportError as error:  # too old, say: the message says what to do
                    why = str(error)
            if why:
                notes.append(f"  {framework.title}: {why}")
    print("  f32, 2048 x 2048; the gradient is that of the sum.")
    for note in dict.fromkeys(notes):
        print(note)


if __name__ == "__main__":
    main()
