"""Calls to test with, made from the samples in the operator table: what the tests of all frameworks share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, TypeVar

import numpy as np

import tenon
from tenon.contract import Operator
from tenon.infer import Types


@dataclass(frozen=True)
class Case:
    """One sample of one operator."""

    op: Operator
    sample: Any

    def __str__(self) -> str:
        return f"{self.op.name} {self.sample['text']}".replace(" ", "-")

    @property
    def numel(self) -> int:
        return max((prod(i["shape"]) for i in self.sample["inputs"]), default=0)

    def kind(self, given: Any, T: str, same: bool = False) -> str:
        """The element type of an input; `same`: all type variables are T, whatever the sample says."""
        types = Types(self.op, self.sample["attrs"])
        said = {} if same else self.sample["types"]
        types.bound.update({name: said.get(name, T) for name in self.op.types}, T=T)
        return types.of(given["type"])

    def arrays(self, T: str, dtypes: Mapping[str, Any], seed: int = 0) -> dict[str, Any]:
        """The inputs by name; None where one is absent. The same numbers in every T, but for rounding."""
        rng = np.random.default_rng(seed)
        made: dict[str, Any] = {p.name: None for p in self.op.inputs}
        for given in self.sample["inputs"]:
            param = next(p for p in self.op.inputs if p.name == given["name"])
            array = np.asarray(values(rng, given, self.kind(given, T)), dtypes[self.kind(given, T)])
            made[param.name] = [*(made[param.name] or ()), array] if param.list else array
        return made

    def arguments(self, T: str, dtypes: Mapping[str, Any], seed: int = 0) -> list[Any]:
        """All parameters by position: the arrays, the sample's attributes, and defaults."""
        given = {a.name: a.default for a in self.op.attrs} | self.arrays(T, dtypes, seed) | self.sample["attrs"]
        return [given[p.name] for p in self.op.params]


def values(rng: np.random.Generator, given: Any, kind: str) -> Any:
    """Numbers for an input, as its sample wants them."""
    shape = given["shape"]
    if kind == "bool":
        return rng.random(shape) > 0.3
    if kind[0] in "iu":
        return rng.integers(0, given["below"] or 3, shape)
    return rng.random(shape) + 0.5 if given["positive"] else rng.standard_normal(shape)


Any_case = TypeVar("Any_case", bound=Case)


def cases(
    most: int | None = None, where: Callable[[Any], bool] = lambda case: True, make: type[Any_case] = Case
) -> list[Any_case]:
    """Every sample that is not for benchmarks."""
    made = [make(op, s) for op in tenon.ops().values() for s in op.samples if not s["bench"]]
    return [c for c in made if where(c) and (most is None or c.numel <= most)]


def one_each(where: Callable[[Any], bool] = lambda case: True, make: type[Any_case] = Case) -> list[Any_case]:
    """For each operator the sample with most inputs."""
    best: dict[str, Any_case] = {}
    for case in cases(4096, where, make):
        other = best.get(case.op.name)
        if case.numel and (other is None or len(case.sample["inputs"]) > len(other.sample["inputs"])):
            best[case.op.name] = case
    return list(best.values())


# How far results of a type may be from those of float64, relative and absolute. The exact bounds are `tenon check`'s.
TOLERANCE = {"f64": (1e-9, 1e-9), "f32": (2e-4, 2e-5), "bf16": (5e-2, 5e-2), "f16": (1e-2, 1e-2)}


def flat(values: Any) -> Iterator[Any]:
    """The arrays in arguments or results, those in lists too."""
    for value in values if isinstance(values, list | tuple) else [values]:
        if isinstance(value, list | tuple):
            yield from flat(value)
        elif isinstance(value, np.ndarray):
            yield value


def copies(args: Any) -> Any:
    """Arguments with arrays of their own, for operators that write."""
    if isinstance(args, list | tuple):
        return [copies(a) for a in args]
    return args.copy(order="K") if isinstance(args, np.ndarray) else args
