"""What calls are: an operator as JAX has it, and everything of a call but its arrays."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.export

from tenon._frame import Calls
from tenon.contract import Argument, Attr, Operand, Operator, table
from tenon.jax._types import operand

Arrays = Sequence[Any]
_CPU = (1, 0)  # as DLPack has it


class Row:
    """An operator as JAX has it. There is one for each, so that it can be a key."""

    def __init__(self, op: Operator, fast: bool = False) -> None:
        self.op = op
        self.fast = fast
        in_table = table().get(op.name) is op
        self.named: dict[str, Any] = {"_op": op.name} if in_table else {"_formula": op.formula, "_fast": fast}

    def __repr__(self) -> str:
        """As jaxprs show it: the name, or the formula that it is."""
        return str(self.named.get("_op") or self.named["_formula"])

    @cached_property
    def calls(self) -> Calls:
        return Calls(self.op, lambda name: name)

    def infer(self, arguments: Sequence[Argument], attrs: Mapping[str, Any]) -> Sequence[Operand | None]:
        """Types and shapes of the outputs; None: it was not asked for. The C library says it, or what is wrong, unless
        sizes are symbolic."""
        lists = self._lists(arguments)
        sizes = [n for part in lists for one in part if one is not None for n in one[1]]
        sizes += [n for value in attrs.values() for n in (value if isinstance(value, tuple) else (value,))]
        if any(map(jax.export.is_symbolic_dim, sizes)):
            return self.op.infer(arguments, attrs)
        made = self.calls.infer(lists, self._values(attrs))
        if self.op.formula is not None:
            self.workspace(arguments, attrs, _CPU)  # prepares it, and says what contracts do not: an input is needed
        return made

    def workspace(self, arguments: Sequence[Argument], attrs: Mapping[str, Any], device: tuple[int, int]) -> int:
        """The bytes that a call needs for itself on a device; its code is loaded there."""
        return self.calls.workspace(self._lists(arguments), self._values(attrs), device)

    def _lists(self, arguments: Sequence[Argument]) -> list[Any]:
        named = zip(self.op.inputs, arguments, strict=True)
        return [a if isinstance(a, list) else [] if p.list and a is None else [a] for p, a in named]

    def _values(self, attrs: Mapping[str, Any]) -> list[Any]:
        return [attrs.get(a.name, a.default) for a in self.op.attrs]


def row_of(op: Operator, fast: bool = False) -> Row:
    """The operator's row."""
    found: Row | None = op.kept.get(("jax", fast))
    return found if found is not None else op.kept.setdefault(("jax", fast), Row(op, fast))


class _MinusZero(float):
    """-0.0 as a key, which is not 0.0."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _MinusZero)

    def __hash__(self) -> int:
        return hash(_MinusZero)


def _number(value: float) -> float:
    """A number as a key: all NaN are one object, which a dict finds, and -0.0 is not 0.0."""
    if math.isnan(value):
        return math.nan
    return _MinusZero(value) if value == 0 and math.copysign(1, value) < 0 else value


def constant(attr: Attr, value: Any) -> Any:
    """The value of an attribute in the one form that is a part of keys."""
    if value is None:
        return None
    if attr.kind == "float":
        return _number(float(value))
    return tuple(value) if attr.kind in ("axes", "ints") else bool(value) if attr.kind == "bool" else value


class Form(NamedTuple):
    """Everything of a call but its arrays."""

    row: Row
    counts: tuple[int, ...]  # arrays that each input has; 0: it is absent
    attrs: tuple[tuple[str, Any], ...]  # those that are not at their defaults

    def grouped(self, arrays: Arrays) -> list[Any]:
        """The arrays by input: one, a list, or None."""
        made: list[Any] = []
        at = 0
        for param, count in zip(self.row.op.inputs, self.counts, strict=True):
            part = list(arrays[at : at + count])
            made.append(part if param.list and part else part[0] if part else None)
            at += count
        return made

    def operands(self, arrays: Arrays) -> list[Argument]:
        """Types and shapes of the inputs."""
        made: list[Argument] = []
        for param, value in zip(self.row.op.inputs, self.grouped(arrays), strict=True):
            try:
                made.append([operand(param, v) for v in value] if param.list and value else _maybe(param, value))
            except TypeError as error:
                raise TypeError(f"{self.row.op.name}: {error}") from None
        return made

    def updated(self) -> list[int]:
        """Which of the arrays are updated in place."""
        owners = [p for p, count in zip(self.row.op.inputs, self.counts, strict=True) for _ in range(count)]
        return [i for i, param in enumerate(owners) if param.inplace]

    def wanted(self) -> list[int]:
        """Which outputs a call makes."""
        asked = {name for name, value in self.attrs if value is True}
        outputs = enumerate(self.row.op.outputs)
        return [i for i, o in outputs if o.want_attr is None or o.want_attr in asked]

    def arranged(self, results: Arrays) -> tuple[list[Any], list[Any]]:
        """All outputs, None where one was not asked for; and the updated arrays."""
        outputs: list[Any] = [None] * len(self.row.op.outputs)
        wanted = self.wanted()
        for i, value in zip(wanted, results, strict=False):
            outputs[i] = value
        return outputs, list(results[len(wanted) :])


def _maybe(param: Any, value: Any) -> Operand | None:
    return None if value is None else operand(param, value)


def make_form(row: Row, given: Mapping[str, Any]) -> tuple[Form, list[Any]]:
    """A form and its arrays, from inputs and attributes by name; both as _public.py leaves them."""
    arrays: list[Any] = []
    counts = []
    for param in row.op.inputs:
        value = given.get(param.name)
        part = [] if value is None else list(value) if param.list else [value]
        arrays += part
        counts.append(len(part))
    attrs = [(a.name, constant(a, given.get(a.name))) for a in row.op.attrs]
    own = [(a.name, constant(a, a.default)) for a in row.op.attrs]
    changed = [one for one, default in zip(attrs, own, strict=True) if one != default and one[1] is not None]
    return Form(row, tuple(counts), tuple(sorted(changed))), arrays
