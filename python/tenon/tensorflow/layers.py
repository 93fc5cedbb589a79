"""Keras layers whose call is a fused operator of the table: ``from tenon.tensorflow import layers``.

Where Keras has a layer of that name, the arguments and weights are Keras's, and a saved weight of one loads into the
other. What no operator has, such as the mask of a BatchNormalization, is done by Keras's own layer, from which ours is
derived. Layers are saved and loaded with their model, if this module is imported first.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from functools import cache
from typing import Any

import keras
import tensorflow as tf

import tenon
import tenon.tensorflow as tn
from tenon._channels_last import GROUP_NORM
from tenon._public import identifier
from tenon.tensorflow._call import row_of
from tenon.tensorflow._public import make_public

if int(keras.__version__.split(".")[0]) < 3 or keras.backend.backend() != "tensorflow":
    raise ImportError(
        f"tenon.tensorflow.layers needs Keras 3 on TensorFlow, and this is Keras {keras.__version__} on "
        f'{keras.backend.backend()}: set KERAS_BACKEND=tensorflow, or "backend" in ~/.keras/keras.json'
    )

__all__ = [
    "Activation",
    "BatchNormalization",
    "Dropout",
    "Embedding",
    "GatedMLP",
    "GroupNormalization",
    "LayerNormalization",
    "RMSNormalization",
    "ScaleBiasReLU",
    "Softmax",
    "SparseCategoricalCrossentropy",
]

_serializable = keras.saving.register_keras_serializable(package="tenon")
Shape = Sequence[int | None]


def _choices(op: str, attr: str) -> tuple[str, ...]:
    """The words that an attribute may be."""
    return next(a.choices for a in tenon.ops()[op].attrs if a.name == attr)


def _check_choice(layer: str, name: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise ValueError(f"layers.{layer}: {name} is {value!r}, must be one of {', '.join(choices)}")


def _is_last(axis: Any, rank: int) -> bool:
    """Whether an axis, or a list of them, is the last dimension and no other."""
    axes = [axis] if isinstance(axis, int) else list(axis)
    return axes in ([-1], [rank - 1])


def _rows(x: tf.Tensor) -> tf.Tensor:
    """All dimensions but the last as one; nothing moves."""
    return tf.reshape(x, [-1, x.shape[-1]])


# ---- activations -----------------------------------------------------------------------------------------------------


@_serializable
class Activation(keras.layers.Layer):  # type: ignore[misc]
    """An operator of the table with one input: Activation("mish"), Activation("leaky_relu", negative_slope=0.1)."""

    def __init__(self, activation: str, **kwargs: Any) -> None:
        row = activation
        op = tenon.ops().get(row)
        if op is None or len(op.inputs) != 1 or op.inputs[0].list or op.inputs[0].shape != op.outputs[0].shape:
            raise ValueError(f"layers.Activation: {row!r} is no operator of one tensor that keeps its shape")
        names = list(inspect.signature(getattr(tn, identifier(row))).parameters)[1:]
        attributes = {name: kwargs.pop(name) for name in names if name in kwargs}
        super().__init__(**kwargs)
        self.supports_jit = False
        self.supports_masking = True
        self.activation = activation
        self.attributes = attributes

    def call(self, inputs: Any) -> Any:
        return getattr(tn, identifier(self.activation))(inputs, **self.attributes)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "activation": self.activation, **self.attributes}


@_serializable
class Softmax(keras.layers.Softmax):  # type: ignore[misc]
    """tn.softmax as a layer; arguments as keras.layers.Softmax's. A row that the mask removes is 0."""

    def __init__(self, axis: int | Sequence[int] = -1, **kwargs: Any) -> None:
        super().__init__(axis, **kwargs)
        self.supports_jit = False

    def call(self, inputs: Any, mask: Any = None) -> Any:
        axes = [self.axis] if isinstance(self.axis, int) else list(self.axis)
        if len(axes) != 1:
            return super().call(inputs, mask)
        return tn.softmax(inputs, axes[0], mask=None if mask is None else tf.cast(mask, tf.bool))

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape


# ---- normalisations --------------------------------------------------------------------------------------------------


