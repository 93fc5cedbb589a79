"""What the functions of each framework look like: names of types, what is said of gradients and updates.

This imports no framework, so that tools/stubs.py can write what type checkers read wherever Tenon is built.
"""

from __future__ import annotations

from tenon._public import Public, Returning, Writing


class TorchFunction(Writing):
    module = "tenon.torch"
    number = "Tensor | Param | float"
    dtype = "torch.{}"
    written = "With out=tensor the result is written there; nothing can then be differentiated."

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


class TensorFlowFunction(Returning):
    """Variables among what is updated are assigned as well."""

    module = "tenon.tensorflow"
    written = "; a tf.Variable among them is assigned"


class NumpyFunction(Writing):
    module = "tenon.numpy"
    tensor = "Array"
    number = "Array | float"
    written = "With out=array the result is written there."

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
