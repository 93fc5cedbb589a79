"""Flax modules whose call is a fused operator of the table: ``from tenon.jax import nnx as tnx``.

Each is derived from the module of the same name in ``flax.nnx``. Arguments, parameters and statistics are Flax's, so a
state of one loads into the other, and a module of Flax becomes ours when its ``__class__`` is set. What no operator
has, such as a mask or other axes, is done by Flax's own code.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import tenon.jax._need_flax

# isort: split
import jax
import jax.numpy as jnp
from flax import nnx
from flax.nnx.nn.dtypes import promote_dtype

import tenon
import tenon.jax as tn
from tenon._channels_last import GROUP_NORM
from tenon.jax._form import row_of
from tenon.jax._public import make_public

__all__ = ["BatchNorm", "Dropout", "Embed", "GroupNorm", "InstanceNorm", "LayerNorm", "RMSNorm"]


def _is_axis(axes: Any, wanted: int, rank: int) -> bool:
    """Whether an axis, or a list of them, is `wanted` and no other."""
    given = [axes] if isinstance(axes, int) else list(axes)
    return [a % rank for a in given if -rank <= a < rank] == [wanted % rank]


def _value(parameter: Any) -> Any:
    return None if parameter is None else parameter[...]


def _promoted(module: Any, *arrays: Any, **options: Any) -> Any:
    """In one type, as Flax makes it of `dtype` and of the arrays."""
    promote = getattr(module, "promote_dtype", promote_dtype)  # an argument of all modules from Flax 0.12.1 on
    return promote(arrays, dtype=module.dtype, **options)


def _is_plain(module: Any, x: Any, mask: Any) -> bool:
    """Whether an operator can do it: real numbers, all of them, on one device."""
    return mask is None and module.axis_name is None and not jnp.iscomplexobj(x)


def _is_last(module: Any, x: Any) -> bool:
    return _is_axis(module.reduction_axes, -1, x.ndim) and _is_axis(module.feature_axes, -1, x.ndim)


class LayerNorm(nnx.LayerNorm):  # type: ignore[misc]
    """tn.layer_norm as a module; arguments as flax.nnx.LayerNorm's. Flax itself normalises other axes than the last,
    with a mask, and over several devices."""

    def __call__(self, x: Any, *, mask: Any = None) -> Any:
        if not _is_plain(self, x, mask) or not _is_last(self, x):
            return super().__call__(x, mask=mask)
        x, scale, bias = _promoted(self, x, _value(self.scale), _value(self.bias))
        return tn.layer_norm(x, scale, bias, self.epsilon)


class RMSNorm(nnx.RMSNorm):  # type: ignore[misc]
    """tn.rms_norm as a module; arguments as flax.nnx.RMSNorm's. Flax itself normalises other axes than the last, with a
    mask, and over several devices."""

    def __call__(self, x: Any, mask: Any = None) -> Any:
        if not _is_plain(self, x, mask) or not _is_last(self, x):
            return super().__call__(x, mask)
        x, scale = _promoted(self, x, _value(self.scale))
        return tn.rms_norm(x, scale, self.epsilon)


@cache
def _group_norm_last() -> Any:
    """tn.group_norm with the channels last."""
    return tn.fuse(GROUP_NORM)


class GroupNorm(nnx.GroupNorm):  # type: ignore[misc]
    """tn.group_norm, of channels that are last, as a module; arguments as flax.nnx.GroupNorm's. Flax itself normalises
    over axes that are given, with a mask, and over several devices."""

    def __call__(self, x: Any, *, mask: Any = None) -> Any:
        if not _is_plain(self, x, mask) or self.reduction_axes is not None:
            return super().__call__(x, mask=mask)
        x, scale, bias = _promoted(self, x, _value(self.scale), _value(self.bias))
        return _group_norm_last()(x, gamma=scale, beta=bias, groups=self.num_groups, eps=self.epsilon)


class InstanceNorm(nnx.InstanceNorm):  # type: ignore[misc]
    """tn.instance_norm as a module; arguments as flax.nnx.InstanceNorm's. Flax itself takes channels that are neither
    last nor in second place, a mask, and several devices."""

    def __call__(self, x: Any, *, mask: Any = None) -> Any:
        last = _is_axis(self.feature_axes, -1, x.ndim)
        if not _is_plain(self, x, mask) or x.ndim < 2 or not (last or _is_axis(self.feature_axes, 1, x.ndim)):
            return super().__call__(x, mask=mask)
        x, scale, bias = _promoted(self, x, _value(self.scale), _value(self.bias))
        if not last:
            return tn.instance_norm(x, gamma=scale, beta=bias, eps=self.epsilon)
        # A group for each channel is an instance.
        return _group_norm_last()(x, gamma=scale, beta=bias, groups=x.shape[-1], eps=self.epsilon)


@cache
def _batch_norm() -> Any:
    """tn.batch_norm with its statistics: y, mean, 1 / sqrt(var + eps), and more."""
    op = tenon.ops()["batch_norm"]
    return make_public(row_of(op), range(len(op.outputs)))


class BatchNorm(nnx.BatchNorm):  # type: ignore[misc]
    """tn.batch_norm as a module; arguments as flax.nnx.BatchNorm's. Flax itself takes channels that are neither last
    nor in second place, a mask, and several devices.

    norm(x, act="relu") ends with the activation, and norm(x, residual=r) adds r in front of it, in the same pass over
    memory. The running statistics are Flax's: the variance is divided by the count.
    """

    def __call__(
        self,
        x: Any,
        use_running_average: bool | None = None,
        *,
        mask: Any = None,
        residual: Any = None,
        act: str = "none",
    ) -> Any:
        is_last = _is_axis(self.axis, -1, x.ndim)
        running = self.use_running_average if use_running_average is None else use_running_average
        ours = x.ndim >= 2 and (is_last or _is_axis(self.axis, 1, x.ndim))
        if not _is_plain(self, x, mask) or not ours or running is None:
            y = super().__call__(x, use_running_average, mask=mask)
            return self._finished(y, residual, act)
        shape = x.shape
        x, _, _, scale, bias, residual = _promoted(
            self, x, _value(self.mean), _value(self.var), _value(self.scale), _value(self.bias), residual
        )
        if residual is not None and residual.shape != shape:
            raise ValueError(f"BatchNorm: residual has shape {residual.shape}, needs {shape}")
        if is_last:  # all that is normalised together, as one dimension
            x = x.reshape(-1, shape[-1])
            residual = None if residual is None else residual.reshape(x.shape)
        y = self._infer(x, scale, bias, residual, act) if running else self._train(x, scale, bias, residual, act)
        return y.reshape(shape)

    @staticmethod
    def _finished(y: Any, residual: Any, act: str) -> Any:
        """What comes behind the normalisation, where Flax has made that."""
        y = y if residual is None else y + residual.astype(y.dtype)
        return y if act == "none" else tn.bias_act(y, jnp.zeros(y.shape[-1:], y.dtype), act=act)

    def _train(self, x: Any, scale: Any, bias: Any, residual: Any, act: str) -> Any:
        # The operator's own update is PyTorch's, with the variance of a sample (n - 1). Flax's is made here.
        unused = jnp.zeros(x.shape[1], jnp.float32)
        statistics = {"running_mean": unused, "running_var": unused}
        y, mean, rstd, *_ = _batch_norm()(
            x=x, gamma=scale, beta=bias, **statistics, residual=residual, eps=self.epsilon, act=act
        )
        mean, rstd = jax.lax.stop_gradient(mean), jax.lax.stop_gradient(rstd)
        var = jnp.maximum(1 / (rstd * rstd) - self.epsilon, 0)
        for statistic, value in ((self.mean, mean), (self.var, var)):
            statistic[...] = self.momentum * statistic[...] + (1 - self.momentum) * value.astype(statistic.dtype)
        return y

    def _infer(self, x: Any, scale: Any, bias: Any, residual: Any, act: str) -> Any:
        mean, var = self.mean[...], self.var[...]
        scale, bias = (None if p is None else p.astype(mean.dtype) for p in (scale, bias))
        return tn.batch_norm_infer(x, mean, var, scale, bias, residual, self.epsilon, act)


class Embed(nnx.Embed):  # type: ignore[misc]
    """tn.embedding as a module; arguments as flax.nnx.Embed's. The gradient of the table has the same bits every time.
    An index that is out of range is an error on the CPU, where Flax's result has NaN. Flax itself shards the result."""

    def __call__(self, inputs: Any, out_sharding: Any = None) -> Any:
        inputs = jnp.asarray(inputs)
        ours = jnp.issubdtype(inputs.dtype, jnp.integer) and jnp.issubdtype(self.dtype, jnp.floating)
        if not ours or out_sharding is not None or self.num_embeddings == 1:
            return super().__call__(inputs) if out_sharding is None else super().__call__(inputs, out_sharding)
        (table,) = _promoted(self, self.embedding[...], inexact=False)
        index = inputs if inputs.dtype in (jnp.int32, jnp.int64) else inputs.astype(jnp.int32)
        return tn.embedding(table, jnp.where(index < 0, index + self.num_embeddings, index))


class Dropout(nnx.Dropout):  # type: ignore[misc]
    """tn.dropout as a module; arguments as flax.nnx.Dropout's. Flax itself drops whole dimensions.

    The mask comes from a counter and the key, and is made again in the backward pass instead of being kept.
    """

    def __call__(self, inputs: Any, *, deterministic: bool | None = None, rngs: Any = None) -> Any:
        off = self.deterministic if deterministic is None else deterministic
        source = self.rngs if rngs is None else rngs
        ours = off is False and 0 < self.rate < 1 and jnp.issubdtype(inputs.dtype, jnp.floating)
        if not ours or self.broadcast_dims or source is None:
            return super().__call__(inputs, deterministic=deterministic, rngs=rngs)
        if isinstance(source, nnx.Rngs):
            key = source[self.rng_collection]()
        else:
            key = source() if isinstance(source, nnx.RngStream) else source
        return tn.dropout(inputs, key, p=self.rate)
