"""Arguments by name, for frameworks that NumPy's arrays and numbers are given to as well: JAX and TensorFlow."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np

from tenon._arguments import attribute_value, is_broadcast, is_number, is_told, listed, number_type
from tenon.contract import Attr, Input, Operand, Operator


def is_plain_number(op: Operator, param: Input, value: Any) -> bool:
    """Whether a value for a 0-dim input is a number and no more. NumPy makes arrays of numbers: one without dimensions
    says little by its type where the other inputs say which type is meant."""
    if isinstance(value, bool | int | float | complex | np.generic):
        return True
    return isinstance(value, np.ndarray) and value.ndim == 0 and value.dtype.kind in "biuf" and is_told(op, param)


class Arguments(ABC):
    """What users give for a call, as the operator's contract has it. A framework says what its tensors are."""

    tensors = "tensors"  # what a list is one of, in messages

    def __init__(self, op: Operator) -> None:
        self.op = op

    @abstractmethod
    def dtype_name(self, value: Any) -> str | None:
        """Tenon's name of what the framework takes for an element type; None where it has none."""

    @abstractmethod
    def refuse_attribute(self, value: Any) -> str | None:
        """Why a value cannot be an attribute, which is a constant; None: it can."""

    @abstractmethod
    def make_tensor(self, param: Input, value: Any, name: str) -> Any:
        """What a user gives for an input, or for one place of a list; `name` is that of the place."""

    @abstractmethod
    def is_untyped(self, value: Any) -> bool:
        """Whether one of the framework's tensors is taken for a number, and cast."""

    def is_weak(self, value: Any) -> bool:
        """Whether a number for an input that broadcasts takes the type of the others."""
        return isinstance(value, int | float) and not isinstance(value, np.generic)

    @abstractmethod
    def operand(self, param: Input, tensor: Any) -> Operand:
        """The type and sizes of a tensor; only the type counts."""

    @abstractmethod
    def make_number(self, param: Input, value: Any, kind: str) -> Any:
        """A tensor without dimensions of this type; raises where the value is none of it."""

    def promoted(self, made: dict[str, Any]) -> dict[str, Any]:
        """The arguments, with inputs of one type by the contract in one type, where the framework does that."""
        return made

    def __call__(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Tensors, lists of them and attributes by name; an optional input that is absent is left out."""
        made = {a.name: self._attribute(a, given[a.name]) for a in self.op.attrs if a.name in given}
        numbers = []
        for param in self.op.inputs:
            value = given[param.name]
            if value is None and param.optional:
                continue
            if self._is_number(param, value):
                numbers.append(param)
            elif param.list and value is not None:
                values = enumerate(listed(self.op, param, value, self.tensors))
                made[param.name] = [self.make_tensor(param, one, f"{param.name}[{k}]") for k, one in values]
            else:
                made[param.name] = self.make_tensor(param, value, param.name)
        told = {None, *(p.type.get("var") for p in self.op.inputs if p.name in made)}
        for param in [p for p in numbers if is_broadcast(p) and p.type.get("var") not in told]:
            made[param.name] = self.make_tensor(param, given[param.name], param.name)  # nothing else says its type
            numbers.remove(param)
        made = self.promoted(made)
        for param in numbers:
            made[param.name] = self._number(param, given, made)
        return made

    def _is_number(self, param: Input, value: Any) -> bool:
        """Whether the value becomes a tensor whose type the others say."""
        if is_broadcast(param):
            return self.is_weak(value)
        return is_number(param) and (is_plain_number(self.op, param, value) or self.is_untyped(value))

    def _attribute(self, attr: Attr, value: Any) -> Any:
        reason = self.refuse_attribute(value)
        if reason is not None:
            raise TypeError(f"{self.op.name}: {attr.name} is an attribute, {reason}")
        return attribute_value(self.op, attr, value, self.dtype_name)

    def _number(self, param: Input, given: Mapping[str, Any], made: Mapping[str, Any]) -> Any:
        present = [(p, made[p.name] if p.list else [made[p.name]]) for p in self.op.inputs if p.name in made]
        tensors = [(p, [self.operand(p, tensor) for tensor in values]) for p, values in present]
        kind = number_type(self.op, param, tensors, given, self.dtype_name)
        return self.make_number(param, given[param.name], kind)