@_serializable
class LayerNormalization(keras.layers.LayerNormalization):  # type: ignore[misc]
    """tn.layer_norm as a layer; arguments as keras.layers.LayerNormalization's. Keras itself normalises axes other than
    the last, and with rms_scaling.

    gamma and beta stay in the type of the variables: under a mixed policy nothing of them is rounded.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.supports_jit = False

    def call(self, inputs: Any) -> Any:
        if getattr(self, "rms_scaling", False) or not _is_last(self.axis, len(inputs.shape)):
            return super().call(inputs)
        x, dtype = tf.convert_to_tensor(inputs), tf.as_dtype(self.compute_dtype)  # Keras casts nothing for this layer
        if not x.dtype.is_floating or x.dtype.size < dtype.size:
            x = tf.cast(x, dtype)
        return tf.cast(tn.layer_norm(x, self.gamma, self.beta, self.epsilon), dtype)


@_serializable
class RMSNormalization(keras.layers.Layer):  # type: ignore[misc]
    """tn.rms_norm as a layer; arguments as keras.layers.RMSNormalization's, for the last axis, and `zero_centered`."""

    def __init__(self, axis: int = -1, epsilon: float = 1e-6, *, zero_centered: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.supports_jit = False
        self.supports_masking = True
        self.axis = axis
        self.epsilon = epsilon
        self.zero_centered = zero_centered

    def build(self, input_shape: Shape) -> None:
        if not _is_last(self.axis, len(input_shape)):
            raise NotImplementedError(f"layers.RMSNormalization: axis is {self.axis}, must be the last one")
        initial = "zeros" if self.zero_centered else "ones"
        self.scale = self.add_weight(name="scale", shape=(input_shape[-1],), initializer=initial, autocast=False)

    def call(self, inputs: Any) -> Any:
        return tn.rms_norm(inputs, self.scale, self.epsilon, self.zero_centered)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        own = {n: getattr(self, n) for n in ("axis", "epsilon", "zero_centered")}
        return {**super().get_config(), **own}


@cache
def _group_norm_last() -> Any:
    """tn.group_norm with the channels last."""
    return tn.fuse(GROUP_NORM)


@_serializable
class GroupNormalization(keras.layers.GroupNormalization):  # type: ignore[misc]
    """tn.group_norm as a layer; arguments as keras.layers.GroupNormalization's. Keras itself normalises axes other than
    1 and the last.

    gamma and beta stay in the type of the variables: under a mixed policy nothing of them is rounded.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.supports_jit = False

    def call(self, inputs: Any) -> Any:
        x, rank = tf.convert_to_tensor(inputs), len(inputs.shape)
        if rank < 2 or self.axis not in (-1, 1, rank - 1):
            return super().call(inputs)
        dtype = tf.as_dtype(self.compute_dtype)  # Keras casts nothing for this layer
        if not x.dtype.is_floating or x.dtype.size < dtype.size:
            x = tf.cast(x, dtype)
        is_last = self.axis != 1 or rank == 2
        function = _group_norm_last() if is_last else tn.group_norm
        gamma, beta = self.gamma if self.scale else None, self.beta if self.center else None
        return tf.cast(function(x, gamma=gamma, beta=beta, groups=self.groups, eps=self.epsilon), dtype)


@cache
def _batch_norm() -> Any:
    """tn.batch_norm with its statistics: y, mean, 1 / sqrt(var + eps), and more."""
    op = tenon.ops()["batch_norm"]
    return make_public(row_of(op), range(len(op.outputs)))


@_serializable
class BatchNormalization(keras.layers.BatchNormalization):  # type: ignore[misc]
    """tn.batch_norm as a layer; arguments as keras.layers.BatchNormalization's. Keras itself normalises with a mask,
    with `renorm` and `synchronized`, and axes other than 1 and the last.

    BatchNormalization(act="relu") ends with the activation, and norm(x, residual=r) adds r in front of it, in the same
    pass over memory. The moving statistics are Keras's, in the type of the variables.
    """

    def __init__(self, *args: Any, act: str = "none", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _check_choice("BatchNormalization", "act", act, _choices("batch_norm", "act"))
        self.supports_jit = False
        self.act = act

    def _is_ours(self, rank: int) -> bool:
        """Whether the operator can do it."""
        has_more = getattr(self, "renorm", False) or getattr(self, "synchronized", False)
        return not has_more and self.axis in (-1, 1, rank - 1)

    def call(self, inputs: Any, training: Any = None, mask: Any = None, residual: Any = None) -> Any:
        if mask is not None or not self._is_ours(len(inputs.shape)):
            return self._finished(super().call(inputs, training=training, mask=mask), residual)
        x = tf.convert_to_tensor(inputs)
        x = x if x.dtype.is_floating else tf.cast(x, self.compute_dtype)
        rest = None if residual is None else tf.cast(residual, x.dtype)
        if rest is not None and not rest.shape.is_compatible_with(x.shape):
            raise ValueError(f"layers.BatchNormalization: residual has shape {rest.shape}, needs {x.shape}")
        is_last = self.axis != 1 or len(x.shape) == 2
        if is_last:  # all that is normalised together, as one dimension
            x, rest = _rows(x), None if rest is None else _rows(rest)
        y = self._train(x, rest) if training and self.trainable else self._infer(x, rest)
        if not is_last:
            return y
        y = tf.reshape(y, tf.shape(inputs))
        y.set_shape(inputs.shape)
        return y

    def _finished(self, y: Any, residual: Any) -> Any:
        """What comes behind the normalisation, where Keras has made that."""
        y = y if residual is None else y + tf.cast(residual, y.dtype)
        return y if self.act == "none" else tn.bias_act(y, tf.zeros(y.shape[-1:], y.dtype), act=self.act)

    def _train(self, x: Any, residual: Any) -> Any:
        # The operator's own update is PyTorch's: in f32, with the variance of a sample (n - 1). Keras's is made here.
        unused = tf.zeros([x.shape[1]])
        y, mean, rstd, *_ = _batch_norm()(
            x=x,
            gamma=self.gamma,
            beta=self.beta,
            running_mean=unused,
            running_var=unused,
            residual=residual,
            eps=self.epsilon,
            act=self.act,
        )
        mean, rstd = tf.stop_gradient(mean), tf.stop_gradient(rstd)
        var = tf.maximum(1 / (rstd * rstd) - self.epsilon, 0)
        for variable, value in ((self.moving_mean, mean), (self.moving_variance, var)):
            old = tf.cast(variable, value.dtype)
            variable.assign(tf.cast(old * self.momentum + value * (1 - self.momentum), variable.dtype))
        return y

    def _infer(self, x: Any, residual: Any) -> Any:
        moving = (self.moving_mean, self.moving_variance)
        return tn.batch_norm_infer(x, *moving, self.gamma, self.beta, residual, self.epsilon, self.act)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "act": self.act}


# ---- others ----------------------------------------------------------------------------------------------------------


@_serializable
class Dropout(keras.layers.Dropout):  # type: ignore[misc]
    """tn.dropout as a layer; arguments as keras.layers.Dropout's. With noise_shape, Keras's own code runs.

    The mask comes from a counter and a seed, and is made again in the backward pass instead of being kept.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.supports_jit = False

    def call(self, inputs: Any, training: bool = False) -> Any:
        if not training or self.rate == 0:
            return inputs
        if self.noise_shape is not None:
            return super().call(inputs, training=training)
        if self.rate == 1:
            return tf.zeros_like(inputs)
        return tn.dropout(inputs, self.rate, seed=tf.cast(self.seed_generator.next(), tf.int64))


@_serializable
class Embedding(keras.layers.Embedding):  # type: ignore[misc]
    """tn.embedding as a layer; arguments as keras.layers.Embedding's. The gradient of the table is dense, and has the
    same bits every time. Keras itself looks up sparse and ragged indices, and with LoRA; it quantizes only its own."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.supports_jit = False

    def call(self, inputs: Any) -> Any:
        if getattr(self, "lora_enabled", False) or isinstance(inputs, tf.SparseTensor | tf.RaggedTensor):
            return super().call(inputs)
        index = tf.convert_to_tensor(inputs)
        index = index if index.dtype in (tf.int32, tf.int64) else tf.cast(index, tf.int32)
        return tf.cast(tn.embedding(tf.convert_to_tensor(self.embeddings), index), self.compute_dtype)


@_serializable
class ScaleBiasReLU(keras.layers.Layer):  # type: ignore[misc]
    """relu(x * scale + bias) with a learnt scale and bias, of the last dimension or of a shape that broadcasts."""

    def __init__(self, shape: int | Sequence[int] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.supports_jit = False
        self.supports_masking = True
        self.shape = (shape,) if isinstance(shape, int) else None if shape is None else tuple(shape)

    def build(self, input_shape: Shape) -> None:
        shape = self.shape or (input_shape[-1],)
        self.scale = self.add_weight(name="scale", shape=shape, initializer="ones")
        self.bias = self.add_weight(name="bias", shape=shape, initializer="zeros")

    def call(self, inputs: Any) -> Any:
        return tn.scale_bias_relu(inputs, scale=self.scale, bias=self.bias)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "shape": self.shape}


@_serializable
class GatedMLP(keras.layers.Layer):  # type: ignore[misc]
    """Two dense layers with a gate between them: down(x * act(gate)), where x and gate are the halves of up(inputs).

    gate: 'swiglu' (silu), 'geglu' (gelu) or 'reglu' (relu), each an operator of the table. The result has `units`
    features, or as many as the input.
    """

    GATES = ("swiglu", "geglu", "reglu")

    def __init__(
        self, hidden_units: int, units: int | None = None, gate: str = "swiglu", use_bias: bool = True, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        _check_choice("GatedMLP", "gate", gate, self.GATES)
        self.supports_jit = False
        self.supports_masking = True
        self.hidden_units = hidden_units
        self.units = units
        self.gate = gate
        self.use_bias = use_bias

    def build(self, input_shape: Shape) -> None:
        dense = {"use_bias": self.use_bias, "dtype": self.dtype_policy}
        self.up = keras.layers.Dense(2 * self.hidden_units, name="up", **dense)
        self.down = keras.layers.Dense(self.units or input_shape[-1], name="down", **dense)
        self.up.build(input_shape)
        self.down.build((*input_shape[:-1], self.hidden_units))

    def call(self, inputs: Any) -> Any:
        x, gate = tf.split(self.up(inputs), 2, axis=-1)
        return self.down(getattr(tn, self.gate)(x, gate))

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return (*input_shape[:-1], self.units or input_shape[-1])

    def get_config(self) -> dict[str, Any]:
        own = {n: getattr(self, n) for n in ("hidden_units", "units", "gate", "use_bias")}
        return {**super().get_config(), **own}


# ---- losses ----------------------------------------------------------------------------------------------------------


_NO_CLASS = -1 << 63  # without ignore_class, as in Keras: every label that is no class is an error


@_serializable
class SparseCategoricalCrossentropy(keras.losses.SparseCategoricalCrossentropy):  # type: ignore[misc]
    """tn.cross_entropy as a loss, for class indices and logits. Its gradient is made in the same pass over them.

    Arguments as keras.losses.SparseCategoricalCrossentropy's, and label_smoothing. As there, from_logits=True says that
    they are logits: Keras's own code takes probabilities, and classes along another axis than the last.
    """

    def __init__(self, *args: Any, label_smoothing: float = 0.0, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.label_smoothing = label_smoothing
        if label_smoothing and not self.from_logits:
            raise NotImplementedError(
                "layers.SparseCategoricalCrossentropy: label_smoothing needs logits; say from_logits=True, and leave "
                "out the softmax in front of it"
            )

    def call(self, y_true: Any, y_pred: Any) -> Any:
        y_true, y_pred = tf.convert_to_tensor(y_true), tf.convert_to_tensor(y_pred)
        axis = self._fn_kwargs.get("axis", -1)
        if not self.from_logits or axis not in (-1, len(y_pred.shape) - 1):
            return super().call(y_true, y_pred)
        if len(y_true.shape) == len(y_pred.shape):
            if y_true.shape[-1] not in (1, None):
                what = f"y_true has shape {y_true.shape}, needs the indices of classes, such as tf.argmax(y_true, -1)"
                raise ValueError(f"layers.SparseCategoricalCrossentropy: {what}")
            y_true = tf.squeeze(y_true, -1)
        ignored = _NO_CLASS if self.ignore_class is None else self.ignore_class
        target = tf.cast(y_true, tf.int64)  # Keras has made floats of them
        losses = tn.cross_entropy(y_pred, target, None, ignored, self.label_smoothing, reduction="none")
        if self.ignore_class is not None:
            losses._keras_mask = tf.not_equal(target, ignored)  # what a mean is over
        return losses

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "label_smoothing": self.label_smoothing}
