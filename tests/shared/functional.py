"""Cases of frameworks whose functions write to no tensor and return what an operator updates: JAX and TensorFlow."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import samples
from reference import reference

from tenon._frameworks import FRAMEWORKS
from tenon._public import identifier, shown_outputs
from tenon._rules import has_gradient

Arguments = dict[str, Any]  # all parameters of a public function, by name


class Case(samples.Case):
    """One sample of one operator. A framework says what its tensors are."""

    tn: Any  # the module with the functions

    @staticmethod
    def convert(values: np.ndarray, kind: str) -> Any:
        """A tensor of this element type."""
        raise NotImplementedError

    @staticmethod
    def is_floating(tensor: Any) -> bool:
        raise NotImplementedError

    def make(self, T: str = "f32", again: int = 0, same: bool = False) -> Arguments:
        """The arguments; other values for each `again`. `same`: all type variables are T, whatever the sample says."""
        random = np.random.default_rng(zlib.crc32(f"{self} {again}".encode()))
        hidden = {o.want_attr for o in self.op.outputs if o.want == "grad"}
        given = {a.name: self.sample["attrs"].get(a.name) for a in self.op.attrs if a.name not in hidden}
        told = {a.name for a in self.op.attrs if a.required} | set(self.sample["attrs"])
        attrs = {name: value for name, value in given.items() if name in told}
        return self.inputs(T, random, lambda values, kind: self.convert(np.asarray(values), kind), same) | attrs

    def call(self, given: Arguments) -> list[Any]:
        """What the public function returns, one after the other."""
        types = {a.name for a in self.op.attrs if a.kind == "dtype"} & set(given)
        given = given | {name: self.convert(np.zeros(()), given[name]).dtype for name in types}
        public = FRAMEWORKS[self.tn.__name__.partition(".")[2]](self.op, shown_outputs(self.op))
        return leaves(getattr(self.tn, identifier(self.op.name))(**public.keywords(given)))

    def expected(self, given: Arguments) -> list[np.ndarray]:
        """The same from the C reference, in float64."""
        free = {p.name for p in self.op.inputs if "var" in p.type}  # fixed types stay
        wide = {n: each(self._wide if n in free else array, given[n]) for n in self.tensors}
        outputs, inputs = reference(self.op, given | wide)
        shown = [outputs[i] for i in shown_outputs(self.op)]
        return leaves([shown, [inputs[p.name] for p in self.op.inputs if p.inplace]])

    def check(self, T: str = "f32") -> None:
        """The public function returns what the reference does."""
        given = self.make(T)
        assert_close(self.call(given), self.expected(given), T, scale=4)

    def _wide(self, tensor: Any) -> np.ndarray:
        return array(tensor).astype(np.float64) if self.is_floating(tensor) else array(tensor)

    def smooth(self, given: Arguments) -> list[str]:
        """The inputs that a gradient may be asked of."""
        return [n for n in has_gradient(self.op) if given[n] is not None and self.is_floating(given[n])]

    def of(self, given: Arguments, names: list[str]) -> Callable[..., list[Any]]:
        """The call as a function of some of its inputs: results that gradients flow through."""

        def function(*values: Any) -> list[Any]:
            made = self.call(given | dict(zip(names, values, strict=True)))
            updated = sum(p.inplace for p in self.op.inputs)  # behind the outputs, and constants to gradients
            return [r for r in made[: len(made) - updated] if self.is_floating(r)]

        return function

    @property
    def tensors(self) -> list[str]:
        return [p.name for p in self.op.inputs]


def leaves(values: Any) -> list[Any]:
    """The tensors in arguments or results, those in lists too."""
    if isinstance(values, dict):
        return leaves([values[key] for key in sorted(values)])
    if isinstance(values, list | tuple):
        return [leaf for value in values for leaf in leaves(value)]
    return [] if values is None else [values]


def array(tensor: Any) -> np.ndarray:
    """What NumPy has of a tensor. TensorFlow's may be converted to an array, but for one number in bf16."""
    return np.asarray(tensor.numpy() if hasattr(tensor, "numpy") else tensor)


def each(function: Callable[[Any], Any], value: Any) -> Any:
    """The function of a tensor, of each one of a list, or None."""
    return None if value is None else [function(v) for v in value] if isinstance(value, list) else function(value)


def has_rule(case: samples.Case) -> bool:
    return case.op.rule is not None


def is_exact(case: samples.Case) -> bool:
    """Whether its rule is the derivative, and the result has one everywhere."""
    return has_rule(case) and not is_rough(case)


def is_rough(case: samples.Case) -> bool:
    """Whether its rule is not what differences would show."""
    steps = {"sign", "floor"}  # 0, but for steps that differences may meet
    return case.op.rule is not None and (case.op.rule.stands_in or case.op.name in steps)


def assert_close(have: Any, want: Any, T: str = "f32", scale: float = 1.0) -> None:
    samples.assert_all_close([array(a) for a in leaves(have)], [array(a) for a in leaves(want)], T, scale)
