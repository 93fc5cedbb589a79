"""The table's samples as calls to test with, for every framework: their cases derive from these."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import tenon
from tenon._rules import has_gradient
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
        return max((math.prod(i["shape"]) for i in self.sample["inputs"]), default=0)

    def kind(self, given: Any, T: str, same: bool = False) -> str:
        """The element type of an input of the sample; `same`: all type variables are T, whatever it says."""
        types = Types(self.op, self.sample["attrs"])
        said = {} if same else self.sample["types"]
        types.bound.update({name: said.get(name, T) for name in self.op.types}, T=T)
        return types.of(given["type"])


C = TypeVar("C", bound=Case)
Where = Callable[[C], bool]


def cases(kind: type[C], most: int | None = None, where: Where[C] = lambda case: True) -> list[C]:
    """Every sample that is not for benchmarks."""
    made = [kind(op, s) for op in tenon.ops().values() for s in op.samples if not s["bench"]]
    return [c for c in made if where(c) and (most is None or c.numel <= most)]


def one_each(kind: type[C], where: Where[C] = lambda case: True) -> list[C]:
    """For each operator the sample with most inputs."""
    best: dict[str, C] = {}
    for case in cases(kind, 4096, where):
        other = best.get(case.op.name)
        if case.numel and (other is None or len(case.sample["inputs"]) > len(other.sample["inputs"])):
            best[case.op.name] = case
    return list(best.values())


def differentiable_inputs(case: Case) -> list[int]:
    """The parameters that the rule has gradients for."""
    named = has_gradient(case.op)
    return [i for i, p in enumerate(case.op.params) if p.name in named]


# How far results of a type may be from those of float64, relative and absolute. The exact bounds are `tenon check`'s.
TOLERANCE = {"f64": (1e-9, 1e-9), "f32": (2e-4, 2e-5), "bf16": (5e-2, 5e-2), "f16": (1e-2, 1e-2)}
