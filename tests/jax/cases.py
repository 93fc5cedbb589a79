"""Calls to test with, made from the samples in the operator table."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import samples
from reference import reference
from samples import TOLERANCE

import tenon.jax as tn
from tenon._public import identifier, shown_outputs
from tenon._rules import has_gradient
from tenon.contract import Attr
from tenon.jax._types import DTYPES

Arguments = dict[str, Any]  # all parameters of a public function, by name


class Case(samples.Case):
    """One sample of one operator."""

    def make(self, T: str = "f32", again: int = 0, same: bool = False) -> Arguments:
        """The arguments; other values for each `again`. `same`: all type variables are T, whatever the sample says."""
        random = np.random.default_rng(zlib.crc32(f"{self} {again}".encode()))
        hidden = {o.want_attr for o in self.op.outputs if o.want == "grad"}
        made: Arguments = {p.name: None for p in self.op.inputs}
        for given in self.sample["inputs"]:
            kind = self.kind(given, T, same)
            array = jnp.asarray(_values(random, given, kind), DTYPES[kind])
            param = next(p for p in self.op.inputs if p.name == given["name"])
            made[param.name] = [*(made[param.name] or ()), array] if param.list else array
        for attr in self.op.attrs:
            if attr.name not in hidden and (attr.required or attr.name in self.sample["attrs"]):
                made[attr.name] = self.sample["attrs"][attr.name]
        return made

    def call(self, given: Arguments) -> list[Any]:
        """What the public function returns, one after the other."""
        named = {identifier(name): value for name, value in given.items()}
        return jax.tree.leaves(getattr(tn, identifier(self.op.name))(**named))

    def expected(self, given: Arguments) -> list[np.ndarray]:
        """The same from the C reference, in float64."""
        free = {p.name for p in self.op.inputs if "var" in p.type}  # fixed types stay
        wide = {n: jax.tree.map(_wide if n in free else np.asarray, given[n]) for n in self.arrays}
        outputs, inputs = reference(self.op, given | wide)
        shown = [outputs[i] for i in shown_outputs(self.op)]
        return jax.tree.leaves([shown, [inputs[p.name] for p in self.op.inputs if p.inplace]])

    def smooth(self, given: Arguments) -> list[str]:
        """The inputs that a gradient may be asked of."""
        return [
            n for n in has_gradient(self.op) if given[n] is not None and jnp.issubdtype(given[n].dtype, jnp.inexact)
        ]

    def of(self, given: Arguments, names: list[str]) -> Callable[..., list[Any]]:
        """The call as a function of some of its inputs: results that gradients flow through."""

        def function(*values: Any) -> list[Any]:
            made = self.call(given | dict(zip(names, values, strict=True)))
            updated = sum(p.inplace for p in self.op.inputs)  # behind the outputs, and constants to gradients
            return [r for r in made[: len(made) - updated] if jnp.issubdtype(r.dtype, jnp.inexact)]

        return function

    @property
    def arrays(self) -> list[str]:
        return [p.name for p in self.op.params if not isinstance(p, Attr)]


def _values(random: np.random.Generator, given: Any, kind: str) -> np.ndarray:
    shape = given["shape"]
    if kind == "bool":
        return random.random(shape) > 0.3
    if kind.startswith(("i", "u")):
        return random.integers(0, given["below"] or 3, shape)
    return random.random(shape) + 0.5 if given["positive"] else random.standard_normal(shape)


def _wide(array: jax.Array) -> np.ndarray:
    return np.asarray(array, np.float64) if jnp.issubdtype(array.dtype, jnp.floating) else np.asarray(array)


def cases(most: int | None = None, where: Callable[[Case], bool] = lambda case: True) -> list[Case]:
    return samples.cases(Case, most, where)


def one_each(where: Callable[[Case], bool] = lambda case: True) -> list[Case]:
    return samples.one_each(Case, where)


def has_rule(case: Case) -> bool:
    return case.op.rule is not None


def assert_close(have: Any, want: Any, T: str = "f32", scale: float = 1.0) -> None:
    have, want = jax.tree.leaves(have), jax.tree.leaves(want)
    assert len(have) == len(want)
    rtol, atol = TOLERANCE[T]
    for a, b in zip(have, want, strict=True):
        assert a.shape == b.shape
        a, b = np.asarray(a).astype(np.float64), np.asarray(b).astype(np.float64)
        np.testing.assert_allclose(a, b, rtol=scale * rtol, atol=scale * atol, equal_nan=True)
