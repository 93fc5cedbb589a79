"""Calls to test with, made from the samples in the operator table."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import samples
import tensorflow as tf
from reference import reference
from samples import TOLERANCE

import tenon.tensorflow as tn
from tenon._public import identifier, shown_outputs
from tenon._rules import has_gradient
from tenon.contract import Attr
from tenon.tensorflow._types import DTYPES

Arguments = dict[str, Any]  # all parameters of a public function, by name


class Case(samples.Case):
    """One sample of one operator."""

    def make(self, T: str = "f32", same: bool = False) -> Arguments:
        """The arguments. `same`: all type variables are T, whatever the sample says."""
        random = np.random.default_rng(zlib.crc32(str(self).encode()))
        hidden = {o.want_attr for o in self.op.outputs if o.want == "grad"}
        made: Arguments = {p.name: None for p in self.op.inputs}
        for given in self.sample["inputs"]:
            kind = self.kind(given, T, same)
            tensor = tf.cast(tf.constant(_values(random, given, kind)), DTYPES[kind])
            param = next(p for p in self.op.inputs if p.name == given["name"])
            made[param.name] = [*(made[param.name] or ()), tensor] if param.list else tensor
        for attr in self.op.attrs:
            if attr.name not in hidden and (attr.required or attr.name in self.sample["attrs"]):
                made[attr.name] = self.sample["attrs"][attr.name]
        return made

    def call(self, given: Arguments) -> list[Any]:
        """What the public function returns, one after the other."""
        named = {identifier(name): value for name, value in given.items()}
        return tf.nest.flatten(getattr(tn, identifier(self.op.name))(**named))

    def expected(self, given: Arguments) -> list[np.ndarray]:
        """The same from the C reference, in float64."""
        free = {p.name for p in self.op.inputs if "var" in p.type}  # fixed types stay
        wide = {n: each(_wide if n in free else np.asarray, given[n]) for n in self.tensors}
        outputs, inputs = reference(self.op, given | wide)
        shown = [outputs[i] for i in shown_outputs(self.op)]
        return flat([shown, [inputs[p.name] for p in self.op.inputs if p.inplace]])

    def smooth(self, given: Arguments) -> list[str]:
        """The inputs that a gradient may be asked of."""
        return [n for n in has_gradient(self.op) if given[n] is not None and given[n].dtype.is_floating]

    def of(self, given: Arguments, names: list[str]) -> Callable[..., list[Any]]:
        """The call as a function of some of its inputs: results that gradients flow through."""

        def function(*values: Any) -> list[Any]:
            made = self.call(given | dict(zip(names, values, strict=True)))
            updated = sum(p.inplace for p in self.op.inputs)  # behind the outputs, and constants to gradients
            return [r for r in made[: len(made) - updated] if r.dtype.is_floating]

        return function

    @property
    def tensors(self) -> list[str]:
        return [p.name for p in self.op.params if not isinstance(p, Attr)]


def each(function: Callable[[Any], Any], value: Any) -> Any:
    """The function of a tensor, of each one of a list, or None."""
    return None if value is None else [function(v) for v in value] if isinstance(value, list) else function(value)


def flat(values: Any) -> list[Any]:
    return [v for v in tf.nest.flatten(values) if v is not None]


def _values(random: np.random.Generator, given: Any, kind: str) -> np.ndarray:
    shape = given["shape"]
    if kind == "bool":
        return np.asarray(random.random(shape) > 0.3)
    if kind.startswith(("i", "u")):
        return np.asarray(random.integers(0, given["below"] or 3, shape))
    return np.asarray(random.random(shape) + 0.5 if given["positive"] else random.standard_normal(shape))


def _wide(tensor: tf.Tensor) -> np.ndarray:
    return np.asarray(tf.cast(tensor, tf.float64)) if tensor.dtype.is_floating else np.asarray(tensor)


def cases(most: int | None = None, where: Callable[[Case], bool] = lambda case: True) -> list[Case]:
    return samples.cases(Case, most, where)


def one_each(where: Callable[[Case], bool] = lambda case: True) -> list[Case]:
    return samples.one_each(Case, where)


def has_rule(case: Case) -> bool:
    return case.op.rule is not None


def assert_close(have: Any, want: Any, T: str = "f32", scale: float = 1.0) -> None:
    have, want = flat(have), flat(want)
    assert len(have) == len(want)
    rtol, atol = TOLERANCE[T]
    for a, b in zip(have, want, strict=True):
        assert tuple(a.shape) == tuple(b.shape)
        a, b = tf.cast(a, tf.float64), tf.cast(b, tf.float64)
        np.testing.assert_allclose(a, b, rtol=scale * rtol, atol=scale * atol, equal_nan=True)
