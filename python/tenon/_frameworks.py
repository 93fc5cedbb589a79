"""What the functions of each framework look like: names of types, what is said of gradients and updates.

This imports no framework, so that tools/stubs.py can write what type checkers read wherever Tenon is built.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from tenon._arguments import alike_inputs, is_broadcast, is_number, takes_number
from tenon._public import Flag, Public, Returning, Spelling, Writing
from tenon.contract import Input

# Everywhere but in PyTorch, which has an order of its own. Two tensors of equal shape that are easily given the wrong
# way round are told apart by their names.
_COMMON = {
    "softmax": Spelling(order=("x", "axis")),
    "scale_bias_relu": Spelling(order=("x",)),
    "cosine_similarity": Spelling(order=("x", "y")),
    "huber": Spelling(order=("x", "target")),
    "sum": Spelling(order=("x", "axes"), names={"axes": "axis", "keepdim": "keepdims"}, defaults={"axes": None}),
    "sum_grad": Spelling(names={"axes": "axis", "keepdim": "keepdims"}, defaults={"axes": None}),
}


_INPUT = {"x": "input"}  # what torch calls it


def _all(spelling: Spelling, *operators: str) -> dict[str, Spelling]:
    """The same for several."""
    return dict.fromkeys(operators, spelling)


class TorchFunction(Writing):
    """What shares its name with a function of torch's, or stands for one, has torch's names. The order is that of the
    contract: where torch has another, people see the function of torch/_functional.py or _losses.py."""

    module = "tenon.torch"
    number = "Tensor | Param | float"
    dtype = "torch.{}"
    written = "With out=tensor the result is written there; nothing can then be differentiated."
    spellings: ClassVar[Mapping[str, Spelling]] = {
        **_all(Spelling(names=_INPUT), "abs", "exp", "floor", "lerp", "log", "pow", "rsqrt", "sign", "sqrt", "square"),
        **_all(Spelling(names=_INPUT), "dropout", "gelu", "log_sigmoid", "sigmoid", "softplus", "softsign", "tanh"),
        **_all(Spelling(names=_INPUT), "bce_with_logits", "cross_entropy", "huber", "kl_div", "l1", "mse"),
        **_all(Spelling(names={**_INPUT, "y": "other"}), "add", "div", "mul", "sub"),
        **_all(Spelling(names=_INPUT, inplace=True), "celu", "elu", "hard_sigmoid", "hard_swish", "mish"),
        **_all(Spelling(names=_INPUT, inplace=True), "relu", "selu", "silu"),
        **_all(Spelling(names={**_INPUT, "gamma": "weight", "beta": "bias"}), "batch_norm", "layer_norm"),
        "clamp": Spelling(names={**_INPUT, "low": "min", "high": "max"}),
        "cosine_similarity": Spelling(names={"x": "x1", "y": "x2"}),
        "leaky_relu": Spelling(names={**_INPUT, "slope": "negative_slope"}, inplace=True),
        "prelu": Spelling(names={**_INPUT, "slope": "weight"}),
        "rms_norm": Spelling(names={**_INPUT, "gamma": "weight"}),
        "softmax": Spelling(names={**_INPUT, "axis": "dim"}),
        "sum": Spelling(names={**_INPUT, "axes": "dim"}),
    }

    def takes_number(self, param: Input) -> bool:
        beside = any(self.op.params[i] is param for places in alike_inputs(self.op) for i in places)
        return is_number(param) or (beside and is_broadcast(param))

    def results(self) -> str:
        if len(self.shown) == len(self.op.outputs):
            return super().results()
        every = ", ".join(o.name + ("?" if o.want != "always" else "") for o in self.op.outputs)
        return f"{super().results()} torch.ops.tenon.{self.op.name} returns {every}."

    def no_gradient(self) -> list[str]:
        if self.op.mutates:
            return ["Tensors that require a gradient are taken inside of torch.no_grad() only."]
        return super().no_gradient()


class JaxFunction(Returning):
    module = "tenon.jax"
    tensor = "Array"
    number = "Array | float"
    dtype = "jax.numpy.{}"
    written = ": no array is written to"
    hints = True
    spellings: ClassVar[Mapping[str, Spelling]] = {
        **_COMMON,
        "softmax": Spelling(order=("x", "axis", "mask"), names={"mask": "where"}),
        "leaky_relu": Spelling(names={"slope": "negative_slope"}),
        "gelu": Spelling(flag=Flag("approximate", True, "gelu_tanh")),
    }

    def takes_number(self, param: Input) -> bool:
        return takes_number(param)


class TensorFlowFunction(Returning):
    """Variables among what is updated are assigned as well."""

    module = "tenon.tensorflow"
    written = "; a tf.Variable among them is assigned"
    hints = True
    spellings: ClassVar[Mapping[str, Spelling]] = {
        **_COMMON,
        "softmax": Spelling(order=("x", "axis"), names={"x": "logits"}),
        "sum": Spelling(names={"axes": "axis", "keepdim": "keepdims"}, defaults={"axes": None}),
        "leaky_relu": Spelling(names={"slope": "negative_slope"}, defaults={"slope": 0.2}),
        "gelu": Spelling(flag=Flag("approximate", False, "gelu_tanh")),
        "dropout": Spelling(order=("x", "p"), names={"p": "rate"}),
        "bias_dropout_add": Spelling(names={"p": "rate"}),
    }

    def takes_number(self, param: Input) -> bool:
        return takes_number(param)


class NumpyFunction(Writing):
    module = "tenon.numpy"
    tensor = "Array"
    number = "Array | float"
    written = "With out=array the result is written there."
    hints = True
    spellings: ClassVar[Mapping[str, Spelling]] = _COMMON

    def takes_number(self, param: Input) -> bool:
        return takes_number(param)

    def no_gradient(self) -> list[str]:
        return []  # nothing is differentiated here

    def body(self) -> list[str]:
        arguments = ", ".join(["out" if self.has_out else "None", *self.arguments])
        return [*self.refuse_missing(), f"return _call({arguments})"]


FRAMEWORKS: dict[str, type[Public]] = {
    "torch": TorchFunction,
    "jax": JaxFunction,
    "tensorflow": TensorFlowFunction,
    "numpy": NumpyFunction,
}
