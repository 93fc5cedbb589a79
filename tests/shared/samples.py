"""The table's samples as calls to test with, for every framework: their cases derive from these.

`tenon check` runs every sample of every operator. A framework is tested with what an adapter can tell apart: the family
of the operator, which is its contract and gradient rule without names and numbers, and the features of the sample, such
as an optional input that is absent. Each operator is called with its first sample, and any two features that a sample
has together are met together. What takes long, such as compiling, is done with as few samples as have all traits: the
features, and the parts of contracts and rules, each for itself. With TENON_TEST_ALL=1, operators with kernels of their
own are called with all of their samples, and nothing is left out of what takes long.

Where a test has several ways to call (element types, layouts), `dealt` gives each case some of them, in turns.
"""

from __future__ import annotations

import math
import os
import zlib
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations_with_replacement
from typing import Any, Protocol, TypeVar

import numpy as np

import tenon
from tenon._rules import has_gradient, passed_on, twins
from tenon.contract import Input, Json, Operator, table
from tenon.infer import Types


class Random(Protocol):
    """Random numbers in arrays of any kind; NumPy's generators are such."""

    def random(self, shape: Any) -> Any: ...
    def integers(self, low: int, high: int, shape: Any) -> Any: ...
    def standard_normal(self, shape: Any) -> Any: ...


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

    def inputs(self, T: str, random: Random, convert: Callable[[Any, str], Any], same: bool = False) -> dict[str, Any]:
        """The inputs by name: what `convert` makes of numbers and the name of their element type, a list of that, or
        None where one is absent."""
        made: dict[str, Any] = {p.name: None for p in self.op.inputs}
        lists = {p.name for p in self.op.inputs if p.list}
        for given in self.sample["inputs"]:
            name, kind = given["name"], self.kind(given, T, same)
            tensor = convert(_values(random, given, kind), kind)
            made[name] = [*(made[name] or ()), tensor] if name in lists else tensor
        return made


def _values(random: Random, given: Any, kind: str) -> Any:
    """Numbers for an input, as its sample wants them."""
    shape = given["shape"]
    if given["order"] is not None:
        return _ordered(random, given, kind)
    if kind == "bool":
        return random.random(shape) > 0.3
    if kind.startswith(("i", "u")):
        return random.integers(0, given["below"] or 3, shape)
    return random.random(shape) + 0.5 if given["positive"] else random.standard_normal(shape)


def _ordered(random: Random, given: Any, kind: str) -> Any:
    """Numbers whose rows are sorted, unique, permutations or offsets, as NumPy arrays."""
    along, shape = given["along"], list(given["shape"])
    n = shape.pop(along)
    below, order = given["below"], given["order"]
    keys = np.asarray(random.random([math.prod(shape), max(below or 0, n)]))
    if order in ("unique", "permutation"):
        made = keys[:, :below].argsort(-1)[:, :n]
    elif order == "offsets":
        made = np.sort((keys[:, :n] * below).astype(np.int64), -1)
        made[:, 0], made[:, -1] = 0, below - 1
    elif kind.startswith(("i", "u")):
        made = np.sort((keys[:, :n] * (below or 3)).astype(np.int64), -1)
    else:
        made = np.sort(keys[:, :n], -1)
    return np.ascontiguousarray(np.moveaxis(made.reshape([*shape, n]), -1, along))


# ---- what an adapter can tell apart ----------------------------------------------------------------------------------


class _Names:
    """Names of a contract, by the order in which they occur."""

    def __init__(self) -> None:
        self.known: dict[str, int] = {}

    def number(self, name: str) -> int:
        return self.known.setdefault(name, len(self.known))

    def without(self, part: Json) -> Hashable:
        """A type or a shape of a contract without its names."""
        if isinstance(part, dict):
            named = ("attr", "dim", "pack", "var")
            return tuple(
                (key, self.number(value) if key in named and isinstance(value, str) else self.without(value))
                for key, value in sorted(part.items())
            )
        return tuple(map(self.without, part)) if isinstance(part, list) else part


def family(op: Operator) -> Hashable:
    """An operator's contract and gradient rule without names, defaults and bounds: what an adapter makes of it."""
    return _family(op.name)


@cache
def _family(name: str) -> Hashable:
    op, names = table()[name], _Names()
    params: list[Hashable] = []
    for p in op.params:
        names.number(p.name)
        if isinstance(p, Input):
            params.append((names.without(p.type), names.without(p.shape), p.optional, p.inplace, p.list))
        else:
            params.append((p.kind, p.optional, p.required, p.implied, p.length, names.without(p.rank_of)))
    outputs = [(names.without(o.type), names.without(o.shape), o.want, o.list) for o in op.outputs]
    return tuple(params), tuple(outputs), tuple(op.types.values()), bool(op.where), op.autocast, _rule(op, names)


def _rule(op: Operator, names: _Names) -> Hashable:
    """What a gradient keeps of a call, computes and returns."""
    if op.rule is None:
        return None
    places = {o.name: i for i, o in enumerate(op.outputs)}
    statements = tuple(
        (
            tuple(map(names.number, s.results)),
            s.formula is None,
            s.local,
            tuple((a.kind, places.get(a.name) if "output" in a.kind else names.number(a.name)) for a in s.sources),
            tuple(map(names.number, (*passed_on(op, s), *twins(op, s)))),
        )
        for s in op.rule.statements
    )
    return statements, tuple(sorted(places[name] for name in op.rule.differentiable)), op.rule.stands_in


