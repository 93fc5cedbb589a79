"""Samples of the table as calls on NumPy arrays, for the tests of whatever takes those."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import samples

from tenon.contract import NUMPY_NAMES, Input

# The types that NumPy has itself.
DTYPES: dict[str, Any] = {
    kind: np.dtype(NUMPY_NAMES[kind]) for kind in ("f16", "f32", "f64", "i8", "i32", "i64", "u8", "bool")
}


class Case(samples.Case):
    """One sample of one operator."""

    def arrays(self, T: str, dtypes: Mapping[str, Any]) -> dict[str, Any]:
        """The inputs by name; None where one is absent. The same numbers in every T, but for rounding."""
        return self.inputs(T, np.random.default_rng(0), lambda values, kind: np.asarray(values, dtypes[kind]))

    def arguments(self, T: str, dtypes: Mapping[str, Any]) -> list[Any]:
        """All parameters by position: the arrays, the sample's attributes, and defaults."""
        given = {a.name: a.default for a in self.op.attrs} | self.arrays(T, dtypes) | self.sample["attrs"]
        given |= {name: dtypes[kind] for name, kind in self.types().items()}
        return [given[p.name] for p in self.op.params]

    def types(self) -> dict[str, str]:
        """The attributes that are types, by Tenon's names."""
        kinds = {a.name: a.default for a in self.op.attrs if a.kind == "dtype"}
        return {name: self.sample["attrs"].get(name, default) for name, default in kinds.items()}

    def has_types_of(self, dtypes: Mapping[str, Any]) -> bool:
        return all(
            kind in dtypes for kind in (*(self.kind(i, "f32") for i in self.sample["inputs"]), *self.types().values())
        )


cases, one_each, dealt = partial(samples.cases, Case), partial(samples.one_each, Case), samples.dealt
each_operator = partial(samples.each_operator, Case)


def has_numpys_types(case: Case) -> bool:
    return case.has_types_of(DTYPES)


def flat(values: Any) -> Iterator[Any]:
    """The arrays in arguments or results, those in lists too."""
    for value in values if isinstance(values, list | tuple) else [values]:
        if isinstance(value, list | tuple):
            yield from flat(value)
        elif isinstance(value, np.ndarray):
            yield value


def updated(case: Case, args: list[Any]) -> list[Any]:
    """What a call leaves in the arrays that it updates."""
    return [a for p, a in zip(case.op.params, args, strict=True) if isinstance(p, Input) and p.inplace]


def copies(args: Any) -> Any:
    """Arguments with arrays of their own, for operators that write."""
    if isinstance(args, list | tuple):
        return [copies(a) for a in args]
    return args.copy(order="K") if isinstance(args, np.ndarray) else args


def assert_close(have: Any, want: Any, T: str, scale: float = 4.0) -> None:
    samples.assert_all_close(list(flat(have)), list(flat(want)), T, scale)


# ---- what users give for numbers and axes ----------------------------------------------------------------------------

AXES = [1, -1, np.int64(1), np.array(1), [1], np.array([1])]
NUMBERS = [2, 2.0, np.float32(2), np.float64(2), np.int8(2), np.array(2), np.array(2.0), np.array(2.0, np.float32)]


def assert_takes_axes(tn: Any, x: Any, axes: Any) -> None:
    """x: 0 to 5 in two rows."""
    np.testing.assert_array_equal(tn.sum(x, axis=axes), [3, 12])


def assert_takes_number(tn: Any, x: Any, number: Any) -> None:
    """For attributes, and for 0-dim inputs whose types other inputs say; x: three ones in f32."""
    np.testing.assert_array_equal(tn.softmax(x, scale=number), tn.softmax(x, scale=2.0))
    for kind in ("T", "f32"):
        made = tn.fuse(f"f(x: T[*s], a: {kind}[]) -> y: T[*s] : x * a")(x, number)
        assert made.dtype == x.dtype and (np.asarray(made) == 2).all()
