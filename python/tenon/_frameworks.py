"""What the functions of each framework look like: names of types, what is said of gradients and updates.

This imports no framework, so that tools/stubs.py can write what type checkers read wherever Tenon is built.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from tenon._arguments import alike_inputs, is_broadcast, is_number, takes_number
from tenon._public import Flag, Public, Returning, Spelling, Writing
from tenon.contract import Input


def _all(spelling: Spelling, *operators: str) -> dict[str, Spelling]:
    """The same for several."""
    return dict.fromkeys(operators, spelling)


# What reduces along axes, as NumPy and those who follow it write it.
_REDUCING = Spelling(order=("x", "axes"), names={"axes": "axis", "keepdim": "keepdims"}, defaults={"axes": None})

# Everywhere but in PyTorch, which has an order of its own. Two tensors of equal shape that are easily given the wrong
# way round are told apart by their names.
_COMMON = {
    "dot": Spelling(names={"x": "a", "y": "b"}),
    "softmax": Spelling(order=("x", "axis")),
    "scale_bias_relu": Spelling(order=("x",)),
    "cosine_similarity": Spelling(order=("x", "y")),
    "huber": Spelling(order=("x", "target")),
    **_all(_REDUCING, "sum", "mean", "max", "min", "prod", "any", "all", "logsumexp"),
    **_all(_REDUCING, "argmax", "argmin"),
    **_all(replace(_REDUCING, names={**_REDUCING.names, "correction": "ddof"}), "var", "std"),
    # numpy.linalg.norm has ord in front of the axis; both are given by name here.
    "norm": replace(_REDUCING, order=("x",), names={**_REDUCING.names, "p": "ord"}),
    "group_norm": Spelling(order=("x", "groups")),
    "instance_norm": Spelling(order=("x",)),
    "add_layer_norm": Spelling(order=("x", "residual", "gamma", "beta")),
    "add_rms_norm": Spelling(order=("x", "residual", "gamma")),
    **_all(Spelling(order=("x", "axis"), names={"x": "a"}, defaults={"axis": None}, flat=True), "cumsum", "cumprod"),
    "sort": Spelling(order=("x", "axis")),
    "top_k": Spelling(order=("x", "k")),
    "histogram": Spelling(order=("x", "bins"), names={"x": "a"}),
    "sum_grad": Spelling(names={"axes": "axis", "keepdim": "keepdims"}, defaults={"axes": None}),
    "one_hot": Spelling(order=("index", "classes"), names={"index": "x", "classes": "num_classes", "type": "dtype"}),
    "segment_sum": Spelling(names={"x": "data", "ids": "segment_ids", "segments": "num_segments"}),
    "concat": Spelling(names={"xs": "arrays"}),
    # What NumPy's matmul and its like have behind the operands is given by name.
    "linear": Spelling(order=("x", "w", "b")),
    **_all(Spelling(order=("x", "w", "target", "b")), "linear_cross_entropy", "linear_cross_entropy_tokens"),
    "matmul": Spelling(order=("a", "b")),
    "attention": Spelling(order=("q", "k", "v")),
    "matvec": Spelling(names={"a": "x1", "x": "x2"}),
    "vecmat": Spelling(names={"x": "x1", "a": "x2"}),
    "triu": Spelling(names={"diagonal": "k"}),
    "tril": Spelling(names={"diagonal": "k"}),
    # Others pad all dimensions from the first on, and repeat element by element. What ours do is given by name, and
    # repetitions have the name that they have in tile(), which is the same.
    "pad": Spelling(order=("x",)),
    "repeat": Spelling(order=("x",), names={"repeats": "reps"}),
}


# TensorFlow's argmax
_FIRST_AXIS = {"x": "input", "axes": "axis", "keepdim": "keepdims"}

_INPUT = {"x": "input"}  # what torch calls it
_LINEAR_LOSS = {**_INPUT, "w": "linear_weight", "b": "linear_bias"}  # beside it, weight is that of the classes
_AFFINE = {**_INPUT, "gamma": "weight", "beta": "bias"}


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
        **_all(Spelling(names=_INPUT), "cross_entropy_inplace", "soft_cross_entropy"),
        "dot": Spelling(names={**_INPUT, "y": "tensor"}),
        **_all(Spelling(names={**_INPUT, "y": "other"}), "add", "div", "mul", "sub"),
        **_all(Spelling(names=_INPUT, inplace=True), "celu", "elu", "hard_sigmoid", "hard_swish", "mish"),
        **_all(Spelling(names=_INPUT, inplace=True), "relu", "selu", "silu"),
        **_all(Spelling(names=_AFFINE), "batch_norm", "layer_norm", "add_layer_norm", "instance_norm"),
        "group_norm": Spelling(names={**_AFFINE, "groups": "num_groups"}),
        **_all(Spelling(names=_INPUT), "pad", "permute", "repeat", "tril", "triu"),
        "concat": Spelling(names={"xs": "tensors", "axis": "dim"}),
        "roll": Spelling(names={**_INPUT, "shift": "shifts", "axis": "dims"}),
        "clamp": Spelling(names={**_INPUT, "low": "min", "high": "max"}),
        "cosine_similarity": Spelling(names={"x": "x1", "y": "x2"}),
        "leaky_relu": Spelling(names={**_INPUT, "slope": "negative_slope"}, inplace=True),
        "prelu": Spelling(names={**_INPUT, "slope": "weight"}),
        **_all(Spelling(names={**_INPUT, "gamma": "weight"}), "rms_norm", "add_rms_norm"),
        **_all(Spelling(names={**_INPUT, "axis": "dim"}), "softmax", "log_softmax", "sort"),
        **_all(Spelling(names={**_INPUT, "axis": "dim"}), "cumsum", "cumprod", "cummax", "cummin"),
        **_all(Spelling(names={**_INPUT, "axes": "dim"}), "sum", "mean", "max", "min", "prod", "logsumexp"),
        **_all(Spelling(names={**_INPUT, "axes": "dim"}), "var", "std", "norm", "any", "all", "argmax", "argmin"),
        "top_k": Spelling(names=_INPUT),
        "linear": Spelling(names={**_INPUT, "w": "weight", "b": "bias"}),
        **_all(Spelling(names=_LINEAR_LOSS), "linear_cross_entropy", "linear_cross_entropy_tokens"),
        "matmul": Spelling(names={"a": "input", "b": "other"}),
        "matvec": Spelling(names={"a": "input", "x": "vec"}),
        "vecmat": Spelling(names={"x": "vec", "a": "mat"}),
        "outer_product": Spelling(names={**_INPUT, "y": "vec2"}),
        "histogram": Spelling(names={**_INPUT, "low": "min", "high": "max"}),
        **_all(Spelling(names={**_INPUT, "axis": "dim"}), "gather", "index_select", "scatter_add"),
        "embedding": Spelling(names={"index": "input", "table": "weight"}),
        "one_hot": Spelling(names={"index": "input", "classes": "num_classes", "type": "dtype"}),
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
        **_all(Spelling(order=("x", "axis"), names={"x": "logits"}), "softmax", "log_softmax"),
        # tf.reduce_sum and those like it take keepdims by position, too.
        **_all(replace(_REDUCING, order=None), "sum", "mean", "max", "min", "prod", "any", "all", "logsumexp"),
        # The first dimension, not all of them.
        **_all(Spelling(order=("x", "axes"), names=_FIRST_AXIS, defaults={"axes": 0}), "argmax", "argmin"),
        **_all(Spelling(defaults={"axis": 0}), "cumsum", "cumprod"),
        "dot": Spelling(names={"x": "x1", "y": "x2"}),
        "histogram": Spelling(order=("x", "bins")),
        "leaky_relu": Spelling(names={"slope": "negative_slope"}, defaults={"slope": 0.2}),
        "gelu": Spelling(flag=Flag("approximate", False, "gelu_tanh")),
        "dropout": Spelling(order=("x", "p"), names={"p": "rate"}),
        "concat": Spelling(names={"xs": "values"}),
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