def features(case: Case) -> set[Hashable]:
    """What an adapter sees of a sample: of each input its kind, and whether it is there, one or several, empty, of no
    dimensions, of another shape than the first, of a type of its own; of each attribute its kind, and whether it is
    set."""
    sample = case.sample
    given = [[g["shape"] for g in sample["inputs"] if g["name"] == p.name] for p in case.op.inputs]
    made: set[Hashable] = {(a.kind, a.name in sample["attrs"]) for a in case.op.attrs}
    for p, part in zip(case.op.inputs, given, strict=True):
        kind = (_Names().without(p.type), p.optional, p.inplace, p.list)
        there = (min(len(part), 2), any(0 in s for s in part), [] in part, part == given[0])
        made.add((kind, there))
    return made | set(sample["types"].items())


def pairs(case: Case) -> set[Hashable]:
    """Any two of its features, and each alone."""
    return {frozenset(pair) for pair in combinations_with_replacement(features(case), 2)}


def traits(case: Case) -> set[Hashable]:
    """Its features; of its operator each output, and what each statement of the gradient rule is made of."""
    made: set[Hashable] = {("feature", f) for f in features(case)}
    for o in case.op.outputs:
        made.add(("output", _Names().without(o.type), _Names().without(o.shape), o.want, o.list))
    for s in case.op.rule.statements if case.op.rule else ():
        made |= {("statement", s.formula is None, s.local, a.kind) for a in s.sources}
    return made


# ---- choosing --------------------------------------------------------------------------------------------------------

C = TypeVar("C", bound=Case)
Where = Callable[[C], bool]


def every_sample(kind: type[C], most: int | None = None, where: Where[C] = lambda case: True) -> list[C]:
    """All samples, but for those of benchmarks; `most`: elements of an input."""
    made = [kind(op, s) for op in tenon.ops().values() for s in op.samples if not s["bench"]]
    return [c for c in made if where(c) and (most is None or c.numel <= most)]


def all_are_wanted() -> bool:
    """TENON_TEST_ALL=1 make test: everything rather than samples of it."""
    return "TENON_TEST_ALL" in os.environ


def cases(kind: type[C], most: int | None = None, where: Where[C] = lambda case: True) -> list[C]:
    """The first sample of each operator, one of each family, and every pair of features."""
    return list(_chosen(every_sample(kind, most, where)))


def _chosen(samples: list[C]) -> Iterator[C]:
    seen: set[Hashable] = set()
    for case in samples:
        keys = {case.op.name, family(case.op)} | pairs(case)
        if not keys <= seen or (case.op.formula is None and all_are_wanted()):
            yield case
        seen |= keys


W = TypeVar("W")


def dealt(chosen: Sequence[C], ways: Sequence[W], each: int = 1) -> list[tuple[C, W]]:
    """Pairs of cases and ways, `each` ways a case: the next case of an operator gets the next ones, and other operators
    begin with others, so that over the table all ways are met about equally often."""
    each = len(ways) if all_are_wanted() else each
    next_of: dict[str, int] = {}
    made = []
    for case in chosen:
        at = next_of.setdefault(case.op.name, zlib.crc32(case.op.name.encode()))
        made += [(case, ways[(at + k) % len(ways)]) for k in range(each)]
        next_of[case.op.name] = at + each
    return made


def shown(value: object) -> str:
    """A case, or a way that may be a function, in the name of a test."""
    return str(getattr(value, "__name__", value))


def each_operator(kind: type[C], where: Where[C] = lambda case: True) -> list[C]:
    """For each operator the sample with most inputs."""
    best: dict[str, C] = {}
    for case in every_sample(kind, 4096, where):
        other = best.get(case.op.name)
        if case.numel and (other is None or len(case.sample["inputs"]) > len(other.sample["inputs"])):
            best[case.op.name] = case
    return list(best.values())


def one_each(kind: type[C], where: Where[C] = lambda case: True) -> list[C]:
    """Few samples that have one of each trait; all operators, if everything is asked for."""
    if all_are_wanted():
        return each_operator(kind, where)
    left = [(case, traits(case)) for case in every_sample(kind, 4096, where) if case.numel]
    chosen = []
    while left:
        best, found = max(left, key=lambda one: len(one[1]))
        chosen.append(best)
        left = [(case, has - found) for case, has in left if has - found]
    return chosen


def differentiable_inputs(case: Case) -> list[int]:
    """The parameters that the rule has gradients for."""
    named = has_gradient(case.op)
    return [i for i, p in enumerate(case.op.params) if p.name in named]


# ---- comparing -------------------------------------------------------------------------------------------------------

# How far results of a type may be from those of float64, relative and absolute. The exact bounds are `tenon check`'s.
TOLERANCE = {"f64": (1e-9, 1e-9), "f32": (2e-4, 2e-5), "bf16": (5e-2, 5e-2), "f16": (1e-2, 1e-2)}


def assert_all_close(have: list[np.ndarray], want: list[np.ndarray], T: str = "f32", scale: float = 1.0) -> None:
    """As many results, of the same shapes, no further from each other than T may be, times `scale`; where a contract
    says f32, no further than f32."""
    assert len(have) == len(want)
    for a, b in zip(have, want, strict=True):
        assert a.shape == b.shape
        rtol, atol = TOLERANCE["f32" if T == "f64" and a.dtype == np.float32 else T]
        a, b = a.astype(np.float64), b.astype(np.float64)
        np.testing.assert_allclose(a, b, rtol=scale * rtol, atol=scale * atol, equal_nan=True)
